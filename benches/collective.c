/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Collective operations of `--processes` members, microseconds for each:
 *   allreduce   the sum of `--size` bytes of 64-bit integers
 *   barrier
 * After `--yield` empty reads a process yields its core. mpich.c measures the same through MPI.
 */
#include <rdma/fi_collective.h>

#include "patterns.h"
#include "side.h"
#include "sums.h"

static struct side side;
static struct fid_ep *ep;
static struct fid_mc *group;
static fi_addr_t all;
static struct sums sums;

static void await_one(struct side *s)
{
	s->sends_expected++;
	await(s, s->sends_expected, s->receives_done);
}

static void run_allreduces(void *state, long count)
{
	while (count-- > 0) {
		forget_sums(&sums);
		CALL(fi_allreduce(ep, sums.in, sums.count, NULL, sums.out, NULL, all, FI_UINT64, FI_SUM, 0, &side.sends[0]));
		await_one(state);
		check_ends(&sums);
	}
}

static void run_barriers(void *state, long count)
{
	while (count-- > 0) {
		CALL(fi_barrier(ep, all, &side.sends[0]));
		await_one(state);
	}
}

static void join(struct side *s, int rank)
{
	struct fi_av_set_attr set_attr = { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_eq_entry event;
	struct fid_av_set *set;
	struct fid_eq *eq;
	fi_addr_t member;
	uint32_t kind;
	ssize_t ret;
	int i;

	CALL(fi_eq_open(s->fabric, &eq_attr, &eq, NULL));
	CALL(fi_endpoint(s->domain, s->info, &ep, NULL));
	CALL(fi_ep_bind(ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	CALL(fi_ep_bind(ep, &s->av->fid, 0));
	CALL(fi_ep_bind(ep, &eq->fid, 0));
	CALL(fi_enable(ep));
	CALL(fi_getname(&ep->fid, shared->crowd[rank], &(size_t) { NAME_SIZE }));
	barrier();
	CALL(fi_av_set(s->av, &set_attr, &set, NULL));
	for (i = 0; i < options.processes; i++) {
		MUST(fi_av_insert(s->av, shared->crowd[i], 1, &member, 0, NULL) == 1);
		CALL(fi_av_set_insert(set, member));
	}
	CALL(fi_av_set_addr(set, &all));
	CALL(fi_join_collective(ep, all, set, 0, &group, NULL));
	while ((ret = fi_eq_read(eq, &kind, &event, sizeof(event), 0)) == -FI_EAGAIN)
		poll_completions(s);
	MUST(ret == sizeof(event) && kind == FI_JOIN_COMPLETE);
	all = fi_mc_addr(group);
	barrier();
}

int run_collective(void)
{
	int barriers = !strcmp(options.pattern, "barrier"), rank;
	struct sample sample;

	if (!barriers && strcmp(options.pattern, "allreduce"))
		return 0;
	MUST(options.endpoint == RDM && options.threads == 1 && options.completion == SEND);
	more_caps = FI_COLLECTIVE;
	rank = spawn(options.processes);
	open_side(&side, 0, 0);
	join(&side, rank);
	if (!barriers)
		sums = make_sums(rank);
	sample = measure(barriers ? run_barriers : run_allreduces, &side, rank);
	if (!barriers)
		check_sums(&sums);
	if (rank == 0)
		print_result(sample.elapsed / sample.count, sample);
	barrier();
	finish(rank);
	return 1;
}
