/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fabrics, and operations common to all objects: fi_fabric(3), fi_control(3). */
#include "case.h"
#include <rdma/fi_collective.h>
#if __has_include(<rdma/fi_profile.h>)
#include <rdma/fi_profile.h>
#endif

/* The last part of a layered name selects the provider to open. */
CASE(fabric_opens_the_last_layer)
{
	struct fi_info *info = find(&RDM);
	struct fi_fabric_attr attr = *info->fabric_attr;
	struct fid_fabric *fabric;

	attr.prov_name = "absent;tcp";
	CHECK(fi_fabric(&attr, &fabric, NULL) == 0);
	CHECK(fi_close(&fabric->fid) == 0);
	attr.prov_name = "tcp;absent";
	CHECK(fi_fabric(&attr, &fabric, NULL) == -FI_ENODEV);
	fi_freeinfo(info);
}

/* Number of bytes written to an error entry for this API version. */
static size_t bytes_of_error(uint32_t api)
{
	struct want w = { .caps = FI_TAGGED, .api = api };
	unsigned char bytes[128];
	struct fi_cq_err_entry *err = (void *) bytes;
	struct fi_cq_tagged_entry entry;
	double end = seconds() + 10;
	struct pair p;
	char in[8];
	size_t i;

	meet(&p, &w);
	CHECK(p.b.fabric->api_version == api);
	POST(fi_recv(p.b.ep, in, 2, NULL, FI_ADDR_UNSPEC, &contexts[0]));
	POST(fi_send(p.a.ep, "too long", 8, NULL, p.to_b, &contexts[1]));
	while (fi_cq_read(p.b.cq, &entry, 1) == -FI_EAGAIN && seconds() < end)
		fi_cq_read(p.a.cq, NULL, 0);
	memset(bytes, 0xa5, sizeof(bytes));
	/* Programs set this field if their API version has it. */
	if (FI_VERSION_GE(api, FI_VERSION(1, 5)))
		err->err_data_size = 0;
	/* Not through the header's inline function, which fills in the newest field itself. */
	CHECK(p.b.cq->ops->readerr(p.b.cq, err, 0) == 1);
	CHECK(err->err == FI_ETRUNC && err->olen == 6);
	for (i = sizeof(bytes); bytes[i - 1] == 0xa5; i--)
		;
	part(&p);
	return i;
}

CASE_OURS(fabric_version_decides_structures)
{
	CHECK(bytes_of_error(FI_VERSION(1, 4)) == 72);
	CHECK(bytes_of_error(FI_VERSION(1, 5)) == 80);
	CHECK(bytes_of_error(FI_VERSION(1, 19)) == 80);
#if FI_VERSION_GE(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), FI_VERSION(1, 20))
	CHECK(bytes_of_error(FI_VERSION(1, 20)) == 88);
#endif
}

CASE_OURS(unknown_commands_on_every_object)
{
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_wait_attr wait_attr = { .wait_obj = FI_WAIT_FD };
	struct fi_poll_attr poll_attr = { 0 };
	struct want msg = { .type = FI_EP_MSG };
	struct fid_wait *wait_set;
	struct fi_rx_attr rx_attr = { .size = 3 };
	struct fi_av_set_attr set_attr = { .flags = FI_UNIVERSE };
	struct fid_poll *poll_set;
	struct fid_av_set *set;
	struct fid_cntr *cntr;
	struct fid_pep *pep;
	struct fid_stx *stx;
	struct fid_ep *srx;
	struct fid_mr *mr;
	struct side s;
	int arg = 0;
#if __has_include(<rdma/fi_profile.h>)
	struct fid_profile *profile;
#endif

	open_side(&s, &RDM);
	REFUSED("any other command that an object does not have (fi_control)",
		FI_ENOSYS, fi_control(&s.fabric->fid, 4242, &arg));
	CHECK(fi_control(&s.domain->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_control(&s.ep->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_control(&s.av->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_control(&s.eq->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_control(&s.cq->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_cntr_open(s.domain, &cntr_attr, &cntr, NULL) == 0 && fi_control(&cntr->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_wait_open(s.fabric, &wait_attr, &wait_set) == 0 && fi_control(&wait_set->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_poll_open(s.domain, &poll_attr, &poll_set) == 0 && fi_control(&poll_set->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_close(&cntr->fid) == 0 && fi_close(&wait_set->fid) == 0 && fi_close(&poll_set->fid) == 0);
	CHECK(fi_srx_context(s.domain, &rx_attr, &srx, NULL) == 0 && fi_control(&srx->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_stx_context(s.domain, NULL, &stx, NULL) == 0 && fi_control(&stx->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_av_set(s.av, &set_attr, &set, NULL) == 0 && fi_control(&set->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_mr_reg(s.domain, &arg, sizeof(arg), FI_SEND, 0, 0, 0, &mr, NULL) == 0);
	CHECK(fi_control(&mr->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_close(&srx->fid) == 0 && fi_close(&stx->fid) == 0 && fi_close(&set->fid) == 0 && fi_close(&mr->fid) == 0);
#if __has_include(<rdma/fi_profile.h>)
	CHECK(fi_profile_open(&s.ep->fid, 0, &profile, NULL) == 0);
	CHECK(fi_control(&profile->fid, 4242, &arg) == -FI_ENOSYS && fi_profile_close(profile) == 0);
#endif
	close_side(&s);
	open_domain(&s, &msg);
	CHECK(fi_passive_ep(s.fabric, s.info, &pep, NULL) == 0 && fi_control(&pep->fid, 4242, &arg) == -FI_ENOSYS);
	CHECK(fi_close(&pep->fid) == 0);
	close_side(&s);
}

static int last_command;

static int note_command(struct fid *fid, int command, void *arg)
{
	(void) fid, (void) arg;
	last_command = command;
	return -FI_EOTHER;
}

CASE(aliases_and_values_are_controls)
{
	static struct fi_ops ops = { .size = sizeof(ops), .control = note_command };
	struct fid fid = { .ops = &ops }, *alias;
	struct side s;
	int value = 0;

	CHECK(fi_alias(&fid, &alias, 0) == -FI_EOTHER && last_command == FI_ALIAS);
	CHECK(fi_get_val(&fid, 7, &value) == -FI_EOTHER && last_command == FI_GET_VAL);
	CHECK(fi_set_val(&fid, 7, &value) == -FI_EOTHER && last_command == FI_SET_VAL);
	open_side(&s, &RDM);
	REFUSED("FI_GET_VAL, FI_SET_VAL (fi_control)", FI_ENOSYS, fi_get_val(&s.ep->fid, 4242, &value));
	REFUSED("FI_GET_VAL, FI_SET_VAL (fi_control)", FI_ENOSYS, fi_set_val(&s.ep->fid, 4242, &value));
	CHECK(fi_get_val(&s.domain->fid, -4242, &value) == -FI_ENOSYS && fi_set_val(&s.domain->fid, -4242, &value) == -FI_ENOSYS);
	close_side(&s);
}
