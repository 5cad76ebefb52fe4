/* document/document.c: small named documents, as objects of a hidden bucket. */
#include "document/document.h"

#include <errno.h>
#include <stdio.h>

/* The only header of a document's object: its owner's number, in hex. */
#define OWNER_HEADER "x-nebulaio-owner"
#define OWNER_BYTES  (sizeof(OWNER_HEADER) + 17)

int document_own_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put)
{
	struct store_bucket bucket = {.created_ns = clock_real_ns(), .region = "us-east-1"};
	int ret = store_put_open(store, opts, ret_put);

	if (ret != -ENOENT)
		return ret;
	slice_copy_str(opts->bucket, bucket.name, sizeof(bucket.name));
	memcpy(bucket.owner, DOCUMENT_OWNER_ID, sizeof(DOCUMENT_OWNER_ID));
	ret = store_bucket_create(store, &bucket);
	if (ret && ret != -EEXIST)
		return ret;
	return store_put_open(store, opts, ret_put);
}

int document_read_source(struct flow_core *core, struct flow_source *source, struct buf *text)
{
	struct flow_piece piece;
	int ret;

	for (;;) {
		ret = flow_source_next(source, STORE_CHUNK_BYTES, &piece);
		if (ret <= 0)
			break;
		buf_put(text, piece.data, piece.bytes);
		flow_piece_end(
			core, &piece, piece.hold == FLOW_HOLD_CACHE ? OWNER_CACHE : OWNER_APP);
		if (text->failed) {
			ret = -EMSGSIZE;
			break;
		}
	}
	flow_source_close(source);
	return ret;
}

/* ---- Reading. ---- */

static int read_owner(const struct store_meta *meta, uint64_t *ret_owner)
{
	uint8_t bytes[8];

	if (meta->headers_len != OWNER_BYTES ||
		memcmp(meta->headers, OWNER_HEADER, sizeof(OWNER_HEADER)) != 0 ||
		hex_decode(slice_of(meta->headers + sizeof(OWNER_HEADER), 2 * sizeof(bytes)), bytes,
			sizeof(bytes)))
		return -EBADMSG;
	*ret_owner = 0;
	for (size_t i = 0; i < sizeof(bytes); i++)
		*ret_owner = *ret_owner << 8 | bytes[i];
	return 0;
}

int document_owner(struct store *store, struct slice name, uint64_t *ret_owner)
{
	struct store_get *get;
	bool ignored;
	int ret = store_get_open(store, SLICE(DOCUMENTS_BUCKET), name, &get, &ignored);

	if (ret)
		return ret;
	ret = read_owner(store_get_meta(get), ret_owner);
	store_get_close(get);
	return ret;
}

int document_get(struct store *store, struct flow_core *core, struct slice name,
	struct mem_arena *arena, struct document *ret_document)
{
	struct document document;
	const struct store_meta *meta;
	struct flow_source *source;
	struct store_get *get;
	struct buf text;
	bool ignored;
	int ret;

	ret = store_get_open(store, SLICE(DOCUMENTS_BUCKET), name, &get, &ignored);
	if (ret)
		return ret;
	meta = store_get_meta(get);
	buf_init(&text, DOCUMENT_BYTES_MAX);
	document.put_ns = meta->mtime_ns;
	ret = read_owner(meta, &document.owner);
	if (!ret)
		ret = slice_copy_str(slice_str(meta->etag), document.stamp, sizeof(document.stamp));
	if (!ret && meta->bytes) {
		ret = store_get_source(get, core, 0, meta->bytes, &source);
		if (!ret)
			ret = document_read_source(core, source, &text);
	}
	store_get_close(get);
	document.text = mem_arena_copy(arena, buf_slice(&text));
	buf_free(&text);
	if (ret)
		return ret;
	if (!document.text.data)
		return -ENOMEM;
	*ret_document = document;
	return 0;
}

/* ---- Writing. ---- */

static int check_stamp(const struct store_meta *current, void *arg)
{
	const char *expected = arg;

	if (!expected[0])
		return current ? -EEXIST : 0;
	return current && strcmp(current->etag, expected) == 0 ? 0 : -ESTALE;
}

/* Any two different texts must have different stamps. */
static void document_stamp(struct slice text, char ret_stamp[36])
{
	uint8_t digest[SHA256_BYTES];

	sha256_of(text.data, text.len, digest);
	hex_encode(digest, 16, ret_stamp);
	ret_stamp[32] = '\0';
}

static int move_text(
	struct flow_core *core, struct slice text, struct store_put *put, struct store_meta *meta)
{
	struct flow_checksum crc64;
	struct flow_stage *stages[] = {&crc64.stage};
	uint8_t digest[CHECKSUM_BYTES_MAX];
	struct flow_source *source;
	struct flow_sink *sink;
	uint64_t moved;
	int ret = flow_checksum_init(&crc64, CHECKSUM_CRC64NVME);

	if (!ret)
		ret = flow_memory_source_open(core, text, &source);
	if (ret)
		return ret;
	ret = store_put_sink(put, core, text.len, &sink);
	if (ret) {
		flow_source_close(source);
		return ret;
	}
	ret = flow_run(source, stages, 1, sink, &moved);
	if (ret)
		return ret;
	checksum_final(&crc64.checksum, digest);
	for (size_t i = 0; i < sizeof(meta->crc64); i++)
		meta->crc64 = meta->crc64 << 8 | digest[i];
	return 0;
}

int document_put(struct store *store, struct flow_core *core, struct slice name,
	const struct document *document, const char *expected)
{
	const struct store_put_opts opts = {.bucket = SLICE(DOCUMENTS_BUCKET),
		.key = name,
		.bytes = document->text.len,
		.bucket_id = document->ahead ? 0 : document->owner};
	struct store_meta meta = {.bytes = document->text.len, .headers_len = OWNER_BYTES};
	char headers[OWNER_BYTES + 1], wanted[sizeof(meta.etag)] = "";
	struct store_put *put;
	int ret;

	if (document->text.len > DOCUMENT_BYTES_MAX)
		return -EFBIG;
	snprintf(headers, sizeof(headers), "%s%c%016llx", OWNER_HEADER, 0,
		(unsigned long long)document->owner);
	meta.headers = headers;
	document_stamp(document->text, meta.etag);
	if (expected && slice_copy_str(slice_str(expected), wanted, sizeof(wanted)))
		return -ESTALE;
	ret = document_own_put_open(store, &opts, &put);
	if (ret)
		return ret;
	ret = move_text(core, document->text, put, &meta);
	if (ret) {
		store_put_abort(put);
		return ret;
	}
	return store_put_commit(put, &meta, expected ? check_stamp : NULL, wanted);
}

int document_put_text(
	struct store *store, struct flow_core *core, const struct document_text *wanted)
{
	static const char type[] = "content-type\0text/plain";
	const struct store_put_opts opts = {.bucket = wanted->bucket,
		.key = wanted->key,
		.bytes = wanted->text.len,
		.bucket_id = wanted->bucket_id};
	struct store_meta meta = {.bytes = wanted->text.len};
	uint8_t digest[MD5_BYTES];
	struct store_put *put;
	struct buf headers;
	int ret;

	buf_init(&headers, LIMIT_HTTP_HEAD_BYTES_MAX);
	buf_put(&headers, type, sizeof(type));
	buf_put_slice(&headers, wanted->headers);
	ret = headers.failed ? -E2BIG : store_put_open(store, &opts, &put);
	if (ret) {
		buf_free(&headers);
		return ret;
	}
	meta.headers = headers.data;
	meta.headers_len = (uint32_t)headers.len;
	md5_of(wanted->text.data, wanted->text.len, digest);
	hex_encode(digest, sizeof(digest), meta.etag);
	ret = move_text(core, wanted->text, put, &meta);
	if (ret)
		store_put_abort(put);
	else
		ret = store_put_commit(put, &meta, NULL, NULL);
	buf_free(&headers);
	return ret;
}

int document_delete(struct store *store, struct slice name)
{
	int ret = store_delete(store, SLICE(DOCUMENTS_BUCKET), name, NULL, NULL);

	return ret == -ENOENT ? 0 : ret;
}

/* A document that does not tell its owner can still be deleted. */
static int check_owner(const struct store_meta *current, void *arg)
{
	const uint64_t *wanted = arg;
	uint64_t owner;

	return current && !read_owner(current, &owner) && owner != *wanted ? -ECANCELED : 0;
}

int document_delete_of(struct store *store, struct slice name, uint64_t owner)
{
	int ret = store_delete(store, SLICE(DOCUMENTS_BUCKET), name, check_owner, &owner);

	return ret == -ENOENT || ret == -ECANCELED ? 0 : ret;
}

/* ---- Many. ---- */

/* One page of names under a prefix. The names are copies: the visited ones are only valid during
 * the visit. */
struct names {
	struct mem_arena arena;
	struct slice *list; /* LIMIT_LIST_KEYS_MAX */
	uint32_t count;
	bool failed;
};
_Static_assert(LIMIT_LIST_KEYS_MAX <= LIMIT_DELETE_KEYS_MAX, "a page can be deleted at once");

static void names_visit(const struct store_list_entry *entry, void *arg)
{
	struct names *names = arg;
	struct slice copy = mem_arena_copy(&names->arena, entry->key);

	if (copy.data)
		names->list[names->count++] = copy;
	else
		names->failed = true;
}

/* The caller frees names->arena in any case. */
static int names_page(struct store *store, const struct store_list_opts *opts, struct names *names,
	bool *ret_more)
{
	int ret;

	mem_arena_init(&names->arena);
	names->count = 0;
	names->failed = false;
	names->list = mem_arena_get(&names->arena, LIMIT_LIST_KEYS_MAX * sizeof(*names->list));
	if (!names->list)
		return -ENOMEM;
	ret = store_list(store, opts, names_visit, names, ret_more);
	return ret ? ret : names->failed ? -ENOMEM : 0;
}

int document_delete_under(struct store *store, struct slice bucket, struct slice prefix)
{
	const struct store_list_opts opts = {
		.bucket = bucket, .prefix = prefix, .entries_max = LIMIT_LIST_KEYS_MAX};
	bool more = true;
	int ret = 0;

	while (more && !ret) {
		struct names names;
		int *results;

		ret = names_page(store, &opts, &names, &more);
		results = mem_arena_get(&names.arena, LIMIT_LIST_KEYS_MAX * sizeof(*results));
		if (!ret && !results)
			ret = -ENOMEM;
		if (!ret && names.count)
			ret = store_delete_many(store, bucket, names.list, names.count, results);
		/* A failed deletion ends the loop: the same name would come again in each page. */
		for (uint32_t i = 0; !ret && i < names.count; i++)
			ret = results[i] == -ENOENT ? 0 : results[i];
		more = more && names.count;
		mem_arena_free(&names.arena);
	}
	return ret == -ENOENT ? 0 : ret;
}

int document_list(struct store *store, struct slice prefix, struct slice after,
	document_visit_fn *visit, void *arg)
{
	struct store_list_opts opts = {.bucket = SLICE(DOCUMENTS_BUCKET),
		.prefix = prefix,
		.entries_max = LIMIT_LIST_KEYS_MAX};
	char last[DOCUMENT_NAME_MAX + 1];
	bool more = true;
	int ret = slice_copy_str(after, last, sizeof(last));

	while (more && !ret) {
		struct names names;

		opts.after = slice_str(last);
		ret = names_page(store, &opts, &names, &more);
		more = more && names.count;
		for (uint32_t i = 0; !ret && i < names.count; i++) {
			slice_copy_str(names.list[i], last, sizeof(last));
			if (!visit(names.list[i], arg)) {
				more = false;
				break;
			}
		}
		mem_arena_free(&names.arena);
	}
	return ret == -ENOENT ? 0 : ret;
}

struct deletion {
	struct store *store;
	uint64_t owner;
	int ret;
};

static bool deletion_visit(struct slice name, void *arg)
{
	struct deletion *deletion = arg;

	deletion->ret = document_delete_of(deletion->store, name, deletion->owner);
	return !deletion->ret;
}

int document_delete_all(struct store *store, struct slice prefix, uint64_t owner)
{
	struct deletion deletion = {.store = store, .owner = owner};
	int ret = document_list(store, prefix, SLICE_NONE, deletion_visit, &deletion);

	return ret ? ret : deletion.ret;
}
