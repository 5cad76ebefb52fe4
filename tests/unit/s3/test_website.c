/* Covers op/website.c, bucket/website.c and bucket/small.c: buckets as websites, requester pays. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "fake.h"

static struct fake_call call;

static void begin(const char *method, const char *path, const char *query)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
}

static uint32_t put(const char *path, const char *query, const char *body)
{
	begin("PUT", path, query);
	fake_call_body(&call, slice_str(body));
	fake_call_run(fake_s3, &call);
	return call.reply.status;
}

/* A browser's request. */
static uint32_t page(const char *method, const char *path)
{
	begin(method, path, "");
	call.request.session = NULL;
	fake_call_header(&call, "Host", "bkt.web.example.com:9000");
	fake_call_run(fake_s3, &call);
	return call.reply.status;
}

static void open_with(bool anonymous_read)
{
	const struct s3_opts opts = {
		.website_domain = "web.example.com", .anonymous_read = anonymous_read};

	assert_int_equal(fake_open_with(&opts), 0);
	put("/bkt", "", "");
}

static int open_public(void **state)
{
	(void)state;
	open_with(true);
	return 0;
}

static int open_private(void **state)
{
	(void)state;
	open_with(false);
	return 0;
}

static int close_all(void **state)
{
	fake_call_free(&call);
	return fake_close(state);
}

#define SITE(inside)  "<WebsiteConfiguration>" inside "</WebsiteConfiguration>"
#define INDEX	      "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>"
#define ERROR_PAGE    "<ErrorDocument><Key>error.html</Key></ErrorDocument>"
#define RULES(inside) "<RoutingRules>" inside "</RoutingRules>"
#define RULE(condition, redirect)                                              \
	"<RoutingRule><Condition>" condition "</Condition><Redirect>" redirect \
	"</Redirect></RoutingRule>"

static void expect_location(const char *wanted)
{
	struct slice got = fake_reply_header(&call, "location");

	if (!slice_eq(got, slice_str(wanted)))
		fail_msg("Location is %.*s, not %s", SLICE_FMT(got), wanted);
	assert_int_equal(call.reply_body.len, 0);
}

static void test_pages(void **state)
{
	(void)state;
	assert_int_equal(page("GET", "/"), 404);
	assert_true(fake_reply_has(&call, "<li>Code: NoSuchWebsiteConfiguration</li>"));
	put("/bkt", "website", SITE(INDEX ERROR_PAGE));
	assert_int_equal(page("GET", "/"), 404);
	assert_true(fake_reply_has(&call, "<li>Code: NoSuchKey</li>"));
	put("/bkt/index.html", "", "top");
	put("/bkt/docs/index.html", "", "docs");
	put("/bkt/a%20b", "", "a file");
	assert_int_equal(page("GET", "/"), 200);
	assert_true(fake_reply_has(&call, "top"));
	assert_int_equal(page("HEAD", "/"), 200);
	assert_int_equal(call.reply_bytes, 3);
	assert_int_equal(call.reply_body.len, 0);
	assert_int_equal(page("GET", "/docs/"), 200);
	assert_true(fake_reply_has(&call, "docs"));
	assert_int_equal(page("GET", "/docs"), 302);
	expect_location("/docs/");
	assert_int_equal(page("GET", "/a%20b"), 200);
	assert_int_equal(page("GET", "/none"), 404);
	put("/bkt/error.html", "", "an error");
	assert_int_equal(page("GET", "/none"), 404);
	assert_true(fake_reply_has(&call, "an error"));
	assert_true(slice_eq(fake_reply_header(&call, "x-amz-error-code"), SLICE("NoSuchKey")));
	assert_int_equal(page("POST", "/"), 405);
	begin("GET", "/none", "");
	call.request.session = NULL;
	fake_call_header(&call, "Host", "bkt.web.example.com");
	fake_call_header(&call, "Range", "bytes=0-1");
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 404);
	assert_int_equal(call.reply_bytes, 8);
}

static void test_private_pages(void **state)
{
	(void)state;
	put("/bkt", "website", SITE(INDEX));
	assert_int_equal(page("GET", "/"), 403);
	put("/bkt/index.html", "", "secret");
	assert_int_equal(page("GET", "/"), 403);
	assert_true(fake_reply_has(&call, "<li>Code: AccessDenied</li>"));
	assert_false(fake_reply_has(&call, "secret"));
	begin("GET", "/", "");
	fake_call_header(&call, "Host", "other.web.example.com");
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 404);
	assert_true(fake_reply_has(&call, "<li>Code: NoSuchBucket</li>"));
}

static void test_redirects(void **state)
{
	(void)state;
	put("/bkt", "website",
		SITE("<RedirectAllRequestsTo><HostName>example.org</HostName>"
		     "<Protocol>https</Protocol></RedirectAllRequestsTo>"));
	assert_int_equal(page("GET", "/a%20b/c"), 301);
	expect_location("https://example.org/a%20b/c");
	put("/bkt", "website",
		SITE(INDEX RULES(RULE("<KeyPrefixEquals>docs/</KeyPrefixEquals>",
			"<ReplaceKeyPrefixWith>documents/</ReplaceKeyPrefixWith>")
				RULE("<KeyPrefixEquals>images/</KeyPrefixEquals>",
					"<ReplaceKeyWith>gone.html</ReplaceKeyWith>"
					"<HttpRedirectCode>307</HttpRedirectCode>")
					RULE("<HttpErrorCodeReturnedEquals>404"
					     "</HttpErrorCodeReturnedEquals>",
						"<HostName>old.example.org</HostName>"
						"<ReplaceKeyPrefixWith>was/"
						"</ReplaceKeyPrefixWith>"))));
	assert_int_equal(page("GET", "/docs/x%20y"), 301);
	expect_location("http://bkt.web.example.com:9000/documents/x%20y");
	assert_int_equal(page("GET", "/images/1"), 307);
	expect_location("http://bkt.web.example.com:9000/gone.html");
	assert_int_equal(page("GET", "/none"), 301);
	expect_location("http://old.example.org/was/none");
}

static void test_object_redirect(void **state)
{
	(void)state;
	put("/bkt", "website", SITE(INDEX));
	begin("PUT", "/bkt/moved", "");
	fake_call_header(&call, "x-amz-website-redirect-location", "/there");
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 200);
	begin("GET", "/bkt/moved", "");
	fake_call_run(fake_s3, &call);
	assert_true(slice_eq(
		fake_reply_header(&call, "x-amz-website-redirect-location"), SLICE("/there")));
	assert_int_equal(page("GET", "/moved"), 301);
	expect_location("/there");
	begin("PUT", "/bkt/moved", "");
	fake_call_header(&call, "x-amz-website-redirect-location", "there");
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 400);
}

static void test_refused_configurations(void **state)
{
	static const struct {
		const char *body, *code;
	} rows[] = {
		{"<Website/>", "MalformedXML"},
		{SITE(""), "InvalidArgument"},
		{SITE(ERROR_PAGE), "InvalidArgument"},
		{SITE("<IndexDocument><Suffix>a/b</Suffix></IndexDocument>"), "InvalidArgument"},
		{SITE(INDEX "<ErrorDocument><Key></Key></ErrorDocument>"), "InvalidArgument"},
		{SITE("<RedirectAllRequestsTo><HostName></HostName></RedirectAllRequestsTo>"),
			"InvalidArgument"},
		{SITE("<RedirectAllRequestsTo><HostName>a</HostName>"
		      "</RedirectAllRequestsTo>" INDEX),
			"InvalidArgument"},
		{SITE("<RedirectAllRequestsTo><HostName>a</HostName><Protocol>ftp</Protocol>"
		      "</RedirectAllRequestsTo>"),
			"InvalidRequest"},
		{SITE(INDEX RULES("<Other/>")), "MalformedXML"},
		{SITE(INDEX RULES(RULE("<KeyPrefixEquals>a</KeyPrefixEquals>", ""))),
			"MalformedXML"},
		{SITE(INDEX RULES(RULE("<KeyPrefixEquals>a</KeyPrefixEquals>",
			 "<HttpRedirectCode>300</HttpRedirectCode>"))),
			"InvalidRequest"},
		{SITE(INDEX RULES(RULE(
			 "<KeyPrefixEquals>a</KeyPrefixEquals>", "<Protocol>http2</Protocol>"))),
			"InvalidRequest"},
		{SITE(INDEX RULES(
			 RULE("<KeyPrefixEquals>a</KeyPrefixEquals>", "<HostName>a b</HostName>"))),
			"InvalidArgument"},
		{SITE(INDEX RULES(RULE("<KeyPrefixEquals>a</KeyPrefixEquals>",
			 "<ReplaceKeyWith>a</ReplaceKeyWith>"
			 "<ReplaceKeyPrefixWith>b</ReplaceKeyPrefixWith>"))),
			"InvalidRequest"},
		{SITE(INDEX RULES(
			 RULE("<HttpErrorCodeReturnedEquals>304</HttpErrorCodeReturnedEquals>",
				 "<ReplaceKeyWith>a</ReplaceKeyWith>"))),
			"InvalidRequest"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (put("/bkt", "website", rows[i].body) != 400 ||
			!fake_reply_has(&call, rows[i].code))
			fail_msg("%s answered %u %.*s", rows[i].body, call.reply.status,
				SLICE_FMT(buf_slice(&call.reply_body)));
	}
	begin("GET", "/bkt", "website");
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 404);
}

static void test_small(void **state)
{
	(void)state;
	assert_int_equal(put("/bkt", "accelerate",
				 "<AccelerateConfiguration><Status>Enabled</Status>"
				 "</AccelerateConfiguration>"),
		200);
	begin("GET", "/bkt", "accelerate");
	fake_call_run(fake_s3, &call);
	assert_true(fake_reply_has(&call, "<Status>Enabled</Status>"));
	assert_int_equal(put("/bkt", "accelerate", "<AccelerateConfiguration/>"), 400);
	put("/bkt.dot", "", "");
	assert_int_equal(put("/bkt.dot", "accelerate",
				 "<AccelerateConfiguration><Status>Enabled</Status>"
				 "</AccelerateConfiguration>"),
		400);
	assert_int_equal(put("/bkt", "replication", "<ReplicationConfiguration/>"), 400);
	assert_true(fake_reply_has(&call, "Versioning must be"));
	begin("DELETE", "/bkt", "accelerate");
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 501);
}

static void test_payer(void **state)
{
	(void)state;
	put("/bkt/key", "", "x");
	put("/bkt", "website", SITE(INDEX));
	assert_int_equal(page("GET", "/key"), 200);
	assert_int_equal(put("/bkt", "requestPayment",
				 "<RequestPaymentConfiguration><Payer>Nobody</Payer>"
				 "</RequestPaymentConfiguration>"),
		400);
	assert_int_equal(put("/bkt", "requestPayment",
				 "<RequestPaymentConfiguration><Payer>Requester</Payer>"
				 "</RequestPaymentConfiguration>"),
		200);
	begin("GET", "/bkt/key", "");
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 200);
	assert_int_equal(fake_reply_header(&call, "x-amz-request-charged").len, 0);
	begin("GET", "/bkt/key", "");
	fake_call_header(&call, "x-amz-request-payer", "requester");
	fake_call_run(fake_s3, &call);
	assert_true(
		slice_eq(fake_reply_header(&call, "x-amz-request-charged"), SLICE("requester")));
	begin("GET", "/bkt/key", "");
	call.request.session = NULL;
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 403);
	/* Nobody pays for a page. */
	assert_int_equal(page("GET", "/key"), 403);
	assert_true(fake_reply_has(&call, "<li>Code: AccessDenied</li>"));
	put("/bkt", "website",
		SITE("<RedirectAllRequestsTo><HostName>example.org</HostName>"
		     "</RedirectAllRequestsTo>"));
	assert_int_equal(page("GET", "/key"), 403);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_pages, open_public, close_all),
		cmocka_unit_test_setup_teardown(test_private_pages, open_private, close_all),
		cmocka_unit_test_setup_teardown(test_redirects, open_public, close_all),
		cmocka_unit_test_setup_teardown(test_object_redirect, open_public, close_all),
		cmocka_unit_test_setup_teardown(
			test_refused_configurations, open_public, close_all),
		cmocka_unit_test_setup_teardown(test_small, open_public, close_all),
		cmocka_unit_test_setup_teardown(test_payer, open_public, close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
