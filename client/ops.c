/* client/ops.c: the blocking calls for the common operations, and listings page by page. */
#include "session_priv.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Holds a page of 1,000 entries with keys of the maximum length, escaped. */
#define PAGE_BYTES (4 * MIB)

int neb_get(struct neb_client *client, const char *bucket, const char *key, void *data,
	size_t bytes, struct neb_result *ret_result)
{
	const struct neb_iov into = {.data = data, .bytes = bytes};
	const struct neb_request request = {
		.op = NEB_GET_OBJECT, .bucket = bucket, .key = key, .into = &into, .into_count = 1};

	return neb_perform(client, &request, ret_result);
}

int neb_put(struct neb_client *client, const char *bucket, const char *key, const void *data,
	size_t bytes, struct neb_result *ret_result)
{
	const struct neb_iov body = {.data = (void *)(uintptr_t)data, .bytes = bytes};
	const struct neb_request request = {
		.op = NEB_PUT_OBJECT, .bucket = bucket, .key = key, .body = &body, .body_count = 1};

	return neb_perform(client, &request, ret_result);
}

static int simple(struct neb_client *client, enum neb_op op, const char *bucket, const char *key,
	struct neb_result *ret_result)
{
	const struct neb_request request = {.op = op, .bucket = bucket, .key = key};

	return neb_perform(client, &request, ret_result);
}

int neb_head(struct neb_client *client, const char *bucket, const char *key,
	struct neb_result *ret_result)
{
	return simple(client, NEB_HEAD_OBJECT, bucket, key, ret_result);
}

int neb_delete(struct neb_client *client, const char *bucket, const char *key,
	struct neb_result *ret_result)
{
	return simple(client, NEB_DELETE_OBJECT, bucket, key, ret_result);
}

/* The zone in a directory bucket's name, "base--zone--x-s3"; empty: another kind of bucket. */
static struct slice directory_zone(struct slice bucket)
{
	static const struct slice END = SLICE("--x-s3");
	struct slice rest;
	ptrdiff_t at = -1;

	if (!slice_ends(bucket, END))
		return SLICE_NONE;
	rest = slice_to(bucket, bucket.len - END.len);
	for (size_t i = 0; i + 2 <= rest.len; i++)
		if (memcmp(rest.data + i, "--", 2) == 0)
			at = (ptrdiff_t)i;
	return at > 0 ? slice_from(rest, (size_t)at + 2) : SLICE_NONE;
}

int neb_bucket_create(struct neb_client *client, const char *bucket, struct neb_result *ret_result)
{
	struct slice zone = directory_zone(slice_str(bucket));
	char text[512];
	struct neb_iov body = {.data = text};
	const struct neb_request request = {
		.op = NEB_CREATE_BUCKET, .bucket = bucket, .body = &body, .body_count = 1};
	int len;

	/* The server reports other errors in the name. */
	if (!zone.len || zone.len > LIMIT_BUCKET_LEN_MAX || strpbrk(bucket, "<>&"))
		return simple(client, NEB_CREATE_BUCKET, bucket, NULL, ret_result);
	len = snprintf(text, sizeof(text),
		"<CreateBucketConfiguration><Location><Type>AvailabilityZone</Type>"
		"<Name>%.*s</Name></Location><Bucket><Type>Directory</Type>"
		"<DataRedundancy>SingleAvailabilityZone</DataRedundancy></Bucket>"
		"</CreateBucketConfiguration>",
		SLICE_FMT(zone));
	CHECK(len > 0 && (size_t)len < sizeof(text));
	body.bytes = (size_t)len;
	return neb_perform(client, &request, ret_result);
}

int neb_bucket_delete(struct neb_client *client, const char *bucket, struct neb_result *ret_result)
{
	return simple(client, NEB_DELETE_BUCKET, bucket, NULL, ret_result);
}

int neb_ping(struct neb_client *client, struct neb_result *ret_result)
{
	return simple(client, NEB_PING, NULL, NULL, ret_result);
}

/* ---- Listings. ---- */

/* A page being read: the current entry, and where the next page begins. */
struct page {
	neb_list_fn *visit;
	void *arg;
	XML_Parser parser;
	bool entry, prefix, owner; /* inside an entry, in common prefixes, in an owner */
	bool encoded;		   /* the server says that keys and prefixes are percent-encoded */
	bool stopped;
	bool list; /* the document is a list of a server's */
	bool truncated;
	int failed; /* why the page is not read on: -ENOMEM, -EILSEQ (a key with a zero byte) */
	int error;  /* of a page that came before the last answer */
	struct buf text;
	struct buf key, etag, modified, token;
	uint64_t bytes;
};

static void text_keep(struct buf *to, struct buf *from)
{
	buf_reset(to);
	buf_put(to, from->data, from->len);
	buf_put(to, "", 1);
}

static void page_fail(struct page *page, int error)
{
	page->failed = error;
	XML_StopParser(page->parser, XML_FALSE);
}

static void on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct page *page = arg;

	(void)attributes;
	buf_reset(&page->text);
	if (strcmp(name, "ListBucketResult") == 0 || strcmp(name, "ListAllMyBucketsResult") == 0) {
		page->list = true;
	} else if (strcmp(name, "Owner") == 0) {
		page->owner = true;
	} else if (strcmp(name, "Contents") == 0 || strcmp(name, "CommonPrefixes") == 0 ||
		   strcmp(name, "Bucket") == 0) {
		page->entry = true;
		page->prefix = name[0] == 'C' && name[3] == 'm';
		page->bytes = 0;
		buf_reset(&page->key);
		buf_reset(&page->etag);
		buf_reset(&page->modified);
	}
}

static void on_text(void *arg, const XML_Char *text, int len)
{
	buf_put(&((struct page *)arg)->text, text, (size_t)len);
}

static const char *text_of(const struct buf *buf)
{
	return buf->len ? buf->data : "";
}

static void entry_end(struct page *page)
{
	struct neb_entry entry = {.key = text_of(&page->key),
		.is_prefix = page->prefix,
		.bytes = page->bytes,
		.etag = text_of(&page->etag),
		.last_modified = text_of(&page->modified)};

	page->entry = false;
	if (page->failed)
		return;
	if (page->key.failed || page->etag.failed || page->modified.failed) {
		page_fail(page, -ENOMEM);
		return;
	}
	if (!page->key.len || page->visit(page->arg, &entry))
		return;
	page->stopped = true;
	XML_StopParser(page->parser, XML_FALSE);
}

/* Keeps a text with wrong encoding unchanged. */
static void key_keep(struct page *page)
{
	struct buf *text = &page->text;
	size_t len;

	if (page->encoded &&
		uri_decode(buf_slice(text), URI_PLUS_IS_SPACE, text->data, text->len, &len) == 0)
		text->len = len;
	text_keep(&page->key, text);
	/* As a C string it would be another object's key. */
	if (text->len && memchr(text->data, '\0', text->len))
		page_fail(page, -EILSEQ);
}

static void entry_field(struct page *page, const char *name)
{
	if (page->owner)
		return;
	if (strcmp(name, "Key") == 0 || strcmp(name, "Prefix") == 0 || strcmp(name, "Name") == 0)
		key_keep(page);
	else if (strcmp(name, "Size") == 0)
		slice_to_u64(buf_slice(&page->text), &page->bytes);
	else if (strcmp(name, "LastModified") == 0 || strcmp(name, "CreationDate") == 0)
		text_keep(&page->modified, &page->text);
	else if (strcmp(name, "ETag") == 0 && page->text.len >= 2) {
		buf_put(&page->etag, page->text.data + 1, page->text.len - 2);
		buf_put(&page->etag, "", 1);
	}
}

static void on_end(void *arg, const XML_Char *name)
{
	struct page *page = arg;

	if (page->text.failed)
		page_fail(page, -ENOMEM);
	else if (strcmp(name, "Owner") == 0)
		page->owner = false;
	else if (strcmp(name, "Contents") == 0 || strcmp(name, "CommonPrefixes") == 0 ||
		 strcmp(name, "Bucket") == 0)
		entry_end(page);
	else if (page->entry)
		entry_field(page, name);
	else if (strcmp(name, "IsTruncated") == 0)
		page->truncated = slice_eq(buf_slice(&page->text), SLICE("true"));
	else if (strcmp(name, "NextContinuationToken") == 0)
		text_keep(&page->token, &page->text);
	if (page->token.failed)
		page_fail(page, -ENOMEM);
	buf_reset(&page->text);
}

static int page_read(struct page *page, const void *data, size_t len)
{
	int ret = 0;

	page->list = false;
	page->truncated = false;
	page->failed = 0;
	page->entry = false;
	page->owner = false;
	buf_reset(&page->token);
	/* It may follow the entries; a key has no "<" of its own in XML. */
	page->encoded = slice_eq(xml_text(slice_of(data, len), "EncodingType"), SLICE("url"));
	page->parser = XML_ParserCreate("UTF-8");
	if (!page->parser)
		return -ENOMEM;
	XML_SetUserData(page->parser, page);
	XML_SetElementHandler(page->parser, on_start, on_end);
	XML_SetCharacterDataHandler(page->parser, on_text);
	if (XML_Parse(page->parser, data, (int)len, XML_TRUE) != XML_STATUS_OK && !page->stopped)
		ret = page->failed ? page->failed : -EBADMSG;
	else if (!page->list)
		ret = -EBADMSG;
	XML_ParserFree(page->parser);
	return ret;
}

static void page_init(struct page *page, neb_list_fn *visit, void *arg)
{
	*page = (struct page){.visit = visit, .arg = arg};
	buf_init(&page->text, 64 * KIB);
	buf_init(&page->key, 64 * KIB);
	buf_init(&page->etag, 1 * KIB);
	buf_init(&page->modified, 1 * KIB);
	buf_init(&page->token, 16 * KIB);
}

static void page_free(struct page *page)
{
	buf_free(&page->text);
	buf_free(&page->key);
	buf_free(&page->etag);
	buf_free(&page->modified);
	buf_free(&page->token);
}

static void param_put(struct buf *query, const char *name, const char *value)
{
	if (!value || !*value)
		return;
	buf_printf(query, "%s%s=", query->len ? "&" : "", name);
	uri_encode(slice_str(value), 0, query);
}

/* Room for the pages that the server makes while the client reads others, from the pool. When the
 * pool is full, or one page is enough, there is room for one page, if necessary from the heap. */
struct page_room {
	uint8_t *data;
	uint32_t pages;
	bool pooled;
};

static int page_room_get(struct neb_client *client, uint32_t pages, struct page_room *ret_room)
{
	ret_room->pages = pages;
	ret_room->data = client_pool_get(client, pages * PAGE_BYTES);
	if (!ret_room->data && pages > 1)
		return page_room_get(client, 1, ret_room);
	ret_room->pooled = ret_room->data != NULL;
	if (!ret_room->pooled)
		ret_room->data = malloc(PAGE_BYTES);
	return ret_room->data ? 0 : -ENOMEM;
}

static void page_room_put(struct neb_client *client, struct page_room *room)
{
	if (room->pooled) {
		client_pool_put(client, room->data);
		return;
	}
	(void)neb_memory_forget(client, room->data, PAGE_BYTES);
	free(room->data);
}

/* A page has come, and the server is making the next one. */
static void on_page(void *arg, const void *data, uint64_t bytes)
{
	struct page *page = arg;

	if (!page->stopped && !page->error)
		page->error = page_read(page, data, bytes);
}

/* Reads the pages of one request. The pages that arrived before a failure count: the next request
 * continues after them. */
static int list_pages(struct neb_client *client, struct neb_request *request,
	const struct page_room *room, struct page *page, struct neb_result *result)
{
	struct client_pages pages = {.page = on_page, .arg = page};
	struct neb_iov into[CLIENT_LIST_PAGES];
	int ret;

	for (uint32_t i = 0; i < room->pages; i++)
		into[i] = (struct neb_iov){room->data + i * PAGE_BYTES, PAGE_BYTES};
	request->into = into;
	request->into_count = room->pages;
	page->error = 0;
	ret = client_perform(client, request, &pages, result);
	if (page->error || page->stopped)
		return page->error;
	if (ret == 0)
		return page_read(page, into[pages.count].data, result->bytes);
	return pages.count && client->transport != NEB_STRICT ? 0 : ret;
}

int neb_list(struct neb_client *client, const struct neb_list *list, struct neb_result *ret_result)
{
	struct neb_request request = {.op = NEB_LIST_OBJECTS, .bucket = list->bucket};
	struct neb_result local;
	struct neb_result *result = ret_result ? ret_result : &local;
	struct page_room room;
	struct buf query;
	struct page page;
	bool sessions = client->rdma_count || client->owners;
	int ret = page_room_get(client, sessions ? CLIENT_LIST_PAGES : 1, &room);

	if (ret)
		return ret;
	page_init(&page, list->visit, list->arg);
	buf_init(&query, 16 * KIB);
	do {
		buf_reset(&query);
		param_put(&query, "encoding-type", "url");
		param_put(&query, "prefix", list->prefix);
		param_put(&query, "delimiter", list->delimiter);
		param_put(&query, "start-after", list->after);
		param_put(&query, "continuation-token", page.token.len ? page.token.data : NULL);
		if (list->page_keys)
			buf_printf(&query, "%smax-keys=%u", query.len ? "&" : "", list->page_keys);
		buf_put(&query, "", 1);
		request.query = query.data;
		ret = query.failed ? -EINVAL : list_pages(client, &request, &room, &page, result);
	} while (ret == 0 && page.truncated && page.token.len && !page.stopped);
	/* Callers delete what a list lacks, so a list that is cut off is an error. */
	if (ret == 0 && page.truncated && !page.stopped)
		ret = -EBADMSG;
	if (ret == -EBADMSG)
		snprintf(result->message, sizeof(result->message),
			page.truncated ? "the list is cut off: the server does not say where it "
					 "goes on"
				       : "the answer is not a list of objects");
	if (ret == -EILSEQ)
		snprintf(result->message, sizeof(result->message),
			"a key has a zero byte, which this library cannot name: delete the object "
			"by another client");
	result->error = ret;
	buf_free(&query);
	page_free(&page);
	page_room_put(client, &room);
	return ret;
}

int neb_list_buckets(
	struct neb_client *client, neb_list_fn *visit, void *arg, struct neb_result *ret_result)
{
	struct neb_request request = {.op = NEB_LIST_BUCKETS};
	struct neb_result local;
	struct neb_result *result = ret_result ? ret_result : &local;
	struct page_room room;
	struct page page;
	int ret = page_room_get(client, 1, &room);

	if (ret)
		return ret;
	page_init(&page, visit, arg);
	ret = list_pages(client, &request, &room, &page, result);
	result->error = ret;
	page_free(&page);
	page_room_put(client, &room);
	return ret;
}
