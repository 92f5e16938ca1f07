/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Discovery: the infos listed, their order and names: fi_getinfo(3), fi_nic(3), fi_fabric(3). */
#include "getinfo.h"
#include <ifaddrs.h>
#include <net/if.h>

static int has_interface(const struct fi_info *list, const char *provider, const char *name)
{
	for (; list; list = list->next)
		if (!strcmp(list->fabric_attr->prov_name, provider) && !strcmp(list->domain_attr->name, name))
			return 1;
	return 0;
}

CASE(getinfo_null_hints_lists)
{
	int rdm = -1, layered = -1, dgram = -1, msg = -1, at = 0;
	struct ifaddrs *all, *a;
	struct fi_info *list, *i;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next, at++) {
		const char *name = i->fabric_attr->prov_name;

		CHECK(i->tx_attr && i->rx_attr && i->ep_attr && i->domain_attr && i->fabric_attr);
		CHECK(i->domain_attr->name && *i->domain_attr->name && i->fabric_attr->name);
		/* Neither of these requires a mode. */
		if (!strcmp(name, "tcp") || !strcmp(name, "udp"))
			CHECK(!i->mode);
		if (is_of(i, "tcp", FI_EP_RDM) && rdm < 0)
			rdm = at;
		if (!strcmp(name, "tcp;ofi_rxm") && layered < 0)
			layered = at;
		if (!strcmp(name, "udp") && dgram < 0)
			dgram = at;
		if (is_of(i, "tcp", FI_EP_MSG) && msg < 0)
			msg = at;
	}
	CHECK(rdm >= 0 && rdm < layered && layered < dgram && dgram < msg);
	/* Every interface that is up is listed. */
	CHECK(getifaddrs(&all) == 0);
	for (a = all; a; a = a->ifa_next) {
		if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET)
			continue;
		if ((a->ifa_flags & (IFF_UP | IFF_RUNNING | IFF_POINTOPOINT)) != (IFF_UP | IFF_RUNNING))
			continue;
		CHECK(has_interface(list, "tcp", a->ifa_name) && has_interface(list, "udp", a->ifa_name));
	}
	freeifaddrs(all);
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
		/* Loopback comes last and reaches no other node. */
		CHECK(is_lo || !loopback);
		loopback |= is_lo;
		CHECK(i->caps & FI_LOCAL_COMM);
		CHECK(!is_lo || !(i->caps & FI_REMOTE_COMM));
	}
	CHECK(loopback);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

static int of_address(struct fi_info *info, struct ifaddrs *a)
{
	int v6 = a->ifa_addr->sa_family == AF_INET6, at = v6 ? 8 : 4;

	return info->addr_format == (v6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN) && !strcmp(info->domain_attr->name, a->ifa_name)
		&& !memcmp((char *) info->src_addr + at, (char *) a->ifa_addr + at, v6 ? 16 : 4);
}

CASE_OURS(one_info_for_each_address)
{
	/* The name "tcp" also matches the layered provider. */
	static const struct { const char *name; enum fi_ep_type type; int each; } kinds[] = {
		{ "tcp", FI_EP_RDM, 2 }, { "tcp;ofi_rxm", FI_EP_RDM, 1 }, { "udp", FI_EP_DGRAM, 1 }, { "tcp", FI_EP_MSG, 1 },
	};
	struct ifaddrs *all, *a;
	struct fi_info *list, *i;
	size_t k;

	CHECK(getifaddrs(&all) == 0);
	for (k = 0; k < ARRAY(kinds); k++) {
		struct fi_info *hints = of(kinds[k].name, kinds[k].type);
		int infos = 0, found;

		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		for (a = all; a; a = a->ifa_next) {
			if (!(a->ifa_flags & IFF_UP) || !a->ifa_addr)
				continue;
			if (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6)
				continue;
			for (i = list, found = 0; i; i = i->next)
				found += of_address(i, a);
			CHECK(found == kinds[k].each);
			infos += found;
		}
		CHECK(count(list) == infos);
		/* The fabric is the network. */
		for (i = list; i; i = i->next) {
			const char *network = i->addr_format == FI_SOCKADDR_IN ? "127.0.0.0/8" : "::1/128";

			CHECK(strcmp(i->domain_attr->name, "lo") || !strcmp(i->fabric_attr->name, network));
		}
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
	freeifaddrs(all);
}

CASE(getinfo_name_hints_filter)
{
	struct fi_info *hints = plain(), *list, *i;
	char fabric[64];

	hints->fabric_attr->prov_name = strdup("udp");
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(strstr(i->fabric_attr->prov_name, "udp"));
	fi_freeinfo(list);
	fi_freeinfo(hints);
	/* A domain name alone; case is ignored. */
	hints = plain();
	hints->domain_attr->name = strdup("LO");
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(!strcmp(i->domain_attr->name, "lo"));
	CHECK(!strcmp(list->fabric_attr->prov_name, "tcp"));
	hints->fabric_attr->name = strdup(list->fabric_attr->name);
	fi_freeinfo(list);
	CHECK(matches(hints) > 0);
	/* A fabric name alone. */
	free(hints->domain_attr->name);
	hints->domain_attr->name = NULL;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(!strcmp(i->fabric_attr->name, hints->fabric_attr->name));
	fi_freeinfo(list);
	/* Whole names only. */
	snprintf(fabric, sizeof(fabric), "%s", hints->fabric_attr->name);
	fi_freeinfo(hints);
	WITH(plain(), h->domain_attr->name = strdup("l"), 0);
	WITH(plain(), h->domain_attr->name = strdup("lox"), 0);
	WITH(plain(), h->fabric_attr->name = strdup(fabric), 1);
	WITH(plain(), h->fabric_attr->name = strdup(fabric + 1), 0);
	strcat(fabric, "8");
	WITH(plain(), h->fabric_attr->name = strdup(fabric), 0);
	fabric[strlen(fabric) - 2] = 0;
	WITH(plain(), h->fabric_attr->name = strdup(fabric), 0);
}

CASE(getinfo_prov_attr_only)
{
	static const char *names[] = { "tcp", "ofi_rxm", "udp", "shm" };
	struct fi_info *list, *i, *k;
	size_t n;

	CHECK(ask(API, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		CHECK(i->fabric_attr->prov_name && i->fabric_attr->prov_version);
		CHECK(!i->caps && !i->mode && !i->src_addr && !i->fabric_attr->name);
		CHECK(!i->addr_format && !i->src_addrlen && !i->dest_addr && !i->dest_addrlen && !i->handle && !i->nic);
		CHECK(!i->tx_attr->caps && !i->tx_attr->op_flags && !i->tx_attr->size && !i->tx_attr->inject_size);
		CHECK(!i->tx_attr->iov_limit && !i->rx_attr->caps && !i->rx_attr->op_flags && !i->rx_attr->size);
		CHECK(!i->rx_attr->iov_limit && !i->ep_attr->type && !i->ep_attr->protocol && !i->ep_attr->max_msg_size);
		CHECK(!i->ep_attr->tx_ctx_cnt && !i->domain_attr->name && !i->domain_attr->domain && !i->domain_attr->threading);
		CHECK(!i->domain_attr->data_progress && !i->domain_attr->caps && !i->domain_attr->cq_data_size);
		CHECK(!i->domain_attr->ep_cnt && !i->domain_attr->mr_mode);
		for (k = i->next; k; k = k->next)
			CHECK(strcmp(i->fabric_attr->prov_name, k->fabric_attr->prov_name));
	}
	for (n = 0; n < ARRAY(names); n++) {
		for (i = list; i && strcmp(i->fabric_attr->prov_name, names[n]); i = i->next)
			;
		CHECK(i);
	}
	fi_freeinfo(list);
	/* It is ignored if any other flag is set. */
	CHECK(ask(API, NULL, NULL, FI_PROV_ATTR_ONLY | FI_NUMERICHOST, NULL, &list) == 0);
	CHECK(list->caps && list->fabric_attr->name && list->fabric_attr->api_version == API);
	fi_freeinfo(list);
}

/*
 * The results have nothing of the caller's: all members but names and versions have default values.
 */
CASE(getinfo_prov_attr_only_has_no_api_version)
{
	struct fi_info *list, *i;

	CHECK(ask(API, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(i->fabric_attr->api_version == 0);
	fi_freeinfo(list);
}

CASE_OURS(one_providers_error_hides_no_other)
{
	struct fi_info *list, *i;

	/* The name cannot be resolved; shm need not resolve it. */
	CHECK(ask(API, "no.such.host.invalid", NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(!strcmp(i->fabric_attr->prov_name, "shm"));
	fi_freeinfo(list);
}

CASE(getinfo_fabric_attr_rules)
{
	struct fi_info *hints = plain(), *list, *names, *i, *n;

	hints->fabric_attr->prov_version = FI_VERSION(60000, 0);
	CHECK(matches(hints) == 0);
	/* An API version excludes nothing: every provider supports all versions. */
	hints->fabric_attr->prov_version = 1;
	hints->fabric_attr->api_version = FI_VERSION(1, 0);
	CHECK(matches(hints) > 0);
	hints->fabric_attr->prov_version = 0;
	hints->fabric_attr->api_version = 0;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(ask(API, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &names) == 0);
	for (i = list; i; i = i->next) {
		const char *top = strrchr(i->fabric_attr->prov_name, ';');

		CHECK(i->fabric_attr->prov_version && i->fabric_attr->api_version == API && i->fabric_attr->name);
		/* The version is that of the top provider. */
		top = top ? top + 1 : i->fabric_attr->prov_name;
		for (n = names; n && strcmp(n->fabric_attr->prov_name, top); n = n->next)
			;
		CHECK(n && n->fabric_attr->prov_version == i->fabric_attr->prov_version);
	}
	fi_freeinfo(names);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(getinfo_reports_open_objects)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *other = of("udp", FI_EP_DGRAM), *list, *i;
	struct fid_domain *second;
	struct side s;

	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, hints, &list) == 0);
	CHECK(!list->fabric_attr->fabric && !list->domain_attr->domain);
	fi_freeinfo(list);
	open_domain(&s, &RDM);
	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, hints, &list) == 0);
	CHECK(list->fabric_attr->fabric == s.fabric && list->domain_attr->domain == s.domain);
	fi_freeinfo(list);
	/* A domain is that of the info's fabric, although others have domains of its name. */
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next) {
		int same = !strcmp(i->fabric_attr->name, s.info->fabric_attr->name)
			&& !strcmp(i->fabric_attr->prov_name, s.info->fabric_attr->prov_name);

		CHECK(same == (i->fabric_attr->fabric == s.fabric));
		CHECK(i->domain_attr->domain == (same && !strcmp(i->domain_attr->name, s.info->domain_attr->name) ? s.domain : NULL));
	}
	fi_freeinfo(list);
	/* The first open object, and only for its provider. */
	CHECK(fi_domain(s.fabric, s.info, &second, NULL) == 0);
	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, hints, &list) == 0 && list->domain_attr->domain == s.domain);
	fi_freeinfo(list);
	CHECK(fi_close(&second->fid) == 0);
	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, other, &list) == 0);
	CHECK(!list->fabric_attr->fabric && !list->domain_attr->domain);
	fi_freeinfo(list);
	fi_freeinfo(other);
	/* As hints they restrict the results to these objects. */
	hints->domain_attr->domain = s.domain;
	hints->fabric_attr->fabric = s.fabric;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(!strcmp(i->domain_attr->name, s.info->domain_attr->name));
	fi_freeinfo(list);
	close_side(&s);
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	hints->domain_attr->domain = NULL;
	hints->fabric_attr->fabric = NULL;
	fi_freeinfo(hints);
}

CASE(getinfo_nic_dup_free)
{
	struct fi_info *list, *i, *copy;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		struct fi_bus_attr *bus = i->nic ? i->nic->bus_attr : NULL;
		struct fi_link_attr *link = i->nic ? i->nic->link_attr : NULL;
		char path[128];
		int megabits = 0;
		FILE *file;

		copy = fi_dupinfo(i);
		CHECK(!copy->nic == !i->nic);
		CHECK(!i->nic || (copy->nic != i->nic && i->nic->fid.fclass == FI_CLASS_NIC));
		CHECK(!i->nic || !i->nic->prov_attr);
		fi_freeinfo(copy);
		CHECK(!bus || bus->bus_type == FI_BUS_PCI || bus->bus_type == FI_BUS_UNKNOWN);
		CHECK(!link || link->state == FI_LINK_UP || link->state == FI_LINK_DOWN || link->state == FI_LINK_UNKNOWN);
		/* The kernel reports Mbit/s, if it knows the speed. */
		snprintf(path, sizeof(path), "/sys/class/net/%s/speed", i->domain_attr->name);
		file = fopen(path, "r");
		if (file && fscanf(file, "%d", &megabits) == 1 && megabits > 0 && link && link->speed)
			CHECK(link->speed == (size_t) megabits * 1000000);
		if (file)
			fclose(file);
	}
	fi_freeinfo(list);
}

/* The NIC is that of the info's interface; loopback and shm have none. */
CASE_OURS(nic_belongs_to_the_interface)
{
	struct fi_info *list, *i;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		if (!strcmp(i->domain_attr->name, "lo") || !strcmp(i->fabric_attr->prov_name, "shm"))
			CHECK(!i->nic);
		if (i->nic)
			CHECK(!strcmp(i->nic->device_attr->name, i->domain_attr->name));
	}
	fi_freeinfo(list);
}

static int nic_copies, nic_closes;

static int nic_control(struct fid *fid, int command, void *arg)
{
	CHECK(command == FI_DUP);
	nic_copies++;
	*(struct fid_nic **) arg = (struct fid_nic *) fid;
	return 0;
}

static int nic_close(struct fid *fid)
{
	(void) fid;
	nic_closes++;
	return 0;
}

CASE(nic_is_copied_and_closed_by_its_own_calls)
{
	static struct fi_ops ops = { .size = sizeof(ops), .close = nic_close, .control = nic_control };
	static struct fid_nic nic = { .fid = { .fclass = FI_CLASS_NIC, .ops = &ops } };
	struct fi_info *info = fi_allocinfo(), *copy;

	info->nic = &nic;
	copy = fi_dupinfo(info);
	CHECK(copy && copy->nic == &nic && nic_copies == 1 && nic_closes == 0);
	fi_freeinfo(copy);
	fi_freeinfo(info);
	CHECK(nic_closes == 2);
}

#define ONE_SIDED	(FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RMA_EVENT)
#define CONNECTED	(FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_FENCE | FI_MULTI_RECV | FI_LOCAL_COMM | ONE_SIDED)
/* All orderings: operations are carried out in the order in which they were posted. */
#define EVERY_ORDER \
	(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAR | FI_ORDER_WAW | FI_ORDER_WAS | FI_ORDER_SAR | \
	FI_ORDER_SAW | FI_ORDER_SAS)
#define RELIABLE \
	(CONNECTED | FI_DIRECTED_RECV | FI_SOURCE | FI_AV_USER_ID | FI_SHARED_AV | FI_NAMED_RX_CTX)
#define DATAGRAMS \
	(FI_MSG | FI_MULTICAST | FI_SEND | FI_RECV | FI_SOURCE | FI_AV_USER_ID | FI_SHARED_AV | FI_LOCAL_COMM)
/* FI_TAGGED_DIRECTED_RECV and FI_TAGGED_MULTI_RECV, which older headers lack. */
#define BESIDES		(1ULL << 45 | 1ULL << 46)

CASE_OURS(offers_are_as_documented)
{
	static const struct { const char *name; enum fi_ep_type type; uint32_t protocol, version; uint64_t caps; } offers[] = {
		{ "tcp", FI_EP_RDM, FI_PROTO_XNET, 1, RELIABLE }, { "tcp;ofi_rxm", FI_EP_RDM, FI_PROTO_RXM, 1, RELIABLE },
		{ "shm", FI_EP_RDM, FI_PROTO_SHM, 1, RELIABLE }, { "udp", FI_EP_DGRAM, FI_PROTO_UDP, 0, DATAGRAMS },
		{ "tcp", FI_EP_MSG, FI_PROTO_SOCK_TCP, 1, CONNECTED }, { "shm", FI_EP_MSG, FI_PROTO_SHM, 1, CONNECTED },
	};
	struct fi_info *list, *i;
	unsigned seen = 0;
	size_t n;

	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		const char *name = i->fabric_attr->prov_name;
		int udp = !strcmp(name, "udp"), shm = !strcmp(name, "shm"), lo = !strcmp(i->domain_attr->name, "lo");

		for (n = 0; n < ARRAY(offers); n++)
			if (is_of(i, offers[n].name, offers[n].type))
				break;
		CHECK(n < ARRAY(offers));
		seen |= 1u << n;
		CHECK(i->ep_attr->protocol == offers[n].protocol && i->ep_attr->protocol_version == offers[n].version);
		CHECK((i->caps & ~(FI_REMOTE_COMM | BESIDES)) == offers[n].caps);
		CHECK(!(i->caps & FI_REMOTE_COMM) == (shm || lo));
		CHECK(i->tx_attr->size == 1024 && i->rx_attr->size == 1024);
		CHECK(i->domain_attr->max_ep_tx_ctx == (i->caps & FI_NAMED_RX_CTX ? 256 : 1));
		CHECK(i->domain_attr->max_ep_rx_ctx == i->domain_attr->max_ep_tx_ctx);
		CHECK(i->domain_attr->cq_data_size == (udp ? 0 : 8));
		CHECK(i->domain_attr->threading == FI_THREAD_SAFE && i->domain_attr->data_progress == FI_PROGRESS_MANUAL);
		CHECK(i->domain_attr->mr_mode == 0);
		CHECK(shm ? i->addr_format == FI_ADDR_STR : i->addr_format == FI_SOCKADDR_IN || i->addr_format == FI_SOCKADDR_IN6);
		if (udp) {
			CHECK(i->ep_attr->max_msg_size >= 500 && i->ep_attr->max_msg_size <= 65507);
			CHECK(i->tx_attr->inject_size == i->ep_attr->max_msg_size);
			continue;
		}
		CHECK(i->ep_attr->max_msg_size == SIZE_MAX && i->tx_attr->inject_size == 4096);
		CHECK(i->ep_attr->mem_tag_format == 0xaaaaaaaaaaaaaaaaULL);
		CHECK((i->tx_attr->msg_order & EVERY_ORDER) == EVERY_ORDER);
		CHECK((i->rx_attr->msg_order & EVERY_ORDER) == EVERY_ORDER);
		CHECK(i->ep_attr->max_order_raw_size == SIZE_MAX && i->ep_attr->max_order_waw_size == SIZE_MAX);
		CHECK(i->ep_attr->max_order_war_size == 4096);
		CHECK(i->tx_attr->iov_limit == 8 && i->tx_attr->rma_iov_limit == 8 && i->domain_attr->mr_iov_limit == 8);
		CHECK(i->domain_attr->mr_key_size == 8 && i->domain_attr->mr_cnt > 1000);
		CHECK(i->domain_attr->max_ep_stx_ctx > 1 && i->domain_attr->max_ep_srx_ctx > 1);
	}
	CHECK(seen == (1u << ARRAY(offers)) - 1);
	fi_freeinfo(list);
}

/* Reliable endpoints are those of tcp and shm. */
CASE_OURS(udp_has_no_reliable_endpoints)
{
	static const char *const names[] = { "ofi_rxd", "udp;ofi_rxd", "udp" };
	struct fi_info *hints, *list;
	size_t n;

	for (n = 0; n < ARRAY(names); n++) {
		hints = of(names[n], FI_EP_RDM);
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == -FI_ENODATA);
		fi_freeinfo(hints);
	}
	hints = plain();
	hints->ep_attr->protocol = FI_PROTO_RXD;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
}

CASE(provider_layered_names)
{
	static const struct { const char *name; int plain, layered; } names[] = {
		{ "tcp", 1, 1 }, { "TCP", 1, 1 }, { "ofi_rxm", 0, 1 }, { "tcp;ofi_rxm", 0, 1 }, { "ofi_rxm;tcp", 0, 1 },
		{ "off_coll", 0, 0 }, { "tcp;^ofi_rxm", 1, 0 }, { "^ofi_rxm", 1, 0 }, { "^tcp", 0, 0 },
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
		if (is_plain != names[n].plain || is_layered != names[n].layered)
			fprintf(stderr, "%s finds %d, %d\n", names[n].name, is_plain, is_layered);
		CHECK(is_plain == names[n].plain && is_layered == names[n].layered);
		fi_freeinfo(hints);
	}
}
