/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Scalable endpoints and their contexts (fi_endpoint(3)), and named receive contexts (fi_av(3)). */
#include "case.h"
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define CTXS	3
#define BITS	4

/* A scalable endpoint with CTXS contexts of each kind, each with its completion queue. */
struct sep {
	struct side s;
	struct fid_ep *ep, *tx[CTXS], *rx[CTXS];
	struct fid_cq *txcq[CTXS], *rxcq[CTXS];
	fi_addr_t peer;
};

static const struct want NAMED = {
	.caps = FI_TAGGED | FI_RMA | FI_ATOMIC | FI_NAMED_RX_CTX | FI_SOURCE | FI_DIRECTED_RECV,
};

static struct fid_cq *queues[64];

static struct fid_cq *open_queue(struct side *s)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = s->want.wait };
	struct fid_cq *cq;
	size_t i = 0;

	CHECK(fi_cq_open(s->domain, &attr, &cq, NULL) == 0);
	while (i < ARRAY(queues) - 1 && queues[i])
		i++;
	queues[i] = cq;
	return cq;
}

static void close_queue(struct fid_cq *cq)
{
	size_t i;

	for (i = 0; i < ARRAY(queues); i++)
		if (queues[i] == cq)
			queues[i] = NULL;
	CHECK(fi_close(&cq->fid) == 0);
}

static void drive_all(void)
{
	size_t i;

	drive();
	for (i = 0; i < ARRAY(queues); i++)
		if (queues[i])
			fi_cq_read(queues[i], NULL, 0);
}

/* Posts, and drives everything while there is no room. */
#define POST_ALL(call) \
	do { \
		double end_ = seconds() + 10; \
		ssize_t ret_; \
		while ((ret_ = (call)) == -FI_EAGAIN && seconds() < end_) \
			drive_all(); \
		if (ret_) \
			fprintf(stderr, "%s\n", fi_strerror((int) -ret_)); \
		CHECK(ret_ == 0); \
	} while (0)

/* The next entry of a queue: 1, or 0 for an error, while everything makes progress. */
static int next_of(struct fid_cq *cq, struct fi_cq_tagged_entry *entry, struct fi_cq_err_entry *err, fi_addr_t *src)
{
	double end = seconds() + 20;
	ssize_t ret;

	do {
		ret = fi_cq_readfrom(cq, entry, 1, src);
		drive_all();
	} while (ret == -FI_EAGAIN && seconds() < end);
	if (ret == 1)
		return 1;
	CHECK(ret == -FI_EAVAIL);
	memset(err, 0, sizeof(*err));
	CHECK(fi_cq_readerr(cq, err, 0) == 1);
	return 0;
}

static struct fi_cq_tagged_entry done_of(struct fid_cq *cq, void *context, fi_addr_t *src)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	fi_addr_t from;
	int ret = next_of(cq, &entry, &err, &from);

	if (ret == 0)
		fprintf(stderr, "failed: %s, %s\n", fi_strerror(err.err),
			fi_cq_strerror(cq, err.prov_errno, err.err_data, NULL, 0));
	CHECK(ret == 1 && entry.op_context == context);
	if (src)
		*src = from;
	return entry;
}

static int failed_of(struct fid_cq *cq, void *context)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;

	CHECK(next_of(cq, &entry, &err, NULL) == 0 && err.op_context == context);
	return err.err;
}

static void quiet_of(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry;
	double end = seconds() + 0.05;

	while (seconds() < end) {
		drive_all();
		CHECK(fi_cq_read(cq, &entry, 1) == -FI_EAGAIN);
	}
}

static void named_av(struct side *s)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .rx_ctx_bits = BITS };

	CHECK(fi_close(&s->av->fid) == 0);
	CHECK(fi_av_open(s->domain, &attr, &s->av, NULL) == 0);
}

static void open_tx(struct sep *p, int i)
{
	struct fi_tx_attr attr = *p->s.info->tx_attr;

	CHECK(fi_tx_context(p->ep, i, &attr, &p->tx[i], &contexts[i]) == 0);
	CHECK(p->tx[i]->fid.fclass == FI_CLASS_TX_CTX && p->tx[i]->fid.context == &contexts[i]);
	CHECK(fi_ep_bind(p->tx[i], &p->txcq[i]->fid, FI_TRANSMIT) == 0);
	CHECK(fi_enable(p->tx[i]) == 0);
}

static void open_rx(struct sep *p, int i)
{
	struct fi_rx_attr attr = *p->s.info->rx_attr;

	CHECK(fi_rx_context(p->ep, i, &attr, &p->rx[i], &contexts[i]) == 0);
	CHECK(p->rx[i]->fid.fclass == FI_CLASS_RX_CTX && p->rx[i]->fid.context == &contexts[i]);
	CHECK(fi_ep_bind(p->rx[i], &p->rxcq[i]->fid, FI_RECV) == 0);
	CHECK(fi_enable(p->rx[i]) == 0);
}

/* Everything but the contexts. */
static void open_portal(struct sep *p, const struct want *w)
{
	int i;

	memset(p, 0, sizeof(*p));
	open_domain(&p->s, w);
	named_av(&p->s);
	p->s.info->ep_attr->tx_ctx_cnt = p->s.info->ep_attr->rx_ctx_cnt = CTXS;
	CHECK(fi_scalable_ep(p->s.domain, p->s.info, &p->ep, p) == 0);
	CHECK(p->ep->fid.fclass == FI_CLASS_SEP && p->ep->fid.context == p);
	CHECK(fi_scalable_ep_bind(p->ep, &p->s.av->fid, 0) == 0);
	for (i = 0; i < CTXS; i++) {
		p->txcq[i] = open_queue(&p->s);
		p->rxcq[i] = open_queue(&p->s);
	}
	p->s.len = sizeof(p->s.name);
	CHECK(fi_getname(&p->ep->fid, p->s.name, &p->s.len) == 0);
}

static void open_sep(struct sep *p, const struct want *w)
{
	int i;

	open_portal(p, w);
	for (i = 0; i < CTXS; i++) {
		open_tx(p, i);
		open_rx(p, i);
	}
}

static void close_contexts(struct sep *p)
{
	int i;

	for (i = 0; i < CTXS; i++) {
		if (p->tx[i])
			CHECK(fi_close(&p->tx[i]->fid) == 0);
		if (p->rx[i])
			CHECK(fi_close(&p->rx[i]->fid) == 0);
		p->tx[i] = p->rx[i] = NULL;
	}
}

static void close_sep(struct sep *p)
{
	int i;

	close_contexts(p);
	CHECK(fi_close(&p->ep->fid) == 0);
	for (i = 0; i < CTXS; i++) {
		close_queue(p->txcq[i]);
		close_queue(p->rxcq[i]);
	}
	close_side(&p->s);
}

static void meet_seps(struct sep *a, struct sep *b)
{
	open_sep(a, &NAMED);
	open_sep(b, &NAMED);
	a->peer = insert(&a->s, b->s.name);
	b->peer = insert(&b->s, a->s.name);
}

CASE_OURS(sep_each_context_reaches_each)
{
	struct sep a, b;
	char in[64], out[64];
	fi_addr_t from;
	int i, j;

	meet_seps(&a, &b);
	for (i = 0; i < CTXS; i++)
		for (j = 0; j < CTXS; j++) {
			sprintf(out, "from %d to %d", i, j);
			POST_ALL(fi_recv(b.rx[j], in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[j]));
			POST_ALL(fi_send(a.tx[i], out, strlen(out) + 1, NULL, fi_rx_addr(a.peer, j, BITS), &contexts[8 + i]));
			done_of(a.txcq[i], &contexts[8 + i], NULL);
			CHECK(done_of(b.rxcq[j], &contexts[j], &from).len == strlen(out) + 1);
			CHECK(!strcmp(in, out) && from == b.peer);
		}
	/* Without an index it is the first. */
	POST_ALL(fi_trecv(b.rx[0], in, sizeof(in), NULL, b.peer, 5, 0, &contexts[0]));
	POST_ALL(fi_tinject(a.tx[2], "first", 6, a.peer, 5));
	done_of(b.rxcq[0], &contexts[0], NULL);
	CHECK(!strcmp(in, "first"));
	/* And back, on the same contexts. */
	POST_ALL(fi_recv(a.rx[1], in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[1]));
	POST_ALL(fi_inject(b.tx[1], "back", 5, fi_rx_addr(b.peer, 1, BITS)));
	done_of(a.rxcq[1], &contexts[1], NULL);
	CHECK(!strcmp(in, "back"));
	close_sep(&a);
	close_sep(&b);
}

CASE_OURS(sep_contexts_take_long_messages)
{
	static char out[CTXS][1 << 21], in[CTXS][1 << 21];
	struct sep a, b;
	int i;

	meet_seps(&a, &b);
	for (i = 0; i < CTXS; i++) {
		memset(out[i], 'a' + i, sizeof(out[i]));
		POST_ALL(fi_send(a.tx[i], out[i], sizeof(out[i]), NULL, fi_rx_addr(a.peer, CTXS - 1 - i, BITS), &contexts[i]));
	}
	for (i = 0; i < CTXS; i++)
		POST_ALL(fi_recv(b.rx[i], in[i], sizeof(in[i]), NULL, b.peer, &contexts[i]));
	for (i = 0; i < CTXS; i++) {
		CHECK(done_of(b.rxcq[i], &contexts[i], NULL).len == sizeof(in[i]));
		done_of(a.txcq[i], &contexts[i], NULL);
		CHECK(!memcmp(in[i], out[CTXS - 1 - i], sizeof(in[i])));
	}
	close_sep(&a);
	close_sep(&b);
}

/* An ordinary endpoint and a scalable one. */
CASE_OURS(sep_and_an_ordinary_endpoint)
{
	struct sep b;
	struct side a;
	fi_addr_t from;
	char in[CTXS][16], got[16];
	int i;

	open_domain(&a, &NAMED);
	named_av(&a);
	open_ep(&a, a.info);
	open_sep(&b, &NAMED);
	b.peer = insert(&b.s, a.name);
	from = insert(&a, b.s.name);
	/* Both sides connect at once. */
	for (i = 0; i < CTXS; i++) {
		POST_ALL(fi_inject(a.ep, "to context", 11, fi_rx_addr(from, i, BITS)));
		POST_ALL(fi_inject(b.tx[i], "from context", 13, b.peer));
	}
	for (i = 0; i < CTXS; i++) {
		POST_ALL(fi_recv(b.rx[i], in[i], 16, NULL, b.peer, &contexts[i]));
		done_of(b.rxcq[i], &contexts[i], NULL);
		CHECK(!strcmp(in[i], "to context"));
		/* A receive from the endpoint takes the messages of all its contexts. */
		POST_ALL(fi_recv(a.ep, got, 16, NULL, i ? from : fi_rx_addr(from, 2, BITS), &contexts[8]));
		done_of(a.cq, &contexts[8], NULL);
		CHECK(!strcmp(got, "from context"));
	}
	CHECK(fi_close(&a.ep->fid) == 0);
	a.ep = NULL;
	close_sep(&b);
	close_side(&a);
}

CASE_OURS(sep_rules)
{
	struct fi_tx_attr tx;
	struct fi_rx_attr rx;
	struct fid_ep *ep;
	struct fid_av *av;
	struct fi_av_attr bits = { .rx_ctx_bits = 64 };
	struct sep p;
	char buf[8];
	struct side s;

	open_domain(&s, &NAMED);
	CHECK(fi_av_open(s.domain, &bits, &av, NULL) == -FI_EINVAL);
	open_portal(&p, &NAMED);
	/* Several contexts take a scalable endpoint. */
	CHECK(fi_endpoint(p.s.domain, p.s.info, &ep, NULL) == -FI_EINVAL);
	p.s.info->ep_attr->tx_ctx_cnt = 1 << 20;
	CHECK(fi_scalable_ep(p.s.domain, p.s.info, &ep, NULL) == -FI_EINVAL);
	CHECK(fi_scalable_ep_bind(p.ep, &p.s.av->fid, 0) == -FI_EINVAL);
	CHECK(fi_scalable_ep_bind(p.ep, &s.av->fid, 0) == -FI_EDOMAIN);
	CHECK(fi_scalable_ep_bind(p.ep, &p.txcq[0]->fid, FI_TRANSMIT) == -FI_EINVAL);
	/* It has no operations. */
	CHECK(fi_send(p.ep, buf, 1, NULL, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_tx_context(p.ep, CTXS, NULL, &ep, NULL) == -FI_EINVAL && fi_tx_context(p.ep, -1, NULL, &ep, NULL) == -FI_EINVAL);
	CHECK(fi_rx_context(p.ep, CTXS, NULL, &ep, NULL) == -FI_EINVAL);
	/* A context inherits the endpoint's attributes, and says which it has. */
	memset(&tx, 0, sizeof(tx));
	CHECK(fi_tx_context(p.ep, 0, &tx, &p.tx[0], NULL) == 0);
	CHECK(tx.size == p.s.info->tx_attr->size && tx.inject_size == p.s.info->tx_attr->inject_size);
	CHECK((tx.caps & (FI_MSG | FI_TAGGED | FI_RMA)) == (FI_MSG | FI_TAGGED | FI_RMA) && !(tx.caps & FI_RECV));
	CHECK(fi_tx_context(p.ep, 0, NULL, &ep, NULL) == -FI_EBUSY);
	memset(&rx, 0, sizeof(rx));
	rx.caps = FI_TAGGED | FI_RECV;
	CHECK(fi_rx_context(p.ep, 2, &rx, &p.rx[2], NULL) == 0);
	CHECK(rx.size == p.s.info->rx_attr->size && rx.caps == (FI_TAGGED | FI_RECV));
	CHECK(fi_rx_context(p.ep, 2, NULL, &ep, NULL) == -FI_EBUSY);
	rx.caps = FI_TAGGED | FI_HMEM;
	CHECK(fi_rx_context(p.ep, 1, &rx, &ep, NULL) == -FI_EINVAL);
	tx.inject_size = p.s.info->tx_attr->inject_size + 1;
	CHECK(fi_tx_context(p.ep, 1, &tx, &ep, NULL) == -FI_EINVAL);
	/* Each binds a queue of its own, for its direction, and needs it. */
	CHECK(fi_enable(p.tx[0]) == -FI_ENOCQ && fi_enable(p.rx[2]) == -FI_ENOCQ);
	CHECK(fi_ep_bind(p.tx[0], &p.txcq[0]->fid, FI_RECV) == -FI_EINVAL);
	CHECK(fi_ep_bind(p.rx[2], &p.txcq[0]->fid, FI_TRANSMIT) == -FI_EINVAL);
	CHECK(fi_ep_bind(p.tx[0], &p.txcq[0]->fid, FI_TRANSMIT) == 0 && fi_enable(p.tx[0]) == 0);
	CHECK(fi_ep_bind(p.rx[2], &p.rxcq[2]->fid, FI_RECV) == 0 && fi_enable(p.rx[2]) == 0);
	CHECK(fi_recv(p.rx[2], buf, 8, NULL, FI_ADDR_UNSPEC, NULL) == -FI_ENOSYS);
	CHECK(fi_send(p.rx[2], buf, 8, NULL, 0, NULL) < 0 && fi_recv(p.tx[0], buf, 8, NULL, 0, NULL) < 0);
	POST_ALL(fi_trecv(p.rx[2], buf, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	/* What contexts use stays open, and so does the endpoint. */
	CHECK(fi_close(&p.ep->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.txcq[0]->fid) == -FI_EBUSY && fi_close(&p.rxcq[2]->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.s.av->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.tx[0]->fid) == 0);
	CHECK(fi_close(&p.ep->fid) == -FI_EBUSY);
	/* The index is free again. */
	open_tx(&p, 0);
	close_sep(&p);
	close_side(&s);
}
