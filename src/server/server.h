/* server/server.h: the whole server: opened in layer order, run until a signal, closed in reverse.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "server/config.h"

struct server;

/* Puts the device that rdma.device_name: auto is on this host in its place, and says why; false:
 * one is named already, or none is used. server_open() does it on its own copy. */
bool server_device_settle(struct config *config, char *why, size_t why_bytes);
/* Opens everything that the configuration asks for; says in the log what it goes on without. Errors
 * are logged with what to do. Blocks (recovery of the store shows its progress). */
int server_open(const struct config *config, struct server **ret_server);
/* The addresses it listens on, with the ports from the kernel. */
uint16_t server_http_port(const struct server *server);
uint16_t server_https_port(const struct server *server); /* 0: HTTPS is off */
/* The file that clients are to trust when the certificate is self-signed, else NULL; and the
 * SHA-256 of the certificate in use, "AB:CD:…". HTTPS is on. */
const char *server_https_self_signed(const struct server *server);
void server_https_fingerprint(const struct server *server, char *buf, size_t buf_bytes);
uint16_t server_rdma_port(const struct server *server);	 /* 0: RDMA is off */
uint16_t server_admin_port(const struct server *server); /* 0: there is no admin interface */
const char *server_rdma_device(const struct server *server);
/* Starts the reactors' threads. */
int server_start(struct server *server);
/* Readable when files that the server reads again may have changed; -1: there are none. */
int server_watch_fd(const struct server *server);
/* Reads certificates again: those that changed, or all. One thread at a time, none of a reactor. */
void server_reload(struct server *server, bool all);
/* Finishes what runs (bounded by config http.stall_timeout_s), checkpoints the store, ends the
 * threads. */
void server_stop(struct server *server);
/* After stop, or after a failed open. Takes NULL. */
void server_close(struct server *server);

#endif
