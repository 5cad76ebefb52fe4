/* codec/via.h: the header by which a gateway tells the process of a store who the caller is
 * (docs/spec/via.md). It has a code that only the processes of one cluster can make. */
#ifndef CODEC_VIA_H
#define CODEC_VIA_H

#include "base/base.h"

#define VIA_HEADER	  "x-nebulaio-via"
#define VIA_SECRET_BYTES  32u
#define VIA_BYTES_MAX	  320u
#define VIA_PEER_BYTES	  72u
#define VIA_ID_LEN	  16u
#define VIA_AGE_S_MAX	  (15u * 60)
#define VIA_STORE_LEN_MAX 64u

/* The process serves the request; or it answers the source of the copy that the request asks for;
 * or it makes the copy of a source that comes as the request's body (codec/carry.h). */
enum via_kind { VIA_SERVE, VIA_GIVE, VIA_TAKE };
struct via {
	struct slice store;	/* the volume's name */
	struct slice peer;	/* "ADDR:PORT" of the client */
	struct slice transport; /* that the client uses: "http" or "https" */
	struct slice id;	/* of the request: VIA_ID_LEN hex digits */
	int64_t time_s;		/* since 1970 */
	enum via_kind kind;
};
/* Writes the header's value for a request of this method and target. -EMSGSIZE: too long. */
int via_write(const uint8_t secret[VIA_SECRET_BYTES], const struct via *via, struct slice method,
	struct slice target, char ret_text[VIA_BYTES_MAX]);
/* The slices point into text. -EINVAL: not of the form; -EPERM: the code is wrong; -ESTALE: too old
 * or from the future. */
int via_read(const uint8_t secret[VIA_SECRET_BYTES], struct slice text, struct slice method,
	struct slice target, int64_t now_s, struct via *ret_via);

#endif
