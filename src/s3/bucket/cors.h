/* s3/bucket/cors.h: decides by a bucket's CORS rules which pages of other origins may send
 * requests.
 *
 * Source: S3 API reference, PutBucketCors; Fetch standard, "CORS protocol". */
#ifndef S3_CORS_H
#define S3_CORS_H

#include "s3/core/call.h"

#define S3_CORS_RULES_MAX 100u

struct s3_cors_names {
	struct s3_cors_names *next;
	struct slice name;
};
struct s3_cors_rule {
	struct s3_cors_rule *next;
	struct s3_cors_names *origins, *methods, *headers;
	struct slice methods_text, exposed_text; /* joined by commas, as in headers */
	struct slice max_age;			 /* empty: not given */
};

#define S3_CORS_ORIGIN	"origin"
#define S3_CORS_METHOD	"access-control-request-method"
#define S3_CORS_HEADERS "access-control-request-headers"
#define S3_CORS_VARY	"Origin, Access-Control-Request-Headers, Access-Control-Request-Method"
/* Reads the request of a page from those headers. */
struct s3_cors_asked {
	struct slice origin, method, headers;
};
/* The first rule of the call's settings that allows the request; or NULL. The settings must have
 * rules. */
const struct s3_cors_rule *s3_cors_find(struct s3_call *call, const struct s3_cors_asked *asked);
/* Adds the headers of a rule that allows the request. */
void s3_cors_answer_rule(
	struct s3_call *call, const struct s3_cors_rule *rule, const struct s3_cors_asked *asked);

/* Adds the CORS headers for the request's origin to an answer that is not made yet, whether success
 * or error. A request without an Origin costs only a search of its headers. */
const struct s3_error *s3_cors_answer(struct s3_call *call);

#endif
