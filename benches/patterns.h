/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The patterns of fabric.c. Each function prints the result, or returns 0 if `--pattern` is not one
 * of its own.
 */
#ifndef PATTERNS_H
#define PATTERNS_H

/* Two processes of one or several threads (exchange.c). */
int run_exchange(void);

/* Access to the other process's memory (rma.c). */
int run_rma(void);

/* Connecting, memory, idling (life.c). */
int run_life(void);

/* Many processes (crowd.c). */
int run_crowd(void);

/* The first messages of many endpoints (start.c). */
int run_start(void);

/* Collective operations of many processes (collective.c). */
int run_collective(void);

/* Both ends in one process (solo.c). */
int run_solo(void);

/* Long queues and many peers (scale.c). */
int run_scale(void);

/* Threads with contexts or endpoints of their own (contexts.c). */
int run_contexts(void);

#endif
