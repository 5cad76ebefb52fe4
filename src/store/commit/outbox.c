/* store/commit/outbox.c: the outbox: messages about commits to receivers outside the store. They
 * are rows of the index: the group of their commit puts them, the next start reads them, and they
 * are deleted once they were delivered. */
#include "store/commit/commit.h"
#include "store/index/index.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/state/state.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define OUTBOX_ROW_VERSION 1u
#define OUTBOX_KEY_BYTES   9u
#define END_MAX		   1024u /* limit of one commit */
#define PAGE_BYTES	   (256 * KIB)

struct outbox_row_head {
	uint8_t version;
	uint8_t version_id_len;
	uint16_t reserved;
};
_Static_assert(sizeof(struct outbox_row_head) == 4, "as docs/spec/disk.md has it");

DEFINE_COUNTER(outbox_rows_total, "nebulaio_store_outbox_rows_total", NULL,
	"Outbox rows that commits wrote: events to be delivered.");

/* ---- In a group. ---- */

size_t outbox_row_bytes(const struct commit_item *item)
{
	const struct store_outbox_row *row;
	size_t bytes = 0;

	for (row = item->outbox_row; row; row = row->next) {
		CHECK(row->text.len <= STORE_OUTBOX_ROW_BYTES_MAX);
		CHECK(row->marker_text.len <= STORE_OUTBOX_ROW_BYTES_MAX);
		bytes += MUTATION_BYTES(OUTBOX_KEY_BYTES,
			sizeof(struct outbox_row_head) + sizeof(item->ret_version_id) +
				MAX(row->text.len, row->marker_text.len));
	}
	return bytes;
}

static void outbox_row_add(struct store *store, const struct commit_item *item,
	struct store_outbox_row *outbox_row, struct group *group)
{
	struct slice text = item->ret_marker && item->kind == ITEM_WRITE ? outbox_row->marker_text
									 : outbox_row->text;
	size_t id_len = strlen(item->ret_version_id);
	const struct outbox_row_head head = {
		.version = OUTBOX_ROW_VERSION, .version_id_len = (uint8_t)id_len};
	struct key key;
	uint8_t *out;

	outbox_row->number = group_number_next(store, group);
	if (!text.data)
		return;
	key_outbox(&key, outbox_row->number);
	out = group_add(group, MUTATION_PUT, 0, &key, sizeof(head) + id_len + text.len);
	memcpy(out, &head, sizeof(head));
	memcpy(out + sizeof(head), item->ret_version_id, id_len);
	memcpy(out + sizeof(head) + id_len, text.data, text.len);
	counter_add(&outbox_rows_total, 1);
}

void outbox_rows_add(struct store *store, const struct commit_item *item, struct group *group)
{
	for (struct store_outbox_row *row = item->outbox_row; row; row = row->next)
		outbox_row_add(store, item, row, group);
}

size_t outbox_end_bytes(const struct commit *commit)
{
	return commit->number_count * MUTATION_BYTES(OUTBOX_KEY_BYTES, 0);
}

void outbox_end_add(struct group *group, const struct commit *commit)
{
	struct key key;

	for (uint32_t i = 0; i < commit->number_count; i++) {
		key_outbox(&key, commit->numbers[i]);
		group_add(group, MUTATION_DELETE, 0, &key, 0);
	}
}

int local_outbox_end(struct store *store, const uint64_t *numbers, uint32_t count)
{
	int ret = 0;

	for (uint32_t at = 0; at < count && !ret; at += END_MAX) {
		struct commit commit = {.kind = COMMIT_OUTBOX_END,
			.numbers = numbers + at,
			.number_count = MIN(count - at, END_MAX)};

		commit_run(store, &commit);
		ret = commit.result;
	}
	return ret;
}

/* ---- Visiting. ---- */

int outbox_row_parse(struct slice key, struct slice value, uint64_t *ret_number,
	struct slice *ret_version_id, struct slice *ret_text)
{
	struct outbox_row_head head;
	uint64_t number;

	if (key.len != OUTBOX_KEY_BYTES || value.len < sizeof(head))
		return -EUCLEAN;
	memcpy(&number, key.data + 1, sizeof(number));
	memcpy(&head, value.data, sizeof(head));
	value = slice_from(value, sizeof(head));
	if (head.version != OUTBOX_ROW_VERSION || head.reserved ||
		value.len < head.version_id_len ||
		value.len - head.version_id_len > STORE_OUTBOX_ROW_BYTES_MAX)
		return -EUCLEAN;
	*ret_number = be64toh(number);
	*ret_version_id = slice_to(value, head.version_id_len);
	*ret_text = slice_from(value, head.version_id_len);
	return 0;
}

/* Rows one after another: the lengths of key and value, key, value. */
struct page {
	struct store *store;
	uint64_t after, end; /* the rows between these numbers */
	uint64_t last;	     /* number of the rows */
	struct buf rows;
	bool more;
	int ret;
};
struct row {
	uint32_t key_len, value_len;
};

/* On a helper thread. */
static void page_run(void *arg)
{
	struct page *page = (struct page *)arg;
	struct slice row_key, row_value;
	struct index_walk *walk;
	struct key from, to;

	key_outbox(&from, page->after + 1);
	key_outbox(&to, page->end);
	page->more = false;
	page->last = page->after;
	page->ret = index_walk_open(page->store->index, slice_of(from.bytes, from.len),
		slice_of(to.bytes, to.len), &walk);
	if (page->ret)
		return;
	for (; index_walk_get(walk, &row_key, &row_value); index_walk_next(walk)) {
		const struct row row = {(uint32_t)row_key.len, (uint32_t)row_value.len};

		page->more = page->rows.len > PAGE_BYTES;
		if (page->more)
			break;
		buf_put(&page->rows, &row, sizeof(row));
		buf_put_slice(&page->rows, row_key);
		buf_put_slice(&page->rows, row_value);
		if (row_key.len == OUTBOX_KEY_BYTES) {
			memcpy(&page->last, row_key.data + 1, sizeof(page->last));
			page->last = be64toh(page->last);
		}
	}
	page->ret = page->rows.failed ? -ENOMEM : index_walk_error(walk);
	index_walk_close(walk);
}

/* False: stop. */
static bool page_visit(const struct page *page, store_outbox_visit_fn *visit, void *arg)
{
	struct slice rest = buf_slice(&page->rows);
	bool on = true;

	while (rest.len && on) {
		struct slice key, value, version_id, text;
		struct row row;
		uint64_t number;

		memcpy(&row, rest.data, sizeof(row));
		rest = slice_from(rest, sizeof(row));
		key = slice_to(rest, row.key_len);
		value = slice_to(slice_from(rest, row.key_len), row.value_len);
		rest = slice_from(rest, (size_t)row.key_len + row.value_len);
		if (outbox_row_parse(key, value, &number, &version_id, &text)) {
			log_error("store", "a damaged outbox row is left out: run fsck");
			continue;
		}
		on = visit(number, version_id, text, arg);
	}
	return on;
}

int local_outbox_visit(
	struct store *store, uint64_t after, bool all, store_outbox_visit_fn *visit, void *arg)
{
	struct page page = {
		.store = store, .after = after, .end = all ? UINT64_MAX : store->outbox_first};
	bool on = true;

	if (after >= page.end)
		return 0;
	do {
		buf_init(&page.rows, PAGE_BYTES + 2 * STORE_OUTBOX_ROW_BYTES_MAX);
		fiber_offload_long(page_run, &page);
		if (!page.ret)
			on = page_visit(&page, visit, arg);
		buf_free(&page.rows);
		on &= page.last > page.after;
		page.after = page.last;
	} while (!page.ret && on && page.more);
	return page.ret;
}
