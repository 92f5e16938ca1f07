/*
 * Passes results of rdma_getaddrinfo to librdmacm's connection manager: a server listens on a
 * result with RAI_PASSIVE, a client connects to one without it, and they exchange a message. The
 * library whose rdma_getaddrinfo is under test is preloaded.
 * usage: ep LIBRARY NODE RC|UD
 */
#define _GNU_SOURCE
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rdma_addrinfo.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT "7471"
#define SECONDS 60
/* Size of the global routing header in front of every received datagram. */
#define GRH 40
#define LENGTH 512

static const char *side = "parent";

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", side, what, strerror(errno));
	exit(1);
}

#define MUST(call) do { if (call) fail(#call); } while (0)

static struct rdma_cm_id *endpoint(const char *node, int type, int flags)
{
	struct rdma_addrinfo hints = { 0 }, *list, *at;
	struct ibv_qp_init_attr attr = { 0 };
	struct rdma_cm_id *id = NULL;
	int ret;

	hints.ai_flags = flags;
	hints.ai_qp_type = type;
	hints.ai_port_space = type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	ret = rdma_getaddrinfo(node, PORT, &hints, &list);
	if (ret) {
		fprintf(stderr, "%s: rdma_getaddrinfo: %s\n", side, gai_strerror(ret));
		exit(1);
	}
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	attr.sq_sig_all = 1;
	attr.qp_type = type;
	for (at = list; at && !id; at = at->ai_next) {
		if (!(flags & RAI_PASSIVE) && !at->ai_src_len) {
			fprintf(stderr, "%s: no source was found\n", side);
			exit(1);
		}
		if (rdma_create_ep(&id, at, NULL, &attr))
			id = NULL;
	}
	if (!id)
		fail("rdma_create_ep");
	rdma_freeaddrinfo(list);
	return id;
}

/* Writes the test message. */
static void fill(char *message)
{
	for (int i = 0; i < LENGTH; i++)
		message[i] = (char) (i * 7 + 3);
}

static void received(struct rdma_cm_id *id, const char *buffer, int type)
{
	const char *message = buffer + (type == IBV_QPT_UD ? GRH : 0);
	char expected[LENGTH];
	struct ibv_wc wc;

	if (rdma_get_recv_comp(id, &wc) != 1 || wc.status)
		fail("rdma_get_recv_comp");
	fill(expected);
	if (memcmp(message, expected, LENGTH)) {
		errno = EBADMSG;
		fail("the message");
	}
}

static void sent(struct rdma_cm_id *id)
{
	struct ibv_wc wc;

	if (rdma_get_send_comp(id, &wc) != 1 || wc.status)
		fail("rdma_get_send_comp");
}

static void server(const char *node, int type, int ready)
{
	struct rdma_cm_id *listener = endpoint(node, type, RAI_PASSIVE), *id;
	static char in[GRH + LENGTH], out[LENGTH];
	struct rdma_conn_param param = { 0 };
	struct ibv_mr *in_mr, *out_mr;

	MUST(rdma_listen(listener, 1));
	MUST(write(ready, "r", 1) != 1);
	MUST(rdma_get_request(listener, &id));
	MUST(!(in_mr = rdma_reg_msgs(id, in, sizeof in)));
	MUST(rdma_post_recv(id, NULL, in, sizeof in, in_mr));
	param.responder_resources = param.initiator_depth = 1;
	param.qp_num = id->qp->qp_num;
	MUST(rdma_accept(id, &param));
	received(id, in, type);
	if (type == IBV_QPT_RC) {
		fill(out);
		MUST(!(out_mr = rdma_reg_msgs(id, out, sizeof out)));
		MUST(rdma_post_send(id, NULL, out, sizeof out, out_mr, 0));
		sent(id);
		rdma_disconnect(id);
		rdma_dereg_mr(out_mr);
	}
	rdma_dereg_mr(in_mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static void client(const char *node, int type)
{
	struct rdma_cm_id *id = endpoint(node, type, 0);
	static char in[LENGTH], out[LENGTH];
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };
	struct ibv_mr *in_mr, *out_mr;
	struct ibv_ah *ah = NULL;

	MUST(!(in_mr = rdma_reg_msgs(id, in, sizeof in)));
	MUST(!(out_mr = rdma_reg_msgs(id, out, sizeof out)));
	MUST(rdma_post_recv(id, NULL, in, sizeof in, in_mr));
	MUST(rdma_connect(id, &param));
	fill(out);
	if (type == IBV_QPT_UD) {
		struct rdma_ud_param *peer = &id->event->param.ud;
		MUST(!(ah = ibv_create_ah(id->pd, &peer->ah_attr)));
		MUST(rdma_post_ud_send(id, NULL, out, sizeof out, out_mr, 0, ah, peer->qp_num));
		sent(id);
		MUST(ibv_destroy_ah(ah));
	} else {
		MUST(rdma_post_send(id, NULL, out, sizeof out, out_mr, 0));
		sent(id);
		received(id, in, type);
		rdma_disconnect(id);
	}
	rdma_dereg_mr(in_mr);
	rdma_dereg_mr(out_mr);
	rdma_destroy_ep(id);
}

int main(int argc, char **argv)
{
	int ready[2], status, type;
	Dl_info where;
	pid_t child;
	char byte;

	if (argc != 4) {
		fprintf(stderr, "usage: ep LIBRARY NODE RC|UD\n");
		return 2;
	}
	type = strcmp(argv[3], "UD") ? IBV_QPT_RC : IBV_QPT_UD;
	if (!dladdr((void *) rdma_getaddrinfo, &where) || !strstr(where.dli_fname, argv[1])) {
		fprintf(stderr, "rdma_getaddrinfo is that of %s, not of %s\n", where.dli_fname, argv[1]);
		return 1;
	}
	MUST(pipe(ready));
	child = fork();
	if (child < 0)
		fail("fork");
	alarm(SECONDS);
	if (!child) {
		side = "server";
		server(argv[2], type, ready[1]);
		return 0;
	}
	side = "client";
	close(ready[1]);
	if (read(ready[0], &byte, 1) == 1)
		client(argv[2], type);
	MUST(waitpid(child, &status, 0) != child);
	if (status) {
		fprintf(stderr, "the server ended with status %#x\n", status);
		return 1;
	}
	printf("%s to %s: connected, a message of %d bytes crossed\n", argv[3], argv[2], LENGTH);
	return 0;
}
