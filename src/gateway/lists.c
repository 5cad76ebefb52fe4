/* gateway/lists.c: ListBuckets and ListDirectoryBuckets over all stores. Each store gets the
 * client's own request; a page continues after a name, so the same request means the same place in
 * every store. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES_MAX	      (8 * MIB)
#define BUCKETS_MAX	      10000u
#define DIRECTORY_BUCKETS_MAX 1000u

DEFINE_COUNTER_FULL(lists_full, "gateway_lists");

struct entry {
	struct slice name, xml;
};

struct merge {
	struct buf pages[CLUSTER_STORES_MAX];
	uint32_t page_count;
	struct entry *entries;
	uint32_t entry_count, entries_max;
	bool more;
};

bool gw_lists_buckets(const struct s3_request *request)
{
	return request->method == S3_GET && slice_eq(request->path, SLICE("/")) &&
	       slice_find(request->query, SLICE("Action=")) < 0;
}

/* The whole body of an answer. */
static int body_read(struct gw_link *link, struct buf *out)
{
	uint64_t deadline_ns =
		clock_now_ns() + link->core->gateway->config->http.stall_timeout_s * NS_PER_S;
	uint64_t left = link->answer.bytes;
	uint32_t have = (uint32_t)MIN(left, link->end - link->start);
	char piece[8 * KIB];
	size_t got;
	int ret;

	if (left > PAGE_BYTES_MAX)
		return -EFBIG;
	buf_put(out, link->in + link->start, have);
	link->start += have;
	left -= have;
	while (left) {
		ret = net_recv(link->stream, piece, MIN(left, sizeof(piece)), deadline_ns, &got);
		if (ret || !got)
			return ret ? ret : -EPIPE;
		buf_put(out, piece, got);
		left -= got;
	}
	return out->failed ? -ENOMEM : 0;
}

static int page_take(struct merge *merge, const struct buf *page)
{
	struct slice rest = xml_text(buf_slice(page), "Buckets");
	struct slice tail = rest;

	if (!rest.data)
		return -EPROTO;
	tail = slice_of(
		rest.data + rest.len, page->len - (size_t)(rest.data + rest.len - page->data));
	merge->more = merge->more || slice_find(tail, SLICE("<ContinuationToken>")) >= 0;
	while (rest.len) {
		ptrdiff_t end = slice_find(rest, SLICE("</Bucket>"));
		struct entry *entry;

		if (end < 0)
			return -EPROTO;
		if (merge->entry_count == merge->entries_max) {
			uint32_t max = MAX(2 * merge->entries_max, 256u);
			struct entry *more = realloc(merge->entries, max * sizeof(*more));

			if (!more)
				return -ENOMEM;
			merge->entries = more;
			merge->entries_max = max;
		}
		entry = &merge->entries[merge->entry_count++];
		entry->xml = slice_to(rest, (size_t)end + strlen("</Bucket>"));
		entry->name = xml_text(entry->xml, "Name");
		rest = slice_from(rest, entry->xml.len);
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return slice_cmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* The most that the client wants on a page. */
static uint64_t count_wanted(const struct s3_request *request, bool directory)
{
	struct slice rest = request->query;
	uint64_t count = directory ? DIRECTORY_BUCKETS_MAX : BUCKETS_MAX;

	while (rest.len) {
		struct slice value = slice_split(&rest, '&'), name = slice_split(&value, '=');

		if (slice_eq(name, SLICE("max-buckets")) ||
			slice_eq(name, SLICE("max-directory-buckets")))
			(void)slice_to_u64(value, &count);
	}
	return count;
}

/* The first store's page, with everybody's buckets. */
static void merge_put(struct merge *merge, const struct s3_request *request, struct buf *out)
{
	struct slice first = buf_slice(&merge->pages[0]), tail, token;
	struct slice own = xml_text(first, "Buckets");
	bool directory = slice_find(first, SLICE("<ListAllMyDirectoryBucketsResult")) >= 0;
	uint64_t count = count_wanted(request, directory);

	if (merge->entry_count)
		qsort(merge->entries, merge->entry_count, sizeof(*merge->entries), by_name);
	merge->more = merge->more || merge->entry_count > count;
	count = MIN(count, merge->entry_count);
	buf_put(out, first.data, (size_t)(own.data - first.data));
	for (uint64_t i = 0; i < count; i++)
		buf_put_slice(out, merge->entries[i].xml);
	buf_put_str(out, "</Buckets>");
	if (merge->more && count) {
		struct slice last = merge->entries[count - 1].name;
		char text[BASE64_LEN(LIMIT_BUCKET_LEN_MAX)];

		buf_put_str(out, "<ContinuationToken>");
		if (last.len <= LIMIT_BUCKET_LEN_MAX)
			buf_put(out, text, base64_encode(last.data, last.len, text));
		buf_put_str(out, "</ContinuationToken>");
	}
	tail = slice_of(own.data + own.len, first.len - (size_t)(own.data + own.len - first.data));
	tail = slice_from(tail, strlen("</Buckets>"));
	token = xml_text(tail, "ContinuationToken");
	if (token.data)
		tail = slice_of(token.data + token.len + strlen("</ContinuationToken>"),
			(size_t)(first.data + first.len - token.data) - token.len -
				strlen("</ContinuationToken>"));
	buf_put_slice(out, tail);
}

static void answer(struct s3_reply *reply, uint32_t status, const struct buf *xml)
{
	const struct s3_header type = {SLICE("Content-Type"), SLICE("application/xml")};

	if (!reply->ops->head(reply, status, &type, 1, xml->len))
		reply->ops->text(reply, buf_slice(xml));
}

/* Asks one store. *ret_status: its answer, which is in the page. */
static int page_ask(struct gw_core *core, const struct s3_request *request, uint32_t store,
	struct buf *page, uint32_t *ret_status)
{
	struct gw_link *link;
	int ret = gw_exchange(core, request, store, VIA_SERVE, &link);

	if (ret)
		return ret;
	*ret_status = link->answer.status;
	ret = body_read(link, page);
	gw_link_end(link, !ret);
	return ret;
}

static void merge_free(struct merge *merge)
{
	for (uint32_t i = 0; merge && i < merge->page_count; i++)
		buf_free(&merge->pages[i]);
	if (merge)
		free(merge->entries);
	free(merge);
}

/* The answer to the client; *ret_status: of a store that refuses, or 200. */
static int list_make(struct gw_core *core, const struct s3_request *request, struct buf *out,
	uint32_t *ret_status)
{
	struct merge *merge = calloc(1, sizeof(*merge));
	uint32_t stores = gw_stores(core->gateway);
	int ret = merge ? 0 : -ENOMEM;

	*ret_status = 200;
	for (uint32_t i = 0; i < stores && !ret && *ret_status == 200; i++) {
		struct buf *page = &merge->pages[merge->page_count++];

		buf_init(page, PAGE_BYTES_MAX);
		ret = page_ask(core, request, i, page, ret_status);
		if (!ret && *ret_status == 200)
			ret = page_take(merge, page);
	}
	/* Each store refuses it with the same reason. */
	if (!ret && *ret_status != 200)
		buf_put_slice(out, buf_slice(&merge->pages[merge->page_count - 1]));
	else if (!ret)
		merge_put(merge, request, out);
	merge_free(merge);
	return ret ? ret : out->failed ? -ENOMEM : 0;
}

/* The stores' pages are in memory together, so few lists are made at a time. */
void gw_list_buckets(struct gw_core *core, const struct s3_request *request, struct s3_reply *reply)
{
	const struct gw_client client = gw_client_of(request);
	uint32_t status;
	struct buf out;
	int ret = -ENOBUFS;

	core->lists.max = GW_LISTS_MAX;
	buf_init(&out, gw_stores(core->gateway) * PAGE_BYTES_MAX);
	if (gw_place_take(&core->lists, &client)) {
		ret = list_make(core, request, &out, &status);
		if (!ret)
			answer(reply, status, &out);
		gw_place_give(&core->lists, &client);
	} else {
		counter_add(&lists_full, 1);
	}
	if (ret)
		gw_refuse(request, reply, 503, "SlowDown",
			ret == -ENOBUFS ? "Too many lists of buckets are being made. Try again."
					: "A store of the cluster does not answer, and the list "
					  "would lack its buckets. Try again.");
	buf_free(&out);
}
