/* s3/list.c: one page of a bucket's keys as XML. */
#include "s3/list.h"

#include <errno.h>

static const struct s3_error *parse(struct s3_call *call, struct s3_list *list)
{
	struct slice value;

	s3_call_param(call, SLICE("prefix"), &list->prefix);
	s3_call_param(call, SLICE("delimiter"), &list->delimiter);
	if (s3_call_param(call, SLICE("max-keys"), &value) && value.len &&
		(slice_to_u64(value, &list->keys_max) || list->keys_max > INT32_MAX)) {
		s3_fail_detail(call, "ArgumentName", SLICE("max-keys"));
		s3_fail_detail(call, "ArgumentValue", value);
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Provided max-keys not an integer or within integer range");
	}
	if (list->keys_max > LIMIT_LIST_KEYS_MAX)
		list->keys_max = LIMIT_LIST_KEYS_MAX;
	if (s3_call_param(call, SLICE("encoding-type"), &value) && value.len) {
		if (!slice_eq_nocase(value, SLICE("url")))
			return s3_fail(call, S3_E_INVALID_ARGUMENT,
				"Invalid Encoding Method specified in Request");
		list->url = true;
	}
	if (!utf8_is_valid(list->prefix) || !utf8_is_valid(list->delimiter))
		return s3_fail(
			call, S3_E_INVALID_ARGUMENT, "prefix and delimiter must be valid UTF-8.");
	return NULL;
}

const struct s3_error *s3_list_open(struct s3_call *call, struct s3_list **ret_list)
{
	struct s3_list *list = s3_arena_get(&call->arena, sizeof(*list));
	const struct s3_error *error;

	if (!list)
		return s3_error_at(S3_E_SLOW_DOWN);
	*list = (struct s3_list){.keys_max = LIMIT_LIST_KEYS_MAX};
	error = parse(call, list);
	if (error)
		return error;
	buf_init(&list->entries, S3_XML_REPLY_BYTES_MAX);
	buf_init(&list->prefixes, S3_XML_REPLY_BYTES_MAX);
	*ret_list = list;
	return NULL;
}

void s3_list_close(struct s3_list *list)
{
	if (!list)
		return;
	buf_free(&list->entries);
	buf_free(&list->prefixes);
}

void s3_list_element(
	const struct s3_list *list, const char *name, struct slice text, struct buf *xml)
{
	if (!list->url) {
		xml_element(name, text, xml);
		return;
	}
	buf_printf(xml, "<%s>", name);
	uri_encode(text, URI_KEEP_SLASH, xml);
	buf_printf(xml, "</%s>", name);
}

static void put_object(struct s3_list *list, const struct store_list_entry *entry)
{
	const struct store_meta *meta = entry->meta;
	enum checksum_kind kind = (enum checksum_kind)meta->checksum_type;
	struct buf *xml = &list->entries;

	buf_put_str(xml, list->version ? "<Version>" : "<Contents>");
	s3_list_element(list, "Key", entry->key, xml);
	if (list->version)
		buf_put_str(xml, "<VersionId>null</VersionId><IsLatest>true</IsLatest>");
	s3_xml_time(xml, "LastModified", meta->mtime_ns);
	s3_xml_etag(xml, meta->etag);
	if (kind != CHECKSUM_NONE && kind <= CHECKSUM_SHA256) {
		xml_element("ChecksumAlgorithm", checksum_name(kind), xml);
		xml_element("ChecksumType",
			meta->checksum_flags & S3_FLAG_COMPOSITE ? SLICE("COMPOSITE")
								 : SLICE("FULL_OBJECT"),
			xml);
	}
	s3_xml_u64(xml, "Size", meta->bytes);
	if (list->owner)
		s3_xml_owner(xml, "Owner");
	xml_element("StorageClass", s3_meta_storage_class(meta), xml);
	buf_put_str(xml, list->version ? "</Version>" : "</Contents>");
}

static void visit(const struct store_list_entry *entry, void *arg)
{
	struct s3_list *list = arg;

	if (entry->is_prefix) {
		buf_put_str(&list->prefixes, "<CommonPrefixes>");
		s3_list_element(list, "Prefix", entry->key, &list->prefixes);
		buf_put_str(&list->prefixes, "</CommonPrefixes>");
	} else {
		put_object(list, entry);
	}
	list->count++;
	list->last_len = entry->key.len < sizeof(list->last) ? entry->key.len : sizeof(list->last);
	memcpy(list->last, entry->key.data, list->last_len);
}

const struct s3_error *s3_list_walk(struct s3_call *call, struct s3_list *list)
{
	const struct store_list_opts opts = {
		.bucket = call->bucket,
		.prefix = list->prefix,
		.delimiter = list->delimiter,
		.after = list->after,
		.entries_max = (uint32_t)list->keys_max,
	};
	int ret = store_list(call->s3->store, &opts, visit, list, &list->more);

	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (ret)
		return s3_fail_errno(call, ret);
	/* A page of nothing has nothing after it: there is no entry to go on from. */
	if (!list->count)
		list->more = false;
	return NULL;
}

void s3_list_head(struct s3_call *call, const struct s3_list *list, struct buf *xml)
{
	xml_element("Name", call->bucket, xml);
	s3_list_element(list, "Prefix", list->prefix, xml);
	s3_xml_u64(xml, "MaxKeys", list->keys_max);
	if (list->delimiter.len)
		s3_list_element(list, "Delimiter", list->delimiter, xml);
	if (list->url)
		buf_put_str(xml, "<EncodingType>url</EncodingType>");
	xml_element("IsTruncated", list->more ? SLICE("true") : SLICE("false"), xml);
}

void s3_list_tail(const struct s3_list *list, struct buf *xml)
{
	buf_put_slice(xml, buf_slice(&list->entries));
	buf_put_slice(xml, buf_slice(&list->prefixes));
	xml->failed |= list->entries.failed || list->prefixes.failed;
}
