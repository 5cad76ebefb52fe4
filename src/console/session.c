/* console/session.c: sessions by their cookies, and limits on failed sign-ins of a host. The caller
 * passes the time. Only the browser knows a cookie's value: the table has its digest. */
#include "console/console_priv.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

DEFINE_COUNTER_FULL(sessions_full, "console_sessions");

/* ---- Sessions. ---- */

void console_session_put(struct console_session *session)
{
	if (!session || --session->references)
		return;
	secret_wipe(session, sizeof(*session));
	free(session);
}

static bool is_over(const struct console_table *table, const struct console_session *session,
	struct console_now now)
{
	return now.real_ms >= session->expires_ms ||
	       now.mono_ns - session->used_ns >= table->idle_timeout_ns;
}

static void drop(struct console_table *table, uint32_t idx)
{
	console_session_put(table->items[idx]);
	table->items[idx] = NULL;
}

static uint32_t account_sessions(const struct console_table *table, const char *account)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < CONSOLE_SESSIONS_MAX; i++)
		count += table->items[i] && strcmp(table->items[i]->account, account) == 0;
	return count;
}

/* In a full table an account with most sessions, the new one's counted, gives way: the one of them
 * that was idle for longest. An account can make users and roles without end. */
static uint32_t place_of_most(
	const struct console_table *table, const struct console_session *session)
{
	uint32_t idx = 0, most = 0;

	for (uint32_t i = 0; i < CONSOLE_SESSIONS_MAX; i++) {
		const struct console_session *other = table->items[i];
		uint32_t count = account_sessions(table, other->account) +
				 (strcmp(other->account, session->account) == 0);

		if (count < most || (count == most && other->used_ns >= table->items[idx]->used_ns))
			continue;
		most = count;
		idx = i;
	}
	return idx;
}

/* The place of a new session: a free one; that of the same principal's oldest session when the
 * principal has the maximum; or one of the account with most sessions. Names do not count: users of
 * an identity provider choose their own. */
static uint32_t place(const struct console_table *table, const struct console_session *session)
{
	uint32_t free_idx = CONSOLE_SESSIONS_MAX, own_idx = CONSOLE_SESSIONS_MAX, own_count = 0;

	for (uint32_t i = 0; i < CONSOLE_SESSIONS_MAX; i++) {
		const struct console_session *other = table->items[i];

		if (!other) {
			free_idx = i;
			continue;
		}
		if (strcmp(other->arn, session->arn) != 0)
			continue;
		own_count++;
		if (own_idx == CONSOLE_SESSIONS_MAX ||
			other->used_ns < table->items[own_idx]->used_ns)
			own_idx = i;
	}
	if (own_count >= CONSOLE_SESSIONS_PER_KEY)
		return own_idx;
	return free_idx < CONSOLE_SESSIONS_MAX ? free_idx : place_of_most(table, session);
}

void console_table_add(struct console_table *table, struct console_session *session,
	struct console_now now, char ret_cookie[CONSOLE_COOKIE_LEN + 1])
{
	uint8_t random[CONSOLE_COOKIE_BYTES];
	uint32_t idx;

	for (uint32_t i = 0; i < CONSOLE_SESSIONS_MAX; i++)
		if (table->items[i] && is_over(table, table->items[i], now))
			drop(table, i);
	idx = place(table, session);
	if (table->items[idx])
		counter_add(&sessions_full, 1);
	drop(table, idx);
	random_fill(random, sizeof(random));
	hex_encode(random, sizeof(random), ret_cookie);
	ret_cookie[CONSOLE_COOKIE_LEN] = '\0';
	sha256_of(ret_cookie, CONSOLE_COOKIE_LEN, session->digest);
	secret_wipe(random, sizeof(random));
	session->used_ns = now.mono_ns;
	session->expires_ms =
		MIN(session->expires_ms, now.real_ms + (int64_t)table->session_s * 1000);
	table->items[idx] = session;
}

struct console_session *console_table_get(
	struct console_table *table, struct slice cookie, struct console_now now, bool touch)
{
	uint8_t digest[SHA256_BYTES];

	if (cookie.len != CONSOLE_COOKIE_LEN)
		return NULL;
	sha256_of(cookie.data, cookie.len, digest);
	for (uint32_t i = 0; i < CONSOLE_SESSIONS_MAX; i++) {
		struct console_session *session = table->items[i];

		if (!session || !secret_equal(session->digest, digest, sizeof(digest)))
			continue;
		if (is_over(table, session, now)) {
			drop(table, i);
			return NULL;
		}
		if (touch)
			session->used_ns = now.mono_ns;
		session->references++;
		return session;
	}
	return NULL;
}

void console_table_remove(struct console_table *table, const struct console_session *session)
{
	for (uint32_t i = 0; i < CONSOLE_SESSIONS_MAX; i++)
		if (table->items[i] == session)
			drop(table, i);
}

void console_table_free(struct console_table *table)
{
	for (uint32_t i = 0; i < CONSOLE_SESSIONS_MAX; i++)
		drop(table, i);
}

uint32_t console_table_count(const struct console_table *table)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < CONSOLE_SESSIONS_MAX; i++)
		count += table->items[i] != NULL;
	return count;
}

/* ---- Tries. ---- */

/* "192.0.2.1", or the first 64 bits of an IPv6 address, because one host may use any address of its
 * network. */
static void host_name(struct slice peer, char name[64])
{
	const char *colon = peer.len ? memrchr(peer.data, ':', peer.len) : NULL;
	struct slice host = colon ? slice_to(peer, (size_t)(colon - peer.data)) : peer;
	struct in6_addr address;

	if (slice_starts(host, SLICE("[")) && slice_ends(host, SLICE("]")))
		host = slice_of(host.data + 1, host.len - 2);
	if (!host.len || slice_copy_str(host, name, 64))
		snprintf(name, 64, "other");
	if (inet_pton(AF_INET6, name, &address) == 1 && !IN6_IS_ADDR_V4MAPPED(&address)) {
		memset(address.s6_addr + 8, 0, 8);
		inet_ntop(AF_INET6, &address, name, 64);
	}
}

static struct console_host *find(struct console_limit *limit, const char *name)
{
	for (uint32_t i = 0; i < CONSOLE_HOSTS_MAX; i++)
		if (strcmp(limit->hosts[i].name, name) == 0)
			return &limit->hosts[i];
	return NULL;
}

static struct console_host *find_or_add(
	struct console_limit *limit, const char name[64], uint64_t now_ns)
{
	struct console_host *host = find(limit, name);

	if (host)
		return host;
	host = &limit->hosts[0];
	for (uint32_t i = 0; i < CONSOLE_HOSTS_MAX && host->name[0]; i++)
		if (!limit->hosts[i].name[0] || limit->hosts[i].used_ns < host->used_ns)
			host = &limit->hosts[i];
	*host = (struct console_host){.tries_left = CONSOLE_TRIES_MAX, .filled_ns = now_ns};
	memcpy(host->name, name, sizeof(host->name));
	return host;
}

bool console_limit_take(
	struct console_limit *limit, struct slice peer, uint64_t now_ns, uint32_t *ret_wait_s)
{
	struct console_host *host;
	uint64_t fills;
	char name[64] = "";

	host_name(peer, name);
	host = find_or_add(limit, name, now_ns);
	host->used_ns = now_ns;
	fills = (now_ns - host->filled_ns) / CONSOLE_TRY_REFILL_NS;
	host->filled_ns += fills * CONSOLE_TRY_REFILL_NS;
	host->tries_left = (uint32_t)MIN(host->tries_left + fills, CONSOLE_TRIES_MAX);
	if (host->tries_left == CONSOLE_TRIES_MAX)
		host->filled_ns = now_ns;
	if (!host->tries_left) {
		uint64_t left_ns = host->filled_ns + CONSOLE_TRY_REFILL_NS - now_ns;

		*ret_wait_s = (uint32_t)((left_ns + NS_PER_S - 1) / NS_PER_S);
		return false;
	}
	host->tries_left--;
	return true;
}

void console_limit_give(struct console_limit *limit, struct slice peer)
{
	struct console_host *host;
	char name[64] = "";

	host_name(peer, name);
	host = find(limit, name);
	if (host && host->tries_left < CONSOLE_TRIES_MAX)
		host->tries_left++;
}
