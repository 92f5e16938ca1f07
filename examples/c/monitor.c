/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * monitor: a thread that waits on one condition variable both for messages and for the program's
 * own request to stop. The queue lends the mutex and the condition (FI_WAIT_MUTEX_COND).
 *
 * FI_PROVIDER=tcp ./monitor [MESSAGES]
 */
#include "common.h"

#include <pthread.h>

#include <rdma/fi_tagged.h>

static struct net net;
static struct fid_cq *inbox;		/* the receiver's queue */
static struct fid_ep *receiver;
static struct fi_mutex_cond monitor;	/* the queue's; the mutex also protects what follows */
static long received;
static int stop;

/* Ends the program if an operation failed; otherwise returns whether there was an entry. */
static int take(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret = fi_cq_read(cq, &entry, 1);

	if (ret == -FI_EAVAIL)
		fail(cq);
	if (ret != -FI_EAGAIN)
		check("fi_cq_read", ret);
	return ret == 1;
}

static void *receive(void *arg)
{
	struct fid *fids[] = { &inbox->fid };
	static char in[64];

	(void) arg;
	POST(inbox, fi_trecv(receiver, in, sizeof(in), NULL, FI_ADDR_UNSPEC, TAG, 0, in));
	pthread_mutex_lock(monitor.mutex);
	while (!stop) {
		if (take(inbox)) {
			received++;
			POST(inbox, fi_trecv(receiver, in, sizeof(in), NULL, FI_ADDR_UNSPEC, TAG, 0, in));
			/* The main thread waits for this on the same condition. */
			pthread_cond_broadcast(monitor.cond);
			continue;
		}
		/*
		 * The queue is empty. fi_trywait says whether the thread may wait: a message that comes
		 * from now on is signaled, and cannot be missed because the mutex is held.
		 */
		if (fi_trywait(net.fabric, fids, 1) == 0)
			pthread_cond_wait(monitor.cond, monitor.mutex);
	}
	pthread_mutex_unlock(monitor.mutex);
	return NULL;
}

int main(int argc, char **argv)
{
	struct fi_cq_attr outbox_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cq_attr inbox_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_info *hints = hints_for(FI_TAGGED);
	struct fid_cq *outbox;
	struct fid_av *av;
	struct fid_ep *sender;
	struct timespec until;
	pthread_t thread;
	long messages = argc > 1 ? atol(argv[1]) : 1000, before, i;
	int late = 0;
	fi_addr_t to;

	/* Two threads call the library at the same time. */
	hints->domain_attr->threading = FI_THREAD_SAFE;
	net = open_net(hints);
	CHECK(fi_cq_open(net.domain, &outbox_attr, &outbox, NULL));
	CHECK(fi_cq_open(net.domain, &inbox_attr, &inbox, NULL));
	CHECK(fi_control(&inbox->fid, FI_GETWAIT, &monitor));
	CHECK(fi_av_open(net.domain, &av_attr, &av, NULL));
	receiver = open_endpoint(net.domain, net.info, inbox, av);
	sender = open_endpoint(net.domain, net.info, outbox, av);
	to = insert(av, receiver);
	check("pthread_create", -pthread_create(&thread, NULL, receive, NULL));

	for (i = 0; i < messages; i++) {
		time_t end = time(NULL) + TIME_LIMIT;

		POST(outbox, fi_tsend(sender, "x", 1, NULL, to, TAG, NULL));
		while (!take(outbox))
			check("wait for a send", time(NULL) < end ? 0 : -FI_ETIMEDOUT);
	}
	pthread_mutex_lock(monitor.mutex);
	while (received < messages && !late) {
		/* The limit is for the next message. */
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += TIME_LIMIT;
		before = received;
		while (received == before && !late)
			late = pthread_cond_timedwait(monitor.cond, monitor.mutex, &until);
	}
	/* What the library signals, the program may signal too. */
	stop = 1;
	pthread_cond_broadcast(monitor.cond);
	pthread_mutex_unlock(monitor.mutex);
	pthread_join(thread, NULL);
	check("wait for the messages", -late);
	printf("%ld messages over %s\n", received, net.info->fabric_attr->prov_name);

	CHECK(fi_close(&sender->fid));
	CHECK(fi_close(&receiver->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&inbox->fid));
	CHECK(fi_close(&outbox->fid));
	close_net(&net);
	return 0;
}
