/* base/buf.c: the growing, bounded text buffer. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

void buf_init(struct buf *buf, size_t bytes_max)
{
	*buf = (struct buf){.bytes_max = bytes_max};
}

void buf_free(struct buf *buf)
{
	free(buf->data);
	*buf = (struct buf){0};
}

void buf_reset(struct buf *buf)
{
	buf->len = 0;
	buf->failed = false;
}

static bool buf_reserve(struct buf *buf, size_t more)
{
	size_t need, cap;
	char *grown;

	if (buf->failed || __builtin_add_overflow(buf->len, more, &need) || need > buf->bytes_max) {
		buf->failed = true;
		return false;
	}
	if (need <= buf->cap)
		return true;
	cap = buf->cap ? buf->cap : 256;
	while (cap < need)
		cap *= 2;
	cap = MIN(cap, buf->bytes_max);
	grown = realloc(buf->data, cap);
	if (!grown) {
		buf->failed = true;
		return false;
	}
	buf->data = grown;
	buf->cap = cap;
	return true;
}

char *buf_room(struct buf *buf, size_t more)
{
	return buf_reserve(buf, more) ? buf->data + buf->len : NULL;
}

void buf_put(struct buf *buf, const void *data, size_t len)
{
	/* Nearly always there is room. */
	if (!len || ((len > buf->cap - buf->len || buf->failed) && !buf_reserve(buf, len)))
		return;
	memcpy(buf->data + buf->len, data, len);
	buf->len += len;
}

void buf_put_slice(struct buf *buf, struct slice s)
{
	buf_put(buf, s.data, s.len);
}

void buf_put_str(struct buf *buf, const char *str)
{
	buf_put(buf, str, strlen(str));
}

void buf_printf(struct buf *buf, const char *fmt, ...)
{
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	if (len < 0 || !buf_reserve(buf, (size_t)len + 1)) {
		buf->failed = true;
		return;
	}
	va_start(args, fmt);
	vsnprintf(buf->data + buf->len, (size_t)len + 1, fmt, args);
	va_end(args);
	buf->len += (size_t)len;
}
