/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Groups and collective operations (fi_collective(3)). */
#include "case.h"
#include "../process.h"
#include <rdma/fi_collective.h>

#define MOST	8

static const struct want MEMBER = { .caps = FI_COLLECTIVE };

/* The members of groups, all in this process. */
struct party {
	int size;
	struct side sides[MOST];
	fi_addr_t addrs[MOST][MOST];
	struct fid_av_set *sets[MOST];
	fi_addr_t set_addrs[MOST];
	struct fid_mc *groups[MOST];
};

/* Opens endpoints that have each other's addresses, and a set of all for each. */
static void gather_party(struct party *p, int size, const struct want *w)
{
	struct fi_av_set_attr attr = { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	int i, j;

	p->size = size;
	for (i = 0; i < size; i++) {
		open_side(&p->sides[i], w);
		CHECK(p->sides[i].info->caps & FI_COLLECTIVE);
	}
	for (i = 0; i < size; i++) {
		CHECK(fi_av_set(p->sides[i].av, &attr, &p->sets[i], NULL) == 0);
		for (j = 0; j < size; j++) {
			p->addrs[i][j] = insert(&p->sides[i], p->sides[j].name);
			CHECK(fi_av_set_insert(p->sets[i], p->addrs[i][j]) == 0);
		}
		CHECK(fi_av_set_addr(p->sets[i], &p->set_addrs[i]) == 0 && p->set_addrs[i] != FI_ADDR_NOTAVAIL);
	}
}

static void bind_queues(struct party *p)
{
	for (int i = 0; i < p->size; i++)
		CHECK(fi_ep_bind(p->sides[i].ep, &p->sides[i].eq->fid, 0) == 0);
}

/* Reads the next event of a side, while all make progress. */
static ssize_t next_event(struct party *p, int i, uint32_t *number, struct fi_eq_entry *event, double wait)
{
	double end = seconds() + wait;
	ssize_t ret;

	do {
		ret = fi_eq_read(p->sides[i].eq, number, event, sizeof(*event), 0);
		drive();
	} while (ret == -FI_EAGAIN && seconds() < end);
	return ret;
}

static void await_joined(struct party *p, int i, struct fid_mc *group, void *context)
{
	struct fi_eq_entry event;
	uint32_t number;
	ssize_t ret = next_event(p, i, &number, &event, 20);

	if (ret == -FI_EAVAIL) {
		struct fi_eq_err_entry err = { 0 };

		CHECK(fi_eq_readerr(p->sides[i].eq, &err, 0) > 0);
		fprintf(stderr, "join: %s\n", fi_eq_strerror(p->sides[i].eq, err.prov_errno, NULL, NULL, 0));
	}
	CHECK(ret == (ssize_t) sizeof(event) && number == FI_JOIN_COMPLETE);
	CHECK(event.fid == &group->fid && event.context == context && fi_mc_addr(group) != FI_ADDR_NOTAVAIL);
}

static void join_all(struct party *p)
{
	int i;

	for (i = 0; i < p->size; i++)
		CHECK(fi_join_collective(p->sides[i].ep, p->set_addrs[i], p->sets[i], 0, &p->groups[i], &contexts[i]) == 0);
	for (i = 0; i < p->size; i++)
		await_joined(p, i, p->groups[i], &contexts[i]);
}

static void form_party(struct party *p, int size)
{
	gather_party(p, size, &MEMBER);
	bind_queues(p);
	join_all(p);
}

static void end_party(struct party *p)
{
	for (int i = 0; i < p->size; i++) {
		if (p->groups[i])
			CHECK(fi_close(&p->groups[i]->fid) == 0);
		CHECK(fi_close(&p->sets[i]->fid) == 0);
		close_side(&p->sides[i]);
	}
}

/* The next completion of a side while all make progress: 1, 0 for an error, -1 for none. */
static int next_of(struct party *p, int i, struct fi_cq_tagged_entry *entry, struct fi_cq_err_entry *err, double wait)
{
	double end = seconds() + wait;
	int ret;

	do {
		ret = next(&p->sides[i], NULL, entry, err, 0);
		drive();
	} while (ret == -1 && seconds() < end);
	return ret;
}

static void completes(struct party *p, int i, void *context)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	int ret = next_of(p, i, &entry, &err, 20);

	if (ret == 0)
		fprintf(stderr, "failed: %s, %s\n", fi_strerror(err.err),
			fi_cq_strerror(p->sides[i].cq, err.prov_errno, err.err_data, NULL, 0));
	CHECK(ret == 1 && entry.op_context == context);
	CHECK(entry.flags & FI_COLLECTIVE && !(entry.flags & (FI_MSG | FI_TAGGED)));
}

static void all_complete(struct party *p)
{
	for (int i = 0; i < p->size; i++)
		completes(p, i, &contexts[i]);
}

static void nothing_completes(struct party *p, int i)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;

	CHECK(next_of(p, i, &entry, &err, 0.05) == -1);
}

CASE_OURS(coll_join_needs_an_event_queue)
{
	struct party p = { 0 };
	struct fid_mc *group;

	gather_party(&p, 1, &MEMBER);
	CHECK(fi_join_collective(p.sides[0].ep, p.set_addrs[0], p.sets[0], 0, &group, NULL) == -FI_ENOEQ);
	bind_queues(&p);
	CHECK(fi_join_collective(p.sides[0].ep, p.set_addrs[0], NULL, 0, &group, NULL) != 0);
	CHECK(fi_join_collective(p.sides[0].ep, p.set_addrs[0], p.sets[0], 1ULL << 60, &group, NULL) == -FI_EBADFLAGS);
	/* A group of one. */
	join_all(&p);
	CHECK(fi_barrier(p.sides[0].ep, fi_mc_addr(p.groups[0]), &contexts[0]) == 0);
	all_complete(&p);
	/* The endpoint is one of the members. */
	CHECK(fi_av_set_remove(p.sets[0], p.addrs[0][0]) == 0);
	CHECK(fi_join_collective(p.sides[0].ep, p.set_addrs[0], p.sets[0], 0, &group, NULL) == -FI_EINVAL);
	end_party(&p);
}

CASE_OURS(coll_join_waits_for_all)
{
	struct party p = { 0 };
	struct fi_eq_entry event;
	uint32_t number;
	int i;

	gather_party(&p, 4, &MEMBER);
	bind_queues(&p);
	for (i = 0; i < 3; i++)
		CHECK(fi_join_collective(p.sides[i].ep, p.set_addrs[i], p.sets[i], 0, &p.groups[i], &contexts[i]) == 0);
	for (i = 0; i < 3; i++)
		CHECK(next_event(&p, i, &number, &event, 0.05) == -FI_EAGAIN);
	CHECK(fi_join_collective(p.sides[3].ep, p.set_addrs[3], p.sets[3], 0, &p.groups[3], &contexts[3]) == 0);
	for (i = 0; i < 4; i++)
		await_joined(&p, i, p.groups[i], &contexts[i]);
	end_party(&p);
}

CASE_OURS(coll_barrier_waits_for_all)
{
	struct party p = { 0 };
	int i, late;

	form_party(&p, 5);
	for (late = 0; late < p.size; late++) {
		for (i = 0; i < p.size; i++)
			if (i != late)
				CHECK(fi_barrier(p.sides[i].ep, fi_mc_addr(p.groups[i]), &contexts[i]) == 0);
		for (i = 0; i < p.size; i++)
			nothing_completes(&p, i);
		CHECK(fi_barrier2(p.sides[late].ep, fi_mc_addr(p.groups[late]), FI_COMPLETION, &contexts[late]) == 0);
		all_complete(&p);
	}
	end_party(&p);
}

/* The messages of a fenced operation leave when everything sent to their receiver before is done. */
CASE_OURS(coll_a_fenced_barrier_waits_for_earlier_messages)
{
	const struct want both = { .caps = FI_COLLECTIVE | FI_TAGGED | FI_FENCE };
	struct iovec iov = { "early", 6 };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .tag = 5, .context = &contexts[7] };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct party p = { 0 };
	char in[16] = "";

	gather_party(&p, 2, &both);
	bind_queues(&p);
	join_all(&p);
	msg.addr = p.addrs[0][1];
	POST(fi_tsendmsg(p.sides[0].ep, &msg, FI_MATCH_COMPLETE | FI_COMPLETION));
	CHECK(fi_barrier2(p.sides[0].ep, fi_mc_addr(p.groups[0]), FI_FENCE | FI_COMPLETION, &contexts[0]) == 0);
	CHECK(fi_barrier(p.sides[1].ep, fi_mc_addr(p.groups[1]), &contexts[1]) == 0);
	nothing_completes(&p, 0);
	nothing_completes(&p, 1);
	CHECK(fi_trecv(p.sides[1].ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 5, 0, &contexts[8]) == 0);
	CHECK(next_of(&p, 1, &entry, &err, 20) == 1 && entry.op_context == &contexts[8] && !strcmp(in, "early"));
	CHECK(next_of(&p, 0, &entry, &err, 20) == 1 && entry.op_context == &contexts[7]);
	all_complete(&p);
	end_party(&p);
}

/* Element `at` of the input of a member. */
static uint64_t element(int member, size_t at)
{
	return (uint64_t) (member + 1) * 1000003 + at * 7;
}

static uint64_t *input(int member, size_t count)
{
	uint64_t *data = malloc((count + 1) * sizeof(*data));

	CHECK(data);
	for (size_t i = 0; i < count; i++)
		data[i] = element(member, i);
	return data;
}

static uint64_t sum(struct party *p, size_t at)
{
	uint64_t all = 0;

	for (int i = 0; i < p->size; i++)
		all += element(i, at);
	return all;
}

/* Runs all operations on blocks of `count` elements, with this root. */
static void exchange(struct party *p, size_t count, int root)
{
	size_t n = (size_t) p->size, k, all = n * count;
	uint64_t *in[MOST], *out[MOST];
	int i, j;

#define EACH(call) \
	do { \
		for (i = 0; i < p->size; i++) { \
			struct fid_ep *ep = p->sides[i].ep; \
			fi_addr_t group = fi_mc_addr(p->groups[i]), to = p->addrs[i][root]; \
			void *context = &contexts[i]; \
			(void) to; \
			memset(out[i], 0xee, all * sizeof(uint64_t)); \
			CHECK((call) == 0); \
		} \
		all_complete(p); \
	} while (0)

	for (i = 0; i < p->size; i++) {
		in[i] = input(i, all);
		out[i] = input(i, all);
	}
	EACH(fi_allreduce(ep, in[i], count, NULL, out[i], NULL, group, FI_UINT64, FI_SUM, 0, context));
	for (i = 0; i < p->size; i++)
		for (k = 0; k < count; k++)
			CHECK(out[i][k] == sum(p, k));
	EACH(fi_reduce(ep, in[i], count, NULL, out[i], NULL, group, to, FI_UINT64, FI_MAX, 0, context));
	for (k = 0; k < count; k++)
		CHECK(out[root][k] == element(p->size - 1, k));
	EACH(fi_reduce_scatter(ep, in[i], count, NULL, out[i], NULL, group, FI_UINT64, FI_SUM, 0, context));
	for (i = 0; i < p->size; i++)
		for (k = 0; k < count; k++)
			CHECK(out[i][k] == sum(p, (size_t) i * count + k));
	EACH(fi_allgather(ep, in[i], count, NULL, out[i], NULL, group, FI_UINT64, 0, context));
	for (i = 0; i < p->size; i++)
		for (j = 0; j < p->size; j++)
			for (k = 0; k < count; k++)
				CHECK(out[i][(size_t) j * count + k] == element(j, k));
	EACH(fi_alltoall(ep, in[i], count, NULL, out[i], NULL, group, FI_UINT64, 0, context));
	for (i = 0; i < p->size; i++)
		for (j = 0; j < p->size; j++)
			for (k = 0; k < count; k++)
				CHECK(out[i][(size_t) j * count + k] == element(j, (size_t) i * count + k));
	EACH(fi_gather(ep, in[i], count, NULL, out[i], NULL, group, to, FI_UINT64, 0, context));
	for (j = 0; j < p->size; j++)
		for (k = 0; k < count; k++)
			CHECK(out[root][(size_t) j * count + k] == element(j, k));
	EACH(fi_scatter(ep, in[i], count, NULL, out[i], NULL, group, to, FI_UINT64, 0, context));
	for (i = 0; i < p->size; i++)
		for (k = 0; k < count; k++)
			CHECK(out[i][k] == element(root, (size_t) i * count + k));
	EACH(fi_broadcast(ep, i == root ? in[i] : out[i], count, NULL, group, to, FI_UINT64, 0, context));
	for (i = 0; i < p->size; i++)
		for (k = 0; i != root && k < count; k++)
			CHECK(out[i][k] == element(root, k));
	/* Inputs stay as they are. */
	for (i = 0; i < p->size; i++) {
		for (k = 0; k < all; k++)
			CHECK(in[i][k] == element(i, k));
		free(in[i]);
		free(out[i]);
	}
#undef EACH
}

CASE_OURS(coll_operations_move_and_combine_data)
{
	struct party p = { 0 };

	form_party(&p, 5);
	exchange(&p, 1, 0);
	exchange(&p, 3, 2);
	exchange(&p, 1000, 4);
	exchange(&p, 60000, 1);
	end_party(&p);
}

CASE_OURS(coll_operations_of_two_and_four)
{
	struct party p = { 0 };

	form_party(&p, 2);
	exchange(&p, 5, 1);
	exchange(&p, 100000, 0);
	end_party(&p);
	memset(&p, 0, sizeof(p));
	form_party(&p, 4);
	exchange(&p, 7, 3);
	exchange(&p, 30000, 0);
	end_party(&p);
}

CASE_OURS(coll_root_waits_for_all)
{
	struct party p = { 0 };
	uint64_t data[MOST] = { 1, 2, 3, 4, 5, 6, 7, 8 }, out[MOST][MOST];
	int i, which;

	form_party(&p, 3);
	for (which = 0; which < 4; which++) {
		for (i = 0; i < p.size; i++) {
			struct fid_ep *ep = p.sides[i].ep;
			fi_addr_t group = fi_mc_addr(p.groups[i]), root = p.addrs[i][0];
			void *to = out[i], *context = &contexts[i];

			if (i == 2) {
				nothing_completes(&p, 0);
				nothing_completes(&p, 1);
			}
			if (which == 0)
				CHECK(fi_broadcast(ep, i ? to : data, 1, NULL, group, root, FI_UINT64, 0, context) == 0);
			if (which == 1)
				CHECK(fi_scatter(ep, data, 1, NULL, to, NULL, group, root, FI_UINT64, 0, context) == 0);
			if (which == 2)
				CHECK(fi_gather(ep, data, 1, NULL, to, NULL, group, root, FI_UINT64, 0, context) == 0);
			if (which == 3)
				CHECK(fi_reduce(ep, data, 1, NULL, to, NULL, group, root, FI_UINT64, FI_SUM, 0, context) == 0);
		}
		all_complete(&p);
	}
	end_party(&p);
}

CASE_OURS(coll_operations_are_in_order)
{
	struct party p = { 0 };
	uint32_t in[MOST][8], out[MOST][8];
	int i, k;

	/* Several are outstanding, and the members post them at different times. */
	form_party(&p, 3);
	for (i = 0; i < p.size; i++) {
		for (k = 0; k < 8; k++) {
			in[i][k] = (uint32_t) (100 * i + k);
			CHECK(fi_allreduce(p.sides[i].ep, &in[i][k], 1, NULL, &out[i][k], NULL, fi_mc_addr(p.groups[i]),
				FI_UINT32, k % 2 ? FI_SUM : FI_MAX, 0, &contexts[8 + k]) == 0);
			/* What a member contributes has been read. */
			in[i][k] = 0;
		}
		drive();
	}
	for (i = 0; i < p.size; i++)
		for (k = 0; k < 8; k++) {
			completes(&p, i, &contexts[8 + k]);
			CHECK(out[i][k] == (k % 2 ? 300 + 3 * (uint32_t) k : 200 + (uint32_t) k));
		}
	end_party(&p);
}

CASE_OURS(coll_many_groups)
{
	struct party p = { 0 };
	struct fid_mc *groups[MOST][4];
	uint64_t in = 1, out[MOST][4];
	int i, g;

	gather_party(&p, 3, &MEMBER);
	bind_queues(&p);
	/* Of the same members, and joined at once. */
	for (g = 0; g < 4; g++)
		for (i = 0; i < p.size; i++)
			CHECK(fi_join_collective(p.sides[i].ep, p.set_addrs[i], p.sets[i], 0, &groups[i][g], &contexts[g]) == 0);
	for (i = 0; i < p.size; i++)
		for (g = 0; g < 4; g++)
			await_joined(&p, i, groups[i][g], &contexts[g]);
	/* Posted in another order by each member. */
	for (i = 0; i < p.size; i++)
		for (g = 0; g < 4; g++) {
			int which = (g + i) % 4;

			in = (uint64_t) which + 1;
			CHECK(fi_allreduce(p.sides[i].ep, &in, 1, NULL, &out[i][which], NULL, fi_mc_addr(groups[i][which]),
				FI_UINT64, FI_SUM, 0, &contexts[which]) == 0);
		}
	for (i = 0; i < p.size; i++)
		for (g = 0; g < 4; g++) {
			struct fi_cq_tagged_entry entry;
			struct fi_cq_err_entry err;

			CHECK(next_of(&p, i, &entry, &err, 20) == 1 && entry.flags & FI_COLLECTIVE);
		}
	for (i = 0; i < p.size; i++)
		for (g = 0; g < 4; g++) {
			CHECK(out[i][g] == 3 * ((uint64_t) g + 1));
			CHECK(fi_close(&groups[i][g]->fid) == 0);
		}
	end_party(&p);
}

CASE_OURS(coll_subgroups)
{
	struct party p = { 0 };
	struct fid_mc *sub[MOST], *none;
	int i;

	form_party(&p, 4);
	/* Members 1 to 3 form a group of their own out of the first one. */
	for (i = 1; i < 4; i++) {
		CHECK(fi_av_set_remove(p.sets[i], p.addrs[i][0]) == 0);
		CHECK(fi_join_collective(p.sides[i].ep, fi_mc_addr(p.groups[i]), p.sets[i], 0, &sub[i], &contexts[9]) == 0);
	}
	for (i = 1; i < 4; i++)
		await_joined(&p, i, sub[i], &contexts[9]);
	/* Only members of the subgroup can be in a group that is derived from it. */
	CHECK(fi_av_set_insert(p.sets[1], p.addrs[1][0]) == 0);
	CHECK(fi_join_collective(p.sides[1].ep, fi_mc_addr(sub[1]), p.sets[1], 0, &none, NULL) == -FI_EINVAL);
	for (i = 1; i < 4; i++)
		CHECK(fi_barrier(p.sides[i].ep, fi_mc_addr(sub[i]), &contexts[i]) == 0);
	for (i = 1; i < 4; i++)
		completes(&p, i, &contexts[i]);
	/* The first group is still there, also after the subgroup. */
	for (i = 1; i < 4; i++)
		CHECK(fi_close(&sub[i]->fid) == 0);
	for (i = 0; i < 4; i++)
		CHECK(fi_barrier(p.sides[i].ep, fi_mc_addr(p.groups[i]), &contexts[i]) == 0);
	all_complete(&p);
	end_party(&p);
}

CASE_OURS(coll_join_of_members_that_the_application_manages)
{
	struct party p = { 0 };
	int i;

	gather_party(&p, 2, &MEMBER);
	bind_queues(&p);
	for (i = 0; i < 2; i++)
		CHECK(fi_join_collective(p.sides[i].ep, FI_ADDR_NOTAVAIL, p.sets[i], 0, &p.groups[i], &contexts[i]) == 0);
	for (i = 0; i < 2; i++)
		await_joined(&p, i, p.groups[i], &contexts[i]);
	exchange(&p, 2, 1);
	end_party(&p);
}

CASE_OURS(coll_directions)
{
	struct party p = { 0 };
	uint64_t in = 7, out = 0;
	int i;

	gather_party(&p, 2, &MEMBER);
	bind_queues(&p);
	for (i = 0; i < 2; i++)
		CHECK(fi_join_collective(p.sides[i].ep, p.set_addrs[i], p.sets[i], i ? FI_RECV : FI_SEND, &p.groups[i],
			&contexts[i]) == 0);
	for (i = 0; i < 2; i++)
		await_joined(&p, i, p.groups[i], &contexts[i]);
	for (i = 0; i < 2; i++) {
		struct fid_ep *ep = p.sides[i].ep;
		fi_addr_t group = fi_mc_addr(p.groups[i]);

		CHECK(fi_allreduce(ep, &in, 1, NULL, &out, NULL, group, FI_UINT64, FI_SUM, 0, NULL) == -FI_EOPNOTSUPP);
		CHECK(fi_broadcast(ep, &in, 1, NULL, group, p.addrs[i][1], FI_UINT64, 0, NULL) == -FI_EOPNOTSUPP);
		CHECK(fi_broadcast(ep, i ? &out : &in, 1, NULL, group, p.addrs[i][0], FI_UINT64, 0, &contexts[i]) == 0);
	}
	all_complete(&p);
	CHECK(out == 7);
	for (i = 0; i < 2; i++)
		CHECK(fi_barrier(p.sides[i].ep, fi_mc_addr(p.groups[i]), &contexts[i]) == 0);
	all_complete(&p);
	end_party(&p);
}

/* Whether collectives support the type and operation: whether atomics do, by fi_query_atomic. */
static int is_combination(struct side *s, int datatype, int op)
{
	struct fi_atomic_attr attr;

	if (op == FI_NOOP || op == FI_ATOMIC_READ)
		return fi_query_atomic(s->domain, datatype, FI_ATOMIC_WRITE, &attr, 0) == 0;
	return op <= FI_ATOMIC_WRITE && fi_query_atomic(s->domain, datatype, op, &attr, 0) == 0;
}

CASE_OURS(coll_query)
{
	const struct want atomics = { .caps = FI_COLLECTIVE | FI_ATOMIC };
	const enum fi_collective_op moves[] = { FI_BROADCAST, FI_ALLTOALL, FI_ALLGATHER, FI_SCATTER, FI_GATHER };
	const enum fi_collective_op combines[] = { FI_ALLREDUCE, FI_REDUCE_SCATTER, FI_REDUCE };
	struct fi_collective_attr attr = { .op = FI_NOOP, .datatype = FI_VOID };
	struct fi_atomic_attr atomic;
	struct party p = { 0 };
	struct fid_mc *mc;
	struct side plain;
	size_t i;
	int type, op;

	gather_party(&p, 1, &atomics);
	CHECK(fi_query_collective(p.sides[0].domain, FI_BARRIER, &attr, 0) == 0 && attr.max_members >= 1024);
	attr.mode = 1;
	CHECK(fi_query_collective(p.sides[0].domain, FI_BARRIER, &attr, 0) == -FI_EINVAL);
	attr = (struct fi_collective_attr) { .op = FI_SUM, .datatype = FI_UINT64 };
	CHECK(fi_query_collective(p.sides[0].domain, FI_BARRIER, &attr, 0) == -FI_EOPNOTSUPP);
	attr = (struct fi_collective_attr) { .op = FI_CSWAP, .datatype = FI_UINT64 };
	REFUSED("fi_query_collective for FI_DIFF, and operations that compare",
		FI_EOPNOTSUPP, fi_query_collective(p.sides[0].domain, FI_ALLREDUCE, &attr, 0));
	attr = (struct fi_collective_attr) { .op = FI_SUM, .datatype = FI_UINT64 };
	CHECK(fi_query_collective(p.sides[0].domain, (enum fi_collective_op) 77, &attr, 0) == -FI_ENOSYS);
	CHECK(fi_query_collective(p.sides[0].domain, FI_BARRIER, NULL, 0) == -FI_EINVAL);
	/* FI_SCATTER as a flag: the scattering part of reduce-scatter. */
	CHECK(fi_query_collective(p.sides[0].domain, FI_REDUCE_SCATTER, &attr, FI_SCATTER) == 0);
	CHECK(fi_query_collective(p.sides[0].domain, FI_ALLGATHER, &attr, FI_SCATTER) == -FI_EBADFLAGS);
	for (type = 0; type < 20; type++) {
		int known = fi_query_atomic(p.sides[0].domain, type, FI_ATOMIC_WRITE, &atomic, 0) == 0;

		for (i = 0; i < ARRAY(moves); i++) {
			attr = (struct fi_collective_attr) { .op = FI_NOOP, .datatype = type };
			CHECK(fi_query_collective(p.sides[0].domain, moves[i], &attr, 0) == (known ? 0 : -FI_EOPNOTSUPP));
			CHECK(!known || (attr.datatype_attr.size == atomic.size && attr.datatype_attr.count >= 65536 && attr.max_members >= 1024));
		}
		for (op = 0; op <= FI_MSWAP + 2; op++)
			for (i = 0; i < ARRAY(combines); i++) {
				int which = op == FI_MSWAP + 2 ? (int) FI_NOOP : op;
				int valid = is_combination(&p.sides[0], type, which);

				attr = (struct fi_collective_attr) { .op = which, .datatype = type };
				CHECK(fi_query_collective(p.sides[0].domain, combines[i], &attr, 0) == (valid ? 0 : -FI_EOPNOTSUPP));
			}
	}
	attr = (struct fi_collective_attr) { .op = FI_SUM, .datatype = FI_VOID };
	CHECK(fi_query_collective(p.sides[0].domain, FI_ALLREDUCE, &attr, 0) == -FI_EOPNOTSUPP);
	/* Without FI_COLLECTIVE there is none. */
	open_side(&plain, &RDM);
	attr = (struct fi_collective_attr) { .op = FI_NOOP, .datatype = FI_VOID };
	CHECK(!(plain.info->caps & FI_COLLECTIVE));
	REFUSED("fi_query_atomic without FI_ATOMIC, fi_query_collective without FI_COLLECTIVE",
		FI_ENOSYS, fi_query_collective(plain.domain, FI_BARRIER, &attr, 0));
	REFUSED("fi_join_collective of an endpoint without FI_COLLECTIVE, such as a connected one",
		FI_ENOSYS, fi_join_collective(plain.ep, 0, p.sets[0], 0, &mc, NULL));
	REFUSED("the slot `msg` of `fi_ops_collective`",
		FI_ENOSYS, p.sides[0].ep->collective->msg(p.sides[0].ep, NULL, NULL, NULL, 0, 0));
	CHECK(fi_barrier(plain.ep, 0, NULL) == -FI_ENOSYS);
	close_side(&plain);
	end_party(&p);
}

CASE_OURS(coll_all_types_and_operations)
{
	const struct want atomics = { .caps = FI_COLLECTIVE | FI_ATOMIC };
	unsigned char in[MOST][80], out[MOST][80], first[80];
	struct fi_collective_attr attr;
	struct party p = { 0 };
	int type, op, i;
	size_t k;

	gather_party(&p, 3, &atomics);
	bind_queues(&p);
	join_all(&p);
	for (type = FI_INT8; type < FI_DATATYPE_LAST; type++)
		for (op = FI_MIN; op <= FI_ATOMIC_WRITE + 1; op++) {
			int which = op > FI_ATOMIC_WRITE ? (int) FI_NOOP : op;
			size_t bytes;

			attr = (struct fi_collective_attr) { .op = which, .datatype = type };
			if (fi_query_collective(p.sides[0].domain, FI_ALLREDUCE, &attr, 0)) {
				CHECK(fi_allreduce(p.sides[0].ep, in[0], 1, NULL, out[0], NULL, fi_mc_addr(p.groups[0]), type, which, 0,
					NULL) == -FI_EOPNOTSUPP);
				continue;
			}
			bytes = 2 * attr.datatype_attr.size;
			/* Small values of all types: bits 2, 3 and 6 of the lowest byte. */
			for (i = 0; i < p.size; i++) {
				memset(in[i], 0, sizeof(in[i]));
				memset(out[i], 0xee, sizeof(out[i]));
				for (k = 0; k < 2; k++)
					in[i][k * attr.datatype_attr.size] = (unsigned char) (i == 0 ? 2 : i == 1 ? 3 : 6);
				CHECK(fi_allreduce(p.sides[i].ep, in[i], 2, NULL, out[i], NULL, fi_mc_addr(p.groups[i]), type, which, 0,
					&contexts[i]) == 0);
			}
			all_complete(&p);
			for (i = 0; i < p.size; i++) {
				CHECK(!memcmp(out[i], out[0], bytes));
				CHECK(out[i][bytes] == 0xee);
			}
			memset(first, 0, sizeof(first));
			if (type <= FI_UINT64) {
				const int expect[] = { 2, 6, 11, 36, 1, 1, 7, 2, 1, 7, 2, 6, 2 };

				for (k = 0; k < 2; k++)
					first[k * attr.datatype_attr.size] = (unsigned char) expect[op];
				CHECK(!memcmp(out[0], first, bytes));
			}
		}
	/* Types can be sent around, but for FI_VOID. */
	CHECK(fi_broadcast(p.sides[0].ep, in[0], 1, NULL, fi_mc_addr(p.groups[0]), p.addrs[0][0], FI_VOID, 0, NULL) ==
		-FI_EOPNOTSUPP);
	end_party(&p);
}

CASE_OURS(coll_endpoints_have_contexts_of_their_own)
{
	const struct want msg = { .type = FI_EP_MSG, .caps = FI_COLLECTIVE };
	struct fi_info *hints = hints_for(&MEMBER), *info;
	struct fid_ep *ep, *srx;
	struct side s;

	open_domain(&s, &MEMBER);
	CHECK(s.info->domain_attr->max_ep_tx_ctx == 1 && s.info->domain_attr->max_ep_rx_ctx == 1);
	CHECK(s.info->domain_attr->max_ep_srx_ctx == 0);
	/* What the info does not promise is refused at once, not by the join. */
	REFUSED("fi_scalable_ep with FI_COLLECTIVE", FI_ENOSYS, fi_scalable_ep(s.domain, s.info, &ep, NULL));
	CHECK(fi_srx_context(s.domain, NULL, &srx, NULL) == 0);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	REFUSED("fi_endpoint with FI_COLLECTIVE and rx_ctx_cnt FI_SHARED_CONTEXT; fi_ep_bind of such an endpoint to a shared receive context",
		FI_EINVAL, fi_ep_bind(ep, &srx->fid, 0));
	CHECK(fi_close(&ep->fid) == 0 && fi_close(&srx->fid) == 0);
	s.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	REFUSED("fi_endpoint with FI_COLLECTIVE and rx_ctx_cnt FI_SHARED_CONTEXT; fi_ep_bind of such an endpoint to a shared receive context",
		FI_EINVAL, fi_endpoint(s.domain, s.info, &ep, NULL));
	hints->ep_attr->tx_ctx_cnt = 2;
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	hints->ep_attr->tx_ctx_cnt = 1;
	hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
	hints = hints_for(&msg);
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
	close_side(&s);
}

CASE_OURS(coll_errors)
{
	struct fi_collective_attr attr = { .op = FI_SUM, .datatype = FI_UINT64 };
	struct party p = { 0 };
	uint64_t in = 0, out = 0;
	fi_addr_t group, unjoined;
	struct fid_mc *early;
	struct fid_ep *ep;

	form_party(&p, 2);
	ep = p.sides[0].ep;
	group = fi_mc_addr(p.groups[0]);
	CHECK(fi_query_collective(p.sides[0].domain, FI_ALLREDUCE, &attr, 0) == 0);
	CHECK(fi_allreduce(ep, &in, attr.datatype_attr.count + 1, NULL, &out, NULL, group, FI_UINT64, FI_SUM, 0, NULL) ==
		-FI_EMSGSIZE);
	CHECK(fi_allreduce(ep, &in, 1, NULL, &out, NULL, group, FI_UINT64, FI_CSWAP, 0, NULL) == -FI_EOPNOTSUPP);
	CHECK(fi_allreduce(ep, &in, 1, NULL, &out, NULL, group, FI_DOUBLE, FI_BOR, 0, NULL) == -FI_EOPNOTSUPP);
	CHECK(fi_allreduce(ep, &in, 1, NULL, &out, NULL, group + 1, FI_UINT64, FI_SUM, 0, NULL) == -FI_EINVAL);
	CHECK(fi_allreduce(ep, NULL, 1, NULL, &out, NULL, group, FI_UINT64, FI_SUM, 0, NULL) == -FI_EINVAL);
	CHECK(fi_allreduce(ep, &in, 1, NULL, NULL, NULL, group, FI_UINT64, FI_SUM, 0, NULL) == -FI_EINVAL);
	CHECK(fi_barrier(ep, p.addrs[0][1], NULL) == -FI_EINVAL);
	CHECK(fi_barrier2(ep, group, FI_TRIGGER, NULL) == -FI_EBADFLAGS);
	CHECK(fi_broadcast(ep, &in, 1, NULL, group, 99, FI_UINT64, 0, NULL) == -FI_EINVAL);
	/* Before the join is complete. */
	CHECK(fi_join_collective(ep, p.set_addrs[0], p.sets[0], 0, &early, NULL) == 0);
	unjoined = fi_mc_addr(early);
	CHECK(fi_barrier(ep, unjoined, NULL) == -FI_EOPBADSTATE);
	CHECK(fi_close(&early->fid) == 0);
	CHECK(fi_barrier(ep, unjoined, NULL) == -FI_EINVAL);
	nothing_completes(&p, 0);
	end_party(&p);
}

CASE_OURS(coll_members_that_disagree_fail)
{
	struct party p = { 0 };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	uint64_t in[2] = { 0 }, out[2];
	int i;

	form_party(&p, 3);
	for (i = 0; i < 3; i++) {
		if (i == 1)
			CHECK(fi_barrier(p.sides[i].ep, fi_mc_addr(p.groups[i]), &contexts[i]) == 0);
		else
			CHECK(fi_allreduce(p.sides[i].ep, in, 2, NULL, out, NULL, fi_mc_addr(p.groups[i]), FI_UINT64, FI_SUM, 0,
				&contexts[i]) == 0);
	}
	for (i = 0; i < 3; i++) {
		CHECK(next_of(&p, i, &entry, &err, 20) == 0);
		CHECK(err.op_context == &contexts[i] && err.flags & FI_COLLECTIVE && err.err == EPROTO);
	}
	end_party(&p);
}

CASE_OURS(coll_a_member_that_leaves_fails_the_others)
{
	struct party p = { 0 };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	int i;

	form_party(&p, 4);
	for (i = 0; i < 3; i++)
		CHECK(fi_barrier(p.sides[i].ep, fi_mc_addr(p.groups[i]), &contexts[i]) == 0);
	nothing_completes(&p, 0);
	CHECK(fi_close(&p.groups[3]->fid) == 0);
	p.groups[3] = NULL;
	for (i = 0; i < 3; i++) {
		CHECK(next_of(&p, i, &entry, &err, 20) == 0);
		CHECK(err.op_context == &contexts[i] && err.flags & FI_COLLECTIVE && err.err == FI_ECONNRESET);
	}
	/* So do later ones, with the same cause. */
	CHECK(fi_barrier(p.sides[1].ep, fi_mc_addr(p.groups[1]), &contexts[5]) == 0);
	CHECK(next_of(&p, 1, &entry, &err, 20) == 0);
	CHECK(err.op_context == &contexts[5] && err.err == FI_ECONNRESET);
	/* The endpoints can form another group. */
	for (i = 0; i < 3; i++) {
		CHECK(fi_close(&p.groups[i]->fid) == 0);
		p.groups[i] = NULL;
	}
	join_all(&p);
	exchange(&p, 10, 3);
	end_party(&p);
}

CASE_OURS(coll_closing_fails_own_operations)
{
	struct party p = { 0 };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct fi_eq_err_entry join_err = { 0 };
	struct fi_eq_entry event;
	struct fid_mc *early[2];
	uint32_t number;

	form_party(&p, 2);
	CHECK(fi_close(&p.sides[0].ep->fid) == -FI_EBUSY);
	CHECK(fi_barrier(p.sides[0].ep, fi_mc_addr(p.groups[0]), &contexts[0]) == 0);
	CHECK(fi_close(&p.groups[0]->fid) == 0);
	p.groups[0] = NULL;
	CHECK(next_of(&p, 0, &entry, &err, 20) == 0 && err.op_context == &contexts[0] && err.err == FI_ECANCELED);
	/* A join that is closed fails at the other members. */
	CHECK(fi_join_collective(p.sides[0].ep, p.set_addrs[0], p.sets[0], 0, &early[0], &contexts[1]) == 0);
	CHECK(fi_join_collective(p.sides[1].ep, p.set_addrs[1], p.sets[1], 0, &early[1], &contexts[2]) == 0);
	CHECK(fi_close(&early[0]->fid) == 0);
	CHECK(next_event(&p, 1, &number, &event, 20) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(p.sides[1].eq, &join_err, 0) > 0 && join_err.fid == &early[1]->fid);
	CHECK(fi_close(&early[1]->fid) == 0);
	end_party(&p);
}

CASE_OURS(coll_counts_as_a_write)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };
	const struct want both = { .caps = FI_COLLECTIVE | FI_RMA, .bind = FI_SELECTIVE_COMPLETION };
	struct fid_cntr *cntrs[2];
	struct party p = { 0 };
	double end = seconds() + 20;
	int i;

	gather_party(&p, 2, &both);
	bind_queues(&p);
	for (i = 0; i < 2; i++) {
		CHECK(fi_cntr_open(p.sides[i].domain, &attr, &cntrs[i], NULL) == 0);
		CHECK(fi_ep_bind(p.sides[i].ep, &cntrs[i]->fid, FI_WRITE) == 0);
	}
	join_all(&p);
	for (i = 0; i < 2; i++)
		CHECK(fi_barrier2(p.sides[i].ep, fi_mc_addr(p.groups[i]), 0, &contexts[i]) == 0);
	while ((fi_cntr_read(cntrs[0]) < 1 || fi_cntr_read(cntrs[1]) < 1) && seconds() < end)
		drive();
	for (i = 0; i < 2; i++) {
		CHECK(fi_cntr_read(cntrs[i]) == 1 && fi_cntr_readerr(cntrs[i]) == 0);
		/* Without FI_COMPLETION there is no entry. */
		nothing_completes(&p, i);
	}
	for (i = 0; i < 2; i++) {
		CHECK(fi_close(&p.groups[i]->fid) == 0 && fi_close(&p.sides[i].ep->fid) == 0);
		CHECK(fi_close(&cntrs[i]->fid) == 0);
		p.groups[i] = NULL;
		p.sides[i].ep = NULL;
	}
	end_party(&p);
}

/* Counters of bytes count no collective operation, nor the messages that carry it out. */
CASE_OURS(coll_counts_no_bytes)
{
	/* Headers before 1.21 lack FI_CNTR_EVENTS_BYTES. */
	struct fi_cntr_attr attr = { .events = 1, .wait_obj = FI_WAIT_NONE };
	const struct want both = { .caps = FI_COLLECTIVE | FI_RMA };
	static uint64_t in[2][3000], out[2][3000];
	struct fid_cntr *cntrs[2];
	struct party p = { 0 };
	int i;

	gather_party(&p, 2, &both);
	bind_queues(&p);
	for (i = 0; i < 2; i++) {
		CHECK(fi_cntr_open(p.sides[i].domain, &attr, &cntrs[i], NULL) == 0);
		CHECK(fi_ep_bind(p.sides[i].ep, &cntrs[i]->fid, FI_SEND | FI_RECV | FI_WRITE | FI_READ) == 0);
		in[i][2999] = 20 + (uint64_t) i;
	}
	join_all(&p);
	for (i = 0; i < 2; i++)
		CHECK(fi_allreduce(p.sides[i].ep, in[i], 3000, NULL, out[i], NULL, fi_mc_addr(p.groups[i]), FI_UINT64, FI_SUM, 0,
			&contexts[i]) == 0);
	all_complete(&p);
	for (i = 0; i < 2; i++) {
		CHECK(out[i][2999] == 41 && fi_cntr_read(cntrs[i]) == 0 && fi_cntr_readerr(cntrs[i]) == 0);
		CHECK(fi_close(&p.groups[i]->fid) == 0 && fi_close(&p.sides[i].ep->fid) == 0);
		CHECK(fi_close(&cntrs[i]->fid) == 0);
		p.groups[i] = NULL;
		p.sides[i].ep = NULL;
	}
	end_party(&p);
}

/* The providers with connectionless endpoints offer collectives if hinted. */
CASE_OURS(coll_is_offered)
{
	static const char *const providers[] = { "tcp", "tcp;ofi_rxm", "shm" };
	size_t i;

	for (i = 0; i < ARRAY(providers); i++) {
		struct want w = { .caps = FI_COLLECTIVE, .provider = providers[i] }, plain = { .provider = providers[i] };
		struct fi_info *info = find(&w);

		CHECK(info->caps & FI_COLLECTIVE && info->tx_attr->caps & FI_COLLECTIVE && !strcmp(info->fabric_attr->prov_name, providers[i]));
		fi_freeinfo(info);
		info = find(&plain);
		CHECK(!(info->caps & FI_COLLECTIVE));
		fi_freeinfo(info);
	}
}

CASE_OURS(coll_sets_serve_what_is_asked)
{
	struct fi_av_set_attr attr;
	struct fid_av_set *set;
	struct party p = { 0 };
	fi_addr_t addr;
	uint64_t flag;

	gather_party(&p, 1, &MEMBER);
	for (flag = FI_BARRIER_SET; flag <= FI_GATHER_SET; flag <<= 1) {
		attr = (struct fi_av_set_attr) { .flags = FI_UNIVERSE | flag };
		CHECK(fi_av_set(p.sides[0].av, &attr, &set, NULL) == 0);
		CHECK(fi_av_set_addr(set, &addr) == 0 && addr != p.set_addrs[0]);
		CHECK(fi_av_set_addr(set, NULL) == -FI_EINVAL);
		CHECK(fi_close(&set->fid) == 0);
	}
	end_party(&p);
}

/* The application's own messages do not meet those of the members. */
CASE_OURS(coll_messages_stay_apart)
{
	const struct want both = { .caps = FI_COLLECTIVE | FI_TAGGED };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct party p = { 0 };
	char in[2][16] = { "", "" };
	int i, seen = 0;

	gather_party(&p, 2, &both);
	bind_queues(&p);
	CHECK(fi_recv(p.sides[1].ep, in[0], sizeof(in[0]), NULL, FI_ADDR_UNSPEC, &contexts[7]) == 0);
	CHECK(fi_trecv(p.sides[1].ep, in[1], sizeof(in[1]), NULL, FI_ADDR_UNSPEC, 0, ~0ULL, &contexts[8]) == 0);
	join_all(&p);
	for (i = 0; i < 2; i++)
		CHECK(fi_barrier(p.sides[i].ep, fi_mc_addr(p.groups[i]), &contexts[i]) == 0);
	all_complete(&p);
	nothing_completes(&p, 1);
	POST(fi_inject(p.sides[0].ep, "plain", 6, p.addrs[0][1]));
	POST(fi_tinject(p.sides[0].ep, "tagged", 7, p.addrs[0][1], 5));
	while (seen < 2) {
		CHECK(next_of(&p, 1, &entry, &err, 20) == 1);
		CHECK(entry.op_context == &contexts[7] || entry.op_context == &contexts[8]);
		CHECK(!(entry.flags & FI_COLLECTIVE));
		seen++;
	}
	CHECK(!strcmp(in[0], "plain") && !strcmp(in[1], "tagged"));
	end_party(&p);
}

/* A member in a process of its own: reads the addresses of the others, and joins them. */
static void join_from_here(struct party *p, int rank, int size, int in, int out)
{
	struct fi_av_set_attr attr = { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	char names[MOST][sizeof(p->sides[0].name)];
	int i;

	p->size = 1;
	open_side(&p->sides[0], &MEMBER);
	if (out >= 0)
		tell(out, p->sides[0].name, sizeof(p->sides[0].name));
	if (in >= 0)
		hear(in, names, sizeof(names));
	CHECK(fi_av_set(p->sides[0].av, &attr, &p->sets[0], NULL) == 0);
	CHECK(fi_av_set_addr(p->sets[0], &p->set_addrs[0]) == 0);
	for (i = 0; i < size; i++) {
		p->addrs[0][i] = insert(&p->sides[0], i == rank ? p->sides[0].name : names[i]);
		CHECK(fi_av_set_insert(p->sets[0], p->addrs[0][i]) == 0);
	}
	bind_queues(p);
	join_all(p);
}

/* One more operation: 1 if it succeeds, 0 if it fails as an operation does. */
static int add_up(struct party *p)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	uint64_t in = 1, out = 0;
	int ret;

	CHECK(fi_allreduce(p->sides[0].ep, &in, 1, NULL, &out, NULL, fi_mc_addr(p->groups[0]), FI_UINT64, FI_SUM, 0,
		&contexts[0]) == 0);
	ret = next_of(p, 0, &entry, &err, 30);
	CHECK(ret >= 0);
	if (ret == 0)
		CHECK(err.op_context == &contexts[0] && err.flags & FI_COLLECTIVE && err.err && err.prov_errno);
	else
		CHECK(entry.op_context == &contexts[0] && out == 4);
	return ret;
}

static void survivor(int in, int out)
{
	struct party p = { 0 };
	char go;
	int rank;

	hear(in, &rank, sizeof(rank));
	join_from_here(&p, rank, 4, in, out);
	CHECK(add_up(&p) == 1);
	tell(out, "j", 1);
	/* No member reads here, and a killed one answers no more. */
	hear(in, &go, 1);
	CHECK(add_up(&p) == 0 && add_up(&p) == 0);
	end_party(&p);
}

CASE_OURS(coll_a_killed_member_fails_the_others)
{
	char names[MOST][64] = { "" }, done;
	struct fi_av_set_attr attr = { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	struct party p = { .size = 1 };
	int to[4], from[4], i, status;
	pid_t pids[4];

	/* Before any call of the library: a child cannot use what its parent has opened. */
	for (i = 1; i < 4; i++) {
		pids[i] = child(survivor, &to[i], &from[i]);
		tell(to[i], &i, sizeof(i));
		hear(from[i], names[i], sizeof(names[i]));
	}
	open_side(&p.sides[0], &MEMBER);
	memcpy(names[0], p.sides[0].name, sizeof(names[0]));
	CHECK(fi_av_set(p.sides[0].av, &attr, &p.sets[0], NULL) == 0);
	CHECK(fi_av_set_addr(p.sets[0], &p.set_addrs[0]) == 0);
	for (i = 0; i < 4; i++) {
		p.addrs[0][i] = insert(&p.sides[0], names[i]);
		CHECK(fi_av_set_insert(p.sets[0], p.addrs[0][i]) == 0);
	}
	for (i = 1; i < 4; i++)
		tell(to[i], names, sizeof(names));
	bind_queues(&p);
	join_all(&p);
	CHECK(add_up(&p) == 1);
	for (i = 1; i < 4; i++)
		hear(from[i], &done, 1);
	CHECK(kill(pids[2], SIGKILL) == 0 && waitpid(pids[2], &status, 0) == pids[2]);
	tell(to[1], "g", 1);
	tell(to[3], "g", 1);
	CHECK(add_up(&p) == 0 && add_up(&p) == 0);
	join(pids[1]);
	join(pids[3]);
	end_party(&p);
}

CASE_OURS(coll_data_before_the_event)
{
	struct party p = { 0 };
	uint64_t in = 5, out[2] = { 0 };
	int i;

	gather_party(&p, 2, &MEMBER);
	bind_queues(&p);
	for (i = 0; i < 2; i++)
		CHECK(fi_join_collective(p.sides[i].ep, p.set_addrs[i], p.sets[i], 0, &p.groups[i], &contexts[i]) == 0);
	await_joined(&p, 0, p.groups[0], &contexts[0]);
	CHECK(fi_allreduce(p.sides[0].ep, &in, 1, NULL, &out[0], NULL, fi_mc_addr(p.groups[0]), FI_UINT64, FI_SUM, 0,
		&contexts[0]) == 0);
	/* Its message reaches the other member, which has not read its event yet. */
	nothing_completes(&p, 1);
	await_joined(&p, 1, p.groups[1], &contexts[1]);
	CHECK(fi_allreduce(p.sides[1].ep, &in, 1, NULL, &out[1], NULL, fi_mc_addr(p.groups[1]), FI_UINT64, FI_SUM, 0,
		&contexts[1]) == 0);
	all_complete(&p);
	CHECK(out[0] == 10 && out[1] == 10);
	end_party(&p);
}

CASE_OURS(coll_again_queues_nothing)
{
	struct party p = { 0 };
	ssize_t ret;
	int i, posted = 0;

	form_party(&p, 2);
	while ((ret = fi_barrier(p.sides[0].ep, fi_mc_addr(p.groups[0]), &contexts[0])) == 0)
		posted++;
	CHECK(ret == -FI_EAGAIN && posted >= 256);
	for (i = 0; i < posted; i++) {
		CHECK(fi_barrier(p.sides[1].ep, fi_mc_addr(p.groups[1]), &contexts[1]) == 0);
		completes(&p, 0, &contexts[0]);
		completes(&p, 1, &contexts[1]);
	}
	/* The refused call leaves no trace: the group's next operation is the next call. */
	CHECK(fi_barrier(p.sides[1].ep, fi_mc_addr(p.groups[1]), &contexts[1]) == 0);
	nothing_completes(&p, 1);
	CHECK(fi_barrier(p.sides[0].ep, fi_mc_addr(p.groups[0]), &contexts[0]) == 0);
	all_complete(&p);
	end_party(&p);
}

CASE_OURS(coll_follows_the_order_of_the_set)
{
	struct fi_av_set_attr attr = { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	struct fid_av_set *others;
	struct party p = { 0 };
	uint64_t in, out[4][4];
	int i, k;

	/* From 0 1 2 3 to 3 1 2 0: a member that is inserted again, or by a union, comes last. */
	gather_party(&p, 4, &MEMBER);
	bind_queues(&p);
	for (i = 0; i < 4; i++) {
		CHECK(fi_av_set(p.sides[i].av, &attr, &others, NULL) == 0);
		CHECK(fi_av_set_insert(others, p.addrs[i][1]) == 0 && fi_av_set_insert(others, p.addrs[i][2]) == 0);
		CHECK(fi_av_set_remove(p.sets[i], p.addrs[i][1]) == 0 && fi_av_set_remove(p.sets[i], p.addrs[i][2]) == 0);
		CHECK(fi_av_set_remove(p.sets[i], p.addrs[i][0]) == 0);
		CHECK(fi_av_set_union(p.sets[i], others) == 0 && fi_av_set_insert(p.sets[i], p.addrs[i][0]) == 0);
		CHECK(fi_close(&others->fid) == 0);
	}
	join_all(&p);
	for (i = 0; i < 4; i++) {
		/* The call reads its input: it may be the same memory for all. */
		in = (uint64_t) i;
		CHECK(fi_allgather(p.sides[i].ep, &in, 1, NULL, out[i], NULL, fi_mc_addr(p.groups[i]), FI_UINT64, 0,
			&contexts[i]) == 0);
	}
	all_complete(&p);
	for (i = 0; i < 4; i++)
		for (k = 0; k < 4; k++)
			CHECK(out[i][k] == (uint64_t) "\3\1\2\0"[k]);
	end_party(&p);
}
