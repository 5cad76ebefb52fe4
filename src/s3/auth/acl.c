/* s3/auth/acl.c: access control lists: their stored text, and their evaluation. */
#include "s3/auth/acl.h"

#include <errno.h>

#include "s3/core/stored.h"

static const char permissions[] = "FRWrw";
static const char grantees[] = "iaul";

struct slice s3_acl_encode(const struct s3_acl *acl, struct mem_arena *arena)
{
	struct slice text;
	struct buf out;

	buf_init(&out, S3_GRANTS_MAX * (IAM_OWNER_LEN_MAX + 4));
	for (uint32_t i = 0; i < acl->count; i++) {
		const struct s3_grant *grant = &acl->grants[i];

		if (i)
			buf_put(&out, ",", 1);
		buf_put(&out, &permissions[grant->permission], 1);
		buf_put(&out, &grantees[grant->grantee], 1);
		buf_put_slice(&out, grant->id);
	}
	text = out.failed ? SLICE_NONE : mem_arena_copy(arena, buf_slice(&out));
	buf_free(&out);
	return text;
}

static int decode_one(struct slice text, struct s3_grant *grant)
{
	const char *permission, *grantee;

	if (text.len < 2 || !text.data[0] || !text.data[1])
		return -EINVAL;
	permission = strchr(permissions, text.data[0]);
	grantee = strchr(grantees, text.data[1]);
	if (!permission || !grantee)
		return -EINVAL;
	grant->permission = (enum s3_permission)(permission - permissions);
	grant->grantee = (enum s3_grantee)(grantee - grantees);
	grant->id = slice_from(text, 2);
	return (grant->grantee == S3_GRANTEE_OWNER) == (grant->id.len > 0) ? 0 : -EINVAL;
}

int s3_acl_decode(struct slice text, struct mem_arena *arena, struct s3_acl *ret_acl)
{
	uint32_t count = text.len ? 1 : 0;

	for (size_t i = 0; i < text.len; i++)
		count += text.data[i] == ',';
	if (count > S3_GRANTS_MAX)
		return -EINVAL;
	ret_acl->count = 0;
	ret_acl->grants = mem_arena_get(arena, (count + 1) * sizeof(*ret_acl->grants));
	if (!ret_acl->grants)
		return -ENOMEM;
	while (text.len) {
		int ret = decode_one(slice_split(&text, ','), &ret_acl->grants[ret_acl->count++]);

		if (ret)
			return ret;
	}
	return 0;
}

int s3_acl_private(struct slice owner, struct mem_arena *arena, struct s3_acl *ret_acl)
{
	struct s3_grant *grant = mem_arena_get(arena, sizeof(*grant));

	if (!grant)
		return -ENOMEM;
	*grant = (struct s3_grant){S3_GRANTEE_OWNER, S3_PERMISSION_FULL, owner};
	*ret_acl = (struct s3_acl){.owner = owner, .count = 1, .grants = grant};
	return 0;
}

bool s3_acl_is_default(const struct s3_acl *acl)
{
	return acl->count == 1 && acl->grants[0].grantee == S3_GRANTEE_OWNER &&
	       acl->grants[0].permission == S3_PERMISSION_FULL &&
	       slice_eq(acl->grants[0].id, acl->owner);
}

bool s3_acl_is_public(const struct s3_acl *acl)
{
	for (uint32_t i = 0; i < acl->count; i++)
		if (acl->grants[i].grantee == S3_GRANTEE_ALL ||
			acl->grants[i].grantee == S3_GRANTEE_AUTHENTICATED)
			return true;
	return false;
}

static bool is_meant(
	const struct s3_grant *grant, const struct iam_principal *principal, bool ignore_public)
{
	switch (grant->grantee) {
	case S3_GRANTEE_OWNER:
		return !principal->who.anonymous &&
		       (slice_eq(grant->id, principal->who.owner) ||
			       slice_eq(grant->id, principal->who.user_id));
	case S3_GRANTEE_ALL:
		return !ignore_public;
	case S3_GRANTEE_AUTHENTICATED:
		return !ignore_public && !principal->who.anonymous;
	case S3_GRANTEE_LOGS:
		break;
	}
	return false;
}

bool s3_acl_allows(const struct s3_acl *acl, enum s3_permission permission,
	const struct iam_principal *principal, bool ignore_public)
{
	bool acp = permission == S3_PERMISSION_READ_ACP || permission == S3_PERMISSION_WRITE_ACP;

	/* The owner of a list can always read and write it. */
	if (acp && !principal->who.anonymous && slice_eq(acl->owner, principal->who.owner))
		return true;
	for (uint32_t i = 0; i < acl->count; i++) {
		const struct s3_grant *grant = &acl->grants[i];

		if ((grant->permission == permission || grant->permission == S3_PERMISSION_FULL) &&
			is_meant(grant, principal, ignore_public))
			return true;
	}
	return false;
}

int s3_acl_of_object(struct slice headers, struct slice bucket_owner, struct mem_arena *arena,
	struct s3_acl *ret_acl)
{
	struct slice owner = s3_meta_hidden(headers, SLICE(S3_OWNER_HEADER));
	struct slice text = s3_meta_hidden(headers, SLICE(S3_ACL_HEADER));
	int ret;

	if (!owner.len)
		owner = bucket_owner;
	if (!text.data)
		return s3_acl_private(owner, arena, ret_acl);
	ret = s3_acl_decode(text, arena, ret_acl);
	ret_acl->owner = owner;
	return ret;
}

int s3_acl_of_foreign(struct s3 *s3, const struct s3_settings *settings, struct slice headers,
	const struct iam_principal *principal, enum s3_permission permission,
	struct mem_arena *arena)
{
	bool ignore_public = s3_settings_public_access(settings).ignore_acls;
	struct iam_owner owner;
	struct s3_acl acl;
	int ret;

	if (s3_settings_ownership(settings) == S3_OWNERSHIP_ENFORCED)
		return 0;
	ret = s3_acl_of_object(headers, slice_str(settings->bucket.owner), arena, &acl);
	if (ret)
		return ret;
	if (iam_owner(s3->iam, acl.owner, &owner) == 0 &&
		slice_eq(slice_str(owner.account), principal->who.account))
		return 0;
	return s3_acl_allows(&acl, permission, principal, ignore_public) ? 0 : -EACCES;
}
