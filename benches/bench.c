/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See bench.h. */
#define _GNU_SOURCE
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

struct options options = {
	.provider = "tcp",
	.address = "127.0.0.1",
	.pattern = "latency",
	.size = 8,
	.window = 64,
	.threads = 1,
	.peers = 1,
	.processes = 2,
	.batch = 1,
	.milliseconds = 250,
	.cores = { 0, 1 },
	.core_count = 2,
};
struct shared *shared;
__thread int participant;
__thread void (*barrier_progress)(void *state);
__thread void *barrier_state;

/* Threads of all ranks together. */
static long participants = 1;
static int processes = 1;
static volatile sig_atomic_t ended;

void fail(const char *file, int line, const char *what)
{
	const char *name = strrchr(file, '/');

	quit("%s:%d: %s does not hold (%s)", name ? name + 1 : file, line, what, options.pattern);
}

void quit(const char *format, ...)
{
	char text[512];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(text, sizeof(text) - 1, format, arguments);
	if (length > (int) sizeof(text) - 2)
		length = (int) sizeof(text) - 2;
	text[length] = '\n';
	/* One call, because two ranks may fail at the same time. */
	_exit(write(2, text, (size_t) length + 1) > 0 ? 1 : 2);
}

/* The index of `value` in a list of names separated by bars. */
static int choice(const char *option, const char *value, const char *names)
{
	char copy[128], *rest = copy, *name;
	int index;

	snprintf(copy, sizeof(copy), "%s", names);
	for (index = 0; (name = strsep(&rest, "|")); index++)
		if (!strcmp(name, value))
			return index;
	quit("--%s %s: expected one of %s", option, value, names);
}

static long number(const char *option, const char *value, long least, long most)
{
	char *end;
	long result = strtol(value, &end, 10);

	if (*value && !*end && result >= least && result <= most)
		return result;
	quit("--%s %s: expected a number from %ld to %ld", option, value, least, most);
}

static void parse_cores(char *list)
{
	char *one;

	for (options.core_count = 0; (one = strsep(&list, ",")); options.core_count++) {
		MUST(options.core_count < MAX_PROCESSES);
		options.cores[options.core_count] = (int) number("cores", one, 0, CPU_SETSIZE - 1);
	}
}

void parse_options(int argc, char **argv)
{
	enum {
		PROVIDER, ENDPOINT, PATTERN, SIZE, WINDOW, THREADS, PEERS, PROCESSES, LOCKING, BATCH, BUFFERS, COMPLETION,
		WAIT, PROGRESS, LOOP, YIELD, COUNT, MILLISECONDS, CORES, CORRUPT, ADDRESS, IDLE, RELAY,
	};
	static const char *const names[] = {
		"provider", "endpoint", "pattern", "size", "window", "threads", "peers", "processes", "locking", "batch",
		"buffers", "completion", "wait", "progress", "loop", "yield", "count", "milliseconds", "cores",
		"corrupt", "address", "idle", "relay",
	};
	struct option known[sizeof(names) / sizeof(*names) + 1] = { 0 };
	int which;

	for (which = 0; which < (int) (sizeof(names) / sizeof(*names)); which++)
		known[which] = (struct option) { names[which], required_argument, NULL, 256 + which };
	while ((which = getopt_long(argc, argv, "", known, NULL)) != -1) {
		const char *name = which < 256 ? "" : names[which - 256];

		switch (which - 256) {
		case PROVIDER: options.provider = optarg; break;
		case ENDPOINT: options.endpoint = choice(name, optarg, "rdm|msg|dgram"); break;
		case PATTERN: options.pattern = optarg; break;
		case SIZE: options.size = (size_t) number(name, optarg, 0, 1L << 30); break;
		case WINDOW: options.window = (int) number(name, optarg, 1, MAX_WINDOW); break;
		case THREADS: options.threads = (int) number(name, optarg, 1, MAX_THREADS); break;
		case PEERS: options.peers = (int) number(name, optarg, 1, MAX_PEERS); break;
		case PROCESSES: options.processes = (int) number(name, optarg, 2, MAX_PROCESSES); break;
		case LOCKING: options.locking = choice(name, optarg, "safe|domain"); break;
		case BATCH: options.batch = (int) number(name, optarg, 1, 16); break;
		case BUFFERS: options.buffers = choice(name, optarg, "kept|written|read|cold|apart|heap"); break;
		case COMPLETION: options.completion = choice(name, optarg, "send|inject|selective"); break;
		case WAIT: options.wait = choice(name, optarg, "spin|sread|fd"); break;
		case PROGRESS: options.progress = choice(name, optarg, "manual|auto"); break;
		case LOOP: options.loop = choice(name, optarg, "busy|blocking|batched|reading|writing|both|pooled"); break;
		case YIELD: options.yield = number(name, optarg, 0, 1L << 40); break;
		case COUNT: options.count = number(name, optarg, 1, 1L << 40); break;
		case MILLISECONDS: options.milliseconds = (double) number(name, optarg, 1, 60000); break;
		case CORES: parse_cores(optarg); break;
		case CORRUPT: options.corrupt = number(name, optarg, 1, 1L << 40); break;
		case ADDRESS: options.address = optarg; break;
		case IDLE: options.idle = (int) number(name, optarg, 0, 10000); break;
		case RELAY: options.relay = number(name, optarg, 0, 1000000); break;
		default: _exit(2);
		}
	}
	MUST(optind == argc);
	MUST(options.buffers != COLD || options.size <= COLD_SPAN);
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1e6 + (double) t.tv_nsec / 1e3;
}

void pin(int which)
{
	cpu_set_t set;
	int i;

	CPU_ZERO(&set);
	for (i = 0; i < options.core_count; i++)
		if (which < 0 || i == which % options.core_count)
			CPU_SET(options.cores[i], &set);
	MUST(sched_setaffinity(0, sizeof(set), &set) == 0);
}

/* A rank that fails ends the sample at once. */
static void child_ended(int signal)
{
	static const char text[] = "a process was killed\n";
	int status;

	(void) signal;
	while (waitpid(-1, &status, WNOHANG) > 0) {
		if (WIFSIGNALED(status) && write(2, text, sizeof(text) - 1) < 0)
			_exit(1);
		if (status)
			_exit(1);
		ended++;
	}
}

int spawn(int count)
{
	pid_t parent = getpid();
	int rank, i;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(shared != MAP_FAILED);
	processes = count;
	participants = (long) count * options.threads;
	signal(SIGCHLD, child_ended);
	for (rank = 0, i = 1; i < count && rank == 0; i++) {
		pid_t pid = fork();

		MUST(pid >= 0);
		if (pid == 0)
			rank = i;
	}
	if (rank) {
		signal(SIGCHLD, SIG_DFL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	if (rank < 2)
		shared->pids[rank] = getpid();
	participant = rank * options.threads;
	pin(count == 2 && options.threads == 1 ? rank : -1);
	return rank;
}

void finish(int rank)
{
	fflush(stdout);
	if (rank)
		_exit(0);
	while (ended < processes - 1)
		usleep(1000);
	_exit(0);
}

void barrier(void)
{
	static __thread long turn;

	turn++;
	atomic_fetch_add(&shared->arrived.value, 1);
	while (atomic_load(&shared->arrived.value) < turn * participants) {
		if (barrier_progress)
			barrier_progress(barrier_state);
		if (processes > 2 || options.threads > 1 || !barrier_progress)
			sched_yield();
	}
}

double line_latency(int rank, long trips)
{
	static long base;
	/* The first trips only wait for the other rank. */
	long warm = base + 100, last = warm + trips, i;
	double start = 0;

	for (i = base + 1; i <= last; i++) {
		if (i == warm + 1)
			start = now();
		if (rank == 0) {
			atomic_store_explicit(&shared->ping.value, i, memory_order_release);
			while (atomic_load_explicit(&shared->pong.value, memory_order_acquire) != i)
				;
		} else {
			while (atomic_load_explicit(&shared->ping.value, memory_order_acquire) != i)
				;
			atomic_store_explicit(&shared->pong.value, i, memory_order_release);
		}
	}
	base = last;
	return (now() - start) / (double) trips / 2;
}

/* All threads return the same value, so that they calibrate alike. */
static double timed(run_fn *run, void *state, long count)
{
	double end = 0;
	long i;

	barrier();
	if (participant == 0)
		shared->start = now();
	run(state, count);
	shared->end[participant] = now();
	barrier();
	for (i = 0; i < participants; i++)
		if (shared->end[i] > end)
			end = shared->end[i];
	return end - shared->start;
}

struct sample measure(run_fn *run, void *state, int rank)
{
	struct sample sample = { 0 };
	int bracketed = participants == 2 && processes == 2;
	long count = options.count;

	if (count) {
		timed(run, state, 16);
	} else {
		double took;

		/* The first messages open connections. */
		timed(run, state, 1);
		for (count = 1; (took = timed(run, state, count)) < 20e3;)
			count = took > 1e3 ? (long) ((double) count * 25e3 / took) + 1 : count * 8;
		count = (long) ((double) count * options.milliseconds * 1e3 / took) + 1;
	}
	for (;;) {
		if (bracketed)
			sample.before = line_latency(rank, 20000);
		sample.elapsed = timed(run, state, count);
		if (bracketed)
			sample.after = line_latency(rank, 20000);
		/*
		 * What is slow only at first, such as memory that the host has to provide, may have made
		 * the sample short.
		 */
		if (options.count || sample.elapsed >= options.milliseconds * 500)
			break;
		count = (long) ((double) count * options.milliseconds * 1e3 / sample.elapsed) + 1;
	}
	sample.count = (double) count;
	return sample;
}

void print_result(double value, struct sample sample)
{
	printf("%.6g %.4f %.4f\n", value, sample.before, sample.after);
}

__attribute__((target_clones("avx2", "default")))
void fill(void *bytes, size_t size, uint64_t seed)
{
	uint64_t *words = __builtin_assume_aligned(bytes, 8), first = first_word(seed), tail;
	size_t i, count = size / sizeof(*words);

	for (i = 0; i < count; i++)
		words[i] = first + i;
	tail = first + count;
	memcpy(words + count, &tail, size % sizeof(*words));
}

__attribute__((target_clones("avx2", "default")))
int differs(const void *bytes, size_t size, uint64_t seed)
{
	const uint64_t *words = __builtin_assume_aligned(bytes, 8);
	uint64_t first = first_word(seed), tail, bad = 0;
	size_t i, count = size / sizeof(*words);

	for (i = 0; i < count; i++)
		bad |= words[i] ^ (first + i);
	tail = first + count;
	return bad || memcmp(words + count, &tail, size % sizeof(*words));
}

void corrupt(char *bytes)
{
	if (options.size)
		/* With WRITTEN, only the first word is checked in the timed region. */
		bytes[options.buffers == WRITTEN ? 0 : options.size / 2] ^= 1;
}

void wrong_bytes(void)
{
	quit("a message arrived with wrong bytes (%s)", options.pattern);
}

void check_whole(const char *bytes, uint64_t seed)
{
	if (differs(bytes, options.size, seed))
		wrong_bytes();
}

void raise_limit_of_descriptors(void)
{
	struct rlimit limit;

	MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

char *alloc_pages(size_t size)
{
	char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(bytes != MAP_FAILED);
	memset(bytes, 1, size);
	return bytes;
}

size_t payload_stride(void)
{
	switch (options.buffers) {
	case KEPT: case COLD: case HEAP: return 0;
	default: return (options.size + 63) & ~(size_t) 63;
	}
}

char *alloc_payload(int slots)
{
	size_t size = options.buffers == COLD ? COLD_SPAN : payload_stride() * (size_t) slots + options.size + 64;

	return alloc_pages(size) + (options.buffers == HEAP ? 16 : 0);
}

void fill_kept(char *bytes, int slots, int sender)
{
	size_t at = 0;

	if (rewrites_buffers())
		return;
	do {
		fill(bytes + at, options.size, payload_seed(0, sender));
		if (options.corrupt)
			corrupt(bytes + at);
		at = options.buffers == APART && --slots > 0 ? at + payload_stride() : next_place(at);
	} while (at);
}
