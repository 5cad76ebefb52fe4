/* store/volume/modes.c: restricts access to the store's files to their owner. The index has the
 * names, the headers and the small bodies of all objects; the volume has the other bodies. */
#include "store/volume/volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHERS (S_IRWXG | S_IRWXO)

struct modes {
	const char *dir;
	uint32_t tightened; /* number of files that were open to others, now closed */
	uint32_t left;	    /* number of files of another owner, which cannot be changed */
	char first_left[NAME_MAX + 1];
};

/* A file or directory of the store; the target of a link is not checked here. */
static void tighten(struct modes *modes, int at_fd, const char *name)
{
	struct stat info;
	int fd;

	if (fstatat(at_fd, name, &info, AT_SYMLINK_NOFOLLOW) || !(info.st_mode & OTHERS) ||
		!(S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)))
		return;
	/* Through the descriptor: the name could lead to another file by now. */
	fd = openat(at_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && info.st_uid == geteuid() &&
		fchmod(fd, info.st_mode & 07777 & ~(mode_t)OTHERS) == 0) {
		modes->tightened++;
	} else {
		if (!modes->left++)
			snprintf(modes->first_left, sizeof(modes->first_left), "%s", name);
	}
	if (fd >= 0)
		close(fd);
}

static void tighten_index(struct modes *modes, int dir_fd)
{
	int fd = openat(dir_fd, "index", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;

	if (fd >= 0 && !listing)
		close(fd);
	if (!listing)
		return;
	while ((entry = readdir(listing)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			tighten(modes, dirfd(listing), entry->d_name);
	closedir(listing);
}

void modes_check(const char *dir)
{
	static const char *const NAMES[] = {"LOCK", "volume", "volumes", "index", "space",
		"scrubbed", "secrets.key", "encryption.keys", "tls"};
	struct modes modes = {.dir = dir};
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	tighten(&modes, fd, ".");
	for (uint32_t i = 0; i < ARRAY_LEN(NAMES); i++)
		tighten(&modes, fd, NAMES[i]);
	tighten_index(&modes, fd);
	close(fd);
	if (modes.tightened)
		log_warn("store",
			"%s: other users had access to it or to files in it (%u): the server has "
			"removed that access; a user who read them knows names, headers and small "
			"bodies",
			dir, modes.tightened);
	if (modes.left)
		log_warn("store",
			"%s: other users have access to %s (and %u more), and the server may not "
			"change that: make sure that you trust them, or remove their access "
			"(chmod -R go-rwx)",
			dir, strcmp(modes.first_left, ".") == 0 ? "the folder" : modes.first_left,
			modes.left - 1);
}

void modes_check_file(const char *path)
{
	struct modes modes = {0};
	struct stat info;

	/* The administrator controls access to a device. */
	if (strstr(path, "://") || stat(path, &info) || !S_ISREG(info.st_mode))
		return;
	tighten(&modes, AT_FDCWD, path);
	if (modes.tightened)
		log_warn("store",
			"%s: other users had access to the volume: the server has removed it",
			path);
	else if (modes.left)
		log_warn("store",
			"%s: other users have access to the volume, and the server may not change "
			"that",
			path);
}
