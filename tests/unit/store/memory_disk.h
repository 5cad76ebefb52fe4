/* tests/unit/store/memory_disk.h: volumes in memory ("memory://0" and so on), with a driver: their
 * writes can be held back, and they can be lost and come back. Deallocated blocks are overwritten,
 * so that a later use of them is detected. */
#ifndef TESTS_STORE_MEMORY_DISK_H
#define TESTS_STORE_MEMORY_DISK_H

#include "disk/disk.h"

#define MEMORY_DISKS	  8u
#define MEMORY_DISK_BYTES (256 * MIB)

struct memory_disk {
	uint8_t *memory;	/* MEMORY_DISK_BYTES, most of them never touched */
	_Atomic uint64_t bytes; /* grows while operations run */
	bool hold;		/* writes wait */
	struct disk_io *held;	/* the waiting writes */
	_Atomic bool away; /* it cannot be reached: set by memory_disk_lose, and back by hand */
	_Atomic bool lost; /* until it is reopened */
	_Atomic uint32_t tries;	  /* attempts to reopen it */
	_Atomic uint32_t handles; /* open ones */
	int attach_result;
	uint64_t lock_wait_ns;		 /* as the last writer wanted to wait */
	bool probe;			 /* likewise */
	int open_result;		 /* of the next writer; 0: it is opened */
	void (*opening)(void);		 /* what happens while the next writer waits for it */
	_Atomic uint64_t grow_bytes_max; /* growing by more at once takes too long; 0: does not */
	uint32_t grows_lost;		 /* so many attempts to grow are lost */
	uint64_t grow_end;	/* growing beyond it waits for memory_disk_grow_on; 0: does not */
	uint32_t grow_loses;	/* volumes that are lost once it has come to grow_end */
	uint32_t super_writes;	/* it is lost by this write of a superblock, counted from 1 */
	int32_t discard_result; /* result of a deallocation */
	uint64_t discards, discarded_bytes;
	uint64_t fail_at;     /* a byte that this many reads fail on; a write repairs it */
	uint32_t fail_times;  /* UINT32_MAX: all reads */
	bool fail_loses;      /* the first such read loses the disk */
	bool fail_stays;      /* no write repairs it */
	uint64_t stuck_at;    /* a byte that no write changes; 0: none */
	int32_t stuck_result; /* of such a write; 0: as if it had done it */
};
/* Opens blank volumes. They keep their content until close, also after a store is closed. */
void memory_disks_open(void);
void memory_disks_close(void);
/* From the next start of a store until the volumes are closed: a volume loses no write that was
 * acknowledged, and a store that has it alone goes on when it is back. */
void memory_disks_are_durable(void);
struct memory_disk *memory_disk(uint32_t idx);
/* The volume on which these bytes lie, and where. */
struct memory_disk *memory_disk_find(const void *data, size_t bytes, uint64_t *ret_at);
/* Acts like a volume whose host is gone; it can be reopened when away is false again. */
void memory_disk_lose(uint32_t idx);
/* Makes the volume blank, like a replacement. */
void memory_disk_blank(uint32_t idx);
/* Fiber call on the volumes' reactor: returns when a write waits. */
void memory_disk_await_held(uint32_t idx);
/* Fiber call: waits for so many more attempts to reopen it. */
void memory_disk_await_tries(uint32_t idx, uint32_t tries);
void memory_disk_grow_on(uint32_t idx);
/* Releases the waiting writes. */
void memory_disk_let_go(uint32_t idx);

#endif
