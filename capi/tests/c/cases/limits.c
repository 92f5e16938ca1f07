/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Size limits that an application lowers with fi_setopt (fi_endpoint(3)): each applies only to its
 * kind of calls.
 */
#include "sided.h"
#include <rdma/fi_atomic.h>

#if !FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
/* Older headers lack these. */
enum {
	FI_OPT_MAX_MSG_SIZE = 12,
	FI_OPT_MAX_TAGGED_SIZE = 13,
	FI_OPT_MAX_RMA_SIZE = 14,
	FI_OPT_MAX_ATOMIC_SIZE = 15,
	FI_OPT_INJECT_MSG_SIZE = 16,
	FI_OPT_INJECT_TAGGED_SIZE = 17,
	FI_OPT_INJECT_RMA_SIZE = 18,
	FI_OPT_INJECT_ATOMIC_SIZE = 19,
};
#endif

static int set_size(struct side *s, int option, size_t size)
{
	return fi_setopt(&s->ep->fid, FI_OPT_ENDPOINT, option, &size, sizeof(size));
}

static size_t size_of(struct side *s, int option)
{
	size_t size = 0, len = sizeof(size);

	CHECK(fi_getopt(&s->ep->fid, FI_OPT_ENDPOINT, option, &size, &len) == 0 && len == sizeof(size));
	return size;
}

/* Exchanges a message, so that the link is up and short messages leave immediately. */
static void warm_up(struct pair *p)
{
	static char in[8];

	POST(fi_trecv(p->b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
	POST(fi_tsend(p->a.ep, "x", 1, NULL, p->to_b, 1, &contexts[1]));
	done(&p->a, &p->b, &contexts[1]);
	done(&p->b, &p->a, &contexts[0]);
}

static void is_delivered(struct pair *p, ssize_t sent, size_t len, int injected)
{
	CHECK(sent == 0);
	if (!injected)
		done(&p->a, &p->b, &contexts[1]);
	CHECK(done(&p->b, &p->a, &contexts[0]).len == len);
}

static const struct want *kinds_of_endpoint(int i)
{
	static const struct want kinds[] = { { .caps = FI_TAGGED }, { .caps = FI_TAGGED, .type = FI_EP_MSG } };

	return i < 2 ? &kinds[i] : NULL;
}

/* Messages and tagged messages, each with its own limit, through every send call. */
CASE_OURS(ep_max_size_options_bind_sends)
{
	static char out[4096], in[4096];
	struct iovec iov = { out, 101 };
	int i;

	for (i = 0; kinds_of_endpoint(i); i++) {
		struct pair p;
		struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
		struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1], .tag = 1 };

		meet(&p, kinds_of_endpoint(i));
		warm_up(&p);
		msg.addr = tagged.addr = p.to_b;
		CHECK(size_of(&p.a, FI_OPT_MAX_MSG_SIZE) == p.a.info->ep_attr->max_msg_size);
		CHECK(set_size(&p.a, FI_OPT_MAX_MSG_SIZE, 100) == 0);
		CHECK(size_of(&p.a, FI_OPT_MAX_MSG_SIZE) == 100);
		CHECK(fi_send(p.a.ep, out, 101, NULL, p.to_b, &contexts[1]) == -FI_EMSGSIZE);
		CHECK(fi_sendv(p.a.ep, &iov, NULL, 1, p.to_b, &contexts[1]) == -FI_EMSGSIZE);
		CHECK(fi_sendmsg(p.a.ep, &msg, 0) == -FI_EMSGSIZE);
		CHECK(fi_senddata(p.a.ep, out, 101, NULL, 7, p.to_b, &contexts[1]) == -FI_EMSGSIZE);
		CHECK(fi_inject(p.a.ep, out, 101, p.to_b) == -FI_EMSGSIZE);
		CHECK(fi_injectdata(p.a.ep, out, 101, 7, p.to_b) == -FI_EMSGSIZE);
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
		is_delivered(&p, fi_send(p.a.ep, out, 100, NULL, p.to_b, &contexts[1]), 100, 0);
		/* Tagged messages have their own limit. */
		POST(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
		is_delivered(&p, fi_tsend(p.a.ep, out, 101, NULL, p.to_b, 1, &contexts[1]), 101, 0);
		CHECK(set_size(&p.a, FI_OPT_MAX_TAGGED_SIZE, 50) == 0);
		iov.iov_len = 51;
		CHECK(fi_tsend(p.a.ep, out, 51, NULL, p.to_b, 1, &contexts[1]) == -FI_EMSGSIZE);
		CHECK(fi_tsendv(p.a.ep, &iov, NULL, 1, p.to_b, 1, &contexts[1]) == -FI_EMSGSIZE);
		CHECK(fi_tsendmsg(p.a.ep, &tagged, 0) == -FI_EMSGSIZE);
		CHECK(fi_tsenddata(p.a.ep, out, 51, NULL, 7, p.to_b, 1, &contexts[1]) == -FI_EMSGSIZE);
		CHECK(fi_tinject(p.a.ep, out, 51, p.to_b, 1) == -FI_EMSGSIZE);
		CHECK(fi_tinjectdata(p.a.ep, out, 51, 7, p.to_b, 1) == -FI_EMSGSIZE);
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
		is_delivered(&p, fi_send(p.a.ep, out, 51, NULL, p.to_b, &contexts[1]), 51, 0);
		iov.iov_len = 101;
		/* Raises it back to the endpoint's maximum. */
		CHECK(set_size(&p.a, FI_OPT_MAX_MSG_SIZE, p.a.info->ep_attr->max_msg_size) == 0);
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
		is_delivered(&p, fi_send(p.a.ep, out, 4096, NULL, p.to_b, &contexts[1]), 4096, 0);
		part(&p);
	}
}

CASE_OURS(ep_inject_size_options_bind_injects)
{
	static char out[4096], in[4096];
	struct iovec iov = { out, 9 };
	int i;

	for (i = 0; kinds_of_endpoint(i); i++) {
		struct pair p;
		struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };

		meet(&p, kinds_of_endpoint(i));
		warm_up(&p);
		msg.addr = p.to_b;
		CHECK(size_of(&p.a, FI_OPT_INJECT_MSG_SIZE) == p.a.info->tx_attr->inject_size);
		CHECK(set_size(&p.a, FI_OPT_INJECT_MSG_SIZE, 8) == 0);
		CHECK(fi_inject(p.a.ep, out, 9, p.to_b) == -FI_EMSGSIZE);
		CHECK(fi_sendmsg(p.a.ep, &msg, FI_INJECT) == -FI_EMSGSIZE);
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
		is_delivered(&p, fi_inject(p.a.ep, out, 8, p.to_b), 8, 1);
		POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
		is_delivered(&p, fi_send(p.a.ep, out, 9, NULL, p.to_b, &contexts[1]), 9, 0);
		POST(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
		is_delivered(&p, fi_tinject(p.a.ep, out, 9, p.to_b, 1), 9, 1);
		CHECK(set_size(&p.a, FI_OPT_INJECT_TAGGED_SIZE, 0) == 0);
		CHECK(fi_tinject(p.a.ep, out, 1, p.to_b, 1) == -FI_EMSGSIZE);
		POST(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
		is_delivered(&p, fi_tinject(p.a.ep, NULL, 0, p.to_b, 1), 0, 1);
		part(&p);
	}
}

/* Limits that the application set in the info are the maxima of the endpoint. */
CASE_OURS(ep_size_options_stay_below_the_info)
{
	struct side s;
	struct fid_ep *ep;

	open_domain(&s, &RDM);
	s.info->ep_attr->max_msg_size = 1000;
	s.info->tx_attr->inject_size = 64;
	open_ep(&s, s.info);
	CHECK(size_of(&s, FI_OPT_MAX_MSG_SIZE) == 1000 && size_of(&s, FI_OPT_MAX_TAGGED_SIZE) == 1000);
	CHECK(set_size(&s, FI_OPT_MAX_MSG_SIZE, 1001) == -FI_EINVAL);
	CHECK(set_size(&s, FI_OPT_MAX_TAGGED_SIZE, 1001) == -FI_EINVAL);
	CHECK(set_size(&s, FI_OPT_INJECT_MSG_SIZE, 65) == -FI_EINVAL);
	CHECK(set_size(&s, FI_OPT_INJECT_TAGGED_SIZE, 65) == -FI_EINVAL);
	CHECK(size_of(&s, FI_OPT_MAX_MSG_SIZE) == 1000 && size_of(&s, FI_OPT_INJECT_MSG_SIZE) == 64);
	/* The limits apply to an alias too. */
	CHECK(fi_ep_alias(s.ep, &ep, FI_TRANSMIT) == 0);
	CHECK(set_size(&s, FI_OPT_MAX_MSG_SIZE, 10) == 0);
	CHECK(fi_send(ep, contexts, 11, NULL, insert(&s, s.name), NULL) == -FI_EMSGSIZE);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

CASE_OURS(ep_size_options_of_datagrams)
{
	struct want w = { .type = FI_EP_DGRAM };
	static char out[4096];
	struct pair p;

	meet(&p, &w);
	CHECK(set_size(&p.a, FI_OPT_MAX_MSG_SIZE, 100) == 0 && set_size(&p.a, FI_OPT_INJECT_MSG_SIZE, 10) == 0);
	CHECK(fi_send(p.a.ep, out, 101, NULL, p.to_b, &contexts[1]) == -FI_EMSGSIZE);
	CHECK(fi_inject(p.a.ep, out, 11, p.to_b) == -FI_EMSGSIZE);
	CHECK(fi_inject(p.a.ep, out, 10, p.to_b) == 0);
	POST(fi_send(p.a.ep, out, 100, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(set_size(&p.a, FI_OPT_MAX_TAGGED_SIZE, 1) == -FI_ENOPROTOOPT);
	part(&p);
}

/* Accesses and atomic operations have limits of their own. */
CASE_OURS(ep_size_options_of_accesses)
{
	static const struct want *kinds[] = { &SIDED, &SIDED_MSG };
	static uint64_t words[64], own[64];
	struct region r;
	struct pair p;
	size_t i;

	for (i = 0; i < ARRAY(kinds); i++) {
		meet(&p, kinds[i]);
		warm_up(&p);
		expose(&p.b, &r, words, sizeof(words));
		CHECK(size_of(&p.a, FI_OPT_MAX_RMA_SIZE) == p.a.info->ep_attr->max_msg_size);
		CHECK(size_of(&p.a, FI_OPT_INJECT_RMA_SIZE) == p.a.info->tx_attr->inject_size);
		CHECK(size_of(&p.a, FI_OPT_MAX_ATOMIC_SIZE) >= 64 && size_of(&p.a, FI_OPT_INJECT_ATOMIC_SIZE) >= 64);
		CHECK(size_of(&p.a, FI_OPT_MAX_ATOMIC_SIZE) <= size_of(&p.a, FI_OPT_MAX_RMA_SIZE));
		CHECK(set_size(&p.a, FI_OPT_MAX_RMA_SIZE, 16) == 0 && set_size(&p.a, FI_OPT_INJECT_RMA_SIZE, 8) == 0);
		CHECK(set_size(&p.a, FI_OPT_MAX_ATOMIC_SIZE, 24) == 0 && set_size(&p.a, FI_OPT_INJECT_ATOMIC_SIZE, 8) == 0);
		CHECK(size_of(&p.a, FI_OPT_MAX_RMA_SIZE) == 16 && size_of(&p.a, FI_OPT_INJECT_ATOMIC_SIZE) == 8);
		CHECK(size_of(&p.a, FI_OPT_MAX_MSG_SIZE) == p.a.info->ep_attr->max_msg_size);
		/* Those of messages do not bind them. */
		CHECK(set_size(&p.a, FI_OPT_MAX_MSG_SIZE, 4) == 0 && set_size(&p.a, FI_OPT_INJECT_MSG_SIZE, 4) == 0);
		CHECK(fi_write(p.a.ep, own, 17, NULL, p.to_b, r.addr, r.key, &contexts[1]) == -FI_EMSGSIZE);
		CHECK(fi_read(p.a.ep, own, 17, NULL, p.to_b, r.addr, r.key, &contexts[1]) == -FI_EMSGSIZE);
		CHECK(fi_inject_write(p.a.ep, own, 9, p.to_b, r.addr, r.key) == -FI_EMSGSIZE);
		POST(fi_write(p.a.ep, own, 16, NULL, p.to_b, r.addr, r.key, &contexts[1]));
		done(&p.a, &p.b, &contexts[1]);
		POST(fi_read(p.a.ep, own, 16, NULL, p.to_b, r.addr, r.key, &contexts[2]));
		done(&p.a, &p.b, &contexts[2]);
		POST(fi_inject_write(p.a.ep, own, 8, p.to_b, r.addr, r.key));
		CHECK(fi_atomic(p.a.ep, own, 4, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[3]) == -FI_EMSGSIZE);
		CHECK(fi_inject_atomic(p.a.ep, own, 2, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM) == -FI_EMSGSIZE);
		POST(fi_atomic(p.a.ep, own, 3, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[3]));
		done(&p.a, &p.b, &contexts[3]);
		POST(fi_inject_atomic(p.a.ep, own, 1, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM));
		POST(fi_fetch_atomic(p.a.ep, own, 3, NULL, own, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[4]));
		done(&p.a, &p.b, &contexts[4]);
		hide(&r);
		part(&p);
	}
	/* Without the capability there are none. */
	meet(&p, kinds_of_endpoint(0));
	CHECK(set_size(&p.a, FI_OPT_MAX_RMA_SIZE, 1) == -FI_ENOPROTOOPT);
	CHECK(set_size(&p.a, FI_OPT_INJECT_ATOMIC_SIZE, 1) == -FI_ENOPROTOOPT);
	part(&p);
}
