/* cli/flow_s3.h: the thread that holds `nebulaio flow`'s client: it waits for the server, which a
 * reactor must not. */
#ifndef CLI_FLOW_S3_H
#define CLI_FLOW_S3_H

#include <pthread.h>

#include "flow_cmd.h"

#define FLOW_S3_ANSWER_BYTES_MAX 8192u

/* A task for the thread, which takes tasks in order. run posts done when it has ended. */
struct flow_s3_work {
	struct list link;
	struct reactor_msg done;
	void (*run)(struct flow_s3_work *work);
};

struct flow_s3 {
	const struct remote_opts *opts;
	struct region *region;
	struct neb_client *client;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list jobs;
	bool stop;
	_Atomic int transport;
	char answer[FLOW_S3_ANSWER_BYTES_MAX];
};

void flow_s3_submit(struct flow_s3 *uploads, struct flow_s3_work *work);

#endif
