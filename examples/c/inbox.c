/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * inbox: one endpoint receives from several. A buffer takes many messages, each entry has the
 * program's own number for its sender, and the entry of an unknown sender has its address.
 *
 * FI_PROVIDER=shm ./inbox
 */
#include "common.h"

#include <string.h>

#define SENDERS 3
#define FIRST_ID 100

/* The next entry and its source; the entry of a message from an unknown sender is an error. */
static int receive(struct fid_cq *cq, struct fi_cq_tagged_entry *entry, struct fi_cq_err_entry *error, fi_addr_t *from)
{
	ssize_t ret = fi_cq_sreadfrom(cq, entry, 1, from, NULL, TIME_LIMIT * 1000);

	if (ret == -FI_EAVAIL) {
		CHECK(fi_cq_readerr(cq, error, 0));
		return 0;
	}
	check("wait for a message", ret == -FI_EAGAIN ? -FI_ETIMEDOUT : ret);
	return 1;
}

int main(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct net net = open_net(hints_for(FI_MSG | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_SOURCE | FI_SOURCE_ERR | FI_AV_USER_ID
		| FI_DIRECTED_RECV));
	struct fid_cq *cq;
	struct fid_av *av, *theirs;
	struct fid_ep *inbox, *senders[SENDERS];
	char buf[1024], one[16], name[256], stranger[256];
	struct iovec iov = { buf, sizeof(buf) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buf };
	struct fi_cq_err_entry error = { .err_data = stranger, .err_data_size = sizeof(stranger) };
	struct fi_cq_tagged_entry entry;
	fi_addr_t to, from, known[SENDERS];
	size_t len, least = 64;
	int i;

	/* Reading the queue makes progress for all endpoints. Inject calls have no entries. */
	CHECK(fi_cq_open(net.domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(net.domain, &av_attr, &av, NULL));
	CHECK(fi_av_open(net.domain, &av_attr, &theirs, NULL));
	inbox = open_endpoint(net.domain, net.info, cq, av);
	to = insert(theirs, inbox);
	for (i = 0; i < SENDERS; i++) {
		senders[i] = open_endpoint(net.domain, net.info, cq, theirs);
		/* The last one is not inserted. The array holds the number and receives the entry. */
		len = sizeof(name);
		known[i] = FIRST_ID + i;
		CHECK(fi_getname(&senders[i]->fid, name, &len));
		if (i < SENDERS - 1)
			CHECK(fi_av_insert(av, name, 1, &known[i], FI_AV_USER_ID, NULL));
	}

	/* One buffer takes messages until it has less room than this. */
	CHECK(fi_setopt(&inbox->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	CHECK(fi_recvmsg(inbox, &msg, FI_MULTI_RECV));
	for (i = 0; i < SENDERS; i++) {
		POST(cq, fi_inject(senders[i], "message", 8, to));
		if (receive(cq, &entry, &error, &from)) {
			check("the sender's number", from == (fi_addr_t) (FIRST_ID + i) && entry.len == 8 ? 0 : -FI_EOTHER);
		} else {
			/* The message has arrived; the error data is the address to insert. */
			check("the unknown sender", error.err == FI_EADDRNOTAVAIL && i == SENDERS - 1 ? 0 : -error.err);
			CHECK(fi_av_insert(av, error.err_data, 1, &known[i], 0, NULL));
		}
	}
	CHECK(fi_cancel(&inbox->fid, buf));
	check("cancel", receive(cq, &entry, &error, &from) ? -FI_EOTHER : 0);

	/* A directed receive takes a message of its sender only. */
	POST(cq, fi_recv(inbox, one, sizeof(one), NULL, known[1], one));
	POST(cq, fi_inject(senders[0], "other", 6, to));
	POST(cq, fi_inject(senders[1], "wanted", 7, to));
	check("receive", receive(cq, &entry, &error, &from) ? 0 : -error.err);
	check("compare", strcmp(one, "wanted") ? -FI_EOTHER : 0);
	printf("an inbox for %d over %s\n", SENDERS, net.info->fabric_attr->prov_name);

	for (i = 0; i < SENDERS; i++)
		CHECK(fi_close(&senders[i]->fid));
	CHECK(fi_close(&inbox->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&theirs->fid));
	CHECK(fi_close(&cq->fid));
	close_net(&net);
	return 0;
}
