/* s3/auth/acl_text.c: parses access control lists from XML, headers and canned names, and writes
 * them as S3's XML. */
#include <errno.h>
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"

#define URI_ALL		  "http://acs.amazonaws.com/groups/global/AllUsers"
#define URI_AUTHENTICATED "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"
#define URI_LOGS	  "http://acs.amazonaws.com/groups/s3/LogDelivery"

static const struct slice permission_names[S3_PERMISSION_COUNT] = {
	[S3_PERMISSION_FULL] = SLICE("FULL_CONTROL"),
	[S3_PERMISSION_READ] = SLICE("READ"),
	[S3_PERMISSION_WRITE] = SLICE("WRITE"),
	[S3_PERMISSION_READ_ACP] = SLICE("READ_ACP"),
	[S3_PERMISSION_WRITE_ACP] = SLICE("WRITE_ACP"),
};

static int add(
	struct s3_acl *acl, enum s3_grantee grantee, enum s3_permission permission, struct slice id)
{
	if (acl->count == S3_GRANTS_MAX)
		return -E2BIG;
	acl->grants[acl->count++] = (struct s3_grant){grantee, permission, id};
	return 0;
}

static bool begin(struct s3_call *call, struct slice owner, struct s3_acl *ret_acl)
{
	*ret_acl = (struct s3_acl){.owner = owner};
	ret_acl->grants = mem_arena_get(&call->arena, S3_GRANTS_MAX * sizeof(*ret_acl->grants));
	return ret_acl->grants != NULL;
}

/* ---- Grantees. ---- */

/* Parses a client's id of a grantee (of an owner, an account, a user) into the stored id. */
static const struct s3_error *resolve_id(
	struct s3_call *call, struct slice id, struct slice *ret_id)
{
	struct iam *iam = call->s3->iam;
	struct iam_owner owner;

	if (iam_owner(iam, id, &owner) == 0 || iam_owner_by_user(iam, id, &owner) == 0)
		*ret_id = mem_arena_copy(&call->arena, id);
	else if (iam_owner_by_account(iam, id, &owner) == 0)
		*ret_id = mem_arena_copy(&call->arena, slice_str(owner.id));
	else
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid id");
	return ret_id->data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

static const struct s3_error *resolve_email(
	struct s3_call *call, struct slice email, struct slice *ret_id)
{
	struct iam_owner owner;

	if (iam_owner_by_email(call->s3->iam, email, &owner))
		return s3_error_at(S3_E_UNRESOLVABLE_EMAIL);
	*ret_id = mem_arena_copy(&call->arena, slice_str(owner.id));
	return ret_id->data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

static bool resolve_uri(struct slice uri, enum s3_grantee *ret_grantee)
{
	if (slice_eq(uri, SLICE(URI_ALL)))
		*ret_grantee = S3_GRANTEE_ALL;
	else if (slice_eq(uri, SLICE(URI_AUTHENTICATED)))
		*ret_grantee = S3_GRANTEE_AUTHENTICATED;
	else if (slice_eq(uri, SLICE(URI_LOGS)))
		*ret_grantee = S3_GRANTEE_LOGS;
	else
		return false;
	return true;
}

static const struct s3_error *add_named(struct s3_call *call, struct s3_acl *acl,
	enum s3_permission permission, struct slice kind, struct slice value)
{
	enum s3_grantee grantee = S3_GRANTEE_OWNER;
	const struct s3_error *error = NULL;
	struct slice id = SLICE_NONE;

	if (slice_eq_nocase(kind, SLICE("id")))
		error = resolve_id(call, value, &id);
	else if (slice_eq_nocase(kind, SLICE("emailAddress")))
		error = resolve_email(call, value, &id);
	else if (!slice_eq_nocase(kind, SLICE("uri")))
		error = s3_fail(call, S3_E_INVALID_ARGUMENT, "Argument format not recognized");
	else if (!resolve_uri(value, &grantee))
		error = s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid group uri");
	if (!error && add(acl, grantee, permission, id))
		error = s3_fail(call, S3_E_INVALID_ARGUMENT,
			"An access control list has at most %u grants.", S3_GRANTS_MAX);
	return error;
}

/* ---- Canned lists. ---- */

static const struct s3_error *canned(struct s3_call *call, struct slice name,
	const struct s3_acl_parties *parties, struct s3_acl *acl)
{
	static const struct {
		struct slice name;
		enum s3_grantee grantee;
		enum s3_permission permissions[2];
		uint32_t count;
	} known[] = {
		{SLICE("private"), S3_GRANTEE_ALL, {0}, 0},
		/* Its grantee is a service that this server does not have. */
		{SLICE("aws-exec-read"), S3_GRANTEE_ALL, {0}, 0},
		{SLICE("public-read"), S3_GRANTEE_ALL, {S3_PERMISSION_READ}, 1},
		{SLICE("public-read-write"), S3_GRANTEE_ALL,
			{S3_PERMISSION_READ, S3_PERMISSION_WRITE}, 2},
		{SLICE("authenticated-read"), S3_GRANTEE_AUTHENTICATED, {S3_PERMISSION_READ}, 1},
		{SLICE("log-delivery-write"), S3_GRANTEE_LOGS,
			{S3_PERMISSION_WRITE, S3_PERMISSION_READ_ACP}, 2},
		{SLICE("bucket-owner-read"), S3_GRANTEE_OWNER, {S3_PERMISSION_READ}, 1},
		{SLICE("bucket-owner-full-control"), S3_GRANTEE_OWNER, {S3_PERMISSION_FULL}, 1},
	};

	add(acl, S3_GRANTEE_OWNER, S3_PERMISSION_FULL, parties->owner);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		bool of_owner = known[i].grantee == S3_GRANTEE_OWNER;

		if (!slice_eq(name, known[i].name))
			continue;
		if (of_owner &&
			(parties->of_bucket || slice_eq(parties->bucket_owner, parties->owner)))
			return NULL;
		for (uint32_t p = 0; p < known[i].count; p++)
			add(acl, known[i].grantee, known[i].permissions[p],
				of_owner ? parties->bucket_owner : SLICE_NONE);
		return NULL;
	}
	return s3_fail_argument(call, "x-amz-acl", name, "The canned ACL is not valid.");
}

/* "id="…", uri=…" of one header. */
static const struct s3_error *grants_of(
	struct s3_call *call, struct slice value, enum s3_permission permission, struct s3_acl *acl)
{
	const struct s3_error *error = NULL;

	while (!error && value.len) {
		struct slice one = slice_trim(slice_split(&value, ','));
		struct slice kind = slice_trim(slice_split(&one, '='));

		one = slice_trim(one);
		if (one.len >= 2 && one.data[0] == '"' && one.data[one.len - 1] == '"')
			one = slice_of(one.data + 1, one.len - 2);
		error = add_named(call, acl, permission, kind, one);
	}
	return error;
}

const struct s3_error *s3_acl_of_headers(struct s3_call *call, const struct s3_acl_parties *parties,
	struct s3_acl *ret_acl, bool *ret_given)
{
	static const struct {
		struct slice name;
		enum s3_permission permission;
	} grants[] = {
		{SLICE("x-amz-grant-read"), S3_PERMISSION_READ},
		{SLICE("x-amz-grant-write"), S3_PERMISSION_WRITE},
		{SLICE("x-amz-grant-read-acp"), S3_PERMISSION_READ_ACP},
		{SLICE("x-amz-grant-write-acp"), S3_PERMISSION_WRITE_ACP},
		{SLICE("x-amz-grant-full-control"), S3_PERMISSION_FULL},
	};
	struct slice name = s3_call_header(call, SLICE("x-amz-acl"));
	const struct s3_error *error = NULL;
	bool granted = false;

	*ret_given = false;
	for (size_t i = 0; i < sizeof(grants) / sizeof(grants[0]); i++)
		granted |= s3_call_has_header(call, grants[i].name);
	if (!name.len && !granted)
		return NULL;
	*ret_given = true;
	if (name.len && granted)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Specifying both Canned ACLs and Header Grants is not allowed");
	if (!begin(call, parties->owner, ret_acl))
		return s3_error_at(S3_E_SLOW_DOWN);
	if (name.len)
		return canned(call, name, parties, ret_acl);
	for (size_t i = 0; !error && i < sizeof(grants) / sizeof(grants[0]); i++)
		error = grants_of(
			call, s3_call_header(call, grants[i].name), grants[i].permission, ret_acl);
	return error;
}

/* ---- XML. ---- */

static const struct s3_error *grant_of_xml(
	struct s3_call *call, const struct s3_xml *node, struct s3_acl *acl)
{
	const struct s3_xml *grantee = s3_xml_child(node, "Grantee");
	struct slice name = slice_trim(s3_xml_text(node, "Permission"));
	int permission = 0;

	while (permission < S3_PERMISSION_COUNT && !slice_eq(name, permission_names[permission]))
		permission++;
	if (!slice_eq(node->name, SLICE("Grant")) || !grantee || permission == S3_PERMISSION_COUNT)
		return s3_error_at(S3_E_MALFORMED_ACL);
	if (s3_xml_child(grantee, "ID"))
		return add_named(call, acl, (enum s3_permission)permission, SLICE("id"),
			slice_trim(s3_xml_text(grantee, "ID")));
	if (s3_xml_child(grantee, "EmailAddress"))
		return add_named(call, acl, (enum s3_permission)permission, SLICE("emailAddress"),
			slice_trim(s3_xml_text(grantee, "EmailAddress")));
	if (s3_xml_child(grantee, "URI"))
		return add_named(call, acl, (enum s3_permission)permission, SLICE("uri"),
			slice_trim(s3_xml_text(grantee, "URI")));
	return s3_error_at(S3_E_MALFORMED_ACL);
}

/* The document must name the existing owner: a list cannot change the owner. */
static const struct s3_error *check_owner(
	struct s3_call *call, const struct s3_xml *root, struct slice owner)
{
	const struct s3_xml *node = s3_xml_child(root, "Owner");
	struct slice id = node ? slice_trim(s3_xml_text(node, "ID")) : SLICE_NONE;
	struct iam_owner found;

	if (!node || !id.len)
		return s3_error_at(S3_E_MALFORMED_ACL);
	if (slice_eq(id, owner))
		return NULL;
	if (iam_owner_by_account(call->s3->iam, id, &found) == 0 &&
		slice_eq(slice_str(found.id), owner))
		return NULL;
	return s3_error_at(S3_E_ACCESS_DENIED);
}

const struct s3_error *s3_acl_of_grants(
	struct s3_call *call, const struct s3_xml *list, struct slice owner, struct s3_acl *ret_acl)
{
	const struct s3_error *error = NULL;

	if (!begin(call, owner, ret_acl))
		return s3_error_at(S3_E_SLOW_DOWN);
	for (const struct s3_xml *node = list->child; !error && node; node = node->next)
		error = grant_of_xml(call, node, ret_acl);
	return error;
}

const struct s3_error *s3_acl_of_xml(struct s3_call *call, struct slice body,
	const struct s3_acl_parties *parties, struct s3_acl *ret_acl)
{
	const struct s3_error *error;
	const struct s3_xml *list;
	struct s3_xml *root;
	int ret = s3_xml_parse(body, &call->arena, &root);

	if (ret)
		return s3_error_at(ret == -ENOMEM ? S3_E_SLOW_DOWN : S3_E_MALFORMED_XML);
	list = s3_xml_child(root, "AccessControlList");
	if (!slice_eq(root->name, SLICE("AccessControlPolicy")) || !list)
		return s3_error_at(S3_E_MALFORMED_ACL);
	error = check_owner(call, root, parties->owner);
	return error ? error : s3_acl_of_grants(call, list, parties->owner, ret_acl);
}

/* ---- XML out. ---- */

static void put_owner(struct s3_call *call, struct slice id, struct buf *xml)
{
	struct iam_owner owner;

	xml_element("ID", id, xml);
	if (iam_owner(call->s3->iam, id, &owner) == 0 ||
		iam_owner_by_user(call->s3->iam, id, &owner) == 0)
		xml_element("DisplayName", slice_str(owner.name), xml);
}

static void put_grantee(struct s3_call *call, const struct s3_grant *grant, struct buf *xml)
{
	static const char *const uris[] = {
		[S3_GRANTEE_ALL] = URI_ALL,
		[S3_GRANTEE_AUTHENTICATED] = URI_AUTHENTICATED,
		[S3_GRANTEE_LOGS] = URI_LOGS,
	};
	bool owner = grant->grantee == S3_GRANTEE_OWNER;

	buf_printf(xml,
		"<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" "
		"xsi:type=\"%s\">",
		owner ? "CanonicalUser" : "Group");
	if (owner)
		put_owner(call, grant->id, xml);
	else
		xml_element("URI", slice_str(uris[grant->grantee]), xml);
	buf_put_str(xml, "</Grantee>");
}

/* Writes the grants to groups, or the grants to single grantees. */
static void put_grants(struct s3_call *call, const struct s3_acl *acl, bool groups, struct buf *xml)
{
	for (uint32_t i = 0; i < acl->count; i++) {
		const struct s3_grant *grant = &acl->grants[i];

		if ((grant->grantee != S3_GRANTEE_OWNER) != groups)
			continue;
		buf_put_str(xml, "<Grant>");
		put_grantee(call, grant, xml);
		xml_element("Permission", permission_names[grant->permission], xml);
		buf_put_str(xml, "</Grant>");
	}
}

/* The order has no meaning, but clients expect groups first. */
void s3_acl_put_grants(struct s3_call *call, const struct s3_acl *acl, struct buf *xml)
{
	put_grants(call, acl, true, xml);
	put_grants(call, acl, false, xml);
}

const struct s3_error *s3_acl_answer(struct s3_call *call, const struct s3_acl *acl)
{
	struct buf xml;

	s3_xml_begin(&xml, "AccessControlPolicy");
	buf_put_str(&xml, "<Owner>");
	put_owner(call, acl->owner, &xml);
	buf_put_str(&xml, "</Owner><AccessControlList>");
	s3_acl_put_grants(call, acl, &xml);
	buf_put_str(&xml, "</AccessControlList>");
	s3_xml_end(&xml, "AccessControlPolicy");
	return s3_answer_xml(call, 200, &xml);
}

/* ---- Lists of new objects and buckets. ---- */

static const struct s3_error *check_public(
	const struct s3_settings *settings, const struct s3_acl *acl)
{
	if (s3_settings_public_access(settings).block_acls && s3_acl_is_public(acl))
		return s3_error_at(S3_E_ACCESS_DENIED);
	return NULL;
}

static bool asks_full_control(const struct s3_call *call)
{
	return slice_eq(
		s3_call_header(call, SLICE("x-amz-acl")), SLICE("bucket-owner-full-control"));
}

/* Everything that a bucket without lists accepts: full control for its owner, as canned list or as
 * a grant. */
static bool gives_owner_alone(const struct s3_call *call, const struct s3_acl *acl)
{
	return s3_acl_is_default(acl) &&
	       (!s3_call_header(call, SLICE("x-amz-acl")).len || asks_full_control(call));
}

const struct s3_error *s3_acl_of_made(struct s3_call *call, struct s3_made *ret_made)
{
	struct s3_acl_parties parties = {.owner = slice_str(s3_call_owner(call)->id)};
	const struct s3_settings *settings;
	const struct s3_error *error;
	enum s3_ownership ownership;
	struct s3_acl acl;
	bool given;

	*ret_made = (struct s3_made){SLICE_NONE, SLICE_NONE};
	if (call->identity->root && !call->request->header_count)
		return NULL;
	error = s3_call_settings(call, &settings);
	if (error || !settings)
		return error ? error : s3_error_at(S3_E_NO_SUCH_BUCKET);
	ownership = s3_settings_ownership(settings);
	parties.bucket_owner = slice_str(settings->bucket.owner);
	/* An object put by the server's root belongs to the owner of its bucket. */
	if (call->identity->root || ownership == S3_OWNERSHIP_ENFORCED ||
		(ownership == S3_OWNERSHIP_PREFERRED && asks_full_control(call)))
		parties.owner = parties.bucket_owner;
	error = s3_acl_of_headers(call, &parties, &acl, &given);
	if (error)
		return error;
	if (given && ownership == S3_OWNERSHIP_ENFORCED && !gives_owner_alone(call, &acl))
		return s3_error_at(S3_E_ACL_NOT_SUPPORTED);
	if (given)
		error = check_public(settings, &acl);
	if (error)
		return error;
	if (!slice_eq(parties.owner, parties.bucket_owner))
		ret_made->owner = parties.owner;
	if (given && !s3_acl_is_default(&acl)) {
		ret_made->acl = s3_acl_encode(&acl, &call->arena);
		if (!ret_made->acl.data)
			return s3_error_at(S3_E_SLOW_DOWN);
	}
	return NULL;
}
