/* store/engine.h: the table that an engine fills: one slot for each call of store/api.h that needs
 * it, none empty. The contracts are those of store/api.h. */
#ifndef STORE_ENGINE_H
#define STORE_ENGINE_H

#include "store/api.h"

struct store_engine {
	const char *name;
	bool local; /* bodies lie on volumes: the engine has the calls of store/local.h */

	uint64_t (*bucket_id_reserve)(struct store *store);
	int (*bucket_create)(struct store *store, const struct store_bucket *bucket);
	int (*bucket_get)(struct store *store, struct slice name, struct store_bucket *ret_bucket);
	int (*bucket_delete)(struct store *store, struct slice name, uint64_t id);
	int (*bucket_edit)(
		struct store *store, struct slice name, store_bucket_edit_fn *edit, void *arg);
	int (*bucket_list)(
		struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg);

	int (*bucket_usage)(struct store *store, struct slice name, struct store_quota *ret_used);
	int (*bucket_room)(
		struct store *store, struct slice name, struct slice key, uint64_t bytes);

	int (*put_open)(
		struct store *store, const struct store_put_opts *opts, struct store_put **ret_put);
	int (*put_sink)(struct store_put *put, struct flow_core *core, uint64_t bytes_total,
		struct flow_sink **ret_sink);
	int (*put_tagged)(
		struct store_put *put, uint64_t offset, const uint8_t tag[STORE_TAG_BYTES]);
	int (*put_compose)(struct store_put *put, struct slice bucket, struct slice key,
		const struct store_get *get, bool drop);
	int (*put_append)(struct store_put *put, const struct store_get *get);
	int (*put_commit)(
		struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg);
	void (*put_abort)(struct store_put *put);

	int (*rename)(struct store *store, const struct store_name *from,
		const struct store_get *get, struct slice to, struct slice headers,
		struct store_condition condition);
	int (*edit)(struct store *store, const struct store_name *name, store_edit_fn *edit,
		void *arg, struct store_outbox_row *outbox_row);
	int (*set_flags)(struct store *store, const struct store_name *name,
		struct store_flags flags, struct store_condition condition,
		struct store_outbox_row *outbox_row);

	/* version_id empty: the current one. */
	int (*get_open)(struct store *store, const struct store_name *name,
		struct store_get **ret_get, bool *ret_bucket_exists);
	int (*newest)(struct store *store, struct slice bucket, struct slice key,
		struct store_meta *ret_meta);
	int (*get_source)(struct store_get *get, struct flow_core *core, uint64_t offset,
		uint64_t bytes, struct flow_source **ret_source);
	bool (*get_held)(
		struct store_get *get, struct slice *ret_body, struct region_span *ret_span);
	void (*get_stretch)(
		const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch);
	int (*get_tag)(struct store_get *get, uint64_t offset, uint8_t ret_tag[STORE_TAG_BYTES]);
	void (*get_close)(struct store_get *get);

	uint64_t (*rights_epoch)(const struct store *store);
	int (*object_watch_begin)(
		struct store_get *get, struct store_object_watch *watch, uint64_t epoch);
	void (*object_watch_end)(struct store *store, struct store_object_watch *watch);
	void (*rights_changed)(struct store *store);

	int (*delete_each)(struct store *store, struct slice bucket, uint64_t bucket_id,
		struct store_deletion *list, uint32_t count);
	/* all: with the rows of this start, too. */
	int (*outbox_visit)(struct store *store, uint64_t after, bool all,
		store_outbox_visit_fn *visit, void *arg);
	int (*outbox_end)(struct store *store, const uint64_t *numbers, uint32_t count);
	/* versions: as store_list_versions. */
	int (*list)(struct store *store, const struct store_list_opts *opts, bool versions,
		store_list_visit_fn *visit, void *arg, bool *ret_more);
	void (*usage)(struct store *store, struct store_usage *ret_usage);
};

/* ---- Rules of store/api.h that every engine keeps. ---- */

static inline bool store_key_valid(struct slice key)
{
	return key.len > 0 && key.len <= LIMIT_KEY_LEN_MAX;
}

/* Whether a bucket may hold that: a quota refuses only what adds to it. */
static inline bool store_quota_fits(const struct store_quota *quota, const struct store_quota *used,
	int64_t bytes, int64_t objects)
{
	return !(quota->bytes && bytes > 0 && used->bytes + (uint64_t)bytes > quota->bytes) &&
	       !(quota->objects && objects > 0 &&
		       used->objects + (uint64_t)objects > quota->objects);
}

/* The sequence number that a version id stands for. False: not an id of a store, or "null". */
static inline bool store_version_seq_parse(struct slice version_id, uint64_t *ret_seq)
{
	const uint32_t digits = 16;
	uint64_t seq = 0;

	if (version_id.len != digits)
		return false;
	for (uint32_t i = 0; i < digits; i++) {
		char digit = version_id.data[i];

		if (digit >= '0' && digit <= '9')
			seq = seq << 4 | (uint64_t)(digit - '0');
		else if (digit >= 'a' && digit <= 'f')
			seq = seq << 4 | (uint64_t)(digit - 'a' + 10);
		else
			return false;
	}
	*ret_seq = seq;
	return seq != 0;
}

/* The length of the common prefix that the key falls under, or 0. */
static inline size_t store_list_prefix_len(const struct store_list_opts *opts, struct slice key)
{
	ptrdiff_t at;

	if (!opts->delimiter.len || !slice_starts(key, opts->prefix))
		return 0;
	at = slice_find(slice_from(key, opts->prefix.len), opts->delimiter);
	return at < 0 ? 0 : opts->prefix.len + (size_t)at + opts->delimiter.len;
}

/* Every engine's struct store, store_put and store_get begins with its head. The open calls copy
 * the store's engine into the put or get. */
#define STORE_PUT_MAGIC 0x5707e907u
#define STORE_GET_MAGIC 0x5707e6e7u
struct store_head {
	const struct store_engine *engine;
};
static inline const struct store_engine *store_engine_of(const struct store *store)
{
	return ((const struct store_head *)store)->engine;
}
struct store_put_head {
	const struct store_engine *engine;
	uint32_t magic; /* until it is committed or aborted */
	uint64_t body_number;
	struct store_outbox_row *outbox_row; /* for the commit; NULL: none */
};
struct store_get_head {
	const struct store_engine *engine;
	uint32_t magic; /* until it is closed */
	const struct store_meta *meta;
};

#endif
