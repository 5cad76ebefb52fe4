/* iam/token.c: session tokens, as sealed JSON. */
#include <errno.h>
#include <stdlib.h>

#include "iam/iam.h"

#define ABOUT SLICE("session token")

/* A list of [key, value, transitive]. */
static int tags_make(const struct iam_session *session, json_t *object)
{
	json_t *list = session->tag_count ? json_member_list(object, "t") : NULL;
	int ret = session->tag_count && !list;

	for (uint32_t i = 0; i < session->tag_count && !ret; i++) {
		const struct iam_tag *tag = &session->tags[i];

		ret = json_array_append_new(
			list, json_pack("[s#, s#, b]", tag->key.data, (int)tag->key.len,
				      tag->value.len ? tag->value.data : "", (int)tag->value.len,
				      (int)tag->transitive));
	}
	return ret;
}

int iam_token_make(struct iam *iam, const struct iam_token *token, struct buf *out)
{
	const struct iam_session *session = &token->session;
	json_t *object = json_object();
	char *text;
	int ret;

	ret = json_member_set_text(object, "k", token->access_key);
	ret |= json_member_set_text(object, "s", token->secret);
	ret |= json_member_set_text(object, "a", session->account);
	ret |= json_member_set_text(object, "u", session->user);
	ret |= json_member_set_text(object, "r", session->role);
	ret |= json_member_set_text(object, "l", session->role_id);
	ret |= json_member_set_text(object, "n", session->name);
	ret |= json_member_set_text(object, "p", session->policy);
	if (session->key.len) {
		ret |= json_member_set_text(object, "q", session->key);
		ret |= json_object_set_new(
			object, "d", json_integer((json_int_t)session->secret_mark));
	}
	if (session->policy_arns.len)
		ret |= json_member_set_text(object, "m", session->policy_arns);
	ret |= tags_make(session, object);
	if (token->bucket.len) {
		ret |= json_member_set_text(object, "b", token->bucket);
		ret |= json_object_set_new(object, "g", json_integer((json_int_t)token->store_id));
		ret |= json_object_set_new(object, "i", json_integer((json_int_t)token->bucket_id));
	}
	if (token->read_only)
		ret |= json_object_set_new(object, "o", json_true());
	ret |= json_object_set_new(object, "e", json_integer(token->expires_ms));
	text = ret ? NULL : json_dumps(object, JSON_COMPACT);
	json_decref(object);
	if (!text)
		return -ENOMEM;
	ret = iam_seal(iam, ABOUT, slice_str(text), out);
	secret_wipe(text, strlen(text));
	free(text);
	return ret;
}

static struct slice keep(struct mem_arena *arena, const json_t *object, const char *name)
{
	return mem_arena_copy(arena, json_member_text(object, name));
}

static struct slice text_of(struct mem_arena *arena, const json_t *text)
{
	return mem_arena_copy(arena, slice_of(json_string_value(text), json_string_length(text)));
}

static int tags_open(const json_t *object, struct mem_arena *arena, struct iam_session *ret_session)
{
	const json_t *list = json_object_get(object, "t");
	size_t count = MIN(json_array_size(list), IAM_TAGS_MAX);
	struct iam_tag *tags = count ? mem_arena_get(arena, count * sizeof(*tags)) : NULL;

	if (count && !tags)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const json_t *one = json_array_get(list, i);

		tags[i] = (struct iam_tag){text_of(arena, json_array_get(one, 0)),
			text_of(arena, json_array_get(one, 1)),
			json_is_true(json_array_get(one, 2))};
		if (!tags[i].key.data || !tags[i].value.data)
			return -ENOMEM;
	}
	ret_session->tags = tags;
	ret_session->tag_count = (uint32_t)count;
	return 0;
}

int iam_token_open(
	struct iam *iam, struct slice sealed, struct mem_arena *arena, struct iam_token *ret_token)
{
	struct buf text;
	json_t *object;
	int ret;

	if (sealed.len > IAM_TOKEN_LEN_MAX)
		return -EBADMSG;
	buf_init(&text, IAM_TOKEN_LEN_MAX);
	ret = iam_unseal(iam, ABOUT, sealed, &text);
	object = ret ? NULL : json_loadb(text.data, text.len, 0, NULL);
	if (text.data)
		secret_wipe(text.data, text.len);
	buf_free(&text);
	if (ret)
		return ret;
	*ret_token = (struct iam_token){
		.access_key = keep(arena, object, "k"),
		.secret = keep(arena, object, "s"),
		.expires_ms = json_member_number(object, "e"),
		.session = {.account = keep(arena, object, "a"),
			.user = keep(arena, object, "u"),
			.role = keep(arena, object, "r"),
			.role_id = keep(arena, object, "l"),
			.name = keep(arena, object, "n"),
			.policy = keep(arena, object, "p"),
			.key = keep(arena, object, "q"),
			.secret_mark = (uint64_t)json_member_number(object, "d"),
			.policy_arns = keep(arena, object, "m")},
		.bucket = keep(arena, object, "b"),
		.store_id = (uint64_t)json_member_number(object, "g"),
		.bucket_id = (uint64_t)json_member_number(object, "i"),
		.read_only = json_is_true(json_object_get(object, "o")),
	};
	ret = tags_open(object, arena, &ret_token->session);
	json_decref(object);
	return !ret && ret_token->bucket.data && ret_token->secret.data ? 0 : -ENOMEM;
}
