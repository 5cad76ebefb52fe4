/* server/job/expire.c: ends objects of memory buckets that are older than their bucket allows, and
 * sessions of backups that hold the store too long. */
#include "server/job/job.h"
#include "store/backup.h"

static void expire_main(void *arg)
{
	store_memory_run((struct store *)arg);
}

static void backup_main(void *arg)
{
	store_backup_run((struct store *)arg);
}

int job_store_start(struct reactor *reactor, struct store *store)
{
	int ret = job_rebuild_start(reactor, store);

	if (!ret)
		ret = fiber_spawn(reactor, "expire", expire_main, store);
	return ret ? ret : fiber_spawn(reactor, "backup", backup_main, store);
}
