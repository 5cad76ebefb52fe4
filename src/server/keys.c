/* server/keys.c: reads the master keys of encryption at rest, and creates the first one. */
#include "server/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/codec.h"

#define KEY_BYTES 32u

/* Makes the file complete and durable, or not at all: data encrypted under a lost key is lost. */
static int make(const char *folder, const char *path)
{
	char part[CONFIG_TEXT_MAX + 40], line[16 + BASE64_LEN(KEY_BYTES) + 2];
	uint8_t id[4], key[KEY_BYTES];
	size_t len;
	int fd, folder_fd, ret = 0;

	random_fill(id, sizeof(id));
	random_fill(key, sizeof(key));
	hex_encode(id, sizeof(id), line);
	line[8] = ' ';
	len = 9 + base64_encode(key, sizeof(key), line + 9);
	line[len++] = '\n';
	secret_wipe(key, sizeof(key));
	snprintf(part, sizeof(part), "%s.part", path);
	fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || folder_fd < 0 || write(fd, line, len) != (ssize_t)len || fsync(fd) ||
		rename(part, path) || fsync(folder_fd))
		ret = errno ? -errno : -EIO;
	secret_wipe(line, sizeof(line));
	if (fd >= 0)
		close(fd);
	if (folder_fd >= 0)
		close(folder_fd);
	if (ret)
		log_error("server", "%s cannot be created: %s", path, strerror(-ret));
	else
		log_info("server",
			"made the master key of encryption at rest in %s; keep a copy elsewhere: "
			"without this key no encrypted object can be read",
			path);
	return ret;
}

/* A new key in its place would decrypt nothing, and hide that the right one is missing. */
static int refuse(const char *path)
{
	log_error("server",
		"encryption: %s is missing, and the store has data: without this file no "
		"encrypted object can be read",
		path);
	log_error("server",
		"restore it from your copy. If you have none, the encrypted objects are lost; to "
		"serve the rest with a new key: (umask 077; echo \"$(openssl rand -hex 4) "
		"$(openssl rand -base64 32)\" > %s)",
		path);
	return -ENOKEY;
}

int keys_read(const struct config *config, bool fresh, char ret_text[KEYS_BYTES_MAX])
{
	const char *path = config->encryption.key_file;
	char own[CONFIG_TEXT_MAX + 32];
	ssize_t len;
	int fd, ret;

	if (!path[0]) {
		snprintf(own, sizeof(own), "%s/encryption.keys", config->data.dir);
		path = own;
		if (access(path, F_OK) && errno == ENOENT) {
			ret = fresh ? make(config->data.dir, path) : refuse(path);
			if (ret)
				return ret;
		}
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? -1 : read(fd, ret_text, KEYS_BYTES_MAX - 1);
	ret = len < 0 ? -errno : len == KEYS_BYTES_MAX - 1 ? -EFBIG : 0;
	if (fd >= 0)
		close(fd);
	if (ret)
		log_error("server", "encryption.key_file: %s cannot be read: %s", path,
			strerror(-ret));
	else
		ret_text[len] = '\0';
	return ret;
}
