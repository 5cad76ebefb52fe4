#include "native_rig.h"

#include "base/life.h"

static uint8_t client_memory[2 * MIB];
static uint8_t body[2 * MIB];

static struct capsule_run run_of(uint64_t offset, uint64_t bytes)
{
	return (struct capsule_run){.addr = (uint64_t)(uintptr_t)(client_memory + offset),
		.bytes = bytes,
		.rkey = FAKE_RKEY};
}

static bool is_pattern(const uint8_t *data, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (data[i] != fake_byte(i))
			return false;
	return true;
}

static const struct capsule_request GET = {
	.opcode = CAPSULE_OP_GET, .bucket = SLICE("bucket"), .key = SLICE("key")};
static const struct capsule_request PUT = {
	.opcode = CAPSULE_OP_PUT, .bucket = SLICE("bucket"), .key = SLICE("key")};

/* ---- The requests to s3. ---- */

static struct {
	uint8_t opcode;
	enum s3_method method;
	char path[256], query[256], headers[512];
	uint64_t body_bytes;
	bool etag_only;
} asked;

static void handle_noting(const struct s3_request *request, struct s3_reply *reply)
{
	char *at = asked.headers;

	memset(&asked, 0, sizeof(asked));
	asked.opcode = request->opcode;
	asked.method = request->method;
	asked.body_bytes = request->body->bytes;
	asked.etag_only = request->etag_only;
	slice_copy_str(request->path, asked.path, sizeof(asked.path));
	slice_copy_str(request->query, asked.query, sizeof(asked.query));
	for (uint32_t i = 0; i < request->header_count; i++)
		at += snprintf(at, sizeof(asked.headers) - (size_t)(at - asked.headers),
			"%.*s=%.*s;", (int)request->headers[i].name.len,
			request->headers[i].name.data, (int)request->headers[i].value.len,
			request->headers[i].value.data);
	fake_answer(reply, 200, SLICE_NONE);
}

static void opcodes_become_requests(void *arg)
{
	struct capsule_request request = GET;
	uint8_t headers[64];
	size_t headers_bytes = 0;
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_noting;
	peer_open(&peer);
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(asked.opcode, CAPSULE_OP_GET);
	assert_true(asked.etag_only);
	/* A version is in the query, so the request is routed. */
	request.version_id = SLICE("v/1");
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(asked.opcode, 0);
	assert_string_equal(asked.path, "/bucket/key");
	assert_string_equal(asked.query, "versionId=v%2F1");
	/* A range, a header, a checksum. */
	assert_int_equal(capsule_header_put(headers, sizeof(headers), &headers_bytes,
				 SLICE("x-amz-meta-a"), SLICE(" b ")),
		0);
	request = GET;
	request.flags = CAPSULE_REQUEST_RANGE | CAPSULE_REQUEST_HEADERS;
	request.range_offset = 5;
	request.range_bytes = 10;
	request.headers = slice_of(headers, headers_bytes);
	request.header_count = 1;
	request.checksum_kind = CHECKSUM_CRC32C;
	request.checksum = SLICE("\1\2\3\4");
	peer_expect(&peer, &request, 200, "");
	assert_false(asked.etag_only);
	assert_string_equal(
		asked.headers, "x-amz-meta-a=b;range=bytes=5-14;x-amz-checksum-crc32c=AQIDBA==;");
	/* A request that is written as HTTP, and any other. */
	request = (struct capsule_request){.opcode = CAPSULE_OP_LIST_PARTS,
		.bucket = SLICE("bucket"),
		.key = SLICE("a b/c"),
		.query = SLICE("uploadId=1")};
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(asked.method, S3_GET);
	assert_string_equal(asked.path, "/bucket/a%20b/c");
	assert_string_equal(asked.query, "uploadId=1");
	request = (struct capsule_request){.opcode = CAPSULE_OP_S3,
		.method = CAPSULE_METHOD_DELETE,
		.key = SLICE("/bucket?no"),
		.query = SLICE("cors")};
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(asked.method, S3_DELETE);
	assert_string_equal(asked.path, "/bucket?no");
	assert_string_equal(asked.query, "cors");
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(opcodes_become_requests);

/* ---- Refusals. ---- */

static void refused_before_they_run(void *arg)
{
	static uint8_t inline_body[4097];
	struct capsule_request request = {.opcode = 200};
	struct capsule_run run = run_of(0, 64 * MIB + 1);
	uint8_t headers[64];
	size_t headers_bytes = 0;
	uint8_t buf[4096] __attribute__((aligned(8)));
	struct peer peer;
	uint32_t len;

	(void)arg;
	peer_open(&peer);
	peer_expect(&peer, &request, 501, "NotImplemented");
	request.opcode = CAPSULE_OP_STATISTICS;
	peer_expect(&peer, &request, 501, "NotImplemented");
	/* A header of HTTP only. */
	assert_int_equal(capsule_header_put(headers, sizeof(headers), &headers_bytes, SLICE("Host"),
				 SLICE("elsewhere")),
		0);
	request = GET;
	request.headers = slice_of(headers, headers_bytes);
	request.header_count = 1;
	peer_expect(&peer, &request, 400, "MalformedCapsule");
	/* More than negotiated. */
	request = PUT;
	request.body = slice_of(inline_body, sizeof(inline_body));
	request.body_bytes = sizeof(inline_body);
	peer_expect(&peer, &request, 400, "InlineTooLarge");
	request = PUT;
	request.runs = &run;
	request.run_count = 1;
	request.body_bytes = 64 * MIB + 1;
	peer_expect(&peer, &request, 400, "TransferTooLarge");
	/* A tag without encryption. */
	request.body_bytes = 10;
	request.flags = CAPSULE_REQUEST_TAG;
	request.payload_tag = slice_of(inline_body, AEAD_TAG_BYTES);
	peer_expect(&peer, &request, 400, "MalformedCapsule");
	/* Inconsistent parts: only the request id is used. */
	len = peer_make(&peer, &GET, buf, sizeof(buf));
	((struct capsule_request_wire *)(void *)buf)->key_len++;
	peer.out.counter--;
	capsule_seal(&peer.out, buf);
	peer_deliver(&peer, buf, len);
	peer_response(&peer);
	assert_int_equal(peer.response.request_id, peer.next_id);
	assert_int_equal(peer.response.status, 400);
	assert_true(slice_eq(peer.response.code, SLICE("MalformedCapsule")));
	assert_int_equal(fake_s3.calls, 0);
	/* None of these harms the session. */
	peer_ping(&peer);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(refused_before_they_run);

/* An error's document becomes a code and a message with decoded entities. */
static void errors_are_told(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	peer_expect(&peer, &GET, 404, "NoSuchKey");
	assert_true(slice_eq(peer.response.message, SLICE("It's not there.")));
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(errors_are_told);

static void handle_silent(const struct s3_request *request, struct s3_reply *reply)
{
	(void)request;
	(void)reply;
}

static void handlers_that_do_not_answer(void *arg)
{
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_silent;
	peer_open(&peer);
	peer_expect(&peer, &GET, 500, "RDMATransferFailed");
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(handlers_that_do_not_answer);

/* ---- Request bodies. ---- */

static int64_t came;

static void handle_put(const struct s3_request *request, struct s3_reply *reply)
{
	came = fake_body(request, body, sizeof(body));
	fake_answer(reply, came == -EBADMSG ? 400 : came < 0 ? 500 : 200, SLICE_NONE);
}

static void bodies_come_in(void *arg)
{
	struct capsule_run runs[3] = {run_of(0, 1000), run_of(1000, MIB), run_of(1000 + MIB, MIB)};
	struct capsule_request request = PUT;
	struct peer peer;

	(void)arg;
	for (uint64_t i = 0; i < sizeof(client_memory); i++)
		client_memory[i] = fake_byte(i);
	fake_s3.handle = handle_put;
	peer_open(&peer);
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(came, 0);
	request.body = slice_of(client_memory, 3000);
	request.body_bytes = 3000;
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(came, 3000);
	assert_true(is_pattern(body, 3000));
	request = PUT;
	request.runs = runs;
	request.run_count = 3;
	request.body_bytes = 1000 + MIB + 5;
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(came, 1000 + MIB + 5);
	assert_true(is_pattern(body, 1000 + MIB + 5));
	/* Memory that the client has not registered. */
	runs[1].rkey++;
	peer_expect(&peer, &request, 500, "");
	assert_int_equal(came, -EACCES);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(bodies_come_in);

/* ---- Response bodies. ---- */

static uint64_t answer_bytes;
static uint32_t answer_piece;
static bool answer_borrowed;
static int answer_ret;

static void handle_get(const struct s3_request *request, struct s3_reply *reply)
{
	answer_ret =
		fake_send_bytes(request->core, reply, answer_bytes, answer_piece, answer_borrowed);
}

static void get_by_runs(struct peer *peer, uint64_t bytes, uint32_t piece, bool borrowed)
{
	struct capsule_run runs[2] = {run_of(0, MIB), run_of(MIB, MIB)};
	struct capsule_request request = GET;

	memset(client_memory, 0, sizeof(client_memory));
	answer_bytes = bytes;
	answer_piece = piece;
	answer_borrowed = borrowed;
	request.runs = runs;
	request.run_count = bytes > MIB ? 2 : 1;
	peer_expect(peer, &request, 200, "");
	assert_int_equal(answer_ret, 0);
	assert_int_equal(peer->response.bytes_moved, bytes);
	assert_int_equal(peer->response.bytes_total, bytes);
	assert_true(is_pattern(client_memory, bytes));
	assert_int_equal(client_memory[bytes], 0);
}

static void bodies_go_out(void *arg)
{
	struct capsule_request request = GET;
	struct capsule_run run = run_of(0, 99);
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_get;
	peer_open(&peer);
	/* Inline, because the request has no runs, or because the client asks for it. */
	answer_bytes = 3000;
	answer_piece = 1111;
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(peer.response.body.len, 3000);
	assert_true(is_pattern((const uint8_t *)peer.response.body.data, 3000));
	request.flags = CAPSULE_REQUEST_INLINE;
	run = run_of(0, MIB);
	request.runs = &run;
	request.run_count = 1;
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(peer.response.body.len, 3000);
	/* Before the answer, in one batch and in several; from the region and from other memory. */
	get_by_runs(&peer, 3000, 3000, false);
	get_by_runs(&peer, 3000, 3000, true);
	get_by_runs(&peer, 200 * KIB, 16 * KIB, false);
	get_by_runs(&peer, 200 * KIB, 64 * KIB, true);
	/* Through the rings, into one run and into two. */
	get_by_runs(&peer, 700 * KIB, 256 * KIB, false);
	get_by_runs(&peer, MIB + 10, 256 * KIB, false);
	/* The client's runs are shorter than the answer, or there are none. */
	request = GET;
	run = run_of(0, 2999);
	answer_bytes = 3000;
	request.runs = &run;
	request.run_count = 1;
	peer_expect(&peer, &request, 400, "BufferTooSmall");
	request.run_count = 0;
	answer_bytes = 5000;
	peer_expect(&peer, &request, 400, "BufferTooSmall");
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(bodies_go_out);

/* The store may have another owner by now. */
static void late_answers(void *arg)
{
	struct capsule_request request = GET;
	struct capsule_run run = run_of(0, MIB);
	static struct life life;
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_get;
	peer_open(&peer);
	answer_piece = 1000;
	life_renew(&life, 1);
	for (int i = 0; i < 2; i++) {
		answer_bytes = 3000;
		peer_expect(&peer, &request, 503, "SlowDown");
		assert_int_equal(peer.response.body.len, 0);
		assert_int_equal(peer.response.bytes_moved, 0);
		request.runs = &run;
		request.run_count = 1;
	}
	answer_bytes = 700 * KIB;
	peer_expect(&peer, &request, 503, "SlowDown");
	life_end(&life);
	peer_expect(&peer, &request, 200, "");
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(late_answers);

/* ---- Encrypted sessions. ---- */

static void encrypted_open(struct peer *peer)
{
	peer_init(peer);
	peer->features =
		CAPSULE_FEATURE_ENCRYPTION | CAPSULE_FEATURE_DEMAND | CAPSULE_FEATURE_PARTS;
	assert_int_equal(peer_accept(peer), 0);
	peer_challenge(peer);
	peer_prove(peer);
	assert_int_equal(((struct capsule_head *)peer_take(peer))->kind, CAPSULE_WELCOME);
}

/* Seals client_memory as the body of the next request. */
static void payload_seal(struct peer *peer, uint32_t bytes, uint8_t tag[AEAD_TAG_BYTES])
{
	struct aead_stream *stream;
	uint8_t nonce[AEAD_NONCE_BYTES];

	capsule_payload_nonce(peer->out.counter + 1, nonce);
	assert_int_equal(aead_stream_open(peer->payload_out, nonce, true, &stream), 0);
	assert_int_equal(aead_stream_update(stream, client_memory, client_memory, bytes), 0);
	assert_int_equal(aead_stream_end(stream, tag), 0);
	aead_stream_close(stream);
}

static void encrypted_bodies(void *arg)
{
	struct capsule_run run = run_of(0, MIB);
	struct capsule_request request = PUT;
	uint8_t tag[AEAD_TAG_BYTES];
	struct peer peer;

	(void)arg;
	encrypted_open(&peer);
	fake_s3.handle = handle_put;
	request.runs = &run;
	request.run_count = 1;
	request.body_bytes = 600 * KIB;
	/* Without a tag the request is malformed. */
	peer_expect(&peer, &request, 400, "MalformedCapsule");
	for (uint64_t i = 0; i < request.body_bytes; i++)
		client_memory[i] = fake_byte(i);
	request.flags = CAPSULE_REQUEST_TAG;
	request.payload_tag = slice_of(tag, sizeof(tag));
	payload_seal(&peer, 600 * KIB, tag);
	peer_expect(&peer, &request, 200, "");
	assert_int_equal(came, 600 * KIB);
	assert_true(is_pattern(body, 600 * KIB));
	/* The same encrypted body does not fit another request. */
	peer_expect(&peer, &request, 400, "PayloadTagMismatch");
	assert_int_equal(came, -EBADMSG);
	/* Response: sealed in frames, from the region and from other memory. */
	fake_s3.handle = handle_get;
	for (int borrowed = 0; borrowed < 2; borrowed++) {
		struct aead_stream *stream;
		uint8_t nonce[AEAD_NONCE_BYTES];

		answer_bytes = 100 * KIB;
		answer_piece = 64 * KIB;
		answer_borrowed = borrowed;
		request = GET;
		request.runs = &run;
		request.run_count = 1;
		capsule_payload_nonce(peer.out.counter + 1, nonce);
		peer_expect(&peer, &request, 200, "");
		assert_false(is_pattern(client_memory, 100 * KIB));
		assert_int_equal(peer.response.payload_tag.len, AEAD_TAG_BYTES);
		memcpy(tag, peer.response.payload_tag.data, sizeof(tag));
		assert_int_equal(aead_stream_open(peer.payload_in, nonce, false, &stream), 0);
		assert_int_equal(
			aead_stream_update(stream, client_memory, client_memory, 100 * KIB), 0);
		assert_int_equal(aead_stream_end(stream, tag), 0);
		aead_stream_close(stream);
		assert_true(is_pattern(client_memory, 100 * KIB));
	}
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(encrypted_bodies);

/* How many bytes of an answer's sealed body lie in the client's memory when it is told so; the
 * number of times. */
static uint32_t parts_take(struct peer *peer, uint64_t bytes)
{
	static uint8_t early[2 * MIB];
	uint64_t there = 0;
	uint32_t parts = 0;
	struct aead_stream *stream;
	uint8_t nonce[AEAD_NONCE_BYTES], tag[AEAD_TAG_BYTES];

	capsule_payload_nonce(peer->out.counter, nonce);
	while (peer_response(peer)->flags & CAPSULE_RESPONSE_MORE) {
		assert_int_equal(peer->response.status, 200);
		assert_true(
			peer->response.bytes_moved > there && peer->response.bytes_moved < bytes);
		memcpy(early + there, client_memory + there, peer->response.bytes_moved - there);
		there = peer->response.bytes_moved;
		parts++;
	}
	assert_int_equal(peer->response.status, 200);
	assert_int_equal(peer->response.bytes_moved, bytes);
	assert_memory_equal(early, client_memory, there);
	memcpy(tag, peer->response.payload_tag.data, sizeof(tag));
	assert_int_equal(aead_stream_open(peer->payload_in, nonce, false, &stream), 0);
	assert_int_equal(aead_stream_update(stream, client_memory, client_memory, bytes), 0);
	assert_int_equal(aead_stream_end(stream, tag), 0);
	aead_stream_close(stream);
	assert_true(is_pattern(client_memory, bytes));
	return parts;
}

static void encrypted_bodies_in_parts(void *arg)
{
	struct capsule_run runs[2] = {run_of(0, MIB), run_of(MIB, MIB)};
	struct capsule_request request = GET;
	struct peer peer;
	uint32_t parts;

	(void)arg;
	encrypted_open(&peer);
	assert_true(peer.challenge.features & CAPSULE_FEATURE_PARTS);
	fake_s3.handle = handle_get;
	request.runs = runs;
	for (int borrowed = 0; borrowed < 2; borrowed++) {
		answer_borrowed = borrowed;
		answer_piece = borrowed ? 256 * KIB : 16 * KIB;
		request.flags = CAPSULE_REQUEST_PARTS;
		/* Posted in order. */
		request.run_count = 1;
		answer_bytes = 900 * KIB + 5;
		peer_request(&peer, &request);
		assert_in_range(parts_take(&peer, answer_bytes), 4, CAPSULE_PARTS_MAX - 1);
		/* Through the rings. */
		request.run_count = 2;
		answer_bytes = 2 * MIB - 7;
		peer_request(&peer, &request);
		parts = parts_take(&peer, answer_bytes);
		assert_in_range(parts, 1, CAPSULE_PARTS_MAX - 1);
		/* Too small for parts, and not asked for. */
		request.run_count = 1;
		answer_bytes = 15 * KIB;
		peer_request(&peer, &request);
		assert_int_equal(parts_take(&peer, answer_bytes), 0);
		request.flags = 0;
		answer_bytes = 900 * KIB;
		peer_request(&peer, &request);
		assert_int_equal(parts_take(&peer, answer_bytes), 0);
	}
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(encrypted_bodies_in_parts);

/* No frames for steps: what is left is sealed in one, and waits for frames without holding any. */
static void encrypted_without_frames(void *arg)
{
	struct capsule_run run = run_of(0, MIB);
	struct capsule_request request = GET;
	struct peer peer;

	(void)arg;
	encrypted_open(&peer);
	fake_s3.handle = handle_get;
	answer_borrowed = true;
	answer_piece = 256 * KIB;
	answer_bytes = 400 * KIB;
	request.runs = &run;
	request.run_count = 1;
	request.flags = CAPSULE_REQUEST_PARTS;
	rig_frames_take();
	peer_request(&peer, &request);
	rig_settle();
	rig_frames_give();
	parts_take(&peer, answer_bytes);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(encrypted_without_frames);

/* One message of AES-GCM has a limit. Nothing of a longer answer is sent. */
static void encrypted_beyond_one_message(void *arg)
{
	struct capsule_run runs[2] = {run_of(0, MIB), run_of(MIB, 1ull << 37)};
	struct capsule_request request = GET;
	struct peer peer;

	(void)arg;
	encrypted_open(&peer);
	fake_s3.handle = handle_get;
	memset(client_memory, 0, sizeof(client_memory));
	answer_piece = 64 * KIB;
	answer_bytes = AEAD_MESSAGE_BYTES_MAX + 1;
	answer_ret = 0;
	request.runs = runs;
	request.run_count = 2;
	request.flags = CAPSULE_REQUEST_PARTS;
	peer_expect(&peer, &request, 400, "TransferTooLarge");
	assert_int_equal(answer_ret, -ECANCELED);
	assert_int_equal(peer.response.bytes_moved, 0);
	assert_int_equal(peer.response.bytes_total, answer_bytes);
	assert_int_equal(peer.response.payload_tag.len, 0);
	for (size_t i = 0; i < sizeof(client_memory); i++)
		assert_int_equal(client_memory[i], 0);
	/* This does not harm the session. */
	answer_bytes = 15 * KIB;
	request.flags = 0;
	peer_request(&peer, &request);
	assert_int_equal(parts_take(&peer, answer_bytes), 0);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(encrypted_beyond_one_message);

/* An answer that waited for a full send queue is sealed again when there is room: with the counter
 * of that time, and from its plain text. */
static void a_parked_answer_is_sealed_anew(void *arg)
{
	struct peer peer;

	(void)arg;
	encrypted_open(&peer);
	for (int i = 0; i < 3; i++) {
		fake.post_send_error = -ENOMEM;
		peer_ping(&peer);
		peer_expect(&peer, &GET, 404, "NoSuchKey");
	}
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(a_parked_answer_is_sealed_anew);

/* ---- Lists of many pages. ---- */

static uint32_t pages_left;

static void handle_list(const struct s3_request *request, struct s3_reply *reply)
{
	char text[256];
	int len = snprintf(text, sizeof(text), "<L><P>%u</P>%s</L>", pages_left,
		pages_left ? "<NextContinuationToken>a+b</NextContinuationToken>" : "");

	slice_copy_str(request->query, asked.query, sizeof(asked.query));
	if (pages_left)
		pages_left--;
	fake_answer(reply, 200, slice_of(text, (size_t)len));
}

static struct capsule_run page_runs[3];
static const struct capsule_request LIST = {.opcode = CAPSULE_OP_LIST,
	.flags = CAPSULE_REQUEST_STREAM,
	.bucket = SLICE("bucket"),
	.query = SLICE("prefix=x&continuation-token=old"),
	.runs = page_runs,
	.run_count = 3};

static void list_begin(uint32_t pages)
{
	for (uint32_t i = 0; i < 3; i++)
		page_runs[i] = run_of(i * 4096, 4096);
	memset(client_memory, 0, 3 * 4096);
	pages_left = pages;
	fake_s3.handle = handle_list;
}

static void pages_follow_each_other(void *arg)
{
	struct peer peer;
	uint64_t id;

	(void)arg;
	peer_open(&peer);
	list_begin(2);
	id = peer_request(&peer, &LIST);
	for (uint32_t i = 0; i < 3; i++) {
		peer_response(&peer);
		assert_int_equal(peer.response.request_id, id);
		assert_int_equal(peer.response.status, 200);
		assert_int_equal(!!(peer.response.flags & CAPSULE_RESPONSE_MORE), i < 2);
		assert_int_equal(client_memory[i * 4096 + 6], '2' - i);
	}
	assert_string_equal(asked.query, "prefix=x&continuation-token=a%2Bb");
	assert_int_equal(peer.session->in_flight, 0);
	/* As many as there are runs. */
	list_begin(9);
	peer_request(&peer, &LIST);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(!!(peer_response(&peer)->flags & CAPSULE_RESPONSE_MORE), i < 2);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(pages_follow_each_other);

/* A page that cannot be sent ends the session; its memory is not accessed again. */
static void a_page_that_cannot_be_sent(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	list_begin(2);
	fake.post_send_error = -EINVAL;
	peer_request(&peer, &LIST);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(a_page_that_cannot_be_sent);

/* ---- Scarce resources. ---- */

static void park(void *arg)
{
	bool *go = arg;

	while (!*go)
		fiber_yield();
}

/* Without a free fiber, a front refuses at once, outside fibers, where it may not wait for frames
 * or for room in the send queue. */
static void refusals_outside_fibers(void *arg)
{
	bool go = false;
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	while (fiber_spawn(rig, "park", park, &go) == 0)
		continue;
	peer_expect(&peer, &RIG_PING, 503, "SlowDown");
	assert_int_equal(peer.session->in_flight, 0);
	/* No frame for the refusal, either: the session ends, and nothing waits. */
	rig_frames_take();
	peer_request(&peer, &RIG_PING);
	peer_ended(&peer);
	rig_frames_give();
	go = true;
	fiber_yield();
	peer_open(&peer);
	go = false;
	while (fiber_spawn(rig, "park", park, &go) == 0)
		continue;
	fake.post_send_error = -ENOMEM;
	peer_request(&peer, &RIG_PING);
	peer_ended(&peer);
	go = true;
	rig_settle(); /* the parked fibers check it */
	rig_drain(0);
}
RIG_TEST(refusals_outside_fibers);

/* If an inline body fails after its start, the answer is a longer text, whatever a work request's
 * inline limit. */
static void handle_broken_inline(const struct s3_request *request, struct s3_reply *reply)
{
	(void)request;
	if (reply->ops->head(reply, 200, NULL, 0, 8) == 0) {
		struct flow_sink *sink;

		assert_int_equal(reply->ops->sink(reply, &sink), 0);
		assert_int_equal(flow_sink_finish(sink, true), 0);
	}
	reply->broken = true;
}

static void refusals_longer_than_the_answer(void *arg)
{
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_broken_inline;
	peer_open(&peer);
	assert_int_equal(peer.session->wr_inline_bytes, 100);
	peer_expect(&peer, &GET, 500, "RDMATransferFailed");
	assert_int_equal(peer.response.body.len, 0);
	peer_ping(&peer);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(refusals_longer_than_the_answer);

static void handle_headers(const struct s3_request *request, struct s3_reply *reply)
{
	static char value[2000];
	struct s3_header header = {SLICE("x-amz-meta-long"), slice_of(value, sizeof(value))};

	(void)request;
	memset(value, 'v', sizeof(value));
	assert_int_equal(reply->ops->head(reply, 200, &header, 1, 0), 0);
}

/* An answer that does not fit the client's receives becomes a refusal, not a broken connection. */
static void answers_larger_than_receives(void *arg)
{
	struct capsule_request request = GET;
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_headers;
	peer_init(&peer);
	peer.capsule_bytes = CAPSULE_BYTES_MIN;
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	peer_prove(&peer);
	assert_int_equal(((struct capsule_head *)peer_take(&peer))->kind, CAPSULE_WELCOME);
	request.flags = CAPSULE_REQUEST_HEADERS;
	peer_expect(&peer, &request, 400, "BufferTooSmall");
	peer_ping(&peer);
	peer_close(&peer);
	peer_open(&peer);
	peer_expect(&peer, &request, 200, "");
	assert_true(peer.response.headers.len > 2000);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(answers_larger_than_receives);

static void handle_dying(const struct s3_request *request, struct s3_reply *reply)
{
	struct flow_source *source;
	struct flow_sink *sink;

	native_session_fail(*(struct native_session **)fake_s3.arg, "the test says so");
	assert_int_equal(request->body->ops->open(request->body, NULL, &source), -ENOTCONN);
	assert_int_equal(reply->ops->head(reply, 200, NULL, 0, 100), 0);
	assert_int_equal(reply->ops->sink(reply, &sink), -ENOTCONN);
	reply->broken = true;
}

/* A request of an ended session does not access its queue pair, and does not wait for frames for an
 * answer. */
static void nobody_is_answered(void *arg)
{
	struct capsule_run run = run_of(0, MIB);
	struct capsule_request request = PUT;
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	fake_s3.handle = handle_dying;
	fake_s3.arg = &peer.session;
	request.runs = &run;
	request.run_count = 1;
	request.body_bytes = MIB;
	rig_frames_take();
	peer_request(&peer, &request);
	rig_settle();
	assert_int_equal(front_native_sessions(rig_front), 0);
	peer_ended(&peer);
	rig_frames_give();
	rig_drain(0);
}
RIG_TEST(nobody_is_answered);

/* A deadline that passes while no frames are free is answered, and does not end the session. */
static void no_frames_until_the_deadline(void *arg)
{
	struct capsule_request request = GET;
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	fake_s3.handle = handle_headers;
	request.flags = CAPSULE_REQUEST_HEADERS;
	request.deadline_ms = 20;
	rig_frames_take();
	peer_expect(&peer, &request, 503, "SlowDown");
	rig_frames_give();
	peer_expect(&peer, &request, 200, "");
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(no_frames_until_the_deadline);

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(opcodes_become_requests, 0),
		RIG_UNIT(refused_before_they_run, 0),
		RIG_UNIT(errors_are_told, 0),
		RIG_UNIT(handlers_that_do_not_answer, 0),
		RIG_UNIT(bodies_come_in, 0),
		RIG_UNIT(bodies_go_out, 0),
		RIG_UNIT(late_answers, 0),
		RIG_UNIT(encrypted_bodies, 0),
		RIG_UNIT(encrypted_bodies_in_parts, 0),
		RIG_UNIT(encrypted_without_frames, 0),
		RIG_UNIT(encrypted_beyond_one_message, 0),
		RIG_UNIT(a_parked_answer_is_sealed_anew, 0),
		RIG_UNIT(pages_follow_each_other, 0),
		RIG_UNIT(a_page_that_cannot_be_sent, .inline_bytes = UINT32_MAX),
		RIG_UNIT(refusals_outside_fibers, .inline_bytes = UINT32_MAX, .fibers_max = 4),
		RIG_UNIT(refusals_longer_than_the_answer, .inline_bytes = 100),
		RIG_UNIT(answers_larger_than_receives, 0),
		RIG_UNIT(nobody_is_answered, .inline_bytes = UINT32_MAX),
		RIG_UNIT(no_frames_until_the_deadline, 0),
	};

	return cmocka_run_group_tests_name("native request", tests, NULL, NULL);
}
