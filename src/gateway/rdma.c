/* gateway/rdma.c: which store a request is for that sets up an RDMA transfer: such a request names
 * no bucket in its target. docs/spec/token.md ("Queue pairs"), docs/spec/hipobj.md. */
#include "gateway/gateway_priv.h"

#include <errno.h>

#include "codec/codec.h"
#include "codec/hipobj.h"
#include "codec/token.h"

/* POST or DELETE /?rdma-connect. */
static bool is_connect(const struct s3_request *request)
{
	struct slice rest = request->query, param = slice_split(&rest, '&');

	return slice_eq(request->path, SLICE("/")) &&
	       slice_eq(slice_split(&param, '='), SLICE(TOKEN_CONNECT_PARAM));
}

/* The store of a session is in its id. */
static uint32_t store_of_session(struct gateway *gateway, const struct s3_request *request)
{
	struct slice text = gw_header(request, hipobj_header(HIPOBJ_H_SESSION));
	uint8_t id[HIPOBJ_SESSION_BYTES];

	if (hex_decode(text, id, sizeof(id)))
		return 0;
	return id[HIPOBJ_SESSION_STORE_AT] < gw_stores(gateway) ? id[HIPOBJ_SESSION_STORE_AT] : 0;
}

int gw_rdma_store(struct gateway *gateway, const struct s3_request *request, uint32_t *ret_store)
{
	struct slice named;
	enum hipobj_step step;

	*ret_store = 0;
	if (hipobj_step_of(request->path, &step) == 0) {
		named = gw_header(request, hipobj_header(HIPOBJ_H_TARGET));
		if (step == HIPOBJ_PREPARE)
			return gw_store_of_path(gateway, named, ret_store);
		*ret_store = store_of_session(gateway, request);
		return 0;
	}
	if (!is_connect(request))
		return -ENODATA;
	return gw_store_of_path(
		gateway, gw_header(request, token_header(TOKEN_HEADER_BUCKET)), ret_store);
}

struct slice gw_rdma_bucket(struct gateway *gateway, const struct s3_request *request)
{
	return is_connect(request) && gw_stores(gateway) > 1
		       ? gw_header(request, token_header(TOKEN_HEADER_BUCKET))
		       : SLICE_NONE;
}
