/* server/server.h: the whole server: opened in layer order, run until a signal, closed in reverse.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/base.h"
#include "server/config.h"

struct server;

/* Replaces rdma.device_name: auto by the name of this host's device, and says why. False: a device
 * is already named, or none is used. server_open() does it on its own copy. */
bool server_device_settle(struct config *config, char *why, size_t why_bytes);
/* Whether RDMA is on and this host lacks its device; text then names the device and the remedy. The
 * caller reports it together with other missing keys. */
bool server_device_missing(const struct config *config, char *text, size_t text_bytes);
/* Opens everything that the configuration asks for; logs every part that it continues without.
 * Errors are logged with the remedy. Blocks (recovery of the store shows its progress). Its threads
 * exist from now on: server_stop ends them, also before a start. */
int server_open(const struct config *config, struct server **ret_server);
/* The ports that it listens on; the kernel may have chosen them. */
uint16_t server_http_port(const struct server *server);
uint16_t server_https_port(const struct server *server); /* 0: HTTPS is off */
/* The file that clients should trust when the certificate is self-signed, else NULL; and the
 * SHA-256 of the certificate in use, "AB:CD:…". HTTPS must be on. */
const char *server_https_self_signed(const struct server *server);
void server_https_fingerprint(const struct server *server, char *buf, size_t buf_bytes);
uint16_t server_rdma_port(const struct server *server);	   /* 0: RDMA is off */
uint16_t server_admin_port(const struct server *server);   /* 0: there is no admin interface */
uint16_t server_console_port(const struct server *server); /* 0: there is no web console */
const char *server_rdma_device(const struct server *server);
/* The findings of this host's doctor about a configuration, as JSON {"findings": […]}. On a helper
 * thread; it changes nothing. */
typedef void server_doctor_fn(const struct config *config, struct buf *out);
/* Before server_start: GET /admin/v1/doctor answers by it. */
void server_set_doctor(struct server *server, server_doctor_fn *doctor);
/* Before server_start: replication sends and origins are asked by it; without one nothing is. */
struct replicate_sender;
void server_set_sender(struct server *server, const struct replicate_sender *sender);
/* The reactors' threads, which server_open has made, begin their work. After an error, too, stop
 * and close the server. */
int server_start(struct server *server);
/* Readable when files that the server reads again may have changed; -1: there are none. */
int server_watch_fd(const struct server *server);
/* Reads certificates again: the changed ones, or all. One thread at a time, not a reactor's. */
void server_reload(struct server *server, bool all);
/* Finishes running requests (at most config http.stall_timeout_s), checkpoints the store, ends the
 * threads. */
void server_stop(struct server *server);
/* After stop, or after a failed open. Takes NULL. */
void server_close(struct server *server);

#endif
