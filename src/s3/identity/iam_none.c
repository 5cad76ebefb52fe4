/* s3/identity/iam_none.c: answers calls about kinds of entities that IAM has and this server does
 * not. SDKs and Terraform make them before they delete a user or a role.
 *
 * Source: IAM API reference, "ListMFADevices" and its kin, "DeleteLoginProfile". */
#include "s3/core/call.h"
#include "s3/identity/api.h"

/* Answers an empty list of entities that this server does not have. */
const struct s3_error *api_list_none(struct api *api, json_t *account)
{
	static const struct {
		const char *action, *element;
	} lists[] = {
		{"ListInstanceProfilesForRole", "InstanceProfiles"},
		{"ListMFADevices", "MFADevices"},
		{"ListVirtualMFADevices", "VirtualMFADevices"},
		{"ListSSHPublicKeys", "SSHPublicKeys"},
		{"ListSigningCertificates", "Certificates"},
		{"ListServiceSpecificCredentials", "ServiceSpecificCredentials"},
	};
	enum api_kind kind = api->action->kind;
	const struct s3_error *error = NULL;
	json_t *entity;

	/* A call about a user that names no user is about the caller. */
	if (kind == API_ROLE || (kind == API_USER && api_field(api, "UserName").len))
		error = api_entity(api, account, kind, &entity);
	for (size_t i = 0; i < ARRAY_LEN(lists) && !error; i++)
		if (strcmp(api->action->name, lists[i].action) == 0)
			buf_printf(&api->xml, "<%s></%s>", lists[i].element, lists[i].element);
	if (!error)
		api_put(api, "IsTruncated", SLICE("false"));
	return error;
}

/* No user has a password. */
const struct s3_error *api_no_login(struct api *api, json_t *account)
{
	json_t *user;
	const struct s3_error *error = api_entity(api, account, API_USER, &user);

	if (error)
		return error;
	return s3_fail(api->call, S3_E_NO_SUCH_ENTITY,
		"Login Profile for User %.*s cannot be found.",
		SLICE_FMT(json_member_text(user, "name")));
}
