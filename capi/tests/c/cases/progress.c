/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Progress that must not stop: of endpoints idle for long, of senders while another thread sleeps,
 * of messages beyond the credits, and of operations that end while their endpoint closes.
 */
#include "case.h"

static char big[20][128 << 10], into[20][128 << 10];

/* Reads until the library stops polling the endpoint and waits for its descriptor. */
static void let_cool(struct side *s)
{
	double end = seconds() + 3;

	while (seconds() < end)
		fi_cq_read(s->cq, NULL, 0);
}

CASE_OURS(idle_endpoint_answers)
{
	struct fi_msg_tagged msg = { 0 };
	struct iovec iov = { "x", 1 };
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	msg.msg_iov = &iov;
	msg.iov_count = 1;
	msg.addr = p.to_b;
	msg.context = &contexts[1];
	POST(fi_tsendmsg(p.a.ep, &msg, FI_MATCH_COMPLETE | FI_COMPLETION));
	quiet(&p.b, &p.a);
	let_cool(&p.b);
	POST(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0, 0, &contexts[0]));
	done(&p.b, NULL, &contexts[0]);
	done(&p.a, &p.b, &contexts[1]);
	part(&p);
}

/* Nineteen messages without receives do not block one that has a receive. */
CASE_OURS(expected_messages_overtake_unexpected_ones)
{
	struct pair p;
	size_t i;

	meet(&p, &RDM);
	for (i = 0; i < 19; i++)
		POST(fi_tsend(p.a.ep, big[i], sizeof(big[i]), NULL, p.to_b, 7, &contexts[1]));
	POST(fi_tsend(p.a.ep, "wanted", 7, NULL, p.to_b, 8, &contexts[1]));
	POST(fi_tsend(p.a.ep, big[19], sizeof(big[19]), NULL, p.to_b, 9, &contexts[1]));
	POST(fi_trecv(p.b.ep, into[19], sizeof(into[19]), NULL, FI_ADDR_UNSPEC, 9, 0, &contexts[3]));
	done(&p.b, &p.a, &contexts[3]);
	POST(fi_trecv(p.b.ep, into[0], sizeof(into[0]), NULL, FI_ADDR_UNSPEC, 8, 0, &contexts[2]));
	done(&p.b, &p.a, &contexts[2]);
	CHECK(!strcmp(into[0], "wanted"));
	for (i = 0; i < 19; i++) {
		POST(fi_trecv(p.b.ep, into[0], sizeof(into[0]), NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[2]));
		CHECK(done(&p.b, &p.a, &contexts[2]).len == sizeof(into[0]));
	}
	for (i = 0; i < 21; i++)
		done(&p.a, &p.b, &contexts[1]);
	part(&p);
}

/*
 * A sender that reads no queue makes progress by its own calls, with more messages than a device
 * or a peer takes at once. Only those that tcp holds for the rest of a burst wait for a read.
 */
CASE_OURS(sender_that_reads_nothing_is_heard)
{
	struct pair p;
	char in[8];
	size_t i;

	CHECK(setenv("FI_TCP_HOLD", "0", 1) == 0);
	meet(&p, &RDM);
	for (i = 0; i < 200; i++) {
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_inject(p.a.ep, &i, 8, p.to_b));
		done(&p.b, i ? NULL : &p.a, &contexts[0]);
		CHECK(!memcmp(in, &i, 8));
	}
	part(&p);
}

static void *sleep_on_queue(void *arg)
{
	struct side *s = arg;
	struct fi_cq_tagged_entry entry;

	CHECK(fi_cq_sread(s->cq, &entry, 1, NULL, 10000) == 1);
	return NULL;
}

/* One thread sleeps on the queue while another posts a burst: all of it leaves. */
CASE_OURS(burst_is_sent_while_another_thread_sleeps)
{
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_UNSPEC };
	struct pair p;
	pthread_t sleeper;
	char in[8];
	size_t i;

	meet(&p, &w);
	POST(fi_recv(p.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	for (i = 0; i < 10; i++)
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[1]));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &contexts[1]);
	CHECK(pthread_create(&sleeper, NULL, sleep_on_queue, &p.a) == 0);
	poll(NULL, 0, 50);
	for (i = 0; i < 9; i++)
		CHECK(fi_inject(p.a.ep, "x", 1, p.to_b) == 0);
	for (i = 0; i < 9; i++)
		done(&p.b, NULL, &contexts[1]);
	POST(fi_inject(p.b.ep, "x", 1, p.to_a));
	fi_cq_read(p.b.cq, NULL, 0);
	CHECK(pthread_join(sleeper, NULL) == 0);
	part(&p);
}

static void *wait_for_signal(void *arg)
{
	struct side *s = arg;
	struct fi_cq_tagged_entry entry;

	CHECK(fi_cq_sread(s->cq, &entry, 1, NULL, -1) == -FI_EAGAIN);
	return NULL;
}

static void *wait_for_signal_with_source(void *arg)
{
	struct side *s = arg;
	struct fi_cq_tagged_entry entry;
	fi_addr_t from;

	CHECK(fi_cq_sreadfrom(s->cq, &entry, 1, &from, NULL, -1) == -FI_EAGAIN);
	return NULL;
}

CASE_OURS(signal_wakes_all_waiters)
{
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_UNSPEC };
	struct fi_cq_tagged_entry entry;
	pthread_t threads[4];
	struct pair p;
	size_t i;

	meet(&p, &w);
	for (i = 0; i < ARRAY(threads); i++)
		CHECK(pthread_create(&threads[i], NULL, i % 2 ? wait_for_signal_with_source : wait_for_signal, &p.b) == 0);
	poll(NULL, 0, 100);
	CHECK(fi_cq_signal(p.b.cq) == 0);
	for (i = 0; i < ARRAY(threads); i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	/* The signal is used up; another is kept for the next waiter. */
	CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, 20) == -FI_EAGAIN);
	CHECK(fi_cq_signal(p.b.cq) == 0);
	CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, -1) == -FI_EAGAIN);
	part(&p);
}

static struct side *receiver;

static void *read_one(void *arg)
{
	struct fi_cq_tagged_entry entry;

	CHECK(fi_cq_sread(receiver->cq, &entry, 1, NULL, -1) == 1);
	return arg;
}

/* Each of two waiters without timeout gets one entry: none returns empty. */
CASE_OURS(sread_without_timeout_returns_an_entry)
{
	struct want w = { .caps = FI_TAGGED, .wait = FI_WAIT_UNSPEC };
	pthread_t threads[2];
	struct pair p;
	char in[8];
	int round;
	size_t i;

	meet(&p, &w);
	receiver = &p.b;
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &contexts[0]);
	for (round = 0; round < 100; round++) {
		for (i = 0; i < 2; i++) {
			POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
			CHECK(pthread_create(&threads[i], NULL, read_one, NULL) == 0);
		}
		for (i = 0; i < 2; i++) {
			POST(fi_inject(p.a.ep, "x", 1, p.to_b));
			fi_cq_read(p.a.cq, NULL, 0);
			poll(NULL, 0, (round + i) % 3);
		}
		for (i = 0; i < 2; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
	}
	part(&p);
}

/* A wait returns if the counter changed before it began. */
CASE_OURS(cntr_wait_sees_an_earlier_change)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_FD };
	struct fid_cntr *counter;
	struct fid *fids[1];
	struct pair p;
	char in[8];

	open_side(&p.a, &RDM);
	open_domain(&p.b, &RDM);
	CHECK(fi_cntr_open(p.b.domain, &attr, &counter, NULL) == 0);
	CHECK(fi_endpoint(p.b.domain, p.b.info, &p.b.ep, NULL) == 0);
	CHECK(fi_ep_bind(p.b.ep, &p.b.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(p.b.ep, &counter->fid, FI_RECV) == 0);
	CHECK(fi_ep_bind(p.b.ep, &p.b.av->fid, 0) == 0);
	CHECK(fi_enable(p.b.ep) == 0);
	p.b.len = sizeof(p.b.name);
	CHECK(fi_getname(&p.b.ep->fid, p.b.name, &p.b.len) == 0);
	p.to_b = insert(&p.a, p.b.name);
	fids[0] = &counter->fid;
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(fi_cntr_read(counter) == 0);
	CHECK(fi_trywait(p.b.fabric, fids, 1) == 0);
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &contexts[0]);
	CHECK(fi_trywait(p.b.fabric, fids, 1) == -FI_EAGAIN);
	CHECK(fi_cntr_read(counter) == 1);
	CHECK(fi_trywait(p.b.fabric, fids, 1) == 0);
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	CHECK(fi_close(&counter->fid) == 0);
	close_side(&p.b);
	close_side(&p.a);
}

/*
 * The answer to a connect request arrives while its endpoint is being closed: the event queue gets
 * no event.
 */
CASE_OURS(closing_while_connecting_leaves_no_event)
{
	static const struct want MSG = { .type = FI_EP_MSG };
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	struct fi_eq_err_entry err = { 0 };
	struct fid_pep *pep;
	struct side a, b;
	char name[64];
	size_t len = sizeof(name);
	uint32_t number;

	open_domain(&b, &MSG);
	CHECK(fi_passive_ep(b.fabric, b.info, &pep, NULL) == 0);
	CHECK(fi_pep_bind(pep, &b.eq->fid, 0) == 0);
	/* The queue is in use from now on. */
	CHECK(fi_close(&b.eq->fid) == -FI_EBUSY);
	CHECK(fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	open_side(&a, &MSG);
	CHECK(fi_connect(a.ep, name, NULL, 0) == 0);
	CHECK(event_of(&b, &a, &number, &event, sizeof(event)) > 0 && number == FI_CONNREQ);
	CHECK(fi_reject(pep, event.cm.info->handle, "no", 2) == 0);
	fi_freeinfo(event.cm.info);
	fi_eq_read(b.eq, &number, NULL, 0, FI_PEEK);
	CHECK(fi_close(&a.ep->fid) == 0);
	a.ep = NULL;
	CHECK(fi_eq_read(a.eq, &number, &event, sizeof(event), 0) == -FI_EAGAIN);
	CHECK(fi_eq_readerr(a.eq, &err, 0) == -FI_EAGAIN);
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&a);
	close_side(&b);
}

/*
 * Closing an endpoint discards pending operations without completions (fi_endpoint(3), fi_close).
 */
CASE_OURS(closing_an_endpoint_reports_nothing)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;

	meet(&p, &RDM);
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	POST(fi_tsend(p.a.ep, big, sizeof(big), NULL, p.to_b, 7, &contexts[1]));
	quiet(&p.a, &p.b);
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	CHECK(fi_close(&p.a.ep->fid) == 0);
	p.a.ep = NULL;
	CHECK(fi_cq_read(p.a.cq, &entry, 1) == -FI_EAGAIN);
	CHECK(fi_cq_read(p.b.cq, &entry, 1) == -FI_EAGAIN);
	part(&p);
}

/* fi_poll makes progress on all members, even if it may report only a few. */
CASE_OURS(poll_makes_progress_on_all_members)
{
	struct fid_poll *set;
	void *context;
	struct pair p;
	double end = seconds() + 10;
	char in[8];

	meet(&p, &RDM);
	CHECK(fi_poll_open(p.b.domain, NULL, &set) == 0);
	CHECK(fi_poll_add(set, &p.b.cq->fid, 0) == 0);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	while (fi_cq_read(p.a.cq, &(struct fi_cq_tagged_entry) { 0 }, 1) != 1 && seconds() < end)
		CHECK(fi_poll(set, NULL, 0) == 0);
	CHECK(seconds() < end);
	CHECK(fi_poll(set, &context, 1) == 1);
	CHECK(fi_close(&set->fid) == 0);
	part(&p);
}

/* Only calls make progress on a long message. */
static void moves_by_reads(const struct want *w)
{
	static char big[4 << 20], in[4 << 20];
	struct pair p;

	meet(&p, w);
	CHECK(p.a.info->domain_attr->data_progress == w->progress);
	memset(big, 'z', sizeof(big));
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, big, sizeof(big), NULL, p.to_b, &contexts[1]));
	/* Nothing moves while no call is made. */
	poll(NULL, 0, 50);
	CHECK(*(volatile char *) &in[sizeof(in) - 1] == 0);
	done(&p.b, &p.a, &contexts[0]);
	done(&p.a, &p.b, &contexts[1]);
	CHECK(in[0] == 'z' && in[sizeof(in) - 1] == 'z');
	part(&p);
}

CASE(progress_manual_by_reads)
{
	moves_by_reads(&(struct want) { .caps = FI_TAGGED, .progress = FI_PROGRESS_MANUAL });
}

CASE_OURS(progress_control_unified)
{
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	struct want w = { .caps = FI_TAGGED, .progress = FI_PROGRESS_CONTROL_UNIFIED, .threading = FI_THREAD_DOMAIN };

	moves_by_reads(&w);
#else
	SKIP("these headers are older");
#endif
}
