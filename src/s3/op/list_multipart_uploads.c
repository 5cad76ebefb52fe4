/* s3/op/list_multipart_uploads.c: ListMultipartUploads. Records are sorted by id, which is by time.
 * A listing is sorted by key, so all records of the bucket are read for each page, and those that
 * come first behind the markers are kept. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reactor/reactor.h"
#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/object/list.h"
#include "s3/object/multipart.h"
#include "s3/operation.h"

/* Those kept, with one more for IsTruncated, and a page of the store's. */
#define UPLOADS_MAX (LIMIT_LIST_KEYS_MAX + 1 + LIMIT_LIST_KEYS_MAX)

struct upload {
	char id[S3_UPLOAD_ID_LEN + 1];
	struct slice key;   /* in the listing's memory */
	struct slice owner; /* the same: its creator; empty: the bucket's owner */
	uint64_t initiated_ns;
	enum checksum_kind kind;
	uint8_t flags;
};

struct listing {
	struct s3_call *call;
	struct store_bucket bucket;
	struct upload *uploads; /* UPLOADS_MAX */
	uint32_t count;
	struct mem_arena memory[2]; /* one has the keys of those kept so far */
	uint32_t memory_idx;
	/* The request's parameters. */
	struct slice prefix, delimiter, key_marker, id_marker;
	uint64_t uploads_max;
	bool url;
	/* The page. */
	struct buf entries, prefixes;
	struct slice next_key, next_id;
	uint32_t shown;
	bool more;
};

static void visit(const struct store_list_entry *entry, void *arg)
{
	struct listing *listing = arg;
	struct slice id = slice_from(entry->key, entry->key.len - S3_UPLOAD_ID_LEN);
	struct upload *upload = &listing->uploads[listing->count];

	CHECK(listing->count < UPLOADS_MAX);
	*upload = (struct upload){.initiated_ns = entry->meta->mtime_ns,
		.kind = (enum checksum_kind)entry->meta->checksum_type,
		.flags = entry->meta->checksum_flags};
	memcpy(upload->id, id.data, id.len);
	listing->count++;
}

static int cmp(const void *left, const void *right)
{
	const struct upload *a = left, *b = right;
	int order = slice_cmp(a->key, b->key);

	return order ? order : strcmp(a->id, b->id);
}

/* Past the markers: a greater key, or the same key with a greater id when an id was given. */
static bool is_past_markers(const struct listing *listing, const struct upload *upload)
{
	int order = slice_cmp(upload->key, listing->key_marker);

	if (!listing->key_marker.len || order > 0)
		return true;
	return order == 0 && listing->id_marker.len &&
	       slice_cmp(slice_str(upload->id), listing->id_marker) > 0;
}

static struct slice common_prefix(const struct listing *listing, struct slice key)
{
	struct slice rest = slice_from(key, listing->prefix.len);
	ptrdiff_t at = listing->delimiter.len ? slice_find(rest, listing->delimiter) : -1;

	return at < 0 ? SLICE_NONE
		      : slice_to(key, listing->prefix.len + (size_t)at + listing->delimiter.len);
}

/* Whether an upload that has its key belongs on this page or a later one. */
static bool is_listed(const struct listing *listing, const struct upload *upload)
{
	struct slice prefix;

	if (!s3_upload_is_of(
		    slice_str(upload->id), upload->key, &listing->bucket, upload->initiated_ns) ||
		!slice_starts(upload->key, listing->prefix) || !is_past_markers(listing, upload))
		return false;
	prefix = common_prefix(listing, upload->key);
	/* A marker inside a common prefix means that the prefix was listed before. */
	return !prefix.len || !slice_starts(listing->key_marker, prefix);
}

/* Copies what an upload has elsewhere. False: no memory. */
static bool upload_copy(struct mem_arena *memory, struct upload *upload)
{
	upload->key = mem_arena_copy(memory, upload->key);
	upload->owner = mem_arena_copy(memory, upload->owner);
	return upload->key.data && upload->owner.data;
}

/* Reads the record of an upload that is in the list by its id alone. -ENOENT: it has ended in the
 * meantime, or does not belong on a page from here on. */
static int read_record(struct listing *listing, struct upload *upload)
{
	struct s3_call *call = listing->call;
	char name[S3_UPLOAD_NAME_MAX];
	const struct store_meta *meta;
	struct store_get *get;
	struct buf key;
	bool ignored;
	int ret = store_get_open(call->s3->store, SLICE(S3_UPLOADS_BUCKET),
		s3_upload_name(call->bucket, upload->id, 0, name), &get, &ignored);

	if (ret)
		return ret;
	buf_init(&key, LIMIT_KEY_LEN_MAX);
	ret = s3_upload_key(call->request->core, get, &key);
	meta = store_get_meta(get);
	upload->key = buf_slice(&key);
	upload->owner =
		s3_meta_hidden(slice_of(meta->headers, meta->headers_len), SLICE(S3_OWNER_HEADER));
	if (!ret && !is_listed(listing, upload))
		ret = -ENOENT;
	if (!ret && !upload_copy(&listing->memory[listing->memory_idx], upload))
		ret = -ENOMEM;
	buf_free(&key);
	store_get_close(get);
	return ret;
}

/* Reads the records of the uploads from this one on. */
static int read_records(struct listing *listing, uint32_t from)
{
	uint32_t kept = from;

	for (uint32_t i = from; i < listing->count; i++) {
		int ret = read_record(listing, &listing->uploads[i]);

		if (ret && ret != -ENOENT)
			return ret;
		if (!ret)
			listing->uploads[kept++] = listing->uploads[i];
		fiber_yield_due();
	}
	listing->count = kept;
	return 0;
}

/* Keeps what a page can show, and one more; of a common prefix one upload. */
static int keep_first(struct listing *listing)
{
	struct mem_arena *former = &listing->memory[listing->memory_idx];
	struct mem_arena *memory = &listing->memory[listing->memory_idx ^ 1];
	struct slice last_prefix = SLICE_NONE;
	uint32_t kept = 0;

	qsort(listing->uploads, listing->count, sizeof(*listing->uploads), cmp);
	for (uint32_t i = 0; i < listing->count && kept <= listing->uploads_max; i++) {
		struct upload upload = listing->uploads[i];
		struct slice prefix = common_prefix(listing, upload.key);

		if (prefix.len && slice_eq(prefix, last_prefix))
			continue;
		last_prefix = prefix;
		if (!upload_copy(memory, &upload))
			return -ENOMEM;
		listing->uploads[kept++] = upload;
	}
	listing->count = kept;
	mem_arena_free(former);
	mem_arena_init(former);
	listing->memory_idx ^= 1;
	return 0;
}

static int gather_pages(struct listing *listing)
{
	struct s3_call *call = listing->call;
	char prefix[S3_UPLOAD_NAME_MAX], after[S3_UPLOAD_NAME_MAX];
	struct store_list_opts opts = {
		.bucket = SLICE(S3_UPLOADS_BUCKET), .entries_max = LIMIT_LIST_KEYS_MAX};
	bool more = true;
	int ret = 0;

	opts.prefix = s3_upload_name(call->bucket, "", 0, prefix);
	while (more && !ret) {
		uint32_t from = listing->count;

		ret = store_list(call->s3->store, &opts, visit, listing, &more);
		if (ret || listing->count == from)
			break;
		opts.after = s3_upload_name(
			call->bucket, listing->uploads[listing->count - 1].id, 0, after);
		ret = read_records(listing, from);
		if (!ret)
			ret = keep_first(listing);
	}
	return ret == -ENOENT ? 0 : ret;
}

static const struct s3_error *gather(struct listing *listing)
{
	int ret;

	listing->uploads =
		mem_arena_get(&listing->call->arena, UPLOADS_MAX * sizeof(*listing->uploads));
	if (!listing->uploads)
		return s3_error_at(S3_E_SLOW_DOWN);
	ret = gather_pages(listing);
	return ret ? s3_fail_errno(listing->call, ret) : NULL;
}

/* ---- The page. ---- */

static void put_text(
	const struct listing *listing, const char *name, struct slice text, struct buf *xml)
{
	if (!listing->url) {
		xml_element(name, text, xml);
		return;
	}
	buf_printf(xml, "<%s>", name);
	uri_encode(text, URI_KEEP_SLASH, xml);
	buf_printf(xml, "</%s>", name);
}

static void put_upload(struct listing *listing, const struct upload *upload)
{
	const struct store_meta meta = {.checksum_flags = upload->flags};
	struct buf *xml = &listing->entries;
	struct iam_owner owner;

	iam_owner_or_id(listing->call->s3->iam,
		upload->owner.len ? upload->owner : slice_str(listing->bucket.owner), &owner);
	buf_put_str(xml, "<Upload>");
	put_text(listing, "Key", upload->key, xml);
	xml_element("UploadId", slice_str(upload->id), xml);
	s3_xml_owner(xml, "Initiator", &owner);
	s3_xml_owner(xml, "Owner", &owner);
	xml_element("StorageClass", s3_meta_storage_class(&meta), xml);
	s3_xml_time(xml, "Initiated", upload->initiated_ns);
	if (!(upload->flags & S3_FLAG_UNASKED)) {
		xml_element("ChecksumAlgorithm", checksum_name(upload->kind), xml);
		xml_element("ChecksumType",
			upload->flags & S3_FLAG_COMPOSITE ? SLICE("COMPOSITE")
							  : SLICE("FULL_OBJECT"),
			xml);
	}
	buf_put_str(xml, "</Upload>");
}

static void put_page(struct listing *listing)
{
	for (uint32_t i = 0; i < listing->count; i++) {
		const struct upload *upload = &listing->uploads[i];
		struct slice prefix = common_prefix(listing, upload->key);

		if (listing->shown == listing->uploads_max) {
			listing->more = listing->shown > 0;
			return;
		}
		listing->shown++;
		listing->next_key = prefix.len ? prefix : upload->key;
		listing->next_id = prefix.len ? SLICE_NONE : slice_str(upload->id);
		if (!prefix.len) {
			put_upload(listing, upload);
			continue;
		}
		buf_put_str(&listing->prefixes, "<CommonPrefixes>");
		put_text(listing, "Prefix", prefix, &listing->prefixes);
		buf_put_str(&listing->prefixes, "</CommonPrefixes>");
	}
}

/* An upload that has ended can still be a marker; one of another key cannot. */
static const struct s3_error *marker_error(struct s3_call *call, struct slice id)
{
	s3_fail_detail(call, "ArgumentName", SLICE("upload-id-marker"));
	s3_fail_detail(call, "ArgumentValue", id);
	return s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid uploadId marker");
}

static const struct s3_error *parse(struct s3_call *call, struct listing *listing)
{
	struct slice value;

	s3_call_param(call, SLICE("prefix"), &listing->prefix);
	s3_call_param(call, SLICE("delimiter"), &listing->delimiter);
	s3_call_param(call, SLICE("key-marker"), &listing->key_marker);
	if (listing->key_marker.len)
		s3_call_param(call, SLICE("upload-id-marker"), &listing->id_marker);
	if (s3_call_param(call, SLICE("max-uploads"), &value) && value.len &&
		(slice_to_u64(value, &listing->uploads_max) || listing->uploads_max > INT32_MAX))
		return s3_fail_argument(call, "max-uploads", value,
			"Provided max-uploads not an integer or within integer range");
	if (listing->uploads_max > LIMIT_LIST_KEYS_MAX)
		listing->uploads_max = LIMIT_LIST_KEYS_MAX;
	if (s3_call_param(call, SLICE("encoding-type"), &value)) {
		if (!slice_eq_nocase(value, SLICE("url")))
			return s3_list_encoding_error(call, value);
		listing->url = true;
	}
	if (listing->id_marker.len && !s3_upload_is_of(listing->id_marker, listing->key_marker,
					      &listing->bucket, UINT64_MAX))
		return marker_error(call, listing->id_marker);
	if (!utf8_is_valid(listing->prefix) || !utf8_is_valid(listing->delimiter) ||
		!utf8_is_valid(listing->key_marker) || !utf8_is_valid(listing->id_marker))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"prefix, delimiter and markers must be valid UTF-8.");
	return NULL;
}

static const struct s3_error *answer(struct s3_call *call, struct listing *listing)
{
	struct buf xml;

	s3_xml_begin(&xml, "ListMultipartUploadsResult");
	xml_element("Bucket", call->bucket, &xml);
	put_text(listing, "KeyMarker", listing->key_marker, &xml);
	xml_element("UploadIdMarker", listing->id_marker, &xml);
	put_text(listing, "NextKeyMarker", listing->next_key, &xml);
	xml_element("NextUploadIdMarker", listing->next_id, &xml);
	if (listing->prefix.len)
		put_text(listing, "Prefix", listing->prefix, &xml);
	if (listing->delimiter.len)
		put_text(listing, "Delimiter", listing->delimiter, &xml);
	if (listing->url)
		buf_put_str(&xml, "<EncodingType>url</EncodingType>");
	s3_xml_u64(&xml, "MaxUploads", listing->uploads_max);
	xml_element("IsTruncated", listing->more ? SLICE("true") : SLICE("false"), &xml);
	buf_put_slice(&xml, buf_slice(&listing->entries));
	buf_put_slice(&xml, buf_slice(&listing->prefixes));
	xml.failed |= listing->entries.failed || listing->prefixes.failed;
	s3_xml_end(&xml, "ListMultipartUploadsResult");
	return s3_answer_xml(call, 200, &xml);
}

static const struct s3_error *run(struct listing *listing)
{
	const struct s3_error *error = gather(listing);

	if (error)
		return error;
	buf_init(&listing->entries, S3_XML_REPLY_BYTES_MAX);
	buf_init(&listing->prefixes, S3_XML_REPLY_BYTES_MAX);
	put_page(listing);
	error = answer(listing->call, listing);
	buf_free(&listing->entries);
	buf_free(&listing->prefixes);
	return error;
}

const struct s3_error *s3_op_list_multipart_uploads(struct s3_call *call)
{
	struct listing listing = {.call = call, .uploads_max = LIMIT_LIST_KEYS_MAX};
	const struct s3_error *error;

	error = s3_call_bucket(call, &listing.bucket);
	if (!error)
		error = parse(call, &listing);
	if (error)
		return error;
	for (size_t i = 0; i < ARRAY_LEN(listing.memory); i++)
		mem_arena_init(&listing.memory[i]);
	error = run(&listing);
	for (size_t i = 0; i < ARRAY_LEN(listing.memory); i++)
		mem_arena_free(&listing.memory[i]);
	return error;
}
