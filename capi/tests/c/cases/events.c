/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Event queues and connections (fi_eq(3), fi_cm(3)). */
#include "case.h"

static const struct want MSG = { .type = FI_EP_MSG };

struct event {
	struct fi_eq_cm_entry cm;
	char data[512];
};

/* A passive endpoint that listens, in a side of its own. */
struct door {
	struct side s;
	struct fid_pep *pep;
	char name[64];
	size_t len;
};

static void listen_at(struct door *d)
{
	open_domain(&d->s, &MSG);
	CHECK(fi_passive_ep(d->s.fabric, d->s.info, &d->pep, &contexts[9]) == 0);
	CHECK(fi_pep_bind(d->pep, &d->s.eq->fid, 0) == 0);
	CHECK(fi_listen(d->pep) == 0);
	d->len = sizeof(d->name);
	CHECK(fi_getname(&d->pep->fid, d->name, &d->len) == 0);
}

static void close_door(struct door *d)
{
	CHECK(fi_close(&d->pep->fid) == 0);
	close_side(&d->s);
}

CASE(eq_open_rules)
{
	struct fi_eq_attr attr = { .flags = 1ULL << 62 };
	struct fid_eq *eq;
	struct side s;

	open_domain(&s, &MSG);
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == -FI_EINVAL);
	attr = (struct fi_eq_attr) { .size = 0 };
	CHECK(fi_eq_open(s.fabric, &attr, &eq, &s) == 0);
	CHECK(eq->fid.context == &s && eq->fid.fclass == FI_CLASS_EQ);
	CHECK(fi_close(&eq->fid) == 0);
	attr = (struct fi_eq_attr) { .size = 1000, .flags = FI_WRITE, .wait_obj = FI_WAIT_FD };
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == 0);
	CHECK(fi_close(&eq->fid) == 0);
	attr = (struct fi_eq_attr) { .wait_obj = 99 };
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) < 0);
	close_side(&s);
}

CASE_OURS(eq_sread_without_wait_object)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_NONE };
	struct fid_eq *eq;
	struct side s;
	uint32_t number;
	char buf[64];
	double start;

	/* The manual does not allow it; programs in the field rely on it. */
	open_domain(&s, &MSG);
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == 0);
	start = seconds();
	CHECK(fi_eq_sread(eq, &number, buf, sizeof(buf), 60, 0) == -FI_EAGAIN && seconds() - start > 0.059);
	CHECK(fi_close(&eq->fid) == 0);
	close_side(&s);
}

CASE(eq_sread_timeout)
{
	struct side s;
	struct event event;
	uint32_t number;
	double start = seconds();

	open_domain(&s, &MSG);
	CHECK(fi_eq_sread(s.eq, &number, &event, sizeof(event), 100, 0) == -FI_EAGAIN);
	CHECK(seconds() - start > 0.099 && seconds() - start < 5);
	close_side(&s);
}

CASE(eq_write_roundtrip)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_entry in = { .context = &attr, .data = 42 }, out;
	struct fid_eq *eq;
	struct side s;
	uint32_t number = 99;

	open_domain(&s, &MSG);
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == 0);
	CHECK(fi_eq_read(eq, &number, &out, sizeof(out), 0) == -FI_EAGAIN);
	CHECK(fi_eq_write(eq, FI_NOTIFY, &in, sizeof(in), 0) == (ssize_t) sizeof(in));
	CHECK(fi_eq_sread(eq, &number, &out, sizeof(out), -1, 0) == (ssize_t) sizeof(out));
	CHECK(number == FI_NOTIFY && !memcmp(&in, &out, sizeof(in)));
	CHECK(fi_close(&eq->fid) == 0);
	close_side(&s);
}

CASE(eq_read_one_event)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE };
	struct fid_eq *eq;
	struct side s;
	uint32_t number;
	char buf[64] = "";
	struct fi_eq_err_entry err = { 0 };

	open_domain(&s, &MSG);
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == 0);
	CHECK(fi_eq_write(eq, FI_NOTIFY, "first", 6, 0) == 6);
	CHECK(fi_eq_write(eq, FI_NOTIFY, "second!", 8, 0) == 8);
	CHECK(fi_eq_read(eq, &number, buf, sizeof(buf), FI_PEEK) == 6 && !strcmp(buf, "first"));
	CHECK(fi_eq_read(eq, &number, buf, sizeof(buf), 0) == 6 && !strcmp(buf, "first"));
	CHECK(fi_eq_read(eq, &number, buf, sizeof(buf), 0) == 8 && !strcmp(buf, "second!"));
	CHECK(fi_eq_read(eq, &number, buf, sizeof(buf), 0) == -FI_EAGAIN);
	CHECK(fi_eq_readerr(eq, &err, 0) == -FI_EAGAIN);
	CHECK(fi_close(&eq->fid) == 0);
	close_side(&s);
}

CASE(eq_short_buffer)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE };
	struct fid_eq *eq;
	struct side s;
	uint32_t number;
	char buf[8] = "xxxxxxx";

	open_domain(&s, &MSG);
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == 0);
	CHECK(fi_eq_write(eq, FI_NOTIFY, "0123456789", 10, 0) == 10);
	CHECK(fi_eq_read(eq, &number, buf, 4, 0) == 4);
	CHECK(!memcmp(buf, "0123xxx", 8));
	CHECK(fi_eq_read(eq, &number, buf, 4, 0) == -FI_EAGAIN);
	CHECK(fi_close(&eq->fid) == 0);
	close_side(&s);
}

/* Connects `a` to the door with data; what comes of it. */
static void ask(struct side *a, struct door *d, const char *data, size_t len, struct event *event)
{
	uint32_t number;
	ssize_t ret;

	open_side(a, &MSG);
	CHECK(fi_connect(a->ep, d->name, data, len) == 0);
	ret = event_of(&d->s, a, &number, event, sizeof(*event));
	CHECK(ret >= (ssize_t) (sizeof(event->cm) + len) && number == FI_CONNREQ);
	CHECK(event->cm.fid == &d->pep->fid && event->cm.info);
	CHECK(!memcmp(event->data, data, len));
}

CASE(eq_connection_events)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;

	CHECK(FI_NOTIFY == 0 && FI_CONNREQ == 1 && FI_CONNECTED == 2 && FI_SHUTDOWN == 3);
	CHECK(FI_MR_COMPLETE == 4 && FI_AV_COMPLETE == 5 && FI_JOIN_COMPLETE == 6);
	CHECK(sizeof(struct fi_eq_entry) == 24 && sizeof(struct fi_eq_cm_entry) == 16);
	listen_at(&d);
	ask(&a, &d, "", 0, &event);
	CHECK(event.cm.info->handle);
	open_ep(&d.s, event.cm.info);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(d.s.ep, NULL, 0) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) >= 16 && number == FI_CONNECTED);
	CHECK(event.cm.fid == &d.s.ep->fid);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) >= 16 && number == FI_CONNECTED);
	CHECK(event.cm.fid == &a.ep->fid && event.cm.fid->context == &a);
	CHECK(fi_shutdown(a.ep, 0) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
	CHECK(event.cm.fid == &d.s.ep->fid);
	close_side(&a);
	close_door(&d);
}

CASE(eq_connect_user_data)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;
	ssize_t ret;

	listen_at(&d);
	ask(&a, &d, "please", 6, &event);
	open_ep(&d.s, event.cm.info);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(d.s.ep, "welcome", 7) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) >= 16 && number == FI_CONNECTED);
	ret = event_of(&a, &d.s, &number, &event, sizeof(event));
	CHECK(ret >= 16 + 7 && number == FI_CONNECTED && !memcmp(event.data, "welcome", 7));
	close_side(&a);
	close_door(&d);
}

CASE(eq_reject_error_event)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;
	struct fi_eq_err_entry err = { 0 };
	char data[64] = "", text[64] = "";

	listen_at(&d);
	ask(&a, &d, "", 0, &event);
	CHECK(fi_reject(d.pep, event.cm.info->handle, "go away", 7) == 0);
	fi_freeinfo(event.cm.info);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	err.err_data = data;
	err.err_data_size = sizeof(data);
	CHECK(fi_eq_readerr(a.eq, &err, 0) == (ssize_t) sizeof(err));
	CHECK(err.err == FI_ECONNREFUSED && err.fid == &a.ep->fid);
	CHECK(err.err_data_size >= 7 && !memcmp(err.err_data, "go away", 7));
	CHECK(fi_eq_strerror(a.eq, err.prov_errno, err.err_data, text, sizeof(text)) != NULL);
	CHECK(fi_eq_readerr(a.eq, &err, 0) == -FI_EAGAIN);
	close_side(&a);
	close_door(&d);
}

CASE(eq_connect_failure_event)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;
	struct fi_eq_err_entry err = { 0 };
	ssize_t ret;

	/* An address at which nobody listens any more. */
	listen_at(&d);
	close_door(&d);
	open_side(&a, &MSG);
	ret = fi_connect(a.ep, d.name, NULL, 0);
	if (ret == 0) {
		CHECK(event_of(&a, NULL, &number, &event, sizeof(event)) == -FI_EAVAIL);
		CHECK(fi_eq_readerr(a.eq, &err, 0) > 0 && err.err == FI_ECONNREFUSED);
	}
	close_side(&a);
}

CASE(eq_close_rules)
{
	struct door d;
	struct side a;

	listen_at(&d);
	open_side(&a, &MSG);
	CHECK(fi_close(&a.eq->fid) == -FI_EBUSY);
	/* A request that nobody reads goes with its endpoint. */
	CHECK(fi_connect(a.ep, d.name, "data", 4) == 0);
	close_side(&a);
	close_door(&d);
}

CASE(cm_connect_only_once)
{
	struct pair p;

	meet(&p, &MSG);
	CHECK(fi_connect(p.a.ep, p.b.name, NULL, 0) < 0);
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
	static char data[300];
	struct door d;
	struct side a;

	listen_at(&d);
	open_side(&a, &MSG);
	CHECK(fi_connect(a.ep, d.name, data, 257) == -FI_EINVAL);
	CHECK(fi_connect(a.ep, d.name, data, 256) == 0);
	close_side(&a);
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

CASE(cm_shutdown_seen_by_peer)
{
	struct pair p;
	struct event event;
	uint32_t number;
	int closing;

	for (closing = 0; closing < 2; closing++) {
		meet(&p, &MSG);
		if (closing) {
			CHECK(fi_close(&p.a.ep->fid) == 0);
			p.a.ep = NULL;
		} else {
			CHECK(fi_shutdown(p.a.ep, 0) == 0);
		}
		CHECK(event_of(&p.b, &p.a, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
		CHECK(event.cm.fid == &p.b.ep->fid);
		part(&p);
	}
}

CASE_OURS(cm_shutdown_rules)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;
	char in[2][8];
	int i;

	meet(&p, &MSG);
	POST(fi_recv(p.a.ep, in[0], 8, NULL, 0, &contexts[0]));
	POST(fi_recv(p.a.ep, in[1], 8, NULL, 0, &contexts[1]));
	CHECK(fi_shutdown(p.a.ep, 0) == 0);
	/* What is cancelled is there when the call returns. */
	for (i = 0; i < 2; i++) {
		CHECK(fi_cq_read(p.a.cq, &entry, 1) == -FI_EAVAIL);
		memset(&err, 0, sizeof(err));
		CHECK(fi_cq_readerr(p.a.cq, &err, 0) == 1 && err.err == FI_ECANCELED);
	}
	part(&p);
}

CASE_OURS(msg_peer_death_disables)
{
	struct pair p;
	struct event event;
	uint32_t number;

	meet(&p, &MSG);
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	CHECK(event_of(&p.a, &p.b, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
	CHECK(fi_send(p.a.ep, "x", 1, NULL, 0, &contexts[1]) == -FI_ENOTCONN);
	part(&p);
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
	len = 2;
	CHECK(fi_getpeer(p.a.ep, name, &len) == -FI_ETOOSMALL && len == full);
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
	/* Without a port one is assigned. */
	CHECK(fi_setname(&pep->fid, s.info->src_addr, s.info->src_addrlen) == 0);
	CHECK(fi_setname(&pep->fid, "bad", 3) == -FI_EINVAL);
	CHECK(fi_pep_bind(pep, &s.eq->fid, 0) == 0 && fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	CHECK(name[2] || name[3]);
	CHECK(fi_setname(&pep->fid, name, len) == -FI_EOPBADSTATE);
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&s);
}

CASE(cm_listen_backlog)
{
	struct side s;
	struct fid_pep *pep;
	int ret, backlog = 16;

	open_domain(&s, &MSG);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0);
	ret = fi_control(&pep->fid, FI_BACKLOG, &backlog);
	CHECK(ret == 0 || ret == -FI_ENOSYS);
	CHECK(fi_pep_bind(pep, &s.eq->fid, 0) == 0);
	CHECK(fi_listen(pep) == 0);
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&s);
}

CASE_OURS(info_handle_opens_endpoint)
{
	struct side s;
	struct fid_pep *pep;
	struct fid_ep *ep;
	struct fi_info *info;

	open_domain(&s, &MSG);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0);
	info = fi_dupinfo(s.info);
	info->handle = &pep->fid;
	/* The address moves to the endpoint; the passive one can only be closed. */
	CHECK(fi_endpoint(s.domain, info, &ep, NULL) == 0);
	CHECK(fi_listen(pep) < 0);
	CHECK(fi_close(&pep->fid) == 0);
	CHECK(fi_close(&ep->fid) == 0);
	info->handle = &s.domain->fid;
	CHECK(fi_endpoint(s.domain, info, &ep, NULL) < 0);
	fi_freeinfo(info);
	close_side(&s);
}

static const struct want GROUP = { .type = FI_EP_DGRAM, .caps = FI_MULTICAST };

static void group_address(char *out, uint16_t port)
{
	unsigned char addr[16] = { 2, 0, port >> 8, port & 255, 239, 7, 7, 7 };

	memcpy(out, addr, sizeof(addr));
}

CASE_OURS(multicast_join_event)
{
	struct fi_eq_entry event;
	char in[16] = "", group[16];
	struct iovec iov = { "to all", 7 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct fid_mc *mc, *sender;
	struct pair p;
	uint32_t number;

	meet(&p, &GROUP);
	group_address(group, (uint16_t) (20000 + getpid() % 20000));
	CHECK(fi_join(p.b.ep, group, 0, &mc, &contexts[5]) == -FI_ENOEQ);
	CHECK(fi_ep_bind(p.a.ep, &p.a.eq->fid, 0) == 0 && fi_ep_bind(p.b.ep, &p.b.eq->fid, 0) == 0);
	CHECK(fi_join(p.b.ep, p.a.name, 0, &mc, NULL) == -FI_EADDRNOTAVAIL);
	CHECK(fi_join(p.b.ep, NULL, 0, &mc, NULL) == -FI_EINVAL);
	CHECK(fi_join(p.b.ep, group, 1ULL << 60, &mc, NULL) == -FI_EBADFLAGS);
	CHECK(fi_join(p.b.ep, group, FI_RECV, &mc, &contexts[5]) == 0);
	CHECK(fi_eq_read(p.b.eq, &number, &event, sizeof(event), 0) == (ssize_t) sizeof(event));
	CHECK(number == FI_JOIN_COMPLETE && event.fid == &mc->fid && event.context == &contexts[5]);
	CHECK(fi_join(p.a.ep, group, FI_SEND, &sender, NULL) == 0);
	CHECK(fi_mc_addr(sender) != FI_ADDR_NOTAVAIL);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	msg.addr = fi_mc_addr(sender);
	POST(fi_sendmsg(p.a.ep, &msg, FI_MULTICAST));
	CHECK(next(&p.b, &p.a, &entry, &err, 10) == 1 && entry.op_context == &contexts[0]);
	CHECK(entry.flags == (FI_MSG | FI_RECV | FI_MULTICAST) && !strcmp(in, "to all"));
	CHECK(next(&p.a, NULL, &entry, &err, 10) == 1 && entry.op_context == &contexts[1]);
	CHECK(entry.flags == (FI_MSG | FI_SEND | FI_MULTICAST));
	/* Every group that was joined must be left before its endpoint is closed. */
	CHECK(fi_close(&p.b.ep->fid) == -FI_EBUSY);
	CHECK(fi_close(&mc->fid) == 0);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_sendmsg(p.a.ep, &msg, FI_MULTICAST));
	done(&p.a, NULL, &contexts[1]);
	quiet(&p.b, &p.a);
	CHECK(fi_close(&sender->fid) == 0);
	part(&p);
}

CASE(multicast_unsupported_enosys)
{
	struct fid_mc *mc;
	struct side s;
	char group[16];

	group_address(group, 5000);
	open_side(&s, &RDM);
	CHECK(fi_join(s.ep, group, 0, &mc, NULL) < 0);
	close_side(&s);
}
