/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Counters: counting, reading, setting and waiting (fi_cntr(3)). */
#include "case.h"

/* Two endpoints with each other's addresses, each bound to a counter. */
struct counted {
	struct pair p;
	struct fid_cntr *at_a, *at_b;
};

static int cntr_attempt(struct fid_domain *domain, struct fi_cntr_attr attr)
{
	struct fid_cntr *cntr;
	int ret = fi_cntr_open(domain, &attr, &cntr, NULL);

	if (!ret)
		CHECK(fi_close(&cntr->fid) == 0);
	return ret;
}

static struct fid_cntr *open_cntr(struct side *s, enum fi_wait_obj wait)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = wait };
	struct fid_cntr *cntr;

	CHECK(fi_cntr_open(s->domain, &attr, &cntr, s) == 0);
	return cntr;
}

/* An endpoint bound to a counter before it is enabled, and its name. */
static struct fid_ep *counted_ep(struct side *s, struct fid_cntr *cntr, uint64_t kinds, char *name)
{
	struct fid_ep *ep;
	size_t len = sizeof(s->name);

	CHECK(fi_endpoint(s->domain, s->info, &ep, s) == 0);
	CHECK(fi_ep_bind(ep, &s->cq->fid, FI_TRANSMIT | FI_RECV | s->want.bind) == 0);
	CHECK(fi_ep_bind(ep, &s->av->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, &cntr->fid, kinds) == 0);
	CHECK(fi_enable(ep) == 0);
	CHECK(fi_getname(&ep->fid, name, &len) == 0);
	return ep;
}

static void meet_counted(struct counted *c, const struct want *w, uint64_t kinds_a, uint64_t kinds_b)
{
	open_domain(&c->p.a, w);
	open_domain(&c->p.b, w);
	c->at_a = open_cntr(&c->p.a, FI_WAIT_UNSPEC);
	c->at_b = open_cntr(&c->p.b, FI_WAIT_UNSPEC);
	c->p.a.ep = counted_ep(&c->p.a, c->at_a, kinds_a, c->p.a.name);
	c->p.b.ep = counted_ep(&c->p.b, c->at_b, kinds_b, c->p.b.name);
	c->p.to_b = insert(&c->p.a, c->p.b.name);
	c->p.to_a = insert(&c->p.b, c->p.a.name);
}

static void part_counted(struct counted *c)
{
	CHECK(fi_close(&c->p.a.ep->fid) == 0 && fi_close(&c->p.b.ep->fid) == 0);
	c->p.a.ep = c->p.b.ep = NULL;
	CHECK(fi_close(&c->at_a->fid) == 0 && fi_close(&c->at_b->fid) == 0);
	part(&c->p);
}

/* Checks that the counter reads `value` within ten seconds: a change may become visible late. */
static void reads(uint64_t (*value_of)(struct fid_cntr *), struct fid_cntr *cntr, uint64_t value)
{
	double end = seconds() + 10;
	uint64_t now;

	while ((now = value_of(cntr)) != value && seconds() < end)
		drive();
	if (now != value)
		fprintf(stderr, "it reads %llu and not %llu\n", (unsigned long long) now, (unsigned long long) value);
	CHECK(now == value);
}

/* One message from a to b, and both completions. */
static void cross(struct counted *c, int tagged)
{
	struct pair *p = &c->p;
	static char in[8];

	if (tagged) {
		POST(fi_trecv(p->b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[0]));
		POST(fi_tsend(p->a.ep, "x", 1, NULL, p->to_b, 7, &contexts[1]));
	} else {
		POST(fi_recv(p->b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_send(p->a.ep, "x", 1, NULL, p->to_b, &contexts[1]));
	}
	done(&p->a, &p->b, &contexts[1]);
	done(&p->b, &p->a, &contexts[0]);
}

CASE(cntr_open_accepts_attr)
{
	struct fi_cntr_attr attr = { 0 };
	struct fid_cntr *cntr;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_cntr_open(s.domain, &attr, &cntr, &s) == 0);
	CHECK(cntr->fid.context == &s && cntr->fid.fclass == FI_CLASS_CNTR);
	CHECK(fi_cntr_read(cntr) == 0 && fi_cntr_readerr(cntr) == 0);
	CHECK(fi_close(&cntr->fid) == 0);
	CHECK(cntr_attempt(s.domain, (struct fi_cntr_attr) { .wait_obj = FI_WAIT_UNSPEC }) == 0);
	CHECK(cntr_attempt(s.domain, (struct fi_cntr_attr) { .wait_obj = FI_WAIT_FD }) == 0);
	/* wait_set is ignored unless wait_obj is FI_WAIT_SET. */
	CHECK(cntr_attempt(s.domain, (struct fi_cntr_attr) { .wait_obj = FI_WAIT_FD, .wait_set = (void *) 1 }) == 0);
	close_side(&s);
}

CASE(cntr_open_rejects_bad_attr)
{
	struct side s;

	open_domain(&s, &RDM);
	CHECK(cntr_attempt(s.domain, (struct fi_cntr_attr) { .flags = 1ULL << 62 }) == -FI_EINVAL);
	CHECK(cntr_attempt(s.domain, (struct fi_cntr_attr) { .wait_obj = 99 }) < 0);
	close_side(&s);
}

CASE_OURS(cntr_open_unknown_events)
{
	struct side s;

	open_domain(&s, &RDM);
	REFUSED("fi_cntr_open for events other than FI_CNTR_EVENTS_COMP and FI_CNTR_EVENTS_BYTES",
		FI_ENOSYS, cntr_attempt(s.domain, ((struct fi_cntr_attr) { .events = 99 })));
	CHECK(cntr_attempt(s.domain, (struct fi_cntr_attr) { .wait_obj = 99 }) == -FI_EINVAL);
	close_side(&s);
}

CASE(cntr_bind_kinds)
{
	struct fid_cntr *one, *other;
	struct side s;

	open_domain(&s, &RDM);
	one = open_cntr(&s, FI_WAIT_NONE);
	other = open_cntr(&s, FI_WAIT_NONE);
	CHECK(fi_endpoint(s.domain, s.info, &s.ep, &s) == 0);
	CHECK(fi_ep_bind(s.ep, &one->fid, FI_SEND | FI_READ) == 0);
	CHECK(fi_ep_bind(s.ep, &other->fid, FI_RECV | FI_WRITE) == 0);
	/* Each kind of operation has one counter. */
	CHECK(fi_ep_bind(s.ep, &other->fid, FI_SEND) < 0);
	CHECK(fi_ep_bind(s.ep, &other->fid, 1ULL << 60) < 0);
	CHECK(fi_close(&one->fid) == -FI_EBUSY && fi_close(&other->fid) == -FI_EBUSY);
	CHECK(fi_close(&s.ep->fid) == 0);
	s.ep = NULL;
	CHECK(fi_close(&one->fid) == 0 && fi_close(&other->fid) == 0);
	close_side(&s);
}

CASE(cntr_counts_bound_kinds_only)
{
	struct counted c;
	char in[8];

	meet_counted(&c, &RDM, FI_SEND, FI_RECV);
	cross(&c, 0);
	cross(&c, 1);
	/* In the other direction, neither counter is bound. */
	POST(fi_recv(c.p.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_send(c.p.b.ep, "y", 1, NULL, c.p.to_a, &contexts[3]));
	done(&c.p.b, &c.p.a, &contexts[3]);
	done(&c.p.a, &c.p.b, &contexts[2]);
	reads(fi_cntr_read, c.at_a, 2);
	reads(fi_cntr_read, c.at_b, 2);
	CHECK(fi_cntr_readerr(c.at_a) == 0 && fi_cntr_readerr(c.at_b) == 0);
	part_counted(&c);
}

CASE(cntr_shared_by_kinds_and_endpoints)
{
	struct fid_cntr *cntr;
	struct fid_ep *second;
	struct side s;
	fi_addr_t to_second;
	char name[64], in[8];

	open_domain(&s, &RDM);
	cntr = open_cntr(&s, FI_WAIT_NONE);
	s.ep = counted_ep(&s, cntr, FI_SEND | FI_RECV, s.name);
	second = counted_ep(&s, cntr, FI_SEND | FI_RECV, name);
	to_second = insert(&s, name);
	POST(fi_recv(second, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(s.ep, "x", 1, NULL, to_second, &contexts[1]));
	/* One endpoint's send and the other's receive. */
	reads(fi_cntr_read, cntr, 2);
	CHECK(fi_close(&s.ep->fid) == 0);
	s.ep = NULL;
	CHECK(fi_close(&cntr->fid) == -FI_EBUSY);
	CHECK(fi_close(&second->fid) == 0);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

CASE(cntr_counts_suppressed)
{
	struct want w = { .caps = FI_TAGGED, .bind = FI_SELECTIVE_COMPLETION };
	struct counted c;
	char in[8];
	int i;

	meet_counted(&c, &w, FI_SEND, FI_RECV);
	for (i = 0; i < 2; i++)
		POST(fi_recv(c.p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(c.p.a.ep, "x", 1, NULL, c.p.to_b, &contexts[1]));
	POST(fi_inject(c.p.a.ep, "y", 1, c.p.to_b));
	reads(fi_cntr_read, c.at_b, 2);
	reads(fi_cntr_read, c.at_a, 2);
	quiet(&c.p.a, &c.p.b);
	quiet(&c.p.b, &c.p.a);
	part_counted(&c);
}

CASE(cntr_counts_errors_separately)
{
	struct counted c;
	char in[8];

	meet_counted(&c, &RDM, FI_SEND, FI_RECV);
	POST(fi_recv(c.p.b.ep, in, 4, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(c.p.a.ep, "12345678", 8, NULL, c.p.to_b, &contexts[1]));
	done(&c.p.a, &c.p.b, &contexts[1]);
	/* The completion queue has it too. */
	failed(&c.p.b, &c.p.a, FI_ETRUNC);
	reads(fi_cntr_readerr, c.at_b, 1);
	reads(fi_cntr_read, c.at_a, 1);
	CHECK(fi_cntr_read(c.at_b) == 0 && fi_cntr_readerr(c.at_a) == 0);
	cross(&c, 0);
	reads(fi_cntr_read, c.at_b, 1);
	CHECK(fi_cntr_readerr(c.at_b) == 1);
	part_counted(&c);
}

CASE(cntr_counts_failed_sends)
{
	unsigned char absent[16] = { 2, 0, 0, 1, 127, 0, 0, 1 };
	struct fid_cntr *cntr;
	struct side s;
	fi_addr_t to_absent;

	open_domain(&s, &RDM);
	cntr = open_cntr(&s, FI_WAIT_NONE);
	s.ep = counted_ep(&s, cntr, FI_SEND, s.name);
	to_absent = insert(&s, absent);
	POST(fi_send(s.ep, "x", 1, NULL, to_absent, &contexts[0]));
	failed(&s, NULL, FI_ECONNREFUSED);
	reads(fi_cntr_readerr, cntr, 1);
	POST(fi_inject(s.ep, "x", 1, to_absent));
	failed(&s, NULL, FI_ECONNREFUSED);
	reads(fi_cntr_readerr, cntr, 2);
	CHECK(fi_cntr_read(cntr) == 0);
	CHECK(fi_close(&s.ep->fid) == 0);
	s.ep = NULL;
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

CASE_OURS(cntr_counts_cancelled_receives)
{
	struct counted c;
	char in[8];

	meet_counted(&c, &RDM, FI_SEND, FI_RECV);
	POST(fi_recv(c.p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(fi_cancel(&c.p.b.ep->fid, &contexts[0]) == 0);
	failed(&c.p.b, &c.p.a, FI_ECANCELED);
	reads(fi_cntr_readerr, c.at_b, 1);
	CHECK(fi_cntr_read(c.at_b) == 0);
	part_counted(&c);
}

CASE_OURS(cntr_counts_messages_of_a_buffer)
{
	struct want w = { .caps = FI_TAGGED | FI_MULTI_RECV };
	static char buffer[4096], out[2048];
	struct iovec iov = { buffer, sizeof(buffer) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[0] };
	struct counted c;
	size_t min = 1024;
	int i;

	meet_counted(&c, &w, FI_SEND, FI_RECV);
	CHECK(fi_setopt(&c.p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof(min)) == 0);
	POST(fi_recvmsg(c.p.b.ep, &msg, FI_MULTI_RECV));
	for (i = 0; i < 2; i++) {
		POST(fi_send(c.p.a.ep, out, sizeof(out), NULL, c.p.to_b, &contexts[1]));
		done(&c.p.a, &c.p.b, &contexts[1]);
	}
	/* Two messages; the release of the buffer does not count. */
	reads(fi_cntr_read, c.at_b, 2);
	quiet(&c.p.a, NULL);
	CHECK(fi_cntr_read(c.at_b) == 2 && fi_cntr_readerr(c.at_b) == 0);
	part_counted(&c);
}

CASE_OURS(cntr_counts_at_the_level)
{
	struct want w = RDM;
	struct counted c;
	char in[8];

	w.tx_flags = FI_MATCH_COMPLETE;
	meet_counted(&c, &w, FI_SEND, FI_RECV);
	POST(fi_tsend(c.p.a.ep, "x", 1, NULL, c.p.to_b, 1, &contexts[1]));
	quiet(&c.p.a, &c.p.b);
	CHECK(fi_cntr_read(c.at_a) == 0 && fi_cntr_read(c.at_b) == 0);
	POST(fi_trecv(c.p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
	reads(fi_cntr_read, c.at_a, 1);
	reads(fi_cntr_read, c.at_b, 1);
	part_counted(&c);
}

/* With manual progress, only these reads make progress. */
CASE(cntr_read_makes_progress)
{
	struct want w = { .caps = FI_TAGGED, .progress = FI_PROGRESS_MANUAL };
	struct counted c;
	char in[8] = "";
	volatile char *seen = in;
	double end = seconds() + 20;
	int round;

	meet_counted(&c, &w, FI_SEND, FI_RECV);
	for (round = 0; round < 2; round++) {
		uint64_t (*look)(struct fid_cntr *) = round ? fi_cntr_readerr : fi_cntr_read;

		CHECK(fi_recv(c.p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]) == 0);
		while (fi_send(c.p.a.ep, round ? "2" : "1", 1, NULL, c.p.to_b, &contexts[1]) == -FI_EAGAIN && seconds() < end) {
			look(c.at_a);
			look(c.at_b);
		}
		while (*seen != (round ? '2' : '1') && seconds() < end) {
			look(c.at_a);
			look(c.at_b);
		}
		CHECK(*seen == (round ? '2' : '1'));
	}
	while (fi_cntr_read(c.at_a) != 2 || fi_cntr_read(c.at_b) != 2)
		CHECK(seconds() < end);
	part_counted(&c);
}

CASE(cntr_add_and_set)
{
	struct fid_cntr *cntr;
	struct side s;

	open_domain(&s, &RDM);
	cntr = open_cntr(&s, FI_WAIT_NONE);
	CHECK(fi_cntr_add(cntr, 5) == 0);
	CHECK(fi_cntr_add(cntr, 2) == 0);
	reads(fi_cntr_read, cntr, 7);
	CHECK(fi_cntr_adderr(cntr, 3) == 0);
	CHECK(fi_cntr_adderr(cntr, 1) == 0);
	reads(fi_cntr_readerr, cntr, 4);
	reads(fi_cntr_read, cntr, 7);
	CHECK(fi_cntr_set(cntr, 100) == 0);
	reads(fi_cntr_read, cntr, 100);
	reads(fi_cntr_readerr, cntr, 4);
	CHECK(fi_cntr_seterr(cntr, 1) == 0);
	reads(fi_cntr_readerr, cntr, 1);
	reads(fi_cntr_read, cntr, 100);
	CHECK(fi_cntr_set(cntr, 0) == 0);
	reads(fi_cntr_read, cntr, 0);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

CASE_OURS(cntr_holds_up_to_its_maximum)
{
	struct fid_cntr *cntr;
	struct side s;

	open_domain(&s, &RDM);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 5))
	CHECK(s.info->domain_attr->max_cntr_value == UINT64_MAX);
	CHECK(s.info->domain_attr->max_err_cntr_value == UINT64_MAX);
#endif
	cntr = open_cntr(&s, FI_WAIT_NONE);
	CHECK(fi_cntr_set(cntr, UINT64_MAX - 1) == 0 && fi_cntr_add(cntr, 1) == 0);
	reads(fi_cntr_read, cntr, UINT64_MAX);
	CHECK(fi_cntr_seterr(cntr, UINT64_MAX - 1) == 0 && fi_cntr_adderr(cntr, 1) == 0);
	reads(fi_cntr_readerr, cntr, UINT64_MAX);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

/* Another thread that changes a counter twice, each time late enough for the waiter to sleep. */
struct change {
	struct fid_cntr *cntr;
	int (*call)(struct fid_cntr *cntr, uint64_t value);
	uint64_t values[2];
	pthread_t thread;
};

static void *change_later(void *arg)
{
	struct change *c = arg;
	int i;

	for (i = 0; i < 2; i++) {
		poll(NULL, 0, 50);
		CHECK(c->call(c->cntr, c->values[i]) == 0);
	}
	return NULL;
}

static void begin(struct change *c, struct fid_cntr *cntr, int (*call)(struct fid_cntr *, uint64_t), uint64_t first,
	uint64_t second)
{
	*c = (struct change) { cntr, call, { first, second }, 0 };
	CHECK(pthread_create(&c->thread, NULL, change_later, c) == 0);
}

static void end_of(struct change *c)
{
	CHECK(pthread_join(c->thread, NULL) == 0);
}

static void waits_for_threshold(enum fi_wait_obj kind, enum fi_progress progress)
{
	struct want w = { .caps = FI_TAGGED, .progress = progress };
	struct fid_cntr *cntr;
	struct change c;
	struct side s;

	open_domain(&s, &w);
	cntr = open_cntr(&s, kind);
	/* The first change does not reach the threshold. */
	begin(&c, cntr, fi_cntr_add, 1, 2);
	CHECK(fi_cntr_wait(cntr, 3, -1) == 0);
	CHECK(fi_cntr_read(cntr) == 3);
	end_of(&c);
	CHECK(fi_cntr_wait(cntr, 2, -1) == 0);
	begin(&c, cntr, fi_cntr_set, 4, 10);
	CHECK(fi_cntr_wait(cntr, 9, -1) == 0);
	CHECK(fi_cntr_read(cntr) == 10);
	end_of(&c);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

CASE(cntr_wait_reaches_threshold)
{
	waits_for_threshold(FI_WAIT_UNSPEC, FI_PROGRESS_UNSPEC);
	waits_for_threshold(FI_WAIT_FD, FI_PROGRESS_UNSPEC);
}

CASE_OURS(cntr_wait_of_other_kinds)
{
	waits_for_threshold(FI_WAIT_YIELD, FI_PROGRESS_MANUAL);
	waits_for_threshold(FI_WAIT_POLLFD, FI_PROGRESS_MANUAL);
	waits_for_threshold(FI_WAIT_MUTEX_COND, FI_PROGRESS_AUTO);
	waits_for_threshold(FI_WAIT_MUTEX_COND, FI_PROGRESS_MANUAL);
}

CASE(cntr_wait_ends_with_an_error)
{
	struct fid_cntr *cntr;
	struct change c;
	struct side s;

	open_domain(&s, &RDM);
	cntr = open_cntr(&s, FI_WAIT_UNSPEC);
	begin(&c, cntr, fi_cntr_adderr, 1, 0);
	CHECK(fi_cntr_wait(cntr, 5, 10000) == -FI_EAVAIL);
	CHECK(fi_cntr_read(cntr) == 0 && fi_cntr_readerr(cntr) == 1);
	end_of(&c);
	/* An earlier error does not end the wait. */
	CHECK(fi_cntr_wait(cntr, 5, 50) == -FI_ETIMEDOUT);
	begin(&c, cntr, fi_cntr_seterr, 9, 9);
	CHECK(fi_cntr_wait(cntr, 5, 10000) == -FI_EAVAIL);
	CHECK(fi_cntr_readerr(cntr) == 9);
	end_of(&c);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

static void *send_too_much(void *arg)
{
	struct counted *c = arg;

	poll(NULL, 0, 50);
	POST(fi_send(c->p.a.ep, "12345678", 8, NULL, c->p.to_b, &contexts[1]));
	done(&c->p.a, NULL, &contexts[1]);
	return NULL;
}

CASE_OURS(cntr_wait_ends_with_a_failed_operation)
{
	struct counted c;
	pthread_t thread;
	char in[8];

	meet_counted(&c, &RDM, FI_SEND, FI_RECV);
	cross(&c, 0);
	POST(fi_recv(c.p.b.ep, in, 4, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(pthread_create(&thread, NULL, send_too_much, &c) == 0);
	CHECK(fi_cntr_wait(c.at_b, 2, 10000) == -FI_EAVAIL);
	CHECK(fi_cntr_read(c.at_b) == 1 && fi_cntr_readerr(c.at_b) == 1);
	CHECK(pthread_join(thread, NULL) == 0);
	part_counted(&c);
}

struct waiter {
	struct fid_cntr *cntr;
	uint64_t threshold;
	int expected;
	pthread_t thread;
};

static void *wait_for_it(void *arg)
{
	struct waiter *w = arg;

	CHECK(fi_cntr_wait(w->cntr, w->threshold, 10000) == w->expected);
	return NULL;
}

/* Each waiter wakes at its own threshold, and an error wakes all the others. */
CASE(cntr_wait_by_several_threads)
{
	struct waiter waiters[] = { { .threshold = 1 }, { .threshold = 2 },
		{ .threshold = 100, .expected = -FI_EAVAIL }, { .threshold = 200, .expected = -FI_EAVAIL } };
	struct fid_cntr *cntr;
	struct side s;
	size_t i;

	open_domain(&s, &RDM);
	cntr = open_cntr(&s, FI_WAIT_UNSPEC);
	for (i = 0; i < ARRAY(waiters); i++) {
		waiters[i].cntr = cntr;
		CHECK(pthread_create(&waiters[i].thread, NULL, wait_for_it, &waiters[i]) == 0);
	}
	poll(NULL, 0, 100);
	for (i = 0; i < 2; i++) {
		CHECK(fi_cntr_add(cntr, 1) == 0);
		CHECK(pthread_join(waiters[i].thread, NULL) == 0);
	}
	CHECK(fi_cntr_adderr(cntr, 1) == 0);
	for (; i < ARRAY(waiters); i++)
		CHECK(pthread_join(waiters[i].thread, NULL) == 0);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

CASE(cntr_wait_timeout)
{
	struct fid_cntr *cntr;
	struct side s;
	double start;

	open_domain(&s, &RDM);
	cntr = open_cntr(&s, FI_WAIT_UNSPEC);
	CHECK(fi_cntr_set(cntr, 2) == 0 && fi_cntr_seterr(cntr, 3) == 0);
	start = seconds();
	CHECK(fi_cntr_wait(cntr, 5, 100) == -FI_ETIMEDOUT);
	CHECK(seconds() - start > 0.099 && seconds() - start < 5);
	start = seconds();
	CHECK(fi_cntr_wait(cntr, 5, 0) == -FI_ETIMEDOUT && seconds() - start < 1);
	CHECK(fi_cntr_read(cntr) == 2 && fi_cntr_readerr(cntr) == 3);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

CASE_OURS(cntr_wait_without_wait_object)
{
	struct fi_cq_tagged_entry buf[1];
	struct fid_cntr *cntr;
	struct side s;

	open_domain(&s, &RDM);
	/* FI_WAIT_NONE, the default. */
	CHECK(fi_cntr_open(s.domain, &(struct fi_cntr_attr) { 0 }, &cntr, NULL) == 0);
	CHECK(fi_cntr_wait(cntr, 1, 20) == -FI_ETIMEDOUT);
	CHECK(fi_cntr_add(cntr, 1) == 0 && fi_cntr_wait(cntr, 1, -1) == 0);
	REFUSED("fi_cq_sread of a queue with FI_WAIT_NONE", FI_ENOSYS, fi_cq_sread(s.cq, buf, 1, NULL, -1));
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

CASE_OURS(cntr_getwait_object)
{
	struct pollfd fds[1];
	struct fi_wait_pollfd list = { .nfds = 1, .fd = fds };
	struct fid_cntr *none, *fd, *pollfd, *yield;
	struct side s;
	int number = -1, kind = -1;

	open_domain(&s, &RDM);
	none = open_cntr(&s, FI_WAIT_NONE);
	fd = open_cntr(&s, FI_WAIT_FD);
	pollfd = open_cntr(&s, FI_WAIT_POLLFD);
	yield = open_cntr(&s, FI_WAIT_YIELD);
	CHECK(fi_control(&none->fid, FI_GETWAIT, &number) == -FI_ENODATA);
	CHECK(fi_control(&yield->fid, FI_GETWAIT, &number) == -FI_ENODATA);
	CHECK(fi_control(&fd->fid, FI_GETWAIT, &number) == 0 && number >= 0);
	CHECK(fi_control(&fd->fid, FI_GETWAIT, NULL) == -FI_EINVAL);
	CHECK(fi_control(&fd->fid, 12345, &number) == -FI_ENOSYS);
	CHECK(fi_control(&pollfd->fid, FI_GETWAIT, &list) == 0 && list.nfds == 1 && fds[0].fd >= 0);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 12))
	CHECK(fi_control(&fd->fid, FI_GETWAITOBJ, &kind) == 0 && kind == FI_WAIT_FD);
#endif
	CHECK(fi_close(&none->fid) == 0 && fi_close(&fd->fid) == 0);
	CHECK(fi_close(&pollfd->fid) == 0 && fi_close(&yield->fid) == 0);
	close_side(&s);
}

CASE_OURS(cntr_fd_polls_readable)
{
	struct epoll_event got, watch = { .events = EPOLLIN };
	struct fid_cntr *cntr;
	struct fid *fids[1];
	struct change c;
	struct side s;
	uint64_t value;
	int fd, round, epoll = epoll_create1(0);
	fd_set set;

	open_domain(&s, &RDM);
	cntr = open_cntr(&s, FI_WAIT_FD);
	fids[0] = &cntr->fid;
	CHECK(fi_control(&cntr->fid, FI_GETWAIT, &fd) == 0);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &watch) == 0);
	for (round = 0; round < 3; round++) {
		value = fi_cntr_read(cntr);
		CHECK(fi_trywait(s.fabric, fids, 1) == 0);
		begin(&c, cntr, fi_cntr_add, 1, 1);
		FD_ZERO(&set);
		FD_SET(fd, &set);
		if (round == 0)
			CHECK(poll(&(struct pollfd) { fd, POLLIN, 0 }, 1, 10000) == 1);
		else if (round == 1)
			CHECK(select(fd + 1, &set, NULL, NULL, &(struct timeval) { 10, 0 }) == 1);
		else
			CHECK(epoll_wait(epoll, &got, 1, 10000) == 1);
		CHECK(fi_cntr_read(cntr) > value);
		end_of(&c);
	}
	close(epoll);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

CASE_OURS(wait_set_of_counters)
{
	struct fi_wait_attr set_attr = { .wait_obj = FI_WAIT_FD };
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_SET };
	struct fid_cntr *one, *other;
	struct fid_wait *set;
	struct change c;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_wait_open(s.fabric, &set_attr, &set) == 0);
	attr.wait_set = set;
	CHECK(fi_cntr_open(s.domain, &attr, &one, NULL) == 0 && fi_cntr_open(s.domain, &attr, &other, NULL) == 0);
	CHECK(fi_close(&set->fid) == -FI_EBUSY);
	CHECK(fi_wait(set, 50) == -FI_ETIMEDOUT);
	begin(&c, other, fi_cntr_add, 1, 0);
	CHECK(fi_wait(set, 10000) == 0);
	CHECK(fi_cntr_read(other) == 1 && fi_cntr_read(one) == 0);
	end_of(&c);
	CHECK(fi_close(&one->fid) == 0 && fi_close(&other->fid) == 0);
	CHECK(fi_close(&set->fid) == 0);
	close_side(&s);
}

CASE_OURS(cntr_waits_on_mutex_and_condition)
{
	struct want w = { .caps = FI_TAGGED, .progress = FI_PROGRESS_AUTO };
	struct fi_mutex_cond mc = { NULL, NULL };
	struct fid_cntr *cntr;
	struct fid *fids[1];
	struct change c;
	struct side s;

	open_domain(&s, &w);
	cntr = open_cntr(&s, FI_WAIT_MUTEX_COND);
	fids[0] = &cntr->fid;
	CHECK(fi_control(&cntr->fid, FI_GETWAIT, &mc) == 0 && mc.mutex && mc.cond);
	begin(&c, cntr, fi_cntr_add, 1, 1);
	pthread_mutex_lock(mc.mutex);
	while (fi_cntr_read(cntr) < 2)
		if (fi_trywait(s.fabric, fids, 1) == 0)
			pthread_cond_wait(mc.cond, mc.mutex);
	pthread_mutex_unlock(mc.mutex);
	end_of(&c);
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

/* Failures other than those of a plain receive. */
CASE_OURS(cntr_counts_every_failure)
{
	struct want w = { .caps = FI_TAGGED | FI_MULTI_RECV };
	static char buffer[4096];
	struct iovec iov = { buffer, sizeof(buffer) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[0] };
	struct fi_msg_tagged peek = { .addr = FI_ADDR_UNSPEC, .tag = 5, .context = &contexts[1] };
	struct counted c;

	meet_counted(&c, &w, FI_SEND, FI_RECV);
	POST(fi_recvmsg(c.p.b.ep, &msg, FI_MULTI_RECV));
	CHECK(fi_cancel(&c.p.b.ep->fid, &contexts[0]) == 0);
	failed(&c.p.b, &c.p.a, FI_ECANCELED);
	reads(fi_cntr_readerr, c.at_b, 1);
	POST(fi_trecvmsg(c.p.b.ep, &peek, FI_PEEK));
	failed(&c.p.b, &c.p.a, FI_ENOMSG);
	reads(fi_cntr_readerr, c.at_b, 2);
	CHECK(fi_cntr_read(c.at_b) == 0);
	part_counted(&c);
}

CASE_OURS(cntr_bound_again_after_enabling)
{
	struct fid_cntr *cntr;
	struct side s;

	open_side(&s, &RDM);
	cntr = open_cntr(&s, FI_WAIT_UNSPEC);
	CHECK(fi_ep_bind(s.ep, &cntr->fid, FI_SEND) == 0);
	CHECK(fi_ep_bind(s.ep, &cntr->fid, FI_RECV) == 0);
	CHECK(fi_close(&s.ep->fid) == 0);
	s.ep = NULL;
	CHECK(fi_close(&cntr->fid) == 0);
	close_side(&s);
}

/* A change that fi_poll had no room to report still makes fi_trywait return -FI_EAGAIN. */
CASE_OURS(cntr_unreported_change_stays_pending)
{
	struct fid_cntr *cntr;
	struct fid_poll *set;
	struct fid *fids[1];
	struct side s;

	open_domain(&s, &RDM);
	cntr = open_cntr(&s, FI_WAIT_FD);
	fids[0] = &cntr->fid;
	CHECK(fi_poll_open(s.domain, NULL, &set) == 0 && fi_poll_add(set, &cntr->fid, 0) == 0);
	CHECK(fi_cntr_add(cntr, 1) == 0);
	CHECK(fi_poll(set, NULL, 0) == 0);
	CHECK(fi_trywait(s.fabric, fids, 1) == -FI_EAGAIN);
	CHECK(fi_close(&set->fid) == 0 && fi_close(&cntr->fid) == 0);
	close_side(&s);
}
