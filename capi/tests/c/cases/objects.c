/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fabrics, domains and endpoints as objects (fi_fabric(3), fi_domain(3), fi_endpoint(3)). */
#include "case.h"
#include <rdma/fi_atomic.h>

CASE(fabric_open_rules)
{
	struct fi_info *info = find(&RDM);
	struct fi_fabric_attr attr = *info->fabric_attr;
	struct fid_fabric *fabric;

	CHECK(fi_fabric(NULL, &fabric, NULL) == -FI_EINVAL);
	attr.name = NULL;
	CHECK(fi_fabric(&attr, &fabric, NULL) == -FI_EINVAL);
	attr = *info->fabric_attr;
	attr.prov_name = NULL;
	CHECK(fi_fabric(&attr, &fabric, NULL) == -FI_EINVAL);
	attr.prov_name = "absent";
	CHECK(fi_fabric(&attr, &fabric, NULL) == -FI_ENODEV);
	attr.prov_name = "tcp;ofi_rxm";
	CHECK(fi_fabric(&attr, &fabric, &attr) == 0);
	CHECK(fabric->fid.context == &attr && fabric->fid.fclass == FI_CLASS_FABRIC);
	CHECK(fi_close(&fabric->fid) == 0);
	attr.prov_name = "TCP";
	CHECK(fi_fabric(&attr, &fabric, NULL) == 0);
	CHECK(fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);
}

CASE(fabric_api_version_gates)
{
	struct fi_info *info = find(&RDM);
	struct fid_fabric *fabric;

	info->fabric_attr->api_version = FI_VERSION(1, 7);
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
	CHECK(fabric->api_version == FI_VERSION(1, 7));
	CHECK(fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);
}

CASE(close_parent_busy)
{
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	CHECK(fi_close(&p.b.fabric->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.b.domain->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.b.av->fid) == -FI_EBUSY);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	done(&p.a, &p.b, &contexts[1]);
	/* The address vector that could not be closed still has its addresses. */
	POST(fi_recv(p.a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_send(p.b.ep, "y", 1, NULL, p.to_a, &contexts[3]));
	done(&p.a, &p.b, &contexts[2]);
	part(&p);
}

CASE(domain_open_rules)
{
	struct fid_domain *second;
	struct side s;

	open_side(&s, &RDM);
	CHECK(fi_domain(s.fabric, s.info, &second, &s) == 0);
	CHECK(second != s.domain && second->fid.context == &s && second->fid.fclass == FI_CLASS_DOMAIN);
	/* Closing one does not affect the other. */
	CHECK(fi_close(&second->fid) == 0);
	CHECK(fi_cq_read(s.cq, NULL, 0) == -FI_EAGAIN);
	close_side(&s);
}

CASE_OURS(domain_unknown_name)
{
	struct fid_domain *domain;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_domain(s.fabric, NULL, &domain, NULL) == -FI_EINVAL);
	CHECK(fi_domain(s.fabric, s.info, NULL, NULL) == -FI_EINVAL);
	free(s.info->domain_attr->name);
	s.info->domain_attr->name = strdup("no-such-interface");
	CHECK(fi_domain(s.fabric, s.info, &domain, NULL) == -FI_EINVAL);
	close_side(&s);
}

CASE_OURS(domain_bind_eq_rules)
{
	struct fid_eq *eq;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_eq_open(s.fabric, NULL, &eq, NULL) == 0);
	REFUSED("FI_REG_MR (fi_domain_bind)", FI_EBADFLAGS, fi_domain_bind(s.domain, &eq->fid, FI_REG_MR));
	CHECK(fi_domain_bind(s.domain, &s.cq->fid, 0) == -FI_EINVAL);
	CHECK(fi_domain_bind(s.domain, NULL, 0) == -FI_EINVAL);
	CHECK(fi_domain_bind(s.domain, &eq->fid, 0) == 0);
	CHECK(fi_domain_bind(s.domain, &s.eq->fid, 0) == -FI_EINVAL);
	CHECK(fi_close(&eq->fid) == -FI_EBUSY);
	CHECK(fi_close(&s.av->fid) == 0 && fi_close(&s.cq->fid) == 0 && fi_close(&s.domain->fid) == 0);
	CHECK(fi_close(&eq->fid) == 0 && fi_close(&s.eq->fid) == 0 && fi_close(&s.fabric->fid) == 0);
	fi_freeinfo(s.info);
}

CASE_OURS(open2_flag_rules)
{
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	struct fid_domain *domain;
	struct fid_fabric *fabric;
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_fabric2(s.info, &fabric, 1, NULL) == -FI_EINVAL);
	CHECK(fi_fabric2(NULL, &fabric, 0, NULL) == -FI_EINVAL);
	CHECK(fi_fabric2(s.info, &fabric, 0, NULL) == 0 && fi_close(&fabric->fid) == 0);
	CHECK(fi_domain2(s.fabric, s.info, &domain, 1, NULL) == -FI_EINVAL);
	CHECK(fi_domain2(s.fabric, s.info, &domain, 0, NULL) == 0 && fi_close(&domain->fid) == 0);
	CHECK(fi_endpoint2(s.domain, s.info, &ep, 1, NULL) == -FI_EINVAL);
	CHECK(fi_endpoint2(s.domain, s.info, &ep, 0, NULL) == 0 && fi_close(&ep->fid) == 0);
	close_side(&s);
#else
	SKIP("these headers are older");
#endif
}

CASE(open_ops_unknown_name)
{
	struct side s;
	void *ops;

	open_side(&s, &RDM);
	CHECK(fi_open_ops(&s.domain->fid, "no such operations", 0, &ops, NULL) == -FI_ENOSYS);
	CHECK(fi_set_ops(&s.domain->fid, "no such operations", 0, &s, NULL) == -FI_ENOSYS);
	CHECK(fi_open_ops(&s.ep->fid, "no such operations", 0, &ops, NULL) == -FI_ENOSYS);
	close_side(&s);
}

CASE(control_unknown_command)
{
	struct side s;
	int arg = 0;

	open_side(&s, &RDM);
	CHECK(fi_control(&s.domain->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_control(&s.ep->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_control(&s.av->fid, 4242, &arg) == -FI_ENOSYS);
	close_side(&s);
}

CASE(ep_disabled_until_enabled)
{
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, &s) == 0);
	CHECK(ep->fid.context == &s && ep->fid.fclass == FI_CLASS_EP);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(ep, &s.av->fid, 0) == 0);
	CHECK(fi_enable(ep) == 0);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

CASE_OURS(ep_posting_before_enable)
{
	struct fid_ep *ep;
	struct side s;
	char in[8];

	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(ep, &s.av->fid, 0) == 0);
	CHECK(fi_recv(ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL) == -FI_EOPBADSTATE);
	CHECK(fi_send(ep, in, 8, NULL, 0, NULL) == -FI_EOPBADSTATE);
	CHECK(fi_enable(ep) == 0 && fi_enable(ep) == 0);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

CASE(ep_enable_missing_binds)
{
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.av->fid, 0) == 0);
	CHECK(fi_enable(ep) == -FI_ENOCQ);
	CHECK(fi_close(&ep->fid) == 0);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_enable(ep) == -FI_ENOAV);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

CASE_OURS(ep_enable_without_eq)
{
	struct want w = { .type = FI_EP_MSG };
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &w);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_enable(ep) == -FI_ENOEQ);
	CHECK(fi_close(&ep->fid) == 0);
	CHECK(fi_endpoint(s.domain, NULL, &ep, NULL) == -FI_EINVAL);
	CHECK(fi_endpoint(s.domain, s.info, NULL, NULL) == -FI_EINVAL);
	close_side(&s);
}

CASE(ep_cq_bind_rules)
{
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | (1ULL << 62)) == -FI_EBADFLAGS);
	/* Without flags nothing is bound. */
	CHECK(fi_ep_bind(ep, &s.cq->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_RECV) == -FI_EINVAL);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT) == -FI_EINVAL);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

CASE(ep_bind_object_rules)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fid_av *second;
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_av_open(s.domain, &attr, &second, NULL) == 0);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.av->fid, FI_SEND) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, &s.av->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, &second->fid, 0) == -FI_EINVAL);
	CHECK(fi_ep_bind(ep, &s.domain->fid, 0) == -FI_EINVAL);
	CHECK(fi_close(&ep->fid) == 0 && fi_close(&second->fid) == 0);
	close_side(&s);
}

CASE(ep_option_rules)
{
	struct side s;
	size_t value = 64, len = 2;

	open_side(&s, &RDM);
	CHECK(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, 9999, &value, &len) == -FI_ENOPROTOOPT);
	CHECK(fi_getopt(&s.ep->fid, 9999, FI_OPT_MIN_MULTI_RECV, &value, &len) == -FI_ENOPROTOOPT);
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, 9999, &value, sizeof(value)) == -FI_ENOPROTOOPT);
	CHECK(fi_setopt(&s.ep->fid, 9999, FI_OPT_MIN_MULTI_RECV, &value, sizeof(value)) == -FI_ENOPROTOOPT);
	close_side(&s);
}

CASE_OURS(ep_options_of_ours)
{
	struct want w = { .caps = FI_TAGGED | FI_MULTI_RECV };
	struct side s;
	size_t value = 0, len = 2;

	open_side(&s, &w);
	CHECK(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len) == -FI_ETOOSMALL);
	CHECK(len == sizeof(value));
	CHECK(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len) == 0 && value == 16384);
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 4) == -FI_EINVAL);
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, NULL, 8) == -FI_EINVAL);
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, 8) == -FI_ENOPROTOOPT);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	CHECK(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_INJECT_MSG_SIZE, &value, &len) == 0);
	CHECK(value == s.info->tx_attr->inject_size);
	value = 64;
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_INJECT_TAGGED_SIZE, &value, 8) == 0);
	value = 1 << 30;
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_INJECT_TAGGED_SIZE, &value, 8) == -FI_EINVAL);
#endif
	close_side(&s);
}

CASE_OURS(ep_alias_opsflag_rules)
{
	struct fid_ep *alias;
	struct pair p;
	uint64_t flags = FI_TRANSMIT | FI_RECV;
	char in[8];

	meet(&p, &RDM);
	CHECK(fi_ep_alias(p.a.ep, &alias, FI_TRANSMIT | FI_RECV) == -FI_EINVAL);
	CHECK(fi_ep_alias(p.a.ep, &alias, 0) == -FI_EINVAL);
	CHECK(fi_ep_alias(p.a.ep, &alias, FI_TRANSMIT | FI_TRIGGER) == -FI_EINVAL);
	CHECK(fi_ep_alias(p.a.ep, &alias, FI_RECV | FI_TRIGGER) == -FI_EINVAL);
	CHECK(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags) == -FI_EINVAL);
	flags = 0;
	CHECK(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags) == -FI_EINVAL);
	flags = FI_TRANSMIT | FI_RECV | FI_COMPLETION;
	CHECK(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags) == -FI_EINVAL);
	flags = FI_RECV | FI_COMPLETION;
	CHECK(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags) == 0);
	flags = FI_RECV;
	CHECK(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags) == 0 && flags == FI_COMPLETION);
	CHECK(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, NULL) == -FI_EINVAL);
	CHECK(fi_ep_alias(p.a.ep, &alias, FI_TRANSMIT | FI_DELIVERY_COMPLETE) == 0);
	flags = FI_TRANSMIT;
	CHECK(fi_control(&alias->fid, FI_GETOPSFLAG, &flags) == 0 && flags == FI_DELIVERY_COMPLETE);
	flags = FI_TRANSMIT;
	CHECK(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags) == 0 && flags == 0);
	memset(in, 'x', sizeof(in));
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(alias, "ab", 2, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(in[0] == 'a');
	CHECK(fi_close(&p.a.ep->fid) == -FI_EBUSY);
	CHECK(fi_close(&alias->fid) == 0);
	part(&p);
}

CASE(ep_size_left_slots)
{
	struct side s;
	ssize_t left;

	open_side(&s, &RDM);
	left = fi_tx_size_left(s.ep);
	CHECK(left > 0 || left == -FI_ENOSYS);
	left = fi_rx_size_left(s.ep);
	CHECK(left > 0 || left == -FI_ENOSYS);
	close_side(&s);
}

/* docs/refused.md lists them with the reasons. */
CASE_OURS(what_is_refused_answers_enosys)
{
	static const struct want msg = { .type = FI_EP_MSG };
	struct fid_pep *pep;
	struct fid_stx *stx;
	struct fid *alias;
	struct side s;
	char buf[8];
	size_t len = sizeof(buf);
	struct fi_atomic_attr atomic;
	fi_addr_t addr = 0;
	uint64_t flags = 0;
	struct fid_ep *ep;
	int fd, type;
	void *ops;

	(void) addr;
	open_side(&s, &RDM);
	REFUSED("FI_GETFIDFLAG, FI_SETFIDFLAG (fi_control)",
		FI_ENOSYS, fi_control(&s.ep->fid, FI_GETFIDFLAG, &flags));
	REFUSED("FI_GETFIDFLAG, FI_SETFIDFLAG (fi_control)",
		FI_ENOSYS, fi_control(&s.domain->fid, FI_SETFIDFLAG, &flags));
	REFUSED("FI_GETWAIT, FI_GET_FD of an endpoint", FI_ENOSYS, fi_control(&s.ep->fid, FI_GETWAIT, &fd));
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	REFUSED("FI_GETWAIT, FI_GET_FD of an endpoint", FI_ENOSYS, fi_control(&s.ep->fid, FI_GET_FD, &fd));
	REFUSED("FI_EXPORT_FID (fi_export_fid)", FI_ENOSYS, fi_control(&s.ep->fid, FI_EXPORT_FID, buf));
	REFUSED("fi_xpu_ctx, fi_mr_get_xpu_desc, fi_ep_export_xpu, fi_cq_export_xpu, fi_cntr_export_xpu",
		FI_ENOSYS, s.domain->ops->xpu_ctx(s.domain, NULL, NULL, 0, NULL));
	REFUSED("fi_xpu_ctx, fi_mr_get_xpu_desc, fi_ep_export_xpu, fi_cq_export_xpu, fi_cntr_export_xpu",
		FI_ENOSYS, s.cq->ops->export_xpu(s.cq, 0, NULL));
	REFUSED("fi_xpu_ctx, fi_mr_get_xpu_desc, fi_ep_export_xpu, fi_cq_export_xpu, fi_cntr_export_xpu",
		FI_ENOSYS, s.ep->ops->export_xpu(s.ep, 0, NULL));
	REFUSED("authorization keys (fi_av_insert_auth_key, fi_av_lookup_auth_key)",
		FI_ENOSYS, fi_av_insert_auth_key(s.av, "key", 4, &addr, 0));
	REFUSED("authorization keys (fi_av_insert_auth_key, fi_av_lookup_auth_key)",
		FI_ENOSYS, fi_av_lookup_auth_key(s.av, 0, buf, &len));
#endif
	REFUSED("FI_ALIAS of an object other than an endpoint", FI_ENOSYS, fi_alias(&s.cq->fid, &alias, 0));
	REFUSED("FI_ALIAS of an object other than an endpoint", FI_ENOSYS, fi_alias(&s.domain->fid, &alias, 0));
	REFUSED("fi_set_ops, with \"hmem_override_ops\" too",
		FI_ENOSYS, fi_set_ops(&s.domain->fid, "hmem_override_ops", 0, buf, NULL));
	REFUSED("fi_open_ops other than \"fi_profile_ops\" of an endpoint or a domain",
		FI_ENOSYS, fi_open_ops(&s.fabric->fid, "fi_profile_ops", 0, &ops, NULL));
	REFUSED("fi_open_ops other than \"fi_profile_ops\" of an endpoint or a domain",
		FI_ENOSYS, fi_open_ops(&s.ep->fid, "no such operations", 0, &ops, NULL));
	REFUSED("fi_open with \"mr_cache\"", FI_ENOSYS, fi_open(API, "mr_cache", NULL, 0, 0, &alias, NULL));
	REFUSED("fi_connect, fi_accept, fi_shutdown, fi_getpeer of an endpoint without connections",
		FI_ENOSYS, fi_connect(s.ep, s.name, NULL, 0));
	REFUSED("fi_connect, fi_accept, fi_shutdown, fi_getpeer of an endpoint without connections",
		FI_ENOSYS, fi_accept(s.ep, NULL, 0));
	REFUSED("fi_connect, fi_accept, fi_shutdown, fi_getpeer of an endpoint without connections",
		FI_ENOSYS, fi_shutdown(s.ep, 0));
	REFUSED("fi_connect, fi_accept, fi_shutdown, fi_getpeer of an endpoint without connections",
		FI_ENOSYS, fi_getpeer(s.ep, buf, &len));
	REFUSED("fi_listen, fi_reject of an active endpoint; fi_getpeer, fi_connect of a passive one",
		FI_ENOSYS, fi_listen((struct fid_pep *) s.ep));
	REFUSED("fi_listen, fi_reject of an active endpoint; fi_getpeer, fi_connect of a passive one",
		FI_ENOSYS, fi_reject((struct fid_pep *) s.ep, NULL, NULL, 0));
	REFUSED("fi_query_atomic without FI_ATOMIC, fi_query_collective without FI_COLLECTIVE",
		FI_ENOSYS, fi_query_atomic(s.domain, FI_UINT64, FI_SUM, &atomic, 0));
	CHECK(fi_stx_context(s.domain, NULL, &stx, NULL) == 0);
	REFUSED("fi_cancel of a passive or scalable endpoint or a shared transmit context",
		FI_ENOSYS, fi_cancel(&stx->fid, NULL));
	REFUSED("fi_tx_size_left, fi_rx_size_left of an object without such operations",
		FI_ENOSYS, fi_tx_size_left((struct fid_ep *) stx));
	CHECK(fi_close(&stx->fid) == 0);
	close_side(&s);
	open_domain(&s, &msg);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0);
	REFUSED("fi_cancel of a passive or scalable endpoint or a shared transmit context",
		FI_ENOSYS, fi_cancel(&pep->fid, NULL));
	REFUSED("fi_tx_size_left, fi_rx_size_left of an object without such operations",
		FI_ENOSYS, fi_rx_size_left((struct fid_ep *) pep));
	REFUSED("fi_listen, fi_reject of an active endpoint; fi_getpeer, fi_connect of a passive one",
		FI_ENOSYS, fi_getpeer((struct fid_ep *) pep, buf, &len));
	REFUSED("fi_listen, fi_reject of an active endpoint; fi_getpeer, fi_connect of a passive one",
		FI_ENOSYS, fi_connect((struct fid_ep *) pep, buf, NULL, 0));
	/* The numbers of FI_EP_SOCK_STREAM and FI_EP_SOCK_DGRAM. */
	for (type = 4; type <= 5; type++) {
		s.info->ep_attr->type = (enum fi_ep_type) type;
		REFUSED("endpoints of type FI_EP_SOCK_STREAM, FI_EP_SOCK_DGRAM",
			FI_ENOSYS, fi_endpoint(s.domain, s.info, &ep, NULL));
	}
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&s);
}

/* What fi_getinfo refuses in hints, fi_endpoint refuses in an info. */
CASE_OURS(ep_limits_of_an_info_are_checked)
{
	static const struct want kinds[] = { { .type = FI_EP_RDM }, { .type = FI_EP_MSG }, { .type = FI_EP_DGRAM } };
	size_t k, i, value;
	struct fid_ep *ep;
	struct side s;

	for (k = 0; k < ARRAY(kinds); k++) {
		open_domain(&s, &kinds[k]);
		{
			size_t *limits[] = {
				&s.info->tx_attr->size, &s.info->tx_attr->inject_size, &s.info->tx_attr->iov_limit,
				&s.info->tx_attr->rma_iov_limit, &s.info->rx_attr->size, &s.info->rx_attr->iov_limit,
			};

			for (i = 0; i < ARRAY(limits); i++) {
				value = *limits[i];
				*limits[i] = SIZE_MAX;
				CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == -FI_EINVAL);
				*limits[i] = (size_t) 1 << 50;
				CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == -FI_EINVAL);
				*limits[i] = value;
			}
		}
		CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
		CHECK(fi_close(&ep->fid) == 0);
		close_side(&s);
	}
}

CASE(tclass_hint_accepted)
{
	const uint32_t classes[] = {
		FI_TC_UNSPEC, FI_TC_BEST_EFFORT, FI_TC_LOW_LATENCY, FI_TC_DEDICATED_ACCESS, FI_TC_BULK_DATA, FI_TC_SCAVENGER,
		FI_TC_NETWORK_CTRL, fi_tc_dscp_set(46),
	};
	struct fi_info *hints = hints_for(&RDM), *info;
	size_t i;

	CHECK(fi_tc_dscp_get(fi_tc_dscp_set(46)) == 46 && fi_tc_dscp_get(FI_TC_BULK_DATA) == 0);
	for (i = 0; i < ARRAY(classes); i++) {
		hints->tx_attr->tclass = hints->domain_attr->tclass = classes[i];
		CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == 0);
		fi_freeinfo(info);
	}
	fi_freeinfo(hints);
}
