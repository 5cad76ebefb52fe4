/* gateway/gateway.h: a gateway of a cluster: answers for all stores, by passing requests on to the
 * processes of their owners, and runs the processes of the stores that it owns itself.
 * docs/design/cluster.md. */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include "base/base.h"
#include "server/config.h"

struct gateway;
struct gateway_opts {
	const struct config *config;
	/* The options of `nebulaio serve` that this process was given: processes of stores get
	 * them, too, followed by their own. Borrowed until close. */
	int option_count;
	char **options;
};
/* -EINVAL: ret_error has a line for each key that a gateway lacks or may not have. */
int gateway_check(const struct config *config, struct config_error *ret_error);
/* Connects to Ceph, opens the listeners. Errors are logged with the remedy. Its threads exist from
 * now on: gateway_stop ends them, also before a start. */
int gateway_open(const struct gateway_opts *opts, struct gateway **ret_gateway);
/* Its threads begin their work. After an error, too, stop and close the gateway. */
int gateway_start(struct gateway *gateway);
uint16_t gateway_http_port(const struct gateway *gateway);
uint16_t gateway_https_port(const struct gateway *gateway); /* 0: HTTPS is off */
uint16_t gateway_admin_port(const struct gateway *gateway); /* 0: it has no such pages */
/* Reads certificates again, if they have changed, or in any case. */
void gateway_reload(struct gateway *gateway, bool all);
int gateway_watch_fd(const struct gateway *gateway); /* readable then; -1: nothing to watch */
/* Hands its stores over, finishes running requests, ends the threads. */
void gateway_stop(struct gateway *gateway);
void gateway_close(struct gateway *gateway); /* takes NULL */

#endif
