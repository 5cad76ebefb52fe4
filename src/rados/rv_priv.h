/* rados/rv_priv.h: shared by the files of rados. librados owns the prefix rados_, so names here
 * begin with rv_ (RADOS volume). */
#ifndef RADOS_RV_PRIV_H
#define RADOS_RV_PRIV_H

#include "base/life.h"
#include "disk/disk.h"
#include "rados/rados.h"

#include <pthread.h>
#include <rados/librados.h>
#include <stdatomic.h>

#define RV_OBJECT_BYTES (4 * MIB)
#define RV_ALIGN_BYTES	4096u
#define RV_NAME_MAX	63u
#define RV_OID_BYTES	24u
#define RV_RECORD_BYTES 512u
#define RV_HEAD		"head"
#define RV_LOCK		"owner" /* of the head */
#define RV_LIFE_BYTES	64u
/* The objects in flight of one reactor. librados keeps a copy of what is being written. */
#define RV_PIECES	    64u
#define RV_PIECE_IOVS	    64u
#define RV_FLIGHT_BYTES_MAX (32 * MIB)

struct rv {
	struct rv_opts opts;
	char conf_file[1024];
	char user[64];
	struct disk_driver driver;
	pthread_mutex_t lock; /* of the next two */
	rados_t cluster;
	bool connected;
};

/* The operation on one object, or a part of one: all or a part of a disk_io. */
struct rv_piece {
	struct reactor_msg msg;
	struct rv_core *core;
	struct rv_piece *next_free;
	struct disk_io *io;
	rados_completion_t completion;
	rados_read_op_t read;
	rados_write_op_t write;
	uint64_t object;
	uint64_t bytes;
	int result;
	uint32_t iov_count;
	struct iovec iov[RV_PIECE_IOVS];
	size_t got[RV_PIECE_IOVS];
	int parts[RV_PIECE_IOVS];
};

/* A volume on one reactor. */
struct rv_core {
	struct rv_volume *volume;
	struct reactor *reactor;
	struct rv_piece *free;
	uint64_t flight_bytes;
	struct disk_io *first, *last; /* not issued entirely yet */
	struct rv_piece pieces[RV_PIECES];
};

struct rv_volume {
	struct rv *rv;
	char path[300];
	char pool[RV_NAME_MAX + 1], name[RV_NAME_MAX + 1];
	char body_pool[RV_NAME_MAX + 1]; /* "": the first one, too */
	rados_ioctx_t front, body;
	bool front_open, body_open;
	bool read_only;
	uint64_t front_bytes; /* addresses below it are in the first pool */
	_Atomic uint64_t bytes;
	/* It failed a write that may be possible later; nothing is written until it is revived. */
	_Atomic bool down;
	_Atomic bool lost;		 /* to another server, for good */
	_Atomic uint64_t lease_until_ns; /* CLOCK_BOOTTIME, as all times of the lease */
	uint64_t lease_begun_ns;	 /* when the last renewal that succeeded was sent */
	uint64_t renewals;		 /* tried */
	struct life life;
	_Atomic uint64_t failed_object; /* the last one that failed: the first to be tried again */
	char cookie[40];
	char owner[RV_RECORD_BYTES]; /* our record in the head */
	bool owns;
	pthread_mutex_t lock; /* of the head's calls, and of the next four */
	pthread_cond_t wake;
	bool keeping, ending;
	bool renew_told;
	char health[256]; /* what the cluster last said about itself */
	pthread_t keeper;
	struct rv_core *cores[LIMIT_CORES_MAX];
};

/* ---- cluster.c ---- */
/* The connection of this process, made at the first call. The log has the reason of a failure.
 * -EOPNOTSUPP: librados cannot be loaded; -ENODEV: no configuration, or no key. */
int rv_cluster(struct rv *rv, bool quiet, rados_t *ret_cluster);
/* Opens both pools. -ENODEV, -EOPNOTSUPP and others, with a log line. */
int rv_pools_open(struct rv_volume *volume, rados_t cluster);
void rv_pools_close(struct rv_volume *volume);
/* Logs what the cluster says about its health, when that has changed. Blocks. */
void rv_health_tell(struct rv_volume *volume);

/* ---- head.c: the object that describes the volume, and has its owner's record and lock. The
 * volume's lock is held. ---- */
/* 0, -ENOENT: there is none. */
int rv_head_read(struct rv_volume *volume);
/* Makes it. -EUCLEAN, with a log line: there are objects of somebody else. */
int rv_head_make(struct rv_volume *volume);
int rv_head_grow(struct rv_volume *volume, uint64_t bytes);

/* ---- life.c: what a taker must know about the former owner's lease. ---- */
/* The head's record and life, as a taker saw them. */
struct rv_seen {
	char owner[RV_RECORD_BYTES];
	char life[RV_LIFE_BYTES];
	uint64_t since_ns; /* no renewal that these texts are of was sent after this */
};
/* Reads both; since_ns changes when one of them has. */
int rv_seen_read(struct rv_volume *volume, struct rv_seen *seen);
/* Until when the owner that the record names may answer reads; 0: not any more. dead: its process
 * has ended. -EUCLEAN with a log line. */
int rv_seen_until(const struct rv_volume *volume, const struct rv_seen *seen, bool dead,
	uint64_t *ret_until_ns);
/* The text of our own: of the renewal that is tried now, or of an owner that must not answer yet,
 * because a former one may, until until_ns. */
void rv_life_write(struct rv_volume *volume, char ret_life[RV_LIFE_BYTES]);
void rv_life_quiet(struct rv_volume *volume, uint64_t until_ns, char ret_life[RV_LIFE_BYTES]);
/* One operation: if the record is still ours, renews the lock and the life. -ECANCELED: it is
 * not. */
int rv_life_renew(struct rv_volume *volume);

/* ---- owner.c ---- */
/* Becomes the owner. -EBUSY with a log line. */
int rv_own(struct rv_volume *volume, uint64_t wait_ns);
void rv_disown(struct rv_volume *volume);
/* Extends the lease; the volume's lock is held. */
int rv_renew(struct rv_volume *volume);
/* Another server has the volume: nothing is written any more. */
void rv_lost(struct rv_volume *volume);
/* The owner of a volume that it can write to. */
static inline bool rv_leased(const struct rv_volume *volume)
{
	return clock_boot_ns() <
	       atomic_load_explicit(&volume->lease_until_ns, memory_order_relaxed);
}

/* ---- rv_dp.c ---- */
void rv_start(struct rv_core *core, struct disk_io *io);

/* ---- volume.c ---- */
static inline void rv_oid(uint64_t object, char ret_oid[RV_OID_BYTES])
{
	static const char HEX[] = "0123456789abcdef";

	for (int i = 0; i < 16; i++)
		ret_oid[i] = HEX[object >> (60 - 4 * i) & 15];
	ret_oid[16] = '\0';
}
static inline rados_ioctx_t rv_pool_of(const struct rv_volume *volume, uint64_t object)
{
	return object * RV_OBJECT_BYTES < volume->front_bytes ? volume->front : volume->body;
}
/* The -errno that a failure of librados means for a user of the volume; takes note of it. */
int rv_failed(struct rv_volume *volume, uint64_t object, int error, bool writing);

#endif
