/* cli/s3_call.h: sends any request to S3, and reads XML answers element by element. */
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
	bool may_be_missing;	  /* a 404 prints no message */
};
/* Puts the answer's body, ended by a NUL, into answer, up to answer's maximum. An exit code; prints
 * why. ret_result may be NULL. */
int s3_call(struct neb_client *client, const struct s3_call *call, struct buf *answer,
	struct neb_result *ret_result);
/* Deletes the bucket's setting that the query names, or writes the document, or reads the setting
 * and prints it where the document is empty: one call by a client of its own. An exit code; prints
 * why. */
int s3_setting(const struct remote_opts *opts, const char *bucket, const char *query, bool delete,
	const struct buf *document);

enum xml_event { XML_BEGIN, XML_END };
/* name has no namespace; at XML_END text is the element's content, if it has no elements. */
typedef void xml_fn(void *arg, enum xml_event event, const char *name, const char *text);
/* -EBADMSG: not XML; -ENOMEM. */
int xml_read(const char *xml, size_t bytes, xml_fn *fn, void *arg);

#endif
