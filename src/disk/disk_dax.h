/* disk/disk_dax.h: volumes in persistent memory: mapped, and written by the processor, without a
 * system call. A write is durable when it is complete, so that a flush has nothing to do. */
#ifndef DISK_DAX_H
#define DISK_DAX_H

#include "disk/disk_priv.h"

#include <sys/types.h>

/* Before the path of a file; a device has its own node. */
#define DISK_DAX_SCHEME "dax://"
#define DAX_LINE_BYTES	64u

/* How a line that was written by ordinary stores leaves the processor's caches. MSYNC: by the
 * kernel, where this program has no instructions for it; only for files. */
enum dax_flush { DAX_CLWB, DAX_CLFLUSHOPT, DAX_CLFLUSH, DAX_MSYNC };

struct dax_domain;
struct dax {
	uint8_t *base;	   /* of the mapping, which never moves */
	uint64_t reserved; /* bytes of address space */
	uint8_t *reservation;
	uint64_t reservation_bytes;
	int claim_fd; /* of a device, in sysfs; -1: none */
	enum dax_flush flush;
	struct dax_domain *domain; /* made up, for tests; or NULL */
};

/* disk_dax.c: whether a character device is one of persistent memory. */
bool dax_is_device(dev_t device);
/* A volume's path without "dax://". */
const char *dax_file_path(const char *path);

/* disk_dax_guard.c: copies from and to a mapping whose medium may fail. The kernel reports that by
 * SIGBUS, in the thread that touches it: dax_guard_install() takes this signal, for such copies
 * only; any other goes on to the handler that was there before. Both copies return 0 or -EIO. */
void dax_guard_install(void);
/* The mapping's addresses, while it is open: false when too many are. */
bool dax_guard_add(const struct dax *dax);
void dax_guard_remove(const struct dax *dax);
int dax_guarded(struct disk *disk, void (*copy)(struct disk *disk, void *arg), void *arg);

/* disk_dax_dp.c */
enum dax_flush dax_flush_best(void);
/* Bytes to the mapping so that they are durable on return; and from it. 0 or -EIO. */
int dax_write(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset);
int dax_read(struct disk *disk, void *data, uint64_t bytes, uint64_t offset);
int dax_zero(struct disk *disk, uint64_t bytes, uint64_t offset);
void dax_issue(struct disk_io *io, const struct disk_core *core);
/* Several writes at once, by dax_run(): for few bytes, because they are done on return. Each has
 * its result in fault. */
bool dax_fits(const struct disk *disk, const struct disk_io *writes, uint32_t count);
void dax_run(struct disk *disk, struct disk_io *writes, uint32_t count);

/* disk_dax_simulated.c */
/* With ",exit" after its other options, the process ends when the power fails. */
#define DISK_DAX_EXIT 77
/* NULL and 0: no simulation is asked for. */
int dax_domain_open(const char *path, struct dax_domain **ret_domain);
void dax_domain_close(struct dax_domain *domain);
bool dax_domain_wanted(void);
/* A line was stored, and will be durable at the latest after the next fence. */
void dax_domain_line(struct dax_domain *domain, uint64_t offset, const void *line);
void dax_domain_fence(struct dax_domain *domain);

#endif
