#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "flow/transform_priv.h"

static char why[FLOW_TRANSFORM_WHY_BYTES];
static char folder[512];
static uint64_t seed = 1;

static uint64_t draw(uint64_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % below;
}

/* ---- A chain fed by hand. ---- */

#define OUT_BYTES (4 * MIB)

struct fed {
	uint8_t bytes[OUT_BYTES];
	size_t count;
	int result; /* the first error, or 0 */
};

/* Pulls the chain's output into buffers of different sizes. */
static int pull_all(struct flow_transforms *chain, struct fed *out)
{
	uint8_t *buffer = malloc(2 * NEB_TRANSFORM_ROOM);
	int ret;

	do {
		struct flow_run run = {
			.data = buffer, .capacity = NEB_TRANSFORM_ROOM + draw(NEB_TRANSFORM_ROOM)};

		ret = flow_transforms_pull(chain, &run);
		if (ret < 0)
			break;
		assert_true(run.to <= run.capacity && out->count + run.to <= OUT_BYTES);
		memcpy(out->bytes + out->count, buffer, run.to);
		out->count += run.to;
	} while (ret == FLOW_PULL_FULL);
	free(buffer);
	return ret;
}

static int feed_piece(
	struct flow_transforms *chain, const uint8_t *data, size_t bytes, struct fed *out)
{
	/* A copy of exactly this length, so that a sanitizer detects accesses past it. */
	uint8_t *copy = malloc(bytes);
	struct flow_run piece = {.data = copy, .to = bytes, .capacity = bytes};
	int ret;

	memcpy(copy, data, bytes);
	ret = flow_transforms_piece(chain, &piece);
	if (!ret && flow_transforms_same_length(chain)) {
		memcpy(out->bytes + out->count, copy, bytes);
		out->count += bytes;
	} else if (!ret) {
		ret = pull_all(chain, out);
		assert_int_not_equal(ret, FLOW_PULL_OVER);
		ret = MIN(ret, 0);
	}
	free(copy);
	return ret;
}

/* Passes all bytes through the chain, in pieces of any length up to piece_max. */
static void feed(struct flow_transforms *chain, const uint8_t *data, size_t bytes, size_t piece_max,
	struct fed *out)
{
	out->count = 0;
	out->result = 0;
	while (bytes && !out->result) {
		size_t step = 1 + draw(piece_max);

		step = MIN(step, bytes);
		out->result = feed_piece(chain, data, step, out);
		data += step;
		bytes -= step;
	}
	if (!out->result)
		out->result = flow_transforms_over(chain);
	if (!out->result && !flow_transforms_same_length(chain)) {
		out->result = pull_all(chain, out);
		assert_int_not_equal(out->result, FLOW_PULL_HUNGRY);
		out->result = MIN(out->result, 0);
		if (!out->result)
			assert_int_equal(pull_all(chain, out), FLOW_PULL_OVER);
	}
}

static struct flow_transforms *chain_of(const char *first, const char *second)
{
	const char *texts[] = {first, second};
	struct flow_transforms *chain;

	assert_int_equal(flow_transforms_open(texts, second ? 2 : 1, &chain, why), 0);
	assert_string_equal(flow_transforms_why(chain), "");
	return chain;
}

/* Returns the transforms' result and output. */
static int through(const char *first, const char *second, const uint8_t *data, size_t bytes,
	size_t piece_max, struct fed *out)
{
	struct flow_transforms *chain = chain_of(first, second);

	feed(chain, data, bytes, piece_max, out);
	snprintf(why, sizeof(why), "%s", flow_transforms_why(chain));
	flow_transforms_close(chain);
	return out->result;
}

static const char *file_text(const char *name, const char *file)
{
	static char texts[4][700];
	static int next;
	char *text = texts[next++ % 4];

	snprintf(text, sizeof(texts[0]), "%s:%s/%s", name, folder, file);
	return text;
}

static void file_make(const char *name, size_t bytes, uint8_t value)
{
	char path[600];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	while (bytes--)
		fputc(value, file);
	assert_int_equal(fclose(file), 0);
}

static uint8_t *body_make(size_t bytes)
{
	uint8_t *body = malloc(bytes + 1);

	for (size_t i = 0; i < bytes; i++)
		body[i] = (uint8_t)(draw(4) ? 'a' + i / 100 % 26 : draw(256));
	return body;
}

/* ---- Round trips. ---- */

static const size_t LENGTHS[] = {
	0, 1, 31, 32, 65535, 65536, 65537, 131072, 131073, MIB, 3 * MIB / 2 + 17};

static void there_and_back(const char *there, const char *back, bool changes)
{
	struct fed *out = malloc(sizeof(*out)), *again = malloc(sizeof(*again));

	for (size_t i = 0; i < sizeof(LENGTHS) / sizeof(*LENGTHS); i++) {
		uint8_t *body = body_make(LENGTHS[i]);
		size_t piece_max = i % 2 ? MIB : 5000;

		assert_int_equal(through(there, NULL, body, LENGTHS[i], piece_max, out), 0);
		if (changes && LENGTHS[i] > 32)
			assert_true(out->count != LENGTHS[i] ||
				    memcmp(out->bytes, body, LENGTHS[i]) != 0);
		assert_int_equal(through(back, NULL, out->bytes, out->count, piece_max, again), 0);
		assert_int_equal(again->count, LENGTHS[i]);
		assert_memory_equal(again->bytes, body, LENGTHS[i]);
		assert_int_equal(through(there, back, body, LENGTHS[i], 300000, again), 0);
		assert_int_equal(again->count, LENGTHS[i]);
		assert_memory_equal(again->bytes, body, LENGTHS[i]);
		free(body);
	}
	free(out);
	free(again);
}

static void test_there_and_back(void **state)
{
	(void)state;
	there_and_back(file_text("aes256ctr", "key48"), file_text("aes256ctr", "key48"), true);
	there_and_back(
		file_text("aes256gcm", "key32"), file_text("aes256gcm-decrypt", "key32"), true);
	there_and_back("zstd", "unzstd", true);
	there_and_back("zstd:level=1", "unzstd", true);
}

/* ---- Sealed streams, checked against the document, not against the code that writes them. ---- */

static void test_sealed_by_the_document(void **state)
{
	const size_t bytes = 65536 + 100;
	uint8_t *body = body_make(bytes), plain[65536], secret[32], nonce[12] = {0}, tag[16];
	struct fed *out = malloc(sizeof(*out));
	struct {
		uint8_t key[32], check[8];
	} keys;
	struct aead *aead;
	struct aead_message message = {.nonce = nonce, .dst = plain, .tag = tag};

	(void)state;
	assert_int_equal(through(file_text("aes256gcm", "key32"), NULL, body, bytes, 7000, out), 0);
	assert_int_equal(out->count, 32 + bytes + 2 * 16);
	assert_memory_equal(out->bytes, "NEBSEAL1", 8);
	memset(secret, 7, sizeof(secret));
	assert_int_equal(hkdf_sha256(slice_of(secret, sizeof(secret)), slice_of(out->bytes, 24),
				 slice_str("nebulaio flow aes256gcm"), &keys, sizeof(keys)),
		0);
	assert_memory_equal(out->bytes + 24, keys.check, 8);
	assert_int_equal(aead_open(keys.key, &aead), 0);
	message.src = out->bytes + 32;
	message.len = 65536;
	memcpy(tag, out->bytes + 32 + 65536, 16);
	assert_int_equal(aead_unseal(aead, &message), 0);
	assert_memory_equal(plain, body, 65536);
	nonce[7] = 1;
	nonce[11] = 1;
	message.src = out->bytes + 32 + 65536 + 16;
	message.len = 100;
	memcpy(tag, out->bytes + out->count - 16, 16);
	assert_int_equal(aead_unseal(aead, &message), 0);
	assert_memory_equal(plain, body + 65536, 100);
	aead_close(aead);
	free(body);
	free(out);
}

/* Two streams with one key file have different keys and nonces. */
static void test_sealed_twice(void **state)
{
	struct fed *one = malloc(sizeof(*one)), *two = malloc(sizeof(*two));
	uint8_t body[1000] = {0};

	(void)state;
	assert_int_equal(through(file_text("aes256gcm", "key32"), NULL, body, 1000, 99, one), 0);
	assert_int_equal(through(file_text("aes256gcm", "key32"), NULL, body, 1000, 99, two), 0);
	assert_int_equal(one->count, two->count);
	assert_memory_not_equal(one->bytes + 8, two->bytes + 8, 16);
	assert_memory_not_equal(one->bytes + 32, two->bytes + 32, 1000);
	free(one);
	free(two);
}

/* Every changed byte and every cut is detected; no byte of a message that fails verification is
 * passed on. */
static void test_sealed_is_refused(void **state)
{
	const char *unseal = file_text("aes256gcm-decrypt", "key32");
	const size_t bytes = 2 * 65536 + 5;
	uint8_t *body = body_make(bytes);
	struct fed *sealed = malloc(sizeof(*sealed)), *out = malloc(sizeof(*out));
	const size_t places[] = {
		0, 8, 23, 24, 31, 32, 65567, 65568, 65583, 65584, 131135, 131136, 131140, 131156};
	const size_t cuts[] = {0, 1, 31, 32, 33, 48, 65584, 65585, 131136, 131140, 131156};
	size_t given;

	(void)state;
	assert_int_equal(
		through(file_text("aes256gcm", "key32"), NULL, body, bytes, 7000, sealed), 0);
	assert_int_equal(sealed->count, 131157);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		sealed->bytes[places[i]] ^= 0x40;
		assert_int_equal(
			through(unseal, NULL, sealed->bytes, sealed->count, 9000, out), -EBADMSG);
		sealed->bytes[places[i]] ^= 0x40;
		given = places[i] < 65584 ? 0 : places[i] < 131136 ? 65536 : 131072;
		assert_int_equal(out->count, given);
		assert_memory_equal(out->bytes, body, given);
	}
	for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
		assert_int_equal(
			through(unseal, NULL, sealed->bytes, cuts[i], 9000, out), -EBADMSG);
		assert_non_null(strstr(why, "cut off"));
		assert_memory_equal(out->bytes, body, out->count);
	}
	/* Messages in another order, and one missing. */
	memmove(sealed->bytes + 32, sealed->bytes + 32 + 65552, sealed->count - 32 - 65552);
	assert_int_equal(
		through(unseal, NULL, sealed->bytes, sealed->count - 65552, 9000, out), -EBADMSG);
	assert_int_equal(out->count, 0);
	assert_int_equal(through(file_text("aes256gcm-decrypt", "other32"), NULL, sealed->bytes,
				 sealed->count, 9000, out),
		-EBADMSG);
	assert_non_null(strstr(why, "another key"));
	assert_int_equal(out->count, 0);
	free(body);
	free(sealed);
	free(out);
}

/* ---- Compressed data that is not whole. ---- */

static void test_compressed_is_refused(void **state)
{
	const size_t bytes = 700000;
	uint8_t *body = body_make(bytes);
	struct fed *packed = malloc(sizeof(*packed)), *out = malloc(sizeof(*out));
	uint32_t noticed = 0;

	(void)state;
	assert_int_equal(through("zstd", NULL, body, bytes, 50000, packed), 0);
	assert_true(packed->count > 1000 && packed->count < bytes);
	for (size_t cut = 0; cut < packed->count; cut += 1 + packed->count / 50) {
		assert_int_equal(through("unzstd", NULL, packed->bytes, cut, 50000, out), -EBADMSG);
		assert_non_null(strstr(why, "cut off"));
		assert_memory_equal(out->bytes, body, out->count);
	}
	for (size_t at = 0; at < packed->count; at += 1 + packed->count / 50) {
		packed->bytes[at] ^= 0x10;
		noticed += through("unzstd", NULL, packed->bytes, packed->count, 50000, out) ==
			   -EBADMSG;
		/* A bit of the header may have no meaning: the content is then intact. */
		if (!out->result)
			assert_memory_equal(out->bytes, body, bytes);
		packed->bytes[at] ^= 0x10;
	}
	assert_in_range(noticed, 45, 51);
	/* Two consecutive frames; then other bytes. */
	memcpy(packed->bytes + packed->count, packed->bytes, packed->count);
	assert_int_equal(through("unzstd", NULL, packed->bytes, 2 * packed->count, 50000, out), 0);
	assert_int_equal(out->count, 2 * bytes);
	packed->bytes[packed->count] ^= 1;
	assert_int_equal(
		through("unzstd", NULL, packed->bytes, 2 * packed->count, 50000, out), -EBADMSG);
	free(body);
	free(packed);
	free(out);
}

/* A frame that needs a window of 2 GiB is refused before memory is allocated for it. */
static void test_compressed_is_bounded(void **state)
{
	static const uint8_t HUGE[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0, 0, 0, 0, 0, 0};
	struct fed *out = malloc(sizeof(*out));

	(void)state;
	assert_int_equal(through("unzstd", NULL, HUGE, sizeof(HUGE), 100, out), -EBADMSG);
	assert_non_null(strstr(why, "memory"));
	free(out);
}

/* ---- The filter. ---- */

static void filtered(const char *text, const char *body, size_t bytes, const char *expected)
{
	struct fed *out = malloc(sizeof(*out));

	for (size_t piece_max = 1; piece_max < 40; piece_max += 3) {
		assert_int_equal(
			through(text, NULL, (const uint8_t *)body, bytes, piece_max, out), 0);
		assert_int_equal(out->count, strlen(expected));
		assert_memory_equal(out->bytes, expected, strlen(expected));
	}
	free(out);
}

static void test_filter(void **state)
{
	static const char LINES[] = "one\ntwo, three\n\nfour\nno end, three";
	static const char RECORDS[] = "AAxxBBxxAAyyCCxx";
	static uint8_t line[70000];
	struct fed *out = malloc(sizeof(*out));

	(void)state;
	filtered("filter:lines,has=o", LINES, sizeof(LINES) - 1,
		"one\ntwo, three\nfour\nno end, three");
	filtered("filter:lines,has=, three", LINES, sizeof(LINES) - 1, "two, three\nno end, three");
	filtered("filter:lines,lacks=o", LINES, sizeof(LINES) - 1, "\n");
	filtered("filter:lines,has=nothing", LINES, sizeof(LINES) - 1, "");
	filtered("filter:record=4,offset=0,is=4141", RECORDS, sizeof(RECORDS) - 1, "AAxxAAyy");
	filtered("filter:record=4,is=4141", RECORDS, sizeof(RECORDS) - 1, "AAxxAAyy");
	filtered("filter:record=4,offset=2,not=7878", RECORDS, sizeof(RECORDS) - 1, "AAyy");
	assert_int_equal(through("filter:record=4,offset=2,not=7878", NULL,
				 (const uint8_t *)RECORDS, 15, 5, out),
		-EBADMSG);
	assert_non_null(strstr(why, "cut off"));
	memset(line, 'x', sizeof(line));
	assert_int_equal(
		through("filter:lines,has=x", NULL, line, sizeof(line), 90000, out), -EMSGSIZE);
	line[65535] = '\n';
	assert_int_equal(through("filter:lines,has=x", NULL, line, sizeof(line), 90000, out), 0);
	assert_int_equal(out->count, sizeof(line));
	free(out);
}

/* ---- Transforms that break their promises. ---- */

static struct {
	int change, convert, flush; /* what they return */
	size_t bytes, taken, given;
	uint32_t calls;
} bent;

static int bent_change(void *state, uint8_t *data, size_t *bytes, size_t capacity)
{
	(void)state;
	(void)data;
	(void)capacity;
	*bytes = bent.bytes;
	return bent.change;
}

static int bent_convert(void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	(void)state;
	assert_true(out->capacity >= NEB_TRANSFORM_ROOM);
	assert_int_equal(in->taken, 0);
	assert_int_equal(out->bytes, 0);
	bent.calls++;
	in->taken = bent.taken;
	out->bytes = bent.given;
	return bent.convert;
}

static int bent_flush(void *state, struct neb_transform_out *out)
{
	(void)state;
	out->bytes = bent.given;
	return bent.flush;
}

static const char *bent_why(void *state)
{
	(void)state;
	return "the sky fell";
}

static const struct neb_transform SAME = {.flags = NEB_TRANSFORM_SAME_LENGTH,
	.name = "same",
	.change = bent_change,
	.flush = bent_flush};
static const struct neb_transform CHANGE = {
	.name = "change", .change = bent_change, .flush = bent_flush};
static const struct neb_transform CONVERT = {
	.name = "convert", .convert = bent_convert, .flush = bent_flush, .why = bent_why};

static void bent_run(const struct neb_transform *transform, int error, const char *says)
{
	struct flow_transforms *chain;
	struct fed *out = malloc(sizeof(*out));
	uint8_t body[100] = {0};

	assert_int_equal(flow_transforms_open_one(transform, "", &chain, why), 0);
	feed(chain, body, sizeof(body), 1, out);
	assert_int_equal(out->result, error);
	assert_non_null(strstr(flow_transforms_why(chain), says));
	assert_non_null(strstr(flow_transforms_why(chain), transform->name));
	flow_transforms_close(chain);
	free(out);
	memset(&bent, 0, sizeof(bent));
}

static void test_broken_promises(void **state)
{
	(void)state;
	bent.bytes = 2; /* of pieces of one byte */
	bent_run(&SAME, -EPROTO, "made 2 bytes where 1 have room");
	bent.bytes = 0;
	bent_run(&SAME, -EPROTO, "says that lengths stay");
	bent.bytes = SIZE_MAX;
	bent_run(&CHANGE, -EPROTO, "where 1 have room");
	bent.bytes = 1;
	bent.change = 1;
	bent_run(&CHANGE, -EPROTO, "returned 1, which means nothing");
	bent.change = -100000;
	bent_run(&CHANGE, -EPROTO, "returned -100000");
	bent.change = -EIO;
	bent_run(&CHANGE, -EIO, "Input/output error");
	bent.bytes = 1;
	bent.given = 1;
	bent_run(&SAME, -EPROTO, "gave 1 bytes where 0 have room");
	bent.bytes = 1;
	bent.flush = -EBADMSG;
	bent_run(&SAME, -EBADMSG, "Bad message");

	bent.given = SIZE_MAX;
	bent_run(&CONVERT, -EPROTO, "have room");
	bent.taken = 2;
	bent_run(&CONVERT, -EPROTO, "took 2 bytes of 1");
	bent_run(&CONVERT, -EPROTO, "neither takes nor gives");
	bent.taken = 1;
	bent.convert = NEB_TRANSFORM_MORE;
	bent_run(&CONVERT, -EPROTO, "took 1 bytes of 0");
	bent.convert = NEB_TRANSFORM_MORE;
	bent_run(&CONVERT, -EPROTO, "neither takes nor gives");
	bent.convert = -ENOSPC;
	bent_run(&CONVERT, -ENOSPC, "the sky fell");
	bent.taken = 1;
	bent.flush = NEB_TRANSFORM_MORE;
	bent_run(&CONVERT, -EPROTO, "has more to give and gives nothing");
	bent.taken = 1;
	bent.flush = 7;
	bent_run(&CONVERT, -EPROTO, "returned 7");
	bent.taken = 1;
	bent.flush = -EBADMSG;
	bent_run(&CONVERT, -EBADMSG, "the sky fell");
}

/* A transform with endless output is called only while there is room. */
static void test_endless(void **state)
{
	struct flow_transforms *chain;
	uint8_t byte = 0, *room = malloc(MIB);
	struct flow_run piece = {.data = &byte, .to = 1, .capacity = 1},
			out = {.data = room, .capacity = MIB};

	(void)state;
	memset(&bent, 0, sizeof(bent));
	assert_int_equal(flow_transforms_open_one(&CONVERT, "", &chain, why), 0);
	assert_int_equal(flow_transforms_piece(chain, &piece), 0);
	bent.given = 1000;
	bent.convert = NEB_TRANSFORM_MORE;
	assert_int_equal(flow_transforms_pull(chain, &out), FLOW_PULL_FULL);
	assert_in_range(out.to, MIB - NEB_TRANSFORM_ROOM, MIB);
	assert_int_equal(bent.calls, out.to / 1000);
	flow_transforms_close(chain);
	free(room);
	memset(&bent, 0, sizeof(bent));
}

/* ---- Chains. ---- */

/* Drops every second byte of a piece, in place. */
static int halve(void *state, uint8_t *data, size_t *bytes, size_t capacity)
{
	(void)state;
	(void)capacity;
	for (size_t i = 0; i < *bytes / 2; i++)
		data[i] = data[2 * i];
	*bytes /= 2;
	return 0;
}

/* Outputs each byte three times, the last two in calls of their own. */
struct triple {
	uint8_t byte;
	int left;
};
static int triple_open(const char *options, char *text, size_t text_bytes, void **ret_state)
{
	(void)options;
	(void)text;
	(void)text_bytes;
	*ret_state = calloc(1, sizeof(struct triple));
	return 0;
}

static int triple_convert(void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	struct triple *self = state;

	if (!self->left) {
		if (!in->bytes)
			return 0;
		self->byte = in->data[0];
		self->left = 3;
		in->taken = 1;
	}
	out->data[0] = self->byte;
	out->bytes = 1;
	return --self->left ? NEB_TRANSFORM_MORE : 0;
}

static int mark_flush(void *state, struct neb_transform_out *out)
{
	(void)state;
	out->data[0] = '.';
	out->bytes = 1;
	return 0;
}

static const struct neb_transform HALVE = {.name = "halve", .change = halve, .flush = mark_flush};
static const struct neb_transform TRIPLE = {.name = "triple",
	.open = triple_open,
	.convert = triple_convert,
	.flush = mark_flush,
	.close = free};

static void chained(const struct neb_transform *const *transforms, const char *expected)
{
	struct flow_transforms *chain;
	struct fed *out = malloc(sizeof(*out));

	assert_int_equal(flow_transforms_open(NULL, 0, &chain, why), 0);
	for (; *transforms; transforms++)
		assert_int_equal(flow_transforms_add(chain, *transforms, "", why), 0);
	assert_int_equal(
		feed_piece(chain, (const uint8_t *)"abcd", 4, memset(out, 0, sizeof(*out))), 0);
	assert_int_equal(flow_transforms_over(chain), 0);
	assert_int_equal(pull_all(chain, out), FLOW_PULL_OVER);
	out->bytes[out->count] = '\0';
	assert_string_equal((char *)out->bytes, expected);
	flow_transforms_close(chain);
	free(out);
}

/* The output that a transform still has at the end passes through the transforms after it, and only
 * those. */
static void test_chains(void **state)
{
	(void)state;
	chained((const struct neb_transform *const[]){&HALVE, NULL}, "ac.");
	chained((const struct neb_transform *const[]){&TRIPLE, NULL}, "aaabbbcccddd.");
	chained((const struct neb_transform *const[]){&HALVE, &HALVE, NULL}, "a.");
	chained((const struct neb_transform *const[]){&HALVE, &TRIPLE, NULL}, "aaaccc....");
	chained((const struct neb_transform *const[]){&TRIPLE, &TRIPLE, NULL},
		"aaaaaaaaabbbbbbbbbcccccccccddddddddd....");
	chained((const struct neb_transform *const[]){&TRIPLE, &HALVE, &TRIPLE, NULL}, "....");
}

static void test_too_many(void **state)
{
	struct flow_transforms *chain;
	struct fed *out = calloc(1, sizeof(*out));

	(void)state;
	assert_int_equal(flow_transforms_open(NULL, 0, &chain, why), 0);
	for (uint32_t i = 0; i < FLOW_TRANSFORMS_MAX; i++)
		assert_int_equal(flow_transforms_add(chain, &HALVE, "", why), 0);
	assert_int_equal(flow_transforms_add(chain, &HALVE, "", why), -E2BIG);
	assert_int_equal(feed_piece(chain, (const uint8_t *)"abcd", 4, out), 0);
	flow_transforms_close(chain);
	free(out);
}

/* ---- Packets. ---- */

static int even_only(void *state, uint8_t *data, size_t *bytes, size_t capacity)
{
	(void)state;
	assert_true(*bytes <= capacity);
	data[0] ^= 0xff;
	*bytes = data[*bytes - 1] % 2 ? 0 : *bytes;
	return 0;
}

static const struct neb_transform EVEN = {
	.flags = NEB_TRANSFORM_PACKETS, .name = "even", .change = even_only};

/* Each piece is a whole packet: changed in place, cut, or dropped; nothing is gathered. */
static void test_packets(void **state)
{
	struct flow_transforms *chain;
	uint8_t data[8] = {1, 2, 3, 4, 5, 6};
	struct flow_run packet = {.data = data, .to = 6, .capacity = sizeof(data)};

	(void)state;
	assert_int_equal(flow_transforms_open(NULL, 0, &chain, why), 0);
	assert_false(flow_transforms_of_packets(chain));
	assert_int_equal(flow_transforms_add(chain, &EVEN, "", why), 0);
	assert_int_equal(flow_transforms_add(chain, &FLOW_TRANSFORM_SNAP, "4", why), 0);
	assert_true(flow_transforms_of_packets(chain));
	assert_false(flow_transforms_same_length(chain));
	assert_int_equal(flow_transforms_piece(chain, &packet), 0);
	assert_int_equal(packet.to, 4);
	assert_int_equal(data[0], 1 ^ 0xff);
	packet.to = 3;
	assert_int_equal(flow_transforms_piece(chain, &packet), 0);
	assert_int_equal(packet.to, 0);
	packet.to = 4;
	assert_int_equal(flow_transforms_piece(chain, &packet), 0);
	assert_int_equal(packet.to, 4);
	flow_transforms_close(chain);
}

static void test_packets_come_first(void **state)
{
	const char *const LATE[] = {"zstd", "snap:64"}, *const EARLY[] = {"snap:64", "zstd"};
	const char *const OPTIONS[] = {
		"snap", "snap:", "snap:0", "snap:-1", "snap:9x", "snap:9999999"};
	struct flow_transforms *chain;
	bool packets = false;

	(void)state;
	assert_int_equal(flow_transforms_open(LATE, 2, &chain, why), -EINVAL);
	assert_non_null(strstr(why, "snap works on packets, the transforms before it on bytes"));
	assert_int_equal(flow_transforms_open(EARLY, 2, &chain, why), -EINVAL);
	assert_non_null(strstr(why, "zstd works on bytes, the transforms before it on packets"));
	for (size_t i = 0; i < sizeof(OPTIONS) / sizeof(*OPTIONS); i++) {
		assert_int_equal(flow_transforms_open(&OPTIONS[i], 1, &chain, why), -EINVAL);
		assert_non_null(strstr(why, "it needs a number of bytes"));
	}
	assert_int_equal(flow_transform_of_packets("snap:9", &packets, why), 0);
	assert_true(packets);
	assert_int_equal(flow_transform_of_packets("zstd", &packets, why), 0);
	assert_false(packets);
	assert_int_equal(flow_transform_of_packets("none", &packets, why), -EINVAL);
	assert_int_equal(flow_transform_of_packets("/dev/null", &packets, why), -EINVAL);
}

/* ---- Texts and shared objects. ---- */

static void refused(const char *text, const char *says)
{
	struct flow_transforms *chain;

	why[0] = '\0';
	assert_int_equal(flow_transforms_open(&text, 1, &chain, why) < 0, 1);
	if (!strstr(why, says))
		fail_msg("%s: '%s' is not in '%s'", text, says, why);
}

static void test_texts(void **state)
{
	static const char *const WRONG[] = {"filter", "filter:", "filter:lines",
		"filter:lines,has=", "filter:lines,is=00", "filter:record=0,is=00",
		"filter:record=4,is=0", "filter:record=4,is=zz", "filter:record=4,offset=4,is=00",
		"filter:record=4,offset=3,is=0000", "filter:record=4,is=00,not=01",
		"filter:record=65537,is=00", "filter:record=4,offset=2", "zstd:level=0",
		"zstd:level=20", "zstd:level=3x", "zstd:fast", "unzstd:level=1", "rot13", "", ":x",
		"aes256gcm", "aes256gcm:/nowhere/key", "./nothing.so", "/"};

	(void)state;
	for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++) {
		struct flow_transforms *chain;

		why[0] = '\0';
		assert_false(flow_transform_check(WRONG[i], why));
		assert_true(strlen(why) > 10);
		assert_true(flow_transforms_open(&WRONG[i], 1, &chain, why) < 0);
	}
	refused("rot13", "there is no transform 'rot13'");
	refused("aes256gcm:/nowhere/key", "No such file");
	refused(file_text("aes256gcm", "key48"), "must hold 32 bytes");
	refused(file_text("aes256ctr", "key32"), "must hold 48 bytes");
	refused("./nothing.so", "./nothing.so: No such file");
	refused("/", "is not a file");
	assert_true(flow_transform_check("zstd:level=19", why));
	assert_true(flow_transform_check(file_text("aes256gcm", "key32"), why));
}

static const char *module_path(const char *kind, const char *options)
{
	static char path[1000];

	snprintf(path, sizeof(path), "%s/transform_%s.so%s", getenv("MODULES"), kind, options);
	return path;
}

static void test_shared_objects(void **state)
{
	const uint8_t body[] = {0, 1, 0xff};
	struct fed *out = malloc(sizeof(*out));

	(void)state;
	assert_int_equal(through(module_path("good", ":good"), NULL, body, 3, 2, out), 0);
	assert_memory_equal(out->bytes, "\xff\xfe\x00", 3);
	assert_true(flow_transform_check(module_path("good", ""), why));
	refused(module_path("good", ":bad"), "invert: 'bad' is not good");
	refused(module_path("good", ""), "'' is not good");
	refused(module_path("version", ":good"), "is made for version 2");
	refused(module_path("flags", ":good"), "has flags 0x5");
	refused(module_path("both", ":good"), "change or convert");
	refused(module_path("nothing", ":good"), "has no symbol neb_transform");
	refused(file_text("", "key32") + 1, "key32");
	free(out);
}

static int folder_make(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "%s/nebulaio-transform-XXXXXX",
		getenv("TMPDIR") ? getenv("TMPDIR") : ".");
	if (!mkdtemp(folder))
		return -1;
	file_make("key32", 32, 7);
	file_make("other32", 32, 8);
	file_make("key48", 48, 9);
	return 0;
}

static int folder_remove(void **state)
{
	char command[600];

	(void)state;
	snprintf(command, sizeof(command), "rm -r '%s'", folder);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_sealed_by_the_document),
		cmocka_unit_test(test_sealed_twice),
		cmocka_unit_test(test_sealed_is_refused),
		cmocka_unit_test(test_compressed_is_refused),
		cmocka_unit_test(test_compressed_is_bounded),
		cmocka_unit_test(test_filter),
		cmocka_unit_test(test_broken_promises),
		cmocka_unit_test(test_endless),
		cmocka_unit_test(test_chains),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_packets),
		cmocka_unit_test(test_packets_come_first),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_shared_objects),
	};

	return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
