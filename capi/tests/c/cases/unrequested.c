/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Endpoints refuse calls whose capability was not requested: fi_getinfo(3), "CAPABILITIES",
 * fi_tagged(3), fi_msg(3), fi_cm(3).
 */
#include "case.h"
#include <netinet/in.h>

static const char *const providers[] = { "tcp", "shm" };

/* Opens an endpoint with exactly these capabilities. */
static void open_exactly(struct side *s, const struct want *w, uint64_t caps)
{
	open_domain(s, w);
	s->info->caps = caps;
	open_ep(s, s->info);
}

CASE_OURS(tagged_calls_need_the_capability)
{
	char in[8] = "";
	struct iovec iov = { in, 8 };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .tag = 1 };
	struct fi_msg plain = { .msg_iov = &iov, .iov_count = 1 };
	struct side a, b;
	fi_addr_t to;
	size_t i;

	for (i = 0; i < ARRAY(providers); i++) {
		struct want w = { .provider = providers[i] };

		open_side(&a, &w);
		open_side(&b, &w);
		to = insert(&a, b.name);
		CHECK(!(a.info->caps & FI_TAGGED));
		REFUSED("calls of a capability that the endpoint was opened without",
			FI_ENOSYS, fi_tsend(a.ep, "x", 1, NULL, to, 1, NULL));
		CHECK(fi_tsendv(a.ep, &iov, NULL, 1, to, 1, NULL) == -FI_ENOSYS);
		CHECK(fi_tsendmsg(a.ep, &msg, 0) == -FI_ENOSYS);
		CHECK(fi_tinject(a.ep, "x", 1, to, 1) == -FI_ENOSYS);
		CHECK(fi_tsenddata(a.ep, "x", 1, NULL, 7, to, 1, NULL) == -FI_ENOSYS);
		CHECK(fi_tinjectdata(a.ep, "x", 1, 7, to, 1) == -FI_ENOSYS);
		CHECK(fi_trecv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL) == -FI_ENOSYS);
		CHECK(fi_trecvv(a.ep, &iov, NULL, 1, FI_ADDR_UNSPEC, 1, 0, NULL) == -FI_ENOSYS);
		CHECK(fi_trecvmsg(a.ep, &msg, 0) == -FI_ENOSYS);
		/* The requested capabilities work. */
		POST(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_inject(a.ep, "hello", 6, to));
		done(&b, &a, &contexts[0]);
		close_side(&a);
		close_side(&b);
		/* The other way round: FI_MSG is not requested. */
		w.caps = FI_TAGGED;
		open_exactly(&a, &w, FI_TAGGED | FI_SEND | FI_RECV);
		open_exactly(&b, &w, FI_TAGGED | FI_SEND | FI_RECV);
		to = insert(&a, b.name);
		REFUSED("calls of a capability that the endpoint was opened without",
			FI_ENOSYS, fi_send(a.ep, "x", 1, NULL, to, NULL));
		CHECK(fi_sendmsg(a.ep, &plain, 0) == -FI_ENOSYS);
		CHECK(fi_inject(a.ep, "x", 1, to) == -FI_ENOSYS);
		CHECK(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL) == -FI_ENOSYS);
		POST(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
		POST(fi_tinject(a.ep, "tagged", 7, to, 1));
		done(&b, &a, &contexts[0]);
		CHECK(!strcmp(in, "tagged"));
		close_side(&a);
		close_side(&b);
	}
}

static struct sockaddr_in group_of_this_process(void)
{
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_port = htons((uint16_t) (20000 + getpid() % 12000)) };

	group.sin_addr.s_addr = htonl(0xef010204);
	return group;
}

CASE_OURS(join_needs_the_capability)
{
	static const struct want without = { .type = FI_EP_DGRAM }, with = { .type = FI_EP_DGRAM, .caps = FI_MULTICAST };
	struct sockaddr_in group = group_of_this_process();
	struct fid_mc *mc;
	struct side s;

	open_side(&s, &without);
	CHECK(fi_ep_bind(s.ep, &s.eq->fid, 0) == 0);
	REFUSED("fi_join of a multicast group without FI_MULTICAST",
		FI_ENOSYS, fi_join(s.ep, &group, 0, &mc, NULL));
	close_side(&s);
	open_side(&s, &with);
	CHECK(fi_ep_bind(s.ep, &s.eq->fid, 0) == 0);
	CHECK(fi_join(s.ep, &group, 0, &mc, NULL) == 0);
	CHECK(fi_close(&mc->fid) == 0);
	close_side(&s);
}

/*
 * Two memberships of one endpoint: closing the last one leaves the group, and each message arrives
 * once.
 */
CASE_OURS(memberships_are_counted)
{
	static const struct want w = { .type = FI_EP_DGRAM, .caps = FI_MULTICAST };
	struct sockaddr_in group = group_of_this_process();
	struct fid_mc *first, *second, *sending;
	struct iovec iov = { "to all", 7 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	struct pair p;
	char in[2][16];

	meet(&p, &w);
	CHECK(fi_ep_bind(p.a.ep, &p.a.eq->fid, 0) == 0 && fi_ep_bind(p.b.ep, &p.b.eq->fid, 0) == 0);
	CHECK(fi_join(p.a.ep, &group, FI_SEND, &sending, NULL) == 0);
	msg.addr = fi_mc_addr(sending);
	CHECK(fi_join(p.b.ep, &group, FI_RECV, &first, NULL) == 0);
	CHECK(fi_join(p.b.ep, &group, FI_RECV, &second, NULL) == 0);
	POST(fi_recv(p.b.ep, in[0], 16, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_recv(p.b.ep, in[1], 16, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_sendmsg(p.a.ep, &msg, FI_MULTICAST));
	done(&p.b, &p.a, &contexts[0]);
	done(&p.a, NULL, &contexts[1]);
	quiet(&p.b, &p.a);
	CHECK(fi_close(&first->fid) == 0);
	POST(fi_sendmsg(p.a.ep, &msg, FI_MULTICAST));
	done(&p.b, &p.a, &contexts[2]);
	done(&p.a, NULL, &contexts[1]);
	CHECK(fi_close(&second->fid) == 0);
	POST(fi_recv(p.b.ep, in[0], 16, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_sendmsg(p.a.ep, &msg, FI_MULTICAST));
	done(&p.a, NULL, &contexts[1]);
	quiet(&p.b, &p.a);
	CHECK(fi_close(&sending->fid) == 0);
	part(&p);
}
