/* front/session/stream.c: a list of many pages as one request (docs/spec/wire.md section 6): each
 * page is written to a run of its own, with a RESPONSE that announces more, and the next page is
 * built while the client reads this one. */
#include <errno.h>

#include "base/life.h"
#include "front/session/native_priv.h"

DEFINE_COUNTER(pages_total, "nebulaio_native_streamed_pages_total", NULL,
	"Pages of lists that were followed by another page in the same request.");

#define TOKEN_BYTES_MAX (BASE64_LEN(LIMIT_KEY_LEN_MAX) + 1u)

/* The start of the next page, found in the previous page. */
struct native_stream {
	size_t token_len; /* 0: no more pages */
	char token[TOKEN_BYTES_MAX];
};

void native_stream_note(struct native_stream *stream, struct slice xml)
{
	struct slice token = xml_text(xml, "NextContinuationToken");

	stream->token_len = token.len < sizeof(stream->token) ? token.len : 0;
	if (stream->token_len)
		memcpy(stream->token, token.data, stream->token_len);
}

/* Writes the request's own parameters with a new start. */
static bool query_next(struct slice query, const struct native_stream *stream, struct buf *out)
{
	buf_reset(out);
	while (query.len) {
		struct slice param = slice_split(&query, '&');

		if (slice_starts(param, SLICE("continuation-token=")))
			continue;
		buf_put_slice(out, param);
		buf_put(out, "&", 1);
	}
	buf_put_str(out, "continuation-token=");
	uri_encode(slice_of(stream->token, stream->token_len), 0, out);
	return !out->failed;
}

/* Sends the built page and resets the request for the next page; false: this page must be the last.
 */
static bool page_send(struct native_request *request)
{
	struct capsule_response response;

	if (!life_holds() && native_answer_late(request))
		return false;
	native_response_fill(request, &response);
	response.flags |= CAPSULE_RESPONSE_MORE;
	if (request->inline_at || native_response_room(request, &response) ||
		native_respond_more(request, &response))
		return false;
	counter_add(&pages_total, 1);
	request->reply.status = 0;
	request->direct_offset = 0;
	request->bytes_announced = 0;
	request->bytes_moved = 0;
	request->headers_bytes = 0;
	request->header_count = 0;
	request->etag_len = 0;
	return true;
}

static bool goes_on(const struct native_request *request, uint32_t page)
{
	return page + 1 < request->in.run_count && request->stream->token_len &&
	       request->reply.status == 200 && !request->reply.broken && !request->refusal &&
	       request->session->phase == NATIVE_OPEN;
}

void native_stream_list(struct native_request *request)
{
	const struct capsule_run *runs = request->in.runs;
	struct native_stream stream = {.token_len = 0};
	struct slice query = request->s3.query;
	struct buf next;

	buf_init(&next, 2 * CAPSULE_QUERY_LEN_MAX + 3 * TOKEN_BYTES_MAX);
	if (request->session->streams)
		request->stream = &stream;
	for (uint32_t page = 0;; page++) {
		if (request->stream) {
			request->runs[0] = (struct flow_remote){.addr = runs[page].addr,
				.bytes = runs[page].bytes,
				.rkey = runs[page].rkey};
			request->peer.run_count = 1;
		}
		s3_handle(request->session->front->opts.s3, &request->s3, &request->reply);
		if (!request->stream || !goes_on(request, page) ||
			!query_next(query, &stream, &next) || !page_send(request))
			break;
		request->s3.query = buf_slice(&next);
	}
	request->stream = NULL;
	buf_free(&next);
}
