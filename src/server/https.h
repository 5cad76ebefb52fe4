/* server/https.h: the certificate that the HTTPS listeners share, and changes of its files. */
#ifndef SERVER_HTTPS_H
#define SERVER_HTTPS_H

#include "net/net.h"
#include "server/config.h"

struct https;

/* Called after the store is open, because its folder keeps a self-signed certificate. Errors are
 * logged. */
int https_open(const struct config *config, struct https **ret_https);
struct net_tls *https_tls(const struct https *https);
/* The certificate file that clients should trust when it is self-signed, else NULL. */
const char *https_self_signed(const struct https *https);
/* Readable when something changed in a folder of the files; -1 when that cannot be watched. */
int https_watch_fd(const struct https *https);
/* Consumes the event, and reads the files again if one of them changed, or in any case. Unusable
 * files are logged, and the old certificate stays in use. */
void https_reload(struct https *https, bool in_any_case);
/* Takes NULL. */
void https_close(struct https *https);

#endif
