/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Links between endpoints: which peers may have one, their source addresses, how they end, and
 * progress despite misbehaving peers. One scenario per run.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "process.h"
#include "scenario.h"
#include "side.h"

/* Both ends shut down, and then each waits for the other's end. */
static void both_shut(void)
{
	struct side server, client, *sides[2] = { &server, &client };
	struct fi_eq_cm_entry cm;
	uint32_t number;
	int round, i, k;

	for (round = 0; round < 20; round++) {
		connect_pair(&server, &client, NULL);
		/* Alternate: the server first, then the client first. */
		for (i = 0; i < 2; i++)
			CHECK(fi_shutdown(sides[(i + round) % 2]->ep, 0) == 0);
		for (i = 0; i < 2; i++) {
			CHECK(event_of(sides[i], sides[1 - i], &cm, sizeof(cm)) == FI_SHUTDOWN);
			CHECK(cm.fid == &sides[i]->ep->fid);
		}
		/* The event is reported only once. */
		for (k = 0; k < 1000; k++)
			for (i = 0; i < 2; i++)
				CHECK(fi_eq_read(sides[i]->eq, &number, &cm, sizeof(cm), 0) == -FI_EAGAIN);
		close_side(&server);
		close_side(&client);
	}
}

/* A port that is free at the moment. */
static uint16_t free_port(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *) &addr, len) == 0);
	CHECK(getsockname(fd, (struct sockaddr *) &addr, &len) == 0);
	close(fd);
	return addr.sin_port;
}

/* An active endpoint connects from the address that it was given, and keeps it as its name. */
static void source(void)
{
	struct sockaddr_in before, after, peer;
	struct side server, client;
	struct fid_pep *pep;
	struct fi_eq_cm_entry cm;
	char name[64];
	size_t len = sizeof(name);
	uint16_t port = free_port();
	int round;

	/* Twice, so that the port was in use just before. */
	for (round = 0; round < 2; round++) {
		open_domain(&server, find(FI_EP_MSG), FI_WAIT_NONE);
		CHECK(fi_passive_ep(server.fabric, server.info, &pep, NULL) == 0);
		CHECK(fi_pep_bind(pep, &server.eq->fid, 0) == 0 && fi_listen(pep) == 0);
		len = sizeof(name);
		CHECK(fi_getname(&pep->fid, name, &len) == 0);
		open_domain(&client, find(FI_EP_MSG), FI_WAIT_NONE);
		CHECK(client.info->src_addrlen == sizeof(before));
		((struct sockaddr_in *) client.info->src_addr)->sin_port = port;
		open_ep(&client, client.info, 0);
		memcpy(&before, client.name, sizeof(before));
		CHECK(before.sin_port == port);
		CHECK(fi_connect(client.ep, name, NULL, 0) == 0);
		CHECK(event_of(&server, &client, &cm, sizeof(cm)) == FI_CONNREQ);
		CHECK(cm.info->dest_addrlen == sizeof(peer));
		memcpy(&peer, cm.info->dest_addr, sizeof(peer));
		CHECK(peer.sin_port == port && peer.sin_addr.s_addr == before.sin_addr.s_addr);
		open_ep(&server, cm.info, 0);
		CHECK(fi_accept(server.ep, NULL, 0) == 0);
		fi_freeinfo(cm.info);
		CHECK(event_of(&client, &server, &cm, sizeof(cm)) == FI_CONNECTED);
		len = sizeof(after);
		CHECK(fi_getname(&client.ep->fid, &after, &len) == 0 && len == sizeof(after));
		CHECK(after.sin_port == port && after.sin_addr.s_addr == before.sin_addr.s_addr);
		len = sizeof(peer);
		CHECK(fi_getpeer(server.ep, &peer, &len) == 0 && peer.sin_port == port);
		CHECK(fi_close(&pep->fid) == 0);
		close_side(&client);
		close_side(&server);
	}
}

/* A call that fails immediately may be repeated with better arguments. */
static void again(void)
{
	struct sockaddr_in nowhere = { .sin_family = AF_UNSPEC };
	struct side server, client, taken, s;
	struct fid_pep *pep;
	struct fi_eq_cm_entry cm;
	char name[64], much[300] = { 0 };
	size_t len = sizeof(name);
	struct fi_info *info;

	open_domain(&server, find(FI_EP_MSG), FI_WAIT_NONE);
	CHECK(fi_passive_ep(server.fabric, server.info, &pep, NULL) == 0);
	CHECK(fi_pep_bind(pep, &server.eq->fid, 0) == 0 && fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	open_domain(&client, find(FI_EP_MSG), FI_WAIT_NONE);
	open_ep(&client, client.info, 0);
	/* Too much data, and an invalid address. */
	CHECK(fi_connect(client.ep, name, much, sizeof(much)) == -FI_EINVAL);
	CHECK(fi_connect(client.ep, within_host() ? (void *) "nowhere://" : (void *) &nowhere, NULL, 0) < 0);
	CHECK(fi_connect(client.ep, name, NULL, 0) == 0);
	CHECK(event_of(&server, &client, &cm, sizeof(cm)) == FI_CONNREQ);
	open_ep(&server, cm.info, 0);
	CHECK(fi_accept(server.ep, much, sizeof(much)) == -FI_EINVAL);
	CHECK(fi_accept(server.ep, NULL, 0) == 0);
	fi_freeinfo(cm.info);
	CHECK(event_of(&client, &server, &cm, sizeof(cm)) == FI_CONNECTED);
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&client);
	close_side(&server);

	/* The name is taken until its endpoint is closed. */
	info = find(FI_EP_RDM);
	if (within_host()) {
		/*
		 * A name chosen by the application: one from fi_getinfo goes only to the first
		 * endpoint.
		 */
		snprintf(name, sizeof(name), "fi_ns://again-%d", (int) getpid());
		free(info->src_addr);
		info->src_addr = strdup(name);
		info->src_addrlen = strlen(name) + 1;
	}
	open_domain(&taken, info, FI_WAIT_NONE);
	open_ep(&taken, taken.info, 0);
	taken.len = sizeof(taken.name);
	CHECK(fi_getname(&taken.ep->fid, taken.name, &taken.len) == 0);
	info = find(FI_EP_RDM);
	free(info->src_addr);
	info->src_addr = malloc(taken.len);
	memcpy(info->src_addr, taken.name, taken.len);
	info->src_addrlen = taken.len;
	open_domain(&s, info, FI_WAIT_NONE);
	CHECK(fi_endpoint(s.domain, info, &s.ep, NULL) == 0);
	CHECK(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(s.ep, &s.av->fid, 0) == 0);
	CHECK(fi_enable(s.ep) == -FI_EADDRINUSE);
	CHECK(fi_recv(s.ep, much, 8, NULL, FI_ADDR_UNSPEC, NULL) == -FI_EOPBADSTATE);
	close_side(&taken);
	CHECK(fi_enable(s.ep) == 0);
	insert(&s, info->src_addr);
	CHECK(fi_recv(s.ep, much, 8, NULL, FI_ADDR_UNSPEC, much) == 0);
	CHECK(fi_send(s.ep, "myself", 7, NULL, 0, name) == 0);
	done(&s, NULL, name, FI_SEND | FI_MSG);
	done(&s, NULL, much, FI_RECV | FI_MSG);
	close_side(&s);
}

/* A connected endpoint accepts no other link. */
static void stranger(void)
{
	struct side server, client, third, unconnected;
	struct fi_eq_err_entry err = { 0 };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry cq_err;
	char in[8], text[256], name[64];
	fi_addr_t to;
	int i;

	connect_pair(&server, &client, NULL);
	open_domain(&third, find(FI_EP_MSG), FI_WAIT_NONE);
	open_ep(&third, third.info, 0);
	open_rdm(&unconnected, FI_WAIT_NONE);
	for (i = 0; i < 2; i++) {
		struct side *one = i ? &server : &client;
		double end = seconds() + 20;
		uint32_t number;
		size_t len = sizeof(name);

		/* The endpoint's name once connected. */
		CHECK(fi_getname(&one->ep->fid, name, &len) == 0);
		if (i == 0)
			CHECK(fi_connect(third.ep, name, NULL, 0) == 0);
		while (i == 0 && fi_eq_read(third.eq, &number, &entry, sizeof(entry), 0) != -FI_EAVAIL) {
			fi_cq_read(client.cq, NULL, 0);
			fi_cq_read(server.cq, NULL, 0);
			CHECK(seconds() < end);
		}
		if (i == 0) {
			CHECK(fi_eq_readerr(third.eq, &err, 0) > 0);
			fi_eq_strerror(third.eq, err.prov_errno, err.err_data, text, sizeof(text));
			printf("connected by name: %s: %s\n", fi_strerror(err.err), text);
			CHECK(err.err == FI_ECONNREFUSED);
		}
		/* A connectionless endpoint is refused too. */
		to = insert(&unconnected, name);
		CHECK(fi_tsend(unconnected.ep, "hello", 6, NULL, to, 1, name) == 0);
		end = seconds() + 20;
		while (fi_cq_read(unconnected.cq, &entry, 1) != -FI_EAVAIL) {
			fi_cq_read(client.cq, NULL, 0);
			fi_cq_read(server.cq, NULL, 0);
			CHECK(seconds() < end);
		}
		memset(&cq_err, 0, sizeof(cq_err));
		CHECK(fi_cq_readerr(unconnected.cq, &cq_err, 0) == 1);
		fi_cq_strerror(unconnected.cq, cq_err.prov_errno, cq_err.err_data, text, sizeof(text));
		printf("sent to by name: %s: %s\n", fi_strerror(cq_err.err), text);
		CHECK(cq_err.err == FI_ECONNREFUSED);
		/* The pair still works. */
		CHECK(fi_trecv(server.ep, in, 8, NULL, 0, 1, 0, in) == 0);
		CHECK(fi_tsend(client.ep, "to pair", 8, NULL, 0, 1, text) == 0);
		done(&server, &client, in, FI_RECV | FI_TAGGED);
		done(&client, &server, text, FI_SEND | FI_TAGGED);
		CHECK(!strcmp(in, "to pair"));
	}
	close_side(&third);
	close_side(&unconnected);
	close_side(&client);
	close_side(&server);
}

/* Answers once, then waits to be killed. */
static void victim(int in, int out)
{
	char peer[64], buf[8];
	struct side s;
	fi_addr_t to;

	open_rdm(&s, FI_WAIT_NONE);
	tell(out, s.name, sizeof(s.name));
	hear(in, peer, sizeof(peer));
	to = insert(&s, peer);
	CHECK(fi_trecv(s.ep, buf, 8, NULL, FI_ADDR_UNSPEC, 1, 0, buf) == 0);
	done(&s, NULL, buf, FI_RECV | FI_TAGGED);
	CHECK(fi_tsend(s.ep, buf, 8, NULL, to, 1, peer) == 0);
	done(&s, NULL, peer, FI_SEND | FI_TAGGED);
	tell(out, "", 1);
	for (;;)
		pause();
}

/* The type of the abstract unix socket with this name, and its full address. */
static int bound_as(const char *name, struct sockaddr_un *addr, socklen_t *len)
{
	FILE *file = fopen("/proc/net/unix", "r");
	char line[512], *at;
	unsigned kind = 0;

	CHECK(file);
	while (!kind && fgets(line, sizeof(line), file)) {
		if (!strstr(line, name) || !(at = strchr(line, '@')))
			continue;
		CHECK(sscanf(line, "%*s %*s %*s %*s %x", &kind) == 1);
		at[strcspn(at, "\n")] = 0;
		memset(addr, 0, sizeof(*addr));
		addr->sun_family = AF_UNIX;
		memcpy(addr->sun_path + 1, at + 1, strlen(at + 1));
		*len = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(at));
	}
	fclose(file);
	CHECK(kind);
	return (int) kind;
}

/* A process is killed and another one takes its name: pending operations still fail, and soon. */
static void usurped(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = { 0 };
	int to, from, status, kind, fd, failed = 0;
	char name[64], buf[2][8], text[256];
	struct sockaddr_un addr;
	socklen_t len = 0;
	struct side s;
	fi_addr_t peer;
	double end;
	pid_t pid = child(victim, &to, &from);

	open_rdm(&s, FI_WAIT_NONE);
	hear(from, name, sizeof(name));
	tell(to, s.name, sizeof(s.name));
	peer = insert(&s, name);
	CHECK(fi_trecv(s.ep, buf[0], 8, NULL, peer, 1, 0, buf[0]) == 0);
	CHECK(fi_tsend(s.ep, "hello", 6, NULL, peer, 1, text) == 0);
	done(&s, NULL, text, FI_SEND | FI_TAGGED);
	done(&s, NULL, buf[0], FI_RECV | FI_TAGGED);
	struct pollfd heard = { .fd = from, .events = POLLIN };
	while (poll(&heard, 1, 0) == 0)
		fi_cq_read(s.cq, NULL, 0);
	kind = bound_as(name, &addr, &len);
	CHECK(fi_trecv(s.ep, buf[1], 8, NULL, peer, 2, 0, buf[1]) == 0);
	CHECK(fi_cq_read(s.cq, &entry, 1) == -FI_EAGAIN);
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, &status, 0) == pid);
	/* This process takes over the name. */
	fd = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *) &addr, len) == 0);
	for (end = seconds() + 1; !failed; ) {
		ssize_t ret = fi_cq_read(s.cq, &entry, 1);

		CHECK(ret == -FI_EAGAIN || ret == -FI_EAVAIL);
		failed = ret == -FI_EAVAIL;
		CHECK(seconds() < end);
	}
	CHECK(fi_cq_readerr(s.cq, &err, 0) == 1);
	CHECK(err.err == FI_ECONNRESET && err.op_context == buf[1]);
	printf("%s\n", fi_cq_strerror(s.cq, err.prov_errno, err.err_data, text, sizeof(text)));
	close(fd);
	close_side(&s);
}

enum { FROZEN = 4 << 20 };

/*
 * Untouched memory whose pages another thread must provide (userfaultfd): the first access, by any
 * process, blocks until then.
 */
static char *unprovided(int *faults)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *memory = mmap(NULL, FROZEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	*faults = (int) syscall(SYS_userfaultfd, O_CLOEXEC);
	if (*faults < 0)
		return NULL;
	CHECK(ioctl(*faults, UFFDIO_API, &api) == 0);
	range.range.start = (uintptr_t) memory;
	range.range.len = FROZEN;
	CHECK(ioctl(*faults, UFFDIO_REGISTER, &range) == 0);
	return memory;
}

struct provider {
	int faults, begin;
	char *memory;
};

/* Provides the pages when the other process asks for them. */
static void *provide(void *arg)
{
	struct provider *p = arg;
	struct uffdio_zeropage all = { .range = { .start = (uintptr_t) p->memory, .len = FROZEN } };
	char one;

	hear(p->begin, &one, 1);
	CHECK(ioctl(p->faults, UFFDIO_ZEROPAGE, &all) == 0);
	return NULL;
}

/* Sends a message from memory whose pages are not provided yet. */
static void freezer(int in, int out)
{
	static char warm[FROZEN];
	struct provider p = { .begin = in };
	pthread_t thread;
	char peer[64];
	struct side s;
	fi_addr_t to;
	int i;

	p.memory = unprovided(&p.faults);
	tell(out, p.memory ? "y" : "n", 1);
	if (!p.memory)
		return;
	open_rdm(&s, FI_WAIT_NONE);
	hear(in, peer, sizeof(peer));
	to = insert(&s, peer);
	/* Warm up until the receiver knows whether cross-memory attach works. */
	memset(warm, 1, sizeof(warm));
	for (i = 0; i < 8; i++) {
		CHECK(fi_tsend(s.ep, warm, FROZEN, NULL, to, 1, warm) == 0);
		done(&s, NULL, warm, FI_SEND | FI_TAGGED);
	}
	CHECK(pthread_create(&thread, NULL, provide, &p) == 0);
	CHECK(fi_tsend(s.ep, p.memory, FROZEN, NULL, to, 1, p.memory) == 0);
	done(&s, NULL, p.memory, FI_SEND | FI_TAGGED);
	CHECK(pthread_join(thread, NULL) == 0);
	close_side(&s);
}

/*
 * A process offers memory that blocks its reader: the receiver does not block, and its other links
 * make progress.
 */
static void frozen(void)
{
	static char in[FROZEN];
	int to, from, status, i, frozen = 0;
	struct fi_cq_tagged_entry entry;
	struct side s, friend;
	fi_addr_t to_s;
	char small[8], can;
	double end;
	pid_t pid;

	CHECK(setenv("FI_SHM_DIRECT", "on", 1) == 0);
	pid = child(freezer, &to, &from);
	hear(from, &can, 1);
	if (can != 'y') {
		printf("skipped: this process may not provide pages on demand (userfaultfd)\n");
		exit(77);
	}
	open_rdm(&s, FI_WAIT_NONE);
	open_rdm(&friend, FI_WAIT_NONE);
	to_s = insert(&friend, s.name);
	tell(to, s.name, sizeof(s.name));
	for (i = 0; i < 8; i++) {
		CHECK(fi_trecv(s.ep, in, FROZEN, NULL, FI_ADDR_UNSPEC, 1, 0, in) == 0);
		done(&s, NULL, in, FI_RECV | FI_TAGGED);
	}
	CHECK(fi_trecv(s.ep, in, FROZEN, NULL, FI_ADDR_UNSPEC, 1, 0, in) == 0);
	/* One second of messages from another peer, each within 0.5 s. */
	for (end = seconds() + 1; seconds() < end; i++) {
		double start = seconds();
		int got = 0, sent = 0;

		CHECK(fi_trecv(s.ep, small, 8, NULL, FI_ADDR_UNSPEC, 2, 0, small) == 0);
		CHECK(fi_tsend(friend.ep, "friend", 7, NULL, to_s, 2, &friend) == 0);
		while (!got || !sent) {
			if (fi_cq_read(s.cq, &entry, 1) == 1) {
				got |= entry.op_context == small;
				frozen |= entry.op_context == in;
			}
			sent |= fi_cq_read(friend.cq, &entry, 1) == 1;
			CHECK(seconds() < start + 0.5);
		}
	}
	CHECK(!frozen);
	printf("%d messages meanwhile\n", i);
	/* Once the pages are provided, the message arrives. */
	tell(to, "", 1);
	done(&s, NULL, in, FI_RECV | FI_TAGGED);
	for (i = 0; i < FROZEN; i++)
		CHECK(in[i] == 0);
	while (waitpid(pid, &status, WNOHANG) == 0)
		fi_cq_read(s.cq, NULL, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close_side(&friend);
	close_side(&s);
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "both_shut", both_shut }, { "source", source }, { "again", again }, { "stranger", stranger }, { "usurped", usurped },
		{ "frozen", frozen },
		{ NULL, NULL },
	};

	return run_scenario(argc, argv, scenarios);
}
