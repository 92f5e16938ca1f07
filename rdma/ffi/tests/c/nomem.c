/*
 * Calls of rdma_getaddrinfo(3) with each of their allocations failing in turn: alone, or together
 * with all that follow. Each time the call returns EAI_MEMORY, or exactly what it returns with
 * memory, and after freeing there are as many allocations as before. The program's allocator
 * replaces the C library's.
 */
#define _GNU_SOURCE
#include <rdma/rdma_addrinfo.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator.h"
#include "check.h"

struct question {
	const char *node, *service;
	struct rdma_addrinfo *hints;
	/*
	 * A name is looked up in files, by a resolver that keeps some of what it reads, and calls a name
	 * unknown if it has no memory for reading.
	 */
	int is_name;
};

/* What a call has answered. */
struct answer {
	long code;		/* as wide as the others: without padding, answers can be compared */
	size_t entries, addresses, names, route, connect;
};

static struct answer ask(const struct question *q)
{
	struct rdma_addrinfo *list = NULL, *entry;
	struct answer a = { 0 };

	a.code = rdma_getaddrinfo(q->node, q->service, q->hints, &list);
	CHECK(!a.code == !!list);
	for (entry = list; entry; entry = entry->ai_next) {
		a.entries++;
		a.addresses += entry->ai_src_len + entry->ai_dst_len;
		a.names += entry->ai_src_canonname ? strlen(entry->ai_src_canonname) : 0;
		a.names += entry->ai_dst_canonname ? strlen(entry->ai_dst_canonname) : 0;
		a.route += entry->ai_route_len;
		a.connect += entry->ai_connect_len;
	}
	rdma_freeaddrinfo(list);
	return a;
}

/* Lets the n-th allocation fail, for all n. Returns how many calls have answered EAI_MEMORY. */
static int exhaust(const struct question *q, int all_later)
{
	struct answer whole = ask(q), a = ask(q);
	int refused = 0;
	long before, n;

	CHECK(!memcmp(&a, &whole, sizeof(a)));
	for (n = 1;; n++) {
		before = live;
		failures = 0;
		persistent = all_later;
		left = n;
		a = ask(q);
		left = 0;
		if (!failures)
			break;
		refused += a.code == EAI_MEMORY;
		if (a.code == EAI_MEMORY || (q->is_name && a.code < 0) || !memcmp(&a, &whole, sizeof(a))) {
			CHECK(live == before || q->is_name);
			continue;
		}
		fprintf(stderr, "%s %s: allocation %ld: %ld instead of %ld\n", q->node, q->service, n, a.code, whole.code);
		exit(1);
	}
	CHECK(!memcmp(&a, &whole, sizeof(a)));
	return refused;
}

int main(void)
{
	static char name[200], route[7200], connect[5000];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct rdma_addrinfo full = {
		.ai_dst_addr = (struct sockaddr *) &to, .ai_dst_len = sizeof(to), .ai_dst_canonname = name,
		.ai_src_canonname = name, .ai_route = route, .ai_route_len = sizeof(route),
		.ai_connect = connect, .ai_connect_len = sizeof(connect),
	};
	struct rdma_addrinfo passive = { .ai_flags = RAI_PASSIVE };
	struct rdma_addrinfo numeric = { .ai_flags = RAI_NUMERICHOST };
	struct rdma_addrinfo ib = { .ai_flags = RAI_FAMILY | RAI_NUMERICHOST, .ai_family = 27 };
	const struct question questions[] = {
		{ "127.0.0.1", "7471", NULL, 0 }, { NULL, "7471", NULL, 0 }, { NULL, "7471", &passive, 0 },
		{ "::1", NULL, &passive, 0 }, { NULL, NULL, &full, 0 }, { NULL, "7471", &full, 0 },
		{ "10.9.0.1", "7471", &full, 0 }, { "fe80::1", "7", &ib, 0 }, { "localhost", "7471", &full, 1 },
		/* Failures, whose messages need memory. */
		{ "a-name", "7", &numeric, 0 }, { "127.0.0.1", "65536", NULL, 0 }, { "\xff", NULL, NULL, 0 },
	};
	size_t i, n = sizeof(questions) / sizeof(*questions);

	memset(name, 'n', sizeof(name) - 1);
	memset(route, 'r', sizeof(route));
	for (i = 0; i < n; i++) {
		int refused = exhaust(&questions[i], 0) + exhaust(&questions[i], 1);

		/* Every success has a list, which takes memory. */
		CHECK(refused > 0 || i >= n - 3);
	}
	/* A length that no memory could hold is refused before it is copied. */
	full.ai_route_len = (size_t) 1 << 40;
	CHECK(ask(&questions[4]).code == EAI_SYSTEM && errno == EMSGSIZE);
	return 0;
}
