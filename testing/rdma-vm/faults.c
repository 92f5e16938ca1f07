/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Cases in which the guest's RDMA device fails: its port goes down, or it goes away. The script renews
 * the device after each.
 */
#include "cases/case.h"

static void run(const char *command)
{
	if (system(command)) {
		fprintf(stderr, "%s: failed\n", command);
		exit(1);
	}
}

static void exchange(struct pair *p)
{
	char in[8];

	POST(fi_recv(p->b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p->a.ep, "x", 1, NULL, p->to_b, &contexts[1]));
	done(&p->b, &p->a, &contexts[0]);
	done(&p->a, &p->b, &contexts[1]);
}

/* Posts a receive, and a send that completes once the peer has the message. */
static void post(struct pair *p, char *in, size_t len)
{
	struct iovec iov = { "yy", 2 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = p->to_b, .context = &contexts[3] };

	POST(fi_recv(p->b.ep, in, len, NULL, FI_ADDR_UNSPEC, &contexts[2]));
	POST(fi_sendmsg(p->a.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
}

/*
 * rxe gives up at once when its port is down, where hardware repeats for a while: the operation fails
 * with a reason. When a connection has ended while its port was down, the device makes no more.
 */
CASE(port_down)
{
	struct want w = { 0 };
	struct fi_cq_err_entry err;
	struct pair p;
	char in[8];

	meet(&p, &w);
	exchange(&p);
	run("ip link set dummy0 down");
	post(&p, in, sizeof(in));
	err = failed(&p.a, &p.b, FI_EIO);
	printf("%s\n", fi_cq_strerror(p.a.cq, err.prov_errno, err.err_data, NULL, 0));
	CHECK(err.op_context == &contexts[3]);
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	part(&p);
}

/* Nothing is repeated for datagrams: once the device has failed, sends say so. */
CASE(port_of_datagrams_down)
{
	struct want w = { .type = FI_EP_DGRAM };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	double end = seconds() + 20;
	struct pair p;
	int ret;

	meet(&p, &w);
	exchange(&p);
	run("ip link set dummy0 down");
	do {
		POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]));
		ret = next(&p.a, &p.b, &entry, &err, 1);
	} while (ret == 1 && seconds() < end);
	CHECK(ret == 0 && err.op_context == &contexts[1] && err.err == FI_EIO);
	printf("%s\n", fi_cq_strerror(p.a.cq, err.prov_errno, err.err_data, NULL, 0));
	part(&p);
}

static void goes_away(enum fi_ep_type type)
{
	struct want w = { .type = type };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct fi_eq_cm_entry cm;
	double end = seconds() + 20;
	struct pair p;
	uint32_t event;
	char in[8];
	int ret;

	meet(&p, &w);
	exchange(&p);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[2]));
	/* The command waits until the process, which librdmacm has keep the device open, has ended. */
	run("rdma link delete rxe0 &");
	do {
		ret = (int) fi_send(p.a.ep, "x", 1, NULL, p.to_b, &contexts[1]);
		ret = ret ? ret : next(&p.a, &p.b, &entry, &err, 1);
	} while ((ret == -FI_EAGAIN || ret == 1 || ret == -1) && seconds() < end);
	if (ret == 0)
		printf("%s, %s\n", fi_strerror(err.err), fi_cq_strerror(p.a.cq, err.prov_errno, err.err_data, NULL, 0));
	else
		printf("%s\n", fi_strerror(-ret));
	if (type == FI_EP_MSG) {
		CHECK(event_of(&p.a, &p.b, &event, &cm, sizeof(cm)) == sizeof(cm) && event == FI_SHUTDOWN);
		CHECK(cm.fid == &p.a.ep->fid);
	} else {
		CHECK(ret == 0 && err.op_context == &contexts[1] && err.err == FI_ENODEV);
	}
	part(&p);
}

CASE(device_goes_away)
{
	goes_away(FI_EP_RDM);
}

CASE(device_of_a_connection_goes_away)
{
	goes_away(FI_EP_MSG);
}

CASE(device_of_datagrams_goes_away)
{
	goes_away(FI_EP_DGRAM);
}
