/* gateway/copy.c: CopyObject and UploadPartCopy between two stores. The target's process is asked
 * first, and checks all that concerns the target; when it wants the body, the source's process is
 * asked with the same signed request, checks all that concerns the source, and its answer is the
 * body. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <string.h>

/* The source's answer becomes the target's body. -EINPROGRESS: the target has all of it. */
static int carry(struct gw_link *from, struct gw_link *to)
{
	struct flow_source *source;
	uint64_t bytes;
	int ret;

	from->left = from->answer.bytes;
	source = gw_link_source(from);
	ret = flow_run(source, NULL, 0, gw_link_sink(to, true), &bytes);
	/* A process that refuses a body in the middle says why. */
	if (ret && (from->left || net_wait_readable(to->stream, clock_now_ns() + NS_PER_S)))
		return ret;
	return gw_link_hear(to) ? -EINPROGRESS : 0;
}

static bool is_carried(const struct gw_answer *answer)
{
	for (uint32_t i = 0; i < answer->header_count && answer->status == 200; i++)
		if (slice_eq_nocase(answer->headers[i].name, SLICE(CARRY_HEADER)))
			return true;
	return false;
}

/* The target waits for the source. */
static void source_ask(struct gw_link *to, const struct s3_request *request, struct s3_reply *reply,
	uint32_t source)
{
	struct gw_core *core = to->core;
	struct gw_link *from;
	int ret = gw_exchange(core, request, source, VIA_GIVE, &from);

	if (ret) {
		gw_link_end(to, false);
		gw_gone(request, reply, ret);
		return;
	}
	from->share = to->share;
	if (!is_carried(&from->answer)) {
		gw_link_end(to, false);
		gw_relay(from, request, reply);
		return;
	}
	ret = carry(from, to);
	gw_link_end(from, !ret && !from->left);
	if (!ret) {
		gw_relay(to, request, reply);
		return;
	}
	gw_link_end(to, false);
	gw_gone(request, reply, ret);
}

void gw_copy(struct gw_core *core, const struct s3_request *request, struct s3_reply *reply,
	uint32_t target, uint32_t source)
{
	struct gw_link *to;
	int ret = gw_exchange(core, request, target, VIA_TAKE, &to);

	if (ret) {
		gw_gone(request, reply, ret);
		return;
	}
	to->share = flow_share_of_peer(core->flow.budget, slice_str(request->peer));
	if (to->answer.status == 100)
		source_ask(to, request, reply, source);
	else
		gw_relay(to, request, reply);
}
