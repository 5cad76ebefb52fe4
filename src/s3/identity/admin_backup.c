/* s3/identity/admin_backup.c: operators' requests for a backup's sessions: rows and bodies as
 * bytes, all else as JSON (docs/spec/admin.md, docs/spec/backup.md). */
#include "s3/identity/admin.h"
#include "s3/auth/auth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "store/backup.h"

#define PIN_S_DEFAULT 600u
/* A page of rows with its last row. */
#define ANSWER_BYTES_MAX (2 * STORE_BACKUP_READ_BYTES)

static void refuse(struct admin_answer *answer, uint32_t status, const char *code, const char *why)
{
	answer->status = status;
	answer->code = code;
	snprintf(answer->why, sizeof(answer->why), "%s", why);
}

static void refuse_errno(struct admin_answer *answer, int error)
{
	if (error == -ESTALE)
		refuse(answer, 410, "Gone",
			"the backup's session has ended: its time was over, it was silent for a "
			"minute, or space was scarce");
	else if (error == -EBUSY)
		refuse(answer, 503, "Busy", "too many backups read the store");
	else if (error == -ENOTSUP)
		refuse(answer, 409, "Conflict",
			"this store cannot be copied: it has no volumes, or rows of a later "
			"program");
	else if (error == -EUCLEAN || error == -EIO)
		refuse(answer, 500, "Damaged",
			"a row or a body is damaged: the server's log says more, and so do a scrub "
			"and fsck --deep");
	else if (error == -EINVAL || error == -ENOENT)
		refuse(answer, 400, "Invalid", "no such part of a body");
	else
		refuse(answer, 503, "Busy", strerror(-error));
}

/* ---- Beginning and ending. ---- */

/* The key files that the volumes have, sealed: a backup takes them along. */
static json_t *kept_json(struct store *store)
{
	static const char *const NAMES[] = {"secrets.key", "encryption.keys"};
	json_t *kept = json_object();

	for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
		struct buf sealed;
		char *text;

		buf_init(&sealed, 16 * KIB);
		if (store_kept(store, NAMES[i], &sealed) == 0) {
			text = malloc(BASE64_LEN(sealed.len) + 1);
			if (text)
				json_object_set_new(kept, NAMES[i],
					json_stringn(text,
						base64_encode(sealed.data, sealed.len, text)));
			free(text);
		}
		buf_free(&sealed);
	}
	return kept;
}

static void begin(struct s3_call *call, struct slice body, struct admin_answer *answer)
{
	json_t *json = body.len ? json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES, NULL)
				: json_object();
	json_int_t pin_s = PIN_S_DEFAULT;
	struct store_backup_head head;
	char uuid[2 * sizeof(head.uuid) + 1];
	uint64_t id;
	int ret;

	if (!json_is_object(json) || json_unpack(json, "{s?I}", "pin_s", &pin_s) || pin_s < 1 ||
		pin_s > STORE_BACKUP_PIN_S_MAX) {
		json_decref(json);
		refuse(answer, 400, "Invalid", "pin_s is a number of seconds from 1 to 86400");
		return;
	}
	json_decref(json);
	ret = store_backup_begin(call->s3->store, (uint64_t)pin_s * NS_PER_S, &id, &head);
	if (ret) {
		refuse_errno(answer, ret);
		return;
	}
	s3_admin_audit(call, "begins to read the whole store, for a backup", NULL);
	hex_encode(head.uuid, sizeof(head.uuid), uuid);
	uuid[2 * sizeof(head.uuid)] = '\0';
	answer->status = 200;
	answer->json = json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "id", (json_int_t)id,
		"uuid", uuid, "seq", (json_int_t)head.seq, "data_id_next",
		(json_int_t)head.data_id_next, "bucket_id_next", (json_int_t)head.bucket_id_next,
		"objects", (json_int_t)head.objects, "used_bytes", (json_int_t)head.used_bytes,
		"kept", kept_json(call->s3->store));
}

/* ---- Bytes. ---- */

static void answer_bytes(struct s3_call *call, struct slice bytes)
{
	const struct s3_header headers[] = {
		{SLICE("Content-Type"), SLICE("application/octet-stream")},
		{SLICE("Cache-Control"), SLICE("no-store")},
	};
	struct s3_reply *reply = call->reply;

	if (reply->ops->head(reply, 200, headers, ARRAY_LEN(headers), bytes.len) ||
		(bytes.len && reply->ops->text(reply, bytes)))
		reply->broken = true;
}

/* The bodies that the text lists: length of the key (4), bytes (4), key. Each is answered whole. */
static int read_many(struct s3_call *call, uint64_t id, struct slice text, struct buf *out)
{
	struct store_backup_part *parts = calloc(STORE_BACKUP_PARTS_MAX, sizeof(*parts));
	uint32_t count = 0, head[2];
	uint64_t bytes = 0;
	int ret = parts ? 0 : -ENOMEM;

	while (!ret && text.len) {
		if (text.len < sizeof(head) || count == STORE_BACKUP_PARTS_MAX) {
			ret = -EINVAL;
			break;
		}
		memcpy(head, text.data, sizeof(head));
		bytes += head[1];
		if (text.len - sizeof(head) < head[0] || bytes > STORE_BACKUP_READ_BYTES) {
			ret = -EINVAL;
			break;
		}
		parts[count++] = (struct store_backup_part){
			.key = slice_of(text.data + sizeof(head), head[0]), .bytes = head[1]};
		text = slice_from(text, sizeof(head) + head[0]);
	}
	if (!ret)
		ret = store_backup_read(call->s3->store, id, parts, count, out);
	free(parts);
	return ret;
}

/* "ID/rows", "ID/bodies" and "ID/body/BYTES/OFFSET"; true: it was answered. */
static bool read_bytes(
	struct s3_call *call, struct slice path, struct slice body, struct admin_answer *answer)
{
	struct store_backup_part part = {.key = body};
	struct slice number = slice_split(&path, '/');
	struct slice what = slice_split(&path, '/');
	struct slice bytes = slice_split(&path, '/');
	struct buf out;
	uint64_t id;
	int ret = -EINVAL;

	buf_init(&out, ANSWER_BYTES_MAX);
	if (slice_to_u64(number, &id))
		ret = -EINVAL;
	else if (slice_eq(what, SLICE("rows")) && !bytes.len && !path.len)
		ret = store_backup_rows(call->s3->store, id, body, &out);
	else if (slice_eq(what, SLICE("bodies")) && !bytes.len && !path.len)
		ret = read_many(call, id, body, &out);
	else if (slice_eq(what, SLICE("body")) && !slice_to_u64(bytes, &part.bytes) &&
		 !slice_to_u64(path, &part.offset))
		ret = store_backup_read(call->s3->store, id, &part, 1, &out);
	if (ret)
		refuse_errno(answer, ret);
	else
		answer_bytes(call, buf_slice(&out));
	buf_free(&out);
	return !ret;
}

bool s3_admin_backup(struct s3_call *call, struct slice path, struct admin_answer *answer)
{
	const struct s3_sums sums = {.kind = CHECKSUM_NONE};
	enum s3_method method = call->request->method;
	const struct s3_error *error;
	struct slice body;
	uint64_t id;
	int ret;

	error = s3_call_read(call, &sums, &body);
	if (error) {
		refuse(answer, error->status, error->code, error->message);
	} else if (!path.len && method == S3_POST) {
		begin(call, body, answer);
	} else if (path.len && method == S3_POST) {
		return read_bytes(call, path, body, answer);
	} else if (method == S3_DELETE && !slice_to_u64(path, &id)) {
		ret = store_backup_end(call->s3->store, id);
		answer->status = 204;
		if (ret)
			refuse_errno(answer, ret);
	} else {
		refuse(answer, 405, "MethodNotAllowed", "this path does not support the method");
	}
	return false;
}
