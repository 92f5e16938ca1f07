/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A test program with several scenarios; its argument selects one. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <stdio.h>
#include <string.h>

struct scenario {
	const char *name;
	void (*run)(void);
};

/*
 * Runs the scenario named by the argument. The list ends with a null name. Returns the exit code.
 */
static inline int run_scenario(int argc, char **argv, const struct scenario *scenarios)
{
	for (; argc == 2 && scenarios->name; scenarios++) {
		if (!strcmp(argv[1], scenarios->name)) {
			scenarios->run();
			return 0;
		}
	}
	fprintf(stderr, "no such scenario\n");
	return 2;
}

#endif
