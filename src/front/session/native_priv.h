/* front/session/native_priv.h: interface between the files of the native front.
 *
 *   native.c      a reactor's front: completion queue, sweep, drain
 *   port.c        shared by the fronts of all reactors: registrations, listener, connection
 *                 events, choice of a session's front
 *   session.c     a session's life: set-up, failing, ending
 *   capsule_dp.c  completions, responses and small bodies: the fast path
 *   request.c     a capsule into a struct s3_request and its answer back
 *   crypt.c       encryption of bodies in encrypted sessions
 *   stream.c      lists of many pages in one request
 *   once.c        numbered writes, so that a repetition is not done again
 *   lease.c       copies that a session's client reads by itself
 *   tell.c        the sessions, for operators
 *
 * A front and its sessions run on their reactor's thread; the port's listener on the first front's.
 * */
#ifndef FRONT_SESSION_NATIVE_PRIV_H
#define FRONT_SESSION_NATIVE_PRIV_H

#include "front/session/types.h"

/* ---- session/port.c ---- */
/* Creates the port, or joins first's. */
int native_port_join(struct front_native *front, struct front_native *first);
void native_port_leave(struct front_native *front); /* takes a front that never joined */
/* Called by the first front: stops accepting connections. */
void native_port_close(struct front_native *front);

/* How many sessions there are on all devices. */
uint32_t native_places_taken(const struct native_places *places);
/* Ends a session of any front; from any reactor. False: out of memory. */
bool native_session_end_at(struct front_native *front, uint64_t session_id);

/* ---- session/once.c ---- */
int native_once_open(struct native_once **ret_once);
void native_once_close(struct native_once *once); /* takes NULL */
/* A front will be used on this reactor. Called while no reactor runs. */
void native_once_join(struct native_once *once, const struct reactor *reactor);
/* Before a numbered write runs: true, it runs, and native_once_end() follows; false: the request
 * has its answer. May wait for an earlier try. Its fiber. */
bool native_once_begin(struct native_request *request);
/* It succeeded, and this is the document of its answer. */
void native_once_note(struct native_request *request, struct slice document);
void native_once_end(struct native_request *request);

/* ---- session/session.c ---- */
/* The caller has counted its place as an unproven session; on an error the place is free again. */
int native_session_accept(struct front_native *front, const struct rp_cm_event *event);
/* Handles set-up capsules; session/capsule_dp.c handles requests. */
void native_session_setup(struct native_session *session, struct native_recv *recv, uint32_t bytes);
/* Ends the session, because of the peer, the queue pair or a deadline. Idempotent; never frees. */
void native_session_fail(struct native_session *session, const char *why) __attribute__((cold));
/* The same when the client left, and when a work request on its queue pair failed. */
void native_session_gone(struct native_session *session) __attribute__((cold));
void native_session_broken(struct native_session *session, enum rp_status status)
	__attribute__((cold));
/* Sends GOODBYE; the session ends when all answers are sent. Never waits. */
void native_session_drain(struct native_session *session, enum capsule_goodbye_reason reason);
/* Ends the session that has been without proof for the longest time, if that is NATIVE_YIELD_NS;
 * false: none. */
bool native_session_yield(struct front_native *front) __attribute__((cold));
/* Called whenever something that the session waited for has ended. */
void native_session_settle(struct native_session *session);
/* Closes the queue pair of a session that has failed, flushed or not: then no device refers to the
 * session any more. */
void native_session_abandon(struct native_session *session) __attribute__((cold));
/* Frees the sessions on the closing list; returns how many. Called by the poller, and by drain
 * after the poller is removed.
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
/* Gives back the send and the frames that it holds. */
void native_send_give(struct front_native *front, struct native_send *send);
/* Gives back the frames of the request's response, if it has some. */
void native_span_give(struct native_request *request);
/* Posts an encoded capsule after send's writes, in one batch; sealed true: seals it first. Takes
 * send over (NULL: none), and span with the capsule in it (data NULL: the capsule is in the
 * caller's memory and fits a work request), also on an error. With wait, it parks the fiber while
 * the send queue is full. The caller must then be one of the session's requests, or its proof,
 * because only these keep the session; outside fibers the session fails instead. Without wait, a
 * full queue is -ENOMEM, and nothing was posted. -ENOTCONN once the session has failed; other
 * errors fail it. */
struct native_out {
	struct native_send *send; /* its pieces are written to remote, one after the other */
	struct flow_remote remote;
	struct region_span span; /* OWNER_RDMA */
	uint16_t span_share;	 /* that counts it */
	void *capsule;		 /* NULL: only the writes */
	bool sealed;
	bool wait;
};
int native_send_capsule(struct native_session *session, const struct native_out *out);
/* The session is over: wakes the fibers that wait for room in its send queue. */
void native_send_wake(struct native_session *session) __attribute__((cold));
/* Probes the client's device with an empty write, which fails when the device is gone. */
void native_keepalive_send(struct native_session *session) __attribute__((cold));
/* A sink that writes its pieces to the client's only run, together with the response. */
void native_direct_sink_open(struct native_request *request, struct flow_sink **ret_sink);
/* A sink into the response capsule; request->inline_at is the end of the body so far. */
void native_inline_sink_open(struct native_request *request, struct flow_sink **ret_sink);
/* Encodes into request->small or request->span, which the caller has prepared
 * (native_response_room; an inline body already there is kept), gives the receive back, and sends
 * the response after the direct sink's writes. The request no longer keeps the session. */
void native_respond(struct native_request *request, const struct capsule_response *response);

/* The same, but the request goes on: neither its receive nor its credit is given back. The frames
 * of the response and of the writes before it are given back in any case. */
int native_respond_more(struct native_request *request, const struct capsule_response *response);

/* ---- session/stream.c ---- */
/* Answers a list page by page; the caller answers the last page. */
void native_stream_list(struct native_request *request);
/* Notes that a page is complete. */
void native_stream_note(struct native_stream *stream, struct slice xml);

/* ---- session/crypt.c ---- */
/* Wraps a source of the request's body in decryption, and a sink of its answer in encryption, and
 * takes them over. On an error the end is unchanged. */
struct native_crypt;
int native_crypt_source(struct native_request *request, struct flow_source **source);
int native_crypt_sink(struct native_request *request, struct flow_sink **sink);
void native_crypt_end(struct native_request *request);

/* ---- session/lease.c ---- */
/* Lets s3 grant a lease on the object that the request reads. */
void native_lease_ask(struct native_request *request);
/* Ends leases whose time is over, and wipes the slots of ended leases. */
void native_leases_sweep(struct native_session *session, uint64_t now_ns);
/* Ends all leases. Called before the queue pair closes. */
void native_leases_close(struct native_session *session);

/* ---- session/request.c ---- */
/* The answer so far, and the place of its encoding. */
void native_response_fill(struct native_request *request, struct capsule_response *response);
/* The store may have had another owner before this answer leaves: true when it was replaced by a
 * refusal, false for an answer that says nothing about the store. */
bool native_answer_late(struct native_request *request) __attribute__((cold));
/* Provides room to encode it. Waits for frames in a fiber only. -EMSGSIZE: it does not fit the
 * client's receives; -ENOBUFS, -ETIMEDOUT: no frames. */
int native_response_room(struct native_request *request, const struct capsule_response *response);
void native_request_fiber(void *arg); /* struct native_recv */
/* Answers without running the request; also outside fibers. */
void native_request_refuse(
	struct native_recv *recv, uint16_t status, const char *code, const char *message);

#endif
