/* store/image/image_format.h: the catalog as it lies in the volumes (docs/spec/disk.md, "The index
 * image"). */
#ifndef STORE_IMAGE_FORMAT_H
#define STORE_IMAGE_FORMAT_H

#include "base/base.h"

#define IMAGE_MAGIC	 "NEBIMAGE"
#define IMAGE_VERSION	 1u
#define IMAGE_TAIL_BYTES 8192u

enum image_kind { IMAGE_CONTENTS = 1, IMAGE_SEGMENTS = 2, IMAGE_KEPT = 3 };

struct image_head {
	char magic[8];
	uint32_t version;
	uint32_t files;
	uint8_t uuid[16];
	uint64_t seq;
	uint64_t time_ns;
};
_Static_assert(sizeof(struct image_head) == 48, "as docs/spec/disk.md has it");

struct image_entry {
	uint8_t name_len;
	uint8_t kind;
	uint16_t zero;
	uint32_t tail_crc;
	uint64_t bytes;
};
_Static_assert(sizeof(struct image_entry) == 16, "as docs/spec/disk.md has it");

#endif
