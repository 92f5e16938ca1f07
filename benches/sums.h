/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the members of an allreduce contribute, and a check of the sums. */
#ifndef SUMS_H
#define SUMS_H

#include "bench.h"

struct sums {
	uint64_t *in, *out;
	size_t count;
};

static inline struct sums make_sums(int rank)
{
	struct sums s = { .count = options.size / sizeof(uint64_t) };
	size_t i;

	MUST(options.size % sizeof(uint64_t) == 0);
	s.in = (uint64_t *) alloc_pages(options.size + sizeof(uint64_t));
	s.out = (uint64_t *) alloc_pages(options.size + sizeof(uint64_t));
	for (i = 0; i < s.count; i++)
		s.in[i] = (i + 1) * (uint64_t) (rank + 1);
	return s;
}

static inline void check_sum(const struct sums *s, size_t i)
{
	uint64_t all = (uint64_t) options.processes * (uint64_t) (options.processes + 1) / 2;

	if (s->out[i] != (i + 1) * all)
		wrong_bytes();
}

/* Before an operation. */
static inline void forget_sums(struct sums *s)
{
	s->out[0] = s->out[s->count - 1] = 0;
}

/* After an operation: its ends, because checking every word would be part of the time. */
static inline void check_ends(const struct sums *s)
{
	check_sum(s, 0);
	check_sum(s, s->count - 1);
}

static inline void check_sums(const struct sums *s)
{
	size_t i;

	for (i = 0; i < s->count; i++)
		check_sum(s, i);
}

#endif
