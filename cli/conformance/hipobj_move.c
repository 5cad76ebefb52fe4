/* cli/conformance/hipobj_move.c: rules 8xx: the bytes that READY moves by hipobj-rc-v2. */
#include "hipobj.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct conf_want MOVED = {.status = 200, .empty = true};

/* Checks that the answer describes the bytes that moved. */
static enum conf_verdict answer_check(
	struct hip *hip, const struct conf_answer *answer, const uint8_t *data)
{
	struct conf *conf = hip->conf;
	uint64_t digest = htobe64(crc64nvme_update(0, data, hip->bytes));
	char sum[64] = HIPOBJ_CHECKSUM;
	const char *text = conf_header(answer, "x-amz-rdma-bytes-transferred");
	const char *etag = conf_header(answer, "x-amz-rdma-etag");
	uint64_t cookie;

	sum[strlen(HIPOBJ_CHECKSUM) +
		base64_encode(&digest, sizeof(digest), sum + strlen(HIPOBJ_CHECKSUM))] = '\0';
	if (!text || strcmp(text, hip->size) != 0)
		return conf_fail(conf, "x-amz-rdma-bytes-transferred is %.20s and not %s",
			text ? text : "absent", hip->size);
	text = conf_header(answer, "x-amz-rdma-cookie");
	if (!text || hipobj_hex_parse(slice_str(text), 8, &cookie) || cookie != hip->cookie)
		return conf_fail(conf, "x-amz-rdma-cookie is not the session's");
	if (!etag || !*etag)
		return conf_fail(conf, "no x-amz-rdma-etag");
	text = conf_header(answer, "x-amz-rdma-checksum");
	if (!text || strcmp(text, sum) != 0)
		return conf_fail(conf, "x-amz-rdma-checksum is %.40s and not %s",
			text ? text : "absent", sum);
	text = conf_header(answer, "x-amz-rdma-protocol");
	return text && strcmp(text, HIPOBJ_PROTOCOL) == 0
		       ? CONF_PASS
		       : conf_fail(conf, "no x-amz-rdma-protocol: " HIPOBJ_PROTOCOL);
}

/* ---- GET. ---- */

/* Ends a prepared GET, and checks that its bytes are these. */
static enum conf_verdict get_finish(struct hip *hip, const uint8_t *data)
{
	struct conf *conf = hip->conf;
	struct conf_answer answer;
	enum conf_verdict verdict;
	uint32_t immediate;

	conf_memory_clear(conf);
	if (!conf_pair_receive(conf, &hip->pair))
		return CONF_ERROR;
	verdict = hip_ready(hip, &MOVED, &answer);
	if (verdict == CONF_PASS)
		verdict = answer_check(hip, &answer, data);
	conf_answer_free(&answer);
	if (verdict != CONF_PASS)
		return verdict;
	if (!conf_pair_received(conf, &immediate))
		return conf_fail(conf, "no immediate came behind the bytes");
	if (immediate != hip->cookie)
		return conf_fail(conf, "the immediate is not the cookie");
	return conf_memory_holds(conf, data, hip->bytes) ? CONF_PASS : CONF_FAIL;
}

static enum conf_verdict get(struct conf *conf, const char *offset, size_t first, size_t bytes)
{
	enum conf_verdict verdict = CONF_ERROR;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", bytes)) {
		if (offset)
			hip_header(&hip.prepare, "x-amz-rdma-offset", offset);
		verdict = hip_open(&hip);
		if (verdict == CONF_PASS)
			verdict = get_finish(&hip, conf->object + first);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict get_whole(struct conf *conf)
{
	return get(conf, NULL, 0, CONF_OBJECT_BYTES);
}

static enum conf_verdict get_range(struct conf *conf)
{
	return get(conf, "4099", 4099, 12345);
}

static enum conf_verdict get_says_nothing_of_http(struct conf *conf)
{
	enum conf_verdict verdict = CONF_ERROR;
	struct conf_answer answer;
	struct hip hip;

	if (!hip_begin(&hip, conf, "GET", "object", 100)) {
		hip_end(&hip);
		return verdict;
	}
	verdict = hip_open(&hip);
	if (verdict == CONF_PASS && conf_pair_receive(conf, &hip.pair)) {
		verdict = hip_ready(&hip, &MOVED, &answer);
		if (verdict == CONF_PASS &&
			(conf_header(&answer, "content-range") ||
				conf_header(&answer, "x-amz-checksum-crc64nvme")))
			verdict = conf_fail(
				conf, "the answer has a range or a checksum of the empty body");
		conf_answer_free(&answer);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict get_no_memory(struct conf *conf)
{
	static const char *const NAMES[] = {"x-amz-rdma-mr-addr", "x-amz-rdma-mr-rkey"};
	const struct conf_want want = {.status = 400, .code = "InvalidRDMARequest"};
	enum conf_verdict verdict = CONF_PASS;

	for (size_t i = 0; i < ARRAY_LEN(NAMES) && verdict == CONF_PASS; i++) {
		struct hip hip;

		verdict = hip_begin(&hip, conf, "GET", "object", 100) ? hip_open(&hip) : CONF_ERROR;
		if (verdict == CONF_PASS) {
			hip_header(&hip.ready, NAMES[i], NULL);
			verdict = hip_ready(&hip, &want, NULL);
		}
		hip_end(&hip);
	}
	return verdict;
}

static enum conf_verdict get_wrong_key(struct conf *conf)
{
	const struct conf_want want = {.status = 500, .code = "RDMATransferFailed"};
	enum conf_verdict verdict = CONF_ERROR;
	char key[17];
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "object", 100))
		verdict = hip_open(&hip);
	if (verdict == CONF_PASS) {
		conf_memory_clear(conf);
		snprintf(key, sizeof(key), "%x", conf_device_rkey(conf) ^ 0x7fffff00);
		hip_header(&hip.ready, "x-amz-rdma-mr-rkey", key);
		verdict = hip_ready(&hip, &want, NULL);
		if (verdict == CONF_PASS && !conf_memory_holds(conf, conf->object, 0))
			verdict = CONF_FAIL;
	}
	hip_end(&hip);
	return verdict;
}

/* ---- PUT. ---- */

static enum conf_verdict put_open(struct hip *hip, struct conf *conf, const char *key)
{
	if (!hip_begin(hip, conf, "PUT", key, CONF_OBJECT_BYTES / 2))
		return CONF_ERROR;
	conf_memory_clear(conf);
	memcpy(conf_window_data(conf), conf->object + 7, hip->bytes);
	return CONF_PASS;
}

static enum conf_verdict put_finish(struct hip *hip)
{
	struct conf_answer answer;
	enum conf_verdict verdict;

	if (!hip_write(hip))
		return conf_fail(hip->conf, "the write to the staging memory fails");
	verdict = hip_ready(hip, &MOVED, &answer);
	if (verdict == CONF_PASS)
		verdict = answer_check(hip, &answer, conf_window_data(hip->conf));
	conf_answer_free(&answer);
	return verdict;
}

static enum conf_verdict put_whole(struct conf *conf)
{
	struct hip hip;
	enum conf_verdict verdict = put_open(&hip, conf, "put");

	if (verdict == CONF_PASS)
		verdict = hip_open(&hip);
	if (verdict == CONF_PASS)
		verdict = put_finish(&hip);
	if (verdict == CONF_PASS && !conf_object_is(conf, "put", conf->object + 7, hip.bytes))
		verdict = CONF_FAIL;
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict put_metadata(struct conf *conf)
{
	const struct conf_request head = {.method = "HEAD", .key = "described"};
	struct conf_answer answer;
	struct hip hip;
	enum conf_verdict verdict = put_open(&hip, conf, "described");
	const char *colour;

	hip_header(&hip.prepare, "x-amz-meta-colour", "blue");
	if (verdict == CONF_PASS)
		verdict = hip_open(&hip);
	if (verdict == CONF_PASS)
		verdict = put_finish(&hip);
	hip_end(&hip);
	if (verdict != CONF_PASS)
		return verdict;
	if (!conf_send(conf, &head, &answer)) {
		conf_answer_free(&answer);
		return CONF_ERROR;
	}
	colour = conf_header(&answer, "x-amz-meta-colour");
	if (!colour || strcmp(colour, "blue") != 0)
		verdict = conf_fail(conf, "x-amz-meta-colour is not stored");
	conf_answer_free(&answer);
	return verdict;
}

/* A write of other bytes, or with another immediate. */
static enum conf_verdict put_wrong(struct conf *conf, uint32_t cookie_bits, size_t less)
{
	const struct conf_want want = {
		.status = 400, .code = "InvalidRDMARequest", .no_etag = true};
	struct hip hip;
	enum conf_verdict verdict = put_open(&hip, conf, "absent");

	if (verdict == CONF_PASS)
		verdict = hip_open(&hip);
	hip.cookie ^= cookie_bits;
	hip.bytes -= less;
	if (verdict == CONF_PASS && !hip_write(&hip))
		verdict = conf_fail(conf, "the write to the staging memory fails");
	if (verdict == CONF_PASS)
		verdict = hip_ready(&hip, &want, NULL);
	if (verdict == CONF_PASS && !conf_object_is(conf, "absent", NULL, 0))
		verdict = CONF_FAIL;
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict put_wrong_immediate(struct conf *conf)
{
	return put_wrong(conf, 0x100, 0);
}

static enum conf_verdict put_too_short(struct conf *conf)
{
	return put_wrong(conf, 0, 1);
}

static enum conf_verdict put_condition(struct conf *conf)
{
	const struct conf_want want = {.status = 412, .code = "PreconditionFailed"};
	struct hip hip;
	enum conf_verdict verdict = put_open(&hip, conf, "object");

	hip_header(&hip.prepare, "if-none-match", "*");
	if (verdict == CONF_PASS)
		verdict = hip_open(&hip);
	if (verdict == CONF_PASS && !hip_write(&hip))
		verdict = conf_fail(conf, "the write to the staging memory fails");
	if (verdict == CONF_PASS)
		verdict = hip_ready(&hip, &want, NULL);
	if (verdict == CONF_PASS &&
		!conf_object_is(conf, "object", conf->object, CONF_OBJECT_BYTES))
		verdict = CONF_FAIL;
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict part(struct conf *conf, char *query, size_t query_bytes)
{
	const struct conf_request begin = {.method = "POST", .key = "parts", .query = "uploads="};
	const struct conf_want want = {.status = 200};
	struct conf_answer answer;
	enum conf_verdict verdict = conf_ask(conf, &begin, &want, &answer);

	snprintf(query, query_bytes, "partNumber=1&uploadId=%.100s",
		conf_element(&answer, "UploadId"));
	conf_answer_free(&answer);
	return verdict;
}

static enum conf_verdict put_part(struct conf *conf)
{
	char query[160], document[300];
	struct conf_request end = {.method = "POST", .key = "parts", .body = document};
	const struct conf_want want = {.status = 200};
	struct conf_answer answer;
	struct hip hip;
	enum conf_verdict verdict = part(conf, query, sizeof(query));

	if (verdict != CONF_PASS)
		return verdict;
	verdict = put_open(&hip, conf, "parts");
	hip_query(&hip, query);
	if (verdict == CONF_PASS)
		verdict = hip_open(&hip);
	if (verdict == CONF_PASS && !hip_write(&hip))
		verdict = conf_fail(conf, "the write to the staging memory fails");
	if (verdict == CONF_PASS) {
		verdict = hip_ready(&hip, &MOVED, &answer);
		snprintf(document, sizeof(document),
			"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%.80s"
			"</ETag></Part></CompleteMultipartUpload>",
			conf_header(&answer, "x-amz-rdma-etag")
				? conf_header(&answer, "x-amz-rdma-etag")
				: "");
		conf_answer_free(&answer);
	}
	hip_end(&hip);
	end.query = strstr(query, "uploadId=");
	end.body_bytes = strlen(document);
	if (verdict == CONF_PASS)
		verdict = conf_ask(conf, &end, &want, NULL);
	if (verdict == CONF_PASS && !conf_object_is(conf, "parts", conf->object + 7, hip.bytes))
		verdict = CONF_FAIL;
	return verdict;
}

const struct conf_case CONF_HIP_MOVE[] = {
	{801,
		"READY of a GET moves the object to the client's memory, and the cookie behind "
		"it as an immediate: 200, no body; the count of bytes, the cookie, the ETag and "
		"the bytes' CRC64NVME.",
		get_whole},
	{802, "A GET with an offset and a size moves those bytes to the memory's beginning.",
		get_range},
	{803, "The answer has no range and no S3 checksum, which would be of the empty body.",
		get_says_nothing_of_http},
	{804, "READY of a GET without an address or a key is refused with 400 InvalidRDMARequest.",
		get_no_memory},
	{805,
		"A GET to a key that is none is answered 500 RDMATransferFailed, and nothing is "
		"written.",
		get_wrong_key},
	{811,
		"READY of a PUT stores the bytes that the client wrote: 200, no body; the count of "
		"bytes, the cookie, the ETag and the bytes' CRC64NVME.",
		put_whole},
	{812, "Metadata headers of PREPARE are stored.", put_metadata},
	{813, "A PUT with another immediate is refused with 400, and nothing is stored.",
		put_wrong_immediate},
	{814, "A PUT of fewer bytes than announced is refused with 400, and nothing is stored.",
		put_too_short},
	{815, "A precondition that fails leaves the object as it was: 412.", put_condition},
	{816, "A target with partNumber and uploadId stores a part.", put_part},
	{0},
};
