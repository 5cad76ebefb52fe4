/* store/check/salvage.c: handles missing groups of a log when the owner gives them up: copies the
 * damaged part to files and reports everything that is known about it. Blocks. */
#include "base/file.h"
#include "store/check/check.h"
#include "store/index/index.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/record.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The most rows that are reported of one hole. */
#define NAMES_MAX 1000u

/* A hole's bytes, of one of the log's copies. */
struct part {
	struct store *store;
	struct salvage *salvage;
	const struct log_hole *hole;
	uint32_t copy;
	uint8_t *bytes;
	uint64_t len;
	uint32_t named;
};

/* ---- Copies of the damage. ---- */

/* The hole extends to the next whole group; without one, to the length in the damaged group's
 * header. */
static uint64_t part_bytes(const struct part *part)
{
	const struct volume *volume = &part->store->volume;
	const struct log_hole *hole = part->hole;
	uint64_t unreadable;
	struct group_head head;
	uint8_t block[BLOCK_BYTES] __attribute__((aligned(BLOCK_BYTES)));

	if (hole->find.found && hole->find.first.pos > hole->at.pos)
		return MIN(hole->find.first.pos - hole->at.pos, volume->super.log_bytes);
	if (!hole->error || journal_raw(&part->store->volume, part->copy, hole->at.pos, block,
				    BLOCK_BYTES, &unreadable))
		return 0;
	memcpy(&head, block, sizeof(head));
	if (!journal_head_is(volume, &head) || head.pos != hole->at.pos)
		return BLOCK_BYTES;
	return ALIGN_UP((uint64_t)head.bytes, (uint64_t)BLOCK_BYTES);
}

static int bytes_write(int fd, const uint8_t *bytes, uint64_t len)
{
	while (len) {
		ssize_t count = write(fd, bytes, len);

		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return count < 0 ? -errno : -EIO;
		bytes += count;
		len -= (uint64_t)count;
	}
	return fsync(fd) ? -errno : 0;
}

static int part_keep(const struct part *part, uint64_t unreadable)
{
	struct store *store = part->store;
	char path[sizeof(store->dir) + 80];
	int fd, ret;

	snprintf(path, sizeof(path), "%s/damaged-log.%llu.%llu.%u", store->dir,
		(unsigned long long)store->volume.super.epoch,
		(unsigned long long)part->hole->at.seq, part->copy);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	ret = fd < 0 ? -errno : bytes_write(fd, part->bytes, part->len);
	if (fd >= 0)
		close(fd);
	if (!ret)
		ret = file_dir_sync(store->dir);
	if (ret) {
		store_find(store,
			"%s: cannot save a copy of the damaged part of the log (%s): nothing was "
			"changed; make room and run this again",
			path, strerror(-ret));
		return ret;
	}
	store_find(store, "%s: a copy of the %llu damaged bytes of the log%s", path,
		(unsigned long long)part->len,
		unreadable ? "; unreadable blocks are zeros there" : "");
	return 0;
}

/* ---- Reports. ---- */

struct bucket_name {
	uint64_t id;
	char name[LIMIT_BUCKET_LEN_MAX + 1];
};

static bool bucket_visit(struct slice key, struct slice value, void *arg)
{
	struct bucket_name *wanted = (struct bucket_name *)arg;
	struct store_bucket info;

	if (bucket_record_parse(slice_from(key, 1), value, &info) || info.id != wanted->id)
		return true;
	snprintf(wanted->name, sizeof(wanted->name), "%s", info.name);
	return false;
}

/* Rows of bodies accompany the records that name them, and are not reported. */
static void mutation_name(struct part *part, const struct mutation *mutation)
{
	struct buf *out = part->salvage->out;
	struct bucket_name bucket = {.name = "an unknown bucket"};
	struct object_name version;
	bool put = mutation->op == MUTATION_PUT;

	if (mutation->op == MUTATION_DELETE_PREFIX ||
		!(key_is_object(mutation->key) || mutation->key.data[0] == 'B') ||
		part->named++ >= NAMES_MAX)
		return;
	if (mutation->key.data[0] == 'B') {
		buf_printf(out, "  lost: bucket %s: ", put ? "created or changed" : "deleted");
		printable_put(out, slice_from(mutation->key, 1));
		buf_put_str(out, "\n");
		return;
	}
	if (mutation->key.len <= 9)
		return;
	memcpy(&bucket.id, mutation->key.data + 1, sizeof(bucket.id));
	bucket.id = be64toh(bucket.id);
	(void)index_visit(part->store->index, SLICE("B"), bucket_visit, &bucket);
	buf_printf(out, "  lost: %s%s: %s/", put ? "stored" : "deleted",
		mutation->key.data[0] == 'O' ? "" : " (a former version)", bucket.name);
	if (mutation->key.data[0] == 'V' && key_version_parse(mutation->key, &version) == 0)
		printable_put(out, slice_of(version.key, version.key_len));
	else
		printable_put(out, slice_from(mutation->key, 9));
	buf_put_str(out, "\n");
}

/* The readable parts of groups with a readable header. */
static void part_name(struct part *part)
{
	uint64_t log_bytes = part->store->volume.super.log_bytes;

	for (uint64_t at = 0; at < part->len; at += BLOCK_BYTES) {
		struct mutation mutation;
		struct group_head head;
		size_t cursor = 0;

		memcpy(&head, part->bytes + at, sizeof(head));
		if (!journal_head_is(&part->store->volume, &head) ||
			head.pos % log_bytes != (part->hole->at.pos + at) % log_bytes ||
			head.seq < part->hole->lost_first || head.seq >= part->hole->lost_end)
			continue;
		while (group_next(slice_of(part->bytes + at,
					  MIN((uint64_t)head.bytes, part->len - at)),
			       &cursor, &mutation) == 1)
			mutation_name(part, &mutation);
	}
	if (part->named > NAMES_MAX)
		buf_printf(part->salvage->out, "  and %u more\n", part->named - NAMES_MAX);
}

/* ---- */

static int part_run(struct part *part)
{
	uint64_t unreadable;
	void *bytes;
	int ret;

	part->len = part_bytes(part);
	if (!part->len)
		return part->copy ? -ENOENT : 0;
	if (posix_memalign(&bytes, BLOCK_BYTES, part->len))
		return -ENOMEM;
	part->bytes = (uint8_t *)bytes;
	ret = journal_raw(&part->store->volume, part->copy, part->hole->at.pos, part->bytes,
		part->len, &unreadable);
	if (!ret) {
		part->salvage->unreadable |= unreadable != 0;
		ret = part_keep(part, unreadable);
	}
	/* All copies agree in their undamaged parts. */
	if (!ret && part->copy == 0)
		part_name(part);
	free(bytes);
	return ret;
}

int salvage_hole(struct store *store, struct salvage *salvage, const struct log_hole *hole)
{
	char lost[GROUPS_SAID_BYTES];
	int ret = 0;

	salvage->lost = true;
	salvage->unreadable |= hole->error || hole->find.unreadable_blocks;
	salvage->report->groups_lost += hole->lost_end - hole->lost_first;
	groups_say(hole->lost_first, hole->lost_end - 1, lost);
	store_find(store, "%s: %s of the log: lost, with all changes in them", store->dir, lost);
	for (uint32_t copy = 0; !ret; copy++) {
		struct part part = {.store = store, .salvage = salvage, .hole = hole, .copy = copy};

		ret = part_run(&part);
		if (!ret && !part.len)
			break;
	}
	return ret == -ENOENT ? 0 : ret;
}

int salvage_end(struct store *store, struct salvage *salvage)
{
	char path[sizeof(store->dir) + 8];
	int ret = salvage->lost ? salvage_mend(store, salvage) : 0;

	/* The snapshot describes a store without losses. */
	snprintf(path, sizeof(path), "%s/space", store->dir);
	if (!ret && salvage->lost && unlink(path) && errno != ENOENT)
		ret = -errno;
	if (!ret && salvage->lost)
		ret = file_dir_sync(store->dir);
	if (!ret && salvage->unreadable)
		ret = journal_heal(&store->volume);
	return ret;
}
