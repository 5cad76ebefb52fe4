/* codec/hipobj.h: the dialect hipobj-rc-v2 of S3 over RDMA: its names, its token, and the headers
 * of its three control requests. docs/spec/hipobj.md.
 *
 * A token is 44 bytes in 88 hex digits, integers little-endian: transport 1, queue pair 4, GID 16,
 * rkey 4, address 8, length 8, port 1, LID 2. */
#ifndef CODEC_HIPOBJ_H
#define CODEC_HIPOBJ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

#define HIPOBJ_PROTOCOL	    "hipobj-rc-v2"
#define HIPOBJ_UNSUPPORTED  "unsupported"
#define HIPOBJ_CAPABILITIES "mp"	 /* parts of multipart uploads */
#define HIPOBJ_SIZE_MAX	    0x7fffffffu	 /* of a transfer, bytes */
#define HIPOBJ_CHECKSUM	    "CRC64NVME " /* the digest in base64 follows */
#define HIPOBJ_TARGET_MAX   8192u
#define HIPOBJ_NUMBER_MAX   0xffffffu /* of queue pairs and packets: 24 bits */

/* The header names: this is the only place that spells them. */
enum hipobj_header {
	HIPOBJ_H_PROTOCOL,     /* both ways */
	HIPOBJ_H_STATUS,       /* answer: "unsupported" */
	HIPOBJ_H_TOKEN,	       /* PREPARE: the client's end */
	HIPOBJ_H_REPLY,	       /* answer: "200:" and the server's end */
	HIPOBJ_H_SESSION,      /* 32 hex digits */
	HIPOBJ_H_PSN,	       /* first packet number, hex */
	HIPOBJ_H_QPN,	       /* hex */
	HIPOBJ_H_COOKIE,       /* the immediate that goes with the bytes, hex */
	HIPOBJ_H_OP,	       /* "GET" or "PUT" */
	HIPOBJ_H_TARGET,       /* "/bucket/key?query", percent-encoded */
	HIPOBJ_H_SIZE,	       /* decimal */
	HIPOBJ_H_OFFSET,       /* decimal */
	HIPOBJ_H_ADDR,	       /* of the memory to write to, hex */
	HIPOBJ_H_RKEY,	       /* its key, hex */
	HIPOBJ_H_BYTES,	       /* answer: moved, decimal */
	HIPOBJ_H_ETAG,	       /* answer */
	HIPOBJ_H_VERSION,      /* answer */
	HIPOBJ_H_CHECKSUM,     /* answer */
	HIPOBJ_H_CAPABILITIES, /* answer */
	HIPOBJ_H_COUNT
};
/* Lower case, with a NUL behind it. */
struct slice hipobj_header(enum hipobj_header header);

/* ---- The token. ---- */
#define HIPOBJ_TOKEN_LEN     88u
#define HIPOBJ_TRANSPORT_DC  0u
#define HIPOBJ_TRANSPORT_RC  1u
#define HIPOBJ_SESSION_BYTES 16u
/* The byte of a session's id that has the number of its store, in a cluster. */
#define HIPOBJ_SESSION_STORE_AT 1u

struct hipobj_token {
	uint8_t transport;
	uint32_t qpn;
	uint8_t gid[16];
	uint32_t rkey;
	uint64_t addr;
	uint64_t bytes;
	uint8_t port;
	uint16_t lid;
};
/* Either case; ":address:length", which some clients append, is read over. -EINVAL. */
int hipobj_token_parse(struct slice text, struct hipobj_token *ret_token);
/* Writes HIPOBJ_TOKEN_LEN lower-case digits without a NUL. */
void hipobj_token_format(const struct hipobj_token *token, char *ret_text);
/* The token of a reply, "200:TOKEN"; one server has a space for the colon. -EINVAL. */
int hipobj_reply_parse(struct slice text, struct hipobj_token *ret_token);
/* 1 to digits_max hex digits of either case. -EINVAL. */
int hipobj_hex_parse(struct slice text, uint32_t digits_max, uint64_t *ret_number);

/* ---- Control requests. ---- */
enum hipobj_step { HIPOBJ_PREPARE, HIPOBJ_READY, HIPOBJ_CANCEL, HIPOBJ_STEPS };
/* The path of a step. */
struct slice hipobj_path(enum hipobj_step step);
/* -ENOENT: the path is of none. */
int hipobj_step_of(struct slice path, enum hipobj_step *ret_step);

/* The headers of a control request. Zero it; hipobj_take() for each header, then hipobj_check(). */
struct hipobj_request {
	uint32_t seen;		   /* 1 << enum hipobj_header */
	bool twice;		   /* one of them came more than once */
	const char *why;	   /* the first that does not parse; NULL: none */
	bool too_large;		   /* the size is beyond HIPOBJ_SIZE_MAX */
	bool other_protocol;	   /* the protocol's name is another */
	struct hipobj_token token; /* PREPARE: the client's end */
	bool put;		   /* PREPARE */
	struct slice path, query;  /* PREPARE: of the target */
	uint64_t size, offset;	   /* PREPARE */
	uint32_t psn, cookie, qpn;
	uint64_t addr;
	uint32_t rkey;
	uint8_t session[HIPOBJ_SESSION_BYTES];
};
/* True when the header is of the dialect. */
bool hipobj_take(struct hipobj_request *request, struct slice name, struct slice value);
enum hipobj_verdict {
	HIPOBJ_GOOD,
	HIPOBJ_BAD,	   /* 400: *ret_why says what is wrong */
	HIPOBJ_TOO_LARGE,  /* 413 */
	HIPOBJ_NOT_SPOKEN, /* 501: the client speaks another protocol */
};
enum hipobj_verdict hipobj_check(
	const struct hipobj_request *request, enum hipobj_step step, const char **ret_why);

#endif
