/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the steps of promises.c have in common: messages that one end sends and the other receives
 * or, with buffered receives (FI_BUFFERED_RECV, FI_VARIABLE_MSG), claims.
 */
#ifndef PROMISE_STEPS_H
#define PROMISE_STEPS_H

#include "promise.h"

/* Bytes of messages. */
static char out[70000], in[70000], got[8][256];
static uint64_t one = 1, operand = 5, fetched, compared;

/* Posts a receive that reports its message; a buffered endpoint needs none. */
static struct op *receive(struct end *y, void *buf, size_t len, fi_addr_t src)
{
	struct op *op = new_op("receive", 1);
	struct fi_msg msg = { .msg_iov = &op->into, .iov_count = 1, .addr = src, .context = op };

	op->into = (struct iovec) { buf, len };
	y->received++;
	if (is_buffered(y))
		return op;
	if (rx_reports(y)) {
		op->is_multi = (y->info->rx_attr->op_flags & FI_MULTI_RECV) != 0;
		POST(fi_recv(y->in, buf, len, NULL, src, op));
	} else {
		POST(fi_recvmsg(y->in, &msg, FI_COMPLETION));
	}
	return op;
}

/* The same by tag. A buffered endpoint takes the tag alone. */
static struct op *receive_tagged(struct end *y, void *buf, size_t len, uint64_t tag, fi_addr_t src)
{
	struct op *op = new_op("tagged receive", 1);
	struct fi_msg_tagged msg = { .msg_iov = &op->into, .iov_count = 1, .addr = src, .tag = tag, .context = op };

	op->into = (struct iovec) { buf, len };
	op->is_tagged = 1;
	y->received++;
	if (rx_reports(y)) {
		op->is_multi = (y->info->rx_attr->op_flags & FI_MULTI_RECV) != 0;
		POST(fi_trecv(y->in, buf, len, NULL, src, tag, 0, op));
	} else {
		POST(fi_trecvmsg(y->in, &msg, FI_COMPLETION));
	}
	return op;
}

/* The oldest message that y has been notified of, and has neither claimed nor discarded. */
static struct notice *next_notice(struct end *y, const struct op *op)
{
	double end = seconds() + LIMIT;
	struct notice *notice;

	while (y->taken == y->noticed && seconds() < end)
		pump();
	MUST(y->taken < y->noticed);
	notice = &y->notices[y->taken++ % ARRAY(y->notices)];
	MUST(notice->context->ep == (op->is_tagged ? NULL : y->in));
	MUST(notice->context->context == (op->is_tagged ? op : NULL));
	if (choice.format >= FI_CQ_FORMAT_MSG)
		MUST((notice->flags & (FI_RECV | FI_MSG | FI_TAGGED)) == (FI_RECV | (op->is_tagged ? FI_TAGGED : FI_MSG)));
	/* A message without FI_MORE is there to be read. */
	if (choice.format >= FI_CQ_FORMAT_DATA && !(notice->flags & FI_MORE))
		MUST(!memcmp(notice->buf, out, notice->len));
	return notice;
}

/* Takes a message that y has been notified of, with FI_CLAIM or FI_DISCARD. */
static void take(struct end *y, struct op *op, uint64_t flags)
{
	struct notice *notice = next_notice(y, op);
	struct fi_msg msg = { .msg_iov = &op->into, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = notice->context };
	struct fi_msg_tagged tagged = { .msg_iov = &op->into, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = notice->context };

	notice->context->context = op;
	if (op->is_tagged)
		POST(fi_trecvmsg(y->in, &tagged, flags));
	else
		POST(fi_recvmsg(y->in, &msg, flags));
}

static void arrived(struct end *y, struct op *op, const void *buf, size_t len)
{
	if (is_buffered(y))
		take(y, op, FI_CLAIM | FI_COMPLETION);
	done(op);
	MUST(!memcmp(buf, out, len));
	if (choice.format >= FI_CQ_FORMAT_MSG)
		MUST(op->flags & FI_RECV && (op->is_multi || op->len == len));
	if (can(y, FI_SOURCE) && !is_msg(y))
		MUST(op->source == y->peer);
}

/* The longest message that any call of this end takes. */
static size_t fitting(const struct end *x, size_t len)
{
	size_t most = x->info->tx_attr->op_flags & FI_INJECT ? x->info->tx_attr->inject_size : x->info->ep_attr->max_msg_size;

	return len < most ? len : most;
}

static uint64_t data_of(const struct end *x)
{
	size_t size = x->info->domain_attr->cq_data_size;

	return size >= 8 ? 0x8877665544332211 : 0x8877665544332211 & ((1ULL << 8 * size) - 1);
}

static uint64_t at(const struct end *y, size_t offset)
{
	return y->base + offset;
}

/* The counter gets to the value, and no further. */
static void counted(struct fid_cntr *cntr, uint64_t value, const char *what)
{
	double end = seconds() + LIMIT;
	uint64_t now;

	STEP(what);
	while ((now = fi_cntr_read(cntr)) < value && seconds() < end)
		pump();
	if (now != value)
		fprintf(stderr, "%llu and not %llu\n", (unsigned long long) now, (unsigned long long) value);
	MUST(now == value && fi_cntr_readerr(cntr) == 0);
}

#endif
