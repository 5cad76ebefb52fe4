/* s3/replicate/replicate.h: replication inside s3: the rules of buckets, the marks that commits
 * get, and the registry of targets. The worker's side is s3/replication.h. */
#ifndef S3_REPLICATE_H
#define S3_REPLICATE_H

#include <jansson.h>

#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/core/xml_in.h"
#include "s3/replication.h"

/* ---- rules.c ---- */
#define S3_REPLICATION_RULES_MAX 1000u
struct s3_replication_rule {
	struct slice id, prefix, class;
	struct s3_tag tags[S3_TAGS_OBJECT_MAX];
	uint32_t tag_count;
	uint64_t priority;
	bool has_priority, enabled, markers, existing;
	bool kms;	      /* objects under keys of a key service go, too: */
	struct slice kms_key; /* under that key of the target's */
	bool metrics;	      /* its objects are counted by the rule, too */
	bool timed;	      /* what misses S3_REPLICATE_MINUTES is an event */
	uint32_t target;      /* its place among the targets */
};
struct s3_replication_target {
	struct slice name;   /* of the registry */
	struct slice bucket; /* that the ARN names besides; empty: none */
};
struct s3_replication {
	struct s3_replication_rule *rules; /* the highest priority first */
	uint32_t count;
	struct s3_replication_target targets[S3_REPLICATE_TARGETS_MAX];
	uint32_t target_count;
};
struct s3_replication_wrong {
	enum s3_error_id error;
	const char *message; /* NULL: the error's own */
};
/* -EINVAL with *ret_wrong; -ENOMEM. Texts live as long as the tree; rules without an ID get one in
 * it. */
int s3_replication_parse(struct s3_xml *root, struct mem_arena *arena,
	struct s3_replication *ret_replication, struct s3_replication_wrong *ret_wrong);
/* The enabled rule to that target (its place) that an object of that key and those tags falls
 * under: the one of the highest priority. NULL: none. */
const struct s3_replication_rule *s3_replication_rule_of(const struct s3_replication *replication,
	uint32_t target, struct slice key, const struct s3_tags *tags);
/* The same for a delete marker of the key. */
const struct s3_replication_rule *s3_replication_marker_rule(
	const struct s3_replication *replication, uint32_t target, struct slice key);
/* False: no rule names that target. */
bool s3_replication_target_find(
	const struct s3_replication *replication, struct slice name, uint32_t *ret_target);
extern const struct s3_config_ops s3_config_replication;

/* ---- origin.c: the origins of buckets (s3/origin.h). ---- */
extern const struct s3_config_ops s3_config_origin;
/* The error of a bucket with an origin that is asked to keep versions or locks; NULL: another
 * request, or another bucket. */
const struct s3_error *s3_origin_refuses_config(struct s3_call *call, enum s3_config_id id);

/* ---- target.c ---- */
struct s3_replicate;
struct s3_replicate_ledger;
int s3_replicate_registry_open(struct s3_replicate **ret_replicate);
void s3_replicate_registry_close(struct s3_replicate *replicate); /* takes NULL */
/* Fiber call: reads the registered targets. */
int s3_replicate_registry_load(struct s3 *s3, struct flow_core *core);
bool s3_replicate_registered(struct s3 *s3, struct slice target);
struct s3_replicate_ledger *s3_replicate_ledger_of(struct s3 *s3);
struct s3_replicate_answer {
	uint32_t status;
	const char *code; /* of an error */
	char why[256];
	json_t *json; /* NULL: none */
};
/* Answers operators' requests below "replication"; parts are those of the path behind it. */
void s3_replicate_admin(struct s3_call *call, const struct slice *parts, uint32_t count,
	const json_t *body, struct s3_replicate_answer *ret_answer);
/* A bucket whose rules or origin name the target; -ENOENT: none does. Fiber call. */
int s3_replicate_used_by(struct s3 *s3, struct flow_core *core, struct slice target,
	char ret_bucket[LIMIT_BUCKET_LEN_MAX + 1]);
/* There is work for the worker. Any thread. */
void s3_replicate_poke(struct s3 *s3);

/* ---- status.c: the hidden header of an object. ---- */
enum s3_replica_state {
	S3_REPLICA_NONE = 0,
	S3_REPLICA_PENDING = 'P',
	S3_REPLICA_COMPLETED = 'C',
	S3_REPLICA_FAILED = 'F',
};
struct s3_replica_of {
	enum s3_replica_state state;
	struct slice id; /* version id of the replica; empty: not known */
};
struct s3_replica_of s3_replica_of(struct slice headers, struct slice target);
/* Notes the target's state and id, NONE: takes it out, and the word about all of them. -ENOMEM. */
int s3_replica_set(struct slice headers, struct slice target, const struct s3_replica_of *replica,
	struct mem_arena *arena, struct slice *ret_headers);
bool s3_replica_is_replica(struct slice headers);
/* A target that can have the object has it not yet. */
bool s3_replica_is_pending(struct slice headers);

/* ---- mark.c ---- */
/* A commit leaves this for one target. */
struct s3_replica_row {
	struct store_outbox_row row; /* the row of the next target is its next */
	struct slice target, rule;   /* rule: s3_replicate_row's */
	char *text; /* of an edit's row, which the edit completes; NULL: the target is gone */
};
/* The addition of replication to a commit: begin before it, end after it. */
struct s3_replica_mark {
	struct s3_replica_row *rows; /* as many as the rules have targets */
	uint32_t count;
	struct s3 *s3;
	struct slice bucket;
	uint64_t bytes;
	/* The edit that the mark stands before. */
	enum s3_replicate_kind kind;
	store_edit_fn *edit;
	void *edit_arg;
	struct mem_arena *arena;
};
/* A new object of the call's key: marks the headers, too. -ENOMEM. */
int s3_replica_begin_put(
	struct s3_call *call, struct store_meta *meta, struct s3_replica_mark *ret_mark);
/* A deletion that names no version: the rows of the delete marker that it may add. -ENOMEM. */
int s3_replica_begin_delete(
	struct s3_call *call, struct slice key, struct s3_replica_mark *ret_mark);
/* An edit of the call's version: the caller uses s3_replica_edit with the mark in place of edit and
 * arg. -ENOMEM. */
int s3_replica_begin_edit(
	struct s3_call *call, store_edit_fn *edit, void *arg, struct s3_replica_mark *ret_mark);
store_edit_fn s3_replica_edit;
void s3_replica_end(struct s3_replica_mark *mark, const struct store_outcome *outcome);
/* After the end of a commit that added a version of the key: rules that the bucket got since the
 * mark began hold for it, too. */
void s3_replica_catch_up(
	struct s3_call *call, struct slice key, const struct store_outcome *outcome);
/* The first of the rows; NULL: none. */
static inline struct store_outbox_row *s3_replica_outbox_row(struct s3_replica_mark *mark)
{
	return mark->count ? &mark->rows[0].row : NULL;
}
/* Whether an outbox row's text is one of replication's. */
static inline bool s3_replicate_is_row(struct slice text)
{
	return text.len && !text.data[0];
}
/* Writes such a text, without the version id: the commit gives it, or, of an edit, fill does. data
 * NULL: no memory. */
struct slice s3_replicate_row_text(const struct s3_replicate_row *row, struct mem_arena *arena);
void s3_replicate_row_fill(char *text, enum s3_replicate_kind kind, const char *version_id);
/* Answers the headers that tell about the hidden one. */
void s3_replica_answer(struct s3_call *call, struct slice value);

/* ---- job.c ---- */
/* s3_replicate_note, whose commit leaves the row, too; NULL: none. */
int s3_replicate_note_with(struct s3 *s3, const struct s3_replicate_row *row,
	enum s3_replicate_end end, struct slice target_version,
	struct store_outbox_row *outbox_row);

/* ---- ledger.c ---- */
int s3_replicate_ledger_open(struct s3_replicate_ledger **ret_ledger);
void s3_replicate_ledger_close(struct s3_replicate_ledger *ledger); /* takes NULL */
void s3_replicate_count_missed(struct s3 *s3, const struct s3_replicate_row *row);

/* ---- resync.c ---- */
/* Remembers that the bucket's existing objects are to be replicated. rules: the text of the rules
 * that ask for it, which are stored next; empty: those that are stored. */
int s3_replicate_resync_ask(struct s3 *s3, struct flow_core *core, struct slice bucket,
	enum s3_replicate_resync_kind kind, struct slice rules);
/* Leaves rows for one version by the rules of the settings, as a resync would. Fiber call. */
void s3_replicate_version(struct s3 *s3, const struct s3_settings *settings,
	const struct store_name *name, bool marker);

#endif
