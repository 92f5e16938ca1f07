/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An endpoint with everything it needs, over loopback. */
#ifndef SIDE_H
#define SIDE_H

#include <poll.h>
#include <string.h>
#include <time.h>

#include "all.h"
#include "completion.h"

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	char name[64];
	size_t len;
};

/* The threading level of the endpoints: tests run with and without locking. */
static enum fi_threading threading = FI_THREAD_SAFE;
/* Capabilities in addition to those of messages. */
static uint64_t more_caps;

/* OFI_TEST_PROVIDER, or tcp. */
static inline const char *provider(void)
{
	const char *name = getenv("OFI_TEST_PROVIDER");

	return name ? name : "tcp";
}

static inline int within_host(void)
{
	return !strcmp(provider(), "shm");
}

static inline struct fi_info *find(enum fi_ep_type type)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	CHECK(hints);
	hints->ep_attr->type = type;
	hints->caps = FI_MSG | FI_TAGGED | more_caps | (type == FI_EP_RDM ? FI_DIRECTED_RECV | FI_SOURCE : 0);
	hints->fabric_attr->prov_name = strdup(provider());
	hints->domain_attr->threading = threading;
	/* FI_THREAD_DOMAIN omits locks only with unified control progress. */
	if (threading == FI_THREAD_DOMAIN)
		hints->domain_attr->data_progress = hints->domain_attr->control_progress = FI_PROGRESS_CONTROL_UNIFIED;
	if (within_host())
		CHECK(fi_getinfo(FI_VERSION(2, 6), NULL, NULL, 0, hints, &info) == 0);
	else
		CHECK(fi_getinfo(FI_VERSION(2, 6), own_node(), NULL, FI_SOURCE, hints, &info) == 0);
	CHECK(info->domain_attr->threading == threading);
	fi_freeinfo(hints);
	return info;
}

/* Everything but the endpoint. */
static inline void open_domain(struct side *s, struct fi_info *info, enum fi_wait_obj wait)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };

	memset(s, 0, sizeof(*s));
	s->info = info;
	CHECK(fi_fabric(info->fabric_attr, &s->fabric, NULL) == 0);
	CHECK(fi_domain(s->fabric, info, &s->domain, NULL) == 0);
	CHECK(fi_eq_open(s->fabric, &eq_attr, &s->eq, NULL) == 0);
	CHECK(fi_cq_open(s->domain, &cq_attr, &s->cq, NULL) == 0);
	CHECK(fi_av_open(s->domain, &av_attr, &s->av, NULL) == 0);
}

static inline void open_ep(struct side *s, struct fi_info *info, uint64_t flags)
{
	CHECK(fi_endpoint(s->domain, info, &s->ep, s) == 0);
	CHECK(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV | flags) == 0);
	CHECK(fi_ep_bind(s->ep, &s->eq->fid, 0) == 0);
	if (info->ep_attr->type == FI_EP_RDM)
		CHECK(fi_ep_bind(s->ep, &s->av->fid, 0) == 0);
	CHECK(fi_enable(s->ep) == 0);
	CHECK(fi_enable(s->ep) == 0);
	s->len = 0;
	CHECK(fi_getname(&s->ep->fid, NULL, &s->len) == -FI_ETOOSMALL);
	CHECK(s->len > 0 && s->len <= sizeof(s->name));
	CHECK(fi_getname(&s->ep->fid, s->name, &s->len) == 0);
}

static inline void open_rdm(struct side *s, enum fi_wait_obj wait)
{
	struct fi_info *info = find(FI_EP_RDM);

	open_domain(s, info, wait);
	open_ep(s, info, 0);
}

static inline fi_addr_t insert(struct side *s, const void *name)
{
	fi_addr_t addr = 77;

	CHECK(fi_av_insert(s->av, name, 1, &addr, 0, NULL) == 1);
	return addr;
}

static inline void close_side(struct side *s)
{
	if (s->ep)
		CHECK(fi_close(&s->ep->fid) == 0);
	CHECK(fi_close(&s->av->fid) == 0);
	CHECK(fi_close(&s->cq->fid) == 0);
	CHECK(fi_close(&s->eq->fid) == 0);
	CHECK(fi_close(&s->domain->fid) == 0);
	CHECK(fi_close(&s->fabric->fid) == 0);
	fi_freeinfo(s->info);
}

/* Reads the next completion of `s`: 1, or 0 for an error in `err`. Both sides make progress. */
static inline int next_of(struct side *s, struct side *other, struct fi_cq_tagged_entry *entry,
	struct fi_cq_err_entry *err)
{
	int found = next_entry(s->cq, other ? other->cq : NULL, entry, err, 30);

	if (found < 0) {
		fprintf(stderr, "nothing completes\n");
		exit(1);
	}
	return found;
}

/* Waits until a message with this tag, which no receive matches, has arrived at `s`. Both sides make progress. */
static inline void await_tagged(struct side *s, struct side *from, uint64_t tag, void *context)
{
	struct fi_msg_tagged msg = { .addr = FI_ADDR_UNSPEC, .tag = tag, .context = context };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	double end = seconds() + 30;

	CHECK(fi_trecvmsg(s->ep, &msg, FI_PEEK) == 0);
	while (!next_of(s, from, &entry, &err)) {
		CHECK(err.err == FI_ENOMSG && seconds() < end);
		CHECK(fi_trecvmsg(s->ep, &msg, FI_PEEK) == 0);
	}
	CHECK(entry.op_context == context && entry.tag == tag);
}

static inline struct fi_cq_tagged_entry done(struct side *s, struct side *other, void *context, uint64_t flags)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;

	if (!next_of(s, other, &entry, &err)) {
		char text[256];

		fprintf(stderr, "failed: %s: %s\n", fi_strerror(err.err),
			fi_cq_strerror(s->cq, err.prov_errno, NULL, text, sizeof(text)));
		exit(1);
	}
	if (entry.op_context != context || entry.flags != flags)
		fprintf(stderr, "context %p flags %#llx instead of %p %#llx\n", entry.op_context,
			(unsigned long long) entry.flags, context, (unsigned long long) flags);
	CHECK(entry.op_context == context);
	CHECK(entry.flags == flags);
	return entry;
}

/* Reads the next event, of up to `len` bytes, while both sides make progress. */
static inline uint32_t event_of(struct side *s, struct side *other, void *buf, size_t len)
{
	double end = seconds() + 30;
	uint32_t number;

	while (seconds() < end) {
		ssize_t ret = fi_eq_read(s->eq, &number, buf, len, 0);

		if (ret > 0)
			return number;
		if (ret == -FI_EAVAIL) {
			struct fi_eq_err_entry err = { 0 };
			char text[256];

			fi_eq_readerr(s->eq, &err, 0);
			fprintf(stderr, "failed: %s: %s\n", fi_strerror(err.err),
				fi_eq_strerror(s->eq, err.prov_errno, NULL, text, sizeof(text)));
			exit(1);
		}
		CHECK(ret == -FI_EAGAIN);
		if (other)
			fi_eq_read(other->eq, &number, NULL, 0, 0);
	}
	fprintf(stderr, "no event comes\n");
	exit(1);
}

/* Connects two endpoints; the client uses `of_client`, or else the result of find(). */
static inline void connect_pair(struct side *server, struct side *client, struct fi_info *of_client)
{
	struct fi_eq_cm_entry cm;
	struct fid_pep *pep;
	char name[64];
	size_t len = sizeof(name);

	open_domain(server, find(FI_EP_MSG), FI_WAIT_NONE);
	CHECK(fi_passive_ep(server->fabric, server->info, &pep, NULL) == 0);
	CHECK(fi_pep_bind(pep, &server->eq->fid, 0) == 0);
	CHECK(fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	open_domain(client, of_client ? of_client : find(FI_EP_MSG), FI_WAIT_NONE);
	open_ep(client, client->info, 0);
	CHECK(fi_connect(client->ep, name, NULL, 0) == 0);
	CHECK(event_of(server, client, &cm, sizeof(cm)) == FI_CONNREQ);
	open_ep(server, cm.info, 0);
	CHECK(fi_accept(server->ep, NULL, 0) == 0);
	fi_freeinfo(cm.info);
	CHECK(event_of(server, client, &cm, sizeof(cm)) == FI_CONNECTED);
	CHECK(event_of(client, server, &cm, sizeof(cm)) == FI_CONNECTED);
	CHECK(fi_close(&pep->fid) == 0);
}

#endif
