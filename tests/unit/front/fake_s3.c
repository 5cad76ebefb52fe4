/* tests/unit/front/fake_s3.c: the S3 side of fake_s3.h. */
#include "fake_s3.h"

#include <errno.h>
#include <string.h>

#include "codec/capsule.h"
#include "reactor/reactor.h"

struct fake_s3 fake_s3;

void fake_s3_reset(void)
{
	memset(&fake_s3, 0, sizeof(fake_s3));
}

void fake_s3_key_go(void)
{
	fake_s3.hold_keys = false;
	fiber_wake(fake_s3.waiter);
}

int s3_session_key(struct s3 *s3, struct slice access_key, struct slice context,
	uint8_t ret_key[32], struct s3_identity *ret_identity)
{
	(void)s3;
	while (fake_s3.hold_keys) {
		fake_s3.waiter = fiber_self();
		fiber_park();
	}
	if (!slice_eq(access_key, slice_str(FAKE_ACCESS_KEY)))
		return -ENOENT;
	capsule_auth_key(slice_str(FAKE_SECRET_KEY), (const uint8_t *)context.data, ret_key);
	*ret_identity = (struct s3_identity){.root = true};
	slice_copy_str(access_key, ret_identity->access_key, sizeof(ret_identity->access_key));
	return 0;
}

void s3_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply)
{
	(void)s3;
	fake_s3.calls++;
	if (fake_s3.handle)
		fake_s3.handle(request, reply);
	else
		fake_answer(reply, 404,
			SLICE("<Error><Code>NoSuchKey</Code>"
			      "<Message>It&apos;s not there.</Message></Error>"));
}

uint64_t s3_lease_epoch(const struct s3 *s3)
{
	(void)s3;
	return 1;
}

void s3_lease_end(struct s3 *s3, struct store_object_watch *watch)
{
	(void)s3;
	(void)watch;
}

void fake_answer(struct s3_reply *reply, uint32_t status, struct slice text)
{
	if (reply->ops->head(reply, status, NULL, 0, text.len) ||
		(text.len && reply->ops->text(reply, text)))
		reply->broken = true;
}

int64_t fake_body(const struct s3_request *request, uint8_t *data, size_t bytes_max)
{
	struct flow_source *source;
	struct flow_piece piece;
	int64_t got = 0;
	int ret = request->body->ops->open(request->body, NULL, &source);

	if (ret)
		return ret;
	while ((ret = flow_source_next(source, STORE_CHUNK_BYTES, &piece)) == 1) {
		CHECK(piece.bytes <= bytes_max - (size_t)got);
		memcpy(data + got, piece.data, piece.bytes);
		got += piece.bytes;
		flow_piece_end(request->core, &piece, OWNER_APP);
	}
	flow_source_close(source);
	return ret ? ret : got;
}

uint8_t fake_byte(uint64_t offset)
{
	return (uint8_t)(offset * 7 + (offset >> 9));
}

int fake_send_bytes(struct flow_core *core, struct s3_reply *reply, uint64_t bytes,
	uint32_t piece_bytes, bool borrowed)
{
	static uint8_t elsewhere[256 * KIB];
	struct flow_sink *sink;
	uint64_t sent = 0;
	int ret = reply->ops->head(reply, 200, NULL, 0, bytes);
	int finished;

	if (!ret)
		ret = reply->ops->sink(reply, &sink);
	if (ret)
		return ret;
	while (!ret && sent < bytes) {
		struct flow_piece piece = {.offset = sent,
			.hold = borrowed ? FLOW_HOLD_BORROWED : FLOW_HOLD_LEASE,
			.data = elsewhere,
			.bytes = (uint32_t)MIN(bytes - sent, (uint64_t)piece_bytes)};

		CHECK(piece_bytes <= sizeof(elsewhere));
		if (!borrowed) {
			const struct flow_want want = {
				.frame_count = region_frames_for(piece.bytes),
				.owner = OWNER_APP,
				.deadline_ns = DEADLINE_NONE};

			ret = flow_piece_lease(core, &want, &piece);
			CHECK(!ret);
		}
		for (uint32_t i = 0; i < piece.bytes; i++)
			piece.data[i] = fake_byte(sent + i);
		sent += piece.bytes;
		ret = flow_sink_push(sink, &piece);
	}
	finished = flow_sink_finish(sink, ret != 0);
	reply->broken |= ret || finished;
	return ret ? ret : finished;
}

int fake_no_text(struct s3_reply *reply, struct slice text)
{
	(void)reply;
	(void)text;
	return 0;
}

int fake_no_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	(void)reply;
	(void)ret_sink;
	return -EOPNOTSUPP;
}
