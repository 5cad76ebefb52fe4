/* iam/doc.c: the elements of an account's document: entities by name, keys, ARNs. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#include "iam/iam_priv.h"

int iam_lower(struct slice name, char ret_lower[IAM_NAME_LEN_MAX + 1])
{
	if (!name.len || name.len > IAM_NAME_LEN_MAX)
		return -EINVAL;
	for (size_t i = 0; i < name.len; i++) {
		unsigned char c = (unsigned char)name.data[i];

		/* IAM's own characters, and "$", which some use in the names of tenants. */
		if (!isalnum(c) && !strchr("_+=,.@$-", c))
			return -EINVAL;
		ret_lower[i] = (char)tolower(c);
	}
	ret_lower[name.len] = '\0';
	return 0;
}

json_t *iam_entity(const json_t *account, const char *kind, struct slice name)
{
	char lower[IAM_NAME_LEN_MAX + 1];

	if (iam_lower(name, lower))
		return NULL;
	return json_object_get(json_object_get(account, kind), lower);
}

struct slice iam_arn(const json_t *account, const char *kind, const json_t *entity,
	char ret_arn[IAM_ARN_LEN_MAX])
{
	const json_t *of = json_object_get(entity, "account_id") ? entity : account;
	struct slice number = json_member_text(of, "account_id");
	struct slice path = json_member_text(entity, "path");
	int len;

	if (!entity)
		len = snprintf(
			ret_arn, IAM_ARN_LEN_MAX, "arn:aws:iam::%.*s:root", SLICE_FMT(number));
	else
		len = snprintf(ret_arn, IAM_ARN_LEN_MAX, "arn:aws:iam::%.*s:%s%.*s%.*s",
			SLICE_FMT(number), kind, SLICE_FMT(path.len ? path : SLICE("/")),
			SLICE_FMT(json_member_text(entity, "name")));
	return slice_of(ret_arn, MIN((size_t)len, IAM_ARN_LEN_MAX - 1));
}

/* Writes random characters of the alphabet, which has none that look alike. */
static void random_text(const char *alphabet, size_t count, char *ret_text)
{
	uint8_t bytes[64];
	size_t size = strlen(alphabet);

	CHECK(count <= sizeof(bytes));
	random_fill(bytes, count);
	for (size_t i = 0; i < count; i++)
		ret_text[i] = alphabet[bytes[i] % size];
	secret_wipe(bytes, sizeof(bytes));
}

void iam_unique_id(const char *prefix, char ret_id[IAM_UNIQUE_ID_LEN + 1])
{
	size_t len = strlen(prefix);

	CHECK(len <= 4);
	memcpy(ret_id, prefix, len);
	random_text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", IAM_UNIQUE_ID_LEN - 1 - len, ret_id + len);
	ret_id[IAM_UNIQUE_ID_LEN - 1] = '\0';
}

json_t *iam_key_find(const json_t *keys, struct slice access_key, size_t *ret_idx)
{
	for (size_t i = 0; i < json_array_size(keys); i++) {
		json_t *key = json_array_get(keys, i);

		if (!slice_eq(json_member_text(key, "access_key"), access_key))
			continue;
		if (ret_idx)
			*ret_idx = i;
		return key;
	}
	return NULL;
}

/* True for text that is valid in an Authorization header, and needs no quotes in a file. */
static bool is_key_text(struct slice text, size_t len_max)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] <= ' ' || text.data[i] > '~' || text.data[i] == ',')
			return false;
	return text.len > 0 && text.len <= len_max;
}

static int key_fill(struct iam *iam, json_t *entry, const struct iam_new_key *key)
{
	struct buf sealed;
	int ret;

	buf_init(&sealed, IAM_SEALED_LEN(LIMIT_SECRET_KEY_LEN_MAX));
	ret = iam_seal(iam, key->access_key, key->secret, &sealed);
	if (!ret)
		ret = json_member_set_text(entry, "access_key", key->access_key);
	if (!ret)
		ret = json_member_set_text(entry, "sealed", buf_slice(&sealed));
	if (!ret && json_object_set_new(entry, "active", json_boolean(key->active)))
		ret = -ENOMEM;
	buf_free(&sealed);
	return ret;
}

int iam_key_add(struct iam *iam, json_t *keys, struct iam_new_key *key)
{
	json_t *entry;

	if (!key->access_key.len) {
		iam_unique_id("AKIA", key->made_access_key);
		key->access_key = slice_str(key->made_access_key);
	}
	if (!key->secret.len) {
		random_text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-", 40,
			key->made_secret);
		key->made_secret[40] = '\0';
		key->secret = slice_str(key->made_secret);
	}
	if (!is_key_text(key->access_key, LIMIT_ACCESS_KEY_LEN_MAX) ||
		!is_key_text(key->secret, LIMIT_SECRET_KEY_LEN_MAX))
		return -EINVAL;
	entry = iam_key_find(keys, key->access_key, NULL);
	if (entry)
		return key_fill(iam, entry, key);
	if (json_array_size(keys) >= IAM_KEYS_PER_USER)
		return -EDQUOT;
	entry = json_object();
	json_object_set_new(
		entry, "created", json_integer((json_int_t)(clock_real_ns() / NS_PER_MS)));
	if (json_array_append_new(keys, entry))
		return -ENOMEM;
	return key_fill(iam, entry, key);
}

#define ALLOW(actions)                                                                          \
	"{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Action\":[" actions \
	"],\"Resource\":\"*\"}]}"

static const struct {
	const char *name, *text;
} builtins[] = {
	{"AdministratorAccess", ALLOW("\"*\"")},
	{"AmazonS3FullAccess", ALLOW("\"s3:*\"")},
	{"AmazonS3ReadOnlyAccess", ALLOW("\"s3:Get*\",\"s3:List*\"")},
	{"AmazonSNSFullAccess", ALLOW("\"sns:*\"")},
	{"AmazonSNSReadOnlyAccess", ALLOW("\"sns:Get*\",\"sns:List*\"")},
	{"IAMFullAccess", ALLOW("\"iam:*\"")},
	{"IAMReadOnlyAccess", ALLOW("\"iam:Get*\",\"iam:List*\"")},
};
/* When they were made: the same moment on every server. */
#define BUILTIN_CREATED_MS 1423242059000ll

const char *iam_builtin_policy(struct slice arn)
{
	static const struct slice start = SLICE(IAM_BUILTIN_ARN_START);

	if (!slice_starts(arn, start))
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(builtins); i++)
		if (slice_eq(slice_from(arn, start.len), slice_str(builtins[i].name)))
			return builtins[i].text;
	return NULL;
}

/* An id that stays the same, made of the name. */
static void builtin_id(const char *name, char ret_id[IAM_UNIQUE_ID_LEN + 1])
{
	uint8_t digest[SHA256_BYTES];

	sha256_of(name, strlen(name), digest);
	memcpy(ret_id, "ANPA", 4);
	for (size_t i = 4; i < IAM_UNIQUE_ID_LEN - 1; i++)
		ret_id[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[digest[i] % 32];
	ret_id[IAM_UNIQUE_ID_LEN - 1] = '\0';
}

json_t *iam_builtin_policies(void)
{
	json_t *policies = json_object();

	for (size_t i = 0; policies && i < ARRAY_LEN(builtins); i++) {
		char lower[IAM_NAME_LEN_MAX + 1], id[IAM_UNIQUE_ID_LEN + 1];

		int ret = iam_lower(slice_str(builtins[i].name), lower);

		CHECK(!ret);
		builtin_id(builtins[i].name, id);
		if (json_object_set_new(policies, lower,
			    json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "account_id", "aws", "name",
				    builtins[i].name, "path", "/", "policy_id", id, "text",
				    builtins[i].text, "created", (json_int_t)BUILTIN_CREATED_MS))) {
			json_decref(policies);
			policies = NULL;
		}
	}
	return policies;
}

bool iam_is_policy(const json_t *account, struct slice arn)
{
	json_t *policy;
	const char *name;

	if (iam_builtin_policy(arn))
		return true;
	json_object_foreach(json_object_get(account, "policies"), name, policy)
	{
		char own[IAM_ARN_LEN_MAX];

		if (slice_eq(iam_arn(account, "policy", policy, own), arn))
			return true;
	}
	return false;
}

int iam_attach(json_t *account, json_t *entity, struct slice arn)
{
	json_t *list = json_member_list(entity, "attached");
	size_t idx;

	if (!iam_is_policy(account, arn))
		return -ENOENT;
	if (json_list_find_text(list, arn, &idx))
		return 0;
	if (json_array_size(list) >= IAM_ATTACHED_MAX)
		return -EDQUOT;
	return json_array_append_new(list, json_stringn(arn.data, arn.len)) ? -ENOMEM : 0;
}

int iam_detach(json_t *account, json_t *entity, struct slice arn)
{
	json_t *list = json_object_get(entity, "attached");
	size_t idx;

	(void)account;
	if (!json_list_find_text(list, arn, &idx))
		return -ENOENT;
	json_array_remove(list, idx);
	return 0;
}

bool iam_is_attached(const json_t *entity, struct slice arn)
{
	size_t ignored;

	return json_list_find_text(json_object_get(entity, "attached"), arn, &ignored);
}

static bool has_group(const json_t *holder, struct slice group)
{
	const json_t *list = json_object_get(holder, "groups");

	for (size_t i = 0; i < json_array_size(list); i++)
		if (slice_eq_nocase(slice_str(json_string_value(json_array_get(list, i))), group))
			return true;
	return false;
}

bool iam_holder_find(const json_t *account, const char *kind, const json_t *entity,
	struct iam_holder *ret_holder)
{
	static const char *const holders[] = {"users", "groups", "roles"};
	const bool group = strcmp(kind, "groups") == 0;
	struct slice name = json_member_text(entity, "name");
	char text[IAM_ARN_LEN_MAX];
	struct slice arn = iam_arn(account, "policy", entity, text);
	const char *ignored;
	json_t *holder;

	for (size_t i = 0; i < ARRAY_LEN(holders); i++) {
		json_object_foreach(json_object_get(account, holders[i]), ignored, holder)
		{
			if (group ? !has_group(holder, name) : !iam_is_attached(holder, arn))
				continue;
			*ret_holder = (struct iam_holder){
				.kind = holders[i], .name = json_member_text(holder, "name")};
			return true;
		}
	}
	return false;
}

uint32_t iam_attached_count(const json_t *account, struct slice arn)
{
	static const char *const holders[] = {"users", "groups", "roles"};
	uint32_t count = 0;
	const char *name;
	json_t *holder;

	for (size_t i = 0; i < ARRAY_LEN(holders); i++) {
		json_object_foreach(json_object_get(account, holders[i]), name, holder) count +=
			iam_is_attached(holder, arn) ? 1 : 0;
	}
	return count;
}
