/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two endpoints with one-sided operations, and memory of the second that the first may access. */
#ifndef SIDED_H
#define SIDED_H

#include "case.h"
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define ONE_SIDED	(FI_RMA | FI_ATOMIC)
#define EVERY_RIGHT	(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

static const struct want SIDED = { .caps = FI_TAGGED | ONE_SIDED };
static const struct want SIDED_MSG = { .type = FI_EP_MSG, .caps = FI_TAGGED | ONE_SIDED };

/* A pair whose second endpoint lacks FI_RMA_EVENT; only the first can send. */
static inline void meet_without_rma_event(struct pair *p)
{
	open_side(&p->a, &SIDED);
	open_domain(&p->b, &SIDED);
	p->b.info->caps &= ~FI_RMA_EVENT;
	p->b.info->rx_attr->caps &= ~FI_RMA_EVENT;
	open_ep(&p->b, p->b.info);
	p->to_b = insert(&p->a, p->b.name);
}

/* A registered region, and how peers name its first byte. */
struct region {
	struct fid_mr *mr;
	uint64_t addr, key;
};

static inline uint64_t next_key(void)
{
	static uint64_t key = 100;

	return key++;
}

/* Whether the domain's regions are addressed virtually. */
static inline int is_virtual(struct side *s)
{
	int mode = s->info->domain_attr->mr_mode;

	return mode == FI_MR_BASIC || mode & FI_MR_VIRT_ADDR;
}

static inline void expose_as(struct side *s, struct region *r, void *buf, size_t len, uint64_t access)
{
	CHECK(fi_mr_reg(s->domain, buf, len, access, 0, next_key(), 0, &r->mr, NULL) == 0);
	if (s->info->domain_attr->mr_mode & FI_MR_ENDPOINT && s->info->domain_attr->mr_mode != FI_MR_BASIC) {
		CHECK(fi_mr_bind(r->mr, &s->ep->fid, 0) == 0);
		CHECK(fi_mr_enable(r->mr) == 0);
	}
	r->key = fi_mr_key(r->mr);
	r->addr = is_virtual(s) ? (uintptr_t) buf : 0;
}

static inline void expose(struct side *s, struct region *r, void *buf, size_t len)
{
	expose_as(s, r, buf, len, EVERY_RIGHT);
}

static inline void hide(struct region *r)
{
	CHECK(fi_close(&r->mr->fid) == 0);
}

/* The message structure of an access to one range of the region, valid until the next call. */
static inline struct fi_msg_rma *access_to(struct pair *p, struct region *r, void *buf, size_t at, size_t len,
	void *context)
{
	static struct fi_rma_iov remote;
	static struct fi_msg_rma msg;
	static struct iovec iov;

	iov = (struct iovec) { buf, len };
	remote = (struct fi_rma_iov) { r->addr + at, len, r->key };
	msg = (struct fi_msg_rma) { .msg_iov = &iov, .iov_count = 1, .addr = p->to_b, .rma_iov = &remote, .rma_iov_count = 1,
		.context = context };
	return &msg;
}

/* A write of 8 bytes, which must fail with this error number and leave both endpoints usable. */
static inline void write_fails(struct pair *p, uint64_t addr, uint64_t key, int number)
{
	static char bytes[8] = "refused";
	struct fi_cq_err_entry err;

	POST(fi_write(p->a.ep, bytes, 8, NULL, p->to_b, addr, key, &contexts[0]));
	err = failed(&p->a, &p->b, number);
	CHECK(err.op_context == &contexts[0] && err.flags == (FI_RMA | FI_WRITE));
}

static inline void write_works(struct pair *p, uint64_t addr, uint64_t key)
{
	static char bytes[8] = "written";

	POST(fi_write(p->a.ep, bytes, 8, NULL, p->to_b, addr, key, &contexts[0]));
	done(&p->a, &p->b, &contexts[0]);
}

/* A read of 8 bytes, which must fail with this error number. */
static inline void read_fails(struct pair *p, uint64_t addr, uint64_t key, int number)
{
	static char bytes[8];
	struct fi_cq_err_entry err;

	POST(fi_read(p->a.ep, bytes, 8, NULL, p->to_b, addr, key, &contexts[0]));
	err = failed(&p->a, &p->b, number);
	CHECK(err.op_context == &contexts[0] && err.flags == (FI_RMA | FI_READ));
}

static inline void read_works(struct pair *p, uint64_t addr, uint64_t key)
{
	static char bytes[8];

	POST(fi_read(p->a.ep, bytes, 8, NULL, p->to_b, addr, key, &contexts[0]));
	done(&p->a, &p->b, &contexts[0]);
}

/* Waits up to ten seconds for the bytes: a write may complete before it is carried out. */
static inline void arrives(const void *place, const void *bytes, size_t len)
{
	double end = seconds() + 10;

	while (memcmp(place, bytes, len) && seconds() < end)
		drive();
	CHECK(!memcmp(place, bytes, len));
}

#endif
