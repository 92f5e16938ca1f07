/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Discovery: capabilities and modes: fi_getinfo(3). */
#include "getinfo.h"

#define BOTH		(FI_SEND | FI_RECV)
#define SIDES		(FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
/*
 * By number where older headers lack the name: FI_PEER, FI_XPU, FI_EXACT_DIRECTED_RECV (once
 * FI_VARIABLE_MSG).
 */
#define PRIMARY \
	(FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_MULTICAST | FI_COLLECTIVE | FI_READ | FI_WRITE | BOTH | FI_REMOTE_READ | \
	FI_REMOTE_WRITE | FI_NAMED_RX_CTX | FI_DIRECTED_RECV | FI_AV_USER_ID | FI_HMEM | 1ULL << 43 | 1ULL << 44 | 1ULL << 48)
#define SECONDARY \
	(FI_MULTI_RECV | FI_SOURCE | FI_FENCE | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SOURCE_ERR | FI_SHARED_AV | FI_TRIGGER | \
	FI_RMA_EVENT | FI_RMA_PMEM)
/* FI_TAGGED_DIRECTED_RECV and FI_TAGGED_MULTI_RECV are in neither set. */
#define BESIDES		(1ULL << 45 | 1ULL << 46)

CASE(caps_both_directions_default)
{
	static const uint64_t kinds[] = { FI_MSG, FI_TAGGED };
	struct fi_info *list, *i;
	size_t k;

	for (k = 0; k < ARRAY(kinds); k++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM);

		hints->caps = kinds[k];
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			CHECK((i->caps & (FI_MSG | FI_TAGGED | BOTH)) == (kinds[k] | BOTH));
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}

CASE(caps_send_only_recv_only)
{
	static const uint64_t asked[] = { FI_MSG | FI_SEND, FI_MSG | FI_RECV, FI_TAGGED | FI_SEND, FI_TAGGED | FI_RECV };
	struct fi_info *list, *i;
	size_t n;

	for (n = 0; n < ARRAY(asked); n++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM);

		hints->caps = asked[n];
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			CHECK((i->caps & (FI_MSG | FI_TAGGED | BOTH)) == asked[n]);
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}

/*
 * The results have all requested capabilities and no other primary ones; both directions if none
 * was requested.
 */
CASE(getinfo_primary_caps_unrequested)
{
	static const struct { const char *provider; enum fi_ep_type type; uint64_t asked, primary; } rules[] = {
		{ "tcp", FI_EP_RDM, FI_MSG, FI_MSG | BOTH },
		{ "tcp", FI_EP_RDM, FI_TAGGED, FI_TAGGED | BOTH },
		{ "tcp", FI_EP_RDM, FI_MSG | FI_TAGGED, FI_MSG | FI_TAGGED | BOTH },
		{ "tcp", FI_EP_RDM, FI_MSG | FI_SEND, FI_MSG | FI_SEND },
		{ "tcp", FI_EP_RDM, FI_TAGGED | FI_RECV, FI_TAGGED | FI_RECV },
		{ "tcp", FI_EP_RDM, FI_TAGGED | FI_DIRECTED_RECV, FI_TAGGED | FI_DIRECTED_RECV | BOTH },
		{ "tcp", FI_EP_RDM, FI_MSG | FI_SOURCE | FI_MULTI_RECV | FI_LOCAL_COMM, FI_MSG | BOTH },
		{ "tcp", FI_EP_MSG, FI_MSG, FI_MSG | BOTH },
		{ "tcp", FI_EP_MSG, FI_MSG | FI_RECV, FI_MSG | FI_RECV },
		{ "udp", FI_EP_DGRAM, FI_MSG, FI_MSG | BOTH },
		{ "udp", FI_EP_DGRAM, FI_MSG | FI_MULTICAST, FI_MSG | FI_MULTICAST | BOTH },
	};
	struct fi_info *list, *i;
	size_t r;

	for (r = 0; r < ARRAY(rules); r++) {
		struct fi_info *hints = of(rules[r].provider, rules[r].type);

		hints->caps = rules[r].asked;
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next) {
			/*
			 * The reference's layered providers over tcp may differ: its ofi_rxd, which
			 * we do not have.
			 */
			if (strcmp(i->fabric_attr->prov_name, rules[r].provider))
				continue;
			CHECK((i->caps & rules[r].asked) == rules[r].asked);
			CHECK((i->caps & PRIMARY) == rules[r].primary);
			CHECK(!(i->domain_attr->caps & PRIMARY & ~rules[r].primary));
		}
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}

CASE(getinfo_secondary_caps_rules)
{
	static const uint64_t bits[] = {
		FI_MULTI_RECV, FI_SOURCE, FI_FENCE, FI_LOCAL_COMM, FI_REMOTE_COMM, FI_SOURCE_ERR, FI_SHARED_AV, FI_TRIGGER, FI_RMA_EVENT,
		FI_RMA_PMEM,
	};
	struct fi_info *hints = plain(), *list, *i;
	uint64_t all, whole;
	size_t b;

	/* Either supported, or the provider does not match. */
	for (b = 0; b < ARRAY(bits); b++) {
		int ret;

		hints->caps = FI_MSG | bits[b] | (bits[b] == FI_SOURCE_ERR ? FI_SOURCE : 0);
		hints->caps |= bits[b] == FI_RMA_EVENT ? FI_RMA : 0;
		ret = ask(API, NULL, NULL, 0, hints, &list);
		CHECK(ret == 0 || (ret == -FI_ENODATA && !list));
		for (i = list; i; i = i->next) {
			if (!(i->caps & bits[b]))
				fprintf(stderr, "%s: %llx\n", i->fabric_attr->prov_name, (unsigned long long) bits[b]);
			CHECK(i->caps & bits[b]);
		}
		fi_freeinfo(list);
	}
	fi_freeinfo(hints);
	hints = of("tcp", FI_EP_RDM);
	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	whole = first_of(list, "tcp", FI_EP_RDM)->caps & PRIMARY;
	fi_freeinfo(list);
	/*
	 * Without caps, all are set; with some, those and all secondary ones except FI_SOURCE, and
	 * except FI_RMA_EVENT on an endpoint that is no target.
	 */
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	all = list->caps;
	CHECK(!(whole & ~all) && all & FI_TAGGED && all & FI_MSG && (all & BOTH) == BOTH && all & FI_LOCAL_COMM);
	fi_freeinfo(list);
	hints->caps = FI_MSG;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK((list->caps & SECONDARY & ~FI_RMA_EVENT) == (all & SECONDARY & ~(FI_SOURCE | FI_RMA_EVENT)));
	fi_freeinfo(list);
	hints->caps = FI_MSG | FI_SOURCE | FI_MULTI_RECV;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->caps & FI_SOURCE && list->caps & FI_MULTI_RECV);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(caps_reported_by_default)
{
	static const struct { const char *provider; enum fi_ep_type type; uint64_t named; } asked[] = {
		{ "tcp", FI_EP_RDM, FI_MSG }, { "tcp;ofi_rxm", FI_EP_RDM, FI_TAGGED }, { "tcp", FI_EP_MSG, FI_MSG },
		{ "shm", FI_EP_RDM, FI_TAGGED }, { "udp", FI_EP_DGRAM, FI_MSG },
	};
	struct fi_info *all, *list, *i;
	size_t n;

	CHECK(ask(API, NULL, NULL, 0, NULL, &all) == 0);
	for (n = 0; n < ARRAY(asked); n++) {
		uint64_t whole = first_of(all, asked[n].provider, asked[n].type)->caps;
		struct fi_info *hints = of(asked[n].provider, asked[n].type);

		/* None requested: all of both sets are set. FI_SOURCE_ERR must be requested. */
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && !(whole & FI_SOURCE_ERR));
		CHECK((first_of(list, asked[n].provider, asked[n].type)->caps & ~BESIDES) == (whole & ~BESIDES));
		fi_freeinfo(list);
		/*
		 * One requested: it is set with both directions and all secondary ones except
		 * FI_SOURCE, and FI_RMA_EVENT as the endpoint is no target.
		 */
		hints->caps = asked[n].named;
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		CHECK(first_of(list, asked[n].provider, asked[n].type)->caps
			== (asked[n].named | BOTH | (whole & SECONDARY & ~(FI_SOURCE | FI_RMA_EVENT))));
		for (i = list; i; i = i->next) {
			CHECK(!(i->caps & (FI_SOURCE | FI_SOURCE_ERR | FI_DIRECTED_RECV)));
			CHECK(!((i->tx_attr->caps | i->rx_attr->caps) & ~i->caps));
		}
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
	fi_freeinfo(all);
}

/* A caller that requests no capability sees all that it could request. */
CASE_OURS(caps_zero_shows_all)
{
	static const struct { const char *provider; enum fi_ep_type type; } ends[] = {
		{ "tcp", FI_EP_RDM }, { "tcp", FI_EP_MSG }, { "udp", FI_EP_DGRAM }, { "shm", FI_EP_RDM }, { "shm", FI_EP_MSG },
	};
	struct fi_info *list, *i;
	size_t e;
	int bit;

	if (FI_VERSION_LT(API, FI_VERSION(2, 0)))
		SKIP("these headers are older");
	for (e = 0; e < ARRAY(ends); e++) {
		struct fi_info *hints = of(ends[e].provider, ends[e].type);
		uint64_t shown = 0;

		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			shown |= i->caps;
		fi_freeinfo(list);
		for (bit = 0; bit < 64; bit++) {
			uint64_t one = 1ULL << bit;
			int ret;

			/* Granted only by name. */
			if (one == FI_SOURCE_ERR || one == FI_TRIGGER || one == FI_COLLECTIVE)
				continue;
			hints->caps = FI_MSG | one | (one & (SIDES | FI_RMA_EVENT) ? FI_RMA : 0);
			ret = ask(API, NULL, NULL, 0, hints, &list);
			if (ret == 0)
				fi_freeinfo(list);
			if ((ret == 0) != !!(shown & one))
				fprintf(stderr, "%s: capability bit %d\n", ends[e].provider, bit);
			CHECK((ret == 0) == !!(shown & one));
		}
		fi_freeinfo(hints);
	}
}

CASE(caps_sides_need_rma_or_atomic)
{
	static const uint64_t sides[] = { FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE, SIDES };
	static const enum fi_ep_type types[] = { FI_EP_RDM, FI_EP_MSG };
	size_t s, t;

	for (t = 0; t < ARRAY(types); t++) {
		for (s = 0; s < ARRAY(sides); s++) {
			WITH(of("tcp", types[t]), h->caps = sides[s], 0);
			WITH(of("tcp", types[t]), h->caps = FI_MSG | FI_TAGGED | sides[s], 0);
			WITH(of("tcp", types[t]), h->caps = FI_MSG | FI_RMA | sides[s], 1);
			WITH(of("tcp", types[t]), h->caps = FI_TAGGED | FI_ATOMIC | sides[s], 1);
		}
	}
}

/* FI_RMA_EVENT is about what peers do with the endpoint's memory. */
CASE(caps_rma_event_needs_a_target)
{
	static const uint64_t none[] = { FI_MSG, FI_TAGGED, FI_RMA | FI_READ, FI_MSG | FI_ATOMIC | FI_READ | FI_WRITE };
	static const uint64_t targets[] = { FI_RMA, FI_MSG | FI_RMA | FI_REMOTE_READ, FI_ATOMIC | FI_REMOTE_WRITE | FI_READ };
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;
	size_t n;

	for (n = 0; n < ARRAY(none); n++) {
		hints->caps = none[n];
		hints->rx_attr->caps = n % 2 ? FI_RMA_EVENT : 0;
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			CHECK(!((i->caps | i->rx_attr->caps) & FI_RMA_EVENT));
		fi_freeinfo(list);
		WITH(of("tcp", FI_EP_RDM), h->caps = none[n] | FI_RMA_EVENT, 0);
	}
	hints->rx_attr->caps = 0;
	for (n = 0; n < ARRAY(targets); n++) {
		hints->caps = targets[n] | FI_RMA_EVENT;
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			CHECK(i->caps & i->rx_attr->caps & FI_RMA_EVENT);
		fi_freeinfo(list);
	}
	fi_freeinfo(hints);
}

CASE_OURS(caps_source_err_reports)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;
	int n;

	/*
	 * It turns valid messages into errors: only callers that request it get it, and only with
	 * FI_SOURCE.
	 */
	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(!((i->caps | i->rx_attr->caps) & FI_SOURCE_ERR));
	fi_freeinfo(list);
	for (n = 0; n < 2; n++) {
		hints->caps = n ? FI_MSG | FI_SOURCE : 0;
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			CHECK(!((i->caps | i->rx_attr->caps) & FI_SOURCE_ERR));
		fi_freeinfo(list);
	}
	hints->caps = FI_MSG | FI_SOURCE_ERR;
	CHECK(matches(hints) == 0);
	hints->caps |= FI_SOURCE;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && list->caps & FI_SOURCE_ERR);
	fi_freeinfo(list);
	fi_freeinfo(hints);
	/* A connected endpoint has one source only. */
	WITH(of("tcp", FI_EP_MSG), h->caps = FI_MSG | FI_SOURCE, 0);
	WITH(of("shm", FI_EP_MSG), h->caps = FI_MSG | FI_SOURCE, 0);
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_MSG | FI_SOURCE, 1);
}

CASE(caps_multicast_needs_transfer)
{
	static const uint64_t ways[] = { FI_SEND, FI_RECV };
	struct fi_info *list, *i;
	size_t w;

	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_MSG | FI_MULTICAST, 1);
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_MSG | FI_MULTICAST | FI_SEND, 1);
	for (w = 0; w < ARRAY(ways); w++) {
		struct fi_info *hints = of("udp", FI_EP_DGRAM);

		hints->caps = FI_MULTICAST | ways[w];
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			CHECK((i->caps & (FI_MULTICAST | BOTH)) == hints->caps);
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}

/* FI_MULTICAST alone does not say what to transfer. */
CASE_OURS(caps_multicast_alone_is_refused)
{
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_MULTICAST, 0);
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_MULTICAST | FI_LOCAL_COMM, 0);
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_MULTICAST | FI_RECV, 1);
}

CASE(caps_local_remote_comm)
{
	const uint64_t both = FI_LOCAL_COMM | FI_REMOTE_COMM;
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;
	unsigned char name[64];

	hints->addr_format = FI_SOCKADDR_IN;
	hints->caps = FI_MSG | FI_LOCAL_COMM;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->caps & FI_LOCAL_COMM);
	fi_freeinfo(list);
	/*
	 * Loopback reaches no other node; the other interfaces have addresses that other nodes can
	 * use.
	 */
	hints->caps = FI_MSG | FI_REMOTE_COMM;
	if (ask(API, NULL, NULL, 0, hints, &list) == 0) {
		for (i = list; i; i = i->next)
			CHECK(i->caps & FI_REMOTE_COMM && strcmp(i->domain_attr->name, "lo"));
		CHECK(name_of(list, name, sizeof(name)) == 16 && name[4] != 127 && memcmp(name + 4, "\0\0\0", 4));
		fi_freeinfo(list);
	}
	hints->caps = FI_MSG | both;
	if (ask(API, NULL, NULL, 0, hints, &list) == 0) {
		for (i = list; i; i = i->next)
			CHECK((i->caps & both) == both && strcmp(i->domain_attr->name, "lo"));
		fi_freeinfo(list);
	}
	/*
	 * Neither is requested: each interface reports both capabilities that it has, at no cost.
	 */
	hints->caps = FI_MSG;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK((i->caps & both) == (strcmp(i->domain_attr->name, "lo") ? both : FI_LOCAL_COMM));
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(getinfo_receive_caps_2x)
{
#ifdef FI_TAGGED_MULTI_RECV
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	uint64_t both = FI_TAGGED_MULTI_RECV | FI_TAGGED_DIRECTED_RECV;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0 && (list->caps & both) == both);
	fi_freeinfo(list);
	/* A caller of an earlier version would misinterpret these bits. */
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

/* Callers of 1.x may still request the capabilities of the 2014 manual page. */
CASE_OURS(caps_of_2014_are_accepted)
{
	static const uint64_t bits[] = { FI_INJECT, FI_REMOTE_CQ_DATA };
	size_t b;

	for (b = 0; b < ARRAY(bits); b++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

		hints->caps = FI_MSG | bits[b];
		hints->domain_attr->mr_mode = 0;
		CHECK(ask(FI_VERSION(1, 0), NULL, NULL, 0, hints, &list) == 0);
		CHECK(list->tx_attr->inject_size >= 8 && list->domain_attr->cq_data_size >= 4);
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}

CASE(getinfo_mode_negotiation)
{
	static const struct { const char *provider; enum fi_ep_type type; } kinds[] = {
		{ "tcp", FI_EP_RDM }, { "tcp", FI_EP_MSG }, { "udp", FI_EP_DGRAM },
	};
	struct fi_info *list, *i;
	size_t k;

	for (k = 0; k < ARRAY(kinds); k++) {
		struct fi_info *hints = of(kinds[k].provider, kinds[k].type);
		int declining;

		/* A program that supports no mode gets results. */
		hints->mode = 0;
		hints->domain_attr->mode = 0;
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			CHECK(!i->mode && !i->tx_attr->mode && !i->rx_attr->mode && !i->domain_attr->mode);
		declining = count(list);
		fi_freeinfo(list);
		/*
		 * A program that supports some modes loses no results, and unneeded bits are
		 * cleared.
		 */
		hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_ASYNC_IOV | FI_MSG_PREFIX | FI_RX_CQ_DATA;
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && count(list) >= declining);
		for (i = list; i; i = i->next)
			if (!strcmp(i->fabric_attr->prov_name, kinds[k].provider))
				CHECK(!i->mode && !i->tx_attr->mode && !i->rx_attr->mode && !i->domain_attr->mode);
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
}
