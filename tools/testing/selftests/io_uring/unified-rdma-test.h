/* unified-rdma-test.h: shared by the two files of the test: one machine with its devices, the
 * counts, and the source of packets. */
#ifndef UNIFIED_RDMA_TEST_H
#define UNIFIED_RDMA_TEST_H

#include "flow/file.h"
#include "flow/link.h"

#define PACKETS	      2048u
#define PACKET_BYTES  1024u
#define STREAM_BYTES  (16 * MIB)
#define STORAGE_BYTES (64 * MIB)
#define NETWORK_AT    (0 * MIB) /* the place of each step's bytes on the storage */
#define RDMA_AT	      (32 * MIB)

struct counts {
	uint64_t rdma_tx, rdma_tx_bytes, rdma_rx, rdma_rx_bytes; /* messages */
	uint64_t packets, packet_bytes;
	uint64_t storage_read, storage_written; /* bytes */
	uint64_t errors;
};

struct machine {
	const char *interface, *device, *storage, *role;
	bool server, once, force;
	uint64_t seconds;
	uint16_t port;
	struct region *region;
	struct reactor *reactor;
	struct flow_core core;
	struct flow_fabric *fabric;
	struct disk *disk;
	uint16_t target;
	struct flow_listener *listener;
	struct flow_link *link; /* the one that moves bytes now */
	struct counts total;
	uint32_t rounds;
	uint64_t start_ns;
	bool stop, over;
	struct fiber *reporter;
};

/* ---- Packets of the interface, at UDP port + 1, as a source of whole payloads. ---- */
struct packets;
/* AF_XDP where the kernel permits it, else a socket; says which. 0 or -errno. */
int packets_open(struct machine *machine, struct packets **ret_packets);
void packets_close(struct packets *packets);
/* A source of the next packets_max payloads; over() ends it early, from another fiber. */
int packets_source(struct packets *packets, uint32_t packets_max, struct flow_source **ret_source);
void packets_over(struct packets *packets);
const char *packets_way(const struct packets *packets);
bool packets_copied_by_kernel(const struct packets *packets);

#endif
