/*
 * Settings in the environment: FI_PROVIDER, the choice of interfaces, parameters, logging:
 * fabric(7), fi_provider(3). Each runs in its own process, since a library reads it once.
 */
#include "case.h"
#include <dlfcn.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_prov.h>
#include <sys/wait.h>

/* The output of another process of this program that runs a case with the settings. */
static const char *printed(const char *settings, const char *name)
{
	static char out[65536];
	char self[4096] = "", command[8192];
	size_t len = 0, n;
	FILE *pipe;

	CHECK(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(command, sizeof(command), "env %s '%s' %s", settings, self, name);
	pipe = popen(command, "r");
	CHECK(pipe);
	while ((n = fread(out + len, 1, sizeof(out) - 1 - len, pipe)) > 0)
		len += n;
	out[len] = 0;
	CHECK(pclose(pipe) == 0);
	return out;
}

/* Prints the providers in the results, in order, each once; only those known to this test. */
HELPER(print_providers)
{
	static const char *known[] = { "tcp", "tcp;ofi_rxm", "shm", "udp" };
	struct fi_info *list = (void *) 1, *i;
	int ret = fi_getinfo(API, NULL, NULL, 0, NULL, &list);
	size_t seen = 0, n;

	CHECK(ret == 0 || (ret == -FI_ENODATA && !list));
	if (!list)
		printf("nothing ");
	for (i = list; i; i = i->next)
		for (n = 0; n < ARRAY(known); n++)
			if (!strcmp(i->fabric_attr->prov_name, known[n]) && !(seen & 1u << n)) {
				seen |= 1u << n;
				printf("%s ", known[n]);
			}
	fi_freeinfo(list);
}

/* Prints the names from FI_PROV_ATTR_ONLY. */
HELPER(print_provider_names)
{
	struct fi_info *list, *i;

	CHECK(fi_getinfo(API, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &list) == 0);
	for (i = list; i; i = i->next)
		printf("%s ", i->fabric_attr->prov_name);
	fi_freeinfo(list);
}

static void print_interfaces_of(const char *provider, enum fi_ep_type type)
{
	struct fi_info *hints = fi_allocinfo(), *list = NULL, *i;

	hints->mode = ~0ULL;
	hints->domain_attr->mr_mode = ~3;
	hints->ep_attr->type = type;
	hints->fabric_attr->prov_name = strdup(provider);
	fi_getinfo(API, NULL, NULL, 0, hints, &list);
	for (i = list; i; i = i->next)
		printf("%u:%s:%s ", i->addr_format, i->domain_attr->name ? i->domain_attr->name : "-", i->src_addr ? "addr" : "none");
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

/* Prints format, domain and address of each info. */
HELPER(print_interfaces)
{
	print_interfaces_of("tcp", FI_EP_RDM);
}

HELPER(print_interfaces_of_udp)
{
	print_interfaces_of("udp", FI_EP_DGRAM);
}

HELPER(print_opening_of_tcp)
{
	struct fi_fabric_attr attr = { .name = "127.0.0.0/8", .prov_name = "tcp", .api_version = API };
	struct fid_fabric *fabric;

	printf("%d", fi_fabric(&attr, &fabric, NULL));
}

HELPER(print_parameters)
{
	struct fi_param *params;
	int count = 0, i;

	CHECK(fi_getparams(&params, &count) == 0 && count > 0);
	for (i = 0; i < count; i++) {
		CHECK(params[i].help_string && *params[i].help_string && params[i].type <= FI_PARAM_SIZE_T);
		printf("%s=%s\n", params[i].name, params[i].value ? params[i].value : "-");
	}
	fi_freeparams(params);
}

static void gives(const char *setting, const char *providers)
{
	const char *out = printed(setting, "print_providers");

	if (strcmp(out, providers))
		fprintf(stderr, "%s gives \"%s\", not \"%s\"\n", setting, out, providers);
	CHECK(!strcmp(out, providers));
}

CASE(provider_filter_env)
{
	gives("FI_PROVIDER=", "nothing ");
	gives("FI_PROVIDER=^", "tcp tcp;ofi_rxm shm udp ");
	gives("-u FI_PROVIDER", "tcp tcp;ofi_rxm shm udp ");
	gives("FI_PROVIDER=none0", "nothing ");
	gives("FI_PROVIDER=udp", "udp ");
	gives("FI_PROVIDER=UDP", "udp ");
	gives("FI_PROVIDER=^udp,tcp", "shm ");
	gives("FI_PROVIDER=^UDP", "tcp tcp;ofi_rxm shm ");
	/* A hidden provider can still be opened. */
	CHECK(!strcmp(printed("FI_PROVIDER=udp", "print_opening_of_tcp"), "0"));
}

/* FI_PROV_ATTR_ONLY lists all provider names, usable or not. */
CASE(prov_attr_only_lists_filtered_providers)
{
	const char *out = printed("FI_PROVIDER=udp FI_TCP_IFACE=none0", "print_provider_names");

	CHECK(strstr(out, "tcp ") && strstr(out, "udp ") && strstr(out, "ofi_rxm ") && strstr(out, "shm "));
}

CASE(provider_filter_layered)
{
	gives("FI_PROVIDER=tcp", "tcp tcp;ofi_rxm ");
	gives("'FI_PROVIDER=tcp;ofi_rxm'", "tcp;ofi_rxm ");
	gives("FI_PROVIDER=ofi_rxm", "nothing ");
	gives("'FI_PROVIDER=ofi_rxm;tcp'", "nothing ");
	gives("FI_PROVIDER=^tcp", "shm udp ");
	CHECK(strstr(printed("FI_PROVIDER=^ofi_rxm", "print_providers"), "tcp "));
	CHECK(!strstr(printed("FI_PROVIDER=^ofi_rxm", "print_providers"), "ofi_rxm"));
	gives("FI_PROVIDER=udp,tcp", "tcp tcp;ofi_rxm udp ");
}

/* Prints provider and endpoint type where they change along the list. */
HELPER(print_order)
{
	struct fi_info *list = NULL, *i;
	char last[64] = "", now[64];

	fi_getinfo(API, NULL, NULL, 0, NULL, &list);
	for (i = list; i; i = i->next) {
		snprintf(now, sizeof(now), "%s:%d ", i->fabric_attr->prov_name, (int) i->ep_attr->type);
		if (strcmp(now, last))
			printf("%s", now);
		strcpy(last, now);
	}
	fi_freeinfo(list);
}

CASE_OURS(provider_order_is_fixed)
{
	static const char *const orders[][2] = {
		{ "-u FI_PROVIDER", "tcp:3 tcp;ofi_rxm:3 shm:3 udp:2 tcp:1 shm:1 " },
		{ "FI_PROVIDER=^ofi_rxm", "tcp:3 shm:3 udp:2 tcp:1 shm:1 " },
		{ "FI_PROVIDER=udp,tcp", "tcp:3 tcp;ofi_rxm:3 udp:2 tcp:1 " },
		{ "FI_PROVIDER=shm", "shm:3 shm:1 " },
	};
	size_t n;

	/* Connectionless endpoints come first, connected ones last, after any filtering. */
	for (n = 0; n < ARRAY(orders); n++) {
		const char *out = printed(orders[n][0], "print_order");

		if (strcmp(out, orders[n][1]))
			fprintf(stderr, "%s: %s\n", orders[n][0], out);
		CHECK(!strcmp(out, orders[n][1]));
	}
}

/* Whether the output has only the loopback interface. */
static int only_lo(const char *out)
{
	const char *at, *end;

	for (at = out; (end = strchr(at, ' ')); at = end + 1)
		if (end - at < 8 || memcmp(end - 8, ":lo:addr", 8))
			return 0;
	return at != out;
}

CASE(getinfo_env_filters)
{
	CHECK(only_lo(printed("FI_TCP_IFACE=lo", "print_interfaces")));
	CHECK(!strstr(printed("FI_TCP_IFACE=no-such-interface", "print_interfaces"), ":addr"));
}

CASE_OURS(address_format_of_the_environment)
{
	const char *out = printed("FI_ADDR_FORMAT=FI_SOCKADDR_IN6 FI_TCP_IFACE=lo", "print_interfaces");
	CHECK(strstr(out, "3:lo:addr") && !strstr(out, "2:lo"));
	out = printed("FI_ADDR_FORMAT=FI_SOCKADDR_IN FI_TCP_IFACE=lo", "print_interfaces");
	CHECK(strstr(out, "2:lo:addr") && !strstr(out, "3:lo"));
}

CASE_OURS(interfaces_by_list_and_network)
{
	static const char *providers[][2] = { { "FI_TCP_IFACE", "print_interfaces" }, { "FI_UDP_IFACE", "print_interfaces_of_udp" } };
	static const struct { const char *value; int only; } values[] = {
		{ "lo", 1 }, { "none0,lo", 1 }, { "127.0.0.0/8", 1 }, { "127.0.0.0/8,::1", 1 }, { "127.0.0.1", 1 },
		/* Without loopback. */
		{ "l", 0 }, { "none0", 0 }, { "^lo", 0 }, { "198.51.100.0/24", 0 }, { "^127.0.0.0/8,::1/128", 0 },
	};
	char setting[64];
	size_t p, v;

	for (p = 0; p < ARRAY(providers); p++)
		for (v = 0; v < ARRAY(values); v++) {
			const char *out;

			snprintf(setting, sizeof(setting), "'%s=%s'", providers[p][0], values[v].value);
			out = printed(setting, providers[p][1]);
			if (values[v].only ? !only_lo(out) : !!strstr(out, ":lo:"))
				fprintf(stderr, "%s gives %s\n", setting, out);
			CHECK(values[v].only ? only_lo(out) : !strstr(out, ":lo:"));
		}
	/*
	 * A value that fits no interface leaves none, and each variable applies to its own
	 * provider.
	 */
	CHECK(!strcmp(printed("FI_TCP_IFACE=none0", "print_interfaces"), ""));
	CHECK(strstr(printed("FI_TCP_IFACE=none0", "print_interfaces_of_udp"), ":lo:addr"));
}

CASE(params_listed_and_read)
{
	const char *out = printed("FI_LOG_LEVEL=warn FI_TCP_IFACE=lo FI_UNHEARD_OF=1", "print_parameters");

	CHECK(strstr(out, "FI_LOG_LEVEL=warn\n") || strstr(out, "FI_LOG_LEVEL=Warn\n"));
	CHECK(strstr(out, "FI_TCP_IFACE=lo\n") && strstr(out, "FI_PROVIDER=-\n"));
	CHECK(!strstr(out, "FI_UNHEARD_OF"));
}

HELPER(print_a_parameter)
{
	char *value = "-";

	/* Works even as the first call. */
	fi_param_get(NULL, "tcp_iface", &value);
	printf("%s", value);
}

HELPER(print_a_changing_parameter)
{
	char *value = "-";

	fi_param_get(NULL, "tcp_iface", &value);
	printf("%s", value);
	/* Each call reads the environment again. */
	setenv("FI_TCP_IFACE", "another", 1);
	CHECK(fi_param_get(NULL, "tcp_iface", &value) == 0 && !strcmp(value, "another"));
	CHECK(fi_param_get(NULL, "unheard_of", &value) == -FI_ENOENT);
}

CASE_OURS(params_from_environment_and_file)
{
	char path[] = "/tmp/ofi-case-XXXXXX", settings[128];
	int fd = mkstemp(path);

	CHECK(fd >= 0 && write(fd, "FI_TCP_IFACE=lo\n", 16) == 16 && close(fd) == 0);
	snprintf(settings, sizeof(settings), "-u FI_TCP_IFACE FI_CONFIG_FILE=%s", path);
	CHECK(!strcmp(printed(settings, "print_a_parameter"), "lo"));
	/* The list shows only the environment. */
	CHECK(strstr(printed(settings, "print_parameters"), "FI_TCP_IFACE=-\n"));
	snprintf(settings, sizeof(settings), "FI_TCP_IFACE=eth7 FI_CONFIG_FILE=%s", path);
	CHECK(!strcmp(printed(settings, "print_a_changing_parameter"), "eth7"));
	/* FI_PREFER_SYSCONFIG gives the file precedence. */
	snprintf(settings, sizeof(settings), "FI_PREFER_SYSCONFIG=1 FI_TCP_IFACE=eth7 FI_CONFIG_FILE=%s", path);
	CHECK(!strcmp(printed(settings, "print_a_parameter"), "lo"));
	CHECK(unlink(path) == 0);
}

CASE(any_call_may_be_the_first)
{
	int n, status;

	/* Each of these may be a program's first call. */
	for (n = 0; n < 3; n++) {
		pid_t child = fork();

		if (!child) {
			struct fi_info *info;
			struct fid_fabric *fabric;
			struct fi_fabric_attr attr = { .name = "127.0.0.0/8", .prov_name = "tcp", .api_version = API };
			struct fi_param *params;
			int count;

			_exit(n == 0 ? fi_getinfo(API, NULL, NULL, 0, NULL, &info) != 0 :
				n == 1 ? fi_fabric(&attr, &fabric, NULL) != 0 : fi_getparams(&params, &count) != 0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
}

/*
 * Loads, uses and closes the library repeatedly. Uses a copy: this program is linked to the library
 * itself and never unloads it.
 */
CASE_OURS(library_unloaded_and_loaded_again)
{
	char line[8192], path[4096] = "", copy[64], command[8192];
	FILE *maps = fopen("/proc/self/maps", "r");
	void *library;
	int n;

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "libfabric.so") && strchr(line, '/'))
			snprintf(path, sizeof(path), "%.*s", (int) strcspn(strchr(line, '/'), "\n"), strchr(line, '/'));
	CHECK(maps && fclose(maps) == 0 && *path);
	snprintf(copy, sizeof(copy), "/tmp/libfabric-%d.so", (int) getpid());
	CHECK(snprintf(command, sizeof(command), "cp '%s' '%s'", path, copy) < (int) sizeof(command) && system(command) == 0);
	for (n = 0; n < 20; n++) {
		int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
		void (*freeinfo)(struct fi_info *);
		struct fi_info *info;

		library = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
		CHECK(library);
		*(void **) &getinfo = dlsym(library, "fi_getinfo");
		*(void **) &freeinfo = dlsym(library, "fi_freeinfo");
		CHECK((void *) getinfo != (void *) fi_getinfo && getinfo(API, NULL, NULL, 0, NULL, &info) == 0);
		freeinfo(info);
		CHECK(dlclose(library) == 0);
	}
	/* The library stays loaded: a thread may still run in it. */
	CHECK(dlopen(copy, RTLD_NOW | RTLD_NOLOAD));
	CHECK(unlink(copy) == 0);
}

CASE_OURS(empty_result_logs_one_reason)
{
	const char *out = printed("FI_LOG_LEVEL=warn", "request_unsupported 2>&1");

	/*
	 * One block that names provider, field, wanted and offered values; nothing at the default
	 * level.
	 */
	CHECK(strstr(out, "udp") && strstr(out, "ep_attr->") && strstr(out, "FI_PROTO"));
	CHECK(!strcmp(printed("-u FI_LOG_LEVEL", "request_unsupported 2>&1"), ""));
}

HELPER(request_unsupported)
{
	struct fi_info *hints = fi_allocinfo(), *list;

	hints->ep_attr->protocol = FI_PROTO_RDMA_CM_IB_RC;
	hints->domain_attr->mr_mode = ~3;
	hints->mode = ~0ULL;
	hints->ep_attr->type = FI_EP_DGRAM;
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
}

/* The reason names only the missing attribute, and why it is missing. */
CASE_OURS(reason_names_what_is_missing)
{
	const char *out = printed("FI_TCP_IFACE=lo FI_LOG_LEVEL=warn", "request_remote_comm 2>&1");

	CHECK(strstr(out, "tcp (FI_EP_RDM): caps: lacks FI_REMOTE_COMM, because lo is the loopback interface"));
	CHECK(strstr(out, "udp (FI_EP_DGRAM): caps: lacks FI_TAGGED\n") && strstr(out, "shm (FI_EP_RDM): caps: lacks FI_REMOTE_COMM\n"));
	CHECK(!strstr(out, "FI_MSG") && !strstr(out, "none that is up"));
	out = printed("FI_LOG_LEVEL=warn", "request_unsupported_level 2>&1");
	CHECK(strstr(out, "tx_attr->op_flags: lacks FI_COMMIT_COMPLETE\n") && strstr(out, "0x") == NULL);
}

HELPER(request_remote_comm)
{
	struct fi_info *hints = fi_allocinfo(), *list;

	hints->caps = FI_MSG | FI_TAGGED | FI_REMOTE_COMM;
	hints->domain_attr->mr_mode = ~3;
	hints->mode = ~0ULL;
	if (fi_getinfo(API, NULL, NULL, 0, hints, &list) == 0)
		fi_freeinfo(list);
	fi_freeinfo(hints);
}

HELPER(request_unsupported_level)
{
	struct fi_info *hints = fi_allocinfo(), *list;

	hints->tx_attr->op_flags = FI_COMMIT_COMPLETE;
	hints->domain_attr->mr_mode = ~3;
	hints->mode = ~0ULL;
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &list) == -FI_ENODATA);
	fi_freeinfo(hints);
}

static int heard;

static int log_enabled(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys, uint64_t flags)
{
	CHECK(prov && prov->name && strlen(prov->name));
	(void) level, (void) subsys, (void) flags;
	return 1;
}

static void log_line(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys, const char *func,
	int line, const char *msg)
{
	CHECK(prov && prov->name && strlen(prov->name));
	(void) level, (void) subsys, (void) func, (void) line;
	heard += strlen(msg) > 0;
}

/* Log callbacks read the provider's name. */
CASE_OURS(log_callbacks_get_the_provider_name)
{
	static struct fi_ops_log ops = { .size = sizeof(ops), .enabled = log_enabled, .log = log_line };
	static struct fid_logging logging = { .fid = { .fclass = 0 }, .ops = &ops };
	struct fi_info *hints = fi_allocinfo(), *info;

	logging.fid.context = NULL;
	if (fi_import_log(FI_VERSION(1, 13), 0, &logging) != 0)
		SKIP("these headers import log callbacks in another way");
	hints->fabric_attr->prov_name = strdup("none0");
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	CHECK(heard);
	fi_freeinfo(hints);
}
