/* rados/missing.c: in the place of the driver, in a program that was built without librados's
 * header: a path of such a volume is refused, with the reason. */
#include "disk/disk.h"
#include "rados/counters.h"
#include "rados/rados.h"

#include <errno.h>
#include <stdlib.h>

struct rv {
	struct disk_driver driver;
};

static int missing_open(void *arg, const struct disk_opts *opts, struct disk_identity *ret_identity,
	void **ret_volume)
{
	(void)arg;
	(void)ret_identity;
	(void)ret_volume;
	log_error("rados",
		"%s: this program was built without librados: install librados-dev and build it "
		"again",
		opts->path);
	return -EOPNOTSUPP;
}

int rv_open(const struct rv_opts *opts, struct rv **ret_rv)
{
	struct rv *rv = (struct rv *)calloc(1, sizeof(*rv));

	(void)opts;
	if (!rv)
		return -ENOMEM;
	/* No volume is ever open, so the other calls are never made. */
	rv->driver = (struct disk_driver){
		.scheme = RV_SCHEME, .name = "RADOS volume", .open = missing_open};
	disk_driver_add(&rv->driver);
	*ret_rv = rv;
	return 0;
}

void rv_close(struct rv *rv)
{
	if (!rv)
		return;
	disk_driver_remove(&rv->driver);
	free(rv);
}
