/* tests/unit/front/fake_flow.c: the calls of flow and of its siblings that the HTTP front makes,
 * without the devices of the real ones. Frames come from a region, at once or not at all. */
#include <errno.h>

#include "front/front.h"

int flow_piece_lease(struct flow_core *core, const struct flow_want *want, struct flow_piece *piece)
{
	int err = region_lease(core->region, want->frame_count, want->owner, &piece->span);

	piece->data = err ? NULL : piece->span.data;
	piece->hold = FLOW_HOLD_LEASE;
	return err;
}

void flow_piece_end(struct flow_core *core, struct flow_piece *piece, enum region_owner owner)
{
	if (piece->hold == FLOW_HOLD_LEASE)
		region_give(core->region, piece->span, owner);
	piece->data = NULL;
}

/* The tests have a handler of their own. */
void (*fake_s3_handle)(const struct s3_request *request, struct s3_reply *reply);

void s3_handle(struct s3 *s3, const struct s3_request *request, struct s3_reply *reply)
{
	(void)s3;
	if (!fake_s3_handle)
		CHECK_FAIL("s3_handle was called");
	fake_s3_handle(request, reply);
}

bool front_token_wanted(const struct s3_request *request)
{
	(void)request;
	return false;
}

void front_token_handle(
	struct front_token *front, const struct s3_request *request, struct s3_reply *reply)
{
	(void)front;
	(void)request;
	(void)reply;
	CHECK_FAIL("front_token_handle was called");
}

bool front_token_session_wanted(const struct s3_request *request)
{
	(void)request;
	return false;
}

void front_token_session_handle(struct front_token *front, struct s3 *s3,
	const struct s3_request *request, struct s3_reply *reply)
{
	(void)front;
	(void)s3;
	(void)request;
	(void)reply;
	CHECK_FAIL("front_token_session_handle was called");
}

bool front_hipobj_wanted(const struct s3_request *request)
{
	(void)request;
	return false;
}

void front_hipobj_handle(
	struct front_hipobj *front, const struct s3_request *request, struct s3_reply *reply)
{
	(void)front;
	(void)request;
	(void)reply;
	CHECK_FAIL("front_hipobj_handle was called");
}
