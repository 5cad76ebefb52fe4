/* s3/object/list.c: one page of a bucket's keys as XML. */
#include "s3/object/list.h"

#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/auth/express.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/object/origin.h"
#include "s3/object/origin_list.h"

const struct s3_error *s3_list_encoding_error(struct s3_call *call, struct slice value)
{
	s3_fail_detail(call, "ArgumentName", SLICE("encoding-type"));
	s3_fail_detail(call, "ArgumentValue", value);
	return s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid Encoding Method specified in Request");
}

static const struct s3_error *parse(struct s3_call *call, struct s3_list *list)
{
	struct slice value;

	s3_call_param(call, SLICE("prefix"), &list->prefix);
	s3_call_param(call, SLICE("delimiter"), &list->delimiter);
	if (s3_call_param(call, SLICE("max-keys"), &value) && value.len &&
		(slice_to_u64(value, &list->keys_max) || list->keys_max > INT32_MAX))
		return s3_fail_argument(call, "max-keys", value,
			"Provided max-keys not an integer or within integer range");
	if (list->keys_max > LIMIT_LIST_KEYS_MAX)
		list->keys_max = LIMIT_LIST_KEYS_MAX;
	if (s3_call_param(call, SLICE("encoding-type"), &value)) {
		if (!slice_eq_nocase(value, SLICE("url")))
			return s3_list_encoding_error(call, value);
		list->url = true;
	}
	/* A sorted list would also be a correct unordered one, but clients of this extension expect
	 * the refusal. */
	if (list->delimiter.len && s3_call_param(call, SLICE("allow-unordered"), &value) &&
		slice_eq_nocase(value, SLICE("true")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"allow-unordered cannot be combined with a delimiter.");
	if (s3_express_bucket(call)) {
		const struct s3_error *error =
			s3_express_check_list(call, list->prefix, list->delimiter);

		if (error)
			return error;
	}
	if (!utf8_is_valid(list->prefix) || !utf8_is_valid(list->delimiter))
		return s3_fail(
			call, S3_E_INVALID_ARGUMENT, "prefix and delimiter must be valid UTF-8.");
	return NULL;
}

/* In the arena (it is large for a stack); reads prefix, delimiter, max-keys and encoding-type. */
static const struct s3_error *list_open(struct s3_call *call, struct s3_list **ret_list)
{
	struct s3_list *list = mem_arena_get(&call->arena, sizeof(*list));
	const struct s3_error *error;

	if (!list)
		return s3_error_at(S3_E_SLOW_DOWN);
	*list = (struct s3_list){.call = call, .keys_max = LIMIT_LIST_KEYS_MAX};
	error = parse(call, list);
	if (error)
		return error;
	buf_init(&list->entries, S3_XML_REPLY_BYTES_MAX);
	buf_init(&list->prefixes, S3_XML_REPLY_BYTES_MAX);
	*ret_list = list;
	return NULL;
}

static void list_close(struct s3_list *list)
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

/* ---- Entries. A page has a thousand of them, so parts that are the same in all are copied with
 * known lengths, short ones are written in place, and dates are computed once a day. ---- */

/* At least the bytes that follow an entry's key. */
#define ENTRY_BYTES_MAX (1024u + S3_OWNER_XML_MAX)
#define MS_PER_DAY	86400000u

static inline __attribute__((always_inline)) char *put(char *at, struct slice text)
{
	memcpy(at, text.data, text.len);
	return at + text.len;
}

#define PUT(at, literal) put(at, SLICE(literal))

static char *put_digits(char *at, uint32_t value, uint32_t count)
{
	for (uint32_t i = count; i > 0; i--, value /= 10)
		at[i - 1] = (char)('0' + value % 10);
	return at + count;
}

static char *put_u64(char *at, uint64_t value)
{
	char digits[SLICE_U64_MAX];

	return put(at, slice_of_u64(value, digits));
}

/* "yyyy-mm-ddThh:mm:ss.000Z": the day is from date_iso_format, the time of day is written here.
 * Neighbours often have the same second. */
static char *put_time(struct s3_list *list, char *at, uint64_t time_ns)
{
	uint64_t second = time_ns / NS_PER_S, ms = second * 1000, day = ms / MS_PER_DAY;
	uint32_t of_day = (uint32_t)(ms % MS_PER_DAY);
	char *text = list->day_text;

	if (second + 1 == list->second_after)
		return put(at, slice_of(text, DATE_ISO_LEN));
	list->second_after = second + 1;

	if (day + 1 != list->day_after) {
		list->day_after = day + 1;
		date_iso_format((int64_t)ms, text);
	}
	put_digits(text + 11, of_day / 3600000, 2);
	put_digits(text + 14, of_day / 60000 % 60, 2);
	put_digits(text + 17, of_day / 1000 % 60, 2);
	return put(at, slice_of(text, DATE_ISO_LEN));
}

/* Bytes that XML escapes. */
static const uint8_t SPECIAL[256] = {
	[0 ... ' ' - 1] = 1, ['&'] = 1, ['<'] = 1, ['>'] = 1, ['"'] = 1, ['\''] = 1};

#define LANES 16u
typedef uint8_t bytes_v __attribute__((vector_size(LANES)));

/* Which of the bytes at text are SPECIAL: not 0. */
static inline bytes_v special_bytes(const char *text)
{
	bytes_v bytes;

	memcpy(&bytes, text, sizeof(bytes));
	return (bytes_v)((bytes < ' ') | (bytes == '&') | (bytes == '<') | (bytes == '>') |
			 (bytes == '"') | (bytes == '\''));
}

/* True when the text needs no escapes in XML. The last of several vectors overlaps the one before.
 */
static bool is_plain(struct slice text)
{
	uint64_t halves[2];
	uint8_t special = 0;
	bytes_v found;

	if (text.len < LANES) {
		for (size_t i = 0; i < text.len; i++)
			special |= SPECIAL[(uint8_t)text.data[i]];
		return !special;
	}
	found = special_bytes(text.data + text.len - LANES);
	for (size_t i = 0; i + LANES < text.len; i += LANES)
		found |= special_bytes(text.data + i);
	memcpy(halves, &found, sizeof(halves));
	return !(halves[0] | halves[1]);
}

static void put_key(const struct s3_list *list, struct slice key, struct buf *xml)
{
	if (list->url)
		uri_encode(key, URI_KEEP_SLASH, xml);
	else if (is_plain(key))
		buf_put_slice(xml, key);
	else
		xml_escape(key, xml);
}

static char *put_checksum(char *at, const struct store_meta *meta)
{
	enum checksum_kind kind = (enum checksum_kind)meta->checksum_type;

	if (kind == CHECKSUM_NONE || kind >= CHECKSUM_KIND_COUNT)
		return at;
	at = PUT(at, "<ChecksumAlgorithm>");
	at = put(at, checksum_name(kind));
	at = PUT(at, "</ChecksumAlgorithm><ChecksumType>");
	at = put(at, meta->checksum_flags & S3_FLAG_COMPOSITE ? SLICE("COMPOSITE")
							      : SLICE("FULL_OBJECT"));
	return PUT(at, "</ChecksumType>");
}

static char *put_version(char *at, const struct store_list_entry *entry)
{
	at = PUT(at, "<VersionId>");
	at = put(at, slice_str(entry->meta->version_id));
	at = PUT(at, "</VersionId><IsLatest>");
	at = entry->is_latest ? PUT(at, "true") : PUT(at, "false");
	return PUT(at, "</IsLatest>");
}

/* An entry lacks the headers that name its owner; it only says that the owner is not the
 * bucket's. */
static bool put_foreign_owner(struct s3_list *list, const struct store_list_entry *entry, char **at)
{
	const struct store_name name = {.bucket = list->call->bucket,
		.key = entry->key,
		.version_id = list->version ? slice_str(entry->meta->version_id) : SLICE_NONE};
	const struct store_meta *meta;
	struct store_get *get;
	struct iam_owner owner;
	struct slice id;
	struct buf xml;
	bool found, ignored;

	if (store_get_open_version(list->call->s3->store, &name, &get, &ignored))
		return false;
	meta = store_get_meta(get);
	id = s3_meta_hidden(slice_of(meta->headers, meta->headers_len), SLICE(S3_OWNER_HEADER));
	if (id.len)
		iam_owner_or_id(list->call->s3->iam, id, &owner);
	found = id.len > 0;
	store_get_close(get);
	if (!found)
		return false;
	buf_init(&xml, S3_OWNER_XML_MAX);
	s3_xml_owner(&xml, "Owner", &owner);
	if (!xml.failed)
		*at = put(*at, buf_slice(&xml));
	buf_free(&xml);
	return true;
}

/* Nearly all entries have the bucket's owner, whose XML is written once for all of them. */
static char *put_owner(struct s3_list *list, const struct store_list_entry *entry, char *at)
{
	if (__builtin_expect(entry->meta->checksum_flags & S3_FLAG_FOREIGN, 0) &&
		!list->owner_of_all && put_foreign_owner(list, entry, &at))
		return at;
	return put(at, slice_of(list->owner_xml, list->owner_xml_len));
}

static void put_marker(struct s3_list *list, const struct store_list_entry *entry)
{
	struct buf *xml = &list->entries;
	char *at;

	buf_put_str(xml, "<DeleteMarker><Key>");
	put_key(list, entry->key, xml);
	at = buf_room(xml, ENTRY_BYTES_MAX);
	if (!at)
		return;
	at = PUT(at, "</Key>");
	at = put_version(at, entry);
	at = PUT(at, "<LastModified>");
	at = put_time(list, at, entry->meta->mtime_ns);
	at = PUT(at, "</LastModified>");
	at = put_owner(list, entry, at);
	at = PUT(at, "</DeleteMarker>");
	buf_end(xml, at);
}

static void put_object(struct s3_list *list, const struct store_list_entry *entry)
{
	const struct store_meta *meta = entry->meta;
	struct slice etag = slice_str(meta->etag);
	struct buf *xml = &list->entries;
	char *at;

	buf_put_slice(xml, list->version ? SLICE("<Version><Key>") : SLICE("<Contents><Key>"));
	put_key(list, entry->key, xml);
	at = buf_room(xml, ENTRY_BYTES_MAX);
	if (!at)
		return;
	at = PUT(at, "</Key>");
	if (list->version)
		at = put_version(at, entry);
	at = PUT(at, "<LastModified>");
	at = put_time(list, at, meta->mtime_ns);
	at = PUT(at, "</LastModified><ETag>&quot;");
	if (__builtin_expect(is_plain(etag), 1)) {
		at = put(at, etag);
	} else {
		buf_end(xml, at);
		xml_escape(etag, xml);
		at = buf_room(xml, ENTRY_BYTES_MAX);
		if (!at)
			return;
	}
	at = PUT(at, "&quot;</ETag>");
	at = put_checksum(at, meta);
	at = PUT(at, "<Size>");
	at = put_u64(at, meta->bytes);
	at = PUT(at, "</Size>");
	if (list->owner)
		at = put_owner(list, entry, at);
	at = PUT(at, "<StorageClass>");
	at = put(at, s3_meta_storage_class(meta));
	at = PUT(at, "</StorageClass>");
	at = list->version ? PUT(at, "</Version>") : PUT(at, "</Contents>");
	buf_end(xml, at);
}

static void visit(const struct store_list_entry *entry, void *arg)
{
	struct s3_list *list = arg;

	if (entry->is_prefix) {
		buf_put_str(&list->prefixes, "<CommonPrefixes>");
		s3_list_element(list, "Prefix", entry->key, &list->prefixes);
		buf_put_str(&list->prefixes, "</CommonPrefixes>");
	} else if (entry->meta->delete_marker) {
		put_marker(list, entry);
	} else {
		put_object(list, entry);
	}
	list->last_version[0] = 0;
	if (list->version && !entry->is_prefix)
		memcpy(list->last_version, entry->meta->version_id, sizeof(list->last_version));
	list->count++;
	list->last_len = entry->key.len < sizeof(list->last) ? entry->key.len : sizeof(list->last);
	memcpy(list->last, entry->key.data, list->last_len);
}

static const struct s3_error *find_owner(struct s3_call *call, struct s3_list *list)
{
	const struct s3_settings *settings;
	const struct s3_error *error = s3_call_settings(call, &settings);
	struct iam_owner owner;
	struct buf xml;

	if (error || !settings)
		return error ? error : s3_error_at(S3_E_NO_SUCH_BUCKET);
	list->owner_of_all = s3_settings_ownership(settings) == S3_OWNERSHIP_ENFORCED;
	iam_owner_or_id(call->s3->iam, slice_str(settings->bucket.owner), &owner);
	buf_init(&xml, sizeof(list->owner_xml));
	s3_xml_owner(&xml, "Owner", &owner);
	if (!xml.failed) {
		memcpy(list->owner_xml, xml.data, xml.len);
		list->owner_xml_len = xml.len;
	}
	buf_free(&xml);
	return NULL;
}

/* Turns a marker inside a common prefix into that prefix. */
static void skip_prefix(const struct s3_list *list, struct store_list_opts *opts)
{
	struct slice rest = slice_from(list->after, list->prefix.len);
	ptrdiff_t at;

	if (!list->skips_prefix || !list->delimiter.len || !slice_starts(list->after, list->prefix))
		return;
	at = slice_find(rest, list->delimiter);
	if (at < 0)
		return;
	opts->after = slice_to(list->after, list->prefix.len + (size_t)at + list->delimiter.len);
	opts->version_after = SLICE_NONE;
}

static const struct s3_error *list_walk(struct s3_call *call, struct s3_list *list)
{
	struct store_list_opts opts = {
		.bucket = call->bucket,
		.prefix = list->prefix,
		.delimiter = list->delimiter,
		.after = list->after,
		.version_after = list->version_after,
		.entries_max = (uint32_t)list->keys_max,
	};
	const struct s3_error *error = list->owner ? find_owner(call, list) : NULL;
	int ret;

	if (error)
		return error;
	/* Owners of single objects are looked up by fiber calls. */
	opts.visit_anywhere = list->owner_of_all || (!list->owner && !list->version);
	skip_prefix(list, &opts);
	if (!list->version && s3_origin_lists(call))
		return s3_origin_list(call, list, &opts, visit);
	ret = list->version ? store_list_versions(call->s3->store, &opts, visit, list, &list->more)
			    : store_list(call->s3->store, &opts, visit, list, &list->more);
	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (ret)
		return s3_fail_errno(call, ret);
	/* An empty page is not truncated: it has no entry to continue from. */
	if (!list->count)
		list->more = false;
	return NULL;
}

/* True when decoding would not change text, and XML can contain it. */
static bool needs_no_code(struct slice text)
{
	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];

		if (c == '%' || c == '+' || c > '~' || (c < ' ' && c != '\n' && c != '\t'))
			return false;
	}
	return true;
}

static void put_head(struct s3_call *call, const struct s3_list *list, struct buf *xml)
{
	xml_element("Name", call->bucket, xml);
	/* boto3 decodes the prefix of some listings and not of others; without an encoding both
	 * work. */
	if (needs_no_code(list->prefix))
		xml_element("Prefix", list->prefix, xml);
	else
		s3_list_element(list, "Prefix", list->prefix, xml);
	s3_xml_u64(xml, "MaxKeys", list->keys_max);
	if (list->delimiter.len)
		s3_list_element(list, "Delimiter", list->delimiter, xml);
	if (list->url)
		buf_put_str(xml, "<EncodingType>url</EncodingType>");
	xml_element("IsTruncated", list->more ? SLICE("true") : SLICE("false"), xml);
}

static void put_tail(const struct s3_list *list, struct buf *xml)
{
	buf_put_slice(xml, buf_slice(&list->entries));
	buf_put_slice(xml, buf_slice(&list->prefixes));
	xml->failed |= list->entries.failed || list->prefixes.failed;
}

const struct s3_error *s3_list_answer(
	struct s3_call *call, const struct s3_listing *listing, void *arg)
{
	struct s3_list *list = NULL;
	const struct s3_error *error = list_open(call, &list);
	struct buf xml;

	if (!error)
		error = listing->parse(call, list, arg);
	if (!error && list->version && s3_origin_lists(call))
		error = s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"The bucket has an origin, so it has no versions. With the header "
			"x-nebulaio-origin: local the objects that are here are listed.");
	if (!error)
		error = list_walk(call, list);
	if (!error) {
		s3_xml_begin(&xml, listing->root);
		put_head(call, list, &xml);
		listing->put(list, arg, &xml);
		put_tail(list, &xml);
		s3_xml_end(&xml, listing->root);
	}
	list_close(list);
	return error ? error : s3_answer_xml(call, 200, &xml);
}
