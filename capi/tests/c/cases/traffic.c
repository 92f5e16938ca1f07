/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Traffic classes: fi_endpoint(3), fi_domain(3). Their effect is read from the sockets of this
 * process.
 */
#include "case.h"
#include <netinet/in.h>
#include <sys/socket.h>

/* Number of sockets of this type and family; checks that all carry the code point. */
static int marked(int type, int family, int dscp)
{
	int fd, count = 0;

	for (fd = 0; fd < 1024; fd++) {
		int is = 0, of = 0, field = -1;
		socklen_t len = sizeof(is);

		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &is, &len) || is != type)
			continue;
		len = sizeof(of);
		if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &of, &len) || of != family)
			continue;
		len = sizeof(field);
		if (family == AF_INET)
			CHECK(getsockopt(fd, IPPROTO_IP, IP_TOS, &field, &len) == 0);
		else
			CHECK(getsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &field, &len) == 0);
		if (field >> 2 != dscp)
			fprintf(stderr, "descriptor %d carries %d, not %d\n", fd, field >> 2, dscp);
		CHECK(field >> 2 == dscp);
		count++;
	}
	return count;
}

/* Opens a side with a traffic class in the hints, for the endpoint or for the domain. */
static void open_with(struct side *s, const struct want *w, uint32_t class, int of_domain, int family)
{
	struct fi_info *hints = hints_for(w);
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	size_t i = 0;

	memset(s, 0, sizeof(*s));
	s->want = *w;
	while (sides[i])
		i++;
	sides[i] = s;
	hints->addr_format = family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
	*(of_domain ? &hints->domain_attr->tclass : &hints->tx_attr->tclass) = class;
	CHECK(fi_getinfo(API, family == AF_INET ? "127.0.0.1" : "::1", NULL, FI_SOURCE, hints, &s->info) == 0);
	CHECK((of_domain ? s->info->domain_attr->tclass : s->info->tx_attr->tclass) == class);
	fi_freeinfo(hints);
	CHECK(fi_fabric(s->info->fabric_attr, &s->fabric, NULL) == 0 && fi_domain(s->fabric, s->info, &s->domain, NULL) == 0);
	CHECK(fi_eq_open(s->fabric, &eq_attr, &s->eq, NULL) == 0);
	CHECK(fi_cq_open(s->domain, &cq_attr, &s->cq, NULL) == 0 && fi_av_open(s->domain, &av_attr, &s->av, NULL) == 0);
}

static void exchange(struct pair *p)
{
	char in[8] = "";

	POST(fi_recv(p->b.ep, in, 8, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p->a.ep, "hello", 6, NULL, p->to_b, &contexts[1]));
	done(&p->b, &p->a, &contexts[0]);
	done(&p->a, &p->b, &contexts[1]);
	CHECK(!strcmp(in, "hello"));
}

/*
 * The class of an endpoint or of its domain: both ends of a connection and the listening sockets
 * carry it.
 */
CASE_OURS(traffic_class_of_tcp)
{
	static const struct { uint32_t class; int dscp; } classes[] = {
		{ FI_TC_LOW_LATENCY, 46 }, { FI_TC_BULK_DATA, 10 }, { FI_TC_DEDICATED_ACCESS, 44 }, { FI_TC_SCAVENGER, 1 },
		{ FI_TC_NETWORK_CTRL, 48 }, { FI_TC_BEST_EFFORT, 0 }, { FI_TC_UNSPEC, 0 }, { FI_TC_DSCP | 34, 34 },
	};
	static const int families[] = { AF_INET, AF_INET6 };
	struct pair p;
	size_t c, f;

	for (c = 0; c < ARRAY(classes); c++)
		for (f = 0; f < ARRAY(families); f++) {
			open_with(&p.a, &RDM, classes[c].class, c % 2, families[f]);
			open_with(&p.b, &RDM, classes[c].class, c % 2, families[f]);
			open_ep(&p.a, p.a.info);
			open_ep(&p.b, p.b.info);
			p.to_b = insert(&p.a, p.b.name);
			exchange(&p);
			CHECK(marked(SOCK_STREAM, families[f], classes[c].dscp) == 4);
			part(&p);
		}
}

/* A connected pair: the connecting socket, bound or not, the listening and the accepted one. */
CASE_OURS(traffic_class_of_connections)
{
	struct { struct fi_eq_cm_entry cm; char data[256]; } event;
	struct want w = { .type = FI_EP_MSG };
	char name[64];
	uint32_t number;
	int bound;

	for (bound = 0; bound < 2; bound++) {
		size_t len = sizeof(name);
		struct fid_pep *pep;
		struct pair p;

		open_with(&p.b, &w, FI_TC_LOW_LATENCY, 0, AF_INET);
		CHECK(fi_passive_ep(p.b.fabric, p.b.info, &pep, NULL) == 0);
		CHECK(fi_pep_bind(pep, &p.b.eq->fid, 0) == 0 && fi_listen(pep) == 0 && fi_getname(&pep->fid, name, &len) == 0);
		open_with(&p.a, &w, FI_TC_LOW_LATENCY, 1, AF_INET);
		if (!bound) {
			free(p.a.info->src_addr);
			p.a.info->src_addr = NULL;
			p.a.info->src_addrlen = 0;
		}
		open_ep(&p.a, p.a.info);
		CHECK(fi_connect(p.a.ep, name, NULL, 0) == 0);
		CHECK(event_of(&p.b, &p.a, &number, &event, sizeof(event)) >= (ssize_t) sizeof(event.cm) && number == FI_CONNREQ);
		CHECK(marked(SOCK_STREAM, AF_INET, 46) == 3);
		/* The accepting side sets another class. */
		event.cm.info->tx_attr->tclass = FI_TC_BULK_DATA;
		CHECK(fi_close(&pep->fid) == 0);
		open_ep(&p.b, event.cm.info);
		fi_freeinfo(event.cm.info);
		CHECK(fi_accept(p.b.ep, NULL, 0) == 0);
		CHECK(event_of(&p.b, &p.a, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
		CHECK(event_of(&p.a, &p.b, &number, &event, sizeof(event)) > 0 && number == FI_CONNECTED);
		p.to_b = 0;
		exchange(&p);
		CHECK(fi_close(&p.a.ep->fid) == 0);
		p.a.ep = NULL;
		CHECK(marked(SOCK_STREAM, AF_INET, 10) == 1);
		part(&p);
	}
}

CASE_OURS(traffic_class_of_udp)
{
	static const struct want w = { .type = FI_EP_DGRAM, .caps = FI_MULTICAST };
	static const int families[] = { AF_INET, AF_INET6 };
	struct sockaddr_in group = { .sin_family = AF_INET };
	struct fid_mc *mc;
	struct pair p;
	size_t f;

	for (f = 0; f < ARRAY(families); f++) {
		open_with(&p.a, &w, FI_TC_LOW_LATENCY, f == 0, families[f]);
		open_with(&p.b, &w, FI_TC_LOW_LATENCY, f == 1, families[f]);
		open_ep(&p.a, p.a.info);
		open_ep(&p.b, p.b.info);
		p.to_b = insert(&p.a, p.b.name);
		exchange(&p);
		CHECK(marked(SOCK_DGRAM, families[f], 46) == 2);
		if (families[f] == AF_INET) {
			/* The socket of a group too. */
			group.sin_addr.s_addr = htonl(0xef010203);
			group.sin_port = htons((uint16_t) (20000 + getpid() % 12000));
			CHECK(fi_ep_bind(p.b.ep, &p.b.eq->fid, 0) == 0);
			CHECK(fi_join(p.b.ep, &group, FI_RECV, &mc, NULL) == 0);
			CHECK(marked(SOCK_DGRAM, families[f], 46) == 3);
			CHECK(fi_close(&mc->fid) == 0);
		}
		part(&p);
	}
}

/* The domain's class applies to endpoints that set none. */
CASE_OURS(traffic_class_of_the_domain_is_a_default)
{
	struct side s;

	open_with(&s, &RDM, FI_TC_BULK_DATA, 1, AF_INET);
	/* The opened domain's class applies, not the one in the info. */
	s.info->domain_attr->tclass = FI_TC_UNSPEC;
	open_ep(&s, s.info);
	CHECK(marked(SOCK_STREAM, AF_INET, 10) == 1);
	CHECK(fi_close(&s.ep->fid) == 0);
	s.info->tx_attr->tclass = FI_TC_DSCP | 5;
	open_ep(&s, s.info);
	CHECK(marked(SOCK_STREAM, AF_INET, 5) == 1);
	CHECK(fi_close(&s.ep->fid) == 0);
	/* An endpoint with an unknown class is refused. */
	s.info->tx_attr->tclass = 0x20a;
	CHECK(fi_endpoint(s.domain, s.info, &s.ep, NULL) == -FI_EINVAL);
	s.ep = NULL;
	close_side(&s);
}

/* shm has no traffic classes. */
CASE_OURS(traffic_class_within_the_host)
{
	static const struct want w = { .provider = "shm" };
	struct side s;

	open_domain(&s, &w);
	s.info->tx_attr->tclass = FI_TC_LOW_LATENCY;
	CHECK(fi_endpoint(s.domain, s.info, &s.ep, NULL) == -FI_EINVAL);
	s.info->tx_attr->tclass = FI_TC_BEST_EFFORT;
	open_ep(&s, s.info);
	close_side(&s);
}
