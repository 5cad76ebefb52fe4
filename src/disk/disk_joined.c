/* disk/disk_joined.c: opens a volume of two parts, each with a label in its first MiB, so that
 * neither is used without the other or in its place. May block. */
#include "disk/disk_joined.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/crc.h"

#define LABEL_VERSION 1u
/* A label lies in one block. */
#define BLOCK_BYTES 4096u

static const char MAGIC[8] = {'N', 'E', 'B', 'A', 'P', 'A', 'R', 'T'};
static const char *const ROLES[JOINED_PARTS] = {"log", "bodies"};

struct label {
	char magic[8];
	uint32_t version;
	uint32_t crc32c;
	uint8_t id[16];
	uint32_t part; /* enum joined_part, plus one */
	uint32_t zero;
	uint64_t log_bytes;
};
_Static_assert(sizeof(struct label) == 48, "as docs/spec/disk.md has it");

enum found { FOUND_BLANK, FOUND_LABEL, FOUND_OTHER };

static uint32_t label_crc(const uint8_t block[BLOCK_BYTES])
{
	static const uint32_t zero;
	uint32_t crc = crc32c_update(0, block, 12);

	crc = crc32c_update(crc, &zero, sizeof(zero));
	return crc32c_update(crc, block + 16, BLOCK_BYTES - 16);
}

static bool blank(const uint8_t *bytes, size_t len)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

/* ret_used: there is a superblock behind the label. */
static int label_read(
	struct disk *disk, struct label *ret_label, enum found *ret_found, bool *ret_used)
{
	uint8_t *block;
	void *memory;
	int ret = 0;

	*ret_found = FOUND_BLANK;
	*ret_used = false;
	if (disk_bytes(disk) < DISK_LABEL_BYTES)
		return 0;
	if (posix_memalign(&memory, DISK_ALIGN_BYTES, 2 * BLOCK_BYTES))
		return -ENOMEM;
	block = (uint8_t *)memory;
	ret = disk_read_now(disk, block, BLOCK_BYTES, 0);
	memcpy(ret_label, block, sizeof(*ret_label));
	if (!ret && memcmp(ret_label->magic, MAGIC, sizeof(MAGIC)) == 0 &&
		ret_label->version == LABEL_VERSION && ret_label->crc32c == label_crc(block))
		*ret_found = FOUND_LABEL;
	else if (!ret && !blank(block, BLOCK_BYTES))
		*ret_found = FOUND_OTHER;
	if (!ret && *ret_found == FOUND_LABEL &&
		disk_bytes(disk) >= DISK_LABEL_BYTES + 2 * BLOCK_BYTES) {
		ret = disk_read_now(disk, block, 2 * BLOCK_BYTES, DISK_LABEL_BYTES);
		*ret_used = !ret && !blank(block, 2 * BLOCK_BYTES);
	}
	free(memory);
	return ret;
}

int disk_part_of(struct disk *disk, enum disk_part *ret_part)
{
	struct label label;
	void *block;
	int ret;

	*ret_part = DISK_PART_NONE;
	if (posix_memalign(&block, DISK_ALIGN_BYTES, BLOCK_BYTES))
		return -ENOMEM;
	ret = disk_peek_now(disk, block, BLOCK_BYTES, 0);
	memcpy(&label, block, sizeof(label));
	if (!ret && memcmp(label.magic, MAGIC, sizeof(MAGIC)) == 0) {
		if (label.version != LABEL_VERSION)
			*ret_part = DISK_PART_LATER;
		else if (label.crc32c == label_crc((const uint8_t *)block))
			*ret_part = label.part == JOINED_LOG + 1 ? DISK_PART_LOG : DISK_PART_BODIES;
	}
	free(block);
	return ret;
}

struct disk *disk_unlabelled(const struct disk *disk, uint32_t part_idx)
{
	disk_check(disk);
	return disk->joined && !disk->joined->labelled && part_idx < JOINED_PARTS
		       ? disk->joined->parts[part_idx]
		       : NULL;
}

static int label_write(struct disk *disk, const struct label *label)
{
	struct label own = *label;
	void *block;
	int ret;

	if (posix_memalign(&block, DISK_ALIGN_BYTES, BLOCK_BYTES))
		return -ENOMEM;
	memset(block, 0, BLOCK_BYTES);
	own.crc32c = 0;
	memcpy(block, &own, sizeof(own));
	own.crc32c = label_crc((const uint8_t *)block);
	memcpy(block, &own, sizeof(own));
	ret = disk_write_now(disk, block, BLOCK_BYTES, 0);
	free(block);
	return ret ? ret : disk_flush_now(disk);
}

/* ---- Opening. ---- */

static int refuse(const struct disk *disk, const char *why)
{
	const struct joined *joined = disk->joined;

	log_error("disk", "%s and %s: %s: not changed", joined->parts[JOINED_LOG]->path,
		joined->parts[JOINED_BODIES]->path, why);
	return -EUCLEAN;
}

static int labels_check(struct disk *disk)
{
	struct joined *joined = disk->joined;
	struct label labels[JOINED_PARTS];
	enum found found[JOINED_PARTS];
	bool used[JOINED_PARTS];
	int ret = 0;

	for (uint32_t i = 0; i < JOINED_PARTS && !ret; i++)
		ret = label_read(joined->parts[i], &labels[i], &found[i], &used[i]);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < JOINED_PARTS; i++)
		if (found[i] == FOUND_LABEL && labels[i].part != i + 1) {
			log_error("disk", "%s: it holds a store's %s, not its %s: not changed",
				joined->parts[i]->path, ROLES[!i], ROLES[i]);
			return -EUCLEAN;
		}
	if (found[JOINED_LOG] == FOUND_LABEL && found[JOINED_BODIES] == FOUND_LABEL) {
		if (memcmp(labels[0].id, labels[1].id, sizeof(labels[0].id)) != 0 ||
			labels[0].log_bytes != labels[1].log_bytes)
			return refuse(disk, "this log belongs to other bodies");
		joined->log_bytes = labels[0].log_bytes;
		joined->labelled = true;
		return 0;
	}
	if (found[JOINED_BODIES] == FOUND_LABEL)
		return refuse(disk,
			"the bodies belong to a store whose log is not there: the device was "
			"exchanged or erased, or storage.log names another");
	/* The log is labelled first. */
	if (found[JOINED_LOG] == FOUND_LABEL && used[JOINED_LOG])
		return refuse(disk, "the log belongs to a store whose bodies are not there");
	return 0;
}

static void sizes_take(struct disk *disk)
{
	const struct joined *joined = disk->joined;
	struct disk *bodies = joined->parts[JOINED_BODIES];
	uint64_t more = joined->log_bytes - DISK_LABEL_BYTES;

	if (!joined->labelled)
		return;
	atomic_store(&disk->medium_bytes, disk_medium_bytes(bodies) + more);
	atomic_store(&disk->bytes, disk_bytes(bodies) + more);
}

/* A part on a disk of its own: nothing behind the label is missing. */
static int whole_check(const struct disk *disk)
{
	const struct joined *joined = disk->joined;
	uint64_t log_bytes = disk_bytes(joined->parts[JOINED_LOG]);

	if (joined->labelled &&
		(joined->log_bytes % MIB || joined->log_bytes < DISK_LABEL_BYTES ||
			log_bytes < DISK_LABEL_BYTES ||
			joined->log_bytes > log_bytes - DISK_LABEL_BYTES ||
			disk_bytes(joined->parts[JOINED_BODIES]) < DISK_LABEL_BYTES))
		return refuse(disk, "the device became smaller");
	return 0;
}

/* "log://A?bodies=B" */
static int paths_split(const struct disk *disk, char *ret_log, char *ret_bodies, size_t cap)
{
	struct slice rest = slice_str(disk->path + strlen(DISK_JOINED_SCHEME));
	struct slice mark = SLICE("?bodies=");
	ptrdiff_t at = slice_find(rest, mark);

	if (at <= 0 || slice_copy_str(slice_to(rest, (size_t)at), ret_log, cap) ||
		slice_copy_str(slice_from(rest, (size_t)at + mark.len), ret_bodies, cap) ||
		!ret_bodies[0]) {
		log_error("disk", "%s: wanted log://PATH?bodies=PATH", disk->path);
		return -EINVAL;
	}
	for (uint32_t i = 0; i < JOINED_PARTS; i++) {
		const char *path = i ? ret_bodies : ret_log;

		if (strstr(path, "://") && strncmp(path, "dax://", 6) != 0) {
			log_error("disk", "%s: the %s must be on this host", path, ROLES[i]);
			return -EINVAL;
		}
	}
	return 0;
}

static int joined_open(struct disk *disk, const struct disk_opts *opts)
{
	char paths[JOINED_PARTS][sizeof(disk->path)];
	struct disk_opts part = *opts;
	int ret = paths_split(disk, paths[JOINED_LOG], paths[JOINED_BODIES], sizeof(paths[0]));

	if (ret)
		return ret;
	disk->joined = (struct joined *)calloc(1, sizeof(*disk->joined));
	if (!disk->joined)
		return -ENOMEM;
	disk->joined->wanted_bytes = opts->log_bytes;
	part.kind = DISK_AUTO;
	part.bytes_min = 0;
	part.faults = NULL;
	for (uint32_t i = 0; i < JOINED_PARTS && !ret; i++) {
		part.path = paths[i];
		part.step_bytes = i == JOINED_LOG ? MIB : opts->step_bytes;
		ret = disk_open(&part, &disk->joined->parts[i]);
	}
	if (!ret)
		ret = labels_check(disk);
	if (!ret)
		ret = whole_check(disk);
	if (ret)
		return ret;
	disk->sector_bytes = MAX(disk_align(disk->joined->parts[JOINED_LOG]),
		disk_align(disk->joined->parts[JOINED_BODIES]));
	atomic_store(&disk->discards, disk_can_discard(disk->joined->parts[JOINED_BODIES]));
	sizes_take(disk);
	snprintf(disk->what, sizeof(disk->what), "the log on %.100s (%.60s), the bodies on a %.60s",
		paths[JOINED_LOG], disk_describe(disk->joined->parts[JOINED_LOG]),
		disk_describe(disk->joined->parts[JOINED_BODIES]));
	return 0;
}

static void joined_close(struct disk *disk)
{
	for (uint32_t i = 0; disk->joined && i < JOINED_PARTS; i++)
		disk_close(disk->joined->parts[i]);
	free(disk->joined);
	disk->joined = NULL;
}

static int joined_attach(struct disk *disk, struct disk_core *core)
{
	int ret = 0;

	for (uint32_t i = 0; i < JOINED_PARTS && !ret; i++)
		ret = disk_attach(disk->joined->parts[i], core->reactor, core->region);
	return ret;
}

/* ---- Growing: the first time, the parts get their labels. ---- */

static int log_make(struct disk *disk)
{
	struct joined *joined = disk->joined;
	struct disk *log = joined->parts[JOINED_LOG];
	int ret;

	if (!joined->wanted_bytes)
		return -EINVAL;
	joined->log_bytes = ALIGN_UP(joined->wanted_bytes, MIB);
	ret = disk_grow(log, joined->log_bytes + DISK_LABEL_BYTES);
	if (ret == -ENOSPC)
		log_error("disk",
			"%s: %llu MiB are too small for the log: at least %llu MiB are needed; a "
			"smaller data.log_bytes needs less",
			log->path, (unsigned long long)(disk_medium_bytes(log) / MIB),
			(unsigned long long)((joined->log_bytes + DISK_LABEL_BYTES) / MIB));
	return ret;
}

static int labels_write(struct disk *disk)
{
	struct joined *joined = disk->joined;
	struct label label = {.version = LABEL_VERSION, .log_bytes = joined->log_bytes};
	int ret = 0;

	memcpy(label.magic, MAGIC, sizeof(MAGIC));
	random_fill(label.id, sizeof(label.id));
	for (uint32_t i = 0; i < JOINED_PARTS && !ret; i++) {
		label.part = i + 1;
		ret = label_write(joined->parts[i], &label);
	}
	joined->labelled = !ret;
	return ret;
}

static int joined_grow(struct disk *disk, uint64_t bytes_total)
{
	struct joined *joined = disk->joined;
	bool first = !joined->labelled;
	int ret = first ? log_make(disk) : 0;

	if (!ret && bytes_total > joined->log_bytes)
		ret = disk_grow(joined->parts[JOINED_BODIES],
			bytes_total - joined->log_bytes + DISK_LABEL_BYTES);
	if (!ret && first)
		ret = labels_write(disk);
	if (!ret)
		sizes_take(disk);
	return ret;
}

/* ---- Blocking access: a range may lie on both. ---- */

enum now { NOW_READ, NOW_WRITE, NOW_ZERO };

static int now_run(struct disk *disk, enum now now, uint8_t *data, uint64_t bytes, uint64_t offset)
{
	const struct joined *joined = disk->joined;
	int ret = 0;

	if (!joined->labelled)
		return -EIO;
	while (bytes && !ret) {
		bool log = offset < joined->log_bytes;
		struct disk *part = joined->parts[log ? JOINED_LOG : JOINED_BODIES];
		uint64_t at = DISK_LABEL_BYTES + (log ? offset : offset - joined->log_bytes);
		uint64_t count = log ? MIN(bytes, joined->log_bytes - offset) : bytes;

		if (now == NOW_READ)
			ret = disk_read_now(part, data, count, at);
		else if (now == NOW_WRITE)
			ret = disk_write_now(part, data, count, at);
		else
			ret = disk_zero_now(part, count, at);
		data += now == NOW_ZERO ? 0 : count;
		bytes -= count;
		offset += count;
	}
	return ret;
}

static int joined_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	return now_run(disk, NOW_READ, (uint8_t *)data, bytes, offset);
}

static int joined_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	/* A write only reads the data. */
	return now_run(disk, NOW_WRITE, (uint8_t *)(uintptr_t)data, bytes, offset);
}

static int joined_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	return now_run(disk, NOW_ZERO, NULL, bytes, offset);
}

static int joined_flush_now(struct disk *disk)
{
	int ret = disk_flush_now(disk->joined->parts[JOINED_LOG]);

	return ret ? ret : disk_flush_now(disk->joined->parts[JOINED_BODIES]);
}

const struct disk_ops DISK_JOINED_OPS = {
	.name = "log apart",
	.open = joined_open,
	.close = joined_close,
	.attach = joined_attach,
	.detach = disk_detach_plain,
	.issue = joined_issue,
	.grow = joined_grow,
	.read_now = joined_read_now,
	.write_now = joined_write_now,
	.flush_now = joined_flush_now,
	.zero_now = joined_zero_now,
	.can_grow = true,
};
