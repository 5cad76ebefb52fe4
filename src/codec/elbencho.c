/* codec/elbencho.c: paths, control headers and tokens of elbencho's dialect. */
#include "codec/elbencho.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "codec/text.h"

#define SIZE_DIGITS_MAX 8u

static const struct slice paths[ELBENCHO_STEPS] = {
	[ELBENCHO_CONNECT] = SLICE("/.s3rdma-rc/connect"),
	[ELBENCHO_DISCONNECT] = SLICE("/.s3rdma-rc/disconnect"),
};

struct slice elbencho_path(enum elbencho_step step)
{
	return paths[step];
}

int elbencho_step_of(struct slice path, enum elbencho_step *ret_step)
{
	for (int i = 0; i < ELBENCHO_STEPS; i++) {
		if (!slice_eq(path, paths[i]))
			continue;
		*ret_step = (enum elbencho_step)i;
		return 0;
	}
	return -ENOENT;
}

const char *elbencho_check(const struct hipobj_request *request, enum elbencho_step step)
{
	static const uint32_t needed[ELBENCHO_STEPS] = {
		[ELBENCHO_CONNECT] = 1u << HIPOBJ_H_TOKEN | 1u << HIPOBJ_H_PSN,
		[ELBENCHO_DISCONNECT] = 1u << HIPOBJ_H_SESSION,
	};

	if (request->twice)
		return "A header of the request came more than once.";
	if (request->why)
		return request->why;
	if ((request->seen & needed[step]) != needed[step])
		return "A header that this request needs is missing.";
	if (step != ELBENCHO_CONNECT)
		return NULL;
	if (request->token.transport != HIPOBJ_TRANSPORT_RC)
		return "x-amz-rdma-token is not of a reliable connected queue pair.";
	if (!request->token.qpn || request->token.qpn > HIPOBJ_NUMBER_MAX)
		return "x-amz-rdma-token names no queue pair.";
	return NULL;
}

bool elbencho_is_token(struct slice text)
{
	return slice_starts(text, SLICE(ELBENCHO_TOKEN_PREFIX));
}

int elbencho_token_parse(struct slice text, struct elbencho_token *ret_token, const char **ret_why)
{
	struct slice rest = text, session, addr, size;
	uint64_t rkey;

	*ret_why = "The RDMA token is not rc: and the session's 32 hexadecimal digits, an address, "
		   "a size and a key.";
	if (!elbencho_is_token(text))
		return -EINVAL;
	rest = slice_from(rest, strlen(ELBENCHO_TOKEN_PREFIX));
	session = slice_split(&rest, ':');
	addr = slice_split(&rest, ':');
	size = slice_split(&rest, ':');
	if (hex_decode(session, ret_token->session, sizeof(ret_token->session)) ||
		hipobj_hex_parse(addr, 16, &ret_token->addr) ||
		hipobj_hex_parse(size, SIZE_DIGITS_MAX, &ret_token->bytes) ||
		hipobj_hex_parse(rest, 8, &rkey))
		return -EINVAL;
	ret_token->rkey = (uint32_t)rkey;
	if (ret_token->bytes <= UINT64_MAX - ret_token->addr)
		return 0;
	*ret_why = "The RDMA token's window reaches past the end of the address space.";
	return -EINVAL;
}
