/* s3/object/fan_out.c: one object to many clients: what the header of a GetObject asks for, of a
 * HeadObject that has its bytes sent by multicast, and the answer's headers that say what became of
 * it. docs/design/fan-out.md. */
#include "flow/fan_out.h"

#include <errno.h>

#include <stdio.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/object/object.h"

#define HEADER	    SLICE("x-nebulaio-fan-out")
#define ENTER	    SLICE("enter")
#define PART	    SLICE("part")
#define WAIT_MS	    10000u /* without a number in the request */
#define WAIT_MS_MAX 60000u

/* A name; count, wait in milliseconds, and number of the reader. With multicast: what is to be
 * done, and how many datagrams the reader lost. */
struct asked {
	struct slice name;
	uint64_t members, wait_ms, member, lost;
	struct slice multicast; /* "enter", "part" or empty */
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
		       : slice_eq(name, SLICE("lost"))	 ? &asked->lost
							 : NULL;

	if (slice_eq(name, SLICE("multicast"))) {
		asked->multicast = slice_trim(field);
		return slice_eq(asked->multicast, ENTER) || slice_eq(asked->multicast, PART);
	}
	return to && slice_to_u64(slice_trim(field), to) == 0;
}

/* NAME; members=8; wait=10000; member=12345; for HEAD also multicast=part; lost=3 */
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

	return request->left && request->left(request->left_arg);
}

static void answer(
	struct s3_call *call, enum flow_fan_role role, uint32_t members, const char *part)
{
	static const char *const WORDS[] = {[FLOW_FAN_SMALL] = "small",
		[FLOW_FAN_LATE] = "late",
		[FLOW_FAN_SLOW] = "slow",
		[FLOW_FAN_APART] = "apart",
		[FLOW_FAN_FULL] = "full"};
	char *text = mem_arena_get(&call->arena, 56);
	int len;

	if (!text)
		return;
	if (role == FLOW_FAN_MEMBER)
		len = snprintf(text, 56, "member; members=%u%s", members, part);
	else
		len = snprintf(text, 56, "%s", WORDS[role]);
	s3_answer_header(call, HEADER, slice_of(text, (size_t)len));
}

/* The question to flow; an object text that is empty: no memory. */
static struct flow_fan_ask ask_of(
	struct s3_call *call, const struct s3_read *read, const struct asked *asked)
{
	return (struct flow_fan_ask){.object = object_text(call, read->meta),
		.name = asked->name,
		.object_bytes = read->meta->bytes,
		.offset = read->offset,
		.member = asked->member,
		.count = (uint32_t)asked->members,
		.wait_ns = asked->wait_ms * NS_PER_MS,
		.left = client_left,
		.arg = call->request,
		.share = s3_call_share(call)};
}

static enum flow_fan_role begin(
	struct s3_call *call, const struct flow_fan_ask *ask, struct flow_fan_read *fan)
{
	struct s3_token *token = call->request->token;
	uint64_t begun_ns = clock_now_ns();
	enum flow_fan_role role;

	if (!token)
		return flow_fan_begin(call->s3->fans, ask, fan);
	token->wait_ns = ask->wait_ns;
	role = flow_fan_begin(call->s3->fans, ask, fan);
	token->wait_ns = clock_now_ns() - begun_ns;
	return role;
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
	if (!parse(header, &asked) || asked.multicast.len)
		return s3_fail_argument(call, HEADER.data, header,
			"x-nebulaio-fan-out must be NAME; members=COUNT, with a NAME of 1 to 64 "
			"letters, digits, '.', '_' and '-', and a COUNT of 1 to 1024; optional: "
			"wait=MILLISECONDS, up to 60000, and member=NUMBER.");
	fan = mem_arena_get(&call->arena, sizeof(*fan));
	ask = ask_of(call, read, &asked);
	if (!fan || !ask.object.len || !read->bytes)
		return NULL;
	role = begin(call, &ask, fan);
	answer(call, role, fan->members, "");
	if (role == FLOW_FAN_MEMBER)
		read->fan = fan;
	return NULL;
}

/* ---- Multicast. ---- */

static void enter(struct s3_call *call, struct flow_fan_ask *ask)
{
	char *text = mem_arena_get(&call->arena, CAST_TEXT_BYTES);
	struct cast_grant grant = {.stream = 0};
	const char *why = NULL;
	enum flow_fan_role role;

	if (!text)
		return;
	role = flow_cast_enter(call->s3->fans, ask, &grant, &why);
	if (role != FLOW_FAN_MEMBER)
		answer(call, role, 0, "");
	else if (why)
		snprintf(text, CAST_TEXT_BYTES, "no; %s", why);
	else
		cast_grant_write(&grant, text);
	if (role == FLOW_FAN_MEMBER)
		s3_answer_header(call, SLICE(CAST_HEADER), slice_str(text));
	secret_wipe(&grant, sizeof(grant));
}

/* Has the read's range sent to the group, by this request or by another. */
static void part(
	struct s3_call *call, struct s3_read *read, struct flow_fan_ask *ask, uint64_t lost)
{
	static const char *const WORDS[] = {[FLOW_CAST_SEND] = "; part=sent",
		[FLOW_CAST_SENT] = "; part=sent",
		[FLOW_CAST_PAST] = "; part=past",
		[FLOW_CAST_OFF] = "; part=off"};
	struct flow_source *source;
	struct flow_fan_read fan;
	enum flow_cast_part done;
	enum flow_fan_role role = flow_cast_ask(call->s3->fans, ask, lost, &fan, &done);
	int ret;

	if (role == FLOW_FAN_MEMBER && done == FLOW_CAST_SEND) {
		ret = s3_sse_source(call, read->sse, read->get, read->offset, read->bytes, &source);
		if (ret) {
			flow_cast_fail(&fan, ret);
		} else {
			source->share = s3_call_share(call);
			ret = flow_cast_send(&fan, source);
		}
		done = ret ? FLOW_CAST_OFF : FLOW_CAST_SENT;
	}
	if (role == FLOW_FAN_MEMBER)
		flow_fan_end(&fan, true);
	answer(call, role, fan.members, WORDS[done]);
}

const struct s3_error *s3_fan_out_head(struct s3_call *call, struct s3_read *read)
{
	struct slice header = s3_call_header(call, HEADER);
	struct flow_fan_ask ask;
	struct asked asked;

	if (!header.len)
		return NULL;
	if (!parse(header, &asked) || (asked.multicast.len && !asked.member))
		return s3_fail_argument(call, HEADER.data, header,
			"x-nebulaio-fan-out of HeadObject must be NAME; members=COUNT; "
			"member=NUMBER; multicast=enter or multicast=part, and may have "
			"wait=MILLISECONDS and lost=COUNT.");
	if (!asked.multicast.len || !read->bytes)
		return NULL;
	/* The key goes only to one who has a session. */
	if (!call->request->opcode) {
		s3_answer_header(call, SLICE(CAST_HEADER), SLICE("no; it needs an RDMA session"));
		return NULL;
	}
	ask = ask_of(call, read, &asked);
	if (!ask.object.len)
		return NULL;
	ask.casts = true;
	ask.bytes = read->bytes;
	if (slice_eq(asked.multicast, ENTER))
		ask.offset = 0;
	if (slice_eq(asked.multicast, ENTER))
		enter(call, &ask);
	else
		part(call, read, &ask, asked.lost);
	return NULL;
}

void s3_fan_out_stop(struct s3 *s3)
{
	flow_fans_stop(s3->fans);
}
