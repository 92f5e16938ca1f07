/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * journal: records that survive a power failure. The target maps a file, and a write with
 * FI_COMMIT_COMPLETE completes when its bytes are on the medium of the file.
 *
 * FI_PROVIDER=shm ./journal
 */
#include "memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE 4096
#define RECORDS 16

int main(void)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	/* A provider has this capability only if the program asks: it knows what its memory is. */
	struct net net = open_net(hints_for_memory(FI_RMA | FI_RMA_PMEM));
	char name[] = "/tmp/journal-XXXXXX", record[32];
	struct iovec iov = { record, sizeof(record) };
	struct fi_rma_iov place;
	struct fi_msg_rma msg = { .msg_iov = &iov, .iov_count = 1, .rma_iov = &place, .rma_iov_count = 1 };
	int file = mkstemp(name), i;
	struct window window;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *initiator, *target;
	char *memory;

	check("mkstemp", file < 0 || unlink(name) || ftruncate(file, SIZE) ? -FI_EOTHER : 0);
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	check("mmap", memory == MAP_FAILED ? -FI_ENOMEM : 0);
	CHECK(fi_cq_open(net.domain, &cq_attr, &cq, NULL));
	CHECK(fi_av_open(net.domain, &av_attr, &av, NULL));
	target = open_endpoint(net.domain, net.info, cq, av);
	initiator = open_endpoint(net.domain, net.info, cq, av);
	msg.addr = insert(av, target);
	window = open_window(&net, memory, SIZE, FI_RMA_PMEM);

	for (i = 0; i < RECORDS; i++) {
		memset(record, 0, sizeof(record));
		snprintf(record, sizeof(record), "record %d", i);
		place = (struct fi_rma_iov) { window.addr + i * sizeof(record), sizeof(record), window.key };
		POST(cq, fi_writemsg(initiator, &msg, FI_COMMIT_COMPLETE));
		next(cq);
		/* From here on the record is durable, and the next one may rely on it. */
		check("compare", strcmp(memory + i * sizeof(record), record) ? -FI_EOTHER : 0);
	}
	printf("%d records over %s\n", RECORDS, net.info->fabric_attr->prov_name);

	CHECK(fi_close(&window.mr->fid));
	CHECK(fi_close(&initiator->fid));
	CHECK(fi_close(&target->fid));
	CHECK(fi_close(&av->fid));
	CHECK(fi_close(&cq->fid));
	close_net(&net);
	munmap(memory, SIZE);
	close(file);
	return 0;
}
