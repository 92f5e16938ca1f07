/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Programs whose endpoints access each other's memory. */
#ifndef EXAMPLES_MEMORY_H
#define EXAMPLES_MEMORY_H

#include "common.h"

#include <stdint.h>

#include <rdma/fi_rma.h>

/* Memory that peers may access, and how they name its first byte. */
struct window {
	struct fid_mr *mr;
	uint64_t addr, key;
};

/* Hints for memory that a program registers as each provider requires. */
static inline struct fi_info *hints_for_memory(uint64_t caps)
{
	struct fi_info *hints = hints_for(caps);

	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	return hints;
}

static inline struct window open_window(struct net *net, void *memory, size_t size, uint64_t flags)
{
	int by_address = (net->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
	struct window window;

	/* The requested key counts only where the provider does not choose keys itself. */
	CHECK(fi_mr_reg(net->domain, memory, size, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, flags, &window.mr, NULL));
	window.key = fi_mr_key(window.mr);
	window.addr = by_address ? (uintptr_t) memory : 0;
	return window;
}

#endif
