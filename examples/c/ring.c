/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ring: processes of one host that share an address vector. Each inserts its own address, and the
 * index that it gets is its rank. Each sends its rank to the next one.
 *
 * FI_PROVIDER=shm ./ring [PROCESSES]
 */
#include "processes.h"

#include <rdma/fi_tagged.h>

/* One process of the ring. */
static void member(const char *ring, fi_addr_t count)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	/* FI_LOCAL_COMM: the endpoints reach those of other processes of the host. */
	struct net net = open_net(hints_for(FI_TAGGED | FI_SHARED_AV | FI_LOCAL_COMM));
	struct fid_av *av = open_shared_av(net.domain, ring, count);
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t rank, from = FI_ADDR_NOTAVAIL;
	int done;

	CHECK(fi_cq_open(net.domain, &cq_attr, &cq, NULL));
	ep = open_endpoint(net.domain, net.info, cq, av);
	rank = join(av, ep, count);

	POST(cq, fi_trecv(ep, &from, sizeof(from), NULL, FI_ADDR_UNSPEC, TAG, 0, &from));
	POST(cq, fi_tsend(ep, &rank, sizeof(rank), NULL, (rank + 1) % count, TAG, &rank));
	for (done = 0; done < 2; done++)
		next(cq);
	check("compare the ranks", (from + 1) % count == rank ? 0 : -FI_EOTHER);
	if (rank == 0)
		printf("a ring of %d over %s\n", (int) count, net.info->fabric_attr->prov_name);

	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&cq->fid));
	CHECK(fi_close(&av->fid));
	close_net(&net);
}

int main(int argc, char **argv)
{
	return run_processes(argc, argv, "ring", member);
}
