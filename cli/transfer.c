/* cli/transfer.c: the wait for one request of a transfer, and whether its file has changed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transfer.h"

int transfer_wait(struct transfer *transfer, struct neb_result *ret_result)
{
	int ret = neb_wait(transfer->client, ret_result, 1, UINT64_MAX);

	if (ret < 1) {
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(transfer->key),
			strerror(ret ? -ret : EPROTO));
		return CLI_FAILED;
	}
	transfer->transport = ret_result->transport;
	memcpy(transfer->fallback, ret_result->fallback, sizeof(transfer->fallback));
	return CLI_OK;
}

static bool same_time(const struct timespec *one, const struct timespec *other)
{
	return one->tv_sec == other->tv_sec && one->tv_nsec == other->tv_nsec;
}

/* A move of another link to the file changes its ctime, and nothing of its contents. */
bool transfer_file_same(const struct stat *before, const struct stat *now)
{
	return before->st_dev == now->st_dev && before->st_ino == now->st_ino &&
	       before->st_size == now->st_size && same_time(&before->st_mtim, &now->st_mtim) &&
	       (before->st_nlink != now->st_nlink || same_time(&before->st_ctim, &now->st_ctim));
}
