/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * token: a token goes around a ring of processes while their programs wait. Each process queues its
 * sends as deferred work before the token is there: a counter of received messages starts them.
 *
 * FI_PROVIDER=shm ./token [PROCESSES]
 */
#include "processes.h"

#include <rdma/fi_trigger.h>

#define ROUNDS 5

/* One process of the ring. */
static void member(const char *ring, fi_addr_t count)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT };
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	/* FI_TRIGGER has to be requested. */
	struct net net = open_net(hints_for(FI_MSG | FI_TRIGGER));
	struct fid_av *av = open_shared_av(net.domain, ring, count);
	struct fi_deferred_work work[ROUNDS];
	struct fi_op_msg send[ROUNDS];
	struct fid_cntr *received, *sent;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t rank;
	int token = 0, i;
	struct iovec iov = { &token, sizeof(token) };

	CHECK(fi_cq_open(net.domain, &cq_attr, &cq, NULL));
	CHECK(fi_cntr_open(net.domain, &cntr_attr, &received, NULL));
	CHECK(fi_cntr_open(net.domain, &cntr_attr, &sent, NULL));
	CHECK(fi_endpoint(net.domain, net.info, &ep, NULL));
	/* Only errors leave entries in the queue. */
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
	CHECK(fi_ep_bind(ep, &received->fid, FI_RECV));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_enable(ep));
	rank = join(av, ep, count);

	if (rank == 0)
		token = 4711;
	for (i = 0; i < ROUNDS; i++)
		POST(cq, fi_recv(ep, &token, sizeof(token), NULL, FI_ADDR_UNSPEC, NULL));
	for (i = 0; i < ROUNDS; i++) {
		/* Process 0 has the token: its first send need not wait, and starts all others. */
		send[i] = (struct fi_op_msg) { .ep = ep, .msg = { .msg_iov = &iov, .iov_count = 1, .addr = (rank + 1) % count } };
		work[i] = (struct fi_deferred_work) { .threshold = rank == 0 ? i : i + 1, .triggering_cntr = received,
			.completion_cntr = sent, .op_type = FI_OP_SEND, .op.msg = &send[i] };
		CHECK(fi_control(&net.domain->fid, FI_QUEUE_WORK, &work[i]));
	}
	/* Nothing is left to do but to wait: reading these counters makes progress. */
	CHECK(fi_cntr_wait(sent, ROUNDS, TIME_LIMIT * 1000));
	CHECK(fi_cntr_wait(received, ROUNDS, TIME_LIMIT * 1000));
	check("compare the tokens", token == 4711 ? 0 : -FI_EOTHER);
	if (rank == 0)
		printf("%d rounds of %d over %s\n", ROUNDS, (int) count, net.info->fabric_attr->prov_name);

	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&sent->fid));
	CHECK(fi_close(&received->fid));
	CHECK(fi_close(&cq->fid));
	CHECK(fi_close(&av->fid));
	close_net(&net);
}

int main(int argc, char **argv)
{
	return run_processes(argc, argv, "token", member);
}
