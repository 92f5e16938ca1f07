/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A small MPI program that verifies one-sided communication: windows that MPI allocates and windows
 * on memory of the program; puts and gets from 1 word to 1 MiB, accumulates, fetching operations,
 * compare-and-swap, between every pair of ranks. Exits with 0 only if every word is right. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNTER, LOCK, SUM, MOST, HEAD = 16, LENGTH = 1 << 17, TURNS = 500 };

static int rank, size, bad;

static void expect(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "rank %d: %s\n", rank, what);
		bad = 1;
	}
}

static long value(int from, int to, int step, int i)
{
	return from * 1000003L + to * 10007L + step * 31L + i * 7L;
}

/* Each rank has its own part of every other rank's window, so that puts do not overlap. */
static void puts_and_gets(MPI_Win window, long *base)
{
	int part = (LENGTH - HEAD) / size;
	long *out = malloc(sizeof(long) * (size_t) part), *in = malloc(sizeof(long) * (size_t) part);

	for (int step = 0, length = 1; length <= part; step++, length = length * 3 + 1) {
		for (int to = 0; to < size; to++) {
			for (int i = 0; i < length; i++)
				out[i] = value(rank, to, step, i);
			MPI_Put(out, length, MPI_LONG, to, HEAD + rank * part, length, MPI_LONG, window);
			MPI_Win_flush(to, window);
			memset(in, 0, sizeof(long) * (size_t) length);
			MPI_Get(in, length, MPI_LONG, to, HEAD + rank * part, length, MPI_LONG, window);
			MPI_Win_flush(to, window);
			expect(!memcmp(in, out, sizeof(long) * (size_t) length), "a get returned other words than were put");
		}
		MPI_Win_sync(window);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_sync(window);
		for (int from = 0; from < size; from++)
			for (int i = 0; i < length; i++)
				if (base[HEAD + from * part + i] != value(from, rank, step, i)) {
					expect(0, "a word of the window is wrong");
					break;
				}
		MPI_Barrier(MPI_COMM_WORLD);
	}
	free(out);
	free(in);
}

/* All ranks increment one word of rank 0: each value occurs once, and every rank sees it grow. */
static void fetching(MPI_Win window)
{
	long one = 1, old, last = -1, none = 0, total;

	for (int turn = 0; turn < TURNS; turn++) {
		MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, COUNTER, MPI_SUM, window);
		MPI_Win_flush(0, window);
		expect(old > last, "a counter does not grow");
		last = old;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Fetch_and_op(&none, &total, MPI_LONG, 0, COUNTER, MPI_NO_OP, window);
	MPI_Win_flush(0, window);
	expect(total == (long) TURNS * size, "the counter has a wrong sum");
}

/* A lock at rank 0 protects a word that is read and written separately. */
static void locking(MPI_Win window)
{
	long mine = rank + 1, open = 0, old, count;
	int probed;

	for (int turn = 0; turn < TURNS / 10; turn++) {
		do {
			MPI_Compare_and_swap(&mine, &open, &old, MPI_LONG, 0, LOCK, window);
			MPI_Win_flush(0, window);
			/*
			 * Open MPI accesses a rank's own window without any call of libfabric, and the holder
			 * of the lock reads from rank 0 with the help of rank 0's progress.
			 */
			MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &probed, MPI_STATUS_IGNORE);
		} while (old != 0);
		MPI_Get(&count, 1, MPI_LONG, 0, MOST, 1, MPI_LONG, window);
		MPI_Win_flush(0, window);
		count++;
		MPI_Put(&count, 1, MPI_LONG, 0, MOST, 1, MPI_LONG, window);
		MPI_Win_flush(0, window);
		MPI_Compare_and_swap(&open, &mine, &old, MPI_LONG, 0, LOCK, window);
		MPI_Win_flush(0, window);
		expect(old == mine, "another rank took a lock that was held");
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Get(&count, 1, MPI_LONG, 0, MOST, 1, MPI_LONG, window);
	MPI_Win_flush(0, window);
	expect(count == (long) (TURNS / 10) * size, "two ranks held a lock at once");
}

static void accumulating(MPI_Win window, long *base)
{
	double part = 0.5 + rank, sum, wanted = 0;

	for (int to = 0; to < size; to++)
		MPI_Accumulate(&part, 1, MPI_DOUBLE, to, SUM, 1, MPI_DOUBLE, MPI_SUM, window);
	MPI_Win_flush_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_sync(window);
	for (int from = 0; from < size; from++)
		wanted += 0.5 + from;
	memcpy(&sum, &base[SUM], sizeof(sum));
	expect(sum == wanted, "an accumulated sum differs");
}

static void fences(MPI_Win window, long *base)
{
	int to = (rank + 1) % size, from = (rank + size - 1) % size;
	long mine = 4711 + rank;

	MPI_Win_fence(0, window);
	MPI_Put(&mine, 1, MPI_LONG, to, HEAD, 1, MPI_LONG, window);
	MPI_Win_fence(0, window);
	expect(base[HEAD] == 4711 + from, "a fence ends before a put");
}

static void use(MPI_Win window, long *base)
{
	memset(base, 0, sizeof(long) * LENGTH);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	puts_and_gets(window, base);
	fetching(window);
	locking(window);
	accumulating(window, base);
	MPI_Win_unlock_all(window);
	fences(window, base);
	MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
	MPI_Win window;
	MPI_Info info;
	long *base;
	int worst;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	/*
	 * Otherwise MPICH accumulates by messages: ranks that share memory could do it there, and there
	 * are operations that no provider has.
	 */
	MPI_Info_create(&info);
	MPI_Info_set(info, "disable_shm_accumulate", "true");
	MPI_Info_set(info, "which_accumulate_ops", "sum,no_op,cswap");
	MPI_Win_allocate(sizeof(long) * LENGTH, sizeof(long), info, MPI_COMM_WORLD, &base, &window);
	use(window, base);
	base = malloc(sizeof(long) * LENGTH);
	MPI_Win_create(base, sizeof(long) * LENGTH, sizeof(long), info, MPI_COMM_WORLD, &window);
	use(window, base);
	free(base);
	MPI_Info_free(&info);
	MPI_Allreduce(&bad, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0 && !worst)
		printf("all right\n");
	MPI_Finalize();
	return worst;
}
