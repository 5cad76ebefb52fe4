/* s3/replicate/ledger.c: what waits, was sent and failed, by the rule that an object fell under
 * when it was written: of rules with metrics. Bounded: a rule that finds no place is counted by its
 * target alone. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "s3/core/call.h"
#include "s3/replicate/replicate.h"

DEFINE_COUNTER_FULL(ledger_full, "replication_rules");

struct s3_replicate_ledger {
	pthread_mutex_t lock;
	struct s3_replicate_rule_told rules[S3_REPLICATE_RULES_MAX];
	uint32_t count;
};

int s3_replicate_ledger_open(struct s3_replicate_ledger **ret_ledger)
{
	struct s3_replicate_ledger *ledger = calloc(1, sizeof(*ledger));

	if (!ledger)
		return -ENOMEM;
	pthread_mutex_init(&ledger->lock, NULL);
	*ret_ledger = ledger;
	return 0;
}

void s3_replicate_ledger_close(struct s3_replicate_ledger *ledger)
{
	if (!ledger)
		return;
	pthread_mutex_destroy(&ledger->lock);
	free(ledger);
}

static bool is_of(const struct s3_replicate_rule_told *rule, const struct s3_replicate_row *row)
{
	return slice_eq(row->bucket, slice_str(rule->bucket)) &&
	       slice_eq(row->target, slice_str(rule->target)) &&
	       slice_eq(row->rule, slice_str(rule->rule));
}

/* A free place, or, for a row that is left, that of a rule that nothing waits for; NULL: none. A
 * row that ends came when there was none. */
static struct s3_replicate_rule_told *place_find(struct s3_replicate_ledger *ledger, bool left)
{
	if (ledger->count < S3_REPLICATE_RULES_MAX)
		return &ledger->rules[ledger->count++];
	for (uint32_t i = 0; i < ledger->count && left; i++)
		if (!ledger->rules[i].pending)
			return &ledger->rules[i];
	return NULL;
}

static struct s3_replicate_rule_told *rule_find(
	struct s3_replicate_ledger *ledger, const struct s3_replicate_row *row, bool left)
{
	struct s3_replicate_rule_told *rule;

	for (uint32_t i = 0; i < ledger->count; i++)
		if (is_of(&ledger->rules[i], row))
			return &ledger->rules[i];
	rule = place_find(ledger, left);
	if (!rule) {
		counter_add(&ledger_full, left);
		return NULL;
	}
	*rule = (struct s3_replicate_rule_told){.pending = 0};
	slice_copy_str(row->bucket, rule->bucket, sizeof(rule->bucket));
	slice_copy_str(row->target, rule->target, sizeof(rule->target));
	slice_copy_str(row->rule, rule->rule, sizeof(rule->rule));
	return rule;
}

enum what { WHAT_LEFT, WHAT_ENDED, WHAT_SENT, WHAT_FAILED, WHAT_MISSED };

static void note(struct s3 *s3, const struct s3_replicate_row *row, enum what what)
{
	struct s3_replicate_ledger *ledger = s3_replicate_ledger_of(s3);
	struct s3_replicate_rule_told *rule;
	uint64_t now_ns = clock_real_ns();

	if (!row->rule.len)
		return;
	pthread_mutex_lock(&ledger->lock);
	rule = rule_find(ledger, row, what == WHAT_LEFT);
	/* A row may end before the commit that left it has told so: below 0 for that moment. */
	if (rule && what == WHAT_LEFT) {
		rule->pending++;
		rule->pending_bytes += row->bytes;
	} else if (rule && what == WHAT_ENDED) {
		rule->pending--;
		rule->pending_bytes -= row->bytes;
	} else if (rule && what == WHAT_SENT) {
		rule->sent++;
		rule->sent_ns += now_ns - MIN(now_ns, row->time_ns);
	} else if (rule) {
		*(what == WHAT_FAILED ? &rule->failed : &rule->missed) += 1;
	}
	pthread_mutex_unlock(&ledger->lock);
}

void s3_replicate_pend(struct s3 *s3, const struct s3_replicate_row *row, int direction)
{
	s3_replicate_add(s3, row->target, S3_REPLICATE_PENDING, direction);
	s3_replicate_add(s3, row->target, S3_REPLICATE_PENDING_BYTES,
		direction < 0 ? -(int64_t)row->bytes : (int64_t)row->bytes);
	note(s3, row, direction < 0 ? WHAT_ENDED : WHAT_LEFT);
}

void s3_replicate_count_end(struct s3 *s3, const struct s3_replicate_row *row, bool sent)
{
	s3_replicate_add(s3, row->target, sent ? S3_REPLICATE_SENT : S3_REPLICATE_FAILED, 1);
	if (sent)
		s3_replicate_add(s3, row->target, S3_REPLICATE_SENT_BYTES, (int64_t)row->bytes);
	note(s3, row, sent ? WHAT_SENT : WHAT_FAILED);
}

void s3_replicate_count_missed(struct s3 *s3, const struct s3_replicate_row *row)
{
	note(s3, row, WHAT_MISSED);
}

uint32_t s3_replicate_rules(
	struct s3 *s3, struct s3_replicate_rule_told ret_list[S3_REPLICATE_RULES_MAX])
{
	struct s3_replicate_ledger *ledger = s3_replicate_ledger_of(s3);
	uint32_t count;

	pthread_mutex_lock(&ledger->lock);
	count = ledger->count;
	memcpy(ret_list, ledger->rules, count * sizeof(*ret_list));
	for (uint32_t i = 0; i < count; i++)
		if ((int64_t)ret_list[i].pending < 0)
			ret_list[i].pending = ret_list[i].pending_bytes = 0;
	pthread_mutex_unlock(&ledger->lock);
	return count;
}
