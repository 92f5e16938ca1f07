/*
 * Makes 99 calls to a library's rdma_getaddrinfo and prints a tab-separated line for each: name,
 * arguments, result.
 * usage: rows LIBRARY
 */
#define _GNU_SOURCE
#include <rdma/rdma_addrinfo.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GID "fe80:0000:0000:0000:0000:00ff:fe00:0001"
#define FLAGS (RAI_NUMERICHOST | RAI_FAMILY)
#define NO_HINTS (-2)

/* An address in the hints. */
enum end { NONE, SRC4, SRC6, DST4 };

static const struct row {
	const char *name, *node, *service;
	long long flags; /* NO_HINTS: none */
	int family, qp, ps;
	enum end end;
} rows[] = {
	{ "all NULL", NULL, NULL, NO_HINTS, 0, 0, 0, NONE },
	{ "node only", "10.9.0.1", NULL, NO_HINTS, 0, 0, 0, NONE },
	{ "service only", NULL, "7471", NO_HINTS, 0, 0, 0, NONE },
	{ "node and service", "10.9.0.1", "7471", NO_HINTS, 0, 0, 0, NONE },
	{ "empty hints only", NULL, NULL, 0, 0, 0, 0, NONE },
	{ "hints only, PASSIVE", NULL, NULL, RAI_PASSIVE, 0, 0, 0, NONE },
	{ "hints only, source", NULL, NULL, RAI_PASSIVE, 0, 0, 0, SRC4 },
	{ "hints only, destination", NULL, NULL, 0, 0, 0, 0, DST4 },
	{ "hints only, destination of another family", NULL, NULL, 0, AF_INET6, 0, 0, DST4 },
	{ "hints only, source of IPv6", NULL, NULL, 0, 0, 0, 0, SRC6 },
	{ "PASSIVE, service", NULL, "7471", RAI_PASSIVE, 0, 0, 0, NONE },
	{ "PASSIVE, service, INET6", NULL, "7471", RAI_PASSIVE, AF_INET6, 0, 0, NONE },
	{ "PASSIVE, node and service", "10.9.0.1", "7471", RAI_PASSIVE, 0, 0, 0, NONE },
	{ "PASSIVE, IPv6 node", "fd09::1", "7471", RAI_PASSIVE, 0, 0, 0, NONE },
	{ "active, source in hints", "10.9.0.1", "7471", 0, 0, 0, 0, SRC4 },
	{ "PASSIVE, source in hints", "10.9.0.1", "7471", RAI_PASSIVE, 0, 0, 0, SRC4 },
	{ "NUMERICHOST, number", "10.9.0.1", "7471", RAI_NUMERICHOST, 0, 0, 0, NONE },
	{ "NUMERICHOST, name", "localhost", "7471", RAI_NUMERICHOST, 0, 0, 0, NONE },
	{ "name", "localhost", "7471", 0, 0, 0, 0, NONE },
	{ "name, INET6", "localhost", "7471", 0, AF_INET6, 0, 0, NONE },
	{ "unknown name", "no-such-host.invalid", "7471", 0, 0, 0, 0, NONE },
	{ "empty node", "", "7471", 0, 0, 0, 0, NONE },
	{ "named service", "10.9.0.1", "http", 0, 0, 0, 0, NONE },
	{ "named service, UD", "10.9.0.1", "domain", 0, 0, IBV_QPT_UD, 0, NONE },
	{ "unknown service", "10.9.0.1", "no-such-svc", 0, 0, 0, 0, NONE },
	{ "service 65536", "10.9.0.1", "65536", 0, 0, 0, 0, NONE },
	{ "service -1", "10.9.0.1", "-1", 0, 0, 0, 0, NONE },
	{ "empty service", "10.9.0.1", "", 0, 0, 0, 0, NONE },
	{ "INET6, IPv4 node", "10.9.0.1", "1", 0, AF_INET6, 0, 0, NONE },
	{ "INET6, IPv6 node", "fd09::1", "1", 0, AF_INET6, 0, 0, NONE },
	{ "INET, IPv6 node", "fd09::1", "1", 0, AF_INET, 0, 0, NONE },
	{ "scoped node", "fe80::1%lo", "1", 0, 0, 0, 0, NONE },
	{ "scoped node, no such interface", "fe80::1%nope", "1", 0, 0, 0, 0, NONE },
	{ "family 99", "10.9.0.1", "1", 0, 99, 0, 0, NONE },
	{ "family AF_UNIX", "10.9.0.1", "1", 0, AF_UNIX, 0, 0, NONE },
	{ "FAMILY, INET", "10.9.0.1", "1", RAI_FAMILY, AF_INET, 0, 0, NONE },
	{ "AF_IB without a flag", GID, "1", 0, AF_IB, 0, 0, NONE },
	{ "AF_IB, FAMILY", GID, "1", RAI_FAMILY, AF_IB, 0, 0, NONE },
	{ "AF_IB, FAMILY, NUMERICHOST", GID, "1", FLAGS, AF_IB, 0, 0, NONE },
	{ "AF_IB, FAMILY, NUMERICHOST, PASSIVE", GID, "1", FLAGS | RAI_PASSIVE, AF_IB, 0, 0, NONE },
	{ "AF_IB, FAMILY, NUMERICHOST, port space IB", GID, "1", FLAGS, AF_IB, IBV_QPT_RC, RDMA_PS_IB, NONE },
	{ "AF_IB, FAMILY, NUMERICHOST, no service", GID, NULL, FLAGS, AF_IB, 0, RDMA_PS_IB, NONE },
	{ "AF_IB, FAMILY, NUMERICHOST, IPv4 node", "10.9.0.1", "1", FLAGS, AF_IB, 0, 0, NONE },
	{ "AF_IB, FAMILY, NUMERICHOST, NOROUTE", GID, "1", FLAGS | RAI_NOROUTE, AF_IB, 0, 0, NONE },
	{ "AF_IB, FAMILY, NUMERICHOST, name", "localhost", "1", FLAGS, AF_IB, 0, 0, NONE },
	{ "AF_IB, FAMILY, NUMERICHOST, no GID", "fe80:::zz", "1", FLAGS, AF_IB, 0, 0, NONE },
	{ "NOROUTE", "10.9.0.1", "1", RAI_NOROUTE, 0, 0, 0, NONE },
	{ "flags 0x10", "10.9.0.1", "1", 0x10, 0, 0, 0, NONE },
	{ "flags 0xffffffff", "10.9.0.1", "1", 0xffffffff, 0, 0, 0, NONE },
	{ "flags 0xfffffff0", "10.9.0.1", "1", 0xfffffff0, 0, 0, 0, NONE },
};

static const struct word {
	int value;
	const char *name;
} families[] = { { 0, "UNSPEC" }, { AF_INET, "INET" }, { AF_INET6, "INET6" }, { AF_IB, "IB" }, { 0, NULL } },
  types[] = { { 0, "0" }, { 2, "RC" }, { 3, "UC" }, { 4, "UD" }, { 8, "RAW" }, { 9, "XRC_SEND" }, { 10, "XRC_RECV" },
	      { 99, "99" }, { 0, NULL } },
  spaces[] = { { 0, "0" }, { RDMA_PS_TCP, "TCP" }, { RDMA_PS_UDP, "UDP" }, { RDMA_PS_IPOIB, "IPOIB" },
	       { RDMA_PS_IB, "IB" }, { 0x999, "0x999" }, { 0, NULL } },
  codes[] = { { -2, "EAI_NONAME" }, { -3, "EAI_AGAIN" }, { -4, "EAI_FAIL" }, { -5, "EAI_NODATA" },
	      { -6, "EAI_FAMILY" }, { -7, "EAI_QPTYPE" }, { -8, "EAI_SERVICE" }, { -9, "EAI_ADDRFAMILY" },
	      { -10, "EAI_MEMORY" }, { 0, NULL } };

static const char *word(const struct word *of, int value)
{
	static char number[16];

	for (; of->name; of++)
		if (of->value == value)
			return of->name;
	snprintf(number, sizeof number, "%d", value);
	return number;
}

/* struct sockaddr_ib of <infiniband/ib.h>. */
struct ib {
	uint16_t family, pkey;
	uint32_t flowinfo;
	uint8_t gid[16];
	uint64_t sid, mask, scope;
};

static void show(const char *what, const struct sockaddr *addr, socklen_t len)
{
	char text[INET6_ADDRSTRLEN] = "";

	if (!addr || !len) {
		if (addr || len)
			printf(" %s is half there", what);
		return;
	}
	if (addr->sa_family == AF_INET && len == sizeof(struct sockaddr_in)) {
		const struct sockaddr_in *in = (const void *) addr;
		inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
		printf(" %s %s:%d", what, text, ntohs(in->sin_port));
	} else if (addr->sa_family == AF_INET6 && len == sizeof(struct sockaddr_in6)) {
		const struct sockaddr_in6 *in = (const void *) addr;
		inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
		printf(" %s [%s", what, text);
		if (in->sin6_scope_id)
			printf("%%%u", in->sin6_scope_id);
		printf("]:%d", ntohs(in->sin6_port));
	} else if (addr->sa_family == AF_IB && len == sizeof(struct ib)) {
		const struct ib *ib = (const void *) addr;
		inet_ntop(AF_INET6, ib->gid, text, sizeof text);
		printf(" %s %s pkey %#x service %#jx/%#jx", what, text, ntohs(ib->pkey), (uintmax_t) be64toh(ib->sid),
		       (uintmax_t) be64toh(ib->mask));
	} else {
		printf(" %s of family %d with %u bytes", what, addr->sa_family, len);
	}
}

static void answer(int ret, const struct rdma_addrinfo *res, const void *untouched)
{
	const int error = errno;

	if (ret) {
		if (ret == -1)
			printf("-1, errno %s", strerrorname_np(error));
		else if (ret == EAI_SYSTEM)
			printf("EAI_SYSTEM, errno %s", strerrorname_np(error));
		else
			printf("%s", word(codes, ret));
		if (res != untouched)
			printf(", and the result was changed");
		return;
	}
	for (; res; res = res->ai_next) {
		printf("%s%s", res->ai_flags & RAI_PASSIVE ? "PASSIVE " : "", word(families, res->ai_family));
		if (res->ai_flags & ~RAI_PASSIVE)
			printf(" flags %#x", res->ai_flags);
		printf(" %s", word(types, res->ai_qp_type));
		printf(" %s", word(spaces, res->ai_port_space));
		show("from", res->ai_src_addr, res->ai_src_len);
		show("to", res->ai_dst_addr, res->ai_dst_len);
		if (res->ai_src_canonname)
			printf(" source name %s", res->ai_src_canonname);
		if (res->ai_dst_canonname)
			printf(" destination name %s", res->ai_dst_canonname);
		if (res->ai_route_len || res->ai_route)
			printf(" route of %zu", res->ai_route_len);
		if (res->ai_connect_len || res->ai_connect)
			printf(" data of %zu", res->ai_connect_len);
		printf("%s", res->ai_next ? "; " : "");
	}
}

static int (*getaddrinfo_of)(const char *, const char *, const struct rdma_addrinfo *, struct rdma_addrinfo **);
static void (*freeaddrinfo_of)(struct rdma_addrinfo *);

static void ask(const struct row *row)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(7) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(7) };
	struct rdma_addrinfo hints = { 0 }, untouched, *res = &untouched;
	int ret;

	inet_pton(AF_INET, "10.9.0.1", &v4.sin_addr);
	inet_pton(AF_INET6, "fd09::1", &v6.sin6_addr);
	printf("%s\t", row->name);
	if (row->node)
		printf("\"%s\" ", row->node);
	if (row->service)
		printf("service \"%s\" ", row->service);
	if (row->flags != NO_HINTS) {
		hints.ai_flags = (int) row->flags;
		hints.ai_family = row->family;
		hints.ai_qp_type = row->qp;
		hints.ai_port_space = row->ps;
		printf("flags %#x %s", hints.ai_flags, word(families, row->family));
		printf(" %s", word(types, row->qp));
		printf(" %s", word(spaces, row->ps));
		if (row->end == SRC4 || row->end == SRC6) {
			hints.ai_src_addr = row->end == SRC4 ? (void *) &v4 : (void *) &v6;
			hints.ai_src_len = row->end == SRC4 ? sizeof v4 : sizeof v6;
		} else if (row->end == DST4) {
			hints.ai_dst_addr = (void *) &v4;
			hints.ai_dst_len = sizeof v4;
		}
		show("from", hints.ai_src_addr, hints.ai_src_len);
		show("to", hints.ai_dst_addr, hints.ai_dst_len);
	}
	printf("\t");
	errno = 0;
	ret = getaddrinfo_of(row->node, row->service, row->flags == NO_HINTS ? NULL : &hints, &res);
	answer(ret, res, &untouched);
	printf("\n");
	if (!ret)
		freeaddrinfo_of(res);
}

int main(int argc, char **argv)
{
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	char name[64];
	const struct word *type, *space;

	if (!library) {
		fprintf(stderr, "usage: rows LIBRARY (%s)\n", argc == 2 ? dlerror() : "no library");
		return 2;
	}
	getaddrinfo_of = dlvsym(library, "rdma_getaddrinfo", "RDMACM_1.0");
	freeaddrinfo_of = dlvsym(library, "rdma_freeaddrinfo", "RDMACM_1.0");
	if (!getaddrinfo_of || !freeaddrinfo_of) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		ask(&rows[i]);
	for (type = types; type->name; type++)
		for (space = spaces; space->name; space++) {
			struct row row = { name, "10.9.0.1", "7471", 0, 0, type->value, space->value, NONE };
			snprintf(name, sizeof name, "%s over %s", type->name, space->name);
			ask(&row);
		}
	ask(&(struct row){ "service of TCP, UD over UDP", "10.9.0.1", "ssh", 0, 0, IBV_QPT_UD, RDMA_PS_UDP, NONE });
	return 0;
}
