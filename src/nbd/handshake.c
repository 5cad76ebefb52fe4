/* nbd/handshake.c: the dialogue before the first request: options, TLS, the choice of an export. */
#include "nbd/nbd_priv.h"

#include <errno.h>
#include <string.h>

/* More options than any client has use for. */
#define OPTIONS_MAX 256u
/* The data of an option: a name and a list of wanted facts. */
#define OPTION_BYTES_MAX 4096u
/* An option's data beyond that is read and refused; more than this ends the connection. */
#define SKIPPED_BYTES_MAX (64 * KIB)

struct handshake {
	struct nbd_connection *connection;
	uint64_t deadline_ns;
	uint32_t option;
	uint32_t bytes;
	uint8_t data[OPTION_BYTES_MAX];
};

struct option_wire {
	uint64_t magic;
	uint32_t option, bytes;
} __attribute__((packed));

struct reply_wire {
	uint64_t magic;
	uint32_t option, type, bytes;
} __attribute__((packed));

static int take(struct handshake *shake, void *data, size_t bytes)
{
	size_t got;
	int ret = bytes ? net_recv_full(
				  shake->connection->stream, data, bytes, shake->deadline_ns, &got)
			: 0;

	if (ret || !bytes)
		return ret;
	return got == bytes ? 0 : -ECONNABORTED;
}

static int say(struct handshake *shake, const void *data, size_t bytes)
{
	struct iovec iov = {(void *)(uintptr_t)data, bytes};

	return net_sendv(shake->connection->stream, &iov, 1, shake->deadline_ns);
}

static int reply(struct handshake *shake, uint32_t type, const void *data, uint32_t bytes)
{
	struct reply_wire head = {
		htobe64(NBD_REPLY_MAGIC), htobe32(shake->option), htobe32(type), htobe32(bytes)};
	struct iovec iov[2] = {{&head, sizeof(head)}, {(void *)(uintptr_t)data, bytes}};

	return net_sendv(shake->connection->stream, iov, bytes ? 2 : 1, shake->deadline_ns);
}

/* Refuses an option, with a reason for people. */
static int refuse(struct handshake *shake, enum nbd_refusal why, const char *words)
{
	return reply(shake, NBD_REP_ERROR | why, words, (uint32_t)strlen(words));
}

static uint16_t flags_of(const struct nbd_export *export)
{
	uint16_t flags = NBD_HAS_FLAGS | NBD_SEND_FLUSH | NBD_SEND_FUA | NBD_CAN_MULTI_CONN;

	if (export->read_only)
		return (uint16_t)(flags | NBD_READ_ONLY);
	flags |= NBD_SEND_WRITE_ZEROES;
	if (disk_can_discard(export->disk))
		flags |= NBD_SEND_TRIM;
	return flags;
}

/* The empty name means the first export. NULL: there is none of this name. */
static const struct nbd_export *export_named(const struct nbd *nbd, const void *name, size_t len)
{
	if (!len)
		return &nbd->exports[0];
	for (uint32_t i = 0; i < nbd->opts.export_count; i++)
		if (strlen(nbd->exports[i].name) == len &&
			memcmp(nbd->exports[i].name, name, len) == 0)
			return &nbd->exports[i];
	return NULL;
}

/* ---- Options. Each returns 0 to go on, 1 when an export is chosen, or -errno. ---- */

static int option_list(struct handshake *shake)
{
	const struct nbd *nbd = shake->connection->nbd;
	uint8_t data[sizeof(uint32_t) + NBD_NAME_LEN_MAX];
	int ret = 0;

	if (shake->bytes)
		return refuse(shake, NBD_ERR_INVALID, "a list of exports takes no data");
	for (uint32_t i = 0; i < nbd->opts.export_count && !ret; i++) {
		uint32_t len = (uint32_t)strlen(nbd->exports[i].name);
		uint32_t len_be = htobe32(len);

		memcpy(data, &len_be, sizeof(len_be));
		memcpy(data + sizeof(len_be), nbd->exports[i].name, len);
		ret = reply(shake, NBD_REP_SERVER, data, (uint32_t)sizeof(len_be) + len);
	}
	return ret ? ret : reply(shake, NBD_REP_ACK, NULL, 0);
}

/* The handshake starts again inside TLS: everything before it is forgotten. */
static int option_tls(struct handshake *shake)
{
	struct nbd_connection *connection = shake->connection;
	int ret;

	if (!connection->nbd->opts.tls)
		return refuse(shake, NBD_ERR_UNSUPPORTED, "this server has no certificate");
	if (connection->secure || shake->bytes)
		return refuse(shake, NBD_ERR_INVALID, "TLS has begun, or came with data");
	ret = reply(shake, NBD_REP_ACK, NULL, 0);
	if (!ret)
		ret = net_tls_accept(
			connection->nbd->opts.tls, connection->stream, shake->deadline_ns);
	connection->secure = !ret;
	return ret;
}

static int info_send(struct handshake *shake, const struct nbd_export *export, bool name_wanted)
{
	struct {
		uint16_t type;
		uint64_t bytes;
		uint16_t flags;
	} __attribute__((packed)) size = {htobe16(NBD_INFO_EXPORT),
		htobe64(disk_bytes(export->disk)), htobe16(flags_of(export))};
	struct {
		uint16_t type;
		uint32_t min, preferred, max;
	} __attribute__((packed))
	blocks = {htobe16(NBD_INFO_BLOCK_SIZE), htobe32(disk_align(export->disk)),
		htobe32(FRAME_BYTES), htobe32((uint32_t)NBD_PAYLOAD_BYTES_MAX)};
	struct {
		uint16_t type;
		char text[NBD_NAME_LEN_MAX];
	} __attribute__((packed)) name = {.type = htobe16(NBD_INFO_NAME)};
	uint32_t len = (uint32_t)strlen(export->name);
	int ret = reply(shake, NBD_REP_INFO, &size, sizeof(size));

	if (!ret)
		ret = reply(shake, NBD_REP_INFO, &blocks, sizeof(blocks));
	if (!ret && name_wanted) {
		memcpy(name.text, export->name, len);
		ret = reply(shake, NBD_REP_INFO, &name, (uint32_t)sizeof(name.type) + len);
	}
	return ret ? ret : reply(shake, NBD_REP_ACK, NULL, 0);
}

/* NBD_OPT_INFO and NBD_OPT_GO: the name's length, the name, how many facts are wanted, which. */
static int option_info(struct handshake *shake)
{
	const struct nbd_export *export;
	uint32_t len, at;
	uint16_t wanted, fact;
	bool name_wanted = false;
	int ret;

	if (shake->bytes < sizeof(len) + sizeof(wanted))
		return refuse(shake, NBD_ERR_INVALID, "the data is too short");
	memcpy(&len, shake->data, sizeof(len));
	len = be32toh(len);
	if (len > shake->bytes - sizeof(len) - sizeof(wanted))
		return refuse(shake, NBD_ERR_INVALID, "the name is longer than the data");
	at = (uint32_t)sizeof(len) + len;
	memcpy(&wanted, shake->data + at, sizeof(wanted));
	at += (uint32_t)sizeof(wanted);
	if (shake->bytes - at != be16toh(wanted) * sizeof(fact))
		return refuse(shake, NBD_ERR_INVALID, "the list of facts has another length");
	for (; at < shake->bytes; at += (uint32_t)sizeof(fact)) {
		memcpy(&fact, shake->data + at, sizeof(fact));
		name_wanted = name_wanted || be16toh(fact) == NBD_INFO_NAME;
	}
	export = export_named(shake->connection->nbd, shake->data + sizeof(len), len);
	if (!export)
		return refuse(shake, NBD_ERR_UNKNOWN, "there is no export of this name");
	ret = info_send(shake, export, name_wanted);
	if (ret || shake->option == NBD_OPT_INFO)
		return ret;
	shake->connection->export = export;
	return 1;
}

/* The old option for choosing an export: the server can refuse it only by ending the connection. */
static int option_export_name(struct handshake *shake)
{
	struct {
		uint64_t bytes;
		uint16_t flags;
		uint8_t zeroes[124];
	} __attribute__((packed)) answer = {0};
	const struct nbd_export *export =
		export_named(shake->connection->nbd, shake->data, shake->bytes);
	int ret;

	if (!export)
		return -ENOENT;
	answer.bytes = htobe64(disk_bytes(export->disk));
	answer.flags = htobe16(flags_of(export));
	ret = say(shake, &answer,
		sizeof(answer) - (shake->connection->no_zeroes ? sizeof(answer.zeroes) : 0));
	if (ret)
		return ret;
	shake->connection->export = export;
	return 1;
}

static int option_serve(struct handshake *shake)
{
	bool bare = shake->connection->nbd->opts.tls && !shake->connection->secure;

	if (shake->option == NBD_OPT_ABORT) {
		(void)reply(shake, NBD_REP_ACK, NULL, 0);
		return -ECONNABORTED;
	}
	if (bare && shake->option == NBD_OPT_EXPORT_NAME)
		return -EACCES;
	if (bare && shake->option != NBD_OPT_STARTTLS)
		return refuse(shake, NBD_ERR_TLS_REQUIRED, "this server demands TLS");
	switch (shake->option) {
	case NBD_OPT_EXPORT_NAME:
		return option_export_name(shake);
	case NBD_OPT_LIST:
		return option_list(shake);
	case NBD_OPT_STARTTLS:
		return option_tls(shake);
	case NBD_OPT_INFO:
	case NBD_OPT_GO:
		return option_info(shake);
	default:
		return refuse(shake, NBD_ERR_UNSUPPORTED, "this server does not have this option");
	}
}

/* Reads an option that is longer than any supported one, and refuses it. */
static int option_skip(struct handshake *shake)
{
	uint32_t left = shake->bytes;
	int ret = 0;

	if (left > SKIPPED_BYTES_MAX || shake->option == NBD_OPT_EXPORT_NAME)
		return -EMSGSIZE;
	while (left && !ret) {
		uint32_t part = MIN(left, OPTION_BYTES_MAX);

		ret = take(shake, shake->data, part);
		left -= part;
	}
	return ret ? ret : refuse(shake, NBD_ERR_TOO_BIG, "the option's data is too long");
}

static int option_take(struct handshake *shake)
{
	struct option_wire head;
	int ret = take(shake, &head, sizeof(head));

	if (ret)
		return ret;
	if (head.magic != htobe64(NBD_OPTION_MAGIC))
		return -EPROTO;
	shake->option = be32toh(head.option);
	shake->bytes = be32toh(head.bytes);
	if (shake->bytes > OPTION_BYTES_MAX)
		return option_skip(shake);
	ret = take(shake, shake->data, shake->bytes);
	return ret ? ret : option_serve(shake);
}

static int hello(struct handshake *shake)
{
	struct {
		uint64_t magic, option_magic;
		uint16_t flags;
	} __attribute__((packed)) ours = {htobe64(NBD_MAGIC), htobe64(NBD_OPTION_MAGIC),
		htobe16(NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES)};
	uint32_t theirs;
	int ret = say(shake, &ours, sizeof(ours));

	if (!ret)
		ret = take(shake, &theirs, sizeof(theirs));
	if (ret)
		return ret;
	theirs = be32toh(theirs);
	if (!(theirs & NBD_FIXED_NEWSTYLE) || theirs & ~(NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES))
		return -EPROTO;
	shake->connection->no_zeroes = theirs & NBD_NO_ZEROES;
	return 0;
}

int nbd_handshake(struct nbd_connection *connection)
{
	struct handshake shake = {
		.connection = connection, .deadline_ns = clock_now_ns() + NBD_HANDSHAKE_NS};
	int ret = hello(&shake);

	for (uint32_t n = 0; n < OPTIONS_MAX && !ret; n++)
		ret = option_take(&shake);
	if (ret == 1)
		return 0;
	return ret ? ret : -EPROTO;
}
