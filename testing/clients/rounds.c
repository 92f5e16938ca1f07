/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A small MPI program that verifies received data: every pair of ranks, sizes from 0 to 1 MiB,
 * probes, wildcards, and common collectives. Exits with 0 only if every byte is right. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, bad;

static unsigned char at(int from, int to, size_t i)
{
	return (unsigned char) (from * 31 + to * 17 + i * 7);
}

static void expect(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "rank %d: %s\n", rank, what);
		bad = 1;
	}
}

static void pairs(size_t bytes)
{
	unsigned char *out = malloc(bytes + 1), *in = malloc(bytes + 1);
	for (int step = 1; step < size; step++) {
		int to = (rank + step) % size, from = (rank + size - step) % size;
		MPI_Status status;
		MPI_Request request;
		int count;
		for (size_t i = 0; i < bytes; i++)
			out[i] = at(rank, to, i);
		MPI_Isend(out, (int) bytes, MPI_BYTE, to, step, MPI_COMM_WORLD, &request);
		if (step % 2) {
			MPI_Probe(from, step, MPI_COMM_WORLD, &status);
			MPI_Get_count(&status, MPI_BYTE, &count);
			expect(count == (int) bytes, "a probe reports another size");
		}
		MPI_Recv(in, (int) bytes, MPI_BYTE, step % 2 ? from : MPI_ANY_SOURCE, step, MPI_COMM_WORLD, &status);
		expect(status.MPI_SOURCE == from, "another source");
		for (size_t i = 0; i < bytes; i++)
			if (in[i] != at(from, rank, i)) {
				expect(0, "a byte differs");
				break;
			}
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	free(out);
	free(in);
}

static void matched(void)
{
	MPI_Message message;
	MPI_Status status;
	int to = (rank + 1) % size, from = (rank + size - 1) % size, value = -1;
	MPI_Request request;
	MPI_Isend(&rank, 1, MPI_INT, to, 99, MPI_COMM_WORLD, &request);
	MPI_Mprobe(from, 99, MPI_COMM_WORLD, &message, &status);
	MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
	expect(value == from, "a matched probe returns another message");
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A matched probe of a rendezvous message. */
static void matched_large(void)
{
	enum { BYTES = 1 << 20 };
	unsigned char *out = malloc(BYTES), *in = calloc(BYTES, 1);
	int to = (rank + 1) % size, from = (rank + size - 1) % size, count;
	MPI_Message message;
	MPI_Status status;
	MPI_Request request;
	for (size_t i = 0; i < BYTES; i++)
		out[i] = at(rank, to, i);
	MPI_Isend(out, BYTES, MPI_BYTE, to, 98, MPI_COMM_WORLD, &request);
	MPI_Mprobe(from, 98, MPI_COMM_WORLD, &message, &status);
	MPI_Get_count(&status, MPI_BYTE, &count);
	expect(count == BYTES, "a matched probe reports another size");
	MPI_Mrecv(in, BYTES, MPI_BYTE, &message, &status);
	for (size_t i = 0; i < BYTES; i++)
		if (in[i] != at(from, rank, i)) {
			expect(0, "a byte of a matched message differs");
			break;
		}
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	free(out);
	free(in);
}

static void truncated(void)
{
	int to = (rank + 1) % size, from = (rank + size - 1) % size, two[2] = { rank, rank }, one = 0, code, class = 0;
	MPI_Request request;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Isend(two, 2, MPI_INT, to, 7, MPI_COMM_WORLD, &request);
	code = MPI_Recv(&one, 1, MPI_INT, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (code != MPI_SUCCESS)
		MPI_Error_class(code, &class);
	expect(class == MPI_ERR_TRUNCATE, "a long message is not reported as truncated");
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void cancelled(void)
{
	MPI_Request request;
	MPI_Status status;
	int value, gone = 0;
	MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 12345, MPI_COMM_WORLD, &request);
	MPI_Cancel(&request);
	MPI_Wait(&request, &status);
	MPI_Test_cancelled(&status, &gone);
	expect(gone, "a receive is not cancelled");
}

static void collectives(int count)
{
	double *in = malloc(sizeof(double) * (size_t) count * (size_t) size);
	double *out = malloc(sizeof(double) * (size_t) count * (size_t) size);
	for (int i = 0; i < count; i++)
		in[i] = rank + i;
	MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		expect(out[i] == size * (size - 1) / 2.0 + (double) size * i, "a sum differs");
	MPI_Allgather(in, count, MPI_DOUBLE, out, count, MPI_DOUBLE, MPI_COMM_WORLD);
	for (int r = 0; r < size; r++)
		expect(out[r * count] == r, "a gathered value differs");
	for (int i = 0; i < count * size; i++)
		in[i] = rank * 1000 + i / count;
	MPI_Alltoall(in, count, MPI_DOUBLE, out, count, MPI_DOUBLE, MPI_COMM_WORLD);
	for (int r = 0; r < size; r++)
		expect(out[r * count] == r * 1000 + rank, "an exchanged value differs");
	MPI_Bcast(out, count, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	free(in);
	free(out);
}

int main(int argc, char **argv)
{
	int worst = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (size_t bytes = 0; bytes <= 1 << 20; bytes = bytes ? bytes * 4 : 1)
		pairs(bytes);
	matched();
	matched_large();
	truncated();
	cancelled();
	for (int count = 1; count <= 100000; count *= 10)
		collectives(count);
	MPI_Allreduce(&bad, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0 && !worst)
		printf("all right\n");
	MPI_Finalize();
	return worst;
}
