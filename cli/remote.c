/* cli/remote.c: finds the commands' server, and prints their errors. */
#include "remote.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "profile.h"

#define DEFAULT_ENDPOINTS "rdma://127.0.0.1:9100,http://127.0.0.1:9000"
#define DEFAULT_ADMIN	  "http://127.0.0.1:9001"
#define DEVELOPMENT_KEY	  "minioadmin"
#define SECONDS_MAX	  3600u

/* The environment wins over the profile, and that over the default. */
static const char *env_first(
	const char *name, const char *other, const char *profile, const char *preset)
{
	const char *value = getenv(name);

	if ((!value || !*value) && other)
		value = getenv(other);
	if ((!value || !*value) && profile)
		value = profile;
	return value && *value ? value : preset;
}

static void profile_apply(struct remote_opts *opts, const struct profile *profile)
{
	opts->endpoints = env_first(
		"NEBULAIO_ENDPOINT", NULL, profile->values[PROFILE_ENDPOINT], DEFAULT_ENDPOINTS);
	opts->access_key = env_first("NEBULAIO_ACCESS_KEY", "AWS_ACCESS_KEY_ID",
		profile->values[PROFILE_ACCESS_KEY], DEVELOPMENT_KEY);
	opts->secret_key = env_first("NEBULAIO_SECRET_KEY", "AWS_SECRET_ACCESS_KEY",
		profile->values[PROFILE_SECRET_KEY], DEVELOPMENT_KEY);
	opts->region = env_first(
		"AWS_REGION", "AWS_DEFAULT_REGION", profile->values[PROFILE_REGION], NULL);
	opts->device_name =
		env_first("NEBULAIO_RDMA_DEVICE_NAME", NULL, profile->values[PROFILE_DEVICE], NULL);
	opts->admin_endpoint = env_first(
		"NEBULAIO_ADMIN_ENDPOINT", NULL, profile->values[PROFILE_ADMIN], DEFAULT_ADMIN);
	opts->transport = NEB_AUTO;
	if (profile->values[PROFILE_TRANSPORT])
		neb_transport_parse(profile->values[PROFILE_TRANSPORT], &opts->transport);
}

void remote_defaults(struct remote_opts *opts)
{
	static struct profile profile;
	const char *name = getenv("NEBULAIO_PROFILE");

	*opts = (struct remote_opts){0};
	opts->profile_failed = profile_read(name && *name ? name : NULL, &profile);
	profile_apply(opts, &profile);
}

/* A profile that is named on the command line wins over the environment. */
static int profile_take(struct remote_opts *opts, const char *name)
{
	static struct profile profile;
	static const enum profile_key KEYS[] = {PROFILE_ENDPOINT, PROFILE_ACCESS_KEY,
		PROFILE_SECRET_KEY, PROFILE_REGION, PROFILE_DEVICE, PROFILE_ADMIN};
	const char **const to[] = {&opts->endpoints, &opts->access_key, &opts->secret_key,
		&opts->region, &opts->device_name, &opts->admin_endpoint};
	int ret = profile_read(name, &profile);

	if (ret)
		return ret;
	opts->profile_failed = CLI_OK;
	for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
		if (profile.values[KEYS[i]])
			*to[i] = profile.values[KEYS[i]];
	}
	if (profile.values[PROFILE_TRANSPORT])
		neb_transport_parse(profile.values[PROFILE_TRANSPORT], &opts->transport);
	return CLI_OK;
}

/* The option's value; what is "request" or "connect". */
static int seconds_take(const struct cli_command *command, const char *what, uint64_t *ret_seconds)
{
	char *end;

	*ret_seconds = strtoul(optarg, &end, 10);
	if (*end || *ret_seconds < 1 || *ret_seconds > SECONDS_MAX)
		return cli_usage_error(command, "--%s-timeout: '%s' is not 1 to %u seconds", what,
			optarg, SECONDS_MAX);
	return CLI_OK;
}

int remote_option(
	const struct cli_command *command, struct remote_opts *opts, int option, char **argv)
{
	switch (option) {
	case REMOTE_ENDPOINT:
		opts->endpoints = optarg;
		return CLI_OK;
	case REMOTE_TRANSPORT:
		if (neb_transport_parse(optarg, &opts->transport))
			return cli_usage_error(command,
				"--transport: '%s' is not auto, rdma, http or strict", optarg);
		return CLI_OK;
	case REMOTE_DEVICE:
		opts->device_name = optarg;
		return CLI_OK;
	case REMOTE_ACCESS:
		opts->access_key = optarg;
		return CLI_OK;
	case REMOTE_SECRET:
		opts->secret_key = optarg;
		return CLI_OK;
	case REMOTE_PROFILE:
		return profile_take(opts, optarg);
	case REMOTE_ENCRYPTED:
		opts->encrypted = true;
		return CLI_OK;
	case REMOTE_REQUEST_TIMEOUT:
		return seconds_take(command, "request", &opts->request_timeout_s);
	case REMOTE_CONNECT_TIMEOUT:
		return seconds_take(command, "connect", &opts->connect_timeout_s);
	case REMOTE_JSON:
		opts->json = true;
		return CLI_OK;
	case 'v':
		opts->verbose = true;
		return CLI_OK;
	default:
		return cli_usage_error(command, "'%s' is not an option, or its value is missing",
			argv[optind - 1]);
	}
}

static void print_log(void *arg, enum neb_log_level level, const char *text)
{
	const struct remote_opts *opts = arg;

	if (level >= NEB_LOG_WARN || opts->verbose)
		fprintf(stderr, "nebulaio: %s\n", text);
}

int remote_options(
	const struct cli_command *command, int argc, char **argv, struct remote_opts *opts)
{
	static const struct option OPTIONS[] = {REMOTE_OPTIONS, {0}};
	int option, ret = CLI_OK;

	remote_defaults(opts);
	optind = 1;
	opterr = 0;
	while (!ret && (option = getopt_long(argc, argv, REMOTE_SHORT, OPTIONS, NULL)) != -1)
		ret = remote_option(command, opts, option, argv);
	return ret;
}

int remote_open(const struct remote_opts *opts, struct neb_client **ret_client)
{
	const struct neb_options options = {
		.endpoints = opts->endpoints,
		.access_key = opts->access_key,
		.secret_key = opts->secret_key,
		.region = opts->region,
		.transport = opts->transport,
		.device_name = opts->device_name,
		.require_encryption = opts->encrypted,
		.request_timeout_ns = opts->request_timeout_s * NS_PER_S,
		.connect_timeout_ns = opts->connect_timeout_s * NS_PER_S,
		.log = print_log,
		.log_arg = (void *)(uintptr_t)opts,
	};
	int ret;

	*ret_client = NULL;
	if (opts->profile_failed)
		return opts->profile_failed;
	ret = neb_client_open(&options, ret_client);
	if (ret == 0)
		return CLI_OK;
	fprintf(stderr, "nebulaio: no connection to %s: %s%s\n", opts->endpoints, strerror(-ret),
		ret == -EINVAL || ret == -EOPNOTSUPP
			? ""
			: "; is the server running there? (--endpoint)");
	if (ret == -EACCES)
		return CLI_DENIED;
	return ret == -EINVAL ? CLI_USAGE : CLI_UNREACHABLE;
}

#define TEXT_BYTES   (4 * 8192u + 1)
#define TEXT_BUFFERS 4u /* the most names in one message */

/* The length of the control character at text, of ASCII or of C1 in UTF-8; 0: there is none. */
static unsigned control_len(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	if (at[0] < 0x20 || at[0] == 0x7f)
		return 1;
	return at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0 ? 2 : 0;
}

const char *remote_text(const char *text)
{
	static _Thread_local char buffers[TEXT_BUFFERS][TEXT_BYTES];
	static _Thread_local unsigned next;
	const char *at = text;
	char *buf, *to;

	while (*at && !control_len(at))
		at++;
	if (!*at)
		return text;
	buf = to = buffers[next++ % TEXT_BUFFERS];
	for (at = text; *at && to + 9 < buf + TEXT_BYTES;) {
		unsigned len = control_len(at);

		if (!len)
			*to++ = *at++;
		for (; len; len--)
			to += snprintf(to, 5, "\\x%02x", (unsigned char)*at++);
	}
	*to = '\0';
	return buf;
}

/* The text for an answer without a body (the answer to a HEAD). */
static const char *status_text(uint32_t status)
{
	static const struct {
		uint32_t status;
		const char *text;
	} TEXTS[] = {{304, "it has not changed"},
		{400, "the server refused the request as invalid"},
		{403, "the keys have no right to do that"}, {404, "no such bucket or object"},
		{405, "the object's newest version is a delete marker"},
		{412, "a condition of the request is not met"}};

	for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++)
		if (TEXTS[i].status == status)
			return TEXTS[i].text;
	return "the server gave no reason";
}

int remote_failed(const char *what, const struct neb_result *result)
{
	if (result->status == 0 && result->error == -EINVAL) {
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(what), result->message);
		return CLI_USAGE;
	}
	if (result->status == 0) {
		fprintf(stderr, "nebulaio: %s: no answer: %s%s%s\n", remote_text(what),
			strerror(-result->error), result->message[0] ? "; " : "",
			remote_text(result->message));
		return CLI_UNREACHABLE;
	}
	fprintf(stderr, "nebulaio: %s: %s (%s%sstatus %u, request %s)\n", remote_text(what),
		result->message[0] ? remote_text(result->message) : status_text(result->status),
		remote_text(result->code), result->code[0] ? ", " : "", result->status,
		remote_text(result->request_id));
	if (result->error == -EACCES)
		return CLI_DENIED;
	return result->error == -ENOENT ? CLI_NOT_FOUND : CLI_FAILED;
}

void remote_report(
	const struct remote_opts *opts, const char *what, const struct neb_result *result)
{
	if (!opts->verbose)
		return;
	fprintf(stderr, "%s: by %s%s%s%s\n", remote_text(what),
		neb_transport_name(result->transport), result->fallback[0] ? " (not RDMA: " : "",
		remote_text(result->fallback), result->fallback[0] ? ")" : "");
}

bool remote_is_url(const char *text)
{
	return strncmp(text, "s3://", 5) == 0;
}

bool remote_parse(char *text, const char **ret_bucket, const char **ret_key)
{
	char *slash;

	if (!remote_is_url(text))
		return false;
	*ret_bucket = text + 5;
	slash = strchr(text + 5, '/');
	*ret_key = "";
	if (slash) {
		*slash = '\0';
		*ret_key = slash + 1;
	}
	return **ret_bucket != '\0';
}

const char *remote_bytes_text(uint64_t bytes, char buf[32])
{
	static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	unsigned unit = 0;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	snprintf(buf, 32, unit ? "%.1f %s" : "%.0f %s", value, UNITS[unit]);
	return buf;
}

void remote_print_json(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		unsigned control = control_len(text);

		text += control == 2; /* the second byte is the character's number */
		if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else if (control)
			fprintf(out, "\\u%04x", (unsigned char)*text);
		else
			fputc(*text, out);
	}
	fputc('"', out);
}
