/*
 * A forked child frees a list that its parent made, while the parent's other threads make and free
 * lists: a lock that one of them holds at the fork must not stay locked in the child.
 */
#define _GNU_SOURCE
#include <rdma/rdma_addrinfo.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 300

static atomic_int ended;

/* Hints alone: the system's resolver takes no lock. */
static struct rdma_addrinfo *make(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE }, *list;

	if (rdma_getaddrinfo(NULL, NULL, &hints, &list))
		abort();
	return list;
}

static void *busy(void *unused)
{
	while (!ended)
		rdma_freeaddrinfo(make());
	return unused;
}

int main(void)
{
	struct rdma_addrinfo *lists[ROUNDS];
	pthread_t threads[4];
	int status = 0;

	for (int i = 0; i < ROUNDS; i++)
		lists[i] = make();
	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, busy, NULL))
			abort();
	for (int i = 0; i < ROUNDS && !status; i++) {
		pid_t child = fork();
		if (!child) {
			/* Kills a child that hangs. */
			alarm(20);
			rdma_freeaddrinfo(lists[i]);
			rdma_freeaddrinfo(make());
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) != child)
			abort();
		rdma_freeaddrinfo(lists[i]);
		lists[i] = NULL;
	}
	ended = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < ROUNDS; i++)
		rdma_freeaddrinfo(lists[i]);
	if (status)
		fprintf(stderr, "a child ended with status %#x\n", status);
	return status != 0;
}
