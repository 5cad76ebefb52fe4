/* disk/disk_joined_dp.c: operations on a volume of two parts go to the part that has the range.
 * Data path. */
#include "disk/disk_dax.h"
#include "disk/disk_joined.h"

#include <errno.h>

static bool is_log(const struct joined *joined, const struct disk_io *io)
{
	return io->offset < joined->log_bytes;
}

/* Where the range lies on its part. */
static struct disk *part_of(const struct joined *joined, struct disk_io *io)
{
	if (is_log(joined, io)) {
		io->offset += DISK_LABEL_BYTES;
		return joined->parts[JOINED_LOG];
	}
	io->offset += DISK_LABEL_BYTES - joined->log_bytes;
	return joined->parts[JOINED_BODIES];
}

static void refused(struct reactor_msg *msg)
{
	struct disk_io *io = CONTAINER_OF(msg, struct disk_io, msg);

	disk_io_end(io, io->split.error);
}

static __attribute__((noinline, cold)) void refuse(
	struct disk_io *io, const struct disk_core *core, int error)
{
	io->split.error = error;
	io->msg.fn = refused;
	reactor_post(core->reactor, &io->msg);
}

/* Both parts, one after the other. */
static void flush_fiber(void *arg)
{
	struct disk_io *io = (struct disk_io *)arg;
	int32_t result = io->fault;

	for (uint32_t i = 0; i < JOINED_PARTS && !result; i++) {
		struct disk_io part = {.op = DISK_FLUSH};

		result = MIN(disk_run(io->disk->joined->parts[i], &part), 0);
	}
	disk_io_end(io, result);
}

void joined_issue(struct disk_io *io, const struct disk_core *core)
{
	const struct joined *joined = io->disk->joined;

	if (io->fault) {
		refuse(io, core, io->fault);
	} else if (io->op == DISK_FLUSH && joined->parts[JOINED_LOG]->dax) {
		disk_start(joined->parts[JOINED_BODIES], io);
	} else if (io->op == DISK_FLUSH) {
		io->start = (struct fiber_start){.name = "flush", .fn = flush_fiber, .arg = io};
		fiber_start_surely(core->reactor, &io->start, true);
	} else if (!joined->labelled ||
		   (is_log(joined, io) && io->bytes > joined->log_bytes - io->offset)) {
		refuse(io, core, -ERANGE);
	} else {
		disk_start(part_of(joined, io), io);
	}
}

struct disk *joined_commit(struct disk *disk, struct disk_commit *commit, uint32_t *count)
{
	const struct joined *joined = disk->joined;
	struct disk *log = joined->parts[JOINED_LOG];
	uint32_t first = *count;

	while (first && is_log(joined, &commit->writes[first - 1]))
		first--;
	if (!log->dax || disk->faults.active || atomic_load(&disk->fenced) || first == *count)
		return disk;
	for (uint32_t i = 0; i < first; i++)
		if (is_log(joined, &commit->writes[i]))
			return disk;
	if (!dax_fits(log, &commit->writes[first], *count - first))
		return disk;
	for (uint32_t i = 0; i < *count; i++)
		(void)part_of(joined, &commit->writes[i]);
	dax_run(log, &commit->writes[first], *count - first);
	*count = first;
	return joined->parts[JOINED_BODIES];
}
