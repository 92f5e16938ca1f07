/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Connections: connect, accept, shut down, names (fi_cm(3)). */
#include "door.h"
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

CASE(cm_connect_only_once)
{
	struct pair p;
	char name[64], in[8];
	size_t len = sizeof(name);

	meet(&p, &MSG);
	CHECK(fi_getpeer(p.a.ep, name, &len) == 0);
	CHECK(fi_connect(p.a.ep, name, NULL, 0) < 0);
	/* The connection still works. */
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, 0, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, 0, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE(cm_accept_and_reject)
{
	struct door d;
	struct side a, b;
	struct event event;
	uint32_t number;

	listen_at(&d);
	ask(&a, &d, "one", 3, &event);
	CHECK(fi_reject(d.pep, event.cm.info->handle, NULL, 0) == 0);
	fi_freeinfo(event.cm.info);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(a.eq, &(struct fi_eq_err_entry) { 0 }, 0) > 0);
	ask(&b, &d, "two", 3, &event);
	open_ep(&d.s, event.cm.info);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(d.s.ep, NULL, 0) == 0);
	CHECK(event_of(&b, &d.s, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	close_side(&a);
	close_side(&b);
	close_door(&d);
}

CASE(cm_user_data_limits)
{
	struct side a;
	size_t most = 0, len = sizeof(most);

	open_side(&a, &MSG);
	CHECK(fi_getopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &len) == 0);
	CHECK(most >= 56 && len == sizeof(most));
	close_side(&a);
}

CASE_OURS(cm_too_much_user_data)
{
	static char data[300], said[512];
	struct fi_eq_err_entry err = { .err_data = said, .err_data_size = sizeof(said) };
	struct event event;
	uint32_t number;
	struct door d;
	struct side a, b;
	size_t most = 0, len = sizeof(most);

	listen_at(&d);
	open_side(&a, &MSG);
	CHECK(fi_getopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &len) == 0 && most == 256);
	CHECK(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, sizeof(most)) < 0);
	memset(data, 'd', sizeof(data));
	CHECK(fi_connect(a.ep, d.name, data, 257) == -FI_EINVAL);
	CHECK(fi_connect(a.ep, d.name, data, 256) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) == 16 + 256 && number == FI_CONNREQ);
	CHECK(!memcmp(event.data, data, 256));
	/* Excess rejection data is cut off; an error never carries more than max_err_data. */
	CHECK(fi_reject(d.pep, event.cm.info->handle, data, 300) == 0);
	fi_freeinfo(event.cm.info);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(a.eq, &err, 0) > 0 && err.err_data_size == 256 && !memcmp(said, data, 256) && !said[256]);
	CHECK(err.err_data_size <= a.info->domain_attr->max_err_data);
	ask(&b, &d, "", 0, &event);
	open_ep(&d.s, event.cm.info);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(d.s.ep, data, 257) == -FI_EINVAL);
	close_side(&a);
	close_side(&b);
	close_door(&d);
}

CASE(cm_traffic_before_connected)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;
	char in[8];

	listen_at(&d);
	open_side(&a, &MSG);
	/* Receives may be posted at any time. */
	POST(fi_recv(a.ep, in, 8, NULL, 0, &contexts[0]));
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) >= 16 && number == FI_CONNREQ);
	open_ep(&d.s, event.cm.info);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(d.s.ep, NULL, 0) == 0);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	POST(fi_send(d.s.ep, "x", 1, NULL, 0, &contexts[1]));
	done(&a, &d.s, &contexts[0]);
	close_side(&a);
	close_door(&d);
}

CASE_OURS(cm_send_before_connected)
{
	struct side a;

	open_side(&a, &MSG);
	CHECK(fi_send(a.ep, "x", 1, NULL, 0, &contexts[1]) == -FI_EOPBADSTATE);
	CHECK(fi_inject(a.ep, "x", 1, 0) == -FI_EOPBADSTATE);
	close_side(&a);
}

/* Before 2.0: with automatic progress of control operations alone, a connect request leaves without another call. */
CASE_OURS(automatic_control_progress_connects)
{
	struct want w = { .type = FI_EP_MSG, .api = FI_VERSION(1, 9) };
	struct fi_info *hints = hints_for(&w), *info;
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_FD };
	struct fi_eq_cm_entry event;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct door d;
	uint32_t number;

	hints->domain_attr->control_progress = FI_PROGRESS_AUTO;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	CHECK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info) == 0);
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0 && fi_domain(fabric, info, &domain, NULL) == 0);
	CHECK(fi_eq_open(fabric, &eq_attr, &eq, NULL) == 0 && fi_cq_open(domain, &(struct fi_cq_attr) { 0 }, &cq, NULL) == 0);
	CHECK(fi_endpoint(domain, info, &ep, NULL) == 0 && fi_ep_bind(ep, &eq->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	listen_at(&d);
	CHECK(fi_connect(ep, d.name, NULL, 0) == 0);
	CHECK(fi_eq_sread(d.s.eq, &number, &event, sizeof(event), 10000, 0) >= 16 && number == FI_CONNREQ);
	CHECK(fi_reject(d.pep, event.info->handle, NULL, 0) == 0);
	fi_freeinfo(event.info);
	CHECK(fi_close(&ep->fid) == 0 && fi_close(&cq->fid) == 0 && fi_close(&eq->fid) == 0);
	CHECK(fi_close(&domain->fid) == 0 && fi_close(&fabric->fid) == 0);
	close_door(&d);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* The first side closes its endpoint or shuts it down; waits for the event that the second side gets. */
static void end_first(struct pair *p, int closing, struct event *event)
{
	uint32_t number;

	if (closing) {
		CHECK(fi_close(&p->a.ep->fid) == 0);
		p->a.ep = NULL;
	} else {
		CHECK(fi_shutdown(p->a.ep, 0) == 0);
	}
	CHECK(event_of(&p->b, &p->a, &number, event, sizeof(*event)) >= 16 && number == FI_SHUTDOWN);
}

CASE(cm_shutdown_seen_by_peer)
{
	struct pair p;
	struct event event;
	int closing;

	for (closing = 0; closing < 2; closing++) {
		meet(&p, &MSG);
		end_first(&p, closing, &event);
		CHECK(event.cm.fid == &p.b.ep->fid);
		part(&p);
	}
}

/* Both sides get the event if both shut down, whether at the same time or one after the other. */
CASE(cm_shutdown_seen_by_both)
{
	struct pair p;
	struct event event;
	uint32_t number;
	int later;

	for (later = 0; later < 2; later++) {
		meet(&p, &MSG);
		CHECK(fi_shutdown(p.a.ep, 0) == 0);
		if (later)
			CHECK(event_of(&p.b, &p.a, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
		CHECK(fi_shutdown(p.b.ep, 0) == 0);
		if (!later)
			CHECK(event_of(&p.b, &p.a, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
		CHECK(event.cm.fid == &p.b.ep->fid);
		CHECK(event_of(&p.a, &p.b, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
		CHECK(event.cm.fid == &p.a.ep->fid);
		part(&p);
	}
}

/* The next entry is a cancellation, already in the queue. */
static void cancelled(struct side *s, void *context)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = { 0 };

	CHECK(fi_cq_read(s->cq, &entry, 1) == -FI_EAVAIL);
	CHECK(fi_cq_readerr(s->cq, &err, 0) == 1 && err.err == FI_ECANCELED && err.op_context == context);
}

CASE_OURS(cm_shutdown_rules)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;
	char in[3][8];
	int i;

	meet(&p, &MSG);
	CHECK(fi_shutdown(p.a.ep, 1) == -FI_EINVAL);
	/* An unread entry in the queue. */
	POST(fi_recv(p.a.ep, in[0], 8, NULL, 0, &contexts[2]));
	POST(fi_send(p.b.ep, "x", 1, NULL, 0, &contexts[3]));
	done(&p.b, &p.a, &contexts[3]);
	while (fi_cq_read(p.a.cq, NULL, 0) == -FI_EAGAIN)
		fi_cq_read(p.b.cq, NULL, 0);
	for (i = 0; i < 2; i++)
		POST(fi_recv(p.a.ep, in[1 + i], 8, NULL, 0, &contexts[i]));
	CHECK(fi_shutdown(p.a.ep, 0) == 0);
	CHECK(fi_cq_read(p.a.cq, &entry, 1) == 1 && entry.op_context == &contexts[2]);
	/* The cancellations are in the queue when the call returns, and nothing follows. */
	for (i = 0; i < 2; i++)
		cancelled(&p.a, &contexts[i]);
	quiet(&p.a, &p.b);
	part(&p);
}

/* The same for sends that wait for the peer. */
CASE_OURS(cm_shutdown_cancels_before_it_returns)
{
	static char big[600000];
	struct iovec iov = { big, 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1 };
	struct pair p;
	int i;

	/*
	 * The first has sent its RTS and has no receive; the second waits for a match, the third
	 * for the arrival at the peer.
	 */
	meet(&p, &MSG);
	POST(fi_send(p.a.ep, big, sizeof(big), NULL, 0, &contexts[0]));
	msg.context = &contexts[1];
	POST(fi_sendmsg(p.a.ep, &msg, FI_MATCH_COMPLETE));
	quiet(&p.a, &p.b);
	msg.context = &contexts[2];
	POST(fi_sendmsg(p.a.ep, &msg, FI_TRANSMIT_COMPLETE));
	CHECK(fi_shutdown(p.a.ep, 0) == 0);
	for (i = 0; i < 3; i++)
		cancelled(&p.a, &contexts[i]);
	quiet(&p.a, &p.b);
	part(&p);
}

/* More than one read of a queue moves, whatever moves it. */
#define LEN	((size_t) 64 << 20)

static char *big, *in;

/* Sends a message in part. */
static void send_some(struct pair *p)
{
	double end;

	big = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	in = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(big != MAP_FAILED && in != MAP_FAILED);
	memset(big, 'b', LEN);
	POST(fi_recv(p->b.ep, in, LEN, NULL, 0, &contexts[1]));
	POST(fi_send(p->a.ep, big, LEN, NULL, 0, &contexts[0]));
	for (end = seconds() + 10; !in[0] && seconds() < end;) {
		fi_cq_read(p->a.cq, NULL, 0);
		fi_cq_read(p->b.cq, NULL, 0);
	}
	CHECK(in[0] == 'b' && in[LEN - 1] == 0);
}

/* A connection with a partly sent message. */
static void send_in_part(struct pair *p)
{
	meet(p, &MSG);
	send_some(p);
}

/* A partly sent message is cancelled at once, and its buffer is not read any more. */
CASE_OURS(cm_shutdown_with_bytes_in_flight)
{
	struct pair p;

	send_in_part(&p);
	CHECK(fi_shutdown(p.a.ep, 0) == 0);
	cancelled(&p.a, &contexts[0]);
	CHECK(munmap(big, LEN) == 0);
	CHECK(failed(&p.b, &p.a, FI_ECONNRESET).op_context == &contexts[1]);
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	part(&p);
}

/* A partly received message is cancelled at once, and its buffer is not written any more. */
CASE_OURS(cm_shutdown_while_receiving)
{
	struct pair p;

	send_in_part(&p);
	CHECK(fi_shutdown(p.b.ep, 0) == 0);
	cancelled(&p.b, &contexts[1]);
	CHECK(munmap(in, LEN) == 0);
	CHECK(failed(&p.a, &p.b, FI_ECONNRESET).op_context == &contexts[0]);
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	part(&p);
}

/* What had arrived before is kept, and both sides get the event. */
CASE_OURS(cm_shutdown_in_flight_ends_the_connection)
{
	struct event event;
	struct pair p;
	uint32_t number;
	int receiver;

	for (receiver = 0; receiver < 2; receiver++) {
		struct side *s, *other;
		struct fi_cq_tagged_entry entry;
		struct fi_cq_err_entry err;
		char small[8] = "";

		meet(&p, &MSG);
		POST(fi_recv(p.b.ep, small, sizeof(small), NULL, 0, &contexts[2]));
		POST(fi_inject(p.a.ep, "small", 6, 0));
		send_some(&p);
		s = receiver ? &p.b : &p.a;
		other = receiver ? &p.a : &p.b;
		CHECK(fi_shutdown(s->ep, 0) == 0);
		CHECK(event_of(s, NULL, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
		CHECK(event_of(other, s, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
		CHECK(event.cm.fid == &other->ep->fid);
		CHECK(next(&p.b, &p.a, &entry, &err, 10) == 1 && entry.op_context == &contexts[2]);
		CHECK(!strcmp(small, "small") && fi_send(s->ep, "x", 1, NULL, 0, NULL) == -FI_ENOTCONN);
		part(&p);
		CHECK(munmap(big, LEN) == 0 && munmap(in, LEN) == 0);
	}
}

CASE_OURS(msg_peer_death_disables)
{
	struct pair p;
	struct event event;
	uint32_t number;
	char in[8];

	meet(&p, &MSG);
	POST(fi_recv(p.a.ep, in, 8, NULL, 0, &contexts[0]));
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	CHECK(event_of(&p.a, &p.b, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
	/* Pending operations fail, and new ones are refused. */
	CHECK(failed(&p.a, &p.b, FI_ECONNRESET).op_context == &contexts[0]);
	CHECK(fi_send(p.a.ep, "x", 1, NULL, 0, &contexts[1]) == -FI_ENOTCONN);
	CHECK(fi_recv(p.a.ep, in, 8, NULL, 0, &contexts[0]) == -FI_ENOTCONN);
	/* It cannot be enabled again. */
	CHECK(fi_enable(p.a.ep) == -FI_EOPBADSTATE);
	part(&p);
}

/* What has arrived before the end of the connection can be received after it. */
CASE_OURS(msg_end_keeps_what_has_arrived)
{
	struct pair p;
	struct event event;
	char in[2][8] = { "", "" };
	int closing;

	for (closing = 0; closing < 2; closing++) {
		meet(&p, &MSG);
		POST(fi_send(p.a.ep, "one", 4, NULL, 0, &contexts[0]));
		POST(fi_send(p.a.ep, "two", 4, NULL, 0, &contexts[1]));
		POST(fi_send(p.a.ep, "three", 6, NULL, 0, &contexts[4]));
		done(&p.a, &p.b, &contexts[0]);
		done(&p.a, &p.b, &contexts[1]);
		done(&p.a, &p.b, &contexts[4]);
		end_first(&p, closing, &event);
		CHECK(fi_recv(p.b.ep, in[0], 8, NULL, 0, &contexts[2]) == 0);
		done(&p.b, &p.a, &contexts[2]);
		CHECK(fi_recv(p.b.ep, in[1], 8, NULL, 0, &contexts[3]) == 0);
		done(&p.b, &p.a, &contexts[3]);
		CHECK(!strcmp(in[0], "one") && !strcmp(in[1], "two"));
		/* Nothing is received after this side's own shutdown. */
		CHECK(fi_shutdown(p.b.ep, 0) == 0);
		CHECK(fi_recv(p.b.ep, in[0], 8, NULL, 0, &contexts[2]) == -FI_ENOTCONN);
		part(&p);
	}
}

/* The same by a buffer for several messages, by tags, and by peeks. */
CASE_OURS(msg_end_keeps_messages_for_every_kind_of_receive)
{
	struct want w = { .type = FI_EP_MSG, .caps = FI_MSG | FI_TAGGED | FI_MULTI_RECV };
	struct fi_msg_tagged peek = { .tag = 7, .context = &contexts[4] };
	struct iovec iov;
	struct fi_msg multi = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[2] };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;
	struct event event;
	uint32_t number;
	char in[64] = "", tagged[8] = "";
	size_t least = 8;

	meet(&p, &w);
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	POST(fi_send(p.a.ep, "one", 4, NULL, 0, &contexts[0]));
	POST(fi_send(p.a.ep, "two", 4, NULL, 0, &contexts[0]));
	POST(fi_tsend(p.a.ep, "seven", 6, NULL, 0, 7, &contexts[0]));
	done(&p.a, &p.b, &contexts[0]);
	done(&p.a, &p.b, &contexts[0]);
	done(&p.a, &p.b, &contexts[0]);
	CHECK(fi_shutdown(p.a.ep, 0) == 0);
	CHECK(event_of(&p.b, &p.a, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
	CHECK(fi_trecv(p.b.ep, tagged, 8, NULL, 0, 8, 0, &contexts[3]) == -FI_ENOTCONN);
	CHECK(fi_trecvmsg(p.b.ep, &peek, FI_PEEK | FI_CLAIM) == 0);
	CHECK(done(&p.b, NULL, &contexts[4]).tag == 7);
	CHECK(fi_trecvmsg(p.b.ep, &peek, FI_PEEK) == -FI_ENOTCONN);
	CHECK(fi_trecvmsg(p.b.ep, &peek, FI_PEEK | FI_CLAIM) == -FI_ENOTCONN);
	iov = (struct iovec) { tagged, 8 };
	peek.msg_iov = &iov;
	peek.iov_count = 1;
	CHECK(fi_trecvmsg(p.b.ep, &peek, FI_CLAIM) == 0);
	done(&p.b, NULL, &contexts[4]);
	CHECK(!strcmp(tagged, "seven"));
	/* The buffer takes both messages, and comes back, since no more will come. */
	iov = (struct iovec) { in, sizeof(in) };
	CHECK(fi_recvmsg(p.b.ep, &multi, FI_MULTI_RECV) == 0);
	CHECK(next(&p.b, NULL, &entry, &err, 10) == 1 && entry.op_context == &contexts[2] && !strcmp(entry.buf, "one"));
	CHECK(next(&p.b, NULL, &entry, &err, 10) == 1 && entry.op_context == &contexts[2] && !strcmp(entry.buf, "two"));
	CHECK(failed(&p.b, NULL, FI_ENOTCONN).op_context == &contexts[2]);
	CHECK(fi_recv(p.b.ep, in, 8, NULL, 0, &contexts[3]) == -FI_ENOTCONN);
	part(&p);
}

/* The same if the peer is killed. */
CASE_OURS(msg_killed_peer_disables)
{
	struct event event;
	uint32_t number;
	struct door d;
	struct side a;
	int ends[2];
	char in[8];
	pid_t child;

	CHECK(pipe(ends) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		/* Ends the child even if the parent dies. */
		alarm(30);
		listen_at(&d);
		CHECK(write(ends[1], d.name, sizeof(d.name)) == (ssize_t) sizeof(d.name));
		CHECK(event_of(&d.s, NULL, &number, &event, sizeof(event)) >= 16 && number == FI_CONNREQ);
		open_ep(&d.s, event.cm.info);
		CHECK(fi_accept(d.s.ep, NULL, 0) == 0);
		for (;;)
			fi_eq_read(d.s.eq, &number, &event, sizeof(event), 0);
	}
	CHECK(read(ends[0], d.name, sizeof(d.name)) == (ssize_t) sizeof(d.name));
	open_side(&a, &MSG);
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == 0);
	CHECK(event_of(&a, NULL, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	POST(fi_recv(a.ep, in, 8, NULL, 0, &contexts[0]));
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	CHECK(event_of(&a, NULL, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
	CHECK(failed(&a, NULL, FI_ECONNRESET).op_context == &contexts[0]);
	CHECK(fi_send(a.ep, "x", 1, NULL, 0, &contexts[1]) == -FI_ENOTCONN);
	close_side(&a);
}

CASE(cm_getname_getpeer_rules)
{
	struct pair p;
	char name[64], other[64];
	size_t len = 0, full;

	meet(&p, &RDM);
	CHECK(fi_getname(&p.a.ep->fid, NULL, &len) == -FI_ETOOSMALL);
	CHECK(len == p.a.len);
	memset(name, 'x', sizeof(name));
	full = len;
	len = 4;
	CHECK(fi_getname(&p.a.ep->fid, name, &len) == -FI_ETOOSMALL && len == full);
	CHECK(!memcmp(name, p.a.name, 4) && name[4] == 'x');
	part(&p);
	meet(&p, &MSG);
	len = sizeof(name);
	CHECK(fi_getpeer(p.a.ep, name, &len) == 0);
	full = sizeof(other);
	CHECK(fi_getname(&p.b.ep->fid, other, &full) == 0);
	CHECK(len == full && !memcmp(name, other, 8));
	memset(name, 'x', sizeof(name));
	len = 2;
	CHECK(fi_getpeer(p.a.ep, name, &len) == -FI_ETOOSMALL && len == full);
	CHECK(!memcmp(name, other, 2) && name[2] == 'x');
	part(&p);
}

CASE_OURS(cm_setname_rules)
{
	struct side s;
	struct fid_pep *pep;
	char name[64];
	size_t len = sizeof(name);

	open_domain(&s, &MSG);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0);
	/* Without a port, one is assigned. */
	CHECK(fi_setname(&pep->fid, s.info->src_addr, s.info->src_addrlen) == 0);
	CHECK(fi_setname(&pep->fid, "bad", 3) == -FI_EINVAL);
	/* fi_getname returns the address even before it is in use. */
	CHECK(fi_getname(&pep->fid, name, &len) == 0 && (name[2] || name[3]));
	len = sizeof(name);
	CHECK(fi_pep_bind(pep, &s.eq->fid, 0) == 0 && fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	CHECK(name[2] || name[3]);
	CHECK(fi_setname(&pep->fid, name, len) == -FI_EOPBADSTATE);
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&s);
}

/* A listening passive endpoint with this backlog, set before or after fi_listen. */
static void listen_with_backlog(struct door *d, int backlog, int at_once)
{
	open_domain(&d->s, &MSG);
	CHECK(fi_passive_ep(d->s.fabric, d->s.info, &d->pep, &contexts[9]) == 0);
	CHECK(fi_pep_bind(d->pep, &d->s.eq->fid, 0) == 0);
	if (at_once)
		CHECK(fi_control(&d->pep->fid, FI_BACKLOG, &backlog) == 0);
	CHECK(fi_listen(d->pep) == 0);
	if (!at_once)
		CHECK(fi_control(&d->pep->fid, FI_BACKLOG, &backlog) == 0);
	d->len = sizeof(d->name);
	CHECK(fi_getname(&d->pep->fid, d->name, &d->len) == 0);
}

/* A connect request fails because the backlog is full. */
static void turned_away(struct door *d)
{
	struct fi_eq_err_entry err = { 0 };
	struct event event;
	struct side a;
	uint32_t number;
	char text[200] = "";

	open_side(&a, &MSG);
	CHECK(fi_connect(a.ep, d->name, NULL, 0) == 0);
	CHECK(event_of(&a, &d->s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(a.eq, &err, 0) > 0 && err.err == FI_ECONNREFUSED && err.fid == &a.ep->fid);
	/* The application did not reject it: no data, but a reason. */
	CHECK(err.err_data_size == 0);
	fi_eq_strerror(a.eq, err.prov_errno, err.err_data, text, sizeof(text));
	CHECK(strstr(text, "the backlog of connection requests is full"));
	close_side(&a);
	/* The application gets no event. */
	CHECK(fi_eq_read(d->s.eq, &number, &event, sizeof(event), 0) == -FI_EAGAIN);
}

CASE_OURS(cm_backlog_bounds_pending_requests)
{
	struct side a[3];
	struct door d;
	struct event asked[3];
	uint32_t number;
	int round, i, none = -1, least = 0, most = 1 << 30;

	for (round = 0; round < 2; round++) {
		listen_with_backlog(&d, 2, round);
		for (i = 0; i < 2; i++)
			ask(&a[i], &d, "", 0, &asked[i]);
		/* Two requests are pending. */
		turned_away(&d);
		turned_away(&d);
		/* Each answer makes room for one, reject or accept. */
		CHECK(fi_reject(d.pep, asked[0].cm.info->handle, NULL, 0) == 0);
		fi_freeinfo(asked[0].cm.info);
		ask(&a[2], &d, "", 0, &asked[2]);
		turned_away(&d);
		open_ep(&d.s, asked[1].cm.info);
		fi_freeinfo(asked[1].cm.info);
		turned_away(&d);
		CHECK(fi_accept(d.s.ep, NULL, 0) == 0);
		CHECK(event_of(&d.s, &a[1], &number, &asked[1], sizeof(asked[1])) > 0 && number == FI_CONNECTED);
		close_side(&a[0]);
		ask(&a[0], &d, "", 0, &asked[0]);
		turned_away(&d);
		/*
		 * Any backlog but a negative one is valid: 0 means 1, and large ones are capped at
		 * the maximum.
		 */
		CHECK(fi_control(&d.pep->fid, FI_BACKLOG, &none) == -FI_EINVAL);
		CHECK(fi_control(&d.pep->fid, FI_BACKLOG, NULL) == -FI_EINVAL);
		CHECK(fi_control(&d.pep->fid, FI_BACKLOG, &most) == 0);
		fi_freeinfo(asked[0].cm.info);
		fi_freeinfo(asked[2].cm.info);
		for (i = 0; i < 3; i++)
			close_side(&a[i]);
		close_door(&d);
	}
	listen_with_backlog(&d, least, 1);
	ask(&a[0], &d, "", 0, &asked[0]);
	turned_away(&d);
	fi_freeinfo(asked[0].cm.info);
	close_side(&a[0]);
	close_door(&d);
}

CASE_OURS(info_handle_opens_endpoint)
{
	struct side s;
	struct fid_pep *pep;
	struct fid_ep *ep;
	struct fi_info *info;
	char name[64], other[64];
	size_t len = sizeof(name), full = sizeof(other);

	open_domain(&s, &MSG);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	info = fi_dupinfo(s.info);
	info->handle = &pep->fid;
	/* The address moves to the endpoint; the passive endpoint can only be closed. */
	CHECK(fi_endpoint(s.domain, info, &ep, NULL) == 0);
	CHECK(fi_getname(&ep->fid, other, &full) == 0 && len == full && !memcmp(name, other, len));
	CHECK(fi_listen(pep) < 0);
	CHECK(fi_close(&pep->fid) == 0);
	CHECK(fi_close(&ep->fid) == 0);
	info->handle = &s.domain->fid;
	CHECK(fi_endpoint(s.domain, info, &ep, NULL) < 0);
	fi_freeinfo(info);
	close_side(&s);
}

CASE_OURS(failed_open_leaves_the_passive_endpoint)
{
	struct fi_info *info;
	struct fid_pep *pep;
	struct fid_ep *ep;
	char name[64], other[64];
	size_t len = sizeof(name), full = sizeof(other);
	struct side s;

	open_domain(&s, &MSG);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0);
	CHECK(fi_pep_bind(pep, &s.eq->fid, 0) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	info = fi_dupinfo(s.info);
	info->handle = &pep->fid;
	info->tx_attr->tclass = 0x7777;
	CHECK(fi_endpoint(s.domain, info, &ep, NULL) == -FI_EINVAL);
	CHECK(fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, other, &full) == 0 && len == full && !memcmp(name, other, len));
	CHECK(fi_close(&pep->fid) == 0);
	fi_freeinfo(info);
	close_side(&s);
}

CASE(ep_connect_and_accept_enable)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;
	char in[8];

	listen_at(&d);
	open_domain(&a, &MSG);
	CHECK(fi_endpoint(a.domain, a.info, &a.ep, &a) == 0);
	CHECK(fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(a.ep, &a.eq->fid, 0) == 0);
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) >= 16 && number == FI_CONNREQ);
	CHECK(fi_endpoint(d.s.domain, event.cm.info, &d.s.ep, NULL) == 0);
	fi_freeinfo(event.cm.info);
	CHECK(fi_ep_bind(d.s.ep, &d.s.cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(d.s.ep, &d.s.eq->fid, 0) == 0);
	CHECK(fi_accept(d.s.ep, NULL, 0) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	POST(fi_recv(d.s.ep, in, 8, NULL, 0, &contexts[0]));
	POST(fi_send(a.ep, "x", 1, NULL, 0, &contexts[1]));
	done(&d.s, &a, &contexts[0]);
	close_side(&a);
	close_door(&d);
}

CASE_OURS(cm_accept_needs_the_request)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;
	struct fid_ep *other;

	listen_at(&d);
	ask(&a, &d, "", 0, &event);
	CHECK(fi_endpoint(d.s.domain, d.s.info, &other, NULL) == 0);
	CHECK(fi_ep_bind(other, &d.s.cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(other, &d.s.eq->fid, 0) == 0);
	CHECK(fi_enable(other) == 0 && fi_accept(other, NULL, 0) == -FI_EOPBADSTATE);
	CHECK(fi_close(&other->fid) == 0);
	open_ep(&d.s, event.cm.info);
	/* A request opens one endpoint only. */
	CHECK(fi_endpoint(d.s.domain, event.cm.info, &other, NULL) == -FI_EINVAL);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(d.s.ep, NULL, 0) == 0);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	close_side(&a);
	close_door(&d);
}

/*
 * An active endpoint keeps its assigned address before and after connecting, and its peer sees the
 * same address.
 */
static void connects_from(struct fi_info *info)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;
	char before[64], after[64], seen[64];
	size_t len = sizeof(before), full = sizeof(after), seen_len = sizeof(seen);

	listen_at(&d);
	open_domain(&a, &MSG);
	open_ep(&a, info);
	CHECK(fi_getname(&a.ep->fid, before, &len) == 0);
	if (info->src_addr)
		CHECK(len == info->src_addrlen);
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) >= 16 && number == FI_CONNREQ);
	CHECK(event.cm.info->dest_addrlen == len && !memcmp(event.cm.info->dest_addr, before, len));
	open_ep(&d.s, event.cm.info);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(d.s.ep, NULL, 0) == 0);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	CHECK(fi_getname(&a.ep->fid, after, &full) == 0 && full == len && !memcmp(before, after, len));
	CHECK(fi_getpeer(d.s.ep, seen, &seen_len) == 0 && seen_len == len && !memcmp(before, seen, len));
	close_side(&a);
	close_door(&d);
}

CASE_OURS(cm_connects_from_its_address)
{
	struct fi_info *info = find(&MSG);

	connects_from(info);
	fi_freeinfo(info);
}

CASE_OURS(cm_connects_from_its_port)
{
	struct fi_info *info = find(&MSG);
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const socklen_t len = sizeof(addr);
	int probe = socket(AF_INET, SOCK_STREAM, 0);
	uint16_t port = (uint16_t) (20000 + getpid() % 12000);

	/* A free port that the system gives to no other process meanwhile: it chooses from 32768 on. */
	do
		addr.sin_port = htons(port++);
	while (bind(probe, (struct sockaddr *) &addr, len) < 0 && port < 32768);
	close(probe);
	CHECK(info->src_addrlen == sizeof(addr));
	memcpy(info->src_addr, &addr, sizeof(addr));
	connects_from(info);
	fi_freeinfo(info);
}
