/* cli/cmd_conformance.c: `nebulaio conformance`: holds any S3 endpoint against the RDMA token
 * contract (docs/spec/token.md) or against hipobj-rc-v2 (docs/spec/hipobj.md), one case for each of
 * its rules. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "conformance/conformance.h"
#include "remote.h"

static const char USAGE[] =
	"usage: nebulaio conformance [OPTIONS] ENDPOINT\n"
	"\n"
	"Tests an S3 endpoint, http://HOST:PORT or https://HOST:PORT, against the rules of S3\n"
	"over RDMA tokens (docs/spec/token.md), each by a case of its own, and prints TAP. The\n"
	"server may be anybody's: it needs keys that may create a bucket, or --bucket, and a\n"
	"queue pair by ?rdma-connect. Bytes move between this host's RDMA device and its own.\n"
	"\n"
	"      --dialect NAME     token (default); hipobj: hipobj-rc-v2 (docs/spec/hipobj.md)\n"
	"      --bucket NAME      use this bucket; keys begin with conformance-, and are removed\n"
	"      --other-access-key KEY\n"
	"      --other-secret-key KEY\n"
	"                         of another user who may read and write the bucket: some rules\n"
	"                         are about two users\n"
	"      --only NUMBER      the cases whose numbers begin so: 3, 30, 301\n"
	"      --require          what the server declines to do is a failure, too\n"
	"      --list             print the rules and their numbers, and ask nobody\n"
	"  --device NAME      RDMA device (NEBULAIO_RDMA_DEVICE_NAME); default: the card that\n"
	"                     leads to the server; for a server on this host: simulated\n"
	"  --access-key KEY   (NEBULAIO_ACCESS_KEY, AWS_ACCESS_KEY_ID)\n"
	"  --secret-key KEY   (NEBULAIO_SECRET_KEY, AWS_SECRET_ACCESS_KEY)\n"
	"  --profile NAME     keys, region and device of ~/.config/nebulaio/config\n"
	"                     (NEBULAIO_PROFILE; default)\n"
	"      --json         print JSON, one object a line\n"
	"\n"
	"A case ends as ok; as not ok: the server breaks the rule; or as ok with # SKIP and the\n"
	"reason: the server declines to do it, or the case was not tried. Exit codes: 0 no rule\n"
	"is broken, 1 one is, or a case got no answer, 3 the server does not speak it, 4 the\n"
	"keys, 5 no answer.\n";

enum {
	OWN_BUCKET = REMOTE_OWN,
	OWN_DIALECT,
	OWN_OTHER_ACCESS,
	OWN_OTHER_SECRET,
	OWN_ONLY,
	OWN_REQUIRE,
	OWN_LIST
};

struct asked {
	struct remote_opts remote;
	struct conf_opts conf;
	bool require, list;
};

/* ---- Output. ---- */

struct printer {
	bool json;
	uint32_t count;
};

static const char *const VERDICTS[] = {
	[CONF_PASS] = "pass",
	[CONF_FAIL] = "fail",
	[CONF_UNSUPPORTED] = "unsupported",
	[CONF_ERROR] = "error",
};

static void print_json(const struct conf_case *one, enum conf_verdict verdict, const char *why)
{
	printf("{\"case\": %u, \"verdict\": \"%s\", \"rule\": ", one->number, VERDICTS[verdict]);
	remote_print_json(stdout, one->rule);
	printf(", \"why\": ");
	remote_print_json(stdout, why);
	printf("}\n");
}

static void print_case(
	void *arg, const struct conf_case *one, enum conf_verdict verdict, const char *why)
{
	struct printer *printer = arg;
	bool broken = verdict == CONF_FAIL || verdict == CONF_ERROR;

	printer->count++;
	if (printer->json) {
		print_json(one, verdict, why);
	} else {
		printf("%s %u - %u %s", broken ? "not ok" : "ok", printer->count, one->number,
			one->rule);
		if (verdict == CONF_UNSUPPORTED)
			printf(" # SKIP not supported: %s", remote_text(why));
		printf("\n");
		if (broken)
			printf("# %s%s\n", verdict == CONF_ERROR ? "not tried: " : "",
				remote_text(why));
	}
	fflush(stdout);
}

static void print_totals(const struct printer *printer, const struct conf_totals *totals)
{
	if (printer->json)
		printf("{\"passed\": %u, \"failed\": %u, \"unsupported\": %u, \"errors\": %u}\n",
			totals->passed, totals->failed, totals->unsupported, totals->errors);
	else
		printf("1..%u\n# %u passed, %u failed, %u not supported, %u not tried\n",
			printer->count, totals->passed, totals->failed, totals->unsupported,
			totals->errors);
}

static int list_rules(bool hipobj)
{
	const struct conf_case *one;

	for (uint32_t idx = 0; (one = conf_case_at(hipobj, idx)) != NULL; idx++)
		printf("%u %s\n", one->number, one->rule);
	return CLI_OK;
}

/* ---- Options. ---- */

static int option_take(struct asked *asked, int option, char **argv)
{
	switch (option) {
	case OWN_BUCKET:
		asked->conf.bucket = optarg;
		return CLI_OK;
	case OWN_DIALECT:
		asked->conf.hipobj = strcmp(optarg, "hipobj") == 0;
		if (asked->conf.hipobj || strcmp(optarg, "token") == 0)
			return CLI_OK;
		return cli_usage_error(
			&CLI_CONFORMANCE, "--dialect %s: it is token or hipobj", optarg);
	case OWN_OTHER_ACCESS:
		asked->conf.other.access = optarg;
		return CLI_OK;
	case OWN_OTHER_SECRET:
		asked->conf.other.secret = optarg;
		return CLI_OK;
	case OWN_ONLY:
		asked->conf.only = optarg;
		return CLI_OK;
	case OWN_REQUIRE:
		asked->require = true;
		return CLI_OK;
	case OWN_LIST:
		asked->list = true;
		return CLI_OK;
	default:
		return remote_option(&CLI_CONFORMANCE, &asked->remote, option, argv);
	}
}

static bool is_bucket(const char *name)
{
	size_t len = strlen(name);

	return len >= 3 && len <= LIMIT_BUCKET_LEN_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == len;
}

static int options_check(struct asked *asked, int argc, char **argv)
{
	struct conf_opts *conf = &asked->conf;
	bool is_http;

	if (asked->list)
		return optind == argc ? CLI_OK
				      : cli_usage_error(&CLI_CONFORMANCE, "--list asks nobody");
	if (optind != argc - 1)
		return cli_usage_error(&CLI_CONFORMANCE, "expected one ENDPOINT");
	conf->endpoint = argv[optind];
	is_http = strncmp(conf->endpoint, "http://", 7) == 0 ||
		  strncmp(conf->endpoint, "https://", 8) == 0;
	if (!is_http || strpbrk(conf->endpoint, ", "))
		return cli_usage_error(&CLI_CONFORMANCE,
			"'%s' is not one endpoint http://HOST:PORT or https://HOST:PORT",
			conf->endpoint);
	if (!conf->other.access != !conf->other.secret)
		return cli_usage_error(
			&CLI_CONFORMANCE, "--other-access-key and --other-secret-key go together");
	if (conf->other.secret && strlen(conf->other.secret) > LIMIT_SECRET_KEY_LEN_MAX)
		return cli_usage_error(&CLI_CONFORMANCE, "--other-secret-key is too long");
	if (conf->bucket && !is_bucket(conf->bucket))
		return cli_usage_error(&CLI_CONFORMANCE, "'%s' is no bucket's name", conf->bucket);
	conf->keys.access = asked->remote.access_key;
	conf->keys.secret = asked->remote.secret_key;
	conf->region = asked->remote.region ? asked->remote.region : "us-east-1";
	conf->device_name = asked->remote.device_name;
	return asked->remote.profile_failed;
}

static int conformance_options(int argc, char **argv, struct asked *asked)
{
	/* The common options that apply here. */
	static const struct option OPTIONS[] = {{"device", required_argument, NULL, REMOTE_DEVICE},
		{"access-key", required_argument, NULL, REMOTE_ACCESS},
		{"secret-key", required_argument, NULL, REMOTE_SECRET},
		{"profile", required_argument, NULL, REMOTE_PROFILE},
		{"json", no_argument, NULL, REMOTE_JSON},
		{"dialect", required_argument, NULL, OWN_DIALECT},
		{"bucket", required_argument, NULL, OWN_BUCKET},
		{"other-access-key", required_argument, NULL, OWN_OTHER_ACCESS},
		{"other-secret-key", required_argument, NULL, OWN_OTHER_SECRET},
		{"only", required_argument, NULL, OWN_ONLY},
		{"require", no_argument, NULL, OWN_REQUIRE}, {"list", no_argument, NULL, OWN_LIST},
		{0}};
	int option, ret = CLI_OK;

	remote_defaults(&asked->remote);
	optind = 1;
	opterr = 0;
	while (!ret && (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1)
		ret = option_take(asked, option, argv);
	return ret ? ret : options_check(asked, argc, argv);
}

/* ---- The command. ---- */

static int exit_of(int error)
{
	switch (error) {
	case -EOPNOTSUPP:
		return CLI_NOT_FOUND;
	case -EACCES:
		return CLI_DENIED;
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -EHOSTUNREACH:
	case -ENETDOWN:
	case -ETIMEDOUT:
		return CLI_UNREACHABLE;
	default:
		return CLI_FAILED;
	}
}

static int conformance_run(int argc, char **argv)
{
	struct asked asked = {0};
	struct printer printer;
	struct conf_totals totals;
	char why[CONF_WHY_BYTES] = "";
	int ret = conformance_options(argc, argv, &asked);

	if (ret)
		return ret;
	if (asked.list)
		return list_rules(asked.conf.hipobj);
	printer = (struct printer){.json = asked.remote.json};
	ret = conf_run(&asked.conf, print_case, &printer, &totals, why);
	if (ret) {
		fprintf(stderr, "nebulaio: %s: %s\n", asked.conf.endpoint,
			*why ? remote_text(why) : strerror(-ret));
		return exit_of(ret);
	}
	print_totals(&printer, &totals);
	if (!printer.count)
		return cli_usage_error(
			&CLI_CONFORMANCE, "--only %s: no case has such a number", asked.conf.only);
	return totals.failed || totals.errors || (asked.require && totals.unsupported) ? CLI_FAILED
										       : CLI_OK;
}

const struct cli_command CLI_CONFORMANCE = {
	.name = "conformance",
	.summary = "test an endpoint against the rules of S3 over RDMA tokens",
	.usage = USAGE,
	.run = conformance_run,
};
