/* rdma/simulated/join.c: simulated queue pairs that are joined by hand. A device whose address was
 * read listens under its GID, a random number; the end that joins second connects there. The hello
 * names both queue pairs and both first packet numbers, so that a process that does not know them
 * cannot pass as the peer. */
#include <errno.h>
#include <stdio.h>

#include "rdma/simulated/simulated_priv.h"

#define JOIN_PORT    1
#define JOIN_WAIT_NS (5 * NS_PER_S)

/* The caller's part, in the hello's private data. */
struct join_hello {
	uint8_t gid[16]; /* the caller's */
	uint32_t psn;
	uint32_t peer_qpn;
	uint32_t peer_psn;
};

static void gid_address(const uint8_t gid[16], char text[40])
{
	int len = snprintf(text, 40, "gid:");

	for (int i = 0; i < 16; i++)
		len += snprintf(text + len, 40 - (size_t)len, "%02x", gid[i]);
}

/* A random GID of the unique local kind, which differs from every card's. */
int sim_device_name_itself(struct sim_device *device)
{
	struct rp_listener *listener;
	uint8_t gid[16] = {0xfd, 'N', 'S', 'I', 'M'};
	char address[40];
	int err;

	if (device->join_listener)
		return 0;
	random_fill(gid + 8, 8);
	gid_address(gid, address);
	err = sim_listen(&device->base, address, JOIN_PORT, &listener);
	if (err)
		return err;
	pthread_mutex_lock(&device->lock);
	memcpy(device->gid, gid, sizeof(gid));
	device->join_listener = listener;
	pthread_mutex_unlock(&device->lock);
	return 0;
}

int sim_qp_address(struct rp_qp *base, struct rp_address *ret_address)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);
	int err = sim_device_name_itself(qp->device);

	if (err)
		return err;
	*ret_address =
		(struct rp_address){.has_gid = true, .qpn = base->num, .psn = qp->psn, .mtu = 4096};
	memcpy(ret_address->gid, qp->device->gid, sizeof(ret_address->gid));
	return 0;
}

int sim_qp_join(struct rp_qp *base, const struct rp_address *peer, bool first)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);
	struct join_hello hello = {.psn = qp->psn, .peer_qpn = peer->qpn, .peer_psn = peer->psn};
	char address[40];
	int err = sim_device_name_itself(qp->device);

	if (err)
		return err;
	if (qp->conn || qp->joined || sim_qp_state(base) != RP_QPS_INIT)
		return -EISCONN;
	if (!peer->has_gid)
		return -EINVAL;
	qp->joined = true;
	if (!first) {
		memcpy(hello.gid, qp->device->gid, sizeof(hello.gid));
		gid_address(peer->gid, address);
		return sim_connect(base, address, JOIN_PORT, slice_of(&hello, sizeof(hello)),
			clock_now_ns() + JOIN_WAIT_NS);
	}
	pthread_mutex_lock(&qp->device->lock);
	qp->join_peer = *peer;
	list_push_back(&qp->device->joins, &qp->joining);
	pthread_mutex_unlock(&qp->device->lock);
	return 0;
}

struct sim_qp *sim_join_take(struct sim_device *device, const struct sim_packet *packet)
{
	struct join_hello hello;

	if (packet->private_len != sizeof(hello))
		return NULL;
	memcpy(&hello, packet->private_data, sizeof(hello));
	LIST_FOR_EACH (link, &device->joins) {
		struct sim_qp *qp = CONTAINER_OF(link, struct sim_qp, joining);
		const struct rp_address *peer = &qp->join_peer;

		if (qp->base.num != hello.peer_qpn || qp->psn != hello.peer_psn ||
			peer->qpn != packet->qpn || peer->psn != hello.psn ||
			memcmp(peer->gid, hello.gid, sizeof(hello.gid)) != 0)
			continue;
		list_remove(&qp->joining);
		return qp;
	}
	return NULL;
}
