/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Two copies of the library in one process, as when two of its components bring their own: an
 * endpoint of each, messages between them, a fork, and unloading one. The program is linked with
 * neither.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include "side.h"

enum { ROUNDS = 200, LONG = 600000 };

struct copy {
	void *lib;
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
	void (*freeinfo)(struct fi_info *);
	struct fi_info *(*dupinfo)(const struct fi_info *);
	int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	const char *(*strerror)(int);
	char *(*tostr)(const void *, enum fi_type);
	struct side side;
	fi_addr_t to_other;
};

static struct copy copies[2];
/* The copy that the calls below use. */
static struct copy *now;

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	struct fi_info **info)
{
	return now->getinfo(version, node, service, flags, hints, info);
}

void fi_freeinfo(struct fi_info *info)
{
	now->freeinfo(info);
}

struct fi_info *fi_dupinfo(const struct fi_info *info)
{
	return now->dupinfo(info);
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	return now->fabric(attr, fabric, context);
}

const char *fi_strerror(int number)
{
	return now->strerror(number);
}

static void *symbol(struct copy *c, const char *name, const char *node)
{
	void *found = dlvsym(c->lib, name, node);

	if (!found)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(found);
	return found;
}

static void load(struct copy *c, const char *path)
{
	c->lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!c->lib)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(c->lib);
	c->getinfo = symbol(c, "fi_getinfo", "FABRIC_1.9");
	c->freeinfo = symbol(c, "fi_freeinfo", "FABRIC_1.9");
	c->dupinfo = symbol(c, "fi_dupinfo", "FABRIC_1.9");
	c->fabric = symbol(c, "fi_fabric", "FABRIC_1.1");
	c->strerror = symbol(c, "fi_strerror", "FABRIC_1.0");
	c->tostr = symbol(c, "fi_tostr", "FABRIC_1.0");
}

/* Copies the library's file. */
static void copy_file(const char *from, char *to)
{
	FILE *in = fopen(from, "r"), *out;
	char buf[65536];
	size_t len;
	int fd = mkstemp(to);

	CHECK(in && fd >= 0);
	out = fdopen(fd, "w");
	while ((len = fread(buf, 1, sizeof(buf), in)) > 0)
		CHECK(fwrite(buf, 1, len, out) == len);
	CHECK(fclose(out) == 0 && fclose(in) == 0);
}

static void open_both(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		now = &copies[i];
		open_rdm(&now->side, i ? FI_WAIT_UNSPEC : FI_WAIT_FD);
	}
	for (i = 0; i < 2; i++)
		copies[i].to_other = insert(&copies[i].side, copies[!i].side.name);
}

static void close_both(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		now = &copies[i];
		close_side(&now->side);
	}
}

/* Messages both ways, short and long. */
static void exchange(int rounds)
{
	static char out[LONG], in[LONG];
	int round, ctx[2];

	for (round = 0; round < rounds; round++) {
		struct copy *from = &copies[round & 1], *to = &copies[!(round & 1)];
		size_t len = round % 50 == 49 || round % 50 == 48 ? LONG : 8;

		memset(out, round, len);
		memset(in, ~round, len);
		CHECK(fi_recv(to->side.ep, in, len, NULL, FI_ADDR_UNSPEC, &ctx[0]) == 0);
		while (fi_send(from->side.ep, out, len, NULL, from->to_other, &ctx[1]) == -FI_EAGAIN)
			fi_cq_read(from->side.cq, NULL, 0);
		CHECK(done(&to->side, &from->side, &ctx[0], FI_RECV | FI_MSG).len == len);
		done(&from->side, &to->side, &ctx[1], FI_SEND | FI_MSG);
		CHECK(!memcmp(in, out, len));
	}
}

int main(void)
{
	struct link_map *map;
	char path[] = "/tmp/libfabric-copy-XXXXXX";
	pid_t child;
	int status, i;

	load(&copies[0], "libfabric.so.1");
	CHECK(dlinfo(copies[0].lib, RTLD_DI_LINKMAP, &map) == 0);
	copy_file(map->l_name, path);
	load(&copies[1], path);
	CHECK(unlink(path) == 0);
	CHECK(copies[0].getinfo != copies[1].getinfo);
	open_both();
	exchange(ROUNDS);
	/* One copy refuses objects of the other. */
	CHECK(fi_ep_bind(copies[0].side.ep, &copies[1].side.cq->fid, FI_SEND) == -FI_EINVAL);
	CHECK(fi_ep_bind(copies[0].side.ep, &copies[1].side.cq->fid, 0) == -FI_EINVAL);
	child = fork();
	if (!child) {
		alarm(30);
		/* Both copies detect the fork. */
		for (i = 0; i < 2; i++) {
			struct side *s = &copies[i].side;

			now = &copies[i];
			CHECK(fi_send(s->ep, "x", 1, NULL, 0, NULL) == -FI_EOPBADSTATE);
			CHECK(fi_cq_read(s->cq, NULL, 0) == -FI_EOPBADSTATE);
			CHECK(fi_close(&s->ep->fid) == 0 && fi_close(&s->av->fid) == 0 && fi_close(&s->cq->fid) == 0);
			CHECK(fi_close(&s->eq->fid) == 0 && fi_close(&s->domain->fid) == 0 && fi_close(&s->fabric->fid) == 0);
			fi_freeinfo(s->info);
		}
		open_both();
		exchange(10);
		close_both();
		exit(0);
	}
	exchange(ROUNDS);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	exchange(ROUNDS);
	/* Unload one copy, keep the other. */
	now = &copies[0];
	close_side(&now->side);
	CHECK(dlclose(now->lib) == 0);
	load(now, "libfabric.so.1");
	open_rdm(&now->side, FI_WAIT_FD);
	now->to_other = insert(&now->side, copies[1].side.name);
	copies[1].to_other = insert(&copies[1].side, now->side.name);
	exchange(ROUNDS);
	close_both();
	for (i = 0; i < 2; i++)
		CHECK(strstr(copies[i].tostr(&(uint64_t) { FI_MSG }, FI_TYPE_CAPS), "FI_MSG"));
	return 0;
}
