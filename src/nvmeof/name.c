/* nvmeof/name.c: the text of a volume's name, nvmeof://HOST:PORT/NQN?OPTION=VALUE. */
#include "nvmeof/nvmeof_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The kernel's default, 600 s, would remove the block device below a server that could go on. */
#define CTRL_LOSS_NEVER (-1)
/* With the time until a loss is noticed, requests wait about as long as on a volume in RADOS. */
#define FAST_IO_FAIL_S 15u
#define RECONNECT_S    2u
#define KEEP_ALIVE_S   5u
#define SECONDS_MAX    86400u

struct parse {
	struct nvmeof_name *name;
	char *why;
	size_t why_cap;
};

__attribute__((format(printf, 2, 3))) static int wrong(
	const struct parse *parse, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(parse->why, parse->why_cap, fmt, args);
	va_end(args);
	return -EINVAL;
}

const char *nvmeof_transport_name(enum nvmeof_transport transport)
{
	return transport == NVMEOF_RDMA ? "rdma" : "tcp";
}

int nvmeof_transport_parse(struct slice text, enum nvmeof_transport *ret_transport)
{
	if (slice_eq(text, SLICE("rdma")))
		*ret_transport = NVMEOF_RDMA;
	else if (slice_eq(text, SLICE("tcp")))
		*ret_transport = NVMEOF_TCP;
	else
		return -EINVAL;
	return 0;
}

/* Visible ASCII without the bytes that end an option in the kernel's option string or a word of the
 * shell's, so that --show's commands are safe, too. */
static bool word_valid(struct slice word, const char *refused)
{
	for (size_t i = 0; i < word.len; i++)
		if (word.data[i] <= ' ' || word.data[i] > '~' || strchr(refused, word.data[i]))
			return false;
	return word.len > 0;
}

bool nvmeof_nqn_valid(struct slice nqn)
{
	return nqn.len < NVMEOF_NQN_BYTES && slice_starts(nqn, SLICE("nqn.")) &&
	       word_valid(nqn, ",/\"'`$\\;&|<>(){}*?[]!#~");
}

static bool id_valid(struct slice id)
{
	if (id.len != NVMEOF_ID_BYTES - 1)
		return false;
	for (size_t i = 0; i < id.len; i++)
		if (i == 8 || i == 13 || i == 18 || i == 23
				? id.data[i] != '-'
				: !strchr("0123456789abcdefABCDEF", id.data[i]))
			return false;
	return true;
}

/* "HOST", "HOST:PORT", "[V6]", "[V6]:PORT" */
static int address_take(struct parse *parse, struct slice text)
{
	struct nvmeof_name *name = parse->name;
	struct nvmeof_address *address = &name->addresses[name->address_count % NVMEOF_PATHS_MAX];
	struct slice host = text, port = SLICE_NONE;
	bool bracket = slice_starts(text, SLICE("["));
	uint64_t number = NVMEOF_PORT;

	if (bracket) {
		port = slice_from(text, 1);
		host = slice_split(&port, ']');
		if (!port.data || (port.len && port.data[0] != ':'))
			return wrong(parse, "'%.*s' is no address", SLICE_FMT(text));
		if (port.len)
			slice_split(&port, ':');
		else
			port = SLICE_NONE;
	} else {
		port = text;
		host = slice_split(&port, ':');
	}
	if (port.data && (slice_to_u64(port, &number) || !number || number > 65535))
		return wrong(parse, "'%.*s' is no port", SLICE_FMT(port));
	if (!word_valid(host, ",/\"'`$\\;&|<>(){}*?[]!#~@") ||
		slice_copy_str(host, address->host, sizeof(address->host)))
		return wrong(parse, "'%.*s' is no address", SLICE_FMT(text));
	if (name->address_count == NVMEOF_PATHS_MAX)
		return wrong(parse, "more than %u addresses", NVMEOF_PATHS_MAX);
	address->port = (uint16_t)number;
	name->address_count++;
	return 0;
}

static int addresses_take(struct parse *parse, struct slice text)
{
	while (text.data) {
		size_t len = 0;
		int ret;

		while (len < text.len && text.data[len] != ',' && text.data[len] != '+')
			len++;
		ret = address_take(parse, slice_to(text, len));
		if (ret)
			return ret;
		text = len < text.len ? slice_of(text.data + len + 1, text.len - len - 1)
				      : SLICE_NONE;
	}
	return 0;
}

static int text_take(struct parse *parse, struct slice key, struct slice value)
{
	struct nvmeof_name *name = parse->name;
	const struct {
		struct slice key;
		char *to;
		size_t cap;
		bool good;
	} TEXTS[] = {
		{SLICE("hostnqn"), name->host_nqn, sizeof(name->host_nqn), nvmeof_nqn_valid(value)},
		{SLICE("hostid"), name->host_id, sizeof(name->host_id), id_valid(value)},
		{SLICE("dhchap_secret_file"), name->secret_file, sizeof(name->secret_file),
			slice_starts(value, SLICE("/"))},
		{SLICE("dhchap_ctrl_secret_file"), name->controller_secret_file,
			sizeof(name->controller_secret_file), slice_starts(value, SLICE("/"))},
	};

	if (slice_eq(key, SLICE("transport")))
		return nvmeof_transport_parse(value, &name->transport)
			       ? wrong(parse, "transport=%.*s: it is rdma or tcp", SLICE_FMT(value))
			       : 0;
	for (uint32_t i = 0; i < ARRAY_LEN(TEXTS); i++)
		if (slice_eq(key, TEXTS[i].key))
			return TEXTS[i].good && !slice_copy_str(value, TEXTS[i].to, TEXTS[i].cap)
				       ? 0
				       : wrong(parse, "%.*s=%.*s: not a valid value",
						 SLICE_FMT(key), SLICE_FMT(value));
	return wrong(parse, "'%.*s' is no option", SLICE_FMT(key));
}

static int option_take(struct parse *parse, struct slice key, struct slice value)
{
	struct nvmeof_name *name = parse->name;
	const struct {
		struct slice key;
		uint64_t min, max;
		uint64_t *to;
	} NUMBERS[] = {
		{SLICE("nsid"), 1, UINT32_MAX - 1, &name->nsid},
		{SLICE("fast_io_fail_tmo"), 1, SECONDS_MAX, &name->fast_io_fail_tmo},
		{SLICE("reconnect_delay"), 1, SECONDS_MAX, &name->reconnect_delay},
		{SLICE("keep_alive_tmo"), 1, SECONDS_MAX, &name->keep_alive_tmo},
		/* The kernel's own bounds: NVMF_MIN_QUEUE_SIZE, NVMF_MAX_QUEUE_SIZE. */
		{SLICE("queue_size"), 16, 1024, &name->queue_size},
		{SLICE("nr_io_queues"), 1, 1024, &name->nr_io_queues},
	};
	uint64_t number = 0;
	bool is_number = !slice_to_u64(value, &number);

	if (slice_eq(key, SLICE("ctrl_loss_tmo"))) {
		if (!slice_eq(value, SLICE("-1")) && (!is_number || number > SECONDS_MAX))
			return wrong(parse, "ctrl_loss_tmo=%.*s: it is -1, or 0 to %u",
				SLICE_FMT(value), SECONDS_MAX);
		name->ctrl_loss_tmo = is_number ? (int64_t)number : CTRL_LOSS_NEVER;
		return 0;
	}
	for (uint32_t i = 0; i < ARRAY_LEN(NUMBERS); i++) {
		if (!slice_eq(key, NUMBERS[i].key))
			continue;
		if (!is_number || number < NUMBERS[i].min || number > NUMBERS[i].max)
			return wrong(parse, "%.*s=%.*s: it is a number from %llu to %llu",
				SLICE_FMT(key), SLICE_FMT(value),
				(unsigned long long)NUMBERS[i].min,
				(unsigned long long)NUMBERS[i].max);
		*NUMBERS[i].to = number;
		return 0;
	}
	return text_take(parse, key, value);
}

int nvmeof_name_parse(const char *path, struct nvmeof_name *ret_name, char *ret_why, size_t why_cap)
{
	struct parse parse = {.name = ret_name, .why = ret_why, .why_cap = why_cap};
	struct slice rest = slice_str(path), options, hosts;
	int ret;

	*ret_name = (struct nvmeof_name){.nsid = 1,
		.ctrl_loss_tmo = CTRL_LOSS_NEVER,
		.fast_io_fail_tmo = FAST_IO_FAIL_S,
		.reconnect_delay = RECONNECT_S,
		.keep_alive_tmo = KEEP_ALIVE_S};
	if (!slice_starts(rest, SLICE(NVMEOF_SCHEME)))
		return wrong(&parse, "it does not begin with " NVMEOF_SCHEME);
	options = slice_from(rest, sizeof(NVMEOF_SCHEME) - 1);
	rest = slice_split(&options, '?');
	hosts = slice_split(&rest, '/');
	if (!rest.data)
		return wrong(&parse,
			"no NQN follows the address '%.*s' (in a list of volumes, "
			"write + between the addresses of one)",
			SLICE_FMT(hosts));
	ret = addresses_take(&parse, hosts);
	if (!ret && (!nvmeof_nqn_valid(rest) ||
			    slice_copy_str(rest, ret_name->nqn, sizeof(ret_name->nqn))))
		ret = wrong(
			&parse, "'%.*s' is no NQN: nqn.YEAR-MONTH.DOMAIN:NAME", SLICE_FMT(rest));
	while (!ret && options.data) {
		struct slice value = slice_split(&options, '&');
		struct slice key = slice_split(&value, '=');

		ret = option_take(&parse, key, value);
	}
	if (!ret && ret_name->controller_secret_file[0] && !ret_name->secret_file[0])
		ret = wrong(&parse, "dhchap_ctrl_secret_file needs dhchap_secret_file");
	return ret;
}
