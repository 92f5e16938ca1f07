/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Two processes exchange large messages of every kind, and check each byte: posted and unexpected,
 * in one piece and in several, truncated, with buffers that are rewritten and kept, both ways at
 * once. FI_SHM_DIRECT says which way their payloads take.
 */
#include <stdlib.h>

#include "process.h"
#include "side.h"

enum { MOST = (3 << 20) + 7, ROUNDS = 40 };

static const size_t sizes[] = { 16 << 10, (64 << 10) - 1, 64 << 10, (256 << 10) + 5, 1 << 20, MOST };
static char out[MOST], in[MOST + 1];

static char byte_at(size_t at, unsigned seed)
{
	return (char) (at * 7 + at / 251 + seed * 31);
}

static void fill(size_t len, unsigned seed)
{
	size_t at;

	for (at = 0; at < len; at++)
		out[at] = byte_at(at, seed);
}

static void expect(size_t len, unsigned seed)
{
	size_t at;

	for (at = 0; at < len; at++)
		CHECK(in[at] == byte_at(at, seed));
	/* No byte behind the message is touched. */
	CHECK(in[len] == 'x');
	memset(in, 'z', len);
}

static void post_send(struct side *s, fi_addr_t to, size_t len, uint64_t tag, int pieces)
{
	struct iovec iov[4];
	struct fi_msg_tagged msg = { .msg_iov = iov, .iov_count = (size_t) pieces, .addr = to, .tag = tag, .context = out };
	ssize_t posted;
	int i;

	for (i = 0; i < pieces; i++) {
		size_t from = len / (size_t) pieces * (size_t) i;
		size_t end = i + 1 == pieces ? len : len / (size_t) pieces * (size_t) (i + 1);

		iov[i] = (struct iovec) { out + from, end - from };
	}
	while ((posted = fi_tsendmsg(s->ep, &msg, FI_COMPLETION)) == -FI_EAGAIN)
		fi_cq_read(s->cq, NULL, 0);
	CHECK(posted == 0);
}

static void post_receive(struct side *s, size_t len, uint64_t tag)
{
	in[len] = 'x';
	CHECK(fi_trecv(s->ep, in, len, NULL, FI_ADDR_UNSPEC, tag, 0, in) == 0);
}

/* Waits for the completions of a send, a receive or both. */
static void finish(struct side *s, int sends, int receives)
{
	struct fi_cq_tagged_entry entry;
	ssize_t got;

	while (sends || receives) {
		got = fi_cq_read(s->cq, &entry, 1);
		if (got == -FI_EAGAIN)
			continue;
		CHECK(got == 1);
		if (entry.op_context == out)
			CHECK(sends-- == 1);
		else
			CHECK(entry.op_context == in && receives-- == 1);
	}
}

/* A receive with room for half of the message. */
static void finish_truncated(struct side *s, size_t len)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t got;

	while ((got = fi_cq_read(s->cq, &entry, 1)) == -FI_EAGAIN)
		;
	CHECK(got == -FI_EAVAIL);
	CHECK(fi_cq_readerr(s->cq, &error, 0) == 1);
	CHECK(error.err == FI_ETRUNC && error.op_context == in && error.olen == len - len / 2);
}

/* `first`: sends before it receives. */
static void exchange(struct side *s, fi_addr_t to, int first)
{
	size_t i;
	unsigned round;

	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t len = sizes[i];

		for (round = 0; round < ROUNDS; round++) {
			/* Rewritten in every other round. */
			unsigned seed = round / 2 + 1;
			int pieces = round % 8 == 7 ? 4 : 1;

			if (round % 2 == 0)
				fill(len, seed);
			/* One after the other; the second side has posted its receive before. */
			if (first) {
				post_send(s, to, len, round, pieces);
				finish(s, 1, 0);
				post_receive(s, len, round);
				finish(s, 0, 1);
			} else {
				post_receive(s, len, round);
				finish(s, 0, 1);
				post_send(s, to, len, round, pieces);
				finish(s, 1, 0);
			}
			expect(len, seed);
			/* Both ways at once: unexpected for the slower side. */
			post_send(s, to, len, 100 + round, 1);
			post_receive(s, len, 100 + round);
			finish(s, 1, 1);
			expect(len, seed);
		}
		if (first) {
			post_send(s, to, len, 7, 1);
			finish(s, 1, 0);
		} else {
			post_receive(s, len / 2, 7);
			finish_truncated(s, len);
			expect(len / 2, (ROUNDS - 1) / 2 + 1);
		}
	}
}

static void other(int from, int to)
{
	struct side s;
	char name[64];

	open_rdm(&s, FI_WAIT_NONE);
	tell(to, s.name, sizeof(s.name));
	hear(from, name, sizeof(name));
	exchange(&s, insert(&s, name), 0);
	close_side(&s);
}

int main(void)
{
	struct side s;
	char name[64];
	int to, from;
	pid_t pid = child(other, &to, &from);

	open_rdm(&s, FI_WAIT_NONE);
	hear(from, name, sizeof(name));
	tell(to, s.name, sizeof(s.name));
	exchange(&s, insert(&s, name), 1);
	close_side(&s);
	join(pid);
	return 0;
}
