/* rdma/simulated/dgram.c: datagrams of the simulated provider: UD, its groups, and raw packets. A
 * queue pair is a datagram socket whose abstract name says what it is, and the kernel is the
 * network: it keeps a few datagrams for each socket and drops the rest.
 *
 *   nebulaio-sim/ud:GID:QPN            a UD queue pair
 *   nebulaio-sim/group:MGID:GID:QPN    the same as a member of a group
 *   nebulaio-sim/raw:GID:QPN           a raw packet queue pair; all of them stand on one switch
 *
 * The kernel's list of sockets has the members of a group and the ports of the switch; it drops
 * processes that ended. Data from a socket is untrusted input: it is checked, and dropped when
 * wrong, as on a network. */
#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "rdma/simulated/qp_dp.h"
#include "rdma/simulated/packet.h"

#define PREFIX	     "nebulaio-sim/"
#define AT_ONCE	     16
#define SOCKETS_LIST "/proc/net/unix"
#define VLAN_TYPE    0x8100u /* IEEE 802.1Q */
#define QPN_BITS     0xffffffu
#define GID_CHARS    33

struct header {
	uint32_t magic;
	uint16_t version;
	uint8_t raw;
	uint8_t has_imm;
	uint32_t src_qpn;
	uint32_t qkey;
	uint32_t imm;
	uint32_t reserved;
	uint8_t src[16];
	uint8_t dst[16];
};
_Static_assert(sizeof(struct header) == 56, "no padding");

struct sim_group {
	struct rp_group base;
	struct sim_qp *qp;
	struct sim_ah ah;
	int fd;
};

struct sim_flow {
	struct rp_flow base;
	struct sim_qp *qp;
	struct list link;
	struct rp_flow_rule rule;
};

/* ---- Names. ---- */

static const char *gid_text(const uint8_t gid[16], char text[GID_CHARS])
{
	for (size_t i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", gid[i]);
	return text;
}

static socklen_t name_address(const char *name, size_t len, struct sockaddr_un *ret_addr)
{
	*ret_addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	len = MIN(len, sizeof(ret_addr->sun_path) - 1);
	memcpy(ret_addr->sun_path + 1, name, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static void own_name(const struct sim_qp *qp, char *name, size_t name_bytes)
{
	char gid[GID_CHARS];

	snprintf(name, name_bytes, PREFIX "%s:%s:%u", qp->base.type == RP_QP_RAW ? "raw" : "ud",
		gid_text(qp->device->gid, gid), qp->base.num);
}

/* Adds a socket of this name to the queue pair. */
static int socket_add(struct sim_qp *qp, const char *name, int *ret_fd)
{
	struct sim_dgram *dgram = qp->dgram;
	struct epoll_event event = {.events = 0};
	struct sockaddr_un addr;
	int fd, err = 0;

	if (dgram->fd_count == ARRAY_LEN(dgram->fds))
		return -ENOSPC;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&addr, name_address(name, strlen(name), &addr)) ||
		epoll_ctl(qp->recv_cq->base.fd, EPOLL_CTL_ADD, fd, &event))
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	dgram->fds[dgram->fd_count++] = fd;
	*ret_fd = fd;
	return 0;
}

static void socket_remove(struct sim_dgram *dgram, int fd)
{
	uint32_t before = dgram->fd_count;

	for (uint32_t i = 0; i < dgram->fd_count; i++) {
		if (dgram->fds[i] != fd)
			continue;
		dgram->fds[i] = dgram->fds[--dgram->fd_count];
		break;
	}
	CHECK(dgram->fd_count + 1 == before);
	close(fd);
}

/* ---- Opening and closing. ---- */

int sim_dgram_open(struct sim_qp *qp)
{
	char name[108];
	int fd, err = sim_device_name_itself(qp->device);

	if (err)
		return err;
	CHECK(!qp->dgram);
	qp->dgram = calloc(1, sizeof(*qp->dgram));
	if (!qp->dgram)
		return -ENOMEM;
	qp->dgram->qp = qp;
	list_init(&qp->dgram->rules);
	list_init(&qp->dgram->link);
	own_name(qp, name, sizeof(name));
	err = socket_add(qp, name, &fd);
	if (err)
		return err;
	list_push_back(&qp->recv_cq->dgrams, &qp->dgram->link);
	atomic_store(&qp->state, RP_QPS_RTS);
	return 0;
}

void sim_dgram_close(struct sim_dgram *dgram)
{
	if (!dgram)
		return;
	CHECK(dgram->fd_count <= 1);
	CHECK(list_empty(&dgram->rules));
	while (dgram->fd_count)
		socket_remove(dgram, dgram->fds[0]);
	list_remove(&dgram->link);
	free(dgram);
}

static void count_object(struct sim_device *device, int change)
{
	pthread_mutex_lock(&device->lock);
	device->open_objects += (uint32_t)change;
	CHECK(device->open_objects < UINT32_MAX / 2);
	pthread_mutex_unlock(&device->lock);
}

/* ---- Sending. ---- */

static void send_to(int fd, struct msghdr *msg, const char *name, size_t len)
{
	struct sockaddr_un addr;

	msg->msg_namelen = name_address(name, len, &addr);
	msg->msg_name = &addr;
	/* No receiver, or a receiver that is too slow: the datagram is lost. */
	if (sendmsg(fd, msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		LOG(LOG_TRACE, "rdma", "simulated: a datagram is lost: %s", strerror(errno));
}

/* Sends to every socket whose name begins with prefix, except to the one named `but`. */
static void send_to_all(int fd, struct msghdr *msg, const char *prefix, const char *but)
{
	FILE *list = fopen(SOCKETS_LIST, "re");
	char line[256], want[112];

	if (!list) {
		LOG(LOG_DEBUG, "rdma", "simulated: %s: %s", SOCKETS_LIST, strerror(errno));
		return;
	}
	snprintf(want, sizeof(want), "@%s", prefix);
	while (fgets(line, sizeof(line), list)) {
		char *name = strstr(line, want);
		size_t len;

		if (!name)
			continue;
		len = strcspn(++name, "\n");
		if (strlen(but) != len || memcmp(name, but, len) != 0)
			send_to(fd, msg, name, len);
	}
	fclose(list);
}

static void route(const struct sim_qp *qp, const struct sim_send *send, const struct sim_ah *ah,
	struct msghdr *msg)
{
	char name[108], gid[GID_CHARS], own[108] = "";
	int fd = qp->dgram->fds[0];

	if (qp->base.type == RP_QP_RAW) {
		/* A switch does not send back. */
		own_name(qp, own, sizeof(own));
		send_to_all(fd, msg, PREFIX "raw:", own);
		return;
	}
	gid_text(ah->gid, gid);
	if (ah->gid[0] == 0xff) {
		snprintf(name, sizeof(name), PREFIX "group:%s:", gid);
		send_to_all(fd, msg, name, own);
		return;
	}
	snprintf(name, sizeof(name), PREFIX "ud:%s:%u", gid, send->rkey & QPN_BITS);
	send_to(fd, msg, name, strlen(name));
}

int sim_dgram_send(struct sim_qp *qp, struct sim_send *send, const struct rp_sge *sges)
{
	const struct sim_ah *ah = NULL;
	struct header header = {
		.magic = SIM_MAGIC,
		.version = SIM_VERSION,
		.raw = qp->base.type == RP_QP_RAW,
		.has_imm = send->opcode == RP_SEND_IMM,
		.src_qpn = qp->base.num,
		.qkey = (uint32_t)send->compare_add,
		.imm = send->imm,
	};
	struct iovec iov[1 + LIMIT_SGE_MAX] = {{&header, sizeof(header)}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 1};

	CHECK(send->sge_count <= LIMIT_SGE_MAX);
	memcpy(header.src, qp->device->gid, sizeof(header.src));
	if (!header.raw) {
		ah = (const struct sim_ah *)(uintptr_t)send->remote_addr;
		memcpy(header.dst, ah->gid, sizeof(header.dst));
	}
	for (uint32_t i = 0; i < send->sge_count; i++)
		iov[msg.msg_iovlen++] = (struct iovec){sim_ptr(sges[i].addr), sges[i].length};
	route(qp, send, ah, &msg);
	qp->tally.sends++;
	qp->tally.bytes += send->total;
	qp->tally.wire_bytes += send->total;
	return 0;
}

/* ---- Receiving. ---- */

static bool rule_takes(const struct rp_flow_rule *rule, const uint8_t *frame, uint32_t len)
{
	uint16_t type = (uint16_t)(frame[12] << 8 | frame[13]);
	uint16_t vlan = 0;

	if (rule->everything)
		return true;
	if (type == VLAN_TYPE && len >= 18) {
		vlan = (uint16_t)((frame[14] & 0x0f) << 8 | frame[15]);
		type = (uint16_t)(frame[16] << 8 | frame[17]);
	}
	return !memcmp(frame, rule->dst_mac, sizeof(rule->dst_mac)) &&
	       (!rule->ether_type || rule->ether_type == type) &&
	       (!rule->vlan || rule->vlan == vlan);
}

static bool is_for_us(const struct sim_dgram *dgram, const struct header *header, uint32_t bytes)
{
	const struct sim_qp *qp = dgram->qp;

	if (header->magic != SIM_MAGIC || header->version != SIM_VERSION ||
		header->raw != (qp->base.type == RP_QP_RAW))
		return false;
	if (!header->raw)
		return header->qkey == qp->base.qkey && bytes <= SIM_MTU;
	if (bytes < SIM_FRAME_BYTES_MIN)
		return false;
	LIST_FOR_EACH (link, &dgram->rules) {
		if (rule_takes(
			    &CONTAINER_OF(link, struct sim_flow, link)->rule, dgram->bytes, bytes))
			return true;
	}
	return false;
}

/* The header in front of the payload: version 6, the payload's length, no hop limit spent. */
static void grh_make(const struct header *header, uint32_t bytes, uint8_t grh[RP_GRH_BYTES])
{
	memset(grh, 0, RP_GRH_BYTES);
	grh[0] = 0x60;
	grh[4] = (uint8_t)(bytes >> 8);
	grh[5] = (uint8_t)bytes;
	grh[6] = 0x1b; /* IBTA 8.3: a base transport header follows */
	grh[7] = 64;
	memcpy(grh + 8, header->src, 16);
	memcpy(grh + 24, header->dst, 16);
}

/* The next receive, copied out, when it has the room and the memory; false: drop. */
static bool receive_take(struct sim_qp *qp, uint32_t need, struct sim_recv *ret_recv)
{
	struct sim_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;
	const struct sim_recv *recv = &rq->recvs[rq->head & rq->mask];
	uint64_t room = 0;

	sim_rq_check(rq);
	if (rq->head == rq->tail || sim_qp_state(&qp->base) != RP_QPS_RTS)
		return false;
	for (uint32_t i = 0; i < recv->sge_count; i++) {
		qp->rx_sges[i] = rq->sges[recv->sge_first + i];
		room += qp->rx_sges[i].length;
		if (!sim_local_ok(qp, &qp->rx_sges[i], RP_ACCESS_LOCAL_WRITE)) {
			sim_qp_fail(qp, "a receive outside its memory");
			return false;
		}
	}
	if (room < need)
		return false;
	*ret_recv = *recv;
	rq->head++;
	return true;
}

static void deliver(struct sim_dgram *dgram, const struct header *header, uint32_t bytes)
{
	struct sim_qp *qp = dgram->qp;
	uint32_t front = header->raw ? 0 : RP_GRH_BYTES;
	struct sim_cursor cursor = {0, 0};
	uint8_t grh[RP_GRH_BYTES];
	struct sim_recv recv;
	struct rp_wc wc;

	if (!is_for_us(dgram, header, bytes) || !receive_take(qp, front + bytes, &recv))
		return;
	if (front) {
		grh_make(header, bytes, grh);
		sim_scatter(grh, qp->rx_sges, &cursor, front);
	}
	sim_scatter(dgram->bytes, qp->rx_sges, &cursor, bytes);
	wc = (struct rp_wc){
		.wr_id = recv.wr_id,
		.opcode = RP_RECV,
		.byte_len = front + bytes,
		.imm = header->imm,
		.has_imm = header->has_imm,
		.has_grh = !header->raw,
		.qpn = qp->base.num,
		.src_qpn = header->src_qpn,
	};
	sim_cq_push(qp->recv_cq, &wc);
}

static void receive_from(struct sim_dgram *dgram, int fd)
{
	for (int i = 0; i < AT_ONCE; i++) {
		struct header header;
		struct iovec iov[2] = {
			{&header, sizeof(header)}, {dgram->bytes, sizeof(dgram->bytes)}};
		struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
		ssize_t got = recvmsg(fd, &msg, MSG_DONTWAIT);

		if (got < 0)
			return;
		if (got >= (ssize_t)sizeof(header) && !(msg.msg_flags & MSG_TRUNC))
			deliver(dgram, &header, (uint32_t)got - (uint32_t)sizeof(header));
	}
}

void sim_dgram_receive(struct sim_cq *cq)
{
	LIST_FOR_EACH (link, &cq->dgrams) {
		struct sim_dgram *dgram = CONTAINER_OF(link, struct sim_dgram, link);

		for (uint32_t i = 0; i < dgram->fd_count; i++)
			receive_from(dgram, dgram->fds[i]);
	}
}

void sim_dgram_arm(struct sim_cq *cq, bool on)
{
	LIST_FOR_EACH (link, &cq->dgrams) {
		struct sim_dgram *dgram = CONTAINER_OF(link, struct sim_dgram, link);

		for (uint32_t i = 0; i < dgram->fd_count; i++) {
			struct epoll_event event = {.events = on ? EPOLLIN : 0};
			int ret = epoll_ctl(cq->base.fd, EPOLL_CTL_MOD, dgram->fds[i], &event);

			CHECK(ret == 0);
		}
	}
}

/* ---- Groups. ---- */

/* The group of an IPv4 address is mapped as rdma_cm maps it: ff0e::ffff:a.b.c.d. */
static int group_gid(const char *address, uint8_t ret_gid[16])
{
	static const uint8_t mapped[12] = {0xff, 0x0e, [10] = 0xff, [11] = 0xff};
	uint8_t ipv4[4];

	if (inet_pton(AF_INET, address, ipv4) == 1) {
		memcpy(ret_gid, mapped, sizeof(mapped));
		memcpy(ret_gid + sizeof(mapped), ipv4, sizeof(ipv4));
		return (ipv4[0] & 0xf0) == 0xe0 ? 0 : -EINVAL;
	}
	return inet_pton(AF_INET6, address, ret_gid) == 1 && ret_gid[0] == 0xff ? 0 : -EINVAL;
}

int sim_group_join(struct rp_qp *base, const char *address, struct rp_group **ret_group)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);
	struct rp_cm_event event = {.type = RP_CM_GROUP_JOINED, .qp = base};
	char name[108], group_text[GID_CHARS], own[GID_CHARS];
	struct sim_group *group = calloc(1, sizeof(*group));
	int err;

	if (!group)
		return -ENOMEM;
	group->base.ops = &rp_simulated_ops;
	group->qp = qp;
	group->ah.base.ops = &rp_simulated_ops;
	group->base.ah = &group->ah.base;
	err = group_gid(address, group->ah.gid);
	if (!err) {
		snprintf(name, sizeof(name), PREFIX "group:%s:%s:%u",
			gid_text(group->ah.gid, group_text), gid_text(qp->device->gid, own),
			base->num);
		err = socket_add(qp, name, &group->fd);
	}
	if (err) {
		free(group);
		return err == -EADDRINUSE ? -EEXIST : err;
	}
	count_object(qp->device, 1);
	event.group = &group->base;
	pthread_mutex_lock(&qp->device->lock);
	sim_event_push(qp->device, &event);
	pthread_mutex_unlock(&qp->device->lock);
	*ret_group = &group->base;
	return 0;
}

void sim_group_leave(struct rp_group *base)
{
	struct sim_group *group = CONTAINER_OF(base, struct sim_group, base);
	struct sim_device *device = group->qp->device;

	socket_remove(group->qp->dgram, group->fd);
	pthread_mutex_lock(&device->lock);
	sim_event_forget_group(device, base);
	pthread_mutex_unlock(&device->lock);
	count_object(device, -1);
	free(group);
}

/* ---- Flow rules. ---- */

int sim_flow_open(struct rp_qp *base, const struct rp_flow_rule *rule, struct rp_flow **ret_flow)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);
	struct sim_flow *flow = calloc(1, sizeof(*flow));

	if (!flow)
		return -ENOMEM;
	flow->base.ops = &rp_simulated_ops;
	flow->qp = qp;
	flow->rule = *rule;
	list_push_back(&qp->dgram->rules, &flow->link);
	count_object(qp->device, 1);
	*ret_flow = &flow->base;
	return 0;
}

void sim_flow_close(struct rp_flow *base)
{
	struct sim_flow *flow = CONTAINER_OF(base, struct sim_flow, base);

	list_remove(&flow->link);
	count_object(flow->qp->device, -1);
	free(flow);
}
