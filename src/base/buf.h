/* base/buf.h: a growing byte buffer for text that is built piece by piece (XML, headers, JSON). It
 * is bounded: past its maximum it takes no more bytes and sets `failed`. Not for payload. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct buf {
	char *data;
	size_t len;
	size_t cap;
	size_t bytes_max;
	bool failed; /* out of memory, or past bytes_max; the contents must not be used */
};

void buf_init(struct buf *buf, size_t bytes_max);
void buf_free(struct buf *buf);
void buf_reset(struct buf *buf);
void buf_put(struct buf *buf, const void *data, size_t len);
void buf_put_slice(struct buf *buf, struct slice s);
void buf_put_str(struct buf *buf, const char *str);
/* Room for so many bytes behind the text, to which the caller adds what it wrote, by len or by
 * buf_end; NULL: there is none, and the buffer has failed. */
char *buf_room(struct buf *buf, size_t more);

static inline void buf_end(struct buf *buf, const char *end)
{
	buf->len = (size_t)(end - buf->data);
}

void buf_printf(struct buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline void buf_put_byte(struct buf *buf, char byte)
{
	if (buf->len < buf->cap && !buf->failed)
		buf->data[buf->len++] = byte;
	else
		buf_put(buf, &byte, 1);
}

static inline struct slice buf_slice(const struct buf *buf)
{
	return slice_of(buf->data, buf->len);
}

#endif
