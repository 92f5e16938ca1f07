/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Access to the other rank's memory:
 *   write          rank 1 writes, a window at a time in flight, MB/s
 *   read           rank 1 reads, likewise
 *   put            an 8-byte write as a ping-pong on polled memory, half a round trip, us
 *   fetch-add      rank 1 adds to a word of rank 0: from the call to the completion, us
 *   inject-write   rank 1 writes with fi_inject_write to the places of a window, until rank 0 sees
 *                  all of the last writes, million writes a second
 * Behind the payload the memory has a mailbox, in which rank 1 notifies rank 0 of its end.
 */
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "patterns.h"
#include "side.h"

enum { KEY = 7, WORD = sizeof(uint64_t) };

static struct side *side;
static struct fid_mr *region;
static char *memory;
static size_t mailbox, total;
static uint64_t words[MAX_WINDOW], result, added;

static void expose(void)
{
	int virtual = !!(side->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR);

	mailbox = (payload_stride() * (size_t) options.window + options.size + 63) & ~(size_t) 63;
	total = mailbox + 64 + MAX_WINDOW * WORD;
	memory = alloc_pages(total);
	memset(memory, 0, total);
	/* The contents that rank 1 reads. */
	fill_kept(memory, 1, side->rank);
	CALL(fi_mr_reg(side->domain, memory, total, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY + (uint64_t) side->rank, 0, &region,
		NULL));
	if (side->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
		CALL(fi_mr_bind(region, &side->links[0].ep->fid, 0));
		CALL(fi_mr_enable(region));
	}
	shared->memory[side->rank].addr = virtual ? (uintptr_t) memory : 0;
	shared->memory[side->rank].key = fi_mr_key(region);
	barrier();
}

static uint64_t remote(size_t at)
{
	return shared->memory[!side->rank].addr + at;
}

static uint64_t key(void)
{
	return shared->memory[!side->rank].key;
}

static uint64_t look(size_t at)
{
	return *(volatile uint64_t *) (memory + at);
}

/* Retries a call until it is accepted. */
#define POST(what) do { \
	ssize_t ret_; \
	while ((ret_ = (what)) == -FI_EAGAIN) \
		poll_completions(side); \
	if (ret_) \
		call_failed(#what, (int) ret_); \
} while (0)

/* Waits only for old completions, whose words are needed again. */
static void write_word(uint64_t value, size_t at)
{
	int slot = (int) (value % MAX_WINDOW);

	await(side, side->sends_expected - MAX_WINDOW + 1, 0);
	words[slot] = value;
	POST(fi_write(side->links[0].ep, &words[slot], WORD, NULL, side->links[0].to, remote(at), key(), &side->sends[slot]));
	side->sends_expected++;
}

/* Rank 1 notifies rank 0 of its end. */
static void meet(void)
{
	side->number++;
	if (side->rank == 1) {
		write_word(side->number, mailbox);
		await(side, side->sends_expected, 0);
	} else {
		while (look(mailbox) != side->number)
			poll_completions(side);
	}
}

/* Keeps a window of operations in flight. */
static void stream(void (*post)(int slot), long count)
{
	long i;

	for (i = 0; side->rank == 1 && i < count * options.window; i++) {
		await(side, side->sends_expected - options.window + 1, 0);
		post((int) (i % options.window));
		side->sends_expected++;
	}
	await(side, side->sends_expected, 0);
	meet();
}

static void post_write(int slot)
{
	POST(fi_write(side->links[0].ep, slot_of(side, side->out, slot), options.size, NULL, side->links[0].to,
		remote((size_t) slot * side->stride), key(), &side->sends[slot]));
}

static void post_read(int slot)
{
	POST(fi_read(side->links[0].ep, slot_of(side, side->in, slot), options.size, NULL, side->links[0].to,
		remote((size_t) slot * side->stride), key(), &side->sends[slot]));
}

static void writes(void *state, long count)
{
	(void) state;
	stream(post_write, count);
	/* The last write must have arrived whole. */
	if (side->rank == 0)
		check_whole(memory, payload_seed(0, 1));
}

static void reads(void *state, long count)
{
	(void) state;
	stream(post_read, count);
	if (side->rank == 1)
		check_whole(side->in, payload_seed(0, 0));
}

static void put_pingpong(void *state, long count)
{
	long i;

	(void) state;
	for (i = 0; i < count; i++) {
		uint64_t number = ++side->number;

		if (side->rank == 1)
			while (look(mailbox) != number)
				poll_completions(side);
		write_word(number, mailbox);
		if (side->rank == 0)
			while (look(mailbox) != number)
				poll_completions(side);
	}
	await(side, side->sends_expected, 0);
}

static void fetch_adds(void *state, long count)
{
	static uint64_t one = 1;
	long i;

	(void) state;
	for (i = 0; side->rank == 1 && i < count; i++) {
		POST(fi_fetch_atomic(side->links[0].ep, &one, 1, NULL, &result, NULL, side->links[0].to, remote(mailbox + WORD), key(),
			FI_UINT64, FI_SUM, &side->sends[0]));
		side->sends_expected++;
		await(side, side->sends_expected, 0);
		MUST(result == added++);
	}
	meet();
}

static void inject_writes(void *state, long count)
{
	uint64_t last = side->number += (uint64_t) count;
	long round;
	int i;

	(void) state;
	for (round = 0; side->rank == 1 && round < count; round++) {
		uint64_t word = last - (uint64_t) count + 1 + (uint64_t) round;

		for (i = 0; i < options.window; i++)
			POST(fi_inject_write(side->links[0].ep, &word, WORD, side->links[0].to, remote(mailbox + 64 + (size_t) i * WORD),
				key()));
	}
	for (i = 0; side->rank == 0 && i < options.window; i++)
		while (look(mailbox + 64 + (size_t) i * WORD) != last)
			poll_completions(side);
}

static const struct pattern {
	const char *name;
	run_fn *run;
} patterns[] = {
	{ "write", writes },
	{ "read", reads },
	{ "put", put_pingpong },
	{ "fetch-add", fetch_adds },
	{ "inject-write", inject_writes },
};

static double value_of(run_fn *run, struct sample sample)
{
	if (run == put_pingpong)
		return sample.elapsed / sample.count / 2;
	if (run == fetch_adds)
		return sample.elapsed / sample.count;
	return sample.count * options.window * (run == inject_writes ? 1 : (double) options.size) / sample.elapsed;
}

int run_rma(void)
{
	const struct pattern *pattern = NULL;
	struct sample sample;
	size_t i;
	int rank;

	for (i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
		if (!strcmp(patterns[i].name, options.pattern))
			pattern = &patterns[i];
	if (!pattern)
		return 0;
	MUST(options.threads == 1 && options.peers == 1 && options.buffers == KEPT);
	MUST(options.size == WORD || pattern->run == writes || pattern->run == reads);
	more_caps = FI_RMA | (pattern->run == fetch_adds ? FI_ATOMIC : 0);
	rank = spawn(2);
	side = aligned_alloc(64, (sizeof(*side) + 63) & ~(size_t) 63);
	MUST(side);
	open_side(side, rank, 0);
	make_buffers(side, options.window);
	fill_kept(side->out, options.window, rank);
	open_links(side, 0, 1);
	expose();
	side->number = 0;
	sample = measure(pattern->run, NULL, rank);
	barrier();
	if (rank == 0)
		print_result(value_of(pattern->run, sample), sample);
	finish(rank);
	return 1;
}
