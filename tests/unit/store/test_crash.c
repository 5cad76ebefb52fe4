/* tests/unit/store/test_crash.c: kill -9 at random moments under a random load of PUT, DELETE,
 * joining of parts, appends, renames and edits in place.
 * After each restart every acknowledged object exists and is intact. A change that was not
 * acknowledged has happened completely or not at all, and so has the outbox row of its commit. fsck
 * is clean, and each bucket is said to hold what its versions add up to. A protected store also
 * loses its data folder at random, and a volume with it.
 *
 * The parent only forks: a process that has had RocksDB open cannot fork a working one. */
#include "rig.h"

#include "store/check/check.h"
#include "store/call/call.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITERS	       12u
#define KEYS	       25u /* of a writer */
#define JOINED	       3u  /* one version of so many is composed of parts */
#define GROWN	       4u  /* one of so many, without versions, grows by appends and is renamed */
#define EDITED	       5u  /* one of so many gets other headers afterwards */
#define ROUNDS_DEFAULT 12u
#define LIFE_NS_MAX    (150 * NS_PER_MS)

/* The content of a key, by version: 0 is none; other versions determine size and bytes. */
struct slot {
	_Atomic uint64_t acked;
	_Atomic uint64_t intended;
	_Atomic uint64_t lost; /* intended version that did not happen */
};

struct shared {
	_Atomic uint64_t version;
	uint64_t told_from; /* the outbox rows of earlier versions are deleted */
	_Atomic uint64_t acks;
	_Atomic bool running;
	int began[2]; /* a pipe: has a byte when the load runs; closed when the process ends */
	struct slot slots[WRITERS][KEYS];
};

static uint64_t size_of_version(uint64_t version)
{
	static const uint64_t SIZES[] = {
		0, 10, 900, 2048, 3000, 4096, 20000, 65536, 70000, 300000, 1500000};
	struct prng prng;
	uint64_t size;

	prng_seed(&prng, version);
	size = SIZES[prng_below(&prng, prng_below(&prng, 8) ? 8 : ARRAY_LEN(SIZES))];
	return size ? size - prng_below(&prng, MIN(size, 5u)) : 0;
}

static struct slice key_of(char buf[32], uint32_t writer, uint32_t key)
{
	snprintf(buf, 32, "w%02u/k%02u", writer, key);
	return slice_str(buf);
}

struct writer {
	struct shared *shared;
	uint32_t idx;
	uint64_t seed;
};

/* Every second writer's bucket keeps versions. */
static const char *bucket_of(uint32_t writer)
{
	return writer % 2 ? "v" : "b";
}

/* Deletes every third replaced version by its id. */
static int former_delete(struct rig *rig, const char *bucket, struct slice key, uint64_t version)
{
	struct store_deletion deletion = {.key = key};
	struct store_meta newest;
	int ret;

	if (version % 3 || bucket[0] != 'v')
		return 0;
	ret = store_newest(rig->store, slice_str(bucket), key, &newest);
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	deletion.version_id = slice_str(newest.version_id);
	ret = store_delete_each(rig->store, slice_str(bucket), 0, &deletion, 1);
	return ret ? ret : deletion.result;
}

/* The headers of an object that was edited name its version. */
static int edit_version(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	(void)current;
	*ret_headers = slice_of((const char *)arg, sizeof(uint64_t));
	return 0;
}

static bool headers_are(struct rig *rig, const char *bucket, struct slice key, uint64_t version)
{
	const struct store_meta *meta;
	struct store_get *get;
	bool exists, right;

	if (store_get_open(rig->store, slice_str(bucket), key, &get, &exists))
		return false;
	meta = store_get_meta(get);
	right = !meta->headers_len || slice_eq(slice_of(meta->headers, meta->headers_len),
					      slice_of((const char *)&version, sizeof(version)));
	store_get_close(get);
	return right;
}

/* Runs until it is killed. */
static void writer_run(struct rig *rig, void *arg)
{
	struct writer *writer = (struct writer *)arg;
	struct shared *shared = writer->shared;
	struct prng prng;
	char buf[32];

	prng_seed(&prng, writer->seed);
	for (;;) {
		uint32_t k = (uint32_t)prng_below(&prng, KEYS);
		struct slot *slot = &shared->slots[writer->idx][k];
		struct slice key = key_of(buf, writer->idx, k);
		uint64_t version = prng_below(&prng, 4) ? atomic_fetch_add(&shared->version, 1) : 0;
		struct store_outbox_row outbox_row = {
			.text = slice_of((const char *)&version, sizeof(version))};
		const struct put_how told = {.outbox_row = &outbox_row};
		const char *bucket = bucket_of(writer->idx);
		int ret;

		atomic_store(&slot->intended, version);
		if (version % JOINED == 1)
			ret = object_join_seeded(rig, bucket, key, size_of_version(version),
				version, 1 + (uint32_t)(version / JOINED % 4));
		else if (version % GROWN == 2 && bucket[0] == 'b' && size_of_version(version) > 4)
			ret = object_grow_seeded(rig, bucket, key, size_of_version(version),
				version, 2 + (uint32_t)(version / GROWN % 3));
		else if (version)
			ret = object_put_seeded(
				rig, bucket, key, size_of_version(version), version, &told);
		else
			ret = store_delete(rig->store, slice_str(bucket), key, NULL, NULL);
		if (ret)
			_exit(3);
		atomic_store(&slot->acked, version);
		atomic_fetch_add(&shared->acks, 1);
		if (version % EDITED == 1 &&
			store_edit(rig->store,
				&(struct store_name){.bucket = slice_str(bucket), .key = key},
				edit_version, &version, NULL))
			_exit(3);
		if (version && former_delete(rig, bucket, key, version))
			_exit(3);
	}
}

static void load_run(struct rig *rig, void *arg)
{
	struct writer *writers = (struct writer *)arg;

	if (reactor_core_idx(reactor_self()) == 0) {
		int ret = bucket_make(rig->store, "b");

		assert_true(ret == 0 || ret == -EEXIST);
		ret = bucket_make(rig->store, "v");
		assert_true(ret == 0 || ret == -EEXIST);
		assert_int_equal(versioning_set(rig, "v", STORE_VERSIONING_ENABLED), 0);
		ret = bucket_make(rig->store, "parts");
		assert_true(ret == 0 || ret == -EEXIST);
		atomic_store(&writers->shared->running, true);
		assert_int_equal(write(writers->shared->began[1], "", 1), 1);
		rig_fibers(rig, WRITERS / 2, writer_run, writers, sizeof(*writers));
	} else {
		while (!atomic_load(&writers->shared->running))
			fiber_yield();
		rig_fibers(rig, WRITERS / 2, writer_run, &writers[WRITERS / 2], sizeof(*writers));
	}
}

static bool version_is(struct rig *rig, const char *bucket, struct slice key, uint64_t version)
{
	int ret = object_verify_seeded(rig, bucket, key, size_of_version(version), version);

	return version ? ret == 0 && headers_are(rig, bucket, key, version) : ret == -ENOENT;
}

/* ---- Outbox rows of plain puts. ---- */

static bool is_told(const char *bucket, uint64_t version)
{
	return version && version % JOINED != 1 &&
	       !(version % GROWN == 2 && bucket[0] == 'b' && size_of_version(version) > 4);
}

struct told {
	uint8_t *seen; /* by version, from the first on */
	uint64_t first, count;
	uint64_t *numbers;
	uint32_t number_count;
};

static bool told_visit(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct told *told = (struct told *)arg;
	uint64_t version;

	if (text.len != sizeof(version) || !version_id.len)
		_exit(7);
	memcpy(&version, text.data, sizeof(version));
	if (version < told->first || version - told->first >= told->count ||
		told->seen[version - told->first]++ || told->number_count == told->count)
		_exit(8);
	told->numbers[told->number_count++] = number;
	return true;
}

/* Called when each key's version is known: a commit and its outbox row both exist, or neither. */
static void outbox_verify(struct rig *rig, struct shared *shared)
{
	struct told told = {.first = shared->told_from};

	told.count = atomic_load(&shared->version) - told.first + 1;
	told.seen = (uint8_t *)calloc(told.count, 1);
	told.numbers = (uint64_t *)calloc(told.count, sizeof(*told.numbers));
	if (store_outbox_visit(rig->store, 0, told_visit, &told))
		_exit(9);
	for (uint32_t w = 0; w < WRITERS; w++)
		for (uint32_t k = 0; k < KEYS; k++) {
			struct slot *slot = &shared->slots[w][k];
			uint64_t version = atomic_load(&slot->acked);
			uint64_t lost = atomic_load(&slot->lost);

			if (version >= told.first && is_told(bucket_of(w), version) &&
				!told.seen[version - told.first])
				_exit(10);
			if (lost >= told.first && told.seen[lost - told.first])
				_exit(11);
		}
	if (store_outbox_end(rig->store, told.numbers, told.number_count))
		_exit(12);
	shared->told_from = atomic_load(&shared->version);
	free(told.seen);
	free(told.numbers);
}

static void use_visit(const struct store_list_entry *entry, void *arg)
{
	struct store_quota *sum = (struct store_quota *)arg;

	sum->bytes += entry->meta->bytes;
	sum->objects += !entry->meta->delete_marker;
}

/* The few keys have no more than a page of versions, or it is left out. */
static void use_verify(struct rig *rig, const char *bucket)
{
	struct store_quota sum = {0}, used;
	struct store_list_opts opts = {
		.bucket = slice_str(bucket), .entries_max = LIMIT_LIST_KEYS_MAX};
	bool more;

	if (store_list_versions(rig->store, &opts, use_visit, &sum, &more) ||
		store_bucket_usage(rig->store, slice_str(bucket), &used))
		_exit(14);
	if (!more && (used.bytes != sum.bytes || used.objects != sum.objects))
		_exit(15);
}

static void verify_run(struct rig *rig, void *arg)
{
	struct shared *shared = (struct shared *)arg;
	char buf[32];

	if (reactor_core_idx(reactor_self()))
		return;
	for (uint32_t w = 0; w < WRITERS; w++)
		for (uint32_t k = 0; k < KEYS; k++) {
			struct slot *slot = &shared->slots[w][k];
			uint64_t acked = atomic_load(&slot->acked);
			uint64_t intended = atomic_load(&slot->intended);
			struct slice key = key_of(buf, w, k);

			if (version_is(rig, bucket_of(w), key, acked)) {
				/* Two empty objects look alike. */
				if (intended != acked &&
					!version_is(rig, bucket_of(w), key, intended))
					atomic_store(&slot->lost, intended);
				atomic_store(&slot->intended, acked);
			} else if (intended != acked &&
				   version_is(rig, bucket_of(w), key, intended)) {
				atomic_store(&slot->acked, intended);
			} else {
				fprintf(stderr, "%s: neither version %llu nor %llu\n", buf,
					(unsigned long long)acked, (unsigned long long)intended);
				_exit(4);
			}
		}
	outbox_verify(rig, shared);
	use_verify(rig, "b");
	use_verify(rig, "v");
	use_verify(rig, "parts");
}

/* The volume is rebuilt before the next is lost. */
static void heal_run(struct rig *rig, void *arg)
{
	verify_run(rig, arg);
	if (reactor_core_idx(reactor_self()) == 0 && store_rebuild(rig->store))
		_exit(13);
}

static struct rig crash_rig; /* in every process */

static void fsck_run(const char *when)
{
	struct store_fsck_report report;
	struct buf out;

	buf_init(&out, 64 * KIB);
	if (store_fsck(crash_rig.dir, true, &report, &out)) {
		fprintf(stderr, "fsck %s: %.*s\n", when, (int)out.len, out.data);
		_exit(5);
	}
	buf_free(&out);
}

static pid_t load_fork(struct shared *shared, uint32_t round)
{
	struct writer writers[WRITERS];
	pid_t pid = fork();

	if (pid)
		return pid;
	for (uint32_t i = 0; i < WRITERS; i++)
		writers[i] = (struct writer){
			.shared = shared, .idx = i, .seed = (uint64_t)round * 1000 + i};
	log_set_level(LOG_WARN);
	rig_run(&crash_rig, load_run, writers);
	_exit(2); /* the load never ends by itself */
}

/* Opens, verifies and closes, or (odd rounds) ends without a clean close. */
static int verify_fork(struct shared *shared, bool folder_lost)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		log_set_level(LOG_WARN);
		if (!folder_lost)
			fsck_run("after the crash");
		rig_run(&crash_rig, crash_rig.opts.erasure_data ? heal_run : verify_run, shared);
		if (crash_rig.open_result)
			_exit(6);
		fsck_run("after a clean shutdown");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* How many of 4 rounds lose the data folder, and how many a volume. */
struct losses {
	uint32_t folders, volumes;
};

/* True: the folder was lost. */
static bool lose(struct prng *prng, const struct losses *losses)
{
	bool folder = prng_below(prng, 4) < losses->folders;
	char command[2 * sizeof(crash_rig.dir) + 64];

	if (prng_below(prng, 4) < losses->volumes) {
		snprintf(command, sizeof(command), "truncate -s 0 '%s/m%u'", crash_rig.dir,
			(uint32_t)prng_below(prng, 3));
		assert_int_equal(system(command), 0);
	}
	if (folder) {
		snprintf(command, sizeof(command), "cd '%s' && rm -rf index* space* LOCK volumes*",
			crash_rig.dir);
		assert_int_equal(system(command), 0);
	}
	return folder;
}

static struct shared *shared_open(void)
{
	struct shared *shared = (struct shared *)mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(shared != MAP_FAILED);
	atomic_store(&shared->version, 1);
	shared->told_from = 1;
	return shared;
}

static void kill_rounds(uint64_t seed, const struct losses *losses)
{
	const char *wanted = getenv("NEBULAIO_CRASH_ROUNDS");
	uint32_t rounds = wanted ? (uint32_t)atoi(wanted) : ROUNDS_DEFAULT;
	struct shared *shared = shared_open();
	struct prng prng;

	prng_seed(&prng, seed);
	for (uint32_t round = 0; round < rounds; round++) {
		uint64_t acks = atomic_load(&shared->acks);
		struct timespec life = {.tv_nsec = (long)(prng_below(&prng, LIFE_NS_MAX))};
		struct pollfd gone;
		char byte;
		int status;
		pid_t pid;

		atomic_store(&shared->running, false);
		assert_int_equal(pipe(shared->began), 0);
		pid = load_fork(shared, round);
		close(shared->began[1]);
		/* The time is measured from the start of the load. */
		assert_int_equal(read(shared->began[0], &byte, 1), 1);
		gone = (struct pollfd){.fd = shared->began[0], .events = POLLIN};
		assert_int_equal(ppoll(&gone, 1, &life, NULL), 0);
		close(shared->began[0]);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		assert_int_equal(verify_fork(shared, lose(&prng, losses)), 0);
		print_message("round %u: %llu acknowledged\n", round,
			(unsigned long long)(atomic_load(&shared->acks) - acks));
	}
	rig_dir_remove(&crash_rig);
	munmap(shared, sizeof(*shared));
}

static void test_kill_at_any_moment(void **state)
{
	const struct losses none = {0};

	(void)state;
	rig_init(&crash_rig, 2);
	crash_rig.opts.log_bytes = 1 * MIB;
	kill_rounds(4711, &none);
}

static void test_the_folder_is_lost(void **state)
{
	const struct losses losses = {.folders = 3};

	(void)state;
	rig_init(&crash_rig, 2);
	crash_rig.opts.log_bytes = 512 * KIB;
	crash_rig.opts.protect = STORE_PROTECT_ON;
	kill_rounds(815, &losses);
}

static void test_the_folder_and_a_volume_are_lost(void **state)
{
	const struct losses losses = {.folders = 3, .volumes = 3};
	char volumes[2048];

	(void)state;
	rig_init(&crash_rig, 2);
	crash_rig.opts.log_bytes = 512 * KIB;
	crash_rig.opts.protect = STORE_PROTECT_ON;
	snprintf(volumes, sizeof(volumes), "%s/m0,%s/m1,%s/m2", crash_rig.dir, crash_rig.dir,
		crash_rig.dir);
	crash_rig.opts.volume = volumes;
	crash_rig.opts.erasure_data = 2;
	crash_rig.opts.erasure_parity = 1;
	kill_rounds(1066, &losses);
}

/* ---- Power fails between the log's write and the flush: the record is there, its body is not.
 * ---- */

struct torn {
	_Atomic uint64_t volume_offset;
	bool composable; /* the body's segment has a row of its own */
};

/* The last commit of this process is the second version. */
static void torn_run(struct rig *rig, void *arg)
{
	struct torn *torn = (struct torn *)arg;
	const struct put_how how = {.composable = torn->composable};
	struct store_get *get;
	uint64_t place;
	bool exists;

	if (bucket_make(rig->store, "b") ||
		object_put_seeded(rig, "b", SLICE("other"), 9000, 3, NULL) ||
		object_put_seeded(rig, "b", SLICE("k"), 8000, 1, &how) ||
		object_put_seeded(rig, "b", SLICE("k"), 8000, 2, &how) ||
		store_get_open(rig->store, SLICE("b"), SLICE("k"), &get, &exists) ||
		rig_place(get, 0, &place))
		_exit(3);
	atomic_store(&torn->volume_offset, place);
	_exit(0);
}

static void torn_verify(struct rig *rig, void *arg)
{
	uint64_t seed = *(uint64_t *)arg;

	if (object_verify_seeded(rig, "b", SLICE("k"), 8000, seed) ||
		object_verify_seeded(rig, "b", SLICE("other"), 9000, 3))
		_exit(4);
}

static int run_fork(rig_fn *fn, void *arg, bool check)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		log_set_level(LOG_WARN);
		if (check)
			fsck_run("after the power failure");
		rig_run(&crash_rig, fn, arg);
		_exit(crash_rig.open_result ? 6 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void test_a_record_without_its_body_never_happened(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 4; way++) {
		bool torn_body = way % 2;
		uint64_t seed = torn_body ? 1 : 2;
		struct torn *torn;

		torn = (struct torn *)mmap(NULL, sizeof(*torn), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		assert_true(torn != MAP_FAILED);
		torn->composable = way / 2;
		rig_init(&crash_rig, 1);
		assert_int_equal(run_fork(torn_run, torn, false), 0);
		if (torn_body) {
			char path[600], old[512];
			int fd;

			memset(old, 0, sizeof(old));
			snprintf(path, sizeof(path), "%s/volume", crash_rig.dir);
			fd = open(path, O_RDWR);
			assert_true(fd >= 0);
			assert_int_equal(pwrite(fd, old, sizeof(old),
						 (off_t)atomic_load(&torn->volume_offset) + 4096),
				sizeof(old));
			close(fd);
		}
		assert_int_equal(run_fork(torn_verify, &seed, true), 0);
		rig_dir_remove(&crash_rig);
		munmap(torn, sizeof(*torn));
	}
}

/* ---- The same on one of several volumes: the others repair the body. ---- */

#define SHARD_BYTES 4096u

static int member_open(const struct rig *rig, uint32_t member)
{
	char path[600];
	int fd;

	snprintf(path, sizeof(path), "%s/m%u", rig->dir, member);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	return fd;
}

/* Data or parity: a body that a start accepts must be intact on every volume, otherwise the next
 * damage could not be repaired. */
static void test_an_accepted_body_is_whole_on_all_volumes(void **state)
{
	static const uint8_t ZEROS[SHARD_BYTES];
	char volumes[2048];
	uint64_t seed = 2;

	(void)state;
	for (uint32_t member = 0; member < 3; member++) {
		struct torn *torn = (struct torn *)mmap(NULL, sizeof(*torn), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		uint8_t before[SHARD_BYTES], after[SHARD_BYTES];
		off_t at;
		int fd;

		assert_true(torn != MAP_FAILED);
		rig_init(&crash_rig, 1);
		snprintf(volumes, sizeof(volumes), "%s/m0,%s/m1,%s/m2", crash_rig.dir,
			crash_rig.dir, crash_rig.dir);
		crash_rig.opts.volume = volumes;
		crash_rig.opts.erasure_data = 2;
		crash_rig.opts.erasure_parity = 1;
		assert_int_equal(run_fork(torn_run, torn, false), 0);
		at = (off_t)(disk_stripe_first(atomic_load(&torn->volume_offset) / SHARD_BYTES) *
			     SHARD_BYTES);
		fd = member_open(&crash_rig, member);
		assert_int_equal(pread(fd, before, SHARD_BYTES, at), SHARD_BYTES);
		assert_memory_not_equal(before, ZEROS, SHARD_BYTES);
		assert_int_equal(pwrite(fd, ZEROS, SHARD_BYTES, at), SHARD_BYTES);
		assert_int_equal(run_fork(torn_verify, &seed, false), 0);
		assert_int_equal(pread(fd, after, SHARD_BYTES, at), SHARD_BYTES);
		assert_memory_equal(after, before, SHARD_BYTES);
		close(fd);
		assert_int_equal(run_fork(torn_verify, &seed, true), 0);
		rig_dir_remove(&crash_rig);
		munmap(torn, sizeof(*torn));
	}
}

/* ---- The same for an appended body. ---- */

struct grown {
	uint32_t base_bytes;
	uint32_t torn_at; /* in the object; UINT32_MAX: nothing is lost */
	_Atomic uint64_t volume_offset;
};
#define TAIL_BYTES 5000u

static void grown_run(struct rig *rig, void *arg)
{
	struct grown *grown = (struct grown *)arg;
	uint8_t tail[TAIL_BYTES];
	struct store_get *get;
	uint64_t place;
	bool exists;

	body_fill(tail, sizeof(tail), 2);
	if (bucket_make(rig->store, "b") ||
		object_put_seeded(rig, "b", SLICE("k"), grown->base_bytes, 1, NULL) ||
		object_append(rig, "b", SLICE("k"), tail, sizeof(tail)) ||
		store_get_open(rig->store, SLICE("b"), SLICE("k"), &get, &exists))
		_exit(3);
	if (grown->torn_at != UINT32_MAX) {
		if (rig_place(get, grown->torn_at, &place))
			_exit(3);
		atomic_store(&grown->volume_offset, place);
	}
	store_get_close(get);
	_exit(0);
}

static void grown_verify(struct rig *rig, void *arg)
{
	const struct grown *grown = (const struct grown *)arg;
	bool whole = grown->torn_at == UINT32_MAX;
	uint8_t wanted[16384], got[16384];
	uint64_t bytes = grown->base_bytes + (whole ? TAIL_BYTES : 0), got_bytes;

	body_fill(wanted, grown->base_bytes, 1);
	body_fill(wanted + grown->base_bytes, TAIL_BYTES, 2);
	if (object_read(rig, "b", SLICE("k"), got, sizeof(got), &got_bytes) || got_bytes != bytes ||
		memcmp(got, wanted, bytes) != 0)
		_exit(4);
}

static void test_an_append_without_its_body_never_happened(void **state)
{
	/* A body of 1000 bytes is in the index; the append writes it to the volume. */
	static const struct grown WAYS[] = {{1000, UINT32_MAX, 0}, {1000, 1000, 0}, {1000, 0, 0},
		{9000, UINT32_MAX, 0}, {9000, 9000, 0}};

	(void)state;
	for (uint32_t way = 0; way < ARRAY_LEN(WAYS); way++) {
		struct grown *grown = (struct grown *)mmap(NULL, sizeof(*grown),
			PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		assert_true(grown != MAP_FAILED);
		*grown = WAYS[way];
		rig_init(&crash_rig, 1);
		assert_int_equal(run_fork(grown_run, grown, false), 0);
		if (grown->torn_at != UINT32_MAX) {
			char path[600], old[512] = {0};
			int fd;

			snprintf(path, sizeof(path), "%s/volume", crash_rig.dir);
			fd = open(path, O_RDWR);
			assert_true(fd >= 0);
			assert_int_equal(pwrite(fd, old, sizeof(old),
						 (off_t)atomic_load(&grown->volume_offset)),
				sizeof(old));
			close(fd);
		}
		assert_int_equal(run_fork(grown_verify, grown, true), 0);
		rig_dir_remove(&crash_rig);
		munmap(grown, sizeof(*grown));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_accepted_body_is_whole_on_all_volumes),
		cmocka_unit_test(test_an_append_without_its_body_never_happened),
		cmocka_unit_test(test_kill_at_any_moment),
		cmocka_unit_test(test_the_folder_is_lost),
		cmocka_unit_test(test_the_folder_and_a_volume_are_lost),
		cmocka_unit_test(test_a_record_without_its_body_never_happened),
	};

	return cmocka_run_group_tests_name("crash", tests, NULL, NULL);
}
