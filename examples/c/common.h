/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the examples share: checking results, trying again, waiting for completions, and opening
 * what every program needs. `hello.c` shows the calls that open and close in one place.
 */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#ifndef TIME_LIMIT
#define TIME_LIMIT 10 /* seconds; no wait in the program is longer */
#endif
#define TAG 42

/* The version names the manual pages that a program follows. */
#define VERSION FI_VERSION(1, 17)

/* Calls return a negative error number if they fail. */
static inline void check(const char *call, ssize_t ret)
{
	if (ret < 0) {
		fprintf(stderr, "%s: %s\n", call, fi_strerror((int) -ret));
		exit(1);
	}
}

#define CHECK(call) check(#call, call)

/*
 * Posts an operation. -FI_EAGAIN means that the endpoint cannot take it now: reading the queue lets
 * the library make progress, here without taking an entry, and then the program tries again.
 */
#define POST(cq, call) \
	do { \
		time_t end_ = time(NULL) + TIME_LIMIT; \
		ssize_t ret_; \
		while ((ret_ = (call)) == -FI_EAGAIN && time(NULL) < end_) \
			fi_cq_read(cq, NULL, 0); \
		check(#call, ret_); \
	} while (0)

/* Ends the program because of the failed operation whose error entry is next in the queue. */
static inline void fail(struct fid_cq *cq)
{
	struct fi_cq_err_entry error = { 0 };
	char reason[256] = "";

	/* The entry has an error number and the provider's reason. */
	CHECK(fi_cq_readerr(cq, &error, 0));
	check(fi_cq_strerror(cq, error.prov_errno, error.err_data, reason, sizeof(reason)), -error.err);
}

/* Returns the next completion; ends the program if an operation failed or nothing completes. */
static inline struct fi_cq_tagged_entry next(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry;
	/* Sleeps until there is an entry, and makes progress. The limit is in milliseconds. */
	ssize_t ret = fi_cq_sread(cq, &entry, 1, NULL, TIME_LIMIT * 1000);

	if (ret == -FI_EAVAIL)
		fail(cq);
	check("wait for a completion", ret == -FI_EAGAIN ? -FI_ETIMEDOUT : ret);
	return entry;
}

/* New hints that ask for connectionless endpoints with these capabilities. */
static inline struct fi_info *hints_for(uint64_t caps)
{
	struct fi_info *hints = fi_allocinfo();

	check("fi_allocinfo", hints ? 0 : -FI_ENOMEM);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = caps;
	return hints;
}

/* A domain with its fabric, and the info that describes them. */
struct net {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
};

/* Opens the first result that matches the hints, and frees the hints. */
static inline struct net open_net(struct fi_info *hints)
{
	struct net net;

	CHECK(fi_getinfo(VERSION, NULL, NULL, 0, hints, &net.info));
	CHECK(fi_fabric(net.info->fabric_attr, &net.fabric, NULL));
	CHECK(fi_domain(net.fabric, net.info, &net.domain, NULL));
	fi_freeinfo(hints);
	return net;
}

static inline void close_net(struct net *net)
{
	CHECK(fi_close(&net->domain->fid));
	CHECK(fi_close(&net->fabric->fid));
	fi_freeinfo(net->info);
}

/* Opens an endpoint, binds what it reports to and where it finds its peers, and enables it. */
static inline struct fid_ep *open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_cq *cq,
	struct fid_av *av)
{
	struct fid_ep *ep;

	CHECK(fi_endpoint(domain, info, &ep, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_enable(ep));
	return ep;
}

/* Inserts the address of an enabled endpoint into an address vector; returns its entry. */
static inline fi_addr_t insert(struct fid_av *av, struct fid_ep *ep)
{
	char name[256];
	size_t len = sizeof(name);
	fi_addr_t entry;

	CHECK(fi_getname(&ep->fid, name, &len));
	check("fi_av_insert", fi_av_insert(av, name, 1, &entry, 0, NULL) == 1 ? 0 : -FI_EADDRNOTAVAIL);
	return entry;
}

#endif
