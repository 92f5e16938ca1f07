/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Errors of completion queues: when they are reported, and the contents of their entries
 * (fi_cq(3)).
 */
#include "case.h"

/* The receive buffer of truncate_one. */
static volatile char cut[4];

/* A 10-byte message for a 4-byte receive: an error at b. */
static void truncate_one(struct pair *p, void *context)
{
	cut[0] = 0;
	POST(fi_trecv(p->b.ep, (void *) cut, 4, NULL, FI_ADDR_UNSPEC, 9, 0, context));
	POST(fi_tsenddata(p->a.ep, "1234567890", 10, NULL, 42, p->to_b, 9, &contexts[15]));
	done(&p->a, &p->b, &contexts[15]);
}

CASE(cq_error_blocks_reads)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = { 0 };
	struct pair p;
	char in[8];
	double end = seconds() + 10;
	ssize_t ret;

	meet(&p, &RDM);
	truncate_one(&p, &contexts[0]);
	while ((ret = fi_cq_read(p.b.cq, &entry, 1)) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(p.a.cq, NULL, 0);
	CHECK(ret == -FI_EAVAIL);
	CHECK(fi_cq_read(p.b.cq, &entry, 1) == -FI_EAVAIL);
	CHECK(fi_cq_readfrom(p.b.cq, &entry, 1, &(fi_addr_t) { 0 }) == -FI_EAVAIL);
	CHECK(fi_cq_readerr(p.b.cq, &err, 0) == 1);
	CHECK(err.err == FI_ETRUNC && err.op_context == &contexts[0]);
	CHECK(fi_cq_readerr(p.b.cq, &err, 0) == -FI_EAGAIN);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[1]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[2]));
	done(&p.b, &p.a, &contexts[1]);
	part(&p);
}

CASE(cq_good_entries_before_error)
{
	struct fi_cq_tagged_entry entries[4];
	struct fi_cq_err_entry err;
	struct pair p;
	char in[2][8];
	double end = seconds() + 10;
	ssize_t ret, got = 0;

	meet(&p, &RDM);
	POST(fi_recv(p.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_recv(p.b.ep, in[1], 8, NULL, FI_ADDR_UNSPEC, &contexts[1]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[2]));
	done(&p.a, &p.b, &contexts[2]);
	POST(fi_send(p.a.ep, "y", 1, NULL, p.to_b, &contexts[2]));
	done(&p.a, &p.b, &contexts[2]);
	truncate_one(&p, &contexts[3]);
	while (!cut[0] && seconds() < end) {
		fi_cq_read(p.a.cq, NULL, 0);
		fi_cq_read(p.b.cq, NULL, 0);
	}
	fi_cq_read(p.b.cq, NULL, 0);
	/* The error is in the queue, but it is not the oldest entry. */
	memset(&err, 0, sizeof(err));
	CHECK(fi_cq_readerr(p.b.cq, &err, 0) == -FI_EAGAIN);
	while (got < 2 && seconds() < end) {
		ret = fi_cq_read(p.b.cq, entries + got, 4 - (size_t) got);
		CHECK(ret > 0 || ret == -FI_EAGAIN);
		got += ret > 0 ? ret : 0;
	}
	CHECK(got == 2 && entries[0].op_context == &contexts[0] && entries[1].op_context == &contexts[1]);
	err = failed(&p.b, &p.a, FI_ETRUNC);
	CHECK(err.op_context == &contexts[3]);
	part(&p);
}

CASE(cq_truncated_receive)
{
	struct fi_cq_err_entry err;
	struct pair p;

	meet(&p, &RDM);
	truncate_one(&p, &contexts[0]);
	err = failed(&p.b, &p.a, FI_ETRUNC);
	CHECK(err.olen == 6 && err.op_context == &contexts[0] && err.flags & FI_RECV && err.tag == 9);
	/* The link and the endpoint still work. */
	truncate_one(&p, &contexts[1]);
	err = failed(&p.b, &p.a, FI_ETRUNC);
	CHECK(err.op_context == &contexts[1]);
	part(&p);
}

CASE_OURS(cq_truncated_receive_entry_is_complete)
{
	struct fi_cq_err_entry err;
	struct pair p;

	/* MPI reads the source rank of a truncated message from its data. */
	meet(&p, &RDM);
	truncate_one(&p, &contexts[0]);
	err = failed(&p.b, &p.a, FI_ETRUNC);
	CHECK(err.len == 4 && err.data == 42 && err.tag == 9);
	CHECK(err.flags == (FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA));
	part(&p);
}

/* The next error, read into an entry filled with one bits. */
static struct fi_cq_err_entry failed_whole(struct side *s, struct side *other, int number)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	double end = seconds() + 15;
	ssize_t ret;

	while ((ret = fi_cq_read(s->cq, &entry, 1)) == -FI_EAGAIN && seconds() < end)
		if (other)
			fi_cq_read(other->cq, NULL, 0);
	CHECK(ret == -FI_EAVAIL);
	memset(&err, 0xff, sizeof(err));
	err.err_data_size = 0;
	CHECK(fi_cq_readerr(s->cq, &err, 0) == 1);
	CHECK(err.err == number);
	/* There is no error data. */
	CHECK(err.err_data == NULL && err.err_data_size == 0);
	return err;
}

/* Fields unknown to the library are written too. */
CASE(cq_error_fields_unknown)
{
	struct want w = RDM;
	struct fi_cq_err_entry err;
	struct pair p;
	char in[8];

	/* Neither receive requests a completion. */
	w.bind = FI_SELECTIVE_COMPLETION;
	meet(&p, &w);
	POST(fi_recv(p.b.ep, in, 1, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "long", 4, NULL, p.to_b, &contexts[1]));
	err = failed_whole(&p.b, &p.a, FI_ETRUNC);
	CHECK(err.op_context == &contexts[0] && err.flags == (FI_MSG | FI_RECV));
	CHECK(err.len == 1 && err.olen == 3 && err.tag == 0 && err.data == 0 && err.buf == NULL);
	POST(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[2]));
	CHECK(fi_cancel(&p.b.ep->fid, &contexts[2]) == 0);
	err = failed_whole(&p.b, NULL, FI_ECANCELED);
	CHECK(err.op_context == &contexts[2] && err.flags == (FI_TAGGED | FI_RECV));
	CHECK(err.len == 0 && err.olen == 0 && err.data == 0 && err.buf == NULL);
	part(&p);
}

CASE(cq_error_without_completion)
{
	struct want w = RDM;
	struct fi_cq_err_entry err;
	struct pair p;
	struct sockaddr_in { uint16_t family, port; uint32_t ip; char zero[8]; } absent = { 2, 0x0100, 0x0100007f, "" };
	fi_addr_t to_absent;
	struct fi_msg msg = { .iov_count = 0, .context = &contexts[5] };

	w.bind = FI_SELECTIVE_COMPLETION;
	meet(&p, &w);
	/* Port 1 of this host has no listener. */
	to_absent = insert(&p.a, &absent);
	msg.addr = to_absent;
	POST(fi_sendmsg(p.a.ep, &msg, 0));
	err = failed_whole(&p.a, &p.b, FI_ECONNREFUSED);
	CHECK(err.op_context == &contexts[5] && err.flags & FI_SEND);
	CHECK(err.len == 0 && err.olen == 0 && err.buf == NULL && err.tag == 0 && err.data == 0);
	/* An inject call has no context: op_context is NULL. */
	POST(fi_inject(p.a.ep, "x", 1, to_absent));
	err = failed_whole(&p.a, &p.b, FI_ECONNREFUSED);
	CHECK(err.op_context == NULL);
	POST(fi_tinject(p.a.ep, "x", 1, to_absent, 3));
	err = failed_whole(&p.a, &p.b, FI_ECONNREFUSED);
	CHECK(err.op_context == NULL && err.flags & FI_TAGGED);
	part(&p);
}

CASE(cq_strerror_text)
{
	struct fi_cq_err_entry err;
	struct pair p;
	char text[200] = "", whole[200] = "", other[200] = "", few[5], in[8];
	const char *said;

	meet(&p, &RDM);
	truncate_one(&p, &contexts[0]);
	err = failed(&p.b, &p.a, FI_ETRUNC);
	said = fi_cq_strerror(p.b.cq, err.prov_errno, err.err_data, NULL, 0);
	CHECK(said && strlen(said) > 3);
	snprintf(whole, sizeof(whole), "%s", said);
	CHECK(fi_cq_strerror(p.b.cq, err.prov_errno, err.err_data, text, sizeof(text)) != NULL);
	CHECK(!strcmp(text, whole));
	memset(few, 'x', sizeof(few));
	CHECK(fi_cq_strerror(p.b.cq, err.prov_errno, err.err_data, few, 4) != NULL);
	CHECK(few[4] == 'x' && !strncmp(few, text, 3));
	/* The text belongs to this prov_errno: another number has another text, and so has 0. */
	POST(fi_recv(p.b.ep, in, 1, NULL, FI_ADDR_UNSPEC, &contexts[1]));
	CHECK(fi_cancel(&p.b.ep->fid, &contexts[1]) == 0);
	err = failed(&p.b, &p.a, FI_ECANCELED);
	fi_cq_strerror(p.b.cq, err.prov_errno, err.err_data, other, sizeof(other));
	CHECK(strcmp(other, text));
	fi_cq_strerror(p.b.cq, 0, NULL, other, sizeof(other));
	CHECK(strcmp(other, text));
	part(&p);
}

/* Number of bytes written to an error entry for this API version. */
static size_t error_size(uint32_t api)
{
	struct want w = RDM;
	union { struct fi_cq_err_entry err; unsigned char bytes[128]; } got, before;
	struct fi_cq_tagged_entry entry;
	struct pair p;
	char room[64];
	double end = seconds() + 10;
	ssize_t ret;
	size_t i;

	w.api = api;
	meet(&p, &w);
	truncate_one(&p, &contexts[0]);
	while ((ret = fi_cq_read(p.b.cq, &entry, 1)) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(p.a.cq, NULL, 0);
	CHECK(ret == -FI_EAVAIL);
	memset(before.bytes, 0xa5, sizeof(before));
	before.err.err_data = room;
	/* Entries of API versions before 1.5 end before err_data_size. */
	if (FI_VERSION_GE(api, FI_VERSION(1, 5)))
		before.err.err_data_size = sizeof(room);
	got = before;
	/*
	 * Calls through the table: the header's inline function fills in the newest field itself.
	 */
	CHECK(p.b.cq->ops->readerr(p.b.cq, &got.err, 0) == 1);
	CHECK(got.err.err == FI_ETRUNC && got.err.olen == 6);
	/* Every field before err_data is written. */
	for (i = 0; i < 64; i += 8)
		CHECK(memcmp(got.bytes + i, before.bytes + i, 8));
	for (i = sizeof(got); i > 0 && got.bytes[i - 1] == before.bytes[i - 1]; i--)
		;
	part(&p);
	return (i + 7) / 8 * 8;
}

CASE_OURS(cq_err_entry_by_version)
{
	/* err_data_size came with 1.5, src_addr with 1.20. */
	CHECK(error_size(FI_VERSION(1, 4)) == 72);
	CHECK(error_size(FI_VERSION(1, 5)) == 80);
	CHECK(error_size(FI_VERSION(1, 19)) == 80);
	CHECK(error_size(FI_VERSION(1, 20)) == 88);
}
