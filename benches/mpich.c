/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * collective.c's patterns through MPI: MPI_Allreduce and MPI_Barrier of all processes that mpiexec
 * starts. MPI waits by itself, so `--yield` is of no effect here. Prints microseconds for each
 * operation, and two zeros where fabric.c prints the latency of a cache line.
 */
#include <mpi.h>

#include "bench.h"
#include "sums.h"

static struct sums sums;
static int barriers;

static void run(long count)
{
	while (count-- > 0) {
		if (barriers) {
			MUST(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
			continue;
		}
		forget_sums(&sums);
		MUST(MPI_Allreduce(sums.in, sums.out, (int) sums.count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
		check_ends(&sums);
	}
}

/* From the start of rank 0 until the last one's end; the processes of a host share the clock. */
static double run_timed(long count)
{
	double start, end;

	MUST(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
	start = now();
	MUST(MPI_Bcast(&start, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
	run(count);
	end = now();
	MUST(MPI_Allreduce(MPI_IN_PLACE, &end, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS);
	return end - start;
}

int main(int argc, char **argv)
{
	int rank, processes;
	double took;
	long count;

	parse_options(argc, argv);
	barriers = !strcmp(options.pattern, "barrier");
	MUST(barriers || !strcmp(options.pattern, "allreduce"));
	MUST(MPI_Init(NULL, NULL) == MPI_SUCCESS);
	MUST(MPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS);
	MUST(MPI_Comm_size(MPI_COMM_WORLD, &processes) == MPI_SUCCESS);
	MUST(processes == options.processes);
	pin(processes == 2 ? rank : -1);
	if (!barriers)
		sums = make_sums(rank);
	/* The first operations open connections. */
	run_timed(1);
	for (count = 1; (took = run_timed(count)) < 20e3;)
		count = took > 1e3 ? (long) ((double) count * 25e3 / took) + 1 : count * 8;
	count = (long) ((double) count * options.milliseconds * 1e3 / took) + 1;
	took = run_timed(count);
	if (!barriers)
		check_sums(&sums);
	if (rank == 0)
		print_result(took / (double) count, (struct sample) { 0 });
	fflush(stdout);
	MUST(MPI_Finalize() == MPI_SUCCESS);
	return 0;
}
