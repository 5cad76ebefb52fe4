/* tests/unit/client/fake_s3.c: the part of s3/s3.h that the native front calls, over objects in
 * memory: bodies up to 1,024 bytes on the heap (borrowed pieces), larger ones in the region's
 * frames (cache pieces). No signatures, one bucket. */
#include "rig.h"

#include "codec/capsule.h"
#include "store/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECTS_MAX  512u
#define CHUNKS_MAX   64u
#define RECORD_BYTES 1024u

struct object {
	bool used;
	bool coming; /* being put */
	char key[LIMIT_KEY_LEN_MAX + 1];
	uint64_t bytes;
	uint64_t etag;
	uint8_t record[RECORD_BYTES];
	struct store_object_watch *watches[4]; /* of leases */
	uint32_t chunk_count;
	struct region_span chunks[CHUNKS_MAX];
};

struct s3 {
	struct region *region;
	_Atomic uint32_t held;
	_Atomic uint64_t puts;
	bool released;
	uint32_t busy; /* a GET of a key that starts with "busy-" is answered the third time */
	struct fiber *holding[LIMIT_SESSION_REQUESTS_MAX];
	struct object objects[OBJECTS_MAX];
};

struct s3 *fake_s3_open(struct region *region)
{
	struct s3 *s3 = calloc(1, sizeof(*s3));

	s3->region = region;
	return s3;
}

static void object_drop(struct s3 *s3, struct object *object)
{
	for (uint32_t i = 0; i < object->chunk_count; i++)
		region_put(s3->region, object->chunks[i], OWNER_CACHE);
	for (uint32_t i = 0; i < ARRAY_LEN(object->watches); i++) {
		struct store_object_watch *watch = object->watches[i];

		object->watches[i] = NULL;
		if (watch)
			watch->ended(watch, false);
	}
	object->chunk_count = 0;
	object->coming = false;
	object->used = false;
}

uint64_t s3_lease_epoch(const struct s3 *s3)
{
	(void)s3;
	return 1;
}

void s3_lease_end(struct s3 *s3, struct store_object_watch *watch)
{
	for (uint32_t i = 0; i < OBJECTS_MAX; i++)
		for (uint32_t j = 0; j < ARRAY_LEN(s3->objects[i].watches); j++)
			if (s3->objects[i].watches[j] == watch)
				s3->objects[i].watches[j] = NULL;
}

/* Small objects are leased, as far as there is room. */
static void lease(const struct s3_request *request, struct object *object)
{
	uint32_t free_idx = 0;

	CHECK(request->lease->epoch == 1);
	while (free_idx < ARRAY_LEN(object->watches) && object->watches[free_idx])
		free_idx++;
	if (free_idx < ARRAY_LEN(object->watches) && object->bytes && !object->chunk_count &&
		object->bytes <= request->lease->bytes_max)
		object->watches[free_idx] = request->lease->copy(
			request->lease, slice_of(object->record, object->bytes));
}

void fake_s3_close(struct s3 *s3)
{
	for (uint32_t i = 0; i < OBJECTS_MAX; i++)
		object_drop(s3, &s3->objects[i]);
	free(s3);
}

uint64_t fake_s3_puts(struct s3 *s3)
{
	return s3->puts;
}

uint32_t fake_s3_held(struct s3 *s3)
{
	return s3->held;
}

void fake_s3_release(struct s3 *s3, struct flow_core *core)
{
	(void)core;
	s3->released = true;
	for (uint32_t i = 0; i < LIMIT_SESSION_REQUESTS_MAX; i++)
		if (s3->holding[i])
			fiber_wake(s3->holding[i]);
}

static void hold(struct s3 *s3)
{
	uint32_t slot = 0;

	while (s3->holding[slot])
		slot++;
	s3->holding[slot] = fiber_self();
	s3->held++;
	while (!s3->released)
		fiber_park();
	s3->held--;
	s3->holding[slot] = NULL;
}

static struct object *object_find(struct s3 *s3, struct slice key)
{
	for (uint32_t i = 0; i < OBJECTS_MAX; i++)
		if (s3->objects[i].used && slice_eq(slice_str(s3->objects[i].key), key))
			return &s3->objects[i];
	return NULL;
}

static struct object *object_make(struct s3 *s3)
{
	for (uint32_t i = 0; i < OBJECTS_MAX; i++)
		if (!s3->objects[i].used && !s3->objects[i].coming)
			return &s3->objects[i];
	return NULL;
}

/* ---- Its source and sink. ---- */

struct object_source {
	struct flow_source source;
	struct s3 *s3;
	struct object *object;
	uint64_t offset, end;
};

static int source_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct object_source *self = CONTAINER_OF(source, struct object_source, source);
	struct object *object = self->object;
	uint64_t left = self->end - self->offset;
	uint32_t chunk = (uint32_t)(self->offset / STORE_CHUNK_BYTES);
	uint32_t within = (uint32_t)(self->offset % STORE_CHUNK_BYTES);

	if (!left)
		return 0;
	if (!object->chunk_count) {
		*ret_piece = (struct flow_piece){.data = object->record + self->offset,
			.bytes = (uint32_t)left,
			.hold = FLOW_HOLD_BORROWED};
	} else {
		*ret_piece = (struct flow_piece){.span = object->chunks[chunk],
			.data = object->chunks[chunk].data + within,
			.bytes = (uint32_t)MIN(MIN(left, (uint64_t)STORE_CHUNK_BYTES - within),
				(uint64_t)bytes_max),
			.hold = FLOW_HOLD_CACHE};
		region_get(self->s3->region, object->chunks[chunk]);
	}
	self->offset += ret_piece->bytes;
	return 1;
}

static void source_close(struct flow_source *source)
{
	(void)source;
}

static const struct flow_source_ops SOURCE_OPS = {
	.name = "fake", .next = source_next, .close = source_close};

struct object_sink {
	struct flow_sink sink;
	struct s3 *s3;
	struct object *object;
};

/* Fills chunks of STORE_CHUNK_BYTES; the pieces of RDMA READs have exactly this size. */
static int sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct object_sink *self = CONTAINER_OF(sink, struct object_sink, sink);
	struct object *object = self->object;
	struct region_span span;

	if (object->bytes + piece->bytes <= RECORD_BYTES && !object->chunk_count) {
		memcpy(object->record + object->bytes, piece->data, piece->bytes);
		object->bytes += piece->bytes;
		flow_piece_end(sink->core, piece, OWNER_APP);
		return 0;
	}
	if (object->chunk_count == CHUNKS_MAX || object->bytes % STORE_CHUNK_BYTES) {
		flow_piece_end(sink->core, piece, OWNER_APP);
		return -EFBIG;
	}
	span = piece->span;
	if (piece->hold == FLOW_HOLD_LEASE) {
		region_switch(self->s3->region, span, OWNER_APP, OWNER_CACHE);
	} else {
		int ret = region_lease(
			sink->core->region, region_frames_for(piece->bytes), OWNER_CACHE, &span);

		if (ret)
			return ret;
		region_copy(span.data, piece->data, piece->bytes, COPY_INLINE_IN);
		flow_piece_end(sink->core, piece, OWNER_APP);
	}
	object->chunks[object->chunk_count++] = span;
	object->bytes += piece->bytes;
	return 0;
}

static int sink_finish(struct flow_sink *sink, bool failed)
{
	(void)sink;
	(void)failed;
	return 0;
}

static const struct flow_sink_ops SINK_OPS = {
	.name = "fake", .push = sink_push, .finish = sink_finish};

/* ---- Answers. ---- */

static void fail(struct s3_reply *reply, uint32_t status, const char *code)
{
	char xml[256];
	int len = snprintf(xml, sizeof(xml),
		"<Error><Code>%s</Code><Message>It&apos;s %s &amp; so on</Message></Error>", code,
		code);

	reply->ops->head(reply, status, NULL, 0, (uint64_t)len);
	reply->ops->text(reply, slice_of(xml, (size_t)len));
}

/* "bytes=first-last" only. */
static bool range_of(
	const struct s3_request *request, uint64_t bytes, uint64_t *first, uint64_t *end)
{
	*first = 0;
	*end = bytes;
	for (uint32_t i = 0; i < request->header_count; i++) {
		struct slice value = request->headers[i].value;
		struct slice low;

		if (!slice_eq_nocase(request->headers[i].name, SLICE("range")))
			continue;
		value = slice_from(value, 6);
		low = slice_split(&value, '-');
		if (slice_to_u64(low, first) || slice_to_u64(value, end) || *first >= bytes)
			return false;
		*end = MIN(*end + 1, bytes);
	}
	return true;
}

static void op_get(
	struct s3 *s3, const struct s3_request *request, struct s3_reply *reply, bool body)
{
	struct object *object = object_find(s3, request->key);
	struct object_source source = {.s3 = s3, .object = object};
	struct s3_header headers[3];
	struct flow_sink *sink;
	char etag[32];
	uint64_t moved;

	if (!object) {
		fail(reply, 404, "NoSuchKey");
		return;
	}
	if (slice_starts(request->key, SLICE("busy-")) && s3->busy++ % 3 < 2) {
		fail(reply, 503, "SlowDown");
		return;
	}
	if (slice_starts(request->key, SLICE("held-")))
		hold(s3);
	if (!range_of(request, object->bytes, &source.offset, &source.end)) {
		fail(reply, 416, "InvalidRange");
		return;
	}
	if (request->lease && body)
		lease(request, object);
	snprintf(etag, sizeof(etag), "\"%016llx\"", (unsigned long long)object->etag);
	headers[0] = (struct s3_header){SLICE("ETag"), slice_str(etag)};
	headers[1] = (struct s3_header){SLICE("Content-Type"), SLICE("text/plain")};
	headers[2] = (struct s3_header){SLICE("x-amz-meta-colour"), SLICE("blue")};
	source.source = (struct flow_source){
		.magic = FLOW_SOURCE_MAGIC, .ops = &SOURCE_OPS, .core = request->core};
	if (reply->ops->head(reply, source.end - source.offset < object->bytes ? 206 : 200, headers,
		    3, source.end - source.offset) ||
		!body || source.end == source.offset)
		return;
	if (reply->ops->sink(reply, &sink) || flow_run(&source.source, NULL, 0, sink, &moved) ||
		slice_starts(request->key, SLICE("broken-")))
		reply->broken = true;
}

/* If-None-Match: * */
static bool is_refused(struct s3 *s3, const struct s3_request *request)
{
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, SLICE("if-none-match")))
			return object_find(s3, request->key) != NULL;
	return false;
}

static void op_put(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply)
{
	struct object *object = object_make(s3);
	struct object *old;
	struct object_sink sink = {.s3 = s3, .object = object};
	struct flow_checksum checksum;
	struct flow_stage *stages[] = {&checksum.stage};
	struct s3_header header;
	struct flow_source *source;
	uint8_t digest[CHECKSUM_BYTES_MAX];
	char etag[32];
	uint64_t moved = 0;
	int ret;

	object->bytes = 0;
	object->chunk_count = 0;
	object->coming = true;
	sink.sink = (struct flow_sink){
		.magic = FLOW_SINK_MAGIC, .ops = &SINK_OPS, .core = request->core};
	flow_checksum_init(&checksum, CHECKSUM_CRC64NVME);
	ret = request->body->ops->open(request->body, NULL, &source);
	if (ret == 0)
		ret = flow_run(source, stages, 1, &sink.sink, &moved);
	if (ret || moved != request->body->bytes) {
		object_drop(s3, object);
		fail(reply, 400, "IncompleteBody");
		return;
	}
	if (is_refused(s3, request)) {
		object_drop(s3, object);
		fail(reply, 412, "PreconditionFailed");
		return;
	}
	s3->puts++;
	old = object_find(s3, request->key);
	if (old)
		object_drop(s3, old);
	object->used = true;
	object->coming = false;
	slice_copy_str(request->key, object->key, sizeof(object->key));
	checksum_final(&checksum.checksum, digest);
	memcpy(&object->etag, digest, sizeof(object->etag));
	snprintf(etag, sizeof(etag), "\"%016llx\"", (unsigned long long)object->etag);
	header = (struct s3_header){SLICE("ETag"), slice_str(etag)};
	if (slice_starts(request->key, SLICE("late-")))
		hold(s3);
	reply->ops->head(reply, 200, &header, 1, 0);
}

static void prefix_of(const struct s3_request *request, struct slice *ret_prefix)
{
	struct slice query = request->query;

	*ret_prefix = SLICE_NONE;
	while (query.len) {
		struct slice param = slice_split(&query, '&');
		struct slice name = slice_split(&param, '=');

		if (slice_eq(name, SLICE("prefix")))
			*ret_prefix = param;
	}
}

static void op_list(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply)
{
	struct slice prefix;
	struct buf xml;

	prefix_of(request, &prefix);
	buf_init(&xml, 4 * MIB);
	buf_put_str(&xml, "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>");
	for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
		const struct object *object = &s3->objects[i];

		if (!object->used || !slice_starts(slice_str(object->key), prefix))
			continue;
		buf_put_str(&xml, "<Contents><Key>");
		xml_escape(slice_str(object->key), &xml);
		buf_printf(&xml, "</Key><Size>%llu</Size><ETag>\"%016llx\"</ETag></Contents>",
			(unsigned long long)object->bytes, (unsigned long long)object->etag);
	}
	buf_put_str(&xml, "</ListBucketResult>");
	if (reply->ops->head(reply, 200, NULL, 0, xml.len) == 0 &&
		reply->ops->text(reply, buf_slice(&xml)) != 0)
		reply->broken = true;
	buf_free(&xml);
}

/* Answers with the routed request, so that a test sees its HTTP form. */
static void op_route(const struct s3_request *request, struct s3_reply *reply)
{
	struct buf text;

	buf_init(&text, 64 * KIB);
	buf_printf(&text, "%.*s %.*s?%.*s", SLICE_FMT(request->method_text),
		SLICE_FMT(request->path), SLICE_FMT(request->query));
	if (reply->ops->head(reply, 200, NULL, 0, text.len) == 0 &&
		reply->ops->text(reply, buf_slice(&text)) != 0)
		reply->broken = true;
	buf_free(&text);
}

void s3_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply)
{
	CHECK(request->session && request->session->root);
	switch (request->opcode) {
	case CAPSULE_OP_GET:
		op_get(s3, request, reply, true);
		break;
	case CAPSULE_OP_HEAD:
		op_get(s3, request, reply, false);
		break;
	case CAPSULE_OP_PUT:
		op_put(s3, request, reply);
		break;
	case CAPSULE_OP_DELETE: {
		struct object *object = object_find(s3, request->key);

		if (object)
			object_drop(s3, object);
		reply->ops->head(reply, 204, NULL, 0, 0);
		break;
	}
	case CAPSULE_OP_LIST:
		op_list(s3, request, reply);
		break;
	case 0:
		op_route(request, reply);
		break;
	}
}

int s3_session_key(struct s3 *s3, struct slice access_key, struct slice context,
	uint8_t ret_key[32], struct s3_identity *ret_identity)
{
	(void)s3;
	if (!slice_eq(access_key, SLICE(RIG_ACCESS_KEY)))
		return -ENOENT;
	capsule_auth_key(SLICE(RIG_SECRET_KEY), (const uint8_t *)context.data, ret_key);
	*ret_identity = (struct s3_identity){.root = true};
	slice_copy_str(access_key, ret_identity->access_key, sizeof(ret_identity->access_key));
	return 0;
}
