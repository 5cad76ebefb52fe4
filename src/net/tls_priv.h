/* net/tls_priv.h: shared by the TLS files of src/net.
 *
 *   tls.c         a server's certificates and rules, read from files, and read again
 *   tls_groups.c  the groups of the key exchange
 *   tls_kernel.c  sessions whose sent data the kernel encrypts
 *   tls_self.c    the certificate that a server makes for itself
 *   tls_shared.c  the certificate that follows from a secret
 *   tls_stream.c  the life of a session: handshake, waits, end
 *   tls_dp.c      records in and out */
#ifndef NET_TLS_PRIV_H
#define NET_TLS_PRIV_H

#include <openssl/ssl.h>

#include "net/net_priv.h"

#define TLS_RECORD_BYTES SSL3_RT_MAX_PLAIN_LENGTH
/* A fiber with a large transfer yields after this many bytes. */
#define TLS_TURN_BYTES (256 * KIB)
/* How long the TLS close message may wait for room in the socket. */
#define TLS_END_NS (2 * NS_PER_S)

/* Life: handshake (the stream is still plain) → open (net_tls_ops) → failed, permanently, by the
 * first error → freed with the stream. The library remembers whether the peer closed in order. */
struct tls_session {
	struct net_stream *stream;
	SSL *ssl;
	int error;	     /* why nothing can be read or written any more; 0: no error */
	int io_error;	     /* the error of the socket, when the socket failed */
	bool more;	     /* more will be sent: the socket may wait for it */
	bool kernel_sends;   /* the kernel makes the records that are sent */
	uint8_t record_type; /* of what the library writes next, where the kernel makes records; 0:
				data */
	uint8_t first_byte;  /* the first byte that the peer sent */
};

/* The library's text for the groups that were named ("X25519,P-256"; NULL, "" or "auto": the preset
 * ones). -EINVAL, which is logged: the library lacks one. */
#define TLS_GROUPS_BYTES 256
int tls_groups_choose(const char *asked, char ret_list[TLS_GROUPS_BYTES]);
/* Makes a session's library object with the current files; NULL without memory. Any thread. */
SSL *tls_ssl_new(struct net_tls *tls);
/* Whether it knows the authorities of its peers. */
bool tls_verifies(const struct net_tls *tls);
/* Whether this kernel makes records of TLS; it loads its module if the process may. */
bool tls_kernel_has(void);
/* The library's commands about records that the kernel makes; 0: refused, or none of these. */
long tls_kernel_ctrl(struct tls_session *session, int command, long number, void *ptr);
/* Sends data, as a stream's send. -EPROTO: the peer wants it under other keys. */
int tls_kernel_send(struct net_stream *stream, struct msghdr *msg, struct net_patience patience);
/* Sends a record of session->record_type, as sendmsg(2). */
ssize_t tls_kernel_send_record(struct tls_session *session, const char *buf, size_t len);
int tls_bio_write(BIO *bio, const char *buf, size_t len, size_t *ret_bytes);
int tls_bio_read(BIO *bio, char *buf, size_t len, size_t *ret_bytes);
/* After a library call that did not succeed: waits for the socket as the library needs. 0: try
 * again. -ESHUTDOWN: the peer has closed in order; otherwise as net_poll, or the session's
 * error. */
int tls_wait(struct net_stream *stream, struct net_op *op, uint64_t deadline_ns);
void tls_send_end(struct net_stream *stream);
void tls_release(struct net_stream *stream);

/* Adds an X.509 extension; false without memory. */
bool tls_extend(X509 *certificate, int kind, const char *value);
/* The newest error of the library as text; empties its error queue. */
const char *tls_reason(char *buf, size_t buf_bytes);

#endif
