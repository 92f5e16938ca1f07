/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Discovery: what fi_getinfo(3) finds and what it makes of hints. */
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

/* How many infos the hints find. */
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

/* With the change the hints find something, or nothing. */
#define WITH(hints_expr, change, found) \
	do { \
		struct fi_info *h = (hints_expr); \
		change; \
		if (!!matches(h) != (found)) \
			fprintf(stderr, "%s: %s\n", #change, (found) ? "nothing" : "something"); \
		CHECK(!!matches(h) == (found)); \
		fi_freeinfo(h); \
	} while (0)

CASE(getinfo_return_values)
{
	struct fi_info *hints = plain(), *copy = fi_dupinfo(hints), *list;

	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && list);
	fi_freeinfo(list);
	/* The hints are as they were. */
	CHECK(hints->caps == copy->caps && hints->mode == copy->mode && !hints->src_addr && !hints->next);
	CHECK(!memcmp(hints->tx_attr, copy->tx_attr, sizeof(*hints->tx_attr)));
	CHECK(hints->ep_attr->type == copy->ep_attr->type && hints->ep_attr->max_msg_size == copy->ep_attr->max_msg_size);
	CHECK(hints->ep_attr->tx_ctx_cnt == copy->ep_attr->tx_ctx_cnt && hints->ep_attr->protocol == copy->ep_attr->protocol);
	fi_freeinfo(copy);
	hints->caps = FI_MSG;
	hints->ep_attr->type = FI_EP_RDM;
	hints->ep_attr->protocol = FI_PROTO_UDP;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == -FI_ENODATA && !list);
	fi_freeinfo(hints);
}

CASE_OURS(getinfo_null_place)
{
	CHECK(fi_getinfo(API, NULL, NULL, 0, NULL, NULL) == -FI_EINVAL);
}

CASE(getinfo_null_hints_lists)
{
	struct fi_info *list, *i;
	int rdm = -1, layered = -1, dgram = -1, msg = -1, at = 0;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next, at++) {
		const char *name = i->fabric_attr->prov_name;

		CHECK(i->tx_attr && i->rx_attr && i->ep_attr && i->domain_attr && i->fabric_attr);
		if (!strcmp(name, "tcp") && i->ep_attr->type == FI_EP_RDM && rdm < 0)
			rdm = at;
		if (!strcmp(name, "tcp;ofi_rxm") && layered < 0)
			layered = at;
		if (!strcmp(name, "udp") && dgram < 0)
			dgram = at;
		if (!strcmp(name, "tcp") && i->ep_attr->type == FI_EP_MSG && msg < 0)
			msg = at;
	}
	CHECK(rdm >= 0 && rdm < layered && layered < dgram && dgram < msg);
	fi_freeinfo(list);
}

CASE(getinfo_interface_list)
{
	struct fi_info *hints = of("tcp", FI_EP_MSG), *list, *i;
	int loopback = 0;

	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next) {
		int is_lo = !strcmp(i->domain_attr->name, "lo");

		CHECK(strchr(i->fabric_attr->name, '/'));
		/* Loopback comes last and reaches nobody else. */
		CHECK(is_lo || !loopback);
		loopback |= is_lo;
		CHECK(i->caps & FI_LOCAL_COMM);
		CHECK(!is_lo || !(i->caps & FI_REMOTE_COMM));
	}
	CHECK(loopback);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_version_range)
{
	struct fi_info *list = NULL;
	uint32_t minor;

	for (minor = 0; minor <= FI_MINOR(fi_version()); minor++) {
		CHECK(ask(FI_VERSION(FI_MAJOR(fi_version()), minor), NULL, NULL, 0, NULL, &list) == 0);
		CHECK(list->fabric_attr->api_version == FI_VERSION(FI_MAJOR(fi_version()), minor));
		fi_freeinfo(list);
	}
	CHECK(ask(FI_VERSION(1, 0), NULL, NULL, 0, NULL, &list) == 0);
	CHECK(list->fabric_attr->api_version == FI_VERSION(1, 0));
	fi_freeinfo(list);
	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	fi_freeinfo(list);
	list = (void *) 7;
	CHECK(fi_getinfo(FI_VERSION(FI_MAJOR(fi_version()), FI_MINOR(fi_version()) + 1), NULL, NULL, 0, NULL, &list)
		== -FI_ENOSYS);
	CHECK(list == (void *) 7);
	CHECK(ask(0, NULL, NULL, 0, NULL, &list) == 0);
	fi_freeinfo(list);
}

CASE(getinfo_no_match_enodata)
{
	WITH(plain(), h->fabric_attr->prov_name = strdup("nobody"), 0);
	WITH(plain(), h->domain_attr->name = strdup("no-such-interface"), 0);
	WITH(of("tcp", FI_EP_DGRAM), , 0);
}

CASE(getinfo_name_hints_filter)
{
	struct fi_info *hints = plain(), *list, *i;

	hints->fabric_attr->prov_name = strdup("udp");
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(strstr(i->fabric_attr->prov_name, "udp"));
	fi_freeinfo(list);
	fi_freeinfo(hints);
	/* A domain's name alone; the case does not matter. */
	hints = plain();
	hints->domain_attr->name = strdup("LO");
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(!strcmp(i->domain_attr->name, "lo"));
	CHECK(!strcmp(list->fabric_attr->prov_name, "tcp"));
	free(hints->fabric_attr->name);
	hints->fabric_attr->name = strdup(list->fabric_attr->name);
	fi_freeinfo(list);
	CHECK(matches(hints) > 0);
	fi_freeinfo(hints);
}

CASE(getinfo_hints_narrow_results)
{
	struct fi_info *hints = plain();
	int all = matches(hints), some, fewer;

	hints->ep_attr->type = FI_EP_RDM;
	some = matches(hints);
	hints->domain_attr->name = strdup("lo");
	fewer = matches(hints);
	CHECK(all > some && some > fewer && fewer > 0);
	fi_freeinfo(hints);
}

CASE(getinfo_zero_hints_wildcard)
{
	struct fi_info *hints = fi_allocinfo(), *list, *i;

	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->caps & FI_SEND && i->caps & FI_RECV && i->caps & FI_MSG);
	fi_freeinfo(list);
	free(hints->tx_attr);
	free(hints->rx_attr);
	hints->tx_attr = NULL;
	hints->rx_attr = NULL;
	CHECK(matches(hints) > 0);
	free(hints->ep_attr);
	free(hints->domain_attr);
	free(hints->fabric_attr);
	hints->ep_attr = NULL;
	hints->domain_attr = NULL;
	hints->fabric_attr = NULL;
	CHECK(matches(hints) > 0);
	fi_freeinfo(hints);
}

CASE(ep_type_hint_selects)
{
	static const enum fi_ep_type types[] = { FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM };
	struct fi_info *list, *i;
	size_t t;

	for (t = 0; t < ARRAY(types); t++) {
		struct fi_info *hints = plain();

		hints->ep_attr->type = types[t];
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			CHECK(i->ep_attr->type == types[t]);
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}

CASE(caps_both_directions_default)
{
	static const uint64_t kinds[] = { FI_MSG, FI_TAGGED };
	struct fi_info *list;
	size_t k;

	for (k = 0; k < ARRAY(kinds); k++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM);

		hints->caps = kinds[k];
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		CHECK((list->caps & (FI_SEND | FI_RECV)) == (FI_SEND | FI_RECV) && list->caps & kinds[k]);
		CHECK(!(list->caps & (FI_MSG | FI_TAGGED) & ~kinds[k]));
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}

CASE(caps_send_only_recv_only)
{
	static const uint64_t directions[] = { FI_SEND, FI_RECV };
	struct fi_info *list;
	size_t d;

	for (d = 0; d < ARRAY(directions); d++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM);

		hints->caps = FI_MSG | directions[d];
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		CHECK((list->caps & (FI_SEND | FI_RECV)) == directions[d]);
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}

CASE_OURS(caps_one_direction_works)
{
	struct want sender = { .caps = FI_SEND }, receiver = { .caps = FI_RECV };
	struct fid_ep *ep;
	struct side a, b;
	char in[8];
	fi_addr_t to_b;

	/* Each needs the queue of its own direction only. */
	open_domain(&a, &sender);
	CHECK(fi_endpoint(a.domain, a.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &a.cq->fid, FI_TRANSMIT) == 0 && fi_ep_bind(ep, &a.av->fid, 0) == 0 && fi_enable(ep) == 0);
	a.ep = ep;
	open_domain(&b, &receiver);
	CHECK(fi_endpoint(b.domain, b.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &b.cq->fid, FI_RECV) == 0 && fi_ep_bind(ep, &b.av->fid, 0) == 0 && fi_enable(ep) == 0);
	b.ep = ep;
	b.len = sizeof(b.name);
	CHECK(fi_getname(&b.ep->fid, b.name, &b.len) == 0);
	to_b = insert(&a, b.name);
	POST(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(a.ep, "x", 1, NULL, to_b, &contexts[1]));
	done(&b, &a, &contexts[0]);
	CHECK(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL) == -FI_ENOCQ);
	CHECK(fi_send(b.ep, in, 8, NULL, 0, NULL) == -FI_ENOCQ);
	close_side(&a);
	close_side(&b);
}

CASE(getinfo_nonzero_hint_enforced)
{
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_TAGGED, 0);
	WITH(of("tcp", FI_EP_RDM), h->caps = FI_TAGGED, 1);
	WITH(of("tcp", FI_EP_RDM), h->caps = FI_TAGGED | FI_MULTICAST, 0);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->inject_size = (size_t) 1 << 40, 0);
}

CASE(getinfo_primary_caps_unrequested)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->caps = FI_TAGGED;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(!(list->caps & (FI_MSG | FI_RMA | FI_ATOMIC | FI_MULTICAST | FI_DIRECTED_RECV | FI_AV_USER_ID)));
	CHECK(!(list->caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_NAMED_RX_CTX)));
	CHECK(!(list->domain_attr->caps & (FI_DIRECTED_RECV | FI_AV_USER_ID)));
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_secondary_caps_rules)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->caps = FI_MSG;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	/* What costs nothing comes unasked; the source is told only to who asks. */
	CHECK(list->caps & FI_LOCAL_COMM && !(list->caps & FI_SOURCE));
	fi_freeinfo(list);
	hints->caps = FI_MSG | FI_SOURCE | FI_MULTI_RECV;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->caps & FI_SOURCE && list->caps & FI_MULTI_RECV);
	fi_freeinfo(list);
	hints->caps = FI_MSG | FI_TRIGGER;
	CHECK(matches(hints) == 0);
	fi_freeinfo(hints);
}

CASE_OURS(caps_source_err_reports)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	/* It turns what works into an error: nobody gets it who does not name it, and only with FI_SOURCE. */
	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	CHECK(!(list->caps & FI_SOURCE_ERR));
	fi_freeinfo(list);
	hints->caps = FI_MSG | FI_SOURCE_ERR;
	CHECK(matches(hints) == 0);
	hints->caps |= FI_SOURCE;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && list->caps & FI_SOURCE_ERR);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(caps_source_in_completion)
{
	WITH(of("tcp", FI_EP_RDM), h->caps = FI_MSG | FI_SOURCE, 1);
}

CASE(caps_multi_recv_accepted)
{
	WITH(of("tcp", FI_EP_RDM), h->caps = FI_MSG | FI_MULTI_RECV, 1);
}

CASE(caps_multicast_needs_transfer)
{
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_MSG | FI_MULTICAST, 1);
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_MSG | FI_MULTICAST | FI_SEND, 1);
}

CASE(caps_local_remote_comm)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;

	hints->caps = FI_MSG | FI_LOCAL_COMM;
	CHECK(matches(hints) > 0);
	hints->caps = FI_MSG | FI_REMOTE_COMM;
	if (ask(API, NULL, NULL, 0, hints, &list) == 0) {
		for (i = list; i; i = i->next)
			CHECK(i->caps & FI_REMOTE_COMM && strcmp(i->domain_attr->name, "lo"));
		fi_freeinfo(list);
	}
	fi_freeinfo(hints);
}

CASE_OURS(getinfo_receive_caps_2x)
{
#ifdef FI_TAGGED_MULTI_RECV
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	uint64_t both = FI_TAGGED_MULTI_RECV | FI_TAGGED_DIRECTED_RECV;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0 && (list->caps & both) == both);
	fi_freeinfo(list);
	/* A caller of an earlier version would take these bits for something else. */
	CHECK(ask(FI_VERSION(1, 20), NULL, NULL, 0, NULL, &list) == 0 && !(list->caps & both));
	fi_freeinfo(list);
	hints->caps = FI_TAGGED;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && !(list->caps & both));
	fi_freeinfo(list);
	hints->caps = FI_TAGGED | both;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && (list->caps & both) == both);
	fi_freeinfo(list);
	hints->caps = FI_TAGGED | FI_EXACT_DIRECTED_RECV;
	CHECK(matches(hints) == 0);
	fi_freeinfo(hints);
#else
	SKIP("these headers are older");
#endif
}

CASE(getinfo_mode_negotiation)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->mode = 0;
	hints->domain_attr->mode = 0;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->mode == 0);
	fi_freeinfo(list);
	hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_ASYNC_IOV | FI_MSG_PREFIX | FI_RX_CQ_DATA;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(!(list->mode & ~hints->mode));
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(compat_old_mode_bits_harmless)
{
	WITH(of("tcp", FI_EP_RDM), h->mode = 1ULL << 53 | 1ULL << 54 | 1ULL << 51, 1);
}

CASE(compat_removed_values_nomatch)
{
	WITH(plain(), h->ep_attr->type = 4, 0);
	WITH(plain(), h->ep_attr->type = 5, 0);
	WITH(of("tcp", FI_EP_RDM), h->caps = FI_MSG | 1ULL << 48, 0);
}

CASE_OURS(compat_thread_levels_nomatch)
{
	/* They are deprecated, and stricter for the caller than what we need: served. */
	static const int levels[] = { 2, 5 };
	struct fi_info *list;
	size_t i;

	for (i = 0; i < ARRAY(levels); i++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM);

		hints->domain_attr->threading = levels[i];
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		CHECK((int) list->domain_attr->threading == levels[i]);
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->threading = 9, 0);
}

CASE_OURS(compat_obsolete_attrs_nomatch)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->rx_attr->total_buffered_recv = 1 << 20;
	CHECK(ask(FI_VERSION(2, 0), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	/* A caller of 1.x gets what the credit of a link gives it anyway. */
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->rx_attr->total_buffered_recv == 1 << 20);
	fi_freeinfo(list);
	hints->rx_attr->total_buffered_recv = (size_t) 1 << 40;
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	hints->rx_attr->total_buffered_recv = 0;
	/* Completions in the order of posting are nowhere promised. */
	hints->tx_attr->comp_order = 1;
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
}

CASE(compat_control_progress_ignored)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->domain_attr->control_progress = 99;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(compat_newer_names_compile)
{
	/* What newer releases brought compiles with the headers that know it, and answers. */
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	struct fi_info *hints = of("tcp", FI_EP_RDM);

	hints->domain_attr->max_group_id = 7;
	CHECK(matches(hints) == 0);
	hints->domain_attr->max_group_id = 0;
	hints->ep_attr->mem_tag_format = FI_TAG_MPI;
	CHECK(matches(hints) > 0);
	fi_freeinfo(hints);
#else
	SKIP("these headers are older");
#endif
}

CASE(getinfo_addr_format_hint)
{
	static const struct { uint32_t format; int found; } formats[] = {
		{ FI_FORMAT_UNSPEC, 1 }, { FI_SOCKADDR, 1 }, { FI_SOCKADDR_IN, 1 }, { FI_SOCKADDR_IB, 0 }, { FI_ADDR_EFA, 0 },
	};
	struct fi_info *list, *i;
	size_t f;

	for (f = 0; f < ARRAY(formats); f++)
		WITH(of("tcp", FI_EP_MSG), h->addr_format = formats[f].format, formats[f].found);
	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		uint16_t family;

		if (!i->src_addr || (i->addr_format != FI_SOCKADDR_IN && i->addr_format != FI_SOCKADDR_IN6))
			continue;
		memcpy(&family, i->src_addr, 2);
		CHECK(family == (i->addr_format == FI_SOCKADDR_IN ? 2 : 10));
		CHECK(i->src_addrlen == (i->addr_format == FI_SOCKADDR_IN ? 16 : 28));
	}
	fi_freeinfo(list);
}

CASE(getinfo_node_service_resolve)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	unsigned char *addr;

	CHECK(ask(API, "127.0.0.1", "4711", 0, hints, &list) == 0);
	addr = list->dest_addr;
	CHECK(addr && list->dest_addrlen == 16 && addr[2] == 4711 >> 8 && addr[3] == (4711 & 255) && addr[4] == 127);
	/* The source is where the system would send from. */
	addr = list->src_addr;
	CHECK(addr && addr[4] == 127 && addr[2] == 0 && addr[3] == 0);
	fi_freeinfo(list);
	CHECK(ask(API, "localhost", "80", 0, hints, &list) == 0);
	fi_freeinfo(list);
	CHECK(ask(API, NULL, "80", FI_SOURCE, hints, &list) == 0);
	fi_freeinfo(list);
	CHECK(ask(API, "127.0.0.1", NULL, 0, hints, &list) == 0);
	fi_freeinfo(list);
	CHECK(ask(API, "no.such.host.invalid", "80", 0, hints, &list) == -FI_ENODATA && !list);
	CHECK(ask(API, "127.0.0.1", "no-such-service", 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
}

CASE(getinfo_numeric_host)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	CHECK(ask(API, "127.0.0.1", "80", FI_NUMERICHOST, hints, &list) == 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(getinfo_numeric_host_refuses_names)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	CHECK(ask(API, "localhost", "80", FI_NUMERICHOST, hints, &list) == -FI_ENODATA);
	CHECK(ask(API, "::1", "80", FI_NUMERICHOST, hints, &list) == 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(getinfo_addr_str_node)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	unsigned char *addr;

	CHECK(ask(API, "fi_sockaddr_in://127.0.0.1:4711", NULL, 0, hints, &list) == 0);
	addr = list->dest_addr;
	CHECK(addr[2] == 4711 >> 8 && addr[4] == 127 && list->addr_format == FI_SOCKADDR_IN);
	fi_freeinfo(list);
	CHECK(ask(API, "fi_sockaddr_in6://[::1]:80", NULL, 0, hints, &list) == 0);
	CHECK(list->addr_format == FI_SOCKADDR_IN6);
	fi_freeinfo(list);
	CHECK(ask(API, "fi_sockaddr_in://127.0.0.1:4711", "80", 0, hints, &list) == -FI_ENODATA);
	CHECK(ask(API, "fi_sockaddr_in://nonsense", NULL, 0, hints, &list) == -FI_ENODATA);
	CHECK(ask(API, "fi_shm://1", NULL, 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
}

CASE(getinfo_source_flag)
{
	struct fi_info *hints = of("tcp", FI_EP_MSG), *list;
	struct fid_fabric *fabric;
	struct fid_pep *pep;
	unsigned char *addr, name[64];
	size_t len = sizeof(name);

	CHECK(ask(API, NULL, NULL, FI_SOURCE, hints, &list) == -FI_ENODATA);
	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, hints, &list) == 0);
	addr = list->src_addr;
	CHECK(addr && addr[4] == 127 && !list->dest_addr);
	CHECK(fi_fabric(list->fabric_attr, &fabric, NULL) == 0);
	CHECK(fi_passive_ep(fabric, list, &pep, NULL) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0 || len == 16);
	CHECK(fi_close(&pep->fid) == 0 && fi_close(&fabric->fid) == 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

static void set_addr(void **addr, size_t *len, unsigned char last, uint16_t port)
{
	unsigned char bytes[16] = { 2, 0, port >> 8, port & 255, 127, 0, 0, last };

	free(*addr);
	*addr = malloc(16);
	memcpy(*addr, bytes, 16);
	*len = 16;
}

CASE(getinfo_hint_addrs_used)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->addr_format = FI_SOCKADDR_IN;
	set_addr(&hints->src_addr, &hints->src_addrlen, 1, 0);
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->src_addrlen == 16 && !memcmp(list->src_addr, hints->src_addr, 8));
	CHECK(!strcmp(list->domain_attr->name, "lo"));
	fi_freeinfo(list);
	set_addr(&hints->dest_addr, &hints->dest_addrlen, 1, 99);
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->dest_addrlen == 16 && !memcmp(list->dest_addr, hints->dest_addr, 8));
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_hint_addrs_ignored)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	unsigned char *addr;

	hints->addr_format = FI_SOCKADDR_IN;
	/* The node says where to; the hint does not count. */
	set_addr(&hints->dest_addr, &hints->dest_addrlen, 1, 99);
	CHECK(ask(API, "127.0.0.1", "4711", 0, hints, &list) == 0);
	addr = list->dest_addr;
	CHECK(addr[2] == 4711 >> 8);
	fi_freeinfo(list);
	/* Lengths without addresses are nothing. */
	free(hints->dest_addr);
	hints->dest_addr = NULL;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

/* An address of another family than the node's, where the node says it (fi_getinfo(3)). */
CASE_OURS(getinfo_ignored_hints_of_another_family)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->addr_format = FI_FORMAT_UNSPEC;
	set_addr(&hints->src_addr, &hints->src_addrlen, 1, 99);
	CHECK(ask(API, "::1", "7471", FI_SOURCE, hints, &list) == 0);
	CHECK(list->addr_format == FI_SOCKADDR_IN6);
	fi_freeinfo(list);
	/* Both ends are of one family. */
	CHECK(ask(API, "::1", "7471", 0, hints, &list) == -FI_ENODATA);
	free(hints->src_addr);
	hints->src_addr = NULL;
	set_addr(&hints->dest_addr, &hints->dest_addrlen, 1, 99);
	CHECK(ask(API, "::1", "7471", 0, hints, &list) == 0);
	CHECK(list->addr_format == FI_SOCKADDR_IN6);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_prov_attr_only)
{
	struct fi_info *list, *i, *k;

	CHECK(ask(API, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		CHECK(i->fabric_attr->prov_name && i->fabric_attr->prov_version);
		CHECK(!i->caps && !i->mode && !i->src_addr && !i->fabric_attr->name);
		for (k = i->next; k; k = k->next)
			CHECK(strcmp(i->fabric_attr->prov_name, k->fabric_attr->prov_name));
	}
	fi_freeinfo(list);
}

CASE_OURS(getinfo_unknown_bits)
{
	struct fi_info *list, *hints = plain();

	CHECK(ask(API, NULL, NULL, 1ULL << 40, NULL, &list) == -FI_EBADFLAGS);
#ifdef FI_RESCAN
	CHECK(ask(API, NULL, NULL, FI_RESCAN, NULL, &list) == 0);
	fi_freeinfo(list);
#endif
	hints->caps = FI_MSG | 1ULL << 63;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == -FI_EBADFLAGS);
	hints->caps = FI_MSG;
	hints->tx_attr->op_flags = 1ULL << 63;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == -FI_EBADFLAGS);
	hints->tx_attr->op_flags = 0;
	hints->domain_attr->caps = 1ULL << 62;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == -FI_EBADFLAGS);
	fi_freeinfo(hints);
}

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
	/* Before 1.5 there is one of two. */
	hints->mode = FI_LOCAL_MR;
	CHECK(ask(FI_VERSION(1, 4), NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->domain_attr->mr_mode == FI_MR_BASIC || list->domain_attr->mr_mode == FI_MR_SCALABLE);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_domain_attr_hints)
{
	struct fi_info *list;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cq_data_size = list->domain_attr->cq_data_size, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cq_data_size = list->domain_attr->cq_data_size + 1, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_err_data = list->domain_attr->max_err_data, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_err_data = (size_t) 1 << 40, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->av_type = FI_AV_TABLE, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->av_type = FI_AV_MAP, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->resource_mgmt = FI_RM_ENABLED, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->caps = FI_LOCAL_COMM, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->caps = FI_SHARED_AV, 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cntr_cnt = list->domain_attr->cntr_cnt, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cntr_cnt = (size_t) 1 << 40, 0);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 5))
	CHECK(list->domain_attr->max_cntr_value > 0 && list->domain_attr->max_err_cntr_value > 0);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_cntr_value = list->domain_attr->max_cntr_value, 1);
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
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->msg_order = FI_ORDER_WAR, 0);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->caps = FI_MULTICAST, 0);
	WITH(of("udp", FI_EP_DGRAM), h->tx_attr->op_flags = FI_COMMIT_COMPLETE, 0);
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
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_hints_echoed)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->tx_attr->op_flags = FI_COMPLETION;
	hints->tx_attr->size = 100;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->av_type = FI_AV_TABLE;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->tx_attr->op_flags == FI_COMPLETION && list->tx_attr->size == 100);
	CHECK(list->domain_attr->threading == FI_THREAD_DOMAIN && list->domain_attr->av_type == FI_AV_TABLE);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_uncompared_fields)
{
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->cq_cnt = (size_t) 1 << 40, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->ep_cnt = (size_t) 1 << 40, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->mr_key_size = 64, 1);
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->max_ep_stx_ctx = 64, 1);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->tclass = FI_TC_LOW_LATENCY, 1);
}

CASE(getinfo_attr_invariants)
{
	struct fi_info *list, *i;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		CHECK(i->ep_attr->msg_prefix_size % 8 == 0);
		CHECK(i->domain_attr->cq_data_size == 0 || i->domain_attr->cq_data_size >= 4);
		CHECK(i->domain_attr->mr_key_size <= 8 || i->domain_attr->mr_mode & FI_MR_RAW);
		CHECK(!(i->tx_attr->caps & ~i->caps) && !(i->rx_attr->caps & ~i->caps));
	}
	fi_freeinfo(list);
}

CASE(getinfo_fabric_attr_rules)
{
	struct fi_info *hints = plain(), *list, *i;

	hints->fabric_attr->prov_version = FI_VERSION(60000, 0);
	CHECK(matches(hints) == 0);
	hints->fabric_attr->prov_version = 0;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->fabric_attr->prov_version && i->fabric_attr->api_version == API && i->fabric_attr->name);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_handle_copied)
{
	struct fi_info *hints = of("tcp", FI_EP_MSG), *list, *i, *copy;
	struct fid fid = { 0 };

	hints->handle = &fid;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->handle == &fid);
	copy = fi_dupinfo(list);
	CHECK(copy->handle == &fid);
	fi_freeinfo(copy);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(getinfo_reports_open_objects)
{
	struct fi_info *hints, *list;
	struct side s;

	open_domain(&s, &RDM);
	hints = of("tcp", FI_EP_RDM);
	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, hints, &list) == 0);
	CHECK(list->fabric_attr->fabric == s.fabric && list->domain_attr->domain == s.domain);
	fi_freeinfo(list);
	/* As hints they restrict the answer to themselves. */
	hints->domain_attr->domain = s.domain;
	hints->fabric_attr->fabric = s.fabric;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(!strcmp(list->domain_attr->name, s.info->domain_attr->name));
	fi_freeinfo(list);
	close_side(&s);
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	hints->domain_attr->domain = NULL;
	hints->fabric_attr->fabric = NULL;
	fi_freeinfo(hints);
}

CASE(getinfo_info_opens_endpoint)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;

	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next) {
		struct fid_fabric *fabric;
		struct fid_domain *domain;
		struct fid_ep *ep;

		CHECK(i->domain_attr->name);
		CHECK(fi_fabric(i->fabric_attr, &fabric, NULL) == 0);
		CHECK(fi_domain(fabric, i, &domain, NULL) == 0);
		CHECK(fi_endpoint(domain, i, &ep, NULL) == 0);
		CHECK(fi_close(&ep->fid) == 0 && fi_close(&domain->fid) == 0 && fi_close(&fabric->fid) == 0);
	}
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(allocinfo_zeroed_substructures)
{
	struct fi_info *info = fi_allocinfo();

	CHECK(info && info->tx_attr && info->rx_attr && info->ep_attr && info->domain_attr && info->fabric_attr);
	CHECK(!info->caps && !info->mode && !info->next && !info->src_addr && !info->nic && !info->handle);
	CHECK(!info->tx_attr->size && !info->rx_attr->size && !info->ep_attr->type && !info->domain_attr->name);
	fi_freeinfo(info);
}

CASE(dupinfo_deep_copy)
{
	struct fi_info *list, *copy;

	CHECK(ask(API, "127.0.0.1", "80", 0, NULL, &list) == 0);
	copy = fi_dupinfo(list);
	CHECK(copy && !copy->next && copy->tx_attr != list->tx_attr && copy->ep_attr != list->ep_attr);
	CHECK(copy->dest_addr != list->dest_addr && !memcmp(copy->dest_addr, list->dest_addr, list->dest_addrlen));
	CHECK(copy->domain_attr->name != list->domain_attr->name);
	CHECK(!strcmp(copy->domain_attr->name, list->domain_attr->name));
	fi_freeinfo(list);
	CHECK(copy->fabric_attr->prov_name[0]);
	/* Its strings are the program's: it may replace them. */
	free(copy->fabric_attr->prov_name);
	copy->fabric_attr->prov_name = strdup("mine");
	fi_freeinfo(copy);
}

CASE(freeinfo_frees_chain)
{
	struct fi_info *list, *i;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i->next; i = i->next)
		;
	CHECK(!i->next);
	fi_freeinfo(list);
	fi_freeinfo(NULL);
}

CASE(getinfo_nic_dup_free)
{
	struct fi_info *list, *i, *copy;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		copy = fi_dupinfo(i);
		CHECK(!copy->nic == !i->nic);
		if (i->nic) {
			CHECK(copy->nic != i->nic && i->nic->fid.fclass == FI_CLASS_NIC);
			CHECK(i->nic->link_attr->state <= FI_LINK_UP);
		}
		fi_freeinfo(copy);
	}
	fi_freeinfo(list);
}

static void *many_queries(void *arg)
{
	int i;

	for (i = 0; i < 50; i++) {
		struct fi_info *list;

		CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
		CHECK(count(list) == *(int *) arg);
		fi_freeinfo(list);
	}
	return NULL;
}

CASE(getinfo_concurrent_threads)
{
	pthread_t threads[4];
	struct fi_info *list;
	int i, expected;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	expected = count(list);
	fi_freeinfo(list);
	for (i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, many_queries, &expected) == 0);
	for (i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

static int descriptors(void)
{
	char path[32];
	int n = 0, i;

	for (i = 0; i < 256; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
		n += !access(path, F_OK);
	}
	return n;
}

CASE_OURS(getinfo_leaves_nothing)
{
	struct fi_info *list;
	int before = descriptors(), i;
	char tasks[64] = "";
	FILE *status;

	for (i = 0; i < 20; i++) {
		CHECK(ask(API, "127.0.0.1", "80", 0, NULL, &list) == 0);
		fi_freeinfo(list);
	}
	CHECK(descriptors() == before);
	status = fopen("/proc/self/status", "r");
	while (status && fgets(tasks, sizeof(tasks), status) && strncmp(tasks, "Threads:", 8))
		;
	CHECK(status && atoi(tasks + 8) == 1);
	fclose(status);
}

CASE_OURS(offers_are_as_documented)
{
	struct fi_info *list, *i;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		const char *name = i->fabric_attr->prov_name;
		int udp = !strcmp(name, "udp");

		CHECK(i->domain_attr->cq_data_size == (udp ? 0 : 8));
		CHECK(i->domain_attr->threading == FI_THREAD_SAFE && i->domain_attr->data_progress == FI_PROGRESS_MANUAL);
		CHECK(udp || i->ep_attr->max_msg_size == SIZE_MAX);
		CHECK(udp || i->ep_attr->mem_tag_format == 0xaaaaaaaaaaaaaaaaULL);
		CHECK(udp || (i->tx_attr->msg_order & FI_ORDER_SAS && !(i->tx_attr->msg_order & (FI_ORDER_SAR | FI_ORDER_WAR))));
		CHECK(!udp || (i->ep_attr->type == FI_EP_DGRAM && i->ep_attr->protocol == FI_PROTO_UDP));
		CHECK(!udp || (i->ep_attr->max_msg_size >= 500 && i->tx_attr->inject_size == i->ep_attr->max_msg_size));
		CHECK(!udp || i->caps & FI_MULTICAST);
		if (!strcmp(name, "tcp") && i->ep_attr->type == FI_EP_MSG)
			CHECK(i->ep_attr->protocol == FI_PROTO_SOCK_TCP);
#ifdef FI_TAGGED_MULTI_RECV
		if (!strcmp(name, "tcp") && i->ep_attr->type == FI_EP_RDM)
			CHECK(i->ep_attr->protocol == FI_PROTO_XNET);
#endif
		if (!strcmp(name, "tcp;ofi_rxm"))
			CHECK(i->ep_attr->type == FI_EP_RDM && i->ep_attr->protocol == FI_PROTO_RXM && i->caps & FI_AV_USER_ID);
	}
	fi_freeinfo(list);
}

CASE(provider_layered_names)
{
	static const struct { const char *name; int plain, layered; } names[] = {
		{ "tcp", 1, 1 }, { "TCP", 1, 1 }, { "ofi_rxm", 0, 1 }, { "tcp;ofi_rxm", 0, 1 }, { "ofi_rxm;tcp", 0, 1 },
		{ "off_coll", 0, 0 },
	};
	struct fi_info *list, *i;
	size_t n;

	for (n = 0; n < ARRAY(names); n++) {
		struct fi_info *hints = plain();
		int is_plain = 0, is_layered = 0;

		hints->fabric_attr->prov_name = strdup(names[n].name);
		if (ask(API, NULL, NULL, 0, hints, &list) == 0) {
			for (i = list; i; i = i->next) {
				is_plain |= !strcmp(i->fabric_attr->prov_name, "tcp");
				is_layered |= !strcmp(i->fabric_attr->prov_name, "tcp;ofi_rxm");
			}
			fi_freeinfo(list);
		}
		CHECK(is_plain == names[n].plain && is_layered == names[n].layered);
		fi_freeinfo(hints);
	}
}
