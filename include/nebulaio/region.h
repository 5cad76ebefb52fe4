/* nebulaio/region.h: the unified memory region as a library, and its manual: memory that is
 * registered with an RDMA device, AF_XDP and disks, and one interface to submit work to them. For
 * programs that use the region without the object store.
 *
 *	struct neb_region_options options = {.bytes = 64 << 20};
 *	struct neb_region *region;
 *	struct neb_span span;
 *	struct neb_done done;
 *	uint16_t disk;
 *
 *	if (neb_region_create(&options, &region))
 *		return 1;
 *	neb_attach_disk(region, "./data.img", NEB_DISK_CREATE, 64 << 20, &disk);
 *	neb_span_lease(region, 1 << 20, &span);
 *	memset(span.data, 'x', span.bytes);
 *	neb_work_submit(region, &(struct neb_work){.op = NEB_WRITE, .target = disk, .span = span});
 *	neb_work_reap(region, &done, 1, NEB_FOREVER);
 *	neb_span_give(region, &span);
 *	neb_region_destroy(region);
 *
 * Build with `pkg-config --cflags --libs nebulaio-region`. examples/ has a program for each flow.
 *
 * FRAMES. The region consists of frames of 4 KiB. A span is a lease of adjacent frames. Every span
 * has an owner: work takes it from the program (NEB_APP) to a device and its completion brings it
 * back, so one span is at one device at a time, and a program that uses a span which it has given
 * away, or which is at a device, gets an error (-EPERM, -ESTALE) and no damage. Data from one
 * device can go to another without a copy.
 *
 * THREADS. A region, with everything attached to it, is used by one thread at a time. The library
 * has no hidden thread, only the kernel's. Nothing happens outside the calls: a program with work
 * in progress calls neb_work_reap() to make it continue.
 *
 * ERRORS. Functions return 0 or a negative errno. When a device cannot be used, the reason is
 * printed once on standard error. */
#ifndef NEBULAIO_REGION_H
#define NEBULAIO_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(NEB_BUILDING) && defined(__GNUC__)
#define NEB_REGION_API __attribute__((visibility("default")))
#else
#define NEB_REGION_API
#endif

#define NEB_FRAME_BYTES	   4096u
#define NEB_SPAN_BYTES_MAX (4u << 20)
#define NEB_FOREVER	   UINT64_MAX

struct neb_region;

/* ---- A region. ---- */
/* Zero it, then set what you need. */
struct neb_region_options {
	const char *name;      /* in /proc/PID/maps and `nebulaio region dump` ["nebulaio"] */
	uint64_t bytes;	       /* of frames; needed, 1 MiB or more */
	uint32_t ring_entries; /* work in flight at a time, a power of two up to 4096 [1024] */
	bool huge_pages;       /* 2 MiB pages where there are some */
};

/* Creates a region. -EINVAL: an option; -ENOMEM; -EPERM, -ENOSYS: no io_uring here. */
NEB_REGION_API int neb_region_create(
	const struct neb_region_options *options, struct neb_region **ret_region);
/* Ends a region; takes NULL. Ends connections, detaches devices; work in progress is cut off, spans
 * become invalid. */
NEB_REGION_API void neb_region_destroy(struct neb_region *region);
/* Payload that this process copied by the processor, ever: 0 as long as only devices move it. */
NEB_REGION_API uint64_t neb_region_copied(const struct neb_region *region);

/* ---- Frames. ---- */
enum neb_owner { NEB_FREE, NEB_APP, NEB_RDMA, NEB_XDP, NEB_DISK, NEB_NET, NEB_CACHE };

/* A plain value: copy it freely, but it has only one holder. */
struct neb_span {
	void *data;
	uint32_t bytes; /* whole frames */
	uint32_t frame;
	uint32_t generation; /* marks a copy that is out of date */
};

/* Leases enough frames for this many bytes, 1 to NEB_SPAN_BYTES_MAX, page-aligned; not cleared.
 * -ENOBUFS: none free now; -EINVAL. */
NEB_REGION_API int neb_span_lease(
	struct neb_region *region, uint32_t bytes, struct neb_span *ret_span);
/* Ends a lease. -EPERM: a device has it; -EBUSY: peers may reach it, neb_rdma_conceal() it first;
 * -ESTALE: it was given back before. */
NEB_REGION_API int neb_span_give(struct neb_region *region, const struct neb_span *span);
/* A checked transfer between owners, for users that are not devices of this library: to NEB_NET
 * while a socket has it, to NEB_CACHE while it is kept. -EPERM: from is not its owner; -ESTALE;
 * -EINVAL. */
NEB_REGION_API int neb_span_hand(struct neb_region *region, const struct neb_span *span,
	enum neb_owner from, enum neb_owner to);
/* The owner of a span: an enum neb_owner, or -ESTALE. */
NEB_REGION_API int neb_span_owner(const struct neb_region *region, const struct neb_span *span);

struct neb_usage {
	uint64_t frames;	     /* in all */
	uint64_t frames_by_owner[7]; /* by enum neb_owner */
	uint64_t work_in_flight;
};
/* How many frames each owner has, and how much work is in progress. */
NEB_REGION_API void neb_region_usage(const struct neb_region *region, struct neb_usage *ret_usage);

/* ---- Disks: files, block devices, NVMe passthrough (/dev/ng0n1), by the path. ---- */
enum neb_disk_flags {
	NEB_DISK_CREATE = 1, /* a file that does not exist */
	NEB_DISK_READ_ONLY = 2,
	NEB_DISK_OVERWRITE = 4, /* a device that is not blank */
};
/* Attaches a file, a block device or an NVMe character device. bytes: its minimum size; a file
 * grows to it. *ret_target: for work. -ENOENT, -EACCES, -EBUSY, -ENOSPC, -EEXIST: the device is not
 * blank. */
NEB_REGION_API int neb_attach_disk(struct neb_region *region, const char *path, uint32_t flags,
	uint64_t bytes, uint16_t *ret_target);
/* A disk's size; 0: no such disk. */
NEB_REGION_API uint64_t neb_disk_bytes(const struct neb_region *region, uint16_t target);
/* Offsets, lengths and places in a span must be multiples of this; 0: no such disk. */
NEB_REGION_API uint32_t neb_disk_align(const struct neb_region *region, uint16_t target);

/* ---- RDMA: connections. One device for a region. ---- */
/* Attaches an RDMA device: "simulated" (processes of this host), "mlx5_0", "mlx5_0:1:3" (port,
 * GID). -ENODEV; -EEXIST. */
NEB_REGION_API int neb_attach_rdma(struct neb_region *region, const char *device);
/* Listens for peers. address "" is any; *port 0 chooses one and returns it. -EADDRINUSE; -EEXIST:
 * the region already listens.
 */
NEB_REGION_API int neb_rdma_listen(struct neb_region *region, const char *address, uint16_t *port);
enum neb_rdma_type {
	NEB_RC, /* reliable: each message arrives, in order, or the connection ends */
	NEB_UC, /* unreliable: nothing is acknowledged or repeated, and a loss is not reported; no
		   NEB_RDMA_READ */
};
/* How to connect. receives: spans of receive_bytes each that are posted before the
 * connection is made, so that the peer may send at once; their completions are of op NEB_RECV with
 * the span in them. 0: none. */
struct neb_rdma_options {
	uint32_t receives, receive_bytes;
	uint64_t timeout_ns;	 /* [without limit] */
	enum neb_rdma_type type; /* the same at both ends, else -ECONNREFUSED [NEB_RC] */
};
/* Takes the next peer that connects: a queue pair for work. -ETIMEDOUT; -ENOBUFS. */
NEB_REGION_API int neb_rdma_accept(
	struct neb_region *region, const struct neb_rdma_options *options, uint16_t *ret_target);
/* Connects to a peer that listens: a queue pair for work. -ETIMEDOUT; -ECONNREFUSED; -ENOBUFS. */
NEB_REGION_API int neb_rdma_connect(struct neb_region *region, const char *address, uint16_t port,
	const struct neb_rdma_options *options, uint16_t *ret_target);
/* Whether a connection is up, or a group joined. */
NEB_REGION_API bool neb_rdma_connected(const struct neb_region *region, uint16_t target);
/* Ends a connection, a membership or a raw queue pair: work in progress completes with -ECANCELED.
 */
NEB_REGION_API void neb_rdma_disconnect(struct neb_region *region, uint16_t target);
/* Lets peers read a span, or also write it, while it is exposed: the key is a credential. -ENOSPC.
 */
NEB_REGION_API int neb_rdma_expose(
	struct neb_region *region, const struct neb_span *span, bool writable, uint32_t *ret_rkey);
/* Ends an exposure. -ENOENT. */
NEB_REGION_API int neb_rdma_conceal(struct neb_region *region, uint32_t rkey);

/* ---- RDMA: datagrams and Ethernet frames, without connections or acknowledgements. ---- */
#define NEB_DATAGRAM_HEAD 40u
/* Joins a group of UD queue pairs, by its IPv4 or IPv6 multicast address. NEB_SEND sends one
 * datagram to each member, perhaps this one too; NEB_RECV takes one, behind NEB_DATAGRAM_HEAD bytes
 * that are not payload and that its result counts. A datagram that finds no receive, or a receive
 * that is too small, is lost. options: receives and timeout. -EINVAL: not such an address;
 * -ECONNREFUSED: the network refuses; -ETIMEDOUT; -ENODEV. */
NEB_REGION_API int neb_rdma_join(struct neb_region *region, const char *group,
	const struct neb_rdma_options *options, uint16_t *ret_target);
/* The longest payload of a datagram; 0: no device. */
NEB_REGION_API uint32_t neb_rdma_datagram_bytes(const struct neb_region *region);
/* The Ethernet frames that a raw queue pair takes from the card's port; the kernel does not see
 * them.
 */
struct neb_rdma_frames {
	uint8_t mac[6];	     /* their destination */
	uint16_t ether_type; /* [any] */
	uint16_t vlan;	     /* 1 to 4094 [any, and none] */
	bool everything;     /* that nobody else takes; the rest is ignored */
};
/* Opens a raw queue pair: NEB_SEND sends one whole frame, from the Ethernet header on without the
 * checksum, NEB_RECV takes one. options: receives. -EOPNOTSUPP: the device has none (soft-RoCE), or
 * CAP_NET_RAW is missing; -ENODEV. */
NEB_REGION_API int neb_rdma_raw(struct neb_region *region, const struct neb_rdma_frames *take,
	const struct neb_rdma_options *options, uint16_t *ret_target);

/* ---- Packets: AF_XDP on the region's frames. ---- */
/* Several interfaces may be attached, each with several of its receive queues: one socket for each
 * queue, all over the same frames, so that a packet that one received can be sent by any other, to
 * a disk or to a peer without a copy. An interface's number is its place in the order of attaching,
 * from 0; a queue's is its own among those of its interface that are attached, from 0. */
#define NEB_INTERFACES_MAX 16u
#define NEB_QUEUES_MAX	   64u
struct neb_xdp_options {
	/* Takes UDP packets to these ports; everything else goes to the kernel as before. Both 0:
	 * takes none, and only sends. */
	uint16_t port_min, port_max;
	uint32_t queue_first; /* of the interface's receive queues (`ethtool -l`) [0] */
	uint32_t queue_count; /* from there on [1] */
};
/* -ENODEV: no such interface; -EPERM, -EOPNOTSUPP; -EBUSY: another program uses it, or a queue;
 * -EINVAL: it lacks those queues; -EEXIST: it is already attached; -ENOSPC: too many are attached;
 * -ENOBUFS: too few frames are free for the rings; -ENOSYS: the library was built without
 * AF_XDP. */
NEB_REGION_API int neb_attach_xdp_queues(struct neb_region *region, const char *interface,
	const struct neb_xdp_options *options, uint32_t *ret_interface);
/* The same with the interface's first queue alone. */
NEB_REGION_API int neb_attach_xdp(
	struct neb_region *region, const char *interface, uint16_t port_min, uint16_t port_max);
/* "zero-copy", "native copy", "generic"; "" without such an interface. */
NEB_REGION_API const char *neb_xdp_interface_mode(
	const struct neb_region *region, uint32_t interface);
/* Of interface 0. */
NEB_REGION_API const char *neb_xdp_mode(const struct neb_region *region);
struct neb_packet {
	struct neb_span span; /* yours, one frame: give it, or submit it */
	void *data;	      /* from the Ethernet header on */
	uint32_t bytes;
	void *payload; /* of a whole UDP datagram over IPv4 without options; else NULL */
	uint32_t payload_bytes;
	uint64_t received_ns;	   /* CLOCK_MONOTONIC, as early as the driver's filter saw it */
	uint32_t interface, queue; /* that it came by */
};
/* Waits for packets of any interface and queue, and returns how many; packets of one queue are in
 * order, and the queues take turns. 0 at the timeout; -ENODEV: none is attached, or one is gone and
 * the others have no packets. */
NEB_REGION_API int neb_xdp_receive(struct neb_region *region, struct neb_packet *packets,
	uint32_t packets_max, uint64_t timeout_ns);
/* Packets that were lost because a queue was full, on all interfaces. */
NEB_REGION_API uint64_t neb_xdp_lost(const struct neb_region *region);
/* Packets that were lost because a queue was full, on one interface, by its number. */
NEB_REGION_API uint64_t neb_xdp_interface_lost(const struct neb_region *region, uint32_t interface);

/* For work of op NEB_PACKET: packets that a queue sends unchanged, from the Ethernet header on,
 * without the kernel's stack. -ENODEV: no such interface or queue. */
NEB_REGION_API int neb_xdp_queue_target(
	struct neb_region *region, uint32_t interface, uint32_t queue, uint16_t *ret_target);
/* Of interface 0's first queue. */
NEB_REGION_API int neb_xdp_target(struct neb_region *region, uint16_t *ret_target);

/* ---- Work. ---- */
enum neb_work_op {
	NEB_READ = 1, /* disks: offset */
	NEB_WRITE,
	NEB_FLUSH,   /* earlier writes become durable; no span */
	NEB_DISCARD, /* disks: offset, bytes; no span */
	NEB_SEND,    /* queue pairs; imm above 0 goes with it */
	NEB_RECV,
	NEB_RDMA_READ, /* remote_addr, rkey */
	NEB_RDMA_WRITE,
	NEB_PACKET, /* neb_xdp_queue_target(): one packet in one frame of the span */
};
/* A scatter list: memory that continues the work's own span, in this order, and is read, written or
 * sent as one. For disks each part is a multiple of neb_disk_align(); packets have no parts. */
#define NEB_PARTS_MAX 3u
struct neb_part {
	struct neb_span span;
	uint32_t at;	/* where in the span */
	uint32_t bytes; /* [to the span's end] */
};
struct neb_work {
	enum neb_work_op op;
	uint16_t target;
	struct neb_span span;
	uint32_t at;	/* where in the span */
	uint32_t bytes; /* [to the span's end] */
	uint64_t offset;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;
	uint64_t user_data;  /* comes back */
	uint32_t part_count; /* up to NEB_PARTS_MAX; each is work of its own to ring_entries */
	struct neb_part parts[NEB_PARTS_MAX];
};
struct neb_done {
	uint64_t user_data;
	struct neb_span span; /* yours again; data NULL: there was none */
	uint32_t at;
	int32_t result; /* bytes of all parts, or -errno */
	enum neb_work_op op;
	uint16_t target;
	uint32_t imm;
	uint64_t latency_ns;
	uint32_t part_count;
	struct neb_span parts[NEB_PARTS_MAX]; /* yours again as well */
};
/* Submits work; takes its spans over. -EAGAIN: the maximum is in progress, reap first; -ENOENT: no
 * such target; -EPERM, -ESTALE: a span is not yours; -EINVAL: it does not fit the span or the
 * target, or a span appears twice; -EMSGSIZE: a packet crosses a frame's end. */
NEB_REGION_API int neb_work_submit(struct neb_region *region, const struct neb_work *work);
/* Makes work continue and takes up to max completions, and with each its spans, which are the
 * program's only from then on; waits for at least one, and returns how many; 0 at the timeout, or
 * when no work is in progress. */
NEB_REGION_API int neb_work_reap(
	struct neb_region *region, struct neb_done *dones, uint32_t max, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
