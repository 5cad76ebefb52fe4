/* net/tls_self.c: makes the certificate of a server that was configured without one.
 *
 * It is its own authority, so that clients trust it by naming its file, and it is good for this
 * machine's names only. */
#include "net/tls_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SELF_DAYS   365
#define RENEW_DAYS  30
#define DAY_S	    (24 * 60 * 60)
#define SERIAL_BITS 127
#define PATH_BYTES  512u
#define NAMES_BYTES 512u

struct self {
	char certificate[PATH_BYTES];
	char key[PATH_BYTES];
	char machine[NET_HOST_LEN_MAX + 1]; /* "": its name cannot be in a certificate */
	const char *host;		    /* "": none */
};

static bool is_address(const char *host)
{
	struct in6_addr v6;
	struct in_addr v4;

	return inet_pton(AF_INET, host, &v4) == 1 || inet_pton(AF_INET6, host, &v6) == 1;
}

static bool is_name(const char *host)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789.-";

	return host[0] && !host[strspn(host, letters)];
}

static int complain(const char *path, int err)
{
	log_error("tls", "%s: %s", path, strerror(-err));
	return err;
}

/* ---- The existing certificate. ---- */

static X509 *read_certificate(const char *path)
{
	FILE *file = fopen(path, "re");
	X509 *certificate;

	if (!file)
		return NULL;
	certificate = PEM_read_X509(file, NULL, NULL, NULL);
	fclose(file);
	return certificate;
}

static EVP_PKEY *read_key(const char *path)
{
	FILE *file = fopen(path, "re");
	EVP_PKEY *key;

	if (!file)
		return NULL;
	key = PEM_read_PrivateKey(file, NULL, NULL, (void *)(uintptr_t) "");
	fclose(file);
	return key;
}

static bool is_for(X509 *certificate, const char *host)
{
	if (!host[0])
		return true;
	if (is_address(host))
		return X509_check_ip_asc(certificate, host, 0) == 1;
	return X509_check_host(certificate, host, 0, 0, NULL) == 1;
}

static bool is_good(const struct self *self)
{
	time_t soon = time(NULL) + RENEW_DAYS * DAY_S;
	X509 *certificate = read_certificate(self->certificate);
	EVP_PKEY *key = read_key(self->key);
	bool good = certificate && key && X509_check_private_key(certificate, key) == 1 &&
		    X509_cmp_time(X509_get0_notAfter(certificate), &soon) > 0 &&
		    is_for(certificate, self->machine) && is_for(certificate, self->host);

	X509_free(certificate);
	EVP_PKEY_free(key);
	ERR_clear_error();
	return good;
}

/* ---- A new certificate. ---- */

bool tls_extend(X509 *certificate, int kind, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;
	int ok;

	X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
	X509V3_set_ctx_nodb(&context);
	extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
	if (!extension)
		return false;
	ok = X509_add_ext(certificate, extension, -1);
	X509_EXTENSION_free(extension);
	return ok;
}

static void names_of(const struct self *self, char names[NAMES_BYTES])
{
	int len = snprintf(names, NAMES_BYTES, "DNS:localhost,IP:127.0.0.1,IP:::1");

	if (self->machine[0])
		len += snprintf(
			names + len, NAMES_BYTES - (size_t)len, ",DNS:%.64s", self->machine);
	if (self->host[0])
		snprintf(names + len, NAMES_BYTES - (size_t)len, ",%s:%.253s",
			is_address(self->host) ? "IP" : "DNS", self->host);
}

static bool add_serial(X509 *certificate)
{
	BIGNUM *number = BN_new();
	bool ok = number && BN_rand(number, SERIAL_BITS, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) &&
		  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));

	BN_free(number);
	return ok;
}

/* The extensions that strict clients require of a certificate that is its own authority (RFC 5280
 * section 4.2). */
static bool fill(const struct self *self, X509 *certificate, EVP_PKEY *key)
{
	X509_NAME *subject = X509_get_subject_name(certificate);
	char names[NAMES_BYTES];

	names_of(self, names);
	return X509_set_version(certificate, X509_VERSION_3) && add_serial(certificate) &&
	       X509_gmtime_adj(X509_getm_notBefore(certificate), -DAY_S) &&
	       X509_gmtime_adj(X509_getm_notAfter(certificate), SELF_DAYS * DAY_S) &&
	       X509_set_pubkey(certificate, key) &&
	       X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC,
		       (const unsigned char *)"NebulaIO development", -1, -1, 0) &&
	       X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
		       (const unsigned char *)"localhost", -1, -1, 0) &&
	       X509_set_issuer_name(certificate, subject) &&
	       tls_extend(certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	       tls_extend(certificate, NID_key_usage, "critical,digitalSignature,keyCertSign") &&
	       tls_extend(certificate, NID_ext_key_usage, "serverAuth") &&
	       tls_extend(certificate, NID_subject_key_identifier, "hash") &&
	       tls_extend(certificate, NID_authority_key_identifier, "keyid:always") &&
	       tls_extend(certificate, NID_subject_alt_name, names) &&
	       X509_sign(certificate, key, EVP_sha256());
}

/* Writes a file that only this user can read, whole or not at all. */
static int write_file(const char *path, BIO *bio)
{
	char part[PATH_BYTES + 8];
	char *data;
	long len = BIO_get_mem_data(bio, &data);
	int fd, err = 0;

	snprintf(part, sizeof(part), "%s.part", path);
	unlink(part); /* an earlier, interrupted try left it */
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return complain(part, -errno);
	if (write(fd, data, (size_t)len) != len || fsync(fd))
		err = errno ? -errno : -ENOSPC;
	close(fd);
	if (!err && rename(part, path))
		err = -errno;
	if (err)
		unlink(part);
	return err ? complain(path, err) : 0;
}

static int write_both(const struct self *self, X509 *certificate, EVP_PKEY *key)
{
	BIO *bio = BIO_new(BIO_s_mem());
	int err = -ENOMEM;

	if (bio && PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL))
		err = write_file(self->key, bio);
	if (!err && BIO_reset(bio) == 1)
		err = PEM_write_bio_X509(bio, certificate) ? write_file(self->certificate, bio)
							   : -ENOMEM;
	BIO_free(bio);
	return err;
}

static int make(const struct self *self)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = X509_new();
	int err = 0;
	char why[160];

	if (!key || !certificate || !fill(self, certificate, key)) {
		log_error("tls", "cannot make a certificate for %s: %s", self->certificate,
			tls_reason(why, sizeof(why)));
		err = -EINVAL;
	}
	if (!err)
		err = write_both(self, certificate, key);
	X509_free(certificate);
	EVP_PKEY_free(key);
	ERR_clear_error();
	if (!err)
		log_info("tls", "made a self-signed certificate, valid for %d days: %s", SELF_DAYS,
			self->certificate);
	return err;
}

int net_tls_make_self_signed(const char *dir, const char *host)
{
	struct self self = {.host = is_address(host) || is_name(host) ? host : ""};

	if (gethostname(self.machine, sizeof(self.machine) - 1) || !is_name(self.machine) ||
		strlen(self.machine) > 64)
		self.machine[0] = '\0';
	if (mkdir(dir, 0700) && errno != EEXIST)
		return complain(dir, -errno);
	if ((size_t)snprintf(self.certificate, PATH_BYTES, "%s/certificate.pem", dir) >=
			PATH_BYTES ||
		(size_t)snprintf(self.key, PATH_BYTES, "%s/key.pem", dir) >= PATH_BYTES)
		return complain(dir, -ENAMETOOLONG);
	return is_good(&self) ? 0 : make(&self);
}
