/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the benchmarks within a host have in common: an endpoint of the provider shm for tagged messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define MUST(what) do { if (!(what)) { fprintf(stderr, "%d: %s\n", __LINE__, #what); exit(1); } } while (0)

struct side {
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	char name[128];
	size_t len;
};

/* In microseconds. */
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1e6 + (double) t.tv_nsec / 1e3;
}

/* `blocks`: its queue is to be waited on. */
static struct side open_side(int blocks)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .size = 4096 };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct side s = { .len = sizeof(s.name) };

	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->fabric_attr->prov_name = strdup("shm");
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->data_progress = FI_PROGRESS_CONTROL_UNIFIED;
	hints->domain_attr->control_progress = FI_PROGRESS_CONTROL_UNIFIED;
	hints->domain_attr->mr_mode = ~3;
	cq_attr.wait_obj = blocks ? FI_WAIT_UNSPEC : FI_WAIT_NONE;
	MUST(fi_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, hints, &info) == 0);
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
	MUST(fi_domain(fabric, info, &domain, NULL) == 0);
	MUST(fi_cq_open(domain, &cq_attr, &s.cq, NULL) == 0);
	MUST(fi_av_open(domain, &av_attr, &s.av, NULL) == 0);
	MUST(fi_endpoint(domain, info, &s.ep, NULL) == 0);
	MUST(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	MUST(fi_ep_bind(s.ep, &s.av->fid, 0) == 0);
	MUST(fi_enable(s.ep) == 0);
	MUST(fi_getname(&s.ep->fid, s.name, &s.len) == 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return s;
}

static long sent, received;

/* Counts what has completed. */
static void count_up(const struct fi_cq_tagged_entry *entries, ssize_t n)
{
	MUST(n > 0);
	while (n-- > 0)
		if (entries[n].flags & FI_RECV)
			received++;
		else
			sent++;
}

static fi_addr_t insert(struct side *s, const char *name)
{
	fi_addr_t addr;

	MUST(fi_av_insert(s->av, name, 1, &addr, 0, NULL) == 1);
	return addr;
}
