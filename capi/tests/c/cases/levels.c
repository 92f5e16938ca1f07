/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Completions: levels, selection, sources, buffers of several messages (fi_cq(3), fi_endpoint(3)). */
#include "case.h"

static void send_at_level(struct pair *p, size_t len, uint64_t level, void *context)
{
	static char out[600000];
	struct iovec iov = { out, len };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = p->to_b, .context = context };

	POST(fi_sendmsg(p->a.ep, &msg, level));
}

CASE(cq_completion_levels)
{
	static const uint64_t levels[] = { 0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE };
	struct want dgram = { .type = FI_EP_DGRAM };
	static char in[600000];
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
	/* Datagrams complete when the fabric has them, whoever gets them. */
	meet(&p, &dgram);
	send_at_level(&p, 10, FI_TRANSMIT_COMPLETE, &contexts[1]);
	done(&p.a, NULL, &contexts[1]);
	part(&p);
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
}

CASE(cq_delivery_complete_level)
{
	struct pair p;
	char in[16];

	meet(&p, &RDM);
	POST(fi_recv(p.b.ep, in, 16, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	memset(in, 'x', sizeof(in));
	send_at_level(&p, 10, FI_DELIVERY_COMPLETE, &contexts[1]);
	done(&p.a, &p.b, &contexts[1]);
	/* It is in the buffer, whether or not that has been read from the queue. */
	CHECK(in[0] == 0 && in[9] == 0 && in[10] == 'x');
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE_OURS(cq_delivery_without_a_receive)
{
	struct pair p;
	char in[16];

	/* The destination keeps a small message: that is delivery. */
	meet(&p, &RDM);
	send_at_level(&p, 10, FI_DELIVERY_COMPLETE, &contexts[1]);
	done(&p.a, &p.b, &contexts[1]);
	POST(fi_recv(p.b.ep, in, 16, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE_OURS(cq_match_complete_level)
{
	struct want w = RDM;
	struct pair p;
	char in[16];

	w.tx_flags = FI_MATCH_COMPLETE;
	meet(&p, &w);
	POST(fi_tsend(p.a.ep, "x", 1, NULL, p.to_b, 1, &contexts[1]));
	quiet(&p.a, &p.b);
	POST(fi_trecv(p.b.ep, in, 16, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE(cq_inject_complete_reuse)
{
	static char out[200000], in[200000];
	struct want w = RDM;
	struct iovec iov = { out, sizeof(out) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	struct pair p;
	size_t i;

	w.tx_flags = FI_INJECT_COMPLETE;
	meet(&p, &w);
	msg.addr = p.to_b;
	CHECK(sizeof(out) > p.a.info->tx_attr->inject_size);
	memset(out, 'a', sizeof(out));
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_sendmsg(p.a.ep, &msg, FI_INJECT_COMPLETE));
	done(&p.a, &p.b, &contexts[1]);
	memset(out, 'b', sizeof(out));
	done(&p.b, &p.a, &contexts[0]);
	for (i = 0; i < sizeof(in); i++)
		CHECK(in[i] == 'a');
	/* A call that never reports success does not begin to. */
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &contexts[0]);
	quiet(&p.a, &p.b);
	part(&p);
}

CASE_OURS(cq_fence_level)
{
	struct want w = { .caps = FI_TAGGED | FI_FENCE };
	static char in[600000], small[16];
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;

	meet(&p, &w);
	/* A message that waits for its receive at the sender, and a fenced one behind it. */
	send_at_level(&p, 600000, FI_DELIVERY_COMPLETE, &contexts[0]);
	send_at_level(&p, 10, FI_FENCE | FI_DELIVERY_COMPLETE, &contexts[1]);
	send_at_level(&p, 10, 0, &contexts[2]);
	CHECK(next(&p.a, &p.b, &entry, &err, 0.05) == -1);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[3]));
	POST(fi_recv(p.b.ep, small, 16, NULL, FI_ADDR_UNSPEC, &contexts[4]));
	done(&p.a, &p.b, &contexts[0]);
	/* The fenced one certifies all that came before it; the next leaves only then. */
	CHECK(next(&p.a, &p.b, &entry, &err, 10) == 1);
	CHECK(entry.op_context == &contexts[1] || entry.op_context == &contexts[2]);
	CHECK(next(&p.a, &p.b, &entry, &err, 10) == 1);
	done(&p.b, &p.a, &contexts[3]);
	done(&p.b, &p.a, &contexts[4]);
	part(&p);
}

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
	for (round = 0; round < 2; round++) {
		/* First the sender is unknown and stays so; then it is inserted. */
		known = round ? insert(&b, a.name) : FI_ADDR_NOTAVAIL;
		POST(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_send(a.ep, "x", 1, NULL, to_b, &contexts[1]));
		end = seconds() + 10;
		while ((ret = fi_cq_readfrom(b.cq, &entry, 1, &from)) == -FI_EAGAIN && seconds() < end)
			fi_cq_read(a.cq, NULL, 0);
		CHECK(ret == 1 && entry.op_context == &contexts[0]);
		CHECK(from == known);
		done(&a, &b, &contexts[1]);
	}
	/* What it says can be sent to. */
	POST(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_send(b.ep, "y", 1, NULL, from, &contexts[3]));
	done(&a, &b, &contexts[2]);
	close_side(&a);
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

/* An error entry for a message of an unknown sender, with room of so many bytes for its address. */
static void from_unknown(enum fi_ep_type type, uint32_t api, size_t room)
{
	struct want w = { .type = type, .caps = FI_SOURCE | FI_SOURCE_ERR, .api = api };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = { 0 };
	uint32_t version = api ? api : API;
	struct side a, b;
	fi_addr_t to_b, from;
	char in[8] = "", addr[64];
	double end = seconds() + 10;
	ssize_t ret;

	open_side(&a, &w);
	open_side(&b, &w);
	to_b = insert(&a, b.name);
	POST(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(a.ep, "hello", 5, NULL, to_b, &contexts[1]));
	while ((ret = fi_cq_readfrom(b.cq, &entry, 1, &from)) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(a.cq, NULL, 0);
	CHECK(ret == -FI_EAVAIL);
	err.err_data = addr;
	err.err_data_size = room;
	CHECK(fi_cq_readerr(b.cq, &err, 0) == 1);
	CHECK(err.err == FI_EADDRNOTAVAIL && err.op_context == &contexts[0]);
	/* The message is there and described like any other. */
	CHECK(err.len == 5 && err.flags == (FI_MSG | FI_RECV) && !memcmp(in, "hello", 5));
	if (api && FI_VERSION_LT(api, FI_VERSION(1, 5))) {
		/* Entries of that time end before err_data_size: it is as it was, and the data is the queue's. */
		CHECK(err.err_data_size == room && err.err_data != addr);
		err.err_data_size = a.len;
	}
	CHECK(err.err_data_size == a.len || (room && room < a.len && err.err_data_size == room));
	CHECK((err.err_data == addr) == (room > 0 && FI_VERSION_GE(version, FI_VERSION(1, 5))));
	if (err.err_data_size == a.len) {
		CHECK(!memcmp(err.err_data, a.name, a.len));
		from = insert(&b, err.err_data);
		done(&a, &b, &contexts[1]);
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
	struct want w = { .caps = FI_TAGGED | FI_SOURCE | FI_AV_USER_ID };
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
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	while ((ret = fi_cq_readfrom(p.b.cq, &entry, 1, &from)) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(p.a.cq, NULL, 0);
	CHECK(ret == 1 && from == 4711);
	done(&p.a, &p.b, &contexts[1]);
	/* Calls take the handle as ever. */
	POST(fi_recv(p.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_send(p.b.ep, "y", 1, NULL, id, &contexts[3]));
	done(&p.a, &p.b, &contexts[2]);
	part(&p);
}

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
	static char buf[4096];
	struct pair p;
	size_t least = 256, at = 0;
	int released = 0, got = 0;

	meet(&p, &MULTI);
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
	/* It is given back once less than the minimum is free. */
	CHECK(sizeof(buf) - at < least);
	part(&p);
}

CASE(ep_min_multi_recv)
{
	struct pair p;
	size_t least = 100, len = sizeof(least), found = 0;

	meet(&p, &MULTI);
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	CHECK(fi_getopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &found, &len) == 0);
	CHECK(found == 100 && len == sizeof(found));
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
	/* Messages that came before the buffer go into it too, in order, one behind the other. */
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
	/* One that does not fit behind them ends the buffer and goes into the next. */
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
	/* A buffer that is cancelled is reported as such, and as released. */
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
	for (i = 0; i < 3; i++)
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	/* Neither side asks for it. */
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	POST(fi_sendmsg(p.a.ep, &msg, 0));
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	POST(fi_sendmsg(p.a.ep, &msg, FI_COMPLETION));
	done(&p.a, &p.b, &contexts[1]);
	quiet(&p.b, &p.a);
	part(&p);
	/* The default of calls without flags is that of the endpoint. */
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

CASE(ep_default_op_flags)
{
	struct want w = RDM;
	struct pair p;
	char in[16];
	uint64_t flags = FI_TRANSMIT;

	w.tx_flags = FI_DELIVERY_COMPLETE;
	meet(&p, &w);
	CHECK(p.a.info->tx_attr->op_flags == FI_DELIVERY_COMPLETE);
	POST(fi_recv(p.b.ep, in, 16, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	memset(in, 'x', sizeof(in));
	POST(fi_send(p.a.ep, "12345", 5, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(!memcmp(in, "12345", 5));
	if (fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags) == 0)
		CHECK(flags == FI_DELIVERY_COMPLETE);
	part(&p);
}
