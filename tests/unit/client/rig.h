/* tests/unit/client/rig.h: a server in this process for the client's tests: the native front on a
 * reactor's own thread, over the simulated device, with a small S3 in memory (fake_s3.c), so that a
 * test can delay answers, make them fail, and count them. */
#ifndef TESTS_CLIENT_RIG_H
#define TESTS_CLIENT_RIG_H

#include "front/front.h"
#include "nebulaio/nebulaio.h"

#define RIG_ACCESS_KEY "rigadmin"
#define RIG_SECRET_KEY "rig-secret-key"
/* For what is not about time: only a hang takes so long, even on a busy machine. */
#define RIG_PATIENCE_NS (600 * NS_PER_S)

struct rig;
struct rig_opts {
	uint32_t credits;	     /* 0: 64 */
	uint32_t inline_bytes_max;   /* 0: 4096 */
	uint64_t region_bytes;	     /* 0: 32 MiB, whose pages are written at once */
	uint64_t request_timeout_ns; /* 0: RIG_PATIENCE_NS */
	uint64_t idle_timeout_ns;
	uint64_t keepalive_ns;
	uint16_t port;		 /* 0: any free one */
	const char *device_name; /* NULL: "simulated" */
	bool encrypted;		 /* the server requires it */
	uint64_t lease_bytes;	 /* 0: 64 KiB */
	uint64_t lease_ns;	 /* 0: a minute */
	uint64_t store_id;	 /* 0: not sent */
	const char *second;	 /* device of a second path; NULL: there is none */
	bool tells;		 /* proven clients are told the ports … */
	uint16_t tells_port;	 /* … and this one, unless it is 0 */
};
/* Fails the test when anything fails. */
struct rig *rig_open(const struct rig_opts *opts);
/* Drains, stops, and asserts that no frame stays leased. */
void rig_close(struct rig *rig);
/* Drains and stops listening, but leaves the reactor running. */
void rig_drain(struct rig *rig);
uint16_t rig_port(const struct rig *rig);
struct region *rig_region(const struct rig *rig);
uint32_t rig_sessions(struct rig *rig); /* on all paths */
/* Requests that a path's sessions have answered, of those that are there now. */
uint64_t rig_path_requests(struct rig *rig, uint32_t path);
/* Waits (by the reactor's own turns) until there are so many sessions. False after RIG_PATIENCE_NS.
 */
bool rig_sessions_become(struct rig *rig, uint32_t count);
/* Frames that are not free, once the reactor is idle. */
uint64_t rig_frames_used(struct rig *rig);
/* "rdma://127.0.0.1:PORT" */
const char *rig_endpoint_first(const struct rig *rig);
/* The same, and with a second path ",127.0.0.1:PORT" */
const char *rig_endpoint(const struct rig *rig);
/* Bytes that depend only on the seed and their offset. */
void rig_fill(void *data, size_t bytes, uint64_t seed);
struct neb_client *rig_client(struct rig *rig, enum neb_transport transport);

/* ---- fake_s3.c ---- */
struct fake_s3;
struct s3 *fake_s3_open(struct region *region);
void fake_s3_close(struct s3 *s3);
/* A GET of a key that starts with "held-" is answered only once this is called. */
void fake_s3_release(struct s3 *s3, struct flow_core *core);
/* How many objects were put. A PUT of a key that starts with "late-" is done at once, and answered
 * once fake_s3_release is called. */
uint64_t fake_s3_puts(struct s3 *s3);
/* Requests being handled now. */
uint32_t fake_s3_held(struct s3 *s3);
struct s3 *rig_s3(struct rig *rig);
void rig_release_held(struct rig *rig);
/* Stops the server's event loop for so long. */
void rig_stand_still(struct rig *rig, uint64_t ns);

#endif
