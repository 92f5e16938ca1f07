/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Discovery: node, service, addresses and their formats: fi_getinfo(3). */
#include "getinfo.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* Checks that the address, if any, has the info's format. */
static void fits_format(const struct fi_info *i, const void *addr, size_t len)
{
	uint16_t family;

	if (!addr)
		return;
	CHECK(len > 0);
	if (i->addr_format == FI_ADDR_STR)
		CHECK(strnlen(addr, len) > 0);
	if (i->addr_format == FI_SOCKADDR_IN || i->addr_format == FI_SOCKADDR_IN6) {
		memcpy(&family, addr, 2);
		CHECK(family == (i->addr_format == FI_SOCKADDR_IN ? AF_INET : AF_INET6));
		CHECK(len == (i->addr_format == FI_SOCKADDR_IN ? 16 : 28));
	}
}

CASE(getinfo_addr_format_hint)
{
	static const struct { uint32_t format; int found; } formats[] = {
		{ FI_FORMAT_UNSPEC, 1 }, { FI_SOCKADDR, 1 }, { FI_SOCKADDR_IN, 1 }, { FI_SOCKADDR_IB, 0 }, { FI_ADDR_EFA, 0 },
	};
	struct fi_info *hints, *list, *i;
	unsigned char name[64];
	int all, v4, v6;
	size_t f;

	for (f = 0; f < ARRAY(formats); f++) {
		WITH(of("tcp", FI_EP_MSG), h->addr_format = formats[f].format, formats[f].found);
		if (!formats[f].found)
			continue;
		hints = of("tcp", FI_EP_MSG);
		hints->addr_format = formats[f].format;
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		/* The results have a specific format, which the family of their address matches. */
		for (i = list; i; i = i->next) {
			CHECK(i->src_addr && (i->addr_format == FI_SOCKADDR_IN || i->addr_format == FI_SOCKADDR_IN6));
			CHECK(formats[f].format != FI_SOCKADDR_IN || i->addr_format == FI_SOCKADDR_IN);
			fits_format(i, i->src_addr, i->src_addrlen);
		}
		fi_freeinfo(list);
		fi_freeinfo(hints);
	}
	/* An unspecified format matches everything. */
	hints = of("tcp", FI_EP_MSG);
	all = matches(hints);
	hints->addr_format = FI_SOCKADDR_IN;
	v4 = matches(hints);
	hints->addr_format = FI_SOCKADDR_IN6;
	v6 = matches(hints);
	CHECK(v4 > 0 && all == v4 + v6);
	fi_freeinfo(hints);
	/* Without a node only sources are set, with one destinations too. */
	for (f = 0; f < 2; f++) {
		CHECK(ask(API, f ? "127.0.0.1" : NULL, f ? "80" : NULL, 0, NULL, &list) == 0);
		for (i = list; i; i = i->next) {
			fits_format(i, i->src_addr, i->src_addrlen);
			fits_format(i, i->dest_addr, i->dest_addrlen);
		}
		fi_freeinfo(list);
	}
	/* An endpoint's name has the same format. */
	hints = of("tcp", FI_EP_RDM);
	hints->addr_format = FI_SOCKADDR_IN;
	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, hints, &list) == 0 && list->addr_format == FI_SOCKADDR_IN);
	fits_format(list, name, name_of(list, name, sizeof(name)));
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(getinfo_format_covers_narrower_ones)
{
	/* FI_SOCKADDR_IP, which older headers lack. */
	enum { IP = 17 };
	static const struct { uint32_t format; int v4, v6; } formats[] = {
		{ FI_FORMAT_UNSPEC, 1, 1 }, { FI_SOCKADDR, 1, 1 }, { IP, 1, 1 }, { FI_SOCKADDR_IN, 1, 0 },
		{ FI_SOCKADDR_IN6, 0, 1 }, { FI_SOCKADDR_IB, 0, 0 }, { FI_ADDR_STR, 0, 0 }, { FI_ADDR_EFA, 0, 0 },
	};
	struct fi_info *list, *i;
	size_t f;

	for (f = 0; f < ARRAY(formats); f++) {
		struct fi_info *hints = of("tcp", FI_EP_RDM);
		int v4 = 0, v6 = 0;

		hints->addr_format = formats[f].format;
		if (ask(API, NULL, NULL, 0, hints, &list) == 0) {
			for (i = list; i; i = i->next) {
				v4 |= i->addr_format == FI_SOCKADDR_IN;
				v6 |= i->addr_format == FI_SOCKADDR_IN6;
			}
			fi_freeinfo(list);
		}
		CHECK(v4 == formats[f].v4 && v6 == formats[f].v6);
		fi_freeinfo(hints);
	}
	WITH(of("shm", FI_EP_RDM), h->addr_format = FI_ADDR_STR, 1);
	WITH(of("shm", FI_EP_RDM), h->addr_format = FI_SOCKADDR, 0);
}

/* Opens an endpoint and its objects with the info. */
static void open_with(struct side *s, struct fi_info *info)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };

	memset(s, 0, sizeof(*s));
	s->want = RDM;
	s->info = info;
	CHECK(fi_fabric(info->fabric_attr, &s->fabric, NULL) == 0 && fi_domain(s->fabric, info, &s->domain, NULL) == 0);
	CHECK(fi_eq_open(s->fabric, &eq_attr, &s->eq, NULL) == 0);
	CHECK(fi_cq_open(s->domain, &cq_attr, &s->cq, NULL) == 0 && fi_av_open(s->domain, &av_attr, &s->av, NULL) == 0);
	open_ep(s, info);
}

/* All addresses that objects opened with an info take and return have the info's format. */
CASE(addr_format_governs_calls)
{
	static const struct { uint32_t format; const char *node, *scheme; uint16_t family; size_t len; } kinds[] = {
		{ FI_SOCKADDR_IN, "127.0.0.1", "fi_sockaddr_in://127.0.0.1:", AF_INET, 16 },
		{ FI_SOCKADDR_IN6, "::1", "fi_sockaddr_in6://[::1]:", AF_INET6, 28 },
	};
	char back[64], text[128];
	size_t k, len;

	for (k = 0; k < ARRAY(kinds); k++) {
		struct fi_info *hints = hints_for(&RDM), *info;
		uint16_t family;
		struct side s;

		hints->addr_format = kinds[k].format;
		CHECK(fi_getinfo(API, kinds[k].node, NULL, FI_SOURCE, hints, &info) == 0);
		fi_freeinfo(hints);
		memcpy(&family, info->src_addr, 2);
		CHECK(info->addr_format == kinds[k].format && family == kinds[k].family && info->src_addrlen == kinds[k].len);
		open_with(&s, info);
		memcpy(&family, s.name, 2);
		CHECK(family == kinds[k].family && s.len == kinds[k].len);
		len = sizeof(back);
		CHECK(fi_av_lookup(s.av, insert(&s, s.name), back, &len) == 0 && len == kinds[k].len && !memcmp(back, s.name, 8));
		len = sizeof(text);
		CHECK(fi_av_straddr(s.av, s.name, text, &len) == text && !strncmp(text, kinds[k].scheme, strlen(kinds[k].scheme)));
		close_side(&s);
	}
}

/* A program that leaves the format unspecified treats names as opaque bytes. */
CASE(opaque_names_are_usable)
{
	struct side both[2], *a = &both[0], *b = &both[1];
	fi_addr_t to_b;
	char in[8];
	int n;

	for (n = 0; n < 2; n++) {
		struct fi_info *hints = hints_for(&RDM), *info;

		hints->addr_format = FI_FORMAT_UNSPEC;
		CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == 0);
		fi_freeinfo(hints);
		open_with(&both[n], info);
	}
	CHECK(a->len == b->len);
	to_b = insert(a, b->name);
	POST(fi_recv(b->ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	while (fi_send(a->ep, "x", 1, NULL, to_b, &contexts[1]) == -FI_EAGAIN) {
		fi_cq_read(a->cq, NULL, 0);
		fi_cq_read(b->cq, NULL, 0);
	}
	done(b, a, &contexts[0]);
	done(a, b, &contexts[1]);
	close_side(a);
	close_side(b);
}

CASE(getinfo_node_service_resolve)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;
	unsigned char *addr;

	CHECK(ask(API, "127.0.0.1", "4711", 0, hints, &list) == 0);
	addr = list->dest_addr;
	CHECK(addr && list->dest_addrlen == 16 && addr[2] == 4711 >> 8 && addr[3] == (4711 & 255) && addr[4] == 127);
	CHECK(list->addr_format == FI_SOCKADDR_IN);
	/* The source is the address the system would send from. */
	addr = list->src_addr;
	CHECK(addr && addr[4] == 127 && addr[2] == 0 && addr[3] == 0);
	/* All of them have that destination and match the hints. */
	for (i = list; i; i = i->next) {
		CHECK(i->dest_addrlen == list->dest_addrlen && !memcmp(i->dest_addr, list->dest_addr, 8));
		CHECK(i->ep_attr->type == FI_EP_RDM && !strncmp(i->fabric_attr->prov_name, "tcp", 3));
	}
	fi_freeinfo(list);
	CHECK(ask(API, "localhost", "80", 0, hints, &list) == 0);
	addr = list->dest_addr;
	/* Loopback in either family. */
	CHECK(addr && addr[2] == 0 && addr[3] == 80);
	CHECK(list->addr_format == FI_SOCKADDR_IN ? addr[4] == 127 : list->addr_format == FI_SOCKADDR_IN6 && addr[23] == 1);
	fi_freeinfo(list);
	/*
	 * Resolved in the family of the format: the local address is the wildcard, so the domain
	 * has no interface name.
	 */
	hints->addr_format = FI_SOCKADDR_IN;
	CHECK(ask(API, NULL, "80", FI_SOURCE, hints, &list) == 0);
	addr = list->src_addr;
	CHECK(list->src_addrlen == 16 && addr[3] == 80 && !addr[4] && !addr[7]);
	CHECK(!strcmp(list->domain_attr->name, "tcp") && !strcmp(list->fabric_attr->name, "tcp"));
	fi_freeinfo(list);
	hints->addr_format = FI_SOCKADDR_IN6;
	CHECK(ask(API, "::1", "80", 0, hints, &list) == 0 && list->addr_format == FI_SOCKADDR_IN6);
	CHECK(list->dest_addrlen == 28);
	fi_freeinfo(list);
	hints->addr_format = FI_FORMAT_UNSPEC;
	CHECK(ask(API, "no.such.host.invalid", "80", 0, hints, &list) == -FI_ENODATA && !list);
	CHECK(ask(API, "127.0.0.1", "no-such-service", 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
}

/*
 * Nodes resolve in the format's family, and so does this host if only a service is given (the
 * reference takes either family).
 */
CASE_OURS(getinfo_names_resolve_in_the_family)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	unsigned char *addr;

	hints->addr_format = FI_SOCKADDR_IN;
	CHECK(ask(API, NULL, "80", 0, hints, &list) == 0);
	addr = list->dest_addr;
	CHECK(list->dest_addrlen == 16 && addr[3] == 80 && addr[4] == 127);
	fi_freeinfo(list);
	CHECK(ask(API, "::1", "80", 0, hints, &list) == -FI_ENODATA);
	hints->addr_format = FI_SOCKADDR_IN6;
	CHECK(ask(API, "127.0.0.1", "80", 0, hints, &list) == -FI_ENODATA);
	CHECK(ask(API, NULL, "80", 0, hints, &list) == 0);
	addr = list->dest_addr;
	CHECK(list->dest_addrlen == 28 && addr[3] == 80 && addr[23] == 1);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_service_by_name)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	struct servent *service = getservbyname("http", "tcp");
	unsigned char *addr;

	if (!service)
		SKIP("no names of services here (/etc/services)");
	CHECK(ask(API, "127.0.0.1", "http", 0, hints, &list) == 0);
	addr = list->dest_addr;
	CHECK(addr && !memcmp(addr + 2, &(uint16_t) { (uint16_t) service->s_port }, 2) && addr[4] == 127);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_any_arguments)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	int given;

	for (given = 0; given < 8; given++) {
		CHECK(ask(API, given & 1 ? "127.0.0.1" : NULL, given & 2 ? "4711" : NULL, 0, given & 4 ? hints : NULL, &list) == 0);
		/* A node or a service sets the destination. */
		if (given & 4)
			CHECK(!list->dest_addr == !(given & 3));
		fi_freeinfo(list);
	}
	fi_freeinfo(hints);
}

/* Opens a listener at 127.0.0.1 and stores its address in `name`. */
static struct fid_pep *listener(struct side *server, const struct want *w, unsigned char *name)
{
	struct fid_pep *pep;
	size_t len = 64;

	open_domain(server, w);
	CHECK(fi_passive_ep(server->fabric, server->info, &pep, NULL) == 0);
	CHECK(fi_pep_bind(pep, &server->eq->fid, 0) == 0 && fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0 && len == 16);
	return pep;
}

/* Connects an endpoint of the info to the info's destination. */
static void follow(struct side *client, struct side *server, const struct want *w, struct fi_info *info)
{
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	uint32_t number;

	open_domain(client, w);
	fi_freeinfo(client->info);
	client->info = info;
	open_ep(client, info);
	CHECK(fi_connect(client->ep, info->dest_addr, NULL, 0) == 0);
	CHECK(event_of(server, client, &number, &event, sizeof(event)) >= (ssize_t) sizeof(event.cm) && number == FI_CONNREQ);
	open_ep(server, event.cm.info);
	fi_freeinfo(event.cm.info);
	CHECK(fi_accept(server->ep, NULL, 0) == 0);
	CHECK(event_of(server, client, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	CHECK(event_of(client, server, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
}

static const struct want CONNECTED = { .type = FI_EP_MSG };

CASE(getinfo_result_connects_to_the_service)
{
	struct fi_info *hints = hints_for(&CONNECTED), *info;
	struct side server, client;
	struct fid_pep *pep;
	unsigned char name[64];
	char service[16];

	pep = listener(&server, &CONNECTED, name);
	snprintf(service, sizeof(service), "%d", name[2] << 8 | name[3]);
	CHECK(fi_getinfo(API, "127.0.0.1", service, 0, hints, &info) == 0);
	CHECK(info->dest_addrlen == 16 && !memcmp(info->dest_addr, name, 8));
	follow(&client, &server, &CONNECTED, info);
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&client);
	close_side(&server);
	fi_freeinfo(hints);
}

/* A connection leaves from src_addr, and the endpoint's name does not change. */
CASE_OURS(src_addr_of_a_connection)
{
	struct fi_info *hints = hints_for(&CONNECTED), *info;
	struct sockaddr_in from = { .sin_family = AF_INET }, seen;
	socklen_t size = sizeof(from);
	struct side server, client;
	struct fid_pep *pep;
	unsigned char name[64];
	size_t len = sizeof(seen);
	int probe = socket(AF_INET, SOCK_STREAM, 0);

	/* A port that was free a moment ago. */
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(probe >= 0 && bind(probe, (struct sockaddr *) &from, size) == 0);
	CHECK(getsockname(probe, (struct sockaddr *) &from, &size) == 0 && close(probe) == 0);
	pep = listener(&server, &CONNECTED, name);
	CHECK(fi_getinfo(API, "127.0.0.1", NULL, 0, hints, &info) == 0);
	memcpy(info->dest_addr, name, 16);
	memcpy(info->src_addr, &from, 16);
	follow(&client, &server, &CONNECTED, info);
	CHECK(fi_getname(&client.ep->fid, &seen, &len) == 0 && !memcmp(&seen, &from, 8));
	len = sizeof(seen);
	CHECK(fi_getpeer(server.ep, &seen, &len) == 0 && !memcmp(&seen, &from, 8));
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&client);
	close_side(&server);
	fi_freeinfo(hints);
}

/* An endpoint opened with the handle of a passive one takes over its address. */
CASE_OURS(address_of_a_passive_endpoint_moves)
{
	struct fi_info *info;
	char name[64], taken[64];
	size_t len = sizeof(name), full = sizeof(taken);
	struct fid_pep *pep;
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &CONNECTED);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0 && (name[2] || name[3]));
	info = fi_dupinfo(s.info);
	info->handle = &pep->fid;
	CHECK(fi_endpoint(s.domain, info, &ep, NULL) == 0);
	CHECK(fi_getname(&ep->fid, taken, &full) == 0 && full == len && !memcmp(taken, name, 8));
	CHECK(fi_close(&ep->fid) == 0 && fi_close(&pep->fid) == 0);
	fi_freeinfo(info);
	close_side(&s);
}

/* Number of this process's sockets with this type of service. */
static int sockets_of_service(int service)
{
	int fd, n = 0;

	for (fd = 0; fd < 256; fd++) {
		int tos = -1;
		socklen_t len = sizeof(tos);

		n += !getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &len) && tos == service;
	}
	return n;
}

/* Expedited forwarding is code point 46, in the upper six bits of the type of service. */
CASE_OURS(tclass_reaches_the_socket)
{
	static const struct want datagrams = { .type = FI_EP_DGRAM };
	struct fi_info *hints = hints_for(&CONNECTED), *info;
	struct side server, client, s;
	struct fid_pep *pep;
	unsigned char name[64];

	CHECK(sockets_of_service(46 << 2) == 0);
	open_domain(&s, &datagrams);
	s.info->tx_attr->tclass = fi_tc_dscp_set(46);
	open_ep(&s, s.info);
	CHECK(sockets_of_service(46 << 2) > 0);
	close_side(&s);
	CHECK(sockets_of_service(46 << 2) == 0);
	hints->tx_attr->tclass = fi_tc_dscp_set(46);
	pep = listener(&server, &CONNECTED, name);
	CHECK(fi_getinfo(API, "127.0.0.1", NULL, 0, hints, &info) == 0 && info->tx_attr->tclass == fi_tc_dscp_set(46));
	memcpy(info->dest_addr, name, 16);
	follow(&client, &server, &CONNECTED, info);
	CHECK(sockets_of_service(46 << 2) > 0);
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&client);
	close_side(&server);
	fi_freeinfo(hints);
}

CASE(getinfo_numeric_host)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	CHECK(ask(API, "127.0.0.1", "80", FI_NUMERICHOST, hints, &list) == 0);
	CHECK(list->dest_addr && list->dest_addrlen == 16 && !memcmp((char *) list->dest_addr + 2, "\0\120\177\0\0\1", 6));
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
	static const struct { const char *node; int v6, port; } nodes[] = {
		{ "fi_sockaddr_in://127.0.0.1:4711", 0, 4711 }, { "fi_sockaddr_in6://[::1]:80", 1, 80 },
		{ "fi_sockaddr://127.0.0.1:4711", 0, 4711 }, { "fi_sockaddr://[::1]:80", 1, 80 },
	};
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list, *i;
	int tcp = 0, udp = 0;
	unsigned char *addr;
	size_t n;

	for (n = 0; n < ARRAY(nodes); n++) {
		CHECK(ask(API, nodes[n].node, NULL, 0, hints, &list) == 0);
		addr = list->dest_addr;
		CHECK(list->addr_format == (nodes[n].v6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN));
		CHECK(addr[2] == nodes[n].port >> 8 && addr[3] == (nodes[n].port & 255) && addr[nodes[n].v6 ? 23 : 7] == 1);
		fi_freeinfo(list);
	}
	CHECK(ask(API, "fi_sockaddr_in://127.0.0.1:4711", "80", 0, hints, &list) == -FI_ENODATA);
	CHECK(ask(API, "fi_sockaddr_in://nonsense", NULL, 0, hints, &list) == -FI_ENODATA);
	CHECK(ask(API, "fi_shm://1", NULL, 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
	/* The string does not select a provider; hints do. */
	hints = plain();
	CHECK(ask(API, "fi_sockaddr_in://127.0.0.1:4711", NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next) {
		tcp |= !strcmp(i->fabric_attr->prov_name, "tcp");
		udp |= !strcmp(i->fabric_attr->prov_name, "udp");
	}
	CHECK(tcp && udp);
	fi_freeinfo(list);
	hints->fabric_attr->prov_name = strdup("udp");
	CHECK(ask(API, "fi_sockaddr_in://127.0.0.1:4711", NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		CHECK(!strcmp(i->fabric_attr->prov_name, "udp"));
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

/* Everything after the name of the format may be omitted, and fields and keys may follow. */
CASE_OURS(getinfo_addr_str_forms)
{
	static const struct { const char *node; int port; } nodes[] = {
		{ "fi_sockaddr://127.0.0.1:7471?qos=3", 7471 }, { "fi_sockaddr_in://127.0.0.1:7471/field", 7471 },
		{ "fi_sockaddr_in://127.0.0.1:7471/field?qos=3&key=value", 7471 }, { "fi_sockaddr_in://127.0.0.1", 0 },
		{ "fi_sockaddr://127.0.0.1", 0 }, { "fi_sockaddr_in://:7471", 7471 },
		{ "fi_sockaddr_in://localhost:7471", 7471 },
	};
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	unsigned char *addr;
	size_t n;

	for (n = 0; n < ARRAY(nodes); n++) {
		CHECK(ask(API, nodes[n].node, NULL, 0, hints, &list) == 0);
		addr = list->dest_addr;
		CHECK(list->addr_format == FI_SOCKADDR_IN && addr[4] == 127);
		CHECK(addr[2] == nodes[n].port >> 8 && addr[3] == (nodes[n].port & 255));
		fi_freeinfo(list);
	}
	CHECK(ask(API, "fi_sockaddr_in6://[::1]", NULL, 0, hints, &list) == 0 && list->addr_format == FI_SOCKADDR_IN6);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_source_flag)
{
	struct fi_info *hints = of("tcp", FI_EP_MSG), *list;
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_fabric *fabric;
	struct fid_pep *pep;
	struct fid_eq *eq;
	unsigned char *addr, name[64];
	size_t len = sizeof(name);
	char port[16];

	CHECK(ask(API, NULL, NULL, FI_SOURCE, hints, &list) == -FI_ENODATA);
	CHECK(ask(API, "127.0.0.1", NULL, FI_SOURCE, hints, &list) == 0);
	addr = list->src_addr;
	CHECK(addr && addr[4] == 127 && !list->dest_addr);
	fi_freeinfo(list);
	snprintf(port, sizeof(port), "%d", 10000 + (int) getpid() % 20000);
	CHECK(ask(API, "127.0.0.1", port, FI_SOURCE, hints, &list) == 0);
	addr = list->src_addr;
	CHECK(addr && addr[4] == 127 && addr[2] * 256 + addr[3] == atoi(port) && !list->dest_addr);
	CHECK(fi_fabric(list->fabric_attr, &fabric, NULL) == 0);
	CHECK(fi_passive_ep(fabric, list, &pep, NULL) == 0);
	CHECK(fi_eq_open(fabric, &eq_attr, &eq, NULL) == 0);
	CHECK(fi_pep_bind(pep, &eq->fid, 0) == 0 && fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0 && len == 16 && !memcmp(name, list->src_addr, 8));
	CHECK(fi_close(&pep->fid) == 0 && fi_close(&eq->fid) == 0 && fi_close(&fabric->fid) == 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_hint_addrs_used)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	unsigned char *addr;

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
	/* The node is the source: the destination still comes from the hint. */
	CHECK(ask(API, "127.0.0.1", "4711", FI_SOURCE, hints, &list) == 0);
	addr = list->src_addr;
	CHECK(list->src_addrlen == 16 && addr[2] == 4711 >> 8 && addr[3] == (4711 & 255) && addr[4] == 127);
	CHECK(list->dest_addrlen == 16 && !memcmp(list->dest_addr, hints->dest_addr, 8));
	fi_freeinfo(list);
	/* The node is the destination: the source comes from the hint. */
	set_addr(&hints->src_addr, &hints->src_addrlen, 1, 4712);
	CHECK(ask(API, "127.0.0.1", "4711", 0, hints, &list) == 0);
	addr = list->dest_addr;
	CHECK(list->dest_addrlen == 16 && addr[2] == 4711 >> 8 && addr[3] == (4711 & 255) && addr[4] == 127);
	CHECK(list->src_addrlen == 16 && !memcmp(list->src_addr, hints->src_addr, 8));
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(getinfo_hint_addrs_ignored)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	unsigned char *addr;
	int n;

	hints->addr_format = FI_SOCKADDR_IN;
	/* Node, service or both set the destination: the hint and its length are ignored. */
	set_addr(&hints->dest_addr, &hints->dest_addrlen, 1, 99);
	for (n = 0; n < 4; n++) {
		int port = n == 1 ? 0 : 4711;

		hints->dest_addrlen = n == 3 ? 3 : 16;
		CHECK(ask(API, n == 2 ? NULL : "127.0.0.1", n == 1 ? NULL : "4711", 0, hints, &list) == 0);
		addr = list->dest_addr;
		CHECK(addr && addr[2] == port >> 8 && addr[3] == (port & 255) && (n == 2 || addr[4] == 127));
		fi_freeinfo(list);
	}
	/*
	 * With FI_SOURCE they set the source: the hint for it is ignored, the one for the
	 * destination is used.
	 */
	hints->dest_addrlen = 16;
	set_addr(&hints->src_addr, &hints->src_addrlen, 2, 98);
	for (n = 0; n < 2; n++) {
		hints->src_addrlen = n ? 3 : 16;
		CHECK(ask(API, "127.0.0.1", "4711", FI_SOURCE, hints, &list) == 0);
		addr = list->src_addr;
		CHECK(addr && list->src_addrlen == 16 && addr[7] == 1);
		CHECK(addr[2] == 4711 >> 8 && addr[3] == (4711 & 255));
		CHECK(list->dest_addrlen == 16 && !memcmp(list->dest_addr, hints->dest_addr, 8));
		fi_freeinfo(list);
	}
	/* Lengths without addresses are ignored. */
	free(hints->src_addr);
	free(hints->dest_addr);
	hints->src_addr = NULL;
	hints->dest_addr = NULL;
	hints->src_addrlen = hints->dest_addrlen = 16;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	CHECK(!list->dest_addr);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

/* An ignored address is not read, regardless of its length. */
CASE(getinfo_ignored_lengths)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->addr_format = FI_SOCKADDR_IN;
	set_addr(&hints->src_addr, &hints->src_addrlen, 2, 98);
	hints->src_addrlen = (size_t) 1 << 40;
	CHECK(ask(API, "127.0.0.1", "4711", FI_SOURCE, hints, &list) == 0 && list->src_addrlen == 16);
	fi_freeinfo(list);
	free(hints->src_addr);
	hints->src_addr = NULL;
	set_addr(&hints->dest_addr, &hints->dest_addrlen, 1, 99);
	hints->dest_addrlen = (size_t) 1 << 40;
	CHECK(ask(API, "127.0.0.1", "4711", 0, hints, &list) == 0 && list->dest_addrlen == 16);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

/* An ignored hint may be of another family than the node (fi_getinfo(3)). */
CASE_OURS(getinfo_ignored_hints_of_another_family)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->addr_format = FI_FORMAT_UNSPEC;
	set_addr(&hints->src_addr, &hints->src_addrlen, 1, 99);
	CHECK(ask(API, "::1", "7471", FI_SOURCE, hints, &list) == 0);
	CHECK(list->addr_format == FI_SOCKADDR_IN6);
	fi_freeinfo(list);
	/* Both ends must be of one family. */
	CHECK(ask(API, "::1", "7471", 0, hints, &list) == -FI_ENODATA);
	free(hints->src_addr);
	hints->src_addr = NULL;
	set_addr(&hints->dest_addr, &hints->dest_addrlen, 1, 99);
	CHECK(ask(API, "::1", "7471", 0, hints, &list) == 0);
	CHECK(list->addr_format == FI_SOCKADDR_IN6);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

/* The source belongs to the domain's interface and to the network in the fabric's name. */
CASE(getinfo_src_addr_belongs)
{
	struct ifaddrs *all, *a;
	struct fi_info *list, *i;

	CHECK(getifaddrs(&all) == 0);
	CHECK(ask(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i; i = i->next) {
		struct in_addr network;
		struct sockaddr_in src;
		char text[64];
		unsigned bits = 99;
		int there = 0;

		if (i->addr_format != FI_SOCKADDR_IN || (!is_of(i, "udp", FI_EP_DGRAM) && strcmp(i->fabric_attr->prov_name, "tcp")))
			continue;
		CHECK(i->src_addr && i->src_addrlen == sizeof(src));
		memcpy(&src, i->src_addr, sizeof(src));
		for (a = all; a; a = a->ifa_next)
			if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && !strcmp(a->ifa_name, i->domain_attr->name))
				there |= ((struct sockaddr_in *) a->ifa_addr)->sin_addr.s_addr == src.sin_addr.s_addr;
		CHECK(there);
		CHECK(sscanf(i->fabric_attr->name, "%63[^/]/%u", text, &bits) == 2 && bits <= 32);
		CHECK(inet_pton(AF_INET, text, &network) == 1);
		CHECK(!bits || !((ntohl(src.sin_addr.s_addr) ^ ntohl(network.s_addr)) >> (32 - bits)));
	}
	fi_freeinfo(list);
	freeifaddrs(all);
}
