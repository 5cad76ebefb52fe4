/* rdma/simulated/wire.h: the memory that simulated devices share, byte for byte.
 *
 *   wire    one memfd per connection: two sides (control lines), two assist areas, two rings.
 *   bells   one memfd per device, written by peers: a doorbell per completion queue.
 *   table   one memfd per device, read by peers: its memory regions.
 *
 * All three are sealed against resizing before they are sent, and checked for that before they are
 * mapped, so that no peer can make us fault. Their contents are untrusted input nevertheless: they
 * are copied once into local variables, checked, and never read twice. Indices and counters run
 * freely and wrap. */
#ifndef RDMA_SIMULATED_WIRE_H
#define RDMA_SIMULATED_WIRE_H

#include <stdatomic.h>
#include <stdint.h>

#define SIM_MAGIC   0x4d49534eu /* "NSIM" */
#define SIM_VERSION 2u

/* ---- Wire. ---- */
#define SIM_SLOTS	       64u
#define SIM_SLOT_BYTES	       1088u /* 17 lines: neighbouring slots share no cache set */
#define SIM_SLOT_HEAD_BYTES    32u
#define SIM_SLOT_PAYLOAD_BYTES (SIM_SLOT_BYTES - SIM_SLOT_HEAD_BYTES)
#define SIM_ASSIST_BYTES       65536u

enum sim_record {
	SIM_REC_SEND = 1, /* a piece of a message */
	SIM_REC_IMM,	  /* a write-with-immediate's data is in place: consumes a receive */
	SIM_REC_ASSIST,	  /* asks the peer to execute the request in the assist area */
};
enum sim_record_flags {
	SIM_F_FIRST = 1u << 0,
	SIM_F_LAST = 1u << 1,
	SIM_F_IMM = 1u << 2,
};

struct sim_slot_head {
	uint32_t len; /* payload bytes in this slot */
	uint8_t type; /* enum sim_record */
	uint8_t flags;
	uint16_t reserved;
	uint32_t imm;
	uint32_t total; /* SIM_REC_IMM: bytes that were written */
	/* The sender's control values ride along, so that a request and its reply need no other
	 * cache line: see struct sim_side. */
	uint32_t acked;
	uint32_t posted;
	uint32_t consumed;
};
struct sim_slot {
	struct sim_slot_head head;
	/* The record's number plus one, written last: the receiver polls only this word. */
	_Atomic uint32_t marker;
	uint8_t payload[SIM_SLOT_PAYLOAD_BYTES];
};
_Static_assert(sizeof(struct sim_slot_head) + 4 == SIM_SLOT_HEAD_BYTES, "half a cache line");
_Static_assert(sizeof(struct sim_slot) == SIM_SLOT_BYTES, "whole cache lines");

/* The values that one end gives the other. Written by its owner only. The peer reads it now and
 * then, not on every look, so that writing it stays cheap. */
struct sim_side {
	_Alignas(64) _Atomic uint32_t acked; /* messages of the peer that are in place */
	_Atomic uint32_t posted;	     /* receives ever posted */
	_Atomic uint32_t consumed;	     /* slots of the peer's ring taken */
	_Atomic uint32_t state;		     /* enum sim_side_state */
	_Atomic uint32_t nak;		     /* enum rp_status of message acked + 1, or 0 */
	_Atomic uint32_t assisted;	     /* assist requests of the peer that are done */
	_Atomic uint32_t assist_status;	     /* of the last one */
	_Atomic uint32_t stalled; /* shared receive queue: a message waits for a receive */
	/* The remote key this end is using right now. The thread that closes a memory region waits
	 * for it. */
	_Alignas(64) _Atomic uint32_t hazard;
};
enum sim_side_state { SIM_SIDE_NEW, SIM_SIDE_UP, SIM_SIDE_UP_SRQ, SIM_SIDE_ERROR };

enum sim_assist_op { SIM_ASSIST_WRITE = 1, SIM_ASSIST_READ, SIM_ASSIST_CAS, SIM_ASSIST_ADD };
struct sim_assist_head {
	uint64_t addr;
	uint64_t compare_add;
	uint64_t swap;
	uint32_t len;
	uint32_t rkey;
	uint32_t op;
	uint32_t reserved;
};
struct sim_assist {
	_Alignas(64) struct sim_assist_head head;
	_Alignas(64) uint8_t data[SIM_ASSIST_BYTES];
};

/* Index 0 of each array is the connecting end's: its side, its requests, the ring it writes. */
struct sim_wire {
	struct sim_side sides[2];
	_Alignas(4096) struct sim_slot rings[2][SIM_SLOTS];
	_Alignas(4096) struct sim_assist assists[2];
};

/* ---- Bells. ---- */
#define SIM_CQS_MAX    1024u
#define SIM_CQ_QPS_MAX 4096u
#define SIM_BELL_WORDS (SIM_CQ_QPS_MAX / 64u)

struct sim_bell {
	/* Read by peers after each record. */
	_Alignas(64) _Atomic uint32_t
		armed;		  /* the peer that takes it from 1 to 0 writes the eventfd */
	_Atomic uint32_t by_bell; /* the owner looks at the bits, not at every ring */
	/* Written by peers. */
	_Alignas(64) _Atomic uint64_t summary; /* a bit per word */
	_Alignas(64) _Atomic uint64_t words[SIM_BELL_WORDS];
};
_Static_assert(SIM_BELL_WORDS <= 64, "the summary has a bit for each word");

/* ---- Table of memory regions. ---- */
#define SIM_MR_IDX_BITS 14u
#define SIM_MRS_MAX	(1u << SIM_MR_IDX_BITS)

struct sim_entry {
	_Alignas(64) _Atomic uint32_t key; /* 0: none. The rest does not change while it is set. */
	uint32_t access;
	uint64_t addr;
	uint64_t bytes;
	uint32_t pd;
	uint32_t backing; /* 0: none, else the number of a shared file */
	uint64_t backing_offset;
	uint32_t qpn; /* a window's queue pair; 0: all of the domain */
};
_Static_assert(sizeof(struct sim_entry) == 64, "one cache line");

static inline uint32_t sim_key_idx(uint32_t key)
{
	return key & (SIM_MRS_MAX - 1);
}

/* ---- Handshake, over a SOCK_SEQPACKET socket; files travel with the packets. ---- */
enum sim_packet_type {
	SIM_PKT_HELLO = 1, /* connecting end; files: wire, bells, table, eventfd, eventfd */
	SIM_PKT_REPLY,	   /* accepting end; files: bells, table, eventfd, eventfd */
	SIM_PKT_REJECT,
	SIM_PKT_READY,	 /* connecting end: the reply is in force */
	SIM_PKT_BACKING, /* a shared file; files: it */
	SIM_PKT_GONE,	 /* that shared file is used no more */
};
#define SIM_HELLO_FDS	  5u
#define SIM_REPLY_FDS	  4u
#define SIM_WITNESS_BYTES 16u

struct sim_packet {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint32_t qpn;
	uint32_t qp_type;
	uint32_t pd;
	/* Receive queue's bell, then the send queue's: which bell of the device, which bit. */
	uint32_t bell_idx[2];
	uint32_t bell_bit[2];
	uint32_t backing;
	uint32_t writable;
	uint32_t private_len;
	uint64_t bytes;
	/* HELLO, REPLY: random bytes, and their address in the sender's own memory. */
	uint64_t witness_addr;
	uint8_t witness[SIM_WITNESS_BYTES];
	uint8_t private_data[56];
};
_Static_assert(sizeof(struct sim_packet) == 136, "no padding");

#endif
