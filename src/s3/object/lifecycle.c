/* s3/object/lifecycle.c: parsing lifecycle rules, and their decision on a version. */
#include "s3/object/lifecycle.h"

#include <errno.h>

#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/core/xml_in.h"

#define MS_PER_DAY 86400000ll

struct parser {
	struct mem_arena *arena;
	struct s3_lifecycle_wrong *wrong;
};

static int wrong(struct parser *parser, enum s3_error_id error, const char *message)
{
	*parser->wrong = (struct s3_lifecycle_wrong){.error = error, .message = message};
	return -EINVAL;
}

static int malformed(struct parser *parser)
{
	return wrong(parser, S3_E_MALFORMED_XML, NULL);
}

static uint32_t children(const struct s3_xml *node, const char *name)
{
	uint32_t count = 0;

	for (const struct s3_xml *child = node->child; child; child = child->next)
		count += slice_eq(child->name, slice_str(name));
	return count;
}

/* A number of days or versions; absent is 0. */
static int parse_count(
	struct parser *parser, const struct s3_xml *node, const char *name, uint32_t *ret_count)
{
	const struct s3_xml *child = s3_xml_child(node, name);
	uint64_t count;

	*ret_count = 0;
	if (!child)
		return 0;
	if (slice_to_u64(slice_trim(child->text), &count)) {
		if (slice_starts(slice_trim(child->text), SLICE("-")))
			count = 0;
		else
			return malformed(parser);
	}
	if (!count || count > S3_LIFECYCLE_DAYS_MAX)
		return wrong(parser, S3_E_INVALID_ARGUMENT,
			"A number of days or versions in a lifecycle rule must be a positive "
			"integer.");
	*ret_count = (uint32_t)count;
	return 0;
}

static int parse_date(
	struct parser *parser, const struct s3_xml *node, int64_t *ret_ms, bool *ret_has)
{
	struct slice text = slice_trim(s3_xml_text(node, "Date"));

	*ret_has = false;
	if (!s3_xml_child(node, "Date"))
		return 0;
	if (date_iso_parse(text, ret_ms) && date_day_parse(text, ret_ms))
		return malformed(parser);
	if (*ret_ms % MS_PER_DAY)
		return wrong(parser, S3_E_INVALID_ARGUMENT, "'Date' must be at midnight GMT");
	*ret_has = true;
	return 0;
}

/* ---- Filters. ---- */

static int parse_size(
	struct parser *parser, const struct s3_xml *node, uint64_t *ret_size, bool *ret_has)
{
	if (slice_to_u64(slice_trim(node->text), ret_size) || *ret_has)
		return malformed(parser);
	*ret_has = true;
	return 0;
}

static int parse_tag(struct parser *parser, const struct s3_xml *node, struct s3_tag *ret_tag)
{
	*ret_tag = (struct s3_tag){s3_xml_text(node, "Key"), s3_xml_text(node, "Value")};
	if (!ret_tag->key.len || !s3_xml_child(node, "Value"))
		return malformed(parser);
	return 0;
}

static int check_tags(struct parser *parser, const struct s3_lifecycle_rule *rule)
{
	for (uint32_t i = 1; i < rule->tag_count; i++)
		for (uint32_t k = 0; k < i; k++)
			if (slice_eq(rule->tags[i].key, rule->tags[k].key))
				return wrong(parser, S3_E_INVALID_REQUEST,
					"Duplicate Tag Keys are not allowed.");
	return 0;
}

/* If a rule has two prefixes, the longer one must start with the shorter one, and is used. */
static int parse_prefix(struct parser *parser, struct slice prefix, struct s3_lifecycle_rule *rule)
{
	bool longer = prefix.len > rule->prefix.len;

	if (!slice_starts(longer ? prefix : rule->prefix, longer ? rule->prefix : prefix))
		return malformed(parser);
	if (longer)
		rule->prefix = prefix;
	return 0;
}

/* Prefix, Tag and sizes of <Filter> and of its <And>: all must match. (S3 requires one of them to
 * be outside <And>; other servers accept more, and it has only one possible meaning.) */
static int parse_terms(struct parser *parser, const struct s3_xml *node, struct s3_tag *tags,
	struct s3_lifecycle_rule *rule)
{
	int ret = 0;

	for (const struct s3_xml *term = node->child; term && !ret; term = term->next) {
		if (slice_eq(term->name, SLICE("Prefix")))
			ret = parse_prefix(parser, term->text, rule);
		else if (slice_eq(term->name, SLICE("Tag")))
			ret = parse_tag(parser, term, &tags[rule->tag_count++]);
		else if (slice_eq(term->name, SLICE("And")) &&
			 slice_eq(node->name, SLICE("Filter")))
			continue;
		else if (slice_eq(term->name, SLICE("ObjectSizeGreaterThan")))
			ret = parse_size(parser, term, &rule->size_over, &rule->has_over);
		else if (slice_eq(term->name, SLICE("ObjectSizeLessThan")))
			ret = parse_size(parser, term, &rule->size_under, &rule->has_under);
		else
			ret = malformed(parser);
	}
	if (!ret && rule->prefix.len > LIMIT_KEY_LEN_MAX)
		ret = wrong(parser, S3_E_INVALID_REQUEST, "The maximum size of a prefix is 1024.");
	if (!ret && rule->has_over && rule->has_under && rule->size_over >= rule->size_under)
		ret = wrong(parser, S3_E_INVALID_REQUEST,
			"ObjectSizeGreaterThan must be less than ObjectSizeLessThan.");
	return ret;
}

static int parse_filter(
	struct parser *parser, const struct s3_xml *node, struct s3_lifecycle_rule *rule)
{
	const struct s3_xml *filter = s3_xml_child(node, "Filter");
	const struct s3_xml *all;
	struct s3_tag *tags;
	int ret;

	rule->prefix = s3_xml_text(node, "Prefix");
	if (!filter)
		return s3_xml_child(node, "Prefix") ? 0 : malformed(parser);
	if (s3_xml_child(node, "Prefix"))
		return malformed(parser);
	all = s3_xml_child(filter, "And");
	if (children(filter, "And") > 1)
		return malformed(parser);
	tags = mem_arena_get(parser->arena,
		(children(filter, "Tag") + (all ? children(all, "Tag") : 0) + 1) * sizeof(*tags));
	if (!tags)
		return -ENOMEM;
	rule->tags = tags;
	ret = parse_terms(parser, filter, tags, rule);
	if (!ret && all)
		ret = parse_terms(parser, all, tags, rule);
	return ret ? ret : check_tags(parser, rule);
}

/* ---- Actions. ---- */

static int parse_expiration(
	struct parser *parser, const struct s3_xml *node, struct s3_lifecycle_rule *rule)
{
	const struct s3_xml *expiration = s3_xml_child(node, "Expiration");
	struct slice markers;
	int ret;

	if (!expiration)
		return 0;
	markers = s3_xml_text(expiration, "ExpiredObjectDeleteMarker");
	rule->expire_markers = slice_eq_nocase(markers, SLICE("true"));
	ret = parse_count(parser, expiration, "Days", &rule->days);
	if (!ret)
		ret = parse_date(parser, expiration, &rule->date_ms, &rule->has_date);
	if (!ret &&
		(rule->days > 0) + rule->has_date +
				(s3_xml_child(expiration, "ExpiredObjectDeleteMarker") != NULL) !=
			1)
		ret = malformed(parser);
	return ret;
}

static int parse_move(struct parser *parser, const struct s3_xml *node, bool noncurrent,
	struct s3_lifecycle_move *move)
{
	const char *days = noncurrent ? "NoncurrentDays" : "Days";
	int ret = 0;

	*move = (struct s3_lifecycle_move){.noncurrent = noncurrent};
	if (!s3_storage_class_find(slice_trim(s3_xml_text(node, "StorageClass")), &move->class) ||
		!move->class)
		return malformed(parser);
	/* A transition may be due at once, an expiration may not. */
	if (!slice_eq(slice_trim(s3_xml_text(node, days)), SLICE("0")))
		ret = parse_count(parser, node, days, &move->days);
	if (!ret && noncurrent)
		ret = parse_count(parser, node, "NewerNoncurrentVersions", &move->newer);
	if (!ret && !noncurrent)
		ret = parse_date(parser, node, &move->date_ms, &move->has_date);
	if (!ret && (s3_xml_child(node, days) != NULL) + move->has_date != 1)
		ret = malformed(parser);
	return ret;
}

static int parse_moves(
	struct parser *parser, const struct s3_xml *node, struct s3_lifecycle_rule *rule)
{
	uint32_t count =
		children(node, "Transition") + children(node, "NoncurrentVersionTransition");
	struct s3_lifecycle_move *moves =
		mem_arena_get(parser->arena, (count + 1) * sizeof(*moves));
	int ret = moves ? 0 : -ENOMEM;

	for (const struct s3_xml *child = node->child; child && !ret; child = child->next) {
		bool noncurrent = slice_eq(child->name, SLICE("NoncurrentVersionTransition"));

		if (noncurrent || slice_eq(child->name, SLICE("Transition")))
			ret = parse_move(parser, child, noncurrent, &moves[rule->move_count++]);
	}
	rule->moves = moves;
	return ret;
}

static int parse_noncurrent(
	struct parser *parser, const struct s3_xml *node, struct s3_lifecycle_rule *rule)
{
	const struct s3_xml *noncurrent = s3_xml_child(node, "NoncurrentVersionExpiration");
	const struct s3_xml *abort = s3_xml_child(node, "AbortIncompleteMultipartUpload");
	int ret = 0;

	if (noncurrent) {
		ret = parse_count(parser, noncurrent, "NoncurrentDays", &rule->noncurrent_days);
		if (!ret)
			ret = parse_count(parser, noncurrent, "NewerNoncurrentVersions",
				&rule->noncurrent_newer);
		if (!ret && !rule->noncurrent_days)
			ret = malformed(parser);
	}
	if (!ret && abort) {
		ret = parse_count(parser, abort, "DaysAfterInitiation", &rule->abort_days);
		if (!ret && !rule->abort_days)
			ret = malformed(parser);
		if (!ret && (rule->tag_count || rule->has_over || rule->has_under))
			ret = wrong(parser, S3_E_INVALID_REQUEST,
				"AbortIncompleteMultipartUpload cannot be specified with tags or "
				"object sizes.");
	}
	return ret;
}

static int parse_rule(
	struct parser *parser, const struct s3_xml *node, struct s3_lifecycle_rule *rule)
{
	struct slice status = slice_trim(s3_xml_text(node, "Status"));
	int ret;

	*rule = (struct s3_lifecycle_rule){.id = slice_trim(s3_xml_text(node, "ID"))};
	if (!slice_eq(node->name, SLICE("Rule")))
		return malformed(parser);
	rule->enabled = slice_eq(status, SLICE("Enabled"));
	if (!rule->enabled && !slice_eq(status, SLICE("Disabled")))
		return malformed(parser);
	if (rule->id.len > S3_LIFECYCLE_ID_MAX)
		return wrong(parser, S3_E_INVALID_ARGUMENT,
			"ID length should not exceed allowed limit of 255");
	ret = parse_filter(parser, node, rule);
	if (!ret)
		ret = parse_expiration(parser, node, rule);
	if (!ret)
		ret = parse_noncurrent(parser, node, rule);
	if (!ret)
		ret = parse_moves(parser, node, rule);
	if (!ret && !rule->days && !rule->has_date && !rule->noncurrent_days && !rule->abort_days &&
		!rule->move_count && !s3_xml_child(node, "Expiration"))
		ret = wrong(parser, S3_E_INVALID_REQUEST,
			"At least one action needs to be specified in a rule");
	return ret;
}

int s3_lifecycle_parse(const struct s3_xml *root, struct mem_arena *arena,
	struct s3_lifecycle_rules *ret_rules, struct s3_lifecycle_wrong *ret_wrong)
{
	struct parser parser = {.arena = arena, .wrong = ret_wrong};
	uint32_t count = children(root, "Rule"), at = 0;
	struct s3_lifecycle_rule *rules;
	int ret = 0;

	if (!count || count > S3_LIFECYCLE_RULES_MAX)
		return malformed(&parser);
	rules = mem_arena_get(arena, count * sizeof(*rules));
	if (!rules)
		return -ENOMEM;
	for (const struct s3_xml *node = root->child; node && !ret; node = node->next) {
		if (at == count)
			return malformed(&parser);
		ret = parse_rule(&parser, node, &rules[at++]);
		for (uint32_t i = 0; !ret && i + 1 < at; i++)
			if (rules[i].id.len && slice_eq(rules[i].id, rules[at - 1].id))
				ret = wrong(&parser, S3_E_INVALID_ARGUMENT,
					"Rule ID must be unique. Found same ID for more than one "
					"rule");
	}
	*ret_rules = (struct s3_lifecycle_rules){.list = rules, .count = at};
	return ret;
}

/* ---- Evaluation of rules. ---- */

static bool fits(
	const struct s3_lifecycle_rule *rule, const struct store_lifecycle_version *version)
{
	uint64_t bytes = version->meta->bytes;

	return rule->enabled && slice_starts(version->key, rule->prefix) &&
	       (!rule->has_over || bytes > rule->size_over) &&
	       (!rule->has_under || bytes < rule->size_under);
}

static bool has_tags(const struct s3_lifecycle_rule *rule, const struct s3_tags *tags)
{
	for (uint32_t i = 0; i < rule->tag_count; i++) {
		const struct s3_tag *tag = s3_tags_find(tags, rule->tags[i].key);

		if (!tag || !slice_eq(tag->value, rule->tags[i].value))
			return false;
	}
	return true;
}

/* Times in days of 24 hours are rounded up to the next midnight. */
static int64_t due_ms(uint64_t since_ns, uint32_t days, int64_t day_ms)
{
	int64_t due = (int64_t)(since_ns / NS_PER_MS) + days * day_ms;

	if (day_ms == MS_PER_DAY)
		due = (due + MS_PER_DAY - 1) / MS_PER_DAY * MS_PER_DAY;
	return due;
}

static enum s3_lifecycle_action rule_expires(const struct s3_lifecycle_rule *rule,
	const struct store_lifecycle_version *version, const struct s3_lifecycle_now *now)
{
	uint64_t mtime = version->meta->mtime_ns;
	bool due = (rule->days && due_ms(mtime, rule->days, now->day_ms) <= now->ms) ||
		   (rule->has_date && rule->date_ms <= now->ms);

	if (version->current && version->meta->delete_marker)
		return version->alone && (rule->expire_markers || (rule->days && due))
			       ? S3_LIFECYCLE_DELETE_VERSION
			       : S3_LIFECYCLE_KEEP;
	if (version->current)
		return due ? S3_LIFECYCLE_EXPIRE : S3_LIFECYCLE_KEEP;
	return rule->noncurrent_days && version->newer >= rule->noncurrent_newer &&
			       due_ms(version->noncurrent_ns, rule->noncurrent_days, now->day_ms) <=
				       now->ms
		       ? S3_LIFECYCLE_DELETE_VERSION
		       : S3_LIFECYCLE_KEEP;
}

static bool is_long_enough(const struct s3_lifecycle_rules *rules,
	const struct s3_lifecycle_rule *rule, const struct s3_lifecycle_move *move, uint64_t bytes)
{
	return rules->minimum == S3_LIFECYCLE_MOVE_ANY || rule->has_over || rule->has_under ||
	       bytes >= S3_LIFECYCLE_MOVE_BYTES_MIN ||
	       (rules->minimum == S3_LIFECYCLE_MOVE_LARGE_BUT_ARCHIVED &&
		       s3_storage_class_archives(move->class));
}

/* Of the transitions that are due, the one to the coldest class counts. *class: the coldest so far.
 */
static void rule_moves(const struct s3_lifecycle_rules *rules, const struct s3_lifecycle_rule *rule,
	const struct store_lifecycle_version *version, const struct s3_lifecycle_now *now,
	uint8_t *class)
{
	for (uint32_t i = 0; i < rule->move_count && !version->meta->delete_marker; i++) {
		const struct s3_lifecycle_move *move = &rule->moves[i];
		uint64_t since =
			version->current ? version->meta->mtime_ns : version->noncurrent_ns;
		int64_t due =
			move->has_date ? move->date_ms : due_ms(since, move->days, now->day_ms);

		if (move->noncurrent != version->current && version->newer >= move->newer &&
			due <= now->ms && s3_storage_class_is_colder(move->class, *class) &&
			is_long_enough(rules, rule, move, version->meta->bytes))
			*class = move->class;
	}
}

enum s3_lifecycle_action s3_lifecycle_decide(const struct s3_lifecycle_rules *rules,
	const struct store_lifecycle_version *version, const struct s3_tags *tags,
	const struct s3_lifecycle_now *now, uint8_t *ret_class)
{
	const uint8_t class = version->meta->checksum_flags >> S3_FLAG_CLASS_SHIFT;
	uint8_t coldest = class;

	for (uint32_t i = 0; i < rules->count; i++) {
		const struct s3_lifecycle_rule *rule = &rules->list[i];
		enum s3_lifecycle_action action;
		uint8_t target = coldest;

		if (!fits(rule, version))
			continue;
		action = rule_expires(rule, version, now);
		rule_moves(rules, rule, version, now, &target);
		if (action == S3_LIFECYCLE_KEEP && target == coldest)
			continue;
		if (rule->tag_count && !tags)
			return S3_LIFECYCLE_NEEDS_TAGS;
		if (rule->tag_count && !has_tags(rule, tags))
			continue;
		if (action != S3_LIFECYCLE_KEEP)
			return action;
		coldest = target;
	}
	if (coldest == class)
		return S3_LIFECYCLE_KEEP;
	*ret_class = coldest;
	return S3_LIFECYCLE_MOVE;
}

const struct s3_lifecycle_rule *s3_lifecycle_expiry(const struct s3_lifecycle_rules *rules,
	const struct store_lifecycle_version *version, const struct s3_tags *tags, int64_t *ret_ms)
{
	const struct s3_lifecycle_rule *first = NULL;

	for (uint32_t i = 0; i < rules->count; i++) {
		const struct s3_lifecycle_rule *rule = &rules->list[i];
		int64_t due;

		if ((!rule->days && !rule->has_date) || !fits(rule, version) ||
			!has_tags(rule, tags))
			continue;
		due = rule->has_date ? rule->date_ms
				     : due_ms(version->meta->mtime_ns, rule->days, MS_PER_DAY);
		if (first && due >= *ret_ms)
			continue;
		first = rule;
		*ret_ms = due;
	}
	return first;
}

bool s3_lifecycle_aborts(const struct s3_lifecycle_rules *rules, struct slice key,
	uint64_t began_ns, const struct s3_lifecycle_now *now)
{
	for (uint32_t i = 0; i < rules->count; i++) {
		const struct s3_lifecycle_rule *rule = &rules->list[i];

		if (rule->enabled && rule->abort_days && slice_starts(key, rule->prefix) &&
			due_ms(began_ns, rule->abort_days, now->day_ms) <= now->ms)
			return true;
	}
	return false;
}
