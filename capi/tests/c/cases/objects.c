/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fabrics, domains, address vectors and endpoints as objects (fi_fabric(3), fi_domain(3), fi_av(3), fi_endpoint(3)). */
#include "case.h"

CASE(fabric_open_rules)
{
	struct fi_info *info = find(&RDM);
	struct fi_fabric_attr attr = *info->fabric_attr;
	struct fid_fabric *fabric;

	CHECK(fi_fabric(NULL, &fabric, NULL) == -FI_EINVAL);
	attr.name = NULL;
	CHECK(fi_fabric(&attr, &fabric, NULL) == -FI_EINVAL);
	attr = *info->fabric_attr;
	attr.prov_name = NULL;
	CHECK(fi_fabric(&attr, &fabric, NULL) == -FI_EINVAL);
	attr.prov_name = "nobody";
	CHECK(fi_fabric(&attr, &fabric, NULL) == -FI_ENODEV);
	attr.prov_name = "tcp;ofi_rxm";
	CHECK(fi_fabric(&attr, &fabric, &attr) == 0);
	CHECK(fabric->fid.context == &attr && fabric->fid.fclass == FI_CLASS_FABRIC);
	CHECK(fi_close(&fabric->fid) == 0);
	attr.prov_name = "TCP";
	CHECK(fi_fabric(&attr, &fabric, NULL) == 0);
	CHECK(fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);
}

CASE(fabric_api_version_gates)
{
	struct fi_info *info = find(&RDM);
	struct fid_fabric *fabric;

	info->fabric_attr->api_version = FI_VERSION(1, 7);
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
	CHECK(fabric->api_version == FI_VERSION(1, 7));
	CHECK(fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);
}

CASE(close_parent_busy)
{
	struct pair p;
	char in[8];

	meet(&p, &RDM);
	CHECK(fi_close(&p.b.fabric->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.b.domain->fid) == -FI_EBUSY);
	CHECK(fi_close(&p.b.av->fid) == -FI_EBUSY);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[0]);
	part(&p);
}

CASE(domain_open_rules)
{
	struct fid_domain *second;
	struct side s;

	open_side(&s, &RDM);
	CHECK(fi_domain(s.fabric, s.info, &second, &s) == 0);
	CHECK(second != s.domain && second->fid.context == &s && second->fid.fclass == FI_CLASS_DOMAIN);
	/* The one is closed, the other works. */
	CHECK(fi_close(&second->fid) == 0);
	CHECK(fi_cq_read(s.cq, NULL, 0) == -FI_EAGAIN);
	close_side(&s);
}

CASE_OURS(domain_unknown_name)
{
	struct fid_domain *domain;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_domain(s.fabric, NULL, &domain, NULL) == -FI_EINVAL);
	CHECK(fi_domain(s.fabric, s.info, NULL, NULL) == -FI_EINVAL);
	free(s.info->domain_attr->name);
	s.info->domain_attr->name = strdup("no-such-interface");
	CHECK(fi_domain(s.fabric, s.info, &domain, NULL) == -FI_EINVAL);
	close_side(&s);
}

CASE_OURS(domain_bind_eq_rules)
{
	struct fid_eq *eq;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_eq_open(s.fabric, NULL, &eq, NULL) == 0);
	CHECK(fi_domain_bind(s.domain, &eq->fid, FI_REG_MR) == -FI_EBADFLAGS);
	CHECK(fi_domain_bind(s.domain, &s.cq->fid, 0) == -FI_EINVAL);
	CHECK(fi_domain_bind(s.domain, NULL, 0) == -FI_EINVAL);
	CHECK(fi_domain_bind(s.domain, &eq->fid, 0) == 0);
	CHECK(fi_domain_bind(s.domain, &s.eq->fid, 0) == -FI_EINVAL);
	CHECK(fi_close(&eq->fid) == -FI_EBUSY);
	CHECK(fi_close(&s.av->fid) == 0 && fi_close(&s.cq->fid) == 0 && fi_close(&s.domain->fid) == 0);
	CHECK(fi_close(&eq->fid) == 0 && fi_close(&s.eq->fid) == 0 && fi_close(&s.fabric->fid) == 0);
	fi_freeinfo(s.info);
}

CASE(domain_threading_hints)
{
	static const enum fi_threading levels[] = { FI_THREAD_SAFE, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN, FI_THREAD_UNSPEC };
	size_t i;

	for (i = 0; i < ARRAY(levels); i++) {
		struct want w = { .caps = FI_TAGGED, .threading = levels[i] };
		struct pair p;
		char in[8];

		meet(&p, &w);
		if (levels[i])
			CHECK(p.a.info->domain_attr->threading == levels[i]);
		else
			CHECK(p.a.info->domain_attr->threading != FI_THREAD_UNSPEC);
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
		done(&p.b, &p.a, &contexts[0]);
		part(&p);
	}
}

CASE_OURS(open2_flag_rules)
{
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	struct fid_domain *domain;
	struct fid_fabric *fabric;
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_fabric2(s.info, &fabric, 1, NULL) == -FI_EINVAL);
	CHECK(fi_fabric2(NULL, &fabric, 0, NULL) == -FI_EINVAL);
	CHECK(fi_fabric2(s.info, &fabric, 0, NULL) == 0 && fi_close(&fabric->fid) == 0);
	CHECK(fi_domain2(s.fabric, s.info, &domain, 1, NULL) == -FI_EINVAL);
	CHECK(fi_domain2(s.fabric, s.info, &domain, 0, NULL) == 0 && fi_close(&domain->fid) == 0);
	CHECK(fi_endpoint2(s.domain, s.info, &ep, 1, NULL) == -FI_EINVAL);
	CHECK(fi_endpoint2(s.domain, s.info, &ep, 0, NULL) == 0 && fi_close(&ep->fid) == 0);
	close_side(&s);
#else
	SKIP("these headers are older");
#endif
}

CASE(open_ops_unknown_name)
{
	struct side s;
	void *ops;

	open_side(&s, &RDM);
	CHECK(fi_open_ops(&s.domain->fid, "no such operations", 0, &ops, NULL) == -FI_ENOSYS);
	CHECK(fi_set_ops(&s.domain->fid, "no such operations", 0, &s, NULL) == -FI_ENOSYS);
	CHECK(fi_open_ops(&s.ep->fid, "no such operations", 0, &ops, NULL) == -FI_ENOSYS);
	close_side(&s);
}

CASE(control_unknown_command)
{
	struct side s;
	int arg = 0;

	open_side(&s, &RDM);
	CHECK(fi_control(&s.domain->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_control(&s.ep->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_control(&s.av->fid, 4242, &arg) == -FI_ENOSYS);
	close_side(&s);
}

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
	/* The count is a hint: more fits. */
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
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .name = "shared" };
	struct fid_av *av;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_av_open(s.domain, NULL, &av, NULL) == -FI_EINVAL);
	CHECK(fi_av_open(s.domain, &attr, NULL, NULL) == -FI_EINVAL);
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == -FI_ENOSYS);
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

CASE_OURS(av_event_mode_refused)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct fid_av *av;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == -FI_ENOSYS);
	CHECK(fi_av_bind(s.av, &s.eq->fid, 0) == -FI_ENOSYS);
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
	/* The handles need not be told. */
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
	fi_addr_t handle, unknown = 77;
	char back[16];
	size_t len = sizeof(back);

	open_domain(&s, &RDM);
	handle = insert(&s, addr);
	CHECK(fi_av_remove(s.av, &unknown, 1, 0) == -FI_EINVAL);
	CHECK(fi_av_remove(s.av, &handle, 1, 1ULL << 62) == -FI_EINVAL);
	CHECK(fi_av_remove(s.av, &handle, 1, 0) == 0);
	CHECK(fi_av_lookup(s.av, handle, back, &len) == -FI_EINVAL);
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

CASE(av_shared_after_enable)
{
	struct pair p;
	struct fid_ep *other;
	char in[8];

	meet(&p, &RDM);
	/* A second endpoint on the same vector uses the same handles. */
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
	CHECK(fi_rx_addr(5, 3, 0) == 5 || fi_rx_addr(5, 0, 0) == 5);
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
	char text[64], cut[8];
	size_t len = sizeof(text);

	open_domain(&s, &RDM);
	CHECK(fi_av_straddr(s.av, v4, text, &len) == text);
	CHECK(!strcmp(text, "fi_sockaddr_in://10.1.2.3:80"));
	CHECK(len == strlen(text) || len == strlen(text) + 1);
	len = sizeof(cut);
	memset(cut, 'x', sizeof(cut));
	CHECK(fi_av_straddr(s.av, v4, cut, &len) == cut);
	CHECK(len >= strlen(text) && !strncmp(cut, text, 7));
	close_side(&s);
}

CASE(ep_disabled_until_enabled)
{
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, &s) == 0);
	CHECK(ep->fid.context == &s && ep->fid.fclass == FI_CLASS_EP);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(ep, &s.av->fid, 0) == 0);
	CHECK(fi_enable(ep) == 0);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

CASE_OURS(ep_posting_before_enable)
{
	struct fid_ep *ep;
	struct side s;
	char in[8];

	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(ep, &s.av->fid, 0) == 0);
	CHECK(fi_recv(ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL) == -FI_EOPBADSTATE);
	CHECK(fi_send(ep, in, 8, NULL, 0, NULL) == -FI_EOPBADSTATE);
	CHECK(fi_enable(ep) == 0 && fi_enable(ep) == 0);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

CASE(ep_enable_missing_binds)
{
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.av->fid, 0) == 0);
	CHECK(fi_enable(ep) == -FI_ENOCQ);
	CHECK(fi_close(&ep->fid) == 0);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_enable(ep) == -FI_ENOAV);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

CASE_OURS(ep_enable_without_eq)
{
	struct want w = { .type = FI_EP_MSG };
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &w);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_enable(ep) == -FI_ENOEQ);
	CHECK(fi_close(&ep->fid) == 0);
	CHECK(fi_endpoint(s.domain, NULL, &ep, NULL) == -FI_EINVAL);
	CHECK(fi_endpoint(s.domain, s.info, NULL, NULL) == -FI_EINVAL);
	close_side(&s);
}

CASE(ep_cq_bind_rules)
{
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | (1ULL << 62)) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(ep, &s.cq->fid, FI_RECV) == -FI_EINVAL);
	CHECK(fi_close(&ep->fid) == 0);
	close_side(&s);
}

CASE(ep_bind_object_rules)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fid_av *second;
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &RDM);
	CHECK(fi_av_open(s.domain, &attr, &second, NULL) == 0);
	CHECK(fi_endpoint(s.domain, s.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &s.av->fid, FI_SEND) == -FI_EBADFLAGS);
	CHECK(fi_ep_bind(ep, &s.av->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, &second->fid, 0) == -FI_EINVAL);
	CHECK(fi_ep_bind(ep, &s.domain->fid, 0) == -FI_EINVAL);
	CHECK(fi_close(&ep->fid) == 0 && fi_close(&second->fid) == 0);
	close_side(&s);
}

CASE(ep_option_rules)
{
	struct side s;
	size_t value = 64, len = 2;

	open_side(&s, &RDM);
	CHECK(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, 9999, &value, &len) == -FI_ENOPROTOOPT);
	CHECK(fi_getopt(&s.ep->fid, 9999, FI_OPT_MIN_MULTI_RECV, &value, &len) == -FI_ENOPROTOOPT);
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, 9999, &value, sizeof(value)) == -FI_ENOPROTOOPT);
	close_side(&s);
}

CASE_OURS(ep_options_of_ours)
{
	struct want w = { .caps = FI_TAGGED | FI_MULTI_RECV };
	struct side s;
	size_t value = 0, len = 2;

	open_side(&s, &w);
	CHECK(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len) == -FI_ETOOSMALL);
	CHECK(len == sizeof(value));
	CHECK(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len) == 0 && value == 16384);
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 4) == -FI_EINVAL);
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, NULL, 8) == -FI_EINVAL);
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, 8) == -FI_ENOPROTOOPT);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	CHECK(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_INJECT_MSG_SIZE, &value, &len) == 0);
	CHECK(value == s.info->tx_attr->inject_size);
	value = 64;
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_INJECT_TAGGED_SIZE, &value, 8) == 0);
	value = 1 << 30;
	CHECK(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_INJECT_TAGGED_SIZE, &value, 8) == -FI_EINVAL);
#endif
	close_side(&s);
}

CASE_OURS(ep_alias_opsflag_rules)
{
	struct fid_ep *alias;
	struct pair p;
	uint64_t flags = FI_TRANSMIT | FI_RECV;
	char in[8];

	meet(&p, &RDM);
	CHECK(fi_ep_alias(p.a.ep, &alias, FI_TRANSMIT | FI_RECV) == -FI_EINVAL);
	CHECK(fi_ep_alias(p.a.ep, &alias, 0) == -FI_EINVAL);
	CHECK(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags) == -FI_EINVAL);
	flags = 0;
	CHECK(fi_control(&p.a.ep->fid, FI_SETOPSFLAG, &flags) == -FI_EINVAL);
	CHECK(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, NULL) == -FI_EINVAL);
	CHECK(fi_ep_alias(p.a.ep, &alias, FI_TRANSMIT | FI_DELIVERY_COMPLETE) == 0);
	flags = FI_TRANSMIT;
	CHECK(fi_control(&alias->fid, FI_GETOPSFLAG, &flags) == 0 && flags == FI_DELIVERY_COMPLETE);
	flags = FI_TRANSMIT;
	CHECK(fi_control(&p.a.ep->fid, FI_GETOPSFLAG, &flags) == 0 && flags == 0);
	memset(in, 'x', sizeof(in));
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(alias, "ab", 2, NULL, p.to_b, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(in[0] == 'a');
	CHECK(fi_close(&p.a.ep->fid) == -FI_EBUSY);
	CHECK(fi_close(&alias->fid) == 0);
	part(&p);
}

CASE(ep_size_left_slots)
{
	struct side s;
	ssize_t left;

	open_side(&s, &RDM);
	left = fi_tx_size_left(s.ep);
	CHECK(left > 0 || left == -FI_ENOSYS);
	left = fi_rx_size_left(s.ep);
	CHECK(left > 0 || left == -FI_ENOSYS);
	close_side(&s);
}

CASE_OURS(what_is_not_there_says_so)
{
	struct fid_ep *ep;
	struct fid_stx *stx;
	struct fid_mr *mr;
	struct side s;
	size_t count = 1;
	char buf[8];

	open_side(&s, &RDM);
	CHECK(fi_scalable_ep(s.domain, s.info, &ep, NULL) == -FI_ENOSYS);
	CHECK(fi_stx_context(s.domain, s.info->tx_attr, &stx, NULL) == -FI_ENOSYS);
	CHECK(fi_srx_context(s.domain, s.info->rx_attr, &ep, NULL) == -FI_ENOSYS);
	CHECK(fi_tx_context(s.ep, 0, s.info->tx_attr, &ep, NULL) == -FI_ENOSYS);
	CHECK(fi_mr_reg(s.domain, buf, 8, FI_SEND, 0, 0, 0, &mr, NULL) == -FI_ENOSYS);
	(void) count;
	close_side(&s);
}

CASE(tclass_hint_accepted)
{
	struct fi_info *hints = hints_for(&RDM), *info;

	hints->tx_attr->tclass = FI_TC_LOW_LATENCY;
	hints->domain_attr->tclass = FI_TC_BULK_DATA;
	CHECK(fi_getinfo(API, "127.0.0.1", NULL, FI_SOURCE, hints, &info) == 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}
