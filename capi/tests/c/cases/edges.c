/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arguments at the limits of what the manual allows, and failing calls that change nothing. */
#include <stddef.h>
#include <sys/mman.h>
#include "case.h"

static const struct want MSG = { .type = FI_EP_MSG };

struct event {
	struct fi_eq_cm_entry cm;
	char data[512];
};

/* A copy that ends at an inaccessible page. */
static void *at_the_end(const void *data, size_t size)
{
	size_t page = (size_t) sysconf(_SC_PAGESIZE);
	char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(two != MAP_FAILED && mprotect(two + page, page, PROT_NONE) == 0);
	return memcpy(two + page - size, data, size);
}

static void forget(struct fi_info *hints)
{
	hints->src_addr = hints->dest_addr = NULL;
	fi_freeinfo(hints);
}

/*
 * Node and service replace the source with FI_SOURCE, else the destination: the replaced address in
 * the hints is not read.
 */
CASE_OURS(getinfo_ignored_addresses_are_not_read)
{
	struct fi_info *hints = hints_for(&(struct want) { .provider = "tcp" }), *info;

	hints->src_addr = (void *) 8;
	hints->src_addrlen = 16;
	CHECK(fi_getinfo(API, "127.0.0.1", NULL, FI_SOURCE, hints, &info) == 0);
	fi_freeinfo(info);
	hints->src_addr = NULL;
	hints->dest_addr = (void *) 8;
	hints->dest_addrlen = 16;
	CHECK(fi_getinfo(API, "127.0.0.1", "7", 0, hints, &info) == 0);
	fi_freeinfo(info);
	forget(hints);
}

/* Only as many bytes of an address are read as its family has, regardless of the length. */
CASE_OURS(getinfo_invalid_address_lengths)
{
	static const unsigned char v4[16] = { 2, 0, 0, 7, 127, 0, 0, 1 }, v6[28] = { 10, 0, 0, 7, [23] = 1 };
	static const struct { const void *addr; size_t size; uint32_t format; } kinds[] = {
		{ v4, sizeof(v4), FI_SOCKADDR_IN }, { v6, sizeof(v6), FI_SOCKADDR_IN6 },
		{ "fi_shm://a", 11, FI_ADDR_STR },
	};
	static const size_t lengths[] = { 128, 1 << 20, (size_t) 1 << 46, SIZE_MAX };
	size_t i, k;

	for (i = 0; i < ARRAY(kinds); i++) {
		struct fi_info *hints = hints_for(&RDM), *info;
		char text[8192];

		hints->fabric_attr->prov_name = NULL;
		hints->addr_format = kinds[i].format;
		hints->src_addr = at_the_end(kinds[i].addr, kinds[i].size);
		for (k = 0; k < ARRAY(lengths); k++) {
			int ret;

			hints->src_addrlen = lengths[k];
			ret = fi_getinfo(API, NULL, NULL, 0, hints, &info);
			CHECK(ret == 0 || ret == -FI_ENODATA);
			if (!ret)
				fi_freeinfo(info);
			CHECK(fi_tostr_r(text, sizeof(text), hints, FI_TYPE_INFO) == text);
		}
		forget(hints);
	}
}

/* A failed fi_accept leaves the request for the next call. */
CASE_OURS(cm_refused_accept_keeps_the_request)
{
	static char data[512];
	struct event event;
	struct fid_pep *pep;
	char name[64];
	size_t len = sizeof(name);
	uint32_t number;
	struct side a, b;

	open_domain(&b, &MSG);
	CHECK(fi_passive_ep(b.fabric, b.info, &pep, NULL) == 0);
	CHECK(fi_pep_bind(pep, &b.eq->fid, 0) == 0 && fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	open_side(&a, &MSG);
	CHECK(fi_connect(a.ep, name, NULL, 0) == 0);
	CHECK(event_of(&b, &a, &number, &event, sizeof(event)) > 0 && number == FI_CONNREQ);
	CHECK(fi_endpoint(b.domain, event.cm.info, &b.ep, &b) == 0);
	fi_freeinfo(event.cm.info);
	/* Too much data, even at an invalid address, then an endpoint without its queues. */
	CHECK(fi_accept(b.ep, data, 257) == -FI_EINVAL);
	CHECK(fi_accept(b.ep, (void *) 8, SIZE_MAX) == -FI_EINVAL);
	CHECK(fi_accept(b.ep, NULL, 0) == -FI_ENOCQ);
	CHECK(fi_ep_bind(b.ep, &b.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_accept(b.ep, NULL, 0) == -FI_ENOEQ);
	CHECK(fi_ep_bind(b.ep, &b.eq->fid, 0) == 0);
	CHECK(fi_accept(b.ep, data, 256) == 0);
	CHECK(event_of(&a, &b, &number, &event, sizeof(event)) == (ssize_t) sizeof(event.cm) + 256);
	CHECK(number == FI_CONNECTED);
	/* The request is used up. */
	CHECK(fi_accept(b.ep, NULL, 0) == -FI_EOPBADSTATE);
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&a);
	close_side(&b);
}

static void keeps_to_its_format(struct fid *fid, const void *good, size_t len)
{
	static const unsigned char v4[16] = { 2, 0, 0, 0, 127, 0, 0, 1 }, v6[28] = { 10, 0, [23] = 1 };
	static const char string[] = "fi_shm://of-another-format";
	int local = !memcmp(good, "fi", 2);

	CHECK(fi_setname(fid, (void *) v6, sizeof(v6)) == -FI_EINVAL);
	CHECK(fi_setname(fid, (void *) (local ? (void *) v4 : string), local ? sizeof(v4) : sizeof(string)) == -FI_EINVAL);
	CHECK(fi_setname(fid, "?", 1) == -FI_EINVAL);
	CHECK(fi_setname(fid, NULL, 0) == -FI_EINVAL);
	CHECK(fi_setname(fid, (void *) good, len) == 0);
}

CASE_OURS(cm_names_have_the_endpoint_format)
{
	static const unsigned char v4[16] = { 2, 0, 0, 0, 127, 0, 0, 1 };
	const void *good = within_host(&MSG) ? "fi_shm://a-name-of-mine" : (const void *) v4;
	size_t len = within_host(&MSG) ? 24 : sizeof(v4);
	struct fid_pep *pep;
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &MSG);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0);
	keeps_to_its_format(&pep->fid, good, len);
	CHECK(fi_close(&pep->fid) == 0);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	keeps_to_its_format(&ep->fid, good, len);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	keeps_to_its_format(&ep->fid, good, len);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

/* fi_tx_attr got its last member, tclass, in version 1.9: callers of older ones have no room for it. */
CASE_OURS(sep_attrs_of_old_callers)
{
	const struct want old = { .api = FI_VERSION(1, 8), .caps = FI_TAGGED };
	struct fi_tx_attr none = { 0 }, *tx = at_the_end(&none, offsetof(struct fi_tx_attr, tclass));
	struct fid_ep *sep, *context;
	struct fid_stx *stx;
	struct side s;

	open_domain(&s, &old);
	CHECK(fi_scalable_ep(s.domain, s.info, &sep, NULL) == 0);
	CHECK(fi_tx_context(sep, 0, tx, &context, NULL) == 0 && tx->size == s.info->tx_attr->size);
	CHECK(fi_close(&context->fid) == 0);
	/* A refused context leaves the attributes alone. */
	tx->size = 0;
	tx->inject_size = s.info->tx_attr->inject_size;
	CHECK(fi_tx_context(sep, -1, tx, &context, NULL) == -FI_EINVAL && tx->size == 0);
	CHECK(fi_close(&sep->fid) == 0);
	tx->caps = 0;
	CHECK(fi_stx_context(s.domain, tx, &stx, NULL) == 0);
	CHECK(fi_close(&stx->fid) == 0);
	close_side(&s);
}
