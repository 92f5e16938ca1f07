/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Waiting for a completion, and the clock for it. */
#ifndef COMPLETION_H
#define COMPLETION_H

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include "check.h"

/* The address of this host at which endpoints open: OFI_TEST_ADDRESS, or that of the loopback interface. */
static inline const char *own_node(void)
{
	const char *node = getenv("OFI_TEST_ADDRESS");

	return node ? node : "127.0.0.1";
}

static inline double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

/*
 * Reads the next completion: 1, 0 for an error in `err`, -1 for none within `wait` seconds. Empty
 * reads of `other` make progress there.
 */
static inline int next_entry(struct fid_cq *cq, struct fid_cq *other, struct fi_cq_tagged_entry *entry,
	struct fi_cq_err_entry *err, double wait)
{
	double end = seconds() + wait;

	do {
		ssize_t ret = fi_cq_read(cq, entry, 1);

		if (ret == 1)
			return 1;
		if (ret == -FI_EAVAIL) {
			memset(err, 0, sizeof(*err));
			CHECK(fi_cq_readerr(cq, err, 0) == 1);
			return 0;
		}
		CHECK(ret == -FI_EAGAIN);
		if (other) {
			ret = fi_cq_read(other, NULL, 0);
			CHECK(ret == 0 || ret == -FI_EAGAIN || ret == -FI_EAVAIL);
		}
	} while (seconds() < end);
	return -1;
}

#endif
