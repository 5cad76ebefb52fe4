/* s3/core/config.c: stores, reads and deletes the documents of a bucket's configurations, by their
 * kinds. */
#include <errno.h>
#include <stdio.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"

const struct s3_config_kind *s3_config_kind_at(const struct s3 *s3, enum s3_config_id id)
{
	CHECK(id < S3_CONFIG_COUNT);
	return &s3->config_kinds[id];
}

const struct s3_config_kind *s3_config_kind_of(const struct s3_call *call)
{
	const struct s3_config_kind *kinds = call->s3->config_kinds;

	for (int i = 0; i < S3_CONFIG_COUNT; i++)
		if (s3_call_param(call, kinds[i].param, NULL))
			return &kinds[i];
	return NULL;
}

const struct s3_named_kind *s3_named_kind(struct slice param)
{
	static const struct s3_named_kind kinds[] = {
#define NAMED_CONFIG(param_, name_, log_, list_root_) \
	{SLICE(param_), "s3:Get" name_, "s3:Put" name_, "GET." log_, "DELETE." log_, list_root_},
#include "s3/s3_config_table.inc"
	};

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (slice_eq(param, kinds[i].param))
			return &kinds[i];
	return NULL;
}

struct slice s3_config_name(
	struct slice bucket, struct slice param, char ret_name[S3_CONFIG_NAME_MAX])
{
	int len = snprintf(
		ret_name, S3_CONFIG_NAME_MAX, "b/%.*s/%.*s", SLICE_FMT(bucket), SLICE_FMT(param));

	CHECK(len > 0 && len < (int)S3_CONFIG_NAME_MAX);
	return slice_of(ret_name, (size_t)len);
}

/* ---- Documents. ---- */

static int put(struct s3_call *call, enum s3_config_id id, const struct document *document)
{
	char name[S3_CONFIG_NAME_MAX];
	int ret = document_put(call->s3->store, call->request->core,
		s3_config_name(call->bucket, s3_config_kind_at(call->s3, id)->param, name),
		document, NULL);

	s3_settings_changed(call->s3, call->bucket);
	return ret;
}

const struct s3_error *s3_config_put(
	struct s3_call *call, uint64_t owner, enum s3_config_id id, struct slice document)
{
	int ret = put(call, id, &(struct document){.text = document, .owner = owner});

	if (ret == -EFBIG)
		return s3_error_at(S3_E_MESSAGE_TOO_LONG);
	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return ret ? s3_fail_errno(call, ret) : NULL;
}

int s3_config_put_ahead(
	struct s3_call *call, uint64_t owner, enum s3_config_id id, struct slice document)
{
	return put(call, id, &(struct document){.text = document, .owner = owner, .ahead = true});
}

const struct s3_error *s3_config_get(
	struct s3_call *call, uint64_t owner, enum s3_config_id id, struct slice *ret_document)
{
	char name[S3_CONFIG_NAME_MAX];
	struct document document;
	int ret = document_get(call->s3->store, call->request->core,
		s3_config_name(call->bucket, s3_config_kind_at(call->s3, id)->param, name),
		&call->arena, &document);

	if (ret && ret != -ENOENT)
		return s3_fail_errno(call, ret);
	*ret_document = ret || document.owner != owner ? SLICE_NONE : document.text;
	return NULL;
}

struct slice s3_config_preset(const struct store_bucket *bucket, enum s3_config_id id)
{
	static const struct {
		enum s3_config_id id;
		uint8_t flag;
		struct slice document;
	} presets[] = {
		{S3_CONFIG_OWNERSHIP, STORE_BUCKET_CLOSED, SLICE("BucketOwnerEnforced")},
		{S3_CONFIG_PUBLIC_ACCESS, STORE_BUCKET_CLOSED, SLICE("1111")},
		{S3_CONFIG_ENCRYPTION, STORE_BUCKET_ENCRYPTED,
			SLICE(S3_CONFIG_XML("ServerSideEncryptionConfiguration",
				"<Rule><ApplyServerSideEncryptionByDefault>"
				"<SSEAlgorithm>AES256</SSEAlgorithm>"
				"</ApplyServerSideEncryptionByDefault>"
				"<BucketKeyEnabled>false</BucketKeyEnabled></Rule>"))},
	};

	for (size_t i = 0; i < ARRAY_LEN(presets); i++)
		if (presets[i].id == id && (bucket->flags & presets[i].flag))
			return presets[i].document;
	return SLICE_NONE;
}

const struct s3_error *s3_config_delete(
	struct s3_call *call, const struct store_bucket *bucket, enum s3_config_id id)
{
	char name[S3_CONFIG_NAME_MAX];
	int ret;

	if (s3_config_preset(bucket, id).data)
		return s3_config_put(call, bucket->id, id, SLICE(S3_CONFIG_DELETED));
	ret = document_delete_of(call->s3->store,
		s3_config_name(call->bucket, s3_config_kind_at(call->s3, id)->param, name),
		bucket->id);
	s3_settings_changed(call->s3, call->bucket);
	return ret ? s3_fail_errno(call, ret) : NULL;
}

void s3_configs_delete_all(struct s3_call *call, uint64_t owner)
{
	char name[S3_CONFIG_NAME_MAX];
	int ret = document_delete_all(
		call->s3->store, s3_config_name(call->bucket, SLICE_NONE, name), owner);

	if (ret)
		log_warn("s3",
			"configurations of a bucket %.*s that does not exist remain in the store: "
			"%s",
			SLICE_FMT(call->bucket), strerror(-ret));
}

/* ---- Functions that the kinds share. ---- */

const struct s3_error *s3_config_xml(
	struct s3_call *call, struct slice body, const char *root, struct s3_xml **ret_root)
{
	int ret = s3_xml_parse(body, &call->arena, ret_root);

	if (ret == -ENOMEM)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (ret || !slice_eq((*ret_root)->name, slice_str(root)))
		return s3_error_at(S3_E_MALFORMED_XML);
	return NULL;
}

/* Recurses at most S3_XML_DEPTH_MAX deep. */
void s3_config_put_xml(const struct s3_xml *node, struct buf *xml)
{
	if (!node->child)
		xml_escape(node->text, xml);
	for (const struct s3_xml *child = node->child; child; child = child->next) {
		buf_printf(xml, "<%.*s>", SLICE_FMT(child->name));
		s3_config_put_xml(child, xml);
		buf_printf(xml, "</%.*s>", SLICE_FMT(child->name));
	}
}

const struct s3_error *s3_config_xml_text(
	struct s3_call *call, const struct s3_xml *root, struct slice *ret_text)
{
	struct buf xml;

	s3_xml_begin(&xml, root->name.data);
	s3_config_put_xml(root, &xml);
	s3_xml_end(&xml, root->name.data);
	*ret_text = xml.failed ? SLICE_NONE : mem_arena_copy(&call->arena, buf_slice(&xml));
	buf_free(&xml);
	return ret_text->data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

const struct s3_error *s3_config_answer_xml(struct s3_call *call, struct slice document)
{
	struct buf xml;

	buf_init(&xml, DOCUMENT_BYTES_MAX);
	buf_put_slice(&xml, document);
	return s3_answer_xml(call, 200, &xml);
}

int s3_config_load_nothing(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	(void)arena;
	*ret_parsed = document.data;
	return 0;
}
