/* Fuzzes what etcd answers, and the records that servers store there. */
#include "etcd/etcd_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct etcd_answer answer;
	struct etcd_record record;
	char token[64], why[64], text[ETCD_TEXT_MAX];
	uint64_t ms;

	if (etcd_answer_parse(slice_of(data, size), "nebulaio/owner", "nebulaio/life", &answer) ==
		0) {
		CHECK(strlen(answer.owner.text) < ETCD_TEXT_MAX);
		(void)etcd_life_parse(answer.life.text, &ms);
	}
	(void)etcd_token_parse(slice_of(data, size), token, sizeof(token));
	etcd_error_parse(slice_of(data, size), why, sizeof(why));
	if (slice_copy_str(slice_of(data, size), text, sizeof(text)) == 0 &&
		etcd_record_parse(text, &record) == 0)
		CHECK(record.epoch >= 1 && record.epoch < INT64_MAX);
	return 0;
}
