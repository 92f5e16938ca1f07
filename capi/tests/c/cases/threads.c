/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls from several threads (fi_domain(3)). */
#include "case.h"

/* Exchanges a message at this threading level; returns the domain's level. */
static enum fi_threading talk_at_level(int level)
{
	struct want w = { .caps = FI_TAGGED, .threading = (enum fi_threading) level };
	enum fi_threading threading;
	struct pair p;
	char in[8];

	meet(&p, &w);
	threading = p.a.info->domain_attr->threading;
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
	return threading;
}

CASE(domain_threading_hints)
{
	CHECK(talk_at_level(FI_THREAD_SAFE) == FI_THREAD_SAFE);
	CHECK(talk_at_level(FI_THREAD_COMPLETION) == FI_THREAD_COMPLETION);
	CHECK(talk_at_level(FI_THREAD_DOMAIN) == FI_THREAD_DOMAIN);
	/* A program without a level gets the least restrictive one. */
	CHECK(talk_at_level(FI_THREAD_UNSPEC) == FI_THREAD_SAFE);
}

CASE_OURS(deprecated_thread_levels_work)
{
	/* FI_THREAD_FID and FI_THREAD_ENDPOINT, which 2.x headers hide from some programs. */
	talk_at_level(2);
	talk_at_level(5);
}

CASE_OURS(every_provider_is_thread_safe)
{
	static const struct { const char *provider; enum fi_ep_type type; } providers[] = {
		{ "tcp", FI_EP_RDM }, { "tcp", FI_EP_MSG }, { "tcp;ofi_rxm", FI_EP_RDM },
		{ "shm", FI_EP_RDM }, { "shm", FI_EP_MSG }, { "udp", FI_EP_DGRAM },
	};
	size_t i;

	for (i = 0; i < ARRAY(providers); i++) {
		struct want w = { .type = providers[i].type, .provider = providers[i].provider, .threading = FI_THREAD_SAFE };
		struct pair p;
		char in[8];

		meet(&p, &w);
		CHECK(p.a.info->domain_attr->threading == FI_THREAD_SAFE);
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
		done(&p.b, &p.a, &contexts[0]);
		part(&p);
	}
}

struct caller {
	struct pair *p;
	int number;
	pthread_t thread;
};

static void *call(void *arg)
{
	struct caller *c = arg;
	int i;

	for (i = 0; i < 2000; i++) {
		ssize_t ret;

		while ((ret = fi_tinject(c->p->a.ep, "x", 1, c->p->to_b, (uint64_t) c->number)) == -FI_EAGAIN)
			fi_cq_read(c->p->a.cq, NULL, 0);
		CHECK(ret == 0);
	}
	return NULL;
}

CASE(domain_concurrent_calls)
{
	struct want w = { .caps = FI_TAGGED, .threading = FI_THREAD_SAFE };
	struct caller callers[4];
	struct pair p;
	char in[4][1];
	int i, got = 0;

	meet(&p, &w);
	CHECK(p.a.info->domain_attr->threading == FI_THREAD_SAFE);
	for (i = 0; i < 4; i++) {
		callers[i] = (struct caller) { &p, i, 0 };
		CHECK(pthread_create(&callers[i].thread, NULL, call, &callers[i]) == 0);
		POST(fi_trecv(p.b.ep, in[i], 1, NULL, FI_ADDR_UNSPEC, (uint64_t) i, 0, (void *) (intptr_t) i));
	}
	while (got < 8000) {
		struct fi_cq_tagged_entry entry;
		struct fi_cq_err_entry err;

		CHECK(next(&p.b, &p.a, &entry, &err, 10) == 1);
		got++;
		i = (int) (intptr_t) entry.op_context;
		CHECK(entry.tag == (uint64_t) i);
		POST(fi_trecv(p.b.ep, in[i], 1, NULL, FI_ADDR_UNSPEC, (uint64_t) i, 0, (void *) (intptr_t) i));
	}
	for (i = 0; i < 4; i++)
		CHECK(pthread_join(callers[i].thread, NULL) == 0);
	part(&p);
}

/* Opens and closes endpoints that share queue and address vector with one in use. */
static void *control_calls(void *arg)
{
	struct side *s = arg;
	int i;

	for (i = 0; i < 200; i++) {
		struct fid_ep *ep;
		char name[64];
		size_t len = sizeof(name);
		fi_addr_t handle;

		CHECK(fi_endpoint(s->domain, s->info, &ep, NULL) == 0);
		CHECK(fi_ep_bind(ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(ep, &s->av->fid, 0) == 0);
		CHECK(fi_enable(ep) == 0 && fi_getname(&ep->fid, name, &len) == 0);
		CHECK(fi_av_insert(s->av, name, 1, &handle, 0, NULL) == 1 && fi_av_remove(s->av, &handle, 1, 0) == 0);
		CHECK(fi_close(&ep->fid) == 0);
	}
	return NULL;
}

/* Only calls on the address vector. */
static void *address_calls(void *arg)
{
	struct side *s = arg;
	int i;

	for (i = 0; i < 2000; i++) {
		char name[64], back[64];
		size_t len = sizeof(back);
		fi_addr_t handle;

		/* A different address each time, of the same length. */
		memcpy(name, s->name, sizeof(name));
		name[within_host(&s->want) ? s->len - 2 : 3] = (char) ('a' + i % 16);
		CHECK(fi_av_insert(s->av, name, 1, &handle, 0, NULL) == 1);
		CHECK(fi_av_lookup(s->av, handle, back, &len) == 0);
		CHECK(fi_av_remove(s->av, &handle, 1, 0) == 0);
	}
	return NULL;
}

/* One thread makes data calls while two others make control calls. */
static void beside_data_calls(const struct want *w, void *(*calls)(void *))
{
	pthread_t threads[2];
	struct pair p;
	char in[8];
	size_t i;

	meet(&p, w);
	for (i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, calls, &p.a) == 0);
	for (i = 0; i < 500; i++) {
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_inject(p.a.ep, "x", 1, p.to_b));
		done(&p.b, &p.a, &contexts[0]);
	}
	for (i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	part(&p);
}

CASE_OURS(control_calls_from_threads)
{
	static const enum fi_threading levels[] = { FI_THREAD_SAFE, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN };
	const uint32_t versions[] = { FI_VERSION(1, 9), FI_VERSION(1, 20), API };
	size_t i, v;

	for (i = 0; i < ARRAY(levels); i++)
		for (v = 0; v < ARRAY(versions); v++) {
			struct want w = { .caps = FI_TAGGED, .threading = levels[i], .api = versions[v] };

			if (versions[v] <= API)
				beside_data_calls(&w, control_calls);
		}
}

CASE_OURS(address_calls_from_threads)
{
	const struct want w = { .caps = FI_TAGGED, .threading = FI_THREAD_DOMAIN, .api = FI_VERSION(1, 17) };

	beside_data_calls(&w, address_calls);
}
