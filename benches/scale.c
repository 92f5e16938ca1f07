/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Costs that must not grow with the length of queues or the number of peers, in seconds:
 *   cancel    100,000 posted receives are cancelled, the oldest last
 *   reverse   100,000 receives, matched by messages in reverse order
 *   ends      2,000 peers whose process is killed: from its end until the receive that waits for
 *             each of them has failed
 *   inserts   10,000 addresses are inserted one by one, with a message between two endpoints after
 *             every tenth
 * All but `ends` run both ends in one process.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "patterns.h"
#include "side.h"

enum { OPERATIONS = 100000, PEERS = 2000, ADDRESSES = 10000, WANTED = 7, BATCH = 64 };

/* An end with an endpoint whose queues take all operations. */
struct end {
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t to;
	char name[NAME_SIZE];
	long done, failed;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct end ends[2];
static struct fi_context2 contexts[OPERATIONS];
static char bytes[8];

static void find(void)
{
	struct fi_info *hints = fi_allocinfo();
	int sockets = strcmp(options.provider, "shm") != 0;

	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->fabric_attr->prov_name = strdup(options.provider);
	hints->rx_attr->size = OPERATIONS;
	hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);
	if (sockets)
		hints->addr_format = FI_SOCKADDR_IN;
	CALL(fi_getinfo(FI_VERSION(1, 20), sockets ? options.address : NULL, NULL, sockets ? FI_SOURCE : 0, hints, &info));
	CALL(fi_fabric(info->fabric_attr, &fabric, NULL));
}

static void open_queues(struct end *end)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE, .size = 4096 };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };

	CALL(fi_domain(fabric, info, &end->domain, NULL));
	CALL(fi_cq_open(end->domain, &cq_attr, &end->cq, NULL));
	CALL(fi_av_open(end->domain, &av_attr, &end->av, NULL));
}

static struct fid_ep *open_bound(struct end *end, char *name)
{
	struct fid_ep *ep;

	CALL(fi_endpoint(end->domain, info, &ep, NULL));
	CALL(fi_ep_bind(ep, &end->cq->fid, FI_TRANSMIT | FI_RECV));
	CALL(fi_ep_bind(ep, &end->av->fid, 0));
	CALL(fi_enable(ep));
	CALL(fi_getname(&ep->fid, name, &(size_t) { NAME_SIZE }));
	return ep;
}

static void poll_end(struct end *end)
{
	struct fi_cq_tagged_entry entries[BATCH];
	ssize_t n = fi_cq_read(end->cq, entries, BATCH);

	if (n > 0) {
		end->done += n;
	} else if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry error = { 0 };

		MUST(fi_cq_readerr(end->cq, &error, 0) == 1);
		end->failed++;
	} else {
		MUST(n == -FI_EAGAIN);
	}
}

static void post(struct end *end, fi_addr_t from, uint64_t tag, long number)
{
	CALL((int) fi_trecv(end->ep, bytes, sizeof(bytes), NULL, from, tag, 0, &contexts[number]));
}

/* Sends from the first end, while both make progress. */
static void send_from_first(uint64_t tag)
{
	ssize_t ret;

	while ((ret = fi_tsend(ends[0].ep, bytes, sizeof(bytes), NULL, ends[0].to, tag, &contexts[0])) == -FI_EAGAIN) {
		poll_end(&ends[0]);
		poll_end(&ends[1]);
	}
	CALL((int) ret);
}

static void await_both(long sent, long received)
{
	while (ends[0].done < sent || ends[1].done < received) {
		poll_end(&ends[0]);
		poll_end(&ends[1]);
	}
}

static void open_pair(void)
{
	int i;

	find();
	for (i = 0; i < 2; i++) {
		open_queues(&ends[i]);
		ends[i].ep = open_bound(&ends[i], ends[i].name);
	}
	for (i = 0; i < 2; i++)
		MUST(fi_av_insert(ends[i].av, ends[!i].name, 1, &ends[i].to, 0, NULL) == 1);
	post(&ends[1], FI_ADDR_UNSPEC, WANTED, 0);
	send_from_first(WANTED);
	await_both(1, 1);
}

static double cancel(void)
{
	double start;
	long i;

	open_pair();
	for (i = 0; i < OPERATIONS; i++)
		post(&ends[1], FI_ADDR_UNSPEC, (uint64_t) (WANTED + i), i);
	start = now();
	for (i = OPERATIONS; i-- > 0; )
		CALL((int) fi_cancel(&ends[1].ep->fid, &contexts[i]));
	while (ends[1].failed < OPERATIONS)
		poll_end(&ends[1]);
	return now() - start;
}

static double reverse(void)
{
	double start;
	long i;

	open_pair();
	for (i = 0; i < OPERATIONS; i++)
		post(&ends[1], FI_ADDR_UNSPEC, (uint64_t) (WANTED + i), i);
	start = now();
	for (i = OPERATIONS; i-- > 0; )
		send_from_first((uint64_t) (WANTED + i));
	await_both(1 + OPERATIONS, 1 + OPERATIONS);
	return now() - start;
}

static double inserts(void)
{
	char name[NAME_SIZE];
	fi_addr_t to;
	double start;
	long i;

	open_pair();
	memcpy(name, ends[0].name, sizeof(name));
	start = now();
	for (i = 0; i < ADDRESSES; i++) {
		if (strcmp(options.provider, "shm")) {
			/* An arbitrary address: nothing is sent there. */
			memcpy(name + 4, &(uint32_t) { 0x0100000a + (uint32_t) i * 0x10000 }, 4);
		} else {
			snprintf(name, sizeof(name), "fi_shm://nobody%ld", i);
		}
		MUST(fi_av_insert(ends[1].av, name, 1, &to, 0, NULL) == 1);
		if (i % 10 == 0) {
			post(&ends[1], FI_ADDR_UNSPEC, WANTED, 0);
			send_from_first(WANTED);
			await_both(2 + i / 10, 2 + i / 10);
		}
	}
	return now() - start;
}

/* ---- ends ---- */

struct meeting {
	char name[NAME_SIZE], names[PEERS][NAME_SIZE];
	_Atomic int listens, opened;
};

/* The peers, in one process: each sends a message, then all wait for the process to be killed. */
static void be_peers(struct meeting *meeting)
{
	struct fid_ep *eps[PEERS];
	int i;

	find();
	open_queues(&ends[1]);
	MUST(fi_av_insert(ends[1].av, meeting->name, 1, &ends[1].to, 0, NULL) == 1);
	for (i = 0; i < PEERS; i++) {
		eps[i] = open_bound(&ends[1], meeting->names[i]);
		CALL((int) fi_tsend(eps[i], bytes, sizeof(bytes), NULL, ends[1].to, WANTED, &contexts[i]));
		while (ends[1].done <= i)
			poll_end(&ends[1]);
	}
	meeting->opened = 1;
	for (;;)
		poll_end(&ends[1]);
}

static double peers_end(void)
{
	struct rlimit files;
	struct meeting *meeting;
	double start;
	pid_t parent = getpid(), child;
	int i;

	MUST(getrlimit(RLIMIT_NOFILE, &files) == 0);
	files.rlim_cur = files.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &files) == 0);
	meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(meeting != MAP_FAILED);
	/* Before any object is open, because a child may not use inherited objects. */
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		/* It would wait for ever if the other side finds no provider. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		while (!meeting->listens)
			usleep(100);
		be_peers(meeting);
	}
	find();
	open_queues(&ends[0]);
	ends[0].ep = open_bound(&ends[0], ends[0].name);
	memcpy(meeting->name, ends[0].name, NAME_SIZE);
	meeting->listens = 1;
	for (i = 0; i < PEERS; i++)
		post(&ends[0], FI_ADDR_UNSPEC, WANTED, i);
	while (ends[0].done < PEERS || !meeting->opened) {
		MUST(waitpid(child, NULL, WNOHANG) == 0);
		poll_end(&ends[0]);
	}
	for (i = 0; i < PEERS; i++) {
		MUST(fi_av_insert(ends[0].av, meeting->names[i], 1, &ends[0].to, 0, NULL) == 1);
		post(&ends[0], ends[0].to, WANTED, i);
	}
	poll_end(&ends[0]);
	kill(child, SIGKILL);
	MUST(waitpid(child, NULL, 0) == child);
	start = now();
	while (ends[0].failed < PEERS)
		poll_end(&ends[0]);
	return now() - start;
}

int run_scale(void)
{
	static const struct {
		const char *pattern;
		double (*run)(void);
	} patterns[] = { { "cancel", cancel }, { "reverse", reverse }, { "inserts", inserts }, { "ends", peers_end } };
	size_t i;

	for (i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
		if (strcmp(options.pattern, patterns[i].pattern))
			continue;
		print_result(patterns[i].run() / 1e6, (struct sample) { 0 });
		return 1;
	}
	return 0;
}
