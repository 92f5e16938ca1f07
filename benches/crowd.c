/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Many processes on the listed cores:
 *   all      in each round each of `--processes` ranks sends a message to every other one
 *   pairs    in each round each rank sends `--window` messages to its partner
 *   gap      the same
 * Prints million messages a second in total; of `gap`, the longest time in milliseconds that a rank
 * went without completing a round. After `--yield` empty reads a process yields its core.
 */
#include "patterns.h"
#include "side.h"

static struct side side;
static fi_addr_t addresses[MAX_PROCESSES];
static int rank, pairs, messages;

static void exchange_rounds(void *state, long count)
{
	struct side *s = state;
	struct link link = s->links[0];
	long received = s->receives_done;
	double last = now(), longest = 0;
	int i;

	while (count-- > 0) {
		uint64_t tag = s->number++;
		double time;

		/* The tag names round and sender, so that each message matches one receive. */
		for (i = 0; i < messages; i++) {
			int from = pairs ? rank ^ 1 : (rank + 1 + i) % options.processes;

			s->seeds[i] = tag * MAX_PROCESSES + (uint64_t) from;
			post_receive(s, &link, slot_of(s, s->in, i), options.size, tag * MAX_PROCESSES + (uint64_t) from, i);
		}
		fill(s->out, options.size, tag * MAX_PROCESSES + (uint64_t) rank);
		for (i = 0; i < messages; i++) {
			link.to = addresses[pairs ? rank ^ 1 : (rank + 1 + i) % options.processes];
			send_message(s, &link, s->out, options.size, tag * MAX_PROCESSES + (uint64_t) rank, i, 1);
		}
		received += messages;
		await(s, s->sends_expected, received);
		time = now();
		if (time - last > longest)
			longest = time - last;
		last = time;
	}
	shared->gaps[rank] = longest;
}

static double longest_gap(void)
{
	double longest = 0;
	int i;

	for (i = 0; i < options.processes; i++)
		if (shared->gaps[i] > longest)
			longest = shared->gaps[i];
	return longest;
}

int run_crowd(void)
{
	struct sample sample;
	int gap = !strcmp(options.pattern, "gap"), i;

	pairs = gap || !strcmp(options.pattern, "pairs");
	if (!pairs && strcmp(options.pattern, "all"))
		return 0;
	MUST(options.endpoint == RDM && options.threads == 1 && !(pairs && options.processes % 2));
	/* Every payload is written and verified. */
	options.buffers = READ;
	messages = pairs ? options.window : options.processes - 1;
	rank = spawn(options.processes);
	open_side(&side, 0, 0);
	make_buffers(&side, messages);
	side.links[0].ep = open_endpoint(&side, side.info);
	CALL(fi_getname(&side.links[0].ep->fid, shared->crowd[rank], &(size_t) { NAME_SIZE }));
	barrier();
	for (i = 0; i < options.processes; i++)
		MUST(fi_av_insert(side.av, shared->crowd[i], 1, &addresses[i], 0, NULL) == 1);
	barrier();
	sample = measure(exchange_rounds, &side, rank);
	if (rank == 0 && gap)
		print_result(longest_gap() / 1e3, sample);
	else if (rank == 0)
		print_result((double) options.processes * messages * sample.count / sample.elapsed, sample);
	barrier();
	finish(rank);
	return 1;
}
