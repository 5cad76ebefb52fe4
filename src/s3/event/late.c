/* s3/event/late.c: the events of objects whose rule has an EventThreshold: missed, replicated after
 * it, and no longer tracked. The first and the last belong to no commit, so a crash loses them
 * before they are sent; what still waits after it is told again. */
#include <errno.h>

#include "s3/event/notification.h"
#include "s3/replicate/replicate.h"

static uint64_t threshold_ns(struct s3 *s3)
{
	return S3_REPLICATE_MINUTES * s3->replication_minute_s * NS_PER_S;
}

uint64_t s3_replicate_late_ns(struct s3 *s3, const struct s3_replicate_row *row)
{
	return row->time_ns + threshold_ns(s3);
}

/* The rule under which the object was written, as it is now. */
static bool is_timed(const struct s3_settings *settings, const struct s3_replicate_row *row)
{
	const struct s3_replication *replication = settings->parsed[S3_CONFIG_REPLICATION];

	for (uint32_t i = 0; replication && i < replication->count; i++)
		if (slice_eq(replication->rules[i].id, row->rule))
			return replication->rules[i].timed;
	return false;
}

static struct s3_event_replication replication_of(
	struct s3 *s3, const struct s3_replicate_row *row, uint64_t took_ns)
{
	return (struct s3_event_replication){.target = row->target,
		.rule_id = row->rule,
		.operation = "OBJECT_PUT",
		.time_ns = row->time_ns,
		.threshold_ns = threshold_ns(s3),
		.took_ns = took_ns};
}

static void pass(struct s3 *s3, const struct s3_settings *settings,
	const struct s3_replicate_row *row, enum s3_event_id id)
{
	const struct s3_event_replication replication = replication_of(s3, row, 0);
	const struct s3_event event = {.id = id,
		.key = row->key,
		.version_id = row->version_id,
		.replication = &replication};

	s3_event_pass(s3, settings, &event, row->number);
}

void s3_replicate_tell_missed(
	struct s3 *s3, struct flow_core *core, const struct s3_replicate_row *row)
{
	struct s3_settings *settings;

	if (!row->rule.len || s3_settings_get(s3, core, row->bucket, &settings))
		return;
	if (is_timed(settings, row)) {
		s3_replicate_count_missed(s3, row);
		pass(s3, settings, row, S3_EVENT_REPLICATION_MISSED);
	}
	s3_settings_put(settings);
}

/* Also when the rule is gone: then it was tracked by it until now. */
void s3_replicate_tell_untracked(
	struct s3 *s3, struct flow_core *core, const struct s3_replicate_row *row)
{
	struct s3_settings *settings;

	if (!row->rule.len || s3_settings_get(s3, core, row->bucket, &settings))
		return;
	pass(s3, settings, row, S3_EVENT_REPLICATION_UNTRACKED);
	s3_settings_put(settings);
}

int s3_replicate_note_sent(struct s3 *s3, struct flow_core *core,
	const struct s3_replicate_row *row, struct slice target_version)
{
	const uint64_t now_ns = clock_real_ns();
	const struct s3_event_replication replication =
		replication_of(s3, row, now_ns - MIN(now_ns, row->time_ns));
	const struct s3_event event = {.id = S3_EVENT_REPLICATION_AFTER,
		.key = row->key,
		.version_id = row->version_id,
		.replication = &replication};
	struct store_outcome outcome = {.version_id = row->version_id};
	struct s3_telling telling;
	struct s3_settings *settings;
	bool late = row->rule.len && now_ns > s3_replicate_late_ns(s3, row);
	int ret = late ? s3_settings_get(s3, core, row->bucket, &settings) : -ENOENT;

	if (ret && ret != -ENOENT)
		return ret;
	if (ret)
		return s3_replicate_note(s3, row, S3_REPLICATE_END_SENT, target_version);
	s3_event_begin_of_server(
		s3, settings, is_timed(settings, row) ? &event : NULL, NULL, &telling);
	outcome.ret = s3_replicate_note_with(
		s3, row, S3_REPLICATE_END_SENT, target_version, s3_telling_outbox_row(&telling));
	s3_event_end(&telling, &outcome);
	s3_settings_put(settings);
	return outcome.ret;
}
