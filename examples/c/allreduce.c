/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * allreduce: processes of one host that share an address vector form a group, and each gets the sum
 * of their ranks.
 *
 * FI_PROVIDER=shm ./allreduce [PROCESSES]
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#define TIME_LIMIT 10 /* seconds; no wait in this program is longer */

/* Calls return a negative error number if they fail. */
static void check(const char *call, ssize_t ret)
{
	if (ret < 0) {
		fprintf(stderr, "%s: %s\n", call, fi_strerror((int) -ret));
		exit(1);
	}
}

#define CHECK(call) check(#call, call)

/* Waits until the address vector has an entry with this index. */
static void wait_for(struct fid_av *av, fi_addr_t index)
{
	time_t end = time(NULL) + TIME_LIMIT;
	char name[256];
	size_t len = sizeof(name);

	while (fi_av_lookup(av, index, name, &len)) {
		check("wait for the other processes", time(NULL) < end ? 0 : -FI_ETIMEDOUT);
		/* Another process inserts it: this one has nothing to do meanwhile. */
		sched_yield();
		len = sizeof(name);
	}
}

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
static void member(const char *name_of_av, fi_addr_t count)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	/* The first process makes the address vector of that name, the last one to close it ends it. */
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .count = count, .name = name_of_av };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_set_attr set_attr = { 0 };
	struct fi_cq_tagged_entry entry;
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av_set *set;
	struct fid_mc *group;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	char name[256];
	size_t len = sizeof(name);
	fi_addr_t rank, all;
	uint64_t sum = 0;
	ssize_t ret;

	check("fi_allocinfo", hints ? 0 : -FI_ENOMEM);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_COLLECTIVE;
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	CHECK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(domain, &av_attr, &av, NULL));
	CHECK(fi_endpoint(domain, info, &ep, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_ep_bind(ep, &eq->fid, 0));
	CHECK(fi_enable(ep));

	/* The processes exchange no addresses: all see what one inserts, with the same index. */
	CHECK(fi_getname(&ep->fid, name, &len));
	check("fi_av_insert", fi_av_insert(av, name, 1, &rank, 0, NULL) == 1 ? 0 : -FI_EADDRNOTAVAIL);
	wait_for(av, count - 1);

	/* All addresses, in their order, are the members: all processes name the same ones. */
	set_attr.start_addr = 0;
	set_attr.end_addr = count - 1;
	set_attr.stride = 1;
	CHECK(fi_av_set(av, &set_attr, &set, NULL));
	CHECK(fi_av_set_addr(set, &all));
	CHECK(fi_join_collective(ep, all, set, 0, &group, NULL));
	wait_for_join(eq);

	CHECK(fi_allreduce(ep, &rank, 1, NULL, &sum, NULL, fi_mc_addr(group), FI_UINT64, FI_SUM, 0, NULL));
	ret = fi_cq_sread(cq, &entry, 1, NULL, TIME_LIMIT * 1000);
	check("wait for the sum", ret == -FI_EAGAIN ? -FI_ETIMEDOUT : ret);
	check("compare the sum", sum == count * (count - 1) / 2 ? 0 : -FI_EOTHER);
	if (rank == 0)
		printf("%d processes have the sum over %s\n", (int) count, info->fabric_attr->prov_name);

	CHECK(fi_close(&group->fid));
	CHECK(fi_close(&set->fid));
	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&cq->fid));
	CHECK(fi_close(&eq->fid));
	CHECK(fi_close(&domain->fid));
	CHECK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 4, i, status, failed = 0;
	char name[64];

	if (count < 1) {
		fprintf(stderr, "usage: %s [PROCESSES]\n", argv[0]);
		return 2;
	}
	/* All processes know the name, and no others have it. */
	snprintf(name, sizeof(name), "allreduce-%d", (int) getpid());
	/* Before any call of the library: a child cannot use what its parent has opened. */
	for (i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			return 1;
		}
		if (pid == 0) {
			member(name, (fi_addr_t) count);
			return 0;
		}
	}
	for (i = 0; i < count; i++)
		failed |= wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status);
	return failed;
}
