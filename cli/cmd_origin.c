/* cli/cmd_origin.c: `nebulaio origin`: shows, sets and removes a bucket's origin. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "s3_call.h"

static const char USAGE[] =
	"usage: nebulaio origin [OPTIONS] s3://BUCKET             its origin, as XML\n"
	"       nebulaio origin --set TARGET[/PREFIX] [--bytes SIZE] [--wait SECONDS]\n"
	"                       [--ranges WHERE] [--revalidate SECONDS] [OPTIONS] s3://BUCKET\n"
	"                                                it has this origin from now on\n"
	"       nebulaio origin --delete [OPTIONS] s3://BUCKET     it has none any more\n"
	"\n"
	"An object that is read and is not in the bucket is fetched from the bucket's origin and\n"
	"stored: TARGET is a bucket of another S3 server, which an operator has registered\n"
	"(`nebulaio admin target-put`). PREFIX is put before each key there. What was fetched\n"
	"stays when the origin is removed.\n"
	"\n"
	"      --bytes SIZE    when it holds more, the copies read longest ago go\n"
	"      --wait SECONDS  how long a GET waits for its first bytes (60)\n"
	"      --ranges WHERE  where a range comes from that is not here: Follow (the default),\n"
	"                      with the whole object; Ahead, directly when the fetch of the\n"
	"                      object is far from it; Alone, directly, not stored\n"
	"      --revalidate SECONDS  a copy that was fetched, or compared with the origin, so\n"
	"                      long ago is compared before it is read (never)\n" REMOTE_USAGE;

enum { OWN_SET = REMOTE_OWN, OWN_BYTES, OWN_WAIT, OWN_RANGES, OWN_REVALIDATE, OWN_DELETE };

struct asked {
	struct remote_opts opts;
	const char *target;	  /* with its prefix; NULL: none */
	const char *bytes;	  /* NULL: no bound */
	const char *wait_s;	  /* NULL: the server's default */
	const char *ranges;	  /* NULL: the server's default */
	const char *revalidate_s; /* NULL: never */
	bool delete;
	const char *bucket;
};

static int option_take(struct asked *asked, int option, char **argv)
{
	switch (option) {
	case OWN_SET:
		asked->target = optarg;
		return CLI_OK;
	case OWN_BYTES:
		asked->bytes = optarg;
		return CLI_OK;
	case OWN_WAIT:
		asked->wait_s = optarg;
		return CLI_OK;
	case OWN_RANGES:
		asked->ranges = optarg;
		return CLI_OK;
	case OWN_REVALIDATE:
		asked->revalidate_s = optarg;
		return CLI_OK;
	case OWN_DELETE:
		asked->delete = true;
		return CLI_OK;
	default:
		return remote_option(&CLI_ORIGIN, &asked->opts, option, argv);
	}
}

static int ask(struct asked *asked, int argc, char **argv)
{
	static const struct option OPTIONS[] = {REMOTE_OPTIONS,
		{"set", required_argument, NULL, OWN_SET},
		{"bytes", required_argument, NULL, OWN_BYTES},
		{"wait", required_argument, NULL, OWN_WAIT},
		{"ranges", required_argument, NULL, OWN_RANGES},
		{"revalidate", required_argument, NULL, OWN_REVALIDATE},
		{"delete", no_argument, NULL, OWN_DELETE}, {0}};
	const char *prefix;
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
	if (optind != argc - 1 || !remote_parse(argv[optind], &asked->bucket, &prefix) || *prefix)
		return cli_usage_error(&CLI_ORIGIN, "expected s3://BUCKET");
	if (asked->delete &&asked->target)
		return cli_usage_error(&CLI_ORIGIN, "give only one of --set and --delete");
	if ((asked->bytes || asked->wait_s || asked->ranges || asked->revalidate_s) &&
		!asked->target)
		return cli_usage_error(
			&CLI_ORIGIN, "--bytes, --wait, --ranges and --revalidate go with --set");
	return CLI_OK;
}

static void document_build(const struct asked *asked, struct buf *xml)
{
	struct slice prefix = slice_str(asked->target), name = slice_split(&prefix, '/');

	buf_put_str(xml, "<OriginConfiguration>");
	xml_element("Target", name, xml);
	xml_element("Prefix", prefix, xml);
	if (asked->bytes)
		xml_element("Bytes", slice_str(asked->bytes), xml);
	if (asked->wait_s)
		xml_element("WaitSeconds", slice_str(asked->wait_s), xml);
	if (asked->ranges)
		xml_element("Ranges", slice_str(asked->ranges), xml);
	if (asked->revalidate_s)
		xml_element("RevalidateSeconds", slice_str(asked->revalidate_s), xml);
	buf_put_str(xml, "</OriginConfiguration>");
}

static int origin_run(int argc, char **argv)
{
	struct asked asked;
	struct buf body;
	int ret = ask(&asked, argc, argv);

	if (ret)
		return ret;
	buf_init(&body, 64 * KIB);
	if (asked.target)
		document_build(&asked, &body);
	ret = s3_setting(&asked.opts, asked.bucket, "origin=", asked.delete, &body);
	buf_free(&body);
	return ret;
}

const struct cli_command CLI_ORIGIN = {
	.name = "origin",
	.summary = "fetch what a bucket lacks from another server",
	.usage = USAGE,
	.run = origin_run,
};
