/* server/web.c: the web console of a server, and its listener. */
#include "server/web.h"

#include <errno.h>
#include <stdio.h>

#include "base/file.h"

/* Reads the client's secret from the file that the configuration names. */
static int read_secret(const struct config *config, char *secret, size_t secret_bytes)
{
	const char *path = config->console.openid.client_secret_file;

	snprintf(secret, secret_bytes, "%s", config->console.openid.client_secret);
	if (!path[0] || file_line(path, secret, secret_bytes))
		return 0;
	log_error("server", "console.openid.client_secret_file: '%s' cannot be read, or is empty",
		path);
	return -EINVAL;
}

int web_open(const struct web_opts *opts, struct console **ret_console, struct listen **ret_listen)
{
	const struct config *config = opts->config;
	char secret[CONFIG_TEXT_MAX];
	const struct console_opts console_opts = {
		.s3 = opts->s3,
		.session_s = config->console.session_s,
		.idle_timeout_ns = config->console.idle_timeout_s * NS_PER_S,
		.s3_url = config->console.s3_url,
		.http_port = opts->http_port,
		.https_port = opts->https_port,
		.secure = opts->tls != NULL,
		.admin = admin_handle,
		.admin_arg = opts->admin,
		.openid = {.issuer = config->console.openid.issuer,
			.client_id = config->console.openid.client_id,
			.client_secret = secret,
			.ca_file = config->console.openid.ca_file,
			.scopes = config->console.openid.scopes,
			.name = config->console.openid.name,
			.role = config->console.openid.role,
			.role_claim = config->console.openid.role_claim,
			.redirect_url = config->console.openid.redirect_url},
	};
	struct listen_opts listen_opts = {
		.core = opts->core,
		.http = {.s3 = opts->s3,
			.transport = opts->tls ? "https" : "http",
			.idle_timeout_ns = config->http.idle_timeout_s * NS_PER_S,
			.head_timeout_ns = config->http.head_timeout_s * NS_PER_S,
			.body_stall_timeout_ns = config->http.stall_timeout_s * NS_PER_S,
			.handle = console_handle},
		.connections_max = opts->connections_max,
		.tls = opts->tls,
		.handshake_timeout_ns = config->http.head_timeout_s * NS_PER_S,
	};
	int ret = read_secret(config, secret, sizeof(secret));

	if (!ret)
		ret = console_open(&console_opts, ret_console);
	secret_wipe(secret, sizeof(secret));

	if (ret)
		return ret;
	listen_opts.http.handle_arg = *ret_console;
	ret = listen_open(&listen_opts, config->console.address, ret_listen);
	if (!ret) {
		opts->admin->console_port = listen_port(*ret_listen);
		opts->admin->console_https = opts->tls != NULL;
	}
	if (!ret && !opts->tls && !config_is_loopback(config->console.address))
		log_warn("server",
			"console.address: %s is not loopback and console.https is false: without "
			"a proxy that ends TLS, keys and cookies cross the network in clear",
			config->console.address);
	return ret;
}
