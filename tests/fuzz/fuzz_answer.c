/* Fuzzes the heads of answers that a gateway gets: what is taken lies inside the head. */
#include "gateway/gateway_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *head = (const char *)data;
	struct gw_answer answer;

	if (gw_answer_parse(slice_of(data, size), &answer))
		return 0;
	CHECK(answer.status >= 100 && answer.status < 600);
	for (uint32_t i = 0; i < answer.header_count; i++) {
		struct slice name = answer.headers[i].name, value = answer.headers[i].value;

		CHECK(name.data >= head && name.data + name.len <= head + size);
		CHECK(!value.len || (value.data >= head && value.data + value.len <= head + size));
	}
	return 0;
}
