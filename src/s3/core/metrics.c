/* s3/core/metrics.c: counts requests in progress, answers by operation and status class, durations
 * by operation and transport, and body bytes by transport. */
#include "s3/core/call.h"

DEFINE_COUNTER(in_flight, "nebulaio_s3_requests_in_flight", NULL,
	"S3 requests in progress, over every transport.");

#define CLASS_COUNT 4u /* 2xx to 5xx */

#define CLASS_COUNTER(operation, status)                                        \
	{                                                                       \
		.name = "nebulaio_s3_requests_total",                           \
		.labels = "operation=\"" operation "\",status=\"" status "\"",  \
		.help = "S3 requests answered, by operation and status class.", \
	}

static struct counter counters[S3_OPERATION_COUNT][CLASS_COUNT] = {
#define OPERATION(id, name, handler, ...)                                              \
	[S3_OPERATION_##id] = {CLASS_COUNTER(name, "2xx"), CLASS_COUNTER(name, "3xx"), \
		CLASS_COUNTER(name, "4xx"), CLASS_COUNTER(name, "5xx")},
#include "s3/s3_operation_table.inc"
};

enum transport {
	TRANSPORT_HTTP,
	TRANSPORT_HTTPS,
	TRANSPORT_TOKEN,
	TRANSPORT_RDMA,
	TRANSPORT_COUNT
};

#define DURATION(operation, transport)                                                      \
	{                                                                                   \
		.name = "nebulaio_s3_request_duration_seconds",                             \
		.labels = "operation=\"" operation "\",transport=\"" transport "\"",        \
		.help = "Time from a request's complete head to the end of its answer, by " \
			"operation and transport; only combinations that occurred.",        \
	}

static struct counter_hist durations[S3_OPERATION_COUNT][TRANSPORT_COUNT] = {
#define OPERATION(id, name, handler, ...)                                       \
	[S3_OPERATION_##id] = {DURATION(name, "http"), DURATION(name, "https"), \
		DURATION(name, "rdma-token"), DURATION(name, "rdma")},
#include "s3/s3_operation_table.inc"
};

#define BODY_BYTES(direction, transport)                                                    \
	{                                                                                   \
		.name = "nebulaio_s3_body_bytes_total",                                     \
		.labels = "direction=\"" direction "\",transport=\"" transport "\"",        \
		.help = "Bytes of request and answer bodies, without heads, by transport.", \
	}

static struct counter received[TRANSPORT_COUNT] = {BODY_BYTES("in", "http"),
	BODY_BYTES("in", "https"), BODY_BYTES("in", "rdma-token"), BODY_BYTES("in", "rdma")};
static struct counter sent[TRANSPORT_COUNT] = {BODY_BYTES("out", "http"),
	BODY_BYTES("out", "https"), BODY_BYTES("out", "rdma-token"), BODY_BYTES("out", "rdma")};

__attribute__((constructor)) static void register_counters(void)
{
	for (uint32_t i = 0; i < S3_OPERATION_COUNT; i++) {
		for (uint32_t class = 0; class < CLASS_COUNT; class ++)
			counter_register(&counters[i][class]);
		for (uint32_t transport = 0; transport < TRANSPORT_COUNT; transport++)
			counter_hist_register(&durations[i][transport]);
	}
	for (uint32_t transport = 0; transport < TRANSPORT_COUNT; transport++) {
		counter_register(&received[transport]);
		counter_register(&sent[transport]);
	}
}

/* Looks up by first letter and length, because every request ends here. */
static enum transport transport_of(const char *name)
{
	if (name[0] == 'r')
		return name[4] ? TRANSPORT_TOKEN : TRANSPORT_RDMA;
	return name[4] ? TRANSPORT_HTTPS : TRANSPORT_HTTP;
}

void s3_metrics_begin(void)
{
	counter_add(&in_flight, 1);
}

void s3_metrics_end(const struct s3_call *call)
{
	enum s3_operation_id id = call->operation->id;
	enum transport transport = transport_of(call->request->transport);
	uint32_t status = call->reply->status;

	counter_hist_add(&durations[id][transport], s3_call_age_ns(call));
	counter_add(&received[transport], call->received_bytes);
	counter_add(&sent[transport], call->sent_bytes);
	if (status >= 200 && status < 600)
		counter_add(&counters[id][status / 100 - 2], 1);
	counter_sub(&in_flight, 1); /* last: with none in flight, all are counted */
}
