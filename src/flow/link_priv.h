/* flow/link_priv.h: interface between the files of streams. */
#ifndef FLOW_LINK_PRIV_H
#define FLOW_LINK_PRIV_H

#include "flow/link.h"
#include "flow/link_wire.h"
#include "rdma/port.h"

#define LINK_WHY_TEXT_BYTES 160u
#define LINK_SENDS_MAX	    32u /* messages between push and the device's completion */
#define LINK_PIECES_MAX	    4u	/* scatter entries of a ring entry */

struct flow_fabric {
	struct flow_core *core;
	struct rp_device *device;
	struct rp_device_attr attr;
	char name[72];
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_arenas arenas;
	struct list links, listeners, datagrams;
	struct reactor_poller poller;
	bool pump_again; /* a ring was full */
	struct rp_events events;
	struct reactor_timer tick;
	char why[LINK_WHY_TEXT_BYTES];
};

struct flow_listener {
	struct flow_fabric *fabric;
	struct list link;
	struct rp_listener *listener;
	struct rp_cm_event request; /* request NULL: none waits */
	struct fiber *waiter;
	bool accepting, cancelled;
};

/* A receive: a span posted for a record. */
struct link_recv {
	struct flow_io io;
	struct flow_link *link;
	struct region_span span; /* data NULL: not posted */
	uint32_t bytes;
	bool arrived, control;
	uint64_t arrived_ns;
};

/* A message: up to four runs, and the pieces that end with it. */
struct link_send {
	struct flow_io io;
	struct flow_link *link;
	struct region_sge sges[LINK_PIECES_MAX];
	struct flow_piece pieces[LINK_PIECES_MAX];
	uint32_t sge_count, piece_count, bytes;
	bool control;
};

/* A control's place in the link's frame of controls. */
struct link_note {
	struct flow_io io;
	struct flow_link *link;
	struct link_control *text;
	bool posted;
};

/* CONNECTING → OPEN → CLOSED; error and stopping have the details. */
enum link_phase { LINK_CONNECTING, LINK_OPEN, LINK_CLOSED };

struct flow_link {
	struct list link;
	struct flow_fabric *fabric;
	struct flow_core *core;
	struct flow_link_opts opts;
	enum link_phase phase;
	struct rp_qp *qp;
	uint16_t target;
	int error; /* the first */
	bool refused;
	char why[LINK_WHY_TEXT_BYTES];
	char peer[64];
	struct fiber *waiter;
	uint64_t heard_ns, said_ns;
	uint32_t record_bytes;
	uint64_t records, bytes, crc, bytes_total;
	struct region_span notes_span; /* one frame: controls in and out */
	struct link_note note_out;
	struct link_note notes_in[LINK_CONTROL_RECEIVES]; /* sender */

	/* The receiver's. Receives are numbered from 0: taken ≤ posted ≤ taken + window. */
	struct flow_source source;
	struct link_recv *recvs;
	uint32_t window, posted, taken, told;
	uint64_t acknowledged, acknowledged_told;
	bool ended, done_said, interrupted;
	int end_error; /* the error of the sender's END */

	/* The sender's. Messages are numbered from 0: completed ≤ started ≤ queued. */
	struct flow_sink sink;
	struct link_send *sends;
	uint32_t queued, started, completed, granted;
	uint64_t delivered; /* bytes of messages that have completed */
	uint32_t unit_peer;
	bool filling; /* message number queued is open for more pieces */
	bool end_queued, done_heard;
	struct link_control done;
};

/* fabric.c */
/* The first error stays; the queue pair ends, and waiting fibers are woken. */
void link_fail(struct flow_link *link, int error, const char *why);
void link_wake(struct flow_link *link);

/* link_dp.c */
int link_recvs_fill(struct flow_link *link, bool wait);
int link_notes_post(struct flow_link *link);
/* Starts what may start: queued messages with credits. */
void link_pump(struct flow_link *link);
/* Sends a control with the news; false: the last control is still in flight. */
bool link_grant(struct flow_link *link);
bool link_done_say(struct flow_link *link, uint16_t status, const char *why);
bool link_idle(const struct flow_link *link); /* no outstanding work */
void link_release(struct flow_link *link);

extern const struct flow_source_ops LINK_SOURCE_OPS;
extern const struct flow_sink_ops LINK_SINK_OPS;

#endif
