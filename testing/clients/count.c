/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts the one-sided operations that a program posts, to show that it really uses them: loaded
 * with LD_PRELOAD before the program's libfabric, it interposes fi_fabric, and through it the
 * function tables of every endpoint. When the process exits, it appends a line to the file named by
 * OFI_COUNTS: the numbers of writes, reads and atomics, and the path of the libfabric that carried
 * them out.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

static atomic_long writes, reads, atomics;
static Dl_info libfabric;

/* A table in front of another one. It comes first, so that an object's table leads here. */
struct fabric_table { struct fi_ops_fabric front, *behind; };
struct domain_table { struct fi_ops_domain front, *behind; };
struct rma_table { struct fi_ops_rma front, *behind; };
struct atomic_table { struct fi_ops_atomic front, *behind; };

/* Whether a table, which may be that of an older interface, has a field. */
#define HAS(table, field) ((table)->size > offsetof(__typeof__(*(table)), field))

/* Makes `struct kind` in front of the table of `object`, and returns it. */
#define IN_FRONT(kind, object, field) ({ \
	struct kind *table_ = calloc(1, sizeof(*table_)); \
	size_t size_ = (object)->field->size; \
	if (!table_) \
		abort(); \
	memcpy(&table_->front, (object)->field, size_ < sizeof(table_->front) ? size_ : sizeof(table_->front)); \
	table_->behind = (object)->field; \
	(object)->field = &table_->front; \
	&table_->front; \
})
#define BEHIND(kind, object, field) (((struct kind *) (object)->field)->behind)

#define COUNTED(kind, field, count, name, parameters, arguments) \
	static ssize_t field##_##name parameters \
	{ \
		atomic_fetch_add_explicit(&count, 1, memory_order_relaxed); \
		return BEHIND(kind, ep, field)->name arguments; \
	}
#define RMA(count, name, parameters, arguments) COUNTED(rma_table, rma, count, name, parameters, arguments)
#define ATOMIC(name, parameters, arguments) COUNTED(atomic_table, atomic, atomics, name, parameters, arguments)

RMA(reads, read, (struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr, uint64_t key,
	void *context), (ep, buf, len, desc, from, addr, key, context))
RMA(reads, readv, (struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, uint64_t addr,
	uint64_t key, void *context), (ep, iov, desc, count, from, addr, key, context))
RMA(reads, readmsg, (struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags), (ep, msg, flags))
RMA(writes, write, (struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr, uint64_t key,
	void *context), (ep, buf, len, desc, to, addr, key, context))
RMA(writes, writev, (struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, uint64_t addr,
	uint64_t key, void *context), (ep, iov, desc, count, to, addr, key, context))
RMA(writes, writemsg, (struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags), (ep, msg, flags))
RMA(writes, inject, (struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t addr, uint64_t key),
	(ep, buf, len, to, addr, key))
RMA(writes, writedata, (struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, uint64_t addr,
	uint64_t key, void *context), (ep, buf, len, desc, data, to, addr, key, context))
RMA(writes, injectdata, (struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t addr,
	uint64_t key), (ep, buf, len, data, to, addr, key))

ATOMIC(write, (struct fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t to, uint64_t addr, uint64_t key,
	enum fi_datatype type, enum fi_op op, void *context), (ep, buf, count, desc, to, addr, key, type, op, context))
ATOMIC(writemsg, (struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags), (ep, msg, flags))
ATOMIC(inject, (struct fid_ep *ep, const void *buf, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
	enum fi_datatype type, enum fi_op op), (ep, buf, count, to, addr, key, type, op))
ATOMIC(readwrite, (struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result, void *result_desc, fi_addr_t to,
	uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context),
	(ep, buf, count, desc, result, result_desc, to, addr, key, type, op, context))
ATOMIC(readwritemsg, (struct fid_ep *ep, const struct fi_msg_atomic *msg, struct fi_ioc *results, void **result_desc,
	size_t result_count, uint64_t flags), (ep, msg, results, result_desc, result_count, flags))
ATOMIC(compwrite, (struct fid_ep *ep, const void *buf, size_t count, void *desc, const void *compare, void *compare_desc,
	void *result, void *result_desc, fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op,
	void *context), (ep, buf, count, desc, compare, compare_desc, result, result_desc, to, addr, key, type, op, context))
ATOMIC(compwritemsg, (struct fid_ep *ep, const struct fi_msg_atomic *msg, const struct fi_ioc *compares, void **compare_desc,
	size_t compare_count, struct fi_ioc *results, void **result_desc, size_t result_count, uint64_t flags),
	(ep, msg, compares, compare_desc, compare_count, results, result_desc, result_count, flags))

static void watch_endpoint(struct fid_ep *ep)
{
	struct fi_ops_rma *rma = IN_FRONT(rma_table, ep, rma);
	struct fi_ops_atomic *atomic = IN_FRONT(atomic_table, ep, atomic);

	rma->read = rma_read;
	rma->readv = rma_readv;
	rma->readmsg = rma_readmsg;
	rma->write = rma_write;
	rma->writev = rma_writev;
	rma->writemsg = rma_writemsg;
	rma->inject = rma_inject;
	rma->writedata = rma_writedata;
	rma->injectdata = rma_injectdata;
	/* Vector calls are not counted: no client uses them. */
	atomic->write = atomic_write;
	atomic->writemsg = atomic_writemsg;
	atomic->inject = atomic_inject;
	atomic->readwrite = atomic_readwrite;
	atomic->readwritemsg = atomic_readwritemsg;
	atomic->compwrite = atomic_compwrite;
	atomic->compwritemsg = atomic_compwritemsg;
}

static int endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
	int ret = BEHIND(domain_table, domain, ops)->endpoint(domain, info, ep, context);

	if (!ret)
		watch_endpoint(*ep);
	return ret;
}

static int endpoint2(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, uint64_t flags, void *context)
{
	int ret = BEHIND(domain_table, domain, ops)->endpoint2(domain, info, ep, flags, context);

	if (!ret)
		watch_endpoint(*ep);
	return ret;
}

static void watch_domain(struct fid_domain *domain)
{
	struct fi_ops_domain *ops = IN_FRONT(domain_table, domain, ops);

	ops->endpoint = endpoint;
	if (HAS(ops, endpoint2))
		ops->endpoint2 = endpoint2;
}

static int domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
	int ret = BEHIND(fabric_table, fabric, ops)->domain(fabric, info, domain, context);

	if (!ret)
		watch_domain(*domain);
	return ret;
}

static int domain2(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, uint64_t flags, void *context)
{
	int ret = BEHIND(fabric_table, fabric, ops)->domain2(fabric, info, domain, flags, context);

	if (!ret)
		watch_domain(*domain);
	return ret;
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	/* By name, because RTLD_NEXT does not find a library that only a plug-in needs. */
	void *library = dlopen("libfabric.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int (*real)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	struct fi_ops_fabric *ops;
	int ret;

	real = dlvsym(library ? library : RTLD_NEXT, "fi_fabric", "FABRIC_1.1");
	if (!real || !dladdr(__extension__ (void *) real, &libfabric))
		abort();
	ret = real(attr, fabric, context);
	if (ret)
		return ret;
	ops = IN_FRONT(fabric_table, *fabric, ops);
	ops->domain = domain;
	if (HAS(ops, domain2))
		ops->domain2 = domain2;
	return 0;
}

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("OFI_COUNTS");
	long all[] = { writes, reads, atomics };
	char line[4200];
	int file, length;

	if (!path || (all[0] | all[1] | all[2]) == 0)
		return;
	length = snprintf(line, sizeof(line), "%ld %ld %ld %s\n", all[0], all[1], all[2], libfabric.dli_fname);
	if (length >= (int) sizeof(line))
		abort();
	file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	/* One write call, because other processes append too. */
	if (file < 0 || write(file, line, (size_t) length) != length)
		perror(path);
}
