/* Fuzzes lifecycle rules: any XML as a configuration; a configuration that parses must give
 * decisions on versions. */
#include "base/base.h"
#include "s3/core/call.h"
#include "s3/core/tags.h"
#include "s3/core/xml_in.h"
#include "s3/object/lifecycle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void judge(const struct s3_lifecycle_rules *rules, struct slice key)
{
	static const int64_t days[] = {1000, 86400000};

	for (uint32_t bits = 0; bits < 64; bits++) {
		const struct store_meta meta = {.bytes = key.len,
			.mtime_ns = 1700000000ull * NS_PER_S,
			.delete_marker = bits & 1};
		const struct s3_tags none = {.count = 0};
		const struct s3_tags *tags = bits & 2 ? &none : NULL;
		const struct store_lifecycle_version version = {.key = key,
			.meta = &meta,
			.current = bits & 4,
			.alone = bits & 8,
			.noncurrent_ns = meta.mtime_ns,
			.newer = bits & 16 ? 5 : 0};
		const struct s3_lifecycle_now now = {
			.ms = 1800000000000, .day_ms = days[bits >> 5]};
		uint8_t class = 0;
		int64_t due_ms;

		CHECK(s3_lifecycle_decide(rules, &version, tags, &now, &class) !=
				S3_LIFECYCLE_NEEDS_TAGS ||
			!tags);
		if (tags)
			(void)s3_lifecycle_expiry(rules, &version, tags, &due_ms);
		(void)s3_lifecycle_aborts(rules, key, meta.mtime_ns, &now);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct s3_lifecycle_wrong wrong = {.error = S3_E_COUNT};
	struct s3_lifecycle_rules rules;
	struct mem_arena arena;
	struct s3_xml *tree;
	int ret;

	mem_arena_init(&arena);
	if (s3_xml_parse(slice_of(data, size), &arena, &tree) == 0) {
		ret = s3_lifecycle_parse(tree, &arena, &rules, &wrong);
		if (ret)
			CHECK(wrong.error < S3_E_COUNT);
		else
			judge(&rules, slice_to(slice_of(data, size), 20));
	}
	mem_arena_free(&arena);
	return 0;
}
