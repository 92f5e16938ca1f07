/*
 * Two writers and two readers over each kind of wait object: every event wakes a reader. A missed
 * wakeup leaves all waiting forever: without an event for a minute, the program ends and prints its
 * counts. OFI_WAKES sets the number of events.
 */
#define _GNU_SOURCE
#include "cases/case.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>

enum { WRITERS = 2, READERS = 2, RECEIVES = 64 };

static struct pair ends;
static struct fid_eq *events;
static struct fid_wait *set;
static struct fi_wait_pollfd group;
static struct fi_mutex_cond monitor;
static int monitors_set;
static enum fi_wait_obj kind;
static int descriptor = -1;
static atomic_long sent, received;
static long total;
static atomic_int readers_left;

static unsigned next_random(unsigned *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static enum fi_wait_obj set_kind = FI_WAIT_UNSPEC;

static struct fid_wait *open_set(struct fid_fabric *fabric)
{
	struct fi_wait_attr attr = { .wait_obj = set_kind };

	CHECK(fi_wait_open(fabric, &attr, &set) == 0);
	return set;
}

/* Writes one more event, or sends one more message. */
static void write_one(void)
{
	struct fi_eq_entry entry = { 0 };

	if (events) {
		entry.fid = &events->fid;
		CHECK(fi_eq_write(events, FI_NOTIFY, &entry, sizeof(entry), 0) == (ssize_t) sizeof(entry));
		return;
	}
	while (fi_inject(ends.a.ep, "x", 1, ends.to_b) == -FI_EAGAIN) {
		fi_cq_read(ends.a.cq, NULL, 0);
		sched_yield();
	}
}

static void *writer(void *arg)
{
	unsigned state = (unsigned) (uintptr_t) arg, window, pause;

	for (;;) {
		long number = atomic_fetch_add(&sent, 1);

		if (number >= total)
			return NULL;
		/* Often slow enough for the readers to sleep, sometimes a burst. */
		window = next_random(&state) % 16;
		while (number - atomic_load(&received) > (long) window) {
			if (!events)
				fi_cq_read(ends.a.cq, NULL, 0);
			sched_yield();
		}
		for (pause = next_random(&state) % 8; pause; pause--)
			sched_yield();
		write_one();
	}
}

/* Reads without waiting; returns the number of events. */
static int read_some(void)
{
	struct fi_cq_tagged_entry got[4];
	struct fi_eq_entry event;
	uint32_t number;
	ssize_t ret, i;

	if (events) {
		ret = fi_eq_read(events, &number, &event, sizeof(event), 0);
		CHECK(ret == (ssize_t) sizeof(event) || ret == -FI_EAGAIN);
		return ret > 0;
	}
	ret = fi_cq_read(ends.b.cq, got, ARRAY(got));
	CHECK(ret > 0 || ret == -FI_EAGAIN);
	for (i = 0; i < ret; i++)
		CHECK(fi_recv(ends.b.ep, got[i].op_context, 8, NULL, FI_ADDR_UNSPEC, got[i].op_context) == 0);
	return ret > 0 ? (int) ret : 0;
}

/* One wait, without timeout or with a short one. */
static int wait_and_read(unsigned *state)
{
	int timeout = next_random(state) % 8 ? -1 : 1, n = 0;
	struct fid *fids[1] = { monitors_set ? &set->fid : events ? &events->fid : &ends.b.cq->fid };
	struct fi_cq_tagged_entry got[4];
	struct fi_eq_entry event;
	struct pollfd files[8];
	uint32_t number;
	ssize_t ret, i;

	switch (kind) {
	case FI_WAIT_UNSPEC:
	case FI_WAIT_YIELD:
		if (events) {
			ret = fi_eq_sread(events, &number, &event, sizeof(event), timeout, 0);
			CHECK(ret == (ssize_t) sizeof(event) || ret == -FI_EAGAIN);
			return ret > 0;
		}
		ret = fi_cq_sread(ends.b.cq, got, ARRAY(got), NULL, timeout);
		CHECK(ret > 0 || ret == -FI_EAGAIN);
		for (i = 0; i < ret; i++)
			CHECK(fi_recv(ends.b.ep, got[i].op_context, 8, NULL, FI_ADDR_UNSPEC, got[i].op_context) == 0);
		return ret > 0 ? (int) ret : 0;
	case FI_WAIT_FD:
		files[0] = (struct pollfd) { .fd = descriptor, .events = POLLIN };
		if (fi_trywait(ends.b.fabric, fids, 1) == 0)
			CHECK(poll(files, 1, timeout) >= 0);
		return read_some();
	case FI_WAIT_POLLFD:
		for (i = 0; i < (ssize_t) group.nfds; i++)
			files[i] = group.fd[i];
		if (fi_trywait(ends.b.fabric, fids, 1) == 0)
			CHECK(poll(files, (nfds_t) group.nfds, timeout) >= 0);
		return read_some();
	case FI_WAIT_SET:
		ret = fi_wait(set, timeout);
		CHECK(ret == 0 || ret == -FI_ETIMEDOUT);
		return read_some();
	case FI_WAIT_MUTEX_COND:
		pthread_mutex_lock(monitor.mutex);
		if (!(n = read_some()) && fi_trywait(ends.b.fabric, fids, 1) == 0)
			pthread_cond_wait(monitor.cond, monitor.mutex);
		pthread_mutex_unlock(monitor.mutex);
		return n ? n : read_some();
	default:
		CHECK(!"this kind");
		return 0;
	}
}

static void *reader(void *arg)
{
	unsigned state = (unsigned) (uintptr_t) arg;

	while (atomic_load(&received) < total)
		atomic_fetch_add(&received, wait_and_read(&state));
	atomic_fetch_sub(&readers_left, 1);
	return NULL;
}

/* Waits for the end of the thread, as long as events are being read. */
static void join(pthread_t thread)
{
	long before = -1, now;
	struct timespec until;

	for (;;) {
		now = atomic_load(&received);
		if (now == before) {
			fprintf(stderr, "nothing was read for a minute: %ld of %ld sent, %ld read\n", atomic_load(&sent), total, now);
			exit(1);
		}
		before = now;
		CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
		until.tv_sec += 60;
		if (pthread_timedjoin_np(thread, NULL, &until) == 0)
			return;
	}
}

static void race(void)
{
	pthread_t threads[WRITERS + READERS];
	const char *count = getenv("OFI_WAKES");
	size_t i;

	total = count ? atol(count) : 20000;
	atomic_store(&readers_left, READERS);
	for (i = 0; i < READERS + WRITERS; i++)
		CHECK(pthread_create(&threads[i], NULL, i < READERS ? reader : writer, (void *) (uintptr_t) (0x9e3779b9u * (i + 1))) == 0);
	for (i = READERS; i < READERS + WRITERS; i++)
		join(threads[i]);
	/* More events wake readers that still wait although all has been read. */
	while (atomic_load(&readers_left)) {
		/* The last messages of a burst may wait for the next call that makes progress. */
		if (!events)
			fi_cq_read(ends.a.cq, NULL, 0);
		if (atomic_load(&received) >= total)
			write_one();
		sched_yield();
	}
	for (i = 0; i < READERS; i++)
		join(threads[i]);
	CHECK(atomic_load(&received) >= total);
	printf("%ld events\n", atomic_load(&received));
}

static char buffers[RECEIVES][8];

static void over_messages(enum fi_wait_obj object, enum fi_progress progress)
{
	struct want plain = { .caps = FI_TAGGED }, waiting = plain;
	size_t i;

	kind = waiting.wait = object;
	if (object == FI_WAIT_SET)
		waiting.set = open_set;
	waiting.progress = progress;
	open_side(&ends.a, &plain);
	open_side(&ends.b, &waiting);
	ends.to_b = insert(&ends.a, ends.b.name);
	for (i = 0; i < RECEIVES; i++)
		CHECK(fi_recv(ends.b.ep, buffers[i], 8, NULL, FI_ADDR_UNSPEC, buffers[i]) == 0);
	if (object == FI_WAIT_FD)
		CHECK(fi_control(&ends.b.cq->fid, FI_GETWAIT, &descriptor) == 0);
	if (object == FI_WAIT_MUTEX_COND)
		CHECK(fi_control(&ends.b.cq->fid, FI_GETWAIT, &monitor) == 0);
	if (set_kind == FI_WAIT_MUTEX_COND) {
		CHECK(fi_control(&set->fid, FI_GETWAIT, &monitor) == 0);
		monitors_set = 1;
		kind = FI_WAIT_MUTEX_COND;
	}
	if (object == FI_WAIT_POLLFD) {
		static struct pollfd files[8];

		group.fd = files;
		group.nfds = ARRAY(files);
		CHECK(fi_control(&ends.b.cq->fid, FI_GETWAIT, &group) == 0);
	}
	race();
}

static void over_events(enum fi_wait_obj object)
{
	struct fi_eq_attr attr = { .wait_obj = object, .flags = FI_WRITE };
	struct want plain = { .caps = FI_TAGGED };

	kind = object;
	open_side(&ends.b, &plain);
	if (object == FI_WAIT_SET)
		attr.wait_set = open_set(ends.b.fabric);
	CHECK(fi_eq_open(ends.b.fabric, &attr, &events, NULL) == 0);
	if (object == FI_WAIT_FD)
		CHECK(fi_control(&events->fid, FI_GETWAIT, &descriptor) == 0);
	if (object == FI_WAIT_MUTEX_COND)
		CHECK(fi_control(&events->fid, FI_GETWAIT, &monitor) == 0);
	race();
}

CASE_OURS(cq_unspec)
{
	over_messages(FI_WAIT_UNSPEC, FI_PROGRESS_UNSPEC);
}

CASE_OURS(cq_fd)
{
	over_messages(FI_WAIT_FD, FI_PROGRESS_UNSPEC);
}

CASE_OURS(cq_pollfd)
{
	over_messages(FI_WAIT_POLLFD, FI_PROGRESS_UNSPEC);
}

CASE_OURS(cq_yield)
{
	over_messages(FI_WAIT_YIELD, FI_PROGRESS_UNSPEC);
}

CASE_OURS(cq_set)
{
	over_messages(FI_WAIT_SET, FI_PROGRESS_UNSPEC);
}

CASE_OURS(cq_mutex_cond)
{
	over_messages(FI_WAIT_MUTEX_COND, FI_PROGRESS_MANUAL);
}

CASE_OURS(cq_mutex_cond_auto)
{
	over_messages(FI_WAIT_MUTEX_COND, FI_PROGRESS_AUTO);
}

CASE_OURS(cq_mutex_cond_set)
{
	set_kind = FI_WAIT_MUTEX_COND;
	over_messages(FI_WAIT_SET, FI_PROGRESS_UNSPEC);
}

CASE_OURS(eq_unspec)
{
	over_events(FI_WAIT_UNSPEC);
}

CASE_OURS(eq_fd)
{
	over_events(FI_WAIT_FD);
}

CASE_OURS(eq_yield)
{
	over_events(FI_WAIT_YIELD);
}

CASE_OURS(eq_set)
{
	over_events(FI_WAIT_SET);
}

CASE_OURS(eq_mutex_cond)
{
	over_events(FI_WAIT_MUTEX_COND);
}
