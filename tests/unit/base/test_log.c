/* base/log.c: lines of text and lines of JSON. */
#include "../unit.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/log_ring.h"

static char got[64 * 1024];
static int kept_stderr, pipe_fds[2];
static const char *request;

static const char *which_request(void)
{
	return request;
}

static void catch_begin(void)
{
	assert_int_equal(pipe2(pipe_fds, O_NONBLOCK), 0);
	kept_stderr = dup(STDERR_FILENO);
	assert_true(dup2(pipe_fds[1], STDERR_FILENO) >= 0);
}

/* The text written since catch_begin, terminated. */
static const char *catch_end(void)
{
	ssize_t len = read(pipe_fds[0], got, sizeof(got) - 1);

	dup2(kept_stderr, STDERR_FILENO);
	close(kept_stderr);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	got[len > 0 ? len : 0] = '\0';
	return got;
}

static const char *member(const json_t *json, const char *name)
{
	return json_string_value(json_object_get(json, name));
}

/* One line with one JSON object, no key twice. */
static json_t *line_parse(const char *text)
{
	json_error_t error;
	json_t *json;

	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_null(memchr(text, '\n', strlen(text) - 1));
	json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	if (!json)
		fail_msg("%s: %s", error.text, text);
	assert_non_null(member(json, "level"));
	assert_non_null(member(json, "component"));
	assert_non_null(member(json, "message"));
	return json;
}

static void time_is_rfc3339(const char *text)
{
	unsigned year, month, day, hour, minute, second, micro;
	int end = 0;

	assert_int_equal(sscanf(text, "%4u-%2u-%2uT%2u:%2u:%2u.%6uZ%n", &year, &month, &day, &hour,
				 &minute, &second, &micro, &end),
		7);
	assert_int_equal((size_t)end, strlen(text));
	assert_int_equal(strlen(text), 27);
	assert_true(year >= 2024 && month <= 12 && day <= 31 && hour < 24 && second <= 60);
}

static void test_names(void **state)
{
	enum log_format format = LOG_FORMAT_TEXT;
	enum log_level level;

	(void)state;
	assert_true(log_format_parse("json", &format));
	assert_int_equal(format, LOG_FORMAT_JSON);
	assert_true(log_format_parse("text", &format));
	assert_int_equal(format, LOG_FORMAT_TEXT);
	assert_false(log_format_parse("xml", &format));
	assert_true(log_level_parse("warn", &level));
	assert_int_equal(level, LOG_WARN);
	assert_false(log_level_parse("loud", &level));
}

static void test_text(void **state)
{
	const char *text;

	(void)state;
	log_set_request(which_request);
	catch_begin();
	log_warn("store", "%d things", 3);
	text = catch_end();
	assert_string_equal(text + 27, " warn  store: 3 things\n");
	request = "00000000000000AB";
	catch_begin();
	log_warn("store", "%d things", 3);
	text = catch_end();
	assert_string_equal(text + 27, " warn  store: [00000000000000AB] 3 things\n");
	request = "";
	catch_begin();
	log_debug("store", "below the level");
	log_info("store", "%5000s|", "");
	text = catch_end();
	assert_int_equal(strlen(text), 27 + strlen(" info  store: ") + 959 + 1);
}

/* From here on, the format does not change. */
static void test_json(void **state)
{
	const struct log_field fields[] = {
		{"path", "/b/\"k\"", 0}, {"bytes", NULL, UINT64_MAX}, {"status", NULL, 0}};
	json_t *json;

	(void)state;
	log_set_format(LOG_FORMAT_JSON, "test");
	request = NULL;
	catch_begin();
	log_error("rdma", "%s", "it failed");
	json = line_parse(catch_end());
	time_is_rfc3339(member(json, "time"));
	assert_string_equal(member(json, "level"), "error");
	assert_string_equal(member(json, "component"), "rdma");
	assert_string_equal(member(json, "message"), "it failed");
	assert_null(json_object_get(json, "request_id"));
	assert_int_equal(json_object_size(json), 4);
	json_decref(json);
	request = "00000000000000AB";
	catch_begin();
	log_line_with(LOG_INFO, "s3", (struct log_fields){fields, 2}, "done");
	json_t *raw = json_loads(catch_end(), JSON_DECODE_INT_AS_REAL, NULL);

	assert_string_equal(member(raw, "request_id"), "00000000000000AB");
	assert_string_equal(member(raw, "path"), "/b/\"k\"");
	assert_true(json_real_value(json_object_get(raw, "bytes")) > 1.8e19);
	json_decref(raw);
	request = NULL;
}

/* A message with any content gives one JSON object in UTF-8. */
static void test_json_takes_any_bytes(void **state)
{
	static const struct {
		const char *in, *out;
	} CASES[] = {
		{"a \"quote\" and a \\", "a \"quote\" and a \\"},
		{"two\nlines\r\n\ttab \x01 \x7f", "two\nlines\r\n\ttab \x01 \x7f"},
		{"Grüße, 世界, \xf0\x9f\x98\x80", "Grüße, 世界, \xf0\x9f\x98\x80"},
		{"\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd"},
		{"cut \xc3", "cut \xef\xbf\xbd"},
		{"long \xc0\xaf way", "long \xef\xbf\xbd\xef\xbf\xbd way"},
		{"half \xed\xa0\x80.", "half \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd."},
		{"", ""},
	};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(CASES); i++) {
		json_t *json;

		catch_begin();
		log_info("test", "%s", CASES[i].in);
		json = line_parse(catch_end());
		assert_string_equal(member(json, "message"), CASES[i].out);
		json_decref(json);
	}
}

static void test_json_of_every_length(void **state)
{
	static char text[6000], value[6000];
	const struct log_field fields[] = {{"first", value, 0}, {"second", value, 0},
		{"number", NULL, UINT64_MAX / 3}, {"last", "x", 0}};

	(void)state;
	for (size_t len = 0; len < sizeof(text) - 1; len += 37) {
		/* Characters that get longer: control characters, then replacements of invalid
		 * bytes; then plain ones. */
		for (uint32_t kind = 0; kind < 3; kind++) {
			memset(text, "\x01\xffx"[kind], len);
			text[len] = '\0';
			memcpy(value, text, len + 1);
			catch_begin();
			log_line_with(LOG_INFO, "test",
				(struct log_fields){fields, ARRAY_LEN(fields)}, "%s", text);
			json_decref(line_parse(catch_end()));
		}
	}
}

/* Text written to stderr becomes lines, too. */
static void test_stderr(void **state)
{
	char *second;
	json_t *json;

	(void)state;
	catch_begin();
	fprintf(stderr, "listening on %s\nnebulaio flow: no", "port 7");
	fprintf(stderr, " stream\n");
	second = strchr(catch_end(), '\n') + 1;
	json = line_parse(second);
	assert_string_equal(member(json, "message"), "nebulaio flow: no stream");
	assert_string_equal(member(json, "level"), "error");
	json_decref(json);
	*second = '\0';
	json = line_parse(got);
	assert_string_equal(member(json, "message"), "listening on port 7");
	assert_string_equal(member(json, "component"), "test");
	assert_string_equal(member(json, "level"), "info");
	json_decref(json);
}

/* ---- The ring. From here on, it is open. ---- */

static json_t *ring_read(uint64_t after, uint32_t lines_max, struct log_ring_page *page)
{
	json_error_t error;
	struct buf out;
	json_t *json;

	buf_init(&out, 2 * LOG_RING_BYTES);
	buf_put_str(&out, "[");
	log_ring_read(after, lines_max, &out, page);
	buf_put_str(&out, "]");
	assert_false(out.failed);
	json = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, &error);
	if (!json)
		fail_msg("%s: %.*s", error.text, (int)MIN(out.len, (size_t)300), out.data);
	assert_int_equal(json_array_size(json), page->count);
	buf_free(&out);
	return json;
}

static uint64_t id_of(const json_t *lines, size_t idx)
{
	return (uint64_t)json_integer_value(json_object_get(json_array_get(lines, idx), "id"));
}

static void test_ring(void **state)
{
	struct log_ring_page page;
	json_t *lines;

	(void)state;
	assert_true(log_ring_open() && log_ring_open());
	lines = ring_read(LOG_RING_LATEST, 10, &page);
	assert_true(!page.count && !page.last && !page.more && !page.lost);
	json_decref(lines);
	request = "00000000000000AB";
	catch_begin();
	log_warn("store", "a \"quote\" and \xff");
	request = NULL;
	for (int i = 2; i <= 5; i++)
		log_info("s3", "line %d", i);
	log_debug("s3", "below the level");
	catch_end();
	lines = ring_read(LOG_RING_LATEST, 10, &page);
	assert_true(page.count == 5 && page.last == 5 && !page.more && !page.lost);
	assert_int_equal(id_of(lines, 0), 1);
	assert_string_equal(member(json_array_get(lines, 0), "level"), "warn");
	assert_string_equal(member(json_array_get(lines, 0), "request_id"), "00000000000000AB");
	assert_string_equal(
		member(json_array_get(lines, 0), "message"), "a \"quote\" and \xef\xbf\xbd");
	assert_string_equal(member(json_array_get(lines, 4), "message"), "line 5");
	json_decref(lines);
	/* The oldest two, the latest two, two from an id on, none behind the last, and an id of
	 * before a restart.
	 */
	lines = ring_read(0, 2, &page);
	assert_true(page.count == 2 && page.last == 2 && page.more && id_of(lines, 0) == 1);
	json_decref(lines);
	json_decref(ring_read(LOG_RING_LATEST, 2, &page));
	assert_true(page.count == 2 && page.last == 5 && !page.more);
	lines = ring_read(1, 2, &page);
	assert_true(page.count == 2 && page.last == 3 && page.more && id_of(lines, 0) == 2);
	json_decref(lines);
	json_decref(ring_read(5, 2, &page));
	assert_true(!page.count && page.last == 5 && !page.more);
	json_decref(ring_read(100, 2, &page));
	assert_true(page.count == 2 && page.last == 5 && !page.lost);
}

/* Lines of many lengths over the ring's end, several times. */
static void test_ring_is_bounded(void **state)
{
	char object[LOG_RING_LINE_BYTES];
	struct log_ring_page page;
	json_t *lines, *before;
	size_t bytes = 0;

	(void)state;
	json_decref(ring_read(LOG_RING_LATEST, 1, &page));
	for (uint64_t id = page.last + 1; id <= 3000; id++) {
		size_t len = id % 7 ? 30 + id * 13 % 700 : LOG_RING_LINE_BYTES;

		memset(object, 'x', len);
		memcpy(object, "{\"m\":\"", 6);
		memcpy(object + len - 2, "\"}", 2);
		log_ring_put(object, len);
	}
	lines = ring_read(1, UINT32_MAX, &page);
	assert_int_equal(page.last, 3000);
	assert_int_equal(page.lost, 3000 - page.count - 1);
	assert_true(page.count > 500 && page.count < 2990);
	for (size_t i = 0; i < page.count; i++) {
		uint64_t id = id_of(lines, i);
		size_t len = id % 7 ? 30 + id * 13 % 700 : LOG_RING_LINE_BYTES;

		assert_int_equal(id, 3000 - page.count + 1 + i);
		assert_int_equal(strlen(member(json_array_get(lines, i), "m")), len - 8);
		bytes += len;
	}
	assert_true(bytes < LOG_RING_BYTES && bytes > LOG_RING_BYTES - 3 * LOG_RING_LINE_BYTES);
	json_decref(ring_read(0, 3, &page));
	assert_true(page.count == 3 && page.more && !page.lost);
	before = ring_read(LOG_RING_LATEST, 3, &page);
	assert_true(page.count == 3 && page.last == 3000 && id_of(before, 0) == 2998);
	json_decref(before);
	json_decref(lines);
}

static uint32_t lines_of(const char *text)
{
	uint32_t count = 0;

	for (; (text = strchr(text, '\n')) != NULL; text++)
		count++;
	return count;
}

static void knock(struct log_limit *limit, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		log_line_limited(limit, LOG_WARN, "test", "knock %u", i);
}

/* Strangers get the burst, then a line a second, and what is left out is counted; one call site
 * does not silence another. */
static void test_limited(void **state)
{
	static struct log_limit limit, other;
	uint32_t count;
	const char *text;

	(void)state;
	catch_begin();
	knock(&limit, 1000);
	text = catch_end();
	count = lines_of(text);
	assert_true(count >= LOG_LIMITED_BURST && count < 1000);
	assert_non_null(strstr(text, "warn  test: knock 0\n"));
	catch_begin();
	knock(&other, 1);
	assert_string_equal(strstr(catch_end(), "knock"), "knock 0\n");
	atomic_store(&limit.left_out, 900);
	atomic_fetch_sub(&limit.spent_ns, 5 * NS_PER_S);
	catch_begin();
	knock(&limit, 2);
	text = catch_end();
	assert_int_equal(lines_of(text), 3);
	assert_non_null(strstr(text, "test: 900 lines like the next were left out\n"));
	assert_non_null(strstr(text, "knock 0\n"));
	assert_non_null(strstr(text, "knock 1\n"));
}

/* Fills the pipe of a catch, which waits for its reader from here on, as stderr's do. */
static void pipe_fill(void)
{
	static const char page[4096];

	while (write(pipe_fds[1], page, sizeof(page)) > 0)
		;
	assert_int_equal(fcntl(pipe_fds[1], F_SETFL, 0), 0);
}

static void pipe_drain(void)
{
	while (read(pipe_fds[0], got, sizeof(got)) > 0)
		;
}

/* Nobody reads stderr: no line waits, the ring has all, and the next line that goes out says how
 * many are missing. */
static void test_nobody_reads(void **state)
{
	struct log_ring_page page;
	json_t *lines;
	const char *text;

	(void)state;
	catch_begin();
	pipe_fill();
	alarm(600); /* ends the program if a line waits */
	log_warn("test", "lost 1");
	log_warn("test", "lost 2");
	alarm(0);
	pipe_drain();
	log_warn("test", "seen 1");
	log_warn("test", "seen 2");
	text = catch_end();
	assert_int_equal(lines_of(text), 3);
	assert_non_null(strstr(text, "2 lines were left out here"));
	assert_true(strstr(text, "left out") < strstr(text, "seen 1"));
	assert_non_null(strstr(text, "seen 2"));
	lines = ring_read(LOG_RING_LATEST, 5, &page);
	assert_string_equal(member(json_array_get(lines, 0), "message"), "lost 1");
	assert_string_equal(member(json_array_get(lines, 4), "message"), "seen 2");
	json_decref(lines);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_limited),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_takes_any_bytes),
		cmocka_unit_test(test_json_of_every_length),
		cmocka_unit_test(test_stderr),
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_nobody_reads),
		cmocka_unit_test(test_ring_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
