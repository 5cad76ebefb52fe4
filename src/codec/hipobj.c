/* codec/hipobj.c: names, token and control headers of the dialect hipobj-rc-v2. */
#include "codec/hipobj.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "codec/text.h"

static const struct slice headers[HIPOBJ_H_COUNT] = {
	[HIPOBJ_H_PROTOCOL] = SLICE("x-amz-rdma-protocol"),
	[HIPOBJ_H_STATUS] = SLICE("x-amz-rdma-protocol-status"),
	[HIPOBJ_H_TOKEN] = SLICE("x-amz-rdma-token"),
	[HIPOBJ_H_REPLY] = SLICE("x-amz-rdma-reply"),
	[HIPOBJ_H_SESSION] = SLICE("x-amz-rdma-session"),
	[HIPOBJ_H_PSN] = SLICE("x-amz-rdma-psn"),
	[HIPOBJ_H_QPN] = SLICE("x-amz-rdma-qpn"),
	[HIPOBJ_H_COOKIE] = SLICE("x-amz-rdma-cookie"),
	[HIPOBJ_H_OP] = SLICE("x-amz-rdma-op"),
	[HIPOBJ_H_TARGET] = SLICE("x-amz-rdma-target"),
	[HIPOBJ_H_SIZE] = SLICE("x-amz-rdma-size"),
	[HIPOBJ_H_OFFSET] = SLICE("x-amz-rdma-offset"),
	[HIPOBJ_H_ADDR] = SLICE("x-amz-rdma-mr-addr"),
	[HIPOBJ_H_RKEY] = SLICE("x-amz-rdma-mr-rkey"),
	[HIPOBJ_H_BYTES] = SLICE("x-amz-rdma-bytes-transferred"),
	[HIPOBJ_H_ETAG] = SLICE("x-amz-rdma-etag"),
	[HIPOBJ_H_VERSION] = SLICE("x-amz-rdma-version-id"),
	[HIPOBJ_H_CHECKSUM] = SLICE("x-amz-rdma-checksum"),
	[HIPOBJ_H_CAPABILITIES] = SLICE("x-amz-rdma-capabilities"),
};

struct slice hipobj_header(enum hipobj_header header)
{
	return headers[header];
}

/* ---- The token. ---- */

struct wire_token {
	uint8_t transport;
	uint32_t qpn;
	uint8_t gid[16];
	uint32_t rkey;
	uint64_t addr;
	uint64_t bytes;
	uint8_t port;
	uint16_t lid;
} __attribute__((packed));
_Static_assert(sizeof(struct wire_token) * 2 == HIPOBJ_TOKEN_LEN, "44 bytes in hex");

int hipobj_hex_parse(struct slice text, uint32_t digits_max, uint64_t *ret_number)
{
	uint64_t number = 0;

	if (!text.len || text.len > digits_max)
		return -EINVAL;
	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];

		if (c >= '0' && c <= '9')
			number = number << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			number = number << 4 | (uint64_t)(c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			number = number << 4 | (uint64_t)(c - 'A' + 10);
		else
			return -EINVAL;
	}
	*ret_number = number;
	return 0;
}

/* Address and length behind a token: READY has the window, so they say nothing. */
static bool appended_valid(struct slice text)
{
	struct slice addr = slice_split(&text, ':');
	uint64_t number;

	return hipobj_hex_parse(addr, 16, &number) == 0 && hipobj_hex_parse(text, 16, &number) == 0;
}

int hipobj_token_parse(struct slice text, struct hipobj_token *ret_token)
{
	struct wire_token wire;

	if (text.len < HIPOBJ_TOKEN_LEN ||
		hex_decode(slice_to(text, HIPOBJ_TOKEN_LEN), &wire, sizeof(wire)))
		return -EINVAL;
	text = slice_from(text, HIPOBJ_TOKEN_LEN);
	if (text.len && (text.data[0] != ':' || !appended_valid(slice_from(text, 1))))
		return -EINVAL;
	*ret_token = (struct hipobj_token){
		.transport = wire.transport,
		.qpn = le32toh(wire.qpn),
		.rkey = le32toh(wire.rkey),
		.addr = le64toh(wire.addr),
		.bytes = le64toh(wire.bytes),
		.port = wire.port,
		.lid = le16toh(wire.lid),
	};
	memcpy(ret_token->gid, wire.gid, sizeof(wire.gid));
	return 0;
}

void hipobj_token_format(const struct hipobj_token *token, char *ret_text)
{
	struct wire_token wire = {
		.transport = token->transport,
		.qpn = htole32(token->qpn),
		.rkey = htole32(token->rkey),
		.addr = htole64(token->addr),
		.bytes = htole64(token->bytes),
		.port = token->port,
		.lid = htole16(token->lid),
	};

	memcpy(wire.gid, token->gid, sizeof(wire.gid));
	hex_encode(&wire, sizeof(wire), ret_text);
}

int hipobj_reply_parse(struct slice text, struct hipobj_token *ret_token)
{
	if (text.len != 4 + HIPOBJ_TOKEN_LEN || !slice_starts(text, SLICE("200")) ||
		(text.data[3] != ':' && text.data[3] != ' '))
		return -EINVAL;
	return hipobj_token_parse(slice_from(text, 4), ret_token);
}

/* ---- Control requests. ---- */

static const struct slice paths[HIPOBJ_STEPS] = {
	[HIPOBJ_PREPARE] = SLICE("/.hipobj-rc/prepare"),
	[HIPOBJ_READY] = SLICE("/.hipobj-rc/ready"),
	[HIPOBJ_CANCEL] = SLICE("/.hipobj-rc/cancel"),
};

struct slice hipobj_path(enum hipobj_step step)
{
	return paths[step];
}

int hipobj_step_of(struct slice path, enum hipobj_step *ret_step)
{
	for (int i = 0; i < HIPOBJ_STEPS; i++) {
		if (!slice_eq(path, paths[i]))
			continue;
		*ret_step = (enum hipobj_step)i;
		return 0;
	}
	return -ENOENT;
}

/* A number that is not 0 and at most max. */
static const char *take_hex(struct slice value, uint64_t max, uint32_t *ret_number, const char *why)
{
	uint64_t number;

	if (hipobj_hex_parse(value, 16, &number) || !number || number > max)
		return why;
	*ret_number = (uint32_t)number;
	return NULL;
}

static const char *take_op(struct hipobj_request *request, struct slice value)
{
	request->put = slice_eq(value, SLICE("PUT"));
	return request->put || slice_eq(value, SLICE("GET"))
		       ? NULL
		       : "x-amz-rdma-op is neither GET nor PUT.";
}

static const char *take_target(struct hipobj_request *request, struct slice value)
{
	static const char *why = "x-amz-rdma-target is not /bucket/key.";
	struct slice rest = value, bucket;

	request->path = slice_split(&rest, '?');
	request->query = rest;
	if (value.len > HIPOBJ_TARGET_MAX || !request->path.len || request->path.data[0] != '/')
		return why;
	rest = slice_from(request->path, 1);
	bucket = slice_split(&rest, '/');
	return bucket.len && rest.len ? NULL : why;
}

static const char *take_size(struct hipobj_request *request, struct slice value)
{
	if (slice_to_u64(value, &request->size) || !request->size)
		return "x-amz-rdma-size is not a decimal number above 0.";
	request->too_large = request->size > HIPOBJ_SIZE_MAX;
	return NULL;
}

static const char *take_value(
	struct hipobj_request *request, enum hipobj_header header, struct slice value)
{
	uint64_t number;

	switch (header) {
	case HIPOBJ_H_PROTOCOL:
		request->other_protocol = !slice_eq(value, SLICE(HIPOBJ_PROTOCOL));
		return NULL;
	case HIPOBJ_H_TOKEN:
		return hipobj_token_parse(value, &request->token)
			       ? "x-amz-rdma-token is not 88 hexadecimal digits."
			       : NULL;
	case HIPOBJ_H_SESSION:
		return hex_decode(value, request->session, sizeof(request->session))
			       ? "x-amz-rdma-session is not 32 hexadecimal digits."
			       : NULL;
	case HIPOBJ_H_PSN:
		return take_hex(value, HIPOBJ_NUMBER_MAX, &request->psn,
			"x-amz-rdma-psn is not a hexadecimal number of 24 bits above 0.");
	case HIPOBJ_H_QPN:
		return take_hex(value, HIPOBJ_NUMBER_MAX, &request->qpn,
			"x-amz-rdma-qpn is not a hexadecimal number of 24 bits above 0.");
	case HIPOBJ_H_COOKIE:
		return take_hex(value, UINT32_MAX, &request->cookie,
			"x-amz-rdma-cookie is not a hexadecimal number of 32 bits above 0.");
	case HIPOBJ_H_OP:
		return take_op(request, value);
	case HIPOBJ_H_TARGET:
		return take_target(request, value);
	case HIPOBJ_H_SIZE:
		return take_size(request, value);
	case HIPOBJ_H_OFFSET:
		return slice_to_u64(value, &request->offset)
			       ? "x-amz-rdma-offset is not a decimal number."
			       : NULL;
	case HIPOBJ_H_ADDR:
		return hipobj_hex_parse(value, 16, &request->addr)
			       ? "x-amz-rdma-mr-addr is not a hexadecimal number."
			       : NULL;
	case HIPOBJ_H_RKEY:
		if (hipobj_hex_parse(value, 8, &number))
			return "x-amz-rdma-mr-rkey is not a hexadecimal number.";
		request->rkey = (uint32_t)number;
		return NULL;
	default: /* of answers */
		return NULL;
	}
}

bool hipobj_take(struct hipobj_request *request, struct slice name, struct slice value)
{
	for (int i = 0; i < HIPOBJ_H_COUNT; i++) {
		const char *why;

		if (!slice_eq_nocase(name, headers[i]))
			continue;
		request->twice |= (request->seen & 1u << i) != 0;
		request->seen |= 1u << i;
		why = take_value(request, (enum hipobj_header)i, value);
		if (!request->why)
			request->why = why;
		return true;
	}
	return false;
}

/* A query names a part, or a version to read; another one would choose another operation. */
static bool query_valid(const struct hipobj_request *request)
{
	struct slice rest = request->query;
	uint32_t parts = 0, uploads = 0, versions = 0, others = 0;

	while (rest.len) {
		struct slice value = slice_split(&rest, '&');
		struct slice name = slice_split(&value, '=');

		parts += slice_eq(name, SLICE("partNumber"));
		uploads += slice_eq(name, SLICE("uploadId"));
		versions += slice_eq(name, SLICE("versionId"));
		others += !value.len;
		if (!slice_eq(name, SLICE("partNumber")) && !slice_eq(name, SLICE("uploadId")) &&
			!slice_eq(name, SLICE("versionId")))
			others++;
	}
	if (others || parts > 1 || uploads > 1 || versions > 1)
		return false;
	return request->put ? parts == uploads && !versions : !uploads;
}

static const char *check_prepare(const struct hipobj_request *request)
{
	if (request->token.transport != HIPOBJ_TRANSPORT_RC)
		return "x-amz-rdma-token is not of a reliable connected queue pair.";
	if (!request->token.qpn || request->token.qpn > HIPOBJ_NUMBER_MAX)
		return "x-amz-rdma-token names no queue pair.";
	if (!query_valid(request))
		return "The query of x-amz-rdma-target is neither of a part nor of a version.";
	if (request->put && request->offset)
		return "An object is written from its beginning: x-amz-rdma-offset must be 0.";
	if (request->offset > INT64_MAX - request->size)
		return "x-amz-rdma-offset is too large.";
	return NULL;
}

enum hipobj_verdict hipobj_check(
	const struct hipobj_request *request, enum hipobj_step step, const char **ret_why)
{
	static const uint32_t needed[HIPOBJ_STEPS] = {
		[HIPOBJ_PREPARE] = 1u << HIPOBJ_H_TOKEN | 1u << HIPOBJ_H_PSN |
				   1u << HIPOBJ_H_COOKIE | 1u << HIPOBJ_H_OP |
				   1u << HIPOBJ_H_TARGET | 1u << HIPOBJ_H_SIZE,
		[HIPOBJ_READY] = 1u << HIPOBJ_H_SESSION | 1u << HIPOBJ_H_COOKIE,
		[HIPOBJ_CANCEL] = 1u << HIPOBJ_H_SESSION,
	};

	*ret_why = NULL;
	if (!(request->seen & 1u << HIPOBJ_H_PROTOCOL) || request->other_protocol)
		return HIPOBJ_NOT_SPOKEN;
	if (request->twice)
		*ret_why = "A header of the request came more than once.";
	else if (request->why)
		*ret_why = request->why;
	else if ((request->seen & needed[step]) != needed[step])
		*ret_why = "A header that this request needs is missing.";
	else if (request->too_large)
		return HIPOBJ_TOO_LARGE;
	else if (step == HIPOBJ_PREPARE)
		*ret_why = check_prepare(request);
	return *ret_why ? HIPOBJ_BAD : HIPOBJ_GOOD;
}
