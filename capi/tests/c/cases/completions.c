/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which operations report a completion, and multi-receive buffers (fi_endpoint(3), fi_msg(3)). */
#include "case.h"

static const struct want MULTI = { .caps = FI_TAGGED | FI_MULTI_RECV };

static void post_multi(struct side *s, void *buf, size_t len, void *context)
{
	struct iovec iov = { buf, len };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = context };

	POST(fi_recvmsg(s->ep, &msg, FI_MULTI_RECV));
}

CASE(cq_multi_recv_entries)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct want w = MULTI;
	static char buf[1024];
	struct pair p;
	char in[16];
	size_t least = 256, at = 0, i;
	int released = 0, got = 0;

	/* The entry format with the buffer address but without the tag. */
	w.format = FI_CQ_FORMAT_DATA;
	meet(&p, &w);
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	post_multi(&p.b, buf, sizeof(buf), &contexts[0]);
	while (!released) {
		POST(fi_send(p.a.ep, "0123456789abcdef", 16, NULL, p.to_b, &contexts[1]));
		done(&p.a, &p.b, &contexts[1]);
		while (next(&p.b, &p.a, &entry, &err, 0.02) == 1) {
			CHECK(entry.op_context == &contexts[0]);
			if (entry.flags & FI_RECV) {
				CHECK((char *) entry.buf >= buf + at && (char *) entry.buf + 16 <= buf + sizeof(buf));
				at = (size_t) ((char *) entry.buf - buf) + 16;
				CHECK(entry.len == 16 && !memcmp(entry.buf, "0123456789abcdef", 16));
				got++;
			}
			released |= !!(entry.flags & FI_MULTI_RECV);
		}
		CHECK(got <= 256);
	}
	/* It is released once less than the minimum is free. */
	CHECK(sizeof(buf) - at < least);
	/* The program owns it again: later messages do not go there. */
	memset(buf, 0, sizeof(buf));
	POST(fi_send(p.a.ep, "0123456789abcdef", 16, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	quiet(&p.b, &p.a);
	for (i = 0; i < sizeof(buf); i++)
		CHECK(buf[i] == 0);
	/* A buffer for one message is never released this way. */
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[2]));
	CHECK(!(done(&p.b, &p.a, &contexts[2]).flags & FI_MULTI_RECV));
	part(&p);
}

CASE(ep_min_multi_recv)
{
	static char buf[256], out[100];
	struct fi_cq_tagged_entry entry;
	struct pair p;
	size_t least = 100, len = sizeof(least), found = 0;

	meet(&p, &MULTI);
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	CHECK(fi_getopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &found, &len) == 0);
	CHECK(found == 100 && len == sizeof(found));
	/* After a message 156 bytes are free, enough for a minimum of 100. */
	post_multi(&p.b, buf, sizeof(buf), &contexts[0]);
	POST(fi_send(p.a.ep, out, sizeof(out), NULL, p.to_b, &contexts[1]));
	entry = done(&p.b, &p.a, &contexts[0]);
	done(&p.a, &p.b, &contexts[1]);
	CHECK(!(entry.flags & FI_MULTI_RECV));
	quiet(&p.b, &p.a);
	POST(fi_send(p.a.ep, out, sizeof(out), NULL, p.to_b, &contexts[1]));
	entry = done(&p.b, &p.a, &contexts[0]);
	done(&p.a, &p.b, &contexts[1]);
	if (!(entry.flags & FI_MULTI_RECV))
		CHECK(done(&p.b, &p.a, &contexts[0]).flags & FI_MULTI_RECV);
	/* Too few for a buffer posted after the change. */
	least = 200;
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	post_multi(&p.b, buf, sizeof(buf), &contexts[2]);
	POST(fi_send(p.a.ep, out, sizeof(out), NULL, p.to_b, &contexts[1]));
	entry = done(&p.b, &p.a, &contexts[2]);
	if (!(entry.flags & FI_MULTI_RECV))
		CHECK(done(&p.b, &p.a, &contexts[2]).flags & FI_MULTI_RECV);
	part(&p);
}

/*
 * The manual leaves open whether a new minimum applies to buffers already posted: here it does not.
 */
CASE_OURS(ep_min_multi_recv_of_posted_buffers)
{
	static char buf[256], out[100];
	struct pair p;
	size_t least = 100;

	meet(&p, &MULTI);
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	post_multi(&p.b, buf, sizeof(buf), &contexts[0]);
	least = 200;
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	POST(fi_send(p.a.ep, out, sizeof(out), NULL, p.to_b, &contexts[1]));
	CHECK(!(done(&p.b, &p.a, &contexts[0]).flags & FI_MULTI_RECV));
	quiet(&p.b, &p.a);
	part(&p);
}

CASE_OURS(multi_recv_packs_messages)
{
	struct fi_cq_tagged_entry entry;
	static char buf[1024], big[900];
	struct pair p;
	size_t least = 64;
	int i;

	meet(&p, &MULTI);
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	/* Messages that arrived before the buffer go into it too, in order and packed. */
	for (i = 0; i < 3; i++) {
		POST(fi_send(p.a.ep, "abcdefgh", (size_t) i + 1, NULL, p.to_b, &contexts[1]));
		done(&p.a, &p.b, &contexts[1]);
	}
	quiet(&p.b, &p.a);
	post_multi(&p.b, buf, sizeof(buf), &contexts[0]);
	for (i = 0; i < 3; i++) {
		entry = done(&p.b, &p.a, &contexts[0]);
		CHECK(entry.len == (size_t) i + 1 && entry.flags == (FI_MSG | FI_RECV));
		CHECK((char *) entry.buf == buf + (i * (i + 1)) / 2);
	}
	/* A message that does not fit into the rest releases the buffer and goes into the next. */
	post_multi(&p.b, big, sizeof(big), &contexts[2]);
	POST(fi_send(p.a.ep, big, 600, NULL, p.to_b, &contexts[1]));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.len == 600 && !(entry.flags & FI_MULTI_RECV));
	done(&p.a, &p.b, &contexts[1]);
	POST(fi_send(p.a.ep, big, 800, NULL, p.to_b, &contexts[1]));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.flags == FI_MULTI_RECV);
	entry = done(&p.b, &p.a, &contexts[2]);
	CHECK(entry.len == 800 && entry.buf == big);
	done(&p.a, &p.b, &contexts[1]);
	/* A cancelled buffer is reported as cancelled and released. */
	post_multi(&p.b, buf, sizeof(buf), &contexts[3]);
	CHECK(fi_cancel(&p.b.ep->fid, &contexts[2]) == 0);
	CHECK(failed(&p.b, &p.a, FI_ECANCELED).flags & FI_MULTI_RECV);
	CHECK(fi_cancel(&p.b.ep->fid, &contexts[3]) == 0);
	CHECK(failed(&p.b, &p.a, FI_ECANCELED).op_context == &contexts[3]);
	part(&p);
}

CASE_OURS(multi_recv_large_messages)
{
	struct want w = MULTI;
	static char buf[1 << 20], big[300000];
	struct fi_cq_tagged_entry entry;
	struct pair p;
	int i;

	/* With selective completion the release is reported even if the messages are not. */
	w.bind = FI_SELECTIVE_COMPLETION;
	meet(&p, &w);
	post_multi(&p.b, buf, sizeof(buf), &contexts[0]);
	for (i = 0; i < 3; i++)
		POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	memset(big, 'z', sizeof(big));
	for (i = 0; i < 4; i++)
		POST(fi_send(p.a.ep, big, sizeof(big), NULL, p.to_b, &contexts[1]));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.flags == FI_MULTI_RECV);
	CHECK(buf[3] == 'z' && buf[3 + 2 * sizeof(big) + 5] == 'z');
	part(&p);
}

CASE_OURS(tagged_multi_recv_cap)
{
#ifdef FI_TAGGED_MULTI_RECV
	struct want w = { .caps = FI_TAGGED | FI_TAGGED_MULTI_RECV };
	struct fi_cq_tagged_entry entry;
	static char buf[64];
	struct iovec iov = { buf, sizeof(buf) };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 8, .ignore = 7, .context = &contexts[0]
	};
	struct pair p;
	size_t least = 4;
	int i;

	meet(&p, &w);
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	POST(fi_trecvmsg(p.b.ep, &msg, FI_MULTI_RECV));
	for (i = 0; i < 4; i++) {
		POST(fi_tinject(p.a.ep, "0123456789abcdef", 16, p.to_b, (uint64_t) (8 + i)));
		entry = done(&p.b, &p.a, &contexts[0]);
		CHECK(entry.tag == (uint64_t) (8 + i) && (char *) entry.buf == buf + 16 * i);
		CHECK(!!(entry.flags & FI_MULTI_RECV) == (i == 3));
	}
	part(&p);
	meet(&p, &RDM);
	CHECK(fi_trecvmsg(p.b.ep, &msg, FI_MULTI_RECV) == -FI_EBADFLAGS);
	part(&p);
	/* Among the default flags it is for untagged receives: a tagged one takes one message. */
	w = RDM;
	w.rx_flags = FI_MULTI_RECV;
	meet(&p, &w);
	POST(fi_trecv(p.b.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, 8, 7, &contexts[0]));
	POST(fi_tinject(p.a.ep, "plain", 6, p.to_b, 8));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.flags == (FI_TAGGED | FI_RECV) && !strcmp(buf, "plain"));
	part(&p);
#else
	SKIP("these headers do not know FI_TAGGED_MULTI_RECV");
#endif
}

CASE(ep_selective_completion)
{
	struct want w = RDM;
	struct iovec iov = { "x", 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	struct pair p;
	char in[8];
	int i;

	w.bind = FI_SELECTIVE_COMPLETION;
	meet(&p, &w);
	msg.addr = p.to_b;
	for (i = 0; i < 4; i++)
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	/* Neither side requests a completion. */
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	POST(fi_sendmsg(p.a.ep, &msg, 0));
	/* FI_INJECT does not change that. */
	POST(fi_sendmsg(p.a.ep, &msg, FI_INJECT));
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	POST(fi_sendmsg(p.a.ep, &msg, FI_COMPLETION));
	done(&p.a, &p.b, &contexts[1]);
	quiet(&p.b, &p.a);
	part(&p);
	/* Calls without flags use the endpoint's default flags. */
	w.tx_flags = w.rx_flags = FI_COMPLETION;
	meet(&p, &w);
	msg.addr = p.to_b;
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	POST(fi_sendmsg(p.a.ep, &msg, 0));
	quiet(&p.a, &p.b);
	done(&p.b, &p.a, &contexts[2]);
	part(&p);
}

CASE(ep_selective_receives)
{
	struct want w = { .caps = FI_TAGGED, .bind = FI_SELECTIVE_COMPLETION, .rx_flags = FI_COMPLETION };
	char in[8];
	struct iovec place = { in, 8 };
	struct fi_msg msg = { .msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[1] };
	struct fi_msg_tagged tagged = { .msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[2] };
	struct pair p;

	meet(&p, &w);
	/* The flags of the call override the default. */
	POST(fi_recvmsg(p.b.ep, &msg, 0));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	POST(fi_trecvmsg(p.b.ep, &tagged, 0));
	POST(fi_tinject(p.a.ep, "x", 1, p.to_b, 0));
	quiet(&p.b, &p.a);
	POST(fi_recvmsg(p.b.ep, &msg, FI_COMPLETION));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &contexts[1]);
	POST(fi_trecvmsg(p.b.ep, &tagged, FI_COMPLETION));
	POST(fi_tinject(p.a.ep, "x", 1, p.to_b, 0));
	done(&p.b, &p.a, &contexts[2]);
	part(&p);
}

/* A full queue of one entry does not block sends with suppressed completions. */
CASE(suppressed_completions_take_no_room)
{
	struct want w = { .caps = FI_TAGGED, .bind = FI_SELECTIVE_COMPLETION };
	struct fi_cq_attr attr = { .size = 1, .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cq_tagged_entry entry;
	struct pair p;
	char in[8];
	int i;

	open_domain(&p.a, &w);
	CHECK(fi_close(&p.a.cq->fid) == 0);
	CHECK(fi_cq_open(p.a.domain, &attr, &p.a.cq, NULL) == 0);
	open_ep(&p.a, p.a.info);
	open_side(&p.b, &RDM);
	p.to_b = insert(&p.a, p.b.name);
	for (i = 0; i < 2000; i++) {
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
		done(&p.b, &p.a, &contexts[0]);
	}
	CHECK(fi_cq_read(p.a.cq, &entry, 1) == -FI_EAGAIN);
	part(&p);
}

static ssize_t send_by(struct pair *p, int how, void *context)
{
	struct iovec iov = { "x", 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = p->to_b, .context = context };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1, .addr = p->to_b, .tag = 1, .context = context };
	struct fid_ep *ep = p->a.ep;

	switch (how) {
	case 0: return fi_send(ep, "x", 1, NULL, p->to_b, context);
	case 1: return fi_sendv(ep, &iov, NULL, 1, p->to_b, context);
	case 2: return fi_sendmsg(ep, &msg, 0);
	case 3: return fi_sendmsg(ep, &msg, FI_COMPLETION);
	case 4: return fi_sendmsg(ep, &msg, FI_INJECT);
	case 5: return fi_senddata(ep, "x", 1, NULL, 7, p->to_b, context);
	case 6: return fi_tsend(ep, "x", 1, NULL, p->to_b, 1, context);
	case 7: return fi_tsendv(ep, &iov, NULL, 1, p->to_b, 1, context);
	case 8: return fi_tsendmsg(ep, &tagged, 0);
	case 9: return fi_tsendmsg(ep, &tagged, FI_COMPLETION);
	case 10: return fi_tsendmsg(ep, &tagged, FI_INJECT);
	case 11: return fi_tsenddata(ep, "x", 1, NULL, 7, p->to_b, 1, context);
	case 12: return fi_inject(ep, "x", 1, p->to_b);
	case 13: return fi_injectdata(ep, "x", 1, 7, p->to_b);
	case 14: return fi_tinject(ep, "x", 1, p->to_b, 1);
	default: return fi_tinjectdata(ep, "x", 1, 7, p->to_b, 1);
	}
}

static ssize_t receive_by(struct pair *p, int how, int is_tagged, void *context)
{
	static char in[8];
	static struct iovec iov = { in, 8 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = context };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 1, .context = context };
	struct fid_ep *ep = p->b.ep;

	switch (2 * (how % 4) + is_tagged) {
	case 0: return fi_recv(ep, in, 8, NULL, FI_ADDR_UNSPEC, context);
	case 1: return fi_trecv(ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, context);
	case 2: return fi_recvv(ep, &iov, NULL, 1, FI_ADDR_UNSPEC, context);
	case 3: return fi_trecvv(ep, &iov, NULL, 1, FI_ADDR_UNSPEC, 1, 0, context);
	case 4: return fi_recvmsg(ep, &msg, 0);
	case 5: return fi_trecvmsg(ep, &tagged, 0);
	case 6: return fi_recvmsg(ep, &msg, FI_COMPLETION);
	default: return fi_trecvmsg(ep, &tagged, FI_COMPLETION);
	}
}

/* 16 send calls and 8 receive calls, each at least once. */
CASE(every_call_but_inject_completes)
{
	struct pair p;
	int how;

	meet(&p, &RDM);
	for (how = 0; how < 16; how++) {
		int is_tagged = (how >= 6 && how < 12) || how >= 14;

		POST(receive_by(&p, how, is_tagged, &contexts[0]));
		POST(send_by(&p, how, &contexts[1]));
		done(&p.b, &p.a, &contexts[0]);
		if (how < 12)
			CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_SEND | (is_tagged ? FI_TAGGED : FI_MSG)));
		quiet(&p.a, &p.b);
	}
	part(&p);
}

CASE(ep_nonselective_completion)
{
	struct iovec iov = { "x", 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	msg.addr = p.to_b;
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_sendmsg(p.a.ep, &msg, 0));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &contexts[2]);
	quiet(&p.a, &p.b);
	part(&p);
}

CASE(ep_inject_completion_rules)
{
	char out[8] = "before", in[8];
	struct iovec iov = { out, 7 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	struct pair p;

	meet(&p, &RDM);
	msg.addr = p.to_b;
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_sendmsg(p.a.ep, &msg, FI_INJECT));
	/* The buffer is free when the call returns; the operation completes like any other. */
	strcpy(out, "after");
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	CHECK(!strcmp(in, "before"));
	strcpy(out, "again");
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p.a.ep, out, 6, p.to_b));
	strcpy(out, "no");
	done(&p.b, &p.a, &contexts[0]);
	CHECK(!strcmp(in, "again"));
	quiet(&p.a, &p.b);
	part(&p);
}
