/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Completion levels, guarantees of a fence, and the flags that select them (fi_cq(3),
 * fi_endpoint(3)).
 */
#include "case.h"
#include <signal.h>
#include <sys/wait.h>

/* An eager message in one frame, one in several, and a rendezvous message. */
static const size_t SIZES[] = { 10, 100000, 600000 };
/* Endpoint types with levels above FI_TRANSMIT_COMPLETE. */
static const enum fi_ep_type RELIABLE[] = { FI_EP_RDM, FI_EP_MSG };

static char out[600000], in[600001];

static void send_at_level(struct pair *p, size_t len, uint64_t level, void *context)
{
	struct iovec iov = { out, len };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = p->to_b, .context = context };

	POST(fi_sendmsg(p->a.ep, &msg, level));
}

CASE(cq_completion_levels)
{
	static const uint64_t levels[] = { 0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE };
	struct want dgram = { .type = FI_EP_DGRAM };
	struct pair p;
	size_t i;

	meet(&p, &RDM);
	for (i = 0; i < ARRAY(levels); i++) {
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
		send_at_level(&p, i % 2 ? 600000 : 10, levels[i], &contexts[1]);
		done(&p.a, &p.b, &contexts[1]);
		done(&p.b, &p.a, &contexts[0]);
	}
	part(&p);
	/* Datagrams complete when the fabric has them: the sender is no longer needed. */
	meet(&p, &dgram);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	send_at_level(&p, 10, FI_TRANSMIT_COMPLETE, &contexts[1]);
	done(&p.a, NULL, &contexts[1]);
	CHECK(fi_close(&p.a.ep->fid) == 0);
	p.a.ep = NULL;
	done(&p.b, NULL, &contexts[0]);
	part(&p);
}

/* A connection that has carried a message, with both sides idle. */
static void meet_and_greet(struct pair *p, const struct want *w)
{
	meet(p, w);
	POST(fi_recv(p->b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p->a.ep, "x", 1, p->to_b));
	done(&p->b, &p->a, &contexts[0]);
	quiet(&p->a, &p->b);
}

/*
 * A completion at FI_TRANSMIT_COMPLETE means that the peer endpoint has the message, so a closed
 * peer makes it fail.
 */
CASE_OURS(cq_transmit_complete_is_at_the_peer)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;
	size_t t, i, by_default;

	for (t = 0; t < ARRAY(RELIABLE); t++) {
		for (i = 0; i < ARRAY(SIZES); i++) {
			for (by_default = 0; by_default < 2; by_default++) {
				struct want w = { .type = RELIABLE[t], .tx_flags = by_default ? FI_TRANSMIT_COMPLETE : 0 };

				meet_and_greet(&p, &w);
				/* b closes, and a sends before it notices. */
				CHECK(fi_close(&p.b.ep->fid) == 0);
				p.b.ep = NULL;
				if (by_default)
					POST(fi_send(p.a.ep, out, SIZES[i], NULL, p.to_b, &contexts[1]));
				else
					send_at_level(&p, SIZES[i], FI_TRANSMIT_COMPLETE, &contexts[1]);
				CHECK(next(&p.a, NULL, &entry, &err, 15) == 0);
				CHECK(err.op_context == &contexts[1] && err.flags & FI_SEND);
				part(&p);
			}
		}
	}
}

/* With manual progress, the peer endpoint receives nothing until its program makes calls. */
CASE_OURS(cq_transmit_complete_waits_for_the_peer)
{
	struct pair p;
	size_t t;
	int i;

	for (t = 0; t < ARRAY(RELIABLE); t++) {
		struct want w = { .type = RELIABLE[t], .progress = FI_PROGRESS_MANUAL };

		meet_and_greet(&p, &w);
		/*
		 * A send without a level completes without the peer: its level is
		 * FI_INJECT_COMPLETE.
		 */
		POST(fi_send(p.a.ep, out, 10, NULL, p.to_b, &contexts[1]));
		done(&p.a, NULL, &contexts[1]);
		send_at_level(&p, 10, 0, &contexts[1]);
		done(&p.a, NULL, &contexts[1]);
		send_at_level(&p, 10, FI_TRANSMIT_COMPLETE, &contexts[2]);
		quiet(&p.a, NULL);
		/* It does not need a receive. */
		done(&p.a, &p.b, &contexts[2]);
		for (i = 0; i < 3; i++) {
			POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
			CHECK(done(&p.b, &p.a, &contexts[0]).len == 10);
		}
		part(&p);
	}
}

/* After FI_TRANSMIT_COMPLETE the sender is no longer needed: it may be killed. */
static void outlives_its_sender(size_t len)
{
	struct pair p;
	int names[2], words[2];
	char word;
	pid_t child;

	CHECK(pipe(names) == 0 && pipe(words) == 0);
	memset(out, 'o', len);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		/* Ends the child even if the parent dies. */
		alarm(30);
		open_side(&p.a, &RDM);
		CHECK(read(names[0], p.b.name, sizeof(p.b.name)) == (ssize_t) sizeof(p.b.name));
		p.to_b = insert(&p.a, p.b.name);
		send_at_level(&p, len, FI_TRANSMIT_COMPLETE, &contexts[1]);
		done(&p.a, NULL, &contexts[1]);
		CHECK(write(words[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	close(words[1]);
	open_side(&p.b, &RDM);
	CHECK(write(names[1], p.b.name, sizeof(p.b.name)) == (ssize_t) sizeof(p.b.name));
	memset(in, 0, sizeof(in));
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	while (poll(&(struct pollfd) { words[0], POLLIN, 0 }, 1, 0) == 0)
		fi_cq_read(p.b.cq, NULL, 0);
	CHECK(read(words[0], &word, 1) == 1);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	CHECK(done(&p.b, NULL, &contexts[0]).len == len);
	CHECK(in[0] == 'o' && in[len - 1] == 'o');
	close_side(&p.b);
	close(words[0]);
	close(names[0]);
	close(names[1]);
}

CASE_OURS(cq_transmit_complete_outlives_the_sender)
{
	size_t i;

	for (i = 0; i < ARRAY(SIZES); i++)
		outlives_its_sender(SIZES[i]);
}

CASE_OURS(cq_levels_of_datagrams)
{
	struct want dgram = { .type = FI_EP_DGRAM };
	struct fi_info *hints, *info;
	struct fi_msg msg = { .context = &contexts[0] };
	struct pair p;

	meet(&p, &dgram);
	msg.addr = p.to_b;
	CHECK(!(p.a.info->tx_attr->op_flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)));
	CHECK(fi_sendmsg(p.a.ep, &msg, FI_DELIVERY_COMPLETE) == -FI_EBADFLAGS);
	CHECK(fi_sendmsg(p.a.ep, &msg, FI_MATCH_COMPLETE) == -FI_EBADFLAGS);
	part(&p);
	dgram.tx_flags = FI_DELIVERY_COMPLETE;
	hints = hints_for(&dgram);
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
	dgram.tx_flags = FI_MATCH_COMPLETE;
	hints = hints_for(&dgram);
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
}

CASE(cq_delivery_complete_level)
{
	struct pair p;
	size_t i;

	meet(&p, &RDM);
	for (i = 0; i < ARRAY(SIZES); i++) {
		memset(in, 'x', sizeof(in));
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
		send_at_level(&p, SIZES[i], FI_DELIVERY_COMPLETE, &contexts[1]);
		done(&p.a, &p.b, &contexts[1]);
		/*
		 * The message is in the buffer, even if the receive's completion has not been read.
		 */
		CHECK(in[0] == 0 && in[SIZES[i] / 2] == 0 && in[SIZES[i] - 1] == 0 && in[SIZES[i]] == 'x');
		done(&p.b, &p.a, &contexts[0]);
	}
	part(&p);
}

/* With manual progress, the target processes nothing until it makes calls. */
CASE(cq_delivery_complete_waits_for_the_target)
{
	struct want w = { .caps = FI_TAGGED, .progress = FI_PROGRESS_MANUAL };
	struct pair p;

	meet_and_greet(&p, &w);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	send_at_level(&p, 10, FI_DELIVERY_COMPLETE, &contexts[1]);
	quiet(&p.a, NULL);
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE_OURS(cq_delivery_without_a_receive)
{
	struct pair p;
	size_t i;

	/*
	 * The destination keeps an unexpected message, in one frame or several: that is delivery.
	 */
	meet(&p, &RDM);
	for (i = 0; i < 2; i++) {
		memset(out, 'd', SIZES[i]);
		send_at_level(&p, SIZES[i], FI_DELIVERY_COMPLETE, &contexts[1]);
		done(&p.a, &p.b, &contexts[1]);
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
		CHECK(done(&p.b, &p.a, &contexts[0]).len == SIZES[i]);
		CHECK(in[0] == 'd' && in[SIZES[i] - 1] == 'd');
	}
	part(&p);
}

CASE_OURS(cq_match_complete_level)
{
	struct fi_msg_tagged look = { .addr = FI_ADDR_UNSPEC, .tag = 2, .context = &contexts[2] };
	struct pair p;
	size_t t, i;

	for (t = 0; t < ARRAY(RELIABLE); t++) {
		struct want w = { .type = RELIABLE[t], .caps = FI_TAGGED, .tx_flags = FI_MATCH_COMPLETE };

		meet(&p, &w);
		for (i = 0; i < ARRAY(SIZES); i++) {
			/* The send waits for its receive. */
			POST(fi_tsend(p.a.ep, out, SIZES[i], NULL, p.to_b, 1, &contexts[1]));
			quiet(&p.a, &p.b);
			POST(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
			done(&p.a, &p.b, &contexts[1]);
			done(&p.b, &p.a, &contexts[0]);
			/* A discarded message counts as matched. */
			POST(fi_tsend(p.a.ep, out, SIZES[i], NULL, p.to_b, 2, &contexts[1]));
			quiet(&p.a, &p.b);
			POST(fi_trecvmsg(p.b.ep, &look, FI_PEEK | FI_DISCARD));
			done(&p.b, &p.a, &contexts[2]);
			done(&p.a, &p.b, &contexts[1]);
		}
		for (i = 0; i < ARRAY(SIZES); i++) {
			/* The receive is posted first. */
			POST(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
			POST(fi_tsend(p.a.ep, out, SIZES[i], NULL, p.to_b, 1, &contexts[1]));
			done(&p.a, &p.b, &contexts[1]);
			done(&p.b, &p.a, &contexts[0]);
		}
		part(&p);
	}
}

/*
 * Each level includes the weaker ones, and at every level the receiver's completion means that the
 * message has arrived.
 */
CASE_OURS(cq_levels_include_weaker_ones)
{
	static const uint64_t levels[] = {
		FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE
	};
	struct pair p;
	size_t t, l, i, at;

	for (t = 0; t < ARRAY(RELIABLE); t++) {
		struct want w = { .type = RELIABLE[t] };

		meet(&p, &w);
		for (l = 0; l < ARRAY(levels); l++) {
			for (i = 0; i < ARRAY(SIZES); i++) {
				memset(out, 'a', SIZES[i]);
				memset(in, 0, SIZES[i]);
				POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
				send_at_level(&p, SIZES[i], levels[l], &contexts[1]);
				done(&p.a, &p.b, &contexts[1]);
				/* From FI_DELIVERY_COMPLETE up, it is in the receive buffer. */
				for (at = 0; l >= 2 && at < SIZES[i]; at++)
					CHECK(in[at] == 'a');
				/* From FI_INJECT_COMPLETE up, the source buffer may be reused. */
				memset(out, 'b', SIZES[i]);
				CHECK(done(&p.b, &p.a, &contexts[0]).len == SIZES[i]);
				for (at = 0; at < SIZES[i]; at++)
					CHECK(in[at] == 'a');
			}
		}
		part(&p);
	}
}

CASE(cq_inject_complete_reuse)
{
	struct want w = RDM;
	const size_t len = 200000;
	struct pair p;
	size_t i;

	w.tx_flags = FI_INJECT_COMPLETE;
	meet(&p, &w);
	CHECK(len > p.a.info->tx_attr->inject_size);
	memset(out, 'a', len);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	send_at_level(&p, len, FI_INJECT_COMPLETE, &contexts[1]);
	done(&p.a, &p.b, &contexts[1]);
	memset(out, 'b', len);
	done(&p.b, &p.a, &contexts[0]);
	for (i = 0; i < len; i++)
		CHECK(in[i] == 'a');
	/* An inject call still reports no success. */
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &contexts[0]);
	quiet(&p.a, &p.b);
	part(&p);
}

CASE_OURS(cq_fence_level)
{
	struct want w = { .caps = FI_TAGGED | FI_FENCE };
	char small[16];
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;

	meet(&p, &w);
	/* A rendezvous message that waits for its receive, and a fenced one behind it. */
	send_at_level(&p, 600000, FI_DELIVERY_COMPLETE, &contexts[0]);
	send_at_level(&p, 10, FI_FENCE | FI_DELIVERY_COMPLETE, &contexts[1]);
	send_at_level(&p, 10, 0, &contexts[2]);
	CHECK(next(&p.a, &p.b, &entry, &err, 0.05) == -1);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[3]));
	POST(fi_recv(p.b.ep, small, 16, NULL, FI_ADDR_UNSPEC, &contexts[4]));
	done(&p.a, &p.b, &contexts[0]);
	/* The fenced one completes after all earlier ones; the next one leaves only then. */
	CHECK(next(&p.a, &p.b, &entry, &err, 10) == 1);
	CHECK(entry.op_context == &contexts[1] || entry.op_context == &contexts[2]);
	CHECK(next(&p.a, &p.b, &entry, &err, 10) == 1);
	done(&p.b, &p.a, &contexts[3]);
	done(&p.b, &p.a, &contexts[4]);
	part(&p);
}

/* The level of a fenced operation covers all earlier sends to that peer. */
CASE_OURS(cq_fence_level_covers_earlier_sends)
{
	static const uint64_t earlier[] = { 0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE };
	/* Short enough to leave without a receive over any provider. */
	static const size_t sizes[] = { 10, 30000 };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;
	size_t t, i, k;

	for (t = 0; t < ARRAY(RELIABLE); t++) {
		struct want w = { .type = RELIABLE[t], .caps = FI_TAGGED | FI_FENCE };

		meet(&p, &w);
		/* Once at each level and once by inject; short and long. */
		for (i = 0; i < 2 * (ARRAY(earlier) + 1); i++) {
			struct iovec iov = { out, sizes[i % 2] };
			struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .addr = p.to_b };

			/*
			 * The first message has no receive yet; its own completion has its own
			 * level.
			 */
			msg.tag = 1;
			msg.context = &contexts[0];
			if (i / 2 < ARRAY(earlier)) {
				POST(fi_tsendmsg(p.a.ep, &msg, earlier[i / 2]));
				done(&p.a, &p.b, &contexts[0]);
			} else {
				POST(fi_tinject(p.a.ep, "x", 1, p.to_b, 1));
			}
			/*
			 * The fenced one has its receive, but completes only when the first is
			 * matched too.
			 */
			POST(fi_trecv(p.b.ep, in, 300000, NULL, FI_ADDR_UNSPEC, 2, 0, &contexts[3]));
			msg.tag = 2;
			msg.context = &contexts[1];
			POST(fi_tsendmsg(p.a.ep, &msg, FI_FENCE | FI_MATCH_COMPLETE));
			quiet(&p.a, &p.b);
			POST(fi_trecv(p.b.ep, in + 300000, 300000, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[2]));
			done(&p.a, &p.b, &contexts[1]);
			/* Both have arrived, in either order. */
			for (k = 0; k < 2; k++)
				CHECK(next(&p.b, &p.a, &entry, &err, 10) == 1);
		}
		part(&p);
	}
}

CASE_OURS(ep_default_level_stays)
{
	struct want w = RDM;
	struct pair p;

	w.tx_flags = FI_DELIVERY_COMPLETE;
	meet(&p, &w);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	memset(out, 0, sizeof(out));
	memset(in, 'x', sizeof(in));
	/* A msg call without a level. */
	send_at_level(&p, SIZES[1], 0, &contexts[1]);
	done(&p.a, &p.b, &contexts[1]);
	CHECK(in[0] == 0 && in[SIZES[1] - 1] == 0 && in[SIZES[1]] == 'x');
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE(ep_default_op_flags)
{
	struct want w = RDM;
	struct pair p;
	uint64_t flags = FI_TRANSMIT;

	w.tx_flags = FI_DELIVERY_COMPLETE;
	meet(&p, &w);
	CHECK(p.a.info->tx_attr->op_flags == FI_DELIVERY_COMPLETE);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	memset(in, 'x', 16);
	POST(fi_send(p.a.ep, "12345", 5, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(!memcmp(in, "12345", 5));
	if (fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags) == 0)
		CHECK(flags == FI_DELIVERY_COMPLETE);
	part(&p);
}
