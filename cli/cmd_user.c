/* cli/cmd_user.c: `nebulaio user`: an account's users, their keys and policies. */
#include <stdlib.h>
#include <string.h>

#include "admin_call.h"

#define POLICIES_MAX 64

static const char USAGE[] =
	"usage: nebulaio user [OPTIONS] list\n"
	"       nebulaio user [OPTIONS] create NAME [POLICY…]\n"
	"       nebulaio user [OPTIONS] show | keys | remove | disable | enable NAME\n"
	"       nebulaio user [OPTIONS] attach | detach NAME POLICY…\n"
	"       nebulaio user [OPTIONS] key-create NAME\n"
	"       nebulaio user [OPTIONS] key-disable | key-enable | key-remove | rotate NAME KEY\n"
	"\n"
	"create also makes a first key and prints it. A secret is printed only once, when it is\n"
	"made. disable switches all keys of a user off; enable switches them on. rotate makes a\n"
	"new key and switches KEY off; use key-remove when no program needs KEY any more. A\n"
	"POLICY is an ARN, the name of a policy of the account (`nebulaio admin policies`), or\n"
	"the name of a built-in one: AmazonS3FullAccess, AmazonS3ReadOnlyAccess, …\n"
	"\n" ADMIN_USAGE "      --no-key       with create: make no first key\n";

static int user_get(struct admin *admin, const char *name, json_t **ret_user)
{
	const struct admin_request request = {
		.method = "GET", .parts = {"accounts", admin->account, "users", name}};

	return admin_request(admin, &request, ret_user);
}

/* An account without changes so far has no document: it is treated as empty. */
static int account_get(struct admin *admin, json_t **ret_account)
{
	const struct admin_request request = {.method = "GET",
		.parts = {"accounts", admin->account},
		.may_be_missing = strcmp(admin->account, "root") == 0};
	int ret = admin_request(admin, &request, ret_account);

	if (ret != CLI_NOT_FOUND || !request.may_be_missing)
		return ret;
	*ret_account = json_object();
	return CLI_OK;
}

static int user_list(struct admin *admin, int count, char **arguments)
{
	json_t *account, *user;
	size_t idx;
	int ret = account_get(admin, &account);

	(void)count;
	(void)arguments;
	if (ret)
		return ret;
	json_array_foreach(json_object_get(account, "users"), idx, user)
	{
		size_t keys = json_array_size(json_object_get(user, "keys"));
		size_t policies = json_array_size(json_object_get(user, "policies"));

		if (admin->opts.json)
			admin_print_json(user);
		else
			printf("%-24s %zu key%s, %zu polic%s\n", admin_shown(user, "name"), keys,
				REMOTE_S(keys), policies, policies == 1 ? "y" : "ies");
	}
	json_decref(account);
	return CLI_OK;
}

static void user_print(const struct admin *admin, const json_t *user)
{
	const json_t *name;
	size_t idx;

	if (admin->opts.json) {
		admin_print_json(user);
		return;
	}
	printf("name      %s\npath      %s\n", admin_shown(user, "name"),
		admin_shown(user, "path"));
	json_array_foreach(json_object_get(user, "policies"), idx, name)
		printf("policy    %s\n", remote_text(json_string_value(name)));
	json_array_foreach(json_object_get(user, "groups"), idx, name)
		printf("group     %s\n", remote_text(json_string_value(name)));
	admin_print_keys(admin, user);
}

/* Prints all about one user, or only its keys. */
static int user_tell(struct admin *admin, const char *name,
	void (*print)(const struct admin *admin, const json_t *user))
{
	json_t *user;
	int ret = user_get(admin, name, &user);

	if (!ret)
		print(admin, user);
	json_decref(user);
	return ret;
}

static int user_show(struct admin *admin, int count, char **arguments)
{
	(void)count;
	return user_tell(admin, arguments[0], user_print);
}

/* ---- Policies. ---- */

static bool is_built_in(const char *name)
{
	static const char *const NAMES[] = {"AdministratorAccess", "AmazonS3FullAccess",
		"AmazonS3ReadOnlyAccess", "AmazonSNSFullAccess", "AmazonSNSReadOnlyAccess",
		"IAMFullAccess", "IAMReadOnlyAccess"};

	for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
		if (strcmp(name, NAMES[i]) == 0)
			return true;
	return false;
}

/* The ARN of a policy's name in the account; NULL and a message if there is none. */
static json_t *policy_arn(struct admin *admin, const json_t *account, const char *name)
{
	const json_t *policy;
	size_t idx;

	if (strchr(name, ':'))
		return json_string(name);
	json_array_foreach(json_object_get(account, "policies"), idx, policy)
	{
		if (strcasecmp(admin_text(policy, "name"), name) == 0)
			return json_sprintf("arn:aws:iam::%s:policy%s%s",
				admin_text(account, "account_id"), admin_text(policy, "path"),
				admin_text(policy, "name"));
	}
	if (is_built_in(name))
		return json_sprintf("arn:aws:iam::aws:policy/%s", name);
	fprintf(stderr,
		"nebulaio: account %s has no policy %s, and no built-in policy has this name\n",
		admin->account, name);
	return NULL;
}

/* Appends the ARNs of the named policies to list. */
static int policies_read(struct admin *admin, int count, char **names, json_t *list)
{
	json_t *account;
	int ret = account_get(admin, &account);

	for (int i = 0; !ret && i < count; i++) {
		json_t *arn = policy_arn(admin, account, names[i]);

		if (!arn)
			ret = CLI_NOT_FOUND;
		else
			json_array_append_new(list, arn);
	}
	json_decref(account);
	return ret;
}

static int user_put(struct admin *admin, const char *name, json_t *body)
{
	const struct admin_request request = {.method = "PUT",
		.parts = {"accounts", admin->account, "users", name},
		.body = body};

	return admin_request(admin, &request, NULL);
}

/* One request, so that two callers who change the same user do not undo each other's change. */
static int attachment(struct admin *admin, const char *what, int count, char **arguments)
{
	json_t *list = json_array(), *body = json_pack("{s:O}", what, list), *user = NULL;
	const struct admin_request request = {.method = "POST",
		.parts = {"accounts", admin->account, "users", arguments[0], "policies"},
		.body = body};
	int ret = policies_read(admin, count - 1, arguments + 1, list);

	if (!ret)
		ret = admin_request(admin, &request, &user);
	if (!ret && admin->opts.json)
		admin_print_json(json_object_get(user, "policies"));
	json_decref(user);
	json_decref(body);
	json_decref(list);
	return ret;
}

static int user_attach(struct admin *admin, int count, char **arguments)
{
	return attachment(admin, "attach", count, arguments);
}

static int user_detach(struct admin *admin, int count, char **arguments)
{
	return attachment(admin, "detach", count, arguments);
}

/* ---- Keys. ---- */

static int key_create(struct admin *admin, int count, char **arguments)
{
	const char *const parts[ADMIN_PARTS_MAX + 1] = {
		"accounts", admin->account, "users", arguments[0], "keys"};
	json_t *also = json_pack("{s:s}", "user", arguments[0]);
	int ret = admin_key_make(admin, parts, also);

	(void)count;
	json_decref(also);
	return ret;
}

static int user_create(struct admin *admin, int count, char **arguments)
{
	const struct admin_request there = {.method = "GET",
		.parts = {"accounts", admin->account, "users", arguments[0]},
		.may_be_missing = true};
	json_t *list = json_array(), *body = json_pack("{s:O}", "policies", list);
	int ret = admin_request(admin, &there, NULL);

	if (ret == CLI_OK) {
		fprintf(stderr, "nebulaio: user %s exists already\n", arguments[0]);
		ret = CLI_FAILED;
	} else if (ret == CLI_NOT_FOUND) {
		ret = policies_read(admin, count - 1, arguments + 1, list);
		if (!ret)
			ret = user_put(admin, arguments[0], body);
		if (!ret && !admin->no_key)
			ret = key_create(admin, 1, arguments);
		else if (!ret && admin->opts.json)
			printf("{\"user\": \"%s\"}\n", arguments[0]); /* no user name has a quote */
	}
	json_decref(body);
	json_decref(list);
	return ret;
}

static int user_keys(struct admin *admin, int count, char **arguments)
{
	(void)count;
	return user_tell(admin, arguments[0], admin_print_keys);
}

static int key_change(struct admin *admin, char **arguments, const char *method, bool active)
{
	json_t *body = json_pack("{s:b}", "active", active);
	const struct admin_request request = {.method = method,
		.parts = {"accounts", admin->account, "users", arguments[0], "keys", arguments[1]},
		.body = strcmp(method, "PUT") == 0 ? body : NULL};
	int ret = admin_request(admin, &request, NULL);

	json_decref(body);
	return ret;
}

static int key_disable(struct admin *admin, int count, char **arguments)
{
	(void)count;
	return key_change(admin, arguments, "PUT", false);
}

static int key_enable(struct admin *admin, int count, char **arguments)
{
	(void)count;
	return key_change(admin, arguments, "PUT", true);
}

static int key_remove(struct admin *admin, int count, char **arguments)
{
	(void)count;
	return key_change(admin, arguments, "DELETE", false);
}

/* Checks that the old key exists: with a mistyped one, two valid keys would remain. */
static int user_rotate(struct admin *admin, int count, char **arguments)
{
	json_t *user, *key;
	bool found = false;
	size_t idx;
	int ret = user_get(admin, arguments[0], &user);

	if (ret)
		return ret;
	json_array_foreach(json_object_get(user, "keys"), idx, key) found |=
		strcmp(admin_text(key, "access_key"), arguments[1]) == 0;
	json_decref(user);
	if (!found) {
		fprintf(stderr, "nebulaio: %s has no key %s\n", arguments[0], arguments[1]);
		return CLI_NOT_FOUND;
	}
	ret = key_create(admin, count, arguments);
	if (!ret && cli_output_flush()) {
		fprintf(stderr,
			"nebulaio: key %s stays active; remove the new key, whose secret is lost\n",
			arguments[1]);
		return CLI_FAILED;
	}
	return ret ? ret : key_disable(admin, count, arguments);
}

static int keys_switch(struct admin *admin, char *name, bool active)
{
	json_t *user, *key;
	size_t idx;
	int ret = user_get(admin, name, &user);

	if (ret)
		return ret;
	json_array_foreach(json_object_get(user, "keys"), idx, key)
	{
		char *arguments[] = {name, (char *)(uintptr_t)admin_text(key, "access_key")};

		if (!ret)
			ret = key_change(admin, arguments, "PUT", active);
	}
	json_decref(user);
	return ret;
}

static int user_disable(struct admin *admin, int count, char **arguments)
{
	(void)count;
	return keys_switch(admin, arguments[0], false);
}

static int user_enable(struct admin *admin, int count, char **arguments)
{
	(void)count;
	return keys_switch(admin, arguments[0], true);
}

static int user_remove(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {
		.method = "DELETE", .parts = {"accounts", admin->account, "users", arguments[0]}};

	(void)count;
	return admin_request(admin, &request, NULL);
}

static int user_run(int argc, char **argv)
{
	static const struct admin_verb VERBS[] = {
		{"list", 0, 0, user_list},
		{"create", 1, POLICIES_MAX, user_create},
		{"show", 1, 1, user_show},
		{"keys", 1, 1, user_keys},
		{"remove", 1, 1, user_remove},
		{"disable", 1, 1, user_disable},
		{"enable", 1, 1, user_enable},
		{"attach", 2, POLICIES_MAX, user_attach},
		{"detach", 2, POLICIES_MAX, user_detach},
		{"key-create", 1, 1, key_create},
		{"key-disable", 2, 2, key_disable},
		{"key-enable", 2, 2, key_enable},
		{"key-remove", 2, 2, key_remove},
		{"rotate", 2, 2, user_rotate},
	};

	const struct admin_verbs verbs = {&CLI_USER, VERBS, ARRAY_LEN(VERBS), true};

	return admin_run(&verbs, argc, argv);
}

const struct cli_command CLI_USER = {
	.name = "user",
	.summary = "users, their keys and policies",
	.usage = USAGE,
	.run = user_run,
};
