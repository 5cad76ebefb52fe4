/* s3/event/failed.c: notes that a version can never be replicated, with the event of it in the same
 * commit. */
#include "s3/event/notification.h"
#include "s3/replicate/replicate.h"

static const char *operation_of(enum s3_replicate_kind kind)
{
	switch (kind) {
	case S3_REPLICATE_TAGS:
		return "OBJECT_TAGGING";
	case S3_REPLICATE_RETENTION:
		return "OBJECT_RETENTION";
	case S3_REPLICATE_HOLD:
		return "OBJECT_LEGAL_HOLD";
	default:
		return "OBJECT_PUT";
	}
}

/* The first rule to the target that the key falls under; its tags are not asked for. */
static struct slice rule_id_of(
	const struct s3_settings *settings, const struct s3_replicate_row *row)
{
	const struct s3_replication *replication = settings->parsed[S3_CONFIG_REPLICATION];
	uint32_t target;

	if (!replication || !s3_replication_target_find(replication, row->target, &target))
		return SLICE_NONE;
	for (uint32_t i = 0; i < replication->count; i++)
		if (replication->rules[i].target == target && replication->rules[i].enabled &&
			slice_starts(row->key, replication->rules[i].prefix))
			return replication->rules[i].id;
	return SLICE_NONE;
}

int s3_replicate_note_failed(
	struct s3 *s3, struct flow_core *core, const struct s3_replicate_row *row, const char *why)
{
	struct s3_event_replication replication = {.target = row->target,
		.why = slice_str(why),
		.operation = operation_of(row->kind),
		.time_ns = row->time_ns};
	const struct s3_event event = {.id = S3_EVENT_REPLICATION_FAILED,
		.key = row->key,
		.version_id = row->version_id,
		.replication = &replication};
	struct store_outcome outcome = {.version_id = row->version_id};
	struct s3_settings *settings;
	struct s3_telling telling;

	if (row->kind == S3_REPLICATE_MARKER || row->kind == S3_REPLICATE_NOTHING)
		return 0;
	outcome.ret = s3_settings_get(s3, core, row->bucket, &settings);
	if (outcome.ret)
		return outcome.ret;
	replication.rule_id = rule_id_of(settings, row);
	s3_event_begin_of_server(s3, settings, &event, NULL, &telling);
	outcome.ret = s3_replicate_note_with(
		s3, row, S3_REPLICATE_END_FAILED, SLICE_NONE, s3_telling_outbox_row(&telling));
	s3_event_end(&telling, &outcome);
	s3_settings_put(settings);
	return outcome.ret;
}
