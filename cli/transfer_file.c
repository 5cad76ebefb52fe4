/* cli/transfer_file.c: one object to a file, one file to an object, one object to another. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "codec/codec.h"
#include "transfer.h"
#include "written.h"

const char *transfer_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- Object to file. ---- */

#define PART_TRIES  8u
#define PART_SUFFIX 14u /* ".part-" and the digits */

/* The file that is written until it is complete. */
struct part {
	int fd;
	bool named;
	char path[PATH_MAX + PART_SUFFIX]; /* named: its own, beside the target */
};

/* A file of the target's folder without a name, of which nothing stays when the program is ended.
 * -1: the file system has none, or nothing could give it a name. */
static int nameless_open(const char *target)
{
	const char *slash = strrchr(target, '/');
	char folder[PATH_MAX];

	if (strlen(transfer_base_name(target)) + PART_SUFFIX > NAME_MAX ||
		strlen(target) >= sizeof(folder) || access("/proc/self/fd", X_OK))
		return -1;
	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - target) + 1 : 1,
		slash ? target : ".");
	return open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

static int name_give(int fd, const char *name)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

/* Gives the part a name beside the target, or makes it by that name. No process takes over or
 * removes a file that is there: it may be another host's, the user's own, or left by a process that
 * was killed. -1 with errno. */
static int part_name(struct part *part, const char *target)
{
	char number[9];
	uint32_t random;
	int ret = -1;

	errno = EEXIST;
	for (uint32_t try = 0; try < PART_TRIES && ret < 0 && errno == EEXIST; try++) {
		random_fill(&random, sizeof(random));
		hex_encode(&random, sizeof(random), number);
		snprintf(part->path, sizeof(part->path), "%s.part-%s", target, number);
		ret = part->fd >= 0
			      ? name_give(part->fd, part->path)
			      : open(part->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (part->fd < 0)
			part->fd = ret;
	}
	part->named = ret >= 0;
	return part->named ? 0 : -1;
}

/* Puts the complete part to its target. */
static int part_place(const struct transfer *transfer, const struct part *part, const char *target)
{
	int ret;

	if (transfer->written)
		ret = written_rename(transfer->written, part->path, target);
	else
		ret = rename(part->path, target) ? -errno : 0;
	if (ret == -EEXIST && transfer->written)
		fprintf(stderr,
			"nebulaio: %s: %s is a file that this command has just written, by another "
			"name for it: skipped\n",
			remote_text(transfer->key), remote_text(target));
	else if (ret)
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(target), strerror(-ret));
	return ret ? CLI_FAILED : CLI_OK;
}

/* Writes special files and standard output directly; another file is at the target once it is
 * complete. */
int transfer_to_file(struct transfer *transfer, const char *target)
{
	struct part part = {.fd = -1};
	struct stat st;
	bool plain = true;
	int ret, error;

	if (!strcmp(target, "-"))
		return transfer_get(transfer, STDOUT_FILENO);
	if (stat(target, &st) == 0) {
		if (S_ISDIR(st.st_mode)) {
			fprintf(stderr, "nebulaio: %s: %s is a folder here; move it away\n",
				remote_text(transfer->key), remote_text(target));
			return CLI_FAILED;
		}
		plain = S_ISREG(st.st_mode);
	}
	part.fd = plain ? nameless_open(target) : open(target, O_WRONLY | O_CLOEXEC);
	if (part.fd < 0 && (!plain || part_name(&part, target))) {
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(plain ? part.path : target),
			strerror(errno));
		return errno == EACCES ? CLI_DENIED : CLI_FAILED;
	}
	ret = transfer_get(transfer, part.fd);
	if (plain && !ret &&
		((transfer->move && fsync(part.fd)) || (!part.named && part_name(&part, target)))) {
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(target), strerror(errno));
		ret = CLI_FAILED;
	}
	if (close(part.fd) && !ret) {
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(target), strerror(errno));
		ret = CLI_FAILED;
	}
	if (plain && !ret)
		ret = part_place(transfer, &part, target);
	if (part.named && ret)
		unlink(part.path);
	error = plain && transfer->move && !ret ? file_parent_sync(target) : 0;
	if (error) {
		fprintf(stderr, "nebulaio: %s: its folder: %s\n", remote_text(target),
			strerror(-error));
		ret = CLI_FAILED;
	}
	return ret;
}

/* ---- File to object. ---- */

int transfer_from_file(struct transfer *transfer, const char *source)
{
	const struct transfer_headers *told = transfer->headers;
	struct transfer_headers headers = told ? *told : (struct transfer_headers){0};
	char changed[64];
	struct stat st;
	int fd, ret;

	if (!strcmp(source, "-"))
		return transfer_put(transfer, STDIN_FILENO, "standard input");
	fd = open(source, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st)) {
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(source), strerror(errno));
		return errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED;
	}
	if (S_ISDIR(st.st_mode)) {
		fprintf(stderr, "nebulaio: %s is a folder; name a file\n", remote_text(source));
		close(fd);
		return CLI_FAILED;
	}
	/* rclone's format: seconds since 1970 with their fraction. */
	snprintf(changed, sizeof(changed), "%lld.%09ld", (long long)st.st_mtim.tv_sec,
		st.st_mtim.tv_nsec);
	if (S_ISREG(st.st_mode) && headers.count < TRANSFER_HEADERS_MAX)
		headers.all[headers.count++] = (struct neb_header){"x-amz-meta-mtime", changed};
	transfer->headers = &headers;
	ret = transfer_put(transfer, fd, source);
	transfer->headers = told;
	close(fd);
	return ret;
}

/* ---- Object to object, inside the server. ---- */

static int replaced_meanwhile(const char *key)
{
	fprintf(stderr,
		"nebulaio: %s: another client replaced it while it was moved: it is not deleted; "
		"move it again\n",
		remote_text(key));
	return CLI_FAILED;
}

int transfer_copy(struct transfer *transfer, const char *from_bucket, const char *from_key)
{
	char if_match[sizeof(transfer->etag) + 2];
	struct buf source;
	struct neb_header headers[2] = {
		{"x-amz-copy-source", NULL}, {"x-amz-copy-source-if-match", if_match}};
	struct neb_request request = {
		.op = NEB_COPY_OBJECT,
		.bucket = transfer->bucket,
		.key = transfer->key,
		.headers = headers,
		.header_count = 1,
	};
	char answer[4096];
	struct neb_iov into = {answer, sizeof(answer)};
	struct neb_result result;
	int ret;

	if (transfer->move) {
		if (neb_head(transfer->client, from_bucket, from_key, &result))
			return remote_failed(from_key, &result);
		memcpy(transfer->etag, result.etag, sizeof(transfer->etag));
		snprintf(if_match, sizeof(if_match), "\"%s\"", transfer->etag);
		request.header_count += transfer->etag[0] != '\0';
	}
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
	headers[0].value = source.data;
	request.into = &into;
	request.into_count = 1;
	ret = neb_perform(transfer->client, &request, &result);
	buf_free(&source);
	transfer->transport = result.transport;
	memcpy(transfer->fallback, result.fallback, sizeof(transfer->fallback));
	if (ret && transfer->move && result.status == 412)
		return replaced_meanwhile(from_key);
	if (ret)
		return remote_failed(from_key, &result);
	/* The answer does not tell the object's size. */
	if (neb_head(transfer->client, transfer->bucket, transfer->key, &result) == 0)
		transfer->bytes = result.object_bytes;
	return CLI_OK;
}

/* ---- The source of a move. ---- */

static int object_delete(struct transfer *transfer, const char *bucket, const char *key)
{
	char if_match[sizeof(transfer->etag) + 2];
	const struct neb_header header = {"if-match", if_match};
	struct neb_request request = {.op = NEB_DELETE_OBJECT,
		.bucket = bucket,
		.key = key,
		.headers = &header,
		.header_count = transfer->etag[0] != '\0'};
	struct neb_result result;
	int ret;

	snprintf(if_match, sizeof(if_match), "\"%s\"", transfer->etag);
	ret = neb_perform(transfer->client, &request, &result);
	if (ret && result.status == 501 && request.header_count) {
		/* The server may be anybody's: some have no deletion with a condition. */
		request.header_count = 0;
		ret = neb_perform(transfer->client, &request, &result);
	}
	if (ret && result.status == 412)
		return replaced_meanwhile(key);
	return ret && result.status != 404 ? remote_failed(key, &result) : CLI_OK;
}

static int file_delete(const struct transfer *transfer, const char *path)
{
	const struct stat *before = &transfer->file;
	struct stat now;

	if (S_ISREG(before->st_mode) && stat(path, &now) == 0 &&
		!transfer_file_same(before, &now)) {
		fprintf(stderr,
			"nebulaio: %s: it changed while it was moved: it is not deleted; move it "
			"again\n",
			remote_text(path));
		return CLI_FAILED;
	}
	if (unlink(path) == 0 || errno == ENOENT)
		return CLI_OK;
	fprintf(stderr, "nebulaio: %s: %s\n", remote_text(path), strerror(errno));
	return CLI_FAILED;
}

int transfer_source_delete(struct transfer *transfer, const char *from_bucket, const char *from)
{
	return from_bucket ? object_delete(transfer, from_bucket, from)
			   : file_delete(transfer, from);
}
