/* client/minter.c: opens and closes a minter: its S3 client, its device, and on the simulated
 * device a thread. A card moves bytes of registered memory while the caller waits for another
 * library's answer. The simulated device needs its owner's thread where the kernel lets no process
 * access the other's memory, and to notice that the peer has ended. */
#include "minter_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define POOL_BYTES (64 * KIB) /* of the S3 client, which moves no object */

/* ---- The thread. ---- */

static void *run(void *arg)
{
	struct neb_minter *minter = arg;
	struct pollfd waits[3] = {
		{.fd = minter->wake_fd, .events = POLLIN},
		{.fd = rp_cm_fd(minter->device), .events = POLLIN},
		{.fd = rp_cq_fd(minter->cq), .events = POLLIN},
	};
	bool armed;

	pthread_mutex_lock(&minter->lock);
	while (!minter->ending) {
		minter_progress(minter);
		pthread_cond_broadcast(&minter->changed);
		armed = rp_cq_arm(minter->cq);
		if (!armed)
			continue;
		pthread_mutex_unlock(&minter->lock);
		poll(waits, ARRAY_LEN(waits), -1);
		for (uint32_t i = 1; i < ARRAY_LEN(waits); i++)
			if (client_fd_lost(&waits[i]))
				waits[i].fd = -1;
		pthread_mutex_lock(&minter->lock);
		rp_cq_disarm(minter->cq);
	}
	pthread_mutex_unlock(&minter->lock);
	return NULL;
}

static int thread_start(struct neb_minter *minter)
{
	int ret;

	minter->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (minter->wake_fd < 0)
		return -errno;
	ret = client_thread_start(&minter->thread, run, minter);
	minter->has_thread = ret == 0;
	return ret;
}

static void thread_end(struct neb_minter *minter)
{
	uint64_t one = 1;

	if (!minter->has_thread)
		return;
	pthread_mutex_lock(&minter->lock);
	minter->ending = true;
	pthread_mutex_unlock(&minter->lock);
	if (write(minter->wake_fd, &one, sizeof(one)) != sizeof(one))
		client_log(minter->control, NEB_LOG_ERROR, "eventfd: %s", strerror(errno));
	pthread_join(minter->thread, NULL);
	minter->has_thread = false;
}

/* ---- Opening and closing. ---- */

/* Chooses the device that the options name, or that reaches the endpoint. */
static int device_choose(
	struct neb_minter *minter, const char *wanted, char *ret_name, size_t name_bytes)
{
	const struct client_endpoint *endpoint = &minter->control->endpoints[0];
	struct rp_found found = {0};
	char address[CLIENT_ADDRESS_BYTES];
	const char *why = "";
	int ret;

	if (wanted && *wanted && strcmp(wanted, "auto") != 0)
		return slice_copy_str(slice_str(wanted), ret_name, name_bytes) ? -EINVAL : 0;
	ret = client_resolve(endpoint->host, address, sizeof(address), &why);
	if (ret)
		snprintf(found.why, sizeof(found.why), "the host name %.100s: %.60s",
			endpoint->host, why);
	else
		ret = rp_find(address, endpoint->port, &found);
	if (ret)
		client_log(minter->control, NEB_LOG_ERROR, "no RDMA tokens: %s", found.why);
	else
		snprintf(ret_name, name_bytes, "%s", found.device_name);
	return ret;
}

static int device_open(struct neb_minter *minter, const char *wanted)
{
	char name[sizeof(((struct rp_found *)0)->device_name)];
	char source[RP_ADDRESS_TEXT_BYTES];
	const struct rp_open_opts opts = {.device_name = name, .gid_index = -1, .address = source};
	struct rp_device_attr attr;
	int ret = device_choose(minter, wanted, name, sizeof(name));

	if (ret)
		return ret;
	client_source(&minter->control->endpoints[0], source);
	ret = rp_open(&opts, &minter->device);
	if (ret == 0)
		ret = rp_pd_open(minter->device, &minter->domain.pd);
	if (ret == 0)
		ret = rp_cq_open(minter->device, 4 * MINTER_QPS_MAX, &minter->cq);
	if (ret) {
		client_log(minter->control, NEB_LOG_ERROR, "no RDMA tokens: RDMA device %.60s: %s",
			name, strerror(-ret));
		return ret;
	}
	minter->domain.device = minter->device;
	rp_device_attr(minter->device, &attr);
	minter->simulated = attr.simulated;
	return minter->simulated ? thread_start(minter) : 0;
}

/* A queue pair is connected to one server, and tokens are valid only there. */
static int control_open(struct neb_minter *minter, const struct neb_options *options)
{
	struct neb_options ours = *options;
	struct slice text = slice_trim(slice_str(options->endpoints ? options->endpoints : ""));
	char endpoint[CLIENT_HOST_LEN_MAX + 32];
	int ret;

	if (slice_ends(text, SLICE("?rdma")))
		text.len -= strlen("?rdma");
	if (slice_copy_str(text, endpoint, sizeof(endpoint)))
		return -EINVAL;
	ours.endpoints = endpoint;
	ours.transport = NEB_HTTP;
	ours.pool_bytes = POOL_BYTES;
	ours.registration_cache_bytes = 0;
	ours.one_sided_reads = false;
	ret = client_open(&ours, NULL, &minter->control);
	if (ret == 0 &&
		(minter->control->endpoint_count != 1 || minter->control->http_count != 1)) {
		client_log(minter->control, NEB_LOG_ERROR,
			"a minter has one endpoint, of HTTP or HTTPS, and not \"%s\"", endpoint);
		return -EINVAL;
	}
	if (ret == 0 && options->require_encryption) {
		client_log(minter->control, NEB_LOG_ERROR,
			"require_encryption: the bytes that a token moves are not encrypted");
		return -EINVAL;
	}
	return ret;
}

int neb_minter_open(const struct neb_options *options, struct neb_minter **ret_minter)
{
	struct neb_minter *minter = calloc(1, sizeof(*minter));
	pthread_condattr_t monotonic;
	int ret;

	if (!minter)
		return -ENOMEM;
	minter->wake_fd = -1;
	list_init(&minter->tokens);
	list_init(&minter->memories);
	pthread_mutex_init(&minter->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&minter->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	ret = slice_copy_str(slice_str(options->token_bucket ? options->token_bucket : ""),
		minter->bucket, sizeof(minter->bucket));
	if (ret == 0)
		ret = control_open(minter, options);
	if (ret == 0)
		ret = device_open(minter, options->device_name);
	if (ret) {
		neb_minter_close(minter);
		return ret;
	}
	*ret_minter = minter;
	return 0;
}

void neb_minter_close(struct neb_minter *minter)
{
	if (!minter)
		return;
	minter_qps_end(minter);
	thread_end(minter);
	minter_memory_close(minter);
	if (minter->wake_fd >= 0)
		close(minter->wake_fd);
	if (minter->cq)
		rp_cq_close(minter->cq);
	if (minter->domain.pd)
		rp_pd_close(minter->domain.pd);
	rp_close(minter->device);
	neb_client_close(minter->control);
	pthread_cond_destroy(&minter->changed);
	pthread_mutex_destroy(&minter->lock);
	free(minter);
}
