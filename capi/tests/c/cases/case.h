/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Cases: each is a function that tests statements of the manual through the public calls, in its
 * own process. `program --list` prints the names with their kind, `program NAME` runs one.
 *   CASE(name)          tests the manual: it holds for any library
 *   CASE_OURS(name)     tests what the manual leaves open, or what other libraries do differently
 *   HELPER(name)        tests nothing: cases start it in a separate process
 */
#ifndef CASE_H
#define CASE_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_errno.h>
#include <string.h>
#include <poll.h>
#include <time.h>
#include "../completion.h"

/* The lower of the versions of these headers and of the library. */
#define HEADERS	FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION)
#define API	(fi_version() < HEADERS ? fi_version() : HEADERS)
#define ARRAY(a)	(sizeof(a) / sizeof(*(a)))

/* Progress with which an endpoint of FI_THREAD_DOMAIN needs no locks; headers before 1.21 have none. */
#if FI_MAJOR_VERSION > 1 || FI_MINOR_VERSION >= 21
#define ALONE	FI_PROGRESS_CONTROL_UNIFIED
#else
#define ALONE	FI_PROGRESS_MANUAL
#endif

struct test_case {
	const char *name;
	void (*run)(void);
	const char *kind;
};

static struct test_case test_cases[256];
static int test_case_count;

#define CASE_KIND(case_name, kind) \
	static void case_name(void); \
	__attribute__((constructor)) static void add_##case_name(void) \
	{ \
		test_cases[test_case_count++] = (struct test_case) { #case_name, case_name, kind }; \
	} \
	static void case_name(void)
#define CASE(case_name)		CASE_KIND(case_name, "any")
#define CASE_OURS(case_name)	CASE_KIND(case_name, "ours")
#define HELPER(case_name)	CASE_KIND(case_name, "helper")

/* A row of docs/refused.md, by its first column, with its answer. */
#define REFUSED(row, number, call) \
	do { \
		if ((call) != -(number)) { \
			fprintf(stderr, "%s:%d: not refused with " #number ": %s\n", __FILE__, __LINE__, row); \
			exit(1); \
		} \
	} while (0)

/* Something that a case needs is missing: prints it and counts as not run. */
#define SKIP(why) do { printf("skipped: %s\n", why); exit(77); } while (0)

int main(int argc, char **argv)
{
	for (int i = 0; i < test_case_count; i++) {
		if (argc == 2 && !strcmp(argv[1], "--list"))
			printf("%s %s\n", test_cases[i].name, test_cases[i].kind);
		else if (argc == 2 && !strcmp(argv[1], test_cases[i].name)) {
			test_cases[i].run();
			return 0;
		}
	}
	return argc == 2 && !strcmp(argv[1], "--list") ? 0 : 2;
}

/* Attributes of the endpoint to open. */
struct want {
	enum fi_ep_type type;		/* 0: RDM */
	uint64_t caps;			/* besides FI_MSG */
	uint64_t mode;			/* besides FI_CONTEXT and FI_CONTEXT2 */
	uint64_t bind;			/* besides FI_TRANSMIT | FI_RECV */
	enum fi_wait_obj wait;
	enum fi_cq_format format;	/* 0: TAGGED */
	enum fi_progress progress;
	enum fi_threading threading;
	uint32_t api;			/* 0: API */
	size_t tx_size, rx_size;
	uint64_t tx_flags, rx_flags;
	const char *provider;
	struct fid_wait *(*set)(struct fid_fabric *);
};

struct side {
	struct want want;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	char name[64];
	size_t len;
};

/* All open sides. Waiting on one drives all: a peer with manual progress answers only then. */
static struct side *sides[16];

static inline void drive(void)
{
	size_t i;

	for (i = 0; i < ARRAY(sides); i++)
		if (sides[i] && sides[i]->cq)
			fi_cq_read(sides[i]->cq, NULL, 0);
}

static inline int is_msg(const struct want *w)
{
	return w->type == FI_EP_MSG;
}

/* The default provider: OFI_TEST_DATAGRAMS or udp for datagrams, otherwise OFI_TEST_PROVIDER or tcp. */
static inline const char *provider_of(const struct want *w)
{
	int datagrams = w->type == FI_EP_DGRAM;
	const char *over = getenv(datagrams ? "OFI_TEST_DATAGRAMS" : "OFI_TEST_PROVIDER");

	return w->provider ? w->provider : over ? over : datagrams ? "udp" : "tcp";
}

static inline int within_host(const struct want *w)
{
	return !strcmp(provider_of(w), "shm");
}

static inline struct fi_info *hints_for(const struct want *w)
{
	struct fi_info *hints = fi_allocinfo();

	CHECK(hints);
	hints->ep_attr->type = w->type ? w->type : FI_EP_RDM;
	hints->caps = FI_MSG | w->caps;
	hints->mode = FI_CONTEXT | FI_CONTEXT2 | w->mode;
	hints->addr_format = within_host(w) ? FI_ADDR_STR : FI_SOCKADDR_IN;
	hints->fabric_attr->prov_name = strdup(provider_of(w));
	/* Before 1.5, mr_mode was one of two values or unspecified. */
	hints->domain_attr->mr_mode = w->api && w->api < FI_VERSION(1, 5) ? 0 : ~3;
	hints->domain_attr->threading = w->threading;
	hints->domain_attr->control_progress = w->progress;
	hints->domain_attr->data_progress = w->progress;
	hints->tx_attr->size = w->tx_size;
	hints->rx_attr->size = w->rx_size;
	hints->tx_attr->op_flags = w->tx_flags;
	hints->rx_attr->op_flags = w->rx_flags;
	return hints;
}

static inline struct fi_info *find(const struct want *w)
{
	struct fi_info *hints = hints_for(w), *info = NULL;
	int local = within_host(w);
	int ret = fi_getinfo(w->api ? w->api : API, local ? NULL : own_node(), NULL, local ? 0 : FI_SOURCE, hints, &info);

	fi_freeinfo(hints);
	if (ret == -FI_ENODATA)
		SKIP("no provider offers this");
	if (ret)
		fprintf(stderr, "fi_getinfo: %s\n", fi_strerror(-ret));
	CHECK(ret == 0);
	return info;
}

/* Everything but the endpoint. */
static inline void open_domain(struct side *s, const struct want *w)
{
	struct fi_cq_attr cq_attr = { .format = w->format ? w->format : FI_CQ_FORMAT_TAGGED, .wait_obj = w->wait };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };

	size_t i = 0;

	memset(s, 0, sizeof(*s));
	s->want = *w;
	while (i < ARRAY(sides) && sides[i])
		i++;
	CHECK(i < ARRAY(sides));
	sides[i] = s;
	s->info = find(w);
	CHECK(fi_fabric(s->info->fabric_attr, &s->fabric, NULL) == 0);
	CHECK(fi_domain(s->fabric, s->info, &s->domain, NULL) == 0);
	CHECK(fi_eq_open(s->fabric, &eq_attr, &s->eq, NULL) == 0);
	if (w->set) {
		cq_attr.wait_obj = FI_WAIT_SET;
		cq_attr.wait_set = w->set(s->fabric);
	}
	CHECK(fi_cq_open(s->domain, &cq_attr, &s->cq, NULL) == 0);
	CHECK(fi_av_open(s->domain, &av_attr, &s->av, NULL) == 0);
}

/* Enables an endpoint whose completion queues are bound. */
static inline void enable_ep(struct side *s)
{
	CHECK(fi_ep_bind(s->ep, is_msg(&s->want) ? &s->eq->fid : &s->av->fid, 0) == 0);
	CHECK(fi_enable(s->ep) == 0);
	s->len = sizeof(s->name);
	if (!is_msg(&s->want))
		CHECK(fi_getname(&s->ep->fid, s->name, &s->len) == 0);
}

static inline void open_ep(struct side *s, struct fi_info *info)
{
	CHECK(fi_endpoint(s->domain, info, &s->ep, s) == 0);
	CHECK(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV | s->want.bind) == 0);
	enable_ep(s);
}

static inline void open_side(struct side *s, const struct want *w)
{
	open_domain(s, w);
	open_ep(s, s->info);
}

static inline fi_addr_t insert(struct side *s, const void *name)
{
	fi_addr_t addr = 77;

	CHECK(fi_av_insert(s->av, name, 1, &addr, 0, NULL) == 1);
	return addr;
}

static inline void close_side(struct side *s)
{
	size_t i;

	for (i = 0; i < ARRAY(sides); i++)
		if (sides[i] == s)
			sides[i] = NULL;
	if (s->ep)
		CHECK(fi_close(&s->ep->fid) == 0);
	if (s->av)
		CHECK(fi_close(&s->av->fid) == 0);
	if (s->cq)
		CHECK(fi_close(&s->cq->fid) == 0);
	CHECK(fi_close(&s->eq->fid) == 0);
	CHECK(fi_close(&s->domain->fid) == 0);
	CHECK(fi_close(&s->fabric->fid) == 0);
	fi_freeinfo(s->info);
}

/* Two endpoints of this process that have each other's addresses. */
struct pair {
	struct side a, b;
	fi_addr_t to_a, to_b;
};

/* Reads one event within ten seconds, while `other` makes progress. */
static inline ssize_t event_of(struct side *s, struct side *other, uint32_t *number, void *buf, size_t len)
{
	double end = seconds() + 10;
	ssize_t ret;

	do {
		ret = fi_eq_read(s->eq, number, buf, len, 0);
		if (other)
			fi_eq_read(other->eq, &(uint32_t) { 0 }, NULL, 0, FI_PEEK);
	} while (ret == -FI_EAGAIN && seconds() < end);
	return ret;
}

static inline void meet(struct pair *p, const struct want *w)
{
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	struct fid_pep *pep;
	char name[64];
	size_t len = sizeof(name);
	uint32_t number;

	if (!is_msg(w)) {
		open_side(&p->a, w);
		open_side(&p->b, w);
		p->to_b = insert(&p->a, p->b.name);
		p->to_a = insert(&p->b, p->a.name);
		return;
	}
	p->to_a = p->to_b = 0;
	open_domain(&p->b, w);
	CHECK(fi_passive_ep(p->b.fabric, p->b.info, &pep, &p->b) == 0);
	CHECK(fi_pep_bind(pep, &p->b.eq->fid, 0) == 0);
	CHECK(fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	open_side(&p->a, w);
	CHECK(fi_connect(p->a.ep, name, NULL, 0) == 0);
	CHECK(event_of(&p->b, &p->a, &number, &event, sizeof(event)) >= (ssize_t) sizeof(event.cm));
	CHECK(number == FI_CONNREQ);
	open_ep(&p->b, event.cm.info);
	CHECK(fi_accept(p->b.ep, NULL, 0) == 0);
	fi_freeinfo(event.cm.info);
	CHECK(event_of(&p->b, &p->a, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	CHECK(event_of(&p->a, &p->b, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
	CHECK(fi_close(&pep->fid) == 0);
}

static inline void part(struct pair *p)
{
	close_side(&p->a);
	close_side(&p->b);
}

/*
 * Reads the next completion: 1, 0 for an error in `err`, -1 for none within `wait` seconds. `other`
 * makes progress.
 */
static inline int next(struct side *s, struct side *other, struct fi_cq_tagged_entry *entry,
	struct fi_cq_err_entry *err, double wait)
{
	return next_entry(s->cq, other ? other->cq : NULL, entry, err, wait);
}

/* The next completion, which must be a success with this context. */
static inline struct fi_cq_tagged_entry done(struct side *s, struct side *other, void *context)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	int ret = next(s, other, &entry, &err, 10);

	if (ret == 0)
		fprintf(stderr, "failed: %s, %s\n", fi_strerror(err.err),
			fi_cq_strerror(s->cq, err.prov_errno, err.err_data, NULL, 0));
	CHECK(ret == 1);
	CHECK(entry.op_context == context);
	return entry;
}

/* The next completion, which must be an error with this number. */
static inline struct fi_cq_err_entry failed(struct side *s, struct side *other, int number)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;

	CHECK(next(s, other, &entry, &err, 15) == 0);
	if (err.err != number)
		fprintf(stderr, "failed with %s\n", fi_strerror(err.err));
	CHECK(err.err == number);
	return err;
}

/* Checks that nothing completes for a while. */
static inline void quiet(struct side *s, struct side *other)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;

	CHECK(next(s, other, &entry, &err, 0.05) == -1);
}

/* Waits until a join is reported; the event stays in the queue. */
static inline void await_join(struct side *s)
{
	double end = seconds() + 10;
	struct fi_eq_entry event;
	uint32_t number;

	while (fi_eq_read(s->eq, &number, &event, sizeof(event), FI_PEEK) == -FI_EAGAIN)
		CHECK(seconds() < end);
}

/* Repeats the call while it returns -FI_EAGAIN. */
#define POST(call) \
	do { \
		double end_ = seconds() + 10; \
		ssize_t ret_; \
		while ((ret_ = (call)) == -FI_EAGAIN && seconds() < end_) \
			drive(); \
		if (ret_) \
			fprintf(stderr, "%s\n", fi_strerror((int) -ret_)); \
		CHECK(ret_ == 0); \
	} while (0)

static const struct want RDM = { .caps = FI_TAGGED };

/* Contexts for the operations of all sides, in case a library requires FI_CONTEXT2. */
static struct fi_context2 contexts[16];

#endif
