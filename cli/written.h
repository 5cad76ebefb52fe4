/* cli/written.h: which files a run has written. On a file system that ignores case, and through
 * links to folders, two names may be one file: the second must not replace the first. */
#ifndef CLI_WRITTEN_H
#define CLI_WRITTEN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct written_file {
	dev_t dev;
	ino_t ino; /* 0: none here */
};

/* Any thread may call. Has room for every file of the run from the beginning: 32 to 64 bytes each.
 */
struct written {
	pthread_mutex_t mutex;
	struct written_file *files; /* a hash table */
	size_t mask;		    /* its places less one */
};

/* 0, or -ENOMEM. At most count files are written. */
int written_open(struct written *written, size_t count);
void written_close(struct written *written);
/* rename(2) of a file of this run. -EEXIST: the target is a file of this run already; another
 * -errno. In both cases it stays as it is. */
int written_rename(struct written *written, const char *from, const char *target);

/* Whether the file at path, if there is one, has this name itself, and not one that its file system
 * takes for the same. Each part of the name behind the first skip bytes is looked at. False if that
 * cannot be read. Changes path, and puts it back; false: *ret_len is how much of path the part ends
 * at. */
bool written_name_is_own(char *path, size_t skip, size_t *ret_len);

#endif
