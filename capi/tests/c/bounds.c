/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Bounds on the memory that an endpoint holds for its peers: expected messages still arrive, and no
 * peer is refused or starved because of another. One scenario per run.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "process.h"
#include "scenario.h"
#include "side.h"

#define MIB	(1L << 20)

/* OFI_TEST_UNWANTED: number of unexpected messages ahead of the expected one. */
static long unwanted_count(void)
{
	const char *count = getenv("OFI_TEST_UNWANTED");

	return count ? atol(count) : 1000000;
}

/* AddressSanitizer's own memory would count as the library's. */
static int is_measured(void)
{
	return !getenv("OFI_TEST_ASAN");
}

/* Resident memory, in bytes. */
static long resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long all, here;

	CHECK(file && fscanf(file, "%ld %ld", &all, &here) == 2);
	fclose(file);
	return here * sysconf(_SC_PAGESIZE);
}

static void within(long before, long limit, const char *what)
{
	long grown = resident() - before;

	printf("%s: %.1f MiB more\n", what, (double) grown / MIB);
	if (is_measured() && grown > limit)
		fprintf(stderr, "%s: memory has grown by %ld bytes, more than %ld\n", what, grown, limit);
	CHECK(!is_measured() || grown <= limit);
}

/*
 * Additional memory of a busy link between two endpoints of this process: over shm a pool in each
 * direction, three times a core's private cache, counted once for each side that maps it.
 */
static long pools(void)
{
	long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);

	return strcmp(provider(), "shm") == 0 ? 2 * 3 * (cache > 0 ? cache : MIB) : 0;
}

/* A receiver and a sender in one process; connected only for FI_EP_MSG. */
static fi_addr_t open_both(struct side *receiver, struct side *sender, enum fi_ep_type type)
{
	fi_addr_t to;

	if (type == FI_EP_MSG) {
		connect_pair(receiver, sender, NULL);
		return 0;
	}
	open_rdm(receiver, FI_WAIT_NONE);
	open_rdm(sender, FI_WAIT_NONE);
	to = insert(sender, receiver->name);
	insert(receiver, sender->name);
	return to;
}

static void inject(struct side *sender, struct side *receiver, const void *bytes, size_t len, fi_addr_t to, uint64_t tag)
{
	ssize_t ret;
	double end = seconds() + 60;

	while ((ret = fi_tinject(sender->ep, bytes, len, to, tag)) == -FI_EAGAIN) {
		fi_cq_read(sender->cq, NULL, 0);
		fi_cq_read(receiver->cq, NULL, 0);
		CHECK(seconds() < end);
	}
	CHECK(ret == 0);
}

/* An expected message arrives behind many unexpected ones, which cost at most 128 bytes each. */
static void behind(enum fi_ep_type type)
{
	struct side receiver, sender;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	fi_addr_t to = open_both(&receiver, &sender, type);
	long count = unwanted_count(), i, before;
	char in[8];

	/* Warm up: each side has sent or received once. */
	CHECK(fi_trecv(receiver.ep, in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, in) == 0);
	inject(&sender, &receiver, "before", 7, to, 3);
	done(&receiver, &sender, in, FI_RECV | FI_TAGGED);
	before = resident();
	CHECK(fi_trecv(receiver.ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, in) == 0);
	for (i = 0; i < count; i++)
		inject(&sender, &receiver, NULL, 0, to, 1);
	inject(&sender, &receiver, "wanted", 7, to, 2);
	entry = done(&receiver, &sender, in, FI_RECV | FI_TAGGED);
	CHECK(entry.tag == 2 && entry.len == 7 && !strcmp(in, "wanted"));
	within(before, count * 128 + 8 * MIB, type == FI_EP_MSG ? "connected" : "unconnected");
	/* The unexpected messages are kept. */
	for (i = 0; i < count; i++) {
		CHECK(fi_trecv(receiver.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in) == 0);
		CHECK(next_of(&receiver, &sender, &entry, &err) == 1 && entry.tag == 1 && entry.len == 0);
	}
	close_side(&receiver);
	close_side(&sender);
}

static void unwanted(void)
{
	behind(FI_EP_RDM);
	if (!strchr(provider(), ';'))
		behind(FI_EP_MSG);
}

/*
 * The same with 64 KiB messages, up to the receiver's memory limit: then the receive that cannot be
 * matched fails with the reason, and receives posted afterwards succeed.
 */
static void up_to_the_limit(enum fi_ep_type type)
{
	enum { LEN = 64 << 10, LIMIT = 32 << 20 };
	static char out[LEN], in[LEN], wanted[8], text[256];
	struct side receiver, sender;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = { 0 };
	long before, sent = 0, got = 0, completed = 0;
	double end = seconds() + 30;
	fi_addr_t to;
	int failed = 0;

	CHECK(setenv("FI_OFI_PEER_MEMORY", "32M", 1) == 0);
	/* Messages that the receiver could read out of the sender's memory would wait there. */
	CHECK(setenv("FI_SHM_DIRECT", "off", 1) == 0);
	to = open_both(&receiver, &sender, type);
	CHECK(fi_trecv(receiver.ep, in, 8, NULL, FI_ADDR_UNSPEC, 3, 0, in) == 0);
	inject(&sender, &receiver, "before", 7, to, 3);
	done(&receiver, &sender, in, FI_RECV | FI_TAGGED);
	before = resident();
	CHECK(fi_trecv(receiver.ep, wanted, 8, NULL, FI_ADDR_UNSPEC, 2, 0, wanted) == 0);
	/* More than the limit is in flight, with the wanted message behind it. */
	for (sent = 0; sent < 2 * LIMIT / LEN && !failed; ) {
		ssize_t ret = fi_tsend(sender.ep, out, LEN, NULL, to, 1, out);

		sent += ret == 0;
		CHECK(ret == 0 || ret == -FI_EAGAIN);
		while (fi_cq_read(sender.cq, &entry, 1) == 1)
			completed++;
		ret = fi_cq_read(receiver.cq, &entry, 1);
		failed = ret == -FI_EAVAIL;
		CHECK(failed || ret == -FI_EAGAIN);
		CHECK(seconds() < end);
	}
	inject(&sender, &receiver, "wanted", 7, to, 2);
	while (!failed) {
		ssize_t ret = fi_cq_read(receiver.cq, &entry, 1);

		failed = ret == -FI_EAVAIL;
		CHECK(failed || ret == -FI_EAGAIN);
		while (fi_cq_read(sender.cq, &entry, 1) == 1)
			completed++;
		CHECK(seconds() < end);
	}
	CHECK(fi_cq_readerr(receiver.cq, &err, 0) == 1);
	fi_cq_strerror(receiver.cq, err.prov_errno, err.err_data, text, sizeof(text));
	if (err.err != FI_ENOBUFS || err.op_context != wanted)
		fprintf(stderr, "failed: %s: %s\n", fi_strerror(err.err), text);
	CHECK(err.err == FI_ENOBUFS && err.op_context == wanted);
	if (!strstr(text, "FI_OFI_PEER_MEMORY"))
		fprintf(stderr, "the reason is: %s\n", text);
	CHECK(strstr(text, "FI_OFI_PEER_MEMORY"));
	/* The sender's copies are half of this process's memory. */
	within(before, LIMIT + 8 * MIB + pools(), type == FI_EP_MSG ? "connected, 64 KiB" : "unconnected, 64 KiB");
	/*
	 * Receives that match the unexpected messages get all of them, then the wanted message
	 * arrives.
	 */
	for (got = 0; got < sent; got++) {
		CHECK(fi_trecv(receiver.ep, in, LEN, NULL, FI_ADDR_UNSPEC, 1, 0, in) == 0);
		entry = done(&receiver, &sender, in, FI_RECV | FI_TAGGED);
		CHECK(entry.len == LEN);
	}
	CHECK(fi_trecv(receiver.ep, wanted, 8, NULL, FI_ADDR_UNSPEC, 2, 0, wanted) == 0);
	done(&receiver, &sender, wanted, FI_RECV | FI_TAGGED);
	for (; completed < sent; completed++)
		done(&sender, &receiver, out, FI_SEND | FI_TAGGED);
	close_side(&receiver);
	close_side(&sender);
}

static void limit(void)
{
	up_to_the_limit(FI_EP_RDM);
	if (!strchr(provider(), ';'))
		up_to_the_limit(FI_EP_MSG);
}

/* The endpoints of a process, which share a completion queue and an address vector. */
struct many {
	struct side side;
	struct fid_ep **eps;
	int count;
};

static void open_many(struct many *m, int count)
{
	int i;

	open_domain(&m->side, find(FI_EP_RDM), FI_WAIT_NONE);
	m->count = count;
	m->eps = calloc((size_t) count, sizeof(*m->eps));
	CHECK(m->eps);
	for (i = 0; i < count; i++) {
		CHECK(fi_endpoint(m->side.domain, m->side.info, &m->eps[i], NULL) == 0);
		CHECK(fi_ep_bind(m->eps[i], &m->side.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
		CHECK(fi_ep_bind(m->eps[i], &m->side.av->fid, 0) == 0);
		CHECK(fi_enable(m->eps[i]) == 0);
	}
}

static void close_many(struct many *m)
{
	int i;

	for (i = 0; i < m->count; i++)
		CHECK(!m->eps[i] || fi_close(&m->eps[i]->fid) == 0);
	free(m->eps);
	close_side(&m->side);
}

/*
 * Endpoints that connect in each process; whether each closes after its delivery; and the file
 * limit of the process they connect to (0: unchanged).
 */
static int askers, leaves;
static rlim_t own_descriptors;

/* Sets this process's limit of open files. */
static void descriptors(rlim_t soft)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max < soft) {
		printf("skipped: this process may open at most %llu files\n", (unsigned long long) limit.rlim_max);
		exit(77);
	}
	limit.rlim_cur = soft;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/*
 * All endpoints send a message to the address read from the pipe, and each must get its completion.
 */
static void ask_at_once(int in, int out)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	char name[64], one = 0;
	struct many m;
	fi_addr_t to;
	int i;

	hear(in, name, sizeof(name));
	open_many(&m, askers);
	to = insert(&m.side, name);
	tell(out, &one, 1);
	hear(in, &one, 1);
	for (i = 0; i < askers; i++)
		CHECK(fi_tsend(m.eps[i], &one, 1, NULL, to, 1, &m.eps[i]) == 0);
	tell(out, &one, 1);
	for (i = 0; i < askers; ) {
		ssize_t ret = fi_cq_read(m.side.cq, &entry, 1);

		if (ret == -FI_EAVAIL) {
			char text[256];

			memset(&err, 0, sizeof(err));
			fi_cq_readerr(m.side.cq, &err, 0);
			fprintf(stderr, "connecting endpoint %d: %s: %s\n", i, fi_strerror(err.err),
				fi_cq_strerror(m.side.cq, err.prov_errno, NULL, text, sizeof(text)));
			exit(1);
		}
		CHECK(ret == 1 || ret == -FI_EAGAIN);
		i += ret == 1;
		if (ret == 1 && leaves) {
			struct fid_ep **ep = entry.op_context;

			CHECK(fi_close(&(*ep)->fid) == 0);
			*ep = NULL;
		}
		/* Sleeping peers leave the processor to the busy receiver. */
		if (ret != 1)
			usleep(2000);
	}
	tell(out, &one, 1);
	/* The receiver has all messages before any endpoint closes. */
	hear(in, &one, 1);
	close_many(&m);
}

/* All endpoints connect to one that makes no progress for `busy` seconds. */
static void ask_one(int processes, int each, double busy)
{
	int *to = calloc((size_t) processes, sizeof(int)), *from = calloc((size_t) processes, sizeof(int)), i, got;
	pid_t *pids = calloc((size_t) processes, sizeof(pid_t));
	struct fi_cq_tagged_entry entry;
	static char in[1];
	struct side s;
	double end;
	char one = 1;

	CHECK(to && from && pids);
	askers = each;
	for (i = 0; i < processes; i++)
		pids[i] = child(ask_at_once, &to[i], &from[i]);
	if (own_descriptors)
		descriptors(own_descriptors);
	open_rdm(&s, FI_WAIT_NONE);
	for (i = 0; i < processes * each && i < 1024; i++)
		CHECK(fi_trecv(s.ep, in, 1, NULL, FI_ADDR_UNSPEC, 1, 0, in) == 0);
	for (i = 0; i < processes; i++) {
		tell(to[i], s.name, sizeof(s.name));
		hear(from[i], &one, 1);
	}
	for (i = 0; i < processes; i++)
		tell(to[i], &one, 1);
	for (i = 0; i < processes; i++)
		hear(from[i], &one, 1);
	/* The program computes instead of making calls. */
	for (end = seconds() + busy; seconds() < end; )
		usleep(10000);
	end = seconds() + 60;
	for (got = 0; got < processes * each; ) {
		ssize_t ret = fi_cq_read(s.cq, &entry, 1);

		CHECK(ret == 1 || ret == -FI_EAGAIN);
		if (ret == 1 && ++got + 1024 <= processes * each)
			CHECK(fi_trecv(s.ep, in, 1, NULL, FI_ADDR_UNSPEC, 1, 0, in) == 0);
		if (seconds() > end)
			fprintf(stderr, "%d of %d messages have arrived\n", got, processes * each);
		CHECK(seconds() < end);
	}
	for (i = 0; i < processes; i++) {
		/* Senders exit after their completions, which need this side's progress. */
		struct pollfd heard = { .fd = from[i], .events = POLLIN };

		while (poll(&heard, 1, 0) == 0)
			fi_cq_read(s.cq, NULL, 0);
		hear(from[i], &one, 1);
	}
	for (i = 0; i < processes; i++) {
		int status;

		tell(to[i], &one, 1);
		while (waitpid(pids[i], &status, WNOHANG) == 0)
			fi_cq_read(s.cq, NULL, 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		close(to[i]);
		close(from[i]);
	}
	close_side(&s);
	free(to);
	free(from);
	free(pids);
}

/* 1,500 endpoints connect at once to one that is busy for four seconds. */
static void together(void)
{
	descriptors(8192);
	ask_one(3, 500, 4);
}

/*
 * The same with few file descriptors for the receiver: accepting pauses, no connection is reset,
 * and the rest connect as others close.
 */
static void few_descriptors(void)
{
	descriptors(8192);
	leaves = 1;
	own_descriptors = 100;
	ask_one(1, 400, 1);
}

/* 256 endpoints in 64 processes connect to one that is busy for longer than the connect timeout. */
static void crowd_connects(void)
{
	descriptors(4096);
	ask_one(64, 4, 12);
}

/* Shared by all floods: the target's name, and when to stop. */
static struct {
	char name[64];
	atomic_int stop, said;
} *flood;

static void reconnecting(int in, int out)
{
	static char bytes[60 << 10];
	struct fi_cq_tagged_entry entry;

	while (!atomic_load(&flood->stop)) {
		struct side s;
		fi_addr_t to;
		int i;

		open_rdm(&s, FI_WAIT_NONE);
		to = insert(&s, flood->name);
		for (i = 0; i < 24; i++)
			CHECK(fi_tsend(s.ep, bytes, sizeof(bytes), NULL, to, 1, NULL) == 0);
		for (i = 0; i < 1000 && !atomic_load(&flood->stop); i++) {
			fi_cq_read(s.cq, &entry, 1);
			sched_yield();
		}
		close_side(&s);
		atomic_fetch_add(&flood->said, 1);
	}
	(void) in;
	(void) out;
}

static void zero_bytes(int in, int out)
{
	struct side s;
	fi_addr_t to;

	open_rdm(&s, FI_WAIT_NONE);
	to = insert(&s, flood->name);
	while (!atomic_load(&flood->stop)) {
		if (fi_tinject(s.ep, NULL, 0, to, 1) != 0)
			fi_cq_read(s.cq, NULL, 0);
	}
	/* Exits without closing: the receiver cannot take everything that it has sent. */
	_exit(0);
	(void) in;
	(void) out;
}

/* Requests delivery completions and never reads them. */
static void not_reading(int in, int out)
{
	struct fi_msg_tagged msg = { .tag = 1 };
	struct side s;

	open_rdm(&s, FI_WAIT_NONE);
	msg.addr = insert(&s, flood->name);
	while (!atomic_load(&flood->stop)) {
		if (fi_tsendmsg(s.ep, &msg, FI_DELIVERY_COMPLETE) != 0) {
			/* Makes progress only between sends. */
			fi_cq_read(s.cq, NULL, 0);
			usleep(100);
		}
	}
	_exit(0);
	(void) in;
	(void) out;
}

static int dial(void)
{
	const struct sockaddr *addr = (const struct sockaddr *) flood->name;
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	if (connect(fd, addr, sizeof(struct sockaddr_in))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void silent(int in, int out)
{
	int fds[256], i;

	for (i = 0; i < 256; i++)
		fds[i] = -1;
	for (i = 0; !atomic_load(&flood->stop); i = (i + 1) % 256) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = dial();
		usleep(200);
	}
	(void) in;
	(void) out;
}

static void garbage(int in, int out)
{
	unsigned state = 88172645, bytes[4096], i;

	signal(SIGPIPE, SIG_IGN);
	while (!atomic_load(&flood->stop)) {
		int fd = dial();

		for (i = 0; i < 4096; i++) {
			state ^= state << 13;
			state ^= state >> 17;
			state ^= state << 5;
			bytes[i] = state;
		}
		/* The receiver closes the connection at some point. */
		for (i = 0; fd >= 0 && i < 64 && write(fd, bytes, sizeof(bytes)) > 0; i++)
			;
		if (fd >= 0)
			close(fd);
	}
	(void) in;
	(void) out;
}

/*
 * While peers flood an endpoint, its memory stays within the limit and it keeps exchanging messages
 * with another peer.
 */
static void floods(void)
{
	static const struct { const char *name; void (*run)(int, int); int sockets; } kinds[] = {
		{ "reconnecting", reconnecting, 0 }, { "zero bytes", zero_bytes, 0 }, { "not reading", not_reading, 0 },
		{ "silent", silent, 1 }, { "garbage", garbage, 1 },
	};
	static char in[8], out[8] = "ping...";
	size_t kind;

	CHECK(setenv("FI_OFI_PEER_MEMORY", "32M", 1) == 0);
	/* Peers that break the protocol cause many log lines, which are no errors of the test. */
	CHECK(setenv("FI_LOG_LEVEL", "none", 1) == 0);
	flood = mmap(NULL, sizeof(*flood), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(flood != MAP_FAILED);
	for (kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
		struct side s, friend;
		int to, from, status, k, trips = 0;
		fi_addr_t to_friend, to_s;
		double end, slowest = 0;
		pid_t pids[2];
		long before;

		if (kinds[kind].sockets && within_host())
			continue;
		atomic_store(&flood->stop, 0);
		open_rdm(&s, FI_WAIT_NONE);
		open_rdm(&friend, FI_WAIT_NONE);
		memcpy(flood->name, s.name, sizeof(s.name));
		to_friend = insert(&s, friend.name);
		to_s = insert(&friend, s.name);
		before = resident();
		/* A receive that the flooding peers' messages match, so that their data is accepted. */
		CHECK(fi_trecv(s.ep, in, 8, NULL, FI_ADDR_UNSPEC, 9, 0, &flood) == 0);
		for (k = 0; k < 2; k++)
			pids[k] = child(kinds[kind].run, &to, &from);
		for (end = seconds() + 2; seconds() < end; trips++) {
			double start = seconds();

			CHECK(fi_trecv(s.ep, in, 8, NULL, to_friend, 7, 0, in) == 0);
			CHECK(fi_tsend(friend.ep, out, 8, NULL, to_s, 7, out) == 0);
			done(&s, &friend, in, FI_RECV | FI_TAGGED);
			done(&friend, &s, out, FI_SEND | FI_TAGGED);
			CHECK(fi_trecv(friend.ep, in, 8, NULL, to_s, 7, 0, in) == 0);
			CHECK(fi_tsend(s.ep, out, 8, NULL, to_friend, 7, out) == 0);
			done(&friend, &s, in, FI_RECV | FI_TAGGED);
			done(&s, &friend, out, FI_SEND | FI_TAGGED);
			if (seconds() - start > slowest)
				slowest = seconds() - start;
		}
		printf("%s: %d round trips, the slowest took %.1f ms\n", kinds[kind].name, trips, slowest * 1000);
		within(before, 32 * MIB + 16 * MIB, kinds[kind].name);
		atomic_store(&flood->stop, 1);
		for (k = 0; k < 2; k++) {
			while (waitpid(pids[k], &status, WNOHANG) == 0)
				fi_cq_read(s.cq, NULL, 0);
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		}
		close_side(&friend);
		close_side(&s);
	}
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "unwanted", unwanted }, { "limit", limit }, { "together", together }, { "few_descriptors", few_descriptors },
		{ "crowd_connects", crowd_connects }, { "floods", floods },
		{ NULL, NULL },
	};

	return run_scenario(argc, argv, scenarios);
}
