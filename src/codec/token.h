/* codec/token.h: the S3-over-RDMA contract: its header names and its token, a client's description
 * of a window of its memory and of the queue pair that reaches it. docs/spec/token.md.
 *
 *   addr             size     rkey     lid  qpn    g gid
 *   0102030405060708:01020304:01020304:0102:010203:1:00112233445566778899aabbccddeeff */
#ifndef CODEC_TOKEN_H
#define CODEC_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/* ---- Names. They may still change: this is the only place that spells them. ---- */
enum token_header {
	TOKEN_HEADER_TOKEN,	  /* request: the token; to and from ?rdma-connect: a queue pair */
	TOKEN_HEADER_REPLY,	  /* answer: 200, 204, 206: moved by RDMA; 501: declined */
	TOKEN_HEADER_BYTES,	  /* answer: bytes moved, decimal */
	TOKEN_HEADER_BYTES_SHORT, /* answer of other servers: the same */
	TOKEN_HEADER_PSN,	  /* ?rdma-connect, both ways: first packet number, decimal */
	TOKEN_HEADER_MTU,	  /* ?rdma-connect, both ways: path MTU in bytes, decimal */
	TOKEN_HEADER_BUCKET,	  /* ?rdma-connect, both ways: the queue pair is for this bucket */
	TOKEN_HEADER_COUNT
};
/* Lower case, with a NUL behind it. */
struct slice token_header(enum token_header header);
/* The query parameter that selects connecting (POST /) and disconnecting (DELETE /). */
#define TOKEN_CONNECT_PARAM "rdma-connect"

/* ---- The token. ---- */
#define TOKEN_LEN	   81u
#define TOKEN_OVERRIDE_LEN 34u /* ":addr:size" of 16 digits each, behind it */

struct token {
	uint64_t addr;
	uint64_t bytes;
	uint32_t rkey;
	uint16_t lid;
	uint32_t qpn; /* 24 bits */
	bool has_gid;
	uint8_t gid[16]; /* zeroes without has_gid */
};

/* 0, or -EINVAL: then *ret_why is a sentence for the client and ret_token is undefined. strict: the
 * override is refused, too. */
int token_parse(struct slice text, bool strict, struct token *ret_token, const char **ret_why);
/* Writes TOKEN_LEN characters without a NUL. bytes must be below 4 GiB. */
void token_format(const struct token *token, char *ret_text);
/* True when both are of the same queue pair, by lid, qpn and gid. */
bool token_same_peer(const struct token *a, const struct token *b);

#endif
