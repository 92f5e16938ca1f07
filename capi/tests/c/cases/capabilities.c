/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Uses the capabilities, modes and limits of endpoints that fi_getinfo(3) reports. */
#include "case.h"
#include <sys/wait.h>

static const struct want ONLY_MSG = { .type = FI_EP_RDM };

CASE_OURS(caps_one_direction_works)
{
	struct want sender = { .caps = FI_SEND | FI_TAGGED }, receiver = { .caps = FI_RECV | FI_TAGGED };
	struct fid_ep *ep;
	struct side a, b;
	char in[8];
	fi_addr_t to_b;

	/* Each needs only the queue of its own direction. */
	open_domain(&a, &sender);
	CHECK(fi_endpoint(a.domain, a.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &a.cq->fid, FI_TRANSMIT) == 0 && fi_ep_bind(ep, &a.av->fid, 0) == 0 && fi_enable(ep) == 0);
	a.ep = ep;
	open_domain(&b, &receiver);
	CHECK(fi_endpoint(b.domain, b.info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &b.cq->fid, FI_RECV) == 0 && fi_ep_bind(ep, &b.av->fid, 0) == 0 && fi_enable(ep) == 0);
	b.ep = ep;
	b.len = sizeof(b.name);
	CHECK(fi_getname(&b.ep->fid, b.name, &b.len) == 0);
	to_b = insert(&a, b.name);
	POST(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(a.ep, "x", 1, NULL, to_b, &contexts[1]));
	done(&b, &a, &contexts[0]);
	done(&a, &b, &contexts[1]);
	POST(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 5, 0, &contexts[2]));
	POST(fi_tsend(a.ep, "y", 1, NULL, to_b, 5, &contexts[3]));
	done(&b, &a, &contexts[2]);
	done(&a, &b, &contexts[3]);
	CHECK(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL) == -FI_ENOCQ);
	CHECK(fi_trecv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, 5, 0, NULL) == -FI_ENOCQ);
	CHECK(fi_send(b.ep, in, 8, NULL, 0, NULL) == -FI_ENOCQ);
	CHECK(fi_tsend(b.ep, in, 8, NULL, 0, 5, NULL) == -FI_ENOCQ);
	close_side(&a);
	close_side(&b);
}

/* Each message and tagged call: the payload arrives, with its data and tag. */
CASE(every_message_call)
{
	char out[] = "abcdef", in[8];
	struct iovec iov[2] = { { out, 3 }, { out + 3, 3 } }, place[2] = { { in, 2 }, { in + 2, 6 } };
	struct fi_msg msg = { .msg_iov = iov, .iov_count = 2, .context = &contexts[1], .data = 7 };
	struct fi_msg in_msg = { .msg_iov = place, .iov_count = 2, .addr = FI_ADDR_UNSPEC, .context = &contexts[0] };
	struct fi_msg_tagged tmsg = { .msg_iov = iov, .iov_count = 2, .tag = 9, .context = &contexts[1], .data = 7 };
	struct fi_msg_tagged in_tmsg = { .msg_iov = place, .iov_count = 2, .addr = FI_ADDR_UNSPEC, .tag = 9, .context = &contexts[0] };
	struct fi_cq_tagged_entry entry;
	struct pair p;
	int i;

	meet(&p, &RDM);
	msg.addr = tmsg.addr = p.to_b;
	for (i = 0; i < 12; i++) {
		int tagged = i >= 6, with_data = i % 6 == 2 || i % 6 == 3 || i % 6 == 5;

		memset(in, 0, sizeof(in));
		switch (i % 3 + 3 * tagged) {
		case 0: POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0])); break;
		case 1: POST(fi_recvv(p.b.ep, place, NULL, 2, FI_ADDR_UNSPEC, &contexts[0])); break;
		case 2: POST(fi_recvmsg(p.b.ep, &in_msg, 0)); break;
		case 3: POST(fi_trecv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 9, 0, &contexts[0])); break;
		case 4: POST(fi_trecvv(p.b.ep, place, NULL, 2, FI_ADDR_UNSPEC, 9, 0, &contexts[0])); break;
		case 5: POST(fi_trecvmsg(p.b.ep, &in_tmsg, 0)); break;
		}
		switch (i) {
		case 0: POST(fi_send(p.a.ep, out, 6, NULL, p.to_b, &contexts[1])); break;
		case 1: POST(fi_sendv(p.a.ep, iov, NULL, 2, p.to_b, &contexts[1])); break;
		case 2: POST(fi_sendmsg(p.a.ep, &msg, FI_REMOTE_CQ_DATA)); break;
		case 3: POST(fi_senddata(p.a.ep, out, 6, NULL, 7, p.to_b, &contexts[1])); break;
		case 4: POST(fi_inject(p.a.ep, out, 6, p.to_b)); break;
		case 5: POST(fi_injectdata(p.a.ep, out, 6, 7, p.to_b)); break;
		case 6: POST(fi_tsend(p.a.ep, out, 6, NULL, p.to_b, 9, &contexts[1])); break;
		case 7: POST(fi_tsendv(p.a.ep, iov, NULL, 2, p.to_b, 9, &contexts[1])); break;
		case 8: POST(fi_tsendmsg(p.a.ep, &tmsg, FI_REMOTE_CQ_DATA)); break;
		case 9: POST(fi_tsenddata(p.a.ep, out, 6, NULL, 7, p.to_b, 9, &contexts[1])); break;
		case 10: POST(fi_tinject(p.a.ep, out, 6, p.to_b, 9)); break;
		case 11: POST(fi_tinjectdata(p.a.ep, out, 6, 7, p.to_b, 9)); break;
		}
		entry = done(&p.b, &p.a, &contexts[0]);
		CHECK(entry.len == 6 && !memcmp(in, "abcdef", 6) && entry.flags & (tagged ? FI_TAGGED : FI_MSG));
		CHECK(!!(entry.flags & FI_REMOTE_CQ_DATA) == with_data && (!with_data || entry.data == 7));
		CHECK(!tagged || entry.tag == 9);
		if (i % 6 < 4)
			done(&p.a, &p.b, &contexts[1]);
	}
	part(&p);
}

/* Only FI_MSG is requested; further capabilities in the result may be used. */
CASE(caps_extra_may_be_used)
{
	static char buf[1 << 16];
	struct iovec iov = { buf, sizeof(buf) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &contexts[0] };
	struct fi_cq_tagged_entry entry;
	struct pair p;

	meet(&p, &ONLY_MSG);
	if (!(p.b.info->caps & FI_MULTI_RECV))
		SKIP("the result has only the requested capabilities");
	POST(fi_recvmsg(p.b.ep, &msg, FI_MULTI_RECV));
	POST(fi_send(p.a.ep, "ab", 2, NULL, p.to_b, &contexts[1]));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.len == 2 && entry.flags & FI_RECV && !memcmp(entry.buf, "ab", 2));
	/* The buffer stays posted. */
	POST(fi_send(p.a.ep, "cd", 2, NULL, p.to_b, &contexts[2]));
	entry = done(&p.b, &p.a, &contexts[0]);
	CHECK(entry.len == 2 && !memcmp(entry.buf, "cd", 2));
	part(&p);
}

/* A message from one process of this host to another. */
CASE(caps_local_comm_between_processes)
{
	struct want w = { .caps = FI_LOCAL_COMM };
	char name[64] = "", in[8] = "";
	int ends[2], status = 0;
	struct side s;
	fi_addr_t to;
	pid_t child;

	CHECK(pipe(ends) == 0);
	child = fork();
	CHECK(child >= 0);
	open_side(&s, &w);
	CHECK(s.info->caps & FI_LOCAL_COMM);
	if (child == 0) {
		POST(fi_recv(s.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
		CHECK(write(ends[1], s.name, sizeof(s.name)) == (ssize_t) sizeof(s.name));
		done(&s, NULL, &contexts[0]);
		CHECK(!strcmp(in, "local"));
		close_side(&s);
		exit(0);
	}
	close(ends[1]);
	CHECK(read(ends[0], name, sizeof(name)) == (ssize_t) sizeof(name));
	to = insert(&s, name);
	POST(fi_send(s.ep, "local", 6, NULL, to, &contexts[1]));
	done(&s, NULL, &contexts[1]);
	while (waitpid(child, &status, WNOHANG) == 0)
		drive();
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close_side(&s);
}

/* Untagged messages; caps_directed_recv_matches has the tagged ones. */
CASE(caps_directed_recv_of_messages)
{
	struct want w = { .caps = FI_DIRECTED_RECV | FI_SOURCE };
	fi_addr_t from_a, from_c, c_to_b;
	char in[2][64] = { "", "" };
	struct pair p;
	struct side c;

	meet(&p, &w);
	open_side(&c, &w);
	from_a = p.to_a;
	from_c = insert(&p.b, c.name);
	c_to_b = insert(&c, p.b.name);
	POST(fi_recv(p.b.ep, in[0], 64, NULL, from_c, &contexts[0]));
	POST(fi_recv(p.b.ep, in[1], 64, NULL, from_a, &contexts[1]));
	POST(fi_send(p.a.ep, "a", 2, NULL, p.to_b, &contexts[2]));
	done(&p.b, &p.a, &contexts[1]);
	POST(fi_send(c.ep, "c", 2, NULL, c_to_b, &contexts[2]));
	done(&p.b, &c, &contexts[0]);
	CHECK(in[0][0] == 'c' && in[1][0] == 'a');
	part(&p);
	close_side(&c);
	/* Without the capability, the address is ignored. */
	meet(&p, &ONLY_MSG);
	POST(fi_recv(p.b.ep, in[0], 64, NULL, 77, &contexts[0]));
	POST(fi_send(p.a.ep, "A", 2, NULL, p.to_b, &contexts[2]));
	done(&p.b, &p.a, &contexts[0]);
	CHECK(in[0][0] == 'A');
	part(&p);
}

/*
 * A slow receiver loses nothing: messages arrive whole and in order, and the sender gets FI_EAGAIN.
 */
CASE(reliable_endpoints_apply_flow_control)
{
	static const enum fi_ep_type types[] = { FI_EP_RDM, FI_EP_MSG };
	static struct { uint32_t number; char rest[996]; } out[5000], in;
	struct fi_cq_tagged_entry entry;
	struct pair p;
	uint32_t sent, got;
	size_t t;

	for (t = 0; t < ARRAY(types); t++) {
		struct want w = { .type = types[t] };
		double end = seconds() + 30;

		meet(&p, &w);
		for (sent = got = 0; got < ARRAY(out); got++) {
			POST(fi_recv(p.b.ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
			do {
				ssize_t ret = 0;

				for (; sent < ARRAY(out) && ret == 0; sent += ret == 0) {
					out[sent].number = sent;
					ret = fi_send(p.a.ep, &out[sent], sizeof(out[sent]), NULL, p.to_b, &contexts[1]);
				}
				CHECK(ret == 0 || ret == -FI_EAGAIN);
				while (fi_cq_read(p.a.cq, &entry, 1) == 1)
					;
				ret = fi_cq_read(p.b.cq, &entry, 1);
				CHECK(ret == 1 || ret == -FI_EAGAIN);
				if (ret == 1)
					break;
			} while (seconds() < end);
			CHECK(entry.op_context == &contexts[0] && entry.len == sizeof(in) && in.number == got);
		}
		part(&p);
	}
}

CASE(context_memory_rules)
{
	struct { int mine; struct fi_context context; } small = { 7, { { 0 } } };
	struct { int mine; struct fi_context2 context; } large = { 8, { { 0 } } };
	struct fi_context two[2];
	struct want w = RDM;
	struct pair p;
	double end = seconds() + 10;
	char in[8] = "";
	size_t i;

	meet(&p, &w);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &small.context));
	POST(fi_send(p.a.ep, "x", 1, NULL, p.to_b, &two));
	done(&p.a, &p.b, &two);
	done(&p.b, &p.a, &small.context);
	/* A context may be used again; the library does not write to a returned one. */
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &small.context));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, &small.context);
	memset(&small.context, 0x5a, sizeof(small.context));
	for (i = 0; i < 2; i++) {
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &large.context));
		POST(fi_inject(p.a.ep, "x", 1, p.to_b));
		done(&p.b, &p.a, &large.context);
	}
	CHECK(large.mine == 8 && small.mine == 7);
	for (i = 0; i < sizeof(small.context); i++)
		CHECK(((unsigned char *) &small.context)[i] == 0x5a);
	/* A mode that is not in the result is no requirement: the argument may be any value. */
	CHECK(!(p.b.info->mode & (FI_CONTEXT | FI_CONTEXT2)));
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, (void *) 3));
	POST(fi_inject(p.a.ep, "x", 1, p.to_b));
	done(&p.b, &p.a, (void *) 3);
	part(&p);
	/* Operations that report no completion ignore the argument. */
	w.bind = FI_SELECTIVE_COMPLETION;
	meet(&p, &w);
	POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, (void *) 1));
	POST(fi_send(p.a.ep, "y", 1, NULL, p.to_b, (void *) 1));
	while (in[0] != 'y' && seconds() < end)
		drive();
	CHECK(in[0] == 'y');
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	part(&p);
}

/* A message that is sent only once a receive is posted: its vector may be overwritten earlier. */
CASE(vectors_of_long_messages_are_copied)
{
	static char out[2][300000], in[600000];
	struct iovec iov[2] = { { out[0], sizeof(out[0]) }, { out[1], sizeof(out[1]) } };
	struct fi_msg msg = { .msg_iov = iov, .iov_count = 2, .context = &contexts[1] };
	struct pair p;

	meet(&p, &RDM);
	CHECK(!(p.a.info->mode & FI_ASYNC_IOV));
	memset(out[0], 'l', sizeof(out[0]));
	memset(out[1], 'r', sizeof(out[1]));
	msg.addr = p.to_b;
	POST(fi_sendmsg(p.a.ep, &msg, 0));
	memset(iov, 0, sizeof(iov));
	memset(&msg, 0, sizeof(msg));
	quiet(&p.b, &p.a);
	POST(fi_recv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &contexts[0]));
	CHECK(done(&p.b, &p.a, &contexts[0]).len == sizeof(in));
	CHECK(in[0] == 'l' && in[299999] == 'l' && in[300000] == 'r' && in[599999] == 'r');
	done(&p.a, &p.b, &contexts[1]);
	part(&p);
}

/* As many buffers as rx_attr->iov_limit allows. */
CASE(receive_vectors_up_to_the_limit)
{
	char out[64] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", in[64];
	struct iovec place[64];
	struct pair p;
	size_t i, most;

	meet(&p, &RDM);
	most = p.b.info->rx_attr->iov_limit;
	CHECK(most >= 1 && most <= ARRAY(place));
	for (i = 0; i < most; i++)
		place[i] = (struct iovec) { in + i, i + 1 < most ? 1 : sizeof(in) - i };
	POST(fi_recvv(p.b.ep, place, NULL, most, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, out, sizeof(out), NULL, p.to_b, &contexts[1]));
	CHECK(done(&p.b, &p.a, &contexts[0]).len == sizeof(in) && !memcmp(in, out, sizeof(in)));
	part(&p);
}

/* Each side of a group needs only the queue of its own direction, and can do nothing else. */
CASE_OURS(multicast_in_one_direction)
{
	struct want out = { .type = FI_EP_DGRAM, .caps = FI_MULTICAST | FI_SEND };
	struct want into = { .type = FI_EP_DGRAM, .caps = FI_MULTICAST | FI_RECV };
	uint16_t port = (uint16_t) (20000 + getpid() % 12000);
	unsigned char group[16] = { 2, 0, port >> 8, port & 255, 239, 7, 7, 9 };
	struct side a, b, *both[2] = { &a, &b };
	struct fid_mc *sends, *receives;
	struct iovec iov = { "x", 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &contexts[1] };
	char in[8];
	int i;

	for (i = 0; i < 2; i++) {
		struct side *s = both[i];

		open_domain(s, i ? &into : &out);
		CHECK(fi_endpoint(s->domain, s->info, &s->ep, NULL) == 0);
		CHECK(fi_ep_bind(s->ep, &s->cq->fid, i ? FI_RECV : FI_TRANSMIT) == 0);
		CHECK(fi_ep_bind(s->ep, &s->av->fid, 0) == 0 && fi_ep_bind(s->ep, &s->eq->fid, 0) == 0);
		CHECK(fi_enable(s->ep) == 0);
	}
	CHECK(fi_join(a.ep, group, FI_SEND, &sends, NULL) == 0 && fi_join(b.ep, group, FI_RECV, &receives, NULL) == 0);
	await_join(&b);
	msg.addr = fi_mc_addr(sends);
	POST(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_sendmsg(a.ep, &msg, FI_MULTICAST));
	done(&a, NULL, &contexts[1]);
	done(&b, &a, &contexts[0]);
	CHECK(fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL) == -FI_ENOCQ);
	CHECK(fi_send(b.ep, in, 1, NULL, 0, NULL) == -FI_ENOCQ);
	CHECK(fi_close(&sends->fid) == 0 && fi_close(&receives->fid) == 0);
	close_side(&a);
	close_side(&b);
}

/* Calls fail without their capability. */
CASE_OURS(calls_need_their_capability)
{
	struct want datagrams = { .type = FI_EP_DGRAM };
	unsigned char group[16] = { 2, 0, 156, 64, 239, 7, 7, 8 };
	struct fid_mc *mc;
	struct pair p;
	struct side s;
	char in[8];

	meet(&p, &ONLY_MSG);
	CHECK(fi_tsend(p.a.ep, "x", 1, NULL, p.to_b, 1, &contexts[0]) < 0);
	CHECK(fi_trecv(p.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]) < 0);
	part(&p);
	open_side(&s, &datagrams);
	CHECK(fi_ep_bind(s.ep, &s.eq->fid, 0) == 0);
	CHECK(fi_join(s.ep, group, 0, &mc, NULL) < 0);
	close_side(&s);
}
