/* s3/auth/form.c: multipart/form-data: its fields, and its file's bytes as a source. */
#include "s3/auth/form.h"

#include <errno.h>
#include <stdlib.h>

bool s3_form_boundary(struct slice content_type, struct slice *ret_boundary)
{
	struct slice type = slice_trim(slice_split(&content_type, ';'));

	if (!slice_eq_nocase(type, SLICE("multipart/form-data")))
		return false;
	while (content_type.len) {
		struct slice value = slice_trim(slice_split(&content_type, ';'));
		struct slice name = slice_trim(slice_split(&value, '='));

		if (!slice_eq_nocase(name, SLICE("boundary")))
			continue;
		value = slice_trim(value);
		if (value.len >= 2 && value.data[0] == '"' && value.data[value.len - 1] == '"')
			value = slice_of(value.data + 1, value.len - 2);
		*ret_boundary = value;
		return value.len && value.len <= S3_FORM_BOUNDARY_MAX;
	}
	return false;
}

/* A parameter of a Content-Disposition: name="…", with \" inside. */
static struct slice disposition_param(struct slice rest, struct slice wanted)
{
	while (rest.len) {
		struct slice name = slice_trim(slice_split(&rest, '='));
		ptrdiff_t semicolon = slice_find(name, SLICE(";"));
		struct slice value;
		size_t end = 1;

		while (semicolon >= 0) {
			name = slice_trim(slice_from(name, (size_t)semicolon + 1));
			semicolon = slice_find(name, SLICE(";"));
		}
		rest = slice_trim(rest);
		if (!rest.len || rest.data[0] != '"') {
			value = slice_trim(slice_split(&rest, ';'));
		} else {
			while (end < rest.len && rest.data[end] != '"')
				end += rest.data[end] == '\\' && end + 1 < rest.len ? 2 : 1;
			if (end >= rest.len)
				return SLICE_NONE;
			value = slice_of(rest.data + 1, end - 1);
			rest = slice_from(rest, end + 1);
		}
		if (slice_eq_nocase(name, wanted))
			return value.data ? value : SLICE("");
	}
	return SLICE_NONE;
}

struct part {
	struct slice name, file_name, type;
};

/* The header lines of one part. */
static int parse_part(struct slice head, struct part *ret_part)
{
	*ret_part = (struct part){0};
	while (head.len) {
		struct slice value = slice_split(&head, '\n');
		struct slice name;

		if (value.len && value.data[value.len - 1] == '\r')
			value.len--;
		name = slice_trim(slice_split(&value, ':'));
		value = slice_trim(value);
		if (slice_eq_nocase(name, SLICE("content-type"))) {
			ret_part->type = value;
		} else if (slice_eq_nocase(name, SLICE("content-disposition"))) {
			if (!slice_eq_nocase(slice_to(value, 9), SLICE("form-data")))
				return -EINVAL;
			ret_part->name = disposition_param(slice_from(value, 9), SLICE("name"));
			ret_part->file_name =
				disposition_param(slice_from(value, 9), SLICE("filename"));
		}
	}
	return ret_part->name.len ? 0 : -EINVAL;
}

/* Moves past a delimiter's own line. *at is after the boundary. */
static int end_line(struct slice text, size_t *at)
{
	while (*at < text.len && (text.data[*at] == ' ' || text.data[*at] == '\t'))
		++*at;
	if (text.len - *at < 2)
		return -EAGAIN;
	if (text.data[*at] != '\r' || text.data[*at + 1] != '\n')
		return -EINVAL;
	*at += 2;
	return 0;
}

int s3_form_parse(struct slice text, struct slice boundary, struct s3_form *ret_form)
{
	char delimiter[4 + S3_FORM_BOUNDARY_MAX] = "\r\n--";
	struct slice line = slice_of(delimiter, 4 + boundary.len), first;
	size_t at;

	if (boundary.len > S3_FORM_BOUNDARY_MAX)
		return -EINVAL;
	memcpy(delimiter + 4, boundary.data, boundary.len);
	first = slice_from(line, 2);
	ret_form->count = 0;
	if (text.len < first.len)
		return slice_starts(first, text) ? -EAGAIN : -EINVAL;
	if (!slice_starts(text, first))
		return -EINVAL;
	at = first.len;
	for (;;) {
		struct slice head, value;
		struct part part;
		ptrdiff_t end;
		int ret = end_line(text, &at);

		if (ret)
			return ret;
		end = slice_find(slice_from(text, at), SLICE("\r\n\r\n"));
		if (end < 0)
			return -EAGAIN;
		head = slice_of(text.data + at, (size_t)end);
		at += (size_t)end + 4;
		ret = parse_part(head, &part);
		if (ret)
			return ret;
		if (slice_eq_nocase(part.name, SLICE("file"))) {
			ret_form->file_name = part.file_name;
			ret_form->file_type = part.type;
			ret_form->file_at = at;
			return 0;
		}
		end = slice_find(slice_from(text, at), line);
		if (end < 0)
			return -EAGAIN;
		if (ret_form->count == S3_FORM_FIELDS_MAX)
			return -EINVAL;
		value = slice_of(text.data + at, (size_t)end);
		ret_form->fields[ret_form->count++] = (struct s3_form_field){part.name, value};
		at += (size_t)end + line.len;
	}
}

struct slice s3_form_field(const struct s3_form *form, struct slice name)
{
	for (uint32_t i = 0; i < form->count; i++)
		if (slice_eq_nocase(form->fields[i].name, name))
			return form->fields[i].value.data ? form->fields[i].value : SLICE("");
	return SLICE_NONE;
}

/* ---- The file's bytes. ---- */

static void piece_drop(struct s3_form_source *self)
{
	flow_piece_end(self->source.core, &self->piece,
		self->piece.hold == FLOW_HOLD_CACHE ? OWNER_CACHE : OWNER_APP);
	self->has_piece = false;
}

/* The next bytes of the body: 1, 0 at its end, -errno. */
static int piece_fetch(struct s3_form_source *self, uint32_t bytes_max)
{
	int ret;

	if (self->rest.len) {
		self->piece = (struct flow_piece){.data = (uint8_t *)(uintptr_t)self->rest.data,
			.bytes = (uint32_t)self->rest.len,
			.hold = FLOW_HOLD_BORROWED};
		self->rest = SLICE_NONE;
		self->has_piece = true;
		return 1;
	}
	self->inner->share = self->source.share;
	ret = flow_source_next(self->inner, bytes_max, &self->piece);
	self->has_piece = ret > 0;
	return ret;
}

static int give(struct s3_form_source *self, struct flow_piece *ret_piece)
{
	ret_piece->offset = self->offset;
	self->offset += ret_piece->bytes;
	if (self->offset <= self->bytes_max)
		return 1;
	flow_piece_end(self->source.core, ret_piece,
		ret_piece->hold == FLOW_HOLD_CACHE ? OWNER_CACHE : OWNER_APP);
	return -EFBIG;
}

/* The first bytes of the carry, which can no longer be part of a delimiter. */
static int give_carry(struct s3_form_source *self, uint32_t bytes, struct flow_piece *ret_piece)
{
	memcpy(self->given, self->carry, bytes);
	memmove(self->carry, self->carry + bytes, self->carry_len - bytes);
	self->carry_len -= bytes;
	*ret_piece = (struct flow_piece){
		.data = (uint8_t *)self->given, .bytes = bytes, .hold = FLOW_HOLD_BORROWED};
	return give(self, ret_piece);
}

/* Fields after the file have no effect, but the body must be read to its end to keep the
 * connection. */
static int drain(struct s3_form_source *self)
{
	int ret;

	self->ended = true;
	if (self->has_piece)
		piece_drop(self);
	while ((ret = piece_fetch(self, STORE_CHUNK_BYTES)) > 0)
		piece_drop(self);
	return ret;
}

/* Checks the bytes where carry and piece meet. True: *ret is next's result. */
static bool cross(struct s3_form_source *self, struct flow_piece *ret_piece, int *ret)
{
	struct slice delimiter = slice_of(self->delimiter, self->delimiter_len);
	uint32_t held = self->carry_len;
	uint32_t take = MIN(self->piece.bytes, self->delimiter_len - 1);
	ptrdiff_t at;

	if (!held)
		return false;
	memcpy(self->carry + held, self->piece.data, take);
	at = slice_find(slice_of(self->carry, held + take), delimiter);
	if (at >= 0) {
		self->carry_len = (uint32_t)at;
		*ret = drain(self);
		if (*ret == 0 && at)
			*ret = give_carry(self, (uint32_t)at, ret_piece);
		return true;
	}
	if (take == self->piece.bytes) {
		/* The whole piece goes to the carry, which returns its oldest bytes. */
		self->carry_len = held + take;
		piece_drop(self);
		if (self->carry_len < self->delimiter_len)
			return false;
		*ret = give_carry(self, self->carry_len - (self->delimiter_len - 1), ret_piece);
		return true;
	}
	*ret = give_carry(self, held, ret_piece);
	return true;
}

/* The part of the piece that certainly is not a delimiter. */
static int give_piece(struct s3_form_source *self, struct flow_piece *ret_piece)
{
	struct slice text = slice_of(self->piece.data, self->piece.bytes);
	ptrdiff_t at = slice_find(text, slice_of(self->delimiter, self->delimiter_len));
	uint32_t keep = MIN(self->piece.bytes, self->delimiter_len - 1);

	*ret_piece = self->piece;
	if (at >= 0) {
		ret_piece->bytes = (uint32_t)at;
		if (!at)
			return drain(self);
		/* The rest is read after these frames are released. */
		self->has_piece = false;
		self->over = true;
		return give(self, ret_piece);
	}
	ret_piece->bytes -= keep;
	memcpy(self->carry, self->piece.data + ret_piece->bytes, keep);
	self->carry_len = keep;
	if (!ret_piece->bytes) {
		piece_drop(self);
		return -EAGAIN;
	}
	self->has_piece = false;
	return give(self, ret_piece);
}

static int form_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct s3_form_source *self = CONTAINER_OF(source, struct s3_form_source, source);
	int ret;

	for (;;) {
		if (self->ended)
			return 0;
		if (self->over)
			return drain(self);
		if (!self->has_piece) {
			ret = piece_fetch(self, bytes_max);
			if (ret <= 0)
				return ret ? ret : -EPIPE;
		}
		if (cross(self, ret_piece, &ret))
			return ret;
		if (!self->has_piece)
			continue;
		ret = give_piece(self, ret_piece);
		if (ret != -EAGAIN)
			return ret;
	}
}

static void form_close(struct flow_source *source)
{
	struct s3_form_source *self = CONTAINER_OF(source, struct s3_form_source, source);

	flow_lender_remove(&self->lender);
	if (self->has_piece)
		piece_drop(self);
	free(self->aside);
	flow_source_close(self->inner);
}

/* The piece continues without its frames. */
static void call_in(struct flow_lender *lender)
{
	struct s3_form_source *self = CONTAINER_OF(lender, struct s3_form_source, lender);
	struct flow_piece piece = self->piece;

	if (!self->has_piece || piece.hold == FLOW_HOLD_BORROWED)
		return;
	if (!self->aside)
		self->aside = malloc(STORE_CHUNK_BYTES);
	if (!self->aside)
		return;
	region_copy(self->aside, piece.data, piece.bytes, COPY_ALIGN);
	self->piece.data = self->aside;
	self->piece.span = (struct region_span){.data = NULL};
	self->piece.hold = FLOW_HOLD_BORROWED;
	self->piece.share = FLOW_SHARE_OWN;
	flow_piece_end(self->source.core, &piece, OWNER_APP);
}

static const struct flow_source_ops FORM_SOURCE_OPS = {
	.name = "form",
	.next = form_next,
	.close = form_close,
};

void s3_form_source_init(struct s3_form_source *self, struct flow_source *inner,
	struct slice boundary, struct slice rest, uint64_t bytes_max)
{
	CHECK(boundary.len <= S3_FORM_BOUNDARY_MAX);
	self->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &FORM_SOURCE_OPS,
		.share = inner->share,
		.core = inner->core,
		.bytes_total = UINT64_MAX,
		.deadline_ns = inner->deadline_ns};
	self->inner = inner;
	self->has_piece = false;
	self->ended = false;
	self->over = false;
	self->aside = NULL;
	flow_lender_add(inner->core, &self->lender, call_in);
	self->carry_len = 0;
	memcpy(self->delimiter, "\r\n--", 4);
	memcpy(self->delimiter + 4, boundary.data, boundary.len);
	self->delimiter_len = 4 + (uint32_t)boundary.len;
	self->rest = rest;
	self->offset = 0;
	self->bytes_max = bytes_max;
}
