/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Both ends in one single-threaded process, so that strace and callgrind count what a message
 * costs: a window goes from one endpoint to the other, and one comes back. Prints us per message,
 * both ends together.
 */
#include "patterns.h"
#include "side.h"

static struct side sides[2];

static void window_to(struct side *from, struct side *to)
{
	long received = to->receives_done + options.window;
	int i;

	for (i = 0; i < options.window; i++)
		post_receive(to, &to->links[0], slot_of(to, to->in, i), options.size, PAYLOAD, i);
	for (i = 0; i < options.window; i++)
		send_message(from, &from->links[0], slot_of(from, from->out, i), options.size, PAYLOAD, i, i + 1 == options.window);
	while (to->receives_done < received || from->sends_done < from->sends_expected) {
		if (to->receives_done < received)
			poll_completions(to);
		/* The sender may need progress to flush. */
		poll_completions(from);
	}
}

static void to_and_fro(void *state, long count)
{
	(void) state;
	while (count-- > 0) {
		window_to(&sides[0], &sides[1]);
		window_to(&sides[1], &sides[0]);
	}
}

int run_solo(void)
{
	char names[2][NAME_SIZE];
	struct sample sample;
	int i;

	if (strcmp(options.pattern, "solo"))
		return 0;
	MUST(options.endpoint != MSG && options.buffers == KEPT);
	options.threads = 1;
	spawn(1);
	pin(0);
	for (i = 0; i < 2; i++) {
		open_side(&sides[i], i, 0);
		sides[i].neighbour = &sides[!i];
		make_buffers(&sides[i], 1);
		fill_kept(sides[i].out, 1, i);
		sides[i].links[0].ep = open_endpoint(&sides[i], sides[i].info);
		CALL(fi_getname(&sides[i].links[0].ep->fid, names[i], &(size_t) { NAME_SIZE }));
	}
	for (i = 0; i < 2; i++)
		MUST(fi_av_insert(sides[i].av, names[!i], 1, &sides[i].links[0].to, 0, NULL) == 1);
	barrier_progress = NULL;
	sample = measure(to_and_fro, NULL, 0);
	for (i = 0; i < 2; i++)
		check_whole(sides[i].in, payload_seed(0, !i));
	print_result(sample.elapsed / sample.count / options.window / 2, sample);
	return 1;
}
