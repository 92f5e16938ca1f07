/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * window: one endpoint accesses the memory of another, which posts nothing. A counter of the target
 * counts the accesses that have changed its memory.
 *
 * FI_PROVIDER=shm ./window
 */
#include "memory.h"

#include <string.h>

#include <rdma/fi_atomic.h>

#define SIDES (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* The endpoint whose memory is accessed: the counter has to be bound before it is enabled. */
static struct fid_ep *open_target(struct net *net, struct fid_cq *cq, struct fid_av *av, struct fid_cntr *cntr)
{
	struct fid_ep *ep;

	CHECK(fi_endpoint(net->domain, net->info, &ep, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(fi_ep_bind(ep, &cntr->fid, FI_REMOTE_WRITE));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_enable(ep));
	return ep;
}

int main(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct net net = open_net(hints_for_memory(FI_RMA | FI_ATOMIC | SIDES | FI_RMA_EVENT | FI_FENCE));
	uint64_t words[4] = { 0 }, copy[4] = { 0 }, one = 1, before = 0;
	char text[8] = "written";
	struct iovec iov = { text, sizeof(text) };
	struct fi_rma_iov place;
	struct fi_msg_rma last = { .msg_iov = &iov, .iov_count = 1, .rma_iov = &place, .rma_iov_count = 1, .context = text };
	struct window window;
	struct fid_cntr *changes;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *initiator, *target;
	fi_addr_t to;
	int i, reported;

	CHECK(fi_cq_open(net.domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(net.domain, &av_attr, &av, NULL));
	CHECK(fi_cntr_open(net.domain, &cntr_attr, &changes, NULL));
	target = open_target(&net, cq, av, changes);
	initiator = open_endpoint(net.domain, net.info, cq, av);
	to = insert(av, target);
	window = open_window(&net, words, sizeof(words), 0);

	/* Adds to the first word, twice: the second call returns the value before. */
	POST(cq, fi_atomic(initiator, &one, 1, NULL, to, window.addr, window.key, FI_UINT64, FI_SUM, &one));
	POST(cq, fi_fetch_atomic(initiator, &one, 1, NULL, &before, NULL, to, window.addr, window.key, FI_UINT64, FI_SUM,
		&before));
	/* Data that travels with a write gives the target an entry too. */
	POST(cq, fi_writedata(initiator, text, sizeof(text), NULL, 7, to, window.addr + 8, window.key, text));
	for (i = 0, reported = 0; i < 4; i++) {
		struct fi_cq_tagged_entry entry = next(cq);

		reported += (entry.flags & FI_REMOTE_CQ_DATA) && entry.data == 7;
	}
	check("the entry at the target", reported == 1 ? 0 : -FI_EOTHER);
	/* A fenced write starts after everything before it has reached the target. */
	place = (struct fi_rma_iov) { window.addr + 16, sizeof(text), window.key };
	last.addr = to;
	POST(cq, fi_writemsg(initiator, &last, FI_FENCE | FI_DELIVERY_COMPLETE));
	next(cq);
	POST(cq, fi_read(initiator, copy, sizeof(copy), NULL, to, window.addr, window.key, copy));
	next(cq);
	/* One sum and two writes have changed the memory; a call that fetches counts as a read. */
	CHECK(fi_cntr_wait(changes, 3, TIME_LIMIT * 1000));
	check("compare", before == 1 && copy[0] == 2 && !strcmp((char *) &copy[1], "written") && copy[1] == copy[2] ? 0 : -FI_EOTHER);
	printf("a window over %s\n", net.info->fabric_attr->prov_name);

	CHECK(fi_close(&window.mr->fid));
	CHECK(fi_close(&initiator->fid));
	CHECK(fi_close(&target->fid));
	CHECK(fi_close(&changes->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&cq->fid));
	close_net(&net);
	return 0;
}
