/* server/admin/replication.c: the metrics of replication's targets. */
#include "server/admin/admin_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "s3/replication.h"

static uint64_t age_s(const struct s3_replicate_told *told)
{
	uint64_t now_ns = clock_real_ns();

	return told->state.oldest_ns && told->state.oldest_ns < now_ns
		       ? (now_ns - told->state.oldest_ns) / NS_PER_S
		       : 0;
}

static void put_line(
	struct buf *out, const char *name, const struct s3_replicate_told *told, uint64_t value)
{
	char labels[S3_REPLICATE_NAME_MAX + 16];

	snprintf(labels, sizeof(labels), "target=\"%s\"", told->place.name);
	metric_line(out, name, labels, value);
}

void admin_replication_metrics(const struct admin_opts *opts, struct buf *out)
{
	static const struct {
		const char *name, *help;
		enum s3_replicate_count count;
	} FIELDS[] = {
		{"nebulaio_replication_pending_objects",
			"Versions, delete markers and changes that wait to be replicated.",
			S3_REPLICATE_PENDING},
		{"nebulaio_replication_pending_bytes", "Bytes of them.",
			S3_REPLICATE_PENDING_BYTES},
		{"nebulaio_replication_sent_total", "Those that a target took.", S3_REPLICATE_SENT},
		{"nebulaio_replication_sent_bytes_total", "Bytes of them.",
			S3_REPLICATE_SENT_BYTES},
		{"nebulaio_replication_failed_total",
			"Those that can never be replicated: the log has the reasons.",
			S3_REPLICATE_FAILED},
		{"nebulaio_replication_held_bytes",
			"Bytes of the region's frames that a target may be reading.",
			S3_REPLICATE_HELD_BYTES},
	};
	struct s3_replicate_told *list = calloc(S3_REPLICATE_TARGETS_MAX, sizeof(*list));
	uint32_t count = list ? s3_replicate_list(opts->s3, list) : 0;

	for (size_t f = 0; f < ARRAY_LEN(FIELDS); f++) {
		metric_head(out, FIELDS[f].name, FIELDS[f].help);
		for (uint32_t i = 0; i < count; i++)
			put_line(out, FIELDS[f].name, &list[i], list[i].counts[FIELDS[f].count]);
	}
	metric_head(out, "nebulaio_replication_oldest_age_seconds",
		"How long the oldest of them has waited.");
	for (uint32_t i = 0; i < count; i++)
		put_line(out, "nebulaio_replication_oldest_age_seconds", &list[i], age_s(&list[i]));
	metric_head(out, "nebulaio_replication_refused",
		"Those that the target refused and that are tried again.");
	for (uint32_t i = 0; i < count; i++)
		put_line(out, "nebulaio_replication_refused", &list[i], list[i].state.refused);
	free(list);
}
