/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Multicast groups (fi_cm(3)). */
#define _GNU_SOURCE
#include "case.h"
#include <fcntl.h>
#include <sched.h>

static const struct want GROUP = { .type = FI_EP_DGRAM, .caps = FI_MULTICAST };
static const struct want GROUP_WITH_SOURCE = { .type = FI_EP_DGRAM, .caps = FI_MULTICAST | FI_SOURCE };

static void group_address(char *out, uint16_t port)
{
	unsigned char addr[16] = { 2, 0, port >> 8, port & 255, 239, 7, 7, 7 };

	memcpy(out, addr, sizeof(addr));
}

static void in_a_group(const struct want *w)
{
	struct fi_eq_entry event;
	char in[16] = "", other[16], group[16];
	struct iovec iov = { "to all", 7 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct fid_mc *mc, *sender;
	struct pair p;
	uint32_t number;

	meet(&p, w);
	group_address(group, (uint16_t) (20000 + getpid() % 12000));
	CHECK(fi_join(p.b.ep, group, 0, &mc, &contexts[5]) == -FI_ENOEQ);
	CHECK(fi_ep_bind(p.a.ep, &p.a.eq->fid, 0) == 0 && fi_ep_bind(p.b.ep, &p.b.eq->fid, 0) == 0);
	CHECK(fi_join(p.b.ep, p.a.name, 0, &mc, NULL) == -FI_EADDRNOTAVAIL);
	CHECK(fi_join(p.b.ep, NULL, 0, &mc, NULL) == -FI_EINVAL);
	CHECK(fi_join(p.b.ep, group, 1ULL << 60, &mc, NULL) == -FI_EBADFLAGS);
	CHECK(fi_join(p.b.ep, group, FI_RECV, &mc, &contexts[5]) == 0);
	CHECK(fi_join(p.a.ep, group, FI_SEND, &sender, NULL) == 0);
	CHECK(fi_mc_addr(sender) != FI_ADDR_NOTAVAIL);
	await_join(&p.b);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_recv(p.a.ep, other, sizeof(other), NULL, FI_ADDR_UNSPEC, &contexts[4]));
	msg.addr = fi_mc_addr(sender);
	POST(fi_sendmsg(p.a.ep, &msg, FI_MULTICAST));
	CHECK(next(&p.b, &p.a, &entry, &err, 10) == 1 && entry.op_context == &contexts[0]);
	CHECK(entry.flags == (FI_MSG | FI_RECV | FI_MULTICAST) && !strcmp(in, "to all"));
	CHECK(next(&p.a, NULL, &entry, &err, 10) == 1 && entry.op_context == &contexts[1]);
	CHECK(entry.flags == (FI_MSG | FI_SEND | FI_MULTICAST));
	/* A membership with only FI_SEND receives nothing. */
	quiet(&p.a, &p.b);
	/* The event is read after the group's data has arrived. */
	CHECK(fi_eq_read(p.b.eq, &number, &event, sizeof(event), 0) == (ssize_t) sizeof(event));
	CHECK(number == FI_JOIN_COMPLETE && event.fid == &mc->fid && event.context == &contexts[5]);
	/* The endpoint can be closed only after leaving all its groups. */
	CHECK(fi_close(&p.b.ep->fid) == -FI_EBUSY);
	CHECK(fi_close(&mc->fid) == 0);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_sendmsg(p.a.ep, &msg, FI_MULTICAST));
	done(&p.a, NULL, &contexts[1]);
	quiet(&p.b, &p.a);
	CHECK(fi_close(&sender->fid) == 0);
	part(&p);
}

CASE_OURS(multicast_join_event)
{
	/*
	 * With FI_SOURCE the manual guarantees the FI_MULTICAST flag of a receive; without it we
	 * do.
	 */
	in_a_group(&GROUP_WITH_SOURCE);
	in_a_group(&GROUP);
}

/* Sends one packet to the group, which arrives once or not at all. */
static void one_packet(struct pair *p, fi_addr_t group, int comes)
{
	char in[2][8];
	struct iovec iov = { "x", 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = group, .context = &contexts[1] };
	int i;

	for (i = 0; i < 2; i++)
		POST(fi_recv(p->b.ep, in[i], 8, NULL, FI_ADDR_UNSPEC, &contexts[2 + i]));
	POST(fi_sendmsg(p->a.ep, &msg, FI_MULTICAST));
	done(&p->a, NULL, &contexts[1]);
	if (comes)
		done(&p->b, &p->a, &contexts[2]);
	quiet(&p->b, &p->a);
	for (i = comes; i < 2; i++) {
		CHECK(fi_cancel(&p->b.ep->fid, &contexts[2 + i]) == 0);
		failed(&p->b, &p->a, FI_ECANCELED);
	}
}

/* An endpoint's memberships in one group are left independently. */
CASE_OURS(multicast_memberships_are_independent)
{
	struct fid_mc *sender, *send, *receive[2];
	struct pair p;
	char group[16];

	meet(&p, &GROUP);
	group_address(group, (uint16_t) (20000 + getpid() % 12000));
	CHECK(fi_ep_bind(p.a.ep, &p.a.eq->fid, 0) == 0 && fi_ep_bind(p.b.ep, &p.b.eq->fid, 0) == 0);
	CHECK(fi_join(p.a.ep, group, FI_SEND, &sender, NULL) == 0);
	CHECK(fi_join(p.b.ep, group, FI_RECV, &receive[0], NULL) == 0);
	await_join(&p.b);
	CHECK(fi_join(p.b.ep, group, FI_SEND, &send, NULL) == 0);
	CHECK(fi_join(p.b.ep, group, 0, &receive[1], NULL) == 0);
	one_packet(&p, fi_mc_addr(sender), 1);
	CHECK(fi_close(&send->fid) == 0);
	one_packet(&p, fi_mc_addr(sender), 1);
	CHECK(fi_close(&receive[0]->fid) == 0);
	one_packet(&p, fi_mc_addr(sender), 1);
	CHECK(fi_close(&receive[1]->fid) == 0);
	one_packet(&p, fi_mc_addr(sender), 0);
	CHECK(fi_close(&sender->fid) == 0);
	part(&p);
}

/* Moves to a network of its own, in which multicast stays on the loopback interface. */
static int enter_own_network(void)
{
	char map[32];
	int fd, len = snprintf(map, sizeof(map), "0 %u 1", (unsigned) getuid());

	if (unshare(CLONE_NEWNET) < 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
			return -1;
		fd = open("/proc/self/uid_map", O_WRONLY);
		if (fd < 0 || write(fd, map, (size_t) len) != len)
			return -1;
		close(fd);
	}
	return system("ip link set lo up && ip route add 224.0.0.0/4 dev lo");
}

/* An endpoint at every address of the host has the group's port too, if it is the same one. */
CASE_OURS(multicast_at_the_wildcard_address)
{
	struct want w = GROUP;
	char port[8], in[2][8] = { "", "" }, group[16];
	struct fi_info *hints;
	struct fid_mc *mc, *sender;
	struct fi_eq_entry event;
	struct pair p;
	uint32_t number;
	fi_addr_t to_b;

	w.provider = "udp";
	if (enter_own_network())
		SKIP("a network namespace cannot be made");
	snprintf(port, sizeof(port), "%d", 20000 + getpid() % 12000);
	hints = hints_for(&w);
	open_domain(&p.a, &w);
	open_domain(&p.b, &w);
	fi_freeinfo(p.b.info);
	CHECK(fi_getinfo(API, NULL, port, FI_SOURCE, hints, &p.b.info) == 0);
	fi_freeinfo(hints);
	CHECK(*(uint32_t *) ((char *) p.b.info->src_addr + 4) == 0);
	open_ep(&p.a, p.a.info);
	open_ep(&p.b, p.b.info);
	CHECK(fi_ep_bind(p.a.ep, &p.a.eq->fid, 0) == 0 && fi_ep_bind(p.b.ep, &p.b.eq->fid, 0) == 0);
	group_address(group, (uint16_t) atoi(port));
	CHECK(fi_join(p.b.ep, group, FI_RECV, &mc, NULL) == 0);
	CHECK(fi_eq_sread(p.b.eq, &number, &event, sizeof(event), 10000, 0) == (ssize_t) sizeof(event));
	CHECK(fi_join(p.a.ep, group, FI_SEND, &sender, NULL) == 0);
	/* Each packet arrives once: to the group, and to the endpoint. */
	one_packet(&p, fi_mc_addr(sender), 1);
	memcpy(group + 4, "\x7f\0\0\1", 4);
	to_b = insert(&p.a, group);
	POST(fi_recv(p.b.ep, in[0], 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_send(p.a.ep, "one", 4, NULL, to_b, &contexts[1]));
	done(&p.b, &p.a, &contexts[2]);
	done(&p.a, NULL, &contexts[1]);
	CHECK(!strcmp(in[0], "one"));
	CHECK(fi_close(&mc->fid) == 0);
	one_packet(&p, fi_mc_addr(sender), 0);
	CHECK(fi_close(&sender->fid) == 0);
	part(&p);
}

CASE(multicast_unsupported_enosys)
{
	struct fid_mc *mc;
	struct side s;
	char group[16];

	group_address(group, 5000);
	open_side(&s, &RDM);
	CHECK(fi_join(s.ep, group, 0, &mc, NULL) < 0);
	close_side(&s);
}
