/* s3/core/operation.h: the description of an operation that all layers use: its row of
 * s3_operation_table.inc. Its handler is in a higher layer (s3/operation.h). */
#ifndef S3_CORE_OPERATION_H
#define S3_CORE_OPERATION_H

#include "s3/s3.h"

/* The kind of resource in a request's path. An account has a path of its own (route.c). */
enum s3_level {
	S3_LEVEL_NONE, /* for rows that no path selects */
	S3_LEVEL_SERVICE,
	S3_LEVEL_ACCOUNT,
	S3_LEVEL_BUCKET,
	S3_LEVEL_OBJECT
};

/* The parts of a request that select an operation, and the parts that its requests may have. */
struct s3_route {
	enum s3_method method;
	enum s3_level level;
	struct slice param;  /* must be in the query; empty: no parameter is needed */
	struct slice header; /* must be among the headers; empty: no header is needed */
	struct slice takes;  /* other parameters, separated by blanks */
	const char *log;     /* its name in access logs, after "REST."; NULL: none */
};

/* The resource of the operation's action. */
enum s3_authorize {
	S3_AUTHORIZE_NAMED,   /* on the bucket or the object that the request names */
	S3_AUTHORIZE_BUCKETS, /* all buckets; an anonymous caller has none, and gets an empty list
			       */
	S3_AUTHORIZE_ALL,     /* everything */
	S3_AUTHORIZE_NEW_BUCKET, /* a bucket that may not exist */
	S3_AUTHORIZE_ACCOUNT,	 /* the caller's own account */
	S3_AUTHORIZE_BY_KEY,	 /* every authenticated caller may */
	S3_AUTHORIZE_BY_ITSELF,	 /* its handler checks, for each key or by the body's contents */
	S3_AUTHORIZE_FORM /* a form's fields identify the caller: its handler authenticates, too */
};

enum s3_express {
	S3_EXPRESS_NONE,   /* not available in directory buckets */
	S3_EXPRESS_KEY,	   /* only with a caller's own key */
	S3_EXPRESS_READER, /* also in any session of the bucket */
	S3_EXPRESS_WRITER  /* also in a session that is not ReadOnly */
};

enum s3_body_rule {
	S3_BODY_NONE,
	S3_BODY_DOCUMENT, /* small, read whole: XML or JSON */
	S3_BODY_FORM,
	S3_BODY_OBJECT,	 /* the object's bytes; they may come by RDMA */
	S3_BODY_ANSWERED /* the answer's body is the object's bytes; they may go by RDMA */
};

enum s3_operation_id {
#define OPERATION(id, name, handler, ...) S3_OPERATION_##id,
#include "s3/s3_operation_table.inc"
	S3_OPERATION_COUNT
};

struct s3_operation {
	enum s3_operation_id id;
	const char *name; /* S3's name */
	struct s3_route route;
	/* The IAM action ("s3:GetObject"), and the action with a versionId; empty: the request or
	 * its handler determines it. version_action empty: the same action. */
	const char *action, *version_action;
	enum s3_authorize authorize;
	enum s3_express express;
	enum s3_body_rule body;
	uint8_t opcode;		  /* of the native protocol; 0: it has none */
	const char *opcode_query; /* the parameter that the opcode implies; or empty */
	bool direct;		  /* the opcode needs only bucket and key */
	bool walks_index;	  /* counts against its principal's share */
	bool creates_object;	  /* in the sense of s3:ObjectCreationOperation */
	bool headers_act;	  /* headers need actions of their own */
	bool judges_body;	  /* policies may have conditions on the body's contents */
	bool needs_read;	  /* also needs the right to read the object */
};
/* The table: one row for each id. */
extern const struct s3_operation s3_operations[S3_OPERATION_COUNT];
static inline const struct s3_operation *s3_operation_at(enum s3_operation_id id)
{
	CHECK(id < S3_OPERATION_COUNT);
	return &s3_operations[id];
}
/* By an opcode of the native protocol; NULL: no operation has this opcode. */
const struct s3_operation *s3_operation_of_opcode(uint8_t opcode);

/* A parameter of S3 that selects a feature which is not served. */
struct s3_not_served {
	struct slice param;
	const char
		*action; /* callers with this right see the error; empty: the right to everything */
};
/* NULL: the parameter is not in the table. */
const struct s3_not_served *s3_not_served(struct slice param);

#endif
