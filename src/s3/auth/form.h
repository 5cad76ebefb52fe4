/* s3/auth/form.h: uploads by browser forms: multipart/form-data as it streams in, and the policy
 * document that says what a form may upload. Pure functions on plain buffers, but for the source.
 *
 * Source: RFC 7578; S3 API reference, "POST Object", "Creating a POST policy". */
#ifndef S3_FORM_H
#define S3_FORM_H

#include "s3/core/call.h"

#define S3_FORM_BYTES_MAX	 (64u * 1024u) /* of all that stands before the file's bytes */
#define S3_FORM_FIELDS_MAX	 96u
#define S3_FORM_BOUNDARY_MAX	 70u /* RFC 2046 section 5.1.1 */
#define S3_FORM_POLICY_DEPTH_MAX 8u

struct s3_form_field {
	struct slice name, value; /* name without case */
};
struct s3_form {
	struct s3_form_field fields[S3_FORM_FIELDS_MAX]; /* all that stand before the file */
	uint32_t count;
	struct slice file_name, file_type; /* as the browser says */
	size_t file_at;			   /* where in the text the file's bytes begin */
};
/* The boundary of a Content-Type; false when it is no multipart/form-data of a good one. */
bool s3_form_boundary(struct slice content_type, struct slice *ret_boundary);
/* Parses text up to the file's first byte. -EAGAIN: it goes on; -EINVAL: no such form. The form's
 * slices point into text. */
int s3_form_parse(struct slice text, struct slice boundary, struct s3_form *ret_form);
/* A field's value; data NULL when it is not there. */
struct slice s3_form_field(const struct s3_form *form, struct slice name);

#define S3_FORM_CONDITION_LEN_MAX 255u

/* Whether a policy allows a form's upload: NULL, or the refusal. */
struct s3_form_refusal {
	bool malformed; /* the policy itself: 400; else the form does not meet it: 403 */
	const char *why;
	char condition[S3_FORM_CONDITION_LEN_MAX + 1]; /* what it is about, cut short, or "" */
};
struct s3_form_limits {
	uint64_t bytes_min, bytes_max;
};
/* Where the upload goes, and when: the key as it will be. */
struct s3_form_target {
	struct slice bucket, key;
	int64_t now_ms;
};
/* Holds the form's fields against the decoded policy. False: *ret_refusal. */
bool s3_form_check(struct slice policy, const struct s3_form *form,
	const struct s3_form_target *target, struct s3_form_limits *ret_limits,
	struct s3_form_refusal *ret_refusal);

/* In auth/auth.c: who a form's access key is, as the call's identity, with the secret that must
 * have signed it; and whether they may put the call's key. */
const struct s3_error *s3_form_identity(struct s3_call *call, struct slice access_key,
	struct slice token, char ret_secret[LIMIT_SECRET_KEY_LEN_MAX + 1]);
const struct s3_error *s3_form_authorize(struct s3_call *call);

/* The file's bytes out of a body that has come up to and into them: rest is what has come already.
 * -EFBIG: more than bytes_max. Closes inner. */
struct s3_form_source {
	struct flow_source source;
	struct flow_source *inner;
	struct flow_piece piece; /* of inner's, in part given out */
	bool has_piece, ended;
	bool over; /* nothing but what follows the file is left, and not read yet */
	struct flow_lender
		lender; /* the piece, while its first bytes are given out by themselves */
	uint8_t *aside; /* where it goes when its frames are called in; NULL: nowhere yet */
	uint32_t carry_len;
	char delimiter[4 + S3_FORM_BOUNDARY_MAX];
	uint32_t delimiter_len;
	char carry[2 * (4 + S3_FORM_BOUNDARY_MAX)];
	char given[2 * (4 + S3_FORM_BOUNDARY_MAX)]; /* the carry of the last borrowed piece */
	struct slice rest;			    /* borrowed until the end */
	uint64_t offset, bytes_max;
};
void s3_form_source_init(struct s3_form_source *self, struct flow_source *inner,
	struct slice boundary, struct slice rest, uint64_t bytes_max);

#endif
