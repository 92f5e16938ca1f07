/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Triggered operations and deferred work (fi_trigger(3)): each call with FI_TRIGGER and each
 * FI_OP_*, once. An operation must not start before its counter gets to its threshold.
 */
#ifndef PROMISE_DEFERRED_H
#define PROMISE_DEFERRED_H

#include "promise_steps.h"

/* The counters of an end's work: the next threshold, and how much has completed. */
struct schedule {
	struct end *e;
	struct fid_cntr *trigger, *completion;
	uint64_t reached, completed;
};

static struct schedule open_schedule(struct end *e)
{
	return (struct schedule) { .e = e, .trigger = open_cntr(e), .completion = open_cntr(e) };
}

static void close_schedule(struct schedule *s)
{
	OK(fi_close(&s->trigger->fid));
	OK(fi_close(&s->completion->fid));
}

/* The context of an operation that waits for the schedule's next threshold. */
static void *triggered_by(struct schedule *s, struct op *op)
{
	op->context.event_type = FI_TRIGGER_THRESHOLD;
	op->context.trigger.threshold.cntr = s->trigger;
	op->context.trigger.threshold.threshold = s->reached + 1;
	return &op->context;
}

/* What was posted has not completed; the trigger gets to its threshold. */
static void let_go(struct schedule *s, const struct op *op)
{
	int i;

	for (i = 0; i < 4; i++)
		pump();
	MUST(!op || !op->entries);
	MUST(fi_cntr_read(s->completion) == s->completed);
	OK(fi_cntr_add(s->trigger, 1));
	s->reached++;
}

static void queue_work(struct schedule *s, struct fi_deferred_work *work, enum fi_op_type type)
{
	work->op_type = type;
	work->triggering_cntr = s->trigger;
	work->threshold = s->reached + 1;
	if (type != FI_OP_CNTR_SET && type != FI_OP_CNTR_ADD)
		work->completion_cntr = s->completion;
	OK(fi_control(&s->e->domain->fid, FI_QUEUE_WORK, work));
}

/*
 * The work has completed, once at its counter and, as it has FI_COMPLETION, once in the queue and
 * at the endpoint's counter.
 */
static void finished(struct schedule *s, struct op *op)
{
	done(op);
	counted(s->completion, ++s->completed, op->what);
}

/* Sends with FI_TRIGGER, then FI_OP_SEND and FI_OP_TSEND. */
static void deferred_sends(struct end *x, struct end *y, int message, int tag)
{
	struct schedule s = open_schedule(x);
	struct iovec iov = { out, fitting(x, 16) };
	struct fi_op_msg untagged = { .ep = x->out, .flags = FI_COMPLETION };
	struct fi_op_tagged tagged = { .ep = x->out, .flags = FI_COMPLETION };
	struct fi_deferred_work work[2] = { { .op.msg = &untagged }, { .op.tagged = &tagged } };
	struct op *op, *sent;

	untagged.msg = (struct fi_msg) { .msg_iov = &iov, .iov_count = 1, .addr = x->peer };
	tagged.msg = (struct fi_msg_tagged) { .msg_iov = &iov, .iov_count = 1, .addr = x->peer, .tag = 6 };
	if (message) {
		STEP("triggered send");
		op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
		sent = new_op("triggered send", 1);
		untagged.msg.context = triggered_by(&s, sent);
		POST(fi_sendmsg(x->out, &untagged.msg, FI_TRIGGER | FI_COMPLETION));
		let_go(&s, sent);
		arrived(y, op, in, iov.iov_len);
		done(sent);
		x->sent++;
		STEP("FI_OP_SEND");
		op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
		untagged.msg.context = sent = new_op("FI_OP_SEND", 1);
		queue_work(&s, &work[0], FI_OP_SEND);
		let_go(&s, sent);
		arrived(y, op, in, iov.iov_len);
		finished(&s, sent);
		x->sent++;
	}
	if (tag) {
		STEP("triggered tagged send");
		op = receive_tagged(y, in, sizeof(in), 6, FI_ADDR_UNSPEC);
		sent = new_op("triggered tagged send", 1);
		tagged.msg.context = triggered_by(&s, sent);
		POST(fi_tsendmsg(x->out, &tagged.msg, FI_TRIGGER | FI_COMPLETION));
		let_go(&s, sent);
		arrived(y, op, in, iov.iov_len);
		done(sent);
		x->sent++;
		STEP("FI_OP_TSEND");
		op = receive_tagged(y, in, sizeof(in), 6, FI_ADDR_UNSPEC);
		tagged.msg.context = sent = new_op("FI_OP_TSEND", 1);
		queue_work(&s, &work[1], FI_OP_TSEND);
		let_go(&s, sent);
		arrived(y, op, in, iov.iov_len);
		finished(&s, sent);
		x->sent++;
	}
	close_schedule(&s);
}

/*
 * Receives of y with FI_TRIGGER, then FI_OP_RECV and FI_OP_TRECV. Receives of a shared context
 * belong to no endpoint, and claims take the messages of buffered ones.
 */
static void deferred_receives(struct end *x, struct end *y, int message, int tag)
{
	struct schedule s;
	struct iovec iov = { in, sizeof(in) };
	struct fi_op_msg untagged = { .ep = y->in, .flags = FI_COMPLETION };
	struct fi_op_tagged tagged = { .ep = y->in, .flags = FI_COMPLETION };
	struct fi_deferred_work work[2] = { { .op.msg = &untagged }, { .op.tagged = &tagged } };
	struct op *op;

	if (y->srx || is_buffered(y))
		return;
	s = open_schedule(y);
	untagged.msg = (struct fi_msg) { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC };
	tagged.msg = (struct fi_msg_tagged) { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 8 };
	if (message) {
		STEP("triggered receive");
		op = new_op("triggered receive", 1);
		untagged.msg.context = triggered_by(&s, op);
		POST(fi_recvmsg(y->in, &untagged.msg, FI_TRIGGER | FI_COMPLETION));
		POST(fi_inject(x->out, out, 1, x->peer));
		let_go(&s, op);
		arrived(y, op, in, 1);
		y->received++;
		STEP("FI_OP_RECV");
		untagged.msg.context = op = new_op("FI_OP_RECV", 1);
		queue_work(&s, &work[0], FI_OP_RECV);
		POST(fi_inject(x->out, out, 1, x->peer));
		let_go(&s, op);
		arrived(y, op, in, 1);
		finished(&s, op);
		y->received++;
		x->sent += 2;
	}
	if (tag) {
		STEP("triggered tagged receive");
		op = new_op("triggered tagged receive", 1);
		tagged.msg.context = triggered_by(&s, op);
		POST(fi_trecvmsg(y->in, &tagged.msg, FI_TRIGGER | FI_COMPLETION));
		POST(fi_tinject(x->out, out, 1, x->peer, 8));
		let_go(&s, op);
		arrived(y, op, in, 1);
		y->received++;
		STEP("FI_OP_TRECV");
		tagged.msg.context = op = new_op("FI_OP_TRECV", 1);
		queue_work(&s, &work[1], FI_OP_TRECV);
		POST(fi_tinject(x->out, out, 1, x->peer, 8));
		let_go(&s, op);
		arrived(y, op, in, 1);
		finished(&s, op);
		y->received++;
		x->sent += 2;
	}
	close_schedule(&s);
}

/* fi_writemsg and fi_readmsg with FI_TRIGGER, then FI_OP_WRITE and FI_OP_READ. */
static void deferred_rma(struct end *x, struct end *y)
{
	struct schedule s = open_schedule(x);
	size_t len = fitting(x, 16);
	struct iovec from = { out, len }, to = { in, len };
	struct fi_rma_iov place = { at(y, 10000), len, y->key };
	struct fi_op_rma write = { .ep = x->out, .flags = FI_COMPLETION | FI_DELIVERY_COMPLETE };
	struct fi_op_rma read = { .ep = x->out, .flags = FI_COMPLETION };
	struct fi_deferred_work work[2] = { { .op.rma = &write }, { .op.rma = &read } };
	struct op *op;

	write.msg = (struct fi_msg_rma) { .msg_iov = &from, .iov_count = 1, .addr = x->peer, .rma_iov = &place,
		.rma_iov_count = 1 };
	read.msg = write.msg;
	read.msg.msg_iov = &to;
	if (can(x, FI_RMA | FI_WRITE) && can(y, FI_RMA | FI_REMOTE_WRITE)) {
		STEP("triggered write");
		memset(y->memory + 10000, 0, len);
		op = new_op("triggered write", 1);
		write.msg.context = triggered_by(&s, op);
		POST(fi_writemsg(x->out, &write.msg, FI_TRIGGER | write.flags));
		let_go(&s, op);
		done(op);
		MUST(!memcmp(y->memory + 10000, out, len));
		STEP("FI_OP_WRITE");
		memset(y->memory + 10000, 0, len);
		write.msg.context = op = new_op("FI_OP_WRITE", 1);
		queue_work(&s, &work[0], FI_OP_WRITE);
		let_go(&s, op);
		finished(&s, op);
		MUST(!memcmp(y->memory + 10000, out, len));
		y->written += 2;
	}
	if (can(x, FI_RMA | FI_READ) && can(y, FI_RMA | FI_REMOTE_READ)) {
		STEP("triggered read");
		memcpy(y->memory + 10000, out, len);
		memset(in, 0, len);
		op = new_op("triggered read", 1);
		read.msg.context = triggered_by(&s, op);
		POST(fi_readmsg(x->out, &read.msg, FI_TRIGGER | FI_COMPLETION));
		let_go(&s, op);
		done(op);
		MUST(!memcmp(in, out, len));
		STEP("FI_OP_READ");
		memset(in, 0, len);
		read.msg.context = op = new_op("FI_OP_READ", 1);
		queue_work(&s, &work[1], FI_OP_READ);
		let_go(&s, op);
		finished(&s, op);
		MUST(!memcmp(in, out, len));
	}
	close_schedule(&s);
}

/* Atomic calls with FI_TRIGGER, then FI_OP_ATOMIC, FI_OP_FETCH_ATOMIC and FI_OP_COMPARE_ATOMIC. */
static void deferred_atomics(struct end *x, struct end *y)
{
	struct schedule s = open_schedule(x);
	uint64_t *word = (uint64_t *) (y->memory + 4096), result, wanted = 900;
	struct fi_ioc operands = { &operand, 1 }, results = { &result, 1 }, compares = { &wanted, 1 };
	struct fi_rma_ioc place = { at(y, 4096), 1, y->key };
	struct fi_msg_atomic msg = { .msg_iov = &operands, .iov_count = 1, .addr = x->peer, .rma_iov = &place,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM };
	struct fi_op_atomic base = { .ep = x->out, .flags = FI_COMPLETION | FI_DELIVERY_COMPLETE };
	struct fi_op_fetch_atomic fetch = { .ep = x->out, .fetch = { &results, NULL, 1 }, .flags = FI_COMPLETION };
	struct fi_op_compare_atomic compare = { .ep = x->out, .fetch = { &results, NULL, 1 },
		.compare = { &compares, NULL, 1 }, .flags = FI_COMPLETION };
	struct fi_deferred_work work[3] = { { .op.atomic = &base }, { .op.fetch_atomic = &fetch },
		{ .op.compare_atomic = &compare } };
	struct op *op;

	base.msg = fetch.msg = compare.msg = msg;
	compare.msg.op = FI_CSWAP;
	if (can(x, FI_WRITE) && can(y, FI_REMOTE_WRITE)) {
		STEP("triggered atomic");
		*word = 100;
		op = new_op("triggered atomic", 1);
		base.msg.context = triggered_by(&s, op);
		POST(fi_atomicmsg(x->out, &base.msg, FI_TRIGGER | base.flags));
		let_go(&s, op);
		done(op);
		MUST(*word == 100 + operand);
		STEP("FI_OP_ATOMIC");
		base.msg.context = op = new_op("FI_OP_ATOMIC", 1);
		queue_work(&s, &work[0], FI_OP_ATOMIC);
		let_go(&s, op);
		finished(&s, op);
		MUST(*word == 100 + 2 * operand);
		y->written += 2;
	}
	if (can(x, FI_READ) && can(y, FI_REMOTE_READ) && can(y, FI_REMOTE_WRITE)) {
		STEP("triggered fetching atomics");
		*word = 200;
		op = new_op("triggered fetch", 1);
		fetch.msg.context = triggered_by(&s, op);
		POST(fi_fetch_atomicmsg(x->out, &fetch.msg, &results, NULL, 1, FI_TRIGGER | FI_COMPLETION));
		let_go(&s, op);
		done(op);
		MUST(result == 200 && *word == 200 + operand);
		*word = wanted;
		op = new_op("triggered compare", 1);
		compare.msg.context = triggered_by(&s, op);
		POST(fi_compare_atomicmsg(x->out, &compare.msg, &compares, NULL, 1, &results, NULL, 1, FI_TRIGGER | FI_COMPLETION));
		let_go(&s, op);
		done(op);
		MUST(result == wanted && *word == operand);
		STEP("FI_OP_FETCH_ATOMIC");
		fetch.msg.context = op = new_op("FI_OP_FETCH_ATOMIC", 1);
		queue_work(&s, &work[1], FI_OP_FETCH_ATOMIC);
		let_go(&s, op);
		finished(&s, op);
		MUST(result == operand && *word == 2 * operand);
		STEP("FI_OP_COMPARE_ATOMIC");
		*word = wanted;
		compare.msg.context = op = new_op("FI_OP_COMPARE_ATOMIC", 1);
		queue_work(&s, &work[2], FI_OP_COMPARE_ATOMIC);
		let_go(&s, op);
		finished(&s, op);
		MUST(result == wanted && *word == operand);
	}
	close_schedule(&s);
}

/* FI_OP_CNTR_ADD and FI_OP_CNTR_SET; FI_CANCEL_WORK and FI_FLUSH_WORK of what waits. */
static void deferred_counting(struct end *x)
{
	struct schedule s = open_schedule(x);
	struct fid_cntr *target = open_cntr(x);
	struct fi_op_cntr add = { target, 7 }, set = { target, 3 };
	struct fi_deferred_work work[4] = { { .op.cntr = &add }, { .op.cntr = &set }, { .op.cntr = &add },
		{ .op.cntr = &add } };
	double end;

	STEP("FI_OP_CNTR_ADD");
	queue_work(&s, &work[0], FI_OP_CNTR_ADD);
	MUST(fi_cntr_read(target) == 0);
	let_go(&s, NULL);
	counted(target, 7, "FI_OP_CNTR_ADD has added");
	STEP("FI_OP_CNTR_SET");
	queue_work(&s, &work[1], FI_OP_CNTR_SET);
	MUST(fi_cntr_read(target) == 7);
	let_go(&s, NULL);
	/* A thread of the library may be about to set it: fi_cntr(3) allows a delay. */
	end = seconds() + LIMIT;
	while (fi_cntr_read(target) != 3 && seconds() < end)
		pump();
	MUST(fi_cntr_read(target) == 3);
	STEP("FI_CANCEL_WORK");
	queue_work(&s, &work[2], FI_OP_CNTR_ADD);
	OK(fi_control(&x->domain->fid, FI_CANCEL_WORK, &work[2]));
	STEP("FI_FLUSH_WORK");
	queue_work(&s, &work[3], FI_OP_CNTR_ADD);
	OK(fi_control(&x->domain->fid, FI_FLUSH_WORK, s.trigger));
	let_go(&s, NULL);
	pump();
	MUST(fi_cntr_read(target) == 3);
	OK(fi_close(&target->fid));
	close_schedule(&s);
}

/* What x starts when its counters say so, and what y receives so. */
static void deferred(struct end *x, struct end *y, int message, int tag)
{
	if (can(x, FI_TRIGGER)) {
		deferred_sends(x, y, message, tag);
		deferred_counting(x);
		if (can(x, FI_RMA) && can(y, FI_RMA))
			deferred_rma(x, y);
		if (can(x, FI_ATOMIC) && can(y, FI_ATOMIC))
			deferred_atomics(x, y);
	}
	if (can(y, FI_TRIGGER))
		deferred_receives(x, y, message, tag);
}

#endif
