/* tests/unit/net/tls_rig.h: certificates for a test, and an independent peer: the library's own
 * client on a blocking socket, in a thread. An error in the thread ends the program. */
#ifndef TESTS_UNIT_NET_TLS_RIG_H
#define TESTS_UNIT_NET_TLS_RIG_H

#include "rig.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <sys/stat.h>

#define PEER_CHECK(fact)                                                           \
	do {                                                                       \
		if (!(fact)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #fact); \
			ERR_print_errors_fp(stderr);                               \
			abort();                                                   \
		}                                                                  \
	} while (0)

/* ---- Certificates. ---- */

static char pki_dir[] = "/tmp/nebulaio-tls-XXXXXX";

static inline const char *pki_path(const char *name)
{
	static char paths[8][128];
	static unsigned int next;
	char *path = paths[next++ % ARRAY_LEN(paths)];

	snprintf(path, sizeof(paths[0]), "%s/%s", pki_dir, name);
	return path;
}

struct pki_issue {
	const char *name;	/* subject; files are NAME.pem and NAME.key */
	const char *issuer;	/* NULL: itself */
	const char *type;	/* "EC" or "RSA" */
	long begins_s, ends_s;	/* from now; 0, 0: yesterday to tomorrow */
	const char *passphrase; /* of the key file */
};

static inline void *pki_read(const char *name, const char *kind)
{
	char file_name[64];
	FILE *file;
	void *what;

	snprintf(file_name, sizeof(file_name), "%s.%s", name, kind);
	file = fopen(pki_path(file_name), "re");
	PEER_CHECK(file);
	what = kind[0] == 'k' ? (void *)PEM_read_PrivateKey(file, NULL, NULL, NULL)
			      : (void *)PEM_read_X509(file, NULL, NULL, NULL);
	PEER_CHECK(what);
	fclose(file);
	return what;
}

static inline void pki_extend(X509 *certificate, int kind, const char *value)
{
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, kind, value);

	PEER_CHECK(extension && X509_add_ext(certificate, extension, -1));
	X509_EXTENSION_free(extension);
}

static inline void pki_write(const struct pki_issue *issue, X509 *certificate, EVP_PKEY *key)
{
	const EVP_CIPHER *cipher = issue->passphrase ? EVP_aes_128_cbc() : NULL;
	char name[64];
	FILE *file;

	snprintf(name, sizeof(name), "%s.key", issue->name);
	file = fopen(pki_path(name), "we");
	PEER_CHECK(file && !fchmod(fileno(file), 0600) &&
		   PEM_write_PrivateKey(
			   file, key, cipher, NULL, 0, NULL, (void *)(uintptr_t)issue->passphrase));
	fclose(file);
	snprintf(name, sizeof(name), "%s.pem", issue->name);
	file = fopen(pki_path(name), "we");
	PEER_CHECK(file && PEM_write_X509(file, certificate));
	fclose(file);
}

static inline void pki_issue(struct pki_issue issue)
{
	static long serial = 1;
	EVP_PKEY *key =
		issue.type && issue.type[0] == 'R' ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256");
	EVP_PKEY *issuer_key = issue.issuer ? pki_read(issue.issuer, "key") : key;
	X509 *certificate = X509_new();
	X509_NAME *subject = X509_get_subject_name(certificate);
	X509 *issuer = issue.issuer ? pki_read(issue.issuer, "pem") : certificate;
	const long day_s = 86400;

	PEER_CHECK(key && certificate && X509_set_version(certificate, X509_VERSION_3));
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
	X509_gmtime_adj(X509_getm_notBefore(certificate), issue.begins_s ? issue.begins_s : -day_s);
	X509_gmtime_adj(X509_getm_notAfter(certificate), issue.ends_s ? issue.ends_s : 99 * day_s);
	X509_set_pubkey(certificate, key);
	X509_NAME_add_entry_by_txt(
		subject, "CN", MBSTRING_ASC, (const uint8_t *)issue.name, -1, -1, 0);
	X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
	if (!issue.issuer)
		pki_extend(certificate, NID_basic_constraints, "critical,CA:TRUE");
	pki_extend(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
	PEER_CHECK(X509_sign(certificate, issuer_key, EVP_sha256()));
	pki_write(&issue, certificate, key);
	if (issue.issuer) {
		X509_free(issuer);
		EVP_PKEY_free(issuer_key);
	}
	X509_free(certificate);
	EVP_PKEY_free(key);
}

static inline void pki_rename(const char *from, const char *to)
{
	char from_path[128];

	snprintf(from_path, sizeof(from_path), "%s", pki_path(from));
	PEER_CHECK(!rename(from_path, pki_path(to)));
}

static inline int pki_setup(void **state)
{
	(void)state;
	PEER_CHECK(mkdtemp(pki_dir));
	pki_issue((struct pki_issue){.name = "ca"});
	pki_issue((struct pki_issue){.name = "server", .issuer = "ca"});
	return 0;
}

static inline int pki_teardown(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", pki_dir);
	return system(command);
}

static inline struct net_tls *pki_open(const char *name, const char *client_ca)
{
	char certificate[64], key[64];
	struct net_tls_opts opts;
	struct net_tls *tls = NULL;

	snprintf(certificate, sizeof(certificate), "%s.pem", name);
	snprintf(key, sizeof(key), "%s.key", name);
	opts = (struct net_tls_opts){.certificate = pki_path(certificate),
		.key = pki_path(key),
		.client_ca = client_ca ? pki_path(client_ca) : NULL};
	PEER_CHECK(!net_tls_open(&opts, &tls));
	return tls;
}

/* ---- The peer. ---- */

struct peer;
typedef void peer_fn(struct peer *peer);

struct peer {
	peer_fn *fn;
	uint16_t port;
	pthread_t thread;
	int fd;
	SSL_CTX *context; /* NULL: made by the first peer_ssl, and freed with the peer */
	SSL *ssl;
	const char *certificate; /* name of the client's own, or NULL */
	SSL_SESSION *session;	 /* to resume; replaced by the newest ticket */
	int version_max;	 /* 0: the newest */
	bool resumed;
	char fingerprint[NET_TLS_FINGERPRINT_LEN + 1]; /* of the server's certificate */
};

static inline void peer_connect(struct peer *peer)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(peer->port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int on = 1;

	peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	PEER_CHECK(peer->fd >= 0);
	setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	PEER_CHECK(!connect(peer->fd, (struct sockaddr *)&to, sizeof(to)));
}

static inline int peer_keep_ticket(SSL *ssl, SSL_SESSION *session)
{
	struct peer *peer = SSL_get_app_data(ssl);

	SSL_SESSION_free(peer->session);
	peer->session = session;
	return 1;
}

/* Connects, and prepares the library's client. */
static inline void peer_ssl(struct peer *peer)
{
	static const unsigned char protocols[] = "\x02h2\x08http/1.1";
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	char name[64];

	peer_connect(peer);
	PEER_CHECK(context);
	peer->context = context;
	PEER_CHECK(SSL_CTX_load_verify_file(context, pki_path("ca.pem")));
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_session_cache_mode(
		context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE);
	SSL_CTX_sess_set_new_cb(context, peer_keep_ticket);
	if (peer->certificate) {
		snprintf(name, sizeof(name), "%s.pem", peer->certificate);
		PEER_CHECK(SSL_CTX_use_certificate_chain_file(context, pki_path(name)));
		snprintf(name, sizeof(name), "%s.key", peer->certificate);
		PEER_CHECK(SSL_CTX_use_PrivateKey_file(context, pki_path(name), SSL_FILETYPE_PEM));
	}
	peer->ssl = SSL_new(context);
	PEER_CHECK(peer->ssl && SSL_set_fd(peer->ssl, peer->fd));
	SSL_set_app_data(peer->ssl, peer);
	PEER_CHECK(!SSL_set_alpn_protos(peer->ssl, protocols, sizeof(protocols) - 1));
	PEER_CHECK(SSL_set1_host(peer->ssl, "localhost"));
	if (peer->version_max) {
		SSL_set_security_level(peer->ssl, 0);
		SSL_set_min_proto_version(peer->ssl, TLS1_VERSION);
		PEER_CHECK(SSL_set_max_proto_version(peer->ssl, peer->version_max));
	}
	if (peer->session)
		PEER_CHECK(SSL_set_session(peer->ssl, peer->session));
	SSL_set_connect_state(peer->ssl);
}

static inline void peer_fingerprint(struct peer *peer)
{
	X509 *certificate = SSL_get1_peer_certificate(peer->ssl);
	uint8_t digest[32];
	unsigned int len;

	PEER_CHECK(certificate && X509_digest(certificate, EVP_sha256(), digest, &len));
	for (unsigned int i = 0; i < len; i++)
		snprintf(peer->fingerprint + 3 * i, 4, i + 1 < len ? "%02X:" : "%02X", digest[i]);
	X509_free(certificate);
}

static inline void peer_handshake(struct peer *peer)
{
	const unsigned char *protocol;
	unsigned int len;

	peer_ssl(peer);
	PEER_CHECK(SSL_do_handshake(peer->ssl) == 1);
	SSL_get0_alpn_selected(peer->ssl, &protocol, &len);
	PEER_CHECK(len == 8 && !memcmp(protocol, "http/1.1", 8));
	peer->resumed = SSL_session_reused(peer->ssl);
	peer_fingerprint(peer);
}

static inline void peer_write(struct peer *peer, const char *text)
{
	PEER_CHECK(SSL_write(peer->ssl, text, (int)strlen(text)) == (int)strlen(text));
}

/* Reads exactly this text, in any number of records. */
static inline void peer_expect(struct peer *peer, const char *text)
{
	char buf[256];
	size_t want = strlen(text), have = 0;

	while (have < want) {
		int got = SSL_read(peer->ssl, buf + have, (int)(want - have));

		PEER_CHECK(got > 0);
		have += (size_t)got;
	}
	PEER_CHECK(!memcmp(buf, text, want));
}

static inline void peer_expect_end(struct peer *peer)
{
	char byte;
	int done = SSL_read(peer->ssl, &byte, 1);

	PEER_CHECK(done == 0);
	PEER_CHECK(SSL_get_error(peer->ssl, done) == SSL_ERROR_ZERO_RETURN);
}

static inline void *peer_main(void *arg)
{
	struct peer *peer = arg;

	peer->fn(peer);
	SSL_free(peer->ssl);
	SSL_CTX_free(peer->context);
	peer->ssl = NULL;
	peer->context = NULL;
	close(peer->fd);
	OPENSSL_thread_stop();
	return NULL;
}

/* In a fiber: starts the peer and returns the server's end of the stream, before the handshake, if
 * any. */
static inline struct net_stream *peer_start(struct peer *peer)
{
	struct net_listener *listener;
	struct net_stream *stream;

	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	peer->port = net_listener_port(listener);
	PEER_CHECK(!pthread_create(&peer->thread, NULL, peer_main, peer));
	assert_int_equal(net_accept(listener, &stream), 0);
	net_listener_close(listener);
	return stream;
}

static inline void peer_join(struct peer *peer)
{
	PEER_CHECK(!pthread_join(peer->thread, NULL));
}

#endif
