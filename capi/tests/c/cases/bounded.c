/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Completion queues that their size bounds (FI_OFI_CQ_BOUNDED), and overruns (fi_cq(3)). */
#include "later.h"

/* Two sides; the second's queue holds `size` entries. */
static void open_bounded(struct pair *p, size_t size, enum fi_wait_obj wait)
{
	struct want w = { .caps = FI_TAGGED, .tx_size = 64, .rx_size = 512 };
	struct fi_cq_attr attr = { .size = size, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait };

	open_side(&p->a, &w);
	CHECK(setenv("FI_OFI_CQ_BOUNDED", "yes", 1) == 0);
	open_domain(&p->b, &w);
	CHECK(fi_close(&p->b.cq->fid) == 0);
	CHECK(fi_cq_open(p->b.domain, &attr, &p->b.cq, NULL) == 0);
	CHECK(unsetenv("FI_OFI_CQ_BOUNDED") == 0);
	open_ep(&p->b, p->b.info);
	p->to_b = insert(&p->a, p->b.name);
}

static char in[64][8];

static void send_some(struct pair *p, int first, int count)
{
	struct fi_cq_tagged_entry entry;
	double end = seconds() + 10;
	int i, delivered = 0;

	for (i = first; i < first + count; i++) {
		POST(fi_trecv(p->b.ep, in[i], 8, NULL, FI_ADDR_UNSPEC, (uint64_t) i, 0, in[i]));
		in[i][0] = 0;
	}
	for (i = first; i < first + count; i++) {
		struct iovec iov = { "x", 1 };
		struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .addr = p->to_b, .tag = (uint64_t) i };

		POST(fi_tsendmsg(p->a.ep, &msg, FI_DELIVERY_COMPLETE));
	}
	while (delivered < count && seconds() < end) {
		delivered += fi_cq_read(p->a.cq, &entry, 1) == 1;
		fi_cq_read(p->b.cq, NULL, 0);
	}
	/* An overrun concerns the queue, not the messages. */
	CHECK(delivered == count);
	for (i = first; i < first + count; i++)
		CHECK(in[i][0] == 'x');
}

static void is_overrun(struct fid_cq *cq)
{
	struct fi_cq_err_entry err = { 0 };
	struct fi_cq_tagged_entry entry;
	char text[256];
	fi_addr_t from;

	CHECK(fi_cq_read(cq, &entry, 1) == -FI_EAVAIL);
	CHECK(fi_cq_readfrom(cq, &entry, 1, &from) == -FI_EAVAIL);
	CHECK(fi_cq_readerr(cq, &err, 0) == 1);
	CHECK(err.err == FI_EOVERRUN && err.prov_errno && !err.op_context && !err.flags);
	CHECK(strlen(fi_cq_strerror(cq, err.prov_errno, err.err_data, text, sizeof(text))) > 10);
}

CASE_OURS(cq_bounded_holds_its_size)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;
	int round, i;

	open_bounded(&p, 16, FI_WAIT_NONE);
	for (round = 0; round < 3; round++) {
		send_some(&p, 0, 16);
		for (i = 0; i < 16; i++)
			CHECK(fi_cq_read(p.b.cq, &entry, 1) == 1 && entry.op_context == in[i]);
		CHECK(fi_cq_read(p.b.cq, &entry, 1) == -FI_EAGAIN);
	}
	part(&p);
}

CASE_OURS(cq_bounded_overrun)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;
	int i;

	open_bounded(&p, 16, FI_WAIT_NONE);
	send_some(&p, 0, 17);
	/* The entries before the overrun are intact. */
	for (i = 0; i < 8; i++)
		CHECK(fi_cq_read(p.b.cq, &entry, 1) == 1 && entry.op_context == in[i] && entry.tag == (uint64_t) i);
	/* There is room again, but the queue reports nothing more. */
	send_some(&p, 20, 4);
	for (; i < 16; i++)
		CHECK(fi_cq_read(p.b.cq, &entry, 1) == 1 && entry.op_context == in[i] && entry.tag == (uint64_t) i);
	is_overrun(p.b.cq);
	send_some(&p, 30, 4);
	is_overrun(p.b.cq);
	is_overrun(p.b.cq);
	part(&p);
}

/* An overrun wakes and ends all waits: nothing else will come. */
CASE_OURS(cq_bounded_overrun_ends_waits)
{
	struct fi_cq_tagged_entry entry;
	struct fid *fids[1];
	struct pollfd file = { .events = POLLIN };
	struct pair p;
	int i;

	open_bounded(&p, 4, FI_WAIT_FD);
	fids[0] = &p.b.cq->fid;
	CHECK(fi_control(&p.b.cq->fid, FI_GETWAIT, &file.fd) == 0);
	send_some(&p, 0, 5);
	for (i = 0; i < 4; i++)
		CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, -1) == 1 && entry.op_context == in[i]);
	CHECK(fi_trywait(p.b.fabric, fids, 1) == -FI_EAGAIN);
	CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, -1) == -FI_EAVAIL);
	is_overrun(p.b.cq);
	CHECK(fi_trywait(p.b.fabric, fids, 1) == -FI_EAGAIN);
	CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, -1) == -FI_EAVAIL);
	part(&p);
}

/* Closing everything works, although operations are left that the queue cannot report. */
CASE_OURS(cq_bounded_overrun_can_be_closed)
{
	struct pair p;

	open_bounded(&p, 1, FI_WAIT_NONE);
	send_some(&p, 0, 3);
	POST(fi_trecv(p.b.ep, in[4], 8, NULL, FI_ADDR_UNSPEC, 4, 0, in[4]));
	CHECK(fi_cancel(&p.b.ep->fid, in[4]) == 0);
	part(&p);
}
