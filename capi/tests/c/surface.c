/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Every versioned symbol is called with the structures of its version, each placed before an
 * inaccessible page: an overread crashes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "all.h"
#include "check.h"

struct version {
	const char *node;
	size_t info, domain, ep, tx, rx, fabric;
};

static const struct version versions[] = {
	{ "FABRIC_1.0", 112, 120, 80, 72, 64, 32 },
	{ "FABRIC_1.1", 112, 184, 96, 72, 64, 32 },
	{ "FABRIC_1.2", 120, 184, 96, 72, 64, 32 },
	{ "FABRIC_1.3", 120, 192, 96, 80, 64, 32 },
	{ "FABRIC_1.7", 120, 200, 96, 80, 64, 32 },
	{ "FABRIC_1.8", 120, 208, 96, 80, 64, 32 },
	{ "FABRIC_1.9", 120, 224, 96, 80, 64, 32 },
};

typedef int getinfo_fn(uint32_t, const char *, const char *, uint64_t,
	const struct fi_info *, struct fi_info **);
typedef void freeinfo_fn(struct fi_info *);
typedef struct fi_info *dupinfo_fn(const struct fi_info *);
typedef int fabric_fn(struct fi_fabric_attr *, struct fid_fabric **, void *);

static void *lib;

static void *at_the_end(size_t size)
{
	size_t page = (size_t) sysconf(_SC_PAGESIZE);
	char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(two != MAP_FAILED);
	CHECK(mprotect(two + page, page, PROT_NONE) == 0);
	return two + page - size;
}

static void *entry(const char *name, const char *node)
{
	void *found = dlvsym(lib, name, node);

	if (!found)
		fprintf(stderr, "%s@%s: %s\n", name, node, dlerror());
	CHECK(found);
	return found;
}

static void one_version(const struct version *v)
{
	getinfo_fn *getinfo = (getinfo_fn *) entry("fi_getinfo", v->node);
	freeinfo_fn *freeinfo = (freeinfo_fn *) entry("fi_freeinfo", v->node);
	dupinfo_fn *dupinfo = (dupinfo_fn *) entry("fi_dupinfo", v->node);
	struct fi_info *hints = at_the_end(v->info), *info = NULL, *copy;
	char name[] = "tcp";

	/* No hints. */
	CHECK(getinfo(FI_VERSION(1, 4), NULL, NULL, 0, NULL, &info) == 0);
	CHECK(info && info->fabric_attr && info->domain_attr);
	freeinfo(info);

	/* Hints without attributes. */
	hints->caps = FI_MSG;
	info = NULL;
	CHECK(getinfo(FI_VERSION(1, 5), NULL, NULL, 0, hints, &info) == 0);
	freeinfo(info);

	/* Hints with all attributes. */
	hints->tx_attr = at_the_end(v->tx);
	hints->rx_attr = at_the_end(v->rx);
	hints->ep_attr = at_the_end(v->ep);
	hints->domain_attr = at_the_end(v->domain);
	hints->fabric_attr = at_the_end(v->fabric);
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = name;
	info = NULL;
	CHECK(getinfo(FI_VERSION(1, 5), NULL, NULL, 0, hints, &info) == 0);
	CHECK(info->ep_attr->type == FI_EP_RDM);
	CHECK(strcmp(info->fabric_attr->prov_name, "tcp") == 0);
	freeinfo(info);

	/* A newer API version through an older symbol. */
	CHECK(getinfo(FI_VERSION(2, 6), NULL, NULL, 0, hints, &info) == 0);
	freeinfo(info);
	CHECK(getinfo(FI_VERSION(2, 7), NULL, NULL, 0, hints, &info) == -FI_ENOSYS);
	hints->caps = FI_HMEM;
	info = hints;
	CHECK(getinfo(FI_VERSION(1, 5), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	CHECK(info == NULL);
	hints->caps = FI_MSG;

	copy = dupinfo(hints);
	CHECK(copy && copy != hints && copy->caps == FI_MSG);
	CHECK(copy->tx_attr && copy->tx_attr != hints->tx_attr);
	CHECK(strcmp(copy->fabric_attr->prov_name, "tcp") == 0);
	CHECK(copy->fabric_attr->prov_name != hints->fabric_attr->prov_name);
	CHECK(copy->domain_attr->max_err_cntr_value == 0);
	/* Members are separate blocks. */
	free(copy->fabric_attr->prov_name);
	copy->fabric_attr->prov_name = strdup("other");
	freeinfo(copy);
	copy = dupinfo(NULL);
	CHECK(copy && copy->tx_attr && copy->rx_attr && copy->ep_attr &&
		copy->domain_attr && copy->fabric_attr);
	freeinfo(copy);
	freeinfo(NULL);
}

static void fabrics(void)
{
	static const char *const nodes[] = { "FABRIC_1.0", "FABRIC_1.1" };
	size_t i;

	for (i = 0; i < 2; i++) {
		fabric_fn *open_fabric = (fabric_fn *) entry("fi_fabric", nodes[i]);
		/* In version 1.0 the structure had 28 bytes plus padding. */
		struct fi_fabric_attr *attr = at_the_end(32);
		struct fid_fabric *fabric = NULL;
		char name[] = "tcp", absent[] = "absent";

		CHECK(open_fabric(NULL, &fabric, NULL) == -FI_EINVAL);
		CHECK(open_fabric(attr, &fabric, NULL) == -FI_EINVAL);
		attr->name = name;
		attr->prov_name = absent;
		CHECK(open_fabric(attr, &fabric, NULL) == -FI_ENODEV);
		attr->prov_name = name;
		attr->api_version = FI_VERSION(1, 20);
		CHECK(open_fabric(attr, &fabric, &fabric) == 0);
		CHECK(fabric->api_version == (i ? FI_VERSION(1, 20) : FI_VERSION(1, 0)));
		CHECK(fabric->fid.context == &fabric);
		CHECK(fi_close(&fabric->fid) == 0);
	}
}

static void every_slot(const void *table, const char *what)
{
	size_t size = *(const size_t *) table, i;

	for (i = 1; i < size / sizeof(void *); i++) {
		if (!((void *const *) table)[i])
			fprintf(stderr, "%s: slot %zu is empty\n", what, i);
		CHECK(((void *const *) table)[i]);
	}
}

static void slots(void)
{
	static const enum fi_ep_type types[] = { FI_EP_RDM, FI_EP_MSG };
	size_t i;

	for (i = 0; i < 2; i++) {
		struct fi_info *hints = fi_allocinfo(), *info;
		struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_NONE };
		struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_NONE };
		struct fi_av_attr av_attr = { .type = FI_AV_UNSPEC };
		struct fid_fabric *fabric;
		struct fid_domain *domain;
		struct fid_eq *eq;
		struct fid_ep *ep;
		struct fid_cq *cq;
		struct fid_cntr *cntr;
		struct fid_av *av;

		hints->ep_attr->type = types[i];
		CHECK(fi_getinfo(FI_VERSION(2, 6), "127.0.0.1", NULL, FI_SOURCE, hints, &info) == 0);
		CHECK(fi_fabric2(info, &fabric, 0, NULL) == 0);
		CHECK(fi_domain(fabric, info, &domain, NULL) == 0);
		CHECK(fi_eq_open(fabric, NULL, &eq, NULL) == 0);
		CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL) == 0);
		CHECK(fi_av_open(domain, &av_attr, &av, NULL) == 0);
		CHECK(av_attr.type != FI_AV_UNSPEC);
		CHECK(fi_cntr_open(domain, &cntr_attr, &cntr, NULL) == 0);
		CHECK(fi_endpoint(domain, info, &ep, NULL) == 0);
		every_slot(fabric->fid.ops, "fi_ops of a fabric");
		every_slot(fabric->ops, "fi_ops_fabric");
		every_slot(domain->fid.ops, "fi_ops of a domain");
		every_slot(domain->ops, "fi_ops_domain");
		every_slot(domain->mr, "fi_ops_mr");
		every_slot(eq->ops, "fi_ops_eq");
		every_slot(cq->ops, "fi_ops_cq");
		every_slot(cntr->ops, "fi_ops_cntr");
		every_slot(av->ops, "fi_ops_av");
		every_slot(ep->fid.ops, "fi_ops of an endpoint");
		every_slot(ep->ops, "fi_ops_ep");
		every_slot(ep->cm, "fi_ops_cm");
		every_slot(ep->msg, "fi_ops_msg");
		every_slot(ep->rma, "fi_ops_rma");
		every_slot(ep->tagged, "fi_ops_tagged");
		every_slot(ep->atomic, "fi_ops_atomic");
		every_slot(ep->collective, "fi_ops_collective");
		if (types[i] == FI_EP_MSG) {
			struct fid_pep *pep;

			CHECK(fi_passive_ep(fabric, info, &pep, NULL) == 0);
			every_slot(pep->fid.ops, "fi_ops of a passive endpoint");
			every_slot(pep->ops, "fi_ops_ep of a passive endpoint");
			every_slot(pep->cm, "fi_ops_cm of a passive endpoint");
			CHECK(fi_close(&pep->fid) == 0);
		}

		/* No header has these calls yet. */
		CHECK(cq->ops->export_xpu(cq, 0, NULL) == -FI_ENOSYS);
		CHECK(cntr->ops->export_xpu(cntr, 0, NULL) == -FI_ENOSYS);
		CHECK(ep->ops->export_xpu(ep, 0, NULL) == -FI_ENOSYS);
		CHECK(domain->ops->xpu_ctx(domain, NULL, NULL, 0, NULL) == -FI_ENOSYS);
		CHECK(av->ops->lookup2(av, 0, NULL, NULL, 0) == -FI_ENOSYS);
		CHECK(fi_close(&cntr->fid) == 0);

		/* Parents in use cannot be closed and still work. */
		CHECK(fi_close(&fabric->fid) == -FI_EBUSY);
		CHECK(fi_close(&domain->fid) == -FI_EBUSY);
		CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
		CHECK(fi_ep_bind(ep, &cq->fid, FI_RECV) == -FI_EINVAL);
		CHECK(fi_ep_bind(ep, &cq->fid, FI_READ) == -FI_EBADFLAGS);
		CHECK(fi_ep_bind(ep, &av->fid, 0) == 0);
		CHECK(fi_ep_bind(ep, &av->fid, 0) == -FI_EINVAL);
		CHECK(fi_ep_bind(ep, NULL, 0) == -FI_EINVAL);
		CHECK(fi_close(&cq->fid) == -FI_EBUSY);
		CHECK(fi_close(&av->fid) == -FI_EBUSY);

		/* An object of another library, even if it claims our class. */
		struct fi_ops foreign_ops = *cq->fid.ops;
		struct fid_cq foreign = *cq;
		foreign.fid.ops = &foreign_ops;
		CHECK(fi_ep_bind(ep, &foreign.fid, FI_RECV) == -FI_EINVAL);
		foreign = *cq;
		foreign.fid.fclass = FI_CLASS_EQ;
		CHECK(fi_ep_bind(ep, &foreign.fid, 0) == -FI_EINVAL);
		struct fid *fids[] = { &foreign.fid };
		CHECK(fi_trywait(fabric, fids, 1) == -FI_EINVAL);

		CHECK(fi_close(&ep->fid) == 0);
		CHECK(fi_close(&cq->fid) == 0);
		CHECK(fi_close(&av->fid) == 0);
		CHECK(fi_close(&eq->fid) == 0);
		CHECK(fi_close(&domain->fid) == 0);
		CHECK(fi_close(&fabric->fid) == 0);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
}

static void texts(void)
{
	uint64_t caps = FI_MSG | FI_RMA;
	char small[10];

	CHECK(fi_version() == FI_VERSION(2, 6));
	CHECK(strcmp(fi_strerror(-FI_ETRUNC), "Truncation error") == 0);
	CHECK(strcmp(fi_strerror(100000), "Unspecified error") == 0);
	CHECK(strcmp(fi_strerror(FI_EAGAIN), strerror(EAGAIN)) == 0);
	CHECK(strcmp(fi_tostr(&caps, FI_TYPE_CAPS), "FI_MSG, FI_RMA") == 0);
	CHECK(fi_tostr_r(small, sizeof(small), &caps, FI_TYPE_CAPS) == small);
	CHECK(strcmp(small, "FI_MSG, ") == 0);
	CHECK(fi_tostr(NULL, FI_TYPE_CAPS) == NULL);
	CHECK(fi_tostr_r(small, 0, &caps, FI_TYPE_CAPS) == NULL);
}

static void parameters(void)
{
	struct fi_provider prov = { .name = "mine" };
	struct fi_param *params;
	int count, value = 7, i, found = 0;
	size_t size = 0;

	CHECK(fi_param_define(&prov, "some_flag", FI_PARAM_BOOL, "a %s of %d words", "text", 4) == 0);
	CHECK(fi_param_define(&prov, "some_size", FI_PARAM_SIZE_T, "%d %d %d %d %d %d %g", 1, 2, 3, 4, 5, 6, 7.5) == 0);
	CHECK(fi_param_define(&prov, NULL, FI_PARAM_BOOL, "text") == -FI_EINVAL);
	CHECK(fi_param_get_bool(&prov, "some_flag", &value) == -FI_ENODATA);
	setenv("FI_MINE_SOME_FLAG", "yes", 1);
	setenv("FI_MINE_SOME_SIZE", "0x20", 1);
	CHECK(fi_param_get_bool(&prov, "some_flag", &value) == 0 && value == 1);
	CHECK(fi_param_get_size_t(&prov, "some_size", &size) == 0 && size == 32);
	setenv("FI_MINE_SOME_FLAG", "perhaps", 1);
	CHECK(fi_param_get_bool(&prov, "some_flag", &value) == -FI_EINVAL && value == 1);
	CHECK(fi_param_get_int(&prov, "unknown", &value) == -FI_ENOENT);
	CHECK(fi_getparams(&params, &count) == 0);
	for (i = 0; i < count; i++) {
		if (!strcmp(params[i].name, "FI_MINE_SOME_FLAG"))
			found += !strcmp(params[i].help_string, "mine: a text of 4 words");
		if (!strcmp(params[i].name, "FI_MINE_SOME_SIZE"))
			found += !strcmp(params[i].help_string, "mine: 1 2 3 4 5 6 7.5");
	}
	CHECK(found == 2 && params[count].name == NULL);
	fi_freeparams(params);

	CHECK(fi_log_enabled(&prov, FI_LOG_WARN, FI_LOG_CORE) == 1);
	CHECK(fi_log_enabled(&prov, FI_LOG_INFO, FI_LOG_CORE) == 0);
	fi_log(&prov, FI_LOG_WARN, FI_LOG_CORE, "main", 1, "%s %d %d %d %d %.1f", "logged", 1, 2, 3, 4, 5.5);
}

int main(int argc, char **argv)
{
	size_t i;

	(void) argc;
	/* Set before the library reads it. */
	if (!getenv("FI_LOG_LEVEL")) {
		setenv("FI_LOG_LEVEL", "warn", 1);
		execv("/proc/self/exe", argv);
	}
	lib = dlopen("libfabric.so.1", RTLD_NOW);
	CHECK(lib);
	for (i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		one_version(&versions[i]);
	fabrics();
	slots();
	texts();
	parameters();
	return 0;
}
