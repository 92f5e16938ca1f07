/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * group: datagrams to a multicast group that two endpoints have joined. A network may lose them;
 * within a host they arrive if receives are posted.
 *
 * FI_PROVIDER=udp ./group
 */
#include "common.h"

#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>

#define MEMBERS 2

/* Waits until the endpoint is in the group. */
static struct fid_mc *join_group(struct fid_ep *ep, struct fid_eq *eq, const void *group, uint64_t way)
{
	struct fi_eq_entry event;
	struct fid_mc *mc;
	uint32_t number;

	CHECK(fi_join(ep, group, way, &mc, NULL));
	check("join", fi_eq_sread(eq, &number, &event, sizeof(event), TIME_LIMIT * 1000, 0));
	check("join", number == FI_JOIN_COMPLETE && event.fid == &mc->fid ? 0 : -FI_EOTHER);
	return mc;
}

int main(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_info *hints = hints_for(FI_MSG | FI_MULTICAST), *info;
	/* A port of this process, so that several programs can run at the same time. */
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_port = htons((uint16_t) (20000 + getpid() % 12000)) };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_eq *eq;
	struct fid_av *av;
	struct fid_ep *sender, *members[MEMBERS];
	struct fid_mc *out, *in[MEMBERS];
	char text[] = "to all", got[MEMBERS][16];
	struct iovec iov = { text, sizeof(text) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = text };
	int i;

	hints->ep_attr->type = FI_EP_DGRAM;
	hints->addr_format = FI_SOCKADDR_IN;
	CHECK(inet_pton(AF_INET, "239.7.7.8", &group.sin_addr) == 1 ? 0 : -FI_EINVAL);
	CHECK(fi_getinfo(VERSION, "127.0.0.1", NULL, FI_SOURCE, hints, &info));
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	CHECK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(domain, &av_attr, &av, NULL));
	sender = open_endpoint(domain, info, cq, av);
	CHECK(fi_ep_bind(sender, &eq->fid, 0));
	out = join_group(sender, eq, &group, FI_SEND);
	for (i = 0; i < MEMBERS; i++) {
		members[i] = open_endpoint(domain, info, cq, av);
		CHECK(fi_ep_bind(members[i], &eq->fid, 0));
		in[i] = join_group(members[i], eq, &group, FI_RECV);
		POST(cq, fi_recv(members[i], got[i], sizeof(got[i]), NULL, FI_ADDR_UNSPEC, got[i]));
	}

	/* The group has an address like a peer; the flag says that it is one. */
	msg.addr = fi_mc_addr(out);
	POST(cq, fi_sendmsg(sender, &msg, FI_MULTICAST));
	for (i = 0; i <= MEMBERS; i++)
		next(cq);
	for (i = 0; i < MEMBERS; i++)
		check("compare", strcmp(got[i], text) ? -FI_EOTHER : 0);
	printf("a group of %d over %s\n", MEMBERS, info->fabric_attr->prov_name);

	/* A group is left before its endpoint is closed. */
	CHECK(fi_close(&out->fid));
	CHECK(fi_close(&sender->fid));
	for (i = 0; i < MEMBERS; i++) {
		CHECK(fi_close(&in[i]->fid));
		CHECK(fi_close(&members[i]->fid));
	}
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&cq->fid));
	CHECK(fi_close(&eq->fid));
	CHECK(fi_close(&domain->fid));
	CHECK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return 0;
}
