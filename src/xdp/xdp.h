/* xdp/xdp.h: AF_XDP: packets of a network interface received into, and sent from, the region's own
 * frames, past the kernel's network stack.
 *
 * A port is an interface with the packet filter (bpf/filter.bpf.c) attached and one socket for each
 * of its receive queues. A redirected packet is received into a frame of the region, so that its
 * UDP payload (IPv4, no options, no VLAN tag) begins at byte 512 of the frame: a disk can write it
 * from there. Packets that match no rule go to the kernel unchanged.
 *
 * While a frame is in a ring the kernel may write into it: its owner is OWNER_XDP. xp_receive()
 * hands it over to OWNER_APP; xp_recycle() or a region_give() ends that.
 *
 * A port belongs to one reactor: all calls on its thread, apart from open, close and the rules.
 *
 * Source: the kernel's Documentation/networking/af_xdp.rst; bpf(2); <linux/if_xdp.h>. */
#ifndef XDP_XDP_H
#define XDP_XDP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "reactor/reactor.h"
#include "region/region.h"
#include "xdp/bpf/filter.h"

/* How packets come into the frames, best first. */
enum xp_mode {
	XP_ZEROCOPY, /* the card writes them there */
	XP_NATIVE,   /* the driver copies them there before the stack sees them */
	XP_GENERIC,  /* the stack copies them there: any interface, slowest */
	XP_MODE_COUNT
};
/* "zero-copy", "native copy", "generic". Static. */
const char *xp_mode_name(enum xp_mode mode);

#define XP_QUEUES_MAX		FILTER_QUEUES_MAX
#define XP_RING_ENTRIES_DEFAULT 8192u
#define XP_RING_ENTRIES_MAX	32768u
#define XP_BUSY_POLL_US_MAX	1000u
#define XP_PAYLOAD_OFFSET	512u /* in the frame, of an untagged IPv4 UDP payload */
#define XP_ETHERNET_BYTES	14u
/* The kernel's own headroom comes before ours: 256 + 214 + 14 + 20 + 8 = 512. */
#define XP_KERNEL_HEADROOM_BYTES 256u
#define XP_HEADROOM_BYTES	 214u
_Static_assert(XP_KERNEL_HEADROOM_BYTES + XP_HEADROOM_BYTES + XP_ETHERNET_BYTES + 20 + 8 ==
		       XP_PAYLOAD_OFFSET,
	"a UDP payload begins on a 512-byte boundary");
/* Longest packet that fits one frame; a longer one comes in several (xp_packet.more). */
#define XP_FRAME_PACKET_BYTES_MAX (FRAME_BYTES - XP_KERNEL_HEADROOM_BYTES - XP_HEADROOM_BYTES)
_Static_assert(sizeof(struct filter_mark) <= 32, "a mark fits the driver's room for it");

struct xp_port;
struct xp_queue;

struct xp_opts {
	const char *interface;
	uint32_t queue_first; /* receive queue of the card */
	uint32_t queue_count; /* 0: 1 */
	/* Of each ring of each queue, a power of two; 0: XP_RING_ENTRIES_DEFAULT. As many frames
	 * of the region are held by each queue. */
	uint32_t ring_entries;
	enum xp_mode mode_best; /* the best one to try; worse ones follow */
	bool mode_only;		/* that mode or none */
	/* Busy polling: a waiting thread polls the driver for this long before it sleeps, at most
	 * this many packets at once (0: 64); meanwhile the card's interrupts are off. 0: no busy
	 * polling. -EOPNOTSUPP: the kernel has no busy polling (Linux 5.11 has). */
	uint32_t busy_poll_us, busy_poll_budget;
};

/* Opens sockets, attaches the filter without a rule (so everything still goes to the kernel).
 * -ENODEV: no such interface, or no such queue; -EPERM: needs CAP_NET_ADMIN, CAP_NET_RAW and
 * CAP_BPF; -EBUSY: another program filters this interface, or holds this queue for 30 s, so long
 * may the kernel take to release it; -EOPNOTSUPP: the kernel or the driver has no AF_XDP; -ENOBUFS:
 * the region has too few free frames; -EINVAL. On an error the log has a line with the reason and
 * the remedy. May block. */
int xp_open(struct region *region, const struct xp_opts *opts, struct xp_port **ret_port);
/* Detaches the filter, closes the sockets, and gives back all frames that the rings held. Takes
 * NULL. When the process ends, the kernel does the same, except for the frames. */
void xp_close(struct xp_port *port);

enum xp_mode xp_mode(const struct xp_port *port);
/* True when the kernel attached the filter for packets of several frames and the sockets accept
 * such packets. */
bool xp_multi_buffer(const struct xp_port *port);
/* True when the filter asks the driver for the card's time of each packet; the driver may have
 * none. */
bool xp_asks_hardware_time(const struct xp_port *port);
uint32_t xp_queue_count(const struct xp_port *port);
const char *xp_interface(const struct xp_port *port);
/* The size of each ring: how many packets can wait for a late reader. */
uint32_t xp_ring_entries(const struct xp_port *port);
struct xp_queue *xp_queue(struct xp_port *port, uint32_t idx);

/* ---- The filter. ---- */
struct xp_rule {
	enum filter_action action;
	uint8_t family;		     /* 4, 6; 0: any */
	uint8_t protocol;	     /* IPPROTO_…; 0: any */
	uint16_t port_min, port_max; /* destination, inclusive; both 0: any */
	bool vlan_set;		     /* vlan says the tag, FILTER_VLAN_NONE that there is none */
	uint16_t vlan;
	/* Addresses in network order, IPv4 in the first four bytes; 0 bits: any. */
	uint8_t source[16], dest[16];
	uint8_t source_bits, dest_bits;
};
/* Replaces all rules at once, between two packets; counts start at 0. First match wins. -EINVAL: a
 * rule contradicts itself, or there are more than FILTER_RULES_MAX. Any one thread at a time. */
int xp_rules_set(struct xp_port *port, const struct xp_rule *rules, uint32_t count);
/* How many packets matched rule idx since it was set. -ENOENT. */
int xp_rule_count(const struct xp_port *port, uint32_t idx, struct filter_count *ret_count);

/* ---- Receiving. ---- */
struct xp_packet {
	struct region_span span; /* one frame, OWNER_APP */
	uint8_t *data;		 /* from the Ethernet header on */
	uint32_t bytes;
	bool more;	      /* the packet goes on in the next one */
	uint64_t received_ns; /* CLOCK_MONOTONIC: in the driver where it was marked, else now */
	uint64_t hardware_ns; /* by the card's clock, whatever that is set to; 0: none */
};
/* Takes up to max packets; the caller owns their frames. Never sleeps. Also refills the fill ring
 * from the region. */
uint32_t xp_receive(struct xp_queue *queue, struct xp_packet *packets, uint32_t max);
/* Puts a frame of xp_receive() back into its rings: cheaper than give and lease. */
void xp_recycle(struct xp_queue *queue, struct region_span span);
/* Makes the calling fiber sleep until a queue of the port has packets: 0; -ETIMEDOUT; -EINTR when
 * something else woke the fiber; -ENODEV when the interface is gone. One fiber at a time. */
int xp_wait(struct xp_port *port, struct reactor *reactor, uint64_t deadline_ns);
/* -ENODEV when the interface is gone (it was removed, or moved to another namespace). */
int xp_health(struct xp_port *port);

/* ---- Sending. ---- */
/* Makes a queue a target of the region's base rings: REGION_OP_PACKET_TX with addr at the Ethernet
 * header and the whole packet in one frame, which the submitter has switched to OWNER_XDP and gets
 * back with the completion. -EMSGSIZE: it crosses a frame's end. A timer of the reactor looks for
 * completions. */
int xp_target(struct xp_queue *queue, struct reactor *reactor, uint16_t *ret_target);

/* ---- Counters. ---- */
struct xp_stats {
	uint64_t received, received_bytes; /* frames handed over */
	uint64_t sent;
	/* Lost packets. ring_full: no place in the receive ring. dropped: any other cause, most
	 * often no frame in the fill ring (fill_empty: how many times the kernel found none). */
	uint64_t ring_full, fill_empty, dropped;
	uint64_t invalid_rx, invalid_tx; /* descriptors that the kernel refused */
	uint64_t unmarked;		 /* packets whose time is the receiver's */
	uint64_t stamped;		 /* packets with a time of the card */
};
void xp_stats(const struct xp_port *port, struct xp_stats *ret_stats);
/* Publishes them, and the matches of each rule, on the process's board for `nebulaio top`. */
void xp_show(struct xp_port *port);

#endif
