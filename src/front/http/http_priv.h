/* front/http/http_priv.h: interface between the HTTP files of src/front.
 *
 *   http/http.c            a connection's life: heads in, s3_handle(), the rest of bodies
 *   http/head_dp.c    a head's bytes into a request
 *   http/reply_dp.c   the answer's head and body out
 *   http/in_dp.c      the window of received bytes that framing is read from
 *   http/chunked.c    the chunked codings, HTTP's own and AWS's
 *   http/body.c       a request's body as a flow_source
 *   http/error.c      refusals that never reach s3 */
#ifndef FRONT_HTTP_HTTP_PRIV_H
#define FRONT_HTTP_HTTP_PRIV_H

#include <llhttp.h>

#include "codec/codec.h"
#include "codec/via.h"
#include "front/front.h"

/* The request line's target. Keys of 1,024 bytes, percent-encoded, and a query fit. */
#define HTTP_TARGET_BYTES_MAX (8 * KIB)
/* Room after the longest head for chunk heads and the bytes received with them. */
#define HTTP_IN_BYTES (LIMIT_HTTP_HEAD_BYTES_MAX + 4 * KIB)
/* A gateway's own headers in a request that it passes on: Host, Expect, Transfer-Encoding, and its
 * own, and their bytes. */
#define HTTP_VIA_HEADERS 4u
#define HTTP_VIA_BYTES	 KIB
/* The headers that s3 answers are bounded by the request's headers. */
#define HTTP_OUT_BYTES (LIMIT_HTTP_HEAD_BYTES_MAX + 4 * KIB)
/* Bytes requested when a chunk head is due: payload among them must be copied. */
#define HTTP_READ_AHEAD_BYTES 128u
/* The rest of a body that a handler did not read is read and dropped up to this size; past it the
 * connection ends. */
#define HTTP_DRAIN_BYTES_MAX (256 * KIB)
/* A peer that moves a body more slowly than this over a whole piece is cut off: a piece holds
 * frames. */
#define HTTP_BODY_RATE_MIN (4 * KIB) /* bytes a second */
/* After the last answer, the peer may send so many bytes until it stops and reads the answer. */
#define HTTP_LINGER_BYTES_MAX (32 * MIB)
#define HTTP_LINGER_NS	      (2 * NS_PER_S)
/* For so long a client that has ended its side is believed to wait for an answer of a gateway. */
#define HTTP_HALF_CLOSED_NS  (10 * NS_PER_S)
#define HTTP_EMPTY_LINES_MAX 4u
#define HTTP_TRAILERS_MAX    16u
#define HTTP_REQUEST_ID_LEN  16u

_Static_assert(HTTP_TARGET_BYTES_MAX < LIMIT_HTTP_HEAD_BYTES_MAX, "a target fits a head");
_Static_assert(HTTP_IN_BYTES - LIMIT_HTTP_HEAD_BYTES_MAX > HTTP_VIA_BYTES + 2 * KIB,
	"chunk heads fit behind the longest head");
_Static_assert(VIA_BYTES_MAX + 200 < HTTP_VIA_BYTES, "a gateway's headers fit");

/* ---- The window (http/in_dp.c). ---- */

/* FRAMING: any number of bytes, into a window. PAYLOAD: all of them if possible, at their final
 * place; copies are counted. */
enum http_want { HTTP_FRAMING, HTTP_PAYLOAD };

/* Gives 1 to len bytes, 0 at the end, or -errno. */
typedef int http_recv_fn(void *arg, void *dst, size_t len, enum http_want want, size_t *ret_bytes);

/* Received bytes that are not taken yet are in data[start, end). Bytes below floor are in use and
 * stay where they are. */
struct http_in {
	char *data;
	uint32_t bytes_max;
	uint32_t floor;
	uint32_t start;
	uint32_t end;
	http_recv_fn *recv;
	void *arg;
};

/* Takes bytes from the window, or past it from the receiver: as http_recv_fn. */
int http_in_take(struct http_in *in, void *dst, size_t len, enum http_want want, size_t *ret_bytes);
/* Takes a line and its CRLF, at most len_max bytes without them. The line lives until the next call
 * on in. A lone CR or NUL is -EPROTO, and so is a lone LF, unless lone_lf. -EMSGSIZE: too long.
 * -EPIPE: the end came first. */
int http_in_line(struct http_in *in, uint32_t len_max, bool lone_lf, struct slice *ret_line);

/* ---- Chunked codings (http/chunked.c). ---- */

enum http_coding {
	HTTP_CODING_TRANSFER,		  /* RFC 9112 section 7.1; trailers are skipped */
	HTTP_CODING_AWS_SIGNED,		  /* STREAMING-AWS4-HMAC-SHA256-PAYLOAD */
	HTTP_CODING_AWS_SIGNED_TRAILER,	  /* …-TRAILER */
	HTTP_CODING_AWS_UNSIGNED_TRAILER, /* STREAMING-UNSIGNED-PAYLOAD-TRAILER */
};

/*   HEAD → DATA → DATA_END → HEAD …   at the chunk of size 0:  HEAD → TRAILER → END */
enum http_chunked_state {
	HTTP_CHUNK_HEAD,
	HTTP_CHUNK_DATA,
	HTTP_CHUNK_DATA_END,
	HTTP_CHUNK_TRAILER,
	HTTP_CHUNK_END,
};

struct http_chunked {
	struct http_in *in;
	enum http_coding coding;
	enum http_chunked_state state;
	uint64_t chunk_left;
	uint64_t bytes;	    /* decoded so far, including the whole current chunk */
	uint64_t bytes_max; /* more: -EFBIG */
	/* The chain of signatures. */
	struct hmac_key key;
	struct sha256 sum; /* of the current chunk, or of the trailers */
	char timestamp[17];
	char scope[128];
	char previous[64]; /* signature in hex; at first the seed's */
	char claimed[64];  /* from the current chunk's head */
	bool closed;	   /* the trailers' signature has been read: it is the last trailer */
	/* "name:value\n" for each trailer, names in lower case. */
	uint32_t trailer_count;
	uint32_t trailer_bytes;
	char trailers[LIMIT_HTTP_TRAILER_BYTES_MAX];
};

/* signing is NULL for the transfer coding, and its strings are copied. */
void http_chunked_init(struct http_chunked *chunked, enum http_coding coding, struct http_in *in,
	const struct s3_chunk_signing *signing, uint64_t bytes_max);
/* 1 to len decoded bytes, 0 at the verified end. -EPROTO: malformed, -EBADMSG: a signature is
 * wrong, -EFBIG: longer than bytes_max, -EPIPE: cut off; or the receiver's own. */
int http_chunked_read(struct http_chunked *chunked, void *dst, size_t len, enum http_want want,
	size_t *ret_bytes);
/* After the end: the trailer's value, or empty. */
struct slice http_chunked_trailer(const struct http_chunked *chunked, struct slice name);

/* ---- Heads (http/head_dp.c). ---- */

/* How far a head has been scanned, so that no byte is scanned twice. Zero it for each head. */
struct http_scan {
	uint32_t line;	  /* start of the current line */
	uint32_t scanned; /* bytes before this are scanned, and end no line after line */
};
/* Finds the end of a head. Its length with the empty line, or -EAGAIN: not there yet; -EPROTO: a
 * lone LF, or a folded line. */
int http_head_scan(struct http_scan *scan, const char *data, uint32_t len);

struct http_head {
	llhttp_t parser;
	struct slice target; /* as sent */
	struct slice path;
	struct slice query;
	struct slice authority; /* of an absolute target */
	struct slice host;
	struct slice expect;
	struct slice decoded_length; /* x-amz-decoded-content-length */
	struct slice content_sha256;
	enum s3_method method;
	struct slice method_text;
	uint64_t content_length; /* when has_length */
	uint32_t host_count;
	bool has_length;
	bool has_transfer_coding;
	bool chunked;
	bool http_1_0;
	bool keep_alive;
	bool asterisk; /* OPTIONS * */
	uint32_t header_count;
	struct s3_header headers[LIMIT_HTTP_HEADERS_MAX + HTTP_VIA_HEADERS];
};
/* Parses and checks one whole head (as found by scan). 0, or the status to refuse it with. The
 * slices point into data. It takes HTTP_VIA_HEADERS more than a client may send: the caller
 * counts. */
uint32_t http_head_parse(struct http_head *head, const char *data, uint32_t len);

/* ---- A connection. ---- */

struct http_conn;

struct http_body {
	struct s3_body body;
	struct flow_source source;
	struct http_conn *conn;
	bool opened;
	bool expect; /* 100 Continue is awaited */
	bool chunked;
	bool aws;
	bool ended;	    /* it has been received completely */
	bool failed;	    /* its end on the wire is no longer known */
	uint64_t raw_left;  /* when not chunked: bytes still on the wire */
	uint64_t decoded;   /* decoded bytes given out */
	uint64_t announced; /* decoded length, UINT64_MAX when not known */
	struct http_in aws_in;
	struct http_chunked transfer;
	struct http_chunked stream; /* aws-chunked */
	char aws_data[2 * LIMIT_HTTP_CHUNK_HEAD_BYTES_MAX];
};
/* Sets up for the request in conn->head. 0, or the status to refuse it with. */
uint32_t http_body_init(struct http_body *body, struct http_conn *conn);
/* Whether the rest of it is small enough to be skipped, so that the connection can go on. */
bool http_body_can_drain(const struct http_body *body);
int http_body_drain(struct http_body *body);

struct http_reply {
	struct s3_reply reply;
	struct flow_sink sink;
	struct http_conn *conn;
	bool head_sent;
	bool no_body;	      /* HEAD, or a status that has none */
	bool outcome_unknown; /* withheld: a write may have been done */
	uint64_t bytes_left;  /* of the announced body */
	uint32_t out_len;
};
void http_reply_init(struct http_reply *reply, struct http_conn *conn);
/* Sends the head if it has not been sent. */
int http_reply_flush(struct http_reply *reply);

/* Requests that have ended keep the memory of at most this many, of about 45 KiB, for others. */
#define HTTP_SPARE_MAX 64u

/* The first bytes of a request: not awaited yet, awaited without a fiber, or there (or the end). */
enum http_first { HTTP_FIRST_NONE, HTTP_FIRST_AWAITED, HTTP_FIRST_DONE };

/* All that a connection has while it waits for a request: its window. Requests use the memory of
 * struct http_conn, which the reactor's connections share: the one that was used last is still in
 * the processor's cache. */
#define FRONT_HTTP_MAGIC 0x477bc045u
struct front_http {
	uint32_t magic; /* until it is freed */
	const struct front_http_opts *opts;
	struct net_stream *stream;
	enum http_first first;
	int first_error;
	size_t first_bytes;
	char data[HTTP_IN_BYTES];
};

/* Those of a connection from the first byte of a request on, until it waits again. */
#define HTTP_CONN_MAGIC 0x477bc044u
struct http_conn {
	uint32_t magic; /* until it is freed */
	const struct front_http_opts *opts;
	struct front_http *http;
	struct net_stream *stream;
	bool close_after;	   /* the current answer is the last */
	uint64_t recv_deadline_ns; /* of every receive until it is set again */
	struct http_in in;
	struct http_head head;
	struct http_body body;
	struct http_reply reply;
	struct s3_request request;
	uint64_t ended_ns;	       /* when the client was first seen to have ended its side */
	char via_peer[VIA_PEER_BYTES]; /* of a request that a gateway passed on */
	char out[HTTP_OUT_BYTES];
};

/* Checks a connection where s3 calls back: its body, its answer. */
static inline void http_conn_check(const struct http_conn *conn)
{
	CHECK(conn->magic == HTTP_CONN_MAGIC);
}

/* The time by which so many bytes of a body must have moved: a body may be slow to start, but must
 * keep a minimum rate. */
uint64_t http_deadline_ns(const struct http_conn *conn, uint64_t bytes);
/* The store may have had another owner before this answer leaves: true when the answer says
 * something about the store. It is broken then, and replaced by 503 if nothing of it was sent. */
bool http_reply_late(struct http_reply *reply) __attribute__((cold));
/* Answers with an S3 error of this status. */
int http_refuse(struct http_conn *conn, uint32_t status);
/* Answers 503 OutcomeUnknown. */
int http_refuse_unknown(struct http_conn *conn);
const char *http_reason(uint32_t status);

/* A thread's state for its connections. */
struct http_thread {
	bool ready;
	struct prng prng;
	uint64_t second;
	/* "Server: …\r\nDate: …\r\nx-amz-id-2: …\r\nx-amz-request-id: " */
	uint32_t common_len;
	uint32_t date_at;
	char common[192];
	char host_id[S3_HOST_ID_LEN + 1];
};
struct http_thread *http_thread(void);

#endif
