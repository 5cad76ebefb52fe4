/* s3/op/restore_object.c: RestoreObject and GetObjectTorrent: this server archives nothing, so a
 * restore gets S3's error for an object that is not archived; it has no torrents, either. */
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/stored.h"
#include "s3/operation.h"

const struct s3_error *s3_op_restore_object(struct s3_call *call)
{
	const struct s3_error *error;
	struct store_get *get;

	error = s3_open_version(call, &get);
	if (error)
		return error;
	s3_fail_detail(call, "StorageClass", s3_meta_storage_class(store_get_meta(get)));
	store_get_close(get);
	return s3_fail(call, S3_E_INVALID_OBJECT_STATE,
		"Restore is not allowed for the object's current storage class");
}

const struct s3_error *s3_op_get_object_torrent(struct s3_call *call)
{
	const struct s3_error *error;
	struct store_get *get;

	error = s3_open_version(call, &get);
	if (error)
		return error;
	store_get_close(get);
	return s3_fail(call, S3_E_NO_SUCH_KEY,
		"This object has no torrent: the server does not support BitTorrent.");
}
