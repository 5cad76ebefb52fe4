/* flow/datagram_priv.h: interface between the files of datagram streams, and their wire format. */
#ifndef FLOW_DATAGRAM_PRIV_H
#define FLOW_DATAGRAM_PRIV_H

#include "flow/datagram.h"
#include "flow/link_priv.h"
#include "rdma/datagram.h"

#define DATAGRAM_MAGIC	      0x3144424eu /* "NBD1" */
#define DATAGRAM_VERSION      1u
#define DATAGRAM_UNIT	      512u  /* all payloads but the last are multiples */
#define DATAGRAM_WINDOW	      256u  /* receives */
#define DATAGRAM_BATCH	      32u   /* sends in flight */
#define DATAGRAM_RAW_PAYLOAD  1024u /* fits an Ethernet frame of 1,500 bytes */
#define DATAGRAM_ETHER_BYTES  14u
#define DATAGRAM_TAG_BYTES    4u
#define DATAGRAM_SEND_SLOT    64u
#define DATAGRAM_RECEIVE_SLOT 96u
#define DATAGRAM_END_REPEATS  10u
#define DATAGRAM_END_GAP_NS   (2 * NS_PER_MS) /* before the first; each next twice as long */
#define DATAGRAM_JOIN_NS      (10 * NS_PER_S)

enum datagram_kind { DATAGRAM_DATA = 1, DATAGRAM_END = 2, DATAGRAM_FAILED = 3 };

/* In front of each payload. */
struct datagram_head {
	uint32_t magic;
	uint16_t version;
	uint16_t kind;
	uint64_t stream; /* a random number of the sender's */
	uint64_t number; /* of this datagram, from 0; END: how many there were */
	uint64_t bytes;	 /* of the stream before this datagram; END: in all */
	uint64_t crc;	 /* END: CRC-64/NVME of the stream; 0 otherwise */
};
_Static_assert(sizeof(struct datagram_head) == 40, "as specified");
_Static_assert(DATAGRAM_ETHER_BYTES + DATAGRAM_TAG_BYTES + sizeof(struct datagram_head) <=
		       DATAGRAM_SEND_SLOT,
	"a slot has a frame's head");
_Static_assert(RP_GRH_BYTES + sizeof(struct datagram_head) <= DATAGRAM_RECEIVE_SLOT,
	"a slot has a datagram's head");
_Static_assert(DATAGRAM_BATCH *DATAGRAM_SEND_SLOT <= FRAME_BYTES, "one frame has all slots");

/* 0, or -EPROTO. */
int datagram_head_decode(const void *data, uint32_t bytes, struct datagram_head *ret_head);

struct datagram_receive {
	struct flow_io io;
	struct flow_datagram *self;
	struct region_span span; /* data NULL: not posted */
	uint32_t bytes;
	bool arrived;
	uint64_t arrived_ns;
};

struct flow_datagram {
	struct list link; /* of the fabric */
	struct flow_fabric *fabric;
	struct flow_core *core;
	struct flow_datagram_opts opts;
	struct rp_qp *qp;
	uint16_t target;
	struct rp_ah *ah;
	struct rp_group *group;
	struct rp_flow *flow;
	bool joined, interrupted, cutting;
	int error; /* the first */
	char why[LINK_WHY_TEXT_BYTES];
	char name[96];
	struct fiber *waiter;
	uint32_t front;		  /* bytes before the head of a datagram */
	uint32_t payload_bytes;	  /* the longest */
	struct region_span heads; /* slots */
	uint64_t stream, crc;
	struct flow_datagram_stats stats;

	/* The sender's. */
	struct flow_sink sink;
	uint8_t own_mac[6];
	uint64_t due_ns; /* with a rate: when the next batch may go */

	/* The receiver's. Receives are numbered from 0: taken ≤ posted ≤ taken + DATAGRAM_WINDOW.
	 */
	struct flow_source source;
	struct datagram_receive *receives;
	uint32_t posted, taken;
	bool begun, ended;
	uint64_t number, number_bytes; /* the next expected datagram, and the bytes before it */
	uint64_t heard_ns;
};

/* datagram.c */
/* The first error stays; waiting fibers are woken. */
void datagram_fail(struct flow_datagram *self, int error, const char *why);
/* An event of the fabric's device for one of its datagram queue pairs: true. */
bool datagram_event(struct flow_fabric *fabric, const struct rp_cm_event *event);

/* datagram_dp.c */
extern const struct flow_source_ops DATAGRAM_SOURCE_OPS;
extern const struct flow_sink_ops DATAGRAM_SINK_OPS;

#endif
