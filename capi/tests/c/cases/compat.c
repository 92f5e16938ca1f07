/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Compatibility with programs written for earlier releases. */
#include "getinfo.h"
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_rma.h>
#include <stddef.h>

CASE(compat_old_mode_bits_harmless)
{
	const uint64_t old = 1ULL << 51 | 1ULL << 53 | 1ULL << 54;
	struct fi_info *hints = plain(), *list, *i;
	int all;

#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	CHECK(!FI_RESTRICTED_COMP && !FI_NOTIFY_FLAGS_ONLY && !FI_VARIABLE_MSG);
#ifdef FI_BUFFERED_RECV
	CHECK(!"FI_BUFFERED_RECV is in the headers");
#endif
#endif
	CHECK(FI_LOCAL_COMM == 1ULL << 51);
	hints->mode = ~old;
	all = matches(hints);
	hints->mode = ~0ULL;
	CHECK(all > 0 && matches(hints) == all);
	fi_freeinfo(hints);
	/* Callers before 2.0 get the first, FI_BUFFERED_RECV; otherwise none is in the results. */
	hints = of("tcp", FI_EP_RDM);
	hints->mode = old;
	CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
	for (i = list; i; i = i->next)
		if (!strcmp(i->fabric_attr->prov_name, "tcp"))
			CHECK(i->mode == (API < FI_VERSION(2, 0) ? 1ULL << 51 : 0));
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(compat_removed_values_nomatch)
{
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	CHECK(FI_EP_SOCK_STREAM == 0);
#endif
	WITH(plain(), h->ep_attr->type = 4, 0);
	WITH(plain(), h->ep_attr->type = 5, 0);
	/* Before 1.21 it is FI_VARIABLE_MSG (variable_messages_are_offered). */
	if (API >= FI_VERSION(1, 21))
		WITH(of("tcp", FI_EP_RDM), h->caps = FI_MSG | 1ULL << 48, 0);
}

/* These levels are deprecated, and restrict the caller more than the library needs. */
CASE_OURS(compat_thread_levels_served)
{
	static const int levels[] = { 2, 5 };
	struct fi_info *list;
	size_t i;

	for (i = 0; i < ARRAY(levels); i++) {
		struct want w = { .caps = FI_TAGGED, .threading = (enum fi_threading) levels[i] };
		struct fi_info *hints = of("tcp", FI_EP_RDM);
		struct pair p;
		char in[8];

		hints->domain_attr->threading = (enum fi_threading) levels[i];
		CHECK(ask(API, NULL, NULL, 0, hints, &list) == 0);
		CHECK((int) list->domain_attr->threading == levels[i]);
		fi_freeinfo(list);
		CHECK(ask(FI_VERSION(1, 11), NULL, NULL, 0, hints, &list) == 0);
		CHECK((int) list->domain_attr->threading == levels[i]);
		fi_freeinfo(list);
		fi_freeinfo(hints);
		meet(&p, &w);
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
		done(&p.b, &p.a, &contexts[0]);
		part(&p);
	}
	WITH(of("tcp", FI_EP_RDM), h->domain_attr->threading = 9, 0);
}

CASE_OURS(compat_obsolete_attrs_nomatch)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	hints->rx_attr->total_buffered_recv = 64 << 10;
	CHECK(ask(FI_VERSION(2, 0), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	/* Callers of 1.x get the size that the credits of a link provide anyway. */
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->rx_attr->total_buffered_recv == 64 << 10);
	fi_freeinfo(list);
	/* Credits beyond that depend on the number of links: a larger hint is adjusted. */
	hints->rx_attr->total_buffered_recv = 1 << 30;
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == 0);
	CHECK(list->rx_attr->total_buffered_recv == 64 << 10);
	fi_freeinfo(list);
	CHECK(ask(FI_VERSION(2, 0), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	hints->rx_attr->total_buffered_recv = 0;
	/* Completions in posting order are not supported. */
	hints->tx_attr->comp_order = 1;
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	CHECK(ask(FI_VERSION(2, 0), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	hints->tx_attr->comp_order = 0;
	hints->rx_attr->comp_order = 1;
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	CHECK(ask(FI_VERSION(2, 0), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	hints->rx_attr->comp_order = 0;
	CHECK(ask(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) == 0 && list->rx_attr->total_buffered_recv == 0);
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(compat_control_progress_ignored)
{
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;

	CHECK(offsetof(struct fi_domain_attr, control_progress) == 20 && offsetof(struct fi_domain_attr, data_progress) == 24);
	hints->domain_attr->control_progress = 99;
	CHECK(ask(FI_VERSION(2, 0), NULL, NULL, 0, hints, &list) == 0);
	fi_freeinfo(list);
	/* Only data_progress matters. */
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
	CHECK(ask(FI_VERSION(2, 0), NULL, NULL, 0, hints, &list) == 0 && list->domain_attr->data_progress == FI_PROGRESS_AUTO);
	fi_freeinfo(list);
	hints->domain_attr->data_progress = 99;
	CHECK(matches(hints) == 0);
	fi_freeinfo(hints);
}

/* Before 2.0 the two models are separate; a model that the hints name is that of the info. */
CASE_OURS(compat_control_progress_before_2_0)
{
	static const enum fi_progress models[] = {
		FI_PROGRESS_UNSPEC, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL,
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
		FI_PROGRESS_CONTROL_UNIFIED,
#endif
	};
	struct fi_info *hints = of("tcp", FI_EP_RDM), *list;
	size_t c, d;

	for (c = 0; c < ARRAY(models); c++)
		for (d = 0; d < ARRAY(models); d++) {
			hints->domain_attr->control_progress = models[c];
			hints->domain_attr->data_progress = models[d];
			CHECK(ask(FI_VERSION(1, 9), NULL, NULL, 0, hints, &list) == 0);
			CHECK(!c || list->domain_attr->control_progress == models[c]);
			CHECK(!d || list->domain_attr->data_progress == models[d]);
			CHECK(list->domain_attr->control_progress && list->domain_attr->data_progress);
			fi_freeinfo(list);
		}
	hints->domain_attr->control_progress = 99;
	CHECK(ask(FI_VERSION(1, 9), NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
}

CASE_OURS(compat_newer_names_compile)
{
	/* The headers have all names of releases up to 2.5, which compile and link. */
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 5))
	static const uint64_t bits[] = {
		FI_MATCH_COMPLETE, FI_COLLECTIVE, FI_HMEM, FI_ORDER_RMA_RAR, FI_ORDER_RMA_RAW, FI_ORDER_RMA_WAR, FI_ORDER_RMA_WAW,
		FI_ORDER_ATOMIC_RAR, FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_ATOMIC_WAW, FI_AV_USER_ID, FI_PEER,
		FI_MR_DMABUF, FI_MR_SINGLE_USE, FI_TAGGED_DIRECTED_RECV, FI_EXACT_DIRECTED_RECV, FI_TAGGED_MULTI_RECV,
		FI_FIREWALL_ADDR, FI_RESCAN, FI_AV_AUTH_KEY,
	};
	static const int numbers[] = {
		FI_MR_HMEM, FI_TC_LOW_LATENCY, FI_HMEM_CUDA, FI_WAIT_YIELD, FI_WAIT_POLLFD, FI_PROGRESS_CONTROL_UNIFIED,
		FI_CNTR_EVENTS_BYTES, FI_FLOAT16, FI_BFLOAT16, FI_FLOAT8_E4M3, FI_FLOAT8_E5M2, FI_DIFF, FI_GET_FD, FI_SOCKADDR_IP,
		FI_ALLREDUCE,
	};
	const void *const calls[] = {
		fi_set_ops, fi_domain2, fi_endpoint2, fi_barrier, fi_barrier2, fi_av_set, fi_join_collective, fi_query_collective,
		fi_av_insert_auth_key, fi_av_set_user_id, fi_group_addr, fi_fabric2,
	};
	struct fi_mr_attr mr = { .page_size = 1, .base_mr = NULL, .sub_mr_cnt = 1 };
	struct fi_cq_err_entry err = { .src_addr = FI_ADDR_NOTAVAIL };
	struct fi_domain_attr domain = { .tclass = 1, .max_ep_auth_key = 1, .max_cntr_value = 1, .max_err_cntr_value = 1 };
	struct fi_info *hints = of("tcp", FI_EP_RDM);
	size_t n;

	CHECK(mr.page_size && err.src_addr && domain.max_cntr_value && sizeof(struct fid_nic) && sizeof(struct fi_mr_dmabuf));
	for (n = 0; n < ARRAY(bits); n++)
		CHECK(bits[n]);
	for (n = 0; n < ARRAY(numbers); n++)
		CHECK(numbers[n] > 0);
	for (n = 0; n < ARRAY(calls); n++)
		CHECK(calls[n]);
	/* fi_getinfo knows the newer fields. */
	hints->domain_attr->max_group_id = 7;
	CHECK(matches(hints) == 0);
	hints->domain_attr->max_group_id = 0;
	hints->ep_attr->mem_tag_format = FI_TAG_MPI;
	CHECK(matches(hints) > 0);
	hints->ep_attr->mem_tag_format = FI_TAG_CCL;
	CHECK(matches(hints) > 0);
	fi_freeinfo(hints);
#else
	SKIP("these headers are older");
#endif
}

static const char *const everywhere[] = { "tcp", "tcp;ofi_rxm", "shm", "udp" };

static struct want over(const char *provider)
{
	return (struct want) { .provider = provider, .type = strcmp(provider, "udp") ? FI_EP_RDM : FI_EP_DGRAM };
}

static struct fid_wait *wait_set;

static struct fid_wait *the_set(struct fid_fabric *fabric)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_FD };

	CHECK(fi_wait_open(fabric, &attr, &wait_set) == 0);
	return wait_set;
}

/* Sends while the other thread waits, or just before. */
static void *sender(void *arg)
{
	struct pair *p = arg;

	POST(fi_send(p->a.ep, "x", 1, NULL, p->to_b, &contexts[1]));
	done(&p->a, NULL, &contexts[1]);
	return NULL;
}

/* Deprecated only as a compiler attribute. */
CASE_OURS(sets_on_every_provider)
{
	struct fi_cq_tagged_entry entry;
	struct fid_poll *set;
	pthread_t thread;
	struct pair p;
	void *context;
	char in[8];
	size_t i;

	for (i = 0; i < ARRAY(everywhere); i++) {
		struct want w = over(everywhere[i]);
		double end = seconds() + 10;

		open_side(&p.a, &w);
		w.set = the_set;
		open_side(&p.b, &w);
		p.to_b = insert(&p.a, p.b.name);
		CHECK(fi_poll_open(p.b.domain, NULL, &set) == 0);
		CHECK(fi_poll_add(set, &p.b.cq->fid, 0) == 0);
		CHECK(fi_poll(set, &context, 1) == 0);
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		CHECK(pthread_create(&thread, NULL, sender, &p) == 0);
		do
			CHECK(fi_wait(wait_set, 10000) == 0 && seconds() < end);
		while (fi_poll(set, &context, 1) == 0);
		CHECK(fi_cq_read(p.b.cq, &entry, 1) == 1 && entry.op_context == &contexts[0]);
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(fi_poll_del(set, &p.b.cq->fid, 0) == 0 && fi_close(&set->fid) == 0);
		CHECK(fi_close(&p.b.ep->fid) == 0 && fi_close(&p.b.cq->fid) == 0);
		p.b.ep = NULL;
		p.b.cq = NULL;
		CHECK(fi_close(&wait_set->fid) == 0);
		part(&p);
	}
}

CASE_OURS(yielding_on_every_provider)
{
	struct fi_cq_tagged_entry entry;
	pthread_t thread;
	struct pair p;
	char in[8];
	size_t i;

	for (i = 0; i < ARRAY(everywhere); i++) {
		struct want w = over(everywhere[i]);

		w.wait = FI_WAIT_YIELD;
		meet(&p, &w);
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		CHECK(pthread_create(&thread, NULL, sender, &p) == 0);
		CHECK(fi_cq_sread(p.b.cq, &entry, 1, NULL, 10000) == 1 && entry.op_context == &contexts[0]);
		CHECK(pthread_join(thread, NULL) == 0);
		part(&p);
	}
}

CASE_OURS(compat_av_types)
{
	struct fi_av_attr attr = { .type = FI_AV_MAP };
	unsigned char addrs[2][16] = { { 2, 0, 1, 0, 10, 0, 0, 1 }, { 2, 0, 1, 0, 10, 0, 0, 2 } };
	fi_addr_t handles[2] = { 77, 77 };
	struct fid_domain *domain;
	struct fid_av *av;
	struct side s;

	open_domain(&s, &RDM);
	/* The handles of a map are indices, like those of a table. */
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == 0);
	CHECK(fi_av_insert(av, addrs, 2, handles, 0, NULL) == 2 && handles[0] == 0 && handles[1] == 1);
	CHECK(fi_close(&av->fid) == 0);
	/* An unspecified type becomes the domain's, or FI_AV_TABLE. */
	attr.type = FI_AV_UNSPEC;
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == 0 && attr.type == FI_AV_TABLE && fi_close(&av->fid) == 0);
	s.info->domain_attr->av_type = FI_AV_MAP;
	CHECK(fi_domain(s.fabric, s.info, &domain, NULL) == 0);
	attr.type = FI_AV_UNSPEC;
	CHECK(fi_av_open(domain, &attr, &av, NULL) == 0 && attr.type == FI_AV_MAP && fi_close(&av->fid) == 0);
	CHECK(fi_close(&domain->fid) == 0);
	close_side(&s);
}

/* A peek reports a message and leaves the buffer unchanged. */
CASE(compat_peek_has_no_payload)
{
	struct fi_msg_tagged msg = { .addr = FI_ADDR_UNSPEC, .tag = 5, .iov_count = 1, .context = &contexts[0] };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	double end = seconds() + 10;
	struct iovec iov;
	struct pair p;
	char in[64];
	int ret;

	/* For earlier callers it has (compat_peek_copies). */
	if (API < FI_VERSION(2, 0))
		return;
	memset(in, 'x', sizeof(in));
	iov = (struct iovec) { in, sizeof(in) };
	msg.msg_iov = &iov;
	meet(&p, &RDM);
	POST(fi_tsend(p.a.ep, "hello", 6, NULL, p.to_b, 5, &contexts[1]));
	do {
		fi_cq_read(p.a.cq, NULL, 0);
		POST(fi_trecvmsg(p.b.ep, &msg, FI_PEEK));
		ret = next(&p.b, &p.a, &entry, &err, 10);
		CHECK(ret == 1 || (ret == 0 && err.err == FI_ENOMSG));
	} while (ret != 1 && seconds() < end);
	CHECK(ret == 1 && entry.len == 6 && entry.tag == 5 && !(entry.flags & (FI_MORE | FI_CLAIM)));
	for (ret = 0; ret < (int) sizeof(in); ret++)
		CHECK(in[ret] == 'x');
	POST(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 5, 0, &contexts[0]));
	done(&p.b, &p.a, &contexts[0]);
	CHECK(!strcmp(in, "hello"));
	part(&p);
}

CASE(compat_alias_takes_no_trigger)
{
	struct fid_ep *alias;
	struct pair p;

	meet(&p, &RDM);
	CHECK(fi_ep_alias(p.a.ep, &alias, FI_TRIGGER) < 0);
	CHECK(fi_ep_alias(p.a.ep, &alias, FI_TRANSMIT | FI_RECV | FI_TRIGGER) < 0);
	part(&p);
}
