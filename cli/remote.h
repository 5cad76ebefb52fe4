/* cli/remote.h: shared by the commands that talk to a server: its address, the keys, s3://
 * addresses, and how a result becomes a message and an exit code. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli.h"
#include "nebulaio/nebulaio.h"

/* The options that every such command has; in usage texts as REMOTE_USAGE. */
struct remote_opts {
	const char *endpoints;
	const char *admin_endpoint; /* address of the admin interface */
	const char *access_key;
	const char *secret_key;
	const char *region;
	const char *device_name;
	enum neb_transport transport;
	bool verbose; /* print each request's transport on standard error */
	bool json;
	bool encrypted;		    /* sessions must be encrypted */
	uint64_t request_timeout_s; /* without an answer; 0: the client's preset */
	uint64_t connect_timeout_s; /* of a session or a connection; 0: the client's preset */
	int profile_failed; /* the exit code for an unreadable profile; the reason has been printed
			     */
};

#define REMOTE_USAGE                                                                               \
	"  --endpoint URLS    servers in order of preference: rdma://HOST:PORT,http://HOST:PORT\n" \
	"                     (NEBULAIO_ENDPOINT; else 127.0.0.1, ports 9100 and 9000)\n"          \
	"  --transport WAY    auto (RDMA, else HTTP; default), rdma, http, or strict (RDMA, and\n" \
	"                     an error at once if it fails)\n"                                     \
	"  --device NAME      RDMA device (NEBULAIO_RDMA_DEVICE_NAME); default: the card that\n"   \
	"                     leads to the server; for a server on this host: simulated\n"         \
	"  --encrypted        over RDMA: encrypt everything; refuse a connection that cannot\n"    \
	"                     (endpoints with ?rdma or ?rdma=hipobj: HTTP alone)\n"                \
	"  --request-timeout S  seconds without an answer that end a request\n"                    \
	"                     (NEBULAIO_REQUEST_TIMEOUT_S; 30)\n"                                  \
	"  --connect-timeout S  seconds that a session or a connection may take to begin,\n"       \
	"                     after which the next endpoint is tried\n"                            \
	"                     (NEBULAIO_CONNECT_TIMEOUT_S; 2)\n"                                   \
	"  --access-key KEY   (NEBULAIO_ACCESS_KEY, AWS_ACCESS_KEY_ID)\n"                          \
	"  --secret-key KEY   (NEBULAIO_SECRET_KEY, AWS_SECRET_ACCESS_KEY)\n"                      \
	"                     temporary keys: NEBULAIO_SESSION_TOKEN, AWS_SESSION_TOKEN too\n"     \
	"  --profile NAME     of ~/.config/nebulaio/config (NEBULAIO_PROFILE; default)\n"          \
	"  -v, --verbose      print which transport each request used\n"                           \
	"      --json         print JSON, one object a line\n"

/* getopt_long's short options and the long ones, to be followed by a command's own. */
#define REMOTE_SHORT "v"
enum {
	REMOTE_ENDPOINT = 256,
	REMOTE_TRANSPORT,
	REMOTE_DEVICE,
	REMOTE_ACCESS,
	REMOTE_SECRET,
	REMOTE_JSON,
	REMOTE_PROFILE,
	REMOTE_ENCRYPTED,
	REMOTE_REQUEST_TIMEOUT,
	REMOTE_CONNECT_TIMEOUT,
	REMOTE_OWN
};
#define REMOTE_OPTIONS                                                                \
	{"endpoint", required_argument, NULL, REMOTE_ENDPOINT},                       \
		{"transport", required_argument, NULL, REMOTE_TRANSPORT},             \
		{"device", required_argument, NULL, REMOTE_DEVICE},                   \
		{"access-key", required_argument, NULL, REMOTE_ACCESS},               \
		{"profile", required_argument, NULL, REMOTE_PROFILE},                 \
		{"secret-key", required_argument, NULL, REMOTE_SECRET},               \
		{"encrypted", no_argument, NULL, REMOTE_ENCRYPTED},                   \
		{"request-timeout", required_argument, NULL, REMOTE_REQUEST_TIMEOUT}, \
		{"connect-timeout", required_argument, NULL, REMOTE_CONNECT_TIMEOUT}, \
		{"json", no_argument, NULL, REMOTE_JSON},                             \
	{                                                                             \
		"verbose", no_argument, NULL, 'v'                                     \
	}

/* Fills opts from the environment. */
void remote_defaults(struct remote_opts *opts);
/* Takes one option that getopt_long found. CLI_OK; CLI_USAGE, prints why. For '?' too. */
int remote_option(
	const struct cli_command *command, struct remote_opts *opts, int option, char **argv);
/* Takes all options of a command that has no others; then optind is the first operand. CLI_OK;
 * CLI_USAGE, prints why. */
int remote_options(
	const struct cli_command *command, int argc, char **argv, struct remote_opts *opts);
/* Connects as the options say. An exit code; prints why. */
int remote_open(const struct remote_opts *opts, struct neb_client **ret_client);

/* Prints the error of a failed request about `what`, and a remedy; returns the exit code. */
int remote_failed(const char *what, const struct neb_result *result);
/* With --verbose, prints the request's transport, and why it was not RDMA. */
void remote_report(
	const struct remote_opts *opts, const char *what, const struct neb_result *result);

/* Splits "s3://bucket/key" inside text, which it changes; key may be empty. False: it is no such
 * address. */
bool remote_parse(char *text, const char **ret_bucket, const char **ret_key);
bool remote_is_url(const char *text);

/* A name that is safe on a terminal: control characters, which could move the cursor or do worse,
 * are written as \xNN. Returns text itself, or a buffer of this thread that lives for the next few
 * calls. */
const char *remote_text(const char *text);
/* Writes "1.5 MiB". */
#define REMOTE_S(count) ((count) == 1 ? "" : "s")
const char *remote_bytes_text(uint64_t bytes, char buf[32]);
/* Writes text as a JSON string with its quotes. */
void remote_print_json(FILE *out, const char *text);

#endif
