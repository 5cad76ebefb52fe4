/* gateway/secrets.c: the files of the cluster's keys, of accounts and of links: only their owner
 * reads them. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Removes the access of other users to a file of before; refuses one that is not ours. */
static int own_take(int fd, const char *path)
{
	struct stat info;

	if (fstat(fd, &info))
		return -errno;
	if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
		log_error("gateway",
			"%s: is no file of this user (%u), so another one could change its rights: "
			"remove it, and start again",
			path, (unsigned)geteuid());
		return -EPERM;
	}
	if (!(info.st_mode & 077))
		return 0;
	if (fchmod(fd, 0600)) {
		int ret = -errno;

		log_error("gateway",
			"%s: other users have access to it, and it cannot be removed: %s", path,
			strerror(-ret));
		return ret;
	}
	log_warn("gateway",
		"%s: other users had access to it: the gateway has removed that access; a user "
		"who read it can read the accounts' secrets in the stores",
		path);
	return 0;
}

int gw_secrets_save(const char *path, const void *key, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	int ret = fd < 0 ? -errno : own_take(fd, path);
	ssize_t done;

	/* Not empty at any time: a store's process may read it. */
	if (ret == 0) {
		done = pwrite(fd, key, bytes, 0);
		ret = done < 0 ? -errno : done < (ssize_t)bytes ? -EIO : 0;
	}
	if (ret == 0 && ftruncate(fd, (off_t)bytes))
		ret = -errno;
	if (fd >= 0)
		close(fd);
	if (ret && ret != -EPERM)
		log_error("gateway", "%s cannot be written: %s", path, strerror(-ret));
	return ret;
}
