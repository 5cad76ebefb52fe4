/* cli/conformance/hipobj_session.c: rules 9xx: the owner and the duration of a session of
 * hipobj-rc-v2, and the memory that its key gives access to. */
#include "hipobj.h"

#include <stdio.h>
#include <string.h>

#define PUT_BYTES 4096u

static const struct conf_want GONE = {.status = 404, .code = "NoSuchRDMASession"};

static enum conf_verdict open(struct hip *hip, struct conf *conf, const char *op, const char *key)
{
	if (!hip_begin(hip, conf, op, key, PUT_BYTES))
		return CONF_ERROR;
	conf_memory_clear(conf);
	return hip_open(hip);
}

static enum conf_verdict serves_once(struct conf *conf)
{
	const struct conf_want want = {.status = 200};
	struct hip hip;
	enum conf_verdict verdict = open(&hip, conf, "GET", "object");

	if (verdict == CONF_PASS && !conf_pair_receive(conf, &hip.pair))
		verdict = CONF_ERROR;
	if (verdict == CONF_PASS)
		verdict = hip_ready(&hip, &want, NULL);
	if (verdict == CONF_PASS)
		verdict = hip_ready(&hip, &GONE, NULL);
	hip_end(&hip);
	return verdict;
}

/* READY with one header changed. */
static enum conf_verdict ready_with(
	struct conf *conf, const char *name, const char *value, const struct conf_want *want)
{
	struct hip hip;
	enum conf_verdict verdict = open(&hip, conf, "GET", "object");

	if (verdict == CONF_PASS && !conf_pair_receive(conf, &hip.pair))
		verdict = CONF_ERROR;
	if (verdict == CONF_PASS) {
		hip_header(&hip.ready, name, value);
		verdict = hip_ready(&hip, want, NULL);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict unknown(struct conf *conf)
{
	return ready_with(conf, "x-amz-rdma-session", "00000000000000000000000000000000", &GONE);
}

static enum conf_verdict other_cookie(struct conf *conf)
{
	const struct conf_want want = {.status = 403, .code = "AccessDenied"};

	return ready_with(conf, "x-amz-rdma-cookie", "00000002", &want);
}

static enum conf_verdict other_pair(struct conf *conf)
{
	const struct conf_want want = {.status = 400, .code = "InvalidRDMARequest"};

	return ready_with(conf, "x-amz-rdma-qpn", "fffffe", &want);
}

static enum conf_verdict no_pair(struct conf *conf)
{
	const struct conf_want want = {.status = 200};

	return ready_with(conf, "x-amz-rdma-qpn", NULL, &want);
}

static enum conf_verdict cancels(struct conf *conf)
{
	struct hip hip;
	enum conf_verdict verdict = open(&hip, conf, "PUT", "absent");

	for (int i = 0; i < 2 && verdict == CONF_PASS; i++)
		verdict = hip_cancel(&hip, 204);
	if (verdict == CONF_PASS)
		verdict = hip_ready(&hip, &GONE, NULL);
	hip_end(&hip);
	return verdict;
}

/* Once CANCEL is answered, the client relies on the end of the session: the old key must give
 * access to nothing. */
static enum conf_verdict late_write(struct conf *conf)
{
	struct hip hip;
	enum conf_verdict verdict = open(&hip, conf, "PUT", "absent");

	if (verdict == CONF_PASS)
		verdict = hip_cancel(&hip, 204);
	if (verdict == CONF_PASS && hip_write(&hip))
		verdict = conf_fail(
			conf, "a write to the staging memory of an ended session arrived");
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict others_key(struct conf *conf)
{
	struct hip one, two;
	enum conf_verdict verdict = open(&one, conf, "PUT", "absent");

	if (verdict == CONF_PASS)
		verdict = open(&two, conf, "PUT", "absent");
	else
		two = (struct hip){.conf = conf};
	one.addr = two.addr;
	one.rkey = two.rkey;
	if (verdict == CONF_PASS && hip_write(&one))
		verdict = conf_fail(
			conf, "one session's key opens its memory to another's queue pair");
	hip_end(&two);
	hip_end(&one);
	return verdict;
}

static enum conf_verdict outside(struct conf *conf)
{
	static const int64_t BEFORE[] = {0, 1};
	enum conf_verdict verdict = CONF_PASS;

	/* Writes one byte past the end, and one before the beginning. */
	for (size_t i = 0; i < ARRAY_LEN(BEFORE) && verdict == CONF_PASS; i++) {
		struct hip hip;

		verdict = open(&hip, conf, "PUT", "absent");
		hip.addr -= (uint64_t)BEFORE[i];
		hip.bytes += 1;
		if (verdict == CONF_PASS && hip_write(&hip))
			verdict = conf_fail(conf, "a write past the staging memory arrived");
		hip_end(&hip);
	}
	return verdict;
}

static enum conf_verdict not_anothers(struct conf *conf)
{
	struct hip hip;
	enum conf_verdict verdict;

	if (!conf->opts->other.access)
		return conf_unsupported(conf, "not tried: it needs --other-access-key");
	verdict = open(&hip, conf, "GET", "object");
	if (verdict == CONF_PASS && !conf_pair_receive(conf, &hip.pair))
		verdict = CONF_ERROR;
	hip.ready.by_other = true;
	if (verdict == CONF_PASS)
		verdict = hip_ready(&hip, &GONE, NULL);
	if (verdict == CONF_PASS)
		verdict = hip_cancel(&hip, 204);
	hip.ready.by_other = false;
	if (verdict == CONF_PASS) {
		const struct conf_want want = {.status = 200};

		verdict = hip_ready(&hip, &want, NULL);
	}
	hip_end(&hip);
	return verdict;
}

static enum conf_verdict new_for_each(struct conf *conf)
{
	struct hip one, two;
	enum conf_verdict verdict = open(&one, conf, "GET", "object");

	if (verdict == CONF_PASS)
		verdict = open(&two, conf, "GET", "object");
	else
		two = (struct hip){.conf = conf};
	if (verdict == CONF_PASS && strcmp(one.session, two.session) == 0)
		verdict = conf_fail(conf, "two PREPAREs have one session");
	hip_end(&two);
	hip_end(&one);
	return verdict;
}

const struct conf_case CONF_HIP_SESSION[] = {
	{901, "A session serves one READY: a second one is answered 404 NoSuchRDMASession.",
		serves_once},
	{902, "READY of a session that there is not is answered 404 NoSuchRDMASession.", unknown},
	{903, "READY with another cookie than the session's is refused with 403 AccessDenied.",
		other_cookie},
	{904,
		"READY with another queue pair than the session's is refused with 400 "
		"InvalidRDMARequest.",
		other_pair},
	{905, "READY may leave the queue pair out.", no_pair},
	{906, "CANCEL ends a session and is answered 204, also when there is none.", cancels},
	{907, "After CANCEL a write to the staging memory fails.", late_write},
	{908, "A session's key opens the staging memory to its own queue pair only.", others_key},
	{909, "A write outside of the staging memory fails.", outside},
	{910, "A session belongs to the access key of its PREPARE.", not_anothers},
	{911, "Each PREPARE has a session of its own.", new_for_each},
	{0},
};
