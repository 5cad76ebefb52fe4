/* tests/sim/client.c: a client: its requests, by the library or over HTTP, and the bytes of its
 * puts and gets. */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define QUERY_BYTES_MAX 512u
/* After so many transmissions a path is silent: HELLO, PROOF, and then requests. */
#define VANISH_MIN    3u
#define VANISH_SPREAD 16u

/* ---- Bodies: a value is a number and a length; its bytes follow from both. ---- */

uint32_t value_bytes_draw(struct client *client)
{
	static const uint32_t SIZES[] = {8, 100, 900, 2048, 3000, 4096, 20000, 65536, 70000, 300000,
		1048576, 1500000, 3 * MIB - 64};
	uint64_t many = prng_below(&client->prng, 4) ? 8 : ARRAY_LEN(SIZES);

	return SIZES[prng_below(&client->prng, many)];
}

static void value_fill(uint32_t value, uint8_t *body)
{
	uint32_t bytes = shared->history.values[value].bytes;
	const uint64_t head = value;
	struct prng prng;

	memcpy(body, &head, sizeof(head));
	prng_seed(&prng, ~head);
	prng_fill(&prng, body + sizeof(head), bytes - sizeof(head));
}

uint32_t value_make(struct client *client, uint16_t key, uint32_t bytes)
{
	struct history *history = &shared->history;
	uint32_t value = history_value(history, key, 0);

	/* Lengths differ, so that a listing distinguishes values. */
	history->values[value].bytes = bytes + value % 61;
	value_fill(value, client->body);
	return value;
}

/* The value that starts at body, which has at most so many bytes. */
static uint32_t value_at(struct client *client, const uint8_t *body, uint64_t bytes)
{
	const struct history *history = &shared->history;
	uint64_t value = 0, len;

	if (bytes >= sizeof(value))
		memcpy(&value, body, sizeof(value));
	if (!value || value > history->value_count || history->values[value].bytes > bytes)
		world_fault("%llu bytes of a body name value %llu, which nobody put",
			(unsigned long long)bytes, (unsigned long long)value);
	len = history->values[value].bytes;
	value_fill((uint32_t)value, client->scratch);
	if (memcmp(body, client->scratch, len) == 0)
		return (uint32_t)value;
	for (uint64_t i = 0; i < len; i++)
		if (body[i] != client->scratch[i])
			world_fault("value %llu of %llu bytes is wrong from byte %llu on",
				(unsigned long long)value, (unsigned long long)len,
				(unsigned long long)i);
	return 0;
}

uint32_t body_content(struct client *client, uint64_t bytes)
{
	struct history *history = &shared->history;
	uint32_t content = HISTORY_ABSENT;
	uint64_t at = 0;

	do {
		uint32_t value = value_at(client, client->body + at, bytes - at);

		at += history->values[value].bytes;
		content = history_chain(history, content, value);
	} while (at < bytes);
	return content;
}

/* ---- Names. ---- */

const char *bucket_of(uint16_t key)
{
	return key < KEY_VERSIONED  ? BUCKET
	       : key < KEY_APPENDED ? BUCKET_VERSIONS
	       : key < KEY_MEMORY   ? BUCKET_APPEND
				    : BUCKET_MEMORY;
}

bool is_idempotent(uint16_t key)
{
	return key < KEY_VERSIONED || key >= KEY_MEMORY;
}

void name_of_key(uint16_t key, char name[16])
{
	snprintf(name, 16, "%c/k%02u", 'a' + key % 3, key);
}

bool xml_next(const char **at, const char *name, char *into, size_t room)
{
	char tag[64];
	const char *begin;
	size_t len;

	snprintf(tag, sizeof(tag), "<%s>", name);
	begin = strstr(*at, tag);
	if (!begin)
		return false;
	begin += strlen(tag);
	len = MIN(strcspn(begin, "<"), room - 1);
	memcpy(into, begin, len);
	into[len] = 0;
	*at = begin + len;
	return true;
}

/* ---- Requests. ---- */

static void say(void *arg, enum neb_log_level level, const char *text)
{
	(void)arg;
	if (level >= NEB_LOG_WARN)
		log_info("client", "%s", text);
}

/* Opens the library's client if it is not open; this may fail while calls fail. */
static bool neb_ready(struct client *client)
{
	char endpoint[96], devices[64] = "simulated";
	unsigned port = server_rdma_port(server);
	struct neb_options options = {
		.endpoints = endpoint,
		.access_key = "minioadmin",
		.secret_key = "minioadmin",
		.transport = opts.strict ? NEB_STRICT : NEB_RDMA,
		.device_name = devices,
		.pool_bytes = 8 * MIB,
		.spin_ns = 1,
		.one_sided_reads = opts.one_sided,
		.log = say,
	};

	if (client->neb)
		return true;
	snprintf(endpoint, sizeof(endpoint), "rdma://127.0.0.1:%u", port);
	if (opts.paths) {
		snprintf(
			endpoint, sizeof(endpoint), "rdma://127.0.0.1:%u,127.0.0.2:%u", port, port);
		snprintf(devices, sizeof(devices), "simulated:vanish=%u simulated",
			VANISH_MIN + (unsigned)prng_below(&client->prng, VANISH_SPREAD));
	}
	if (neb_client_open(&options, &client->neb) == 0)
		return true;
	client->neb = NULL;
	if (!opts.faulty)
		world_fault("the client does not open");
	return false;
}

static void path_make(const struct ask *ask, char *path, size_t room)
{
	snprintf(path, room, "/%s%s%s", ask->bucket, ask->name ? "/" : "",
		ask->name ? ask->name : "");
}

static int ask_by_http(struct client *client, const struct ask *ask, struct http_answer *ret_answer)
{
	char path[128], query[QUERY_BYTES_MAX];
	struct http_request request = {.method = ask->method,
		.path = path,
		.query = query,
		.body = ask->body,
		.body_bytes = ask->body_bytes,
		.send_bytes_max = ask->send_bytes_max};

	path_make(ask, path, sizeof(path));
	snprintf(query, sizeof(query), "%s%s%s", ask->query ? ask->query : "",
		ask->version ? "versionId=" : "", ask->version ? ask->version : "");
	memcpy(request.headers, ask->headers, sizeof(request.headers));
	return http_perform(&client->http, &request, client->body, BODY_BYTES_MAX, ret_answer);
}

static void header_copy(const struct neb_result *result, const char *name, char *into, size_t room)
{
	const char *value;
	int len = neb_result_header(result, name, &value);

	into[0] = 0;
	if (len >= 0)
		snprintf(into, room, "%.*s", len, value);
}

static void request_fill(struct neb_request *request, const struct ask *ask, const char *path,
	struct neb_header headers[HTTP_HEADERS_MAX])
{
	bool whole = ask->op == NEB_S3;

	*request = (struct neb_request){.op = ask->op,
		.bucket = whole ? NULL : ask->bucket,
		.key = whole ? NULL : ask->name,
		.method = whole ? ask->method : NULL,
		.path = whole ? path : NULL,
		.version_id = ask->version,
		.query = ask->query,
		.headers = headers,
		.want_headers = !ask->again};
	while (request->header_count < HTTP_HEADERS_MAX &&
		ask->headers[request->header_count].name) {
		const struct http_header *from = &ask->headers[request->header_count];

		headers[request->header_count++] = (struct neb_header){from->name, from->value};
	}
}

static int ask_by_neb(struct client *client, const struct ask *ask, struct http_answer *ret_answer)
{
	const struct neb_iov body = {(void *)(uintptr_t)ask->body, ask->body_bytes};
	const struct neb_iov into = {client->body, BODY_BYTES_MAX};
	struct neb_header headers[HTTP_HEADERS_MAX];
	struct neb_request request;
	struct neb_result result;
	char path[128];

	if (!neb_ready(client))
		return 0;
	path_make(ask, path, sizeof(path));
	request_fill(&request, ask, path, headers);
	request.body = &body;
	request.body_count = ask->body_bytes ? 1 : 0;
	request.into = &into;
	request.into_count = 1;
	if (ask->send_bytes_max) {
		if (neb_submit(client->neb, &request, NULL) == 0)
			(void)neb_wait(client->neb, NULL, 0, prng_below(&client->prng, NS_PER_MS));
		return 0;
	}
	(void)neb_perform(client->neb, &request, &result);
	ret_answer->status = (int)result.status;
	ret_answer->bytes = result.bytes;
	snprintf(ret_answer->etag, sizeof(ret_answer->etag), "%s", result.etag);
	if (!ask->again)
		header_copy(&result, "x-amz-version-id", ret_answer->version_id,
			sizeof(ret_answer->version_id));
	return ret_answer->status;
}

int client_ask(struct client *client, const struct ask *ask, struct http_answer *ret_answer)
{
	bool by_http = client->by_http || (!opts.strict && !ask->again);
	int status;

	memset(ret_answer, 0, sizeof(*ret_answer));
	status = by_http ? ask_by_http(client, ask, ret_answer)
			 : ask_by_neb(client, ask, ret_answer);
	client->body[MIN(ret_answer->bytes, BODY_BYTES_MAX - 1)] = 0;
	world_trace(ask->method, (uint64_t)status, ret_answer->bytes);
	return status;
}

enum history_outcome outcome_of(int status)
{
	if (status >= 200 && status < 300)
		return HISTORY_DONE;
	return status >= 400 && status < 500 ? HISTORY_NOTHING : HISTORY_LOST;
}

void write_ended(uint32_t op, const struct http_answer *answer)
{
	struct history *history = &shared->history;
	struct history_op *of = &history->ops[op];
	enum history_outcome outcome = outcome_of(answer->status);
	uint32_t known = shared->known[of->key].version_count;

	if ((answer->status == 412 && of->condition != HISTORY_ALWAYS) ||
		(answer->status == 404 && of->condition == HISTORY_IF_CONTENT))
		outcome = HISTORY_REFUSED;
	if (outcome == HISTORY_DONE && answer->version_id[0]) {
		of->name = history_name(history, answer->version_id);
		snprintf(shared->known[of->key].versions[known % KNOWN_MAX], HISTORY_NAME_BYTES,
			"%s", answer->version_id);
		shared->known[of->key].version_count++;
	}
	if (outcome == HISTORY_LOST)
		shared->known[of->key].lost++;
	history_end(history, op, outcome);
	world_trace("write", of->content, (uint64_t)outcome);
}

/* ---- Life. ---- */

void asker_open(struct client *client)
{
	client->by_http = opts.all_by_http || (!opts.paths && prng_below(&client->prng, 3) == 0);
	client->body = (uint8_t *)malloc(BODY_BYTES_MAX);
	client->scratch = (uint8_t *)malloc(BODY_BYTES_MAX);
	CHECK(client->body && client->scratch);
	http_open(&client->http, server_http_port(server));
}

void asker_close(struct client *client)
{
	neb_client_close(client->neb);
	client->neb = NULL;
	http_close(&client->http);
	free(client->body);
	free(client->scratch);
}
