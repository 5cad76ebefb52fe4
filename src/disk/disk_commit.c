/* disk/disk_commit.c: writes and a flush as one operation. For a file, two threads make blocking
 * calls. A direct write by io_uring would end in a kernel worker on the processor that took the
 * interrupt, and its flush in another worker; each of them would have to wait for a processor
 * behind spinning reactors. Other kinds use disk_start. */
#include "disk/disk_dax.h"
#include "disk/disk_joined.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/wake.h"

/* One for each write of a commit: the bodies, which lie side by side, and the log. */
#define WRITERS 2u
_Static_assert(WRITERS <= WAKE_MAX, "all are woken by one call");

struct disk_writers {
	struct disk *disk;
	pthread_mutex_t lock;
	struct list sleepers;
	struct list queue; /* commits with writes that no thread has taken yet */
	bool ending;
	uint32_t count;
	pthread_t threads[WRITERS];
};

/* ---- Either way, on the reactor. ---- */

static void flush_done(struct disk_io *io, int32_t result)
{
	struct disk_commit *commit = CONTAINER_OF(io, struct disk_commit, flush);

	commit->done(commit, MIN(result, 0));
}

static void write_done(struct disk_io *io, int32_t result)
{
	struct disk_commit *commit = (struct disk_commit *)io->arg;

	if (result < 0 && !commit->error)
		commit->error = result;
	if (--commit->left)
		return;
	if (commit->error)
		commit->done(commit, commit->error);
	else if (commit->flushed)
		disk_io_end(&commit->flush, 0);
	else
		disk_start(commit->disk, &commit->flush);
}

static void threads_done(struct reactor_msg *msg)
{
	struct disk_commit *commit = CONTAINER_OF(msg, struct disk_commit, msg);
	struct disk_io *writes = commit->writes;

	/* The last of these calls may free the commit and its writes. */
	for (uint32_t i = commit->write_count; i-- > 0;)
		disk_io_end(&writes[i], 0);
}

/* ---- On the threads. ---- */

static int32_t write_whole(struct disk_io *io)
{
	while (io->iov_count) {
		ssize_t count = pwritev(
			io->disk->fd, io->iov, (int)io->iov_count, (off_t)(io->offset + io->moved));

		if (count < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (count <= 0)
			return count < 0 ? -errno : -EIO;
		io->moved += (uint64_t)count;
		disk_iov_advance(io, (uint64_t)count);
	}
	return 0;
}

/* The last writer flushes, unless a write failed. */
static void write_run(struct disk_commit *commit, struct disk_io *io)
{
	struct reactor *reactor = commit->reactor;

	io->fault = write_whole(io);
	if (io->fault)
		atomic_store(&commit->failed, true);
	if (atomic_fetch_sub(&commit->writing, 1) > 1)
		return;
	if (!atomic_load(&commit->failed) && fdatasync(io->disk->fd))
		commit->flush.fault = -errno;
	reactor_help_end(reactor, &commit->msg);
}

/* Called with the lock held. A write that no thread has taken yet, and its commit; NULL at the
 * end. */
static struct disk_io *write_take(struct disk_writers *writers, struct disk_commit **ret_commit)
{
	struct disk_commit *commit;
	struct disk_io *io;

	while (list_empty(&writers->queue) && !writers->ending)
		wake_wait(&writers->sleepers, &writers->lock, NULL);
	if (list_empty(&writers->queue))
		return NULL;
	commit = CONTAINER_OF(writers->queue.next, struct disk_commit, link);
	io = &commit->writes[commit->taken++];
	if (commit->taken == commit->write_count)
		list_remove(&commit->link);
	*ret_commit = commit;
	return io;
}

static void *writer_main(void *arg)
{
	struct disk_writers *writers = (struct disk_writers *)arg;
	struct disk_commit *commit;
	struct disk_io *io;

	pthread_setname_np(pthread_self(), "disk-commit");
	pthread_mutex_lock(&writers->lock);
	while ((io = write_take(writers, &commit))) {
		pthread_mutex_unlock(&writers->lock);
		write_run(commit, io);
		pthread_mutex_lock(&writers->lock);
	}
	pthread_mutex_unlock(&writers->lock);
	return NULL;
}

static void threads_start(struct disk_writers *writers, struct disk_commit *commit)
{
	uint32_t count = commit->write_count;

	commit->taken = 0;
	commit->reactor = reactor_self();
	commit->msg.fn = threads_done;
	atomic_store(&commit->writing, count);
	atomic_store(&commit->failed, false);
	reactor_help_begin(commit->reactor);
	pthread_mutex_lock(&writers->lock);
	list_push_back(&writers->queue, &commit->link);
	/* The commit may have ended from here on. */
	wake_unlock(&writers->sleepers, &writers->lock, count);
}

void disk_writers_open(struct disk *disk)
{
	struct disk_writers *writers;
	sigset_t all, before;
	int error = 0;

	if (disk->ops != &DISK_FILE_OPS || disk->writers || disk->read_only)
		return;
	writers = (struct disk_writers *)calloc(1, sizeof(*writers));
	if (!writers)
		return;
	writers->disk = disk;
	list_init(&writers->queue);
	pthread_mutex_init(&writers->lock, NULL);
	list_init(&writers->sleepers);
	disk->writers = writers;
	/* Signals are for the threads that expect them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!error && writers->count < WRITERS) {
		error = pthread_create(
			&writers->threads[writers->count], NULL, writer_main, writers);
		writers->count += !error;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		log_warn("disk", "%s: %u of %u threads for commits (%s): commits are slower",
			disk->path, writers->count, WRITERS, strerror(error));
}

void disk_writers_close(struct disk *disk)
{
	struct disk_writers *writers = disk->writers;

	if (!writers)
		return;
	pthread_mutex_lock(&writers->lock);
	CHECK(list_empty(&writers->queue));
	writers->ending = true;
	wake_all_unlock(&writers->sleepers, &writers->lock);
	for (uint32_t i = 0; i < writers->count; i++)
		pthread_join(writers->threads[i], NULL);
	pthread_mutex_destroy(&writers->lock);
	free(writers);
	disk->writers = NULL;
}

/* ---- */

/* All writes from this one on are done. The last call may free the commit and its writes. */
static void writes_end(struct disk_commit *commit, uint32_t first, uint32_t count)
{
	struct disk_io *writes = commit->writes;

	while (count-- > first)
		disk_io_end(&writes[count], 0);
}

void disk_commit(struct disk *disk, struct disk_commit *commit)
{
	uint32_t all = commit->write_count, count = all;
	struct disk_writers *writers;

	CHECK(all > 0);
	commit->left = all;
	commit->error = 0;
	commit->flushed = true;
	commit->flush.op = DISK_FLUSH;
	commit->flush.iov_count = 0;
	commit->flush.done = flush_done;
	for (uint32_t i = 0; i < all; i++) {
		commit->writes[i].op = DISK_WRITE;
		commit->writes[i].done = write_done;
		commit->writes[i].arg = commit;
	}
	if (disk->joined)
		disk = joined_commit(disk, commit, &count);
	if (disk->dax && dax_fits(disk, commit->writes, count)) {
		dax_run(disk, commit->writes, count);
		count = 0;
	}
	commit->disk = disk;
	commit->write_count = count;
	disk_io_begin(disk, &commit->flush);
	if (!count) {
		writes_end(commit, 0, all);
		return;
	}
	writers = disk->writers;
	commit->flushed = writers && writers->count && count <= WRITERS && !disk->faults.active &&
			  !atomic_load(&disk->fenced);
	/* With others under way, this ends nothing but these. */
	writes_end(commit, count, all);
	for (uint32_t i = 0; i < count; i++) {
		if (commit->flushed)
			disk_io_begin(disk, &commit->writes[i]);
		else
			disk_start(disk, &commit->writes[i]);
	}
	if (commit->flushed)
		threads_start(writers, commit);
}
