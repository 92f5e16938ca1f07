/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared receive and transmit contexts (fi_endpoint(3)). */
#include "case.h"

static struct fid_ep *open_srx(struct side *s)
{
	struct fi_rx_attr attr = *s->info->rx_attr;
	struct fid_ep *srx;

	CHECK(fi_srx_context(s->domain, &attr, &srx, &contexts[5]) == 0);
	CHECK(srx->fid.fclass == FI_CLASS_SRX_CTX && srx->fid.context == &contexts[5]);
	return srx;
}

static struct fid_ep *bound_ep(struct side *s, struct fid *context, char *name)
{
	struct fid_ep *ep;
	size_t len = sizeof(s->name);

	CHECK(fi_endpoint(s->domain, s->info, &ep, s) == 0);
	CHECK(fi_ep_bind(ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(ep, &s->av->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, context, 1) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, context, 0) == 0);
	CHECK(fi_enable(ep) == 0);
	CHECK(fi_getname(&ep->fid, name, &len) == 0);
	return ep;
}

CASE_OURS(srx_serves_several_endpoints)
{
	struct side a, b;
	struct fid_ep *srx, *eps[3];
	fi_addr_t to[3];
	char in[3][8], tagged[8], name[64];
	struct fi_msg_tagged peek = { .addr = FI_ADDR_UNSPEC, .tag = 5 };
	int i;

	open_side(&a, &RDM);
	open_domain(&b, &RDM);
	b.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	srx = open_srx(&b);
	for (i = 0; i < 3; i++) {
		eps[i] = bound_ep(&b, &srx->fid, name);
		to[i] = insert(&a, name);
		POST(fi_recv(srx, in[i], 8, NULL, FI_ADDR_UNSPEC, &contexts[8 + i]));
	}
	POST(fi_trecv(srx, tagged, 8, NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[1]));
	for (i = 0; i < 3; i++) {
		POST(fi_send(a.ep, "message", 8, NULL, to[i], &contexts[0]));
		done(&a, &b, &contexts[0]);
		CHECK(done(&b, &a, &contexts[8 + i]).len == 8);
	}
	POST(fi_tsend(a.ep, "tagged!", 8, NULL, to[1], 7, &contexts[0]));
	done(&a, &b, &contexts[0]);
	done(&b, &a, &contexts[1]);
	CHECK(!strcmp(tagged, "tagged!") && !strcmp(in[2], "message"));
	REFUSED("sends on a shared receive context", FI_ENOSYS, fi_send(srx, "x", 1, NULL, 0, NULL));
	REFUSED("FI_PEEK on a shared receive context", FI_ENOSYS, fi_trecvmsg(srx, &peek, FI_PEEK));
	/* Receives go to the shared context alone. */
	REFUSED("receives posted to an endpoint with a shared receive context",
		FI_ENOSYS, fi_recv(eps[0], in[0], 8, NULL, FI_ADDR_UNSPEC, &contexts[8]));
	REFUSED("receives posted to an endpoint with a shared receive context",
		FI_ENOSYS, fi_trecv(eps[0], in[0], 8, NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[8]));
	CHECK(fi_enable(srx) == 0);
	CHECK(fi_close(&srx->fid) == -FI_EBUSY);
	for (i = 0; i < 3; i++)
		CHECK(fi_close(&eps[i]->fid) == 0);
	CHECK(fi_close(&srx->fid) == 0);
	close_side(&a);
	close_side(&b);
}

CASE_OURS(srx_open_rules)
{
	struct fid_ep *srx, *other;
	struct fi_rx_attr attr;
	struct side s, t;
	char in[8];

	open_domain(&s, &RDM);
	open_domain(&t, &RDM);
	attr = *s.info->rx_attr;
	/* More receives than an endpoint can have. */
	attr.size = (size_t) 1 << 40;
	CHECK(fi_srx_context(s.domain, &attr, &srx, NULL) == -FI_EINVAL);
	CHECK(fi_srx_context(s.domain, NULL, &srx, NULL) == 0);
	CHECK(fi_srx_context(t.domain, NULL, &other, NULL) == 0);
	POST(fi_recv(srx, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(fi_close(&srx->fid) == 0);
	s.ep = NULL;
	CHECK(fi_endpoint(s.domain, s.info, &s.ep, &s) == 0);
	CHECK(fi_ep_bind(s.ep, &other->fid, 0) == -FI_EDOMAIN);
	CHECK(fi_close(&other->fid) == 0);
	close_side(&s);
	close_side(&t);
}

CASE_OURS(stx_is_bound_to_endpoints)
{
	struct fid_stx *stx;
	struct side a, b;
	char name[64], in[8];
	fi_addr_t to_a;

	open_side(&a, &RDM);
	open_domain(&b, &RDM);
	b.info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	CHECK(fi_stx_context(b.domain, b.info->tx_attr, &stx, &contexts[5]) == 0);
	CHECK(stx->fid.fclass == FI_CLASS_STX_CTX && stx->fid.context == &contexts[5]);
	b.ep = bound_ep(&b, &stx->fid, name);
	to_a = insert(&b, a.name);
	POST(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(b.ep, "message", 8, NULL, to_a, &contexts[1]));
	done(&b, &a, &contexts[1]);
	done(&a, &b, &contexts[0]);
	CHECK(fi_close(&stx->fid) == -FI_EBUSY);
	CHECK(fi_close(&b.ep->fid) == 0);
	b.ep = NULL;
	CHECK(fi_close(&stx->fid) == 0);
	close_side(&a);
	close_side(&b);
}

CASE_OURS(shared_contexts_are_offered)
{
	struct fi_info *hints = hints_for(&RDM), *info;
	int local = within_host(&RDM);

	hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	CHECK(fi_getinfo(API, local ? NULL : "127.0.0.1", NULL, local ? 0 : FI_SOURCE, hints, &info) == 0);
	CHECK(info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT && info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT);
	CHECK(info->domain_attr->max_ep_stx_ctx > 1 && info->domain_attr->max_ep_srx_ctx > 1);
	fi_freeinfo(hints);
	fi_freeinfo(info);
}

/* An endpoint with a completion queue of its own. */
struct user {
	struct fid_ep *ep;
	struct fid_cq *cq;
	fi_addr_t addr;
};

static void join(struct side *s, struct side *from, struct fid *srx, struct user *u)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	char name[64];
	size_t len = sizeof(name);

	CHECK(fi_cq_open(s->domain, &attr, &u->cq, NULL) == 0);
	CHECK(fi_endpoint(s->domain, s->info, &u->ep, u) == 0);
	CHECK(fi_ep_bind(u->ep, &u->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(u->ep, &s->av->fid, 0) == 0 && fi_ep_bind(u->ep, srx, 0) == 0);
	CHECK(fi_enable(u->ep) == 0 && fi_getname(&u->ep->fid, name, &len) == 0);
	u->addr = insert(from, name);
}

static void leave(struct user *u)
{
	CHECK(fi_close(&u->ep->fid) == 0 && fi_close(&u->cq->fid) == 0);
}

/* The next completion of a user, which must be there within ten seconds; 0 if it is an error. */
static int next_of(struct user *u, struct fi_cq_tagged_entry *entry, struct fi_cq_err_entry *err)
{
	double end = seconds() + 10;
	ssize_t ret;

	while ((ret = fi_cq_read(u->cq, entry, 1)) == -FI_EAGAIN && seconds() < end)
		drive();
	if (ret == -FI_EAVAIL) {
		memset(err, 0, sizeof(*err));
		CHECK(fi_cq_readerr(u->cq, err, 0) == 1);
		return 0;
	}
	CHECK(ret == 1);
	return 1;
}

/* The completion of a message to one of two users. */
static void sent(struct side *from, struct user *users)
{
	struct fi_cq_tagged_entry entry;
	double end = seconds() + 10;
	ssize_t ret;

	while ((ret = fi_cq_read(from->cq, &entry, 1)) == -FI_EAGAIN && seconds() < end) {
		fi_cq_read(users[0].cq, NULL, 0);
		fi_cq_read(users[1].cq, NULL, 0);
	}
	CHECK(ret == 1 && entry.op_context == &contexts[4]);
}

static void begin_shared(struct side *a, struct side *b, struct fid_ep **srx, uint64_t caps)
{
	struct want w = RDM;

	w.caps |= caps;
	open_side(a, &w);
	open_domain(b, &w);
	b->info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	*srx = open_srx(b);
}

static void end_shared(struct side *a, struct side *b, struct fid_ep *srx, struct user *users, int count)
{
	while (count--)
		leave(&users[count]);
	CHECK(fi_close(&srx->fid) == 0);
	close_side(a);
	close_side(b);
}

CASE_OURS(srx_receives_can_be_cancelled)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct side a, b;
	struct user users[2];
	struct fid_ep *srx;
	static char buffer[4096];
	struct iovec iov = { buffer, sizeof(buffer) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[3] };
	size_t least = 64;
	char in[3][8];

	begin_shared(&a, &b, &srx, FI_MULTI_RECV);
	CHECK(fi_setopt(&srx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	POST(fi_recv(srx, in[0], 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	/* No queue could report the cancellation. */
	CHECK(fi_cancel(&srx->fid, &contexts[0]) == -FI_ENOCQ);
	join(&b, &a, &srx->fid, &users[0]);
	join(&b, &a, &srx->fid, &users[1]);
	POST(fi_recv(srx, in[1], 8, NULL, FI_ADDR_UNSPEC, &contexts[1]));
	POST(fi_trecv(srx, in[2], 8, NULL, FI_ADDR_UNSPEC, 5, 0, &contexts[2]));
	CHECK(fi_cancel(&srx->fid, &contexts[9]) == 0);
	CHECK(fi_cancel(&srx->fid, &contexts[0]) == 0);
	CHECK(next_of(&users[0], &entry, &err) == 0);
	CHECK(err.err == FI_ECANCELED && err.op_context == &contexts[0] && err.flags & FI_RECV && err.flags & FI_MSG);
	/* The cancelled receive matches no message. */
	CHECK(fi_cancel(&srx->fid, &contexts[0]) == 0);
	POST(fi_send(a.ep, "message", 8, NULL, users[1].addr, &contexts[4]));
	CHECK(next_of(&users[1], &entry, &err) == 1 && entry.op_context == &contexts[1] && !strcmp(in[1], "message"));
	sent(&a, users);
	CHECK(fi_cancel(&srx->fid, &contexts[2]) == 0);
	CHECK(next_of(&users[0], &entry, &err) == 0);
	CHECK(err.err == FI_ECANCELED && err.op_context == &contexts[2] && err.flags & FI_TAGGED);
	/* A buffer for several messages that holds one already. */
	POST(fi_recvmsg(srx, &msg, FI_MULTI_RECV));
	POST(fi_send(a.ep, "message", 8, NULL, users[1].addr, &contexts[4]));
	CHECK(next_of(&users[1], &entry, &err) == 1 && entry.op_context == &contexts[3] && entry.buf == buffer);
	sent(&a, users);
	CHECK(fi_cancel(&srx->fid, &contexts[3]) == 0);
	CHECK(next_of(&users[0], &entry, &err) == 0);
	CHECK(err.err == FI_ECANCELED && err.op_context == &contexts[3] && err.flags & FI_MULTI_RECV);
	CHECK(fi_cq_read(users[0].cq, &entry, 1) == -FI_EAGAIN && fi_cq_read(users[1].cq, &entry, 1) == -FI_EAGAIN);
	end_shared(&a, &b, srx, users, 2);
}

CASE_OURS(srx_buffers_take_messages_of_several_endpoints)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct side a, b;
	struct user users[2];
	struct fid_ep *srx;
	static char buffer[1000];
	struct iovec iov = { buffer, sizeof(buffer) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[3] };
	size_t least = 0, len = sizeof(least);
	int i, released = 0;
	char out[400];

	begin_shared(&a, &b, &srx, FI_MULTI_RECV);
	join(&b, &a, &srx->fid, &users[0]);
	join(&b, &a, &srx->fid, &users[1]);
	CHECK(fi_getopt(&srx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &len) == 0 && len == sizeof(least));
	CHECK(least > 0);
	least = 300;
	CHECK(fi_setopt(&srx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, 4) == -FI_EINVAL);
	CHECK(fi_setopt(&srx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	least = 0;
	CHECK(fi_getopt(&srx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &len) == 0 && least == 300);
	CHECK(fi_getopt(&srx->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &least, &len) == -FI_ENOPROTOOPT);
	CHECK(fi_setopt(&srx->fid, FI_OPT_ENDPOINT, 4711, &least, sizeof(least)) == -FI_ENOPROTOOPT);
	POST(fi_recvmsg(srx, &msg, FI_MULTI_RECV));
	for (i = 0; i < 2; i++) {
		memset(out, 'a' + i, sizeof(out));
		POST(fi_send(a.ep, out, sizeof(out), NULL, users[i].addr, &contexts[4]));
		sent(&a, users);
		CHECK(next_of(&users[i], &entry, &err) == 1);
		CHECK(entry.op_context == &contexts[3] && entry.len == sizeof(out) && entry.buf == buffer + 400 * i);
		CHECK(((char *) entry.buf)[399] == 'a' + i);
		released = !!(entry.flags & FI_MULTI_RECV);
		/* 600 bytes are left, then 200, fewer than FI_OPT_MIN_MULTI_RECV. */
		CHECK(i == 1 || !released);
	}
	if (!released) {
		CHECK(next_of(&users[1], &entry, &err) == 1);
		CHECK(entry.flags & FI_MULTI_RECV && entry.op_context == &contexts[3]);
	}
	end_shared(&a, &b, srx, users, 2);
}

/* Entries and counts belong to the message's destination endpoint. */
CASE_OURS(srx_completions_belong_to_endpoints)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct side a, b;
	struct user users[2];
	struct fid_cntr *cntr[2];
	struct fid_ep *srx;
	char in[8];
	int i, round;

	begin_shared(&a, &b, &srx, 0);
	for (i = 0; i < 2; i++) {
		join(&b, &a, &srx->fid, &users[i]);
		CHECK(fi_cntr_open(b.domain, &attr, &cntr[i], NULL) == 0);
		CHECK(fi_ep_bind(users[i].ep, &cntr[i]->fid, FI_RECV) == 0);
	}
	/* The context itself has neither. */
	CHECK(fi_ep_bind(srx, &b.cq->fid, FI_RECV) < 0 && fi_ep_bind(srx, &cntr[0]->fid, FI_RECV) < 0);
	for (round = 0; round < 3; round++) {
		/* In the last round the message arrives before the receive is posted. */
		for (i = 0; i < 2; i++) {
			if (round < 2)
				POST(fi_recv(srx, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[i]));
			POST(fi_send(a.ep, "message", 8, NULL, users[i].addr, &contexts[4]));
			sent(&a, users);
			if (round == 2)
				POST(fi_recv(srx, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[i]));
			CHECK(next_of(&users[i], &entry, &err) == 1 && entry.op_context == &contexts[i]);
		}
	}
	for (i = 0; i < 2; i++) {
		CHECK(fi_cntr_read(cntr[i]) == 3 && fi_cntr_readerr(cntr[i]) == 0);
		CHECK(fi_cq_read(users[i].cq, &entry, 1) == -FI_EAGAIN);
		leave(&users[i]);
		CHECK(fi_close(&cntr[i]->fid) == 0);
	}
	end_shared(&a, &b, srx, users, 0);
}

/* Two connections whose messages go to one context. */
CASE_OURS(srx_on_connected_endpoints)
{
	struct want w = { .type = FI_EP_MSG, .caps = FI_TAGGED };
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	struct side a[2], b;
	struct fid_ep *srx, *accepted[2];
	struct fid_pep *pep;
	char name[64], in[2][8];
	size_t len = sizeof(name);
	uint32_t number;
	int i;

	open_domain(&b, &w);
	b.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	srx = open_srx(&b);
	CHECK(fi_passive_ep(b.fabric, b.info, &pep, &b) == 0 && fi_pep_bind(pep, &b.eq->fid, 0) == 0);
	CHECK(fi_listen(pep) == 0 && fi_getname(&pep->fid, name, &len) == 0);
	for (i = 0; i < 2; i++) {
		open_side(&a[i], &w);
		CHECK(fi_connect(a[i].ep, name, NULL, 0) == 0);
		CHECK(event_of(&b, &a[i], &number, &event, sizeof(event)) > 0 && number == FI_CONNREQ);
		event.cm.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
		CHECK(fi_endpoint(b.domain, event.cm.info, &accepted[i], &b) == 0);
		CHECK(fi_ep_bind(accepted[i], &b.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
		CHECK(fi_ep_bind(accepted[i], &b.eq->fid, 0) == 0);
		/* It is enabled by fi_accept, which needs the context too. */
		CHECK(fi_accept(accepted[i], NULL, 0) == -FI_EOPBADSTATE);
		CHECK(fi_ep_bind(accepted[i], &srx->fid, 0) == 0);
		CHECK(fi_accept(accepted[i], NULL, 0) == 0);
		fi_freeinfo(event.cm.info);
		CHECK(event_of(&b, &a[i], &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
		CHECK(event_of(&a[i], &b, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	}
	for (i = 0; i < 2; i++) {
		POST(fi_recv(srx, in[i], 8, NULL, FI_ADDR_UNSPEC, &contexts[i]));
		POST(fi_send(a[i].ep, i ? "second!" : "message", 8, NULL, 0, &contexts[4]));
		done(&a[i], &b, &contexts[4]);
		CHECK(done(&b, &a[i], &contexts[i]).len == 8);
		CHECK(!strcmp(in[i], i ? "second!" : "message"));
	}
	POST(fi_tsend(a[1].ep, "tagged!", 8, NULL, 0, 3, &contexts[4]));
	POST(fi_trecv(srx, in[0], 8, NULL, FI_ADDR_UNSPEC, 3, 0, &contexts[0]));
	done(&b, &a[1], &contexts[0]);
	done(&a[1], &b, &contexts[4]);
	CHECK(!strcmp(in[0], "tagged!"));
	/* When the other connection ends, this one gets the receives. */
	POST(fi_recv(srx, in[0], 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(fi_close(&accepted[1]->fid) == 0);
	POST(fi_send(a[0].ep, "message", 8, NULL, 0, &contexts[4]));
	done(&b, &a[0], &contexts[0]);
	done(&a[0], &b, &contexts[4]);
	CHECK(fi_close(&accepted[0]->fid) == 0 && fi_close(&srx->fid) == 0 && fi_close(&pep->fid) == 0);
	close_side(&a[0]);
	close_side(&a[1]);
	close_side(&b);
}

CASE_OURS(srx_must_be_bound)
{
	struct fid_stx *stx;
	struct fid_ep *srx;
	struct side s;

	open_domain(&s, &RDM);
	s.info->ep_attr->rx_ctx_cnt = s.info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	srx = open_srx(&s);
	CHECK(fi_stx_context(s.domain, s.info->tx_attr, &stx, NULL) == 0);
	CHECK(fi_endpoint(s.domain, s.info, &s.ep, &s) == 0);
	CHECK(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(s.ep, &s.av->fid, 0) == 0);
	CHECK(fi_enable(s.ep) == -FI_EOPBADSTATE);
	CHECK(fi_ep_bind(s.ep, &srx->fid, 0) == 0);
	CHECK(fi_enable(s.ep) == -FI_EOPBADSTATE);
	CHECK(fi_ep_bind(s.ep, &stx->fid, 0) == 0);
	CHECK(fi_enable(s.ep) == 0);
	/* An enabled endpoint cannot be bound to another context. */
	CHECK(fi_ep_bind(s.ep, &srx->fid, 0) < 0);
	CHECK(fi_close(&s.ep->fid) == 0);
	s.ep = NULL;
	CHECK(fi_close(&srx->fid) == 0 && fi_close(&stx->fid) == 0);
	close_side(&s);
}

/* The address vector may be bound before the context or after it. */
CASE_OURS(srx_endpoints_share_one_av)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fid_ep *srx, *eps[3];
	struct fid_av *other;
	struct side s;
	int i;

	open_domain(&s, &RDM);
	srx = open_srx(&s);
	CHECK(fi_av_open(s.domain, &attr, &other, NULL) == 0);
	for (i = 0; i < 3; i++) {
		CHECK(fi_endpoint(s.domain, s.info, &eps[i], NULL) == 0);
		CHECK(fi_ep_bind(eps[i], &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	}
	CHECK(fi_ep_bind(eps[0], &s.av->fid, 0) == 0 && fi_ep_bind(eps[0], &srx->fid, 0) == 0);
	CHECK(fi_ep_bind(eps[1], &other->fid, 0) == 0 && fi_ep_bind(eps[1], &srx->fid, 0) == -FI_EINVAL);
	CHECK(fi_ep_bind(eps[2], &srx->fid, 0) == 0 && fi_ep_bind(eps[2], &other->fid, 0) == -FI_EINVAL);
	CHECK(fi_ep_bind(eps[2], &s.av->fid, 0) == 0);
	CHECK(fi_enable(eps[0]) == 0 && fi_enable(eps[2]) == 0);
	for (i = 0; i < 3; i++)
		CHECK(fi_close(&eps[i]->fid) == 0);
	CHECK(fi_close(&srx->fid) == 0 && fi_close(&other->fid) == 0);
	close_side(&s);
}
