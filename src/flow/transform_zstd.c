/* flow/transform_zstd.c: compression of a flow by Zstandard (RFC 8878), and the inverse. It writes
 * one frame with a checksum; it reads any number of consecutive frames. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "flow/transform_priv.h"

#define LEVEL_PRESET   3
#define LEVEL_MAX      19
#define WINDOW_LOG_MAX 27 /* 128 MiB: the memory that a stream may require */

struct zstd {
	ZSTD_CCtx *compress;
	ZSTD_DCtx *decompress;
	size_t hint; /* decompress: 0 at a frame's end */
	bool begun;
	char why[128];
};

static void zstd_close(void *state)
{
	struct zstd *self = state;

	ZSTD_freeCCtx(self->compress);
	ZSTD_freeDCtx(self->decompress);
	free(self);
}

static const char *zstd_why(void *state)
{
	const struct zstd *self = state;

	return self->why;
}

static int zstd_failed(struct zstd *self, size_t code)
{
	ZSTD_ErrorCode error = ZSTD_getErrorCode(code);

	snprintf(self->why, sizeof(self->why), "%s", ZSTD_getErrorString(error));
	if (error == ZSTD_error_memory_allocation)
		return -ENOMEM;
	return self->decompress ? -EBADMSG : -EIO;
}

/* ---- zstd. ---- */

/* "", or "level=N". */
static bool level_parse(const char *options, int *ret_level)
{
	char *end;
	long level;

	*ret_level = LEVEL_PRESET;
	if (!*options)
		return true;
	if (strncmp(options, "level=", 6) != 0 || !options[6])
		return false;
	level = strtol(options + 6, &end, 10);
	*ret_level = (int)level;
	return !*end && level >= 1 && level <= LEVEL_MAX;
}

static int compress_open(const char *options, char *why, size_t why_bytes, void **ret_state)
{
	struct zstd *self;
	int level;

	if (!level_parse(options, &level)) {
		snprintf(why, why_bytes, "'%.60s' is not level=1 to level=%d", options, LEVEL_MAX);
		return -EINVAL;
	}
	self = calloc(1, sizeof(*self));
	if (!self)
		return -ENOMEM;
	self->compress = ZSTD_createCCtx();
	if (!self->compress ||
		ZSTD_isError(
			ZSTD_CCtx_setParameter(self->compress, ZSTD_c_compressionLevel, level)) ||
		ZSTD_isError(ZSTD_CCtx_setParameter(self->compress, ZSTD_c_checksumFlag, 1))) {
		zstd_close(self);
		return -ENOMEM;
	}
	*ret_state = self;
	return 0;
}

static int compress(struct zstd *self, struct neb_transform_in *in, struct neb_transform_out *out,
	ZSTD_EndDirective how)
{
	ZSTD_inBuffer from = {in->data, in->bytes, 0};
	ZSTD_outBuffer to = {out->data, out->capacity, 0};
	size_t left = ZSTD_compressStream2(self->compress, &to, &from, how);

	if (ZSTD_isError(left))
		return zstd_failed(self, left);
	in->taken = from.pos;
	out->bytes = to.pos;
	return how == ZSTD_e_end && left ? NEB_TRANSFORM_MORE : 0;
}

static int compress_convert(void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	return compress(state, in, out, ZSTD_e_continue);
}

static int compress_flush(void *state, struct neb_transform_out *out)
{
	struct neb_transform_in none = {.data = (const uint8_t *)""};

	return compress(state, &none, out, ZSTD_e_end);
}

const struct neb_transform FLOW_TRANSFORM_COMPRESS = {.version = NEB_TRANSFORM_VERSION,
	.name = "zstd",
	.open = compress_open,
	.convert = compress_convert,
	.flush = compress_flush,
	.why = zstd_why,
	.close = zstd_close};

/* ---- unzstd. ---- */

static int decompress_open(const char *options, char *why, size_t why_bytes, void **ret_state)
{
	struct zstd *self;

	if (*options) {
		snprintf(why, why_bytes, "it has no options: '%.60s'", options);
		return -EINVAL;
	}
	self = calloc(1, sizeof(*self));
	if (!self)
		return -ENOMEM;
	self->decompress = ZSTD_createDCtx();
	if (!self->decompress || ZSTD_isError(ZSTD_DCtx_setParameter(
					 self->decompress, ZSTD_d_windowLogMax, WINDOW_LOG_MAX))) {
		zstd_close(self);
		return -ENOMEM;
	}
	*ret_state = self;
	return 0;
}

static int decompress_convert(
	void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	struct zstd *self = state;
	ZSTD_inBuffer from = {in->data, in->bytes, 0};
	ZSTD_outBuffer to = {out->data, out->capacity, 0};

	while (to.pos < to.size && (from.pos < from.size || self->hint)) {
		size_t pos = to.pos, taken = from.pos;
		size_t left = ZSTD_decompressStream(self->decompress, &to, &from);

		if (ZSTD_isError(left))
			return zstd_failed(self, left);
		self->begun = true;
		self->hint = left;
		if (from.pos == taken && to.pos == pos)
			break;
	}
	in->taken = from.pos;
	out->bytes = to.pos;
	return to.pos == to.size && self->hint ? NEB_TRANSFORM_MORE : 0;
}

static int decompress_flush(void *state, struct neb_transform_out *out)
{
	struct zstd *self = state;

	(void)out;
	if (self->begun && !self->hint)
		return 0;
	snprintf(self->why, sizeof(self->why), "the compressed data is cut off");
	return -EBADMSG;
}

const struct neb_transform FLOW_TRANSFORM_DECOMPRESS = {.version = NEB_TRANSFORM_VERSION,
	.name = "unzstd",
	.open = decompress_open,
	.convert = decompress_convert,
	.flush = decompress_flush,
	.why = zstd_why,
	.close = zstd_close};
