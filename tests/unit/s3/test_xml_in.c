/* Covers s3/core/xml_in.c: the accepted XML, and its limits. */
#include "../unit.h"

#include <errno.h>
#include <stdlib.h>

#include "s3/core/xml_in.h"

static int parse(const char *text, struct mem_arena *arena, struct s3_xml **ret_root)
{
	mem_arena_init(arena);
	return s3_xml_parse(slice_str(text), arena, ret_root);
}

static void test_tree(void **state)
{
	struct mem_arena arena;
	struct s3_xml *root;

	(void)state;
	assert_int_equal(parse("<?xml version=\"1.0\"?>\n<Delete xmlns=\"http://x/\">\n <Object>"
			       "<Key>a&amp;b&#x41;\n c</Key></Object>"
			       "<Object><Key><![CDATA[<d>]]></Key><s3:Extra/></Object>\n</Delete>",
				 &arena, &root),
		0);
	assert_true(slice_eq(root->name, SLICE("Delete")));
	assert_true(slice_eq(s3_xml_text(root->child, "Key"), SLICE("a&bA\n c")));
	assert_true(slice_eq(s3_xml_text(root->child->next, "Key"), SLICE("<d>")));
	assert_non_null(s3_xml_child(root->child->next, "Extra"));
	assert_null(s3_xml_child(root, "Key"));
	assert_null(root->child->next->next);
	mem_arena_free(&arena);
}

static void test_refused(void **state)
{
	static const char *const bad[] = {"", "x", "<a>", "<a></b>", "<a/><b/>", "<a>\x01</a>",
		"<a>&unknown;</a>", "<!DOCTYPE a><a/>",
		"<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
		"<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>", "<a>\xff</a>"};
	struct mem_arena arena;
	struct s3_xml *root;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parse(bad[i], &arena, &root), -EINVAL);
		mem_arena_free(&arena);
	}
}

static void test_bounds(void **state)
{
	struct mem_arena arena;
	struct s3_xml *root;
	struct buf text;

	(void)state;
	buf_init(&text, 16 * MIB);
	for (unsigned i = 0; i < S3_XML_DEPTH_MAX; i++)
		buf_put_str(&text, "<a>");
	for (unsigned i = 0; i < S3_XML_DEPTH_MAX; i++)
		buf_put_str(&text, "</a>");
	mem_arena_init(&arena);
	assert_int_equal(s3_xml_parse(buf_slice(&text), &arena, &root), 0);
	buf_reset(&text);
	for (unsigned i = 0; i <= S3_XML_DEPTH_MAX; i++)
		buf_put_str(&text, "<a>");
	assert_int_equal(s3_xml_parse(buf_slice(&text), &arena, &root), -EINVAL);
	buf_reset(&text);
	buf_put_str(&text, "<a>");
	for (unsigned i = 0; i < S3_XML_NODES_MAX; i++)
		buf_put_str(&text, "<b/>");
	buf_put_str(&text, "</a>");
	assert_int_equal(s3_xml_parse(buf_slice(&text), &arena, &root), -EINVAL);
	buf_reset(&text);
	buf_put_str(&text, "<a>");
	while (text.len <= LIMIT_XML_BODY_BYTES_MAX)
		buf_put_str(&text, "                                ");
	buf_put_str(&text, "</a>");
	assert_int_equal(s3_xml_parse(buf_slice(&text), &arena, &root), -EINVAL);
	mem_arena_free(&arena);
	buf_free(&text);
}

/* A text in very many pieces is joined only once. */
static void test_long_text(void **state)
{
	struct mem_arena arena;
	struct s3_xml *root;
	struct buf text;

	(void)state;
	buf_init(&text, 16 * MIB);
	buf_put_str(&text, "<a>");
	for (int i = 0; i < 100000; i++)
		buf_put_str(&text, "&lt;x");
	buf_put_str(&text, "</a>");
	mem_arena_init(&arena);
	assert_int_equal(s3_xml_parse(buf_slice(&text), &arena, &root), 0);
	assert_int_equal(root->text.len, 200000);
	for (size_t i = 0; i < root->text.len; i += 2)
		assert_memory_equal(root->text.data + i, "<x", 2);
	mem_arena_free(&arena);
	buf_free(&text);
}

static void test_arena(void **state)
{
	struct mem_arena arena;
	struct slice copy;
	char *a, *b;

	(void)state;
	mem_arena_init(&arena);
	a = mem_arena_get(&arena, 1);
	b = mem_arena_get(&arena, 100000);
	assert_int_equal((uintptr_t)a % 16, 0);
	assert_int_equal((uintptr_t)b % 16, 0);
	memset(b, 1, 100000);
	copy = mem_arena_copy(&arena, SLICE("text"));
	assert_string_equal(copy.data, "text");
	copy = mem_arena_copy(&arena, SLICE_NONE);
	assert_int_equal(copy.len, 0);
	assert_string_equal(copy.data, "");
	mem_arena_free(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_long_text),
		cmocka_unit_test(test_arena),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
