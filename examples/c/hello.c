/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * hello: two endpoints in one process. The first sends a tagged message to the second.
 *
 * FI_PROVIDER=tcp ./hello
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define TIME_LIMIT 10 /* seconds; no wait in this program is longer */
#define TAG 42

/* Calls return a negative error number if they fail. */
static void check(const char *call, ssize_t ret)
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

/* Returns the next completion; ends the program if an operation failed or nothing completes. */
static struct fi_cq_tagged_entry next(struct fid_cq *cq)
{
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_tagged_entry entry;
	char reason[256] = "";
	/* Sleeps until there is an entry, and makes progress. The limit is in milliseconds. */
	ssize_t ret = fi_cq_sread(cq, &entry, 1, NULL, TIME_LIMIT * 1000);

	/* An operation failed: its entry has an error number and the provider's reason. */
	if (ret == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
		check(fi_cq_strerror(cq, error.prov_errno, error.err_data, reason, sizeof(reason)), -error.err);
	check("wait for a completion", ret == -FI_EAGAIN ? -FI_ETIMEDOUT : ret);
	return entry;
}

/* Opens an endpoint, binds what it reports to and where it finds its peers, and enables it. */
static struct fid_ep *open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_cq *cq,
	struct fid_av *av)
{
	struct fid_ep *ep;

	CHECK(fi_endpoint(domain, info, &ep, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_enable(ep));
	return ep;
}

int main(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *sender, *receiver;
	char out[] = "hello", in[64], name[256];
	size_t len = sizeof(name);
	int sent = 0, received = 0;
	fi_addr_t to;

	/* What the program needs. The results come in the library's order of preference. */
	check("fi_allocinfo", hints ? 0 : -FI_ENOMEM);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED;
	/* The version names the manual pages that the program follows. */
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(domain, &av_attr, &av, NULL));
	receiver = open_endpoint(domain, info, cq, av);
	sender = open_endpoint(domain, info, cq, av);

	/* A message goes to an entry of the address vector. Only an enabled endpoint has a name. */
	CHECK(fi_getname(&receiver->fid, name, &len));
	check("fi_av_insert", fi_av_insert(av, name, 1, &to, 0, NULL) == 1 ? 0 : -FI_EADDRNOTAVAIL);

	/*
	 * Each buffer belongs to the library until its operation completes. The last argument is
	 * the operation's context, which its completion carries.
	 */
	POST(cq, fi_trecv(receiver, in, sizeof(in), NULL, FI_ADDR_UNSPEC, TAG, 0, in));
	POST(cq, fi_tsend(sender, out, sizeof(out), NULL, to, TAG, out));
	while (!sent || !received) {
		struct fi_cq_tagged_entry entry = next(cq);

		sent |= entry.op_context == out;
		received |= entry.op_context == in;
	}
	printf("%s over %s\n", in, info->fabric_attr->prov_name);

	/* An object can be closed when no open object uses it. */
	CHECK(fi_close(&sender->fid));
	CHECK(fi_close(&receiver->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&cq->fid));
	CHECK(fi_close(&domain->fid));
	CHECK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return 0;
}
