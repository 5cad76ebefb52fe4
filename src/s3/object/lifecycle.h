/* s3/object/lifecycle.h: a bucket's lifecycle rules: parsed from their document, and their decision
 * on one version. Without side effects: server/job/lifecycle.c walks the versions and carries the
 * decisions out.
 *
 * Source: S3 User Guide, "Managing the lifecycle of objects". */
#ifndef S3_LIFECYCLE_H
#define S3_LIFECYCLE_H

#include "s3/core/call.h"
#include "s3/core/tags.h"
#include "s3/core/xml_in.h"

#define S3_LIFECYCLE_RULES_MAX	    1000u
#define S3_LIFECYCLE_ID_MAX	    255u
#define S3_LIFECYCLE_DAYS_MAX	    36500u
#define S3_LIFECYCLE_MOVE_BYTES_MIN (128u << 10)

struct s3_lifecycle_move {
	bool noncurrent;
	bool has_date;
	uint8_t class;
	uint32_t days, newer;
	int64_t date_ms;
};
struct s3_lifecycle_rule {
	struct slice id;
	bool enabled;
	struct slice prefix;
	const struct s3_tag *tags;
	uint32_t tag_count;
	bool has_over, has_under;
	uint64_t size_over, size_under;
	/* 0: the rule has none. */
	uint32_t days, noncurrent_days, noncurrent_newer, abort_days;
	bool has_date, expire_markers;
	int64_t date_ms;
	const struct s3_lifecycle_move *moves;
	uint32_t move_count;
};
struct s3_lifecycle_rules {
	const struct s3_lifecycle_rule *list;
	uint32_t count;
	/* An object that moves has at least S3_LIFECYCLE_MOVE_BYTES_MIN bytes, unless its rule
	 * names sizes. */
	enum s3_lifecycle_minimum {
		S3_LIFECYCLE_MOVE_ANY,
		S3_LIFECYCLE_MOVE_LARGE,
		S3_LIFECYCLE_MOVE_LARGE_BUT_ARCHIVED /* into an archive, of any size */
	} minimum;
};
struct s3_lifecycle_wrong {
	enum s3_error_id error;
	const char *message; /* NULL: the error's own */
};
/* -EINVAL with *ret_wrong; -ENOMEM. Texts live as long as the tree. */
int s3_lifecycle_parse(const struct s3_xml *root, struct mem_arena *arena,
	struct s3_lifecycle_rules *ret_rules, struct s3_lifecycle_wrong *ret_wrong);

enum s3_lifecycle_action {
	S3_LIFECYCLE_KEEP,
	S3_LIFECYCLE_NEEDS_TAGS,
	S3_LIFECYCLE_EXPIRE,
	S3_LIFECYCLE_DELETE_VERSION,
	S3_LIFECYCLE_MOVE
};
struct s3_lifecycle_now {
	int64_t ms;
	int64_t day_ms; /* a real day: due times are rounded up to midnight */
};
/* tags NULL: not known. */
enum s3_lifecycle_action s3_lifecycle_decide(const struct s3_lifecycle_rules *rules,
	const struct store_lifecycle_version *version, const struct s3_tags *tags,
	const struct s3_lifecycle_now *now, uint8_t *ret_class);
/* When the current version will expire, and by which rule; NULL: never. */
const struct s3_lifecycle_rule *s3_lifecycle_expiry(const struct s3_lifecycle_rules *rules,
	const struct store_lifecycle_version *version, const struct s3_tags *tags, int64_t *ret_ms);
/* Whether an upload that was started at that time is to be aborted. */
bool s3_lifecycle_aborts(const struct s3_lifecycle_rules *rules, struct slice key,
	uint64_t began_ns, const struct s3_lifecycle_now *now);

/* Answers x-amz-expiration if a rule will expire the call's object. */
void s3_lifecycle_answer(struct s3_call *call, const struct store_meta *meta);

#endif
