/* store/volume/paths.c: the paths at which the volumes of a set are looked for: from the
 * configuration, and from the data folder's list. Blocks. */
#include "base/file.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096u
#define LIST_BYTES_MAX (STRIPE_PATHS_MAX * PATH_BYTES_MAX)

bool stripe_vacant(const struct volume *volume, uint32_t member)
{
	return super_has(&volume->super, member) && volume->path_of[member] == STRIPE_PATH_NONE;
}

uint32_t stripe_path_find(const struct volume *volume, const char *path)
{
	char *absolute = strstr(path, "://") ? NULL : realpath(path, NULL);
	uint32_t found = STRIPE_PATH_NONE;

	for (uint32_t i = 0; i < volume->set_count && found == STRIPE_PATH_NONE; i++) {
		const char *other = volume->set_paths[i];
		char *full = strstr(other, "://") || !absolute ? NULL : realpath(other, NULL);

		if (strcmp(other, path) == 0 || (full && strcmp(full, absolute) == 0))
			found = i;
		free(full);
	}
	free(absolute);
	return found;
}

static int path_add(struct volume *volume, struct slice path)
{
	char *name;

	path = slice_trim(path);
	if (path.len == 0)
		return 0;
	name = strndup(path.data, path.len);
	if (!name)
		return -ENOMEM;
	if (stripe_path_find(volume, name) != STRIPE_PATH_NONE) {
		free(name);
		return 0;
	}
	if (volume->set_count == STRIPE_PATHS_MAX) {
		log_error("store", "more than %u volumes", STRIPE_PATHS_MAX);
		free(name);
		return -EINVAL;
	}
	volume->set_paths[volume->set_count++] = name;
	return 0;
}

bool stripe_path_valid(const char *path)
{
	struct slice text = slice_str(path);

	return (path[0] == '/' || strstr(path, "://")) && !strpbrk(path, "\n,") &&
	       text.len < PATH_BYTES_MAX && slice_trim(text).len == text.len;
}

int stripe_path_add(struct volume *volume, const char *path)
{
	return path_add(volume, slice_str(path));
}

static void bit_move(uint64_t *bits, uint32_t from, uint32_t to)
{
	bool set = *bits >> from & 1;

	*bits &= ~(1ull << from | 1ull << to);
	*bits |= (uint64_t)set << to;
}

void stripe_path_remove(struct volume *volume, uint32_t path_idx)
{
	uint32_t last = volume->set_count - 1;

	free(volume->set_paths[path_idx]);
	volume->set_paths[path_idx] = volume->set_paths[last];
	volume->set_paths[last] = NULL;
	bit_move(&volume->paths_named, last, path_idx);
	bit_move(&volume->paths_refused, last, path_idx);
	volume->path_told[path_idx] = volume->path_told[last];
	volume->path_told[last] = 0;
	bit_move(&volume->paths_asked, last, path_idx);
	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++)
		if (volume->path_of[m] == path_idx)
			volume->path_of[m] = STRIPE_PATH_NONE;
		else if (volume->path_of[m] == last)
			volume->path_of[m] = path_idx;
	volume->set_count--;
}

static int list_take(struct volume *volume, struct slice list, char separator)
{
	int ret = 0;

	while (list.len && !ret)
		ret = path_add(volume, slice_split(&list, separator));
	return ret;
}

/* A list that is read in part would be a store with fewer volumes. */
static int list_read(struct volume *volume, const char *path)
{
	char *text = (char *)malloc(LIST_BYTES_MAX);
	FILE *file = text ? fopen(path, "re") : NULL;
	int ret = !text ? -ENOMEM : !file ? -errno : 0;
	size_t len = ret ? 0 : fread(text, 1, LIST_BYTES_MAX, file);

	if (!ret && ferror(file))
		ret = errno ? -errno : -EIO;
	if (ret)
		log_error("store", "%s: the list of the store's volumes cannot be read: %s", path,
			strerror(-ret));
	else
		ret = list_take(volume, slice_of(text, len), '\n');
	if (file)
		fclose(file);
	free(text);
	return ret;
}

int stripe_locate(const struct volume_opts *opts, struct volume *volume)
{
	char own[4096], list[4096];
	struct stat st;
	bool several, single;
	int ret;

	if ((size_t)snprintf(own, sizeof(own), "%s/volume", opts->dir) >= sizeof(own) ||
		(size_t)snprintf(list, sizeof(list), "%s/volumes", opts->dir) >= sizeof(list))
		return -ENAMETOOLONG;
	several = access(list, F_OK) == 0;
	single = lstat(own, &st) == 0;
	if (!opts->path || !opts->path[0])
		return several ? list_read(volume, list) : 0;
	if (strchr(opts->path, ',') && single) {
		log_error("store",
			"%s: the store has one volume: copy its objects to a new store over "
			"several",
			opts->dir);
		return -EUCLEAN;
	}
	if (!strchr(opts->path, ',') && several) {
		log_error("store", "%s: the store has several volumes: name all of them, or none",
			opts->dir);
		return -EUCLEAN;
	}
	if (!strchr(opts->path, ','))
		return 0;
	ret = list_take(volume, slice_str(opts->path), ',');
	volume->paths_named = (1ull << volume->set_count) - 1;
	/* Volumes that were added or replaced while the server ran. */
	if (!ret && several && volume_index_present(opts->dir))
		ret = list_read(volume, list);
	return ret;
}

/* Whether the path is named by the configuration, is a member's, or may be a missing member's. */
static bool path_counts(const struct volume *volume, uint32_t path_idx)
{
	bool vacant = false;

	for (uint32_t m = 0; m < DISK_MEMBERS_MAX; m++) {
		if (volume->path_of[m] == path_idx)
			return true;
		vacant |= stripe_vacant(volume, m);
	}
	return vacant || volume->paths_named >> path_idx & 1;
}

int stripe_remember(const char *dir, const struct volume *volume)
{
	char path[4096], fresh[4096 + 8];
	FILE *file;
	int ret = 0;

	if ((size_t)snprintf(path, sizeof(path), "%s/volumes", dir) >= sizeof(path))
		return -ENAMETOOLONG;
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	file = fopen(fresh, "we");
	if (!file)
		return -errno;
	for (uint32_t i = 0; i < volume->set_count; i++) {
		char *absolute;

		if (!path_counts(volume, i))
			continue;
		absolute = realpath(volume->set_paths[i], NULL);
		/* Uses the given name if it is a stable one. */
		fprintf(file, "%s\n",
			volume->set_paths[i][0] == '/' || !absolute ? volume->set_paths[i]
								    : absolute);
		free(absolute);
	}
	if (ferror(file) || fflush(file) || fsync(fileno(file)))
		ret = errno ? -errno : -EIO;
	fclose(file);
	if (!ret && rename(fresh, path))
		ret = -errno;
	return ret ? ret : file_dir_sync(dir);
}

void stripe_paths_free(struct volume *volume)
{
	for (uint32_t i = 0; i < volume->set_count; i++)
		free(volume->set_paths[i]);
	free(volume->replace_path);
	volume->replace_path = NULL;
	volume->set_count = 0;
}
