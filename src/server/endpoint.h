/* server/endpoint.h: what the log says of an address that cannot be listened on. */
#ifndef SERVER_ENDPOINT_H
#define SERVER_ENDPOINT_H

/* The message includes the remedy: a port in use is the first problem of new users. section: of the
 * configuration; ret: the error of listen_open. */
void endpoint_refused(const char *section, const char *address, int ret);

#endif
