/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Interaction of endpoints, within a process and between processes. One scenario per run. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"
#include "scenario.h"
#include "side.h"

#define SENT_MSG	(FI_SEND | FI_MSG)
#define SENT_TAGGED	(FI_SEND | FI_TAGGED)
#define GOT_MSG		(FI_RECV | FI_MSG)
#define GOT_TAGGED	(FI_RECV | FI_TAGGED)

/* Two endpoints of one process, each at index 0 of the other's address vector. */
static void pair(struct side *a, struct side *b, fi_addr_t *to_b, fi_addr_t *to_a)
{
	open_rdm(a, FI_WAIT_NONE);
	open_rdm(b, FI_WAIT_NONE);
	*to_b = insert(a, b->name);
	*to_a = insert(b, a->name);
	CHECK(*to_b == 0 && *to_a == 0);
}

static void every_call(struct side *a, struct side *b, fi_addr_t to_b, fi_addr_t to_a)
{
	char out[3][8] = { "one-two", "three--", "four---" }, in[64];
	struct iovec iov[3] = { { out[0], 8 }, { out[1], 8 }, { out[2], 8 } };
	struct iovec in_iov[2] = { { in, 10 }, { in + 10, 54 } };
	struct fi_msg msg = { .msg_iov = iov, .iov_count = 3, .addr = to_b, .context = &msg, .data = 99 };
	struct fi_msg_tagged tmsg = { .msg_iov = iov, .iov_count = 2, .addr = to_b, .tag = 5, .context = &tmsg };
	struct fi_msg in_msg = { .msg_iov = in_iov, .iov_count = 2, .addr = to_a, .context = in };
	struct fi_msg_tagged in_tmsg = { .msg_iov = in_iov, .iov_count = 2, .addr = FI_ADDR_UNSPEC, .tag = 5, .context = in };
	struct fi_cq_tagged_entry entry;

#define ARRIVES(bytes, flagged, text) \
	entry = done(b, a, in, flagged); \
	CHECK(entry.len == (bytes)); \
	CHECK(memcmp(in, text, (bytes)) == 0); \
	memset(in, 0, sizeof(in))

	CHECK(fi_recv(b->ep, in, sizeof(in), NULL, to_a, in) == 0);
	CHECK(fi_send(a->ep, out[0], 8, NULL, to_b, out) == 0);
	ARRIVES(8, GOT_MSG, out);
	done(a, b, out, SENT_MSG);

	CHECK(fi_sendv(a->ep, iov, NULL, 3, to_b, out) == 0);
	done(a, b, out, SENT_MSG);
	CHECK(fi_recvv(b->ep, in_iov, NULL, 2, FI_ADDR_UNSPEC, in) == 0);
	ARRIVES(24, GOT_MSG, out);

	CHECK(fi_sendmsg(a->ep, &msg, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE) == 0);
	CHECK(fi_recvmsg(b->ep, &in_msg, 0) == 0);
	ARRIVES(24, GOT_MSG | FI_REMOTE_CQ_DATA, out);
	CHECK(entry.data == 99);
	done(a, b, &msg, SENT_MSG);

	CHECK(fi_inject(a->ep, out[0], 8, to_b) == 0);
	CHECK(fi_recv(b->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in) == 0);
	ARRIVES(8, GOT_MSG, out);

	CHECK(fi_senddata(a->ep, out[1], 8, NULL, 0x1122334455667788, to_b, out) == 0);
	CHECK(fi_recv(b->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in) == 0);
	ARRIVES(8, GOT_MSG | FI_REMOTE_CQ_DATA, out[1]);
	CHECK(entry.data == 0x1122334455667788);
	done(a, b, out, SENT_MSG);

	CHECK(fi_injectdata(a->ep, out[2], 8, 7, to_b) == 0);
	CHECK(fi_recv(b->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in) == 0);
	ARRIVES(8, GOT_MSG | FI_REMOTE_CQ_DATA, out[2]);
	CHECK(entry.data == 7);

	CHECK(fi_trecv(b->ep, in, sizeof(in), NULL, to_a, 5, 0, in) == 0);
	CHECK(fi_tsend(a->ep, out[1], 8, NULL, to_b, 6, out) == 0);
	CHECK(fi_tsend(a->ep, out[0], 8, NULL, to_b, 5, out) == 0);
	ARRIVES(8, GOT_TAGGED, out[0]);
	CHECK(entry.tag == 5);
	CHECK(fi_trecv(b->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, in) == 0);
	ARRIVES(8, GOT_TAGGED, out[1]);
	CHECK(entry.tag == 6);
	done(a, b, out, SENT_TAGGED);
	done(a, b, out, SENT_TAGGED);

	CHECK(fi_trecvv(b->ep, in_iov, NULL, 2, FI_ADDR_UNSPEC, 4, 3, in) == 0);
	CHECK(fi_tsendv(a->ep, iov, NULL, 3, to_b, 7, out) == 0);
	ARRIVES(24, GOT_TAGGED, out);
	done(a, b, out, SENT_TAGGED);

	CHECK(fi_trecvmsg(b->ep, &in_tmsg, 0) == 0);
	CHECK(fi_tsendmsg(a->ep, &tmsg, FI_MATCH_COMPLETE) == 0);
	ARRIVES(16, GOT_TAGGED, out);
	done(a, b, &tmsg, SENT_TAGGED);

	CHECK(fi_tinject(a->ep, out[0], 8, to_b, 5) == 0);
	CHECK(fi_trecvmsg(b->ep, &in_tmsg, 0) == 0);
	ARRIVES(8, GOT_TAGGED, out);
	CHECK(fi_tsenddata(a->ep, out[0], 8, NULL, 11, to_b, 5, out) == 0);
	CHECK(fi_trecvmsg(b->ep, &in_tmsg, 0) == 0);
	ARRIVES(8, GOT_TAGGED | FI_REMOTE_CQ_DATA, out);
	done(a, b, out, SENT_TAGGED);
	CHECK(fi_tinjectdata(a->ep, out[0], 8, 12, to_b, 5) == 0);
	CHECK(fi_trecvmsg(b->ep, &in_tmsg, 0) == 0);
	ARRIVES(8, GOT_TAGGED | FI_REMOTE_CQ_DATA, out);
	CHECK(entry.data == 12);

	/* A zero-length message between null buffers. */
	CHECK(fi_send(a->ep, NULL, 0, NULL, to_b, out) == 0);
	CHECK(fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, in) == 0);
	ARRIVES(0, GOT_MSG, out);
	done(a, b, out, SENT_MSG);
#undef ARRIVES
}

static void refusals_and_errors(struct side *a, struct side *b, fi_addr_t to_b)
{
	static char large[3 << 20], into[3 << 20];
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	fi_addr_t src = 1234;
	char text[256];
	size_t i;

	for (i = 0; i < sizeof(large); i++)
		large[i] = (char) (i * 7);

	/* Too small a receive: an error for this message only. */
	CHECK(fi_trecv(b->ep, into, 3, NULL, FI_ADDR_UNSPEC, 1, 0, into) == 0);
	CHECK(fi_tsenddata(a->ep, "abcdefgh", 8, NULL, 42, to_b, 1, large) == 0);
	CHECK(next_of(b, a, &entry, &err) == 0);
	CHECK(err.err == FI_ETRUNC && err.op_context == into && err.tag == 1 && err.data == 42);
	CHECK(err.len == 3 && err.olen == 5 && memcmp(into, "abc", 3) == 0);
	CHECK(strstr(fi_cq_strerror(b->cq, err.prov_errno, NULL, text, sizeof(text)), "8 bytes"));
	done(a, b, large, SENT_TAGGED);
	/* The same for a rendezvous message. */
	CHECK(fi_recv(b->ep, into, 70000, NULL, FI_ADDR_UNSPEC, into) == 0);
	CHECK(fi_send(a->ep, large, sizeof(large), NULL, to_b, large) == 0);
	CHECK(next_of(b, a, &entry, &err) == 0);
	CHECK(err.err == FI_ETRUNC && err.len == 70000 && err.olen == sizeof(large) - 70000);
	CHECK(memcmp(into, large, 70000) == 0);
	done(a, b, large, SENT_MSG);

	/* Large, expected and unexpected. */
	CHECK(fi_recv(b->ep, into, sizeof(into), NULL, FI_ADDR_UNSPEC, into) == 0);
	CHECK(fi_send(a->ep, large, sizeof(large), NULL, to_b, large) == 0);
	entry = done(b, a, into, GOT_MSG);
	CHECK(entry.len == sizeof(large) && memcmp(into, large, sizeof(large)) == 0);
	done(a, b, large, SENT_MSG);
	memset(into, 0, sizeof(into));
	CHECK(fi_tsend(a->ep, large, 200000, NULL, to_b, 9, large) == 0);
	await_tagged(b, a, 9, text);
	CHECK(fi_trecv(b->ep, into, sizeof(into), NULL, FI_ADDR_UNSPEC, 9, 0, into) == 0);
	entry = done(b, a, into, GOT_TAGGED);
	CHECK(entry.len == 200000 && memcmp(into, large, 200000) == 0);
	/* Whether a message of this size is done without a receive is up to the provider. */
	done(a, b, large, SENT_TAGGED);

	/* Canceling takes the oldest; canceling nothing is no error. */
	CHECK(fi_recv(b->ep, into, 8, NULL, FI_ADDR_UNSPEC, text) == 0);
	CHECK(fi_cancel(&b->ep->fid, text) == 0);
	CHECK(next_of(b, a, &entry, &err) == 0);
	CHECK(err.err == FI_ECANCELED && err.op_context == text && err.flags == GOT_MSG);
	CHECK(fi_cancel(&b->ep->fid, text) == 0);

	/* The source of a message. */
	CHECK(fi_recv(b->ep, into, 8, NULL, FI_ADDR_UNSPEC, into) == 0);
	CHECK(fi_send(a->ep, large, 8, NULL, to_b, large) == 0);
	for (i = 0; fi_cq_readfrom(b->cq, &entry, 1, &src) != 1; i++) {
		fi_cq_read(a->cq, NULL, 0);
		CHECK(i < 10000000);
	}
	CHECK(src == 0);
	done(a, b, large, SENT_MSG);

	CHECK(fi_inject(a->ep, large, a->info->tx_attr->inject_size + 1, to_b) == -FI_EMSGSIZE);
	CHECK(fi_send(a->ep, large, 8, NULL, 55, large) == -FI_EINVAL);
	CHECK(fi_cq_sread(a->cq, &entry, 1, NULL, 0) == -FI_ENOSYS);
	CHECK(fi_cq_signal(a->cq) == -FI_ENOSYS);
	CHECK(fi_cq_readerr(a->cq, &err, 0) == -FI_EAGAIN);
	CHECK(fi_control(&a->cq->fid, FI_GETWAIT, &i) == -FI_ENODATA);
	CHECK(fi_control(&a->ep->fid, 1000, NULL) == -FI_ENOSYS);
	CHECK(fi_setopt(&a->ep->fid, FI_OPT_ENDPOINT, 12345, &i, sizeof(i)) == -FI_ENOPROTOOPT);
	CHECK(fi_write(a->ep, large, 8, NULL, to_b, 0, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_barrier(a->ep, 0, NULL) == -FI_ENOSYS);
	CHECK(fi_listen((struct fid_pep *) a->ep) == -FI_ENOSYS);

	/* A full queue refuses and loses nothing. */
	size_t posted = 0, got = 0;
	while (fi_trecv(b->ep, into, 1, NULL, FI_ADDR_UNSPEC, 1, 0, into) == 0)
		posted++;
	CHECK(posted == b->info->rx_attr->size);
	for (i = 0; i < posted; i++)
		CHECK(fi_cancel(&b->ep->fid, into) == 0);
	while (got < posted) {
		CHECK(next_of(b, NULL, &entry, &err) == 0);
		CHECK(err.err == FI_ECANCELED);
		got++;
	}
}

static void names(struct side *a)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	char text[64], small[8];
	size_t len = sizeof(text), i;
	fi_addr_t addrs[3];

	for (i = 0; i < 3; i++) {
		in.sin_port = htons((uint16_t) (1000 + i));
		in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		CHECK(fi_av_insert(a->av, &in, 1, &addrs[i], FI_MORE, NULL) == 1);
	}
	CHECK(addrs[1] == addrs[0] + 1 && addrs[2] == addrs[1] + 1);
	CHECK(fi_av_insert(a->av, &in, 1, NULL, 0, NULL) == 1);
	CHECK(fi_av_insert(a->av, &in, 1, NULL, FI_EVENT, NULL) == -FI_EBADFLAGS);
	CHECK(fi_av_insert(a->av, &in, 1, NULL, FI_SYNC_ERR, NULL) == -FI_EINVAL);
	CHECK(fi_av_straddr(a->av, &in, text, &len) == text);
	CHECK(strcmp(text, "fi_sockaddr_in://127.0.0.1:1002") == 0 && len == strlen(text) + 1);
	len = sizeof(small);
	CHECK(fi_av_straddr(a->av, &in, small, &len) == small && len == strlen(text) + 1);
	memset(&in, 0, sizeof(in));
	len = sizeof(in);
	CHECK(fi_av_lookup(a->av, addrs[1], &in, &len) == 0 && len == sizeof(in) && ntohs(in.sin_port) == 1001);
	CHECK(fi_av_remove(a->av, &addrs[1], 1, 0) == 0);
	CHECK(fi_av_remove(a->av, &addrs[1], 1, 0) == -FI_EINVAL);
	CHECK(fi_av_lookup(a->av, addrs[1], &in, &len) == -FI_EINVAL);
	CHECK(fi_av_insertsvc(a->av, "127.0.0.1", "1005", &addrs[0], 0, NULL) == 1);
	CHECK(addrs[0] == addrs[1]);
	CHECK(fi_setname(&a->ep->fid, &in, sizeof(in)) == -FI_EOPBADSTATE);
}

static void selective(void)
{
	struct fi_info *info = find(FI_EP_RDM);
	struct fi_cq_tagged_entry entry;
	struct side s;
	char in[8];
	fi_addr_t self;

	/* An endpoint may send to itself. */
	open_domain(&s, info, FI_WAIT_NONE);
	open_ep(&s, info, FI_SELECTIVE_COMPLETION);
	self = insert(&s, s.name);
	CHECK(fi_recv(s.ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL) == 0);
	CHECK(fi_send(s.ep, "silent-", 8, NULL, self, NULL) == 0);
	struct iovec iov = { "spoken-", 8 }, into = { in, 8 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = self, .context = &msg };
	struct fi_msg in_msg = { .msg_iov = &into, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in };
	CHECK(fi_recvmsg(s.ep, &in_msg, FI_COMPLETION) == 0);
	CHECK(fi_sendmsg(s.ep, &msg, FI_COMPLETION) == 0);
	done(&s, NULL, &msg, SENT_MSG);
	entry = done(&s, NULL, in, GOT_MSG);
	CHECK(entry.len == 8 && strcmp(in, "spoken-") == 0);
	CHECK(fi_cq_read(s.cq, &entry, 1) == -FI_EAGAIN);
	close_side(&s);
}

static void calls_of_one_kind(void)
{
	struct side a, b;
	fi_addr_t to_a, to_b;
	int i;

	pair(&a, &b, &to_b, &to_a);
	for (i = 0; i < 20; i++)
		every_call(&a, &b, to_b, to_a);
	refusals_and_errors(&a, &b, to_b);
	if (!within_host())
		names(&a);
	close_side(&a);
	close_side(&b);
	selective();
}

static void calls(void)
{
	calls_of_one_kind();
	/* Without locks. */
	threading = FI_THREAD_DOMAIN;
	calls_of_one_kind();
}

static uint32_t event(struct fid_eq *eq, void *buf, size_t len, ssize_t expected)
{
	uint32_t number = 999;
	ssize_t ret = fi_eq_sread(eq, &number, buf, len, 10000, 0);

	if (ret != expected)
		fprintf(stderr, "event %u of %zd bytes instead of %zd\n", number, ret, expected);
	CHECK(ret == expected);
	return number;
}

static void connect_scenario(void)
{
	struct fi_info *info = find(FI_EP_MSG);
	struct { struct fi_eq_cm_entry cm; char data[64]; } got;
	struct fi_cq_tagged_entry entry;
	struct fi_eq_err_entry eq_err = { 0 };
	struct fi_cq_err_entry err;
	struct side server, client;
	struct fid_pep *pep;
	char name[64], in[8], data[64];
	size_t len = sizeof(name), size;
	uint32_t number;
	int round;

	open_domain(&server, info, FI_WAIT_NONE);
	CHECK(fi_passive_ep(server.fabric, info, &pep, NULL) == 0);
	CHECK(fi_listen(pep) == -FI_ENOEQ);
	CHECK(fi_pep_bind(pep, &server.eq->fid, 0) == 0);
	CHECK(fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0 && len == (within_host() ? strlen(name) + 1 : 16));

	for (round = 0; round < 10; round++) {
		open_domain(&client, find(FI_EP_MSG), FI_WAIT_NONE);
		open_ep(&client, client.info, 0);
		size = sizeof(size_t);
		CHECK(fi_getopt(&client.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &len, &size) == 0 && len == 256);
		CHECK(fi_send(client.ep, in, 8, NULL, 0, NULL) == -FI_EOPBADSTATE);
		CHECK(fi_recv(client.ep, in, 8, NULL, 0, in) == 0);
		CHECK(fi_connect(client.ep, name, "question", 9) == 0);
		CHECK(fi_connect(client.ep, name, NULL, 0) == -FI_EOPBADSTATE);
		for (number = 0; number != FI_CONNREQ;) {
			ssize_t ret = fi_eq_read(server.eq, &number, &got, sizeof(got), 0);

			CHECK(fi_eq_read(client.eq, &number, NULL, 0, 0) == -FI_EAGAIN || ret > 0);
			if (ret > 0)
				CHECK(ret == (ssize_t) sizeof(got.cm) + 9);
		}
		CHECK(got.cm.fid == &pep->fid && strcmp(got.data, "question") == 0 && got.cm.info->handle);
		if (round % 2) {
			CHECK(fi_reject(pep, got.cm.info->handle, "no", 3) == 0);
			fi_freeinfo(got.cm.info);
			for (len = 0; fi_eq_read(client.eq, &number, &got, sizeof(got), 0) != -FI_EAVAIL; len++) {
				fi_eq_read(server.eq, &number, NULL, 0, 0);
				CHECK(len < 100000000);
			}
			eq_err.err_data = data;
			eq_err.err_data_size = sizeof(data);
			CHECK(fi_eq_readerr(client.eq, &eq_err, 0) == sizeof(eq_err));
			CHECK(eq_err.err == FI_ECONNREFUSED && eq_err.fid == &client.ep->fid && eq_err.context == &client);
			CHECK(eq_err.err_data == data && eq_err.err_data_size == 3 && strcmp(data, "no") == 0);
			CHECK(next_of(&client, NULL, &entry, &err) == 0);
			CHECK(err.op_context == in);
			close_side(&client);
			continue;
		}
		open_ep(&server, got.cm.info, 0);
		CHECK(fi_accept(server.ep, "answer", 7) == 0);
		fi_freeinfo(got.cm.info);
		CHECK(event(server.eq, &got, sizeof(got), sizeof(got.cm)) == FI_CONNECTED);
		CHECK(got.cm.fid == &server.ep->fid);
		CHECK(event(client.eq, &got, sizeof(got), (ssize_t) sizeof(got.cm) + 7) == FI_CONNECTED);
		CHECK(got.cm.fid == &client.ep->fid && strcmp(got.data, "answer") == 0);
		len = sizeof(data);
		CHECK(fi_getpeer(client.ep, data, &len) == 0 && memcmp(data, name, 8) == 0);

		CHECK(fi_send(server.ep, "welcome", 8, NULL, 0, name) == 0);
		entry = done(&client, &server, in, GOT_MSG);
		CHECK(entry.len == 8 && strcmp(in, "welcome") == 0);
		done(&server, &client, name, SENT_MSG);

		/* Messages sent before the shutdown arrive before it. */
		CHECK(fi_recv(client.ep, in, 8, NULL, 0, in) == 0);
		CHECK(fi_recv(client.ep, in, 8, NULL, 0, data) == 0);
		CHECK(fi_inject(server.ep, "goodbye", 8, 0) == 0);
		CHECK(fi_shutdown(server.ep, 0) == 0);
		CHECK(event(client.eq, &got, sizeof(got), sizeof(got.cm)) == FI_SHUTDOWN);
		CHECK(got.cm.fid == &client.ep->fid);
		entry = done(&client, NULL, in, GOT_MSG);
		CHECK(strcmp(in, "goodbye") == 0);
		CHECK(next_of(&client, NULL, &entry, &err) == 0);
		CHECK(err.op_context == data && err.err == FI_ECONNRESET);
		CHECK(fi_send(client.ep, in, 8, NULL, 0, NULL) == -FI_ENOTCONN);
		close_side(&client);
		/* The side that shut down gets the peer's shutdown event too, once. */
		CHECK(event(server.eq, &got, sizeof(got), sizeof(got.cm)) == FI_SHUTDOWN);
		CHECK(got.cm.fid == &server.ep->fid);
		for (len = 0; len < 1000; len++)
			CHECK(fi_eq_read(server.eq, &number, &got, sizeof(got), 0) == -FI_EAGAIN);
		CHECK(fi_close(&server.ep->fid) == 0);
		server.ep = NULL;
	}

	/* No listener. */
	CHECK(fi_close(&pep->fid) == 0);
	open_domain(&client, find(FI_EP_MSG), FI_WAIT_NONE);
	open_ep(&client, client.info, 0);
	CHECK(fi_connect(client.ep, name, NULL, 0) == 0);
	CHECK(fi_eq_sread(client.eq, &number, &got, sizeof(got), 5000, 0) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(client.eq, &eq_err, 0) == sizeof(eq_err) && eq_err.err == FI_ECONNREFUSED);
	CHECK(strstr(fi_eq_strerror(client.eq, eq_err.prov_errno, NULL, data, sizeof(data)), within_host() ? "connect to fi_shm://" : "connect to 127.0.0.1"));

	/* Events written by the application. */
	struct fi_eq_entry mine = { .data = 17 }, back;
	CHECK(fi_eq_write(client.eq, FI_NOTIFY, &mine, sizeof(mine), 0) == sizeof(mine));
	CHECK(fi_eq_read(client.eq, &number, &back, sizeof(back), FI_PEEK) == sizeof(back) && back.data == 17);
	CHECK(fi_eq_read(client.eq, &number, &back, sizeof(back), 0) == sizeof(back) && number == FI_NOTIFY);
	CHECK(fi_eq_read(client.eq, &number, &back, sizeof(back), 0) == -FI_EAGAIN);
	close_side(&client);
	close_side(&server);
}

static void echo(int in, int out)
{
	struct fi_cq_tagged_entry entry;
	static char buf[100000];
	struct side s;
	char peer[64];
	fi_addr_t to;

	open_rdm(&s, FI_WAIT_UNSPEC);
	tell(out, s.name, sizeof(s.name));
	hear(in, peer, sizeof(peer));
	to = insert(&s, peer);
	for (;;) {
		CHECK(fi_recv(s.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, buf) == 0);
		entry = done(&s, NULL, buf, GOT_MSG);
		if (!entry.len)
			break;
		CHECK(fi_send(s.ep, buf, entry.len, NULL, to, peer) == 0);
		done(&s, NULL, peer, SENT_MSG);
	}
	close_side(&s);
}

static void kill_scenario(void)
{
	static char out[100000], in[100000];
	int round, status;

	srand(1);
	for (round = 0; round < 30; round++) {
		struct fi_cq_tagged_entry entry;
		struct fi_cq_err_entry err;
		int to, from, trips = rand() % 2000, i, killed = 0;
		size_t size = (size_t[]){ 8, 5000, 100000 }[round % 3];
		pid_t pid = child(echo, &to, &from);
		double noticed = 0;
		char name[64], text[256];
		struct side s;
		fi_addr_t peer;

		open_rdm(&s, FI_WAIT_UNSPEC);
		hear(from, name, sizeof(name));
		tell(to, s.name, sizeof(s.name));
		peer = insert(&s, name);
		for (i = 0;; i++) {
			int sent = 0, got = 0, failed = 0;

			if (i == trips) {
				kill(pid, SIGKILL);
				killed = 1;
			}
			CHECK(fi_recv(s.ep, in, sizeof(in), NULL, peer, in) == 0);
			CHECK(fi_send(s.ep, out, size, NULL, peer, out) == 0);
			while (!(sent && got) && !failed) {
				if (killed && !noticed && waitpid(pid, &status, WNOHANG) == pid)
					noticed = seconds();
				if (fi_cq_read(s.cq, &entry, 1) == 1) {
					sent |= entry.op_context == out;
					got |= entry.op_context == in;
				} else if (fi_cq_readerr(s.cq, &err, 0) == 1) {
					failed = 1;
				}
				CHECK(!noticed || seconds() < noticed + 1.5);
			}
			if (failed)
				break;
			CHECK(!noticed || i < trips + 3);
		}
		CHECK(killed);
		CHECK(err.err == FI_ECONNRESET || err.err == FI_ECONNREFUSED);
		CHECK(strstr(fi_cq_strerror(s.cq, err.prov_errno, NULL, text, sizeof(text)), within_host() ? name : "127.0.0.1"));
		if (!noticed)
			waitpid(pid, &status, 0);
		close(to);
		close(from);
		close_side(&s);
	}
}

static void expect_failure(struct side *s, fi_addr_t peer, int expected, double from, double until)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = { 0 };
	double start = seconds(), took;
	char text[256];
	int i;

	for (i = 0; i < 5; i++)
		CHECK(fi_tsend(s->ep, text, 8, NULL, peer, 3, text + i) == 0);
	for (i = 0; i < 5; i++) {
		CHECK(fi_cq_sread(s->cq, &entry, 1, NULL, 20000) == -FI_EAVAIL);
		CHECK(fi_cq_readerr(s->cq, &err, 0) == 1);
		took = seconds() - start;
		CHECK(err.err == expected && err.op_context == text + i && err.flags == SENT_TAGGED && err.tag == 3);
		CHECK(strstr(fi_cq_strerror(s->cq, err.prov_errno, NULL, text + 16, 200), "connect to 127.0.0.1"));
		if (took < from || took > until)
			fprintf(stderr, "failed after %.2f s\n", took);
		CHECK(took >= from && took <= until);
	}
}

static void refused(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0), i;
	struct side s;

	/* A port that is bound but not listening. */
	CHECK(bind(fd, (struct sockaddr *) &addr, sizeof(addr)) == 0);
	CHECK(getsockname(fd, (struct sockaddr *) &addr, &len) == 0);
	open_rdm(&s, FI_WAIT_UNSPEC);
	for (i = 0; i < 100; i++)
		expect_failure(&s, insert(&s, &addr), FI_ECONNREFUSED, 0, 1);
	close_side(&s);
	close(fd);
}

static void blackhole(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0), i, fill[8];
	struct side s;

	/* A listener whose queue is full: the kernel drops further connection requests. */
	CHECK(bind(fd, (struct sockaddr *) &addr, sizeof(addr)) == 0 && listen(fd, 0) == 0);
	CHECK(getsockname(fd, (struct sockaddr *) &addr, &len) == 0);
	for (i = 0; i < 8; i++) {
		fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fill[i], (struct sockaddr *) &addr, sizeof(addr));
	}
	open_rdm(&s, FI_WAIT_UNSPEC);
	expect_failure(&s, insert(&s, &addr), FI_ETIMEDOUT, 9.9, 10.5);
	close_side(&s);
}

static void stop_before_hello(int in, int out)
{
	struct side s;
	static char buf[20][50000];
	int i;

	open_rdm(&s, FI_WAIT_NONE);
	tell(out, s.name, sizeof(s.name));
	raise(SIGSTOP);
	for (i = 0; i < 20; i++)
		CHECK(fi_recv(s.ep, buf[i], sizeof(buf[i]), NULL, FI_ADDR_UNSPEC, buf[i]) == 0);
	for (i = 0; i < 20; i++)
		CHECK(done(&s, NULL, buf[i], GOT_MSG).len == sizeof(buf[i]) && buf[i][7] == i);
	close_side(&s);
	(void) in;
}

static void stop_after_hello(int in, int out)
{
	struct side s;
	static char buf[21][50000];
	int i;

	open_rdm(&s, FI_WAIT_NONE);
	tell(out, s.name, sizeof(s.name));
	for (i = 0; i < 21; i++)
		CHECK(fi_recv(s.ep, buf[i], sizeof(buf[i]), NULL, FI_ADDR_UNSPEC, buf[i]) == 0);
	CHECK(done(&s, NULL, buf[0], GOT_MSG).len == 1);
	tell(out, "", 1);
	raise(SIGSTOP);
	for (i = 1; i < 21; i++)
		CHECK(done(&s, NULL, buf[i], GOT_MSG).len == sizeof(buf[i]) && buf[i][7] == i - 1);
	close_side(&s);
	(void) in;
}

static void stopped(void)
{
	static char buf[40][50000];
	int to[2], from[2], i, status, completed = 0;
	struct fi_cq_tagged_entry entry;
	fi_addr_t peers[2];
	pid_t pids[2];
	char name[64], one;
	struct side s;
	double start;

	pids[0] = child(stop_before_hello, &to[0], &from[0]);
	pids[1] = child(stop_after_hello, &to[1], &from[1]);
	open_rdm(&s, FI_WAIT_UNSPEC);
	for (i = 0; i < 2; i++) {
		hear(from[i], name, sizeof(name));
		peers[i] = insert(&s, name);
	}
	CHECK(fi_inject(s.ep, &one, 1, peers[1]) == 0);
	/* The second must receive it before it stops. */
	struct pollfd poll_one = { .fd = from[1], .events = POLLIN };
	while (poll(&poll_one, 1, 0) == 0)
		fi_cq_read(s.cq, NULL, 0);
	hear(from[1], &one, 1);
	for (i = 0; i < 2; i++)
		CHECK(waitpid(pids[i], &status, WUNTRACED) == pids[i] && WIFSTOPPED(status));
	for (i = 0; i < 40; i++) {
		buf[i][7] = (char) (i % 20);
		CHECK(fi_send(s.ep, buf[i], sizeof(buf[i]), NULL, peers[i / 20], buf[i]) == 0);
	}
	for (start = seconds(); seconds() < start + 20;) {
		ssize_t ret = fi_cq_sread(s.cq, &entry, 1, NULL, 500);

		CHECK(ret == 1 || ret == -FI_EAGAIN);
		completed += ret == 1;
	}
	for (i = 0; i < 2; i++)
		kill(pids[i], SIGCONT);
	while (completed < 40) {
		CHECK(fi_cq_sread(s.cq, &entry, 1, NULL, 20000) == 1);
		completed++;
	}
	for (i = 0; i < 2; i++) {
		/* The children close while this side makes progress. */
		while (waitpid(pids[i], &status, WNOHANG) == 0)
			fi_cq_read(s.cq, NULL, 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	close_side(&s);
}

static void inject_and_leave(int in, int out)
{
	struct side s;
	char peer[64], buf[4096];
	fi_addr_t to;
	int i, count;

	hear(in, peer, sizeof(peer));
	hear(in, &count, sizeof(count));
	open_rdm(&s, FI_WAIT_NONE);
	to = insert(&s, peer);
	for (i = 0; i < count; i++) {
		ssize_t ret;

		memset(buf, i, sizeof(buf));
		/* Until the reader, which may be slow, has made room. */
		while ((ret = fi_injectdata(s.ep, buf, (size_t) (i * 37 % 4097), (uint64_t) i, to)) == -FI_EAGAIN)
			fi_cq_read(s.cq, NULL, 0);
		CHECK(ret == 0);
	}
	close_side(&s);
	(void) out;
}

static void inject_close(void)
{
	static char buf[300][4096];
	int round, to, from, i, status, count;

	for (round = 0; round < 40; round++) {
		pid_t pid = child(inject_and_leave, &to, &from);
		struct side s;

		count = round < 20 ? 1 + round : 300;
		open_rdm(&s, FI_WAIT_NONE);
		tell(to, s.name, sizeof(s.name));
		tell(to, &count, sizeof(count));
		/*
		 * In half of the rounds the receives are posted only after the sender has exited.
		 */
		for (i = 0; round % 2 && i < count; i++)
			CHECK(fi_recv(s.ep, buf[i], 4096, NULL, FI_ADDR_UNSPEC, buf[i]) == 0);
		while (waitpid(pid, &status, WNOHANG) == 0)
			fi_cq_read(s.cq, NULL, 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		for (i = 0; !(round % 2) && i < count; i++)
			CHECK(fi_recv(s.ep, buf[i], 4096, NULL, FI_ADDR_UNSPEC, buf[i]) == 0);
		for (i = 0; i < count; i++) {
			struct fi_cq_tagged_entry entry = done(&s, NULL, buf[i], GOT_MSG | FI_REMOTE_CQ_DATA);

			CHECK(entry.data == (uint64_t) i && entry.len == (size_t) (i * 37 % 4097));
			CHECK(!entry.len || buf[i][entry.len - 1] == (char) i);
		}
		close(to);
		close(from);
		close_side(&s);
	}
}

#define PROCESSES	4
#define EACH		16
#define ALL		(PROCESSES * EACH)

struct shared {
	char names[ALL][64];
	atomic_int named, received;
};

static struct shared *shared;
static int number;

static void one_of_four(int in, int out)
{
	static struct side sides[EACH];
	static uint64_t into[EACH][ALL], from[EACH][ALL];
	int i, j, mine = 0, said = 0;
	double end = seconds() + 60;

	for (i = 0; i < EACH; i++) {
		open_rdm(&sides[i], FI_WAIT_NONE);
		memcpy(shared->names[number * EACH + i], sides[i].name, 64);
	}
	atomic_fetch_add(&shared->named, 1);
	while (atomic_load(&shared->named) < PROCESSES)
		sched_yield();
	for (i = 0; i < EACH; i++) {
		for (j = 0; j < ALL; j++) {
			CHECK(insert(&sides[i], shared->names[j]) == (fi_addr_t) j);
			CHECK(fi_trecv(sides[i].ep, &into[i][j], 8, NULL, (fi_addr_t) j, (uint64_t) j, 0, &into[i][j]) == 0);
		}
	}
	for (i = 0; i < EACH; i++) {
		for (j = 0; j < ALL; j++) {
			from[i][j] = (uint64_t) (1000 * (number * EACH + i) + j);
			CHECK(fi_tsend(sides[i].ep, &from[i][j], 8, NULL, (fi_addr_t) j, (uint64_t) (number * EACH + i), NULL) == 0);
		}
	}
	/* Continue until all processes are done, so that none exits before its peers are done. */
	while (atomic_load(&shared->received) < PROCESSES) {
		for (i = 0; i < EACH; i++) {
			struct fi_cq_tagged_entry entry;
			ssize_t ret = fi_cq_read(sides[i].cq, &entry, 1);

			if (ret == -FI_EAVAIL)
				done(&sides[i], NULL, NULL, 0);
			CHECK(ret == 1 || ret == -FI_EAGAIN);
			if (ret == 1)
				mine++;
		}
		if (!said && mine == 2 * EACH * ALL) {
			said = 1;
			atomic_fetch_add(&shared->received, 1);
		}
		CHECK(seconds() < end);
	}
	for (i = 0; i < EACH; i++)
		for (j = 0; j < ALL; j++)
			CHECK(into[i][j] == (uint64_t) (1000 * j + number * EACH + i));
	for (i = 0; i < EACH; i++)
		close_side(&sides[i]);
	(void) in;
	(void) out;
}

static void all_to_all(void)
{
	pid_t pids[PROCESSES];
	int to, from, status;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	for (number = 0; number < PROCESSES; number++)
		pids[number] = child(one_of_four, &to, &from);
	for (number = 0; number < PROCESSES; number++) {
		CHECK(waitpid(pids[number], &status, 0) == pids[number]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

struct waker {
	struct side *reader, *writer;
	/* The reader's turn, and the last turn in which the queue has been signalled. */
	atomic_int turn, signalled;
	atomic_int stop;
};

/* Sends a message in each even turn, signals in each odd one. */
static void *wake_up(void *arg)
{
	struct waker *w = arg;
	struct fi_cq_tagged_entry entry;
	int seen = 0;

	while (!atomic_load(&w->stop)) {
		int turn = atomic_load(&w->turn);

		if (turn == seen) {
			/* Connecting needs this side's progress too. */
			CHECK(fi_cq_read(w->writer->cq, &entry, 1) == -FI_EAGAIN);
			continue;
		}
		seen = turn;
		if (turn % 2) {
			CHECK(fi_cq_signal(w->reader->cq) == 0);
			atomic_store(&w->signalled, turn);
		} else
			CHECK(fi_inject(w->writer->ep, &turn, sizeof(turn), 0) == 0);
	}
	return NULL;
}

static void wake(void)
{
	struct fi_cq_tagged_entry entry;
	struct side reader, writer;
	struct waker w = { .reader = &reader, .writer = &writer };
	pthread_t thread;
	int turn, in, fd, kind, epoll = epoll_create1(0);
	double start;

	alarm(280);
	/* A thread that publishes what its endpoints do wakes up for that, once in a second at most. */
	setenv("FI_OFI_STATE", "no", 1);
	open_rdm(&reader, FI_WAIT_FD);
	open_rdm(&writer, FI_WAIT_NONE);
	insert(&writer, reader.name);
	CHECK(fi_control(&reader.cq->fid, FI_GETWAITOBJ, &kind) == 0 && kind == FI_WAIT_FD);
	CHECK(fi_control(&reader.cq->fid, FI_GETWAIT, &fd) == 0 && fd >= 0);
	struct epoll_event watch = { .events = EPOLLIN };
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &watch) == 0);

	/* A timeout ends neither early nor much too late. */
	start = seconds();
	CHECK(fi_cq_sread(reader.cq, &entry, 1, NULL, 100) == -FI_EAGAIN);
	CHECK(seconds() - start >= 0.099 && seconds() - start < 0.5);
	CHECK(fi_cq_sread(reader.cq, &entry, 1, NULL, 0) == -FI_EAGAIN);

	CHECK(pthread_create(&thread, NULL, wake_up, &w) == 0);
	for (turn = 1; turn <= 100000; turn++) {
		int signalled = turn % 2, by_epoll = turn / 2 % 2;
		struct fid *fids[] = { &reader.cq->fid };
		ssize_t ret = 0;

		if (turn % 50 == 5) {
			/* Only the timeout wakes it, and not early. */
			start = seconds();
			CHECK(fi_cq_sread(reader.cq, &entry, 1, NULL, 1) == -FI_EAGAIN);
			CHECK(seconds() - start >= 0.00099);
			continue;
		}
		if (!signalled)
			CHECK(fi_recv(reader.ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, &in) == 0);
		atomic_store(&w.turn, turn);
		if (!by_epoll) {
			ret = fi_cq_sread(reader.cq, &entry, 1, NULL, -1);
			CHECK(ret == (signalled ? -FI_EAGAIN : 1));
			continue;
		}
		for (;;) {
			struct epoll_event got;

			ret = fi_trywait(reader.fabric, fids, 1);
			CHECK(ret == 0 || ret == -FI_EAGAIN);
			if (ret == 0)
				CHECK(epoll_wait(epoll, &got, 1, -1) == 1);
			if (signalled)
				break;
			ret = fi_cq_read(reader.cq, &entry, 1);
			CHECK(ret == 1 || ret == -FI_EAGAIN);
			if (ret == 1)
				break;
		}
		if (signalled) {
			/*
			 * The descriptor may have become readable for another reason, such as a timer
			 * of a connection, and the library may have had other work: the signal may
			 * be yet to come. The next reader is not to find it.
			 */
			while (atomic_load(&w.signalled) != turn)
				;
			while ((ret = fi_trywait(reader.fabric, fids, 1)) != 0)
				CHECK(ret == -FI_EAGAIN);
		}
	}
	atomic_store(&w.stop, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	close(epoll);
	close_side(&reader);
	close_side(&writer);
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "calls", calls }, { "connect", connect_scenario }, { "kill", kill_scenario }, { "refused", refused },
		{ "blackhole", blackhole }, { "stopped", stopped }, { "inject_close", inject_close },
		{ "all_to_all", all_to_all }, { "wake", wake },
		{ NULL, NULL },
	};

	return run_scenario(argc, argv, scenarios);
}
