/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The order of operations of one pair of endpoints (fi_endpoint(3), fi_rma(3), fi_atomic(3)). */
#include "sided.h"

#define ROUNDS	30

/* Longer than max_order_war_size: a read is not ordered with a later write. */
static uint8_t there[60000], here[60000], back[60000];

static void write_to(struct pair *p, struct region *r, const void *buf, size_t at, size_t len, void *context)
{
	POST(fi_write(p->a.ep, buf, len, NULL, p->to_b, r->addr + at, r->key, context));
}

static void read_from(struct pair *p, struct region *r, void *buf, size_t at, size_t len, void *context)
{
	POST(fi_read(p->a.ep, buf, len, NULL, p->to_b, r->addr + at, r->key, context));
}

/* Whether all bytes are the same. */
static int all(const uint8_t *bytes, size_t len, uint8_t value)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (bytes[i] != value)
			return 0;
	return 1;
}

/* The next `count` completions of a, in any order. */
static void complete(struct pair *p, int count)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;

	while (count--)
		CHECK(next(&p->a, &p->b, &entry, &err, 15) == 1);
}

/* A long read in flight when the fence is posted returns data from before the fence. */
CASE(rma_fence_delays_later_accesses)
{
	struct pair p;
	struct region r;
	int i;

	meet(&p, &SIDED);
	if (!(p.a.info->caps & FI_FENCE))
		SKIP("no fences");
	expose(&p.b, &r, there, sizeof(there));
	for (i = 0; i < ROUNDS; i++) {
		memset(there, 1, sizeof(there));
		memset(back, 0, sizeof(back));
		memset(here, 2, sizeof(here));
		read_from(&p, &r, back, 0, sizeof(back), &contexts[1]);
		POST(fi_writemsg(p.a.ep, access_to(&p, &r, here, 0, 4000, &contexts[2]), FI_COMPLETION | FI_FENCE));
		/* Later operations wait with it. */
		write_to(&p, &r, here + 4000, 4000, sizeof(here) - 4000, &contexts[3]);
		done(&p.a, &p.b, &contexts[1]);
		CHECK(all(back, sizeof(back), 1));
		complete(&p, 2);
		/* A fenced read follows the earlier writes, regardless of their length. */
		memset(here, 3, sizeof(here));
		write_to(&p, &r, here, 0, sizeof(here), &contexts[1]);
		POST(fi_readmsg(p.a.ep, access_to(&p, &r, back, 0, sizeof(back), &contexts[2]), FI_COMPLETION | FI_FENCE));
		complete(&p, 2);
		CHECK(all(back, sizeof(back), 3));
	}
	hide(&r);
	part(&p);
}

CASE(atomic_fence_delays_later_operations)
{
	static uint8_t values[4000];
	struct fi_ioc operands = { values, sizeof(values) };
	struct fi_rma_ioc place = { .count = sizeof(values) };
	struct fi_msg_atomic call = { .msg_iov = &operands, .iov_count = 1, .rma_iov = &place, .rma_iov_count = 1,
		.datatype = FI_UINT8, .op = FI_ATOMIC_WRITE, .context = &contexts[2] };
	struct pair p;
	struct region r;
	size_t most = 0;
	int i;

	meet(&p, &SIDED);
	if (!(p.a.info->caps & FI_FENCE) || fi_atomicvalid(p.a.ep, FI_UINT8, FI_ATOMIC_WRITE, &most))
		SKIP("no fences or no such atomics");
	operands.count = place.count = most < sizeof(values) ? most : sizeof(values);
	expose(&p.b, &r, there, sizeof(there));
	memset(values, 2, sizeof(values));
	memset(here, 2, sizeof(here));
	place.addr = r.addr;
	place.key = r.key;
	call.addr = p.to_b;
	for (i = 0; i < ROUNDS; i++) {
		memset(there, 1, sizeof(there));
		memset(back, 0, sizeof(back));
		read_from(&p, &r, back, 0, sizeof(back), &contexts[1]);
		POST(fi_atomicmsg(p.a.ep, &call, FI_COMPLETION | FI_FENCE));
		write_to(&p, &r, here, 10000, 20000, &contexts[3]);
		done(&p.a, &p.b, &contexts[1]);
		CHECK(all(back, sizeof(back), 1));
		complete(&p, 2);
	}
	hide(&r);
	part(&p);
}

/* Between two fences, writes and reads after writes keep the endpoint's order. */
CASE(rma_order_between_fences)
{
	struct pair p;
	struct region r;
	int i;

	meet(&p, &SIDED);
	if (!(p.a.info->caps & FI_FENCE) || !(p.a.info->tx_attr->msg_order & FI_ORDER_RAW))
		SKIP("no fences or no ordering");
	expose(&p.b, &r, there, sizeof(there));
	for (i = 0; i < ROUNDS; i++) {
		uint8_t values[4] = { 1, 2, 3, 4 }, got[2] = { 0, 0 };

		there[0] = 0;
		POST(fi_writemsg(p.a.ep, access_to(&p, &r, values, 0, 1, &contexts[1]), FI_COMPLETION | FI_FENCE));
		write_to(&p, &r, values + 1, 0, 1, &contexts[1]);
		read_from(&p, &r, got, 0, 1, &contexts[1]);
		POST(fi_writemsg(p.a.ep, access_to(&p, &r, values + 2, 0, 1, &contexts[1]), FI_COMPLETION | FI_FENCE));
		write_to(&p, &r, values + 3, 0, 1, &contexts[1]);
		read_from(&p, &r, got + 1, 0, 1, &contexts[1]);
		complete(&p, 6);
		CHECK(got[0] == 2 && got[1] == 4);
	}
	hide(&r);
	part(&p);
}

/* Reads and writes of one range, up to the sizes in the info (max_order_*_size). */
CASE_OURS(ep_order_of_accesses)
{
	const uint64_t orders = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW | FI_ORDER_RMA_RAR |
		FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW;
	const struct want *wants[] = { &SIDED, &SIDED_MSG };
	struct pair p;
	struct region r;
	size_t war, i, kind;

	for (kind = 0; kind < ARRAY(wants); kind++) {
		meet(&p, wants[kind]);
		CHECK((p.a.info->tx_attr->msg_order & orders) == orders);
		/* Any length, except for a write after a read. */
		CHECK(p.a.info->ep_attr->max_order_raw_size == SIZE_MAX);
		CHECK(p.a.info->ep_attr->max_order_waw_size == SIZE_MAX);
		war = p.a.info->ep_attr->max_order_war_size;
		CHECK(war >= 8 && war < sizeof(there));
		expose(&p.b, &r, there, sizeof(there));
		for (i = 0; i < ROUNDS; i++) {
			memset(there, 1, sizeof(there));
			/* Write after read. */
			read_from(&p, &r, back, 0, war, &contexts[1]);
			memset(here, 2, sizeof(here));
			write_to(&p, &r, here, 0, war, &contexts[1]);
			complete(&p, 2);
			CHECK(all(back, war, 1));
			/* Write after write, read after write. */
			write_to(&p, &r, here, 0, sizeof(here), &contexts[1]);
			memset(back, 3, sizeof(back));
			write_to(&p, &r, back, 0, sizeof(back), &contexts[1]);
			read_from(&p, &r, here, 0, sizeof(here), &contexts[1]);
			complete(&p, 3);
			CHECK(all(here, sizeof(here), 3));
			/* Read after read: the target's changes are seen in order. */
			there[0] = 0;
			read_from(&p, &r, back, 0, 1, &contexts[1]);
			read_from(&p, &r, back + 1, 0, 1, &contexts[1]);
			there[0] = 1;
			complete(&p, 2);
			CHECK(back[0] <= back[1]);
		}
		hide(&r);
		part(&p);
	}
}

/* Messages and accesses of one pair. The receive buffer is also part of the region. */
CASE_OURS(ep_order_of_messages_and_accesses)
{
	const uint64_t orders = FI_ORDER_RAS | FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW | FI_ORDER_SAS;
	struct pair p;
	struct region r;
	uint8_t one = 1, two = 2;
	int i;

	meet(&p, &SIDED);
	CHECK((p.a.info->tx_attr->msg_order & orders) == orders);
	expose(&p.b, &r, there, sizeof(there));
	for (i = 0; i < ROUNDS; i++) {
		there[0] = there[100] = 0;
		back[0] = back[1] = 9;
		POST(fi_recv(p.b.ep, there + 100, 1, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		/* Send after write, send after read, read after send. */
		write_to(&p, &r, &one, 0, 1, &contexts[1]);
		read_from(&p, &r, back, 100, 1, &contexts[1]);
		POST(fi_send(p.a.ep, &two, 1, NULL, p.to_b, &contexts[1]));
		read_from(&p, &r, back + 1, 100, 1, &contexts[1]);
		done(&p.b, &p.a, &contexts[0]);
		CHECK(there[0] == 1 && there[100] == 2);
		complete(&p, 4);
		CHECK(back[0] == 0 && back[1] == 2);
		/* Write after send. */
		POST(fi_recv(p.b.ep, there + 100, 1, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_send(p.a.ep, &two, 1, NULL, p.to_b, &contexts[1]));
		write_to(&p, &r, &one, 100, 1, &contexts[1]);
		done(&p.b, &p.a, &contexts[0]);
		complete(&p, 2);
		arrives(there + 100, &one, 1);
	}
	hide(&r);
	part(&p);
}

/* Each atomic operation uses the result of earlier ones and of writes; reads see the results. */
CASE(atomic_operations_build_on_each_other)
{
	const uint64_t orders = FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_WAR;
	uint64_t start = 5, seven = 7, three = 3, expected, got, old;
	uint64_t *word = (uint64_t *) there;
	struct pair p;
	struct region r;
	size_t count;
	int i;

	meet(&p, &SIDED);
	if ((p.a.info->tx_attr->msg_order & orders) != orders || p.a.info->ep_attr->max_order_waw_size < 8 ||
	    fi_atomicvalid(p.a.ep, FI_UINT64, FI_PROD, &count))
		SKIP("no such atomics or no ordering");
	expose(&p.b, &r, there, sizeof(there));
	for (i = 0; i < ROUNDS; i++) {
		*word = 0;
		write_to(&p, &r, &start, 0, 8, &contexts[1]);
		POST(fi_atomic(p.a.ep, &seven, 1, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_PROD, &contexts[1]));
		POST(fi_atomic(p.a.ep, &three, 1, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[1]));
		POST(fi_fetch_atomic(p.a.ep, &seven, 1, NULL, &old, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_PROD,
			&contexts[1]));
		read_from(&p, &r, &got, 0, 8, &contexts[1]);
		complete(&p, 5);
		expected = 5 * 7 + 3;
		CHECK(old == expected && got == expected * 7 && *word == got);
	}
	hide(&r);
	part(&p);
}

/* The update is visible once the target has its completion, or its counter has counted it. */
CASE_OURS(atomic_is_visible_before_its_own_completion)
{
	struct want w = SIDED;
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE };
	uint64_t one = 1;
	struct fi_ioc operand = { &one, 1 };
	struct fi_rma_ioc place = { .count = 1 };
	struct fi_msg_atomic call = { .msg_iov = &operand, .iov_count = 1, .rma_iov = &place, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM, .context = &contexts[1], .data = 77 };
	volatile uint64_t *word = (uint64_t *) there;
	struct fi_cq_tagged_entry entry;
	struct fid_cntr *cntr;
	struct pair p;
	struct region r;
	double end;
	int i;

	w.caps |= FI_RMA_EVENT;
	meet(&p, &w);
	*word = 0;
	expose(&p.b, &r, there, sizeof(there));
	place.addr = r.addr;
	place.key = r.key;
	call.addr = p.to_b;
	CHECK(fi_cntr_open(p.b.domain, &attr, &cntr, NULL) == 0);
	CHECK(fi_ep_bind(p.b.ep, &cntr->fid, FI_REMOTE_WRITE) == 0);
	for (i = 1; i <= ROUNDS; i++) {
		POST(fi_atomicmsg(p.a.ep, &call, FI_COMPLETION | FI_REMOTE_CQ_DATA));
		entry = done(&p.b, &p.a, NULL);
		CHECK(entry.flags == (FI_ATOMIC | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA) && entry.data == 77);
		CHECK(*word == (uint64_t) 2 * i - 1);
		POST(fi_atomicmsg(p.a.ep, &call, FI_COMPLETION));
		end = seconds() + 10;
		while (fi_cntr_read(cntr) < (uint64_t) 2 * i && seconds() < end)
			drive();
		CHECK(*word == (uint64_t) 2 * i);
		complete(&p, 2);
	}
	hide(&r);
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	CHECK(fi_close(&cntr->fid) == 0);
	part(&p);
}

CASE(atomic_is_visible_before_a_fenced_message)
{
	struct iovec text = { "message", 8 };
	struct fi_msg message = { .msg_iov = &text, .iov_count = 1, .context = &contexts[3] };
	volatile uint64_t *word = (uint64_t *) there;
	uint64_t one = 1;
	struct pair p;
	struct region r;
	size_t count;
	char in[8];
	int i;

	meet(&p, &SIDED);
	if (!(p.a.info->caps & FI_FENCE) || fi_atomicvalid(p.a.ep, FI_UINT64, FI_SUM, &count))
		SKIP("no fences or no such atomics");
	*word = 0;
	expose(&p.b, &r, there, sizeof(there));
	message.addr = p.to_b;
	for (i = 1; i <= ROUNDS; i++) {
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		POST(fi_atomic(p.a.ep, &one, 1, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[1]));
		POST(fi_sendmsg(p.a.ep, &message, FI_COMPLETION | FI_FENCE));
		done(&p.b, &p.a, &contexts[0]);
		CHECK(*word == (uint64_t) i);
		complete(&p, 2);
	}
	hide(&r);
	part(&p);
}
