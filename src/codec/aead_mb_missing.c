/* codec/aead_mb_missing.c: a build without libipsec-mb's header. */
#include "codec/aead_mb.h"

const struct aead_mb *aead_mb_find(void)
{
	return NULL;
}
