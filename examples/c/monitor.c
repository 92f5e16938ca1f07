/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * monitor: a thread that waits on one condition variable both for messages and for the program's
 * own request to stop. The queue lends the mutex and the condition (FI_WAIT_MUTEX_COND).
 *
 * FI_PROVIDER=tcp ./monitor [MESSAGES]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define TIME_LIMIT 10 /* seconds; no wait in this program is longer */
#define TAG 42

/* Calls return a negative error number if they fail. */
static void check(const char *call, ssize_t ret)
{
	if (ret < 0) {
		fprintf(stderr, "%s: %s\n", call, fi_strerror((int) -ret));
		exit(1);
	}
}

#define CHECK(call) check(#call, call)

/* Retries while the endpoint cannot take the operation; reading the queue makes progress. */
#define POST(cq, call) \
	do { \
		time_t end_ = time(NULL) + TIME_LIMIT; \
		ssize_t ret_; \
		while ((ret_ = (call)) == -FI_EAGAIN && time(NULL) < end_) \
			fi_cq_read(cq, NULL, 0); \
		check(#call, ret_); \
	} while (0)

static struct fid_fabric *fabric;
static struct fid_cq *inbox;		/* the receiver's queue */
static struct fid_ep *receiver;
static struct fi_mutex_cond monitor;	/* the queue's; the mutex also protects what follows */
static long received;
static int stop;

/* Ends the program if an operation failed; otherwise returns whether there was an entry. */
static int take(struct fid_cq *cq)
{
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_tagged_entry entry;
	ssize_t ret = fi_cq_read(cq, &entry, 1);

	if (ret == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
		check("an operation", -error.err);
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
		if (fi_trywait(fabric, fids, 1) == 0)
			pthread_cond_wait(monitor.cond, monitor.mutex);
	}
	pthread_mutex_unlock(monitor.mutex);
	return NULL;
}

static struct fid_ep *open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_cq *cq,
	struct fid_av *av)
{
	struct fid_ep *ep;

	CHECK(fi_endpoint(domain, info, &ep, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_enable(ep));
	return ep;
}

int main(int argc, char **argv)
{
	struct fi_cq_attr outbox_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cq_attr inbox_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_domain *domain;
	struct fid_cq *outbox;
	struct fid_av *av;
	struct fid_ep *sender;
	struct timespec until;
	pthread_t thread;
	char name[256];
	size_t len = sizeof(name);
	long messages = argc > 1 ? atol(argv[1]) : 1000, i;
	int late = 0;
	fi_addr_t to;

	check("fi_allocinfo", hints ? 0 : -FI_ENOMEM);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED;
	/* Two threads call the library at the same time. */
	hints->domain_attr->threading = FI_THREAD_SAFE;
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	CHECK(fi_cq_open(domain, &outbox_attr, &outbox, NULL));
	CHECK(fi_cq_open(domain, &inbox_attr, &inbox, NULL));
	CHECK(fi_control(&inbox->fid, FI_GETWAIT, &monitor));
	CHECK(fi_av_open(domain, &av_attr, &av, NULL));
	receiver = open_endpoint(domain, info, inbox, av);
	sender = open_endpoint(domain, info, outbox, av);
	CHECK(fi_getname(&receiver->fid, name, &len));
	check("fi_av_insert", fi_av_insert(av, name, 1, &to, 0, NULL) == 1 ? 0 : -FI_EADDRNOTAVAIL);
	check("pthread_create", -pthread_create(&thread, NULL, receive, NULL));

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += TIME_LIMIT;
	for (i = 0; i < messages; i++) {
		time_t end = time(NULL) + TIME_LIMIT;

		POST(outbox, fi_tsend(sender, "x", 1, NULL, to, TAG, NULL));
		while (!take(outbox))
			check("wait for a send", time(NULL) < end ? 0 : -FI_ETIMEDOUT);
	}
	pthread_mutex_lock(monitor.mutex);
	while (received < messages && !late)
		late = pthread_cond_timedwait(monitor.cond, monitor.mutex, &until);
	/* What the library signals, the program may signal too. */
	stop = 1;
	pthread_cond_broadcast(monitor.cond);
	pthread_mutex_unlock(monitor.mutex);
	pthread_join(thread, NULL);
	check("wait for the messages", -late);
	printf("%ld messages over %s\n", received, info->fabric_attr->prov_name);

	CHECK(fi_close(&sender->fid));
	CHECK(fi_close(&receiver->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&inbox->fid));
	CHECK(fi_close(&outbox->fid));
	CHECK(fi_close(&domain->fid));
	CHECK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return 0;
}
