/* client/compat/runai.h: the interface between runai-model-streamer and its storage backends, in C:
 * the numbers and the layout of version 0.17. */
#ifndef CLIENT_COMPAT_RUNAI_H
#define CLIENT_COMPAT_RUNAI_H

#include <stdint.h>

#include "compat.h"

enum runai_code {
	RUNAI_SUCCESS = 0,
	RUNAI_FINISHED = 1, /* nothing is in flight, or reads were cancelled */
	RUNAI_FILE_ACCESS = 2,
	RUNAI_INVALID = 7,
	RUNAI_UNKNOWN = 11,
	RUNAI_PLUGIN_LOAD = 12,
	RUNAI_TRUNCATED = 15,
	RUNAI_RETRYABLE = 19, /* the streamer reads again until RUNAI_STREAMER_S3_TIMEOUT */
};
enum runai_wait { RUNAI_WAIT_NONE = 0, RUNAI_WAIT_BLOCK = 1, RUNAI_WAIT_TIMED = 2 };
#define RUNAI_SHUTDOWN_AT_EXIT 0

struct runai_param {
	const char *key;
	const char *value;
};
struct runai_client_config {
	const char *endpoint_url; /* or NULL */
	size_t chunk_bytes;	  /* the most that a read asks for */
	const struct runai_param *params;
	unsigned param_count;
};
struct runai_range {
	size_t offset;
	size_t bytes;
};
struct runai_event {
	uint64_t request_id;
	enum runai_code code;
	size_t bytes;
};
struct runai_entry {
	char *path; /* in the memory of the entries */
	size_t bytes;
};

COMPAT_API enum runai_code obj_open_backend(void **ret_backend);
COMPAT_API enum runai_code obj_close_backend(void *backend);
COMPAT_API int obj_get_backend_shutdown_policy(void);
COMPAT_API enum runai_code obj_get_backend_config(
	void *backend, const char *key, char *out_value, unsigned *in_out_bytes);
COMPAT_API enum runai_code obj_create_client(
	void *backend, const struct runai_client_config *config, void **ret_client);
COMPAT_API enum runai_code obj_remove_client(void *handle);
COMPAT_API enum runai_code obj_remove_all_clients(void);
COMPAT_API enum runai_code obj_cancel_all_reads(void);
COMPAT_API enum runai_code obj_request_read(void *handle, const char *path,
	struct runai_range range, char *memory, uint64_t request_id);
COMPAT_API enum runai_code obj_wait_for_completions(void *handle, struct runai_event *events,
	unsigned max, unsigned *ret_count, enum runai_wait mode);
COMPAT_API enum runai_code obj_list_files(void *handle, const char *prefix, int is_recursive,
	struct runai_entry **ret_entries, unsigned *ret_count);
COMPAT_API void obj_free_file_list(struct runai_entry *entries, unsigned count);

/* ---- runai_version.c ---- */
/* Whether this process's streamer is of a version that was tested with this library, or there is
 * none: 0, or -ENOTSUP with the reason. */
int runai_version_check(char *why, size_t why_bytes);

#endif
