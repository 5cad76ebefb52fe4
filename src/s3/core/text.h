/* s3/core/text.h: syntax of S3 requests, on plain buffers: query strings, names, ranges. Pure
 * functions, any thread; they report invalid input by -errno. */
#ifndef S3_TEXT_H
#define S3_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define S3_PARAMS_MAX 64u

struct s3_param {
	struct slice name; /* decoded */
	struct slice value;
	bool has_value; /* there was a "=" */
};
struct s3_params {
	struct s3_param *items; /* in order of the query */
	uint32_t count;
};

/* Upper bound of the number of parameters in a query: the size that parse needs. */
uint32_t s3_query_count(struct slice query);
/* Decodes query into items (count of them) and memory (query.len bytes). "+" is a space. Empty
 * parts ("&&") are dropped. -EINVAL on a bad escape. */
int s3_query_parse(
	struct slice query, struct s3_param *items, char *memory, struct s3_params *ret_params);
/* The first parameter of that name. */
const struct s3_param *s3_query_find(const struct s3_params *params, struct slice name);

/* RFC 9110 section 14.1.2, as far as S3 serves it. */
enum s3_range_result {
	S3_RANGE_WHOLE, /* none, several, or malformed: the whole object */
	S3_RANGE_PART,
	S3_RANGE_UNSATISFIABLE,
};
enum s3_range_result s3_range_parse(
	struct slice text, uint64_t object_bytes, uint64_t *ret_offset, uint64_t *ret_bytes);

/* The address of a peer without its port: "192.0.2.1:1234", "[2001:db8::1]:1234". peer may be NULL.
 */
struct slice s3_peer_address(const char *peer);

/* The zone in a directory bucket's name; empty: not the name of a directory bucket. */
struct slice s3_express_zone(struct slice bucket);
/* A name that a client's bucket can have, also while directory buckets are switched off; the
 * server's own buckets have other names. */
bool s3_bucket_name_any(struct slice name);

#endif
