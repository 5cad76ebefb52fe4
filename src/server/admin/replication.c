/* server/admin/replication.c: the metrics of replication, by target, and by rule. */
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

/* ---- By rule. ---- */

/* A rule's id may have any characters. */
static void label_put(struct buf *labels, const char *name, const char *value)
{
	buf_printf(labels, "%s%s=\"", labels->len ? "," : "", name);
	for (; *value; value++) {
		if (*value == '\n')
			buf_put_str(labels, "\\n");
		else if (*value == '"' || *value == '\\')
			buf_printf(labels, "\\%c", *value);
		else
			buf_put(labels, value, 1);
	}
	buf_put_str(labels, "\"");
}

static void rule_line(struct buf *out, const char *name, const struct s3_replicate_rule_told *rule,
	const char *value)
{
	struct buf labels;

	buf_init(&labels, 2 * KIB);
	label_put(&labels, "bucket", rule->bucket);
	label_put(&labels, "target", rule->target);
	label_put(&labels, "rule", rule->rule);
	buf_put(&labels, "", 1);
	if (!labels.failed)
		buf_printf(out, "%s{%s} %s\n", name, labels.data, value);
	buf_free(&labels);
}

static void put_rules(const struct admin_opts *opts, struct buf *out)
{
#define FIELD(metric, text, member)                                           \
	{                                                                     \
		metric, text, offsetof(struct s3_replicate_rule_told, member) \
	}
	static const struct {
		const char *name, *help;
		size_t offset;
	} FIELDS[] = {
		FIELD("nebulaio_replication_rule_pending_objects",
			"Objects that wait, of rules with Metrics.", pending),
		FIELD("nebulaio_replication_rule_pending_bytes", "Bytes of them.", pending_bytes),
		FIELD("nebulaio_replication_rule_failed_total",
			"Objects that can never be replicated.", failed),
		FIELD("nebulaio_replication_rule_missed_total",
			"Objects that were not replicated within their rule's EventThreshold.",
			missed),
		FIELD("nebulaio_replication_rule_sent_total", "Objects that the target took.",
			sent),
	};
#undef FIELD
	struct s3_replicate_rule_told *list = calloc(S3_REPLICATE_RULES_MAX, sizeof(*list));
	uint32_t count = list ? s3_replicate_rules(opts->s3, list) : 0;
	char text[32];

	for (size_t f = 0; f < ARRAY_LEN(FIELDS); f++) {
		metric_head(out, FIELDS[f].name, FIELDS[f].help);
		for (uint32_t i = 0; i < count; i++) {
			uint64_t value;

			memcpy(&value, (const char *)&list[i] + FIELDS[f].offset, sizeof(value));
			snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
			rule_line(out, FIELDS[f].name, &list[i], text);
		}
	}
	metric_head(out, "nebulaio_replication_rule_seconds_total",
		"Time from the commits of these objects to their replicas, summed up.");
	for (uint32_t i = 0; i < count; i++) {
		snprintf(text, sizeof(text), "%.3f", (double)list[i].sent_ns / (double)NS_PER_S);
		rule_line(out, "nebulaio_replication_rule_seconds_total", &list[i], text);
	}
	free(list);
}

/* ---- By target. ---- */

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
	put_rules(opts, out);
}
