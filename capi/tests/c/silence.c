/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An application that makes no more calls, because it waits for something else or exits: what it
 * has injected still reaches the peer, and so does the acknowledgment of what it has read. One
 * scenario per run.
 */
#define _GNU_SOURCE
#include "process.h"
#include "scenario.h"
#include "side.h"
#include <sys/resource.h>

/* Seconds within which the peer must hear of it. */
#define SOON 5
#define MOST 64
/* Of memory that the peer writes. */
#define KEY 7

static char place[MOST][8192];
static char wide[8 << 20];

static struct side a, b;
static fi_addr_t to_a, to_b;
/* The queue that gets no entries of sends. */
static struct fid_cq *unread;

static void open_both_with(enum fi_wait_obj wait)
{
	open_rdm(&a, wait);
	open_rdm(&b, FI_WAIT_NONE);
	to_b = insert(&a, b.name);
	to_a = insert(&b, a.name);
}

static void open_both(void)
{
	open_both_with(FI_WAIT_NONE);
}

static void close_both(void)
{
	close_side(&a);
	close_side(&b);
}

static void receive(struct side *s, size_t i, size_t size)
{
	CHECK(fi_trecv(s->ep, place[i], size, NULL, FI_ADDR_UNSPEC, 1, 0, place[i]) == 0);
}

/* Reads one completion of `s` while the other side makes no call. */
static struct fi_cq_tagged_entry alone(struct side *s)
{
	struct fi_cq_tagged_entry entry = { 0 };
	struct fi_cq_err_entry err;
	int found = next_entry(s->cq, NULL, &entry, &err, SOON);

	if (found <= 0)
		fprintf(stderr, "%s\n", found ? "nothing completes" : fi_strerror(err.err));
	CHECK(found == 1);
	return entry;
}

/* A message each way, so that both sides have a link. */
static void meet(size_t size)
{
	receive(&b, 0, size);
	CHECK(fi_tsend(a.ep, place[MOST - 1], size, NULL, to_b, 1, &a) == 0);
	done(&a, &b, &a, FI_SEND | FI_TAGGED);
	done(&b, &a, place[0], FI_RECV | FI_TAGGED);
	receive(&a, 0, size);
	CHECK(fi_tsend(b.ep, place[MOST - 1], size, NULL, to_a, 1, &b) == 0);
	done(&b, &a, &b, FI_SEND | FI_TAGGED);
	done(&a, &b, place[0], FI_RECV | FI_TAGGED);
}

/*
 * Injects messages until no more are accepted, or `most`, and then calls no more: what was accepted
 * arrives. `least` must be.
 */
static void burst(size_t size, size_t least, size_t most)
{
	size_t i, count;
	int ret;

	open_both();
	meet(size);
	for (count = 0; count < most; count++) {
		memset(place[MOST - 1], (int) count, size);
		ret = (int) fi_tinject(a.ep, place[MOST - 1], size, to_b, 1);
		if (ret == -FI_EAGAIN)
			break;
		CHECK(ret == 0);
	}
	CHECK(count >= least);
	for (i = 0; i < count; i++) {
		receive(&b, 0, size);
		CHECK(alone(&b).op_context == place[0]);
		CHECK(place[0][0] == (char) i && place[0][size - 1] == (char) i);
	}
	close_both();
}

static void injected(void)
{
	struct fi_info *info = find(FI_EP_RDM);
	size_t most = info->tx_attr->inject_size;

	fi_freeinfo(info);
	CHECK(most <= sizeof(place[0]));
	burst(8, 1, 1);
	burst(8, 40, 40);
	burst(8, 40, 4000);
	burst(most, 1, 5);
	burst(most, 1, 100);
}

/* Injects the first messages to a peer, and then calls no more: not even while the link opens. */
static void first(void)
{
	size_t counts[] = { 1, 300 }, i, k;

	for (k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
		open_both();
		for (i = 0; i < counts[k]; i++)
			CHECK(fi_tinject(a.ep, "letter", 7, to_b, 1) == 0);
		for (i = 0; i < counts[k]; i++) {
			receive(&b, 0, 8);
			CHECK(alone(&b).len == 7);
		}
		close_both();
	}
}

/* Opens `a` so that it reports no success unless it is asked to. */
static void open_quiet(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };

	open_domain(&a, find(FI_EP_RDM), FI_WAIT_NONE);
	CHECK(fi_cq_open(a.domain, &attr, &unread, NULL) == 0);
	CHECK(fi_endpoint(a.domain, a.info, &a.ep, NULL) == 0);
	CHECK(fi_ep_bind(a.ep, &a.cq->fid, FI_RECV) == 0);
	CHECK(fi_ep_bind(a.ep, &unread->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION) == 0);
	CHECK(fi_ep_bind(a.ep, &a.av->fid, 0) == 0 && fi_enable(a.ep) == 0);
	a.len = sizeof(a.name);
	CHECK(fi_getname(&a.ep->fid, a.name, &a.len) == 0);
	open_rdm(&b, FI_WAIT_NONE);
	to_b = insert(&a, b.name);
	to_a = insert(&b, a.name);
	receive(&a, 0, 8);
	CHECK(fi_tsend(b.ep, place[MOST - 1], 8, NULL, to_a, 1, &b) == 0);
	done(&b, &a, &b, FI_SEND | FI_TAGGED);
	done(&a, &b, place[0], FI_RECV | FI_TAGGED);
}

static void close_quiet(void)
{
	CHECK(fi_close(&a.ep->fid) == 0 && fi_close(&unread->fid) == 0);
	a.ep = NULL;
	close_both();
}

/* A burst of sends that report nothing, and one that is more than there is room for on a link. */
static void unreported(void)
{
	size_t counts[] = { 40, 300 }, i, k;

	for (k = 0; k < sizeof(counts) / sizeof(*counts); k++) {
		open_quiet();
		for (i = 0; i < counts[k]; i++)
			CHECK(fi_tsend(a.ep, place[MOST - 1], 8, NULL, to_b, 1, NULL) == 0);
		for (i = 0; i < counts[k]; i++) {
			receive(&b, i % MOST, 8);
			CHECK(alone(&b).op_context == place[i % MOST]);
		}
		close_quiet();
	}
}

/* Polls `b` until `a` has written this byte. */
static void await_byte(const volatile char *at)
{
	double end = seconds() + SOON;

	while (!*at) {
		CHECK(fi_cq_read(b.cq, &(struct fi_cq_tagged_entry) { 0 }, 1) == -FI_EAGAIN);
		CHECK(seconds() < end);
	}
}

/* A message and a write that are long, and report nothing. */
static void unreported_long(void)
{
	struct fid_mr *mr;
	volatile char *last = &wide[sizeof(wide) / 2 - 1];

	more_caps = FI_RMA;
	open_quiet();
	CHECK(fi_mr_reg(b.domain, wide, sizeof(wide) / 2, FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL) == 0);
	memset(wide, 0, sizeof(wide) / 2);
	memset(wide + sizeof(wide) / 2, 1, sizeof(wide) / 2);
	CHECK(fi_write(a.ep, wide + sizeof(wide) / 2, sizeof(wide) / 2, NULL, to_b, 0, KEY, NULL) == 0);
	await_byte(last);
	CHECK(fi_close(&mr->fid) == 0);
	memset(wide, 0, sizeof(wide) / 2);
	CHECK(fi_tsend(a.ep, wide + sizeof(wide) / 2, sizeof(wide) / 2, NULL, to_b, 1, NULL) == 0);
	CHECK(fi_trecv(b.ep, wide, sizeof(wide) / 2, NULL, FI_ADDR_UNSPEC, 1, 0, &b) == 0);
	CHECK(alone(&b).len == sizeof(wide) / 2 && *last == 1);
	close_quiet();
}

/* Sends a message that completes at this level. */
static void send_at(struct side *s, fi_addr_t to, uint64_t level)
{
	struct iovec iov = { place[MOST - 1], 8 };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .addr = to, .tag = 1, .context = s };

	CHECK(fi_tsendmsg(s->ep, &msg, FI_COMPLETION | level) == 0);
}

/*
 * One side reads a message, and then calls no more: first right away, then after some rounds in
 * which its answer has followed.
 */
static void acknowledged(uint64_t level)
{
	size_t rounds[] = { 0, 1, 20 }, i, k;

	for (k = 0; k < sizeof(rounds) / sizeof(*rounds); k++) {
		open_both();
		meet(8);
		for (i = 0; i < rounds[k]; i++) {
			receive(&b, 0, 8);
			receive(&a, 0, 8);
			send_at(&a, to_b, level);
			while (next_of(&b, NULL, &(struct fi_cq_tagged_entry) { 0 }, NULL) != 1)
				;
			send_at(&b, to_a, level);
			/* Its own send, and the answer, in whichever order. */
			next_of(&a, &b, &(struct fi_cq_tagged_entry) { 0 }, NULL);
			next_of(&a, &b, &(struct fi_cq_tagged_entry) { 0 }, NULL);
			next_of(&b, &a, &(struct fi_cq_tagged_entry) { 0 }, NULL);
		}
		receive(&b, 0, 8);
		send_at(&a, to_b, level);
		CHECK(alone(&b).op_context == place[0]);
		CHECK(alone(&a).op_context == &a);
		close_both();
	}
}

/* Posts a receive whose message is there already, and then calls no more. */
static void matched_late(void)
{
	uint64_t levels[] = { FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE };
	size_t i;

	for (i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
		open_both();
		meet(8);
		send_at(&a, to_b, levels[i]);
		await_tagged(&b, NULL, 1, &b);
		receive(&b, 0, 8);
		CHECK(alone(&a).op_context == &a);
		CHECK(alone(&b).op_context == place[0]);
		close_both();
	}
}

/*
 * Injects as much as there is room for, reads a message, and then calls no more: there is no room
 * for its acknowledgment, either.
 */
static void crowded(void)
{
	uint64_t levels[] = { FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE };
	size_t i, k, count;

	for (i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
		open_both();
		meet(8);
		receive(&b, 0, 8);
		send_at(&a, to_b, levels[i]);
		for (count = 0; count < 1000; count++) {
			int ret = (int) fi_tinject(b.ep, place[MOST - 1], 8, to_a, 2);

			if (ret == -FI_EAGAIN)
				break;
			CHECK(ret == 0);
		}
		CHECK(alone(&b).op_context == place[0]);
		for (k = 0; k < count; k++)
			CHECK(fi_trecv(a.ep, place[1], 8, NULL, FI_ADDR_UNSPEC, 2, 0, place[1]) == 0);
		for (k = 0; k <= count; k++) {
			struct fi_cq_tagged_entry entry = alone(&a);

			CHECK(entry.op_context == &a || entry.op_context == place[1]);
		}
		close_both();
	}
}

/* Reads one of two entries, or an error, and then calls no more. */
static void unread_entries(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	size_t i;

	open_both();
	meet(8);
	for (i = 0; i < 2; i++) {
		receive(&b, i, 8);
		send_at(&a, to_b, FI_TRANSMIT_COMPLETE);
	}
	CHECK(alone(&b).op_context == place[0]);
	CHECK(alone(&a).op_context == &a && alone(&a).op_context == &a);
	CHECK(alone(&b).op_context == place[1]);
	receive(&b, 0, 1);
	send_at(&a, to_b, FI_TRANSMIT_COMPLETE);
	CHECK(next_entry(b.cq, NULL, &entry, &err, SOON) == 0 && err.err == FI_ETRUNC);
	CHECK(alone(&a).op_context == &a);
	close_both();
}

static void transmitted(void)
{
	acknowledged(FI_TRANSMIT_COMPLETE);
}

static void delivered(void)
{
	acknowledged(FI_DELIVERY_COMPLETE);
}

static void matched(void)
{
	acknowledged(FI_MATCH_COMPLETE);
}

/* Memory of each side that the other one writes. */
static uint64_t target[2][MOST];
static struct fid_mr *regions[2];

static void expose_both(void)
{
	struct side *sides[2] = { &a, &b };
	int i;

	more_caps = FI_RMA;
	open_both();
	meet(8);
	memset(target, 0, sizeof(target));
	for (i = 0; i < 2; i++)
		CHECK(fi_mr_reg(sides[i]->domain, target[i], sizeof(target[i]), FI_REMOTE_WRITE, 0, KEY, 0, &regions[i],
			NULL) == 0);
}

static void conceal_both(void)
{
	CHECK(fi_close(&regions[0]->fid) == 0 && fi_close(&regions[1]->fid) == 0);
	close_both();
}

/* Polls until the other side has written `value`; returns how many of its own writes have ended. */
static size_t await_value(struct side *s, volatile uint64_t *at, uint64_t value)
{
	struct fi_cq_tagged_entry entry;
	double end = seconds() + SOON;
	size_t ended = 0;

	while (*at != value) {
		ssize_t ret = fi_cq_read(s->cq, &entry, 1);

		CHECK(ret == 1 || ret == -FI_EAGAIN);
		ended += ret == 1;
		CHECK(seconds() < end);
	}
	return ended;
}

/* One side reads the notice of a write, or sees it in its memory, and then calls no more. */
static void written(void)
{
	size_t rounds[] = { 0, 1, 20 }, i, k, ended;
	uint64_t values[2] = { 0 };

	expose_both();
	CHECK(fi_writedata(a.ep, values, 8, NULL, 1234, to_b, 0, KEY, &a) == 0);
	CHECK(alone(&b).data == 1234);
	CHECK(alone(&a).op_context == &a);
	for (k = 0; k < sizeof(rounds) / sizeof(*rounds); k++) {
		ended = 0;
		for (i = 0; i <= rounds[k]; i++) {
			values[0]++;
			CHECK(fi_write(a.ep, &values[0], 8, NULL, to_b, 0, KEY, &a) == 0);
			await_value(&b, &target[1][0], values[0]);
			if (i == rounds[k])
				break;
			values[1]++;
			CHECK(fi_write(b.ep, &values[1], 8, NULL, to_a, 0, KEY, &b) == 0);
			ended += await_value(&a, &target[0][0], values[1]);
		}
		for (; ended < rounds[k] + 1; ended++)
			CHECK(alone(&a).op_context == &a);
	}
	for (i = 0; i < 40; i++)
		CHECK(fi_inject_write(a.ep, &values[0], 8, to_b, 8 * (i + 1), KEY) == 0);
	for (i = 0; i < 40; i++)
		await_value(&b, &target[1][i + 1], values[0]);
	conceal_both();
}

/*
 * Injects writes until one is refused, which over tcp is when the kernel takes no more, and then
 * waits: what the kernel has taken a part of arrives.
 */
static void until_refused(enum fi_wait_obj object, void (*wait)(void))
{
	struct fid_mr *mr;
	size_t i, count, size;
	int ret = 0;

	more_caps = FI_RMA;
	open_both_with(object);
	meet(8);
	size = a.info->tx_attr->inject_size;
	CHECK(size <= sizeof(place[0]));
	CHECK(fi_mr_reg(b.domain, wide, sizeof(wide), FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL) == 0);
	memset(place[0], 1, size);
	for (count = 0; ret == 0 && (count + 1) * size <= sizeof(wide); count += ret == 0)
		ret = (int) fi_inject_write(a.ep, place[0], size, to_b, count * size, KEY);
	CHECK(count && (ret == 0 || ret == -FI_EAGAIN));
	wait();
	for (i = 0; i < count; i++)
		await_byte(&wide[(i + 1) * size - 1]);
	CHECK(fi_close(&mr->fid) == 0);
	close_both();
}

static void do_nothing(void)
{
}

static void refused(void)
{
	until_refused(FI_WAIT_NONE, do_nothing);
}

/* Sleeps in the library while nothing can leave: nothing wakes it. */
static void sleep_well(void)
{
	struct rusage before, after;

	CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
	CHECK(fi_cq_sread(a.cq, &(struct fi_cq_tagged_entry) { 0 }, 1, NULL, 300) == -FI_EAGAIN);
	CHECK(getrusage(RUSAGE_THREAD, &after) == 0);
	CHECK(after.ru_nvcsw - before.ru_nvcsw < 10);
}

static void asleep(void)
{
	until_refused(FI_WAIT_UNSPEC, sleep_well);
}

/* A peer's address as it passes through a pipe. */
typedef char name[sizeof(a.name)];

static void open_with(int in)
{
	name peer;

	open_rdm(&a, FI_WAIT_NONE);
	hear(in, peer, sizeof(peer));
	to_b = insert(&a, peer);
}

static void inject(size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		CHECK(fi_tinject(a.ep, &i, sizeof(i), to_b, 1) == 0);
}

static void exit_at_once(int in, int out)
{
	(void) out;
	open_with(in);
	inject(1);
}

static void exit_after_burst(int in, int out)
{
	(void) out;
	open_with(in);
	CHECK(fi_tsend(a.ep, place[0], 8, NULL, to_b, 1, &a) == 0);
	CHECK(alone(&a).op_context == &a);
	inject(40);
}

/* Exits without closing anything, right after a call that has accepted a message. */
static void exits(void)
{
	static const struct {
		void (*body)(int in, int out);
		size_t count;
	} kinds[] = { { exit_at_once, 1 }, { exit_after_burst, 41 } };
	size_t k, i;
	int to, from;

	for (k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		pid_t pid = child(kinds[k].body, &to, &from);

		open_rdm(&b, FI_WAIT_NONE);
		tell(to, b.name, sizeof(name));
		for (i = 0; i < kinds[k].count; i++) {
			receive(&b, 0, 8);
			CHECK(alone(&b).op_context == place[0]);
		}
		join(pid);
		close_side(&b);
	}
}

/* Exits after a message to a peer that does not answer: it waits for a second. */
static void exits_unheard(void)
{
	int to, from;
	pid_t pid = child(exit_at_once, &to, &from);
	double start;

	open_rdm(&b, FI_WAIT_NONE);
	start = seconds();
	tell(to, b.name, sizeof(name));
	join(pid);
	CHECK(seconds() - start > 0.9 && seconds() - start < SOON);
	close_side(&b);
}

static void exit_beside_another(int in, int out)
{
	static struct side other;
	name peer;

	exit_at_once(in, out);
	open_rdm(&other, FI_WAIT_NONE);
	hear(in, peer, sizeof(peer));
	CHECK(fi_tinject(other.ep, "letter.", 8, insert(&other, peer), 1) == 0);
}

/* The same beside a message of another domain that can leave: it does. */
static void exits_beside(void)
{
	int to, from;
	pid_t pid = child(exit_beside_another, &to, &from);

	open_rdm(&a, FI_WAIT_NONE);
	open_rdm(&b, FI_WAIT_NONE);
	tell(to, a.name, sizeof(name));
	tell(to, b.name, sizeof(name));
	receive(&b, 0, 8);
	CHECK(alone(&b).op_context == place[0]);
	join(pid);
	close_both();
}

static void exit_alone(int in, int out)
{
	(void) in;
	(void) out;
}

/* A forked process exits while its parent holds a message: that is not the child's to send. */
static void exits_forked(void)
{
	int to, from;
	double start;

	open_both();
	inject(1);
	start = seconds();
	join(child(exit_alone, &to, &from));
	CHECK(seconds() - start < 0.5);
	receive(&b, 0, 8);
	CHECK(alone(&b).op_context == place[0]);
	close_both();
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "injected", injected }, { "first", first }, { "unreported", unreported }, { "transmitted", transmitted },
		{ "delivered", delivered }, { "matched", matched }, { "written", written }, { "refused", refused },
		{ "unreported_long", unreported_long }, { "unread_entries", unread_entries },
		{ "matched_late", matched_late }, { "crowded", crowded }, { "asleep", asleep },
		{ "exits", exits }, { "exits_unheard", exits_unheard },
		{ "exits_beside", exits_beside }, { "exits_forked", exits_forked },
		{ NULL, NULL },
	};

	return run_scenario(argc, argv, scenarios);
}
