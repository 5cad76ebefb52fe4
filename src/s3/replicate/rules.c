/* s3/replicate/rules.c: a bucket's replication configuration: checked against its schema and the
 * registered targets, stored, and asked which rule an object falls under. */
#include <errno.h>
#include <stdlib.h>

#include "s3/core/answer.h"
#include "s3/replicate/replicate.h"

#define ID_LEN_MAX 255u
#define ARN_AWS	   "arn:aws:s3:::"
#define ARN_MINIO  "arn:minio:replication:"

#define SCHEMA                                                                           \
	" must be specified for this version of Cross Region Replication configuration " \
	"schema. Please refer to S3 Developer Guide for more information."

static int wrong(
	struct s3_replication_wrong *ret_wrong, enum s3_error_id error, const char *message)
{
	*ret_wrong = (struct s3_replication_wrong){.error = error, .message = message};
	return -EINVAL;
}

/* ---- One rule. ---- */

/* <NAME><Status>Enabled</Status></NAME> */
static int parse_switch(
	const struct s3_xml *node, bool *ret_on, struct s3_replication_wrong *ret_wrong)
{
	struct slice status = s3_xml_text(node, "Status");

	*ret_on = slice_eq(status, SLICE("Enabled"));
	return *ret_on || slice_eq(status, SLICE("Disabled"))
		       ? 0
		       : wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
}

static int parse_tag(const struct s3_xml *node, struct s3_replication_rule *rule,
	struct s3_replication_wrong *ret_wrong)
{
	struct s3_tag tag = {s3_xml_text(node, "Key"), s3_xml_text(node, "Value")};

	if (!tag.key.len || rule->tag_count == S3_TAGS_OBJECT_MAX)
		return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	for (uint32_t i = 0; i < rule->tag_count; i++)
		if (slice_eq(rule->tags[i].key, tag.key))
			return wrong(ret_wrong, S3_E_INVALID_REQUEST,
				"Duplicate Tag Keys are not allowed.");
	rule->tags[rule->tag_count++] = tag;
	return 0;
}

/* A prefix, a tag, or both in an And. */
static int parse_filter(const struct s3_xml *filter, struct s3_replication_rule *rule,
	struct s3_replication_wrong *ret_wrong)
{
	const struct s3_xml *both = s3_xml_child(filter, "And");
	int ret = 0;

	if (filter->child && filter->child->next)
		return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	for (const struct s3_xml *node = (both ? both : filter)->child; node && !ret;
		node = node->next) {
		if (slice_eq(node->name, SLICE("Prefix")))
			rule->prefix = node->text;
		else if (slice_eq(node->name, SLICE("Tag")))
			ret = parse_tag(node, rule, ret_wrong);
		else
			ret = wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	}
	return ret;
}

/* Names what this server does not do: an option that were ignored would be a promise. */
static int refuse_option(const struct s3_xml *destination, struct s3_replication_wrong *ret_wrong)
{
	static const struct {
		const char *element, *message;
	} refused[] = {
		{"AccessControlTranslation",
			"A replica belongs to whoever writes it at the target: leave out "
			"AccessControlTranslation."},
	};

	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		const struct s3_xml *node = s3_xml_child(destination, refused[i].element);

		if (node && !slice_eq(s3_xml_text(node, "Status"), SLICE("Disabled")))
			return wrong(ret_wrong, S3_E_NOT_IMPLEMENTED, refused[i].message);
	}
	return 0;
}

/* <NAME><Status>…</Status><TIME><Minutes>15</Minutes></TIME></NAME>: S3 has no other time. */
static int parse_timed(const struct s3_xml *node, const char *time, bool *ret_on, bool *ret_timed,
	struct s3_replication_wrong *ret_wrong)
{
	const struct s3_xml *child = s3_xml_child(node, time);
	uint64_t minutes = 0;
	int ret = parse_switch(node, ret_on, ret_wrong);

	if (ret)
		return ret;
	if (child && slice_to_u64(s3_xml_text(child, "Minutes"), &minutes))
		return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	if (child && minutes != S3_REPLICATE_MINUTES)
		return wrong(ret_wrong, S3_E_INVALID_ARGUMENT,
			"Minutes of ReplicationTime and of EventThreshold must be 15.");
	*ret_timed = child != NULL;
	return 0;
}

/* Metrics and ReplicationTime. AWS promises to replicate in that time; here, it is the threshold of
 * the events alone. */
static int parse_times(const struct s3_xml *destination, struct s3_replication_rule *rule,
	struct s3_replication_wrong *ret_wrong)
{
	const struct s3_xml *metrics = s3_xml_child(destination, "Metrics");
	const struct s3_xml *control = s3_xml_child(destination, "ReplicationTime");
	bool controlled = false, has_time = false;
	int ret = metrics ? parse_timed(metrics, "EventThreshold", &rule->metrics, &rule->timed,
				    ret_wrong)
			  : 0;

	if (!ret && control)
		ret = parse_timed(control, "Time", &controlled, &has_time, ret_wrong);
	if (ret)
		return ret;
	rule->timed = rule->timed && rule->metrics;
	if (controlled && !has_time)
		return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	return controlled && !rule->timed
		       ? wrong(ret_wrong, S3_E_INVALID_REQUEST,
				 "Metrics with an EventThreshold must be Enabled if "
				 "ReplicationTime is.")
		       : 0;
}

/* "arn:aws:s3:::TARGET"; as MinIO has it, "arn:minio:replication:REGION:TARGET:BUCKET". */
static void parse_arn(struct slice arn, struct slice *ret_target, struct slice *ret_bucket)
{
	*ret_target = *ret_bucket = SLICE_NONE;
	if (slice_starts(arn, SLICE(ARN_AWS))) {
		*ret_target = slice_from(arn, strlen(ARN_AWS));
	} else if (slice_starts(arn, SLICE(ARN_MINIO))) {
		struct slice rest = slice_from(arn, strlen(ARN_MINIO));

		slice_split(&rest, ':');
		*ret_target = slice_split(&rest, ':');
		*ret_bucket = rest;
	}
}

/* Two ARNs of one target must name one bucket: the target has no more. */
static int target_take(struct s3_replication *replication, struct slice name, struct slice bucket,
	uint32_t *ret_target, struct s3_replication_wrong *ret_wrong)
{
	struct s3_replication_target *target;

	if (!s3_replication_target_find(replication, name, ret_target)) {
		if (replication->target_count == S3_REPLICATE_TARGETS_MAX)
			return wrong(ret_wrong, S3_E_INVALID_REQUEST,
				"The rules of a bucket have at most 16 different destinations at "
				"this server.");
		*ret_target = replication->target_count++;
		replication->targets[*ret_target] = (struct s3_replication_target){.name = name};
	}
	target = &replication->targets[*ret_target];
	if (bucket.len && target->bucket.len && !slice_eq(bucket, target->bucket))
		return wrong(ret_wrong, S3_E_INVALID_REQUEST,
			"Two destinations name one target with different buckets.");
	if (bucket.len)
		target->bucket = bucket;
	return 0;
}

static int parse_destination(const struct s3_xml *node, struct s3_replication *replication,
	struct s3_replication_rule *rule, struct s3_replication_wrong *ret_wrong)
{
	struct slice target, bucket;
	uint8_t ignored;
	int ret = refuse_option(node, ret_wrong);

	if (!ret)
		ret = parse_times(node, rule, ret_wrong);
	if (ret)
		return ret;
	parse_arn(s3_xml_text(node, "Bucket"), &target, &bucket);
	rule->class = s3_xml_text(node, "StorageClass");
	if (s3_xml_child(node, "EncryptionConfiguration"))
		rule->kms_key = s3_xml_text(
			s3_xml_child(node, "EncryptionConfiguration"), "ReplicaKmsKeyID");
	if (!target.len || (rule->class.len && !s3_storage_class_find(rule->class, &ignored)))
		return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	return target_take(replication, target, bucket, &rule->target, ret_wrong);
}

/* SourceSelectionCriteria: changes of replicas are not replicated. */
static int parse_selection(const struct s3_xml *node, struct s3_replication_rule *rule,
	struct s3_replication_wrong *ret_wrong)
{
	bool on;

	for (const struct s3_xml *part = node->child; part; part = part->next) {
		int ret = parse_switch(part, &on, ret_wrong);

		if (ret)
			return ret;
		if (slice_eq(part->name, SLICE("SseKmsEncryptedObjects")))
			rule->kms = on;
		else if (on)
			return wrong(ret_wrong, S3_E_NOT_IMPLEMENTED,
				"This server does not replicate changes of replicas: "
				"ReplicaModifications must be Disabled.");
	}
	return 0;
}

/* The elements that a rule was found to have. */
struct found {
	bool filter, status, markers, destination;
};

static int parse_part(const struct s3_xml *part, struct s3_replication *replication,
	struct s3_replication_rule *rule, struct found *found,
	struct s3_replication_wrong *ret_wrong)
{
	bool on;

	if (slice_eq(part->name, SLICE("ID"))) {
		rule->id = part->text;
		return rule->id.len <= ID_LEN_MAX
			       ? 0
			       : wrong(ret_wrong, S3_E_INVALID_ARGUMENT,
					 "ID length should not exceed allowed limit of 255");
	}
	if (slice_eq(part->name, SLICE("Priority"))) {
		rule->has_priority = slice_to_u64(part->text, &rule->priority) == 0;
		return rule->has_priority && rule->priority <= INT32_MAX
			       ? 0
			       : wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	}
	if (slice_eq(part->name, SLICE("Status"))) {
		found->status = true;
		rule->enabled = slice_eq(part->text, SLICE("Enabled"));
		return rule->enabled || slice_eq(part->text, SLICE("Disabled"))
			       ? 0
			       : wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	}
	if (slice_eq(part->name, SLICE("Prefix"))) {
		rule->prefix = part->text;
		return 0;
	}
	if (slice_eq(part->name, SLICE("Filter"))) {
		found->filter = true;
		return parse_filter(part, rule, ret_wrong);
	}
	if (slice_eq(part->name, SLICE("DeleteMarkerReplication"))) {
		found->markers = true;
		return parse_switch(part, &rule->markers, ret_wrong);
	}
	if (slice_eq(part->name, SLICE("ExistingObjectReplication")))
		return parse_switch(part, &rule->existing, ret_wrong);
	if (slice_eq(part->name, SLICE("Destination"))) {
		found->destination = true;
		return parse_destination(part, replication, rule, ret_wrong);
	}
	if (slice_eq(part->name, SLICE("SourceSelectionCriteria")))
		return parse_selection(part, rule, ret_wrong);
	/* MinIO's own. */
	if (slice_eq(part->name, SLICE("DeleteReplication"))) {
		int ret = parse_switch(part, &on, ret_wrong);

		return ret || !on ? ret
				  : wrong(ret_wrong, S3_E_NOT_IMPLEMENTED,
					    "This server does not replicate the deletion of "
					    "versions: DeleteReplication must be Disabled.");
	}
	return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
}

/* The demands of the second version of the schema, which has Filter. */
static int check_rule(const struct s3_replication_rule *rule, const struct found *found,
	struct s3_replication_wrong *ret_wrong)
{
	if (!found->status || !found->destination)
		return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	if (rule->prefix.len > LIMIT_KEY_LEN_MAX)
		return wrong(
			ret_wrong, S3_E_INVALID_ARGUMENT, "The maximum size of a prefix is 1024.");
	if (found->filter && !rule->has_priority)
		return wrong(ret_wrong, S3_E_INVALID_REQUEST, "Priority" SCHEMA);
	if (found->filter && !found->markers)
		return wrong(ret_wrong, S3_E_INVALID_REQUEST, "DeleteMarkerReplication" SCHEMA);
	if (rule->kms && !rule->kms_key.len)
		return wrong(ret_wrong, S3_E_INVALID_REQUEST,
			"EncryptionConfiguration must be specified if SseKmsEncryptedObjects tag "
			"is present");
	if (!rule->kms && rule->kms_key.len)
		return wrong(ret_wrong, S3_E_INVALID_REQUEST,
			"SseKmsEncryptedObjects must be specified if EncryptionConfiguration is "
			"present.");
	if (rule->markers && rule->tag_count)
		return wrong(ret_wrong, S3_E_INVALID_REQUEST,
			"Delete marker replication is not supported if any Tag filter is "
			"specified. Please refer to S3 Developer Guide for more information.");
	return 0;
}

static int parse_rule(struct s3_xml *node, struct s3_replication *replication,
	struct mem_arena *arena, struct s3_replication_wrong *ret_wrong)
{
	struct s3_replication_rule *rule = &replication->rules[replication->count];
	struct found found = {0};
	int ret = 0;

	*rule = (struct s3_replication_rule){.enabled = false};
	for (const struct s3_xml *part = node->child; part && !ret; part = part->next)
		ret = parse_part(part, replication, rule, &found, ret_wrong);
	if (!ret)
		ret = check_rule(rule, &found, ret_wrong);
	for (uint32_t i = 0; i < replication->count && !ret; i++) {
		const struct s3_replication_rule *other = &replication->rules[i];

		if (rule->id.len && slice_eq(other->id, rule->id))
			ret = wrong(ret_wrong, S3_E_INVALID_ARGUMENT,
				"Rule Id must be unique. Found same Id for more than one rule");
		else if (rule->has_priority && other->has_priority &&
			 other->priority == rule->priority)
			ret = wrong(ret_wrong, S3_E_INVALID_REQUEST,
				"Found duplicate priority. Priority must be unique.");
	}
	if (!ret && !rule->id.len)
		ret = s3_xml_add_id(node, "ID", arena, &rule->id);
	replication->count += !ret;
	return ret;
}

/* ---- The configuration. ---- */

static int by_priority(const void *a, const void *b)
{
	const struct s3_replication_rule *one = a, *other = b;

	return (one->priority < other->priority) - (one->priority > other->priority);
}

int s3_replication_parse(struct s3_xml *root, struct mem_arena *arena,
	struct s3_replication *ret_replication, struct s3_replication_wrong *ret_wrong)
{
	uint32_t count = 0;
	int ret = 0;

	for (const struct s3_xml *node = root->child; node; node = node->next)
		count += slice_eq(node->name, SLICE("Rule"));
	if (!count)
		return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	if (count > S3_REPLICATION_RULES_MAX)
		return wrong(ret_wrong, S3_E_INVALID_REQUEST,
			"The number of replication rules must not exceed the allowed limit of "
			"1000 rules.");
	*ret_replication = (struct s3_replication){
		.rules = mem_arena_get(arena, count * sizeof(*ret_replication->rules))};
	if (!ret_replication->rules)
		return -ENOMEM;
	for (struct s3_xml *node = root->child; node && !ret; node = node->next) {
		if (slice_eq(node->name, SLICE("Rule")))
			ret = parse_rule(node, ret_replication, arena, ret_wrong);
		else if (!slice_eq(node->name, SLICE("Role")) &&
			 !slice_eq(node->name, SLICE("RoleArn")))
			ret = wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	}
	if (!ret)
		qsort(ret_replication->rules, ret_replication->count,
			sizeof(*ret_replication->rules), by_priority);
	return ret;
}

static bool rule_fits(const struct s3_replication_rule *rule, struct slice key)
{
	return rule->enabled && slice_starts(key, rule->prefix);
}

const struct s3_replication_rule *s3_replication_rule_of(const struct s3_replication *replication,
	uint32_t target, struct slice key, const struct s3_tags *tags)
{
	for (uint32_t i = 0; i < replication->count; i++) {
		const struct s3_replication_rule *rule = &replication->rules[i];
		bool fits = rule->target == target && rule_fits(rule, key);

		for (uint32_t k = 0; k < rule->tag_count && fits; k++) {
			const struct s3_tag *tag = s3_tags_find(tags, rule->tags[k].key);

			fits = tag && slice_eq(tag->value, rule->tags[k].value);
		}
		if (fits)
			return rule;
	}
	return NULL;
}

const struct s3_replication_rule *s3_replication_marker_rule(
	const struct s3_replication *replication, uint32_t target, struct slice key)
{
	static const struct s3_tags none; /* a marker has no tags */
	const struct s3_replication_rule *rule =
		s3_replication_rule_of(replication, target, key, &none);

	return rule && rule->markers ? rule : NULL;
}

bool s3_replication_target_find(
	const struct s3_replication *replication, struct slice name, uint32_t *ret_target)
{
	for (uint32_t i = 0; i < replication->target_count; i++)
		if (slice_eq(replication->targets[i].name, name)) {
			*ret_target = i;
			return true;
		}
	return false;
}

/* ---- The requests. ---- */

static bool target_exists(
	struct s3 *s3, const struct s3_replication_target *target, const char *owner)
{
	struct s3_replicate_place place;
	bool exists = s3_replicate_allowed(s3, target->name, owner) &&
		      s3_replicate_place(s3, target->name, &place) == 0;

	if (exists && target->bucket.len)
		exists = slice_eq(target->bucket, slice_str(place.bucket));
	secret_wipe(&place, sizeof(place));
	return exists;
}

/* A target that the caller may not name is answered as one that does not exist. */
static const struct s3_error *check_targets(struct s3_call *call,
	const struct s3_settings *settings, const struct s3_replication *replication)
{
	for (uint32_t i = 0; i < replication->target_count; i++)
		if (!target_exists(call->s3, &replication->targets[i], settings->bucket.owner))
			return s3_fail(call, S3_E_INVALID_REQUEST,
				"Destination bucket must exist: the destination names a "
				"replication target that this server's operator has registered for "
				"the bucket's account.");
	return NULL;
}

static bool wants_existing(const struct s3_replication *replication)
{
	for (uint32_t i = 0; i < replication->count; i++)
		if (replication->rules[i].enabled && replication->rules[i].existing)
			return true;
	return false;
}

/* S3 first checks whether the bucket has versioning. */
static const struct s3_error *check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	struct s3_replication_wrong bad = {.message = NULL};
	const struct s3_settings *settings;
	struct s3_replication replication;
	const struct s3_error *error;
	struct s3_xml *root;
	int ret;

	error = s3_config_xml(call, body, "ReplicationConfiguration", &root);
	if (!error)
		error = s3_call_settings(call, &settings);
	if (error)
		return error;
	if (!settings || settings->bucket.versioning != STORE_VERSIONING_ENABLED)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Versioning must be 'Enabled' on the bucket to apply a replication "
			"configuration");
	ret = s3_replication_parse(root, &call->arena, &replication, &bad);
	if (ret == -EINVAL)
		return bad.message ? s3_fail(call, bad.error, "%s", bad.message)
				   : s3_error_at(bad.error);
	if (ret)
		return s3_error_at(S3_E_SLOW_DOWN);
	error = check_targets(call, settings, &replication);
	if (!error)
		error = s3_config_xml_text(call, root, ret_document);
	if (!error && wants_existing(&replication) &&
		!slice_eq(*ret_document, settings->documents[S3_CONFIG_REPLICATION])) {
		ret = s3_replicate_resync_ask(call->s3, call->request->core, call->bucket,
			S3_REPLICATE_RESYNC_RULES, *ret_document);
		error = ret ? s3_fail_errno(call, ret) : NULL;
	}
	return error;
}

static int load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_replication *replication = mem_arena_get(arena, sizeof(*replication));
	struct s3_replication_wrong bad;
	struct s3_xml *root;
	int ret = replication ? s3_xml_parse(document, arena, &root) : -ENOMEM;

	if (!ret)
		ret = s3_replication_parse(root, arena, replication, &bad);
	*ret_parsed = ret ? NULL : replication;
	return ret;
}

const struct s3_config_ops s3_config_replication = {
	.check = check,
	.load = load,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};
