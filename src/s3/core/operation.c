/* s3/core/operation.c: the rows of s3_operation_table.inc as records, and a lookup by opcode. */
#include "s3/core/operation.h"

#include "codec/capsule.h"

/* The macros of a row. */
#define ROUTE(method_, level_)	.route.method = S3_##method_, .route.level = S3_LEVEL_##level_
#define PARAM(name_)		.route.param = SLICE(name_)
#define HEADER(name_)		.route.header = SLICE(name_)
#define TAKES(names_)		.route.takes = SLICE(names_)
#define LOGGED(name_)		.route.log = name_
#define ACTION(action_)		.action = action_
#define VERSION_ACTION(action_) .version_action = action_
#define AUTHORIZE(how_)		.authorize = S3_AUTHORIZE_##how_
#define EXPRESS(who_)		.express = S3_EXPRESS_##who_
#define OPCODE(opcode_, query_) .opcode = CAPSULE_OP_##opcode_, .opcode_query = query_
#define DIRECT			.direct = true
#define BODY(what_)		.body = S3_BODY_##what_
#define WALKS			.walks_index = true
#define CREATES			.creates_object = true
#define HEADERS_ACT		.headers_act = true
#define JUDGES_BODY		.judges_body = true
#define READS_TOO		.needs_read = true

const struct s3_operation s3_operations[S3_OPERATION_COUNT] = {
#define OPERATION(id_, name_, handler_, ...) \
	[S3_OPERATION_##id_] = {.id = S3_OPERATION_##id_, .name = name_, __VA_ARGS__},
#include "s3/s3_operation_table.inc"
};

static const struct s3_not_served not_served[] = {
#define NOT_SERVED(param_, names_, action_) {SLICE(param_), action_},
#include "s3/s3_operation_table.inc"
};

const struct s3_not_served *s3_not_served(struct slice param)
{
	for (size_t i = 0; i < ARRAY_LEN(not_served); i++)
		if (slice_eq(param, not_served[i].param))
			return &not_served[i];
	return NULL;
}

/* Called for each native request. */
static const struct s3_operation *by_opcode[CAPSULE_OP_S3];

__attribute__((constructor)) static void index_opcodes(void)
{
	for (uint32_t i = 0; i < S3_OPERATION_COUNT; i++) {
		uint8_t opcode = s3_operations[i].opcode;

		if (!opcode)
			continue;
		CHECK(opcode < ARRAY_LEN(by_opcode) && !by_opcode[opcode]);
		by_opcode[opcode] = &s3_operations[i];
	}
}

const struct s3_operation *s3_operation_of_opcode(uint8_t opcode)
{
	return opcode < ARRAY_LEN(by_opcode) ? by_opcode[opcode] : NULL;
}

bool s3_native(uint8_t opcode, struct s3_native *ret_native)
{
	static const char *const methods[] = {[S3_GET] = "GET",
		[S3_HEAD] = "HEAD",
		[S3_PUT] = "PUT",
		[S3_POST] = "POST",
		[S3_DELETE] = "DELETE"};
	const struct s3_operation *operation = s3_operation_of_opcode(opcode);

	if (!operation)
		return false;
	*ret_native = (struct s3_native){.method = operation->route.method,
		.method_text = methods[operation->route.method],
		.query = operation->opcode_query,
		.direct = operation->direct};
	return true;
}
