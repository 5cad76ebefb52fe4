/* rdma/datagram.h: datagrams: UD queue pairs and their groups, raw packets and their flow rules,
 * and a member of a group for questions and answers. */
#ifndef RDMA_DATAGRAM_H
#define RDMA_DATAGRAM_H

#include "rdma/rdma.h"

/* These queue pairs are in RTS from the beginning.
 *
 * UD: SEND and SEND_IMM of at most one MTU (rp_device_attr().active_mtu; more is -EINVAL) to any UD
 * queue pair, named by an address handle, its number and its qkey; a datagram with another qkey,
 * without a posted receive or with a receive that is too small is dropped silently. A receive
 * begins with RP_GRH_BYTES that are not payload, and byte_len counts them.
 *
 * Raw: SEND of whole Ethernet frames (14 bytes and more, without checksum) from the port; frames
 * come in by flow rules. A card's Ethernet port and CAP_NET_RAW, or the simulated device, whose
 * ports stand on one switch: -EOPNOTSUPP and a log line elsewhere. */
#define RP_GRH_BYTES 40u

/* Groups of UD queue pairs: a datagram to the group reaches every member, perhaps the sender
 * too. */
#define RP_GROUP_QPN 0xffffffu
#define RP_GROUP_QKEY \
	0x01234567u /* rdma_cm's for datagrams: members open their queue pair with it */
/* Starts to join; GROUP_JOINED or GROUP_FAILED follows from rp_cm_poll(). address is an IPv4 or
 * IPv6 multicast address. -EINVAL: it is not, or the queue pair is not UD with that qkey. Call
 * rp_group_leave() before the queue pair closes, also after GROUP_FAILED. */
int rp_group_join(struct rp_qp *qp, const char *address, struct rp_group **ret_group);
void rp_group_leave(struct rp_group *group); /* takes NULL */
/* The address handle for sending to the group, with the number RP_GROUP_QPN; NULL before
 * GROUP_JOINED. Valid until the group is left.
 */
struct rp_ah *rp_group_ah(const struct rp_group *group);

/* Where the sends of a region's ring go, for a UD queue pair that is a target (rp_qp_target()). The
 * address handle must live as long as the queue pair. */
void rp_target_aim(struct rp_qp *qp, struct rp_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey);

/* A rule of a raw queue pair, which receives frames that match any of its rules. */
struct rp_flow_rule {
	bool everything;     /* packets that no other rule of the port takes; ignores the rest */
	uint8_t dst_mac[6];  /* always compared */
	uint16_t ether_type; /* 0: any */
	uint16_t vlan;	     /* 1 to 4094; 0: any, and none */
};
int rp_flow_open(struct rp_qp *qp, const struct rp_flow_rule *rule, struct rp_flow **ret_flow);
void rp_flow_close(struct rp_flow *flow); /* takes NULL; before its queue pair */

/* A member of a group, for questions and answers of one size, or for datagrams to all: a UD queue
 * pair with a device handle of its own, and slots, each with memory for one incoming datagram and
 * one answer. Used by one thread at a time, which polls cq and, for GROUP_JOINED, device. */
struct rp_member_opts {
	struct rp_open_opts device;
	const char *group;
	uint32_t slot_count;
	uint32_t bytes; /* of a datagram */
};
struct rp_member {
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_qp *qp;
	struct rp_mr *mr;
	struct rp_group *group;
	uint32_t slot_count, bytes;
	uint8_t *memory;
	struct rp_ah **to; /* the peer that a slot answers */
};
/* With all receives posted, and joining. */
int rp_member_open(const struct rp_member_opts *opts, struct rp_member *ret_member);
void rp_member_close(struct rp_member *member); /* takes one that is zero */
/* 1: it is in the group; 0: nothing is known yet; -ENETUNREACH: the network refuses; other errors
 * as rp_cm_poll(). Takes the device's events. Never waits. */
int rp_member_joined(struct rp_member *member);
/* The received datagram, RP_GRH_BYTES before its payload, and the datagram to send. A completion's
 * wr_id is its slot. */
uint8_t *rp_member_in(const struct rp_member *member, uint64_t slot);
uint8_t *rp_member_out(const struct rp_member *member, uint64_t slot);
/* Posts the slot's receive again, after its datagram was handled or its answer was sent. */
int rp_member_post(struct rp_member *member, uint64_t slot);
/* Sends the slot's out to the sender of its datagram. The slot is busy until the send completes, or
 * until this call fails. */
int rp_member_answer(struct rp_member *member, const struct rp_wc *wc);
/* Sends the out of slot slot_count, which receives nothing, to the group. After GROUP_JOINED. */
int rp_member_ask(struct rp_member *member);
/* Sends so many bytes of the slot's out to the group. After GROUP_JOINED. The out is busy until the
 * send completes. */
int rp_member_tell(struct rp_member *member, uint64_t slot, uint32_t bytes);

#endif
