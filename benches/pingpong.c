/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Half a round trip of 64 bytes between two pinned processes, in microseconds: over the library that the loader finds
 * (rdm: tagged, connectionless; msg: connected; dgram: datagrams), or over a bare socket (bare-busy, bare-blocking,
 * bare-udp-busy, bare-udp-blocking; datagrams are sent to and received with an address, as the library must).
 *   pingpong MODE TRIPS
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_tagged.h>

#define SIZE 64
#define MUST(what) do { if (!(what)) { fprintf(stderr, "%d: %s\n", __LINE__, #what); exit(1); } } while (0)

static int up[2], down[2], is_child, trips;
static char out[SIZE], in[SIZE];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1e6 + (double) t.tv_nsec / 1e3;
}

static void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void say(const void *data, size_t len)
{
	MUST(write(is_child ? up[1] : down[1], data, len) == (ssize_t) len);
}

static void hear(void *data, size_t len)
{
	MUST(read(is_child ? down[0] : up[0], data, len) == (ssize_t) len);
}

/* ---- over the library ---- */

static struct fid_cq *cq;
static struct fid_ep *ep;
static fi_addr_t peer;
static int tagged, connected;

static void reap(int receives)
{
	struct fi_cq_msg_entry entry;

	while (receives > 0) {
		ssize_t ret = fi_cq_read(cq, &entry, 1);

		if (ret == 1)
			receives -= !!(entry.flags & FI_RECV);
		else
			MUST(ret == -FI_EAGAIN);
	}
}

static void post_recv(void)
{
	ssize_t ret;

	while ((ret = tagged ? fi_trecv(ep, in, SIZE, NULL, FI_ADDR_UNSPEC, 1, 0, NULL) :
			fi_recv(ep, in, SIZE, NULL, FI_ADDR_UNSPEC, NULL)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	MUST(ret == 0);
}

static void post_send(void)
{
	ssize_t ret;

	while ((ret = tagged ? fi_tsend(ep, out, SIZE, NULL, peer, 1, NULL) :
			fi_send(ep, out, SIZE, NULL, peer, NULL)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	MUST(ret == 0);
}

static void lib_trip(void)
{
	if (is_child) {
		reap(1);
		post_recv();
		post_send();
	} else {
		post_send();
		reap(1);
		post_recv();
	}
}

static void lib_open(enum fi_ep_type type)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_NONE };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct { struct fi_eq_cm_entry cm; char data[64]; } event;
	struct fid_domain *domain;
	struct fid_fabric *fabric;
	struct fid_pep *pep;
	struct fid_av *av;
	struct fid_eq *eq;
	char name[64];
	size_t len = sizeof(name);
	uint32_t number;

	tagged = type == FI_EP_RDM;
	connected = type == FI_EP_MSG;
	hints->ep_attr->type = type;
	hints->caps = FI_MSG | (tagged ? FI_TAGGED : 0);
	hints->addr_format = FI_SOCKADDR_IN;
	hints->fabric_attr->prov_name = strdup(type == FI_EP_DGRAM ? "udp" : "tcp");
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->mode = FI_CONTEXT;
	MUST(fi_getinfo(FI_VERSION(1, 18), "127.0.0.1", NULL, FI_SOURCE, hints, &info) == 0);
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
	MUST(fi_domain(fabric, info, &domain, NULL) == 0);
	MUST(fi_cq_open(domain, &cq_attr, &cq, NULL) == 0);
	MUST(fi_eq_open(fabric, &eq_attr, &eq, NULL) == 0);
	if (connected && is_child) {
		MUST(fi_passive_ep(fabric, info, &pep, NULL) == 0);
		MUST(fi_pep_bind(pep, &eq->fid, 0) == 0);
		MUST(fi_listen(pep) == 0);
		MUST(fi_getname(&pep->fid, name, &len) == 0);
		say(name, sizeof(name));
		MUST(fi_eq_sread(eq, &number, &event, sizeof(event), 10000, 0) > 0 && number == FI_CONNREQ);
		info = event.cm.info;
	}
	MUST(fi_endpoint(domain, info, &ep, NULL) == 0);
	MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	if (!connected) {
		MUST(fi_av_open(domain, &av_attr, &av, NULL) == 0);
		MUST(fi_ep_bind(ep, &av->fid, 0) == 0);
	} else {
		MUST(fi_ep_bind(ep, &eq->fid, 0) == 0);
	}
	MUST(fi_enable(ep) == 0);
	if (!connected) {
		MUST(fi_getname(&ep->fid, name, &len) == 0);
		say(name, sizeof(name));
		hear(name, sizeof(name));
		MUST(fi_av_insert(av, name, 1, &peer, 0, NULL) == 1);
	} else if (is_child) {
		MUST(fi_accept(ep, NULL, 0) == 0);
	} else {
		hear(name, sizeof(name));
		MUST(fi_connect(ep, name, NULL, 0) == 0);
	}
	if (connected)
		MUST(fi_eq_sread(eq, &number, &event, sizeof(event), 10000, 0) > 0 && number == FI_CONNECTED);
	post_recv();
}

/* ---- over a bare socket ---- */

static int sock, blocking;

static void bare_recv(void)
{
	size_t got = 0;

	while (got < SIZE) {
		ssize_t ret = recv(sock, in + got, SIZE - got, blocking ? 0 : MSG_DONTWAIT);

		if (ret > 0)
			got += (size_t) ret;
		else
			MUST(ret < 0 && errno == EAGAIN);
	}
}

static void bare_trip(void)
{
	if (is_child)
		bare_recv();
	MUST(send(sock, out, SIZE, MSG_NOSIGNAL) == SIZE);
	if (!is_child)
		bare_recv();
}

static void bare_open(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(addr);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	/* The same options as the library's sockets. */
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	if (is_child) {
		MUST(bind(fd, (struct sockaddr *) &addr, sizeof(addr)) == 0 && listen(fd, 1) == 0);
		MUST(getsockname(fd, (struct sockaddr *) &addr, &len) == 0);
		say(&addr, sizeof(addr));
		sock = accept(fd, NULL, NULL);
		MUST(sock >= 0);
		setsockopt(sock, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	} else {
		hear(&addr, sizeof(addr));
		sock = fd;
		MUST(connect(sock, (struct sockaddr *) &addr, sizeof(addr)) == 0);
	}
	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static struct sockaddr_in other;

static void udp_recv(void)
{
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	ssize_t ret;

	while ((ret = recvfrom(sock, in, SIZE, blocking ? 0 : MSG_DONTWAIT, (struct sockaddr *) &from, &len)) < 0)
		MUST(errno == EAGAIN);
	MUST(ret == SIZE);
}

static void udp_trip(void)
{
	if (is_child)
		udp_recv();
	MUST(sendto(sock, out, SIZE, MSG_NOSIGNAL, (struct sockaddr *) &other, sizeof(other)) == SIZE);
	if (!is_child)
		udp_recv();
}

static void udp_open(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(addr);
	int room = 4 << 20;

	sock = socket(AF_INET, SOCK_DGRAM, 0);
	/* The same options as the library's sockets. */
	setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	MUST(bind(sock, (struct sockaddr *) &addr, sizeof(addr)) == 0);
	MUST(getsockname(sock, (struct sockaddr *) &addr, &len) == 0);
	say(&addr, sizeof(addr));
	hear(&other, sizeof(other));
}

int main(int argc, char **argv)
{
	void (*trip)(void) = lib_trip;
	double start;
	pid_t pid;
	int i, status;

	MUST(argc == 3);
	trips = atoi(argv[2]);
	MUST(pipe(up) == 0 && pipe(down) == 0);
	pid = fork();
	MUST(pid >= 0);
	is_child = !pid;
	pin(is_child);
	if (!strncmp(argv[1], "bare-udp-", 9)) {
		blocking = !strcmp(argv[1], "bare-udp-blocking");
		udp_open();
		trip = udp_trip;
	} else if (!strncmp(argv[1], "bare-", 5)) {
		blocking = !strcmp(argv[1], "bare-blocking");
		bare_open();
		trip = bare_trip;
	} else {
		lib_open(!strcmp(argv[1], "msg") ? FI_EP_MSG : !strcmp(argv[1], "dgram") ? FI_EP_DGRAM : FI_EP_RDM);
	}
	for (i = 0; i < trips / 10; i++)
		trip();
	start = now();
	for (i = 0; i < trips; i++)
		trip();
	if (is_child) {
		/* Stay until the other has what was sent. */
		hear(in, 1);
		_exit(0);
	}
	printf("%.4f\n", (now() - start) / trips / 2);
	fflush(stdout);
	say(out, 1);
	waitpid(pid, &status, 0);
	return 0;
}
