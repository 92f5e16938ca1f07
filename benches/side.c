/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* See side.h. */
#include <netinet/in.h>
#include <pthread.h>

#include "side.h"

uint64_t more_caps;

static struct fi_info *find_provider(void)
{
	static const enum fi_ep_type types[] = { [RDM] = FI_EP_RDM, [MSG] = FI_EP_MSG, [DGRAM] = FI_EP_DGRAM };
	struct fi_info *hints = fi_allocinfo(), *info;
	int sockets = strcmp(options.provider, "shm") != 0, ret;

	hints->ep_attr->type = types[options.endpoint];
	hints->caps = FI_MSG | (options.endpoint == RDM ? FI_TAGGED : 0) | more_caps;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->fabric_attr->prov_name = strdup(options.provider);
	if (sockets)
		hints->addr_format = FI_SOCKADDR_IN;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = options.endpoint == DGRAM ? 0 : FI_ORDER_SAS;
	hints->domain_attr->mr_mode = ~(FI_MR_BASIC | FI_MR_SCALABLE);
	hints->domain_attr->threading = options.locking == DOMAIN ? FI_THREAD_DOMAIN : FI_THREAD_SAFE;
	hints->domain_attr->data_progress = options.progress == AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	hints->domain_attr->control_progress = options.progress == AUTO ? FI_PROGRESS_AUTO :
		options.locking == DOMAIN ? FI_PROGRESS_CONTROL_UNIFIED : FI_PROGRESS_MANUAL;
	ret = fi_getinfo(FI_VERSION(1, 20), sockets ? options.address : NULL, NULL, sockets ? FI_SOURCE : 0, hints, &info);
	if (ret)
		quit("fi_getinfo: %s", fi_strerror(-ret));
	MUST(!(info->domain_attr->mr_mode & FI_MR_LOCAL));
	if (options.size > info->ep_attr->max_msg_size)
		quit("messages have at most %zu bytes", info->ep_attr->max_msg_size);
	if (options.completion == INJECT && options.size > info->tx_attr->inject_size)
		quit("inject takes at most %zu bytes", info->tx_attr->inject_size);
	fi_freeinfo(hints);
	return info;
}

static void progress(void *side)
{
	poll_completions(side);
}

void open_side(struct side *s, int rank, int thread)
{
	static const enum fi_wait_obj objects[] = { [SPIN] = FI_WAIT_NONE, [SREAD] = FI_WAIT_UNSPEC, [FD] = FI_WAIT_FD };
	static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
	static struct fid_fabric *fabric;
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = objects[options.wait] };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };

	/* memory-endpoint measures an endpoint with the default queue size. */
	cq_attr.size = strcmp(options.pattern, "memory-endpoint") ? 4096 : 0;
	memset(s, 0, sizeof(*s));
	s->rank = rank;
	s->thread = thread;
	s->tagged = options.endpoint == RDM;
	s->inject = options.completion == INJECT;
	s->info = find_provider();
	pthread_mutex_lock(&opening);
	if (!fabric)
		CALL(fi_fabric(s->info->fabric_attr, &fabric, NULL));
	s->fabric = fabric;
	pthread_mutex_unlock(&opening);
	/* A domain per thread: some libraries serialize a domain's endpoints under one lock. */
	CALL(fi_domain(s->fabric, s->info, &s->domain, NULL));
	CALL(fi_cq_open(s->domain, &cq_attr, &s->cq, NULL));
	if (options.wait == FD)
		CALL(fi_control(&s->cq->fid, FI_GETWAIT, &s->fd));
	if (options.endpoint == MSG)
		CALL(fi_eq_open(s->fabric, &eq_attr, &s->eq, NULL));
	else
		CALL(fi_av_open(s->domain, &av_attr, &s->av, NULL));
	barrier_progress = progress;
	barrier_state = s;
}

struct fid_ep *open_endpoint(struct side *s, struct fi_info *info)
{
	uint64_t selective = options.completion == SELECTIVE ? FI_SELECTIVE_COMPLETION : 0;
	struct fid_ep *ep;

	CALL(fi_endpoint(s->domain, info, &ep, NULL));
	CALL(fi_ep_bind(ep, &s->cq->fid, FI_TRANSMIT | selective));
	CALL(fi_ep_bind(ep, &s->cq->fid, FI_RECV));
	CALL(fi_ep_bind(ep, s->av ? &s->av->fid : &s->eq->fid, 0));
	CALL(fi_enable(ep));
	return ep;
}

void make_buffers(struct side *s, int slots)
{
	s->stride = payload_stride();
	s->in = alloc_payload(slots);
	s->out = alloc_payload(slots);
}

void call_failed(const char *call, int ret)
{
	/* Print only the name of the function. */
	quit("%.*s: %s (%s)", (int) strcspn(call, "("), call, fi_strerror(-ret), options.pattern);
}

void read_failed(struct side *s, ssize_t ret)
{
	struct fi_cq_err_entry error = { 0 };

	if (ret != -FI_EAVAIL)
		quit("reading the queue: %s", fi_strerror((int) -ret));
	MUST(fi_cq_readerr(s->cq, &error, 0) == 1);
	quit("an operation failed: %s, %s", fi_strerror(error.err),
		fi_cq_strerror(s->cq, error.prov_errno, error.err_data, NULL, 0));
}

/* ---- names and connections ---- */

static void publish(struct side *s, struct fid *fid, int index)
{
	size_t size = NAME_SIZE;
	char *name = shared->names[s->rank][s->thread][index];

	CALL(fi_getname(fid, name, &size));
	if (options.relay) {
		struct sockaddr_in *addr = (struct sockaddr_in *) name;

		MUST(s->eq && addr->sin_family == AF_INET);
		addr->sin_port = start_relay(addr->sin_port);
	}
}

/* The next connection event; makes progress meanwhile. */
static uint32_t next_event(struct side *s, void *event, size_t size)
{
	uint32_t kind;
	ssize_t ret;

	while ((ret = fi_eq_read(s->eq, &kind, event, size, 0)) == -FI_EAGAIN)
		poll_completions(s);
	MUST(ret > 0);
	return kind;
}

static void connect_all(struct side *s, int first, int end)
{
	struct { struct fi_eq_cm_entry cm; int data[16]; } event;
	int i;

	for (i = first; i < end; i++)
		CALL(fi_connect(s->links[i].ep, shared->names[0][s->thread][0], &i, sizeof(i)));
	for (i = first; i < end; i++)
		MUST(next_event(s, &event, sizeof(event)) == FI_CONNECTED);
}

static void accept_all(struct side *s, int first, int end)
{
	struct { struct fi_eq_cm_entry cm; int data[16]; } event;
	int accepted = first, connected = first, index;

	while (accepted < end || connected < end) {
		uint32_t kind = next_event(s, &event, sizeof(event));

		if (kind == FI_CONNECTED) {
			connected++;
			continue;
		}
		/* From a connection of an earlier round. */
		if (kind == FI_SHUTDOWN)
			continue;
		MUST(kind == FI_CONNREQ);
		memcpy(&index, event.cm.data, sizeof(index));
		MUST(index >= first && index < end);
		s->links[index].ep = open_endpoint(s, event.cm.info);
		CALL(fi_accept(s->links[index].ep, NULL, 0));
		fi_freeinfo(event.cm.info);
		accepted++;
	}
}

void prepare_links(struct side *s, int first, int end)
{
	int i;

	if (options.endpoint == MSG && s->rank == 0 && !s->pep) {
		CALL(fi_passive_ep(s->fabric, s->info, &s->pep, NULL));
		CALL(fi_pep_bind(s->pep, &s->eq->fid, 0));
		CALL(fi_listen(s->pep));
		publish(s, &s->pep->fid, 0);
	}
	for (i = first; i < end; i++) {
		if (options.endpoint == MSG) {
			if (s->rank == 1)
				s->links[i].ep = open_endpoint(s, s->info);
		} else if (s->rank == 0 && i) {
			s->links[i].ep = s->links[0].ep;
		} else if (!s->links[i].ep) {
			s->links[i].ep = open_endpoint(s, s->info);
			publish(s, &s->links[i].ep->fid, i);
		}
	}
	barrier();
	for (i = first; s->av && i < end; i++) {
		const char *name = shared->names[!s->rank][s->thread][s->rank ? 0 : i];

		/* Rank 1 has a single address to insert. */
		if (s->rank == 0 || !s->knows_peer)
			MUST(fi_av_insert(s->av, name, 1, s->rank ? &s->peer : &s->links[i].to, 0, NULL) == 1);
		s->knows_peer = 1;
		if (s->rank == 1)
			s->links[i].to = s->peer;
	}
}

/* Rank 1 sends first, so that its message opens the connection. */
void exchange_hello(struct side *s, int first, int end)
{
	long sends, receives = s->receives_done + (end - first);
	int i;

	if (s->eq && s->rank == 1)
		connect_all(s, first, end);
	else if (s->eq)
		accept_all(s, first, end);
	for (i = first; i < end; i++)
		post_receive(s, &s->links[i], &s->control_in[i], sizeof(uint64_t), (uint64_t) (HELLO + i), MAX_WINDOW + i);
	while (s->rank == 0 && s->receives_done < receives)
		poll_completions(s);
	for (i = first; i < end; i++) {
		s->control_out[i] = (uint64_t) (HELLO + i);
		send_message(s, &s->links[i], &s->control_out[i], sizeof(uint64_t), (uint64_t) (HELLO + i), MAX_WINDOW + i, 1);
	}
	sends = s->sends_expected;
	while (s->receives_done < receives || s->sends_done < sends)
		poll_completions(s);
	for (i = first; i < end; i++) {
		MUST(s->control_in[i] == (uint64_t) (HELLO + i));
		s->control_in[i] = 0;
	}
}

void open_links(struct side *s, int first, int end)
{
	prepare_links(s, first, end);
	barrier();
	exchange_hello(s, first, end);
}

void close_links(struct side *s, int first, int end)
{
	int i;

	for (i = first; i < end; i++) {
		if (s->av && s->rank == 0)
			CALL(fi_av_remove(s->av, &s->links[i].to, 1, 0));
		if (s->eq || s->rank == 1) {
			CALL(fi_close(&s->links[i].ep->fid));
			s->links[i].ep = NULL;
		}
	}
}
