/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Actions of another thread while one waits. */
#ifndef LATER_H
#define LATER_H

#include "case.h"

/* Another thread that acts late enough for the first to sleep. */
struct later {
	struct pair *p;
	struct fid_cq *cq;
	pthread_t thread;
};

static void *send_later(void *arg)
{
	struct later *l = arg;

	poll(NULL, 0, 50);
	POST(fi_send(l->p->a.ep, "x", 1, NULL, l->p->to_b, &contexts[1]));
	done(&l->p->a, NULL, &contexts[1]);
	return NULL;
}

/* Sends a message too long for a 1-byte receive. */
static void *send_long_later(void *arg)
{
	struct later *l = arg;

	poll(NULL, 0, 50);
	POST(fi_send(l->p->a.ep, "long", 4, NULL, l->p->to_b, &contexts[1]));
	done(&l->p->a, NULL, &contexts[1]);
	return NULL;
}

static void *send_three_later(void *arg)
{
	struct later *l = arg;
	int i;

	for (i = 0; i < 3; i++) {
		poll(NULL, 0, i ? 30 : 200);
		POST(fi_inject(l->p->a.ep, "x", 1, l->p->to_b));
		fi_cq_read(l->p->a.cq, NULL, 0);
	}
	return NULL;
}

static void *signal_later(void *arg)
{
	struct later *l = arg;

	poll(NULL, 0, 50);
	CHECK(fi_cq_signal(l->cq) == 0);
	return NULL;
}

#endif
