/* cli/cmd_rm.c: `nebulaio rm`: deletes an object, or all below a prefix. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "remote.h"

static const char USAGE[] =
	"usage: nebulaio rm [OPTIONS] s3://BUCKET/KEY\n"
	"       nebulaio rm -r [OPTIONS] s3://BUCKET[/PREFIX]\n"
	"\n"
	"Deletes one object; a key that is not there is an error (exit code 3), unless -f is "
	"given.\n"
	"\n"
	"  -r, --recursive    all objects whose key starts with PREFIX\n"
	"  -f, --force        a missing key is fine\n" REMOTE_USAGE;

#define KEYS_AT_ONCE 1000

/* Keys of one page, deleted before the next page is asked for: a listing may make no other call on
 * its client. */
struct batch {
	char *keys[KEYS_AT_ONCE];
	unsigned count;
};

static bool take_key(void *arg, const struct neb_entry *entry)
{
	struct batch *batch = arg;

	batch->keys[batch->count] = strdup(entry->key);
	if (!batch->keys[batch->count])
		return false;
	batch->count++;
	return batch->count < KEYS_AT_ONCE;
}

static int delete_batch(struct neb_client *client, const char *bucket, struct batch *batch)
{
	int worst = CLI_OK;

	for (unsigned i = 0; i < batch->count; i++) {
		struct neb_result result;

		if (neb_delete(client, bucket, batch->keys[i], &result))
			worst = remote_failed(batch->keys[i], &result);
		free(batch->keys[i]);
	}
	return worst;
}

static int delete_all(struct neb_client *client, const char *bucket, const char *prefix)
{
	unsigned long long deleted = 0;

	for (;;) {
		static struct batch batch;
		struct neb_list list = {
			.bucket = bucket, .prefix = prefix, .visit = take_key, .arg = &batch};
		struct neb_result result;
		int ret;

		batch.count = 0;
		if (neb_list(client, &list, &result))
			return remote_failed(bucket, &result);
		if (batch.count == 0)
			break;
		deleted += batch.count;
		ret = delete_batch(client, bucket, &batch);
		if (ret)
			return ret;
	}
	printf("deleted %llu objects\n", deleted);
	return CLI_OK;
}

static int delete_one(struct neb_client *client, const struct remote_opts *opts, const char *bucket,
	const char *key, bool force)
{
	struct neb_result result;

	if (!force && neb_head(client, bucket, key, &result))
		return remote_failed(key, &result);
	if (neb_delete(client, bucket, key, &result))
		return remote_failed(key, &result);
	remote_report(opts, key, &result);
	return CLI_OK;
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
			"a key is missing; -r deletes all that a bucket holds, rb the bucket");
	ret = remote_open(&opts, &client);
	if (ret)
		return ret;
	ret = recursive ? delete_all(client, bucket, key)
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
