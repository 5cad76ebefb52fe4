/* store/backup/session.c: sessions that read a running store for a backup. A session has two
 * iterators over one state of the index and holds the space of the bodies that this state names.
 * It holds that for a bounded time: when its time is over, its client silent, or space scarce,
 * the session ends, and the client begins another, which needs only what the first did not copy. */
#include "store/backup/session.h"
#include "codec/crc.h"
#include "store/backup.h"
#include "store/commit/body.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_NS (250 * NS_PER_MS)
/* A session ends when the space that it holds back is more than this part of what is free. */
#define HELD_PART	4u
#define HELD_RUNS_MAX	(4u << 20) /* 64 MiB of memory */
#define CURSOR_AFTER	UINT32_MAX /* behind the record and its rows */
#define FEATURES_UNREAD (~INDEX_FEATURES)
#define SESSION_ID_MAX	((UINT64_C(1) << 52) - 1) /* JSON has numbers up to 2^53 */

DEFINE_COUNTER(bytes_read, "nebulaio_store_backup_bytes_total", NULL,
	"Bytes of bodies that backups read.");
DEFINE_COUNTER(sessions_cut, "nebulaio_store_backup_sessions_cut_total", NULL,
	"Sessions of backups that ended because their time was over or space was scarce.");

enum { WALK_ROWS, WALK_LOOK, WALKS };

struct session {
	_Atomic uint64_t id; /* 0: it is not open */
	atomic_bool taken;   /* open, or being opened or ended */
	uint64_t until_ns, used_ns;
	pthread_mutex_t lock; /* of the walks */
	struct index_walk *walks[WALKS];
};

struct backups {
	struct session sessions[STORE_BACKUPS_MAX];
	_Atomic uint64_t next_id;
	struct fiber *keeper;
};

static struct backups *backups_of(struct store *store)
{
	uint64_t id;

	if (store->backups)
		return store->backups;
	store->backups = (struct backups *)calloc(1, sizeof(struct backups));
	/* No session has the number of one of the process before: its client would go on with rows
	 * of another moment. */
	if (store->backups) {
		random_fill(&id, sizeof(id));
		atomic_store(&store->backups->next_id, id & SESSION_ID_MAX);
	}
	for (uint32_t i = 0; store->backups && i < STORE_BACKUPS_MAX; i++)
		pthread_mutex_init(&store->backups->sessions[i].lock, NULL);
	return store->backups;
}

static struct session *session_find(struct store *store, uint64_t id)
{
	for (uint32_t i = 0; store->backups && id && i < STORE_BACKUPS_MAX; i++)
		if (store->backups->sessions[i].id == id)
			return &store->backups->sessions[i];
	return NULL;
}

static uint32_t sessions_open(const struct store *store)
{
	uint32_t count = 0;

	for (uint32_t i = 0; store->backups && i < STORE_BACKUPS_MAX; i++)
		count += store->backups->sessions[i].id != 0;
	return count;
}

/* ---- Beginning and ending. ---- */

static void walks_close(struct session *session)
{
	for (uint32_t i = 0; i < WALKS; i++)
		if (session->walks[i])
			index_walk_close(session->walks[i]);
	memset(session->walks, 0, sizeof(session->walks));
}

struct end {
	struct store *store;
	struct session *session;
};

/* Letting go frees up to HELD_RUNS_MAX runs. */
static void end_run(void *arg)
{
	struct end *end = (struct end *)arg;

	pthread_mutex_lock(&end->session->lock);
	walks_close(end->session);
	pthread_mutex_unlock(&end->session->lock);
	space_let_go(end->store->space);
}

/* Nobody finds it any more; a call that is reading sees that its walks are gone. False: another
 * event loop has ended it. */
static bool session_end(struct store *store, struct session *session, uint64_t id)
{
	struct end end = {store, session};

	if (!atomic_compare_exchange_strong(&session->id, &id, 0))
		return false;
	fiber_offload_long(end_run, &end);
	atomic_fetch_sub(&store->backups_open, 1);
	atomic_store(&session->taken, false);
	return true;
}

struct begin {
	struct store *store;
	struct session *session;
	struct store_backup_head *head;
	int ret;
};

static void begin_run(void *arg)
{
	struct begin *begin = (struct begin *)arg;
	struct store *store = begin->store;
	const struct index_range ranges[WALKS] = {
		{SLICE_NONE, SLICE_NONE}, {SLICE_NONE, SLICE_NONE}};
	struct session *session = begin->session;
	struct state_record state;
	struct slice key, value;
	struct key at;

	pthread_mutex_lock(&session->lock);
	begin->ret = index_walks_open(store->index, ranges, WALKS, session->walks);
	key_state(&at);
	if (!begin->ret) {
		index_walk_seek(session->walks[WALK_LOOK], slice_of(at.bytes, at.len));
		if (!index_walk_get(session->walks[WALK_LOOK], &key, &value) ||
			!slice_eq(key, slice_of(at.bytes, at.len)) || value.len != sizeof(state))
			begin->ret = -EIO;
		else
			memcpy(&state, value.data, sizeof(state));
	}
	if (!begin->ret && (state.features & FEATURES_UNREAD))
		begin->ret = -ENOTSUP;
	if (begin->ret)
		walks_close(session);
	pthread_mutex_unlock(&session->lock);
	if (begin->ret)
		return;
	memcpy(begin->head->uuid, state.uuid, sizeof(state.uuid));
	begin->head->seq = state.applied_seq;
	/* Bodies that are being written have numbers that no group has yet. */
	begin->head->data_id_next = MAX(state.data_id_next, atomic_load(&store->data_id_next));
	begin->head->bucket_id_next =
		MAX(state.bucket_id_next, atomic_load(&store->bucket_id_next));
}

int store_backup_begin(
	struct store *store, uint64_t pin_ns, uint64_t *ret_id, struct store_backup_head *ret_head)
{
	struct begin begin = {.store = store, .head = ret_head};
	struct backups *backups;
	struct store_usage usage;

	if (!store->head.engine->local)
		return -ENOTSUP;
	if (atomic_load(&store->quiescing))
		return -ESHUTDOWN;
	backups = backups_of(store);
	if (!backups)
		return -ENOMEM;
	for (uint32_t i = 0; i < STORE_BACKUPS_MAX && !begin.session; i++)
		if (!atomic_exchange(&backups->sessions[i].taken, true))
			begin.session = &backups->sessions[i];
	if (!begin.session)
		return -EBUSY;
	begin.session->used_ns = clock_now_ns();
	begin.session->until_ns = begin.session->used_ns + pin_ns;
	local_usage(store, &usage);
	ret_head->objects = usage.objects;
	ret_head->used_bytes = usage.used_bytes;
	/* Before the rows: so no body that they name loses its space. */
	space_hold(store->space);
	atomic_fetch_add(&store->backups_open, 1);
	begin.ret = index_apply_wait_or_full(store, atomic_load(&store->committer->published_seq));
	if (!begin.ret)
		fiber_offload_long(begin_run, &begin);
	if (begin.ret) {
		space_let_go_long(store->space);
		atomic_fetch_sub(&store->backups_open, 1);
		atomic_store(&begin.session->taken, false);
		return begin.ret;
	}
	*ret_id = atomic_fetch_add(&backups->next_id, 1) + 1;
	atomic_store(&begin.session->id, *ret_id);
	return 0;
}

int store_backup_end(struct store *store, uint64_t id)
{
	struct session *session = session_find(store, id);

	return session && session_end(store, session, id) ? 0 : -ESTALE;
}

void backups_close(struct store *store)
{
	for (uint32_t i = 0; store->backups && i < STORE_BACKUPS_MAX; i++) {
		struct session *session = &store->backups->sessions[i];

		walks_close(session);
		if (session->id)
			space_let_go(store->space);
		pthread_mutex_destroy(&session->lock);
	}
	free(store->backups);
	store->backups = NULL;
}

/* ---- The keeper. ---- */

/* How far the volumes may grow. Of volumes on other hosts only the operator's limit is known. */
static uint64_t growth_max(const struct store *store)
{
	uint64_t most = store->opts.volume_bytes_max, bytes = disk_bytes(store->volume.disk);
	uint64_t growth = disk_room(store->volume.disk, store->opts.reserve_bytes);

	if (most)
		return MIN(growth, most - MIN(most, bytes));
	return growth == UINT64_MAX ? 0 : growth;
}

/* The space that puts may still take: what is free, and what volumes that are files may grow. */
static uint64_t room(struct store *store)
{
	uint64_t growth = growth_max(store);
	struct store_usage usage;

	local_usage(store, &usage);
	for (uint32_t i = 0; i < disk_array_members(store->volume.disk); i++) {
		struct disk *member = disk_array_member(store->volume.disk, i);

		if (disk_array_mask(store->volume.disk) >> i & 1 && member &&
			!disk_can_grow(member))
			return usage.free_bytes;
	}
	if (!disk_can_grow(store->volume.disk))
		return usage.free_bytes;
	return usage.free_bytes + MIN(growth, UINT64_MAX - usage.free_bytes);
}

static const char *why_ends(struct store *store, const struct session *session, bool unwanted)
{
	uint64_t now_ns = clock_now_ns(), held;
	uint32_t runs;

	if (unwanted)
		return "the volume is full, and deleted objects have left room";
	if (now_ns >= session->until_ns)
		return "its time is over";
	if (now_ns - session->used_ns >= STORE_BACKUP_IDLE_NS)
		return "its client has been silent for a minute";
	held = space_held_blocks(store->space, &runs) * BLOCK_BYTES *
	       MAX(disk_array_data(store->volume.disk), 1u);
	if (held > room(store) / HELD_PART || runs > HELD_RUNS_MAX)
		return "space of deleted objects is scarce";
	return NULL;
}

void backups_wake(struct store *store)
{
	if (store->backups && store->backups->keeper)
		fiber_wake(store->backups->keeper);
}

void store_backup_run(struct store *store)
{
	struct backups *backups = backups_of(store);

	if (!backups)
		return;
	backups->keeper = fiber_self();
	while (!atomic_load(&store->quiescing)) {
		bool unwanted;

		(void)fiber_park_until(
			clock_now_ns() + (sessions_open(store) ? KEEP_NS : NS_PER_S));
		unwanted = atomic_exchange(&store->backups_unwanted, false);
		for (uint32_t i = 0; i < STORE_BACKUPS_MAX; i++) {
			struct session *session = &backups->sessions[i];
			uint64_t id = atomic_load(&session->id);
			const char *why = id ? why_ends(store, session, unwanted) : NULL;

			if (!why || !session_end(store, session, id))
				continue;
			log_warn("store", "a session of a backup is ended: %s", why);
			counter_add(&sessions_cut, 1);
		}
	}
	backups->keeper = NULL;
}

/* ---- Rows. ---- */

struct page {
	struct store *store;
	struct session *session;
	uint64_t id;
	struct slice cursor;
	struct buf *out;
	struct store_backup_page head;
	size_t start; /* of the page in out */
	struct key next;
	uint32_t next_inner;
	int ret;
};

/* The row of exactly this key. */
static bool look(struct session *session, const struct key *at, struct slice *ret_value)
{
	struct index_walk *walk = session->walks[WALK_LOOK];
	struct slice key;

	index_walk_seek(walk, slice_of(at->bytes, at->len));
	return index_walk_get(walk, &key, ret_value) && slice_eq(key, slice_of(at->bytes, at->len));
}

static void row_put(
	struct page *page, struct store_backup_row *row, struct slice key, struct slice value)
{
	row->key_len = (uint16_t)key.len;
	row->value_len = (uint32_t)value.len;
	buf_put(page->out, row, sizeof(*row));
	buf_put_slice(page->out, key);
	buf_put_slice(page->out, value);
	page->head.rows++;
}

static void row_body_set(struct store_backup_row *row, uint64_t data_id, uint32_t segment_idx,
	const struct segment *segment)
{
	row->flags |= STORE_BACKUP_HAS_BODY;
	row->data_id = data_id;
	row->segment = segment_idx;
	row->sum = crc32c_update(0, (const uint8_t *)segment->checks,
		segment->check_count * sizeof(segment->checks[0]));
}

static bool page_full(const struct page *page)
{
	return page->out->len - page->start >= STORE_BACKUP_PAGE_BYTES;
}

/* The rows that belong to the record, from `inner` on: of its body in the index, or of its
 * segments. Returns the first that is not in the page; CURSOR_AFTER: all are. */
static uint32_t inner_put(struct page *page, const struct object *object, uint32_t inner)
{
	uint32_t count = object->body == BODY_INLINE	  ? 1
			 : object->body == BODY_SEGMENTED ? object->segment_count
							  : 0;

	for (; inner < count; inner++) {
		struct store_backup_row row = {.flags = STORE_BACKUP_INNER};
		const struct object_part *part;
		struct segment *segment = NULL;
		struct slice value;
		uint64_t from;
		struct key key;

		if (page_full(page))
			return inner;
		if (object->body == BODY_INLINE) {
			key_inline(&key, object->data_id);
		} else {
			part = object_part_of(object, inner);
			key_segment(&key, part->data_id, inner - part->segment_first);
			object_segment_range(object, inner, &from, &row.bytes);
		}
		if (!look(page->session, &key, &value) ||
			(object->body == BODY_SEGMENTED &&
				(segment_record_parse(value, &segment) ||
					!segment_covers(segment, row.bytes)))) {
			segment_close(segment);
			page->ret = -EUCLEAN;
			return inner;
		}
		if (segment)
			row_body_set(&row, object_part_of(object, inner)->data_id,
				inner - object_part_of(object, inner)->segment_first, segment);
		segment_close(segment);
		row_put(page, &row, slice_of(key.bytes, key.len), value);
	}
	return CURSOR_AFTER;
}

/* A record, from its row `inner` on (0: its own). */
static uint32_t record_rows_put(
	struct page *page, struct slice key, struct slice value, uint32_t inner)
{
	struct store_backup_row row = {.flags = 0};
	struct object *object;

	if (!key_is_object(key)) {
		row_put(page, &row, key, value);
		return CURSOR_AFTER;
	}
	page->ret = record_parse(value, &object);
	if (page->ret)
		return inner;
	if (!inner && object->body == BODY_DIRECT) {
		row_body_set(&row, object->data_id, 0, atomic_load(&object->segments[0]));
		row.bytes = object->meta.bytes;
	}
	if (!inner)
		row_put(page, &row, key, value);
	inner = inner_put(page, object, inner ? inner - 1 : 0);
	object_put(page->store, object);
	return inner == CURSOR_AFTER ? CURSOR_AFTER : inner + 1;
}

/* Kinds of rows that pages have, in their order; other rows belong to one of these, to the running
 * store alone (its state, its outbox), or to nobody. */
static bool kind_skip(struct index_walk *walk, struct slice key)
{
	static const char KINDS[] = "BNOQV";
	const char *kind = KINDS;
	struct slice next;

	while (*kind && (uint8_t)*kind < (uint8_t)key.data[0])
		kind++;
	if (*kind == key.data[0])
		return false;
	next = *kind ? slice_of(kind, 1) : SLICE("W");
	index_walk_seek(walk, next);
	return true;
}

static int cursor_parse(struct page *page)
{
	if (!page->cursor.len)
		return 0;
	if (page->cursor.len < sizeof(page->next_inner) + 1 ||
		page->cursor.len - sizeof(page->next_inner) > KEY_BYTES_MAX)
		return -EINVAL;
	memcpy(&page->next_inner, page->cursor.data, sizeof(page->next_inner));
	page->next.len = (uint32_t)(page->cursor.len - sizeof(page->next_inner));
	memcpy(page->next.bytes, page->cursor.data + sizeof(page->next_inner), page->next.len);
	return 0;
}

static void rows_fill(struct page *page)
{
	struct index_walk *walk = page->session->walks[WALK_ROWS];
	struct slice key, value, from = slice_of(page->next.bytes, page->next.len);

	index_walk_seek(walk, from);
	if (page->cursor.len && page->next_inner == CURSOR_AFTER &&
		index_walk_get(walk, &key, &value) && slice_eq(key, from))
		index_walk_next(walk);
	while (!page->ret && !page_full(page) && index_walk_get(walk, &key, &value)) {
		uint32_t inner = 0;

		if (kind_skip(walk, key))
			continue;
		if ((uint8_t)key.data[0] > 'V')
			break;
		if (page->cursor.len && page->next_inner != CURSOR_AFTER && slice_eq(key, from))
			inner = page->next_inner;
		page->next.len = (uint32_t)key.len;
		memcpy(page->next.bytes, key.data, key.len);
		page->next_inner = record_rows_put(page, key, value, inner);
		page->head.cursor_len = (uint32_t)(sizeof(page->next_inner) + page->next.len);
		from = SLICE_NONE; /* a record is continued once */
		if (page->next_inner != CURSOR_AFTER)
			return;
		index_walk_next(walk);
	}
	if (!page->ret)
		page->ret = index_walk_error(walk);
	if (!page_full(page))
		page->head.cursor_len = 0;
}

/* The head and the cursor go before the rows, when these are known. */
static void page_finish(struct page *page, struct buf *rows)
{
	memcpy(page->head.magic, STORE_BACKUP_PAGE_MAGIC, sizeof(page->head.magic));
	buf_put(page->out, &page->head, sizeof(page->head));
	if (page->head.cursor_len) {
		buf_put(page->out, &page->next_inner, sizeof(page->next_inner));
		buf_put(page->out, page->next.bytes, page->next.len);
	}
	buf_put_slice(page->out, buf_slice(rows));
	if (page->out->failed)
		page->ret = -ENOMEM;
}

static void page_run(void *arg)
{
	struct page *page = (struct page *)arg;
	struct buf rows, *out = page->out;

	buf_init(&rows, 2 * STORE_BACKUP_PAGE_BYTES + 4 * MIB);
	page->out = &rows;
	pthread_mutex_lock(&page->session->lock);
	page->ret = page->session->walks[WALK_ROWS] ? cursor_parse(page) : -ESTALE;
	if (!page->ret)
		rows_fill(page);
	pthread_mutex_unlock(&page->session->lock);
	page->out = out;
	if (rows.failed)
		page->ret = -ENOMEM;
	if (page->ret == -EUCLEAN)
		log_error("store", "a backup met a damaged row of the index: run fsck");
	if (!page->ret)
		page_finish(page, &rows);
	buf_free(&rows);
}

int store_backup_rows(struct store *store, uint64_t id, struct slice cursor, struct buf *out)
{
	struct page page = {.store = store,
		.session = session_find(store, id),
		.cursor = cursor,
		.out = out,
		.start = 0};

	if (!page.session)
		return -ESTALE;
	page.session->used_ns = clock_now_ns();
	fiber_offload_long(page_run, &page);
	return session_find(store, id) == page.session ? page.ret : -ESTALE;
}

int store_backup_row_next(struct slice *rest, struct store_backup_row *ret_row,
	struct slice *ret_key, struct slice *ret_value)
{
	struct store_backup_row row;

	if (!rest->len)
		return 0;
	if (rest->len < sizeof(row))
		return -EUCLEAN;
	memcpy(&row, rest->data, sizeof(row));
	if (!row.key_len || row.key_len > STORE_BACKUP_KEY_MAX ||
		(row.flags & ~(STORE_BACKUP_HAS_BODY | STORE_BACKUP_INNER)) ||
		row.bytes > STORE_BACKUP_BODY_MAX ||
		(row.bytes == 0) != !(row.flags & STORE_BACKUP_HAS_BODY) ||
		rest->len - sizeof(row) < (size_t)row.key_len + row.value_len)
		return -EUCLEAN;
	*ret_row = row;
	*ret_key = slice_of(rest->data + sizeof(row), row.key_len);
	*ret_value = slice_of(rest->data + sizeof(row) + row.key_len, row.value_len);
	*rest = slice_from(*rest, sizeof(row) + row.key_len + row.value_len);
	return 1;
}

/* ---- Bodies. ---- */

struct reading {
	struct store *store;
	struct session *session;
	const struct store_backup_part *parts;
	uint32_t count;
	struct buf *out;
	int ret;
};

/* The segment of the row: a record's own, or a row of its own. */
static int segment_look(struct reading *reading, struct slice name, struct segment **ret_segment)
{
	struct slice value;
	struct object *object;
	struct key key;
	int ret;

	if (!name.len || name.len > KEY_BYTES_MAX)
		return -EINVAL;
	key.len = (uint32_t)name.len;
	memcpy(key.bytes, name.data, name.len);
	if (!look(reading->session, &key, &value))
		return -ENOENT;
	if (name.data[0] == 'S')
		return segment_record_parse(value, ret_segment);
	if (!key_is_object(name))
		return -EINVAL;
	ret = record_parse(value, &object);
	if (ret)
		return ret;
	if (object->body == BODY_DIRECT)
		*ret_segment = segment_get(atomic_load(&object->segments[0]));
	else
		ret = -EINVAL;
	object_put(reading->store, object);
	return ret;
}

static int pieces_read(struct reading *reading, const struct store_backup_part *part,
	const struct segment *segment, uint8_t *data)
{
	uint64_t to = MIN(part->bytes, part->offset + STORE_BACKUP_READ_BYTES);

	for (uint64_t at = part->offset; at < to; at += STORE_CHECK_BYTES) {
		const struct stripe_piece piece = {.at = at,
			.data = data,
			.bytes = (uint32_t)MIN(to - at, (uint64_t)STORE_CHECK_BYTES),
			.crc32c = segment->checks[at / STORE_CHECK_BYTES]};
		/* Nothing is written: a session that ends meanwhile no longer holds the space. */
		int ret = stripe_piece_read(&reading->store->volume, segment, &piece, false);

		if (ret)
			return ret == -EUCLEAN ? -EIO : ret;
		buf_put(reading->out, data, piece.bytes);
		counter_add(&bytes_read, piece.bytes);
	}
	return reading->out->failed ? -ENOMEM : 0;
}

static int part_read(struct reading *reading, const struct store_backup_part *part, uint8_t *data)
{
	struct segment *segment = NULL;
	int ret;

	pthread_mutex_lock(&reading->session->lock);
	ret = reading->session->walks[WALK_LOOK] ? segment_look(reading, part->key, &segment)
						 : -ESTALE;
	pthread_mutex_unlock(&reading->session->lock);
	if (!ret && (!segment_covers(segment, part->bytes) || part->offset >= part->bytes ||
			    part->offset % STORE_CHECK_BYTES))
		ret = -EINVAL;
	if (!ret)
		ret = pieces_read(reading, part, segment, data);
	segment_close(segment);
	return ret;
}

static void read_run(void *arg)
{
	struct reading *reading = (struct reading *)arg;
	uint64_t bytes = 0;
	void *piece;

	for (uint32_t i = 0; i < reading->count && reading->count > 1; i++) {
		const struct store_backup_part *part = &reading->parts[i];

		bytes += part->bytes - MIN(part->offset, part->bytes);
		if (bytes > STORE_BACKUP_READ_BYTES || part->bytes > STORE_BACKUP_BODY_MAX)
			reading->ret = -EINVAL;
	}
	if (reading->ret)
		return;
	if (posix_memalign(&piece, BLOCK_BYTES, STORE_CHECK_BYTES)) {
		reading->ret = -ENOMEM;
		return;
	}
	for (uint32_t i = 0; i < reading->count && !reading->ret; i++)
		reading->ret = part_read(reading, &reading->parts[i], (uint8_t *)piece);
	free(piece);
}

int store_backup_read(struct store *store, uint64_t id, const struct store_backup_part *parts,
	uint32_t count, struct buf *out)
{
	struct reading reading = {.store = store,
		.session = session_find(store, id),
		.parts = parts,
		.count = count,
		.out = out};

	if (!reading.session)
		return -ESTALE;
	if (!count || count > STORE_BACKUP_PARTS_MAX)
		return -EINVAL;
	reading.session->used_ns = clock_now_ns();
	fiber_offload_long(read_run, &reading);
	/* The space was no longer held: what was read may be another body. */
	if (session_find(store, id) != reading.session)
		return -ESTALE;
	if (reading.ret == -EIO)
		log_error("store", "a backup met a damaged body: a scrub or fsck --deep names it");
	return reading.ret;
}
