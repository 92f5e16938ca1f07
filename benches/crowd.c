/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Many processes of one machine over the library that the loader finds, provider shm:
 *   crowd all PROCESSES SIZE ROUNDS READS      each sends to all others in each round
 *   crowd pairs PROCESSES SIZE ROUNDS READS    each sends 64 messages to its partner in each round
 * Prints thousands of messages a second in all. After so many reads that found nothing a process gives its processor away.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "open_shm.h"

enum { MOST = 128, WINDOW = 64 };

static struct shared {
	atomic_int met[4];
	char name[MOST][128];
} *shared;

static struct side side;
static long reads;

static void reap(void)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t n = fi_cq_read(side.cq, entries, 16);

	static long empty;

	if (n == -FI_EAGAIN) {
		if (++empty % reads == 0)
			sched_yield();
		return;
	}
	count_up(entries, n);
}

/* All arrive; messages of others go on being dealt with. */
static void meet(int point, int count)
{
	atomic_fetch_add(&shared->met[point], 1);
	while (atomic_load(&shared->met[point]) < count)
		if (side.cq)
			reap();
		else
			sched_yield();
}

static void receive(char *in, size_t size, long round, void *context)
{
	ssize_t ret;

	while ((ret = fi_trecv(side.ep, in, size, NULL, FI_ADDR_UNSPEC, (uint64_t) round, 0, context)) != 0) {
		MUST(ret == -FI_EAGAIN);
		reap();
	}
}

static void give(const char *out, size_t size, fi_addr_t peer, long round, void *context)
{
	ssize_t ret;

	while ((ret = fi_tsend(side.ep, out, size, NULL, peer, (uint64_t) round, context)) != 0) {
		MUST(ret == -FI_EAGAIN);
		reap();
	}
}

/* Messages that a process sends in a round: one to each of the others, or several to its partner. */
static int messages_of(int count, int pairs)
{
	return pairs ? WINDOW : count - 1;
}

static void take_part(int me, int count, int pairs, size_t size, long rounds)
{
	static fi_addr_t peers[MOST];
	static struct fi_context2 contexts[2 * MOST];
	int messages = messages_of(count, pairs), i;
	char *in = malloc(size * (size_t) messages), *out = calloc(1, size);
	long round;

	MUST(in && out);
	side = open_side(0);
	memcpy(shared->name[me], side.name, sizeof(side.name));
	meet(0, count);
	for (i = 0; i < count; i++)
		peers[i] = insert(&side, shared->name[i]);
	meet(1, count);
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < messages; i++)
			receive(in + (size_t) i * size, size, round, &contexts[i]);
		for (i = 0; i < messages; i++)
			give(out, size, peers[pairs ? me ^ 1 : (me + 1 + i) % count], round, &contexts[MOST + i]);
		while (sent < (round + 1) * messages || received < (round + 1) * messages)
			reap();
	}
	meet(2, count);
	MUST(fi_close(&side.ep->fid) == 0);
}

int main(int argc, char **argv)
{
	int whole = argc == 6, count = whole ? atoi(argv[2]) : 0, i, status;
	int pairs = whole && !strcmp(argv[1], "pairs");
	size_t size = whole ? (size_t) atol(argv[3]) : 0;
	long rounds = whole ? atol(argv[4]) : 0;
	double start;

	reads = whole ? atol(argv[5]) : 0;
	MUST(count > 1 && count <= MOST && rounds > 0 && reads > 0 && !(pairs && count % 2));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(shared != MAP_FAILED);
	for (i = 0; i < count; i++) {
		pid_t pid = fork();

		MUST(pid >= 0);
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			take_part(i, count, pairs, size, rounds);
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
	printf("%.1f\n", (double) count * messages_of(count, pairs) * (double) rounds / start * 1e3);
	return 0;
}
