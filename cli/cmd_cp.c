/* cli/cmd_cp.c: `nebulaio cp` and `nebulaio cat`: objects to and from files, and from object to
 * object. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/codec.h"
#include "transfer.h"

static const char CP_USAGE[] =
	"usage: nebulaio cp [OPTIONS] FILE s3://BUCKET[/KEY]\n"
	"       nebulaio cp [OPTIONS] s3://BUCKET/KEY FILE\n"
	"       nebulaio cp [OPTIONS] s3://BUCKET/KEY s3://BUCKET[/KEY]\n"
	"\n"
	"\"-\" for FILE is standard input or output. A file that is being fetched gets its name "
	"only\n"
	"when it is whole. Says in the end how much went which way.\n"
	"\n" REMOTE_USAGE;

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

static void report(const struct transfer *transfer, uint64_t start_ns)
{
	char size[32], rate[32];
	double seconds = (double)(clock_now_ns() - start_ns) / 1e9;

	remote_bytes_text(transfer->bytes, size);
	remote_bytes_text((uint64_t)((double)transfer->bytes / seconds), rate);
	fprintf(stderr, "%s in %.3f s (%s/s) by %s%s%s%s\n", size, seconds, rate,
		neb_transport_name(transfer->transport),
		transfer->fallback[0] ? ", not by RDMA: " : "", transfer->fallback,
		transfer->fallback[0] ? "" : "");
}

/* The key's last part, for targets that are folders. */
static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- Object to file. ---- */

/* Special files and standard output are written as they are; others under a name of their own until
 * whole. */
static int fetch_to(struct transfer *transfer, const char *target)
{
	char path[4096], temporary[4200];
	struct stat st;
	bool plain = true;
	int fd, ret;

	if (!strcmp(target, "-"))
		return transfer_get(transfer, STDOUT_FILENO);
	snprintf(path, sizeof(path), "%s", target);
	if (stat(target, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			snprintf(path, sizeof(path), "%s/%s", target, base_name(transfer->key));
		else
			plain = S_ISREG(st.st_mode);
	}
	snprintf(temporary, sizeof(temporary), plain ? "%s.part-%ld" : "%s%.0ld", path,
		plain ? (long)getpid() : 0L);
	fd = open(temporary, plain ? O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC : O_WRONLY | O_CLOEXEC,
		0666);
	if (fd < 0) {
		fprintf(stderr, "nebulaio: %s: %s\n", temporary, strerror(errno));
		return errno == EACCES ? CLI_DENIED : CLI_FAILED;
	}
	ret = transfer_get(transfer, fd);
	if (close(fd) && !ret) {
		fprintf(stderr, "nebulaio: %s: %s\n", temporary, strerror(errno));
		ret = CLI_FAILED;
	}
	if (plain && !ret && rename(temporary, path)) {
		fprintf(stderr, "nebulaio: %s: %s\n", path, strerror(errno));
		ret = CLI_FAILED;
	}
	if (plain && ret)
		unlink(temporary);
	return ret;
}

/* ---- File to object. ---- */

static int store_from(struct transfer *transfer, const char *source)
{
	struct stat st;
	int fd, ret;

	if (!strcmp(source, "-"))
		return transfer_put(transfer, STDIN_FILENO, "standard input");
	fd = open(source, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st)) {
		fprintf(stderr, "nebulaio: %s: %s\n", source, strerror(errno));
		return errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED;
	}
	if (S_ISDIR(st.st_mode)) {
		fprintf(stderr, "nebulaio: %s: a folder; name a file\n", source);
		close(fd);
		return CLI_FAILED;
	}
	ret = transfer_put(transfer, fd, source);
	close(fd);
	return ret;
}

/* ---- Object to object, inside the server. ---- */

static int copy_object(struct transfer *transfer, const char *from_bucket, const char *from_key)
{
	struct buf source;
	struct neb_header header = {"x-amz-copy-source", NULL};
	struct neb_request request = {
		.op = NEB_COPY_OBJECT,
		.bucket = transfer->bucket,
		.key = transfer->key,
		.headers = &header,
		.header_count = 1,
	};
	char answer[4096];
	struct neb_iov into = {answer, sizeof(answer)};
	struct neb_result result;
	int ret;

	buf_init(&source, 4096);
	buf_printf(&source, "/%s/", from_bucket);
	for (const char *c = from_key; *c; c++) {
		if ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
			(*c >= '0' && *c <= '9') || strchr("-._~/", *c))
			buf_put(&source, c, 1);
		else
			buf_printf(&source, "%%%02X", (unsigned char)*c);
	}
	buf_put(&source, "", 1);
	header.value = source.data;
	request.into = &into;
	request.into_count = 1;
	ret = neb_perform(transfer->client, &request, &result);
	buf_free(&source);
	transfer->transport = result.transport;
	memcpy(transfer->fallback, result.fallback, sizeof(transfer->fallback));
	return ret ? remote_failed(from_key, &result) : CLI_OK;
}

static int cp(struct transfer *transfer, char *from, char *to)
{
	const char *from_bucket = NULL, *from_key = NULL, *to_bucket = NULL, *to_key = NULL;
	bool from_url = remote_is_url(from), to_url = remote_is_url(to);
	char key[LIMIT_KEY_LEN_MAX + 1];

	if (from_url && (!remote_parse(from, &from_bucket, &from_key) || !*from_key))
		return cli_usage_error(&CLI_CP, "the source lacks its key");
	if (to_url && !remote_parse(to, &to_bucket, &to_key))
		return cli_usage_error(&CLI_CP, "the target lacks its bucket");
	if (from_url && !to_url) {
		transfer->bucket = from_bucket;
		transfer->key = from_key;
		return fetch_to(transfer, to);
	}
	if (!to_url)
		return cli_usage_error(&CLI_CP, "neither side is an s3:// address");
	if (!*to_key || to_key[strlen(to_key) - 1] == '/') {
		const char *name = base_name(from_url ? from_key : from);

		if (!*name || !strcmp(name, "-"))
			return cli_usage_error(&CLI_CP, "the target lacks its key");
		if (snprintf(key, sizeof(key), "%s%s", to_key, name) >= (int)sizeof(key))
			return cli_usage_error(&CLI_CP, "the target's key is longer than %d bytes",
				LIMIT_KEY_LEN_MAX);
		to_key = key;
	}
	transfer->bucket = to_bucket;
	transfer->key = to_key;
	return from_url ? copy_object(transfer, from_bucket, from_key) : store_from(transfer, from);
}

static int cp_run(int argc, char **argv)
{
	struct remote_opts opts;
	struct transfer transfer = {.opts = &opts};
	uint64_t start_ns = clock_now_ns();
	int ret = parse_options(&CLI_CP, &opts, argc, argv);

	if (ret)
		return ret;
	if (optind != argc - 2)
		return cli_usage_error(&CLI_CP, "expected a source and a target");
	ret = remote_open(&opts, &transfer.client);
	if (ret)
		return ret;
	ret = cp(&transfer, argv[optind], argv[optind + 1]);
	if (!ret)
		report(&transfer, start_ns);
	neb_client_close(transfer.client);
	return ret;
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

const struct cli_command CLI_CAT = {
	.name = "cat",
	.summary = "write an object to standard output",
	.usage = CAT_USAGE,
	.run = cat_run,
};
