/* Values as text, errors as text, versions: fi_tostr(3), fi_errno(3), fi_version(3), fi_nic(3). */
#include "case.h"

/* Types by number: older headers do not name all of them. */
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

/* Those words stand in the text in that order. */
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

CASE(tostr_buffer_rules)
{
	int type = FI_EP_RDM;
	char small[6];
	char *first = fi_tostr(&type, FI_TYPE_EP_TYPE);

	/* One buffer of the process, or the caller's, which is never overrun and always ends. */
	CHECK(!strcmp(first, "FI_EP_RDM"));
	type = FI_EP_MSG;
	CHECK(fi_tostr(&type, FI_TYPE_EP_TYPE) == first && !strcmp(first, "FI_EP_MSG"));
	memset(small, 'x', sizeof(small));
	CHECK(fi_tostr_r(small, sizeof(small) - 1, &type, FI_TYPE_EP_TYPE) == small);
	CHECK(strlen(small) < sizeof(small) - 1 && !strncmp(small, "FI_", 3) && small[sizeof(small) - 1] == 'x');
	CHECK(!strcmp(first, "FI_EP_MSG"));
}

CASE(tostr_null_and_nothing)
{
	struct fi_info *info = fi_allocinfo();

	info->tx_attr->size = 7;
	free(info->rx_attr);
	info->rx_attr = NULL;
	IN_ORDER(shown(info, INFO), "fi_info:", "fi_tx_attr:", "size: 7", "fi_rx_attr: (null)", "fi_ep_attr:");
	info->rx_attr = calloc(1, sizeof(*info->rx_attr));
	fi_freeinfo(info);
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
	struct side s;
	char pointer[32];

	open_side(&s, &RDM);
	/* What the provider's own function says, or the pointer. */
	shown(&s.ep->fid, OBJECT);
	snprintf(pointer, sizeof(pointer), "%p", (void *) &s.ep->fid);
	CHECK(strlen(text) > 0 && (strncmp(text, "fid: ", 5) || strstr(text, pointer)));
	close_side(&s);
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
	uint32_t version = 0;
	int number;

	CHECK(fi_version() >= HEADERS || fi_version() >= FI_VERSION(2, 0));
	CHECK(FI_MAJOR(fi_version()) >= 1 && fi_version() < FI_VERSION(3, 0));
	CHECK(strlen(shown(&version, VERSION)) > 0);
	CHECK(*text >= '0' && *text <= '9' && strchr(text, '.'));
	for (number = 0; number <= 133; number++)
		CHECK(fi_strerror(number) && *fi_strerror(number));
	for (number = FI_EOTHER; number <= FI_ENOAV; number++) {
		CHECK(fi_strerror(number) && *fi_strerror(number));
		CHECK(number == FI_EOTHER || strcmp(fi_strerror(number), fi_strerror(number - 1)));
	}
	CHECK(fi_strerror(-1) && fi_strerror(1 << 30));
}
