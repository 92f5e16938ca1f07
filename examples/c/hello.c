/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * hello: two endpoints in one process. The first sends a tagged message to the second.
 *
 * FI_PROVIDER=tcp ./hello
 */
#include "common.h"

#include <rdma/fi_tagged.h>

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
	CHECK(fi_getinfo(VERSION, NULL, NULL, 0, hints, &info));
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(domain, &av_attr, &av, NULL));

	/* An endpoint reports to a queue, and finds its peers in an address vector. */
	CHECK(fi_endpoint(domain, info, &receiver, NULL));
	CHECK(fi_ep_bind(receiver, &cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(fi_ep_bind(receiver, &av->fid, 0));
	CHECK(fi_enable(receiver));
	CHECK(fi_endpoint(domain, info, &sender, NULL));
	CHECK(fi_ep_bind(sender, &cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(fi_ep_bind(sender, &av->fid, 0));
	CHECK(fi_enable(sender));

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
