/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Hints that are requirements, and all parts of address strings: fi_getinfo(3), fi_domain(3),
 * fi_endpoint(3).
 */
#include "getinfo.h"

/*
 * A requested count is met or refused, and the result is no less (the reference compares few
 * counts).
 */
#define COUNTED(provider, type, field, most) \
	do { \
		struct fi_info *h_ = of(provider, type), *l_, *i_; \
		h_->field = 1; \
		if (ask(API, NULL, NULL, 0, h_, &l_) == 0) { \
			for (i_ = l_; i_; i_ = i_->next) \
				CHECK(i_->field >= 1); \
			fi_freeinfo(l_); \
		} \
		h_->field = (most); \
		if (matches(h_)) \
			fprintf(stderr, "%s: %s\n", provider, #field); \
		CHECK(matches(h_) == 0); \
		fi_freeinfo(h_); \
	} while (0)

CASE_OURS(getinfo_counts_compared)
{
	static const struct { const char *provider; enum fi_ep_type type; } ends[] = {
		{ "tcp", FI_EP_RDM }, { "tcp", FI_EP_MSG }, { "udp", FI_EP_DGRAM }, { "shm", FI_EP_RDM }, { "shm", FI_EP_MSG },
	};
	const size_t most = (size_t) 1 << 40;
	size_t e;

	for (e = 0; e < ARRAY(ends); e++) {
		const char *name = ends[e].provider;
		enum fi_ep_type type = ends[e].type;

		COUNTED(name, type, domain_attr->cq_cnt, most);
		COUNTED(name, type, domain_attr->ep_cnt, most);
		COUNTED(name, type, domain_attr->tx_ctx_cnt, most);
		COUNTED(name, type, domain_attr->rx_ctx_cnt, most);
		COUNTED(name, type, domain_attr->max_ep_tx_ctx, most);
		COUNTED(name, type, domain_attr->max_ep_rx_ctx, most);
		COUNTED(name, type, domain_attr->max_ep_stx_ctx, most);
		COUNTED(name, type, domain_attr->max_ep_srx_ctx, most);
		COUNTED(name, type, domain_attr->cntr_cnt, most);
		COUNTED(name, type, domain_attr->mr_key_size, 64);
		COUNTED(name, type, domain_attr->mr_iov_limit, most);
		COUNTED(name, type, domain_attr->mr_cnt, most);
		COUNTED(name, type, ep_attr->msg_prefix_size, 64);
		COUNTED(name, type, ep_attr->max_order_war_size, most);
		COUNTED(name, type, tx_attr->size, most);
		COUNTED(name, type, tx_attr->iov_limit, most);
		COUNTED(name, type, tx_attr->rma_iov_limit, most);
		COUNTED(name, type, rx_attr->size, most);
		COUNTED(name, type, rx_attr->iov_limit, most);
	}
}

/*
 * An unknown class cannot be honored; a class that packets can carry is returned. Within the host any will do, and none is
 * returned that means something there.
 */
CASE_OURS(getinfo_traffic_class_hints)
{
	static const struct { uint32_t class; int is_known, has_meaning_within_host; } classes[] = {
		{ FI_TC_UNSPEC, 1, 1 }, { FI_TC_BEST_EFFORT, 1, 1 }, { FI_TC_LOW_LATENCY, 1, 0 }, { FI_TC_DEDICATED_ACCESS, 1, 0 },
		{ FI_TC_BULK_DATA, 1, 0 }, { FI_TC_SCAVENGER, 1, 0 }, { FI_TC_NETWORK_CTRL, 1, 0 }, { FI_TC_DSCP | 63, 1, 0 },
		{ FI_TC_DSCP, 1, 1 }, { FI_TC_DSCP | 64, 0, 0 }, { 0x20a, 0, 0 }, { 1, 0, 0 },
	};
	static const char *const names[] = { "tcp", "udp", "shm" };
	struct fi_info *list, *i;
	size_t c, n, domain;

	for (c = 0; c < ARRAY(classes); c++)
		for (n = 0; n < ARRAY(names); n++)
			for (domain = 0; domain < 2; domain++) {
				struct fi_info *hints = of(names[n], n == 1 ? FI_EP_DGRAM : FI_EP_RDM);
				int comes_back = n < 2 || classes[c].has_meaning_within_host;

				if (domain)
					hints->domain_attr->tclass = classes[c].class;
				else
					hints->tx_attr->tclass = classes[c].class;
				CHECK(ask(API, NULL, NULL, 0, hints, &list) == (classes[c].is_known ? 0 : -FI_ENODATA));
				for (i = list; i; i = i->next) {
					CHECK(i->domain_attr->tclass == (comes_back ? hints->domain_attr->tclass : 0));
					CHECK(i->tx_attr->tclass == (comes_back ? hints->tx_attr->tclass : 0));
				}
				fi_freeinfo(list);
				fi_freeinfo(hints);
			}
}

/* Capabilities of the 2014 API that are now always provided; its callers may still request them. */
CASE_OURS(caps_of_2014)
{
	const uint64_t once = FI_INJECT | FI_REMOTE_CQ_DATA;
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->caps = FI_MSG | once;
	hints->domain_attr->mr_mode = 0;
	CHECK(ask(FI_VERSION(1, 0), NULL, NULL, 0, hints, &list) == 0);
	CHECK((list->caps & once) == once && list->tx_attr->inject_size >= 8 && list->domain_attr->cq_data_size >= 4);
	fi_freeinfo(list);
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == 0);
	fi_freeinfo(list);
	CHECK(ask(FI_VERSION(2, 0), NULL, NULL, 0, hints, &list) == -FI_EBADFLAGS);
	hints->caps = FI_MSG | FI_REMOTE_CQ_DATA;
	CHECK(ask(FI_VERSION(2, 0), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
	/* Datagrams carry no remote CQ data. */
	hints = of("udp", FI_EP_DGRAM);
	hints->caps = FI_MSG | FI_REMOTE_CQ_DATA;
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	hints->caps = FI_MSG | FI_INJECT;
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

/* Domain capabilities are hints too. */
CASE_OURS(domain_caps_as_hints)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->caps = FI_TAGGED | FI_DIRECTED_RECV | FI_AV_USER_ID;
	hints->domain_attr->caps = FI_DIRECTED_RECV | FI_AV_USER_ID | FI_LOCAL_COMM;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK((list->domain_attr->caps & hints->domain_attr->caps) == hints->domain_attr->caps);
	fi_freeinfo(list);
	fi_freeinfo(hints);
	WITH(of("tcp", FI_EP_MSG), h->domain_attr->caps = FI_DIRECTED_RECV, 0);
	WITH(of("udp", FI_EP_DGRAM), h->domain_attr->caps = FI_DIRECTED_RECV, 0);
}

/* address_format[://[node][:[service][/field...][?key=value...]]], any part may be missing. */
CASE_OURS(getinfo_addr_str_parts)
{
	static const struct { const char *string; uint64_t flags; uint32_t format; unsigned char first, last; int port; } strings[] = {
		{ "fi_sockaddr://127.0.0.1", 0, FI_SOCKADDR_IN, 127, 1, 0 },
		{ "fi_sockaddr_in://127.0.0.1", 0, FI_SOCKADDR_IN, 127, 1, 0 },
		{ "fi_sockaddr://127.0.0.1:4711?qos=3", 0, FI_SOCKADDR_IN, 127, 1, 4711 },
		{ "fi_sockaddr://127.0.0.1:4711/field/?a=b&c", 0, FI_SOCKADDR_IN, 127, 1, 4711 },
		{ "://127.0.0.1:7471", 0, FI_SOCKADDR_IN, 127, 1, 7471 },
		{ "fi_sockaddr_in://localhost:7471", 0, FI_SOCKADDR_IN, 127, 1, 7471 },
		{ "fi_sockaddr_in://:7471", FI_SOURCE, FI_SOCKADDR_IN, 0, 0, 7471 },
		{ "fi_sockaddr_in://", FI_SOURCE, FI_SOCKADDR_IN, 0, 0, 0 },
		{ "fi_sockaddr_in6://[::1]", 0, FI_SOCKADDR_IN6, 0, 1, 0 },
		{ "fi_sockaddr_in6://[::1%lo]:7471?x", 0, FI_SOCKADDR_IN6, 0, 1, 7471 },
		{ "fi_sockaddr_in6://::1", 0, FI_SOCKADDR_IN6, 0, 1, 0 },
		{ "FI_SOCKADDR_IN6://:80", FI_SOURCE, FI_SOCKADDR_IN6, 0, 0, 80 },
	};
	static const char *const bad[] = {
		"fi_sockaddr://127.0.0.1:99999", "fi_sockaddr://[::1", "fi_sockaddr://[::1]9", "fi_sockaddr_in://[::1]:7471",
		"fi_sockaddr_in6://127.0.0.1:7471", "fi_addr_efa://x", "http://127.0.0.1", "fi_sockaddr_in6://[fe80::1%nowhere]:9",
	};
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;
	unsigned char *addr;
	size_t n;

	for (n = 0; n < ARRAY(strings); n++) {
		int v6 = strings[n].format == FI_SOCKADDR_IN6;

		CHECK(ask(API, strings[n].string, NULL, strings[n].flags, hints, &list) == 0);
		addr = strings[n].flags ? list->src_addr : list->dest_addr;
		CHECK(addr && list->addr_format == strings[n].format && addr[2] * 256 + addr[3] == strings[n].port);
		CHECK(addr[v6 ? 8 : 4] == strings[n].first && addr[v6 ? 23 : 7] == strings[n].last);
		fi_freeinfo(list);
		/* The scheme must have the hinted format. */
		hints->addr_format = v6 ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
		CHECK(ask(API, strings[n].string, NULL, strings[n].flags, hints, &list) == -FI_ENODATA);
		hints->addr_format = FI_FORMAT_UNSPEC;
	}
	for (n = 0; n < ARRAY(bad); n++)
		CHECK(ask(API, bad[n], NULL, FI_NUMERICHOST, hints, &list) == -FI_ENODATA);
	/* A format alone selects among the addresses of this host. */
	CHECK(ask(API, "fi_sockaddr_in://", NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->addr_format == FI_SOCKADDR_IN && !i->dest_addr);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}
