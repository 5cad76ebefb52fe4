/* console/openid.c: signing in at an OpenID Connect provider: the authorization code flow with
 * PKCE, state and nonce. STS then handles the ID token like every web identity's token.
 *
 * The server keeps nothing about a sign-in that has begun: the browser has a random value in a
 * cookie, and the state, the nonce and PKCE's verifier are MACs of that value. A browser without
 * the cookie cannot complete the sign-in, and a browser with it learns none of the three before the
 * provider does.
 *
 * Source: OpenID Connect Core 1.0, section 3.1; RFC 6749, 7636, 9207. */
#include "console/console_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "document/json.h"

#define BEGUN_S	      600u
#define RANDOM_BYTES  32u
#define BEGUN_LEN_MAX (2 * RANDOM_BYTES + 1 + SLICE_U64_MAX) /* RANDOM.EXPIRY */
#define MAC_LEN	      (2 * SHA256_BYTES)
#define CHALLENGE_LEN 43u
#define TOKEN_LEN_MAX 20000u
#define CODE_LEN_MAX  4096u
#define URL_LEN_MAX   4096u
#define NAME_LEN_MAX  64u
#define CALLBACK      "/openid/callback"

/* ---- Redirects. ---- */

static void go(struct console_visit *visit, struct slice url, const struct s3_header *cookies,
	uint32_t cookie_count)
{
	struct console_answer answer = {.status = 303, .more = {{SLICE("Location"), url}}};

	for (uint32_t i = 0; i < cookie_count; i++)
		answer.more[1 + i] = cookies[i];
	answer.more_count = 1 + cookie_count;
	console_answer(visit, &answer);
}

static struct slice cookie_name(const struct console_visit *visit, char text[64])
{
	snprintf(text, 64, "%s-openid", visit->cookie_name);
	return slice_str(text);
}

/* The header that deletes the cookie of a sign-in. */
static struct s3_header no_cookie(const struct console_visit *visit, char text[192])
{
	char name[64];

	snprintf(text, 192, "%.*s=; Path=/openid/; HttpOnly; SameSite=Lax; Max-Age=0",
		SLICE_FMT(cookie_name(visit, name)));
	return (struct s3_header){SLICE("Set-Cookie"), slice_str(text)};
}

/* Redirects to the page, which shows the reason. */
static void refuse(struct console_visit *visit, const char *word, const char *why)
{
	char url[64], text[192];
	struct s3_header cookie = no_cookie(visit, text);

	console_refused(visit, why);
	snprintf(url, sizeof(url), "/#/sign-in/%s", word);
	go(visit, slice_str(url), &cookie, 1);
}

/* ---- State, nonce and verifier of a sign-in. ---- */

struct begun {
	struct slice cookie;
	char state[MAC_LEN + 1], nonce[MAC_LEN + 1], verifier[MAC_LEN + 1];
};

static void mac_of(const struct console_visit *visit, const char *what, struct slice cookie,
	char ret_text[MAC_LEN + 1])
{
	uint8_t mac[SHA256_BYTES];
	struct hmac hmac;

	hmac_init(&hmac, &visit->console->openid_key);
	hmac_update(&hmac, what, strlen(what) + 1);
	hmac_update(&hmac, cookie.data, cookie.len);
	hmac_final(&hmac, mac);
	hex_encode(mac, sizeof(mac), ret_text);
	ret_text[MAC_LEN] = '\0';
}

static void begun_of(const struct console_visit *visit, struct slice cookie, struct begun *begun)
{
	begun->cookie = cookie;
	mac_of(visit, "state", cookie, begun->state);
	mac_of(visit, "nonce", cookie, begun->nonce);
	mac_of(visit, "verifier", cookie, begun->verifier);
}

/* The provider compares the redirect URI with the one that the sign-in began with, so both are
 * derived in the same way. */
static void put_redirect_uri(const struct console_visit *visit, struct buf *out)
{
	const struct console_openid *openid = &visit->console->opts.openid;

	if (openid->redirect_url[0])
		buf_put_str(out, openid->redirect_url);
	else
		buf_printf(out, "%s://%.*s" CALLBACK, console_is_secure(visit) ? "https" : "http",
			SLICE_FMT(slice_to(console_header(visit->request, SLICE("host")), 256)));
}

static void put_field(struct buf *url, const char *name, struct slice value)
{
	buf_printf(url, "&%s=", name);
	uri_encode(value, 0, url);
}

/* RFC 7636, 4.2: S256, in base64url without padding. */
static void challenge_of(const char *verifier, char ret_text[CHALLENGE_LEN + 1])
{
	char text[BASE64_LEN(SHA256_BYTES)];
	uint8_t digest[SHA256_BYTES];

	sha256_of(verifier, strlen(verifier), digest);
	base64_encode(digest, sizeof(digest), text);
	for (uint32_t i = 0; i < CHALLENGE_LEN; i++)
		ret_text[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
	ret_text[CHALLENGE_LEN] = '\0';
}

static void put_request(const struct console_visit *visit, const struct begun *begun,
	const char *at, struct buf *url)
{
	const struct console_openid *openid = &visit->console->opts.openid;
	char challenge[CHALLENGE_LEN + 1];
	struct buf redirect;

	challenge_of(begun->verifier, challenge);
	buf_init(&redirect, URL_LEN_MAX);
	put_redirect_uri(visit, &redirect);
	buf_printf(url, "%s%cresponse_type=code", at, strchr(at, '?') ? '&' : '?');
	put_field(url, "client_id", slice_str(openid->client_id));
	put_field(url, "redirect_uri", buf_slice(&redirect));
	put_field(url, "scope", slice_str(openid->scopes));
	put_field(url, "state", slice_str(begun->state));
	put_field(url, "nonce", slice_str(begun->nonce));
	put_field(url, "code_challenge", slice_str(challenge));
	put_field(url, "code_challenge_method", SLICE("S256"));
	url->failed |= redirect.failed;
	buf_free(&redirect);
}

/* ---- The beginning. ---- */

static void begin(struct console_visit *visit)
{
	struct slice site = console_header(visit->request, SLICE("sec-fetch-site"));
	char at[S3_OPENID_URL_MAX + 1], value[BEGUN_LEN_MAX + 1], name[64], text[256];
	struct s3_header cookie = {SLICE("Set-Cookie"), SLICE_NONE};
	uint8_t random[RANDOM_BYTES];
	struct begun begun;
	struct buf url;

	if (site.len && !slice_eq(site, SLICE("same-origin")) && !slice_eq(site, SLICE("none"))) {
		console_answer_error(visit, 403, "Begin at the console's own page.");
		return;
	}
	if (s3_openid_begin(visit->console->openid, at)) {
		refuse(visit, "away", "the identity provider does not answer");
		return;
	}
	random_fill(random, sizeof(random));
	hex_encode(random, sizeof(random), value);
	snprintf(value + 2 * RANDOM_BYTES, sizeof(value) - 2 * RANDOM_BYTES, ".%lld",
		(long long)(console_now_get().real_ms / 1000 + BEGUN_S));
	begun_of(visit, slice_str(value), &begun);
	snprintf(text, sizeof(text), "%.*s=%s; Path=/openid/; HttpOnly; SameSite=Lax; Max-Age=%u%s",
		SLICE_FMT(cookie_name(visit, name)), value, BEGUN_S,
		console_is_secure(visit) ? "; Secure" : "");
	cookie.value = slice_str(text);
	buf_init(&url, 2 * URL_LEN_MAX);
	put_request(visit, &begun, at, &url);
	if (url.failed)
		console_answer_error(visit, 503, "Out of memory.");
	else
		go(visit, buf_slice(&url), &cookie, 1);
	buf_free(&url);
}

/* ---- The token. ---- */

/* The claims of a token, whose signature STS verifies when it takes the token. */
static json_t *claims_of(struct slice token)
{
	struct slice rest = token, part;
	json_t *json = NULL;
	char *text, *claims; /* too large for a fiber's stack */
	size_t len;

	slice_split(&rest, '.');
	part = slice_split(&rest, '.');
	text = part.len ? malloc(2 * BASE64_LEN(part.len)) : NULL;
	if (!text)
		return NULL;
	claims = text + BASE64_LEN(part.len);
	for (size_t i = 0; i < part.len; i++)
		text[i] = part.data[i] == '-' ? '+' : part.data[i] == '_' ? '/' : part.data[i];
	for (len = part.len; len % 4; len++)
		text[len] = '=';
	if (base64_decode(slice_of(text, len), claims, BASE64_LEN(part.len), &len) == 0 &&
		json_is_flat(slice_of(claims, len), 16))
		json = json_loadb(claims, len, JSON_REJECT_DUPLICATES, NULL);
	secret_wipe(text, 2 * BASE64_LEN(part.len));
	free(text);
	if (json_is_object(json))
		return json;
	json_decref(json);
	return NULL;
}

/* A text of a claim, which may be an array of texts: with whole, the one that equals wanted;
 * otherwise the first that begins with it. */
static struct slice claim_text(
	const json_t *claims, const char *name, struct slice start, bool whole)
{
	const json_t *value = json_object_get(claims, name);
	size_t count = json_is_array(value) ? json_array_size(value) : 1;

	for (size_t i = 0; i < count; i++) {
		const json_t *each = json_is_array(value) ? json_array_get(value, i) : value;
		struct slice text = slice_of(json_string_value(each), json_string_length(each));

		if (text.len && slice_starts(text, start) && (!whole || text.len == start.len))
			return text;
	}
	return SLICE_NONE;
}

/* Operators write an issuer with a slash at its end, or without. */
static bool is_issuer(const struct console_visit *visit, struct slice issuer)
{
	struct slice wanted = slice_str(visit->console->opts.openid.issuer);

	if (slice_ends(issuer, SLICE("/")))
		issuer.len--;
	if (slice_ends(wanted, SLICE("/")))
		wanted.len--;
	return slice_eq(issuer, wanted);
}

/* Checks the token by OpenID Connect Core, 3.1.3.7, except the signature and the times, which STS
 * checks. */
static bool is_ours(
	const struct console_visit *visit, const json_t *claims, const struct begun *begun)
{
	const struct console_openid *openid = &visit->console->opts.openid;
	struct slice client = slice_str(openid->client_id);
	struct slice nonce = json_member_text(claims, "nonce");
	struct slice azp = json_member_text(claims, "azp");

	return is_issuer(visit, json_member_text(claims, "iss")) &&
	       claim_text(claims, "aud", client, true).len && (!azp.len || slice_eq(azp, client)) &&
	       nonce.len == MAC_LEN && secret_equal(nonce.data, begun->nonce, MAC_LEN);
}

/* A name for the session, in the characters that STS accepts. */
static struct slice session_name(const json_t *claims, char text[NAME_LEN_MAX + 1])
{
	static const char *const NAMES[] = {"preferred_username", "email", "sub"};
	struct slice name = SLICE_NONE;
	size_t len;

	for (size_t i = 0; i < ARRAY_LEN(NAMES) && name.len < 2; i++)
		name = json_member_text(claims, NAMES[i]);
	len = MIN(name.len, (size_t)NAME_LEN_MAX);
	for (size_t i = 0; i < len; i++) {
		char c = name.data[i];
		bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			    (c >= '0' && c <= '9') || (c && strchr("_=,.@+-", c));

		text[i] = good ? c : '-';
	}
	return len < 2 ? SLICE("console") : slice_of(text, len);
}

static void enter(struct console_visit *visit, struct slice token, const struct begun *begun)
{
	const struct console_openid *openid = &visit->console->opts.openid;
	struct console_web web = {.token = token, .role = slice_str(openid->role)};
	json_t *claims = claims_of(token);
	char name[NAME_LEN_MAX + 1], gone[192], text[CONSOLE_SET_COOKIE_MAX];
	struct console_inner inner;

	if (!claims || !is_ours(visit, claims, begun)) {
		refuse(visit, "token", "the ID token is not of this sign-in");
		json_decref(claims);
		return;
	}
	if (openid->role_claim[0])
		web.role = claim_text(claims, openid->role_claim, SLICE("arn:"), false);
	web.name = session_name(claims, name);
	console_ask_by_token(visit, &web, &inner);
	if (console_begin_session(visit, &inner, web.name, text)) {
		const struct s3_header cookies[] = {
			{SLICE("Set-Cookie"), slice_str(text)}, no_cookie(visit, gone)};

		go(visit, SLICE("/"), cookies, ARRAY_LEN(cookies));
		secret_wipe(text, sizeof(text));
	} else {
		refuse(visit, "role", "no session of the role for the ID token");
	}
	console_inner_free(&inner);
	json_decref(claims);
}

/* ---- The end. ---- */

/* A parameter of the callback, decoded; empty: there is none, or it is too long. */
static struct slice parameter(struct slice query, const char *name, char *text, size_t text_bytes)
{
	while (query.len) {
		struct slice value = slice_split(&query, '&');
		size_t len;

		if (slice_eq(slice_split(&value, '='), slice_str(name)) &&
			!uri_decode(value, URI_PLUS_IS_SPACE, text, text_bytes, &len))
			return slice_of(text, len);
	}
	return SLICE_NONE;
}

/* Whether the cookie belongs to a sign-in that began recently. The state authenticates the time. */
static bool is_begun(const struct console_visit *visit, struct slice cookie, struct begun *begun)
{
	struct slice expiry = cookie, state;
	char text[MAC_LEN + 1];
	uint64_t expires_s;

	if (cookie.len <= 2 * RANDOM_BYTES + 1 || cookie.len > BEGUN_LEN_MAX)
		return false;
	slice_split(&expiry, '.');
	if (slice_to_u64(expiry, &expires_s) ||
		(int64_t)expires_s < console_now_get().real_ms / 1000)
		return false;
	begun_of(visit, cookie, begun);
	state = parameter(visit->request->query, "state", text, sizeof(text));
	return state.len == MAC_LEN && secret_equal(state.data, begun->state, MAC_LEN);
}

static void redeem(struct console_visit *visit, const struct begun *begun)
{
	char text[CODE_LEN_MAX];
	struct s3_openid_code code = {.verifier = slice_str(begun->verifier)};
	struct buf redirect, token;
	int ret;

	code.code = parameter(visit->request->query, "code", text, sizeof(text));
	buf_init(&redirect, URL_LEN_MAX);
	buf_init(&token, TOKEN_LEN_MAX);
	put_redirect_uri(visit, &redirect);
	code.redirect_uri = buf_slice(&redirect);
	ret = !code.code.len	? -EACCES
	      : redirect.failed ? -ENOMEM
				: s3_openid_redeem(visit->console->openid, &code, &token);
	if (!ret)
		enter(visit, buf_slice(&token), begun);
	else if (ret == -EACCES)
		refuse(visit, "provider", "the identity provider gave no token");
	else
		refuse(visit, "away", "the identity provider does not answer");
	if (token.data)
		secret_wipe(token.data, token.len);
	buf_free(&token);
	buf_free(&redirect);
}

static void end(struct console_visit *visit)
{
	char name[64], text[S3_OPENID_URL_MAX];
	struct slice issuer;
	struct begun begun;
	uint32_t wait_s;

	if (!console_may_try(visit, &wait_s)) {
		refuse(visit, "wait", "too many tries");
		return;
	}
	if (!is_begun(visit, console_cookie(visit->request, cookie_name(visit, name)), &begun)) {
		refuse(visit, "again",
			"the sign-in was not begun by this browser, or too long ago");
		return;
	}
	issuer = parameter(visit->request->query, "iss", text, sizeof(text));
	if (issuer.len && !is_issuer(visit, issuer))
		refuse(visit, "provider", "the answer is of another identity provider");
	else
		redeem(visit, &begun);
	secret_wipe(&begun, sizeof(begun));
}

bool console_openid_handle(struct console_visit *visit)
{
	struct slice path = visit->request->path;

	if (!visit->console->openid || visit->request->method != S3_GET)
		return false;
	if (slice_eq(path, SLICE("/openid/begin")))
		begin(visit);
	else if (slice_eq(path, SLICE(CALLBACK)))
		end(visit);
	else
		return false;
	return true;
}

int console_openid_open(struct console *console)
{
	const struct console_openid *openid = &console->opts.openid;
	const struct s3_openid_opts opts = {.issuer = openid->issuer,
		.client_id = openid->client_id,
		.client_secret = openid->client_secret,
		.ca_file = openid->ca_file};
	uint8_t key[SHA256_BYTES];

	if (!openid->issuer || !openid->issuer[0])
		return 0;
	random_fill(key, sizeof(key));
	hmac_key_init(&console->openid_key, key, sizeof(key));
	secret_wipe(key, sizeof(key));
	console->opts.openid.client_secret = NULL; /* the caller owns it */
	return s3_openid_open(console->opts.s3, &opts, &console->openid);
}
