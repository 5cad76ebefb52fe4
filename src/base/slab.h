/* base/slab.h: memory for many small, long-lived structs of any thread: records and their objects.
 * Structs of a size lie together in slabs of 2 MiB, without a header each. All but the first slab
 * of a size ask for a huge page, so that a table of a million records needs few TLB entries. A slab
 * without structs goes back to the kernel. */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stdbool.h>
#include <stddef.h>

#define SLAB_STRUCT_BYTES_MAX 1024u /* malloc has the larger ones */

/* Zeroed memory, aligned to 16 bytes. NULL: none. Under AddressSanitizer this is calloc, which sees
 * uses after the end. */
void *slab_alloc(size_t bytes);
/* bytes: as they were asked for. Takes NULL. */
void slab_free(void *memory, size_t bytes);
/* Whether new slabs ask for huge pages (they do unless told otherwise). */
void slab_huge_pages(bool huge);

#endif
