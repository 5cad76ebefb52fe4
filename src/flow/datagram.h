/* flow/datagram.h: streams of datagrams between flows: docs/spec/wire.md, "Datagram streams". Over
 * UD queue pairs, to a multicast group or to one queue pair, and as raw Ethernet frames with a VLAN
 * tag and a priority. Nothing is acknowledged or sent again: the receiver counts by their numbers
 * how many datagrams it lost.
 *
 * Neither side copies the payload: it leaves from the frames of its piece and lands at the start of
 * a frame of its own. All calls inside fibers of the core's reactor, unless stated otherwise. */
#ifndef FLOW_DATAGRAM_H
#define FLOW_DATAGRAM_H

#include "flow/link.h"

#define FLOW_DATAGRAM_ETHER_TYPE 0x88b5u /* IEEE 802: for local experiments */

struct flow_datagram;
struct flow_datagram_opts {
	bool sends;
	bool raw;	/* Ethernet frames; false: UD */
	char to[64];	/* UD: a group, or GID/NUMBER of one queue pair; "": receives for itself */
	uint8_t mac[6]; /* raw: of the receiver */
	uint16_t ether_type, vlan; /* raw; vlan 0: no tag */
	uint8_t priority;	   /* raw, with a VLAN: 0 to 7 */
	uint64_t rate;		   /* sender: bytes a second; 0: as fast as they go */
	uint64_t timeout_ns; /* receiver: silence that ends a stream that has begun; 0: 30 s */
	bool accept_loss;    /* receiver: lost datagrams are counted, and are no error */
	void (*failed)(void *arg); /* the device failed; may be NULL */
	void *arg;
};
/* Joins the group. -EINVAL: the address; -EOPNOTSUPP: the device has no such queue pairs;
 * -ECONNREFUSED, -ETIMEDOUT: the group. The reason as text: flow_fabric_why(). */
int flow_datagram_open(struct flow_fabric *fabric, const struct flow_datagram_opts *opts,
	struct flow_datagram **ret_datagram);
void flow_datagram_close(struct flow_datagram *datagram); /* takes NULL */
/* The address that a sender needs, as text. */
const char *flow_datagram_name(const struct flow_datagram *datagram);

/* For one run. next's errors: -EBADMSG: datagrams were lost, or the checksum differs; -ETIMEDOUT:
 * the sender is silent; -EPIPE: it failed; -EPROTO. */
struct flow_source *flow_datagram_source(struct flow_datagram *datagram);
struct flow_sink *flow_datagram_sink(struct flow_datagram *datagram);
/* Also outside fibers: next returns -ECANCELED from now on. */
void flow_datagram_interrupt(struct flow_datagram *datagram);
/* Receiver, also outside fibers: ends the stream here, because nobody can tell the sender to. next
 * returns what has arrived, then 0, or -EBADMSG for losses; -ECANCELED: nothing has arrived. */
void flow_datagram_cut(struct flow_datagram *datagram);

struct flow_datagram_stats {
	uint64_t datagrams, bytes; /* sent, or delivered */
	uint64_t lost;		   /* numbers that did not come */
	uint64_t late;		   /* came twice, or behind a later one: dropped */
	uint64_t strange;	   /* of another stream, or malformed: dropped */
	bool cut;		   /* flow_datagram_cut ended it, before its sender did */
};
void flow_datagram_stats(
	const struct flow_datagram *datagram, struct flow_datagram_stats *ret_stats);
const char *flow_datagram_why(const struct flow_datagram *datagram);

#endif
