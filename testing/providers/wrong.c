/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A loadable provider (fi_provider(3)) that does what the name of its file says, right or wrong:
 * MODE.NAME.VERSION.MAJOR.MINOR-fi.so, with the provider's name, its version, and the interface that
 * it claims to be built for. Tests copy it under many names.
 */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef WRONG_NEEDS
int no_library_has_this(void);
#endif

#define CORE_ONLY	(1ULL << 59)

static char mode[64], name[64];
static unsigned version = 1, major = 2, minor = 6;

static int is(const char *what)
{
	return !strcmp(mode, what);
}

/* What the name of this file says. */
static void read_name(void)
{
	Dl_info here;
	const char *file;

	CHECK(dladdr((void *) read_name, &here));
	file = strrchr(here.dli_fname, '/');
	file = file ? file + 1 : here.dli_fname;
	sscanf(file, "%63[^.].%63[^.].%u.%u.%u", mode, name, &version, &major, &minor);
}

static struct fi_provider provider;

static int close_object(struct fid *fid)
{
	free(fid);
	return 0;
}

static struct fi_ops fid_ops = { .size = sizeof(fid_ops), .close = close_object };
static struct fi_ops_fabric fabric_ops = { .size = sizeof(fabric_ops) };

/* An info as a caller of the library makes it; it has to be all zero. */
static struct fi_info *new_info(void)
{
	struct fi_info *info = fi_allocinfo();
	struct fi_domain_attr none;

	CHECK(info && info->tx_attr && info->rx_attr && info->ep_attr && info->domain_attr && info->fabric_attr);
	memset(&none, 0, sizeof(none));
	CHECK(!memcmp(info->domain_attr, &none, sizeof(none)));
	info->caps = FI_MSG;
	info->ep_attr->type = FI_EP_RDM;
	info->fabric_attr->name = strdup("wrong fabric");
	info->domain_attr->name = strdup("wrong domain");
	return info;
}

/* Infos of what is below this layer. */
static int from_below(uint32_t api, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
		      struct fi_info **info)
{
	struct fi_info *below = hints ? fi_dupinfo(hints) : fi_allocinfo(), *found = NULL, *each;
	char text[256];
	int ret;

	snprintf(text, sizeof(text), "%s;^%s", below->fabric_attr->prov_name ? below->fabric_attr->prov_name : "", name);
	free(below->fabric_attr->prov_name);
	below->fabric_attr->prov_name = strdup(text);
	ret = fi_getinfo(api, node, service, flags | CORE_ONLY, below, &found);
	fi_freeinfo(below);
	if (ret)
		return ret;
	*info = NULL;
	while ((each = found)) {
		found = each->next;
		each->next = *info;
		*info = each;
	}
	return 0;
}

static int getinfo(uint32_t api, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
		   struct fi_info **info)
{
	static struct { struct fi_domain_attr attr; unsigned char more[64]; } *longer;

	if (is("getinfo_crash"))
		raise(SIGSEGV);
	if (is("getinfo_exit"))
		_exit(0);
	if (is("getinfo_error"))
		return -FI_EIO;
	if (is("getinfo_positive"))
		return 5;
	if (is("getinfo_huge"))
		return INT_MIN;
	if (is("getinfo_nothing"))
		return 0;
	if (is("layer"))
		return from_below(api, node, service, flags, hints, info);
	if (hints && hints->domain_attr && hints->domain_attr->name && !strcmp(hints->domain_attr->name, "none of it"))
		return -FI_ENODATA;
	*info = new_info();
	if (is("getinfo_circle"))
		(*info)->next = *info;
	if (is("getinfo_parts")) {
		free((*info)->ep_attr);
		(*info)->ep_attr = NULL;
	}
	if (is("getinfo_pointer"))
		(*info)->fabric_attr->name = (char *) 16;
	if (is("getinfo_nic")) {
		(*info)->nic = calloc(1, sizeof(*(*info)->nic));
		(*info)->nic->fid.fclass = FI_CLASS_NIC;
	}
	if (is("getinfo_name"))
		(*info)->fabric_attr->prov_name = strdup("tcp");
	if (is("short")) {
		/* Headers of 1.13 end a fi_domain_attr after 192 bytes; what follows is not the provider's. */
		longer = calloc(1, sizeof(*longer));
		memcpy(longer, (*info)->domain_attr, 192);
		memset((char *) longer + 192, 0xff, sizeof(*longer) - 192);
		free((*info)->domain_attr);
		(*info)->domain_attr = &longer->attr;
	}
	return 0;
}

static int fabric(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	struct fid_fabric *made;

	CHECK(attr && attr->name && attr->prov_name);
	if (is("fabric_error"))
		return -FI_EACCES;
	if (is("fabric_positive"))
		return 7;
	if (is("fabric_nothing"))
		return 0;
	made = calloc(1, sizeof(*made));
	made->fid.fclass = is("fabric_class") ? FI_CLASS_DOMAIN : FI_CLASS_FABRIC;
	made->fid.context = context;
	made->fid.ops = is("fabric_ops") ? NULL : &fid_ops;
	made->ops = &fabric_ops;
	*out = made;
	return 0;
}

static void cleanup(void)
{
	if (getenv("WRONG_SAYS"))
		fprintf(stderr, "cleanup of %s\n", name);
	if (is("cleanup_crash"))
		raise(SIGSEGV);
}

/* What a process that tries files must not have from the application. */
static void look_around(void)
{
	struct sigaction action;
	struct rlimit core;
	sigset_t mask;
	char exe[256] = "";
	int signal;

	/* An application is no concern of this. */
	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0 || !strstr(exe, "/ld-"))
		return;
	if (fcntl(200, F_GETFD) >= 0)
		_exit(10);
	if (getrlimit(RLIMIT_CORE, &core) || core.rlim_cur)
		_exit(11);
	if (sigprocmask(SIG_SETMASK, NULL, &mask))
		_exit(12);
	for (signal = 1; signal < 32; signal++) {
		if (sigismember(&mask, signal))
			_exit(13);
		if (sigaction(signal, NULL, &action) || action.sa_handler != SIG_DFL)
			_exit(14);
	}
}

static void *ask(void *unused)
{
	struct fi_info *list;

	if (!fi_getinfo(FI_VERSION(2, 6), NULL, NULL, 0, NULL, &list))
		fi_freeinfo(list);
	return unused;
}

/* Leaves the number of this process in a file. */
static void leave_number(void)
{
	const char *file = getenv("WRONG_PID");
	FILE *out = file ? fopen(file, "w") : NULL;

	if (out) {
		fprintf(out, "%d\n", getpid());
		fclose(out);
	}
}

__attribute__((constructor)) static void loading(void)
{
	pthread_t thread;

	read_name();
	if (is("load_looks"))
		look_around();
	if (is("load_asks"))
		ask(NULL);
	if (is("load_waits") && !pthread_create(&thread, NULL, ask, NULL))
		pthread_join(thread, NULL);
	if (is("load_loop"))
		leave_number();
	if (is("load_group"))
		kill(0, SIGKILL);
	if (is("load_abort"))
		abort();
	if (is("load_prints") && write(1, "end\n0 good\ngarbage", 18) < 0)
		abort();
	if (is("load_exit"))
		exit(0);
	if (is("load_loop"))
		for (;;)
			pause();
}

/* Parameters and the log work, as soon as the provider has a name. */
static void use_the_library(void)
{
	char *text = NULL;
	int number = -1, flag = -1;
	size_t size = 0;

	/* What a built-in provider of this name has defined is not this one's. */
	CHECK(fi_param_get_int(&provider, "iface", &number) == -FI_ENOENT && number == -1);
	CHECK(fi_param_define(&provider, "text", FI_PARAM_STRING, "A text of %s", "this provider") == 0);
	CHECK(fi_param_define(&provider, "number", FI_PARAM_INT, "A number") == 0);
	CHECK(fi_param_define(&provider, "flag", FI_PARAM_BOOL, "A flag") == 0);
	CHECK(fi_param_define(&provider, "size", FI_PARAM_SIZE_T, "A size") == 0);
	/* The same variable as one of a built-in provider, with another type. */
	CHECK(fi_param_define(&provider, "iface", FI_PARAM_INT, "A number here") == 0);
	CHECK(fi_param_get_int(&provider, "missing", &number) == -FI_ENOENT && number == -1);
	if (fi_param_get_str(&provider, "text", &text) == 0)
		FI_WARN(&provider, FI_LOG_CORE, "text %s\n", text);
	if (fi_param_get_int(&provider, "number", &number) == 0 && fi_param_get_bool(&provider, "flag", &flag) == 0 &&
	    fi_param_get_size_t(&provider, "size", &size) == 0)
		FI_WARN(&provider, FI_LOG_CORE, "number %d flag %d size %zu\n", number, flag, size);
	if (fi_param_get_int(&provider, "iface", &number) == 0)
		FI_WARN(&provider, FI_LOG_CORE, "iface %d\n", number);
}

FI_EXT_INI
{
	struct fi_info *list;

	provider = (struct fi_provider) {
		.version = FI_VERSION(version, 0), .fi_version = FI_VERSION(major, minor), .name = name,
		.getinfo = getinfo, .fabric = fabric, .cleanup = cleanup,
	};
	if (is("ini_null"))
		return NULL;
	if (is("ini_crash"))
		raise(SIGBUS);
	if (is("ini_exit"))
		_exit(3);
	if (is("name_null"))
		provider.name = NULL;
	if (is("name_empty"))
		provider.name = "";
	if (is("name_semicolon"))
		provider.name = "a;b";
	if (is("fabric_null"))
		provider.fabric = NULL;
	if (is("hook"))
		provider.getinfo = NULL;
	if (is("ini_asks")) {
		/* A provider that asks for providers while it is loaded sees the built-in ones. */
		CHECK(fi_getinfo(FI_VERSION(2, 6), NULL, NULL, 0, NULL, &list) == 0);
		fi_freeinfo(list);
	}
	if (provider.name && *provider.name)
		use_the_library();
#ifdef WRONG_NEEDS
	no_library_has_this();
#endif
	return &provider;
}
