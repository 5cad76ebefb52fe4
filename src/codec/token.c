/* codec/token.c: the S3-over-RDMA contract's header names and token fields, in one table each. */
#include "codec/token.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "codec/text.h"

static const struct slice headers[TOKEN_HEADER_COUNT] = {
	[TOKEN_HEADER_TOKEN] = SLICE("x-amz-rdma-token"),
	[TOKEN_HEADER_REPLY] = SLICE("x-amz-rdma-reply"),
	[TOKEN_HEADER_BYTES] = SLICE("x-amz-rdma-bytes-transferred"),
	[TOKEN_HEADER_BYTES_SHORT] = SLICE("x-amz-rdma-bytes"),
	[TOKEN_HEADER_PSN] = SLICE("x-nebulaio-rdma-psn"),
	[TOKEN_HEADER_MTU] = SLICE("x-nebulaio-rdma-mtu"),
	[TOKEN_HEADER_BUCKET] = SLICE("x-nebulaio-rdma-bucket"),
};

struct slice token_header(enum token_header header)
{
	return headers[header];
}

/* The fields in their order, and the number of hex digits of each. */
enum field { ADDR, SIZE, RKEY, LID, QPN, GID_PRESENT, GID, FIELD_COUNT };
static const uint8_t widths[FIELD_COUNT] = {
	[ADDR] = 16,
	[SIZE] = 8,
	[RKEY] = 8,
	[LID] = 4,
	[QPN] = 6,
	[GID_PRESENT] = 1,
	[GID] = 32,
};
#define OVERRIDE_WIDTH 16u

_Static_assert(TOKEN_LEN == 16 + 8 + 8 + 4 + 6 + 1 + 32 + FIELD_COUNT - 1, "the widths above");
_Static_assert(TOKEN_OVERRIDE_LEN == 2 * (1 + OVERRIDE_WIDTH), "two fields of that width");

/* Lower-case hex digits only, at most 16 of them. */
static bool number_of(const char *at, uint32_t width, uint64_t *ret_number)
{
	uint64_t number = 0;

	for (uint32_t i = 0; i < width; i++) {
		char c = at[i];

		if (c >= '0' && c <= '9')
			number = number << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			number = number << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	*ret_number = number;
	return true;
}

static bool gid_of(const char *at, uint8_t ret_gid[16])
{
	for (int i = 0; i < 16; i++) {
		uint64_t byte;

		if (!number_of(at + 2 * i, 2, &byte))
			return false;
		ret_gid[i] = (uint8_t)byte;
	}
	return true;
}

/* The fields and the colons between them; text has TOKEN_LEN characters. */
static bool fields_of(const char *at, uint64_t ret_fields[FIELD_COUNT], uint8_t ret_gid[16])
{
	for (int i = 0; i < FIELD_COUNT; i++) {
		if (i && *at++ != ':')
			return false;
		if (i == GID ? !gid_of(at, ret_gid) : !number_of(at, widths[i], &ret_fields[i]))
			return false;
		at += widths[i];
	}
	return true;
}

static bool override_of(const char *at, struct token *token)
{
	return at[0] == ':' && number_of(at + 1, OVERRIDE_WIDTH, &token->addr) &&
	       at[1 + OVERRIDE_WIDTH] == ':' &&
	       number_of(at + 2 + OVERRIDE_WIDTH, OVERRIDE_WIDTH, &token->bytes);
}

int token_parse(struct slice text, bool strict, struct token *ret_token, const char **ret_why)
{
	uint64_t fields[FIELD_COUNT];
	struct token *token = ret_token;
	bool overridden = text.len == TOKEN_LEN + TOKEN_OVERRIDE_LEN;

	*ret_why = "The RDMA token is not seven lower-case hexadecimal fields of 81 characters.";
	if ((text.len != TOKEN_LEN && !overridden) || !fields_of(text.data, fields, token->gid))
		return -EINVAL;
	token->addr = fields[ADDR];
	token->bytes = fields[SIZE];
	token->rkey = (uint32_t)fields[RKEY];
	token->lid = (uint16_t)fields[LID];
	token->qpn = (uint32_t)fields[QPN];
	token->has_gid = fields[GID_PRESENT] == 1;
	if (fields[GID_PRESENT] > 1) {
		*ret_why = "The RDMA token's sixth field is neither 0 nor 1.";
		return -EINVAL;
	}
	if (overridden && strict) {
		*ret_why =
			"The RDMA token has more than seven fields, and this server refuses that "
			"(rdma.strict_token).";
		return -EINVAL;
	}
	if (overridden && !override_of(text.data + TOKEN_LEN, token))
		return -EINVAL;
	if (token->bytes > UINT64_MAX - token->addr) {
		*ret_why = "The RDMA token's window reaches past the end of the address space.";
		return -EINVAL;
	}
	if (!token->has_gid)
		memset(token->gid, 0, sizeof(token->gid));
	return 0;
}

static char *field_put(char *at, uint64_t number, uint32_t width)
{
	for (uint32_t i = width; i-- > 0; number >>= 4)
		at[i] = "0123456789abcdef"[number & 15];
	at[width] = ':';
	return at + width + 1;
}

void token_format(const struct token *token, char *ret_text)
{
	char *at = ret_text;

	CHECK(token->bytes <= UINT32_MAX);
	at = field_put(at, token->addr, widths[ADDR]);
	at = field_put(at, token->bytes, widths[SIZE]);
	at = field_put(at, token->rkey, widths[RKEY]);
	at = field_put(at, token->lid, widths[LID]);
	at = field_put(at, token->qpn, widths[QPN]);
	at = field_put(at, token->has_gid, widths[GID_PRESENT]);
	hex_encode(token->gid, sizeof(token->gid), at);
}

bool token_same_peer(const struct token *a, const struct token *b)
{
	return a->qpn == b->qpn && a->lid == b->lid && a->has_gid == b->has_gid &&
	       memcmp(a->gid, b->gid, sizeof(a->gid)) == 0;
}
