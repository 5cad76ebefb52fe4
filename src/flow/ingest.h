/* flow/ingest.h: the network → storage flow: packets that AF_XDP received into the region's frames
 * become bodies, as pcapng or as the plain payloads of datagrams. Built if xdp is.
 *
 * A capture lives as long as it listens to the port. It yields bodies one after another: a body
 * ends when it is long or old enough. The next may begin while the last one is still being made
 * durable, so that no packet is lost in between. One body at a time takes a port's packets.
 *
 * Copies: a pcapng body is packets with headers between them, gathered into chunks, so each packet
 * is copied once (COPY_GATHER). Plain payloads go uncopied from the packet's frame to the disk.
 *
 * Transforms of packets change each packet in its frame before anything else is done with it, a
 * batch at a time on a helper thread.
 *
 * All calls inside fibers of the core's reactor, unless stated otherwise. */
#ifndef FLOW_INGEST_H
#define FLOW_INGEST_H

#include "flow/flow.h"
#include "flow/transform.h"
#include "xdp/xdp.h"

/* ---- pcapng. Source: draft-ietf-opsawg-pcapng. Blocks in the host's byte order. ---- */
#define PCAPNG_HEAD_BYTES_MAX	256u
#define PCAPNG_PACKET_BYTES	32u /* of a packet block, without the packet and its padding */
#define PCAPNG_STATISTICS_BYTES 76u

/* The section header and the one interface, timestamps in nanoseconds; returns the length. */
uint32_t pcapng_head(uint8_t out[PCAPNG_HEAD_BYTES_MAX], const char *interface);
/* The header before a packet (28 bytes) … */
void pcapng_packet_head(uint8_t out[28], uint64_t real_ns, uint32_t bytes, uint32_t bytes_on_wire);
/* … and its end: padding to 4 bytes and the block's length again; returns the length (4 to 7). */
uint32_t pcapng_packet_tail(uint8_t out[8], uint32_t bytes);
/* The interface's statistics, which end a body. */
struct pcapng_statistics {
	uint64_t start_ns, end_ns; /* real time */
	uint64_t received, dropped;
};
void pcapng_statistics(
	uint8_t out[PCAPNG_STATISTICS_BYTES], const struct pcapng_statistics *statistics);

/* ---- Capturing. ---- */
enum flow_capture_form {
	FLOW_CAPTURE_PCAPNG,
	FLOW_CAPTURE_PAYLOAD, /* UDP payloads of a multiple of payload_unit bytes, without anything
				 between them */
};

struct flow_capture;
struct flow_capture_opts {
	enum flow_capture_form form;
	const char *interface; /* named in the body */
	/* A power of two, 512 or more: payloads are whole units at addresses that devices accept.
	 * 1: of any length at any address, for transforms that give other pieces. */
	uint32_t payload_unit;
	struct flow_transforms *transforms; /* of packets, borrowed; NULL: none */
	uint64_t roll_bytes; /* a body ends at the first packet that makes it this long; 0: never */
	uint64_t roll_ns;    /* … or this long after its first packet; 0: never */
	bool kernel_time;    /* pcapng: never the card's */
	uint64_t packets_max; /* the capture ends after so many; 0: never */
	uint64_t deadline_ns; /* or at this time (monotonic) */
	/* Called after a body's last piece was delivered: the next may begin. */
	void (*body_ended)(void *arg);
	void *arg;
};
struct flow_capture_stats {
	uint64_t packets, packet_bytes; /* written to bodies */
	uint64_t body_bytes;
	/* Payload form: not UDP, or of another length. With transforms: of several frames. */
	uint64_t unfit;
	uint64_t removed; /* by transforms */
	uint64_t lost;	  /* because the rings were full */
	uint64_t stamped; /* pcapng: packets with the card's time */
};

/* Any thread. The port is the caller's and must outlive it. */
int flow_capture_open(struct flow_core *core, struct xp_port *port,
	const struct flow_capture_opts *opts, struct flow_capture **ret_capture);
void flow_capture_close(struct flow_capture *capture); /* takes NULL; no body open */
/* Waits for the first packet of the next body: 1; 0: the capture has ended; -ENODEV: its interface
 * is gone; or the error of a transform of packets. */
int flow_capture_wait(struct flow_capture *capture);
/* A source of one body, after a wait that returned 1. */
int flow_capture_source_open(struct flow_capture *capture, struct flow_source **ret_source);
/* Ends the capture in order: from now on packets go to the kernel, packets that arrived before are
 * still captured. Inside or outside fibers. */
void flow_capture_stop(struct flow_capture *capture);
void flow_capture_stats(const struct flow_capture *capture, struct flow_capture_stats *ret_stats);

#endif
