/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A process between two sockets that passes everything on after a while, as a long link would. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"

enum {
	PIECE = 64 << 10,
	/* Pieces under way in each direction, so many that no window waits for them. */
	PIECES = 4096,
};

struct piece {
	double due;
	size_t size, done;
	char *bytes;
};

/* A direction. */
struct lane {
	int from, to;
	long taken, passed;
	struct piece pieces[PIECES];
};

static struct lane lanes[2];

static struct piece *first(struct lane *lane)
{
	return &lane->pieces[lane->passed % PIECES];
}

static int is_waiting(const struct lane *lane)
{
	return lane->passed < lane->taken;
}

static int is_full(const struct lane *lane)
{
	return lane->taken - lane->passed == PIECES;
}

/* A rank has ended; this process ends with rank 0. */
static void end(void)
{
	for (;;)
		pause();
}

/* True if something was received. */
static int take(struct lane *lane)
{
	struct piece *piece = &lane->pieces[lane->taken % PIECES];
	ssize_t got;

	if (is_full(lane))
		return 0;
	if (!piece->bytes)
		piece->bytes = alloc_pages(PIECE);
	got = recv(lane->from, piece->bytes, PIECE, MSG_DONTWAIT);
	if (got < 0 && errno == EAGAIN)
		return 0;
	if (got <= 0)
		end();
	*piece = (struct piece) { now() + (double) options.relay, (size_t) got, 0, piece->bytes };
	lane->taken++;
	return 1;
}

/* True if something that is due was sent. */
static int pass(struct lane *lane)
{
	struct piece *piece = first(lane);
	ssize_t sent;

	if (!is_waiting(lane) || piece->due > now())
		return 0;
	sent = send(lane->to, piece->bytes + piece->done, piece->size - piece->done, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0 && errno == EAGAIN)
		return 0;
	if (sent < 0)
		end();
	piece->done += (size_t) sent;
	lane->passed += piece->done == piece->size;
	return 1;
}

/* Sleeps until one of the sockets is ready or something is due. */
static void rest(void)
{
	struct pollfd ready[4];
	double wait = 1e6;
	int i;

	for (i = 0; i < 2; i++) {
		double left = is_waiting(&lanes[i]) ? first(&lanes[i])->due - now() : 1e6;

		ready[2 * i] = (struct pollfd) { .fd = is_full(&lanes[i]) ? -1 : lanes[i].from, .events = POLLIN };
		ready[2 * i + 1] = (struct pollfd) { .fd = left <= 0 ? lanes[i].to : -1, .events = POLLOUT };
		if (left > 0 && left < wait)
			wait = left;
	}
	ppoll(ready, 4, &(struct timespec) { (time_t) (wait / 1e6), (long) (wait * 1e3) % 1000000000 }, NULL);
}

static int open_socket(struct sockaddr_in *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	MUST(fd >= 0);
	/* Pacing congestion controls lose bandwidth over loopback. */
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	*addr = (struct sockaddr_in) { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	return fd;
}

static void run(int listener, uint16_t port)
{
	struct sockaddr_in addr;
	int near = accept(listener, NULL, NULL), far = open_socket(&addr), one = 1;

	MUST(near >= 0);
	addr.sin_port = port;
	MUST(connect(far, (struct sockaddr *) &addr, sizeof(addr)) == 0);
	setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	lanes[0].from = lanes[1].to = near;
	lanes[0].to = lanes[1].from = far;
	for (;;) {
		int moved = 0, i;

		for (i = 0; i < 2; i++)
			moved |= take(&lanes[i]) | pass(&lanes[i]);
		if (!moved)
			rest();
	}
}

uint16_t start_relay(uint16_t port)
{
	struct sockaddr_in addr;
	socklen_t len = sizeof(addr);
	int listener = open_socket(&addr);
	pid_t parent = getpid(), pid;

	MUST(bind(listener, (struct sockaddr *) &addr, len) == 0 && listen(listener, 1) == 0);
	MUST(getsockname(listener, (struct sockaddr *) &addr, &len) == 0);
	pid = fork();
	MUST(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_TIMERSLACK, 1);
		if (getppid() != parent)
			_exit(1);
		pin(-1);
		run(listener, port);
	}
	close(listener);
	return addr.sin_port;
}
