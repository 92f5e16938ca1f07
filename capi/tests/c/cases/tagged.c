/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tagged messages: matching, peeking, claiming, cancelling (fi_tagged(3)). */
#include "case.h"

static void to_b(struct pair *p, const char *text, uint64_t tag)
{
	POST(fi_tsend(p->a.ep, text, strlen(text) + 1, NULL, p->to_b, tag, &contexts[15]));
	done(&p->a, &p->b, &contexts[15]);
}

static void get(struct pair *p, char *in, uint64_t tag, uint64_t ignore, void *context)
{
	POST(fi_trecv(p->b.ep, in, 64, NULL, FI_ADDR_UNSPEC, tag, ignore, context));
}

/* The tag of a message, tag and ignore bits of a receive, and whether they match. */
struct rule {
	uint64_t sent, wanted, ignore;
	int fits;
};

static void check_rules(const struct rule *rules, size_t count)
{
	struct pair p;
	char in[2][64];
	size_t i;

	meet(&p, &RDM);
	for (i = 0; i < count; i++) {
		get(&p, in[0], rules[i].wanted, rules[i].ignore, &contexts[0]);
		get(&p, in[1], 0, ~0ULL, &contexts[1]);
		to_b(&p, "message", rules[i].sent);
		done(&p.b, &p.a, &contexts[rules[i].fits ? 0 : 1]);
		/* The other receive gets another message. */
		to_b(&p, "message", rules[i].wanted);
		done(&p.b, &p.a, &contexts[rules[i].fits ? 1 : 0]);
	}
	part(&p);
}

CASE(tagged_match_rule)
{
	static const struct rule rules[] = {
		{ 5, 5, 0, 1 }, { 5, 6, 0, 0 }, { 5, 4, 1, 1 }, { 0xff, 0, ~0ULL, 1 }, { 0x10, 0x30, 0x0f, 0 },
	};

	check_rules(rules, ARRAY(rules));
}

CASE(tagged_posting_order)
{
	struct pair p;
	char in[4][64];
	int i;

	meet(&p, &RDM);
	for (i = 0; i < 4; i++)
		get(&p, in[i], 7, 0, &contexts[i]);
	to_b(&p, "0", 7);
	to_b(&p, "1", 7);
	to_b(&p, "2", 7);
	to_b(&p, "3", 7);
	for (i = 0; i < 4; i++) {
		done(&p.b, &p.a, &contexts[i]);
		CHECK(in[i][0] == '0' + i);
	}
	part(&p);
}

CASE(msg_tagged_queues_separate)
{
	struct pair p;
	char in[2][64];

	meet(&p, &RDM);
	get(&p, in[0], 0, ~0ULL, &contexts[0]);
	POST(fi_recv(p.b.ep, in[1], 64, NULL, FI_ADDR_UNSPEC, &contexts[1]));
	POST(fi_send(p.a.ep, "plain", 6, NULL, p.to_b, &contexts[15]));
	done(&p.a, &p.b, &contexts[15]);
	done(&p.b, &p.a, &contexts[1]);
	to_b(&p, "tagged", 3);
	done(&p.b, &p.a, &contexts[0]);
	CHECK(!strcmp(in[0], "tagged") && !strcmp(in[1], "plain"));
	part(&p);
}

CASE(rdm_early_message_kept)
{
	struct pair p;
	char in[64];

	meet(&p, &RDM);
	to_b(&p, "early", 9);
	quiet(&p.b, &p.a);
	get(&p, in, 9, 0, &contexts[0]);
	done(&p.b, &p.a, &contexts[0]);
	CHECK(!strcmp(in, "early"));
	part(&p);
}

static int look(struct pair *p, uint64_t tag, uint64_t flags, void *context, void *buf, size_t len)
{
	struct iovec iov = { buf, len };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = buf ? 1 : 0, .addr = FI_ADDR_UNSPEC, .tag = tag, .context = context
	};

	return (int) fi_trecvmsg(p->b.ep, &msg, flags);
}

/* Peeks until the message has arrived. */
static struct fi_cq_tagged_entry found(struct pair *p, uint64_t tag, uint64_t flags, void *context)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	double end = seconds() + 10;
	int ret;

	do {
		fi_cq_read(p->a.cq, NULL, 0);
		CHECK(look(p, tag, FI_PEEK | flags, context, NULL, 0) == 0);
		ret = next(&p->b, &p->a, &entry, &err, 10);
		CHECK(ret == 1 || (ret == 0 && err.err == FI_ENOMSG && err.op_context == context));
	} while (ret != 1 && seconds() < end);
	CHECK(ret == 1 && entry.op_context == context);
	return entry;
}

CASE(tagged_peek_metadata)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;
	char in[64];

	meet(&p, &RDM);
	CHECK(look(&p, 5, FI_PEEK, &contexts[0], NULL, 0) == 0);
	CHECK(failed(&p.b, &p.a, FI_ENOMSG).op_context == &contexts[0]);
	POST(fi_tsenddata(p.a.ep, "hello", 6, NULL, 17, p.to_b, 5, &contexts[15]));
	done(&p.a, &p.b, &contexts[15]);
	entry = found(&p, 5, 0, &contexts[0]);
	CHECK(entry.len == 6 && entry.tag == 5 && entry.flags & FI_RECV && entry.flags & FI_TAGGED);
	CHECK(entry.flags & FI_REMOTE_CQ_DATA && entry.data == 17);
	/* The message is still there, and a peek never stays posted. */
	found(&p, 5, 0, &contexts[0]);
	get(&p, in, 5, 0, &contexts[1]);
	done(&p.b, &p.a, &contexts[1]);
	CHECK(!strcmp(in, "hello"));
	to_b(&p, "again", 5);
	quiet(&p.b, &p.a);
	part(&p);
}

CASE(tagged_peek_source)
{
	struct want w = { .caps = FI_TAGGED | FI_SOURCE };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	fi_addr_t from = 77;
	struct pair p;
	double end = seconds() + 10;
	ssize_t ret;

	meet(&p, &w);
	to_b(&p, "hello", 5);
	do {
		fi_cq_read(p.a.cq, NULL, 0);
		CHECK(look(&p, 5, FI_PEEK, &contexts[0], NULL, 0) == 0);
		while ((ret = fi_cq_readfrom(p.b.cq, &entry, 1, &from)) == -FI_EAGAIN && seconds() < end)
			fi_cq_read(p.a.cq, NULL, 0);
		memset(&err, 0, sizeof(err));
		if (ret == -FI_EAVAIL)
			CHECK(fi_cq_readerr(p.b.cq, &err, 0) == 1 && err.err == FI_ENOMSG);
	} while (ret != 1 && seconds() < end);
	CHECK(ret == 1 && entry.op_context == &contexts[0] && from == p.to_a);
	part(&p);
}

CASE(tagged_peek_claim)
{
	static char big[600000], in[600000];
	struct pair p;
	char small[64], other[64];

	meet(&p, &RDM);
	to_b(&p, "first", 5);
	to_b(&p, "second", 5);
	found(&p, 5, FI_CLAIM, &contexts[0]);
	/* No other receive matches the claimed message. */
	get(&p, other, 5, 0, &contexts[1]);
	done(&p.b, &p.a, &contexts[1]);
	CHECK(!strcmp(other, "second"));
	CHECK(look(&p, 5, FI_CLAIM, &contexts[0], small, sizeof(small)) == 0);
	CHECK(done(&p.b, &p.a, &contexts[0]).len == 6);
	CHECK(!strcmp(small, "first"));
	/* The same with a rendezvous message, which waits at its sender. */
	memset(big, 'b', sizeof(big));
	POST(fi_tsend(p.a.ep, big, sizeof(big), NULL, p.to_b, 6, &contexts[2]));
	CHECK(found(&p, 6, FI_CLAIM, &contexts[0]).len == sizeof(big));
	CHECK(look(&p, 6, FI_CLAIM, &contexts[0], in, sizeof(in)) == 0);
	CHECK(done(&p.b, &p.a, &contexts[0]).len == sizeof(big));
	CHECK(in[0] == 'b' && in[sizeof(in) - 1] == 'b');
	done(&p.a, &p.b, &contexts[2]);
	/* Two claims: each context identifies its own message. */
	to_b(&p, "one", 8);
	to_b(&p, "two", 8);
	found(&p, 8, FI_CLAIM, &contexts[0]);
	found(&p, 8, FI_CLAIM, &contexts[1]);
	CHECK(look(&p, 8, FI_CLAIM, &contexts[1], small, sizeof(small)) == 0);
	CHECK(look(&p, 8, FI_CLAIM, &contexts[0], other, sizeof(other)) == 0);
	done(&p.b, &p.a, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	CHECK(!strcmp(small, "two") && !strcmp(other, "one"));
	part(&p);
}

CASE(tagged_discard_drops)
{
	struct pair p;

	meet(&p, &RDM);
	to_b(&p, "one", 5);
	to_b(&p, "two", 5);
	found(&p, 5, FI_CLAIM, &contexts[0]);
	CHECK(look(&p, 5, FI_CLAIM | FI_DISCARD, &contexts[0], NULL, 0) == 0);
	done(&p.b, &p.a, &contexts[0]);
	found(&p, 5, FI_DISCARD, &contexts[1]);
	CHECK(look(&p, 5, FI_PEEK, &contexts[0], NULL, 0) == 0);
	failed(&p.b, &p.a, FI_ENOMSG);
	part(&p);
}

CASE_OURS(tagged_claim_rules)
{
	static char big[600000];
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	CHECK(look(&p, 5, FI_CLAIM, &contexts[0], in, 8) == -FI_EINVAL);
	CHECK(look(&p, 5, FI_DISCARD, &contexts[0], in, 8) == -FI_EINVAL);
	/* When a message is discarded, the buffer is ignored and not touched. */
	to_b(&p, "rubbish", 4);
	memset(in, 'i', sizeof(in));
	found(&p, 4, FI_CLAIM, &contexts[0]);
	CHECK(look(&p, 4, FI_CLAIM | FI_DISCARD, &contexts[0], in, sizeof(in)) == 0);
	done(&p.b, &p.a, &contexts[0]);
	CHECK(in[0] == 'i');
	to_b(&p, "rubbish", 4);
	quiet(&p.b, &p.a);
	CHECK(look(&p, 4, FI_PEEK | FI_DISCARD, &contexts[0], (void *) 8, 64) == 0);
	done(&p.b, &p.a, &contexts[0]);
	/* A rendezvous message is discarded at its sender. */
	POST(fi_tsend(p.a.ep, big, sizeof(big), NULL, p.to_b, 6, &contexts[2]));
	CHECK(found(&p, 6, FI_DISCARD, &contexts[0]).len == sizeof(big));
	done(&p.a, &p.b, &contexts[2]);
	/*
	 * A claimed message whose sender closes before all of it has arrived completes once, with
	 * an error.
	 */
	POST(fi_tsend(p.a.ep, big, sizeof(big), NULL, p.to_b, 7, &contexts[2]));
	found(&p, 7, FI_CLAIM, &contexts[1]);
	CHECK(fi_close(&p.a.ep->fid) == 0);
	p.a.ep = NULL;
	quiet(&p.b, NULL);
	CHECK(look(&p, 7, FI_CLAIM, &contexts[1], big, sizeof(big)) == 0);
	failed(&p.b, NULL, FI_ECONNRESET);
	part(&p);
}

CASE(cancel_pending_receive)
{
	struct fi_cq_err_entry err;
	struct pair p;
	char in[64];

	meet(&p, &RDM);
	/* Two receives with one context. */
	get(&p, in, 1, 0, &contexts[0]);
	get(&p, in, 1, 0, &contexts[0]);
	CHECK(fi_cancel(&p.b.ep->fid, &contexts[0]) == 0);
	err = failed(&p.b, &p.a, FI_ECANCELED);
	CHECK(err.op_context == &contexts[0]);
	/* Only one is canceled; the other stays posted. */
	quiet(&p.b, &p.a);
	to_b(&p, "x", 1);
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE_OURS(cancel_of_nothing)
{
	struct side s;

	open_side(&s, &RDM);
	CHECK(fi_cancel(&s.ep->fid, &contexts[0]) == 0);
	quiet(&s, NULL);
	close_side(&s);
}

CASE(tag_format_rules)
{
	struct want w = RDM;
	struct fi_info *hints = hints_for(&w), *info;
	struct pair p;
	char in[64];
	uint64_t top;
	int bit;

	hints->ep_attr->mem_tag_format = 0xff;
	CHECK(fi_getinfo(API, "127.0.0.1", NULL, FI_SOURCE, hints, &info) == 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	meet(&p, &w);
	top = p.a.info->ep_attr->mem_tag_format;
	CHECK(top != 0);
	top = 1ULL << (63 - __builtin_clzll(top));
	get(&p, in, top, 0, &contexts[0]);
	to_b(&p, "top", top);
	CHECK(done(&p.b, &p.a, &contexts[0]).tag == top);
	for (bit = 0; 1ULL << bit < top; bit++) {
		/* The tags differ only in this bit. */
		get(&p, in, 0, 0, &contexts[1]);
		get(&p, in, 1ULL << bit, 0, &contexts[2]);
		to_b(&p, "bit", 1ULL << bit);
		CHECK(done(&p.b, &p.a, &contexts[2]).tag == 1ULL << bit);
		to_b(&p, "none", 0);
		done(&p.b, &p.a, &contexts[1]);
	}
	part(&p);
}

CASE_OURS(tag_formats_match_by_field)
{
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	const struct rule rules[] = {
		{ fi_tag_mpi(7, 3), fi_tag_mpi(7, 3), 0, 1 }, { fi_tag_mpi(7, 3), fi_tag_mpi(-9, 3), FI_MPI_IGNORE_TAG, 1 },
		{ fi_tag_mpi(7, 3), fi_tag_mpi(7, 200), FI_MPI_IGNORE_PAYLOAD, 1 }, { fi_tag_mpi(7, 3), fi_tag_mpi(7, 4), FI_MPI_IGNORE_TAG, 0 },
		{ fi_tag_mpi(7, 3), fi_tag_mpi(9, 3), FI_MPI_IGNORE_PAYLOAD, 0 }, { 200, 200, 0, 1 }, { 200, 201, 0, 0 },
	};
	static const uint64_t formats[] = { FI_TAG_MPI, FI_TAG_CCL };
	struct fi_info *hints = hints_for(&RDM), *info;
	size_t i;

	for (i = 0; i < ARRAY(formats); i++) {
		hints->ep_attr->mem_tag_format = formats[i];
		CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == 0);
		fi_freeinfo(info);
	}
	fi_freeinfo(hints);
	check_rules(rules, ARRAY(rules));
#else
	SKIP("these headers are older");
#endif
}
