/* Values as text, errors as text, versions: fi_tostr(3), fi_errno(3), fi_version(3), fi_nic(3). */
#include "case.h"
#include <stddef.h>

/* Types by number: older headers lack some names. */
enum { INFO, EP_TYPE, CAPS, OP_FLAGS, FORMAT, TX, RX, EP, DOMAIN, FABRIC, THREADING, PROGRESS, PROTOCOL, ORDER, MODE, AV_KIND,
	ATOMIC_TYPE, ATOMIC_OP, VERSION, EQ_EVENT, CQ_FLAGS, MR_MODE, OP_TYPE, OBJECT, COLLECTIVE, HMEM, CQ_FORMAT, LOG_LEVEL,
	LOG_SUBSYS, AV_ATTR, CQ_ATTR, MR_ATTR, CNTR_ATTR, CQ_ERR, WAIT_COND, WAIT_OBJ };

static char text[16384];

static const char *shown(const void *data, int type)
{
	CHECK(fi_tostr_r(text, sizeof(text), data, (enum fi_type) type) == text);
	return text;
}

static const char *word(int value, int type)
{
	return shown(&value, type);
}

static const char *set(uint64_t bits, int type)
{
	return shown(&bits, type);
}

/* Checks that the text has these words in this order. */
static void in_order(const char *where, const char *const words[])
{
	for (; *words; words++) {
		const char *found = strstr(where, *words);

		if (!found)
			fprintf(stderr, "no \"%s\" in\n%s\n", *words, where);
		CHECK(found);
		where = found + strlen(*words);
	}
}
#define IN_ORDER(where, ...) in_order(where, (const char *const[]) { __VA_ARGS__, NULL })

static struct fi_info *one(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	hints->mode = ~0ULL;
	hints->domain_attr->mode = ~0ULL;
	hints->domain_attr->mr_mode = ~3;
	hints->fabric_attr->prov_name = strdup(provider);
	CHECK(fi_getinfo(API, "127.0.0.1", NULL, FI_SOURCE, hints, &info) == 0);
	fi_freeinfo(hints);
	return info;
}

static void *from_a_thread(void *type)
{
	return fi_tostr(type, FI_TYPE_EP_TYPE);
}

CASE(tostr_buffer_rules)
{
	int type = FI_EP_RDM;
	char small[6];
	char *first = fi_tostr(&type, FI_TYPE_EP_TYPE);
	struct fi_info *info = fi_allocinfo();
	pthread_t thread;
	void *other;

	/*
	 * fi_tostr uses one buffer per process; fi_tostr_r uses the caller's, never overruns it and
	 * always terminates it.
	 */
	CHECK(!strcmp(first, "FI_EP_RDM"));
	type = FI_EP_MSG;
	CHECK(fi_tostr(&type, FI_TYPE_EP_TYPE) == first && !strcmp(first, "FI_EP_MSG"));
	memset(small, 'x', sizeof(small));
	CHECK(fi_tostr_r(small, sizeof(small) - 1, &type, FI_TYPE_EP_TYPE) == small);
	CHECK(strlen(small) < sizeof(small) - 1 && !strncmp(small, "FI_", 3) && small[sizeof(small) - 1] == 'x');
	CHECK(!strcmp(first, "FI_EP_MSG"));
	/* All threads share it. */
	CHECK(pthread_create(&thread, NULL, from_a_thread, &type) == 0 && pthread_join(thread, &other) == 0);
	CHECK(other == first);
	/* Its size is 8192 bytes. */
	info->domain_attr->name = malloc(20001);
	memset(info->domain_attr->name, 'n', 20000);
	info->domain_attr->name[20000] = 0;
	CHECK(fi_tostr(info, FI_TYPE_INFO) == first && strlen(first) > 8000 && strlen(first) < 8192);
	fi_freeinfo(info);
}

CASE(tostr_null_and_nothing)
{
	struct fi_info *info = fi_allocinfo(), none = { 0 };

	info->tx_attr->size = 7;
	free(info->rx_attr);
	info->rx_attr = NULL;
	IN_ORDER(shown(info, INFO), "fi_info:", "fi_tx_attr:", "size: 7", "fi_rx_attr: (null)", "fi_ep_attr:");
	fi_freeinfo(info);
	IN_ORDER(shown(&none, INFO), "fi_info:", "fi_tx_attr: (null)", "fi_rx_attr: (null)", "fi_ep_attr: (null)",
		"fi_domain_attr: (null)", "fi_fabric_attr: (null)", "nic: (nil)");
}

CASE(tostr_info_block)
{
	struct fi_info *info = one("tcp");
	const char *line;
	size_t spaces;

	shown(info, INFO);
	IN_ORDER(text, "fi_info:", "    caps: [ ", "    mode: [ ", "    addr_format: FI_SOCKADDR_IN", "    src_addrlen: 16",
		"    dest_addrlen: 0", "    src_addr: fi_sockaddr_in://127.0.0.1:", "    dest_addr: (null)",
		"    handle: (nil)", "    fi_tx_attr:", "    fi_rx_attr:", "    fi_ep_attr:", "    fi_domain_attr:",
		"    fi_fabric_attr:", "    nic: (nil)");
	CHECK(strstr(text, "mode: [  ]\n"));
	CHECK(strstr(text, "\n        tclass: 0x0\n"));
	CHECK(strstr(text, "\n        mem_tag_format: 0xaaaaaaaaaaaaaaaa\n"));
	for (line = text; line && *line; line = strchr(line, '\n'), line += !!line) {
		spaces = strspn(line, " ");
		CHECK(spaces % 4 == 0 && !memchr(line, '\t', strcspn(line, "\n")));
	}
	info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	CHECK(strstr(shown(info, INFO), "\n        tx_ctx_cnt: FI_SHARED_CONTEXT\n"));
	fi_freeinfo(info);
}

CASE(tostr_attr_blocks)
{
	struct fi_info *info = one("tcp");
	struct fi_cq_attr cq = { .size = 5, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD };
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = 9 };
	struct fi_cq_err_entry err = { .len = 11, .tag = 3, .err = FI_ETRUNC, .prov_errno = 42 };
	struct fi_cntr_attr cntr = { .events = FI_CNTR_EVENTS_COMP };

	IN_ORDER(shown(info->tx_attr, TX), "fi_tx_attr:", "caps:", "mode:", "op_flags:", "msg_order:", "inject_size:", "size:", "iov_limit:",
		"rma_iov_limit:", "tclass:");
	CHECK(!strstr(text, "comp_order"));
	IN_ORDER(shown(info->rx_attr, RX), "fi_rx_attr:", "caps:", "mode:", "op_flags:", "msg_order:", "size:", "iov_limit:");
	CHECK(!strstr(text, "comp_order") && !strstr(text, "total_buffered_recv"));
	IN_ORDER(shown(info->ep_attr, EP), "fi_ep_attr:", "type: FI_EP_", "protocol: FI_PROTO_", "protocol_version:", "max_msg_size:",
		"msg_prefix_size:", "max_order_raw_size:", "max_order_war_size:", "max_order_waw_size:", "mem_tag_format:",
		"tx_ctx_cnt:", "rx_ctx_cnt:", "auth_key_size:");
	IN_ORDER(shown(info->domain_attr, DOMAIN), "fi_domain_attr:", "domain: (nil)", "name: lo", "threading: FI_THREAD_",
		"progress: FI_PROGRESS_", "resource_mgmt: FI_RM_", "av_type: FI_AV_", "mr_mode: [", "mr_key_size:", "cq_data_size:",
		"cq_cnt:", "ep_cnt:", "tx_ctx_cnt:", "rx_ctx_cnt:", "max_ep_tx_ctx:", "max_ep_rx_ctx:", "max_ep_stx_ctx:",
		"max_ep_srx_ctx:", "cntr_cnt:", "mr_iov_limit:", "caps: [", "mode: [", "auth_key_size:", "max_err_data:", "mr_cnt:",
		"tclass:", "max_ep_auth_key:", "max_group_id:", "max_cntr_value:", "max_err_cntr_value:");
	CHECK(!strstr(text, "control_progress"));
	IN_ORDER(shown(info->fabric_attr, FABRIC), "fi_fabric_attr:", "name:", "prov_name: tcp", "prov_version:", "api_version:");
	fi_freeinfo(info);
	IN_ORDER(shown(&av, AV_ATTR), "    ", "type: FI_AV_TABLE", "count: 9");
	IN_ORDER(shown(&cq, CQ_ATTR), "    ", "size: 5", "format: FI_CQ_FORMAT_DATA", "wait_obj: FI_WAIT_FD");
	CHECK(strstr(shown(&cntr, CNTR_ATTR), "FI_CNTR_EVENTS_COMP"));
	if (fi_version() >= FI_VERSION(2, 0))
		IN_ORDER(shown(&err, CQ_ERR), "len: 11", "tag: ", "prov_errno:");
}

CASE(tostr_enum_names)
{
	static const struct { int type, value; const char *name; } names[] = {
		{ EP_TYPE, FI_EP_UNSPEC, "FI_EP_UNSPEC" }, { EP_TYPE, FI_EP_MSG, "FI_EP_MSG" }, { EP_TYPE, FI_EP_DGRAM, "FI_EP_DGRAM" },
		{ EP_TYPE, FI_EP_RDM, "FI_EP_RDM" }, { EP_TYPE, 999, "Unknown" },
		{ FORMAT, FI_FORMAT_UNSPEC, "FI_FORMAT_UNSPEC" }, { FORMAT, FI_SOCKADDR, "FI_SOCKADDR" },
		{ FORMAT, FI_SOCKADDR_IN, "FI_SOCKADDR_IN" }, { FORMAT, FI_SOCKADDR_IN6, "FI_SOCKADDR_IN6" },
		{ FORMAT, FI_ADDR_STR, "FI_ADDR_STR" }, { FORMAT, 999, "Unknown" },
		{ THREADING, FI_THREAD_SAFE, "FI_THREAD_SAFE" }, { THREADING, FI_THREAD_DOMAIN, "FI_THREAD_DOMAIN" },
		{ THREADING, FI_THREAD_COMPLETION, "FI_THREAD_COMPLETION" }, { THREADING, 999, "Unknown" },
		{ PROGRESS, FI_PROGRESS_AUTO, "FI_PROGRESS_AUTO" }, { PROGRESS, FI_PROGRESS_MANUAL, "FI_PROGRESS_MANUAL" },
		{ PROTOCOL, FI_PROTO_UDP, "FI_PROTO_UDP" }, { PROTOCOL, FI_PROTO_SOCK_TCP, "FI_PROTO_SOCK_TCP" },
		{ PROTOCOL, FI_PROTO_RXM, "FI_PROTO_RXM" }, { PROTOCOL, 0x7fff0000, "Unknown" },
		{ AV_KIND, FI_AV_MAP, "FI_AV_MAP" }, { AV_KIND, FI_AV_TABLE, "FI_AV_TABLE" },
		{ ATOMIC_TYPE, FI_INT8, "FI_INT8" }, { ATOMIC_TYPE, FI_UINT64, "FI_UINT64" }, { ATOMIC_TYPE, FI_DOUBLE, "FI_DOUBLE" },
		{ ATOMIC_OP, FI_MIN, "FI_MIN" }, { ATOMIC_OP, FI_CSWAP, "FI_CSWAP" }, { ATOMIC_OP, 999, "Unknown" },
		{ EQ_EVENT, FI_CONNREQ, "FI_CONNREQ" }, { EQ_EVENT, FI_CONNECTED, "FI_CONNECTED" }, { EQ_EVENT, FI_SHUTDOWN, "FI_SHUTDOWN" },
		{ EQ_EVENT, FI_JOIN_COMPLETE, "FI_JOIN_COMPLETE" }, { EQ_EVENT, 999, "Unknown" },
		{ OP_TYPE, 0, "FI_OP_RECV" }, { OP_TYPE, 1, "FI_OP_SEND" },
		{ COLLECTIVE, FI_BARRIER, "FI_BARRIER" }, { COLLECTIVE, FI_ALLREDUCE, "FI_ALLREDUCE" },
		{ HMEM, FI_HMEM_SYSTEM, "FI_HMEM_SYSTEM" }, { HMEM, FI_HMEM_CUDA, "FI_HMEM_CUDA" },
		{ CQ_FORMAT, FI_CQ_FORMAT_TAGGED, "FI_CQ_FORMAT_TAGGED" }, { CQ_FORMAT, 999, "Unknown" },
		{ LOG_LEVEL, 0, "warn" }, { LOG_SUBSYS, 0, "core" }, { LOG_SUBSYS, 1, "fabric" },
		{ WAIT_COND, FI_CQ_COND_NONE, "FI_CQ_COND_NONE" }, { WAIT_COND, FI_CQ_COND_THRESHOLD, "FI_CQ_COND_THRESHOLD" },
		{ WAIT_OBJ, FI_WAIT_NONE, "FI_WAIT_NONE" }, { WAIT_OBJ, FI_WAIT_FD, "FI_WAIT_FD" },
		{ WAIT_OBJ, FI_WAIT_MUTEX_COND, "FI_WAIT_MUTEX_COND" }, { WAIT_OBJ, 999, "Unknown" },
	};
	size_t i;

	for (i = 0; i < ARRAY(names); i++) {
		const char *name = word(names[i].value, names[i].type);

		if (strcmp(name, names[i].name))
			fprintf(stderr, "type %d, value %d: %s, not %s\n", names[i].type, names[i].value, name, names[i].name);
		CHECK(!strcmp(name, names[i].name));
	}
	CHECK(!strcmp(word(0, 999), "Unknown type"));
}

CASE(tostr_flag_sets)
{
	CHECK(!strcmp(set(FI_RMA | FI_MSG | FI_SOURCE | FI_SEND | FI_TAGGED, CAPS), "FI_MSG, FI_RMA, FI_TAGGED, FI_SEND, FI_SOURCE"));
	CHECK(!strcmp(set(FI_REMOTE_COMM | FI_LOCAL_COMM | FI_MULTI_RECV, CAPS), "FI_MULTI_RECV, FI_LOCAL_COMM, FI_REMOTE_COMM"));
	CHECK(!strcmp(set(0, CAPS), "") && !strcmp(set(1, CAPS), ""));
	CHECK(!strcmp(set(FI_COMPLETION | FI_INJECT | FI_MORE, OP_FLAGS), "FI_MORE, FI_COMPLETION, FI_INJECT"));
	CHECK(!strcmp(set(FI_PEEK | FI_DISCARD | FI_CLAIM, OP_FLAGS), "FI_PEEK, FI_CLAIM, FI_DISCARD"));
	CHECK(!strcmp(set(FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_WAW, ORDER), "FI_ORDER_RAR, FI_ORDER_WAW, FI_ORDER_SAS"));
	CHECK(!strcmp(set(FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA, MODE), "FI_CONTEXT, FI_RX_CQ_DATA, FI_CONTEXT2"));
	CHECK(!strcmp(word(FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY, MR_MODE), "FI_MR_LOCAL, FI_MR_ALLOCATED, FI_MR_PROV_KEY"));
	CHECK(!strcmp(set(FI_SEND | FI_MSG, CQ_FLAGS), "FI_SEND, FI_MSG"));
}

CASE(tostr_fid)
{
	struct fi_ops ops = { .size = sizeof(ops) };
	struct fid fid = { .fclass = FI_CLASS_EP, .ops = &ops };
	char pointer[32];

	/* The pointer, unless the object has its own function. */
	snprintf(pointer, sizeof(pointer), "fid: %p", (void *) &fid);
	CHECK(strstr(shown(&fid, OBJECT), pointer));
}

CASE(tostr_nic_block)
{
	struct fi_info *list, *i;
	const char *nic;

	CHECK(fi_getinfo(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i && !i->nic; i = i->next)
		;
	if (!i)
		SKIP("no network card here");
	shown(i, INFO);
	nic = strstr(text, "\n    nic:\n");
	CHECK(nic);
	IN_ORDER(nic, "        fi_device_attr:", "name:", "device_id:", "device_version:", "vendor_id:", "driver:", "firmware:",
		"        fi_bus_attr:", "bus_type:", "        fi_link_attr:", "address:", "mtu:", "speed:", "state:",
		"network_type:");
	if (i->nic->bus_attr && i->nic->bus_attr->bus_type == FI_BUS_PCI)
		IN_ORDER(nic, "fi_pci_attr:", "domain_id:", "bus_id:", "device_id:", "function_id:");
	fi_freeinfo(list);
}

CASE(strerror_and_version)
{
	int number, last = fi_version() >= FI_VERSION(2, 2) ? 271 : FI_ENOAV;
	uint32_t version = 0;
	char first[128];

	CHECK(fi_version() >= HEADERS || fi_version() >= FI_VERSION(2, 0));
	CHECK(FI_MAJOR(fi_version()) >= 1 && fi_version() < FI_VERSION(3, 0));
	CHECK(strlen(shown(&version, VERSION)) > 0);
	CHECK(*text >= '0' && *text <= '9' && strchr(text, '.'));
	/* The data is ignored. */
	snprintf(first, sizeof(first), "%.127s", text);
	version = 0xffffffff;
	CHECK(!strcmp(shown(&version, VERSION), first));
	for (number = 0; number <= 133; number++)
		CHECK(fi_strerror(number) && *fi_strerror(number));
	for (number = FI_EOTHER; number <= last; number++) {
		CHECK(fi_strerror(number) && *fi_strerror(number));
		CHECK(number == FI_EOTHER || strcmp(fi_strerror(number), fi_strerror(number - 1)));
		CHECK(number == FI_EOTHER || strcmp(fi_strerror(number), fi_strerror(FI_EOTHER)));
	}
	CHECK(fi_strerror(-1) && fi_strerror(1 << 30));
}

/*
 * Without FI_XPU and FI_MR_XPU_DESC, which are not released yet: tostr_values_of_each_kind has
 * them.
 */
CASE(tostr_every_flag)
{
	CHECK(!strcmp(set(~(1ULL << 44), CAPS), "FI_MSG, FI_RMA, FI_TAGGED, FI_ATOMIC, FI_MULTICAST, FI_COLLECTIVE, FI_READ, FI_WRITE, FI_RECV, "
		"FI_SEND, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_MULTI_RECV, FI_REMOTE_CQ_DATA, FI_TRIGGER, FI_FENCE, FI_RMA_PMEM, "
		"FI_SOURCE_ERR, FI_LOCAL_COMM, FI_REMOTE_COMM, FI_SHARED_AV, FI_RMA_EVENT, FI_SOURCE, FI_NAMED_RX_CTX, "
		"FI_DIRECTED_RECV, FI_AV_USER_ID, FI_PEER, FI_HMEM"));
	/* The receive capabilities of 2.0. */
	CHECK(!strcmp(set(1ULL << 45 | 1ULL << 46 | 1ULL << 48, CAPS), ""));
	CHECK(!strcmp(set(~0ULL, OP_FLAGS), "FI_MULTICAST, FI_MULTI_RECV, FI_REMOTE_CQ_DATA, FI_MORE, FI_PEEK, FI_TRIGGER, FI_FENCE, "
		"FI_COMPLETION, FI_INJECT, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE, "
		"FI_AFFINITY, FI_CLAIM, FI_DISCARD"));
	CHECK(!strcmp(set(FI_COMMIT_COMPLETE, OP_FLAGS), ""));
	CHECK(!strcmp(set(~0ULL, ORDER), "FI_ORDER_RAR, FI_ORDER_RAW, FI_ORDER_RAS, FI_ORDER_WAR, FI_ORDER_WAW, FI_ORDER_WAS, "
		"FI_ORDER_SAR, FI_ORDER_SAW, FI_ORDER_SAS, FI_ORDER_RMA_RAR, FI_ORDER_RMA_RAW, FI_ORDER_RMA_WAR, FI_ORDER_RMA_WAW, "
		"FI_ORDER_ATOMIC_RAR, FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_ATOMIC_WAW"));
	CHECK(!strcmp(set(~0ULL, MODE), "FI_CONTEXT, FI_MSG_PREFIX, FI_ASYNC_IOV, FI_RX_CQ_DATA, FI_LOCAL_MR, FI_CONTEXT2"));
	CHECK(!strcmp(word(~(1 << 12), MR_MODE), "FI_MR_BASIC, FI_MR_SCALABLE, FI_MR_LOCAL, FI_MR_RAW, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, "
		"FI_MR_PROV_KEY, FI_MR_MMU_NOTIFY, FI_MR_RMA_EVENT, FI_MR_ENDPOINT, FI_MR_HMEM, FI_MR_COLLECTIVE"));
	/* Completions no longer have FI_MORE and FI_CLAIM. */
	CHECK(!strcmp(set(~(FI_MORE | FI_CLAIM), CQ_FLAGS), "FI_SEND, FI_RECV, FI_RMA, FI_ATOMIC, FI_MSG, FI_TAGGED, FI_READ, FI_WRITE, "
		"FI_REMOTE_READ, FI_REMOTE_WRITE, FI_REMOTE_CQ_DATA, FI_MULTI_RECV"));
}

CASE_OURS(tostr_every_name)
{
	/* The names of a type's values, from 0 up. */
	static const struct { int type; const char *names; } lists[] = {
		{ EP_TYPE, "FI_EP_UNSPEC FI_EP_MSG FI_EP_DGRAM FI_EP_RDM Unknown" },
		{ FORMAT, "FI_FORMAT_UNSPEC FI_SOCKADDR FI_SOCKADDR_IN FI_SOCKADDR_IN6 FI_SOCKADDR_IB Unknown Unknown Unknown FI_ADDR_MLX "
			"FI_ADDR_STR FI_ADDR_PSMX2 FI_ADDR_IB_UD FI_ADDR_EFA FI_ADDR_PSMX3 FI_ADDR_OPX FI_ADDR_CXI FI_ADDR_UCX "
			"FI_SOCKADDR_IP Unknown" },
		{ THREADING, "FI_THREAD_UNSPEC FI_THREAD_SAFE FI_THREAD_FID FI_THREAD_DOMAIN FI_THREAD_COMPLETION FI_THREAD_ENDPOINT Unknown" },
		{ PROGRESS, "FI_PROGRESS_UNSPEC FI_PROGRESS_AUTO FI_PROGRESS_MANUAL FI_PROGRESS_CONTROL_UNIFIED Unknown" },
		{ PROTOCOL, "FI_PROTO_UNSPEC FI_PROTO_RDMA_CM_IB_RC FI_PROTO_IWARP FI_PROTO_IB_UD Unknown FI_PROTO_UDP FI_PROTO_SOCK_TCP "
			"Unknown FI_PROTO_IWARP_RDM FI_PROTO_IB_RDM Unknown FI_PROTO_RXM FI_PROTO_RXD FI_PROTO_MLX FI_PROTO_NETWORKDIRECT "
			"FI_PROTO_PSMX2 FI_PROTO_SHM Unknown Unknown FI_PROTO_RDMA_CM_IB_XRC FI_PROTO_EFA FI_PROTO_PSMX3 "
			"FI_PROTO_RXM_TCP FI_PROTO_OPX FI_PROTO_CXI FI_PROTO_XNET Unknown FI_PROTO_UCX FI_PROTO_SM2 FI_PROTO_CXI_RNR "
			"FI_PROTO_LPP FI_PROTO_LNX Unknown" },
		{ AV_KIND, "FI_AV_UNSPEC FI_AV_MAP FI_AV_TABLE Unknown" },
		{ ATOMIC_TYPE, "FI_INT8 FI_UINT8 FI_INT16 FI_UINT16 FI_INT32 FI_UINT32 FI_INT64 FI_UINT64 FI_FLOAT FI_DOUBLE FI_FLOAT_COMPLEX "
			"FI_DOUBLE_COMPLEX FI_LONG_DOUBLE FI_LONG_DOUBLE_COMPLEX" },
		{ ATOMIC_OP, "FI_MIN FI_MAX FI_SUM FI_PROD FI_LOR FI_LAND FI_BOR FI_BAND FI_LXOR FI_BXOR FI_ATOMIC_READ FI_ATOMIC_WRITE "
			"FI_CSWAP FI_CSWAP_NE FI_CSWAP_LE FI_CSWAP_LT FI_CSWAP_GE FI_CSWAP_GT FI_MSWAP Unknown" },
		{ EQ_EVENT, "FI_NOTIFY FI_CONNREQ FI_CONNECTED FI_SHUTDOWN FI_MR_COMPLETE FI_AV_COMPLETE FI_JOIN_COMPLETE Unknown" },
		{ OP_TYPE, "FI_OP_RECV FI_OP_SEND FI_OP_TRECV FI_OP_TSEND FI_OP_READ FI_OP_WRITE FI_OP_ATOMIC FI_OP_FETCH_ATOMIC "
			"FI_OP_COMPARE_ATOMIC FI_OP_CNTR_SET FI_OP_CNTR_ADD Unknown" },
		{ COLLECTIVE, "FI_BARRIER FI_BROADCAST FI_ALLTOALL FI_ALLREDUCE FI_ALLGATHER FI_REDUCE_SCATTER FI_REDUCE FI_SCATTER FI_GATHER "
			"Unknown" },
		{ HMEM, "FI_HMEM_SYSTEM FI_HMEM_CUDA FI_HMEM_ROCR FI_HMEM_ZE FI_HMEM_NEURON FI_HMEM_SYNAPSEAI Unknown" },
		{ CQ_FORMAT, "FI_CQ_FORMAT_UNSPEC FI_CQ_FORMAT_CONTEXT FI_CQ_FORMAT_MSG FI_CQ_FORMAT_DATA FI_CQ_FORMAT_TAGGED Unknown" },
		{ LOG_LEVEL, "warn trace info debug Unknown" },
		{ LOG_SUBSYS, "core fabric domain ep_ctrl ep_data av cq eq mr cntr Unknown" },
		{ WAIT_COND, "FI_CQ_COND_NONE FI_CQ_COND_THRESHOLD Unknown" },
		{ WAIT_OBJ, "FI_WAIT_NONE FI_WAIT_UNSPEC FI_WAIT_SET FI_WAIT_FD FI_WAIT_MUTEX_COND FI_WAIT_YIELD FI_WAIT_POLLFD Unknown" },
	};
	size_t l;

	for (l = 0; l < ARRAY(lists); l++) {
		const char *at = lists[l].names;
		int value = 0, len;
		char name[32];

		for (; sscanf(at, "%31s%n", name, &len) == 1; at += len, value++) {
			if (strcmp(word(value, lists[l].type), name))
				fprintf(stderr, "type %d, value %d: %s, not %s\n", lists[l].type, value, text, name);
			CHECK(!strcmp(text, name));
		}
	}
	/* FI_FLOAT16 to FI_FLOAT8_E5M2, FI_VOID and FI_NOOP. */
	for (l = 16; l < 20; l++)
		CHECK(!strcmp(word((int) l, ATOMIC_TYPE), "Unknown"));
	CHECK(!strcmp(word(256, ATOMIC_TYPE), "Unknown") && !strcmp(word(256, ATOMIC_OP), "Unknown"));
}

/* FI_INT128 and FI_UINT128, which older headers lack. */
CASE(tostr_wide_integers)
{
	CHECK(!strcmp(word(14, ATOMIC_TYPE), "FI_INT128") && !strcmp(word(15, ATOMIC_TYPE), "FI_UINT128"));
}

/* Inside a block too. */
CASE(tostr_unknown_wait_condition)
{
	struct fi_cq_attr cq = { .wait_cond = 99 };

	CHECK(strstr(shown(&cq, CQ_ATTR), "wait_cond: Unknown\n"));
}

static int text_of_mine(const struct fid *fid, char *buf, size_t len)
{
	CHECK(fid && fid->fclass == FI_CLASS_EP);
	snprintf(buf, len, "an object of mine");
	return 0;
}

CASE(tostr_fid_of_its_own)
{
	struct fi_ops ops = { .size = sizeof(ops), .tostr = text_of_mine };
	struct fid fid = { .fclass = FI_CLASS_EP, .ops = &ops };

	CHECK(strstr(shown(&fid, OBJECT), "an object of mine"));
}

CASE_OURS(tostr_queue_blocks)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = 9, .ep_per_node = 2 };
	struct fi_cq_attr cq = { .size = 5, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD, .wait_cond = FI_CQ_COND_THRESHOLD };
	struct fi_cntr_attr cntr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	/* The library reads beyond the structures that older headers declare. */
	static union { struct fi_mr_attr attr; char room[512]; } mr;
	static union { struct fi_cq_err_entry entry; char room[512]; } err;
	char line[32];

	IN_ORDER(shown(&av, AV_ATTR), "    type: FI_AV_TABLE\n", "    count: 9\n", "    ep_per_node: 2\n", "    name: (null)\n", "    flags: ");
	IN_ORDER(shown(&cq, CQ_ATTR), "    size: 5\n", "    flags: ", "    format: FI_CQ_FORMAT_DATA\n", "    wait_obj: FI_WAIT_FD\n",
		"    wait_cond: FI_CQ_COND_THRESHOLD\n");
	IN_ORDER(shown(&cntr, CNTR_ATTR), "    events: FI_CNTR_EVENTS_COMP\n", "    wait_obj: FI_WAIT_UNSPEC\n", "    flags: ");
	mr.attr.iov_count = 2;
	mr.attr.access = FI_SEND | FI_RECV;
	mr.attr.offset = 7;
	mr.attr.requested_key = 9;
	IN_ORDER(shown(&mr, MR_ATTR), "    mr_iov: (nil)\n", "    iov_count: 2\n", "    access: [ FI_RECV, FI_SEND ]\n", "    offset: 7\n",
		"    requested_key: 9\n", "    iface: FI_HMEM_SYSTEM\n");
	err.entry.flags = FI_RECV | FI_TAGGED;
	err.entry.len = 11;
	err.entry.olen = 4;
	err.entry.err = FI_ETRUNC;
	err.entry.prov_errno = 42;
	snprintf(line, sizeof(line), "    err: %d\n", FI_ETRUNC);
	IN_ORDER(shown(&err, CQ_ERR), "    flags: [ FI_RECV, FI_TAGGED ]\n", "    len: 11\n", "    tag: ", "    olen: 4\n", line,
		"    prov_errno: 42\n");
}

CASE_OURS(tostr_values_of_each_kind)
{
	static const unsigned char v6[28] = { 10, 0, 0, 80, [23] = 1 };
	struct fi_tx_attr tx = { .caps = FI_MSG | FI_SEND, .tclass = 0x20a };
	struct fi_fabric_attr fabric = { .prov_name = "x", .prov_version = FI_VERSION(3, 4), .api_version = FI_VERSION(1, 9) };
	struct fi_info *info = fi_allocinfo();
	struct fid fid = { 0 };
	char line[64];

	/* FI_XPU and FI_MR_XPU_DESC come last. */
	CHECK(!strcmp(set(1ULL << 44 | FI_HMEM, CAPS), "FI_HMEM, FI_XPU"));
	CHECK(!strcmp(word(1 << 12 | FI_MR_COLLECTIVE, MR_MODE), "FI_MR_COLLECTIVE, FI_MR_XPU_DESC"));
	IN_ORDER(shown(&tx, TX), "    caps: [ FI_MSG, FI_SEND ]\n", "    mode: [  ]\n", "    tclass: 0x20a\n");
	IN_ORDER(shown(&fabric, FABRIC), "    name: (null)\n", "    prov_name: x\n", "    prov_version: 3.4\n", "    api_version: 1.9\n");
	info->handle = &fid;
	snprintf(line, sizeof(line), "    handle: %p\n", (void *) &fid);
	CHECK(strstr(shown(info, INFO), line));
	info->handle = NULL;
	info->addr_format = FI_SOCKADDR_IN6;
	info->src_addr = malloc(sizeof(v6));
	info->src_addrlen = sizeof(v6);
	memcpy(info->src_addr, v6, sizeof(v6));
	IN_ORDER(shown(info, INFO), "    src_addrlen: 28\n", "    src_addr: fi_sockaddr_in6://[::1]:80\n", "    dest_addr: (null)\n");
	info->addr_format = FI_ADDR_STR;
	strcpy(info->src_addr, "fi_any://thing at all");
	CHECK(strstr(shown(info, INFO), "    src_addr: fi_any://thing at all\n"));
	info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	CHECK(strstr(shown(info, INFO), "\n        rx_ctx_cnt: FI_SHARED_CONTEXT\n"));
	fi_freeinfo(info);
}

CASE_OURS(tostr_nic_of_pci)
{
	struct fi_device_attr device = { .name = "eth7", .device_id = "0x1017", .device_version = "0x00", .vendor_id = "0x15b3",
		.driver = "mlx5_core" };
	struct fi_bus_attr bus = { .bus_type = FI_BUS_PCI, .attr.pci = { 1, 59, 2, 3 } };
	struct fi_link_attr link = { .address = "02:00:00:00:00:01", .mtu = 1500, .speed = 1000, .state = FI_LINK_UP,
		.network_type = "Ethernet" };
	struct fid_nic nic = { .device_attr = &device, .bus_attr = &bus, .link_attr = &link };
	struct fi_info *info = fi_allocinfo();

	info->nic = &nic;
	shown(info, INFO);
	info->nic = NULL;
	IN_ORDER(text, "\n    nic:\n        fi_device_attr:\n            name: eth7\n            device_id: 0x1017\n",
		"            device_version: 0x00\n            vendor_id: 0x15b3\n            driver: mlx5_core\n            firmware: (null)\n",
		"        fi_bus_attr:\n            bus_type: FI_BUS_PCI\n            fi_pci_attr:\n                domain_id: 1\n",
		"                bus_id: 59\n                device_id: 2\n                function_id: 3\n",
		"        fi_link_attr:\n            address: 02:00:00:00:00:01\n            mtu: 1500\n            speed: 1000\n",
		"            state: FI_LINK_UP\n            network_type: Ethernet\n");
	fi_freeinfo(info);
}

static int no_text(const struct fid *fid, char *buf, size_t len)
{
	(void) fid;
	snprintf(buf, len, "half a text");
	return -FI_ENOSYS;
}

static int text_by_the_library(const struct fid *fid, char *buf, size_t len)
{
	enum fi_ep_type type = FI_EP_RDM;

	(void) fid;
	snprintf(buf, len, "of type %s", fi_tostr(&type, FI_TYPE_EP_TYPE));
	return 0;
}

/* An object's own tostr is used; without it, the address is shown. */
CASE_OURS(tostr_calls_the_object)
{
	struct fi_ops ops = { .size = sizeof(ops), .tostr = text_of_mine };
	struct fid object = { .fclass = FI_CLASS_EP, .ops = &ops };
	struct fi_info *list, *i;
	char address[64];

	snprintf(address, sizeof(address), "fid: %p\n", (void *) &object);
	CHECK(!strcmp(shown(&object, OBJECT), "an object of mine"));
	ops.tostr = text_by_the_library;
	CHECK(!strcmp(fi_tostr(&object, (enum fi_type) OBJECT), "of type FI_EP_RDM"));
	ops.tostr = no_text;
	CHECK(!strcmp(shown(&object, OBJECT), address));
	ops.tostr = NULL;
	CHECK(!strcmp(shown(&object, OBJECT), address));
	ops.tostr = text_of_mine;
	ops.size = offsetof(struct fi_ops, tostr);
	CHECK(!strcmp(shown(&object, OBJECT), address));
	object.ops = NULL;
	CHECK(!strcmp(shown(&object, OBJECT), address));
	/* A NIC's own text is the same as in the info. */
	CHECK(fi_getinfo(API, NULL, NULL, 0, NULL, &list) == 0);
	for (i = list; i && !i->nic; i = i->next)
		;
	if (i)
		IN_ORDER(shown(&i->nic->fid, OBJECT), "nic:", "fi_device_attr:", "fi_bus_attr:", "fi_link_attr:");
	fi_freeinfo(list);
}
