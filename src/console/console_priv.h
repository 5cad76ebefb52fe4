/* console/console_priv.h: shared by the files of this folder.
 *
 *   console.c   paths, the page's files
 *   answer.c    writes the console's own answers, reads requests
 *   signin.c    sign-in, sign-out
 *   openid.c    sign-in at an OpenID Connect provider
 *   share.c     share links
 *   session.c   sessions by their cookies, and how often a host may try to sign in
 *   inner.c     a request of the console's own: STS
 *   pass.c      a request of the page, signed and passed on */
#ifndef CONSOLE_PRIV_H
#define CONSOLE_PRIV_H

#include <jansson.h>

#include "codec/codec.h"
#include "console/console.h"

#define CONSOLE_SESSIONS_MAX	 256u
#define CONSOLE_SESSIONS_PER_KEY 8u /* so one user leaves room for the others */
#define CONSOLE_COOKIE_BYTES	 32u
#define CONSOLE_COOKIE_LEN	 (2 * CONSOLE_COOKIE_BYTES)
#define CONSOLE_FORM_BYTES_MAX	 (8 * KIB) /* of sign-in and share; a token has 20,000 characters */
#define CONSOLE_TOKEN_LEN_MAX	 (8 * KIB) /* of STS */
#define CONSOLE_ARN_LEN_MAX	 1024u

_Static_assert(CONSOLE_SESSIONS_PER_KEY < CONSOLE_SESSIONS_MAX, "one user leaves room for others");

/* ---- Sessions (session.c): one thread, no clock of their own. ---- */

/* Shared by the table and the requests that use it. */
struct console_session {
	uint32_t references;
	uint8_t digest[SHA256_BYTES];		      /* of its cookie */
	char signed_in[LIMIT_ACCESS_KEY_LEN_MAX + 1]; /* signed in by this key, or with this role */
	char arn[CONSOLE_ARN_LEN_MAX + 1];
	char account[65];
	int64_t expires_ms; /* of the credentials, or the table's session_s; since 1970 */
	uint64_t used_ns;
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
	char secret[LIMIT_SECRET_KEY_LEN_MAX + 1];
	char token[CONSOLE_TOKEN_LEN_MAX + 1];
};
struct console_table {
	struct console_session *items[CONSOLE_SESSIONS_MAX];
	uint64_t session_s; /* no session lasts longer, whatever its credentials do */
	uint64_t idle_timeout_ns;
};
struct console_now {
	uint64_t mono_ns; /* for idleness */
	int64_t real_ms;  /* the time of the credentials' end */
};
void console_session_put(struct console_session *session); /* wipes; takes NULL */
/* Takes the reference over and gives the session a cookie. If there is no room, ends the oldest
 * session of the same principal, or the one of the account with most sessions that was idle for
 * longest. */
void console_table_add(struct console_table *table, struct console_session *session,
	struct console_now now, char ret_cookie[CONSOLE_COOKIE_LEN + 1]);
/* A reference to the session with that cookie; NULL: there is none, or it is over. touch: the user
 * himself acted, so the session counts as used. */
struct console_session *console_table_get(
	struct console_table *table, struct slice cookie, struct console_now now, bool touch);
void console_table_remove(struct console_table *table, const struct console_session *session);
void console_table_free(struct console_table *table);
uint32_t console_table_count(const struct console_table *table);

/* Limits how often a host may fail to sign in: each host has a bucket that fills again with time.
 * The host that was quiet for longest makes room for a new one. */
#define CONSOLE_HOSTS_MAX     256u
#define CONSOLE_TRIES_MAX     10u
#define CONSOLE_TRY_REFILL_NS (6 * NS_PER_S)
struct console_host {
	char name[64]; /* empty: free */
	uint32_t tries_left;
	uint64_t filled_ns, used_ns;
};
struct console_limit {
	struct console_host hosts[CONSOLE_HOSTS_MAX];
};
/* Takes one try of the peer ("ADDR:PORT"; of IPv6 its network of 64 bits counts). False: there is
 * none left; *ret_wait_s: when there will be one. */
bool console_limit_take(
	struct console_limit *limit, struct slice peer, uint64_t now_ns, uint32_t *ret_wait_s);
/* Gives the try back after a sign-in that succeeded. */
void console_limit_give(struct console_limit *limit, struct slice peer);

/* ---- The console. ---- */

struct console {
	struct console_opts opts;
	struct console_table table;
	struct console_limit limit;
	struct s3_openid *openid; /* NULL: off */
	struct hmac_key openid_key;
};

/* ---- One request, and its answer (answer.c). ---- */
struct console_visit {
	struct console *console;
	const struct s3_request *request;
	struct s3_reply *reply;
	char cookie_name[32];
};
struct console_answer {
	uint32_t status;
	struct slice type, body;
	struct s3_header more[3];
	uint32_t more_count;
};
void console_answer(struct console_visit *visit, const struct console_answer *answer);
/* Takes the reference over; more: another header, or NULL. */
void console_answer_json(
	struct console_visit *visit, uint32_t status, json_t *json, const struct s3_header *more);
void console_answer_error(struct console_visit *visit, uint32_t status, const char *text);
/* A header of a request by its lower-case name; empty when it is missing. */
struct slice console_header(const struct s3_request *request, struct slice name);
/* The value of a cookie; empty: there is none. */
struct slice console_cookie(const struct s3_request *request, struct slice name);
struct console_now console_now_get(void);
/* The JSON object of a small body; NULL: answered. */
json_t *console_read_json(struct console_visit *visit);

/* ---- A request of the console's own (inner.c). ---- */
struct console_inner {
	uint32_t status; /* 0: there was no answer */
	struct buf body;
};
/* POST / with a form to IAM or STS; signer NULL: unsigned. outer: the visit that it is made for.
 * The answer is wiped and freed by console_inner_free, in any case. */
void console_inner_post(const struct console *console, const struct s3_request *outer,
	const struct s3_signer *signer, struct slice form, struct console_inner *ret_inner);
void console_inner_free(struct console_inner *inner);
/* The text of the answer's first element of that name, not unescaped; empty: none. */
struct slice console_inner_element(const struct console_inner *inner, const char *name);

/* ---- Signing in (signin.c). ---- */
#define CONSOLE_SET_COOKIE_MAX 256u
struct console_web {
	struct slice role, name, token; /* of an identity provider */
};
/* AssumeRoleWithWebIdentity. The answer is freed by console_inner_free. */
void console_ask_by_token(struct console_visit *visit, const struct console_web *web,
	struct console_inner *ret_inner);
/* Makes a session of the credentials in STS's answer, for the user of that name, and adds it to the
 * table; NULL: the answer has no credentials. *ret_cookie: the value of its Set-Cookie header, to
 * be wiped. */
struct console_session *console_begin_session(struct console_visit *visit,
	const struct console_inner *inner, struct slice name,
	char ret_cookie[CONSOLE_SET_COOKIE_MAX]);
/* Counts and logs a refused try. */
void console_refused(struct console_visit *visit, const char *why);
/* Takes one try of the visitor's host; false: the host must wait. */
bool console_may_try(struct console_visit *visit, uint32_t *ret_wait_s);
/* Whether the browser uses TLS to reach the console. */
bool console_is_secure(const struct console_visit *visit);
void console_sign_in(struct console_visit *visit);
/* The ways to sign in beside keys and tokens. */
void console_answer_ways(struct console_visit *visit);
void console_sign_out(struct console_visit *visit, struct console_session *session);
void console_answer_session(struct console_visit *visit, const struct console_session *session,
	const struct s3_header *cookie);
struct s3_signer console_signer_of(const struct console_session *session, const char *service);

/* ---- Sign-in at an OpenID Connect provider (openid.c). ---- */
int console_openid_open(struct console *console); /* -ENOMEM */
/* Answers its two paths, which other sites may link to; false: the request has another path. */
bool console_openid_handle(struct console_visit *visit);

/* ---- Share links (share.c). ---- */
void console_share(struct console_visit *visit, const struct console_session *session);

/* ---- A request of the page, passed on (pass.c). ---- */
enum console_way { CONSOLE_S3, CONSOLE_IAM, CONSOLE_STS, CONSOLE_ADMIN, CONSOLE_METRICS };
/* path: the rest of the page's path, percent-encoded. */
void console_pass(struct console *console, const struct console_session *session,
	enum console_way way, struct slice path, const struct s3_request *request,
	struct s3_reply *reply);

/* ---- The page's files, which the build generates. ---- */
struct console_file {
	const char *path, *type, *etag;
	const uint8_t *data;
	size_t bytes;
};
extern const struct console_file console_files[];
extern const size_t console_file_count;
extern const bool console_files_built;

#endif
