/* front/session/native_priv.h: what the files of the native front ask of each other.
 *
 *   native.c      a reactor's front: completion queue, sweep, drain
 *   port.c        what the fronts of all reactors share: registrations, listener, connection
 *                 events, which session goes where
 *   session.c     a session's life: set-up, failing, ending
 *   capsule_dp.c  completions, responses and small bodies: the way of the microsecond
 *   request.c     a capsule into a struct s3_request and its answer back
 *   crypt.c       bodies of encrypted sessions, on their way
 *   stream.c      lists of many pages, one after the other
 *   lease.c       copies that a session's client reads by itself
 *
 * A front and its sessions run on their reactor's thread; the port's listener on the first front's.
 */
#ifndef FRONT_SESSION_NATIVE_PRIV_H
#define FRONT_SESSION_NATIVE_PRIV_H

#include "front/session/types.h"

/* ---- session/port.c ---- */
/* Makes the port, or joins first's. */
int native_port_join(struct front_native *front, struct front_native *first);
void native_port_leave(struct front_native *front); /* takes one that never joined */
/* No more connections, when it is the first front that calls. */
void native_port_close(struct front_native *front);

/* ---- session/session.c ---- */
/* Its place has been counted, as that of an unproven one, and is free again on an error. */
int native_session_accept(struct front_native *front, const struct rp_cm_event *event);
/* Set-up capsules; a request's are session/capsule_dp.c's. */
void native_session_setup(struct native_session *session, struct native_recv *recv, uint32_t bytes);
/* The peer, the queue pair or a deadline says this session is over. Idempotent; never frees. */
void native_session_fail(struct native_session *session, const char *why) __attribute__((cold));
/* The same, when the client left; and when work on its queue pair ended with a status. */
void native_session_gone(struct native_session *session) __attribute__((cold));
void native_session_broken(struct native_session *session, enum rp_status status)
	__attribute__((cold));
/* Says goodbye and ends once all answers are out. Never waits. */
void native_session_drain(struct native_session *session, enum capsule_goodbye_reason reason);
/* Ends the one that has been without proof for longest, if that is long; false: there is none. */
bool native_session_yield(struct front_native *front) __attribute__((cold));
/* To be called whenever something that the session waited for is over. */
void native_session_settle(struct native_session *session);
/* Closes the queue pair of a session that has failed, flushed or not: then no device refers to the
 * session any more. */
void native_session_abandon(struct native_session *session) __attribute__((cold));
/* Frees those on the closing list; returns how many. From the poller; from drain once that is gone.
 */
uint32_t native_sessions_reap(struct front_native *front);

/* ---- session/capsule_dp.c ---- */
/* Identifies an unsignaled work request when it fails, which may be after the session's end. */
static inline uint64_t native_tag_session(const struct native_session *session)
{
	return session->id << 2 | NATIVE_TAG_SESSION;
}
uint32_t native_poll(void *arg);
int native_recv_post(struct native_recv *recv);
/* Gives what it holds, and itself. */
void native_send_give(struct front_native *front, struct native_send *send);
/* Posts an encoded capsule, sealed here when sealed is true, behind send's writes, in one batch.
 * Takes send over (NULL: none), and span with the capsule in it (data NULL: the capsule lies in the
 * caller's memory and fits a work request), also on an error. With wait it parks the fiber while
 * the send queue is full, so the caller is one of the session's requests, or its proof: nothing
 * else keeps the session; outside fibers the session fails then. Without wait a full queue is
 * -ENOMEM, and nothing was posted. -ENOTCONN once the session has failed; other errors fail it. */
struct native_out {
	struct native_send *send; /* its pieces are written to remote, one after the other */
	struct flow_remote remote;
	struct region_span span; /* OWNER_RDMA */
	void *capsule;		 /* NULL: only the writes */
	bool sealed;
	bool wait;
};
int native_send_capsule(struct native_session *session, const struct native_out *out);
/* The session is over: who waits for room in its send queue finds that out. */
void native_send_wake(struct native_session *session) __attribute__((cold));
/* Asks the client's device whether it is there: an empty write, which fails when it is not. */
void native_keepalive_send(struct native_session *session) __attribute__((cold));
/* A sink whose pieces go to the client's one run together with the response. */
void native_direct_sink_open(struct native_request *request, struct flow_sink **ret_sink);
/* A sink into the response capsule, whose body goes on at request->inline_at. */
void native_inline_sink_open(struct native_request *request, struct flow_sink **ret_sink);
/* Encodes into request->small or request->span, which the caller has seen to
 * (native_response_room; room for an inline body is left as it was), gives the receive back, and
 * sends behind the direct sink's writes. Ends the request's hold on the session. */
void native_respond(struct native_request *request, const struct capsule_response *response);

/* The same, but the request goes on: neither its receive nor its credit is given back. The frames
 * of the response and of the writes before it are given back in any case. */
int native_respond_more(struct native_request *request, const struct capsule_response *response);

/* ---- session/stream.c ---- */
/* Answers a list page by page; the last one is for the caller to answer. */
void native_stream_list(struct native_request *request);
/* A page has been made. */
void native_stream_note(struct native_stream *stream, struct slice xml);

/* ---- session/crypt.c ---- */
/* Puts decryption behind a source of the request's body, which it takes over, and encryption before
 * a sink of its answer. On an error the end is as it was. */
struct native_crypt;
int native_crypt_source(struct native_request *request, struct flow_source **source);
int native_crypt_sink(struct native_request *request, struct flow_sink **sink);
void native_crypt_end(struct native_request *request);

/* ---- session/lease.c ---- */
/* Lets s3 grant a lease on what the request reads. */
void native_lease_ask(struct native_request *request);
/* Ends those whose time is over, and wipes what has ended. */
void native_leases_sweep(struct native_session *session, uint64_t now_ns);
/* Before the queue pair closes: ends all. */
void native_leases_close(struct native_session *session);

/* ---- session/request.c ---- */
/* The answer so far, and the place of its encoding. */
void native_response_fill(struct native_request *request, struct capsule_response *response);
/* Sees to it that there is room to encode it. Waits for frames in a fiber only. -EMSGSIZE: the
 * client's receives do not hold it; -ENOBUFS, -ETIMEDOUT: no frames. */
int native_response_room(struct native_request *request, const struct capsule_response *response);
/* The text between <name> and </name>, as it stands; empty when there is none. */
struct slice native_xml_text(struct slice xml, struct slice open, struct slice close);
void native_request_fiber(void *arg); /* struct native_recv */
/* Answers without running it: outside fibers too. */
void native_request_refuse(
	struct native_recv *recv, uint16_t status, const char *code, const char *message);

#endif
