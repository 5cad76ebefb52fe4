/* cli/admin_call.c: calls the admin API for `user` and `admin`, and prints the output that they
 * share. */
#include "admin_call.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec/codec.h"

#define ANSWER_BYTES_MAX (64 * MIB)
#define NO_ADMIN                                                                      \
	"nebulaio: %s: the answer is not from an admin interface; set --endpoint or " \
	"NEBULAIO_ADMIN_ENDPOINT to the server's admin.address\n"

enum { OWN_ACCOUNT = REMOTE_OWN, OWN_ENDPOINT, OWN_NO_KEY };

static const struct option OPTIONS[] = {
	{"account", required_argument, NULL, OWN_ACCOUNT},
	{"endpoint", required_argument, NULL, OWN_ENDPOINT},
	{"no-key", no_argument, NULL, OWN_NO_KEY},
	{"access-key", required_argument, NULL, REMOTE_ACCESS},
	{"secret-key", required_argument, NULL, REMOTE_SECRET},
	{"profile", required_argument, NULL, REMOTE_PROFILE},
	{"json", no_argument, NULL, REMOTE_JSON},
	{0},
};

static int options_read(struct admin *admin, int argc, char **argv)
{
	const char *endpoint = NULL;
	int option, ret;

	remote_defaults(&admin->opts);
	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == OWN_ACCOUNT) {
			admin->account = optarg;
		} else if (option == OWN_ENDPOINT) {
			endpoint = optarg;
		} else if (option == OWN_NO_KEY && admin->takes_no_key) {
			admin->no_key = true;
		} else {
			ret = remote_option(admin->command, &admin->opts, option, argv);
			if (ret)
				return ret;
		}
	}
	admin->opts.endpoints = endpoint ? endpoint : admin->opts.admin_endpoint;
	admin->opts.transport = NEB_HTTP;
	return CLI_OK;
}

int admin_run(const struct admin_verbs *verbs, int argc, char **argv)
{
	const struct cli_command *command = verbs->command;
	struct admin admin = {
		.command = command, .account = "root", .takes_no_key = verbs->takes_no_key};
	const struct admin_verb *verb = NULL;
	int ret = options_read(&admin, argc, argv), count;

	if (ret)
		return ret;
	if (optind == argc)
		return cli_usage_error(command, "name what to do");
	for (size_t i = 0; i < verbs->count; i++)
		if (strcmp(argv[optind], verbs->verbs[i].name) == 0)
			verb = &verbs->verbs[i];
	if (!verb)
		return cli_usage_error(command, "'%s' is not one of its commands", argv[optind]);
	count = argc - optind - 1;
	if (count < verb->arguments_min || count > verb->arguments_max)
		return cli_usage_error(command, "%s: wrong number of arguments", verb->name);
	for (int i = optind + 1; i < argc; i++)
		if (!*argv[i])
			return cli_usage_error(command, "%s: an empty name", verb->name);
	if (!*admin.account)
		return cli_usage_error(command, "--account: an empty name");
	ret = remote_open(&admin.opts, &admin.client);
	if (ret)
		return ret;
	ret = verb->run(&admin, count, argv + optind + 1);
	neb_client_close(admin.client);
	return ret;
}

/* ---- Requests. ---- */

/* Prints the API's refusal, which the client passes on unchanged. */
static int refused(
	const char *endpoints, const struct admin_request *request, struct neb_result *result)
{
	const char *last = request->parts[0];
	json_t *json;

	for (size_t i = 0; request->parts[i]; i++)
		last = request->parts[i];
	if (!result->status)
		return remote_failed(last, result);
	json = json_loads(result->message, 0, NULL);
	if (!json) {
		fprintf(stderr, NO_ADMIN, endpoints);
		return CLI_FAILED;
	}
	snprintf(result->code, sizeof(result->code), "%s", admin_text(json, "code"));
	snprintf(result->message, sizeof(result->message), "%s", admin_text(json, "error"));
	json_decref(json);
	if (request->may_be_missing && result->status == 404)
		return CLI_NOT_FOUND;
	return remote_failed(last, result);
}

static int perform(struct admin *admin, const struct admin_request *request, const char *path,
	struct neb_iov *into, struct neb_result *ret_result)
{
	const struct neb_header header = {"content-type", "application/json"};
	char *text = request->body ? json_dumps(request->body, JSON_COMPACT) : NULL;
	struct neb_iov body = {text, text ? strlen(text) : 0};
	struct neb_request wire = {.op = NEB_S3,
		.method = request->method,
		.path = path,
		.headers = &header,
		.header_count = text != NULL,
		.body = &body,
		.body_count = text != NULL,
		.into = into,
		.into_count = 1};
	int ret = neb_perform(admin->client, &wire, ret_result);

	free(text);
	return ret;
}

int admin_request(struct admin *admin, const struct admin_request *request, json_t **ret_json)
{
	struct neb_iov into = {malloc(ANSWER_BYTES_MAX), ANSWER_BYTES_MAX};
	struct neb_result result = {0};
	json_t *json = NULL;
	struct buf path;
	int ret;

	if (ret_json)
		*ret_json = NULL;
	/* A server treats an encoded slash as a slash, so no name can have one. */
	for (size_t i = 0; request->parts[i]; i++)
		if (strchr(request->parts[i], '/')) {
			free(into.data);
			return cli_usage_error(admin->command, "'%s': a name must not contain '/'",
				request->parts[i]);
		}
	buf_init(&path, 8192);
	buf_put_str(&path, "/admin/v1");
	for (size_t i = 0; request->parts[i]; i++) {
		buf_put_str(&path, "/");
		uri_encode(slice_str(request->parts[i]), 0, &path);
	}
	buf_put(&path, "", 1);
	if (path.failed || !into.data) {
		fprintf(stderr, "nebulaio: a name is too long, or no memory is left\n");
		ret = CLI_FAILED;
	} else if (perform(admin, request, path.data, &into, &result)) {
		ret = refused(admin->opts.endpoints, request, &result);
	} else {
		json = result.bytes ? json_loadb(into.data, result.bytes, 0, NULL) : NULL;
		ret = result.bytes && !json ? CLI_FAILED : CLI_OK;
		if (ret)
			fprintf(stderr, NO_ADMIN, admin->opts.endpoints);
	}
	buf_free(&path);
	free(into.data);
	if (ret_json)
		*ret_json = json;
	else
		json_decref(json);
	return ret;
}

/* ---- Output. ---- */

int admin_remove(struct admin *admin, const char *verb, const struct admin_request *request,
	int count, char **arguments)
{
	struct admin_request remove = *request;
	json_t *body = NULL;
	int ret;

	if (count > 1 && strcmp(arguments[1], "force") != 0)
		return cli_usage_error(
			admin->command, "%s: '%s' is not \"force\"", verb, arguments[1]);
	if (count > 1)
		body = json_pack("{s:b}", "force", true);
	remove.method = "DELETE";
	remove.body = body;
	ret = admin_request(admin, &remove, NULL);
	json_decref(body);
	return ret;
}

const char *admin_text(const json_t *json, const char *member)
{
	const char *text = json_string_value(json_object_get(json, member));

	return text ? text : "";
}

const char *admin_shown(const json_t *json, const char *member)
{
	return remote_text(admin_text(json, member));
}

void admin_print_json(const json_t *json)
{
	json_dumpf(json, stdout, JSON_ENCODE_ANY);
	putchar('\n');
}

int admin_key_make(struct admin *admin, const char *const *parts, json_t *also)
{
	struct admin_request request = {.method = "POST"};
	json_t *body = json_object(), *key;
	int ret;

	memcpy(request.parts, parts, sizeof(request.parts));
	request.body = body;
	ret = admin_request(admin, &request, &key);
	json_decref(body);
	if (ret)
		return ret;
	if (also)
		json_object_update(key, also);
	if (admin->opts.json)
		admin_print_json(key);
	else
		printf("access key  %s\nsecret key  %s\n", admin_text(key, "access_key"),
			admin_text(key, "secret_key"));
	json_decref(key);
	return CLI_OK;
}

void admin_print_keys(const struct admin *admin, const json_t *holder)
{
	const json_t *key;
	size_t idx;

	json_array_foreach(json_object_get(holder, "keys"), idx, key)
	{
		time_t made = (time_t)(json_integer_value(json_object_get(key, "created")) / 1000);
		char when[32];
		struct tm tm;

		if (admin->opts.json) {
			admin_print_json(key);
			continue;
		}
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&made, &tm));
		printf("%s  %-8s  %s\n", admin_text(key, "access_key"),
			json_is_true(json_object_get(key, "active")) ? "active" : "disabled", when);
	}
}
