/* disk/disk_priv.h: what the files of disk share. */
#ifndef DISK_PRIV_H
#define DISK_PRIV_H

#include "disk/disk.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define DISK_ALIGN_BYTES 4096u

/* The region's entries in flight on one core. */
#define DISK_CORE_OPS 1024u

struct disk_core;

/* A base ring's entry under way. */
struct disk_entry {
	struct disk_io io;
	struct iovec iov;
	struct disk_core *core;
	struct region_ring *ring;
	struct disk_entry *next_free;
	uint64_t user_data;
	uint64_t submitted_ns;
	uint16_t target;
	uint8_t opcode;
};

/* One attached reactor. */
struct disk_core {
	struct reactor *reactor;
	struct region *region;
	bool registered; /* the arenas are the ring's fixed buffers, by arena index */
	struct disk_entry *free;
	struct disk_entry *entries;
};

/* Seeded faults of a simulated volume. A chance is in units of 2^-32. */
struct disk_faults {
	pthread_mutex_t lock;
	struct prng prng;
	uint64_t eio_chance;
	uint64_t torn_chance;
	uint64_t enospc_at; /* 0: never */
	uint64_t eio_after; /* 0: never */
	uint64_t ops;
};

struct disk {
	int fd;
	enum disk_kind kind;
	bool direct;
	uint64_t step_bytes;
	_Atomic uint64_t bytes;
	_Atomic bool fenced;
	pthread_mutex_t grow_lock;
	struct disk_faults faults;
	struct region *region; /* of the target */
	uint16_t target;
	bool is_target;
	struct disk_core cores[LIMIT_CORES_MAX];
	char path[4096];
};

extern const struct region_device_ops DISK_DEVICE_OPS;

/* 0, or -EINVAL with a log line. */
int disk_faults_parse(struct disk_faults *faults, const char *text);
enum disk_fault { DISK_FAULT_NONE, DISK_FAULT_EIO, DISK_FAULT_TORN };
enum disk_fault disk_faults_next(struct disk_faults *faults, enum disk_op op);

#endif
