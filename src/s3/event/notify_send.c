/* s3/event/notify_send.c: one attempt to send an event to a target. */
#include "s3/event/notify_send.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <unistd.h>

#define TRY_MS_MAX 10000L

/* ---- A log file. ---- */

static enum s3_notify_result append_line(const char *path, struct slice text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
	off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	bool whole;

	if (fd < 0)
		return S3_NOTIFY_AWAY;
	whole = write(fd, text.data, text.len) == (ssize_t)text.len;
	/* A line is written whole or not at all. */
	if (!whole && end >= 0 && ftruncate(fd, end))
		log_warn("s3", "an incomplete line remains in %s: %s", path, strerror(errno));
	close(fd);
	return whole ? S3_NOTIFY_TAKEN : S3_NOTIFY_AWAY;
}

/* ---- The addresses that clients may make the server connect to. ---- */

static bool v4_is_public(uint32_t address)
{
	/* RFC 6890: addresses that are not globally reachable, and multicast. */
	static const struct {
		uint32_t net, bits;
	} nets[] = {{0x00000000, 8}, {0x0a000000, 8}, {0x64400000, 10}, {0x7f000000, 8},
		{0xa9fe0000, 16}, {0xac100000, 12}, {0xc0000000, 24}, {0xc0000200, 24},
		{0xc0586300, 24}, {0xc0a80000, 16}, {0xc6120000, 15}, {0xc6336400, 24},
		{0xcb007100, 24}, {0xe0000000, 3}};

	for (size_t i = 0; i < ARRAY_LEN(nets); i++)
		if ((address ^ nets[i].net) >> (32 - nets[i].bits) == 0)
			return false;
	return true;
}

bool s3_address_is_public(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
	const uint8_t *bytes;
	uint32_t inside;

	if (address->sa_family == AF_INET)
		return v4_is_public(ntohl(v4->sin_addr.s_addr));
	if (address->sa_family != AF_INET6)
		return false;
	bytes = v6->sin6_addr.s6_addr;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memcpy(&inside, bytes + 12, sizeof(inside));
		return v4_is_public(ntohl(inside));
	}
	/* 2000::/3 is the allocated space; without 2001::/23, documentation and 6to4. */
	return bytes[0] >> 5 == 1 &&
	       !(bytes[0] == 0x20 && bytes[1] == 0x01 &&
		       ((bytes[2] & 0xfe) == 0 || (bytes[2] == 0x0d && bytes[3] == 0xb8))) &&
	       !(bytes[0] == 0x20 && bytes[1] == 0x02);
}

/* curl asks for a socket to the resolved address, whatever the name was. */
static curl_socket_t open_public(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	(void)arg;
	if (purpose != CURLSOCKTYPE_IPCXN || !s3_address_is_public(&address->addr))
		return CURL_SOCKET_BAD;
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

void s3_curl_only_public(CURL *curl)
{
	curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_public);
}

/* ---- A webhook. ---- */

/* The body of a target's answer is ignored. */
static size_t take_nothing(char *data, size_t size, size_t count, void *arg)
{
	(void)data;
	(void)arg;
	return size * count;
}

struct interest {
	bool (*give_up)(void *arg);
	void *arg;
};

/* Not 0: the attempt ends. */
static int look(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const struct interest *interest = arg;

	(void)a;
	(void)b;
	(void)c;
	(void)d;
	return interest->give_up(interest->arg);
}

static void restrict_topic(const struct s3_notify_way *way, CURL *curl)
{
	curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, way->any_certificate ? 0L : 1L);
	curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, way->any_certificate ? 0L : 2L);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	if (way->only_public)
		s3_curl_only_public(curl);
}

/* A target that fell silent or hung up during the send may have done so because of this event. */
static enum s3_notify_result result_of(CURL *curl, CURLcode code)
{
	curl_off_t sending_us = 0;
	long status = 0;

	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME_T, &sending_us);
	if (code == CURLE_OK && status >= 200 && status < 300)
		return S3_NOTIFY_TAKEN;
	return status || sending_us ? S3_NOTIFY_REFUSED : S3_NOTIFY_AWAY;
}

static enum s3_notify_result post(const struct s3_notify_way *way, struct slice text, CURL *curl,
	const struct interest *interest)
{
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	enum s3_notify_result result = S3_NOTIFY_AWAY;

	curl_easy_setopt(curl, CURLOPT_URL, way->url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TRY_MS_MAX);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "nebulaio");
	curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)text.len);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text.data);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_nothing);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, (void *)(uintptr_t)interest);
	if (way->is_topic)
		restrict_topic(way, curl);
	if (headers)
		result = result_of(curl, curl_easy_perform(curl));
	curl_slist_free_all(headers);
	return result;
}

enum s3_notify_result s3_notify_send(const struct s3_notify_way *way, struct slice text, CURL *curl,
	bool (*give_up)(void *arg), void *arg)
{
	const struct interest interest = {.give_up = give_up, .arg = arg};

	if (way->is_log)
		return append_line(way->url, text);
	return curl ? post(way, text, curl, &interest) : S3_NOTIFY_AWAY;
}
