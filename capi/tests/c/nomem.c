/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Calls that create something, with each of their allocations failing in turn: alone, or together
 * with all that follow. Each time the call returns -FI_ENOMEM (or NULL) or succeeds completely, and
 * after closing everything there are as many allocations as before.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_profile.h>
#include <rdma/providers/fi_prov.h>
#include "allocator.h"
#include "check.h"

/* The objects that the calls use. */
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_wait *waits;
static struct fid_eq *eq;
static struct fid_pep *pep;
static struct fid_cq *cq;
static struct fid_ep *ep;

/* The name of an address vector, which no other process has. */
static char shared_name[32];

/* A call that stores its result, if any, in `made`. */
struct trial {
	const char *name;
	int (*call)(void **made);
	void (*undo)(void *made);
	/* Another error that it may return; 0: none. */
	int besides;
};

static void close_it(void *made)
{
	CHECK(fi_close(made) == 0);
}

static void free_infos(void *made)
{
	fi_freeinfo(made);
}

/* A bit for each part that the info has. */
static unsigned parts_of(const struct fi_info *i)
{
	const void *parts[] = { i->src_addr, i->dest_addr, i->tx_attr, i->rx_attr, i->ep_attr, i->domain_attr,
		i->fabric_attr, i->nic, i->domain_attr ? i->domain_attr->name : NULL,
		i->fabric_attr ? i->fabric_attr->name : NULL, i->fabric_attr ? i->fabric_attr->prov_name : NULL };
	unsigned bits = 0;
	size_t at;

	for (at = 0; at < sizeof(parts) / sizeof(*parts); at++)
		bits |= (unsigned) !!parts[at] << at;
	return bits;
}

/* A hash over a list: a partial list has another one. */
static unsigned long shape(const struct fi_info *list)
{
	unsigned long sum = 0;

	for (; list; list = list->next) {
		sum = sum * 31 + parts_of(list);
		if (list->nic) {
			CHECK(list->nic->device_attr && list->nic->bus_attr && list->nic->link_attr);
			sum = sum * 31 + !!list->nic->device_attr->name + !!list->nic->link_attr->address;
		}
	}
	return sum;
}

static unsigned long shapes[4];

static int whole(int which, int ret, struct fi_info *list)
{
	if (!ret && !shapes[which])
		shapes[which] = shape(list);
	CHECK(ret || shapes[which] == shape(list));
	return ret;
}

static int getinfo_all(void **made)
{
	struct fi_info *list = NULL;
	int ret = fi_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, NULL, &list);

	*made = list;
	return whole(0, ret, list);
}

static int getinfo_some(void **made)
{
	struct fi_info *list = NULL;
	int ret = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "7", FI_SOURCE, info, &list);

	*made = list;
	return whole(1, ret, list);
}

static int getinfo_names(void **made)
{
	struct fi_info *list = NULL;
	int ret = fi_getinfo(FI_VERSION(2, 0), NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &list);

	*made = list;
	return whole(2, ret, list);
}

static int dupinfo(void **made)
{
	struct fi_info *copy = fi_dupinfo(info);

	*made = copy;
	return whole(3, copy ? 0 : -FI_ENOMEM, copy);
}

static int allocinfo(void **made)
{
	struct fi_info *fresh = fi_allocinfo();

	*made = fresh;
	if (fresh)
		CHECK((parts_of(fresh) & 0x7f) == 0x7c);
	return fresh ? 0 : -FI_ENOMEM;
}

static int open_fabric(void **made)
{
	return fi_fabric(info->fabric_attr, (struct fid_fabric **) made, NULL);
}

static int open_domain(void **made)
{
	return fi_domain(fabric, info, (struct fid_domain **) made, NULL);
}

static int open_auto(void **made)
{
	int ret;

	info->domain_attr->data_progress = FI_PROGRESS_AUTO;
	ret = fi_domain(fabric, info, (struct fid_domain **) made, NULL);
	info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	return ret;
}

static int open_cq(void **made)
{
	struct fi_cq_attr attr = { .size = (size_t) 1 << 40, .wait_obj = FI_WAIT_FD };

	return fi_cq_open(domain, &attr, (struct fid_cq **) made, NULL);
}

static int open_cq_in_set(void **made)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_SET, .wait_set = waits };

	return fi_cq_open(domain, &attr, (struct fid_cq **) made, NULL);
}

/* A domain with a queue that waits on a condition, which takes a thread. */
static struct fid_domain *monitored;

static int open_monitored(void **made)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	int ret = fi_domain(fabric, info, &monitored, NULL);

	if (ret)
		return ret;
	ret = fi_cq_open(monitored, &attr, (struct fid_cq **) made, NULL);
	if (ret)
		CHECK(fi_close(&monitored->fid) == 0);
	return ret;
}

static void close_monitored(void *made)
{
	close_it(made);
	close_it(monitored);
}

static int open_eq(void **made)
{
	struct fi_eq_attr attr = { .size = (size_t) 1 << 40 };

	return fi_eq_open(fabric, &attr, (struct fid_eq **) made, NULL);
}

static int open_av(void **made)
{
	struct fi_av_attr attr = { .count = (size_t) 1 << 40 };

	return fi_av_open(domain, &attr, (struct fid_av **) made, NULL);
}

/* A file in /dev/shm that ends with the address vector. */
static int open_shared_av(void **made)
{
	struct fi_av_attr attr = { .count = 100, .name = shared_name };

	return fi_av_open(domain, &attr, (struct fid_av **) made, NULL);
}

static int open_cntr(void **made)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };

	return fi_cntr_open(domain, &attr, (struct fid_cntr **) made, NULL);
}

static int open_wait(void **made)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_FD };

	return fi_wait_open(fabric, &attr, (struct fid_wait **) made);
}

static int open_poll(void **made)
{
	return fi_poll_open(domain, NULL, (struct fid_poll **) made);
}

static int open_ep(void **made)
{
	return fi_endpoint(domain, info, (struct fid_ep **) made, NULL);
}

static int open_pep(void **made)
{
	return fi_passive_ep(fabric, info, (struct fid_pep **) made, NULL);
}

static int open_log(void **made)
{
	return fi_open(FI_VERSION(1, 13), "logging", NULL, 0, 0, (struct fid **) made, NULL);
}

/*
 * Inserts addresses into a new table, which grows repeatedly, beyond the library's memory reserve.
 */
static int insert(void **made)
{
	struct fi_av_attr attr = { .count = 1 };
	unsigned char addr[16] = { 2, 0, 0, 7, 10 }, found[16];
	size_t len = sizeof(found);
	struct fid_av *table;
	fi_addr_t handle;
	unsigned i;
	long n = left, before;
	int ret = 0;

	left = 0;
	CHECK(fi_av_open(domain, &attr, &table, NULL) == 0);
	left = n;
	for (i = 0; i < 20000 && ret >= 0; i++) {
		addr[6] = (unsigned char) (i >> 8);
		addr[7] = (unsigned char) i;
		before = failures;
		ret = fi_av_insert(table, addr, 1, &handle, 0, NULL);
		CHECK(handle == (ret == 1 ? i : FI_ADDR_NOTAVAIL));
		/*
		 * A successful call has not used the reserve. (A table that cannot grow in place
		 * may still move.)
		 */
		CHECK(ret < 0 || !persistent || failures == before);
	}
	left = 0;
	/* Earlier entries are unchanged. */
	handle = ret < 0 ? i - 2 : i - 1;
	addr[6] = (unsigned char) (handle >> 8);
	addr[7] = (unsigned char) handle;
	if (ret == 1 || i > 1)
		CHECK(fi_av_lookup(table, handle, found, &len) == 0 && !memcmp(addr, found, 8));
	*made = table;
	if (ret < 0)
		CHECK(fi_close(&table->fid) == 0);
	return ret < 0 ? ret : 0;
}

/*
 * The same by name. An address that cannot be inserted is not in the table, and its error is
 * reported.
 */
static int insert_named(void **made, int (*call)(struct fid_av *table, fi_addr_t *handle, int *error))
{
	struct fi_av_attr attr = { .count = 1 };
	unsigned char found[16];
	size_t len = sizeof(found);
	struct fid_av *table;
	fi_addr_t handle = 7;
	int ret, error = -1;
	long n = left;

	left = 0;
	CHECK(fi_av_open(domain, &attr, &table, NULL) == 0);
	left = n;
	ret = call(table, &handle, &error);
	left = 0;
	CHECK(ret == 1 ? handle == 0 && error == 0 : handle == FI_ADDR_NOTAVAIL && error == -ret);
	CHECK(fi_av_lookup(table, 0, found, &len) == (ret == 1 ? 0 : -FI_EINVAL));
	CHECK(ret < 0 || !persistent || !failures);
	*made = table;
	if (ret < 0)
		CHECK(fi_close(&table->fid) == 0);
	return ret < 0 ? ret : 0;
}

/* A set of so many addresses that its members do not fit into the library's memory reserve. */
static int open_set(void **made)
{
	struct fi_av_attr attr = { .count = 1 << 16 };
	struct fi_av_set_attr set_attr = { .flags = FI_UNIVERSE };
	unsigned char addr[16] = { 2, 0, 0, 7, 10 };
	struct fid_av_set *set;
	struct fid_av *table;
	long n = left;
	size_t i;
	int ret;

	left = 0;
	*made = NULL;
	CHECK(fi_av_open(domain, &attr, &table, NULL) == 0);
	for (i = 0; i < attr.count; i++) {
		addr[6] = (unsigned char) (i >> 8);
		addr[7] = (unsigned char) i;
		CHECK(fi_av_insert(table, addr, 1, NULL, 0, NULL) == 1);
	}
	left = n;
	ret = fi_av_set(table, &set_attr, &set, NULL);
	left = 0;
	if (!ret)
		CHECK(fi_av_set_remove(set, attr.count - 1) == 0 && fi_close(&set->fid) == 0);
	CHECK(fi_close(&table->fid) == 0);
	return ret;
}

static int service(struct fid_av *table, fi_addr_t *handle, int *error)
{
	return fi_av_insertsvc(table, "fi_sockaddr_in://10.0.0.9:99", NULL, handle, FI_SYNC_ERR, error);
}

static int insert_service(void **made)
{
	return insert_named(made, service);
}

static int series(struct fid_av *table, fi_addr_t *handle, int *error)
{
	return fi_av_insertsym(table, "10.0.0.9", 1, "99", 1, handle, FI_SYNC_ERR, error);
}

static int insert_series(void **made)
{
	return insert_named(made, series);
}

static int open_alias(void **made)
{
	int ret = fi_ep_alias(ep, (struct fid_ep **) made, FI_TRANSMIT);

	CHECK(ret || !failures);
	return ret;
}

static int open_profile(void **made)
{
	int ret = fi_profile_open(&ep->fid, 0, (struct fid_profile **) made, NULL);

	CHECK(ret || !failures);
	return ret;
}

/* Enabling uses the library's own memory; its reserve may be enough. */
static int enable(void **made)
{
	struct fid_ep *fresh;
	long n = left, ret;

	left = 0;
	CHECK(fi_endpoint(domain, info, &fresh, NULL) == 0);
	CHECK(fi_ep_bind(fresh, &cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(fresh, &av->fid, 0) == 0);
	left = n;
	ret = fi_enable(fresh);
	left = 0;
	if (ret)
		CHECK(fi_close(&fresh->fid) == 0);
	*made = fresh;
	return (int) ret;
}

/* A scalable endpoint with two contexts of each kind. */
static int open_sep(void **made)
{
	int ret;

	info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 2;
	ret = fi_scalable_ep(domain, info, (struct fid_ep **) made, NULL);
	info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 1;
	return ret;
}

/* The scalable endpoint of the context that is being opened or enabled. */
static struct fid_ep *parent;

static void without_failures(int (*call)(void **made), void **made)
{
	long n = left;

	left = 0;
	CHECK(call(made) == 0);
	left = n;
}

static int open_context(void **made, int (*call)(struct fid_ep **context), int enabled)
{
	struct fid_ep *fresh;
	void *sep;
	int ret;
	long n;

	without_failures(open_sep, &sep);
	parent = sep;
	n = left;
	left = 0;
	CHECK(fi_scalable_ep_bind(parent, &av->fid, 0) == 0);
	if (!enabled)
		left = n;
	ret = call(&fresh);
	left = 0;
	if (!ret && enabled) {
		uint64_t flags = fresh->fid.fclass == FI_CLASS_TX_CTX ? FI_TRANSMIT : FI_RECV;

		CHECK(fi_ep_bind(fresh, &cq->fid, flags) == 0);
		left = n;
		ret = fi_enable(fresh);
		left = 0;
		if (ret)
			CHECK(fi_close(&fresh->fid) == 0);
	}
	if (ret)
		CHECK(fi_close(&parent->fid) == 0);
	*made = fresh;
	return ret;
}

static void close_context(void *made)
{
	close_it(made);
	close_it(parent);
}

static int transmit(struct fid_ep **context)
{
	return fi_tx_context(parent, 1, NULL, context, NULL);
}

static int receive(struct fid_ep **context)
{
	return fi_rx_context(parent, 1, NULL, context, NULL);
}

static int open_tx(void **made)
{
	return open_context(made, transmit, 0);
}

static int open_rx(void **made)
{
	return open_context(made, receive, 0);
}

static int enable_tx(void **made)
{
	return open_context(made, transmit, 1);
}

static int enable_rx(void **made)
{
	return open_context(made, receive, 1);
}

static int open_stx(void **made)
{
	return fi_stx_context(domain, NULL, (struct fid_stx **) made, NULL);
}

static int open_srx(void **made)
{
	return fi_srx_context(domain, NULL, (struct fid_ep **) made, NULL);
}

/* The lowest free descriptor. */
static int free_descriptor(void)
{
	int fd = dup(0);

	CHECK(fd >= 0 && close(fd) == 0);
	return fd;
}

/*
 * Joins a group whose address is one more than the address vector has room for, which takes more
 * memory than the library's reserve. A group that cannot be inserted is not joined.
 */
static int join(void **made)
{
	struct fi_av_attr attr = { .count = 1 << 16 };
	unsigned char addr[16] = { 2, 0, 0, 7, 10 }, group[16] = { 2, 0, 78, 32, 239, 7, 7, 7 };
	struct fid_av *table;
	struct fid_ep *fresh;
	struct fid_mc *mc;
	int fd, ret;
	long n = left;
	size_t i;

	left = 0;
	*made = NULL;
	CHECK(fi_av_open(domain, &attr, &table, NULL) == 0);
	for (i = 0; i < attr.count; i++) {
		addr[6] = (unsigned char) (i >> 8);
		addr[7] = (unsigned char) i;
		CHECK(fi_av_insert(table, addr, 1, NULL, 0, NULL) == 1);
	}
	CHECK(fi_endpoint(domain, info, &fresh, NULL) == 0);
	CHECK(fi_ep_bind(fresh, &cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(fresh, &table->fid, 0) == 0);
	CHECK(fi_ep_bind(fresh, &eq->fid, 0) == 0 && fi_enable(fresh) == 0);
	fd = free_descriptor();
	left = n;
	ret = fi_join(fresh, group, 0, &mc, NULL);
	left = 0;
	CHECK(ret || !persistent || !failures);
	/* Receiving from the group takes a descriptor. */
	CHECK((free_descriptor() == fd) == !!ret);
	if (!ret)
		CHECK(fi_close(&mc->fid) == 0);
	CHECK(fi_close(&fresh->fid) == 0 && fi_close(&table->fid) == 0);
	return ret;
}

static void nothing(void *made)
{
	(void) made;
}

static int params(void **made)
{
	struct fi_param *list = NULL;
	int count, ret = fi_getparams(&list, &count);

	*made = list;
	if (!ret)
		for (int i = 0; i < count; i++)
			CHECK(list[i].name && list[i].help_string);
	return ret;
}

static void free_params(void *made)
{
	fi_freeparams(made);
}

/* The text of the info from fi_tostr_r. */
static char expected[8192];

static int text(void **made)
{
	static char buf[8192];

	*made = NULL;
	if (!fi_tostr_r(buf, sizeof(buf), info, FI_TYPE_INFO))
		return -FI_ENOMEM;
	if (!*expected)
		strcpy(expected, buf);
	CHECK(!strcmp(buf, expected));
	return 0;
}

/*
 * Repeats a call until no allocation fails in it; with `kind` 1 all later allocations fail too.
 * Returns the number of its allocations.
 */
static long exhaust(const struct trial *t, int kind)
{
	long n;

	for (n = 1;; n++) {
		long before = atomic_load(&live), failed;
		void *made = NULL;
		int ret;

		persistent = kind;
		failures = 0;
		left = n;
		ret = t->call(&made);
		left = 0;
		failed = failures;
		if (ret && !(failed && (ret == -FI_ENOMEM || ret == t->besides)))
			fprintf(stderr, "%s: %s after %ld allocations\n", t->name, fi_strerror(-ret), n);
		CHECK(!ret || (failed && (ret == -FI_ENOMEM || ret == t->besides)));
		if (!ret)
			t->undo(made);
		if (atomic_load(&live) != before)
			fprintf(stderr, "%s: %ld blocks are left of allocation %ld\n", t->name, atomic_load(&live) - before, n);
		CHECK(atomic_load(&live) == before);
		if (!failed)
			return n;
	}
}

static void attempt(const struct trial *t)
{
	void *made = NULL;
	int i;

	/* Make lazily created, cached objects now. */
	for (i = 0; i < 3; i++) {
		CHECK(t->call(&made) == 0);
		t->undo(made);
	}
	printf("%s: %ld allocations\n", t->name, exhaust(t, 0));
	exhaust(t, 1);
}

static const struct trial everywhere[] = {
	{ "fi_getinfo", getinfo_all, free_infos, 0 },
	{ "fi_getinfo with hints", getinfo_some, free_infos, 0 },
	{ "fi_getinfo for names", getinfo_names, free_infos, 0 },
	{ "fi_dupinfo", dupinfo, free_infos, 0 },
	{ "fi_allocinfo", allocinfo, free_infos, 0 },
	{ "fi_getparams", params, free_params, 0 },
	{ "fi_tostr_r", text, nothing, 0 },
	{ "fi_open", open_log, close_it, 0 },
	{ "fi_fabric", open_fabric, close_it, 0 },
	{ "fi_domain", open_domain, close_it, 0 },
	/* The system's error if it has no memory for a thread. */
	{ "fi_domain with a thread", open_auto, close_it, -FI_EAGAIN },
	{ "fi_cq_open", open_cq, close_it, 0 },
	{ "fi_cq_open in a wait set", open_cq_in_set, close_it, 0 },
	{ "fi_cq_open with a condition", open_monitored, close_monitored, -FI_EAGAIN },
	{ "fi_eq_open", open_eq, close_it, 0 },
	{ "fi_av_open", open_av, close_it, 0 },
	{ "fi_av_open by name", open_shared_av, close_it, 0 },
	{ "fi_cntr_open", open_cntr, close_it, 0 },
	{ "fi_wait_open", open_wait, close_it, 0 },
	{ "fi_poll_open", open_poll, close_it, 0 },
	{ "fi_endpoint", open_ep, close_it, 0 },
	{ "fi_enable", enable, close_it, 0 },
	{ "fi_ep_alias", open_alias, close_it, 0 },
	{ "fi_profile_open", open_profile, close_it, 0 },
	{ "fi_scalable_ep", open_sep, close_it, 0 },
	{ "fi_tx_context", open_tx, close_context, 0 },
	{ "fi_rx_context", open_rx, close_context, 0 },
	{ "fi_enable of a transmit context", enable_tx, close_context, 0 },
	{ "fi_enable of a receive context", enable_rx, close_context, 0 },
	{ "fi_stx_context", open_stx, close_it, 0 },
	{ "fi_srx_context", open_srx, close_it, 0 },
};

static struct fi_info *find(const char *provider, enum fi_ep_type type)
{
	struct fi_info *hints = fi_allocinfo(), *found;
	int local = !strcmp(provider, "shm");

	hints->ep_attr->type = type;
	hints->caps = type == FI_EP_DGRAM ? FI_MSG | FI_MULTICAST : FI_MSG;
	hints->mode = ~0ULL;
	hints->fabric_attr->prov_name = strdup(provider);
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->mr_mode = ~3;
	CHECK(fi_getinfo(FI_VERSION(2, 0), local ? NULL : "127.0.0.1", NULL, local ? 0 : FI_SOURCE, hints, &found) == 0);
	fi_freeinfo(hints);
	return found;
}

static void open_all(const char *provider, enum fi_ep_type type)
{
	struct fi_wait_attr wait_attr = { .wait_obj = FI_WAIT_FD };
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av_attr = { 0 };

	memset(shapes, 0, sizeof(shapes));
	*expected = 0;
	info = find(provider, type);
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
	CHECK(fi_domain(fabric, info, &domain, NULL) == 0);
	CHECK(fi_av_open(domain, &av_attr, &av, NULL) == 0);
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL) == 0);
	CHECK(fi_wait_open(fabric, &wait_attr, &waits) == 0);
	CHECK(fi_endpoint(domain, info, &ep, NULL) == 0);
}

static void close_all(void)
{
	CHECK(fi_close(&ep->fid) == 0);
	CHECK(fi_close(&av->fid) == 0 && fi_close(&cq->fid) == 0 && fi_close(&waits->fid) == 0);
	CHECK(fi_close(&domain->fid) == 0 && fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);
}

/* A connect request stays until it is read completely and an endpoint takes it. */
struct event {
	struct fi_eq_cm_entry cm;
	char data[64];
};

static struct event event;

static int read_request(void **made)
{
	uint32_t number;
	ssize_t ret = fi_eq_read(eq, &number, &event, sizeof(event), 0);

	*made = NULL;
	if (ret < 0)
		return (int) ret;
	CHECK(number == FI_CONNREQ && ret == (ssize_t) sizeof(event.cm) && event.cm.info && event.cm.info->handle);
	CHECK((parts_of(event.cm.info) & 0x7f) == 0x7f);
	return 0;
}

static int open_for_request(void **made)
{
	return fi_endpoint(domain, event.cm.info, (struct fid_ep **) made, NULL);
}

/* Repeats the call, failing each allocation in turn, until it succeeds; returns its result. */
static void *insist(int (*call)(void **made), int kind)
{
	void *made;
	long n, fired;
	int ret;

	for (n = 1;; n++) {
		persistent = kind;
		failures = 0;
		left = n;
		ret = call(&made);
		left = 0;
		fired = failures;
		if (!ret)
			return made;
		CHECK(fired && ret == -FI_ENOMEM);
	}
}

static void requests(const char *provider)
{
	struct fid_eq *theirs;
	struct fid_ep *asker, *answerer;
	char name[64];
	size_t len = sizeof(name);
	uint32_t number;
	int kind;

	open_all(provider, FI_EP_MSG);
	attempt(&(struct trial) { "fi_passive_ep", open_pep, close_it, 0 });
	attempt(&(struct trial) { "fi_endpoint of a connection", open_ep, close_it, 0 });
	CHECK(fi_eq_open(fabric, NULL, &eq, NULL) == 0 && fi_eq_open(fabric, NULL, &theirs, NULL) == 0);
	CHECK(fi_passive_ep(fabric, info, &pep, NULL) == 0);
	CHECK(fi_pep_bind(pep, &eq->fid, 0) == 0 && fi_listen(pep) == 0);
	CHECK(fi_getname(&pep->fid, name, &len) == 0);
	for (kind = 0; kind < 2; kind++) {
		CHECK(fi_endpoint(domain, info, &asker, NULL) == 0);
		CHECK(fi_ep_bind(asker, &cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_ep_bind(asker, &theirs->fid, 0) == 0);
		CHECK(fi_connect(asker, name, NULL, 0) == 0);
		/* No timeout: the program's run time is limited. */
		while (fi_eq_read(eq, &number, &event, sizeof(event), FI_PEEK) <= 0)
			fi_eq_read(theirs, &number, NULL, 0, FI_PEEK);
		insist(read_request, kind);
		answerer = insist(open_for_request, kind);
		fi_freeinfo(event.cm.info);
		CHECK(fi_ep_bind(answerer, &cq->fid, FI_TRANSMIT | FI_RECV) == 0);
		CHECK(fi_ep_bind(answerer, &eq->fid, 0) == 0 && fi_accept(answerer, NULL, 0) == 0);
		do {
			fi_eq_read(theirs, &number, NULL, 0, FI_PEEK);
		} while (fi_eq_read(eq, &number, &event, sizeof(event), 0) <= 0);
		CHECK(number == FI_CONNECTED);
		CHECK(fi_close(&answerer->fid) == 0 && fi_close(&asker->fid) == 0);
	}
	CHECK(fi_close(&pep->fid) == 0);
	CHECK(fi_close(&eq->fid) == 0 && fi_close(&theirs->fid) == 0);
	close_all();
}

static void memberships(void)
{
	struct fi_eq_attr attr = { 0 };

	open_all("udp", FI_EP_DGRAM);
	CHECK(fi_eq_open(fabric, &attr, &eq, NULL) == 0);
	attempt(&(struct trial) { "fi_join", join, nothing, 0 });
	CHECK(fi_close(&eq->fid) == 0);
	close_all();
}

int main(int argc, char **argv)
{
	const char *provider = getenv("OFI_TEST_PROVIDER");
	long before, round;
	size_t i;

	(void) argc;
	(void) argv;
	snprintf(shared_name, sizeof(shared_name), "nomem-%d", (int) getpid());
	for (round = 0; round < 2; round++) {
		before = atomic_load(&live);
		open_all(provider, FI_EP_RDM);
		for (i = 0; i < sizeof(everywhere) / sizeof(*everywhere); i++)
			attempt(&everywhere[i]);
		if (strcmp(provider, "shm")) {
			attempt(&(struct trial) { "fi_av_insert", insert, close_it, 0 });
			attempt(&(struct trial) { "fi_av_set", open_set, nothing, 0 });
			attempt(&(struct trial) { "fi_av_insertsvc", insert_service, close_it, 0 });
			attempt(&(struct trial) { "fi_av_insertsym", insert_series, close_it, 0 });
		}
		close_all();
		requests(provider);
		/* Once is enough for udp. */
		if (strcmp(provider, "shm"))
			memberships();
		/* The first round has created the cached objects. */
		if (round && atomic_load(&live) != before)
			fprintf(stderr, "%ld blocks are left in the end\n", atomic_load(&live) - before);
		CHECK(!round || atomic_load(&live) == before);
	}
	return 0;
}
