/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Programs of several processes of one host, which share an address vector by its name. */
#ifndef EXAMPLES_PROCESSES_H
#define EXAMPLES_PROCESSES_H

#include "common.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

/* The first process makes the address vector of that name, the last one to close it ends it. */
static inline struct fid_av *open_shared_av(struct fid_domain *domain, const char *name, size_t count)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .count = count, .name = name };
	struct fid_av *av;

	CHECK(fi_av_open(domain, &attr, &av, NULL));
	return av;
}

/*
 * Inserts this process's endpoint and waits for those of the others. The processes exchange no
 * addresses: all see what one inserts, with the same index. Returns the index, the process's rank.
 */
static inline fi_addr_t join(struct fid_av *av, struct fid_ep *ep, fi_addr_t count)
{
	time_t end = time(NULL) + TIME_LIMIT;
	fi_addr_t rank = insert(av, ep);
	char name[256];
	size_t len = sizeof(name);

	while (fi_av_lookup(av, count - 1, name, &len)) {
		check("wait for the other processes", time(NULL) < end ? 0 : -FI_ETIMEDOUT);
		/* Another process inserts it: this one has nothing to do meanwhile. */
		sched_yield();
		len = sizeof(name);
	}
	return rank;
}

/*
 * Runs `member` in as many processes as the first argument says, 4 without one. All know a name
 * that no other program has. Returns the exit status of the program.
 */
static inline int run_processes(int argc, char **argv, const char *program,
	void (*member)(const char *name, fi_addr_t count))
{
	int count = argc > 1 ? atoi(argv[1]) : 4, i, status, failed = 0;
	char name[64];

	if (count < 1) {
		fprintf(stderr, "usage: %s [PROCESSES]\n", argv[0]);
		return 2;
	}
	snprintf(name, sizeof(name), "%s-%d", program, (int) getpid());
	/* Before any call of the library: a child cannot use what its parent has opened. */
	for (i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			return 1;
		}
		if (pid == 0) {
			member(name, (fi_addr_t) count);
			exit(0);
		}
	}
	for (i = 0; i < count; i++)
		failed |= wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status);
	return failed;
}

#endif
