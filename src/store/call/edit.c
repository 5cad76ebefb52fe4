/* store/call/edit.c: changes an object's metadata without its bytes: the record is replaced, the
 * body stays in place. The old object stays in memory for its readers; it holds a reference to the
 * new object, which owns the body now. */
#include "store/call/call.h"
#include "store/commit/commit.h"
#include "store/object/object.h"
#include "store/state/state.h"
#include "store/table/table.h"

#include <errno.h>

DEFINE_COUNTER(edits_total, "nebulaio_store_edits_total", NULL,
	"Objects whose stored headers were changed in place.");

/* Tries again when another entry holds the version by the time the commit is planned. */
static int edit_run(struct store *store, const struct store_name *name, struct commit_item *item)
{
	struct commit commit = {.items = item, .item_count = 1};
	uint32_t turn = 0;
	int ret;

	if (!store_key_valid(name->key))
		return -EINVAL;
	commit.bucket = buckets_find_of(store->buckets, name->bucket, name->bucket_id);
	if (!commit.bucket)
		return -ENOENT;
	do {
		ret = version_pin(store, commit.bucket, name->key, name->version_id, &item->entry);
		if (ret)
			break;
		commit_run(store, &commit);
		ret = item->result;
		if (!item->entry_taken)
			record_entry_unpin(store->records, item->entry);
		if (ret) {
			object_put(store, item->object);
			item->object = NULL;
		}
	} while (ret == -ERESTART && ++turn < LIMIT_COMMIT_TURNS_MAX);
	if (ret == -ERESTART)
		ret = -EAGAIN;
	bucket_put(commit.bucket);
	if (!ret)
		counter_add(&edits_total, 1);
	return ret;
}

int local_edit(struct store *store, const struct store_name *name, store_edit_fn *edit, void *arg,
	struct store_outbox_row *outbox_row)
{
	struct commit_item item = {.kind = ITEM_EDIT,
		.edit = edit,
		.arg = arg,
		.version_id = name->version_id,
		.outbox_row = outbox_row};

	return edit_run(store, name, &item);
}

static int flags_edit(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	const struct store_condition *condition = (const struct store_condition *)arg;

	*ret_headers = slice_of(current->headers, current->headers_len);
	return condition->check ? condition->check(current, condition->arg) : 0;
}

int local_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row)
{
	struct commit_item item = {.kind = ITEM_EDIT,
		.edit = flags_edit,
		.arg = &condition,
		.flags = flags,
		.version_id = name->version_id,
		.outbox_row = outbox_row};

	return edit_run(store, name, &item);
}
