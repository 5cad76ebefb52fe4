/* cli/admin_replicate.c: `nebulaio admin targets`, `target-put`, `target-remove` and `resync`. */
#include "admin_replicate.h"

#include <stdlib.h>
#include <string.h>

#define SECRET_ENV "NEBULAIO_TARGET_SECRET_KEY"
#define REGION_ENV "NEBULAIO_TARGET_REGION"

static uint64_t number(const json_t *json, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(json, member));
}

static void target_print(const struct admin *admin, const json_t *target)
{
	char pending[32], sent[32];

	if (admin->opts.json) {
		admin_print_json(target);
		return;
	}
	printf("%-16s %-8s %s, bucket %s\n"
	       "  waiting %llu (%s), oldest %llu s; sent %llu (%s) since the start, last by %s; "
	       "refused now %llu, failed %llu\n",
		admin_shown(target, "name"), admin_text(target, "state"),
		admin_shown(target, "endpoint"), admin_shown(target, "bucket"),
		(unsigned long long)number(target, "pending"),
		remote_bytes_text(number(target, "pending_bytes"), pending),
		(unsigned long long)number(target, "oldest_age_ms") / 1000,
		(unsigned long long)number(target, "sent"),
		remote_bytes_text(number(target, "sent_bytes"), sent),
		admin_text(target, "transport"), (unsigned long long)number(target, "refused"),
		(unsigned long long)number(target, "failed"));
	if (*admin_text(target, "error"))
		printf("  last error: %s\n", remote_text(admin_text(target, "error")));
}

int admin_targets(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {.method = "GET", .parts = {"replication", "targets"}};
	json_t *json, *target;
	int ret = admin_request(admin, &request, &json);
	size_t idx;

	(void)count;
	(void)arguments;
	json_array_foreach(json_object_get(json, "targets"), idx, target)
		target_print(admin, target);
	json_decref(json);
	return ret;
}

/* Not an argument, which every user of the host can see. NULL, and prints why. */
static char *secret_read(const struct admin *admin)
{
	const char *told = getenv(SECRET_ENV);
	char line[512];

	if (told && *told)
		return strdup(told);
	if (!fgets(line, sizeof(line), stdin) || line[0] == '\n') {
		cli_usage_error(admin->command,
			"target-put: set " SECRET_ENV ", or give the target's secret key as the "
			"first line of standard input");
		return NULL;
	}
	line[strcspn(line, "\r\n")] = '\0';
	return strdup(line);
}

static json_t *accounts_of(char *text)
{
	json_t *list = json_array();

	for (char *one; (one = strsep(&text, ","));)
		json_array_append_new(list, json_string(strcmp(one, "all") == 0 ? "*" : one));
	return list;
}

int admin_target_put(struct admin *admin, int count, char **arguments)
{
	struct admin_request request = {
		.method = "PUT", .parts = {"replication", "targets", arguments[0]}};
	char *secret = secret_read(admin);
	json_t *body, *target = NULL;
	int ret;

	if (!secret)
		return CLI_USAGE;
	body = json_pack("{s:s, s:s, s:s, s:s}", "endpoint", arguments[1], "bucket", arguments[2],
		"access_key", arguments[3], "secret_key", secret);
	if (getenv(REGION_ENV))
		json_object_set_new(body, "region", json_string(getenv(REGION_ENV)));
	if (count > 4)
		json_object_set_new(body, "accounts", accounts_of(arguments[4]));
	request.body = body;
	ret = admin_request(admin, &request, &target);
	if (!ret)
		target_print(admin, target);
	json_decref(target);
	json_decref(body);
	free(secret);
	return ret;
}

int admin_target_remove(struct admin *admin, int count, char **arguments)
{
	const struct admin_request request = {.parts = {"replication", "targets", arguments[0]}};

	return admin_remove(admin, "target-remove", &request, count, arguments);
}

int admin_resync(struct admin *admin, int count, char **arguments)
{
	struct admin_request request = {.method = "POST", .parts = {"replication", "resync"}};
	json_t *body;
	int ret;

	if (count > 1 && strcmp(arguments[1], "all") != 0)
		return cli_usage_error(admin->command, "resync: '%s' is not \"all\"", arguments[1]);
	body = json_pack("{s:s, s:b}", "bucket", arguments[0], "again", count > 1);
	request.body = body;
	ret = admin_request(admin, &request, NULL);
	json_decref(body);
	return ret;
}
