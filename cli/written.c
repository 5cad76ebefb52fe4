/* cli/written.c: the files that a run has written, by device and inode, and whether a file that is
 * there has the name by which it was found. Some file systems forget a file's inode number when
 * they run short of memory (vfat, exfat), and no number tells of an earlier run: the names do. */
#include "written.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int written_open(struct written *written, size_t count)
{
	size_t places = 16;

	while (places < 2 * count)
		places *= 2;
	*written = (struct written){.mutex = PTHREAD_MUTEX_INITIALIZER,
		.files = calloc(places, sizeof(*written->files)),
		.mask = places - 1};
	return written->files ? 0 : -ENOMEM;
}

void written_close(struct written *written)
{
	free(written->files);
	pthread_mutex_destroy(&written->mutex);
}

/* The place of the file, or the free one for it: the table is at most half full. */
static struct written_file *place_of(const struct written *written, const struct stat *st)
{
	uint64_t hash = ((uint64_t)st->st_ino ^ ((uint64_t)st->st_dev << 32)) * 0x9e3779b97f4a7c15u;
	size_t at = (size_t)(hash >> 32) & written->mask;

	while (written->files[at].ino &&
		(written->files[at].ino != st->st_ino || written->files[at].dev != st->st_dev))
		at = (at + 1) & written->mask;
	return &written->files[at];
}

int written_rename(struct written *written, const char *from, const char *target)
{
	struct stat ours, there;
	int ret = 0;

	if (stat(from, &ours))
		return -errno;
	pthread_mutex_lock(&written->mutex);
	/* A link that is replaced takes nothing from the file to which it leads. */
	if (lstat(target, &there) == 0 && place_of(written, &there)->ino)
		ret = -EEXIST;
	else if (rename(from, target))
		ret = -errno;
	else
		*place_of(written, &ours) = (struct written_file){ours.st_dev, ours.st_ino};
	pthread_mutex_unlock(&written->mutex);
	return ret;
}

/* ---- Names. ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether the folder of path, whose last part is name, may ignore case: path with the other case of
 * each letter is the same file. Without a letter of ASCII nobody can tell. */
static bool case_may_be_ignored(char *path, char *name)
{
	char kept[NAME_MAX + 1];
	struct stat plain, swapped;
	bool letters = false, others = false, same;

	if (strlen(name) > NAME_MAX)
		return true;
	snprintf(kept, sizeof(kept), "%s", name);
	if (lstat(path, &plain))
		return true;
	for (char *c = name; *c; c++) {
		bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');

		letters = letters || letter;
		others = others || *c < 0;
		if (letter)
			*c = (char)(*c ^ 0x20);
	}
	same = letters ? lstat(path, &swapped) == 0 && same_file(&plain, &swapped) : others;
	memcpy(name, kept, strlen(kept));
	return same;
}

static bool folder_has(const char *folder, const char *name)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir)))
		found = !strcmp(entry->d_name, name);
	if (dir)
		closedir(dir);
	return found;
}

/* The last part of path. */
static bool part_is_own(char *path)
{
	char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	bool own;

	if (!case_may_be_ignored(path, name))
		return true;
	if (!slash || slash == path)
		return folder_has(slash ? "/" : ".", name);
	*slash = '\0';
	own = folder_has(path, name);
	*slash = '/';
	return own;
}

bool written_name_is_own(char *path, size_t skip, size_t *ret_len)
{
	struct stat st;

	if (lstat(path, &st))
		return true;
	for (char *end = path + skip; *end;) {
		char was;
		bool own;

		end += strspn(end, "/");
		end += strcspn(end, "/");
		was = *end;
		*end = '\0';
		own = part_is_own(path);
		*end = was;
		if (!own) {
			*ret_len = (size_t)(end - path);
			return false;
		}
	}
	return true;
}
