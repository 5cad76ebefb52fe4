/* Covers iam/policy.c, policy_decide.c and policy_text.c: refused documents, and the decisions of
 * valid ones. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem_arena.h"
#include "document/json.h"
#include "iam/policy.h"
#include "iam/policy_priv.h"

static struct mem_arena memory;

/* The arena, emptied for each policy. */
static struct mem_arena *arena(void)
{
	mem_arena_free(&memory);
	return &memory;
}

/* The request's values: pairs of key and value; a key may occur several times. */
static const char *const *facts;

static uint32_t values(void *arg, struct slice key, struct slice *ret_values, uint32_t max)
{
	uint32_t count = 0;

	(void)arg;
	for (const char *const *at = facts; at && *at; at += 2) {
		if (!slice_eq_nocase(slice_str(at[0]), key))
			continue;
		if (count < max)
			ret_values[count] = slice_str(at[1]);
		count++;
	}
	return count;
}

static const struct policy_principal alice = {.arn = SLICE("arn:aws:iam::111:user/alice"),
	.account = SLICE("111"),
	.owner = SLICE("owner-one"),
	.user_id = SLICE("AIDA1")};
static const struct policy_principal root = {.arn = SLICE("arn:aws:iam::111:root"),
	.account = SLICE("111"),
	.owner = SLICE("owner-one"),
	.root = true};
static const struct policy_principal bob = {.arn = SLICE("arn:aws:iam::111:user/bob"),
	.account = SLICE("111"),
	.owner = SLICE("owner-bob"),
	.own = true};
static const struct policy_principal nobody = {.anonymous = true};

static enum policy_decision ask(const char *text, enum policy_kind kind,
	const struct policy_principal *who, const char *action, const char *resource)
{
	struct policy_question question = {.principal = who,
		.action = slice_str(action),
		.resource = slice_str(resource),
		.values = values};
	struct policy_refusal refusal = {""};
	const struct policy *policy;
	enum policy_decision decision;

	if (policy_compile(slice_str(text), kind, arena(), &policy, &refusal))
		fail_msg("refused: %s: %s", refusal.text, text);
	decision = policy_decide(policy, &question);
	return decision;
}

#define STATEMENT(inside)                                                                       \
	"{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Action\":\"s3:*\"," \
	"\"Resource\":\"*\"," inside "}]}"

static const struct {
	enum policy_kind kind;
	const char *text, *why;
} bad[] = {
	{POLICY_IDENTITY, "", "Policies must"},
	{POLICY_IDENTITY, "[]", "Policies must"},
	{POLICY_IDENTITY, "{", "Json"},
	{POLICY_IDENTITY, "{\"Version\":\"2012-10-17\"}", "Missing required field Statement"},
	{POLICY_IDENTITY, "{\"Statement\":[]}", "Statement is empty"},
	{POLICY_IDENTITY, "{\"Statement\":[1]}", "object"},
	{POLICY_IDENTITY, "{\"Version\":\"2010-10-17\",\"Statement\":{}}", "version"},
	{POLICY_IDENTITY, "{\"Other\":1,\"Statement\":{}}", "unknown element Other"},
	{POLICY_IDENTITY, "{\"Statement\":{\"Effect\":\"Maybe\"}}", "effect"},
	{POLICY_IDENTITY, "{\"Statement\":{\"Effect\":\"Allow\",\"Resource\":\"*\"}}", "Action"},
	{POLICY_IDENTITY, "{\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"*\"}}", "Resource"},
	{POLICY_IDENTITY,
		"{\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"*\",\"NotAction\":\"*\","
		"\"Resource\":\"*\"}}",
		"both"},
	{POLICY_IDENTITY, "{\"Statement\":{\"Effect\":\"Allow\",\"Action\":[],\"Resource\":\"*\"}}",
		"empty"},
	{POLICY_IDENTITY, "{\"Statement\":{\"Effect\":\"Allow\",\"Action\":5,\"Resource\":\"*\"}}",
		"list of texts"},
	{POLICY_IDENTITY, STATEMENT("\"Sid\":1"), "Sid"},
	{POLICY_IDENTITY, STATEMENT("\"Extra\":1"), "unknown element Extra"},
	{POLICY_IDENTITY, STATEMENT("\"Principal\":\"*\""), "names no Principal"},
	{POLICY_RESOURCE, STATEMENT("\"Sid\":\"a\""), "Principal"},
	{POLICY_RESOURCE, STATEMENT("\"Principal\":\"x\""), "principal"},
	{POLICY_RESOURCE, STATEMENT("\"Principal\":{}"), "principal"},
	{POLICY_RESOURCE, STATEMENT("\"Principal\":{\"Who\":\"*\"}"), "principal"},
	{POLICY_RESOURCE, STATEMENT("\"Principal\":{\"AWS\":[1]}"), "principal"},
	{POLICY_RESOURCE, STATEMENT("\"NotPrincipal\":{\"AWS\":\"*\"}"), "NotPrincipal"},
	{POLICY_TRUST, STATEMENT("\"Principal\":\"*\""), "no Resource"},
	{POLICY_IDENTITY, STATEMENT("\"Condition\":[]"), "object"},
	{POLICY_IDENTITY, STATEMENT("\"Condition\":{\"StringEquals\":1}"), "object"},
	{POLICY_IDENTITY, STATEMENT("\"Condition\":{\"Foo\":{\"a\":\"b\"}}"), "type"},
	{POLICY_IDENTITY, STATEMENT("\"Condition\":{\"StringEquals\":{\"a\":{}}}"), "text"},
	{POLICY_IDENTITY, STATEMENT("\"Condition\":{\"NumericEquals\":{\"a\":\"many\"}}"), "kind"},
	{POLICY_IDENTITY, STATEMENT("\"Condition\":{\"IpAddress\":{\"a\":\"1.2.3.4/33\"}}"),
		"kind"},
	{POLICY_IDENTITY, STATEMENT("\"Condition\":{\"DateLessThan\":{\"a\":\"soon\"}}"), "kind"},
	{POLICY_IDENTITY, STATEMENT("\"Condition\":{\"Bool\":{\"a\":\"si\"}}"), "kind"},
	{POLICY_IDENTITY, STATEMENT("\"Sid\":\"a\",\"Sid\":\"b\""), "Json"},
	{POLICY_IDENTITY,
		"{\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"\\u0001\",\"Resource\":"
		"\"*\"}}",
		"control"},
	{POLICY_IDENTITY,
		"{\"Statement\":[{\"Sid\":\"a\",\"Effect\":\"Allow\",\"Action\":\"*\","
		"\"Resource\":\"*\"},{\"Sid\":\"a\",\"Effect\":\"Allow\",\"Action\":\"*\","
		"\"Resource\":\"*\"}]}",
		"unique"},
};

static void test_federated(void **state)
{
	static const struct policy_principal web = {
		.federated = SLICE("arn:aws:iam::111:oidc-provider/id/x")};
	static const char action[] = "sts:AssumeRoleWithWebIdentity";

	(void)state;
#define TRUST(principal) \
	"{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":" principal ",\"Action\":\"sts:*\"}}"
	assert_int_equal(ask(TRUST("{\"Federated\":\"arn:aws:iam::111:oidc-provider/id/x\"}"),
				 POLICY_TRUST, &web, action, "r"),
		POLICY_DECISION_ALLOW);
	assert_int_equal(ask(TRUST("{\"Federated\":\"arn:aws:iam:::oidc-provider/id/x\"}"),
				 POLICY_TRUST, &web, action, "r"),
		POLICY_DECISION_ALLOW);
	assert_int_equal(ask(TRUST("{\"Federated\":\"arn:aws:iam::111:oidc-provider/id/y\"}"),
				 POLICY_TRUST, &web, action, "r"),
		POLICY_DECISION_NONE);
	assert_int_equal(ask(TRUST("{\"AWS\":\"111\"}"), POLICY_TRUST, &web, action, "r"),
		POLICY_DECISION_NONE);
	/* A user of the account is not a federated identity of the provider. */
	assert_int_equal(ask(TRUST("{\"Federated\":\"arn:aws:iam::111:oidc-provider/id/x\"}"),
				 POLICY_TRUST, &alice, action, "r"),
		POLICY_DECISION_NONE);
#undef TRUST
}

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct policy_refusal refusal = {""};
		const struct policy *policy;

		if (policy_compile(slice_str(bad[i].text), bad[i].kind, arena(), &policy,
			    &refusal) != -EINVAL)
			fail_msg("taken: %s", bad[i].text);
		if (!strstr(refusal.text, bad[i].why))
			fail_msg("refused as \"%s\": %s", refusal.text, bad[i].text);
	}
}

static void test_bounds(void **state)
{
	static char large[POLICY_BYTES_MAX + 2], deep[100];
	struct policy_refusal refusal;
	const struct policy *policy;

	(void)state;
	memset(large, ' ', sizeof(large) - 1);
	assert_int_equal(
		policy_compile(slice_str(large), POLICY_IDENTITY, arena(), &policy, &refusal),
		-EINVAL);
	assert_non_null(strstr(refusal.text, "bytes"));
	memset(deep, '[', sizeof(deep) - 1);
	assert_int_equal(
		policy_compile(slice_str(deep), POLICY_IDENTITY, arena(), &policy, &refusal),
		-EINVAL);
	assert_non_null(strstr(refusal.text, "levels"));
	assert_true(json_is_flat(SLICE("[\"[[[[\\\"[\",{}]"), 2));
	assert_false(json_is_flat(SLICE("[{[]}]"), 2));
}

static void test_actions_and_resources(void **state)
{
	static const char *const text =
		"{\"Version\":\"2012-10-17\",\"Statement\":["
		"{\"Effect\":\"Allow\",\"Action\":[\"s3:Get*\",\"S3:putobject\"],"
		"\"Resource\":\"arn:aws:s3:::data/${aws:username}/?*\"},"
		"{\"Effect\":\"Allow\",\"NotAction\":\"s3:Delete*\","
		"\"NotResource\":[\"arn:aws:s3:::data*\",\"arn:aws:s3:::lit${*}ral\"]},"
		"{\"Effect\":\"Deny\",\"Action\":\"s3:*\",\"Resource\":\"*secret*\"}]}";
	static const char *const named[] = {"aws:username", "alice", NULL};
	const struct {
		const char *action, *resource;
		enum policy_decision wanted;
	} cases[] = {
		{"s3:GetObject", "arn:aws:s3:::data/alice/x", POLICY_DECISION_ALLOW},
		{"s3:PutObject", "arn:aws:s3:::data/alice/x/y", POLICY_DECISION_ALLOW},
		{"s3:GetObject", "arn:aws:s3:::data/alice/", POLICY_DECISION_NONE},
		{"s3:GetObject", "arn:aws:s3:::data/bob/x", POLICY_DECISION_NONE},
		{"s3:DeleteObject", "arn:aws:s3:::data/alice/x", POLICY_DECISION_NONE},
		{"s3:GetObject", "arn:aws:s3:::data/alice/secret", POLICY_DECISION_DENY},
		{"s3:GetObject", "arn:aws:s3:::other", POLICY_DECISION_ALLOW},
		{"s3:DeleteObject", "arn:aws:s3:::other", POLICY_DECISION_NONE},
		{"s3:ListBucket", "arn:aws:s3:::lit*ral", POLICY_DECISION_NONE},
		{"s3:ListBucket", "arn:aws:s3:::literal", POLICY_DECISION_ALLOW},
	};

	(void)state;
	facts = named;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (ask(text, POLICY_IDENTITY, &alice, cases[i].action, cases[i].resource) !=
			cases[i].wanted)
			fail_msg("%s on %s", cases[i].action, cases[i].resource);
	/* A variable without a value matches nothing; with a default, the default is used. */
	facts = NULL;
	assert_int_equal(
		ask(text, POLICY_IDENTITY, &alice, "s3:GetObject", "arn:aws:s3:::data/alice/x"),
		POLICY_DECISION_NONE);
	assert_int_equal(ask("{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\","
			     "\"Action\":\"*\",\"Resource\":\"x/${aws:none, 'all'}\"}}",
				 POLICY_IDENTITY, &alice, "s3:GetObject", "x/all"),
		POLICY_DECISION_ALLOW);
	/* The older language has no variables. */
	assert_int_equal(ask("{\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"*\","
			     "\"Resource\":\"x/${aws:username}\"}}",
				 POLICY_IDENTITY, &alice, "s3:GetObject", "x/${aws:username}"),
		POLICY_DECISION_ALLOW);
	assert_int_equal(policy_decide(NULL, NULL), POLICY_DECISION_NONE);
}

/* A client's value is compared as it is, also where it is a byte that patterns are made of. */
static void test_values_are_no_wildcards(void **state)
{
#define POLICY(statements)  "{\"Version\":\"2012-10-17\",\"Statement\":[" statements "]}"
#define ABOUT(effect, more) "{\"Effect\":\"" effect "\",\"Action\":\"s3:*\"," more "}"
#define HOME		    "arn:aws:s3:::home/"
	static const char allow[] =
		POLICY(ABOUT("Allow", "\"Resource\":\"" HOME "${aws:PrincipalTag/team}/*\""));
	static const char deny[] = POLICY(ABOUT("Allow", "\"Resource\":\"*\"") "," ABOUT(
		"Deny", "\"Resource\":\"*/${aws:PrincipalTag/team}/?\""));
	static const char deny_others[] = POLICY(ABOUT("Allow", "\"Resource\":\"*\"") "," ABOUT(
		"Deny", "\"NotResource\":\"" HOME "${aws:PrincipalTag/team}/*\""));
	static const char preset[] =
		POLICY(ABOUT("Allow", "\"Resource\":\"" HOME "${aws:none, '\\u0001'}/*\""));
	static const char like[] = POLICY(
		ABOUT("Allow", "\"Resource\":\"*\",\"Condition\":{\"StringLike\":{\"s3:prefix\":"
			       "\"${aws:PrincipalTag/team}/*\"}}"));
	static const char equal[] = POLICY(
		ABOUT("Allow", "\"Resource\":\"*\",\"Condition\":{\"StringEquals\":{\"s3:prefix\":"
			       "\"${aws:PrincipalTag/team}/x\"}}"));
	static const char arn[] = POLICY(ABOUT("Allow",
		"\"Resource\":\"*\",\"Condition\":{\"ArnLike\":{\"aws:PrincipalArn\":"
		"\"arn:aws:iam::111:user/${aws:PrincipalTag/team}\"}}"));
	static const char *const teams[] = {
		"\x01", "\x02", "\x03", "\x04", "\x05", "\x05\x01", "*", "?", "\x01\x02"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(teams); i++) {
		char own[64], prefix[16], name[64];
		const char *const named[] = {"aws:PrincipalTag/team", teams[i], "s3:prefix", prefix,
			"aws:PrincipalArn", name, NULL};
		const struct {
			const char *text;
			enum policy_decision own, other;
		} cases[] = {
			{allow, POLICY_DECISION_ALLOW, POLICY_DECISION_NONE},
			{deny, POLICY_DECISION_DENY, POLICY_DECISION_ALLOW},
			{deny_others, POLICY_DECISION_ALLOW, POLICY_DECISION_DENY},
			{like, POLICY_DECISION_ALLOW, POLICY_DECISION_NONE},
			{equal, POLICY_DECISION_ALLOW, POLICY_DECISION_NONE},
			{arn, POLICY_DECISION_ALLOW, POLICY_DECISION_NONE},
		};

		facts = named;
		for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
			snprintf(own, sizeof(own), HOME "%s/x", teams[i]);
			snprintf(prefix, sizeof(prefix), "%s/x", teams[i]);
			snprintf(name, sizeof(name), "arn:aws:iam::111:user/%s", teams[i]);
			if (ask(cases[k].text, POLICY_IDENTITY, &alice, "s3:GetObject", own) !=
				cases[k].own)
				fail_msg("value %zu: %s", i, cases[k].text);
			snprintf(prefix, sizeof(prefix), "r/x");
			snprintf(name, sizeof(name), "arn:aws:iam::111:user/r");
			if (ask(cases[k].text, POLICY_IDENTITY, &alice, "s3:GetObject",
				    HOME "r/x") != cases[k].other)
				fail_msg("value %zu, of another: %s", i, cases[k].text);
		}
	}
	facts = NULL;
	assert_int_equal(ask(preset, POLICY_IDENTITY, &alice, "s3:GetObject", HOME "r/x"),
		POLICY_DECISION_NONE);
#undef HOME
#undef ABOUT
#undef POLICY
}

static void test_principals(void **state)
{
	static const struct policy_principal session = {
		.arn = SLICE("arn:aws:sts::111:assumed-role/r/s"),
		.role = SLICE("arn:aws:iam::111:role/r"),
		.account = SLICE("111")};
	static const struct policy_principal service = {.service = SLICE("logging.example")};
	const struct {
		const char *who;
		const struct policy_principal *asks;
		enum policy_decision wanted;
	} cases[] = {
		{"\"*\"", &nobody, POLICY_DECISION_ALLOW},
		{"{\"AWS\":\"*\"}", &alice, POLICY_DECISION_ALLOW},
		{"{\"AWS\":\"111\"}", &alice, POLICY_DECISION_ACCOUNT},
		{"{\"AWS\":\"111\"}", &root, POLICY_DECISION_ALLOW},
		{"{\"AWS\":\"111\"}", &nobody, POLICY_DECISION_NONE},
		{"{\"AWS\":\"arn:aws:iam::111:root\"}", &alice, POLICY_DECISION_ACCOUNT},
		{"{\"AWS\":\"arn:aws:iam::112:root\"}", &alice, POLICY_DECISION_NONE},
		{"{\"AWS\":[\"5\",\"arn:aws:iam::111:user/alice\"]}", &alice,
			POLICY_DECISION_ALLOW},
		{"{\"AWS\":\"arn:aws:iam::111:user/alice\"}", &root, POLICY_DECISION_NONE},
		{"{\"AWS\":\"arn:aws:iam::111:user/*\"}", &alice, POLICY_DECISION_NONE},
		{"{\"AWS\":\"AIDA1\"}", &alice, POLICY_DECISION_ALLOW},
		{"{\"AWS\":\"arn:aws:iam:::user/owner-one\"}", &root, POLICY_DECISION_ALLOW},
		{"{\"AWS\":\"arn:aws:iam::111:role/r\"}", &session, POLICY_DECISION_ALLOW},
		{"{\"AWS\":\"arn:aws:sts::111:assumed-role/r/s\"}", &session,
			POLICY_DECISION_ALLOW},
		{"{\"CanonicalUser\":\"owner-one\"}", &root, POLICY_DECISION_ALLOW},
		{"{\"CanonicalUser\":\"owner-one\"}", &alice, POLICY_DECISION_ACCOUNT},
		{"{\"CanonicalUser\":\"owner-two\"}", &alice, POLICY_DECISION_NONE},
		/* An owner in an account is not that account. */
		{"{\"AWS\":\"111\"}", &bob, POLICY_DECISION_ACCOUNT},
		{"{\"AWS\":\"arn:aws:iam::111:root\"}", &bob, POLICY_DECISION_ACCOUNT},
		{"{\"CanonicalUser\":\"owner-bob\"}", &bob, POLICY_DECISION_ALLOW},
		{"{\"CanonicalUser\":\"owner-one\"}", &bob, POLICY_DECISION_NONE},
		{"{\"AWS\":\"arn:aws:iam:::user/owner-bob\"}", &bob, POLICY_DECISION_ALLOW},
		{"{\"AWS\":\"arn:aws:iam:::user/owner-one\"}", &alice, POLICY_DECISION_NONE},
		{"{\"Service\":\"logging.example\"}", &service, POLICY_DECISION_ALLOW},
		{"{\"Service\":\"logging.example\"}", &alice, POLICY_DECISION_NONE},
		{"{\"Federated\":\"x\"}", &alice, POLICY_DECISION_NONE},
	};
	char text[512];

	(void)state;
	facts = NULL;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), STATEMENT("\"Principal\":%s"), cases[i].who);
		if (ask(text, POLICY_RESOURCE, cases[i].asks, "s3:GetObject", "x") !=
			cases[i].wanted)
			fail_msg("%s", text);
	}
	assert_int_equal(ask("{\"Statement\":{\"Effect\":\"Deny\",\"NotPrincipal\":{\"AWS\":"
			     "\"arn:aws:iam::111:user/alice\"},\"Action\":\"*\",\"Resource\":"
			     "\"*\"}}",
				 POLICY_RESOURCE, &root, "s3:GetObject", "x"),
		POLICY_DECISION_DENY);
	assert_int_equal(ask("{\"Statement\":{\"Effect\":\"Deny\",\"NotPrincipal\":{\"AWS\":"
			     "\"arn:aws:iam::111:user/alice\"},\"Action\":\"*\",\"Resource\":"
			     "\"*\"}}",
				 POLICY_RESOURCE, &alice, "s3:GetObject", "x"),
		POLICY_DECISION_NONE);
}

static const struct {
	const char *condition;
	bool holds;
} conditions[] = {
	{"\"StringEquals\":{\"s3:prefix\":\"home/\"}", true},
	{"\"StringEquals\":{\"s3:prefix\":[\"x\",\"home/\"]}", true},
	{"\"StringEquals\":{\"s3:prefix\":\"Home/\"}", false},
	{"\"StringEquals\":{\"s3:prefix\":\"home*\"}", false},
	{"\"StringEqualsIgnoreCase\":{\"S3:PREFIX\":\"HOME/\"}", true},
	{"\"StringNotEquals\":{\"s3:prefix\":\"home/\"}", false},
	{"\"StringNotEquals\":{\"absent\":\"x\"}", true},
	{"\"StringEquals\":{\"absent\":\"x\"}", false},
	{"\"StringEqualsIfExists\":{\"absent\":\"x\"}", true},
	{"\"StringEqualsIfExists\":{\"s3:prefix\":\"x\"}", false},
	{"\"StringLike\":{\"s3:prefix\":\"h?me*\"}", true},
	{"\"StringLike\":{\"s3:prefix\":\"${aws:username}/\"}", true},
	{"\"StringNotLike\":{\"s3:prefix\":\"h?me*\"}", false},
	{"\"NumericLessThanEquals\":{\"s3:max-keys\":10}", true},
	{"\"NumericLessThan\":{\"s3:max-keys\":\"10\"}", false},
	{"\"NumericGreaterThan\":{\"s3:max-keys\":9.5}", true},
	{"\"NumericGreaterThanEquals\":{\"s3:max-keys\":11}", false},
	{"\"NumericEquals\":{\"s3:max-keys\":\"1e1\"}", true},
	{"\"NumericNotEquals\":{\"s3:max-keys\":\"10\"}", false},
	{"\"NumericEquals\":{\"s3:prefix\":\"10\"}", false},
	{"\"DateLessThan\":{\"aws:CurrentTime\":\"2026-06-02\"}", true},
	{"\"DateGreaterThan\":{\"aws:CurrentTime\":\"2026-06-02T00:00:00Z\"}", false},
	{"\"DateEquals\":{\"aws:CurrentTime\":\"1780272000\"}", true},
	{"\"Bool\":{\"aws:SecureTransport\":true}", true},
	{"\"Bool\":{\"aws:SecureTransport\":\"false\"}", false},
	{"\"IpAddress\":{\"aws:SourceIp\":\"10.0.0.0/8\"}", true},
	{"\"IpAddress\":{\"aws:SourceIp\":[\"1.2.3.4\",\"10.1.2.3\"]}", true},
	{"\"IpAddress\":{\"aws:SourceIp\":\"10.1.2.0/31\"}", false},
	{"\"NotIpAddress\":{\"aws:SourceIp\":\"10.0.0.0/8\"}", false},
	{"\"IpAddress\":{\"six\":\"192.168.0.0/16\"}", true},
	{"\"IpAddress\":{\"v6\":\"fd00::/8\"}", true},
	{"\"IpAddress\":{\"v6\":\"10.0.0.0/8\"}", false},
	{"\"ArnLike\":{\"aws:PrincipalArn\":\"arn:aws:iam::*:user/*\"}", true},
	{"\"ArnLike\":{\"aws:PrincipalArn\":\"arn:*\"}", false},
	{"\"ArnNotLike\":{\"aws:PrincipalArn\":\"arn:aws:iam::*:user/*\"}", false},
	{"\"Null\":{\"absent\":\"true\"}", true},
	{"\"Null\":{\"s3:prefix\":true}", false},
	{"\"Null\":{\"s3:prefix\":false}", true},
	{"\"ForAllValues:StringEquals\":{\"tags\":[\"a\",\"b\",\"c\"]}", true},
	{"\"ForAllValues:StringEquals\":{\"tags\":[\"a\"]}", false},
	{"\"ForAllValues:StringEquals\":{\"absent\":[\"a\"]}", true},
	{"\"ForAnyValue:StringEquals\":{\"tags\":[\"b\"]}", true},
	{"\"ForAnyValue:StringEquals\":{\"absent\":[\"b\"]}", false},
	{"\"ForAnyValue:StringNotEquals\":{\"tags\":[\"b\"]}", true},
	{"\"ForAllValues:StringNotEquals\":{\"tags\":[\"b\"]}", false},
	{"\"BinaryEquals\":{\"s3:prefix\":\"home/\"}", true},
	{"\"StringEquals\":{\"s3:prefix\":\"home/\"},\"Bool\":{\"aws:SecureTransport\":"
	 "\"false\"}",
		false},
	{"\"StringEquals\":{\"s3:prefix\":\"home/\",\"s3:max-keys\":\"11\"}", false},
	{"", true},
};

static void test_conditions(void **state)
{
	static const char *const all[] = {"s3:prefix", "home/", "aws:SourceIp", "10.1.2.3",
		"s3:max-keys", "10", "aws:CurrentTime", "2026-06-01T00:00:00Z",
		"aws:SecureTransport", "true", "aws:PrincipalArn", "arn:aws:iam::111:user/alice",
		"tags", "a", "tags", "b", "six", "::ffff:192.168.7.9", "v6", "fd00::1",
		"aws:username", "home", NULL};
	char text[512];

	(void)state;
	facts = all;
	for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++) {
		snprintf(text, sizeof(text), STATEMENT("\"Condition\":{%s}"),
			conditions[i].condition);
		if ((ask(text, POLICY_IDENTITY, &alice, "s3:GetObject", "x") ==
			    POLICY_DECISION_ALLOW) != conditions[i].holds)
			fail_msg("%s", conditions[i].condition);
	}
}

/* The decision where the last of so many values is the one that the policy is about. */
static enum policy_decision by_group(const char *effect, const char *condition, uint32_t count)
{
	const char *groups[2 * (POLICY_VALUES_MAX + 1) + 1] = {NULL};
	enum policy_decision decision;
	char text[512];

	assert_in_range(count, 1, POLICY_VALUES_MAX + 1);
	for (uint32_t i = 0; i < count; i++) {
		groups[2 * i] = "groups";
		groups[2 * i + 1] = i + 1 < count ? "other" : "wanted";
	}
	facts = groups;
	snprintf(text, sizeof(text),
		"{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Action\":"
		"\"s3:Get*\",\"Resource\":\"*\"},{\"Effect\":\"%s\",\"Action\":\"s3:*\","
		"\"Resource\":\"*\",\"Condition\":{%s}}]}",
		effect, condition);
	decision = ask(text, POLICY_IDENTITY, &alice,
		strcmp(effect, "Deny") == 0 ? "s3:GetObject" : "s3:PutObject", "x");
	facts = NULL;
	return decision;
}

/* A condition sees all values or, where there are too many, the policy denies. */
static void test_many_values(void **state)
{
	static const struct {
		const char *effect, *condition;
		enum policy_decision wanted;
	} cases[] = {
		{"Allow", "\"ForAnyValue:StringEquals\":{\"groups\":\"wanted\"}",
			POLICY_DECISION_ALLOW},
		{"Allow", "\"StringEquals\":{\"groups\":\"wanted\"}", POLICY_DECISION_ALLOW},
		{"Allow", "\"ForAllValues:StringEquals\":{\"groups\":\"other\"}",
			POLICY_DECISION_NONE},
		{"Allow", "\"StringNotEquals\":{\"groups\":\"wanted\"}", POLICY_DECISION_NONE},
		{"Allow", "\"StringLike\":{\"groups\":\"${groups}\"}", POLICY_DECISION_NONE},
		{"Deny", "\"ForAnyValue:StringEquals\":{\"groups\":\"wanted\"}",
			POLICY_DECISION_DENY},
		{"Deny", "\"ForAnyValue:StringNotEquals\":{\"groups\":\"other\"}",
			POLICY_DECISION_DENY},
		{"Deny", "\"ForAllValues:StringEquals\":{\"groups\":\"other\"}",
			POLICY_DECISION_ALLOW},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (by_group(cases[i].effect, cases[i].condition, POLICY_VALUES_MAX) !=
			cases[i].wanted)
			fail_msg("%s if %s", cases[i].effect, cases[i].condition);
		if (by_group(cases[i].effect, cases[i].condition, POLICY_VALUES_MAX + 1) !=
			POLICY_DECISION_DENY)
			fail_msg("too many: %s if %s", cases[i].effect, cases[i].condition);
	}
	assert_int_equal(
		by_group("Allow", "\"Null\":{\"groups\":\"false\"}", POLICY_VALUES_MAX + 1),
		POLICY_DECISION_ALLOW);
}

static bool is_public(const char *inside)
{
	struct policy_refusal refusal;
	const struct policy *policy;
	char text[512];
	bool answer;

	snprintf(text, sizeof(text), STATEMENT("%s"), inside);
	assert_int_equal(
		policy_compile(slice_str(text), POLICY_RESOURCE, arena(), &policy, &refusal), 0);
	answer = policy_is_public(policy);
	return answer;
}

static void test_public(void **state)
{
	(void)state;
	assert_true(is_public("\"Principal\":\"*\""));
	assert_false(is_public("\"Principal\":{\"AWS\":\"111\"}"));
	assert_true(is_public("\"Principal\":{\"AWS\":[\"111\",\"*\"]}"));
	assert_false(is_public("\"Principal\":\"*\",\"Condition\":{\"IpAddress\":"
			       "{\"aws:SourceIp\":\"10.0.0.0/32\"}}"));
	assert_true(is_public("\"Principal\":\"*\",\"Condition\":{\"StringLike\":"
			      "{\"aws:Referer\":\"x\"}}"));
	assert_true(is_public("\"Principal\":\"*\",\"Condition\":{\"NotIpAddress\":"
			      "{\"aws:SourceIp\":\"10.0.0.0/32\"}}"));
}

static void test_public_by_address(void **state)
{
	static const struct {
		const char *addresses;
		bool is_public;
	} cases[] = {
		{"\"198.51.100.0/24\"", false},
		{"\"3.0.0.0/8\"", false},
		{"\"3.0.0.0/8\",\"3.1.0.0/16\",\"3.0.0.0/8\"", false},
		{"\"10.0.0.0/8\",\"172.16.0.0/12\",\"192.168.0.0/16\",\"3.0.0.0/8\"", false},
		{"\"2001:db8::/32\"", false},
		{"\"fd00::/8\"", false},
		{"\"0.0.0.0/0\"", true},
		{"\"0.0.0.0/1\"", true},
		{"\"2.0.0.0/7\"", true},
		{"\"0.0.0.0/1\",\"128.0.0.0/1\"", true},
		{"\"198.51.100.0/24\",\"2.0.0.0/7\"", true},
		{"\"3.0.0.0/8\",\"4.0.0.0/8\"", true},
		{"\"3.0.0.0/9\",\"4.0.0.0/9\",\"5.0.0.0/32\"", true},
		{"\"::/0\"", true},
		{"\"2001:db8::/31\"", true},
		{"\"2001:db8::/32\",\"2001:db9::/48\"", true},
	};
	struct policy_refusal refusal;
	const struct policy *policy;
	char text[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		snprintf(text, sizeof(text),
			"\"Principal\":\"*\",\"Condition\":{\"IpAddress\":{\"aws:SourceIp\":[%s]}}",
			cases[i].addresses);
		if (is_public(text) != cases[i].is_public)
			fail_msg("%s", text);
	}
	/* The two halves, each in a statement of its own; the same range twice counts once. */
#define FROM(range)                                                                         \
	"{\"Effect\":\"Allow\",\"Principal\":\"*\",\"Action\":\"s3:*\",\"Resource\":\"*\"," \
	"\"Condition\":{\"IpAddress\":{\"aws:SourceIp\":\"" range "\"}}}"
	assert_int_equal(policy_compile(SLICE("{\"Statement\":[" FROM("3.0.0.0/8") "," FROM(
						"5.0.0.0/8") "]}"),
				 POLICY_RESOURCE, arena(), &policy, &refusal),
		0);
	assert_true(policy_is_public(policy));
	assert_int_equal(policy_compile(SLICE("{\"Statement\":[" FROM("3.0.0.0/8") "," FROM(
						"3.0.0.0/8") "]}"),
				 POLICY_RESOURCE, arena(), &policy, &refusal),
		0);
	assert_false(policy_is_public(policy));
#undef FROM
}

static void test_public_by_other_keys(void **state)
{
	static const struct {
		const char *condition;
		bool is_public;
	} cases[] = {
		{"\"StringEquals\":{\"aws:PrincipalOrgID\":\"o-1\"}", false},
		{"\"StringEquals\":{\"aws:userid\":\"AIDA1\"}", false},
		{"\"StringLike\":{\"aws:userid\":\"AROA1:*\"}", true},
		{"\"StringEquals\":{\"s3:x-amz-server-side-encryption-aws-kms-key-id\":\"k\"}",
			false},
		{"\"NumericEquals\":{\"aws:SourceAccount\":\"111\"}", false},
		{"\"NumericGreaterThan\":{\"aws:SourceAccount\":\"0\"}", true},
		{"\"DateGreaterThan\":{\"aws:PrincipalAccount\":\"0\"}", true},
		{"\"StringEqualsIfExists\":{\"aws:SourceVpc\":\"vpc-1\"}", true},
		{"\"IpAddress\":{\"aws:SourceIp\":\"0.0.0.0/0\"},"
		 "\"StringEquals\":{\"aws:SourceVpc\":\"vpc-1\"}",
			false},
	};
	char text[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		snprintf(text, sizeof(text), "\"Principal\":\"*\",\"Condition\":{%s}",
			cases[i].condition);
		if (is_public(text) != cases[i].is_public)
			fail_msg("%s", text);
	}
}

static bool is_of(const char *resource, const char *bucket)
{
	struct policy_refusal refusal;
	const struct policy *policy;
	char text[512];
	bool answer;

	snprintf(text, sizeof(text),
		"{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\",\"Principal\":"
		"\"*\",\"Action\":\"s3:*\",\"Resource\":[\"arn:aws:s3:::%s\",\"%s\"]}}",
		bucket, resource);
	assert_int_equal(
		policy_compile(slice_str(text), POLICY_RESOURCE, arena(), &policy, &refusal), 0);
	answer = policy_is_of_bucket(policy, slice_str(bucket));
	return answer;
}

static void test_of_bucket(void **state)
{
	(void)state;
	assert_true(is_of("arn:aws:s3:::bkt/*", "bkt"));
	assert_true(is_of("arn:aws:s3:::*", "bkt"));
	assert_true(is_of("arn:aws:s3:::b*", "bkt"));
	assert_true(is_of("arn:aws:s3::*:bkt", "bkt"));
	assert_true(is_of("*", "bkt"));
	assert_true(is_of("arn:aws:s3:::${aws:username}", "bkt"));
	assert_false(is_of("arn:aws:s3:::other/*", "bkt"));
	assert_false(is_of("bkt", "bkt"));
}

/* The error of a policy put to a bucket named bkt; "": accepted. */
static const char *put_to_bucket(const char *action, const char *resource, const char *key)
{
	static struct policy_refusal refusal;
	const struct policy *policy;
	char text[512];
	int ret;

	refusal.text[0] = '\0';
	snprintf(text, sizeof(text),
		"{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"Allow\",\"Principal\":"
		"\"*\","
		"%s,\"Resource\":[%s],\"Condition\":{\"StringEquals\":{\"%s\":\"x\"}}}}",
		action, resource, key);
	assert_int_equal(
		policy_compile(slice_str(text), POLICY_RESOURCE, arena(), &policy, &refusal), 0);
	ret = policy_check_bucket(policy, SLICE("bkt"), &refusal);
	assert_int_equal(ret, refusal.text[0] ? -EINVAL : 0);
	return refusal.text;
}

static void test_policies_of_buckets(void **state)
{
	static const char *const action = "Policy has invalid action";
	static const char *const applies = "Action does not apply to any resource(s) in statement";
	static const char *const resource = "Policy has invalid resource";
	static const char *const key = "Policy has an invalid condition key";
	static const struct {
		const char *action, *resource, *key;
		const char *const *why; /* NULL: accepted */
	} cases[] = {
		{"\"s3:GetObject\"", "\"arn:aws:s3:::bkt/*\"", "s3:prefix", NULL},
		{"\"S3:getobject\"", "\"arn:aws:s3:::bkt*\"", "S3:Prefix", NULL},
		{"\"*\"", "\"arn:aws:s3:::bkt\"", "aws:PrincipalTag/A", NULL},
		{"\"s3:Get*\"", "\"arn:aws:s3:::bkt\"", "s3:ExistingObjectTag/a", NULL},
		{"\"s3:PutAnalyticsConfiguration\"", "\"*\"", "s3:TlsVersion", NULL},
		{"[\"s3:ListBucket\",\"s3:GetObject\"]",
			"\"arn:aws:s3:::bkt\",\"arn:aws:s3:::bkt/*\"", "aws:SourceIp", NULL},
		{"\"s3:GetObject\"", "\"arn:aws:s3:::${aws:username}/a\"", "aws:username", NULL},
		{"\"s3:GetObjekt\"", "\"arn:aws:s3:::bkt/*\"", "s3:prefix", &action},
		{"\"GetObject\"", "\"arn:aws:s3:::bkt/*\"", "s3:prefix", &action},
		{"\"ec2:*\"", "\"arn:aws:s3:::bkt/*\"", "s3:prefix", &action},
		{"[\"s3:GetObject\",\"s3:Foo*\"]", "\"arn:aws:s3:::bkt/*\"", "s3:prefix", &action},
		{"\"s3:GetObject\"", "\"arn:aws:s3:::bkt\"", "s3:prefix", &applies},
		{"\"s3:ListBucket\"", "\"arn:aws:s3:::bkt/*\"", "s3:prefix", &applies},
		{"[\"s3:ListBucket\",\"s3:GetObject\"]", "\"arn:aws:s3:::bkt/*\"", "s3:prefix",
			&applies},
		{"\"s3:ListAllMyBuckets\"", "\"arn:aws:s3:::bkt\"", "s3:prefix", &applies},
		{"\"s3:GetObject\"", "\"arn:aws:s3:::bkt2/*\"", "s3:prefix", &resource},
		{"\"s3:GetObject\"", "\"arn:aws:sqs:::bkt/*\"", "s3:prefix", &resource},
		{"\"s3:GetObject\"", "\"arn:aws:s3:mars-1:111:bkt/*\"", "s3:prefix", &resource},
		{"\"s3:GetObject\"", "\"arn:aws:s3:::?kt?*\",\"bkt\"", "s3:prefix", &resource},
		{"\"s3:GetObject\"", "\"arn:aws:s3:::bkt/*\"", "s3:prefiks", &key},
		{"\"s3:GetObject\"", "\"arn:aws:s3:::bkt/*\"", "prefix", &key},
		{"\"s3:GetObject\"", "\"arn:aws:s3:::bkt/*\"", "s3:ExistingObjectTag/", &key},
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		snprintf(text, sizeof(text), "\"Action\":%s", cases[i].action);
		assert_string_equal(put_to_bucket(text, cases[i].resource, cases[i].key),
			cases[i].why ? *cases[i].why : "");
	}
	assert_string_equal(put_to_bucket("\"NotAction\":\"s3:GetObject\"", "\"arn:aws:s3:::bkt\"",
				    "s3:prefix"),
		"");
	assert_string_equal(
		put_to_bucket("\"NotAction\":\"s3:Foo\"", "\"arn:aws:s3:::bkt\"", "s3:prefix"),
		action);
}

static void check_document(enum policy_kind kind, const char *statement, const char *why)
{
	struct policy_refusal refusal = {""};
	const struct policy *policy;
	char text[512];

	snprintf(text, sizeof(text), "{\"Statement\":{\"Effect\":\"Allow\",%s}}", statement);
	assert_int_equal(policy_compile(slice_str(text), kind, arena(), &policy, &refusal), 0);
	assert_int_equal(policy_check_document(policy, &refusal), why[0] ? -EINVAL : 0);
	if (!strstr(refusal.text, why))
		fail_msg("%s: %s", text, refusal.text);
}

static void test_policies_of_identities(void **state)
{
	static const char vendor[] = "must be prefaced by a vendor";

	(void)state;
	check_document(POLICY_IDENTITY, "\"Action\":\"*\",\"Resource\":\"*\"", "");
	/* Actions of services that are not implemented, and an unknown action of S3. */
	check_document(POLICY_IDENTITY, "\"Action\":[\"ec2:*\",\"s3:Foo\"],\"Resource\":\"*\"", "");
	check_document(POLICY_IDENTITY, "\"Action\":\"GetObject\",\"Resource\":\"*\"", vendor);
	check_document(POLICY_IDENTITY, "\"Action\":\"s3:\",\"Resource\":\"*\"", vendor);
	check_document(POLICY_IDENTITY, "\"Action\":\"*:GetObject\",\"Resource\":\"*\"", "vendor");
	check_document(POLICY_IDENTITY, "\"Action\":\"s3:*\",\"Resource\":\"bkt/*\"", "ARN");
	check_document(POLICY_IDENTITY,
		"\"Action\":\"s3:*\",\"Resource\":\"*\",\"Condition\":{\"Bool\":{\"a\":\"true\"}}",
		vendor);
	check_document(POLICY_TRUST, "\"Principal\":\"*\",\"Action\":\"sts:Assume*\"", "");
	check_document(POLICY_TRUST, "\"Principal\":\"*\",\"Action\":\"*\"", "STS AssumeRole");
	check_document(POLICY_TRUST,
		"\"Principal\":{\"AWS\":\"arn:aws:iam::1:user/*\"},\"Action\":\"sts:AssumeRole\"",
		"Invalid principal");
	check_document(POLICY_TRUST,
		"\"Principal\":{\"AWS\":\"arn:aws:s3:::a\"},\"Action\":\"sts:AssumeRole\"",
		"Invalid principal");
	check_document(
		POLICY_TRUST, "\"Principal\":\"*\",\"Action\":\"s3:GetObject\"", "STS AssumeRole");
}

/* ---- Patterns. ---- */

/* By its definition; for short texts. */
static bool fits(struct slice pattern, struct slice text)
{
	if (!pattern.len)
		return text.len == 0;
	if (pattern.data[0] == PATTERN_ANY)
		return fits(slice_from(pattern, 1), text) ||
		       (text.len && fits(pattern, slice_from(text, 1)));
	return text.len && (pattern.data[0] == PATTERN_ONE || pattern.data[0] == text.data[0]) &&
	       fits(slice_from(pattern, 1), slice_from(text, 1));
}

static void test_patterns_equal_their_definition(void **state)
{
	static const char letters[] = {'a', 'b', PATTERN_ANY, PATTERN_ONE};
	char pattern[8], marked[16], text[9], capitals[9];
	uint32_t fitting = 0;
	struct prng prng;

	(void)state;
	prng_seed(&prng, 17);
	for (uint32_t round = 0; round < 100000; round++) {
		size_t len = prng_below(&prng, sizeof(pattern) + 1);
		size_t text_len = prng_below(&prng, sizeof(text) + 1);
		uint64_t steps = POLICY_STEPS_MAX;
		size_t marked_len = 0;
		bool wanted;

		for (size_t i = 0; i < len; i++) {
			pattern[i] = letters[prng_below(&prng, sizeof(letters))];
			if (pattern[i] == 'a')
				marked[marked_len++] = PATTERN_LITERAL;
			marked[marked_len++] = pattern[i];
		}
		for (size_t i = 0; i < text_len; i++) {
			text[i] = letters[prng_below(&prng, 2)];
			capitals[i] = (char)(text[i] - 'a' + 'A');
		}
		wanted = fits(slice_of(pattern, len), slice_of(text, text_len));
		fitting += wanted;
		assert_int_equal(policy_glob(slice_of(pattern, len), slice_of(text, text_len),
					 false, &steps),
			wanted);
		assert_int_equal(policy_glob(slice_of(pattern, len), slice_of(capitals, text_len),
					 true, &steps),
			wanted);
		assert_int_equal(policy_glob(slice_of(marked, marked_len), slice_of(text, text_len),
					 false, &steps),
			wanted);
	}
	assert_in_range(fitting, 10000, 90000);
}

/* A long text, and a pattern that nearly fits at each place of it: in few steps where libc
 * searches, else not within those that are left. */
static void test_patterns_take_bounded_steps(void **state)
{
	static char pattern[8002], text[16000];
	uint64_t steps = POLICY_STEPS_MAX;

	(void)state;
	memset(pattern, 'a', sizeof(pattern));
	memset(text, 'a', sizeof(text));
	pattern[0] = PATTERN_ANY;
	pattern[sizeof(pattern) - 2] = 'b';
	pattern[sizeof(pattern) - 1] = PATTERN_ANY;
	assert_false(policy_glob(
		slice_of(pattern, sizeof(pattern)), slice_of(text, sizeof(text)), false, &steps));
	assert_in_range(steps, POLICY_STEPS_MAX - 100 * KIB, POLICY_STEPS_MAX - 1);
	pattern[1] = PATTERN_ONE;
	assert_false(policy_glob(
		slice_of(pattern, sizeof(pattern)), slice_of(text, sizeof(text)), false, &steps));
	assert_int_equal(steps, 0);
}

/* Nobody knows what such a policy says, so it denies, whatever its other statements allow. */
static void test_a_policy_of_too_many_steps_denies(void **state)
{
	static char text[9000], agent[16000];
	const char *const seen[] = {"aws:UserAgent", agent, NULL};
	int len = snprintf(text, sizeof(text),
		"{\"Version\":\"2012-10-17\",\"Statement\":["
		"{\"Effect\":\"Allow\",\"Action\":\"s3:*\","
		"\"Resource\":\"*\"},{\"Effect\":\"Deny\",\"Action\":\"s3:*\",\"Resource\":\"*\","
		"\"Condition\":{\"StringLike\":{\"aws:UserAgent\":\"*?");

	(void)state;
	memset(text + len, 'a', 8000);
	snprintf(text + len + 8000, sizeof(text) - (size_t)len - 8000, "b*\"}}}]}");
	memset(agent, 'a', sizeof(agent) - 1);
	facts = seen;
	assert_int_equal(ask(text, POLICY_IDENTITY, &alice, "s3:GetObject", "arn:aws:s3:::b/k"),
		POLICY_DECISION_DENY);
	agent[10] = '\0';
	assert_int_equal(ask(text, POLICY_IDENTITY, &alice, "s3:GetObject", "arn:aws:s3:::b/k"),
		POLICY_DECISION_ALLOW);
	facts = NULL;
}

#define KMS_KEY "s3:x-amz-server-side-encryption-aws-kms-key-id"

/* A key's id and any ARN of it are one name. */
static void test_kms_keys(void **state)
{
	static const char *const prod[] = {KMS_KEY, "prod", "aws:username", "prod", NULL};
	static const struct {
		const char *operator, * value;
		enum policy_decision decision;
	} all[] = {
		{"StringEquals", "prod", POLICY_DECISION_ALLOW},
		{"StringEquals", "arn:aws:kms:r:1:key/prod", POLICY_DECISION_ALLOW},
		{"ArnEquals", "arn:aws:kms:r:1:key/prod", POLICY_DECISION_ALLOW},
		{"ArnLike", "arn:aws:kms:*:*:key/pr*", POLICY_DECISION_ALLOW},
		{"StringLike", "*:key/prod", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:r:*", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:*", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:us-*", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:us-*:111122223333:*", POLICY_DECISION_ALLOW},
		/* The id is matched by what is left of the pattern. */
		{"StringLike", "arn:aws:kms:r:1:*/prod", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:*prod", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:r:1:*/other", POLICY_DECISION_NONE},
		{"StringLike", "arn:aws:kms:*other*", POLICY_DECISION_NONE},
		{"StringNotLike", "arn:aws:kms:r:1:*/prod", POLICY_DECISION_NONE},
		{"StringNotLike", "arn:aws:kms:r:1:*/other", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:us-east-1:111122223333:key*", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:*:*:key*", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:*:key*", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:*:111122223333*", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:*:111122223333:key*", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws-cn:kms:cn-north-?:*:*/p???", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:*key/*", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:*key/prod", POLICY_DECISION_ALLOW},
		{"StringLike", "arn:aws:kms:*key/other", POLICY_DECISION_NONE},
		{"StringLike", "arn:aws:kms:*:*:*/p??", POLICY_DECISION_NONE},
		{"StringNotLike", "arn:aws:kms:*:*:key*", POLICY_DECISION_NONE},
		{"ArnLike", "arn:aws:kms:*:*:*/${aws:username}", POLICY_DECISION_ALLOW},
		/* No ARN of a key. */
		{"StringLike", "arn:aws:kms:*:*:alias/team-*", POLICY_DECISION_NONE},
		{"StringNotLike", "arn:aws:kms:*:*:alias/team-*", POLICY_DECISION_ALLOW},
		{"ArnLike", "arn:aws:kms:*:alias*", POLICY_DECISION_NONE},
		{"StringLike", "arn:aws:s3:*", POLICY_DECISION_NONE},
		{"StringLike", "arn:aws:s3*", POLICY_DECISION_NONE},
		{"StringEquals", "arn:aws:kms:r:*", POLICY_DECISION_NONE},
		{"StringEquals", "arn:aws:kms:r:1:key/other", POLICY_DECISION_NONE},
		{"StringNotEquals", "arn:aws:kms:r:1:key/prod", POLICY_DECISION_NONE},
		{"ArnNotEquals", "arn:aws:kms:r:1:key/other", POLICY_DECISION_ALLOW},
	};
	char text[512];

	(void)state;
	facts = prod;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		snprintf(text, sizeof(text),
			STATEMENT("\"Condition\":{\"%s\":{\"" KMS_KEY "\":\"%s\"}}"),
			all[i].operator, all[i].value);
		assert_int_equal(
			ask(text, POLICY_IDENTITY, &alice, "s3:PutObject", "arn:aws:s3:::b/k"),
			all[i].decision);
	}
	facts = NULL;
	assert_true(slice_eq(policy_kms_key_id(SLICE("arn:aws:kms:r:1:key/k")), SLICE("k")));
	assert_true(slice_eq(policy_kms_key_id(SLICE("k:key/k")), SLICE("k:key/k")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_federated),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_actions_and_resources),
		cmocka_unit_test(test_values_are_no_wildcards),
		cmocka_unit_test(test_principals),
		cmocka_unit_test(test_conditions),
		cmocka_unit_test(test_many_values),
		cmocka_unit_test(test_public),
		cmocka_unit_test(test_public_by_address),
		cmocka_unit_test(test_public_by_other_keys),
		cmocka_unit_test(test_patterns_equal_their_definition),
		cmocka_unit_test(test_patterns_take_bounded_steps),
		cmocka_unit_test(test_a_policy_of_too_many_steps_denies),
		cmocka_unit_test(test_of_bucket),
		cmocka_unit_test(test_policies_of_buckets),
		cmocka_unit_test(test_policies_of_identities),
		cmocka_unit_test(test_kms_keys),
	};

	int failed;

	mem_arena_init(&memory);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	mem_arena_free(&memory);
	return failed;
}
