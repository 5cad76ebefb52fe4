#include "../log_catch.h"
#include "tls_rig.h"

#include <sys/wait.h>

/* ---- Invalid files. ---- */

static void write_text(const char *name, const char *text)
{
	FILE *file = fopen(pki_path(name), "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	fclose(file);
	assert_int_equal(chmod(pki_path(name), 0600), 0);
}

/* Expects the error, and a log line with the file and the reason. */
static void refused(struct net_tls_opts opts, int error, const char *file, const char *why)
{
	struct net_tls *tls = NULL;
	const char *text;
	int ret;

	log_catch();
	ret = net_tls_open(&opts, &tls);
	text = log_caught();
	assert_int_equal(ret, error);
	assert_null(tls);
	if (!strstr(text, pki_path(file)) || !strstr(text, why))
		fail_msg("'%s' does not name %s and say '%s'", text, file, why);
}

static struct net_tls_opts opts_of(const char *certificate, const char *key, const char *client_ca)
{
	return (struct net_tls_opts){.certificate = pki_path(certificate),
		.key = pki_path(key),
		.client_ca = client_ca ? pki_path(client_ca) : NULL};
}

static void test_refusals(void **state)
{
	(void)state;
	pki_issue((struct pki_issue){.name = "rsa", .issuer = "ca", .type = "RSA"});
	pki_issue((struct pki_issue){.name = "locked", .issuer = "ca", .passphrase = "secret"});
	write_text("empty", "");
	write_text("words", "-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n");
	refused(opts_of("none.pem", "server.key", NULL), -ENOENT, "none.pem", "No such file");
	refused(opts_of("server.pem", "none.key", NULL), -ENOENT, "none.key", "No such file");
	refused(opts_of("server.pem", "server.key", "none.ca"), -ENOENT, "none.ca", "No such file");
	refused(opts_of("server.pem/x", "server.key", NULL), -ENOTDIR, "server.pem/x",
		"Not a directory");
	refused(opts_of("empty", "server.key", NULL), -EINVAL, "empty", "no PEM certificate");
	refused(opts_of("words", "server.key", NULL), -EINVAL, "words", "no PEM certificate");
	refused(opts_of("server.pem", "empty", NULL), -EINVAL, "empty", "no PEM private key");
	refused(opts_of("server.pem", "server.pem", NULL), -EINVAL, "server.pem",
		"no PEM private key");
	refused(opts_of("server.pem", "server.key", "empty"), -EINVAL, "empty",
		"no PEM certificates");
	refused(opts_of("server.pem", "ca.key", NULL), -EINVAL, "ca.key",
		"belong to the certificate");
	refused(opts_of("server.pem", "rsa.key", NULL), -EINVAL, "rsa.key",
		"belong to the certificate");
	refused(opts_of("locked.pem", "locked.key", NULL), -EINVAL, "locked.key", "passphrase");
}

static void test_groups(void **state)
{
	static const struct {
		const char *groups, *says;
	} CASES[] = {{"nosuch", "no group 'nosuch'"}, {"P-256,nosuch", "no group 'nosuch'"},
		{"P-256:X25519", "no group 'P-256:X25519'"}, {", ,", "names no group"},
		{NULL, "key exchange by "}, {"auto", "key exchange by "},
		{"P-384, X25519", "key exchange by P-384:X25519\n"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
		bool good = strstr(CASES[i].says, "key exchange") != NULL;
		struct net_tls_opts opts;
		struct net_tls *tls = NULL;
		const char *text;
		int ret;

		opts = opts_of("server.pem", "server.key", NULL);
		opts.groups = CASES[i].groups;
		log_catch();
		ret = net_tls_open(&opts, &tls);
		text = log_caught();
		assert_int_equal(ret, good ? 0 : -EINVAL);
		if (!strstr(text, CASES[i].says))
			fail_msg("'%s' does not say '%s'", text, CASES[i].says);
		net_tls_close(tls);
	}
}

/* In a process of its own, because root can read every file. */
static int open_as_nobody(struct net_tls_opts opts)
{
	const uid_t nobody = 65534;
	struct net_tls *tls = NULL;
	pid_t child = fork();
	int status, ret;

	if (!child) {
		if (!geteuid() && setresuid(nobody, nobody, nobody))
			_exit(1);
		ret = net_tls_open(&opts, &tls);
		_exit(-ret);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

static void test_unreadable(void **state)
{
	const char *text;
	int ret;

	(void)state;
	pki_issue((struct pki_issue){.name = "hidden", .issuer = "ca"});
	assert_int_equal(chmod(pki_dir, 0755), 0);
	assert_int_equal(chmod(pki_path("hidden.key"), 0), 0);
	log_catch();
	ret = open_as_nobody(opts_of("hidden.pem", "hidden.key", NULL));
	text = log_caught();
	assert_int_equal(ret, -EACCES);
	assert_non_null(strstr(text, "hidden.key: Permission denied"));
}

/* A complete chain is accepted; a truncated one is not. */
static void test_chain(void **state)
{
	char text[8192] = "", part[4096];
	const char *const parts[] = {"server.pem", "ca.pem"};
	struct net_tls *tls = NULL;
	struct net_tls_opts opts = opts_of("chain.pem", "server.key", NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		FILE *file = fopen(pki_path(parts[i]), "re");
		size_t len;

		assert_non_null(file);
		len = fread(part, 1, sizeof(part) - 1, file);
		part[len] = '\0';
		fclose(file);
		strcat(text, part);
	}
	write_text("chain.pem", text);
	assert_int_equal(net_tls_open(&opts, &tls), 0);
	net_tls_close(tls);
	text[strlen(text) - 40] = '\0';
	write_text("chain.pem", text);
	refused(opts_of("chain.pem", "server.key", NULL), -EINVAL, "chain.pem", "chain is broken");
}

/* ---- Valid files with warnings. ---- */

static void warned(const char *name, const char *why)
{
	struct net_tls *tls;
	const char *text;

	log_catch();
	tls = pki_open(name, NULL);
	text = log_caught();
	net_tls_close(tls);
	if (why && !strstr(text, why))
		fail_msg("'%s' does not say '%s'", text, why);
	if (!why)
		assert_null(strstr(text, " warn "));
}

static void test_warnings(void **state)
{
	const long day_s = 86400;

	(void)state;
	pki_issue((struct pki_issue){.name = "old", .ends_s = -60});
	pki_issue((struct pki_issue){.name = "early", .begins_s = day_s});
	pki_issue((struct pki_issue){.name = "soon", .ends_s = 13 * day_s});
	pki_issue((struct pki_issue){.name = "enough", .ends_s = 15 * day_s});
	pki_issue((struct pki_issue){.name = "open"});
	assert_int_equal(chmod(pki_path("open.key"), 0644), 0);
	warned("old", "has expired");
	warned("early", "not valid yet");
	warned("soon", "less than 14 days");
	warned("enough", NULL);
	warned("open", "chmod 600");
}

/* ---- Changes. ---- */

static void test_changed(void **state)
{
	struct net_tls *tls;

	(void)state;
	pki_issue((struct pki_issue){.name = "mine", .issuer = "ca"});
	assert_int_equal(symlink("mine.pem", pki_path("link.pem")), 0);
	assert_int_equal(symlink("mine.key", pki_path("link.key")), 0);
	tls = pki_open("link", "ca.pem");
	assert_false(net_tls_changed(tls));
	/* Other bytes in the same file. */
	assert_int_equal(truncate(pki_path("mine.key"), 0), 0);
	assert_true(net_tls_changed(tls));
	log_catch();
	assert_int_equal(net_tls_reload(tls), -EINVAL);
	assert_non_null(strstr(log_caught(), "link.key"));
	assert_false(net_tls_changed(tls));
	/* Another file at the same link, and no file. */
	pki_issue((struct pki_issue){.name = "next", .issuer = "ca"});
	pki_rename("next.key", "mine.key");
	pki_rename("next.pem", "mine.pem");
	assert_true(net_tls_changed(tls));
	assert_int_equal(net_tls_reload(tls), 0);
	assert_false(net_tls_changed(tls));
	assert_int_equal(unlink(pki_path("link.pem")), 0);
	assert_true(net_tls_changed(tls));
	net_tls_close(tls);
	net_tls_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_unreadable),
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_warnings),
		cmocka_unit_test(test_changed),
	};

	return cmocka_run_group_tests_name("net_tls", tests, pki_setup, pki_teardown);
}
