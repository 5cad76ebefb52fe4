/* cli/cmd_stat.c: `nebulaio stat`: prints an object's metadata. */
#include <string.h>

#include "remote.h"

static const char USAGE[] = "usage: nebulaio stat [OPTIONS] s3://BUCKET/KEY\n\n" REMOTE_USAGE;

/* result's headers are "name: value" lines. */
static void print_headers(const struct neb_result *result, bool json)
{
	const char *line = result->headers;

	while (*line) {
		const char *start = line, *end = strchr(line, '\n');
		const char *colon = strstr(line, ": ");
		char name[256], value[1024];

		if (!end || !colon || colon > end)
			break;
		line = end + 1;
		if (colon - start == 4 && !strncasecmp(start, "etag", 4))
			continue; /* printed already */
		snprintf(name, sizeof(name), "%.*s", (int)(colon - start), start);
		snprintf(value, sizeof(value), "%.*s", (int)(end - colon - 2), colon + 2);
		if (json) {
			printf(", ");
			remote_print_json(stdout, name);
			printf(": ");
			remote_print_json(stdout, value);
		} else {
			printf("%-28s %s\n", name, remote_text(value));
		}
	}
}

static int print_stat(struct neb_client *client, const struct remote_opts *opts, const char *bucket,
	const char *key)
{
	struct neb_result result;

	if (neb_head(client, bucket, key, &result))
		return remote_failed(key, &result);
	if (opts->json) {
		printf("{\"bucket\": ");
		remote_print_json(stdout, bucket);
		printf(", \"key\": ");
		remote_print_json(stdout, key);
		printf(", \"bytes\": %llu, \"transport\": \"%s\", \"etag\": ",
			(unsigned long long)result.object_bytes,
			neb_transport_name(result.transport));
		remote_print_json(stdout, result.etag);
		print_headers(&result, true);
		printf("}\n");
	} else {
		printf("%-28s s3://%s/%s\n%-28s %llu\n%-28s %s\n%-28s %s\n", "object", bucket,
			remote_text(key), "bytes", (unsigned long long)result.object_bytes,
			"transport", neb_transport_name(result.transport), "etag",
			remote_text(result.etag));
		print_headers(&result, false);
	}
	remote_report(opts, key, &result);
	return CLI_OK;
}

static int stat_run(int argc, char **argv)
{
	struct remote_opts opts;
	struct neb_client *client;
	const char *bucket, *key;
	int ret;

	ret = remote_options(&CLI_STAT, argc, argv, &opts);
	if (ret)
		return ret;
	if (optind != argc - 1 || !remote_parse(argv[optind], &bucket, &key) || !*key)
		return cli_usage_error(&CLI_STAT, "expected one s3://BUCKET/KEY");
	ret = remote_open(&opts, &client);
	if (ret)
		return ret;
	ret = print_stat(client, &opts, bucket, key);
	neb_client_close(client);
	return ret;
}

const struct cli_command CLI_STAT = {
	.name = "stat",
	.summary = "show an object's length, headers and metadata",
	.usage = USAGE,
	.run = stat_run,
};
