/* console/signin.c: signs users in by keys or by a token, and signs them out. */
#include "console/console_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "document/json.h"

#define SIGN_INS      "nebulaio_console_sign_ins_total"
#define SIGN_INS_HELP "Tries to sign in to the web console, by how they ended."
DEFINE_COUNTER(signed_in, SIGN_INS, "result=\"ok\"", SIGN_INS_HELP);
DEFINE_COUNTER(sign_in_refused, SIGN_INS, "result=\"refused\"", SIGN_INS_HELP);
DEFINE_COUNTER(sign_in_limited, SIGN_INS, "result=\"limited\"", SIGN_INS_HELP);

static void put_field(struct buf *form, const char *name, struct slice value)
{
	buf_printf(form, "&%s=", name);
	uri_encode(value, 0, form);
}

struct s3_signer console_signer_of(const struct console_session *session, const char *service)
{
	return (struct s3_signer){.access_key = slice_str(session->access_key),
		.secret = slice_str(session->secret),
		.token = slice_str(session->token),
		.service = service};
}

/* Asks STS for the principal of the credentials. */
static bool learn_identity(struct console_visit *visit, struct console_session *session)
{
	const struct s3_signer signer = console_signer_of(session, "sts");
	struct console_inner inner;
	bool learnt;

	console_inner_post(visit->console, visit->request, &signer,
		SLICE("Action=GetCallerIdentity&Version=2011-06-15"), &inner);
	learnt = inner.status == 200 &&
		 !slice_copy_str(console_inner_element(&inner, "Arn"), session->arn,
			 sizeof(session->arn)) &&
		 !slice_copy_str(console_inner_element(&inner, "Account"), session->account,
			 sizeof(session->account));
	console_inner_free(&inner);
	return learnt;
}

/* A session of the credentials in STS's answer; NULL: it has none. */
static struct console_session *take_credentials(const struct console_inner *inner)
{
	struct console_session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->references = 1;
	if (slice_copy_str(console_inner_element(inner, "AccessKeyId"), session->access_key,
		    sizeof(session->access_key)) ||
		slice_copy_str(console_inner_element(inner, "SecretAccessKey"), session->secret,
			sizeof(session->secret)) ||
		slice_copy_str(console_inner_element(inner, "SessionToken"), session->token,
			sizeof(session->token)) ||
		date_iso_parse(console_inner_element(inner, "Expiration"), &session->expires_ms) ||
		!session->access_key[0] || !session->token[0]) {
		console_session_put(session);
		return NULL;
	}
	return session;
}

static void post_form(struct console_visit *visit, const struct s3_signer *signer, struct buf *form,
	struct console_inner *ret_inner)
{
	if (form->failed)
		*ret_inner = (struct console_inner){0};
	else
		console_inner_post(
			visit->console, visit->request, signer, buf_slice(form), ret_inner);
	if (form->data)
		secret_wipe(form->data, form->len);
	buf_free(form);
}

static void ask_by_keys(
	struct console_visit *visit, const json_t *json, struct console_inner *ret_inner)
{
	const struct s3_signer signer = {.access_key = json_member_text(json, "accessKey"),
		.secret = json_member_text(json, "secretKey"),
		.service = "sts"};
	struct buf form;

	/* No key of the server is as long. */
	if (signer.access_key.len > LIMIT_ACCESS_KEY_LEN_MAX ||
		signer.secret.len > LIMIT_SECRET_KEY_LEN_MAX) {
		*ret_inner = (struct console_inner){.status = 401};
		return;
	}
	buf_init(&form, CONSOLE_FORM_BYTES_MAX);
	buf_printf(&form, "Version=2011-06-15&Action=GetSessionToken&DurationSeconds=%llu",
		(unsigned long long)visit->console->opts.session_s);
	post_form(visit, &signer, &form, ret_inner);
}

void console_ask_by_token(
	struct console_visit *visit, const struct console_web *web, struct console_inner *ret_inner)
{
	const struct console_opts *opts = &visit->console->opts;
	uint64_t role_s = s3_role_seconds(opts->s3, web->role);
	struct buf form;

	buf_init(&form, 8 * CONSOLE_FORM_BYTES_MAX);
	buf_put_str(&form, "Version=2011-06-15&Action=AssumeRoleWithWebIdentity");
	/* STS refuses more than the role's maximum; it refuses a role that does not exist, too. */
	buf_printf(&form, "&DurationSeconds=%llu",
		(unsigned long long)(role_s ? MIN(opts->session_s, role_s) : opts->session_s));
	put_field(&form, "RoleSessionName", web->name);
	put_field(&form, "RoleArn", web->role);
	put_field(&form, "WebIdentityToken", web->token);
	post_form(visit, NULL, &form, ret_inner);
}

void console_answer_session(struct console_visit *visit, const struct console_session *session,
	const struct s3_header *cookie)
{
	const struct console_opts *opts = &visit->console->opts;
	json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:I, s:s}", "user", session->signed_in,
		"arn", session->arn, "account", session->account, "expires",
		(json_int_t)session->expires_ms, "idleSeconds",
		(json_int_t)(opts->idle_timeout_ns / NS_PER_S), "version", NEBULAIO_VERSION);

	console_answer_json(visit, 200, json, cookie);
}

/* When a proxy ends TLS, the cookie is restricted to TLS, too. */
bool console_is_secure(const struct console_visit *visit)
{
	return visit->console->opts.secure ||
	       slice_eq(console_header(visit->request, SLICE("x-forwarded-proto")), SLICE("https"));
}

struct console_session *console_begin_session(struct console_visit *visit,
	const struct console_inner *inner, struct slice name,
	char ret_cookie[CONSOLE_SET_COOKIE_MAX])
{
	struct console_session *session = inner->status == 200 ? take_credentials(inner) : NULL;
	char cookie[CONSOLE_COOKIE_LEN + 1];

	if (!session)
		return NULL;
	if (!learn_identity(visit, session)) {
		console_session_put(session);
		return NULL;
	}
	slice_copy_str(slice_to(name, sizeof(session->signed_in) - 1), session->signed_in,
		sizeof(session->signed_in));
	counter_add(&signed_in, 1);
	console_limit_give(&visit->console->limit, slice_str(visit->request->peer));
	console_table_add(&visit->console->table, session, console_now_get(), cookie);
	snprintf(ret_cookie, CONSOLE_SET_COOKIE_MAX, "%s=%s; Path=/; HttpOnly; SameSite=Strict%s",
		visit->cookie_name, cookie, console_is_secure(visit) ? "; Secure" : "");
	secret_wipe(cookie, sizeof(cookie));
	return session;
}

void console_refused(struct console_visit *visit, const char *why)
{
	counter_add(&sign_in_refused, 1);
	log_info("console", "sign-in refused: %s, from %s", why, visit->request->peer);
}

static void refuse_sign_in(
	struct console_visit *visit, const struct console_inner *inner, bool by_keys)
{
	console_refused(visit, by_keys ? "the access key or the secret key is wrong" : "the token");
	if (!inner->status || inner->status >= 500)
		console_answer_error(
			visit, 503, "The server cannot sign anybody in now. Try again later.");
	else if (by_keys)
		console_answer_error(visit, 401, "The access key or the secret key is wrong.");
	else
		console_answer_error(visit, 401, "No session of this role for this token.");
}

static void sign_in_as(struct console_visit *visit, const json_t *json)
{
	const struct console_web web = {.name = SLICE("console"),
		.role = json_member_text(json, "roleArn"),
		.token = json_member_text(json, "token")};
	struct slice key = json_member_text(json, "accessKey");
	const struct console_session *session;
	char text[CONSOLE_SET_COOKIE_MAX];
	struct console_inner inner;

	if (key.len)
		ask_by_keys(visit, json, &inner);
	else
		console_ask_by_token(visit, &web, &inner);
	session = console_begin_session(visit, &inner, key.len ? key : web.role, text);
	if (session) {
		const struct s3_header cookie = {SLICE("Set-Cookie"), slice_str(text)};

		console_answer_session(visit, session, &cookie);
		secret_wipe(text, sizeof(text));
	} else {
		refuse_sign_in(visit, &inner, key.len > 0);
	}
	console_inner_free(&inner);
}

bool console_may_try(struct console_visit *visit, uint32_t *ret_wait_s)
{
	if (console_limit_take(&visit->console->limit, slice_str(visit->request->peer),
		    clock_now_ns(), ret_wait_s))
		return true;
	counter_add(&sign_in_limited, 1);
	return false;
}

void console_sign_in(struct console_visit *visit)
{
	json_t *json;
	uint32_t wait_s;
	char text[96], seconds[SLICE_U64_MAX];

	if (!console_may_try(visit, &wait_s)) {
		const struct s3_header retry = {
			SLICE("Retry-After"), slice_of_u64(wait_s, seconds)};

		snprintf(text, sizeof(text), "Too many tries. Try again in %u seconds.", wait_s);
		console_answer_json(visit, 429, json_pack("{s:s}", "error", text), &retry);
		return;
	}
	json = console_read_json(visit);
	if (!json)
		return;
	sign_in_as(visit, json);
	json_decref(json);
}

void console_answer_ways(struct console_visit *visit)
{
	const struct console_openid *openid = &visit->console->opts.openid;

	console_answer_json(visit, 200,
		visit->console->openid ? json_pack("{s:s}", "openid", openid->name) : json_object(),
		NULL);
}

void console_sign_out(struct console_visit *visit, struct console_session *session)
{
	char text[128];
	struct s3_header header = {SLICE("Set-Cookie"), SLICE_NONE};

	console_table_remove(&visit->console->table, session);
	snprintf(text, sizeof(text), "%s=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0",
		visit->cookie_name);
	header.value = slice_str(text);
	console_answer_json(visit, 200, json_object(), &header);
}
