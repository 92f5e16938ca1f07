/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bare media, with the patterns and buffers of fabric.c:
 *   latency     half a round trip over a socket (`--provider tcp|udp`) or between the buffers of two
 *               processes (`--provider shm`), us
 *   rate        windows of messages over a socket, each window answered, million messages a second
 *   stream      the same in MB/s, also between buffers
 *   line        half a round trip of one cache line between the cores, us
 *   copy-rate   memcpy within one process, MB/s
 * `--loop busy` polls the socket, `blocking` sleeps in the kernel, `batched` moves a window in as
 * few system calls as possible. Between buffers the receiver is `reading` the sender's, the sender
 * `writing` the receiver's, `both` copy a half each, or both copy through a pool (`pooled`).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench.h"

enum { ANSWER_SIZE = 8 };

static int rank, sock, datagrams;
static struct sockaddr_in peer;
static char *in, *out;
static size_t stride;
static uint64_t sequence;

/* ---- sockets ---- */

static void open_socket(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in *names[2] = { (void *) shared->names[0][0][0], (void *) shared->names[1][0][0] };
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, datagrams ? SOCK_DGRAM : SOCK_STREAM, 0), one = 1, room = 4 << 20;

	MUST(fd >= 0);
	if (datagrams) {
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	} else {
		/* Pacing congestion controls lose bandwidth over loopback. */
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	}
	if (datagrams || rank == 0)
		MUST(bind(fd, (struct sockaddr *) &addr, sizeof(addr)) == 0);
	MUST(getsockname(fd, (struct sockaddr *) &addr, &len) == 0);
	if (!datagrams && rank == 0)
		MUST(listen(fd, 1) == 0);
	if (options.relay && rank == 0)
		addr.sin_port = start_relay(addr.sin_port);
	*names[rank] = addr;
	barrier();
	peer = *names[!rank];
	sock = fd;
	if (!datagrams && rank == 0) {
		sock = accept(fd, NULL, NULL);
		MUST(sock >= 0);
		setsockopt(sock, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	} else if (!datagrams) {
		MUST(connect(sock, (struct sockaddr *) &peer, sizeof(peer)) == 0);
	}
	if (!datagrams)
		setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	barrier();
}

static int flags(void)
{
	return options.loop == BLOCKING ? 0 : MSG_DONTWAIT;
}

/* Datagram sockets stay unconnected, as those of a connectionless endpoint must. */
static void send_message(const char *bytes, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t ret = datagrams ? sendto(sock, bytes, size, flags(), (struct sockaddr *) &peer, sizeof(peer)) :
			send(sock, bytes + done, size - done, flags() | MSG_NOSIGNAL);

		MUST(ret > 0 || (ret < 0 && errno == EAGAIN));
		done += ret > 0 ? (size_t) ret : 0;
	}
}

static void receive_message(char *bytes, size_t size)
{
	struct sockaddr_in from;
	size_t done = 0;

	while (done < size) {
		socklen_t len = sizeof(from);
		ssize_t ret = datagrams ? recvfrom(sock, bytes, size, flags(), (struct sockaddr *) &from, &len) :
			recv(sock, bytes + done, size - done, flags());

		MUST(ret > 0 || (ret < 0 && errno == EAGAIN));
		MUST(!datagrams || ret < 0 || ret == (ssize_t) size);
		done += ret > 0 ? (size_t) ret : 0;
	}
}

/* Drops the first `moved` bytes of the list. */
static void advance(struct iovec **iov, int *count, size_t moved)
{
	while (*count && moved >= (*iov)->iov_len) {
		moved -= (*iov)->iov_len;
		(*iov)++;
		(*count)--;
	}
	if (*count) {
		(*iov)->iov_base = (char *) (*iov)->iov_base + moved;
		(*iov)->iov_len -= moved;
	}
}

/* Transfers a window in as few calls as the kernel allows. */
static void move_stream(char *bytes, int sending)
{
	struct iovec places[MAX_WINDOW], *iov = places;
	int count = options.window, i;

	for (i = 0; i < count; i++)
		places[i] = (struct iovec) { bytes + (size_t) i * stride, options.size };
	while (count) {
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t) count };
		ssize_t ret = sending ? sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) : recvmsg(sock, &msg, MSG_DONTWAIT);

		MUST(ret > 0 || (ret < 0 && errno == EAGAIN));
		if (ret > 0)
			advance(&iov, &count, (size_t) ret);
	}
}

static void move_datagrams(char *bytes, int sending)
{
	struct mmsghdr messages[MAX_WINDOW] = { 0 };
	struct iovec places[MAX_WINDOW];
	int done = 0, i;

	for (i = 0; i < options.window; i++) {
		places[i] = (struct iovec) { bytes + (size_t) i * stride, options.size };
		messages[i].msg_hdr = (struct msghdr) { .msg_iov = &places[i], .msg_iovlen = 1 };
		if (sending) {
			messages[i].msg_hdr.msg_name = &peer;
			messages[i].msg_hdr.msg_namelen = sizeof(peer);
		}
	}
	while (done < options.window) {
		unsigned int left = (unsigned int) (options.window - done);
		int ret = sending ? sendmmsg(sock, messages + done, left, MSG_DONTWAIT) :
			recvmmsg(sock, messages + done, left, MSG_DONTWAIT, NULL);

		MUST(ret > 0 || (ret < 0 && errno == EAGAIN));
		done += ret > 0 ? ret : 0;
	}
}

static void write_slot(int slot, uint64_t number)
{
	if (options.buffers == WRITTEN || options.buffers == READ)
		write_payload(out + (size_t) slot * stride, number, rank);
}

static void read_slot(int slot, uint64_t number)
{
	check_payload(in + (size_t) slot * stride, payload_seed(number, !rank));
}

/* Sends and receives a message at an offset of the buffers. */
static void (*pass)(size_t at), (*take)(size_t at);

static void pass_to_socket(size_t at)
{
	send_message(out + at, options.size);
}

static void take_from_socket(size_t at)
{
	receive_message(in + at, options.size);
}

static void latency(void *state, long count)
{
	size_t at = 0;

	(void) state;
	while (count-- > 0) {
		if (rank == 1) {
			take(at);
			read_slot(0, sequence);
		}
		write_slot(0, sequence);
		pass(at);
		if (rank == 0) {
			take(at);
			read_slot(0, sequence);
		}
		sequence++;
		at = next_place(at);
	}
}

static void windows(void *state, long count)
{
	_Alignas(8) char answer[ANSWER_SIZE];
	int i;

	(void) state;
	while (count-- > 0) {
		if (rank == 1) {
			for (i = 0; i < options.window; i++) {
				write_slot(i, sequence + (uint64_t) i);
				if (options.loop != BATCHED)
					send_message(out + (size_t) i * stride, options.size);
			}
			if (options.loop == BATCHED)
				(datagrams ? move_datagrams : move_stream)(out, 1);
			receive_message(answer, sizeof(answer));
			MUST(!differs(answer, sizeof(answer), sequence));
		} else {
			if (options.loop == BATCHED)
				(datagrams ? move_datagrams : move_stream)(in, 0);
			for (i = 0; i < options.window; i++) {
				if (options.loop != BATCHED)
					receive_message(in + (size_t) i * stride, options.size);
				read_slot(i, sequence + (uint64_t) i);
			}
			fill(answer, sizeof(answer), sequence);
			send_message(answer, sizeof(answer));
		}
		sequence += (uint64_t) options.window;
	}
}

static void run_socket(void)
{
	int ping = !strcmp(options.pattern, "latency");
	int slots = ping ? 1 : options.window;
	struct sample sample;
	double messages;

	MUST(options.loop < READING);
	pass = pass_to_socket;
	take = take_from_socket;
	datagrams = !strcmp(options.provider, "udp");
	rank = spawn(2);
	stride = payload_stride();
	in = alloc_payload(slots);
	out = alloc_payload(slots);
	fill_kept(out, slots, rank);
	open_socket();
	sample = measure(ping ? latency : windows, NULL, rank);
	if (ping || rank == 0)
		check_whole(in + (size_t) (slots - 1) * stride, payload_seed(sequence - 1, !rank));
	messages = sample.count * options.window;
	if (rank == 0)
		print_result(ping ? sample.elapsed / sample.count / 2 :
			(strcmp(options.pattern, "stream") ? messages : messages * (double) options.size) / sample.elapsed, sample);
	finish(rank);
}

/* ---- the buffers of two processes ---- */

enum { PAGE = 4 << 10, PIECE = 16 << 10, PIECES = 16 };

typedef ssize_t copy_fn(pid_t pid, const struct iovec *own, unsigned long own_count, const struct iovec *theirs,
			unsigned long their_count, unsigned long flags);

/* For the pieces that each rank sends. */
static char (*pools)[PIECES][PIECE];
static long sent, received, pieces_sent, pieces_received;

static void tell(struct line *line, long value)
{
	atomic_store_explicit(&line->value, value, memory_order_release);
}

static void wait_for(struct line *line, long value)
{
	while (atomic_load_explicit(&line->value, memory_order_acquire) < value)
		;
}

/* The bytes that the receiver reads out of the sender's buffer, from the front. */
static size_t part_to_read(void)
{
	if (options.loop == WRITING)
		return 0;
	return options.loop == READING ? options.size : options.size / 2 & ~(size_t) (PAGE - 1);
}

/* Both ranks have their buffers at the same addresses. */
static void copy_part(copy_fn *copy, char *own, char *theirs, size_t size)
{
	struct iovec here = { own, size }, there = { theirs, size };

	MUST(size == 0 || copy(shared->pids[!rank], &here, 1, &there, 1, 0) == (ssize_t) size);
}

static void pass_memory(size_t at)
{
	size_t read = part_to_read(), done, size;

	tell(&shared->announced[rank], ++sent);
	if (options.loop != POOLED) {
		copy_part(process_vm_writev, out + at + read, in + at + read, options.size - read);
		tell(&shared->written[rank], sent);
		return;
	}
	for (done = 0; done < options.size; done += size) {
		size = options.size - done < PIECE ? options.size - done : PIECE;
		wait_for(&shared->drained[rank], pieces_sent - (PIECES - 1));
		memcpy(pools[rank][pieces_sent % PIECES], out + at + done, size);
		tell(&shared->filled[rank], ++pieces_sent);
	}
}

static void take_memory(size_t at)
{
	size_t read = part_to_read(), done, size;

	wait_for(&shared->announced[!rank], ++received);
	if (options.loop != POOLED) {
		copy_part(process_vm_readv, in + at, out + at, read);
		wait_for(&shared->written[!rank], read < options.size ? received : 0);
		return;
	}
	for (done = 0; done < options.size; done += size) {
		size = options.size - done < PIECE ? options.size - done : PIECE;
		wait_for(&shared->filled[!rank], pieces_received + 1);
		memcpy(in + at + done, pools[!rank][pieces_received % PIECES], size);
		tell(&shared->drained[!rank], ++pieces_received);
	}
}

static void memory_windows(void *state, long count)
{
	int i;

	(void) state;
	while (count-- > 0) {
		for (i = 0; i < options.window; i++) {
			if (rank == 1)
				write_slot(i, sequence + (uint64_t) i);
			(rank == 1 ? pass : take)((size_t) i * stride);
			if (rank == 0)
				read_slot(i, sequence + (uint64_t) i);
		}
		sequence += (uint64_t) options.window;
		if (rank == 0)
			tell(&shared->answered, (long) sequence);
		else
			wait_for(&shared->answered, (long) sequence);
	}
}

static void run_memory(void)
{
	int ping = !strcmp(options.pattern, "latency");
	int slots = ping ? 1 : options.window;
	struct sample sample;

	MUST(options.loop >= READING);
	pass = pass_memory;
	take = take_memory;
	stride = payload_stride();
	in = alloc_payload(slots);
	out = alloc_payload(slots);
	pools = mmap(NULL, 2 * sizeof(*pools), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(pools != MAP_FAILED);
	rank = spawn(2);
	fill_kept(out, slots, rank);
	barrier();
	sample = measure(ping ? latency : memory_windows, NULL, rank);
	if (ping || rank == 0)
		check_whole(in + (size_t) (slots - 1) * stride, payload_seed(sequence - 1, !rank));
	if (rank == 0)
		print_result(ping ? sample.elapsed / sample.count / 2 :
			sample.count * options.window * (double) options.size / sample.elapsed, sample);
	finish(rank);
}

/* ---- memory ---- */

static void copies(void *state, long count)
{
	size_t at = 0;

	(void) state;
	while (count-- > 0) {
		write_slot(0, sequence);
		memcpy(in + at, out + at, options.size);
		__asm__ volatile("" ::: "memory");
		check_payload(in, payload_seed(sequence, 0));
		sequence++;
		at = next_place(at);
	}
}

static void run_copy(void)
{
	struct sample sample;

	spawn(1);
	pin(0);
	in = alloc_payload(1);
	out = alloc_payload(1);
	fill_kept(out, 1, 0);
	sample = measure(copies, NULL, 0);
	MUST(!memcmp(in, out, options.size));
	print_result(sample.count * (double) options.size / sample.elapsed, sample);
}

static void run_line(void)
{
	struct sample sample = { 0 };

	rank = spawn(2);
	sample.before = line_latency(rank, 20000);
	sample.after = line_latency(rank, 20000);
	if (rank == 0)
		print_result((sample.before + sample.after) / 2, sample);
	finish(rank);
}

int main(int argc, char **argv)
{
	int exchange, rate;

	parse_options(argc, argv);
	exchange = !strcmp(options.pattern, "latency") || !strcmp(options.pattern, "stream");
	rate = !strcmp(options.pattern, "rate");
	if (!strcmp(options.pattern, "line"))
		run_line();
	else if (!strcmp(options.pattern, "copy-rate"))
		run_copy();
	else if (exchange && !strcmp(options.provider, "shm"))
		run_memory();
	else if ((exchange || rate) && strcmp(options.provider, "shm"))
		run_socket();
	else
		quit("--pattern %s --provider %s: unknown", options.pattern, options.provider);
	return 0;
}
