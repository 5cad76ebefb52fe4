/* s3/event/notify_send.h: one try to give an event to a target: a line of a log file, or an HTTP
 * POST. */
#ifndef S3_NOTIFY_SEND_H
#define S3_NOTIFY_SEND_H

#include <curl/curl.h>
#include <sys/socket.h>

#include "base/base.h"
#include "s3/event/notify.h"

struct s3_notify_way {
	char url[S3_TARGET_URL_MAX + 1]; /* of a log: its file */
	bool is_log;
	bool is_topic; /* a client chose the URL: no proxy, and the two below count */
	bool only_public, any_certificate;
};
/* REFUSED: it was there and did not take this event. AWAY: it could not be reached, and would have
 * taken no other either. */
enum s3_notify_result { S3_NOTIFY_TAKEN, S3_NOTIFY_REFUSED, S3_NOTIFY_AWAY };

/* Blocks. give_up is asked about once a second whether the try is to end at once. curl is the
 * thread's own, and not needed for a log. */
enum s3_notify_result s3_notify_send(const struct s3_notify_way *way, struct slice text, CURL *curl,
	bool (*give_up)(void *arg), void *arg);
/* Has it connect only to such addresses, whatever a name stands for at that time. */
void s3_curl_only_public(CURL *curl);
/* Whether an address is one that anybody may be reached at. */
bool s3_address_is_public(const struct sockaddr *address);

#endif
