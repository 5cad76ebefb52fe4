/* front/http/chunked.c: the chunked codings: HTTP's own and the three of aws-chunked, which share
 * their grammar: chunks of "SIZE[;extension]" CRLF data CRLF, ended by one of size 0 and trailers.
 *
 * Sources: RFC 9112 section 7.1; AWS, "Signature calculations for the Authorization header:
 * transferring payload in multiple chunks", and the same with trailing headers.
 *
 * Strict where a proxy in front might parse differently (line ends, sizes, white space): request
 * smuggling uses such differences. Trailers of aws-chunked may end in a lone LF before the CRLF:
 * one family of clients writes "name:value\n\r\n", which is also what is signed. */
#include "front/http/http_priv.h"

#include <ctype.h>
#include <errno.h>

static const struct slice chunk_signature = {"chunk-signature=", 16};
static const struct slice trailer_signature = {"x-amz-trailer-signature", 23};

#define SIZE_DIGITS_MAX 16u

void http_chunked_init(struct http_chunked *chunked, enum http_coding coding, struct http_in *in,
	const struct s3_chunk_signing *signing, uint64_t bytes_max)
{
	chunked->in = in;
	chunked->coding = coding;
	chunked->state = HTTP_CHUNK_HEAD;
	chunked->chunk_left = 0;
	chunked->bytes = 0;
	chunked->bytes_max = bytes_max;
	chunked->closed = false;
	chunked->trailer_count = 0;
	chunked->trailer_bytes = 0;
	if (coding == HTTP_CODING_TRANSFER || coding == HTTP_CODING_AWS_UNSIGNED_TRAILER)
		return;
	hmac_key_init(&chunked->key, signing->signing_key, sizeof(signing->signing_key));
	memcpy(chunked->timestamp, signing->timestamp, sizeof(chunked->timestamp));
	memcpy(chunked->scope, signing->scope, sizeof(chunked->scope));
	memcpy(chunked->previous, signing->seed_signature, sizeof(chunked->previous));
}

static bool is_signed(const struct http_chunked *chunked)
{
	return chunked->coding == HTTP_CODING_AWS_SIGNED ||
	       chunked->coding == HTTP_CODING_AWS_SIGNED_TRAILER;
}

/* ---- Signatures. ---- */

static void mac_line(struct hmac *mac, struct slice text)
{
	hmac_update(mac, text.data, text.len);
	hmac_update(mac, "\n", 1);
}

/* The next link of the chain over a digest, compared with the peer's. */
static int verify_link(struct http_chunked *chunked, bool trailer, struct slice claimed)
{
	static const char empty_sha256[] =
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
	uint8_t digest[SHA256_BYTES], signature[SHA256_BYTES];
	char digest_text[2 * SHA256_BYTES], expected[2 * SHA256_BYTES];
	struct hmac mac;

	sha256_final(&chunked->sum, digest);
	hex_encode(digest, sizeof(digest), digest_text);
	hmac_init(&mac, &chunked->key);
	mac_line(&mac,
		trailer ? SLICE("AWS4-HMAC-SHA256-TRAILER") : SLICE("AWS4-HMAC-SHA256-PAYLOAD"));
	mac_line(&mac, slice_str(chunked->timestamp));
	mac_line(&mac, slice_str(chunked->scope));
	mac_line(&mac, slice_of(chunked->previous, sizeof(chunked->previous)));
	if (!trailer)
		mac_line(&mac, slice_of(empty_sha256, sizeof(empty_sha256) - 1));
	hmac_update(&mac, digest_text, sizeof(digest_text));
	hmac_final(&mac, signature);
	hex_encode(signature, sizeof(signature), expected);
	if (claimed.len != sizeof(expected) ||
		!secret_equal(claimed.data, expected, sizeof(expected)))
		return -EBADMSG;
	memcpy(chunked->previous, expected, sizeof(expected));
	return 0;
}

/* ---- Chunks. ---- */

/* "SIZE" or "SIZE;extension": the size, and what follows the semicolon. */
static int size_parse(struct slice line, uint64_t *ret_size, struct slice *ret_extension)
{
	struct slice digits = slice_split(&line, ';');
	uint64_t size = 0;

	if (!digits.len || digits.len > SIZE_DIGITS_MAX)
		return -EPROTO;
	for (size_t i = 0; i < digits.len; i++) {
		unsigned char c = (unsigned char)digits.data[i];

		if (!isxdigit(c))
			return -EPROTO;
		size = size << 4 | (uint64_t)(isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	*ret_size = size;
	*ret_extension = line;
	return 0;
}

static int extension_parse(struct http_chunked *chunked, struct slice extension)
{
	switch (chunked->coding) {
	case HTTP_CODING_TRANSFER:
		return 0;
	case HTTP_CODING_AWS_UNSIGNED_TRAILER:
		return extension.data ? -EPROTO : 0;
	default:
		if (!slice_starts(extension, chunk_signature) ||
			extension.len != chunk_signature.len + sizeof(chunked->claimed))
			return -EPROTO;
		memcpy(chunked->claimed, extension.data + chunk_signature.len,
			sizeof(chunked->claimed));
		sha256_init(&chunked->sum);
		return 0;
	}
}

static int verify_chunk(struct http_chunked *chunked)
{
	if (!is_signed(chunked))
		return 0;
	return verify_link(chunked, false, slice_of(chunked->claimed, sizeof(chunked->claimed)));
}

static int line_error(int err)
{
	return err == -EMSGSIZE ? -EPROTO : err;
}

static int read_head(struct http_chunked *chunked)
{
	struct slice line, extension = SLICE_NONE;
	uint64_t size = 0;
	int err;

	err = http_in_line(chunked->in, LIMIT_HTTP_CHUNK_HEAD_BYTES_MAX, false, &line);
	if (!err)
		err = size_parse(line, &size, &extension);
	if (!err)
		err = extension_parse(chunked, extension);
	if (err)
		return line_error(err);
	if (size > chunked->bytes_max - chunked->bytes)
		return -EFBIG;
	chunked->bytes += size;
	chunked->chunk_left = size;
	if (size) {
		chunked->state = HTTP_CHUNK_DATA;
		return 0;
	}
	err = verify_chunk(chunked);
	if (chunked->coding == HTTP_CODING_AWS_SIGNED_TRAILER)
		sha256_init(&chunked->sum);
	chunked->state = HTTP_CHUNK_TRAILER;
	return err;
}

static int read_data(
	struct http_chunked *chunked, void *dst, size_t len, enum http_want want, size_t *ret_bytes)
{
	size_t got;
	int err;

	err = http_in_take(chunked->in, dst, MIN(len, chunked->chunk_left), want, &got);
	if (err)
		return err;
	if (!got)
		return -EPIPE;
	if (is_signed(chunked))
		sha256_update(&chunked->sum, dst, got);
	chunked->chunk_left -= got;
	if (!chunked->chunk_left)
		chunked->state = HTTP_CHUNK_DATA_END;
	*ret_bytes = got;
	return 0;
}

static int read_data_end(struct http_chunked *chunked)
{
	struct slice line;
	int err;

	err = http_in_line(chunked->in, 0, false, &line);
	if (!err)
		err = verify_chunk(chunked);
	chunked->state = HTTP_CHUNK_HEAD;
	return line_error(err);
}

/* ---- Trailers. ---- */

static int trailer_keep(struct http_chunked *chunked, struct slice name, struct slice value)
{
	char *at = chunked->trailers + chunked->trailer_bytes;
	size_t len = name.len + value.len + 2;

	if (len > sizeof(chunked->trailers) - chunked->trailer_bytes ||
		++chunked->trailer_count > HTTP_TRAILERS_MAX)
		return -EPROTO;
	for (size_t i = 0; i < name.len; i++)
		at[i] = (char)tolower((unsigned char)name.data[i]);
	at[name.len] = ':';
	if (value.len)
		memcpy(at + name.len + 1, value.data, value.len);
	at[len - 1] = '\n';
	chunked->trailer_bytes += (uint32_t)len;
	if (chunked->coding == HTTP_CODING_AWS_SIGNED_TRAILER)
		sha256_update(&chunked->sum, at, len);
	return 0;
}

/* One trailer. The signature is the last trailer. */
static int trailer_line(struct http_chunked *chunked, struct slice line)
{
	struct slice name = slice_split(&line, ':');
	int err;

	if (!name.len || !line.data || chunked->closed)
		return -EPROTO;
	for (size_t i = 0; i < name.len; i++) {
		if (!isgraph((unsigned char)name.data[i]))
			return -EPROTO;
	}
	line = slice_trim(line);
	if (chunked->coding != HTTP_CODING_AWS_SIGNED_TRAILER ||
		!slice_eq_nocase(name, trailer_signature))
		return trailer_keep(chunked, name, line);
	err = verify_link(chunked, true, line);
	chunked->closed = true;
	return err;
}

/* Reads all trailers up to the empty line. */
static int read_trailers(struct http_chunked *chunked)
{
	bool aws = chunked->coding != HTTP_CODING_TRANSFER;
	uint32_t bytes = 0;
	struct slice line;
	int err;

	for (;;) {
		err = http_in_line(chunked->in, LIMIT_HTTP_CHUNK_HEAD_BYTES_MAX, aws, &line);
		if (err)
			return line_error(err);
		if (!line.len)
			break;
		bytes += (uint32_t)line.len + 2;
		if (bytes > LIMIT_HTTP_TRAILER_BYTES_MAX ||
			chunked->coding == HTTP_CODING_AWS_SIGNED)
			return -EPROTO;
		while (line.len && !err)
			err = trailer_line(chunked, slice_split(&line, '\n'));
		if (err)
			return err;
	}
	if (chunked->coding == HTTP_CODING_AWS_SIGNED_TRAILER && !chunked->closed)
		return -EBADMSG;
	chunked->state = HTTP_CHUNK_END;
	return 0;
}

int http_chunked_read(
	struct http_chunked *chunked, void *dst, size_t len, enum http_want want, size_t *ret_bytes)
{
	int err = 0;

	while (!err) {
		switch (chunked->state) {
		case HTTP_CHUNK_HEAD:
			err = read_head(chunked);
			break;
		case HTTP_CHUNK_DATA:
			return read_data(chunked, dst, len, want, ret_bytes);
		case HTTP_CHUNK_DATA_END:
			err = read_data_end(chunked);
			break;
		case HTTP_CHUNK_TRAILER:
			err = read_trailers(chunked);
			break;
		case HTTP_CHUNK_END:
			*ret_bytes = 0;
			return 0;
		}
	}
	return err;
}

struct slice http_chunked_trailer(const struct http_chunked *chunked, struct slice name)
{
	struct slice rest = slice_of(chunked->trailers, chunked->trailer_bytes);

	while (rest.len) {
		struct slice value = slice_split(&rest, '\n');
		struct slice found = slice_split(&value, ':');

		if (slice_eq_nocase(found, name))
			return value;
	}
	return SLICE_NONE;
}
