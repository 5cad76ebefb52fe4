/* s3/replication.h: replication of buckets to other S3 servers, for the worker that sends
 * (src/replicate): the targets that operators registered, the rows that commits leave for them, and
 * what a row asks to be sent (docs/design/replication.md).
 *
 * Source: S3 User Guide, "Replicating objects within and across Regions"; API Reference,
 * "PutBucketReplication". */
#ifndef S3_REPLICATION_H
#define S3_REPLICATION_H

#include "base/mem_arena.h"
#include "s3/s3.h"
#include "store/api.h"

/* ---- Targets: a bucket of another server, with the keys that open it. ---- */
#define S3_REPLICATE_TARGETS_MAX  16u
#define S3_REPLICATE_NAME_MAX	  63u
#define S3_REPLICATE_ENDPOINT_MAX 1023u
#define S3_REPLICATE_ERROR_BYTES  256u
#define S3_REPLICATE_VERSION_MAX  1024u /* bytes of a target's version id: S3's own bound */
struct s3_replicate_place {
	char name[S3_REPLICATE_NAME_MAX + 1];
	char endpoints[S3_REPLICATE_ENDPOINT_MAX + 1]; /* as neb_options has them */
	char bucket[LIMIT_BUCKET_LEN_MAX + 1];
	char region[33];
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
	char secret_key[LIMIT_SECRET_KEY_LEN_MAX + 1];
	uint64_t generation; /* changes with any of these; never 0 */
};
/* The worker's word about a target. */
struct s3_replicate_state {
	const char *word;      /* "idle", "sending", "away", "refused"; static */
	uint64_t oldest_ns;    /* real time of the oldest row that waits; 0: none */
	uint32_t refused;      /* rows that the target refused and that are tried again */
	const char *transport; /* of the last request; static */
	char error[S3_REPLICATE_ERROR_BYTES]; /* the last one; empty: none since the last success */
};
/* Of the rule that an object falls under, too, when the rule has metrics. */
#define S3_REPLICATE_MINUTES   15u
#define S3_REPLICATE_RULES_MAX 256u /* that are counted */
enum s3_replicate_count {
	S3_REPLICATE_PENDING,
	S3_REPLICATE_PENDING_BYTES,
	S3_REPLICATE_SENT,
	S3_REPLICATE_SENT_BYTES,
	S3_REPLICATE_FAILED,
	S3_REPLICATE_HELD_BYTES, /* of the region, by bodies on their way */
	S3_REPLICATE_COUNTS
};
struct s3_replicate_told {
	struct s3_replicate_place place; /* without its secret */
	struct s3_replicate_state state;
	uint64_t counts[S3_REPLICATE_COUNTS];
};
/* Any thread. The targets, in the order of their registration. */
uint32_t s3_replicate_list(
	struct s3 *s3, struct s3_replicate_told ret_list[S3_REPLICATE_TARGETS_MAX]);
/* -ENOENT: no such target; -EBADMSG: what is stored of it cannot be read. Any thread; the caller
 * wipes it. */
int s3_replicate_place(struct s3 *s3, struct slice name, struct s3_replicate_place *ret_place);
/* Whether buckets of that owner may use the target, now. Any thread. */
bool s3_replicate_allowed(struct s3 *s3, struct slice target, const char *owner);
void s3_replicate_tell(struct s3 *s3, struct slice name, const struct s3_replicate_state *state);
void s3_replicate_add(
	struct s3 *s3, struct slice name, enum s3_replicate_count count, int64_t more);
/* The same for a row, which was left (1) or has ended (-1), and its target; and for its rule. */
struct s3_replicate_row;
void s3_replicate_pend(struct s3 *s3, const struct s3_replicate_row *row, int direction);
/* A target took the row, or never will. */
void s3_replicate_count_end(struct s3 *s3, const struct s3_replicate_row *row, bool sent);
struct s3_replicate_rule_told {
	char bucket[LIMIT_BUCKET_LEN_MAX + 1], target[S3_REPLICATE_NAME_MAX + 1], rule[256];
	uint64_t pending, pending_bytes, sent, sent_ns, failed, missed;
};
/* Any thread: the rules that rows were left for. */
uint32_t s3_replicate_rules(
	struct s3 *s3, struct s3_replicate_rule_told ret_list[S3_REPLICATE_RULES_MAX]);
/* fn is called on any thread when there is work: a commit left a row, a target changed, a resync
 * was asked for. It must not wait. NULL: no more calls. */
void s3_replicate_on_work(struct s3 *s3, void (*fn)(void *arg), void *arg);

/* ---- Rows: outbox rows of the store, in commit order. ---- */
enum s3_replicate_kind {
	S3_REPLICATE_PUT = 'P',
	S3_REPLICATE_MARKER = 'D',
	S3_REPLICATE_TAGS = 'T',
	S3_REPLICATE_RETENTION = 'R',
	S3_REPLICATE_HOLD = 'H',
	S3_REPLICATE_CHANGES = 'A', /* tags, retention and hold, of which one has failed before */
	S3_REPLICATE_NOTHING = 'N', /* an edit of a version that is not replicated */
};
struct s3_replicate_row {
	enum s3_replicate_kind kind;
	uint64_t number;
	uint64_t bytes;
	uint64_t time_ns; /* real time of its commit */
	struct slice target, bucket, key, version_id;
	struct slice request_id; /* of the request that made it */
	struct slice rule;	 /* the id of an object's rule that has metrics; empty: none */
};
/* False: not a row of replication. Texts are those of the row. */
bool s3_replicate_row_parse(uint64_t number, struct slice version_id, struct slice text,
	struct s3_replicate_row *ret_row);

/* ---- What a row asks for. Fiber calls on one reactor. ---- */
#define S3_REPLICATE_HEADERS_MAX LIMIT_HTTP_HEADERS_MAX
struct s3_replicate_job {
	const struct s3_replicate_row *row;
	uint64_t bytes;
	char etag[68];		      /* empty: not comparable */
	bool etag_is_own;	      /* by the encryption: a replica's is another one */
	uint32_t part_count;	      /* 0: put whole */
	bool composite;		      /* its checksum is one of its parts' checksums */
	struct slice checksum_header; /* empty: it has no checksum; "x-amz-checksum-crc32c" */
	struct slice checksum_name, checksum;
	struct slice target_version; /* of the replica, once it was sent; empty: not known */
	/* Of the replica; texts end with a NUL. */
	uint32_t header_count;
	struct s3_header headers[S3_REPLICATE_HEADERS_MAX];
	struct slice tags, lock_mode, lock_until, hold; /* as stored; empty: none */
	bool lock_over;					/* the retention has ended */
	bool lockable;					/* its bucket has object lock */
	/* NULL: of a delete marker that is gone, with all versions of its key. */
	const struct store_meta *meta;
	struct store_get *get;
	struct mem_arena arena;
	const char *why; /* of -EOPNOTSUPP */
};
/* Opens the row's version. -ENOENT: it is gone; -ECANCELED: no rule asks for it any more;
 * -EALREADY: it was sent before, or, of a delete marker, the target has a newer version of its key;
 * -EOPNOTSUPP: it can never be sent; -ENOMEM, -EIO. Close it unless it failed. */
int s3_replicate_open(struct s3 *s3, struct flow_core *core, const struct s3_replicate_row *row,
	struct s3_replicate_job *job);
void s3_replicate_close(struct s3_replicate_job *job);
struct s3_replicate_part {
	uint64_t offset, bytes;
	struct slice checksum; /* empty: not known */
};
/* number from 1. The offset of a part is found by a walk over those before it. */
struct s3_replicate_part s3_replicate_part(const struct s3_replicate_job *job, uint32_t number);
/* Notes with the version how it ended at the row's target. target_version: of the replica; empty:
 * leaves it. -ENOENT: the version is gone. */
enum s3_replicate_end {
	S3_REPLICATE_END_SENT,
	S3_REPLICATE_END_FAILED,  /* s3_replicate_note_failed */
	S3_REPLICATE_END_DROPPED, /* nothing asks for it any more */
};
int s3_replicate_note(struct s3 *s3, const struct s3_replicate_row *row, enum s3_replicate_end end,
	struct slice target_version);
/* The same for a row that failed, with the event of it. */
int s3_replicate_note_failed(
	struct s3 *s3, struct flow_core *core, const struct s3_replicate_row *row, const char *why);

/* ---- Events of rows whose rule has an EventThreshold (event/late.c). Fiber calls. ---- */
/* Real time after which the row is late. */
uint64_t s3_replicate_late_ns(struct s3 *s3, const struct s3_replicate_row *row);
/* A row is late and has not been sent: s3:Replication:OperationMissedThreshold. */
void s3_replicate_tell_missed(
	struct s3 *s3, struct flow_core *core, const struct s3_replicate_row *row);
/* A row ends without having been sent, because its version or its rule is gone:
 * s3:Replication:OperationNotTracked. */
void s3_replicate_tell_untracked(
	struct s3 *s3, struct flow_core *core, const struct s3_replicate_row *row);
/* s3_replicate_note of a row that was sent, with s3:Replication:OperationReplicatedAfterThreshold
 * if it is late. */
int s3_replicate_note_sent(struct s3 *s3, struct flow_core *core,
	const struct s3_replicate_row *row, struct slice target_version);

/* ---- Resync: rows for what exists already. Fiber calls. ---- */
/* The next one by name behind `after`, or else the first, and where its walk goes on. -ENOENT: none
 * waits. */
enum s3_replicate_resync_kind {
	S3_REPLICATE_RESYNC_RULES = 'E', /* what ExistingObjectReplication asks for */
	S3_REPLICATE_RESYNC_NEW = 'N',	 /* what all rules ask for and was not sent */
	S3_REPLICATE_RESYNC_ALL = 'A',	 /* also what was sent before */
};
struct s3_replicate_resync {
	char name[LIMIT_BUCKET_LEN_MAX + 3]; /* of its bucket and kind */
	char bucket[LIMIT_BUCKET_LEN_MAX + 1];
	enum s3_replicate_resync_kind kind;
	char rules[17];	 /* digest of the rules that it is for; empty: of any */
	char stamp[36];	 /* of its document */
	uint64_t put_ns; /* real time of its last step */
	size_t after_len;
	char after[LIMIT_KEY_LEN_MAX]; /* the last key */
	char version[33];	       /* of it, the newest one that was looked at; empty: all */
};
int s3_replicate_resync_next(struct s3 *s3, struct flow_core *core, struct slice after,
	struct s3_replicate_resync *ret_resync);
/* Walks over up to a thousand versions more, leaves rows, and notes how far it came, also when it
 * fails; *ret_more: there are further keys. A version that cannot be marked is skipped. -EAGAIN:
 * the bucket's rules are not stored yet. */
int s3_replicate_resync_step(
	struct s3 *s3, struct flow_core *core, struct s3_replicate_resync *resync, bool *ret_more);

#endif
