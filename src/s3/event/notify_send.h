/* s3/event/notify_send.h: one attempt to send an event to a target: a line of a log file, or an
 * HTTP POST. */
#ifndef S3_NOTIFY_SEND_H
#define S3_NOTIFY_SEND_H

#include <curl/curl.h>
#include <sys/socket.h>

#include "base/base.h"
#include "s3/event/notify.h"

struct s3_notify_way {
	char url[S3_TARGET_URL_MAX + 1]; /* of a log: its file */
	bool is_log;
	bool is_topic; /* a client chose the URL: no proxy, and the next two fields apply */
	bool only_public, any_certificate;
};
/* REFUSED: the target was reachable and did not take this event. AWAY: the target was unreachable,
 * and would not have taken any other event. */
enum s3_notify_result { S3_NOTIFY_TAKEN, S3_NOTIFY_REFUSED, S3_NOTIFY_AWAY };

/* Blocks. give_up is called about once a second and tells whether the attempt must end at once.
 * curl belongs to the thread; a log does not need it. */
enum s3_notify_result s3_notify_send(const struct s3_notify_way *way, struct slice text, CURL *curl,
	bool (*give_up)(void *arg), void *arg);
/* Makes it connect only to such addresses, whatever a name resolves to at that time. */
void s3_curl_only_public(CURL *curl);
/* Whether an address is globally reachable. */
bool s3_address_is_public(const struct sockaddr *address);

#endif
