/* s3/object/origin_list.h: lists of a bucket with an origin. */
#ifndef S3_OBJECT_ORIGIN_LIST_H
#define S3_OBJECT_ORIGIN_LIST_H

#include "s3/object/list.h"
#include "store/api.h"

/* Whether a list of the bucket has the origin's keys, too: not if the request says "local". */
bool s3_origin_lists(struct s3_call *call);
/* In place of store_list: one page of the origin's keys and of those that are here, in order; of a
 * key that is here, what is here. Sets list->more. */
const struct s3_error *s3_origin_list(struct s3_call *call, struct s3_list *list,
	const struct store_list_opts *opts, store_list_visit_fn *visit);

#endif
