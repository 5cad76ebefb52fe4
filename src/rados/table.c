/* rados/table.c: an object whose omap has entries of text. Each change compares and writes in one
 * operation, so of two hosts that change one entry at the same time one is refused. */
#include "rados/table.h"
#include "rados/rv_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define OBJECT	   "map"
#define LEASE_LOCK "lease"
/* Entries that one operation returns. */
#define PAGE_MAX 512u
/* The cluster forgets a watcher of which it has heard nothing for so long. */
#define WATCH_S 10u
/* A message beyond these is not acknowledged: its teller waits until its time is over. */
#define PENDING_MAX 64u
#define BLOB_PIECE  (256 * KIB)

struct notice {
	uint64_t id, handle;
};

struct rv_table {
	struct rv_table_opts opts;
	char pool[RV_NAME_MAX + 1];
	rados_t cluster;
	rados_ioctx_t io;
	rados_ioctx_t volumes; /* for other namespaces; under the lock */
	pthread_mutex_t lock;
	bool volumes_open;
	bool watching;
	_Atomic bool watch_ended; /* by the cluster */
	uint64_t watch;
	char cookie[33];
	struct notice pending[PENDING_MAX]; /* under the lock */
	uint32_t pending_count;
};

/* ---- Watching. ---- */

static void watch_told(
	void *arg, uint64_t notify_id, uint64_t handle, uint64_t notifier, void *data, size_t len)
{
	struct rv_table *table = arg;

	(void)notifier;
	if (table->opts.acks) {
		pthread_mutex_lock(&table->lock);
		if (table->pending_count < PENDING_MAX)
			table->pending[table->pending_count++] = (struct notice){notify_id, handle};
		pthread_mutex_unlock(&table->lock);
	}
	/* rados_notify2 frames nothing: the text is as it was sent. */
	table->opts.told(table->opts.told_arg, slice_of(data, len));
	if (!table->opts.acks)
		rados_notify_ack(table->io, OBJECT, notify_id, handle, NULL, 0);
}

static void watch_failed(void *arg, uint64_t handle, int error)
{
	struct rv_table *table = arg;

	(void)handle;
	(void)error;
	atomic_store(&table->watch_ended, true);
	table->opts.told(table->opts.told_arg, SLICE_NONE);
}

int rv_table_watch_check(struct rv_table *table)
{
	int ret = 0;

	if (!table->opts.told || (table->watching && !atomic_load(&table->watch_ended)))
		return 0;
	if (table->watching)
		rados_unwatch2(table->io, table->watch);
	atomic_store(&table->watch_ended, false);
	ret = rados_watch3(table->io, OBJECT, &table->watch, watch_told, watch_failed,
		table->opts.watch_s ? table->opts.watch_s : WATCH_S, table);
	table->watching = !ret;
	if (!ret)
		table->opts.told(table->opts.told_arg, SLICE_NONE);
	return ret;
}

uint32_t rv_table_pending(struct rv_table *table)
{
	uint32_t count;

	pthread_mutex_lock(&table->lock);
	count = table->pending_count;
	pthread_mutex_unlock(&table->lock);
	return count;
}

void rv_table_ack(struct rv_table *table, uint32_t count)
{
	struct notice notices[PENDING_MAX];

	CHECK(count <= PENDING_MAX);
	pthread_mutex_lock(&table->lock);
	CHECK(count <= table->pending_count);
	memcpy(notices, table->pending, count * sizeof(notices[0]));
	table->pending_count -= count;
	memmove(table->pending, &table->pending[count],
		table->pending_count * sizeof(table->pending[0]));
	pthread_mutex_unlock(&table->lock);
	for (uint32_t i = 0; i < count; i++)
		rados_notify_ack(table->io, OBJECT, notices[i].id, notices[i].handle, NULL, 0);
}

/* ---- Life. ---- */

static int object_make(struct rv_table *table)
{
	rados_write_op_t op = rados_create_write_op();
	int ret;

	rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	ret = rados_write_op_operate(op, table->io, OBJECT, NULL, 0);
	rados_release_write_op(op);
	return ret;
}

int rv_table_open(const struct rv_table_opts *opts, struct rv_table **ret_table)
{
	struct rv_table *table = calloc(1, sizeof(*table));
	const char *step = "it cannot be opened";
	uint8_t id[16];
	int ret;

	if (!table)
		return -ENOMEM;
	table->opts = *opts;
	pthread_mutex_init(&table->lock, NULL);
	random_fill(id, sizeof(id));
	for (uint32_t i = 0; i < sizeof(id); i++)
		snprintf(&table->cookie[2 * i], 3, "%02x", id[i]);
	ret = slice_copy_str(slice_str(opts->pool), table->pool, sizeof(table->pool));
	if (!ret)
		ret = rv_cluster(opts->rv, false, &table->cluster);
	if (ret) {
		pthread_mutex_destroy(&table->lock);
		free(table);
		return ret;
	}
	ret = rados_ioctx_create(table->cluster, table->pool, &table->io);
	if (!ret) {
		rados_ioctx_set_namespace(table->io, opts->name);
		step = "the map cannot be made in it (a replicated pool is needed, and a Ceph user "
		       "that may write there)";
		ret = object_make(table);
		if (!ret) {
			step = "the map in it cannot be watched";
			ret = rv_table_watch_check(table);
		}
		if (ret)
			rados_ioctx_destroy(table->io);
	}
	if (ret) {
		log_error("rados", "pool %s: %s: %s", table->pool, step,
			ret == -ENOENT ? "there is none of this name, or this user may not see it"
				       : strerror(-ret));
		pthread_mutex_destroy(&table->lock);
		free(table);
		return ret;
	}
	*ret_table = table;
	return 0;
}

void rv_table_close(struct rv_table *table)
{
	if (!table)
		return;
	if (table->watching) {
		rados_unwatch2(table->io, table->watch);
		rados_watch_flush(table->cluster);
	}
	if (table->volumes_open)
		rados_ioctx_destroy(table->volumes);
	rados_ioctx_destroy(table->io);
	pthread_mutex_destroy(&table->lock);
	free(table);
}

/* ---- Entries. ---- */

static bool entry_take(const char *key, size_t key_len, const char *value, size_t value_len,
	char ret_key[RV_TABLE_KEY_BYTES], char ret_value[RV_TABLE_VALUE_BYTES])
{
	return !slice_copy_str(slice_of(key, key_len), ret_key, RV_TABLE_KEY_BYTES) &&
	       !slice_copy_str(slice_of(value, value_len), ret_value, RV_TABLE_VALUE_BYTES);
}

struct page {
	const char *prefix;
	uint64_t entries_max;
};

/* Reads one page behind the key `after`, which becomes the last key of it. */
static int page_read(struct rv_table *table, struct page page, rv_table_visit_fn *visit, void *arg,
	char after[RV_TABLE_KEY_BYTES], bool *ret_more)
{
	char key_text[RV_TABLE_KEY_BYTES], value_text[RV_TABLE_VALUE_BYTES], *key, *value;
	rados_read_op_t op = rados_create_read_op();
	rados_omap_iter_t iter = NULL;
	size_t key_len, value_len;
	unsigned char more = 0;
	int ret, error = 0;

	rados_read_op_omap_get_vals2(
		op, after, page.prefix, page.entries_max, &iter, &more, &error);
	ret = rados_read_op_operate(op, table->io, OBJECT, 0);
	if (!ret)
		ret = error;
	while (!ret && !rados_omap_get_next2(iter, &key, &value, &key_len, &value_len) && key) {
		if (entry_take(key, key_len, value, value_len, key_text, value_text)) {
			visit(arg, key_text, value_text);
			memcpy(after, key_text, sizeof(key_text));
		}
	}
	if (iter)
		rados_omap_get_end(iter);
	rados_release_read_op(op);
	*ret_more = more;
	return ret;
}

int rv_table_list(struct rv_table *table, const char *prefix, rv_table_visit_fn *visit, void *arg)
{
	char after[RV_TABLE_KEY_BYTES] = "", before[RV_TABLE_KEY_BYTES];
	bool more = true;
	int ret = 0;

	while (more && !ret) {
		memcpy(before, after, sizeof(before));
		ret = page_read(table, (struct page){prefix, PAGE_MAX}, visit, arg, after, &more);
		/* A page of entries that are all too long would be read for ever. */
		if (strcmp(before, after) == 0)
			break;
	}
	return ret;
}

struct wanted {
	const char *key;
	char *value;
	bool found;
};

static void wanted_visit(void *arg, const char *key, const char *value)
{
	struct wanted *wanted = arg;

	if (strcmp(key, wanted->key) != 0)
		return;
	snprintf(wanted->value, RV_TABLE_VALUE_BYTES, "%s", value);
	wanted->found = true;
}

int rv_table_get(struct rv_table *table, const char *key, char ret_value[RV_TABLE_VALUE_BYTES])
{
	struct wanted wanted = {.key = key, .value = ret_value};
	char after[RV_TABLE_KEY_BYTES] = "";
	bool more;
	/* The key itself is the first of those that begin with it. */
	int ret = page_read(table, (struct page){key, 1}, wanted_visit, &wanted, after, &more);

	return ret ? ret : wanted.found ? 0 : -ENOENT;
}

int rv_table_change(struct rv_table *table, const struct rv_table_entry *expected,
	uint32_t expected_count, const struct rv_table_entry *changes, uint32_t change_count)
{
	rados_write_op_t op = rados_create_write_op();
	int results[RV_TABLE_CHANGES_MAX];
	int ret;

	CHECK(expected_count <= RV_TABLE_CHANGES_MAX && change_count <= RV_TABLE_CHANGES_MAX);
	for (uint32_t i = 0; i < expected_count; i++) {
		/* No entry has an empty value, and a missing one compares as empty. */
		const char *value = expected[i].value ? expected[i].value : "";

		rados_write_op_omap_cmp2(op, expected[i].key, LIBRADOS_CMPXATTR_OP_EQ, value,
			strlen(expected[i].key), strlen(value), &results[i]);
	}
	for (uint32_t i = 0; i < change_count; i++) {
		size_t key_len = strlen(changes[i].key);
		size_t value_len = changes[i].value ? strlen(changes[i].value) : 0;

		if (changes[i].value)
			rados_write_op_omap_set2(
				op, &changes[i].key, &changes[i].value, &key_len, &value_len, 1);
		else
			rados_write_op_omap_rm_keys2(op, &changes[i].key, &key_len, 1);
	}
	ret = rados_write_op_operate(op, table->io, OBJECT, NULL, 0);
	rados_release_write_op(op);
	return ret;
}

/* ---- Objects beside it. ---- */

int rv_table_blob_put(struct rv_table *table, const char *name, struct slice bytes)
{
	rados_write_op_t op = rados_create_write_op();
	int ret;

	rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
	rados_write_op_write(op, bytes.data, bytes.len, 0);
	ret = rados_write_op_operate(op, table->io, name, NULL, 0);
	rados_release_write_op(op);
	return ret;
}

int rv_table_blob_get(struct rv_table *table, const char *name, struct buf *out)
{
	char *piece = malloc(BLOB_PIECE);
	uint64_t offset = 0;
	int got = piece ? 1 : -ENOMEM;

	while (got > 0 && !out->failed) {
		got = rados_read(table->io, name, piece, BLOB_PIECE, offset);
		if (got > 0)
			buf_put(out, piece, (size_t)got);
		offset += got > 0 ? (uint64_t)got : 0;
	}
	free(piece);
	return got < 0 ? got : out->failed ? -EFBIG : 0;
}

int rv_table_blob_remove(struct rv_table *table, const char *name)
{
	rados_write_op_t op = rados_create_write_op();
	int ret;

	rados_write_op_remove(op);
	ret = rados_write_op_operate(op, table->io, name, NULL, 0);
	rados_release_write_op(op);
	return ret;
}

int rv_table_tell(struct rv_table *table, const char *text, uint32_t timeout_s)
{
	char *reply = NULL;
	size_t reply_len = 0;
	int ret = rados_notify2(table->io, OBJECT, text, (int)strlen(text),
		(uint64_t)timeout_s * 1000, &reply, &reply_len);

	if (reply)
		rados_buffer_free(reply);
	return ret;
}

/* ---- Leases. ---- */

int rv_table_lease(struct rv_table *table, const char *name, uint32_t seconds)
{
	struct timeval duration = {.tv_sec = (time_t)seconds};
	char object[RV_TABLE_KEY_BYTES];

	snprintf(object, sizeof(object), "lease.%s", name);
	return rados_lock_exclusive(table->io, object, LEASE_LOCK, table->cookie, "nebulaio",
		&duration, LIBRADOS_LOCK_FLAG_MAY_RENEW);
}

void rv_table_lease_end(struct rv_table *table, const char *name)
{
	char object[RV_TABLE_KEY_BYTES];

	snprintf(object, sizeof(object), "lease.%s", name);
	(void)rados_unlock(table->io, object, LEASE_LOCK, table->cookie);
}

int rv_table_leased(struct rv_table *table, const char *name)
{
	char tag[64], clients[128], cookies[128], addrs[256], object[RV_TABLE_KEY_BYTES];
	size_t tag_len = sizeof(tag), clients_len = sizeof(clients), cookies_len = sizeof(cookies),
	       addrs_len = sizeof(addrs);
	int exclusive;
	ssize_t count;

	snprintf(object, sizeof(object), "lease.%s", name);
	count = rados_list_lockers(table->io, object, LEASE_LOCK, &exclusive, tag, &tag_len,
		clients, &clients_len, cookies, &cookies_len, addrs, &addrs_len);
	if (count == -ENOENT)
		return 0;
	return count > 0 || count == -ERANGE ? 1 : (int)count;
}

/* ---- Volumes beside it. ---- */

int rv_table_volume_bytes(struct rv_table *table, const char *name, uint64_t *ret_bytes)
{
	char text[32];
	int len, ret = 0;

	pthread_mutex_lock(&table->lock);
	if (!table->volumes_open)
		ret = rados_ioctx_create(table->cluster, table->pool, &table->volumes);
	table->volumes_open = table->volumes_open || !ret;
	if (ret) {
		pthread_mutex_unlock(&table->lock);
		return ret;
	}
	rados_ioctx_set_namespace(table->volumes, name);
	len = rados_getxattr(table->volumes, RV_HEAD, "bytes", text, sizeof(text));
	pthread_mutex_unlock(&table->lock);
	if (len < 0)
		return len == -ENODATA ? -ENOENT : len;
	return slice_to_u64(slice_of(text, (size_t)len), ret_bytes) ? -EUCLEAN : 0;
}
