/* etcd/answer.c: answers of etcd's JSON gateway, and the texts that owners store there. Each is
 * outside input: sizes and types are checked, and what does not fit is -EPROTO or -EUCLEAN. */
#include "etcd/etcd_priv.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/text.h"

/* The gateway writes 64-bit numbers as texts. */
static int number_parse(const json_t *value, uint64_t *ret_number)
{
	const char *text = json_string_value(value);

	if (json_is_integer(value) && json_integer_value(value) >= 0)
		*ret_number = (uint64_t)json_integer_value(value);
	else if (!text || slice_to_u64(slice_str(text), ret_number))
		return -EPROTO;
	return 0;
}

/* Into a string: base64, without a NUL in it. */
static int text_parse(const json_t *value, char *ret_text, size_t cap)
{
	const char *text = json_string_value(value);
	size_t len = 0;

	/* An empty value is left out. */
	if (value && (!text || base64_decode(slice_str(text), ret_text, cap - 1, &len)))
		return -EPROTO;
	ret_text[len] = '\0';
	return strlen(ret_text) == len ? 0 : -EPROTO;
}

static int kv_parse(
	const json_t *kv, const char *owner_key, const char *life_key, struct etcd_answer *answer)
{
	char key[ETCD_TEXT_MAX];
	struct etcd_value *value;
	int ret = text_parse(json_object_get(kv, "key"), key, sizeof(key));

	if (ret)
		return ret;
	value = strcmp(key, owner_key) == 0  ? &answer->owner
		: strcmp(key, life_key) == 0 ? &answer->life
					     : NULL;
	if (!value)
		return 0;
	ret = text_parse(json_object_get(kv, "value"), value->text, sizeof(value->text));
	return ret ? ret : number_parse(json_object_get(kv, "mod_revision"), &value->revision);
}

int etcd_answer_parse(struct slice text, const char *owner_key, const char *life_key,
	struct etcd_answer *ret_answer)
{
	json_t *json = json_loadb(text.data ? (const char *)text.data : "", text.len, 0, NULL);
	struct etcd_answer answer = {.succeeded = json_is_true(json_object_get(json, "succeeded"))};
	const json_t *response, *kv;
	size_t i, j;
	int ret = json_is_object(json) && json_object_get(json, "header") ? 0 : -EPROTO;

	json_array_foreach(json_object_get(json, "responses"), i, response)
	{
		const json_t *kvs =
			json_object_get(json_object_get(response, "response_range"), "kvs");

		json_array_foreach(kvs, j, kv) ret =
			ret ? ret : kv_parse(kv, owner_key, life_key, &answer);
	}
	json_decref(json);
	if (!ret)
		*ret_answer = answer;
	return ret;
}

int etcd_token_parse(struct slice text, char *ret_token, size_t cap)
{
	json_t *json = json_loadb(text.data ? (const char *)text.data : "", text.len, 0, NULL);
	const char *token = json_string_value(json_object_get(json, "token"));
	int ret = -EPROTO;

	/* It becomes a header. */
	if (token && token[0] && !strpbrk(token, "\r\n") &&
		!slice_copy_str(slice_str(token), ret_token, cap))
		ret = 0;
	json_decref(json);
	return ret;
}

void etcd_error_parse(struct slice text, char *ret_why, size_t cap)
{
	json_t *json = json_loadb(text.data ? (const char *)text.data : "", text.len, 0, NULL);
	const char *why = json_string_value(json_object_get(json, "error"));

	snprintf(ret_why, cap, "%.200s", why && why[0] ? why : "no reason given");
	json_decref(json);
}

/* A token of kind jwt is of one state of etcd's users and roles, and is refused after each change
 * of them (400, "revision of auth store is old"). */
bool etcd_refuses(long status, const char *why)
{
	return status == 401 || status == 403 ||
	       (status == 400 && (strstr(why, "authentication") || strstr(why, "auth store")));
}

int etcd_record_parse(const char *text, struct etcd_record *ret_record)
{
	struct etcd_record record = {.epoch = 0};
	struct process *process = &record.process;
	unsigned long long epoch = 0;
	int count;

	if (text[0] == '0') {
		count = sscanf(text, "0 %20llu", &epoch) + 5;
	} else {
		record.owned = true;
		count = sscanf(text, "1 %20llu %79s %47s %47s %20llu %20llu", &epoch, process->host,
			process->boot, process->pids, &process->pid, &process->start);
	}
	record.epoch = epoch;
	if (count != 6 || !epoch || epoch >= INT64_MAX)
		return -EUCLEAN;
	*ret_record = record;
	return 0;
}

#define LIFE_MS_MAX (3600u * 1000)

int etcd_life_parse(const char *text, uint64_t *ret_ms)
{
	unsigned long long number, ms;

	if (sscanf(text, "%20llu %20llu", &number, &ms) != 2 || ms > LIFE_MS_MAX)
		return -EUCLEAN;
	*ret_ms = ms;
	return 0;
}
