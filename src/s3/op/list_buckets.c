/* s3/op/list_buckets.c: ListBuckets, in pages when max-buckets asks for them. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/text.h"
#include "s3/operation.h"

#define BUCKETS_MAX	      10000u
#define DIRECTORY_BUCKETS_MAX 1000u

struct listing {
	struct buf xml;
	struct slice prefix;
	const char *owner;   /* only buckets of this owner */
	struct slice region; /* bucket-region: only these; empty: all */
	uint64_t count, count_max;
	bool directory; /* directory buckets, instead of the others */
	bool more;
	char last[LIMIT_BUCKET_LEN_MAX + 1];
};

static bool visit(const struct store_bucket *bucket, void *arg)
{
	struct listing *listing = arg;
	struct slice name = slice_str(bucket->name);

	if (!slice_starts(name, listing->prefix))
		/* Names are sorted: after the prefix the walk ends. */
		return slice_cmp(name, listing->prefix) < 0;
	/* The server's internal buckets have names that no request can use. */
	if (!(listing->directory ? s3_express_zone(name).len > 0 : s3_bucket_name_valid(name)) ||
		strcmp(bucket->owner, listing->owner) != 0)
		return true;
	if (listing->region.len && !slice_eq(slice_str(bucket->region), listing->region))
		return true;
	if (listing->count == listing->count_max) {
		listing->more = true;
		return false;
	}
	buf_put_str(&listing->xml, "<Bucket>");
	xml_element("Name", name, &listing->xml);
	s3_xml_time(&listing->xml, "CreationDate", bucket->created_ns);
	xml_element("BucketRegion", slice_str(bucket->region), &listing->xml);
	if (!listing->directory)
		buf_printf(&listing->xml, "<BucketArn>arn:aws:s3:::%s</BucketArn>", bucket->name);
	buf_put_str(&listing->xml, "</Bucket>");
	memcpy(listing->last, bucket->name, sizeof(listing->last));
	listing->count++;
	return true;
}

static const struct s3_error *parse_token(struct s3_call *call, char *after, size_t *ret_after_len)
{
	struct slice value;

	*ret_after_len = 0;
	if (s3_call_param(call, SLICE("continuation-token"), &value) &&
		base64_decode(value, after, LIMIT_BUCKET_LEN_MAX, ret_after_len))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The continuation token provided is incorrect");
	return NULL;
}

static const struct s3_error *parse(
	struct s3_call *call, struct listing *listing, char *after, size_t *ret_after_len)
{
	struct slice value;

	s3_call_param(call, SLICE("prefix"), &listing->prefix);
	s3_call_param(call, SLICE("bucket-region"), &listing->region);
	if (s3_call_param(call, SLICE("max-buckets"), &value) &&
		(slice_to_u64(value, &listing->count_max) || !listing->count_max ||
			listing->count_max > BUCKETS_MAX))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Argument max-buckets must be an integer between 1 and %u", BUCKETS_MAX);
	return parse_token(call, after, ret_after_len);
}

/* Writes the buckets after the given one, and the start of the next page. */
static const struct s3_error *page_put(
	struct s3_call *call, struct listing *listing, struct slice after)
{
	char token[BASE64_LEN(LIMIT_BUCKET_LEN_MAX)];
	int ret;

	buf_put_str(&listing->xml, "<Buckets>");
	ret = store_bucket_list(call->s3->store, after, visit, listing);
	if (ret) {
		buf_free(&listing->xml);
		return s3_fail_errno(call, ret);
	}
	buf_put_str(&listing->xml, "</Buckets>");
	/* An empty page has no entry to continue from. */
	if (listing->more && listing->count)
		xml_element("ContinuationToken",
			slice_of(token, base64_encode(listing->last, strlen(listing->last), token)),
			&listing->xml);
	return NULL;
}

const struct s3_error *s3_op_list_buckets(struct s3_call *call)
{
	struct listing listing = {.count_max = BUCKETS_MAX, .owner = s3_call_owner(call)->id};
	char after[LIMIT_BUCKET_LEN_MAX];
	const struct s3_error *error;
	size_t after_len;

	error = parse(call, &listing, after, &after_len);
	if (error)
		return error;
	s3_xml_begin(&listing.xml, "ListAllMyBucketsResult");
	s3_xml_owner(&listing.xml, "Owner", s3_call_owner(call));
	error = page_put(call, &listing, slice_of(after, after_len));
	if (error)
		return error;
	if (listing.prefix.len && utf8_is_valid(listing.prefix))
		xml_element("Prefix", listing.prefix, &listing.xml);
	s3_xml_end(&listing.xml, "ListAllMyBucketsResult");
	return s3_answer_xml(call, 200, &listing.xml);
}

const struct s3_error *s3_op_list_directory_buckets(struct s3_call *call)
{
	struct listing listing = {.count_max = DIRECTORY_BUCKETS_MAX,
		.owner = s3_call_owner(call)->id,
		.directory = true};
	char after[LIMIT_BUCKET_LEN_MAX];
	struct slice value = SLICE_NONE;
	const struct s3_error *error;
	size_t after_len;

	if (!call->s3->express)
		return s3_fail(call, S3_E_NOT_IMPLEMENTED, "Directory buckets are switched off.");
	if (s3_call_param(call, SLICE("max-directory-buckets"), &value) &&
		(slice_to_u64(value, &listing.count_max) ||
			listing.count_max > DIRECTORY_BUCKETS_MAX))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Argument max-directory-buckets must be an integer between 0 and %u",
			DIRECTORY_BUCKETS_MAX);
	error = parse_token(call, after, &after_len);
	if (error)
		return error;
	s3_xml_begin(&listing.xml, "ListAllMyDirectoryBucketsResult");
	error = page_put(call, &listing, slice_of(after, after_len));
	if (error)
		return error;
	s3_xml_end(&listing.xml, "ListAllMyDirectoryBucketsResult");
	return s3_answer_xml(call, 200, &listing.xml);
}
