/* cli/cmd_presign.c: `nebulaio presign`: a URL that anybody may use for a while (AWS Signature
 * Version 4, "Authenticating Requests: Using Query Parameters"). */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "codec/codec.h"
#include "remote.h"

#define EXPIRES_S_MAX (7u * 24 * 3600)

static const char USAGE[] =
	"usage: nebulaio presign [OPTIONS] s3://BUCKET/KEY\n"
	"\n"
	"Prints a URL of the first HTTP endpoint. The URL performs METHOD and needs no keys. No\n"
	"server is asked: invalid keys show only when the URL is used.\n"
	"\n"
	"      --method NAME  GET (default), PUT, HEAD or DELETE\n"
	"      --expires S    seconds, up to 604800 (3600)\n" REMOTE_USAGE;

enum { PRESIGN_METHOD = REMOTE_OWN, PRESIGN_EXPIRES };

struct presign {
	struct remote_opts opts;
	const char *method;
	unsigned long expires_s;
	const char *bucket, *key;
	struct slice scheme, host;
};

static bool endpoint_find(struct presign *presign)
{
	struct slice rest = slice_str(presign->opts.endpoints);

	while (rest.len) {
		struct slice one = slice_split(&rest, ',');
		ptrdiff_t mark = slice_find(one, SLICE("://"));

		one = slice_trim(one);
		while (slice_ends(one, SLICE("/")))
			one.len--;
		if (mark < 0 || !slice_starts(one, SLICE("http")))
			continue;
		presign->scheme = slice_to(one, (size_t)slice_find(one, SLICE("://")));
		presign->host = slice_from(one, presign->scheme.len + 3);
		return presign->host.len > 0;
	}
	return false;
}

static int print_url(const struct presign *presign)
{
	const char *region = presign->opts.region ? presign->opts.region : "us-east-1";
	const char *token = signing_session_token(presign->opts.access_key);
	char date[DATE_BASIC_LEN + 1] = "", hex[SIGNING_SIGNATURE_LEN + 1];
	const struct signing_scope scope = {
		slice_of(date, DATE_DAY_LEN), slice_str(region), SLICE("s3")};
	struct buf path, query, canonical, credential;
	uint8_t key[SHA256_BYTES];

	if (strlen(region) > 64)
		return cli_usage_error(&CLI_PRESIGN, "the region's name is too long");
	if (strlen(presign->opts.secret_key) > LIMIT_SECRET_KEY_LEN_MAX)
		return cli_usage_error(&CLI_PRESIGN, "the secret key is too long");
	date_basic_format((int64_t)time(NULL) * 1000, date);
	buf_init(&path, 16 * KIB);
	buf_init(&query, 16 * KIB);
	buf_init(&canonical, 64 * KIB);
	buf_init(&credential, 4 * KIB);
	buf_printf(&path, "/%s/", presign->bucket);
	uri_encode(slice_str(presign->key), URI_KEEP_SLASH, &path);
	buf_printf(&credential, "%s/", presign->opts.access_key);
	signing_scope_put(&scope, &credential);
	buf_put_str(&query, "X-Amz-Algorithm=" SIGNING_ALGORITHM "&X-Amz-Credential=");
	uri_encode(buf_slice(&credential), 0, &query);
	buf_printf(&query, "&X-Amz-Date=%s&X-Amz-Expires=%lu", date, presign->expires_s);
	if (token) {
		buf_put_str(&query, "&X-Amz-Security-Token=");
		uri_encode(slice_str(token), 0, &query);
	}
	buf_put_str(&query, "&X-Amz-SignedHeaders=host");
	buf_printf(&canonical, "%s\n%.*s\n%.*s\nhost:%.*s\n\nhost\nUNSIGNED-PAYLOAD",
		presign->method, SLICE_FMT(buf_slice(&path)), SLICE_FMT(buf_slice(&query)),
		SLICE_FMT(presign->host));
	signing_key(&scope, slice_str(presign->opts.secret_key), key);
	signing_signature(key, &scope, slice_str(date), buf_slice(&canonical), hex);
	secret_wipe(key, sizeof(key));
	/* Nothing in a URL needs an escape in JSON. */
	printf("%s%.*s://%.*s%.*s?%.*s&X-Amz-Signature=%s%s\n",
		presign->opts.json ? "{\"url\": \"" : "", SLICE_FMT(presign->scheme),
		SLICE_FMT(presign->host), SLICE_FMT(buf_slice(&path)), SLICE_FMT(buf_slice(&query)),
		hex, presign->opts.json ? "\"}" : "");
	buf_free(&path);
	buf_free(&query);
	buf_free(&canonical);
	buf_free(&credential);
	return CLI_OK;
}

static int own_option(struct presign *presign, int option)
{
	static const char *const METHODS[] = {"GET", "PUT", "HEAD", "DELETE"};
	char *end;

	if (option == PRESIGN_METHOD) {
		for (size_t i = 0; i < ARRAY_LEN(METHODS); i++) {
			if (!strcmp(optarg, METHODS[i])) {
				presign->method = METHODS[i];
				return CLI_OK;
			}
		}
		return cli_usage_error(&CLI_PRESIGN, "--method: '%s' is not a method", optarg);
	}
	presign->expires_s = strtoul(optarg, &end, 10);
	if (*end || presign->expires_s < 1 || presign->expires_s > EXPIRES_S_MAX)
		return cli_usage_error(
			&CLI_PRESIGN, "--expires: '%s' is not 1 to %u", optarg, EXPIRES_S_MAX);
	return CLI_OK;
}

static int presign_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {REMOTE_OPTIONS,
		{"method", required_argument, NULL, PRESIGN_METHOD},
		{"expires", required_argument, NULL, PRESIGN_EXPIRES}, {0}};
	struct presign presign = {.method = "GET", .expires_s = 3600};
	int option, ret;

	remote_defaults(&presign.opts);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT, OPTIONS, NULL)) != -1) {
		ret = option >= REMOTE_OWN
			      ? own_option(&presign, option)
			      : remote_option(&CLI_PRESIGN, &presign.opts, option, argv);
		if (ret)
			return ret;
	}
	if (presign.opts.profile_failed)
		return presign.opts.profile_failed;
	if (optind != argc - 1 || !remote_parse(argv[optind], &presign.bucket, &presign.key) ||
		!*presign.key)
		return cli_usage_error(&CLI_PRESIGN, "expected one s3://BUCKET/KEY");
	if (!endpoint_find(&presign))
		return cli_usage_error(&CLI_PRESIGN, "no http:// or https:// endpoint in %s",
			presign.opts.endpoints);
	return print_url(&presign);
}

const struct cli_command CLI_PRESIGN = {
	.name = "presign",
	.summary = "make a URL that needs no keys",
	.usage = USAGE,
	.run = presign_run,
};
