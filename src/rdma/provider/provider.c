/* rdma/provider/provider.c: the texts that all providers share: names of statuses and types, a
 * queue pair's state for people, and the log line of its failure. */
#include "rdma/provider/provider.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/probe.h"

const char *rp_status_str(enum rp_status status)
{
	static const char *const names[] = {
		[RP_WC_SUCCESS] = "success",
		[RP_WC_LOC_LEN_ERR] = "local length error",
		[RP_WC_LOC_PROT_ERR] = "local protection error",
		[RP_WC_WR_FLUSH_ERR] = "work request flushed",
		[RP_WC_REM_INV_REQ_ERR] = "remote: invalid request",
		[RP_WC_REM_ACCESS_ERR] = "remote: access refused",
		[RP_WC_REM_OP_ERR] = "remote: operation failed",
		[RP_WC_RETRY_EXC_ERR] = "transport retries exceeded",
		[RP_WC_RNR_RETRY_EXC_ERR] = "receiver not ready, retries exceeded",
		[RP_WC_GENERAL_ERR] = "general error",
	};

	return (size_t)status < ARRAY_LEN(names) ? names[status] : "unknown status";
}

const char *rp_qp_type_str(enum rp_qp_type type)
{
	static const char *const names[] = {
		[RP_QP_RC] = "RC",
		[RP_QP_UC] = "UC",
		[RP_QP_UD] = "UD",
		[RP_QP_RAW] = "raw packet",
		[RP_QP_DCI] = "DC initiator",
		[RP_QP_DCT] = "DC target",
	};

	return (size_t)type < ARRAY_LEN(names) ? names[type] : "unknown";
}

void rp_qp_info(struct rp_qp *qp, struct rp_qp_info *ret_info)
{
	rp_qp_check(qp);
	*ret_info = (struct rp_qp_info){.type = qp->type, .qpn = qp->num};
	qp->ops->qp_info(qp, ret_info);
}

void rp_qp_info_text(const struct rp_qp_info *info, char *text, size_t size)
{
	static const char *const states[] = {"INIT", "RTR", "RTS", "ERR"};
	char gid[INET6_ADDRSTRLEN] = "none";

	if (info->has_gid)
		inet_ntop(AF_INET6, info->gid, gid, sizeof(gid));
	snprintf(text, size,
		"%s queue pair %u of %s: state %s, sq_psn 0x%06x, rq_psn 0x%06x, "
		"timeout %u us, retry %u, rnr_retry %u, path_mtu %u, dest_qpn %u, gid %s",
		rp_qp_type_str(info->type), info->qpn, info->device, states[info->state],
		info->sq_psn, info->rq_psn, info->timeout_us, info->retry_count,
		info->rnr_retry_count, info->path_mtu, info->dest_qpn, gid);
}

void rp_qp_log_failure(struct rp_device *device, const struct rp_qp_info *info, const char *why)
{
	char text[RP_QP_INFO_TEXT_BYTES];

	PROBE2(rdma_qp_failed, info->qpn, info->dest_qpn);
	rp_qp_info_text(info, text, sizeof(text));
	log_limited_by(&device->failures, LOG_WARN, "rdma", "%s: %s", why, text);
}

/* ---- Descriptors. ---- */

void rp_event_fd_set(int fd)
{
	const uint64_t one = 1;
	ssize_t bytes = write(fd, &one, sizeof(one));

	CHECK(bytes == sizeof(one));
}

void rp_event_fd_clear(int fd)
{
	uint64_t count;
	ssize_t bytes = read(fd, &count, sizeof(count));

	CHECK(bytes == sizeof(count));
}

void rp_timer_fd_set(int fd, const struct itimerspec *when)
{
	int ret = timerfd_settime(fd, TFD_TIMER_ABSTIME, when, NULL);

	CHECK(ret == 0);
}
