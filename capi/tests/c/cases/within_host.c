/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Names of shm endpoints: fi_getinfo(3), fi_av(3), fi_cm(3). */
#include <sys/mman.h>
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

	CHECK(info && !strcmp(info->dest_addr, "fi_shm://job"));
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
	/* An address string without a scheme is a node and a service. */
	info = asked("://job:7", NULL, FI_SOURCE);
	CHECK(info && !strcmp(info->src_addr, "fi_ns://job:7"));
	fi_freeinfo(info);
	CHECK(!asked("fi_sockaddr_in://127.0.0.1:7", NULL, 0));
	CHECK(!asked("a name that is much too long for anybody to use it as the name of an endpoint", NULL, FI_SOURCE));
}

/*
 * IP providers take no name as source or destination: only shm matches, with or without the format.
 */
CASE_OURS(source_names_match_only_shm)
{
	static const uint32_t formats[] = { FI_FORMAT_UNSPEC, FI_ADDR_STR };
	struct fi_info *hints, *info, *i;
	size_t f;
	int dest;

	for (f = 0; f < ARRAY(formats); f++)
		for (dest = 0; dest < 2; dest++) {
			hints = fi_allocinfo();
			hints->addr_format = formats[f];
			*(dest ? &hints->dest_addr : &hints->src_addr) = strdup("fi_shm://job");
			*(dest ? &hints->dest_addrlen : &hints->src_addrlen) = strlen("fi_shm://job") + 1;
			CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == 0);
			for (i = info; i; i = i->next) {
				CHECK(!strcmp(i->fabric_attr->prov_name, "shm") && i->addr_format == FI_ADDR_STR);
				CHECK(!strcmp(dest ? i->dest_addr : i->src_addr, "fi_shm://job"));
			}
			fi_freeinfo(info);
			fi_freeinfo(hints);
		}
}

/* A node with a scheme is a complete address and takes no service. */
CASE_OURS(service_with_an_address_is_refused)
{
	struct fi_info *info, *i;

	CHECK(!asked("fi_shm://job", "7", 0));
	CHECK(fi_getinfo(API, "fi_sockaddr_in://127.0.0.1:4711", "80", 0, NULL, &info) == -FI_ENODATA);
	CHECK(fi_getinfo(API, "fi_sockaddr_in://127.0.0.1:4711", NULL, 0, NULL, &info) == 0);
	for (i = info; i; i = i->next)
		CHECK(strcmp(i->fabric_attr->prov_name, "shm"));
	fi_freeinfo(info);
}

/* Every info has the name of its future endpoint. */
CASE_OURS(names_of_sources)
{
	static const struct { const char *node, *service; uint64_t flags; } queries[] = {
		{ NULL, NULL, 0 }, { "job", NULL, 0 }, { NULL, "7", 0 }, { "job", "7", 0 }, { "job", NULL, FI_SOURCE },
		{ NULL, "7", FI_SOURCE }, { "job", "7", FI_SOURCE },
	};
	size_t q;

	for (q = 0; q < ARRAY(queries); q++) {
		struct fi_info *info = asked(queries[q].node, queries[q].service, queries[q].flags);

		CHECK(info && info->src_addr && info->src_addrlen == strlen(info->src_addr) + 1);
		fi_freeinfo(info);
	}
}

/* Checks for a random name: the source if the application gives none. */
static void has_random_name(const struct fi_info *info)
{
	const char *name = info->src_addr;

	CHECK(name && info->src_addrlen == strlen(name) + 1 && info->src_addrlen == 42);
	CHECK(!strncmp(name, "fi_shm://", 9) && strspn(name + 9, "0123456789abcdef") == 32);
}

/* Every info has a source, a fresh one if the query gives none. */
CASE_OURS(shm_infos_have_a_source)
{
	static const struct { const char *node, *service; uint64_t flags; const char *src, *dest; } queries[] = {
		{ NULL, NULL, 0, NULL, NULL }, { "job", NULL, 0, NULL, "fi_shm://job" }, { NULL, "7", 0, NULL, "fi_ns://7" },
		{ "job", "7", 0, NULL, "fi_ns://job:7" }, { "job", NULL, FI_SOURCE, "fi_shm://job", NULL },
		{ NULL, "7", FI_SOURCE, "fi_ns://7", NULL }, { "job", "7", FI_SOURCE, "fi_ns://job:7", NULL },
		{ "job", NULL, FI_NUMERICHOST, NULL, "fi_shm://job" },
	};
	static const enum fi_ep_type types[] = { FI_EP_RDM, FI_EP_MSG };
	struct fi_info *info, *again;
	size_t q, t;

	for (q = 0; q < ARRAY(queries); q++)
		for (t = 0; t < ARRAY(types); t++) {
			struct want w = { .type = types[t], .provider = "shm" };
			struct fi_info *hints = hints_for(&w);

			CHECK(fi_getinfo(API, queries[q].node, queries[q].service, queries[q].flags, hints, &info) == 0);
			CHECK(!info->next && info->src_addr && info->src_addrlen == strlen(info->src_addr) + 1);
			if (queries[q].src)
				CHECK(!strcmp(info->src_addr, queries[q].src));
			else
				has_random_name(info);
			CHECK(!info->dest_addr == !queries[q].dest);
			CHECK(!info->dest_addr || !strcmp(info->dest_addr, queries[q].dest));
			CHECK(fi_getinfo(API, queries[q].node, queries[q].service, queries[q].flags, hints, &again) == 0);
			CHECK(!strcmp(info->src_addr, again->src_addr) == !!queries[q].src);
			fi_freeinfo(again);
			fi_freeinfo(info);
			fi_freeinfo(hints);
		}
	/* With NULL hints too. */
	CHECK(fi_getinfo(API, NULL, NULL, 0, NULL, &info) == 0);
	for (again = info; again; again = again->next)
		CHECK(again->src_addr && again->src_addrlen);
	fi_freeinfo(info);
}

/* The first endpoint takes the name in its info; another one of the same info gets its own name. */
CASE_OURS(info_name_goes_to_the_first_endpoint)
{
	char names[3][64], in[8] = "";
	struct fid_ep *ep[3];
	size_t len, i;
	struct side s, t;

	open_domain(&s, &SHM);
	for (i = 0; i < ARRAY(ep); i++) {
		open_ep(&s, s.info);
		ep[i] = s.ep;
		s.ep = NULL;
		len = sizeof(names[i]);
		CHECK(fi_getname(&ep[i]->fid, names[i], &len) == 0 && len == s.info->src_addrlen);
		CHECK(!strcmp(names[i], s.info->src_addr) == (i == 0));
		/* The second opens while the first is open, the third after it is closed. */
		if (i == 1)
			CHECK(fi_close(&ep[0]->fid) == 0);
	}
	CHECK(strcmp(names[1], names[2]));
	/* All open ones can be reached. */
	open_side(&t, &SHM);
	for (i = 1; i < ARRAY(ep); i++) {
		POST(fi_trecv(ep[i], in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[i]));
		POST(fi_tinject(t.ep, "hello", 6, insert(&t, names[i]), 1));
		done(&s, &t, &contexts[i]);
		CHECK(!strcmp(in, "hello"));
		CHECK(fi_close(&ep[i]->fid) == 0);
	}
	close_side(&t);
	close_side(&s);
}

CASE_OURS(shm_has_no_layers)
{
	struct fi_info *hints = fi_allocinfo(), *info, *i;

	hints->fabric_attr->prov_name = strdup("shm;ofi_rxm");
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = strdup("shm");
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == 0);
	for (i = info; i; i = i->next)
		CHECK(!strcmp(i->fabric_attr->prov_name, "shm"));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* shm reaches only this host, and reports that. */
CASE_OURS(shm_reaches_only_this_host)
{
	struct fi_info *hints = hints_for(&SHM), *info;

	hints->caps |= FI_LOCAL_COMM;
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == 0);
	CHECK(info->caps & FI_LOCAL_COMM && !((info->caps | info->domain_attr->caps) & FI_REMOTE_COMM));
	fi_freeinfo(info);
	hints->caps |= FI_REMOTE_COMM;
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
}

/* shm's names have letters, so case could matter. */
CASE_OURS(names_of_fabric_and_domain_ignore_case)
{
	struct fi_info *hints = hints_for(&SHM), *info;

	hints->fabric_attr->name = strdup("SHM");
	hints->domain_attr->name = strdup("sHm");
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == 0);
	CHECK(!strcmp(info->fabric_attr->name, "shm") && !strcmp(info->domain_attr->name, "shm"));
	fi_freeinfo(info);
	hints->fabric_attr->name[2] = 0;
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
}

/* A node alone is no unique name: endpoints of one info, and of several processes, can share it (fi_shm(7)). */
CASE(endpoints_of_one_node_have_names_of_their_own)
{
	struct fi_info *hints = hints_for(&SHM), *info;
	struct fid_ep *others[2];
	char node[32], names[3][64], in[8];
	struct side s, t;
	fi_addr_t to;
	size_t len, i;

	snprintf(node, sizeof(node), "node-%d", (int) getpid());
	CHECK(fi_getinfo(API, node, NULL, FI_SOURCE, hints, &info) == 0);
	open_domain(&s, &SHM);
	fi_freeinfo(s.info);
	s.info = info;
	open_ep(&s, info);
	for (i = 0; i < 3; i++) {
		struct fid_ep **ep = i ? &others[i - 1] : &s.ep;

		if (i) {
			CHECK(fi_endpoint(s.domain, info, ep, NULL) == 0);
			CHECK(fi_ep_bind(*ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
			CHECK(fi_ep_bind(*ep, &s.av->fid, 0) == 0 && fi_enable(*ep) == 0);
		}
		len = sizeof(names[i]);
		CHECK(fi_getname(&(*ep)->fid, names[i], &len) == 0 && strstr(names[i], node));
	}
	CHECK(strcmp(names[0], names[1]) && strcmp(names[1], names[2]) && strcmp(names[0], names[2]));
	/* Each is reached by its name. */
	open_side(&t, &SHM);
	for (i = 0; i < 3; i++) {
		to = insert(&t, names[i]);
		POST(fi_trecv(i ? others[i - 1] : s.ep, in, 8, NULL, FI_ADDR_UNSPEC, i, 0, &contexts[i]));
		POST(fi_tsend(t.ep, "hello", 6, NULL, to, i, &contexts[4]));
		done(&s, &t, &contexts[i]);
		done(&t, &s, &contexts[4]);
	}
	CHECK(fi_close(&others[0]->fid) == 0 && fi_close(&others[1]->fid) == 0);
	close_side(&t);
	close_side(&s);
	fi_freeinfo(hints);
}

CASE_OURS(chosen_name_is_the_endpoint_name)
{
	char name[64], unique[64], small[8];
	size_t len = sizeof(name);
	struct side s, t;
	struct fid_ep *other;
	struct pair p;

	snprintf(unique, sizeof(unique), "fi_ns://case-%d", (int) getpid());
	open_domain(&s, &SHM);
	CHECK(fi_endpoint(s.domain, s.info, &s.ep, NULL) == 0);
	CHECK(fi_setname(&s.ep->fid, unique, strlen(unique) + 1) == 0);
	CHECK(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(s.ep, &s.av->fid, 0) == 0);
	CHECK(fi_enable(s.ep) == 0);
	CHECK(fi_getname(&s.ep->fid, name, &len) == 0 && !strcmp(name, unique) && len == strlen(unique) + 1);
	len = sizeof(small);
	CHECK(fi_getname(&s.ep->fid, small, &len) == -FI_ETOOSMALL && len == strlen(unique) + 1);
	/* The name is taken. */
	CHECK(fi_endpoint(s.domain, s.info, &other, NULL) == 0);
	CHECK(fi_setname(&other->fid, unique, strlen(unique) + 1) == 0);
	CHECK(fi_ep_bind(other, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(other, &s.av->fid, 0) == 0);
	CHECK(fi_enable(other) == -FI_EADDRINUSE);
	CHECK(fi_close(&other->fid) == 0);
	/* The endpoint works. */
	open_side(&t, &SHM);
	p.to_b = insert(&t, unique);
	POST(fi_tinject(t.ep, "hello", 6, p.to_b, 1));
	POST(fi_trecv(s.ep, small, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]));
	done(&s, &t, &contexts[0]);
	CHECK(!strcmp(small, "hello"));
	close_side(&t);
	close_side(&s);
}

/*
 * Strings are passed as an array of pointers, as in the manual, or back to back, as from
 * fi_getname.
 */
CASE_OURS(av_strings_by_pointer_or_packed)
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

/* A string may lie where the bytes of a pointer to it look like the beginning of a string. */
CASE_OURS(av_strings_at_any_address)
{
	/* The low bytes of the address are "fi_"; it lies where AddressSanitizer keeps nothing. */
	char *place = (char *) 0x2000005f6966, *page = (char *) ((uintptr_t) place & ~4095UL);
	const char *pointers[1] = { place };
	fi_addr_t handle;
	struct side s;
	char name[64];
	size_t len = sizeof(name);

	CHECK(mmap(page, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page);
	strcpy(place, "fi_shm://one");
	open_side(&s, &SHM);
	CHECK(fi_av_insert(s.av, pointers, 1, &handle, 0, NULL) == 1);
	CHECK(fi_av_lookup(s.av, handle, name, &len) == 0 && !strcmp(name, place));
	close_side(&s);
	munmap(page, 8192);
}

/* Random names all have the same length, so that tables of them have one stride. */
CASE_OURS(names_have_one_length)
{
	struct side a, b;

	open_side(&a, &SHM);
	open_side(&b, &SHM);
	CHECK(a.len == b.len && a.len <= 64 && strlen(a.name) + 1 == a.len && strcmp(a.name, b.name));
	CHECK(!strncmp(a.name, "fi_shm://", 9) && !strncmp(b.name, "fi_shm://", 9));
	close_side(&a);
	close_side(&b);
}

/* An endpoint opened with the handle of a passive one takes over its name. */
CASE_OURS(name_of_a_passive_endpoint_moves)
{
	struct want w = { .type = FI_EP_MSG, .provider = "shm" };
	char name[64], taken[64];
	size_t len = sizeof(name), full = sizeof(taken);
	struct fi_info *info;
	struct fid_pep *pep;
	struct fid_ep *ep;
	struct side s;

	open_domain(&s, &w);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	info = fi_dupinfo(s.info);
	info->handle = &pep->fid;
	CHECK(fi_endpoint(s.domain, info, &ep, NULL) == 0);
	CHECK(fi_getname(&ep->fid, taken, &full) == 0 && full == len && !memcmp(taken, name, len));
	CHECK(fi_close(&ep->fid) == 0 && fi_close(&pep->fid) == 0);
	fi_freeinfo(info);
	close_side(&s);
}
