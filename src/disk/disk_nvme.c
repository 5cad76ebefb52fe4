/* disk/disk_nvme.c: a volume that is an NVMe namespace, reached by passthrough (/dev/ngXnY):
 * opened, identified, attached; and blocking commands. May block; the data path is
 * disk_nvme_dp.c. */
#include "disk/disk_nvme.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Identify controller: bytes. */
#define CONTROLLER_SERIAL 4u
#define CONTROLLER_MODEL  24u
#define CONTROLLER_MDTS	  77u
#define CONTROLLER_ONCS	  520u
#define CONTROLLER_VWC	  525u
#define ONCS_DATASET	  (1u << 2)
#define ONCS_ZEROES	  (1u << 3)
/* Identify namespace: bytes. */
#define SPACE_FLBAS	 26u
#define SPACE_ATTRIBUTES 99u
#define SPACE_FORMATS	 128u
#define FORMATS_MAX	 64u

static uint16_t le16(const uint8_t *at)
{
	return (uint16_t)(at[0] | at[1] << 8);
}

/* Text padded with spaces, without characters that would spoil a log. */
static void text_take(const uint8_t *at, size_t len, char *out)
{
	while (len && (at[len - 1] == ' ' || at[len - 1] == 0))
		len--;
	for (size_t i = 0; i < len; i++)
		out[i] = at[i] >= ' ' && at[i] < 0x7f ? (char)at[i] : '?';
	out[len] = 0;
}

/* The format of the namespace's blocks that is in use. */
static int format_take(struct disk *disk, const uint8_t space[NVME_IDENTIFY_BYTES])
{
	uint32_t idx = (space[SPACE_FLBAS] & 0xfu) | (space[SPACE_FLBAS] >> 1 & 0x30u);
	const uint8_t *format = &space[SPACE_FORMATS + idx * 4];
	uint32_t metadata_bytes = le16(format);

	if (metadata_bytes) {
		log_error("disk",
			"%s: its logical blocks have %u bytes of metadata each, which NebulaIO "
			"does not support: choose a format without metadata (nvme format)",
			disk->path, metadata_bytes);
		return -EOPNOTSUPP;
	}
	if (format[2] < NVME_LBA_SHIFT_MIN || 1ull << MIN(format[2], 63u) > DISK_ALIGN_BYTES) {
		log_error("disk", "%s: logical blocks of 2^%u bytes; 512 to %u can be used",
			disk->path, format[2], DISK_ALIGN_BYTES);
		return -EOPNOTSUPP;
	}
	disk->nvme->lba_shift = format[2];
	disk->sector_bytes = 1u << format[2];
	return 0;
}

int nvme_identified(struct disk *disk, const uint8_t controller[NVME_IDENTIFY_BYTES],
	const uint8_t space[NVME_IDENTIFY_BYTES])
{
	struct nvme *nvme = disk->nvme;
	uint16_t oncs = le16(&controller[CONTROLLER_ONCS]);
	uint8_t mdts = controller[CONTROLLER_MDTS];
	uint64_t bytes;
	int ret = format_take(disk, space);

	if (ret)
		return ret;
	memcpy(&nvme->lba_count, space, sizeof(nvme->lba_count));
	if (nvme->lba_count == 0 || nvme->lba_count > UINT64_MAX >> nvme->lba_shift) {
		log_error("disk", "%s: a namespace of %llu blocks", disk->path,
			(unsigned long long)nvme->lba_count);
		return -EOPNOTSUPP;
	}
	if (!disk->read_only && (space[SPACE_ATTRIBUTES] & 1)) {
		log_error("disk", "%s: the namespace is write protected", disk->path);
		return -EROFS;
	}
	bytes = nvme->lba_count << nvme->lba_shift;
	if (!nvme->transfer_bytes_max)
		nvme->transfer_bytes_max = NVME_TRANSFER_BYTES_MAX;
	if (!nvme->segments_max)
		nvme->segments_max = NVME_SEGMENTS_MAX;
	if (mdts && mdts < 20)
		nvme->transfer_bytes_max = MIN(nvme->transfer_bytes_max, NVME_PAGE_BYTES << mdts);
	nvme->deallocates = oncs & ONCS_DATASET;
	atomic_store(&disk->discards, nvme->deallocates);
	nvme->zeroes = oncs & ONCS_ZEROES;
	nvme->write_cache = controller[CONTROLLER_VWC] & 1;
	text_take(&controller[CONTROLLER_SERIAL], 20, nvme->serial);
	text_take(&controller[CONTROLLER_MODEL], 40, nvme->model);
	disk->medium_bytes = bytes;
	atomic_store(&disk->bytes, ALIGN_DOWN(bytes, MIB));
	snprintf(disk->what, sizeof(disk->what),
		"NVMe passthrough, %s (%s), namespace %u, %llu MiB, logical blocks of %u bytes, "
		"%u KiB a command, %s%s%s",
		nvme->model, nvme->serial, nvme->nsid, (unsigned long long)(bytes / MIB),
		1u << nvme->lba_shift, nvme->transfer_bytes_max / 1024,
		nvme->polled ? "polled" : "by interrupt", nvme->write_cache ? ", write cache" : "",
		nvme->deallocates ? "" : ", cannot deallocate");
	return 0;
}

static int space_identify(struct disk *disk)
{
	static const uint32_t CNS[2] = {NVME_CNS_CONTROLLER, NVME_CNS_NAMESPACE};
	void *pages;
	int ret = 0;

	if (posix_memalign(&pages, NVME_PAGE_BYTES, sizeof(CNS) / sizeof(CNS[0]) * NVME_PAGE_BYTES))
		return -ENOMEM;
	for (uint32_t i = 0; i < 2 && !ret; i++)
		ret = disk->nvme->transport->identify(
			disk, CNS[i], (uint8_t *)pages + (size_t)i * NVME_PAGE_BYTES);
	if (ret > 0) {
		log_error("disk", "%s: identify: %s (0x%x)", disk->path,
			nvme_status_name((uint32_t)ret), (unsigned)ret);
		ret = nvme_status_errno((uint32_t)ret);
	}
	if (!ret)
		ret = nvme_identified(
			disk, (const uint8_t *)pages, (const uint8_t *)pages + NVME_PAGE_BYTES);
	free(pages);
	return ret;
}

static int nvme_open(struct disk *disk, const struct disk_opts *opts)
{
	struct nvme *nvme = (struct nvme *)calloc(1, sizeof(*nvme));
	int ret;

	if (!nvme)
		return -ENOMEM;
	nvme->block_fd = -1;
	nvme->transport = disk->kind == DISK_NVME_SIMULATED ? &NVME_SIMULATED_TRANSPORT
							    : &NVME_DEVICE_TRANSPORT;
	disk->nvme = nvme;
	disk->direct = true;
	ret = nvme->transport->open(disk, opts);
	return ret ? ret : space_identify(disk);
}

static void nvme_close(struct disk *disk)
{
	if (disk->nvme)
		disk->nvme->transport->close(disk);
	free(disk->nvme);
	disk_fd_close(disk);
}

/* ---- Attaching. ---- */

static int ring_open(
	struct nvme_ring *ring, const struct disk_core *core, bool polled, int event_fd)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32 |
			 (polled ? IORING_SETUP_IOPOLL : 0),
	};
	int ret = io_uring_queue_init_params(NVME_CORE_COMMANDS, &ring->ring, &params);

	if (ret) {
		log_error("disk",
			"core %u: no io_uring for NVMe passthrough (%s): Linux 5.19 or later is "
			"needed; or use the block device of the same namespace",
			reactor_core_idx(core->reactor), strerror(-ret));
		return ret;
	}
	ring->open = true;
	ring->polled = polled;
	ring->registered =
		disk_arenas_register(&ring->ring, core->reactor, core->region, &ring->watch);
	return polled ? 0 : io_uring_register_eventfd(&ring->ring, event_fd);
}

static int nvme_attach(struct disk *disk, struct disk_core *core)
{
	struct nvme_core *self = (struct nvme_core *)calloc(1, sizeof(*self));
	int ret;

	if (!self)
		return -ENOMEM;
	core->nvme = self;
	self->disk = disk;
	self->core = core;
	self->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (self->event_fd < 0)
		return -errno;
	self->commands = (struct nvme_command *)calloc(NVME_CORE_COMMANDS, sizeof(*self->commands));
	if (!self->commands)
		return -ENOMEM;
	for (uint32_t i = 0; i < NVME_CORE_COMMANDS; i++) {
		self->commands[i].next_free = self->free;
		self->free = &self->commands[i];
	}
	ret = ring_open(&self->plain, core, false, self->event_fd);
	if (!ret && disk->nvme->polled)
		ret = ring_open(&self->polled, core, true, self->event_fd);
	if (ret)
		return ret;
	self->poller = (struct reactor_poller){.name = "NVMe",
		.poll = nvme_poll,
		.arm = nvme_arm,
		.disarm = nvme_disarm,
		.arg = self,
		.event_fd = self->event_fd};
	reactor_poller_add(core->reactor, &self->poller);
	return 0;
}

/* The reactor has stopped, so it does not call the poller again. */
static void nvme_detach(struct disk_core *core)
{
	struct nvme_core *self = core->nvme;

	if (!self)
		return;
	disk_arenas_forget(self->plain.watch);
	disk_arenas_forget(self->polled.watch);
	if (self->plain.open)
		io_uring_queue_exit(&self->plain.ring);
	if (self->polled.open)
		io_uring_queue_exit(&self->polled.ring);
	if (self->event_fd >= 0)
		close(self->event_fd);
	free(self->commands);
	free(self);
	core->nvme = NULL;
}

/* ---- Blocking commands. ---- */

static int command_now(struct disk *disk, const struct nvme_command *command)
{
	int ret = nvme_now(disk, command);

	if (ret <= 0)
		return ret;
	log_error("disk", "%s: command 0x%02x: %s (0x%x)", disk->path, command->words.opcode,
		nvme_status_name((uint32_t)ret), (unsigned)ret);
	return nvme_status_errno((uint32_t)ret);
}

/* A run of bytes, command by command; data NULL: none goes with it. */
static int run_now(struct disk *disk, uint8_t opcode, void *data, uint64_t bytes, uint64_t offset)
{
	const struct nvme *nvme = disk->nvme;
	int ret = 0;

	if ((bytes | offset) % (1u << nvme->lba_shift))
		return -EINVAL;
	if (offset + bytes > nvme->lba_count << nvme->lba_shift)
		return -EIO;
	for (uint64_t at = 0; at < bytes && !ret;) {
		uint64_t part = MIN(bytes - at, (uint64_t)nvme->transfer_bytes_max);
		struct nvme_command command;

		nvme_words(nvme, &command, opcode, offset + at, part);
		if (data) {
			command.words.addr = (uint64_t)(uintptr_t)((char *)data + at);
			command.words.data_len = (uint32_t)part;
		}
		ret = command_now(disk, &command);
		at += part;
	}
	return ret;
}

static int nvme_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	return run_now(disk, NVME_READ, data, bytes, offset);
}

/* Nothing is written through a const pointer: the command only reads the data. */
static int nvme_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	return run_now(disk, NVME_WRITE, (void *)(uintptr_t)data, bytes, offset);
}

static int nvme_flush_now(struct disk *disk)
{
	struct nvme_command command;

	nvme_words(disk->nvme, &command, NVME_FLUSH, 0, 0);
	return command_now(disk, &command);
}

static int nvme_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	void *zeros;
	int ret = 0;

	if (disk->nvme->zeroes)
		return run_now(disk, NVME_WRITE_ZEROES, NULL, bytes, offset);
	if (posix_memalign(&zeros, NVME_PAGE_BYTES, MIB))
		return -ENOMEM;
	memset(zeros, 0, MIB);
	for (uint64_t at = 0; at < bytes && !ret; at += MIB)
		ret = run_now(disk, NVME_WRITE, zeros, MIN(bytes - at, MIB), offset + at);
	free(zeros);
	return ret;
}

static int nvme_grow(struct disk *disk, uint64_t bytes_total)
{
	(void)disk;
	(void)bytes_total;
	return -ENOSPC;
}

const struct disk_ops DISK_NVME_OPS = {
	.name = "NVMe passthrough",
	.open = nvme_open,
	.close = nvme_close,
	.attach = nvme_attach,
	.detach = nvme_detach,
	.issue = nvme_issue,
	.grow = nvme_grow,
	.read_now = nvme_read_now,
	.write_now = nvme_write_now,
	.flush_now = nvme_flush_now,
	.zero_now = nvme_zero_now,
	.can_grow = false,
};
