/* s3/core/error.c: the records of the error table, and the only mapping from errno to S3 codes. */
#include <errno.h>

#include "s3/core/call.h"

static const struct s3_error errors[S3_E_COUNT] = {
#define ERROR(id, error_code, error_status, error_message) \
	[S3_E_##id] = {.code = error_code, .status = error_status, .message = error_message},
#include "s3/core/error_table.inc"
#undef ERROR
};

const struct s3_error *s3_error_at(enum s3_error_id id)
{
	CHECK(id < S3_E_COUNT);
	return &errors[id];
}

const struct s3_error *s3_error_named(const char *code)
{
	for (size_t i = 0; i < S3_E_COUNT; i++)
		if (strcmp(errors[i].code, code) == 0)
			return &errors[i];
	return NULL;
}

/* The client's error for each errno. EBADMSG means that chunk signatures of a body do not verify; a
 * failed verification on the volume is EIO here. */
static const struct {
	int error;
	enum s3_error_id id;
} by_errno[] = {
	{ENOENT, S3_E_NO_SUCH_KEY},
	{EEXIST, S3_E_BUCKET_ALREADY_EXISTS},
	{ENOTEMPTY, S3_E_BUCKET_NOT_EMPTY},
	{ENOSPC, S3_E_INSUFFICIENT_STORAGE},
	{EDQUOT, S3_E_QUOTA_EXCEEDED},
	{EFBIG, S3_E_ENTITY_TOO_LARGE},
	{EMSGSIZE, S3_E_ENTITY_TOO_LARGE},
	{ENAMETOOLONG, S3_E_KEY_TOO_LONG},
	{EINVAL, S3_E_INVALID_ARGUMENT},
	{EACCES, S3_E_ACCESS_DENIED},
	{EPIPE, S3_E_INCOMPLETE_BODY},
	{ECONNRESET, S3_E_INCOMPLETE_BODY},
	{EPROTO, S3_E_INCOMPLETE_BODY},
	{EBADMSG, S3_E_SIGNATURE_DOES_NOT_MATCH},
	{ETIMEDOUT, S3_E_REQUEST_TIMEOUT},
	{EAGAIN, S3_E_SLOW_DOWN},
	{ENOBUFS, S3_E_SLOW_DOWN},
	{ENOMEM, S3_E_SLOW_DOWN},
	{EHOSTDOWN, S3_E_VOLUMES_LOST},
	{ESHUTDOWN, S3_E_SERVICE_UNAVAILABLE},
	{EOPNOTSUPP, S3_E_NOT_IMPLEMENTED},
};

const struct s3_error *s3_error_of(int error)
{
	if (error < 0)
		error = -error;
	for (size_t i = 0; i < sizeof(by_errno) / sizeof(by_errno[0]); i++)
		if (by_errno[i].error == error)
			return &errors[by_errno[i].id];
	return &errors[S3_E_INTERNAL];
}
