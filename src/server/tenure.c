/* server/tenure.c: one thread in the process of a store of a cluster: it looks each second whether
 * the map still gives the store to the gateway that started this process. */
#include "server/tenure.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ticker.h"

#define LOOK_MS 1000

struct tenure {
	struct cluster *cluster;
	uint32_t store;
	char gateway[CLUSTER_NAME_LEN_MAX + 1];
	int end_ms;
	struct ticker ticker;
	_Atomic bool lost;
};

/* An entry that cannot be read decides nothing: without RADOS the volume's lease ends, too. */
static bool other_has_it(const struct tenure *tenure)
{
	struct cluster_store store;

	if (cluster_store(tenure->cluster, tenure->store, &store) || !store.owner[0] ||
		strcmp(store.owner, tenure->gateway) == 0)
		return false;
	log_warn("server",
		"store %u is gateway %s's now, and gateway %s, which started this process, has not "
		"ended it: it ends by itself",
		tenure->store, store.owner, tenure->gateway);
	return true;
}

/* The signal is the one by which the gateway would end it: the next owner waits for the volume,
 * and has it as soon as it is given up. */
static void *run(void *arg)
{
	struct tenure *tenure = arg;

	while (!other_has_it(tenure))
		if (!ticker_sleep(&tenure->ticker, LOOK_MS))
			return NULL;
	atomic_store(&tenure->lost, true);
	kill(getpid(), SIGTERM);
	if (!ticker_sleep(&tenure->ticker, tenure->end_ms))
		return NULL;
	log_error("server", "store %u: the orderly end lasts too long: this process ends at once",
		tenure->store);
	_exit(TENURE_EXIT_LOST);
}

int tenure_begin(struct cluster *cluster, uint32_t store, const char *gateway, int end_ms,
	struct tenure **ret_tenure)
{
	struct tenure *tenure = calloc(1, sizeof(*tenure));
	int ret;

	if (!tenure)
		return -ENOMEM;
	tenure->cluster = cluster;
	tenure->store = store;
	tenure->end_ms = end_ms;
	snprintf(tenure->gateway, sizeof(tenure->gateway), "%s", gateway);
	ret = ticker_open(&tenure->ticker);
	/* Without the name of its gateway a process was started by hand. */
	if (!ret && gateway[0])
		ret = ticker_start(&tenure->ticker, run, tenure);
	if (ret) {
		tenure_end(tenure);
		return ret;
	}
	*ret_tenure = tenure;
	return 0;
}

void tenure_end(struct tenure *tenure)
{
	if (!tenure)
		return;
	ticker_stop(&tenure->ticker);
	ticker_close(&tenure->ticker);
	free(tenure);
}

bool tenure_lost(const struct tenure *tenure)
{
	return atomic_load(&tenure->lost);
}
