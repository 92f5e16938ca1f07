/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An allocator that replaces the C library's: it counts blocks, and lets allocations of a thread
 * fail, alone or together with all that follow. A program includes this in one source file.
 */
#ifndef ALLOCATOR_H
#define ALLOCATOR_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *block);

/* Allocated blocks of the whole process. */
static atomic_long live;
/* Allocations of this thread until one fails; 0: none fails. */
static __thread long left;
/* All later ones fail too. */
static __thread int persistent;
static __thread long failures;

static int fails(void)
{
	if (!left || (left > 1 && left--))
		return 0;
	left = persistent;
	failures++;
	errno = ENOMEM;
	return 1;
}

static void *counted(void *block)
{
	if (block)
		atomic_fetch_add(&live, 1);
	return block;
}

void *malloc(size_t size)
{
	return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
	return fails() ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *block, size_t size)
{
	void *moved;

	if (fails())
		return NULL;
	moved = __libc_realloc(block, size);
	if (!block)
		return counted(moved);
	if (!moved && !size)
		atomic_fetch_sub(&live, 1);
	return moved;
}

void *memalign(size_t align, size_t size)
{
	return fails() ? NULL : counted(__libc_memalign(align, size));
}

void *aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
	*out = memalign(align, size);
	return *out ? 0 : ENOMEM;
}

void free(void *block)
{
	if (block)
		atomic_fetch_sub(&live, 1);
	__libc_free(block);
}

#endif
