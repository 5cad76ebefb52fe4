/* flow/link.h: streams between flows over RDMA: docs/spec/wire.md, "Streams". A link is one
 * connected queue pair that carries bytes in one direction: its receiving end is a flow source, its
 * sending end a flow sink. The receiver leases and posts frames for records; the sender sends
 * records from the frames that hold them. Neither side copies them or gives the other a key.
 *
 * Back-pressure: a receiver posts as many frames as it has room for and reports the number to the
 * sender. All calls inside fibers of the core's reactor, unless stated otherwise. */
#ifndef FLOW_LINK_H
#define FLOW_LINK_H

#include "flow/flow.h"

#define LINK_TIMEOUT_NS (30 * NS_PER_S)

/* A device opened for streams: protection domain, arenas registered, completion queue. */
struct flow_fabric;
/* Any thread, before the reactor's first turn. device_name as in rp_open(). rp_open's errors; the
 * log says why. */
int flow_fabric_open(
	struct flow_core *core, const char *device_name, struct flow_fabric **ret_fabric);
/* In a fiber: before close. Waits for the kernel's outstanding polls. */
void flow_fabric_end(struct flow_fabric *fabric);
/* Takes NULL; no link or listener open. */
void flow_fabric_close(struct flow_fabric *fabric);
/* The device's name and transport, "simulated (simulated)". */
const char *flow_fabric_name(const struct flow_fabric *fabric);

struct flow_link;
struct flow_link_opts {
	bool sends; /* this end sends; false: it receives */
	/* Receiver: length of each receive; sender: its preferred longest record. A multiple of
	 * FRAME_BYTES up to 1 MiB; 0: 1 MiB. */
	uint32_t record_bytes;
	/* Sender: its pieces but the last are multiples of it. Receiver: what it needs. A power of
	 * two up to FRAME_BYTES; 0: 1. */
	uint32_t unit;
	uint64_t bytes_total; /* sender: UINT64_MAX when not known */
	uint64_t timeout_ns;  /* without a message from the peer; 0: LINK_TIMEOUT_NS */
	/* Sender: the peer has acknowledged so many bytes. May be NULL. */
	void (*acknowledged)(void *arg, uint64_t bytes);
	/* Sender: so many bytes lie in the peer's memory. May be NULL. */
	void (*delivered)(void *arg, uint64_t bytes);
	/* Called once, when the link fails or its peer ends it, so that a waiting source can stop
	 * waiting. May be NULL. */
	void (*failed)(void *arg);
	void *arg;
};

/* -ECONNREFUSED: nobody listens, or the peer refused; -EBUSY: it serves another stream now. The
 * reason as text: flow_fabric_why(). */
int flow_link_connect(struct flow_fabric *fabric, const struct flow_link_opts *opts,
	const char *address, uint16_t port, struct flow_link **ret_link);

struct flow_listener;
/* Any thread. rp_listen's errors. */
int flow_link_listen(struct flow_fabric *fabric, const char *address, uint16_t port,
	struct flow_listener **ret_listener);
void flow_link_listener_close(struct flow_listener *listener); /* takes NULL */
uint16_t flow_link_port(const struct flow_listener *listener);
/* Waits for a peer of the other role; those that do not fit are refused and logged. -ECANCELED
 * after flow_link_cancel(). */
int flow_link_accept(struct flow_listener *listener, const struct flow_link_opts *opts,
	struct flow_link **ret_link);
/* Ends the waiting accept, or the next one. */
void flow_link_cancel(struct flow_listener *listener);

/* The receiving end, for one run. next's errors: -EPIPE: the stream was cut off, or its sender
 * failed; -EBADMSG: the totals differ; -EPROTO; -ETIMEDOUT: silence. */
struct flow_source *flow_link_source(struct flow_link *link);
/* The sending end, for one run. finish returns 0 when the peer has confirmed that everything
 * arrived, is durable and has the same checksum. */
struct flow_sink *flow_link_sink(struct flow_link *link);

/* Receiver: reports that so many bytes from the start are durable. Any time, also outside
 * fibers. */
void flow_link_acknowledge(struct flow_link *link, uint64_t bytes);
/* Receiver, after the run: tells the sender how it ended (0 or -errno) and waits for it to leave.
 */
void flow_link_end(struct flow_link *link, int error);
/* Receiver, also outside fibers: next returns -ECANCELED from now on, while the link goes on, so
 * that flow_link_end() can tell the sender. */
void flow_link_interrupt(struct flow_link *link);
/* Either end, also outside fibers: gives the link up; waiters find -ECANCELED. */
void flow_link_stop(struct flow_link *link);
void flow_link_close(struct flow_link *link); /* takes NULL */

struct flow_link_stats {
	uint64_t records, bytes; /* taken from, or handed to, the device */
	uint64_t acknowledged;
	uint64_t crc64nvme; /* of bytes */
	uint64_t bytes_total;
	uint32_t credits; /* sender: left; receiver: posted */
	uint32_t record_bytes;
};
void flow_link_stats(const struct flow_link *link, struct flow_link_stats *ret_stats);
bool flow_link_sends(const struct flow_link *link);
const char *flow_link_peer(const struct flow_link *link);
/* The reason as text: of a failed link, or of a refused connect. */
const char *flow_link_why(const struct flow_link *link);
const char *flow_fabric_why(const struct flow_fabric *fabric);

#endif
