/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Each header declares its names by itself: it is included before anything else could declare them.
 */
#include <rdma/fi_errno.h>

/* System errors, and libfabric's own. */
static const int no_data = FI_ENODATA, no_memory = FI_ENOMEM, other = FI_EOTHER, truncated = FI_ETRUNC, no_queue = FI_ENOCQ;

#include <rdma/fabric.h>

enum { CONTEXT = sizeof(struct fi_context), CONTEXT2 = sizeof(struct fi_context2) };

#include "case.h"

CASE(errno_header_has_all_numbers)
{
	CHECK(no_data == ENODATA && no_memory == ENOMEM && other == 256 && truncated == 265 && no_queue == 263);
}

CASE(fabric_header_has_the_contexts)
{
	CHECK(CONTEXT == 4 * sizeof(void *) && CONTEXT2 == 2 * CONTEXT);
}
