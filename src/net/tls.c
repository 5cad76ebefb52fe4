/* net/tls.c: a server's certificate and key and the rules of its handshakes, read from files at
 * start and again on request. */
#include "net/tls_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509_vfy.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Forward secrecy always; of the block ciphers only those that authenticate. */
#define TLS12_CIPHERS "ECDHE+AES128+AESGCM:ECDHE+AESGCM:ECDHE+CHACHA20"
/* 128 bits are enough for all uses, and a quarter faster than 256. */
#define TLS13_CIPHERS "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
#define TLS_OPTIONS                                                                          \
	(SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE | \
		SSL_OP_PRIORITIZE_CHACHA)

#define SOON_S (14 * 24 * 60 * 60)

enum tls_file { TLS_CERTIFICATE, TLS_KEY, TLS_CLIENT_CA, TLS_FILES };
static const char *const FILE_TITLES[TLS_FILES] = {
	[TLS_CERTIFICATE] = "certificate",
	[TLS_KEY] = "key",
	[TLS_CLIENT_CA] = "client authorities",
};

/* Identifies a file: another file in its place, or other bytes in it, has another mark. */
struct file_mark {
	dev_t device;
	ino_t inode;
	off_t bytes;
	struct timespec changed;
};

struct net_tls {
	char *paths[TLS_FILES]; /* NULL: none */
	struct file_mark marks[TLS_FILES];
	char groups[TLS_GROUPS_BYTES];
	bool kernel;
	pthread_mutex_t mutex; /* of context, which handshakes take from any thread */
	SSL_CTX *context;
};

const char *tls_reason(char *buf, size_t buf_bytes)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;

	if (reason)
		snprintf(buf, buf_bytes, "%s", reason);
	else if (code && ERR_SYSTEM_ERROR(code))
		snprintf(buf, buf_bytes, "%s", strerror(ERR_GET_REASON(code)));
	else
		snprintf(buf, buf_bytes, "%s", "it cannot be parsed");
	ERR_clear_error();
	return buf;
}

/* ---- Files. ---- */

static int refuse(const struct net_tls *tls, enum tls_file file, const char *why)
{
	log_error("tls", "%s %s: %s", FILE_TITLES[file], tls->paths[file], why);
	ERR_clear_error();
	return -EINVAL;
}

static int refuse_by_library(const struct net_tls *tls, enum tls_file file, const char *what)
{
	char why[160], text[256];

	snprintf(text, sizeof(text), "%s (%s)", what, tls_reason(why, sizeof(why)));
	return refuse(tls, file, text);
}

static void mark(const char *path, struct file_mark *ret_mark)
{
	struct stat st;

	memset(ret_mark, 0, sizeof(*ret_mark));
	if (!path || stat(path, &st))
		return;
	ret_mark->device = st.st_dev;
	ret_mark->inode = st.st_ino;
	ret_mark->bytes = st.st_size;
	ret_mark->changed = st.st_mtim;
}

/* The library's error says little about a file that cannot be opened; errno says more. */
static int file_open(const struct net_tls *tls, enum tls_file file, BIO **ret_bio)
{
	FILE *stream = fopen(tls->paths[file], "re");
	struct stat st;
	int err;

	if (!stream) {
		err = -errno;
		log_error("tls", "%s %s: %s", FILE_TITLES[file], tls->paths[file], strerror(-err));
		return err;
	}
	if (file == TLS_KEY && !fstat(fileno(stream), &st) && (st.st_mode & (S_IRWXG | S_IRWXO)))
		log_warn("tls", "key %s: other users may read it; run chmod 600", tls->paths[file]);
	*ret_bio = BIO_new_fp(stream, BIO_CLOSE);
	if (!*ret_bio) {
		fclose(stream);
		return -ENOMEM;
	}
	return 0;
}

static void warn_of_end(const struct net_tls *tls, const X509 *certificate)
{
	const char *path = tls->paths[TLS_CERTIFICATE];
	time_t soon = time(NULL) + SOON_S;

	if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
		log_warn(
			"tls", "certificate %s: it is not valid yet; clients will refuse it", path);
	if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
		log_warn("tls", "certificate %s: it has expired; clients will refuse it", path);
	else if (X509_cmp_time(X509_get0_notAfter(certificate), &soon) < 0)
		log_warn("tls", "certificate %s: it expires in less than %d days", path,
			SOON_S / (24 * 60 * 60));
}

/* No person is there to type a passphrase. */
static int no_passphrase(char *buf, int buf_bytes, int writing, void *asked)
{
	(void)buf;
	(void)buf_bytes;
	(void)writing;
	*(bool *)asked = true;
	return -1;
}

static int load_chain(const struct net_tls *tls, SSL_CTX *context, BIO *bio)
{
	bool asked = false;
	X509 *certificate = PEM_read_bio_X509_AUX(bio, NULL, no_passphrase, &asked);
	int ok;

	if (!certificate)
		return refuse_by_library(tls, TLS_CERTIFICATE, "it holds no PEM certificate");
	ok = SSL_CTX_use_certificate(context, certificate);
	X509_free(certificate);
	if (!ok)
		return refuse_by_library(tls, TLS_CERTIFICATE, "it cannot be used");
	ERR_clear_error();
	for (;;) {
		certificate = PEM_read_bio_X509(bio, NULL, no_passphrase, &asked);
		if (!certificate)
			break;
		if (!SSL_CTX_add0_chain_cert(context, certificate)) {
			X509_free(certificate);
			return refuse_by_library(tls, TLS_CERTIFICATE, "its chain cannot be used");
		}
	}
	/* The file's end is no error; a broken certificate in the chain is. */
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return refuse_by_library(tls, TLS_CERTIFICATE, "its chain is broken");
	ERR_clear_error();
	return 0;
}

static int load_certificate(const struct net_tls *tls, SSL_CTX *context)
{
	BIO *bio;
	int err = file_open(tls, TLS_CERTIFICATE, &bio);

	if (err)
		return err;
	err = load_chain(tls, context, bio);
	BIO_free(bio);
	if (!err)
		warn_of_end(tls, SSL_CTX_get0_certificate(context));
	return err;
}

static int load_key(const struct net_tls *tls, SSL_CTX *context)
{
	bool asked = false;
	EVP_PKEY *key;
	BIO *bio;
	int err = file_open(tls, TLS_KEY, &bio);

	if (err)
		return err;
	key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &asked);
	BIO_free(bio);
	if (asked && !key)
		err = refuse(tls, TLS_KEY,
			"it has a passphrase; remove it, the server cannot ask for one");
	else if (!key)
		err = refuse_by_library(tls, TLS_KEY, "it holds no PEM private key");
	else if (X509_check_private_key(SSL_CTX_get0_certificate(context), key) != 1)
		err = refuse(tls, TLS_KEY, "it does not belong to the certificate");
	else if (!SSL_CTX_use_PrivateKey(context, key))
		err = refuse_by_library(tls, TLS_KEY, "it cannot be used");
	EVP_PKEY_free(key);
	return err;
}

static int load_client_ca(const struct net_tls *tls, SSL_CTX *context)
{
	STACK_OF(X509_NAME) * names;
	BIO *bio;
	int err;

	if (!tls->paths[TLS_CLIENT_CA])
		return 0;
	err = file_open(tls, TLS_CLIENT_CA, &bio);
	if (err)
		return err;
	BIO_free(bio);
	names = SSL_load_client_CA_file(tls->paths[TLS_CLIENT_CA]);
	if (!names || !SSL_CTX_load_verify_file(context, tls->paths[TLS_CLIENT_CA])) {
		sk_X509_NAME_pop_free(names, X509_NAME_free);
		return refuse_by_library(tls, TLS_CLIENT_CA, "it holds no PEM certificates");
	}
	SSL_CTX_set_client_CA_list(context, names);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	return 0;
}

/* ---- Rules. ---- */

/* Only HTTP/1.1 is supported here: a client that offers only other protocols gets an alert (RFC
 * 7301). */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned int in_len, void *arg)
{
	static const char ours[] = "http/1.1";
	const uint8_t len = sizeof(ours) - 1;

	(void)ssl;
	(void)arg;
	for (unsigned int at = 0; at < in_len; at += in[at] + 1u) {
		if (in[at] != len || at + 1u + len > in_len || memcmp(in + at + 1, ours, len) != 0)
			continue;
		*out = in + at + 1;
		*out_len = len;
		return SSL_TLSEXT_ERR_OK;
	}
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* Sessions are resumed by tickets, whose keys belong to the context. Every reactor accepts them,
 * and no memory is kept for them. Tickets of an older context are refused, so a client that is no
 * longer trusted cannot resume an old session. */
static int set_rules(SSL_CTX *context, const struct net_tls *tls)
{
	static const unsigned char owner[] = "nebulaio";

	SSL_CTX_set_options(context, TLS_OPTIONS | (tls->kernel ? SSL_OP_ENABLE_KTLS : 0));
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
					  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					  SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_read_ahead(context, 1);
	SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
	return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) &&
	       SSL_CTX_set_cipher_list(context, TLS12_CIPHERS) &&
	       SSL_CTX_set_ciphersuites(context, TLS13_CIPHERS) &&
	       SSL_CTX_set1_groups_list(context, tls->groups) &&
	       SSL_CTX_set_session_id_context(context, owner, sizeof(owner) - 1);
}

static int load(struct net_tls *tls, SSL_CTX **ret_context)
{
	SSL_CTX *context = SSL_CTX_new(TLS_method());
	int err;

	/* Before the files are read: a change meanwhile gives the file another mark. */
	for (uint32_t i = 0; i < TLS_FILES; i++)
		mark(tls->paths[i], &tls->marks[i]);
	if (!context || !set_rules(context, tls)) {
		SSL_CTX_free(context);
		ERR_clear_error();
		return -ENOMEM;
	}
	err = load_certificate(tls, context);
	if (!err)
		err = load_key(tls, context);
	if (!err)
		err = load_client_ca(tls, context);
	if (err) {
		SSL_CTX_free(context);
		return err;
	}
	*ret_context = context;
	return 0;
}

/* ---- The face. ---- */

static int set_paths(struct net_tls *tls, const struct net_tls_opts *opts)
{
	const char *const paths[TLS_FILES] = {opts->certificate, opts->key, opts->client_ca};

	for (uint32_t i = 0; i < TLS_FILES; i++) {
		if (!paths[i] || !paths[i][0])
			continue;
		tls->paths[i] = strdup(paths[i]);
		if (!tls->paths[i])
			return -ENOMEM;
	}
	CHECK(tls->paths[TLS_CERTIFICATE]);
	CHECK(tls->paths[TLS_KEY]);
	return 0;
}

int net_tls_open(const struct net_tls_opts *opts, struct net_tls **ret_tls)
{
	struct net_tls *tls = calloc(1, sizeof(*tls));
	int err;

	if (!tls)
		return -ENOMEM;
	pthread_mutex_init(&tls->mutex, NULL);
	tls->kernel = opts->kernel;
	if (tls->kernel && !tls_kernel_has())
		log_warn("tls", "this kernel has no TLS (its module is called tls): "
				"https.kernel_tls has no effect, the server encrypts itself");
	err = set_paths(tls, opts);
	if (!err)
		err = tls_groups_choose(opts->groups, tls->groups);
	if (!err)
		err = load(tls, &tls->context);
	if (err) {
		net_tls_close(tls);
		return err;
	}
	*ret_tls = tls;
	return 0;
}

int net_tls_reload(struct net_tls *tls)
{
	SSL_CTX *context, *old;
	int err = load(tls, &context);

	if (err)
		return err;
	pthread_mutex_lock(&tls->mutex);
	old = tls->context;
	tls->context = context;
	pthread_mutex_unlock(&tls->mutex);
	SSL_CTX_free(old); /* sessions under it keep it alive */
	return 0;
}

bool net_tls_changed(const struct net_tls *tls)
{
	struct file_mark now;

	for (uint32_t i = 0; i < TLS_FILES; i++) {
		mark(tls->paths[i], &now);
		if (memcmp(&now, &tls->marks[i], sizeof(now)) != 0)
			return true;
	}
	return false;
}

void net_tls_close(struct net_tls *tls)
{
	if (!tls)
		return;
	SSL_CTX_free(tls->context);
	for (uint32_t i = 0; i < TLS_FILES; i++)
		free(tls->paths[i]);
	pthread_mutex_destroy(&tls->mutex);
	free(tls);
}

bool tls_verifies(const struct net_tls *tls)
{
	return tls->paths[TLS_CLIENT_CA];
}

SSL *tls_ssl_new(struct net_tls *tls)
{
	SSL *ssl;

	pthread_mutex_lock(&tls->mutex);
	ssl = SSL_new(tls->context);
	pthread_mutex_unlock(&tls->mutex);
	return ssl;
}

void net_tls_fingerprint(struct net_tls *tls, char ret_text[NET_TLS_FINGERPRINT_LEN + 1])
{
	uint8_t digest[EVP_MAX_MD_SIZE];
	unsigned int len = 0;
	int made;

	pthread_mutex_lock(&tls->mutex);
	made = X509_digest(SSL_CTX_get0_certificate(tls->context), EVP_sha256(), digest, &len);
	pthread_mutex_unlock(&tls->mutex);
	CHECK(made);
	CHECK(len * 3 - 1 == NET_TLS_FINGERPRINT_LEN);
	for (unsigned int i = 0; i < len; i++)
		snprintf(ret_text + 3 * i, 4, i + 1 < len ? "%02X:" : "%02X", digest[i]);
}
