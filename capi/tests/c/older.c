/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Preloaded: a program asks for interface OLDER_API at most, as if it had been written for that
 * release. A loaded provider serves programs for its own release and older ones.
 */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <rdma/fabric.h>

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	       struct fi_info **info)
{
	static __typeof__(fi_getinfo) *next;
	const char *text = getenv("OLDER_API");
	unsigned major, minor;

	CHECK(text && sscanf(text, "%u.%u", &major, &minor) == 2);
	if (!next)
		next = (__typeof__(next)) dlvsym(RTLD_NEXT, "fi_getinfo", "FABRIC_1.9");
	CHECK(next);
	if (version > FI_VERSION(major, minor))
		version = FI_VERSION(major, minor);
	return next(version, node, service, flags, hints, info);
}
