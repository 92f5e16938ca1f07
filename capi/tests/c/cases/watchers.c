/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One thread sleeps on a descriptor after fi_trywait, another in a blocking read with a higher
 * threshold.
 */
#include "case.h"

struct waiter {
	struct fid_cntr *cntr;
	struct fid_cq *cq;
	pthread_t thread;
};

static void *wait_for_five(void *arg)
{
	struct waiter *w = arg;

	CHECK(fi_cntr_wait(w->cntr, 5, 20000) == 0);
	return NULL;
}

static int readable(int fd, int timeout)
{
	return poll(&(struct pollfd) { fd, POLLIN, 0 }, 1, timeout);
}

/*
 * A change after fi_trywait keeps the descriptor readable until the next fi_trywait, even if it
 * also wakes another thread.
 */
CASE_OURS(fd_stays_readable_after_a_counter_change)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_FD };
	struct fid_cntr *cntr;
	struct fid *fids[1];
	struct waiter w;
	struct side s;
	int fd, round;

	open_domain(&s, &RDM);
	CHECK(fi_cntr_open(s.domain, &attr, &cntr, NULL) == 0);
	fids[0] = &cntr->fid;
	w.cntr = cntr;
	CHECK(fi_control(&cntr->fid, FI_GETWAIT, &fd) == 0);
	/* With either thread first. */
	for (round = 0; round < 2; round++) {
		CHECK(fi_cntr_set(cntr, 0) == 0 && fi_cntr_read(cntr) == 0);
		if (round)
			while (fi_trywait(s.fabric, fids, 1) == -FI_EAGAIN)
				;
		CHECK(pthread_create(&w.thread, NULL, wait_for_five, &w) == 0);
		poll(NULL, 0, 50);
		CHECK(fi_cntr_read(cntr) == 0);
		while (fi_trywait(s.fabric, fids, 1) == -FI_EAGAIN)
			;
		CHECK(fi_cntr_add(cntr, 1) == 0);
		/* The other thread wakes and goes back to sleep. */
		poll(NULL, 0, 50);
		CHECK(readable(fd, 10000) == 1);
		CHECK(fi_cntr_read(cntr) == 1);
		while (fi_trywait(s.fabric, fids, 1) == -FI_EAGAIN)
			;
		CHECK(readable(fd, 0) == 0);
		CHECK(fi_cntr_add(cntr, 4) == 0);
		CHECK(readable(fd, 10000) == 1);
		CHECK(pthread_join(w.thread, NULL) == 0);
	}
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

static void *read_two(void *arg)
{
	struct waiter *w = arg;
	struct fi_cq_tagged_entry entries[2];

	CHECK(fi_cq_sread(w->cq, entries, 2, (void *) 2, 20000) == 2);
	return NULL;
}

CASE_OURS(fd_stays_readable_after_a_queue_entry)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD,
		.wait_cond = FI_CQ_COND_THRESHOLD };
	struct fid *fids[1];
	struct waiter w;
	struct pair p;
	char in[8];
	int fd;

	open_domain(&p.b, &RDM);
	CHECK(fi_close(&p.b.cq->fid) == 0);
	CHECK(fi_cq_open(p.b.domain, &attr, &p.b.cq, NULL) == 0);
	open_ep(&p.b, p.b.info);
	open_side(&p.a, &RDM);
	p.to_b = insert(&p.a, p.b.name);
	fids[0] = &p.b.cq->fid;
	w.cq = p.b.cq;
	CHECK(fi_control(&p.b.cq->fid, FI_GETWAIT, &fd) == 0);
	CHECK(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]) == 0);
	CHECK(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]) == 0);
	CHECK(pthread_create(&w.thread, NULL, read_two, &w) == 0);
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, NULL, &contexts[1]);
	/* The first message has arrived; the thread waits for the second. */
	poll(NULL, 0, 50);
	CHECK(fi_trywait(p.b.fabric, fids, 1) == -FI_EAGAIN);
	POST(fi_send(p.a.ep, "y", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, NULL, &contexts[1]);
	CHECK(pthread_join(w.thread, NULL) == 0);
	/* Now with fi_trywait before the messages. */
	CHECK(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]) == 0);
	CHECK(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]) == 0);
	CHECK(pthread_create(&w.thread, NULL, read_two, &w) == 0);
	poll(NULL, 0, 50);
	while (fi_trywait(p.b.fabric, fids, 1) == -FI_EAGAIN)
		;
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, NULL, &contexts[1]);
	poll(NULL, 0, 50);
	CHECK(readable(fd, 10000) == 1);
	POST(fi_send(p.a.ep, "y", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, NULL, &contexts[1]);
	CHECK(pthread_join(w.thread, NULL) == 0);
	part(&p);
}
