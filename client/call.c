/* client/call.c: one call: copied from the caller's request, tried again when its way is lost,
 * finished. */
#include "base/board.h"
#include "base/life.h"
#include "call_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_BYTES 4096u /* the beginning of an answer, which names its document */

static const struct client_op OPS[] = {
	[NEB_GET_OBJECT] = {"GET", NULL, true, CLIENT_OF_OBJECT},
	[NEB_PUT_OBJECT] = {"PUT", NULL, true, CLIENT_OF_OBJECT},
	[NEB_DELETE_OBJECT] = {"DELETE", NULL, true, CLIENT_OF_OBJECT},
	[NEB_HEAD_OBJECT] = {"HEAD", NULL, true, CLIENT_OF_OBJECT},
	[NEB_LIST_OBJECTS] = {"GET", "list-type=2", true, CLIENT_OF_BUCKET},
	[NEB_CREATE_MULTIPART] = {"POST", "uploads", false, CLIENT_OF_OBJECT},
	[NEB_UPLOAD_PART] = {"PUT", NULL, true, CLIENT_OF_OBJECT},
	[NEB_COMPLETE_MULTIPART] = {"POST", NULL, false, CLIENT_OF_OBJECT},
	[NEB_ABORT_MULTIPART] = {"DELETE", NULL, false, CLIENT_OF_OBJECT},
	[NEB_COPY_OBJECT] = {"PUT", NULL, true, CLIENT_OF_OBJECT},
	[NEB_DELETE_OBJECTS] = {"POST", "delete", true, CLIENT_OF_BUCKET},
	[NEB_LIST_MULTIPART] = {"GET", "uploads", true, CLIENT_OF_BUCKET},
	[NEB_LIST_PARTS] = {"GET", NULL, true, CLIENT_OF_OBJECT},
	[NEB_LIST_VERSIONS] = {"GET", "versions", true, CLIENT_OF_BUCKET},
	[NEB_GET_TAGGING] = {"GET", "tagging", true, CLIENT_OF_OBJECT},
	[NEB_PUT_TAGGING] = {"PUT", "tagging", true, CLIENT_OF_OBJECT},
	[NEB_DELETE_TAGGING] = {"DELETE", "tagging", true, CLIENT_OF_OBJECT},
	[NEB_LIST_BUCKETS] = {"GET", NULL, true, CLIENT_OF_SERVICE},
	[NEB_CREATE_BUCKET] = {"PUT", NULL, false, CLIENT_OF_BUCKET},
	[NEB_DELETE_BUCKET] = {"DELETE", NULL, false, CLIENT_OF_BUCKET},
	[NEB_HEAD_BUCKET] = {"HEAD", NULL, true, CLIENT_OF_BUCKET},
	[NEB_GET_BUCKET_LOCATION] = {"GET", "location", true, CLIENT_OF_BUCKET},
	[NEB_PING] = {"GET", NULL, true, CLIENT_OF_SERVICE},
};
static const struct client_op METHODS[] = {
	[CAPSULE_METHOD_GET] = {"GET", NULL, true, CLIENT_OF_PATH},
	[CAPSULE_METHOD_HEAD] = {"HEAD", NULL, true, CLIENT_OF_PATH},
	[CAPSULE_METHOD_PUT] = {"PUT", NULL, true, CLIENT_OF_PATH},
	[CAPSULE_METHOD_POST] = {"POST", NULL, false, CLIENT_OF_PATH},
	[CAPSULE_METHOD_DELETE] = {"DELETE", NULL, true, CLIENT_OF_PATH},
};

const struct client_op *client_op_of(const struct client_call *call)
{
	if (call->op == NEB_S3)
		return &METHODS[call->method];
	return call->op < ARRAY_LEN(OPS) && OPS[call->op].method ? &OPS[call->op] : NULL;
}

int client_status_error(uint32_t status)
{
	if (status >= 200 && status < 300)
		return 0;
	switch (status) {
	case 401:
	case 403:
		return -EACCES;
	case 404:
		return -ENOENT;
	case 409:
		return -EEXIST;
	case 304:
	case 412:
		return -ESTALE;
	case 416:
		return -ERANGE;
	case 503:
		return -EAGAIN;
	default:
		return status >= 400 && status < 500 ? -EINVAL : -EIO;
	}
}

/* ---- Making a call. ---- */

static size_t text_len(const char *text)
{
	return text ? strlen(text) : 0;
}

static int iov_take(const struct neb_iov *from, uint32_t count, struct neb_iov *to,
	uint32_t *ret_count, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;

	if (count > NEB_IOV_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++) {
		if (!from[i].data && from[i].bytes)
			return -EINVAL;
		to[i] = from[i];
		bytes += from[i].bytes;
	}
	*ret_count = count;
	*ret_bytes = bytes;
	return 0;
}

static struct slice text_add(char **at, const char *text, size_t len)
{
	struct slice copy = slice_of(*at, len);

	if (len)
		memcpy(*at, text, len);
	*at += len;
	return copy;
}

static int method_take(struct client_call *call, const struct neb_request *request)
{
	call->op = (uint8_t)request->op;
	call->method = CAPSULE_METHOD_NONE;
	if (request->op != NEB_S3)
		return client_op_of(call) ? 0 : -EINVAL;
	for (uint32_t i = 1; request->method && request->path && i < ARRAY_LEN(METHODS); i++)
		if (strcmp(request->method, METHODS[i].method) == 0)
			call->method = (uint8_t)i;
	return call->method && request->path[0] == '/' ? 0 : -EINVAL;
}

/* Over HTTP, a path that lacks the key is a bucket's: DELETE would delete the bucket. */
static const char *names_wrong(const struct client_op *op, bool bucket, bool key)
{
	if (op->of == CLIENT_OF_PATH)
		return NULL;
	if (op->of == CLIENT_OF_OBJECT && !key)
		return "the request is for an object, and its key is empty";
	if (op->of != CLIENT_OF_OBJECT && key)
		return "the request is not for an object, and has a key";
	if (op->of != CLIENT_OF_SERVICE && !bucket)
		return "the request is for a bucket, and its name is empty";
	return op->of == CLIENT_OF_SERVICE && bucket ? "the request is for no bucket, and names one"
						     : NULL;
}

/* Copies strings and headers into the call's own text. */
static int text_take(struct client_call *call, const struct neb_request *request)
{
	const char *key = request->op == NEB_S3 ? request->path : request->key;
	size_t lens[4] = {text_len(request->bucket), text_len(key), text_len(request->version_id),
		text_len(request->query)};
	size_t headers_bytes = 0, len;
	char *at = call->text;

	if (request->header_count > NEB_HEADERS_MAX || lens[0] > LIMIT_BUCKET_LEN_MAX ||
		lens[1] > (request->op == NEB_S3 ? CAPSULE_PATH_LEN_MAX : LIMIT_KEY_LEN_MAX) ||
		lens[2] > CAPSULE_VERSION_ID_LEN_MAX || lens[3] > CAPSULE_QUERY_LEN_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < request->header_count; i++)
		headers_bytes += 4 + text_len(request->headers[i].name) +
				 text_len(request->headers[i].value);
	len = lens[0] + lens[1] + lens[2] + lens[3] + headers_bytes;
	if (len > sizeof(call->text)) {
		call->more_text = malloc(len);
		if (!call->more_text)
			return -ENOMEM;
		at = call->more_text;
	}
	call->bucket = text_add(&at, request->bucket, lens[0]);
	call->key = text_add(&at, key, lens[1]);
	call->version_id = text_add(&at, request->version_id, lens[2]);
	call->query = text_add(&at, request->query, lens[3]);
	len = 0;
	for (uint32_t i = 0; i < request->header_count; i++) {
		int ret = capsule_header_put((uint8_t *)at, headers_bytes, &len,
			slice_str(request->headers[i].name), slice_str(request->headers[i].value));

		if (ret)
			return -EINVAL;
	}
	call->headers = slice_of(at, len);
	call->header_count = request->header_count;
	return headers_bytes > CAPSULE_HEADERS_BYTES_MAX ? -EINVAL : 0;
}

/* Headers by which the outcome depends on the key's object: a second try meets that of the first.
 */
static bool has_condition(const struct client_call *call)
{
	struct slice rest = call->headers;
	struct capsule_header header;

	while (capsule_header_next(&rest, &header))
		if (slice_eq_nocase(header.name, SLICE("if-match")) ||
			slice_eq_nocase(header.name, SLICE("if-none-match")) ||
			slice_eq_nocase(header.name, SLICE("x-amz-if-match-size")) ||
			slice_eq_nocase(header.name, SLICE("x-amz-if-match-last-modified-time")) ||
			slice_eq_nocase(header.name, SLICE("x-amz-rename-source")) ||
			slice_eq_nocase(header.name, SLICE("x-amz-write-offset-bytes")))
			return true;
	return false;
}

static bool is_write(const struct client_call *call)
{
	const char *method = client_op_of(call)->method;

	return strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0;
}

static int request_take(struct client_call *call, const struct neb_request *request)
{
	int ret = method_take(call, request);

	if (ret == 0)
		ret = text_take(call, request);
	if (ret == 0 && names_wrong(client_op_of(call), call->bucket.len, call->key.len))
		ret = -EINVAL;
	if (ret == 0)
		ret = iov_take(request->body, request->body_count, call->body, &call->body_count,
			&call->body_bytes);
	if (ret == 0)
		ret = iov_take(request->into, request->into_count, call->into, &call->into_count,
			&call->into_bytes);
	if (ret)
		return ret;
	if ((unsigned)request->checksum_kind > NEB_CHECKSUM_XXHASH128 ||
		(request->checksum_kind && !request->checksum) ||
		(request->range_bytes && request->range_bytes > UINT64_MAX - request->range_offset))
		return -EINVAL;
	call->checksum_kind = (uint8_t)request->checksum_kind;
	if (call->checksum_kind)
		memcpy(call->checksum, request->checksum,
			checksum_bytes((enum checksum_kind)call->checksum_kind));
	call->range_offset = request->range_offset;
	call->range_bytes = request->range_bytes;
	call->want_headers = request->want_headers || request->op == NEB_HEAD_OBJECT;
	call->idempotent = client_op_of(call)->idempotent;
	call->writes = is_write(call);
	call->sure = call->writes && (!call->idempotent || has_condition(call));
	call->fresh = call->sure;
	call->done = request->done;
	return 0;
}

void client_result_init(struct neb_result *result, uint64_t id, void *user_data)
{
	result->error = 0;
	result->status = 0;
	result->transport = NEB_NONE;
	result->bytes = 0;
	result->object_bytes = 0;
	result->id = id;
	result->user_data = user_data;
	result->etag[0] = '\0';
	result->code[0] = '\0';
	result->message[0] = '\0';
	result->request_id[0] = '\0';
	result->fallback[0] = '\0';
	result->one_sided = false;
	result->headers[0] = '\0';
}

/* headers is large and mostly empty: copies only the part in use. */
void client_result_copy(struct neb_result *to, const struct neb_result *from)
{
	memcpy(to, from, offsetof(struct neb_result, headers));
	memcpy(to->headers, from->headers, strlen(from->headers) + 1);
}

static struct client_call *call_lease(struct neb_client *client)
{
	struct list *idle = list_pop(&client->idle_calls);
	struct client_call *call =
		idle ? CONTAINER_OF(idle, struct client_call, link) : malloc(sizeof(*call));

	if (!call)
		return NULL;
	list_init(&call->link);
	call->client = client;
	call->attempts = 0;
	call->retries = 0;
	call->not_again_ns = 0;
	call->device_idx = 0;
	call->gpu_landing = false;
	call->left = NULL;
	call->repeat = false;
	call->number = 0;
	list_init(&call->numbered);
	call->session = NULL;
	call->bounce = NULL;
	call->lease = NULL;
	call->opener = NULL;
	call->pages = NULL;
	call->sealed = NULL;
	call->endpoint = NULL;
	call->by_token = false;
	call->declines = 0;
	call->internal = NULL;
	call->ended = &client->done;
	call->mr_count = 0;
	call->cached_count = 0;
	call->easy = NULL;
	call->hipobj = NULL;
	call->curl_headers = NULL;
	call->more_text = NULL;
	return call;
}

void client_call_give(struct client_call *call)
{
	list_remove(&call->link);
	free(call->more_text);
	call->more_text = NULL;
	list_push_front(&call->client->idle_calls, &call->link);
}

void client_request_why(const struct neb_request *request, char *text, size_t bytes)
{
	const struct client_op *op =
		(unsigned)request->op < ARRAY_LEN(OPS) ? &OPS[request->op] : NULL;
	const char *why = NULL;

	if (op && op->method)
		why = names_wrong(op, text_len(request->bucket), text_len(request->key));
	if (why)
		snprintf(text, bytes, "%s", why);
	else
		snprintf(text, bytes,
			"a field of the request is out of bounds: a key has at most %u bytes, a "
			"bucket's name %u, all headers %u",
			(unsigned)LIMIT_KEY_LEN_MAX, (unsigned)LIMIT_BUCKET_LEN_MAX,
			(unsigned)CAPSULE_HEADERS_BYTES_MAX);
}

int client_call_make(
	struct neb_client *client, const struct neb_request *request, struct client_call **ret_call)
{
	struct client_call *call = call_lease(client);
	int ret;

	if (!call)
		return -ENOMEM;
	ret = request_take(call, request);
	if (ret) {
		client_call_give(call);
		return ret;
	}
	client_memory_look(call);
	for (uint32_t i = 0; i < call->body_count; i++) {
		if (!client_gpu_owns(call->body[i].data))
			continue;
		ret = client_gpu_settle(call->body[i].data);
		if (ret) {
			client_call_give(call);
			return ret;
		}
		break;
	}
	client_result_init(&call->result, ++client->next_id, request->user_data);
	call->begun_ns = clock_now_ns();
	call->deadline_ns = call->begun_ns +
			    (request->timeout_ns ? MIN(request->timeout_ns, CLIENT_TIMEOUT_NS_MAX)
						 : client->request_timeout_ns);
	call->phase = CLIENT_QUEUED;
	list_push_back(&client->queued, &call->link);
	client->undone_count++;
	*ret_call = call;
	return 0;
}

int client_call_internal(struct neb_client *client, const struct neb_request *request,
	struct client_endpoint *endpoint, bool fresh, void (*internal)(struct client_call *call))
{
	struct client_call *call;
	int ret = client_call_make(client, request, &call);

	if (ret)
		return ret;
	call->internal = internal;
	call->fresh = fresh;
	call->endpoint = endpoint;
	client_calls_kick(client);
	return 0;
}

/* ---- Ending a call. ---- */

/* A read may; a write that a session lost, because its server knows its number; one that it does no
 * harm to do twice; and one that no server has got, or that one has declined. */
static bool may_repeat(const struct client_call *call, int error)
{
	return !call->writes || call->repeat || !call->sure ||
	       (call->idempotent && !call->left &&
		       (error == -ECONNREFUSED || error == -EHOSTUNREACH || error == -EXDEV ||
			       error == -EAGAIN));
}

static void again(struct client_call *call, bool may, int error, const char *why)
{
	struct neb_client *client = call->client;

	client_runs_end(call, 0);
	call->session = NULL;
	call->attempts++;
	/* Pages that were reported are not reported again: the list continues behind them. */
	if ((client->transport == NEB_STRICT && !client_has_path(client)) || !may ||
		(call->pages && call->pages->count) || call->attempts >= CLIENT_ATTEMPTS_MAX ||
		clock_now_ns() >= call->deadline_ns) {
		snprintf(call->result.message, sizeof(call->result.message), "%s", why);
		client_call_finish(call, error);
		return;
	}
	call->phase = CLIENT_QUEUED;
	list_remove(&call->link);
	list_push_back(&client->queued, &call->link);
	client_calls_kick(client);
}

void client_call_retry(struct client_call *call, int error, const char *why)
{
	again(call, may_repeat(call, error), error, why);
}

void client_call_unsent(struct client_call *call, int error, const char *why)
{
	/* Where a session was lost, its server may have got the request before. */
	again(call, !call->left || may_repeat(call, error), error, why);
}

void client_call_number(struct client_call *call, struct capsule_once *ret_once)
{
	struct neb_client *client = call->client;

	if (!call->number) {
		call->number = ++client->next_number;
		list_push_back(&client->numbered, &call->numbered);
	}
	*ret_once = (struct capsule_once){
		.client = client->once_id,
		.number = call->number,
		.done_below =
			CONTAINER_OF(client->numbered.next, struct client_call, numbered)->number,
		.issued = client->next_number,
	};
}

void client_call_moved(struct client_call *call, const struct client_endpoint *to)
{
	if (call->left != to) {
		call->client->stats.requests_moved++;
		board_add(call->client->moved_shown, 1);
	}
	call->left = NULL;
}

/* Queues a call again that did nothing, without its answer. */
static void requeue(struct client_call *call)
{
	call->session = NULL;
	client_result_init(&call->result, call->result.id, call->result.user_data);
	call->phase = CLIENT_QUEUED;
	list_remove(&call->link);
	list_push_back(&call->client->queued, &call->link);
}

/* The server was busy: queues the call for later, if a repetition does no harm and there is
 * time. */
static bool busy_again(struct client_call *call)
{
	struct neb_client *client = call->client;
	uint64_t now_ns = clock_now_ns();
	uint64_t wait_ns = CLIENT_BUSY_NS_MIN << MIN(call->retries, 10);
	bool unknown = call->writes && strcmp(call->result.code, "OutcomeUnknown") == 0;

	/* A server that has the write's number knows it. */
	if (unknown && call->sure && !call->number)
		return false;
	call->repeat |= unknown && call->number;
	wait_ns = wait_ns / 2 + prng_below(&client->prng, wait_ns / 2);
	if (!call->idempotent || call->retries >= client->retries_max ||
		now_ns + wait_ns >= call->deadline_ns)
		return false;
	call->retries++;
	client->stats.retries++;
	call->not_again_ns = now_ns + wait_ns;
	requeue(call);
	return true;
}

/* The document of a success; NULL: the operation has none. */
static const char *document_of(const struct client_call *call)
{
	if (call->op == NEB_COPY_OBJECT)
		return "<CopyObjectResult";
	return call->op == NEB_COMPLETE_MULTIPART ? "<CompleteMultipartUploadResult" : NULL;
}

/* S3 may send the status 200 before a long operation ends, so its answer tells how it ended. */
static int document_check(struct client_call *call, const char *document)
{
	struct neb_result *result = &call->result;
	char space[DOCUMENT_BYTES];
	struct slice text = slice_of(space, 0), code, message;

	for (uint32_t i = 0; i < call->into_count; i++) {
		const struct neb_iov *iov = &call->into[i];
		uint64_t bytes = MIN(MIN(result->bytes, sizeof(space)) - text.len, iov->bytes);

		client_piece_copy(call->client, space + text.len, iov->data, bytes, iov->data);
		text.len += bytes;
	}
	if (slice_find(text, slice_str(document)) >= 0)
		return 0;
	code = xml_text(text, "Code");
	message = xml_text(text, "Message");
	snprintf(result->code, sizeof(result->code), "%.*s", SLICE_FMT(code));
	snprintf(result->message, sizeof(result->message), "%.*s", SLICE_FMT(message));
	if (!message.len)
		snprintf(result->message, sizeof(result->message),
			"the answer does not say that it was done");
	return -EIO;
}

void client_call_finish(struct client_call *call, int error)
{
	const char *document = document_of(call);
	struct neb_result *result = &call->result;

	if (call->internal) {
		result->error = error;
		call->client->undone_count--;
		call->internal(call);
		client_call_give(call);
		return;
	}
	if (__builtin_expect(call->client->owners != NULL, 0) && client_bucket_gone(call)) {
		requeue(call);
		client_calls_kick(call->client);
		return;
	}
	if (result->status == 503 && !(call->pages && call->pages->count) && busy_again(call))
		return;
	if (result->status == 400 && strcmp(result->code, "BufferTooSmall") == 0)
		error = -EMSGSIZE;
	if (__builtin_expect(document != NULL, 0) && !error)
		error = document_check(call, document);
	if (__builtin_expect(call->gpu_landing, 0))
		client_scatter_land(call);
	if (call->client->gpu_failed) {
		call->client->gpu_failed = false;
		snprintf(result->message, sizeof(result->message),
			"copying to or from the GPU failed");
		error = -EIO;
	}
	result->error = error;
	call->phase = CLIENT_DONE;
	list_remove(&call->numbered);
	list_remove(&call->link);
	list_push_back(call->ended, &call->link);
	call->client->undone_count--;
}

void client_headers_cut(struct neb_result *result)
{
	size_t len = strlen(result->headers);
	const char *value;

	/* The first one that did not fit has used the room that is kept for the line. */
	if (neb_result_header(result, "x-nebulaio-cut", &value) >= 0)
		return;
	CHECK(len + sizeof(CLIENT_CUT) <= sizeof(result->headers));
	memcpy(result->headers + len, CLIENT_CUT, sizeof(CLIENT_CUT));
}

int neb_result_header(const struct neb_result *result, const char *name, const char **ret_value)
{
	struct slice rest = slice_str(result->headers);

	while (rest.len) {
		struct slice line = slice_split(&rest, '\n');
		struct slice header = slice_split(&line, ':');

		if (!slice_eq_nocase(header, slice_str(name)))
			continue;
		line = slice_trim(line);
		*ret_value = line.data;
		return (int)line.len;
	}
	return -ENOENT;
}
