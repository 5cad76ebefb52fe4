/* codec/via.c: "1 STORE PEER TRANSPORT ID TIME CODE", or "2 STORE PEER TRANSPORT ID TIME KIND
 * CODE". */
#include "codec/via.h"

#include <errno.h>
#include <stdio.h>

#include "codec/hash.h"
#include "codec/text.h"

#define VERSION		"1"
#define VERSION_OF_KIND "2"

static const char *const KINDS[] = {[VIA_GIVE] = "give", [VIA_TAKE] = "take"};

/* The code covers all of the value before it, the method and the target. */
static void code_of(const uint8_t secret[VIA_SECRET_BYTES], struct slice told, struct slice method,
	struct slice target, char ret_hex[2 * SHA256_BYTES])
{
	static const char title[] = "nebulaio via\n";
	uint8_t mac[SHA256_BYTES];
	struct hmac_key key;
	struct hmac hmac;

	hmac_key_init(&key, secret, VIA_SECRET_BYTES);
	hmac_init(&hmac, &key);
	hmac_update(&hmac, title, sizeof(title) - 1);
	hmac_update(&hmac, told.data, told.len);
	hmac_update(&hmac, "\n", 1);
	hmac_update(&hmac, method.data, method.len);
	hmac_update(&hmac, "\n", 1);
	hmac_update(&hmac, target.data, target.len);
	hmac_final(&hmac, mac);
	hex_encode(mac, sizeof(mac), ret_hex);
	secret_wipe(&key, sizeof(key));
}

int via_write(const uint8_t secret[VIA_SECRET_BYTES], const struct via *via, struct slice method,
	struct slice target, char ret_text[VIA_BYTES_MAX])
{
	char hex[2 * SHA256_BYTES];
	int len = snprintf(ret_text, VIA_BYTES_MAX, "%s %.*s %.*s %.*s %.*s %lld%s%s",
		via->kind == VIA_SERVE ? VERSION : VERSION_OF_KIND, SLICE_FMT(via->store),
		SLICE_FMT(via->peer), SLICE_FMT(via->transport), SLICE_FMT(via->id),
		(long long)via->time_s, via->kind == VIA_SERVE ? "" : " ",
		via->kind == VIA_SERVE ? "" : KINDS[via->kind]);

	if (len < 0 || (size_t)len + 2 + sizeof(hex) > VIA_BYTES_MAX)
		return -EMSGSIZE;
	code_of(secret, slice_of(ret_text, (size_t)len), method, target, hex);
	snprintf(ret_text + len, VIA_BYTES_MAX - (size_t)len, " %.*s", (int)sizeof(hex), hex);
	return 0;
}

static bool is_peer(struct slice peer)
{
	return peer.len && peer.len < VIA_PEER_BYTES;
}

static bool is_id(struct slice id)
{
	for (size_t i = 0; i < id.len; i++)
		if (!(id.data[i] >= '0' && id.data[i] <= '9') &&
			!(id.data[i] >= 'A' && id.data[i] <= 'F'))
			return false;
	return id.len == VIA_ID_LEN;
}

static bool kind_of(struct slice text, enum via_kind *ret_kind)
{
	for (int kind = VIA_GIVE; kind <= VIA_TAKE; kind++) {
		if (slice_eq(text, slice_str(KINDS[kind]))) {
			*ret_kind = (enum via_kind)kind;
			return true;
		}
	}
	return false;
}

/* The value before the code. */
static int told_read(struct slice rest, struct via *ret_via)
{
	struct slice version = slice_split(&rest, ' '), time;
	bool with_kind = slice_eq(version, SLICE(VERSION_OF_KIND));
	struct via via = {.kind = VIA_SERVE};
	uint64_t time_s;

	if (!with_kind && !slice_eq(version, SLICE(VERSION)))
		return -EINVAL;
	via.store = slice_split(&rest, ' ');
	via.peer = slice_split(&rest, ' ');
	via.transport = slice_split(&rest, ' ');
	via.id = slice_split(&rest, ' ');
	time = with_kind ? slice_split(&rest, ' ') : rest;
	if (!via.store.len || via.store.len > VIA_STORE_LEN_MAX || !is_peer(via.peer) ||
		!is_id(via.id) || slice_to_u64(time, &time_s) || time_s > INT64_MAX ||
		(!slice_eq(via.transport, SLICE("http")) &&
			!slice_eq(via.transport, SLICE("https"))) ||
		(with_kind && !kind_of(rest, &via.kind)))
		return -EINVAL;
	via.time_s = (int64_t)time_s;
	*ret_via = via;
	return 0;
}

int via_read(const uint8_t secret[VIA_SECRET_BYTES], struct slice text, struct slice method,
	struct slice target, int64_t now_s, struct via *ret_via)
{
	char hex[2 * SHA256_BYTES];
	struct slice told, code;
	struct via via;
	unsigned int differ = 0;
	int ret;

	if (text.len >= VIA_BYTES_MAX || text.len <= sizeof(hex) + 1)
		return -EINVAL;
	told = slice_to(text, text.len - sizeof(hex) - 1);
	code = slice_from(text, text.len - sizeof(hex));
	if (text.data[told.len] != ' ')
		return -EINVAL;
	/* Nothing else is looked at before the code is known to be right. */
	code_of(secret, told, method, target, hex);
	for (size_t i = 0; i < sizeof(hex); i++)
		differ |= (unsigned int)(hex[i] ^ code.data[i]);
	if (differ)
		return -EPERM;
	ret = told_read(told, &via);
	if (ret)
		return ret;
	if (via.time_s < now_s - (int64_t)VIA_AGE_S_MAX ||
		via.time_s > now_s + (int64_t)VIA_AGE_S_MAX)
		return -ESTALE;
	*ret_via = via;
	return 0;
}
