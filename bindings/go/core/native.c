/* bindings/go/core/native.c: between cgo and libnebulaio. */
#include "native.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

/* Returns the next string of text, and moves past it; NULL for an empty one. */
static const char *next(const char **text)
{
	const char *string = *text;

	*text += strlen(string) + 1;
	return *string ? string : NULL;
}

int native_submit(struct neb_client *client, const struct native_request *request, const char *text)
{
	struct neb_header headers[NEB_HEADERS_MAX];
	struct neb_iov body = {request->body, request->body_bytes};
	struct neb_iov into = {request->into, request->into_bytes};
	struct neb_request copy = {
		.op = request->op,
		.headers = headers,
		.header_count = request->header_count,
		.body = &body,
		.body_count = request->body_bytes > 0,
		.into = &into,
		.into_count = request->into_bytes > 0,
		.range_offset = request->range_offset,
		.range_bytes = request->range_bytes,
		.timeout_ns = request->timeout_ns,
		.want_headers = request->want_headers,
		.user_data = (void *)request->user_data,
	};

	if (request->header_count > NEB_HEADERS_MAX)
		return -EINVAL;
	copy.bucket = next(&text);
	copy.key = next(&text);
	copy.version_id = next(&text);
	copy.query = next(&text);
	copy.method = next(&text);
	copy.path = next(&text);
	for (uint32_t i = 0; i < request->header_count; i++) {
		headers[i].name = next(&text);
		headers[i].value = next(&text);
		if (!headers[i].name)
			return -EINVAL;
		if (!headers[i].value)
			headers[i].value = "";
	}
	return neb_submit(client, &copy, NULL);
}

int native_fan_out(const char *name, uint32_t members, uint64_t wait_ns, uint64_t member,
	char ret_value[NEB_FAN_OUT_BYTES])
{
	const struct neb_fan_out fan_out = {
		.name = name, .members = members, .wait_ns = wait_ns, .member = member};

	return neb_fan_out_header(&fan_out, ret_value);
}

static void log_to_go(void *arg, enum neb_log_level level, const char *text)
{
	nativeLog((uintptr_t)arg, (int)level, (char *)(uintptr_t)text);
}

static void set_log(struct neb_options *options, uintptr_t log)
{
	if (!log)
		return;
	options->log = log_to_go;
	options->log_arg = (void *)log;
}

int native_open(struct neb_options *options, uintptr_t log, struct neb_client **ret_client)
{
	set_log(options, log);
	return neb_client_open(options, ret_client);
}

int native_minter_open(struct neb_options *options, uintptr_t log, struct neb_minter **ret_minter)
{
	set_log(options, log);
	return neb_minter_open(options, ret_minter);
}

/* ---- Objects as memory. ---- */

struct native_mapper {
	struct neb_mapper *neb;
	bool opened;
	char why[NATIVE_WHY_BYTES];
};

static void mapper_log(void *arg, enum neb_log_level level, const char *text)
{
	struct native_mapper *mapper = arg;

	if (!mapper->opened)
		snprintf(mapper->why, sizeof(mapper->why), "%s", text);
	else if (level >= NEB_LOG_WARN)
		fprintf(stderr, "nebulaio: %s\n", text);
}

int native_mapper_open(struct neb_options *options, uint64_t resident_bytes_max,
	struct native_mapper **ret_mapper, char ret_why[NATIVE_WHY_BYTES])
{
	const struct neb_mapper_options more = {.resident_bytes_max = resident_bytes_max};
	struct native_mapper *mapper = calloc(1, sizeof(*mapper));
	int ret = mapper ? 0 : -ENOMEM;

	ret_why[0] = '\0';
	if (ret)
		return ret;
	options->log = mapper_log;
	options->log_arg = mapper;
	ret = neb_mapper_open(options, &more, &mapper->neb);
	mapper->opened = ret == 0;
	if (ret) {
		memcpy(ret_why, mapper->why, sizeof(mapper->why));
		free(mapper);
		return ret;
	}
	*ret_mapper = mapper;
	return 0;
}

void native_mapper_close(struct native_mapper *mapper)
{
	neb_mapper_close(mapper->neb);
	free(mapper);
}

int native_map(struct native_mapper *mapper, const char *bucket, const char *key,
	const char *version_id, struct neb_map **ret_map, struct neb_result *ret_result)
{
	return neb_map(mapper->neb, bucket, key, version_id, ret_map, ret_result);
}
