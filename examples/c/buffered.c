/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * buffered: a receiver that posts no buffers (FI_BUFFERED_RECV, libfabric 1.7 to 1.22). It reads
 * short messages where the library holds them, and allocates a buffer for each long one when it
 * knows the message's size.
 *
 * FI_PROVIDER=tcp ./buffered [MESSAGES]
 */
#include "common.h"

#include <string.h>

#ifndef FI_BUFFERED_RECV
#define FI_BUFFERED_RECV (1ULL << 51) /* version 2.0 removed it from the headers */
#endif

#define LONGEST (1 << 20)

static struct fid_cq *cq; /* of both endpoints */
static long sent; /* sends that have completed */

/* Returns the next entry of the receiver, and counts those of the sender. */
static struct fi_cq_tagged_entry next_received(void)
{
	struct fi_cq_tagged_entry entry;

	while ((entry = next(cq)).flags & FI_SEND)
		sent++;
	return entry;
}

/* Checks that all bytes of a message are the one that its sender chose. */
static void verify(const char *bytes, size_t len, char expected)
{
	size_t i;

	for (i = 0; i < len; i++)
		check("compare a message", bytes[i] == expected ? 0 : -FI_EIO);
}

/* Claims a long message into a buffer of its size. */
static void claim(struct fid_ep *ep, const struct fi_cq_tagged_entry *notice, char expected)
{
	struct fi_recv_context *context = notice->op_context;
	char *buffer = malloc(notice->len);
	struct iovec iov = { buffer, notice->len };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = context };
	struct fi_cq_tagged_entry entry;

	check("malloc", buffer ? 0 : -FI_ENOMEM);
	/* The claim completes with this context. */
	context->context = buffer;
	POST(cq, fi_recvmsg(ep, &msg, FI_CLAIM));
	entry = next_received();
	check("claim a message", entry.flags & FI_CLAIM && entry.op_context == buffer ? 0 : -FI_EIO);
	verify(buffer, entry.len, expected);
	free(buffer);
}

/* Reads a short message where it is. From the discard on the library reuses the memory. */
static void read_in_place(struct fid_ep *ep, const struct fi_cq_tagged_entry *notice, char expected)
{
	struct fi_msg msg = { .addr = FI_ADDR_UNSPEC, .context = notice->op_context };

	verify(notice->buf, notice->len, expected);
	POST(cq, fi_recvmsg(ep, &msg, FI_DISCARD));
}

int main(int argc, char **argv)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_info *hints = hints_for(FI_MSG);
	struct net net;
	struct fid_av *av;
	struct fid_ep *sender, *receiver;
	static char out[LONGEST];
	size_t limit, limit_len = sizeof(limit), size;
	long messages = argc > 1 ? atol(argv[1]) : 100, in_place = 0, claimed = 0, i;
	fi_addr_t to;

	hints->mode = FI_BUFFERED_RECV;
	net = open_net(hints);
	check("find a provider with FI_BUFFERED_RECV", net.info->mode & FI_BUFFERED_RECV ? 0 : -FI_ENODATA);
	CHECK(fi_cq_open(net.domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(net.domain, &av_attr, &av, NULL));
	sender = open_endpoint(net.domain, net.info, cq, av);
	receiver = open_endpoint(net.domain, net.info, cq, av);
	to = insert(av, receiver);
	/* The longest message that the library reports whole. */
	CHECK(fi_getopt(&receiver->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &limit, &limit_len));

	for (i = 0; i < messages; i++) {
		struct fi_cq_tagged_entry notice;
		char byte = (char) i;

		/* Every fourth message is long. */
		size = i % 4 == 3 ? LONGEST : (size_t) i % (limit + 1);
		memset(out, byte, size);
		POST(cq, fi_send(sender, out, size, NULL, to, NULL));
		notice = next_received();
		check("compare the size", notice.len == size ? 0 : -FI_EIO);
		if (notice.flags & FI_MORE) {
			claim(receiver, &notice, byte);
			claimed++;
		} else {
			read_in_place(receiver, &notice, byte);
			in_place++;
		}
		for (; sent <= i; sent++)
			check("wait for the send", next(cq).flags & FI_SEND ? 0 : -FI_EIO);
	}
	printf("%ld messages over %s: %ld read in place, %ld claimed\n", messages, net.info->fabric_attr->prov_name,
		in_place, claimed);

	CHECK(fi_close(&receiver->fid));
	CHECK(fi_close(&sender->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&cq->fid));
	close_net(&net);
	return 0;
}
