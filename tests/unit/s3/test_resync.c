/* Covers replicate/job.c and replicate/resync.c: what a row asks for while the key goes on, and
 * walks over buckets that were there before their rules. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "fake.h"
#include "s3/replicate/replicate.h"

#define TARGET                                                                            \
	"{\"endpoint\":\"http://127.0.0.1:9\",\"bucket\":\"copy\",\"access_key\":\"key\"" \
	",\"secret_key\":\"secret\"}"
#define VERSIONED                                                            \
	"<VersioningConfiguration><Status>Enabled</Status></VersioningConfi" \
	"guration>"
#define EXISTING                                                                         \
	"<ReplicationConfiguration><Role>r</Role><Rule><ID>1</ID><Priority>1</Priority>" \
	"<Filter/><Status>Enabled</Status><DeleteMarkerReplication><Status>Enabled"      \
	"</Status></DeleteMarkerReplication><ExistingObjectReplication><Status>Enabled"  \
	"</Status></ExistingObjectReplication><Destination><Bucket>arn:aws:s3:::t"       \
	"</Bucket></Destination></Rule></ReplicationConfiguration>"
#define RULES                                                                            \
	"<ReplicationConfiguration><Role>r</Role><Rule><ID>1</ID><Priority>1</Priority>" \
	"<Filter/><Status>Enabled</Status><DeleteMarkerReplication><Status>Enabled"      \
	"</Status></DeleteMarkerReplication><Destination><Bucket>arn:aws:s3:::t"         \
	"</Bucket></Destination></Rule></ReplicationConfiguration>"

static char version[33]; /* that the last request made */

static void root(
	const char *method, const char *path, const char *query, const char *body, uint32_t status)
{
	struct fake_call own;

	fake_call_init(&own, method, path, query);
	if (body)
		fake_call_body(&own, slice_str(body));
	fake_call_run(fake_s3, &own);
	assert_int_equal(own.reply.status, status);
	slice_copy_str(fake_reply_header(&own, "x-amz-version-id"), version, sizeof(version));
	fake_call_free(&own);
}

static void bucket_make(const char *name)
{
	char path[16];

	snprintf(path, sizeof(path), "/%s", name);
	root("PUT", path, "", NULL, 200);
	root("PUT", path, "versioning", VERSIONED, 200);
}

static void target(enum s3_method method, const char *text, uint32_t status)
{
	const struct s3_request request = {.core = &fake_core, .method = method};
	const struct slice parts[] = {SLICE("targets"), SLICE("t")};
	struct s3_replicate_answer answer = {.json = NULL};
	struct s3_call call = {.s3 = fake_s3, .request = &request};
	json_t *body = json_loads(text, 0, NULL);

	s3_replicate_admin(&call, parts, 2, body, &answer);
	assert_int_equal(answer.status, status);
	json_decref(answer.json);
	json_decref(body);
}

static int open_all(void **state)
{
	int ret = fake_open(state);

	target(S3_PUT, TARGET, 200);
	bucket_make("bkt");
	return ret;
}

/* ---- Rows. ---- */

static struct s3_replicate_row row_of(enum s3_replicate_kind kind, const char *id)
{
	return (struct s3_replicate_row){.kind = kind,
		.time_ns = clock_real_ns(),
		.target = SLICE("t"),
		.bucket = SLICE("bkt"),
		.key = SLICE("k"),
		.version_id = slice_str(id)};
}

static void sent(const char *id)
{
	const struct s3_replicate_row row = row_of(S3_REPLICATE_PUT, id);

	assert_int_equal(
		s3_replicate_note(fake_s3, &row, S3_REPLICATE_END_SENT, SLICE("there")), 0);
}

static void assert_marker(const char *id, int expected)
{
	static struct s3_replicate_job job;
	const struct s3_replicate_row row = row_of(S3_REPLICATE_MARKER, id);
	int ret = s3_replicate_open(fake_s3, &fake_core, &row, &job);

	assert_int_equal(ret, expected);
	if (!ret)
		s3_replicate_close(&job);
}

/* A marker that is below a version which the target has is not sent, again or late: it would hide
 * that version there. */
static void test_past_markers_are_not_sent(void **state)
{
	char first[33], marker[33], last[33];

	(void)state;
	root("PUT", "/bkt", "replication", RULES, 200);
	root("PUT", "/bkt/k", "", "1", 200);
	memcpy(first, version, sizeof(first));
	sent(first);
	root("DELETE", "/bkt/k", "", NULL, 204);
	memcpy(marker, version, sizeof(marker));
	assert_marker(marker, 0);
	root("PUT", "/bkt/k", "", "2", 200);
	root("PUT", "/bkt/k2", "", "another key", 200);
	/* A version that is not there yet is sent behind it. */
	root("PUT", "/bkt/k", "", "3", 200);
	memcpy(last, version, sizeof(last));
	assert_marker(marker, 0);
	sent(last);
	assert_marker(marker, -EALREADY);
	/* The newest marker is sent, and those below a version as before. */
	root("DELETE", "/bkt/k", "", NULL, 204);
	assert_marker(version, 0);
	assert_marker(marker, -EALREADY);
}

/* A version that came from the other side is there. */
static void test_markers_below_replicas(void **state)
{
	struct fake_call call;
	char marker[33];

	(void)state;
	root("PUT", "/bkt", "replication", RULES, 200);
	root("DELETE", "/bkt/k", "", NULL, 204);
	memcpy(marker, version, sizeof(marker));
	fake_call_init(&call, "PUT", "/bkt/k", "");
	fake_call_header(&call, "x-nebulaio-replica", "0123");
	fake_call_body(&call, SLICE("theirs"));
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 200);
	fake_call_free(&call);
	assert_marker(marker, -EALREADY);
}

static void version_delete(const char *id)
{
	char query[64];

	snprintf(query, sizeof(query), "versionId=%s", id);
	root("DELETE", "/bkt/k", query, NULL, 204);
}

/* Lifecycle rules take out a marker that is alone. The target still has the object. */
static void test_markers_that_are_gone(void **state)
{
	static struct s3_replicate_job job;
	struct s3_replicate_row row;
	char first[33], marker[33];

	(void)state;
	root("PUT", "/bkt", "replication", RULES, 200);
	root("PUT", "/bkt/k", "", "1", 200);
	memcpy(first, version, sizeof(first));
	sent(first);
	root("DELETE", "/bkt/k", "", NULL, 204);
	memcpy(marker, version, sizeof(marker));
	version_delete(marker);
	/* The version below is the object again. */
	assert_marker(marker, -ENOENT);
	version_delete(first);
	root("PUT", "/bkt/k2", "", "another key", 200);
	assert_marker(marker, 0);
	row = row_of(S3_REPLICATE_PUT, first);
	assert_int_equal(s3_replicate_open(fake_s3, &fake_core, &row, &job), -ENOENT);
	/* A row of an earlier bucket of that name says nothing about this one. */
	row = row_of(S3_REPLICATE_MARKER, marker);
	row.time_ns = 1;
	assert_int_equal(s3_replicate_open(fake_s3, &fake_core, &row, &job), -ENOENT);
	root("DELETE", "/bkt", "replication", NULL, 204);
	assert_marker(marker, -ECANCELED);
}

/* The root has the bucket. */
static void put_by_anybody(const char *acl)
{
	struct fake_call call;

	fake_call_init(&call, "PUT", "/bkt/k", "");
	call.request.session = NULL;
	fake_call_header(&call, "x-amz-acl", acl);
	fake_call_body(&call, SLICE("theirs"));
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 200);
	slice_copy_str(fake_reply_header(&call, "x-amz-version-id"), version, sizeof(version));
	fake_call_free(&call);
}

static void assert_sends(int expected)
{
	static struct s3_replicate_job job;
	const struct s3_replicate_row row = row_of(S3_REPLICATE_PUT, version);
	int ret = s3_replicate_open(fake_s3, &fake_core, &row, &job);

	assert_int_equal(ret, expected);
	if (ret)
		assert_non_null(strstr(job.why, "access control list"));
	else
		s3_replicate_close(&job);
}

#define ENFORCED                                                        \
	"<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced" \
	"</ObjectOwnership></Rule></OwnershipControls>"

/* Replication gives the bucket's owner no object of others that it could not read itself. */
static void test_objects_of_others(void **state)
{
	struct fake_call call;
	char private[33];

	(void)state;
	fake_call_init(&call, "PUT", "/bkt", "acl");
	fake_call_header(&call, "x-amz-acl", "public-read-write");
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 200);
	fake_call_free(&call);
	root("PUT", "/bkt", "replication", RULES, 200);
	put_by_anybody("private");
	memcpy(private, version, sizeof(private));
	assert_sends(-EOPNOTSUPP);
	/* The list, too, is a part of the right to replicate. */
	put_by_anybody("bucket-owner-read");
	assert_sends(-EOPNOTSUPP);
	put_by_anybody("bucket-owner-full-control");
	assert_sends(0);
	fake_call_init(&call, "PUT", "/bkt", "acl");
	fake_call_header(&call, "x-amz-acl", "private");
	fake_call_run(fake_s3, &call);
	fake_call_free(&call);
	root("PUT", "/bkt", "ownershipControls", ENFORCED, 200);
	memcpy(version, private, sizeof(version));
	assert_sends(0);
}

/* ---- Walks. ---- */

static const char *status_of(const char *path)
{
	static char status[16];
	struct fake_call call;

	fake_call_init(&call, "HEAD", path, "");
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 200);
	slice_copy_str(
		fake_reply_header(&call, "x-amz-replication-status"), status, sizeof(status));
	fake_call_free(&call);
	return status;
}

static uint32_t pokes;

static void poked(void *arg)
{
	(void)arg;
	pokes++;
}

/* Buckets with objects that are older than their rules. */
static void resyncs_ask(void)
{
	bucket_make("bkt2");
	root("PUT", "/bkt/a", "", "1", 200);
	root("PUT", "/bkt/" FAKE_BAD_KEY, "", "2", 200);
	root("PUT", "/bkt/z", "", "3", 200);
	root("PUT", "/bkt2/k", "", "4", 200);
	root("PUT", "/bkt", "replication", RULES, 200);
	root("PUT", "/bkt2", "replication", RULES, 200);
	for (int i = 1; i <= 2; i++)
		assert_int_equal(s3_replicate_resync_ask(fake_s3, &fake_core,
					 i == 1 ? SLICE("bkt") : SLICE("bkt2"),
					 S3_REPLICATE_RESYNC_NEW, SLICE_NONE),
			0);
	s3_replicate_on_work(fake_s3, poked, NULL);
	pokes = 0;
}

static void step(const char *after, const char *bucket, int expected)
{
	static struct s3_replicate_resync resync;
	bool more;

	assert_int_equal(
		s3_replicate_resync_next(fake_s3, &fake_core, slice_str(after), &resync), 0);
	assert_string_equal(resync.bucket, bucket);
	assert_int_equal(s3_replicate_resync_step(fake_s3, &fake_core, &resync, &more), expected);
	assert_false(more);
}

static void assert_none_waits(void)
{
	static struct s3_replicate_resync resync;

	assert_int_equal(
		s3_replicate_resync_next(fake_s3, &fake_core, SLICE_NONE, &resync), -ENOENT);
}

/* A version that cannot be marked does not hold up the others. */
static void test_bad_versions_are_passed(void **state)
{
	(void)state;
	resyncs_ask();
	fake_edit_error = -EINVAL;
	step("", "bkt", 0);
	fake_edit_error = 0;
	assert_int_equal(pokes, 1);
	assert_string_equal(status_of("/bkt/a"), "PENDING");
	assert_string_equal(status_of("/bkt/" FAKE_BAD_KEY), "");
	assert_string_equal(status_of("/bkt/z"), "PENDING");
	step("bkt", "bkt2", 0);
	assert_none_waits();
}

/* A walk that fails is not asked for again at once, others go first, and it goes on where it was.
 */
static void test_walks_that_fail(void **state)
{
	static struct s3_replicate_resync resync;

	(void)state;
	resyncs_ask();
	fake_edit_error = -ENOSPC;
	step("", "bkt", -ENOSPC);
	assert_int_equal(pokes, 0);
	assert_string_equal(status_of("/bkt/a"), "PENDING");
	step("bkt", "bkt2", 0);
	assert_string_equal(status_of("/bkt2/k"), "PENDING");
	assert_int_equal(s3_replicate_resync_next(fake_s3, &fake_core, SLICE("bkt"), &resync), 0);
	assert_string_equal(resync.bucket, "bkt");
	assert_true(slice_eq(slice_of(resync.after, resync.after_len), SLICE("a")));
	fake_edit_error = 0;
	step("bkt", "bkt", 0);
	assert_string_equal(status_of("/bkt/z"), "PENDING");
	assert_none_waits();
}

/* ---- Several at a time. ---- */

static void assert_waits(const char *after, const char *name)
{
	static struct s3_replicate_resync resync;

	assert_int_equal(
		s3_replicate_resync_next(fake_s3, &fake_core, slice_str(after), &resync), 0);
	assert_string_equal(resync.name, name);
	assert_string_equal(resync.bucket, "bkt");
}

static void ask(enum s3_replicate_resync_kind kind)
{
	assert_int_equal(
		s3_replicate_resync_ask(fake_s3, &fake_core, SLICE("bkt"), kind, SLICE_NONE), 0);
}

/* A request for another kind, or new rules, do not take the place of a walk. */
static void test_kinds_side_by_side(void **state)
{
	(void)state;
	root("PUT", "/bkt/a", "", "1", 200);
	root("PUT", "/bkt", "replication", RULES, 200);
	assert_none_waits();
	ask(S3_REPLICATE_RESYNC_ALL);
	root("PUT", "/bkt", "replication", EXISTING, 200);
	assert_waits("", "bkt/A");
	assert_waits("bkt/A", "bkt/E");
	ask(S3_REPLICATE_RESYNC_NEW);
	assert_waits("", "bkt");
	assert_waits("bkt", "bkt/A");
	assert_waits("bkt/E", "bkt");
	step("", "bkt", 0);
	assert_waits("", "bkt/A");
	step("", "bkt", 0);
	assert_waits("", "bkt/E");
	step("", "bkt", 0);
	assert_none_waits();
	assert_string_equal(status_of("/bkt/a"), "PENDING");
	/* The same rules once more ask for nothing. */
	root("PUT", "/bkt", "replication", EXISTING, 200);
	assert_none_waits();
}

/* ---- A key with very many versions. ---- */

#define VERSIONS 2005u

static char versions[VERSIONS][33];

static const char *status_of_version(uint32_t idx)
{
	static char status[16];
	char query[64];
	struct fake_call call;

	snprintf(query, sizeof(query), "versionId=%s", versions[idx]);
	fake_call_init(&call, "HEAD", "/bkt/k", query);
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 200);
	slice_copy_str(
		fake_reply_header(&call, "x-amz-replication-status"), status, sizeof(status));
	fake_call_free(&call);
	return status;
}

static bool step_once(void)
{
	static struct s3_replicate_resync resync;
	bool more;

	assert_int_equal(s3_replicate_resync_next(fake_s3, &fake_core, SLICE_NONE, &resync), 0);
	assert_int_equal(s3_replicate_resync_step(fake_s3, &fake_core, &resync, &more), 0);
	return more;
}

/* All of them, in steps, the oldest first: the target's newest is the last one that it gets. */
static void test_many_versions_of_a_key(void **state)
{
	static struct s3_replicate_resync resync;
	bool more;

	(void)state;
	root("PUT", "/bkt/a", "", "1", 200);
	for (uint32_t i = 0; i < VERSIONS; i++) {
		root("PUT", "/bkt/k", "", "1", 200);
		memcpy(versions[i], version, sizeof(version));
	}
	root("PUT", "/bkt/k/z", "", "1", 200);
	root("PUT", "/bkt", "replication", RULES, 200);
	ask(S3_REPLICATE_RESYNC_NEW);
	assert_true(step_once());
	assert_string_equal(status_of("/bkt/a"), "PENDING");
	assert_string_equal(status_of_version(0), "");
	assert_true(step_once());
	assert_string_equal(status_of_version(0), "PENDING");
	assert_string_equal(status_of_version(999), "PENDING");
	assert_string_equal(status_of_version(1000), "");
	/* The version that the walk came to may be gone. A step that fails is repeated. */
	version_delete(versions[999]);
	fake_put_error = -ENOSPC;
	assert_int_equal(s3_replicate_resync_next(fake_s3, &fake_core, SLICE_NONE, &resync), 0);
	assert_string_equal(resync.version, versions[999]);
	assert_int_equal(s3_replicate_resync_step(fake_s3, &fake_core, &resync, &more), -ENOSPC);
	fake_put_error = 0;
	assert_true(step_once());
	assert_string_equal(status_of_version(1000), "PENDING");
	assert_string_equal(status_of_version(1999), "PENDING");
	assert_string_equal(status_of_version(2000), "");
	assert_true(step_once());
	assert_string_equal(status_of_version(VERSIONS - 1), "PENDING");
	assert_string_equal(status_of("/bkt/k/z"), "");
	assert_false(step_once());
	assert_string_equal(status_of("/bkt/k/z"), "PENDING");
	assert_none_waits();
}

/* ---- Changes that failed. ---- */

#define TAGS "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"

static void resync(enum s3_replicate_resync_kind kind)
{
	ask(kind);
	step("", "bkt", 0);
	assert_none_waits();
}

static void ended(enum s3_replicate_kind kind, const char *id, enum s3_replicate_end end)
{
	const struct s3_replicate_row row = row_of(kind, id);

	assert_int_equal(s3_replicate_note(fake_s3, &row, end, SLICE_NONE), 0);
}

/* The object is there: the next resync sends its tags and locks as they are. */
static void test_failed_changes_are_sent_by_resyncs(void **state)
{
	char id[33];

	(void)state;
	root("PUT", "/bkt", "replication", RULES, 200);
	root("PUT", "/bkt/k", "", "1", 200);
	memcpy(id, version, sizeof(id));
	sent(id);
	target(S3_DELETE, "{\"force\":true}", 204);
	root("PUT", "/bkt/k", "tagging", TAGS, 200);
	assert_string_equal(status_of("/bkt/k"), "FAILED");
	target(S3_PUT, TARGET, 200);
	resync(S3_REPLICATE_RESYNC_NEW);
	assert_int_equal(fake_edit_kind, S3_REPLICATE_CHANGES);
	assert_string_equal(status_of("/bkt/k"), "PENDING");
	ended(S3_REPLICATE_CHANGES, id, S3_REPLICATE_END_SENT);
	assert_string_equal(status_of("/bkt/k"), "COMPLETED");
	/* An object that lacks nothing is left as it is; `all` sends it whole. */
	fake_edit_kind = 0;
	resync(S3_REPLICATE_RESYNC_NEW);
	assert_int_equal(fake_edit_kind, 0);
	assert_string_equal(status_of("/bkt/k"), "COMPLETED");
	ended(S3_REPLICATE_TAGS, id, S3_REPLICATE_END_FAILED);
	resync(S3_REPLICATE_RESYNC_ALL);
	assert_int_equal(fake_edit_kind, S3_REPLICATE_PUT);
}

/* A change that was sent says nothing about an earlier one. */
static void test_changes_do_not_hide_failed_ones(void **state)
{
	char id[33];

	(void)state;
	root("PUT", "/bkt", "replication", RULES, 200);
	root("PUT", "/bkt/k", "", "1", 200);
	memcpy(id, version, sizeof(id));
	sent(id);
	root("PUT", "/bkt/k", "tagging", TAGS, 200);
	assert_int_equal(fake_edit_kind, S3_REPLICATE_TAGS);
	ended(S3_REPLICATE_TAGS, id, S3_REPLICATE_END_FAILED);
	ended(S3_REPLICATE_HOLD, id, S3_REPLICATE_END_SENT);
	assert_string_equal(status_of("/bkt/k"), "FAILED");
	root("DELETE", "/bkt/k", "tagging", NULL, 204);
	assert_int_equal(fake_edit_kind, S3_REPLICATE_CHANGES);
	assert_string_equal(status_of("/bkt/k"), "PENDING");
	ended(S3_REPLICATE_CHANGES, id, S3_REPLICATE_END_SENT);
	assert_string_equal(status_of("/bkt/k"), "COMPLETED");
	root("PUT", "/bkt/k", "tagging", TAGS, 200);
	assert_int_equal(fake_edit_kind, S3_REPLICATE_TAGS);
}

/* Retentions can only begin in the future. */
static int retention_past(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct slice headers = slice_of(current->headers, current->headers_len);
	struct mem_arena *arena = arg;
	int ret = s3_meta_set_hidden(
		headers, SLICE(S3_LOCK_MODE_HEADER), SLICE("GOVERNANCE"), arena, &headers);

	return ret ? ret
		   : s3_meta_set_hidden(headers, SLICE(S3_LOCK_UNTIL_HEADER),
			     SLICE("2020-01-01T00:00:00.000Z"), arena, ret_headers);
}

static void test_retentions_that_are_over(void **state)
{
	static struct s3_replicate_job job;
	struct store_name name = {.bucket = SLICE("bkt"), .key = SLICE("k")};
	struct s3_replicate_row row;
	struct mem_arena arena;

	(void)state;
	root("PUT", "/bkt", "replication", RULES, 200);
	root("PUT", "/bkt/k", "", "1", 200);
	sent(version);
	name.version_id = slice_str(version);
	row = row_of(S3_REPLICATE_RETENTION, version);
	assert_int_equal(s3_replicate_open(fake_s3, &fake_core, &row, &job), 0);
	assert_false(job.lock_over || job.lockable || job.lock_mode.len);
	s3_replicate_close(&job);
	mem_arena_init(&arena);
	assert_int_equal(store_edit(fake_store, &name, retention_past, &arena, NULL), 0);
	mem_arena_free(&arena);
	assert_int_equal(s3_replicate_open(fake_s3, &fake_core, &row, &job), 0);
	assert_true(job.lock_over && slice_eq(job.lock_mode, SLICE("GOVERNANCE")));
	for (uint32_t i = 0; i < job.header_count; i++)
		assert_false(slice_starts(job.headers[i].name, SLICE("x-amz-object-lock")));
	s3_replicate_close(&job);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_past_markers_are_not_sent, open_all, fake_close),
		cmocka_unit_test_setup_teardown(test_markers_below_replicas, open_all, fake_close),
		cmocka_unit_test_setup_teardown(test_markers_that_are_gone, open_all, fake_close),
		cmocka_unit_test_setup_teardown(test_objects_of_others, open_all, fake_close),
		cmocka_unit_test_setup_teardown(test_bad_versions_are_passed, open_all, fake_close),
		cmocka_unit_test_setup_teardown(test_walks_that_fail, open_all, fake_close),
		cmocka_unit_test_setup_teardown(test_kinds_side_by_side, open_all, fake_close),
		cmocka_unit_test_setup_teardown(test_many_versions_of_a_key, open_all, fake_close),
		cmocka_unit_test_setup_teardown(
			test_failed_changes_are_sent_by_resyncs, open_all, fake_close),
		cmocka_unit_test_setup_teardown(
			test_changes_do_not_hide_failed_ones, open_all, fake_close),
		cmocka_unit_test_setup_teardown(
			test_retentions_that_are_over, open_all, fake_close),
	};

	return cmocka_run_group_tests_name("resync", tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
