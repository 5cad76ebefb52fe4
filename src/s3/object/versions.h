/* s3/object/versions.h: finds the version that a request means, answers its headers, and checks
 * conditions of deletions. */
#ifndef S3_VERSIONS_H
#define S3_VERSIONS_H

#include "s3/core/call.h"
#include "s3/event/notification.h"

/* Edits the headers of the call's object in the version that the query names; sends the event. An
 * edit that the object's lock forbids returns -ECANCELED. */
const struct s3_error *s3_edit_version(
	struct s3_call *call, store_edit_fn *edit, void *arg, enum s3_event_id event);

/* The conditions of a deletion, checked at its commit. */
struct s3_deletion_check {
	struct slice if_match;
	bool has_time, has_size;
	int64_t time_s;
	uint64_t size;
	bool by_version; /* then a lock protects the version */
	/* The rights to delete that name depended on it. */
	struct store_name name;
	const struct s3_judged *judged;
	bool bypass;
	int64_t now_ms;
	/* The newest delete marker of a key without a current object, for conditions. */
	bool has_marker;
	int64_t marker_s;
	const struct s3_error *refused; /* the error when the check returned -ECANCELED */
};
/* Parses conditions; empty text: no condition. */
const struct s3_error *s3_deletion_time_parse(
	struct s3_call *call, struct slice text, struct s3_deletion_check *check);
const struct s3_error *s3_deletion_size_parse(
	struct s3_call *call, struct slice text, struct s3_deletion_check *check);
/* Whether the answer to the conditions depends on the object's tag, size or time. */
bool s3_deletion_compares(const struct s3_deletion_check *check);
/* A key without a current object may have a delete marker as its newest version: conditions are
 * then checked against the marker. Called before each deletion that names no version. */
void s3_deletion_find_marker(
	struct s3_call *call, struct slice key, struct s3_deletion_check *check);
store_check_fn s3_deletion_check;

#endif
