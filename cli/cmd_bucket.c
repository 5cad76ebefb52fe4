/* cli/cmd_bucket.c: `nebulaio mb` and `nebulaio rb`: make and remove a bucket. */
#include "remote.h"

typedef int bucket_fn(struct neb_client *client, const char *bucket, struct neb_result *ret_result);

static int bucket_run(const struct cli_command *command, bucket_fn *fn, int argc, char **argv)
{
	struct remote_opts opts;
	struct neb_client *client;
	struct neb_result result;
	const char *bucket, *key;
	int ret;

	ret = remote_options(command, argc, argv, &opts);
	if (ret)
		return ret;
	if (optind != argc - 1 || !remote_parse(argv[optind], &bucket, &key) || *key)
		return cli_usage_error(command, "expected s3://BUCKET");
	ret = remote_open(&opts, &client);
	if (ret)
		return ret;
	ret = fn(client, bucket, &result) ? remote_failed(bucket, &result) : CLI_OK;
	if (!ret && opts.json) {
		printf("{\"bucket\": ");
		remote_print_json(stdout, bucket);
		printf(", \"transport\": \"%s\"}\n", neb_transport_name(result.transport));
	}
	remote_report(&opts, bucket, &result);
	neb_client_close(client);
	return ret;
}

static int mb_run(int argc, char **argv)
{
	return bucket_run(&CLI_MB, neb_bucket_create, argc, argv);
}

static int rb_run(int argc, char **argv)
{
	return bucket_run(&CLI_RB, neb_bucket_delete, argc, argv);
}

const struct cli_command CLI_MB = {
	.name = "mb",
	.summary = "make a bucket",
	.usage = "usage: nebulaio mb [OPTIONS] s3://BUCKET\n\n"
		 "A name of the form base--zone--x-s3 makes a directory bucket of that zone\n"
		 "(s3_express.enabled).\n\n" REMOTE_USAGE,
	.run = mb_run,
};

const struct cli_command CLI_RB = {
	.name = "rb",
	.summary = "remove an empty bucket",
	.usage = "usage: nebulaio rb [OPTIONS] s3://BUCKET\n\n" REMOTE_USAGE,
	.run = rb_run,
};
