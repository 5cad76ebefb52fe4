/* front/session/lease.c: copies of objects that a session's client reads by itself, by RDMA READ
 * (docs/design/lease.md). They are in the session's lease pool: memory outside the region, in a
 * memory window that is bound to this session's queue pair once the session is authenticated, so
 * its key is useless to anybody else. The pool is used in a circle: the oldest leases make room.
 *
 * A slot is written while it has no generation; it gets its generation last. Any thread may end the
 * lease; it clears the generation first. The session's thread wipes the body at the next sweep. The
 * client may read a slot at any time: the generation and the checksum tell it that the slot changed
 * meanwhile (docs/design/lease.md). */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/life.h"
#include "base/sanitizer.h"
#include "front/session/native_priv.h"

DEFINE_COUNTER_FULL(pool_full, "lease_pool");

#define SLOT_ALIGN 64u
/* A body uses at most this part of a pool, so that one lease does not end all others. */
#define POOL_PARTS 8u

DEFINE_COUNTER(grants, "nebulaio_lease_grants_total", NULL,
	"Objects that a session's client was allowed to read by itself.");
DEFINE_COUNTER(leases_now, "nebulaio_leases", NULL, "Such leases in force now.");
#define ENDS	  "nebulaio_lease_ends_total"
#define ENDS_HELP "Ended leases, by reason."
DEFINE_COUNTER(ended_changed, ENDS, "why=\"changed\"", ENDS_HELP);
DEFINE_COUNTER(ended_rights, ENDS, "why=\"rights\"", ENDS_HELP);
DEFINE_COUNTER(ended_time, ENDS, "why=\"time\"", ENDS_HELP);
DEFINE_COUNTER(ended_room, ENDS, "why=\"room\"", ENDS_HELP);
DEFINE_COUNTER(ended_owner, ENDS, "why=\"owner\"", ENDS_HELP);
DEFINE_COUNTER(ended_session, ENDS, "why=\"session\"", ENDS_HELP);

struct native_lease {
	struct native_lease_pool *pool;
	struct list link; /* the pool's, oldest first, which is also the order of their slots */
	struct store_object_watch watch;
	struct capsule_slot *slot;
	uint64_t bytes; /* of the slot */
	uint64_t expires_ns;
};

struct native_lease_pool {
	int fd;
	uint8_t *base;
	uint64_t bytes, at; /* place of the next slot */
	struct rp_mr *mr;
	struct rp_mw *mw;
	struct list leases;
	_Atomic bool ended; /* some leases have ended and are not wiped yet */
};

static void slot_close(struct capsule_slot *slot)
{
	sanitizer_overtaken_begin();
	__atomic_store_n(&slot->generation, 0, __ATOMIC_SEQ_CST);
	sanitizer_overtaken_end();
}

/* Any thread. */
static void on_ended(struct store_object_watch *watch, bool rights)
{
	struct native_lease *lease = CONTAINER_OF(watch, struct native_lease, watch);

	slot_close(lease->slot);
	atomic_store(&lease->pool->ended, true);
	counter_add(rights ? &ended_rights : &ended_changed, 1);
}

static void lease_free(struct native_session *session, struct native_lease *lease)
{
	s3_lease_end(session->front->opts.s3, &lease->watch);
	slot_close(lease->slot);
	/* A read that overlaps this finds the checksum wrong. */
	sanitizer_overtaken_begin();
	memset(lease->slot, 0, lease->bytes);
	sanitizer_overtaken_end();
	list_remove(&lease->link);
	free(lease);
	counter_sub(&leases_now, 1);
}

static void lease_end(
	struct native_session *session, struct native_lease *lease, struct counter *why)
{
	/* Leases that ended earlier have been counted. */
	if (__atomic_load_n(&lease->slot->generation, __ATOMIC_SEQ_CST))
		counter_add(why, 1);
	lease_free(session, lease);
}

static struct native_lease *oldest(const struct native_lease_pool *pool)
{
	return list_empty(&pool->leases)
		       ? NULL
		       : CONTAINER_OF(pool->leases.next, struct native_lease, link);
}

/* ---- The lease pool. ---- */

static void pool_close(struct native_lease_pool *pool)
{
	rp_mw_close(pool->mw);
	rp_mr_close(pool->mr);
	if (pool->base)
		munmap(pool->base, pool->bytes);
	if (pool->fd >= 0)
		close(pool->fd);
	free(pool);
}

/* A file that cannot shrink, so that the simulated device's peer may map it. */
static int pool_map(struct native_lease_pool *pool)
{
	void *base;

	pool->fd = memfd_create("nebulaio-leases", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (pool->fd < 0 || ftruncate(pool->fd, (off_t)pool->bytes) ||
		fcntl(pool->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return -errno;
	base = mmap(NULL, pool->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool->fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	pool->base = base;
	return 0;
}

static struct native_lease_pool *pool_open(struct native_session *session)
{
	const struct front_native *front = session->front;
	struct native_lease_pool *pool = calloc(1, sizeof(*pool));
	struct rp_mr_opts opts = {.access = RP_ACCESS_WINDOW};
	int ret;

	if (!pool)
		return NULL;
	list_init(&pool->leases);
	pool->bytes = ALIGN_UP(front->opts.lease_bytes, FRAME_BYTES);
	ret = pool_map(pool);
	opts.addr = pool->base;
	opts.bytes = pool->bytes;
	opts.fd = pool->fd;
	if (!ret)
		ret = rp_mr_open(front->port->pd, &opts, &pool->mr);
	if (!ret)
		ret = rp_mw_open(session->qp, pool->mr, native_tag_session(session), &pool->mw);
	if (!ret) {
		/* The bind used a place in the send queue. */
		session->sends_unsignaled++;
		return pool;
	}
	log_warn("rdma", "%s: no leases: %llu bytes cannot be registered: %s", session->peer,
		(unsigned long long)pool->bytes, strerror(-ret));
	pool_close(pool);
	session->leases = false;
	return NULL;
}

/* Takes the next slot of so many bytes, and ends the leases in its place. */
static struct capsule_slot *slot_take(struct native_session *session, uint64_t bytes)
{
	struct native_lease_pool *pool = session->lease_pool;
	uint8_t *from, *to;
	struct native_lease *lease;

	if (pool->at + bytes > pool->bytes) {
		counter_add(&pool_full, 1);
		from = pool->base + pool->at;
		while ((lease = oldest(pool)) != NULL && (uint8_t *)lease->slot >= from)
			lease_end(session, lease, &ended_room);
		pool->at = 0;
	}
	from = pool->base + pool->at;
	to = from + bytes;
	while ((lease = oldest(pool)) != NULL && (uint8_t *)lease->slot < to &&
		(uint8_t *)lease->slot + lease->bytes > from)
		lease_end(session, lease, &ended_room);
	pool->at += bytes;
	return (struct capsule_slot *)(void *)from;
}

/* ---- Granting. ---- */

static struct native_request *request_of(struct s3_lease *ask)
{
	return CONTAINER_OF(ask, struct native_request, ask);
}

/* Never 0, which means no lease. Random: a client that could guess it could make bytes of its own
 * object look like the slot that was there before. */
static uint64_t generation_draw(void)
{
	uint64_t generation;

	do {
		random_fill(&generation, sizeof(generation));
	} while (!generation);
	return generation;
}

/* How long a lease may last; 0: none. A store that another server may take over ends it earlier,
 * and only a client that looks at its clock after a read may have one. */
static uint64_t lease_time_ns(const struct native_session *session)
{
	uint64_t lease_ns = session->front->opts.lease_ns;
	uint64_t left_ns = life_left_ns();

	if (left_ns == LIFE_FOREVER)
		return lease_ns;
	return session->looks ? MIN(lease_ns, left_ns) / NS_PER_MS * NS_PER_MS : 0;
}

static struct store_object_watch *lease_copy(struct s3_lease *ask, struct slice body)
{
	struct native_request *request = request_of(ask);
	struct native_session *session = request->session;
	const struct front_native *front = session->front;
	uint64_t lease_ns = lease_time_ns(session);
	struct native_lease *lease;

	if (session->phase != NATIVE_OPEN || !lease_ns)
		return NULL;
	if (!session->lease_pool)
		session->lease_pool = pool_open(session);
	lease = session->lease_pool ? calloc(1, sizeof(*lease)) : NULL;
	if (!lease)
		return NULL;
	lease->pool = session->lease_pool;
	lease->watch.ended = on_ended;
	lease->bytes = ALIGN_UP(sizeof(*lease->slot) + body.len, SLOT_ALIGN);
	lease->slot = slot_take(session, lease->bytes);
	lease->expires_ns = reactor_now_ns(front->reactor) + lease_ns;
	sanitizer_overtaken_begin();
	memset(lease->slot, 0, sizeof(*lease->slot));
	region_copy((uint8_t *)(lease->slot + 1), body.data, body.len, COPY_LEASE);
	sanitizer_overtaken_end();
	request->lease = (struct capsule_lease){
		.addr = (uint64_t)(uintptr_t)lease->slot,
		.generation = generation_draw(),
		.crc64nvme = crc64nvme_update(0, lease->slot + 1, body.len),
		.rkey = rp_mw_rkey(session->lease_pool->mw),
		.lease_ms = (uint32_t)(lease_ns / NS_PER_MS),
	};
	sanitizer_overtaken_begin();
	__atomic_store_n(&lease->slot->generation, request->lease.generation, __ATOMIC_SEQ_CST);
	sanitizer_overtaken_end();
	list_push_back(&session->lease_pool->leases, &lease->link);
	counter_add(&grants, 1);
	counter_add(&leases_now, 1);
	request->has_lease = true;
	return &lease->watch;
}

static void lease_stale(struct s3_lease *ask)
{
	struct native_request *request = request_of(ask);
	struct list *newest = request->session->lease_pool->leases.prev;

	request->has_lease = false;
	lease_end(
		request->session, CONTAINER_OF(newest, struct native_lease, link), &ended_changed);
}

void native_lease_ask(struct native_request *request)
{
	const struct front_native_opts *opts = &request->session->front->opts;

	request->ask = (struct s3_lease){
		.epoch = s3_lease_epoch(opts->s3),
		.bytes_max = opts->lease_bytes / POOL_PARTS,
		.copy = lease_copy,
		.stale = lease_stale,
	};
	request->s3.lease = &request->ask;
}

/* ---- Ending. ---- */

/* The store may have another owner: no generation holds any more. */
static void leases_revoke(struct native_lease_pool *pool)
{
	LIST_FOR_EACH (link, &pool->leases) {
		struct native_lease *lease = CONTAINER_OF(link, struct native_lease, link);

		if (!__atomic_load_n(&lease->slot->generation, __ATOMIC_SEQ_CST))
			continue;
		slot_close(lease->slot);
		atomic_store(&pool->ended, true);
		counter_add(&ended_owner, 1);
	}
}

void native_leases_sweep(struct native_session *session, uint64_t now_ns)
{
	struct native_lease *lease;
	uint64_t *left = &session->front->wipe_bytes_left;

	if (__builtin_expect(!life_holds(), 0))
		leases_revoke(session->lease_pool);
	while (*left && (lease = oldest(session->lease_pool)) != NULL &&
		lease->expires_ns <= now_ns) {
		*left -= MIN(*left, lease->bytes);
		lease_end(session, lease, &ended_time);
	}
	if (!atomic_exchange(&session->lease_pool->ended, false))
		return;
	LIST_FOR_EACH_SAFE (link, &session->lease_pool->leases) {
		lease = CONTAINER_OF(link, struct native_lease, link);
		if (__atomic_load_n(&lease->slot->generation, __ATOMIC_SEQ_CST))
			continue;
		if (!*left) {
			atomic_store(&session->lease_pool->ended, true);
			return;
		}
		*left -= MIN(*left, lease->bytes);
		lease_free(session, lease);
	}
}

void native_leases_close(struct native_session *session)
{
	struct native_lease *lease;

	if (!session->lease_pool)
		return;
	while ((lease = oldest(session->lease_pool)) != NULL)
		lease_end(session, lease, &ended_session);
	pool_close(session->lease_pool);
	session->lease_pool = NULL;
}
