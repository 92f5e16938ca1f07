/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Shared by both benchmark programs: options, ranks (processes) with barriers in shared memory, a
 * clock, verified payloads, and samples of calibrated length, bracketed by the latency of a cache
 * line between the cores.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define COLD_SPAN	((size_t) 64 << 20)
#define MUST(what)	do { if (!(what)) fail(__FILE__, __LINE__, #what); } while (0)

enum {
	MAX_PEERS = 64,
	MAX_THREADS = 8,
	MAX_WINDOW = 256,
	MAX_PROCESSES = 128,
	MAX_ENDPOINTS = 256,
	NAME_SIZE = 256,
};

enum endpoint { RDM, MSG, DGRAM };
enum locking { SAFE, DOMAIN };
/*
 * KEPT: one buffer on each side, not written between messages, as in the usual benchmarks. WRITTEN:
 * the sender rewrites the buffer before each send. READ: the receiver also reads and checks every
 * byte. COLD: buffers cycle through 64 MB. APART: as KEPT, but each message of a window has its own,
 * as in programs that own their buffers. HEAP: as KEPT, but the buffers begin 16 bytes into a page,
 * where malloc(3) puts large ones.
 */
enum buffers { KEPT, WRITTEN, READ, COLD, APART, HEAP };
enum completion { SEND, INJECT, SELECTIVE };
enum wait { SPIN, SREAD, FD };
enum progress { MANUAL, AUTO };
/*
 * Ways to drive a bare socket; and ways between two buffers of a host: the receiver reads, the sender
 * writes, both copy a half each, or both copy through a pool.
 */
enum loop { BUSY, BLOCKING, BATCHED, READING, WRITING, BOTH, POOLED };

struct options {
	const char *provider, *pattern;
	/* This host's, for providers with internet addresses. */
	const char *address;
	enum endpoint endpoint;
	enum locking locking;
	enum buffers buffers;
	enum completion completion;
	enum wait wait;
	enum progress progress;
	enum loop loop;
	size_t size;
	int window, threads, peers, processes, batch;
	/* Connections of rank 0 without traffic, to endpoints of a process that sleeps. */
	int idle;
	/* Microseconds after which a process between the ranks passes on what they send; 0: there is none. */
	long relay;
	/* Empty reads before the process yields its core; 0: it never yields. */
	long yield;
	/* Repetitions; 0: calibrate so that they take `milliseconds`. */
	long count;
	double milliseconds;
	int cores[MAX_PROCESSES], core_count;
	/* Flips a bit of this message number, to prove that verification works; 0: none. */
	long corrupt;
};

extern struct options options;

struct line {
	_Alignas(64) atomic_long value;
	char rest[56];
};

struct shared {
	struct line ping, pong, arrived;
	double start, starts[MAX_PROCESSES], end[MAX_PROCESSES], result, gaps[MAX_PROCESSES];
	char names[2][MAX_THREADS][MAX_PEERS][NAME_SIZE];
	char crowd[MAX_PROCESSES][NAME_SIZE], endpoints[MAX_ENDPOINTS][NAME_SIZE];
	/* Numbers of messages, and of pieces of them in a pool, from each rank to the other. */
	struct line announced[2], written[2], filled[2], drained[2], answered;
	/* The idle endpoints may connect. */
	struct line connecting;
	pid_t pids[2];
	/* Addresses and keys of the memory that each rank exposes. */
	struct { uint64_t addr, key; } memory[2];
};

extern struct shared *shared;

/* This thread's number among all that take part in barriers. */
extern __thread int participant;
/* Called while this thread waits in a barrier, because its peers may depend on its progress. */
extern __thread void (*barrier_progress)(void *state);
extern __thread void *barrier_state;

void fail(const char *file, int line, const char *what) __attribute__((noreturn));

/* Prints a line to standard error and exits. */
void quit(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

void parse_options(int argc, char **argv);

/*
 * Forks into `count` ranks, each with `options.threads` threads that take part in barriers; returns
 * the rank.
 */
int spawn(int count);

/* Ends a rank; rank 0 first waits until all others have exited successfully. */
void finish(int rank);

/* Pins this thread to one core of the list, or, if `which` is negative, to all of them. */
void pin(int which);

/* In microseconds. */
double now(void);

/* Returns when all threads of all ranks have called it. */
void barrier(void);

/* Half a round trip of one cache line between ranks 0 and 1, in microseconds. */
double line_latency(int rank, long trips);

typedef void run_fn(void *state, long count);

/* Repetitions, and microseconds from the first thread's start to the last one's end. */
struct sample {
	double count, elapsed;
	/* Latency of a cache line before and after, with two ranks of one thread; else 0. */
	double before, after;
};

struct sample measure(run_fn *run, void *state, int rank);

/* Prints the value and the bracketing latencies. */
void print_result(double value, struct sample sample);

void corrupt(char *bytes);
void wrong_bytes(void) __attribute__((noreturn));
void fill(void *bytes, size_t size, uint64_t seed);
int differs(const void *bytes, size_t size, uint64_t seed);

/* The first word that `fill` writes. */
static inline uint64_t first_word(uint64_t seed)
{
	return seed * 0x9e3779b97f4a7c15u;
}

static inline int rewrites_buffers(void)
{
	return options.buffers == WRITTEN || options.buffers == READ;
}

/*
 * The seed of a message's bytes: its number and its sender, or only its sender where buffers are
 * not rewritten.
 */
static inline uint64_t payload_seed(uint64_t number, int sender)
{
	return rewrites_buffers() ? 2 * number + (uint64_t) sender : (uint64_t) (7 + sender);
}

/* Writes the payload of a message. */
static inline void write_payload(char *bytes, uint64_t number, int sender)
{
	fill(bytes, options.size, payload_seed(number, sender));
	if (options.corrupt && number == (uint64_t) options.corrupt)
		corrupt(bytes);
}

/*
 * Checks a received payload inside the timed region: all of it (READ), its first word (WRITTEN), or
 * nothing.
 */
static inline void check_payload(const char *bytes, uint64_t seed)
{
	uint64_t word = first_word(seed);

	if (options.buffers == READ && differs(bytes, options.size, seed))
		wrong_bytes();
	if (options.buffers == WRITTEN && memcmp(bytes, &word, options.size < sizeof(word) ? options.size : sizeof(word)))
		wrong_bytes();
}

/* Checks a whole payload, outside the timed region. */
void check_whole(const char *bytes, uint64_t seed);

/* Offset of the next message in its buffer; it advances only for cold buffers. */
static inline size_t next_place(size_t at)
{
	if (options.buffers != COLD)
		return 0;
	at += (options.size + 63) & ~(size_t) 63;
	return at + options.size > COLD_SPAN ? 0 : at;
}

/* Bytes between the messages of a window, and memory for a window. */
size_t payload_stride(void);
char *alloc_payload(int slots);

/* Fills the buffers of a window of `slots` messages that are not rewritten. */
void fill_kept(char *bytes, int slots, int sender);

/* To what the system allows, for a process with many sockets. */
void raise_limit_of_descriptors(void);

/*
 * Starts a process that accepts a connection and passes everything on to that port of this host and
 * back, `options.relay` microseconds later. Both ports are in network byte order.
 */
uint16_t start_relay(uint16_t port);

/* Page-aligned memory, already touched. */
char *alloc_pages(size_t size);

#endif
