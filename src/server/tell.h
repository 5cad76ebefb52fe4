/* server/tell.h: answers operators' requests about the running server: RDMA sessions, the latest
 * lines of the log, the findings of its doctor, what follows the load, and the size of its memory
 * region. */
#ifndef SERVER_TELL_H
#define SERVER_TELL_H

#include "front/front.h"
#include "server/memory.h"
#include "server/paths.h"
#include "server/server.h"

struct tell {
	const struct config *config;
	struct s3 *s3;
	const struct rp_device_attr *device;	      /* of the sessions */
	struct front_native *fronts[LIMIT_CORES_MAX]; /* one a reactor; NULL: no RDMA */
	const struct paths *paths;		      /* the other devices */
	struct reactor *const *reactors;
	const _Atomic bool *draining;
	struct memory *memory;
	uint32_t count;
	server_doctor_fn *doctor; /* NULL: none */
	/* The doctor's last findings. */
	struct buf findings;
	uint64_t found_ns;
	bool busy;
};
/* An s3_admin_tell_fn; called on one reactor; arg is a struct tell. */
int tell_run(void *arg, enum s3_method method, struct slice path, struct buf *out);
/* The metrics that every process of this program has. Any thread. */
void tell_counters(struct buf *out);
/* Those of event loops. Any thread. */
void tell_reactors(struct reactor *const *reactors, uint32_t count, struct buf *out);
void tell_free(struct tell *tell);

#endif
