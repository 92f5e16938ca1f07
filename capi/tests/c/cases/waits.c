/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Waiting: blocking reads, descriptors, signals, automatic progress (fi_cq(3), fi_poll(3)). */
#include "later.h"
#include <signal.h>
#include <stdatomic.h>

enum { BURST = 16 };

static void wakes(enum fi_ep_type type, enum fi_wait_obj kind)
{
	struct want w = { .type = type, .caps = FI_SOURCE, .wait = kind };
	struct fi_cq_tagged_entry entry;
	struct pair p;
	struct later l = { &p, NULL, 0 };
	fi_addr_t from;
	char in[8];
	double start;
	int round;

	meet(&p, &w);
	/* Exchange a message, so that the connection is up. */
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	done(&p.a, &p.b, &contexts[1]);
	for (round = 0; round < 3; round++) {
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		from = 77;
		start = seconds();
		CHECK(pthread_create(&l.thread, NULL, send_later, &l) == 0);
		if (round % 2)
			CHECK(fi_cq_sreadfrom(p.b.cq, &entry, 1, &from, NULL, 10000) == 1 && from == p.to_a);
		else
			CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, 10000) == 1);
		/* Long before the timeout, with the same entry as from fi_cq_read. */
		CHECK(seconds() - start < 5);
		CHECK(entry.op_context == &contexts[0] && entry.flags == (FI_MSG | FI_RECV) && entry.len == 1);
		CHECK(pthread_join(l.thread, NULL) == 0);
	}
	/* An error ends the wait too, and no wait begins while one is pending. */
	POST(fi_recv(p.b.ep, in, 1, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	CHECK(pthread_create(&l.thread, NULL, send_long_later, &l) == 0);
	CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, -1) == -FI_EAVAIL);
	CHECK(fi_cq_sreadfrom(p.b.cq, &entry, 1, &from, NULL, -1) == -FI_EAVAIL);
	CHECK(failed(&p.b, NULL, FI_ETRUNC).op_context == &contexts[2]);
	CHECK(pthread_join(l.thread, NULL) == 0);
	part(&p);
}

CASE(cq_sread_wakes_on_entry)
{
	wakes(FI_EP_RDM, FI_WAIT_UNSPEC);
	wakes(FI_EP_RDM, FI_WAIT_FD);
}

CASE_OURS(cq_sread_wakes_on_datagrams)
{
	wakes(FI_EP_DGRAM, FI_WAIT_UNSPEC);
	wakes(FI_EP_DGRAM, FI_WAIT_FD);
}

CASE_OURS(cq_sread_by_yielding)
{
	wakes(FI_EP_RDM, FI_WAIT_YIELD);
	wakes(FI_EP_RDM, FI_WAIT_POLLFD);
}

CASE(cq_sread_timeout)
{
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_UNSPEC };
	struct fi_cq_tagged_entry entry;
	struct side s;
	double start;

	open_side(&s, &w);
	start = seconds();
	CHECK(fi_cq_sread(s.cq, &entry, 1, NULL, 100) == -FI_EAGAIN);
	CHECK(seconds() - start > 0.099 && seconds() - start < 5);
	start = seconds();
	CHECK(fi_cq_sreadfrom(s.cq, &entry, 1, &(fi_addr_t) { 0 }, NULL, 0) == -FI_EAGAIN);
	CHECK(seconds() - start < 1);
	/* On a queue with FI_CQ_COND_NONE, the condition is not read. */
	CHECK(fi_cq_sread(s.cq, &entry, 1, (void *) 8, 20) == -FI_EAGAIN);
	CHECK(fi_cq_sreadfrom(s.cq, &entry, 1, &(fi_addr_t) { 0 }, (void *) 8, 20) == -FI_EAGAIN);
	close_side(&s);
}

CASE(cq_signal_wakes_sread)
{
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_UNSPEC };
	struct fi_cq_tagged_entry entry;
	struct side s;
	struct later l;
	double start;
	int round;

	open_side(&s, &w);
	l.cq = s.cq;
	for (round = 0; round < 2; round++) {
		start = seconds();
		CHECK(pthread_create(&l.thread, NULL, signal_later, &l) == 0);
		CHECK(fi_cq_sread(s.cq, &entry, 1, NULL, round ? 20000 : -1) == -FI_EAGAIN);
		/* Neither before the signal nor long after it. */
		CHECK(seconds() - start > 0.049 && seconds() - start < 10);
		CHECK(pthread_join(l.thread, NULL) == 0);
	}
	close_side(&s);
}

CASE(cq_sread_without_wait_object)
{
	struct fi_cq_tagged_entry entry;
	struct side s;

	open_side(&s, &RDM);
	CHECK(fi_cq_sread(s.cq, &entry, 1, NULL, -1) < 0);
	CHECK(fi_cq_sread(s.cq, &entry, 1, NULL, -1) != -FI_EAGAIN);
	CHECK(fi_cq_sreadfrom(s.cq, &entry, 1, &(fi_addr_t) { 0 }, NULL, -1) < 0);
	CHECK(fi_cq_sreadfrom(s.cq, &entry, 1, &(fi_addr_t) { 0 }, NULL, -1) != -FI_EAGAIN);
	CHECK(fi_cq_signal(s.cq) < 0);
	close_side(&s);
}

/* The condition is the threshold, or its address. */
static void reads_by_a_threshold(int by_address)
{
	struct want w = RDM;
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC, .wait_cond = FI_CQ_COND_THRESHOLD
	};
	struct fi_cq_tagged_entry entries[4];
	struct pair p;
	size_t wanted = 3;
	char in[8];
	ssize_t ret, got = 0;
	double end = seconds() + 10;
	int i;

	open_side(&p.a, &w);
	open_domain(&p.b, &w);
	CHECK(fi_close(&p.b.cq->fid) == 0);
	CHECK(fi_cq_open(p.b.domain, &attr, &p.b.cq, NULL) == 0);
	open_ep(&p.b, p.b.info);
	p.to_b = insert(&p.a, p.b.name);
	for (i = 0; i < 3; i++)
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	for (i = 0; i < 3; i++) {
		POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
		done(&p.a, &p.b, &contexts[1]);
	}
	while (got < 3 && seconds() < end) {
		/* No timeout: a misread condition would never be met. */
		ret = fi_cq_sread(p.b.cq, entries, 4, by_address ? &wanted : (void *) wanted, -1);
		CHECK(ret > 0);
		got += ret;
		wanted = 1;
	}
	CHECK(got == 3);
	part(&p);
}

/* Sends a thread signals until it has noticed one; before, a message to the pair's second side if there is one. */
struct alarm {
	pthread_t to, thread;
	atomic_int noticed;
	struct pair *first;
};

static void ignore(int number)
{
	(void) number;
}

static void *send_signals(void *arg)
{
	struct alarm *a = arg;

	if (a->first) {
		usleep(20000);
		POST(fi_inject(a->first->a.ep, "x", 1, a->first->to_b));
		fi_cq_read(a->first->a.cq, NULL, 0);
	}
	while (!atomic_load(&a->noticed)) {
		/* By then the thread sleeps, unless it has no core. */
		usleep(20000);
		CHECK(pthread_kill(a->to, SIGUSR1) == 0);
	}
	return NULL;
}

static void begin_signals(struct alarm *a, struct pair *first)
{
	/* Some system calls would go on after a handler; those of waits do not. */
	struct sigaction action = { .sa_handler = ignore, .sa_flags = SA_RESTART };

	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	a->to = pthread_self();
	a->first = first;
	atomic_init(&a->noticed, 0);
	CHECK(pthread_create(&a->thread, NULL, send_signals, a) == 0);
}

static void end_signals(struct alarm *a)
{
	atomic_store(&a->noticed, 1);
	CHECK(pthread_join(a->thread, NULL) == 0);
}

CASE_OURS(blocking_reads_end_by_a_signal_to_the_process)
{
	struct want w = RDM;
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC, .wait_cond = FI_CQ_COND_THRESHOLD
	};
	struct fi_wait_attr set_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_entry event;
	struct fi_cq_tagged_entry entries[2];
	struct fid_cntr *cntr;
	struct fid_wait *set;
	struct alarm a;
	struct pair p;
	uint32_t number;
	char in[8];

	open_side(&p.a, &w);
	open_domain(&p.b, &w);
	CHECK(fi_close(&p.b.cq->fid) == 0 && fi_cq_open(p.b.domain, &attr, &p.b.cq, NULL) == 0);
	open_ep(&p.b, p.b.info);
	p.to_b = insert(&p.a, p.b.name);
	CHECK(fi_cntr_open(p.b.domain, &cntr_attr, &cntr, NULL) == 0);
	CHECK(fi_wait_open(p.b.fabric, &set_attr, &set) == 0);
	begin_signals(&a, NULL);
	CHECK(fi_cq_sread(p.b.cq, entries, 2, NULL, -1) == -FI_EINTR);
	CHECK(fi_eq_sread(p.b.eq, &number, &event, sizeof(event), -1, 0) == -FI_EINTR);
	CHECK(fi_cntr_wait(cntr, 1, -1) == -FI_EINTR);
	CHECK(fi_wait(set, -1) == -FI_EINTR);
	CHECK(fi_cq_sread(p.b.cq, entries, 2, NULL, 20000) == -FI_EINTR);
	end_signals(&a);
	/* The endpoints connect. */
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	/* A signal that comes before the threshold is reached ends the call with the entry that is there. */
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	begin_signals(&a, &p);
	CHECK(fi_cq_sread(p.b.cq, entries, 2, (void *) 2, -1) == 1 && entries[0].op_context == &contexts[2]);
	end_signals(&a);
	CHECK(fi_close(&set->fid) == 0 && fi_close(&cntr->fid) == 0);
	part(&p);
}

CASE(cq_sread_threshold)
{
	reads_by_a_threshold(0);
	reads_by_a_threshold(1);
}

static void waits_for_a_threshold(int by_address)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC, .wait_cond = FI_CQ_COND_THRESHOLD
	};
	struct fi_cq_tagged_entry entries[4];
	struct pair p;
	struct later l = { &p, NULL, 0 };
	size_t wanted = 3;
	char in[8];
	double start;
	int i;

	open_side(&p.a, &RDM);
	open_domain(&p.b, &RDM);
	CHECK(fi_close(&p.b.cq->fid) == 0);
	CHECK(fi_cq_open(p.b.domain, &attr, &p.b.cq, NULL) == 0);
	open_ep(&p.b, p.b.info);
	p.to_b = insert(&p.a, p.b.name);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &contexts[0]);
	for (i = 0; i < 3; i++)
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[i]));
	start = seconds();
	CHECK(pthread_create(&l.thread, NULL, send_three_later, &l) == 0);
	CHECK(fi_cq_sread(p.b.cq, entries, 4, by_address ? &wanted : (void *) wanted, -1) == 3);
	CHECK(seconds() - start > 0.259);
	CHECK(pthread_join(l.thread, NULL) == 0);
	part(&p);
}

CASE_OURS(cq_sread_waits_for_the_threshold)
{
	waits_for_a_threshold(0);
	waits_for_a_threshold(1);
}

CASE_OURS(cq_open_wait_objects)
{
	static const struct { enum fi_wait_obj kind; int expected; } kinds[] = {
		{ FI_WAIT_NONE, 0 }, { FI_WAIT_UNSPEC, 0 }, { FI_WAIT_FD, 0 }, { FI_WAIT_YIELD, 0 },
		{ FI_WAIT_POLLFD, 0 }, { FI_WAIT_SET, -FI_EINVAL }, { FI_WAIT_MUTEX_COND, 0 }, { 99, -FI_EINVAL },
	};
	struct want w = RDM;
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct side s;
	size_t i;
	int round;

	for (round = 0; round < 2; round++) {
		w.progress = round ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
		open_domain(&s, &w);
		for (i = 0; i < ARRAY(kinds); i++) {
			int expected = kinds[i].expected;
			struct fi_cq_attr attr = { .wait_obj = kinds[i].kind };
			struct fi_cntr_attr cntr_attr = { .wait_obj = kinds[i].kind };

			CHECK(fi_cq_open(s.domain, &attr, &cq, NULL) == expected);
			if (!expected)
				CHECK(fi_close(&cq->fid) == 0);
			CHECK(fi_cntr_open(s.domain, &cntr_attr, &cntr, NULL) == expected);
			if (!expected)
				CHECK(fi_close(&cntr->fid) == 0);
		}
		close_side(&s);
	}
}

CASE(cq_getwait_object)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_FD };
	struct fid_cq *cq;
	struct side s;
	int fd = -1;

	open_domain(&s, &RDM);
	CHECK(fi_cq_open(s.domain, &attr, &cq, NULL) == 0);
	CHECK(fi_control(&cq->fid, FI_GETWAIT, &fd) == 0);
	CHECK(fd >= 0);
	CHECK(fi_control(&cq->fid, 12345, &fd) == -FI_ENOSYS);
	CHECK(fi_close(&cq->fid) == 0);
	close_side(&s);
}

CASE_OURS(cq_getwait_of_each_kind)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_POLLFD };
	struct pollfd fds[2];
	struct fi_wait_pollfd list = { .nfds = 0, .fd = fds };
	struct fid_cq *cq;
	struct side s;
	int kind = -1, fd;

	open_domain(&s, &RDM);
	CHECK(fi_control(&s.cq->fid, FI_GETWAIT, &fd) == -FI_ENODATA);
	CHECK(fi_cq_open(s.domain, &attr, &cq, NULL) == 0);
	CHECK(fi_control(&cq->fid, FI_GETWAIT, &list) == -FI_ETOOSMALL);
	CHECK(list.nfds == 1);
	list.nfds = 2;
	CHECK(fi_control(&cq->fid, FI_GETWAIT, &list) == 0);
	CHECK(list.nfds == 1 && fds[0].fd >= 0 && fds[0].events == POLLIN);
	CHECK(fi_control(&cq->fid, FI_GETWAIT, NULL) == -FI_EINVAL);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 12))
	CHECK(fi_control(&s.cq->fid, FI_GETWAITOBJ, &kind) == -FI_ENODATA);
	CHECK(fi_control(&cq->fid, FI_GETWAITOBJ, &kind) == 0);
	CHECK(kind == FI_WAIT_POLLFD);
#endif
	CHECK(fi_close(&cq->fid) == 0);
	/* A queue with FI_WAIT_YIELD has no wait object. */
	attr.wait_obj = FI_WAIT_YIELD;
	CHECK(fi_cq_open(s.domain, &attr, &cq, NULL) == 0);
	CHECK(fi_control(&cq->fid, FI_GETWAIT, &fd) == -FI_ENODATA);
	CHECK(fi_close(&cq->fid) == 0);
	close_side(&s);
}

/* Whether the descriptor becomes readable within `timeout` ms, by poll, epoll or select. */
static int readable(int fd, int epoll, int way, int timeout)
{
	struct pollfd one = { fd, POLLIN, 0 };
	struct epoll_event got;
	fd_set set;

	if (way == 0)
		return poll(&one, 1, timeout);
	if (way == 1)
		return epoll_wait(epoll, &got, 1, timeout);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, &(struct timeval) { timeout / 1000, timeout % 1000 * 1000 });
}

/* Repeats fi_trywait until it permits sleeping; the queue is empty. */
static void until_empty(struct side *s)
{
	struct fi_cq_tagged_entry entry;
	struct fid *fids[1] = { &s->cq->fid };
	double end = seconds() + 10;
	int ret;

	while ((ret = fi_trywait(s->fabric, fids, 1)) == -FI_EAGAIN && seconds() < end)
		CHECK(fi_cq_read(s->cq, &entry, 1) == -FI_EAGAIN);
	CHECK(ret == 0);
}

CASE(cq_fd_polls_readable)
{
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_FD };
	struct fi_cq_tagged_entry entry;
	struct epoll_event watch = { .events = EPOLLIN };
	struct pair p;
	struct later l = { &p, NULL, 0 };
	struct fid *fids[1];
	int fd, epoll = epoll_create1(0), way;
	ssize_t read;
	char in[2][8];
	double start, end;

	meet(&p, &w);
	CHECK(fi_control(&p.b.cq->fid, FI_GETWAIT, &fd) == 0);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &watch) == 0);
	fids[0] = &p.b.cq->fid;
	for (way = 0; way < 3; way++) {
		POST(fi_recv(p.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		/*
		 * Nothing has arrived: sleeping is permitted, and the descriptor is not readable.
		 */
		until_empty(&p.b);
		CHECK(readable(fd, epoll, way, 0) == 0);
		start = seconds();
		CHECK(pthread_create(&l.thread, NULL, send_later, &l) == 0);
		do {
			CHECK(readable(fd, epoll, way, 10000) == 1);
			/* It stays readable until the queue is read. */
			CHECK(readable(fd, epoll, way, 0) == 1);
			do
				read = fi_cq_read(p.b.cq, &entry, 1);
			while (read == -FI_EAGAIN && fi_trywait(p.b.fabric, fids, 1) == -FI_EAGAIN);
		} while (read == -FI_EAGAIN && seconds() - start < 10);
		CHECK(read == 1 && entry.op_context == &contexts[0]);
		CHECK(seconds() - start < 5);
		CHECK(pthread_join(l.thread, NULL) == 0);
	}
	/* With two entries it stays readable until the second is read. */
	in[0][0] = in[1][0] = 0;
	POST(fi_recv(p.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_recv(p.b.ep, in[1], 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	until_empty(&p.b);
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	for (end = seconds() + 10; !in[1][0] && seconds() < end;) {
		fi_cq_read(p.a.cq, NULL, 0);
		fi_cq_read(p.b.cq, NULL, 0);
	}
	CHECK(readable(fd, epoll, 0, 0) == 1);
	CHECK(fi_cq_read(p.b.cq, &entry, 1) == 1);
	CHECK(readable(fd, epoll, 0, 0) == 1);
	CHECK(fi_cq_read(p.b.cq, &entry, 1) == 1);
	until_empty(&p.b);
	CHECK(readable(fd, epoll, 0, 0) == 0);
	close(epoll);
	part(&p);
}

CASE(trywait_before_blocking)
{
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_FD };
	struct fi_cq_tagged_entry entry;
	struct fi_eq_attr eq_attr = { .flags = FI_WRITE, .wait_obj = FI_WAIT_FD };
	struct pair p;
	struct fid_eq *eq;
	struct fid *fids[2];
	uint32_t number;
	char in[8];

	meet(&p, &w);
	CHECK(fi_eq_open(p.b.fabric, &eq_attr, &eq, NULL) == 0);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	fids[0] = &p.b.cq->fid;
	fids[1] = &eq->fid;
	while (fi_trywait(p.b.fabric, fids, 2) == -FI_EAGAIN)
		CHECK(fi_cq_read(p.b.cq, &entry, 1) == -FI_EAGAIN);
	/* An entry is pending: sleeping is not permitted. */
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	while (fi_cq_read(p.b.cq, NULL, 0) == -FI_EAGAIN)
		fi_cq_read(p.a.cq, NULL, 0);
	CHECK(fi_trywait(p.b.fabric, fids, 2) == -FI_EAGAIN);
	done(&p.b, &p.a, &contexts[0]);
	/* A pending event forbids sleeping too. */
	fids[0] = &eq->fid;
	CHECK(fi_trywait(p.b.fabric, fids, 1) == 0);
	CHECK(fi_eq_write(eq, FI_NOTIFY, "x", 2, 0) == 2);
	CHECK(fi_trywait(p.b.fabric, fids, 1) == -FI_EAGAIN);
	CHECK(fi_eq_read(eq, &number, in, 2, 0) == 2);
	CHECK(fi_trywait(p.b.fabric, fids, 1) == 0);
	fids[0] = &p.b.domain->fid;
	CHECK(fi_trywait(p.b.fabric, fids, 1) == -FI_EINVAL);
	CHECK(fi_close(&eq->fid) == 0);
	part(&p);
}

CASE_OURS(cntr_counts_messages)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *sent, *received;
	struct pair p;
	char in[8];
	double start;
	int i;

	meet(&p, &RDM);
	CHECK(fi_cntr_open(p.a.domain, &attr, &sent, NULL) == 0);
	CHECK(fi_cntr_open(p.b.domain, &attr, &received, NULL) == 0);
	/* Bound after enabling, as some programs do. */
	CHECK(fi_ep_bind(p.a.ep, &sent->fid, FI_SEND | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE) == 0);
	CHECK(fi_ep_bind(p.a.ep, &sent->fid, FI_SEND) == -FI_EINVAL);
	CHECK(fi_ep_bind(p.a.ep, &sent->fid, FI_READ) == -FI_EINVAL);
	CHECK(fi_ep_bind(p.b.ep, &received->fid, FI_RECV | FI_REMOTE_WRITE) == 0);
	CHECK(fi_ep_bind(p.b.ep, &received->fid, 1ULL << 60) == -FI_EBADFLAGS);
	for (i = 0; i < 3; i++)
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	POST(fi_send(p.a.ep, "123456789", 9, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(fi_cntr_wait(received, 2, 10000) == 0);
	while (fi_cntr_readerr(received) == 0)
		fi_cntr_read(sent);
	CHECK(fi_cntr_read(received) == 2 && fi_cntr_readerr(received) == 1);
	CHECK(fi_cntr_read(sent) == 3);
	start = seconds();
	CHECK(fi_cntr_wait(sent, 4, 50) == -FI_ETIMEDOUT && seconds() - start > 0.049);
	CHECK(fi_cntr_set(sent, 10) == 0 && fi_cntr_wait(sent, 10, -1) == 0);
	CHECK(fi_close(&sent->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.a.ep->fid) == 0 && fi_close(&p.b.ep->fid) == 0);
	p.a.ep = p.b.ep = NULL;
	CHECK(fi_close(&sent->fid) == 0 && fi_close(&received->fid) == 0);
	part(&p);
}

/* A long message arrives although nothing is called. */
static void arrives_without_calls(struct pair *p)
{
	struct iovec iov = { NULL, 4 << 20 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = p->to_b, .context = &contexts[1] };
	static char big[4 << 20], in[4 << 20];
	char *seen = in + sizeof(in) - 1;
	double end = seconds() + 10;

	memset(big, 'z', sizeof(big));
	*seen = 0;
	POST(fi_recv(p->b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	iov.iov_base = big;
	CHECK(fi_sendmsg(p->a.ep, &msg, FI_DELIVERY_COMPLETE) == 0);
	while (*(volatile char *) seen != 'z' && seconds() < end)
		poll(NULL, 0, 1);
	CHECK(*(volatile char *) seen == 'z');
	done(&p->b, NULL, &contexts[0]);
	done(&p->a, NULL, &contexts[1]);
}

CASE_OURS(progress_auto_without_calls)
{
	struct want w = { .caps = FI_TAGGED, .progress = FI_PROGRESS_AUTO };
	struct pair p;

	meet(&p, &w);
	CHECK(p.a.info->domain_attr->data_progress == FI_PROGRESS_AUTO);
	arrives_without_calls(&p);
	part(&p);
}

/* The last of a burst of messages arrives although the sender calls nothing after it. */
static void burst_arrives(struct pair *p)
{
	static char in[BURST];
	double end = seconds() + 10;
	int i;

	memset(in, 0, sizeof(in));
	for (i = 0; i < BURST; i++)
		POST(fi_recv(p->b.ep, &in[i], 1, NULL, FI_ADDR_UNSPEC, &contexts[i]));
	for (i = 0; i < BURST; i++)
		POST(fi_inject(p->a.ep, "y", 1, p->to_b));
	while (*(volatile char *) &in[BURST - 1] != 'y' && seconds() < end)
		poll(NULL, 0, 1);
	CHECK(in[BURST - 1] == 'y');
	for (i = 0; i < BURST; i++)
		done(&p->b, NULL, &contexts[i]);
}

/* The progress thread leaves endpoints to a program that polls them, and takes them back. */
CASE_OURS(progress_auto_after_polling)
{
	struct want w = { .caps = FI_TAGGED, .progress = FI_PROGRESS_AUTO };
	struct pair p;
	char in[1];
	double end;
	int round;

	meet(&p, &w);
	for (round = 0; round < 6; round++) {
		for (end = seconds() + 0.01; seconds() < end;) {
			POST(fi_recv(p.b.ep, in, 1, NULL, FI_ADDR_UNSPEC, &contexts[0]));
			POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
			done(&p.b, NULL, &contexts[0]);
			done(&p.a, NULL, &contexts[1]);
		}
		if (round % 2)
			burst_arrives(&p);
		else
			arrives_without_calls(&p);
	}
	part(&p);
}

CASE_OURS(idle_reader_uses_no_cpu)
{
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_UNSPEC };
	struct want dgram = { .type = FI_EP_DGRAM, .wait = FI_WAIT_UNSPEC };
	struct fi_cq_tagged_entry entry;
	struct timespec before, after;
	struct pair p;
	int round;

	for (round = 0; round < 2; round++) {
		meet(&p, round ? &dgram : &w);
		if (round) {
			/* A packet without a receive must not keep the reader awake. */
			POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
		}
		CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, 20) == -FI_EAGAIN);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
		CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, 500) == -FI_EAGAIN);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
		CHECK((double) (after.tv_sec - before.tv_sec) + (double) (after.tv_nsec - before.tv_nsec) / 1e9 < 0.1);
		part(&p);
	}
}
