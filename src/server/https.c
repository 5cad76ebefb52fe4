/* server/https.c: chooses the certificate of the HTTPS listeners, and reads it again when it
 * changes.
 *
 * It watches folders, not files, because renewing a certificate replaces the file or the link. */
#include "server/https.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#define WATCHED (IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_ATTRIB)

struct https {
	struct net_tls *tls;
	bool self_signed;
	int watch_fd;
	char certificate[CONFIG_TEXT_MAX + 32];
	char key[CONFIG_TEXT_MAX + 32];
	char client_ca[CONFIG_TEXT_MAX];
};

static int make_self_signed(struct https *https, const struct config *config)
{
	char folder[CONFIG_TEXT_MAX + 8];
	char host[CONFIG_TEXT_MAX];
	const char *from = config->https.address;
	const char *colon = strrchr(from, ':');
	size_t len = colon ? (size_t)(colon - from) : 0;

	if (len >= 2 && from[0] == '[' && from[len - 1] == ']') {
		from++;
		len -= 2;
	}
	snprintf(host, sizeof(host), "%.*s", (int)len, from);
	snprintf(folder, sizeof(folder), "%s/tls", config->data.dir);
	snprintf(https->certificate, sizeof(https->certificate), "%s/certificate.pem", folder);
	snprintf(https->key, sizeof(https->key), "%s/key.pem", folder);
	https->self_signed = true;
	return net_tls_make_self_signed(folder, host);
}

static void watch_folder_of(struct https *https, const char *path)
{
	char copy[CONFIG_TEXT_MAX + 32];

	if (!path[0] || https->watch_fd < 0)
		return;
	snprintf(copy, sizeof(copy), "%s", path);
	if (inotify_add_watch(https->watch_fd, dirname(copy), WATCHED) < 0)
		log_warn("https",
			"the server cannot watch %s for changes (%s); send SIGHUP after a change",
			path, strerror(errno));
}

static void watch(struct https *https)
{
	https->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (https->watch_fd < 0)
		log_warn("https",
			"the server cannot watch the certificate for changes (%s); send SIGHUP "
			"after a change",
			strerror(errno));
	watch_folder_of(https, https->certificate);
	watch_folder_of(https, https->key);
	watch_folder_of(https, https->client_ca);
}

static void announce(struct https *https, const char *what)
{
	char fingerprint[NET_TLS_FINGERPRINT_LEN + 1];

	net_tls_fingerprint(https->tls, fingerprint);
	log_info("https", "%s certificate %s, SHA-256 %s", what, https->certificate, fingerprint);
}

int https_open(const struct config *config, struct https **ret_https)
{
	struct https *https = calloc(1, sizeof(*https));
	struct net_tls_opts opts;
	int ret = 0;

	if (!https)
		return -ENOMEM;
	https->watch_fd = -1;
	snprintf(https->certificate, sizeof(https->certificate), "%s", config->https.certificate);
	snprintf(https->key, sizeof(https->key), "%s", config->https.key);
	snprintf(https->client_ca, sizeof(https->client_ca), "%s", config->https.client_ca);
	if (!https->certificate[0])
		ret = make_self_signed(https, config);
	/* Watches before it reads, so that a change in between is noticed. */
	if (!ret)
		watch(https);
	opts = (struct net_tls_opts){https->certificate, https->key, https->client_ca,
		config->https.groups, config->https.kernel_tls};
	if (!ret)
		ret = net_tls_open(&opts, &https->tls);
	if (ret) {
		https_close(https);
		return ret;
	}
	announce(https, "serving with");
	*ret_https = https;
	return 0;
}

struct net_tls *https_tls(const struct https *https)
{
	return https->tls;
}

const char *https_self_signed(const struct https *https)
{
	return https->self_signed ? https->certificate : NULL;
}

int https_watch_fd(const struct https *https)
{
	return https->watch_fd;
}

void https_reload(struct https *https, bool in_any_case)
{
	char events[4096];

	/* The names in the events do not matter: the code below looks at the files. */
	while (https->watch_fd >= 0 && read(https->watch_fd, events, sizeof(events)) > 0)
		;
	if (!in_any_case && !net_tls_changed(https->tls))
		return;
	if (net_tls_reload(https->tls))
		log_warn("https", "the old certificate stays in use");
	else
		announce(https, "now serving with");
}

void https_close(struct https *https)
{
	if (!https)
		return;
	net_tls_close(https->tls);
	if (https->watch_fd >= 0)
		close(https->watch_fd);
	free(https);
}
