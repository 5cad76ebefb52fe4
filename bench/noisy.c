/* bench/noisy.c: the noisy tenant: one thread with many connections, which sleeps while it waits
 * and has a lower priority than all others. It runs on the client's processor: a machine of two
 * processors has no other, and the client is woken before it. */
#include "bench/noisy.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/http_load.h"
#include "codec/codec.h"

#define BUCKET	     "/bench-noisy"
#define ANSWER_BYTES (64 * KIB)
#define PAGE_BYTES   (1 * MIB)
#define LIST_KEYS    2000u
/* Long names, equal in all but their end. */
#define LONG_PREFIX                                                            \
	"a-long-prefix-that-every-key-of-this-bucket-has-in-front-of-its-own-" \
	"number-so-that-a-page-of-a-thousand-keys-is-some-hundred-kilobytes-"

/* The requests of each kind. */
static const struct noise {
	uint32_t connections;
	uint32_t objects; /* that it goes through */
	uint64_t object_bytes;
	bool uploads;
} NOISES[BENCH_NOISE_COUNT] = {
	[BENCH_UPLOADS] = {16, 16, 1 * MIB, true},
	[BENCH_DOWNLOADS] = {32, 4, 8 * MIB, false},
	[BENCH_PUTS] = {64, 256, 4 * KIB, true},
	[BENCH_LISTS] = {16, LIST_KEYS, 16, false},
	[BENCH_PARTS] = {16, 16, 5 * MIB, true},
};

struct bench_noisy {
	const struct bench_server *server;
	enum bench_noise_kind kind;
	const struct noise *noise;
	char upload_id[256];
	uint8_t *body;
	struct bench_http_set set;
	struct bench_http_load *load;
	struct hist hist;
	struct bench_result result;
	uint64_t turn;
	uint64_t begin_ops, begin_errors;
	pthread_t thread;
	bool runs;
	_Atomic bool stop;
};

/* ---- Requests. ---- */

static const char *path_of(const struct bench_noisy *noisy, uint32_t idx, char path[256])
{
	snprintf(path, 256, "%s/%s%u", BUCKET,
		noisy->kind == BENCH_LISTS   ? LONG_PREFIX
		: noisy->kind == BENCH_PARTS ? "parts-"
					     : bench_noise_word(noisy->kind),
		noisy->kind == BENCH_PARTS ? 0 : idx);
	return path;
}

/* One request by itself; 200, or -errno. */
static int ask(const struct bench_noisy *noisy, const struct bench_signer *signer,
	const struct bench_http_line *line, char answer[ANSWER_BYTES])
{
	struct buf head;
	size_t bytes;
	int status;

	buf_init(&head, 16 * KIB);
	bench_http_put_head(signer, line, &head);
	status = bench_http_once(
		noisy->server->http_address, buf_slice(&head), answer, ANSWER_BYTES, &bytes);
	buf_free(&head);
	if (status < 0)
		return status;
	return status == 200 ? 0 : -EACCES;
}

static int begin_upload(struct bench_noisy *noisy, const struct bench_signer *signer)
{
	char path[256], answer[ANSWER_BYTES];
	const struct bench_http_line line = {.method = "POST",
		.path = path_of(noisy, 0, path),
		.query = "uploads=",
		.has_body = true};
	int ret = ask(noisy, signer, &line, answer);
	const char *at;

	if (ret)
		return ret;
	at = strstr(answer, "<UploadId>");
	if (!at)
		return -EPROTO;
	at += strlen("<UploadId>");
	snprintf(noisy->upload_id, sizeof(noisy->upload_id), "%.*s", (int)strcspn(at, "<"), at);
	return 0;
}

static int set_make(struct bench_noisy *noisy, const struct bench_signer *signer, bool uploads,
	struct bench_http_set *set)
{
	bool pages = noisy->kind == BENCH_LISTS && !uploads;
	char path[256], query[384] = "";
	struct bench_http_line line = {.method = uploads ? "PUT" : "GET",
		.path = path,
		.query = query,
		.has_body = uploads,
		.body_bytes = uploads ? noisy->noise->object_bytes : 0};
	uint32_t count = pages ? 1 : noisy->noise->objects;
	int ret = bench_http_set_open(set, count);

	for (uint32_t i = 0; i < count && !ret; i++) {
		path_of(noisy, i, path);
		if (pages) {
			snprintf(path, sizeof(path), "%s", BUCKET);
			snprintf(query, sizeof(query), "list-type=2&prefix=%s", LONG_PREFIX);
		} else if (noisy->kind == BENCH_PARTS) {
			snprintf(query, sizeof(query), "partNumber=%u&uploadId=%s", i + 1,
				noisy->upload_id);
		}
		ret = bench_http_set_add(set, signer, &line, i, uploads ? noisy->body : NULL);
	}
	set->body_bytes = line.body_bytes;
	set->answer_bytes = uploads || pages ? UINT64_MAX : noisy->noise->object_bytes;
	set->answer_bytes_max = uploads ? ANSWER_BYTES
				: pages ? PAGE_BYTES
					: noisy->noise->object_bytes;
	return ret;
}

/* Stores the objects that are read later. */
static int store_objects(struct bench_noisy *noisy, const struct bench_signer *signer)
{
	struct bench_result result = {.hist = &noisy->hist};
	struct bench_http_load *load = NULL;
	struct bench_http_set set = {0};
	int ret = set_make(noisy, signer, true, &set);

	if (!ret)
		ret = bench_http_load_open(noisy->server->http_address, 4, &set, &load);
	if (!ret)
		bench_http_load_run(load,
			&(struct bench_run_opts){.duration_ns = 60 * NS_PER_S,
				.ops_max = noisy->noise->objects,
				.sleeps = true},
			&result);
	bench_http_load_close(load);
	bench_http_set_close(&set);
	if (!ret && result.errors)
		ret = -EIO;
	if (ret)
		snprintf(noisy->result.first_error, sizeof(noisy->result.first_error), "%s",
			result.first_error);
	return ret;
}

/* ---- Opening, running, closing. ---- */

int bench_noisy_open(const struct bench_server *server, enum bench_noise_kind kind,
	struct bench_noisy **ret_noisy)
{
	const struct bench_http_line bucket = {.method = "PUT", .path = BUCKET, .query = ""};
	char answer[ANSWER_BYTES];
	struct bench_signer signer;
	struct bench_noisy *noisy;
	int ret = -ENOMEM;

	if (!server->noisy_access_key[0] || !server->http_address[0])
		return -ENODEV;
	noisy = calloc(1, sizeof(*noisy));
	if (!noisy)
		return -ENOMEM;
	noisy->server = server;
	noisy->kind = kind;
	noisy->noise = &NOISES[kind];
	hist_reset(&noisy->hist);
	noisy->result.hist = &noisy->hist;
	bench_signer_init(&signer, server->noisy_access_key, server->noisy_secret_key,
		server->region, server->http_address);
	noisy->body = malloc(noisy->noise->object_bytes);
	if (noisy->body) {
		random_fill(noisy->body, noisy->noise->object_bytes);
		ret = ask(noisy, &signer, &bucket, answer);
	}
	if (!ret && kind == BENCH_PARTS)
		ret = begin_upload(noisy, &signer);
	if (!ret && !noisy->noise->uploads)
		ret = store_objects(noisy, &signer);
	if (!ret)
		ret = set_make(noisy, &signer, noisy->noise->uploads, &noisy->set);
	if (!ret) {
		noisy->set.status = 200;
		ret = bench_http_load_open(
			server->http_address, noisy->noise->connections, &noisy->set, &noisy->load);
	}
	secret_wipe(&signer, sizeof(signer));
	if (ret) {
		bench_noisy_close(noisy);
		return ret;
	}
	*ret_noisy = noisy;
	return 0;
}

static void *noisy_main(void *arg)
{
	struct bench_noisy *noisy = arg;
	const struct bench_run_opts run = {.duration_ns = 600 * NS_PER_S,
		.turn = noisy->turn,
		.sleeps = true,
		.stop = &noisy->stop};

	/* In Linux this applies to the calling thread alone. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), 0);
	noisy->turn = bench_http_load_run(noisy->load, &run, &noisy->result);
	return NULL;
}

void bench_noisy_begin(struct bench_noisy *noisy)
{
	noisy->begin_ops = noisy->result.ops;
	noisy->begin_errors = noisy->result.errors;
	atomic_store(&noisy->stop, false);
	noisy->runs = !pthread_create(&noisy->thread, NULL, noisy_main, noisy);
}

uint64_t bench_noisy_end(struct bench_noisy *noisy)
{
	atomic_store(&noisy->stop, true);
	if (noisy->runs)
		pthread_join(noisy->thread, NULL);
	noisy->runs = false;
	return noisy->result.ops - noisy->begin_ops - (noisy->result.errors - noisy->begin_errors);
}

const char *bench_noisy_error(const struct bench_noisy *noisy)
{
	return noisy->result.first_error;
}

void bench_noisy_close(struct bench_noisy *noisy)
{
	if (!noisy)
		return;
	bench_http_load_close(noisy->load);
	bench_http_set_close(&noisy->set);
	free(noisy->body);
	free(noisy);
}
