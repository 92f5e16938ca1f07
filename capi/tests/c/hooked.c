/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Objects under hooks. `hooked tables PROVIDER` prints for each object whether its tables are the
 * library's own, which lie in its file, or copies of them; `hooked leak PROVIDER` leaves a queue open and
 * makes a call fail; `hooked noop PROVIDER COUNT` reads an empty queue COUNT times.
 */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <string.h>

static struct fi_info *found;
static struct fid_fabric *fabric;
static struct fid_domain *domain;

static int is_own(const void *table)
{
	Dl_info info;

	return dladdr(table, &info) && strstr(info.dli_fname, "libfabric");
}

/* How many of the table pointers behind the class and the context are the library's own. */
static void print(const char *name, const void *object, int tables)
{
	const void *const *words = object;
	int own = 0, n;

	for (n = 0; n < tables; n++)
		own += is_own(words[2 + n]);
	printf("%s %d of %d\n", name, own, tables);
}

static void open_all(char *provider)
{
	struct fi_info *hints = fi_allocinfo();

	hints->fabric_attr->prov_name = strdup(provider);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_TAGGED;
	hints->mode = ~0ULL;
	hints->domain_attr->mr_mode = ~3;
	CHECK(fi_getinfo(FI_VERSION(1, 13), NULL, NULL, 0, hints, &found) == 0);
	fi_freeinfo(hints);
	CHECK(fi_fabric(found->fabric_attr, &fabric, NULL) == 0);
	CHECK(fi_domain(fabric, found, &domain, NULL) == 0);
}

static void close_all(void)
{
	CHECK(fi_close(&domain->fid) == 0);
	CHECK(fi_close(&fabric->fid) == 0);
	fi_freeinfo(found);
}

static void tables(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *cntr;
	struct fid_mr *mr;
	struct fid_eq *eq;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep, *alias;
	static char memory[64];

	CHECK(fi_av_open(domain, &av_attr, &av, NULL) == 0);
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL) == 0);
	CHECK(fi_cntr_open(domain, &cntr_attr, &cntr, NULL) == 0);
	CHECK(fi_eq_open(fabric, &eq_attr, &eq, NULL) == 0);
	CHECK(fi_mr_reg(domain, memory, sizeof memory, FI_SEND | FI_RECV, 0, 7, 0, &mr, NULL) == 0);
	/* Names of objects in an info: they are those that the provider made. */
	found->domain_attr->domain = domain;
	found->fabric_attr->fabric = fabric;
	CHECK(fi_endpoint(domain, found, &ep, NULL) == 0);
	found->domain_attr->domain = NULL;
	found->fabric_attr->fabric = NULL;
	CHECK(fi_ep_bind(ep, &av->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(ep, &cntr->fid, FI_SEND) == 0);
	CHECK(fi_enable(ep) == 0);
	print("fabric", fabric, 2);
	print("domain", domain, 3);
	print("av", av, 2);
	print("cq", cq, 2);
	print("cntr", cntr, 2);
	print("eq", eq, 2);
	print("mr", mr, 1);
	print("ep", ep, 7);
	if (fi_ep_alias(ep, &alias, FI_TRANSMIT) == 0) {
		print("alias", alias, 7);
		CHECK(fi_close(&alias->fid) == 0);
	}
	CHECK(fi_close(&ep->fid) == 0);
	CHECK(fi_close(&mr->fid) == 0);
	CHECK(fi_close(&eq->fid) == 0);
	CHECK(fi_close(&cntr->fid) == 0);
	CHECK(fi_close(&cq->fid) == 0);
	CHECK(fi_close(&av->fid) == 0);
}

static struct fid_cq *queue(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_CONTEXT };
	struct fid_cq *cq;

	CHECK(fi_cq_open(domain, &attr, &cq, NULL) == 0);
	return cq;
}

static void read_empty(struct fid_cq *cq, long count)
{
	struct fi_cq_entry entry;

	while (count--)
		CHECK(fi_cq_read(cq, &entry, 1) == -FI_EAGAIN);
	CHECK(fi_close(&cq->fid) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc > 2);
	open_all(argv[2]);
	if (!strcmp(argv[1], "leak")) {
		CHECK(queue() != NULL);
		CHECK(fi_close(&domain->fid) == -FI_EBUSY);
		return 0;
	}
	if (!strcmp(argv[1], "noop"))
		read_empty(queue(), argc > 3 ? atol(argv[3]) : 1);
	else
		tables();
	close_all();
	return 0;
}
