/* client/compat/runai.c: libstreamers3.so, which runai-model-streamer opens by that name to read
 * models from S3: vLLM and SGLang load models by it. Its interface has no version: runai_version.c
 * compares the streamer's. Each client of the streamer is a client of libnebulaio, which one thread
 * at a time uses, as the streamer does; obj_cancel_all_reads may come from any thread. */
#include "runai.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Chunks of the streamer that a client may have in flight. */
#define CHUNKS_IN_FLIGHT 8u
#define CHUNK_BYTES_MIN	 ((size_t)1 << 20)
#define POOL_BYTES	 (1u << 20) /* bodies land in the streamer's memory */
#define SPIN_NS		 10000u	    /* a chunk takes longer than a wait should spin */
#define WAIT_NS		 1000000000u
#define EVENTS_MAX	 16u
#define BUCKET_BYTES	 64u

/* A read in flight, or an idle one for the next. */
struct read {
	struct read *next; /* of the client's */
	struct read *next_idle;
	uint64_t id;
	size_t bytes;
};

struct client {
	struct client *next;
	struct neb_client *neb;
	_Atomic bool stopped;
	struct read *reads, *idle;
};

/* Guards the list of clients: no client ends while another thread cancels the reads of all. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct client *clients;
static _Atomic size_t inflight_bytes = SIZE_MAX;

/* ---- The backend. ---- */

enum runai_code obj_open_backend(void **ret_backend)
{
	char why[200];

	if (ret_backend)
		*ret_backend = NULL;
	if (runai_version_check(why, sizeof(why)) == 0)
		return RUNAI_SUCCESS;
	fprintf(stderr, "nebulaio: libstreamers3.so: %s\n", why);
	return RUNAI_PLUGIN_LOAD;
}

enum runai_code obj_close_backend(void *backend)
{
	(void)backend;
	return RUNAI_SUCCESS;
}

/* The streamer then closes the backend at the process's end, when nothing is left to do. */
int obj_get_backend_shutdown_policy(void)
{
	return RUNAI_SHUTDOWN_AT_EXIT;
}

enum runai_code obj_get_backend_config(
	void *backend, const char *key, char *out_value, unsigned *in_out_bytes)
{
	char text[24];
	unsigned len;

	(void)backend;
	if (!key || !out_value || !in_out_bytes || strcmp(key, "max_inflight_bytes") != 0)
		return RUNAI_UNKNOWN;
	len = (unsigned)snprintf(text, sizeof(text), "%zu", inflight_bytes);
	if (*in_out_bytes <= len) {
		*in_out_bytes = len + 1;
		return RUNAI_UNKNOWN;
	}
	memcpy(out_value, text, len + 1);
	*in_out_bytes = len;
	return RUNAI_SUCCESS;
}

/* ---- Clients. ---- */

static const char *param(const struct runai_client_config *config, const char *key)
{
	for (unsigned i = 0; config->params && i < config->param_count; i++)
		if (config->params[i].key && strcmp(config->params[i].key, key) == 0)
			return config->params[i].value;
	return NULL;
}

static const char *first_of(const char *a, const char *b, const char *c)
{
	if (!a || !*a)
		a = b;
	if (!a || !*a)
		a = c;
	return a && *a ? a : NULL;
}

/* NEBULAIO_ENDPOINT comes before the streamer's own endpoint, which is always HTTP. */
static int client_open(const struct runai_client_config *config, struct neb_client **ret_neb)
{
	const struct neb_options options = {
		.endpoints = first_of(getenv("NEBULAIO_ENDPOINT"), config->endpoint_url,
			getenv("AWS_ENDPOINT_URL")),
		.access_key = first_of(param(config, "access_key_id"),
			getenv("NEBULAIO_ACCESS_KEY"), getenv("AWS_ACCESS_KEY_ID")),
		.secret_key = first_of(param(config, "secret_access_key"),
			getenv("NEBULAIO_SECRET_KEY"), getenv("AWS_SECRET_ACCESS_KEY")),
		.region = first_of(param(config, "region"), getenv("AWS_REGION"),
			getenv("AWS_DEFAULT_REGION")),
		.device_name = getenv("NEBULAIO_RDMA_DEVICE_NAME"),
		.pool_bytes = POOL_BYTES,
		.spin_ns = SPIN_NS,
	};
	const char *missing = !options.endpoints    ? "NEBULAIO_ENDPOINT or AWS_ENDPOINT_URL"
			      : !options.access_key ? "AWS_ACCESS_KEY_ID"
			      : !options.secret_key ? "AWS_SECRET_ACCESS_KEY"
						    : NULL;

	if (missing)
		fprintf(stderr, "nebulaio: libstreamers3.so: %s is not set\n", missing);
	if (!missing && param(config, "session_token"))
		fprintf(stderr, "nebulaio: libstreamers3.so: temporary credentials (a session "
				"token) are not supported\n");
	return missing || param(config, "session_token") ? -EINVAL
							 : neb_client_open(&options, ret_neb);
}

enum runai_code obj_create_client(
	void *backend, const struct runai_client_config *config, void **ret_client)
{
	struct client *client = calloc(1, sizeof(*client));
	int ret = client ? client_open(config, &client->neb) : -ENOMEM;

	(void)backend;
	if (ret) {
		free(client);
		return ret == -EINVAL ? RUNAI_INVALID : RUNAI_UNKNOWN;
	}
	if (config->chunk_bytes > SIZE_MAX / CHUNKS_IN_FLIGHT)
		inflight_bytes = SIZE_MAX;
	else
		inflight_bytes = CHUNKS_IN_FLIGHT * (config->chunk_bytes > CHUNK_BYTES_MIN
								    ? config->chunk_bytes
								    : CHUNK_BYTES_MIN);
	pthread_mutex_lock(&lock);
	client->next = clients;
	clients = client;
	pthread_mutex_unlock(&lock);
	*ret_client = client;
	return RUNAI_SUCCESS;
}

/* Ends the client's reads in flight: afterwards the server cannot access their memory. */
enum runai_code obj_remove_client(void *handle)
{
	struct client **at, *client = handle;
	struct read *read;

	if (!client)
		return RUNAI_SUCCESS;
	pthread_mutex_lock(&lock);
	for (at = &clients; *at && *at != client;)
		at = &(*at)->next;
	if (*at)
		*at = client->next;
	pthread_mutex_unlock(&lock);
	neb_client_close(client->neb);
	while ((read = client->reads) != NULL) {
		client->reads = read->next;
		free(read);
	}
	free(client);
	return RUNAI_SUCCESS;
}

/* The streamer calls this when it has removed its own clients. This library keeps no others. */
enum runai_code obj_remove_all_clients(void)
{
	return RUNAI_SUCCESS;
}

enum runai_code obj_cancel_all_reads(void)
{
	pthread_mutex_lock(&lock);
	for (struct client *client = clients; client; client = client->next) {
		client->stopped = true;
		neb_wake(client->neb);
	}
	pthread_mutex_unlock(&lock);
	return RUNAI_SUCCESS;
}

/* ---- Reads. ---- */

static struct read *read_lease(struct client *client)
{
	struct read *read = client->idle;

	if (read) {
		client->idle = read->next_idle;
		return read;
	}
	read = calloc(1, sizeof(*read));
	if (read) {
		read->next = client->reads;
		client->reads = read;
	}
	return read;
}

static void read_give(struct client *client, struct read *read)
{
	read->next_idle = client->idle;
	client->idle = read;
}

/* Splits s3://bucket/key; the key may be empty. NULL: it is not of that form. */
static const char *uri_split(const char *uri, char bucket[BUCKET_BYTES])
{
	const char *slash;
	size_t len;

	if (!uri || strncmp(uri, "s3://", 5) != 0)
		return NULL;
	slash = strchr(uri + 5, '/');
	len = slash ? (size_t)(slash - uri - 5) : strlen(uri + 5);
	if (!len || len >= BUCKET_BYTES)
		return NULL;
	memcpy(bucket, uri + 5, len);
	bucket[len] = '\0';
	return slash ? slash + 1 : uri + 5 + len;
}

enum runai_code obj_request_read(
	void *handle, const char *path, struct runai_range range, char *memory, uint64_t request_id)
{
	struct client *client = handle;
	const struct neb_iov into = {.data = memory, .bytes = range.bytes};
	struct neb_request request = {.op = NEB_GET_OBJECT,
		.into = &into,
		.into_count = 1,
		.range_offset = range.offset,
		.range_bytes = range.bytes};
	char bucket[BUCKET_BYTES];
	struct read *read;

	if (!client || !memory || !range.bytes)
		return RUNAI_INVALID;
	if (client->stopped)
		return RUNAI_FINISHED;
	request.bucket = bucket;
	request.key = uri_split(path, bucket);
	if (!request.key || !*request.key)
		return RUNAI_INVALID;
	read = read_lease(client);
	if (!read)
		return RUNAI_UNKNOWN;
	read->id = request_id;
	read->bytes = range.bytes;
	request.user_data = read;
	if (neb_submit(client->neb, &request, NULL) == 0)
		return RUNAI_SUCCESS;
	read_give(client, read);
	return RUNAI_INVALID;
}

/* The codes of the streamer's own library: the streamer retries after a temporary failure. */
static enum runai_code code_of(const struct neb_result *result, size_t wanted_bytes)
{
	switch (result->error) {
	case 0:
		return result->bytes == wanted_bytes ? RUNAI_SUCCESS : RUNAI_TRUNCATED;
	case -EAGAIN:
	case -EIO:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETDOWN:
	case -ENOMEM:
		return RUNAI_RETRYABLE;
	default:
		return RUNAI_FILE_ACCESS;
	}
}

static void event_make(
	struct client *client, const struct neb_result *result, struct runai_event *ret_event)
{
	struct read *read = result->user_data;

	*ret_event = (struct runai_event){.request_id = read->id,
		.code = code_of(result, read->bytes),
		.bytes = result->bytes};
	if (result->error)
		fprintf(stderr, "nebulaio: libstreamers3.so: a read of %zu bytes: %s: %s %s\n",
			read->bytes, strerror(-result->error), result->code, result->message);
	read_give(client, read);
}

enum runai_code obj_wait_for_completions(void *handle, struct runai_event *events, unsigned max,
	unsigned *ret_count, enum runai_wait mode)
{
	struct client *client = handle;
	struct neb_result results[EVENTS_MAX];
	int count;

	if (!client || !events || !max || !ret_count)
		return RUNAI_UNKNOWN;
	max = max < EVENTS_MAX ? max : EVENTS_MAX;
	do
		count = mode == RUNAI_WAIT_NONE ? neb_poll(client->neb, results, max)
						: neb_wait(client->neb, results, max, WAIT_NS);
	while (count < 0 && !client->stopped && mode == RUNAI_WAIT_BLOCK);
	if (client->stopped || (count == 0 && mode == RUNAI_WAIT_BLOCK)) {
		*events = (struct runai_event){.code = RUNAI_FINISHED};
		*ret_count = 1;
		return RUNAI_SUCCESS;
	}
	*ret_count = count > 0 ? (unsigned)count : 0;
	for (int i = 0; i < count; i++)
		event_make(client, &results[i], &events[i]);
	return RUNAI_SUCCESS;
}

/* ---- Listings. ---- */

/* Entries and their paths, which listing_join() puts into one run of memory. */
struct listing {
	const char *bucket;
	struct runai_entry *entries; /* without paths, which are in the same order */
	size_t entry_count, entry_room;
	char *paths;
	size_t path_bytes, path_room;
	bool failed;
};

/* Makes room for more bytes; false when memory ran out. */
static bool room_make(void *array, size_t used, size_t more, size_t *room)
{
	void **at = array, *grown;
	size_t wanted = *room ? *room : 4096;

	while (wanted < used + more)
		wanted *= 2;
	if (wanted == *room)
		return true;
	grown = realloc(*at, wanted);
	if (!grown)
		return false;
	*at = grown;
	*room = wanted;
	return true;
}

static bool visit(void *arg, const struct neb_entry *entry)
{
	struct listing *listing = arg;
	size_t len = strlen(entry->key);
	size_t bytes = strlen("s3:///") + strlen(listing->bucket) + len + 1;

	/* A folder's marker is no file. */
	if (entry->is_prefix || (len && entry->key[len - 1] == '/'))
		return true;
	listing->failed =
		!room_make(&listing->entries, listing->entry_count * sizeof(*listing->entries),
			sizeof(*listing->entries), &listing->entry_room) ||
		!room_make(&listing->paths, listing->path_bytes, bytes, &listing->path_room);
	if (listing->failed)
		return false;
	snprintf(listing->paths + listing->path_bytes, bytes, "s3://%s/%s", listing->bucket,
		entry->key);
	listing->entries[listing->entry_count++] = (struct runai_entry){.bytes = entry->bytes};
	listing->path_bytes += bytes;
	return true;
}

/* Copies the entries, then the paths, into one run of memory. */
static struct runai_entry *listing_join(const struct listing *listing)
{
	size_t bytes = listing->entry_count * sizeof(*listing->entries);
	struct runai_entry *entries = malloc(bytes + listing->path_bytes);
	char *path = (char *)entries + bytes;

	if (!entries)
		return NULL;
	memcpy(entries, listing->entries, bytes);
	memcpy(path, listing->paths, listing->path_bytes);
	for (size_t i = 0; i < listing->entry_count; i++) {
		entries[i].path = path;
		path += strlen(path) + 1;
	}
	return entries;
}

enum runai_code obj_list_files(void *handle, const char *prefix, int is_recursive,
	struct runai_entry **ret_entries, unsigned *ret_count)
{
	struct client *client = handle;
	char bucket[BUCKET_BYTES];
	struct listing listing = {.bucket = bucket};
	struct neb_list list = {.bucket = bucket, .visit = visit, .arg = &listing};
	struct neb_result result = {0};
	struct runai_entry *entries = NULL;
	int ret = -EINVAL;

	if (!client || !ret_entries || !ret_count)
		return RUNAI_INVALID;
	list.prefix = uri_split(prefix, bucket);
	list.delimiter = is_recursive ? NULL : "/";
	if (list.prefix)
		ret = neb_list(client->neb, &list, &result);
	if (ret == 0 && listing.entry_count)
		entries = listing_join(&listing);
	free(listing.entries);
	free(listing.paths);
	if (ret)
		fprintf(stderr, "nebulaio: libstreamers3.so: listing %s: %s: %s %s\n",
			prefix ? prefix : "", strerror(-ret), result.code, result.message);
	if (ret || listing.failed || (listing.entry_count && !entries))
		return !list.prefix ? RUNAI_INVALID : ret ? RUNAI_FILE_ACCESS : RUNAI_UNKNOWN;
	*ret_entries = entries;
	*ret_count = (unsigned)listing.entry_count;
	return RUNAI_SUCCESS;
}

void obj_free_file_list(struct runai_entry *entries, unsigned count)
{
	(void)count;
	free(entries);
}
