/* cli/flow_spec.c: the text forms of `nebulaio flow`: the source with what it takes, rule files,
 * names of bodies. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "flow_cmd.h"

#define RULE_LINE_BYTES_MAX 512u

static bool refuse(char why[FLOW_WHY_BYTES], const char *what, const char *text)
{
	snprintf(why, FLOW_WHY_BYTES, "%s: '%.100s'", what, text);
	return false;
}

static bool number_parse(const char *text, uint32_t max, uint32_t *ret_number)
{
	char *end;
	unsigned long number;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || number > max)
		return false;
	*ret_number = (uint32_t)number;
	return true;
}

/* Parses "9999" or "9000-9999". */
static bool ports_parse(const char *text, struct xp_rule *rule)
{
	char first[16];
	const char *dash = strchr(text, '-');
	uint32_t min, max;

	snprintf(first, sizeof(first), "%.*s", dash ? (int)(dash - text) : 15, text);
	if (!number_parse(first, 65535, &min))
		return false;
	max = min;
	if (dash && !number_parse(dash + 1, 65535, &max))
		return false;
	if (min == 0 || max < min)
		return false;
	rule->port_min = (uint16_t)min;
	rule->port_max = (uint16_t)max;
	return true;
}

/* Parses "10.0.0.0/8", "2001:db8::1". */
static bool prefix_parse(const char *text, struct xp_rule *rule, uint8_t addr[16], uint8_t *bits)
{
	char host[64];
	const char *slash = strchr(text, '/');
	uint8_t family = strchr(text, ':') ? 6 : 4;
	uint32_t count = family == 6 ? 128 : 32;

	snprintf(host, sizeof(host), "%.*s", slash ? (int)(slash - text) : 63, text);
	if (inet_pton(family == 6 ? AF_INET6 : AF_INET, host, addr) != 1)
		return false;
	if (slash && !number_parse(slash + 1, count, &count))
		return false;
	if (rule->family && rule->family != family)
		return false;
	rule->family = family;
	*bits = (uint8_t)count;
	return true;
}

static bool vlan_parse(const char *text, struct xp_rule *rule)
{
	uint32_t vlan = FILTER_VLAN_NONE;

	if (strcmp(text, "none") && !number_parse(text, 4094, &vlan))
		return false;
	rule->vlan_set = true;
	rule->vlan = (uint16_t)vlan;
	return true;
}

/* Parses one "name=value" of a rule's match. *ret_known: the name is known. */
static bool match_parse(const char *name, const char *value, struct xp_rule *rule, bool *ret_known)
{
	uint32_t number = 0;

	*ret_known = true;
	if (!strcmp(name, "udp") || !strcmp(name, "tcp")) {
		rule->protocol = name[0] == 'u' ? IPPROTO_UDP : IPPROTO_TCP;
		return !strcmp(value, "any") || ports_parse(value, rule);
	}
	if (!strcmp(name, "proto") && number_parse(value, 255, &number) && number) {
		rule->protocol = (uint8_t)number;
		return true;
	}
	if (!strcmp(name, "src"))
		return prefix_parse(value, rule, rule->source, &rule->source_bits);
	if (!strcmp(name, "dst"))
		return prefix_parse(value, rule, rule->dest, &rule->dest_bits);
	if (!strcmp(name, "vlan"))
		return vlan_parse(value, rule);
	*ret_known = !strcmp(name, "proto");
	return false;
}

static bool mode_parse(const char *value, struct xp_opts *port)
{
	static const char *const NAMES[XP_MODE_COUNT] = {"zerocopy", "native", "generic"};

	for (uint32_t i = 0; i < XP_MODE_COUNT; i++) {
		if (strcmp(value, NAMES[i]))
			continue;
		port->mode_best = (enum xp_mode)i;
		port->mode_only = true;
		return true;
	}
	return false;
}

/* Parses one "name=value" that sets how to receive from the interface. */
static bool port_parse(const char *name, const char *value, struct xp_opts *port, bool *ret_known)
{
	*ret_known = true;
	if (!strcmp(name, "queue"))
		return number_parse(value, XP_QUEUES_MAX - 1, &port->queue_first);
	if (!strcmp(name, "queues"))
		return number_parse(value, XP_QUEUES_MAX, &port->queue_count) && port->queue_count;
	if (!strcmp(name, "ring"))
		return number_parse(value, XP_RING_ENTRIES_MAX, &port->ring_entries) &&
		       port->ring_entries >= 64 && !(port->ring_entries & (port->ring_entries - 1));
	if (!strcmp(name, "busy-poll"))
		return number_parse(value, XP_BUSY_POLL_US_MAX, &port->busy_poll_us);
	if (!strcmp(name, "busy-budget"))
		return number_parse(value, UINT16_MAX, &port->busy_poll_budget) &&
		       port->busy_poll_budget;
	if (!strcmp(name, "mode"))
		return mode_parse(value, port);
	*ret_known = false;
	return false;
}

bool flow_spec_parse(const char *text, struct flow_spec *ret_spec, char why[FLOW_WHY_BYTES])
{
	struct flow_spec spec = {0};
	struct xp_rule rule = {.action = FILTER_REDIRECT};
	char copy[512], *rest = copy, *word;
	bool matches = false;

	if (strncmp(text, "xdp:", 4) || strlen(text) >= sizeof(copy))
		return refuse(why, "the source is not of the form xdp:IFACE,…", text);
	snprintf(copy, sizeof(copy), "%s", text + 4);
	word = strsep(&rest, ",");
	if (!*word || strlen(word) > 15)
		return refuse(why, "no interface name", text);
	snprintf(spec.interface, sizeof(spec.interface), "%s", word);
	while ((word = strsep(&rest, ",")) != NULL) {
		char *value = strchr(word, '=');
		bool known, good;

		if (!strcmp(word, "all")) {
			matches = true;
			continue;
		}
		if (!value)
			return refuse(why, "not of the form name=value", word);
		*value++ = '\0';
		good = port_parse(word, value, &spec.port, &known);
		if (!known && !strcmp(word, "time")) {
			known = true;
			spec.kernel_time = !strcmp(value, "kernel");
			spec.hardware_time = !strcmp(value, "hardware");
			good = spec.kernel_time || spec.hardware_time;
		} else if (!known) {
			good = match_parse(word, value, &rule, &known);
			matches |= good;
		}
		if (!good)
			return refuse(why, known ? "no such value" : "no such option",
				known ? value : word);
	}
	spec.rules[0] = rule;
	spec.rule_count = matches;
	*ret_spec = spec;
	return true;
}

static bool action_parse(const char *word, struct xp_rule *rule)
{
	static const char *const NAMES[] = {
		[FILTER_COUNT] = "count",
		[FILTER_DROP] = "drop",
		[FILTER_PASS] = "pass",
		[FILTER_REDIRECT] = "redirect",
	};

	for (uint32_t i = 0; i < ARRAY_LEN(NAMES); i++) {
		if (!strcmp(word, NAMES[i])) {
			rule->action = (enum filter_action)i;
			return true;
		}
	}
	return false;
}

static bool rule_parse(char *line, struct xp_rule *ret_rule, char why[FLOW_WHY_BYTES])
{
	struct xp_rule rule = {0};
	char *word;
	bool first = true;

	while ((word = strsep(&line, " \t,\n")) != NULL) {
		char *value;
		bool known, good;

		if (!*word)
			continue;
		if (first) {
			if (!action_parse(word, &rule))
				return refuse(why,
					"a rule must begin with count, drop, pass or redirect",
					word);
			first = false;
			continue;
		}
		value = strchr(word, '=');
		if (!value)
			return refuse(why, "not of the form name=value", word);
		*value++ = '\0';
		good = match_parse(word, value, &rule, &known);
		if (!good)
			return refuse(why, known ? "no such value" : "no such match",
				known ? value : word);
	}
	*ret_rule = rule;
	return true;
}

bool flow_rules_load(const char *path, struct flow_spec *spec, char why[FLOW_WHY_BYTES])
{
	struct xp_rule rules[FILTER_RULES_MAX];
	char line[RULE_LINE_BYTES_MAX], reason[FLOW_WHY_BYTES];
	uint32_t count = 0, number = 0;
	FILE *file = fopen(path, "re");
	bool good = true;

	if (!file)
		return refuse(why, strerror(errno), path);
	while (good && fgets(line, sizeof(line), file)) {
		number++;
		line[strcspn(line, "#\n")] = '\0';
		if (line[strspn(line, " \t")] == '\0')
			continue;
		good = count < FILTER_RULES_MAX ? rule_parse(line, &rules[count], reason)
						: refuse(reason, "too many rules", path);
		count++;
	}
	fclose(file);
	if (!good) {
		snprintf(why, FLOW_WHY_BYTES, "%.64s:%u: %.160s", path, number, reason);
		return false;
	}
	memcpy(spec->rules, rules, count * sizeof(*rules));
	spec->rule_count = count;
	return true;
}

bool flow_name(const char *pattern, uint64_t real_ns, uint32_t number, char *out, size_t out_bytes)
{
	time_t seconds = (time_t)(real_ns / NS_PER_S);
	char expanded[1024], one[64];
	struct tm utc;
	size_t len = 0;

	gmtime_r(&seconds, &utc);
	for (const char *at = pattern; *at; at++) {
		bool time = at[0] == '%' && at[1] == 't';
		bool count = at[0] == '%' && at[1] == 'n';

		if (time)
			snprintf(one, sizeof(one), "%%Y%%m%%dT%%H%%M%%SZ");
		else if (count)
			snprintf(one, sizeof(one), "%u", number);
		else if (at[0] == '%' && at[1])
			snprintf(one, sizeof(one), "%.2s", at);
		else
			snprintf(one, sizeof(one), "%c", *at);
		at += at[0] == '%' && at[1];
		if (len + strlen(one) >= sizeof(expanded))
			return false;
		memcpy(expanded + len, one, strlen(one) + 1);
		len += strlen(one);
	}
	return len > 0 && strftime(out, out_bytes, expanded, &utc) > 0;
}

bool flow_name_counts(const char *pattern)
{
	const char *at = pattern;

	while ((at = strchr(at, '%')) && at[1] && at[1] != 'n')
		at += 2;
	return at && at[1];
}

uint32_t flow_number_free(uint32_t number, flow_number_taken_fn *taken, void *arg)
{
	uint64_t low = number, high, step = 1;

	if (!taken(arg, number))
		return number;
	for (high = low + step; high < UINT32_MAX && taken(arg, (uint32_t)high); high += step) {
		low = high;
		step *= 2;
	}
	high = MIN(high, UINT32_MAX);
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (taken(arg, (uint32_t)middle))
			low = middle;
		else
			high = middle;
	}
	return (uint32_t)high;
}
