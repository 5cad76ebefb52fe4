/* s3/identity/admin_volume.c: the volumes of a store in the admin API: which there are, and changes
 * of their set. */
#include "s3/identity/admin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "reactor/reactor.h"
#include "s3/auth/access.h"
#include "store/local.h"

/* How long an answer waits to say how a change begins; one of large new volumes goes on. */
#define BEGIN_NS      (20 * NS_PER_S)
#define BEGIN_LOOK_NS (50 * NS_PER_MS)

static void fail(struct admin_answer *answer, uint32_t status, const char *code, const char *why)
{
	answer->status = status;
	answer->code = code;
	snprintf(answer->why, sizeof(answer->why), "%s", why);
}

static json_t *volumes_list(struct store *store, uint64_t members)
{
	static const char *const STATES[] = {"good", "missing", "rebuilding"};
	struct store_volume volumes[DISK_MEMBERS_MAX];
	uint32_t count = store_volumes(store, volumes, DISK_MEMBERS_MAX);
	json_t *list = json_array();

	for (uint32_t i = 0; i < count; i++) {
		char path[1024];

		store_volume_path(store, volumes[i].number, path, sizeof(path));
		json_array_append_new(list,
			json_pack("{s:I, s:s, s:s, s:I, s:b}", "number",
				(json_int_t)volumes[i].number, "path", path, "state",
				STATES[volumes[i].state], "bytes", (json_int_t)volumes[i].bytes,
				"leaves", !(members >> volumes[i].number & 1)));
	}
	return list;
}

static void tell(struct s3_call *call, struct admin_answer *answer)
{
	struct store *store = call->s3->store;
	struct store_set_status status;

	store_volumes_status(store, &status);
	answer->status = 200;
	answer->json = json_pack("{s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:s, s:o}", "preparing",
		status.preparing, "changing", status.changing, "data", (json_int_t)status.data,
		"parity", (json_int_t)status.parity, "left_bytes", (json_int_t)status.left_bytes,
		"all_bytes", (json_int_t)status.all_bytes, "failed", (json_int_t)status.failed,
		"note", status.note, "volumes", volumes_list(store, status.members));
}

/* {"add": [PATH], "remove": [NUMBER], "data": N, "parity": N}. False: not of that form. */
static bool change_parse(
	const json_t *body, struct store_set_change *change, const char *paths[DISK_MEMBERS_MAX])
{
	const json_t *add = json_object_get(body, "add"), *remove = json_object_get(body, "remove");
	json_int_t data = json_integer_value(json_object_get(body, "data"));
	json_int_t parity = json_integer_value(json_object_get(body, "parity"));

	*change = (struct store_set_change){.add = paths};
	if ((add && !json_is_array(add)) || (remove && !json_is_array(remove)) ||
		json_array_size(add) > DISK_MEMBERS_MAX || data < 0 || data > UINT8_MAX ||
		parity < 0 || parity > UINT8_MAX)
		return false;
	for (size_t i = 0; i < json_array_size(add); i++) {
		paths[i] = json_string_value(json_array_get(add, i));
		if (!paths[i])
			return false;
		change->add_count++;
	}
	for (size_t i = 0; i < json_array_size(remove); i++) {
		const json_t *number = json_array_get(remove, i);

		if (!json_is_integer(number) || json_integer_value(number) < 0 ||
			json_integer_value(number) >= 64)
			return false;
		change->remove |= 1ull << json_integer_value(number);
	}
	change->data = (uint32_t)data;
	change->parity = (uint32_t)parity;
	return true;
}

static uint32_t status_of(int error)
{
	return error == -EINVAL ? 400 : error == -ENOENT ? 404 : error == -ENOMEM ? 503 : 409;
}

void s3_admin_audit(const struct s3_call *call, const char *what, const json_t *body)
{
	const struct iam_principal *principal = s3_call_principal(call);
	char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

	log_info("s3", "%.*s (access key %s) %s%s", SLICE_FMT(principal->who.arn),
		call->identity->access_key, what, text ? text : "");
	free(text);
}

static void change(struct s3_call *call, const json_t *body, struct admin_answer *answer)
{
	uint64_t until_ns = clock_now_ns() + BEGIN_NS;
	const char *paths[DISK_MEMBERS_MAX] = {NULL};
	struct store_set_change wanted;
	struct store_set_status status;
	int ret;

	if (!change_parse(body, &wanted, paths)) {
		fail(answer, 400, "Invalid", "a body {add, remove, data, parity} is wanted");
		return;
	}
	ret = store_volumes_change(call->s3->store, &wanted, answer->why, sizeof(answer->why));
	if (ret) {
		answer->status = status_of(ret);
		answer->code = ret == -EINVAL	? "Invalid"
			       : ret == -ENOENT ? "NotFound"
						: "Conflict";
		return;
	}
	s3_admin_audit(call, "changes the set of volumes: ", body);
	do {
		fiber_sleep_ns(BEGIN_LOOK_NS);
		store_volumes_status(call->s3->store, &status);
	} while (status.preparing && clock_now_ns() < until_ns);
	if (!status.preparing && !status.changing && status.note[0])
		fail(answer, 409, "Conflict", status.note);
	else
		tell(call, answer);
}

static void cancel(struct s3_call *call, struct admin_answer *answer)
{
	if (store_volumes_cancel(call->s3->store)) {
		fail(answer, 404, "NotFound", "no change of the volumes is under way");
		return;
	}
	s3_admin_audit(call, "takes the change of the set of volumes back", NULL);
	tell(call, answer);
}

void s3_admin_volumes(
	struct s3_call *call, const struct admin_path *path, struct admin_answer *ret_answer)
{
	enum s3_method method = call->request->method;

	if (path->count == 0 && method == S3_GET)
		tell(call, ret_answer);
	else if (path->count == 0 && method == S3_POST)
		change(call, path->body, ret_answer);
	else if (path->count == 0 && method == S3_DELETE)
		cancel(call, ret_answer);
	else
		fail(ret_answer, 405, "MethodNotAllowed", "the path does not take this method");
}
