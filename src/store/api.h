/* store/api.h: DECIDES. Buckets, objects, what is durable: what every engine offers to those who
 * serve objects. It never touches a socket or a queue pair. store/local.h has the rest of the
 * local engine: opening it, its volumes, checking them.
 *
 * A commit is durable when it returns: its bytes and its record would survive power loss. After a
 * crash every key has its old object or its new one, never a mixture.
 *
 * Fiber calls from any reactor that was attached, unless marked otherwise. */
#ifndef STORE_API_H
#define STORE_API_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "region/region.h"

struct flow_core;
struct flow_sink;
struct flow_source;
struct store;
struct store_put; /* an object being written */
struct store_get; /* an object being read: a snapshot that stays readable until closed */

/* The unit in which payload moves, is cached and (its CHECK pieces) is verified. */
#define STORE_CHUNK_BYTES (1024u * 1024u)
#define STORE_CHECK_BYTES \
	(64u * 1024u) /* a checksum covers this much of an extent; ranges read whole pieces */
/* Up to here a body is handed over in its frames and written with its group in one go. */
#define STORE_GROUPED_BYTES_MAX (64u * 1024u)
/* Stored headers of one object. */
#define STORE_HEADERS_BYTES_MAX (2 * LIMIT_HTTP_HEAD_BYTES_MAX)
/* Bodies that one object may be composed of. */
#define STORE_PARTS_MAX	  10000u
#define STORE_BUCKETS_MAX 65536u

/* ---- Buckets. ---- */
struct store_bucket {
	char name[LIMIT_BUCKET_LEN_MAX + 1];
	uint64_t id;	     /* never reused */
	uint64_t created_ns; /* real time */
	char owner[65];
	char region[33];
	uint8_t versioning; /* enum store_versioning */
	uint8_t flags;	    /* STORE_BUCKET_… */
};
enum store_versioning {
	STORE_VERSIONING_NEVER,
	STORE_VERSIONING_ENABLED,
	STORE_VERSIONING_SUSPENDED
};
#define STORE_BUCKET_LOCK      1u /* versions may be locked: versioning stays enabled */
#define STORE_BUCKET_CLOSED    2u /* its presets keep others out; what they are is s3's */
#define STORE_BUCKET_ENCRYPTED 4u /* its preset encrypts */
#define STORE_BUCKET_FLAGS     7u /* all of them */
int store_bucket_create(struct store *store, const struct store_bucket *bucket); /* -EEXIST */
int store_bucket_get(
	struct store *store, struct slice name, struct store_bucket *ret_bucket); /* -ENOENT */
int store_bucket_delete(struct store *store, struct slice name); /* -ENOENT, -ENOTEMPTY */
/* create fills in nothing: id is the store's own and created_ns is kept when given. -EINVAL: a name
 * of no length or longer than LIMIT_BUCKET_LEN_MAX; -EDQUOT: past STORE_BUCKETS_MAX. */
/* Sees a copy of the bucket, in commit order, and changes its versioning and flags (nothing else
 * counts): 0, or -errno that store_bucket_edit returns. Must not block. */
typedef int store_bucket_edit_fn(struct store_bucket *bucket, void *arg);
/* -ENOENT; -EINVAL: back to never versioned. */
int store_bucket_edit(
	struct store *store, struct slice name, store_bucket_edit_fn *edit, void *arg);
/* Calls visit for each bucket in name order, starting after `after`; visit returns false to stop.
 */
typedef bool store_bucket_visit_fn(const struct store_bucket *bucket, void *arg);
int store_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg);

/* ---- The metadata of an object. ---- */
struct store_meta {
	uint64_t bytes;
	uint64_t mtime_ns;	/* real time; the commit sets it */
	char etag[68];		/* without quotes: md5 hex, "…-N", or crc64nvme based */
	uint8_t checksum_type;	/* enum checksum of codec; 0: none was given */
	uint8_t checksum_flags; /* bit 0: composite */
	uint8_t checksum_len;
	uint8_t checksum[64];
	uint64_t crc64; /* CRC-64/NVME of the whole body */
	/* Stored headers: "name\0value\0" pairs, lower-case names (content-type, x-amz-meta-…). */
	const char *headers;
	uint32_t headers_len;
	char version_id[33]; /* "null": written while versioning was not enabled */
	bool delete_marker;  /* a version that says the key was deleted; it has no bytes */
};

/* ---- Writing. open → (space, move bytes)* or frames → commit | abort. ---- */
struct store_put_opts {
	struct slice bucket;
	struct slice key;
	uint64_t bytes;	 /* known length; UINT64_MAX when it is not known yet */
	bool composable; /* another object is to be composed of the body: it never lives in the
			    index */
};
/* -ENOENT: no such bucket; -ENOSPC: the volume is full; -EFBIG: beyond LIMIT_PUT_BYTES_MAX; -EIO:
 * the store is fenced. Nothing is visible until commit. bucket and key are copied. */
int store_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put);
/* A number that no other body of this store has, had or will have. It stays with the body, also
 * when another object is composed of it. */
uint64_t store_put_body_number(const struct store_put *put);
/* The end of a transfer into the body: opened for one run, which ends it, and the put outlives it.
 * Either this, once, or the bodies of others. bytes_total UINT64_MAX: not known. -ENOMEM. */
int store_put_sink(struct store_put *put, struct flow_core *core, uint64_t bytes_total,
	struct flow_sink **ret_sink);
/* Notes what authenticates the piece of at most STORE_CHECK_BYTES at offset, by who encrypted it:
 * opaque to the store, which keeps it beside the checksums. All pieces of a body have one, or none
 * has. */
#define STORE_TAG_BYTES 16u
int store_put_tagged(struct store_put *put, uint64_t offset, const uint8_t tag[STORE_TAG_BYTES]);
/* Instead of bytes of its own, a put may be composed of the bodies of other objects, up to
 * STORE_PARTS_MAX and LIMIT_OBJECT_BYTES_MAX, in order. Nothing is moved: the commit makes them the
 * new object's and deletes the others' keys, all or nothing. get is what the caller has open of the
 * key, and may be closed after. -ESTALE: the key holds something else by now; -EINVAL: the body
 * lives in the index (put it as composable) or is itself composed, the key is the put's own, or the
 * put has bytes of its own; -EFBIG; -ENOENT: no such bucket. After an error the put can still be
 * committed or aborted. Abort leaves the others alone. */
int store_put_compose(
	struct store_put *put, struct slice bucket, struct slice key, const struct store_get *get);
/* An object that ends in the same commit, with its body. With the composed ones at most
 * STORE_PARTS_MAX + 16; else as store_put_compose. */
int store_put_drop(
	struct store_put *put, struct slice bucket, struct slice key, const struct store_get *get);

/* The put's body is to come behind what the caller has open of its key, in a bucket that never had
 * versions. Nothing of that is moved. meta->bytes is then the length of both, and the commit is
 * -ESTALE when the key holds anything else by then. -E2BIG: it has STORE_PARTS_MAX bodies already;
 * -EINVAL: versions, or called twice. */
int store_put_append(struct store_put *put, const struct store_get *get);

/* An outbox row: what a commit leaves to be told to somebody outside of the store. It is part of
 * the commit, so that after a crash there are both or neither. It is kept until store_outbox_end.
 */
#define STORE_OUTBOX_ROW_BYTES_MAX (64u * 1024u)
struct store_outbox_row {
	/* The text to store if the commit puts no delete marker, and if it does; data NULL:
	 * nothing. */
	struct slice text, marker_text;
	uint64_t number; /* out: in commit order, never used again; 0: there was no commit */
};
/* How such a commit went, for who fills in what only it knows. */
struct store_outcome {
	int ret;
	bool delete_marker; /* one was put on top */
	struct slice version_id;
};
/* For the commit that follows; borrowed until then. */
void store_put_outbox_row(struct store_put *put, struct store_outbox_row *outbox_row);

/* Looks at what the key holds now (NULL: nothing), in commit order, and decides: 0 to go on, or
 * -errno that commit returns. Must not block. */
typedef int store_check_fn(const struct store_meta *current, void *arg);
/* Durable when it returns 0. Ends the put in any case. meta->bytes is the body's length, and what
 * was given (frames, or space and checks) must cover it; mtime_ns and version_id are filled in.
 * -ENOENT: the bucket went away; -ESTALE: something that was to be composed or dropped was
 * replaced or deleted, and nothing changed; -EFBIG: more bodies than the log can take at once;
 * -ENOSPC; -EIO: the store is fenced; -ESHUTDOWN: it is quiescing; or what check said. */
int store_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg);
void store_put_abort(struct store_put *put); /* space goes back; takes NULL */

/* Gives what the caller has open of a key another name in its bucket, which never had versions, and
 * other stored headers, in one commit: whatever the other key held ends, mtime and all else stays.
 * condition.check (may be NULL) sees what the other key holds. -ESTALE: the key holds something
 * else by now; -EINVAL: the same key, or versions; else as store_put_commit. */
struct store_name;
struct store_condition {
	store_check_fn *check;
	void *arg;
};
int store_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition);

/* ---- Changing what is kept besides the bytes. ---- */
/* Sees what the key holds, in commit order, and says what its stored headers shall be: 0 with
 * *ret_headers (borrowed until store_edit returns; all of them, also those that stay), or -errno
 * that store_edit returns. Runs on the committer's fiber: must not block. */
typedef int store_edit_fn(const struct store_meta *current, struct slice *ret_headers, void *arg);
/* Replaces the stored headers of a version in place (version_id empty: the current one); bytes,
 * mtime and ETag stay. Durable when it returns 0. -ENOENT: no such bucket, key or version; -EINVAL:
 * more than STORE_HEADERS_BYTES_MAX; else as store_put_commit, or what edit said.
 */
struct store_name {
	struct slice bucket;
	struct slice key;
	struct slice version_id;
};
int store_edit(struct store *store, const struct store_name *name, store_edit_fn *edit, void *arg,
	struct store_outbox_row *outbox_row); /* may be NULL */

/* Sets those bits of checksum_flags, in place like an edit; check (may be NULL) decides. */
struct store_flags {
	uint8_t mask, flags;
};
int store_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row);

/* ---- Reading. ---- */
/* -ENOENT with *ret_bucket_exists telling which of the two is missing. From memory when the record
 * table has it: well under a µs. */
int store_get_open(struct store *store, struct slice bucket, struct slice key,
	struct store_get **ret_get, bool *ret_bucket_exists);
/* The same of a version (empty: the current one); also a delete marker can be had by its id: it
 * says so in its meta and has no bytes. */
int store_get_open_version(struct store *store, const struct store_name *name,
	struct store_get **ret_get, bool *ret_bucket_exists);
/* Whether it can be a version id of this store. */
bool store_version_id_valid(struct slice version_id);
/* The newest version of a key that is none of its current: of a key that has no current one, its
 * delete marker. Without headers. Asks the index. -ENOENT: there is none. */
int store_newest(
	struct store *store, struct slice bucket, struct slice key, struct store_meta *ret_meta);
const struct store_meta *store_get_meta(const struct store_get *get); /* lives until close */
/* The end of a transfer of the body's bytes [offset, offset + bytes), every one of them verified:
 * opened for one run, which ends it, and the get outlives it. Pieces end with their chunk, and
 * begin where it does, a leased one where what is verified does; a borrowed one lies in memory with
 * all of its stretch.
 * -ENOMEM. */
int store_get_source(struct store_get *get, struct flow_core *core, uint64_t offset, uint64_t bytes,
	struct flow_source **ret_source);
/* The whole body when it lies in memory, one stretch of a chunk at most: for what needs it at once.
 * A span with data is to be dropped by region_put(…, OWNER_CACHE). */
bool store_get_held(struct store_get *get, struct slice *ret_body, struct region_span *ret_span);
/* The stretch that holds the offset: bytes that were put as one body, from whose start chunks and
 * pieces to verify are counted. A plain object is one stretch; a composed one has one for each
 * body. */
struct store_stretch {
	uint64_t start, bytes;
	uint64_t body_number; /* store_put_body_number of the body */
};
void store_get_stretch(
	const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch);
/* The tag that store_put_tagged stored for the piece that begins at offset, a multiple of
 * STORE_CHECK_BYTES of its stretch. -ENOENT: nothing; may wait for the index. */
int store_get_tag(struct store_get *get, uint64_t offset, uint8_t ret_tag[STORE_TAG_BYTES]);
void store_get_close(struct store_get *get); /* takes NULL */

/* ---- Object watches: for what is known outside of an object's bytes, or of who may have them.
 * ---- */
struct object;
struct store_object_watch {
	/* Called once, when the object is no longer the key's object: before the caller that
	 * replaced, edited or deleted it gets its result; or (rights) by store_rights_changed. On
	 * any thread, under a lock: must not call the store, nor wait. The watch is over then. */
	void (*ended)(struct store_object_watch *watch, bool rights);
	struct object *object; /* the rest is the store's; NULL: not watching */
	struct store_object_watch *next;
	struct list link;
};
/* To be read before it is asked who may. */
uint64_t store_rights_epoch(const struct store *store);
/* Watches the object that was opened as what its key holds now. -ESTALE: it is so no longer, or
 * rights changed since the epoch was read. Any thread. */
int store_object_watch_begin(
	struct store_get *get, struct store_object_watch *watch, uint64_t epoch);
/* After it ended is not called, and has returned if it was. Harmless when it was. Any thread. */
void store_object_watch_end(struct store *store, struct store_object_watch *watch);
/* Somebody's rights changed: ends all watches. */
void store_rights_changed(struct store *store);

/* ---- Deleting. ---- */
/* Deletes a key (version_id empty) or a version of it. A missing key or version is success (S3).
 * Where versioning is enabled or suspended, deleting a key puts a delete marker on top instead.
 * check (may be NULL) sees what is to be deleted: the current object, or the version. */
struct store_deletion {
	struct slice key;
	struct slice version_id;
	store_check_fn *check;
	void *arg;
	struct store_outbox_row *outbox_row; /* may be NULL */
	int result;			     /* 0 or -errno */
	bool delete_marker;		     /* out: one was put on top, or the version was one */
	char version_id_out[33];	     /* that of the marker or of the version; empty: none */
};
/* Durable when it returns 0, in one commit where that is possible (composed bodies by thousands,
 * and newest versions of a key, take several). -ENOENT: no such bucket; -EINVAL: a key that cannot
 * be, or more than LIMIT_DELETE_KEYS_MAX. */
int store_delete_each(
	struct store *store, struct slice bucket, struct store_deletion *list, uint32_t count);
/* One key; what check said, else 0 or -errno. */
int store_delete(struct store *store, struct slice bucket, struct slice key, store_check_fn *check,
	void *arg);

/* The same of keys without conditions. */
int store_delete_many(struct store *store, struct slice bucket, const struct slice *keys,
	uint32_t key_count, int *results);

/* ---- The outbox: what commits left to be told. ---- */
/* Visits the rows that an earlier start left, in the order of their numbers, after `after`; visit
 * returns false to stop. It runs on the fiber and may wait; text and version id (what the commit
 * made or deleted; empty: an edit) live for the call. -EIO, -ENOMEM. */
typedef bool store_outbox_visit_fn(
	uint64_t number, struct slice version_id, struct slice text, void *arg);
int store_outbox_visit(
	struct store *store, uint64_t after, store_outbox_visit_fn *visit, void *arg);
/* They need not be kept any longer. Durable when it returns 0; else as store_put_commit. */
int store_outbox_end(struct store *store, const uint64_t *numbers, uint32_t count);

/* ---- Listing, in key order, sees every commit that returned before the call. ---- */
struct store_list_opts {
	struct slice bucket;
	struct slice prefix;
	struct slice delimiter; /* may be longer than a byte */
	struct slice after;	/* exclusive; for continuing also past a common prefix */
	/* Versions only: continue among those of the key `after`, behind this one. */
	struct slice version_after;
	uint32_t entries_max; /* keys and prefixes together, 0 to LIMIT_LIST_KEYS_MAX */
};
struct store_list_entry {
	struct slice key; /* a key, or a common prefix with its delimiter */
	bool is_prefix;
	bool is_latest;		       /* the newest version of its key */
	const struct store_meta *meta; /* keys only; without headers */
};
/* visit is called on the fiber, in order; slices live for the call. */
typedef void store_list_visit_fn(const struct store_list_entry *entry, void *arg);
/* *ret_more: there are further entries, after the last one visited. -ENOENT: no such bucket. */
int store_list(struct store *store, const struct store_list_opts *opts, store_list_visit_fn *visit,
	void *arg, bool *ret_more);

/* Versions and delete markers, too: in key order, of one key the newest first. */
int store_list_versions(struct store *store, const struct store_list_opts *opts,
	store_list_visit_fn *visit, void *arg, bool *ret_more);

/* ---- How full it is. Any thread. ---- */
struct store_usage {
	uint64_t volume_bytes, used_bytes, free_bytes, objects, buckets, cache_bytes, log_bytes;
};
void store_usage(struct store *store, struct store_usage *ret_usage);

#endif
