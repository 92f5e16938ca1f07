/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the cases of fi_getinfo(3): hints, results, and opening an info. */
#ifndef CASES_GETINFO_H
#define CASES_GETINFO_H

#include "case.h"

static int ask(uint32_t version, const char *node, const char *service, uint64_t flags, struct fi_info *hints,
	struct fi_info **out)
{
	*out = (void *) 1;
	return fi_getinfo(version, node, service, flags, hints, out);
}

static int count(struct fi_info *list)
{
	int n = 0;

	for (; list; list = list->next)
		n++;
	return n;
}

/* Number of infos that match the hints. */
static int matches(struct fi_info *hints)
{
	struct fi_info *list;
	int ret = ask(API, NULL, NULL, 0, hints, &list), n;

	if (ret == -FI_ENODATA) {
		CHECK(!list);
		return 0;
	}
	CHECK(ret == 0 && list);
	n = count(list);
	fi_freeinfo(list);
	return n;
}

static struct fi_info *plain(void)
{
	struct fi_info *hints = fi_allocinfo();

	hints->mode = ~0ULL;
	hints->domain_attr->mode = ~0ULL;
	hints->domain_attr->mr_mode = ~3;
	return hints;
}

static struct fi_info *of(const char *provider, enum fi_ep_type type)
{
	struct fi_info *hints = plain();

	hints->fabric_attr->prov_name = strdup(provider);
	hints->ep_attr->type = type;
	return hints;
}

/* Checks whether the changed hints match an info. */
#define WITH(hints_expr, change, found) \
	do { \
		struct fi_info *h = (hints_expr); \
		change; \
		if (!!matches(h) != (found)) \
			fprintf(stderr, "%s: %s\n", #change, (found) ? "nothing" : "something"); \
		CHECK(!!matches(h) == (found)); \
		fi_freeinfo(h); \
	} while (0)

static int is_of(const struct fi_info *info, const char *provider, enum fi_ep_type type)
{
	return !strcmp(info->fabric_attr->prov_name, provider) && info->ep_attr->type == type;
}

/* The first info of this provider and type. */
static struct fi_info *first_of(struct fi_info *list, const char *provider, enum fi_ep_type type)
{
	while (list && !is_of(list, provider, type))
		list = list->next;
	CHECK(list);
	return list;
}

/* 127.0.0.`last`. */
static void set_addr(void **addr, size_t *len, unsigned char last, uint16_t port)
{
	unsigned char bytes[16] = { 2, 0, port >> 8, port & 255, 127, 0, 0, last };

	free(*addr);
	*addr = malloc(16);
	memcpy(*addr, bytes, 16);
	*len = 16;
}

/*
 * Opens an endpoint with the info and closes it again; stores its name and returns the name's
 * length.
 */
static size_t name_of(struct fi_info *info, void *name, size_t room)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	size_t len = room;

	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0 && fi_domain(fabric, info, &domain, NULL) == 0);
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL) == 0 && fi_av_open(domain, &av_attr, &av, NULL) == 0);
	CHECK(fi_endpoint(domain, info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(ep, &av->fid, 0) == 0);
	CHECK(fi_enable(ep) == 0 && fi_getname(&ep->fid, name, &len) == 0);
	CHECK(fi_close(&ep->fid) == 0 && fi_close(&av->fid) == 0 && fi_close(&cq->fid) == 0);
	CHECK(fi_close(&domain->fid) == 0 && fi_close(&fabric->fid) == 0);
	return len;
}

#endif
