/* s3/core/public_access.c: access rules in a bucket's settings: ownership, public access, the
 * principals that a policy binds. */
#include <errno.h>

#include "iam/iam.h"
#include "s3/core/settings.h"

static const struct slice ownership_names[] = {
	[S3_OWNERSHIP_WRITER] = SLICE("ObjectWriter"),
	[S3_OWNERSHIP_PREFERRED] = SLICE("BucketOwnerPreferred"),
	[S3_OWNERSHIP_ENFORCED] = SLICE("BucketOwnerEnforced"),
};

bool s3_settings_policy_binds_owner(const struct s3_settings *settings)
{
	return slice_starts(settings->documents[S3_CONFIG_POLICY], SLICE(S3_POLICY_BINDS_OWNER));
}

int s3_ownership_of(struct slice name, enum s3_ownership *ret_ownership)
{
	for (size_t i = 0; i < ARRAY_LEN(ownership_names); i++)
		if (slice_eq(name, ownership_names[i])) {
			*ret_ownership = (enum s3_ownership)i;
			return 0;
		}
	return -EINVAL;
}

enum s3_ownership s3_settings_ownership(const struct s3_settings *settings)
{
	const enum s3_ownership *ownership = settings->parsed[S3_CONFIG_OWNERSHIP];

	/* Access control lists of directory buckets have no effect. */
	if (slice_ends(slice_str(settings->bucket.name), SLICE("--x-s3")))
		return S3_OWNERSHIP_ENFORCED;
	return ownership ? *ownership : S3_OWNERSHIP_WRITER;
}

int s3_public_access_parse(struct slice text, struct s3_public_access *ret_access)
{
	if (text.len != S3_PUBLIC_SWITCHES)
		return -EINVAL;
	*ret_access = (struct s3_public_access){.block_acls = text.data[0] == '1',
		.ignore_acls = text.data[1] == '1',
		.block_policy = text.data[2] == '1',
		.restrict_buckets = text.data[3] == '1'};
	return 0;
}

struct s3_public_access s3_settings_public_access(const struct s3_settings *settings)
{
	const struct s3_public_access *own = settings->parsed[S3_CONFIG_PUBLIC_ACCESS];
	struct s3_public_access access = settings->of_account;

	if (own) {
		access.block_acls |= own->block_acls;
		access.ignore_acls |= own->ignore_acls;
		access.block_policy |= own->block_policy;
		access.restrict_buckets |= own->restrict_buckets;
	}
	return access;
}

struct s3_public_access s3_account_public_access(struct s3 *s3, const char *owner_id)
{
	struct s3_public_access access = {0};
	struct iam_owner owner;
	json_t *account;

	if (iam_owner(s3->iam, slice_str(owner_id), &owner))
		return access;
	account = iam_account(s3->iam, slice_str(owner.account));
	s3_public_access_parse(json_member_text(account, S3_PUBLIC_ACCESS_MEMBER), &access);
	iam_account_put(account);
	return access;
}
