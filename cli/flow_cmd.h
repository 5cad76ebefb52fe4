/* cli/flow_cmd.h: what the files of `nebulaio flow` share: the text forms of sources and rules,
 * names of bodies, and the sink that uploads. */
#ifndef CLI_FLOW_CMD_H
#define CLI_FLOW_CMD_H

#include "flow/ingest.h"
#include "remote.h"

/* "xdp:IFACE,option,…". */
struct flow_spec {
	char interface[64];
	struct xp_opts port; /* its interface is the one above */
	struct xp_rule rules[FILTER_RULES_MAX];
	uint32_t rule_count;
};
#define FLOW_WHY_BYTES 256u
/* False with the reason. */
bool flow_spec_parse(const char *text, struct flow_spec *ret_spec, char why[FLOW_WHY_BYTES]);
/* A file with a rule a line: count, drop, pass or redirect, then what it matches. */
bool flow_rules_load(const char *path, struct flow_spec *spec, char why[FLOW_WHY_BYTES]);

/* The name of a body that begins now: strftime's conversions in UTC, %t for 20260102T030405Z, %n
 * for the number of the body. False: too long. */
bool flow_name(const char *pattern, uint64_t real_ns, uint32_t number, char *out, size_t out_bytes);

/* Uploads: one thread with a client of libnebulaio, to which the region's memory is registered. */
struct flow_s3;
/* An exit code; said why. */
int flow_s3_open(
	const struct remote_opts *opts, struct region *region, struct flow_s3 **ret_uploads);
void flow_s3_close(struct flow_s3 *uploads); /* takes NULL; no sink open */
/* An object: one request when it is short, else a multipart upload of parts taken from the pieces'
 * own frames, aborted when the flow fails. */
int flow_s3_sink_open(struct flow_s3 *uploads, struct flow_core *core, const char *bucket,
	const char *key, struct flow_sink **ret_sink);
/* How requests went: rdma or http; bytes that the client copied. */
const char *flow_s3_transport(const struct flow_s3 *uploads);
uint64_t flow_s3_copied(const struct flow_s3 *uploads);

#endif
