/* What the environment changes: FI_PROVIDER, the choice of interfaces, parameters, logging: fabric(7), fi_provider(3). Each setting is
   tried in a process of its own, for a library reads it once. */
#include "case.h"
#include <dlfcn.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_prov.h>
#include <sys/wait.h>

/* What another process of this program prints for that case, with the settings. */
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

/* The providers that are found, each once, in order, those of this test alone. */
CASE(print_providers)
{
	static const char *known[] = { "tcp", "tcp;ofi_rxm", "udp" };
	struct fi_info *list = NULL, *i;
	size_t seen = 0, n;

	fi_getinfo(API, NULL, NULL, 0, NULL, &list);
	for (i = list; i; i = i->next)
		for (n = 0; n < ARRAY(known); n++)
			if (!strcmp(i->fabric_attr->prov_name, known[n]) && !(seen & 1u << n)) {
				seen |= 1u << n;
				printf("%s ", known[n]);
			}
	fi_freeinfo(list);
}

/* Format, address and domain of every info for tcp. */
CASE(print_interfaces)
{
	struct fi_info *hints = fi_allocinfo(), *list = NULL, *i;

	hints->mode = ~0ULL;
	hints->domain_attr->mr_mode = ~3;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("tcp");
	fi_getinfo(API, NULL, NULL, 0, hints, &list);
	for (i = list; i; i = i->next)
		printf("%u:%s:%s ", i->addr_format, i->domain_attr->name ? i->domain_attr->name : "-", i->src_addr ? "addr" : "none");
	fi_freeinfo(list);
	fi_freeinfo(hints);
}

CASE(print_opening_of_tcp)
{
	struct fi_fabric_attr attr = { .name = "127.0.0.0/8", .prov_name = "tcp", .api_version = API };
	struct fid_fabric *fabric;

	printf("%d", fi_fabric(&attr, &fabric, NULL));
}

CASE(print_parameters)
{
	struct fi_param *params;
	int count = 0, i;

	CHECK(fi_getparams(&params, &count) == 0 && count > 0);
	for (i = 0; i < count; i++)
		printf("%s=%s\n", params[i].name, params[i].value ? params[i].value : "-");
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
	gives("FI_PROVIDER=", "");
	gives("FI_PROVIDER=^", "tcp tcp;ofi_rxm udp ");
	gives("-u FI_PROVIDER", "tcp tcp;ofi_rxm udp ");
	gives("FI_PROVIDER=nobody", "");
	gives("FI_PROVIDER=udp", "udp ");
	gives("FI_PROVIDER=UDP", "udp ");
	gives("FI_PROVIDER=^udp,tcp", "");
	gives("FI_PROVIDER=^UDP", "tcp tcp;ofi_rxm ");
	/* What is hidden opens all the same. */
	CHECK(!strcmp(printed("FI_PROVIDER=udp", "print_opening_of_tcp"), "0"));
}

CASE(provider_filter_layered)
{
	gives("FI_PROVIDER=tcp", "tcp tcp;ofi_rxm ");
	gives("'FI_PROVIDER=tcp;ofi_rxm'", "tcp;ofi_rxm ");
	gives("FI_PROVIDER=ofi_rxm", "");
	gives("'FI_PROVIDER=ofi_rxm;tcp'", "");
	gives("FI_PROVIDER=^tcp", "udp ");
	CHECK(strstr(printed("FI_PROVIDER=^ofi_rxm", "print_providers"), "tcp "));
	CHECK(!strstr(printed("FI_PROVIDER=^ofi_rxm", "print_providers"), "ofi_rxm"));
	gives("FI_PROVIDER=udp,tcp", "tcp tcp;ofi_rxm udp ");
}

CASE_OURS(provider_order_is_fixed)
{
	static const char *settings[] = { "-u FI_PROVIDER", "FI_PROVIDER=^ofi_rxm", "FI_PROVIDER=udp,tcp" };
	size_t n;

	/* Endpoints without connections first, connected ones last, whatever is left out. */
	for (n = 0; n < ARRAY(settings); n++) {
		const char *out = printed(settings[n], "print_order"), *udp = strstr(out, "udp:2 "), *msg = strstr(out, "tcp:1 ");

		CHECK(!strncmp(out, "tcp:3 ", 6) && udp && msg && udp < msg && !strstr(msg, "udp") && !strstr(udp, "tcp:3"));
	}
}

CASE(print_order)
{
	struct fi_info *list = NULL, *i;

	fi_getinfo(API, NULL, NULL, 0, NULL, &list);
	for (i = list; i; i = i->next)
		if (!strncmp(i->fabric_attr->prov_name, "tcp", 3) || !strcmp(i->fabric_attr->prov_name, "udp"))
			printf("%s:%d ", i->fabric_attr->prov_name, i->ep_attr->type);
	fi_freeinfo(list);
}

CASE(getinfo_env_filters)
{
	const char *out = printed("FI_TCP_IFACE=lo", "print_interfaces");

	CHECK(strstr(out, ":lo:addr") && !strstr(out, "eth"));
	out = printed("FI_TCP_IFACE=no-such-interface", "print_interfaces");
	CHECK(!strstr(out, ":addr"));
}

CASE_OURS(address_format_of_the_environment)
{
	const char *out = printed("FI_ADDR_FORMAT=FI_SOCKADDR_IN6 FI_TCP_IFACE=lo", "print_interfaces");
	CHECK(!strstr(out, "2:lo"));
	out = printed("FI_ADDR_FORMAT=FI_SOCKADDR_IN FI_TCP_IFACE=lo", "print_interfaces");
	CHECK(strstr(out, "2:lo:addr") && !strstr(out, "3:lo"));
}

CASE_OURS(interfaces_by_list_and_network)
{
	CHECK(!strcmp(printed("FI_TCP_IFACE=127.0.0.0/8", "print_interfaces"), printed("FI_TCP_IFACE=lo FI_ADDR_FORMAT=FI_SOCKADDR_IN",
		"print_interfaces")) || strstr(printed("FI_TCP_IFACE=127.0.0.0/8", "print_interfaces"), "2:lo:addr"));
	CHECK(!strstr(printed("FI_TCP_IFACE=^lo", "print_interfaces"), ":lo:"));
	CHECK(strstr(printed("FI_TCP_IFACE=nobody,lo", "print_interfaces"), ":lo:addr"));
}

CASE(params_listed_and_read)
{
	const char *out = printed("FI_LOG_LEVEL=warn FI_TCP_IFACE=lo FI_UNHEARD_OF=1", "print_parameters");

	CHECK(strstr(out, "FI_LOG_LEVEL=warn\n") || strstr(out, "FI_LOG_LEVEL=Warn\n"));
	CHECK(strstr(out, "FI_TCP_IFACE=lo\n") && strstr(out, "FI_PROVIDER=-\n"));
	CHECK(!strstr(out, "FI_UNHEARD_OF"));
}

CASE(library_load_and_unload)
{
	int n, status;

	/* Each of them may be the first call of a program. */
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
	/* Loaded, used and given up, again and again. */
	for (n = 0; n < 20; n++) {
		int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
		void (*freeinfo)(struct fi_info *);
		struct fi_info *info;
		void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);

		CHECK(library);
		*(void **) &getinfo = dlsym(library, "fi_getinfo");
		*(void **) &freeinfo = dlsym(library, "fi_freeinfo");
		CHECK(getinfo(API, NULL, NULL, 0, NULL, &info) == 0);
		freeinfo(info);
		CHECK(dlclose(library) == 0);
	}
}

CASE_OURS(one_reason_for_an_empty_answer)
{
	const char *out = printed("FI_LOG_LEVEL=warn", "ask_for_the_impossible 2>&1");

	/* One block that names provider, field, wanted and offered; nothing at the level that is on without asking. */
	CHECK(strstr(out, "udp") && strstr(out, "ep_attr->") && strstr(out, "FI_PROTO"));
	CHECK(!strcmp(printed("-u FI_LOG_LEVEL", "ask_for_the_impossible 2>&1"), ""));
}

CASE(ask_for_the_impossible)
{
	struct fi_info *hints = fi_allocinfo(), *list;

	hints->ep_attr->protocol = FI_PROTO_RDMA_CM_IB_RC;
	hints->domain_attr->mr_mode = ~3;
	hints->mode = ~0ULL;
	hints->ep_attr->type = FI_EP_DGRAM;
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

/* Callbacks that take the log look at the provider's name. */
CASE_OURS(log_callbacks_are_told_who_speaks)
{
	static struct fi_ops_log ops = { .size = sizeof(ops), .enabled = log_enabled, .log = log_line };
	static struct fid_logging logging = { .fid = { .fclass = 0 }, .ops = &ops };
	struct fi_info *hints = fi_allocinfo(), *info;

	logging.fid.context = NULL;
	if (fi_import_log(FI_VERSION(1, 13), 0, &logging) != 0)
		SKIP("these headers import it otherwise");
	hints->fabric_attr->prov_name = strdup("nobody");
	CHECK(fi_getinfo(API, NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	CHECK(heard);
	fi_freeinfo(hints);
}
