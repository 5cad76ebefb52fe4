/* cli/backup_server.c: the store's side of a backup: a session by the admin API, which keeps one
 * moment of the store, and bodies of that moment. */
#include "backup_priv.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_TIMEOUT_NS (120 * NS_PER_S)

static int refused(struct backup *backup, struct neb_result *result)
{
	json_t *json = result->status ? json_loads(result->message, 0, NULL) : NULL;
	const char *text;

	if (result->status == 410)
		return json_decref(json), BACKUP_AGAIN;
	text = json_string_value(json_object_get(json, "code"));
	if (text)
		snprintf(result->code, sizeof(result->code), "%s", text);
	text = json_string_value(json_object_get(json, "error"));
	if (text)
		snprintf(result->message, sizeof(result->message), "%s", text);
	json_decref(json);
	return remote_failed(backup->opts.endpoints, result);
}

/* The answer is then in backup->answer. */
int backup_ask(struct backup *backup, const char *method, const char *path, struct slice text)
{
	struct neb_iov body = {(void *)(uintptr_t)text.data, text.len};
	struct neb_iov into = {backup->answer, BACKUP_ANSWER_BYTES};
	const struct neb_request request = {.op = NEB_S3,
		.method = method,
		.path = path,
		.body = &body,
		.body_count = text.len != 0,
		.into = &into,
		.into_count = 1,
		.timeout_ns = REQUEST_TIMEOUT_NS};
	struct neb_result result = {0};

	if (neb_perform(backup->client, &request, &result))
		return refused(backup, &result);
	backup->answer_bytes = result.bytes;
	return CLI_OK;
}

static uint64_t number(const json_t *json, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(json, member));
}

static int session_take(struct backup *backup, const json_t *json)
{
	struct store_backup_head *head = &backup->head.store;
	const char *uuid = json_string_value(json_object_get(json, "uuid"));

	if (!uuid || hex_decode(slice_str(uuid), head->uuid, sizeof(head->uuid)) ||
		!number(json, "id")) {
		fprintf(stderr,
			"nebulaio: %s: the answer is not from an admin interface that makes "
			"backups; set --endpoint to the server's admin.address\n",
			backup->opts.endpoints);
		return CLI_FAILED;
	}
	backup->session = number(json, "id");
	head->seq = number(json, "seq");
	head->data_id_next = number(json, "data_id_next");
	head->bucket_id_next = number(json, "bucket_id_next");
	head->objects = number(json, "objects");
	head->used_bytes = number(json, "used_bytes");
	free(backup->kept);
	backup->kept = json_dumps(json_object_get(json, "kept"), JSON_COMPACT);
	return backup->kept ? CLI_OK : CLI_FAILED;
}

int backup_session_begin(struct backup *backup)
{
	char text[64];
	json_t *json;
	int ret;

	snprintf(text, sizeof(text), "{\"pin_s\": %llu}", (unsigned long long)backup->pin_s);
	ret = backup_ask(backup, "POST", "/admin/v1/backups", slice_str(text));
	if (ret)
		return ret;
	json = json_loadb((const char *)backup->answer, backup->answer_bytes, 0, NULL);
	ret = session_take(backup, json);
	json_decref(json);
	return ret;
}

void backup_session_end(struct backup *backup)
{
	char path[64];
	struct neb_request request = {.op = NEB_S3, .method = "DELETE", .path = path};
	struct neb_result result = {0};

	if (!backup->session)
		return;
	snprintf(path, sizeof(path), "/admin/v1/backups/%llu", (unsigned long long)backup->session);
	backup->session = 0;
	(void)neb_perform(backup->client, &request, &result); /* it ends by itself, too */
}

/* Reads a body into out. */
int backup_body_fetch(struct backup *backup, struct slice key, uint64_t bytes, uint8_t *out)
{
	char path[128];

	for (uint64_t at = 0; at < bytes;) {
		int ret;

		snprintf(path, sizeof(path), "/admin/v1/backups/%llu/body/%llu/%llu",
			(unsigned long long)backup->session, (unsigned long long)bytes,
			(unsigned long long)at);
		ret = backup_ask(backup, "POST", path, key);
		if (ret)
			return ret;
		if (!backup->answer_bytes || backup->answer_bytes > bytes - at) {
			fprintf(stderr, "nebulaio: %s: an answer has a wrong length\n",
				backup->opts.endpoints);
			return CLI_FAILED;
		}
		memcpy(out + at, backup->answer, backup->answer_bytes);
		at += backup->answer_bytes;
	}
	return CLI_OK;
}
