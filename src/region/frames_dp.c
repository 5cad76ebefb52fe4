/* region/frames_dp.c: the common case of leasing and giving frames: through the calling thread's
 * own cache. frames.c serves the requests that a cache cannot. */
#include "region/frames_priv.h"

#include <errno.h>

int region_lease(struct region *region, uint32_t frame_count, enum region_owner owner,
	struct region_span *ret_span)
{
	uint32_t class_idx;
	struct frame_cache *cache;
	uint32_t frame_idx;

	if (frame_count == 0 || frame_count > LIMIT_SPAN_FRAMES_MAX)
		return -EINVAL;
	CHECK(owner > OWNER_FREE && owner < OWNER_COUNT);
	class_idx = cache_class(frame_count);
	if (class_idx == CACHE_CLASSES)
		return frames_lease_slow(region, frame_count, owner, ret_span);
	cache = cache_of(region);
	if (!cache_try_lock(cache))
		return frames_lease_slow(region, frame_count, owner, ret_span);
	if (cache->counts[class_idx] == 0) {
		cache_unlock(cache);
		return frames_lease_slow(region, frame_count, owner, ret_span);
	}
	frame_idx = cache_slots(cache, class_idx)[--cache->counts[class_idx]];
	cache_unlock(cache);
	cache_count(cache, owner, frame_count);
	*ret_span = frame_leased(region, frame_idx, frame_count, owner);
	return 0;
}

/* The frame of a span, once its numbers are known to be valid. */
static inline struct region_frame *span_frame(const struct region *region, struct region_span span,
	const char *call, enum region_owner owner)
{
	struct region_frame *frame;

	if (__builtin_expect(
		    span.frame_idx < region->data_page || span.frame_idx >= region->page_count, 0))
		frames_refused(region, span, call, owner);
	frame = &region->frames[span.frame_idx];
	if (__builtin_expect(frame->frame_count != span.frame_count, 0))
		frames_refused(region, span, call, owner);
	return frame;
}

/* The block's word already says free; this returns its memory. The memory is poisoned first,
 * because another thread may lease it a moment later. */
static void block_freed(struct region *region, struct region_span span, enum region_owner owner)
{
	struct frame_cache *cache = cache_of(region);
	uint32_t class_idx = cache_class(span.frame_count);

	FRAMES_POISON(
		region->base + ((uint64_t)span.frame_idx << FRAME_SHIFT), region_span_bytes(span));
	cache_count(cache, owner, -(int64_t)span.frame_count);
	if (class_idx < CACHE_CLASSES && cache_try_lock(cache)) {
		uint32_t count = cache->counts[class_idx];

		if (__builtin_expect(count < region->cache_caps[class_idx] &&
					     !frame_retired(region, span.frame_idx),
			    1)) {
			cache_slots(cache, class_idx)[count] = span.frame_idx;
			cache->counts[class_idx] = count + 1;
			cache_unlock(cache);
			return;
		}
		cache_unlock(cache);
	}
	frames_free_slow(region, cache, span.frame_idx);
}

void region_give(struct region *region, struct region_span span, enum region_owner owner)
{
	struct region_frame *frame = span_frame(region, span, "region_give", owner);
	uint64_t word = frame_word(span.generation, 1, owner);

	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&frame->word, &word,
				     frame_word(span.generation + 1, 0, OWNER_FREE),
				     memory_order_acq_rel, memory_order_relaxed),
		    0))
		frames_refused(region, span, "region_give (one reference)", owner);
	block_freed(region, span, owner);
}

void region_switch(struct region *region, struct region_span span, enum region_owner from,
	enum region_owner to)
{
	struct region_frame *frame = span_frame(region, span, "region_switch", from);
	uint64_t word = atomic_load_explicit(&frame->word, memory_order_relaxed);
	struct frame_cache *cache = cache_of(region);

	CHECK(from > OWNER_FREE && from < OWNER_COUNT);
	CHECK(to > OWNER_FREE && to < OWNER_COUNT);
	do {
		if (word_owner(word) != from || word_generation(word) != span.generation)
			frames_refused(region, span, "region_switch", from);
	} while (!atomic_compare_exchange_weak_explicit(&frame->word, &word,
		frame_word(span.generation, word_refs(word), to), memory_order_acq_rel,
		memory_order_relaxed));
	cache_count(cache, from, -(int64_t)span.frame_count);
	cache_count(cache, to, span.frame_count);
}

int region_span_check(
	const struct region *region, struct region_span span, enum region_owner *ret_owner)
{
	const struct region_frame *frame;
	uint64_t word;

	if (span.frame_idx < region->data_page || span.frame_idx >= region->page_count)
		return -ESTALE;
	/* The address must be that of the span's first frame, not only inside the region. */
	if (span.data != region->base + ((uint64_t)span.frame_idx << FRAME_SHIFT))
		return -ESTALE;
	frame = &region->frames[span.frame_idx];
	word = atomic_load_explicit(&frame->word, memory_order_relaxed);
	if (word_generation(word) != span.generation || word_owner(word) == OWNER_FREE ||
		frame->frame_count != span.frame_count)
		return -ESTALE;
	*ret_owner = word_owner(word);
	return 0;
}

void region_get(struct region *region, struct region_span span)
{
	struct region_frame *frame = span_frame(region, span, "region_get", OWNER_CACHE);
	uint64_t word = atomic_load_explicit(&frame->word, memory_order_relaxed);

	do {
		if (word_owner(word) == OWNER_FREE || word_generation(word) != span.generation)
			frames_refused(region, span, "region_get (any owner)", OWNER_CACHE);
		CHECK(word_refs(word) < REGION_REFS_MAX);
	} while (!atomic_compare_exchange_weak_explicit(
		&frame->word, &word, word + (1u << 8), memory_order_relaxed, memory_order_relaxed));
}

bool region_put(struct region *region, struct region_span span, enum region_owner owner)
{
	struct region_frame *frame = span_frame(region, span, "region_put", owner);
	uint64_t word = atomic_load_explicit(&frame->word, memory_order_relaxed);
	uint64_t next;

	do {
		if (word_owner(word) != owner || word_generation(word) != span.generation ||
			owner == OWNER_FREE)
			frames_refused(region, span, "region_put", owner);
		next = word_refs(word) > 1 ? word - (1u << 8)
					   : frame_word(span.generation + 1, 0, OWNER_FREE);
	} while (!atomic_compare_exchange_weak_explicit(
		&frame->word, &word, next, memory_order_acq_rel, memory_order_relaxed));
	if (word_owner(next) != OWNER_FREE)
		return false;
	block_freed(region, span, owner);
	return true;
}
