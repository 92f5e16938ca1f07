/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * echo: the server prints its address and sends back the lines of one client.
 *
 * ./echo                        server
 * ./echo ADDRESS <some.txt      client: sends the lines of its input, checks and prints the answers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define TIME_LIMIT 30 /* seconds; no wait for the peer is longer */

/* The tag names the kind of a message. */
enum { ADDRESS = 1, LINE, ECHO };

static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_ep *ep;

static void check(const char *call, ssize_t ret)
{
	if (ret < 0) {
		fprintf(stderr, "%s: %s\n", call, fi_strerror((int) -ret));
		exit(1);
	}
}

#define CHECK(call) check(#call, call)

/* Posts an operation. While the endpoint has no room for it, reading the queue makes progress. */
#define POST(call) \
	do { \
		time_t end_ = time(NULL) + TIME_LIMIT; \
		ssize_t ret_; \
		while ((ret_ = (call)) == -FI_EAGAIN && time(NULL) < end_) \
			fi_cq_read(cq, NULL, 0); \
		check(#call, ret_); \
	} while (0)

/* Returns the next completion; ends the program if an operation failed or nothing completes. */
static struct fi_cq_tagged_entry next(void)
{
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_tagged_entry entry;
	char reason[256] = "";
	ssize_t ret = fi_cq_sread(cq, &entry, 1, NULL, TIME_LIMIT * 1000);

	if (ret == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
		check(fi_cq_strerror(cq, error.prov_errno, error.err_data, reason, sizeof(reason)), -error.err);
	check("wait for the peer", ret == -FI_EAGAIN ? -FI_ETIMEDOUT : ret);
	return entry;
}

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
	POST(fi_trecv(ep, line, sizeof(line) - 1, NULL, FI_ADDR_UNSPEC, ADDRESS, 0, NULL));
	next();
	check("client's address", fi_av_insert(av, line, 1, &client, 0, NULL) == 1 ? 0 : -FI_EINVAL);
	do {
		POST(fi_trecv(ep, line, sizeof(line), NULL, FI_ADDR_UNSPEC, LINE, 0, NULL));
		len = next().len;
		POST(fi_tsend(ep, line, len, NULL, client, ECHO, NULL));
		next();
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
	POST(fi_tsend(ep, name, len, NULL, server, ADDRESS, NULL));
	next();
	do {
		len = fgets(line, sizeof(line), stdin) ? strlen(line) : 0;
		POST(fi_trecv(ep, back, sizeof(back), NULL, FI_ADDR_UNSPEC, ECHO, 0, NULL));
		POST(fi_tsend(ep, line, len, NULL, server, LINE, NULL));
		/* Both complete, in either order. Only a receive's entry has a length. */
		for (i = 0; i < 2; i++) {
			struct fi_cq_tagged_entry entry = next();

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
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	unsigned char name[256];
	size_t len = sizeof(name) - 1;

	check("fi_allocinfo", hints ? 0 : -FI_ENOMEM);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED;
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(domain, &av_attr, &av, NULL));
	CHECK(fi_endpoint(domain, info, &ep, NULL));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	CHECK(fi_ep_bind(ep, &av->fid, 0));
	CHECK(fi_enable(ep));
	CHECK(fi_getname(&ep->fid, name, &len));
	if (argc > 1)
		ask(argv[1], name, len);
	else
		serve(name, len);
	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&cq->fid));
	CHECK(fi_close(&domain->fid));
	CHECK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return 0;
}
