/* disk/disk_priv.h: shared by the files of disk. */
#ifndef DISK_PRIV_H
#define DISK_PRIV_H

#include "disk/disk.h"
#include "nvmeof/nvmeof.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define DISK_ALIGN_BYTES 4096u

/* The region's entries in flight on one core. */
#define DISK_CORE_OPS 1024u

struct disk_core;
struct nvme;
struct nvme_core;
struct array;
struct dax;
struct joined;
struct disk_writers;

/* The operations that differ between the kinds of volume. */
struct disk_ops {
	const char *name;
	/* Opens and locks the volume at disk->path, and finds its size. close also accepts the
	 * half-open state of a failed open. */
	int (*open)(struct disk *disk, const struct disk_opts *opts);
	void (*close)(struct disk *disk);
	int (*attach)(struct disk *disk, struct disk_core *core);
	void (*detach)(struct disk_core *core);
	/* On the core's own reactor. Ends in disk_io_finish. */
	void (*issue)(struct disk_io *io, const struct disk_core *core);
	int (*grow)(struct disk *disk, uint64_t bytes_total);
	int (*read_now)(struct disk *disk, void *data, uint64_t bytes, uint64_t offset);
	int (*write_now)(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset);
	int (*flush_now)(struct disk *disk);
	int (*zero_now)(struct disk *disk, uint64_t bytes, uint64_t offset);
	bool can_grow;
};
extern const struct disk_ops DISK_FILE_OPS, DISK_BLOCK_OPS, DISK_NVME_OPS, DISK_ARRAY_OPS,
	DISK_DRIVEN_OPS, DISK_DAX_OPS, DISK_DAX_FILE_OPS, DISK_FABRIC_OPS;

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
	struct nvme_core *nvme;
};

/* Seeded faults of a simulated volume. A chance is in units of 2^-32. */
struct disk_faults {
	bool active;
	pthread_mutex_t lock;
	struct prng prng;
	uint64_t eio_chance;
	uint64_t torn_chance;
	uint64_t enospc_at; /* 0: never */
	uint64_t eio_after; /* 0: never */
	uint64_t ops;
};

#define DISK_MAGIC 0xd15c0b1fu
struct disk {
	uint32_t magic; /* until it is closed */
	const struct disk_ops *ops;
	int fd;
	enum disk_kind kind;
	bool read_only;
	bool probe;
	struct nvme *nvme;
	struct array *array;
	struct dax *dax;
	struct joined *joined;
	struct nvmeof *fabric;	 /* of a volume nvmeof://… */
	atomic_bool fabric_gone; /* no path was left; until it is revived */
	bool member;		 /* of an array */
	const struct disk_driver *driver;
	void *driven; /* the driver's volume */
	/* A driven volume that grows or comes back stores these again while other threads read
	 * them. Each is read on its own, and bytes is stored last. */
	_Atomic bool driven_grows;
	_Atomic bool discards; /* not of an array */
	bool direct;
	_Atomic uint32_t
		sector_bytes; /* a device's logical block; 0: not known, DISK_ALIGN_BYTES */
	uint64_t step_bytes;
	_Atomic uint64_t medium_bytes; /* as it was opened */
	_Atomic uint64_t bytes;
	_Atomic int32_t fenced; /* 0, or the -errno that writes fail with */
	pthread_mutex_t grow_lock;
	struct disk_writers *writers; /* NULL: none */
	struct disk_faults faults;
	struct region *region; /* of the target */
	uint16_t target;
	bool is_target;
	struct disk_core cores[LIMIT_CORES_MAX];
	char path[4096];
	char what[256]; /* disk_describe */
};

/* Called where a volume comes in. */
static inline void disk_check(const struct disk *disk)
{
	CHECK(disk->magic == DISK_MAGIC);
	CHECK(disk->ops != NULL);
	CHECK(!disk->is_target || disk->region);
}

/* Called where an operation comes back. */
static inline void disk_io_check(const struct disk_io *io)
{
	disk_check(io->disk);
	CHECK(io->op <= DISK_ZERO && io->done);
}

extern const struct region_device_ops DISK_DEVICE_OPS;

/* 0, or -EINVAL with a log line. */
int disk_faults_parse(struct disk_faults *faults, const char *text);
enum disk_fault { DISK_FAULT_NONE, DISK_FAULT_EIO, DISK_FAULT_TORN };
enum disk_fault disk_faults_next(struct disk_faults *faults, enum disk_op op);

/* disk_fabric.c */
/* True: the failed operation was issued again. Else result is what to report. */
bool disk_fabric_failed(struct disk_io *io, int32_t *result);
int disk_fabric_revive(struct disk *disk);

/* disk_driven.c: whether a path is a driver's. */
bool disk_driver_takes(const char *path);

/* disk.c */
/* With nothing open; NULL: no memory. */
struct disk *disk_alloc(const char *path, uint64_t step_bytes);
/* Waiting for the process that holds the volume: begun before the first attempt, then called after
 * each refusal; false when the wait took too long. Blocks the thread; logs a line when the wait is
 * not short. */
struct disk_wait {
	uint64_t start_ns, deadline_ns;
	bool told;
};
struct disk_wait disk_wait_begin(uint64_t wait_ns);
bool disk_wait_more(const struct disk *disk, struct disk_wait *wait);
/* -EBUSY; the log says why, unless the volume is only probed. */
int disk_busy(const struct disk *disk, const char *why);
/* flock(2), asked again until wait_ns have passed. disk_busy's -EBUSY. */
int disk_lock(const struct disk *disk, int fd, uint64_t wait_ns);
/* disk_arenas.c: the arenas as a ring's fixed buffers: buffer index = arena index. The reactor's
 * thread, or any before the reactor runs. False: use plain buffers; the log says why. The ring's
 * registration follows extensions that come and go until disk_arenas_forget, which a ring that is
 * closed before the region needs; ret_watch may be NULL. */
bool disk_arenas_register(struct io_uring *ring, const struct reactor *reactor,
	struct region *region, struct region_watch **ret_watch);
void disk_arenas_forget(struct region_watch *watch); /* takes NULL */
/* For kinds that need nothing of their own. */
int disk_attach_plain(struct disk *disk, struct disk_core *core);
void disk_detach_plain(struct disk_core *core);

/* disk_file.c: by file descriptor, for files and block devices. */
int disk_file_grow(struct disk *disk, uint64_t bytes_total);
/* Whether the volume is a file, on whichever file system. */
bool disk_is_file(const struct disk *disk);
int disk_fd_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset);
int disk_fd_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset);
int disk_fd_flush_now(struct disk *disk);
int disk_fd_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset);
void disk_fd_close(struct disk *disk);

/* disk_foreign.c: true when a file holds only zeros from there on. from: a multiple of
 * DISK_ALIGN_BYTES. */
bool disk_file_blank(struct disk *disk, uint64_t from, uint64_t to);

/* disk_commit.c */
/* Threads for commits to a file; without them commits are slower. */
void disk_writers_open(struct disk *disk);
void disk_writers_close(struct disk *disk);

/* disk_dp.c */
/* The start of every operation. */
void disk_io_begin(struct disk *disk, struct disk_io *io);
/* Removes the bytes already moved from the front of the vector. */
void disk_iov_advance(struct disk_io *io, uint64_t bytes);
void disk_fd_issue(struct disk_io *io, const struct disk_core *core);
void disk_io_finish(struct disk_io *io, int32_t result);

#endif
