/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Operations between two endpoints of one thread over shm, for `cargo xtask cost` to trace their
 * memory accesses: `near PATTERN SIZE COUNT`, where the pattern is tagged, inject-write, write or
 * fetch-add (of numbers of 8 bytes).
 * Prints the address at which the library is mapped, and that of a word that is stored before the
 * first turn.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define CALL(what)	do { long ret_ = (long) (what); if (ret_) fail(#what, ret_); } while (0)

static volatile long begun;

enum { MOST = 4096, KEY = 7, TAG = 5, BURST = 8 };

static struct end {
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_mr *mr;
	fi_addr_t to;
	char out[MOST], in[MOST], memory[MOST];
	/* Completions that were read. */
	long done;
} ends[2];

static void fail(const char *what, long ret)
{
	fprintf(stderr, "%s: %s\n", what, fi_strerror((int) -ret));
	exit(1);
}

static void read_queue(struct end *e)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret = fi_cq_read(e->cq, &entry, 1);

	if (ret < 0 && ret != -FI_EAGAIN)
		fail("fi_cq_read", ret);
	e->done += ret > 0;
}

/* Reads the queues until both ends have had so many completions. */
static void await(long first, long second)
{
	while (ends[0].done < first || ends[1].done < second) {
		read_queue(&ends[0]);
		read_queue(&ends[1]);
	}
}

static void open_end(struct end *e, struct fid_fabric *fabric, struct fi_info *info)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av = { .type = FI_AV_TABLE };

	CALL(fi_domain(fabric, info, &e->domain, NULL));
	CALL(fi_endpoint(e->domain, info, &e->ep, NULL));
	CALL(fi_cq_open(e->domain, &cq, &e->cq, NULL));
	CALL(fi_av_open(e->domain, &av, &e->av, NULL));
	CALL(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV));
	CALL(fi_ep_bind(e->ep, &e->av->fid, 0));
	CALL(fi_enable(e->ep));
	CALL(fi_mr_reg(e->domain, e->memory, MOST, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &e->mr, NULL));
}

static void send_tagged(struct end *from, struct end *to, size_t size)
{
	ssize_t ret;

	CALL(fi_trecv(to->ep, to->in, size, NULL, FI_ADDR_UNSPEC, TAG, 0, NULL));
	while ((ret = fi_tsend(from->ep, from->out, size, NULL, from->to, TAG, NULL)) == -FI_EAGAIN) {
		read_queue(from);
		read_queue(to);
	}
	CALL(ret);
	await(ends[0].done + 1, ends[1].done + 1);
}

static void inject_writes(struct end *from, struct end *to, size_t size)
{
	int i;

	for (i = 0; i < BURST; i++)
		CALL(fi_inject_write(from->ep, from->out, size, from->to, 0, KEY));
	/* Once for the writes, and once for what the target answers. */
	for (i = 0; i < 2; i++) {
		read_queue(to);
		read_queue(from);
	}
}

static void write_once(struct end *from, struct end *to, size_t size)
{
	(void) to;
	CALL(fi_write(from->ep, from->out, size, NULL, from->to, 0, KEY, NULL));
	await(ends[0].done + (from == &ends[0]), ends[1].done + (from == &ends[1]));
}

static void fetch_add(struct end *from, struct end *to, size_t size)
{
	(void) to;
	CALL(fi_fetch_atomic(from->ep, from->out, size / sizeof(uint64_t), NULL, from->in, NULL, from->to, 0, KEY,
		FI_UINT64, FI_SUM, NULL));
	await(ends[0].done + (from == &ends[0]), ends[1].done + (from == &ends[1]));
}

static const struct {
	const char *name;
	void (*run)(struct end *from, struct end *to, size_t size);
} patterns[] = {
	{ "tagged", send_tagged }, { "inject-write", inject_writes }, { "write", write_once },
	{ "fetch-add", fetch_add },
};

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, i;
	long count = argc > 3 ? atol(argv[3]) : 0;
	Dl_info library;

	if (argc != 4 || size == 0 || size > MOST || !hints) {
		fprintf(stderr, "usage: near PATTERN SIZE COUNT\n");
		return 2;
	}
	/* An operation that never completes ends the program. */
	alarm(120);
	hints->fabric_attr->prov_name = strdup("shm");
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
	CALL(fi_getinfo(FI_VERSION(1, 20), NULL, NULL, 0, hints, &info));
	CALL(fi_fabric(info->fabric_attr, &fabric, NULL));
	for (i = 0; i < 2; i++)
		open_end(&ends[i], fabric, info);
	for (i = 0; i < 2; i++) {
		char name[256];
		size_t len = sizeof(name);

		CALL(fi_getname(&ends[!i].ep->fid, name, &len));
		CALL(fi_av_insert(ends[i].av, name, 1, &ends[i].to, 0, NULL) - 1);
	}
	/* Connects. */
	send_tagged(&ends[0], &ends[1], size);
	for (i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
		long turn;

		if (strcmp(patterns[i].name, argv[1]))
			continue;
		begun = 1;
		for (turn = 0; turn < count; turn++) {
			patterns[i].run(&ends[0], &ends[1], size);
			patterns[i].run(&ends[1], &ends[0], size);
		}
		if (!dladdr((void *) fi_getinfo, &library))
			return 1;
		printf("%p %p\n", library.dli_fbase, (void *) &begun);
		return 0;
	}
	fprintf(stderr, "no pattern %s\n", argv[1]);
	return 2;
}
