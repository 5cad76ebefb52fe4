/* server/admin/buckets.c: what each bucket holds, for /metrics. The number of buckets told is
 * bounded: those with a quota go first, then the order of names. */
#include "server/admin/admin_priv.h"

#include <stdio.h>
#include <stdlib.h>

struct told {
	char labels[LIMIT_BUCKET_LEN_MAX + 16];
	struct store_quota used, quota;
};

struct telling {
	struct store *store;
	struct told *list;
	uint32_t count, left_out;
	bool limited; /* the buckets with a quota, else the others */
};

static bool tell(const struct store_bucket *bucket, void *arg)
{
	struct telling *telling = arg;
	struct told *told = &telling->list[telling->count];

	if (bucket->name[0] == '.' || /* the server's own */
		telling->limited != (bucket->quota.bytes || bucket->quota.objects))
		return true;
	if (telling->count == LIMIT_METRIC_BUCKETS_MAX) {
		telling->left_out++;
		return true;
	}
	if (store_bucket_usage(telling->store, slice_str(bucket->name), &told->used))
		return true; /* deleted meanwhile */
	snprintf(told->labels, sizeof(told->labels), "bucket=\"%s\"", bucket->name);
	told->quota = bucket->quota;
	telling->count++;
	return true;
}

void admin_bucket_metrics(const struct admin_opts *opts, struct buf *out)
{
	static const struct {
		const char *name, *help;
		size_t offset;
	} FIELDS[] = {
		{"nebulaio_bucket_bytes",
			"Bytes of a bucket's objects, of their noncurrent versions, too.",
			offsetof(struct told, used.bytes)},
		{"nebulaio_bucket_objects",
			"Objects of a bucket, and noncurrent versions, without delete markers.",
			offsetof(struct told, used.objects)},
		{"nebulaio_bucket_quota_bytes", "The most bytes that a bucket holds; 0: no limit.",
			offsetof(struct told, quota.bytes)},
		{"nebulaio_bucket_quota_objects",
			"The most objects and versions that a bucket holds; 0: no limit.",
			offsetof(struct told, quota.objects)},
	};
	struct telling telling = {.store = opts->store, .limited = true};

	telling.list = calloc(LIMIT_METRIC_BUCKETS_MAX + 1, sizeof(*telling.list));
	if (!telling.list || store_bucket_list(opts->store, SLICE_NONE, tell, &telling)) {
		out->failed = true;
		free(telling.list);
		return;
	}
	telling.limited = false;
	out->failed |= store_bucket_list(opts->store, SLICE_NONE, tell, &telling) != 0;
	for (size_t f = 0; f < ARRAY_LEN(FIELDS); f++) {
		metric_head(out, FIELDS[f].name, FIELDS[f].help);
		for (uint32_t i = 0; i < telling.count; i++) {
			uint64_t value;

			memcpy(&value, (const char *)&telling.list[i] + FIELDS[f].offset,
				sizeof(value));
			metric_line(out, FIELDS[f].name, telling.list[i].labels, value);
		}
	}
	metric_head(out, "nebulaio_buckets_left_out",
		"Buckets that the metrics of buckets leave out, because there are too many.");
	metric_line(out, "nebulaio_buckets_left_out", NULL, telling.left_out);
	free(telling.list);
}
