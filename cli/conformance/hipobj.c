/* cli/conformance/hipobj.c: one transfer of hipobj-rc-v2 (docs/spec/hipobj.md): its requests, its
 * queue pair, and the way back from both. */
#include "hipobj.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *name_of(enum hipobj_header header)
{
	return hipobj_header(header).data;
}

/* ---- Requests. ---- */

void hip_header(struct conf_request *request, const char *name, const char *value)
{
	struct neb_header *headers = request->headers;
	uint32_t at = 0, end;

	if (strcmp(name, name_of(HIPOBJ_H_TOKEN)) == 0) {
		request->token = value;
		return;
	}
	while (at < CONF_HEADERS_MAX && headers[at].name && strcmp(headers[at].name, name) != 0)
		at++;
	CHECK(at < CONF_HEADERS_MAX);
	headers[at] = (struct neb_header){name, value};
	if (value)
		return;
	for (end = at; end + 1 < CONF_HEADERS_MAX && headers[end + 1].name; end++)
		continue;
	headers[at] = headers[end];
	headers[end] = (struct neb_header){0};
}

static struct conf_request request_of(enum hipobj_step step)
{
	struct conf_request request = {.method = "POST", .path = hipobj_path(step).data};

	hip_header(&request, name_of(HIPOBJ_H_PROTOCOL), HIPOBJ_PROTOCOL);
	return request;
}

static void prepare_make(struct hip *hip, const char *op)
{
	struct conf_request *request = &hip->prepare;
	struct hipobj_token token = {.transport = HIPOBJ_TRANSPORT_RC,
		.qpn = hip->pair.ours.qpn,
		.lid = hip->pair.ours.lid,
		.port = 1};

	memcpy(token.gid, hip->pair.ours.gid, sizeof(token.gid));
	hipobj_token_format(&token, hip->token);
	snprintf(hip->psn, sizeof(hip->psn), "%06x", hip->pair.ours.psn);
	snprintf(hip->cookie_hex, sizeof(hip->cookie_hex), "%08x", hip->cookie);
	snprintf(hip->size, sizeof(hip->size), "%zu", hip->bytes);
	*request = request_of(HIPOBJ_PREPARE);
	request->token = hip->token;
	hip_header(request, name_of(HIPOBJ_H_PSN), hip->psn);
	hip_header(request, name_of(HIPOBJ_H_COOKIE), hip->cookie_hex);
	hip_header(request, name_of(HIPOBJ_H_OP), op);
	hip_header(request, name_of(HIPOBJ_H_TARGET), hip->target);
	hip_header(request, name_of(HIPOBJ_H_SIZE), hip->size);
}

bool hip_begin(struct hip *hip, struct conf *conf, const char *op, const char *key, size_t bytes)
{
	*hip = (struct hip){.conf = conf, .bytes = bytes};
	if (conf_pair_open(conf, &hip->pair))
		return false;
	random_fill(&hip->cookie, sizeof(hip->cookie));
	hip->cookie |= 1;
	snprintf(hip->target, sizeof(hip->target), "/%s/%s%s", conf->bucket, conf->prefix, key);
	prepare_make(hip, op);
	return true;
}

void hip_query(struct hip *hip, const char *query)
{
	size_t len = strlen(hip->target);

	snprintf(hip->target + len, sizeof(hip->target) - len, "?%s", query);
}

static void ready_make(struct hip *hip)
{
	struct conf_request *request = &hip->ready;

	*request = request_of(HIPOBJ_READY);
	snprintf(hip->qpn_hex, sizeof(hip->qpn_hex), "%x", hip->pair.ours.qpn);
	snprintf(hip->addr_hex, sizeof(hip->addr_hex), "%llx",
		(unsigned long long)(uintptr_t)conf_window_data(hip->conf));
	snprintf(hip->rkey_hex, sizeof(hip->rkey_hex), "%x", conf_device_rkey(hip->conf));
	hip_header(request, name_of(HIPOBJ_H_SESSION), hip->session);
	hip_header(request, name_of(HIPOBJ_H_COOKIE), hip->cookie_hex);
	hip_header(request, name_of(HIPOBJ_H_QPN), hip->qpn_hex);
	hip_header(request, name_of(HIPOBJ_H_ADDR), hip->addr_hex);
	hip_header(request, name_of(HIPOBJ_H_RKEY), hip->rkey_hex);
}

/* ---- PREPARE's answer. ---- */

static bool number_take(
	const struct conf_answer *answer, enum hipobj_header header, uint64_t max, uint64_t *ret)
{
	const char *text = conf_header(answer, name_of(header));

	return text && hipobj_hex_parse(slice_str(text), 16, ret) == 0 && *ret && *ret <= max;
}

static enum conf_verdict answer_take(struct hip *hip, const struct conf_answer *answer)
{
	struct conf *conf = hip->conf;
	const char *reply = conf_header(answer, name_of(HIPOBJ_H_REPLY));
	const char *session = conf_header(answer, name_of(HIPOBJ_H_SESSION));
	const char *protocol = conf_header(answer, name_of(HIPOBJ_H_PROTOCOL));
	uint8_t id[HIPOBJ_SESSION_BYTES];
	uint64_t psn, qpn, rkey;

	if (!session || hex_decode(slice_str(session), id, sizeof(id)))
		return conf_fail(conf, "x-amz-rdma-session is not 32 hexadecimal digits");
	snprintf(hip->session, sizeof(hip->session), "%s", session);
	if (!protocol || strcmp(protocol, HIPOBJ_PROTOCOL) != 0)
		return conf_fail(conf, "no x-amz-rdma-protocol: " HIPOBJ_PROTOCOL);
	if (!reply || hipobj_reply_parse(slice_str(reply), &hip->server))
		return conf_fail(conf, "x-amz-rdma-reply is no queue pair");
	if (!number_take(answer, HIPOBJ_H_PSN, HIPOBJ_NUMBER_MAX, &psn))
		return conf_fail(conf, "x-amz-rdma-psn is not of 24 bits above 0");
	if (!number_take(answer, HIPOBJ_H_QPN, HIPOBJ_NUMBER_MAX, &qpn) || qpn != hip->server.qpn)
		return conf_fail(conf, "x-amz-rdma-qpn is not the queue pair of the reply");
	hip->server_psn = (uint32_t)psn;
	if (!number_take(answer, HIPOBJ_H_ADDR, UINT64_MAX, &hip->addr) ||
		!number_take(answer, HIPOBJ_H_RKEY, UINT32_MAX, &rkey))
		hip->addr = rkey = 0;
	hip->rkey = (uint32_t)rkey;
	return CONF_PASS;
}

enum conf_verdict hip_prepare(struct hip *hip, const struct conf_want *want)
{
	static const uint8_t NONE[16] = {0};
	struct rp_address theirs = {0};
	struct conf_answer answer;
	enum conf_verdict verdict = conf_ask(hip->conf, &hip->prepare, want, &answer);
	bool opened = answer.status == 200;

	if (opened) {
		enum conf_verdict taken = answer_take(hip, &answer);

		verdict = verdict == CONF_PASS ? taken : verdict;
		opened = taken == CONF_PASS;
	}
	conf_answer_free(&answer);
	if (!opened)
		return verdict;
	theirs.qpn = hip->server.qpn;
	theirs.lid = hip->server.lid;
	theirs.psn = hip->server_psn;
	theirs.has_gid = memcmp(hip->server.gid, NONE, sizeof(NONE)) != 0;
	memcpy(theirs.gid, hip->server.gid, sizeof(theirs.gid));
	ready_make(hip);
	if (!conf_pair_join(hip->conf, &hip->pair, &theirs) && verdict == CONF_PASS)
		return CONF_ERROR;
	return verdict;
}

enum conf_verdict hip_open(struct hip *hip)
{
	const struct conf_want want = {.status = 200};

	return hip_prepare(hip, &want);
}

/* ---- READY and CANCEL. ---- */

enum conf_verdict hip_ready(
	struct hip *hip, const struct conf_want *want, struct conf_answer *ret_answer)
{
	return conf_ask(hip->conf, &hip->ready, want, ret_answer);
}

bool hip_write(struct hip *hip)
{
	const struct conf_place to = {
		.addr = hip->addr, .rkey = hip->rkey, .immediate = hip->cookie};

	return conf_pair_write(hip->conf, &hip->pair, hip->bytes, &to);
}

enum conf_verdict hip_cancel(struct hip *hip, uint32_t status)
{
	struct conf_request request = request_of(HIPOBJ_CANCEL);
	const struct conf_want want = {.status = status};

	hip_header(&request, name_of(HIPOBJ_H_SESSION), hip->session);
	hip_header(&request, name_of(HIPOBJ_H_COOKIE), hip->cookie_hex);
	request.by_other = hip->ready.by_other;
	return conf_ask(hip->conf, &request, &want, NULL);
}

/* Another case checks the answer. */
void hip_end(struct hip *hip)
{
	char why[CONF_WHY_BYTES];

	memcpy(why, hip->conf->why, sizeof(why));
	hip->ready.by_other = false;
	if (hip->session[0])
		hip_cancel(hip, 204);
	memcpy(hip->conf->why, why, sizeof(why));
	conf_pair_close(&hip->pair);
}
