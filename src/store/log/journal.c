/* store/log/journal.c: the log's groups: building, sealing and walking them (docs/spec/disk.md).
 * The committer writes them; journal_read.c finds them again. */
#include "codec/crc.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_CAP_FIRST (64u * 1024u)

uint32_t journal_crc(const uint8_t *bytes, uint32_t len, uint32_t uuid_crc)
{
	static const uint32_t zero;
	uint32_t crc = crc32c_update(uuid_crc, bytes, 4);

	crc = crc32c_update(crc, &zero, sizeof(zero));
	return crc32c_update(crc, bytes + 8, len - 8);
}

int group_open(struct group **ret_group)
{
	struct group *group = (struct group *)calloc(1, sizeof(*group));
	void *bytes;

	if (!group)
		return -ENOMEM;
	if (posix_memalign(&bytes, BLOCK_BYTES, GROUP_CAP_FIRST)) {
		free(group);
		return -ENOMEM;
	}
	group->bytes = (uint8_t *)bytes;
	group->cap = GROUP_CAP_FIRST;
	group_reset(group);
	*ret_group = group;
	return 0;
}

void group_close(struct group *group)
{
	if (!group)
		return;
	free(group->bytes);
	free(group->touched);
	free(group);
}

void group_reset(struct group *group)
{
	group->len = sizeof(struct group_head);
	group->count = 0;
	group->touched_count = 0;
	group->touched_reserved = 0;
	group->alone = false;
	group->commits = NULL;
	group->commits_last = NULL;
	group->commit_count = 0;
	group->piece_count = 0;
	group->number_count = 0;
	group->next = NULL;
}

int group_reserve(struct group *group, size_t bytes, uint32_t touched)
{
	size_t wanted = ALIGN_UP(group->len + bytes, (size_t)BLOCK_BYTES);
	size_t cap = group->cap;
	void *grown;

	if (group->touched_reserved + touched > group->touched_cap) {
		uint32_t count = MAX(group->touched_cap * 2, group->touched_reserved + touched);

		grown = realloc(group->touched, count * sizeof(struct touched));
		if (!grown)
			return -ENOMEM;
		group->touched = (struct touched *)grown;
		group->touched_cap = count;
	}
	group->touched_reserved += touched;
	if (wanted <= cap)
		return 0;
	while (cap < wanted)
		cap *= 2;
	if (posix_memalign(&grown, BLOCK_BYTES, cap))
		return -ENOMEM;
	memcpy(grown, group->bytes, group->len);
	free(group->bytes);
	group->bytes = (uint8_t *)grown;
	group->cap = cap;
	return 0;
}

uint8_t *group_add(struct group *group, enum mutation_op op, uint8_t flags, const struct key *key,
	size_t value_len)
{
	struct mutation_head head = {.op = (uint8_t)op,
		.flags = flags,
		.key_len = (uint16_t)key->len,
		.value_len = (uint32_t)value_len};
	uint8_t *at = group->bytes + group->len;

	CHECK(group->len + sizeof(head) + key->len + value_len <= group->cap);
	memcpy(at, &head, sizeof(head));
	memcpy(at + sizeof(head), key->bytes, key->len);
	group->len += sizeof(head) + key->len + value_len;
	group->count++;
	group->alone |= op == MUTATION_DELETE_PREFIX;
	return at + sizeof(head) + key->len;
}

void carry_add(struct carry *carry, const struct group *group)
{
	uint32_t bytes = group_head(group)->bytes;
	uint32_t taken = ALIGN_UP(bytes, CARRIED_ALIGN);
	uint32_t kept = 0;

	if (bytes > CARRIED_BYTES_MAX)
		return;
	/* Keeps the older groups that still fit after the new one, whole groups only. */
	while (kept < carry->len) {
		struct group_head head;
		uint32_t next;

		memcpy(&head, carry->bytes + kept, sizeof(head));
		next = kept + ALIGN_UP(head.bytes, CARRIED_ALIGN);
		if (taken + next > sizeof(carry->bytes))
			break;
		kept = next;
	}
	memmove(carry->bytes + taken, carry->bytes, kept);
	memcpy(carry->bytes, group->bytes, bytes);
	memset(carry->bytes + bytes, 0, taken - bytes);
	carry->len = taken + kept;
}

/* The number of bytes of whole copies, newest first, that fit into this many bytes. */
static uint32_t carry_fits(const struct carry *carry, uint32_t room)
{
	uint32_t len = 0;

	while (len < carry->len) {
		struct group_head head;
		uint32_t next;

		memcpy(&head, carry->bytes + len, sizeof(head));
		next = len + ALIGN_UP(head.bytes, CARRIED_ALIGN);
		if (next > room)
			break;
		len = next;
	}
	return len;
}

uint32_t group_seal(struct group *group, const struct group_head *head, uint32_t uuid_crc,
	const struct carry *carry)
{
	uint32_t padded = (uint32_t)ALIGN_UP(group->len, (size_t)BLOCK_BYTES);
	uint32_t from = (uint32_t)ALIGN_UP(group->len, (size_t)CARRIED_ALIGN);
	uint32_t carried = carry ? carry_fits(carry, padded - from) : 0;
	struct group_head *sealed = group_head(group);

	CHECK(padded <= group->cap);
	*sealed = *head;
	sealed->magic = GROUP_MAGIC;
	sealed->bytes = (uint32_t)group->len;
	sealed->count = group->count;
	sealed->crc32c = journal_crc(group->bytes, sealed->bytes, uuid_crc);
	memset(group->bytes + group->len, 0, padded - group->len);
	if (carried)
		memcpy(group->bytes + from, carry->bytes, carried);
	return padded;
}

int group_next(struct slice group, size_t *at, struct mutation *ret_mutation)
{
	struct mutation_head head;
	size_t from = *at ? *at : sizeof(struct group_head);

	if (from == group.len)
		return 0;
	if (from > group.len || group.len - from < sizeof(head))
		return -EUCLEAN;
	memcpy(&head, group.data + from, sizeof(head));
	from += sizeof(head);
	if (head.op < MUTATION_PUT || head.op > MUTATION_DELETE_PREFIX || head.key_len == 0 ||
		head.key_len > KEY_BYTES_MAX ||
		group.len - from < (uint64_t)head.key_len + head.value_len)
		return -EUCLEAN;
	ret_mutation->op = head.op;
	ret_mutation->flags = head.flags;
	ret_mutation->key = slice_of(group.data + from, head.key_len);
	ret_mutation->value = slice_of(group.data + from + head.key_len, head.value_len);
	*at = from + head.key_len + head.value_len;
	return 1;
}
