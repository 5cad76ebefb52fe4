/* s3/identity/admin.h: operators' requests about identities, as JSON (docs/spec/admin.md). */
#ifndef S3_ADMIN_API_H
#define S3_ADMIN_API_H

#include "s3/auth/access.h"
#include "s3/core/call.h"

struct admin_answer {
	uint32_t status;
	const char *code; /* of an error */
	char why[256];
	json_t *json; /* NULL: none */
};
/* Answers an authenticated call of the server's root. */
void s3_admin_run(struct s3_call *call, struct admin_answer *ret_answer);

/* ---- admin_backup.c ---- */
/* Answers a call below "backups"; path is what follows its slash. True: it sent bytes, and there is
 * nothing more to answer. */
bool s3_admin_backup(struct s3_call *call, struct slice path, struct admin_answer *ret_answer);

/* ---- admin_bucket.c ---- */
/* The path's parts after "buckets", and the request's body (NULL: none). */
struct admin_path {
	const struct slice *parts;
	uint32_t count;
	const json_t *body;
};
/* 1: the canonical id owns a bucket of this store; 0; -errno. No bucket is made while the caller
 * has s3->owning. */
int s3_owns_bucket(struct s3 *s3, struct slice owner);
void s3_admin_buckets(
	struct s3_call *call, const struct admin_path *path, struct admin_answer *ret_answer);

/* ---- admin_volume.c ---- */
/* The same for the parts after "volumes". */
void s3_admin_volumes(
	struct s3_call *call, const struct admin_path *path, struct admin_answer *ret_answer);
/* The log names the caller of a change that not only the root may make, and what was asked. body
 * may be NULL. */
void s3_admin_audit(const struct s3_call *call, const char *what, const json_t *body);

#endif
