/* s3/object/fan_out.c: GetObject by many clients in step: what the request's header asks for, and
 * the answer's header that says what became of it. docs/design/fan-out.md. */
#include "flow/fan_out.h"

#include <stdio.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/object/object.h"

#define HEADER	    SLICE("x-nebulaio-fan-out")
#define WAIT_MS	    10000u /* without a number in the request */
#define WAIT_MS_MAX 60000u

/* A name; count, wait in milliseconds, and number of the reader. */
struct asked {
	struct slice name;
	uint64_t members, wait_ms, member;
};

static bool name_good(struct slice name)
{
	return name.len >= 1 && name.len <= FLOW_FAN_NAME_MAX && slice_is_word(name, "._-");
}

static bool field_read(struct slice field, struct asked *asked)
{
	struct slice name = slice_trim(slice_split(&field, '='));
	uint64_t *to = slice_eq(name, SLICE("members"))	 ? &asked->members
		       : slice_eq(name, SLICE("wait"))	 ? &asked->wait_ms
		       : slice_eq(name, SLICE("member")) ? &asked->member
							 : NULL;

	return to && slice_to_u64(slice_trim(field), to) == 0;
}

/* NAME; members=8; wait=10000; member=12345 */
static bool parse(struct slice text, struct asked *asked)
{
	*asked = (struct asked){.name = slice_trim(slice_split(&text, ';')), .wait_ms = WAIT_MS};
	while (text.len)
		if (!field_read(slice_split(&text, ';'), asked))
			return false;
	return name_good(asked->name) && asked->members >= 1 &&
	       asked->members <= FLOW_FAN_MEMBERS_MAX && asked->wait_ms <= WAIT_MS_MAX;
}

/* Another version of the object has another text. */
static struct slice object_text(struct s3_call *call, const struct store_meta *meta)
{
	size_t bytes = call->bucket.len + call->key.len + sizeof(*meta);
	char *text = mem_arena_get(&call->arena, bytes);
	int len;

	if (!text)
		return SLICE_NONE;
	len = snprintf(text, bytes, "%.*s/%.*s\n%s %s %llx", SLICE_FMT(call->bucket),
		SLICE_FMT(call->key), meta->version_id, meta->etag,
		(unsigned long long)meta->mtime_ns);
	return slice_of(text, (size_t)len);
}

static bool client_left(const void *arg)
{
	const struct s3_request *request = (const struct s3_request *)arg;

	return request->left && request->left(request);
}

static void answer(struct s3_call *call, enum flow_fan_role role, uint32_t members)
{
	static const char *const WORDS[] = {[FLOW_FAN_SMALL] = "small",
		[FLOW_FAN_LATE] = "late",
		[FLOW_FAN_SLOW] = "slow",
		[FLOW_FAN_APART] = "apart",
		[FLOW_FAN_FULL] = "full"};
	char *text = mem_arena_get(&call->arena, 40);
	int len;

	if (!text)
		return;
	if (role == FLOW_FAN_MEMBER)
		len = snprintf(text, 40, "member; members=%u", members);
	else
		len = snprintf(text, 40, "%s", WORDS[role]);
	s3_answer_header(call, HEADER, slice_of(text, (size_t)len));
}

const struct s3_error *s3_fan_out_begin(struct s3_call *call, struct s3_read *read)
{
	struct slice header = s3_call_header(call, HEADER);
	struct flow_fan_read *fan;
	struct flow_fan_ask ask;
	enum flow_fan_role role;
	struct asked asked;

	if (!header.len)
		return NULL;
	if (!parse(header, &asked))
		return s3_fail_argument(call, HEADER.data, header,
			"x-nebulaio-fan-out must be NAME; members=COUNT, with a NAME of 1 to 64 "
			"letters, digits, '.', '_' and '-', and a COUNT of 1 to 1024; optional: "
			"wait=MILLISECONDS, up to 60000, and member=NUMBER.");
	fan = mem_arena_get(&call->arena, sizeof(*fan));
	ask = (struct flow_fan_ask){.object = object_text(call, read->meta),
		.name = asked.name,
		.object_bytes = read->meta->bytes,
		.offset = read->offset,
		.member = asked.member,
		.count = (uint32_t)asked.members,
		.wait_ns = asked.wait_ms * NS_PER_MS,
		.left = client_left,
		.arg = call->request,
		.share = s3_call_share(call)};
	if (!fan || !ask.object.len || !read->bytes)
		return NULL;
	role = flow_fan_begin(call->s3->fans, &ask, fan);
	answer(call, role, fan->members);
	if (role == FLOW_FAN_MEMBER)
		read->fan = fan;
	return NULL;
}

void s3_fan_out_stop(struct s3 *s3)
{
	flow_fans_stop(s3->fans);
}
