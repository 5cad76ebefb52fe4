/* cli/cmd_ls.c: `nebulaio ls`: lists buckets, or the objects of a bucket. */
#include <fnmatch.h>
#include <string.h>

#include "base/base.h"
#include "remote.h"

static const char USAGE[] =
	"usage: nebulaio ls [OPTIONS] [s3://BUCKET[/PREFIX]]\n"
	"       nebulaio ls [OPTIONS] 's3://BUCKET/GLOB'\n"
	"\n"
	"Without an address, ls lists the buckets. With one, it lists the keys below PREFIX up\n"
	"to the next '/'. With a GLOB (*, ?, [...]; '*' also matches '/') it lists all matching\n"
	"keys.\n"
	"\n"
	"  -r, --recursive    all keys below PREFIX\n" REMOTE_USAGE;

static bool print_entry(void *arg, const struct neb_entry *entry)
{
	const struct remote_opts *opts = arg;

	if (opts->json) {
		printf("{\"key\": ");
		remote_print_json(stdout, entry->key);
		printf(", \"prefix\": %s, \"bytes\": %llu, \"etag\": ",
			entry->is_prefix ? "true" : "false", (unsigned long long)entry->bytes);
		remote_print_json(stdout, entry->etag ? entry->etag : "");
		printf(", \"last_modified\": ");
		remote_print_json(stdout, entry->last_modified ? entry->last_modified : "");
		printf("}\n");
	} else if (entry->is_prefix) {
		printf("%-24s %12s %s\n", "", "PRE", remote_text(entry->key));
	} else {
		printf("%-24s %12llu %s\n", entry->last_modified ? entry->last_modified : "",
			(unsigned long long)entry->bytes, remote_text(entry->key));
	}
	return true;
}

struct globbing {
	struct remote_opts *opts;
	const char *glob;
	size_t count;
};

static bool print_matching(void *arg, const struct neb_entry *entry)
{
	struct globbing *globbing = arg;

	if (fnmatch(globbing->glob, entry->key, 0))
		return true;
	globbing->count++;
	return print_entry(globbing->opts, entry);
}

static bool print_bucket(void *arg, const struct neb_entry *entry)
{
	const struct remote_opts *opts = arg;

	if (opts->json)
		return print_entry(arg, entry);
	printf("%-24s s3://%s\n", entry->last_modified ? entry->last_modified : "",
		remote_text(entry->key));
	return true;
}

static int list(struct neb_client *client, struct remote_opts *opts, char *url, bool recursive)
{
	struct neb_result result;
	struct neb_list list = {
		.visit = print_entry, .arg = opts, .delimiter = recursive ? NULL : "/"};
	const char *bucket = "buckets", *prefix;
	struct globbing globbing = {.opts = opts};
	char before[LIMIT_KEY_LEN_MAX + 1];
	int ret;

	if (url) {
		if (!remote_parse(url, &bucket, &prefix))
			return cli_usage_error(&CLI_LS, "'%s' is not s3://BUCKET[/PREFIX]", url);
		list.bucket = bucket;
		list.prefix = prefix;
		globbing.glob = prefix;
		if (strpbrk(prefix, "*?[")) {
			snprintf(before, sizeof(before), "%.*s", (int)strcspn(prefix, "*?["),
				prefix);
			list = (struct neb_list){.bucket = bucket,
				.prefix = before,
				.visit = print_matching,
				.arg = &globbing};
		}
		ret = neb_list(client, &list, &result);
		if (ret == 0 && list.visit == print_matching && !globbing.count) {
			fprintf(stderr, "nebulaio: s3://%s/%s: nothing matches\n", bucket, prefix);
			return CLI_NOT_FOUND;
		}
	} else {
		ret = neb_list_buckets(client, print_bucket, opts, &result);
	}
	remote_report(opts, bucket, &result);
	return ret ? remote_failed(bucket, &result) : CLI_OK;
}

static int ls_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		REMOTE_OPTIONS,
		{"recursive", no_argument, NULL, 'r'},
		{0},
	};
	struct remote_opts opts;
	struct neb_client *client;
	bool recursive = false;
	int option, ret;

	remote_defaults(&opts);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT "r", OPTIONS, NULL)) != -1) {
		if (option == 'r') {
			recursive = true;
			continue;
		}
		ret = remote_option(&CLI_LS, &opts, option, argv);
		if (ret)
			return ret;
	}
	if (optind < argc - 1)
		return cli_usage_error(&CLI_LS, "expected at most one address");
	ret = remote_open(&opts, &client);
	if (ret)
		return ret;
	ret = list(client, &opts, argv[optind], recursive);
	neb_client_close(client);
	return ret;
}

const struct cli_command CLI_LS = {
	.name = "ls",
	.summary = "list buckets or objects",
	.usage = USAGE,
	.run = ls_run,
};
