/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One endpoint with many peers, in other processes (fi_endpoint(3)). */
#include "case.h"
#include "../process.h"

enum { PROCESSES = 8, EACH = 8, PEERS = PROCESSES * EACH, MESSAGES = 50, RECEIVES = 16 };

/* More than a peer may send before the hub has taken anything, over any provider. */
struct letter {
	char name[64];
	uint32_t peer, number;
};

/* Eight peers: each sends its letters as fast as it may, and waits for an answer. */
static void peers(int in, int out)
{
	static struct side s[EACH];
	static struct fi_context2 contexts[EACH];
	struct want want = { 0 };
	struct letter answers[EACH];
	fi_addr_t hub[EACH];
	uint32_t first, sent[EACH] = { 0 };
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	char name[64];
	int i, open = EACH;

	hear(in, name, sizeof(name));
	hear(in, &first, sizeof(first));
	for (i = 0; i < EACH; i++) {
		open_side(&s[i], &want);
		hub[i] = insert(&s[i], name);
		POST(fi_recv(s[i].ep, &answers[i], sizeof(answers[i]), NULL, FI_ADDR_UNSPEC, &contexts[i]));
	}
	while (open) {
		for (i = 0; i < EACH; i++) {
			struct letter letter = { .peer = first + (uint32_t) i, .number = sent[i] };
			ssize_t ret = 0;

			memcpy(letter.name, s[i].name, sizeof(letter.name));
			while (sent[i] < MESSAGES && !(ret = fi_inject(s[i].ep, &letter, sizeof(letter), hub[i])))
				letter.number = ++sent[i];
			CHECK(ret == 0 || ret == -FI_EAGAIN);
			if (next(&s[i], NULL, &entry, &err, 0) < 0)
				continue;
			CHECK(entry.op_context == &contexts[i] && answers[i].peer == letter.peer && sent[i] == MESSAGES);
			open--;
		}
	}
	tell(out, "x", 1);
	/* The hub has its completions. */
	hear(in, name, 1);
	for (i = 0; i < EACH; i++)
		close_side(&s[i]);
}

CASE(rdm_hub_of_many_peers)
{
	static struct letter letters[RECEIVES], answers[PEERS];
	static struct fi_context2 receives[RECEIVES], sends[PEERS];
	uint32_t heard[PEERS] = { 0 }, first;
	int to[PROCESSES], from[PROCESSES], i, answered = 0;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	pid_t processes[PROCESSES];
	struct want want = { 0 };
	struct side hub;
	double end;

	for (i = 0; i < PROCESSES; i++)
		processes[i] = child(peers, &to[i], &from[i]);
	open_side(&hub, &want);
	for (i = 0; i < PROCESSES; i++) {
		tell(to[i], hub.name, sizeof(hub.name));
		first = (uint32_t) i * EACH;
		tell(to[i], &first, sizeof(first));
	}
	for (i = 0; i < RECEIVES; i++)
		POST(fi_recv(hub.ep, &letters[i], sizeof(letters[i]), NULL, FI_ADDR_UNSPEC, &receives[i]));
	for (end = seconds() + 50; answered < PEERS && seconds() < end;) {
		struct fi_context2 *context;
		struct letter *letter;

		if (next(&hub, NULL, &entry, &err, 1) < 0)
			continue;
		context = entry.op_context;
		if (context >= sends && context < sends + PEERS) {
			answered++;
			continue;
		}
		letter = &letters[context - receives];
		CHECK(entry.len == sizeof(*letter) && letter->peer < PEERS && letter->number == heard[letter->peer]);
		if (++heard[letter->peer] == MESSAGES) {
			answers[letter->peer].peer = letter->peer;
			POST(fi_send(hub.ep, &answers[letter->peer], sizeof(*letter), NULL, insert(&hub, letter->name),
				&sends[letter->peer]));
		}
		POST(fi_recv(hub.ep, letter, sizeof(*letter), NULL, FI_ADDR_UNSPEC, context));
	}
	CHECK(answered == PEERS);
	for (i = 0; i < PROCESSES; i++) {
		char all;
		struct pollfd waits = { .fd = from[i], .events = POLLIN };

		/* The answers may need this side to leave. */
		while (poll(&waits, 1, 0) == 0)
			drive();
		hear(from[i], &all, 1);
	}
	for (i = 0; i < PROCESSES; i++)
		tell(to[i], "x", 1);
	for (i = 0; i < PROCESSES; i++)
		join(processes[i]);
	close_side(&hub);
	printf("%d peers were heard and answered\n", PEERS);
}
