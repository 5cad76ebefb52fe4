/* client/session_post_dp.c: posts a session's work to its queue pair: capsules, receives, and the
 * write that checks that the server's device still answers. Data path. */
#include "session_priv.h"

#include <string.h>

static uint64_t wr_id(const struct client_session *session, uint32_t what)
{
	return (uint64_t)session->serial << 32 | what;
}

int client_recv_post(struct client_recv *recv)
{
	struct rp_sge sge = {.addr = (uint64_t)(uintptr_t)recv->data,
		.length = CLIENT_CAPSULE_BYTES,
		.lkey = recv->session->lkey};
	struct rp_recv_wr wr = {

		.wr_id = wr_id(recv->session, (uint32_t)(recv - recv->session->recvs)),
		.sg_list = &sge,
		.sge_count = 1};
	uint32_t posted;

	return rp_post_recv(recv->session->qp, &wr, 1, &posted);
}

/* Sends inside the work request if the capsule fits, else from registered memory: the capsule
 * itself if it is there, or a copy. */
int client_send(struct client_session *session, const void *capsule, uint8_t *registered)
{
	uint32_t bytes = ((const struct capsule_head *)capsule)->bytes;
	struct rp_sge sge = {.addr = (uint64_t)(uintptr_t)capsule, .length = bytes};
	struct rp_send_wr wr = {.wr_id = wr_id(session, CLIENT_WR_SEND),
		.opcode = RP_SEND,
		.flags = RP_SEND_SOLICITED,
		.sg_list = &sge,
		.sge_count = 1};
	uint32_t posted;
	int ret;

	if (bytes <= session->wr_inline_bytes) {
		wr.flags |= RP_SEND_INLINE;
	} else {
		if (capsule != registered)
			memcpy(registered, capsule, bytes);
		sge.addr = (uint64_t)(uintptr_t)registered;
		sge.lkey = session->lkey;
	}
	/* A slot's memory is free when its response has come, so completions are needed only now
	 * and then, to free the send queue. */
	if (session->sends_unsignaled >= session->unsignaled_max)
		wr.flags |= RP_SEND_SIGNALED;
	ret = rp_post_send(session->qp, &wr, 1, &posted);
	if (ret == 0)
		session->sends_unsignaled =
			wr.flags & RP_SEND_SIGNALED ? 0 : session->sends_unsignaled + 1;
	return ret;
}

void client_keepalive_send(struct client_session *session)
{
	const struct rp_send_wr wr = {.wr_id = wr_id(session, CLIENT_WR_KEEP),
		.opcode = RP_WRITE,
		.flags = RP_SEND_SIGNALED};
	uint32_t posted;

	/* If the queue is full, the sends in it show whether the server's device answers. */
	if (rp_post_send(session->qp, &wr, 1, &posted))
		return;
	session->keeping = true;
	session->client->stats.keepalives++;
	client_log(session->client, NEB_LOG_DEBUG,
		"rdma://%s:%u: silent, with requests in flight: its device is asked",
		session->endpoint->host, session->endpoint->port);
}
