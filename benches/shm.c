/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Two pinned processes of one machine over the library that the loader finds, provider shm, tagged messages:
 *   shm lat SIZE TRIPS       half a round trip, us
 *   shm cold SIZE TRIPS      the same with buffers that cycle over 64 MB
 *   shm stream SIZE ROUNDS   windows of up to 64 messages, each answered, MB/s (M messages/s for sizes up to 64)
 *   shm links SIZE TRIPS     the same as lat while one side has 15 other links
 *   shm sleep SIZE TRIPS     the same as lat with readers that sleep
 *   shm late SIZE ROUNDS     windows of 64 messages that are sent before they are received, as stream
 *   shm line 0 TRIPS         nothing but a cache line to and fro, us
 *   shm copy SIZE TRIPS      memcpy in one process, MB/s
 * Prints the result and half a round trip of one cache line before and after it: the cores of a virtual machine move, and
 * only samples between like ones can be compared.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "open_shm.h"

#define COLD ((size_t) 64 << 20)
#define WINDOW 64
#define OTHERS 15

struct line {
	_Alignas(64) atomic_long value;
	char rest[56];
};

static struct shared {
	struct line ping, pong, ready[2], go;
	char name[2][128];
} *shared;

static int me;

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

static struct side side;
static fi_addr_t peer;
static struct fi_context2 contexts[2 * WINDOW];
/* Readers sleep. */
static int blocks;

static void reap(void)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t n = blocks ? fi_cq_sread(side.cq, entries, 16, NULL, -1) : fi_cq_read(side.cq, entries, 16);

	if (n == -FI_EAGAIN)
		return;
	count_up(entries, n);
}

static void open_library(void)
{
	side = open_side(blocks);
	memcpy(shared->name[me], side.name, sizeof(side.name));
	meet();
	peer = insert(&side, shared->name[!me]);
	meet();
}

static void post(char *buf, size_t size, int slot)
{
	ssize_t ret;

	while ((ret = fi_trecv(side.ep, buf, size, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[slot])) == -FI_EAGAIN)
		reap();
	MUST(ret == 0);
}

static void give(const char *buf, size_t size, int slot)
{
	ssize_t ret;

	while ((ret = fi_tsend(side.ep, buf, size, NULL, peer, 1, &contexts[WINDOW + slot])) == -FI_EAGAIN)
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

/* All of a window has been sent before the first receive is posted. */
static double late_of(char *out, char *in, size_t size, long rounds)
{
	double start = 0;
	long round;
	int i;

	for (round = 0; round < rounds; round++) {
		sent = received = 0;
		meet();
		if (round == rounds / 10)
			start = now();
		if (me == 0) {
			for (i = 0; i < WINDOW; i++)
				give(out, size, i);
			meet();
			await(WINDOW, 0);
		} else {
			meet();
			for (i = 0; i < WINDOW; i++)
				post(in + (size_t) i * size, size, i);
			await(0, WINDOW);
		}
	}
	start = (now() - start) / (double) ((rounds - rounds / 10) * WINDOW);
	sent = received = 0;
	return size <= 64 ? 1 / start : (double) size / start;
}

/* Links of the first process that have nothing to say any more. */
static void add_links(void)
{
	static struct fi_context2 theirs[OTHERS], mine[OTHERS];
	static char bytes[OTHERS][8];
	struct side others[OTHERS];
	struct fi_cq_tagged_entry entry;
	int i, done = 0;

	for (i = 0; i < OTHERS; i++) {
		if (me == 0) {
			MUST(fi_trecv(side.ep, bytes[i], 8, NULL, FI_ADDR_UNSPEC, 2, 0, &mine[i]) == 0);
			continue;
		}
		others[i] = open_side(0);
		fi_addr_t first = insert(&others[i], shared->name[0]);

		while (fi_tsend(others[i].ep, bytes[i], 8, NULL, first, 2, &theirs[i]) == -FI_EAGAIN)
			fi_cq_read(others[i].cq, &entry, 1);
	}
	while (me == 0 && received < OTHERS)
		reap();
	while (me == 1 && done < OTHERS)
		for (i = 0; i < OTHERS; i++)
			done += fi_cq_read(others[i].cq, &entry, 1) == 1;
	received = 0;
	meet();
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
		blocks = !strcmp(what, "sleep");
		open_library();
		if (!strcmp(what, "links"))
			add_links();
		trips_of(out, in, size, 0, trips / 10 + 100 > 2000 ? 2000 : trips / 10 + 100);
		before = line_trips(20000);
		if (!strcmp(what, "lat") || !strcmp(what, "links") || blocks)
			result = trips_of(out, in, size, 0, trips);
		else if (!strcmp(what, "cold"))
			result = trips_of(out, in, size, COLD, trips);
		else if (!strcmp(what, "late"))
			result = late_of(out, in, size, trips);
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
