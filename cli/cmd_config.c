/* cli/cmd_config.c: `nebulaio tag`, `version` and `policy`: read and write the settings that S3
 * keeps besides objects. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/codec.h"
#include "s3_call.h"

#define ANSWER_BYTES_MAX (4 * MIB)
#define POLICY_BYTES_MAX (20 * KIB)
#define TAGS_MAX	 50u

static const char TAG_USAGE[] =
	"usage: nebulaio tag [OPTIONS] s3://BUCKET[/KEY]                what it is tagged with\n"
	"       nebulaio tag [OPTIONS] s3://BUCKET[/KEY] NAME=VALUE...  these tags and no others\n"
	"       nebulaio tag --delete [OPTIONS] s3://BUCKET[/KEY]       none\n"
	"\n"
	"Shows or sets the tags of an object; without KEY, those of the bucket.\n"
	"\n"
	"      --version-id ID  use this version of the object\n" REMOTE_USAGE;

static const char VERSION_USAGE[] =
	"usage: nebulaio version                                    of this program\n"
	"       nebulaio version [OPTIONS] s3://BUCKET              whether versions are kept\n"
	"       nebulaio version --enable [OPTIONS] s3://BUCKET     keep them from now on\n"
	"       nebulaio version --suspend [OPTIONS] s3://BUCKET    keep no new ones\n"
	"       nebulaio version --list [OPTIONS] s3://BUCKET[/PREFIX]\n"
	"                                                    all versions and delete markers\n"
	"\n" REMOTE_USAGE;

static const char POLICY_USAGE[] =
	"usage: nebulaio policy [OPTIONS] s3://BUCKET               the bucket's policy\n"
	"       nebulaio policy [OPTIONS] s3://BUCKET FILE          make this its policy; - is\n"
	"                                                           standard input\n"
	"       nebulaio policy --public [OPTIONS] s3://BUCKET FILE the same; ends the block of\n"
	"                                                           public access first\n"
	"       nebulaio policy --delete [OPTIONS] s3://BUCKET      no policy\n"
	"\n"
	"A policy is a JSON document in the S3 policy language. A new bucket blocks public\n"
	"access: it refuses a policy that lets everybody in, until the block is removed\n"
	"(--public).\n"
	"\n" REMOTE_USAGE;

enum { OWN_DELETE = REMOTE_OWN, OWN_ENABLE, OWN_SUSPEND, OWN_LIST, OWN_VERSION_ID, OWN_PUBLIC };
struct asked {
	struct remote_opts opts;
	int action; /* 0, or one of the actions above */
	const char *version_id;
	const char *bucket, *key; /* key NULL: the bucket */
	char **rest;
	int rest_count;
};

static int ask(const struct cli_command *command, const struct option *options, struct asked *asked,
	int argc, char **argv)
{
	const char *key;
	int option, ret;

	*asked = (struct asked){0};
	remote_defaults(&asked->opts);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT, options, NULL)) != -1) {
		if (option == OWN_VERSION_ID) {
			asked->version_id = optarg;
			continue;
		}
		if (option >= REMOTE_OWN && asked->action)
			return cli_usage_error(command, "give only one of these options");
		if (option >= REMOTE_OWN) {
			asked->action = option;
			continue;
		}
		ret = remote_option(command, &asked->opts, option, argv);
		if (ret)
			return ret;
	}
	if (optind >= argc || !remote_parse(argv[optind], &asked->bucket, &key))
		return cli_usage_error(command, "expected s3://BUCKET");
	asked->key = *key ? key : NULL;
	asked->rest = argv + optind + 1;
	asked->rest_count = argc - optind - 1;
	return CLI_OK;
}

/* Sends one request about asked's bucket or key; fn reads the answer. */
static int perform(struct asked *asked, const char *method, const char *query,
	const struct buf *body, struct buf *answer)
{
	struct s3_call call = {.method = method,
		.bucket = asked->bucket,
		.key = asked->key,
		.query = query,
		.body = body ? body->data : NULL,
		.body_bytes = body ? body->len : 0};
	struct neb_client *client;
	int ret;

	if (body && body->failed) {
		fprintf(stderr, "nebulaio: too long for one request\n");
		return CLI_FAILED;
	}
	ret = remote_open(&asked->opts, &client);
	if (ret)
		return ret;
	ret = s3_call(client, &call, answer, NULL);
	neb_client_close(client);
	return ret;
}

static int answer_read(const struct buf *answer, xml_fn *fn, void *arg)
{
	if (xml_read(answer->data, answer->len - 1, fn, arg) == 0)
		return CLI_OK;
	fprintf(stderr, "nebulaio: the server's answer is not XML\n");
	return CLI_FAILED;
}

/* ---- tag ---- */

struct tag_print {
	bool json;
	unsigned count;
	char name[1024];
};

static void print_tag(void *arg, enum xml_event event, const char *name, const char *text)
{
	struct tag_print *print = arg;

	if (event == XML_BEGIN)
		return;
	if (strcmp(name, "Key") == 0)
		snprintf(print->name, sizeof(print->name), "%s", text);
	if (strcmp(name, "Value") != 0)
		return;
	if (!print->json) {
		printf("%s=%s\n", remote_text(print->name), remote_text(text));
		return;
	}
	printf(print->count++ ? ", " : "{");
	remote_print_json(stdout, print->name);
	printf(": ");
	remote_print_json(stdout, text);
}

static int tags_build(const struct asked *asked, struct buf *body)
{
	buf_put_str(body, "<Tagging><TagSet>");
	for (int i = 0; i < asked->rest_count; i++) {
		const char *equals = strchr(asked->rest[i], '=');

		if (!equals || equals == asked->rest[i])
			return cli_usage_error(&CLI_TAG, "'%s' is not NAME=VALUE", asked->rest[i]);
		buf_put_str(body, "<Tag>");
		xml_element(
			"Key", slice_of(asked->rest[i], (size_t)(equals - asked->rest[i])), body);
		xml_element("Value", slice_str(equals + 1), body);
		buf_put_str(body, "</Tag>");
	}
	buf_put_str(body, "</TagSet></Tagging>");
	return CLI_OK;
}

static int tag_perform(struct asked *asked, const char *query, struct buf *body, struct buf *answer)
{
	struct tag_print print = {.json = asked->opts.json};
	int ret;

	if (asked->action == OWN_DELETE)
		return perform(asked, "DELETE", query, NULL, answer);
	if (asked->rest_count) {
		ret = tags_build(asked, body);
		return ret ? ret : perform(asked, "PUT", query, body, answer);
	}
	ret = perform(asked, "GET", query, NULL, answer);
	if (!ret)
		ret = answer_read(answer, print_tag, &print);
	if (!ret && print.json)
		printf(print.count ? "}\n" : "{}\n");
	return ret;
}

static int tag_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {REMOTE_OPTIONS,
		{"delete", no_argument, NULL, OWN_DELETE},
		{"version-id", required_argument, NULL, OWN_VERSION_ID}, {0}};
	struct buf body, answer, query;
	struct asked asked;
	int ret = ask(&CLI_TAG, OPTIONS, &asked, argc, argv);

	if (ret)
		return ret;
	if (asked.rest_count > (int)TAGS_MAX || (asked.action && asked.rest_count))
		return cli_usage_error(&CLI_TAG, "too many arguments");
	buf_init(&body, 64 * KIB);
	buf_init(&answer, ANSWER_BYTES_MAX);
	buf_init(&query, 2048);
	buf_put_str(&query, "tagging=");
	if (asked.version_id) {
		buf_put_str(&query, "&versionId=");
		uri_encode(slice_str(asked.version_id), 0, &query);
	}
	buf_put(&query, "", 1);
	ret = query.failed ? CLI_FAILED : tag_perform(&asked, query.data, &body, &answer);
	buf_free(&query);
	buf_free(&answer);
	buf_free(&body);
	return ret;
}

/* ---- version ---- */

#define URL_ENCODED "<EncodingType>url</EncodingType>"

struct version_print {
	bool json, truncated, encoded;
	const char *bucket;
	struct buf key, id, modified, etag, next_key, next_id;
	char bytes[24], latest[8];
	char status[32];
};

static void keep(struct buf *to, const char *text)
{
	buf_reset(to);
	buf_put_str(to, text);
	buf_put(to, "", 1);
}

/* The same for a key, which is encoded if the server says so: XML cannot contain every key. A text
 * with wrong encoding, or with a NUL, stays as it is. */
static void keep_key(const struct version_print *print, struct buf *to, const char *text)
{
	size_t len;

	keep(to, text);
	if (!print->encoded || to->failed)
		return;
	if (uri_decode(slice_str(text), URI_PLUS_IS_SPACE, to->data, to->len - 1, &len) ||
		memchr(to->data, '\0', len))
		keep(to, text);
	else
		to->data[len] = '\0';
}

static const char *kept(const struct buf *buf)
{
	return buf->len && !buf->failed ? buf->data : "";
}

static void print_version(const struct version_print *print, bool marker)
{
	if (print->json) {
		printf("{\"key\": ");
		remote_print_json(stdout, kept(&print->key));
		printf(", \"version_id\": ");
		remote_print_json(stdout, kept(&print->id));
		printf(", \"latest\": %s, \"delete_marker\": %s, \"bytes\": %s, "
		       "\"last_modified\": ",
			strcmp(print->latest, "true") == 0 ? "true" : "false",
			marker ? "true" : "false", marker ? "0" : print->bytes);
		remote_print_json(stdout, kept(&print->modified));
		printf("}\n");
	} else {
		printf("%-24s %12s %-34s %s %s\n", remote_text(kept(&print->modified)),
			marker ? "DELETED" : print->bytes, remote_text(kept(&print->id)),
			strcmp(print->latest, "true") == 0 ? "*" : " ",
			remote_text(kept(&print->key)));
	}
}

static void on_version(void *arg, enum xml_event event, const char *name, const char *text)
{
	struct version_print *print = arg;

	if (event == XML_BEGIN)
		return;
	if (strcmp(name, "Key") == 0)
		keep_key(print, &print->key, text);
	else if (strcmp(name, "VersionId") == 0)
		keep(&print->id, text);
	else if (strcmp(name, "LastModified") == 0)
		keep(&print->modified, text);
	else if (strcmp(name, "Size") == 0)
		snprintf(print->bytes, sizeof(print->bytes), "%llu", strtoull(text, NULL, 10));
	else if (strcmp(name, "IsLatest") == 0)
		snprintf(print->latest, sizeof(print->latest), "%s", text);
	else if (strcmp(name, "IsTruncated") == 0)
		print->truncated = strcmp(text, "true") == 0;
	else if (strcmp(name, "NextKeyMarker") == 0)
		keep_key(print, &print->next_key, text);
	else if (strcmp(name, "NextVersionIdMarker") == 0)
		keep(&print->next_id, text);
	else if (strcmp(name, "Status") == 0)
		snprintf(print->status, sizeof(print->status), "%s", text);
	else if (strcmp(name, "Version") == 0 || strcmp(name, "DeleteMarker") == 0)
		print_version(print, name[0] == 'D');
}

static int versions_list(struct asked *asked, struct version_print *print, struct buf *answer)
{
	struct buf query;
	struct asked bucket = *asked;
	int ret;

	bucket.key = NULL;
	buf_init(&query, 16 * KIB);
	do {
		buf_reset(&query);
		buf_reset(answer);
		buf_put_str(&query, "versions=&encoding-type=url&prefix=");
		uri_encode(slice_str(asked->key), 0, &query);
		if (print->truncated) {
			buf_put_str(&query, "&key-marker=");
			uri_encode(slice_str(kept(&print->next_key)), 0, &query);
			buf_put_str(&query, "&version-id-marker=");
			uri_encode(slice_str(kept(&print->next_id)), 0, &query);
		}
		buf_put(&query, "", 1);
		print->truncated = false;
		ret = query.failed ? CLI_FAILED : perform(&bucket, "GET", query.data, NULL, answer);
		print->encoded = !ret && slice_find(buf_slice(answer), SLICE(URL_ENCODED)) >= 0;
		if (!ret)
			ret = answer_read(answer, on_version, print);
	} while (!ret && print->truncated);
	buf_free(&query);
	return ret;
}

static int version_perform(struct asked *asked, struct version_print *print, struct buf *answer)
{
	struct buf body;
	int ret;

	if (asked->action == OWN_LIST)
		return versions_list(asked, print, answer);
	if (asked->action) {
		buf_init(&body, 1024);
		buf_printf(&body,
			"<VersioningConfiguration><Status>%s</Status></VersioningConfiguration>",
			asked->action == OWN_ENABLE ? "Enabled" : "Suspended");
		ret = perform(asked, "PUT", "versioning=", &body, answer);
		buf_free(&body);
		return ret;
	}
	ret = perform(asked, "GET", "versioning=", NULL, answer);
	if (!ret)
		ret = answer_read(answer, on_version, print);
	if (!ret)
		printf(asked->opts.json ? "{\"versioning\": \"%s\"}\n" : "%s\n",
			print->status[0] ? remote_text(print->status) : "Off");
	return ret;
}

static int version_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {REMOTE_OPTIONS,
		{"enable", no_argument, NULL, OWN_ENABLE},
		{"suspend", no_argument, NULL, OWN_SUSPEND}, {"list", no_argument, NULL, OWN_LIST},
		{0}};
	struct version_print print = {0};
	struct buf *const bufs[] = {&print.key, &print.id, &print.modified, &print.etag,
		&print.next_key, &print.next_id};
	struct asked asked;
	struct buf answer;
	int ret = ask(&CLI_VERSION, OPTIONS, &asked, argc, argv);

	if (ret)
		return ret;
	if (asked.rest_count || (asked.key && asked.action != OWN_LIST))
		return cli_usage_error(&CLI_VERSION, "expected one s3://BUCKET");
	print.json = asked.opts.json;
	for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
		buf_init(bufs[i], 8 * KIB);
	buf_init(&answer, ANSWER_BYTES_MAX);
	ret = version_perform(&asked, &print, &answer);
	buf_free(&answer);
	for (size_t i = 0; i < ARRAY_LEN(bufs); i++)
		buf_free(bufs[i]);
	return ret;
}

/* ---- policy ---- */

static int file_read(const char *path, struct buf *to)
{
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	char chunk[4096];
	size_t n;

	if (!file) {
		fprintf(stderr, "nebulaio: %s: %s\n", path, strerror(errno));
		return errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED;
	}
	while ((n = fread(chunk, 1, sizeof(chunk), file)) > 0)
		buf_put(to, chunk, n);
	if (file != stdin)
		fclose(file);
	if (!to->failed)
		return CLI_OK;
	fprintf(stderr, "nebulaio: %s: too long; a policy has at most %llu bytes\n", path,
		(unsigned long long)POLICY_BYTES_MAX);
	return CLI_FAILED;
}

static int policy_put(struct asked *asked, struct buf *body, struct buf *answer)
{
	int ret = file_read(asked->rest[0], body);

	if (!ret && asked->action == OWN_PUBLIC)
		ret = perform(asked, "DELETE", "publicAccessBlock=", NULL, answer);
	return ret ? ret : perform(asked, "PUT", "policy=", body, answer);
}

static int policy_run(int argc, char **argv)
{
	static const struct option OPTIONS[] = {REMOTE_OPTIONS,
		{"delete", no_argument, NULL, OWN_DELETE},
		{"public", no_argument, NULL, OWN_PUBLIC}, {0}};
	struct buf body, answer;
	struct asked asked;
	int ret = ask(&CLI_POLICY, OPTIONS, &asked, argc, argv);

	if (ret)
		return ret;
	if (asked.key || asked.rest_count > 1 ||
		(asked.action && asked.rest_count != (asked.action == OWN_PUBLIC)))
		return cli_usage_error(&CLI_POLICY, "expected one s3://BUCKET, and a file at most");
	buf_init(&body, POLICY_BYTES_MAX);
	buf_init(&answer, ANSWER_BYTES_MAX);
	if (asked.action == OWN_DELETE) {
		ret = perform(&asked, "DELETE", "policy=", NULL, &answer);
	} else if (asked.rest_count) {
		ret = policy_put(&asked, &body, &answer);
	} else {
		ret = perform(&asked, "GET", "policy=", NULL, &answer);
		if (!ret)
			printf("%s\n", answer.data);
	}
	buf_free(&answer);
	buf_free(&body);
	return ret;
}

const struct cli_command CLI_TAG = {
	.name = "tag",
	.summary = "show, set or remove an object's or bucket's tags",
	.usage = TAG_USAGE,
	.run = tag_run,
};

const struct cli_command CLI_VERSION = {
	.name = "version",
	.summary = "keep versions of a bucket's objects, and list them",
	.usage = VERSION_USAGE,
	.run = version_run,
};

const struct cli_command CLI_POLICY = {
	.name = "policy",
	.summary = "show, set or remove a bucket's policy",
	.usage = POLICY_USAGE,
	.run = policy_run,
};
