/* server/config_flows.c: the list `flows:` of the configuration file, event by event: the flows
 * that run with the server. The code that starts a flow checks its texts. */
#include "server/config_priv.h"

#define NAME_ALPHABET "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

static int flow_begin(struct config_flows_walk *walk, const char *where)
{
	struct config *config = walk->config;

	if (config->flow_count == CONFIG_FLOWS_MAX)
		return config_refuse(
			walk->error, "%s: more than %u flows", where, CONFIG_FLOWS_MAX);
	config->flows[config->flow_count] = (struct config_flow){0};
	walk->level = CONFIG_FLOWS_ONE;
	walk->key[0] = '\0';
	return 0;
}

/* "roll-bytes: 1G" becomes "--roll-bytes=1G"; "force: true" becomes "--force". */
static int option_take(struct config_flows_walk *walk, const char *value, const char *where)
{
	static const char *const OURS[] = {"from", "to", "json", "quiet", "status-fd"};
	struct config_flow *flow = &walk->config->flows[walk->config->flow_count];
	size_t len = strlen(flow->options);
	int n;

	for (size_t i = 0; i < ARRAY_LEN(OURS); i++) {
		if (!strcmp(walk->key, OURS[i]))
			return config_refuse(walk->error,
				"%s: flows: '%s' is not an option of a flow", where, walk->key);
	}
	if (walk->key[strspn(walk->key, NAME_ALPHABET)] || strchr(value, '\n'))
		return config_refuse(walk->error, "%s: flows: '%s' is no option", where, walk->key);
	if (!strcmp(value, "false"))
		return 0;
	n = snprintf(flow->options + len, sizeof(flow->options) - len, "--%s%s%s\n", walk->key,
		strcmp(value, "true") ? "=" : "", strcmp(value, "true") ? value : "");
	return n < 0 || (size_t)n >= sizeof(flow->options) - len
		       ? config_refuse(walk->error, "%s: flows: too many options", where)
		       : 0;
}

static int field_take(struct config_flows_walk *walk, const char *value, const char *where)
{
	struct config_flow *flow = &walk->config->flows[walk->config->flow_count];
	const struct {
		const char *key;
		char *at;
		size_t bytes;
	} FIELDS[] = {{"name", flow->name, sizeof(flow->name)},
		{"from", flow->from, sizeof(flow->from)}, {"to", flow->to, sizeof(flow->to)}};

	if (!strcmp(walk->key, "restart")) {
		flow->always = !strcmp(value, "always");
		return flow->always || !strcmp(value, "failure")
			       ? 0
			       : config_refuse(walk->error,
					 "%s: flows: restart: '%s' is neither failure nor always",
					 where, value);
	}
	for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++) {
		if (strcmp(walk->key, FIELDS[i].key))
			continue;
		return slice_copy_str(slice_str(value), FIELDS[i].at, FIELDS[i].bytes)
			       ? config_refuse(
					 walk->error, "%s: flows: %s is too long", where, walk->key)
			       : 0;
	}
	return config_refuse(walk->error,
		"%s: flows: no key '%s'; a flow has name, from, to, restart and options", where,
		walk->key);
}

static int flow_end(struct config_flows_walk *walk, const char *where)
{
	struct config *config = walk->config;
	const struct config_flow *flow = &config->flows[config->flow_count];

	if (!flow->name[0] || !flow->from[0] || !flow->to[0])
		return config_refuse(
			walk->error, "%s: flows: a flow needs a name, from and to", where);
	if (flow->name[strspn(flow->name, NAME_ALPHABET)])
		return config_refuse(walk->error,
			"%s: flows: the name '%s' may only have letters, digits, - and _", where,
			flow->name);
	for (uint32_t i = 0; i < config->flow_count; i++) {
		if (!strcmp(config->flows[i].name, flow->name))
			return config_refuse(walk->error, "%s: flows: two flows have the name '%s'",
				where, flow->name);
	}
	config->flow_count++;
	walk->level = CONFIG_FLOWS_LIST;
	return 0;
}

static int scalar(struct config_flows_walk *walk, const char *text, const char *where)
{
	int ret;

	if (walk->level == CONFIG_FLOWS_LIST)
		return config_refuse(walk->error,
			"%s: flows: each flow must be a mapping of name, from, to and options",
			where);
	if (!walk->key[0])
		return !*text || slice_copy_str(slice_str(text), walk->key, sizeof(walk->key))
			       ? config_refuse(
					 walk->error, "%s: flows: '%s' is not a key", where, text)
			       : 0;
	ret = walk->level == CONFIG_FLOWS_ONE ? field_take(walk, text, where)
					      : option_take(walk, text, where);
	walk->key[0] = '\0';
	return ret;
}

int config_flows_event(struct config_flows_walk *walk, const yaml_event_t *event, const char *where)
{
	const bool in_list = walk->level == CONFIG_FLOWS_LIST;

	if (event->type == YAML_SCALAR_EVENT)
		return scalar(walk, (const char *)event->data.scalar.value, where);
	if (event->type == YAML_MAPPING_START_EVENT && in_list)
		return flow_begin(walk, where);
	if (event->type == YAML_MAPPING_START_EVENT && walk->level == CONFIG_FLOWS_ONE &&
		!strcmp(walk->key, "options")) {
		walk->level = CONFIG_FLOWS_OPTIONS;
		walk->key[0] = '\0';
		return 0;
	}
	if (event->type == YAML_MAPPING_END_EVENT && walk->level == CONFIG_FLOWS_OPTIONS) {
		walk->level = CONFIG_FLOWS_ONE;
		return 0;
	}
	if (event->type == YAML_MAPPING_END_EVENT && walk->level == CONFIG_FLOWS_ONE)
		return flow_end(walk, where);
	if (event->type == YAML_SEQUENCE_END_EVENT && in_list) {
		walk->level = CONFIG_FLOWS_OUTSIDE;
		return 0;
	}
	return config_refuse(walk->error, "%s: flows: expected single values", where);
}
