/* iam/version.c: the versions of a managed policy. "text" is the default version's, which applies;
 * the others lie beside it, in "versions" by their ids. A policy that has only ever had one version
 * has none of these members but "text". */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "iam/iam.h"

#define ID_LEN 16u

static const char *id_of(uint32_t number, char ret_id[ID_LEN])
{
	snprintf(ret_id, ID_LEN, "v%u", number);
	return ret_id;
}

static uint32_t number_in(const json_t *policy, const char *member)
{
	int64_t number = json_member_number(policy, member);

	return number > 0 && number <= UINT32_MAX ? (uint32_t)number : 1;
}

static int set_number(json_t *policy, const char *member, int64_t number)
{
	return json_object_set_new(policy, member, json_integer((json_int_t)number)) ? -ENOMEM : 0;
}

static struct iam_version default_of(const json_t *policy)
{
	int64_t created = json_member_number(policy, "version_created");

	return (struct iam_version){.number = number_in(policy, "version"),
		.created_ms = created ? created : json_member_number(policy, "created"),
		.text = json_member_text(policy, "text"),
		.is_default = true};
}

static int newest_first(const void *a, const void *b)
{
	const struct iam_version *one = a, *two = b;

	return one->number < two->number ? 1 : one->number > two->number ? -1 : 0;
}

uint32_t iam_versions(const json_t *policy, struct iam_version ret_versions[IAM_VERSIONS_MAX])
{
	json_t *others = json_object_get(policy, "versions"), *other;
	uint32_t count = 0;
	const char *id;

	ret_versions[count++] = default_of(policy);
	json_object_foreach(others, id, other)
	{
		uint64_t number;

		if (count == IAM_VERSIONS_MAX || slice_to_u64(slice_str(id + 1), &number))
			break;
		ret_versions[count++] = (struct iam_version){.number = (uint32_t)number,
			.created_ms = json_member_number(other, "created"),
			.text = json_member_text(other, "text")};
	}
	qsort(ret_versions, count, sizeof(*ret_versions), newest_first);
	return count;
}

int iam_version_find(const json_t *policy, uint32_t number, struct iam_version *ret_version)
{
	struct iam_version all[IAM_VERSIONS_MAX];
	uint32_t count = iam_versions(policy, all);

	for (uint32_t i = 0; i < count; i++) {
		if (all[i].number != number)
			continue;
		*ret_version = all[i];
		return 0;
	}
	return -ENOENT;
}

static int keep_other(json_t *policy, const struct iam_version *version)
{
	json_t *others = json_member_object(policy, "versions"), *other = json_object();
	char id[ID_LEN];
	int ret = json_member_set_text(other, "text", version->text);

	if (!ret)
		ret = set_number(other, "created", version->created_ms);
	if (json_object_set_new(others, id_of(version->number, id), other))
		ret = -ENOMEM;
	return ret;
}

static int make_default(json_t *policy, const struct iam_version *version)
{
	int ret = json_member_set_text(policy, "text", version->text);

	if (!ret)
		ret = set_number(policy, "version", version->number);
	return ret ? ret : set_number(policy, "version_created", version->created_ms);
}

int iam_version_add(json_t *policy, struct slice text, bool is_default, uint32_t *ret_number)
{
	const struct iam_version before = default_of(policy);
	struct iam_version added = {.text = text,
		.created_ms = (int64_t)(clock_real_ns() / NS_PER_MS),
		.is_default = is_default};
	int ret;

	if (json_object_size(json_object_get(policy, "versions")) + 1 >= IAM_VERSIONS_MAX)
		return -EDQUOT;
	/* The number of a version that was deleted does not come again. */
	added.number = MAX(number_in(policy, "last_version"), before.number) + 1;
	ret = keep_other(policy, is_default ? &before : &added);
	if (!ret && is_default)
		ret = make_default(policy, &added);
	if (!ret)
		ret = set_number(policy, "last_version", added.number);
	if (!ret)
		*ret_number = added.number;
	return ret;
}

int iam_version_set_default(json_t *policy, uint32_t number)
{
	const struct iam_version before = default_of(policy);
	struct iam_version chosen;
	char id[ID_LEN];
	int ret = iam_version_find(policy, number, &chosen);

	if (ret || chosen.is_default)
		return ret;
	ret = keep_other(policy, &before);
	if (!ret)
		ret = make_default(policy, &chosen);
	if (!ret)
		json_object_del(json_object_get(policy, "versions"), id_of(number, id));
	return ret;
}

int iam_version_delete(json_t *policy, uint32_t number)
{
	struct iam_version version;
	char id[ID_LEN];
	int ret = iam_version_find(policy, number, &version);

	if (ret)
		return ret;
	if (version.is_default)
		return -EBUSY;
	json_object_del(json_object_get(policy, "versions"), id_of(number, id));
	return 0;
}
