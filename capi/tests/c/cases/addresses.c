/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Addresses passed from one object to another: fi_endpoint(3), fi_cm(3), fi_getinfo(3), over tcp
 * and shm.
 */
#include "case.h"

static const char *const providers[] = { "tcp", "shm" };

/* Whether two addresses are the same endpoint's. */
static int same(const void *a, const void *b, size_t len)
{
	return !memcmp(a, b, len < 16 ? len : len == 16 ? 8 : len);
}

/* An active endpoint replaces a passive one: it takes over the address and connects from it. */
CASE_OURS(connection_uses_the_passive_endpoint_address)
{
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	char name[64], from[64], taken[64], seen[64];
	size_t len, from_len, i;
	uint32_t number;

	for (i = 0; i < ARRAY(providers); i++) {
		struct want w = { .type = FI_EP_MSG, .provider = providers[i] };
		struct side server, client;
		struct fid_pep *pep, *mine;

		open_domain(&server, &w);
		CHECK(fi_passive_ep(server.fabric, server.info, &pep, NULL) == 0);
		CHECK(fi_pep_bind(pep, &server.eq->fid, 0) == 0 && fi_listen(pep) == 0);
		len = sizeof(name);
		CHECK(fi_getname(&pep->fid, name, &len) == 0);
		/* The passive endpoint reserves the address before the active endpoint exists. */
		open_domain(&client, &w);
		CHECK(fi_passive_ep(client.fabric, client.info, &mine, NULL) == 0);
		CHECK(fi_pep_bind(mine, &client.eq->fid, 0) == 0 && fi_listen(mine) == 0);
		from_len = sizeof(from);
		CHECK(fi_getname(&mine->fid, from, &from_len) == 0);
		client.info->handle = &mine->fid;
		open_ep(&client, client.info);
		client.info->handle = NULL;
		len = sizeof(taken);
		CHECK(fi_getname(&client.ep->fid, taken, &len) == 0 && len == from_len && same(taken, from, len));
		CHECK(fi_close(&mine->fid) == 0);
		CHECK(fi_connect(client.ep, name, NULL, 0) == 0);
		CHECK(event_of(&server, &client, &number, &event, sizeof(event)) >= (ssize_t) sizeof(event.cm));
		CHECK(number == FI_CONNREQ && event.cm.info->dest_addrlen == from_len && same(event.cm.info->dest_addr, from, from_len));
		open_ep(&server, event.cm.info);
		fi_freeinfo(event.cm.info);
		CHECK(fi_accept(server.ep, NULL, 0) == 0);
		CHECK(event_of(&server, &client, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
		CHECK(event_of(&client, &server, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
		len = sizeof(seen);
		CHECK(fi_getpeer(server.ep, seen, &len) == 0 && len == from_len && same(seen, from, len));
		len = sizeof(taken);
		CHECK(fi_getname(&client.ep->fid, taken, &len) == 0 && same(taken, from, len));
		CHECK(fi_close(&pep->fid) == 0);
		close_side(&client);
		close_side(&server);
	}
}

/* A client that connected before the passive endpoint gave up its address gets an error. */
CASE_OURS(pending_requests_fail_when_the_address_moves)
{
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	struct fi_eq_err_entry error;
	char name[64];
	uint32_t number;
	size_t len, i;

	for (i = 0; i < ARRAY(providers); i++) {
		struct want w = { .type = FI_EP_MSG, .provider = providers[i] };
		struct side server, client;
		struct fid_pep *pep;
		ssize_t ret;

		open_domain(&server, &w);
		CHECK(fi_passive_ep(server.fabric, server.info, &pep, NULL) == 0);
		CHECK(fi_pep_bind(pep, &server.eq->fid, 0) == 0 && fi_listen(pep) == 0);
		len = sizeof(name);
		CHECK(fi_getname(&pep->fid, name, &len) == 0);
		open_side(&client, &w);
		CHECK(fi_connect(client.ep, name, NULL, 0) == 0);
		server.info->handle = &pep->fid;
		open_ep(&server, server.info);
		server.info->handle = NULL;
		ret = event_of(&client, &server, &number, &event, sizeof(event));
		CHECK(ret == -FI_EAVAIL);
		memset(&error, 0, sizeof(error));
		CHECK(fi_eq_readerr(client.eq, &error, 0) > 0 && error.fid == &client.ep->fid && error.err > 0);
		CHECK(fi_close(&pep->fid) == 0);
		close_side(&client);
		close_side(&server);
	}
}
