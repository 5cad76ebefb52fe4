/* s3/identity/oidc.c: issuers' keys: two GETs on a helper thread, at most two fetches at a time,
 * one of an account, and a few per minute for one issuer; a cache in front of them. */
#include "s3/identity/oidc.h"

#include <curl/curl.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "document/json.h"
#include "iam/iam.h"
#include "reactor/reactor.h"
#include "s3/event/notify_send.h"

#define CALL_MS_MAX	8000L
#define CONNECT_MS_MAX	5000L /* including the TLS handshake */
#define CALLS_MAX	2u    /* helpers are shared with the store */
#define TURN_NS		(5 * NS_PER_MS)
#define WAIT_NS_MAX	(30 * NS_PER_S)
#define KEEP_NS		(3600 * NS_PER_S)  /* then they are fetched again */
#define USE_NS		(86400 * NS_PER_S) /* if they cannot be: then they are not used any more */
#define WINDOW_NS	(60 * NS_PER_S)	   /* in which an issuer is fetched at most so often: */
#define WINDOW_FETCHES	4u
#define WINDOW_RENEWALS 1u /* of keys that can be used, so that few requests wait for them */
#define URL_LEN_MAX	1024u
#define THUMBPRINTS_MAX 8u
#define SHA1_BYTES	20u

DEFINE_COUNTER(fetches, "nebulaio_oidc_fetches_total", NULL,
	"Times that the server fetched the keys of an OpenID Connect issuer.");
DEFINE_COUNTER(failures, "nebulaio_oidc_failures_total", NULL,
	"Times that a fetch of an OpenID Connect issuer's keys failed.");

/* The cached data of one issuer, for one IAM provider's trusted certificates: providers with other
 * certificates share nothing. */
struct cached {
	uint8_t id[SHA256_BYTES]; /* of URL and thumbprints */
	bool used, busy;
	char fetcher[IAM_ACCOUNT_LEN_MAX + 1]; /* while busy: the account */
	struct jwt_keys *keys;		       /* NULL: none yet */
	uint64_t fetched_ns, asked_ns;
	uint64_t window_ns; /* start of the window */
	uint32_t window_count;
	int failed; /* error of the last fetch */
};
struct s3_oidc {
	enum s3_oidc_reach reach;
	pthread_mutex_t lock; /* of the members below; never held while waiting */
	uint32_t busy;
	struct cached cached[S3_OIDC_ISSUERS_MAX];
};

int s3_oidc_open(enum s3_oidc_reach reach, struct s3_oidc **ret_oidc)
{
	struct s3_oidc *oidc = calloc(1, sizeof(*oidc));

	if (!oidc)
		return -ENOMEM;
	if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
		free(oidc);
		return -ENOMEM;
	}
	oidc->reach = reach;
	pthread_mutex_init(&oidc->lock, NULL);
	*ret_oidc = oidc;
	return 0;
}

void s3_oidc_close(struct s3_oidc *oidc)
{
	if (!oidc)
		return;
	for (uint32_t i = 0; i < S3_OIDC_ISSUERS_MAX; i++)
		jwt_keys_put(oidc->cached[i].keys);
	pthread_mutex_destroy(&oidc->lock);
	free(oidc);
}

bool s3_oidc_reaches(const struct s3_oidc *oidc, struct slice url)
{
	return oidc->reach == S3_OIDC_ANY ||
	       (oidc->reach == S3_OIDC_PUBLIC && slice_starts(url, SLICE("https://")));
}

enum s3_oidc_reach s3_oidc_reach(const struct s3_oidc *oidc)
{
	return oidc->reach;
}

/* ---- One fetch, on a helper. ---- */

struct fetch {
	enum s3_oidc_reach reach;
	char url[URL_LEN_MAX + 1];
	uint8_t thumbprints[THUMBPRINTS_MAX][SHA1_BYTES];
	uint32_t thumbprint_count;
	struct jwt_keys *keys;
	int ret;
};

static size_t take(char *data, size_t size, size_t count, void *arg)
{
	struct buf *reply = arg;

	buf_put(reply, data, size * count);
	return reply->failed ? 0 : size * count;
}

void s3_oidc_prepare(CURL *curl, enum s3_oidc_reach reach, const char *issuer, struct buf *reply)
{
	bool secure = reach != S3_OIDC_ANY || strncmp(issuer, "https:", 6) == 0;

	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, secure ? "https" : "http,https");
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, CALL_MS_MAX);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS_MAX);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "nebulaio");
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
	if (reach != S3_OIDC_ANY)
		s3_curl_only_public(curl);
}

static bool is_trusted(const struct fetch *fetch, const X509 *certificate)
{
	uint8_t digest[EVP_MAX_MD_SIZE];
	unsigned int len = 0;

	if (X509_digest(certificate, EVP_sha1(), digest, &len) != 1 || len != SHA1_BYTES)
		return false;
	for (uint32_t i = 0; i < fetch->thumbprint_count; i++)
		if (memcmp(fetch->thumbprints[i], digest, SHA1_BYTES) == 0)
			return true;
	return false;
}

/* A chain is valid if it ends at one of the system's CAs, or contains a certificate with one of the
 * thumbprints. Times, signatures and (by curl) the host's name are checked in both cases. */
static int check_chain(X509_STORE_CTX *context, void *arg)
{
	STACK_OF(X509) *chain = X509_STORE_CTX_get0_untrusted(context);

	for (int i = 0; i < sk_X509_num(chain); i++)
		if (is_trusted(arg, sk_X509_value(chain, i))) {
			X509_STORE_add_cert(
				X509_STORE_CTX_get0_store(context), sk_X509_value(chain, i));
			X509_STORE_CTX_set_flags(context, X509_V_FLAG_PARTIAL_CHAIN);
		}
	return X509_verify_cert(context);
}

static CURLcode trust_thumbprints(CURL *curl, void *context, void *arg)
{
	(void)curl;
	SSL_CTX_set_cert_verify_callback(context, check_chain, arg);
	return CURLE_OK;
}

static int get(struct fetch *fetch, CURL *curl, const char *url, struct buf *reply)
{
	long status = 0;
	CURLcode code;

	curl_easy_setopt(curl, CURLOPT_URL, url);
	s3_oidc_prepare(curl, fetch->reach, fetch->url, reply);
	if (fetch->thumbprint_count) {
		curl_easy_setopt(curl, CURLOPT_SSL_CTX_FUNCTION, trust_thumbprints);
		curl_easy_setopt(curl, CURLOPT_SSL_CTX_DATA, fetch);
	}
	code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	if (code == CURLE_OK && status == 200)
		return 0;
	log_warn("s3", "OpenID Connect issuer %s: %s: %s (HTTP %ld)", fetch->url, url,
		code ? curl_easy_strerror(code) : "an unexpected answer", status);
	return code == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO;
}

/* Reads the URL of the keys from the discovery document, which must be the issuer's own. */
static int find_keys(struct fetch *fetch, struct slice document, char ret_url[URL_LEN_MAX + 1])
{
	json_t *json = json_is_flat(document, 16) ? json_loadb(document.data, document.len, 0, NULL)
						  : NULL;
	struct slice issuer = json_member_text(json, "issuer");
	int ret = -EIO;

	if (slice_ends(issuer, SLICE("/")))
		issuer.len--;
	if (!slice_eq(issuer, slice_str(fetch->url)))
		log_warn("s3",
			"OpenID Connect issuer %s: its discovery document names another issuer, "
			"%.*s",
			fetch->url, SLICE_FMT(slice_to(issuer, 256)));
	else if (slice_copy_str(json_member_text(json, "jwks_uri"), ret_url, URL_LEN_MAX + 1) ||
		 !ret_url[0])
		log_warn("s3", "OpenID Connect issuer %s: its discovery document names no jwks_uri",
			fetch->url);
	else
		ret = 0;
	json_decref(json);
	return ret;
}

static int fetch_by(struct fetch *fetch, CURL *curl, struct buf *reply)
{
	static const char path[] = "/.well-known/openid-configuration";
	char url[URL_LEN_MAX + 1];
	int ret;

	if ((size_t)snprintf(url, sizeof(url), "%s%s", fetch->url, path) >= sizeof(url))
		return -EIO;
	ret = get(fetch, curl, url, reply);
	if (!ret)
		ret = find_keys(fetch, buf_slice(reply), url);
	buf_reset(reply);
	if (!ret)
		ret = get(fetch, curl, url, reply);
	if (ret)
		return ret;
	ret = jwt_keys_parse(buf_slice(reply), &fetch->keys);
	if (!ret && jwt_keys_count(fetch->keys))
		return 0;
	log_warn(
		"s3", "OpenID Connect issuer %s: %s has no keys that can be used", fetch->url, url);
	return ret == -ENOMEM ? ret : ret ? -EIO : 0;
}

static void fetch_run(void *arg)
{
	struct fetch *fetch = arg;
	CURL *curl = curl_easy_init();
	struct buf reply;

	buf_init(&reply, JWT_KEYS_LEN_MAX);
	fetch->ret = curl ? fetch_by(fetch, curl, &reply) : -ENOMEM;
	curl_easy_cleanup(curl);
	buf_free(&reply);
}

static int fetch_prepare(const struct s3_oidc *oidc, const struct s3_oidc_issuer *issuer,
	struct fetch *fetch, uint8_t ret_id[SHA256_BYTES])
{
	struct slice all;

	*fetch = (struct fetch){.reach = oidc->reach};
	if (slice_copy_str(issuer->url, fetch->url, sizeof(fetch->url)))
		return -EIO;
	for (size_t i = 0; i < json_array_size(issuer->thumbprints); i++) {
		struct slice text =
			slice_str(json_string_value(json_array_get(issuer->thumbprints, i)));

		if (fetch->thumbprint_count < THUMBPRINTS_MAX &&
			hex_decode(text, fetch->thumbprints[fetch->thumbprint_count], SHA1_BYTES) ==
				0)
			fetch->thumbprint_count++;
	}
	/* The rest of both is zeros. */
	all = slice_of(fetch->url, sizeof(fetch->url) + sizeof(fetch->thumbprints));
	sha256_of(all.data, all.len, ret_id);
	return 0;
}
_Static_assert(offsetof(struct fetch, thumbprints) ==
		       offsetof(struct fetch, url) + sizeof(((struct fetch *)NULL)->url),
	"both are digested at once");

/* ---- The cache. ---- */

/* The entry of an issuer, or a place for it: a free one, otherwise the one least recently used.
 * NULL: all of them are being fetched. */
static struct cached *find(struct s3_oidc *oidc, const uint8_t id[SHA256_BYTES])
{
	struct cached *best = NULL;

	for (uint32_t i = 0; i < S3_OIDC_ISSUERS_MAX; i++) {
		struct cached *cached = &oidc->cached[i];

		if (cached->used && memcmp(cached->id, id, SHA256_BYTES) == 0)
			return cached;
		if (!cached->busy && (!best || cached->asked_ns < best->asked_ns))
			best = cached;
	}
	if (!best)
		return NULL;
	jwt_keys_put(best->keys);
	*best = (struct cached){.used = true};
	memcpy(best->id, id, SHA256_BYTES);
	return best;
}

enum turn { TURN_KEYS, TURN_FETCH, TURN_WAIT, TURN_FAILED };

static bool younger(const struct cached *cached, uint64_t age_ns)
{
	return cached->keys && clock_now_ns() - cached->fetched_ns < age_ns;
}

/* Whether a fetch may begin. An account has one at a time: however many of its issuers are silent,
 * it leaves a place to others. */
static bool has_place(const struct s3_oidc *oidc, struct slice account)
{
	for (uint32_t i = 0; i < S3_OIDC_ISSUERS_MAX; i++)
		if (oidc->cached[i].busy && slice_eq(slice_str(oidc->cached[i].fetcher), account))
			return false;
	return oidc->busy < CALLS_MAX;
}

/* The next step: use the cached keys, fetch, wait for a fiber that fetches, give up. want_new: the
 * cached keys did not match. The lock is held. */
static enum turn turn_of(
	struct s3_oidc *oidc, struct cached *cached, struct slice account, bool want_new)
{
	uint64_t now_ns = clock_now_ns();
	bool usable = younger(cached, USE_NS), enough = usable && !want_new;

	cached->asked_ns = now_ns;
	if (enough && (cached->busy || younger(cached, KEEP_NS)))
		return TURN_KEYS;
	if (cached->busy)
		return TURN_WAIT;
	if (!cached->window_ns || now_ns - cached->window_ns >= WINDOW_NS) {
		cached->window_ns = now_ns;
		cached->window_count = 0;
	}
	if (cached->window_count >= (enough ? WINDOW_RENEWALS : WINDOW_FETCHES))
		return usable ? TURN_KEYS : TURN_FAILED;
	if (!has_place(oidc, account))
		return enough ? TURN_KEYS : TURN_WAIT;
	cached->window_count++;
	return TURN_FETCH;
}

static void fetch_now(
	struct s3_oidc *oidc, struct cached *cached, struct slice account, struct fetch *fetch)
{
	cached->busy = true;
	(void)slice_copy_str(account, cached->fetcher, sizeof(cached->fetcher));
	oidc->busy++;
	pthread_mutex_unlock(&oidc->lock);
	counter_add(&fetches, 1);
	fiber_offload_long(fetch_run, fetch);
	if (fetch->ret)
		counter_add(&failures, 1);
	pthread_mutex_lock(&oidc->lock);
	cached->busy = false;
	oidc->busy--;
	cached->failed = fetch->ret;
	if (fetch->ret) {
		jwt_keys_put(fetch->keys);
	} else {
		jwt_keys_put(cached->keys);
		cached->keys = fetch->keys;
		cached->fetched_ns = clock_now_ns();
	}
	fetch->keys = NULL;
}

/* Gets a reference to the issuer's keys. old: keys that did not match, for newer ones; NULL:
 * any. */
static int keys_of(struct s3_oidc *oidc, const struct s3_oidc_issuer *issuer,
	const struct jwt_keys *old, struct jwt_keys **ret_keys)
{
	uint64_t end_ns = clock_now_ns() + WAIT_NS_MAX;
	uint8_t id[SHA256_BYTES];
	struct fetch fetch;
	int ret = fetch_prepare(oidc, issuer, &fetch, id);

	while (!ret) {
		struct cached *cached;
		enum turn turn = TURN_WAIT;

		pthread_mutex_lock(&oidc->lock);
		cached = find(oidc, id);
		if (cached)
			turn = turn_of(oidc, cached, issuer->account, old && cached->keys == old);
		if (turn == TURN_FETCH) {
			fetch_now(oidc, cached, issuer->account, &fetch);
			turn = !fetch.ret || (!old && younger(cached, USE_NS)) ? TURN_KEYS
									       : TURN_FAILED;
		}
		if (turn == TURN_KEYS)
			*ret_keys = jwt_keys_get(cached->keys);
		else if (turn == TURN_FAILED)
			ret = cached->failed ? cached->failed : -EIO;
		pthread_mutex_unlock(&oidc->lock);
		if (turn == TURN_KEYS)
			break;
		if (!ret && clock_now_ns() >= end_ns)
			ret = -ETIMEDOUT;
		if (!ret)
			fiber_sleep_ns(TURN_NS);
	}
	return ret;
}

int s3_oidc_verify(struct s3_oidc *oidc, const struct s3_oidc_issuer *issuer, const struct jwt *jwt)
{
	struct jwt_keys *keys, *newer;
	int ret = keys_of(oidc, issuer, NULL, &keys);

	if (ret)
		return ret;
	ret = jwt_verify(jwt, keys);
	/* Issuers change their keys: an unknown key may be new. */
	if (ret == -ENOKEY && keys_of(oidc, issuer, keys, &newer) == 0) {
		ret = jwt_verify(jwt, newer);
		jwt_keys_put(newer);
	}
	jwt_keys_put(keys);
	return ret;
}
