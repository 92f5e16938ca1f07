/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Discovery: the call itself, hints in general, and the memory of lists: fi_getinfo(3). */
#include "getinfo.h"
#include <malloc.h>
#include <stddef.h>

CASE(getinfo_return_values)
{
	/* The compiler compares the prototypes. */
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **) = fi_getinfo;
	void (*freeinfo)(struct fi_info *) = fi_freeinfo;
	struct fi_info *(*allocinfo)(void) = fi_allocinfo;
	struct fi_info *(*dupinfo)(const struct fi_info *) = fi_dupinfo;
	struct fi_info *hints, *list;

	CHECK(getinfo && freeinfo && allocinfo && dupinfo);
	hints = plain();
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0 && list && list != (void *) 1);
	fi_freeinfo(list);
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

/* Hints with all substructures. */
struct snapshot {
	struct fi_info info;
	struct fi_tx_attr tx;
	struct fi_rx_attr rx;
	struct fi_ep_attr ep;
	struct fi_domain_attr domain;
	struct fi_fabric_attr fabric;
	char src[16], dest[16], provider[16], name[16];
};

static void take_snapshot(struct snapshot *s, const struct fi_info *hints)
{
	memset(s, 0, sizeof(*s));
	memcpy(&s->info, hints, sizeof(s->info));
	memcpy(&s->tx, hints->tx_attr, sizeof(s->tx));
	memcpy(&s->rx, hints->rx_attr, sizeof(s->rx));
	memcpy(&s->ep, hints->ep_attr, sizeof(s->ep));
	memcpy(&s->domain, hints->domain_attr, sizeof(s->domain));
	memcpy(&s->fabric, hints->fabric_attr, sizeof(s->fabric));
	memcpy(s->src, hints->src_addr, 16);
	memcpy(s->dest, hints->dest_addr, 16);
	strcpy(s->provider, hints->fabric_attr->prov_name);
	strcpy(s->name, hints->domain_attr->name);
}

CASE(getinfo_hints_untouched)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	struct snapshot before, after;

	hints->caps = FI_MSG | FI_SOURCE;
	hints->addr_format = FI_SOCKADDR_IN;
	hints->domain_attr->name = strdup("lo");
	set_addr(&hints->src_addr, &hints->src_addrlen, 1, 0);
	set_addr(&hints->dest_addr, &hints->dest_addrlen, 1, 99);
	take_snapshot(&before, hints);
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	fi_freeinfo(list);
	CHECK(ask(API, "127.0.0.1", "4711", FI_SOURCE, hints, &list) == 0);
	fi_freeinfo(list);
	CHECK(ask(API, "no.such.host.invalid", NULL, 0, hints, &list) == -FI_ENODATA);
	take_snapshot(&after, hints);
	CHECK(!memcmp(&before, &after, sizeof(before)));
	fi_freeinfo(hints);
}

CASE(getinfo_version_range)
{
	struct fi_info *list = NULL;
	uint32_t minor, newer;

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
	newer = FI_VERSION(FI_MAJOR(fi_version()), FI_MINOR(fi_version()) + 1);
	REFUSED("fi_getinfo for a version that is newer than the library's",
		FI_ENOSYS, fi_getinfo(newer, NULL, NULL, 0, NULL, &list));
	CHECK(list == (void *) 7);
	CHECK(ask(0, NULL, NULL, 0, NULL, &list) == 0);
	fi_freeinfo(list);
}

/* The library is at least as new as the headers. */
CASE_OURS(getinfo_headers_version)
{
	struct fi_info *list;

	CHECK(HEADERS <= fi_version());
	CHECK(ask(HEADERS, NULL, NULL, 0, NULL, &list) == 0);
	CHECK(list->fabric_attr->api_version == HEADERS);
	fi_freeinfo(list);
}

CASE(getinfo_no_match_enodata)
{
	WITH(plain(), h->fabric_attr->prov_name = strdup("absent"), 0);
	WITH(plain(), h->domain_attr->name = strdup("no-such-interface"), 0);
	WITH(of("tcp", FI_EP_DGRAM), , 0);
}

CASE_OURS(getinfo_failure_gives_no_list)
{
	const uint32_t versions[] = { API, FI_VERSION(1, 0) };
	struct fi_info *hints = plain(), *before = fi_allocinfo(), *info;
	size_t i;

	hints->fabric_attr->prov_name = strdup("absent");
	for (i = 0; i < ARRAY(versions); i++) {
		info = before;
		CHECK(fi_getinfo(versions[i], NULL, NULL, 0, hints, &info) < 0 && !info);
		info = before;
		CHECK(fi_getinfo(versions[i], NULL, NULL, 1ULL << 60, NULL, &info) == -FI_EBADFLAGS && !info);
	}
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, NULL) == -FI_EINVAL);
	/* `info` may be the variable that holds the hints. */
	info = hints;
	CHECK(fi_getinfo(API, NULL, NULL, 0, info, &info) == -FI_ENODATA && !info);
	fi_freeinfo(before);
	fi_freeinfo(hints);
}

/* Whether the list has an element with the same provider, type, protocol, format and domain. */
static int has_counterpart(const struct fi_info *list, const struct fi_info *info)
{
	for (; list; list = list->next)
		if (is_of(list, info->fabric_attr->prov_name, info->ep_attr->type) &&
			list->ep_attr->protocol == info->ep_attr->protocol && list->addr_format == info->addr_format &&
			!strcmp(list->domain_attr->name, info->domain_attr->name))
			return 1;
	return 0;
}

CASE(getinfo_hints_narrow_results)
{
	struct fi_info *hints = plain(), *wide, *narrow, *i;
	int step;

	CHECK(ask(API, NULL, NULL, 0, hints, &wide) == 0);
	/* Adds one criterion after another: the list never grows and never has new elements. */
	for (step = 0; step < 7; step++) {
		switch (step) {
		case 0: hints->ep_attr->type = FI_EP_RDM; break;
		case 1: hints->caps = FI_TAGGED; break;
		case 2: hints->addr_format = FI_SOCKADDR_IN; break;
		case 3: hints->domain_attr->name = strdup("lo"); break;
		case 4: hints->fabric_attr->prov_name = strdup("tcp"); break;
		case 5: hints->tx_attr->inject_size = 8; break;
		case 6: hints->ep_attr->protocol = FI_PROTO_RXM; break;
		}
		CHECK(ask(API, NULL, NULL, 0, hints, &narrow) == 0);
		CHECK(count(narrow) <= count(wide));
		/* These two, type and protocol, exclude something on every machine. */
		CHECK((step != 0 && step != 6) || count(narrow) < count(wide));
		for (i = narrow; i; i = i->next)
			CHECK(has_counterpart(wide, i));
		fi_freeinfo(wide);
		wide = narrow;
	}
	fi_freeinfo(wide);
	fi_freeinfo(hints);
}

static int with_five_attributes(struct fi_info *hints)
{
	struct fi_info *list, *i;
	int n;

	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->tx_attr && i->rx_attr && i->ep_attr && i->domain_attr && i->fabric_attr);
	n = count(list);
	fi_freeinfo(list);
	return n;
}

CASE(getinfo_zero_hints_wildcard)
{
	static const struct { const char *name; enum fi_ep_type type; } offered[] = {
		{ "tcp", FI_EP_RDM }, { "tcp;ofi_rxm", FI_EP_RDM }, { "udp", FI_EP_DGRAM }, { "tcp", FI_EP_MSG },
	};
	struct fi_info *hints = fi_allocinfo(), *list, *i;
	unsigned seen = 0;
	size_t n;
	int all;

	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	all = count(list);
	for (i = list; i; i = i->next) {
		CHECK(i->caps & FI_SEND && i->caps & FI_RECV && i->caps & FI_MSG);
		/* The hints grant no mode, so none is required. */
		CHECK(!i->mode);
		for (n = 0; n < ARRAY(offered); n++) {
			if (!is_of(i, offered[n].name, offered[n].type))
				continue;
			seen |= 1u << n;
			CHECK(!i->tx_attr->mode && !i->rx_attr->mode && !i->domain_attr->mode);
			/* The provider fills in every unspecified field. */
			CHECK(i->ep_attr->protocol && i->ep_attr->max_msg_size && i->addr_format);
			CHECK(i->tx_attr->size && i->rx_attr->size && i->tx_attr->iov_limit && i->rx_attr->iov_limit);
			CHECK(i->domain_attr->threading && i->domain_attr->data_progress && i->domain_attr->resource_mgmt);
		}
	}
	CHECK(seen == (1u << ARRAY(offered)) - 1);
	fi_freeinfo(list);
	/*
	 * Missing attributes exclude nothing either (the reference finds more without registration
	 * modes).
	 */
	free(hints->tx_attr);
	free(hints->rx_attr);
	hints->tx_attr = NULL;
	hints->rx_attr = NULL;
	CHECK(with_five_attributes(hints) >= all);
	free(hints->ep_attr);
	free(hints->domain_attr);
	free(hints->fabric_attr);
	hints->ep_attr = NULL;
	hints->domain_attr = NULL;
	hints->fabric_attr = NULL;
	CHECK(with_five_attributes(hints) >= all);
	fi_freeinfo(hints);
}

CASE(ep_type_hint_selects)
{
	static const enum fi_ep_type types[] = { FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM };
	struct fi_info *hints = plain(), *list, *i;
	unsigned seen = 0;
	size_t t;

	for (t = 0; t < ARRAY(types); t++) {
		hints->ep_attr->type = types[t];
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (i = list; i; i = i->next)
			CHECK(i->ep_attr->type == types[t]);
		fi_freeinfo(list);
	}
	/* Unspecified: all types are listed, and each info has one; another hint may select it. */
	hints->ep_attr->type = FI_EP_UNSPEC;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		seen |= 1u << i->ep_attr->type;
	for (t = 0; t < ARRAY(types); t++)
		CHECK(seen & 1u << types[t]);
	CHECK(!(seen & 1u << FI_EP_UNSPEC));
	fi_freeinfo(list);
	hints->ep_attr->protocol = FI_PROTO_UDP;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->ep_attr->type == FI_EP_DGRAM);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_nonzero_hint_enforced)
{
	WITH(of("udp", FI_EP_DGRAM), h->caps = FI_TAGGED, 0);
	WITH(of("tcp", FI_EP_RDM), h->caps = FI_TAGGED, 1);
	WITH(of("tcp", FI_EP_RDM), h->caps = FI_TAGGED | FI_MSG, 1);
	WITH(of("tcp", FI_EP_RDM), h->caps = FI_TAGGED | FI_MULTICAST, 0);
	WITH(of("tcp", FI_EP_RDM), h->tx_attr->inject_size = (size_t) 1 << 40, 0);
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

CASE(getinfo_handle_copied)
{
	struct fi_info *hints = of("tcp", FI_EP_MSG), *list, *i, *copy;
	struct fid_fabric *fabric;
	struct fid_pep *pep;
	struct fid fid = { 0 };

	hints->handle = &fid;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->handle == &fid);
	copy = fi_dupinfo(list);
	CHECK(copy->handle == &fid);
	fi_freeinfo(copy);
	fi_freeinfo(list);
	/* A passive endpoint outlives the infos that refer to it. */
	hints->handle = NULL;
	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, hints, &list) == 0);
	CHECK(fi_fabric(list->fabric_attr, &fabric, NULL) == 0 && fi_passive_ep(fabric, list, &pep, NULL) == 0);
	fi_freeinfo(list);
	hints->handle = &pep->fid;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->handle == &pep->fid);
	fi_freeinfo(list);
	CHECK(pep->fid.fclass == FI_CLASS_PEP);
	CHECK(fi_close(&pep->fid) == 0 && fi_close(&fabric->fid) == 0);
	fi_freeinfo(hints);
}

CASE(getinfo_info_opens_endpoint)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;
	unsigned char name[64], again[64];

	hints->caps = FI_TAGGED | FI_SOURCE;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next) {
		int v6 = i->addr_format == FI_SOCKADDR_IN6;
		size_t at = v6 ? 8 : 4;

		CHECK(i->domain_attr->name && !strncmp(i->fabric_attr->prov_name, "tcp", 3));
		CHECK(i->ep_attr->type == FI_EP_RDM && (i->caps & hints->caps) == hints->caps);
		/* The endpoint has the info's address, and a port. */
		CHECK(i->src_addr && name_of(i, name, sizeof(name)) == i->src_addrlen);
		CHECK(!memcmp(name + at, (unsigned char *) i->src_addr + at, v6 ? 16 : 4) && (name[2] || name[3]));
	}
	fi_freeinfo(list);
	/* The port too, if the info has one; this one was free a moment ago. */
	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, hints, &list) == 0);
	CHECK(name_of(list, name, sizeof(name)) == 16);
	memcpy(list->src_addr, name, 16);
	CHECK(name_of(list, again, sizeof(again)) == 16 && !memcmp(name, again, 8));
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(allocinfo_zeroed_substructures)
{
	static const char zero[1024];
	struct fi_info *info = fi_allocinfo();

	CHECK(info && info->tx_attr && info->rx_attr && info->ep_attr && info->domain_attr && info->fabric_attr);
	/* Everything before the pointers to the five substructures, and the five. */
	CHECK(!memcmp(info, zero, offsetof(struct fi_info, tx_attr)) && !info->nic);
	CHECK(!memcmp(info->tx_attr, zero, sizeof(*info->tx_attr)) && !memcmp(info->rx_attr, zero, sizeof(*info->rx_attr)));
	CHECK(!memcmp(info->ep_attr, zero, sizeof(*info->ep_attr)));
	CHECK(!memcmp(info->domain_attr, zero, sizeof(*info->domain_attr)));
	CHECK(!memcmp(info->fabric_attr, zero, sizeof(*info->fabric_attr)));
	fi_freeinfo(info);
}

CASE(dupinfo_deep_copy)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *copy, before;

	CHECK(ask(API, "127.0.0.1", "80", 0, hints, &list) == 0);
	fi_freeinfo(hints);
	CHECK(list->next && list->src_addr && list->dest_addr);
	memcpy(&before, list, sizeof(before));
	copy = fi_dupinfo(list);
	/* One element; the original is unchanged. */
	CHECK(copy && copy != list && !copy->next && !memcmp(&before, list, sizeof(before)));
	CHECK(copy->caps == list->caps && copy->mode == list->mode && copy->addr_format == list->addr_format);
	CHECK(copy->src_addr != list->src_addr && copy->src_addrlen == list->src_addrlen);
	CHECK(!memcmp(copy->src_addr, list->src_addr, list->src_addrlen));
	CHECK(copy->dest_addr != list->dest_addr && copy->dest_addrlen == list->dest_addrlen);
	CHECK(!memcmp(copy->dest_addr, list->dest_addr, list->dest_addrlen));
	CHECK(copy->tx_attr != list->tx_attr && copy->tx_attr->tclass == list->tx_attr->tclass);
	CHECK(!memcmp(copy->tx_attr, list->tx_attr, offsetof(struct fi_tx_attr, tclass)));
	CHECK(copy->rx_attr != list->rx_attr && !memcmp(copy->rx_attr, list->rx_attr, sizeof(*list->rx_attr)));
	CHECK(copy->ep_attr != list->ep_attr && copy->ep_attr->type == list->ep_attr->type);
	CHECK(copy->ep_attr->protocol == list->ep_attr->protocol && copy->ep_attr->max_msg_size == list->ep_attr->max_msg_size);
	CHECK(copy->ep_attr->mem_tag_format == list->ep_attr->mem_tag_format);
	CHECK(copy->domain_attr != list->domain_attr && copy->domain_attr->caps == list->domain_attr->caps);
	CHECK(copy->domain_attr->cq_data_size == list->domain_attr->cq_data_size);
	CHECK(copy->domain_attr->threading == list->domain_attr->threading);
	CHECK(copy->domain_attr->name != list->domain_attr->name && !strcmp(copy->domain_attr->name, list->domain_attr->name));
	CHECK(copy->fabric_attr != list->fabric_attr && copy->fabric_attr->prov_version == list->fabric_attr->prov_version);
	CHECK(copy->fabric_attr->name != list->fabric_attr->name && !strcmp(copy->fabric_attr->name, list->fabric_attr->name));
	CHECK(copy->fabric_attr->prov_name != list->fabric_attr->prov_name);
	CHECK(!strcmp(copy->fabric_attr->prov_name, list->fabric_attr->prov_name));
	fi_freeinfo(list);
	CHECK(copy->fabric_attr->prov_name[0]);
	fi_freeinfo(copy);
}

/* Strings and addresses are heap blocks that the program may free and replace. */
CASE(info_parts_may_be_replaced)
{
	struct fi_info *list, *both[2];
	size_t n;

	CHECK(ask(API, "127.0.0.1", "80", 0, NULL, &list) == 0);
	both[0] = fi_dupinfo(list);
	both[1] = list;
	for (n = 0; n < ARRAY(both); n++) {
		struct fi_info *i = both[n];

		free(i->src_addr);
		i->src_addr = NULL;
		i->src_addrlen = 0;
		free(i->dest_addr);
		i->dest_addr = malloc(3);
		i->dest_addrlen = 3;
		free(i->domain_attr->name);
		i->domain_attr->name = strdup("mine");
		free(i->fabric_attr->name);
		i->fabric_attr->name = NULL;
		free(i->fabric_attr->prov_name);
		i->fabric_attr->prov_name = strdup("mine too");
		fi_freeinfo(i);
	}
}

/* Bytes allocated with malloc. */
static size_t held(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* Lists, copies and new structures are freed entirely: hundreds of each leak nothing. */
CASE(freeinfo_releases_all)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	size_t before = 0;
	int n;

	/*
	 * The C library counts blocks that it keeps for each size as held: it has them all after some
	 * hundred rounds.
	 */
	for (n = 0; n < 1400; n++) {
		/* Every second list has destinations, the others have network cards. */
		CHECK(ask(API, n % 2 ? "127.0.0.1" : NULL, n % 2 ? "80" : NULL, 0, hints, &list) == 0);
		fi_freeinfo(fi_dupinfo(list));
		fi_freeinfo(list);
		fi_freeinfo(fi_allocinfo());
		if (n == 1000)
			before = held();
	}
	/* A leak would be at least 32 bytes per round. */
	CHECK(held() < before + 4096);
	fi_freeinfo(hints);
}

CASE(freeinfo_frees_chain)
{
	struct fi_info *list, *i;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i->next; i = i->next)
		;
	CHECK(i != list);
	fi_freeinfo(list);
	fi_freeinfo(NULL);
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
