/* tests/unit/store/memory_disk.h: volumes in memory ("memory://0" and so on), behind a driver:
 * their writes can be held back, they can be lost and come back, and what is deallocated on them is
 * spoiled, so that whoever still counts on it is found out. */
#ifndef TESTS_STORE_MEMORY_DISK_H
#define TESTS_STORE_MEMORY_DISK_H

#include "disk/disk.h"

#define MEMORY_DISKS	  8u
#define MEMORY_DISK_BYTES (256 * MIB)

struct memory_disk {
	uint8_t *memory;	/* MEMORY_DISK_BYTES, most of which nobody touches */
	_Atomic uint64_t bytes; /* grows while operations run */
	bool hold;		/* writes wait */
	struct disk_io *held;	/* which do */
	_Atomic bool away; /* it cannot be reached: set by memory_disk_lose, and back by hand */
	_Atomic bool lost; /* until it is revived */
	_Atomic uint32_t tries; /* to revive it */
	int32_t discard_result; /* what deallocating answers */
	uint64_t discards, discarded_bytes;
	uint64_t fail_at;    /* a byte that so many reads cannot be given; a write mends it */
	uint32_t fail_times; /* UINT32_MAX: all of them */
};
/* Blank. From here until close they are what the paths lead to, also after a store was closed. */
void memory_disks_open(void);
void memory_disks_close(void);
struct memory_disk *memory_disk(uint32_t idx);
/* As a volume whose host is gone; it can be revived once it is not away any more. */
void memory_disk_lose(uint32_t idx);
/* Blank again, as one that was replaced. */
void memory_disk_blank(uint32_t idx);
/* Fiber call on the reactor that runs them: until a write waits. */
void memory_disk_await_held(uint32_t idx);
/* Fiber call: until it was tried so often more to revive it. */
void memory_disk_await_tries(uint32_t idx, uint32_t tries);
/* Lets go what waits. */
void memory_disk_let_go(uint32_t idx);

#endif
