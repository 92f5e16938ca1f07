/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Domain and endpoint attributes in the results of fi_getinfo (fi_domain(3), fi_endpoint(3)). */
#include "case.h"

/* The results for the hints, or null. */
static struct fi_info *found_by(uint32_t version, struct fi_info *hints)
{
	struct fi_info *list = NULL;
	int ret = fi_getinfo(version, NULL, NULL, 0, hints, &list);

	CHECK(ret == 0 || ret == -FI_ENODATA);
	return ret ? NULL : list;
}

/* The capabilities of the domains in the results: their union and their intersection. */
static void domain_caps(uint64_t asked, uint64_t *any, uint64_t *every)
{
	struct fi_info *hints = hints_for(&RDM), *list, *i;

	hints->caps = asked;
	list = found_by(API, hints);
	CHECK(list);
	*any = 0;
	*every = ~0ULL;
	for (i = list; i; i = i->next) {
		CHECK((i->caps & asked) == asked);
		*any |= i->domain_attr->caps;
		*every &= i->domain_attr->caps;
	}
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(domain_caps_requested_and_default)
{
	uint64_t any, every;

	domain_caps(FI_TAGGED, &any, &every);
	CHECK(!(any & (FI_DIRECTED_RECV | FI_AV_USER_ID)));
#ifdef FI_PEER
	CHECK(!(any & FI_PEER));
#endif
	CHECK(every & FI_LOCAL_COMM);
	domain_caps(FI_TAGGED | FI_AV_USER_ID, &any, &every);
	CHECK(every & FI_AV_USER_ID && !(any & FI_DIRECTED_RECV));
}

CASE(domain_reports_directed_recv)
{
	struct fi_info *hints = hints_for(&RDM), *list;
	uint64_t any, every;

	domain_caps(FI_TAGGED | FI_DIRECTED_RECV, &any, &every);
	CHECK(every & FI_DIRECTED_RECV && !(any & FI_AV_USER_ID));
	hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
	hints->domain_attr->caps = FI_DIRECTED_RECV | FI_LOCAL_COMM;
	list = found_by(API, hints);
	CHECK(list);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(domain_hints_of_capabilities)
{
	struct fi_info *hints = hints_for(&RDM), *list, *i;

	hints->domain_attr->caps = FI_LOCAL_COMM;
	list = found_by(API, hints);
	CHECK(list);
	fi_freeinfo(list);
	/* Results either have it or do not match. */
	hints->domain_attr->caps = FI_SHARED_AV;
	list = found_by(API, hints);
	for (i = list; i; i = i->next)
		CHECK(i->caps & FI_SHARED_AV && i->domain_attr->caps & FI_SHARED_AV);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(domain_mode_is_within_the_hints)
{
	static const uint64_t modes[] = { 0, FI_CONTEXT, FI_CONTEXT | FI_CONTEXT2 | FI_ASYNC_IOV | FI_RX_CQ_DATA };
	struct fi_info *hints = hints_for(&RDM), *list, *i;
	size_t m;

	for (m = 0; m < ARRAY(modes); m++) {
		/* The domain's field is 0: the mode of the info applies. */
		hints->mode = modes[m];
		hints->domain_attr->mode = 0;
		list = found_by(API, hints);
		CHECK(list || modes[m] == 0);
		for (i = list; i; i = i->next)
			CHECK(!(i->mode & ~modes[m]) && !(i->domain_attr->mode & ~modes[m]));
		fi_freeinfo(list);
	}
	fi_freeinfo(hints);
}

CASE(ep_protocol_versions)
{
	struct fi_info *hints = hints_for(&RDM), *list = found_by(API, hints);

	CHECK(list);
	hints->ep_attr->protocol = list->ep_attr->protocol;
	hints->ep_attr->protocol_version = list->ep_attr->protocol_version;
	fi_freeinfo(list);
	list = found_by(API, hints);
	CHECK(list);
	fi_freeinfo(list);
	hints->ep_attr->protocol_version++;
	CHECK(!found_by(API, hints));
	fi_freeinfo(hints);
}

CASE(tx_and_rx_attrs_inherit_from_the_info)
{
	struct fi_info *hints = hints_for(&RDM), *list, *i;

	hints->caps = FI_TAGGED;
	hints->tx_attr->caps = hints->rx_attr->caps = 0;
	list = found_by(API, hints);
	CHECK(list);
	for (i = list; i; i = i->next) {
		CHECK((i->tx_attr->caps & (FI_TAGGED | FI_SEND | FI_MSG)) == (FI_TAGGED | FI_SEND));
		CHECK((i->rx_attr->caps & (FI_TAGGED | FI_RECV | FI_MSG)) == (FI_TAGGED | FI_RECV));
		CHECK(!((i->tx_attr->mode | i->rx_attr->mode) & ~i->mode));
	}
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

/* Width of the tag format field whose highest bit is `bit`. */
static int field_width(uint64_t format, int bit)
{
	int width = 1;

	while (bit - width >= 0 && (format >> bit & 1) == (format >> (bit - width) & 1))
		width++;
	return width;
}

CASE_OURS(tag_fields_are_as_wide_as_requested)
{
	/* Two 8-bit fields above a 16-bit field. */
	static const uint64_t asked = 0xff00ffff;
	struct fi_info *hints = hints_for(&RDM), *list, *i;

	hints->ep_attr->mem_tag_format = asked;
	list = found_by(API, hints);
	CHECK(list);
	for (i = list; i; i = i->next) {
		uint64_t format = i->ep_attr->mem_tag_format;
		int theirs = 63 - __builtin_clzll(format), mine;

		for (mine = 63 - __builtin_clzll(asked); mine >= 0; mine -= field_width(asked, mine)) {
			CHECK(theirs >= 0 && field_width(format, theirs) >= field_width(asked, mine));
			theirs -= field_width(format, theirs);
		}
	}
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE_OURS(ep_completion_order_is_none)
{
	struct fi_info *hints = hints_for(&RDM), *list;

	hints->tx_attr->comp_order = 1;
	CHECK(!found_by(FI_VERSION(2, 0), hints));
	hints->tx_attr->comp_order = 0;
	hints->rx_attr->comp_order = 1;
	CHECK(!found_by(FI_VERSION(2, 0), hints));
	hints->rx_attr->comp_order = 0;
	list = found_by(FI_VERSION(2, 0), hints);
	CHECK(list && list->tx_attr->comp_order == 0 && list->rx_attr->comp_order == 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}
