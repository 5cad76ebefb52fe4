/* front/http/in_dp.c: the window of received bytes that heads and chunk framing are read from. */
#include "front/http/http_priv.h"

#include <errno.h>

static void in_compact(struct http_in *in)
{
	uint32_t have = in->end - in->start;

	if (in->start == in->floor)
		return;
	if (have)
		memmove(in->data + in->floor, in->data + in->start, have);
	in->start = in->floor;
	in->end = in->floor + have;
}

/* Receives at least one more byte after end, at most bytes_max. -EPIPE at the end, -ENOBUFS when
 * the window is full. */
static int http_in_more(struct http_in *in, uint32_t bytes_max)
{
	size_t got;
	int err;

	if (in->start == in->end || in->end == in->bytes_max)
		in_compact(in);
	if (in->end == in->bytes_max)
		return -ENOBUFS;
	err = in->recv(in->arg, in->data + in->end, MIN(bytes_max, in->bytes_max - in->end),
		HTTP_FRAMING, &got);
	if (err)
		return err;
	if (!got)
		return -EPIPE;
	in->end += (uint32_t)got;
	return 0;
}

int http_in_take(struct http_in *in, void *dst, size_t len, enum http_want want, size_t *ret_bytes)
{
	size_t have = in->end - in->start;

	if (!have)
		return in->recv(in->arg, dst, len, want, ret_bytes);
	len = MIN(len, have);
	if (want == HTTP_PAYLOAD)
		region_copy(dst, in->data + in->start, len, COPY_INLINE_IN);
	else
		memcpy(dst, in->data + in->start, len);
	in->start += (uint32_t)len;
	*ret_bytes = len;
	return 0;
}

/* The length of the line that ends in a CRLF, -EAGAIN when there is none yet, -EPROTO. */
static int line_end(const char *data, uint32_t len, bool lone_lf)
{
	uint32_t at = 0;

	while (at < len) {
		char byte = data[at];

		if (!byte || (byte == '\n' && !lone_lf))
			return -EPROTO;
		if (byte == '\r') {
			if (at + 1 == len)
				return -EAGAIN;
			return data[at + 1] == '\n' ? (int)at : -EPROTO;
		}
		at++;
	}
	return -EAGAIN;
}

int http_in_line(struct http_in *in, uint32_t len_max, bool lone_lf, struct slice *ret_line)
{
	int len, err;

	for (;;) {
		uint32_t have = in->end - in->start;

		len = line_end(in->data + in->start, MIN(have, len_max + 2), lone_lf);
		if (len != -EAGAIN)
			break;
		if (have >= len_max + 2)
			return -EMSGSIZE;
		err = http_in_more(in, HTTP_READ_AHEAD_BYTES);
		if (err)
			return err == -ENOBUFS ? -EMSGSIZE : err;
	}
	if (len < 0)
		return len;
	*ret_line = slice_of(in->data + in->start, (size_t)len);
	in->start += (uint32_t)len + 2;
	return 0;
}
