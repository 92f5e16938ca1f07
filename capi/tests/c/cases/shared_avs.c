/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Address vectors that processes share by name (fi_av(3)). */
#define _GNU_SOURCE
#include "case.h"
#include "../process.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* What its processes open. */
static struct want shared = { .caps = FI_TAGGED | FI_SHARED_AV };

/* The name of the case's address vector: its own, and that of the processes it starts. */
static char shared_name[32];

static void choose_name(void)
{
	snprintf(shared_name, sizeof(shared_name), "case-%d", (int) getpid());
}

static int try_open(struct side *s, uint64_t flags, struct fid_av **av)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .name = shared_name, .flags = flags };
	int ret = fi_av_open(s->domain, &attr, av, NULL);

	/* Without map_addr, the library chooses the place. */
	CHECK(ret || attr.map_addr);
	return ret;
}

static struct fid_av *open_shared(struct side *s, uint64_t flags)
{
	struct fid_av *av;

	CHECK(try_open(s, flags, &av) == 0);
	return av;
}

/* The last file of that name. */
static char shared_file[300];

/* How many files of that name there are. */
static int files(void)
{
	DIR *folder = opendir("/dev/shm");
	struct dirent *entry;
	int count = 0;

	CHECK(folder);
	while ((entry = readdir(folder))) {
		const char *last = strrchr(entry->d_name, '.');

		if (strstr(entry->d_name, "ofi-av.") == entry->d_name && !strcmp(last + 1, shared_name)) {
			snprintf(shared_file, sizeof(shared_file), "/dev/shm/%s", entry->d_name);
			count++;
		}
	}
	closedir(folder);
	return count;
}

/* Waits until there is none. Another process that makes an address vector looks at all files, and
 * removes this one if it is closed meanwhile. */
static int gone(void)
{
	double end = seconds() + 10;

	while (files() && seconds() < end)
		sched_yield();
	return !files();
}

/* The address with this number. */
static const void *numbered(struct side *s, int number)
{
	static char name[64];

	if (within_host(&s->want)) {
		memset(name, 0, sizeof(name));
		snprintf(name, sizeof(name), "fi_shm://shared-%d", number);
	} else {
		memcpy(name, (char[16]) { 2, 0, 1, 0, 10, (char) (number >> 16), (char) (number >> 8), (char) number }, 16);
	}
	return name;
}

static fi_addr_t insert_number(struct side *s, struct fid_av *av, int number)
{
	fi_addr_t addr = 77;
	int ret = fi_av_insert(av, numbered(s, number), 1, &addr, 0, NULL);

	return ret == 1 ? addr : FI_ADDR_NOTAVAIL;
}

/* Whether a handle has the address with this number. */
static int is_number(struct side *s, struct fid_av *av, fi_addr_t addr, int number)
{
	char back[64] = { 0 };
	size_t len = sizeof(back);

	return fi_av_lookup(av, addr, back, &len) == 0 && !memcmp(back, numbered(s, number), len);
}

CASE_OURS(shared_av_has_its_handles_at_map_addr)
{
	struct want shared = { .caps = FI_TAGGED | FI_SHARED_AV };
	struct fi_av_attr attr = { .type = FI_AV_TABLE }, again = { .type = FI_AV_TABLE, .flags = FI_READ };
	struct fid_av *av, *reader;
	const fi_addr_t *handles;
	struct side s;
	int i;

	choose_name();
	open_domain(&s, &shared);
	attr.name = again.name = shared_name;
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == 0 && fi_av_open(s.domain, &again, &reader, NULL) == 0);
	for (i = 0; i < 200; i++)
		CHECK(insert_number(&s, av, 1000 + i) == (fi_addr_t) i);
	CHECK(attr.map_addr && again.map_addr && attr.map_addr != again.map_addr);
	handles = again.map_addr;
	for (i = 0; i < 200; i++)
		CHECK(is_number(&s, reader, handles[i], 1000 + i));
	CHECK(fi_close(&reader->fid) == 0 && fi_close(&av->fid) == 0);
	close_side(&s);
	CHECK(gone());
}

CASE_OURS(shared_av_rules)
{
	struct want ids = { .caps = FI_TAGGED | FI_SOURCE | FI_SHARED_AV | FI_AV_USER_ID };
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_READ };
	struct fid_av *av, *reader, *again;
	struct side s;
	fi_addr_t first = 0;
	int err = 0;

	choose_name();
	open_domain(&s, &ids);
	/* For reading it must have a name, and exist. */
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == -FI_EINVAL);
	CHECK(try_open(&s, FI_READ, &av) == -FI_ENOENT && gone());
	attr = (struct fi_av_attr) { .type = FI_AV_TABLE, .name = shared_name, .map_addr = &s };
	CHECK(fi_av_open(s.domain, &attr, &av, NULL) == 0 && attr.map_addr == &s && files() == 1);
	reader = open_shared(&s, FI_READ);
	CHECK(insert_number(&s, av, 1) == 0 && is_number(&s, reader, 0, 1) && !is_number(&s, reader, 1, 1));
	/* A reader cannot write. */
	CHECK(fi_av_insert(reader, numbered(&s, 2), 1, &first, 0, NULL) == -FI_EACCES && first == FI_ADDR_NOTAVAIL);
	CHECK(fi_av_insert(reader, numbered(&s, 2), 1, &first, FI_SYNC_ERR, &err) == -FI_EACCES && err == FI_EACCES);
	first = 0;
	CHECK(fi_av_remove(reader, &first, 1, 0) == -FI_EACCES && is_number(&s, av, 0, 1));
	/* Ids are a matter of one process. */
	REFUSED("user ids of a shared address vector (FI_AV_USER_ID, fi_av_set_user_id)",
		FI_ENOSYS, fi_av_insert(av, numbered(&s, 2), 1, &first, FI_AV_USER_ID, NULL));
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
	REFUSED("user ids of a shared address vector (FI_AV_USER_ID, fi_av_set_user_id)",
		FI_ENOSYS, fi_av_set_user_id(av, 0, 5, 0));
#endif
	REFUSED("user ids of a shared address vector (FI_AV_USER_ID, fi_av_set_user_id)",
		FI_ENOSYS, try_open(&s, FI_AV_USER_ID, &again));
	/* Another name is another address vector. */
	strcat(shared_name, "x");
	CHECK(try_open(&s, FI_READ, &again) == -FI_ENOENT);
	shared_name[strlen(shared_name) - 1] = 0;
	again = open_shared(&s, 0);
	CHECK(is_number(&s, again, 0, 1) && fi_close(&reader->fid) == 0 && files() == 1);
	CHECK(fi_close(&again->fid) == 0 && fi_close(&av->fid) == 0);
	close_side(&s);
}

CASE_OURS(shared_av_last_close_removes)
{
	struct fid_av *one, *other;
	struct side s;

	choose_name();
	open_domain(&s, &shared);
	one = open_shared(&s, 0);
	other = open_shared(&s, FI_READ);
	CHECK(insert_number(&s, one, 5) == 0);
	CHECK(fi_close(&one->fid) == 0 && files() == 1 && is_number(&s, other, 0, 5));
	CHECK(fi_close(&other->fid) == 0 && gone());
	one = open_shared(&s, 0);
	CHECK(!is_number(&s, one, 0, 5) && insert_number(&s, one, 6) == 0);
	CHECK(fi_close(&one->fid) == 0 && gone());
	close_side(&s);
}

/* Inserts three addresses, then removes the second and closes, each when the other process asks. */
static void insert_three(int in, int out)
{
	struct fid_av *av;
	struct side s;
	fi_addr_t addr;
	int i;

	open_domain(&s, &shared);
	av = open_shared(&s, 0);
	for (i = 0; i < 3; i++)
		CHECK(insert_number(&s, av, 10 + i) == (fi_addr_t) i);
	tell(out, "", 1);
	hear(in, &addr, sizeof(addr));
	CHECK(fi_av_remove(av, &addr, 1, 0) == 0);
	tell(out, "", 1);
	hear(in, &addr, sizeof(addr));
	CHECK(is_number(&s, av, addr, 20));
	CHECK(fi_close(&av->fid) == 0);
	close_side(&s);
}

static void exchange_addresses(void)
{
	struct fid_av *av;
	struct side s;
	fi_addr_t addr = 1;
	int to, from;
	pid_t pid;
	char done_;

	choose_name();
	pid = child(insert_three, &to, &from);
	hear(from, &done_, 1);
	open_domain(&s, &shared);
	av = open_shared(&s, 0);
	/* What another process inserted is there, with the same handles. */
	CHECK(is_number(&s, av, 0, 10) && is_number(&s, av, 1, 11) && is_number(&s, av, 2, 12));
	CHECK(insert_number(&s, av, 11) == 1);
	CHECK(fi_av_remove(av, &addr, 1, 0) == 0 && is_number(&s, av, 1, 11));
	tell(to, &addr, sizeof(addr));
	hear(from, &done_, 1);
	CHECK(!is_number(&s, av, 1, 11));
	addr = insert_number(&s, av, 20);
	CHECK(addr == 1);
	tell(to, &addr, sizeof(addr));
	join(pid);
	CHECK(is_number(&s, av, 1, 20) && files() == 1);
	CHECK(fi_close(&av->fid) == 0 && gone());
	close_side(&s);
}

CASE_OURS(shared_av_between_processes)
{
	exchange_addresses();
}

/* An endpoint whose addresses are the shared ones. */
static void open_with(struct side *s, const struct want *w, struct fid_av **av)
{
	open_domain(s, w);
	*av = open_shared(s, 0);
	CHECK(fi_endpoint(s->domain, s->info, &s->ep, s) == 0);
	CHECK(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	CHECK(fi_ep_bind(s->ep, &(*av)->fid, 0) == 0 && fi_enable(s->ep) == 0);
	s->len = sizeof(s->name);
	CHECK(fi_getname(&s->ep->fid, s->name, &s->len) == 0);
}

static void close_with(struct side *s, struct fid_av *av)
{
	CHECK(fi_close(&av->fid) == -FI_EBUSY);
	CHECK(fi_close(&s->ep->fid) == 0 && fi_close(&av->fid) == 0);
	s->ep = NULL;
	close_side(s);
}

/* Sends from `a` to the handle; `b` must get it, from the handle of `a`. */
static void arrives(struct side *a, fi_addr_t to, struct side *b, fi_addr_t from)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	fi_addr_t source = 77;
	double end = seconds() + 10;
	ssize_t ret;
	char in[8];

	POST(fi_recv(b->ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(a->ep, "x", 1, NULL, to, &contexts[1]));
	done(a, b, &contexts[1]);
	while ((ret = fi_cq_readfrom(b->cq, &entry, 1, &source)) == -FI_EAGAIN && seconds() < end)
		CHECK(next(a, NULL, &entry, &err, 0) == -1);
	CHECK(ret == 1 && source == from);
}

static void exchange_messages(void)
{
	struct want w = shared;
	struct fid_av *avs[3];
	struct side a, b, c;
	fi_addr_t addr = 1;

	choose_name();
	w.caps |= FI_SOURCE;
	open_with(&a, &w, &avs[0]);
	open_with(&b, &w, &avs[1]);
	open_with(&c, &w, &avs[2]);
	/* Each inserts its own; all see all. */
	CHECK(fi_av_insert(avs[0], a.name, 1, &addr, 0, NULL) == 1 && addr == 0);
	CHECK(fi_av_insert(avs[1], b.name, 1, &addr, 0, NULL) == 1 && addr == 1);
	arrives(&a, 1, &b, 0);
	arrives(&b, 0, &a, 1);
	/* A handle that another one gave to another address is not that of the old one. */
	CHECK(fi_av_remove(avs[1], &addr, 1, 0) == 0);
	CHECK(fi_send(a.ep, "x", 1, NULL, 1, &contexts[1]) == -FI_EINVAL);
	CHECK(fi_av_insert(avs[2], c.name, 1, &addr, 0, NULL) == 1 && addr == 1);
	arrives(&a, 1, &c, 0);
	arrives(&c, 0, &a, 1);
	close_with(&a, avs[0]);
	close_with(&b, avs[1]);
	close_with(&c, avs[2]);
	CHECK(gone());
}

CASE_OURS(shared_av_messages)
{
	exchange_messages();
}

CASE_OURS(shared_av_of_datagrams)
{
	shared = (struct want) { .type = FI_EP_DGRAM, .caps = FI_SHARED_AV };
	exchange_addresses();
	exchange_messages();
}

/* Another address vector of the same name, as in another process, that gets an address in time. */
struct inserter {
	struct fid_av *av;
	struct side *of;
	pthread_t thread;
};

static void *insert_later(void *arg)
{
	struct inserter *i = arg;

	poll(NULL, 0, 50);
	CHECK(fi_av_insert(i->av, i->of->name, 1, NULL, 0, NULL) == 1);
	return NULL;
}

CASE_OURS(shared_av_awaited_insertion)
{
	struct want w = { .caps = FI_TAGGED | FI_SOURCE | FI_SHARED_AV | FI_DIRECTED_RECV,
		.wait = FI_WAIT_UNSPEC };
	struct fid_av *avs[2];
	struct side a, b;
	struct inserter later;
	struct fi_cq_tagged_entry entry;
	fi_addr_t addr;
	int blocks;
	char in[8];

	choose_name();
	for (blocks = 0; blocks < 2; blocks++) {
		open_with(&a, &w, &avs[0]);
		open_with(&b, &w, &avs[1]);
		CHECK(fi_av_insert(avs[0], a.name, 1, &addr, 0, NULL) == 1 && addr == 0);
		/* The message of a sender that has no handle yet is there. */
		POST(fi_sendmsg(b.ep, &(struct fi_msg) { .msg_iov = &(struct iovec) { "x", 1 }, .iov_count = 1, .addr = 0,
			.context = &contexts[1] }, FI_COMPLETION | FI_TRANSMIT_COMPLETE));
		done(&b, &a, &contexts[1]);
		/* A receive for the handle that the sender is going to have. */
		POST(fi_recv(a.ep, in, 8, NULL, 1, &contexts[0]));
		quiet(&a, NULL);
		if (blocks) {
			later = (struct inserter) { .av = avs[1], .of = &b };
			CHECK(pthread_create(&later.thread, NULL, insert_later, &later) == 0);
			CHECK(fi_cq_sread(a.cq, &entry, 1, NULL, 20000) == 1 && entry.op_context == &contexts[0]);
			CHECK(pthread_join(later.thread, NULL) == 0);
		} else {
			CHECK(fi_av_insert(avs[1], b.name, 1, &addr, 0, NULL) == 1 && addr == 1);
			done(&a, NULL, &contexts[0]);
		}
		close_with(&a, avs[0]);
		close_with(&b, avs[1]);
	}
}

/* Inserts addresses and removes every third again, until it is killed. */
static void insert_for_ever(int in, int out)
{
	struct fid_av *av;
	struct side s;
	fi_addr_t addr;
	int i;

	(void) in;
	open_domain(&s, &shared);
	av = open_shared(&s, 0);
	for (i = 0; ; i = (i + 1) % 4000) {
		addr = insert_number(&s, av, i);
		CHECK(addr != FI_ADDR_NOTAVAIL);
		if (i % 3 == 0)
			CHECK(fi_av_remove(av, &addr, 1, 0) == 0);
		if (i == 500)
			tell(out, "", 1);
	}
}

CASE_OURS(shared_av_of_a_killed_writer)
{
	struct fid_av *av;
	struct side s;
	int to[2], from[2], i, round;
	pid_t pids[2];
	fi_addr_t addr;
	char done_;

	choose_name();
	for (i = 0; i < 2; i++)
		pids[i] = child(insert_for_ever, &to[i], &from[i]);
	open_domain(&s, &shared);
	av = open_shared(&s, 0);
	for (i = 0; i < 2; i++)
		hear(from[i], &done_, 1);
	for (round = 0; round < 20; round++) {
		/* One is killed amid its insertions and another takes its place. */
		i = round % 2;
		CHECK(kill(pids[i], SIGKILL) == 0 && waitpid(pids[i], NULL, 0) == pids[i]);
		close(to[i]);
		close(from[i]);
		/* No lock is left, and what is there can be found. */
		addr = insert_number(&s, av, 5000 + round);
		CHECK(addr != FI_ADDR_NOTAVAIL && is_number(&s, av, addr, 5000 + round));
		CHECK(insert_number(&s, av, 5000 + round) == addr);
		pids[i] = child(insert_for_ever, &to[i], &from[i]);
		hear(from[i], &done_, 1);
	}
	for (i = 0; i < 2; i++)
		CHECK(kill(pids[i], SIGKILL) == 0 && waitpid(pids[i], NULL, 0) == pids[i]);
	/* Every address is there once: an insertion finds it where a look-up does. */
	for (i = 0; i < 4020; i++) {
		int number = i < 4000 ? i : 1000 + i;

		addr = insert_number(&s, av, number);
		CHECK(addr != FI_ADDR_NOTAVAIL && is_number(&s, av, addr, number));
		CHECK(addr < 4020);
	}
	CHECK(fi_close(&av->fid) == 0 && gone());
	close_side(&s);
}

CASE_OURS(shared_av_left_behind)
{
	struct fid_av *av;
	struct side s;
	int to, from, i;
	pid_t pid;
	char done_;

	choose_name();
	for (i = 0; i < 2; i++) {
		pid = child(insert_for_ever, &to, &from);
		hear(from, &done_, 1);
		CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
		/* Others that make address vectors may have removed its file by now. */
		CHECK(files() <= 1);
		open_domain(&s, &shared);
		/* It ended with its last process, although its file is still there. */
		if (i == 0) {
			CHECK(try_open(&s, FI_READ, &av) == -FI_ENOENT && gone());
		} else {
			av = open_shared(&s, 0);
			CHECK(!is_number(&s, av, 0, 1) && insert_number(&s, av, 9) == 0);
			CHECK(fi_close(&av->fid) == 0 && gone());
		}
		close_side(&s);
	}
}

static struct fid_av *inherited;

static void close_inherited(int in, int out)
{
	char back[64];
	size_t len = sizeof(back);

	(void) in;
	(void) out;
	CHECK(fi_av_lookup(inherited, 0, back, &len) == -FI_EOPBADSTATE);
	CHECK(fi_close(&inherited->fid) == 0);
}

CASE_OURS(shared_av_in_a_forked_child)
{
	struct fid_av *reader;
	struct side s;
	int to, from;

	choose_name();
	open_domain(&s, &shared);
	inherited = open_shared(&s, 0);
	CHECK(insert_number(&s, inherited, 1) == 0);
	join(child(close_inherited, &to, &from));
	/* It is the parent's alone: the child's end has not ended it. */
	reader = open_shared(&s, FI_READ);
	CHECK(files() == 1 && is_number(&s, reader, 0, 1));
	CHECK(insert_number(&s, inherited, 2) == 1 && is_number(&s, reader, 1, 2));
	CHECK(fi_close(&reader->fid) == 0 && fi_close(&inherited->fid) == 0 && gone());
	close_side(&s);
}

CASE_OURS(shared_av_with_events)
{
	struct fid_av *av;
	struct side s;
	struct fi_eq_entry entry;
	uint32_t number;

	choose_name();
	open_domain(&s, &shared);
	av = open_shared(&s, FI_EVENT);
	CHECK(fi_av_bind(av, &s.eq->fid, 0) == 0);
	CHECK(fi_av_insert(av, numbered(&s, 1), 1, NULL, 0, &s) == 0);
	CHECK(event_of(&s, NULL, &number, &entry, sizeof(entry)) == sizeof(entry));
	CHECK(number == FI_AV_COMPLETE && entry.data == 1 && entry.context == &s && is_number(&s, av, 0, 1));
	CHECK(fi_close(&av->fid) == 0);
	close_side(&s);
}

struct remover {
	struct fid_av *av;
	int ret;
	pthread_t thread;
};

static void *remove_two(void *arg)
{
	struct remover *r = arg;

	r->ret = fi_av_remove(r->av, (fi_addr_t[2]) { 0, 1 }, 2, 0);
	return NULL;
}

/* A process that is stopped while it changes the address vector has the lock of its file. */
CASE_OURS(shared_av_of_a_stopped_writer)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1 };
	struct fid_av *av;
	struct side s;
	struct remover r;
	fi_addr_t addrs[3];
	int errors[3], fd, i;
	char names[3][64];
	size_t len;
	double begin;

	choose_name();
	open_domain(&s, &RDM);
	av = open_shared(&s, 0);
	CHECK(insert_number(&s, av, 1) == 0 && insert_number(&s, av, 2) == 1 && files() == 1);
	fd = open(shared_file, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0);
	len = within_host(&s.want) ? strlen(numbered(&s, 3)) + 1 : 16;
	for (i = 0; i < 3; i++)
		memcpy((char *) names + i * len, numbered(&s, 3 + i), len);
	begin = seconds();
	r = (struct remover) { .av = av };
	CHECK(pthread_create(&r.thread, NULL, remove_two, &r) == 0);
	/* Only the first address waits for the other process. */
	CHECK(fi_av_insert(av, names, 3, addrs, FI_SYNC_ERR, errors) == -FI_EAGAIN);
	CHECK(pthread_join(r.thread, NULL) == 0 && r.ret == -FI_EAGAIN && seconds() - begin < 9);
	CHECK(errors[0] == FI_EAGAIN && errors[1] == FI_ECANCELED && errors[2] == FI_ECANCELED);
	CHECK(addrs[0] == FI_ADDR_NOTAVAIL && addrs[1] == FI_ADDR_NOTAVAIL && addrs[2] == FI_ADDR_NOTAVAIL);
	/* It can be read meanwhile, and nothing of it has changed. */
	CHECK(is_number(&s, av, 0, 1) && is_number(&s, av, 1, 2) && !is_number(&s, av, 2, 3));
	close(fd);
	CHECK(fi_av_insert(av, names, 3, addrs, 0, NULL) == 3 && addrs[2] == 4);
	CHECK(fi_close(&av->fid) == 0);
	close_side(&s);
}

CASE_OURS(shared_av_whose_file_was_removed)
{
	struct fid_av *av, *other;
	struct side s;
	fi_addr_t addr = 0;

	choose_name();
	open_domain(&s, &RDM);
	av = open_shared(&s, 0);
	CHECK(insert_number(&s, av, 1) == 0 && files() == 1 && unlink(shared_file) == 0);
	/* Who opens the name from now on has another one: a change would be lost on them. */
	other = open_shared(&s, 0);
	CHECK(!is_number(&s, other, 0, 1) && insert_number(&s, other, 2) == 0);
	CHECK(fi_av_insert(av, numbered(&s, 3), 1, &addr, 0, NULL) == -ESTALE && addr == FI_ADDR_NOTAVAIL);
	addr = 0;
	CHECK(fi_av_remove(av, &addr, 1, 0) == -ESTALE && is_number(&s, av, 0, 1));
	CHECK(fi_close(&av->fid) == 0 && files() == 1 && is_number(&s, other, 0, 2));
	CHECK(fi_close(&other->fid) == 0);
	close_side(&s);
}

/* A program that locks its memory pays for the addresses, not for all that there might be. */
CASE_OURS(shared_av_in_locked_memory)
{
	struct fid_av *av;
	struct stat stat_;
	struct side s;
	void *all;

	choose_name();
	open_domain(&s, &RDM);
	CHECK(mlockall(MCL_FUTURE) == 0);
	all = mmap(NULL, 512 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		SKIP("so much memory may not be locked");
	CHECK(munmap(all, 512 << 20) == 0);
	av = open_shared(&s, 0);
	CHECK(insert_number(&s, av, 1) == 0 && is_number(&s, av, 0, 1));
	CHECK(files() == 1 && stat(shared_file, &stat_) == 0 && stat_.st_blocks * 512 < 4 << 20);
	CHECK(munlockall() == 0 && fi_close(&av->fid) == 0);
	close_side(&s);
}
