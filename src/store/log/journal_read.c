/* store/log/journal_read.c: reads the log's groups back, and searches the log for groups after a
 * missing one. Blocks. */
#include "store/log/journal.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A failed read is retried: a path or a link may have been down for a moment. */
#define READ_TRIES  4u
#define PIECE_BYTES ((uint32_t)MIB)
/* The search stops on a medium with more unreadable blocks than this. */
#define UNREADABLE_MAX 256u
/* The most bytes of incomplete groups that a search reads, as a multiple of the log's size. */
#define SPOILT_LOGS_MAX 4u

_Static_assert(PIECE_BYTES % BLOCK_BYTES == 0, "a piece is whole blocks");

/* Errors for which another copy is no help: too few volumes are left, or no memory. */
static bool is_final(int error)
{
	return error == -ENOMEM || error == -EHOSTDOWN;
}

static int log_read(
	struct volume *volume, uint32_t copy, void *data, uint64_t bytes, uint64_t log_offset)
{
	uint64_t offset = VOLUME_LOG_OFFSET + log_offset;
	int first = 0, ret = 0;

	for (uint32_t i = 0; i < READ_TRIES; i++) {
		ret = disk_copy_read_now(volume->disk, copy, data, bytes, offset);
		if (!ret && first)
			log_warn("store",
				"%s: a read of the log at %llu failed (%s), and the retry "
				"succeeded: check the medium",
				volume->path, (unsigned long long)offset, strerror(-first));
		if (!ret || ret == -ENOENT || is_final(ret))
			return ret;
		first = first ? first : ret;
	}
	return -EIO;
}

void groups_say(uint64_t first, uint64_t last, char out[GROUPS_SAID_BYTES])
{
	if (first == last)
		snprintf(out, GROUPS_SAID_BYTES, "group %llu", (unsigned long long)first);
	else
		snprintf(out, GROUPS_SAID_BYTES, "groups %llu to %llu", (unsigned long long)first,
			(unsigned long long)last);
}

bool journal_head_is(const struct volume *volume, const struct group_head *head)
{
	uint64_t log_bytes = volume->super.log_bytes;

	return head->magic == GROUP_MAGIC && head->bytes >= sizeof(*head) &&
	       head->pos % BLOCK_BYTES == 0 &&
	       head->pos % log_bytes + ALIGN_UP((uint64_t)head->bytes, (uint64_t)BLOCK_BYTES) <=
		       log_bytes;
}

/* Reads the group of that header: 1 and its bytes if it is whole; 0; -errno. */
static int group_load(
	struct volume *volume, uint32_t copy, const struct group_head *head, uint8_t **ret_bytes)
{
	uint64_t padded = ALIGN_UP((uint64_t)head->bytes, (uint64_t)BLOCK_BYTES);
	void *bytes;
	int ret;

	if (posix_memalign(&bytes, BLOCK_BYTES, padded))
		return -ENOMEM;
	ret = log_read(volume, copy, bytes, padded, head->pos % volume->super.log_bytes);
	/* The last read may not match the read of the header. */
	if (!ret && memcmp(bytes, head, sizeof(*head)) == 0 &&
		journal_crc((const uint8_t *)bytes, head->bytes, volume->uuid_crc) == head->crc32c)
		ret = 1;
	if (ret == 1)
		*ret_bytes = (uint8_t *)bytes;
	else
		free(bytes);
	return ret;
}

/* ---- Reading the group at a place. ---- */

static int read_copy(struct volume *volume, const struct journal_at *at, uint32_t copy,
	uint8_t **ret_bytes, struct group_head *ret_head)
{
	struct group_head head;
	void *block;
	int ret;

	if (posix_memalign(&block, BLOCK_BYTES, BLOCK_BYTES))
		return -ENOMEM;
	ret = log_read(volume, copy, block, BLOCK_BYTES, at->pos % volume->super.log_bytes);
	memcpy(&head, block, sizeof(head));
	free(block);
	if (ret)
		return ret;
	if (!journal_head_is(volume, &head) || head.pos != at->pos || head.seq != at->seq ||
		head.epoch != volume->super.epoch)
		return 0;
	ret = group_load(volume, copy, &head, ret_bytes);
	if (ret == 1)
		*ret_head = head;
	return ret;
}

/* If a copy is damaged or out of date, another may still be whole. */
static int read_at(struct volume *volume, const struct journal_at *at, uint8_t **ret_bytes,
	struct group_head *ret_head)
{
	int best = -EIO;

	for (uint32_t copy = 0;; copy++) {
		int ret = read_copy(volume, at, copy, ret_bytes, ret_head);

		if (ret == -ENOENT)
			return best;
		if (ret == 1 && copy)
			log_warn("store",
				"%s: group %llu of the log is damaged on %u of its volumes, and "
				"was read from another",
				volume->path, (unsigned long long)at->seq, copy);
		if (ret == 1 || is_final(ret))
			return ret;
		best = ret == 0 || best == 0 ? 0 : ret;
	}
}

int journal_read(struct volume *volume, const struct journal_at *at, uint8_t **ret_bytes,
	struct group_head *ret_head)
{
	uint64_t log_bytes = volume->super.log_bytes;
	struct journal_at next_lap = {
		.pos = at->pos - at->pos % log_bytes + log_bytes, .seq = at->seq};
	int ret = read_at(volume, at, ret_bytes, ret_head);
	int lap;

	volume_check(volume);
	CHECK(at->pos % BLOCK_BYTES == 0);
	if (ret == 1 || is_final(ret) || at->pos % log_bytes == 0)
		return ret;
	lap = read_at(volume, &next_lap, ret_bytes, ret_head);
	return lap ? lap : ret;
}

/* ---- Searching the bytes after it. ---- */

int journal_raw(struct volume *volume, uint32_t copy, uint64_t pos, uint8_t *out, uint64_t bytes,
	uint64_t *ret_unreadable)
{
	uint64_t log_bytes = volume->super.log_bytes;

	*ret_unreadable = 0;
	for (uint64_t at = 0; at < bytes; at += BLOCK_BYTES) {
		int ret = log_read(volume, copy, out + at, BLOCK_BYTES, (pos + at) % log_bytes);

		if (ret == -ENOENT || is_final(ret))
			return ret;
		if (!ret)
			continue;
		memset(out + at, 0, BLOCK_BYTES);
		if (++*ret_unreadable > UNREADABLE_MAX)
			return -EIO;
	}
	return 0;
}

struct search {
	struct volume *volume;
	const struct journal_at *at;
	struct journal_find *find;
	uint32_t copy;
	uint64_t spoilt_bytes;
	uint8_t *piece; /* PIECE_BYTES */
};

static void found_note(struct journal_find *find, const struct group_head *head)
{
	if (!find->found || head->seq < find->first.seq ||
		(head->seq == find->first.seq && head->epoch > find->first_epoch)) {
		find->first = (struct journal_at){.pos = head->pos, .seq = head->seq};
		find->first_epoch = head->epoch;
	}
	find->seq_last = find->found ? MAX(find->seq_last, head->seq) : head->seq;
	find->found = true;
}

/* A header alone proves nothing: groups contain users' data, which can look like a header. */
static int block_look(struct search *search, const uint8_t *block, uint64_t log_offset)
{
	const struct superblock *super = &search->volume->super;
	struct group_head head;
	uint8_t *bytes;
	int ret;

	memcpy(&head, block, sizeof(head));
	if (!journal_head_is(search->volume, &head) || head.pos % super->log_bytes != log_offset ||
		head.pos < search->at->pos || head.seq < search->at->seq ||
		head.epoch < super->epoch ||
		search->spoilt_bytes > SPOILT_LOGS_MAX * super->log_bytes)
		return 0;
	ret = group_load(search->volume, search->copy, &head, &bytes);
	if (ret == 1) {
		free(bytes);
		found_note(search->find, &head);
	} else {
		search->spoilt_bytes += head.bytes;
	}
	return is_final(ret) ? ret : 0;
}

/* Reads block by block, so that an unreadable block does not hide others. */
static int piece_read(struct search *search, uint64_t log_offset, uint32_t bytes)
{
	struct journal_find *find = search->find;
	int ret = disk_copy_read_now(search->volume->disk, search->copy, search->piece, bytes,
		VOLUME_LOG_OFFSET + log_offset);
	uint64_t unreadable;

	if (!ret || ret == -ENOENT || is_final(ret))
		return ret;
	for (uint32_t at = 0; at < bytes; at += BLOCK_BYTES) {
		ret = journal_raw(search->volume, search->copy, log_offset + at, search->piece + at,
			BLOCK_BYTES, &unreadable);
		if (ret)
			return ret;
		if (!unreadable)
			continue;
		find->unreadable_offset = VOLUME_LOG_OFFSET + log_offset + at;
		if (++find->unreadable_blocks > UNREADABLE_MAX)
			return -EIO;
	}
	return 0;
}

static int copy_search(struct search *search)
{
	uint64_t log_bytes = search->volume->super.log_bytes;
	int ret = 0;

	for (uint64_t from = 0; from < log_bytes && !ret; from += PIECE_BYTES) {
		uint32_t bytes = (uint32_t)MIN(log_bytes - from, (uint64_t)PIECE_BYTES);

		ret = piece_read(search, from, bytes);
		for (uint32_t at = 0; at < bytes && !ret; at += BLOCK_BYTES)
			ret = block_look(search, search->piece + at, from + at);
	}
	return ret;
}

int journal_search(
	struct volume *volume, const struct journal_at *at, struct journal_find *ret_find)
{
	struct search search = {.volume = volume, .at = at, .find = ret_find};
	uint64_t changes;
	void *piece;
	int ret;

	volume_check(volume);
	if (posix_memalign(&piece, BLOCK_BYTES, PIECE_BYTES))
		return -ENOMEM;
	search.piece = (uint8_t *)piece;
	/* A member that is lost meanwhile leaves its number to the next copy, whose first part has
	 * then not been read: begin again without it. */
	do {
		changes = disk_array_changes(volume->disk);
		*ret_find = (struct journal_find){0};
		search.spoilt_bytes = 0;
		ret = 0;
		for (search.copy = 0; !ret; search.copy++)
			ret = copy_search(&search);
	} while (ret == -ENOENT && disk_array_changes(volume->disk) != changes);
	free(piece);
	return ret == -ENOENT ? 0 : ret;
}

/* The offset of the copy with the lowest number from at->seq on, among the copies in a group's
 * padding; or 0. */
static uint64_t copy_find(const struct volume *volume, const uint8_t *bytes,
	const struct group_head *carrier, const struct journal_at *at)
{
	uint64_t padded = ALIGN_UP((uint64_t)carrier->bytes, (uint64_t)BLOCK_BYTES);
	uint64_t from = ALIGN_UP((uint64_t)carrier->bytes, (uint64_t)CARRIED_ALIGN);
	uint64_t best_seq = carrier->seq, best = 0;

	while (from + sizeof(struct group_head) <= padded) {
		struct group_head head;

		memcpy(&head, bytes + from, sizeof(head));
		if (!journal_head_is(volume, &head) || head.bytes > padded - from)
			break;
		if (head.epoch == carrier->epoch && head.pos >= at->pos && head.seq >= at->seq &&
			head.seq < best_seq &&
			journal_crc(bytes + from, head.bytes, volume->uuid_crc) == head.crc32c) {
			best_seq = head.seq;
			best = from;
		}
		from += ALIGN_UP((uint64_t)head.bytes, (uint64_t)CARRIED_ALIGN);
	}
	return best;
}

int journal_carried(struct volume *volume, const struct journal_find *find,
	const struct journal_at *at, uint8_t **ret_bytes, struct group_head *ret_head)
{
	const struct superblock super = volume->super;
	struct group_head carrier;
	uint8_t *bytes;
	uint64_t from;
	int ret;

	volume->super.epoch = find->first_epoch;
	ret = read_at(volume, &find->first, &bytes, &carrier);
	volume->super.epoch = super.epoch;
	if (ret <= 0)
		return ret;
	from = copy_find(volume, bytes, &carrier, at);
	if (from) {
		memcpy(ret_head, bytes + from, sizeof(*ret_head));
		memmove(bytes, bytes + from, ret_head->bytes);
		*ret_bytes = bytes;
		return 1;
	}
	free(bytes);
	return 0;
}

int journal_heal(struct volume *volume)
{
	uint64_t log_bytes = volume->super.log_bytes;
	void *block, *zeros;
	int ret = 0;

	if (posix_memalign(&block, BLOCK_BYTES, 2 * (size_t)BLOCK_BYTES))
		return -ENOMEM;
	zeros = (uint8_t *)block + BLOCK_BYTES;
	memset(zeros, 0, BLOCK_BYTES);
	for (uint32_t copy = 0; ret != -ENOENT; copy++)
		for (uint64_t at = 0; at < log_bytes; at += BLOCK_BYTES) {
			ret = log_read(volume, copy, block, BLOCK_BYTES, at);
			if (ret == -ENOENT)
				break;
			if (!ret)
				continue;
			if (!is_final(ret))
				ret = disk_write_now(
					volume->disk, zeros, BLOCK_BYTES, VOLUME_LOG_OFFSET + at);
			if (ret) {
				free(block);
				return ret;
			}
		}
	free(block);
	return disk_flush_now(volume->disk);
}
