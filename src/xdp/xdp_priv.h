/* xdp/xdp_priv.h: shared by the files of xdp: rings, queues, the port, the filter. */
#ifndef XDP_XDP_PRIV_H
#define XDP_XDP_PRIV_H

#include <linux/if_xdp.h>
#include <sys/socket.h>

#include "xdp/xdp.h"

/* Newer than the C library's headers; the kernel's numbers do not change. */
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

#define XP_TX_KICKS_MAX	 256u /* the kernel sends 32 packets a call */
#define XP_TX_REAP_NS	 (1 * NS_PER_MS)
#define XP_PUBLISH_BATCH 64u
#define XP_SHOWN_COUNT	 10u
#define XP_BUSY_BUDGET	 64u
#define XP_BUSY_TICK_NS	 (1 * NS_PER_MS)

/* One of a socket's rings, mapped. Producer and consumer are free-running counts. */
struct xp_ring {
	uint32_t *producer;
	uint32_t *consumer;
	uint32_t *flags;
	void *entries;
	uint32_t mask;
	uint32_t seen; /* the other side's count when we last looked */
	uint32_t own;  /* ours, which may run ahead of what is published */
	void *map;
	size_t map_bytes;
};

/* A packet on its way out. */
struct xp_flight {
	uint64_t user_data;
	uint64_t submitted_ns;
	uint32_t next_free;
	uint16_t target;
	uint8_t opcode, flags;
	bool busy;
};

struct xp_sender {
	struct reactor *reactor;
	struct reactor_timer timer;
	struct region_ring *ring; /* that last submitted */
	struct xp_flight *flights;
	uint32_t *by_frame; /* of the UMEM: flight + 1, 0: none */
	uint32_t free;	    /* UINT32_MAX: none */
	uint32_t in_flight;
	uint16_t target;
	bool is_target;
};

struct xp_queue {
	struct xp_port *port;
	int fd;
	uint32_t queue_id;
	struct xp_ring rx, fill, tx, completion;
	uint32_t in_kernel; /* frames in fill or rx */
	bool inside_packet; /* the next frame goes on with the packet of the last */
	struct reactor_poller poller;
	struct xp_sender sender;
	struct {
		uint64_t received, received_bytes, sent, unmarked, stamped;
	} counts;
};

struct xp_filter {
	struct bpf_object *object;
	int program_fd, config_fd, rules_fd, counts_fd, sockets_fd;
	int link_fd;  /* the attachment, which ends with it */
	bool stamped; /* the one that asks for the card's time */
	uint32_t bank, rule_count;
};

struct xp_port {
	struct region *region;
	struct xp_filter filter;
	char interface[32];
	int ifindex;
	enum xp_mode mode;
	bool multi_buffer;
	bool gone;
	uint32_t ring_entries;
	uint32_t busy_poll_us, busy_poll_budget;
	uint8_t *base; /* of the memory that the sockets know */
	uint64_t bytes;
	struct region_span *spans; /* by frame of it: in a receive ring, data NULL otherwise */
	uint32_t queue_count;
	struct fiber *waiter;
	struct reactor_poller news; /* of links */
	_Atomic uint64_t *shown[XP_SHOWN_COUNT];
	_Atomic uint64_t *rules_shown[FILTER_RULES_MAX][2]; /* packets, bytes */
	struct xp_queue queues[XP_QUEUES_MAX];
};

/* ---- rings.c: a socket and its rings. ---- */
/* With umem_fd below 0 the socket registers the region's memory itself, else it shares that of
 * umem_fd. -errno, logged. */
int queue_open(struct xp_queue *queue, int umem_fd);
/* flags: XDP_ZEROCOPY or XDP_COPY; of a shared memory, XDP_SHARED_UMEM. Logs nothing. */
int queue_bind(struct xp_queue *queue, uint32_t flags, int umem_fd);
/* After bind, where the port polls busily. -errno, logged. */
int queue_busy_set(struct xp_queue *queue);
void queue_close(struct xp_queue *queue);

/* ---- queue_dp.c ---- */
bool queue_readable(struct xp_queue *queue);
/* Runs the driver, where the port polls busily. */
void queue_drive(struct xp_queue *queue);
void queue_refill(struct xp_queue *queue);

/* ---- wait_dp.c ---- */
void queue_poller_init(struct xp_queue *queue);
int link_watch(struct xp_port *port);
void link_unwatch(struct xp_port *port);

/* ---- target_dp.c ---- */
void queue_target_close(struct xp_queue *queue);

/* ---- filter.c ---- */
/* For one interface (ifindex), loads the filter that asks its driver for the card's time, and logs
 * nothing when that is refused. 0: loads the plain filter, for any interface. */
int filter_load(struct xp_filter *filter, int ifindex);
/* mode: XP_GENERIC, or another value for the driver's own. Logs nothing. */
int filter_attach(struct xp_filter *filter, int ifindex, enum xp_mode mode);
void filter_detach(struct xp_filter *filter);
int filter_socket_set(struct xp_filter *filter, uint32_t queue_id, int fd);
void filter_unload(struct xp_filter *filter);

/* ---- The rings' arithmetic. ---- */
static inline uint32_t ring_entries_ready(struct xp_ring *ring)
{
	if (ring->seen == ring->own)
		ring->seen = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
	return ring->seen - ring->own;
}

static inline uint32_t ring_places_free(struct xp_ring *ring)
{
	if (ring->own - ring->seen > ring->mask)
		ring->seen = __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
	return ring->mask + 1 - (ring->own - ring->seen);
}

static inline bool ring_wants_wakeup(const struct xp_ring *ring)
{
	return (__atomic_load_n(ring->flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP) != 0;
}

#endif
