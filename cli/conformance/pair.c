/* cli/conformance/pair.c: the suite's own queue pairs, for dialects in which a client says when the
 * bytes move: one registration of all memory, and one completion at a time. */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define WAIT_NS	   (10 * NS_PER_S)
#define CQ_ENTRIES 64u

struct conf_device {
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_mr *mr;
	uint64_t next_wr_id;
	struct rp_wc last; /* completion of the newest work request that has one */
};

/* The endpoint's host, and its port or 0. */
static int host_of(const struct conf_opts *opts, char ret_host[256], uint16_t *ret_port)
{
	struct slice rest = slice_str(strstr(opts->endpoint, "://") + 3);
	struct slice host = slice_split(&rest, '/');
	char *colon;

	if (slice_copy_str(host, ret_host, 256))
		return -EINVAL;
	colon = strrchr(ret_host, ':');
	if (colon)
		*colon++ = '\0';
	*ret_port = colon ? (uint16_t)strtoul(colon, NULL, 10) : 0;
	return 0;
}

static void progress(struct conf_device *device)
{
	struct rp_cm_event event;
	struct rp_wc wc;

	while (rp_cm_poll(device->device, &event) > 0)
		continue;
	while (rp_cq_poll(device->cq, &wc, 1) > 0)
		if (wc.wr_id == device->next_wr_id)
			device->last = wc;
}

static void on_wait(struct conf *conf)
{
	progress(conf->device);
}

int conf_device_open(struct conf *conf)
{
	struct conf_device *device = calloc(1, sizeof(*device));
	const struct rp_mr_opts mr = {.addr = conf->memory,
		.bytes = CONF_MEMORY_BYTES,
		.access = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE,
		.fd = -1};
	char host[256], source[RP_ADDRESS_TEXT_BYTES] = "";
	struct rp_open_opts opts = {
		.device_name = conf->opts->device_name, .gid_index = -1, .address = source};
	struct rp_found found = {0};
	uint16_t port;
	int ret;

	if (!device)
		return -ENOMEM;
	conf->device = device;
	ret = host_of(conf->opts, host, &port);
	/* By the GID that the route leads to. A host that is a name has none here. */
	if (ret == 0)
		(void)rp_source(host, source);
	if (ret == 0 && (!opts.device_name || strcmp(opts.device_name, "auto") == 0)) {
		ret = rp_find(host, port, &found);
		opts.device_name = found.device_name;
	}
	if (ret == 0)
		ret = rp_open(&opts, &device->device);
	if (ret == 0)
		ret = rp_pd_open(device->device, &device->pd);
	if (ret == 0)
		ret = rp_cq_open(device->device, CQ_ENTRIES, &device->cq);
	if (ret == 0)
		ret = rp_mr_open(device->pd, &mr, &device->mr);
	conf->progress = ret ? NULL : on_wait;
	if (ret)
		conf_fail(conf, "no RDMA device: %s %s", strerror(-ret), found.why);
	return ret;
}

void conf_device_close(struct conf *conf)
{
	struct conf_device *device = conf->device;

	if (!device)
		return;
	if (device->mr)
		rp_mr_close(device->mr);
	if (device->cq)
		rp_cq_close(device->cq);
	if (device->pd)
		rp_pd_close(device->pd);
	rp_close(device->device);
	free(device);
}

uint32_t conf_device_rkey(const struct conf *conf)
{
	return rp_mr_rkey(conf->device->mr);
}

/* ---- Queue pairs. ---- */

int conf_pair_open(struct conf *conf, struct conf_pair *pair)
{
	const struct rp_qp_attr attr = {.type = RP_QP_RC,
		.send_cq = conf->device->cq,
		.recv_cq = conf->device->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.retry_count = 7,
		.rnr_retry_count = 7};
	int ret;

	/* The first packet's number must not be 0, so a 0 is drawn again. */
	do {
		rp_qp_close(pair->qp);
		pair->qp = NULL;
		ret = rp_qp_open(conf->device->pd, &attr, &pair->qp);
		if (ret == 0)
			ret = rp_qp_address(pair->qp, &pair->ours);
	} while (ret == 0 && !pair->ours.psn);
	if (ret)
		conf_fail(conf, "no queue pair: %s", strerror(-ret));
	return ret;
}

void conf_pair_close(struct conf_pair *pair)
{
	rp_qp_close(pair->qp);
	pair->qp = NULL;
}

bool conf_pair_join(struct conf *conf, struct conf_pair *pair, struct rp_address *theirs)
{
	uint64_t until_ns = clock_now_ns() + WAIT_NS;
	int ret;

	theirs->mtu = pair->ours.mtu;
	ret = rp_qp_join(pair->qp, theirs, false);
	while (!ret && rp_qp_state(pair->qp) == RP_QPS_INIT && clock_now_ns() < until_ns)
		progress(conf->device);
	if (!ret && rp_qp_state(pair->qp) == RP_QPS_RTS)
		return true;
	conf_fail(conf, "the queue pairs cannot be joined: %s", strerror(ret ? -ret : ETIMEDOUT));
	return false;
}

/* The completion of the newest work request. */
static enum rp_status completion(struct conf_device *device, struct rp_wc *ret_wc)
{
	uint64_t until_ns = clock_now_ns() + WAIT_NS;

	while (device->last.wr_id != device->next_wr_id && clock_now_ns() < until_ns)
		progress(device);
	if (device->last.wr_id != device->next_wr_id)
		return RP_WC_GENERAL_ERR;
	*ret_wc = device->last;
	return device->last.status;
}

bool conf_pair_receive(struct conf *conf, struct conf_pair *pair)
{
	const struct rp_recv_wr wr = {.wr_id = ++conf->device->next_wr_id};
	uint32_t posted;

	return rp_post_recv(pair->qp, &wr, 1, &posted) == 0;
}

bool conf_pair_received(struct conf *conf, uint32_t *ret_immediate)
{
	struct rp_wc wc = {0};
	bool came = completion(conf->device, &wc) == RP_WC_SUCCESS && wc.has_imm;

	*ret_immediate = wc.imm;
	return came;
}

bool conf_pair_write(
	struct conf *conf, struct conf_pair *pair, size_t bytes, const struct conf_place *to)
{
	struct rp_sge sge = {.addr = (uint64_t)(uintptr_t)conf_window_data(conf),
		.length = (uint32_t)bytes,
		.lkey = rp_mr_lkey(conf->device->mr)};
	const struct rp_send_wr wr = {.wr_id = ++conf->device->next_wr_id,
		.opcode = RP_WRITE_IMM,
		.flags = RP_SEND_SIGNALED,
		.sg_list = &sge,
		.sge_count = 1,
		.imm = to->immediate,
		.remote_addr = to->addr,
		.rkey = to->rkey};
	struct rp_wc wc;
	uint32_t posted;

	return rp_post_send(pair->qp, &wr, 1, &posted) == 0 &&
	       completion(conf->device, &wc) == RP_WC_SUCCESS;
}
