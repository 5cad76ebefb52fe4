/* iam/seed.c: accounts from a file (docs/spec/admin.md): entities in the file are created or
 * changed to match it; other entities stay. The admin API uses the same code. */
#include <errno.h>
#include <stdio.h>

#include "iam/iam_priv.h"

#define SEED_DEPTH_MAX 24u

struct seed {
	struct iam *iam;
	const json_t *in;
	char why[192]; /* the error */
};

static int wrong(struct seed *seed, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int wrong(struct seed *seed, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(seed->why, sizeof(seed->why), fmt, args);
	va_end(args);
	return -EINVAL;
}

static int64_t now_ms(void)
{
	return (int64_t)(clock_real_ns() / NS_PER_MS);
}

static int check_members(struct seed *seed, const json_t *in, const char *known)
{
	const json_t *value;
	const char *name;

	json_object_foreach((json_t *)in, name, value)
	{
		char wanted[80];

		snprintf(wanted, sizeof(wanted), " %.64s ", name);
		if (!strstr(known, wanted))
			return wrong(seed, "unknown field %.64s; known fields:%s", name, known);
	}
	return 0;
}

/* Copies a text, if it is given; it must have no control characters. */
static int take_text(struct seed *seed, const json_t *in, json_t *to, const char *name)
{
	struct slice text = json_member_text(in, name);

	if (!json_object_get(in, name))
		return 0;
	if (!text.len || text.len > IAM_NAME_LEN_MAX || !utf8_is_valid(text))
		return wrong(seed, "%s must be a text of 1 to %u bytes", name, IAM_NAME_LEN_MAX);
	for (size_t i = 0; i < text.len; i++)
		if ((uint8_t)text.data[i] < ' ' || text.data[i] == 0x7f)
			return wrong(seed, "%s has a control character", name);
	return json_member_set_text(to, name, text);
}

static int take_id(struct seed *seed, const json_t *in, json_t *to)
{
	struct slice id = json_member_text(in, "id");

	if (id.len > IAM_OWNER_LEN_MAX)
		return wrong(seed, "id has more than %u characters", IAM_OWNER_LEN_MAX);
	return take_text(seed, in, to, "id");
}

static int take_key(struct seed *seed, const json_t *in, json_t *keys)
{
	struct iam_new_key key = {.access_key = json_member_text(in, "access_key"),
		.secret = json_member_text(in, "secret_key"),
		.active = !json_is_false(json_object_get(in, "active"))};
	int ret;

	if (!key.access_key.len || !key.secret.len)
		return wrong(seed, "a key has an access_key and a secret_key");
	ret = iam_key_add(seed->iam, keys, &key);
	if (ret == -EINVAL)
		return wrong(seed,
			"the key %.*s has a character that keys cannot have, or too many",
			SLICE_FMT(key.access_key));
	if (ret == -EDQUOT)
		return wrong(seed, "one identity has at most %u keys", IAM_KEYS_PER_USER);
	return ret;
}

static int take_keys(struct seed *seed, const json_t *in, json_t *to)
{
	const json_t *list = json_object_get(in, "keys");
	json_t *keys = json_member_list(to, "keys");
	int ret = keys ? 0 : -ENOMEM;

	if (!ret && json_object_get(in, "access_key"))
		ret = take_key(seed, in, keys);
	if (list && !json_is_array(list))
		return wrong(seed, "keys must be a list");
	for (size_t i = 0; !ret && i < json_array_size(list); i++)
		ret = take_key(seed, json_array_get(list, i), keys);
	return ret;
}

/* Takes a policy as text or as an object. */
static int put_policy(struct seed *seed, const json_t *document, enum policy_kind kind, json_t *to,
	const char *name)
{
	struct policy_refusal refusal = {""};
	const struct policy *policy;
	struct mem_arena arena;
	char *text = json_is_string(document)
			     ? strdup(json_string_value(document))
			     : json_dumps(document ? document : json_null(), JSON_ENCODE_ANY);
	int ret;

	if (!text)
		return -ENOMEM;
	mem_arena_init(&arena);
	ret = policy_compile(slice_str(text), kind, &arena, &policy, &refusal);
	if (!ret)
		ret = policy_check_document(policy, &refusal);
	mem_arena_free(&arena);
	if (ret == -EINVAL)
		ret = wrong(seed, "the policy %.64s: %s", name, refusal.text);
	if (!ret)
		ret = json_member_set_text(to, name, slice_str(text));
	free(text);
	return ret;
}

/* Takes "policies", ARNs of managed ones, and "inline", policies by name. */
static int take_policies(struct seed *seed, const json_t *in, json_t *to)
{
	const json_t *arns = json_object_get(in, "policies"), *document;
	const json_t *own = json_object_get(in, "inline");
	json_t *attached, *texts;
	const char *name;
	int ret = 0;

	if (arns && json_is_array(arns)) {
		attached = json_member_list(to, "attached");
		json_array_clear(attached);
		for (size_t i = 0; i < json_array_size(arns); i++)
			if (!json_is_string(json_array_get(arns, i)) ||
				json_array_append(attached, json_array_get(arns, i)))
				return wrong(seed, "policies must be a list of ARNs");
	} else if (arns) {
		return wrong(seed, "policies must be a list of ARNs");
	}
	if (own && !json_is_object(own))
		return wrong(seed, "inline must be an object of policies by name");
	texts = json_member_object(to, "inline");
	json_object_foreach((json_t *)own, name, document)
	{
		if (!ret)
			ret = put_policy(seed, document, POLICY_IDENTITY, texts, name);
	}
	return ret;
}

/* Finds the entity of that name, or makes it. */
static json_t *entity_of(struct seed *seed, json_t *account, const char *kind, const json_t *in)
{
	char lower[IAM_NAME_LEN_MAX + 1], id[IAM_UNIQUE_ID_LEN + 1];
	struct slice name = json_member_text(in, "name"), path = json_member_text(in, "path");
	json_t *all = json_member_object(account, kind), *entity;
	bool user = kind[0] == 'u', group = kind[0] == 'g', role = kind[0] == 'r';

	if (iam_lower(name, lower)) {
		wrong(seed, "%s need names of letters, digits and _+=,.@$-", kind);
		return NULL;
	}
	entity = json_object_get(all, lower);
	if (!entity) {
		json_object_set_new(all, lower, json_object());
		entity = json_object_get(all, lower);
		iam_unique_id(user ? "AIDA" : group ? "AGPA" : role ? "AROA" : "ANPA", id);
		json_member_set_text(entity,
			user	? "user_id"
			: group ? "group_id"
			: role	? "role_id"
				: "policy_id",
			slice_str(id));
		json_object_set_new(entity, "created", json_integer(now_ms()));
	}
	json_member_set_text(entity, "name", name);
	json_member_set_text(entity, "path", path.len ? path : SLICE("/"));
	return entity;
}

static int take_user(struct seed *seed, json_t *account, const json_t *in)
{
	json_t *user = entity_of(seed, account, "users", in), *groups;
	const json_t *wanted = json_object_get(in, "groups");
	char lower[IAM_NAME_LEN_MAX + 1];
	int ret = user ? check_members(seed, in,
				 " name path id display_name email access_key secret_key active "
				 "keys policies inline groups ")
		       : -EINVAL;

	if (!ret)
		ret = take_id(seed, in, user);
	if (!ret)
		ret = take_text(seed, in, user, "display_name");
	if (!ret)
		ret = take_text(seed, in, user, "email");
	if (!ret)
		ret = take_keys(seed, in, user);
	if (!ret)
		ret = take_policies(seed, in, user);
	if (ret || !wanted)
		return ret;
	groups = json_member_list(user, "groups");
	json_array_clear(groups);
	for (size_t i = 0; i < json_array_size(wanted); i++) {
		struct slice name = slice_str(json_string_value(json_array_get(wanted, i)));

		if (!iam_entity(account, "groups", name) || iam_lower(name, lower))
			return wrong(seed, "no group %.*s", SLICE_FMT(name));
		json_array_append_new(groups, json_string(lower));
	}
	return 0;
}

static int take_group(struct seed *seed, json_t *account, const json_t *in)
{
	json_t *group = entity_of(seed, account, "groups", in);
	int ret = group ? check_members(seed, in, " name path policies inline ") : -EINVAL;

	return ret ? ret : take_policies(seed, in, group);
}

static int take_role(struct seed *seed, json_t *account, const json_t *in)
{
	json_t *role = entity_of(seed, account, "roles", in);
	int ret = role ? check_members(seed, in, " name path trust policies inline ") : -EINVAL;

	if (!ret)
		ret = put_policy(seed, json_object_get(in, "trust"), POLICY_TRUST, role, "trust");
	return ret ? ret : take_policies(seed, in, role);
}

static int take_managed(struct seed *seed, json_t *account, const json_t *in)
{
	json_t *policy = entity_of(seed, account, "policies", in);
	int ret = policy ? check_members(seed, in, " name path document ") : -EINVAL;

	return ret ? ret
		   : put_policy(seed, json_object_get(in, "document"), POLICY_IDENTITY, policy,
			     "text");
}

static int take_all(struct seed *seed, json_t *account, const char *kind,
	int (*take)(struct seed *, json_t *, const json_t *))
{
	const json_t *list = json_object_get(seed->in, kind);
	int ret = 0;

	if (list && !json_is_array(list))
		return wrong(seed, "%s must be a list", kind);
	for (size_t i = 0; !ret && i < json_array_size(list); i++)
		ret = take(seed, account, json_array_get(list, i));
	return ret;
}

/* Takes the required parts of an account: id (made from the number if missing) and name. */
static int take_head(struct seed *seed, json_t *account)
{
	struct slice number = json_member_text(account, "account_id");
	char hex[2 * SHA256_BYTES];
	uint8_t digest[SHA256_BYTES];
	int ret;

	if (!json_object_get(account, "created"))
		json_object_set_new(account, "created", json_integer(now_ms()));
	ret = take_id(seed, seed->in, account);
	if (!ret)
		ret = take_text(seed, seed->in, account, "display_name");
	if (!ret)
		ret = take_text(seed, seed->in, account, "email");
	if (!ret && slice_eq(number, SLICE(IAM_ACCOUNT_OF_ROOT)))
		ret = json_member_set_text(account, "id", SLICE(IAM_ROOT_OWNER_ID));
	if (!ret && !json_object_get(account, "id")) {
		sha256_of(number.data, number.len, digest);
		hex_encode(digest, sizeof(digest), hex);
		ret = json_member_set_text(account, "id", slice_of(hex, sizeof(hex)));
	}
	if (!ret && !json_object_get(account, "display_name"))
		ret = json_member_set_text(account, "display_name",
			slice_eq(number, SLICE(IAM_ACCOUNT_OF_ROOT)) ? SLICE(IAM_ROOT_OWNER_NAME)
								     : number);
	return ret;
}

static int seed_change(json_t *account, void *arg)
{
	struct seed *seed = arg;
	int ret = check_members(seed, seed->in,
		" account_id id display_name email access_key secret_key active keys users groups "
		"roles policies ");

	if (!ret)
		ret = take_head(seed, account);
	if (!ret)
		ret = take_keys(seed, seed->in, account);
	if (!ret)
		ret = take_all(seed, account, "policies", take_managed);
	if (!ret)
		ret = take_all(seed, account, "groups", take_group);
	if (!ret)
		ret = take_all(seed, account, "roles", take_role);
	return ret ? ret : take_all(seed, account, "users", take_user);
}

/* The account's number; if the file has none, twelve digits made from the id. */
static struct slice number_of(const json_t *in, char made[13])
{
	struct slice id = json_member_text(in, "id"), number = json_member_text(in, "account_id");
	uint8_t digest[SHA256_BYTES];
	uint64_t value;

	if (number.len || !id.len)
		return number;
	sha256_of(id.data, id.len, digest);
	memcpy(&value, digest, sizeof(value));
	snprintf(made, 13, "%012llu", (unsigned long long)(value % 999999999999ull + 1));
	return slice_str(made);
}

static bool is_number(struct slice number)
{
	return slice_is_word(number, "") && number.len > 0 && number.len <= IAM_ACCOUNT_LEN_MAX;
}

int iam_put(struct iam *iam, struct flow_core *core, const json_t *in, struct buf *why)
{
	struct seed seed = {.iam = iam, .in = in};
	struct iam_edit edit = {.create = true, .change = seed_change, .arg = &seed};
	char made[13];
	int ret;

	edit.account = number_of(in, made);
	if (!is_number(edit.account))
		ret = wrong(
			&seed, "an account needs an account_id of letters and digits, or an id");
	else
		ret = iam_change(iam, core, &edit);
	if (ret == -EINVAL)
		buf_put_str(why, seed.why[0] ? seed.why : "a name or an id is too long");
	else if (ret == -EEXIST)
		buf_put_str(why,
			"an access key, an id or an e-mail belongs to another account, or appears "
			"twice");
	else if (ret == -EUSERS)
		buf_put_str(why, IAM_ACCOUNTS_FULL);
	else if (ret)
		buf_put_str(why, strerror(-ret));
	return ret;
}

int iam_seed(struct iam *iam, struct flow_core *core, struct slice text)
{
	json_t *root = NULL, *list, *account;
	int ret = 0;
	size_t idx;

	if (json_is_flat(text, SEED_DEPTH_MAX))
		root = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
	list = json_object_get(root, "accounts");
	if (!json_is_array(list)) {
		log_error("iam", "the accounts' file needs a list called accounts");
		json_decref(root);
		return -EINVAL;
	}
	json_array_foreach(list, idx, account)
	{
		struct buf why;

		buf_init(&why, 1024);
		ret = iam_put(iam, core, account, &why);
		if (ret)
			log_error("iam", "the accounts' file, account %zu: %.*s", idx + 1,
				SLICE_FMT(buf_slice(&why)));
		buf_free(&why);
		if (ret)
			break;
	}
	json_decref(root);
	return ret;
}
