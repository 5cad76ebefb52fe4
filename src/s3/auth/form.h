/* s3/auth/form.h: uploads by browser forms: multipart/form-data as a stream, and the policy
 * document that limits a form's upload. Pure functions on plain buffers, except for the source.
 *
 * Source: RFC 7578; S3 API reference, "POST Object", "Creating a POST policy". */
#ifndef S3_FORM_H
#define S3_FORM_H

#include "s3/core/call.h"

#define S3_FORM_BYTES_MAX	 (64u * 1024u) /* of everything before the file's bytes */
#define S3_FORM_FIELDS_MAX	 96u
#define S3_FORM_BOUNDARY_MAX	 70u /* RFC 2046 section 5.1.1 */
#define S3_FORM_POLICY_DEPTH_MAX 8u

struct s3_form_field {
	struct slice name, value; /* compared without case */
};
struct s3_form {
	struct s3_form_field fields[S3_FORM_FIELDS_MAX]; /* all fields before the file */
	uint32_t count;
	struct slice file_name, file_type; /* as the browser sent them */
	size_t file_at;			   /* offset of the file's bytes in the text */
};
/* The boundary of a Content-Type; false: not multipart/form-data, or the boundary is invalid. */
bool s3_form_boundary(struct slice content_type, struct slice *ret_boundary);
/* Parses text up to the file's first byte. -EAGAIN: more text is needed; -EINVAL: not a valid form.
 * The form's slices point into text. */
int s3_form_parse(struct slice text, struct slice boundary, struct s3_form *ret_form);
/* A field's value; data NULL when the form lacks it. */
struct slice s3_form_field(const struct s3_form *form, struct slice name);

#define S3_FORM_CONDITION_LEN_MAX 255u

/* Whether a policy allows a form's upload: NULL, or the refusal. */
struct s3_form_refusal {
	bool malformed; /* the policy is invalid: 400; otherwise the form violates it: 403 */
	const char *why;
	char condition[S3_FORM_CONDITION_LEN_MAX + 1]; /* the subject, truncated, or "" */
};
struct s3_form_limits {
	uint64_t bytes_min, bytes_max;
};
/* The target and the time of the upload; key: the final key. */
struct s3_form_target {
	struct slice bucket, key;
	int64_t now_ms;
};
/* Checks the form's fields against the decoded policy. False: *ret_refusal. */
bool s3_form_check(struct slice policy, const struct s3_form *form,
	const struct s3_form_target *target, struct s3_form_limits *ret_limits,
	struct s3_form_refusal *ret_refusal);

/* In auth/auth.c: looks up the owner of a form's access key, and the secret that must have signed
 * the form; the owner is the caller once that is proven; and checks that the caller may put the
 * call's key. */
struct s3_secret {
	char text[LIMIT_SECRET_KEY_LEN_MAX + 1];
	bool root; /* of the server's root */
};
const struct s3_error *s3_form_secret(struct s3_call *call, struct slice access_key,
	struct slice token, struct s3_secret *ret_secret);
void s3_form_identify(
	struct s3_call *call, struct slice access_key, const struct s3_secret *secret);
const struct s3_error *s3_form_authorize(struct s3_call *call);

/* A source of the file's bytes from a body. rest is the part of the file that was read already.
 * -EFBIG: more than bytes_max. Closes inner. */
struct s3_form_source {
	struct flow_source source;
	struct flow_source *inner;
	struct flow_piece piece; /* inner's piece, partly delivered */
	bool has_piece, ended;
	bool over;		   /* only the bytes after the file are left, and they are unread */
	struct flow_lender lender; /* the piece, while its first bytes are delivered separately */
	uint8_t *aside; /* place of its bytes after its frames are called in; NULL: not allocated */
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
