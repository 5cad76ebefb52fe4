/* store/api.h: DECIDES. Buckets, objects and durability: the calls that every engine offers to its
 * callers. It never touches a socket or a queue pair. store/local.h has the rest of the local
 * engine: opening it, its volumes, checking them.
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

/* The unit in which payload moves and is cached; its CHECK pieces are the unit of verification. */
#define STORE_CHUNK_BYTES (1024u * 1024u)
#define STORE_CHECK_BYTES \
	(64u * 1024u) /* a checksum covers this much of an extent; ranges read whole pieces */
/* A body of at most this size stays in its frames and is written with its group in one write. */
#define STORE_GROUPED_BYTES_MAX (64u * 1024u)
/* Stored headers of one object. */
#define STORE_HEADERS_BYTES_MAX (2 * LIMIT_HTTP_HEAD_BYTES_MAX)
/* The most bodies that one object can be composed of. */
#define STORE_PARTS_MAX	  10000u
#define STORE_BUCKETS_MAX 65536u

/* ---- Buckets. ---- */
/* The most that a bucket holds, its versions that are not current included; 0: no limit. */
struct store_quota {
	uint64_t bytes;
	uint64_t objects; /* delete markers are not counted */
};
/* Of a memory bucket, from its creation on: its objects live in the region alone and end with the
 * process (docs/design/memory-buckets.md). */
struct store_memory {
	uint64_t bytes;	  /* everything that its objects take; never 0 */
	uint64_t objects; /* the most objects; 0: no limit */
	uint32_t ttl_s;	  /* age at which an object ends; 0: none */
	bool refuses;	  /* full: a put is -ENOSPC; else objects used least recently make room */
};
#define STORE_MEMORY_BYTES_MIN (1 * MIB)
#define STORE_MEMORY_TTL_S_MAX (400u * 86400u)
struct store_bucket {
	char name[LIMIT_BUCKET_LEN_MAX + 1];
	uint64_t id;	     /* never reused */
	uint64_t created_ns; /* real time */
	char owner[65];
	char region[33];
	uint8_t versioning; /* enum store_versioning */
	uint8_t flags;	    /* STORE_BUCKET_… */
	struct store_quota quota;
	struct store_memory memory; /* with STORE_BUCKET_MEMORY */
};
enum store_versioning {
	STORE_VERSIONING_NEVER,
	STORE_VERSIONING_ENABLED,
	STORE_VERSIONING_SUSPENDED
};
#define STORE_BUCKET_LOCK      1u  /* versions may be locked: versioning stays enabled */
#define STORE_BUCKET_CLOSED    2u  /* its presets deny access to others; s3 defines the presets */
#define STORE_BUCKET_ENCRYPTED 4u  /* its preset encrypts */
#define STORE_BUCKET_MEMORY    8u  /* its objects live in memory; never changes */
#define STORE_BUCKET_FLAGS     15u /* all of them */
/* The id of a bucket that is yet to be created with it, so that what belongs to the bucket can be
 * stored before. No other bucket gets it, also after the next start if anything was stored since.
 */
uint64_t store_bucket_id_reserve(struct store *store);
int store_bucket_create(struct store *store, const struct store_bucket *bucket); /* -EEXIST */
int store_bucket_get(
	struct store *store, struct slice name, struct store_bucket *ret_bucket); /* -ENOENT */
/* id: as in struct store_name. -ENOENT, -ENOTEMPTY. */
int store_bucket_delete(struct store *store, struct slice name, uint64_t id);
/* create fills in nothing. If a reserved id or created_ns is given, the store keeps it. -EINVAL:
 * the name is empty or longer than LIMIT_BUCKET_LEN_MAX, or bounds of a memory bucket are out of
 * theirs, or it has versions; -EDQUOT: past STORE_BUCKETS_MAX; -ENOTSUP: the store has no memory
 * for memory buckets; -ENOBUFS: too little of it is left. */
/* Gets a copy of the bucket, in commit order, and changes its versioning, flags and quota (other
 * changes are ignored). Returns 0, or -errno, which store_bucket_edit then returns. Must not block.
 */
typedef int store_bucket_edit_fn(struct store_bucket *bucket, void *arg);
/* -ENOENT; -EINVAL: versioning cannot go back to "never enabled". */
int store_bucket_edit(
	struct store *store, struct slice name, store_bucket_edit_fn *edit, void *arg);
/* Calls visit for each bucket in name order, starting after `after`; visit returns false to stop.
 */
typedef bool store_bucket_visit_fn(const struct store_bucket *bucket, void *arg);
int store_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg);

/* The use of the bucket, counted as its quota counts. With a commit's result it has the commit; a
 * commit that is being written may be in it, too. */
int store_bucket_usage(
	struct store *store, struct slice name, struct store_quota *ret_used); /* -ENOENT */
/* Whether a put of that many bytes (UINT64_MAX: not known yet) can fit the bucket's quota now. Only
 * the commit decides: other commits may come first. -EDQUOT: it cannot; -ENOENT: no such bucket.
 * store_put_open asks, too. */
int store_bucket_room(struct store *store, struct slice name, struct slice key, uint64_t bytes);

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
	bool delete_marker;  /* a delete marker: a version that says the key was deleted; it has no
				bytes */
};

/* ---- Writing. open → sink | (compose, drop)* → commit | abort. ---- */
struct store_put_opts {
	struct slice bucket;
	struct slice key;
	uint64_t bytes;	 /* known length; UINT64_MAX when it is not known yet */
	bool composable; /* another object will be composed of the body, so the body is never stored
			    in the index */
	/* Of a bucket that must exist at the commit, too: the put's own, or another one to which
	 * the object belongs. 0: only the put's own, whichever has the name. */
	uint64_t bucket_id;
};
/* -ENOENT: no such bucket; -EINVAL: a key that is empty or longer than LIMIT_KEY_LEN_MAX; -ENOSPC:
 * the volume is full; -EDQUOT: the bucket's quota; -EFBIG: beyond LIMIT_PUT_BYTES_MAX; -EIO: the
 * store is fenced. Nothing is visible until commit. bucket and key are copied. */
int store_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put);
/* A number that no other body of this store has, had or will have. It stays with the body when
 * another object is composed of the body. */
uint64_t store_put_body_number(const struct store_put *put);
/* The sink of a transfer into the body. It is opened for one run, which ends it; the put lives
 * longer. A put has either one sink or the bodies of other objects. bytes_total UINT64_MAX: not
 * known; otherwise the run is -EPIPE when fewer bytes come, and -EMSGSIZE when more do. -ENOMEM. */
int store_put_sink(struct store_put *put, struct flow_core *core, uint64_t bytes_total,
	struct flow_sink **ret_sink);
/* Notes the authentication tag of the piece of at most STORE_CHECK_BYTES at offset. The caller, who
 * encrypted the piece, supplies the tag; the store keeps it beside the checksums and does not
 * interpret it. Either all pieces of a body have a tag, or none has; otherwise the
 * commit is -EINVAL. -EINVAL: not in order. */
#define STORE_TAG_BYTES 16u
int store_put_tagged(struct store_put *put, uint64_t offset, const uint8_t tag[STORE_TAG_BYTES]);
/* A put without bytes of its own can be composed of the bodies of other objects, up to
 * STORE_PARTS_MAX and LIMIT_OBJECT_BYTES_MAX, in order. No bytes move: the commit gives the bodies
 * to the new object and deletes the other objects' keys, all or nothing. get is the object that the
 * caller has open at the key; the caller may close it after this call. -ESTALE: the key holds
 * another object by now; -EINVAL: the body lives in the index (put it as composable) or is itself
 * composed, the key is the put's own, or the put has bytes of its own; -EFBIG; -ENOENT: no such
 * bucket. After an error the caller can still commit or abort the put. An abort does not change the
 * other objects. */
int store_put_compose(
	struct store_put *put, struct slice bucket, struct slice key, const struct store_get *get);
/* Deletes another object, with its body, in the same commit. Composed and dropped objects together:
 * at most STORE_PARTS_MAX + 16. Otherwise as store_put_compose. */
int store_put_drop(
	struct store_put *put, struct slice bucket, struct slice key, const struct store_get *get);

/* Appends the put's body to the object that the caller has open at the put's key, in a bucket that
 * never had versions. The existing bytes do not move. meta->bytes is then the length of both. The
 * commit returns -ESTALE if the key holds another object by then. -E2BIG: the object has
 * STORE_PARTS_MAX bodies already; -EINVAL: the bucket has versions, or the call was made twice. */
int store_put_append(struct store_put *put, const struct store_get *get);

/* An outbox row: a message about a commit to a receiver outside the store. The row is part of the
 * commit, so after a crash both exist or neither. The store keeps it until store_outbox_end. */
#define STORE_OUTBOX_ROW_BYTES_MAX (64u * 1024u)
#define STORE_OUTBOX_ROWS_MAX	   17u /* of a commit's item: an event, and 16 replications */
struct store_outbox_row {
	/* The text to store if the commit adds no delete marker, and the text if it does. data
	 * NULL: no row. */
	struct slice text, marker_text;
	uint64_t number; /* out: in commit order, never reused; 0: there was no commit */
	struct store_outbox_row *next; /* a further row of the same commit; NULL: none */
};
/* The result of such a commit, from which the caller completes the message. */
struct store_outcome {
	int ret;
	bool delete_marker; /* a delete marker was added */
	struct slice version_id;
};
/* For the commit that follows; borrowed until then. */
void store_put_outbox_row(struct store_put *put, struct store_outbox_row *outbox_row);

/* Gets the object that the key holds now (NULL: none), in commit order, and decides: 0 to go on, or
 * -errno, which commit then returns. Must not block. */
typedef int store_check_fn(const struct store_meta *current, void *arg);
/* Durable when it returns 0. Ends the put in any case. meta->bytes is the body's length; the put's
 * bytes or bodies must cover it exactly. The call fills in mtime_ns and version_id. -ENOENT: the
 * bucket was deleted; -EDQUOT: the bucket would hold more than its quota, and more than before;
 * -ESTALE: an object to be composed or dropped was replaced or deleted, or
 * named twice, and nothing changed; -EINVAL: the put's bytes do not cover the body, or more than
 * STORE_HEADERS_BYTES_MAX; -EFBIG: more bodies than one group of the log can hold; -ENOSPC; -EIO:
 * the store is fenced; -ESHUTDOWN: the store is quiescing; or the error that check returned. */
int store_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg);
void store_put_abort(struct store_put *put); /* frees the space; takes NULL */

/* Renames the object that the caller has open, within a bucket that never had versions, and
 * replaces its stored headers, in one commit. The object that the new key held is deleted; mtime
 * and everything else stay. condition.check (may be NULL) gets the object that the new key holds.
 * -ESTALE: the old key holds another object by now; -EINVAL: the keys are the same, or the bucket
 * has versions; otherwise as store_put_commit. */
struct store_name;
struct store_condition {
	store_check_fn *check;
	void *arg;
};
int store_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition);

/* ---- Changing metadata. ---- */
/* Gets the object that the key holds, in commit order, and sets its new stored headers: returns 0
 * with *ret_headers (the complete set; borrowed until store_edit returns), or -errno, which
 * store_edit then returns. Runs on the committer's fiber: must not block. */
typedef int store_edit_fn(const struct store_meta *current, struct slice *ret_headers, void *arg);
/* Replaces the stored headers of a version in place (version_id empty: the current one); bytes,
 * mtime and ETag stay. Durable when it returns 0. -ENOENT: no such bucket, key or version; -EINVAL:
 * more than STORE_HEADERS_BYTES_MAX; otherwise as store_put_commit, or the error that edit
 * returned. */
struct store_name {
	struct slice bucket;
	struct slice key;
	struct slice version_id;
	/* Of the bucket: to another one, which got its name meanwhile, the call does nothing
	 * (-ENOENT). 0: whichever bucket has the name. */
	uint64_t bucket_id;
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
/* -ENOENT: *ret_bucket_exists tells whether the bucket or the key is missing. Answered from memory
 * when the record table has the key: well under a µs. */
int store_get_open(struct store *store, struct slice bucket, struct slice key,
	struct store_get **ret_get, bool *ret_bucket_exists);
/* The same for a version (version_id empty: the current one). It can also open a delete marker by
 * its id; the meta of a delete marker says so, and it has no bytes. */
int store_get_open_version(struct store *store, const struct store_name *name,
	struct store_get **ret_get, bool *ret_bucket_exists);
/* Whether the text has the form of a version id of this store. */
bool store_version_id_valid(struct slice version_id);
/* The newest version of a key that is not the current one. If the key has no current version, that
 * is its delete marker. Without headers. Reads the index. -ENOENT: there is no such version. */
int store_newest(
	struct store *store, struct slice bucket, struct slice key, struct store_meta *ret_meta);
const struct store_meta *store_get_meta(const struct store_get *get); /* lives until close */
/* The source of a transfer of the body's bytes [offset, offset + bytes), all of them verified. It
 * is opened for one run, which ends it; the get lives longer. A piece begins and ends with its
 * chunk, but a leased piece begins where a verified piece begins, and a borrowed piece is a whole
 * stretch in memory.
 * -ENOMEM. */
int store_get_source(struct store_get *get, struct flow_core *core, uint64_t offset, uint64_t bytes,
	struct flow_source **ret_source);
/* The whole body, if it is in memory and is one stretch of at most one chunk: for callers that need
 * it at once. The caller drops a span with data by region_put(…, OWNER_CACHE). */
bool store_get_held(struct store_get *get, struct slice *ret_body, struct region_span *ret_span);
/* The stretch that holds the offset. A stretch is the bytes that one put wrote; chunks and pieces
 * to verify are counted from its start. A plain object has one stretch; a composed object has one
 * for each body. */
struct store_stretch {
	uint64_t start, bytes;
	uint64_t body_number; /* store_put_body_number of the body */
};
void store_get_stretch(
	const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch);
/* The tag that store_put_tagged stored for the piece that begins at offset, a multiple of
 * STORE_CHECK_BYTES in its stretch. -ENOENT: there is no tag. May wait for the index. */
int store_get_tag(struct store_get *get, uint64_t offset, uint8_t ret_tag[STORE_TAG_BYTES]);
void store_get_close(struct store_get *get); /* takes NULL */

/* ---- Object watches: for state derived from an object or from the access rights to it. ---- */
struct object;
struct store_object_watch {
	/* Called once, when the object is no longer the key's object: before the caller that
	 * replaced, edited or deleted it gets its result; or (rights) by store_rights_changed. Runs
	 * on any thread, under a lock: must not call the store or wait. The watch has then ended.
	 */
	void (*ended)(struct store_object_watch *watch, bool rights);
	struct object *object; /* the remaining fields are the store's; NULL: not watching */
	struct store *store;   /* with a reference, of an object in memory; otherwise NULL */
	struct store_object_watch *next;
	struct list link;
};
/* Read the epoch before you check access rights. */
uint64_t store_rights_epoch(const struct store *store);
/* Watches an object that was opened as the current object of its key. -ESTALE: another object took
 * its key since it was stored, even if it is the current one again, or rights changed since the
 * caller read the epoch. Any thread. */
int store_object_watch_begin(
	struct store_get *get, struct store_object_watch *watch, uint64_t epoch);
/* When it returns, ended is not running and will not be called. Each watch that began needs this
 * call, also after ended was called. Any thread, one at a time for a watch. */
void store_object_watch_end(struct store *store, struct store_object_watch *watch);
/* Access rights changed: ends all watches. */
void store_rights_changed(struct store *store);

/* ---- Deleting. ---- */
/* Deletes a key (version_id empty) or a version of it. A missing key or version is success (S3).
 * Where versioning is enabled or suspended, deleting a key puts a delete marker on top instead.
 * check (may be NULL) sees what is to be deleted: the current object, or the version. */
struct store_deletion {
	struct slice key;
	struct slice version_id;
	bool noncurrent; /* -ECANCELED if the version is the newest of its key by now */
	store_check_fn *check;
	void *arg;
	struct store_outbox_row *outbox_row; /* may be NULL */
	int result;			     /* 0 or -errno */
	bool delete_marker; /* out: a delete marker was added, or the deleted version was one */
	char version_id_out[33]; /* that of the marker or of the version; empty: none */
};
/* Durable when it returns 0. All deletions are in one commit where possible; thousands of composed
 * bodies, or newest versions of keys, take several. bucket_id: as in struct store_name. -ENOENT: no
 * such bucket; -EINVAL: an invalid key, or more than LIMIT_DELETE_KEYS_MAX. */
int store_delete_each(struct store *store, struct slice bucket, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count);
/* Deletes one key. Returns the error of check, or 0 or -errno. */
int store_delete(struct store *store, struct slice bucket, struct slice key, store_check_fn *check,
	void *arg);

/* Like store_delete_each, for keys without conditions. */
int store_delete_many(struct store *store, struct slice bucket, const struct slice *keys,
	uint32_t key_count, int *results);

/* ---- The outbox: messages that commits left for receivers outside the store. ---- */
/* Visits the rows that an earlier start left, in the order of their numbers, after `after`; visit
 * returns false to stop. visit runs on the fiber and may wait. Text and version id (of the version
 * that the commit made or deleted; empty for an edit) are valid during the call. -EIO, -ENOMEM. */
typedef bool store_outbox_visit_fn(
	uint64_t number, struct slice version_id, struct slice text, void *arg);
int store_outbox_visit(
	struct store *store, uint64_t after, store_outbox_visit_fn *visit, void *arg);
/* The same, with the rows of this start that the index has: a fraction of a second after their
 * commit. A row that a visit sees comes behind all rows with lower numbers. */
int store_outbox_visit_all(
	struct store *store, uint64_t after, store_outbox_visit_fn *visit, void *arg);
/* Deletes these rows. Durable when it returns 0; otherwise as store_put_commit. */
int store_outbox_end(struct store *store, const uint64_t *numbers, uint32_t count);

/* ---- Listing, in key order. A listing sees every commit that returned before the call. ---- */
struct store_list_opts {
	struct slice bucket;
	struct slice prefix;
	struct slice delimiter; /* may be longer than one byte */
	struct slice after;	/* exclusive; for continuing also past a common prefix */
	/* Versions only: continue within the versions of the key `after`, after this version. */
	struct slice version_after;
	uint32_t entries_max; /* keys and prefixes together, 0 to LIMIT_LIST_KEYS_MAX */
	/* visit makes no fiber calls: it may run on another thread while the fiber waits. That
	 * saves a copy of the page. */
	bool visit_anywhere;
};
struct store_list_entry {
	struct slice key; /* a key, or a common prefix with its delimiter */
	bool is_prefix;
	bool is_latest;		       /* the newest version of its key */
	const struct store_meta *meta; /* keys only; without headers */
};
/* visit is called on the fiber (but see visit_anywhere), in order; slices live for the call. After
 * an error it may have seen a part of the page. */
typedef void store_list_visit_fn(const struct store_list_entry *entry, void *arg);
/* *ret_more: there are further entries, after the last one visited. -ENOENT: no such bucket. */
int store_list(struct store *store, const struct store_list_opts *opts, store_list_visit_fn *visit,
	void *arg, bool *ret_more);

/* As store_list, with all versions and delete markers: in key order, the newest version of a key
 * first. */
int store_list_versions(struct store *store, const struct store_list_opts *opts,
	store_list_visit_fn *visit, void *arg, bool *ret_more);

/* ---- Usage. Any thread. ---- */
struct store_usage {
	uint64_t volume_bytes, used_bytes, free_bytes, objects, buckets, cache_bytes, log_bytes;
	uint64_t cache_bytes_max; /* the most that the cache may have now */
	/* Of the memory buckets, which are in `buckets`, too: what their objects take, and the most
	 * that they may take together. */
	uint64_t memory_buckets, memory_objects, memory_bytes, memory_bytes_max;
};
void store_usage(struct store *store, struct store_usage *ret_usage);

#endif
