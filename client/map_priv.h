/* client/map_priv.h: objects as memory. A mapper has a client, a userfaultfd and a thread, which
 * fetches the pages that other threads touch.
 *
 *   map.c        the calls of nebulaio.h: a mapper's life, and a map's
 *   map_run.c    the mapper's thread: what is fetched, when, and what is dropped
 *   map_uffd.c   userfaultfd(2): opening it, giving pages to a mapping, ending one
 *
 * Nothing here copies bytes but UFFDIO_COPY: from the registered memory that a fetch went to, into
 * the mapping's own pages. */
#ifndef CLIENT_MAP_PRIV_H
#define CLIENT_MAP_PRIV_H

#include <pthread.h>

#include "call_priv.h"

/* The most that one request brings. */
#define MAP_PIECE_BYTES (2 * MIB)
/* Requests in flight, and pieces of registered memory for them. */
#define MAP_STAGES 8u
/* Of those, so many are left for threads that wait. */
#define MAP_STAGES_SPARE 2u
/* Pieces ahead of a thread that reads in order. */
#define MAP_AHEAD 4u
/* Places of a map where threads read in order. */
#define MAP_STREAMS 8u
/* A window of a stream grows by this factor with each fault, up to a piece. */
#define MAP_GROWTH	   4u
#define MAP_WISHES_MAX	   64u
#define MAP_FAULT_BYTES	   (64 * KIB)
#define MAP_RESIDENT_MIN   (32 * MIB)
#define MAP_PATIENCE_NS	   (60 * NS_PER_S)
#define MAP_BACKOFF_NS	   (100 * NS_PER_MS)
#define MAP_BACKOFF_NS_MAX (2 * NS_PER_S)
/* The pool of the mapper's client, at least. */
#define MAP_POOL_BYTES (MAP_STAGES * MAP_PIECE_BYTES + 16 * MIB)
_Static_assert(MAP_RESIDENT_MIN >= 2 * (MAP_AHEAD + 1) * MAP_PIECE_BYTES,
	"what is read ahead is not dropped before it is read");

/* Of a unit: neb_mapper_options.fault_bytes of a map. MARKED: its first page was kept back. */
enum map_state { MAP_ABSENT, MAP_FETCHING, MAP_THERE, MAP_MARKED };

/* Neighbouring units that one request brings. Its life, by the list that it is on:
 *
 *   queued    wants a stage             -> flying; freed when its map ends
 *   flying    its request is sent       -> resident; queued to be tried again; freed if its map
 *                                          ended meanwhile
 *   resident  in the mapping's pages    -> freed when it is dropped or its map ends */
struct map_run {
	struct list link;
	struct neb_mapper *mapper;
	struct neb_map *map; /* NULL: it ended while the run was flying */
	uint64_t offset;
	uint32_t bytes;	     /* whole units, but for the object's end */
	bool touched;	     /* a thread waits for it */
	bool ahead;	     /* of a stream: the touch of its first page is to be noticed */
	uint8_t *stage;	     /* flying */
	uint8_t *first_page; /* resident and MARKED: its bytes */
	uint64_t failed_ns;  /* when it failed first; 0: it did not */
	uint64_t backoff_ns, retry_ns;
};

/* A thread that reads in order; the bytes up to end were asked for. */
struct map_stream {
	uint64_t end;
	uint64_t used; /* the turn of its last fault */
	uint32_t window;
};

/* A range that neb_map_prefetch asked for; what is left of it. */
struct map_wish {
	struct neb_map *map; /* NULL: it ended */
	uint64_t offset, end;
};

/* The life of a map, which its opener and the mapper's thread change under the mapper's lock:
 *
 *   ASKING   wants the object's length   -> OPEN, or freed by its opener
 *   OPEN     pages are fetched           -> ENDED, CLOSING
 *   ENDED    touching it raises SIGBUS   -> CLOSING
 *   CLOSING  the thread lets go of it    -> CLOSED
 *   CLOSED   freed by its closer */
enum map_phase { MAP_ASKING, MAP_ASKED, MAP_OPEN, MAP_ENDED, MAP_CLOSING, MAP_CLOSED };

struct neb_map {
	struct neb_mapper *mapper;
	struct list link;
	enum map_phase phase;
	char *bucket, *key, *version_id;
	char etag[sizeof(((struct neb_result *)0)->etag)], if_match[96];
	uint8_t *data;
	uint64_t bytes, mapped_bytes; /* mapped_bytes: whole pages */
	uint64_t unit_count;
	uint8_t *states; /* of the units: enum map_state */
	struct map_stream streams[MAP_STREAMS];
	uint64_t turn;
	struct neb_result result; /* of the HEAD; ENDED: the reason */
	struct neb_map_stats stats;
};

struct neb_mapper {
	struct neb_client *client; /* only the thread uses it */
	int uffd;
	bool kernel_faults;
	uint64_t page_bytes;
	uint32_t unit_shift; /* of fault_bytes */
	uint64_t resident_bytes_max, patience_ns;
	neb_map_failed_fn *failed;
	void *failed_arg;
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t changed;
	bool ending;
	struct list maps, orders; /* orders: ASKING or CLOSING, which the thread has not seen */
	struct list queued, flying, resident;
	uint64_t resident_bytes; /* also of runs that are flying */
	uint32_t stage_count;	 /* that are free */
	uint8_t *stages[MAP_STAGES];
	uint32_t wish_count;
	struct map_wish wishes[MAP_WISHES_MAX];
};

/* ---- map_uffd.c ---- */
/* Opens a userfaultfd. *ret_kernel: it serves faults inside system calls, too. Else -errno, and
 * *ret_why tells people what to do. */
int map_uffd_open(int *ret_uffd, bool *ret_kernel, const char **ret_why);
/* A read-only mapping of so many bytes whose pages come by uffd; -1: they are zeros. */
int map_uffd_reserve(int uffd, uint64_t bytes, uint8_t **ret_data);
/* Gives pages their bytes, and wakes the threads that wait for them. Pages that are there stay. */
int map_uffd_copy(
	const struct neb_mapper *mapper, uint8_t *to, const uint8_t *from, uint64_t bytes);
void map_uffd_wake(int uffd, uint8_t *data, uint64_t bytes);
/* From now on every touch of the mapping raises SIGBUS, also in the threads that wait. */
void map_uffd_bury(int uffd, uint8_t *data, uint64_t bytes);

/* ---- map_run.c ---- */
/* The thread of a mapper, until mapper->ending. */
void *map_thread(void *arg);
/* Whether one of the range's units is on its way, or will be by a wish. With the lock. */
bool map_run_awaited(const struct neb_map *map, uint64_t offset, uint64_t end);

#endif
