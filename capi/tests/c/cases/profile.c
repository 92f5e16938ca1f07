/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Profiles of endpoints and domains (fi_profile(3)), and how much may still be posted (fi_endpoint(3)). */
#include "case.h"

#if __has_include(<rdma/fi_profile.h>)
#include <rdma/fi_profile.h>

static uint64_t value(struct fid_profile *profile, uint32_t id)
{
	uint64_t found = ~0ULL;

	CHECK(fi_profile_read_u64(profile, id, &found) == 0);
	return found;
}

static void send_to_b(struct pair *p, const char *text, uint64_t tag)
{
	POST(fi_tsend(p->a.ep, text, strlen(text), NULL, p->to_b, tag, &contexts[15]));
	done(&p->a, &p->b, &contexts[15]);
}

/* Makes progress until so many messages wait for a receive. */
static void wait_for(struct pair *p, struct fid_profile *profile, uint64_t count)
{
	double end = seconds() + 10;

	while (value(profile, FI_VAR_UNEXP_MSG_CNT) != count) {
		fi_cq_read(p->a.cq, NULL, 0);
		fi_cq_read(p->b.cq, NULL, 0);
		CHECK(seconds() < end);
	}
}
#endif

CASE_OURS(profile_lists_its_variables)
{
#if __has_include(<rdma/fi_profile.h>)
	static const uint32_t ids[] = {
		FI_VAR_UNEXP_MSG_CNT, FI_VAR_UNEXP_MSG_QUEUE, FI_VAR_CONNECTION_CNT, FI_VAR_OFI_MEM,
	};
	static const char *const names[] = {
		"FI_VAR_UNEXP_MSG_CNT", "FI_VAR_UNEXP_MSG_QUEUE", "FI_VAR_CONNECTION_CNT", "FI_VAR_OFI_MEM",
	};
	enum { KNOWN = 4, OWN = 13, ALL = KNOWN + OWN };
	struct fi_profile_desc list[ALL + 1];
	struct fid_profile *profile;
	struct fid_domain *alone;
	struct side s;
	uint64_t number;
	size_t count, i;

	open_side(&s, &RDM);
	CHECK(fi_profile_open(&s.ep->fid, 1, &profile, NULL) == -FI_EBADFLAGS);
	CHECK(fi_profile_open(&s.av->fid, 0, &profile, NULL) == -FI_ENOSYS);
	CHECK(fi_profile_open(&s.ep->fid, 0, &profile, &s) == 0);
	CHECK(profile->fid.fclass == FI_CLASS_PROFILE && profile->fid.context == &s);
	CHECK(fi_profile_query_vars(profile, NULL, &count) == 0 && count == ALL);
	count = 1;
	CHECK(fi_profile_query_vars(profile, list, &count) == 1 && count == ALL);
	count = ALL + 1;
	CHECK(fi_profile_query_vars(profile, list, &count) == ALL && count == ALL);
	for (i = KNOWN; i < ALL; i++) {
		CHECK(list[i].id == 0x10000 + i - KNOWN && !strncmp(list[i].name, "OFI_VAR_", 8) && list[i].desc[0]);
		CHECK(list[i].datatype_sel == fi_primitive_type && list[i].datatype.primitive == FI_UINT64 && list[i].size == 8);
		CHECK(value(profile, list[i].id) == 0);
	}
	for (i = 0; i < KNOWN; i++) {
		CHECK(list[i].id == ids[i] && !strcmp(list[i].name, names[i]) && list[i].desc[0] && list[i].flags == 0);
		if (ids[i] == FI_VAR_UNEXP_MSG_QUEUE) {
			CHECK(list[i].datatype_sel == fi_defined_type && list[i].datatype.defined == FI_TYPE_CQ_ERR_ENTRY);
			CHECK(list[i].size == sizeof(struct fi_cq_err_entry));
		} else {
			CHECK(list[i].datatype_sel == fi_primitive_type && list[i].datatype.primitive == FI_UINT64);
			CHECK(list[i].size == 8);
		}
	}
	CHECK(fi_profile_query_vars(profile, list, NULL) == -FI_EINVAL);
	/* There are no events. */
	CHECK(fi_profile_query_events(profile, list, &count) == 0 && count == 0);
	REFUSED("events of a profile (fi_profile_register_callback)",
		FI_EINVAL, fi_profile_register_callback(profile, FI_EVENT_UNEXP_MSG_RECVD, NULL, NULL));
	REFUSED("variables of a profile that it does not list",
		FI_EINVAL, fi_profile_read_u64(profile, FI_VAR_CONN_REJECT, &number));
	CHECK(fi_profile_read_u64(profile, 4242, &number) == -FI_EINVAL);
	CHECK(fi_profile_reset(profile, 0) == 0 && fi_profile_reset(profile, 1) == -FI_EBADFLAGS);
	CHECK(fi_close(&s.ep->fid) == -FI_EBUSY);
	CHECK(fi_profile_close(profile) == 0);
	CHECK(fi_domain(s.fabric, s.info, &alone, NULL) == 0);
	CHECK(fi_profile_open(&alone->fid, 0, &profile, NULL) == 0 && fi_close(&alone->fid) == -FI_EBUSY);
	CHECK(fi_profile_close(profile) == 0 && fi_close(&alone->fid) == 0);
	close_side(&s);
#else
	SKIP("these headers are older");
#endif
}

CASE_OURS(profile_counts_what_an_endpoint_does)
{
#if __has_include(<rdma/fi_profile.h>)
	enum { HIGH_WATER = 0x10000, SENT, SENT_BYTES, RECEIVED, RECEIVED_BYTES, FAILED = 0x10009, CONNECTED };
	struct fid_profile *of_a, *of_b, *of_domain;
	struct pair p;
	char in[64];
	int i;

	meet(&p, &RDM);
	CHECK(fi_profile_open(&p.a.ep->fid, 0, &of_a, NULL) == 0 && fi_profile_open(&p.b.ep->fid, 0, &of_b, NULL) == 0);
	CHECK(fi_profile_open(&p.b.domain->fid, 0, &of_domain, NULL) == 0);
	for (i = 0; i < 5; i++) {
		send_to_b(&p, "seven b", 7);
		wait_for(&p, of_b, (uint64_t) i + 1);
	}
	CHECK(value(of_a, SENT) == 5 && value(of_a, SENT_BYTES) == 35 && value(of_a, CONNECTED) == 1);
	CHECK(value(of_b, RECEIVED) == 5 && value(of_b, RECEIVED_BYTES) == 35 && value(of_b, SENT) == 0);
	CHECK(value(of_b, HIGH_WATER) == 0);
	/* Receives that find their message complete at once. Until "done", no call reads the queue. */
	for (i = 0; i < 5; i++)
		POST(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[0]));
	CHECK(value(of_b, HIGH_WATER) == 5 && value(of_domain, HIGH_WATER) == 5);
	for (i = 0; i < 5; i++)
		done(&p.b, &p.a, &contexts[0]);
	CHECK(value(of_b, HIGH_WATER) == 5 && value(of_b, FAILED) == 0);
	/* A reset is one of its profile. */
	CHECK(fi_profile_reset(of_b, 0) == 0);
	CHECK(value(of_b, RECEIVED) == 0 && value(of_b, HIGH_WATER) == 5 && value(of_domain, RECEIVED) == 5);
	send_to_b(&p, "one more", 7);
	wait_for(&p, of_b, 1);
	CHECK(value(of_b, RECEIVED) == 1 && value(of_b, RECEIVED_BYTES) == 8 && value(of_domain, RECEIVED) == 6);
	CHECK(fi_profile_close(of_a) == 0 && fi_profile_close(of_b) == 0 && fi_profile_close(of_domain) == 0);
	part(&p);
#else
	SKIP("these headers are older");
#endif
}

CASE_OURS(profile_counts_unexpected_messages)
{
#if __has_include(<rdma/fi_profile.h>)
	struct fid_profile *profile, *of_domain;
	struct fi_cq_err_entry list[4];
	size_t size = sizeof(list);
	uint64_t number = 4242;
	struct pair p;
	uint64_t held;
	char in[64];

	meet(&p, &RDM);
	CHECK(fi_profile_open(&p.b.ep->fid, 0, &profile, NULL) == 0);
	CHECK(fi_profile_open(&p.b.domain->fid, 0, &of_domain, NULL) == 0);
	CHECK(value(profile, FI_VAR_UNEXP_MSG_CNT) == 0 && value(profile, FI_VAR_CONNECTION_CNT) == 0);
	CHECK(value(profile, FI_VAR_OFI_MEM) == 0);
	send_to_b(&p, "first", 7);
	send_to_b(&p, "second one", 8);
	wait_for(&p, profile, 2);
	CHECK(value(of_domain, FI_VAR_UNEXP_MSG_CNT) == 2);
	CHECK(value(profile, FI_VAR_CONNECTION_CNT) == 1 && value(of_domain, FI_VAR_CONNECTION_CNT) == 1);
	held = value(profile, FI_VAR_OFI_MEM);
	CHECK(held > 0 && held <= 256ULL << 20 && value(of_domain, FI_VAR_OFI_MEM) == held);
	/* There is nothing to reset. */
	CHECK(fi_profile_reset(profile, 0) == 0 && value(profile, FI_VAR_UNEXP_MSG_CNT) == 2);
	CHECK(value(profile, FI_VAR_CONNECTION_CNT) == 1 && value(profile, FI_VAR_OFI_MEM) == held);
	CHECK(profile->ops->read_var(profile, FI_VAR_UNEXP_MSG_QUEUE, list, &size) == 2 * sizeof(*list));
	CHECK(size == 2 * sizeof(*list));
	CHECK(list[0].tag == 7 && list[0].len == 5 && list[0].flags == (FI_TAGGED | FI_RECV) && list[0].err == 0);
	CHECK(list[1].tag == 8 && list[1].len == 10);
	size = 2 * sizeof(*list) - 1;
	CHECK(profile->ops->read_var(profile, FI_VAR_UNEXP_MSG_QUEUE, list, &size) == sizeof(*list));
	CHECK(size == 2 * sizeof(*list));
	/* A list is not a number, and the result could not show that the call wrote none. */
	CHECK(fi_profile_read_u64(profile, FI_VAR_UNEXP_MSG_QUEUE, &number) == -FI_ETOOSMALL && number == 4242);
	size = 0;
	CHECK(profile->ops->read_var(profile, FI_VAR_UNEXP_MSG_QUEUE, NULL, &size) == 0 && size == 2 * sizeof(*list));
	size = 4;
	CHECK(profile->ops->read_var(profile, FI_VAR_UNEXP_MSG_CNT, list, &size) == -FI_ETOOSMALL && size == 8);
	/* Reads between start and end see one state. */
	fi_profile_start_reads(profile, 0);
	POST(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[0]));
	done(&p.b, &p.a, &contexts[0]);
	CHECK(value(profile, FI_VAR_UNEXP_MSG_CNT) == 2 && value(of_domain, FI_VAR_UNEXP_MSG_CNT) == 1);
	fi_profile_end_reads(profile, 0);
	CHECK(value(profile, FI_VAR_UNEXP_MSG_CNT) == 1);
	size = sizeof(list);
	CHECK(profile->ops->read_var(profile, FI_VAR_UNEXP_MSG_QUEUE, list, &size) == sizeof(*list) && list[0].tag == 8);
	CHECK(fi_profile_close(profile) == 0 && fi_profile_close(of_domain) == 0);
	part(&p);
#else
	SKIP("these headers are older");
#endif
}

#if __has_include(<rdma/fi_profile.h>)
/* Whether the domain's variable is the sum of those of its two endpoints. */
static int adds_up(struct fid_profile *domain, struct fid_profile *one, struct fid_profile *other, uint32_t id)
{
	return value(domain, id) == value(one, id) + value(other, id);
}
#endif

CASE_OURS(profile_of_a_domain_adds_up_its_endpoints)
{
#if __has_include(<rdma/fi_profile.h>)
	struct fid_profile *of_b, *of_second, *of_domain;
	struct fi_cq_err_entry list[4];
	size_t size = sizeof(list), len = 64;
	struct fid_ep *second;
	struct pair p;
	char name[64];
	fi_addr_t to;

	meet(&p, &RDM);
	CHECK(fi_endpoint(p.b.domain, p.b.info, &second, NULL) == 0);
	CHECK(fi_ep_bind(second, &p.b.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(second, &p.b.av->fid, 0) == 0 && fi_enable(second) == 0);
	CHECK(fi_getname(&second->fid, name, &len) == 0);
	to = insert(&p.a, name);
	CHECK(fi_profile_open(&p.b.ep->fid, 0, &of_b, NULL) == 0);
	CHECK(fi_profile_open(&second->fid, 0, &of_second, NULL) == 0);
	CHECK(fi_profile_open(&p.b.domain->fid, 0, &of_domain, NULL) == 0);
	send_to_b(&p, "first", 7);
	send_to_b(&p, "second", 8);
	POST(fi_tsend(p.a.ep, "third", 5, NULL, to, 9, &contexts[15]));
	done(&p.a, &p.b, &contexts[15]);
	wait_for(&p, of_b, 2);
	wait_for(&p, of_second, 1);
	CHECK(adds_up(of_domain, of_b, of_second, FI_VAR_UNEXP_MSG_CNT));
	CHECK(value(of_b, FI_VAR_CONNECTION_CNT) == 1 && value(of_second, FI_VAR_CONNECTION_CNT) == 1);
	CHECK(adds_up(of_domain, of_b, of_second, FI_VAR_CONNECTION_CNT));
	CHECK(value(of_second, FI_VAR_OFI_MEM) > 0 && adds_up(of_domain, of_b, of_second, FI_VAR_OFI_MEM));
	CHECK(of_domain->ops->read_var(of_domain, FI_VAR_UNEXP_MSG_QUEUE, list, &size) == 3 * sizeof(*list));
	CHECK(list[0].tag + list[1].tag + list[2].tag == 7 + 8 + 9);
	/* Nothing is reset, as there are states only. */
	CHECK(fi_profile_reset(of_domain, 0) == 0 && value(of_domain, FI_VAR_UNEXP_MSG_CNT) == 3);
	size = sizeof(list);
	CHECK(of_b->ops->read_var(of_b, FI_VAR_UNEXP_MSG_QUEUE, list, &size) == 2 * sizeof(*list));
	CHECK(fi_profile_reset(of_b, 0) == 0 && value(of_b, FI_VAR_UNEXP_MSG_CNT) == 2);
	CHECK(of_b->ops->read_var(of_b, FI_VAR_UNEXP_MSG_QUEUE, list + 2, &size) == 2 * sizeof(*list));
	CHECK(!memcmp(list, list + 2, 2 * sizeof(*list)));
	CHECK(fi_profile_close(of_b) == 0 && fi_profile_close(of_second) == 0 && fi_profile_close(of_domain) == 0);
	CHECK(fi_close(&second->fid) == 0);
	part(&p);
#else
	SKIP("these headers are older");
#endif
}

CASE_OURS(profile_counts_open_connections)
{
#if __has_include(<rdma/fi_profile.h>)
	struct fid_profile *profile;
	double end = seconds() + 0.05;
	struct side a, b;
	char in[8];

	open_side(&a, &RDM);
	open_side(&b, &RDM);
	CHECK(fi_profile_open(&a.ep->fid, 0, &profile, NULL) == 0);
	/* The peer makes no progress: it does not answer. */
	CHECK(fi_tsend(a.ep, "x", 1, NULL, insert(&a, b.name), 7, &contexts[0]) == 0);
	do {
		CHECK(fi_cq_read(a.cq, NULL, 0) == -FI_EAGAIN && value(profile, FI_VAR_CONNECTION_CNT) == 0);
	} while (seconds() < end);
	POST(fi_trecv(b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[1]));
	done(&b, &a, &contexts[1]);
	CHECK(value(profile, FI_VAR_CONNECTION_CNT) == 1);
	done(&a, &b, &contexts[0]);
	CHECK(fi_profile_close(profile) == 0);
	close_side(&a);
	close_side(&b);
#else
	SKIP("these headers are older");
#endif
}

/* So many receives can be posted, and no more. */
CASE_OURS(ep_rx_size_left_is_exact)
{
	static char in[8];
	ssize_t left, i;
	struct side s;

	open_side(&s, &RDM);
	left = fi_rx_size_left(s.ep);
	CHECK(left == (ssize_t) s.info->rx_attr->size);
	for (i = left; i > 0; i--) {
		CHECK(fi_rx_size_left(s.ep) == i);
		CHECK(fi_recv(s.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL) == 0);
	}
	CHECK(fi_rx_size_left(s.ep) == 0);
	CHECK(fi_recv(s.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL) == -FI_EAGAIN);
	close_side(&s);
}

/* Messages without a receive stay outstanding: so many can be posted without -FI_EAGAIN. */
CASE_OURS(ep_tx_size_left_is_a_lower_bound)
{
	static char out[1 << 20];
	ssize_t left, i;
	struct pair p;

	meet(&p, &RDM);
	left = fi_tx_size_left(p.a.ep);
	CHECK(left == (ssize_t) p.a.info->tx_attr->size);
	for (i = left; i > 0; i--) {
		CHECK(fi_tx_size_left(p.a.ep) >= i);
		CHECK(fi_send(p.a.ep, out, sizeof(out), NULL, p.to_b, NULL) == 0);
	}
	CHECK(fi_tx_size_left(p.a.ep) == 0);
	CHECK(fi_send(p.a.ep, out, sizeof(out), NULL, p.to_b, NULL) == -FI_EAGAIN);
	CHECK(fi_rx_size_left(p.a.ep) == (ssize_t) p.a.info->rx_attr->size);
	part(&p);
}

/* The system's buffer decides when a packet may leave. */
CASE_OURS(dgram_size_left)
{
	struct want dgram = { .type = FI_EP_DGRAM };
	static char in[8];
	struct side s;
	ssize_t left;

	open_side(&s, &dgram);
	left = fi_rx_size_left(s.ep);
	CHECK(left == (ssize_t) s.info->rx_attr->size);
	CHECK(fi_recv(s.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL) == 0);
	CHECK(fi_rx_size_left(s.ep) == left - 1);
	REFUSED("fi_tx_size_left of a datagram endpoint", FI_ENOSYS, fi_tx_size_left(s.ep));
	close_side(&s);
}

CASE_OURS(srx_size_left_and_flags)
{
	struct fi_rx_attr attr = { .size = 3 };
	uint64_t flags = FI_TRANSMIT;
	static char in[8];
	struct fid_ep *srx;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_srx_context(s.domain, &attr, &srx, NULL) == 0);
	CHECK(fi_rx_size_left(srx) == 3);
	REFUSED("fi_tx_size_left, fi_rx_size_left of an object without such operations",
		FI_ENOSYS, fi_tx_size_left(srx));
	CHECK(fi_recv(srx, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL) == 0);
	CHECK(fi_rx_size_left(srx) == 2);
	/* Its default flags concern receives only. */
	CHECK(fi_control(&srx->fid, FI_GETOPSFLAG, &flags) == -FI_EINVAL);
	flags = FI_RECV | FI_COMPLETION;
	CHECK(fi_control(&srx->fid, FI_SETOPSFLAG, &flags) == 0);
	flags = FI_RECV;
	CHECK(fi_control(&srx->fid, FI_GETOPSFLAG, &flags) == 0 && flags == FI_COMPLETION);
	CHECK(fi_control(&srx->fid, FI_GETOPSFLAG, NULL) == -FI_EINVAL);
	CHECK(fi_close(&srx->fid) == 0);
	close_side(&s);
}
