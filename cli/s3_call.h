/* cli/s3_call.h: any request to S3, and what its XML answer says, element by element. */
#ifndef CLI_S3_CALL_H
#define CLI_S3_CALL_H

#include "base/base.h"
#include "remote.h"

struct s3_call {
	const char *method;
	const char *bucket; /* NULL: the service */
	const char *key;    /* NULL: the bucket */
	const char *query;  /* percent-encoded, or NULL */
	const void *body;
	size_t body_bytes;
	const char *content_type; /* or NULL */
	bool may_be_missing;	  /* a 404 is not said */
};
/* The answer's body, ended by a NUL, in answer, whose maximum is the most that is taken. An exit
 * code; said why. ret_result may be NULL. */
int s3_call(struct neb_client *client, const struct s3_call *call, struct buf *answer,
	struct neb_result *ret_result);

enum xml_event { XML_BEGIN, XML_END };
/* name without its namespace; at XML_END text is what stood in it, when no element did. */
typedef void xml_fn(void *arg, enum xml_event event, const char *name, const char *text);
/* -EBADMSG: not XML; -ENOMEM. */
int xml_read(const char *xml, size_t bytes, xml_fn *fn, void *arg);

#endif
