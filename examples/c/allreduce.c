/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * allreduce: processes of one host that share an address vector form a group, and each gets the sum
 * of their ranks.
 *
 * FI_PROVIDER=shm ./allreduce [PROCESSES]
 */
#include "processes.h"

#include <rdma/fi_collective.h>

/* Waits for the event that the endpoint has joined the group. */
static void wait_for_join(struct fid_eq *eq)
{
	struct fi_eq_err_entry err = { 0 };
	struct fi_eq_entry event;
	uint32_t number;
	ssize_t ret = fi_eq_sread(eq, &number, &event, sizeof(event), TIME_LIMIT * 1000, 0);

	if (ret == -FI_EAVAIL && fi_eq_readerr(eq, &err, 0) > 0)
		ret = -err.err;
	check("join", ret == -FI_EAGAIN ? -FI_ETIMEDOUT : ret);
}

/* One process of the group. */
static void member(const char *name, fi_addr_t count)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	/* All addresses, in their order, are the members: all processes name the same ones. */
	struct fi_av_set_attr set_attr = { .start_addr = 0, .end_addr = count - 1, .stride = 1 };
	struct net net = open_net(hints_for(FI_MSG | FI_COLLECTIVE));
	struct fid_av *av = open_shared_av(net.domain, name, count);
	struct fid_av_set *set;
	struct fid_mc *group;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t rank, all;
	uint64_t sum = 0;

	CHECK(fi_eq_open(net.fabric, &eq_attr, &eq, NULL));
	CHECK(fi_cq_open(net.domain, &cq_attr, &cq, NULL));
	ep = open_endpoint(net.domain, net.info, cq, av);
	/* The queue reports when the endpoint has joined. */
	CHECK(fi_ep_bind(ep, &eq->fid, 0));
	rank = join(av, ep, count);

	CHECK(fi_av_set(av, &set_attr, &set, NULL));
	CHECK(fi_av_set_addr(set, &all));
	CHECK(fi_join_collective(ep, all, set, 0, &group, NULL));
	wait_for_join(eq);

	CHECK(fi_allreduce(ep, &rank, 1, NULL, &sum, NULL, fi_mc_addr(group), FI_UINT64, FI_SUM, 0, NULL));
	next(cq);
	check("compare the sum", sum == count * (count - 1) / 2 ? 0 : -FI_EOTHER);
	if (rank == 0)
		printf("%d processes have the sum over %s\n", (int) count, net.info->fabric_attr->prov_name);

	CHECK(fi_close(&group->fid));
	CHECK(fi_close(&set->fid));
	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&cq->fid));
	CHECK(fi_close(&eq->fid));
	CHECK(fi_close(&av->fid));
	close_net(&net);
}

int main(int argc, char **argv)
{
	return run_processes(argc, argv, "allreduce", member);
}
