/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The start of a job: each of `--processes` ranks opens `--peers` endpoints, inserts the addresses of
 * all, and each endpoint sends a message to every other one. Prints the milliseconds from the first
 * insertion until all messages have arrived; their connections are made on the way. After `--yield`
 * empty reads a process yields its core.
 */
#include <math.h>

#include "patterns.h"
#include "side.h"

static struct side side;
static struct fid_ep *endpoints[MAX_PEERS];
static fi_addr_t addresses[MAX_ENDPOINTS];
static long sent, received;

static void read_one(void *unused)
{
	static long empty;
	struct fi_cq_tagged_entry entry;
	ssize_t n = fi_cq_read(side.cq, &entry, 1);

	(void) unused;
	if (n == -FI_EAGAIN) {
		if (options.yield && ++empty % options.yield == 0)
			sched_yield();
		return;
	}
	if (n != 1)
		read_failed(&side, n);
	MUST(!(entry.flags & FI_RECV) || entry.len == sizeof(uint64_t));
	received += !!(entry.flags & FI_RECV);
	sent += !(entry.flags & FI_RECV);
}

/* What an endpoint sends to another one. */
static uint64_t word_of(int from, int to)
{
	return (uint64_t) (from * MAX_ENDPOINTS + to + 1);
}

static void post(ssize_t (*call)(int, int), int mine, int other)
{
	ssize_t ret;

	while ((ret = call(mine, other)) == -FI_EAGAIN)
		read_one(NULL);
	if (ret)
		call_failed("posting a message", (int) ret);
}

static struct fi_context2 *receives, *sends;
static uint64_t *in, *out;
static int total, first;

static int place_of(int mine, int other)
{
	return mine * total + other;
}

static ssize_t receive(int mine, int other)
{
	int at = place_of(mine, other);

	return fi_trecv(endpoints[mine], &in[at], sizeof(*in), NULL, FI_ADDR_UNSPEC, (uint64_t) other, 0, &receives[at]);
}

static ssize_t send_to(int mine, int other)
{
	int at = place_of(mine, other);

	out[at] = word_of(first + mine, other);
	return fi_tsend(endpoints[mine], &out[at], sizeof(*out), NULL, addresses[other], (uint64_t) (first + mine), &sends[at]);
}

static void open_endpoints(void)
{
	size_t count = (size_t) (options.peers * total);
	int i;

	in = calloc(count, sizeof(*in));
	out = calloc(count, sizeof(*out));
	receives = calloc(count, sizeof(*receives));
	sends = calloc(count, sizeof(*sends));
	MUST(in && out && receives && sends);
	for (i = 0; i < options.peers; i++) {
		endpoints[i] = open_endpoint(&side, side.info);
		CALL(fi_getname(&endpoints[i]->fid, shared->endpoints[first + i], &(size_t) { NAME_SIZE }));
	}
}

int run_start(void)
{
	struct sample sample = { 0 };
	double start = INFINITY, end = 0;
	long wanted;
	int rank, mine, step, i;

	if (strcmp(options.pattern, "start"))
		return 0;
	total = options.processes * options.peers;
	MUST(options.endpoint == RDM && options.threads == 1 && total <= MAX_ENDPOINTS);
	/* Each endpoint has a connection to each other one. */
	raise_limit_of_descriptors();
	rank = spawn(options.processes);
	first = rank * options.peers;
	wanted = (long) options.peers * (total - 1);
	open_side(&side, rank ? 1 : 0, 0);
	barrier_progress = read_one;
	open_endpoints();
	barrier();
	shared->starts[rank] = now();
	for (i = 0; i < total; i++)
		MUST(fi_av_insert(side.av, shared->endpoints[i], 1, &addresses[i], 0, NULL) == 1);
	for (mine = 0; mine < options.peers; mine++)
		for (step = 1; step < total; step++)
			post(receive, mine, (first + mine + step) % total);
	for (step = 1; step < total; step++)
		for (mine = 0; mine < options.peers; mine++) {
			post(send_to, mine, (first + mine + step) % total);
			read_one(NULL);
		}
	while (sent < wanted || received < wanted)
		read_one(NULL);
	shared->end[rank] = now();
	for (mine = 0; mine < options.peers; mine++)
		for (i = 0; i < total; i++)
			MUST(i == first + mine || in[place_of(mine, i)] == word_of(i, first + mine));
	barrier();
	for (i = 0; i < options.processes; i++) {
		if (shared->starts[i] < start)
			start = shared->starts[i];
		if (shared->end[i] > end)
			end = shared->end[i];
	}
	if (rank == 0)
		print_result((end - start) / 1e3, sample);
	barrier();
	finish(rank);
	return 1;
}
