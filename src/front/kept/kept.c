/* front/kept/kept.c: see kept.h. */
#include "front/kept/kept.h"

#include <errno.h>
#include <string.h>

void kept_reply_init(struct kept_reply *kept, const struct s3_reply_ops *ops)
{
	kept->reply = (struct s3_reply){.ops = ops};
	kept->header_count = 0;
	kept->header_bytes = 0;
	buf_init(&kept->document, KEPT_DOCUMENT_BYTES_MAX);
}

void kept_reply_free(struct kept_reply *kept)
{
	buf_free(&kept->document);
}

static struct kept_reply *kept_of(struct s3_reply *reply)
{
	return CONTAINER_OF(reply, struct kept_reply, reply);
}

static bool text_keep(struct kept_reply *kept, struct slice *text)
{
	char *at = kept->header_data + kept->header_bytes;

	if (text->len > sizeof(kept->header_data) - kept->header_bytes)
		return false;
	if (text->len)
		memcpy(at, text->data, text->len);
	kept->header_bytes += (uint32_t)text->len;
	*text = slice_of(at, text->len);
	return true;
}

int kept_reply_header(struct kept_reply *kept, struct slice name, struct slice value)
{
	if (kept->header_count == KEPT_HEADERS_MAX || !text_keep(kept, &name) ||
		!text_keep(kept, &value))
		return -EMSGSIZE;
	kept->headers[kept->header_count++] = (struct s3_header){.name = name, .value = value};
	return 0;
}

struct slice kept_reply_find(const struct kept_reply *kept, struct slice name)
{
	for (uint32_t i = 0; i < kept->header_count; i++)
		if (slice_eq_nocase(kept->headers[i].name, name))
			return kept->headers[i].value;
	return SLICE_NONE;
}

int kept_reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	struct kept_reply *kept = kept_of(reply);
	int ret = 0;

	(void)bytes;
	reply->status = status;
	kept->header_count = 0;
	kept->header_bytes = 0;
	for (uint32_t i = 0; i < header_count && !ret; i++)
		ret = kept_reply_header(kept, headers[i].name, headers[i].value);
	return ret;
}

int kept_reply_text(struct s3_reply *reply, struct slice text)
{
	struct kept_reply *kept = kept_of(reply);

	buf_put_slice(&kept->document, text);
	return kept->document.failed ? -ENOMEM : 0;
}

void kept_reply_answer(const struct kept_reply *kept, struct s3_reply *reply)
{
	struct slice document = buf_slice(&kept->document);

	if (kept->reply.broken || !kept->reply.status ||
		reply->ops->head(reply, kept->reply.status, kept->headers, kept->header_count,
			document.len) ||
		(document.len && reply->ops->text(reply, document)))
		reply->broken = true;
}
