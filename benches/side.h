/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A thread's libfabric objects and its links to the same thread of the other rank. Rank 1 opens
 * `options.peers` endpoints that share a queue, and acts as that many peers of rank 0, which has
 * one endpoint (FI_EP_MSG: one for each connection).
 */
#ifndef SIDE_H
#define SIDE_H

#include <poll.h>
#include <sched.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "bench.h"

/* For calls that return 0 or a negative error. */
#define CALL(what)	do { int ret_ = (int) (what); if (ret_) call_failed(#what, ret_); } while (0)

/* Tags; the link's index is added, so that links do not match each other's receives. */
enum { PAYLOAD = 1000, ANSWER = 2000, HELLO = 3000 };

/* Control messages (hello, answer) use slots after those of the payload. */
enum { CONTROL_SLOTS = MAX_PEERS };

struct link {
	struct fid_ep *ep;
	fi_addr_t to;
};

struct side {
	int rank, thread;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_eq *eq;
	struct fid_pep *pep;
	int fd, tagged, inject, knows_peer;
	/* Rank 0's address, in rank 1. */
	fi_addr_t peer;
	/* The other end if it is in the same process; it depends on this thread's progress. */
	struct side *neighbour;
	struct link links[MAX_PEERS];

	/* Completions seen, and send completions to expect. */
	long sends_done, receives_done, sends_expected;
	/* Number of the next message; both ranks count alike, and so know its contents. */
	uint64_t number;
	/* The payload of slot i is at in + i * stride. */
	char *in, *out;
	size_t stride;
	/* Expected length and seed of the message in each slot. */
	size_t lengths[MAX_WINDOW + CONTROL_SLOTS];
	uint64_t seeds[MAX_WINDOW + CONTROL_SLOTS];
	uint64_t control_in[CONTROL_SLOTS], control_out[CONTROL_SLOTS];
	struct fi_context2 receives[MAX_WINDOW + CONTROL_SLOTS], sends[MAX_WINDOW + CONTROL_SLOTS];
};

/* Capabilities that the endpoints need beside messages; set before open_side. */
extern uint64_t more_caps;

/* Opens fabric, domain and queues. */
void open_side(struct side *s, int rank, int thread);

/* Memory for `slots` messages. */
void make_buffers(struct side *s, int slots);

/* Opens links `first` to `end - 1` and exchanges the first messages; both ranks call it. */
void open_links(struct side *s, int first, int end);

/* The two steps of open_links: everything up to the first message, and the first messages. */
void prepare_links(struct side *s, int first, int end);
void exchange_hello(struct side *s, int first, int end);

void close_links(struct side *s, int first, int end);

/* An enabled endpoint bound to the side's queue. */
struct fid_ep *open_endpoint(struct side *s, struct fi_info *info);

void call_failed(const char *call, int ret) __attribute__((noreturn));

/* Prints why reading the queue failed, and exits. */
void read_failed(struct side *s, ssize_t ret) __attribute__((noreturn));

static inline char *slot_of(const struct side *s, char *buffers, int slot)
{
	return buffers + (size_t) slot * s->stride;
}

static inline void handle_completion(struct side *s, const struct fi_cq_tagged_entry *entry)
{
	long slot;

	if (!(entry->flags & FI_RECV)) {
		s->sends_done++;
		return;
	}
	s->receives_done++;
	slot = (struct fi_context2 *) entry->op_context - s->receives;
	if (entry->len != s->lengths[slot])
		quit("a message arrived with %zu bytes of %zu", entry->len, s->lengths[slot]);
	if (slot >= MAX_WINDOW)
		return;
	check_payload(slot_of(s, s->in, (int) slot), s->seeds[slot]);
}

/* Handles the result of a read. */
static inline void handle_completions(struct side *s, const struct fi_cq_tagged_entry *entries, ssize_t n)
{
	static __thread long empty;
	ssize_t i;

	if (n == -FI_EAGAIN || n == -FI_EINTR) {
		if (options.yield && ++empty % options.yield == 0)
			sched_yield();
		return;
	}
	if (n < 0)
		read_failed(s, n);
	for (i = 0; i < n; i++)
		handle_completion(s, &entries[i]);
}

/* Reads once without waiting. */
static inline void poll_completions(struct side *s)
{
	struct fi_cq_tagged_entry entries[16];

	handle_completions(s, entries, fi_cq_read(s->cq, entries, (size_t) options.batch));
}

static inline void wait_completions(struct side *s)
{
	struct fi_cq_tagged_entry entries[16];
	struct fid *fid = &s->cq->fid;
	ssize_t n;

	if (options.wait == SREAD) {
		n = fi_cq_sread(s->cq, entries, (size_t) options.batch, NULL, -1);
	} else {
		n = fi_cq_read(s->cq, entries, (size_t) options.batch);
		if (options.wait == FD && n == -FI_EAGAIN && fi_trywait(s->fabric, &fid, 1) == 0) {
			struct pollfd ready = { .fd = s->fd, .events = POLLIN };

			poll(&ready, 1, -1);
		}
	}
	handle_completions(s, entries, n);
}

static inline void await(struct side *s, long sends, long receives)
{
	while (s->sends_done < sends || s->receives_done < receives)
		wait_completions(s);
}

static inline void post_receive(struct side *s, const struct link *l, void *bytes, size_t size, uint64_t tag, int slot)
{
	void *context = &s->receives[slot];
	ssize_t ret;

	s->lengths[slot] = size;
	for (;;) {
		ret = s->tagged ? fi_trecv(l->ep, bytes, size, NULL, FI_ADDR_UNSPEC, tag, 0, context) :
			fi_recv(l->ep, bytes, size, NULL, FI_ADDR_UNSPEC, context);
		if (ret != -FI_EAGAIN)
			break;
		poll_completions(s);
	}
	if (ret)
		call_failed("posting a receive", (int) ret);
}

/* With selective completion, only a `last` send asks for one. */
static inline void send_message(struct side *s, const struct link *l, const void *bytes, size_t size, uint64_t tag, int slot,
	int last)
{
	void *context = &s->sends[slot];
	ssize_t ret;

	for (;;) {
		if (s->inject && size <= s->info->tx_attr->inject_size) {
			ret = s->tagged ? fi_tinject(l->ep, bytes, size, l->to, tag) : fi_inject(l->ep, bytes, size, l->to);
		} else if (options.completion == SELECTIVE && last) {
			struct iovec iov = { (void *) bytes, size };

			if (s->tagged) {
				struct fi_msg_tagged msg = { &iov, NULL, 1, l->to, tag, 0, context, 0 };

				ret = fi_tsendmsg(l->ep, &msg, FI_COMPLETION);
			} else {
				struct fi_msg msg = { &iov, NULL, 1, l->to, context, 0 };

				ret = fi_sendmsg(l->ep, &msg, FI_COMPLETION);
			}
		} else {
			ret = s->tagged ? fi_tsend(l->ep, bytes, size, NULL, l->to, tag, context) :
				fi_send(l->ep, bytes, size, NULL, l->to, context);
		}
		if (ret != -FI_EAGAIN)
			break;
		poll_completions(s);
		if (s->neighbour)
			poll_completions(s->neighbour);
	}
	if (ret)
		call_failed("sending", (int) ret);
	s->sends_expected += options.completion == SEND || (options.completion == SELECTIVE && last);
}

#endif
