/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Transport-independent addresses for RDMA connections: rdma_getaddrinfo(3) of
 * librdmaaddrinfo.so.1. Needs neither rdma-core nor an RDMA device. Types and values are those of
 * <rdma/rdma_cma.h>. If that header is installed, this one includes it and adds only what it lacks,
 * so that both can be included in any order. Define RDMA_ADDRINFO_ALONE before to prevent that;
 * then <rdma/rdma_cma.h> and <infiniband/verbs.h> must be included before this header or not at
 * all.
 */
#ifndef OFI_RDMA_ADDRINFO_H
#define OFI_RDMA_ADDRINFO_H

#if defined(__has_include) && !defined(RDMA_ADDRINFO_ALONE)
#if __has_include(<rdma/rdma_cma.h>)
#include <rdma/rdma_cma.h>
#endif
#endif

#include <netdb.h>
#include <stddef.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ai_flags */
#ifndef RAI_PASSIVE
#define RAI_PASSIVE 0x00000001
#define RAI_NUMERICHOST 0x00000002
#define RAI_NOROUTE 0x00000004
#define RAI_FAMILY 0x00000008
#endif
#ifndef RAI_SA
#define RAI_SA 0x00000010
#define RAI_DNS 0x00000020
#endif

/* ai_family, besides AF_INET and AF_INET6 */
#ifndef AF_IB
#define AF_IB 27
#endif

/*
 * Return codes. <netdb.h> has most of them if the program defines a POSIX or GNU feature macro.
 * EAI_QPTYPE (the queue pair type does not fit the port space) is in no other header; it has the
 * value of EAI_SOCKTYPE.
 */
#ifndef EAI_NONAME
#define EAI_BADFLAGS (-1)
#define EAI_NONAME (-2)
#define EAI_AGAIN (-3)
#define EAI_FAIL (-4)
#define EAI_FAMILY (-6)
#define EAI_SERVICE (-8)
#define EAI_MEMORY (-10)
#define EAI_SYSTEM (-11)
#endif
#ifndef EAI_NODATA
#define EAI_NODATA (-5)
#endif
#ifndef EAI_QPTYPE
#define EAI_QPTYPE (-7)
#endif
#ifndef EAI_ADDRFAMILY
#define EAI_ADDRFAMILY (-9)
#endif

#ifndef INFINIBAND_VERBS_H
/* ai_qp_type */
enum ibv_qp_type {
	IBV_QPT_RC = 2,
	IBV_QPT_UC = 3,
	IBV_QPT_UD = 4,
	IBV_QPT_XRC_SEND = 9,
	IBV_QPT_XRC_RECV = 10
};
#endif

#ifndef RDMA_CMA_H
/* ai_port_space */
enum rdma_port_space {
	RDMA_PS_IPOIB = 0x0002,
	RDMA_PS_TCP = 0x0106,
	RDMA_PS_UDP = 0x0111,
	RDMA_PS_IB = 0x013f
};

struct rdma_addrinfo {
	int ai_flags;
	int ai_family;
	int ai_qp_type;
	int ai_port_space;
	socklen_t ai_src_len;
	socklen_t ai_dst_len;
	struct sockaddr *ai_src_addr;
	struct sockaddr *ai_dst_addr;
	char *ai_src_canonname;
	char *ai_dst_canonname;
	size_t ai_route_len;
	void *ai_route;
	size_t ai_connect_len;
	void *ai_connect;
	struct rdma_addrinfo *ai_next;
};

/*
 * Resolves node and service into a list, best first, of addresses to connect to, or with
 * RAI_PASSIVE to listen on. At least one of node, service and hints must not be null. Returns 0, or
 * an EAI_ code and leaves res unchanged. EAI_SYSTEM sets errno, and EAI_BADFLAGS sets it to EINVAL.
 * May block for as long as the system's resolver waits for name servers, unless the node is an
 * address.
 */
int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res);

/* Frees a list. Null is allowed. */
void rdma_freeaddrinfo(struct rdma_addrinfo *res);
#endif

#ifdef __cplusplus
}
#endif

#endif
