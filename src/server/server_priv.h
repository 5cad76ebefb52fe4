/* server/server_priv.h: shared by the files of a server's life:
 *
 *   server.c  the order in which all opens, starts and closes
 *   shared.c  what all cores share: placement, device, region, store, keys, s3
 *   core.c    one core: its reactor, its fronts and its addresses
 *   drain.c   the orderly end */
#ifndef SERVER_SERVER_PRIV_H
#define SERVER_SERVER_PRIV_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/cgroup.h"
#include "listen/listen.h"
#include "rdma/rdma.h"
#include "origin/origin.h"
#include "replicate/replicate.h"
#include "reactor/eventual.h"
#include "reactor/thread.h"
#include "server/admin/admin.h"
#include "server/https.h"
#include "server/job/job.h"
#include "server/lifecycle.h"
#include "server/memory.h"
#include "server/names.h"
#include "server/numa.h"
#include "server/paths.h"
#include "server/resources.h"
#include "server/server.h"
#include "server/tell.h"

/* One reactor with all that lives on it. Phases: opened → running → draining → drained → closed. */
struct core {
	struct server *server;
	struct reactor *reactor;
	struct flow_core flow;
	struct listen *http;
	struct listen *https;
	struct listen *admin;	     /* on the first core only */
	struct listen *console;	     /* on the first core only */
	struct front_native *native; /* the first core's accepts connections for all */
	struct front_token *token;
	struct front_hipobj *hipobj;
	struct reactor_thread thread;
	bool attached; /* the store has a fiber here */
	struct reactor_msg drain_msg, end_msg;
	struct eventual drain;
};

struct server {
	struct config config;
	struct numa_plan numa;
	struct region *region;
	struct flow_budget *budget; /* of the region's frames */
	struct store *store;
	struct s3 *s3;
	struct lifecycle lifecycle;  /* on the first core */
	struct replicate *replicate; /* on the first core; NULL: off */
	struct origin *origin;	     /* as replicate */
	const struct replicate_sender *sender;
	struct https *https; /* NULL: off */
	struct rp_device *device;
	struct etcd *etcd; /* NULL: the owner's lease is not there */
	struct remote *remote;
	struct rv *rados;
	struct names *names; /* NULL: the store is of no cluster */
	struct job_scrub_opts scrub;
	struct job_discard_opts discard;
	struct rp_device_attr device_attr;
	struct paths paths;		   /* the other addresses for sessions, and their devices */
	struct front_discovery *discovery; /* NULL: off */
	struct core cores[LIMIT_CORES_MAX];
	struct cgroup_limits limits; /* at the start */
	struct resources_files files;
	uint32_t core_count;
	struct reactor *reactors[LIMIT_CORES_MAX];
	struct admin_opts admin_opts;
	struct console *console; /* on the first core; NULL: off */
	struct tell tell;	 /* its callers are on the first core */
	struct memory memory;	 /* on the first core */
	char *accounts_json;	 /* until it has been read into the store */
	sem_t identities_done;
	int identities_error;
	_Atomic bool draining;
	_Atomic uint32_t
		cores_draining; /* first core: wait for the others before the last checkpoint */
	struct fiber *_Atomic last_drainer;
};

/* ---- shared.c ---- */
/* Chooses the server's NUMA node and the number of event loops. */
int server_place(struct server *server);
struct rp_open_opts server_device_opts(const struct config *config);
int server_open_device(struct server *server);
int server_open_store(struct server *server);
int server_open_s3(struct server *server);

/* ---- core.c ---- */
int server_open_core(struct server *server, uint32_t core_idx);

#endif
