/* s3/op_create_bucket.c: CreateBucket. The region a bucket is asked for is noted and told, nothing
 * else: this server is every region. */
#include <errno.h>

#include "s3/s3_priv.h"

static bool is_region(struct slice region)
{
	for (size_t i = 0; i < region.len; i++) {
		char c = region.data[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-')
			return false;
	}
	return region.len > 0 && region.len < sizeof(((struct store_bucket *)NULL)->region);
}

static const struct s3_error *parse_config(
	struct s3_call *call, struct slice body, struct slice *ret_region)
{
	struct s3_xml *root;
	struct slice region;
	int ret;

	*ret_region = SLICE_NONE;
	if (!body.len)
		return NULL;
	ret = s3_xml_parse(body, &call->arena, &root);
	if (ret == -ENOMEM)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (ret || !slice_eq(root->name, SLICE("CreateBucketConfiguration")))
		return s3_error_at(S3_E_MALFORMED_XML);
	if (s3_xml_child(root, "Bucket") || s3_xml_child(root, "Location"))
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"Directory buckets are not implemented by this server.");
	if (s3_xml_child(root, "Tags"))
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"Bucket tags are not implemented by this server.");
	region = slice_trim(s3_xml_text(root, "LocationConstraint"));
	if (region.len && !is_region(region))
		return s3_error_at(S3_E_INVALID_LOCATION);
	*ret_region = region;
	return NULL;
}

/* us-east-1 alone answers the owner's second create with success. */
static const struct s3_error *create_again(struct s3_call *call, const char *region)
{
	struct store_bucket existing;
	const struct s3_error *error = s3_call_bucket(call, &existing);

	if (error)
		return error;
	if (strcmp(existing.owner, s3_owner_id) != 0)
		return s3_error_at(S3_E_BUCKET_ALREADY_EXISTS);
	if (strcmp(existing.region, "us-east-1") != 0 || strcmp(region, "us-east-1") != 0)
		return s3_error_at(S3_E_BUCKET_ALREADY_OWNED);
	return NULL;
}

const struct s3_error *s3_op_create_bucket(struct s3_call *call)
{
	struct store_bucket bucket = {.created_ns = clock_real_ns()};
	struct slice body, region, path;
	const struct s3_error *error;
	struct s3_sums sums;
	char *location;
	int ret;

	error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_read_body(call, &sums, &body);
	if (!error)
		error = parse_config(call, body, &region);
	if (error)
		return error;
	slice_copy_str(call->bucket, bucket.name, sizeof(bucket.name));
	slice_copy_str(region.len ? region : slice_str(call->s3->region), bucket.region,
		sizeof(bucket.region));
	memcpy(bucket.owner, s3_owner_id, sizeof(bucket.owner));
	ret = store_bucket_create(call->s3->store, &bucket);
	if (ret == -EEXIST)
		error = create_again(call, bucket.region);
	else if (ret)
		error = s3_fail_errno(call, ret);
	if (error)
		return error;
	location = s3_arena_get(&call->arena, call->bucket.len + 1);
	if (location) {
		location[0] = '/';
		memcpy(location + 1, call->bucket.data, call->bucket.len);
		path = slice_of(location, call->bucket.len + 1);
		s3_answer_header(call, SLICE("Location"), path);
	}
	return s3_answer_empty(call, 200);
}
