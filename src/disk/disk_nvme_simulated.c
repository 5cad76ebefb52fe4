/* disk/disk_nvme_simulated.c: a simulated controller with a file as its medium: the same commands
 * and rings, and statuses that a test chooses. */
#include "disk/disk_nvme.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int option_parse(struct nvme *nvme, struct slice name, struct slice value)
{
	uint64_t number;
	int ret;

	if (slice_starts(value, SLICE("0x"))) {
		char copy[32], *end;

		if (slice_copy_str(value, copy, sizeof(copy)))
			return -EINVAL;
		number = strtoull(copy, &end, 16);
		ret = *end ? -EINVAL : 0;
	} else {
		ret = slice_to_u64(value, &number);
	}
	if (ret)
		return ret;
	if (slice_eq(name, SLICE("lba")) && number)
		nvme->simulated.lba_shift = (uint32_t)__builtin_ctzll(number);
	else if (slice_eq(name, SLICE("mdts")))
		nvme->simulated.mdts = (uint32_t)number;
	else if (slice_eq(name, SLICE("ms")))
		nvme->simulated.metadata_bytes = (uint32_t)number;
	else if (slice_eq(name, SLICE("status")))
		nvme->simulated.status = (uint32_t)number;
	else if (slice_eq(name, SLICE("after")))
		nvme->simulated.after = number;
	else if (slice_eq(name, SLICE("times")))
		nvme->simulated.times = number;
	else if (slice_eq(name, SLICE("max_segments")))
		nvme->segments_max = (uint32_t)number;
	else if (slice_eq(name, SLICE("bytes_taken")))
		nvme->simulated.bytes_taken = number;
	else if (slice_eq(name, SLICE("segments_taken")))
		nvme->simulated.segments_taken = number;
	else if (slice_eq(name, SLICE("fixed_rest")))
		nvme->simulated.fixed_rest = number;
	else if (slice_eq(name, SLICE("caps")))
		nvme->simulated.bare = number == 0;
	else
		return -EINVAL;
	return 0;
}

static int simulated_open(struct disk *disk, const struct disk_opts *opts)
{
	struct slice rest = slice_str(opts->nvme ? opts->nvme : "");

	disk->nvme->nsid = 1;
	disk->nvme->simulated.lba_shift = 12;
	while (rest.len) {
		struct slice value = slice_split(&rest, ',');
		struct slice name = slice_split(&value, '=');

		if (option_parse(disk->nvme, name, value))
			return -EINVAL;
	}
	disk->fd = open(disk->path, (disk->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (disk->fd < 0)
		return -errno;
	return disk->read_only ? 0 : disk_lock(disk, disk->fd, opts->lock_wait_ns);
}

static void simulated_close(struct disk *disk)
{
	(void)disk;
}

static int simulated_identify(struct disk *disk, uint32_t cns, uint8_t data[NVME_IDENTIFY_BYTES])
{
	const struct nvme *nvme = disk->nvme;
	struct stat st;
	uint64_t lbas;

	if (fstat(disk->fd, &st))
		return -errno;
	memset(data, 0, NVME_IDENTIFY_BYTES);
	if (cns == NVME_CNS_CONTROLLER) {
		memcpy(&data[4], "SIM-1               ", 20);
		memcpy(&data[24], "made up\t                                ", 40);
		data[77] = (uint8_t)nvme->simulated.mdts;
		data[520] = nvme->simulated.bare ? 0 : 0xc;
		data[525] = 1;
		return 0;
	}
	lbas = (uint64_t)st.st_size >> nvme->simulated.lba_shift;
	memcpy(data, &lbas, sizeof(lbas));
	/* The format in use is the second one. */
	data[25] = 1;
	data[26] = 1;
	data[132] = (uint8_t)nvme->simulated.metadata_bytes;
	data[134] = (uint8_t)nvme->simulated.lba_shift;
	return 0;
}

/* The status that is due now, or 0. */
static uint32_t status_due(struct disk *disk)
{
	struct nvme *nvme = disk->nvme;
	uint64_t number = atomic_fetch_add(&nvme->simulated.commands, 1);
	uint64_t after = nvme->simulated.after, times = nvme->simulated.times;

	return number >= after && (!times || number - after < times) ? nvme->simulated.status : 0;
}

static off_t offset_of(const struct nvme *nvme, const struct nvme_command *command)
{
	uint64_t lba = command->words.opcode == NVME_DATASET
			       ? command->range.first_lba
			       : (uint64_t)command->words.cdw11 << 32 | command->words.cdw10;

	return (off_t)(lba << nvme->lba_shift);
}

/* The bytes of a transfer according to the command's own fields, so that a wrong command is
 * detected. */
static uint32_t bytes_of(const struct nvme *nvme, const struct nvme_command *command)
{
	return ((command->words.cdw12 & 0xffffu) + 1) << nvme->lba_shift;
}

static int simulated_now(struct disk *disk, const struct nvme_command *command)
{
	uint32_t bytes = bytes_of(disk->nvme, command);
	uint32_t status = status_due(disk);
	off_t offset = offset_of(disk->nvme, command);
	void *data = (void *)(uintptr_t)command->words.addr;
	int ret;

	if (status)
		return (int)status;
	switch (command->words.opcode) {
	case NVME_FLUSH:
		return fdatasync(disk->fd) ? -errno : 0;
	case NVME_READ:
		return pread(disk->fd, data, bytes, offset) == (ssize_t)bytes ? 0 : -EIO;
	case NVME_WRITE:
		return pwrite(disk->fd, data, bytes, offset) == (ssize_t)bytes ? 0 : -EIO;
	default:
		ret = fallocate(
			disk->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)bytes);
		return ret ? -errno : 0;
	}
}

/* True when the command exceeds the simulated kernel's limits. */
static bool form_refused(const struct disk *disk, const struct nvme_command *command, int arena)
{
	const struct nvme *nvme = disk->nvme;
	const char *data = (const char *)(uintptr_t)command->words.addr;
	const struct iovec *iov = (const struct iovec *)(const void *)data;
	struct region *region = disk->cores[reactor_core_idx(reactor_self())].region;
	uint32_t segments = 0;

	if (command->words.opcode != NVME_WRITE && command->words.opcode != NVME_READ)
		return false;
	if (arena >= 0 && nvme->simulated.fixed_rest) {
		struct region_arena at = region_arena(region, (uint32_t)arena);

		return (uint64_t)((const char *)at.base + at.bytes - data) >
		       nvme->simulated.fixed_rest;
	}
	if (!command->vectored)
		segments = nvme_segments_of(data, command->words.data_len);
	for (uint32_t i = 0; command->vectored && i < command->words.data_len; i++)
		segments += nvme_segments_of(iov[i].iov_base, iov[i].iov_len);
	return (nvme->simulated.bytes_taken && command->bytes > nvme->simulated.bytes_taken) ||
	       (nvme->simulated.segments_taken && segments > nvme->simulated.segments_taken);
}

static void simulated_prep(
	struct disk *disk, struct io_uring_sqe *sqe, const struct nvme_command *command, int arena)
{
	void *data = (void *)(uintptr_t)command->words.addr;
	uint64_t offset = (uint64_t)offset_of(disk->nvme, command);
	uint8_t opcode = command->words.opcode;

	memset(sqe, 0, 2 * sizeof(*sqe));
	if (form_refused(disk, command, arena))
		io_uring_prep_fsync(sqe, disk->fd, ~0u); /* -EINVAL */
	else if (opcode == NVME_FLUSH)
		io_uring_prep_fsync(sqe, disk->fd, IORING_FSYNC_DATASYNC);
	else if (opcode == NVME_DATASET || opcode == NVME_WRITE_ZEROES)
		io_uring_prep_fallocate(sqe, disk->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)offset, (off_t)command->bytes);
	else if (command->vectored && opcode == NVME_WRITE)
		io_uring_prep_writev(
			sqe, disk->fd, (struct iovec *)data, command->words.data_len, offset);
	else if (command->vectored)
		io_uring_prep_readv(
			sqe, disk->fd, (struct iovec *)data, command->words.data_len, offset);
	else if (arena >= 0 && opcode == NVME_WRITE)
		io_uring_prep_write_fixed(
			sqe, disk->fd, data, command->words.data_len, offset, arena);
	else if (arena >= 0)
		io_uring_prep_read_fixed(
			sqe, disk->fd, data, command->words.data_len, offset, arena);
	else if (opcode == NVME_WRITE)
		io_uring_prep_write(sqe, disk->fd, data, command->words.data_len, offset);
	else
		io_uring_prep_read(sqe, disk->fd, data, command->words.data_len, offset);
}

static int32_t simulated_result(struct disk *disk, const struct nvme_command *command, int32_t res)
{
	uint32_t status = status_due(disk);
	bool transfer = command->words.opcode == NVME_READ || command->words.opcode == NVME_WRITE;

	if (status)
		return (int32_t)status;
	if (res < 0)
		return res;
	return transfer && (uint32_t)res != bytes_of(disk->nvme, command) ? -EIO : 0;
}

const struct nvme_transport NVME_SIMULATED_TRANSPORT = {
	.open = simulated_open,
	.close = simulated_close,
	.identify = simulated_identify,
	.now = simulated_now,
	.prep = simulated_prep,
	.result = simulated_result,
};
