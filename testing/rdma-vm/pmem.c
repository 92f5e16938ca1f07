/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Remote writes to a file, and a power failure.
 *   pmem write FOLDER    makes the files, writes to both over OFI_TEST_PROVIDER, and requests the
 *                        failure
 *   pmem check FOLDER    exits with 0 if only the file of the committed write has its bytes
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <rdma/fi_rma.h>
#include "process.h"
#include "side.h"

#define LEN	(1 << 20)
#define OLD	'o'

/* The files by key: that of the delivered write, and that of the committed write. */
static const char *const FILES[] = { "delivered", "committed" };

static char new[LEN], buf[LEN];

static int open_file(int key, int flags)
{
	int fd = open(FILES[key], flags, 0600);

	if (fd < 0)
		perror(FILES[key]);
	CHECK(fd >= 0);
	return fd;
}

/* Allocates the blocks now, so that later only the pages themselves must reach the disk. */
static void make_files(const char *folder)
{
	int key, fd;

	CHECK(mkdir(folder, 0700) == 0 && chdir(folder) == 0);
	memset(buf, OLD, LEN);
	for (key = 0; key < 2; key++) {
		fd = open_file(key, O_CREAT | O_EXCL | O_WRONLY);
		CHECK(write(fd, buf, LEN) == LEN && close(fd) == 0);
	}
	sync();
}

static void read_file(int key)
{
	int fd = open_file(key, O_RDONLY);

	CHECK(read(fd, buf, LEN) == LEN && read(fd, buf, 1) == 0 && close(fd) == 0);
}

/* Number of new bytes in the file. */
static size_t count_new(int key)
{
	size_t i, count = 0;

	read_file(key);
	for (i = 0; i < LEN; i++)
		count += buf[i] == new[i];
	return count;
}

/* The target process, which maps the files and only makes progress. */
static void target(int in, int out)
{
	struct side s;
	int key;

	close(in);
	open_rdm(&s, FI_WAIT_NONE);
	for (key = 0; key < 2; key++) {
		int fd = open_file(key, O_RDWR);
		void *at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		struct fid_mr *mr;

		CHECK(at != MAP_FAILED && close(fd) == 0);
		CHECK(fi_mr_reg(s.domain, at, LEN, FI_REMOTE_WRITE, 0, key, FI_RMA_PMEM, &mr, NULL) == 0);
		CHECK(fi_mr_key(mr) == (uint64_t) key);
	}
	tell(out, s.name, sizeof(s.name));
	for (;;)
		CHECK(fi_cq_read(s.cq, NULL, 0) == -FI_EAGAIN);
}

static void write_to(struct side *s, fi_addr_t to, uint64_t key, uint64_t level)
{
	struct iovec iov = { new, LEN };
	struct fi_rma_iov remote = { 0, LEN, key };
	struct fi_msg_rma msg = { .msg_iov = &iov, .iov_count = 1, .addr = to, .rma_iov = &remote, .rma_iov_count = 1,
		.context = new };
	double end = seconds() + 30;
	ssize_t ret;

	while ((ret = fi_writemsg(s->ep, &msg, FI_COMPLETION | level)) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(s->cq, NULL, 0);
	CHECK(ret == 0);
	done(s, NULL, new, FI_RMA | FI_WRITE);
}

static void write_both(void)
{
	static const char CUT[] = "cut the power\n";
	char name[64];
	struct side s;
	fi_addr_t to;
	int in, out;

	child(target, &out, &in);
	open_rdm(&s, FI_WAIT_NONE);
	/* Regions are addressed by offsets, and the application chooses keys. */
	CHECK(s.info->caps & FI_RMA_PMEM && s.info->domain_attr->mr_mode == 0);
	hear(in, name, sizeof(name));
	to = insert(&s, name);
	write_to(&s, to, 0, FI_DELIVERY_COMPLETE);
	/* The delivered write is visible to every process until the memory is lost. */
	CHECK(count_new(0) == LEN);
	write_to(&s, to, 1, FI_COMMIT_COMPLETE);
	tell(STDOUT_FILENO, CUT, sizeof(CUT) - 1);
	/* The power fails now. If not, the alarm ends the process, and the host reports a failure. */
	alarm(100);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	size_t i;

	CHECK(argc == 3);
	for (i = 0; i < LEN; i++)
		new[i] = (char) ('A' + (i / 512 + i) % 26);
	more_caps = FI_RMA | FI_RMA_PMEM;
	if (!strcmp(argv[1], "write")) {
		make_files(argv[2]);
		write_both();
	}
	CHECK(!strcmp(argv[1], "check") && chdir(argv[2]) == 0);
	printf("%s: %zu new bytes delivered, %zu committed\n", argv[2], count_new(0), count_new(1));
	CHECK(count_new(0) == 0 && count_new(1) == LEN);
	return 0;
}
