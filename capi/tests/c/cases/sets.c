/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Wait sets and poll sets (fi_poll(3)). */
#include "later.h"

static struct fid_wait *shared_set;

static struct fid_wait *the_set(struct fid_fabric *fabric)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_FD };

	CHECK(fi_wait_open(fabric, &attr, &shared_set) == 0);
	return shared_set;
}

/* Two sides; the second's completion queue is in the set. */
static void open_on_set(struct pair *p)
{
	struct want w = RDM;

	open_side(&p->a, &w);
	w.set = the_set;
	open_side(&p->b, &w);
	p->to_b = insert(&p->a, p->b.name);
}

CASE_OURS(wait_set_wakes)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_SET };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_SET, .flags = FI_WRITE };
	struct fi_cq_tagged_entry entry;
	struct pair p;
	struct later l = { &p, NULL, 0 };
	struct fid *fids[1];
	struct fid_eq *eq;
	struct fid_cq *cq;
	uint32_t number;
	double end = seconds() + 10, start;
	char in[8];

	open_on_set(&p);
	/* One set for several queues. */
	eq_attr.wait_set = attr.wait_set = shared_set;
	CHECK(fi_eq_open(p.b.fabric, &eq_attr, &eq, NULL) == 0);
	CHECK(fi_cq_open(p.b.domain, &attr, &cq, NULL) == 0);
	CHECK(fi_close(&shared_set->fid) == -FI_EBUSY);
	start = seconds();
	while (fi_wait(shared_set, 50) == 0)
		CHECK(seconds() < end);
	CHECK(fi_wait(shared_set, 50) == -FI_ETIMEDOUT && seconds() - start > 0.05);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	start = seconds();
	CHECK(pthread_create(&l.thread, NULL, send_later, &l) == 0);
	do
		CHECK(fi_wait(shared_set, 10000) == 0);
	while (fi_cq_read(p.b.cq, &entry, 1) == -FI_EAGAIN);
	CHECK(seconds() - start < 5);
	CHECK(pthread_join(l.thread, NULL) == 0);
	fids[0] = &shared_set->fid;
	CHECK(fi_eq_write(eq, FI_NOTIFY, "event", 6, 0) == 6);
	start = seconds();
	CHECK(fi_wait(shared_set, 10000) == 0 && seconds() - start < 5);
	/* The set is ready when a member is. */
	CHECK(fi_trywait(p.b.fabric, fids, 1) == -FI_EAGAIN);
	CHECK(fi_eq_read(eq, &number, in, 6, 0) == 6);
	for (end = seconds() + 10; fi_trywait(p.b.fabric, fids, 1) == -FI_EAGAIN;)
		CHECK(seconds() < end);
	CHECK(fi_close(&eq->fid) == 0 && fi_close(&cq->fid) == 0);
	CHECK(fi_close(&p.b.ep->fid) == 0 && fi_close(&p.b.cq->fid) == 0);
	p.b.ep = NULL;
	p.b.cq = NULL;
	CHECK(fi_close(&shared_set->fid) == 0);
	part(&p);
}

static void *wait_for_set(void *arg)
{
	int *stop = arg;
	int ret;

	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		ret = fi_wait(shared_set, 20);
		CHECK(ret == 0 || ret == -FI_ETIMEDOUT);
	}
	return NULL;
}

static void *write_later(void *arg)
{
	poll(NULL, 0, 50);
	CHECK(fi_eq_write(arg, FI_NOTIFY, "x", 2, 0) == 2);
	return NULL;
}

static void *add_later(void *arg)
{
	poll(NULL, 0, 50);
	CHECK(fi_cntr_add(arg, 1) == 0);
	return NULL;
}

/* Blocking calls on members work, beside another thread in fi_wait too. */
CASE_OURS(wait_set_members_wait_by_themselves)
{
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_SET, .flags = FI_WRITE };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_SET };
	struct fi_cq_tagged_entry entry;
	struct pair p;
	struct later l = { &p, NULL, 0 };
	struct fid_cntr *cntr;
	struct fid_eq *eq;
	pthread_t thread, waiter;
	uint32_t number;
	double start;
	char in[8];
	int round, stop = 0;

	open_on_set(&p);
	eq_attr.wait_set = cntr_attr.wait_set = shared_set;
	CHECK(fi_eq_open(p.b.fabric, &eq_attr, &eq, NULL) == 0);
	CHECK(fi_cntr_open(p.b.domain, &cntr_attr, &cntr, NULL) == 0);
	start = seconds();
	CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, 20) == -FI_EAGAIN && seconds() - start > 0.019);
	CHECK(fi_cq_sreadfrom(p.b.cq, &entry, 1, &(fi_addr_t) { 0 }, NULL, 20) == -FI_EAGAIN);
	CHECK(fi_eq_sread(eq, &number, in, 8, 20, 0) == -FI_EAGAIN);
	CHECK(fi_cntr_wait(cntr, 1, 20) == -FI_ETIMEDOUT && seconds() - start > 0.079);
	for (round = 0; round < 2; round++) {
		if (round)
			CHECK(pthread_create(&waiter, NULL, wait_for_set, &stop) == 0);
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		CHECK(pthread_create(&l.thread, NULL, send_later, &l) == 0);
		CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, 10000) == 1 && entry.op_context == &contexts[0]);
		CHECK(pthread_join(l.thread, NULL) == 0);
		CHECK(pthread_create(&thread, NULL, write_later, eq) == 0);
		CHECK(fi_eq_sread(eq, &number, in, 8, 10000, 0) == 2 && number == FI_NOTIFY);
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(pthread_create(&thread, NULL, add_later, cntr) == 0);
		CHECK(fi_cntr_wait(cntr, (uint64_t) round + 1, 10000) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	CHECK(pthread_join(waiter, NULL) == 0);
	CHECK(seconds() - start < 10);
	CHECK(fi_close(&eq->fid) == 0 && fi_close(&cntr->fid) == 0);
	CHECK(fi_close(&p.b.ep->fid) == 0 && fi_close(&p.b.cq->fid) == 0);
	p.b.ep = NULL;
	p.b.cq = NULL;
	CHECK(fi_close(&shared_set->fid) == 0);
	part(&p);
}

CASE_OURS(wait_open_kinds)
{
	static const struct { enum fi_wait_obj kind; int expected; } kinds[] = {
		{ FI_WAIT_UNSPEC, 0 }, { FI_WAIT_FD, 0 }, { FI_WAIT_POLLFD, 0 }, { FI_WAIT_YIELD, 0 }, { FI_WAIT_MUTEX_COND, 0 },
		{ FI_WAIT_NONE, -FI_EINVAL }, { FI_WAIT_SET, -FI_EINVAL }, { 99, -FI_EINVAL },
	};
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_FD, .flags = 1 };
	struct pollfd fds[1];
	struct fi_wait_pollfd list = { .nfds = 1, .fd = fds };
	struct fid_wait *set;
	struct side s;
	uint64_t index;
	size_t i;
	int fd, kind = -1;

	open_domain(&s, &RDM);
	CHECK(fi_wait_open(s.fabric, &attr, &set) == -FI_EINVAL);
	for (i = 0; i < ARRAY(kinds); i++) {
		attr = (struct fi_wait_attr) { .wait_obj = kinds[i].kind };
		CHECK(fi_wait_open(s.fabric, &attr, &set) == kinds[i].expected);
		if (kinds[i].expected)
			continue;
		CHECK(fi_wait(set, 10) == -FI_ETIMEDOUT);
		if (kinds[i].kind == FI_WAIT_FD)
			CHECK(fi_control(&set->fid, FI_GETWAIT, &fd) == 0 && fd >= 0);
		if (kinds[i].kind == FI_WAIT_POLLFD) {
			list.change_index = 77;
			CHECK(fi_control(&set->fid, FI_GETWAIT, &list) == 0 && list.nfds == 1 && fds[0].fd >= 0);
			index = list.change_index;
			CHECK(index != 77);
			/* Without room, only the change index is reported. */
			list.nfds = 0;
			list.change_index = 77;
			CHECK(fi_control(&set->fid, FI_GETWAIT, &list) == -FI_ETOOSMALL && list.nfds == 1);
			CHECK(list.change_index == index);
		}
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 12))
		if (kinds[i].kind == FI_WAIT_UNSPEC)
			CHECK(fi_control(&set->fid, FI_GETWAITOBJ, &kind) == 0 && kind == FI_WAIT_FD);
#endif
		CHECK(fi_close(&set->fid) == 0);
	}
	close_side(&s);
}

CASE(poll_set_rules)
{
	struct fi_poll_attr attr = { 0 }, bad = { .flags = 1 };
	struct fid_poll *set;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_poll_open(s.domain, &bad, &set) == -FI_EINVAL);
	if (fi_poll_open(s.domain, &attr, &set) == -FI_ENOSYS)
		SKIP("no poll sets");
	CHECK(fi_poll_add(set, &s.cq->fid, 1) == -FI_EINVAL);
	CHECK(fi_poll_add(set, &s.domain->fid, 0) == -FI_EINVAL);
	CHECK(fi_poll_add(set, &s.cq->fid, 0) == 0);
	CHECK(fi_close(&s.cq->fid) == -FI_EBUSY);
	CHECK(fi_poll_del(set, &s.cq->fid, 1) == -FI_EINVAL);
	CHECK(fi_poll_del(set, &s.domain->fid, 0) == -FI_EINVAL);
	CHECK(fi_poll_del(set, &s.cq->fid, 0) == 0);
	CHECK(fi_close(&set->fid) == 0);
	close_side(&s);
}

CASE(poll_set_reports_members)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct want w = RDM;
	struct fid_poll *set;
	struct pair p;
	void *ready[2] = { NULL, NULL };
	double end = seconds() + 10;
	char in[8];
	int ret;

	open_side(&p.a, &w);
	open_domain(&p.b, &w);
	CHECK(fi_close(&p.b.cq->fid) == 0);
	CHECK(fi_cq_open(p.b.domain, &attr, &p.b.cq, &contexts[9]) == 0);
	if (fi_poll_open(p.b.domain, &(struct fi_poll_attr) { 0 }, &set) == -FI_ENOSYS)
		SKIP("no poll sets");
	open_ep(&p.b, p.b.info);
	p.to_b = insert(&p.a, p.b.name);
	CHECK(fi_poll_add(set, &p.b.cq->fid, 0) == 0);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	while ((ret = fi_poll(set, ready, 2)) == 0 && seconds() < end)
		fi_cq_read(p.a.cq, NULL, 0);
	CHECK(ret == 1 && ready[0] == &contexts[9]);
	done(&p.b, &p.a, &contexts[0]);
	CHECK(fi_poll_del(set, &p.b.cq->fid, 0) == 0);
	CHECK(fi_close(&set->fid) == 0);
	part(&p);
}

CASE_OURS(poll_set_reports_every_ready_member)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_poll *set;
	struct fid_cq *sent;
	struct pair p;
	void *ready[2] = { NULL, NULL };
	double end = seconds() + 10;
	char in[8];
	int ret;

	open_side(&p.a, &RDM);
	open_domain(&p.b, &RDM);
	CHECK(fi_close(&p.b.cq->fid) == 0);
	CHECK(fi_cq_open(p.b.domain, &attr, &p.b.cq, &contexts[8]) == 0);
	CHECK(fi_cq_open(p.b.domain, &attr, &sent, &contexts[9]) == 0);
	CHECK(fi_endpoint(p.b.domain, p.b.info, &p.b.ep, NULL) == 0);
	CHECK(fi_ep_bind(p.b.ep, &p.b.cq->fid, FI_RECV) == 0);
	CHECK(fi_ep_bind(p.b.ep, &sent->fid, FI_TRANSMIT) == 0);
	CHECK(fi_ep_bind(p.b.ep, &p.b.av->fid, 0) == 0 && fi_enable(p.b.ep) == 0);
	p.b.len = sizeof(p.b.name);
	CHECK(fi_getname(&p.b.ep->fid, p.b.name, &p.b.len) == 0);
	p.to_b = insert(&p.a, p.b.name);
	p.to_a = insert(&p.b, p.a.name);
	CHECK(fi_poll_open(p.b.domain, NULL, &set) == 0);
	CHECK(fi_poll_add(set, &p.b.cq->fid, 0) == 0 && fi_poll_add(set, &sent->fid, 0) == 0);
	CHECK(fi_poll(set, ready, 2) == 0);
	/* One has an entry, the other an error. */
	POST(fi_recv(p.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.b.ep, "y", 1, NULL, p.to_a, &contexts[1]));
	done(&p.a, &p.b, &contexts[0]);
	POST(fi_recv(p.b.ep, in, 1, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_send(p.a.ep, "long", 4, NULL, p.to_b, &contexts[3]));
	while ((ret = fi_poll(set, ready, 2)) < 2 && seconds() < end)
		fi_cq_read(p.a.cq, NULL, 0);
	CHECK(ret == 2 && ready[0] != ready[1]);
	CHECK(ready[0] == &contexts[8] || ready[0] == &contexts[9]);
	CHECK(ready[1] == &contexts[8] || ready[1] == &contexts[9]);
	/* fi_poll reports no more than fit. */
	ready[1] = NULL;
	CHECK(fi_poll(set, ready, 1) == 1 && ready[1] == NULL);
	failed(&p.b, &p.a, FI_ETRUNC);
	CHECK(fi_poll(set, ready, 2) == 1 && ready[0] == &contexts[9]);
	CHECK(fi_close(&set->fid) == 0);
	CHECK(fi_close(&p.b.ep->fid) == 0 && fi_close(&sent->fid) == 0);
	p.b.ep = NULL;
	part(&p);
}

CASE_OURS(poll_set_of_counters)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_poll *set;
	struct fid_cntr *cntr;
	struct side s;
	void *ready[1];

	open_domain(&s, &RDM);
	CHECK(fi_poll_open(s.domain, &(struct fi_poll_attr) { 0 }, &set) == 0);
	CHECK(fi_cntr_open(s.domain, &attr, &cntr, &contexts[3]) == 0);
	CHECK(fi_poll_add(set, &cntr->fid, 0) == 0);
	CHECK(fi_poll(set, ready, 1) == 0);
	CHECK(fi_cntr_add(cntr, 2) == 0);
	CHECK(fi_poll(set, ready, 1) == 1 && ready[0] == &contexts[3]);
	CHECK(fi_poll(set, ready, 1) == 0);
	CHECK(fi_close(&cntr->fid) == -FI_EBUSY);
	CHECK(fi_poll_del(set, &cntr->fid, 0) == 0 && fi_poll_del(set, &cntr->fid, 0) == -FI_EINVAL);
	CHECK(fi_close(&cntr->fid) == 0 && fi_close(&set->fid) == 0);
	close_side(&s);
}
