/* net/tls_groups.c: the groups of the key exchange: those that were named, or the preset ones that
 * the library has. */
#include "net/tls_priv.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>

/* Joins X25519 with ML-KEM-768: recorded traffic stays secret as long as one of the two holds. */
#define HYBRID "X25519MLKEM768"

static const char *const PRESET[] = {HYBRID, "X25519", "P-256", "P-384"};

static bool library_has(const char *name)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	bool has = context && SSL_CTX_set1_groups_list(context, name) == 1;

	SSL_CTX_free(context);
	ERR_clear_error();
	return has;
}

static void add(char *list, const char *name)
{
	size_t len = strlen(list);

	snprintf(list + len, TLS_GROUPS_BYTES - len, "%s%s", len ? ":" : "", name);
}

static void preset(char *ret_list)
{
	for (size_t i = 0; i < ARRAY_LEN(PRESET); i++)
		if (library_has(PRESET[i]))
			add(ret_list, PRESET[i]);
	if (strstr(ret_list, HYBRID))
		log_info("tls", "key exchange by %s", ret_list);
	else
		log_info("tls",
			"key exchange by %s: OpenSSL %s has no " HYBRID
			" (3.5 and later have it), so "
			"traffic that is recorded today could be read by a quantum computer",
			ret_list, OpenSSL_version(OPENSSL_VERSION_STRING));
}

static bool is_name(const char *name)
{
	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_')
			return false;
	return name[0];
}

int tls_groups_choose(const char *asked, char ret_list[TLS_GROUPS_BYTES])
{
	char copy[TLS_GROUPS_BYTES], *rest = copy, *name;

	ret_list[0] = '\0';
	if (!asked || !asked[0] || !strcmp(asked, "auto")) {
		preset(ret_list);
		return 0;
	}
	if (strlen(asked) >= sizeof(copy)) {
		log_error("tls", "https.groups is too long");
		return -EINVAL;
	}
	snprintf(copy, sizeof(copy), "%s", asked);
	while ((name = strsep(&rest, ", ")) != NULL) {
		if (!name[0])
			continue;
		if (!is_name(name) || !library_has(name)) {
			log_error("tls", "https.groups: OpenSSL %s has no group '%s'%s",
				OpenSSL_version(OPENSSL_VERSION_STRING), name,
				strstr(name, "MLKEM") ? "; 3.5 and later have it" : "");
			return -EINVAL;
		}
		add(ret_list, name);
	}
	if (!ret_list[0]) {
		log_error("tls", "https.groups names no group");
		return -EINVAL;
	}
	log_info("tls", "key exchange by %s", ret_list);
	return 0;
}
