/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counters of one-sided operations and of bytes (fi_cntr(3)). */
#include "sided.h"

/* Headers before 1.21 lack FI_CNTR_EVENTS_BYTES. */
#define COMPLETIONS	0
#define BYTES		1

static uint64_t there[1 << 10], here[1 << 10];

static struct fid_cntr *counter(struct side *s, int events)
{
	struct fi_cntr_attr attr = { .events = events, .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *cntr;

	CHECK(fi_cntr_open(s->domain, &attr, &cntr, NULL) == 0);
	return cntr;
}

/* A counter bound to an endpoint, which may already be enabled. */
static struct fid_cntr *bound(struct side *s, int events, uint64_t kinds)
{
	struct fid_cntr *cntr = counter(s, events);

	CHECK(fi_ep_bind(s->ep, &cntr->fid, kinds) == 0);
	return cntr;
}

/* Both values are reached within ten seconds, and not exceeded. */
static void counts(struct fid_cntr *cntr, uint64_t successes, uint64_t errors)
{
	double end = seconds() + 10;

	while ((fi_cntr_read(cntr) != successes || fi_cntr_readerr(cntr) != errors) && seconds() < end)
		drive();
	drive();
	if (fi_cntr_read(cntr) != successes || fi_cntr_readerr(cntr) != errors)
		fprintf(stderr, "%llu and %llu errors, not %llu and %llu\n", (unsigned long long) fi_cntr_read(cntr),
			(unsigned long long) fi_cntr_readerr(cntr), (unsigned long long) successes,
			(unsigned long long) errors);
	CHECK(fi_cntr_read(cntr) == successes && fi_cntr_readerr(cntr) == errors);
}

static void part_with(struct pair *p, struct fid_cntr **counters, size_t count)
{
	size_t i;

	CHECK(fi_close(&p->a.ep->fid) == 0 && fi_close(&p->b.ep->fid) == 0);
	p->a.ep = p->b.ep = NULL;
	for (i = 0; i < count; i++)
		CHECK(fi_close(&counters[i]->fid) == 0);
	part(p);
}

/* Two remote ranges of `len` bytes each, for calls with message structures. */
static struct fi_rma_iov *two_ranges(struct region *r, size_t len)
{
	static struct fi_rma_iov remote[2];

	remote[0] = (struct fi_rma_iov) { r->addr, len, r->key };
	remote[1] = (struct fi_rma_iov) { r->addr + 4096, len, r->key };
	return remote;
}

enum { WRITES, READS, REMOTE_WRITES, REMOTE_READS, KINDS };

/* Posts every kind of one-sided operation, then failing ones, and checks all four counters. */
static void one_of_each(struct pair *p, struct region *r, int events, const uint64_t (*expected)[2])
{
	struct iovec iov = { here, 200 };
	struct fi_msg_rma msg = { .msg_iov = &iov, .iov_count = 1, .rma_iov = two_ranges(r, 100), .rma_iov_count = 2,
		.addr = p->to_b, .context = &contexts[1] };
	struct fid_cntr *cntr[KINDS] = { bound(&p->a, events, FI_WRITE), bound(&p->a, events, FI_READ),
		bound(&p->b, events, FI_REMOTE_WRITE), bound(&p->b, events, FI_REMOTE_READ) };
	uint64_t got[8], one[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	int i;

	POST(fi_write(p->a.ep, here, 5000, NULL, p->to_b, r->addr, r->key, &contexts[1]));
	done(&p->a, &p->b, &contexts[1]);
	POST(fi_inject_write(p->a.ep, here, 10, p->to_b, r->addr, r->key));
	POST(fi_writemsg(p->a.ep, &msg, FI_COMPLETION));
	done(&p->a, &p->b, &contexts[1]);
	POST(fi_atomic(p->a.ep, one, 4, NULL, p->to_b, r->addr, r->key, FI_UINT64, FI_SUM, &contexts[1]));
	done(&p->a, &p->b, &contexts[1]);
	POST(fi_read(p->a.ep, here, 6000, NULL, p->to_b, r->addr, r->key, &contexts[1]));
	done(&p->a, &p->b, &contexts[1]);
	POST(fi_readmsg(p->a.ep, &msg, FI_COMPLETION));
	done(&p->a, &p->b, &contexts[1]);
	POST(fi_fetch_atomic(p->a.ep, one, 3, NULL, got, NULL, p->to_b, r->addr, r->key, FI_UINT32, FI_SUM, &contexts[1]));
	done(&p->a, &p->b, &contexts[1]);
	POST(fi_compare_atomic(p->a.ep, one, 1, NULL, one, NULL, got, NULL, p->to_b, r->addr, r->key, FI_UINT64, FI_CSWAP,
		&contexts[1]));
	done(&p->a, &p->b, &contexts[1]);
	/* A failed operation counts as an error at the initiator, and not at all at the target. */
	write_fails(p, r->addr + sizeof(there), r->key, FI_EACCES);
	read_fails(p, r->addr + sizeof(there), r->key, FI_EACCES);
	two_ranges(r, 100)[0].key = 4711;
	POST(fi_readmsg(p->a.ep, &msg, FI_COMPLETION));
	failed(&p->a, &p->b, FI_EINVAL);
	for (i = 0; i < KINDS; i++)
		counts(cntr[i], expected[i][0], expected[i][1]);
	/* The target gets no completions. */
	quiet(&p->b, &p->a);
	hide(r);
	part_with(p, cntr, KINDS);
}

static void counts_one_sided(int events, const uint64_t (*expected)[2])
{
	struct want w = SIDED;
	struct pair p;
	struct region r;

	w.caps |= FI_RMA_EVENT;
	meet(&p, &w);
	expose(&p.b, &r, there, sizeof(there));
	memset(there, 0, sizeof(there));
	if (p.b.info->domain_attr->mr_mode & FI_MR_ENDPOINT)
		SKIP("the region keeps the endpoint open");
	one_of_each(&p, &r, events, expected);
}

CASE_OURS(cntr_kinds_of_one_sided_operations)
{
	const uint64_t expected[KINDS][2] = { { 4, 1 }, { 4, 2 }, { 4, 0 }, { 4, 0 } };

	counts_one_sided(COMPLETIONS, expected);
}

CASE_OURS(cntr_bytes_of_one_sided_operations)
{
	const uint64_t wrote = 5000 + 10 + 200 + 4 * 8, read = 6000 + 200 + 3 * 4 + 8;
	const uint64_t expected[KINDS][2] = { { wrote, 1 }, { read, 2 }, { wrote, 0 }, { read, 0 } };

	counts_one_sided(BYTES, expected);
}

/* Short and long messages, with remote CQ data, which does not count, and failures. */
static void counts_bytes_of_messages(const struct want *w)
{
	static char in[1 << 20], out[1 << 20];
	struct fid_cntr *cntr[2];
	struct pair p;

	meet(&p, w);
	cntr[0] = bound(&p.a, BYTES, FI_SEND);
	cntr[1] = bound(&p.b, BYTES, FI_RECV);
	POST(fi_trecv(p.b.ep, in, 100, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
	POST(fi_tsenddata(p.a.ep, out, 10, NULL, UINT64_MAX, p.to_b, 1, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	counts(cntr[0], 10, 0);
	counts(cntr[1], 10, 0);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, out, sizeof(out), NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	POST(fi_inject(p.a.ep, out, 7, p.to_b));
	POST(fi_recv(p.b.ep, in, 100, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	done(&p.b, &p.a, &contexts[0]);
	/* An empty message counts 0 bytes. */
	POST(fi_send(p.a.ep, NULL, 0, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	POST(fi_recv(p.b.ep, in, 100, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	done(&p.b, &p.a, &contexts[0]);
	counts(cntr[0], 17 + sizeof(out), 0);
	counts(cntr[1], 17 + sizeof(out), 0);
	/* A truncated message is one error, regardless of its length. */
	POST(fi_recv(p.b.ep, in, 50, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, out, 60, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	failed(&p.b, &p.a, FI_ETRUNC);
	counts(cntr[0], 77 + sizeof(out), 0);
	counts(cntr[1], 17 + sizeof(out), 1);
	part_with(&p, cntr, 2);
}

CASE_OURS(cntr_bytes_of_messages)
{
	counts_bytes_of_messages(&RDM);
	counts_bytes_of_messages(&SIDED_MSG);
}

CASE_OURS(cntr_bytes_of_datagrams)
{
	struct want w = { .type = FI_EP_DGRAM };
	struct fid_cntr *cntr[2];
	struct pair p;
	char in[100];

	meet(&p, &w);
	cntr[0] = bound(&p.a, BYTES, FI_SEND);
	cntr[1] = bound(&p.b, BYTES, FI_RECV);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, here, 44, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	counts(cntr[0], 44, 0);
	counts(cntr[1], 44, 0);
	part_with(&p, cntr, 2);
}

/* A counter bound to a region, and one bound to the endpoint before it was enabled. */
CASE_OURS(cntr_bytes_of_a_region)
{
	struct want w = SIDED;
	struct fid_cntr *of_region, *of_ep;
	struct pair p;
	struct region r;

	w.caps |= FI_RMA_EVENT;
	open_side(&p.a, &w);
	open_domain(&p.b, &w);
	CHECK(fi_endpoint(p.b.domain, p.b.info, &p.b.ep, NULL) == 0);
	of_ep = bound(&p.b, BYTES, FI_REMOTE_WRITE | FI_REMOTE_READ);
	CHECK(fi_ep_bind(p.b.ep, &p.b.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	enable_ep(&p.b);
	p.to_b = insert(&p.a, p.b.name);
	expose(&p.b, &r, there, sizeof(there));
	of_region = counter(&p.b, BYTES);
	CHECK(fi_mr_bind(r.mr, &of_region->fid, FI_REMOTE_WRITE | FI_REMOTE_READ) == 0);
	CHECK(fi_mr_enable(r.mr) == 0);
	POST(fi_writedata(p.a.ep, here, 70, NULL, 5, p.to_b, r.addr, r.key, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, NULL);
	read_works(&p, r.addr, r.key);
	counts(of_region, 78, 0);
	counts(of_ep, 78, 0);
	/* The region keeps its counter open. */
	CHECK(fi_close(&of_region->fid) == -FI_EBUSY);
	hide(&r);
	CHECK(fi_close(&of_region->fid) == 0);
	part_with(&p, &of_ep, 1);
}

/* A read of a region's counter, or a wait for it, makes progress on the endpoints through which peers reach the region. */
CASE_OURS(cntr_of_a_region_makes_progress_by_itself)
{
	struct want w = SIDED;
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *cntr;
	struct fi_cq_tagged_entry entry;
	struct pair p;
	struct region r;
	double end = seconds() + 10;

	w.caps |= FI_RMA_EVENT;
	open_side(&p.a, &w);
	open_domain(&p.b, &w);
	/* The region exists before the endpoint. */
	CHECK(fi_mr_reg(p.b.domain, there, sizeof(there), EVERY_RIGHT, 0, next_key(), 0, &r.mr, NULL) == 0);
	CHECK(fi_cntr_open(p.b.domain, &attr, &cntr, NULL) == 0);
	CHECK(fi_mr_bind(r.mr, &cntr->fid, FI_REMOTE_WRITE) == 0 && fi_mr_enable(r.mr) == 0);
	r.key = fi_mr_key(r.mr);
	r.addr = is_virtual(&p.b) ? (uintptr_t) there : 0;
	open_ep(&p.b, p.b.info);
	p.to_b = insert(&p.a, p.b.name);
	write_works(&p, r.addr, r.key);
	POST(fi_write(p.a.ep, here, 8, NULL, p.to_b, r.addr, r.key, &contexts[1]));
	while (fi_cntr_read(cntr) < 2 && seconds() < end)
		fi_cq_read(p.a.cq, &entry, 0);
	CHECK(fi_cntr_read(cntr) == 2);
	POST(fi_write(p.a.ep, here, 8, NULL, p.to_b, r.addr, r.key, &contexts[1]));
	fi_cq_read(p.a.cq, &entry, 0);
	CHECK(fi_cntr_wait(cntr, 3, 10000) == 0);
	done(&p.a, &p.b, &contexts[1]);
	done(&p.a, &p.b, &contexts[1]);
	hide(&r);
	CHECK(fi_close(&cntr->fid) == 0);
	part(&p);
}

/* Without FI_RMA_EVENT a counter of remote accesses can be bound, but counts nothing. */
CASE_OURS(cntr_of_peers_needs_rma_event)
{
	struct fid_cntr *cntr;
	struct pair p;
	struct region r;

	meet_without_rma_event(&p);
	expose(&p.b, &r, there, sizeof(there));
	cntr = bound(&p.b, COMPLETIONS, FI_REMOTE_WRITE | FI_REMOTE_READ);
	write_works(&p, r.addr, r.key);
	read_works(&p, r.addr, r.key);
	counts(cntr, 0, 0);
	hide(&r);
	part_with(&p, &cntr, 1);
}

CASE_OURS(cntr_default_flags)
{
	struct fid_cntr *cntr;
	struct side s;
	uint64_t flags = 77;

	open_domain(&s, &RDM);
	cntr = counter(&s, COMPLETIONS);
	CHECK(fi_control(&cntr->fid, FI_GETOPSFLAG, &flags) == 0 && flags == 0);
	CHECK(fi_control(&cntr->fid, FI_SETOPSFLAG, &flags) == 0);
	/* No operation flag applies to a counter. */
	flags = FI_COMPLETION;
	CHECK(fi_control(&cntr->fid, FI_SETOPSFLAG, &flags) == -FI_EBADFLAGS);
	CHECK(fi_control(&cntr->fid, FI_GETOPSFLAG, &flags) == 0 && flags == 0);
	CHECK(fi_control(&cntr->fid, FI_GETOPSFLAG, NULL) == -FI_EINVAL);
	CHECK(fi_control(&cntr->fid, FI_SETOPSFLAG, NULL) == -FI_EINVAL);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}
