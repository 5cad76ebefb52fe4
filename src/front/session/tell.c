/* front/session/tell.c: the sessions of a front, for operators. */
#include "front/session/native_priv.h"

static const char *phase_of(const struct native_session *session)
{
	if (session->phase == NATIVE_OPEN)
		return "open";
	return session->phase < NATIVE_OPEN ? "setup" : "ending";
}

static struct front_session session_of(const struct native_session *session, uint64_t now_ns)
{
	struct front_session told = {.id = session->id,
		.phase = phase_of(session),
		.encrypted = session->encrypted,
		.age_ns = now_ns - session->accepted_ns,
		.idle_ns = now_ns - session->last_ns,
		.in_flight = session->in_flight,
		.credits = session->credits,
		.requests = session->answered,
		.errors = session->errors,
		.bytes_in = session->bytes_in,
		.bytes_out = session->bytes_out};

	memcpy(told.peer, session->peer, sizeof(told.peer));
	if (session->proven)
		told.identity = session->identity;
	return told;
}

uint32_t front_native_tell(const struct front_native *front, uint64_t after,
	struct front_session *ret_sessions, uint32_t max)
{
	uint64_t now_ns = reactor_now_ns(front->reactor);
	uint32_t count = 0;

	LIST_FOR_EACH (link, &front->sessions) {
		const struct native_session *session =
			CONTAINER_OF(link, struct native_session, link);
		uint32_t at;

		native_session_check(session);
		if (session->id <= after ||
			(count == max && session->id > ret_sessions[count - 1].id))
			continue;
		if (count < max)
			count++;
		for (at = count - 1; at && ret_sessions[at - 1].id > session->id; at--)
			ret_sessions[at] = ret_sessions[at - 1];
		ret_sessions[at] = session_of(session, now_ns);
	}
	return count;
}
