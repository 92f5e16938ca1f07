/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Triggered operations and deferred work (fi_trigger(3)). */
#include "sided.h"
#include <rdma/fi_trigger.h>

#define EVERYTHING	(FI_TAGGED | ONE_SIDED | FI_TRIGGER | FI_RMA_EVENT)

static const struct want TRIGGERED = { .caps = EVERYTHING };
static const struct want TRIGGERED_MSG = { .type = FI_EP_MSG, .caps = EVERYTHING };
static const struct want TRIGGERED_AUTO = { .caps = EVERYTHING, .progress = FI_PROGRESS_AUTO };
static const struct want TRIGGERED_ALONE = { .caps = EVERYTHING, .threading = FI_THREAD_DOMAIN,
	.progress = ALONE };

/* Contexts of triggered operations, side by side: a longer one would reach into the next. */
static struct fi_triggered_context triggers[24];
static struct fi_triggered_context2 long_trigger;
static char in[16][64], out[16][64];
static uint64_t words[16];

static struct fid_cntr *open_cntr(struct side *s, enum fi_wait_obj wait)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = wait };
	struct fid_cntr *cntr;

	CHECK(fi_cntr_open(s->domain, &attr, &cntr, NULL) == 0);
	return cntr;
}

static void close_cntr(struct fid_cntr *cntr)
{
	CHECK(fi_close(&cntr->fid) == 0);
}

/* Checks that the counter reads `value` within ten seconds. */
static void reads(struct fid_cntr *cntr, uint64_t value)
{
	double end = seconds() + 10;
	uint64_t now;

	while ((now = fi_cntr_read(cntr)) != value && seconds() < end)
		drive();
	if (now != value)
		fprintf(stderr, "it reads %llu and not %llu\n", (unsigned long long) now, (unsigned long long) value);
	CHECK(now == value);
}

static void reads_errors(struct fid_cntr *cntr, uint64_t value)
{
	double end = seconds() + 10;

	while (fi_cntr_readerr(cntr) != value && seconds() < end)
		drive();
	CHECK(fi_cntr_readerr(cntr) == value);
}

/* The context of an operation that waits until the counter has reached the threshold. */
static void *at(size_t number, struct fid_cntr *cntr, size_t threshold)
{
	memset(&triggers[number], 0, sizeof(triggers[number]));
	triggers[number].event_type = FI_TRIGGER_THRESHOLD;
	triggers[number].trigger.threshold.cntr = cntr;
	triggers[number].trigger.threshold.threshold = threshold;
	return &triggers[number];
}

static void post_recv(struct side *s, size_t number)
{
	memset(in[number], 0, sizeof(in[number]));
	POST(fi_recv(s->ep, in[number], sizeof(in[number]), NULL, FI_ADDR_UNSPEC, &contexts[number]));
}

/* The message from a to b with that number and text. */
static struct fi_msg *message(struct pair *p, size_t number, const char *text, void *context)
{
	static struct iovec iov[16];
	static struct fi_msg msg[16];

	strcpy(out[number], text);
	iov[number] = (struct iovec) { out[number], strlen(text) + 1 };
	msg[number] = (struct fi_msg) { .msg_iov = &iov[number], .iov_count = 1, .addr = p->to_b, .context = context };
	return &msg[number];
}

static int queue(struct side *s, struct fi_deferred_work *work)
{
	return fi_control(&s->domain->fid, FI_QUEUE_WORK, work);
}

static int cancel(struct side *s, struct fi_deferred_work *work)
{
	return fi_control(&s->domain->fid, FI_CANCEL_WORK, work);
}

/* A deferred message from a to b, by its number. */
static struct fi_deferred_work *send_work(struct pair *p, size_t number, const char *text, struct fid_cntr *trigger,
	uint64_t threshold, struct fid_cntr *completion, uint64_t flags)
{
	static struct fi_deferred_work work[16];
	static struct fi_op_msg op[16];

	op[number] = (struct fi_op_msg) { .ep = p->a.ep, .msg = *message(p, number, text, &contexts[number]), .flags = flags };
	work[number] = (struct fi_deferred_work) { .threshold = threshold, .triggering_cntr = trigger,
		.completion_cntr = completion, .op_type = FI_OP_SEND, .op.msg = &op[number] };
	return &work[number];
}

/* Work on a counter. */
static struct fi_deferred_work *cntr_work(size_t number, enum fi_op_type type, struct fid_cntr *trigger,
	uint64_t threshold, struct fid_cntr *target, uint64_t value)
{
	static struct fi_deferred_work work[16];
	static struct fi_op_cntr op[16];

	op[number] = (struct fi_op_cntr) { target, value };
	work[number] = (struct fi_deferred_work) { .threshold = threshold, .triggering_cntr = trigger, .op_type = type,
		.op.cntr = &op[number] };
	return &work[number];
}

/* The receive with that number has completed on b, with that text. */
static void arrived(struct pair *p, size_t number, const char *text)
{
	struct fi_cq_tagged_entry entry = done(&p->b, &p->a, &contexts[number]);

	CHECK(!strcmp(in[number], text) && entry.len == strlen(text) + 1);
}

static void starts_at_the_threshold(const struct want *w)
{
	unsigned char untouched[sizeof(triggers[1])];
	struct fi_cq_tagged_entry entry;
	struct fid_cntr *cntr;
	struct pair p;
	size_t i;

	memset(&triggers[1], 0x5a, sizeof(triggers[1]));
	memset(untouched, 0x5a, sizeof(untouched));
	meet(&p, w);
	cntr = open_cntr(&p.a, FI_WAIT_NONE);
	post_recv(&p.b, 0);
	post_recv(&p.b, 1);
	CHECK(fi_sendmsg(p.a.ep, message(&p, 0, "later", at(0, cntr, 2)), FI_TRIGGER | FI_COMPLETION) == 0);
	/* Without the flag the call sends at once. */
	POST(fi_sendmsg(p.a.ep, message(&p, 1, "now", &contexts[1]), FI_COMPLETION));
	arrived(&p, 0, "now");
	done(&p.a, &p.b, &contexts[1]);
	CHECK(fi_cntr_add(cntr, 1) == 0);
	quiet(&p.b, &p.a);
	quiet(&p.a, &p.b);
	/* Its payload is read when it starts. */
	strcpy(out[0], "LATER");
	CHECK(fi_cntr_add(cntr, 1) == 0);
	arrived(&p, 1, "LATER");
	entry = done(&p.a, &p.b, &triggers[0]);
	CHECK(entry.flags == (FI_MSG | FI_SEND));
	CHECK(sizeof(triggers[0]) == 32);
	for (i = 0; i < sizeof(untouched); i++)
		CHECK(((unsigned char *) &triggers[1])[i] == untouched[i]);
	close_cntr(cntr);
	part(&p);
}

CASE_OURS(trigger_starts_at_the_threshold)
{
	starts_at_the_threshold(&TRIGGERED);
	starts_at_the_threshold(&TRIGGERED_ALONE);
	starts_at_the_threshold(&TRIGGERED_AUTO);
}

CASE_OURS(trigger_starts_on_connected_endpoints)
{
	starts_at_the_threshold(&TRIGGERED_MSG);
}

CASE_OURS(trigger_starts_over_rxm)
{
	struct want w = TRIGGERED;

	if (!within_host(&w))
		w.provider = "tcp;ofi_rxm";
	starts_at_the_threshold(&w);
}

CASE_OURS(trigger_needs_the_capability)
{
	struct fi_deferred_work *work;
	struct fi_info *info;
	struct fid_cntr *cntr;
	struct fid_ep *ep;
	struct pair p;

	meet(&p, &SIDED);
	CHECK(!(p.a.info->caps & FI_TRIGGER));
	cntr = open_cntr(&p.a, FI_WAIT_NONE);
	CHECK(fi_sendmsg(p.a.ep, message(&p, 0, "x", at(0, cntr, 1)), FI_TRIGGER) < 0);
	CHECK(fi_recvmsg(p.a.ep, message(&p, 0, "x", at(0, cntr, 1)), FI_TRIGGER) < 0);
	REFUSED("deferred work in a domain, or on an endpoint, that was opened without FI_TRIGGER",
		FI_ENOSYS, queue(&p.a, send_work(&p, 1, "x", cntr, 1, NULL, 0)));
	info = find(&TRIGGERED);
	REFUSED("an endpoint with FI_TRIGGER in a domain that was opened without it",
		FI_ENOSYS, fi_endpoint(p.a.domain, info, &ep, NULL));
	close_cntr(cntr);
	part(&p);
	meet(&p, &TRIGGERED);
	CHECK(p.a.info->caps & FI_TRIGGER && p.a.info->tx_attr->caps & FI_TRIGGER && p.a.info->rx_attr->caps & FI_TRIGGER);
	info->caps &= ~FI_TRIGGER;
	info->tx_attr->caps &= ~FI_TRIGGER;
	info->rx_attr->caps &= ~FI_TRIGGER;
	CHECK(fi_endpoint(p.a.domain, info, &ep, NULL) == 0);
	cntr = open_cntr(&p.a, FI_WAIT_NONE);
	work = send_work(&p, 1, "x", cntr, 1, NULL, 0);
	work->op.msg->ep = ep;
	REFUSED("deferred work in a domain, or on an endpoint, that was opened without FI_TRIGGER",
		FI_ENOSYS, queue(&p.a, work));
	CHECK(fi_close(&ep->fid) == 0);
	close_cntr(cntr);
	fi_freeinfo(info);
	part(&p);
}

/* Every call with flags waits, and completes as if it were called when its counter is there. */
CASE_OURS(trigger_of_every_call)
{
	uint64_t operand = 5, compare = 12, results[2] = { 0 };
	struct fi_ioc op = { &operand, 1 }, comp = { &compare, 1 }, res[2] = { { &results[0], 1 }, { &results[1], 1 } };
	struct fi_rma_ioc place;
	struct fi_msg_atomic atomic = { .msg_iov = &op, .iov_count = 1, .rma_iov = &place, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM };
	struct iovec take = { in[3], 64 }, give = { out[3], 7 };
	struct fi_msg_tagged tagged = { .msg_iov = &take, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 9 };
	struct fi_msg untagged = { .msg_iov = &take, .iov_count = 1, .addr = FI_ADDR_UNSPEC };
	struct fid_cntr *here, *there;
	struct region r;
	struct pair p;

	meet(&p, &TRIGGERED);
	expose(&p.b, &r, words, sizeof(words));
	here = open_cntr(&p.a, FI_WAIT_NONE);
	there = open_cntr(&p.b, FI_WAIT_NONE);
	strcpy(out[3], "tagged");
	tagged.context = at(0, there, 1);
	CHECK(fi_trecvmsg(p.b.ep, &tagged, FI_TRIGGER | FI_COMPLETION) == 0);
	tagged.msg_iov = &give;
	tagged.addr = p.to_b;
	tagged.context = at(1, here, 1);
	CHECK(fi_tsendmsg(p.a.ep, &tagged, FI_TRIGGER | FI_COMPLETION) == 0);
	CHECK(fi_cntr_add(here, 1) == 0);
	CHECK(done(&p.a, &p.b, &triggers[1]).flags == (FI_TAGGED | FI_SEND));
	quiet(&p.b, &p.a);
	CHECK(fi_cntr_add(there, 1) == 0);
	CHECK(done(&p.b, &p.a, &triggers[0]).tag == 9 && !strcmp(in[3], "tagged"));
	untagged.context = at(2, there, 2);
	CHECK(fi_recvmsg(p.b.ep, &untagged, FI_TRIGGER | FI_COMPLETION) == 0);
	POST(fi_send(p.a.ep, "plain", 6, NULL, p.to_b, &contexts[3]));
	done(&p.a, &p.b, &contexts[3]);
	quiet(&p.b, &p.a);
	CHECK(fi_cntr_set(there, 2) == 0);
	CHECK(done(&p.b, &p.a, &triggers[2]).flags == (FI_MSG | FI_RECV) && !strcmp(in[3], "plain"));

	words[0] = 1;
	words[8] = 77;
	CHECK(fi_writemsg(p.a.ep, access_to(&p, &r, &operand, 0, 8, at(3, here, 2)), FI_TRIGGER | FI_COMPLETION) == 0);
	CHECK(fi_readmsg(p.a.ep, access_to(&p, &r, &results[0], 64, 8, at(4, here, 3)), FI_TRIGGER | FI_COMPLETION) == 0);
	place = (struct fi_rma_ioc) { r.addr, 1, r.key };
	atomic.addr = p.to_b;
	atomic.context = at(5, here, 4);
	CHECK(fi_atomicmsg(p.a.ep, &atomic, FI_TRIGGER | FI_COMPLETION) == 0);
	atomic.context = at(6, here, 5);
	CHECK(fi_fetch_atomicmsg(p.a.ep, &atomic, &res[1], NULL, 1, FI_TRIGGER | FI_COMPLETION) == 0);
	atomic.op = FI_CSWAP;
	atomic.context = at(7, here, 6);
	compare = 15;
	CHECK(fi_compare_atomicmsg(p.a.ep, &atomic, &comp, NULL, 1, &res[0], NULL, 1, FI_TRIGGER | FI_COMPLETION) == 0);
	quiet(&p.a, &p.b);
	CHECK(words[0] == 1);
	CHECK(fi_cntr_add(here, 1) == 0);
	CHECK(done(&p.a, &p.b, &triggers[3]).flags == (FI_RMA | FI_WRITE));
	arrives(&words[0], &operand, 8);
	CHECK(fi_cntr_add(here, 1) == 0);
	CHECK(done(&p.a, &p.b, &triggers[4]).flags == (FI_RMA | FI_READ) && results[0] == 77);
	CHECK(fi_cntr_add(here, 1) == 0);
	CHECK(done(&p.a, &p.b, &triggers[5]).flags == (FI_ATOMIC | FI_WRITE));
	arrives(&words[0], &(uint64_t) { 10 }, 8);
	CHECK(fi_cntr_add(here, 1) == 0);
	CHECK(done(&p.a, &p.b, &triggers[6]).flags == (FI_ATOMIC | FI_READ) && results[1] == 10);
	CHECK(fi_cntr_add(here, 1) == 0);
	CHECK(done(&p.a, &p.b, &triggers[7]).flags == (FI_ATOMIC | FI_READ) && results[0] == 15);
	arrives(&words[0], &operand, 8);
	hide(&r);
	close_cntr(here);
	close_cntr(there);
	part(&p);
}

/* Receives through an alias, and the messages for them. */
static void receives_of_an_alias_wait(struct pair *p, struct fid_ep *rx, struct fid_cntr *there)
{
	struct iovec takes[] = { { in[1], 64 }, { in[3], 64 } };

	CHECK(fi_recv(rx, in[0], 64, NULL, FI_ADDR_UNSPEC, at(20, there, 1)) == 0);
	CHECK(fi_recvv(rx, &takes[0], NULL, 1, FI_ADDR_UNSPEC, at(21, there, 2)) == 0);
	CHECK(fi_trecv(rx, in[2], 64, NULL, FI_ADDR_UNSPEC, 1, 0, at(22, there, 2)) == 0);
	CHECK(fi_trecvv(rx, &takes[1], NULL, 1, FI_ADDR_UNSPEC, 0xf2, 0xf0, at(23, there, 2)) == 0);
	POST(fi_inject(p->a.ep, "early", 6, p->to_b));
	quiet(&p->b, &p->a);
	CHECK(fi_cntr_add(there, 1) == 0);
	CHECK(done(&p->b, &p->a, &triggers[20]).flags == (FI_MSG | FI_RECV) && !strcmp(in[0], "early"));
	CHECK(fi_cntr_add(there, 1) == 0);
}

/* What starts next through the alias, and the entry that it causes at the peer. */
static struct fi_cq_tagged_entry starts(struct pair *p, size_t number, struct fid_cntr *here, void *context)
{
	struct fi_cq_tagged_entry entry = { 0 };

	CHECK(fi_cntr_add(here, 1) == 0);
	done(&p->a, &p->b, &triggers[number]);
	if (context)
		entry = done(&p->b, &p->a, context);
	return entry;
}

/* With FI_TRIGGER among the flags of an alias, the calls without flags wait as well. */
CASE_OURS(trigger_of_every_call_on_an_alias)
{
	uint64_t operand = 5, compare, got[6] = { 0 };
	struct fi_ioc add = { &operand, 1 }, expected = { &compare, 1 }, res[] = { { &got[3], 1 }, { &got[5], 1 } };
	struct iovec give = { "vector", 7 }, put = { &operand, 8 }, take = { &got[1], 8 };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct fid_cntr *here, *there;
	struct fid_ep *tx, *rx;
	struct region r;
	struct pair p;

	meet(&p, &TRIGGERED);
	expose(&p.b, &r, words, sizeof(words));
	here = open_cntr(&p.a, FI_WAIT_NONE);
	there = open_cntr(&p.b, FI_WAIT_NONE);
	CHECK(fi_ep_alias(p.a.ep, &tx, FI_TRANSMIT | FI_TRIGGER | FI_COMPLETION) == 0);
	CHECK(fi_ep_alias(p.b.ep, &rx, FI_RECV | FI_TRIGGER | FI_COMPLETION) == 0);
	receives_of_an_alias_wait(&p, rx, there);
	post_recv(&p.b, 4);
	post_recv(&p.b, 5);
	POST(fi_trecv(p.b.ep, in[6], 64, NULL, FI_ADDR_UNSPEC, 3, 0, &contexts[6]));
	words[0] = 1;
	words[8] = 77;
	CHECK(fi_send(tx, "send", 5, NULL, p.to_b, at(1, here, 1)) == 0);
	CHECK(fi_sendv(tx, &give, NULL, 1, p.to_b, at(2, here, 2)) == 0);
	CHECK(fi_senddata(tx, "data", 5, NULL, 11, p.to_b, at(3, here, 3)) == 0);
	CHECK(fi_tsend(tx, "tagged", 7, NULL, p.to_b, 1, at(4, here, 4)) == 0);
	CHECK(fi_tsendv(tx, &give, NULL, 1, p.to_b, 2, at(5, here, 5)) == 0);
	CHECK(fi_tsenddata(tx, "more", 5, NULL, 12, p.to_b, 3, at(6, here, 6)) == 0);
	CHECK(fi_write(tx, &operand, 8, NULL, p.to_b, r.addr, r.key, at(7, here, 7)) == 0);
	CHECK(fi_writev(tx, &put, NULL, 1, p.to_b, r.addr + 8, r.key, at(8, here, 8)) == 0);
	CHECK(fi_writedata(tx, &operand, 8, NULL, 13, p.to_b, r.addr + 16, r.key, at(9, here, 9)) == 0);
	CHECK(fi_read(tx, &got[0], 8, NULL, p.to_b, r.addr + 64, r.key, at(10, here, 10)) == 0);
	CHECK(fi_readv(tx, &take, NULL, 1, p.to_b, r.addr + 64, r.key, at(11, here, 11)) == 0);
	CHECK(fi_atomic(tx, &operand, 1, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, at(12, here, 12)) == 0);
	CHECK(fi_atomicv(tx, &add, NULL, 1, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, at(13, here, 13)) == 0);
	CHECK(fi_fetch_atomic(tx, &operand, 1, NULL, &got[2], NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, at(14, here, 14)) == 0);
	CHECK(fi_fetch_atomicv(tx, &add, NULL, 1, &res[0], NULL, 1, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, at(15, here, 15)) == 0);
	compare = 25;
	CHECK(fi_compare_atomic(tx, &operand, 1, NULL, &compare, NULL, &got[4], NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_CSWAP, at(16, here, 16)) == 0);
	CHECK(fi_compare_atomicv(tx, &add, NULL, 1, &expected, NULL, 1, &res[1], NULL, 1, p.to_b, r.addr, r.key, FI_UINT64, FI_CSWAP, at(17, here, 17)) == 0);
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	starts(&p, 1, here, &triggers[21]);
	starts(&p, 2, here, &contexts[4]);
	CHECK(starts(&p, 3, here, &contexts[5]).data == 11);
	starts(&p, 4, here, &triggers[22]);
	starts(&p, 5, here, &triggers[23]);
	CHECK(starts(&p, 6, here, &contexts[6]).data == 12);
	CHECK(!strcmp(in[1], "send") && !strcmp(in[4], "vector") && !strcmp(in[5], "data"));
	CHECK(!strcmp(in[2], "tagged") && !strcmp(in[3], "vector") && !strcmp(in[6], "more"));
	starts(&p, 7, here, NULL);
	starts(&p, 8, here, NULL);
	starts(&p, 9, here, NULL);
	CHECK(next(&p.b, &p.a, &entry, &err, 10) == 1 && entry.data == 13);
	CHECK(words[0] == 5 && words[1] == 5 && words[2] == 5);
	starts(&p, 10, here, NULL);
	starts(&p, 11, here, NULL);
	CHECK(got[0] == 77 && got[1] == 77);
	starts(&p, 12, here, NULL);
	starts(&p, 13, here, NULL);
	starts(&p, 14, here, NULL);
	starts(&p, 15, here, NULL);
	CHECK(got[2] == 15 && got[3] == 20);
	starts(&p, 16, here, NULL);
	arrives(&words[0], &operand, 8);
	compare = 5;
	operand = 9;
	starts(&p, 17, here, NULL);
	arrives(&words[0], &operand, 8);
	CHECK(got[4] == 25 && got[5] == 5);
	/* A call that has no context is not deferred. */
	post_recv(&p.b, 7);
	POST(fi_inject(tx, "at once", 8, p.to_b));
	arrived(&p, 7, "at once");
	CHECK(fi_close(&tx->fid) == 0 && fi_close(&rx->fid) == 0);
	hide(&r);
	close_cntr(here);
	close_cntr(there);
	part(&p);
}

/* Collective operations cannot wait for a counter, so that no endpoint has them beside those that can. */
CASE_OURS(trigger_excludes_collectives)
{
	const struct want both = { .caps = EVERYTHING | FI_COLLECTIVE }, groups = { .caps = FI_COLLECTIVE };
	struct fi_info *hints = hints_for(&both), *info;
	struct fid_ep *ep;
	struct side s;

	REFUSED("FI_TRIGGER together with FI_COLLECTIVE (fi_getinfo)", FI_ENODATA,
		fi_getinfo(API, NULL, NULL, 0, hints, &info));
	hints->caps = FI_TAGGED | FI_COLLECTIVE;
	hints->tx_attr->caps = FI_TRIGGER;
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
	open_domain(&s, &groups);
	CHECK(!(s.info->caps & FI_TRIGGER));
	s.info->caps |= FI_TRIGGER;
	REFUSED("fi_endpoint with FI_TRIGGER and FI_COLLECTIVE", FI_EINVAL, fi_endpoint(s.domain, s.info, &ep, NULL));
	close_side(&s);
}

CASE_OURS(trigger_order_of_thresholds)
{
	static const char *texts[] = { "third", "first", "second", "second too" };
	static const size_t thresholds[] = { 5, 1, 2, 2 };
	struct fid_cntr *cntr;
	struct pair p;
	size_t i;

	meet(&p, &TRIGGERED);
	cntr = open_cntr(&p.a, FI_WAIT_NONE);
	for (i = 0; i < 5; i++)
		post_recv(&p.b, i);
	for (i = 0; i < 4; i++)
		CHECK(fi_sendmsg(p.a.ep, message(&p, i, texts[i], at(i, cntr, thresholds[i])), FI_TRIGGER) == 0);
	CHECK(fi_cntr_add(cntr, 9) == 0);
	arrived(&p, 0, "first");
	arrived(&p, 1, "second");
	arrived(&p, 2, "second too");
	arrived(&p, 3, "third");
	for (i = 0; i < 4; i++)
		CHECK(next(&p.a, &p.b, &(struct fi_cq_tagged_entry) { 0 }, &(struct fi_cq_err_entry) { 0 }, 10) == 1);
	/* A condition that holds already, in the longer context. */
	long_trigger.event_type = FI_TRIGGER_THRESHOLD;
	long_trigger.trigger.threshold.cntr = cntr;
	long_trigger.trigger.threshold.threshold = 9;
	CHECK(fi_sendmsg(p.a.ep, message(&p, 0, "at once", &long_trigger), FI_TRIGGER) == 0);
	arrived(&p, 4, "at once");
	done(&p.a, &p.b, &long_trigger);
	close_cntr(cntr);
	part(&p);
}

CASE_OURS(trigger_cancel_before_the_threshold)
{
	struct fi_cq_err_entry err;
	struct fid_cntr *cntr;
	struct pair p;

	meet(&p, &TRIGGERED);
	cntr = open_cntr(&p.a, FI_WAIT_NONE);
	CHECK(fi_sendmsg(p.a.ep, message(&p, 0, "never", at(0, cntr, 1)), FI_TRIGGER) == 0);
	/* The counter is in use. */
	CHECK(fi_close(&cntr->fid) == -FI_EBUSY);
	CHECK(fi_cancel(&p.a.ep->fid, &triggers[0]) == 0);
	err = failed(&p.a, &p.b, FI_ECANCELED);
	CHECK(err.op_context == &triggers[0] && err.flags == (FI_MSG | FI_SEND));
	CHECK(fi_cntr_add(cntr, 1) == 0);
	quiet(&p.a, &p.b);
	close_cntr(cntr);
	part(&p);
}

CASE_OURS(trigger_bad_contexts_are_refused)
{
	struct fi_info *hints = hints_for(&TRIGGERED), *info = NULL;
	struct fid_cntr *cntr, *foreign;
	size_t len = 0;
	struct pair p;

	/* The capability that FI_TRIGGER_XPU needs: FI_XPU, before 2.0 FI_XPU_TRIGGER. */
	hints->caps |= 1ULL << 44;
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
	meet(&p, &TRIGGERED);
	CHECK(fi_getopt(&p.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_XPU_TRIGGER, NULL, &len) == -FI_ENOPROTOOPT);
	cntr = open_cntr(&p.a, FI_WAIT_NONE);
	foreign = open_cntr(&p.b, FI_WAIT_NONE);
	CHECK(fi_sendmsg(p.a.ep, message(&p, 0, "x", NULL), FI_TRIGGER) == -FI_EINVAL);
	CHECK(fi_sendmsg(p.a.ep, message(&p, 0, "x", at(0, NULL, 1)), FI_TRIGGER) == -FI_EINVAL);
	CHECK(fi_sendmsg(p.a.ep, message(&p, 0, "x", at(0, foreign, 1)), FI_TRIGGER) == -FI_EDOMAIN);
	at(0, cntr, 1);
	triggers[0].event_type = FI_TRIGGER_XPU;
	REFUSED("triggered operations with FI_TRIGGER_XPU",
		FI_ENOSYS, fi_sendmsg(p.a.ep, message(&p, 0, "x", &triggers[0]), FI_TRIGGER));
	close_cntr(cntr);
	close_cntr(foreign);
	part(&p);
}

/* Deferred work completes at its counter, and elsewhere only with FI_COMPLETION. */
static void work_reports(const struct want *w)
{
	struct fid_cntr *trigger, *completion, *sends;
	struct pair p;

	meet(&p, w);
	trigger = open_cntr(&p.a, FI_WAIT_NONE);
	completion = open_cntr(&p.a, FI_WAIT_NONE);
	sends = open_cntr(&p.a, FI_WAIT_NONE);
	CHECK(fi_ep_bind(p.a.ep, &sends->fid, FI_SEND) == 0);
	post_recv(&p.b, 0);
	post_recv(&p.b, 1);
	post_recv(&p.b, 2);
	CHECK(queue(&p.a, send_work(&p, 4, "work", trigger, 1, completion, 0)) == 0);
	CHECK(queue(&p.a, send_work(&p, 5, "more", trigger, 2, completion, FI_COMPLETION)) == 0);
	strcpy(out[4], "WORK");
	quiet(&p.b, &p.a);
	CHECK(fi_cntr_add(trigger, 1) == 0);
	arrived(&p, 0, "WORK");
	reads(completion, 1);
	quiet(&p.a, &p.b);
	CHECK(fi_cntr_read(sends) == 0);
	/* Errors count too. */
	CHECK(fi_cntr_adderr(trigger, 1) == 0);
	arrived(&p, 1, "more");
	reads(completion, 2);
	reads(sends, 1);
	done(&p.a, &p.b, &contexts[5]);
	/* Work whose condition holds starts at once. It may have no completion counter. */
	CHECK(queue(&p.a, send_work(&p, 6, "at once", trigger, 2, NULL, 0)) == 0);
	arrived(&p, 2, "at once");
	quiet(&p.a, &p.b);
	CHECK(fi_cntr_read(completion) == 2 && fi_cntr_read(sends) == 1 && fi_cntr_readerr(completion) == 0);
	CHECK(fi_close(&p.a.ep->fid) == 0);
	p.a.ep = NULL;
	close_cntr(trigger);
	close_cntr(completion);
	close_cntr(sends);
	part(&p);
}

CASE_OURS(trigger_work_reports_to_its_counter)
{
	work_reports(&TRIGGERED);
	work_reports(&TRIGGERED_ALONE);
	work_reports(&TRIGGERED_AUTO);
	work_reports(&TRIGGERED_MSG);
}

CASE_OURS(trigger_work_of_every_kind)
{
	uint64_t operand = 3, compare = 3, results[3] = { 0 };
	struct fi_ioc op = { &operand, 1 }, comp = { &compare, 1 }, res[2] = { { &results[0], 1 }, { &results[1], 1 } };
	struct fi_rma_ioc place;
	struct iovec take = { in[3], 64 }, take_tagged = { in[4], 64 }, give = { out[3], 4 };
	struct fi_op_msg recv_op;
	struct fi_op_tagged trecv_op, tsend_op;
	struct fi_op_rma read_op, write_op;
	struct fi_op_atomic atomic_op;
	struct fi_op_fetch_atomic fetch_op;
	struct fi_op_compare_atomic compare_op;
	struct fi_deferred_work work[8];
	struct fid_cntr *here, *there, *done_here, *done_there;
	struct region r;
	struct pair p;
	size_t i;

	meet(&p, &TRIGGERED);
	expose(&p.b, &r, words, sizeof(words));
	here = open_cntr(&p.a, FI_WAIT_NONE);
	there = open_cntr(&p.b, FI_WAIT_NONE);
	done_here = open_cntr(&p.a, FI_WAIT_NONE);
	done_there = open_cntr(&p.b, FI_WAIT_NONE);
	for (i = 0; i < 8; i++)
		work[i] = (struct fi_deferred_work) { .threshold = i + 1, .triggering_cntr = i < 2 ? there : here,
			.completion_cntr = i < 2 ? done_there : done_here };
	strcpy(out[3], "abc");

	recv_op = (struct fi_op_msg) { p.b.ep, { &take, NULL, 1, FI_ADDR_UNSPEC, &contexts[0], 0 }, 0 };
	work[0].op_type = FI_OP_RECV;
	work[0].op.msg = &recv_op;
	trecv_op = (struct fi_op_tagged) { p.b.ep, { &take_tagged, NULL, 1, FI_ADDR_UNSPEC, 7, 0, &contexts[0], 0 }, 0 };
	work[1].op_type = FI_OP_TRECV;
	work[1].op.tagged = &trecv_op;
	tsend_op = (struct fi_op_tagged) { p.a.ep, { &give, NULL, 1, p.to_b, 7, 0, &contexts[0], 0 }, 0 };
	work[2].op_type = FI_OP_TSEND;
	work[2].op.tagged = &tsend_op;
	write_op = (struct fi_op_rma) { p.a.ep, *access_to(&p, &r, &operand, 0, 8, &contexts[0]), 0 };
	work[3].op_type = FI_OP_WRITE;
	work[3].op.rma = &write_op;
	CHECK(queue(&p.a, &work[3]) == 0);
	read_op = (struct fi_op_rma) { p.a.ep, *access_to(&p, &r, &results[2], 64, 8, &contexts[0]), 0 };
	work[4].op_type = FI_OP_READ;
	work[4].op.rma = &read_op;
	CHECK(queue(&p.a, &work[4]) == 0);
	place = (struct fi_rma_ioc) { r.addr, 1, r.key };
	atomic_op = (struct fi_op_atomic) { p.a.ep, { .msg_iov = &op, .iov_count = 1, .addr = p.to_b, .rma_iov = &place,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM, .context = &contexts[0] }, 0 };
	work[5].op_type = FI_OP_ATOMIC;
	work[5].op.atomic = &atomic_op;
	fetch_op = (struct fi_op_fetch_atomic) { p.a.ep, atomic_op.msg, { &res[0], NULL, 1 }, 0 };
	work[6].op_type = FI_OP_FETCH_ATOMIC;
	work[6].op.fetch_atomic = &fetch_op;
	compare_op = (struct fi_op_compare_atomic) { p.a.ep, atomic_op.msg, { &res[1], NULL, 1 }, { &comp, NULL, 1 }, 0 };
	compare_op.msg.op = FI_CSWAP;
	compare = 9;
	work[7].op_type = FI_OP_COMPARE_ATOMIC;
	work[7].op.compare_atomic = &compare_op;
	for (i = 0; i < 8; i++)
		if (i != 3 && i != 4)
			CHECK(queue(i < 2 ? &p.b : &p.a, &work[i]) == 0);

	words[0] = 1;
	words[8] = 44;
	CHECK(fi_cntr_add(here, 3) == 0);
	reads(done_here, 1);
	POST(fi_send(p.a.ep, "untagged", 9, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(fi_cntr_add(there, 1) == 0);
	reads(done_there, 1);
	CHECK(!strcmp(in[3], "untagged") && !in[4][0]);
	CHECK(fi_cntr_add(there, 1) == 0);
	reads(done_there, 2);
	CHECK(!strcmp(in[4], "abc"));
	CHECK(words[0] == 1);
	CHECK(fi_cntr_add(here, 1) == 0);
	reads(done_here, 2);
	arrives(&words[0], &(uint64_t) { 3 }, 8);
	CHECK(fi_cntr_add(here, 1) == 0);
	reads(done_here, 3);
	CHECK(results[2] == 44);
	CHECK(fi_cntr_add(here, 1) == 0);
	reads(done_here, 4);
	arrives(&words[0], &(uint64_t) { 6 }, 8);
	CHECK(fi_cntr_add(here, 1) == 0);
	reads(done_here, 5);
	CHECK(results[0] == 6);
	CHECK(fi_cntr_add(here, 1) == 0);
	reads(done_here, 6);
	CHECK(results[1] == 9);
	arrives(&words[0], &(uint64_t) { 3 }, 8);
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	hide(&r);
	close_cntr(here);
	close_cntr(there);
	close_cntr(done_here);
	close_cntr(done_there);
	part(&p);
}

CASE_OURS(trigger_work_on_counters)
{
	static struct fi_deferred_work chain[5000];
	static struct fi_op_cntr ops[5000];
	struct fid_cntr *trigger, *target, *other;
	struct fi_deferred_work *work;
	struct side s;
	size_t i;

	open_side(&s, &TRIGGERED);
	trigger = open_cntr(&s, FI_WAIT_NONE);
	target = open_cntr(&s, FI_WAIT_NONE);
	other = open_cntr(&s, FI_WAIT_NONE);
	CHECK(queue(&s, cntr_work(0, FI_OP_CNTR_ADD, trigger, 1, target, 7)) == 0);
	CHECK(queue(&s, cntr_work(1, FI_OP_CNTR_SET, trigger, 2, target, 3)) == 0);
	CHECK(fi_cntr_read(target) == 0);
	CHECK(fi_cntr_add(trigger, 1) == 0);
	CHECK(fi_cntr_read(target) == 7);
	CHECK(fi_cntr_add(trigger, 1) == 0);
	CHECK(fi_cntr_read(target) == 3 && fi_cntr_read(trigger) == 2);
	work = cntr_work(2, FI_OP_CNTR_ADD, trigger, 1, target, 7);
	work->completion_cntr = other;
	CHECK(queue(&s, work) == -FI_EINVAL);
	work->completion_cntr = NULL;
	work->op.cntr->cntr = NULL;
	CHECK(queue(&s, work) == -FI_EINVAL);
	/* A counter may trigger its own next step, for as long as there is work. */
	CHECK(fi_cntr_set(trigger, 0) == 0 && fi_cntr_set(target, 0) == 0);
	for (i = 0; i < ARRAY(chain); i++) {
		ops[i] = (struct fi_op_cntr) { i % 2 ? trigger : target, 1 };
		chain[i] = (struct fi_deferred_work) { .threshold = 1 + i / 2, .triggering_cntr = i % 2 ? target : trigger,
			.op_type = FI_OP_CNTR_ADD, .op.cntr = &ops[i] };
		CHECK(queue(&s, &chain[i]) == 0);
	}
	CHECK(fi_cntr_read(trigger) == 0);
	CHECK(fi_cntr_add(trigger, 1) == 0);
	CHECK(fi_cntr_read(trigger) == 1 + ARRAY(chain) / 2 && fi_cntr_read(target) == ARRAY(chain) / 2);
	close_cntr(trigger);
	close_cntr(target);
	close_cntr(other);
	close_side(&s);
}

CASE_OURS(trigger_work_is_cancelled)
{
	struct fid_cntr *trigger, *other, *target;
	struct fi_deferred_work *work;
	struct pair p;

	meet(&p, &TRIGGERED);
	trigger = open_cntr(&p.a, FI_WAIT_NONE);
	other = open_cntr(&p.a, FI_WAIT_NONE);
	target = open_cntr(&p.a, FI_WAIT_NONE);
	work = send_work(&p, 0, "never", trigger, 1, target, FI_COMPLETION);
	REFUSED("FI_CANCEL_WORK of work that is not queued", FI_ENOENT, cancel(&p.a, work));
	CHECK(queue(&p.a, work) == 0);
	CHECK(fi_close(&trigger->fid) == -FI_EBUSY && fi_close(&target->fid) == -FI_EBUSY);
	CHECK(cancel(&p.a, work) == 0);
	CHECK(cancel(&p.a, work) == -FI_ENOENT);
	CHECK(fi_cntr_add(trigger, 1) == 0);
	quiet(&p.a, &p.b);
	CHECK(fi_cntr_read(target) == 0 && fi_cntr_readerr(target) == 0);
	/* What has started is not cancelled. */
	CHECK(queue(&p.a, cntr_work(0, FI_OP_CNTR_ADD, trigger, 1, target, 1)) == 0);
	CHECK(fi_cntr_read(target) == 1);
	CHECK(cancel(&p.a, cntr_work(0, FI_OP_CNTR_ADD, trigger, 1, target, 1)) == -FI_ENOENT);
	/* All that waits for a counter, then all. */
	CHECK(queue(&p.a, cntr_work(0, FI_OP_CNTR_ADD, trigger, 2, target, 10)) == 0);
	CHECK(queue(&p.a, cntr_work(1, FI_OP_CNTR_ADD, other, 1, target, 100)) == 0);
	CHECK(queue(&p.a, cntr_work(2, FI_OP_CNTR_ADD, other, 2, target, 1000)) == 0);
	CHECK(fi_control(&p.a.domain->fid, FI_FLUSH_WORK, trigger) == 0);
	CHECK(fi_cntr_add(trigger, 5) == 0);
	CHECK(fi_cntr_add(other, 1) == 0);
	CHECK(fi_cntr_read(target) == 101);
	CHECK(fi_control(&p.a.domain->fid, FI_FLUSH_WORK, NULL) == 0);
	CHECK(fi_cntr_add(other, 5) == 0);
	CHECK(fi_cntr_read(target) == 101);
	close_cntr(trigger);
	close_cntr(other);
	close_cntr(target);
	part(&p);
}

CASE_OURS(trigger_work_of_a_closed_endpoint_is_cancelled)
{
	struct fid_cntr *trigger, *target;
	struct pair p;

	meet(&p, &TRIGGERED);
	trigger = open_cntr(&p.a, FI_WAIT_NONE);
	target = open_cntr(&p.a, FI_WAIT_NONE);
	CHECK(queue(&p.a, send_work(&p, 0, "never", trigger, 1, target, 0)) == 0);
	CHECK(fi_sendmsg(p.a.ep, message(&p, 1, "never", at(0, trigger, 1)), FI_TRIGGER) == 0);
	CHECK(fi_close(&trigger->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.a.ep->fid) == 0);
	p.a.ep = NULL;
	CHECK(fi_cntr_add(trigger, 1) == 0);
	quiet(&p.a, &p.b);
	CHECK(fi_cntr_read(target) == 0);
	close_cntr(trigger);
	close_cntr(target);
	part(&p);
}

/* fi_cancel ends a deferred receive that has started; closing the endpoint ends another. */
CASE_OURS(trigger_work_that_has_started_ends_once)
{
	struct iovec iov = { in[7], 64 };
	struct fid_cntr *trigger, *target;
	struct fi_deferred_work work[2];
	struct fi_op_msg op[2];
	struct fi_cq_err_entry err;
	struct pair p;
	size_t i;

	meet(&p, &TRIGGERED);
	trigger = open_cntr(&p.b, FI_WAIT_NONE);
	target = open_cntr(&p.b, FI_WAIT_NONE);
	for (i = 0; i < 2; i++) {
		op[i] = (struct fi_op_msg) { p.b.ep, { &iov, NULL, 1, FI_ADDR_UNSPEC, &contexts[i], 0 }, 0 };
		work[i] = (struct fi_deferred_work) { .threshold = 1, .triggering_cntr = trigger, .completion_cntr = target,
			.op_type = FI_OP_RECV, .op.msg = &op[i] };
		CHECK(queue(&p.b, &work[i]) == 0);
	}
	CHECK(fi_cntr_add(trigger, 1) == 0);
	CHECK(fi_cntr_read(target) == 0 && cancel(&p.b, &work[0]) == -FI_ENOENT);
	CHECK(fi_cancel(&p.b.ep->fid, &contexts[0]) == 0);
	err = failed(&p.b, &p.a, FI_ECANCELED);
	CHECK(err.op_context == &contexts[0] && err.flags == (FI_MSG | FI_RECV));
	CHECK(fi_cntr_readerr(target) == 1 && fi_cntr_read(target) == 0);
	CHECK(fi_close(&target->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	CHECK(fi_cntr_readerr(target) == 1 && fi_cntr_read(target) == 0);
	close_cntr(trigger);
	close_cntr(target);
	part(&p);
}

CASE_OURS(trigger_work_that_is_refused)
{
	struct fi_rx_attr rx = { 0 };
	struct fid_cntr *trigger, *foreign;
	struct fi_deferred_work *work;
	struct fi_info *info;
	struct fid_ep *srx, *ep;
	struct pair p;

	meet(&p, &TRIGGERED);
	trigger = open_cntr(&p.a, FI_WAIT_NONE);
	foreign = open_cntr(&p.b, FI_WAIT_NONE);
	CHECK(queue(&p.a, NULL) == -FI_EINVAL && cancel(&p.a, NULL) == -FI_EINVAL);
	CHECK(queue(&p.a, send_work(&p, 0, "x", NULL, 1, NULL, 0)) == -FI_EINVAL);
	CHECK(queue(&p.a, send_work(&p, 0, "x", foreign, 1, NULL, 0)) == -FI_EDOMAIN);
	CHECK(queue(&p.a, send_work(&p, 0, "x", trigger, 1, foreign, 0)) == -FI_EDOMAIN);
	CHECK(queue(&p.b, send_work(&p, 0, "x", foreign, 1, NULL, 0)) == -FI_EDOMAIN);
	work = send_work(&p, 0, "x", trigger, 1, NULL, 0);
	work->op_type = 99;
	CHECK(queue(&p.a, work) == -FI_ENOSYS);
	work->op_type = FI_OP_RECV;
	work->op.msg->flags = FI_MULTI_RECV;
	REFUSED("deferred receives with FI_MULTI_RECV, FI_PEEK, FI_CLAIM or FI_DISCARD",
		FI_ENOSYS, queue(&p.a, work));
	work->op.msg->flags = 0;
	work->op.msg = NULL;
	CHECK(queue(&p.a, work) == -FI_EINVAL);
	/* Receives of a shared context belong to no endpoint. */
	info = fi_dupinfo(p.a.info);
	info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	rx.caps = info->rx_attr->caps;
	CHECK(fi_srx_context(p.a.domain, &rx, &srx, NULL) == 0);
	CHECK(fi_endpoint(p.a.domain, info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &srx->fid, 0) == 0);
	work = send_work(&p, 0, "x", trigger, 1, NULL, 0);
	work->op_type = FI_OP_RECV;
	work->op.msg->ep = ep;
	REFUSED("deferred receives on an endpoint with a shared receive context, or on the context",
		FI_ENOSYS, queue(&p.a, work));
	work->op.msg->ep = srx;
	REFUSED("deferred receives on an endpoint with a shared receive context, or on the context",
		FI_ENOSYS, queue(&p.a, work));
	CHECK(fi_close(&ep->fid) == 0 && fi_close(&srx->fid) == 0);
	fi_freeinfo(info);
	close_cntr(trigger);
	close_cntr(foreign);
	part(&p);
}

/* Opens another endpoint of the side, which only transmits or only receives. */
static struct fid_ep *open_half(struct side *s, uint64_t direction)
{
	struct fi_info *info = fi_dupinfo(s->info);
	struct fid_ep *ep;

	info->caps &= ~(direction == FI_TRANSMIT ? FI_RECV : FI_SEND | FI_READ | FI_WRITE);
	info->tx_attr->caps &= info->caps;
	info->rx_attr->caps &= info->caps;
	CHECK(fi_endpoint(s->domain, info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s->cq->fid, direction) == 0);
	CHECK(fi_ep_bind(ep, &s->av->fid, 0) == 0);
	CHECK(fi_enable(ep) == 0);
	fi_freeinfo(info);
	return ep;
}

/* A call that the endpoint does not carry out is refused as the one without FI_TRIGGER is: nothing would report it. */
CASE_OURS(trigger_of_a_direction_that_the_endpoint_lacks)
{
	struct iovec iov = { out[0], 2 };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1, .tag = 1 };
	struct fi_deferred_work *work;
	struct fid_cntr *cntr;
	struct fi_msg *msg;
	struct fid_ep *ep;
	struct pair p;
	ssize_t plain;

	meet(&p, &TRIGGERED);
	cntr = open_cntr(&p.a, FI_WAIT_NONE);
	msg = message(&p, 0, "x", at(0, cntr, 1));
	work = send_work(&p, 1, "x", cntr, 1, NULL, 0);
	tagged.addr = p.to_b;
	tagged.context = at(0, cntr, 1);

	ep = work->op.msg->ep = open_half(&p.a, FI_TRANSMIT);
	plain = fi_recvmsg(ep, msg, 0);
	CHECK(plain < 0 && plain != -FI_EAGAIN);
	CHECK(fi_recvmsg(ep, msg, FI_TRIGGER) == plain);
	CHECK(fi_trecvmsg(ep, &tagged, FI_TRIGGER) == fi_trecvmsg(ep, &tagged, 0));
	work->op_type = FI_OP_RECV;
	CHECK(queue(&p.a, work) == plain);
	CHECK(fi_close(&ep->fid) == 0);

	ep = work->op.msg->ep = open_half(&p.a, FI_RECV);
	plain = fi_sendmsg(ep, msg, 0);
	CHECK(plain < 0 && plain != -FI_EAGAIN);
	CHECK(fi_sendmsg(ep, msg, FI_TRIGGER) == plain);
	CHECK(fi_tsendmsg(ep, &tagged, FI_TRIGGER) == fi_tsendmsg(ep, &tagged, 0));
	work->op_type = FI_OP_SEND;
	CHECK(queue(&p.a, work) == plain);
	CHECK(fi_close(&ep->fid) == 0);
	close_cntr(cntr);
	part(&p);
}

/* With FI_INJECT the call copies its payload: no more than it could inject without FI_TRIGGER. */
CASE_OURS(trigger_injects_no_more_than_other_calls)
{
	const uint64_t flags = FI_TRIGGER | FI_INJECT;
	struct fi_rma_ioc place;
	struct fi_ioc operands;
	struct fi_msg_atomic atomic = { .msg_iov = &operands, .iov_count = 1, .rma_iov = &place, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM };
	struct fi_deferred_work *work;
	struct fi_msg_tagged tagged;
	struct fid_cntr *cntr;
	struct iovec iov;
	struct fi_msg msg;
	struct region r;
	struct pair p;
	size_t most;
	char *big;

	meet(&p, &TRIGGERED);
	cntr = open_cntr(&p.a, FI_WAIT_NONE);
	expose(&p.b, &r, words, sizeof(words));
	most = p.a.info->tx_attr->inject_size;
	big = calloc(1, most + 16);
	CHECK(big != NULL);
	iov = (struct iovec) { big, most + 1 };
	msg = (struct fi_msg) { .msg_iov = &iov, .iov_count = 1, .addr = p.to_b, .context = at(0, cntr, 1) };
	CHECK(fi_sendmsg(p.a.ep, &msg, FI_INJECT) == -FI_EMSGSIZE);
	CHECK(fi_sendmsg(p.a.ep, &msg, flags) == -FI_EMSGSIZE);
	tagged = (struct fi_msg_tagged) { .msg_iov = &iov, .iov_count = 1, .addr = p.to_b, .context = at(0, cntr, 1) };
	CHECK(fi_tsendmsg(p.a.ep, &tagged, flags) == -FI_EMSGSIZE);
	CHECK(fi_writemsg(p.a.ep, access_to(&p, &r, big, 0, most + 1, at(0, cntr, 1)), flags) == -FI_EMSGSIZE);
	operands = (struct fi_ioc) { big, most / 8 + 1 };
	place = (struct fi_rma_ioc) { r.addr, most / 8 + 1, r.key };
	atomic.addr = p.to_b;
	atomic.context = at(0, cntr, 1);
	CHECK(fi_atomicmsg(p.a.ep, &atomic, flags) == -FI_EMSGSIZE);
	work = send_work(&p, 0, "x", cntr, 1, NULL, FI_INJECT);
	work->op.msg->msg.msg_iov = &iov;
	CHECK(queue(&p.a, work) == -FI_EMSGSIZE);
	/* As much as a call may inject. */
	iov.iov_len = most;
	CHECK(fi_sendmsg(p.a.ep, &msg, flags | FI_COMPLETION) == 0);
	CHECK(fi_cntr_add(cntr, 1) == 0);
	done(&p.a, &p.b, &triggers[0]);
	free(big);
	hide(&r);
	close_cntr(cntr);
	part(&p);
}

/* An operation that cannot start completes with its error. */
CASE_OURS(trigger_errors_when_it_starts)
{
	struct fid_cntr *trigger, *target;
	struct fi_cq_err_entry err;
	struct pair p;

	meet(&p, &TRIGGERED);
	trigger = open_cntr(&p.a, FI_WAIT_NONE);
	target = open_cntr(&p.a, FI_WAIT_NONE);
	p.to_b += 1000;
	CHECK(queue(&p.a, send_work(&p, 0, "x", trigger, 1, target, 0)) == 0);
	CHECK(fi_sendmsg(p.a.ep, message(&p, 1, "x", at(1, trigger, 2)), FI_TRIGGER) == 0);
	CHECK(fi_cntr_add(trigger, 1) == 0);
	CHECK(next(&p.a, &p.b, &(struct fi_cq_tagged_entry) { 0 }, &err, 10) == 0);
	CHECK(err.op_context == &contexts[0] && err.flags == (FI_MSG | FI_SEND) && err.err > 0);
	reads_errors(target, 1);
	CHECK(fi_cntr_read(target) == 0);
	CHECK(fi_cntr_add(trigger, 1) == 0);
	CHECK(next(&p.a, &p.b, &(struct fi_cq_tagged_entry) { 0 }, &err, 10) == 0);
	CHECK(err.op_context == &triggers[1] && err.flags == (FI_MSG | FI_SEND) && err.err > 0);
	close_cntr(trigger);
	close_cntr(target);
	part(&p);
}

/* More work than the endpoint takes at once. */
CASE_OURS(trigger_work_waits_for_room)
{
	struct want w = TRIGGERED;
	struct fid_cntr *trigger, *target;
	struct pair p;
	size_t i;

	w.tx_size = w.rx_size = 2;
	meet(&p, &w);
	trigger = open_cntr(&p.a, FI_WAIT_NONE);
	target = open_cntr(&p.a, FI_WAIT_NONE);
	for (i = 0; i < 12; i++) {
		char text[8] = { (char) ('a' + i) };

		CHECK(queue(&p.a, send_work(&p, i, text, trigger, 1, target, FI_DELIVERY_COMPLETE)) == 0);
	}
	CHECK(fi_cntr_add(trigger, 1) == 0);
	for (i = 0; i < 12; i++) {
		char text[8] = { (char) ('a' + i) };

		post_recv(&p.b, i);
		arrived(&p, i, text);
	}
	reads(target, 12);
	close_cntr(trigger);
	close_cntr(target);
	part(&p);
}

/* Injected work that finds no room when it starts waits: no call would post it again. */
CASE_OURS(trigger_injected_work_waits_for_room)
{
	struct fid_cntr *trigger, *target;
	size_t i, count;
	struct pair p;
	ssize_t ret;

	meet(&p, &TRIGGERED);
	trigger = open_cntr(&p.a, FI_WAIT_NONE);
	target = open_cntr(&p.a, FI_WAIT_NONE);
	post_recv(&p.b, 3);
	CHECK(fi_sendmsg(p.a.ep, message(&p, 3, "first", &contexts[4]), FI_COMPLETION) == 0);
	arrived(&p, 3, "first");
	done(&p.a, &p.b, &contexts[4]);
	CHECK(queue(&p.a, send_work(&p, 0, "last", trigger, 1, target, FI_INJECT)) == 0);
	for (count = 0; count < 1000; count++) {
		ret = fi_inject(p.a.ep, "x", 2, p.to_b);
		if (ret == -FI_EAGAIN)
			break;
		CHECK(ret == 0);
	}
	CHECK(fi_cntr_add(trigger, 1) == 0);
	CHECK(fi_cntr_read(target) <= 1 && fi_cntr_readerr(target) == 0);
	for (i = 0; i < count; i++) {
		post_recv(&p.b, 1);
		arrived(&p, 1, "x");
	}
	post_recv(&p.b, 2);
	arrived(&p, 2, "last");
	reads(target, 1);
	close_cntr(trigger);
	close_cntr(target);
	part(&p);
}

/* A peer's write to a region counts, and starts work. */
CASE_OURS(trigger_by_a_peers_write)
{
	struct fid_cntr *written, *answered;
	struct fi_deferred_work work;
	struct fi_op_msg op;
	struct iovec iov = { out[9], 3 };
	struct region r;
	struct pair p;

	meet(&p, &TRIGGERED);
	written = open_cntr(&p.b, FI_WAIT_NONE);
	answered = open_cntr(&p.b, FI_WAIT_NONE);
	expose(&p.b, &r, words, sizeof(words));
	CHECK(fi_ep_bind(p.b.ep, &written->fid, FI_REMOTE_WRITE) == 0);
	memset(in[0], 0, sizeof(in[0]));
	POST(fi_recv(p.a.ep, in[0], 64, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	strcpy(out[9], "ok");
	op = (struct fi_op_msg) { p.b.ep, { .msg_iov = &iov, .iov_count = 1, .addr = p.to_a, .context = &contexts[9] }, 0 };
	work = (struct fi_deferred_work) { .threshold = 1, .triggering_cntr = written, .completion_cntr = answered,
		.op_type = FI_OP_SEND, .op.msg = &op };
	CHECK(queue(&p.b, &work) == 0);
	POST(fi_write(p.a.ep, "12345678", 8, NULL, p.to_b, r.addr, r.key, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.a, &p.b, &contexts[0]);
	CHECK(!strcmp(in[0], "ok"));
	reads(answered, 1);
	hide(&r);
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	close_cntr(written);
	close_cntr(answered);
	part(&p);
}

#define ROUNDS	8

/* Two sides answer each other without the application: each message received starts the next. */
struct offloaded {
	struct fid_cntr *received, *sent;
	struct fi_op_msg op[ROUNDS];
	struct fi_deferred_work work[ROUNDS];
	struct iovec iov;
	char bytes[4];
};

static void offload(struct side *s, fi_addr_t to, struct offloaded *o, uint64_t lead, enum fi_wait_obj wait)
{
	size_t i;

	o->received = open_cntr(s, wait);
	o->sent = open_cntr(s, wait);
	CHECK(fi_ep_bind(s->ep, &o->received->fid, FI_RECV) == 0);
	o->iov = (struct iovec) { o->bytes, 4 };
	for (i = 0; i < ROUNDS; i++) {
		POST(fi_recv(s->ep, o->bytes, 4, NULL, FI_ADDR_UNSPEC, &contexts[i]));
		o->op[i] = (struct fi_op_msg) { s->ep, { .msg_iov = &o->iov, .iov_count = 1, .addr = to, .context = &contexts[i] }, 0 };
		o->work[i] = (struct fi_deferred_work) { .threshold = i + lead, .triggering_cntr = o->received,
			.completion_cntr = o->sent, .op_type = FI_OP_SEND, .op.msg = &o->op[i] };
	}
	for (i = 0; i < ROUNDS; i++)
		CHECK(queue(s, &o->work[i]) == 0);
}

static void put_away(struct side *s, struct offloaded *o)
{
	CHECK(fi_close(&s->ep->fid) == 0);
	s->ep = NULL;
	close_cntr(o->received);
	close_cntr(o->sent);
}

static void *wait_for_sends(void *arg)
{
	struct offloaded *o = arg;

	CHECK(fi_cntr_wait(o->sent, ROUNDS, 20000) == 0);
	return NULL;
}

/* Each side sleeps on its completion counter alone, which no endpoint is bound to. */
static void answers_by_itself(const struct want *w)
{
	struct offloaded a, b;
	struct want bound = *w;
	pthread_t thread;
	struct pair p;

	bound.bind = FI_SELECTIVE_COMPLETION;
	meet(&p, &bound);
	offload(&p.b, p.to_a, &b, 1, FI_WAIT_UNSPEC);
	offload(&p.a, p.to_b, &a, 0, FI_WAIT_UNSPEC);
	CHECK(pthread_create(&thread, NULL, wait_for_sends, &b) == 0);
	wait_for_sends(&a);
	pthread_join(thread, NULL);
	reads(a.received, ROUNDS);
	CHECK(fi_cntr_read(b.received) == ROUNDS);
	put_away(&p.a, &a);
	put_away(&p.b, &b);
	part(&p);
}

CASE_OURS(trigger_answers_without_the_application)
{
	answers_by_itself(&TRIGGERED);
	answers_by_itself(&TRIGGERED_AUTO);
	answers_by_itself(&TRIGGERED_MSG);
}

static void *wait_for_one(void *cntr)
{
	CHECK(fi_cntr_wait(cntr, 1, 10000) == 0);
	return NULL;
}

/* A thread that posts makes work ready while another sleeps, which then has to start it. */
static void wakes_a_sleeping_thread(const struct want *w)
{
	struct fid_cntr *sends, *target;
	pthread_t thread;
	struct pair p;

	meet(&p, w);
	sends = open_cntr(&p.a, FI_WAIT_NONE);
	target = open_cntr(&p.a, FI_WAIT_UNSPEC);
	CHECK(fi_ep_bind(p.a.ep, &sends->fid, FI_SEND) == 0);
	post_recv(&p.b, 0);
	post_recv(&p.b, 1);
	CHECK(queue(&p.a, cntr_work(0, FI_OP_CNTR_ADD, sends, 2, target, 1)) == 0);
	POST(fi_send(p.a.ep, "1", 2, NULL, p.to_b, &contexts[2]));
	done(&p.a, &p.b, &contexts[2]);
	arrived(&p, 0, "1");
	CHECK(pthread_create(&thread, NULL, wait_for_one, target) == 0);
	/* Late enough for the other thread to sleep. */
	poll(NULL, 0, 50);
	POST(fi_inject(p.a.ep, "2", 2, p.to_b));
	pthread_join(thread, NULL);
	CHECK(fi_close(&p.a.ep->fid) == 0);
	p.a.ep = NULL;
	close_cntr(sends);
	close_cntr(target);
	part(&p);
}

CASE_OURS(trigger_wakes_a_sleeping_thread)
{
	wakes_a_sleeping_thread(&TRIGGERED);
	wakes_a_sleeping_thread(&TRIGGERED_AUTO);
}
