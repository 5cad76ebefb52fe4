/* nvmeof/host.c: this host's NVMe name: nvme-cli's, or one that follows from the machine's id. */
#include "nvmeof/nvmeof_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "codec/hash.h"
#include "codec/text.h"

#define UUID_NQN "nqn.2014-08.org.nvmexpress:uuid:"

void nvmeof_uuid_of(struct slice a, struct slice b, char ret_id[NVMEOF_ID_BYTES])
{
	static const uint8_t DASHES[] = {4, 6, 8, 10};
	uint8_t digest[SHA256_BYTES];
	struct sha256 sha256;
	size_t len = 0;

	sha256_init(&sha256);
	sha256_update(&sha256, a.data, a.len);
	sha256_update(&sha256, "\n", 1);
	sha256_update(&sha256, b.data, b.len);
	sha256_final(&sha256, digest);
	/* Version 8, RFC 9562: made by a rule of the application's own. */
	digest[6] = (uint8_t)((digest[6] & 0x0f) | 0x80);
	digest[8] = (uint8_t)((digest[8] & 0x3f) | 0x80);
	for (uint32_t i = 0; i < 16; i++) {
		if (memchr(DASHES, (int)i, sizeof(DASHES)))
			ret_id[len++] = '-';
		hex_encode(&digest[i], 1, ret_id + len);
		len += 2;
	}
	ret_id[len] = '\0';
}

/* The id of a host that a file names by NQN only. */
static void id_of_nqn(struct nvmeof_host *host)
{
	struct slice nqn = slice_str(host->nqn);

	if (slice_starts(nqn, SLICE(UUID_NQN)) &&
		nqn.len == sizeof(UUID_NQN) - 1 + NVMEOF_ID_BYTES - 1)
		slice_copy_str(slice_from(nqn, sizeof(UUID_NQN) - 1), host->id, sizeof(host->id));
	else
		nvmeof_uuid_of(SLICE("NVMe host"), nqn, host->id);
}

int nvmeof_host_find(const struct nvmeof_place *place, struct nvmeof_host *ret_host)
{
	char path[PATH_BYTES], line[NVMEOF_NQN_BYTES + 8];
	struct slice nqn;

	memset(ret_host, 0, sizeof(*ret_host));
	snprintf(path, sizeof(path), "%s/nvme/hostnqn", place_etc(place));
	if (file_line(path, line, sizeof(line))) {
		nqn = slice_trim(slice_str(line));
		if (!nvmeof_nqn_valid(nqn))
			return -EINVAL;
		slice_copy_str(nqn, ret_host->nqn, sizeof(ret_host->nqn));
		snprintf(path, sizeof(path), "%s/nvme/hostid", place_etc(place));
		if (file_line(path, line, sizeof(line)) &&
			slice_trim(slice_str(line)).len == NVMEOF_ID_BYTES - 1)
			slice_copy_str(
				slice_trim(slice_str(line)), ret_host->id, sizeof(ret_host->id));
		else
			id_of_nqn(ret_host);
		return 0;
	}
	snprintf(path, sizeof(path), "%s/machine-id", place_etc(place));
	if (!file_line(path, line, sizeof(line)) || !slice_trim(slice_str(line)).len)
		return -ENOENT;
	nvmeof_uuid_of(SLICE("NVMe host"), slice_trim(slice_str(line)), ret_host->id);
	snprintf(ret_host->nqn, sizeof(ret_host->nqn), UUID_NQN "%s", ret_host->id);
	ret_host->derived = true;
	return 0;
}
