/* Fuzzes the input of the inverse transforms: sealed streams under a key that the fuzzer cannot
 * know, compressed ones, and the filter. The first byte selects the transform, the second the
 * length of the pieces. A sealed stream gives only verified bytes, which are none: no input has a
 * valid tag under this key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "flow/transform.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char unseal[64];

static void key_make(void)
{
	int fd = memfd_create("key", 0);

	CHECK(fd >= 0);
	CHECK(write(fd, "no input can be sealed with this", 32) == 32);
	snprintf(unseal, sizeof(unseal), "aes256gcm-decrypt:/proc/self/fd/%d", fd);
}

/* Limits the output that is read of an input that expands. */
#define PULLS_MAX 64

static size_t pull(struct flow_transforms *chain, int *ret_pulled)
{
	static uint8_t buffer[NEB_TRANSFORM_ROOM];
	size_t bytes = 0;

	for (int i = 0; i < PULLS_MAX; i++) {
		struct flow_run run = {.data = buffer, .capacity = sizeof(buffer)};

		*ret_pulled = flow_transforms_pull(chain, &run);
		CHECK(run.to <= run.capacity);
		bytes += run.to;
		if (*ret_pulled != FLOW_PULL_FULL)
			break;
	}
	return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *texts[] = {
		unseal, "unzstd", "filter:lines,has=a", "filter:record=3,offset=1,is=61"};
	char why[FLOW_TRANSFORM_WHY_BYTES];
	struct flow_transforms *chain;
	size_t step, bytes = 0;
	int pulled = FLOW_PULL_HUNGRY;
	const char *text;

	if (size < 2)
		return 0;
	if (!unseal[0])
		key_make();
	text = texts[data[0] % ARRAY_LEN(texts)];
	step = 1 + data[1];
	CHECK(flow_transforms_open(&text, 1, &chain, why) == 0);
	for (size_t at = 2; at < size && pulled == FLOW_PULL_HUNGRY; at += step) {
		size_t len = MIN(step, size - at);
		uint8_t *piece = malloc(len);
		struct flow_run run = {.data = piece, .to = len, .capacity = len};

		memcpy(piece, data + at, len);
		CHECK(flow_transforms_piece(chain, &run) == 0);
		bytes += pull(chain, &pulled);
		free(piece);
	}
	if (pulled == FLOW_PULL_HUNGRY && flow_transforms_over(chain) == 0)
		bytes += pull(chain, &pulled);
	CHECK(text != unseal || (bytes == 0 && pulled < 0));
	CHECK(pulled >= 0 || flow_transforms_why(chain)[0]);
	flow_transforms_close(chain);
	return 0;
}
