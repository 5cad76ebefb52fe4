/* cli/cmd_bucket.c: `nebulaio mb` and `nebulaio rb`: make and remove a bucket. */
#include "remote.h"

#include <stdio.h>

#include "base/base.h"

typedef int bucket_fn(struct neb_client *client, const char *bucket, struct neb_result *ret_result);

/* Runs fn for the bucket that the operand names, and prints the result. */
static int bucket_do(const struct cli_command *command, const struct remote_opts *opts,
	bucket_fn *fn, int argc, char **argv)
{
	struct neb_client *client;
	struct neb_result result;
	const char *bucket, *key;
	int ret;

	if (optind != argc - 1 || !remote_parse(argv[optind], &bucket, &key) || *key)
		return cli_usage_error(command, "expected s3://BUCKET");
	ret = remote_open(opts, &client);
	if (ret)
		return ret;
	ret = fn(client, bucket, &result) ? remote_failed(bucket, &result) : CLI_OK;
	if (!ret && opts->json) {
		printf("{\"bucket\": ");
		remote_print_json(stdout, bucket);
		printf(", \"transport\": \"%s\"}\n", neb_transport_name(result.transport));
	}
	remote_report(opts, bucket, &result);
	neb_client_close(client);
	return ret;
}

static int bucket_run(const struct cli_command *command, bucket_fn *fn, int argc, char **argv)
{
	struct remote_opts opts;
	int ret = remote_options(command, argc, argv, &opts);

	return ret ? ret : bucket_do(command, &opts, fn, argc, argv);
}

/* ---- Memory buckets. ---- */

enum { MB_MEMORY = REMOTE_OWN, MB_OBJECTS, MB_TTL, MB_REFUSE };

static char memory_text[160]; /* the header's value; empty: an ordinary bucket */

static int memory_create(
	struct neb_client *client, const char *bucket, struct neb_result *ret_result)
{
	const struct neb_header header = {.name = "x-nebulaio-memory", .value = memory_text};
	const struct neb_request request = {
		.op = NEB_CREATE_BUCKET, .bucket = bucket, .headers = &header, .header_count = 1};

	return neb_perform(client, &request, ret_result);
}

struct memory_args {
	uint64_t bytes, objects, ttl_s;
	bool bounds, refuses; /* an option besides --memory was given */
};

static int memory_option(struct memory_args *args, int option)
{
	struct slice value = slice_str(optarg ? optarg : "");

	args->bounds |= option != MB_MEMORY;
	if (option == MB_MEMORY)
		return slice_to_bytes(value, &args->bytes) || !args->bytes
			       ? cli_usage_error(&CLI_MB, "--memory needs a size, such as 64MiB")
			       : CLI_OK;
	if (option == MB_OBJECTS)
		return slice_to_u64(value, &args->objects)
			       ? cli_usage_error(&CLI_MB, "--objects needs a number")
			       : CLI_OK;
	if (option == MB_TTL)
		return slice_to_u64(value, &args->ttl_s)
			       ? cli_usage_error(&CLI_MB, "--ttl needs a number of seconds")
			       : CLI_OK;
	args->refuses = true;
	return CLI_OK;
}

static int mb_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		REMOTE_OPTIONS,
		{"memory", required_argument, NULL, MB_MEMORY},
		{"objects", required_argument, NULL, MB_OBJECTS},
		{"ttl", required_argument, NULL, MB_TTL},
		{"refuse-when-full", no_argument, NULL, MB_REFUSE},
		{0},
	};
	struct memory_args args = {.bytes = 0};
	struct remote_opts opts;
	int option, ret;

	remote_defaults(&opts);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT, OPTIONS, NULL)) != -1) {
		ret = option >= MB_MEMORY ? memory_option(&args, option)
					  : remote_option(&CLI_MB, &opts, option, argv);
		if (ret)
			return ret;
	}
	if (!args.bytes && args.bounds)
		return cli_usage_error(
			&CLI_MB, "only a memory bucket has bounds: add --memory SIZE");
	if (args.bytes)
		snprintf(memory_text, sizeof(memory_text),
			"bytes=%llu, objects=%llu, ttl=%llu, full=%s",
			(unsigned long long)args.bytes, (unsigned long long)args.objects,
			(unsigned long long)args.ttl_s, args.refuses ? "refuse" : "evict");
	return bucket_do(
		&CLI_MB, &opts, args.bytes ? memory_create : neb_bucket_create, argc, argv);
}

static int rb_run(int argc, char **argv)
{
	return bucket_run(&CLI_RB, neb_bucket_delete, argc, argv);
}

const struct cli_command CLI_MB = {
	.name = "mb",
	.summary = "make a bucket",
	.usage =
		"usage: nebulaio mb [OPTIONS] s3://BUCKET\n"
		"       nebulaio mb --memory SIZE [--objects N] [--ttl S] [--refuse-when-full]\n"
		"                   [OPTIONS] s3://BUCKET\n\n"
		"A name of the form base--zone--x-s3 makes a directory bucket of that zone\n"
		"(s3_express.enabled).\n\n"
		"      --memory SIZE      a memory bucket: its objects are in the server's memory\n"
		"                         alone and END WITH ITS PROCESS; the bucket stays. All\n"
		"                         that its objects take fits SIZE (memory.buckets_bytes)\n"
		"      --objects N        it has at most N objects\n"
		"      --ttl S            an object ends S seconds after it was put\n"
		"      --refuse-when-full a full bucket refuses puts (507); otherwise the objects\n"
		"                         used least recently end to make room\n" REMOTE_USAGE,
	.run = mb_run,
};

const struct cli_command CLI_RB = {
	.name = "rb",
	.summary = "remove an empty bucket",
	.usage = "usage: nebulaio rb [OPTIONS] s3://BUCKET\n\n" REMOTE_USAGE,
	.run = rb_run,
};
