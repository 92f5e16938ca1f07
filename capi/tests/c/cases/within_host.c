/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Names of endpoints within a host: fi_getinfo(3), fi_av(3), fi_cm(3) over shm. */
#include "case.h"

static const struct want SHM = { .caps = FI_TAGGED, .provider = "shm" };

static struct fi_info *asked(const char *node, const char *service, uint64_t flags)
{
	struct fi_info *hints = hints_for(&SHM), *info = NULL;

	if (fi_getinfo(API, node, service, flags, hints, &info))
		info = NULL;
	fi_freeinfo(hints);
	return info;
}

CASE_OURS(names_of_nodes_and_services)
{
	struct fi_info *info = asked("job", NULL, 0);

	CHECK(info && !info->src_addr && !strcmp(info->dest_addr, "fi_shm://job"));
	CHECK(info->addr_format == FI_ADDR_STR && info->dest_addrlen == strlen("fi_shm://job") + 1);
	CHECK(info->ep_attr->protocol == FI_PROTO_SHM && !(info->caps & FI_REMOTE_COMM));
	fi_freeinfo(info);
	info = asked("fi_shm://job", NULL, FI_SOURCE);
	CHECK(info && !info->dest_addr && !strcmp(info->src_addr, "fi_shm://job"));
	fi_freeinfo(info);
	info = asked(NULL, "7", FI_SOURCE);
	CHECK(info && !strcmp(info->src_addr, "fi_ns://7"));
	fi_freeinfo(info);
	info = asked("job", "7", FI_SOURCE);
	CHECK(info && !strcmp(info->src_addr, "fi_ns://job:7"));
	fi_freeinfo(info);
	CHECK(!asked("fi_sockaddr_in://127.0.0.1:7", NULL, 0));
	CHECK(!asked("a name that is much too long for anybody to use it as the name of an endpoint", NULL, FI_SOURCE));
}

CASE_OURS(shm_has_no_layers)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	hints->fabric_attr->prov_name = strdup("shm;ofi_rxm");
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
}

CASE_OURS(a_chosen_name_is_the_endpoints)
{
	char name[64], unique[64], small[8];
	size_t len = sizeof(name);
	struct side s, t;
	struct fid_ep *other;
	struct pair p;

	snprintf(unique, sizeof(unique), "fi_shm://case-%d", (int) getpid());
	open_domain(&s, &SHM);
	CHECK(fi_endpoint(s.domain, s.info, &s.ep, NULL) == 0);
	CHECK(fi_setname(&s.ep->fid, unique, strlen(unique) + 1) == 0);
	CHECK(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(s.ep, &s.av->fid, 0) == 0);
	CHECK(fi_enable(s.ep) == 0);
	CHECK(fi_getname(&s.ep->fid, name, &len) == 0 && !strcmp(name, unique) && len == strlen(unique) + 1);
	len = sizeof(small);
	CHECK(fi_getname(&s.ep->fid, small, &len) == -FI_ETOOSMALL && len == strlen(unique) + 1);
	/* It is taken. */
	CHECK(fi_endpoint(s.domain, s.info, &other, NULL) == 0);
	CHECK(fi_setname(&other->fid, unique, strlen(unique) + 1) == 0);
	CHECK(fi_ep_bind(other, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(other, &s.av->fid, 0) == 0);
	CHECK(fi_enable(other) == -FI_EADDRINUSE);
	CHECK(fi_close(&other->fid) == 0);
	/* And it works. */
	open_side(&t, &SHM);
	p.to_b = insert(&t, unique);
	POST(fi_tinject(t.ep, "hello", 6, p.to_b, 1));
	POST(fi_trecv(s.ep, small, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
	done(&s, &t, &contexts[0]);
	CHECK(!strcmp(small, "hello"));
	close_side(&t);
	close_side(&s);
}

/* Strings come by an array of pointers, as the manual says, or one behind the other, as fi_getname gives them. */
CASE_OURS(av_strings_either_way)
{
	const char *pointers[2] = { "fi_shm://one", "fi_shm://second" };
	char behind[] = "fi_shm://one\0fi_shm://third", back[64];
	fi_addr_t handles[2];
	size_t len;
	struct side s;

	open_side(&s, &SHM);
	CHECK(fi_av_insert(s.av, pointers, 2, handles, 0, NULL) == 2 && handles[0] == 0 && handles[1] == 1);
	CHECK(fi_av_insert(s.av, behind, 2, handles, 0, NULL) == 2 && handles[0] == 0 && handles[1] == 2);
	len = sizeof(back);
	CHECK(fi_av_lookup(s.av, 2, back, &len) == 0 && !strcmp(back, "fi_shm://third") && len == 15);
	CHECK(fi_av_insertsvc(s.av, "job", "7", handles, 0, NULL) == 1 && handles[0] == 3);
	len = sizeof(back);
	CHECK(fi_av_straddr(s.av, "fi_ns://job:7", back, &len) == back && !strcmp(back, "fi_ns://job:7"));
	close_side(&s);
}

/* Names that endpoints get by themselves are all as long: tables of them have one stride. */
CASE_OURS(names_have_one_length)
{
	struct side a, b;

	open_side(&a, &SHM);
	open_side(&b, &SHM);
	CHECK(a.len == b.len && a.len <= 64 && strlen(a.name) + 1 == a.len && strcmp(a.name, b.name));
	close_side(&a);
	close_side(&b);
}
