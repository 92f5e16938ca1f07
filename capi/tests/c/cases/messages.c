/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Messages: order, sizes, vectors, datagrams (fi_msg(3)). */
#include "case.h"

CASE(msg_receives_in_order)
{
	struct pair p;
	char in[4][8];
	int i;

	meet(&p, &RDM);
	for (i = 0; i < 4; i++)
		POST(fi_recv(p.b.ep, in[i], 8, NULL, FI_ADDR_UNSPEC, &contexts[i]));
	for (i = 0; i < 4; i++) {
		POST(fi_send(p.a.ep, "0123" + i, 1, NULL, p.to_b, &contexts[15]));
		done(&p.a, &p.b, &contexts[15]);
	}
	for (i = 0; i < 4; i++) {
		done(&p.b, &p.a, &contexts[i]);
		CHECK(in[i][0] == '0' + i);
	}
	part(&p);
}

/* More than any provider moves at once. */
#define LONGEST	((size_t) (20 << 20) + 3)

/* The words of a message of this number. */
static void fill(uint8_t *out, uint64_t number)
{
	uint64_t word;
	size_t i;

	for (i = 0; i + sizeof(word) <= LONGEST; i += sizeof(word)) {
		word = (i + number) * 0x9e3779b97f4a7c15;
		memcpy(out + i, &word, sizeof(word));
	}
	memset(out + i, (int) number, LONGEST - i);
}

CASE_OURS(msg_longest_arrive_whole_or_cut)
{
	static const enum fi_ep_type types[] = { FI_EP_RDM, FI_EP_MSG };
	static const size_t cuts[] = { (9 << 20) + 5, (4 << 20), 100 };
	uint8_t *out = malloc(LONGEST), *in = malloc(LONGEST);
	struct fi_cq_err_entry err;
	struct pair p;
	size_t t, i;

	CHECK(out && in);
	for (t = 0; t < ARRAY(types); t++) {
		struct want w = { .type = types[t] };

		meet(&p, &w);
		for (i = 0; i <= ARRAY(cuts); i++) {
			size_t room = i < ARRAY(cuts) ? cuts[i] : LONGEST;

			fill(out, i);
			memset(in, 0x55, LONGEST);
			POST(fi_recv(p.b.ep, in, room, NULL, FI_ADDR_UNSPEC, &contexts[0]));
			POST(fi_send(p.a.ep, out, LONGEST, NULL, p.to_b, &contexts[1]));
			if (room < LONGEST) {
				err = failed(&p.b, &p.a, FI_ETRUNC);
				CHECK(err.op_context == &contexts[0] && err.olen == LONGEST - room);
			} else {
				CHECK(done(&p.b, &p.a, &contexts[0]).len == LONGEST);
			}
			done(&p.a, &p.b, &contexts[1]);
			CHECK(!memcmp(in, out, room) && (room == LONGEST || in[room] == 0x55));
		}
		part(&p);
	}
	free(out);
	free(in);
}

CASE(msg_order_same_peer)
{
	static char big[300000], in[300000];
	struct want w = RDM;
	struct pair p;
	int i;

	/* A long message and a short one behind it: matching is in order. */
	meet(&p, &w);
	CHECK(p.a.info->tx_attr->msg_order & FI_ORDER_SAS);
	for (i = 0; i < 5; i++) {
		memset(big, 'a' + i, sizeof(big));
		POST(fi_send(p.a.ep, big, sizeof(big), NULL, p.to_b, &contexts[0]));
		POST(fi_inject(p.a.ep, "z", 1, p.to_b));
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[1]));
		CHECK(done(&p.b, &p.a, &contexts[1]).len == sizeof(big) && in[0] == 'a' + i);
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[2]));
		CHECK(done(&p.b, &p.a, &contexts[2]).len == 1 && in[0] == 'z');
		done(&p.a, &p.b, &contexts[0]);
	}
	part(&p);
}

CASE(rdm_unreachable_send_error)
{
	unsigned char absent[16] = { 2, 0, 0, 1, 127, 0, 0, 1 };
	struct side s;
	struct fi_cq_err_entry err;

	open_side(&s, &RDM);
	POST(fi_send(s.ep, "x", 1, NULL, insert(&s, absent), &contexts[0]));
	err = failed(&s, NULL, FI_ECONNREFUSED);
	CHECK(err.op_context == &contexts[0]);
	close_side(&s);
}

CASE(msg_zero_byte_calls)
{
	struct fi_msg msg = { .msg_iov = (void *) 8, .desc = (void *) 8, .context = &contexts[1] };
	struct pair p;
	int i;

	meet(&p, &RDM);
	msg.addr = p.to_b;
	for (i = 0; i < 3; i++)
		POST(fi_recv(p.b.ep, (void *) 8, 0, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, (void *) 8, 0, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	POST(fi_inject(p.a.ep, (void *) 8, 0, p.to_b));
	POST(fi_sendmsg(p.a.ep, &msg, 0));
	done(&p.a, &p.b, &contexts[1]);
	for (i = 0; i < 3; i++)
		CHECK(done(&p.b, &p.a, &contexts[0]).len == 0);
	part(&p);
}

CASE(ep_message_boundaries)
{
	static const enum fi_ep_type types[] = { FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM };
	static const size_t sizes[] = { 3, 0, 1000, 1 };
	struct pair p;
	char in[4][1200];
	size_t t, i;

	for (t = 0; t < ARRAY(types); t++) {
		struct want w = { .type = types[t] };

		meet(&p, &w);
		for (i = 0; i < 4; i++)
			POST(fi_recv(p.b.ep, in[i], sizeof(in[i]), NULL, FI_ADDR_UNSPEC, &contexts[i]));
		for (i = 0; i < 4; i++) {
			POST(fi_send(p.a.ep, in[0], sizes[i], NULL, p.to_b, &contexts[8]));
			done(&p.a, &p.b, &contexts[8]);
		}
		for (i = 0; i < 4; i++)
			CHECK(done(&p.b, &p.a, &contexts[i]).len == sizes[i]);
		part(&p);
	}
}

CASE(msg_dest_ignored_connected)
{
	struct want w = { .type = FI_EP_MSG };
	struct pair p;
	char in[8];

	meet(&p, &w);
	POST(fi_recv(p.b.ep, in, 8, NULL, 12345, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, 54321, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE(msg_more_flag)
{
	struct iovec iov = { "x", 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	struct pair p;
	char in[8];
	int i;

	meet(&p, &RDM);
	msg.addr = p.to_b;
	for (i = 0; i < 5; i++)
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	for (i = 0; i < 5; i++)
		POST(fi_sendmsg(p.a.ep, &msg, i < 4 ? FI_MORE : 0));
	for (i = 0; i < 5; i++)
		done(&p.b, &p.a, &contexts[0]);
	for (i = 0; i < 5; i++)
		done(&p.a, &p.b, &contexts[1]);
	part(&p);
}

CASE_OURS(msg_more_then_a_failing_call)
{
	static char much[8192];
	struct iovec iov = { "x", 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	msg.addr = p.to_b;
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_sendmsg(p.a.ep, &msg, FI_MORE));
	CHECK(fi_inject(p.a.ep, much, sizeof(much), p.to_b) == -FI_EMSGSIZE);
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE(msg_self_send)
{
	struct side s;
	fi_addr_t self;
	static char in[300000], out[300000];

	open_side(&s, &RDM);
	self = insert(&s, s.name);
	memset(out, 'q', sizeof(out));
	POST(fi_recv(s.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(s.ep, "me", 3, self));
	done(&s, NULL, &contexts[0]);
	CHECK(!strcmp(in, "me"));
	POST(fi_trecv(s.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
	POST(fi_tsend(s.ep, out, sizeof(out), NULL, self, 1, &contexts[0]));
	done(&s, NULL, &contexts[0]);
	done(&s, NULL, &contexts[0]);
	CHECK(in[sizeof(in) - 1] == 'q');
	close_side(&s);
}

CASE(mode_iov_reusable_after_call)
{
	char first[4] = "ab", second[4] = "cd", in[2][3];
	struct iovec iov[2] = { { first, 2 }, { second, 3 } };
	struct iovec place[2] = { { in[0], 3 }, { in[1], 3 } };
	struct pair p;

	meet(&p, &RDM);
	CHECK(p.a.info->tx_attr->iov_limit >= 2 && !(p.a.info->mode & FI_ASYNC_IOV));
	POST(fi_recvv(p.b.ep, place, NULL, 2, FI_ADDR_UNSPEC, &contexts[0]));
	memset(place, 0, sizeof(place));
	POST(fi_sendv(p.a.ep, iov, NULL, 2, p.to_b, &contexts[1]));
	memset(iov, 0, sizeof(iov));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(done(&p.b, &p.a, &contexts[0]).len == 5);
	CHECK(!memcmp(in, "abcd", 5));
	part(&p);
}

CASE(ep_iov_limits)
{
	struct iovec iov[64];
	struct pair p;
	char out[64], in[64];
	size_t i, most;

	meet(&p, &RDM);
	most = p.a.info->tx_attr->iov_limit;
	CHECK(most >= 1 && most <= 64);
	for (i = 0; i < most; i++) {
		out[i] = (char) ('a' + i);
		iov[i] = (struct iovec) { out + i, 1 };
	}
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_sendv(p.a.ep, iov, NULL, most, p.to_b, &contexts[1]));
	CHECK(done(&p.b, &p.a, &contexts[0]).len == most && !memcmp(in, out, most));
	done(&p.a, &p.b, &contexts[1]);
	/* The same for a receive vector, whose parts are in reverse order. */
	most = p.b.info->rx_attr->iov_limit;
	CHECK(most >= 1 && most <= 64);
	for (i = 0; i < most; i++) {
		out[i] = (char) ('a' + i);
		iov[i] = (struct iovec) { in + most - 1 - i, 1 };
	}
	POST(fi_recvv(p.b.ep, iov, NULL, most, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, out, most, NULL, p.to_b, &contexts[1]));
	CHECK(done(&p.b, &p.a, &contexts[0]).len == most);
	for (i = 0; i < most; i++)
		CHECK(in[most - 1 - i] == out[i]);
	part(&p);
}

CASE_OURS(ep_iov_too_many)
{
	static struct iovec iov[9];
	struct pair p;

	meet(&p, &RDM);
	CHECK(p.a.info->tx_attr->iov_limit == 8);
	CHECK(fi_sendv(p.a.ep, iov, NULL, 9, p.to_b, NULL) == -FI_EINVAL);
	CHECK(fi_recvv(p.a.ep, iov, NULL, 9, p.to_b, NULL) == -FI_EINVAL);
	CHECK(fi_sendv(p.a.ep, NULL, NULL, 2, p.to_b, NULL) == -FI_EINVAL);
	CHECK(fi_sendmsg(p.a.ep, NULL, 0) == -FI_EINVAL && fi_recvmsg(p.a.ep, NULL, 0) == -FI_EINVAL);
	CHECK(fi_tsendmsg(p.a.ep, NULL, 0) == -FI_EINVAL && fi_trecvmsg(p.a.ep, NULL, 0) == -FI_EINVAL);
	CHECK(fi_send(p.a.ep, "x", 1, NULL, 999, NULL) == -FI_EINVAL);
	CHECK(fi_send(p.a.ep, "x", 1, NULL, FI_ADDR_UNSPEC, NULL) == -FI_EINVAL);
	part(&p);
}

CASE(inject_size_is_served)
{
	static char out[1 << 17], in[1 << 17];
	struct pair p;
	size_t most;

	meet(&p, &RDM);
	most = p.a.info->tx_attr->inject_size;
	CHECK(most >= 8 && most <= sizeof(out));
	memset(out, 'i', most);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p.a.ep, out, most, p.to_b));
	memset(out, 'x', most);
	CHECK(done(&p.b, &p.a, &contexts[0]).len == most && in[0] == 'i' && in[most - 1] == 'i');
	memset(out, 't', most);
	POST(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
	POST(fi_tinject(p.a.ep, out, most, p.to_b, 1));
	memset(out, 'x', most);
	CHECK(done(&p.b, &p.a, &contexts[0]).len == most && in[0] == 't' && in[most - 1] == 't');
	part(&p);
}

CASE_OURS(inject_too_much)
{
	static char out[1 << 17];
	struct pair p;

	meet(&p, &RDM);
	CHECK(fi_inject(p.a.ep, out, p.a.info->tx_attr->inject_size + 1, p.to_b) == -FI_EMSGSIZE);
	CHECK(fi_tinject(p.a.ep, out, p.a.info->tx_attr->inject_size + 1, p.to_b, 1) == -FI_EMSGSIZE);
	part(&p);
}

CASE(max_msg_size_enforced)
{
	struct want w = { .type = FI_EP_DGRAM };
	static char out[70000], in[70000];
	struct pair p;
	size_t most;
	ssize_t ret;

	meet(&p, &w);
	most = p.a.info->ep_attr->max_msg_size;
	CHECK(most > 0 && most < sizeof(out));
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, out, most, NULL, p.to_b, &contexts[1]));
	CHECK(done(&p.b, &p.a, &contexts[0]).len == most);
	done(&p.a, &p.b, &contexts[1]);
	ret = fi_send(p.a.ep, out, most + 1, NULL, p.to_b, &contexts[1]);
	CHECK(ret < 0);
	part(&p);
}

CASE(dgram_drops_unseen)
{
	struct want w = { .type = FI_EP_DGRAM };
	unsigned char absent[16] = { 2, 0, 0, 1, 127, 0, 0, 1 };
	struct side s;

	open_side(&s, &w);
	POST(fi_send(s.ep, "x", 1, NULL, insert(&s, absent), &contexts[0]));
	done(&s, NULL, &contexts[0]);
	close_side(&s);
}

CASE(dgram_without_a_receive)
{
	struct want w = { .type = FI_EP_DGRAM };
	struct pair p;
	char in[8];
	size_t len;

	meet(&p, &w);
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[0]));
	done(&p.a, &p.b, &contexts[0]);
	quiet(&p.b, &p.a);
	/* This receive gets either the first packet or the second. */
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[1]));
	POST(fi_send(p.a.ep, "yy", 2, NULL, p.to_b, &contexts[0]));
	done(&p.a, &p.b, &contexts[0]);
	len = done(&p.b, &p.a, &contexts[1]).len;
	CHECK((len == 1 && in[0] == 'x') || (len == 2 && in[0] == 'y'));
	part(&p);
}

CASE_OURS(dgram_over_both_families)
{
	struct fi_info *hints, *info;
	struct want w = { .type = FI_EP_DGRAM };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct side s = { 0 };
	char in[40][8];
	int i;

	hints = hints_for(&w);
	hints->addr_format = FI_SOCKADDR_IN6;
	if (fi_getinfo(API, "::1", NULL, FI_SOURCE, hints, &info))
		SKIP("no IPv6");
	fi_freeinfo(hints);
	CHECK(info->addr_format == FI_SOCKADDR_IN6 && info->src_addrlen == 28);
	s.want = w;
	s.info = info;
	CHECK(fi_fabric(info->fabric_attr, &s.fabric, NULL) == 0 && fi_domain(s.fabric, info, &s.domain, NULL) == 0);
	CHECK(fi_eq_open(s.fabric, NULL, &s.eq, NULL) == 0);
	CHECK(fi_cq_open(s.domain, &cq_attr, &s.cq, NULL) == 0 && fi_av_open(s.domain, &av_attr, &s.av, NULL) == 0);
	open_ep(&s, info);
	/* Forty packets at once: they arrive in batches, each whole. */
	for (i = 0; i < 40; i++)
		POST(fi_recv(s.ep, in[i], 8, NULL, FI_ADDR_UNSPEC, in[i]));
	insert(&s, s.name);
	for (i = 0; i < 40; i++)
		POST(fi_inject(s.ep, "12345678", (size_t) i % 8 + 1, 0));
	for (i = 0; i < 40; i++)
		CHECK(done(&s, NULL, in[i]).len == (size_t) i % 8 + 1);
	REFUSED("tagged messages and remote CQ data of datagram endpoints",
		FI_ENOSYS, fi_tsend(s.ep, "x", 1, NULL, 0, 1, NULL));
	REFUSED("tagged messages and remote CQ data of datagram endpoints",
		FI_ENOSYS, fi_senddata(s.ep, "x", 1, NULL, 1, 0, NULL));
	close_side(&s);
}

CASE(caps_directed_recv_matches)
{
	struct want w = { .caps = FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE };
	struct pair p;
	struct side c;
	fi_addr_t from_a, from_c, c_to_b;
	char in[2][64];

	meet(&p, &w);
	open_side(&c, &w);
	from_a = p.to_a;
	from_c = insert(&p.b, c.name);
	c_to_b = insert(&c, p.b.name);
	POST(fi_trecv(p.b.ep, in[0], 64, NULL, from_c, 1, 0, &contexts[0]));
	POST(fi_trecv(p.b.ep, in[1], 64, NULL, from_a, 1, 0, &contexts[1]));
	POST(fi_tsend(p.a.ep, "a", 2, NULL, p.to_b, 1, &contexts[2]));
	done(&p.b, &p.a, &contexts[1]);
	POST(fi_tsend(c.ep, "c", 2, NULL, c_to_b, 1, &contexts[2]));
	done(&p.b, &c, &contexts[0]);
	CHECK(in[0][0] == 'c' && in[1][0] == 'a');
	/* Any sender. */
	POST(fi_trecv(p.b.ep, in[0], 64, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
	POST(fi_tsend(c.ep, "c", 2, NULL, c_to_b, 1, &contexts[2]));
	done(&p.b, &c, &contexts[0]);
	part(&p);
	close_side(&c);
	/* Without the capability, the address is ignored. */
	w.caps = FI_TAGGED;
	meet(&p, &w);
	POST(fi_trecv(p.b.ep, in[0], 64, NULL, 77, 1, 0, &contexts[0]));
	POST(fi_tsend(p.a.ep, "a", 2, NULL, p.to_b, 1, &contexts[2]));
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE(caps_directed_recv_of_untagged)
{
	struct want w = { .caps = FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE };
	struct pair p;
	struct side c;
	fi_addr_t from_c, c_to_b;
	char in[2][64];

	meet(&p, &w);
	open_side(&c, &w);
	from_c = insert(&p.b, c.name);
	c_to_b = insert(&c, p.b.name);
	POST(fi_recv(p.b.ep, in[0], 64, NULL, from_c, &contexts[0]));
	POST(fi_recv(p.b.ep, in[1], 64, NULL, p.to_a, &contexts[1]));
	POST(fi_send(p.a.ep, "a", 2, NULL, p.to_b, &contexts[2]));
	done(&p.b, &p.a, &contexts[1]);
	POST(fi_send(c.ep, "c", 2, NULL, c_to_b, &contexts[2]));
	done(&p.b, &c, &contexts[0]);
	CHECK(in[0][0] == 'c' && in[1][0] == 'a');
	POST(fi_recv(p.b.ep, in[0], 64, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(c.ep, "c", 2, NULL, c_to_b, &contexts[2]));
	done(&p.b, &c, &contexts[0]);
	part(&p);
	close_side(&c);
}

CASE_OURS(caps_tagged_directed_recv)
{
#ifdef FI_TAGGED_DIRECTED_RECV
	struct want w = { .caps = FI_TAGGED | FI_TAGGED_DIRECTED_RECV };
	struct pair p;
	struct side c;
	fi_addr_t from_c, c_to_b;
	char in[2][64];

	meet(&p, &w);
	open_side(&c, &w);
	from_c = insert(&p.b, c.name);
	c_to_b = insert(&c, p.b.name);
	POST(fi_trecv(p.b.ep, in[0], 64, NULL, from_c, 1, 0, &contexts[0]));
	POST(fi_trecv(p.b.ep, in[1], 64, NULL, p.to_a, 1, 0, &contexts[1]));
	POST(fi_tsend(p.a.ep, "a", 2, NULL, p.to_b, 1, &contexts[2]));
	done(&p.b, &p.a, &contexts[1]);
	POST(fi_tsend(c.ep, "c", 2, NULL, c_to_b, 1, &contexts[2]));
	done(&p.b, &c, &contexts[0]);
	/* The address of an untagged receive is ignored. */
	POST(fi_recv(p.b.ep, in[0], 64, NULL, from_c, &contexts[0]));
	POST(fi_send(p.a.ep, "a", 2, NULL, p.to_b, &contexts[2]));
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
	close_side(&c);
#else
	SKIP("these headers are older");
#endif
}

CASE_OURS(caps_fence_orders_sends)
{
	struct want w = { .caps = FI_TAGGED | FI_FENCE };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	static char big[600000], in[600000];
	struct iovec iov = { big, sizeof(big) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[0] };
	struct pair p;

	meet(&p, &w);
	msg.addr = p.to_b;
	POST(fi_sendmsg(p.a.ep, &msg, 0));
	iov.iov_len = 1;
	msg.context = &contexts[1];
	POST(fi_sendmsg(p.a.ep, &msg, FI_FENCE));
	/* The first message waits for its receive, so the fenced one does not leave. */
	CHECK(next(&p.a, &p.b, &entry, &err, 0.1) == -1);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[2]));
	done(&p.a, &p.b, &contexts[0]);
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[2]);
	part(&p);
}

CASE(ep_close_discards_pending)
{
	struct side s;
	char in[8];

	open_side(&s, &RDM);
	POST(fi_recv(s.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(fi_close(&s.ep->fid) == 0);
	s.ep = NULL;
	CHECK(fi_cq_read(s.cq, &(struct fi_cq_tagged_entry) { 0 }, 1) == -FI_EAGAIN);
	close_side(&s);
}

CASE(ep_close_gives_buffers_back)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	done(&p.a, &p.b, &contexts[1]);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	memset(in, 'i', sizeof(in));
	/* Tries only once: a library may keep refusing sends to a closed peer. */
	if (fi_send(p.a.ep, "yyyyyyyy", 8, NULL, p.to_b, &contexts[1]) == 0)
		next(&p.a, &p.b, &entry, &err, 1);
	CHECK(!memchr(in, 'y', sizeof(in)));
	part(&p);
}

CASE(mode_context_rules)
{
	struct own { int mine; struct fi_context context; } a = { 7, { { 0 } } };
	struct fi_context two[2];
	struct pair p;
	char in[8];

	CHECK(sizeof(struct fi_context) == 32 && sizeof(struct fi_context2) == 64);
	meet(&p, &RDM);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &a.context));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &two));
	done(&p.a, &p.b, &two);
	done(&p.b, &p.a, &a.context);
	CHECK(a.mine == 7);
	/* The context may be used again. */
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &a.context));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &a.context);
	part(&p);
}

CASE(remote_cq_data_size)
{
	struct fi_info *info, *i;

	CHECK(fi_getinfo(API, NULL, NULL, 0, NULL, &info) == 0);
	for (i = info; i; i = i->next)
		CHECK(i->domain_attr->cq_data_size == 0 || i->domain_attr->cq_data_size >= 4);
	fi_freeinfo(info);
}

CASE(getname_address_usable)
{
	struct pair p;
	char in[8];

	/* Names are opaque bytes. */
	meet(&p, &RDM);
	CHECK(p.a.len == p.b.len && p.a.len <= 64);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}
