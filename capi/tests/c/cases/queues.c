/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Completion queues: opening, entries, capacity, closing (fi_cq(3)). */
#include "case.h"
#include <sys/resource.h>

static int cq_attempt(struct fid_domain *domain, struct fi_cq_attr attr)
{
	struct fid_cq *cq;
	int ret = fi_cq_open(domain, &attr, &cq, NULL);

	if (!ret)
		CHECK(fi_close(&cq->fid) == 0);
	return ret;
}

CASE(cq_open_accepts_attr)
{
	struct fi_cq_attr attr = { 0 };
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_cq_open(s.domain, &attr, &cq, &s) == 0);
	CHECK(cq->fid.context == &s && cq->fid.fclass == FI_CLASS_CQ);
	CHECK(fi_close(&cq->fid) == 0);
	/* A queue keeps its domain from being closed. */
	CHECK(fi_domain(s.fabric, s.info, &domain, NULL) == 0);
	CHECK(fi_cq_open(domain, &attr, &cq, NULL) == 0);
	CHECK(fi_close(&domain->fid) == -FI_EBUSY);
	CHECK(fi_close(&cq->fid) == 0 && fi_close(&domain->fid) == 0);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .size = 1 }) == 0);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .size = 100000 }) == 0);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .flags = FI_AFFINITY, .signaling_vector = 0 }) == 0);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .signaling_vector = 12345 }) == 0);
	/* Without a wait object the wait condition is ignored. */
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .wait_cond = FI_CQ_COND_THRESHOLD }) == 0);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .wait_cond = 99 }) == 0);
	/* wait_set is ignored unless the wait object is a wait set. */
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .wait_obj = FI_WAIT_NONE, .wait_set = (void *) 1 }) == 0);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .wait_obj = FI_WAIT_UNSPEC, .wait_set = (void *) 1 }) == 0);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .wait_obj = FI_WAIT_FD, .wait_set = (void *) 1 }) == 0);
	close_side(&s);
}

CASE(cq_open_rejects_bad_attr)
{
	struct side s;

	open_domain(&s, &RDM);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .flags = 1ULL << 62 }) == -FI_EINVAL);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .format = 99 }) == -FI_EINVAL);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .wait_obj = 99 }) < 0);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .wait_obj = FI_WAIT_FD, .wait_cond = 99 }) == -FI_EINVAL);
	close_side(&s);
}

CASE_OURS(cq_open_null_arguments)
{
	struct fi_cq_attr attr = { 0 };
	struct fid_cq *cq;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_cq_open(s.domain, NULL, &cq, NULL) == -FI_EINVAL);
	CHECK(fi_cq_open(s.domain, &attr, NULL, NULL) == -FI_EINVAL);
	CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .wait_obj = 99 }) == -FI_EINVAL);
	CHECK(fi_cq_read(s.cq, NULL, 4) == -FI_EAGAIN);
	close_side(&s);
}

CASE_OURS(cq_open_flags)
{
	struct side s;
	int bit;

	open_domain(&s, &RDM);
	for (bit = 0; bit < 64; bit++) {
		struct fi_cq_attr attr = { .flags = 1ULL << bit };

		CHECK(cq_attempt(s.domain, attr) == (attr.flags == FI_AFFINITY ? 0 : -FI_EINVAL));
	}
	close_side(&s);
}

/* Sends one message from a to b; stores b's entry in the given format, and returns its size. */
static size_t written_by_format(enum fi_cq_format format, void *out)
{
	static const uint64_t untouched = 0xf1f2f3f4f5f6f7f8;
	struct fi_cq_attr attr = { .format = format };
	uint64_t words[8];
	struct want w = RDM;
	struct pair p;
	char in[8];
	double end = seconds() + 10;
	ssize_t ret;
	size_t i;

	/* The helper opens a TAGGED queue for UNSPEC, so this side opens its own. */
	open_side(&p.a, &w);
	open_domain(&p.b, &w);
	CHECK(fi_close(&p.b.cq->fid) == 0);
	CHECK(fi_cq_open(p.b.domain, &attr, &p.b.cq, NULL) == 0);
	CHECK(attr.format == format);
	open_ep(&p.b, p.b.info);
	p.to_b = insert(&p.a, p.b.name);
	POST(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 5, 0, &contexts[3]));
	POST(fi_tsenddata(p.a.ep, "12345", 5, NULL, 77, p.to_b, 5, &contexts[0]));
	for (i = 0; i < 8; i++)
		words[i] = untouched;
	do {
		fi_cq_read(p.a.cq, NULL, 0);
		ret = fi_cq_read(p.b.cq, words, 1);
	} while (ret == -FI_EAGAIN && seconds() < end);
	CHECK(ret == 1);
	memcpy(out, words, sizeof(words));
	for (i = 8; i > 0 && words[i - 1] == untouched; i--)
		;
	part(&p);
	return i * 8;
}

CASE(cq_entry_formats)
{
	static const struct { enum fi_cq_format format; size_t size; } formats[] = {
		{ FI_CQ_FORMAT_UNSPEC, 8 }, { FI_CQ_FORMAT_CONTEXT, 8 }, { FI_CQ_FORMAT_MSG, 24 },
		{ FI_CQ_FORMAT_DATA, 40 }, { FI_CQ_FORMAT_TAGGED, 48 },
	};
	static const uint64_t flags = FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA;
	struct fi_cq_tagged_entry entry;
	char words[64];
	size_t i;

	CHECK(sizeof(struct fi_cq_entry) == 8 && sizeof(struct fi_cq_msg_entry) == 24);
	CHECK(sizeof(struct fi_cq_data_entry) == 40 && sizeof(entry) == 48);
	for (i = 0; i < ARRAY(formats); i++) {
		size_t size = written_by_format(formats[i].format, words);

		CHECK(size == formats[i].size);
		memcpy(&entry, words, sizeof(entry));
		/* A field has the same meaning in every format that has it. */
		CHECK(entry.op_context == &contexts[3]);
		CHECK(size < 24 || ((entry.flags & flags) == flags && entry.len == 5));
		CHECK(size < 40 || entry.data == 77);
		CHECK(size < 48 || entry.tag == 5);
	}
}

CASE(cq_read_empty_is_eagain)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = { 0 };
	struct side s;
	double start;
	int i;

	open_side(&s, &RDM);
	start = seconds();
	/* Enough calls to expose even a short wait in each. */
	for (i = 0; i < 1000; i++) {
		CHECK(fi_cq_read(s.cq, &entry, 1) == -FI_EAGAIN);
		CHECK(fi_cq_readfrom(s.cq, &entry, 1, &(fi_addr_t) { 0 }) == -FI_EAGAIN);
		CHECK(fi_cq_readerr(s.cq, &err, 0) == -FI_EAGAIN);
	}
	CHECK(seconds() - start < 5);
	close_side(&s);
}

CASE(cq_read_zero_count)
{
	struct pair p;
	char in[8];
	int i;

	meet(&p, &RDM);
	CHECK(fi_cq_read(p.a.cq, NULL, 0) == -FI_EAGAIN);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	/* Reads of zero entries make progress and report a pending entry without consuming it. */
	for (i = 0; fi_cq_read(p.b.cq, NULL, 0) == -FI_EAGAIN; i++) {
		fi_cq_read(p.a.cq, NULL, 0);
		CHECK(i < 100000000);
	}
	CHECK(fi_cq_read(p.b.cq, NULL, 0) == 0);
	done(&p.b, &p.a, &contexts[0]);
	CHECK(fi_cq_read(p.b.cq, NULL, 0) == -FI_EAGAIN);
	part(&p);
}

CASE(cq_read_batches_in_order)
{
	struct fi_cq_tagged_entry entries[8], last;
	struct pair p;
	char in[8][8] = { 0 };
	double end = seconds() + 10;
	ssize_t i;

	meet(&p, &RDM);
	for (i = 0; i < 8; i++)
		POST(fi_recv(p.b.ep, in[i], 8, NULL, FI_ADDR_UNSPEC, &contexts[i]));
	for (i = 0; i < 8; i++) {
		POST(fi_send(p.a.ep, "abcdefgh", (size_t) i + 1, NULL, p.to_b, &contexts[8]));
		done(&p.a, &p.b, &contexts[8]);
	}
	/* Once the last message has arrived, all have. */
	while (!*(volatile char *) in[7] && seconds() < end) {
		fi_cq_read(p.a.cq, NULL, 0);
		fi_cq_read(p.b.cq, NULL, 0);
	}
	fi_cq_read(p.b.cq, NULL, 0);
	CHECK(fi_cq_read(p.b.cq, entries, 3) == 3);
	CHECK(fi_cq_read(p.b.cq, entries + 3, 3) == 3);
	CHECK(fi_cq_read(p.b.cq, entries + 6, 3) == 2);
	CHECK(fi_cq_read(p.b.cq, &last, 1) == -FI_EAGAIN);
	/* Receives from one sender complete in order: the oldest entry comes first. */
	for (i = 0; i < 8; i++)
		CHECK(entries[i].op_context == &contexts[i] && entries[i].len == (size_t) i + 1);
	part(&p);
}

CASE(cq_flags_by_operation)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	entry = done(&p.a, &p.b, &contexts[1]);
	CHECK(entry.flags == (FI_MSG | FI_SEND));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.flags == (FI_MSG | FI_RECV));
	POST(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[2]));
	POST(fi_tsend(p.a.ep, "x", 1, NULL, p.to_b, 1, &contexts[3]));
	entry = done(&p.a, &p.b, &contexts[3]);
	CHECK(entry.flags == (FI_TAGGED | FI_SEND));
	entry = done(&p.b, &p.a, &contexts[2]);
	CHECK(entry.flags == (FI_TAGGED | FI_RECV));
	part(&p);
}

CASE(cq_remote_data_entry)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;
	uint64_t most;
	size_t size;
	char in[8];

	meet(&p, &RDM);
	size = p.a.info->domain_attr->cq_data_size;
	CHECK(size >= 4);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_senddata(p.a.ep, "x", 1, NULL, 0x12345678, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.flags & FI_REMOTE_CQ_DATA && entry.data == 0x12345678);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_injectdata(p.a.ep, "x", 1, 0x87654321, p.to_b));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.flags & FI_REMOTE_CQ_DATA && entry.data == 0x87654321);
	POST(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, &contexts[0]));
	POST(fi_tinjectdata(p.a.ep, "x", 1, 7, p.to_b, 3));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.flags & FI_REMOTE_CQ_DATA && entry.data == 7);
	/* All of cq_data_size bytes are carried. */
	most = 0xfedcba9876543210 & (size >= 8 ? ~0ULL : (1ULL << 8 * size) - 1);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_senddata(p.a.ep, "x", 1, NULL, most, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.flags & FI_REMOTE_CQ_DATA && entry.data == most);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(!(entry.flags & FI_REMOTE_CQ_DATA));
	part(&p);
}

CASE(cq_tagged_entry)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	POST(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0x10, 0x0f, &contexts[0]));
	POST(fi_tsend(p.a.ep, "x", 1, NULL, p.to_b, 0x1b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.tag == 0x1b && entry.flags & FI_TAGGED);
	part(&p);
}

CASE(cq_context_returned)
{
	struct pair p;
	char in[4][8];
	int i;

	meet(&p, &RDM);
	for (i = 0; i < 4; i++)
		POST(fi_recv(p.b.ep, in[i], 8, NULL, FI_ADDR_UNSPEC, &contexts[i]));
	for (i = 0; i < 4; i++) {
		POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[4 + i]));
		done(&p.a, &p.b, &contexts[4 + i]);
		done(&p.b, &p.a, &contexts[i]);
	}
	part(&p);
}

CASE(cq_receive_length)
{
	static char out[100000], in[100000];
	static const size_t sizes[] = { 0, 1, 100, 5000, 100000 };
	struct fi_cq_tagged_entry entry;
	struct pair p;
	size_t i, k;

	meet(&p, &RDM);
	for (i = 0; i < ARRAY(sizes); i++) {
		memset(in, 0, sizeof(in));
		for (k = 0; k < sizes[i]; k++)
			out[k] = (char) (k * 7 + i);
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_send(p.a.ep, out, sizes[i], NULL, p.to_b, &contexts[1]));
		entry = done(&p.b, &p.a, &contexts[0]);
		/* The data that the entry reports is in the buffer. */
		CHECK(entry.len == sizes[i] && !memcmp(in, out, sizes[i]));
		done(&p.a, &p.b, &contexts[1]);
	}
	part(&p);
}

CASE(cq_overflow_keeps_entries)
{
	struct want w = { .caps = FI_TAGGED, .tx_size = 64, .rx_size = 512 };
	struct fi_cq_attr attr = { .size = 4, .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct fid_cq *small;
	struct side a, b;
	fi_addr_t to_b;
	static char in[256][8];
	int i, got = 0;

	open_side(&a, &w);
	open_domain(&b, &w);
	/* A queue of four entries for 256 unread messages. */
	CHECK(fi_cq_open(b.domain, &attr, &small, NULL) == 0);
	CHECK(fi_close(&b.cq->fid) == 0);
	b.cq = small;
	open_ep(&b, b.info);
	to_b = insert(&a, b.name);
	for (i = 0; i < 256; i++)
		POST(fi_trecv(b.ep, in[i], 8, NULL, FI_ADDR_UNSPEC, (uint64_t) i, 0, in[i]));
	for (i = 0; i < 256; i++) {
		POST(fi_tsend(a.ep, "x", 1, NULL, to_b, (uint64_t) i, &contexts[0]));
		done(&a, &b, &contexts[0]);
	}
	while (got < 256) {
		CHECK(next(&b, &a, &entry, &err, 10) == 1);
		CHECK(entry.op_context == in[got] && entry.tag == (uint64_t) got);
		got++;
	}
	close_side(&a);
	close_side(&b);
}

CASE(cq_has_room_for_its_size)
{
	enum { SIZE = 6000 };
	struct fi_cq_attr attr = { .size = SIZE, .format = FI_CQ_FORMAT_TAGGED };
	static struct fi_context2 places[SIZE];
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct fid_cq *large;
	struct side a, b;
	fi_addr_t to_b;
	char in[8];
	int i;

	open_side(&a, &RDM);
	open_domain(&b, &RDM);
	CHECK(fi_cq_open(b.domain, &attr, &large, NULL) == 0);
	CHECK(fi_close(&b.cq->fid) == 0);
	b.cq = large;
	open_ep(&b, b.info);
	to_b = insert(&a, b.name);
	for (i = 0; i < SIZE; i++) {
		POST(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, (uint64_t) i, 0, &places[i]));
		POST(fi_tsend(a.ep, "x", 1, NULL, to_b, (uint64_t) i, &contexts[0]));
		done(&a, &b, &contexts[0]);
	}
	for (i = 0; i < SIZE; i++) {
		CHECK(next(&b, &a, &entry, &err, 10) == 1);
		CHECK(entry.op_context == &places[i] && entry.tag == (uint64_t) i);
	}
	close_side(&a);
	close_side(&b);
}

CASE(cq_close_rules)
{
	struct pair p;
	char in[8];
	double end = seconds() + 10;

	meet(&p, &RDM);
	CHECK(fi_close(&p.b.cq->fid) == -FI_EBUSY);
	/* The queue still works. */
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	/* The sender's unread entry is freed with its queue. */
	while (fi_cq_read(p.a.cq, NULL, 0) == -FI_EAGAIN) {
		fi_cq_read(p.b.cq, NULL, 0);
		CHECK(seconds() < end);
	}
	part(&p);
}

CASE(cq_close_frees_descriptors)
{
	struct rlimit few = { 200, 200 };
	struct side s;
	int i;

	open_domain(&s, &RDM);
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	for (i = 0; i < 1000; i++)
		CHECK(cq_attempt(s.domain, (struct fi_cq_attr) { .wait_obj = FI_WAIT_FD }) == 0);
	close_side(&s);
}

CASE(cq_read_makes_progress)
{
	struct pair p;
	char in[8];

	/* With manual progress, only these reads move the message. */
	meet(&p, &RDM);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	done(&p.a, &p.b, &contexts[1]);
	part(&p);
}

CASE_OURS(cq_read_moves_only_its_endpoints)
{
	struct want w = { .caps = FI_TAGGED, .progress = FI_PROGRESS_MANUAL };
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_cq *other;
	struct pair p;
	char in[8];
	double end;

	meet(&p, &w);
	CHECK(fi_cq_open(p.b.domain, &attr, &other, NULL) == 0);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &contexts[0]);
	/*
	 * The connection is up. Reading a queue that b is not bound to does not receive the next
	 * message.
	 */
	in[0] = 0;
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(fi_inject(p.a.ep, "x", 1, p.to_b) == 0);
	for (end = seconds() + 0.1; seconds() < end;) {
		fi_cq_read(p.a.cq, NULL, 0);
		CHECK(fi_cq_read(other, NULL, 0) == -FI_EAGAIN);
	}
	CHECK(*(volatile char *) in == 0);
	done(&p.b, &p.a, &contexts[0]);
	CHECK(in[0] == 'x');
	CHECK(fi_close(&other->fid) == 0);
	part(&p);
}

CASE(post_eagain_at_limit)
{
	struct want w = { .caps = FI_TAGGED, .rx_size = 16 };
	struct side s;
	static char in[100000][1];
	ssize_t ret = 0;
	int i;

	open_side(&s, &w);
	CHECK(s.info->domain_attr->resource_mgmt == FI_RM_ENABLED);
	for (i = 0; i < 100000 && ret == 0; i++)
		ret = fi_trecv(s.ep, in[i], 1, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]);
	/* At least the requested number fits; further ones get FI_EAGAIN. */
	CHECK(i > 16);
	CHECK(ret == 0 || ret == -FI_EAGAIN);
	close_side(&s);
}

CASE_OURS(post_eagain_at_the_size)
{
	struct want w = { .caps = FI_TAGGED, .tx_size = 4, .rx_size = 4 };
	struct pair p;
	char in[8];
	int i;

	meet(&p, &w);
	for (i = 0; i < 4; i++)
		CHECK(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[i]) == 0);
	CHECK(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[i]) == -FI_EAGAIN);
	CHECK(fi_cancel(&p.b.ep->fid, &contexts[0]) == 0);
	CHECK(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[i]) == 0);
	/* Sends wait for the connection: four fit. */
	for (i = 0; i < 4; i++)
		CHECK(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[i]) == 0);
	CHECK(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[i]) == -FI_EAGAIN);
	for (i = 0; i < 4; i++)
		done(&p.a, &p.b, &contexts[i]);
	/* Refused calls queue nothing; all accepted ones complete. */
	CHECK(failed(&p.b, &p.a, FI_ECANCELED).op_context == &contexts[0]);
	for (i = 1; i < 5; i++)
		done(&p.b, &p.a, &contexts[i]);
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	/* Reading the queue makes room again. */
	CHECK(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[5]) == 0);
	CHECK(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[6]) == 0);
	done(&p.b, &p.a, &contexts[5]);
	done(&p.a, &p.b, &contexts[6]);
	part(&p);
}
