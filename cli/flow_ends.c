/* cli/flow_ends.c: the text forms of `nebulaio flow`'s ends that are not packets. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow_cmd.h"

static bool refuse(char why[FLOW_WHY_BYTES], const char *what, const char *text)
{
	snprintf(why, FLOW_WHY_BYTES, "%s: '%.100s'", what, text);
	return false;
}

bool flow_amount_parse(const char *text, uint64_t *ret_amount)
{
	char *end;
	unsigned long long amount;
	unsigned shift = 0;

	errno = 0;
	amount = strtoull(text, &end, 10);
	if (errno || end == text || *text == '-' || *text == '+' || *text == ' ')
		return false;
	if (*end == 'K' || *end == 'M' || *end == 'G')
		shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
	if (shift)
		end++;
	if (*end || amount > UINT64_MAX >> shift)
		return false;
	*ret_amount = amount << shift;
	return true;
}

static bool seconds_parse(const char *text, uint64_t *ret_ns)
{
	uint64_t seconds;

	if (!flow_amount_parse(text, &seconds) || seconds > 1000000)
		return false;
	*ret_ns = seconds * NS_PER_S;
	return true;
}

static bool record_parse(const char *text, uint32_t *ret_bytes)
{
	uint64_t bytes;

	if (!flow_amount_parse(text, &bytes) || bytes == 0 || bytes % FRAME_BYTES ||
		bytes > FLOW_PIECE_BYTES_MAX)
		return false;
	*ret_bytes = (uint32_t)bytes;
	return true;
}

static bool rdma_option(char *word, struct flow_end_spec *end, char why[FLOW_WHY_BYTES])
{
	char *value = strchr(word, '=');
	bool good = false;

	if (!strcmp(word, "listen")) {
		end->listen = true;
		return true;
	}
	if (!value)
		return refuse(why, "not of the form name=value", word);
	*value++ = '\0';
	if (!strcmp(word, "device"))
		good = *value && (size_t)snprintf(end->device, sizeof(end->device), "%s", value) <
					 sizeof(end->device);
	else if (!strcmp(word, "record"))
		good = record_parse(value, &end->record_bytes);
	else if (!strcmp(word, "wait"))
		good = seconds_parse(value, &end->wait_ns);
	else if (!strcmp(word, "timeout"))
		good = seconds_parse(value, &end->timeout_ns) && end->timeout_ns;
	else
		return refuse(why, "no such option", word);
	return good ? true : refuse(why, "no such value", value);
}

/* Parses "HOST:PORT", "[V6]:PORT", ":PORT". */
static bool address_parse(char *text, struct flow_end_spec *end)
{
	char *colon = strrchr(text, ':');
	size_t len;
	uint64_t port;

	if (!colon || !flow_amount_parse(colon + 1, &port) || port > 65535)
		return false;
	*colon = '\0';
	end->port = (uint16_t)port;
	len = strlen(text);
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		text[len - 1] = '\0';
		text++;
	} else if (strchr(text, ':')) {
		return false;
	}
	if (strlen(text) >= sizeof(end->address))
		return false;
	snprintf(end->address, sizeof(end->address), "%.63s", text);
	end->listen = end->listen || !text[0];
	return end->listen || port;
}

static bool rdma_parse(const char *text, struct flow_end_spec *end, char why[FLOW_WHY_BYTES])
{
	char copy[512], *rest = copy, *address, *word;

	if (strlen(text) >= sizeof(copy))
		return refuse(why, "too long", text);
	snprintf(copy, sizeof(copy), "%s", text);
	address = strsep(&rest, ",");
	while ((word = strsep(&rest, ",")) != NULL) {
		if (!rdma_option(word, end, why))
			return false;
	}
	end->kind = FLOW_RDMA;
	if (!address_parse(address, end))
		return refuse(why, "not of the form rdma:HOST:PORT", text);
	return true;
}

/* ---- Datagrams. ---- */

static bool number_parse(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	return flow_amount_parse(text, ret_number) && *ret_number >= min && *ret_number <= max;
}

static bool raw_option(
	const char *name, const char *value, struct flow_end_spec *end, bool *ret_known)
{
	uint64_t number = 0;
	char *rest;
	bool good;

	*ret_known = true;
	if (!strcmp(name, "vlan")) {
		good = number_parse(value, 1, 4094, &number);
		end->vlan = (uint16_t)number;
		return good;
	}
	if (!strcmp(name, "priority")) {
		good = number_parse(value, 0, 7, &number);
		end->priority = (uint8_t)number;
		return good;
	}
	*ret_known = !strcmp(name, "type");
	number = strtoul(value, &rest, 16);
	end->ether_type = (uint16_t)number;
	return *ret_known && rest != value && !*rest && number >= 0x600 && number <= 0xffff;
}

static bool datagram_option(
	char *word, bool is_source, struct flow_end_spec *end, char why[FLOW_WHY_BYTES])
{
	char *value = strchr(word, '=');
	bool known = true, good = false;

	if (!value)
		return refuse(why, "not of the form name=value", word);
	*value++ = '\0';
	if (!strcmp(word, "device"))
		good = *value && (size_t)snprintf(end->device, sizeof(end->device), "%s", value) <
					 sizeof(end->device);
	else if (is_source && !strcmp(word, "timeout"))
		good = seconds_parse(value, &end->timeout_ns) && end->timeout_ns;
	else if (is_source && !strcmp(word, "loss"))
		good = end->accept_loss = !strcmp(value, "accept");
	else if (!is_source && !strcmp(word, "rate"))
		good = flow_amount_parse(value, &end->rate) && end->rate;
	else if (end->kind == FLOW_RAW && (!is_source || strcmp(word, "priority")))
		good = raw_option(word, value, end, &known);
	else
		known = false;
	if (good)
		return true;
	return refuse(why, known ? "no such value" : "no such option", known ? value : word);
}

static bool mac_parse(const char *text, uint8_t mac[6])
{
	for (uint32_t i = 0; i < 6; i++) {
		if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]))
			return false;
		mac[i] = (uint8_t)strtoul((const char[]){text[0], text[1], '\0'}, NULL, 16);
		text += 2;
		if (i < 5 && *text != '-' && *text != ':')
			return false;
		text += i < 5;
	}
	return !*text;
}

/* "ud:GROUP,…", "ud:GID/NUMBER,…", "ud:,…"; "raw:MAC,…". */
static bool datagrams_parse(
	const char *text, bool is_source, struct flow_end_spec *end, char why[FLOW_WHY_BYTES])
{
	char copy[512], *rest = copy, *address, *word;

	if (strlen(text) >= sizeof(copy))
		return refuse(why, "too long", text);
	end->kind = text[0] == 'u' ? FLOW_UD : FLOW_RAW;
	end->ether_type = FLOW_DATAGRAM_ETHER_TYPE;
	snprintf(copy, sizeof(copy), "%s", strchr(text, ':') + 1);
	address = strsep(&rest, ",");
	while ((word = strsep(&rest, ",")) != NULL) {
		if (!datagram_option(word, is_source, end, why))
			return false;
	}
	if (strlen(address) >= sizeof(end->address))
		return refuse(why, "too long", address);
	snprintf(end->address, sizeof(end->address), "%s", address);
	if (end->kind == FLOW_RAW && !mac_parse(address, end->mac))
		return refuse(why, "not of the form raw:02-00-00-00-00-01", text);
	if (end->kind == FLOW_RAW && end->priority && !end->vlan)
		return refuse(
			why, "a priority stands in the tag of a VLAN: vlan=N is missing", text);
	if (end->kind == FLOW_UD && !address[0] && !is_source)
		return refuse(why, "it names no group and no queue pair", text);
	if (end->kind == FLOW_UD && is_source && strchr(address, '/'))
		return refuse(why, "a receiver has the queue pair of its own: ud:", text);
	return true;
}

static bool disk_option(const char *word, struct flow_end_spec *end)
{
	if (!strncmp(word, "offset=", 7))
		return flow_amount_parse(word + 7, &end->offset) && end->offset % FRAME_BYTES == 0;
	if (!strncmp(word, "bytes=", 6))
		return flow_amount_parse(word + 6, &end->bytes) && end->bytes;
	return false;
}

static bool disk_parse(const char *text, struct flow_end_spec *end, char why[FLOW_WHY_BYTES])
{
	char copy[sizeof(end->path)], *rest = copy, *word;

	snprintf(copy, sizeof(copy), "%s", text);
	snprintf(end->path, sizeof(end->path), "%s", strsep(&rest, ","));
	while ((word = strsep(&rest, ",")) != NULL) {
		if (!disk_option(word, end))
			return refuse(why,
				"after the path of a disk: offset=N (a multiple of 4096), bytes=N",
				word);
	}
	return true;
}

static bool s3_parse(const char *text, struct flow_end_spec *end, char why[FLOW_WHY_BYTES])
{
	char copy[sizeof(end->path)];
	const char *bucket, *key;

	snprintf(copy, sizeof(copy), "%s", text);
	if (!remote_parse(copy, &bucket, &key) || !key[0] || strlen(key) >= sizeof(end->key))
		return refuse(why, "not of the form s3://BUCKET/KEY", text);
	end->kind = FLOW_S3;
	snprintf(end->path, sizeof(end->path), "%s", bucket);
	snprintf(end->key, sizeof(end->key), "%s", key);
	return true;
}

/* The length of the scheme, "word:", at the text's beginning; 0: the text is a path. */
static size_t scheme_len(const char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+-.");

	return len > 1 && text[len] == ':' && text[0] != '.' ? len : 0;
}

bool flow_end_parse(
	const char *text, bool is_source, struct flow_end_spec *ret_end, char why[FLOW_WHY_BYTES])
{
	struct flow_end_spec end = {.kind = FLOW_FILE};
	bool good = true;

	if (strlen(text) >= sizeof(end.path))
		return refuse(why, "too long", text);
	if (!strcmp(text, "null:")) {
		end.kind = FLOW_NULL;
		snprintf(end.path, sizeof(end.path), "%s", text);
	} else if (!strncmp(text, "rdma:", 5)) {
		good = rdma_parse(text + 5, &end, why);
	} else if (!strncmp(text, "ud:", 3) || !strncmp(text, "raw:", 4)) {
		good = datagrams_parse(text, is_source, &end, why);
	} else if (remote_is_url(text)) {
		good = s3_parse(text, &end, why);
	} else {
		bool disk = !strncmp(text, "disk:", 5) || !strncmp(text, "nvme:", 5);

		end.kind = disk ? FLOW_DISK : FLOW_FILE;
		text += disk ? 5 : 0;
		if (!*text)
			good = refuse(why, "it names no file", text);
		else if (!disk && scheme_len(text))
			good = refuse(why,
				"no such kind of end: s3://, rdma:, ud:, raw:, disk:, nvme:, null: "
				"or a path "
				"(put ./ before a file name that looks like this)",
				text);
		else if (disk && is_source)
			good = disk_parse(text, &end, why);
		else
			snprintf(end.path, sizeof(end.path), "%s", text);
	}
	if (good)
		*ret_end = end;
	return good;
}
