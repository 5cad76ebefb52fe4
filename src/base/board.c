/* base/board.c: makes the process's board and reads the boards of other processes, whose contents
 * are untrusted input.
 */
#include "base/board.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define MAGIC		  "nebbrd01"
#define FDS_LOOKED_AT_MAX 65536u

/* A place's name is complete once `used` is set. Places are never freed. */
struct place {
	char name[BOARD_NAME_BYTES];
	_Atomic uint64_t value;
};
struct board {
	char magic[8];
	_Atomic uint32_t used;
	uint8_t reserved[sizeof(struct place) - 12];
	struct place places[BOARD_ENTRIES_MAX];
};
_Static_assert(sizeof(struct board) == (size_t)4 * FRAME_BYTES, "four pages");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct board *own;
static bool tried;
static _Atomic uint64_t unseen;

/* The descriptor stays open for as long as the process lives, because readers find the board
 * through it. */
static struct board *board_make(void)
{
	struct board *board = MAP_FAILED;
	int fd = memfd_create(BOARD_FD_PREFIX, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && ftruncate(fd, sizeof(*board)) == 0 &&
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
		board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (board != MAP_FAILED) {
		memcpy(board->magic, MAGIC, sizeof(board->magic));
		return board;
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

static struct place *place_find(struct board *board, const char *name)
{
	uint32_t used = atomic_load(&board->used);

	for (uint32_t i = 0; i < used; i++) {
		if (!strcmp(board->places[i].name, name))
			return &board->places[i];
	}
	if (used == BOARD_ENTRIES_MAX || strlen(name) >= BOARD_NAME_BYTES)
		return NULL;
	memcpy(board->places[used].name, name, strlen(name) + 1);
	atomic_store_explicit(&board->used, used + 1, memory_order_release);
	return &board->places[used];
}

_Atomic uint64_t *board_place(const char *name)
{
	struct place *place = NULL;

	pthread_mutex_lock(&lock);
	if (!tried)
		own = board_make();
	tried = true;
	if (own)
		place = place_find(own, name);
	pthread_mutex_unlock(&lock);
	return place ? &place->value : &unseen;
}

/* ---- Reading another process's board. ---- */

static void text_clean(char *dst, const char *src)
{
	memcpy(dst, src, BOARD_NAME_BYTES);
	dst[BOARD_NAME_BYTES - 1] = '\0';
	for (char *c = dst; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
}

static uint32_t board_copy(struct board *board, struct board_entry *entries, uint32_t max)
{
	uint32_t used =
		MIN(atomic_load_explicit(&board->used, memory_order_acquire), BOARD_ENTRIES_MAX);

	if (memcmp(board->magic, MAGIC, sizeof(board->magic)) != 0)
		return 0;
	used = MIN(used, max);
	for (uint32_t i = 0; i < used; i++) {
		text_clean(entries[i].name, board->places[i].name);
		entries[i].value =
			atomic_load_explicit(&board->places[i].value, memory_order_relaxed);
	}
	return used;
}

/* Entry N of the directory, when it is a board. The memfd must be sealed: its owner could shorten
 * an unsealed one while we read, and reading would end in SIGBUS. */
static int fd_read(int dir_fd, const char *name, struct board_entry *entries, uint32_t max)
{
	static const char PREFIX[] = "/memfd:" BOARD_FD_PREFIX;
	char link[64];
	ssize_t len = readlinkat(dir_fd, name, link, sizeof(link));
	struct board *board;
	struct stat stat;
	uint32_t count = 0;
	int fd, seals;

	if (len < 0)
		return errno == EACCES || errno == EPERM ? -errno : 0;
	if (len < (ssize_t)sizeof(PREFIX) - 1 || memcmp(link, PREFIX, sizeof(PREFIX) - 1) != 0)
		return 0;
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? -errno : 0;
	seals = fcntl(fd, F_GET_SEALS);
	if (seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &stat) == 0 &&
		stat.st_size == sizeof(*board)) {
		board = mmap(NULL, sizeof(*board), PROT_READ, MAP_SHARED, fd, 0);
		if (board != MAP_FAILED) {
			count = board_copy(board, entries, max);
			munmap(board, sizeof(*board));
		}
	}
	close(fd);
	return (int)count;
}

int board_read(int pid, struct board_entry *entries, uint32_t max)
{
	uint32_t count = 0, looked = 0;
	char path[32];
	int error = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? -ESRCH : -errno;
	for (struct dirent *ent = readdir(dir); ent && looked++ < FDS_LOOKED_AT_MAX;
		ent = readdir(dir)) {
		int got = fd_read(dirfd(dir), ent->d_name, entries + count, max - count);

		if (got < 0)
			error = got;
		else
			count += (uint32_t)got;
	}
	closedir(dir);
	return count || !error ? (int)count : error;
}
