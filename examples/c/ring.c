/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ring: processes of one host that share an address vector. Each inserts its own address, and the
 * index that it gets is its rank. Each sends its rank to the next one.
 *
 * FI_PROVIDER=shm ./ring [PROCESSES]
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define TIME_LIMIT 10 /* seconds; no wait in this program is longer */
#define TAG 42

/* Calls return a negative error number if they fail. */
static void check(const char *call, ssize_t ret)
{
	if (ret < 0) {
		fprintf(stderr, "%s: %s\n", call, fi_strerror((int) -ret));
		exit(1);
	}
}

#define CHECK(call) check(#call, call)

/* Posts an operation; while the endpoint cannot take it, reads the queue to make progress. */
#define POST(cq, call) \
	do { \
		time_t end_ = time(NULL) + TIME_LIMIT; \
		ssize_t ret_; \
		while ((ret_ = (call)) == -FI_EAGAIN && time(NULL) < end_) \
			fi_cq_read(cq, NULL, 0); \
		check(#call, ret_); \
	} while (0)

/* Waits for a completion; ends the program if the operation failed or nothing completes. */
static void wait_for_completion(struct fid_cq *cq)
{
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_tagged_entry entry;
	char reason[256] = "";
	ssize_t ret = fi_cq_sread(cq, &entry, 1, NULL, TIME_LIMIT * 1000);

	/* An operation failed: its entry has an error number and the provider's reason. */
	if (ret == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
		check(fi_cq_strerror(cq, error.prov_errno, error.err_data, reason, sizeof(reason)), -error.err);
	check("wait for a completion", ret == -FI_EAGAIN ? -FI_ETIMEDOUT : ret);
}

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

/* One process of the ring. */
static void member(const char *ring, fi_addr_t count)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	/* The first process makes the address vector of that name, the last one to close it ends it. */
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .count = count, .name = ring };
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	char name[256];
	size_t len = sizeof(name);
	fi_addr_t rank, from = FI_ADDR_NOTAVAIL;
	int done;

	check("fi_allocinfo", hints ? 0 : -FI_ENOMEM);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED | FI_SHARED_AV;
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(domain, &av_attr, &av, NULL));
	CHECK(fi_endpoint(domain, info, &ep, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_enable(ep));

	/* The processes exchange no addresses: all see what one inserts, with the same index. */
	CHECK(fi_getname(&ep->fid, name, &len));
	check("fi_av_insert", fi_av_insert(av, name, 1, &rank, 0, NULL) == 1 ? 0 : -FI_EADDRNOTAVAIL);
	wait_for(av, count - 1);

	POST(cq, fi_trecv(ep, &from, sizeof(from), NULL, FI_ADDR_UNSPEC, TAG, 0, &from));
	POST(cq, fi_tsend(ep, &rank, sizeof(rank), NULL, (rank + 1) % count, TAG, &rank));
	for (done = 0; done < 2; done++)
		wait_for_completion(cq);
	check("compare the ranks", (from + 1) % count == rank ? 0 : -FI_EOTHER);
	if (rank == 0)
		printf("a ring of %d over %s\n", (int) count, info->fabric_attr->prov_name);

	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&cq->fid));
	CHECK(fi_close(&domain->fid));
	CHECK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 4, i, status, failed = 0;
	char ring[64];

	if (count < 1) {
		fprintf(stderr, "usage: %s [PROCESSES]\n", argv[0]);
		return 2;
	}
	/* All processes know the name, and no other ring has it. */
	snprintf(ring, sizeof(ring), "ring-%d", (int) getpid());
	/* Before any call of the library: a child cannot use what its parent has opened. */
	for (i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			return 1;
		}
		if (pid == 0) {
			member(ring, (fi_addr_t) count);
			return 0;
		}
	}
	for (i = 0; i < count; i++)
		failed |= wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status);
	return failed;
}
