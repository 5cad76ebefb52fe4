/* replicate/send.c: what a row asks for, as requests to the target: a PUT of the whole object, a
 * multipart upload in the source's own parts, a delete marker, or changes (change.c). */
#include "replicate/replicate_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"

#define REPLICA_HEADER	   "x-nebulaio-replica"
#define PART_BYTES	   (64 * MIB) /* of an object whose own parts are not known */
#define PARTS_MAX	   10000u
#define UPLOAD_ID_BYTES	   1024u
#define UPLOAD_QUERY_BYTES (3u * UPLOAD_ID_BYTES + 64u)

/* ---- Answers. ---- */

/* Answers of 4xx that say nothing about the object. */
static bool may_pass(const struct replicate_result *result)
{
	static const struct slice CODES[] = {SLICE("BadDigest"), SLICE("RequestTimeout"),
		SLICE("ExpiredToken"), SLICE("InvalidToken"), SLICE("AuthorizationHeaderMalformed"),
		SLICE("XAmzContentSHA256Mismatch"), SLICE("IncompleteBody"), SLICE("QuotaExceeded"),
		SLICE("XMinioAdminBucketQuotaExceeded"), SLICE("NoSuchUpload")};

	return result->status == 401 || result->status == 403 || result->status == 404 ||
	       result->status == 408 || result->status == 409 ||
	       slice_among(slice_str(result->code), CODES, ARRAY_LEN(CODES));
}

enum outcome send_outcome(const struct replicate_result *result)
{
	/* With an error the answer was not understood, whatever its status. */
	if (result->status >= 200 && result->status < 300)
		return result->error ? OUTCOME_REFUSED : OUTCOME_SENT;
	if (!result->status || result->status == 429 ||
		(result->status >= 500 && result->status != 501))
		return OUTCOME_AWAY;
	return may_pass(result) || result->status < 400 ? OUTCOME_REFUSED : OUTCOME_FAILED;
}

static void why_of(const struct replicate_result *result, char ret_why[S3_REPLICATE_ERROR_BYTES])
{
	if (!result->status)
		snprintf(ret_why, S3_REPLICATE_ERROR_BYTES, "no answer: %.150s",
			result->message[0] ? result->message : strerror(-result->error));
	else
		snprintf(ret_why, S3_REPLICATE_ERROR_BYTES, "%u %.60s: %.150s", result->status,
			result->code[0] ? result->code : "(no code)", result->message);
}

/* ---- On the lane's thread. ---- */

struct exchange {
	const struct s3_replicate_place *place;
	struct replicate_request request;
	struct replicate_result result;
	struct slice text;	 /* a body that is not a version's */
	enum checksum_kind kind; /* of the digest to send; CHECKSUM_NONE: none */
	bool md5; /* a Content-MD5 is wanted: by it the ETag is an MD5, over RDMA too */
	char digest[CHECKSUM_TEXT_LEN_MAX + 1], digest_md5[CHECKSUM_TEXT_LEN_MAX + 1];
};

static void digest_add(struct replicate_request *request, struct s3_header *headers,
	enum checksum_kind kind, char text[CHECKSUM_TEXT_LEN_MAX + 1])
{
	uint8_t digest[CHECKSUM_BYTES_MAX];
	struct checksum sum;

	checksum_init(&sum, kind);
	for (uint32_t i = 0; i < request->run_count; i++)
		checksum_update(&sum, request->runs[i].data, request->runs[i].len);
	text[base64_encode(digest, checksum_final(&sum, digest), text)] = '\0';
	headers[request->header_count++] = (struct s3_header){
		kind == CHECKSUM_MD5 ? SLICE("content-md5") : checksum_header(kind),
		slice_str(text)};
}

static void digests_add(struct exchange *exchange, struct s3_header *headers)
{
	struct replicate_request *request = &exchange->request;

	if (request->header_count)
		memcpy(headers, request->headers, request->header_count * sizeof(*headers));
	request->headers = headers;
	if (exchange->md5)
		digest_add(request, headers, CHECKSUM_MD5, exchange->digest_md5);
	if (exchange->kind != CHECKSUM_NONE)
		digest_add(request, headers, exchange->kind, exchange->digest);
}

static int link_open(struct lane *lane, const struct s3_replicate_place *place)
{
	const struct replicate_sender *sender = lane->course->replicate->opts.sender;
	int ret;

	if (lane->link && lane->generation == place->generation)
		return 0;
	sender->close(lane->link);
	lane->link = NULL;
	lane->generation = 0;
	ret = sender->open(place, &lane->link);
	if (!ret)
		lane->generation = place->generation;
	return ret;
}

static void exchange_run(struct lane *lane, void *arg)
{
	struct replicate *replicate = lane->course->replicate;
	struct exchange *exchange = arg;
	struct s3_header headers[S3_REPLICATE_HEADERS_MAX + 2];

	exchange->result = (struct replicate_result){.error = link_open(lane, exchange->place)};
	if (!exchange->result.error)
		exchange->result.error = body_map(lane);
	if (exchange->result.error)
		return;
	digests_add(exchange, headers);
	replicate->opts.sender->send(
		lane->link, &exchange->request, &replicate->ending, &exchange->result);
	/* From here on the target can read nothing of the body. */
	if (!exchange->result.status) {
		replicate->opts.sender->close(lane->link);
		lane->link = NULL;
	}
	body_unmap(lane);
}

/* ---- On the lane's fiber. ---- */

struct send {
	struct lane *lane;
	struct s3_replicate_place *place;
	struct s3_replicate_job *job;
	const struct window_row *row;
	struct exchange exchange;
	char key[LIMIT_KEY_LEN_MAX + 1];
	struct change change;
	char *why;
};

static enum outcome failed_here(struct send *send, const char *what, int error)
{
	snprintf(send->why, S3_REPLICATE_ERROR_BYTES, "%s: %s", what, strerror(-error));
	return OUTCOME_REFUSED;
}

static enum outcome exchange_do(struct send *send)
{
	struct exchange *exchange = &send->exchange;
	enum outcome outcome;

	exchange->place = send->place;
	exchange->request.key = send->key;
	exchange->request.answer = send->lane->answer;
	exchange->request.answer_bytes = sizeof(send->lane->answer) - 1;
	lane_do(send->lane, exchange_run, exchange);
	outcome = send_outcome(&exchange->result);
	if (exchange->result.status)
		send->lane->course->transport = exchange->result.transport;
	if (outcome != OUTCOME_SENT)
		why_of(&exchange->result, send->why);
	send->lane->answer[MIN(exchange->result.answer_len, sizeof(send->lane->answer) - 1)] = '\0';
	return outcome;
}

static void text_set(struct send *send, struct slice text)
{
	send->exchange.text = text;
	send->exchange.request.runs = &send->exchange.text;
	send->exchange.request.run_count = text.len > 0;
}

/* The request with these bytes of the version as its body. */
static enum outcome exchange_body(struct send *send, uint64_t offset, uint64_t bytes)
{
	struct lane *lane = send->lane;
	enum outcome outcome;
	int ret = body_open(lane, send->job, offset, bytes);

	send->exchange.request.runs = lane->body.runs;
	send->exchange.request.run_count = lane->body.run_count;
	if (ret)
		outcome = failed_here(send,
			ret == -ENOSPC ? "a copy of the body in the data folder, whose disk must "
					 "keep 1 GiB free besides"
				       : "the source's bytes",
			ret);
	else
		outcome = exchange_do(send);
	body_close(lane);
	return outcome;
}

static struct replicate_request request_of(
	const char *method, const char *query, const struct s3_header *headers, uint32_t count)
{
	return (struct replicate_request){.op = REPLICATE_OTHER,
		.method = method,
		.query = query,
		.headers = headers,
		.header_count = count};
}

static bool is_md5(const char *etag)
{
	return strlen(etag) == 2 * MD5_BYTES;
}

/* Both are known to be the same function of the body: MD5s, or those of equal parts. */
static bool etags_differ(const struct s3_replicate_job *job, const char *etag)
{
	bool parts = job->part_count && strlen(job->etag) < 2 * MD5_BYTES + 7 &&
		     strlen(etag) < 2 * MD5_BYTES + 7;

	return !job->etag_is_own &&
	       ((is_md5(job->etag) && is_md5(etag) && !job->part_count) || parts) &&
	       strcmp(job->etag, etag) != 0;
}

/* The sender keeps every version, and the target the last one of each key. */
static void tell_unversioned(struct course *course, const char *version)
{
	bool versioned = strcmp(version, REPLICATE_NO_VERSION) != 0 && strcmp(version, "null") != 0;

	if (!versioned && !course->told_unversioned)
		log_warn("replicate",
			"%s: the target's bucket keeps no versions, so that each one replaces the "
			"one before: enable versioning there",
			course->name);
	course->told_unversioned = !versioned;
}

static enum outcome replica_done(struct send *send)
{
	const struct replicate_result *result = &send->exchange.result;
	const char *version = result->version_id[0] ? result->version_id : REPLICATE_NO_VERSION;
	struct replicate *replicate = send->lane->course->replicate;
	int ret;

	if (result->etag[0] && etags_differ(send->job, result->etag)) {
		snprintf(send->why, S3_REPLICATE_ERROR_BYTES,
			"the target stored other bytes: its ETag is %s, the source's %s",
			result->etag, send->job->etag);
		return OUTCOME_REFUSED;
	}
	tell_unversioned(send->lane->course, version);
	/* Missed first, though the fiber that looks has not come to the row yet. */
	if (send->row->row.number > replicate->late_number &&
		clock_real_ns() > s3_replicate_late_ns(replicate->opts.s3, &send->row->row))
		s3_replicate_tell_missed(replicate->opts.s3, replicate->opts.core, &send->row->row);
	ret = s3_replicate_note_sent(
		replicate->opts.s3, replicate->opts.core, &send->row->row, slice_str(version));
	return ret && ret != -ENOENT ? failed_here(send, "the source's status", ret) : OUTCOME_SENT;
}

/* ---- A whole object. ---- */

static bool has_header(const struct s3_replicate_job *job, const char *prefix)
{
	for (uint32_t i = 0; i < job->header_count; i++)
		if (slice_starts(job->headers[i].name, slice_str(prefix)))
			return true;
	return false;
}

static enum outcome put_whole(struct send *send)
{
	struct s3_replicate_job *job = send->job;
	enum checksum_kind kind;
	enum outcome outcome;

	send->exchange = (struct exchange){.kind = CHECKSUM_NONE, .md5 = is_md5(job->etag)};
	send->exchange.request = request_of("PUT", NULL, job->headers, job->header_count);
	send->exchange.request.op = REPLICATE_PUT_OBJECT;
	if (job->checksum_header.len && !job->composite &&
		!checksum_kind_of_header(job->checksum_header, &kind))
		send->exchange.kind = kind;
	/* S3 wants one with a lock. */
	else if (has_header(job, "x-amz-object-lock-"))
		send->exchange.kind = CHECKSUM_CRC32C;
	outcome = exchange_body(send, 0, job->bytes);
	if (outcome == OUTCOME_SENT && !send->exchange.result.etag[0]) {
		snprintf(send->why, S3_REPLICATE_ERROR_BYTES,
			"the target's answer has no ETag: it is not S3's, so the object may not be "
			"there");
		return OUTCOME_REFUSED;
	}
	return outcome == OUTCOME_SENT ? replica_done(send) : outcome;
}

/* ---- In parts. ---- */

struct upload {
	uint32_t count;
	uint64_t part_bytes; /* 0: the object's own parts */
	enum checksum_kind kind;
	bool md5; /* the object's ETag is of its parts' MD5s */
	char id[UPLOAD_ID_BYTES], query[UPLOAD_QUERY_BYTES];
	struct buf list; /* of the parts, for the completion */
};

static struct s3_replicate_part part_of(
	const struct s3_replicate_job *job, const struct upload *upload, uint32_t number)
{
	uint64_t offset = (number - 1) * upload->part_bytes;

	if (!upload->part_bytes)
		return s3_replicate_part(job, number);
	return (struct s3_replicate_part){
		.offset = offset, .bytes = MIN(upload->part_bytes, job->bytes - offset)};
}

static enum outcome upload_create(struct send *send, struct upload *upload)
{
	struct s3_replicate_job *job = send->job;
	struct s3_header headers[S3_REPLICATE_HEADERS_MAX];
	uint32_t count = job->header_count;
	enum outcome outcome;

	memcpy(headers, job->headers, count * sizeof(*headers));
	if (upload->kind != CHECKSUM_NONE && count + 2 <= S3_REPLICATE_HEADERS_MAX) {
		headers[count++] =
			(struct s3_header){SLICE("x-amz-checksum-algorithm"), job->checksum_name};
		headers[count++] = (struct s3_header){SLICE("x-amz-checksum-type"),
			job->composite ? SLICE("COMPOSITE") : SLICE("FULL_OBJECT")};
	}
	send->exchange = (struct exchange){.kind = CHECKSUM_NONE};
	send->exchange.request = request_of("POST", "uploads=", headers, count);
	outcome = exchange_do(send);
	if (outcome != OUTCOME_SENT)
		return outcome;
	if (slice_copy_str(xml_text(slice_str(send->lane->answer), "UploadId"), upload->id,
		    sizeof(upload->id)) ||
		!upload->id[0])
		return failed_here(send, "the target's upload id", -EPROTO);
	return OUTCOME_SENT;
}

static void upload_query(struct upload *upload, uint32_t number)
{
	struct buf text;

	buf_init(&text, sizeof(upload->query) - 1);
	if (number)
		buf_printf(&text, "partNumber=%u&", number);
	buf_put_str(&text, "uploadId=");
	uri_encode(slice_str(upload->id), 0, &text);
	slice_copy_str(buf_slice(&text), upload->query, sizeof(upload->query));
	buf_free(&text);
}

static enum outcome upload_part(struct send *send, struct upload *upload, uint32_t number)
{
	struct s3_replicate_part part = part_of(send->job, upload, number);
	enum outcome outcome;

	upload_query(upload, number);
	send->exchange = (struct exchange){.kind = upload->kind, .md5 = upload->md5};
	send->exchange.request = request_of("PUT", upload->query, NULL, 0);
	send->exchange.request.op = REPLICATE_UPLOAD_PART;
	outcome = exchange_body(send, part.offset, part.bytes);
	if (outcome != OUTCOME_SENT)
		return outcome;
	buf_printf(&upload->list, "<Part><PartNumber>%u</PartNumber><ETag>\"%s\"</ETag>", number,
		send->exchange.result.etag);
	if (upload->kind != CHECKSUM_NONE)
		buf_printf(&upload->list, "<Checksum%.*s>%s</Checksum%.*s>",
			SLICE_FMT(send->job->checksum_name), send->exchange.digest,
			SLICE_FMT(send->job->checksum_name));
	buf_put_str(&upload->list, "</Part>");
	return upload->list.failed ? failed_here(send, "the list of parts", -ENOMEM) : OUTCOME_SENT;
}

static enum outcome upload_complete(struct send *send, struct upload *upload)
{
	struct s3_header header = {SLICE(REPLICA_HEADER), SLICE_NONE};
	char version[65];
	enum outcome outcome;

	slice_copy_str(send->row->row.version_id, version, sizeof(version));
	header.value = slice_str(version);
	buf_put_str(&upload->list, "</CompleteMultipartUpload>");
	if (upload->list.failed)
		return failed_here(send, "the list of parts", -ENOMEM);
	upload_query(upload, 0);
	send->exchange = (struct exchange){.kind = CHECKSUM_NONE};
	send->exchange.request = request_of("POST", upload->query, &header, 1);
	text_set(send, buf_slice(&upload->list));
	outcome = exchange_do(send);
	if (outcome != OUTCOME_SENT)
		return outcome;
	/* S3 answers 200 before it knows. */
	if (slice_find(slice_str(send->lane->answer), SLICE("<CompleteMultipartUploadResult")) < 0)
		return failed_here(send, "the target could not complete the upload", -EAGAIN);
	return OUTCOME_SENT;
}

/* As far as the target can be reached; an upload that stays there is its lifecycle rules' matter.
 */
static void upload_abort(struct send *send, struct upload *upload)
{
	char why[S3_REPLICATE_ERROR_BYTES];

	if (!upload->id[0])
		return;
	memcpy(why, send->why, sizeof(why));
	upload_query(upload, 0);
	send->exchange = (struct exchange){.kind = CHECKSUM_NONE};
	send->exchange.request = request_of("DELETE", upload->query, NULL, 0);
	exchange_do(send);
	memcpy(send->why, why, sizeof(why));
}

static enum outcome put_parts(struct send *send)
{
	struct upload *upload = calloc(1, sizeof(*upload));
	struct s3_replicate_job *job = send->job;
	enum outcome outcome;

	if (!upload)
		return failed_here(send, "an upload", -ENOMEM);
	upload->count = job->part_count;
	if (!upload->count) {
		upload->part_bytes = MAX(PART_BYTES, (job->bytes + PARTS_MAX - 1) / PARTS_MAX);
		upload->count =
			(uint32_t)((job->bytes + upload->part_bytes - 1) / upload->part_bytes);
		job->etag[0] = '\0';
	}
	upload->md5 = strchr(job->etag, '-') == job->etag + 2 * MD5_BYTES;
	if (!job->checksum_header.len || upload->part_bytes ||
		checksum_kind_of_header(job->checksum_header, &upload->kind))
		upload->kind = CHECKSUM_NONE;
	buf_init(&upload->list, 4 * MIB);
	buf_put_str(&upload->list, "<CompleteMultipartUpload>");
	outcome = upload_create(send, upload);
	for (uint32_t i = 1; i <= upload->count && outcome == OUTCOME_SENT; i++)
		outcome = upload_part(send, upload, i);
	if (outcome == OUTCOME_SENT)
		outcome = upload_complete(send, upload);
	if (outcome != OUTCOME_SENT)
		upload_abort(send, upload);
	buf_free(&upload->list);
	free(upload);
	return outcome == OUTCOME_SENT ? replica_done(send) : outcome;
}

/* ---- Whether it is there already. ---- */

/* After a crash, or a request without an answer, one of our servers says of its newest version
 * whose replica it is. */
static bool is_there(struct send *send)
{
	char version[65];

	if (!send->row->maybe_sent &&
		send->row->row.number > send->lane->course->replicate->first_number)
		return false;
	slice_copy_str(send->row->row.version_id, version, sizeof(version));
	send->exchange = (struct exchange){.kind = CHECKSUM_NONE};
	send->exchange.request = request_of("HEAD", NULL, NULL, 0);
	if (exchange_do(send) != OUTCOME_SENT)
		return false;
	return strcmp(send->exchange.result.replica_of, version) == 0;
}

static enum outcome send_put(struct send *send)
{
	struct s3_replicate_job *job = send->job;

	if (is_there(send)) {
		send->exchange.result.etag[0] = '\0';
		return replica_done(send);
	}
	if (job->part_count || job->bytes > LIMIT_PUT_BYTES_MAX)
		return put_parts(send);
	return put_whole(send);
}

/* ---- Delete markers, and changes of what is there. ---- */

static enum outcome send_small(
	struct send *send, const char *method, const char *query, const char *body, bool bypass)
{
	char version[65];
	struct s3_header headers[2] = {{SLICE(REPLICA_HEADER), SLICE_NONE},
		{SLICE("x-amz-bypass-governance-retention"), SLICE("true")}};

	slice_copy_str(send->row->row.version_id, version, sizeof(version));
	headers[0].value = slice_str(version);
	send->exchange = (struct exchange){.kind = CHECKSUM_NONE, .md5 = body != NULL};
	send->exchange.request = request_of(method, query, headers, bypass ? 2 : 1);
	text_set(send, body ? slice_str(body) : SLICE_NONE);
	return exchange_do(send);
}

static enum outcome send_marker(struct send *send)
{
	return send_small(send, "DELETE", NULL, NULL, false);
}

static enum outcome change_send(struct send *send, enum s3_replicate_kind kind)
{
	struct change *change = &send->change;
	enum outcome outcome = OUTCOME_SENT;
	int ret = change_make(send->job, kind, change);

	if (ret)
		outcome = failed_here(send, "a change", ret);
	else if (change->method)
		outcome = send_small(
			send, change->method, change->query, change->xml.data, change->bypass);
	/* A target's bucket without object lock, which finds the request wrong, has none. */
	if (outcome == OUTCOME_FAILED && change->takes_away)
		outcome = OUTCOME_SENT;
	change_free(change);
	return outcome;
}

/* The object's bucket can have given it locks. */
static enum outcome changes_send(struct send *send)
{
	enum outcome outcome = change_send(send, S3_REPLICATE_TAGS);

	if (outcome == OUTCOME_SENT && send->job->lockable)
		outcome = change_send(send, S3_REPLICATE_RETENTION);
	if (outcome == OUTCOME_SENT && send->job->lockable)
		outcome = change_send(send, S3_REPLICATE_HOLD);
	return outcome;
}

static enum outcome send_change(struct send *send)
{
	enum outcome outcome;
	int ret;

	/* The object itself could not be sent. */
	if (!send->job->target_version.len)
		return OUTCOME_DROPPED;
	outcome = send->row->row.kind == S3_REPLICATE_CHANGES
			  ? changes_send(send)
			  : change_send(send, send->row->row.kind);
	if (outcome == OUTCOME_SENT) {
		ret = s3_replicate_note(send->lane->course->replicate->opts.s3, &send->row->row,
			S3_REPLICATE_END_SENT, SLICE_NONE);
		if (ret && ret != -ENOENT)
			outcome = failed_here(send, "the source's status", ret);
	}
	return outcome;
}

/* ---- Rows. ---- */

static enum outcome row_run(struct send *send)
{
	switch (send->row->row.kind) {
	case S3_REPLICATE_PUT:
		return send_put(send);
	case S3_REPLICATE_MARKER:
		return send_marker(send);
	case S3_REPLICATE_TAGS:
	case S3_REPLICATE_RETENTION:
	case S3_REPLICATE_HOLD:
	case S3_REPLICATE_CHANGES:
		return send_change(send);
	case S3_REPLICATE_NOTHING:
		break;
	}
	return OUTCOME_DROPPED;
}

static enum outcome row_open(struct send *send)
{
	struct replicate *replicate = send->lane->course->replicate;
	int ret = s3_replicate_open(
		replicate->opts.s3, replicate->opts.core, &send->row->row, send->job);

	if (ret == -ECANCELED)
		(void)s3_replicate_note(
			replicate->opts.s3, &send->row->row, S3_REPLICATE_END_DROPPED, SLICE_NONE);
	if (ret == -ENOENT || ret == -ECANCELED)
		s3_replicate_tell_untracked(
			replicate->opts.s3, replicate->opts.core, &send->row->row);
	if (ret == -ENOENT || ret == -ECANCELED || ret == -EALREADY)
		return OUTCOME_DROPPED;
	if (ret == -EOPNOTSUPP) {
		snprintf(send->why, S3_REPLICATE_ERROR_BYTES, "%s", send->job->why);
		return OUTCOME_FAILED;
	}
	return ret ? failed_here(send, "the source's version", ret) : OUTCOME_SENT;
}

enum outcome send_row(
	struct lane *lane, const struct window_row *row, char ret_why[S3_REPLICATE_ERROR_BYTES])
{
	struct s3 *s3 = lane->course->replicate->opts.s3;
	struct send *send;
	enum outcome outcome;

	if (row->row.kind == S3_REPLICATE_NOTHING)
		return OUTCOME_DROPPED;
	send = calloc(1, sizeof(*send));
	if (send) {
		send->place = malloc(sizeof(*send->place));
		send->job = malloc(sizeof(*send->job));
	}
	if (!send || !send->place || !send->job) {
		snprintf(ret_why, S3_REPLICATE_ERROR_BYTES, "no memory");
		outcome = OUTCOME_REFUSED;
	} else {
		*send = (struct send){.lane = lane,
			.place = send->place,
			.job = send->job,
			.row = row,
			.why = ret_why};
		slice_copy_str(row->row.key, send->key, sizeof(send->key));
		outcome = row_open(send);
		if (outcome == OUTCOME_SENT) {
			if (s3_replicate_place(s3, slice_str(lane->course->name), send->place)) {
				snprintf(ret_why, S3_REPLICATE_ERROR_BYTES,
					"the target cannot be read: register it again");
				outcome = OUTCOME_REFUSED;
			} else {
				outcome = row_run(send);
			}
			s3_replicate_close(send->job);
			secret_wipe(send->place, sizeof(*send->place));
		}
	}
	if (send) {
		free(send->place);
		free(send->job);
	}
	free(send);
	return outcome;
}
