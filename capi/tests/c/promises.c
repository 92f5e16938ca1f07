/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Opens each info that hints bring, with a second end that can do everything, and carries out each
 * operation that the info offers once, in both directions. Arguments are `field=number`: fields of
 * the hints as in C (`tx.op_flags=1`), `null=BITS` for null pointers, and choices of the program.
 * Prints how many infos there were.
 */
#include "promise_deferred.h"

/* The other end's info: the same, with every direction. */
static struct fi_info *complement(const struct fi_info *info)
{
	struct fi_info *hints = fi_dupinfo(info), *found = NULL;

	MUST(hints);
	if (hints->caps & (FI_MSG | FI_TAGGED))
		hints->caps |= FI_SEND | FI_RECV;
	if (hints->caps & (FI_RMA | FI_ATOMIC))
		hints->caps |= EVERY_SIDE;
	hints->tx_attr->caps = hints->rx_attr->caps = 0;
	free(hints->src_addr);
	hints->src_addr = NULL;
	hints->src_addrlen = 0;
	STEP("find the other end's info");
	OK(fi_getinfo(choice.api, NULL, NULL, 0, hints, &found));
	fi_freeinfo(hints);
	return found;
}

/* Each call that sends a message, once. */
static void messages(struct end *x, struct end *y)
{
	static const uint64_t flags[] = { 0, FI_COMPLETION, FI_COMPLETION | FI_INJECT, FI_COMPLETION | FI_INJECT_COMPLETE,
		FI_COMPLETION | FI_TRANSMIT_COMPLETE, FI_COMPLETION | FI_DELIVERY_COMPLETE };
	size_t len = fitting(x, 64), pieces = x->info->tx_attr->iov_limit, i;
	struct iovec iov[32] = { { out, len } };
	struct fi_msg msg = { .msg_iov = iov, .iov_count = 1, .addr = x->peer };
	struct op *op, *sent;

	STEP("fi_send");
	op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
	POST(fi_send(x->out, out, len, NULL, x->peer, sent = new_op("fi_send", tx_reports(x))));
	arrived(y, op, in, len);
	done(sent);
	STEP("fi_inject of inject_size");
	len = x->info->tx_attr->inject_size;
	MUST(len <= sizeof(out));
	op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
	POST(fi_inject(x->out, out, len, x->peer));
	arrived(y, op, in, len);
	x->sent += 2;
	if (x->info->domain_attr->cq_data_size) {
		STEP("fi_senddata");
		len = fitting(x, 10);
		op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
		POST(fi_senddata(x->out, out, len, NULL, data_of(x), x->peer, sent = new_op("fi_senddata", tx_reports(x))));
		arrived(y, op, in, len);
		done(sent);
		MUST(choice.format < FI_CQ_FORMAT_DATA || op->data == data_of(x));
		STEP("fi_injectdata");
		op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
		POST(fi_injectdata(x->out, out, 1, data_of(x), x->peer));
		arrived(y, op, in, 1);
		MUST(choice.format < FI_CQ_FORMAT_DATA || op->data == data_of(x));
		x->sent += 2;
	}
	STEP("fi_sendv and fi_recvv with iov_limit");
	MUST(pieces >= 1 && pieces <= ARRAY(iov) && y->info->rx_attr->iov_limit <= ARRAY(iov));
	for (i = 0; i < pieces; i++)
		iov[i] = (struct iovec) { out + i, 1 };
	pieces = fitting(x, pieces);
	if (rx_reports(y) && !(y->info->rx_attr->op_flags & FI_MULTI_RECV) && !is_buffered(y)) {
		struct iovec to[32];
		size_t count = y->info->rx_attr->iov_limit;

		for (i = 0; i < count; i++)
			to[i] = (struct iovec) { in + i, i + 1 < count ? 1 : 100 };
		POST(fi_recvv(y->in, to, NULL, count, FI_ADDR_UNSPEC, op = new_op("fi_recvv", 1)));
		y->received++;
	} else {
		op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
	}
	POST(fi_sendv(x->out, iov, NULL, pieces, x->peer, sent = new_op("fi_sendv", tx_reports(x))));
	arrived(y, op, in, pieces);
	done(sent);
	x->sent++;
	iov[0] = (struct iovec) { out, fitting(x, 32) };
	for (i = 0; i < ARRAY(flags) - 2 * is_datagram(x); i++) {
		size_t most = flags[i] & FI_INJECT ? x->info->tx_attr->inject_size : x->info->ep_attr->max_msg_size;

		STEP("fi_sendmsg");
		iov[0].iov_len = most < 32 ? most : 32;
		op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
		msg.context = sent = new_op("fi_sendmsg", !choice.selective || flags[i] & FI_COMPLETION);
		POST(fi_sendmsg(x->out, &msg, flags[i]));
		arrived(y, op, in, iov[0].iov_len);
		done(sent);
		x->sent++;
	}
	if (x->info->caps & FI_FENCE) {
		STEP("fi_sendmsg with FI_FENCE");
		op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
		msg.context = sent = new_op("fenced", 1);
		POST(fi_sendmsg(x->out, &msg, FI_FENCE | FI_COMPLETION));
		arrived(y, op, in, iov[0].iov_len);
		done(sent);
		x->sent++;
	}
}

/* A tag in the most significant field, and in the least. */
static uint64_t tag_of(const struct end *x)
{
	uint64_t format = x->info->ep_attr->mem_tag_format;

	return format >= 1 << 16 ? 1ULL << (63 - __builtin_clzll(format)) | 1 : 1;
}

static void tagged(struct end *x, struct end *y)
{
	size_t len = fitting(x, 64), most = x->info->tx_attr->inject_size;
	struct iovec iov = { out, len }, to = { in, sizeof(in) };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .addr = x->peer, .tag = tag_of(x) };
	struct fi_msg_tagged look = { .msg_iov = &to, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 9 };
	double end = seconds() + LIMIT;
	struct op *op, *sent;

	STEP("fi_tsend");
	op = receive_tagged(y, in, sizeof(in), tag_of(x), FI_ADDR_UNSPEC);
	POST(fi_tsend(x->out, out, len, NULL, x->peer, tag_of(x), sent = new_op("fi_tsend", tx_reports(x))));
	arrived(y, op, in, len);
	done(sent);
	STEP("fi_tinject");
	op = receive_tagged(y, in, sizeof(in), 7, FI_ADDR_UNSPEC);
	POST(fi_tinject(x->out, out, most, x->peer, 7));
	arrived(y, op, in, most);
	STEP("fi_tsendmsg");
	op = receive_tagged(y, in, sizeof(in), tag_of(x), FI_ADDR_UNSPEC);
	msg.context = sent = new_op("fi_tsendmsg", 1);
	POST(fi_tsendmsg(x->out, &msg, FI_COMPLETION));
	arrived(y, op, in, len);
	done(sent);
	x->sent += 3;
	if (x->info->domain_attr->cq_data_size) {
		STEP("fi_tsenddata");
		op = receive_tagged(y, in, sizeof(in), 3, FI_ADDR_UNSPEC);
		sent = new_op("fi_tsenddata", tx_reports(x));
		POST(fi_tsenddata(x->out, out, len, NULL, data_of(x), x->peer, 3, sent));
		arrived(y, op, in, len);
		done(sent);
		MUST(choice.format < FI_CQ_FORMAT_DATA || op->data == data_of(x));
		x->sent++;
	}
	/* A shared receive context has no queue for what a peek finds. */
	if (y->srx)
		return;
	STEP("peek, claim and receive");
	msg.tag = 9;
	msg.context = sent = new_op("peeked", 1);
	POST(fi_tsendmsg(x->out, &msg, FI_COMPLETION));
	x->sent++;
	do {
		look.context = op = new_op("peek", 1);
		POST(fi_trecvmsg(y->in, &look, FI_PEEK | FI_CLAIM | FI_COMPLETION));
		while (!op->entries && seconds() < end)
			pump();
	} while (op->error == FI_ENOMSG && seconds() < end);
	done(op);
	op->expected = 2;
	POST(fi_trecvmsg(y->in, &look, FI_CLAIM | FI_COMPLETION));
	y->received++;
	done(op);
	MUST(!memcmp(in, out, len));
	done(sent);
}

/* Each call that writes to the memory of y, once. */
static void writes(struct end *x, struct end *y)
{
	size_t len = fitting(x, 64), pieces = x->info->tx_attr->rma_iov_limit, i;
	struct iovec iov = { out, len };
	struct fi_rma_iov to[32];
	struct fi_msg_rma msg = { .msg_iov = &iov, .iov_count = 1, .addr = x->peer, .rma_iov = to };
	struct op *sent;

	STEP("fi_write");
	POST(fi_write(x->out, out, len, NULL, x->peer, at(y, 0), y->key, sent = new_op("fi_write", tx_reports(x))));
	done(sent);
	becomes(y->memory, out, len);
	STEP("fi_inject_write of inject_size");
	len = x->info->tx_attr->inject_size;
	POST(fi_inject_write(x->out, out, len, x->peer, at(y, 128), y->key));
	becomes(y->memory + 128, out, len);
	STEP("fi_writemsg with rma_iov_limit");
	MUST(pieces >= 1 && pieces <= ARRAY(to));
	for (i = 0; i < pieces; i++)
		to[i] = (struct fi_rma_iov) { at(y, 8192 + 2 * i), 1, y->key };
	msg.rma_iov_count = pieces;
	iov.iov_len = pieces;
	msg.context = sent = new_op("fi_writemsg", 1);
	POST(fi_writemsg(x->out, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	done(sent);
	for (i = 0; i < pieces; i++)
		MUST(y->memory[8192 + 2 * i] == out[i]);
	y->written += 3;
	if (can(x, FI_RMA_PMEM)) {
		STEP("fi_writemsg with FI_COMMIT_COMPLETE");
		memset(y->memory + 11000, 0, 64);
		to[0] = (struct fi_rma_iov) { at(y, 11000), fitting(x, 64), y->key };
		msg.rma_iov_count = 1;
		iov.iov_len = fitting(x, 64);
		msg.context = sent = new_op("a write that is made durable", 1);
		POST(fi_writemsg(x->out, &msg, FI_COMPLETION | FI_COMMIT_COMPLETE));
		done(sent);
		MUST(!memcmp(y->memory + 11000, out, iov.iov_len));
		to[0].len = iov.iov_len = 1;
		y->written++;
	}
	if (x->info->domain_attr->cq_data_size) {
		int before = y->remote;
		double end = seconds() + LIMIT;

		STEP("fi_writedata");
		sent = new_op("fi_writedata", tx_reports(x));
		POST(fi_writedata(x->out, out, fitting(x, 8), NULL, data_of(x), x->peer, at(y, 9000), y->key, sent));
		done(sent);
		STEP("fi_inject_writedata");
		POST(fi_inject_writedata(x->out, out, 1, data_of(x), x->peer, at(y, 9100), y->key));
		while (y->remote < before + 2 && seconds() < end)
			pump();
		MUST(y->remote == before + 2);
		y->written += 2;
	}
	if (x->info->caps & FI_FENCE) {
		STEP("fi_writemsg with FI_FENCE");
		msg.rma_iov_count = iov.iov_len = 1;
		msg.context = sent = new_op("fenced write", 1);
		POST(fi_writemsg(x->out, &msg, FI_COMPLETION | FI_FENCE));
		done(sent);
		y->written++;
	}
}

static void reads(struct end *x, struct end *y)
{
	size_t count = x->info->tx_attr->iov_limit, i;
	struct iovec iov[32];
	struct op *op;

	STEP("fi_read");
	memset(in, 0, 64);
	POST(fi_read(x->out, in, 64, NULL, x->peer, at(y, 0), y->key, op = new_op("fi_read", tx_reports(x))));
	done(op);
	becomes(in, y->memory, 64);
	STEP("fi_readv with iov_limit");
	for (i = 0; i < count; i++)
		iov[i] = (struct iovec) { in + i, 1 };
	memset(in, 0, 64);
	POST(fi_readv(x->out, iov, NULL, count, x->peer, at(y, 0), y->key, op = new_op("fi_readv", tx_reports(x))));
	done(op);
	becomes(in, y->memory, count);
}

static void atomics(struct end *x, struct end *y)
{
	uint64_t *word = (uint64_t *) (y->memory + 4096), before, after;
	struct op *op;
	size_t count = 0;

	/* With FI_INJECT among the endpoint's flags an operand may be too long. */
	if (fitting(x, 8) < 8)
		return;
	if (can(x, FI_WRITE) && can(y, FI_REMOTE_WRITE)) {
		STEP("fi_atomic");
		OK(fi_atomicvalid(x->out, FI_UINT64, FI_SUM, &count));
		MUST(count);
		after = *word + operand;
		op = new_op("fi_atomic", tx_reports(x));
		POST(fi_atomic(x->out, &operand, 1, NULL, x->peer, at(y, 4096), y->key, FI_UINT64, FI_SUM, op));
		done(op);
		becomes(word, &after, 8);
		STEP("fi_inject_atomic");
		if (x->info->tx_attr->inject_size >= 8) {
			after++;
			POST(fi_inject_atomic(x->out, &one, 1, x->peer, at(y, 4096), y->key, FI_UINT64, FI_SUM));
			becomes(word, &after, 8);
			y->written++;
		}
		y->written++;
	}
	if (can(x, FI_READ) && can(y, FI_REMOTE_READ) && can(y, FI_REMOTE_WRITE)) {
		STEP("fi_fetch_atomic");
		OK(fi_fetch_atomicvalid(x->out, FI_UINT64, FI_SUM, &count));
		before = *word;
		after = before + one;
		fetched = ~before;
		op = new_op("fi_fetch_atomic", tx_reports(x));
		POST(fi_fetch_atomic(x->out, &one, 1, NULL, &fetched, NULL, x->peer, at(y, 4096), y->key, FI_UINT64, FI_SUM, op));
		done(op);
		becomes(&fetched, &before, 8);
		becomes(word, &after, 8);
		STEP("fi_compare_atomic");
		OK(fi_compare_atomicvalid(x->out, FI_UINT64, FI_CSWAP, &count));
		before = compared = after;
		after = 77;
		fetched = ~before;
		op = new_op("fi_compare_atomic", tx_reports(x));
		POST(fi_compare_atomic(x->out, &after, 1, NULL, &compared, NULL, &fetched, NULL, x->peer, at(y, 4096), y->key,
			FI_UINT64, FI_CSWAP, op));
		done(op);
		becomes(&fetched, &before, 8);
		becomes(word, &after, 8);
	}
}

/* One message into a buffer for several. */
static void multi_recv(struct end *x, struct end *y)
{
	size_t least = 64, len = fitting(x, 100);
	struct iovec iov = { in, 150 };
	struct op *op = new_op("multi-receive buffer", 1);
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = op };

	STEP("multi-receive");
	if (!(y->info->rx_attr->op_flags & FI_MULTI_RECV))
		OK(fi_setopt(&y->in->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	op->is_multi = 1;
	POST(fi_recvmsg(y->in, &msg, FI_MULTI_RECV | FI_COMPLETION));
	y->received++;
	POST(fi_inject(x->out, out, x->info->tx_attr->inject_size < len ? x->info->tx_attr->inject_size : len, x->peer));
	x->sent++;
	done(op);
	if (!op->released && choice.format >= FI_CQ_FORMAT_MSG && x->info->tx_attr->inject_size >= 100) {
		op->expected = 2;
		done(op);
		MUST(op->released == 1);
	}
}

static void directed(struct end *x, struct end *y)
{
	struct op *op;

	STEP("directed receive");
	/* A buffered endpoint has no untagged receives. */
	if (can(x, FI_MSG) && !is_buffered(y)) {
		op = receive(y, in, sizeof(in), y->peer);
		POST(fi_inject(x->out, out, 1, x->peer));
		arrived(y, op, in, 1);
		x->sent++;
	}
	if (can(x, FI_TAGGED)) {
		op = receive_tagged(y, in, sizeof(in), 4, y->peer);
		POST(fi_tinject(x->out, out, 1, x->peer, 4));
		arrived(y, op, in, 1);
		x->sent++;
	}
}

static void named_context(struct end *x, struct end *y)
{
	struct fid_ep *plain = y->in;
	fi_addr_t peer = x->peer;
	struct op *op;
	int last = 0;

	STEP("named receive context");
	while (y->is_scalable && last + 1 < (int) ARRAY(y->rx) && y->rx[last + 1])
		last++;
	if (y->is_scalable)
		y->in = y->rx[last];
	op = can(x, FI_MSG) ? receive(y, in, sizeof(in), FI_ADDR_UNSPEC)
		: receive_tagged(y, in, sizeof(in), 2, FI_ADDR_UNSPEC);
	peer = fi_rx_addr(x->peer, last, BITS);
	if (can(x, FI_MSG))
		POST(fi_inject(x->out, out, 1, peer));
	else
		POST(fi_tinject(x->out, out, 1, peer, 2));
	x->sent++;
	arrived(y, op, in, 1);
	y->in = plain;
}

/* As many sends and receives as the sizes promise, without a read in between. */
static void sizes(struct end *x, struct end *y)
{
	size_t count = x->info->tx_attr->size, most = y->info->rx_attr->size, i;
	struct op *first, *op;

	STEP("as many operations as tx_attr->size and rx_attr->size");
	MUST(count && most);
	count = count < most ? count : most;
	count = count < 40 ? count : 40;
	first = &ops[op_count];
	for (i = 0; i < count; i++) {
		op = new_op("one of many receives", rx_reports(y));
		op->is_multi = (y->info->rx_attr->op_flags & FI_MULTI_RECV) != 0;
		op->into = (struct iovec) { got[i % 8], sizeof(*got) };
		if (!is_buffered(y))
			OK(fi_recv(y->in, got[i % 8], sizeof(*got), NULL, FI_ADDR_UNSPEC, op));
	}
	for (i = 0; i < count; i++)
		OK(fi_send(x->out, out, fitting(x, 8), NULL, x->peer, new_op("one of many sends", tx_reports(x))));
	for (i = 0; i < count && is_buffered(y); i++)
		take(y, &first[i], rx_reports(y) ? FI_CLAIM | FI_COMPLETION : FI_CLAIM);
	for (i = 0; i < 2 * count; i++)
		done(&first[i]);
	x->sent += count;
	y->received += count;
}

/*
 * Messages of a buffered endpoint that are discarded, and one that may wait at its sender. A
 * discard leaves no entry, but the endpoint's counter has it.
 */
static void discards(struct end *x, struct end *y, int message, int tag)
{
	struct op *op, *sent;
	size_t len = fitting(x, sizeof(in));

	if (message) {
		STEP("FI_DISCARD");
		op = new_op("a discarded message", 0);
		POST(fi_inject(x->out, out, 1, x->peer));
		take(y, op, FI_DISCARD);
		y->received++;
		STEP("claim of a long message");
		memset(in, 0, len);
		op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
		POST(fi_send(x->out, out, len, NULL, x->peer, sent = new_op("a long message", tx_reports(x))));
		arrived(y, op, in, len);
		done(sent);
		x->sent += 2;
	}
	if (tag) {
		STEP("FI_DISCARD of a tagged message");
		op = receive_tagged(y, in, sizeof(in), 12, FI_ADDR_UNSPEC);
		op->expected = 0;
		POST(fi_tinject(x->out, out, 1, x->peer, 12));
		take(y, op, FI_DISCARD);
		STEP("claim of a long tagged message");
		memset(in, 0, len);
		op = receive_tagged(y, in, sizeof(in), 12, FI_ADDR_UNSPEC);
		POST(fi_tsend(x->out, out, len, NULL, x->peer, 12, sent = new_op("a long message", tx_reports(x))));
		arrived(y, op, in, len);
		done(sent);
		x->sent += 2;
	}
}

/* What x offers as initiator and y as target. */
static void carry_out(struct end *x, struct end *y)
{
	int sends = can(x, FI_SEND) && can(y, FI_RECV), message = sends && can(x, FI_MSG) && can(y, FI_MSG);
	int tag = sends && can(x, FI_TAGGED) && can(y, FI_TAGGED);

	if (message) {
		messages(x, y);
		sizes(x, y);
	}
	if (tag)
		tagged(x, y);
	if ((message || tag) && can(y, FI_DIRECTED_RECV))
		directed(x, y);
	if (can(x, FI_RMA | FI_WRITE) && can(y, FI_RMA | FI_REMOTE_WRITE))
		writes(x, y);
	if (can(x, FI_RMA | FI_READ) && can(y, FI_RMA | FI_REMOTE_READ))
		reads(x, y);
	if (can(x, FI_ATOMIC) && can(y, FI_ATOMIC))
		atomics(x, y);
	if ((message || tag) && can(x, FI_NAMED_RX_CTX))
		named_context(x, y);
	if (can(x, FI_TRIGGER) || can(y, FI_TRIGGER))
		deferred(x, y, message, tag);
	if (is_buffered(y))
		discards(x, y, message, tag);
	else if (message && can(y, FI_MULTI_RECV))
		multi_recv(x, y);
}

/* Both join a group and wait for each other in it. */
static void collective(void)
{
	struct fi_av_set_attr attr = { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	struct fid_av_set *sets[2];
	struct fi_eq_entry event;
	struct fid_mc *groups[2];
	struct op *op[2];
	fi_addr_t addr;
	int i;

	STEP("join a group");
	for (i = 0; i < 2; i++) {
		struct end *e = &ends[i];
		fi_addr_t self = FI_ADDR_NOTAVAIL;

		MUST(fi_av_insert(e->av, e->name, 1, &self, 0, NULL) == 1);
		OK(fi_av_set(e->av, &attr, &sets[i], NULL));
		OK(fi_av_set_insert(sets[i], i ? e->peer : self));
		OK(fi_av_set_insert(sets[i], i ? self : e->peer));
		OK(fi_av_set_addr(sets[i], &addr));
		OK(fi_join_collective(e->ep, addr, sets[i], 0, &groups[i], NULL));
	}
	for (i = 0; i < 2; i++)
		event_of(&ends[i], FI_JOIN_COMPLETE, &event, sizeof(event));
	/* The second ends after the first, which may have no entry. */
	STEP("fi_barrier");
	for (i = 0; i < 2; i++) {
		op[i] = new_op("fi_barrier", tx_reports(&ends[i]));
		POST(fi_barrier(ends[i].ep, fi_mc_addr(groups[i]), op[i]));
	}
	for (i = 0; i < 2; i++) {
		op[i] = new_op("fi_barrier2", 1);
		POST(fi_barrier2(ends[i].ep, fi_mc_addr(groups[i]), FI_COMPLETION, op[i]));
	}
	for (i = 0; i < 2; i++)
		done(op[i]);
	for (i = 0; i < 2; i++) {
		OK(fi_close(&groups[i]->fid));
		OK(fi_close(&sets[i]->fid));
	}
}

/* An address vector that processes share. */
static void shared_av(struct end *e)
{
	struct fi_av_attr attr = { .type = e->info->domain_attr->av_type, .count = 4 };
	char name[32], found[64];
	size_t len = sizeof(found);
	struct fid_av *av;
	fi_addr_t addr;

	STEP("shared address vector");
	snprintf(name, sizeof(name), "promise-%d", (int) getpid());
	attr.name = name;
	OK(fi_av_open(e->domain, &attr, &av, NULL));
	MUST(fi_av_insert(av, e->name, 1, &addr, 0, NULL) == 1);
	OK(fi_av_lookup(av, addr, found, &len));
	MUST(!memcmp(found, e->name, len));
	OK(fi_close(&av->fid));
}

/* An address vector whose handles the application chooses. */
static void user_id_av(struct end *e)
{
	struct fi_av_attr attr = { .type = e->info->domain_attr->av_type, .count = 4 };
	fi_addr_t addr = FI_ADDR_NOTAVAIL;
	struct fid_av *av;

	STEP("addresses with identifiers of the application");
	OK(fi_av_open(e->domain, &attr, &av, NULL));
	MUST(fi_av_insert(av, e->name, 1, &addr, 0, NULL) == 1);
	OK(fi_av_set_user_id(av, addr, 99, 0));
	OK(fi_close(&av->fid));
}

/* One packet to a group that the other end has joined. */
static void multicast(struct end *x, struct end *y)
{
	unsigned char group[16] = { 2, 0, 0, 0, 239, 7, 7, 9 };
	int port = 20000 + getpid() % 12000;
	struct fid_mc *sender, *receiver;
	struct iovec iov = { out, 5 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1 };
	struct fi_eq_entry event;
	struct op *op, *sent;

	if (x->info->addr_format != FI_SOCKADDR_IN)
		return;
	STEP("multicast");
	group[2] = (unsigned char) (port >> 8);
	group[3] = (unsigned char) port;
	OK(fi_join(y->ep, group, FI_RECV, &receiver, NULL));
	OK(fi_join(x->ep, group, FI_SEND, &sender, NULL));
	event_of(y, FI_JOIN_COMPLETE, &event, sizeof(event));
	event_of(x, FI_JOIN_COMPLETE, &event, sizeof(event));
	op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
	msg.addr = fi_mc_addr(sender);
	msg.context = sent = new_op("multicast", 1);
	POST(fi_sendmsg(x->out, &msg, FI_MULTICAST | FI_COMPLETION));
	x->sent++;
	done(sent);
	done(op);
	MUST(!memcmp(in, out, 5));
	OK(fi_close(&sender->fid));
	OK(fi_close(&receiver->fid));
}

/* A message whose sender y does not know. */
static void stranger(struct end *x, struct end *y)
{
	double end = seconds() + LIMIT;
	struct op *op;

	STEP("a message from an unknown address");
	OK(fi_av_remove(y->av, &y->peer, 1, 0));
	op = receive(y, in, sizeof(in), FI_ADDR_UNSPEC);
	POST(fi_inject(x->out, out, 1, x->peer));
	x->sent++;
	if (is_buffered(y))
		take(y, op, FI_CLAIM | FI_COMPLETION);
	while (!op->entries && seconds() < end)
		pump();
	MUST(op->entries == 1 && op->error == FI_EADDRNOTAVAIL);
}

/* How to wait for completions. */
static void waiting(struct end *e)
{
	struct fid *fid = &e->cq->fid;
	struct fi_cq_tagged_entry entry;
	int fd = -1, ret;

	STEP("wait objects");
	if (choice.wait == FI_WAIT_FD) {
		OK(fi_control(&e->cq->fid, FI_GETWAIT, &fd));
		MUST(fd >= 0);
		ret = fi_trywait(e->fabric, &fid, 1);
		MUST(ret == 0 || ret == -FI_EAGAIN);
	}
	if (choice.wait != FI_WAIT_NONE)
		MUST(fi_cq_sread(e->cq, &entry, 1, NULL, 1) == -FI_EAGAIN);
}

/* Nothing completes that has completed before, and everything has. */
static void exactly_once(void)
{
	double end = seconds() + 0.005;
	int remote[2] = { ends[0].remote, ends[1].remote };
	size_t i;

	STEP("each operation completed once");
	while (seconds() < end)
		pump();
	for (i = 0; i < op_count; i++) {
		struct op *op = &ops[i];
		int most = op->expected + (op->is_multi && op->expected < 2);

		if (op->entries < op->expected || op->entries > most)
			fprintf(stderr, "%s: %d entries and not %d\n", op->what, op->entries, op->expected);
		MUST(op->entries >= op->expected && op->entries <= most);
	}
	for (i = 0; i < 2; i++)
		MUST(ends[i].remote == remote[i] && ends[i].taken == ends[i].noticed);
}

static void keep_promises(const struct fi_info *info)
{
	size_t everything = 1 << 30;
	int i;

	op_count = 0;
	memset(ends, 0, sizeof(ends));
	ends[0].info = fi_dupinfo(info);
	ends[0].info->next = NULL;
	ends[1].info = complement(info);
	meet();
	for (i = 0; i < 2; i++)
		if (ends[i].info->rx_attr->op_flags & FI_MULTI_RECV && can(&ends[i], FI_MULTI_RECV))
			OK(fi_setopt(&ends[i].in->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &everything, sizeof(everything)));
	carry_out(&ends[0], &ends[1]);
	carry_out(&ends[1], &ends[0]);
	if (can(&ends[0], FI_COLLECTIVE) && !ends[0].is_scalable)
		collective();
	if (can(&ends[0], FI_SHARED_AV) && !is_msg(&ends[0]))
		shared_av(&ends[0]);
	if (can(&ends[0], FI_AV_USER_ID))
		user_id_av(&ends[0]);
	for (i = 0; i < 2; i++) {
		if (can(&ends[i], FI_MULTICAST | FI_SEND) && can(&ends[!i], FI_RECV))
			multicast(&ends[i], &ends[!i]);
		waiting(&ends[i]);
	}
	exactly_once();
	for (i = 0; i < 2; i++) {
		counted(ends[i].sends, ends[i].sent, "the counter of sends");
		counted(ends[i].receives, ends[i].received, "the counter of receives");
		if (can(&ends[i], FI_RMA_EVENT | FI_REMOTE_WRITE))
			counted(ends[i].writes, ends[i].written, "the counter of the other end's writes");
	}
	if (can(&ends[0], FI_SOURCE | FI_SOURCE_ERR | FI_RECV | FI_MSG) && can(&ends[1], FI_SEND | FI_MSG) && !is_msg(&ends[0]))
		stranger(&ends[1], &ends[0]);
	part();
	for (i = 0; i < 2; i++)
		fi_freeinfo(ends[i].info);
}

/* A field that an argument sets. */
struct field {
	const char *name;
	void *place;
	size_t size;
};

#define FIELD(name, place)	{ name, &(place), sizeof(place) }

static void set(struct fi_info *h, const char *name, uint64_t value)
{
	struct fi_tx_attr *tx = h->tx_attr;
	struct fi_rx_attr *rx = h->rx_attr;
	struct fi_ep_attr *ep = h->ep_attr;
	struct fi_domain_attr *dom = h->domain_attr;
	const struct field fields[] = {
		FIELD("api", choice.api), FIELD("cq.format", choice.format), FIELD("cq.wait_obj", choice.wait),
		FIELD("cq.selective", choice.selective),
		FIELD("caps", h->caps), FIELD("mode", h->mode), FIELD("addr_format", h->addr_format),
		FIELD("tx.caps", tx->caps), FIELD("tx.mode", tx->mode), FIELD("tx.op_flags", tx->op_flags),
		FIELD("tx.msg_order", tx->msg_order), FIELD("tx.comp_order", tx->comp_order),
		FIELD("tx.inject_size", tx->inject_size), FIELD("tx.size", tx->size), FIELD("tx.iov_limit", tx->iov_limit),
		FIELD("tx.rma_iov_limit", tx->rma_iov_limit), FIELD("tx.tclass", tx->tclass),
		FIELD("rx.caps", rx->caps), FIELD("rx.mode", rx->mode), FIELD("rx.op_flags", rx->op_flags),
		FIELD("rx.msg_order", rx->msg_order), FIELD("rx.comp_order", rx->comp_order),
		FIELD("rx.total_buffered_recv", rx->total_buffered_recv), FIELD("rx.size", rx->size),
		FIELD("rx.iov_limit", rx->iov_limit),
		FIELD("ep.type", ep->type), FIELD("ep.protocol", ep->protocol), FIELD("ep.protocol_version", ep->protocol_version),
		FIELD("ep.max_msg_size", ep->max_msg_size), FIELD("ep.msg_prefix_size", ep->msg_prefix_size),
		FIELD("ep.max_order_raw_size", ep->max_order_raw_size), FIELD("ep.max_order_war_size", ep->max_order_war_size),
		FIELD("ep.max_order_waw_size", ep->max_order_waw_size), FIELD("ep.mem_tag_format", ep->mem_tag_format),
		FIELD("ep.tx_ctx_cnt", ep->tx_ctx_cnt), FIELD("ep.rx_ctx_cnt", ep->rx_ctx_cnt),
		FIELD("domain.threading", dom->threading), FIELD("domain.control_progress", dom->control_progress),
		FIELD("domain.data_progress", dom->data_progress), FIELD("domain.resource_mgmt", dom->resource_mgmt),
		FIELD("domain.av_type", dom->av_type), FIELD("domain.mr_mode", dom->mr_mode),
		FIELD("domain.mr_key_size", dom->mr_key_size), FIELD("domain.cq_data_size", dom->cq_data_size),
		FIELD("domain.cq_cnt", dom->cq_cnt), FIELD("domain.ep_cnt", dom->ep_cnt),
		FIELD("domain.tx_ctx_cnt", dom->tx_ctx_cnt), FIELD("domain.rx_ctx_cnt", dom->rx_ctx_cnt),
		FIELD("domain.max_ep_tx_ctx", dom->max_ep_tx_ctx), FIELD("domain.max_ep_rx_ctx", dom->max_ep_rx_ctx),
		FIELD("domain.max_ep_stx_ctx", dom->max_ep_stx_ctx), FIELD("domain.max_ep_srx_ctx", dom->max_ep_srx_ctx),
		FIELD("domain.cntr_cnt", dom->cntr_cnt), FIELD("domain.mr_iov_limit", dom->mr_iov_limit),
		FIELD("domain.caps", dom->caps), FIELD("domain.mode", dom->mode),
		FIELD("domain.max_err_data", dom->max_err_data), FIELD("domain.mr_cnt", dom->mr_cnt),
		FIELD("domain.tclass", dom->tclass),
	};
	size_t i;

	for (i = 0; i < ARRAY(fields); i++)
		if (!strcmp(fields[i].name, name)) {
			memcpy(fields[i].place, &value, fields[i].size);
			return;
		}
	fprintf(stderr, "there is no field %s\n", name);
	exit(2);
}

/* Whether the hints name flags as capabilities, which is the one mistake that fi_getinfo reports. */
static int names_flags(const struct fi_info *h)
{
	uint64_t flags = FI_PROV_ATTR_ONLY | FI_NUMERICHOST | (choice.api >= FI_VERSION(2, 0) ? FI_INJECT : 0);
	uint64_t caps = h->caps | (h->tx_attr ? h->tx_attr->caps : 0) | (h->rx_attr ? h->rx_attr->caps : 0);

	return ((caps | (h->domain_attr ? h->domain_attr->caps : 0)) & flags) != 0;
}

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *found = NULL, *info;
	int i, ret, count = 0, none = 0;

	for (i = 0; i < (int) sizeof(out); i++)
		out[i] = (char) (i * 7 + 1);
	for (i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		CHECK(value);
		*value++ = 0;
		if (!strcmp(argv[i], "provider"))
			hints->fabric_attr->prov_name = strdup(value);
		else if (!strcmp(argv[i], "null"))
			none |= 1 << atoi(value);
		else
			set(hints, argv[i], strtoull(value, NULL, 0));
	}
	/* Each null pointer has the meaning of fields that are 0. */
	if (none & 1)
		hints->tx_attr = NULL;
	if (none & 2)
		hints->rx_attr = NULL;
	if (none & 4)
		hints->ep_attr = NULL;
	if (none & 8)
		hints->domain_attr = NULL;
	ret = fi_getinfo(choice.api, NULL, NULL, 0, hints, &found);
	if (names_flags(hints))
		CHECK(ret == -FI_EBADFLAGS);
	else
		CHECK(ret == 0 || ret == -FI_ENODATA);
	for (info = found; info; info = info->next, count++)
		keep_promises(info);
	printf("%d\n", count);
	fi_freeinfo(found);
	return 0;
}
