/* cli/cmd_replicate.c: `nebulaio replicate`: shows, sets and removes a bucket's replication. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "s3_call.h"

static const char USAGE[] =
	"usage: nebulaio replicate [OPTIONS] s3://BUCKET              its replication, as XML\n"
	"       nebulaio replicate --to TARGET [OPTIONS] s3://BUCKET[/PREFIX]\n"
	"                                                    replicate it from now on\n"
	"       nebulaio replicate --delete [OPTIONS] s3://BUCKET     no longer\n"
	"\n"
	"Replication sends every new version of the bucket's objects to a bucket of another S3\n"
	"server: TARGET, which an operator has registered (`nebulaio admin target-put`). The\n"
	"bucket must keep versions (`nebulaio version --enable`).\n"
	"\n"
	"      --delete-markers  replicate delete markers, too\n"
	"      --existing        also what the bucket has already\n" REMOTE_USAGE;

enum { OWN_TO = REMOTE_OWN, OWN_DELETE, OWN_MARKERS, OWN_EXISTING };

struct asked {
	struct remote_opts opts;
	const char *target; /* NULL: none */
	bool delete, markers, existing;
	const char *bucket, *prefix;
};

static int option_take(struct asked *asked, int option, char **argv)
{
	switch (option) {
	case OWN_TO:
		asked->target = optarg;
		return CLI_OK;
	case OWN_DELETE:
		asked->delete = true;
		return CLI_OK;
	case OWN_MARKERS:
		asked->markers = true;
		return CLI_OK;
	case OWN_EXISTING:
		asked->existing = true;
		return CLI_OK;
	default:
		return remote_option(&CLI_REPLICATE, &asked->opts, option, argv);
	}
}

static int ask(struct asked *asked, int argc, char **argv)
{
	static const struct option OPTIONS[] = {REMOTE_OPTIONS,
		{"to", required_argument, NULL, OWN_TO}, {"delete", no_argument, NULL, OWN_DELETE},
		{"delete-markers", no_argument, NULL, OWN_MARKERS},
		{"existing", no_argument, NULL, OWN_EXISTING}, {0}};
	int option, ret;

	*asked = (struct asked){0};
	remote_defaults(&asked->opts);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT, OPTIONS, NULL)) != -1) {
		ret = option_take(asked, option, argv);
		if (ret)
			return ret;
	}
	if (optind != argc - 1 || !remote_parse(argv[optind], &asked->bucket, &asked->prefix))
		return cli_usage_error(&CLI_REPLICATE, "expected s3://BUCKET");
	if (asked->delete &&asked->target)
		return cli_usage_error(&CLI_REPLICATE, "give only one of --to and --delete");
	if (!asked->target && (asked->markers || asked->existing || *asked->prefix))
		return cli_usage_error(&CLI_REPLICATE, "name the target: --to TARGET");
	return CLI_OK;
}

/* The second version of S3's schema. */
static void rule_build(const struct asked *asked, struct buf *xml)
{
	buf_put_str(xml, "<ReplicationConfiguration><Role></Role><Rule><ID>nebulaio</ID>"
			 "<Priority>1</Priority><Filter>");
	xml_element("Prefix", slice_str(asked->prefix), xml);
	buf_printf(xml,
		"</Filter><Status>Enabled</Status>"
		"<DeleteMarkerReplication><Status>%s</Status></DeleteMarkerReplication>"
		"<ExistingObjectReplication><Status>%s</Status></ExistingObjectReplication>"
		"<Destination><Bucket>arn:aws:s3:::",
		asked->markers ? "Enabled" : "Disabled", asked->existing ? "Enabled" : "Disabled");
	xml_escape(slice_str(asked->target), xml);
	buf_put_str(xml, "</Bucket></Destination></Rule></ReplicationConfiguration>");
}

static int replicate_run(int argc, char **argv)
{
	struct asked asked;
	struct buf body;
	int ret = ask(&asked, argc, argv);

	if (ret)
		return ret;
	buf_init(&body, 64 * KIB);
	if (asked.target)
		rule_build(&asked, &body);
	ret = s3_setting(&asked.opts, asked.bucket, "replication=", asked.delete, &body);
	buf_free(&body);
	return ret;
}

const struct cli_command CLI_REPLICATE = {
	.name = "replicate",
	.summary = "replicate a bucket to another server",
	.usage = USAGE,
	.run = replicate_run,
};
