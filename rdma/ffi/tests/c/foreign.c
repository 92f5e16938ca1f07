/* Entries made by another library, linked after this one, are freed by that library. */
#include <rdma/rdma_addrinfo.h>

#include <stdio.h>
#include <stdlib.h>

#ifdef OTHER
/* The other library. */
int freed_by_other;

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	for (struct rdma_addrinfo *next; res; res = next) {
		next = res->ai_next;
		free(res);
		freed_by_other++;
	}
}
#else
extern int freed_by_other;

int main(void)
{
	struct rdma_addrinfo *foreign = calloc(1, sizeof *foreign), *own;

	foreign->ai_next = calloc(1, sizeof *foreign);
	rdma_freeaddrinfo(foreign);
	if (freed_by_other != 2)
		return 1;
	/* Also between entries of this library. */
	if (rdma_getaddrinfo("10.9.0.1", "1", NULL, &own))
		return 2;
	foreign = own->ai_next = calloc(1, sizeof *own);
	if (rdma_getaddrinfo("10.9.0.1", "1", NULL, &foreign->ai_next))
		return 3;
	rdma_freeaddrinfo(own);
	return freed_by_other != 3;
}
#endif
