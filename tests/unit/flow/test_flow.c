#include "../abort.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rig.h"
#include "store/crypt.h"
#include "store/ends/ends.h"
#include "store/crypt.h"

static void run(body_fn *fn)
{
	rig_run(64 * MIB, false, fn);
}

static int put_memory(const void *data, size_t len, uint64_t bytes_total)
{
	struct flow_source *source;
	struct flow_sink *sink;
	uint64_t moved;
	int ret;

	assert_int_equal(flow_memory_source_open(&core, slice_of(data, len), &source), 0);
	assert_int_equal(local_put_sink(fake_put(&fake), &core, bytes_total, &sink), 0);
	ret = flow_run(source, NULL, 0, sink, &moved);
	if (ret == 0)
		assert_int_equal(moved, len);
	return ret;
}

/* A sink that collects its pieces, and fails on demand. */
struct gather {
	struct flow_sink sink;
	uint8_t *data;
	uint64_t bytes;
	uint32_t pieces, from_cache;
	int fail_at; /* piece number, or -1 */
	uint32_t finishes;
	bool failed;
};

static int gather_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct gather *self = CONTAINER_OF(sink, struct gather, sink);
	int ret = self->fail_at == (int)self->pieces ? -ECONNRESET : 0;

	assert_int_equal(piece->offset, self->bytes);
	memcpy(self->data + self->bytes, piece->data, piece->bytes);
	self->bytes += piece->bytes;
	self->pieces++;
	self->from_cache += piece->hold == FLOW_HOLD_CACHE;
	flow_piece_end(sink->core, piece, OWNER_APP);
	return ret;
}

static int gather_finish(struct flow_sink *sink, bool failed)
{
	struct gather *self = CONTAINER_OF(sink, struct gather, sink);

	self->finishes++;
	self->failed = failed;
	return 0;
}

static const struct flow_sink_ops GATHER_OPS = {
	.name = "gather", .push = gather_push, .finish = gather_finish};

static struct gather gather_new(void)
{
	return (struct gather){
		.sink = {.magic = FLOW_SINK_MAGIC, .ops = &GATHER_OPS, .core = &core},
		.data = malloc(FAKE_VOLUME_BYTES),
		.fail_at = -1};
}

static int get_range(struct gather *gather, uint64_t offset, uint64_t bytes)
{
	struct flow_source *source;
	uint64_t moved;

	gather->sink.magic = FLOW_SINK_MAGIC;
	gather->bytes = 0;
	gather->pieces = 0;
	gather->from_cache = 0;
	assert_int_equal(local_get_source(fake_get(&fake), &core, offset, bytes, &source), 0);
	return flow_run(source, NULL, 0, &gather->sink, &moved);
}

/* ---- Writing an object. ---- */

static void put_all_sizes(void)
{
	static const uint32_t sizes[] = {
		0, 1, 4095, 4096, 65535, 65536, 65537, 1048575, 1048576, 1048577, 5000000};

	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		fake.check_count = 0;
		fake.grouped = false;
		fake.run_bytes_max = i % 2 ? 64 * KIB : STORE_CHUNK_BYTES;
		memset(fake.volume, 0xee, FAKE_VOLUME_BYTES);
		assert_int_equal(put_memory(content, sizes[i], sizes[i]), 0);
		assert_memory_equal(fake.volume, content, sizes[i]);
		assert_int_equal(fake.grouped, sizes[i] > 0 && sizes[i] <= STORE_GROUPED_BYTES_MAX);
		if (fake.grouped) {
			assert_int_equal(fake.grouped_bytes, sizes[i]);
			continue;
		}
		assert_int_equal(
			fake.check_count, (sizes[i] + STORE_CHECK_BYTES - 1) / STORE_CHECK_BYTES);
		for (uint32_t c = 0; c < fake.check_count; c++)
			assert_int_equal(fake.checks[c],
				crc32c_update(0, content + c * STORE_CHECK_BYTES,
					MIN(STORE_CHECK_BYTES, sizes[i] - c * STORE_CHECK_BYTES)));
	}
}

static void put_of_unknown_length(void)
{
	assert_int_equal(put_memory(content, 3 * STORE_CHUNK_BYTES + 17, UINT64_MAX), 0);
	assert_memory_equal(fake.volume, content, 3 * STORE_CHUNK_BYTES + 17);
	assert_int_equal(fake.check_count, 3 * 16 + 1);
	assert_int_equal(put_memory(content + 5, 100, UINT64_MAX), 0);
	assert_true(fake.grouped);
	assert_int_equal(fake.grouped_bytes, 100);
}

static void put_that_is_longer_or_shorter_than_announced(void)
{
	assert_int_equal(put_memory(content, 1000, 999), -EMSGSIZE);
	assert_int_equal(put_memory(content, 1000, 1001), -EPIPE);
	assert_int_equal(
		put_memory(content, 2 * STORE_CHUNK_BYTES, 2 * STORE_CHUNK_BYTES + 1), -EPIPE);
	assert_false(fake.grouped);
}

static void put_on_a_failing_medium(void)
{
	fake.fail_write_at = 2 * STORE_CHUNK_BYTES + 4096;
	assert_int_equal(put_memory(content, 8 * STORE_CHUNK_BYTES, 8 * STORE_CHUNK_BYTES), -EIO);
	fake.fail_write_at = -1;
	fake.check_count = 0;
	fake.fail_space = -ENOSPC;
	assert_int_equal(put_memory(content, STORE_CHUNK_BYTES, STORE_CHUNK_BYTES), -ENOSPC);
}

/* ---- Reading an object. ---- */

static void store_content(uint32_t bytes)
{
	fake_store_fill(&fake, content, bytes);
}

/* An object composed of bodies of these lengths. */
static uint64_t store_stretches(void)
{
	static const uint32_t lengths[] = {1, 4095, 65537, STORE_CHUNK_BYTES + 1, 100,
		2 * STORE_CHUNK_BYTES, 65536, 3 * STORE_CHUNK_BYTES - 1, 12345};
	uint64_t whole = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(lengths); i++) {
		fake.stretches[i] = lengths[i];
		whole += lengths[i];
	}
	fake.stretch_count = ARRAY_LEN(lengths);
	fake_store_fill(&fake, content, whole);
	return whole;
}

static void get_ranges(void)
{
	const uint32_t whole = 5 * STORE_CHUNK_BYTES + 12345;
	struct gather gather = gather_new();
	struct prng prng;

	store_content(whole);
	fake.run_bytes_max = 128 * KIB;
	assert_int_equal(get_range(&gather, 0, 0), 0);
	assert_int_equal(gather.bytes, 0);
	prng_seed(&prng, 11);
	for (int i = 0; i < 60; i++) {
		uint64_t offset = prng_below(&prng, whole);
		uint64_t bytes = prng_below(&prng, (whole - offset) >> (i % 8)) + 1;

		assert_int_equal(get_range(&gather, offset, bytes), 0);
		assert_int_equal(gather.bytes, bytes);
		assert_memory_equal(gather.data, content + offset, bytes);
	}
	free(gather.data);
}

static void get_across_stretches(void)
{
	uint64_t whole = store_stretches();
	struct gather gather = gather_new();
	struct prng prng;
	uint32_t reads;

	fake.run_bytes_max = 128 * KIB;
	prng_seed(&prng, 12);
	for (int i = 0; i < 60; i++) {
		uint64_t offset = prng_below(&prng, whole);
		uint64_t bytes = prng_below(&prng, (whole - offset) >> (i % 8)) + 1;

		assert_int_equal(get_range(&gather, offset, bytes), 0);
		assert_int_equal(gather.bytes, bytes);
		assert_memory_equal(gather.data, content + offset, bytes);
	}
	/* Around each boundary, to the byte. */
	for (uint64_t i = 0, at = 0; i + 1 < fake.stretch_count; i++) {
		at += fake.stretches[i];
		assert_int_equal(get_range(&gather, at - 1, 2), 0);
		assert_memory_equal(gather.data, content + at - 1, 2);
		assert_int_equal(get_range(&gather, at, 1), 0);
		assert_memory_equal(gather.data, content + at, 1);
	}
	assert_int_equal(get_range(&gather, 0, whole), 0);
	assert_memory_equal(gather.data, content, whole);
	/* Now every chunk of every stretch is in memory. */
	reads = fake.reads;
	assert_int_equal(get_range(&gather, 0, whole), 0);
	assert_memory_equal(gather.data, content, whole);
	assert_int_equal(gather.from_cache, gather.pieces);
	assert_int_equal(gather.pieces, 13);
	assert_int_equal(fake.reads, reads);
	free(gather.data);
}

static void get_fills_and_uses_the_cache(void)
{
	const uint32_t whole = 3 * STORE_CHUNK_BYTES + 1;
	struct gather gather = gather_new();
	uint32_t reads;

	store_content(whole);
	assert_int_equal(get_range(&gather, 0, whole), 0);
	assert_int_equal(fake.cache_offers, 4);
	reads = fake.reads;
	assert_int_equal(get_range(&gather, 1, whole - 1), 0);
	assert_memory_equal(gather.data, content + 1, whole - 1);
	assert_int_equal(gather.from_cache, 4);
	assert_int_equal(fake.reads, reads);
	free(gather.data);
}

static void get_of_damage(void)
{
	struct gather gather = gather_new();

	store_content(4 * STORE_CHUNK_BYTES);
	fake.volume[2 * STORE_CHUNK_BYTES + 70000] ^= 1;
	assert_int_equal(get_range(&gather, 0, 4 * STORE_CHUNK_BYTES), -EIO);
	assert_int_equal(gather.bytes, 2 * STORE_CHUNK_BYTES);
	assert_true(gather.failed);
	assert_int_equal(gather.finishes, 1);
	fake.fail_read_at = 3 * STORE_CHUNK_BYTES;
	assert_int_equal(get_range(&gather, 3 * STORE_CHUNK_BYTES, 100), -EIO);
	free(gather.data);
}

static void get_whose_sink_breaks(void)
{
	struct gather gather = gather_new();

	store_content(8 * STORE_CHUNK_BYTES);
	gather.fail_at = 1;
	assert_int_equal(get_range(&gather, 0, 8 * STORE_CHUNK_BYTES), -ECONNRESET);
	assert_true(gather.failed);
	free(gather.data);
}

static void get_of_an_inline_body(void)
{
	struct gather gather = gather_new();

	fake.inline_body = SLICE("a small body");
	fake.meta.bytes = fake.inline_body.len;
	assert_int_equal(get_range(&gather, 2, 5), 0);
	assert_int_equal(gather.bytes, 5);
	assert_memory_equal(gather.data, "small", 5);
	free(gather.data);
}

/* ---- Stages. ---- */

static void checksums_of_all_kinds(void)
{
	struct gather gather = gather_new();

	for (int kind = CHECKSUM_NONE; kind < CHECKSUM_KIND_COUNT; kind++) {
		uint8_t want[CHECKSUM_BYTES_MAX], got[CHECKSUM_BYTES_MAX];
		struct flow_checksum stage;
		struct flow_stage *stages[] = {&stage.stage};
		struct flow_source *source;
		uint64_t moved;
		size_t len;

		gather.bytes = 0;
		assert_int_equal(flow_checksum_init(&stage, (enum checksum_kind)kind), 0);
		assert_int_equal(
			flow_memory_source_open(&core, slice_of(content, 2500000), &source), 0);
		gather.sink.magic = FLOW_SINK_MAGIC;
		assert_int_equal(flow_run(source, stages, 1, &gather.sink, &moved), 0);
		len = checksum_of((enum checksum_kind)kind, content, 2500000, want);
		assert_int_equal(checksum_final(&stage.checksum, got), len);
		assert_memory_equal(got, want, len);
	}
	assert_int_equal(
		flow_checksum_init(&(struct flow_checksum){0}, (enum checksum_kind)99), -EINVAL);
	free(gather.data);
}

/* Transfers that run at the same time are hashed together: each has its own digest. */
enum { TOGETHER = 40 };

static uint32_t together_running;

static void one_of_many(void *arg)
{
	uint32_t offset = (uint32_t)(uintptr_t)arg;
	size_t bytes = offset % 3 ? 70000 + 1000 * offset : 5 * offset;
	struct gather gather = gather_new();
	uint8_t want[CHECKSUM_BYTES_MAX], got[CHECKSUM_BYTES_MAX];
	struct flow_checksum stage;
	struct flow_stage *stages[] = {&stage.stage};
	struct flow_source *source;
	uint64_t moved;

	assert_int_equal(flow_checksum_init(&stage, CHECKSUM_MD5), 0);
	assert_int_equal(
		flow_memory_source_open(&core, slice_of(content + offset, bytes), &source), 0);
	assert_int_equal(flow_run(source, stages, 1, &gather.sink, &moved), 0);
	assert_int_equal(moved, bytes);
	checksum_of(CHECKSUM_MD5, content + offset, bytes, want);
	checksum_final(&stage.checksum, got);
	assert_memory_equal(got, want, MD5_BYTES);
	free(gather.data);
	together_running--;
}

static void many_md5_at_once(void)
{
	for (uintptr_t i = 0; i < TOGETHER; i++) {
		together_running++;
		assert_int_equal(fiber_spawn(reactor, "md5", one_of_many, (void *)i), 0);
	}
	while (together_running)
		fiber_yield();
}

/* ---- Encrypted bodies. ---- */

static const uint8_t crypt_key[AEAD_KEY_BYTES] = "a key of thirty-two bytes, it is";

static void cache_empty(void)
{
	for (uint32_t i = 0; i < FAKE_CHUNKS_MAX; i++)
		if (fake.cached[i].data) {
			region_put(region, fake.cached[i], OWNER_CACHE);
			fake.cached[i].data = NULL;
		}
}

static int crypt_put(uint32_t bytes, uint32_t piece_bytes, bool authenticated)
{
	struct store_crypt_key key = {.key = crypt_key, .authenticated = authenticated};
	struct store_crypt_sink crypt;
	struct flow_sink *sink;
	int ret = 0;

	fake.check_count = fake.tag_count = 0;
	cache_empty();
	fake.grouped = false;
	fake.body_number = 0x0102030405060708;
	memset(fake.volume, 0xee, FAKE_VOLUME_BYTES);
	assert_int_equal(local_put_sink(fake_put(&fake), &core, bytes, &sink), 0);
	assert_int_equal(store_crypt_sink_init(&crypt, key, fake_put(&fake), sink), 0);
	for (uint32_t at = 0; at < bytes && !ret; at += piece_bytes) {
		struct flow_piece piece = {.data = content + at,
			.bytes = MIN(piece_bytes, bytes - at),
			.offset = at,
			.hold = FLOW_HOLD_BORROWED};

		ret = flow_sink_push(&crypt.sink, &piece);
	}
	assert_int_equal(flow_sink_finish(&crypt.sink, ret != 0), ret);
	fake.meta.bytes = bytes;
	return ret;
}

/* Recomputes the checksums of the volume, as an attacker who can write all of it would. */
static void volume_sum(void)
{
	cache_empty();
	for (uint64_t at = 0; at < fake.meta.bytes; at += STORE_CHECK_BYTES)
		fake.checks[at / STORE_CHECK_BYTES] = crc32c_update(0, fake.volume + at,
			MIN(fake.meta.bytes - at, (uint64_t)STORE_CHECK_BYTES));
}

static int crypt_get(struct gather *gather, uint64_t offset, uint64_t bytes, bool authenticated)
{
	struct store_crypt_key key = {.key = crypt_key, .authenticated = authenticated};
	struct store_crypt_source crypt;
	struct flow_source *source;
	uint64_t moved;

	gather->bytes = 0;
	assert_int_equal(local_get_source(fake_get(&fake), &core, offset, bytes, &source), 0);
	assert_int_equal(store_crypt_source_init(&crypt, key, fake_get(&fake), offset, source), 0);
	gather->sink.magic = FLOW_SINK_MAGIC;
	return flow_run(&crypt.source, NULL, 0, &gather->sink, &moved);
}

static void encrypted_bodies(void)
{
	static const uint32_t sizes[] = {1, 4095, 65535, 65536, 65537, 1048577, 3000000};
	struct gather gather = gather_new();

	for (uint32_t i = 0; i < ARRAY_LEN(sizes) * 2; i++) {
		uint32_t bytes = sizes[i / 2], piece = i % 3 ? 100003 : 65536;
		bool authenticated = i % 2;

		assert_int_equal(crypt_put(bytes, piece, authenticated), 0);
		assert_true(bytes < 16 || memcmp(fake.volume, content, 16) != 0);
		assert_int_equal(fake.tag_count,
			authenticated ? (bytes + STORE_CHECK_BYTES - 1) / STORE_CHECK_BYTES : 0);
		volume_sum();
		/* Twice: from the volume, and from the cache. */
		for (uint32_t round = 0; round < 2; round++)
			for (uint32_t at = 0; at < bytes; at += bytes / 3 + 1) {
				uint32_t some = MIN(bytes - at, 70001);

				assert_int_equal(crypt_get(&gather, at, some, authenticated), 0);
				assert_int_equal(gather.bytes, some);
				assert_memory_equal(gather.data, content + at, some);
				assert_int_equal(crypt_get(&gather, 0, bytes, authenticated), 0);
				assert_memory_equal(gather.data, content, bytes);
			}
	}
	free(gather.data);
}

/* An attacker changes the volume's bytes and their checksums. */
static void encrypted_bodies_that_were_changed(void)
{
	struct gather gather = gather_new();
	uint8_t *swapped = malloc(STORE_CHECK_BYTES), tag[STORE_TAG_BYTES];

	assert_int_equal(crypt_put(200000, 65536, true), 0);
	fake.volume[65536 + 5] ^= 1;
	volume_sum();
	assert_int_equal(crypt_get(&gather, 70000, 10, true), -EIO);
	assert_int_equal(gather.bytes, 0);
	assert_int_equal(crypt_get(&gather, 65536, 65536, true), -EIO);
	assert_int_equal(gather.bytes, 0);
	/* The bytes before the change can be read, and nothing after it. */
	assert_int_equal(crypt_get(&gather, 0, 65536, true), 0);
	assert_memory_equal(gather.data, content, 65536);
	fake.volume[65536 + 5] ^= 1;
	volume_sum();
	assert_int_equal(crypt_get(&gather, 0, 200000, true), 0);
	cache_empty();
	/* Pieces are swapped, with their tags. */
	memcpy(swapped, fake.volume, STORE_CHECK_BYTES);
	memmove(fake.volume, fake.volume + STORE_CHECK_BYTES, STORE_CHECK_BYTES);
	memcpy(fake.volume + STORE_CHECK_BYTES, swapped, STORE_CHECK_BYTES);
	memcpy(tag, fake.tags[0], sizeof(tag));
	memcpy(fake.tags[0], fake.tags[1], sizeof(tag));
	memcpy(fake.tags[1], tag, sizeof(tag));
	volume_sum();
	assert_int_equal(crypt_get(&gather, 0, 200000, true), -EIO);
	assert_int_equal(gather.bytes, 0);
	/* A shorter piece, another body's piece, and a piece without its tag. */
	assert_int_equal(crypt_put(200000, 65536, true), 0);
	fake.meta.bytes = 199999;
	volume_sum();
	assert_int_equal(crypt_get(&gather, 196608, 3391, true), -EIO);
	fake.meta.bytes = 200000;
	volume_sum();
	fake.body_number++;
	assert_int_equal(crypt_get(&gather, 0, 10, true), -EIO);
	fake.body_number--;
	fake.tag_count = 1;
	assert_int_equal(crypt_get(&gather, 65536, 10, true), -EIO);
	assert_int_equal(gather.bytes, 0);
	assert_int_equal(crypt_get(&gather, 0, 10, true), 0);
	free(swapped);
	free(gather.data);
}

/* ---- Copies: a body that comes in frames and leaves in frames is never copied. ---- */

static struct fake_store *other;

static void object_to_object_copies_nothing(void)
{
	struct flow_source *source;
	struct flow_sink *sink;
	uint64_t copied, moved;

	store_content(4 * STORE_CHUNK_BYTES + 8192);
	other = malloc(sizeof(*other));
	fake_store_open(other, region);
	copied = region_copy_bytes_all();
	assert_int_equal(local_get_source(fake_get(&fake), &core, 0, fake.meta.bytes, &source), 0);
	assert_int_equal(local_put_sink(fake_put(other), &core, fake.meta.bytes, &sink), 0);
	assert_int_equal(flow_run(source, NULL, 0, sink, &moved), 0);
	assert_int_equal(region_copy_bytes_all() - copied, 0);
	assert_memory_equal(other->volume, content, fake.meta.bytes);
	/* At an odd offset the body must be gathered, and the copy is counted. */
	other->check_count = 0;
	assert_int_equal(
		local_get_source(fake_get(&fake), &core, 100, 2 * STORE_CHUNK_BYTES, &source), 0);
	assert_int_equal(local_put_sink(fake_put(other), &core, 2 * STORE_CHUNK_BYTES, &sink), 0);
	assert_int_equal(flow_run(source, NULL, 0, sink, &moved), 0);
	assert_int_equal(region_copy_bytes_all() - copied, 2 * STORE_CHUNK_BYTES);
	assert_memory_equal(other->volume, content + 100, 2 * STORE_CHUNK_BYTES);
	fake_store_close(other);
	free(other);
}

/* ---- Frames run short. ---- */

static uint32_t waiters_done;
static uint32_t order[3];

/* The terms of a lease, of a transfer that has begun: it is not refused where this thread stood for
 * the patience of one that has not. */
static struct flow_want want(uint32_t frame_count, uint16_t share, uint64_t deadline_ns)
{
	return (struct flow_want){.frame_count = frame_count,
		.owner = OWNER_APP,
		.share = share,
		.begun = true,
		.deadline_ns = deadline_ns};
}

static int lease_until(uint32_t frame_count, uint64_t deadline_ns, struct region_span *ret_span)
{
	const struct flow_want terms = want(frame_count, FLOW_SHARE_OWN, deadline_ns);

	return flow_lease(&core, &terms, ret_span);
}

static void lease_one(void *arg)
{
	struct region_span span;

	assert_int_equal(lease_until(256, DEADLINE_NONE, &span), 0);
	order[waiters_done++] = (uint32_t)(uintptr_t)arg;
	fiber_yield();
	region_give(region, span, OWNER_APP);
}

static void leases_wait_in_order(void)
{
	struct region_span spans[64];
	uint32_t count = 0;
	struct region_span none;

	while (count < ARRAY_LEN(spans) && region_lease(region, 256, OWNER_APP, &spans[count]) == 0)
		count++;
	assert_in_range(count, 1, ARRAY_LEN(spans) - 1);
	assert_int_equal(lease_until(256, clock_now_ns() + 2 * NS_PER_MS, &none), -ETIMEDOUT);
	waiters_done = 0;
	for (uintptr_t i = 0; i < 3; i++)
		assert_int_equal(fiber_spawn(reactor, "lease", lease_one, (void *)i), 0);
	fiber_yield();
	fiber_yield();
	assert_int_equal(waiters_done, 0);
	region_give(region, spans[--count], OWNER_APP);
	while (waiters_done < 3)
		fiber_sleep_ns(NS_PER_MS);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(order[i], i);
	while (count)
		region_give(region, spans[--count], OWNER_APP);
}

static void transfers_share_few_frames(void)
{
	struct gather gather = gather_new();

	store_content(12 * STORE_CHUNK_BYTES);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(get_range(&gather, 0, 12 * STORE_CHUNK_BYTES), 0);
		assert_memory_equal(gather.data, content, 12 * STORE_CHUNK_BYTES);
		for (uint32_t c = 0; c < FAKE_CHUNKS_MAX; c++) { /* like a cache under pressure */
			if (fake.cached[c].data)
				region_put(region, fake.cached[c], OWNER_CACHE);
			fake.cached[c].data = NULL;
		}
	}
	free(gather.data);
}

/* ---- The rings. ---- */

static void one_io_counts_many_entries(void)
{
	struct flow_io io = {0};

	for (int i = 0; i < 500; i++) {
		struct region_sqe nop = {.opcode = REGION_OP_NOP};

		flow_io_start(&core, &io, &nop);
	}
	assert_int_equal(flow_io_wait(&io), 0);
	assert_int_equal(io.pending, 0);
	assert_ptr_equal(flow_core_self(), &core);
}

static void test_put_all_sizes(void **state)
{
	(void)state;
	run(put_all_sizes);
}

static void test_put_lengths(void **state)
{
	(void)state;
	run(put_of_unknown_length);
	run(put_that_is_longer_or_shorter_than_announced);
}

static void test_put_failures(void **state)
{
	(void)state;
	run(put_on_a_failing_medium);
}

static void test_get(void **state)
{
	(void)state;
	run(get_ranges);
	run(get_across_stretches);
	run(get_of_an_inline_body);
}

static void test_get_cache(void **state)
{
	(void)state;
	run(get_fills_and_uses_the_cache);
}

static void test_get_failures(void **state)
{
	(void)state;
	run(get_of_damage);
	run(get_whose_sink_breaks);
}

static void test_checksums(void **state)
{
	(void)state;
	run(checksums_of_all_kinds);
	run(many_md5_at_once);
}

static void test_encrypted(void **state)
{
	(void)state;
	run(encrypted_bodies);
	run(encrypted_bodies_that_were_changed);
}

static void test_copies(void **state)
{
	(void)state;
	run(object_to_object_copies_nothing);
}

static void test_short_of_frames(void **state)
{
	(void)state;
	rig_run(8 * MIB, false, leases_wait_in_order);
	rig_run(32 * MIB, false, transfers_share_few_frames);
}

static void test_rings(void **state)
{
	(void)state;
	run(one_io_counts_many_entries);
}

/* ---- Closed ends, invalid pieces. ---- */

static void pushes_to_one_that_is_over(void *arg)
{
	struct gather *gather = (struct gather *)arg;
	struct flow_piece piece = {.data = content, .bytes = 10, .hold = FLOW_HOLD_BORROWED};

	gather->sink.magic = 0;
	flow_sink_push(&gather->sink, &piece);
}

static void pushes_more_than_its_frames(void *arg)
{
	struct gather *gather = (struct gather *)arg;
	struct flow_piece piece = {.span = {.data = content, .frame_count = 1},
		.data = content + 1,
		.bytes = FRAME_BYTES,
		.hold = FLOW_HOLD_LEASE};

	flow_sink_push(&gather->sink, &piece);
}

static void asks_for_too_much(void *arg)
{
	struct flow_source *source = (struct flow_source *)arg;
	struct flow_piece piece;

	flow_source_next(source, STORE_CHUNK_BYTES + 1, &piece);
}

static void find_bugs(void)
{
	struct gather gather = gather_new();
	struct flow_source *source;

	abort_expected(pushes_to_one_that_is_over, &gather);
	abort_expected(pushes_more_than_its_frames, &gather);
	assert_int_equal(flow_memory_source_open(&core, slice_of(content, 10), &source), 0);
	abort_expected(asks_for_too_much, source);
	flow_source_close(source);
	free(gather.data);
}

static void test_callers_bugs_are_found(void **state)
{
	(void)state;
	run(find_bugs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_all_sizes),
		cmocka_unit_test(test_callers_bugs_are_found),
		cmocka_unit_test(test_put_lengths),
		cmocka_unit_test(test_put_failures),
		cmocka_unit_test(test_get),
		cmocka_unit_test(test_get_cache),
		cmocka_unit_test(test_get_failures),
		cmocka_unit_test(test_checksums),
		cmocka_unit_test(test_encrypted),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_short_of_frames),
		cmocka_unit_test(test_rings),
	};

	return rig_main("flow", tests, ARRAY_LEN(tests));
}
