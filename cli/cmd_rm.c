/* cli/cmd_rm.c: `nebulaio rm`: deletes an object, or all below a prefix. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tree.h"

static const char USAGE[] =
	"usage: nebulaio rm [OPTIONS] s3://BUCKET/KEY\n"
	"       nebulaio rm -r [OPTIONS] s3://BUCKET[/PREFIX]\n"
	"       nebulaio rm [OPTIONS] 's3://BUCKET/GLOB'\n"
	"\n"
	"Deletes objects. A missing key is an error (exit code 3), unless -f is given.\n"
	"\n"
	"  -r, --recursive    all objects whose key starts with PREFIX\n"
	"  -f, --force        a missing key is no error\n" REMOTE_USAGE;

/* Deletes all objects below a prefix, or all that a glob matches. */
static int delete_all(
	struct neb_client *client, const struct remote_opts *opts, const struct tree_place *place)
{
	int worst = CLI_OK, ret;
	size_t deleted = 0;
	struct tree tree;

	ret = tree_read(client, place, false, &tree);
	for (size_t i = 0; !ret && i < tree.count && worst != CLI_UNREACHABLE; i++) {
		ret = tree_delete(client, place, tree.items[i].name);
		worst = MAX(worst, ret);
		deleted += ret == CLI_OK;
		ret = CLI_OK;
	}
	if (!ret && place->glob && !tree.count) {
		fprintf(stderr, "nebulaio: s3://%s/%s: nothing matches\n", place->bucket,
			place->glob);
		ret = CLI_NOT_FOUND;
	} else if (!ret) {
		printf(opts->json ? "{\"deleted\": %zu}\n" : "deleted %zu objects\n", deleted);
	}
	tree_free(&tree);
	return MAX(ret, worst);
}

static int delete_one(struct neb_client *client, const struct remote_opts *opts, const char *bucket,
	const char *key, bool force)
{
	struct neb_result result;

	if (!force && neb_head(client, bucket, key, &result))
		return remote_failed(key, &result);
	if (neb_delete(client, bucket, key, &result))
		return remote_failed(key, &result);
	if (opts->json)
		printf("{\"deleted\": 1}\n");
	remote_report(opts, key, &result);
	return CLI_OK;
}

/* The part of the glob before its first special character. */
static const char *glob_prefix(const char *glob)
{
	static char prefix[LIMIT_KEY_LEN_MAX + 1];

	snprintf(prefix, sizeof(prefix), "%.*s", (int)strcspn(glob, "*?["), glob);
	return prefix;
}

static int rm_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		REMOTE_OPTIONS,
		{"recursive", no_argument, NULL, 'r'},
		{"force", no_argument, NULL, 'f'},
		{0},
	};
	struct remote_opts opts;
	struct neb_client *client;
	const char *bucket, *key;
	struct tree_place place;
	bool recursive = false, force = false;
	int option, ret;

	remote_defaults(&opts);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT "rf", OPTIONS, NULL)) != -1) {
		recursive |= option == 'r';
		force |= option == 'f';
		if (option == 'r' || option == 'f')
			continue;
		ret = remote_option(&CLI_RM, &opts, option, argv);
		if (ret)
			return ret;
	}
	if (optind != argc - 1 || !remote_parse(argv[optind], &bucket, &key))
		return cli_usage_error(&CLI_RM, "expected one s3://BUCKET/KEY");
	if (!recursive && !*key)
		return cli_usage_error(&CLI_RM,
			"the key is missing; rm -r deletes all objects of a bucket, rb deletes "
			"the bucket");
	ret = remote_open(&opts, &client);
	if (ret)
		return ret;
	place = (struct tree_place){.bucket = bucket, .prefix = key};
	if (tree_is_glob(key) && !recursive)
		place = (struct tree_place){
			.bucket = bucket, .prefix = glob_prefix(key), .glob = key};
	ret = recursive || place.glob ? delete_all(client, &opts, &place)
				      : delete_one(client, &opts, bucket, key, force);
	neb_client_close(client);
	return ret;
}

const struct cli_command CLI_RM = {
	.name = "rm",
	.summary = "delete objects",
	.usage = USAGE,
	.run = rm_run,
};
