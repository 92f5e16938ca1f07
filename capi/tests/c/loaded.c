/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What an application sees of loaded providers. `loaded list VERSION FLAGS [NAME [DOMAIN [FABRIC]]]`
 * prints the infos, one a line; `names` the names; `open NAME` the result of fi_fabric; `atexit`
 * closes a fabric at the end of the process; `threads` asks from several threads at once; `fork` asks
 * in children; `children` looks for children that are not its own; `ignoring` is `list` with SIGCHLD
 * ignored; `calls` marks two calls of fi_getinfo for a tracer of system calls.
 */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define API	FI_VERSION(2, 6)

static uint32_t version_of(const char *text)
{
	unsigned major = 2, minor = 6;

	sscanf(text, "%u.%u", &major, &minor);
	return FI_VERSION(major, minor);
}

static void print(const struct fi_info *info)
{
	for (; info; info = info->next) {
		const struct fi_fabric_attr *fabric = info->fabric_attr;

		printf("%s %u %u.%u %s max_group_id=%u\n", fabric->prov_name, FI_MAJOR(fabric->prov_version),
		       FI_MAJOR(fabric->api_version), FI_MINOR(fabric->api_version), info->domain_attr->name,
		       info->domain_attr->max_group_id);
	}
}

static int list(int count, char **argument)
{
	uint64_t flags = count > 1 ? strtoull(argument[1], NULL, 0) : 0;
	struct fi_info *hints = NULL, *found = (void *) 1;
	int ret;

	if (count > 2) {
		hints = fi_allocinfo();
		if (*argument[2])
			hints->fabric_attr->prov_name = strdup(argument[2]);
		if (count > 3 && *argument[3])
			hints->domain_attr->name = strdup(argument[3]);
		if (count > 4)
			hints->fabric_attr->name = strdup(argument[4]);
		hints->mode = ~0ULL;
		hints->domain_attr->mr_mode = ~3;
	}
	ret = fi_getinfo(version_of(argument[0]), NULL, NULL, flags, hints, &found);
	fi_freeinfo(hints);
	if (ret) {
		CHECK(!found);
		printf("%s\n", fi_strerror(-ret));
		return 0;
	}
	print(found);
	fi_freeinfo(found);
	return 0;
}

static int names(void)
{
	struct fi_info *found, *i;

	CHECK(fi_getinfo(API, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &found) == 0);
	for (i = found; i; i = i->next)
		printf("%s\n", i->fabric_attr->prov_name);
	fi_freeinfo(found);
	return 0;
}

static int open_fabric(char *name)
{
	struct fi_fabric_attr attr = { .name = "wrong fabric", .prov_name = name, .api_version = FI_VERSION(2, 1) };
	struct fid_fabric *fabric = NULL;
	int context, ret = fi_fabric(&attr, &fabric, &context);

	if (ret) {
		printf("%s\n", fi_strerror(-ret));
		return 0;
	}
	CHECK(fabric->fid.context == &context && fabric->fid.fclass == FI_CLASS_FABRIC);
	printf("open %u.%u\n", FI_MAJOR(fabric->api_version), FI_MINOR(fabric->api_version));
	return fi_close(&fabric->fid);
}

static struct fid_fabric *last;

static void close_last(void)
{
	CHECK(fi_close(&last->fid) == 0);
	fprintf(stderr, "closed\n");
}

/* An application's function of atexit(3), which it registers before its first call. */
static int close_at_exit(void)
{
	struct fi_fabric_attr attr = { .name = "wrong fabric", .prov_name = "late", .api_version = API };

	CHECK(atexit(close_last) == 0);
	CHECK(fi_fabric(&attr, &last, NULL) == 0);
	return 0;
}

static void *ask(void *unused)
{
	struct fi_info *found;
	int n;

	for (n = 0; n < 20; n++) {
		CHECK(fi_getinfo(API, NULL, NULL, 0, NULL, &found) == 0);
		fi_freeinfo(found);
	}
	return unused;
}

static int ask_from_threads(void)
{
	pthread_t thread[8];
	size_t n;

	for (n = 0; n < 8; n++)
		CHECK(pthread_create(&thread[n], NULL, ask, NULL) == 0);
	for (n = 0; n < 8; n++)
		CHECK(pthread_join(thread[n], NULL) == 0);
	printf("asked\n");
	return 0;
}

static int ask_in_child(void)
{
	pthread_t thread;
	int n, status;

	CHECK(pthread_create(&thread, NULL, ask, NULL) == 0);
	for (n = 0; n < 20; n++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (!child) {
			alarm(20);
			ask(NULL);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	}
	CHECK(pthread_join(thread, NULL) == 0);
	printf("asked\n");
	return 0;
}

static volatile sig_atomic_t ended;

static void count(int signal)
{
	(void) signal;
	ended++;
}

/* Waits for any child, as a shell or a launcher does. */
static void *wait_for_any(void *found)
{
	*(pid_t *) found = waitpid(-1, NULL, 0);
	return NULL;
}

/* The library's helper process is not a child that an application waits for, or hears of. */
static int leaves_no_child(void)
{
	struct fi_info *found;
	pid_t own = fork(), first = 0;
	pthread_t thread;
	sigset_t none, all;

	CHECK(own >= 0);
	if (!own) {
		alarm(100);
		for (;;)
			pause();
	}
	signal(SIGCHLD, count);
	CHECK(pthread_create(&thread, NULL, wait_for_any, &first) == 0);
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	CHECK(dup2(1, 200) == 200);
	CHECK(fi_getinfo(API, NULL, NULL, 0, NULL, &found) == 0);
	fi_freeinfo(found);
	CHECK(ended == 0);
	CHECK(kill(own, SIGKILL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(first == own);
	CHECK(waitpid(-1, NULL, WNOHANG) < 0);
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) < 0);
	/* The mask and the handlers stay the application's. */
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &none) == 0 && sigismember(&none, SIGUSR1));
	CHECK(signal(SIGCHLD, SIG_DFL) == count);
	printf("none\n");
	return 0;
}

/* System calls that nothing else makes here stand before, between and behind the calls. */
static int calls(void)
{
	struct fi_info *found;
	int n;

	for (n = 0; n < 2; n++) {
		getppid();
		CHECK(fi_getinfo(API, NULL, NULL, 0, NULL, &found) == 0);
		fi_freeinfo(found);
	}
	getppid();
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "ignoring") && argc > 2) {
		signal(SIGCHLD, SIG_IGN);
		what = "list";
	}
	if (!strcmp(what, "list") && argc > 2)
		return list(argc - 2, argv + 2);
	if (!strcmp(what, "names"))
		return names();
	if (!strcmp(what, "open") && argc > 2)
		return open_fabric(argv[2]);
	if (!strcmp(what, "atexit"))
		return close_at_exit();
	if (!strcmp(what, "threads"))
		return ask_from_threads();
	if (!strcmp(what, "fork"))
		return ask_in_child();
	if (!strcmp(what, "calls"))
		return calls();
	if (!strcmp(what, "children"))
		return leaves_no_child();
	return 2;
}
