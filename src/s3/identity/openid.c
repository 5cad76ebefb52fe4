/* s3/identity/openid.c: the server as a client of an OpenID Connect issuer: finds its endpoints by
 * the discovery document, and exchanges codes for ID tokens. Each call runs on a helper thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "document/json.h"
#include "reactor/reactor.h"
#include "s3/core/call.h"
#include "s3/identity/oidc.h"

#define ANSWER_BYTES_MAX (64 * KIB)
#define FORM_BYTES_MAX	 (16 * KIB)
#define KEEP_NS		 (3600 * NS_PER_S)
#define PAUSE_NS	 (5 * NS_PER_S) /* after a failure */
#define EXCHANGES_MAX	 2u
#define TURN_NS		 (5 * NS_PER_MS)
#define WAIT_NS_MAX	 (10 * NS_PER_S)
#define TEXT_MAX	 1024u

DEFINE_COUNTER(exchanges, "nebulaio_openid_exchanges_total", NULL,
	"Authorization codes that the server exchanged, or tried to, at the console's issuer.");

struct s3_openid {
	enum s3_oidc_reach reach;
	char issuer[TEXT_MAX + 1]; /* without a slash at its end */
	char client_id[TEXT_MAX + 1], client_secret[TEXT_MAX + 1], ca_file[TEXT_MAX + 1];
	char authorization[S3_OPENID_URL_MAX + 1], token[S3_OPENID_URL_MAX + 1];
	bool known, by_form; /* the endpoints; the secret goes into the form */
	bool looking;
	uint64_t known_ns, failed_ns;
	int failed;
	uint32_t busy;
};

int s3_openid_open(struct s3 *s3, const struct s3_openid_opts *opts, struct s3_openid **ret_openid)
{
	struct s3_openid *openid = calloc(1, sizeof(*openid));
	size_t len;

	if (!openid)
		return -ENOMEM;
	openid->reach = s3_oidc_reach(s3->oidc);
	snprintf(openid->issuer, sizeof(openid->issuer), "%s", opts->issuer);
	len = strlen(openid->issuer);
	if (len && openid->issuer[len - 1] == '/')
		openid->issuer[len - 1] = '\0';
	snprintf(openid->client_id, sizeof(openid->client_id), "%s", opts->client_id);
	snprintf(openid->client_secret, sizeof(openid->client_secret), "%s", opts->client_secret);
	snprintf(openid->ca_file, sizeof(openid->ca_file), "%s", opts->ca_file);
	*ret_openid = openid;
	return 0;
}

void s3_openid_close(struct s3_openid *openid)
{
	if (!openid)
		return;
	secret_wipe(openid, sizeof(*openid));
	free(openid);
}

/* ---- A call, on a helper. ---- */

struct openid_call {
	const struct s3_openid *openid;
	const char *url;
	struct slice form;	     /* empty: a GET */
	const char *user, *password; /* NULL: none */
	struct buf reply;
	long status;
	int ret;
};

static void call_run(void *arg)
{
	struct openid_call *call = arg;
	CURL *curl = curl_easy_init();
	CURLcode code;

	call->ret = -ENOMEM;
	if (!curl)
		return;
	curl_easy_setopt(curl, CURLOPT_URL, call->url);
	s3_oidc_prepare(curl, call->openid->reach, call->openid->issuer, &call->reply);
	if (call->openid->ca_file[0])
		curl_easy_setopt(curl, CURLOPT_CAINFO, call->openid->ca_file);
	if (call->form.len) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)call->form.len);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->form.data);
	}
	if (call->user) {
		curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
		curl_easy_setopt(curl, CURLOPT_USERNAME, call->user);
		curl_easy_setopt(curl, CURLOPT_PASSWORD, call->password);
	}
	code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &call->status);
	call->ret = code == CURLE_OK ? 0 : code == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO;
	if (code)
		log_warn("s3", "OpenID Connect issuer %s: %s: %s", call->openid->issuer, call->url,
			curl_easy_strerror(code));
	curl_easy_cleanup(curl);
}

/* The answer's JSON; NULL: it has none. The reply is wiped and freed. */
static json_t *call_json(struct openid_call *call)
{
	struct slice text;
	json_t *json = NULL;

	buf_init(&call->reply, ANSWER_BYTES_MAX);
	fiber_offload_long(call_run, call);
	text = buf_slice(&call->reply);
	if (!call->ret && json_is_flat(text, 16))
		json = json_loadb(text.data, text.len, 0, NULL);
	if (call->reply.data)
		secret_wipe(call->reply.data, call->reply.len);
	buf_free(&call->reply);
	return json;
}

/* ---- The issuer's endpoints. ---- */

static bool has_text(const json_t *array, const char *text)
{
	for (size_t i = 0; i < json_array_size(array); i++)
		if (slice_eq(slice_str(json_string_value(json_array_get(array, i))),
			    slice_str(text)))
			return true;
	return false;
}

static bool is_endpoint(const struct s3_openid *openid, const char *url)
{
	return strncmp(url, "https://", 8) == 0 ||
	       (strncmp(openid->issuer, "http://", 7) == 0 && strncmp(url, "http://", 7) == 0);
}

static int take_endpoints(struct s3_openid *openid, const json_t *document)
{
	const json_t *methods = json_object_get(document, "token_endpoint_auth_methods_supported");
	struct slice issuer = json_member_text(document, "issuer");

	if (slice_ends(issuer, SLICE("/")))
		issuer.len--;
	if (!slice_eq(issuer, slice_str(openid->issuer)) ||
		slice_copy_str(json_member_text(document, "authorization_endpoint"),
			openid->authorization, sizeof(openid->authorization)) ||
		slice_copy_str(json_member_text(document, "token_endpoint"), openid->token,
			sizeof(openid->token)) ||
		!is_endpoint(openid, openid->authorization) ||
		!is_endpoint(openid, openid->token)) {
		log_warn("s3",
			"OpenID Connect issuer %s: its discovery document names another issuer, or "
			"lacks a URL of its authorization endpoint or its token endpoint",
			openid->issuer);
		return -EIO;
	}
	openid->by_form = methods && !has_text(methods, "client_secret_basic") &&
			  has_text(methods, "client_secret_post");
	return 0;
}

static int discover(struct s3_openid *openid)
{
	static const char path[] = "/.well-known/openid-configuration";
	char url[TEXT_MAX + sizeof(path)];
	struct openid_call call = {.openid = openid, .url = url};
	json_t *document;
	int ret;

	snprintf(url, sizeof(url), "%s%s", openid->issuer, path);
	document = call_json(&call);
	ret = call.ret ? call.ret : take_endpoints(openid, document);
	json_decref(document);
	return ret;
}

/* One fiber fetches the endpoints, the others wait for it. */
static int know(struct s3_openid *openid)
{
	uint64_t end_ns = clock_now_ns() + WAIT_NS_MAX;

	while (openid->looking) {
		if (clock_now_ns() >= end_ns)
			return -ETIMEDOUT;
		fiber_sleep_ns(TURN_NS);
	}
	if (openid->known && clock_now_ns() - openid->known_ns < KEEP_NS)
		return 0;
	if (openid->failed && clock_now_ns() - openid->failed_ns < PAUSE_NS)
		return openid->failed;
	openid->looking = true;
	openid->failed = discover(openid);
	openid->looking = false;
	openid->known = !openid->failed;
	openid->known_ns = openid->failed_ns = clock_now_ns();
	return openid->failed;
}

int s3_openid_begin(struct s3_openid *openid, char ret_url[S3_OPENID_URL_MAX + 1])
{
	int ret = know(openid);

	if (!ret)
		memcpy(ret_url, openid->authorization, sizeof(openid->authorization));
	return ret;
}

/* ---- Codes. ---- */

static void put_field(struct buf *form, const char *name, struct slice value)
{
	buf_printf(form, "%s%s=", form->len ? "&" : "", name);
	uri_encode(value, 0, form);
}

/* RFC 6749, 2.3.1: the two are encoded as in a form. */
static void put_encoded(struct buf *out, const char *text)
{
	uri_encode(slice_str(text), 0, out);
	buf_put(out, "", 1);
}

static int exchange(
	struct s3_openid *openid, const struct s3_openid_code *code, struct buf *ret_token)
{
	char url[S3_OPENID_URL_MAX + 1];
	struct openid_call call = {.openid = openid, .url = url};
	struct buf form, keys;
	json_t *answer;
	size_t user_len;
	int ret;

	/* Another fiber may replace the endpoints meanwhile. */
	memcpy(url, openid->token, sizeof(url));
	buf_init(&form, FORM_BYTES_MAX);
	buf_init(&keys, FORM_BYTES_MAX);
	put_field(&form, "grant_type", SLICE("authorization_code"));
	put_field(&form, "code", code->code);
	put_field(&form, "redirect_uri", code->redirect_uri);
	put_field(&form, "code_verifier", code->verifier);
	if (!openid->client_secret[0] || openid->by_form)
		put_field(&form, "client_id", slice_str(openid->client_id));
	if (openid->client_secret[0] && openid->by_form)
		put_field(&form, "client_secret", slice_str(openid->client_secret));
	put_encoded(&keys, openid->client_id);
	user_len = keys.len;
	put_encoded(&keys, openid->client_secret);
	ret = form.failed || keys.failed ? -ENOMEM : 0;
	if (!ret) {
		call.form = buf_slice(&form);
		if (openid->client_secret[0] && !openid->by_form) {
			call.user = keys.data;
			call.password = keys.data + user_len;
		}
		answer = call_json(&call);
		ret = call.ret;
		if (!ret && (call.status != 200 || !json_member_text(answer, "id_token").len)) {
			ret = call.status >= 500 ? -EIO : -EACCES;
			log_warn("s3",
				"OpenID Connect issuer %s: no ID token for a code: %.*s (HTTP %ld)",
				openid->issuer,
				SLICE_FMT(slice_to(json_member_text(answer, "error"), 64)),
				call.status);
		}
		if (!ret)
			buf_put_slice(ret_token, json_member_text(answer, "id_token"));
		json_decref(answer);
	}
	if (!ret && ret_token->failed)
		ret = -ENOMEM;
	for (struct buf *each = &form; each; each = each == &form ? &keys : NULL) {
		if (each->data)
			secret_wipe(each->data, each->len);
		buf_free(each);
	}
	return ret;
}

int s3_openid_redeem(
	struct s3_openid *openid, const struct s3_openid_code *code, struct buf *ret_token)
{
	uint64_t end_ns = clock_now_ns() + WAIT_NS_MAX;
	int ret = know(openid);

	while (!ret && openid->busy >= EXCHANGES_MAX) {
		if (clock_now_ns() >= end_ns)
			return -EAGAIN;
		fiber_sleep_ns(TURN_NS);
	}
	if (ret)
		return ret;
	openid->busy++;
	counter_add(&exchanges, 1);
	ret = exchange(openid, code, ret_token);
	openid->busy--;
	return ret;
}
