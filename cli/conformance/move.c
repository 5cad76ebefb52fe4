/* cli/conformance/move.c: rules 2xx and 3xx: bytes that move, of GetObject, PutObject and
 * UploadPart. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

/* ---- GET. ---- */

/* A GET of "object" into a window, with the expected answer and window. */
struct get {
	const char *range;
	uint32_t status;
	const char *reply;
	size_t window, at, bytes;
};

static enum conf_verdict get_try(struct conf *conf, const struct get *get)
{
	char moved[24];
	const struct conf_want want = {
		.status = get->status, .reply = get->reply, .moved = moved, .empty = true};
	struct conf_request request = {.method = "GET", .key = "object"};
	enum conf_verdict verdict;

	snprintf(moved, sizeof(moved), "%zu", get->bytes);
	if (get->range)
		request.headers[0] = (struct neb_header){"range", get->range};
	request.token = conf_window(conf, NEB_GET_OBJECT, get->window);
	if (!request.token)
		return CONF_ERROR;
	conf_memory_clear(conf);
	verdict = conf_ask(conf, &request, &want, NULL);
	if (verdict == CONF_PASS && !conf_memory_holds(conf, conf->object + get->at, get->bytes))
		verdict = CONF_FAIL;
	return verdict;
}

static enum conf_verdict get_whole(struct conf *conf)
{
	const struct get get = {.status = 200,
		.reply = "200",
		.window = CONF_OBJECT_BYTES,
		.bytes = CONF_OBJECT_BYTES};

	return get_try(conf, &get);
}

static enum conf_verdict get_larger_window(struct conf *conf)
{
	const struct get get = {.status = 200,
		.reply = "200",
		.window = CONF_OBJECT_BYTES + 4096,
		.bytes = CONF_OBJECT_BYTES};

	return get_try(conf, &get);
}

static enum conf_verdict get_range(struct conf *conf)
{
	static const struct get GETS[] = {
		{"bytes=0-0", 206, "206", 1, 0, 1},
		{"bytes=100-4195", 206, "206", 4096, 100, 4096},
		{"bytes=65530-65545", 206, "206", 8192, 65530, 16},
		{"bytes=70000-99999", 206, "206", 8192, 70000, 1},
		{"bytes=-10", 206, "206", 10, CONF_OBJECT_BYTES - 10, 10},
	};
	enum conf_verdict verdict = CONF_PASS;

	for (size_t i = 0; i < ARRAY_LEN(GETS) && verdict == CONF_PASS; i++)
		verdict = get_try(conf, &GETS[i]);
	return verdict;
}

static enum conf_verdict get_content_range(struct conf *conf)
{
	const struct conf_want want = {.status = 206};
	struct conf_request request = {
		.method = "GET", .key = "object", .headers = {{"range", "bytes=5-14"}}};
	struct conf_answer answer;
	enum conf_verdict verdict;
	const char *range;

	request.token = conf_window(conf, NEB_GET_OBJECT, 10);
	if (!request.token)
		return CONF_ERROR;
	verdict = conf_ask(conf, &request, &want, &answer);
	range = conf_header(&answer, "content-range");
	if (verdict == CONF_PASS && (!range || strcmp(range, "bytes 5-14/70001") != 0))
		verdict = conf_fail(conf, "content-range is %.60s", range ? range : "absent");
	conf_answer_free(&answer);
	return verdict;
}

static enum conf_verdict get_empty(struct conf *conf)
{
	const struct conf_want want = {.status = 200, .reply = "200", .moved = "0", .empty = true};
	struct conf_request request = {.method = "GET", .key = "empty"};

	if (!conf_object_put(conf, "empty", "", 0))
		return CONF_ERROR;
	request.token = conf_window(conf, NEB_GET_OBJECT, 100);
	return conf_ask_for_nothing(conf, &request, &want);
}

/* For an answer without a body no bytes move, and no header says that they did. */
static enum conf_verdict get_nothing(struct conf *conf, const char *key, struct neb_header header,
	uint32_t status, const char *code)
{
	const struct conf_want want = {.status = status, .code = code, .reply = "", .moved = ""};
	struct conf_request request = {.method = "GET", .key = key, .headers = {header}};

	request.token = conf_window(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES);
	return conf_ask_for_nothing(conf, &request, &want);
}

static enum conf_verdict get_absent(struct conf *conf)
{
	return get_nothing(conf, "absent", (struct neb_header){NULL, NULL}, 404, "NoSuchKey");
}

static enum conf_verdict get_past_end(struct conf *conf)
{
	return get_nothing(conf, "object", (struct neb_header){"range", "bytes=99999999-"}, 416,
		"InvalidRange");
}

static enum conf_verdict get_not_matching(struct conf *conf)
{
	return get_nothing(conf, "object",
		(struct neb_header){"if-match", "\"0123456789abcdef0123456789abcdef\""}, 412,
		"PreconditionFailed");
}

static enum conf_verdict get_etag(struct conf *conf)
{
	const struct conf_request head = {.method = "HEAD", .key = "object"};
	const struct conf_want want = {.status = 200};
	struct conf_request request = {.method = "GET", .key = "object"};
	struct conf_answer plain, answer;
	enum conf_verdict verdict = conf_ask(conf, &head, &want, &plain);
	const char *etag = conf_header(&plain, "etag"), *same;

	request.token = conf_window(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES);
	if (verdict != CONF_PASS || !request.token) {
		conf_answer_free(&plain);
		return CONF_ERROR;
	}
	verdict = conf_ask(conf, &request, &want, &answer);
	same = conf_header(&answer, "etag");
	if (verdict == CONF_PASS && (!same || !etag || strcmp(same, etag) != 0))
		verdict = conf_fail(conf, "the ETag is %.60s", same ? same : "absent");
	conf_answer_free(&plain);
	conf_answer_free(&answer);
	return verdict;
}

/* If the answer has a checksum of a known kind, it is that of the bytes in the window. */
static enum conf_verdict get_checksum(struct conf *conf)
{
	static const struct {
		const char *name;
		enum checksum_kind kind;
	} KINDS[] = {{"x-amz-checksum-crc64nvme", CHECKSUM_CRC64NVME},
		{"x-amz-checksum-crc32c", CHECKSUM_CRC32C},
		{"x-amz-checksum-crc32", CHECKSUM_CRC32},
		{"x-amz-checksum-sha256", CHECKSUM_SHA256}};
	const struct conf_want want = {.status = 206};
	struct conf_request request = {.method = "GET",
		.key = "object",
		.headers = {{"range", "bytes=1000-1999"}, {"x-amz-checksum-mode", "ENABLED"}}};
	enum conf_verdict verdict;
	struct conf_answer answer;

	request.token = conf_window(conf, NEB_GET_OBJECT, 1000);
	if (!request.token)
		return CONF_ERROR;
	verdict = conf_ask(conf, &request, &want, &answer);
	for (size_t i = 0; verdict == CONF_PASS && i < ARRAY_LEN(KINDS); i++) {
		const char *sum = conf_header(&answer, KINDS[i].name);
		char text[CHECKSUM_TEXT_LEN_MAX + 1] = "";
		uint8_t digest[CHECKSUM_BYTES_MAX];

		if (!sum)
			continue;
		checksum_of(KINDS[i].kind, conf->object + 1000, 1000, digest);
		text[base64_encode(digest, checksum_bytes(KINDS[i].kind), text)] = '\0';
		if (strcmp(sum, text) != 0)
			verdict = conf_fail(conf, "%s is %.60s, that of the bytes %s",
				KINDS[i].name, sum, text);
	}
	conf_answer_free(&answer);
	return verdict;
}

const struct conf_case CONF_MOVE[] = {
	{201,
		"GetObject moves the whole object: 200, reply 200, no body, "
		"the exact count of bytes.",
		get_whole},
	{202,
		"A window may be larger than the object; nothing behind the "
		"object's bytes is written.",
		get_larger_window},
	{203, "A range arrives at the beginning of the window: 206, reply 206.", get_range},
	{204, "The answer to a range has S3's Content-Range.", get_content_range},
	{205, "An empty object moves 0 bytes: 200, reply 200.", get_empty},
	{206, "An absent key is answered as without a token, and nothing is written.", get_absent},
	{207, "A range behind the end is answered as without a token, and nothing is written.",
		get_past_end},
	{208, "A precondition that fails is answered as without a token, and nothing is written.",
		get_not_matching},
	{209, "The answer has the object's ETag.", get_etag},
	{210, "A checksum of a range's answer is that of the bytes in the window.", get_checksum},
	{0},
};

/* ---- PUT and parts. ---- */

/* PUTs the window's first bytes as the object. */
static enum conf_verdict put_try(struct conf *conf, struct conf_request *request, size_t bytes,
	const struct conf_want *want, struct conf_answer *ret_answer)
{
	request->method = "PUT";
	request->token = conf_window(conf, NEB_PUT_OBJECT, bytes);
	if (!request->token) {
		if (ret_answer)
			*ret_answer = (struct conf_answer){0};
		return CONF_ERROR;
	}
	memcpy(conf_window_data(conf), conf->object, bytes);
	return conf_ask(conf, request, want, ret_answer);
}

static enum conf_verdict put_whole(struct conf *conf)
{
	static const size_t SIZES[] = {1, 4096, 65537, CONF_OBJECT_BYTES};
	const struct conf_want want = {.status = 200, .empty = true};
	struct conf_request request = {.key = "put"};

	for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
		struct conf_answer answer;
		enum conf_verdict verdict = put_try(conf, &request, SIZES[i], &want, &answer);
		const char *reply = conf_header(&answer, "x-amz-rdma-reply");
		bool replied = reply && (!strcmp(reply, "200") || !strcmp(reply, "204"));
		bool has_etag = conf_header(&answer, "etag") != NULL;

		conf_answer_free(&answer);
		if (verdict != CONF_PASS)
			return verdict;
		/* Checked first, because a server that overlooked the token has stored an empty
		 * object. */
		if (!conf_object_is(conf, "put", conf->object, SIZES[i]))
			return CONF_FAIL;
		if (!replied)
			return conf_fail(conf, "x-amz-rdma-reply is neither 200 nor 204");
		if (!has_etag)
			return conf_fail(conf, "no ETag");
	}
	return CONF_PASS;
}

static enum conf_verdict put_checksum(struct conf *conf)
{
	const struct conf_want good = {.status = 200};
	const struct conf_want bad = {
		.status = 400, .code = "BadDigest", .reply = "", .no_etag = true};
	uint8_t digest[CHECKSUM_BYTES_MAX];
	char text[CHECKSUM_TEXT_LEN_MAX + 1] = "";
	struct conf_request request = {
		.key = "summed", .headers = {{"x-amz-checksum-crc64nvme", text}}};
	enum conf_verdict verdict;

	checksum_of(CHECKSUM_CRC64NVME, conf->object, 5001, digest);
	text[base64_encode(digest, checksum_bytes(CHECKSUM_CRC64NVME), text)] = '\0';
	verdict = put_try(conf, &request, 5000, &bad, NULL);
	if (verdict == CONF_PASS && !conf_object_is(conf, "summed", NULL, 0))
		return CONF_FAIL;
	if (verdict == CONF_PASS)
		verdict = put_try(conf, &request, 5001, &good, NULL);
	if (verdict == CONF_PASS && !conf_object_is(conf, "summed", conf->object, 5001))
		verdict = CONF_FAIL;
	return verdict;
}

static enum conf_verdict put_md5(struct conf *conf)
{
	const struct conf_want want = {
		.status = 400, .code = "BadDigest", .reply = "", .no_etag = true};
	struct conf_request request = {
		.key = "md5", .headers = {{"content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="}}};
	enum conf_verdict verdict = put_try(conf, &request, 5000, &want, NULL);

	if (verdict == CONF_PASS && !conf_object_is(conf, "md5", NULL, 0))
		verdict = CONF_FAIL;
	return verdict;
}

static enum conf_verdict put_precondition(struct conf *conf)
{
	const struct conf_want want = {.status = 412, .reply = "", .no_etag = true};
	struct conf_request request = {.key = "kept", .headers = {{"if-none-match", "*"}}};
	enum conf_verdict verdict;

	if (!conf_object_put(conf, "kept", "kept", 4))
		return CONF_ERROR;
	verdict = put_try(conf, &request, 5000, &want, NULL);
	if (verdict == CONF_PASS && !conf_object_is(conf, "kept", (const uint8_t *)"kept", 4))
		verdict = CONF_FAIL;
	return verdict;
}

static enum conf_verdict put_metadata(struct conf *conf)
{
	const struct conf_want want = {.status = 200};
	const struct conf_request head = {.method = "HEAD", .key = "described"};
	struct conf_request request = {
		.key = "described", .headers = {{"x-amz-meta-colour", "blue"}}};
	struct conf_answer answer;
	enum conf_verdict verdict = put_try(conf, &request, 100, &want, NULL);
	const char *colour;

	if (verdict != CONF_PASS)
		return verdict;
	verdict = conf_ask(conf, &head, &want, &answer);
	colour = conf_header(&answer, "x-amz-meta-colour");
	if (verdict == CONF_PASS && (!colour || strcmp(colour, "blue") != 0))
		verdict = conf_fail(conf, "the object has not the metadata of its PUT");
	conf_answer_free(&answer);
	return verdict;
}

/* ---- Parts. ---- */

static bool upload_begin(struct conf *conf, const char *key, char query[600], char ret_id[200])
{
	const struct conf_request request = {.method = "POST", .key = key, .query = "uploads="};
	const struct conf_want want = {.status = 200};
	struct conf_answer answer;
	bool begun = conf_ask(conf, &request, &want, &answer) == CONF_PASS;
	struct buf id;

	snprintf(ret_id, 200, "%s", conf_element(&answer, "UploadId"));
	buf_init(&id, 600);
	uri_encode(slice_str(ret_id), 0, &id);
	snprintf(query, 600, "partNumber=1&uploadId=%.*s", SLICE_FMT(buf_slice(&id)));
	buf_free(&id);
	conf_answer_free(&answer);
	return begun && ret_id[0];
}

static bool upload_end(struct conf *conf, const char *method, const char *key, const char *query,
	const char *document)
{
	const struct conf_request request = {.method = method,
		.key = key,
		.query = strchr(query, '&') + 1,
		.body = document,
		.body_bytes = document ? strlen(document) : 0};
	struct conf_answer answer;
	bool ended = conf_send(conf, &request, &answer) && answer.status < 300;

	if (!ended)
		conf_fail(conf, "%s of the upload: status %u %s", method, answer.status,
			conf_element(&answer, "Code"));
	conf_answer_free(&answer);
	return ended;
}

static enum conf_verdict part_moves(struct conf *conf)
{
	const struct conf_want want = {.status = 200, .empty = true};
	char query[600], id[200], document[500];
	struct conf_request request = {.key = "parts", .query = query};
	struct conf_answer answer;
	enum conf_verdict verdict;

	if (!upload_begin(conf, "parts", query, id))
		return CONF_ERROR;
	verdict = put_try(conf, &request, 6001, &want, &answer);
	snprintf(document, sizeof(document),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
		"</CompleteMultipartUpload>",
		verdict == CONF_PASS && conf_header(&answer, "etag") ? conf_header(&answer, "etag")
								     : "");
	conf_answer_free(&answer);
	if (verdict != CONF_PASS) {
		upload_end(conf, "DELETE", "parts", query, NULL);
		return verdict;
	}
	if (!upload_end(conf, "POST", "parts", query, document) ||
		!conf_object_is(conf, "parts", conf->object, 6001))
		return CONF_FAIL;
	return CONF_PASS;
}

static enum conf_verdict part_got(struct conf *conf)
{
	const struct conf_want want = {
		.status = 206, .reply = "206", .moved = "70001", .empty = true};
	struct conf_request request = {.method = "GET", .key = "object", .query = "partNumber=1"};
	enum conf_verdict verdict;

	request.token = conf_window(conf, NEB_GET_OBJECT, CONF_OBJECT_BYTES);
	if (!request.token)
		return CONF_ERROR;
	conf_memory_clear(conf);
	verdict = conf_ask(conf, &request, &want, NULL);
	if (verdict == CONF_PASS && !conf_memory_holds(conf, conf->object, CONF_OBJECT_BYTES))
		verdict = CONF_FAIL;
	return verdict;
}

const struct conf_case CONF_STORE[] = {
	{301, "PutObject stores the window's bytes: 200, reply 200 or 204, ETag, no body.",
		put_whole},
	{302, "A checksum is compared with the window's bytes: 400 BadDigest, and nothing stored.",
		put_checksum},
	{303, "Content-MD5 is compared with the window's bytes: 400 BadDigest, and nothing stored.",
		put_md5},
	{304, "A precondition that fails leaves the object as it was.", put_precondition},
	{305, "Metadata headers are stored as without a token.", put_metadata},
	{306, "UploadPart stores the window's bytes as the part.", part_moves},
	{307, "GetObject with partNumber moves the part: 206, reply 206.", part_got},
	{0},
};
