/* codec/carry.h: what stands before the bytes of a copy's source on their way from one store's
 * process to another's (docs/spec/via.md). A front of fixed length tells the length of the record,
 * which describes the object; then come the bytes. */
#ifndef CODEC_CARRY_H
#define CODEC_CARRY_H

#include "base/base.h"

#define CARRY_HEADER	    "x-nebulaio-carry"		/* of an answer that has it as its body */
#define CARRY_LENGTH	    "x-nebulaio-content-length" /* the client's own Content-Length */
#define CARRY_FRONT_BYTES   17u
#define CARRY_RECORD_BYTES  (160u * KIB) /* the longest record */
#define CARRY_ETAG_BYTES    68u
#define CARRY_VERSION_BYTES 33u

struct carry {
	uint64_t offset, bytes; /* of the object's bytes that follow */
	uint64_t object_bytes;
	uint64_t mtime_ns;
	uint8_t checksum_type, flags;
	bool encrypted; /* in its own store */
	bool charged;	/* its bucket's requesters pay, and the request says so */
	struct slice etag, version_id;
	struct slice headers; /* stored ones */
};
/* Appends front and record. -EMSGSIZE: too long; -ENOMEM. */
int carry_write(const struct carry *carry, struct buf *out);
/* The length of the record. -EINVAL. */
int carry_front_read(const char front[CARRY_FRONT_BYTES], uint32_t *ret_bytes);
/* The slices point into record. -EINVAL: not of the form. */
int carry_read(struct slice record, struct carry *ret_carry);

#endif
