/* etcd/client.c: calls of etcd's JSON gateway over HTTP, one at a time, each with a timeout. */
#include "etcd/etcd_priv.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"

#define TIMEOUT_MS_MIN 300L
#define TIMEOUT_MS_MAX 5000L

DEFINE_COUNTER(calls_good, "nebulaio_etcd_calls_total", "result=\"answered\"",
	"Calls of etcd, which has the owner's lease, by result.");
DEFINE_COUNTER(calls_failed, "nebulaio_etcd_calls_total", "result=\"failed\"",
	"Calls of etcd, which has the owner's lease, by result.");

static bool endpoint_valid(struct slice endpoint)
{
	struct slice rest = endpoint;

	if (slice_starts(endpoint, SLICE("http://")))
		rest = slice_from(endpoint, 7);
	else if (slice_starts(endpoint, SLICE("https://")))
		rest = slice_from(endpoint, 8);
	else
		return false;
	return rest.len && endpoint.len <= ETCD_URL_MAX && slice_find(rest, SLICE("/")) < 0;
}

/* The next one of a list with commas, without a "/" at its end. */
static struct slice endpoint_next(struct slice *rest)
{
	struct slice endpoint = slice_trim(slice_split(rest, ','));

	while (slice_ends(endpoint, SLICE("/")))
		endpoint.len--;
	return endpoint;
}

bool etcd_endpoints_valid(const char *text)
{
	struct slice rest = slice_str(text);
	uint32_t count = 0;

	while (rest.len)
		if (!endpoint_valid(endpoint_next(&rest)) || ++count > ETCD_ENDPOINTS_MAX)
			return false;
	return count > 0;
}

/* "USER:PASSWORD" of a file. */
static int user_read(struct etcd_client *client, const char *path)
{
	char line[2 * ETCD_CREDENTIAL_MAX];
	FILE *file = path[0] ? fopen(path, "re") : NULL;
	struct slice text, user;
	int ret = 0;

	if (!path[0])
		return 0;
	if (!file) {
		ret = -errno;
		log_error("etcd", "cluster.etcd_user_file %s: %s", path, strerror(-ret));
		return ret;
	}
	text = slice_of(line, fread(line, 1, sizeof(line), file));
	fclose(file);
	while (slice_ends(text, SLICE("\n")) || slice_ends(text, SLICE("\r")))
		text.len--;
	user = slice_split(&text, ':');
	if (!user.len || !text.len || slice_copy_str(user, client->user, sizeof(client->user)) ||
		slice_copy_str(text, client->password, sizeof(client->password))) {
		log_error("etcd",
			"cluster.etcd_user_file %s: it must have one line USER:PASSWORD, of at "
			"most %u characters each",
			path, ETCD_CREDENTIAL_MAX - 1);
		ret = -EINVAL;
	}
	secret_wipe(line, sizeof(line));
	return ret;
}

int etcd_client_open(const struct etcd_opts *opts, struct etcd_client *client)
{
	struct slice rest = slice_str(opts->endpoints);
	int ret;

	*client = (struct etcd_client){.timeout_ms = (long)opts->lease_s * 1000 / 6};
	client->timeout_ms = MAX(MIN(client->timeout_ms, TIMEOUT_MS_MAX), TIMEOUT_MS_MIN);
	CHECK(etcd_endpoints_valid(opts->endpoints));
	while (rest.len)
		slice_copy_str(endpoint_next(&rest), client->endpoints[client->endpoint_count++],
			sizeof(client->endpoints[0]));
	snprintf(client->ca_file, sizeof(client->ca_file), "%s", opts->ca_file);
	snprintf(client->certificate, sizeof(client->certificate), "%s", opts->certificate);
	snprintf(client->key, sizeof(client->key), "%s", opts->key);
	ret = user_read(client, opts->user_file);
	if (ret)
		return ret;
	if (!curl_global_init(CURL_GLOBAL_DEFAULT))
		client->curl = curl_easy_init();
	return client->curl ? 0 : -ENOMEM;
}

void etcd_client_close(struct etcd_client *client)
{
	curl_easy_cleanup(client->curl);
	secret_wipe(client, sizeof(*client));
}

static size_t take(char *data, size_t size, size_t count, void *arg)
{
	struct buf *reply = (struct buf *)arg;

	buf_put(reply, data, size * count);
	return reply->failed ? 0 : size * count;
}

void etcd_why_add(struct etcd_client *client, uint32_t endpoint, const char *why)
{
	size_t len = strlen(client->why);

	snprintf(client->why + len, sizeof(client->why) - len, "%s%s: %s", len ? "; " : "",
		client->endpoints[endpoint], why);
}

/* The handle keeps its connection from call to call. When that breaks without a byte of the answer,
 * libcurl sends the call again by itself. Each transaction of owner.c may arrive twice: the answer
 * is then the second one's. docs/design/cluster.md, "Twice". */
static CURLcode perform(struct etcd_client *client, const char *url, struct slice body,
	long timeout_ms, struct buf *reply, long *ret_status)
{
	char line[sizeof(client->token) + 32];
	struct curl_slist *headers = NULL;
	CURL *curl = client->curl;
	CURLcode code;

	snprintf(line, sizeof(line), "Authorization: %s", client->token);
	if (client->token[0])
		headers = curl_slist_append(NULL, line);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "nebulaio");
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)body.len);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
	if (client->ca_file[0])
		curl_easy_setopt(curl, CURLOPT_CAINFO, client->ca_file);
	if (client->certificate[0]) {
		curl_easy_setopt(curl, CURLOPT_SSLCERT, client->certificate);
		curl_easy_setopt(curl, CURLOPT_SSLKEY, client->key);
	}
	code = curl_easy_perform(curl);
	*ret_status = 0;
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_status);
	curl_slist_free_all(headers);
	secret_wipe(line, sizeof(line));
	return code;
}

static int call_once(struct etcd_client *client, uint32_t endpoint, const char *path,
	struct slice body, long timeout_ms, struct buf *reply)
{
	char url[ETCD_URL_MAX + 64], why[256], line[300];
	long status;
	CURLcode code;

	snprintf(url, sizeof(url), "%s%s", client->endpoints[endpoint], path);
	buf_reset(reply);
	code = perform(client, url, body, timeout_ms, reply, &status);
	if (code == CURLE_OK && status == 200) {
		counter_add(&calls_good, 1);
		return 0;
	}
	counter_add(&calls_failed, 1);
	if (code != CURLE_OK) {
		etcd_why_add(client, endpoint, curl_easy_strerror(code));
		return -EIO;
	}
	etcd_error_parse(buf_slice(reply), why, sizeof(why));
	snprintf(line, sizeof(line), "HTTP %ld: %s", status, why);
	etcd_why_add(client, endpoint, line);
	return etcd_refuses(status, why) ? -EACCES : -EIO;
}

/* A token lasts some minutes. etcd needs long to check a password, by design, and starts again when
 * it is asked again: it has twice the time of other calls. */
static int authenticate(struct etcd_client *client, uint32_t endpoint, struct buf *reply)
{
	json_t *json = json_pack("{ss,ss}", "name", client->user, "password", client->password);
	char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
	int ret = -ENOMEM;

	client->token[0] = '\0';
	if (body)
		ret = call_once(client, endpoint, "/v3/auth/authenticate", slice_str(body),
			2 * client->timeout_ms, reply);
	if (!ret)
		ret = etcd_token_parse(buf_slice(reply), client->token, sizeof(client->token));
	if (body)
		secret_wipe(body, strlen(body));
	if (reply->data)
		secret_wipe(reply->data, reply->len);
	free(body);
	json_decref(json);
	return ret;
}

int etcd_call(struct etcd_client *client, uint32_t endpoint, const char *path, struct slice body,
	struct buf *reply)
{
	bool fresh = client->user[0] && !client->token[0];
	int ret = fresh ? authenticate(client, endpoint, reply) : 0;

	if (!ret)
		ret = call_once(client, endpoint, path, body, client->timeout_ms, reply);
	if (ret != -EACCES || !client->user[0] || fresh)
		return ret;
	ret = authenticate(client, endpoint, reply);
	return ret ? ret : call_once(client, endpoint, path, body, client->timeout_ms, reply);
}
