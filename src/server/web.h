/* server/web.h: opens the server's web console, with its listener, as configured. */
#ifndef SERVER_WEB_H
#define SERVER_WEB_H

#include "console/console.h"
#include "listen/listen.h"
#include "server/admin/admin.h"
#include "server/config.h"

struct web_opts {
	const struct config *config; /* must outlive the console, like the other pointers here */
	struct flow_core *core;	     /* the console runs on it */
	struct s3 *s3;
	struct net_tls *tls;		/* NULL: plain HTTP */
	uint16_t http_port, https_port; /* S3's, for share links */
	struct admin_opts *admin;	/* is told where the console listens */
	uint32_t connections_max;
};
/* Before the reactor runs. The errors are those of listen_open; on an error the console may be open
 * already: the caller closes both in any case. */
int web_open(const struct web_opts *opts, struct console **ret_console, struct listen **ret_listen);

#endif
