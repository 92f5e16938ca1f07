/* Behavior of rdma_getaddrinfo(3) beyond the rows of ROWS.md, without linking rdma-core. */
#define _GNU_SOURCE
#include <rdma/rdma_addrinfo.h>

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"

/* struct sockaddr_ib of <infiniband/ib.h>. */
struct ib {
	uint16_t family, pkey;
	uint32_t flowinfo;
	uint8_t gid[16];
	uint64_t sid, mask, scope;
};

/* struct ibv_path_record and struct ibv_path_data of <infiniband/sa.h>. */
struct record {
	uint64_t service_id;
	uint8_t dgid[16], sgid[16];
	uint16_t dlid, slid;
	uint32_t flowlabel_hoplimit;
	uint8_t tclass, reversible_numpath;
	uint16_t pkey, qosclass_sl;
	uint8_t mtu, rate, packetlifetime, preference, reserved[6];
};

struct data {
	uint32_t flags, reserved;
	struct record path;
};

static struct rdma_addrinfo none;
enum { SENTINEL = 12345 };

static int code(const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *res = &none;
	int ret;

	errno = SENTINEL;
	ret = rdma_getaddrinfo(node, service, hints, &res);
	/* Only these two codes set errno. */
	CHECK((errno == SENTINEL) == (ret != EAI_SYSTEM && ret != EAI_BADFLAGS));
	if (ret) {
		CHECK(res == &none);
		CHECK(ret < 0 && ret >= EAI_SYSTEM);
	} else {
		rdma_freeaddrinfo(res);
	}
	return ret;
}

static struct rdma_addrinfo *get(const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *res = NULL;
	int ret = rdma_getaddrinfo(node, service, hints, &res);

	if (ret)
		fprintf(stderr, "node %s service %s: %s\n", node, service, gai_strerror(ret));
	CHECK(!ret && res);
	return res;
}

static struct sockaddr_in v4(const char *ip, int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

	CHECK(inet_pton(AF_INET, ip, &in.sin_addr) == 1);
	return in;
}

static struct sockaddr_in6 v6(const char *ip, int port)
{
	struct sockaddr_in6 in = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	CHECK(inet_pton(AF_INET6, ip, &in.sin6_addr) == 1);
	return in;
}

static void is_v4(const struct sockaddr *addr, socklen_t len, const char *ip, int port)
{
	struct sockaddr_in in = v4(ip, port);

	CHECK(len == sizeof in && !memcmp(addr, &in, sizeof in));
}

static void is_v6(const struct sockaddr *addr, socklen_t len, const char *ip, int port)
{
	struct sockaddr_in6 in = v6(ip, port);

	CHECK(len == sizeof in && !memcmp(addr, &in, sizeof in));
}

/* Two addresses of one name, in RFC 6724 order: unique local addresses come after IPv4. */
static void several_addresses(void)
{
	struct rdma_addrinfo hints = { 0 }, *list = get("rxe", "7471", NULL), *next = list->ai_next;

	CHECK(list->ai_family == AF_INET && next && next->ai_family == AF_INET6 && !next->ai_next);
	is_v4(list->ai_src_addr, list->ai_src_len, "10.9.0.1", 0);
	is_v4(list->ai_dst_addr, list->ai_dst_len, "10.9.0.1", 7471);
	is_v6(next->ai_src_addr, next->ai_src_len, "fd09::1", 0);
	is_v6(next->ai_dst_addr, next->ai_dst_len, "fd09::1", 7471);
	CHECK(list->ai_dst_canonname && !strcmp(list->ai_dst_canonname, "rxe4") && !list->ai_src_canonname);
	CHECK(next->ai_dst_canonname && !strcmp(next->ai_dst_canonname, "rxe4"));
	rdma_freeaddrinfo(list);

	/* A client that connects to the first address finds a server that listens on the first. */
	hints.ai_flags = RAI_PASSIVE;
	list = get("rxe", "7471", &hints);
	is_v4(list->ai_src_addr, list->ai_src_len, "10.9.0.1", 7471);
	is_v6(list->ai_next->ai_src_addr, list->ai_next->ai_src_len, "fd09::1", 7471);
	rdma_freeaddrinfo(list);

	hints.ai_family = AF_INET6;
	list = get("rxe", "7471", &hints);
	CHECK(!list->ai_next && list->ai_flags == RAI_PASSIVE && !list->ai_dst_len && !list->ai_dst_addr);
	is_v6(list->ai_src_addr, list->ai_src_len, "fd09::1", 7471);
	CHECK(list->ai_src_canonname && !list->ai_dst_canonname);
	rdma_freeaddrinfo(list);
}

/* A source in the hints filters the destinations. */
static void sources(void)
{
	struct sockaddr_in6 six = v6("fd09::1", 99);
	struct sockaddr_in four = v4("10.9.0.1", 99);
	struct rdma_addrinfo hints = { 0 }, *list;

	hints.ai_src_addr = (void *) &six;
	hints.ai_src_len = sizeof six;
	list = get("rxe", "1", &hints);
	CHECK(!list->ai_next && list->ai_family == AF_INET6);
	is_v6(list->ai_src_addr, list->ai_src_len, "fd09::1", 99);
	rdma_freeaddrinfo(list);
	CHECK(code("10.9.0.1", "1", &hints) == EAI_ADDRFAMILY);

	/* Without a node, the hints' addresses are used, with the port of the service. */
	hints.ai_flags = RAI_PASSIVE;
	list = get(NULL, "7471", &hints);
	CHECK(!list->ai_next && list->ai_family == AF_INET6 && !list->ai_dst_len);
	is_v6(list->ai_src_addr, list->ai_src_len, "fd09::1", 7471);
	rdma_freeaddrinfo(list);

	memset(&hints, 0, sizeof hints);
	hints.ai_dst_addr = (void *) &four;
	hints.ai_dst_len = sizeof four;
	hints.ai_dst_canonname = "somewhere";
	list = get(NULL, "7471", &hints);
	CHECK(!list->ai_next && list->ai_qp_type == IBV_QPT_RC && list->ai_port_space == RDMA_PS_TCP);
	is_v4(list->ai_src_addr, list->ai_src_len, "10.9.0.1", 0);
	is_v4(list->ai_dst_addr, list->ai_dst_len, "10.9.0.1", 7471);
	CHECK(!strcmp(list->ai_dst_canonname, "somewhere"));
	rdma_freeaddrinfo(list);

	hints.ai_flags = RAI_NOROUTE;
	list = get("10.9.0.1", "7471", &hints);
	CHECK(!list->ai_src_len && !list->ai_src_addr);
	rdma_freeaddrinfo(list);

	/* Addresses in the hints must be of the hinted family, where they are used. */
	memset(&hints, 0, sizeof hints);
	hints.ai_family = AF_INET6;
	hints.ai_dst_addr = (void *) &four;
	hints.ai_dst_len = sizeof four;
	CHECK(code(NULL, "1", &hints) == EAI_ADDRFAMILY);
	CHECK(code("fd09::1", "1", &hints) == 0);
	hints.ai_flags = RAI_PASSIVE;
	CHECK(code(NULL, "1", &hints) == 0);
	hints.ai_src_addr = (void *) &four;
	hints.ai_src_len = sizeof four;
	CHECK(code(NULL, "1", &hints) == EAI_ADDRFAMILY);
	CHECK(code("fd09::1", "1", &hints) == 0);
	hints.ai_family = AF_INET;
	CHECK(code(NULL, "1", &hints) == 0);

	/* Listening has no destination, also with hints alone. */
	list = get(NULL, NULL, &hints);
	CHECK(!list->ai_dst_addr && !list->ai_dst_len && list->ai_src_len == sizeof four);
	rdma_freeaddrinfo(list);

	/* A length without an address is ignored, and so is an address without a length. */
	memset(&hints, 0, sizeof hints);
	hints.ai_src_len = sizeof four;
	list = get(NULL, NULL, &hints);
	CHECK(!list->ai_src_addr && !list->ai_src_len);
	rdma_freeaddrinfo(list);
}

static void wrong_inputs(void)
{
	struct sockaddr_in6 six = v6("fd09::1", 99);
	struct sockaddr other = { .sa_family = AF_UNIX };
	struct rdma_addrinfo hints = { 0 };
	static char long_node[1 << 20];

	CHECK(code(NULL, NULL, NULL) == EAI_NONAME);
	errno = 0;
	CHECK(rdma_getaddrinfo("10.9.0.1", NULL, NULL, NULL) == EAI_SYSTEM && errno == EINVAL);
	CHECK(code("caf\xe9", NULL, NULL) == EAI_NONAME);
	CHECK(code("10.9.0.1", "caf\xe9", NULL) == EAI_SERVICE);
	hints.ai_src_canonname = "caf\xe9";
	CHECK(code("10.9.0.1", "1", &hints) == EAI_NONAME);
	memset(&hints, 0, sizeof hints);
	/* The node exists, but has no address of that family. */
	hints.ai_family = AF_INET6;
	CHECK(code("rxe4", NULL, &hints) == EAI_ADDRFAMILY);
	CHECK(code("no-such-host.invalid", NULL, &hints) == EAI_NONAME);
	memset(&hints, 0, sizeof hints);
	memset(long_node, 'a', sizeof long_node - 1);
	CHECK(code(long_node, NULL, NULL) == EAI_NONAME);
	CHECK(code("10.9.0.1", long_node, NULL) == EAI_SERVICE);
	memset(long_node, '1', sizeof long_node - 1);
	CHECK(code("10.9.0.1", long_node, NULL) == EAI_SERVICE);
	for (const char *const *bad = (const char *const[]){ "65536", "-1", "", " 80", "80 ", "+80", "0x50", "8 0", "4294967376",
							     "18446744073709551696", "no-such-service", "http ", NULL };
	     *bad; bad++)
		CHECK(code("10.9.0.1", *bad, NULL) == EAI_SERVICE);

	hints.ai_src_addr = (void *) &six;
	hints.ai_src_len = sizeof six - 1;
	CHECK(code("fd09::1", NULL, &hints) == EAI_SYSTEM && errno == EINVAL);
	hints.ai_src_len = 1;
	CHECK(code("fd09::1", NULL, &hints) == EAI_SYSTEM);
	hints.ai_src_addr = &other;
	hints.ai_src_len = sizeof other;
	CHECK(code("fd09::1", NULL, &hints) == EAI_FAMILY);

	memset(&hints, 0, sizeof hints);
	for (int bit = 6; bit < 32; bit++) {
		hints.ai_flags = (int) (1u << bit);
		CHECK(code("10.9.0.1", NULL, &hints) == EAI_BADFLAGS && errno == EINVAL);
		CHECK(code(NULL, NULL, &hints) == EAI_BADFLAGS);
	}
	/* The limit for connection data. */
	memset(&hints, 0, sizeof hints);
	hints.ai_connect = long_node;
	hints.ai_connect_len = sizeof long_node;
	CHECK(code("10.9.0.1", NULL, &hints) == 0);
	hints.ai_connect_len++;
	CHECK(code("10.9.0.1", NULL, &hints) == EAI_SYSTEM && errno == EMSGSIZE);
	memset(&hints, 0, sizeof hints);
	hints.ai_flags = RAI_DNS;
	CHECK(code("10.9.0.1", NULL, &hints) == 0);
	hints.ai_flags = RAI_SA;
	CHECK(code("10.9.0.1", NULL, &hints) == EAI_SYSTEM && errno == EOPNOTSUPP);
	/* Hints alone are checked too. */
	memset(&hints, 0, sizeof hints);
	hints.ai_qp_type = IBV_QPT_UD;
	hints.ai_port_space = RDMA_PS_TCP;
	CHECK(code(NULL, NULL, &hints) == EAI_QPTYPE);
	hints.ai_port_space = RDMA_PS_IB;
	CHECK(code(NULL, NULL, &hints) == 0);
}

static void infiniband(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_FAMILY | RAI_PASSIVE, .ai_family = AF_IB }, *list;
	const struct ib *ib;

	/* No node: the wildcard GID for binding, the loopback GID for connecting. */
	list = get(NULL, "7471", &hints);
	ib = (const void *) list->ai_src_addr;
	CHECK(!list->ai_next && list->ai_family == AF_IB && list->ai_src_len == sizeof *ib && ib->family == AF_IB);
	CHECK(!memcmp(ib->gid, &in6addr_any, 16) && be64toh(ib->sid) == 0x1061d2f && ib->mask == UINT64_MAX);
	rdma_freeaddrinfo(list);
	hints.ai_flags = RAI_FAMILY;
	hints.ai_port_space = RDMA_PS_UDP;
	list = get(NULL, "domain", &hints);
	ib = (const void *) list->ai_dst_addr;
	CHECK(!list->ai_next && !memcmp(ib->gid, &in6addr_loopback, 16) && list->ai_qp_type == IBV_QPT_UD);
	rdma_freeaddrinfo(list);

	hints.ai_port_space = RDMA_PS_IB;
	list = get("fe80::1%lo", NULL, &hints);
	ib = (const void *) list->ai_dst_addr;
	CHECK(ib->scope == 1 && be64toh(ib->sid) == 0x13f0000 && be64toh(ib->mask) == 0xffffffffffff0000);
	CHECK(ib->pkey == 0xffff && !list->ai_src_len);
	rdma_freeaddrinfo(list);
	CHECK(code("rxe", NULL, &hints) == EAI_NONAME);
}

static const struct ib *ib_of(const uint8_t *gid)
{
	static struct ib ib;

	ib = (struct ib){ .family = AF_IB, .pkey = 0xffff };
	memcpy(ib.gid, gid, 16);
	return &ib;
}

static void routes(void)
{
	struct record record = { .service_id = htobe64(5), .pkey = htons(0x8001), .dgid = { 0xfe, 0x80, [15] = 2 },
				 .sgid = { 0xfe, 0x80, [15] = 1 } };
	struct rdma_addrinfo hints = { .ai_route = &record, .ai_route_len = sizeof record }, *list;
	struct data pair[2];
	const struct data *data;
	const struct ib *ib;
	struct ib other;

	/* A path alone names both ends. */
	list = get(NULL, NULL, &hints);
	data = list->ai_route;
	CHECK(list->ai_route_len == sizeof *data && !memcmp(&data->path, &record, sizeof record) && data->flags & 2);
	ib = (const void *) list->ai_dst_addr;
	CHECK(list->ai_dst_len == sizeof *ib && !memcmp(ib->gid, record.dgid, 16) && ib->pkey == record.pkey);
	CHECK(ib->sid == record.service_id && ib->mask == UINT64_MAX);
	ib = (const void *) list->ai_src_addr;
	CHECK(list->ai_src_len == sizeof *ib && !memcmp(ib->gid, record.sgid, 16));
	rdma_freeaddrinfo(list);
	list = get(NULL, "7471", &hints);
	ib = (const void *) list->ai_dst_addr;
	CHECK(list->ai_family == AF_IB && be64toh(ib->sid) == 0x1061d2f && list->ai_src_len == sizeof *ib);
	rdma_freeaddrinfo(list);

	/* Hints override each end separately. */
	other = *ib_of(record.sgid);
	other.gid[15] = 77;
	hints.ai_src_addr = (void *) &other;
	hints.ai_src_len = sizeof other;
	list = get(NULL, NULL, &hints);
	CHECK(!memcmp(((struct ib *) list->ai_src_addr)->gid, other.gid, 16));
	CHECK(!memcmp(((struct ib *) list->ai_dst_addr)->gid, record.dgid, 16));
	rdma_freeaddrinfo(list);
	hints.ai_flags = RAI_PASSIVE;
	hints.ai_dst_addr = (void *) &other;
	hints.ai_dst_len = sizeof other;
	hints.ai_src_len = 0;
	list = get(NULL, "7471", &hints);
	CHECK(!list->ai_next && !memcmp(((struct ib *) list->ai_src_addr)->gid, record.sgid, 16));
	rdma_freeaddrinfo(list);
	/* An IB path is not used with IP addresses. */
	memset(&hints, 0, sizeof hints);
	hints.ai_route = &record;
	hints.ai_route_len = sizeof record;
	hints.ai_family = AF_INET;
	list = get(NULL, "7471", &hints);
	is_v4(list->ai_dst_addr, list->ai_dst_len, "127.0.0.1", 7471);
	CHECK(!list->ai_route_len);
	rdma_freeaddrinfo(list);
	memset(&hints, 0, sizeof hints);

	/* Only a complete path is a route. */
	memset(pair, 0, sizeof pair);
	pair[0].path = record;
	pair[1].path = record;
	pair[1].path.dlid = htons(3);
	pair[1].path.slid = htons(4);
	hints.ai_route = pair;
	hints.ai_route_len = sizeof pair;
	list = get("10.9.0.1", NULL, &hints);
	CHECK(list->ai_route_len == sizeof *pair && !memcmp(list->ai_route, &pair[1], sizeof *pair));
	is_v4(list->ai_dst_addr, list->ai_dst_len, "10.9.0.1", 0);
	rdma_freeaddrinfo(list);
	hints.ai_route_len = sizeof *pair;
	list = get("10.9.0.1", NULL, &hints);
	CHECK(!list->ai_route_len && !list->ai_route);
	rdma_freeaddrinfo(list);

	/* Routing data of other transports and connection data are copied. */
	hints.ai_route = hints.ai_connect = "abc";
	hints.ai_route_len = hints.ai_connect_len = 3;
	list = get("10.9.0.1", NULL, &hints);
	CHECK(list->ai_route_len == 3 && !memcmp(list->ai_route, "abc", 3));
	CHECK(list->ai_connect_len == 3 && !memcmp(list->ai_connect, "abc", 3));
	rdma_freeaddrinfo(list);
}

/* A caller may relink and change entries before freeing them. */
static void freeing(void)
{
	struct rdma_addrinfo *list = get("rxe", NULL, NULL), *second = list->ai_next;
	struct sockaddr_in own = v4("10.9.0.2", 1);
	void *swapped = list->ai_src_addr;

	rdma_freeaddrinfo(NULL);
	list->ai_next = NULL;
	second->ai_next = list;
	list->ai_dst_addr = (void *) &own;
	list->ai_src_addr = second->ai_src_addr;
	second->ai_src_addr = swapped;
	second->ai_dst_canonname = NULL;
	rdma_freeaddrinfo(second);

	list = get("rxe", NULL, NULL);
	second = list->ai_next;
	list->ai_next = NULL;
	rdma_freeaddrinfo(list);
	is_v6(second->ai_dst_addr, second->ai_dst_len, "fd09::1", 0);
	rdma_freeaddrinfo(second);
}

static void *many(void *unused)
{
	for (int i = 0; i < 200; i++) {
		struct rdma_addrinfo *list = get(i % 2 ? "rxe" : "fd09::1", "http", NULL);
		CHECK(list->ai_port_space == RDMA_PS_TCP);
		rdma_freeaddrinfo(list);
	}
	return unused;
}

/* Whether there is a route cannot be looked up. */
static void no_descriptors(void)
{
	struct rdma_addrinfo *res = NULL, hints = { .ai_flags = RAI_NUMERICHOST };
	struct rlimit before, none;

	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	none.rlim_cur = 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	errno = 0;
	CHECK(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res) == EAI_SYSTEM && errno == EMFILE && !res);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res) == 0 && res->ai_src_len > 0);
	rdma_freeaddrinfo(res);
}

int main(void)
{
	pthread_t threads[4];

	several_addresses();
	sources();
	wrong_inputs();
	infiniband();
	routes();
	freeing();
	no_descriptors();
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, many, NULL));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
	return 0;
}
