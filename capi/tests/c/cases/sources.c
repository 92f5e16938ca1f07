/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Message sources: fi_cq_readfrom, unknown senders, user ids (fi_cq(3), fi_av(3)). */
#include "case.h"

CASE(cq_readfrom_source)
{
	struct want w = { .caps = FI_TAGGED | FI_SOURCE };
	struct fi_cq_tagged_entry entry;
	struct side a, b;
	fi_addr_t to_b, from = 5, known;
	char in[8];
	double end;
	ssize_t ret;
	int round;

	open_side(&a, &w);
	open_side(&b, &w);
	to_b = insert(&a, b.name);
	for (round = 0; round < 3; round++) {
		/*
		 * Twice the sender is unknown: its message does not insert it. Then it is inserted,
		 * as the first address.
		 */
		known = round == 2 ? insert(&b, a.name) : FI_ADDR_NOTAVAIL;
		CHECK(round < 2 || known == 0);
		POST(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_send(a.ep, "x", 1, NULL, to_b, &contexts[1]));
		end = seconds() + 10;
		while ((ret = fi_cq_readfrom(b.cq, &entry, 1, &from)) == -FI_EAGAIN && seconds() < end)
			fi_cq_read(a.cq, NULL, 0);
		CHECK(ret == 1 && entry.op_context == &contexts[0]);
		CHECK(from == known);
		done(&a, &b, &contexts[1]);
	}
	/* The reported address can be sent to. */
	POST(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_send(b.ep, "y", 1, NULL, from, &contexts[3]));
	done(&a, &b, &contexts[2]);
	close_side(&a);
	close_side(&b);
}

CASE(cq_readfrom_of_several)
{
	struct want w = { .caps = FI_TAGGED | FI_SOURCE };
	struct fi_cq_tagged_entry entries[4];
	struct side a[2], b;
	fi_addr_t to_b[2], known[2], from[5] = { 77, 77, 77, 77, 77 };
	volatile char in[4] = "";
	double end = seconds() + 10;
	int i;

	open_side(&b, &w);
	for (i = 0; i < 2; i++) {
		open_side(&a[i], &w);
		to_b[i] = insert(&a[i], b.name);
		known[i] = insert(&b, a[i].name);
	}
	for (i = 0; i < 4; i++) {
		POST(fi_recv(b.ep, (void *) &in[i], 1, NULL, FI_ADDR_UNSPEC, &contexts[i]));
		POST(fi_send(a[i % 2].ep, "x", 1, NULL, to_b[i % 2], &contexts[8]));
		done(&a[i % 2], &b, &contexts[8]);
		while (!in[i] && seconds() < end)
			drive();
	}
	fi_cq_read(b.cq, NULL, 0);
	/* One call returns an address for each entry. */
	CHECK(fi_cq_readfrom(b.cq, entries, 4, from) == 4);
	for (i = 0; i < 4; i++)
		CHECK(entries[i].op_context == &contexts[i] && from[i] == known[i % 2]);
	CHECK(from[4] == 77);
	for (i = 0; i < 2; i++)
		close_side(&a[i]);
	close_side(&b);
}

CASE_OURS(cq_readfrom_without_source)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;
	fi_addr_t from = 5;
	char in[8];
	double end = seconds() + 10;
	ssize_t ret;

	meet(&p, &RDM);
	CHECK(!(p.b.info->caps & FI_SOURCE));
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	while ((ret = fi_cq_readfrom(p.b.cq, &entry, 1, &from)) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(p.a.cq, NULL, 0);
	CHECK(ret == 1 && from == FI_ADDR_NOTAVAIL);
	part(&p);
}

/* Checks the error entry for a message of an unknown sender, with `room` bytes for its address. */
static void from_unknown(enum fi_ep_type type, uint32_t api, size_t room)
{
	struct want w = { .type = type, .caps = FI_SOURCE | FI_SOURCE_ERR, .api = api };
	struct fi_cq_tagged_entry entry;
	union { struct fi_cq_err_entry err; unsigned char bytes[128]; } got;
	struct fi_cq_err_entry *err = &got.err;
	uint32_t version = api ? api : API;
	int theirs = room > 0 && FI_VERSION_GE(version, FI_VERSION(1, 5));
	struct side a, b;
	fi_addr_t to_b, from, source;
	char in[8] = "", addr[128];
	double end = seconds() + 10;
	size_t fits;
	ssize_t ret;
	int i;

	open_side(&a, &w);
	open_side(&b, &w);
	to_b = insert(&a, b.name);
	POST(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(a.ep, "hello", 5, NULL, to_b, &contexts[1]));
	while ((ret = fi_cq_readfrom(b.cq, &entry, 1, &from)) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(a.cq, NULL, 0);
	CHECK(ret == -FI_EAVAIL);
	memset(&got, 0xa5, sizeof(got));
	memset(addr, 'x', sizeof(addr));
	err->err_data = addr;
	err->err_data_size = room;
	/* Calls through the table: the header's inline function fills in src_addr itself. */
	CHECK(b.cq->ops->readerr(b.cq, err, 0) == 1);
	CHECK(err->err == FI_EADDRNOTAVAIL && err->op_context == &contexts[0]);
	/* The message has arrived and is described like any other. */
	CHECK(err->len == 5 && err->flags == (FI_MSG | FI_RECV) && !memcmp(in, "hello", 5));
	fits = theirs && room < a.len ? room : a.len;
	/* Entries of API versions before 1.5 end before err_data_size, so it is unchanged. */
	CHECK(err->err_data_size == (FI_VERSION_LT(version, FI_VERSION(1, 5)) ? room : fits));
	CHECK(fits <= b.info->domain_attr->max_err_data);
	/* The address is in the caller's buffer, cut to its size, or else in the queue's memory. */
	CHECK((err->err_data == addr) == theirs);
	CHECK(!memcmp(err->err_data, a.name, fits));
	CHECK(addr[theirs ? fits : 0] == 'x');
	/* From 1.20 on, src_addr follows err_data_size: FI_ADDR_NOTAVAIL. */
	for (i = 80; i < 88; i++)
		CHECK(got.bytes[i] == (FI_VERSION_LT(version, FI_VERSION(1, 20)) ? 0xa5 : 0xff));
	if (fits == a.len) {
		from = insert(&b, err->err_data);
		done(&a, &b, &contexts[1]);
		/* From now on the sender is known. */
		POST(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[4]));
		POST(fi_send(a.ep, "z", 1, NULL, to_b, &contexts[5]));
		end = seconds() + 10;
		while ((ret = fi_cq_readfrom(b.cq, &entry, 1, &source)) == -FI_EAGAIN && seconds() < end)
			fi_cq_read(a.cq, NULL, 0);
		CHECK(ret == 1 && entry.op_context == &contexts[4] && source == from);
		done(&a, &b, &contexts[5]);
		POST(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
		POST(fi_send(b.ep, "y", 1, NULL, from, &contexts[3]));
		done(&a, &b, &contexts[2]);
	}
	close_side(&a);
	close_side(&b);
}

CASE_OURS(cq_source_err_entry)
{
	from_unknown(FI_EP_RDM, 0, 64);
	from_unknown(FI_EP_RDM, FI_VERSION(1, 20), 64);
	from_unknown(FI_EP_DGRAM, 0, 64);
}

CASE_OURS(cq_errdata_buffers)
{
	from_unknown(FI_EP_RDM, 0, 64);
	from_unknown(FI_EP_RDM, 0, 6);
	from_unknown(FI_EP_RDM, 0, 0);
	from_unknown(FI_EP_RDM, FI_VERSION(1, 4), 64);
}

CASE_OURS(cq_source_user_id)
{
	struct want w = { .caps = FI_TAGGED | FI_SOURCE | FI_AV_USER_ID | FI_DIRECTED_RECV };
	struct fi_cq_tagged_entry entry;
	struct pair p;
	fi_addr_t id = 4711, from;
	char in[8];
	double end = seconds() + 10;
	ssize_t ret;

	open_side(&p.a, &w);
	open_side(&p.b, &w);
	p.to_b = insert(&p.a, p.b.name);
	/* The array holds the id and receives the handle. */
	CHECK(fi_av_insert(p.b.av, p.a.name, 1, &id, FI_AV_USER_ID, NULL) == 1);
	CHECK(id == 0);
	/* Receives name their source by handle; their entries report it by id. */
	POST(fi_recv(p.b.ep, in, 8, NULL, id, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	while ((ret = fi_cq_readfrom(p.b.cq, &entry, 1, &from)) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(p.a.cq, NULL, 0);
	CHECK(ret == 1 && from == 4711);
	done(&p.a, &p.b, &contexts[1]);
	/* Calls still take the handle. */
	POST(fi_recv(p.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_send(p.b.ep, "y", 1, NULL, id, &contexts[3]));
	done(&p.a, &p.b, &contexts[2]);
	part(&p);
}

#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
/* The source that b's queue reports for the next message. */
static fi_addr_t sender_told_to_b(struct pair *p)
{
	struct fi_cq_tagged_entry entry;
	fi_addr_t from = 5;
	char in[8];
	double end = seconds() + 10;
	ssize_t ret;

	POST(fi_recv(p->b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p->a.ep, "x", 1, NULL, p->to_b, &contexts[1]));
	while ((ret = fi_cq_readfrom(p->b.cq, &entry, 1, &from)) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(p->a.cq, NULL, 0);
	CHECK(ret == 1);
	done(&p->a, &p->b, &contexts[1]);
	return from;
}
#endif

CASE_OURS(av_user_id_set_later)
{
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
	struct want w = { .caps = FI_TAGGED | FI_SOURCE | FI_AV_USER_ID };
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_AV_USER_ID };
	struct pair p;

	open_side(&p.a, &w);
	open_domain(&p.b, &w);
	CHECK(fi_close(&p.b.av->fid) == 0);
	CHECK(fi_av_open(p.b.domain, &attr, &p.b.av, NULL) == 0);
	open_ep(&p.b, p.b.info);
	p.to_b = insert(&p.a, p.b.name);
	p.to_a = insert(&p.b, p.a.name);
	CHECK(sender_told_to_b(&p) == FI_ADDR_NOTAVAIL);
	CHECK(fi_av_set_user_id(p.b.av, p.to_a, 4711, 0) == 0);
	CHECK(sender_told_to_b(&p) == 4711);
	part(&p);
#else
	SKIP("these headers are older");
#endif
}
