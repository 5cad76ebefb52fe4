/* rados/counters.h: the driver's counters; also in a program that was built without the driver, so
 * that every program has the same metrics. */
#ifndef RADOS_COUNTERS_H
#define RADOS_COUNTERS_H

#include "base/base.h"

#define RV_OPERATIONS_HELP "Operations on objects in RADOS."
#define RV_COPIED_HELP \
	"Bytes that librados copies: what is written into its own memory, what is read out of it."

DEFINE_COUNTER(failures, "nebulaio_rados_failures_total", NULL,
	"Operations on objects that Ceph did not do in time, or refused.");
DEFINE_COUNTER(reads, "nebulaio_rados_operations_total", "op=\"read\"", RV_OPERATIONS_HELP);
DEFINE_COUNTER(writes, "nebulaio_rados_operations_total", "op=\"write\"", RV_OPERATIONS_HELP);
DEFINE_COUNTER(discards, "nebulaio_rados_operations_total", "op=\"discard\"", RV_OPERATIONS_HELP);
DEFINE_COUNTER(copied_out, "nebulaio_rados_copied_bytes_total", "op=\"write\"", RV_COPIED_HELP);
DEFINE_COUNTER(copied_in, "nebulaio_rados_copied_bytes_total", "op=\"read\"", RV_COPIED_HELP);

#endif
