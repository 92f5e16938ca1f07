/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Persistent memory: FI_RMA_PMEM and FI_COMMIT_COMPLETE (fi_rma(3), fi_cq(3), fi_mr(3)). */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "sided.h"

#define LEN	(1 << 20)
#define PAGE	4096

static char here[LEN];
static char *file;

/* For each page of the file: its first byte at the last synchronization, or -1. */
static volatile int durable[LEN / PAGE];

/* Replaces the C library's function, for the library under test too. */
int msync(void *at, size_t len, int flags)
{
	char *from = at;
	size_t i;
	int ret = (int) syscall(SYS_msync, at, len, flags);

	for (i = 0; i < LEN / PAGE && file && flags == MS_SYNC && !ret; i++) {
		char *page = file + i * PAGE;

		if (page >= from && page < from + len)
			durable[i] = *page;
	}
	return ret;
}

static void map_file(void)
{
	char name[] = "/tmp/persistent-XXXXXX";
	int fd = mkstemp(name);

	CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, LEN) == 0);
	file = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(file != MAP_FAILED && close(fd) == 0);
}

static void forget(void)
{
	size_t i;

	for (i = 0; i < LEN / PAGE; i++)
		durable[i] = -1;
}

/* Number of pages that are durable with this byte. */
static size_t pages_with(char byte)
{
	size_t i, count = 0;

	for (i = 0; i < LEN / PAGE; i++)
		count += durable[i] == byte;
	return count;
}

static void expose_file(struct side *s, struct region *r, uint64_t flags)
{
	CHECK(fi_mr_reg(s->domain, file, LEN, EVERY_RIGHT, 0, next_key(), flags, &r->mr, NULL) == 0);
	r->key = fi_mr_key(r->mr);
	r->addr = is_virtual(s) ? (uintptr_t) file : 0;
}

static struct fi_msg_rma *commit_to(struct pair *p, struct region *r, size_t len)
{
	return access_to(p, r, here, 0, len, &contexts[1]);
}

static void write_is_durable(const struct want *base)
{
	const size_t lens[] = { 1, 4000, 5 * PAGE, LEN };
	struct want w = *base;
	struct fi_rma_iov remote[2];
	struct fi_msg_rma *msg;
	struct pair p;
	struct region r;
	size_t i;

	w.caps |= FI_RMA_PMEM;
	map_file();
	meet(&p, &w);
	CHECK(p.a.info->caps & FI_RMA_PMEM);
	expose_file(&p.b, &r, FI_RMA_PMEM);
	for (i = 0; i < ARRAY(lens); i++) {
		size_t pages = (lens[i] + PAGE - 1) / PAGE;
		char byte = (char) (i + 1);

		forget();
		memset(here, byte, lens[i]);
		POST(fi_writemsg(p.a.ep, commit_to(&p, &r, lens[i]), FI_COMPLETION | FI_COMMIT_COMPLETE));
		CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_RMA | FI_WRITE));
		CHECK(pages_with(byte) == pages && file[lens[i] - 1] == byte);
	}
	/* Several ranges, and data for the target, whose entry follows the synchronization. */
	forget();
	memset(here, 9, LEN);
	remote[0] = (struct fi_rma_iov) { r.addr, PAGE / 2, r.key };
	remote[1] = (struct fi_rma_iov) { r.addr + 10 * PAGE, PAGE / 2, r.key };
	msg = commit_to(&p, &r, PAGE);
	msg->data = 4;
	msg->rma_iov = remote;
	msg->rma_iov_count = ARRAY(remote);
	POST(fi_writemsg(p.a.ep, msg, FI_COMPLETION | FI_COMMIT_COMPLETE | FI_REMOTE_CQ_DATA));
	CHECK(done(&p.b, &p.a, NULL).data == 4 && pages_with(9) == 2);
	done(&p.a, &p.b, &contexts[1]);
	/* Other levels synchronize nothing, and neither does a read. */
	forget();
	POST(fi_writemsg(p.a.ep, commit_to(&p, &r, LEN), FI_COMPLETION | FI_DELIVERY_COMPLETE));
	done(&p.a, &p.b, &contexts[1]);
	memset(here, 0, LEN);
	POST(fi_readmsg(p.a.ep, commit_to(&p, &r, LEN), FI_COMPLETION | FI_COMMIT_COMPLETE));
	CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_RMA | FI_READ) && here[LEN - 1] == 9);
	CHECK(pages_with(9) == 0);
	hide(&r);
	part(&p);
	CHECK(munmap(file, LEN) == 0);
	file = NULL;
}

CASE_OURS(rma_commit_makes_bytes_durable)
{
	write_is_durable(&SIDED);
	write_is_durable(&SIDED_MSG);
}

static int attempt(uint64_t caps)
{
	struct fi_info *hints = hints_for(&SIDED), *info;
	int ret, local = within_host(&SIDED);

	hints->caps = caps;
	ret = fi_getinfo(API, local ? NULL : "127.0.0.1", NULL, local ? 0 : FI_SOURCE, hints, &info);
	if (!ret) {
		CHECK(info->caps & FI_RMA_PMEM);
		fi_freeinfo(info);
	}
	fi_freeinfo(hints);
	return ret;
}

/* Memory registered without FI_RMA_PMEM accepts no such write and is never synchronized. */
CASE_OURS(rma_commit_needs_persistent_memory)
{
	struct want w = SIDED;
	uint64_t one = 1;
	struct fi_ioc operand = { &one, 1 };
	struct fi_rma_ioc place = { .count = 1 };
	struct fi_msg_atomic call = { .msg_iov = &operand, .iov_count = 1, .rma_iov = &place, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM };
	struct iovec text = { "message", 8 };
	struct fi_msg message = { .msg_iov = &text, .iov_count = 1 };
	struct fi_msg_tagged tagged = { .msg_iov = &text, .iov_count = 1 };
	struct pair p;
	struct region r;

	map_file();
	forget();
	memset(here, 5, LEN);
	w.caps |= FI_RMA_PMEM;
	meet(&p, &w);
	expose_file(&p.b, &r, 0);
	POST(fi_writemsg(p.a.ep, commit_to(&p, &r, LEN), FI_COMPLETION | FI_COMMIT_COMPLETE));
	CHECK(failed(&p.a, &p.b, FI_EACCES).op_context == &contexts[1] && file[0] == 0 && file[LEN - 1] == 0);
	POST(fi_writemsg(p.a.ep, commit_to(&p, &r, 8), FI_COMPLETION | FI_COMMIT_COMPLETE));
	failed(&p.a, &p.b, FI_EACCES);
	CHECK(file[0] == 0 && pages_with(5) == 0 && pages_with(0) == 0);
	write_works(&p, r.addr, r.key);
	/* Only RMA has this level. */
	place.addr = r.addr;
	place.key = r.key;
	call.addr = message.addr = tagged.addr = p.to_b;
	CHECK(fi_atomicmsg(p.a.ep, &call, FI_COMMIT_COMPLETE) == -FI_EBADFLAGS);
	CHECK(fi_sendmsg(p.a.ep, &message, FI_COMMIT_COMPLETE) == -FI_EBADFLAGS);
	CHECK(fi_tsendmsg(p.a.ep, &tagged, FI_COMMIT_COMPLETE) == -FI_EBADFLAGS);
	hide(&r);
	part(&p);
	/* The capability belongs to FI_RMA, and only programs that request it get it. */
	CHECK(attempt(FI_MSG | FI_RMA_PMEM) == -FI_ENODATA && attempt(FI_RMA | FI_RMA_PMEM) == 0);
	/* Without it the level is refused at once. */
	meet(&p, &SIDED);
	CHECK(!(p.a.info->caps & FI_RMA_PMEM));
	expose_file(&p.b, &r, FI_RMA_PMEM);
	CHECK(fi_writemsg(p.a.ep, commit_to(&p, &r, 8), FI_COMMIT_COMPLETE) == -FI_EBADFLAGS);
	hide(&r);
	part(&p);
	CHECK(munmap(file, LEN) == 0);
	file = NULL;
}
