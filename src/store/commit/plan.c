/* store/commit/plan.c: the plan of a commit: the changes of each item to the rows of its key, in
 * commit order. First come the entries that change and their new objects (if that fails, nothing is
 * written), then the mutations.
 *
 *   rows of a key:   O current object   V/N versions that are not current, and delete markers
 *   put, enabled:    the current one moves to V or N, the new one takes O
 *   put, suspended:  the same, but the null version is replaced
 *   delete:          the current one moves, a delete marker goes to V (suspended: N); O is empty
 *   delete by id:    that row goes; if it was the newest, the next takes O unless it is a marker */
#include "store/commit/body.h"
#include "store/commit/commit.h"
#include "store/commit/committer.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/state/state.h"
#include "store/table/table.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define INLINE_KEY_BYTES 9u
#define RECORD_SLACK	 256u /* a delete marker; a number that was assigned */

/* A group takes commits up to its goal of bytes, of which a number stands for more than 8. */
_Static_assert(GROUP_BYTES_GOAL / 8 + LIMIT_DELETE_KEYS_MAX * (2 + STORE_OUTBOX_ROWS_MAX) <
		       1u << GROUP_NUMBER_SHIFT,
	"a group's versions and outbox rows have numbers of their own");

static bool is_null_version(const struct object *object)
{
	return object->meta.version_id[0] == 'n';
}

uint32_t commit_rows_max(const struct object *object)
{
	return object && object->part_count > 1 ? object->segment_count : 1;
}

static size_t rows_bytes(const struct record_entry *entry)
{
	return entry ? MUTATION_BYTES(SEGMENT_KEY_BYTES, 0) *
			       commit_rows_max(record_entry_view(entry))
		     : 0;
}

static size_t record_bytes_of(const struct object *object)
{
	return object ? record_bytes(object) + RECORD_SLACK : RECORD_SLACK;
}

static size_t object_bytes(const struct object *object, bool composes)
{
	size_t bytes = record_bytes(object);

	if (composes)
		return bytes;
	if (object->body == BODY_INLINE)
		bytes += MUTATION_BYTES(INLINE_KEY_BYTES, object->meta.bytes);
	for (uint32_t i = 0; object->body == BODY_SEGMENTED && i < object->segment_count; i++)
		bytes += MUTATION_BYTES(
			SEGMENT_KEY_BYTES, segment_record_bytes(atomic_load(&object->segments[i])));
	return bytes;
}

/* The row of a segment that moves. */
static size_t moved_bytes(const struct commit_item *item)
{
	const struct segment *segment = atomic_load(&item->object->segments[item->moved_segment]);

	return MUTATION_BYTES(SEGMENT_KEY_BYTES, 0) +
	       MUTATION_BYTES(SEGMENT_KEY_BYTES, segment_record_bytes(segment));
}

size_t commit_item_bytes(const struct commit_item *item, const struct commit *commit)
{
	const struct object *current = record_entry_view(item->entry);
	size_t row = MUTATION_BYTES(1 + 8 + item->entry->key_len, 0);
	size_t bytes = row + rows_bytes(item->entry);

	if (item->kind == ITEM_EDIT)
		return bytes + row + record_bytes_of(current) + STORE_HEADERS_BYTES_MAX;
	if (item->kind == ITEM_MOVE)
		return bytes + row + record_bytes(item->object) + moved_bytes(item);
	if (item->object && commit->append)
		return bytes + append_bytes(commit->append, item->object);
	if (item->object)
		bytes += object_bytes(item->object, commit->composition != NULL);
	if (commit->bucket->info.versioning == STORE_VERSIONING_NEVER)
		return bytes;
	row = MUTATION_BYTES(1 + 8 + 2 * item->entry->key_len + 10, 0);
	bytes += CHANGES_MAX * (row + RECORD_SLACK) + record_bytes_of(current);
	bytes += rows_bytes(item->null_entry) + rows_bytes(item->version_entry);
	return bytes + (item->promote ? record_bytes_of(record_entry_view(item->promote)) : 0);
}

void commit_rows_delete(struct group *group, const struct object *object)
{
	struct key key;

	if (object->body == BODY_INLINE) {
		key_inline(&key, object->data_id);
		group_add(group, MUTATION_DELETE, 0, &key, 0);
	}
	if (object->body != BODY_SEGMENTED)
		return;
	if (object->part_count == 1 && object->segment_count > 1) {
		key_segments(&key, object->data_id);
		group_add(group, MUTATION_DELETE_PREFIX, 0, &key, 0);
		return;
	}
	/* Deletes each row by its key: a search for each part would be too many. */
	for (uint32_t i = 0; i < object->segment_count; i++) {
		const struct object_part *part = object_part_of(object, i);

		key_segment(&key, part->data_id, i - part->segment_first);
		group_add(group, MUTATION_DELETE, 0, &key, 0);
	}
}

/* The rows of a body that the index does not have yet. */
static void body_add(struct group *group, const struct object *object, uint8_t flags)
{
	struct key key;

	if (object->body == BODY_INLINE) {
		key_inline(&key, object->data_id);
		region_copy(group_add(group, MUTATION_PUT, 0, &key, object->meta.bytes),
			object->inline_data, object->meta.bytes, COPY_INDEX);
	}
	if (object->body != BODY_SEGMENTED)
		return;
	for (uint32_t i = 0; i < object->segment_count; i++) {
		const struct segment *segment = atomic_load(&object->segments[i]);

		key_segment(&key, object->data_id, i);
		segment_record_put(segment,
			group_add(group, MUTATION_PUT, flags, &key, segment_record_bytes(segment)));
	}
}

uint64_t group_number_next(const struct store *store, struct group *group)
{
	return store->committer->seq_next << GROUP_NUMBER_SHIFT | ++group->number_count;
}

/* ---- Planning. ---- */

/* The entry is pinned for the change; the change takes over the pin and the reference to the
 * object. */
static void change_add(struct commit_item *item, struct record_entry *entry, struct object *object,
	enum change_old old, uint8_t flags)
{
	CHECK(item->change_count < CHANGES_MAX);
	item->changes[item->change_count++] = (struct change){
		.entry = entry, .object = object, .old = (uint8_t)old, .flags = flags};
}

/* A body that moves from a published entry's row to another was flushed with its group. */
static uint8_t moved_flags(const struct record_entry *entry, const struct object *object)
{
	return object->body_flushed || !entry->has_pending ? CHANGE_FLUSHED : 0;
}

void commit_item_drop(struct store *store, struct commit_item *item)
{
	for (uint32_t i = 0; i < item->change_count; i++) {
		struct change *change = &item->changes[i];

		if (item->planned)
			change->entry->has_pending = false;
		/* The number is given again if the group is not written. */
		if (change->flags & CHANGE_SEQ)
			change->object->seq = 0;
		if (change->object != item->object)
			object_put(store, change->object);
		if (change->entry != item->entry)
			record_entry_unpin(store->records, change->entry);
	}
	item->change_count = 0;
	item->entry_taken = false;
	item->planned = false;
}

/* The current version moves to a row of its own. */
static int plan_demotion(
	struct store *store, struct commit_item *item, struct object *current, struct group *group)
{
	struct slice key = slice_of(item->entry->key, item->entry->key_len);
	uint64_t seq = current->seq ? current->seq : group_number_next(store, group);
	struct record_entry *entry = record_entry_pin_fresh(
		store->records, item->entry->bucket_id, key, is_null_version(current) ? 0 : seq);

	if (!entry)
		return -ENOMEM;
	change_add(item, entry, object_get(current), OLD_STAYS,
		moved_flags(item->entry, current) | (current->seq ? 0 : CHANGE_SEQ));
	current->seq = seq;
	return 0;
}

static void version_name(struct store_meta *meta, uint64_t seq)
{
	snprintf(meta->version_id, sizeof(meta->version_id), "%016llx", (unsigned long long)seq);
}

/* A delete marker becomes the newest version. */
static int plan_marker(
	struct store *store, struct commit_item *item, bool enabled, struct group *group)
{
	struct slice key = slice_of(item->entry->key, item->entry->key_len);
	struct store_meta meta = {.delete_marker = true, .version_id = "null"};
	uint64_t seq = group_number_next(store, group);
	struct record_entry *entry = item->null_entry;
	struct object *marker;
	int ret;

	meta.mtime_ns = clock_real_after_ns(&store->committer->mtime_last_ns);
	if (enabled)
		version_name(&meta, seq);
	ret = object_open(&meta, atomic_fetch_add(&store->data_id_next, 1), 0, &marker);
	if (ret)
		return ret;
	marker->body = BODY_MARKER;
	marker->seq = seq;
	if (enabled)
		entry = record_entry_pin_fresh(store->records, item->entry->bucket_id, key, seq);
	else
		record_entry_pin_more(store->records, entry);
	if (!entry) {
		object_put(store, marker);
		return -ENOMEM;
	}
	change_add(item, entry, marker, OLD_DIES, CHANGE_NEW | CHANGE_FLUSHED);
	slice_copy_str(
		slice_str(meta.version_id), item->ret_version_id, sizeof(item->ret_version_id));
	item->ret_marker = true;
	return 0;
}

/* The object takes the key's row; without an object the row is deleted. */
static void plan_current(struct store *store, struct commit_item *item, enum change_old old)
{
	uint8_t flags = 0;

	if (item->object) {
		if (!item->mtime_ns)
			item->mtime_ns = clock_real_after_ns(&store->committer->mtime_last_ns);
		item->object->meta.mtime_ns = item->mtime_ns;
		flags = CHANGE_NEW | CHANGE_BODY |
			(item->object->body_flushed ? CHANGE_FLUSHED : 0);
	}
	change_add(item, item->entry, item->object, old, flags);
}

static int plan_versioned_write(struct store *store, const struct commit *commit,
	struct commit_item *item, struct group *group)
{
	bool enabled = commit->bucket->info.versioning == STORE_VERSIONING_ENABLED;
	struct object *current = record_entry_view(item->entry);
	enum change_old old = OLD_DIES;
	int ret = 0;

	if (current && (enabled || !is_null_version(current))) {
		ret = plan_demotion(store, item, current, group);
		old = OLD_STAYS;
	}
	if (ret)
		return ret;
	if (item->object && enabled) {
		item->object->seq = group_number_next(store, group);
		version_name(&item->object->meta, item->object->seq);
	}
	if (item->object || current)
		plan_current(store, item, old);
	if (!item->object)
		return plan_marker(store, item, enabled, group);
	if (!enabled && record_entry_view(item->null_entry)) {
		record_entry_pin_more(store->records, item->null_entry);
		change_add(item, item->null_entry, NULL, OLD_DIES, 0);
	}
	return 0;
}

/* The body of the current object continues in the object that replaces it. */
static int plan_append(struct store *store, const struct commit *commit, struct commit_item *item)
{
	struct record_entry *entry = item->entry;
	int ret;

	/* A change after the base is pending: so the base has been published. */
	if (commit->bucket->info.versioning != STORE_VERSIONING_NEVER || entry->has_pending ||
		entry->object != commit->append->base)
		return -ESTALE;
	ret = item->check ? item->check(&entry->object->meta, item->arg) : 0;
	if (ret)
		return ret;
	item->mtime_ns = clock_real_after_ns(&store->committer->mtime_last_ns);
	item->object->meta.mtime_ns = item->mtime_ns;
	memcpy(item->object->meta.version_id, "null", sizeof("null"));
	memcpy(item->ret_version_id, "null", sizeof("null"));
	change_add(item, entry, item->object, OLD_EDITED,
		CHANGE_BODY | (item->object->body_flushed ? CHANGE_FLUSHED : 0));
	return 0;
}

static int plan_write(struct store *store, const struct commit *commit, struct commit_item *item,
	struct group *group)
{
	struct object *current = record_entry_view(item->entry);
	uint8_t versioning = commit->bucket->info.versioning;
	int ret = 0;

	if (versioning == STORE_VERSIONING_SUSPENDED && !item->null_entry)
		return -ERESTART;
	if (item->check)
		ret = item->check(current ? &current->meta : NULL, item->arg);
	if (ret)
		return ret;
	if (item->object)
		memcpy(item->object->meta.version_id, "null", sizeof("null"));
	if (versioning != STORE_VERSIONING_NEVER)
		ret = plan_versioned_write(store, commit, item, group);
	else if (item->object || current)
		plan_current(store, item, OLD_DIES);
	if (!ret && item->object)
		memcpy(item->ret_version_id, item->object->meta.version_id,
			sizeof(item->ret_version_id));
	return ret;
}

/* New headers for the same body. */
static int plan_edit(struct commit_item *item)
{
	struct object *current = record_entry_view(item->entry);
	struct slice headers = SLICE_NONE;
	int ret;

	if (item->version_id.len &&
		(!current || !slice_eq(slice_str(current->meta.version_id), item->version_id)))
		return -ERESTART;
	if (!current)
		return -ENOENT;
	ret = item->edit(&current->meta, &headers, item->arg);
	if (!ret && headers.len > STORE_HEADERS_BYTES_MAX)
		ret = -EINVAL;
	if (!ret)
		ret = object_open_edited(current, headers, &item->object);
	if (ret)
		return ret;
	item->object->seq = current->seq;
	item->object->meta.checksum_flags &= (uint8_t)~item->flags.mask;
	item->object->meta.checksum_flags |= item->flags.flags & item->flags.mask;
	/* The body of a published object is durable. */
	item->object->body_flushed |= !item->entry->has_pending;
	change_add(item, item->entry, item->object, OLD_EDITED,
		item->object->body_flushed ? CHANGE_FLUSHED : 0);
	return 0;
}

/* A segment in another place. -EBUSY: a later change is planned. A commit that composes the object
 * or appends to it finds another one, and follows (commit_follow). */
static int plan_move(struct commit_item *item)
{
	struct record_entry *entry = item->entry;

	if (entry->has_pending)
		return -EBUSY;
	if (entry->object != item->moved_from)
		return -ESTALE;
	change_add(item, entry, item->object, OLD_MOVED,
		item->object->body_flushed ? CHANGE_FLUSHED : 0);
	return 0;
}

/* The newest version is deleted: the next becomes current, unless it is a delete marker. */
static void plan_promotion(struct store *store, struct commit_item *item, bool was_current)
{
	struct object *next = item->promote ? record_entry_view(item->promote) : NULL;

	if (next && next->body != BODY_MARKER) {
		record_entry_pin_more(store->records, item->promote);
		change_add(item, item->entry, object_get(next), OLD_DIES,
			moved_flags(item->promote, next));
		change_add(item, item->promote, NULL, OLD_STAYS, 0);
	} else if (was_current) {
		change_add(item, item->entry, NULL, OLD_DIES, 0);
	}
}

static int plan_version_delete(struct store *store, struct commit_item *item)
{
	struct object *current = record_entry_view(item->entry);
	struct object *victim =
		item->version_entry ? record_entry_view(item->version_entry) : current;
	bool unchanged = atomic_load(&item->entry->changes) == item->changes_seen;
	bool newest = !item->version_entry ||
		      (!current && !(item->newest && record_entry_view(item->newest)));
	int ret = 0;

	if (!victim || !slice_eq(slice_str(victim->meta.version_id), item->version_id) ||
		(newest && !unchanged))
		return -ERESTART;
	if (newest && item->noncurrent)
		return -ECANCELED;
	if (item->check)
		ret = item->check(&victim->meta, item->arg);
	if (ret)
		return ret;
	memcpy(item->ret_version_id, victim->meta.version_id, sizeof(item->ret_version_id));
	item->ret_marker = victim->meta.delete_marker;
	if (item->version_entry) {
		record_entry_pin_more(store->records, item->version_entry);
		change_add(item, item->version_entry, NULL, OLD_DIES, 0);
	}
	if (newest)
		plan_promotion(store, item, !item->version_entry);
	return 0;
}

/* ---- Mutations. ---- */

/* The segment's row, which is there already. The index takes a row of a body as one that is put
 * once, unless it is deleted before. */
static void moved_add(struct group *group, const struct commit_item *item, uint8_t flags)
{
	const struct object *object = item->object;
	const struct object_part *part = object_part_of(object, item->moved_segment);
	const struct segment *segment = atomic_load(&object->segments[item->moved_segment]);
	struct key key;

	if (object->body != BODY_SEGMENTED)
		return;
	key_segment(&key, part->data_id, item->moved_segment - part->segment_first);
	group_add(group, MUTATION_DELETE, 0, &key, 0);
	segment_record_put(segment,
		group_add(group, MUTATION_PUT, flags, &key, segment_record_bytes(segment)));
}

static void change_apply(struct group *group, struct change *change, const struct commit *commit)
{
	uint8_t flags = change->flags & CHANGE_FLUSHED ? MUTATION_BODY_FLUSHED : 0;
	const struct object *old = record_entry_view(change->entry);
	const struct object *object = change->object;
	struct key key;

	if (old && change->old == OLD_DIES)
		commit_rows_delete(group, old);
	record_entry_key(change->entry, &key);
	if (object)
		record_put(
			object, group_add(group, MUTATION_PUT, flags, &key, record_bytes(object)));
	else
		group_add(group, MUTATION_DELETE, 0, &key, 0);
	if (object && (change->flags & CHANGE_BODY) && commit->append)
		append_add(group, commit->append, object, flags);
	else if (object && (change->flags & CHANGE_BODY) && !commit->composition)
		body_add(group, object, flags);
	change->entry->pending = change->object;
	change->entry->has_pending = true;
}

static int item_plan(struct store *store, const struct commit *commit, struct commit_item *item,
	struct group *group)
{
	if (atomic_load(&commit->bucket->dead) ||
		(commit->bucket_of && atomic_load(&commit->bucket_of->dead)))
		return -ENOENT;
	if (item->kind == ITEM_EDIT)
		return plan_edit(item);
	if (item->kind == ITEM_VERSION_DELETE)
		return plan_version_delete(store, item);
	if (item->kind == ITEM_MOVE)
		return plan_move(item);
	if (commit->append)
		return plan_append(store, commit, item);
	return plan_write(store, commit, item, group);
}

void commit_item_plan(struct store *store, const struct commit *commit, struct commit_item *item,
	struct group *group)
{
	item->result = item_plan(store, commit, item, group);
	if (!item->result)
		item->result = quota_plan(commit, item);
	if (!item->result && commit->composition) {
		item->result = composition_plan(commit->composition, group);
		if (item->result)
			quota_undo(commit, item);
	}
	if (item->result) {
		commit_item_drop(store, item);
		return;
	}
	for (uint32_t i = 0; i < item->change_count; i++) {
		item->entry_taken |= item->changes[i].entry == item->entry;
		change_apply(group, &item->changes[i], commit);
		if (item->changes[i].old == OLD_MOVED)
			moved_add(group, item,
				item->changes[i].flags & CHANGE_FLUSHED ? MUTATION_BODY_FLUSHED
									: 0);
	}
	item->planned = item->change_count > 0;
	outbox_rows_add(store, item, group);
	if (commit->bucket->info.versioning != STORE_VERSIONING_NEVER)
		atomic_fetch_add(&item->entry->changes, 1);
}
