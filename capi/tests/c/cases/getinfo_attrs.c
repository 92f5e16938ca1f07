/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Discovery: the attributes of domain, endpoint and contexts: fi_getinfo(3), fi_domain(3),
 * fi_endpoint(3).
 */
#include "getinfo.h"

CASE(getinfo_mr_mode_rules)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->domain_attr->mr_mode = FI_MR_BASIC;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && list->domain_attr->mr_mode == FI_MR_BASIC);
	fi_freeinfo(list);
	hints->domain_attr->mr_mode = FI_MR_SCALABLE;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && list->domain_attr->mr_mode == FI_MR_SCALABLE);
	fi_freeinfo(list);
	hints->domain_attr->mr_mode = FI_MR_BASIC | FI_MR_SCALABLE;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	hints->domain_attr->mr_mode = ~3;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	fi_freeinfo(list);
	hints->domain_attr->mr_mode = 0;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	fi_freeinfo(list);
	/* Before 1.5 it is one of two values. */
	hints->mode = FI_LOCAL_MR;
	CHECK(ask(FI_VERSION(1, 4), NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->domain_attr->mr_mode == FI_MR_BASIC || list->domain_attr->mr_mode == FI_MR_SCALABLE);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_domain_attr_hints)
{
	struct fi_info *list, *hints, *disabled, *i;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cq_data_size = list->domain_attr->cq_data_size, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cq_data_size = list->domain_attr->cq_data_size + 1, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_err_data = list->domain_attr->max_err_data, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_err_data = (size_t) 1 << 40, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->av_type = FI_AV_TABLE, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->av_type = FI_AV_MAP, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->resource_mgmt = FI_RM_ENABLED, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->resource_mgmt = FI_RM_DISABLED, 1);
	hints = of("tcp", FI_EP_RDM);
	hints->domain_attr->resource_mgmt = FI_RM_DISABLED;
	CHECK(ask(API, NULL, NULL, 0, hints, &disabled) == 0);
	for (i = disabled; i; i = i->next)
		CHECK(i->domain_attr->resource_mgmt == FI_RM_ENABLED);
	fi_freeinfo(disabled);
	fi_freeinfo(hints);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->resource_mgmt = 9, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->caps = FI_LOCAL_COMM, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->caps = FI_HMEM, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cntr_cnt = list->domain_attr->cntr_cnt, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cntr_cnt = (size_t) 1 << 40, 0);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 5))
	CHECK(list->domain_attr->max_cntr_value == UINT64_MAX && list->domain_attr->max_err_cntr_value == UINT64_MAX);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_cntr_value = UINT64_MAX, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_err_cntr_value = UINT64_MAX, 1);
#endif
	fi_freeinfo(list);
}

CASE(getinfo_ep_attr_hints)
{
	WITH(of("tcp", FI_EP_MSG), h->ep_attr->protocol = FI_PROTO_SOCK_TCP, 1);
	WITH(of("tcp", FI_EP_MSG), h->ep_attr->protocol = FI_PROTO_UDP, 0);
	WITH(of("tcp", FI_EP_MSG), h->ep_attr->protocol_version = 1000, 0);
	WITH(of("udp", FI_EP_DGRAM), h->ep_attr->max_msg_size = 1000, 1);
	WITH(of("udp", FI_EP_DGRAM), h->ep_attr->max_msg_size = 1 << 20, 0);
	WITH(of("tcp", FI_EP_RDM), h->ep_attr->tx_ctx_cnt = 1, 1);
	WITH(of("tcp", FI_EP_RDM), h->ep_attr->tx_ctx_cnt = 1 << 20, 0);
	WITH(of("tcp", FI_EP_RDM), h->ep_attr->rx_ctx_cnt = 1 << 20, 0);
	WITH(of("tcp", FI_EP_RDM), h->caps = FI_TAGGED; h->ep_attr->mem_tag_format = ~0ULL, 1);
	/* Without FI_TAGGED, the tag format is ignored. */
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_MSG; h->ep_attr->mem_tag_format = ~0ULL, 1);
}

CASE(getinfo_txrx_attr_hints)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->tx_attr->size = 128;
	hints->rx_attr->size = 128;
	hints->tx_attr->inject_size = 64;
	hints->tx_attr->iov_limit = 2;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->tx_attr->caps = FI_MSG | FI_SEND;
	hints->rx_attr->caps = FI_MSG | FI_RECV;
	hints->caps = FI_MSG;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->tx_attr->size >= 128 && list->rx_attr->size >= 128 && list->tx_attr->inject_size >= 64);
	CHECK(list->tx_attr->iov_limit >= 2 && list->tx_attr->msg_order & FI_ORDER_SAS);
	fi_freeinfo(list);
	fi_freeinfo(hints);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->iov_limit = 1 << 20, 0);
	WITH(of("tcp", FI_EP_RDM), h->rx_attr->iov_limit = 1 << 20, 0);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->inject_size = (size_t) 1 << 40, 0);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->msg_order = 1ULL << 60, 0);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->caps = FI_MULTICAST, 0);
	WITH(of("udp", FI_EP_DGRAM), h->tx_attr->op_flags = FI_COMMIT_COMPLETE, 0);
}

CASE(getinfo_attr_invariants)
{
	struct fi_info *list, *i;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		CHECK(i->ep_attr->msg_prefix_size % 8 == 0);
		CHECK(i->mode & FI_MSG_PREFIX || i->ep_attr->msg_prefix_size == 0);
		CHECK(i->domain_attr->cq_data_size == 0 || i->domain_attr->cq_data_size >= 4);
		CHECK(i->domain_attr->mr_key_size <= 8 || i->domain_attr->mr_mode & FI_MR_RAW);
		CHECK(!(i->tx_attr->caps & ~i->caps) && !(i->rx_attr->caps & ~i->caps));
	}
	fi_freeinfo(list);
}

/* Fields unknown to the caller's API version are ignored. */
CASE_OURS(getinfo_fields_since_1_5)
{
	int field;

	for (field = 0; field < 3; field++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

		hints->domain_attr->mr_mode = 0;
		if (field == 0)
			hints->domain_attr->max_err_data = (size_t) 1 << 40;
		else if (field == 1)
			hints->domain_attr->cntr_cnt = (size_t) 1 << 40;
		else
			hints->domain_attr->caps = FI_HMEM;
		CHECK(ask(FI_VERSION(1, 4), NULL, NULL, 0, hints, &list) == 0);
		fi_freeinfo(list);
		CHECK(ask(FI_VERSION(1, 5), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
		fi_freeinfo(hints);
	}
}

CASE_OURS(getinfo_unsupported_attrs_nomatch)
{
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->mr_iov_limit = 1 << 20, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->mr_cnt = (size_t) 1 << 40, 0);
	WITH(of("udp", FI_EP_DGRAM), h->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT, 0);
	WITH(of("udp", FI_EP_DGRAM), h->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->auth_key = calloc(1, 4); h->domain_attr->auth_key_size = 4, 0);
	WITH(of("tcp", FI_EP_RDM), h->ep_attr->auth_key = calloc(1, 4); h->ep_attr->auth_key_size = 4, 0);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_ep_auth_key = 1, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->auth_key_size = FI_AV_AUTH_KEY, 0);
#endif
}

CASE_OURS(txrx_hints_field_by_field)
{
	/* Capabilities of the other direction exclude nothing. */
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->caps = FI_MSG | FI_SEND | FI_RECV | FI_SOURCE | FI_MULTI_RECV, 1);
	WITH(of("tcp", FI_EP_RDM), h->rx_attr->caps = FI_MSG | FI_RECV | FI_SEND | FI_FENCE | FI_MULTICAST, 1);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->caps = FI_TRIGGER, 1);
	WITH(of("tcp", FI_EP_RDM), h->rx_attr->caps = FI_TRIGGER, 1);
	/* Modes are permissions. */
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->mode = FI_ASYNC_IOV | FI_MSG_PREFIX, 1);
	WITH(of("tcp", FI_EP_RDM), h->rx_attr->mode = FI_ASYNC_IOV | FI_MSG_PREFIX, 1);
	WITH(of("tcp", FI_EP_RDM), h->mode = 0, 1);
	WITH(of("tcp", FI_EP_RDM), h->rx_attr->op_flags = FI_COMPLETION; h->rx_attr->msg_order = FI_ORDER_SAS, 1);
	WITH(of("tcp", FI_EP_RDM), h->rx_attr->op_flags = FI_COMMIT_COMPLETE, 0);
	WITH(of("tcp", FI_EP_RDM), h->rx_attr->msg_order = FI_ORDER_WAR, 1);
	WITH(of("tcp", FI_EP_RDM), h->rx_attr->msg_order = 1ULL << 20, 0);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->op_flags = FI_COMPLETION, 1);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->op_flags = FI_COMMIT_COMPLETE, 0);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->size = (size_t) 1 << 40, 0);
	WITH(of("tcp", FI_EP_RDM), h->rx_attr->size = (size_t) 1 << 40, 0);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->rma_iov_limit = (size_t) 1 << 20, 0);
}

CASE(getinfo_progress_hint)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->domain_attr->data_progress == FI_PROGRESS_MANUAL);
	CHECK(list->domain_attr->control_progress == FI_PROGRESS_MANUAL);
	fi_freeinfo(list);
	hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->domain_attr->data_progress == FI_PROGRESS_AUTO);
	CHECK(list->domain_attr->control_progress == FI_PROGRESS_AUTO);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(every_progress_model_is_served)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	int model;

	/* Unspecified, auto, manual, and manual with unified control, which older headers lack. */
	for (model = 0; model <= 3; model++) {
		hints->domain_attr->data_progress = model;
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		CHECK((int) list->domain_attr->data_progress == (model ? model : FI_PROGRESS_MANUAL));
		CHECK(list->domain_attr->control_progress == list->domain_attr->data_progress);
		fi_freeinfo(list);
	}
	hints->domain_attr->data_progress = 9;
	CHECK(matches(hints) == 0);
	fi_freeinfo(hints);
}

CASE(getinfo_hints_echoed)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->tx_attr->op_flags = FI_COMPLETION;
	hints->rx_attr->op_flags = FI_COMPLETION;
	hints->tx_attr->size = 100;
	hints->rx_attr->size = 90;
	hints->tx_attr->iov_limit = 2;
	hints->rx_attr->iov_limit = 3;
	hints->ep_attr->tx_ctx_cnt = 1;
	hints->ep_attr->rx_ctx_cnt = 1;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->av_type = FI_AV_TABLE;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->tx_attr->op_flags == FI_COMPLETION && list->tx_attr->size == 100);
	CHECK(list->rx_attr->op_flags == FI_COMPLETION && list->rx_attr->size == 90);
	CHECK(list->tx_attr->iov_limit == 2 && list->rx_attr->iov_limit == 3);
	CHECK(list->ep_attr->tx_ctx_cnt == 1 && list->ep_attr->rx_ctx_cnt == 1);
	CHECK(list->domain_attr->threading == FI_THREAD_DOMAIN && list->domain_attr->av_type == FI_AV_TABLE);
	fi_freeinfo(list);
	/* Zero flags are copied too; a zero size is filled in. */
	hints->tx_attr->op_flags = 0;
	hints->rx_attr->op_flags = 0;
	hints->tx_attr->size = 0;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(!list->tx_attr->op_flags && !list->rx_attr->op_flags && list->tx_attr->size > 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_values_reach_hints)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;

	hints->caps = FI_TAGGED;
	hints->tx_attr->size = hints->rx_attr->size = 100;
	hints->tx_attr->inject_size = 64;
	hints->tx_attr->iov_limit = hints->rx_attr->iov_limit = 2;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->ep_attr->max_msg_size = 100000;
	hints->ep_attr->mem_tag_format = 0xff;
	hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = 1;
	hints->domain_attr->cq_data_size = 4;
	hints->domain_attr->cq_cnt = hints->domain_attr->ep_cnt = 2;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next) {
		CHECK(i->tx_attr->size >= 100 && i->tx_attr->inject_size >= 64 && i->tx_attr->iov_limit >= 2);
		CHECK(i->tx_attr->msg_order & FI_ORDER_SAS && i->rx_attr->msg_order & FI_ORDER_SAS);
		CHECK(i->rx_attr->size >= 100 && i->rx_attr->iov_limit >= 2);
		CHECK(i->ep_attr->max_msg_size >= 100000 && i->ep_attr->mem_tag_format >= 0xff);
		CHECK(i->ep_attr->tx_ctx_cnt >= 1 && i->ep_attr->rx_ctx_cnt >= 1);
		CHECK(i->domain_attr->cq_data_size >= 4 && i->domain_attr->resource_mgmt == FI_RM_ENABLED);
		CHECK(i->domain_attr->cq_cnt >= 2 && i->domain_attr->ep_cnt >= 2);
	}
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

/* Fields that the manual calls minimums must be met for a match; the reference ignores these. */
CASE_OURS(getinfo_every_size_is_compared)
{
	const size_t many = (size_t) 1 << 40;

	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cq_cnt = many, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->ep_cnt = many, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->tx_ctx_cnt = many, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->rx_ctx_cnt = many, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_ep_tx_ctx = many, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_ep_rx_ctx = many, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_ep_stx_ctx = many, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_ep_srx_ctx = many, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->mr_key_size = 64, 0);
	WITH(of("tcp", FI_EP_RDM), h->ep_attr->msg_prefix_size = 64, 0);
	/* Smaller values match. */
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cq_cnt = 2; h->domain_attr->ep_cnt = 2, 1);
}

CASE_OURS(mr_mode_before_and_since_1_5)
{
	static const struct { uint32_t version; int asked, given; } modes[] = {
		{ FI_VERSION(1, 4), 0, FI_MR_BASIC }, { FI_VERSION(1, 4), FI_MR_BASIC, FI_MR_BASIC },
		{ FI_VERSION(1, 4), FI_MR_SCALABLE, FI_MR_SCALABLE }, { FI_VERSION(1, 4), FI_MR_BASIC | FI_MR_SCALABLE, -1 },
		{ FI_VERSION(1, 4), ~3, FI_MR_BASIC }, { FI_VERSION(1, 0), ~3, FI_MR_BASIC },
		{ FI_VERSION(1, 5), 0, 0 }, { FI_VERSION(1, 5), FI_MR_BASIC, FI_MR_BASIC },
		{ FI_VERSION(1, 5), FI_MR_SCALABLE, FI_MR_SCALABLE }, { FI_VERSION(1, 5), FI_MR_BASIC | FI_MR_SCALABLE, -1 },
		{ FI_VERSION(1, 5), FI_MR_BASIC | FI_MR_LOCAL, -1 }, { FI_VERSION(1, 5), FI_MR_SCALABLE | FI_MR_LOCAL, -1 },
		{ FI_VERSION(1, 5), FI_MR_LOCAL, 0 }, { FI_VERSION(1, 5), ~3, 0 },
	};
	struct fi_info *list;
	size_t m;

	for (m = 0; m < ARRAY(modes); m++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM);
		int ret;

		hints->domain_attr->mr_mode = modes[m].asked;
		ret = ask(modes[m].version, NULL, NULL, 0, hints, &list);
		CHECK(ret == (modes[m].given < 0 ? -FI_ENODATA : 0));
		CHECK(ret || list->domain_attr->mr_mode == modes[m].given);
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}

/* Callers before 1.5 did not know the new bits, so they do not match. */
CASE(mr_mode_before_1_5_has_no_new_bits)
{
	static const int modes[] = { FI_MR_LOCAL, FI_MR_PROV_KEY | FI_MR_VIRT_ADDR };
	struct fi_info *list;
	size_t m;

	for (m = 0; m < ARRAY(modes); m++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM);

		hints->domain_attr->mr_mode = modes[m];
		CHECK(ask(FI_VERSION(1, 4), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
		fi_freeinfo(hints);
	}
}
