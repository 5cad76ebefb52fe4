/* codec/date.h: points in time as S3 writes and reads them. Time is milliseconds since 1970-01-01
 * UTC, years 1970 to 9999; no leap seconds; output is always in UTC.
 *
 * Every parser is strict: the whole text, in range digits, a day that its month has, and (but for
 * mail) a weekday that fits; -EINVAL otherwise. A formatter writes its fixed length and no NUL; ms
 * must be in range, from 0 to DATE_MS_MAX. */
#ifndef CODEC_DATE_H
#define CODEC_DATE_H

#include <stdint.h>

#include "base/slice.h"

#define DATE_MS_MAX 253402300799999ll /* 9999-12-31T23:59:59.999Z */

#define DATE_HTTP_LEN  29u /* Sun, 06 Nov 1994 08:49:37 GMT */
#define DATE_ISO_LEN   24u /* 1994-11-06T08:49:37.000Z */
#define DATE_BASIC_LEN 16u /* 19941106T084937Z */
#define DATE_DAY_LEN   8u  /* 19941106 */

/* RFC 9110 section 5.6.7: writes IMF-fixdate; reads it and the two obsolete forms (RFC 850 with its
 * two-digit year taken as 1970 to 2069, and asctime). */
void date_http_format(int64_t ms, char ret_text[DATE_HTTP_LEN]);
int date_http_parse(struct slice text, int64_t *ret_ms);

/* RFC 5322 section 3.3, the dates of mail, which older clients send in HTTP: the day may have one
 * digit, the zone is a name for UTC or +hhmm, and a wrong weekday is accepted. */
int date_mail_parse(struct slice text, int64_t *ret_ms);

/* ISO 8601 extended, as S3's XML has it. Reads with or without a fraction of one to nine digits
 * (cut to milliseconds), and Z or an offset as +hh:mm. */
void date_iso_format(int64_t ms, char ret_text[DATE_ISO_LEN]);
int date_iso_parse(struct slice text, int64_t *ret_ms);

/* ISO 8601 basic, as SigV4's x-amz-date has it; and its first eight characters, the day of a
 * credential scope. */
void date_basic_format(int64_t ms, char ret_text[DATE_BASIC_LEN]);
int date_basic_parse(struct slice text, int64_t *ret_ms);
int date_day_parse(struct slice text, int64_t *ret_ms);

#endif
