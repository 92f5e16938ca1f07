/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Endpoints of one host, over shm: killed processes, many endpoints, many processes, other
 * namespaces, and leaving nothing behind. One scenario per run.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "scenario.h"
#include "side.h"

enum { MOST = 64, SLOTS = 16, LARGEST = 1 << 20 };

/* State shared by the processes of a scenario. */
static struct board {
	atomic_int ready, victim, settled, stop, failures;
	char names[MOST][64];
} *board;

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	CHECK(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static int count_files(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	if (!dir)
		return 0;
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* Whether a socket on this host has the name. */
static int is_taken(const char *name)
{
	FILE *file = fopen("/proc/net/unix", "r");
	char line[512];
	int found = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		found |= strstr(line, name) != NULL;
	fclose(file);
	return found;
}

/* Number of files in /dev/shm that could be ours. */
static int leftovers(void)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	int count = 0;

	while (dir && (entry = readdir(dir)))
		count += strstr(entry->d_name, "ofi") || strstr(entry->d_name, "fi_");
	if (dir)
		closedir(dir);
	return count;
}

static void share(void)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(board != MAP_FAILED);
}

static unsigned seed;

static unsigned random_below(unsigned limit)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed % limit;
}

struct slot {
	struct fi_context2 context;
	int busy, peer;
	char *bytes;
};

/*
 * A process that sends to all others and receives from each by name, until one is killed: then all
 * operations for the victim end with an error, and all others continue.
 */
static void survivor(int mine, int count)
{
	static struct slot sends[SLOTS], receives[MOST][4];
	int fds = count_fds(), i, k, sending = 0, victim, settled = 0, last = 0;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err;
	fi_addr_t peers[MOST];
	double limit = 0, start = seconds();
	struct side s;

	seed = (unsigned) getpid() * 2654435761u + 1;
	for (i = 0; i < SLOTS; i++)
		sends[i].bytes = calloc(1, LARGEST);
	open_rdm(&s, FI_WAIT_NONE);
	memcpy(board->names[mine], s.name, s.len);
	atomic_fetch_add(&board->ready, 1);
	while (atomic_load(&board->ready) < count)
		sched_yield();
	for (i = 0; i < count; i++)
		peers[i] = insert(&s, board->names[i]);
	for (i = 0; i < count; i++)
		for (k = 0; i != mine && k < 4; k++) {
			receives[i][k] = (struct slot) { .busy = 1, .peer = i, .bytes = malloc(LARGEST) };
			CHECK(fi_trecv(s.ep, receives[i][k].bytes, LARGEST, NULL, peers[i], 1, 0, &receives[i][k]) == 0);
		}
	for (;;) {
		struct slot *slot = NULL;
		int failed = 0, sent;
		ssize_t ret = fi_cq_read(s.cq, &entry, 1);

		victim = atomic_load(&board->victim);
		if (ret == 1) {
			slot = entry.op_context;
			sent = !!(entry.flags & FI_SEND);
		} else if (ret == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			CHECK(fi_cq_readerr(s.cq, &err, 0) == 1);
			slot = err.op_context;
			sent = !!(err.flags & FI_SEND);
			failed = 1;
			/* Only operations for the dead peer fail. */
			CHECK(slot->peer == victim || atomic_load(&board->stop));
			CHECK(err.err == FI_ECONNRESET || err.err == FI_ECONNREFUSED);
		} else {
			CHECK(ret == -FI_EAGAIN);
		}
		if (slot) {
			/* Exactly once. */
			CHECK(slot->busy);
			slot->busy = 0;
			if (sent)
				sending--;
			else if (!failed && slot->peer != victim) {
				slot->busy = 1;
				CHECK(fi_trecv(s.ep, slot->bytes, LARGEST, NULL, peers[slot->peer], 1, 0, slot) == 0);
			}
		}
		if (victim < 0 && sending < SLOTS) {
			for (i = 0; sends[i].busy; i++)
				;
			k = (int) random_below((unsigned) count);
			if (k != mine) {
				static const size_t sizes[] = { 8, 60, 3000, 40000, LARGEST };

				sends[i].peer = k;
				ret = fi_tsend(s.ep, sends[i].bytes, sizes[random_below(5)], NULL, peers[k], 1, &sends[i]);
				CHECK(ret == 0 || ret == -FI_EAGAIN);
				sends[i].busy = ret == 0;
				sending += ret == 0;
			}
		}
		if (victim >= 0 && !last && sending < SLOTS) {
			/* One last send, so that there is a link or an attempt to connect. */
			for (i = 0; sends[i].busy; i++)
				;
			sends[i].peer = victim;
			CHECK(fi_tsend(s.ep, sends[i].bytes, 8, NULL, peers[victim], 1, &sends[i]) == 0);
			sends[i].busy = 1;
			sending++;
			last = 1;
			limit = seconds() + 3;
		}
		if (last && !settled) {
			for (k = 0, i = 0; i < 4; i++)
				k += receives[victim][i].busy;
			/*
			 * All operations for the victim end within a second, plus tolerance for a
			 * busy machine.
			 */
			for (i = 0; i < SLOTS; i++)
				k += sends[i].busy && sends[i].peer == victim;
			if (seconds() > limit)
				fprintf(stderr, "%d: %d operations for %d are left\n", mine, k, victim);
			CHECK(seconds() <= limit);
			if (k == 0 && sending == 0) {
				settled = 1;
				atomic_fetch_add(&board->settled, 1);
			}
		}
		if (settled && atomic_load(&board->settled) == count - 1)
			break;
		CHECK(seconds() < start + 20);
	}
	atomic_store(&board->stop, 1);
	for (i = 0; i < count; i++)
		for (k = 0; k < 4; k++)
			if (receives[i][k].busy)
				CHECK(fi_cancel(&s.ep->fid, &receives[i][k]) == 0);
	close_side(&s);
	CHECK(count_fds() == fds);
	exit(0);
}

/* Kills a random process at a random moment; OFI_KILLS sets how often. */
static void storm(void)
{
	const char *text = getenv("OFI_KILLS");
	int rounds = text ? atoi(text) : 20, round, i, status;
	enum { PROCESSES = 4 };
	static const char *const ways[] = { "off", "on", "both", "read", "behind" };
	pid_t pids[PROCESSES];

	seed = (unsigned) getpid();
	for (round = 0; round < rounds; round++) {
		int victim = (int) random_below(PROCESSES);

		/* Large messages through the pool, or by cross-memory attach. */
		setenv("FI_SHM_DIRECT", ways[round % 5], 1);
		share();
		atomic_store(&board->victim, -1);
		for (i = 0; i < PROCESSES; i++) {
			pids[i] = fork();
			CHECK(pids[i] >= 0);
			if (pids[i] == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				survivor(i, PROCESSES);
			}
		}
		while (atomic_load(&board->ready) < PROCESSES)
			sched_yield();
		usleep(random_below(20000));
		/* Set before the kill, so that survivors expect the failures. */
		atomic_store(&board->victim, victim);
		kill(pids[victim], SIGKILL);
		waitpid(pids[victim], &status, 0);
		for (i = 0; i < PROCESSES; i++) {
			if (i == victim)
				continue;
			CHECK(waitpid(pids[i], &status, 0) == pids[i]);
			if (status)
				fprintf(stderr, "round %d: process %d ended with %#x\n", round, i, status);
			CHECK(status == 0);
		}
		for (i = 0; i < PROCESSES; i++)
			CHECK(!is_taken(board->names[i]));
		munmap(board, sizeof(*board));
	}
	CHECK(leftovers() == 0);
	printf("%d rounds\n", rounds);
}

/* Many endpoints in one process: each sends to the next and to the first. */
static void thousand(void)
{
	enum { COUNT = 1024 };
	static struct fid_ep *eps[COUNT];
	static struct fi_context2 sent[COUNT][2], got[2 * COUNT];
	static char names[COUNT][64], in[2 * COUNT][8];
	struct fi_cq_tagged_entry entry;
	int i, received = 0, done = 0;
	double end = seconds() + 60;
	struct side s;

	open_rdm(&s, FI_WAIT_NONE);
	for (i = 0; i < COUNT; i++) {
		size_t len = sizeof(names[i]);

		CHECK(fi_endpoint(s.domain, s.info, &eps[i], NULL) == 0);
		CHECK(fi_ep_bind(eps[i], &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
		CHECK(fi_ep_bind(eps[i], &s.av->fid, 0) == 0);
		CHECK(fi_enable(eps[i]) == 0);
		CHECK(fi_getname(&eps[i]->fid, names[i], &len) == 0);
		CHECK(insert(&s, names[i]) == (fi_addr_t) i);
	}
	for (i = 0; i < COUNT; i++) {
		CHECK(fi_trecv(eps[i], in[i], 8, NULL, FI_ADDR_UNSPEC, 1, 0, &got[i]) == 0);
		if (i)
			CHECK(fi_trecv(eps[0], in[COUNT + i], 8, NULL, FI_ADDR_UNSPEC, 2, 0, &got[COUNT + i]) == 0);
	}
	for (i = 0; i < COUNT; i++) {
		CHECK(fi_tsend(eps[i], "next", 5, NULL, (fi_addr_t) (i + 1) % COUNT, 1, &sent[i][0]) == 0);
		if (i)
			CHECK(fi_tsend(eps[i], "first", 6, NULL, 0, 2, &sent[i][1]) == 0);
	}
	while (received < 2 * COUNT - 1 || done < 2 * COUNT - 1) {
		ssize_t ret = fi_cq_read(s.cq, &entry, 1);

		CHECK(ret == 1 || ret == -FI_EAGAIN);
		if (ret == 1) {
			received += !!(entry.flags & FI_RECV);
			done += !!(entry.flags & FI_SEND);
		}
		CHECK(seconds() < end);
	}
	for (i = 0; i < COUNT; i++)
		CHECK(fi_close(&eps[i]->fid) == 0);
	close_side(&s);
}

/* 64 processes, each sending to all. */
static void crowd(void)
{
	int i, status;

	share();
	for (i = 0; i < MOST; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			static struct fi_context2 context;
			struct fi_cq_tagged_entry entry;
			double end = seconds() + 60;
			int sent = 0, got = 0, k;
			fi_addr_t peers[MOST];
			static char in[MOST][16];
			struct side s;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			open_rdm(&s, FI_WAIT_NONE);
			memcpy(board->names[i], s.name, s.len);
			atomic_fetch_add(&board->ready, 1);
			while (atomic_load(&board->ready) < MOST)
				sched_yield();
			for (k = 0; k < MOST; k++) {
				peers[k] = insert(&s, board->names[k]);
				CHECK(fi_trecv(s.ep, in[k], 16, NULL, FI_ADDR_UNSPEC, 1, 0, &context) == 0);
			}
			for (k = 0; k < MOST; k++)
				CHECK(fi_tsend(s.ep, "hello", 6, NULL, peers[(i + k) % MOST], 1, &context) == 0);
			while (sent < MOST || got < MOST || atomic_load(&board->settled) < MOST) {
				ssize_t ret = fi_cq_read(s.cq, &entry, 1);

				CHECK(ret == 1 || ret == -FI_EAGAIN);
				if (ret == 1) {
					sent += !!(entry.flags & FI_SEND);
					got += !!(entry.flags & FI_RECV);
					if (sent == MOST && got == MOST)
						atomic_fetch_add(&board->settled, 1);
				} else
					sched_yield();
				CHECK(seconds() < end);
			}
			close_side(&s);
			exit(0);
		}
	}
	for (i = 0; i < MOST; i++) {
		CHECK(wait(&status) > 0);
		CHECK(status == 0);
	}
}

static long memory(const char *what)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	long kib = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, what, strlen(what)))
			kib = atol(line + strlen(what));
	fclose(file);
	return kib;
}

/*
 * 192 idle endpoints take at most 64 MiB, no signal handler changes, and no descriptor stays open.
 */
static void quiet(void)
{
	enum { COUNT = 192 };
	static struct sigaction before[65], after;
	static struct fid_ep *eps[COUNT];
	int fds = count_fds(), i;
	struct side s;
	long start;

	for (i = 1; i < 65; i++)
		sigaction(i, NULL, &before[i]);
	open_rdm(&s, FI_WAIT_NONE);
	start = memory("VmRSS:");
	for (i = 0; i < COUNT; i++) {
		CHECK(fi_endpoint(s.domain, s.info, &eps[i], NULL) == 0);
		CHECK(fi_ep_bind(eps[i], &s.cq->fid, FI_TRANSMIT | FI_RECV) == 0);
		CHECK(fi_ep_bind(eps[i], &s.av->fid, 0) == 0);
		CHECK(fi_enable(eps[i]) == 0);
		fi_cq_read(s.cq, NULL, 0);
	}
	printf("%ld KiB an endpoint\n", (memory("VmRSS:") - start) / COUNT);
	CHECK(memory("VmRSS:") - start <= 64 << 10);
	CHECK(memory("VmRSS:") - start <= COUNT * 256);
	for (i = 0; i < COUNT; i++)
		CHECK(fi_close(&eps[i]->fid) == 0);
	close_side(&s);
	for (i = 1; i < 65; i++) {
		memset(&after, 0, sizeof(after));
		sigaction(i, NULL, &after);
		CHECK(after.sa_handler == before[i].sa_handler && after.sa_flags == before[i].sa_flags);
	}
	CHECK(count_fds() == fds);
}

static void exchange(struct side *s, const char *theirs)
{
	struct fi_cq_tagged_entry entry;
	struct fi_context2 contexts[2];
	double end = seconds() + 20;
	fi_addr_t peer = insert(s, theirs);
	static char in[100000], out[100000];
	int sent = 0, got = 0;

	CHECK(fi_trecv(s->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]) == 0);
	CHECK(fi_tsend(s->ep, out, sizeof(out), NULL, peer, 1, &contexts[1]) == 0);
	while (!sent || !got || atomic_load(&board->settled) < 2) {
		ssize_t ret = fi_cq_read(s->cq, &entry, 1);

		CHECK(ret == 1 || ret == -FI_EAGAIN);
		if (ret == 1) {
			sent += !!(entry.flags & FI_SEND);
			got += !!(entry.flags & FI_RECV);
			if (sent && got)
				atomic_fetch_add(&board->settled, 1);
		}
		CHECK(seconds() < end);
	}
}

/* Two processes, one in its own namespaces; `spaces` are flags of clone(2). */
static void apart(int spaces)
{
	int i, status;

	share();
	for (i = 0; i < 2; i++) {
		if (fork() == 0) {
			struct side s;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (i && unshare(spaces) < 0)
				exit(77);
			/* A pid namespace begins with the next child. */
			if (i && fork()) {
				wait(&status);
				_exit(WEXITSTATUS(status));
			}
			open_rdm(&s, FI_WAIT_NONE);
			memcpy(board->names[i], s.name, s.len);
			atomic_fetch_add(&board->ready, 1);
			while (atomic_load(&board->ready) < 2)
				sched_yield();
			exchange(&s, board->names[!i]);
			close_side(&s);
			exit(0);
		}
	}
	for (i = 0; i < 2; i++) {
		CHECK(wait(&status) > 0);
		if (WEXITSTATUS(status) == 77) {
			printf("skipped: namespaces cannot be made here\n");
			exit(77);
		}
		CHECK(status == 0);
	}
}

static atomic_long letters;

#if defined(__x86_64__)
#define ARGUMENT(context, n) ((context)->uc_mcontext.gregs[(int[]) { REG_RDI, REG_RSI, REG_RDX }[n]])
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define ARGUMENT(context, n) ((context)->uc_mcontext.regs[n])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#endif

/* Counts a sendmsg(2), and carries it out by a call that is not stopped. */
static void send_letter(int signal, siginfo_t *info, void *context)
{
	ucontext_t *at = context;
	struct mmsghdr one = { .msg_hdr = *(struct msghdr *) ARGUMENT(at, 1) };
	int before = errno;

	(void) signal;
	(void) info;
	atomic_fetch_add(&letters, 1);
	RESULT(at) = syscall(SYS_sendmmsg, ARGUMENT(at, 0), &one, 1, ARGUMENT(at, 2)) == 1 ? (long) one.msg_len : -errno;
	errno = before;
}

/* From now on the system stops this process at each sendmsg(2): the library makes it by itself. */
static void count_letters(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };
	struct sigaction action = { .sa_sigaction = send_letter, .sa_flags = SA_SIGINFO };

	CHECK(sigaction(SIGSYS, &action, NULL) == 0);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

/* A spinning reader costs the sender no control message; a sleeping one costs one per message. */
static void spinning(void)
{
	struct fi_cq_tagged_entry entry;
	static struct fi_context2 contexts[2];
	static char in[8];
	struct side s;
	fi_addr_t peer;
	int status, i, got;
	pid_t pid;

	share();
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		open_rdm(&s, FI_WAIT_UNSPEC);
		memcpy(board->names[0], s.name, s.len);
		atomic_fetch_add(&board->ready, 1);
		while (atomic_load(&board->ready) < 2)
			sched_yield();
		peer = insert(&s, board->names[1]);
		for (i = 0; i < 20010; i++) {
			CHECK(fi_trecv(s.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]) == 0);
			if (i < 20000)
				while (fi_cq_read(s.cq, &entry, 1) != 1)
					;
			else
				CHECK(fi_cq_sread(s.cq, &entry, 1, NULL, 10000) == 1);
			CHECK(fi_tinject(s.ep, "x", 1, peer, 1) == 0);
		}
		close_side(&s);
		exit(0);
	}
	count_letters();
	open_rdm(&s, FI_WAIT_NONE);
	memcpy(board->names[1], s.name, s.len);
	atomic_fetch_add(&board->ready, 1);
	while (atomic_load(&board->ready) < 2)
		sched_yield();
	peer = insert(&s, board->names[0]);
	for (i = 0; i < 20010; i++) {
		if (i == 10)
			atomic_store(&letters, 0);
		if (i == 20000) {
			if (atomic_load(&letters))
				fprintf(stderr, "%ld letters\n", atomic_load(&letters));
			CHECK(atomic_load(&letters) == 0);
		}
		if (i >= 20000)
			/*
			 * Give the reader time to fall asleep: a sleeping reader is the case to
			 * test.
			 */
			usleep(20000);
		CHECK(fi_trecv(s.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[0]) == 0);
		CHECK(fi_tinject(s.ep, "x", 1, peer, 1) == 0);
		for (got = 0; !got;)
			got = fi_cq_read(s.cq, &entry, 1) == 1;
	}
	printf("%ld letters\n", atomic_load(&letters));
	CHECK(atomic_load(&letters) > 0 && atomic_load(&letters) <= 10);
	close_side(&s);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void other_pids(void)
{
	apart(CLONE_NEWPID);
}

/*
 * With another network namespace, the folder in FI_SHM_SOCKET_DIR has the names; it is empty
 * afterwards, even if processes were killed.
 */
static void other_net(void)
{
	char folder[] = "/tmp/ofi-within-XXXXXX";
	int status;
	pid_t pid;

	CHECK(mkdtemp(folder));
	setenv("FI_SHM_SOCKET_DIR", folder, 1);
	apart(CLONE_NEWNET);
	CHECK(count_files(folder) == 2);
	pid = fork();
	if (pid == 0) {
		struct side s;

		open_rdm(&s, FI_WAIT_NONE);
		raise(SIGKILL);
	}
	waitpid(pid, &status, 0);
	CHECK(count_files(folder) == 3);
	if (fork() == 0) {
		struct side s;

		open_rdm(&s, FI_WAIT_NONE);
		CHECK(count_files(folder) == 3);
		close_side(&s);
		exit(0);
	}
	CHECK(wait(&status) > 0 && status == 0);
	CHECK(count_files(folder) == 2);
	CHECK(rmdir(folder) == 0);
}

int main(int argc, char **argv)
{
	static const struct scenario scenarios[] = {
		{ "storm", storm }, { "thousand", thousand }, { "crowd", crowd }, { "quiet", quiet },
		{ "spinning", spinning }, { "other_pids", other_pids }, { "other_net", other_net },
		{ NULL, NULL },
	};

	setenv("OFI_TEST_PROVIDER", "shm", 1);
	return run_scenario(argc, argv, scenarios);
}
