/* console/console.h: the web console: serves the page's files, signs its users in, keeps their
 * sessions, and passes the page's requests on to S3, IAM, STS and the admin API. A session is
 * temporary credentials of STS. The console signs each request with them, and S3 handles it like
 * every request, so that the page can do nothing that its user's policies do not allow, and never
 * sees a secret. The console runs on one reactor. docs/guide/console.md is its guide. */
#ifndef CONSOLE_H
#define CONSOLE_H

#include "base/base.h"
#include "s3/s3.h"

struct console;

/* The provider where users may sign in. */
struct console_openid {
	const char *issuer;				 /* NULL or "": no provider */
	const char *client_id, *client_secret, *ca_file; /* the last two may be "" */
	const char *scopes;
	const char *name;	       /* the provider's name on the page */
	const char *role, *role_claim; /* an ARN, or the claim that contains it */
	const char *redirect_url;      /* "": derived from the page's own host */
};
struct console_opts {
	struct s3 *s3;
	uint64_t session_s;	  /* how long a session lasts: 900 to 43,200 */
	uint64_t idle_timeout_ns; /* a session without requests for this long ends */
	/* the start of share links; "": derived from the page's own host */
	const char *s3_url;
	uint16_t http_port, https_port; /* S3's ports, for share links; 0: S3 does not listen */
	bool secure;			/* the page is served over TLS */
	struct console_openid openid;
	/* Answers /metrics and the paths below /admin/v1/, as the admin listener does. */
	s3_page_fn *admin;
	void *admin_arg;
};
/* The options' strings are borrowed. Warns when the program was built without the page. -ENOMEM. */
int console_open(const struct console_opts *opts, struct console **ret_console);
void console_close(struct console *console); /* takes NULL; wipes the sessions */
/* Answers every request of the console's listener: front_http_opts.handle; arg is the console. In a
 * fiber, of one reactor only. */
void console_handle(void *arg, const struct s3_request *request, struct s3_reply *reply);
#endif
