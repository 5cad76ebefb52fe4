/* disk/disk_nvme.h: shared by the files of NVMe passthrough. Numbers are those of the NVM Express
 * base specification 2.0 and its NVM command set 1.0. */
#ifndef DISK_NVME_H
#define DISK_NVME_H

#include "disk/disk_priv.h"

#include <linux/nvme_ioctl.h>

#define NVME_FLUSH	  0x00u
#define NVME_WRITE	  0x01u
#define NVME_READ	  0x02u
#define NVME_WRITE_ZEROES 0x08u
#define NVME_DATASET	  0x09u
#define NVME_IDENTIFY	  0x06u /* admin */

#define NVME_IDENTIFY_BYTES   4096u
#define NVME_CNS_NAMESPACE    0u
#define NVME_CNS_CONTROLLER   1u
#define NVME_DEALLOCATE	      4u /* dataset management, dword 11 */
#define NVME_PAGE_BYTES	      4096u
#define NVME_LBA_SHIFT_MIN    9u
#define NVME_COMMAND_LBAS_MAX 65536u
/* Without huge pages every page of a transfer is a segment, and the kernel splits no passthrough
 * command. */
#define NVME_TRANSFER_BYTES_MAX (256u * 1024u)
/* One more: data need not begin on a page. */
#define NVME_SEGMENTS_MAX (NVME_TRANSFER_BYTES_MAX / NVME_PAGE_BYTES + 1)
/* Commands in flight on one core. */
#define NVME_CORE_COMMANDS 512u

/* One run of a dataset management command. */
struct nvme_range {
	uint32_t attributes;
	uint32_t lbas;
	uint64_t first_lba;
};
_Static_assert(sizeof(struct nvme_range) == 16, "as the specification has it");

struct nvme_command {
	struct nvme_uring_cmd words;
	bool fixed;
	bool vectored; /* addr is an array of data_len iovecs */
	uint8_t tries; /* that a passing status ended */
	uint32_t bytes;
	struct disk_io *io;
	struct nvme_command *next_free;
	struct nvme_range range;
	struct nvme_core *self; /* while it rests before it is sent again */
	union {
		struct reactor_timer rest;
		struct fiber_start pieces; /* while it waits for a fiber that does it in pieces */
	};
};

struct nvme_transport {
	int (*open)(struct disk *disk, const struct disk_opts *opts);
	void (*close)(struct disk *disk);
	/* 0, a status (> 0) or -errno. */
	int (*identify)(struct disk *disk, uint32_t cns, uint8_t data[NVME_IDENTIFY_BYTES]);
	int (*now)(struct disk *disk, const struct nvme_command *command);
	void (*prep)(struct disk *disk, struct io_uring_sqe *sqe,
		const struct nvme_command *command, int arena);
	/* Translates a completion's res: 0, a status or -errno. */
	int32_t (*result)(struct disk *disk, const struct nvme_command *command, int32_t res);
};
extern const struct nvme_transport NVME_DEVICE_TRANSPORT, NVME_SIMULATED_TRANSPORT;

struct nvme {
	const struct nvme_transport *transport;
	uint32_t nsid;
	uint32_t lba_shift;
	uint64_t lba_count;
	uint32_t transfer_bytes_max;
	uint32_t segments_max; /* pages, or parts of pages, that one command's data lies in */
	_Atomic bool refusal_told;
	bool deallocates;
	bool zeroes;
	bool write_cache;
	bool polled;
	int block_fd; /* the block device beside it, claimed; -1: none */
	char serial[21];
	char model[41];
	struct {
		uint32_t lba_shift, mdts, metadata_bytes, status;
		uint64_t after, times; /* times 0: without end */
		/* The kernel refuses more than this but does not report the limit. 0: no limit */
		uint64_t bytes_taken, segments_taken, fixed_rest;
		bool bare;
		_Atomic uint64_t commands;
	} simulated;
};

/* A separate ring, because its entries are larger than the reactor's. */
struct nvme_ring {
	struct io_uring ring;
	bool open;
	bool polled;
	bool registered;
	uint32_t in_flight;
	struct region_watch *watch; /* of the registration; NULL: the region keeps its size */
};

/* Reads and writes go to the polled ring where there is one, all else to the plain one. */
struct nvme_core {
	struct disk *disk;
	const struct disk_core *core;
	struct nvme_ring plain, polled;
	struct reactor_poller poller;
	int event_fd;
	struct nvme_command *commands;
	struct nvme_command *free;
	struct disk_io *first, *last; /* not issued entirely yet */
};

/* disk_nvme.c */
/* Takes the identify data of a controller and a namespace into disk->nvme and disk->bytes. */
int nvme_identified(struct disk *disk, const uint8_t controller[NVME_IDENTIFY_BYTES],
	const uint8_t space[NVME_IDENTIFY_BYTES]);

/* disk_nvme_status.c */
/* The status without its retry bits as -errno; 0 stays 0. */
int nvme_status_errno(uint32_t status);
const char *nvme_status_name(uint32_t status);

/* disk_nvme_again.c */
/* Sends a command again, after a rest, that ended with a status which may pass by itself. False:
 * the status does not pass, or has not. */
bool nvme_again(struct nvme_core *self, struct nvme_command *command, int32_t status);
/* A command that blocks, and is repeated in the same way. 0, a status or -errno. */
int nvme_now(struct disk *disk, const struct nvme_command *command);

/* disk_nvme_pieces.c */
/* The kernel or the controller refused a transfer for its form, because of a limit that we do not
 * know. A helper thread repeats it in pieces of one page, and it ends in nvme_command_late. */
void nvme_pieces_start(struct nvme_core *self, struct nvme_command *command);

/* disk_nvme_dp.c */
static inline uint32_t nvme_segments_of(const void *data, uint64_t bytes)
{
	uint64_t first = (uint64_t)(uintptr_t)data / NVME_PAGE_BYTES;

	return (uint32_t)(((uint64_t)(uintptr_t)data + bytes - 1) / NVME_PAGE_BYTES - first + 1);
}
/* Sends a command of an operation to the controller. */
void nvme_send(struct nvme_core *self, struct nvme_command *command);
/* A command ended outside its ring, on its core's fiber. result: 0, a status or -errno. */
void nvme_command_late(struct nvme_core *self, struct nvme_command *command, int32_t result);
void nvme_issue(struct disk_io *io, const struct disk_core *core);
uint32_t nvme_poll(void *arg);
bool nvme_arm(void *arg);
void nvme_disarm(void *arg);
/* The words of a command for a run of bytes; the caller sets the address and the length of its
 * data. */
void nvme_words(const struct nvme *nvme, struct nvme_command *command, uint8_t opcode,
	uint64_t offset, uint64_t bytes);

#endif
