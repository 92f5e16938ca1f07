/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * token: a token goes around a ring of processes while their programs wait. Each process queues its
 * sends as deferred work before the token is there: a counter of received messages starts them.
 *
 * FI_PROVIDER=shm ./token [PROCESSES]
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
#include <rdma/fi_trigger.h>

#define TIME_LIMIT 10 /* seconds; no wait in this program is longer */
#define ROUNDS 5

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
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT };
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .count = count, .name = ring };
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_deferred_work work[ROUNDS];
	struct fi_op_msg send[ROUNDS];
	struct fid_cntr *received, *sent;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	char name[256];
	size_t len = sizeof(name);
	fi_addr_t rank;
	int token = 0, i;
	struct iovec iov = { &token, sizeof(token) };

	check("fi_allocinfo", hints ? 0 : -FI_ENOMEM);
	hints->ep_attr->type = FI_EP_RDM;
	/* FI_TRIGGER has to be requested. */
	hints->caps = FI_MSG | FI_TRIGGER;
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	CHECK(fi_cntr_open(domain, &cntr_attr, &received, NULL));
	CHECK(fi_cntr_open(domain, &cntr_attr, &sent, NULL));
	CHECK(fi_av_open(domain, &av_attr, &av, NULL));
	CHECK(fi_endpoint(domain, info, &ep, NULL));
	/* Only errors leave entries in the queue. */
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
	CHECK(fi_ep_bind(ep, &received->fid, FI_RECV));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_enable(ep));
	CHECK(fi_getname(&ep->fid, name, &len));
	check("fi_av_insert", fi_av_insert(av, name, 1, &rank, 0, NULL) == 1 ? 0 : -FI_EADDRNOTAVAIL);
	wait_for(av, count - 1);

	if (rank == 0)
		token = 4711;
	for (i = 0; i < ROUNDS; i++)
		POST(cq, fi_recv(ep, &token, sizeof(token), NULL, FI_ADDR_UNSPEC, NULL));
	for (i = 0; i < ROUNDS; i++) {
		/* Process 0 has the token: its first send need not wait, and starts all others. */
		send[i] = (struct fi_op_msg) { .ep = ep, .msg = { .msg_iov = &iov, .iov_count = 1, .addr = (rank + 1) % count } };
		work[i] = (struct fi_deferred_work) { .threshold = rank == 0 ? i : i + 1, .triggering_cntr = received,
			.completion_cntr = sent, .op_type = FI_OP_SEND, .op.msg = &send[i] };
		CHECK(fi_control(&domain->fid, FI_QUEUE_WORK, &work[i]));
	}
	/* Nothing is left to do but to wait: reading these counters makes progress. */
	CHECK(fi_cntr_wait(sent, ROUNDS, TIME_LIMIT * 1000));
	CHECK(fi_cntr_wait(received, ROUNDS, TIME_LIMIT * 1000));
	check("compare the tokens", token == 4711 ? 0 : -FI_EOTHER);
	if (rank == 0)
		printf("%d rounds of %d over %s\n", ROUNDS, (int) count, info->fabric_attr->prov_name);

	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&sent->fid));
	CHECK(fi_close(&received->fid));
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
	snprintf(ring, sizeof(ring), "token-%d", (int) getpid());
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
