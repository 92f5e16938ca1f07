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

/* How many transmit contexts there may be. */
static int transmit_contexts = CTXS;

/* Everything but the contexts. */
static void open_portal(struct sep *p, const struct want *w)
{
	int i;

	memset(p, 0, sizeof(*p));
	open_domain(&p->s, w);
	named_av(&p->s);
	p->s.info->ep_attr->tx_ctx_cnt = (size_t) transmit_contexts;
	p->s.info->ep_attr->rx_ctx_cnt = CTXS;
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
		if (i < transmit_contexts)
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

/* A message and its answer, from the transmit contexts t to the receive contexts i; nobody reads the transmit queues. */
static void echo_without_transmit_queues(struct sep *a, struct sep *b, int t, int i)
{
	struct sep *sides[] = { a, b };
	struct fi_cq_tagged_entry entry;
	double end = seconds() + 20;
	int got[2] = { 0, 0 };
	char in[2][8];
	int k;

	for (k = 0; k < 2; k++)
		CHECK(fi_recv(sides[k]->rx[i], in[k], 8, NULL, FI_ADDR_UNSPEC, &contexts[k]) == 0);
	CHECK(fi_send(a->tx[t], "question", 8, NULL, fi_rx_addr(a->peer, i, BITS), &contexts[2]) == 0);
	while (!got[0]) {
		CHECK(seconds() < end);
		for (k = 0; k < 2; k++) {
			ssize_t ret = fi_cq_read(sides[k]->rxcq[i], &entry, 1);

			CHECK(ret == 1 || ret == -FI_EAGAIN);
			if (ret == 1 && !got[k]++ && k == 1)
				CHECK(fi_send(b->tx[t], "answer", 7, NULL, fi_rx_addr(b->peer, i, BITS), &contexts[3]) == 0);
		}
	}
	CHECK(!memcmp(in[1], "question", 8) && !strcmp(in[0], "answer"));
	done_of(a->txcq[t], &contexts[2], NULL);
	done_of(b->txcq[t], &contexts[3], NULL);
}

CASE_OURS(sep_a_context_makes_progress_with_its_partner)
{
	struct sep a, b;

	meet_seps(&a, &b);
	echo_without_transmit_queues(&a, &b, 0, 0);
	/* Whichever is enabled first; and again with another partner. */
	CHECK(fi_close(&a.tx[1]->fid) == 0 && fi_close(&b.rx[1]->fid) == 0);
	open_tx(&a, 1);
	open_rx(&b, 1);
	echo_without_transmit_queues(&a, &b, 1, 1);
	close_sep(&a);
	close_sep(&b);
	/* The only transmit context is everyone's partner. */
	transmit_contexts = 1;
	meet_seps(&a, &b);
	echo_without_transmit_queues(&a, &b, 0, 2);
	close_sep(&a);
	close_sep(&b);
	transmit_contexts = CTXS;
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
	REFUSED("data transfers on a scalable endpoint itself", FI_ENOSYS, fi_send(p.ep, buf, 1, NULL, 0, NULL));
	REFUSED("fi_cancel of a passive or scalable endpoint or a shared transmit context",
		FI_ENOSYS, fi_cancel(&p.ep->fid, NULL));
	CHECK(fi_tx_context(p.ep, CTXS, NULL, &ep, NULL) == -FI_EINVAL && fi_tx_context(p.ep, -1, NULL, &ep, NULL) == -FI_EINVAL);
	CHECK(fi_rx_context(p.ep, CTXS, NULL, &ep, NULL) == -FI_EINVAL);
	/* A context inherits the endpoint's attributes, and says which it has. */
	memset(&tx, 0, sizeof(tx));
	tx.rma_iov_limit = p.s.info->tx_attr->rma_iov_limit + 1;
	CHECK(fi_tx_context(p.ep, 0, &tx, &ep, NULL) == -FI_EINVAL);
	tx.rma_iov_limit = 0;
	tx.mode = FI_ASYNC_IOV;
	CHECK(fi_tx_context(p.ep, 0, &tx, &p.tx[0], NULL) == 0);
	CHECK(tx.mode == p.s.info->tx_attr->mode && tx.rma_iov_limit == p.s.info->tx_attr->rma_iov_limit);
	CHECK(tx.size == p.s.info->tx_attr->size && tx.inject_size == p.s.info->tx_attr->inject_size);
	CHECK((tx.caps & (FI_MSG | FI_TAGGED | FI_RMA)) == (FI_MSG | FI_TAGGED | FI_RMA) && !(tx.caps & FI_RECV));
	REFUSED("fi_tx_context, fi_rx_context of an index that is open",
		FI_EBUSY, fi_tx_context(p.ep, 0, NULL, &ep, NULL));
	memset(&rx, 0, sizeof(rx));
	rx.caps = FI_TAGGED | FI_RECV;
	CHECK(fi_rx_context(p.ep, 2, &rx, &p.rx[2], NULL) == 0);
	CHECK(rx.size == p.s.info->rx_attr->size && rx.caps == (FI_TAGGED | FI_RECV));
	REFUSED("fi_tx_context, fi_rx_context of an index that is open",
		FI_EBUSY, fi_rx_context(p.ep, 2, NULL, &ep, NULL));
	rx.caps = FI_TAGGED | FI_HMEM;
	CHECK(fi_rx_context(p.ep, 1, &rx, &ep, NULL) == -FI_EINVAL);
	tx.inject_size = p.s.info->tx_attr->inject_size + 1;
	CHECK(fi_tx_context(p.ep, 1, &tx, &ep, NULL) == -FI_EINVAL);
	/* As many operations as an endpoint cannot have either. */
	memset(&tx, 0, sizeof(tx));
	memset(&rx, 0, sizeof(rx));
	tx.size = rx.size = (size_t) 1 << 40;
	CHECK(fi_tx_context(p.ep, 1, &tx, &ep, NULL) == -FI_EINVAL && fi_rx_context(p.ep, 1, &rx, &ep, NULL) == -FI_EINVAL);
	/* Each binds a queue of its own, for its direction, and needs it. */
	CHECK(fi_enable(p.tx[0]) == -FI_ENOCQ && fi_enable(p.rx[2]) == -FI_ENOCQ);
	REFUSED("a completion queue or counter for receiving at a transmit context, or for transmitting at a receive context",
		FI_EINVAL, fi_ep_bind(p.tx[0], &p.txcq[0]->fid, FI_RECV));
	REFUSED("a completion queue or counter for receiving at a transmit context, or for transmitting at a receive context",
		FI_EINVAL, fi_ep_bind(p.rx[2], &p.txcq[0]->fid, FI_TRANSMIT));
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

/* A context counts the operations that it has, and says how many more it takes. */
CASE_OURS(sep_contexts_have_one_direction)
{
	static const uint64_t transmits[] = { FI_SEND, FI_READ, FI_WRITE };
	static const uint64_t receives[] = { FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE };
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *cntr;
	struct sep p;
	size_t i;

	open_sep(&p, &NAMED);
	CHECK(fi_cntr_open(p.s.domain, &attr, &cntr, NULL) == 0);
	for (i = 0; i < ARRAY(transmits); i++) {
		REFUSED("a completion queue or counter for receiving at a transmit context, or for transmitting at a receive context",
			FI_EINVAL, fi_ep_bind(p.tx[0], &cntr->fid, receives[i]));
		REFUSED("a completion queue or counter for receiving at a transmit context, or for transmitting at a receive context",
			FI_EINVAL, fi_ep_bind(p.rx[0], &cntr->fid, transmits[i]));
		CHECK(fi_ep_bind(p.tx[0], &cntr->fid, transmits[i] | FI_RECV) == -FI_EINVAL);
	}
	/* What was refused has not been bound. */
	CHECK(fi_ep_bind(p.tx[0], &cntr->fid, FI_SEND | FI_READ | FI_WRITE) == 0);
	CHECK(fi_ep_bind(p.rx[0], &cntr->fid, FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE) == 0);
	CHECK(fi_tx_size_left(p.tx[0]) == (ssize_t) p.s.info->tx_attr->size);
	CHECK(fi_rx_size_left(p.rx[0]) == (ssize_t) p.s.info->rx_attr->size);
	REFUSED("fi_tx_size_left, fi_rx_size_left of an object without such operations",
		FI_ENOSYS, fi_rx_size_left(p.tx[0]));
	REFUSED("fi_tx_size_left, fi_rx_size_left of an object without such operations",
		FI_ENOSYS, fi_tx_size_left(p.rx[0]));
	close_contexts(&p);
	CHECK(fi_close(&cntr->fid) == 0);
	close_sep(&p);
}

CASE_OURS(sep_handles_leave_bits_free)
{
	struct fi_av_attr attr = { .rx_ctx_bits = 63 };
	struct sep p;
	struct side a, b;
	struct fid_av *av;
	fi_addr_t addr;
	char name[64];
	size_t len = sizeof(name);

	open_side(&a, &NAMED);
	open_side(&b, &NAMED);
	open_portal(&p, &NAMED);
	CHECK(insert(&p.s, a.name) >> (64 - BITS) == 0 && insert(&p.s, b.name) >> (64 - BITS) == 0);
	/* An address with an index is that of the endpoint. */
	CHECK(fi_av_lookup(p.s.av, fi_rx_addr(1, 7, BITS), name, &len) == 0 && !memcmp(name, b.name, len));
	CHECK(fi_av_open(p.s.domain, &attr, &av, NULL) == 0);
	CHECK(fi_av_insert(av, a.name, 1, &addr, 0, NULL) == 1 && addr == 0);
	CHECK(fi_av_insert(av, b.name, 1, &addr, 0, NULL) == 1 && addr == 1);
	/* One bit is left for handles. */
	CHECK(fi_av_insert(av, p.s.name, 1, &addr, 0, NULL) != 1);
	CHECK(fi_close(&av->fid) == 0);
	close_sep(&p);
	close_side(&a);
	close_side(&b);
}

CASE_OURS(sep_contexts_are_targets_of_accesses)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fi_rma_iov remote;
	struct fid_cntr *written;
	static char memory[4096], out[4096], back[4096];
	struct fid_mr *mr;
	struct sep a, b;
	uint64_t one = 1, old = 0, base;
	fi_addr_t to;
	int i;

	meet_seps(&a, &b);
	CHECK(fi_close(&b.rx[2]->fid) == 0);
	CHECK(fi_rx_context(b.ep, 2, NULL, &b.rx[2], NULL) == 0);
	CHECK(fi_cntr_open(b.s.domain, &attr, &written, NULL) == 0);
	CHECK(fi_ep_bind(b.rx[2], &b.rxcq[2]->fid, FI_RECV) == 0);
	CHECK(fi_ep_bind(b.rx[2], &written->fid, FI_REMOTE_WRITE) == 0);
	CHECK(fi_enable(b.rx[2]) == 0);
	CHECK(fi_mr_reg(b.s.domain, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL) == 0);
	base = b.s.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t) memory : 0;
	remote = (struct fi_rma_iov) { .addr = base, .len = sizeof(memory), .key = fi_mr_key(mr) };
	to = fi_rx_addr(a.peer, 2, BITS);
	for (i = 0; i < CTXS; i++) {
		memset(out, 'a' + i, sizeof(out));
		POST_ALL(fi_write(a.tx[i], out, sizeof(out), NULL, to, remote.addr, remote.key, &contexts[i]));
		done_of(a.txcq[i], &contexts[i], NULL);
		POST_ALL(fi_read(a.tx[i], back, sizeof(back), NULL, to, remote.addr, remote.key, &contexts[i]));
		done_of(a.txcq[i], &contexts[i], NULL);
		CHECK(!memcmp(back, out, sizeof(back)) && !memcmp(memory, out, sizeof(memory)));
	}
	/* The accesses were this context's: its counter has them. */
	CHECK(fi_cntr_read(written) == CTXS && fi_cntr_readerr(written) == 0);
	memset(memory, 0, 8);
	for (i = 0; i < CTXS; i++) {
		POST_ALL(fi_fetch_atomic(a.tx[i], &one, 1, NULL, &old, NULL, to, remote.addr, remote.key, FI_UINT64, FI_SUM, &contexts[i]));
		done_of(a.txcq[i], &contexts[i], NULL);
		CHECK(old == (uint64_t) i);
	}
	/* Its queue has the data of the accesses. */
	POST_ALL(fi_writedata(a.tx[0], out, 8, NULL, 77, to, remote.addr, remote.key, &contexts[0]));
	done_of(a.txcq[0], &contexts[0], NULL);
	CHECK(done_of(b.rxcq[2], NULL, NULL).data == 77);
	/* A counter stays open while a context is bound to it. */
	CHECK(fi_close(&written->fid) == -FI_EBUSY);
	CHECK(fi_close(&mr->fid) == 0);
	close_contexts(&b);
	CHECK(fi_close(&written->fid) == 0);
	close_sep(&b);
	close_sep(&a);
}

CASE_OURS(sep_requests_wait_for_their_context)
{
	struct sep a, b;
	char in[8];

	open_sep(&a, &NAMED);
	open_portal(&b, &NAMED);
	a.peer = insert(&a.s, b.s.name);
	/* The second context is not open, and the first is not enabled. */
	POST_ALL(fi_send(a.tx[0], "waiting", 8, NULL, fi_rx_addr(a.peer, 1, BITS), &contexts[0]));
	POST_ALL(fi_send(a.tx[1], "waiting", 8, NULL, a.peer, &contexts[1]));
	CHECK(fi_rx_context(b.ep, 0, NULL, &b.rx[0], NULL) == 0);
	quiet_of(a.txcq[0]);
	quiet_of(a.txcq[1]);
	open_rx(&b, 1);
	POST_ALL(fi_recv(b.rx[1], in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	done_of(b.rxcq[1], &contexts[2], NULL);
	CHECK(!strcmp(in, "waiting"));
	done_of(a.txcq[0], &contexts[0], NULL);
	/* The first ends without having been enabled. */
	CHECK(fi_close(&b.rx[0]->fid) == 0);
	b.rx[0] = NULL;
	CHECK(failed_of(a.txcq[1], &contexts[1]) == FI_ECONNREFUSED);
	/* There is no such context. */
	POST_ALL(fi_send(a.tx[2], "nowhere", 8, NULL, fi_rx_addr(a.peer, CTXS, BITS), &contexts[3]));
	CHECK(failed_of(a.txcq[2], &contexts[3]) == FI_ECONNREFUSED);
	/* A request for a context that is never opened ends with the endpoint. */
	POST_ALL(fi_send(a.tx[2], "absent", 7, NULL, fi_rx_addr(a.peer, 2, BITS), &contexts[4]));
	quiet_of(a.txcq[2]);
	close_sep(&b);
	failed_of(a.txcq[2], &contexts[4]);
	close_sep(&a);
}

CASE_OURS(sep_contexts_have_aliases)
{
	struct fid_ep *alias, *second;
	struct sep a, b;
	char in[8];
	uint64_t flags;

	meet_seps(&a, &b);
	CHECK(fi_ep_alias(a.tx[1], &alias, FI_TRANSMIT | FI_RECV) == -FI_EINVAL);
	CHECK(fi_ep_alias(a.tx[1], &alias, FI_TRANSMIT | FI_MATCH_COMPLETE) == 0);
	CHECK(alias->fid.fclass == FI_CLASS_TX_CTX && alias->fid.context == a.tx[1]->fid.context);
	flags = FI_TRANSMIT;
	CHECK(fi_control(&alias->fid, FI_GETOPSFLAG, &flags) == 0 && flags == FI_MATCH_COMPLETE);
	flags = FI_TRANSMIT;
	CHECK(fi_control(&a.tx[1]->fid, FI_GETOPSFLAG, &flags) == 0 && !(flags & FI_MATCH_COMPLETE));
	CHECK(fi_ep_alias(b.rx[1], &second, FI_RECV) == 0 && second->fid.fclass == FI_CLASS_RX_CTX);
	/* The alias asks by default for a completion once a receive matches. */
	POST_ALL(fi_send(alias, "alias", 6, NULL, fi_rx_addr(a.peer, 1, BITS), &contexts[0]));
	quiet_of(a.txcq[1]);
	POST_ALL(fi_recv(second, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[1]));
	done_of(b.rxcq[1], &contexts[1], NULL);
	done_of(a.txcq[1], &contexts[0], NULL);
	CHECK(!strcmp(in, "alias"));
	CHECK(fi_close(&a.tx[1]->fid) == -FI_EBUSY && fi_close(&b.rx[1]->fid) == -FI_EBUSY);
	CHECK(fi_close(&alias->fid) == 0 && fi_close(&second->fid) == 0);
	close_sep(&a);
	close_sep(&b);
}

/* A scalable set of transmit contexts, and a shared receive context. */
CASE_OURS(sep_with_a_shared_receive_context)
{
	struct fid_ep *srx, *rx;
	struct sep a, b;
	char in[8];
	int i;

	open_sep(&a, &NAMED);
	open_portal(&b, &NAMED);
	CHECK(fi_close(&b.ep->fid) == 0);
	b.s.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	CHECK(fi_scalable_ep(b.s.domain, b.s.info, &b.ep, &b) == 0);
	CHECK(fi_scalable_ep_bind(b.ep, &b.s.av->fid, 0) == 0);
	b.s.len = sizeof(b.s.name);
	CHECK(fi_getname(&b.ep->fid, b.s.name, &b.s.len) == 0);
	a.peer = insert(&a.s, b.s.name);
	b.peer = insert(&b.s, a.s.name);
	CHECK(fi_srx_context(b.s.domain, b.s.info->rx_attr, &srx, NULL) == 0);
	for (i = 0; i < CTXS; i++)
		open_tx(&b, i);
	CHECK(fi_rx_context(b.ep, 1, NULL, &rx, NULL) == -FI_EINVAL);
	CHECK(fi_rx_context(b.ep, 0, NULL, &b.rx[0], NULL) == 0);
	CHECK(fi_ep_bind(b.rx[0], &b.rxcq[0]->fid, FI_RECV) == 0);
	CHECK(fi_enable(b.rx[0]) == -FI_EOPBADSTATE);
	CHECK(fi_ep_bind(b.rx[0], &srx->fid, 0) == 0 && fi_enable(b.rx[0]) == 0);
	for (i = 0; i < CTXS; i++) {
		POST_ALL(fi_recv(srx, in, 8, NULL, b.peer, &contexts[4]));
		POST_ALL(fi_inject(a.tx[i], "shared", 7, a.peer));
		done_of(b.rxcq[0], &contexts[4], NULL);
		CHECK(!strcmp(in, "shared"));
		POST_ALL(fi_recv(a.rx[i], in, 8, NULL, FI_ADDR_UNSPEC, &contexts[5]));
		POST_ALL(fi_inject(b.tx[i], "back", 5, fi_rx_addr(b.peer, i, BITS)));
		done_of(a.rxcq[i], &contexts[5], NULL);
	}
	CHECK(fi_close(&srx->fid) == -FI_EBUSY);
	close_contexts(&b);
	CHECK(fi_close(&srx->fid) == 0);
	close_sep(&b);
	close_sep(&a);
}

#define ROUNDS	2000

struct worker {
	struct sep *a, *b;
	int i, sleeps;
	pthread_t thread;
};

static void take_one(struct worker *w, struct fid_cq *cq, struct fid_cq *other)
{
	struct fi_cq_tagged_entry entry;
	double end = seconds() + 20;
	ssize_t ret;

	do {
		ret = w->sleeps ? fi_cq_sread(cq, &entry, 1, NULL, 1) : fi_cq_read(cq, &entry, 1);
		if (other)
			fi_cq_read(other, NULL, 0);
	} while (ret == -FI_EAGAIN && seconds() < end);
	CHECK(ret == 1);
}

/* A ping-pong that reads the queues of two contexts of each side alone. */
static void *exchange(void *arg)
{
	struct worker *w = arg;
	struct sep *a = w->a, *b = w->b;
	char ping[64], pong[64];
	int i = w->i, round;

	for (round = 0; round < ROUNDS; round++) {
		sprintf(ping, "%d %d", i, round);
		CHECK(fi_recv(b->rx[i], pong, sizeof(pong), NULL, b->peer, NULL) == 0);
		while (fi_inject(a->tx[i], ping, strlen(ping) + 1, fi_rx_addr(a->peer, i, BITS)) == -FI_EAGAIN)
			fi_cq_read(a->txcq[i], NULL, 0);
		take_one(w, b->rxcq[i], a->txcq[i]);
		CHECK(!strcmp(ping, pong));
		CHECK(fi_recv(a->rx[i], pong, sizeof(pong), NULL, FI_ADDR_UNSPEC, NULL) == 0);
		while (fi_inject(b->tx[i], ping, strlen(ping) + 1, fi_rx_addr(b->peer, i, BITS)) == -FI_EAGAIN)
			fi_cq_read(b->txcq[i], NULL, 0);
		take_one(w, a->rxcq[i], b->txcq[i]);
		CHECK(!strcmp(ping, pong));
	}
	return NULL;
}

static void exchange_all(const struct want *want, int sleeps)
{
	struct worker workers[CTXS];
	struct sep a, b;
	int i;

	open_sep(&a, want);
	open_sep(&b, want);
	a.peer = insert(&a.s, b.s.name);
	b.peer = insert(&b.s, a.s.name);
	for (i = 0; i < CTXS; i++) {
		workers[i] = (struct worker) { .a = &a, .b = &b, .i = i, .sleeps = sleeps };
		CHECK(pthread_create(&workers[i].thread, NULL, exchange, &workers[i]) == 0);
	}
	for (i = 0; i < CTXS; i++)
		CHECK(pthread_join(workers[i].thread, NULL) == 0);
	close_sep(&a);
	close_sep(&b);
}

CASE_OURS(sep_threads_have_contexts_of_their_own)
{
	exchange_all(&NAMED, 0);
}

CASE_OURS(sep_threads_sleep_on_their_contexts)
{
	struct want want = NAMED;

	want.wait = FI_WAIT_FD;
	exchange_all(&want, 1);
	want.progress = FI_PROGRESS_AUTO;
	exchange_all(&want, 1);
}

/* Contexts share a queue, and one thread does everything. */
CASE_OURS(sep_contexts_share_a_queue)
{
	struct want want = NAMED;
	struct sep a, b;
	char in[CTXS][8];
	int i;

	want.threading = FI_THREAD_DOMAIN;
	want.progress = ALONE;
	open_sep(&a, &want);
	open_portal(&b, &want);
	a.peer = insert(&a.s, b.s.name);
	for (i = 0; i < CTXS; i++) {
		CHECK(fi_rx_context(b.ep, i, NULL, &b.rx[i], NULL) == 0);
		CHECK(fi_ep_bind(b.rx[i], &b.rxcq[0]->fid, FI_RECV) == 0 && fi_enable(b.rx[i]) == 0);
		POST_ALL(fi_recv(b.rx[i], in[i], 8, NULL, FI_ADDR_UNSPEC, &contexts[i]));
	}
	for (i = 0; i < CTXS; i++) {
		POST_ALL(fi_inject(a.tx[i], "queue", 6, fi_rx_addr(a.peer, i, BITS)));
		done_of(b.rxcq[0], &contexts[i], NULL);
		CHECK(!strcmp(in[i], "queue"));
		/* The others go on when one is closed; the last takes no requests with it. */
		if (i < CTXS - 1) {
			CHECK(fi_close(&b.rx[i]->fid) == 0);
			b.rx[i] = NULL;
		}
	}
	POST_ALL(fi_recv(b.rx[2], in[2], 8, NULL, FI_ADDR_UNSPEC, &contexts[7]));
	POST_ALL(fi_inject(a.tx[0], "again", 6, fi_rx_addr(a.peer, 2, BITS)));
	done_of(b.rxcq[0], &contexts[7], NULL);
	CHECK(!strcmp(in[2], "again"));
	close_sep(&b);
	close_sep(&a);
}

CASE_OURS(sep_contexts_close_while_in_use)
{
	static char long_message[1 << 20];
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct sep a, b;
	char in[8];
	int i;

	meet_seps(&a, &b);
	for (i = 0; i < CTXS; i++) {
		POST_ALL(fi_recv(b.rx[i], in, 8, NULL, FI_ADDR_UNSPEC, &contexts[i]));
		CHECK(fi_cancel(&b.rx[i]->fid, &contexts[i]) == 0);
		CHECK(failed_of(b.rxcq[i], &contexts[i]) == FI_ECANCELED);
		POST_ALL(fi_send(a.tx[i], long_message, sizeof(long_message), NULL, fi_rx_addr(a.peer, i, BITS), &contexts[i]));
		quiet_of(a.txcq[i]);
	}
	/* Their peers' messages fail, each once. */
	close_contexts(&b);
	for (i = 0; i < CTXS; i++) {
		CHECK(next_of(a.txcq[i], &entry, &err, NULL) == 0 && err.op_context == &contexts[i]);
		quiet_of(a.txcq[i]);
	}
	close_sep(&b);
	/* The endpoint is closed. */
	POST_ALL(fi_send(a.tx[0], in, 8, NULL, a.peer, &contexts[0]));
	CHECK(next_of(a.txcq[0], &entry, &err, NULL) == 0);
	close_sep(&a);
}

CASE_OURS(sep_contexts_are_offered)
{
	struct fi_info *hints = hints_for(&NAMED), *info;
	int local = within_host(&NAMED);

	hints->ep_attr->tx_ctx_cnt = 16;
	hints->ep_attr->rx_ctx_cnt = 5;
	CHECK(fi_getinfo(API, local ? NULL : "127.0.0.1", NULL, local ? 0 : FI_SOURCE, hints, &info) == 0);
	CHECK(info->ep_attr->tx_ctx_cnt == 16 && info->ep_attr->rx_ctx_cnt == 5);
	CHECK(info->domain_attr->max_ep_tx_ctx >= 16 && info->domain_attr->max_ep_rx_ctx >= 16);
	CHECK(info->caps & FI_NAMED_RX_CTX);
	fi_freeinfo(info);
	hints->ep_attr->tx_ctx_cnt = 1 << 20;
	CHECK(fi_getinfo(API, local ? NULL : "127.0.0.1", NULL, local ? 0 : FI_SOURCE, hints, &info) == -FI_ENODATA);
	/* Connected endpoints have one of each. */
	hints->ep_attr->tx_ctx_cnt = 2;
	hints->caps &= ~(FI_NAMED_RX_CTX | FI_SOURCE | FI_DIRECTED_RECV);
	hints->ep_attr->type = FI_EP_MSG;
	CHECK(fi_getinfo(API, local ? NULL : "127.0.0.1", NULL, local ? 0 : FI_SOURCE, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
}

CASE_OURS(sep_types_that_have_no_contexts)
{
	struct want msg = { .type = FI_EP_MSG };
	struct fid_ep *ep;
	struct side s;
	uint64_t flags = FI_TRANSMIT;

	open_domain(&s, &RDM);
	CHECK(fi_scalable_ep(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_control(&ep->fid, FI_GETOPSFLAG, &flags) == -FI_ENOSYS && fi_cancel(&ep->fid, NULL) == -FI_ENOSYS);
	CHECK(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &flags, &(size_t) { 8 }) == -FI_ENOPROTOOPT);
	CHECK(fi_tx_size_left(ep) == -FI_ENOSYS && fi_rx_size_left(ep) == -FI_ENOSYS);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
	open_side(&s, &RDM);
	REFUSED("fi_tx_context, fi_rx_context of an ordinary endpoint",
		FI_ENOSYS, fi_tx_context(s.ep, 0, s.info->tx_attr, &ep, NULL));
	REFUSED("fi_tx_context, fi_rx_context of an ordinary endpoint",
		FI_ENOSYS, fi_rx_context(s.ep, 0, s.info->rx_attr, &ep, NULL));
	close_side(&s);
	open_domain(&s, &msg);
	REFUSED("fi_scalable_ep of a type other than FI_EP_RDM",
		FI_ENOSYS, fi_scalable_ep(s.domain, s.info, &ep, NULL));
	CHECK(fi_scalable_ep(s.domain, NULL, &ep, NULL) == -FI_EINVAL);
	close_side(&s);
}
