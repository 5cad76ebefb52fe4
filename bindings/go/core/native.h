/* A request in a form that Go can build: all its strings lie in one run of Go's memory. */
#ifndef CORE_NATIVE_H
#define CORE_NATIVE_H

#include <nebulaio/nebulaio.h>

/* No pointer in it points into Go's memory: cgo forbids that. */
struct native_request {
	enum neb_op op;
	uint32_t header_count;
	void *body, *into;
	size_t body_bytes, into_bytes;
	uint64_t range_offset, range_bytes;
	uint64_t timeout_ns;
	uintptr_t user_data;
	bool want_headers;
};

/* text: bucket, key, version, query, method and path, then names and values of the headers, each
 * with its 0. An empty string means none. Copies everything. As neb_submit. */
int native_submit(
	struct neb_client *client, const struct native_request *request, const char *text);
/* As neb_fan_out_header. */
int native_fan_out(const char *name, uint32_t members, uint64_t wait_ns, uint64_t member,
	char ret_value[NEB_FAN_OUT_BYTES]);
/* log: a runtime/cgo.Handle, or 0 for the library's own log. As neb_client_open. */
int native_open(struct neb_options *options, uintptr_t log, struct neb_client **ret_client);
/* The same of neb_minter_open; the log may be called from any goroutine's thread. */
int native_minter_open(struct neb_options *options, uintptr_t log, struct neb_minter **ret_minter);

/* A mapper, and the last line of its log until it is open. */
struct native_mapper;
#define NATIVE_WHY_BYTES 200u
/* As neb_mapper_open. Warnings go to standard error: the mapper's thread may not wait for Go.
 * ret_why: the reason for an error. */
int native_mapper_open(struct neb_options *options, uint64_t resident_bytes_max,
	struct native_mapper **ret_mapper, char ret_why[NATIVE_WHY_BYTES]);
void native_mapper_close(struct native_mapper *mapper);
/* As neb_map. */
int native_map(struct native_mapper *mapper, const char *bucket, const char *key,
	const char *version_id, struct neb_map **ret_map, struct neb_result *ret_result);

#endif
