/* s3/object/lease.c: decides which bodies may be leased: those that this identity may read under
 * any conditions, and that need no decryption. docs/design/lease.md. */
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/object/object.h"
#include "s3/origin.h"
#include "s3/sse/sse.h"

uint64_t s3_lease_epoch(const struct s3 *s3)
{
	return store_rights_epoch(s3->store);
}

void s3_lease_end(struct s3 *s3, struct store_object_watch *watch)
{
	store_object_watch_end(s3->store, watch);
}

/* A request with conditions may get another result the next time; the server must see every read
 * that it logs. */
static bool may_lease(struct s3_call *call, const struct s3_read *read)
{
	const struct s3_settings *settings;
	const struct s3_origin *origin;

	if (call->conditional || call->session_bucket.len || call->request->header_count ||
		call->params.count || read->sse || read->status != 200 ||
		read->meta->checksum_flags & S3_FLAG_ENCRYPTED)
		return false;
	if (s3_call_settings(call, &settings) || !settings || settings->parsed[S3_CONFIG_LOGGING])
		return false;
	/* Or compare it with its origin. */
	origin = settings->parsed[S3_CONFIG_ORIGIN];
	return !origin || !origin->revalidate_s;
}

void s3_lease_offer(struct s3_call *call, const struct s3_read *read)
{
	struct s3_lease *lease = call->request->lease;
	struct region_span span;
	struct store_object_watch *watch;
	struct slice body;

	if (!read->bytes || read->bytes > MIN(lease->bytes_max, (uint64_t)STORE_CHUNK_BYTES) ||
		!may_lease(call, read))
		return;
	/* A body that is not in memory yet is offered at the next read. */
	if (!store_get_held(read->get, &body, &span))
		return;
	watch = lease->copy(lease, body);
	if (watch && store_object_watch_begin(read->get, watch, lease->epoch))
		lease->stale(lease);
	if (span.data)
		region_put(call->request->core->region, span, OWNER_CACHE);
}
