/* cli/conformance/suite.c: runs the table of cases: prepares the bucket, reports each verdict, and
 * cleans up. */
#include "hipobj.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct conf_case *const TABLES[] = {
	CONF_CONNECT,
	CONF_MOVE,
	CONF_STORE,
	CONF_REFUSE,
	CONF_DECLINE,
	CONF_FAIL_CASES,
};

static const struct conf_case *const HIPOBJ_TABLES[] = {
	CONF_HIP_PREPARE,
	CONF_HIP_MOVE,
	CONF_HIP_SESSION,
};

const struct conf_case *conf_case_at(bool hipobj, uint32_t idx)
{
	const struct conf_case *const *tables = hipobj ? HIPOBJ_TABLES : TABLES;
	size_t count = hipobj ? ARRAY_LEN(HIPOBJ_TABLES) : ARRAY_LEN(TABLES);

	for (size_t i = 0; i < count; i++)
		for (const struct conf_case *one = tables[i]; one->run; one++)
			if (idx-- == 0)
				return one;
	return NULL;
}

/* ---- The bucket. ---- */

static bool is_status(struct conf *conf, const struct conf_request *request, uint32_t status,
	uint32_t *ret_status)
{
	struct conf_answer answer;
	bool is = conf_send(conf, request, &answer) && answer.status == status;

	*ret_status = answer.status;
	if (!is && answer.status)
		conf_fail(conf, "%s of the bucket %s: status %u %s", request->method, conf->bucket,
			answer.status, conf_element(&answer, "Code"));
	conf_answer_free(&answer);
	return is;
}

/* The errno of a status; 0: no answer came. */
static int status_errno(uint32_t status)
{
	if (status == 0)
		return -ECONNREFUSED;
	return status == 401 || status == 403 ? -EACCES : -EIO;
}

static int bucket_open(struct conf *conf)
{
	const struct conf_request make = {.method = "PUT", .key = ""};
	uint64_t number;
	uint32_t status;

	random_fill(&number, sizeof(number));
	snprintf(conf->prefix, sizeof(conf->prefix), "conformance-%08x-", (uint32_t)number);
	if (conf->opts->bucket) {
		snprintf(conf->bucket, sizeof(conf->bucket), "%s", conf->opts->bucket);
		return 0;
	}
	snprintf(conf->bucket, sizeof(conf->bucket), "conformance-%016llx",
		(unsigned long long)number);
	return is_status(conf, &make, 200, &status) ? 0 : status_errno(status);
}

/* Removes the objects of the cases. */
static void bucket_close(struct conf *conf)
{
	static const char *const KEYS[] = {"object", "empty", "put", "summed", "md5", "kept",
		"described", "parts", "declined", "declined-parts", "absent"};
	const struct conf_request remove = {.method = "DELETE", .key = ""};
	uint32_t status;

	for (size_t i = 0; i < ARRAY_LEN(KEYS); i++) {
		const struct conf_request request = {.method = "DELETE", .key = KEYS[i]};

		is_status(conf, &request, 204, &status);
	}
	if (!conf->opts->bucket)
		is_status(conf, &remove, 204, &status);
}

/* ---- Before and after. ---- */

static int memory_open(struct conf *conf)
{
	uint64_t word = 0x9e3779b97f4a7c15;

	conf->memory = mmap(NULL, CONF_MEMORY_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (conf->memory == MAP_FAILED) {
		conf->memory = NULL;
		return -ENOMEM;
	}
	conf->object = malloc(CONF_OBJECT_BYTES);
	if (!conf->object)
		return -ENOMEM;
	for (uint32_t i = 0; i < CONF_OBJECT_BYTES; i++) {
		word = word * 6364136223846793005u + 1442695040888963407u;
		conf->object[i] = (uint8_t)(word >> 56);
		/* An object never contains the byte of cleared memory. */
		conf->object[i] ^= conf->object[i] == 0xa5;
	}
	return 0;
}

static int minter_open(struct conf *conf)
{
	const struct neb_options options = {.endpoints = conf->opts->endpoint,
		.access_key = conf->opts->keys.access,
		.secret_key = conf->opts->keys.secret,
		.region = conf->opts->region,
		.device_name = conf->opts->device_name};
	int ret = neb_minter_open(&options, &conf->minter);

	if (ret) {
		conf_fail(conf, "no RDMA device for tokens: %s", strerror(-ret));
		return ret;
	}
	ret = neb_minter_register(conf->minter, conf->memory, CONF_MEMORY_BYTES);
	return ret ? ret : neb_minter_available(conf->minter, conf->why, sizeof(conf->why));
}

static int conf_open(struct conf *conf)
{
	int ret = memory_open(conf);

	if (ret == 0)
		ret = conf_sender_open(conf->opts, &conf->sender);
	if (ret == 0)
		ret = conf->opts->hipobj ? conf_device_open(conf) : minter_open(conf);
	return ret;
}

/* Whether the endpoint supports PREPARE, of any object. */
static int hipobj_available(struct conf *conf)
{
	const struct conf_want want = {0};
	struct conf_answer answer = {0};
	int ret = -EIO;
	struct hip hip;

	if (hip_begin(&hip, conf, "GET", "absent", 1) &&
		conf_ask(conf, &hip.prepare, &want, &answer) == CONF_PASS) {
		ret = 0;
		if (answer.status != 200 &&
			strcmp(conf_element(&answer, "Code"), "NoSuchKey") != 0) {
			ret = -EOPNOTSUPP;
			conf_fail(conf, "it does not speak " HIPOBJ_PROTOCOL ": status %u %s",
				answer.status, conf_element(&answer, "Code"));
		}
		conf_answer_free(&answer);
	}
	hip_end(&hip);
	return ret;
}

static void conf_close(struct conf *conf)
{
	neb_minter_close(conf->minter);
	conf_device_close(conf);
	conf_sender_close(conf->sender);
	free(conf->object);
	if (conf->memory)
		munmap(conf->memory, CONF_MEMORY_BYTES);
}

/* ---- The cases. ---- */

static bool is_wanted(const struct conf *conf, const struct conf_case *one)
{
	char number[8];

	snprintf(number, sizeof(number), "%u", one->number);
	return !conf->opts->only ||
	       strncmp(number, conf->opts->only, strlen(conf->opts->only)) == 0;
}

static void totals_add(struct conf_totals *totals, enum conf_verdict verdict)
{
	switch (verdict) {
	case CONF_PASS:
		totals->passed++;
		break;
	case CONF_FAIL:
		totals->failed++;
		break;
	case CONF_UNSUPPORTED:
		totals->unsupported++;
		break;
	case CONF_ERROR:
		totals->errors++;
		break;
	}
}

static void cases_run(
	struct conf *conf, conf_report_fn *report, void *arg, struct conf_totals *totals)
{
	const struct conf_case *one;

	for (uint32_t idx = 0; (one = conf_case_at(conf->opts->hipobj, idx)) != NULL; idx++) {
		enum conf_verdict verdict = CONF_ERROR;

		if (!is_wanted(conf, one))
			continue;
		conf->why[0] = '\0';
		if (conf_object_put(conf, "object", conf->object, CONF_OBJECT_BYTES))
			verdict = one->run(conf);
		totals_add(totals, verdict);
		report(arg, one, verdict, verdict == CONF_PASS ? "" : conf->why);
	}
}

int conf_run(const struct conf_opts *opts, conf_report_fn *report, void *arg,
	struct conf_totals *ret_totals, char ret_why[CONF_WHY_BYTES])
{
	struct conf conf = {.opts = opts};
	int ret = conf_open(&conf);

	*ret_totals = (struct conf_totals){0};
	if (ret == 0)
		ret = bucket_open(&conf);
	if (ret == 0) {
		if (opts->hipobj)
			ret = hipobj_available(&conf);
		if (ret == 0)
			cases_run(&conf, report, arg, ret_totals);
		memcpy(ret_why, conf.why, sizeof(conf.why));
		bucket_close(&conf);
	} else {
		memcpy(ret_why, conf.why, sizeof(conf.why));
	}
	conf_close(&conf);
	return ret;
}
