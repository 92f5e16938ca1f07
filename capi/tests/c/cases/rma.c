/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Remote memory access (fi_rma(3)). */
#include "sided.h"

static char there[1 << 16], here[1 << 16], back[1 << 16];

static void fill(void)
{
	size_t i;

	for (i = 0; i < sizeof(here); i++)
		here[i] = (char) (i * 7 + i / 251);
	memset(there, 0, sizeof(there));
	memset(back, 0, sizeof(back));
}

static void moves_bytes(const struct want *w)
{
	struct pair p;
	struct region r;
	struct fi_cq_tagged_entry entry;
	const size_t lens[] = { 1, 8, 100, 4096, 5000, sizeof(there) };
	size_t i;

	fill();
	meet(&p, w);
	expose(&p.b, &r, there, sizeof(there));
	for (i = 0; i < ARRAY(lens); i++) {
		memset(there, 0, sizeof(there));
		POST(fi_write(p.a.ep, here, lens[i], NULL, p.to_b, r.addr, r.key, &contexts[1]));
		entry = done(&p.a, &p.b, &contexts[1]);
		CHECK(entry.flags == (FI_RMA | FI_WRITE));
		arrives(there, here, lens[i]);
		memset(back, 0, sizeof(back));
		POST(fi_read(p.a.ep, back, lens[i], NULL, p.to_b, r.addr, r.key, &contexts[2]));
		entry = done(&p.a, &p.b, &contexts[2]);
		CHECK(entry.flags == (FI_RMA | FI_READ));
		/* The data of a read has arrived when its completion is read. */
		CHECK(!memcmp(back, here, lens[i]));
		CHECK(lens[i] == sizeof(back) || back[lens[i]] == 0);
	}
	/* Two writes to the same range leave the bytes of one. */
	memset(there, 0, sizeof(there));
	POST(fi_write(p.a.ep, here, 10, NULL, p.to_b, r.addr, r.key, &contexts[1]));
	POST(fi_write(p.a.ep, here + 10, 20, NULL, p.to_b, r.addr + 10, r.key, &contexts[2]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.a, &p.b, &contexts[2]);
	arrives(there, here, 30);
	/* The target has no entry and no event. */
	quiet(&p.b, &p.a);
	hide(&r);
	part(&p);
}

CASE(rma_write_and_read_move_bytes)
{
	moves_bytes(&SIDED);
}

CASE(rma_on_connected_endpoints)
{
	moves_bytes(&SIDED_MSG);
}

static void finish(struct pair *p, size_t count)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;

	while (count--)
		CHECK(next(&p->a, &p->b, &entry, &err, 10) == 1);
}

CASE(rma_long_ranges_keep_their_bytes_and_their_order)
{
	enum { MOST = 3 << 20, COUNT = 6, ALL = COUNT * MOST + 64 };
	const size_t lens[] = { 1 << 18, (1 << 18) + 1, 1 << 20, (1 << 20) + 3, MOST };
	char *source = malloc(ALL), *target = malloc(ALL), *result = malloc(ALL);
	struct pair p;
	struct region r;
	size_t i, n;

	CHECK(source && target && result);
	for (i = 0; i < ALL; i++)
		source[i] = (char) (i * 31 + i / 4093);
	meet(&p, &SIDED);
	expose(&p.b, &r, target, ALL);
	for (n = 0; n < ARRAY(lens); n++) {
		size_t len = lens[n], whole = COUNT * len;

		memset(target, 0, ALL);
		memset(result, 0, ALL);
		/* All at once, from and to odd places. */
		for (i = 0; i < COUNT; i++)
			POST(fi_write(p.a.ep, source + 1 + i * len, len, NULL, p.to_b, r.addr + 7 + i * len, r.key, &contexts[i]));
		finish(&p, COUNT);
		for (i = 0; i < COUNT; i++)
			POST(fi_read(p.a.ep, result + 3 + i * len, len, NULL, p.to_b, r.addr + 7 + i * len, r.key, &contexts[i]));
		finish(&p, COUNT);
		CHECK(!memcmp(result + 3, source + 1, whole) && !result[2] && !result[3 + whole]);
		CHECK(!memcmp(target + 7, source + 1, whole) && !target[6] && !target[7 + whole]);
		if (!(p.a.info->tx_attr->msg_order & FI_ORDER_RMA_WAW) || p.a.info->ep_attr->max_order_waw_size < len)
			continue;
		/* The second write to a place stays. */
		POST(fi_write(p.a.ep, source + 9, len, NULL, p.to_b, r.addr, r.key, &contexts[1]));
		POST(fi_write(p.a.ep, "the last", 8, NULL, p.to_b, r.addr + len - 8, r.key, &contexts[2]));
		finish(&p, 2);
		arrives(target + len - 8, "the last", 8);
		CHECK(!memcmp(target, source + 9, len - 8));
	}
	hide(&r);
	part(&p);
	free(source);
	free(target);
	free(result);
}

CASE(rma_of_no_bytes_completes)
{
	struct fi_rma_iov none = { 0 };
	struct fi_msg_rma msg = { .rma_iov = &none, .rma_iov_count = 1, .context = &contexts[3] };
	struct pair p;
	struct region r;

	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	POST(fi_write(p.a.ep, NULL, 0, NULL, p.to_b, r.addr, r.key, &contexts[1]));
	CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_RMA | FI_WRITE));
	POST(fi_read(p.a.ep, NULL, 0, NULL, p.to_b, r.addr, r.key, &contexts[2]));
	CHECK(done(&p.a, &p.b, &contexts[2]).flags == (FI_RMA | FI_READ));
	none.addr = r.addr;
	none.key = r.key;
	msg.addr = p.to_b;
	POST(fi_writemsg(p.a.ep, &msg, FI_COMPLETION));
	done(&p.a, &p.b, &contexts[3]);
	hide(&r);
	part(&p);
}

CASE(rma_vectors_gather_and_scatter)
{
	struct iovec out[3] = { { here, 3 }, { here + 100, 40 }, { here + 1000, 2000 } };
	struct iovec in[2] = { { back, 1000 }, { back + 5000, 1043 } };
	struct pair p;
	struct region r;

	fill();
	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	POST(fi_writev(p.a.ep, out, NULL, 3, p.to_b, r.addr + 8, r.key, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	arrives(there + 51, here + 1000, 2000);
	CHECK(!memcmp(there + 8, here, 3) && !memcmp(there + 11, here + 100, 40) && !there[7] && !there[2051]);
	POST(fi_readv(p.a.ep, in, NULL, 2, p.to_b, r.addr + 8, r.key, &contexts[2]));
	done(&p.a, &p.b, &contexts[2]);
	CHECK(!memcmp(back, there + 8, 1000) && !memcmp(back + 5000, there + 1008, 1043) && !back[1000]);
	hide(&r);
	part(&p);
}

/* Local and remote vectors that are divided differently. */
CASE(rma_messages_name_several_remote_places)
{
	struct iovec iov[2] = { { here, 100 }, { here + 200, 300 } };
	struct iovec in = { back, 400 };
	struct fi_rma_iov remote[3];
	struct fi_msg_rma msg = { .msg_iov = iov, .iov_count = 2, .rma_iov = remote, .rma_iov_count = 3, .context = &contexts[1] };
	struct pair p;
	struct region r, other;

	fill();
	meet(&p, &SIDED);
	expose(&p.b, &r, there, 1000);
	expose(&p.b, &other, there + 1000, 1000);
	remote[0] = (struct fi_rma_iov) { r.addr + 10, 50, r.key };
	remote[1] = (struct fi_rma_iov) { other.addr + 20, 150, other.key };
	remote[2] = (struct fi_rma_iov) { r.addr + 500, 200, r.key };
	msg.addr = p.to_b;
	POST(fi_writemsg(p.a.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_RMA | FI_WRITE));
	CHECK(!memcmp(there + 10, here, 50) && !memcmp(there + 1020, here + 50, 50));
	CHECK(!memcmp(there + 1070, here + 200, 100) && !memcmp(there + 500, here + 300, 200));
	msg.msg_iov = &in;
	msg.iov_count = 1;
	msg.context = &contexts[2];
	POST(fi_readmsg(p.a.ep, &msg, FI_COMPLETION));
	CHECK(done(&p.a, &p.b, &contexts[2]).flags == (FI_RMA | FI_READ));
	CHECK(!memcmp(back, here, 100) && !memcmp(back + 100, here + 200, 300));
	hide(&r);
	hide(&other);
	part(&p);
}

CASE(rma_vectors_up_to_the_limits)
{
	struct iovec iov[64];
	struct fi_rma_iov remote[64];
	struct fi_msg_rma msg = { .msg_iov = iov, .rma_iov = remote, .context = &contexts[1] };
	struct pair p;
	struct region r;
	size_t i, locals, remotes;

	fill();
	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	locals = p.a.info->tx_attr->iov_limit;
	remotes = p.a.info->tx_attr->rma_iov_limit;
	CHECK(locals >= 1 && remotes >= 1);
	locals = locals > 64 ? 64 : locals;
	remotes = remotes > 64 ? 64 : remotes;
	for (i = 0; i < locals; i++)
		iov[i] = (struct iovec) { here + 100 * i, 8 * remotes };
	for (i = 0; i < remotes; i++)
		remote[i] = (struct fi_rma_iov) { r.addr + 1000 * i, 8 * locals, r.key };
	msg.iov_count = locals;
	msg.rma_iov_count = remotes;
	msg.addr = p.to_b;
	POST(fi_writemsg(p.a.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	done(&p.a, &p.b, &contexts[1]);
	for (i = 0; i < 8 * locals * remotes; i++)
		CHECK(there[1000 * (i / (8 * locals)) + i % (8 * locals)] == here[100 * (i / (8 * remotes)) + i % (8 * remotes)]);
	hide(&r);
	part(&p);
}

CASE_OURS(rma_bad_vectors_are_refused)
{
	struct iovec iov[9] = { { here, 8 } };
	struct fi_rma_iov remote[9] = { { 0, 8, 1 } };
	struct fi_msg_rma msg = { .msg_iov = iov, .iov_count = 1, .rma_iov = remote, .rma_iov_count = 1 };
	struct pair p;

	meet(&p, &SIDED);
	msg.addr = p.to_b;
	CHECK(fi_writemsg(p.a.ep, NULL, 0) == -FI_EINVAL && fi_readmsg(p.a.ep, NULL, 0) == -FI_EINVAL);
	/* The lengths differ. */
	remote[0].len = 9;
	CHECK(fi_writemsg(p.a.ep, &msg, 0) == -FI_EINVAL && fi_readmsg(p.a.ep, &msg, 0) == -FI_EINVAL);
	remote[0].len = 0;
	CHECK(fi_writemsg(p.a.ep, &msg, 0) == -FI_EINVAL);
	remote[0].len = 8;
	/* Too many elements, or none although the length is not 0. */
	msg.rma_iov_count = 9;
	CHECK(fi_writemsg(p.a.ep, &msg, 0) == -FI_EINVAL);
	msg.rma_iov_count = 1;
	msg.iov_count = 9;
	CHECK(fi_writemsg(p.a.ep, &msg, 0) == -FI_EINVAL && fi_readmsg(p.a.ep, &msg, 0) == -FI_EINVAL);
	CHECK(fi_writev(p.a.ep, iov, NULL, 9, p.to_b, 0, 1, NULL) == -FI_EINVAL);
	CHECK(fi_readv(p.a.ep, NULL, NULL, 1, p.to_b, 0, 1, NULL) == -FI_EINVAL);
	msg.iov_count = 1;
	msg.rma_iov = NULL;
	CHECK(fi_writemsg(p.a.ep, &msg, 0) == -FI_EINVAL);
	/* The total lengths overflow. */
	msg.rma_iov = remote;
	msg.rma_iov_count = 2;
	remote[0].len = remote[1].len = SIZE_MAX;
	CHECK(fi_writemsg(p.a.ep, &msg, 0) == -FI_EINVAL);
	iov[0].iov_len = iov[1].iov_len = SIZE_MAX;
	CHECK(fi_writev(p.a.ep, iov, NULL, 2, p.to_b, 0, 1, NULL) == -FI_EINVAL);
	quiet(&p.a, &p.b);
	part(&p);
}

/* A vector of no elements may be null; one that has elements may not, in any call. */
CASE_OURS(null_vectors_are_refused)
{
	struct fi_ioc elements[1] = { { here, 1 } };
	struct fi_rma_ioc places[1] = { { 0, 1, 1 } };
	struct fi_rma_iov remote[1] = { { 0, 0, 1 } };
	struct fi_msg msg = { .iov_count = 1 };
	struct fi_msg_tagged tmsg = { .iov_count = 1 };
	struct fi_msg_rma rma = { .iov_count = 1, .rma_iov = remote, .rma_iov_count = 1 };
	struct fi_msg_atomic atomic = { .iov_count = 1, .rma_iov = places, .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM };
	struct fid_ep *srx;
	struct pair p;
	fi_addr_t to;

	meet(&p, &SIDED);
	msg.addr = tmsg.addr = rma.addr = atomic.addr = to = p.to_b;
	CHECK(fi_sendv(p.a.ep, NULL, NULL, 1, to, NULL) == -FI_EINVAL && fi_recvv(p.a.ep, NULL, NULL, 1, to, NULL) == -FI_EINVAL);
	CHECK(fi_tsendv(p.a.ep, NULL, NULL, 1, to, 1, NULL) == -FI_EINVAL);
	CHECK(fi_trecvv(p.a.ep, NULL, NULL, 1, to, 1, 0, NULL) == -FI_EINVAL);
	CHECK(fi_sendmsg(p.a.ep, &msg, 0) == -FI_EINVAL && fi_recvmsg(p.a.ep, &msg, 0) == -FI_EINVAL);
	CHECK(fi_sendmsg(p.a.ep, &msg, FI_INJECT) == -FI_EINVAL);
	CHECK(fi_tsendmsg(p.a.ep, &tmsg, 0) == -FI_EINVAL && fi_trecvmsg(p.a.ep, &tmsg, 0) == -FI_EINVAL);
	CHECK(fi_trecvmsg(p.a.ep, &tmsg, FI_PEEK) == -FI_EINVAL && fi_trecvmsg(p.a.ep, &tmsg, FI_PEEK | FI_CLAIM) == -FI_EINVAL);
	CHECK(fi_readv(p.a.ep, NULL, NULL, 1, to, 0, 1, NULL) == -FI_EINVAL);
	CHECK(fi_writev(p.a.ep, NULL, NULL, 1, to, 0, 1, NULL) == -FI_EINVAL);
	CHECK(fi_readmsg(p.a.ep, &rma, 0) == -FI_EINVAL && fi_writemsg(p.a.ep, &rma, 0) == -FI_EINVAL);
	CHECK(fi_atomicv(p.a.ep, NULL, NULL, 1, to, 0, 1, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_atomicmsg(p.a.ep, &atomic, 0) == -FI_EINVAL);
	CHECK(fi_fetch_atomicv(p.a.ep, NULL, NULL, 1, elements, NULL, 1, to, 0, 1, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_fetch_atomicv(p.a.ep, elements, NULL, 1, NULL, NULL, 1, to, 0, 1, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_compare_atomicv(p.a.ep, elements, NULL, 1, NULL, NULL, 1, elements, NULL, 1, to, 0, 1, FI_UINT64, FI_CSWAP,
		NULL) == -FI_EINVAL);
	CHECK(fi_fetch_atomicmsg(p.a.ep, &atomic, elements, NULL, 1, 0) == -FI_EINVAL);
	atomic.op = FI_CSWAP;
	CHECK(fi_compare_atomicmsg(p.a.ep, &atomic, elements, NULL, 1, elements, NULL, 1, 0) == -FI_EINVAL);
	rma.rma_iov = NULL;
	rma.iov_count = 0;
	CHECK(fi_writemsg(p.a.ep, &rma, 0) == -FI_EINVAL && fi_readmsg(p.a.ep, &rma, 0) == -FI_EINVAL);
	CHECK(fi_srx_context(p.a.domain, p.a.info->rx_attr, &srx, NULL) == 0);
	CHECK(fi_recvv(srx, NULL, NULL, 1, FI_ADDR_UNSPEC, NULL) == -FI_EINVAL);
	CHECK(fi_trecvv(srx, NULL, NULL, 1, FI_ADDR_UNSPEC, 1, 0, NULL) == -FI_EINVAL);
	CHECK(fi_close(&srx->fid) == 0);
	/* Messages of no bytes. */
	quiet(&p.a, &p.b);
	POST(fi_recvv(p.b.ep, NULL, NULL, 0, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_sendv(p.a.ep, NULL, NULL, 0, to, &contexts[1]));
	CHECK(done(&p.b, &p.a, &contexts[0]).len == 0);
	done(&p.a, &p.b, &contexts[1]);
	part(&p);
}

/* The target's entry carries the data and consumes no receive. */
static void entry_with_data(struct pair *p, uint64_t data)
{
	struct fi_cq_tagged_entry entry = done(&p->b, &p->a, NULL);

	CHECK(entry.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA) && entry.data == data && entry.len == 100);
}

CASE(rma_writedata_completes_at_the_target)
{
	struct fi_msg_rma *msg;
	struct pair p;
	struct region r;
	char in[8];

	fill();
	meet(&p, &SIDED);
	if (p.b.info->mode & FI_RX_CQ_DATA)
		SKIP("remote data consumes receives");
	expose(&p.b, &r, there, sizeof(there));
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_writedata(p.a.ep, here, 100, NULL, 11, p.to_b, r.addr, r.key, &contexts[1]));
	entry_with_data(&p, 11);
	CHECK(!memcmp(there, here, 100));
	CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_RMA | FI_WRITE));
	POST(fi_inject_writedata(p.a.ep, here + 50, 100, 22, p.to_b, r.addr, r.key));
	entry_with_data(&p, 22);
	CHECK(!memcmp(there, here + 50, 100));
	msg = access_to(&p, &r, here, 0, 100, &contexts[2]);
	msg->data = 33;
	POST(fi_writemsg(p.a.ep, msg, FI_COMPLETION | FI_REMOTE_CQ_DATA));
	entry_with_data(&p, 33);
	done(&p.a, &p.b, &contexts[2]);
	/* Without the flag no data is sent. */
	POST(fi_writemsg(p.a.ep, msg, FI_COMPLETION));
	done(&p.a, &p.b, &contexts[2]);
	quiet(&p.b, &p.a);
	/* The receive is still posted. */
	POST(fi_send(p.a.ep, "message", 8, NULL, p.to_b, &contexts[3]));
	done(&p.b, &p.a, &contexts[0]);
	CHECK(!strcmp(in, "message"));
	hide(&r);
	part(&p);
}

CASE(rma_inject_buffer_is_reusable_at_once)
{
	struct pair p;
	struct region r;
	size_t most;

	fill();
	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	most = p.a.info->tx_attr->inject_size;
	CHECK(most >= 64 && most < sizeof(there));
	memcpy(back, here, most);
	POST(fi_inject_write(p.a.ep, back, most, p.to_b, r.addr, r.key));
	memset(back, 1, most);
	arrives(there, here, most);
	quiet(&p.a, &p.b);
	CHECK(fi_inject_write(p.a.ep, back, most + 1, p.to_b, r.addr, r.key) < 0);
	memcpy(back, here + 77, 64);
	POST(fi_writemsg(p.a.ep, access_to(&p, &r, back, 1000, 64, &contexts[2]), FI_COMPLETION | FI_INJECT));
	memset(back, 1, 64);
	done(&p.a, &p.b, &contexts[2]);
	arrives(there + 1000, here + 77, 64);
	hide(&r);
	part(&p);
}

CASE_OURS(rma_inject_that_fails_has_an_entry)
{
	struct pair p;
	struct fi_cq_err_entry err;

	meet(&p, &SIDED);
	POST(fi_inject_write(p.a.ep, here, 8, p.to_b, 0, 4711));
	err = failed(&p.a, &p.b, FI_EINVAL);
	CHECK(err.flags == (FI_RMA | FI_WRITE));
	CHECK(fi_inject_write(p.a.ep, here, p.a.info->tx_attr->inject_size + 1, p.to_b, 0, 4711) == -FI_EMSGSIZE);
	part(&p);
}

CASE(rma_length_is_limited)
{
	struct pair p;
	struct region r;
	size_t most = 1000;

	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	if (fi_setopt(&p.a.ep->fid, FI_OPT_ENDPOINT, 14 /* FI_OPT_MAX_RMA_SIZE */, &most, sizeof(most)))
		SKIP("the longest access cannot be changed");
	write_works(&p, r.addr, r.key);
	CHECK(fi_write(p.a.ep, here, most + 1, NULL, p.to_b, r.addr, r.key, NULL) == -FI_EMSGSIZE);
	CHECK(fi_read(p.a.ep, back, most + 1, NULL, p.to_b, r.addr, r.key, NULL) == -FI_EMSGSIZE);
	hide(&r);
	part(&p);
}

CASE(rma_selective_completion)
{
	struct want w = SIDED;
	struct pair p;
	struct region r;

	fill();
	w.bind = FI_SELECTIVE_COMPLETION;
	meet(&p, &w);
	expose(&p.b, &r, there, sizeof(there));
	POST(fi_write(p.a.ep, here, 8, NULL, p.to_b, r.addr, r.key, &contexts[1]));
	POST(fi_writemsg(p.a.ep, access_to(&p, &r, here, 0, 8, &contexts[2]), 0));
	POST(fi_readmsg(p.a.ep, access_to(&p, &r, here, 0, 8, &contexts[2]), 0));
	quiet(&p.a, &p.b);
	POST(fi_writemsg(p.a.ep, access_to(&p, &r, here, 0, 8, &contexts[2]), FI_COMPLETION));
	CHECK(done(&p.a, &p.b, &contexts[2]).flags == (FI_RMA | FI_WRITE));
	POST(fi_readmsg(p.a.ep, access_to(&p, &r, here, 0, 8, &contexts[2]), FI_COMPLETION));
	CHECK(done(&p.a, &p.b, &contexts[2]).flags == (FI_RMA | FI_READ));
	hide(&r);
	part(&p);
}

CASE(rma_operations_with_more_are_sent)
{
	struct pair p;
	struct region r;

	fill();
	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	POST(fi_writemsg(p.a.ep, access_to(&p, &r, here, 0, 8, &contexts[2]), FI_MORE | FI_COMPLETION));
	done(&p.a, &p.b, &contexts[2]);
	arrives(there, here, 8);
	hide(&r);
	part(&p);
}

CASE(rma_completion_levels)
{
	const uint64_t levels[] = { FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE };
	struct pair p;
	struct region r;
	size_t i;

	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	for (i = 0; i < ARRAY(levels); i++) {
		fill();
		POST(fi_writemsg(p.a.ep, access_to(&p, &r, here, 0, sizeof(here), &contexts[2]), FI_COMPLETION | levels[i]));
		done(&p.a, &p.b, &contexts[2]);
		if (levels[i] == FI_DELIVERY_COMPLETE)
			CHECK(!memcmp(there, here, sizeof(here)));
		/* The source buffer may be reused. */
		memset(here, 9, sizeof(here));
		arrives(there + 1, (char []) { 7 }, 1);
		POST(fi_readmsg(p.a.ep, access_to(&p, &r, back, 0, sizeof(back), &contexts[2]), FI_COMPLETION | levels[i]));
		done(&p.a, &p.b, &contexts[2]);
		CHECK(back[1] == 7 && back[100] == (char) 700);
	}
	hide(&r);
	part(&p);
}

/* With manual progress the target carries out what peers post when its application reads a queue. */
CASE_OURS(progress_of_accesses_needs_the_target)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;
	struct region r;

	fill();
	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	/* The first one connects the endpoints. */
	write_works(&p, r.addr, r.key);
	arrives(there, "written", 8);
	POST(fi_writemsg(p.a.ep, access_to(&p, &r, here, 100, 8, &contexts[1]), FI_COMPLETION | FI_DELIVERY_COMPLETE));
	POST(fi_read(p.a.ep, back, 8, NULL, p.to_b, r.addr, r.key, &contexts[2]));
	CHECK(next(&p.a, NULL, &entry, &err, 0.05) == -1 && !there[100] && !there[107] && !back[0]);
	CHECK(next(&p.a, &p.b, &entry, &err, 10) == 1 && next(&p.a, &p.b, &entry, &err, 10) == 1);
	CHECK(!memcmp(there + 100, here, 8) && !memcmp(back, "written", 8));
	hide(&r);
	part(&p);
}

CASE(rma_fence_waits_for_earlier_operations)
{
	struct pair p;
	struct region r;

	fill();
	meet(&p, &SIDED);
	if (!(p.a.info->caps & FI_FENCE))
		SKIP("no fences");
	expose(&p.b, &r, there, sizeof(there));
	POST(fi_write(p.a.ep, here, sizeof(here), NULL, p.to_b, r.addr, r.key, &contexts[1]));
	POST(fi_readmsg(p.a.ep, access_to(&p, &r, back, 60000, 8, &contexts[2]), FI_COMPLETION | FI_FENCE));
	/* Operations after the fence wait with it. */
	POST(fi_read(p.a.ep, back + 100, 8, NULL, p.to_b, r.addr + 50000, r.key, &contexts[3]));
	done(&p.a, &p.b, &contexts[1]);
	done(&p.a, &p.b, &contexts[2]);
	done(&p.a, &p.b, &contexts[3]);
	CHECK(!memcmp(back, here + 60000, 8) && !memcmp(back + 100, here + 50000, 8));
	hide(&r);
	part(&p);
}

CASE_OURS(rma_errors_are_reported_to_the_initiator)
{
	struct pair p;
	struct region r, readable, writable;

	memset(there, 5, sizeof(there));
	meet(&p, &SIDED);
	expose(&p.b, &r, there, 64);
	expose_as(&p.b, &readable, there, 64, FI_REMOTE_READ);
	expose_as(&p.b, &writable, there, 64, FI_REMOTE_WRITE);
	write_fails(&p, r.addr, 4711, FI_EINVAL);
	read_fails(&p, r.addr, 4711, FI_EINVAL);
	write_fails(&p, readable.addr, readable.key, FI_EACCES);
	read_fails(&p, writable.addr, writable.key, FI_EACCES);
	write_fails(&p, r.addr + 57, r.key, FI_EACCES);
	write_fails(&p, r.addr + UINT64_MAX - 3, r.key, FI_EACCES);
	read_fails(&p, r.addr + 64, r.key, FI_EACCES);
	/* The memory is unchanged, and both endpoints work. */
	CHECK(there[0] == 5 && there[56] == 5 && there[63] == 5 && there[64] == 5);
	write_works(&p, r.addr + 56, r.key);
	arrives(there + 56, "written", 8);
	quiet(&p.b, &p.a);
	hide(&r);
	hide(&readable);
	hide(&writable);
	part(&p);
}

CASE(rma_event_counters)
{
	struct want w = SIDED;
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *writes, *reads;
	struct pair p;
	struct region r;
	double end = seconds() + 10;

	w.caps |= FI_RMA_EVENT;
	meet(&p, &w);
	expose(&p.b, &r, there, sizeof(there));
	CHECK(fi_cntr_open(p.b.domain, &attr, &writes, NULL) == 0);
	CHECK(fi_cntr_open(p.b.domain, &attr, &reads, NULL) == 0);
	if (fi_ep_bind(p.b.ep, &writes->fid, FI_REMOTE_WRITE))
		SKIP("counters cannot be bound to enabled endpoints");
	CHECK(fi_ep_bind(p.b.ep, &reads->fid, FI_REMOTE_READ) == 0);
	write_works(&p, r.addr, r.key);
	write_works(&p, r.addr + 8, r.key);
	read_works(&p, r.addr, r.key);
	while ((fi_cntr_read(writes) != 2 || fi_cntr_read(reads) != 1) && seconds() < end)
		drive();
	CHECK(fi_cntr_read(writes) == 2 && fi_cntr_read(reads) == 1);
	hide(&r);
	CHECK(fi_close(&p.b.ep->fid) == 0);
	p.b.ep = NULL;
	CHECK(fi_close(&writes->fid) == 0 && fi_close(&reads->fid) == 0);
	part(&p);
}

/* Posts until the queue is full; exactly the accepted operations complete. */
CASE(rma_again_queues_nothing)
{
	struct pair p;
	struct region r;
	size_t posted = 0, got = 0;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	ssize_t ret = 0;

	fill();
	meet(&p, &SIDED);
	expose(&p.b, &r, there, sizeof(there));
	while (posted < 100000 && (ret = fi_read(p.a.ep, back, sizeof(back), NULL, p.to_b, r.addr, r.key, &contexts[1])) == 0)
		posted++;
	CHECK(ret == 0 || ret == -FI_EAGAIN);
	while (got < posted) {
		CHECK(next(&p.a, &p.b, &entry, &err, 20) == 1);
		got++;
	}
	quiet(&p.a, &p.b);
	read_works(&p, r.addr, r.key);
	hide(&r);
	part(&p);
}

CASE_OURS(rma_needs_its_capabilities)
{
	struct want w = { .caps = FI_RMA | FI_READ | FI_REMOTE_READ | FI_SEND | FI_RECV };
	struct pair p;
	struct region r;

	meet(&p, &w);
	expose(&p.b, &r, there, sizeof(there));
	read_works(&p, r.addr, r.key);
	CHECK(fi_write(p.a.ep, here, 8, NULL, p.to_b, r.addr, r.key, NULL) == -FI_ENOSYS);
	CHECK(fi_inject_write(p.a.ep, here, 8, p.to_b, r.addr, r.key) == -FI_ENOSYS);
	hide(&r);
	part(&p);
	meet(&p, &RDM);
	CHECK(fi_write(p.a.ep, here, 8, NULL, p.to_b, 0, 1, NULL) == -FI_ENOSYS);
	CHECK(fi_read(p.a.ep, here, 8, NULL, p.to_b, 0, 1, NULL) == -FI_ENOSYS);
	part(&p);
}

/* An endpoint refuses the accesses that it was not opened for. */
CASE_OURS(rma_target_needs_its_capabilities)
{
	static const struct { uint64_t caps; int writes, reads; } targets[] = {
		{ FI_WRITE, 0, 0 }, { FI_REMOTE_WRITE, 1, 0 }, { FI_REMOTE_READ, 0, 1 },
	};
	struct pair p;
	struct region r;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	size_t i;

	for (i = 0; i < ARRAY(targets); i++) {
		struct want of_target = { .caps = FI_RMA | FI_SEND | FI_RECV | targets[i].caps };

		open_side(&p.a, &SIDED);
		open_side(&p.b, &of_target);
		p.to_b = insert(&p.a, p.b.name);
		p.to_a = insert(&p.b, p.a.name);
		expose(&p.b, &r, there, sizeof(there));
		POST(fi_write(p.a.ep, here, 8, NULL, p.to_b, r.addr, r.key, &contexts[0]));
		CHECK(next(&p.a, &p.b, &entry, &err, 15) == targets[i].writes);
		CHECK((targets[i].writes ? entry.op_context : err.op_context) == &contexts[0]);
		POST(fi_read(p.a.ep, back, 8, NULL, p.to_b, r.addr, r.key, &contexts[1]));
		CHECK(next(&p.a, &p.b, &entry, &err, 15) == targets[i].reads);
		CHECK((targets[i].reads ? entry.op_context : err.op_context) == &contexts[1]);
		hide(&r);
		part(&p);
	}
}
