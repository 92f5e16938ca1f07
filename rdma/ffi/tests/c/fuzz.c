/*
 * Random inputs: each call returns either a code of the manual and an untouched result, or a
 * well-formed list.
 * usage: fuzz ROUNDS
 */
#define _GNU_SOURCE
#include <rdma/rdma_addrinfo.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 0x9e3779b97f4a7c15;

/* xorshift: the same inputs in every run. */
static unsigned below(unsigned limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned) (state >> 33) % limit;
}

static const char *const nodes[] = { "10.9.0.1", "fd09::1", "fe80::1%lo", "localhost", "rxe", "::ffff:10.9.0.1", "0x7f.1",
				     "255.255.255.255", "ff02::1%1", "::", "%", "" };
static const char *const services[] = { "7471", "65535", "0", "http", "domain", "00080", "65536", "-1", "" };

/*
 * NULL, a seed, a mutated seed, or random text; in its own allocation, so that overreads are
 * caught.
 */
static char *text(const char *const *seeds, unsigned count)
{
	static const char letters[] = "0123456789abcdefghxyz:::...%%[]/-+ _\t\n\x01\x7f\xc3\xa9\xff";
	const char *seed = seeds[below(count)];
	size_t len = strlen(seed);
	unsigned keep = below(2) ? 0 : 1 + below(16);
	char *out;

	if (!below(6))
		return NULL;
	if (!below(8))
		len = below(below(20) ? 64 : 5000);
	else if (!below(8))
		len += below(4);
	out = malloc(len + 1);
	for (size_t i = 0; i < len; i++)
		out[i] = i < strlen(seed) && (!keep || below(keep)) ? seed[i] : letters[below(sizeof letters - 1)];
	out[len] = 0;
	return out;
}

/* Random bytes in their own allocation. */
static void *bytes(size_t len)
{
	unsigned char *out = len ? malloc(len) : NULL;

	for (size_t i = 0; i < len; i++)
		out[i] = (unsigned char) below(256);
	return out;
}

/* NULL, an address, or random bytes resembling one. */
static struct sockaddr *address(socklen_t *len)
{
	static const struct {
		uint16_t family;
		socklen_t len;
	} kinds[] = { { AF_INET, 16 }, { AF_INET6, 28 }, { AF_IB, 48 }, { 1, 20 } };
	unsigned kind = below(4);
	void *out;

	*len = below(2) ? 0 : below(6) ? kinds[kind].len : below(60);
	out = bytes(*len);
	if (*len >= 2 && below(10))
		memcpy(out, &kinds[kind].family, 2);
	return out;
}

/* Half the time 0, else mostly one of `from`, rarely a random number. */
static int pick(const int *from, unsigned count)
{
	return below(2) ? 0 : below(12) ? from[below(count)] : (int) below(0x7fffffff) - 0x3fffffff;
}

static void fail(const char *why, const char *node, const char *service)
{
	fprintf(stderr, "node \"%s\" service \"%s\": %s\n", node, service, why);
	exit(1);
}

static int is_whole(const struct sockaddr *addr, socklen_t len)
{
	if (!addr || !len)
		return !addr && !len;
	return len == (addr->sa_family == AF_INET ? 16 : addr->sa_family == AF_INET6 ? 28 : addr->sa_family == AF_IB ? 48 : 0);
}

int main(int argc, char **argv)
{
	static const int families[] = { AF_INET, AF_INET6, AF_IB }, types[] = { 2, 3, 4, 9, 10 };
	static const int spaces[] = { 2, 0x106, 0x111, 0x13f };
	static const unsigned lengths[] = { 0, 0, 0, 8, 63, 64, 72, 144 };
	long rounds = argc > 1 ? atol(argv[1]) : 1000, good = 0;

	for (long round = 0; round < rounds; round++) {
		struct rdma_addrinfo hints = { 0 }, untouched, *res = &untouched;
		char *node = text(nodes, 12), *service = text(services, 9);
		int with = below(8) != 0, ret;

		hints.ai_flags = below(20) ? (int) below(0x40) & ~(below(4) ? RAI_SA : 0) : (int) below(0x7fffffff);
		hints.ai_family = pick(families, 3);
		hints.ai_qp_type = pick(types, 5);
		hints.ai_port_space = pick(spaces, 4);
		hints.ai_src_addr = address(&hints.ai_src_len);
		hints.ai_dst_addr = address(&hints.ai_dst_len);
		hints.ai_route_len = lengths[below(8)];
		hints.ai_route = bytes(hints.ai_route_len);
		hints.ai_connect_len = lengths[below(8)];
		hints.ai_connect = bytes(hints.ai_connect_len);
		hints.ai_src_canonname = below(4) ? NULL : text(nodes, 12);
		ret = rdma_getaddrinfo(node, service, with ? &hints : NULL, &res);
		if (ret) {
			if (ret > 0 || ret < EAI_SYSTEM || res != &untouched)
				fail("a failure that is none", node, service);
		} else {
			int listed = 0;
			for (struct rdma_addrinfo *at = res; at; at = at->ai_next, listed++)
				if (!is_whole(at->ai_src_addr, at->ai_src_len) || !is_whole(at->ai_dst_addr, at->ai_dst_len) ||
				    !at->ai_route != !at->ai_route_len || !at->ai_connect != !at->ai_connect_len)
					fail("an entry that is not whole", node, service);
			if (!listed)
				fail("an empty list", node, service);
			rdma_freeaddrinfo(res);
			good++;
		}
		free(hints.ai_src_addr);
		free(hints.ai_dst_addr);
		free(hints.ai_route);
		free(hints.ai_connect);
		free(hints.ai_src_canonname);
		free(node);
		free(service);
	}
	printf("%ld of %ld inputs were answered with a list\n", good, rounds);
	/* If nearly all inputs were refused, the test would prove nothing. */
	return good < rounds / 20;
}
