/* s3/bucket/cors.h: which pages of other origins may ask, by a bucket's rules.
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
	struct slice methods_text, exposed_text; /* joined, as headers have them */
	struct slice max_age;			 /* empty: not given */
};

#define S3_CORS_ORIGIN	"origin"
#define S3_CORS_METHOD	"access-control-request-method"
#define S3_CORS_HEADERS "access-control-request-headers"
#define S3_CORS_VARY	"Origin, Access-Control-Request-Headers, Access-Control-Request-Method"
/* The request of a page, from those headers. */
struct s3_cors_asked {
	struct slice origin, method, headers;
};
/* The first rule of the call's settings, which have some, that allows it; or NULL. */
const struct s3_cors_rule *s3_cors_find(struct s3_call *call, const struct s3_cors_asked *asked);
/* Adds the headers of a rule that allows what is asked for. */
void s3_cors_answer_rule(
	struct s3_call *call, const struct s3_cors_rule *rule, const struct s3_cors_asked *asked);

/* Adds what a page of the request's origin is told to an answer that is still to be made, of
 * whatever outcome. A request without an Origin costs a look at its headers. */
const struct s3_error *s3_cors_answer(struct s3_call *call);

#endif
