/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Waiting on a mutex and a condition variable (FI_WAIT_MUTEX_COND, fi_poll(3)): the reader locks
 * the mutex, finds nothing, calls fi_trywait, and waits.
 */
#define _GNU_SOURCE
#include "later.h"
#include <dirent.h>
#include <sched.h>

static struct fi_mutex_cond monitor_of(struct fid *fid)
{
	struct fi_mutex_cond mc = { NULL, NULL };

	CHECK(fi_control(fid, FI_GETWAIT, &mc) == 0 && mc.mutex && mc.cond);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 12))
	int kind = -1;

	CHECK(fi_control(fid, FI_GETWAITOBJ, &kind) == 0 && kind == FI_WAIT_MUTEX_COND);
#endif
	return mc;
}

/* Waits until `call` is true; fails after ten seconds, so that a lost wakeup is seen. */
#define WAIT_UNTIL(mc, fabric, fids, call) \
	do { \
		struct timespec until_; \
		CHECK(clock_gettime(CLOCK_REALTIME, &until_) == 0); \
		until_.tv_sec += 10; \
		CHECK(pthread_mutex_lock((mc).mutex) == 0); \
		while (!(call)) \
			if (fi_trywait(fabric, fids, 1) == 0) \
				CHECK(pthread_cond_timedwait((mc).cond, (mc).mutex, &until_) == 0); \
		CHECK(pthread_mutex_unlock((mc).mutex) == 0); \
	} while (0)

static int entry_of(struct fid_cq *cq, void *context)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret = fi_cq_read(cq, &entry, 1);

	CHECK(ret == -FI_EAGAIN || (ret == 1 && entry.op_context == context));
	return ret == 1;
}

/* Messages wake the reader, whatever the model of progress; a locked mutex delays no other thread. */
static void messages_wake(enum fi_progress progress, enum fi_threading threading)
{
	struct want plain = RDM;
	struct want w = { .caps = FI_TAGGED, .progress = progress, .threading = threading, .wait = FI_WAIT_MUTEX_COND };
	struct timespec before, after;
	struct fi_mutex_cond mc;
	struct pair p;
	struct later l = { &p, NULL, 0 };
	struct fid *fids[1];
	char in[8];
	int i;

	open_side(&p.a, &plain);
	open_side(&p.b, &w);
	p.to_b = insert(&p.a, p.b.name);
	mc = monitor_of(&p.b.cq->fid);
	fids[0] = &p.b.cq->fid;
	for (i = 0; i < 5; i++) {
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before) == 0);
		CHECK(pthread_create(&l.thread, NULL, send_later, &l) == 0);
		WAIT_UNTIL(mc, p.b.fabric, fids, entry_of(p.b.cq, &contexts[0]));
		CHECK(pthread_join(l.thread, NULL) == 0);
	}
	/* A waiting reader uses no processor time. */
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before) == 0);
	for (i = 0; i < 300; i += 100) {
		struct timespec until;

		CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
		until.tv_nsec += 100000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		CHECK(pthread_mutex_lock(mc.mutex) == 0);
		CHECK(!entry_of(p.b.cq, NULL));
		if (fi_trywait(p.b.fabric, fids, 1) == 0)
			pthread_cond_timedwait(mc.cond, mc.mutex, &until);
		CHECK(pthread_mutex_unlock(mc.mutex) == 0);
	}
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after) == 0);
	CHECK((double) (after.tv_sec - before.tv_sec) + (double) (after.tv_nsec - before.tv_nsec) / 1e9 < 0.1);
	CHECK(fi_cancel(&p.b.ep->fid, &contexts[0]) == 0);
	/* A blocking read works too. */
	CHECK(fi_cq_sread(p.b.cq, in, 1, NULL, -1) == -FI_EAVAIL);
	failed(&p.b, NULL, FI_ECANCELED);
	part(&p);
}

CASE_OURS(cq_waits_on_mutex_and_condition)
{
	messages_wake(FI_PROGRESS_MANUAL, FI_THREAD_SAFE);
	messages_wake(ALONE, FI_THREAD_DOMAIN);
	messages_wake(FI_PROGRESS_AUTO, FI_THREAD_SAFE);
}

enum { WAITERS = 4 };

static struct {
	struct side s;
	struct fi_mutex_cond mc;
	int waiting, woken;
} crowd;

static void *wait_in_crowd(void *arg)
{
	struct fid *fids[1] = { &crowd.s.cq->fid };

	(void) arg;
	CHECK(pthread_mutex_lock(crowd.mc.mutex) == 0);
	while (fi_trywait(crowd.s.fabric, fids, 1) != 0)
		;
	crowd.waiting++;
	CHECK(pthread_cond_wait(crowd.mc.cond, crowd.mc.mutex) == 0);
	crowd.woken++;
	CHECK(pthread_mutex_unlock(crowd.mc.mutex) == 0);
	return NULL;
}

/* One event wakes all that wait: it is a broadcast. */
CASE_OURS(monitor_wakes_all_waiters)
{
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_MUTEX_COND };
	pthread_t threads[WAITERS];
	int i, round, waiting;

	open_side(&crowd.s, &w);
	crowd.mc = monitor_of(&crowd.s.cq->fid);
	for (round = 0; round < 20; round++) {
		crowd.waiting = crowd.woken = 0;
		for (i = 0; i < WAITERS; i++)
			CHECK(pthread_create(&threads[i], NULL, wait_in_crowd, NULL) == 0);
		do {
			CHECK(pthread_mutex_lock(crowd.mc.mutex) == 0);
			waiting = crowd.waiting;
			CHECK(pthread_mutex_unlock(crowd.mc.mutex) == 0);
			sched_yield();
		} while (waiting < WAITERS);
		CHECK(fi_cq_signal(crowd.s.cq) == 0);
		for (i = 0; i < WAITERS; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		CHECK(crowd.woken == WAITERS);
	}
	close_side(&crowd.s);
}

static void *add_later(void *arg)
{
	poll(NULL, 0, 20);
	CHECK(fi_cntr_add(arg, 1) == 0);
	return NULL;
}

CASE_OURS(cntr_waits_on_a_condition_by_manual_progress)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_MUTEX_COND };
	struct fid_cntr *cntr;
	struct fi_mutex_cond mc;
	struct fid *fids[1];
	pthread_t thread;
	struct side s;
	uint64_t i;

	open_domain(&s, &RDM);
	CHECK(fi_cntr_open(s.domain, &attr, &cntr, NULL) == 0);
	mc = monitor_of(&cntr->fid);
	fids[0] = &cntr->fid;
	for (i = 1; i < 5; i++) {
		CHECK(pthread_create(&thread, NULL, add_later, cntr) == 0);
		WAIT_UNTIL(mc, s.fabric, fids, fi_cntr_read(cntr) == i);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	/* fi_cntr_wait works too. */
	CHECK(pthread_create(&thread, NULL, add_later, cntr) == 0);
	CHECK(fi_cntr_wait(cntr, i, 10000) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

static void *write_later(void *arg)
{
	poll(NULL, 0, 20);
	CHECK(fi_eq_write(arg, FI_NOTIFY, "x", 2, 0) == 2);
	return NULL;
}

static int event_in(struct fid_eq *eq, uint32_t wanted, void *buf, size_t len)
{
	uint32_t number = 0;
	ssize_t ret = fi_eq_read(eq, &number, buf, len, 0);

	CHECK(ret == -FI_EAGAIN || (ret > 0 && number == wanted));
	return ret > 0;
}

CASE_OURS(eq_waits_on_mutex_and_condition)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_MUTEX_COND, .flags = FI_WRITE };
	struct want w = { .type = FI_EP_MSG };
	struct { struct fi_eq_cm_entry cm; char data[64]; } event;
	struct fi_mutex_cond mc;
	struct fid_pep *pep;
	struct fid_eq *eq;
	struct fid *fids[1];
	struct side a, b;
	pthread_t thread;
	char name[64];
	size_t len = sizeof(name);
	int i;

	open_domain(&b, &w);
	CHECK(fi_eq_open(b.fabric, &attr, &eq, NULL) == 0);
	mc = monitor_of(&eq->fid);
	fids[0] = &eq->fid;
	for (i = 0; i < 5; i++) {
		CHECK(pthread_create(&thread, NULL, write_later, eq) == 0);
		WAIT_UNTIL(mc, b.fabric, fids, event_in(eq, FI_NOTIFY, &event, sizeof(event)));
		CHECK(pthread_join(thread, NULL) == 0);
	}
	CHECK(pthread_create(&thread, NULL, write_later, eq) == 0);
	CHECK(fi_eq_sread(eq, &(uint32_t) { 0 }, &event, sizeof(event), 10000, 0) == 2);
	CHECK(pthread_join(thread, NULL) == 0);
	/* A connection request comes from outside the process's calls. */
	CHECK(fi_passive_ep(b.fabric, b.info, &pep, NULL) == 0);
	CHECK(fi_pep_bind(pep, &eq->fid, 0) == 0);
	CHECK(fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	/* Its progress needs no calls. */
	w.progress = FI_PROGRESS_AUTO;
	open_side(&a, &w);
	CHECK(fi_connect(a.ep, name, NULL, 0) == 0);
	WAIT_UNTIL(mc, b.fabric, fids, event_in(eq, FI_CONNREQ, &event, sizeof(event)));
	CHECK(fi_reject(pep, event.cm.info->handle, NULL, 0) == 0);
	fi_freeinfo(event.cm.info);
	CHECK(fi_close(&pep->fid) == 0);
	CHECK(fi_close(&eq->fid) == 0);
	close_side(&a);
	close_side(&b);
}

/* An event of any member signals the wait set's condition. */
CASE_OURS(wait_set_of_mutex_and_condition)
{
	struct fi_wait_attr set_attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET };
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_SET };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_SET, .flags = FI_WRITE };
	struct fi_mutex_cond mc;
	struct fid_wait *set;
	struct fid_cntr *cntr;
	struct fid_eq *eq;
	struct fid *fids[1];
	struct pair p;
	struct later l = { &p, NULL, 0 };
	pthread_t thread;
	char in[8];
	int round;

	open_side(&p.a, &RDM);
	open_domain(&p.b, &RDM);
	CHECK(fi_wait_open(p.b.fabric, &set_attr, &set) == 0);
	mc = monitor_of(&set->fid);
	fids[0] = &set->fid;
	cq_attr.wait_set = cntr_attr.wait_set = eq_attr.wait_set = set;
	CHECK(fi_close(&p.b.cq->fid) == 0);
	CHECK(fi_cq_open(p.b.domain, &cq_attr, &p.b.cq, NULL) == 0);
	CHECK(fi_cntr_open(p.b.domain, &cntr_attr, &cntr, NULL) == 0);
	CHECK(fi_eq_open(p.b.fabric, &eq_attr, &eq, NULL) == 0);
	open_ep(&p.b, p.b.info);
	p.to_b = insert(&p.a, p.b.name);
	CHECK(fi_wait(set, 50) == -FI_ETIMEDOUT || fi_wait(set, 50) == -FI_ETIMEDOUT);
	for (round = 1; round < 4; round++) {
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		CHECK(pthread_create(&l.thread, NULL, send_later, &l) == 0);
		WAIT_UNTIL(mc, p.b.fabric, fids, entry_of(p.b.cq, &contexts[0]));
		CHECK(pthread_join(l.thread, NULL) == 0);
		CHECK(pthread_create(&thread, NULL, add_later, cntr) == 0);
		WAIT_UNTIL(mc, p.b.fabric, fids, fi_cntr_read(cntr) == (uint64_t) round);
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(pthread_create(&thread, NULL, write_later, eq) == 0);
		WAIT_UNTIL(mc, p.b.fabric, fids, event_in(eq, FI_NOTIFY, in, sizeof(in)));
		CHECK(pthread_join(thread, NULL) == 0);
	}
	/* fi_wait works too. */
	CHECK(pthread_create(&thread, NULL, write_later, eq) == 0);
	do
		CHECK(fi_wait(set, 10000) == 0);
	while (!event_in(eq, FI_NOTIFY, in, sizeof(in)));
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(fi_close(&eq->fid) == 0 && fi_close(&cntr->fid) == 0);
	CHECK(fi_close(&p.b.ep->fid) == 0 && fi_close(&p.b.cq->fid) == 0);
	p.b.ep = NULL;
	p.b.cq = NULL;
	CHECK(fi_close(&set->fid) == 0);
	part(&p);
}

/* How many threads have the name; `cpus` gets the list of the last one's CPUs. */
static int threads_named(const char *name, char *cpus, size_t len)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	int found = 0;

	CHECK(tasks);
	while ((task = readdir(tasks))) {
		char path[512], line[512] = "", list[512] = "";
		int named = 0;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		file = fopen(path, "r");
		while (file && fgets(line, sizeof(line), file)) {
			line[strcspn(line, "\n")] = 0;
			named |= !strncmp(line, "Name:\t", 6) && !strcmp(line + 6, name);
			if (!strncmp(line, "Cpus_allowed_list:\t", 19))
				snprintf(list, sizeof(list), "%s", line + 19);
		}
		if (file)
			fclose(file);
		found += named;
		if (named && cpus)
			snprintf(cpus, len, "%s", list);
	}
	closedir(tasks);
	return found;
}

/* The thread names itself when it runs first. */
static void until_named(int threads, const char *cpus)
{
	char list[512] = "";
	double end = seconds() + 10;

	while (threads_named("ofi-signal", list, sizeof(list)) != threads || (cpus && strcmp(list, cpus)))
		if (seconds() > end) {
			fprintf(stderr, "%d threads, on %s instead of %s\n", threads, list, cpus ? cpus : "any");
			exit(1);
		}
}

CASE_OURS(monitor_thread_exists_only_then)
{
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_wait_attr set_attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_FD };
	struct fid_cq *cqs[2];
	struct fid_cntr *cntr;
	struct fid_wait *set;
	struct fid_eq *eq;
	struct side s;

	open_side(&s, &w);
	CHECK(threads_named("ofi-signal", NULL, 0) == 0);
	CHECK(fi_cq_open(s.domain, &cq_attr, &cqs[0], NULL) == 0);
	until_named(1, NULL);
	/* One for all objects of the domain. */
	CHECK(fi_cq_open(s.domain, &cq_attr, &cqs[1], NULL) == 0);
	CHECK(fi_cntr_open(s.domain, &cntr_attr, &cntr, NULL) == 0);
	until_named(1, NULL);
	/* One more for the event queues and wait sets of the fabric. */
	CHECK(fi_eq_open(s.fabric, &eq_attr, &eq, NULL) == 0);
	until_named(2, NULL);
	CHECK(fi_wait_open(s.fabric, &set_attr, &set) == 0);
	until_named(2, NULL);
	CHECK(fi_close(&eq->fid) == 0 && fi_close(&set->fid) == 0);
	CHECK(fi_close(&cqs[0]->fid) == 0 && fi_close(&cqs[1]->fid) == 0 && fi_close(&cntr->fid) == 0);
	close_side(&s);
	/* An ended thread may stay listed for a moment after pthread_join. */
	until_named(0, NULL);
}

CASE_OURS(cq_signaling_vector_places_the_thread)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_MUTEX_COND, .flags = FI_AFFINITY };
	struct fid_cq *plain, *placed, *nowhere;
	struct fid_eq *eq;
	char all[512] = "", one[16];
	cpu_set_t cpus;
	struct side s;
	int cpu = 0;

	CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
	while (!CPU_ISSET(cpu, &cpus))
		cpu++;
	snprintf(one, sizeof(one), "%d", cpu);
	open_domain(&s, &RDM);
	/* Without the flag, the vector does not count. */
	attr.signaling_vector = cpu;
	CHECK(fi_cq_open(s.domain, &attr, &plain, NULL) == 0);
	until_named(1, NULL);
	CHECK(threads_named("ofi-signal", all, sizeof(all)) == 1);
	if (CPU_COUNT(&cpus) > 1)
		CHECK(strcmp(all, one));
	attr.flags = FI_AFFINITY;
	CHECK(fi_cq_open(s.domain, &attr, &placed, NULL) == 0);
	until_named(1, one);
	/* A hint: a CPU that does not exist is no error. */
	attr.signaling_vector = -1;
	CHECK(fi_cq_open(s.domain, &attr, &nowhere, NULL) == 0);
	CHECK(fi_close(&nowhere->fid) == 0);
	attr.signaling_vector = 1 << 30;
	CHECK(fi_cq_open(s.domain, &attr, &nowhere, NULL) == 0);
	until_named(1, one);
	CHECK(fi_close(&nowhere->fid) == 0);
	CHECK(fi_close(&placed->fid) == 0);
	until_named(1, all);
	CHECK(fi_close(&plain->fid) == 0);
	close_side(&s);
	open_domain(&s, &RDM);
	eq_attr.signaling_vector = cpu;
	CHECK(fi_eq_open(s.fabric, &eq_attr, &eq, NULL) == 0);
	until_named(1, one);
	CHECK(fi_close(&eq->fid) == 0);
	close_side(&s);
}
