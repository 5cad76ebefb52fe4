/* s3/metrics.c: requests that are worked on, and those answered by operation and status class. */
#include "s3/s3_priv.h"

DEFINE_COUNTER(in_flight, "nebulaio_s3_requests_in_flight", NULL,
	"S3 requests that are being read, worked on or answered now, over every transport.");

#define CLASS_COUNT 4u /* 2xx to 5xx */

#define CLASS_COUNTER(operation, status)                                        \
	{                                                                       \
		.name = "nebulaio_s3_requests_total",                           \
		.labels = "operation=\"" operation "\",status=\"" status "\"",  \
		.help = "S3 requests answered, by operation and status class.", \
	}

static struct counter counters[S3_OPERATION_COUNT][CLASS_COUNT] = {
#define OPERATION(id, name, run, action)                                               \
	[S3_OPERATION_##id] = {CLASS_COUNTER(name, "2xx"), CLASS_COUNTER(name, "3xx"), \
		CLASS_COUNTER(name, "4xx"), CLASS_COUNTER(name, "5xx")},
#include "s3/s3_operation_table.inc"
#undef OPERATION
};

__attribute__((constructor)) static void register_counters(void)
{
	for (uint32_t i = 0; i < S3_OPERATION_COUNT; i++)
		for (uint32_t class = 0; class < CLASS_COUNT; class ++)
			counter_register(&counters[i][class]);
}

void s3_metrics_begin(void)
{
	counter_add(&in_flight, 1);
}

void s3_metrics_end(enum s3_operation_id id, uint32_t status)
{
	counter_sub(&in_flight, 1);
	if (status >= 200 && status < 600)
		counter_add(&counters[id][status / 100 - 2], 1);
}
