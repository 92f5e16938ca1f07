/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Two pinned processes of one machine over the library that the loader finds, provider shm, tagged messages:
 *   shm lat SIZE TRIPS       half a round trip, us
 *   shm cold SIZE TRIPS      the same with buffers that cycle over 64 MB
 *   shm stream SIZE ROUNDS   windows of up to 64 messages, each answered, MB/s (M messages/s for sizes up to 64)
 *   shm line 0 TRIPS         nothing but a cache line to and fro, us
 *   shm copy SIZE TRIPS      memcpy in one process, MB/s
 * Prints the result and half a round trip of one cache line before and after it: the cores of a virtual machine move, and
 * only samples between like ones can be compared.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
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
#define COLD ((size_t) 64 << 20)
#define WINDOW 64

struct line {
	_Alignas(64) atomic_long value;
	char rest[56];
};

static struct shared {
	struct line ping, pong, ready[2], go;
	char name[2][128];
	size_t len[2];
} *shared;

static int me;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1e6 + (double) t.tv_nsec / 1e3;
}

static void meet(void)
{
	static long turn;

	turn++;
	atomic_store(&shared->ready[me].value, turn);
	while (atomic_load(&shared->ready[!me].value) < turn)
		sched_yield();
}

static double line_trips(long trips)
{
	static long base;
	double start;
	long i;

	meet();
	start = now();
	for (i = base + 1; i <= base + trips; i++) {
		if (me == 0) {
			atomic_store_explicit(&shared->ping.value, i, memory_order_release);
			while (atomic_load_explicit(&shared->pong.value, memory_order_acquire) != i)
				;
		} else {
			while (atomic_load_explicit(&shared->ping.value, memory_order_acquire) != i)
				;
			atomic_store_explicit(&shared->pong.value, i, memory_order_release);
		}
	}
	base += trips;
	return (now() - start) / (double) trips / 2;
}

static struct fid_cq *cq;
static struct fid_ep *ep;
static fi_addr_t peer;
static struct fi_context2 contexts[2 * WINDOW];
static long sent, received;

static void reap(void)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t n = fi_cq_read(cq, entries, 16), i;

	if (n == -FI_EAGAIN)
		return;
	MUST(n > 0);
	for (i = 0; i < n; i++)
		if (entries[i].flags & FI_RECV)
			received++;
		else
			sent++;
}

static void open_library(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .size = 1024 };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;

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
	shared->len[me] = sizeof(shared->name[me]);
	MUST(fi_getname(&ep->fid, shared->name[me], &shared->len[me]) == 0);
	meet();
	MUST(fi_av_insert(av, shared->name[!me], 1, &peer, 0, NULL) == 1);
	meet();
}

static void post(char *buf, size_t size, int slot)
{
	ssize_t ret;

	while ((ret = fi_trecv(ep, buf, size, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[slot])) == -FI_EAGAIN)
		reap();
	MUST(ret == 0);
}

static void give(const char *buf, size_t size, int slot)
{
	ssize_t ret;

	while ((ret = fi_tsend(ep, buf, size, NULL, peer, 1, &contexts[WINDOW + slot])) == -FI_EAGAIN)
		reap();
	MUST(ret == 0);
}

static void await(long sends, long receives)
{
	while (sent < sends || received < receives)
		reap();
}

static double trips_of(char *out, char *in, size_t size, size_t span, long trips)
{
	size_t at = 0;
	double start;
	long i;

	meet();
	start = now();
	for (i = 0; i < trips; i++) {
		post(in + at, size, 0);
		if (me == 0)
			give(out + at, size, 0);
		await(sent, received + 1);
		if (me == 1)
			give(out + at, size, 0);
		/* The other's answer, or its next question, shows that this one is through. */
		if (span && (at += size) + size > span)
			at = 0;
	}
	await(trips, trips);
	sent = received = 0;
	return (now() - start) / (double) trips / 2;
}

static double rounds_of(char *out, char *in, size_t size, long rounds)
{
	int window = size > 65536 ? 16 : WINDOW, i;
	double start;
	long round;

	meet();
	start = now();
	for (round = 0; round < rounds; round++) {
		if (me == 0) {
			post(in, 0, 0);
			for (i = 0; i < window; i++)
				give(out, size, i);
			await(window, 1);
		} else {
			for (i = 0; i < window; i++)
				post(in + (size_t) i * size, size, i);
			await(0, window);
			give(out, 0, 0);
			await(1, window);
		}
		sent = received = 0;
	}
	start = (now() - start) / (double) (rounds * window);
	return size <= 64 ? 1 / start : (double) size / start;
}

int main(int argc, char **argv)
{
	const char *what = argc == 4 ? argv[1] : "";
	size_t size = argc == 4 ? (size_t) atoll(argv[2]) : 0;
	long trips = argc == 4 ? atol(argv[3]) : 0;
	double before, after, result;
	cpu_set_t set;
	size_t space;
	char *in, *out;

	MUST(trips > 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(shared != MAP_FAILED);
	me = fork() == 0;
	CPU_ZERO(&set);
	CPU_SET(me, &set);
	sched_setaffinity(0, sizeof(set), &set);
	space = size * WINDOW > COLD ? size * WINDOW : COLD;
	in = mmap(NULL, space, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	out = mmap(NULL, space, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(in != MAP_FAILED && out != MAP_FAILED);
	memset(in, 1, space);
	memset(out, 2, space);
	if (!strcmp(what, "line")) {
		result = line_trips(trips);
		before = after = result;
	} else if (!strcmp(what, "copy")) {
		double start = now();
		long i;

		for (i = 0; i < trips; i++) {
			memcpy(in, out, size);
			__asm__ volatile("" ::: "memory");
		}
		result = (double) size * (double) trips / (now() - start);
		before = line_trips(20000);
		after = line_trips(20000);
	} else {
		open_library();
		trips_of(out, in, size, 0, trips / 10 + 100 > 2000 ? 2000 : trips / 10 + 100);
		before = line_trips(20000);
		if (!strcmp(what, "lat"))
			result = trips_of(out, in, size, 0, trips);
		else if (!strcmp(what, "cold"))
			result = trips_of(out, in, size, COLD, trips);
		else
			result = rounds_of(out, in, size, trips);
		after = line_trips(20000);
	}
	if (me == 1)
		_exit(0);
	printf("%.4f %.4f %.4f\n", result, before, after);
	fflush(stdout);
	wait(NULL);
	_exit(0);
}
