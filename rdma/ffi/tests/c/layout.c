/* Layout and values of the interface, for the headers that the command line includes. */
#include <stddef.h>

#ifdef __cplusplus
#define CHECK(what) static_assert(what, #what)
#else
#define CHECK(what) _Static_assert(what, #what)
#endif
#define AT(field, offset, type) \
	CHECK(offsetof(struct rdma_addrinfo, field) == offset && sizeof(((struct rdma_addrinfo *) 0)->field) == sizeof(type))

CHECK(sizeof(struct rdma_addrinfo) == 96);
AT(ai_flags, 0, int);
AT(ai_family, 4, int);
AT(ai_qp_type, 8, int);
AT(ai_port_space, 12, int);
AT(ai_src_len, 16, socklen_t);
AT(ai_dst_len, 20, socklen_t);
AT(ai_src_addr, 24, struct sockaddr *);
AT(ai_dst_addr, 32, struct sockaddr *);
AT(ai_src_canonname, 40, char *);
AT(ai_dst_canonname, 48, char *);
AT(ai_route_len, 56, size_t);
AT(ai_route, 64, void *);
AT(ai_connect_len, 72, size_t);
AT(ai_connect, 80, void *);
AT(ai_next, 88, struct rdma_addrinfo *);

CHECK(RAI_PASSIVE == 1 && RAI_NUMERICHOST == 2 && RAI_NOROUTE == 4 && RAI_FAMILY == 8);
CHECK(RDMA_PS_IPOIB == 2 && RDMA_PS_TCP == 0x106 && RDMA_PS_UDP == 0x111 && RDMA_PS_IB == 0x13f);
CHECK(IBV_QPT_RC == 2 && IBV_QPT_UC == 3 && IBV_QPT_UD == 4 && IBV_QPT_XRC_SEND == 9 && IBV_QPT_XRC_RECV == 10);
CHECK(AF_IB == 27);
#ifdef OFI_RDMA_ADDRINFO_H
CHECK(RAI_SA == 0x10 && RAI_DNS == 0x20);
CHECK(EAI_QPTYPE == EAI_SERVICE + 1 && EAI_QPTYPE == -7);
CHECK(EAI_BADFLAGS == -1 && EAI_NONAME == -2 && EAI_AGAIN == -3 && EAI_FAIL == -4 && EAI_NODATA == -5);
CHECK(EAI_FAMILY == -6 && EAI_SERVICE == -8 && EAI_ADDRFAMILY == -9 && EAI_MEMORY == -10 && EAI_SYSTEM == -11);
#endif

int main(void)
{
	int (*get)(const char *, const char *, const struct rdma_addrinfo *, struct rdma_addrinfo **) = rdma_getaddrinfo;
	void (*put)(struct rdma_addrinfo *) = rdma_freeaddrinfo;

	return !get || !put;
}
