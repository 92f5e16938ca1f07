/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The cost of peers without traffic:
 *   connect           us from the first message to a new peer until its answer, divided by the
 *                     peers that connect at once;
 *                     median of the rounds
 *   memory-peer       KiB of resident memory per connected, idle peer, in rank 0
 *   memory-endpoint   KiB of resident memory per enabled endpoint with its own domain, queue and
 *                     address vector
 *   idle              us of processor time per second in a process with idle connected peers
 */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "patterns.h"
#include "side.h"

enum { MAX_ROUNDS = 4096, ENDPOINTS = 32 };

static struct side side;

/* ---- connect ---- */

static double rounds[MAX_ROUNDS];
static long round_count;

static void connect_rounds(void *state, long count)
{
	struct side *s = state;

	for (round_count = 0; round_count < count; round_count++) {
		double start;

		prepare_links(s, 0, options.peers);
		barrier();
		start = now();
		exchange_hello(s, 0, options.peers);
		if (round_count < MAX_ROUNDS)
			rounds[round_count] = now() - start;
		barrier();
		close_links(s, 0, options.peers);
		barrier();
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return (x > y) - (x < y);
}

static struct sample connect_peers(int rank)
{
	struct sample sample = measure(connect_rounds, &side, rank);
	size_t count = (size_t) (round_count < MAX_ROUNDS ? round_count : MAX_ROUNDS);

	/* Rank 1 sends first and waits for the answers. */
	if (rank == 1) {
		qsort(rounds, count, sizeof(*rounds), by_value);
		shared->result = rounds[count / 2] / options.peers;
	}
	return sample;
}

/* ---- memory ---- */

static double resident_kib(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long all, resident;

	MUST(file && fscanf(file, "%ld %ld", &all, &resident) == 2);
	fclose(file);
	return (double) resident * (double) sysconf(_SC_PAGESIZE) / 1024;
}

static void memory_of_peers(int rank)
{
	double before;

	/* The first peer also pays for what all peers share. */
	open_links(&side, 0, 1);
	barrier();
	before = resident_kib();
	open_links(&side, 1, options.peers);
	barrier();
	if (rank == 0)
		shared->result = (resident_kib() - before) / (options.peers - 1);
	barrier();
}

static void memory_of_endpoints(void)
{
	static struct side sides[ENDPOINTS + 1];
	double before = 0;
	int i;

	/* Touch the array first: it is not the library's memory. */
	memset(sides, 1, sizeof(sides));
	for (i = 0; i <= ENDPOINTS; i++) {
		if (i == 1)
			before = resident_kib();
		open_side(&sides[i], 0, 0);
		open_endpoint(&sides[i], sides[i].info);
	}
	shared->result = (resident_kib() - before) / ENDPOINTS;
}

/* ---- idle ---- */

static double processor_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double) t.tv_sec * 1e6 + (double) t.tv_nsec / 1e3;
}

static void block(double until)
{
	struct fid *fid = &side.cq->fid;
	struct fi_cq_tagged_entry entry;
	double left;

	while ((left = (until - now()) / 1e3) > 1) {
		ssize_t n = -FI_EAGAIN;

		if (options.wait == SREAD) {
			n = fi_cq_sread(side.cq, &entry, 1, NULL, (int) left);
		} else if (options.wait == FD) {
			struct pollfd ready = { .fd = side.fd, .events = POLLIN };

			n = fi_cq_read(side.cq, &entry, 1);
			if (n == -FI_EAGAIN && fi_trywait(side.fabric, &fid, 1) == 0)
				poll(&ready, 1, (int) left);
		} else {
			/* The application sleeps; only the library's progress thread runs. */
			usleep((useconds_t) (left * 1e3));
		}
		MUST(n == -FI_EAGAIN || n == -FI_ETIMEDOUT || n == -FI_EINTR);
	}
}

static void idle(int rank)
{
	double start, busy;

	open_links(&side, 0, options.peers);
	barrier();
	start = now();
	busy = processor_time();
	block(start + options.milliseconds * 1e3);
	if (rank == 0)
		shared->result = (processor_time() - busy) / (now() - start) * 1e6;
	barrier();
}

int run_life(void)
{
	struct sample sample = { 0 };
	int rank;

	if (!strcmp(options.pattern, "memory-endpoint")) {
		spawn(1);
		memory_of_endpoints();
		print_result(shared->result, sample);
		return 1;
	}
	if (strcmp(options.pattern, "connect") && strcmp(options.pattern, "memory-peer") && strcmp(options.pattern, "idle"))
		return 0;
	rank = spawn(2);
	open_side(&side, rank, 0);
	if (!strcmp(options.pattern, "connect"))
		sample = connect_peers(rank);
	else if (!strcmp(options.pattern, "memory-peer"))
		memory_of_peers(rank);
	else
		idle(rank);
	barrier();
	if (rank == 0)
		print_result(shared->result, sample);
	finish(rank);
	return 1;
}
