/* s3/sts_token.c: tokens of sessions as sealed JSON. */
#include "s3/sts.h"

#include <errno.h>
#include <stdlib.h>

#define ABOUT SLICE("session token")

int s3_sts_token_make(struct s3_iam *iam, const struct s3_sts_token *token, struct buf *out)
{
	const struct s3_session *session = &token->session;
	json_t *object = json_object();
	char *text;
	int ret;

	ret = s3_json_set_text(object, "k", token->access_key);
	ret |= s3_json_set_text(object, "s", token->secret);
	ret |= s3_json_set_text(object, "a", session->account);
	ret |= s3_json_set_text(object, "u", session->user);
	ret |= s3_json_set_text(object, "r", session->role);
	ret |= s3_json_set_text(object, "n", session->name);
	ret |= s3_json_set_text(object, "p", session->policy);
	if (token->bucket.len)
		ret |= s3_json_set_text(object, "b", token->bucket);
	if (token->read_only)
		ret |= json_object_set_new(object, "o", json_true());
	ret |= json_object_set_new(object, "e", json_integer(token->expires_ms));
	text = ret ? NULL : json_dumps(object, JSON_COMPACT);
	json_decref(object);
	if (!text)
		return -ENOMEM;
	ret = s3_iam_seal(iam, ABOUT, slice_str(text), out);
	secret_wipe(text, strlen(text));
	free(text);
	return ret;
}

static struct slice keep(struct s3_arena *arena, const json_t *object, const char *name)
{
	return s3_arena_copy(arena, s3_json_text(object, name));
}

int s3_sts_token_open(struct s3_iam *iam, struct slice sealed, struct s3_arena *arena,
	struct s3_sts_token *ret_token)
{
	struct buf text;
	json_t *object;
	int ret;

	if (sealed.len > S3_STS_TOKEN_LEN_MAX)
		return -EBADMSG;
	buf_init(&text, S3_STS_TOKEN_LEN_MAX);
	ret = s3_iam_unseal(iam, ABOUT, sealed, &text);
	object = ret ? NULL : json_loadb(text.data, text.len, 0, NULL);
	if (text.data)
		secret_wipe(text.data, text.len);
	buf_free(&text);
	if (ret)
		return ret;
	*ret_token = (struct s3_sts_token){
		.access_key = keep(arena, object, "k"),
		.secret = keep(arena, object, "s"),
		.expires_ms = s3_json_number(object, "e"),
		.session = {.account = keep(arena, object, "a"),
			.user = keep(arena, object, "u"),
			.role = keep(arena, object, "r"),
			.name = keep(arena, object, "n"),
			.policy = keep(arena, object, "p")},
		.bucket = keep(arena, object, "b"),
		.read_only = json_is_true(json_object_get(object, "o")),
	};
	json_decref(object);
	return ret_token->bucket.data && ret_token->secret.data ? 0 : -ENOMEM;
}

int s3_sts_credentials(
	struct s3_iam *iam, struct s3_sts_token *token, uint64_t seconds, struct buf *xml)
{
	char access_key[S3_UNIQUE_ID_LEN + 1], secret[41], time[DATE_ISO_LEN];
	uint8_t random[30];
	struct buf text;
	int ret;

	s3_iam_unique_id("ASIA", access_key);
	random_fill(random, sizeof(random));
	secret[base64_encode(random, sizeof(random), secret)] = '\0';
	token->access_key = slice_str(access_key);
	token->secret = slice_str(secret);
	token->expires_ms = (int64_t)(clock_real_ns() / NS_PER_MS + seconds * 1000);
	buf_init(&text, S3_STS_TOKEN_LEN_MAX);
	ret = s3_sts_token_make(iam, token, &text);
	if (!ret) {
		date_iso_format(token->expires_ms, time);
		buf_put_str(xml, "<Credentials>");
		xml_element("AccessKeyId", token->access_key, xml);
		xml_element("SecretAccessKey", token->secret, xml);
		xml_element("SessionToken", buf_slice(&text), xml);
		xml_element("Expiration", slice_of(time, sizeof(time)), xml);
		buf_put_str(xml, "</Credentials>");
	}
	buf_free(&text);
	token->access_key = token->secret = SLICE_NONE;
	secret_wipe(secret, sizeof(secret));
	secret_wipe(random, sizeof(random));
	return ret;
}
