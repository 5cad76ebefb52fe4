/* Fuzzes the reader of a carried object's record: what it takes is inside the record, and is
 * written and read again the same. */
#include "base/base.h"
#include "base/buf.h"
#include "codec/carry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice text = slice_of(data, size);
	struct carry carry, again;
	uint32_t bytes;
	struct buf out;

	if (size >= CARRY_FRONT_BYTES && !carry_front_read(text.data, &bytes))
		CHECK(bytes && bytes <= CARRY_RECORD_BYTES);
	if (carry_read(text, &carry))
		return 0;
	CHECK(carry.headers.data + carry.headers.len == text.data + text.len);
	buf_init(&out, 2 * CARRY_RECORD_BYTES);
	if (!carry_write(&carry, &out)) {
		CHECK(!carry_read(slice_from(buf_slice(&out), CARRY_FRONT_BYTES), &again));
		CHECK(again.bytes == carry.bytes && slice_eq(again.etag, carry.etag));
	}
	buf_free(&out);
	return 0;
}
