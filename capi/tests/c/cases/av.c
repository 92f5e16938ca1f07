/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Address vectors (fi_av(3)). */
#include "case.h"
#include <netdb.h>

CASE(av_open_rules)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = 1ULL << 62 };
	unsigned char addr[16] = { 2, 0, 1, 0, 10, 0, 0, 1 };
	struct fid_av *av;
	struct side s;
	fi_addr_t handle;
	int i;

	open_domain(&s, &RDM);
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == -FI_EINVAL);
	attr = (struct fi_av_attr) { .type = FI_AV_UNSPEC };
	CHECK(fi_av_open(s.domain, &attr, &av, &attr) == 0);
	CHECK(attr.type == FI_AV_TABLE || attr.type == FI_AV_MAP);
	CHECK(av->fid.context == &attr && av->fid.fclass == FI_CLASS_AV);
	CHECK(fi_close(&av->fid) == 0);
	/* The count is a hint: more addresses fit. */
	attr = (struct fi_av_attr) { .type = FI_AV_TABLE, .count = 1, .ep_per_node = 1 };
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == 0);
	for (i = 0; i < 100; i++) {
		addr[7] = (unsigned char) i;
		CHECK(fi_av_insert(av, addr, 1, &handle, 0, NULL) == 1 && handle == (fi_addr_t) i);
	}
	CHECK(fi_close(&av->fid) == 0);
	close_side(&s);
}

CASE_OURS(av_open_refusals)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fid_av *av;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_av_open(s.domain, NULL, &av, NULL) == -FI_EINVAL);
	CHECK(fi_av_open(s.domain, &attr, NULL, NULL) == -FI_EINVAL);
	attr = (struct fi_av_attr) { .type = 99 };
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == -FI_EINVAL);
	attr = (struct fi_av_attr) { .flags = FI_SYMMETRIC };
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == 0 && fi_close(&av->fid) == 0);
	s.info->domain_attr->av_type = FI_AV_MAP;
	close_side(&s);
	/* A domain that was opened for one type refuses the other. */
	{
		struct want w = RDM;
		struct fid_domain *domain;

		open_domain(&s, &w);
		s.info->domain_attr->av_type = FI_AV_MAP;
		CHECK(fi_domain(s.fabric, s.info, &domain, NULL) == 0);
		attr = (struct fi_av_attr) { .type = FI_AV_TABLE };
		CHECK(fi_av_open(domain, &attr, &av, NULL) == -FI_EINVAL);
		attr.type = FI_AV_UNSPEC;
		CHECK(fi_av_open(domain, &attr, &av, NULL) == 0 && attr.type == FI_AV_MAP);
		CHECK(fi_close(&av->fid) == 0 && fi_close(&domain->fid) == 0);
		close_side(&s);
	}
}

/* An address vector whose insertions report to the side's event queue. */
static struct fid_av *with_events(struct side *s)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct fid_av *av;

	CHECK(fi_av_open(s->domain, &attr, &av, &attr) == 0);
	CHECK(fi_av_bind(av, &s->eq->fid, 0) == 0);
	return av;
}

/* Reads the event that ends an insertion of this context; returns how many addresses it inserted. */
static uint64_t inserted(struct side *s, struct fid_av *av, void *context)
{
	struct fi_eq_entry entry = { 0 };
	uint32_t number = 0;

	CHECK(event_of(s, NULL, &number, &entry, sizeof(entry)) == sizeof(entry));
	CHECK(number == FI_AV_COMPLETE && entry.fid == &av->fid && entry.context == context);
	return entry.data;
}

/* Reads the error of the address with this index. */
static void not_inserted(struct side *s, struct fid_av *av, void *context, uint64_t index)
{
	struct fi_eq_err_entry error = { 0 };

	CHECK(event_of(s, NULL, &(uint32_t) { 0 }, &error, sizeof(error)) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(s->eq, &error, 0) == sizeof(error));
	CHECK(error.fid == &av->fid && error.context == context && error.data == index && error.err > 0);
}

CASE_OURS(av_event_rules)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct fid_av *av;
	struct side s;
	fi_addr_t handle;
	int error;

	open_domain(&s, &RDM);
	/* One that reports to its caller has no use for a queue. */
	CHECK(fi_av_bind(s.av, &s.eq->fid, 0) == -FI_EINVAL);
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == 0);
	CHECK(fi_av_insertsvc(av, "127.0.0.1", "80", &handle, 0, NULL) == -FI_ENOEQ);
	CHECK(fi_av_insert(av, NULL, 0, NULL, 0, NULL) == -FI_ENOEQ);
	CHECK(fi_av_bind(av, &s.cq->fid, 0) == -FI_EINVAL && fi_av_bind(av, NULL, 0) == -FI_EINVAL);
	CHECK(fi_av_bind(av, &s.eq->fid, 1) == -FI_EBADFLAGS);
	CHECK(fi_av_bind(av, &s.eq->fid, 0) == 0 && fi_av_bind(av, &s.eq->fid, 0) == -FI_EINVAL);
	/* The context is for the events and cannot be an array as well. */
	CHECK(fi_av_insertsvc(av, "127.0.0.1", "80", &handle, FI_SYNC_ERR, &error) == -FI_EBADFLAGS);
	CHECK(fi_av_insert(av, NULL, 1, NULL, 0, NULL) == -FI_EINVAL);
	/* A refused call leaves no event; one of no address does. */
	CHECK(fi_av_insert(av, NULL, 0, NULL, 0, &s) == 0 && inserted(&s, av, &s) == 0);
	CHECK(fi_eq_read(s.eq, &(uint32_t) { 0 }, &handle, sizeof(handle), 0) == -FI_EAGAIN);
	/* The queue stays open while it is bound. */
	CHECK(fi_close(&s.eq->fid) == -FI_EBUSY);
	CHECK(fi_close(&av->fid) == 0);
	close_side(&s);
}

CASE_OURS(av_event_insertions)
{
	unsigned char addrs[3][16] = { { 99, 99 }, { 2, 0, 1, 0, 10, 0, 0, 1 }, { 99, 99 } };
	struct side s;
	struct fid_av *av;
	fi_addr_t handles[4] = { 7, 7, 7, 7 };
	unsigned char back[16];
	size_t len = sizeof(back);

	open_domain(&s, &RDM);
	av = with_events(&s);
	CHECK(fi_av_insert(av, addrs, 3, handles, 0, &handles) == 0);
	/* The errors come first, then the one completion. */
	not_inserted(&s, av, &handles, 0);
	not_inserted(&s, av, &handles, 2);
	CHECK(inserted(&s, av, &handles) == 1);
	CHECK(handles[0] == FI_ADDR_NOTAVAIL && handles[1] == 0 && handles[2] == FI_ADDR_NOTAVAIL);
	CHECK(fi_av_lookup(av, 0, back, &len) == 0 && !memcmp(back, addrs[1], 8));
	/* There is a completion even if all fail, and handles are not needed. */
	CHECK(fi_av_insert(av, addrs, 1, NULL, FI_MORE, &len) == 0);
	not_inserted(&s, av, &len, 0);
	CHECK(inserted(&s, av, &len) == 0);
	CHECK(fi_av_insertsvc(av, "127.0.0.1", "no-such-service", handles, 0, &s) == 0);
	not_inserted(&s, av, &s, 0);
	CHECK(inserted(&s, av, &s) == 0 && handles[0] == FI_ADDR_NOTAVAIL);
	CHECK(fi_av_insertsym(av, "10.0.0.2", 2, "5000", 2, handles, 0, NULL) == 0);
	CHECK(inserted(&s, av, NULL) == 4 && handles[0] == 1 && handles[3] == 4);
	/* Closing leaves its events where they are. */
	CHECK(fi_av_insertsvc(av, "10.0.0.9", "80", NULL, 0, &s) == 0);
	CHECK(fi_close(&av->fid) == 0);
	CHECK(inserted(&s, av, &s) == 1);
	close_side(&s);
}

CASE_OURS(av_event_messages)
{
	struct side s;
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t self = 7;
	char in[8], name[64];
	size_t len = sizeof(name);

	open_domain(&s, &RDM);
	av = with_events(&s);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(ep, &av->fid, 0) == 0 && fi_enable(ep) == 0);
	CHECK(fi_getname(&ep->fid, name, &len) == 0);
	CHECK(fi_av_insert(av, name, 1, &self, 0, NULL) == 0 && inserted(&s, av, NULL) == 1 && self == 0);
	POST(fi_recv(ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_inject(ep, "x", 1, self));
	done(&s, NULL, &contexts[0]);
	CHECK(fi_close(&ep->fid) == 0 && fi_close(&av->fid) == 0);
	close_side(&s);
}

CASE(compat_av_map_accepted)
{
	struct fi_av_attr attr = { .type = FI_AV_MAP };
	unsigned char addrs[2][16] = { { 2, 0, 1, 0, 10, 0, 0, 1 }, { 2, 0, 1, 0, 10, 0, 0, 2 } };
	struct fid_av *av;
	struct side s;
	fi_addr_t handles[2] = { 77, 77 };
	char back[16];
	size_t len = sizeof(back);

	open_domain(&s, &RDM);
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == 0);
	CHECK(fi_av_insert(av, addrs, 2, handles, 0, NULL) == 2);
	CHECK(handles[0] != handles[1] && handles[0] != FI_ADDR_NOTAVAIL);
	CHECK(fi_av_lookup(av, handles[1], back, &len) == 0 && len == 16 && !memcmp(back, addrs[1], 8));
	CHECK(fi_close(&av->fid) == 0);
	close_side(&s);
}

CASE(av_table_index_order)
{
	unsigned char addrs[5][16];
	struct side s;
	fi_addr_t handles[5], one;
	int i;

	open_domain(&s, &RDM);
	memset(addrs, 0, sizeof(addrs));
	for (i = 0; i < 5; i++) {
		addrs[i][0] = 2;
		addrs[i][2] = 1;
		addrs[i][4] = 10;
		addrs[i][7] = (unsigned char) (i + 1);
	}
	CHECK(fi_av_insert(s.av, addrs, 3, handles, 0, NULL) == 3);
	CHECK(handles[0] == 0 && handles[1] == 1 && handles[2] == 2);
	/* The handles may be omitted. */
	CHECK(fi_av_insert(s.av, addrs[3], 1, NULL, FI_MORE, NULL) == 1);
	CHECK(fi_av_insert(s.av, addrs[4], 1, &one, 0, NULL) == 1 && one == 4);
	close_side(&s);
}

CASE_OURS(av_lowest_free_index)
{
	unsigned char addr[16] = { 2, 0, 1, 0, 10, 0, 0, 1 };
	struct side s;
	fi_addr_t handles[4], some[2] = { 1, 2 }, one;
	int i;

	open_domain(&s, &RDM);
	for (i = 0; i < 4; i++) {
		addr[7] = (unsigned char) (i + 1);
		handles[i] = insert(&s, addr);
	}
	CHECK(fi_av_remove(s.av, some, 2, 0) == 0);
	addr[7] = 50;
	one = insert(&s, addr);
	CHECK(one == 1);
	addr[7] = 51;
	CHECK(insert(&s, addr) == 2);
	addr[7] = 52;
	CHECK(insert(&s, addr) == 4);
	CHECK(handles[3] == 3);
	close_side(&s);
}

CASE(av_insert_failures_reported)
{
	unsigned char addrs[3][16] = { { 2, 0, 1, 0, 10, 0, 0, 1 }, { 99, 99 }, { 2, 0, 1, 0, 10, 0, 0, 2 } };
	struct side s;
	fi_addr_t handles[3] = { 7, 7, 7 };
	int errors[3] = { -1, -1, -1 };

	open_domain(&s, &RDM);
	CHECK(fi_av_insert(s.av, addrs, 3, handles, FI_SYNC_ERR, NULL) == -FI_EINVAL);
	CHECK(fi_av_insert(s.av, addrs, 3, handles, FI_SYNC_ERR, errors) == 2);
	CHECK(handles[0] == 0 && handles[1] == FI_ADDR_NOTAVAIL && handles[2] == 1);
	CHECK(errors[0] == 0 && errors[1] > 0 && errors[2] == 0);
	close_side(&s);
}

CASE(av_insert_flag_rules)
{
	unsigned char addr[16] = { 2, 0, 1, 0, 10, 0, 0, 1 };
	struct side s;
	fi_addr_t handle;

	open_domain(&s, &RDM);
	CHECK(fi_av_insert(s.av, addr, 1, &handle, 1ULL << 62, NULL) == -FI_EBADFLAGS);
	CHECK(fi_av_insert(s.av, addr, 1, &handle, FI_MORE, NULL) == 1);
	close_side(&s);
}

CASE_OURS(av_insert_duplicate_handle)
{
	unsigned char addr[16] = { 2, 0, 1, 0, 10, 0, 0, 1 };
	struct side s;
	fi_addr_t first, second;
	char back[16];
	size_t len = sizeof(back);

	open_domain(&s, &RDM);
	first = insert(&s, addr);
	second = insert(&s, addr);
	CHECK(first == second);
	CHECK(fi_av_remove(s.av, &first, 1, 0) == 0);
	CHECK(fi_av_lookup(s.av, first, back, &len) == 0);
	CHECK(fi_av_remove(s.av, &first, 1, 0) == 0);
	CHECK(fi_av_lookup(s.av, first, back, &len) == -FI_EINVAL);
	close_side(&s);
}

CASE(av_remove_rules)
{
	unsigned char addr[16] = { 2, 0, 1, 0, 10, 0, 0, 1 };
	struct side s;
	fi_addr_t handle, unknown = 77, three[3];
	char back[16];
	size_t len = sizeof(back);

	open_domain(&s, &RDM);
	handle = insert(&s, addr);
	CHECK(fi_av_remove(s.av, &unknown, 1, 0) == -FI_EINVAL);
	CHECK(fi_av_remove(s.av, &handle, 1, 1ULL << 62) == -FI_EINVAL);
	CHECK(fi_av_remove(s.av, &handle, 1, 0) == 0);
	CHECK(fi_av_lookup(s.av, handle, back, &len) == -FI_EINVAL);
	/* An unknown handle does not keep the others from being removed. */
	three[0] = insert(&s, addr);
	three[1] = unknown;
	addr[7] = 2;
	three[2] = insert(&s, addr);
	CHECK(fi_av_remove(s.av, three, 3, 0) == -FI_EINVAL);
	CHECK(fi_av_lookup(s.av, three[0], back, &len) == -FI_EINVAL);
	CHECK(fi_av_lookup(s.av, three[2], back, &len) == -FI_EINVAL);
	close_side(&s);
}

CASE(av_remove_reinsert)
{
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.b, &p.a, &contexts[0]);
	CHECK(fi_av_remove(p.a.av, &p.to_b, 1, 0) == 0);
	p.to_b = insert(&p.a, p.b.name);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE(av_lookup_rules)
{
	unsigned char addr[16] = { 2, 0, 1, 0, 10, 0, 0, 1 };
	struct side s;
	fi_addr_t handle;
	char back[32];
	size_t len = 4;

	open_domain(&s, &RDM);
	handle = insert(&s, addr);
	memset(back, 'x', sizeof(back));
	CHECK(fi_av_lookup(s.av, handle, back, &len) == 0);
	CHECK(len == 16 && !memcmp(back, addr, 4) && back[4] == 'x');
	len = sizeof(back);
	CHECK(fi_av_lookup(s.av, handle, back, &len) == 0 && len == 16);
	CHECK(fi_av_lookup(s.av, 99, back, &len) == -FI_EINVAL);
	close_side(&s);
}

CASE(av_insertsvc_resolves)
{
	struct side s;
	fi_addr_t handle = 7;
	unsigned char back[16];
	size_t len = sizeof(back);

	open_domain(&s, &RDM);
	CHECK(fi_av_insertsvc(s.av, "127.0.0.1", "4711", &handle, 0, NULL) == 1);
	CHECK(fi_av_lookup(s.av, handle, back, &len) == 0);
	CHECK(back[0] == 2 && back[2] == 4711 >> 8 && back[3] == (4711 & 255) && back[4] == 127 && back[7] == 1);
	CHECK(fi_av_insertsvc(s.av, "localhost", "80", &handle, 0, NULL) == 1);
	CHECK(fi_av_insertsvc(s.av, "127.0.0.1", "no-such-service", &handle, 0, NULL) != 1);
	/* A service by name, if the system knows it. */
	if (getservbyname("http", "tcp")) {
		CHECK(fi_av_insertsvc(s.av, "127.0.0.1", "http", &handle, 0, NULL) == 1);
		len = sizeof(back);
		CHECK(fi_av_lookup(s.av, handle, back, &len) == 0 && back[2] == 0 && back[3] == 80);
	}
	close_side(&s);
}

CASE_OURS(av_insertsvc_failures_reported)
{
	static const struct { const char *node, *service; } bad[] = {
		{ "127.0.0.1", "no-such-service" }, { "127.0.0.1", "65536" }, { "127.0.0.1", NULL }, { NULL, "80" },
		{ "fi_sockaddr_in://127.0.0.1:99", "80" },
	};
	struct side s;
	size_t i;

	open_domain(&s, &RDM);
	/* shm services are not numbers. */
	for (i = within_host(&RDM) ? 2 : 0; i < ARRAY(bad); i++) {
		fi_addr_t handle = 7;
		int error = -1, ret;

		ret = fi_av_insertsvc(s.av, bad[i].node, bad[i].service, &handle, FI_SYNC_ERR, &error);
		CHECK(ret < 0 && handle == FI_ADDR_NOTAVAIL && error == -ret);
	}
	close_side(&s);
}

CASE_OURS(av_insertsvc_of_strings)
{
	struct side s;
	fi_addr_t handle = 7;

	open_domain(&s, &RDM);
	CHECK(fi_av_insertsvc(s.av, "fi_sockaddr_in://10.0.0.9:99", NULL, &handle, 0, NULL) == 1 && handle == 0);
	CHECK(fi_av_insertsvc(s.av, "fi_sockaddr_in://10.0.0.9:99", "80", &handle, 0, NULL) == -FI_EINVAL);
	CHECK(fi_av_insertsvc(s.av, NULL, "80", &handle, 0, NULL) == -FI_EINVAL);
	CHECK(fi_av_insertsvc(s.av, "10.0.0.1", NULL, &handle, 0, NULL) == -FI_EINVAL);
	close_side(&s);
}

CASE(av_insertsym_ranges)
{
	struct side s;
	fi_addr_t handles[6];
	unsigned char back[16];
	size_t len;
	int i;

	open_domain(&s, &RDM);
	if (fi_av_insertsym(s.av, "10.0.0.1", 2, "5000", 3, handles, 0, NULL) != 6)
		SKIP("no insertion of ranges");
	for (i = 0; i < 6; i++) {
		len = sizeof(back);
		CHECK(fi_av_lookup(s.av, handles[i], back, &len) == 0);
		CHECK(back[7] == 1 + i / 3 && back[2] * 256 + back[3] == 5000 + i % 3);
	}
	close_side(&s);
}

CASE_OURS(av_insertsym_names)
{
	struct side s;
	fi_addr_t handles[2];

	open_domain(&s, &RDM);
	/* A name without a number cannot be incremented, but a single one is valid. */
	CHECK(fi_av_insertsym(s.av, "localhost", 2, "5000", 1, handles, 0, NULL) == -FI_EINVAL);
	CHECK(fi_av_insertsym(s.av, "localhost", 1, "5000", 2, handles, 0, NULL) == 2 && handles[0] != handles[1]);
	close_side(&s);
}

CASE(av_shared_after_enable)
{
	struct pair p;
	struct fid_ep *other;
	char in[8];

	meet(&p, &RDM);
	/* A second endpoint on the same address vector uses the same handles. */
	CHECK(fi_endpoint(p.a.domain, p.a.info, &other, NULL) == 0);
	CHECK(fi_ep_bind(other, &p.a.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(other, &p.a.av->fid, 0) == 0 && fi_enable(other) == 0);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(other, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	CHECK(fi_close(&other->fid) == 0);
	part(&p);
}

CASE(av_address_inlines)
{
	CHECK(fi_rx_addr(5, 3, 4) == ((3ULL << 60) | 5));
	CHECK(fi_rx_addr(5, 0, 0) == 5);
	/* Older headers shift by 64. */
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 6))
	CHECK(fi_rx_addr(5, 3, 0) == 5);
#endif
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	CHECK(fi_group_addr(5, 3) == ((3ULL << 32) | 5) && fi_group_addr(5, 0) == 5);
#endif
}

CASE_OURS(av_user_id_handles)
{
	struct want w = { .caps = FI_TAGGED | FI_SOURCE | FI_AV_USER_ID };
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_AV_USER_ID };
	unsigned char addr[16] = { 2, 0, 1, 0, 10, 0, 0, 1 };
	struct fid_av *av;
	struct side s;
	fi_addr_t handle = 55;

	open_domain(&s, &RDM);
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == -FI_EINVAL);
	CHECK(fi_av_insert(s.av, addr, 1, &handle, FI_AV_USER_ID, NULL) == -FI_EBADFLAGS);
#ifdef FI_FIREWALL_ADDR
	CHECK(fi_av_insert(s.av, addr, 1, &handle, FI_FIREWALL_ADDR, NULL) == -FI_EBADFLAGS);
#endif
#ifdef FI_AUTH_KEY
	CHECK(fi_av_insert(s.av, addr, 1, &handle, FI_AUTH_KEY, NULL) == -FI_EBADFLAGS);
#endif
	close_side(&s);
	open_domain(&s, &w);
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == 0);
	CHECK(fi_av_insert(av, addr, 1, &handle, FI_AV_USER_ID, NULL) == -FI_EINVAL);
	CHECK(fi_av_insert(av, addr, 1, &handle, 0, NULL) == 1 && handle == 0);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
	CHECK(fi_av_set_user_id(av, handle, 99, 0) == 0);
	CHECK(fi_av_set_user_id(av, 1234, 99, 0) == -FI_EINVAL);
	CHECK(fi_av_set_user_id(av, handle, 99, FI_AUTH_KEY) == -FI_EBADFLAGS);
#endif
	CHECK(fi_close(&av->fid) == 0);
	close_side(&s);
}

CASE(straddr_uri_form)
{
	unsigned char v4[16] = { 2, 0, 0, 80, 10, 1, 2, 3 };
	struct side s;
	char text[64], cut[12];
	size_t len = sizeof(text);

	open_domain(&s, &RDM);
	CHECK(fi_av_straddr(s.av, v4, text, &len) == text);
	CHECK(!strcmp(text, "fi_sockaddr_in://10.1.2.3:80"));
	CHECK(len == strlen(text) + 1);
	len = 8;
	memset(cut, 'x', sizeof(cut));
	CHECK(fi_av_straddr(s.av, v4, cut, &len) == cut && len == strlen(text) + 1);
	CHECK(!strncmp(cut, text, 7) && cut[7] == 0 && cut[8] == 'x');
	close_side(&s);
}

CASE(straddr_uri_form_v6)
{
	unsigned char v6[28] = { 10, 0, 0, 80, [23] = 1 };
	struct fi_info *hints = hints_for(&RDM), *info;
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	char text[64];
	size_t len = sizeof(text);

	hints->addr_format = FI_SOCKADDR_IN6;
	if (fi_getinfo(API, "::1", NULL, FI_SOURCE, hints, &info))
		SKIP("no IPv6");
	fi_freeinfo(hints);
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0 && fi_domain(fabric, info, &domain, NULL) == 0);
	CHECK(fi_av_open(domain, &attr, &av, NULL) == 0);
	CHECK(fi_av_straddr(av, v6, text, &len) == text && !strcmp(text, "fi_sockaddr_in6://[::1]:80"));
	CHECK(fi_close(&av->fid) == 0 && fi_close(&domain->fid) == 0 && fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);
}
