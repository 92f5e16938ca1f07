/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Atomic operations (fi_atomic(3)). */
#include "sided.h"
#include <complex.h>

static union {
	char bytes[1 << 14];
	uint64_t words[8];
	_Alignas(32) char aligned[32];
} there;

/* One element through every fetching call; `result` receives the previous value. */
static void fetch(struct pair *p, struct region *r, enum fi_datatype type, enum fi_op op, const void *operand, void *result)
{
	POST(fi_fetch_atomic(p->a.ep, operand, 1, NULL, result, NULL, p->to_b, r->addr, r->key, type, op, &contexts[1]));
	done(&p->a, &p->b, &contexts[1]);
}

static void compare(struct pair *p, struct region *r, enum fi_datatype type, enum fi_op op, const void *operand,
	const void *with, void *result)
{
	POST(fi_compare_atomic(p->a.ep, operand, 1, NULL, with, NULL, result, NULL, p->to_b, r->addr, r->key, type, op,
		&contexts[1]));
	done(&p->a, &p->b, &contexts[1]);
}

#define SKIP_WITHOUT(p, type, op) \
	do { \
		size_t count_; \
		if (fi_fetch_atomicvalid((p)->a.ep, type, op, &count_)) \
			SKIP("no such atomics"); \
	} while (0)

/* target = OP(target, operand) for one type. */
#define CHECK_OP(c_type, type, op, before, operand, after) \
	do { \
		c_type was_ = (before), operand_ = (operand), got_ = 0, now_; \
		memcpy(there.bytes, &was_, sizeof(was_)); \
		fetch(&p, &r, type, op, &operand_, &got_); \
		memcpy(&now_, there.bytes, sizeof(now_)); \
		CHECK(got_ == was_ && now_ == (c_type) (after)); \
	} while (0)

#define CHECK_SWAP(op, before, with, swapped) \
	do { \
		int64_t was_ = (before), with_ = (with), new_ = 99, got_ = 0; \
		memcpy(there.bytes, &was_, 8); \
		compare(&p, &r, FI_INT64, op, &new_, &with_, &got_); \
		CHECK(got_ == was_ && (there.words[0] == 99) == (swapped)); \
	} while (0)

CASE(atomic_results_of_operations)
{
	struct pair p;
	struct region r;

	meet(&p, &SIDED);
	SKIP_WITHOUT(&p, FI_INT64, FI_SUM);
	expose(&p.b, &r, &there, sizeof(there));
	CHECK_OP(int8_t, FI_INT8, FI_MIN, 3, -4, -4);
	CHECK_OP(uint8_t, FI_UINT8, FI_MIN, 3, 200, 3);
	CHECK_OP(int16_t, FI_INT16, FI_MAX, -3, -4, -3);
	CHECK_OP(uint16_t, FI_UINT16, FI_MAX, 3, 60000, 60000);
	CHECK_OP(int32_t, FI_INT32, FI_SUM, 5, -7, -2);
	CHECK_OP(uint32_t, FI_UINT32, FI_SUM, UINT32_MAX, 2, 1);
	CHECK_OP(uint64_t, FI_UINT64, FI_PROD, 6, 7, 42);
	CHECK_OP(int64_t, FI_INT64, FI_LOR, 0, -5, 1);
	CHECK_OP(int64_t, FI_INT64, FI_LAND, 4, 2, 1);
	CHECK_OP(int64_t, FI_INT64, FI_LAND, 4, 0, 0);
	CHECK_OP(int64_t, FI_INT64, FI_LXOR, 4, 2, 0);
	CHECK_OP(int64_t, FI_INT64, FI_LXOR, 0, 2, 1);
	CHECK_OP(uint64_t, FI_UINT64, FI_BOR, 5, 10, 15);
	CHECK_OP(uint64_t, FI_UINT64, FI_BAND, 6, 3, 2);
	CHECK_OP(uint64_t, FI_UINT64, FI_BXOR, 6, 3, 5);
	CHECK_OP(uint64_t, FI_UINT64, FI_ATOMIC_WRITE, 6, 3, 3);
	CHECK_OP(uint64_t, FI_UINT64, FI_ATOMIC_READ, 6, 3, 6);
	CHECK_OP(float, FI_FLOAT, FI_SUM, 1.5f, 2.25f, 3.75f);
	CHECK_OP(double, FI_DOUBLE, FI_PROD, 1.5, -2, -3);
	CHECK_OP(double, FI_DOUBLE, FI_MIN, 1.5, -2, -2);
	hide(&r);
	part(&p);
}

CASE(atomic_results_of_swaps)
{
	struct pair p;
	struct region r;
	uint64_t operand = 0xff00, mask = 0x0ff0, got = 0;
	size_t count;

	meet(&p, &SIDED);
	if (fi_compare_atomicvalid(p.a.ep, FI_INT64, FI_MSWAP, &count))
		SKIP("no such atomics");
	expose(&p.b, &r, &there, sizeof(there));
	CHECK_SWAP(FI_CSWAP, 5, 5, 1);
	CHECK_SWAP(FI_CSWAP, 5, 6, 0);
	CHECK_SWAP(FI_CSWAP_NE, 5, 5, 0);
	CHECK_SWAP(FI_CSWAP_NE, 5, 6, 1);
	CHECK_SWAP(FI_CSWAP_LE, 5, 5, 1);
	CHECK_SWAP(FI_CSWAP_LE, 5, 6, 0);
	CHECK_SWAP(FI_CSWAP_LT, 5, -6, 1);
	CHECK_SWAP(FI_CSWAP_LT, 5, 5, 0);
	CHECK_SWAP(FI_CSWAP_GE, 5, 5, 1);
	CHECK_SWAP(FI_CSWAP_GE, 5, 4, 0);
	CHECK_SWAP(FI_CSWAP_GT, 5, 6, 1);
	CHECK_SWAP(FI_CSWAP_GT, 5, 5, 0);
	there.words[0] = 0x1234;
	compare(&p, &r, FI_UINT64, FI_MSWAP, &operand, &mask, &got);
	CHECK(got == 0x1234 && there.words[0] == ((0xff00 & 0x0ff0) | (0x1234 & ~0x0ff0)));
	hide(&r);
	part(&p);
}

CASE_OURS(atomic_wide_types_and_differences)
{
	const enum fi_op diff = 19;	/* FI_DIFF, which older headers lack */
	long double complex was = 1 + 2 * I, operand = 3 + 4 * I, got;
	__int128 big = (__int128) 1 << 100, one = 1, old;
	long double third = 1.0L / 3, twice;
	struct pair p;
	struct region r;

	meet(&p, &SIDED);
	expose(&p.b, &r, &there, sizeof(there));
	CHECK_OP(int32_t, FI_INT32, diff, 5, 7, -2);
	CHECK_OP(double, FI_DOUBLE, diff, 5, 7, -2);
	memcpy(&there, &big, 16);
	fetch(&p, &r, 14 /* FI_INT128 */, FI_SUM, &one, &old);
	CHECK(old == big && *(__int128 *) &there == big + 1);
	memcpy(&there, &third, sizeof(third));
	fetch(&p, &r, FI_LONG_DOUBLE, FI_SUM, &third, &twice);
	CHECK(twice == third && *(long double *) &there == third + third);
	memcpy(&there, &was, sizeof(was));
	fetch(&p, &r, FI_LONG_DOUBLE_COMPLEX, FI_PROD, &operand, &got);
	CHECK(got == was && *(long double complex *) &there == -5 + 10 * I);
	hide(&r);
	part(&p);
}

CASE(atomic_base_calls)
{
	uint64_t out[4] = { 1, 2, 3, 4 };
	struct fi_ioc iov[2] = { { out, 1 }, { out + 2, 2 } };
	struct fi_rma_ioc remote[2];
	struct fi_msg_atomic msg = { .msg_iov = iov, .iov_count = 2, .rma_iov = remote, .rma_iov_count = 2,
		.datatype = FI_UINT64, .op = FI_SUM, .context = &contexts[3] };
	struct fi_cq_tagged_entry entry;
	struct pair p;
	struct region r;
	size_t count;

	memset(&there, 0, sizeof(there));
	meet(&p, &SIDED);
	if (fi_atomicvalid(p.a.ep, FI_UINT64, FI_SUM, &count) || count < 4)
		SKIP("no such atomics");
	expose(&p.b, &r, &there, sizeof(there));
	POST(fi_atomic(p.a.ep, out, 4, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[1]));
	entry = done(&p.a, &p.b, &contexts[1]);
	CHECK(entry.flags == (FI_ATOMIC | FI_WRITE));
	arrives(&there, out, 32);
	POST(fi_atomicv(p.a.ep, iov, NULL, 2, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[2]));
	done(&p.a, &p.b, &contexts[2]);
	arrives(&there, (uint64_t []) { 2, 5, 7, 4 }, 32);
	remote[0] = (struct fi_rma_ioc) { r.addr + 8, 2, r.key };
	remote[1] = (struct fi_rma_ioc) { r.addr + 40, 1, r.key };
	msg.addr = p.to_b;
	POST(fi_atomicmsg(p.a.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	done(&p.a, &p.b, &contexts[3]);
	CHECK(!memcmp(&there, (uint64_t []) { 2, 6, 10, 4, 0, 4 }, 48));
	POST(fi_inject_atomic(p.a.ep, out, 1, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM));
	out[0] = 77;
	arrives(&there, (uint64_t []) { 3 }, 8);
	quiet(&p.a, &p.b);
	quiet(&p.b, &p.a);
	hide(&r);
	part(&p);
}

CASE(atomic_fetch_and_compare_calls)
{
	uint64_t out[3] = { 10, 20, 30 }, with[3] = { 11, 2, 13 }, got[3];
	struct fi_ioc iov[1] = { { out, 3 } }, compares[2] = { { with, 1 }, { with + 1, 2 } }, results[2] = { { got, 2 }, { got + 2, 1 } };
	struct fi_rma_ioc remote[1] = { { .count = 3 } };
	struct fi_msg_atomic msg = { .msg_iov = iov, .iov_count = 1, .rma_iov = remote, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM, .context = &contexts[3] };
	struct pair p;
	struct region r;
	size_t count;

	there.words[0] = 1;
	there.words[1] = 2;
	there.words[2] = 3;
	meet(&p, &SIDED);
	if (fi_compare_atomicvalid(p.a.ep, FI_UINT64, FI_CSWAP, &count) || count < 3)
		SKIP("no such atomics");
	SKIP_WITHOUT(&p, FI_UINT64, FI_SUM);
	expose(&p.b, &r, &there, sizeof(there));
	POST(fi_fetch_atomicv(p.a.ep, iov, NULL, 1, results, NULL, 2, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[1]));
	CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_ATOMIC | FI_READ));
	CHECK(got[0] == 1 && got[1] == 2 && got[2] == 3 && there.words[2] == 33);
	remote[0].addr = r.addr;
	remote[0].key = r.key;
	msg.addr = p.to_b;
	POST(fi_fetch_atomicmsg(p.a.ep, &msg, results, NULL, 2, FI_COMPLETION));
	done(&p.a, &p.b, &contexts[3]);
	CHECK(got[0] == 11 && got[1] == 22 && got[2] == 33 && there.words[0] == 21);
	/* The operand of a read is ignored. */
	POST(fi_fetch_atomic(p.a.ep, NULL, 3, NULL, got, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_ATOMIC_READ, &contexts[2]));
	done(&p.a, &p.b, &contexts[2]);
	CHECK(got[0] == 21 && got[1] == 42 && got[2] == 63);
	with[0] = 21;
	POST(fi_compare_atomicv(p.a.ep, iov, NULL, 1, compares, NULL, 2, results, NULL, 2, p.to_b, r.addr, r.key,
		FI_UINT64, FI_CSWAP, &contexts[1]));
	CHECK(done(&p.a, &p.b, &contexts[1]).flags == (FI_ATOMIC | FI_READ));
	CHECK(got[0] == 21 && got[1] == 42 && got[2] == 63);
	CHECK(there.words[0] == 10 && there.words[1] == 42 && there.words[2] == 63);
	msg.op = FI_CSWAP_NE;
	POST(fi_compare_atomicmsg(p.a.ep, &msg, compares, NULL, 2, results, NULL, 2, FI_COMPLETION));
	done(&p.a, &p.b, &contexts[3]);
	CHECK(got[0] == 10 && there.words[0] == 10 && there.words[1] == 20 && there.words[2] == 30);
	hide(&r);
	part(&p);
}

CASE(atomic_on_connected_endpoints)
{
	uint64_t one = 1, got = 0;
	struct pair p;
	struct region r;

	there.words[0] = 41;
	meet(&p, &SIDED_MSG);
	SKIP_WITHOUT(&p, FI_UINT64, FI_SUM);
	expose(&p.b, &r, &there, sizeof(there));
	POST(fi_fetch_atomic(p.a.ep, &one, 1, NULL, &got, NULL, 12345, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(got == 41 && there.words[0] == 42);
	hide(&r);
	part(&p);
}

/* Every valid operation works with the reported number of elements. */
CASE(atomic_valid_calls_hold)
{
	static char operands[1 << 14], compares[1 << 14], results[1 << 14];
	struct pair p;
	struct region r;
	struct fi_atomic_attr attr;
	unsigned type, op, works = 0;
	size_t count;

	meet(&p, &SIDED);
	expose(&p.b, &r, &there, sizeof(there));
	for (type = 0; type < 20; type++) {
		for (op = 0; op < 20; op++) {
			int ret = fi_atomicvalid(p.a.ep, type, op, &count);

			CHECK(ret == 0 || ret == -FI_EOPNOTSUPP);
			CHECK(fi_query_atomic(p.a.domain, type, op, &attr, 0) == ret);
			if (!ret) {
				CHECK(count >= 1 && attr.count == count && attr.count * attr.size <= sizeof(there));
				POST(fi_atomic(p.a.ep, operands, count, NULL, p.to_b, r.addr, r.key, type, op, &contexts[1]));
				done(&p.a, &p.b, &contexts[1]);
				CHECK(fi_atomic(p.a.ep, operands, count + 1, NULL, p.to_b, r.addr, r.key, type, op, NULL) == -FI_EMSGSIZE);
				works |= 1;
			}
			ret = fi_fetch_atomicvalid(p.a.ep, type, op, &count);
			CHECK(fi_query_atomic(p.a.domain, type, op, &attr, FI_FETCH_ATOMIC) == ret);
			if (!ret) {
				POST(fi_fetch_atomic(p.a.ep, operands, count, NULL, results, NULL, p.to_b, r.addr, r.key, type, op, &contexts[1]));
				done(&p.a, &p.b, &contexts[1]);
				works |= 2;
			}
			ret = fi_compare_atomicvalid(p.a.ep, type, op, &count);
			CHECK(fi_query_atomic(p.a.domain, type, op, &attr, FI_COMPARE_ATOMIC) == ret);
			if (!ret) {
				POST(fi_compare_atomic(p.a.ep, operands, count, NULL, compares, NULL, results, NULL, p.to_b, r.addr, r.key, type, op,
					&contexts[1]));
				done(&p.a, &p.b, &contexts[1]);
				works |= 4;
			}
		}
	}
	CHECK(works == 7);
	CHECK(fi_atomicvalid(p.a.ep, FI_UINT64, FI_CSWAP, &count) == -FI_EOPNOTSUPP);
	CHECK(fi_compare_atomicvalid(p.a.ep, FI_UINT64, FI_SUM, &count) == -FI_EOPNOTSUPP);
	CHECK(fi_query_atomic(p.a.domain, FI_UINT64, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) < 0);
	hide(&r);
	part(&p);
}

/* Integers support all operations, reals no bitwise ones, complex numbers no comparisons. */
CASE_OURS(atomic_operations_of_each_type)
{
	struct pair p;
	size_t count;
	unsigned type;

	meet(&p, &SIDED);
	for (type = 0; type < 20; type++) {
		int integer = type < 8 || type == 14 || type == 15, complex_ = type == 10 || type == 11 || type == 13;

		CHECK(fi_atomicvalid(p.a.ep, type, FI_SUM, &count) == 0);
		CHECK((fi_atomicvalid(p.a.ep, type, FI_BOR, &count) == 0) == integer);
		CHECK((fi_compare_atomicvalid(p.a.ep, type, FI_MSWAP, &count) == 0) == integer);
		CHECK((fi_atomicvalid(p.a.ep, type, FI_MIN, &count) == 0) == !complex_);
		CHECK((fi_compare_atomicvalid(p.a.ep, type, FI_CSWAP_LT, &count) == 0) == !complex_);
		CHECK(fi_compare_atomicvalid(p.a.ep, type, FI_CSWAP, &count) == 0);
		CHECK(fi_fetch_atomicvalid(p.a.ep, type, FI_ATOMIC_READ, &count) == 0);
		CHECK(fi_atomicvalid(p.a.ep, type, FI_ATOMIC_READ, &count) == -FI_EOPNOTSUPP);
	}
	CHECK(fi_atomicvalid(p.a.ep, 256 /* FI_VOID */, FI_SUM, &count) == -FI_EOPNOTSUPP);
	CHECK(fi_atomicvalid(p.a.ep, FI_INT8, 256 /* FI_NOOP */, &count) == -FI_EOPNOTSUPP);
	part(&p);
}

CASE_OURS(atomic_bad_calls_are_refused)
{
	uint64_t out[2] = { 0 }, got[2];
	struct fi_ioc iov = { out, 2 }, short_ = { got, 1 };
	struct fi_rma_ioc remote = { 0, 1, 7 };
	struct fi_msg_atomic msg = { .msg_iov = &iov, .iov_count = 1, .rma_iov = &remote, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM };
	struct fi_atomic_attr attr;
	struct pair p;

	meet(&p, &SIDED);
	msg.addr = p.to_b;
	CHECK(fi_atomic(p.a.ep, out, 1, NULL, p.to_b, 0, 7, FI_FLOAT, FI_BOR, NULL) == -FI_EOPNOTSUPP);
	CHECK(fi_atomic(p.a.ep, out, 1, NULL, p.to_b, 0, 7, FI_UINT64, FI_ATOMIC_READ, NULL) == -FI_EOPNOTSUPP);
	CHECK(fi_fetch_atomic(p.a.ep, out, 1, NULL, got, NULL, p.to_b, 0, 7, FI_UINT64, FI_CSWAP, NULL) == -FI_EOPNOTSUPP);
	CHECK(fi_compare_atomic(p.a.ep, out, 1, NULL, out, NULL, got, NULL, p.to_b, 0, 7, FI_UINT64, FI_SUM, NULL) == -FI_EOPNOTSUPP);
	CHECK(fi_atomic(p.a.ep, out, 0, NULL, p.to_b, 0, 7, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	CHECK(fi_atomic(p.a.ep, out, SIZE_MAX, NULL, p.to_b, 0, 7, FI_UINT64, FI_SUM, NULL) == -FI_EMSGSIZE);
	CHECK(fi_atomicmsg(p.a.ep, NULL, 0) == -FI_EINVAL);
	CHECK(fi_atomicmsg(p.a.ep, &msg, 0) == -FI_EINVAL);
	remote.count = 2;
	REFUSED("FI_TAGGED in calls of atomics and in fi_query_atomic",
		FI_EOPNOTSUPP, fi_atomicmsg(p.a.ep, &msg, FI_TAGGED));
	CHECK(fi_fetch_atomicmsg(p.a.ep, &msg, &short_, NULL, 1, 0) == -FI_EINVAL);
	CHECK(fi_fetch_atomicmsg(p.a.ep, &msg, NULL, NULL, 1, 0) == -FI_EINVAL);
	msg.iov_count = 9;
	CHECK(fi_atomicmsg(p.a.ep, &msg, 0) == -FI_EINVAL);
	REFUSED("FI_TAGGED in calls of atomics and in fi_query_atomic",
		FI_EOPNOTSUPP, fi_query_atomic(p.a.domain, FI_UINT64, FI_SUM, &attr, FI_TAGGED));
	CHECK(fi_query_atomic(p.a.domain, FI_UINT64, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) == -FI_EINVAL);
	CHECK(fi_query_atomic(p.a.domain, FI_UINT64, FI_SUM, &attr, 1) == -FI_EBADFLAGS);
	quiet(&p.a, &p.b);
	part(&p);
}

CASE_OURS(atomic_errors_are_reported_to_the_initiator)
{
	uint64_t one = 1, got = 0;
	struct pair p;
	struct region r, readable, writable;

	there.words[0] = 5;
	meet(&p, &SIDED);
	expose(&p.b, &r, &there, 64);
	expose_as(&p.b, &readable, &there, 64, FI_REMOTE_READ);
	expose_as(&p.b, &writable, &there, 64, FI_REMOTE_WRITE);
	POST(fi_atomic(p.a.ep, &one, 1, NULL, p.to_b, r.addr, 4711, FI_UINT64, FI_SUM, &contexts[1]));
	CHECK(failed(&p.a, &p.b, FI_EINVAL).op_context == &contexts[1]);
	POST(fi_atomic(p.a.ep, &one, 1, NULL, p.to_b, readable.addr, readable.key, FI_UINT64, FI_SUM, &contexts[1]));
	failed(&p.a, &p.b, FI_EACCES);
	POST(fi_fetch_atomic(p.a.ep, &one, 1, NULL, &got, NULL, p.to_b, writable.addr, writable.key, FI_UINT64, FI_SUM, &contexts[1]));
	failed(&p.a, &p.b, FI_EACCES);
	POST(fi_fetch_atomic(p.a.ep, &one, 1, NULL, &got, NULL, p.to_b, r.addr + 64, r.key, FI_UINT64, FI_SUM, &contexts[1]));
	failed(&p.a, &p.b, FI_EACCES);
	CHECK(there.words[0] == 5);
	/* An atomic read needs only FI_REMOTE_READ. */
	POST(fi_fetch_atomic(p.a.ep, NULL, 1, NULL, &got, NULL, p.to_b, readable.addr, readable.key, FI_UINT64, FI_ATOMIC_READ,
		&contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	CHECK(got == 5);
	POST(fi_atomic(p.a.ep, &one, 1, NULL, p.to_b, writable.addr, writable.key, FI_UINT64, FI_SUM, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	arrives(&there, (uint64_t []) { 6 }, 8);
	hide(&r);
	hide(&readable);
	hide(&writable);
	part(&p);
}

/* Fetching and comparing atomics read, the others write. */
CASE_OURS(atomic_needs_its_capabilities)
{
	struct want reads = { .caps = FI_ATOMIC | FI_READ | FI_SEND | FI_RECV };
	struct want writes = { .caps = FI_ATOMIC | FI_WRITE | FI_SEND | FI_RECV };
	uint64_t one = 1, five = 5, was = 0;
	struct pair p;
	struct region r;

	there.words[0] = 5;
	open_side(&p.a, &reads);
	open_side(&p.b, &SIDED);
	p.to_b = insert(&p.a, p.b.name);
	expose(&p.b, &r, &there, sizeof(there));
	CHECK(fi_atomic(p.a.ep, &one, 1, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, NULL) == -FI_ENOSYS);
	CHECK(fi_inject_atomic(p.a.ep, &one, 1, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM) == -FI_ENOSYS);
	fetch(&p, &r, FI_UINT64, FI_SUM, &one, &was);
	CHECK(was == 5 && there.words[0] == 6);
	compare(&p, &r, FI_UINT64, FI_CSWAP, &five, (uint64_t []) { 6 }, &was);
	CHECK(was == 6 && there.words[0] == 5);
	hide(&r);
	part(&p);
	open_side(&p.a, &writes);
	open_side(&p.b, &SIDED);
	p.to_b = insert(&p.a, p.b.name);
	expose(&p.b, &r, &there, sizeof(there));
	CHECK(fi_fetch_atomic(p.a.ep, &one, 1, NULL, &was, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, NULL)
		== -FI_ENOSYS);
	CHECK(fi_compare_atomic(p.a.ep, &one, 1, NULL, &five, NULL, &was, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_CSWAP,
		NULL) == -FI_ENOSYS);
	POST(fi_atomic(p.a.ep, &one, 1, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[1]));
	done(&p.a, &p.b, &contexts[1]);
	arrives(&there, (uint64_t []) { 6 }, 8);
	hide(&r);
	part(&p);
}

/* Atomics that change the target take FI_REMOTE_WRITE there, those that return values FI_REMOTE_READ. */
CASE_OURS(atomic_target_needs_its_capabilities)
{
	static const struct { uint64_t caps; int writes, reads; } targets[] = {
		{ FI_REMOTE_WRITE, 1, 0 }, { FI_REMOTE_READ, 0, 1 }, { FI_WRITE, 0, 0 },
	};
	uint64_t one = 1, was;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	struct pair p;
	struct region r;
	size_t i;

	for (i = 0; i < ARRAY(targets); i++) {
		struct want of_target = { .caps = FI_ATOMIC | FI_SEND | FI_RECV | targets[i].caps };

		there.words[0] = 5;
		open_side(&p.a, &SIDED);
		open_side(&p.b, &of_target);
		p.to_b = insert(&p.a, p.b.name);
		expose(&p.b, &r, &there, sizeof(there));
		POST(fi_atomic(p.a.ep, &one, 1, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[0]));
		CHECK(next(&p.a, &p.b, &entry, &err, 15) == targets[i].writes);
		POST(fi_fetch_atomic(p.a.ep, &one, 1, NULL, &was, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_ATOMIC_READ,
			&contexts[1]));
		CHECK(next(&p.a, &p.b, &entry, &err, 15) == targets[i].reads);
		CHECK(there.words[0] == (targets[i].writes ? 6 : 5) && (!targets[i].reads || was == 5));
		hide(&r);
		part(&p);
	}
}

CASE(atomic_flags_of_calls)
{
	struct want w = SIDED;
	uint64_t out = 1, got = 0;
	struct fi_ioc iov = { &out, 1 }, result = { &got, 1 };
	struct fi_rma_ioc remote = { .count = 1 };
	struct fi_msg_atomic msg = { .msg_iov = &iov, .iov_count = 1, .rma_iov = &remote, .rma_iov_count = 1,
		.datatype = FI_UINT64, .op = FI_SUM, .context = &contexts[3] };
	struct pair p;
	struct region r;

	there.words[0] = 0;
	w.bind = FI_SELECTIVE_COMPLETION;
	meet(&p, &w);
	SKIP_WITHOUT(&p, FI_UINT64, FI_SUM);
	expose(&p.b, &r, &there, sizeof(there));
	remote.addr = r.addr;
	remote.key = r.key;
	msg.addr = p.to_b;
	POST(fi_atomicmsg(p.a.ep, &msg, 0));
	POST(fi_fetch_atomicmsg(p.a.ep, &msg, &result, NULL, 1, 0));
	quiet(&p.a, &p.b);
	POST(fi_atomicmsg(p.a.ep, &msg, FI_COMPLETION | FI_INJECT | FI_MORE));
	out = 100;
	done(&p.a, &p.b, &contexts[3]);
	POST(fi_fetch_atomicmsg(p.a.ep, &msg, &result, NULL, 1, FI_COMPLETION | FI_FENCE));
	done(&p.a, &p.b, &contexts[3]);
	CHECK(got == 3 && there.words[0] == 103);
	hide(&r);
	part(&p);
}

/* An update is visible before the target completes a later transfer of the same pair. */
CASE(atomic_is_visible_before_a_later_completion)
{
	uint64_t one = 1;
	struct pair p;
	struct region r;
	char in[8];
	int i;

	there.words[0] = 0;
	meet(&p, &SIDED);
	SKIP_WITHOUT(&p, FI_UINT64, FI_SUM);
	expose(&p.b, &r, &there, sizeof(there));
	for (i = 1; i <= 50; i++) {
		POST(fi_recv(p.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[2]));
		POST(fi_atomic(p.a.ep, &one, 1, NULL, p.to_b, r.addr, r.key, FI_UINT64, FI_SUM, &contexts[1]));
		done(&p.a, &p.b, &contexts[1]);
		POST(fi_send(p.a.ep, "notice", 7, NULL, p.to_b, &contexts[3]));
		done(&p.b, &p.a, &contexts[2]);
		CHECK(there.words[0] == (uint64_t) i);
		done(&p.a, &p.b, &contexts[3]);
	}
	hide(&r);
	part(&p);
}
