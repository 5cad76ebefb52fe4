/* front/kept/kept.h: keeps an answer of s3 until the bytes have moved by RDMA, and then gives it to
 * the connection of its request. */
#ifndef FRONT_KEPT_KEPT_H
#define FRONT_KEPT_KEPT_H

#include "s3/s3.h"

#define KEPT_HEADERS_MAX	(LIMIT_HTTP_HEADERS_MAX + 32u)
#define KEPT_HEADER_BYTES_MAX	LIMIT_HTTP_HEAD_BYTES_MAX
#define KEPT_DOCUMENT_BYTES_MAX (64 * KIB)

struct kept_reply {
	struct s3_reply reply;
	uint32_t header_count;
	uint32_t header_bytes;
	struct buf document;
	struct s3_header headers[KEPT_HEADERS_MAX];
	char header_data[KEPT_HEADER_BYTES_MAX];
};

/* ops: kept_reply_head and kept_reply_text, or functions that call them, and a sink. */
void kept_reply_init(struct kept_reply *kept, const struct s3_reply_ops *ops);
void kept_reply_free(struct kept_reply *kept);
int kept_reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes);
int kept_reply_text(struct s3_reply *reply, struct slice text);
/* Adds a header. -EMSGSIZE. */
int kept_reply_header(struct kept_reply *kept, struct slice name, struct slice value);
/* The value of a header, without regard to case; empty data: there is none. */
struct slice kept_reply_find(const struct kept_reply *kept, struct slice name);
/* Answers with it. */
void kept_reply_answer(const struct kept_reply *kept, struct s3_reply *reply);

#endif
