/* Fuzzes the headers of answers that origins give: what a copy keeps is well formed and fits. */
#include "origin/origin_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_kept(const struct s3_origin_object *object)
{
	struct slice rest = slice_of(object->headers, object->headers_len);

	CHECK(object->headers_len <= sizeof(object->headers));
	CHECK(object->bytes <= LIMIT_OBJECT_BYTES_MAX);
	CHECK(!rest.len || !rest.data[rest.len - 1]);
	while (rest.len) {
		struct slice name = slice_split(&rest, '\0');

		CHECK(name.len);
		CHECK(slice_split(&rest, '\0').len);
	}
}

/* The first byte: how long the ETag behind it is; its highest bit: a part is answered. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice text = slice_of(data, size);
	struct replicate_result result = {.status = 200, .object_bytes = 5};
	static struct answer answer;
	size_t etag_len;

	if (!size)
		return 0;
	etag_len = data[0] & 0x7f;
	if (data[0] & 0x80)
		result.status = 206;
	text = slice_from(text, 1);
	(void)slice_copy_str(slice_to(text, etag_len), result.etag, sizeof(result.etag));
	text = slice_from(text, MIN(etag_len, text.len));
	if (!answer_read(&result, text, &answer))
		check_kept(&answer.object);
	(void)answer_is_piece(text, 0, 5, 9);
	return 0;
}
