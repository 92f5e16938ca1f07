/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures one case over the libfabric that the loader finds. bench.c parses the options;
 * `--pattern` is one of
 *   latency, rate, stream, both, unexpected         two processes (exchange.c)
 *   write, read, put, fetch-add, inject-write       access to memory (rma.c)
 *   connect, memory-peer, memory-endpoint, idle     the cost of peers without traffic (life.c)
 *   all, pairs, gap                                 many processes (crowd.c)
 *   start                                           the first messages of many endpoints (start.c)
 *   allreduce, barrier                              groups of processes (collective.c)
 *   solo                                            both ends in one process (solo.c)
 *   cancel, reverse, ends, inserts                 long queues, many peers (scale.c)
 *   contexts, endpoints, shared                    threads of one process (contexts.c)
 *   version                                         prints the library's path and version
 * Prints the value and the latency of a cache line between the cores before and after the sample (0
 * if not measured). `cargo xtask bench` runs it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "patterns.h"
#include "side.h"

static void print_version(void)
{
	Dl_info library;

	MUST(dladdr((void *) fi_getinfo, &library));
	printf("%s\n%s\n", library.dli_fname, fi_tostr("", FI_TYPE_VERSION));
}

int main(int argc, char **argv)
{
	parse_options(argc, argv);
	if (!strcmp(options.pattern, "version")) {
		print_version();
		return 0;
	}
	if (run_exchange() || run_rma() || run_life() || run_crowd() || run_start() || run_collective() || run_solo()
		|| run_scale() || run_contexts())
		return 0;
	fprintf(stderr, "--pattern %s: unknown\n", options.pattern);
	return 2;
}
