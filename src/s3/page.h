/* s3/page.h: answers operators' requests with one page. */
#ifndef S3_PAGE_H
#define S3_PAGE_H

#include "s3/s3.h"

/* Answers with that body, which nobody may keep; a HEAD gets none of it. */
void s3_page_answer(const struct s3_request *request, struct s3_reply *reply, uint32_t status,
	struct slice type, struct slice body);
void s3_page_text(const struct s3_request *request, struct s3_reply *reply, uint32_t status,
	const char *text);
/* Answers with the metrics that make writes, on a helper thread: requests of this core do not wait
 * for them. Without a fiber, on this thread. */
typedef void s3_page_make_fn(void *arg, struct buf *out);
void s3_page_metrics(
	const struct s3_request *request, struct s3_reply *reply, s3_page_make_fn *make, void *arg);

#endif
