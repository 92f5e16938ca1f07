/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Every operation at every completion level, into queues of every format, with and without locks,
 * on both kinds of endpoints: payloads, entries, and that each operation completes exactly once.
 */
#include "sided.h"
#include <signal.h>
#include <sys/wait.h>

#define MOST	(300 << 10)
#define TAG	0x5a5aULL
#define DATA	0xdadaULL

enum op { SEND, SENDDATA, TSEND, TSENDDATA, WRITE, WRITEDATA, READ, ADD, FETCH, SWAP, OPS };

static const uint64_t levels[] = { 0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE,
	FI_MATCH_COMPLETE };
static const enum fi_cq_format formats[] = { FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA,
	FI_CQ_FORMAT_TAGGED };
static const size_t entry_sizes[] = { sizeof(struct fi_cq_entry), sizeof(struct fi_cq_msg_entry),
	sizeof(struct fi_cq_data_entry), sizeof(struct fi_cq_tagged_entry) };
static const size_t lens[] = { 0, 8, 4096, 70000, MOST };

static char from[MOST], to[MOST], before[MOST];
static uint64_t one = 1, swapped, returned;

static int is_message(enum op op)
{
	return op <= TSENDDATA;
}

static int is_tagged(enum op op)
{
	return op == TSEND || op == TSENDDATA;
}

static int has_data(enum op op)
{
	return op == SENDDATA || op == TSENDDATA || op == WRITEDATA;
}

/* The flags of the initiator's entry. */
static uint64_t entry_flags(enum op op)
{
	switch (op) {
	case SEND: case SENDDATA: return FI_MSG | FI_SEND;
	case TSEND: case TSENDDATA: return FI_TAGGED | FI_SEND;
	case WRITE: case WRITEDATA: return FI_RMA | FI_WRITE;
	case READ: return FI_RMA | FI_READ;
	case ADD: return FI_ATOMIC | FI_WRITE;
	default: return FI_ATOMIC | FI_READ;
	}
}

/* Posts an operation by its message call, which alone names a level. */
static ssize_t post(struct side *s, enum op op, fi_addr_t dest, struct region *r, size_t len, uint64_t flags,
	void *context)
{
	struct iovec iov = { op == READ ? before : from, len };
	struct fi_rma_iov remote = { r->addr, len, r->key };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = dest, .context = context, .data = DATA };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1, .addr = dest, .tag = TAG, .context = context,
		.data = DATA };
	struct fi_msg_rma rma = { .msg_iov = &iov, .iov_count = 1, .addr = dest, .rma_iov = &remote, .rma_iov_count = 1,
		.context = context, .data = DATA };
	struct fi_ioc operand = { &one, 1 }, compare = { &swapped, 1 }, result = { &returned, 1 };
	struct fi_rma_ioc place = { r->addr, 1, r->key };
	struct fi_msg_atomic atomic = { .msg_iov = &operand, .iov_count = 1, .addr = dest, .rma_iov = &place,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = op == SWAP ? FI_CSWAP : FI_SUM, .context = context };

	flags |= FI_COMPLETION | (has_data(op) ? FI_REMOTE_CQ_DATA : 0);
	switch (op) {
	case SEND: case SENDDATA: return fi_sendmsg(s->ep, &msg, flags);
	case TSEND: case TSENDDATA: return fi_tsendmsg(s->ep, &tagged, flags);
	case WRITE: case WRITEDATA: return fi_writemsg(s->ep, &rma, flags);
	case READ: return fi_readmsg(s->ep, &rma, flags);
	case ADD: return fi_atomicmsg(s->ep, &atomic, flags);
	case FETCH: return fi_fetch_atomicmsg(s->ep, &atomic, &result, NULL, 1, flags);
	default: return fi_compare_atomicmsg(s->ep, &atomic, &compare, NULL, 1, &result, NULL, 1, flags);
	}
}

/* Whether the operation has that level: only messages have FI_MATCH_COMPLETE. */
static int has_level(enum op op, uint64_t level)
{
	return level != FI_MATCH_COMPLETE || is_message(op);
}

static ssize_t post_receive(struct side *s, enum op op, size_t len, void *context)
{
	return is_tagged(op) ? fi_trecv(s->ep, to, len, NULL, FI_ADDR_UNSPEC, TAG, 0, context) :
		fi_recv(s->ep, to, len, NULL, FI_ADDR_UNSPEC, context);
}

/* The next entry, which must fill the fields of its format and no byte behind them. */
static struct fi_cq_tagged_entry entry_of(struct side *s, struct side *other, int format, void *context)
{
	struct { struct fi_cq_tagged_entry entry; char more[8]; } got;
	const char *bytes = (const char *) &got;
	struct fi_cq_err_entry err;
	size_t i;
	int ret;

	memset(&got, 0xee, sizeof(got));
	ret = next(s, other, &got.entry, &err, 20);
	if (ret == 0)
		fprintf(stderr, "failed: %s, %s\n", fi_strerror(err.err),
			fi_cq_strerror(s->cq, err.prov_errno, err.err_data, NULL, 0));
	CHECK(ret == 1);
	CHECK(got.entry.op_context == context);
	for (i = entry_sizes[format]; i < sizeof(got); i++)
		CHECK(bytes[i] == (char) 0xee);
	return got.entry;
}

static void has_no_more(struct pair *p)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	int i;

	for (i = 0; i < 3; i++) {
		CHECK(next(&p->a, &p->b, &entry, &err, 0) == -1);
		CHECK(next(&p->b, &p->a, &entry, &err, 0) == -1);
	}
}

/* One operation, from A to B; `r` is B's array `to`. */
static void carry_out(struct pair *p, struct region *r, enum op op, uint64_t level, size_t len, int format)
{
	struct fi_cq_tagged_entry entry;
	uint64_t counter = 41, expected = op == SWAP ? 1 : 42;
	size_t i;

	for (i = 0; i < len; i++)
		from[i] = (char) (i * 31 + len + (size_t) op + (size_t) level);
	memset(to, 0, len);
	memset(before, 0, len);
	if (op >= ADD) {
		swapped = returned = 41;
		memcpy(to, &counter, 8);
		returned = 0;
	}
	if (op == READ)
		memcpy(to, from, len);
	if (is_message(op))
		POST(post_receive(&p->b, op, len, &contexts[2]));
	POST(post(&p->a, op, p->to_b, r, len, level, &contexts[1]));
	entry = entry_of(&p->a, &p->b, format, &contexts[1]);
	if (format > 0)
		CHECK(entry.flags == entry_flags(op));
	if (op == READ)
		CHECK(!memcmp(before, from, len));
	if (op == FETCH || op == SWAP)
		CHECK(returned == 41);
	/* A delivered write is there. */
	if (level == FI_DELIVERY_COMPLETE && (op == WRITE || op == WRITEDATA))
		CHECK(!memcmp(to, from, len));
	if (level == FI_DELIVERY_COMPLETE && op == ADD)
		CHECK(!memcmp(to, &expected, 8));
	if (is_message(op) || op == WRITEDATA) {
		uint64_t flags = is_message(op) ? (is_tagged(op) ? FI_TAGGED : FI_MSG) | FI_RECV : FI_RMA | FI_REMOTE_WRITE;

		entry = entry_of(&p->b, &p->a, format, is_message(op) ? &contexts[2] : NULL);
		if (format > 0)
			CHECK(entry.flags == (flags | (has_data(op) ? FI_REMOTE_CQ_DATA : 0)) && entry.len == len);
		if (format > 1 && has_data(op))
			CHECK(entry.data == DATA);
		if (format > 2 && is_tagged(op))
			CHECK(entry.tag == TAG);
	}
	if (op >= ADD)
		arrives(to, &expected, 8);
	else
		arrives(to, from, len);
	has_no_more(p);
}

/* How the endpoints of one run are opened. */
static struct want want_of(enum fi_ep_type type, int format, int locks)
{
	struct want want = { .type = type, .caps = FI_TAGGED | ONE_SIDED, .format = formats[format] };

	want.threading = locks ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
	if (!locks)
		want.progress = ALONE;
	return want;
}

static void every_operation(enum fi_ep_type type)
{
	int format, locks;

	for (format = 0; format < 4; format++)
		for (locks = 0; locks < 2; locks++) {
			struct want want = want_of(type, format, locks);
			struct region r;
			struct pair p;
			enum op op;
			size_t l, n;

			meet(&p, &want);
			expose(&p.b, &r, to, sizeof(to));
			for (op = SEND; op < OPS; op++)
				for (l = 0; l < ARRAY(levels); l++)
					for (n = 0; n < ARRAY(lens) && has_level(op, levels[l]); n++)
						if (op < ADD || lens[n] == 8)
							carry_out(&p, &r, op, levels[l], lens[n], format);
			hide(&r);
			part(&p);
		}
}

CASE_OURS(matrix_of_connectionless_endpoints)
{
	every_operation(FI_EP_RDM);
}

CASE_OURS(matrix_of_connected_endpoints)
{
	every_operation(FI_EP_MSG);
}

/* The address and memory key that a peer in another process needs. */
struct card {
	char name[64];
	struct region r;
};

static void write_to(int fd, const void *what, size_t len)
{
	CHECK(write(fd, what, len) == (ssize_t) len);
}

static void read_from(int fd, void *what, size_t len)
{
	CHECK(read(fd, what, len) == (ssize_t) len);
}

/* The peer process: makes progress until it is killed. */
static void serve(const struct want *want, int in, int out)
{
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	struct side s;
	struct card card = { .name = "" };
	struct fid_pep *pep;
	size_t len = sizeof(card.name);
	uint32_t number;
	int i;

	if (is_msg(want)) {
		open_domain(&s, want);
		CHECK(fi_passive_ep(s.fabric, s.info, &pep, &s) == 0);
		CHECK(fi_pep_bind(pep, &s.eq->fid, 0) == 0);
		CHECK(fi_listen(pep) == 0);
		CHECK(fi_getname(&pep->fid, card.name, &len) == 0);
		write_to(out, &card, sizeof(card));
		CHECK(event_of(&s, NULL, &number, &event, sizeof(event)) > 0 && number == FI_CONNREQ);
		open_ep(&s, event.cm.info);
		CHECK(fi_accept(s.ep, NULL, 0) == 0);
		CHECK(event_of(&s, NULL, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	} else {
		open_side(&s, want);
		memcpy(card.name, s.name, sizeof(card.name));
		write_to(out, &card, sizeof(card));
		read_from(in, &card, sizeof(card));
		insert(&s, card.name);
	}
	expose(&s, &card.r, to, sizeof(to));
	for (i = 0; i < 42; i++)
		CHECK(post_receive(&s, i % 2 ? SEND : TSEND, sizeof(to), &contexts[3]) == 0);
	write_to(out, &card, sizeof(card));
	for (;;)
		drive();
}

/* The peer is killed after this many completed operations of every kind and level. */
static void killed(enum fi_ep_type type, int format, int moment)
{
	struct want want = want_of(type, format, format % 2);
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	static char seen[OPS * ARRAY(levels) * 2];
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct fi_context2 *own;
	int there[2], back[2], posted = 0, completed = 0, i;
	struct card card;
	struct side s;
	uint32_t number;
	fi_addr_t dest = 0;
	double end;
	pid_t child;

	memset(seen, 0, sizeof(seen));
	CHECK(pipe(there) == 0 && pipe(back) == 0);
	child = fork();
	CHECK(child >= 0);
	if (!child)
		serve(&want, there[0], back[1]);
	open_side(&s, &want);
	read_from(back[0], &card, sizeof(card));
	if (is_msg(&want)) {
		CHECK(fi_connect(s.ep, card.name, NULL, 0) == 0);
		CHECK(event_of(&s, NULL, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	} else {
		dest = insert(&s, card.name);
		memcpy(card.name, s.name, sizeof(card.name));
		write_to(there[1], &card, sizeof(card));
	}
	read_from(back[0], &card, sizeof(card));
	own = calloc(ARRAY(seen), sizeof(*own));
	CHECK(own);
	/* The link is open. */
	POST(post(&s, SEND, dest, &card.r, 8, FI_DELIVERY_COMPLETE, &contexts[0]));
	CHECK(next(&s, NULL, &entry, &err, 20) == 1 && entry.op_context == &contexts[0]);
	for (i = 0; i < (int) ARRAY(seen); i++) {
		enum op op = (enum op) (i % OPS);
		uint64_t level = levels[i / OPS % (int) ARRAY(levels)];
		size_t len = op >= ADD ? 8 : lens[i % (int) ARRAY(lens)];
		ssize_t ret;

		if (!has_level(op, level))
			continue;
		end = seconds() + 30;
		while ((ret = post(&s, op, dest, &card.r, len, level, &own[i])) == -FI_EAGAIN && seconds() < end)
			drive();
		CHECK(ret == 0);
		seen[i] = 1;
		posted++;
	}
	if (moment == 0)
		CHECK(kill(child, SIGKILL) == 0);
	for (end = seconds() + 40; completed < posted && seconds() < end;) {
		int ret = next(&s, NULL, &entry, &err, 0);

		if (ret < 0)
			continue;
		i = (int) ((struct fi_context2 *) (ret == 1 ? entry.op_context : err.op_context) - own);
		CHECK(i >= 0 && i < (int) ARRAY(seen) && seen[i] == 1);
		seen[i] = 2;
		if (++completed == moment)
			CHECK(kill(child, SIGKILL) == 0);
	}
	if (completed < posted)
		fprintf(stderr, "%d of %d operations completed\n", completed, posted);
	CHECK(completed == posted);
	quiet(&s, NULL);
	CHECK(waitpid(child, NULL, 0) == child);
	for (i = 0; i < 2; i++) {
		close(there[i]);
		close(back[i]);
	}
	close_side(&s);
	free(own);
}

CASE_OURS(matrix_of_killed_peers)
{
	static const int moments[] = { 0, 1, 20, 40, 60, 80 };
	size_t i;

	for (i = 0; i < ARRAY(moments); i++) {
		killed(FI_EP_RDM, (int) i % 4, moments[i]);
		killed(FI_EP_MSG, (int) (i + 1) % 4, moments[i]);
	}
}
