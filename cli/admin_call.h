/* cli/admin_call.h: requests to the server's admin API (docs/spec/admin.md), JSON both ways. */
#ifndef CLI_ADMIN_CALL_H
#define CLI_ADMIN_CALL_H

#include <jansson.h>

#include "base/base.h"
#include "remote.h"

#define ADMIN_PARTS_MAX 6u

struct admin {
	const struct cli_command *command;
	struct remote_opts opts;
	struct neb_client *client;
	const char *account;	   /* a number, or "root" */
	bool no_key, takes_no_key; /* given; allowed */
};

/* One verb of the command; its arguments are the words after the verb. Returns an exit code. */
struct admin_verb {
	const char *name;
	int arguments_min, arguments_max;
	int (*run)(struct admin *admin, int count, char **arguments);
};

#define ADMIN_USAGE                                                                         \
	"  --account NUMBER   the account (default root: the server's own account)\n"       \
	"  --endpoint URL     the admin interface (NEBULAIO_ADMIN_ENDPOINT, `admin` in a\n" \
	"                     profile; default http://127.0.0.1:9001)\n"                    \
	"  --access-key KEY   the server's root (NEBULAIO_ACCESS_KEY, AWS_ACCESS_KEY_ID)\n" \
	"  --secret-key KEY   (NEBULAIO_SECRET_KEY, AWS_SECRET_ACCESS_KEY)\n"               \
	"  --profile NAME     of ~/.config/nebulaio/config (NEBULAIO_PROFILE; default)\n"   \
	"      --json         print JSON\n"

/* The verbs of a command. */
struct admin_verbs {
	const struct cli_command *command;
	const struct admin_verb *verbs;
	size_t count;
	bool takes_no_key; /* it has the option --no-key */
};
/* Reads the options, finds the verb, connects and runs it. */
int admin_run(const struct admin_verbs *verbs, int argc, char **argv);

struct admin_request {
	const char *method;
	const char *parts[ADMIN_PARTS_MAX + 1]; /* behind /admin/v1/, ended by NULL */
	const json_t *body;			/* or NULL */
	bool may_be_missing;			/* a 404 prints no message */
};
/* An exit code; prints why. ret_json may be NULL; *ret_json is NULL when the answer is empty. */
int admin_request(struct admin *admin, const struct admin_request *request, json_t **ret_json);

/* Removes what parts name. arguments: its name, and perhaps "force". */
int admin_remove(struct admin *admin, const char *verb, const struct admin_request *request,
	int count, char **arguments);

/* A member's text; "" without one. */
const char *admin_text(const json_t *json, const char *member);
/* The same as remote_text() shows it. */
const char *admin_shown(const json_t *json, const char *member);
/* One JSON value on a line of its own. */
void admin_print_json(const json_t *json);
/* Makes a key and prints it; parts are the path of the "keys". */
int admin_key_make(struct admin *admin, const char *const *parts, json_t *also);
/* `KEY  active  TIME` for each of a user's or an account's keys, or JSON. */
void admin_print_keys(const struct admin *admin, const json_t *holder);

#endif
