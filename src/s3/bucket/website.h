/* s3/bucket/website.h: a bucket as a website: what a browser asks of the host
 * BUCKET.s3.website_domain is answered as pages: index and error documents, redirects, errors in
 * HTML. Nobody signs there.
 *
 * Source: S3 User Guide, "Hosting a static website"; API reference, PutBucketWebsite. */
#ifndef S3_WEBSITE_H
#define S3_WEBSITE_H

#include "s3/core/call.h"

#define S3_WEBSITE_RULES_MAX 50u

struct s3_website_rule {
	struct s3_website_rule *next;
	struct slice prefix; /* empty: any key */
	uint32_t error;	     /* 0: before anything is looked for */
	struct slice host, protocol;
	uint32_t status;
	struct slice replace_prefix, replace_key; /* data NULL: not that */
};
struct s3_website {
	struct slice index, error_key;
	struct slice all_host, all_protocol; /* all_host not empty: everything goes there */
	struct s3_website_rule *rules;
};

/* The bucket whose website the request's host is; empty: none. */
struct slice s3_website_bucket(const struct s3_call *call);
/* Answers an error as a page. */
void s3_website_answer_error(struct s3_call *call, const struct s3_error *error);

#endif
