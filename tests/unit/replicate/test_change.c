/* tests/unit/replicate/test_change.c: changes of tags, retention and hold as requests. */
#include "../unit.h"

#include "replicate/replicate_priv.h"

static struct s3_replicate_job job;
static struct change change;

static int setup(void **state)
{
	(void)state;
	job = (struct s3_replicate_job){.target_version = SLICE("v/1")};
	return 0;
}

static void make(enum s3_replicate_kind kind)
{
	assert_int_equal(change_make(&job, kind, &change), 0);
}

static void assert_change(
	enum s3_replicate_kind kind, const char *method, const char *query, const char *xml)
{
	make(kind);
	assert_string_equal(change.method, method);
	assert_string_equal(change.query, query);
	if (xml)
		assert_string_equal(change.xml.data, xml);
	else
		assert_null(change.xml.data);
	change_free(&change);
}

static void test_tags(void **state)
{
	(void)state;
	assert_change(S3_REPLICATE_TAGS, "DELETE", "tagging=&versionId=v%2F1", NULL);
	job.tags = SLICE("a=1%262&b=");
	assert_change(S3_REPLICATE_TAGS, "PUT", "tagging=&versionId=v%2F1",
		"<Tagging><TagSet><Tag><Key>a</Key><Value>1&amp;2</Value></Tag>"
		"<Tag><Key>b</Key><Value></Value></Tag></TagSet></Tagging>");
	assert_false(change.takes_away || change.bypass);
	job.target_version = SLICE(REPLICATE_NO_VERSION);
	make(S3_REPLICATE_TAGS);
	assert_string_equal(change.query, "tagging=");
	change_free(&change);
}

static void test_holds(void **state)
{
	(void)state;
	assert_change(S3_REPLICATE_HOLD, "PUT", "legal-hold=&versionId=v%2F1",
		"<LegalHold><Status>OFF</Status></LegalHold>");
	assert_true(change.takes_away);
	job.hold = SLICE("ON");
	assert_change(S3_REPLICATE_HOLD, "PUT", "legal-hold=&versionId=v%2F1",
		"<LegalHold><Status>ON</Status></LegalHold>");
	assert_false(change.takes_away);
}

/* A target refuses a date that is past. */
static void test_retentions(void **state)
{
	(void)state;
	assert_change(S3_REPLICATE_RETENTION, "PUT", "retention=&versionId=v%2F1",
		"<Retention></Retention>");
	assert_true(change.takes_away && change.bypass);
	job.lock_mode = SLICE("COMPLIANCE");
	job.lock_until = SLICE("2030-01-01T00:00:00.000Z");
	assert_change(S3_REPLICATE_RETENTION, "PUT", "retention=&versionId=v%2F1",
		"<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>2030-01-01T00:00:00.000Z"
		"</RetainUntilDate></Retention>");
	assert_false(change.takes_away);
	job.lock_over = true;
	make(S3_REPLICATE_RETENTION);
	assert_null(change.method);
	change_free(&change);
	job.lock_mode = SLICE("GOVERNANCE");
	assert_change(S3_REPLICATE_RETENTION, "PUT", "retention=&versionId=v%2F1",
		"<Retention></Retention>");
	assert_true(change.takes_away && change.bypass);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_tags, setup),
		cmocka_unit_test_setup(test_holds, setup),
		cmocka_unit_test_setup(test_retentions, setup),
	};

	return cmocka_run_group_tests_name("change", tests, NULL, NULL);
}
