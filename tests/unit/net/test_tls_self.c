#include "tls_rig.h"

#include <openssl/x509_vfy.h>

static char dir[128];

static int self_setup(void **state)
{
	(void)state;
	PEER_CHECK(mkdtemp(pki_dir));
	snprintf(dir, sizeof(dir), "%s", pki_path("tls"));
	return 0;
}

static X509 *certificate_now(void)
{
	return pki_read("tls/certificate", "pem");
}

static void fingerprint_now(char ret_text[NET_TLS_FINGERPRINT_LEN + 1])
{
	struct net_tls *tls = pki_open("tls/certificate", NULL);

	net_tls_fingerprint(tls, ret_text);
	net_tls_close(tls);
}

/* pki_open uses the key of the same name next to the certificate. */
static void link_key(void)
{
	assert_int_equal(symlink("key.pem", pki_path("tls/certificate.key")), 0);
}

/* Verifies the certificate for this host like a strict client that trusts this file. */
static int verify(X509 *certificate, const char *host, const char *address)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *context = X509_STORE_CTX_new();
	X509_VERIFY_PARAM *param;
	int error;

	PEER_CHECK(store && context && X509_STORE_add_cert(store, certificate) &&
		   X509_STORE_CTX_init(context, store, certificate, NULL) &&
		   X509_STORE_CTX_set_default(context, "ssl_server"));
	param = X509_STORE_CTX_get0_param(context);
	X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
	PEER_CHECK(!host || X509_VERIFY_PARAM_set1_host(param, host, 0));
	PEER_CHECK(!address || X509_VERIFY_PARAM_set1_ip_asc(param, address));
	X509_verify_cert(context);
	error = X509_STORE_CTX_get_error(context);
	X509_STORE_CTX_free(context);
	X509_STORE_free(store);
	return error;
}

static void assert_mode(const char *name, mode_t mode)
{
	struct stat st;

	assert_int_equal(stat(pki_path(name), &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
}

static void test_make(void **state)
{
	char first[NET_TLS_FINGERPRINT_LEN + 1], next[NET_TLS_FINGERPRINT_LEN + 1];
	char machine[256] = "";
	X509 *certificate;

	(void)state;
	assert_int_equal(net_tls_make_self_signed(dir, "0.0.0.0"), 0);
	link_key();
	assert_mode("tls", 0700);
	assert_mode("tls/certificate.pem", 0600);
	assert_mode("tls/key.pem", 0600);
	certificate = certificate_now();
	assert_int_equal(verify(certificate, "localhost", NULL), X509_V_OK);
	assert_int_equal(verify(certificate, NULL, "127.0.0.1"), X509_V_OK);
	assert_int_equal(verify(certificate, NULL, "::1"), X509_V_OK);
	assert_int_equal(gethostname(machine, sizeof(machine) - 1), 0);
	if (!strchr(machine, '_')) /* not allowed in a certificate's name */
		assert_int_equal(verify(certificate, machine, NULL), X509_V_OK);
	assert_int_equal(verify(certificate, "example.com", NULL), X509_V_ERR_HOSTNAME_MISMATCH);
	assert_int_equal(verify(certificate, NULL, "127.0.0.2"), X509_V_ERR_IP_ADDRESS_MISMATCH);
	X509_free(certificate);
	/* A file that exists and is still valid is not replaced. */
	fingerprint_now(first);
	assert_int_equal(net_tls_make_self_signed(dir, "0.0.0.0"), 0);
	assert_int_equal(net_tls_make_self_signed(dir, ""), 0);
	fingerprint_now(next);
	assert_string_equal(first, next);
}

static void test_renew(void **state)
{
	const struct pki_issue old = {.name = "old", .ends_s = 29L * 86400};
	char first[NET_TLS_FINGERPRINT_LEN + 1], next[NET_TLS_FINGERPRINT_LEN + 1];
	X509 *certificate;

	(void)state;
	fingerprint_now(first);
	/* For a name that the old certificate does not have. */
	assert_int_equal(net_tls_make_self_signed(dir, "nebula.test"), 0);
	certificate = certificate_now();
	assert_int_equal(verify(certificate, "nebula.test", NULL), X509_V_OK);
	X509_free(certificate);
	fingerprint_now(next);
	assert_string_not_equal(first, next);
	assert_int_equal(net_tls_make_self_signed(dir, "127.0.0.7"), 0);
	certificate = certificate_now();
	assert_int_equal(verify(certificate, NULL, "127.0.0.7"), X509_V_OK);
	X509_free(certificate);
	/* Replaced if a file is damaged, the two do not match, or the end of validity is near. */
	fingerprint_now(first);
	assert_int_equal(truncate(pki_path("tls/key.pem"), 10), 0);
	assert_int_equal(net_tls_make_self_signed(dir, ""), 0);
	fingerprint_now(next);
	assert_string_not_equal(first, next);
	pki_issue(old);
	pki_rename("old.key", "tls/key.pem");
	assert_int_equal(net_tls_make_self_signed(dir, ""), 0);
	fingerprint_now(first);
	assert_string_not_equal(first, next);
	pki_issue(old);
	pki_rename("old.key", "tls/key.pem");
	pki_rename("old.pem", "tls/certificate.pem");
	fingerprint_now(first);
	assert_int_equal(net_tls_make_self_signed(dir, ""), 0);
	fingerprint_now(next);
	assert_string_not_equal(first, next);
	assert_mode("tls/key.pem", 0600);
}

static void test_refusals(void **state)
{
	char deep[700];

	(void)state;
	assert_int_equal(net_tls_make_self_signed("/proc/none/tls", ""), -ENOENT);
	snprintf(deep, sizeof(deep), "%s", pki_path("tls/key.pem"));
	assert_int_equal(net_tls_make_self_signed(deep, ""), -ENOTDIR);
	assert_int_equal(mkdir(pki_path("tls/key.pem.part"), 0700), 0);
	assert_int_equal(unlink(pki_path("tls/key.pem")), 0);
	assert_int_equal(net_tls_make_self_signed(dir, ""), -EEXIST);
	memset(deep, 'x', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	assert_int_equal(net_tls_make_self_signed(deep, ""), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_make),
		cmocka_unit_test(test_renew),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests_name("net_tls_self", tests, self_setup, pki_teardown);
}
