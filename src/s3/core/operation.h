/* s3/core/operation.h: what all rooms know of an operation: its row of s3_operation_table.inc,
 * which says what each of them does with a request of it. Its handler stands above them
 * (s3/operation.h). */
#ifndef S3_CORE_OPERATION_H
#define S3_CORE_OPERATION_H

#include "s3/s3.h"

/* The kind of thing that a request's path names. An account's is a path of its own (route.c). */
enum s3_level {
	S3_LEVEL_NONE, /* of rows that no path chooses */
	S3_LEVEL_SERVICE,
	S3_LEVEL_ACCOUNT,
	S3_LEVEL_BUCKET,
	S3_LEVEL_OBJECT
};

/* The parts of a request that select an operation, and the parts that its requests may have. */
struct s3_route {
	enum s3_method method;
	enum s3_level level;
	struct slice param;  /* must be in the query; empty: none need be */
	struct slice header; /* must be among the headers; empty: none need be */
	struct slice takes;  /* other parameters, separated by blanks */
	const char *log;     /* what access logs call it, behind "REST."; NULL: nothing */
};

/* On what the operation's action is asked for. */
enum s3_authorize {
	S3_AUTHORIZE_NAMED,	 /* on the bucket or the object that the request names */
	S3_AUTHORIZE_BUCKETS,	 /* on all buckets; an anonymous caller has none, and gets an empty
				    list */
	S3_AUTHORIZE_ALL,	 /* on everything */
	S3_AUTHORIZE_NEW_BUCKET, /* on a bucket that need not be there */
	S3_AUTHORIZE_ACCOUNT,	 /* on the caller's own account */
	S3_AUTHORIZE_BY_KEY,	 /* everybody with a key may */
	S3_AUTHORIZE_BY_ITSELF,	 /* its handler asks, for each key or for what its body says */
	S3_AUTHORIZE_FORM	 /* a form's fields say who asks: its handler authenticates, too */
};

enum s3_express {
	S3_EXPRESS_NONE,   /* directory buckets do not have it */
	S3_EXPRESS_KEY,	   /* a caller's own key only */
	S3_EXPRESS_READER, /* or any session of the bucket */
	S3_EXPRESS_WRITER  /* or a session that is not ReadOnly */
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
	const char *name; /* as S3 names it */
	struct s3_route route;
	/* IAM's name of what it needs ("s3:GetObject"), and with a versionId; empty: the request or
	 * its handler says. version_action empty: the same. */
	const char *action, *version_action;
	enum s3_authorize authorize;
	enum s3_express express;
	enum s3_body_rule body;
	uint8_t opcode;		  /* of the native protocol; 0: it has none */
	const char *opcode_query; /* the parameter that the opcode stands for; or empty */
	bool direct;		  /* s3 takes the opcode with bucket and key alone */
	bool walks_index;	  /* counted against its principal's share */
	bool creates_object;	  /* as s3:ObjectCreationOperation has it */
	bool headers_act;	  /* headers need actions of their own */
	bool judges_body;	  /* policies may have conditions on what its body says */
	bool needs_read;	  /* needs the right to read the object, too */
};
/* The table; a row for each id. */
extern const struct s3_operation s3_operations[S3_OPERATION_COUNT];
static inline const struct s3_operation *s3_operation_at(enum s3_operation_id id)
{
	CHECK(id < S3_OPERATION_COUNT);
	return &s3_operations[id];
}
/* By an opcode of the native protocol; NULL: no operation has it. */
const struct s3_operation *s3_operation_of_opcode(uint8_t opcode);

/* A parameter of S3 that chooses what is not served here. */
struct s3_not_served {
	struct slice param;
	const char *action; /* callers with this right learn it; empty: the right to everything */
};
/* NULL: the parameter is none of them. */
const struct s3_not_served *s3_not_served(struct slice param);

#endif
