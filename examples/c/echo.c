/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * echo: the server prints its address and sends back the lines of one client.
 *
 * ./echo                        server
 * ./echo ADDRESS <some.txt      client: sends the lines of its input, checks and prints the answers
 */
#define TIME_LIMIT 30 /* seconds; no wait for the peer is longer */

#include "common.h"

#include <string.h>

#include <rdma/fi_tagged.h>

/* The tag names the kind of a message. */
enum { ADDRESS = 1, LINE, ECHO };

static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_ep *ep;

static void serve(const unsigned char *name, size_t len)
{
	char line[256] = "";
	fi_addr_t client;
	size_t i;

	for (i = 0; i < len; i++)
		printf("%02x", name[i]);
	printf("\n");
	fflush(stdout);

	/* An answer needs an entry of the address vector, so the client sends its address first. */
	POST(cq, fi_trecv(ep, line, sizeof(line) - 1, NULL, FI_ADDR_UNSPEC, ADDRESS, 0, NULL));
	next(cq);
	check("client's address", fi_av_insert(av, line, 1, &client, 0, NULL) == 1 ? 0 : -FI_EINVAL);
	do {
		POST(cq, fi_trecv(ep, line, sizeof(line), NULL, FI_ADDR_UNSPEC, LINE, 0, NULL));
		len = next(cq).len;
		POST(cq, fi_tsend(ep, line, len, NULL, client, ECHO, NULL));
		next(cq);
	} while (len); /* The client's last message is empty. */
}

static void ask(const char *hex, const unsigned char *name, size_t len)
{
	char line[256] = "", back[sizeof(line)];
	size_t i, got = 0;
	fi_addr_t server;

	for (i = 0; i < sizeof(line) - 1 && i < strlen(hex) / 2; i++)
		sscanf(hex + 2 * i, "%2hhx", (unsigned char *) line + i);
	check("server's address", fi_av_insert(av, line, 1, &server, 0, NULL) == 1 ? 0 : -FI_EINVAL);
	POST(cq, fi_tsend(ep, name, len, NULL, server, ADDRESS, NULL));
	next(cq);
	do {
		len = fgets(line, sizeof(line), stdin) ? strlen(line) : 0;
		POST(cq, fi_trecv(ep, back, sizeof(back), NULL, FI_ADDR_UNSPEC, ECHO, 0, NULL));
		POST(cq, fi_tsend(ep, line, len, NULL, server, LINE, NULL));
		/* Both complete, in either order. Only a receive's entry has a length. */
		for (i = 0; i < 2; i++) {
			struct fi_cq_tagged_entry entry = next(cq);

			got = entry.flags & FI_RECV ? entry.len : got;
		}
		check("compare the answer", got == len && !memcmp(back, line, len) ? 0 : -FI_EIO);
		fwrite(back, 1, len, stdout);
	} while (len);
}

int main(int argc, char **argv)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct net net = open_net(hints_for(FI_TAGGED));
	unsigned char name[256];
	size_t len = sizeof(name) - 1;

	CHECK(fi_cq_open(net.domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(net.domain, &av_attr, &av, NULL));
	ep = open_endpoint(net.domain, net.info, cq, av);
	CHECK(fi_getname(&ep->fid, name, &len));
	if (argc > 1)
		ask(argv[1], name, len);
	else
		serve(name, len);
	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&cq->fid));
	close_net(&net);
	return 0;
}
