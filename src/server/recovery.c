/* server/recovery.c: seals the key files of a protected store for its volumes, and makes the files
 * again from there or from a backup. */
#include "server/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "codec/codec.h"

#define KEY_BYTES  RECOVERY_KEY_BYTES
#define SALT_BYTES 16u
#define FILE_MAX   4096u
/* docs/spec/disk.md, "Sealed key files". */
#define OVERHEAD (SALT_BYTES + AEAD_NONCE_BYTES + AEAD_TAG_BYTES)

/* ---- Files. ---- */

/* 0; -ENOENT; -EFBIG, -errno. */
static int file_read(const char *path, uint8_t bytes[FILE_MAX], size_t *ret_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, bytes, FILE_MAX);
	int ret = len < 0 ? -errno : len == (ssize_t)FILE_MAX ? -EFBIG : 0;

	if (fd >= 0)
		close(fd);
	if (!ret)
		*ret_len = (size_t)len;
	return ret;
}

/* Writes the file complete and durable, or not at all; never replaces an existing file. */
static int file_make(const char *path, struct slice text)
{
	char part[CONFIG_TEXT_MAX + 64];
	int fd, ret = 0;

	snprintf(part, sizeof(part), "%s.part", path);
	unlink(part); /* left by a start that was killed; the store's lock keeps others away */
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, text.data, text.len) != (ssize_t)text.len || fsync(fd))
		ret = errno ? -errno : -EIO;
	close(fd);
	if (!ret && link(part, path))
		ret = -errno;
	unlink(part);
	return ret ? ret : file_parent_sync(path);
}

int recovery_key_read(const struct config *config, uint8_t ret_key[RECOVERY_KEY_BYTES])
{
	const char *path = config->storage.recovery_key_file;
	uint8_t text[FILE_MAX];
	size_t len, decoded = 0;
	int ret;

	if (!path[0])
		return 0;
	ret = file_read(path, text, &len);
	if (ret) {
		log_error("server", "storage.recovery_key_file: %s cannot be read: %s", path,
			strerror(-ret));
		return ret;
	}
	while (len && (text[len - 1] == '\n' || text[len - 1] == '\r'))
		len--;
	ret = base64_decode(slice_of(text, len), ret_key, KEY_BYTES, &decoded);
	secret_wipe(text, sizeof(text));
	if (ret || decoded != KEY_BYTES) {
		log_error("server",
			"storage.recovery_key_file: %s must have one line, 32 bytes in base64: "
			"openssl rand -base64 32",
			path);
		return -EINVAL;
	}
	return 1;
}

/* ---- Sealing. ---- */

static int box_open(const uint8_t key[KEY_BYTES], const uint8_t salt[SALT_BYTES], struct aead **ret)
{
	uint8_t own[AEAD_KEY_BYTES];
	int error = hkdf_sha256(slice_of(key, KEY_BYTES), slice_of(salt, SALT_BYTES),
		SLICE("nebulaio recovery"), own, sizeof(own));

	if (!error)
		error = aead_open(own, ret);
	secret_wipe(own, sizeof(own));
	return error;
}

static int seal(const uint8_t key[KEY_BYTES], const char *name, struct slice text,
	uint8_t out[FILE_MAX + OVERHEAD])
{
	struct aead_message message = {.nonce = out + SALT_BYTES,
		.aad = slice_str(name),
		.src = text.data,
		.dst = out + OVERHEAD,
		.len = text.len,
		.tag = out + SALT_BYTES + AEAD_NONCE_BYTES};
	struct aead *aead;
	int ret;

	random_fill(out, SALT_BYTES + AEAD_NONCE_BYTES);
	ret = box_open(key, out, &aead);
	if (ret)
		return ret;
	ret = aead_seal(aead, &message);
	aead_close(aead);
	return ret;
}

static int unseal(const uint8_t key[KEY_BYTES], const char *name, struct slice sealed,
	uint8_t out[FILE_MAX], size_t *ret_len)
{
	uint8_t tag[AEAD_TAG_BYTES];
	const uint8_t *bytes = (const uint8_t *)sealed.data;
	struct aead_message message = {.nonce = bytes + SALT_BYTES,
		.aad = slice_str(name),
		.src = bytes + OVERHEAD,
		.dst = out,
		.tag = tag};
	struct aead *aead;
	int ret;

	if (sealed.len < OVERHEAD || sealed.len > FILE_MAX + OVERHEAD)
		return -EBADMSG;
	message.len = sealed.len - OVERHEAD;
	memcpy(tag, bytes + SALT_BYTES + AEAD_NONCE_BYTES, sizeof(tag));
	ret = box_open(key, bytes, &aead);
	if (ret)
		return ret;
	ret = aead_unseal(aead, &message);
	aead_close(aead);
	*ret_len = message.len;
	return ret;
}

/* ---- Both ways. ---- */

/* Sets a file aside that has another key, unless it has this text: 1. */
static int set_aside(const char *path, struct slice text)
{
	char aside[CONFIG_TEXT_MAX + 64];
	uint8_t old[FILE_MAX];
	size_t len;
	int ret = file_read(path, old, &len);
	bool same = !ret && len == text.len && secret_equal(old, text.data, len);

	secret_wipe(old, sizeof(old));
	if (ret == -ENOENT || same)
		return same;
	snprintf(aside, sizeof(aside), "%s.replaced", path);
	if (rename(path, aside))
		return -errno;
	log_warn("server", "%s belonged to another store: it is %s now", path, aside);
	return 0;
}

static int restore_one(const uint8_t key[KEY_BYTES], const char *where, struct slice sealed,
	const struct recovery_file *file)
{
	uint8_t text[FILE_MAX];
	size_t len = 0;
	int ret = unseal(key, file->name, sealed, text, &len);

	if (ret == -EBADMSG)
		log_error("server",
			"%s: %s a sealed copy of it that cannot be opened: "
			"storage.recovery_key_file is not the key that it was sealed under",
			file->path, where);
	if (!ret)
		ret = set_aside(file->path, slice_of(text, len));
	if (!ret) {
		ret = file_make(file->path, slice_of(text, len));
		if (ret)
			log_error("server", "%s cannot be created: %s", file->path, strerror(-ret));
		else
			log_info("server", "%s is made again from the sealed copy that %s",
				file->path, where);
	}
	secret_wipe(text, sizeof(text));
	return MIN(ret, 0);
}

void recovery_paths(const struct config *config, struct recovery_paths *ret_paths)
{
	snprintf(
		ret_paths->secrets, sizeof(ret_paths->secrets), "%s/secrets.key", config->data.dir);
	if (config->auth.secrets_key_file[0])
		snprintf(ret_paths->secrets, sizeof(ret_paths->secrets), "%s",
			config->auth.secrets_key_file);
	snprintf(ret_paths->encryption, sizeof(ret_paths->encryption), "%s/encryption.keys",
		config->data.dir);
	if (config->encryption.key_file[0])
		snprintf(ret_paths->encryption, sizeof(ret_paths->encryption), "%s",
			config->encryption.key_file);
	ret_paths->files[0] = (struct recovery_file){"secrets.key", ret_paths->secrets};
	ret_paths->files[1] = (struct recovery_file){"encryption.keys", ret_paths->encryption};
}

struct source {
	const char *where; /* the sealed copies are, for messages */
	bool replaces;	   /* files that have other keys */
	recovery_get_fn *get;
	void *arg;
};

static int restore_all(const struct config *config, const struct source *source,
	const struct recovery_file *files, uint32_t count)
{
	uint8_t key[KEY_BYTES];
	int ret = recovery_key_read(config, key);
	bool has_key = ret == 1;

	ret = MIN(ret, 0);
	for (uint32_t i = 0; i < count && !ret; i++) {
		struct buf sealed;

		if ((access(files[i].path, F_OK) == 0 || errno != ENOENT) &&
			!(source->replaces && has_key))
			continue;
		buf_init(&sealed, FILE_MAX + OVERHEAD);
		if (source->get(source->arg, files[i].name, &sealed) == 0) {
			if (has_key)
				ret = restore_one(
					key, source->where, buf_slice(&sealed), &files[i]);
			else
				log_error("server",
					"%s is missing, and %s a sealed copy of it: to use that, "
					"name the file with your recovery key as "
					"storage.recovery_key_file",
					files[i].path, source->where);
		}
		buf_free(&sealed);
	}
	secret_wipe(key, sizeof(key));
	return ret;
}

static int kept_get(void *arg, const char *name, struct buf *out)
{
	return store_kept((struct store *)arg, name, out);
}

int recovery_restore(const struct config *config, struct store *store,
	const struct recovery_file *files, uint32_t count)
{
	const struct source source = {"the volumes have", false, kept_get, store};

	return restore_all(config, &source, files, count);
}

int recovery_restore_from(const struct config *config, const struct recovery_paths *paths,
	recovery_get_fn *get, void *arg)
{
	const struct source source = {"the backup has", true, get, arg};

	return restore_all(config, &source, paths->files, ARRAY_LEN(paths->files));
}

/* Whether the sealed copy in the volumes contains this text. */
static bool is_kept(
	const uint8_t key[KEY_BYTES], struct store *store, const char *name, struct slice text)
{
	uint8_t old[FILE_MAX];
	struct buf sealed;
	size_t len;
	bool same;

	buf_init(&sealed, FILE_MAX + OVERHEAD);
	same = store_kept(store, name, &sealed) == 0 &&
	       unseal(key, name, buf_slice(&sealed), old, &len) == 0 && len == text.len &&
	       secret_equal(old, text.data, len);
	buf_free(&sealed);
	secret_wipe(old, sizeof(old));
	return same;
}

static int keep_one(
	const uint8_t key[KEY_BYTES], struct store *store, const struct recovery_file *file)
{
	uint8_t text[FILE_MAX], sealed[FILE_MAX + OVERHEAD];
	size_t len;
	int ret = file_read(file->path, text, &len);

	if (!ret && !is_kept(key, store, file->name, slice_of(text, len))) {
		ret = seal(key, file->name, slice_of(text, len), sealed);
		if (!ret)
			ret = store_keep(store, file->name, slice_of(sealed, len + OVERHEAD));
		if (!ret && store_protected(store) == 1)
			log_info("server", "%s has a sealed copy in the volumes", file->path);
		else if (!ret)
			log_error("server",
				"%s has no sealed copy in the volumes yet, because no copy of the "
				"index can be written there: keep a copy of the file elsewhere. "
				"The next checkpoint tries again",
				file->path);
	}
	secret_wipe(text, sizeof(text));
	if (ret)
		log_error("server", "%s: no sealed copy can be stored in the volumes: %s",
			file->path, strerror(-ret));
	return ret;
}

int recovery_keep(const struct config *config, struct store *store,
	const struct recovery_file *files, uint32_t count)
{
	uint8_t key[KEY_BYTES];
	int ret = recovery_key_read(config, key);
	bool has_key = ret == 1;

	ret = MIN(ret, 0);
	if (has_key && store_protected(store) < 0) {
		log_warn("server",
			"storage.recovery_key_file has no effect without storage.protect_index");
		has_key = false;
	}
	for (uint32_t i = 0; i < count && !ret && has_key; i++)
		ret = keep_one(key, store, &files[i]);
	secret_wipe(key, sizeof(key));
	return ret;
}
