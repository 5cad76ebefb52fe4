/* codec/elbencho.h: elbencho's dialect of S3 over RDMA: the paths of its two unsigned requests, and
 * the tokens that name a session. Queue pairs are described by the headers and the token of
 * hipobj-rc-v2 (codec/hipobj.h). docs/spec/elbencho.md. */
#ifndef CODEC_ELBENCHO_H
#define CODEC_ELBENCHO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "codec/hipobj.h"

enum elbencho_step { ELBENCHO_CONNECT, ELBENCHO_DISCONNECT, ELBENCHO_STEPS };
/* The path of a step. */
struct slice elbencho_path(enum elbencho_step step);
/* -ENOENT: the path is of none. */
int elbencho_step_of(struct slice path, enum elbencho_step *ret_step);
/* The headers of the step's request, taken by hipobj_take(). NULL, or a sentence for the client. */
const char *elbencho_check(const struct hipobj_request *request, enum elbencho_step step);

/* ---- The token: "rc:SESSION:ADDRESS:SIZE:RKEY", the session in 32 hex digits. ---- */
#define ELBENCHO_TOKEN_PREFIX "rc:"

struct elbencho_token {
	uint8_t session[HIPOBJ_SESSION_BYTES];
	uint64_t addr;
	uint64_t bytes; /* below 4 GiB */
	uint32_t rkey;
};
/* Whether the text is meant to be one. */
bool elbencho_is_token(struct slice text);
/* Digits of either case, with or without leading zeros. -EINVAL: then *ret_why is a sentence for
 * the client and ret_token is undefined. */
int elbencho_token_parse(struct slice text, struct elbencho_token *ret_token, const char **ret_why);

#endif
