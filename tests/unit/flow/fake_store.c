/* tests/unit/flow/fake_store.c: see fake_store.h. */
#include "fake_store.h"

#include <errno.h>
#include <stdlib.h>

#include "codec/codec.h"

static uint32_t ram_submit(
	void *device, struct region_ring *ring, const struct region_sqe *entries, uint32_t count)
{
	struct fake_store *fake = device;

	for (uint32_t i = 0; i < count; i++) {
		const struct region_sqe *sqe = &entries[i];
		bool write = sqe->opcode == REGION_OP_WRITE;
		int64_t fail_at = write ? fake->fail_write_at : fake->fail_read_at;
		struct region_cqe cqe;

		CHECK(sqe->offset + sqe->len <= FAKE_VOLUME_BYTES);
		CHECK(sqe->offset % FRAME_BYTES == 0 && sqe->len % FRAME_BYTES == 0 &&
			sqe->addr % FRAME_BYTES == 0);
		if (write) {
			memcpy(fake->volume + sqe->offset, (void *)(uintptr_t)sqe->addr, sqe->len);
			fake->writes++;
		} else {
			memcpy((void *)(uintptr_t)sqe->addr, fake->volume + sqe->offset, sqe->len);
			fake->reads++;
		}
		cqe = region_sqe_done(sqe, (int32_t)sqe->len);
		if (fail_at >= (int64_t)sqe->offset && fail_at < (int64_t)(sqe->offset + sqe->len))
			cqe.result = -EIO;
		region_complete(ring, &cqe);
	}
	return count;
}

static uint32_t ram_submit_wr(
	void *device, struct region_ring *ring, const struct region_wr *entries, uint32_t count)
{
	(void)device;
	(void)ring;
	(void)entries;
	(void)count;
	CHECK_FAIL("a work request for a volume");
}

static void ram_bell(void *device, struct region_ring *ring)
{
	(void)device;
	(void)ring;
}

static const struct region_device_ops RAM_OPS = {
	.name = "ram",
	.submit = ram_submit,
	.submit_wr = ram_submit_wr,
	.bell = ram_bell,
};

void fake_store_open(struct fake_store *fake, struct region *region)
{
	*fake = (struct fake_store){
		.head.meta = &fake->meta,
		.region = region,
		.volume = calloc(1, FAKE_VOLUME_BYTES),
		.run_bytes_max = STORE_CHUNK_BYTES,
		.fail_write_at = -1,
		.fail_read_at = -1,
	};
	CHECK(fake->volume);
	CHECK(region_target_add(region, &RAM_OPS, fake, "ram", &fake->target) == 0);
}

void fake_store_close(struct fake_store *fake)
{
	for (uint32_t i = 0; i < FAKE_CHUNKS_MAX; i++) {
		if (fake->cached[i].data)
			region_put(fake->region, fake->cached[i], OWNER_CACHE);
	}
	region_target_remove(fake->region, fake->target);
	free(fake->volume);
}

/* ---- The store's calls that flow makes. ---- */

static struct fake_store *fake_of(const void *handle)
{
	return (struct fake_store *)(uintptr_t)handle;
}

static int runs_start(
	struct fake_store *fake, uint64_t offset, uint32_t bytes, store_run_fn *start, void *arg)
{
	struct store_run run = {.target = fake->target};

	for (uint32_t at = 0; at < bytes && !fake->fail_space; at += run.bytes) {
		run.volume_offset = offset + at;
		run.bytes = MIN(bytes - at, fake->run_bytes_max);
		start(arg, &run, at);
	}
	return fake->fail_space;
}

int local_put_chunk(
	struct store_put *put, uint64_t offset, struct slice bytes, store_run_fn *start, void *arg)
{
	struct fake_store *fake = fake_of(put);

	CHECK(offset == (uint64_t)fake->check_count * STORE_CHECK_BYTES);
	for (size_t at = 0; at < bytes.len; at += STORE_CHECK_BYTES)
		fake->checks[fake->check_count++] = crc32c_update(
			0, bytes.data + at, MIN(bytes.len - at, (size_t)STORE_CHECK_BYTES));
	return runs_start(fake, offset, (uint32_t)bytes.len, start, arg);
}

int store_put_tagged(struct store_put *put, uint64_t offset, const uint8_t tag[STORE_TAG_BYTES])
{
	struct fake_store *fake = fake_of(put);

	CHECK(offset == (uint64_t)fake->tag_count * STORE_CHECK_BYTES);
	memcpy(fake->tags[fake->tag_count++], tag, STORE_TAG_BYTES);
	return 0;
}

uint64_t store_put_body_number(const struct store_put *put)
{
	return fake_of(put)->body_number;
}

void local_put_frames_take(struct store_put *put, struct region_span span, uint32_t bytes)
{
	struct fake_store *fake = fake_of(put);

	fake->grouped = true;
	fake->grouped_bytes = bytes;
	memcpy(fake->volume, span.data, bytes);
	region_give(fake->region, span, OWNER_APP);
}

void local_put_cache_take(
	struct store_put *put, uint64_t offset, struct region_span span, uint32_t bytes)
{
	struct fake_store *fake = fake_of(put);

	CHECK(offset % STORE_CHUNK_BYTES == 0 && bytes <= region_span_bytes(span));
	fake->cache_takes++;
	region_give(fake->region, span, OWNER_DISK);
}

bool local_get_inline(const struct store_get *get, struct slice *ret_body)
{
	const struct fake_store *fake = fake_of(get);

	*ret_body = fake->inline_body;
	return fake->inline_body.data != NULL;
}

/* The stretch that holds the offset, with the chunks of the volume before it. */
static struct fake_stretch stretch_of(const struct fake_store *fake, uint64_t offset)
{
	struct fake_stretch at = {.bytes = fake->meta.bytes};

	for (uint32_t i = 0; i < fake->stretch_count; i++) {
		at.bytes = fake->stretches[i];
		if (offset < at.start + at.bytes)
			break;
		at.start += at.bytes;
		at.chunk += (uint32_t)((at.bytes + STORE_CHUNK_BYTES - 1) / STORE_CHUNK_BYTES);
	}
	return at;
}

void fake_store_fill(struct fake_store *fake, const uint8_t *content, uint64_t bytes)
{
	fake->meta.bytes = bytes;
	for (uint64_t at = 0; at < bytes;) {
		struct fake_stretch stretch = stretch_of(fake, at);
		uint64_t from = (uint64_t)stretch.chunk * STORE_CHUNK_BYTES;

		CHECK(from + stretch.bytes <= FAKE_VOLUME_BYTES);
		memcpy(fake->volume + from, content + at, stretch.bytes);
		for (uint64_t piece = 0; piece < stretch.bytes; piece += STORE_CHECK_BYTES)
			fake->checks[(from + piece) / STORE_CHECK_BYTES] =
				crc32c_update(0, content + at + piece,
					MIN(stretch.bytes - piece, (uint64_t)STORE_CHECK_BYTES));
		at += stretch.bytes;
	}
}

void local_get_stretch(
	const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch)
{
	struct fake_stretch stretch = stretch_of(fake_of(get), offset);

	*ret_stretch = (struct store_stretch){.start = stretch.start,
		.bytes = stretch.bytes,
		.body_number = fake_of(get)->body_number};
}

void store_get_stretch(
	const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch)
{
	local_get_stretch(get, offset, ret_stretch);
}

/* The volume offset of the object's byte. */
static uint64_t volume_at(const struct fake_store *fake, uint64_t offset)
{
	struct fake_stretch stretch = stretch_of(fake, offset);

	return (uint64_t)stretch.chunk * STORE_CHUNK_BYTES + offset - stretch.start;
}

int store_get_tag(struct store_get *get, uint64_t offset, uint8_t ret_tag[STORE_TAG_BYTES])
{
	struct fake_store *fake = fake_of(get);
	uint64_t idx = volume_at(fake, offset) / STORE_CHECK_BYTES;

	CHECK(volume_at(fake, offset) % STORE_CHECK_BYTES == 0);
	if (idx >= fake->tag_count)
		return -ENOENT;
	memcpy(ret_tag, fake->tags[idx], STORE_TAG_BYTES);
	return 0;
}

bool local_get_cached(struct store_get *get, uint64_t offset, struct region_span *ret_span)
{
	struct fake_store *fake = fake_of(get);
	uint32_t chunk_idx = (uint32_t)(volume_at(fake, offset) / STORE_CHUNK_BYTES);

	if (!fake->cached[chunk_idx].data)
		return false;
	*ret_span = fake->cached[chunk_idx];
	region_get(fake->region, *ret_span);
	return true;
}

int local_get_chunk(
	struct store_get *get, uint64_t offset, uint32_t bytes, store_run_fn *start, void *arg)
{
	struct fake_stretch stretch = stretch_of(fake_of(get), offset);

	CHECK(bytes <= stretch.start + stretch.bytes - offset);
	return runs_start(fake_of(get), volume_at(fake_of(get), offset), bytes, start, arg);
}

/* Keeps the span if it is a whole chunk of the stretch. */
static bool chunk_keep(struct fake_store *fake, const struct fake_stretch *stretch, uint64_t offset,
	uint64_t bytes, struct region_span span)
{
	uint64_t left = stretch->start + stretch->bytes - offset;
	uint32_t chunk_idx = (uint32_t)(volume_at(fake, offset) / STORE_CHUNK_BYTES);

	if ((offset - stretch->start) % STORE_CHUNK_BYTES ||
		bytes != MIN(left, (uint64_t)STORE_CHUNK_BYTES) || fake->cached[chunk_idx].data)
		return false;
	fake->cache_offers++;
	region_switch(fake->region, span, OWNER_APP, OWNER_CACHE);
	region_get(fake->region, span);
	fake->cached[chunk_idx] = span;
	return true;
}

int local_get_flight(struct store_get *get, uint64_t offset, struct cache_flight *flight,
	enum cache_flight_role *ret_role)
{
	struct fake_store *fake = fake_of(get);
	struct fake_stretch stretch = stretch_of(fake, offset);
	uint64_t left = stretch.start + stretch.bytes - offset;

	if (!fake->flights)
		return -ENOENT;
	flight->chunk_idx = (uint32_t)(volume_at(fake, offset) / STORE_CHUNK_BYTES);
	flight->bytes = (uint32_t)MIN(left, (uint64_t)STORE_CHUNK_BYTES);
	*ret_role = cache_flight_begin(fake->flights, flight);
	return 0;
}

void local_get_landed(struct store_get *get, struct cache_flight *flight, struct region_span span)
{
	cache_flight_end(fake_of(get)->flights, flight, span);
}

int local_get_arrived(struct store_get *get, uint64_t offset, uint32_t bytes,
	struct region_span span, bool *ret_cached)
{
	struct fake_store *fake = fake_of(get);
	struct fake_stretch stretch = stretch_of(fake, offset);
	uint64_t whole = MIN(ALIGN_UP((uint64_t)bytes, (uint64_t)STORE_CHECK_BYTES),
		stretch.start + stretch.bytes - offset);

	*ret_cached = false;
	CHECK((offset - stretch.start) % STORE_CHECK_BYTES == 0);
	CHECK(offset + bytes <= stretch.start + stretch.bytes);
	CHECK(whole <= region_span_bytes(span));
	for (uint64_t at = 0; at < whole; at += STORE_CHECK_BYTES) {
		uint64_t piece = MIN(whole - at, (uint64_t)STORE_CHECK_BYTES);

		if (crc32c_update(0, span.data + at, piece) !=
			fake->checks[(volume_at(fake, offset) + at) / STORE_CHECK_BYTES])
			return -EIO;
	}
	*ret_cached = chunk_keep(fake, &stretch, offset, whole, span);
	return 0;
}
