/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What callers of 1.x have and later ones do not: buffered receives (FI_BUFFERED_RECV) and variable
 * messages (FI_VARIABLE_MSG), fi_msg(3) and fi_tagged(3) of 1.17, and peeks that copy.
 */
#include "case.h"
#include <rdma/fi_trigger.h>

/* Later headers do not have it. */
#ifndef FI_BUFFERED_RECV
#define FI_BUFFERED_RECV	(1ULL << 51)
#endif
/* In later headers the bit is FI_EXACT_DIRECTED_RECV. */
#define VARIABLE_MSG	(1ULL << 48)

enum { LIMIT = 32 << 10, LONG = 1 << 20 };

static const struct want BUFFERED = {
	.caps = FI_TAGGED | FI_SOURCE, .mode = FI_BUFFERED_RECV, .api = FI_VERSION(1, 17), .format = FI_CQ_FORMAT_TAGGED
};
static const struct want CONNECTED = {
	.type = FI_EP_MSG, .caps = FI_TAGGED, .mode = FI_BUFFERED_RECV, .api = FI_VERSION(1, 17)
};
static const struct want VARIABLE = { .caps = FI_TAGGED | FI_SOURCE | VARIABLE_MSG, .api = FI_VERSION(1, 17) };
static const struct want VARIABLE_CONNECTED = {
	.type = FI_EP_MSG, .caps = FI_TAGGED | VARIABLE_MSG, .api = FI_VERSION(1, 17)
};

static uint64_t mode_of(uint32_t api, enum fi_ep_type type, uint64_t mode)
{
	struct want w = { .type = type, .api = api, .caps = type == FI_EP_DGRAM ? 0 : FI_TAGGED };
	struct fi_info *hints = hints_for(&w), *list = NULL;
	uint64_t found;

	hints->mode = mode;
	hints->domain_attr->mr_mode = 0;
	CHECK(fi_getinfo(api, NULL, NULL, 0, hints, &list) == 0);
	found = list->mode;
	/* It is a mode of receiving. */
	CHECK(list->rx_attr->mode == found && !list->tx_attr->mode);
	fi_freeinfo(hints);
	fi_freeinfo(list);
	return found;
}

CASE_OURS(buffered_mode_is_offered)
{
	const uint64_t asked = FI_BUFFERED_RECV | FI_CONTEXT | FI_CONTEXT2;

	CHECK(mode_of(FI_VERSION(1, 7), FI_EP_RDM, asked) == FI_BUFFERED_RECV);
	CHECK(mode_of(FI_VERSION(1, 17), FI_EP_RDM, asked) == FI_BUFFERED_RECV);
	CHECK(mode_of(FI_VERSION(1, 17), FI_EP_MSG, asked) == FI_BUFFERED_RECV);
	/* The interface has it from 1.7 on. */
	CHECK(mode_of(FI_VERSION(1, 6), FI_EP_RDM, asked) == 0);
	if (fi_version() >= FI_VERSION(2, 0))
		CHECK(mode_of(FI_VERSION(2, 0), FI_EP_RDM, asked) == 0);
	/* Not to those who do not ask, or permit whatever there is. */
	CHECK(mode_of(FI_VERSION(1, 17), FI_EP_RDM, FI_CONTEXT | FI_CONTEXT2) == 0);
	CHECK(mode_of(FI_VERSION(1, 17), FI_EP_RDM, ~0ULL) == 0);
	CHECK(mode_of(FI_VERSION(1, 17), FI_EP_DGRAM, asked) == 0);
}

/* The next entry, which announces a buffered message of that length. */
static struct fi_cq_tagged_entry notice(struct pair *p, uint64_t flags, size_t len)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	const struct fi_recv_context *context;

	CHECK(next(&p->b, &p->a, &entry, &err, 10) == 1);
	if (entry.flags != flags || entry.len != len)
		fprintf(stderr, "flags %#llx, length %zu\n", (unsigned long long) entry.flags, entry.len);
	CHECK(entry.flags == flags && entry.len == len);
	context = entry.op_context;
	CHECK(context);
	if (flags & FI_MSG)
		CHECK(context->ep == p->b.ep && !context->context);
	else
		CHECK(!context->ep);
	return entry;
}

static void take(struct pair *p, const struct fi_cq_tagged_entry *entry, void *buf, size_t len, uint64_t flags)
{
	/* A discard ignores the buffers. */
	const struct iovec iov = { buf, len }, *vector = flags & FI_DISCARD ? (void *) 8 : &iov;
	size_t count = flags & FI_DISCARD ? 99 : 1;

	if (entry->flags & FI_MSG) {
		struct fi_msg msg = { .msg_iov = vector, .iov_count = count, .context = entry->op_context, .addr = FI_ADDR_UNSPEC };

		POST(fi_recvmsg(p->b.ep, &msg, flags));
	} else {
		struct fi_msg_tagged msg = { .msg_iov = vector, .iov_count = count, .context = entry->op_context, .addr = FI_ADDR_UNSPEC };

		POST(fi_trecvmsg(p->b.ep, &msg, flags));
	}
}

/* Claims the message into a buffer and checks the entry. */
static void claim(struct pair *p, const struct fi_cq_tagged_entry *entry, void *buf, size_t room)
{
	struct fi_cq_tagged_entry got;

	((struct fi_recv_context *) entry->op_context)->context = buf;
	take(p, entry, buf, room, FI_CLAIM);
	got = done(&p->b, &p->a, buf);
	CHECK(got.flags == ((entry->flags & ~FI_MORE) | FI_CLAIM));
	CHECK(got.len == entry->len && got.tag == entry->tag && got.data == entry->data);
}

/* How many messages a stream has. */
enum { STREAM = 300 };

static char big[LONG + STREAM], room[LONG];

static void fill(size_t len, unsigned seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		big[i] = (char) (seed + i * 7 + i / 251);
}

static void plain_messages(const struct want *w)
{
	struct fi_cq_tagged_entry entry, other;
	struct fi_cq_err_entry err;
	struct pair p;

	meet(&p, w);
	CHECK(w->mode ? p.b.info->mode & FI_BUFFERED_RECV : p.b.info->caps & VARIABLE_MSG);
	/* No receive is posted. */
	POST(fi_senddata(p.a.ep, "message", 8, NULL, 77, p.to_b, &contexts[0]));
	entry = notice(&p, FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA, 8);
	CHECK(!strcmp(entry.buf, "message") && entry.data == 77);
	done(&p.a, &p.b, &contexts[0]);
	claim(&p, &entry, room, 16);
	CHECK(!strcmp(room, "message"));
	/* Out of order, and with discards, which leave no entry. */
	POST(fi_send(p.a.ep, "one", 4, NULL, p.to_b, &contexts[0]));
	POST(fi_send(p.a.ep, "", 0, NULL, p.to_b, &contexts[1]));
	POST(fi_send(p.a.ep, "three", 6, NULL, p.to_b, &contexts[2]));
	entry = notice(&p, FI_MSG | FI_RECV, 4);
	other = notice(&p, FI_MSG | FI_RECV, 0);
	take(&p, &other, NULL, 0, FI_DISCARD);
	other = notice(&p, FI_MSG | FI_RECV, 6);
	CHECK(!strcmp(other.buf, "three") && !strcmp(entry.buf, "one"));
	claim(&p, &other, room, 6);
	CHECK(!strcmp(entry.buf, "one"));
	take(&p, &entry, NULL, 0, FI_CLAIM | FI_DISCARD);
	quiet(&p.b, &p.a);
	/* What has been claimed or discarded is gone. */
	CHECK(fi_recvmsg(p.b.ep, &(struct fi_msg) { .context = entry.op_context }, FI_CLAIM) == -FI_EINVAL);
	/* Too small a buffer truncates. */
	POST(fi_send(p.a.ep, "truncated", 10, NULL, p.to_b, &contexts[3]));
	entry = notice(&p, FI_MSG | FI_RECV, 10);
	((struct fi_recv_context *) entry.op_context)->context = &contexts[4];
	take(&p, &entry, room, 4, FI_CLAIM);
	err = failed(&p.b, &p.a, FI_ETRUNC);
	CHECK(err.op_context == &contexts[4] && err.len == 4 && err.olen == 6);
	part(&p);
}

CASE_OURS(buffered_messages)
{
	plain_messages(&BUFFERED);
	plain_messages(&CONNECTED);
}

static void refuses_receives(struct want w)
{
	struct iovec iov = { room, 4096 };
	struct fi_msg untagged = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[0] };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[0] };
	struct fi_op_msg receive = { .msg = untagged };
	struct fi_op_tagged receive_tagged = { .msg = tagged };
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fi_deferred_work work = { .threshold = 1, .op_type = FI_OP_RECV, .op.msg = &receive };
	struct pair p;

	w.caps |= FI_TRIGGER;
	meet(&p, &w);
	receive.ep = receive_tagged.ep = p.b.ep;
	CHECK(fi_cntr_open(p.b.domain, &attr, &work.triggering_cntr, NULL) == 0);
	REFUSED("fi_recv, FI_MULTI_RECV and deferred receives of an endpoint with FI_BUFFERED_RECV or FI_VARIABLE_MSG",
		FI_EINVAL, fi_recv(p.b.ep, room, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(fi_recvmsg(p.b.ep, &untagged, FI_MULTI_RECV) == -FI_EINVAL);
	CHECK(fi_trecvmsg(p.b.ep, &tagged, FI_MULTI_RECV) == -FI_EINVAL);
	CHECK(fi_control(&p.b.domain->fid, FI_QUEUE_WORK, &work) == -FI_EINVAL);
	work.op_type = FI_OP_TRECV;
	work.op.tagged = &receive_tagged;
	CHECK(fi_control(&p.b.domain->fid, FI_QUEUE_WORK, &work) == -FI_EINVAL);
	/* None of them starts later. */
	CHECK(fi_cntr_add(work.triggering_cntr, 1) == 0);
	quiet(&p.b, &p.a);
	CHECK(fi_close(&work.triggering_cntr->fid) == 0);
	part(&p);
}

CASE_OURS(buffered_endpoints_refuse_receives)
{
	refuses_receives(BUFFERED);
	refuses_receives(CONNECTED);
}

static void long_messages(const struct want *w)
{
	struct iovec iov = { big, LONG };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[0] };
	struct fi_cq_tagged_entry entry, other;
	struct pair p;

	meet(&p, w);
	msg.addr = p.to_b;
	fill(LONG, 3);
	CHECK(fi_sendmsg(p.a.ep, &msg, FI_MATCH_COMPLETE) == 0);
	entry = notice(&p, FI_MSG | FI_RECV | FI_MORE, LONG);
	/* The sender is not notified of a match yet. */
	quiet(&p.a, &p.b);
	/* Later messages pass it. */
	POST(fi_send(p.a.ep, "short", 6, NULL, p.to_b, &contexts[1]));
	other = notice(&p, FI_MSG | FI_RECV, 6);
	CHECK(!strcmp(other.buf, "short"));
	done(&p.a, &p.b, &contexts[1]);
	claim(&p, &entry, room, LONG);
	CHECK(!memcmp(room, big, LONG));
	done(&p.a, &p.b, &contexts[0]);
	take(&p, &other, NULL, 0, FI_DISCARD);
	/* A discarded one completes at its sender too. */
	CHECK(fi_sendmsg(p.a.ep, &msg, FI_DELIVERY_COMPLETE) == 0);
	entry = notice(&p, FI_MSG | FI_RECV | FI_MORE, LONG);
	take(&p, &entry, NULL, 0, FI_DISCARD);
	done(&p.a, &p.b, &contexts[0]);
	quiet(&p.b, &p.a);
	part(&p);
}

CASE_OURS(buffered_long_messages)
{
	long_messages(&BUFFERED);
}

CASE_OURS(buffered_limit_option)
{
	struct fi_cq_tagged_entry entry;
	struct pair p;
	size_t value = 0, len = sizeof(value);
	struct fid_ep *plain_ep;
	struct side s;

	open_side(&p.a, &BUFFERED);
	open_domain(&p.b, &BUFFERED);
	CHECK(fi_endpoint(p.b.domain, p.b.info, &p.b.ep, &p.b) == 0);
	CHECK(fi_getopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, &len) == 0 && value == LIMIT);
	value = SIZE_MAX;
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, sizeof(value)) == 0);
	CHECK(fi_getopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, &len) == 0 && value == LIMIT);
	value = LIMIT + 1;
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, sizeof(value)) == -FI_EMSGSIZE);
	value = 100;
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, sizeof(value)) == 0);
	CHECK(fi_ep_bind(p.b.ep, &p.b.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	enable_ep(&p.b);
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, sizeof(value)) == -FI_EOPBADSTATE);
	p.to_b = insert(&p.a, p.b.name);
	fill(101, 9);
	POST(fi_send(p.a.ep, big, 100, NULL, p.to_b, &contexts[0]));
	POST(fi_send(p.a.ep, big, 101, NULL, p.to_b, &contexts[0]));
	entry = notice(&p, FI_MSG | FI_RECV, 100);
	take(&p, &entry, NULL, 0, FI_DISCARD);
	entry = notice(&p, FI_MSG | FI_RECV | FI_MORE, 101);
	CHECK(!memcmp(entry.buf, big, 100));
	claim(&p, &entry, room, LONG);
	CHECK(!memcmp(room, big, 101));
	part(&p);
	/* Endpoints without the mode do not have the options. */
	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &plain_ep, NULL) == 0);
	CHECK(fi_getopt(&plain_ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, &len) == -FI_ENOPROTOOPT);
	CHECK(fi_getopt(&plain_ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &value, &len) == -FI_ENOPROTOOPT);
	CHECK(fi_close(&plain_ep->fid) == 0);
	close_side(&s);
}

/* A message that waits at its sender has its first bytes in the buffer of its entry. */
CASE_OURS(buffered_min_option)
{
	enum { MIN = 5000 };
	struct fi_cq_tagged_entry entry, other;
	size_t value = 1, len = sizeof(value), i;
	struct pair p;

	open_side(&p.a, &BUFFERED);
	open_domain(&p.b, &BUFFERED);
	CHECK(fi_endpoint(p.b.domain, p.b.info, &p.b.ep, &p.b) == 0);
	CHECK(fi_getopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &value, &len) == 0 && value == 0);
	value = LIMIT + 1;
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &value, sizeof(value)) == -FI_EMSGSIZE);
	value = LIMIT;
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &value, sizeof(value)) == 0);
	value = MIN;
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &value, sizeof(value)) == 0);
	value = 0;
	CHECK(fi_getopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &value, &len) == 0 && value == MIN);
	CHECK(fi_ep_bind(p.b.ep, &p.b.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	enable_ep(&p.b);
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &value, sizeof(value)) == -FI_EOPBADSTATE);
	p.to_b = insert(&p.a, p.b.name);
	for (i = 0; i < 20; i++) {
		fill(LONG, (unsigned) i);
		POST(fi_send(p.a.ep, big, LONG, NULL, p.to_b, &contexts[0]));
		POST(fi_send(p.a.ep, big, 16, NULL, p.to_b, &contexts[1]));
		/* In their order, whatever their lengths. */
		entry = notice(&p, FI_MSG | FI_RECV | FI_MORE, LONG);
		CHECK(entry.buf && !memcmp(entry.buf, big, MIN));
		other = notice(&p, FI_MSG | FI_RECV, 16);
		CHECK(!memcmp(other.buf, big, 16));
		take(&p, &other, NULL, 0, FI_DISCARD);
		done(&p.a, &p.b, &contexts[1]);
		if (i % 3 == 0) {
			take(&p, &entry, NULL, 0, FI_DISCARD);
		} else {
			memset(room, 0, LONG);
			claim(&p, &entry, room, LONG);
			CHECK(!memcmp(room, big, LONG));
		}
		done(&p.a, &p.b, &contexts[0]);
	}
	/* The same for tags, which may be posted later. */
	POST(fi_tsend(p.a.ep, big, LONG, NULL, p.to_b, 7, &contexts[0]));
	quiet(&p.b, &p.a);
	POST(fi_trecv(p.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[2]));
	entry = notice(&p, FI_TAGGED | FI_RECV | FI_MORE, LONG);
	CHECK(entry.buf && !memcmp(entry.buf, big, MIN));
	memset(room, 0, LONG);
	claim(&p, &entry, room, LONG);
	CHECK(!memcmp(room, big, LONG));
	done(&p.a, &p.b, &contexts[0]);
	part(&p);
}

/* The next notice of a tagged message, for the posted tag with this context. */
static struct fi_cq_tagged_entry tag_notice(struct pair *p, uint64_t flags, size_t len, uint64_t tag, void *context)
{
	struct fi_cq_tagged_entry entry = notice(p, FI_TAGGED | FI_RECV | flags, len);

	CHECK(entry.tag == tag && ((struct fi_recv_context *) entry.op_context)->context == context);
	return entry;
}

static void tagged_messages(const struct want *w)
{
	struct fi_cq_tagged_entry entry, other;
	struct pair p;

	meet(&p, w);
	fill(LONG, 5);
	/* The buffers of the receives are not used. */
	strcpy(room, "untouched");
	POST(fi_trecv(p.b.ep, room, 16, NULL, FI_ADDR_UNSPEC, 2, 0, &contexts[2]));
	POST(fi_trecv(p.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[1]));
	POST(fi_tsend(p.a.ep, "one", 4, NULL, p.to_b, 1, &contexts[0]));
	POST(fi_tsend(p.a.ep, big, LONG, NULL, p.to_b, 2, &contexts[3]));
	/* No tag is posted for this one. */
	POST(fi_tsend(p.a.ep, "three", 6, NULL, p.to_b, 3, &contexts[0]));
	entry = tag_notice(&p, 0, 4, 1, &contexts[1]);
	CHECK(!strcmp(entry.buf, "one"));
	other = tag_notice(&p, FI_MORE, LONG, 2, &contexts[2]);
	CHECK(!strcmp(room, "untouched"));
	quiet(&p.b, &p.a);
	take(&p, &entry, NULL, 0, FI_DISCARD);
	claim(&p, &other, room, LONG);
	CHECK(!memcmp(room, big, LONG));
	/* It comes when its tag is posted, short as it is, and a long one too. */
	POST(fi_tsend(p.a.ep, big, LONG, NULL, p.to_b, 4, &contexts[3]));
	quiet(&p.b, &p.a);
	POST(fi_trecv(p.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 4, 0, &contexts[4]));
	POST(fi_trecv(p.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 0, ~0ULL, &contexts[5]));
	entry = tag_notice(&p, FI_MORE, LONG, 4, &contexts[4]);
	other = tag_notice(&p, 0, 6, 3, &contexts[5]);
	CHECK(!strcmp(other.buf, "three"));
	claim(&p, &other, room, 6);
	memset(room, 0, LONG);
	claim(&p, &entry, room, LONG);
	CHECK(!memcmp(room, big, LONG));
	/* A posted tag can be canceled. */
	POST(fi_trecv(p.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 9, 0, &contexts[6]));
	CHECK(fi_cancel(&p.b.ep->fid, &contexts[6]) == 0);
	CHECK(failed(&p.b, &p.a, FI_ECANCELED).op_context == &contexts[6]);
	/* Untagged messages come all the same. */
	POST(fi_send(p.a.ep, "plain", 6, NULL, p.to_b, &contexts[0]));
	entry = notice(&p, FI_MSG | FI_RECV, 6);
	take(&p, &entry, NULL, 0, FI_DISCARD);
	part(&p);
}

CASE_OURS(buffered_tagged_messages)
{
	tagged_messages(&BUFFERED);
	tagged_messages(&CONNECTED);
}

/* Claims a message into a buffer of its own, which the claim's entry names. */
static void claim_later(struct pair *p, const struct fi_cq_tagged_entry *entry)
{
	struct fi_recv_context *context = entry->op_context;

	CHECK(context->context = calloc(1, entry->len + 1));
	take(p, entry, context->context, entry->len, FI_CLAIM);
}

/* Different messages of all lengths, some claimed later, some at once, some discarded. */
CASE_OURS(buffered_streams)
{
	enum { COUNT = STREAM, HELD = 8 };
	static const size_t sizes[] = { 0, 1, 16, 17, 4000, 20000, LIMIT, LIMIT + 1, 200000, LONG };
	struct fi_cq_tagged_entry held[HELD], entry;
	struct pair p;
	size_t sent = 0, seen = 0, completed = 0, noticed = 0, i;
	double end = seconds() + 30;

	meet(&p, &BUFFERED);
	fill(sizeof(big), 0);
	memset(held, 0, sizeof(held));
	while (seen < COUNT || completed < COUNT) {
		CHECK(seconds() < end);
		if (sent < COUNT && fi_senddata(p.a.ep, big + sent, sizes[sent % ARRAY(sizes)], NULL, sent, p.to_b, NULL) == 0)
			sent++;
		completed += fi_cq_read(p.a.cq, &entry, 1) == 1;
		if (fi_cq_read(p.b.cq, &entry, 1) != 1)
			continue;
		if (entry.flags & FI_CLAIM) {
			CHECK(!memcmp(entry.op_context, big + entry.data, entry.len));
			CHECK(entry.len == sizes[entry.data % ARRAY(sizes)]);
			free(entry.op_context);
			seen++;
			continue;
		}
		/* Long messages do not change their order. */
		CHECK(entry.data == noticed++);
		CHECK(entry.len == sizes[entry.data % ARRAY(sizes)]);
		if (!(entry.flags & FI_MORE))
			CHECK(!memcmp(entry.buf, big + entry.data, entry.len));
		CHECK(!(entry.flags & FI_MORE) == (entry.len <= LIMIT));
		if (entry.data % 3 == 0) {
			take(&p, &entry, NULL, 0, FI_DISCARD);
			seen++;
			continue;
		}
		/* The oldest held one gives way. */
		i = entry.data % HELD;
		if (held[i].op_context)
			claim_later(&p, &held[i]);
		held[i] = entry;
		if (sent == COUNT)
			for (i = 0; i < HELD; i++)
				if (held[i].op_context) {
					claim_later(&p, &held[i]);
					held[i].op_context = NULL;
				}
	}
	part(&p);
}

CASE_OURS(buffered_messages_of_ended_peers)
{
	struct fi_cq_tagged_entry entry, lost;
	struct pair p;

	meet(&p, &BUFFERED);
	fill(LONG, 1);
	POST(fi_send(p.a.ep, "kept", 5, NULL, p.to_b, &contexts[0]));
	POST(fi_send(p.a.ep, big, LONG, NULL, p.to_b, &contexts[1]));
	entry = notice(&p, FI_MSG | FI_RECV, 5);
	lost = notice(&p, FI_MSG | FI_RECV | FI_MORE, LONG);
	close_side(&p.a);
	quiet(&p.b, NULL);
	/* It is here; the other was not. */
	CHECK(!strcmp(entry.buf, "kept"));
	((struct fi_recv_context *) entry.op_context)->context = &contexts[2];
	take(&p, &entry, room, 8, FI_CLAIM);
	done(&p.b, NULL, &contexts[2]);
	CHECK(!strcmp(room, "kept"));
	((struct fi_recv_context *) lost.op_context)->context = &contexts[3];
	take(&p, &lost, room, LONG, FI_CLAIM);
	{
		struct fi_cq_err_entry err;

		CHECK(next(&p.b, NULL, &entry, &err, 10) == 0);
		CHECK(err.op_context == &contexts[3] && err.err && err.err != FI_ENOMSG);
	}
	close_side(&p.b);
}

/* Messages that are neither claimed nor discarded hold their sender up, and none is lost. */
CASE_OURS(buffered_messages_hold_their_sender_up)
{
	enum { COUNT = 4096, LEN = 4096 };
	static struct fi_cq_tagged_entry held[COUNT];
	struct fi_cq_tagged_entry entry;
	size_t sent = 0, completed = 0, noticed = 0, taken = 0;
	double end = seconds() + 30, idle = end;
	struct pair p;

	meet(&p, &BUFFERED);
	/* 16 MiB are more than a link holds of early messages. */
	while (seconds() < idle) {
		if (sent < COUNT && fi_senddata(p.a.ep, big, LEN, NULL, sent, p.to_b, NULL) == 0)
			sent++;
		completed += fi_cq_read(p.a.cq, &entry, 1) == 1;
		if (fi_cq_read(p.b.cq, &held[noticed], 1) == 1) {
			noticed++;
			idle = seconds() + 0.5;
		}
	}
	CHECK(noticed > 0 && noticed < COUNT && completed < COUNT);
	while (taken < COUNT || completed < COUNT) {
		CHECK(seconds() < end);
		if (sent < COUNT && fi_senddata(p.a.ep, big, LEN, NULL, sent, p.to_b, NULL) == 0)
			sent++;
		completed += fi_cq_read(p.a.cq, &entry, 1) == 1;
		if (fi_cq_read(p.b.cq, &held[noticed < COUNT ? noticed : 0], 1) == 1)
			noticed++;
		if (taken < noticed) {
			CHECK(held[taken].data == taken);
			take(&p, &held[taken++], NULL, 0, FI_DISCARD);
		}
	}
	CHECK(noticed == COUNT);
	quiet(&p.b, &p.a);
	part(&p);
}

static int variable(uint32_t api, enum fi_ep_type type, uint64_t caps, uint64_t rx_caps, size_t rx_ctx_cnt)
{
	struct want w = { .type = type, .api = api };
	struct fi_info *hints = hints_for(&w), *list = NULL;
	int ret, found = 0;

	hints->caps = caps;
	hints->rx_attr->caps = rx_caps;
	hints->ep_attr->rx_ctx_cnt = rx_ctx_cnt;
	hints->domain_attr->mr_mode = 0;
	ret = fi_getinfo(api, NULL, NULL, 0, hints, &list);
	CHECK(ret == 0 || ret == -FI_ENODATA);
	if (ret == 0) {
		found = !!(list->caps & VARIABLE_MSG);
		CHECK(found == !!(list->rx_attr->caps & VARIABLE_MSG));
		CHECK(!(list->tx_attr->caps & VARIABLE_MSG) && !(list->mode & FI_BUFFERED_RECV));
		/* Their length has no limit. */
		if (found)
			CHECK(list->ep_attr->max_msg_size == SIZE_MAX);
		fi_freeinfo(list);
	}
	fi_freeinfo(hints);
	return ret ? ret : found;
}

CASE_OURS(variable_messages_are_offered)
{
	CHECK(variable(FI_VERSION(1, 7), FI_EP_RDM, FI_MSG | VARIABLE_MSG, 0, 0) == 1);
	CHECK(variable(FI_VERSION(1, 20), FI_EP_RDM, FI_TAGGED | VARIABLE_MSG, 0, 0) == 1);
	CHECK(variable(FI_VERSION(1, 17), FI_EP_MSG, FI_MSG | FI_TAGGED | VARIABLE_MSG, FI_MSG | VARIABLE_MSG, 0) == 1);
	CHECK(variable(FI_VERSION(1, 17), FI_EP_RDM, FI_MSG, FI_MSG | VARIABLE_MSG, 0) == 1);
	/* A primary capability: only those who ask get it. */
	CHECK(variable(FI_VERSION(1, 17), FI_EP_RDM, FI_MSG, 0, 0) == 0);
	CHECK(variable(FI_VERSION(1, 17), FI_EP_RDM, 0, 0, 0) == 0);
	/* It needs messages, and reliable endpoints with receive contexts of their own. */
	CHECK(variable(FI_VERSION(1, 17), FI_EP_RDM, FI_RMA | VARIABLE_MSG, 0, 0) == -FI_ENODATA);
	REFUSED("FI_VARIABLE_MSG of datagram endpoints, or with a shared receive context (fi_getinfo)", FI_ENODATA,
		variable(FI_VERSION(1, 17), FI_EP_DGRAM, FI_MSG | VARIABLE_MSG, 0, 0));
	REFUSED("FI_VARIABLE_MSG of datagram endpoints, or with a shared receive context (fi_getinfo)", FI_ENODATA,
		variable(FI_VERSION(1, 17), FI_EP_RDM, FI_MSG | VARIABLE_MSG, 0, FI_SHARED_CONTEXT));
	/* Earlier and later interfaces do not have it. */
	CHECK(variable(FI_VERSION(1, 6), FI_EP_RDM, FI_MSG | VARIABLE_MSG, 0, 0) == -FI_ENODATA);
	CHECK(variable(FI_VERSION(1, 21), FI_EP_RDM, FI_MSG | VARIABLE_MSG, 0, 0) == -FI_ENODATA);
}

CASE_OURS(variable_messages)
{
	plain_messages(&VARIABLE);
	plain_messages(&VARIABLE_CONNECTED);
	tagged_messages(&VARIABLE);
	tagged_messages(&VARIABLE_CONNECTED);
	long_messages(&VARIABLE);
}

/* A receive context of a scalable endpoint has buffered receives of its own. */
CASE_OURS(buffered_receive_contexts)
{
	struct want w = BUFFERED;
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cq_tagged_entry entry;
	const struct fi_recv_context *context;
	struct fi_info *hints, *info;
	struct fid_cq *cq[2];
	struct fid_ep *sep, *rx[2];
	struct fi_msg msg = { 0 };
	struct side a, b;
	char name[64];
	size_t len = sizeof(name), i;
	double end = seconds() + 10;
	fi_addr_t to;

	open_side(&a, &w);
	open_domain(&b, &w);
	hints = hints_for(&w);
	hints->ep_attr->rx_ctx_cnt = 2;
	CHECK(fi_getinfo(w.api, NULL, NULL, 0, hints, &info) == 0);
	fi_freeinfo(hints);
	CHECK(info->mode & FI_BUFFERED_RECV);
	if (!within_host(&w)) {
		free(info->src_addr);
		info->src_addr = NULL;
		info->src_addrlen = 0;
	}
	CHECK(fi_scalable_ep(b.domain, info, &sep, NULL) == 0);
	CHECK(fi_scalable_ep_bind(sep, &b.av->fid, 0) == 0);
	for (i = 0; i < 2; i++) {
		CHECK(fi_cq_open(b.domain, &attr, &cq[i], NULL) == 0);
		CHECK(fi_rx_context(sep, (int) i, NULL, &rx[i], NULL) == 0);
		CHECK(fi_ep_bind(rx[i], &cq[i]->fid, FI_RECV) == 0);
		CHECK(fi_enable(rx[i]) == 0);
	}
	CHECK(fi_enable(sep) == 0);
	CHECK(fi_getname(&sep->fid, name, &len) == 0);
	to = insert(&a, name);
	POST(fi_send(a.ep, "context", 8, NULL, to, &contexts[0]));
	while (fi_cq_read(cq[0], &entry, 1) != 1) {
		CHECK(seconds() < end);
		drive();
	}
	/* Messages without a name go to the first context. */
	context = entry.op_context;
	CHECK(context->ep == rx[0] && !context->context && !strcmp(entry.buf, "context"));
	msg.context = entry.op_context;
	CHECK(fi_recvmsg(rx[1], &msg, FI_DISCARD) == -FI_EINVAL);
	CHECK(fi_recvmsg(rx[0], &msg, FI_DISCARD) == 0);
	for (i = 0; i < 2; i++) {
		CHECK(fi_close(&rx[i]->fid) == 0);
		CHECK(fi_close(&cq[i]->fid) == 0);
	}
	CHECK(fi_close(&sep->fid) == 0);
	fi_freeinfo(info);
	close_side(&a);
	close_side(&b);
}

/* A shared context has no buffered receives, and so an endpoint with them takes none. */
CASE_OURS(buffered_needs_an_own_context)
{
	struct want w = BUFFERED;
	struct fid_ep *srx, *ep;
	struct side s;

	open_domain(&s, &w);
	CHECK(fi_srx_context(s.domain, s.info->rx_attr, &srx, NULL) == 0);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	REFUSED("a shared receive context for an endpoint with FI_BUFFERED_RECV or FI_VARIABLE_MSG (fi_ep_bind)",
		FI_EINVAL, fi_ep_bind(ep, &srx->fid, 0));
	CHECK(fi_close(&ep->fid) == 0);
	CHECK(fi_close(&srx->fid) == 0);
	close_side(&s);
}

/* Peeks copy the beginning of the message for callers of 1.x. */
static void peeks(uint32_t api, int copies)
{
	struct want w = { .caps = FI_TAGGED, .api = api };
	struct iovec iov = { room, 4 };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 5, .context = &contexts[0] };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;
	double end = seconds() + 10;
	int ret;

	meet(&p, &w);
	memset(room, 'z', 8);
	POST(fi_tinject(p.a.ep, "message", 8, p.to_b, 5));
	do {
		POST(fi_trecvmsg(p.b.ep, &msg, FI_PEEK));
		ret = next(&p.b, &p.a, &entry, &err, 10);
		CHECK(ret == 1 || (ret == 0 && err.err == FI_ENOMSG));
		fi_cq_read(p.a.cq, NULL, 0);
	} while (!ret && seconds() < end);
	CHECK(ret == 1 && entry.len == 8 && entry.tag == 5);
	CHECK(entry.buf == (copies ? room : NULL));
	CHECK(!memcmp(room, copies ? "messzzzz" : "zzzzzzzz", 8));
	/* The message stays. */
	POST(fi_trecv(p.b.ep, room, 8, NULL, FI_ADDR_UNSPEC, 5, 0, &contexts[2]));
	done(&p.b, &p.a, &contexts[2]);
	CHECK(!strcmp(room, "message"));
	part(&p);
}

CASE_OURS(compat_peek_copies)
{
	peeks(FI_VERSION(1, 17), 1);
	if (API >= FI_VERSION(2, 0))
		peeks(API, 0);
}
