/* server/https.h: the certificate that the HTTPS listeners share, and its files' changes. */
#ifndef SERVER_HTTPS_H
#define SERVER_HTTPS_H

#include "net/net.h"
#include "server/config.h"

struct https;

/* After the store, whose folder a self-signed certificate is kept in. Errors are logged. */
int https_open(const struct config *config, struct https **ret_https);
struct net_tls *https_tls(const struct https *https);
/* The certificate that clients are to trust when it is self-signed, else NULL. */
const char *https_self_signed(const struct https *https);
/* Readable when something happened in a folder of the files; -1 where that cannot be watched. */
int https_watch_fd(const struct https *https);
/* Takes that, and reads the files again if one of them is another now, or in any case. Unusable
 * files are logged, and the old ones stay in use. */
void https_reload(struct https *https, bool in_any_case);
/* Takes NULL. */
void https_close(struct https *https);

#endif
