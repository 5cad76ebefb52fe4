/* net/path.c: whether the path to a stream's peer still carries anything, as the kernel knows it.
 */
#include "net/net_priv.h"

#include <linux/tcp.h> /* its struct tcp_info has more than the C library's */

void net_keepalive(struct net_stream *stream, uint32_t idle_s)
{
	int on = 1, idle = (int)idle_s, tries = 4, interval = (int)MAX(idle_s / 4, 1u);

	/* Sockets without these options refuse them: on one host the kernel knows the peer's
	 * end. */
	if (setsockopt(stream->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) ||
		setsockopt(stream->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)))
		return;
	setsockopt(stream->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(stream->fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
}

/* For how long the peer has acknowledged nothing of what was sent, as far as the looks show it. One
 * that has no room acknowledges nothing either. */
static uint64_t unmoved_ns(
	struct net_stream *stream, const struct tcp_info *info, uint64_t since_ns)
{
	uint64_t now_ns = clock_now_ns();

	if (!info->tcpi_unacked || !info->tcpi_snd_wnd ||
		stream->acked_bytes != info->tcpi_bytes_acked) {
		stream->acked_bytes = info->tcpi_bytes_acked;
		stream->moved_ns = now_ns;
	}
	return now_ns - MIN(now_ns, MAX(stream->moved_ns, since_ns));
}

/* TCP_USER_TIMEOUT is no substitute: it also ends streams whose peer lives but does not read. The
 * kernel asks such a peer at growing intervals. Either it sends again what the peer had no memory
 * for, then the last answer is at most tcpi_rto old; or it sends probes, then one may be on its way
 * and one lost. */
bool net_unheard(struct net_stream *stream, uint64_t since_ns, uint64_t silent_ns)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	uint64_t heard_ns; /* that long ago */

	if (getsockopt(stream->fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return false;
	if (unmoved_ns(stream, &info, since_ns) >= silent_ns)
		return true;
	heard_ns = info.tcpi_last_ack_recv * NS_PER_MS;
	if (info.tcpi_unacked)
		return heard_ns >= MAX(silent_ns, info.tcpi_rto * NS_PER_US / 2 * 3);
	return info.tcpi_probes > 2 && heard_ns >= silent_ns;
}
