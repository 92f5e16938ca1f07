/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A process forks while another of its threads sends and receives. In each child, all inherited
 * objects are dead but can be closed, and new ones work; the parent is unaffected.
 *   forks manual|auto    the progress of the parent's domains
 *   forks exec           an executed program inherits no descriptor of the library
 *   forks outlive        children that outlive their parents and their parents' peers
 *   forks atomics        a process with a thread in atomic operations that take a lock
 *   forks first          a process with a thread in calls that need no object, before and after
 *                        its first fabric
 */
#define _GNU_SOURCE
#include <complex.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "side.h"

enum { ROUNDS = 20, WINDOW = 16 };

static enum fi_progress progress;

/* The parent's objects besides the two communicating endpoints. */
static struct {
	struct fid_ep *alias, *unused;
	struct fid_cntr *cntr;
	struct fid_poll *poll;
	struct fid_wait *wait;
	struct fid_cq *in_set, *monitored;
	struct fid_pep *pep;
	struct fid_ep *connected[2];
	/* A scalable endpoint with contexts, and shared contexts. */
	struct fid_ep *scalable, *tx, *rx, *srx;
	struct fid_stx *stx;
	struct fi_info *request;	/* of a connection that is never accepted */
} extra;
static struct side a, b;
static struct fi_info *msg_info;
static fi_addr_t to_b;

static void open_pair(struct side *one, struct side *other, fi_addr_t *to_other)
{
	struct side *sides[] = { one, other };
	int i;

	for (i = 0; i < 2; i++) {
		struct fi_info *info = find(FI_EP_RDM);

		info->domain_attr->data_progress = info->domain_attr->control_progress = progress;
		open_domain(sides[i], info, FI_WAIT_FD);
		open_ep(sides[i], info, 0);
	}
	*to_other = insert(one, other->name);
}

/* Sends and receives numbered messages; each arrives once, in order. */
static atomic_int stop;
static atomic_ulong sent, received;

static void *talk(void *arg)
{
	static unsigned long out[WINDOW], in[WINDOW];
	struct fi_cq_tagged_entry entry;
	unsigned long posted = 0, expected = 0, done_sending = 0, next = 0;
	size_t one = 1;
	ssize_t ret;
	int i;

	(void) arg;
	for (i = 0; i < WINDOW; i++)
		CHECK(fi_recv(b.ep, &in[i], 8, NULL, FI_ADDR_UNSPEC, &in[i]) == 0);
	while (!atomic_load(&stop) || expected < posted || done_sending < posted) {
		if (!atomic_load(&stop) && posted - done_sending < WINDOW) {
			out[posted % WINDOW] = posted;
			ret = fi_send(a.ep, &out[posted % WINDOW], 8, NULL, to_b, &out[posted % WINDOW]);
			CHECK(ret == 0 || ret == -FI_EAGAIN);
			posted += !ret;
		}
		ret = fi_cq_read(a.cq, &entry, 1);
		CHECK(ret == 1 || ret == -FI_EAGAIN);
		done_sending += ret == 1;
		/* Mostly poll, sometimes sleep briefly. */
		ret = ++next % 64 ? fi_cq_read(b.cq, &entry, 1) : fi_cq_sread(b.cq, &entry, 1, &one, 1);
		CHECK(ret == 1 || ret == -FI_EAGAIN);
		if (ret == 1) {
			unsigned long *place = entry.op_context;

			CHECK(entry.len == 8 && *place == expected);
			expected++;
			CHECK(fi_recv(b.ep, place, 8, NULL, FI_ADDR_UNSPEC, place) == 0);
		}
		atomic_store(&sent, posted);
		atomic_store(&received, expected);
	}
	return NULL;
}

static void wait_for_event(struct fid_eq *eq, struct fid_eq *other, uint32_t wanted, struct fi_eq_cm_entry *entry)
{
	uint32_t number;

	while (fi_eq_read(eq, &number, entry, sizeof(*entry), 0) <= 0)
		fi_eq_read(other, &number, NULL, 0, FI_PEEK);
	CHECK(number == wanted);
}

static struct fid_ep *open_msg(struct fi_info *info, struct side *s)
{
	struct fid_ep *ep;

	CHECK(fi_endpoint(s->domain, info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(ep, &s->eq->fid, 0) == 0);
	CHECK(fi_enable(ep) == 0);
	return ep;
}

/* A connection of two endpoints and a pending request, with their own queues. */
static struct side m;
static struct fid_eq *asker_eq;
static struct fid_ep *waiting;

static void open_connection(void)
{
	struct fi_eq_cm_entry entry;
	struct fid_eq *own;
	char name[64];
	size_t len = sizeof(name);

	msg_info = find(FI_EP_MSG);
	msg_info->domain_attr->data_progress = msg_info->domain_attr->control_progress = progress;
	open_domain(&m, msg_info, FI_WAIT_UNSPEC);
	CHECK(fi_eq_open(m.fabric, NULL, &asker_eq, NULL) == 0);
	CHECK(fi_passive_ep(m.fabric, msg_info, &extra.pep, NULL) == 0);
	CHECK(fi_pep_bind(extra.pep, &m.eq->fid, 0) == 0 && fi_listen(extra.pep) == 0);
	CHECK(fi_getname(&extra.pep->fid, name, &len) == 0);
	own = m.eq;
	m.eq = asker_eq;
	extra.connected[0] = open_msg(msg_info, &m);
	waiting = open_msg(msg_info, &m);
	m.eq = own;
	CHECK(fi_connect(extra.connected[0], name, NULL, 0) == 0);
	wait_for_event(m.eq, asker_eq, FI_CONNREQ, &entry);
	extra.connected[1] = open_msg(entry.info, &m);
	fi_freeinfo(entry.info);
	CHECK(fi_accept(extra.connected[1], NULL, 0) == 0);
	wait_for_event(m.eq, asker_eq, FI_CONNECTED, &entry);
	wait_for_event(asker_eq, m.eq, FI_CONNECTED, &entry);
	CHECK(fi_connect(waiting, name, NULL, 0) == 0);
	wait_for_event(m.eq, asker_eq, FI_CONNREQ, &entry);
	extra.request = entry.info;
}

static void open_contexts(void)
{
	struct fi_info *info = fi_dupinfo(a.info);

	info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 2;
	CHECK(fi_scalable_ep(a.domain, info, &extra.scalable, NULL) == 0);
	CHECK(fi_scalable_ep_bind(extra.scalable, &a.av->fid, 0) == 0);
	CHECK(fi_tx_context(extra.scalable, 1, NULL, &extra.tx, NULL) == 0);
	CHECK(fi_rx_context(extra.scalable, 1, NULL, &extra.rx, NULL) == 0);
	CHECK(fi_ep_bind(extra.tx, &extra.in_set->fid, FI_TRANSMIT) == 0 && fi_enable(extra.tx) == 0);
	CHECK(fi_ep_bind(extra.rx, &extra.in_set->fid, FI_RECV) == 0 && fi_enable(extra.rx) == 0);
	CHECK(fi_stx_context(a.domain, NULL, &extra.stx, NULL) == 0 && fi_srx_context(a.domain, NULL, &extra.srx, NULL) == 0);
	fi_freeinfo(info);
}

static void open_extra(void)
{
	struct fi_cq_attr in_set = { .wait_obj = FI_WAIT_SET }, monitored = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_wait_attr wait = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_cntr_attr cntr = { .wait_obj = FI_WAIT_UNSPEC };

	CHECK(fi_ep_alias(a.ep, &extra.alias, FI_TRANSMIT) == 0);
	CHECK(fi_endpoint(a.domain, a.info, &extra.unused, NULL) == 0);
	CHECK(fi_cntr_open(a.domain, &cntr, &extra.cntr, NULL) == 0);
	CHECK(fi_wait_open(a.fabric, &wait, &extra.wait) == 0);
	in_set.wait_set = extra.wait;
	CHECK(fi_cq_open(a.domain, &in_set, &extra.in_set, NULL) == 0);
	CHECK(fi_cq_open(a.domain, &monitored, &extra.monitored, NULL) == 0);
	CHECK(fi_poll_open(a.domain, NULL, &extra.poll) == 0);
	CHECK(fi_poll_add(extra.poll, &extra.cntr->fid, 0) == 0);
	CHECK(fi_cntr_add(extra.cntr, 3) == 0 && fi_cntr_adderr(extra.cntr, 1) == 0);
	open_connection();
	open_contexts();
}

static void close_extra(void)
{
	CHECK(fi_close(&extra.stx->fid) == 0 && fi_close(&extra.srx->fid) == 0);
	CHECK(fi_close(&extra.tx->fid) == 0 && fi_close(&extra.rx->fid) == 0);
	CHECK(fi_close(&extra.scalable->fid) == 0);
	CHECK(fi_reject(extra.pep, extra.request->handle, NULL, 0) == 0);
	fi_freeinfo(extra.request);
	CHECK(fi_close(&waiting->fid) == 0);
	CHECK(fi_close(&extra.connected[0]->fid) == 0 && fi_close(&extra.connected[1]->fid) == 0);
	CHECK(fi_close(&extra.pep->fid) == 0 && fi_close(&asker_eq->fid) == 0);
	close_side(&m);
	CHECK(fi_cntr_read(extra.cntr) == 3 && fi_cntr_readerr(extra.cntr) == 1);
	CHECK(fi_close(&extra.poll->fid) == 0 && fi_close(&extra.in_set->fid) == 0);
	CHECK(fi_close(&extra.monitored->fid) == 0);
	CHECK(fi_close(&extra.wait->fid) == 0 && fi_close(&extra.cntr->fid) == 0);
	CHECK(fi_close(&extra.unused->fid) == 0 && fi_close(&extra.alias->fid) == 0);
}

#define DEAD(call)	CHECK((call) == -FI_EOPBADSTATE)

/* Every call on every kind of object fails immediately, whichever locks were held at the fork. */
static void use_what_was_inherited(void)
{
	struct iovec iov = { NULL, 0 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1 };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1 };
	struct fi_cq_err_entry error = { 0 };
	struct fi_eq_err_entry eq_error = { 0 };
	struct fi_cq_attr cq_attr = { 0 };
	struct fi_av_attr av_attr = { 0 };
	struct fi_eq_attr eq_attr = { 0 };
	struct fi_wait_attr wait_attr = { 0 };
	struct fid *fids[] = { &a.cq->fid };
	struct fid_ep *eps[] = { a.ep, extra.alias, extra.unused, extra.connected[0], extra.connected[1], waiting,
		extra.tx, extra.rx };
	char buf[64];
	size_t len = sizeof(buf), i;
	fi_addr_t addr;
	uint32_t number;
	uint64_t flags = FI_TRANSMIT;
	void *out;
	int fd;

	for (i = 0; i < sizeof(eps) / sizeof(*eps); i++) {
		struct fid_ep *ep = eps[i];

		DEAD(fi_send(ep, buf, 8, NULL, to_b, NULL));
		DEAD(fi_sendv(ep, &iov, NULL, 1, to_b, NULL));
		DEAD(fi_sendmsg(ep, &msg, 0));
		DEAD(fi_inject(ep, buf, 8, to_b));
		DEAD(fi_senddata(ep, buf, 8, NULL, 1, to_b, NULL));
		DEAD(fi_injectdata(ep, buf, 8, 1, to_b));
		DEAD(fi_recv(ep, buf, 8, NULL, to_b, NULL));
		DEAD(fi_recvv(ep, &iov, NULL, 1, to_b, NULL));
		DEAD(fi_recvmsg(ep, &msg, 0));
		DEAD(fi_tsend(ep, buf, 8, NULL, to_b, 1, NULL));
		DEAD(fi_tsendv(ep, &iov, NULL, 1, to_b, 1, NULL));
		DEAD(fi_tsendmsg(ep, &tagged, 0));
		DEAD(fi_tinject(ep, buf, 8, to_b, 1));
		DEAD(fi_tsenddata(ep, buf, 8, NULL, 1, to_b, 1, NULL));
		DEAD(fi_tinjectdata(ep, buf, 8, 1, to_b, 1));
		DEAD(fi_trecv(ep, buf, 8, NULL, to_b, 1, 0, NULL));
		DEAD(fi_trecvv(ep, &iov, NULL, 1, to_b, 1, 0, NULL));
		DEAD(fi_trecvmsg(ep, &tagged, 0));
		DEAD(fi_write(ep, buf, 8, NULL, to_b, 0, 0, NULL));
		DEAD(fi_barrier(ep, 0, NULL));
		DEAD(fi_cancel(&ep->fid, NULL));
		DEAD(fi_enable(ep));
		DEAD(fi_ep_bind(ep, &a.cq->fid, FI_SEND));
		DEAD(fi_control(&ep->fid, FI_GETOPSFLAG, &flags));
		DEAD(fi_getname(&ep->fid, buf, &len));
		DEAD(fi_setname(&ep->fid, buf, len));
		DEAD(fi_getpeer(ep, buf, &len));
		DEAD(fi_connect(ep, buf, NULL, 0));
		DEAD(fi_accept(ep, NULL, 0));
		DEAD(fi_shutdown(ep, 0));
		DEAD(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, buf, &len));
	}
	DEAD(fi_tx_context(extra.scalable, 0, NULL, (struct fid_ep **) &out, NULL));
	DEAD(fi_rx_context(extra.scalable, 0, NULL, (struct fid_ep **) &out, NULL));
	DEAD(fi_scalable_ep_bind(extra.scalable, &a.av->fid, 0));
	DEAD(fi_getname(&extra.scalable->fid, buf, &len));
	DEAD(fi_recv(extra.srx, buf, 8, NULL, to_b, NULL));
	DEAD(fi_trecv(extra.srx, buf, 8, NULL, to_b, 1, 0, NULL));
	DEAD(fi_scalable_ep(a.domain, a.info, (struct fid_ep **) &out, NULL));
	DEAD(fi_stx_context(a.domain, NULL, (struct fid_stx **) &out, NULL));
	DEAD(fi_srx_context(a.domain, NULL, (struct fid_ep **) &out, NULL));
	DEAD(fi_cq_read(a.cq, buf, 1));
	DEAD(fi_cq_readfrom(a.cq, buf, 1, &addr));
	DEAD(fi_cq_readerr(a.cq, &error, 0));
	DEAD(fi_cq_sread(a.cq, buf, 1, NULL, 10000));
	DEAD(fi_cq_sread(b.cq, buf, 1, NULL, -1));
	DEAD(fi_cq_signal(a.cq));
	DEAD(fi_control(&a.cq->fid, FI_GETWAIT, &fd));
	CHECK(strstr(fi_cq_strerror(a.cq, 1, NULL, buf, sizeof(buf)), "across fork") && strlen(buf) > 5);
	DEAD(fi_eq_read(a.eq, &number, buf, sizeof(buf), 0));
	DEAD(fi_eq_readerr(a.eq, &eq_error, 0));
	DEAD(fi_eq_sread(a.eq, &number, buf, sizeof(buf), -1, 0));
	DEAD(fi_eq_write(a.eq, 1, buf, 8, 0));
	CHECK(strstr(fi_eq_strerror(a.eq, 1, NULL, buf, sizeof(buf)), "across fork"));
	DEAD(fi_av_insert(a.av, b.name, 1, &addr, 0, NULL));
	DEAD(fi_av_insertsvc(a.av, "127.0.0.1", "7", &addr, 0, NULL));
	DEAD(fi_av_remove(a.av, &to_b, 1, 0));
	DEAD(fi_av_lookup(a.av, to_b, buf, &len));
	len = sizeof(buf);
	CHECK(fi_av_straddr(a.av, b.name, buf, &len) == buf && !*buf);
	CHECK(fi_cntr_read(extra.cntr) == 0 && fi_cntr_readerr(extra.cntr) == 0);
	DEAD(fi_cntr_add(extra.cntr, 1));
	DEAD(fi_cntr_set(extra.cntr, 1));
	DEAD(fi_cntr_wait(extra.cntr, 100, -1));
	DEAD(fi_poll(extra.poll, &out, 1));
	DEAD(fi_poll_add(extra.poll, &a.cq->fid, 0));
	DEAD(fi_wait(extra.wait, -1));
	DEAD(fi_trywait(a.fabric, fids, 1));
	DEAD(fi_listen(extra.pep));
	DEAD(fi_reject(extra.pep, extra.request->handle, NULL, 0));
	DEAD(fi_getname(&extra.pep->fid, buf, &len));
	DEAD(fi_domain(a.fabric, a.info, (struct fid_domain **) &out, NULL));
	DEAD(fi_passive_ep(a.fabric, a.info, (struct fid_pep **) &out, NULL));
	DEAD(fi_eq_open(a.fabric, &eq_attr, (struct fid_eq **) &out, NULL));
	DEAD(fi_wait_open(a.fabric, &wait_attr, (struct fid_wait **) &out));
	DEAD(fi_endpoint(a.domain, a.info, (struct fid_ep **) &out, NULL));
	DEAD(fi_cq_open(a.domain, &cq_attr, (struct fid_cq **) &out, NULL));
	DEAD(fi_av_open(a.domain, &av_attr, (struct fid_av **) &out, NULL));
	DEAD(fi_cntr_open(a.domain, NULL, (struct fid_cntr **) &out, NULL));
	DEAD(fi_mr_reg(a.domain, buf, 8, FI_SEND, 0, 0, 0, (struct fid_mr **) &out, NULL));
}

/* In the usual order, each once. */
static void close_what_was_inherited(void)
{
	struct fid *fids[] = { &extra.stx->fid, &extra.srx->fid, &extra.tx->fid, &extra.rx->fid, &extra.scalable->fid,
		extra.request->handle, &waiting->fid, &extra.connected[0]->fid, &extra.connected[1]->fid,
		&extra.pep->fid, &asker_eq->fid, &m.av->fid, &m.cq->fid, &m.eq->fid, &m.domain->fid, &m.fabric->fid,
		&extra.poll->fid, &extra.in_set->fid, &extra.monitored->fid, &extra.wait->fid, &extra.cntr->fid,
		&extra.unused->fid, &extra.alias->fid, &a.ep->fid, &a.av->fid, &a.cq->fid, &a.eq->fid, &a.domain->fid, &a.fabric->fid,
		&b.ep->fid, &b.av->fid, &b.cq->fid, &b.eq->fid, &b.domain->fid, &b.fabric->fid };
	size_t i;

	for (i = 0; i < sizeof(fids) / sizeof(*fids); i++)
		CHECK(fi_close(fids[i]) == 0);
}

/* New endpoints, with or without the inherited ones still open. */
static void talk_anew(int with_the_old)
{
	struct fi_info *info = find(FI_EP_RDM), *i;
	struct fid *fids[1];
	struct side one, other;
	fi_addr_t to_other;
	char in[8];
	int round, ctx[2];

	/* Infos refer to no object of another process. */
	for (i = info; i; i = i->next)
		CHECK(!i->fabric_attr->fabric && !i->domain_attr->domain);
	fi_freeinfo(info);
	open_pair(&one, &other, &to_other);
	/* Inherited and new objects cannot be combined. */
	if (with_the_old) {
		fids[0] = &a.cq->fid;
		DEAD(fi_trywait(one.fabric, fids, 1));
		DEAD(fi_ep_bind(one.ep, &a.av->fid, 0));
	}
	for (round = 0; round < 100; round++) {
		CHECK(fi_recv(other.ep, in, 8, NULL, FI_ADDR_UNSPEC, &ctx[0]) == 0);
		while (fi_send(one.ep, "abcdefg", 8, NULL, to_other, &ctx[1]) == -FI_EAGAIN)
			fi_cq_read(one.cq, NULL, 0);
		done(&one, &other, &ctx[1], FI_SEND | FI_MSG);
		done(&other, &one, &ctx[0], FI_RECV | FI_MSG);
		CHECK(!strcmp(in, "abcdefg"));
	}
	close_side(&one);
	close_side(&other);
}

static void await(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	if (status)
		fprintf(stderr, "the child ended with %#x\n", status);
	CHECK(status == 0);
}

static void life(int round)
{
	double start = seconds();

	alarm(40);
	use_what_was_inherited();
	CHECK(seconds() - start < 5);
	talk_anew(1);
	if (round % 5 == 0) {
		/* A child's objects are dead in its own children. */
		struct side one, other;
		fi_addr_t to_other;
		pid_t grandchild;

		open_pair(&one, &other, &to_other);
		grandchild = fork();
		if (!grandchild) {
			alarm(40);
			DEAD(fi_send(one.ep, "x", 1, NULL, to_other, NULL));
			use_what_was_inherited();
			CHECK(fi_close(&one.ep->fid) == 0);
			talk_anew(1);
			close_what_was_inherited();
			exit(0);
		}
		await(grandchild);
		close_side(&one);
		close_side(&other);
	}
	close_what_was_inherited();
	talk_anew(0);
	exit(0);
}

/* Number of descriptors besides the standard three. */
static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int count = 0;

	CHECK(dir);
	while ((entry = readdir(dir)))
		count += *entry->d_name != '.' && atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(dir);
	closedir(dir);
	return count;
}

static void execute(void)
{
	pid_t child;
	int fd;

	/* Descriptors from this program's start are not the library's. */
	for (fd = 3; fd < 1024; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	open_pair(&a, &b, &to_b);
	open_extra();
	CHECK(descriptors() > 10);
	child = fork();
	if (!child) {
		execl("/proc/self/exe", "forks", "executed", NULL);
		exit(2);
	}
	await(child);
	close_extra();
	close_side(&a);
	close_side(&b);
}

static void put(int fd, const void *data, size_t len)
{
	CHECK(write(fd, data, len) == (ssize_t) len);
}

static void get(int fd, void *data, size_t len)
{
	CHECK(read(fd, data, len) == (ssize_t) len);
}

/* A child that only stays alive. */
static pid_t live_on(int said)
{
	pid_t child = fork();

	if (!child) {
		alarm(60);
		put(said, "c", 1);
		while (1)
			pause();
	}
	return child;
}

/*
 * Forked children keep nothing of their parents alive: neither dead parents' links nor ended ones.
 */
static void outlive(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct rusage before, after;
	int to_peer[2], from_peer[2], alive[2];
	char name[64] = "", in[8], said[2];
	struct side s;
	fi_addr_t addr;
	double used;
	pid_t peer, theirs, ours;
	int ctx;

	CHECK(pipe(to_peer) == 0 && pipe(from_peer) == 0 && pipe(alive) == 0);
	peer = fork();
	if (!peer) {
		alarm(60);
		open_rdm(&s, FI_WAIT_FD);
		put(from_peer[1], s.name, sizeof(s.name));
		get(to_peer[0], name, sizeof(name));
		addr = insert(&s, name);
		while (fi_send(s.ep, "hello", 6, NULL, addr, &ctx) == -FI_EAGAIN)
			fi_cq_read(s.cq, NULL, 0);
		done(&s, NULL, &ctx, FI_SEND | FI_MSG);
		/* The message has arrived before this process is killed. */
		get(to_peer[0], said, 1);
		theirs = live_on(alive[1]);
		put(from_peer[1], &theirs, sizeof(theirs));
		while (1)
			pause();
	}
	open_rdm(&s, FI_WAIT_FD);
	put(to_peer[1], s.name, sizeof(s.name));
	get(from_peer[0], name, sizeof(name));
	addr = insert(&s, name);
	CHECK(fi_recv(s.ep, in, 8, NULL, addr, &ctx) == 0);
	done(&s, NULL, &ctx, FI_RECV | FI_MSG);
	CHECK(fi_recv(s.ep, in, 8, NULL, addr, &ctx) == 0);
	put(to_peer[1], "x", 1);
	get(from_peer[0], &theirs, sizeof(theirs));
	ours = live_on(alive[1]);
	get(alive[0], &said[0], 1);
	get(alive[0], &said[1], 1);
	CHECK(kill(peer, SIGKILL) == 0 && waitpid(peer, NULL, 0) == peer);
	CHECK(kill(theirs, 0) == 0);
	CHECK(next_of(&s, NULL, &entry, &err) == 0 && err.op_context == &ctx);
	/* An ended link must not keep waking the reader. */
	fi_cq_sread(s.cq, &entry, 1, NULL, 100);
	CHECK(getrusage(RUSAGE_SELF, &before) == 0);
	CHECK(fi_cq_sread(s.cq, &entry, 1, NULL, 500) == -FI_EAGAIN);
	CHECK(getrusage(RUSAGE_SELF, &after) == 0);
	used = (double) (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
		(double) (after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec) /
		1e6;
	if (used > 0.2)
		fprintf(stderr, "it slept for half a second and used %f s\n", used);
	CHECK(used <= 0.2);
	CHECK(kill(theirs, SIGKILL) == 0 && kill(ours, SIGKILL) == 0 && waitpid(ours, NULL, 0) == ours);
	close_side(&s);
}

/* Calls that may be a program's first; the last two open and close the first object. */
static void call_once(int with_fabric)
{
	struct fid_fabric *fabric;
	struct fi_param *params;
	struct fi_info *info;
	int count;

	CHECK(fi_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, NULL, &info) == 0);
	CHECK(fi_tostr(info, FI_TYPE_INFO));
	CHECK(fi_getparams(&params, &count) == 0);
	fi_freeparams(params);
	CHECK(fi_strerror(FI_ENOCQ));
	if (with_fabric) {
		CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
		CHECK(fi_close(&fabric->fid) == 0);
	}
	fi_freeinfo(info);
}

static atomic_int with_fabric;

static void *call_on(void *arg)
{
	(void) arg;
	while (!atomic_load(&stop)) {
		call_once(atomic_load(&with_fabric));
		atomic_fetch_add(&sent, 1);
	}
	return NULL;
}

static void first_calls(void)
{
	pthread_t thread;
	int round;

	CHECK(pthread_create(&thread, NULL, call_on, NULL) == 0);
	while (!atomic_load(&sent))
		sched_yield();
	for (round = 0; round < 200; round++) {
		pid_t child = fork();

		if (!child) {
			alarm(20);
			call_once(1);
			exit(0);
		}
		await(child);
		if (round == 100)
			atomic_store(&with_fabric, 1);
	}
	atomic_store(&stop, 1);
	CHECK(pthread_join(thread, NULL) == 0);
}

/* Elements of 32 bytes: the processor does not update them without a lock. */
enum { ELEMENTS = 128 };
static long double complex place[ELEMENTS], one[ELEMENTS];

/* An endpoint that accesses its own memory. */
struct self {
	struct side s;
	struct fid_mr *mr;
	fi_addr_t addr;
};

static void open_self(struct self *self)
{
	open_rdm(&self->s, FI_WAIT_FD);
	self->addr = insert(&self->s, self->s.name);
	CHECK(fi_mr_reg(self->s.domain, place, sizeof(place), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &self->mr, NULL) == 0);
}

static void add_ones(struct self *self)
{
	static int context;

	while (fi_atomic(self->s.ep, one, ELEMENTS, NULL, self->addr, 0, 1, FI_LONG_DOUBLE_COMPLEX, FI_SUM, &context) == -FI_EAGAIN)
		fi_cq_read(self->s.cq, NULL, 0);
	done(&self->s, NULL, &context, FI_ATOMIC | FI_WRITE);
}

static void close_self(struct self *self)
{
	CHECK(fi_close(&self->mr->fid) == 0);
	close_side(&self->s);
}

static void *add_on(void *arg)
{
	while (!atomic_load(&stop)) {
		add_ones(arg);
		atomic_fetch_add(&sent, 1);
	}
	return NULL;
}

static void atomics(void)
{
	struct self self;
	pthread_t thread;
	int round;

	more_caps = FI_RMA | FI_ATOMIC;
	for (round = 0; round < ELEMENTS; round++)
		one[round] = 1;
	open_self(&self);
	CHECK(pthread_create(&thread, NULL, add_on, &self) == 0);
	for (round = 0; round < 200; round++) {
		unsigned long before = atomic_load(&sent);
		pid_t child;

		while (atomic_load(&sent) < before + 5)
			sched_yield();
		child = fork();
		if (!child) {
			struct self mine;
			long double complex value;

			/* A lock that was inherited while it was held is never released. */
			alarm(20);
			open_self(&mine);
			value = place[0];
			add_ones(&mine);
			CHECK(place[0] == value + 1);
			close_self(&mine);
			exit(0);
		}
		await(child);
	}
	atomic_store(&stop, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(place[0] == (long double complex) atomic_load(&sent) && place[ELEMENTS - 1] == place[0]);
	close_self(&self);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "manual";
	unsigned long before;
	pthread_t thread;
	int round;

	if (!strcmp(how, "executed"))
		return descriptors() != 0;
	progress = strcmp(how, "auto") ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO;
	if (!strcmp(how, "exec")) {
		execute();
		return 0;
	}
	if (!strcmp(how, "outlive")) {
		outlive();
		return 0;
	}
	if (!strcmp(how, "atomics")) {
		atomics();
		return 0;
	}
	if (!strcmp(how, "first")) {
		first_calls();
		return 0;
	}
	open_pair(&a, &b, &to_b);
	open_extra();
	CHECK(pthread_create(&thread, NULL, talk, NULL) == 0);
	for (round = 0; round < ROUNDS; round++) {
		pid_t child;

		before = atomic_load(&received);
		while (atomic_load(&received) < before + 100)
			sched_yield();
		child = fork();
		if (!child)
			life(round);
		/* The parent makes progress while the child lives. */
		before = atomic_load(&received);
		while (atomic_load(&received) < before + 100)
			sched_yield();
		/* A child that only executes a program does not use the library. */
		if (round == 3)
			CHECK(system("exit 0") == 0);
		await(child);
	}
	atomic_store(&stop, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(atomic_load(&sent) == atomic_load(&received));
	close_extra();
	close_side(&a);
	close_side(&b);
	return 0;
}
