/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Event queues and their events (fi_eq(3)). */
#include "door.h"

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

CASE_OURS(eq_open_attributes)
{
	static const struct { enum fi_wait_obj kind; int expected; } kinds[] = {
		{ FI_WAIT_NONE, 0 }, { FI_WAIT_UNSPEC, 0 }, { FI_WAIT_FD, 0 }, { FI_WAIT_POLLFD, 0 }, { FI_WAIT_YIELD, 0 },
		{ FI_WAIT_SET, -FI_EINVAL }, { FI_WAIT_MUTEX_COND, 0 },
	};
	struct fid_eq *eq;
	struct side s;
	size_t i;
	int bit;

	open_domain(&s, &MSG);
	for (i = 0; i < ARRAY(kinds); i++) {
		struct fi_eq_attr attr = { .wait_obj = kinds[i].kind };

		CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == kinds[i].expected);
		if (!kinds[i].expected)
			CHECK(fi_close(&eq->fid) == 0);
	}
	for (bit = 0; bit < 64; bit++) {
		struct fi_eq_attr attr = { .flags = 1ULL << bit };
		int known = attr.flags == FI_WRITE || attr.flags == FI_AFFINITY;

		CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == (known ? 0 : -FI_EINVAL));
		if (known)
			CHECK(fi_close(&eq->fid) == 0);
	}
	close_side(&s);
}

/* As with the reference, fi_eq_write works without FI_WRITE, and the size is no limit. */
CASE(eq_write_without_limit)
{
	struct fi_eq_attr attr = { .size = 1 };
	struct fid_eq *eq;
	struct side s;
	uint32_t number;
	int i, got;

	open_domain(&s, &MSG);
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == 0);
	for (i = 0; i < 5000; i++)
		CHECK(fi_eq_write(eq, 100 + (uint32_t) i, &i, sizeof(i), 0) == (ssize_t) sizeof(i));
	for (i = 0; i < 5000; i++) {
		CHECK(fi_eq_read(eq, &number, &got, sizeof(got), 0) == (ssize_t) sizeof(got));
		CHECK(number == 100 + (uint32_t) i && got == i);
	}
	CHECK(fi_eq_read(eq, &number, &got, sizeof(got), 0) == -FI_EAGAIN);
	CHECK(fi_close(&eq->fid) == 0);
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

	/* The manual does not allow it, but existing programs rely on it. */
	open_domain(&s, &MSG);
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == 0);
	start = seconds();
	CHECK(fi_eq_sread(eq, &number, buf, sizeof(buf), 60, 0) == -FI_EAGAIN && seconds() - start > 0.059);
	CHECK(fi_close(&eq->fid) == 0);
	close_side(&s);
}

static void *write_later(void *arg)
{
	poll(NULL, 0, 50);
	CHECK(fi_eq_write(arg, FI_NOTIFY, "x", 2, 0) == 2);
	return NULL;
}

CASE(eq_sread_timeout)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE, .wait_obj = FI_WAIT_UNSPEC };
	struct fid_eq *eq;
	struct side s;
	struct event event;
	uint32_t number;
	pthread_t thread;
	double start;

	open_domain(&s, &MSG);
	start = seconds();
	CHECK(fi_eq_sread(s.eq, &number, &event, sizeof(event), 100, 0) == -FI_EAGAIN);
	CHECK(seconds() - start > 0.099 && seconds() - start < 5);
	/* Without a timeout it waits for an event. */
	CHECK(fi_eq_open(s.fabric, &attr, &eq, NULL) == 0);
	start = seconds();
	CHECK(pthread_create(&thread, NULL, write_later, eq) == 0);
	CHECK(fi_eq_sread(eq, &number, &event, sizeof(event), -1, 0) == 2);
	CHECK(seconds() - start > 0.049 && seconds() - start < 5);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(fi_close(&eq->fid) == 0);
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
	/* Without a buffer, the event is discarded too. */
	CHECK(fi_eq_write(eq, FI_NOTIFY, "0123456789", 10, 0) == 10);
	CHECK(fi_eq_read(eq, &number, NULL, 0, 0) == 0);
	CHECK(fi_eq_read(eq, &number, buf, 4, 0) == -FI_EAGAIN);
	CHECK(fi_close(&eq->fid) == 0);
	close_side(&s);
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
	event.cm.info = (void *) 1;
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) >= 16 && number == FI_SHUTDOWN);
	CHECK(event.cm.fid == &d.s.ep->fid && event.cm.info == NULL);
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

/* The reference pads the event of the accepting side. */
CASE_OURS(eq_connect_user_data_goes_one_way)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;

	listen_at(&d);
	ask(&a, &d, "please", 6, &event);
	open_ep(&d.s, event.cm.info);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(d.s.ep, "welcome", 7) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) == (ssize_t) sizeof(event.cm) && number == FI_CONNECTED);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == (ssize_t) sizeof(event.cm) + 7);
	CHECK(number == FI_CONNECTED && !memcmp(event.data, "welcome", 7));
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
	char data[64] = "", text[200] = "", whole[200] = "", few[5];
	const char *said;

	listen_at(&d);
	ask(&a, &d, "", 0, &event);
	CHECK(fi_reject(d.pep, event.cm.info->handle, "go away", 7) == 0);
	fi_freeinfo(event.cm.info);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	err.err_data = data;
	err.err_data_size = sizeof(data);
	CHECK(fi_eq_readerr(a.eq, &err, 0) == (ssize_t) sizeof(err));
	CHECK(err.err == FI_ECONNREFUSED && err.fid == &a.ep->fid);
	/* fi_connect takes no context, so the error has the endpoint's. */
	CHECK(err.context == &a);
	CHECK(err.err_data_size >= 7 && !memcmp(err.err_data, "go away", 7));
	said = fi_eq_strerror(a.eq, err.prov_errno, err.err_data, NULL, 0);
	CHECK(said && strlen(said) > 3);
	snprintf(whole, sizeof(whole), "%s", said);
	CHECK(fi_eq_strerror(a.eq, err.prov_errno, err.err_data, text, sizeof(text)) != NULL);
	CHECK(!strcmp(text, whole));
	memset(few, 'x', sizeof(few));
	CHECK(fi_eq_strerror(a.eq, err.prov_errno, err.err_data, few, 4) != NULL);
	CHECK(few[4] == 'x' && !strncmp(few, text, 3));
	CHECK(fi_eq_readerr(a.eq, &err, 0) == -FI_EAGAIN);
	close_side(&a);
	close_door(&d);
}

/* Checks the error entry of a rejection, with `room` bytes for its data. */
static void rejected(uint32_t api, size_t room)
{
	struct want w = MSG;
	struct door d;
	struct side a;
	struct event event;
	struct fi_eq_err_entry err = { 0 };
	uint32_t number, version = api ? api : API;
	char data[64];
	int theirs = room > 0 && FI_VERSION_GE(version, FI_VERSION(1, 5));
	size_t fits = theirs && room < 7 ? room : 7;

	w.api = api;
	listen_at(&d);
	open_side(&a, &w);
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == 0);
	CHECK(event_of(&d.s, &a, &number, &event, sizeof(event)) >= 16 && number == FI_CONNREQ);
	CHECK(fi_reject(d.pep, event.cm.info->handle, "go away", 7) == 0);
	fi_freeinfo(event.cm.info);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	memset(data, 'x', sizeof(data));
	err.err_data = data;
	err.err_data_size = room;
	CHECK(fi_eq_readerr(a.eq, &err, 0) == 48);
	/* The data is in the caller's buffer, cut to its size, or else in the queue's memory. */
	CHECK((err.err_data == data) == theirs);
	CHECK(err.err_data_size == fits && !memcmp(err.err_data, "go away", fits));
	CHECK(data[theirs ? fits : 0] == 'x');
	close_side(&a);
	close_door(&d);
}

CASE_OURS(eq_errdata_buffers)
{
	rejected(0, 64);
	rejected(0, 3);
	rejected(0, 0);
	rejected(FI_VERSION(1, 4), 64);
}

CASE(eq_connect_failure_event)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;
	struct fi_eq_err_entry err = { 0 };

	/* An address whose listener is closed. */
	listen_at(&d);
	close_door(&d);
	open_side(&a, &MSG);
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == 0);
	CHECK(event_of(&a, NULL, &number, &event, sizeof(event)) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(a.eq, &err, 0) > 0 && err.err == FI_ECONNREFUSED && err.fid == &a.ep->fid);
	close_side(&a);
}

CASE_OURS(failed_endpoint_stays_failed)
{
	struct door d;
	struct side a;
	struct event event;
	uint32_t number;
	struct fi_eq_err_entry err = { 0 };

	listen_at(&d);
	ask(&a, &d, "", 0, &event);
	CHECK(fi_reject(d.pep, event.cm.info->handle, NULL, 0) == 0);
	fi_freeinfo(event.cm.info);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(a.eq, &err, 0) > 0 && err.fid == &a.ep->fid);
	CHECK(fi_send(a.ep, "x", 1, NULL, 0, &contexts[1]) == -FI_ENOTCONN);
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == -FI_EOPBADSTATE);
	close_side(&a);
	close_door(&d);
}

CASE(eq_close_rules)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE };
	struct fid_eq *eq;
	struct door d;
	struct side a;
	uint32_t number = 99;
	double end = seconds() + 10;

	listen_at(&d);
	open_side(&a, &MSG);
	CHECK(fi_close(&a.eq->fid) == -FI_EBUSY);
	/* An unread request is freed with its endpoint, and so is its info. */
	CHECK(fi_connect(a.ep, d.name, "data", 4) == 0);
	while (fi_eq_read(d.s.eq, &number, NULL, 0, FI_PEEK) == -FI_EAGAIN && seconds() < end)
		fi_eq_read(a.eq, &number, NULL, 0, FI_PEEK);
	CHECK(number == FI_CONNREQ);
	/* An unread event that the program wrote is freed with the queue. */
	CHECK(fi_eq_open(a.fabric, &attr, &eq, NULL) == 0);
	CHECK(fi_eq_write(eq, FI_NOTIFY, "lost", 5, 0) == 5);
	CHECK(fi_close(&eq->fid) == 0);
	close_side(&a);
	close_door(&d);
}

CASE_OURS(eq_events_are_dropped_with_their_endpoint)
{
	struct door d;
	struct side a, b;
	struct event event;
	uint32_t number = 99;
	double end = seconds() + 10;

	listen_at(&d);
	ask(&a, &d, "", 0, &event);
	open_ep(&d.s, event.cm.info);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(d.s.ep, NULL, 0) == 0);
	/* Both have an unread event. */
	while (fi_eq_read(a.eq, &number, NULL, 0, FI_PEEK) == -FI_EAGAIN && seconds() < end)
		fi_eq_read(d.s.eq, &(uint32_t) { 0 }, NULL, 0, FI_PEEK);
	CHECK(number == FI_CONNECTED);
	number = 99;
	CHECK(fi_eq_read(d.s.eq, &number, NULL, 0, FI_PEEK) == 0 && number == FI_CONNECTED);
	CHECK(fi_close(&a.ep->fid) == 0);
	a.ep = NULL;
	CHECK(fi_eq_read(a.eq, &number, &event, sizeof(event), 0) == -FI_EAGAIN);
	CHECK(fi_close(&d.s.ep->fid) == 0);
	d.s.ep = NULL;
	CHECK(fi_eq_read(d.s.eq, &number, &event, sizeof(event), 0) == -FI_EAGAIN);
	/* A request is freed with the passive endpoint. */
	open_side(&b, &MSG);
	CHECK(fi_connect(b.ep, d.name, "data", 4) == 0);
	number = 99;
	while (fi_eq_read(d.s.eq, &number, NULL, 0, FI_PEEK) == -FI_EAGAIN && seconds() < end)
		fi_eq_read(b.eq, &(uint32_t) { 0 }, NULL, 0, FI_PEEK);
	CHECK(number == FI_CONNREQ);
	CHECK(fi_close(&d.pep->fid) == 0);
	CHECK(fi_eq_read(d.s.eq, &number, &event, sizeof(event), 0) == -FI_EAGAIN);
	close_side(&b);
	close_side(&a);
	close_side(&d.s);
}
