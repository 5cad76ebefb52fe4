/* net/tls_priv.h: what the TLS files of src/net share.
 *
 *   tls.c         a server's certificates and rules, read from files, and read again
 *   tls_self.c    the certificate that a server makes for itself
 *   tls_stream.c  the life of a session: handshake, waits, end
 *   tls_dp.c      records in and out */
#ifndef NET_TLS_PRIV_H
#define NET_TLS_PRIV_H

#include <openssl/ssl.h>

#include "net/net_priv.h"

#define TLS_RECORD_BYTES SSL3_RT_MAX_PLAIN_LENGTH
/* A large transfer does not make the other fibers wait for all of it. */
#define TLS_TURN_BYTES (256 * KIB)
/* How long saying goodbye may wait for room in the socket. */
#define TLS_END_NS (2 * NS_PER_S)

/* Life: handshake (the stream is plain still) → open (net_tls_ops) → failed, by the first error for
 * good → freed with the stream. Its end in order is the library's to remember. */
struct tls_session {
	struct net_stream *stream;
	SSL *ssl;
	int error;	    /* why nothing can be read or written any more; 0: it can */
	int io_error;	    /* what the socket said, when it was the socket */
	bool more;	    /* what is sent now is not the last: the socket may wait for the rest */
	uint8_t first_byte; /* that the peer ever sent */
};

/* A session's library object by the files of now; NULL without memory. Any thread. */
SSL *tls_ssl_new(struct net_tls *tls);
int tls_bio_write(BIO *bio, const char *buf, size_t len, size_t *ret_bytes);
int tls_bio_read(BIO *bio, char *buf, size_t len, size_t *ret_bytes);
/* After a call of the library that did not succeed: waits for what it lacks, and 0: try again.
 * -ESHUTDOWN: the peer has ended in order; else as net_poll, or the session's error. */
int tls_wait(struct net_stream *stream, struct net_op *op, uint64_t deadline_ns);
void tls_send_end(struct net_stream *stream);
void tls_release(struct net_stream *stream);

/* The newest complaint of the library as words; empties its queue. */
const char *tls_reason(char *buf, size_t buf_bytes);

#endif
