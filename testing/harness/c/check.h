/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A check that cannot be compiled away, for every test program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #what); \
			exit(1); \
		} \
	} while (0)

#endif
