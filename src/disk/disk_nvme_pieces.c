/* disk/disk_nvme_pieces.c: repeats a transfer that was refused for its form, one page at a time,
 * which every kernel and every controller accepts. Slow, and not needed as long as we know all
 * limits. */
#include "disk/disk_nvme.h"

#include <errno.h>

DEFINE_COUNTER(refused, "nebulaio_disk_nvme_refused_total", NULL,
	"Transfers that the kernel or the controller refused because of their layout, and that "
	"were then done page by page.");

struct pieces {
	struct nvme_core *self;
	struct nvme_command *command;
	uint64_t offset;
	int32_t result;
};

/* Runs in parts; each ends where the page that it begins in ends, or where the data ends. */
static int32_t piece_run(struct pieces *pieces, char *data, uint64_t bytes)
{
	struct disk *disk = pieces->self->disk;

	while (bytes) {
		uint64_t rest = NVME_PAGE_BYTES - (uintptr_t)data % NVME_PAGE_BYTES;
		uint64_t part = MIN(bytes, rest);
		struct nvme_command command;
		int ret;

		nvme_words(
			disk->nvme, &command, pieces->command->words.opcode, pieces->offset, part);
		command.words.addr = (uint64_t)(uintptr_t)data;
		command.words.data_len = (uint32_t)part;
		ret = nvme_now(disk, &command);
		if (ret)
			return ret;
		pieces->offset += part;
		data += part;
		bytes -= part;
	}
	return 0;
}

static void pieces_run(void *arg)
{
	struct pieces *pieces = (struct pieces *)arg;
	const struct nvme_command *command = pieces->command;
	void *data = (void *)(uintptr_t)command->words.addr;
	const struct iovec *iov = (const struct iovec *)data;

	if (!command->vectored) {
		pieces->result = piece_run(pieces, (char *)data, command->words.data_len);
		return;
	}
	for (uint32_t i = 0; i < command->words.data_len && !pieces->result; i++)
		pieces->result = piece_run(pieces, (char *)iov[i].iov_base, iov[i].iov_len);
}

static void pieces_fiber(void *arg)
{
	struct nvme_command *command = (struct nvme_command *)arg;
	struct disk *disk = command->io->disk;
	struct pieces pieces = {.self = disk->cores[reactor_core_idx(reactor_self())].nvme,
		.command = command,
		.offset = ((uint64_t)command->words.cdw11 << 32 | command->words.cdw10)
			  << disk->nvme->lba_shift};

	fiber_offload(pieces_run, &pieces);
	nvme_command_late(pieces.self, command, pieces.result);
}

void nvme_pieces_start(struct nvme_core *self, struct nvme_command *command)
{
	struct disk *disk = self->disk;

	counter_add(&refused, 1);
	if (!atomic_exchange(&disk->nvme->refusal_told, true))
		log_warn("disk",
			"%s: a command of %u bytes in %u parts was refused because of its layout; "
			"this and similar commands are now done page by page: the device has a "
			"limit that this program does not know; please report it",
			disk->path, command->bytes,
			command->vectored ? command->words.data_len : 1);
	command->pieces =
		(struct fiber_start){.name = "nvme pieces", .fn = pieces_fiber, .arg = command};
	fiber_start_surely(self->core->reactor, &command->pieces, true);
}
