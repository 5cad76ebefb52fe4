/* cli/admin_volume.c: `nebulaio admin volume`: the volumes of a store, and changes of their set. */
#include "admin_volume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "remote.h"

static uint64_t number(const json_t *json, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(json, member));
}

static void status_print(const struct admin *admin, const json_t *status)
{
	uint64_t left = number(status, "left_bytes"), all = number(status, "all_bytes");
	const char *note = admin_text(status, "note");
	char text[32], whole[32];
	const json_t *volume;
	size_t idx;

	if (admin->opts.json) {
		admin_print_json(status);
		return;
	}
	json_array_foreach(json_object_get(status, "volumes"), idx, volume) printf(
		"volume %-2llu  %-10s  %8s  %s%s\n", (unsigned long long)number(volume, "number"),
		admin_text(volume, "state"), remote_bytes_text(number(volume, "bytes"), text),
		admin_shown(volume, "path"),
		json_is_true(json_object_get(volume, "leaves")) ? "  (leaves)" : "");
	printf("erasure coded %llu+%llu\n", (unsigned long long)number(status, "data"),
		(unsigned long long)number(status, "parity"));
	if (json_is_true(json_object_get(status, "preparing")))
		printf("the new volumes are being made ready\n");
	if (json_is_true(json_object_get(status, "changing")))
		printf("moving: %s of %s are left (%llu %%)\n", remote_bytes_text(left, text),
			remote_bytes_text(all, whole),
			(unsigned long long)(all ? (all - left) * 100 / all : 100));
	if (note[0])
		printf("%s\n", remote_text(note));
}

static int request_print(struct admin *admin, const char *method, const json_t *body)
{
	const struct admin_request request = {.method = method, .parts = {"volumes"}, .body = body};
	json_t *json = NULL;
	int ret = admin_request(admin, &request, &json);

	if (!ret)
		status_print(admin, json);
	json_decref(json);
	return ret;
}

/* DATA+PARITY into the body. */
static bool erasure_put(json_t *body, const char *text)
{
	unsigned int data, parity;
	char end;

	if (sscanf(text, "%2u+%2u%c", &data, &parity, &end) != 2 || !data || !parity)
		return false;
	json_object_set_new(body, "data", json_integer((json_int_t)data));
	json_object_set_new(body, "parity", json_integer((json_int_t)parity));
	return true;
}

static bool number_append(json_t *list, const char *text)
{
	uint64_t value;

	if (slice_to_u64(slice_str(text), &value) || value >= 64)
		return false;
	json_array_append_new(list, json_integer((json_int_t)value));
	return true;
}

/* The last word may be the numbers of shards. */
static int change(struct admin *admin, const char *member, int count, char **words)
{
	json_t *body = json_object(), *list = json_array();
	const char *wrong = NULL;
	int ret;

	if (count > 0 && strchr(words[count - 1], '+') && words[count - 1][0] != '/' &&
		!strstr(words[count - 1], "://") && !erasure_put(body, words[--count]))
		wrong = words[count];
	for (int i = 0; i < count && !wrong; i++)
		if (strcmp(member, "add") == 0)
			json_array_append_new(list, json_string(words[i]));
		else if (!number_append(list, words[i]))
			wrong = words[i];
	json_object_set_new(body, member, list);
	if (wrong)
		ret = cli_usage_error(admin->command, "'%s' is not %s", wrong,
			strchr(wrong, '+') ? "of the form DATA+PARITY" : "the number of a volume");
	else if (!count && strcmp(member, "none") != 0)
		ret = cli_usage_error(admin->command, "no volume is named");
	else
		ret = request_print(admin, "POST", body);
	json_decref(body);
	return ret;
}

int admin_volume(struct admin *admin, int count, char **arguments)
{
	const char *verb = arguments[0];

	if ((strcmp(verb, "list") == 0 || strcmp(verb, "status") == 0) && count == 1)
		return request_print(admin, "GET", NULL);
	if (strcmp(verb, "cancel") == 0 && count == 1)
		return request_print(admin, "DELETE", NULL);
	if (strcmp(verb, "add") == 0 || strcmp(verb, "remove") == 0)
		return change(admin, verb, count - 1, arguments + 1);
	if (strcmp(verb, "erasure") == 0 && count == 2 && strchr(arguments[1], '+'))
		return change(admin, "none", 1, arguments + 1);
	return cli_usage_error(admin->command,
		"volume add PATH… [DATA+PARITY], volume remove NUMBER… [DATA+PARITY], volume "
		"erasure DATA+PARITY, volume cancel, or volume list");
}
