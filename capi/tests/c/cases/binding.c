/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Event queues of a domain and of an endpoint, and replacing one (fi_domain(3), fi_endpoint(3)). */
#include "door.h"

static const struct want GROUP = { .type = FI_EP_DGRAM, .caps = FI_MULTICAST };

/* An endpoint without an event queue. */
static void open_without_eq(struct side *s)
{
	CHECK(fi_endpoint(s->domain, s->info, &s->ep, s) == 0);
	CHECK(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
}

static void close_all(struct side *s)
{
	CHECK(fi_close(&s->ep->fid) == 0);
	s->ep = NULL;
	/* A queue bound to a domain must be closed after it. */
	CHECK(fi_close(&s->eq->fid) == -FI_EBUSY);
	CHECK(fi_close(&s->av->fid) == 0 && fi_close(&s->cq->fid) == 0 && fi_close(&s->domain->fid) == 0);
	CHECK(fi_close(&s->eq->fid) == 0 && fi_close(&s->fabric->fid) == 0);
	fi_freeinfo(s->info);
}

static void refuse(struct door *d, struct side *a)
{
	struct event event;
	uint32_t number;

	CHECK(event_of(&d->s, a, &number, &event, sizeof(event)) >= (ssize_t) sizeof(event.cm) && number == FI_CONNREQ);
	CHECK(fi_reject(d->pep, event.cm.info->handle, NULL, 0) == 0);
	fi_freeinfo(event.cm.info);
}

static int is_refusal(struct side *s, struct fid_eq *eq)
{
	struct fi_eq_err_entry err = { 0 };

	return fi_eq_readerr(eq, &err, 0) == sizeof(err) && err.err == FI_ECONNREFUSED && err.fid == &s->ep->fid &&
		err.context == s;
}

CASE_OURS(domain_eq_gets_endpoint_events)
{
	struct event event;
	uint32_t number;
	struct door d;
	struct side a;

	listen_at(&d);
	open_domain(&a, &MSG);
	open_without_eq(&a);
	CHECK(fi_enable(a.ep) == -FI_ENOEQ);
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == -FI_ENOEQ);
	CHECK(fi_domain_bind(a.domain, &a.eq->fid, 0) == 0);
	CHECK(fi_enable(a.ep) == 0 && fi_connect(a.ep, d.name, NULL, 0) == 0);
	refuse(&d, &a);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	CHECK(is_refusal(&a, a.eq));
	close_all(&a);
	close_door(&d);
}

CASE_OURS(endpoint_eq_overrides_the_domain_eq)
{
	struct event event;
	struct fid_eq *own, *of_domain;
	uint32_t number;
	struct door d;
	struct side a;

	listen_at(&d);
	open_domain(&a, &MSG);
	CHECK(fi_eq_open(a.fabric, NULL, &own, NULL) == 0);
	CHECK(fi_domain_bind(a.domain, &a.eq->fid, 0) == 0);
	open_without_eq(&a);
	CHECK(fi_ep_bind(a.ep, &own->fid, 0) == 0);
	of_domain = a.eq;
	a.eq = own;
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == 0);
	refuse(&d, &a);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	CHECK(is_refusal(&a, own));
	a.eq = of_domain;
	CHECK(fi_eq_read(a.eq, &number, &event, sizeof(event), 0) == -FI_EAGAIN);
	CHECK(fi_close(&a.ep->fid) == 0);
	/* No domain or endpoint holds it any more. */
	CHECK(fi_close(&own->fid) == 0);
	CHECK(fi_endpoint(a.domain, a.info, &a.ep, &a) == 0);
	close_all(&a);
	close_door(&d);
}

CASE_OURS(domain_eq_gets_join_events)
{
	unsigned char group[16] = { 2, 0, 0x44, 0x45, 239, 7, 7, 8 };
	struct fi_eq_entry event;
	struct fid_mc *mc;
	uint32_t number;
	struct side s;

	open_domain(&s, &GROUP);
	CHECK(fi_endpoint(s.domain, s.info, &s.ep, &s) == 0);
	CHECK(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(s.ep, &s.av->fid, 0) == 0);
	CHECK(fi_enable(s.ep) == 0);
	CHECK(fi_join(s.ep, group, 0, &mc, &contexts[5]) == -FI_ENOEQ);
	CHECK(fi_domain_bind(s.domain, &s.eq->fid, 0) == 0);
	CHECK(fi_join(s.ep, group, 0, &mc, &contexts[5]) == 0);
	CHECK(fi_eq_sread(s.eq, &number, &event, sizeof(event), 10000, 0) == (ssize_t) sizeof(event));
	CHECK(number == FI_JOIN_COMPLETE && event.fid == &mc->fid && event.context == &contexts[5]);
	CHECK(fi_close(&mc->fid) == 0);
	close_all(&s);
}

CASE_OURS(replacing_an_eq_moves_its_events)
{
	struct fid_eq *first;
	struct event event;
	uint32_t number;
	double end = seconds() + 10;
	struct door d;
	struct side a;

	listen_at(&d);
	open_domain(&a, &MSG);
	CHECK(fi_eq_open(a.fabric, NULL, &first, NULL) == 0);
	open_without_eq(&a);
	CHECK(fi_ep_bind(a.ep, &first->fid, 0) == 0 && fi_close(&first->fid) == -FI_EBUSY);
	/* Before the endpoint is enabled. */
	CHECK(fi_ep_bind(a.ep, &a.eq->fid, 0) == 0 && fi_close(&first->fid) == 0);
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == 0);
	refuse(&d, &a);
	while (fi_eq_read(a.eq, &number, &event, sizeof(event), FI_PEEK) == -FI_EAGAIN && seconds() < end)
		fi_eq_read(d.s.eq, &number, NULL, 0, FI_PEEK);
	/* And afterwards, with an unread event. */
	CHECK(fi_eq_open(a.fabric, NULL, &first, NULL) == 0);
	CHECK(fi_ep_bind(a.ep, &first->fid, 0) == 0);
	CHECK(fi_eq_read(a.eq, &number, &event, sizeof(event), 0) == -FI_EAGAIN);
	CHECK(fi_close(&a.eq->fid) == 0);
	a.eq = first;
	CHECK(fi_eq_read(a.eq, &number, &event, sizeof(event), 0) == -FI_EAVAIL);
	CHECK(is_refusal(&a, a.eq));
	close_side(&a);
	close_door(&d);
}

/* The queue that replaces another makes the endpoint's progress from then on. */
CASE_OURS(new_eq_drives_progress)
{
	struct fid_eq *next_eq;
	struct event event;
	uint32_t number;
	double end = seconds() + 10;
	ssize_t ret;
	struct pair p;

	meet(&p, &MSG);
	CHECK(fi_eq_open(p.a.fabric, NULL, &next_eq, NULL) == 0);
	CHECK(fi_ep_bind(p.a.ep, &next_eq->fid, 0) == 0);
	CHECK(fi_close(&p.a.eq->fid) == 0);
	p.a.eq = next_eq;
	CHECK(fi_shutdown(p.b.ep, 0) == 0);
	do {
		ret = fi_eq_read(p.a.eq, &number, &event, sizeof(event), 0);
	} while (ret == -FI_EAGAIN && seconds() < end);
	CHECK(ret == (ssize_t) sizeof(event.cm) && number == FI_SHUTDOWN && event.cm.fid == &p.a.ep->fid);
	part(&p);
}

/* An alias may be closed before the endpoint: events never name it. */
CASE_OURS(events_name_the_endpoint_not_its_alias)
{
	struct fid_ep *alias;
	struct event event;
	uint32_t number;
	struct door d;
	struct side a;

	listen_at(&d);
	open_domain(&a, &MSG);
	open_without_eq(&a);
	CHECK(fi_ep_alias(a.ep, &alias, FI_TRANSMIT) == 0);
	CHECK(fi_ep_bind(alias, &a.eq->fid, 0) == 0);
	CHECK(fi_close(&alias->fid) == 0);
	CHECK(fi_connect(a.ep, d.name, NULL, 0) == 0);
	refuse(&d, &a);
	CHECK(event_of(&a, &d.s, &number, &event, sizeof(event)) == -FI_EAVAIL);
	CHECK(is_refusal(&a, a.eq));
	close_side(&a);
	close_door(&d);
}

CASE_OURS(ep_bind_flags_of_other_objects)
{
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.av->fid, FI_SEND) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, &s.eq->fid, FI_SEND) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, &s.domain->fid, FI_SEND) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, &s.fabric->fid, FI_RECV) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, &s.domain->fid, 0) == -FI_EINVAL);
	CHECK(fi_ep_bind(ep, NULL, 0) == -FI_EINVAL);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}
