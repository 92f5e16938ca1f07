/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Messages between two ranks; each thread of one talks to one thread of the other:
 *   latency      half a round trip, us; with several peers, all but one are connected and idle, and so
 *                are the endpoints of `--idle` in a third process
 *   rate         windows of messages from rank 1 to rank 0, each window answered, million
 *                messages a second
 *   stream       the same in MB/s
 *   both         a window in each direction at once, MB/s of both directions together
 *   unexpected   windows that arrive before their receives are posted, million messages a second
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "patterns.h"
#include "side.h"

static void write_slot(struct side *s, int slot, uint64_t number)
{
	if (rewrites_buffers())
		write_payload(slot_of(s, s->out, slot), number, s->rank);
}

static void latency(void *side, long count)
{
	struct side *s = side;
	struct link *link = &s->links[0];
	size_t at = 0;
	long i;

	for (i = 0; i < count; i++) {
		uint64_t number = s->number++;
		size_t place = at;

		s->seeds[0] = payload_seed(number, !s->rank);
		if (i == 0)
			post_receive(s, link, s->in + place, options.size, PAYLOAD, 0);
		at = next_place(at);
		if (s->rank == 1)
			await(s, s->sends_expected, s->receives_done + 1);
		else
			await(s, s->sends_expected, s->receives_done);
		/*
		 * The payload has been checked. Post the next receive before the answer leaves, so that
		 * nothing is unexpected.
		 */
		if (s->rank == 1 && i + 1 < count)
			post_receive(s, link, s->in + at, options.size, PAYLOAD, 0);
		write_slot(s, 0, number);
		send_message(s, link, s->out + place, options.size, PAYLOAD, 0, 0);
		if (s->rank == 1)
			continue;
		await(s, 0, s->receives_done + 1);
		if (i + 1 < count)
			post_receive(s, link, s->in + at, options.size, PAYLOAD, 0);
	}
	await(s, s->sends_expected, s->receives_done);
}

static void post_window(struct side *s)
{
	int i;

	for (i = 0; i < options.window; i++) {
		int peer = i % options.peers;

		s->seeds[i] = payload_seed(s->number + (uint64_t) i, !s->rank);
		post_receive(s, &s->links[peer], slot_of(s, s->in, i), options.size, (uint64_t) (PAYLOAD + peer), i);
	}
}

static void send_window(struct side *s)
{
	int i;

	for (i = 0; i < options.window; i++) {
		int peer = i % options.peers;

		write_slot(s, i, s->number + (uint64_t) i);
		send_message(s, &s->links[peer], slot_of(s, s->out, i), options.size, (uint64_t) (PAYLOAD + peer), i,
			i + options.peers >= options.window);
	}
}

static void windows(void *side, long count)
{
	struct side *s = side;

	while (count-- > 0) {
		if (s->rank == 1) {
			post_receive(s, &s->links[0], &s->control_in[0], sizeof(uint64_t), ANSWER, MAX_WINDOW);
			send_window(s);
			await(s, s->sends_expected, s->receives_done + 1);
			MUST(s->control_in[0] == s->number);
		} else {
			long before = s->receives_done;

			post_window(s);
			await(s, s->sends_expected, before + options.window);
			s->control_out[0] = s->number;
			send_message(s, &s->links[0], &s->control_out[0], sizeof(uint64_t), ANSWER, MAX_WINDOW, 1);
			await(s, s->sends_expected, s->receives_done);
		}
		s->number += (uint64_t) options.window;
	}
}

static void both(void *side, long count)
{
	struct side *s = side;
	long received = s->receives_done;

	while (count-- > 0) {
		post_window(s);
		send_window(s);
		received += options.window;
		await(s, s->sends_expected, received);
		s->number += (uint64_t) options.window;
	}
}

static void unexpected(void *side, long count)
{
	struct side *s = side;

	while (count-- > 0) {
		long before = s->receives_done;

		barrier();
		if (s->rank == 1)
			send_window(s);
		barrier();
		if (s->rank == 0) {
			post_window(s);
			await(s, 0, before + options.window);
		} else {
			await(s, s->sends_expected, s->receives_done);
		}
		s->number += (uint64_t) options.window;
	}
}

struct pattern {
	const char *name;
	run_fn *run;
};

static const struct pattern patterns[] = {
	{ "latency", latency },
	{ "rate", windows },
	{ "stream", windows },
	{ "both", both },
	{ "unexpected", unexpected },
};

static const struct pattern *pattern;
static int rank;
static struct sample sample;

/* The tag of the messages with which idle endpoints connect. */
enum { IDLE = 4000 };

/* A process whose endpoints connect to rank 0 and then sleep. */
static void start_idle_peers(void)
{
	pid_t parent = getpid(), pid;
	static struct side peers;
	int i;

	raise_limit_of_descriptors();
	pid = fork();
	MUST(pid >= 0);
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	pin(-1);
	while (!atomic_load(&shared->connecting.value))
		usleep(1000);
	open_side(&peers, 1, 0);
	/* All sends have one context. */
	MUST(!(peers.info->mode & (FI_CONTEXT | FI_CONTEXT2)));
	MUST(fi_av_insert(peers.av, shared->names[0][0][0], 1, &peers.peer, 0, NULL) == 1);
	peers.links[0].to = peers.peer;
	for (i = 0; i < options.idle; i++) {
		peers.links[0].ep = open_endpoint(&peers, peers.info);
		send_message(&peers, &peers.links[0], &peers.control_out[0], sizeof(uint64_t), IDLE, MAX_WINDOW, 1);
	}
	while (peers.sends_done < peers.sends_expected)
		poll_completions(&peers);
	for (;;)
		pause();
}

/* Waits until they have connected. */
static void await_idle_peers(struct side *s)
{
	long receives = s->receives_done + options.idle;
	int i;

	atomic_store(&shared->connecting.value, 1);
	for (i = 0; i < options.idle; i++)
		post_receive(s, &s->links[0], &s->control_in[0], sizeof(uint64_t), IDLE, MAX_WINDOW);
	while (s->receives_done < receives)
		poll_completions(s);
}

static void *run_thread(void *index)
{
	int thread = (int) (intptr_t) index, receives, ping = pattern->run == latency;
	struct side *s = aligned_alloc(64, (sizeof(*s) + 63) & ~(size_t) 63);
	struct sample mine;

	MUST(s);
	participant = rank * options.threads + thread;
	open_side(s, rank, thread);
	make_buffers(s, ping ? 1 : options.window);
	fill_kept(s->out, ping ? 1 : options.window, rank);
	open_links(s, 0, options.peers);
	if (options.idle && rank == 0)
		await_idle_peers(s);
	mine = measure(pattern->run, s, rank);
	if (thread == 0)
		sample = mine;
	/* The last message arrived, whole. */
	receives = ping || pattern->run == both || rank == 0;
	if (receives)
		check_whole(slot_of(s, s->in, ping ? 0 : options.window - 1), payload_seed(s->number - 1, !rank));
	barrier();
	return NULL;
}

static double value_of(void)
{
	double messages = sample.count * options.window * options.threads;

	if (pattern->run == latency)
		return sample.elapsed / sample.count / 2;
	if (pattern->run == both)
		return 2 * messages * (double) options.size / sample.elapsed;
	return (strcmp(pattern->name, "stream") ? messages : messages * (double) options.size) / sample.elapsed;
}

int run_exchange(void)
{
	pthread_t threads[MAX_THREADS];
	double before = 0, after = 0;
	size_t i;

	for (i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
		if (!strcmp(patterns[i].name, options.pattern))
			pattern = &patterns[i];
	if (!pattern)
		return 0;
	MUST(pattern->run == latency || options.window >= options.peers);
	MUST(!options.idle || (pattern->run == latency && options.threads == 1 && options.endpoint == RDM));
	rank = spawn(2);
	if (options.idle && rank == 0)
		start_idle_peers();
	if (options.threads > 1) {
		/* With more threads than cores the latency can only be measured before and after. */
		pin(rank);
		before = line_latency(rank, 20000);
		pin(-1);
	}
	for (i = 1; i < (size_t) options.threads; i++)
		MUST(pthread_create(&threads[i], NULL, run_thread, (void *) i) == 0);
	run_thread(NULL);
	for (i = 1; i < (size_t) options.threads; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	if (options.threads > 1) {
		pin(rank);
		after = line_latency(rank, 20000);
		sample.before = before;
		sample.after = after;
	}
	if (rank == 0)
		print_result(value_of(), sample);
	finish(rank);
	return 1;
}
