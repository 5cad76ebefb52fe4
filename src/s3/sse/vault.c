/* s3/sse/vault.c: the key service's client: calls on helper threads, at most two at a time, each
 * with a timeout; a cache in front of them. */
#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "reactor/reactor.h"
#include "s3/vault.h"

#define CALL_MS_MAX	5000L
#define CONNECT_MS_MAX	2000L
#define CALLS_MAX	2u /* helpers are shared with the store */
#define TURN_NS		(5 * NS_PER_MS)
#define TURN_NS_MAX	(10 * NS_PER_S)
#define REST_NS		NS_PER_S /* after a failure */
#define REPLY_BYTES_MAX (64 * KIB)
#define TOKEN_BYTES_MAX 4096u
#define VAULT_NAME_MAX	256u
#define VAULT_URL_MAX	1024u
#define VAULT_KEYS_MAX	4096u
#define PLAIN_LEN	BASE64_LEN(S3_VAULT_KEY_BYTES)

DEFINE_COUNTER(calls, "nebulaio_kms_calls_total", NULL, "Calls to the key service.");
DEFINE_COUNTER(
	failures, "nebulaio_kms_failures_total", NULL, "Calls to the key service that failed.");
DEFINE_COUNTER(cache_hits, "nebulaio_kms_cache_hits_total", NULL,
	"Keys found in memory, without a call to the key service.");

struct cached {
	uint64_t until_ns; /* 0: free */
	bool current;	   /* also seals new data keys */
	char name[VAULT_NAME_MAX + 1];
	char text[S3_VAULT_TEXT_MAX + 1];
	uint8_t key[S3_VAULT_KEY_BYTES];
};
struct s3_vault {
	char address[VAULT_URL_MAX + 1];
	char token_file[VAULT_URL_MAX + 1];
	char mount[VAULT_NAME_MAX + 1];
	char ca_file[VAULT_URL_MAX + 1];
	char keys[VAULT_KEYS_MAX];
	uint64_t cache_ns;
	pthread_mutex_t lock; /* of the members below; never held while waiting */
	uint32_t busy;
	uint64_t failed_ns;
	int failed; /* the error that calls get until the pause is over */
	struct cached cached[S3_VAULT_CACHED_MAX];
};

int s3_vault_open(const struct s3_vault_opts *opts, struct s3_vault **ret_vault)
{
	struct slice address = slice_str(opts->address);
	struct s3_vault *vault = calloc(1, sizeof(*vault));
	int ret = 0;

	if (!vault)
		return -ENOMEM;
	pthread_mutex_init(&vault->lock, NULL);
	while (slice_ends(address, SLICE("/")))
		address.len--;
	if ((!slice_starts(address, SLICE("http://")) &&
		    !slice_starts(address, SLICE("https://"))) ||
		!opts->token_file || !opts->token_file[0] || !opts->keys || !opts->keys[0] ||
		slice_copy_str(address, vault->address, sizeof(vault->address)) ||
		slice_copy_str(slice_str(opts->token_file), vault->token_file,
			sizeof(vault->token_file)) ||
		slice_copy_str(slice_str(opts->mount), vault->mount, sizeof(vault->mount)) ||
		slice_copy_str(slice_str(opts->keys), vault->keys, sizeof(vault->keys)) ||
		slice_copy_str(slice_str(opts->ca_file ? opts->ca_file : ""), vault->ca_file,
			sizeof(vault->ca_file)))
		ret = -EINVAL;
	if (ret)
		log_error("s3", "encryption.kms.vault: address must be http:// or https://, and "
				"token_file and keys must be set");
	else if (curl_global_init(CURL_GLOBAL_DEFAULT))
		ret = -ENOMEM;
	if (ret) {
		s3_vault_close(vault);
		return ret;
	}
	vault->cache_ns = opts->cache_s * NS_PER_S;
	*ret_vault = vault;
	return 0;
}

void s3_vault_close(struct s3_vault *vault)
{
	if (!vault)
		return;
	pthread_mutex_destroy(&vault->lock);
	secret_wipe(vault, sizeof(*vault));
	free(vault);
}

bool s3_vault_has(const struct s3_vault *vault, struct slice name)
{
	struct slice rest = vault ? slice_str(vault->keys) : SLICE_NONE;

	if (!name.len || name.len > VAULT_NAME_MAX)
		return false;
	while (rest.len)
		if (slice_eq(slice_trim(slice_split(&rest, ',')), name))
			return true;
	return false;
}

/* ---- One call, on a helper. ---- */

struct call {
	struct s3_vault *vault;
	const char *verb;  /* "encrypt" */
	const char *given; /* the member of the request, and of the answer */
	const char *wanted;
	struct slice name, value;
	struct slice text; /* of the key that is looked for; empty: the one that seals now */
	char answer[S3_VAULT_TEXT_MAX + 1];
	int ret;
};

static size_t take(char *data, size_t size, size_t count, void *arg)
{
	struct buf *reply = arg;

	buf_put(reply, data, size * count);
	return reply->failed ? 0 : size * count;
}

/* Builds the token's header; the caller frees it. */
static int credentials_read(const struct s3_vault *vault, struct curl_slist **ret_headers)
{
	char line[TOKEN_BYTES_MAX + 32] = "X-Vault-Token: ";
	size_t head = strlen(line), len;
	FILE *file = fopen(vault->token_file, "re");

	if (!file) {
		log_error("s3", "encryption.kms.vault.token_file %s: %s", vault->token_file,
			strerror(errno));
		return -EACCES;
	}
	len = fread(line + head, 1, TOKEN_BYTES_MAX, file);
	fclose(file);
	line[head + strcspn(line + head, "\r\n")] = '\0';
	*ret_headers = len ? curl_slist_append(NULL, line) : NULL;
	secret_wipe(line, sizeof(line));
	if (!len)
		log_error("s3", "encryption.kms.vault.token_file %s is empty", vault->token_file);
	return *ret_headers ? 0 : len ? -ENOMEM : -EACCES;
}

/* Parses the answer's data, or the reason of the refusal. */
static int answer_parse(struct call *call, const struct buf *reply, long status)
{
	json_t *json = json_loadb(reply->data ? reply->data : "", reply->len, 0, NULL);
	const char *text =
		json_string_value(json_object_get(json_object_get(json, "data"), call->wanted));
	const char *why = json_string_value(json_array_get(json_object_get(json, "errors"), 0));
	int ret = -EIO;

	if (status == 200 && text && !strchr(text, ' ') &&
		!slice_copy_str(slice_str(text), call->answer, sizeof(call->answer)))
		ret = 0;
	else if (status >= 400 && status < 500)
		ret = -EACCES;
	if (ret)
		log_error("s3", "the key service %s: %s %.*s: HTTP %ld: %.200s",
			call->vault->address, call->verb, SLICE_FMT(call->name), status,
			why ? why : "no reason given");
	json_decref(json);
	return ret;
}

static int call_by(struct call *call, CURL *curl, struct buf *reply)
{
	const struct s3_vault *vault = call->vault;
	struct curl_slist *headers = NULL;
	char url[VAULT_URL_MAX + 2 * VAULT_NAME_MAX + 32], body[2 * S3_VAULT_TEXT_MAX];
	long status = 0;
	CURLcode code;
	int ret = credentials_read(vault, &headers);

	if (ret)
		return ret;
	snprintf(url, sizeof(url), "%s/v1/%s/%s/%.*s", vault->address, vault->mount, call->verb,
		SLICE_FMT(call->name));
	snprintf(body, sizeof(body), "{\"%s\":\"%.*s\"}", call->given, SLICE_FMT(call->value));
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, CALL_MS_MAX);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS_MAX);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "nebulaio");
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
	if (vault->ca_file[0])
		curl_easy_setopt(curl, CURLOPT_CAINFO, vault->ca_file);
	code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_slist_free_all(headers);
	secret_wipe(body, sizeof(body));
	if (code == CURLE_OK)
		return answer_parse(call, reply, status);
	log_error("s3", "the key service %s: %s", vault->address, curl_easy_strerror(code));
	return code == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO;
}

static void call_run(void *arg)
{
	struct call *call = arg;
	CURL *curl = curl_easy_init();
	struct buf reply;

	buf_init(&reply, REPLY_BYTES_MAX);
	call->ret = curl ? call_by(call, curl, &reply) : -ENOMEM;
	curl_easy_cleanup(curl);
	if (reply.data)
		secret_wipe(reply.data, reply.len);
	buf_free(&reply);
}

/* ---- The cache. ---- */

/* text empty: finds the key that seals now. */
static bool cache_find(
	struct s3_vault *vault, struct slice name, struct slice text, struct cached *ret_cached)
{
	uint64_t now_ns = clock_now_ns();
	bool found = false;

	pthread_mutex_lock(&vault->lock);
	for (uint32_t i = 0; i < S3_VAULT_CACHED_MAX && !found; i++) {
		const struct cached *cached = &vault->cached[i];

		found = now_ns < cached->until_ns && slice_eq(slice_str(cached->name), name) &&
			(text.len ? slice_eq(slice_str(cached->text), text) : cached->current);
		if (found)
			*ret_cached = *cached;
	}
	pthread_mutex_unlock(&vault->lock);
	if (found)
		counter_add(&cache_hits, 1);
	return found;
}

/* Replaces the entry that expires first. */
static void cache_add(struct s3_vault *vault, const struct cached *cached)
{
	struct cached *first;

	pthread_mutex_lock(&vault->lock);
	first = &vault->cached[0];
	for (uint32_t i = 1; i < S3_VAULT_CACHED_MAX; i++)
		if (vault->cached[i].until_ns < first->until_ns)
			first = &vault->cached[i];
	*first = *cached;
	first->until_ns = clock_now_ns() + vault->cache_ns;
	pthread_mutex_unlock(&vault->lock);
}

/* Waits for one of the few turns, or until another call has brought the key. For REST_NS after a
 * failure, the call fails with that error. */
static int turn_take(const struct call *call, struct cached *ret_cached, bool *ret_found)
{
	struct s3_vault *vault = call->vault;
	uint64_t end_ns = clock_now_ns() + TURN_NS_MAX;

	for (;;) {
		uint64_t now_ns = clock_now_ns();
		bool taken = false;
		int failed = 0;

		*ret_found = cache_find(vault, call->name, call->text, ret_cached);
		if (*ret_found)
			return 0;
		pthread_mutex_lock(&vault->lock);
		if (vault->failed && now_ns < vault->failed_ns + REST_NS)
			failed = vault->failed;
		else if (vault->busy < CALLS_MAX)
			taken = true;
		vault->busy += taken;
		pthread_mutex_unlock(&vault->lock);
		if (taken || failed)
			return failed;
		if (now_ns >= end_ns)
			return -ETIMEDOUT;
		fiber_sleep_ns(TURN_NS);
	}
}

/* *ret_found: another call has brought the key meanwhile, and this one was not made. */
static int call_do(struct call *call, struct cached *ret_cached, bool *ret_found)
{
	struct s3_vault *vault = call->vault;
	int ret = turn_take(call, ret_cached, ret_found);

	if (ret || *ret_found)
		return ret;
	counter_add(&calls, 1);
	fiber_offload_long(call_run, call);
	pthread_mutex_lock(&vault->lock);
	vault->busy--;
	/* A refusal concerns one key; a timeout concerns all keys. */
	vault->failed = call->ret == -EIO || call->ret == -ETIMEDOUT ? call->ret : 0;
	vault->failed_ns = clock_now_ns();
	pthread_mutex_unlock(&vault->lock);
	if (call->ret)
		counter_add(&failures, 1);
	return call->ret;
}

int s3_vault_current(struct s3_vault *vault, struct slice name, uint8_t ret_key[S3_VAULT_KEY_BYTES],
	char ret_text[S3_VAULT_TEXT_MAX + 1])
{
	struct call call = {.vault = vault,
		.verb = "encrypt",
		.given = "plaintext",
		.wanted = "ciphertext",
		.name = name};
	struct cached made = {.current = true};
	char plain[PLAIN_LEN];
	bool found;
	int ret = 0;

	if (!cache_find(vault, name, SLICE_NONE, &made)) {
		random_fill(made.key, sizeof(made.key));
		call.value = slice_of(plain, base64_encode(made.key, sizeof(made.key), plain));
		ret = call_do(&call, &made, &found);
		secret_wipe(plain, sizeof(plain));
		if (!ret && !found) {
			slice_copy_str(name, made.name, sizeof(made.name));
			memcpy(made.text, call.answer, sizeof(made.text));
			cache_add(vault, &made);
		}
	}
	memcpy(ret_key, made.key, sizeof(made.key));
	memcpy(ret_text, made.text, sizeof(made.text));
	secret_wipe(&made, sizeof(made));
	return ret;
}

int s3_vault_key_of(struct s3_vault *vault, struct slice name, struct slice text,
	uint8_t ret_key[S3_VAULT_KEY_BYTES])
{
	struct call call = {.vault = vault,
		.verb = "decrypt",
		.given = "ciphertext",
		.wanted = "plaintext",
		.name = name,
		.value = text,
		.text = text};
	struct cached made = {.current = false};
	bool found = false;
	size_t len = 0;
	int ret = 0;

	if (text.len > S3_VAULT_TEXT_MAX || memchr(text.data, '"', text.len) ||
		memchr(text.data, '\\', text.len))
		return -EIO;
	if (!cache_find(vault, name, text, &made)) {
		ret = call_do(&call, &made, &found);
		if (!ret && !found &&
			(base64_decode(slice_str(call.answer), made.key, sizeof(made.key), &len) ||
				len != sizeof(made.key)))
			ret = -EIO;
		if (!ret && !found) {
			slice_copy_str(name, made.name, sizeof(made.name));
			slice_copy_str(text, made.text, sizeof(made.text));
			cache_add(vault, &made);
		}
	}
	memcpy(ret_key, made.key, sizeof(made.key));
	secret_wipe(&made, sizeof(made));
	secret_wipe(call.answer, sizeof(call.answer));
	return ret;
}
