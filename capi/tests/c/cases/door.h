/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A passive endpoint ("door") and endpoints that connect to it. */
#ifndef DOOR_H
#define DOOR_H

#include "case.h"

static const struct want MSG = { .type = FI_EP_MSG };

struct event {
	struct fi_eq_cm_entry cm;
	char data[512];
};

/* A listening passive endpoint in its own side. */
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

/* Connects `a` to the door with data; returns the FI_CONNREQ event. */
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

#endif
