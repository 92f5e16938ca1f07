/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Two ends that are opened just as an info says, with every object that its attributes name, and
 * operations on them that must complete exactly once.
 */
#ifndef PROMISE_H
#define PROMISE_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
#include "completion.h"

#define ARRAY(a)	(sizeof(a) / sizeof(*(a)))
/* Seconds within which each operation completes. */
#define LIMIT	5.0
/* Bits of a receive index in the addresses of named receive contexts. */
#define BITS	4
/* Bytes of an end's memory that the other may access. */
#define EXPOSED	(16 << 10)
#define EVERY_RIGHT	(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
/* Later headers do not have FI_BUFFERED_RECV, and to theirs this bit is FI_EXACT_DIRECTED_RECV. */
#define BUFFERED_RECV	(1ULL << 51)
#define VARIABLE_MSG	(1ULL << 48)
#define EVERY_SIDE	(FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* What the program decides beside the hints. */
static struct {
	uint32_t api;
	uint64_t format, wait, selective;
} choice = { .api = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), .format = FI_CQ_FORMAT_TAGGED };

/* A message that a buffered endpoint has reported before a buffer takes it. */
struct notice {
	struct fi_recv_context *context;
	uint64_t flags;
	size_t len;
	const char *buf;
};

struct end {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_stx *stx;
	/* A scalable endpoint and its contexts, or an endpoint that is also `out` and `in`. */
	struct fid_ep *ep, *tx[16], *rx[16];
	int is_scalable;
	/* What transmits, and what receives: perhaps a shared receive context. */
	struct fid_ep *out, *in, *srx;
	/* Counts messages sent and received, and accesses of the other end. */
	struct fid_cntr *sends, *receives, *writes;
	uint64_t sent, received, written;
	/* The other end. */
	fi_addr_t peer;
	char name[64];
	struct fid_mr *mr;
	uint64_t base, key;
	char memory[EXPOSED];
	/* Entries about writes with data of the other end. */
	int remote;
	/* Messages that this end has been notified of, and those that it has claimed or discarded. */
	struct notice notices[64];
	size_t noticed, taken;
};

/* An operation. */
struct op {
	struct fi_triggered_context2 context;
	const char *what;
	/* Entries, of which the last had these flags, and the source that it names. */
	int entries, released, error;
	uint64_t flags, data;
	size_t len;
	fi_addr_t source;
	/* How many entries must come in all; a multi-receive buffer may have one more. */
	int expected, is_multi;
	/* Where a message goes that is claimed, and whether it has a tag. */
	struct iovec into;
	int is_tagged;
};

static struct op ops[8192];
static size_t op_count;
static struct end ends[2];

static const char *step = "";

#define STEP(name) do { step = (name); if (getenv("OFI_PROMISE_STEPS")) fprintf(stderr, "  %s\n", step); } while (0)

static void explain(const struct fi_info *info)
{
	fprintf(stderr, "step: %s\n%s\n", step, fi_tostr(info, FI_TYPE_INFO));
}

/* Exits, and prints the step that failed and the info that it was for. */
static void __attribute__((noreturn)) quit(const char *file, int line, const char *step, const char *why)
{
	fprintf(stderr, "%s:%d: %s%s\n", file, line, step, why);
	explain(ends[0].info);
	exit(1);
}

static void expect_0(const char *file, int line, const char *step, long result)
{
	char why[100];

	if (!result)
		return;
	snprintf(why, sizeof(why), ": %s", fi_strerror((int) -result));
	quit(file, line, step, why);
}

#define MUST(condition) \
	do { \
		if (!(condition)) \
			quit(__FILE__, __LINE__, #condition, ""); \
	} while (0)

/* A call that must return 0. */
#define OK(call) expect_0(__FILE__, __LINE__, #call, (long) (call))

/* The same, but it may return -FI_EAGAIN for a while. */
#define POST(call) \
	do { \
		double end_ = seconds() + LIMIT; \
		long ret_; \
		while ((ret_ = (long) (call)) == -FI_EAGAIN && seconds() < end_) \
			pump(); \
		expect_0(__FILE__, __LINE__, #call, ret_); \
	} while (0)

static int is_msg(const struct end *e)
{
	return e->info->ep_attr->type == FI_EP_MSG;
}

static int is_datagram(const struct end *e)
{
	return e->info->ep_attr->type == FI_EP_DGRAM;
}

static int can(const struct end *e, uint64_t caps)
{
	return (e->info->caps & caps) == caps;
}

/* Whether messages are claimed and not received, as callers of 1.x may ask for. */
static int is_buffered(const struct end *e)
{
	int has_mode = choice.api >= FI_VERSION(1, 7) && choice.api < FI_VERSION(2, 0);
	int has_capability = has_mode && choice.api < FI_VERSION(1, 21);

	return (has_mode && e->info->mode & BUFFERED_RECV) || (has_capability && e->info->caps & VARIABLE_MSG);
}

static struct op *new_op(const char *what, int expected)
{
	struct op *op = &ops[op_count++];

	MUST(op_count < ARRAY(ops));
	memset(op, 0, sizeof(*op));
	op->what = what;
	op->expected = expected;
	return op;
}

static void note_message(struct end *e, const struct fi_cq_tagged_entry *entry)
{
	MUST(e->noticed < e->taken + ARRAY(e->notices));
	e->notices[e->noticed++ % ARRAY(e->notices)] = (struct notice) { entry->op_context,
		choice.format >= FI_CQ_FORMAT_MSG ? entry->flags : 0, entry->len, entry->buf };
}

static int is_op(const void *context)
{
	return (const char *) context >= (char *) ops && (const char *) context < (char *) (ops + op_count);
}

static void note(struct end *e, void *context, uint64_t flags, size_t len, uint64_t data, int error, fi_addr_t source)
{
	struct op *op = context;

	if (!is_op(context)) {
		if (error)
			fprintf(stderr, "an error without a context: %s\n", fi_strerror(error));
		MUST(!error);
		e->remote++;
		return;
	}
	op->entries++;
	op->flags = flags;
	op->len = len;
	op->data = data;
	op->error = error;
	op->source = source;
	if (flags & FI_MULTI_RECV)
		op->released++;
}

/* Reads what has completed at one end. */
static void pump_end(struct end *e)
{
	static const size_t sizes[] = { 0, sizeof(struct fi_cq_entry), sizeof(struct fi_cq_msg_entry),
		sizeof(struct fi_cq_data_entry), sizeof(struct fi_cq_tagged_entry) };
	struct fi_cq_tagged_entry entry = { 0 };
	struct fi_cq_err_entry err = { 0 };
	fi_addr_t source = FI_ADDR_NOTAVAIL;
	uint32_t number;
	ssize_t ret;

	if (e->eq)
		fi_eq_read(e->eq, &number, NULL, 0, FI_PEEK);
	if (!e->cq)
		return;
	while ((ret = fi_cq_readfrom(e->cq, &entry, 1, &source)) == 1 || ret == -FI_EAVAIL) {
		if (ret == 1 && is_buffered(e) && entry.op_context && !is_op(entry.op_context)) {
			note_message(e, &entry);
		} else if (ret == 1) {
			int has_data = choice.format >= FI_CQ_FORMAT_DATA;

			note(e, entry.op_context, choice.format >= FI_CQ_FORMAT_MSG ? entry.flags : 0, entry.len,
				has_data ? entry.data : 0, 0, source);
		} else {
			MUST(fi_cq_readerr(e->cq, &err, 0) == 1);
			note(e, err.op_context, err.flags, err.len, err.data, err.err, err.src_addr);
		}
		memset(&entry, 0, sizes[choice.format]);
	}
	MUST(ret == -FI_EAGAIN);
}

static void pump(void)
{
	pump_end(&ends[0]);
	pump_end(&ends[1]);
}

/* Waits for as many entries as the operation has in all. */
static void done(struct op *op)
{
	double end = seconds() + LIMIT;

	while (op->entries < op->expected && seconds() < end)
		pump();
	if (op->entries < op->expected || op->error)
		fprintf(stderr, "%s: %d of %d entries, %s\n", op->what, op->entries, op->expected, fi_strerror(op->error));
	MUST(op->entries >= op->expected && !op->error);
}

/* Waits until the memory has those bytes, which no entry reports. */
static void becomes(const void *place, const void *bytes, size_t len)
{
	double end = seconds() + LIMIT;

	while (memcmp(place, bytes, len) && seconds() < end)
		pump();
	MUST(!memcmp(place, bytes, len));
}

/* Whether calls without flags report success. */
static int tx_reports(const struct end *e)
{
	return !choice.selective || e->info->tx_attr->op_flags & FI_COMPLETION;
}

static int rx_reports(const struct end *e)
{
	return !choice.selective || e->info->rx_attr->op_flags & FI_COMPLETION;
}

static struct fid_cntr *open_cntr(struct end *e)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *cntr;

	OK(fi_cntr_open(e->domain, &attr, &cntr, NULL));
	return cntr;
}

static void open_domain(struct end *e)
{
	struct fi_cq_attr cq_attr = { .format = (enum fi_cq_format) choice.format, .wait_obj = (enum fi_wait_obj) choice.wait };
	struct fi_av_attr av_attr = { .type = e->info->domain_attr->av_type, .count = 2 };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };

	STEP("open the domain and its objects");
	if (can(e, FI_NAMED_RX_CTX) || e->info->ep_attr->rx_ctx_cnt > 1)
		av_attr.rx_ctx_bits = BITS;
	OK(fi_fabric(e->info->fabric_attr, &e->fabric, NULL));
	OK(fi_domain(e->fabric, e->info, &e->domain, NULL));
	OK(fi_eq_open(e->fabric, &eq_attr, &e->eq, NULL));
	OK(fi_cq_open(e->domain, &cq_attr, &e->cq, NULL));
	OK(fi_av_open(e->domain, &av_attr, &e->av, NULL));
	e->sends = open_cntr(e);
	e->receives = open_cntr(e);
	e->writes = open_cntr(e);
}

static void bind_tx(struct end *e, struct fid_ep *ep, uint64_t ways)
{
	uint64_t selective = choice.selective ? FI_SELECTIVE_COMPLETION : 0;

	OK(fi_ep_bind(ep, &e->cq->fid, ways | selective));
	if (ways & FI_TRANSMIT)
		OK(fi_ep_bind(ep, &e->sends->fid, FI_SEND));
	if (ways & FI_RECV)
		OK(fi_ep_bind(ep, &e->receives->fid, FI_RECV));
	if (ways & FI_RECV && can(e, FI_RMA_EVENT | FI_REMOTE_WRITE))
		OK(fi_ep_bind(ep, &e->writes->fid, FI_REMOTE_WRITE));
}

static int several(size_t count)
{
	return count > 1 && count != FI_SHARED_CONTEXT;
}

static void open_contexts(struct end *e)
{
	size_t i, senders = e->info->ep_attr->tx_ctx_cnt, receivers = e->info->ep_attr->rx_ctx_cnt;

	e->is_scalable = 1;
	OK(fi_scalable_ep(e->domain, e->info, &e->ep, e));
	OK(fi_scalable_ep_bind(e->ep, &e->av->fid, 0));
	/* A shared context is the only one of its kind. Of many, only these are used. */
	if (senders == FI_SHARED_CONTEXT)
		OK(fi_stx_context(e->domain, e->info->tx_attr, &e->stx, NULL));
	if (receivers == FI_SHARED_CONTEXT)
		OK(fi_srx_context(e->domain, e->info->rx_attr, &e->srx, NULL));
	senders = senders == FI_SHARED_CONTEXT ? 1 : senders;
	receivers = receivers == FI_SHARED_CONTEXT ? 1 : receivers;
	senders = senders < ARRAY(e->tx) ? senders : ARRAY(e->tx);
	receivers = receivers < ARRAY(e->rx) ? receivers : ARRAY(e->rx);
	for (i = 0; i < senders; i++) {
		OK(fi_tx_context(e->ep, (int) i, e->info->tx_attr, &e->tx[i], e));
		bind_tx(e, e->tx[i], FI_TRANSMIT);
		if (e->stx)
			OK(fi_ep_bind(e->tx[i], &e->stx->fid, 0));
		OK(fi_enable(e->tx[i]));
		e->out = e->tx[i];
	}
	for (i = 0; i < receivers; i++) {
		OK(fi_rx_context(e->ep, (int) i, e->info->rx_attr, &e->rx[i], e));
		bind_tx(e, e->rx[i], FI_RECV);
		if (e->srx)
			OK(fi_ep_bind(e->rx[i], &e->srx->fid, 0));
		OK(fi_enable(e->rx[i]));
	}
	e->in = e->srx ? e->srx : e->rx[0];
}

/* Opens the endpoint; `info` is that of the request if it accepts a connection. */
static void open_ep(struct end *e, struct fi_info *info)
{
	STEP("open the endpoint");
	if (several(info->ep_attr->tx_ctx_cnt) || several(info->ep_attr->rx_ctx_cnt)) {
		open_contexts(e);
		return;
	}
	OK(fi_endpoint(e->domain, info, &e->ep, e));
	e->in = e->out = e->ep;
	if (info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT) {
		OK(fi_stx_context(e->domain, info->tx_attr, &e->stx, NULL));
		OK(fi_ep_bind(e->ep, &e->stx->fid, 0));
	}
	if (info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT) {
		OK(fi_srx_context(e->domain, info->rx_attr, &e->srx, NULL));
		OK(fi_ep_bind(e->ep, &e->srx->fid, 0));
		e->in = e->srx;
	}
	bind_tx(e, e->ep, FI_TRANSMIT | FI_RECV);
	if (is_msg(e) || can(e, FI_COLLECTIVE) || can(e, FI_MULTICAST))
		OK(fi_ep_bind(e->ep, &e->eq->fid, 0));
	if (!is_msg(e))
		OK(fi_ep_bind(e->ep, &e->av->fid, 0));
	OK(fi_enable(e->ep));
}

/* An event that both ends have time to cause. */
static void event_of(struct end *e, uint32_t wanted, void *buf, size_t len)
{
	double end = seconds() + LIMIT;
	uint32_t number = 0;
	ssize_t ret;

	do {
		ret = fi_eq_read(e->eq, &number, buf, len, 0);
		pump();
	} while (ret == -FI_EAGAIN && seconds() < end);
	if (ret == -FI_EAVAIL) {
		struct fi_eq_err_entry err = { 0 };

		fi_eq_readerr(e->eq, &err, 0);
		fprintf(stderr, "event: %s\n", fi_strerror(err.err));
	}
	MUST(ret > 0 && number == wanted);
}

static void expose(struct end *e)
{
	static uint64_t next_key = 1;
	int mode = e->info->domain_attr->mr_mode, basic = mode == FI_MR_BASIC, plain = basic || mode == FI_MR_SCALABLE;
	uint64_t flags = !plain && mode & FI_MR_RMA_EVENT ? FI_RMA_EVENT : 0;

	/* What the other end's writes may make durable. */
	if (can(e, FI_RMA_PMEM))
		flags |= FI_RMA_PMEM;

	if (!can(e, FI_RMA) && !can(e, FI_ATOMIC))
		return;
	STEP("register memory");
	OK(fi_mr_reg(e->domain, e->memory, EXPOSED, EVERY_RIGHT, 0, next_key++, flags, &e->mr, NULL));
	if (!plain && mode & (FI_MR_ENDPOINT | FI_MR_RMA_EVENT)) {
		if (mode & FI_MR_ENDPOINT)
			OK(fi_mr_bind(e->mr, &e->ep->fid, 0));
		OK(fi_mr_enable(e->mr));
	}
	e->key = fi_mr_key(e->mr);
	e->base = basic || (!plain && mode & FI_MR_VIRT_ADDR) ? (uintptr_t) e->memory : 0;
}

static void meet(void)
{
	struct end *a = &ends[0], *b = &ends[1];
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	size_t len = sizeof(a->name);
	struct fid_pep *pep;
	int i;

	open_domain(a);
	open_domain(b);
	if (!is_msg(a)) {
		for (i = 0; i < 2; i++) {
			struct end *e = &ends[i];

			open_ep(e, e->info);
			len = sizeof(e->name);
			OK(fi_getname(&e->ep->fid, e->name, &len));
		}
		for (i = 0; i < 2; i++)
			MUST(fi_av_insert(ends[i].av, ends[!i].name, 1, &ends[i].peer, 0, NULL) == 1);
	} else {
		STEP("connect");
		OK(fi_passive_ep(b->fabric, b->info, &pep, b));
		OK(fi_pep_bind(pep, &b->eq->fid, 0));
		OK(fi_listen(pep));
		OK(fi_getname(&pep->fid, b->name, &len));
		open_ep(a, a->info);
		OK(fi_connect(a->ep, b->name, NULL, 0));
		event_of(b, FI_CONNREQ, &event, sizeof(event));
		open_ep(b, event.cm.info);
		OK(fi_accept(b->ep, NULL, 0));
		fi_freeinfo(event.cm.info);
		event_of(b, FI_CONNECTED, &event, sizeof(event));
		event_of(a, FI_CONNECTED, &event, sizeof(event));
		OK(fi_close(&pep->fid));
	}
	expose(a);
	expose(b);
}

#define CLOSE(object) do { if (object) OK(fi_close(&(object)->fid)); } while (0)

static void part(void)
{
	size_t i;
	int n;

	STEP("close");
	for (n = 0; n < 2; n++) {
		struct end *e = &ends[n];

		for (i = 0; i < ARRAY(e->tx); i++) {
			CLOSE(e->tx[i]);
			CLOSE(e->rx[i]);
		}
		CLOSE(e->mr);
		CLOSE(e->ep);
	}
	for (n = 0; n < 2; n++) {
		struct end *e = &ends[n];

		CLOSE(e->stx);
		CLOSE(e->srx);
		CLOSE(e->sends);
		CLOSE(e->receives);
		CLOSE(e->writes);
		CLOSE(e->av);
		CLOSE(e->cq);
		CLOSE(e->eq);
		CLOSE(e->domain);
		CLOSE(e->fabric);
	}
}

#endif
