/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Many processes of one machine, each sending to all others, over the library that the loader finds, provider shm:
 *   crowd PROCESSES SIZE ROUNDS READS
 * Prints thousands of messages a second in all. After so many reads that found nothing a process gives its processor away.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define MUST(what) do { if (!(what)) { fprintf(stderr, "%d: %s\n", __LINE__, #what); exit(1); } } while (0)
enum { MOST = 128 };

static struct shared {
	atomic_int met[4];
	char name[MOST][128];
} *shared;

static struct fid_cq *cq;
static struct fid_ep *ep;
static long sent, received, reads;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

static void reap(void)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t n = fi_cq_read(cq, entries, 16), i;

	static long empty;

	if (n == -FI_EAGAIN) {
		if (++empty % reads == 0)
			sched_yield();
		return;
	}
	MUST(n > 0);
	for (i = 0; i < n; i++)
		if (entries[i].flags & FI_RECV)
			received++;
		else
			sent++;
}

/* All arrive; messages of others go on being dealt with. */
static void meet(int point, int count)
{
	atomic_fetch_add(&shared->met[point], 1);
	while (atomic_load(&shared->met[point]) < count)
		if (cq)
			reap();
		else
			sched_yield();
}

static void open_library(int me)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .size = 4096 };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	size_t len = sizeof(shared->name[me]);

	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->fabric_attr->prov_name = strdup("shm");
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->data_progress = FI_PROGRESS_CONTROL_UNIFIED;
	hints->domain_attr->control_progress = FI_PROGRESS_CONTROL_UNIFIED;
	hints->domain_attr->mr_mode = ~3;
	MUST(fi_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, hints, &info) == 0);
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
	MUST(fi_domain(fabric, info, &domain, NULL) == 0);
	MUST(fi_cq_open(domain, &cq_attr, &cq, NULL) == 0);
	MUST(fi_av_open(domain, &av_attr, &av, NULL) == 0);
	MUST(fi_endpoint(domain, info, &ep, NULL) == 0);
	MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	MUST(fi_ep_bind(ep, &av->fid, 0) == 0);
	MUST(fi_enable(ep) == 0);
	MUST(fi_getname(&ep->fid, shared->name[me], &len) == 0);
	ep->fid.context = av;
}

static void take_part(int me, int count, size_t size, long rounds)
{
	static fi_addr_t peers[MOST];
	static struct fi_context2 contexts[2 * MOST];
	char *in = malloc(size * (size_t) count), *out = calloc(1, size);
	long round;
	ssize_t ret;
	int i;

	open_library(me);
	meet(0, count);
	for (i = 0; i < count; i++)
		MUST(fi_av_insert(ep->fid.context, shared->name[i], 1, &peers[i], 0, NULL) == 1);
	meet(1, count);
	for (round = 0; round < rounds; round++) {
		for (i = 1; i < count; i++)
			while ((ret = fi_trecv(ep, in + (size_t) i * size, size, NULL, FI_ADDR_UNSPEC, (uint64_t) round, 0, &contexts[i])) != 0) {
				MUST(ret == -FI_EAGAIN);
				reap();
			}
		for (i = 1; i < count; i++)
			while ((ret = fi_tsend(ep, out, size, NULL, peers[(me + i) % count], (uint64_t) round, &contexts[MOST + i])) != 0) {
				MUST(ret == -FI_EAGAIN);
				reap();
			}
		while (sent < (round + 1) * (count - 1) || received < (round + 1) * (count - 1))
			reap();
	}
	meet(2, count);
	MUST(fi_close(&ep->fid) == 0);
}

int main(int argc, char **argv)
{
	int count = argc == 5 ? atoi(argv[1]) : 0, i, status;
	size_t size = argc == 5 ? (size_t) atol(argv[2]) : 0;
	long rounds = argc == 5 ? atol(argv[3]) : 0;
	double start;

	reads = argc == 5 ? atol(argv[4]) : 0;
	MUST(count > 1 && count <= MOST && rounds > 0 && reads > 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(shared != MAP_FAILED);
	for (i = 0; i < count; i++) {
		pid_t pid = fork();

		MUST(pid >= 0);
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			take_part(i, count, size, rounds);
			_exit(0);
		}
	}
	while (atomic_load(&shared->met[1]) < count)
		usleep(1000);
	start = now();
	while (atomic_load(&shared->met[2]) < count && waitpid(-1, &status, WNOHANG) == 0)
		usleep(1000);
	start = now() - start;
	MUST(atomic_load(&shared->met[2]) == count);
	while (wait(&status) > 0)
		MUST(status == 0);
	printf("%.1f\n", (double) count * (count - 1) * (double) rounds / start / 1e3);
	return 0;
}
