/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * scalable: threads that do not meet. Two scalable endpoints have a transmit and a receive context for
 * each thread. A thread sends on its own transmit context and names the receive context of the peer
 * that is its own as well.
 *
 * FI_PROVIDER=shm ./scalable [THREADS]
 */
#include "common.h"

#include <pthread.h>
#include <string.h>

#include <rdma/fi_tagged.h>

#define ROUNDS 1000
#define MOST 16
#define BITS 4 /* of an address: they name one of 16 receive contexts */

/* One end of a path: a transmit and a receive context with a completion queue. */
struct end {
	struct fid_ep *tx, *rx;
	struct fid_cq *cq;
};

/* A scalable endpoint with its contexts. */
struct side {
	struct fid_av *av;
	struct fid_ep *sep;
	struct end ends[MOST];
	fi_addr_t peer;
};

struct path {
	struct side *sides;
	int index;
	pthread_t thread;
};

static void open_end(struct fid_domain *domain, struct side *s, int index)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct end *end = &s->ends[index];

	/* No other thread reads this queue, and so none waits for a lock of this path. */
	CHECK(fi_cq_open(domain, &cq_attr, &end->cq, NULL));
	CHECK(fi_tx_context(s->sep, index, NULL, &end->tx, NULL));
	CHECK(fi_ep_bind(end->tx, &end->cq->fid, FI_TRANSMIT));
	CHECK(fi_enable(end->tx));
	CHECK(fi_rx_context(s->sep, index, NULL, &end->rx, NULL));
	CHECK(fi_ep_bind(end->rx, &end->cq->fid, FI_RECV));
	CHECK(fi_enable(end->rx));
}

static void open_side(struct fid_domain *domain, struct fi_info *info, struct side *s, int count)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .rx_ctx_bits = BITS };
	int i;

	CHECK(fi_av_open(domain, &av_attr, &s->av, NULL));
	CHECK(fi_scalable_ep(domain, info, &s->sep, NULL));
	/* All contexts have this address vector. */
	CHECK(fi_scalable_ep_bind(s->sep, &s->av->fid, 0));
	for (i = 0; i < count; i++)
		open_end(domain, s, i);
}

static void close_side(struct side *s, int count)
{
	int i;

	for (i = 0; i < count; i++) {
		CHECK(fi_close(&s->ends[i].tx->fid));
		CHECK(fi_close(&s->ends[i].rx->fid));
		CHECK(fi_close(&s->ends[i].cq->fid));
	}
	CHECK(fi_close(&s->sep->fid));
	CHECK(fi_close(&s->av->fid));
}

/* Reads both ends' queues until this one has a completion of that context. */
static void wait_for(struct end *end, struct end *other, void *context)
{
	time_t limit = time(NULL) + TIME_LIMIT;
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	do {
		ret = fi_cq_read(end->cq, &entry, 1);
		fi_cq_read(other->cq, NULL, 0);
		check("wait for a completion", time(NULL) < limit ? 0 : -FI_ETIMEDOUT);
	} while (ret == -FI_EAGAIN);
	if (ret == -FI_EAVAIL)
		fail(end->cq);
	check("fi_cq_read", ret);
	check("compare the contexts", entry.op_context == context ? 0 : -FI_EOTHER);
}

static void pass(struct side *from, struct side *to, int index, int round)
{
	struct end *sender = &from->ends[index], *receiver = &to->ends[index];
	int sent[2] = { index, round }, received[2] = { -1, -1 };

	POST(receiver->cq, fi_trecv(receiver->rx, received, sizeof(received), NULL, to->peer, TAG, 0, received));
	POST(sender->cq, fi_tsend(sender->tx, sent, sizeof(sent), NULL, fi_rx_addr(from->peer, index, BITS), TAG, sent));
	wait_for(sender, receiver, sent);
	wait_for(receiver, sender, received);
	check("compare the messages", memcmp(sent, received, sizeof(sent)) ? -FI_EOTHER : 0);
}

static void *run(void *arg)
{
	struct path *path = arg;
	int round;

	for (round = 0; round < ROUNDS; round++)
		pass(&path->sides[round % 2], &path->sides[(round + 1) % 2], path->index, round);
	return NULL;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 2, i;
	struct fi_info *hints = hints_for(FI_TAGGED | FI_NAMED_RX_CTX | FI_DIRECTED_RECV);
	struct net net;
	static struct side sides[2];
	struct path paths[MOST];

	if (count < 1 || count > MOST) {
		fprintf(stderr, "usage: %s [THREADS], at most %d\n", argv[0], MOST);
		return 2;
	}
	hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = (size_t) count;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	net = open_net(hints);
	for (i = 0; i < 2; i++)
		open_side(net.domain, net.info, &sides[i], count);
	for (i = 0; i < 2; i++) {
		/* One address for all contexts of the peer. */
		sides[i].peer = insert(sides[i].av, sides[!i].sep);
	}
	for (i = 0; i < count; i++) {
		paths[i] = (struct path) { .sides = sides, .index = i };
		check("pthread_create", -pthread_create(&paths[i].thread, NULL, run, &paths[i]));
	}
	for (i = 0; i < count; i++)
		check("pthread_join", -pthread_join(paths[i].thread, NULL));
	printf("%d threads over %s\n", count, net.info->fabric_attr->prov_name);

	for (i = 0; i < 2; i++)
		close_side(&sides[i], count);
	close_net(&net);
	return 0;
}
