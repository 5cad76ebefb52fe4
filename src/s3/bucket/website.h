/* s3/bucket/website.h: a bucket as a website. Browsers' requests to the host
 * BUCKET.s3.website_domain are answered by pages: index and error documents, redirects, errors in
 * HTML. These requests are anonymous.
 *
 * Source: S3 User Guide, "Hosting a static website"; API reference, PutBucketWebsite. */
#ifndef S3_WEBSITE_H
#define S3_WEBSITE_H

#include "s3/core/call.h"

#define S3_WEBSITE_RULES_MAX 50u

struct s3_website_rule {
	struct s3_website_rule *next;
	struct slice prefix; /* empty: any key */
	uint32_t error;	     /* 0: before the object is looked up */
	struct slice host, protocol;
	uint32_t status;
	struct slice replace_prefix, replace_key; /* data NULL: the rule does not change it */
};
struct s3_website {
	struct slice index, error_key;
	struct slice all_host,
		all_protocol; /* all_host not empty: all requests are redirected there */
	struct s3_website_rule *rules;
};

/* The bucket of the website at the request's host; empty: none. */
struct slice s3_website_bucket(const struct s3_call *call);
/* Answers an error as a page. */
void s3_website_answer_error(struct s3_call *call, const struct s3_error *error);

#endif
