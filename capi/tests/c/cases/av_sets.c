/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sets of addresses (fi_av_set(3)). */
#include "case.h"
#include <rdma/fi_collective.h>

/* Inserts this many addresses, with the handles 0, 1 and so on. */
static void fill(struct side *s, struct fid_av *av, int count)
{
	unsigned char inet[16] = { 2, 0, 1, 0, 10, 0, 0, 1 };
	char name[64];
	int i;

	for (i = 0; i < count; i++) {
		inet[7] = (unsigned char) i;
		snprintf(name, sizeof(name), "fi_shm://set-%d", i);
		CHECK(fi_av_insert(av, within_host(&s->want) ? name : (char *) inet, 1, NULL, 0, NULL) == 1);
	}
}

static struct fid_av_set *set_of(struct fid_av *av, fi_addr_t first, fi_addr_t last, uint64_t stride, uint64_t flags)
{
	struct fi_av_set_attr attr = { .start_addr = first, .end_addr = last, .stride = stride, .flags = flags };
	struct fid_av_set *set;

	CHECK(fi_av_set(av, &attr, &set, &attr) == 0);
	CHECK(set->fid.fclass == FI_CLASS_AV_SET && set->fid.context == &attr);
	return set;
}

static struct fid_av_set *empty(struct fid_av *av)
{
	return set_of(av, FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL, 0, 0);
}

/*
 * Whether a set has exactly these members of the first `count` handles. It is asked by an insertion
 * of each, which is refused for a member.
 */
static int has(struct fid_av *av, struct fid_av_set *set, int count, const char *members)
{
	struct fid_av_set *copy = empty(av);
	int i, same = 1;

	CHECK(fi_av_set_union(copy, set) == 0);
	for (i = 0; i < count; i++)
		same &= (fi_av_set_insert(copy, (fi_addr_t) i) != 0) == (strchr(members, '0' + i) != NULL);
	CHECK(fi_close(&copy->fid) == 0);
	return same;
}

CASE_OURS(av_set_attributes)
{
	struct fi_av_set_attr attr = { .count = 2, .start_addr = 1, .end_addr = 3, .stride = 1 };
	struct fi_av_attr map = { .type = FI_AV_MAP };
	struct fid_av *av;
	struct fid_av_set *set;
	struct side s;
	uint64_t flag;

	open_domain(&s, &RDM);
	fill(&s, s.av, 9);
	CHECK(fi_av_set(s.av, NULL, &set, NULL) == -FI_EINVAL && fi_av_set(s.av, &attr, NULL, NULL) == -FI_EINVAL);
	/* The range must fit into the count, have two ends and a stride. */
	CHECK(fi_av_set(s.av, &attr, &set, NULL) == -FI_EINVAL);
	attr.count = 3;
	CHECK(fi_av_set(s.av, &attr, &set, NULL) == 0 && has(s.av, set, 9, "123") && fi_close(&set->fid) == 0);
	attr.stride = 0;
	CHECK(fi_av_set(s.av, &attr, &set, NULL) == -FI_EINVAL);
	attr = (struct fi_av_set_attr) { .start_addr = 1, .end_addr = FI_ADDR_NOTAVAIL, .stride = 1 };
	CHECK(fi_av_set(s.av, &attr, &set, NULL) == -FI_EINVAL);
	/* Collectives are not there, nor are keys for them. */
	for (flag = FI_BARRIER_SET; flag <= FI_GATHER_SET; flag <<= 1) {
		attr = (struct fi_av_set_attr) { .flags = FI_UNIVERSE | flag };
		REFUSED("fi_av_set with flags of collectives, and fi_av_set_addr, in a domain without FI_COLLECTIVE",
			FI_ENOSYS, fi_av_set(s.av, &attr, &set, NULL));
	}
	attr = (struct fi_av_set_attr) { .flags = FI_UNIVERSE, .comm_key_size = 1, .comm_key = (uint8_t *) "k" };
	REFUSED("fi_av_set with a communication key", FI_ENOSYS, fi_av_set(s.av, &attr, &set, NULL));
	attr = (struct fi_av_set_attr) { .flags = 1 };
	CHECK(fi_av_set(s.av, &attr, &set, NULL) == -FI_EBADFLAGS);
	/* A map has no ranges. */
	CHECK(fi_av_open(s.domain, &map, &av, NULL) == 0);
	attr = (struct fi_av_set_attr) { .start_addr = 0, .end_addr = 1, .stride = 1 };
	CHECK(fi_av_set(av, &attr, &set, NULL) == -FI_EINVAL);
	attr = (struct fi_av_set_attr) { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	CHECK(fi_av_set(av, &attr, &set, NULL) == 0 && fi_close(&set->fid) == 0);
	CHECK(fi_close(&av->fid) == 0);
	close_side(&s);
}

CASE_OURS(av_set_ranges)
{
	struct fid_av_set *range, *steps, *all, *none;
	struct side s;
	fi_addr_t gone = 4;

	open_domain(&s, &RDM);
	fill(&s, s.av, 9);
	CHECK(fi_av_remove(s.av, &gone, 1, 0) == 0);
	range = set_of(s.av, 2, 6, 1, 0);
	steps = set_of(s.av, 1, 8, 3, 0);
	all = set_of(s.av, 0, 0, 0, FI_UNIVERSE);
	none = empty(s.av);
	/* Address 4 is refused because the vector has none, not as a member. */
	CHECK(has(s.av, range, 9, "23456") && has(s.av, steps, 9, "147") && has(s.av, none, 9, "4"));
	CHECK(fi_av_set_remove(range, 4) == -FI_EINVAL && fi_av_set_remove(range, 7) == -FI_EINVAL);
	CHECK(fi_av_set_remove(steps, 7) == 0 && fi_av_set_remove(steps, 4) == -FI_EINVAL);
	CHECK(fi_av_set_remove(range, 6) == 0 && fi_av_set_remove(range, 5) == 0);
	CHECK(has(s.av, all, 9, "012345678") && fi_av_set_remove(all, 8) == 0 && fi_av_set_remove(all, 4) == -FI_EINVAL);
	/* The address vector stays open while it has sets. */
	CHECK(fi_close(&s.av->fid) == -FI_EBUSY);
	CHECK(fi_close(&range->fid) == 0 && fi_close(&steps->fid) == 0 && fi_close(&all->fid) == 0);
	CHECK(fi_close(&s.av->fid) == -FI_EBUSY && fi_close(&none->fid) == 0);
	close_side(&s);
}

CASE_OURS(av_set_operations)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fid_av_set *a, *b, *foreign;
	struct fid_av *other;
	struct side s;
	fi_addr_t addr;

	open_domain(&s, &RDM);
	fill(&s, s.av, 9);
	CHECK(fi_av_open(s.domain, &attr, &other, NULL) == 0);
	fill(&s, other, 9);
	a = set_of(s.av, 0, 4, 1, 0);
	b = set_of(s.av, 3, 7, 2, 0);
	foreign = set_of(other, 0, 8, 1, 0);
	CHECK(fi_av_set_union(a, b) == 0 && has(s.av, a, 9, "0123457"));
	CHECK(fi_av_set_intersect(a, b) == 0 && has(s.av, a, 9, "357") && has(s.av, b, 9, "357"));
	CHECK(fi_av_set_remove(b, 5) == 0 && has(s.av, b, 9, "37"));
	CHECK(fi_av_set_diff(a, b) == 0 && has(s.av, a, 9, "5"));
	/* An address is a member once, and only if its vector has it. */
	CHECK(fi_av_set_insert(a, 8) == 0 && has(s.av, a, 9, "58") && fi_av_set_insert(a, 8) == -FI_EINVAL);
	CHECK(fi_av_set_insert(a, 9) == -FI_EINVAL && fi_av_set_insert(a, FI_ADDR_NOTAVAIL) == -FI_EINVAL);
	CHECK(fi_av_set_remove(a, 7) == -FI_EINVAL);
	/* Sets of two vectors have nothing to do with each other. */
	CHECK(fi_av_set_union(a, foreign) == -FI_EINVAL && fi_av_set_diff(a, NULL) == -FI_EINVAL);
	CHECK(fi_av_set_intersect(a, foreign) == -FI_EINVAL && has(s.av, a, 9, "58"));
	CHECK(fi_av_set_diff(a, a) == 0 && has(s.av, a, 9, ""));
	/* Nothing takes an address of a set. */
	REFUSED("fi_av_set with flags of collectives, and fi_av_set_addr, in a domain without FI_COLLECTIVE",
		FI_ENOSYS, fi_av_set_addr(a, &addr));
	CHECK(fi_close(&a->fid) == 0 && fi_close(&b->fid) == 0 && fi_close(&foreign->fid) == 0);
	CHECK(fi_close(&other->fid) == 0);
	close_side(&s);
}
