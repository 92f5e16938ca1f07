/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Effects of one-sided operations and of their flags and limits (fi_rma(3), fi_atomic(3)). */
#include <complex.h>
#include "sided.h"

static _Alignas(32) uint8_t there[1 << 20];
static uint8_t here[1 << 20];

/* The flags of the call replace the endpoint's defaults. */
CASE(rma_flags_of_messages_replace_defaults)
{
	struct want w = SIDED;
	struct pair p;
	struct region r;

	w.bind = FI_SELECTIVE_COMPLETION;
	w.tx_flags = FI_COMPLETION;
	meet(&p, &w);
	expose(&p.b, &r, there, sizeof(there));
	POST(fi_write(p.a.ep, here, 8, NULL, p.to_b, r.addr, r.key, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	POST(fi_writemsg(p.a.ep, access_to(&p, &r, here, 0, 8, &contexts[2]), 0));
	POST(fi_readmsg(p.a.ep, access_to(&p, &r, here, 0, 8, &contexts[2]), 0));
	quiet(&p.a, &p.b);
	POST(fi_writemsg(p.a.ep, access_to(&p, &r, here, 0, 8, &contexts[2]), FI_COMPLETION));
	done(&p.a, &p.b, &contexts[2]);
	hide(&r);
	part(&p);
}

/* A write that is complete at FI_TRANSMIT_COMPLETE no longer needs its endpoint. */
CASE_OURS(rma_transmitted_writes_outlive_their_endpoint)
{
	struct pair p;
	struct region r;
	int i;

	for (i = 0; i < 5; i++) {
		memset(there, 0, sizeof(there));
		memset(here, 7, sizeof(here));
		meet(&p, &SIDED);
		expose(&p.b, &r, there, sizeof(there));
		POST(fi_writemsg(p.a.ep, access_to(&p, &r, here, 0, sizeof(here), &contexts[2]),
			FI_COMPLETION | FI_TRANSMIT_COMPLETE));
		done(&p.a, &p.b, &contexts[2]);
		CHECK(fi_close(&p.a.ep->fid) == 0);
		p.a.ep = NULL;
		memset(here, 0, sizeof(here));
		arrives(there, (uint8_t []) { 7 }, 1);
		arrives(there + sizeof(there) - 1, (uint8_t []) { 7 }, 1);
		CHECK(!memcmp(there, there + 1, sizeof(there) - 1));
		hide(&r);
		part(&p);
	}
}

/* No provider requires FI_RX_CQ_DATA, even if the program supports it. */
CASE_OURS(rma_data_takes_no_receive)
{
	struct fi_info *hints = hints_for(&SIDED), *info, *each;
	int local = within_host(&SIDED);

	hints->mode |= FI_RX_CQ_DATA;
	hints->rx_attr->mode = FI_RX_CQ_DATA;
	CHECK(fi_getinfo(API, local ? NULL : own_node(), NULL, local ? 0 : FI_SOURCE, hints, &info) == 0);
	for (each = info; each; each = each->next)
		CHECK(!(each->mode & FI_RX_CQ_DATA) && !(each->rx_attr->mode & FI_RX_CQ_DATA));
	fi_freeinfo(hints);
	fi_freeinfo(info);
}

/* Completions of remote writes with data go to the target's receive queue. */
CASE(ep_remote_writes_reach_the_receive_queue)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cq_tagged_entry entry;
	struct fid_cq *tx;
	struct pair p;
	struct region r;

	open_side(&p.a, &SIDED);
	open_domain(&p.b, &SIDED);
	CHECK(fi_cq_open(p.b.domain, &attr, &tx, NULL) == 0);
	CHECK(fi_endpoint(p.b.domain, p.b.info, &p.b.ep, NULL) == 0);
	CHECK(fi_ep_bind(p.b.ep, &tx->fid, FI_TRANSMIT) == 0);
	CHECK(fi_ep_bind(p.b.ep, &p.b.cq->fid, FI_RECV) == 0);
	enable_ep(&p.b);
	p.to_b = insert(&p.a, p.b.name);
	expose(&p.b, &r, there, sizeof(there));
	POST(fi_writedata(p.a.ep, here, 8, NULL, 6, p.to_b, r.addr, r.key, &contexts[1]));
	entry = done(&p.b, &p.a, NULL);
	CHECK(entry.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA) && entry.data == 6);
	done(&p.a, &p.b, &contexts[1]);
	CHECK(fi_cq_read(tx, &entry, 1) == -FI_EAGAIN);
	hide(&r);
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	CHECK(fi_close(&tx->fid) == 0);
	part(&p);
}

/* The application may reuse the operand after the completion. */
CASE(atomic_operands_can_be_reused)
{
	uint64_t operands[512], i, j, *words = (uint64_t *) there;
	struct pair p;
	struct region r;
	size_t count;

	meet(&p, &SIDED);
	if (fi_atomicvalid(p.a.ep, FI_UINT64, FI_SUM, &count))
		SKIP("no such atomics");
	count = count < ARRAY(operands) ? count : ARRAY(operands);
	memset(there, 0, sizeof(there));
	expose(&p.b, &r, there, sizeof(there));
	for (i = 1; i <= 50; i++) {
		for (j = 0; j < count; j++)
			operands[j] = i + j;
		POST(fi_atomic(p.a.ep, operands, count, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[1]));
		done(&p.a, &p.b, &contexts[1]);
		memset(operands, 0xff, sizeof(operands));
	}
	for (j = 0; j < count; j++)
		arrives(&words[j], (uint64_t []) { 50 * 51 / 2 + 50 * j }, 8);
	hide(&r);
	part(&p);
}

CASE(atomic_inject_is_limited)
{
	uint64_t operands[4096] = { 1, 2 };
	const size_t bounds[] = { 0, 64 };
	struct pair p;
	struct region r;
	size_t i, most, count;

	for (i = 0; i < ARRAY(bounds); i++) {
		open_domain(&p.a, &SIDED);
		if (bounds[i])
			p.a.info->tx_attr->inject_size = bounds[i];
		open_ep(&p.a, p.a.info);
		open_side(&p.b, &SIDED);
		p.to_b = insert(&p.a, p.b.name);
		if (fi_atomicvalid(p.a.ep, FI_UINT64, FI_ATOMIC_WRITE, &count))
			SKIP("no such atomics");
		memset(there, 0, sizeof(there));
		expose(&p.b, &r, there, sizeof(there));
		most = p.a.info->tx_attr->inject_size / 8;
		most = most < count ? most : count;
		CHECK(most >= 8 && most < ARRAY(operands));
		POST(fi_inject_atomic(p.a.ep, operands, most, p.to_b, r.addr, r.key, FI_UINT64, FI_ATOMIC_WRITE));
		arrives(there, operands, 16);
		CHECK(fi_inject_atomic(p.a.ep, operands, p.a.info->tx_attr->inject_size / 8 + 1, p.to_b, r.addr, r.key,
			FI_UINT64, FI_ATOMIC_WRITE) < 0);
		quiet(&p.a, &p.b);
		hide(&r);
		part(&p);
	}
}

/* Posts until the queue is full; every accepted operation is carried out once. */
CASE(atomic_again_queues_nothing)
{
	uint64_t one = 1, got[1], *word = (uint64_t *) there;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;
	struct region r;
	size_t posted = 0, completed = 0, count;
	ssize_t ret = 0;

	meet(&p, &SIDED);
	if (fi_fetch_atomicvalid(p.a.ep, FI_UINT64, FI_SUM, &count))
		SKIP("no such atomics");
	*word = 0;
	expose(&p.b, &r, there, sizeof(there));
	while (posted < 100000 && (ret = fi_fetch_atomic(p.a.ep, &one, 1, NULL, got, NULL, p.to_b, r.addr, r.key, FI_UINT64,
		FI_SUM, &contexts[1])) == 0)
		posted++;
	CHECK(ret == 0 || ret == -FI_EAGAIN);
	for (; completed < posted; completed++)
		CHECK(next(&p.a, &p.b, &entry, &err, 20) == 1);
	quiet(&p.a, &p.b);
	CHECK(*word == posted);
	hide(&r);
	part(&p);
}

/* 16-bit and 8-bit floats, which older headers lack: rounding to even, and overflow. */
CASE_OURS(atomic_floats_of_few_bits)
{
	static const struct { int type; size_t size; uint16_t one, half_step, largest, beyond; } types[] = {
		{ 16, 2, 0x3c00, 0x1000, 0x7bff, 0x7c00 },	/* FI_FLOAT16 */
		{ 17, 2, 0x3f80, 0x3b80, 0x7f7f, 0x7f80 },	/* FI_BFLOAT16 */
		{ 18, 1, 0x38, 0x18, 0x7e, 0x7e },		/* FI_FLOAT8_E4M3, saturating */
		{ 19, 1, 0x3c, 0x30, 0x7b, 0x7b },		/* FI_FLOAT8_E5M2, saturating */
	};
	struct pair p;
	struct region r;
	size_t i;

	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	for (i = 0; i < ARRAY(types); i++) {
		/* A tie rounds to even: down from 1, up from its successor. */
		const uint16_t sums[][3] = {
			{ types[i].one, types[i].half_step, types[i].one },
			{ types[i].one + 1, types[i].half_step, types[i].one + 2 },
			{ types[i].largest, types[i].largest, types[i].beyond },
		};
		size_t j;

		for (j = 0; j < ARRAY(sums); j++) {
			uint16_t old = 0, now = 0;

			memcpy(there, &sums[j][0], types[i].size);
			POST(fi_fetch_atomic(p.a.ep, &sums[j][1], 1, NULL, &old, NULL, p.to_b, r.addr, r.key,
				(enum fi_datatype) types[i].type, FI_SUM, &contexts[1]));
			done(&p.a, &p.b, &contexts[1]);
			memcpy(&now, there, types[i].size);
			if (old != sums[j][0] || now != sums[j][2])
				fprintf(stderr, "type %d: %#x became %#x\n", types[i].type, old, now);
			CHECK(old == sums[j][0] && now == sums[j][2]);
		}
	}
	hide(&r);
	part(&p);
}

/* An initiator and a target endpoint, driven by their own thread. */
struct lane {
	struct fid_ep *from, *to;
	struct fid_cq *from_cq, *to_cq;
	fi_addr_t peer;
	struct region *r;
	pthread_t thread;
};

#define UPDATES	10000

static void *update(void *arg)
{
	struct lane *l = arg;
	const uint64_t one = 1;
	const long double complex unit = 1;
	int posted = 0, completed = 0;

	while (completed < 2 * UPDATES) {
		struct fi_cq_tagged_entry entries[16];
		ssize_t ret;

		if (posted < 2 * UPDATES) {
			ret = posted % 2
				? fi_atomic(l->from, &unit, 1, NULL, l->peer, l->r->addr + 32, l->r->key, FI_LONG_DOUBLE_COMPLEX, FI_SUM, NULL)
				: fi_atomic(l->from, &one, 1, NULL, l->peer, l->r->addr, l->r->key, FI_UINT64, FI_SUM, NULL);
			CHECK(ret == 0 || ret == -FI_EAGAIN);
			posted += ret == 0;
		}
		ret = fi_cq_read(l->from_cq, entries, 16);
		CHECK(ret > 0 || ret == -FI_EAGAIN);
		completed += ret > 0 ? (int) ret : 0;
		ret = fi_cq_read(l->to_cq, NULL, 0);
		CHECK(ret == 0 || ret == -FI_EAGAIN);
	}
	return NULL;
}

/* Two endpoints of the target update the same elements concurrently; the wide ones need a lock. */
CASE_OURS(atomic_updates_are_atomic)
{
	struct want w = SIDED;
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct lane lanes[2];
	struct side other;
	struct pair p;
	struct region r;
	struct fid_ep *second;
	struct fid_cq *cq;
	char name[64];
	size_t i, len = sizeof(name);

	w.threading = FI_THREAD_SAFE;
	meet(&p, &w);
	open_side(&other, &w);
	CHECK(fi_cq_open(p.b.domain, &attr, &cq, NULL) == 0);
	CHECK(fi_endpoint(p.b.domain, p.b.info, &second, NULL) == 0);
	CHECK(fi_ep_bind(second, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(second, &p.b.av->fid, 0) == 0 && fi_enable(second) == 0);
	CHECK(fi_getname(&second->fid, name, &len) == 0);
	memset(there, 0, 64);
	expose(&p.b, &r, there, sizeof(there));
	lanes[0] = (struct lane) { p.a.ep, p.b.ep, p.a.cq, p.b.cq, p.to_b, &r, 0 };
	lanes[1] = (struct lane) { other.ep, second, other.cq, cq, insert(&other, name), &r, 0 };
	for (i = 0; i < ARRAY(lanes); i++)
		CHECK(pthread_create(&lanes[i].thread, NULL, update, &lanes[i]) == 0);
	for (i = 0; i < ARRAY(lanes); i++)
		CHECK(pthread_join(lanes[i].thread, NULL) == 0);
	CHECK(*(uint64_t *) there == 2 * UPDATES);
	CHECK(*(long double complex *) (there + 32) == 2 * UPDATES);
	hide(&r);
	CHECK(fi_close(&second->fid) == 0 && fi_close(&cq->fid) == 0);
	close_side(&other);
	part(&p);
}

/* Without FI_RMA_EVENT a domain refuses counters of regions, and an endpoint counts no access. */
CASE_OURS(mr_counts_need_rma_event)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cntr *cntr;
	struct fid_mr *mr;
	struct fi_info *info;
	struct pair p;
	struct region r;

	info = find(&SIDED);
	info->caps &= ~FI_RMA_EVENT;
	info->rx_attr->caps &= ~FI_RMA_EVENT;
	info->domain_attr->caps &= ~FI_RMA_EVENT;
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0 && fi_domain(fabric, info, &domain, NULL) == 0);
	CHECK(fi_cntr_open(domain, &attr, &cntr, NULL) == 0);
	CHECK(fi_mr_reg(domain, there, 64, FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL) == 0);
	REFUSED("a counter for a memory region in a domain without FI_RMA_EVENT (fi_mr_bind)",
		FI_ENOSYS, fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE));
	CHECK(fi_close(&mr->fid) == 0 && fi_close(&cntr->fid) == 0);
	CHECK(fi_close(&domain->fid) == 0 && fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);

	meet_without_rma_event(&p);
	expose(&p.b, &r, there, sizeof(there));
	CHECK(fi_cntr_open(p.b.domain, &attr, &cntr, NULL) == 0);
	CHECK(fi_mr_bind(r.mr, &cntr->fid, FI_REMOTE_WRITE | FI_REMOTE_READ) == 0);
	write_works(&p, r.addr, r.key);
	read_works(&p, r.addr, r.key);
	CHECK(fi_cntr_read(cntr) == 0);
	hide(&r);
	CHECK(fi_close(&cntr->fid) == 0);
	part(&p);
}

/* What a program of 1.x promises or permits by these modes changes nothing: all flags are set. */
CASE_OURS(modes_of_1x_keep_all_flags)
{
	/* FI_RESTRICTED_COMP and FI_NOTIFY_FLAGS_ONLY, which later headers lack. */
	const uint64_t old = 1ULL << 53 | 1ULL << 54;
	const size_t least = 60;
	struct want w = SIDED;
	struct iovec iov = { there, 64 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[3] };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct fid_ep *other;
	struct region r;
	struct pair p;

	w.api = FI_VERSION(1, 17);
	w.caps |= FI_MULTI_RECV;
	w.mode = old;
	meet(&p, &w);
	CHECK(!(p.a.info->mode & old));
	expose(&p.b, &r, here, sizeof(here));
	POST(fi_writedata(p.a.ep, there, 8, NULL, 7, p.to_b, r.addr, r.key, &contexts[1]));
	CHECK(next(&p.b, &p.a, &entry, &err, 10) == 1 && entry.data == 7);
	CHECK(entry.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
	CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_RMA | FI_WRITE));
	POST(fi_recv(p.b.ep, there, 64, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_senddata(p.a.ep, "x", 1, NULL, 8, p.to_b, &contexts[1]));
	CHECK(done(&p.b, &p.a, &contexts[2]).flags == (FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA));
	CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_MSG | FI_SEND));
	CHECK(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)) == 0);
	POST(fi_recvmsg(p.b.ep, &msg, FI_MULTI_RECV));
	POST(fi_send(p.a.ep, "12345678", 8, NULL, p.to_b, &contexts[1]));
	CHECK(done(&p.b, &p.a, &contexts[3]).flags & FI_MULTI_RECV);
	done(&p.a, &p.b, &contexts[1]);
	/* The promise binds the program: a queue takes endpoints with other capabilities too. */
	p.a.info->caps &= ~FI_TAGGED;
	CHECK(fi_endpoint(p.a.domain, p.a.info, &other, NULL) == 0);
	CHECK(fi_ep_bind(other, &p.a.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_close(&other->fid) == 0);
	hide(&r);
	part(&p);
}
