/* client/client_priv.h: the client itself: options, endpoints, store, device. Above it:
 * call_priv.h, a request's life; session_priv.h, RDMA sessions; http_priv.h, HTTP. Below it:
 * memory_priv.h.
 *
 *   client.c      options, open and close, log
 *   endpoint.c    where to go
 *   told.c        further addresses that a server tells
 *   owner.c       a cluster's stores: their owners, and a session with each
 *   bucket.c      where the owner of a bucket's store is
 *   device.c      by which RDMA device
 *   memory.c      the pool, registrations, what the device may touch for one request
 *   gpu.c         memory of a GPU
 *   call.c        a request's life: copied, routed, tried again, finished
 *   progress.c    the rounds that drive all calls; submit, poll, wait
 *   batch.c       many reads by one call
 *   fan_out.c     one object as one client of a group
 *   fan_cast.c    the same by multicast
 *   session.c     an RDMA session's life: connect, prove, fail
 *   session_dp.c  capsules out and in: the way of the microsecond
 *   lease_dp.c    objects read from the server's memory
 *   crypt.c       bodies of encrypted sessions
 *   http.c        the same requests over HTTP, by libcurl
 *   token.c       bodies by RDMA tokens in HTTP requests
 *   hipobj.c      bodies by hipobj-rc-v2
 *   sigv4.c       signing them
 *   ops.c         the calls for the common operations; listings
 *   pool.c        clients for many threads
 *   map*.c        objects as memory: a client with a thread of its own (map_priv.h)
 *   minter*.c     RDMA tokens for requests of other libraries (minter_priv.h)
 *   compat/       drop-ins for programs that expect another vendor's library (compat.h)
 *
 * One thread at a time uses a client with all that belongs to it. */
#ifndef CLIENT_CLIENT_PRIV_H
#define CLIENT_CLIENT_PRIV_H

#include <curl/curl.h>
#include <poll.h>

#include "base/base.h"
#include "memory_priv.h"
#include "codec/codec.h"
#include "codec/token.h"
#include "nebulaio/nebulaio.h"
#include "rdma/rdma.h"

#define CLIENT_ENDPOINTS_MAX	16u
#define CLIENT_HOST_LEN_MAX	255u
#define CLIENT_ADDRESS_BYTES	64u /* an address in digits, with its scope */
#define CLIENT_BACKOFF_NS_MIN	(100 * NS_PER_MS)
#define CLIENT_BACKOFF_NS_MAX	(10 * NS_PER_S)
#define CLIENT_POOL_CLIENTS_MAX 1024u
#define CLIENT_EASIES_MAX	64u
/* Sessions with owners; the one unused for the longest time makes room. */
#define CLIENT_OWNERS_MAX 8u
/* Addresses of one server that a client uses side by side. */
#define CLIENT_PATHS_MAX 8u

enum client_scheme { CLIENT_RDMA, CLIENT_HTTP, CLIENT_HTTPS };

struct client_endpoint {
	enum client_scheme scheme;
	uint16_t port;
	char host[CLIENT_HOST_LEN_MAX + 1];
	uint64_t retry_ns;   /* not tried again before this */
	uint64_t backoff_ns; /* 0: the last try succeeded */
	bool warned;	     /* this outage was logged */
	bool token;	     /* bodies move by RDMA tokens */
	struct client_tokens *tokens;
	bool hipobj; /* bodies move by hipobj-rc-v2 */
	bool owner;  /* a gateway: it tells the owners of buckets */
	bool given;  /* RDMA: no paths but those that the program gave */
	/* RDMA: the server tells it. It has this store, or (0) is told no more, and then gets no
	 * new session. */
	bool told;
	bool proven; /* it had a session */
	uint64_t store_id;
	/* RDMA: paths to one server have the same group. The client has a session for each path of
	 * one group at a time. */
	uint32_t group;
	uint32_t device_idx;		    /* of the client's devices: the one that leads there */
	char address[CLIENT_ADDRESS_BYTES]; /* what host last meant to a session; "": nothing yet */
	/* it does not support hipobj-rc-v2: not tried again before this */
	uint64_t hipobj_retry_ns;
	int error;     /* and */
	char why[128]; /* it could not be had */
};

/* An RDMA device, and what the client has opened on it. */
struct client_device {
	struct rp_device *rp;
	struct rp_pd *pd;
	struct rp_cq *cq;
	bool simulated;
	bool lost[2]; /* the descriptor of cq, of rp: it was removed or reset */
	char name[sizeof(((struct rp_found *)0)->device_name)];
	struct reg_cache *reg_cache; /* NULL: off */
};

/* The device of a descriptor was removed or reset. The descriptor reports that for ever, so a poll
 * of it would never sleep again. */
static inline bool client_fd_lost(const struct pollfd *wait)
{
	return wait->revents & (POLLERR | POLLHUP | POLLNVAL) && !(wait->revents & POLLIN);
}

struct neb_client {
	enum neb_transport transport;
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
	char secret_key[LIMIT_SECRET_KEY_LEN_MAX + 1];
	char *session_token; /* NULL: the keys are not temporary */
	char region[64];
	uint32_t requests_max, inline_bytes_max, retries_max;
	uint64_t connect_timeout_ns, request_timeout_ns, spin_ns, keepalive_ns;
	bool require_encryption;
	neb_log_fn *log;
	void *log_arg;
	uint32_t endpoint_count, rdma_count, http_count, token_count, owner_count, told_count;
	struct client_endpoint endpoints[CLIENT_ENDPOINTS_MAX];
	struct prng prng;
	/* The store that the endpoints belong to; 0: not known yet. The client's own variable, or
	 * its pool's. */
	_Atomic uint64_t *store_id, own_store_id;
	/* RDMA; none without an RDMA endpoint. The first one also moves the bodies of requests over
	 * HTTP. */
	uint32_t device_count;
	struct client_device devices[CLIENT_DEVICES_MAX];
	/* The group of endpoints in use: for each of its paths the session for new calls, or NULL:
	 * none. */
	uint32_t group_count, group, path_count;
	struct client_session *paths[CLIENT_PATHS_MAX];
	struct list sessions, lost_sessions;
	/* Of a cluster's stores; NULL: no endpoint is a gateway. */
	struct client_owners *owners;
	struct client_buckets *buckets;
	uint32_t next_serial;
	bool gpu_failed;      /* a copy to or from a GPU failed */
	int rdma_error;	      /* of the last outage */
	const char *rdma_why; /* no session is ever tried; NULL: device_why */
	int wake_fd;	      /* an eventfd that neb_wake writes */
	int watch_fd; /* a wait that sleeps ends when it is readable, as by neb_wake; -1: none */
	bool watch_quiet;    /* it only ends the sleep */
	bool watch_lost;     /* it reported an error */
	_Atomic bool woken;  /* a wait that spins reads this */
	char *device_wanted; /* the option; NULL: none */
	uint64_t reg_cache_bytes;
	char device_names[CLIENT_DEVICES_MAX * sizeof(((struct rp_found *)0)->device_name)];
	char device_why[sizeof(((struct rp_found *)0)->why)]; /* it is that one, or none */
	uint64_t kept_ns;				      /* when sessions were last checked */
	uint64_t cm_polled_ns;
	uint32_t idle_rounds; /* since the clock was last read */
	bool kick;
	struct client_pool pool;
	uint32_t registration_count;
	struct client_registration registrations[CLIENT_REGISTRATIONS_MAX]; /* by address */
	/* HTTP. */
	CURLM *multi;
	uint32_t easy_count;
	CURL *easies[CLIENT_EASIES_MAX];
	uint32_t http_running;
	/* Calls by phase. */
	struct list queued, running, done, idle_calls;
	struct list hipobjs; /* transfers by hipobj-rc-v2 */
	uint32_t call_count; /* without a result taken */
	uint32_t undone_count;
	uint64_t next_id;
	/* Writes that have a number and no answer yet, in order of their numbers. */
	struct list numbered;
	uint64_t once_id, next_number;
	struct client_lease *leases; /* NULL: off */
	struct neb_stats stats;
	/* The same for `nebulaio top`. */
	_Atomic uint64_t *paths_up_shown, *paths_lost_shown, *moved_shown;
};

/* Whether bodies of the endpoint's requests may move by tokens or hipobj-rc-v2, which do not
 * encrypt them. CLIENT_NOT_ENCRYPTED is the reason why not. */
#define CLIENT_NOT_ENCRYPTED "encryption is required, and RDMA for HTTP does not encrypt bodies"
static inline bool client_moves_for_http(
	const struct neb_client *client, const struct client_endpoint *endpoint)
{
	return (endpoint->token || endpoint->hipobj) && !client->require_encryption;
}

/* Whether there is a session with the server, or one being set up. */
static inline bool client_has_path(const struct neb_client *client)
{
	for (uint32_t i = 0; i < client->path_count; i++)
		if (client->paths[i])
			return true;
	return false;
}

/* ---- log.c ---- */
void client_log(struct neb_client *client, enum neb_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* ---- endpoint.c ---- */
/* Notes an endpoint's error, which is the client's unless the endpoint was only told. */
void client_endpoint_error(struct neb_client *client, struct client_endpoint *endpoint, int error);
/* Records an outage of an endpoint: when to try again, and one warning. */
void client_endpoint_failed(
	struct neb_client *client, struct client_endpoint *endpoint, int error, const char *why);
/* Parses the endpoints in the text that the transport can use; -EINVAL, which is logged. */
int client_endpoints_parse(struct neb_client *client, const char *endpoints);

/* "HOST:PORT" into the endpoint, which has a default port; NEBULAIO_CONNECT_TO is observed.
 * -EINVAL. */
int client_endpoint_at(
	struct neb_client *client, struct client_endpoint *endpoint, struct slice text);

/* An endpoint names its store: 0, or -EXDEV and the endpoint's why when it is not the store of the
 * other endpoints. */
int client_store_learn(
	struct neb_client *client, struct client_endpoint *endpoint, uint64_t store_id);
/* The header that tells an endpoint which store the client expects: its name, and its current
 * value. */
#define CLIENT_STORE_HEADER "x-nebulaio-store"
void client_store_text(const struct neb_client *client, char text[17]);

/* ---- device.c ---- */
/* Opens the devices that the options name. With NULL, "" or "auto", opens the devices that lead to
 * the endpoints. Logged; client->device_why has the reason for the first one. -ENODEV: none could
 * be had. */
int client_device_open(struct neb_client *client);
void client_device_close(struct neb_client *client);
/* The same for one more path of an open client; memory that a device knows is known to a new one,
 * too. An error, with the endpoint's why. */
int client_device_join(struct neb_client *client, struct client_endpoint *endpoint);
/* The host's numeric address, which a connection manager needs. May ask a name server.
 * -EHOSTUNREACH, with why. */
int client_resolve(const char *host, char *ret_address, size_t address_bytes, const char **ret_why);
/* The address of this host that packets to the endpoint leave from, whose GID a device should use;
 * "" when no route is known. May ask a name server. */
void client_source(const struct client_endpoint *endpoint, char ret_source[RP_ADDRESS_TEXT_BYTES]);

/* ---- client.c ---- */
/* Starts a thread that takes none of the program's signals, which are for its own threads. */
int client_thread_start(pthread_t *ret_thread, void *(*run)(void *arg), void *arg);
/* neb_client_open for a client of a pool: with the store id that the pool's clients share. */
int client_open(const struct neb_options *options, _Atomic uint64_t *store_id,
	struct neb_client **ret_client);

#endif
