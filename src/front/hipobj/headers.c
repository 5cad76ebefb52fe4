/* front/hipobj/headers.c: which headers of a control request apply to its operation. A condition or
 * a checksum that would not apply is refused: without it the operation would overwrite or store
 * what its client meant to protect. */
#include "front/hipobj/hipobj_priv.h"

#include "codec/via.h"

bool hipobj_is_of_message(struct slice name)
{
	static const struct slice names[] = {SLICE("authorization"), SLICE("host"), SLICE("date"),
		SLICE("x-amz-date"), SLICE("x-amz-content-sha256"), SLICE("x-amz-security-token"),
		SLICE("x-amz-s3session-token"), SLICE("user-agent"), SLICE("referer")};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (slice_eq_nocase(name, names[i]))
			return true;
	return false;
}

static struct slice header_find(const struct s3_request *message, struct slice name)
{
	for (uint32_t i = 0; i < message->header_count; i++)
		if (slice_eq_nocase(message->headers[i].name, name))
			return message->headers[i].value;
	return SLICE_NONE;
}

/* Whether the message's signature covers the header, by the list of signed headers. s3 verifies the
 * signature over them. */
static bool is_signed(const struct s3_request *message, struct slice name)
{
	static const struct slice LIST = SLICE("SignedHeaders=");
	struct slice rest = header_find(message, SLICE("authorization"));
	ptrdiff_t at = slice_find(rest, LIST);

	if (at < 0)
		return false;
	rest = slice_from(rest, (size_t)at + LIST.len);
	rest = slice_split(&rest, ',');
	while (rest.len)
		if (slice_eq_nocase(slice_trim(slice_split(&rest, ';')), name))
			return true;
	return false;
}

/* The operation fails by it; but for the x-amz- checksums, which are signed like all x-amz-. */
static bool is_check(struct slice name)
{
	return slice_eq_nocase(slice_to(name, 3), SLICE("if-")) ||
	       slice_eq_nocase(name, SLICE("content-md5"));
}

static bool is_own(struct slice name)
{
	return slice_eq_nocase(slice_to(name, 11), SLICE("x-nebulaio-")) &&
	       !slice_eq_nocase(slice_to(name, 16), SLICE("x-nebulaio-rdma-")) &&
	       !slice_eq_nocase(name, SLICE(VIA_HEADER));
}

/* A proxy, or the library that sent the POST, may have added headers of HTTP, so only signed ones
 * apply. Nobody adds those of S3 or ours by the way. */
bool hipobj_counts(const struct s3_request *message, struct slice name)
{
	static const struct slice others[] = {SLICE("content-type"), SLICE("content-encoding"),
		SLICE("content-language"), SLICE("content-disposition"), SLICE("cache-control"),
		SLICE("expires")};

	if (slice_eq_nocase(slice_to(name, 6), SLICE("x-amz-")))
		return !slice_eq_nocase(slice_to(name, 11), SLICE("x-amz-rdma-")) &&
		       !hipobj_is_of_message(name);
	if (is_own(name) || is_check(name))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (slice_eq_nocase(name, others[i]))
			return is_signed(message, name);
	return false;
}

const char *hipobj_prepare_wrong(const struct s3_request *message)
{
	for (uint32_t i = 0; i < message->header_count; i++)
		if (is_check(message->headers[i].name) &&
			!is_signed(message, message->headers[i].name))
			return "A condition (If-…) and Content-MD5 must be signed.";
	return NULL;
}

static bool is_kept(const struct hipobj_session *session, const struct s3_header *header)
{
	for (uint32_t i = 0; i < session->header_count; i++)
		if (slice_eq_nocase(session->headers[i].name, header->name) &&
			slice_eq(session->headers[i].value, header->value))
			return true;
	return false;
}

const char *hipobj_ready_adds(
	const struct s3_request *message, const struct hipobj_session *session)
{
	for (uint32_t i = 0; i < message->header_count; i++) {
		const struct s3_header *header = &message->headers[i];
		enum checksum_kind kind;

		if ((is_check(header->name) || checksum_kind_of_header(header->name, &kind) == 0) &&
			!is_kept(session, header))
			return "Conditions and checksums go with PREPARE: READY cannot add one.";
	}
	return NULL;
}
