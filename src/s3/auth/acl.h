/* s3/auth/acl.h: access control lists: the permissions of grantees on a bucket or an object. Stored
 * as text: for a bucket as its document "acl", for an object as a hidden header. Without a list the
 * owner has all permissions, and nobody else has any.
 *
 *   Fi<id>,Ra,Wu   FULL_CONTROL for the owner of that id, READ for all, WRITE for authenticated
 *
 * Source: S3 User Guide, "Access control list (ACL) overview". */
#ifndef S3_ACL_H
#define S3_ACL_H

#include "iam/iam.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/xml_in.h"

#define S3_GRANTS_MAX	100u
#define S3_OWNER_HEADER S3_HIDDEN_PREFIX "owner" /* absent: the bucket's owner */
#define S3_ACL_HEADER	S3_HIDDEN_PREFIX "acl"

enum s3_grantee { S3_GRANTEE_OWNER, S3_GRANTEE_ALL, S3_GRANTEE_AUTHENTICATED, S3_GRANTEE_LOGS };
enum s3_permission {
	S3_PERMISSION_FULL,
	S3_PERMISSION_READ,
	S3_PERMISSION_WRITE,
	S3_PERMISSION_READ_ACP,
	S3_PERMISSION_WRITE_ACP,
	S3_PERMISSION_COUNT
};
struct s3_grant {
	enum s3_grantee grantee;
	enum s3_permission permission;
	struct slice id; /* S3_GRANTEE_OWNER */
};
struct s3_acl {
	struct slice owner;
	uint32_t count;
	struct s3_grant *grants;
};

/* The text of an ACL, in the arena; data NULL: no memory. */
struct slice s3_acl_encode(const struct s3_acl *acl, struct mem_arena *arena);
/* -EINVAL: not a text that encode made; -ENOMEM. The ids point into text. owner stays unchanged. */
int s3_acl_decode(struct slice text, struct mem_arena *arena, struct s3_acl *ret_acl);
/* The list with all permissions for the owner and none for others. */
bool s3_acl_is_default(const struct s3_acl *acl);
/* Whether it grants anything to everybody, or to every authenticated caller. */
bool s3_acl_is_public(const struct s3_acl *acl);
/* Whether it grants that permission (or FULL_CONTROL) to the caller; public grants count unless
 * they are ignored. */
bool s3_acl_allows(const struct s3_acl *acl, enum s3_permission permission,
	const struct iam_principal *principal, bool ignore_public);

/* The list that request headers ask for (x-amz-acl, x-amz-grant-*); *ret_given: whether there are
 * such headers. bucket: the bucket's owner, for the canned lists that name the owner. */
struct s3_acl_parties {
	struct slice owner, bucket_owner;
	bool of_bucket; /* the list is a bucket's */
};
const struct s3_error *s3_acl_of_headers(struct s3_call *call, const struct s3_acl_parties *parties,
	struct s3_acl *ret_acl, bool *ret_given);
/* The document <AccessControlPolicy>. */
const struct s3_error *s3_acl_of_xml(struct s3_call *call, struct slice body,
	const struct s3_acl_parties *parties, struct s3_acl *ret_acl);
/* The children <Grant> of an element of any such document. */
const struct s3_error *s3_acl_of_grants(struct s3_call *call, const struct s3_xml *list,
	struct slice owner, struct s3_acl *ret_acl);
void s3_acl_put_grants(struct s3_call *call, const struct s3_acl *acl, struct buf *xml);
/* The canned list of everything without a list of its own. */
int s3_acl_private(struct slice owner, struct mem_arena *arena, struct s3_acl *ret_acl);
const struct s3_error *s3_acl_answer(struct s3_call *call, const struct s3_acl *acl);

/* An object's owner and list, from its stored headers. */
int s3_acl_of_object(struct slice headers, struct slice bucket_owner, struct mem_arena *arena,
	struct s3_acl *ret_acl);
/* Whether an object of another owner than its bucket's lets the caller do that: by its list, unless
 * the bucket ignores lists, or because the caller is of its owner's account. headers: the object's.
 * -EACCES; -EINVAL: not a list; -ENOMEM. */
int s3_acl_of_foreign(struct s3 *s3, const struct s3_settings *settings, struct slice headers,
	const struct iam_principal *principal, enum s3_permission permission,
	struct mem_arena *arena);
/* The hidden headers of the object that the call creates; data NULL: none. */
struct s3_made {
	struct slice owner, acl;
};
const struct s3_error *s3_acl_of_made(struct s3_call *call, struct s3_made *ret_made);

#endif
