/* codec/ec.h: Reed-Solomon erasure coding: data_count shards of data and parity_count of parity;
 * any data_count of them are enough to compute all the others. Systematic (the data shards are the
 * data itself), over GF(2^8) with a Cauchy matrix, so every loss of up to parity_count shards can
 * be repaired.
 *
 * Shard i is data for i < data_count, parity above that; a mask has bit i for shard i. All shards
 * of a call have one length, 1 byte to EC_SHARD_BYTES_MAX; any alignment. No heap: the structs are
 * plain data, read-only once built, and shared between threads. */
#ifndef CODEC_EC_H
#define CODEC_EC_H

#include <stddef.h>
#include <stdint.h>

#define EC_DATA_MAX	   16u
#define EC_PARITY_MAX	   8u
#define EC_SHARDS_MAX	   (EC_DATA_MAX + EC_PARITY_MAX)
#define EC_SHARD_BYTES_MAX (1u << 30)
/* ISA-L's expanded form of one matrix element. */
#define EC_TABLE_BYTES 32u

struct ec {
	uint32_t data_count;
	uint32_t parity_count;
	uint8_t matrix[EC_SHARDS_MAX * EC_DATA_MAX]; /* identity above the parity rows */
	uint8_t tables[EC_TABLE_BYTES * EC_DATA_MAX * EC_PARITY_MAX];
};

/* A plan to compute the shards in `want` from those in `source`. Keep it when many stripes miss the
 * same shards. */
struct ec_plan {
	uint32_t data_count;
	uint32_t source; /* mask of the data_count shards that are read */
	uint32_t want;	 /* mask of the shards that are written */
	uint8_t tables[EC_TABLE_BYTES * EC_DATA_MAX * EC_PARITY_MAX];
};

/* -EINVAL unless 1 <= data_count <= EC_DATA_MAX and 1 <= parity_count <= EC_PARITY_MAX. */
int ec_init(struct ec *ec, uint32_t data_count, uint32_t parity_count);

/* Computes all parity. data holds data_count pointers, parity parity_count. -EINVAL on a length out
 * of range. */
int ec_encode(
	const struct ec *ec, size_t shard_bytes, const void *const *data, void *const *parity);

/* have: mask of the good shards; want: mask of the shards to compute, none of which is in have.
 * -EINVAL when a mask has a bit past the last shard or they overlap, -ENODATA when have has fewer
 * than data_count shards. */
int ec_plan_init(struct ec_plan *plan, const struct ec *ec, uint32_t have, uint32_t want);
/* shards is indexed by shard number; only those in the plan's two masks are touched, the others may
 * be NULL. -EINVAL on a length out of range. */
int ec_plan_run(const struct ec_plan *plan, size_t shard_bytes, void *const *shards);

/* Both steps for one stripe; takes some 6 KiB of stack. */
int ec_reconstruct(
	const struct ec *ec, size_t shard_bytes, void *const *shards, uint32_t have, uint32_t want);

#endif
