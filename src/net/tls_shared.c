/* net/tls_shared.c: makes the certificate by which programs with one secret know each other.
 *
 * The secret is the private key of Ed25519, whose signatures need no random bytes, and everything
 * else is constant: so each holder of the secret makes the same certificate, byte by byte, and it
 * is the only one that each of them trusts. */
#include "net/tls_priv.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define BEGINS "20200101000000Z"
#define ENDS   "99991231235959Z" /* RFC 5280, 4.1.2.5: it does not end */

static bool fill(X509 *certificate, EVP_PKEY *key, const char *name)
{
	X509_NAME *subject = X509_get_subject_name(certificate);

	return X509_set_version(certificate, X509_VERSION_3) &&
	       ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) &&
	       ASN1_TIME_set_string(X509_getm_notBefore(certificate), BEGINS) &&
	       ASN1_TIME_set_string(X509_getm_notAfter(certificate), ENDS) &&
	       X509_set_pubkey(certificate, key) &&
	       X509_NAME_add_entry_by_txt(
		       subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0) &&
	       X509_set_issuer_name(certificate, subject) &&
	       tls_extend(certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	       tls_extend(certificate, NID_key_usage, "critical,digitalSignature,keyCertSign") &&
	       tls_extend(certificate, NID_ext_key_usage, "serverAuth,clientAuth") &&
	       tls_extend(certificate, NID_subject_key_identifier, "hash") &&
	       X509_sign(certificate, key, NULL);
}

int net_tls_shared_pem(
	const uint8_t secret[NET_TLS_SHARED_BYTES], const char *name, struct buf *out)
{
	EVP_PKEY *key =
		EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, secret, NET_TLS_SHARED_BYTES);
	X509 *certificate = X509_new();
	BIO *bio = BIO_new(BIO_s_secmem());
	int ret = -ENOMEM;

	if (key && certificate && bio && fill(certificate, key, name) &&
		PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) &&
		PEM_write_bio_X509(bio, certificate)) {
		char *text;
		long len = BIO_get_mem_data(bio, &text);

		buf_put(out, text, (size_t)len);
		ret = out->failed ? -ENOMEM : 0;
	}
	BIO_free(bio);
	X509_free(certificate);
	EVP_PKEY_free(key);
	ERR_clear_error();
	return ret;
}
