/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared receive and transmit contexts (fi_endpoint(3)). */
#include "case.h"

static struct fid_ep *open_srx(struct side *s)
{
	struct fi_rx_attr attr = *s->info->rx_attr;
	struct fid_ep *srx;

	CHECK(fi_srx_context(s->domain, &attr, &srx, &contexts[5]) == 0);
	CHECK(srx->fid.fclass == FI_CLASS_SRX_CTX && srx->fid.context == &contexts[5]);
	return srx;
}

static struct fid_ep *bound_ep(struct side *s, struct fid *context, char *name)
{
	struct fid_ep *ep;
	size_t len = sizeof(s->name);

	CHECK(fi_endpoint(s->domain, s->info, &ep, s) == 0);
	CHECK(fi_ep_bind(ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(ep, &s->av->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, context, 1) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, context, 0) == 0);
	CHECK(fi_enable(ep) == 0);
	CHECK(fi_getname(&ep->fid, name, &len) == 0);
	return ep;
}

CASE_OURS(srx_serves_several_endpoints)
{
	struct side a, b;
	struct fid_ep *srx, *eps[3];
	fi_addr_t to[3];
	char in[3][8], tagged[8], name[64];
	int i;

	open_side(&a, &RDM);
	open_domain(&b, &RDM);
	b.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	srx = open_srx(&b);
	for (i = 0; i < 3; i++) {
		eps[i] = bound_ep(&b, &srx->fid, name);
		to[i] = insert(&a, name);
		POST(fi_recv(srx, in[i], 8, NULL, FI_ADDR_UNSPEC, &contexts[8 + i]));
	}
	POST(fi_trecv(srx, tagged, 8, NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[1]));
	for (i = 0; i < 3; i++) {
		POST(fi_send(a.ep, "message", 8, NULL, to[i], &contexts[0]));
		done(&a, &b, &contexts[0]);
		CHECK(done(&b, &a, &contexts[8 + i]).len == 8);
	}
	POST(fi_tsend(a.ep, "tagged!", 8, NULL, to[1], 7, &contexts[0]));
	done(&a, &b, &contexts[0]);
	done(&b, &a, &contexts[1]);
	CHECK(!strcmp(tagged, "tagged!") && !strcmp(in[2], "message"));
	CHECK(fi_send(srx, "x", 1, NULL, 0, NULL) == -FI_ENOSYS);
	/* Receives go to the shared context alone. */
	CHECK(fi_recv(eps[0], in[0], 8, NULL, FI_ADDR_UNSPEC, &contexts[8]) < 0);
	CHECK(fi_trecv(eps[0], in[0], 8, NULL, FI_ADDR_UNSPEC, 7, 0, &contexts[8]) < 0);
	CHECK(fi_enable(srx) == 0);
	CHECK(fi_close(&srx->fid) == -FI_EBUSY);
	for (i = 0; i < 3; i++)
		CHECK(fi_close(&eps[i]->fid) == 0);
	CHECK(fi_close(&srx->fid) == 0);
	close_side(&a);
	close_side(&b);
}

CASE_OURS(srx_opens_with_what_the_domain_has)
{
	struct fid_ep *srx, *other;
	struct side s, t;
	char in[8];

	open_domain(&s, &RDM);
	open_domain(&t, &RDM);
	CHECK(fi_srx_context(s.domain, NULL, &srx, NULL) == 0);
	CHECK(fi_srx_context(t.domain, NULL, &other, NULL) == 0);
	POST(fi_recv(srx, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(fi_close(&srx->fid) == 0);
	s.ep = NULL;
	CHECK(fi_endpoint(s.domain, s.info, &s.ep, &s) == 0);
	CHECK(fi_ep_bind(s.ep, &other->fid, 0) == -FI_EDOMAIN);
	CHECK(fi_close(&other->fid) == 0);
	close_side(&s);
	close_side(&t);
}

CASE_OURS(stx_is_bound_to_endpoints)
{
	struct fid_stx *stx;
	struct side a, b;
	char name[64], in[8];
	fi_addr_t to_a;

	open_side(&a, &RDM);
	open_domain(&b, &RDM);
	b.info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	CHECK(fi_stx_context(b.domain, b.info->tx_attr, &stx, &contexts[5]) == 0);
	CHECK(stx->fid.fclass == FI_CLASS_STX_CTX && stx->fid.context == &contexts[5]);
	b.ep = bound_ep(&b, &stx->fid, name);
	to_a = insert(&b, a.name);
	POST(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(b.ep, "message", 8, NULL, to_a, &contexts[1]));
	done(&b, &a, &contexts[1]);
	done(&a, &b, &contexts[0]);
	CHECK(fi_close(&stx->fid) == -FI_EBUSY);
	CHECK(fi_close(&b.ep->fid) == 0);
	b.ep = NULL;
	CHECK(fi_close(&stx->fid) == 0);
	close_side(&a);
	close_side(&b);
}

CASE_OURS(shared_contexts_are_offered)
{
	struct fi_info *hints = hints_for(&RDM), *info;
	int local = within_host(&RDM);

	hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	CHECK(fi_getinfo(API, local ? NULL : "127.0.0.1", NULL, local ? 0 : FI_SOURCE, hints, &info) == 0);
	CHECK(info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT && info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT);
	CHECK(info->domain_attr->max_ep_stx_ctx > 1 && info->domain_attr->max_ep_srx_ctx > 1);
	fi_freeinfo(hints);
	fi_freeinfo(info);
}
