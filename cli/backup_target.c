/* cli/backup_target.c: a backup's files in a folder, or in a bucket of an S3 server. */
#include "backup_target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "codec/codec.h"

/* A body of 64 MiB on a slow line. */
#define REQUEST_NS     (600 * NS_PER_S)
#define FILE_BYTES_MAX (1024 * MIB)

static int failed(const struct target *target, const char *name, const char *what, int error)
{
	fprintf(stderr, "nebulaio: the backup %s: %s: %s: %s%s\n", remote_text(target->text), name,
		what, strerror(error),
		error == ENOSPC || error == EDQUOT
			? "; make room there and run the same command again: it goes on from here"
			: "");
	return error == EACCES || error == EPERM ? CLI_DENIED : CLI_FAILED;
}

static int path_of(const struct target *target, const char *name, char out[TARGET_PATH_BYTES])
{
	int len = target->folder ? snprintf(out, TARGET_PATH_BYTES, "%s/%s", target->folder, name)
				 : snprintf(out, TARGET_PATH_BYTES, "%s%s", target->prefix, name);

	if (len > 0 && (size_t)len < TARGET_PATH_BYTES)
		return CLI_OK;
	return failed(target, name, "its path", ENAMETOOLONG);
}

/* ---- Opening. ---- */

static int folder_open(struct target *target, bool writes)
{
	char path[TARGET_PATH_BYTES];
	struct stat info;
	int ret;

	if (writes && mkdir(target->folder, 0700) && errno != EEXIST)
		return failed(target, ".", "it cannot be made", errno);
	if (stat(target->folder, &info) || !S_ISDIR(info.st_mode)) {
		fprintf(stderr, "nebulaio: the backup %s: there is no such folder\n",
			remote_text(target->text));
		return CLI_NOT_FOUND;
	}
	if (!writes)
		return CLI_OK;
	ret = path_of(target, "LOCK", path);
	if (ret)
		return ret;
	target->lock_fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (target->lock_fd < 0)
		return failed(target, "LOCK", "it cannot be opened", errno);
	if (flock(target->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return CLI_OK;
	fprintf(stderr, "nebulaio: the backup %s: another backup writes there\n",
		remote_text(target->text));
	return CLI_FAILED;
}

static int bucket_open(struct target *target, const struct target_opts *opts)
{
	struct remote_opts remote;
	struct profile profile;
	size_t len;
	int ret;

	remote_defaults(&remote);
	if (opts->profile) {
		ret = profile_read(opts->profile, &profile);
		if (ret)
			return ret;
		remote.profile_failed = CLI_OK;
		if (profile.values[PROFILE_ENDPOINT])
			remote.endpoints = profile.values[PROFILE_ENDPOINT];
		if (profile.values[PROFILE_ACCESS_KEY])
			remote.access_key = profile.values[PROFILE_ACCESS_KEY];
		if (profile.values[PROFILE_SECRET_KEY])
			remote.secret_key = profile.values[PROFILE_SECRET_KEY];
		if (profile.values[PROFILE_REGION])
			remote.region = profile.values[PROFILE_REGION];
	}
	if (opts->endpoint)
		remote.endpoints = opts->endpoint;
	len = strlen(target->prefix);
	/* The copy of the place has room for it. */
	if (len && target->prefix[len - 1] != '/')
		memcpy(target->place + (target->prefix - target->place) + len, "/", 2);
	return remote_open(&remote, &target->client);
}

int target_open(
	struct target *target, const char *place, const struct target_opts *opts, bool writes)
{
	size_t len = strlen(place);

	*target = (struct target){.lock_fd = -1};
	if (len + 2 > sizeof(target->text)) {
		fprintf(stderr, "nebulaio: the name of the backup is too long\n");
		return CLI_USAGE;
	}
	memcpy(target->text, place, len + 1);
	target->place = calloc(1, len + 2);
	if (!target->place)
		return CLI_FAILED;
	memcpy(target->place, place, len);
	if (!remote_is_url(place)) {
		target->folder = target->place;
		return folder_open(target, writes);
	}
	if (!remote_parse(target->place, &target->bucket, &target->prefix)) {
		fprintf(stderr, "nebulaio: '%s' is not s3://BUCKET[/PREFIX]\n", remote_text(place));
		return CLI_USAGE;
	}
	return bucket_open(target, opts);
}

void target_close(struct target *target)
{
	if (target->lock_fd >= 0)
		close(target->lock_fd);
	neb_client_close(target->client);
	free(target->place);
}

/* ---- Folders. ---- */

static int parents_make(char *path, size_t from)
{
	for (char *at = path + from; (at = strchr(at, '/')); at++) {
		*at = '\0';
		if (mkdir(path, 0700) && errno != EEXIST) {
			*at = '/';
			return -errno;
		}
		*at = '/';
	}
	return 0;
}

static int write_all(int fd, struct slice part)
{
	while (part.len) {
		ssize_t done = write(fd, part.data, part.len);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -EIO;
		part = slice_from(part, (size_t)done);
	}
	return 0;
}

static int folder_put(
	struct target *target, const char *name, const struct slice *parts, uint32_t count)
{
	char path[TARGET_PATH_BYTES], part[TARGET_PATH_BYTES + 8];
	int fd, ret = path_of(target, name, path);

	if (ret)
		return ret;
	snprintf(part, sizeof(part), "%s.part", path);
	ret = parents_make(part, strlen(target->folder) + 1);
	if (ret)
		return failed(target, name, "its folder cannot be made", -ret);
	/* Of a backup that was killed; or a link that somebody else has put there. */
	if (unlink(part) && errno != ENOENT)
		return failed(target, name, "it cannot be made", errno);
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed(target, name, "it cannot be made", errno);
	for (uint32_t i = 0; i < count && !ret; i++)
		ret = write_all(fd, parts[i]);
	if (!ret && fsync(fd))
		ret = -errno;
	if (close(fd) && !ret)
		ret = -errno;
	if (!ret && rename(part, path))
		ret = -errno;
	if (ret)
		unlink(part);
	return ret ? failed(target, name, "it cannot be written", -ret) : CLI_OK;
}

static int folder_open_file(
	struct target *target, const char *name, int *ret_fd, uint64_t *ret_bytes)
{
	char path[TARGET_PATH_BYTES];
	struct stat info;
	int ret = path_of(target, name, path);

	if (ret)
		return ret;
	*ret_fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (*ret_fd < 0)
		return errno == ENOENT ? CLI_NOT_FOUND
				       : failed(target, name, "it cannot be read", errno);
	if (fstat(*ret_fd, &info))
		ret = failed(target, name, "it cannot be read", errno);
	else if (!S_ISREG(info.st_mode))
		ret = failed(target, name, "it is no file", EINVAL);
	if (ret) {
		close(*ret_fd);
		return ret;
	}
	*ret_bytes = (uint64_t)info.st_size;
	return CLI_OK;
}

/* 0; -EIO: it is shorter; -errno. */
static int read_all(int fd, char *out, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t done = pread(fd, out, bytes, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -EIO;
		out += done;
		offset += (uint64_t)done;
		bytes -= (uint64_t)done;
	}
	return 0;
}

struct visit {
	target_visit_fn *fn;
	void *arg;
};

/* Files lie in folders of a folder of the target, and no deeper. */
static int folder_list(
	struct target *target, const char *folder, bool deeper, const struct visit *visit)
{
	char path[TARGET_PATH_BYTES], name[TARGET_PATH_BYTES];
	const struct dirent *entry;
	struct stat info;
	int ret = path_of(target, folder, path);
	DIR *listing = ret ? NULL : opendir(path);

	if (ret)
		return ret;
	if (!listing)
		return errno == ENOENT ? CLI_OK
				       : failed(target, folder, "it cannot be read", errno);
	/* A listing that fails half way would look like a short one. */
	while (!ret && (errno = 0, (entry = readdir(listing)) != NULL)) {
		if (entry->d_name[0] == '.')
			continue;
		if ((size_t)snprintf(name, sizeof(name), "%s/%s", folder, entry->d_name) >=
			sizeof(name))
			continue;
		if (fstatat(dirfd(listing), entry->d_name, &info, AT_SYMLINK_NOFOLLOW)) {
			if (errno != ENOENT)
				ret = failed(target, name, "it cannot be read", errno);
			continue;
		}
		if (!S_ISDIR(info.st_mode))
			visit->fn(visit->arg, name);
		else if (deeper)
			ret = folder_list(target, name, false, visit);
	}
	if (!ret && errno)
		ret = failed(target, folder, "it cannot be read", errno);
	closedir(listing);
	return ret;
}

/* ---- Buckets. ---- */

static int bucket_put(
	struct target *target, const char *name, const struct slice *parts, uint32_t count)
{
	struct neb_iov body[TARGET_PARTS_MAX];
	struct neb_request request = {.op = NEB_PUT_OBJECT,
		.bucket = target->bucket,
		.body = body,
		.checksum_kind = NEB_CHECKSUM_MD5,
		.timeout_ns = REQUEST_NS};
	struct neb_result result = {0};
	char path[TARGET_PATH_BYTES];
	uint8_t digest[MD5_BYTES];
	struct md5 md5;
	int ret = path_of(target, name, path);

	if (ret)
		return ret;
	md5_init(&md5);
	for (uint32_t i = 0; i < count; i++) {
		if (!parts[i].len)
			continue;
		md5_update(&md5, parts[i].data, parts[i].len);
		body[request.body_count++] =
			(struct neb_iov){(void *)(uintptr_t)parts[i].data, parts[i].len};
	}
	md5_final(&md5, digest);
	request.key = path;
	request.checksum = digest;
	return neb_perform(target->client, &request, &result) ? remote_failed(path, &result)
							      : CLI_OK;
}

/* ret_bytes may be NULL. */
static int bucket_head(struct target *target, const char *path, uint64_t *ret_bytes)
{
	const struct neb_request request = {
		.op = NEB_HEAD_OBJECT, .bucket = target->bucket, .key = path};
	struct neb_result result = {0};

	if (neb_perform(target->client, &request, &result))
		return result.status == 404 ? CLI_NOT_FOUND : remote_failed(path, &result);
	if (ret_bytes)
		*ret_bytes = result.object_bytes;
	return CLI_OK;
}

static int bucket_read(
	struct target *target, const char *path, const struct target_range *range, void *out)
{
	const struct neb_iov into = {out, range->bytes};
	const struct neb_request request = {.op = NEB_GET_OBJECT,
		.bucket = target->bucket,
		.key = path,
		.range_offset = range->offset,
		.range_bytes = range->bytes,
		.into = &into,
		.into_count = 1,
		.timeout_ns = REQUEST_NS};
	struct neb_result result = {0};

	if (!range->bytes)
		return CLI_OK;
	if (neb_perform(target->client, &request, &result))
		return result.status == 404   ? CLI_NOT_FOUND
		       : result.status == 416 ? CLI_DAMAGED
					      : remote_failed(path, &result);
	return result.bytes == range->bytes ? CLI_OK : CLI_DAMAGED;
}

struct bucket_visit {
	const struct visit *visit;
	const char *prefix; /* of the names */
	size_t prefix_len;
};

static bool bucket_entry(void *arg, const struct neb_entry *entry)
{
	const struct bucket_visit *bucket = arg;

	/* The server may be anybody's. */
	if (strncmp(entry->key, bucket->prefix, bucket->prefix_len) == 0)
		bucket->visit->fn(bucket->visit->arg, entry->key + bucket->prefix_len);
	return true;
}

static int bucket_list(struct target *target, const char *folder, const struct visit *visit)
{
	struct bucket_visit bucket = {visit, target->prefix, strlen(target->prefix)};
	char prefix[TARGET_PATH_BYTES];
	const struct neb_list list = {
		.bucket = target->bucket, .prefix = prefix, .visit = bucket_entry, .arg = &bucket};
	struct neb_result result = {0};

	if ((size_t)snprintf(prefix, sizeof(prefix), "%s%s/", target->prefix, folder) >=
		sizeof(prefix))
		return CLI_USAGE;
	return neb_list(target->client, &list, &result) ? remote_failed(target->text, &result)
							: CLI_OK;
}

/* ---- Both. ---- */

int target_put(struct target *target, const char *name, const struct slice *parts, uint32_t count)
{
	CHECK(count <= TARGET_PARTS_MAX);
	return target->folder ? folder_put(target, name, parts, count)
			      : bucket_put(target, name, parts, count);
}

int target_put_new(
	struct target *target, const char *name, const struct slice *parts, uint32_t count)
{
	int ret = target_has(target, name);

	if (ret == CLI_NOT_FOUND)
		return target_put(target, name, parts, count);
	if (ret)
		return ret;
	fprintf(stderr, "nebulaio: the backup %s: %s exists already; it is not replaced\n",
		remote_text(target->text), name);
	return CLI_FAILED;
}

static int cut_short(const struct target *target, const char *name)
{
	fprintf(stderr, "nebulaio: the backup %s: %s is cut short\n", remote_text(target->text),
		name);
	return CLI_DAMAGED;
}

int target_read(
	struct target *target, const char *name, const struct target_range *range, void *out)
{
	char path[TARGET_PATH_BYTES];
	uint64_t bytes;
	int fd, ret = path_of(target, name, path);

	if (ret)
		return ret;
	if (!target->folder) {
		ret = bucket_read(target, path, range, out);
		return ret == CLI_DAMAGED ? cut_short(target, name) : ret;
	}
	ret = folder_open_file(target, name, &fd, &bytes);
	if (ret)
		return ret;
	ret = read_all(fd, out, range->bytes, range->offset);
	close(fd);
	if (ret == -EIO && range->offset + range->bytes > bytes)
		return cut_short(target, name);
	return ret ? failed(target, name, "it cannot be read", -ret) : CLI_OK;
}

int target_get(struct target *target, const char *name, struct buf *out)
{
	struct target_range range = {0};
	char path[TARGET_PATH_BYTES], *data;
	int fd, ret = path_of(target, name, path);

	if (!ret && target->folder) {
		ret = folder_open_file(target, name, &fd, &range.bytes);
		if (!ret)
			close(fd);
	} else if (!ret) {
		ret = bucket_head(target, path, &range.bytes);
	}
	if (ret)
		return ret;
	if (range.bytes > FILE_BYTES_MAX)
		return failed(target, name, "it cannot be read", EFBIG);
	data = malloc(range.bytes + 1);
	if (!data)
		return failed(target, name, "it cannot be read", ENOMEM);
	ret = target_read(target, name, &range, data);
	if (!ret)
		buf_put(out, data, range.bytes);
	free(data);
	if (!ret && out->failed)
		return failed(target, name, "it cannot be read", EFBIG);
	return ret;
}

int target_has(struct target *target, const char *name)
{
	char path[TARGET_PATH_BYTES];
	int ret = path_of(target, name, path);

	if (ret)
		return ret;
	if (!target->folder)
		return bucket_head(target, path, NULL);
	if (access(path, F_OK) == 0)
		return CLI_OK;
	return errno == ENOENT ? CLI_NOT_FOUND : failed(target, name, "it cannot be read", errno);
}

int target_remove(struct target *target, const char *name)
{
	struct neb_request request = {.op = NEB_DELETE_OBJECT, .bucket = target->bucket};
	struct neb_result result = {0};
	char path[TARGET_PATH_BYTES];
	int ret = path_of(target, name, path);

	if (ret)
		return ret;
	if (target->folder)
		return unlink(path) && errno != ENOENT
			       ? failed(target, name, "it cannot be removed", errno)
			       : CLI_OK;
	request.key = path;
	return neb_perform(target->client, &request, &result) ? remote_failed(path, &result)
							      : CLI_OK;
}

int target_sync(struct target *target)
{
	if (target->folder && syncfs(target->lock_fd))
		return failed(target, ".", "it cannot be made durable", errno);
	return CLI_OK;
}

int target_list(struct target *target, const char *folder, target_visit_fn *visit, void *arg)
{
	const struct visit whole = {.fn = visit, .arg = arg};

	return target->folder ? folder_list(target, folder, true, &whole)
			      : bucket_list(target, folder, &whole);
}
