/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads of one process that exchange nothing with each other: each sends windows of messages from
 * one end to the other and reads the completions of both, in million messages a second of all
 * threads. One domain has
 *   contexts    two scalable endpoints; a transmit context, a receive context and a queue a thread
 *   endpoints   two endpoints and a queue a thread
 *   shared      two endpoints and a queue for all threads
 * Threads whose objects share no lock scale like threads with endpoints of their own.
 */
#include <pthread.h>

#include "patterns.h"
#include "side.h"

/* Bits of a receive index in an address. */
enum { BITS = 4, WINDOW_TAG = 100 };

/* What a thread uses. */
struct lane {
	struct fid_ep *out, *in;
	struct fid_cq *cq;
	fi_addr_t to;
	uint64_t tag;
	/* Where the threads share a queue, another one may read this one's completions. */
	_Alignas(64) atomic_long done;
};

/* An operation, which knows its thread. */
struct operation {
	struct fi_context2 context;
	struct lane *lane;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct lane lanes[MAX_THREADS];
static struct sample sample;

static void find(int contexts)
{
	struct fi_info *hints = fi_allocinfo();
	int sockets = strcmp(options.provider, "shm") != 0;

	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED | (contexts ? FI_NAMED_RX_CTX : 0);
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->fabric_attr->prov_name = strdup(options.provider);
	hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);
	hints->domain_attr->threading = FI_THREAD_SAFE;
	if (contexts)
		hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = (size_t) options.threads;
	if (sockets)
		hints->addr_format = FI_SOCKADDR_IN;
	CALL(fi_getinfo(FI_VERSION(1, 20), sockets ? options.address : NULL, NULL, sockets ? FI_SOURCE : 0, hints, &info));
	fi_freeinfo(hints);
}

static void open_domain(void)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .rx_ctx_bits = BITS };

	CALL(fi_fabric(info->fabric_attr, &fabric, NULL));
	CALL(fi_domain(fabric, info, &domain, NULL));
	CALL(fi_av_open(domain, &attr, &av, NULL));
}

static struct fid_cq *open_queue(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE, .size = 4096 };
	struct fid_cq *cq;

	CALL(fi_cq_open(domain, &attr, &cq, NULL));
	return cq;
}

static fi_addr_t insert(struct fid_ep *ep)
{
	char name[NAME_SIZE];
	size_t size = sizeof(name);
	fi_addr_t addr;

	CALL(fi_getname(&ep->fid, name, &size));
	MUST(fi_av_insert(av, name, 1, &addr, 0, NULL) == 1);
	return addr;
}

static struct fid_ep *open_plain(struct fid_cq *cq)
{
	struct fid_ep *ep;

	CALL(fi_endpoint(domain, info, &ep, NULL));
	CALL(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	CALL(fi_ep_bind(ep, &av->fid, 0));
	CALL(fi_enable(ep));
	return ep;
}

static void open_endpoints(int first, int end, int all)
{
	struct fid_cq *cq = open_queue();
	struct fid_ep *out = open_plain(cq), *in = open_plain(cq);
	fi_addr_t to = insert(in);
	int i;

	for (i = first; i < (all ? options.threads : end); i++)
		lanes[i] = (struct lane) { .out = out, .in = in, .cq = cq, .to = to, .tag = WINDOW_TAG + (uint64_t) i };
}

static void open_contexts(void)
{
	struct fid_ep *out, *in;
	fi_addr_t to;
	int i;

	CALL(fi_scalable_ep(domain, info, &out, NULL));
	CALL(fi_scalable_ep(domain, info, &in, NULL));
	CALL(fi_scalable_ep_bind(out, &av->fid, 0));
	CALL(fi_scalable_ep_bind(in, &av->fid, 0));
	for (i = 0; i < options.threads; i++) {
		struct lane *lane = &lanes[i];

		lane->cq = open_queue();
		lane->tag = WINDOW_TAG;
		CALL(fi_tx_context(out, i, info->tx_attr, &lane->out, NULL));
		CALL(fi_rx_context(in, i, info->rx_attr, &lane->in, NULL));
		CALL(fi_ep_bind(lane->out, &lane->cq->fid, FI_TRANSMIT));
		CALL(fi_ep_bind(lane->in, &lane->cq->fid, FI_RECV));
		CALL(fi_enable(lane->out));
		CALL(fi_enable(lane->in));
	}
	to = insert(in);
	for (i = 0; i < options.threads; i++)
		lanes[i].to = fi_rx_addr(to, i, BITS);
}

static void poll_lane(struct lane *lane)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t n = fi_cq_read(lane->cq, entries, 16), i;

	MUST(n > 0 || n == -FI_EAGAIN);
	for (i = 0; i < n; i++) {
		struct operation *done = entries[i].op_context;

		atomic_fetch_add_explicit(&done->lane->done, 1, memory_order_relaxed);
	}
}

static void progress(void *lane)
{
	poll_lane(lane);
}

static void windows(void *state, long count)
{
	static __thread struct operation receives[MAX_WINDOW], sends[MAX_WINDOW];
	static __thread uint64_t in[MAX_WINDOW], out[MAX_WINDOW];
	struct lane *lane = state;
	int i;

	while (count-- > 0) {
		long done = atomic_load_explicit(&lane->done, memory_order_relaxed) + 2 * options.window;

		for (i = 0; i < options.window; i++) {
			receives[i].lane = sends[i].lane = lane;
			CALL(fi_trecv(lane->in, &in[i], sizeof(*in), NULL, FI_ADDR_UNSPEC, lane->tag, 0, &receives[i]));
		}
		for (i = 0; i < options.window; i++) {
			ssize_t ret;

			out[i] = (uint64_t) count + (uint64_t) i;
			while ((ret = fi_tsend(lane->out, &out[i], sizeof(*out), NULL, lane->to, lane->tag, &sends[i])) == -FI_EAGAIN)
				poll_lane(lane);
			CALL(ret);
		}
		while (atomic_load_explicit(&lane->done, memory_order_relaxed) < done)
			poll_lane(lane);
		for (i = 0; i < options.window; i++)
			MUST(in[i] == out[i]);
	}
}

static void *run_thread(void *index)
{
	struct sample mine;

	participant = (int) (intptr_t) index;
	pin(participant);
	barrier_progress = progress;
	barrier_state = &lanes[participant];
	mine = measure(windows, &lanes[participant], 0);
	if (participant == 0)
		sample = mine;
	return NULL;
}

int run_contexts(void)
{
	static const char *const patterns[] = { "contexts", "endpoints", "shared" };
	pthread_t threads[MAX_THREADS];
	int which = 0, i;

	while (which < 3 && strcmp(options.pattern, patterns[which]))
		which++;
	if (which == 3)
		return 0;
	MUST(options.endpoint == RDM && options.size == sizeof(uint64_t));
	spawn(1);
	find(which == 0);
	open_domain();
	if (which == 0)
		open_contexts();
	for (i = 0; which == 1 && i < options.threads; i++)
		open_endpoints(i, i + 1, 0);
	if (which == 2)
		open_endpoints(0, 0, 1);
	for (i = 1; i < options.threads; i++)
		MUST(pthread_create(&threads[i], NULL, run_thread, (void *) (intptr_t) i) == 0);
	run_thread(NULL);
	for (i = 1; i < options.threads; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	print_result(sample.count * options.window * options.threads / sample.elapsed, sample);
	return 1;
}
