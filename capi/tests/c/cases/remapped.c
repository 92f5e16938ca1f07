/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Messages and writes from and into memory that the program gives back in between (fi_mr(3)). */
#define _GNU_SOURCE
#include "case.h"
#include <sys/mman.h>

#define LEN	((size_t) 1 << 20)

/* How the program gives memory back, and gets other memory at the same address. */
enum way { UNMAP, MAP_OVER, EMPTY, MOVE, WAYS };

static uint8_t *map(void *at)
{
	uint8_t *memory = mmap(at, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	CHECK(memory != MAP_FAILED && (!at || memory == at));
	return memory;
}

static void renew(uint8_t *memory, enum way way)
{
	switch (way) {
	case UNMAP:
		CHECK(munmap(memory, LEN) == 0);
		map(memory);
		break;
	case MAP_OVER:
		map(memory);
		break;
	case EMPTY:
		CHECK(madvise(memory, LEN, MADV_DONTNEED) == 0);
		break;
	default: {
		void *moved = mremap(memory, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, map(NULL));

		CHECK(moved != MAP_FAILED);
		map(memory);
		CHECK(munmap(moved, LEN) == 0);
	}
	}
}

static void exchange(struct pair *p, uint8_t *out, uint8_t *in, unsigned round)
{
	size_t i;

	for (i = 0; i < LEN; i++)
		out[i] = (uint8_t) (i * 7 + i / 251 + round * 13);
	POST(fi_recv(p->b.ep, in, LEN, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p->a.ep, out, LEN, NULL, p->to_b, &contexts[1]));
	done(&p->b, &p->a, &contexts[0]);
	done(&p->a, &p->b, &contexts[1]);
	CHECK(memcmp(in, out, LEN) == 0);
}

CASE(mr_memory_given_back_between_messages)
{
	uint8_t *out = map(NULL), *in = map(NULL);
	unsigned round = 0;
	struct pair p;
	enum way way;
	int i;

	meet(&p, &RDM);
	for (way = UNMAP; way < WAYS; way++) {
		for (i = 0; i < 12; i++) {
			/* The first ones may be handled in another way than the later ones. */
			exchange(&p, out, in, round++);
			exchange(&p, out, in, round++);
			exchange(&p, out, in, round++);
			if (i % 3 != 1)
				renew(out, way);
			if (i % 3 != 2)
				renew(in, way);
		}
	}
	part(&p);
	CHECK(munmap(out, LEN) == 0 && munmap(in, LEN) == 0);
}
