/* s3/op/create_bucket.c: CreateBucket. The region of the request is stored and returned, and has no
 * other effect: this server accepts every region. */
#include <errno.h>

#include "iam/iam.h"
#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/auth/auth.h"
#include "s3/bucket/memory.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/names.h"
#include "s3/core/settings.h"
#include "s3/core/tags.h"
#include "s3/core/text.h"
#include "s3/core/xml_in.h"
#include "s3/operation.h"

static bool is_region(struct slice region)
{
	for (size_t i = 0; i < region.len; i++) {
		char c = region.data[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-')
			return false;
	}
	return region.len > 0 && region.len < sizeof(((struct store_bucket *)NULL)->region);
}

/* The request for a directory bucket names its location, which must match the bucket's name. */
static const struct s3_error *check_directory(struct s3_call *call, const struct s3_xml *root)
{
	const struct s3_xml *location = s3_xml_child(root, "Location");
	const struct s3_xml *bucket = s3_xml_child(root, "Bucket");
	struct slice redundancy;

	if (!location || !bucket || s3_xml_child(root, "LocationConstraint"))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"A directory bucket needs Location and Bucket, and no LocationConstraint.");
	if (!slice_eq(slice_trim(s3_xml_text(location, "Type")), SLICE("AvailabilityZone")) ||
		!slice_eq(slice_trim(s3_xml_text(location, "Name")), s3_express_zone(call->bucket)))
		return s3_fail(call, S3_E_INVALID_LOCATION,
			"The Location must be the AvailabilityZone in the bucket's name.");
	redundancy = slice_trim(s3_xml_text(bucket, "DataRedundancy"));
	if (!slice_eq(slice_trim(s3_xml_text(bucket, "Type")), SLICE("Directory")) ||
		(redundancy.len && !slice_eq(redundancy, SLICE("SingleAvailabilityZone"))))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The Bucket must be of type Directory, its DataRedundancy "
			"SingleAvailabilityZone.");
	return NULL;
}

/* Tags have the form of object tags with other elements around them; they need an action of their
 * own. */
static const struct s3_error *parse_tags(
	struct s3_call *call, const struct s3_xml *node, struct slice *ret_document)
{
	const struct s3_xml set = {.name = SLICE("TagSet"), .child = node->child};
	const struct s3_error *error = NULL;
	struct s3_tags tags;

	if (!call->identity->root)
		error = s3_call_may_service(
			call, "s3:TagResource", access_resource(call, call->bucket, SLICE_NONE));
	if (!error)
		error = s3_tags_of_xml(call, &set, S3_TAGS_BUCKET_MAX, &tags);
	if (error || !tags.count)
		return error;
	*ret_document = s3_tags_encode(&tags, &call->arena);
	return ret_document->data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

static const struct s3_error *parse_config(
	struct s3_call *call, struct slice body, struct slice *ret_region, struct slice *ret_tags)
{
	struct s3_xml *root;
	struct slice region;
	int ret;

	*ret_region = SLICE_NONE;
	*ret_tags = SLICE_NONE;
	if (!body.len && s3_express_bucket(call))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"A directory bucket needs a CreateBucketConfiguration.");
	if (!body.len)
		return NULL;
	ret = s3_xml_parse(body, &call->arena, &root);
	if (ret == -ENOMEM)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (ret || !slice_eq(root->name, SLICE("CreateBucketConfiguration")))
		return s3_error_at(S3_E_MALFORMED_XML);
	if (s3_express_bucket(call))
		return check_directory(call, root);
	if (s3_xml_child(root, "Bucket") || s3_xml_child(root, "Location"))
		return call->s3->express ? s3_error_at(S3_E_INVALID_BUCKET_NAME)
					 : s3_fail(call, S3_E_NOT_IMPLEMENTED,
						   "Directory buckets are switched off.");
	region = slice_trim(s3_xml_text(root, "LocationConstraint"));
	if (region.len && !is_region(region))
		return s3_error_at(S3_E_INVALID_LOCATION);
	*ret_region = region;
	return s3_xml_child(root, "Tags") ? parse_tags(call, s3_xml_child(root, "Tags"), ret_tags)
					  : NULL;
}

/* The settings of a new bucket besides its name. */
struct making {
	struct slice ownership, acl, tags; /* documents; data NULL: none */
	uint8_t flags;			   /* of the server's presets */
};

/* A document that the request does not ask for may be any. */
static const struct s3_error *check_same(struct s3_call *call, const struct store_bucket *existing,
	enum s3_config_id id, struct slice asked)
{
	const struct s3_error *error;
	struct slice document;

	if (!asked.data)
		return NULL;
	error = s3_config_get(call, existing->id, id, &document);
	if (error)
		return error;
	if (!document.data)
		document = s3_config_preset(existing, id);
	return slice_eq(document, asked) ? NULL : s3_error_at(S3_E_BUCKET_ALREADY_EXISTS);
}

/* Only us-east-1 answers the owner's second create with success. A second create with another
 * access control list, ownership, tags or lock, or another kind of bucket, fails: success would
 * claim a change that is not made. Making the change here would bypass the bucket's policy, and
 * bring back what was deleted since. */
static const struct s3_error *create_again(
	struct s3_call *call, const struct store_bucket *wanted, const struct making *making)
{
	struct store_bucket existing;
	struct slice acl;
	const struct s3_error *error = s3_call_bucket(call, &existing);

	if (error)
		return error;
	if (strcmp(existing.owner, s3_call_owner(call)->id) != 0)
		return s3_error_at(S3_E_BUCKET_ALREADY_EXISTS);
	if (s3_express_bucket(call) || strcmp(existing.region, "us-east-1") != 0 ||
		strcmp(wanted->region, "us-east-1") != 0)
		return s3_error_at(S3_E_BUCKET_ALREADY_OWNED);
	if (wanted->flags & ~existing.flags & STORE_BUCKET_LOCK)
		return s3_error_at(S3_E_BUCKET_ALREADY_EXISTS);
	error = s3_config_get(call, existing.id, S3_CONFIG_ACL, &acl);
	if (!error && !(slice_eq(acl, making->acl) && s3_memory_same(&existing, wanted)))
		error = s3_error_at(S3_E_BUCKET_ALREADY_EXISTS);
	if (!error)
		error = check_same(call, &existing, S3_CONFIG_OWNERSHIP, making->ownership);
	return error ? error : check_same(call, &existing, S3_CONFIG_TAGGING, making->tags);
}

static const struct s3_error *parse_making(struct s3_call *call, struct making *ret_making)
{
	struct slice owner = slice_str(s3_call_owner(call)->id);
	const struct s3_acl_parties parties = {owner, owner, true};
	struct slice name = s3_call_header(call, SLICE("x-amz-object-ownership"));
	bool closed = call->s3->closed_buckets && !s3_express_bucket(call);
	enum s3_ownership ownership = closed ? S3_OWNERSHIP_ENFORCED : S3_OWNERSHIP_WRITER;
	const struct s3_error *error;
	struct s3_acl acl;
	bool given;

	ret_making->ownership = ret_making->acl = SLICE_NONE;
	ret_making->flags = (uint8_t)((closed ? STORE_BUCKET_CLOSED : 0) |
				      (call->s3->encrypted_buckets ? STORE_BUCKET_ENCRYPTED : 0));
	if (s3_call_has_header(call, SLICE("x-amz-object-ownership")) &&
		s3_ownership_of(name, &ownership)) {
		s3_fail_detail(call, "ArgumentName", SLICE("x-amz-object-ownership"));
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Invalid x-amz-object-ownership header: %.*s",
			SLICE_FMT(slice_to(name, 100)));
	}
	if (s3_express_bucket(call) && name.len && ownership != S3_OWNERSHIP_ENFORCED)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Object ownership of directory buckets is BucketOwnerEnforced.");
	if (s3_express_bucket(call))
		ownership = S3_OWNERSHIP_ENFORCED;
	else if (name.len)
		ret_making->ownership = name;
	error = s3_acl_of_headers(call, &parties, &acl, &given);
	if (error || !given || s3_acl_is_default(&acl))
		return error;
	if (ownership == S3_OWNERSHIP_ENFORCED)
		return s3_error_at(S3_E_INVALID_BUCKET_ACL_WITH_OWNERSHIP);
	if (s3_acl_is_public(&acl) && closed)
		return s3_error_at(S3_E_INVALID_BUCKET_ACL_WITH_BLOCK);
	if (s3_acl_is_public(&acl) &&
		s3_account_public_access(call->s3, s3_call_owner(call)->id).block_acls)
		return s3_error_at(S3_E_ACCESS_DENIED);
	ret_making->acl = s3_acl_encode(&acl, &call->arena);
	return ret_making->acl.data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

/* Whether the store, which answered error, did not begin to make the bucket. After a write that
 * failed, the next start may find the bucket all the same. */
static bool is_refused(int error)
{
	return error == -EACCES || error == -EDQUOT || error == -ENOBUFS || error == -ENOTSUP ||
	       error == -EINVAL || error == -ENOSPC;
}

static int put_making(struct s3_call *call, uint64_t id, const struct making *making)
{
	int ret = 0;

	if (making->ownership.data)
		ret = s3_config_put_ahead(call, id, S3_CONFIG_OWNERSHIP, making->ownership);
	if (!ret && making->acl.data)
		ret = s3_config_put_ahead(call, id, S3_CONFIG_ACL, making->acl);
	if (!ret && making->tags.data)
		ret = s3_config_put_ahead(call, id, S3_CONFIG_TAGGING, making->tags);
	/* The bucket's own -ENOBUFS means another memory. */
	return ret == -ENOBUFS ? -ENOMEM : ret;
}

/* The bucket's documents are stored before it, so that it appears with all that its request asked
 * for, also after a crash between the two. The next start deletes documents that a crash left
 * without their bucket. -EEXIST, and an errno of the store. */
static int create_whole(
	struct s3_call *call, struct store_bucket *bucket, const struct making *making)
{
	struct store_bucket existing;
	int ret;

	if (!making->ownership.data && !making->acl.data && !making->tags.data)
		return store_bucket_create(call->s3->store, bucket);
	/* The documents' names are the existing bucket's, too. */
	ret = store_bucket_get(call->s3->store, call->bucket, &existing);
	if (ret != -ENOENT)
		return ret ? ret : -EEXIST;
	bucket->id = store_bucket_id_reserve(call->s3->store);
	ret = put_making(call, bucket->id, making);
	if (ret) {
		s3_configs_delete_all(call, bucket->id);
		return ret;
	}
	ret = store_bucket_create(call->s3->store, bucket);
	if (is_refused(ret))
		s3_configs_delete_all(call, bucket->id);
	return ret;
}

/* The owner's account may have been deleted since the caller was authenticated (-EACCES). It cannot
 * be between the check and the commit: its deletion looks for its buckets. Nor does another
 * creation of the bucket, or s3_configs_sweep, meet documents whose bucket is on its way. */
static int create_owned(
	struct s3_call *call, struct store_bucket *bucket, const struct making *making)
{
	struct iam_owner owner;
	int ret = -EACCES;

	fiber_mutex_lock(&call->s3->owning);
	if (iam_owner(call->s3->iam, slice_str(bucket->owner), &owner) == 0)
		ret = create_whole(call, bucket, making);
	fiber_mutex_unlock(&call->s3->owning);
	return ret;
}

/* The name is the cluster's first, and the store's second: a name without its bucket does no harm,
 * and a bucket without its name cannot be reached. *ret is create_owned's answer. */
static const struct s3_error *create(struct s3_call *call, struct store_bucket *bucket,
	const struct making *making, int *ret_ret)
{
	const struct s3_error *error = s3_names_begin(call);
	struct store_bucket existing;

	if (error)
		return error;
	error = s3_names_claim(call);
	*ret_ret = error ? 0 : create_owned(call, bucket, making);
	if (!error && is_refused(*ret_ret) &&
		store_bucket_get(call->s3->store, call->bucket, &existing) == -ENOENT)
		(void)s3_names_release(call);
	s3_names_end(call);
	return error;
}

const struct s3_error *s3_op_create_bucket(struct s3_call *call)
{
	struct store_bucket bucket = {.created_ns = clock_real_ns()};
	struct slice body, region, path;
	const struct s3_error *error;
	struct making making;
	struct s3_sums sums;
	char *location;
	int ret;

	error = s3_sums_parse(call, &sums);
	if (!error)
		error = s3_call_read(call, &sums, &body);
	if (!error)
		error = parse_config(call, body, &region, &making.tags);
	if (!error)
		error = parse_making(call, &making);
	if (error)
		return error;
	slice_copy_str(call->bucket, bucket.name, sizeof(bucket.name));
	slice_copy_str(region.len ? region : slice_str(call->s3->region), bucket.region,
		sizeof(bucket.region));
	memcpy(bucket.owner, s3_call_owner(call)->id, sizeof(bucket.owner));
	bucket.flags = making.flags;
	if (slice_eq_nocase(s3_call_header(call, SLICE("x-amz-bucket-object-lock-enabled")),
		    SLICE("true"))) {
		bucket.versioning = STORE_VERSIONING_ENABLED;
		bucket.flags |= STORE_BUCKET_LOCK;
	}
	error = s3_memory_asked(call, &bucket);
	if (!error && bucket.flags & STORE_BUCKET_LOCK)
		error = s3_memory_refuses(call, &bucket, "object lock");
	if (!error)
		error = create(call, &bucket, &making, &ret);
	if (error)
		return error;
	if (ret == -EEXIST)
		error = create_again(call, &bucket, &making);
	else if (ret == -EACCES)
		error = s3_error_at(S3_E_ACCESS_DENIED);
	else if (ret == -ENOTSUP || ret == -ENOBUFS)
		error = s3_memory_not_made(call, ret);
	else if (ret)
		error = ret == -EDQUOT ? s3_error_at(S3_E_TOO_MANY_BUCKETS)
				       : s3_fail_errno(call, ret);
	if (error)
		return error;
	s3_settings_changed(call->s3, call->bucket);
	location = mem_arena_get(&call->arena, call->bucket.len + 1);
	if (location) {
		location[0] = '/';
		memcpy(location + 1, call->bucket.data, call->bucket.len);
		path = slice_of(location, call->bucket.len + 1);
		s3_answer_header(call, SLICE("Location"), path);
	}
	s3_answer_bucket_arn(call);
	s3_memory_answer(call, &bucket);
	return s3_answer_empty(call, 200);
}
