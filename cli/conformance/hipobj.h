/* cli/conformance/hipobj.h: one transfer of hipobj-rc-v2, from PREPARE on; see hipobj.c. */
#ifndef CLI_CONFORMANCE_HIPOBJ_H
#define CLI_CONFORMANCE_HIPOBJ_H

#include "codec/codec.h"
#include "pair.h"

struct hip {
	struct conf *conf;
	struct conf_pair pair;
	size_t bytes;
	uint32_t cookie;
	/* PREPARE, whose headers a case may change before it is sent. */
	struct conf_request prepare;
	char token[HIPOBJ_TOKEN_LEN + 1], psn[9], cookie_hex[9], size[24], target[192];
	/* Its answer. */
	char session[2 * HIPOBJ_SESSION_BYTES + 1];
	struct hipobj_token server;
	uint32_t server_psn;
	uint64_t addr; /* PUT: of the staging memory */
	uint32_t rkey;
	/* READY, the same. */
	struct conf_request ready;
	char qpn_hex[17], addr_hex[17], rkey_hex[17];
};

/* Begins a transfer with a queue pair of its own; key is in the suite's bucket. False: conf->why
 * has the reason. The caller calls hip_end() in either case. */
bool hip_begin(struct hip *hip, struct conf *conf, const char *op, const char *key, size_t bytes);
/* Changes a header of a request; value NULL: removes it. */
void hip_header(struct conf_request *request, const char *name, const char *value);
void hip_query(struct hip *hip, const char *query);

/* Sends PREPARE; if the answer is 200, joins the queue pairs and fills in READY. */
enum conf_verdict hip_prepare(struct hip *hip, const struct conf_want *want);
/* The same; the expected answer is 200. */
enum conf_verdict hip_open(struct hip *hip);
/* Sends READY; ret_answer may be NULL. */
enum conf_verdict hip_ready(
	struct hip *hip, const struct conf_want *want, struct conf_answer *ret_answer);
/* Writes the bytes to the staging memory, with the cookie. Returns whether they arrived. */
bool hip_write(struct hip *hip);
enum conf_verdict hip_cancel(struct hip *hip, uint32_t status);
/* Cancels the session if it may still exist. */
void hip_end(struct hip *hip);

extern const struct conf_case CONF_HIP_PREPARE[], CONF_HIP_MOVE[], CONF_HIP_SESSION[];

#endif
