/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Child processes of a test, and pipes to them. */
#ifndef PROCESS_H
#define PROCESS_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Forks a process with pipes to and from it. */
static inline pid_t child(void (*body)(int in, int out), int *to, int *from)
{
	int down[2], up[2];
	pid_t pid;

	CHECK(pipe(down) == 0 && pipe(up) == 0);
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(100);
		close(down[1]);
		close(up[0]);
		body(down[0], up[1]);
		exit(0);
	}
	close(down[0]);
	close(up[1]);
	*to = down[1];
	*from = up[0];
	return pid;
}

static inline void tell(int fd, const void *data, size_t len)
{
	CHECK(write(fd, data, len) == (ssize_t) len);
}

static inline void hear(int fd, void *data, size_t len)
{
	char *at = data;

	while (len) {
		ssize_t got = read(fd, at, len);

		CHECK(got > 0);
		at += got;
		len -= (size_t) got;
	}
}

/* Waits for the process, which must exit with 0. */
static inline void join(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
