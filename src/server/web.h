/* server/web.h: the web console of a server: opened as the configuration says, with its listener.
 */
#ifndef SERVER_WEB_H
#define SERVER_WEB_H

#include "console/console.h"
#include "listen/listen.h"
#include "server/admin/admin.h"
#include "server/config.h"

#define CONSOLE_CONNECTIONS_MAX 256u

struct web_opts {
	const struct config *config; /* lives as long as the console, as the others do */
	struct flow_core *core;	     /* where all of it runs */
	struct s3 *s3;
	struct net_tls *tls;		/* NULL: plain HTTP */
	uint16_t http_port, https_port; /* S3's, for share links */
	struct admin_opts *admin;
};
/* Before the reactor runs. The errors are those of listen_open; on an error the console may be open
 * already: the caller closes both in any case. */
int web_open(const struct web_opts *opts, struct console **ret_console, struct listen **ret_listen);

#endif
