/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Registered memory (fi_mr(3)). */
#include "sided.h"
#include <sys/mman.h>

static char there[1 << 14];

static int attempt(struct side *s, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key,
	uint64_t flags)
{
	struct fid_mr *mr;
	int ret = fi_mr_reg(s->domain, buf, len, access, offset, key, flags, &mr, NULL);

	if (!ret)
		CHECK(fi_close(&mr->fid) == 0);
	return ret;
}

/* A pair whose infos have this mode. */
static void meet_in_mode(struct pair *p, int mode)
{
	struct want w = SIDED;
	int i;

	for (i = 0; i < 2; i++) {
		struct side *s = i ? &p->b : &p->a;
		struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
		struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
		struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };

		memset(s, 0, sizeof(*s));
		s->want = w;
		sides[i] = s;
		s->info = find(&w);
		s->info->domain_attr->mr_mode = mode;
		CHECK(fi_fabric(s->info->fabric_attr, &s->fabric, NULL) == 0);
		CHECK(fi_domain(s->fabric, s->info, &s->domain, NULL) == 0);
		CHECK(fi_eq_open(s->fabric, &eq_attr, &s->eq, NULL) == 0);
		CHECK(fi_cq_open(s->domain, &cq_attr, &s->cq, NULL) == 0);
		CHECK(fi_av_open(s->domain, &av_attr, &s->av, NULL) == 0);
		open_ep(s, s->info);
	}
	p->to_b = insert(&p->a, p->b.name);
	p->to_a = insert(&p->b, p->a.name);
}

CASE(mr_registers_and_closes)
{
	struct fi_mr_attr attr = { .access = FI_REMOTE_READ, .iov_count = 2, .context = &contexts[2] };
	struct iovec iov[2] = { { there, 100 }, { there + 500, 100 } };
	struct fid_mr *mr;
	struct side s;

	open_side(&s, &SIDED);
	CHECK(fi_mr_reg(s.domain, there, 100, FI_REMOTE_WRITE, 0, next_key(), 0, &mr, &contexts[1]) == 0);
	CHECK(mr->fid.fclass == FI_CLASS_MR && mr->fid.context == &contexts[1]);
	CHECK(fi_mr_desc(mr) == mr->mem_desc && fi_mr_key(mr) == mr->key && mr->key != FI_KEY_NOTAVAIL);
	CHECK(fi_close(&s.domain->fid) == -FI_EBUSY);
	CHECK(fi_close(&mr->fid) == 0);
	CHECK(fi_mr_regv(s.domain, iov, 2, FI_REMOTE_WRITE, 0, next_key(), 0, &mr, &contexts[1]) == 0);
	CHECK(fi_close(&mr->fid) == 0);
	attr.mr_iov = iov;
	attr.requested_key = next_key();
	CHECK(fi_mr_regattr(s.domain, &attr, 0, &mr) == 0);
	CHECK(mr->fid.context == &contexts[2]);
	/* The caller may reuse its vector after the call. */
	memset(iov, 0, sizeof(iov));
	CHECK(fi_close(&mr->fid) == 0);
	close_side(&s);
}

CASE(mr_bad_arguments_are_refused)
{
	struct fi_mr_attr attr = { .access = FI_REMOTE_READ };
	struct iovec iov[1025] = { { there, 8 } };
	struct fid_mr *mr;
	struct side s;

	open_side(&s, &SIDED);
	CHECK(attempt(&s, there, 0, FI_REMOTE_READ, 0, next_key(), 0) < 0);
	CHECK(fi_mr_regattr(s.domain, NULL, 0, &mr) == -FI_EINVAL);
	CHECK(fi_mr_regattr(s.domain, &attr, 0, &mr) == -FI_EINVAL);
	CHECK(s.info->domain_attr->mr_iov_limit >= 1 && s.info->domain_attr->mr_iov_limit < ARRAY(iov));
	CHECK(fi_mr_regv(s.domain, iov, s.info->domain_attr->mr_iov_limit + 1, FI_REMOTE_READ, 0, next_key(), 0, &mr, NULL) < 0);
	CHECK(attempt(&s, there, 8, FI_REMOTE_READ, 0, next_key(), 1ULL << 62) == -FI_EBADFLAGS);
	close_side(&s);
}

CASE_OURS(mr_bad_arguments_have_their_errors)
{
	struct iovec iov = { there, 8 };
	struct fi_mr_attr attr = { .mr_iov = &iov, .iov_count = 1, .access = FI_REMOTE_READ };
	struct fid_mr *mr;
	struct side s;

	open_side(&s, &SIDED);
	CHECK(attempt(&s, there, 0, FI_REMOTE_READ, 0, 1, 0) == -FI_EINVAL);
	CHECK(attempt(&s, there, 8, FI_REMOTE_READ, 1, 1, 0) == -FI_EINVAL);
	CHECK(attempt(&s, there, 8, 1ULL << 40, 0, 1, 0) == -FI_EINVAL);
	CHECK(attempt(&s, there, 8, FI_REMOTE_READ, 0, FI_KEY_NOTAVAIL, 0) == -FI_EKEYREJECTED);
	CHECK(attempt(&s, (void *) 16, SIZE_MAX, FI_REMOTE_READ, 0, 1, 0) == -FI_EINVAL);
	CHECK(fi_mr_regv(s.domain, NULL, 1, FI_REMOTE_READ, 0, 1, 0, &mr, NULL) == -FI_EINVAL);
	CHECK(fi_mr_regv(s.domain, &iov, 0, FI_REMOTE_READ, 0, 1, 0, &mr, NULL) == -FI_EINVAL);
	CHECK(fi_mr_reg(s.domain, there, 8, FI_REMOTE_READ, 0, 1, 0, NULL, NULL) == -FI_EINVAL);
	/* 1 << 40 is FI_MR_DMABUF, 1 << 41 FI_MR_SINGLE_USE. */
	REFUSED("FI_MR_DMABUF, FI_MR_SINGLE_USE (fi_mr_regattr)",
		FI_EBADFLAGS, attempt(&s, there, 8, FI_REMOTE_READ, 0, 1, 1ULL << 40));
	REFUSED("FI_MR_DMABUF, FI_MR_SINGLE_USE (fi_mr_regattr)",
		FI_EBADFLAGS, attempt(&s, there, 8, FI_REMOTE_READ, 0, 1, 1ULL << 41));
	/* Memory of a device is refused. */
	attr.iface = 1;
	REFUSED("fi_mr_regattr for memory of a device", FI_ENOSYS, fi_mr_regattr(s.domain, &attr, 0, &mr));
	/* Without FI_HMEM the field is ignored. */
	attr.iface = 77;
	CHECK(fi_mr_regattr(s.domain, &attr, 0, &mr) == 0);
	CHECK(fi_close(&mr->fid) == 0);
	attr.iface = 0;
	attr.auth_key_size = 4;
	CHECK(fi_mr_regattr(s.domain, &attr, 0, &mr) == -FI_EINVAL);
	close_side(&s);
}

CASE(mr_keys_of_the_application)
{
	const uint64_t keys[] = { 0, 1, 4711, (uintptr_t) there, UINT64_MAX - 1 };
	struct fid_mr *mr, *other;
	struct side s;
	size_t i;

	open_side(&s, &SIDED);
	if (s.info->domain_attr->mr_mode)
		SKIP("the provider chooses keys");
	for (i = 0; i < ARRAY(keys); i++) {
		if (s.info->domain_attr->mr_key_size < 8 && keys[i] >> 32)
			continue;
		CHECK(fi_mr_reg(s.domain, there, 8, FI_REMOTE_READ, 0, keys[i], 0, &mr, NULL) == 0);
		CHECK(fi_mr_key(mr) == keys[i]);
		CHECK(fi_mr_reg(s.domain, there, 8, FI_REMOTE_READ, 0, keys[i], 0, &other, NULL) == -FI_ENOKEY);
		CHECK(fi_close(&mr->fid) == 0);
		CHECK(fi_mr_reg(s.domain, there, 8, FI_REMOTE_READ, 0, keys[i], 0, &mr, NULL) == 0);
		CHECK(fi_close(&mr->fid) == 0);
	}
	close_side(&s);
}

/* The domains of a side and the second one of the same name have their own keys. */
CASE_OURS(mr_keys_belong_to_a_domain)
{
	struct fid_mr *mr, *other;
	struct fid_domain *second;
	struct pair p;

	memset(there, 0, sizeof(there));
	meet(&p, &SIDED);
	CHECK(fi_domain(p.b.fabric, p.b.info, &second, NULL) == 0);
	CHECK(fi_mr_reg(p.b.domain, there, 8, FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL) == 0 && fi_mr_key(mr) == 5);
	CHECK(fi_mr_reg(second, there + 8, 8, FI_REMOTE_WRITE, 0, 5, 0, &other, NULL) == 0 && fi_mr_key(other) == 5);
	write_works(&p, 0, 5);
	arrives(there, "written", 8);
	CHECK(!there[8]);
	/* The key is gone in one domain and stays in the other. */
	CHECK(fi_close(&mr->fid) == 0);
	write_fails(&p, 0, 5, FI_EINVAL);
	CHECK(fi_mr_reg(second, there, 8, FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL) == -FI_ENOKEY);
	CHECK(fi_close(&other->fid) == 0 && fi_close(&second->fid) == 0);
	part(&p);
}

/* As many as mr_cnt promises, but not more than a test has time for. */
CASE(mr_cnt_regions_can_be_registered)
{
	struct fid_mr **all;
	struct side s;
	size_t count, i;

	open_side(&s, &SIDED);
	count = s.info->domain_attr->mr_cnt;
	if (!count)
		SKIP("the provider promises no regions");
	count = count < 1 << 16 ? count : 1 << 16;
	all = malloc(count * sizeof(*all));
	CHECK(all);
	for (i = 0; i < count; i++)
		CHECK(fi_mr_reg(s.domain, there, sizeof(there), FI_REMOTE_READ, 0, i, 0, &all[i], NULL) == 0);
	for (i = 0; i < count; i++)
		CHECK(fi_close(&all[i]->fid) == 0);
	free(all);
	close_side(&s);
}

CASE_OURS(mr_without_remote_rights_has_no_key)
{
	struct fid_mr *mr, *other;
	struct side s;

	open_side(&s, &SIDED);
	CHECK(fi_mr_reg(s.domain, there, 8, FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, 7, 0, &mr, NULL) == 0);
	CHECK(fi_mr_key(mr) == FI_KEY_NOTAVAIL && fi_mr_desc(mr));
	CHECK(fi_mr_reg(s.domain, there, 8, FI_COLLECTIVE, 0, 7, 0, &other, NULL) == 0);
	CHECK(fi_close(&mr->fid) == 0 && fi_close(&other->fid) == 0);
	close_side(&s);
}

CASE_OURS(mr_modes_of_the_info)
{
	const int modes[] = { 0, FI_MR_SCALABLE, FI_MR_BASIC, FI_MR_VIRT_ADDR, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR | FI_MR_PROV_KEY };
	struct pair p;
	struct fid_mr *mr, *same;
	size_t i;

	for (i = 0; i < ARRAY(modes); i++) {
		int basic = modes[i] == FI_MR_BASIC, scalable = modes[i] == FI_MR_SCALABLE;
		int virtual = basic || (!scalable && modes[i] & FI_MR_VIRT_ADDR);
		int chosen = basic || (!scalable && modes[i] & FI_MR_PROV_KEY);
		uint64_t base = virtual ? (uintptr_t) (there + 64) : 0;

		memset(there, 0, sizeof(there));
		meet_in_mode(&p, modes[i]);
		CHECK(fi_mr_reg(p.b.domain, there + 64, 64, FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL) == 0);
		CHECK(chosen ? fi_mr_key(mr) != 5 : fi_mr_key(mr) == 5);
		if (chosen) {
			CHECK(fi_mr_reg(p.b.domain, there, 64, FI_REMOTE_WRITE, 0, 5, 0, &same, NULL) == 0);
			CHECK(fi_mr_key(same) != fi_mr_key(mr));
			CHECK(fi_close(&same->fid) == 0);
		}
		write_works(&p, base + 8, fi_mr_key(mr));
		arrives(there + 72, "written", 8);
		write_fails(&p, base + 60, fi_mr_key(mr), FI_EACCES);
		write_fails(&p, base - 8, fi_mr_key(mr), FI_EACCES);
		CHECK(fi_close(&mr->fid) == 0);
		part(&p);
	}
}

CASE(mr_mode_is_a_permission)
{
	const int modes[] = { 0, FI_MR_BASIC, FI_MR_SCALABLE, ~3, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY };
	struct fi_info *info;
	size_t i;

	for (i = 0; i < ARRAY(modes); i++) {
		struct fi_info *hints = hints_for(&SIDED);
		int local = within_host(&SIDED);

		hints->domain_attr->mr_mode = modes[i];
		if (fi_getinfo(API, local ? NULL : "127.0.0.1", NULL, local ? 0 : FI_SOURCE, hints, &info) == 0) {
			CHECK((info->domain_attr->mr_mode & ~modes[i]) == 0);
			CHECK(modes[i] != FI_MR_BASIC || info->domain_attr->mr_mode == FI_MR_BASIC);
			fi_freeinfo(info);
		} else {
			CHECK(modes[i] != ~3);
		}
		fi_freeinfo(hints);
	}
}

CASE(mr_offsets_span_several_buffers)
{
	struct iovec iov[3] = { { there, 4 }, { there + 1000, 2 }, { there + 2000, 100 } };
	struct pair p;
	struct fid_mr *mr;

	memset(there, 0, sizeof(there));
	meet(&p, &SIDED);
	if (is_virtual(&p.b))
		SKIP("virtual addresses");
	CHECK(fi_mr_regv(p.b.domain, iov, 3, EVERY_RIGHT, 0, next_key(), 0, &mr, NULL) == 0);
	write_works(&p, 1, fi_mr_key(mr));
	arrives(there + 2000, "en", 3);
	CHECK(!memcmp(there, "\0wri", 4) && !memcmp(there + 1000, "tt", 3) && !there[4]);
	CHECK(fi_close(&mr->fid) == 0);
	part(&p);
}

CASE(mr_rights_and_overlaps)
{
	struct pair p;
	struct region readable, writable;

	memset(there, 0, sizeof(there));
	meet(&p, &SIDED);
	expose_as(&p.b, &readable, there, 64, FI_REMOTE_READ);
	expose_as(&p.b, &writable, there + 32, 64, FI_REMOTE_WRITE);
	CHECK(readable.key != writable.key);
	write_works(&p, writable.addr, writable.key);
	arrives(there + 32, "written", 8);
	read_works(&p, readable.addr + 32, readable.key);
	hide(&readable);
	hide(&writable);
	part(&p);
}

CASE_OURS(mr_closed_is_inaccessible)
{
	struct pair p;
	struct region r;

	meet(&p, &SIDED);
	expose(&p.b, &r, there, 64);
	write_works(&p, r.addr, r.key);
	hide(&r);
	write_fails(&p, r.addr, r.key, FI_EINVAL);
	expose(&p.b, &r, there, 64);
	write_works(&p, r.addr, r.key);
	hide(&r);
	part(&p);
}

/* A region of the whole address space: access to unmapped memory is an error of the initiator. */
CASE_OURS(mr_of_the_whole_address_space)
{
	const struct { void *base; size_t len; } all[] = { { NULL, SIZE_MAX }, { (void *) 0, UINT64_MAX } };
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pair p;
	struct fid_mr *mr;
	uint64_t one = 1;
	size_t i;

	CHECK(page != MAP_FAILED);
	for (i = 0; i < ARRAY(all); i++) {
		meet(&p, &SIDED);
		CHECK(fi_mr_reg(p.b.domain, all[i].base, all[i].len, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL) == 0);
		memset(there, 0, 8);
		write_works(&p, (uintptr_t) there, 0);
		arrives(there, "written", 8);
		write_fails(&p, 8, 0, FI_EFAULT);
		read_fails(&p, 8, 0, FI_EFAULT);
		CHECK(fi_close(&mr->fid) == 0);
		part(&p);
	}
	meet(&p, &SIDED);
	CHECK(munmap(page, 4096) == 0);
	CHECK(fi_mr_reg(p.b.domain, page, 4096, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL) == 0);
	write_fails(&p, 0, 0, FI_EFAULT);
	POST(fi_atomic(p.a.ep, &one, 1, NULL, p.to_b, 0, 0, FI_UINT64, FI_SUM, &contexts[1]));
	CHECK(failed(&p.a, &p.b, FI_EFAULT).op_context == &contexts[1]);
	/* Memory that is mapped later can be accessed. */
	CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
	write_works(&p, 0, 0);
	arrives(page, "written", 8);
	CHECK(fi_close(&mr->fid) == 0);
	part(&p);
}

CASE_OURS(mr_raw_keys)
{
	struct pair p;
	struct region r;
	uint64_t base = 77, key = 0;
	uint8_t raw[64];
	size_t size = 0;

	meet(&p, &SIDED);
	expose(&p.b, &r, there, 64);
	CHECK(fi_mr_raw_attr(r.mr, &base, raw, &size, 0) == -FI_ETOOSMALL);
	CHECK(size == p.b.info->domain_attr->mr_key_size);
	CHECK(fi_mr_raw_attr(r.mr, &base, raw, &size, 1) == -FI_EBADFLAGS);
	CHECK(fi_mr_raw_attr(r.mr, &base, raw, &size, 0) == 0 && base == r.addr && size == 8);
	CHECK(fi_mr_map_raw(p.a.domain, base, raw, 3, &key, 0) == -FI_EINVAL);
	CHECK(fi_mr_map_raw(p.a.domain, base, raw, size, &key, 0) == 0);
	write_works(&p, r.addr, key);
	CHECK(fi_mr_unmap_key(p.a.domain, key) == 0);
	CHECK(fi_mr_unmap_key(p.a.domain, key) == -FI_EINVAL);
	hide(&r);
	/* A domain with mapped keys cannot be closed. */
	CHECK(fi_mr_map_raw(p.a.domain, base, raw, size, &key, 0) == 0);
	CHECK(fi_close(&p.a.ep->fid) == 0 && fi_close(&p.a.av->fid) == 0 && fi_close(&p.a.cq->fid) == 0);
	p.a.ep = NULL;
	p.a.av = NULL;
	p.a.cq = NULL;
	CHECK(fi_close(&p.a.domain->fid) == -FI_EBUSY);
	CHECK(fi_mr_unmap_key(p.a.domain, key) == 0);
	part(&p);
}

CASE_OURS(mr_counts_and_bindings)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *cntr;
	struct pair p;
	struct fid_mr *mr;
	double end = seconds() + 10;

	meet_in_mode(&p, FI_MR_RMA_EVENT);
	CHECK(fi_cntr_open(p.b.domain, &attr, &cntr, NULL) == 0);
	CHECK(fi_mr_reg(p.b.domain, there, 64, EVERY_RIGHT, 0, 9, FI_RMA_EVENT, &mr, NULL) == 0);
	/* Disabled until it is enabled. */
	write_fails(&p, 0, 9, FI_EINVAL);
	CHECK(fi_mr_bind(mr, &cntr->fid, FI_SEND) == -FI_EBADFLAGS);
	CHECK(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE) == 0);
	CHECK(fi_mr_bind(mr, &p.b.ep->fid, FI_SEND) == -FI_EBADFLAGS);
	CHECK(fi_mr_bind(mr, &p.b.ep->fid, 0) == 0);
	CHECK(fi_mr_bind(mr, &p.b.cq->fid, 0) == -FI_EINVAL);
	CHECK(fi_mr_enable(mr) == 0);
	CHECK(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_READ) == -FI_EOPBADSTATE);
	CHECK(fi_mr_enable(mr) == 0);
	CHECK(fi_mr_refresh(mr, NULL, 0, 0) == 0);
	write_works(&p, 0, 9);
	read_works(&p, 0, 9);
	while (fi_cntr_read(cntr) != 1 && seconds() < end)
		drive();
	CHECK(fi_cntr_read(cntr) == 1);
	/* Bound objects cannot be closed before the region. */
	CHECK(fi_close(&cntr->fid) == -FI_EBUSY && fi_close(&p.b.ep->fid) == -FI_EBUSY);
	CHECK(fi_close(&mr->fid) == 0);
	CHECK(fi_close(&cntr->fid) == 0);
	part(&p);
}

CASE_OURS(mr_is_disabled_without_its_endpoint)
{
	struct pair p;
	struct fid_mr *mr;

	meet_in_mode(&p, FI_MR_ENDPOINT);
	CHECK(fi_mr_reg(p.b.domain, there, 64, EVERY_RIGHT, 0, 9, 0, &mr, NULL) == 0);
	CHECK(fi_mr_enable(mr) == -FI_EOPBADSTATE);
	write_fails(&p, 0, 9, FI_EINVAL);
	CHECK(fi_mr_bind(mr, &p.b.ep->fid, 0) == 0 && fi_mr_enable(mr) == 0);
	write_works(&p, 0, 9);
	CHECK(fi_close(&mr->fid) == 0);
	part(&p);
}

CASE_OURS(mr_within_another)
{
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(2, 0))
	struct iovec iov = { there + 16, 32 };
	struct fi_mr_attr attr = { .mr_iov = &iov, .iov_count = 1, .access = FI_REMOTE_READ, .requested_key = 8 };
	struct pair p;
	struct fid_mr *base, *mr;

	meet(&p, &SIDED);
	CHECK(fi_mr_reg(p.b.domain, there, 64, EVERY_RIGHT, 0, 7, 0, &base, NULL) == 0);
	attr.base_mr = base;
	CHECK(fi_mr_regattr(p.b.domain, &attr, 0, &mr) == 0);
	CHECK(fi_mr_key(mr) == 8);
	read_works(&p, 24, 8);
	read_fails(&p, 25, 8, FI_EACCES);
	write_fails(&p, 0, 8, FI_EACCES);
	CHECK(fi_close(&base->fid) == -FI_EBUSY);
	CHECK(fi_close(&mr->fid) == 0);
	iov.iov_len = 49;
	CHECK(fi_mr_regattr(p.b.domain, &attr, 0, &mr) == -FI_EINVAL);
	CHECK(fi_close(&base->fid) == 0);
	part(&p);
#endif
}

CASE_OURS(mr_attributes_of_older_callers)
{
	/* The structure of version 1.4 has 48 bytes. */
	struct { const struct iovec *iov; size_t count; uint64_t access, offset, key; void *context; } *attr;
	struct want w = SIDED;
	struct iovec iov = { there, 64 };
	struct fid_mr *mr;
	struct side s;
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
	attr = (void *) (pages + 4096 - 48);
	attr->iov = &iov;
	attr->count = 1;
	attr->access = FI_REMOTE_READ;
	w.api = FI_VERSION(1, 4);
	open_side(&s, &w);
	CHECK(fi_mr_regattr(s.domain, (void *) attr, 0, &mr) == 0);
	CHECK(fi_close(&mr->fid) == 0);
	close_side(&s);
}

/* Programs may pass any descriptor, or none. */
CASE(mr_descriptors_are_valid_or_null)
{
	struct fid_mr *mr;
	struct pair p;
	struct region r;
	static char out[64] = "through a descriptor";

	meet(&p, &SIDED);
	expose(&p.b, &r, there, 64);
	CHECK(fi_mr_reg(p.a.domain, out, 64, EVERY_RIGHT, 0, next_key(), 0, &mr, NULL) == 0);
	POST(fi_write(p.a.ep, out, 64, fi_mr_desc(mr), p.to_b, r.addr, r.key, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	arrives(there, out, 64);
	CHECK(fi_close(&mr->fid) == 0);
	hide(&r);
	part(&p);
}
