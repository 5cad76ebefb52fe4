/* cli/cmd_cp.c: `nebulaio cp`, `mv` and `cat`: objects to and from files, from object to object,
 * one or all below a folder or a prefix. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "transfer.h"
#include "tree.h"

static const char CP_USAGE[] =
	"usage: nebulaio cp [OPTIONS] FILE s3://BUCKET[/KEY]\n"
	"       nebulaio cp [OPTIONS] s3://BUCKET/KEY FILE\n"
	"       nebulaio cp [OPTIONS] s3://BUCKET/KEY s3://BUCKET[/KEY]\n"
	"       nebulaio cp -r [OPTIONS] FOLDER|s3://BUCKET[/PREFIX] FOLDER|s3://BUCKET[/PREFIX]\n"
	"       nebulaio cp [OPTIONS] 's3://BUCKET/GLOB' FOLDER|s3://BUCKET[/PREFIX]\n"
	"\n"
	"FILE \"-\" is standard input or output. A downloaded file gets its name only when it is\n"
	"complete. At the end, cp prints how many bytes each transport moved.\n"
	"With -r or a GLOB (*, ?, [...]; '*' also matches '/'), cp prints each name it copied.\n"
	"The name below the target is the rest of the key after the prefix, or after the last\n"
	"'/' before the glob's first wildcard. In the target, *, ? and [ are plain characters. A\n"
	"link to a file is copied as the file; links to folders are skipped. cp tries all names;\n"
	"the exit code is that of the worst failure.\n"
	"\n"
	"  -r, --recursive    everything below the source\n"
	"  -P, --parallel N   copy N files at a time (4)\n"
	"      --resume       continue interrupted uploads of large files, and keep an upload\n"
	"                     that fails for a later try. Parts that the server has are compared\n"
	"                     by checksum and not sent again. Without --resume, cp aborts an\n"
	"                     interrupted upload and starts a new one.\n"
	"  -q, --quiet        print no names\n"
	"      --fan-out NAME:COUNT[:wait=SECONDS][:multicast]\n"
	"                     download together with other clients: COUNT of them run cp with\n"
	"                     this NAME at about the same time. The server waits up to SECONDS\n"
	"                     (10, at most 60) for all, keeps them in step and reads each large\n"
	"                     object once from its disks. One that is late or slow is served\n"
	"                     alone. With :multicast the server also sends each byte once for\n"
	"                     all that ask for it, where the network has multicast\n"
	"                     (fan_out.multicast in the server's configuration).\n"
	"      --content-type TYPE     of the stored object; also --cache-control,\n"
	"                     --content-encoding and --storage-class\n"
	"      --metadata NAME=VALUE   user metadata; may be given several times\n"
	"      --encryption KIND       encrypt at rest: AES256, aws:kms or aws:kms:KEY\n"
	"      --md5          use the MD5 as ETag over RDMA too, up to 8 MiB: for tools that\n"
	"                     compare ETags\n"
	"cp stores a file's modification time as metadata mtime, as rclone does.\n" REMOTE_USAGE;

static const char MV_USAGE[] =
	"usage: nebulaio mv [OPTIONS] SOURCE TARGET\n"
	"       nebulaio mv -r [OPTIONS] SOURCE TARGET\n"
	"\n"
	"Works as cp, and deletes each source after its copy is complete. A source that changed\n"
	"meanwhile stays, which is an error.\n"
	"\n"
	"  -r, --recursive    everything below the source\n"
	"  -P, --parallel N   move N files at a time (4)\n"
	"      --resume, --content-type, --metadata, --encryption, --md5 …: as for cp\n"
	"  -q, --quiet        print no names\n" REMOTE_USAGE;

static const char CAT_USAGE[] = "usage: nebulaio cat [OPTIONS] s3://BUCKET/KEY\n\n" REMOTE_USAGE;

static const struct option OPTIONS[] = {REMOTE_OPTIONS, {0}};

static int parse_options(
	const struct cli_command *command, struct remote_opts *opts, int argc, char **argv)
{
	int option, ret;

	remote_defaults(opts);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT, OPTIONS, NULL)) != -1) {
		ret = remote_option(command, opts, option, argv);
		if (ret)
			return ret;
	}
	return CLI_OK;
}

/* The RDMA device that moved the bytes; "" when they went over HTTP. */
static const char *device_of(const struct transfer *transfer)
{
	return transfer->transport == NEB_RDMA || transfer->transport == NEB_TOKEN
		       ? neb_client_device(transfer->client)
		       : "";
}

static void report_json(const struct transfer *transfer, double seconds, char *const *names)
{
	printf("{\"source\": ");
	remote_print_json(stdout, names[0]);
	printf(", \"target\": ");
	remote_print_json(stdout, names[1]);
	printf(", \"bytes\": %llu, \"bytes_resumed\": %llu, \"seconds\": %.6f, "
	       "\"transport\": \"%s\", \"device\": \"%s\"",
		(unsigned long long)transfer->bytes, (unsigned long long)transfer->bytes_resumed,
		seconds, neb_transport_name(transfer->transport), device_of(transfer));
	if (transfer->fan_out) {
		printf(", \"fan_out\": ");
		remote_print_json(stdout, transfer->fan_out_role);
	}
	printf("}\n");
}

static void report(const struct transfer *transfer, uint64_t start_ns, char *const *names)
{
	char size[32], rate[32];
	double seconds = (double)(clock_now_ns() - start_ns) / 1e9;

	if (transfer->opts->json) {
		report_json(transfer, seconds, names);
		return;
	}
	if (transfer->bytes_resumed)
		fprintf(stderr, "%s were already on the server\n",
			remote_bytes_text(transfer->bytes_resumed, size));

	remote_bytes_text(transfer->bytes, size);
	remote_bytes_text((uint64_t)((double)transfer->bytes / seconds), rate);
	fprintf(stderr, "%s in %.3f s (%s/s) by %s%s%s%s%s%s\n", size, seconds, rate,
		neb_transport_name(transfer->transport), *device_of(transfer) ? " (" : "",
		device_of(transfer), *device_of(transfer) ? ")" : "",
		transfer->fallback[0] ? ", not by RDMA: " : "", transfer->fallback);
	if (transfer->fan_out)
		fprintf(stderr, "fan-out: %s\n", transfer_fan_out_text(transfer));
}

/* Into a folder it goes under its own name. */
static int cp_to_file(struct transfer *transfer, const char *to)
{
	char *path = NULL;
	struct stat st;
	int ret;

	if (stat(to, &st) || !S_ISDIR(st.st_mode))
		return transfer_to_file(transfer, to);
	if (asprintf(&path, "%s/%s", to, transfer_base_name(transfer->key)) < 0)
		return CLI_FAILED;
	ret = transfer_to_file(transfer, path);
	free(path);
	return ret;
}

static int cp(struct transfer *transfer, char *from, char *to)
{
	const char *from_bucket = NULL, *from_key = NULL, *to_bucket = NULL, *to_key = NULL;
	bool from_url = remote_is_url(from), to_url = remote_is_url(to);
	char key[LIMIT_KEY_LEN_MAX + 1];

	if (from_url && (!remote_parse(from, &from_bucket, &from_key) || !*from_key))
		return cli_usage_error(&CLI_CP, "the source has no key");
	if (to_url && !remote_parse(to, &to_bucket, &to_key))
		return cli_usage_error(&CLI_CP, "the target has no bucket");
	if (from_url && !to_url) {
		transfer->bucket = from_bucket;
		transfer->key = from_key;
		return cp_to_file(transfer, to);
	}
	if (!to_url)
		return cli_usage_error(&CLI_CP, "neither side is an s3:// address");
	if (!*to_key || to_key[strlen(to_key) - 1] == '/') {
		const char *name = transfer_base_name(from_url ? from_key : from);

		if (!*name || !strcmp(name, "-"))
			return cli_usage_error(&CLI_CP, "the target has no key");
		if (snprintf(key, sizeof(key), "%s%s", to_key, name) >= (int)sizeof(key))
			return cli_usage_error(&CLI_CP, "the target's key is longer than %d bytes",
				LIMIT_KEY_LEN_MAX);
		to_key = key;
	}
	if (transfer->move && from_url && !strcmp(from_bucket, to_bucket) &&
		!strcmp(from_key, to_key))
		return cli_usage_error(&CLI_MV, "the source and the target are one object");
	transfer->bucket = to_bucket;
	transfer->key = to_key;
	return from_url ? transfer_copy(transfer, from_bucket, from_key)
			: transfer_from_file(transfer, from);
}

enum {
	CP_RESUME = REMOTE_OWN,
	CP_TYPE, /* these four set the headers of the same name */
	CP_CACHE,
	CP_CODING,
	CP_CLASS,
	CP_METADATA,
	CP_ENCRYPTION,
	CP_MD5,
	CP_FAN_OUT
};

struct cp_opts {
	struct remote_opts remote;
	bool recursive, quiet, move, resume;
	unsigned workers;
	bool md5;
	struct transfer_headers headers;      /* of the stored object */
	char *metadata[TRANSFER_HEADERS_MAX]; /* names of headers that were made here */
	unsigned metadata_count;
	char fan_out[NEB_FAN_OUT_BYTES]; /* empty: no --fan-out */
	struct neb_fan_out group;	 /* the same */
	bool multicast;
};

static const struct neb_fan_out *multicast_of(const struct cp_opts *opts)
{
	return opts->multicast ? &opts->group : NULL;
}

/* Borrows the value: argv lives as long as the program. */
static int header_add(const struct cli_command *command, struct cp_opts *opts, const char *name,
	const char *value)
{
	/* Room for a file's mtime. */
	if (opts->headers.count == TRANSFER_HEADERS_MAX - 1)
		return cli_usage_error(
			command, "more than %u headers and metadata", TRANSFER_HEADERS_MAX - 1);
	opts->headers.all[opts->headers.count++] = (struct neb_header){name, value};
	return CLI_OK;
}

static int metadata_add(const struct cli_command *command, struct cp_opts *opts, char *pair)
{
	char *equals = strchr(pair, '='), *name = NULL;
	int ret;

	if (!equals || equals == pair)
		return cli_usage_error(command, "--metadata: '%s' is not NAME=VALUE", pair);
	*equals = '\0';
	if (asprintf(&name, "x-amz-meta-%s", pair) < 0)
		return CLI_FAILED;
	ret = header_add(command, opts, name, equals + 1);
	if (ret)
		free(name);
	else
		opts->metadata[opts->metadata_count++] = name;
	return ret;
}

static int encryption_add(const struct cli_command *command, struct cp_opts *opts, char *kind)
{
	static const char KMS[] = "aws:kms:";
	bool key = strncmp(kind, KMS, strlen(KMS)) == 0 && kind[strlen(KMS)];
	int ret = CLI_OK;

	if (!key && strcmp(kind, "AES256") != 0 && strcmp(kind, "aws:kms") != 0)
		return cli_usage_error(
			command, "--encryption: '%s' is not AES256, aws:kms or aws:kms:KEY", kind);
	if (key)
		ret = header_add(command, opts, "x-amz-server-side-encryption-aws-kms-key-id",
			kind + strlen(KMS));
	return ret ? ret
		   : header_add(
			     command, opts, "x-amz-server-side-encryption", key ? "aws:kms" : kind);
}

/* A word after --fan-out's COUNT; false: it is none. */
static bool fan_out_word(struct cp_opts *opts, const char *word)
{
	static const char WAIT[] = "wait=";
	unsigned long seconds;
	char *end;

	if (strcmp(word, "multicast") == 0) {
		opts->multicast = true;
		return true;
	}
	if (strncmp(word, WAIT, strlen(WAIT)) != 0)
		return false;
	seconds = strtoul(word + strlen(WAIT), &end, 10);
	opts->group.wait_ns = MIN(seconds, UINT32_MAX) * NS_PER_S;
	return seconds && !*end;
}

/* NAME:COUNT[:wait=SECONDS][:multicast], for this process one member of the group. */
static int fan_out_parse(const struct cli_command *command, struct cp_opts *opts, char *text)
{
	char *rest = text, *count, *word, *end = "";
	bool good = true;

	opts->multicast = false;
	opts->group = (struct neb_fan_out){.name = strsep(&rest, ":")};
	while (!opts->group.member)
		random_fill(&opts->group.member, sizeof(opts->group.member));
	count = strsep(&rest, ":");
	if (count)
		opts->group.members = (uint32_t)MIN(strtoul(count, &end, 10), UINT32_MAX);
	while (good && (word = strsep(&rest, ":")) != NULL)
		good = fan_out_word(opts, word);
	if (!good || *end || neb_fan_out_header(&opts->group, opts->fan_out))
		return cli_usage_error(command,
			"--fan-out must be NAME:COUNT[:wait=SECONDS][:multicast], with a NAME of 1 "
			"to 64 letters, digits, '.', '_' and '-', a COUNT of 1 to 1024 and SECONDS "
			"of 1 to 60");
	return CLI_OK;
}

/* Takes an option that sets a property of the stored object; false: it is another option. */
static bool stored_option(
	const struct cli_command *command, struct cp_opts *opts, int option, int *ret_code)
{
	static const char *const NAMES[] = {[CP_TYPE - CP_TYPE] = "content-type",
		[CP_CACHE - CP_TYPE] = "cache-control",
		[CP_CODING - CP_TYPE] = "content-encoding",
		[CP_CLASS - CP_TYPE] = "x-amz-storage-class"};

	*ret_code = CLI_OK;
	if (option >= CP_TYPE && option <= CP_CLASS)
		*ret_code = header_add(command, opts, NAMES[option - CP_TYPE], optarg);
	else if (option == CP_METADATA)
		*ret_code = metadata_add(command, opts, optarg);
	else if (option == CP_ENCRYPTION)
		*ret_code = encryption_add(command, opts, optarg);
	else if (option == CP_MD5)
		opts->md5 = true;
	else
		return false;
	return true;
}

static int parse_cp(const struct cli_command *command, struct cp_opts *opts, int argc, char **argv)
{
	static const struct option CP_OPTIONS[] = {REMOTE_OPTIONS,
		{"recursive", no_argument, NULL, 'r'}, {"parallel", required_argument, NULL, 'P'},
		{"quiet", no_argument, NULL, 'q'}, {"resume", no_argument, NULL, CP_RESUME},
		{"content-type", required_argument, NULL, CP_TYPE},
		{"cache-control", required_argument, NULL, CP_CACHE},
		{"content-encoding", required_argument, NULL, CP_CODING},
		{"storage-class", required_argument, NULL, CP_CLASS},
		{"metadata", required_argument, NULL, CP_METADATA},
		{"encryption", required_argument, NULL, CP_ENCRYPTION},
		{"md5", no_argument, NULL, CP_MD5},
		{"fan-out", required_argument, NULL, CP_FAN_OUT}, {0}};
	int option, ret;

	remote_defaults(&opts->remote);
	opts->workers = 4;
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, REMOTE_SHORT "rP:q", CP_OPTIONS, NULL)) != -1) {
		opts->recursive |= option == 'r';
		opts->quiet |= option == 'q';
		opts->resume |= option == CP_RESUME;
		if (option == 'r' || option == 'q' || option == CP_RESUME)
			continue;
		if (stored_option(command, opts, option, &ret)) {
			if (ret)
				return ret;
			continue;
		}
		if (option == 'P')
			ret = tree_workers_parse(command, optarg, &opts->workers);
		else if (option == CP_FAN_OUT)
			ret = fan_out_parse(command, opts, optarg);
		else
			ret = remote_option(command, &opts->remote, option, argv);
		if (ret)
			return ret;
	}
	if (optind != argc - 2)
		return cli_usage_error(command, "expected a source and a target");
	if ((opts->headers.count || opts->md5) &&
		(remote_is_url(argv[optind]) || !remote_is_url(argv[optind + 1])))
		return cli_usage_error(command,
			"--content-type, --metadata, --encryption, --md5 and similar options work "
			"only for uploads");
	if (opts->fan_out[0] && (!remote_is_url(argv[optind]) || remote_is_url(argv[optind + 1])))
		return cli_usage_error(command, "--fan-out works only for downloads");
	return CLI_OK;
}

/* A copy into the source itself would replace sources before they are copied themselves. */
static int overlap_refuse(const struct cli_command *command, const struct tree_copy *copy)
{
	if (copy->from.glob || !tree_place_holds(&copy->from, &copy->to))
		return CLI_OK;
	return cli_usage_error(command,
		"the target s3://%s/%s is in the source s3://%s/%s; choose a target outside of it",
		copy->to.bucket, remote_text(copy->to.prefix), copy->from.bucket,
		remote_text(copy->from.prefix));
}

static int clash_refuse(const struct tree *tree, const struct tree_copy *copy)
{
	const struct tree_item *replaced,
		*item = tree_clash(tree, &copy->from, &copy->to, &replaced);

	if (!item)
		return CLI_OK;
	fprintf(stderr,
		"nebulaio: the copy of s3://%s/%s%s would replace s3://%s/%s%s, which is to be "
		"copied, too; nothing was copied: choose another target\n",
		copy->from.bucket, remote_text(copy->from.prefix), remote_text(item->name),
		copy->from.bucket, remote_text(copy->from.prefix), remote_text(replaced->name));
	return CLI_FAILED;
}

/* Copies or moves all objects below the source. */
static int cp_tree(const struct cli_command *command, struct cp_opts *opts,
	struct neb_client *client, char **argv)
{
	struct tree_copy copy = {.opts = &opts->remote,
		.workers = opts->workers,
		.move = opts->move,
		.headers = &opts->headers,
		.md5 = opts->md5,
		.resume = opts->resume,
		.quiet = opts->quiet,
		.fan_out = opts->fan_out[0] ? opts->fan_out : NULL,
		.multicast = multicast_of(opts)};
	struct tree tree = {0};
	int ret;

	if (!tree_place_parse(argv[0], true, &copy.from) || !tree_target_parse(argv[1], &copy.to)) {
		ret = cli_usage_error(
			command, "an s3:// address lacks its bucket, or a folder its name");
		goto out;
	}
	if (!copy.from.bucket && !copy.to.bucket) {
		ret = cli_usage_error(command, "neither side is an s3:// address");
		goto out;
	}
	ret = overlap_refuse(command, &copy);
	if (ret)
		goto out;
	ret = tree_read(client, &copy.from, false, &tree);
	if (clash_refuse(&tree, &copy)) {
		ret = CLI_FAILED;
		goto out;
	}
	copy.items = calloc(tree.count + 1, sizeof(struct tree_item *));
	for (size_t i = 0; copy.items && i < tree.count; i++)
		copy.items[copy.count++] = &tree.items[i];
	if (!ret && copy.count == 0) {
		fprintf(stderr, "nebulaio: %s: no object matches\n", copy.from.prefix);
		ret = CLI_NOT_FOUND;
	}
	if (copy.count) {
		int copied = tree_copy(&copy);

		ret = MAX(ret, copied);
	}
out:
	free(copy.items);
	tree_free(&tree);
	tree_place_free(&copy.from);
	tree_place_free(&copy.to);
	return ret;
}

static int cp_or_mv(const struct cli_command *command, int argc, char **argv)
{
	struct cp_opts opts = {.move = command == &CLI_MV};
	struct transfer transfer = {.opts = &opts.remote};
	uint64_t start_ns = clock_now_ns();
	struct tree_place source = {0};
	char *names[2] = {NULL, NULL}; /* copies for messages: parsing changes the arguments */
	int ret = parse_cp(command, &opts, argc, argv);

	if (ret)
		goto out;
	names[0] = strdup(argv[optind]);
	ret = remote_open(&opts.remote, &transfer.client);
	if (ret || !names[0])
		goto out;
	if (opts.recursive || (remote_is_url(names[0]) && tree_is_glob(names[0]))) {
		ret = cp_tree(command, &opts, transfer.client, argv + optind);
		goto out;
	}
	transfer.resume = opts.resume;
	transfer.move = opts.move;
	transfer.headers = &opts.headers;
	transfer.md5 = opts.md5;
	transfer.fan_out = opts.fan_out[0] ? opts.fan_out : NULL;
	transfer.multicast = multicast_of(&opts);
	names[1] = strdup(argv[optind + 1]);
	ret = names[1] ? cp(&transfer, argv[optind], argv[optind + 1]) : CLI_FAILED;
	if (!ret)
		report(&transfer, start_ns, names);
	if (!ret && opts.move && strcmp(names[0], "-") != 0 &&
		tree_place_parse(names[0], false, &source))
		ret = transfer_source_delete(&transfer, source.bucket, source.prefix);
out:
	free(names[0]);
	free(names[1]);
	tree_place_free(&source);
	for (unsigned i = 0; i < opts.metadata_count; i++)
		free(opts.metadata[i]);
	neb_client_close(transfer.client);
	return ret;
}

static int cp_run(int argc, char **argv)
{
	return cp_or_mv(&CLI_CP, argc, argv);
}

static int mv_run(int argc, char **argv)
{
	return cp_or_mv(&CLI_MV, argc, argv);
}

static int cat_run(int argc, char **argv)
{
	struct remote_opts opts;
	struct transfer transfer = {.opts = &opts};
	int ret = parse_options(&CLI_CAT, &opts, argc, argv);

	if (ret)
		return ret;
	if (optind != argc - 1 || !remote_parse(argv[optind], &transfer.bucket, &transfer.key) ||
		!*transfer.key)
		return cli_usage_error(&CLI_CAT, "expected one s3://BUCKET/KEY");
	if (opts.json)
		return cli_usage_error(&CLI_CAT, "cat cannot print an object as JSON");
	ret = remote_open(&opts, &transfer.client);
	if (ret)
		return ret;
	ret = transfer_get(&transfer, STDOUT_FILENO);
	if (opts.verbose && !ret)
		fprintf(stderr, "%s: by %s\n", transfer.key,
			neb_transport_name(transfer.transport));
	neb_client_close(transfer.client);
	return ret;
}

const struct cli_command CLI_CP = {
	.name = "cp",
	.summary = "copy between files and objects",
	.usage = CP_USAGE,
	.run = cp_run,
};

const struct cli_command CLI_MV = {
	.name = "mv",
	.summary = "copy, then delete the source",
	.usage = MV_USAGE,
	.run = mv_run,
};

const struct cli_command CLI_CAT = {
	.name = "cat",
	.summary = "write an object to standard output",
	.usage = CAT_USAGE,
	.run = cat_run,
};
