/* server/admin/buckets.c: what each bucket holds, for the metrics. The number of buckets told is
 * bounded: those with a quota go first, then the order of names. */
#include "server/admin/admin_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct telling {
	struct store *store;
	struct admin_buckets *buckets;
	bool limited; /* the buckets with a quota, else the others */
};

static bool tell(const struct store_bucket *bucket, void *arg)
{
	struct telling *telling = arg;
	struct admin_buckets *buckets = telling->buckets;
	struct admin_bucket *told = &buckets->list[buckets->count];

	if (bucket->name[0] == '.' || /* the server's own */
		telling->limited != (bucket->quota.bytes || bucket->quota.objects))
		return true;
	if (buckets->count == LIMIT_METRIC_BUCKETS_MAX) {
		buckets->left_out++;
		return true;
	}
	if (store_bucket_usage(telling->store, slice_str(bucket->name), &told->used))
		return true; /* deleted meanwhile */
	memcpy(told->name, bucket->name, sizeof(told->name));
	told->quota = bucket->quota;
	told->versions = bucket->versioning != STORE_VERSIONING_NEVER;
	buckets->count++;
	return true;
}

int admin_buckets_read(const struct admin_opts *opts, struct admin_buckets *ret_buckets)
{
	struct telling telling = {.store = opts->store, .buckets = ret_buckets, .limited = true};
	int ret;

	*ret_buckets = (struct admin_buckets){
		.list = calloc(LIMIT_METRIC_BUCKETS_MAX + 1, sizeof(*ret_buckets->list))};
	if (!ret_buckets->list)
		return -ENOMEM;
	ret = store_bucket_list(opts->store, SLICE_NONE, tell, &telling);
	telling.limited = false;
	return ret ? ret : store_bucket_list(opts->store, SLICE_NONE, tell, &telling);
}

void admin_buckets_free(struct admin_buckets *buckets)
{
	free(buckets->list);
}

void admin_bucket_metrics(const struct admin_opts *opts, struct buf *out)
{
	static const struct {
		const char *name, *help;
		size_t offset;
	} FIELDS[] = {
		{"nebulaio_bucket_bytes",
			"Bytes of a bucket's objects, of their noncurrent versions, too.",
			offsetof(struct admin_bucket, used.bytes)},
		{"nebulaio_bucket_objects",
			"Objects of a bucket, and noncurrent versions, without delete markers.",
			offsetof(struct admin_bucket, used.objects)},
		{"nebulaio_bucket_quota_bytes", "The most bytes that a bucket holds; 0: no limit.",
			offsetof(struct admin_bucket, quota.bytes)},
		{"nebulaio_bucket_quota_objects",
			"The most objects and versions that a bucket holds; 0: no limit.",
			offsetof(struct admin_bucket, quota.objects)},
	};
	struct admin_buckets buckets;

	out->failed |= admin_buckets_read(opts, &buckets) != 0;
	for (size_t f = 0; f < ARRAY_LEN(FIELDS); f++) {
		metric_head(out, FIELDS[f].name, FIELDS[f].help);
		for (uint32_t i = 0; i < buckets.count; i++) {
			char labels[LIMIT_BUCKET_LEN_MAX + 16];
			uint64_t value;

			snprintf(labels, sizeof(labels), "bucket=\"%s\"", buckets.list[i].name);
			memcpy(&value, (const char *)&buckets.list[i] + FIELDS[f].offset,
				sizeof(value));
			metric_line(out, FIELDS[f].name, labels, value);
		}
	}
	metric_head(out, "nebulaio_buckets_left_out",
		"Buckets that the metrics of buckets leave out, because there are too many.");
	metric_line(out, "nebulaio_buckets_left_out", NULL, buckets.left_out);
	admin_buckets_free(&buckets);
}
