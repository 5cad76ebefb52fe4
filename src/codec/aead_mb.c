/* codec/aead_mb.c: loads libipsec-mb. It has GCM with the processor's vector AES (VAES), which
 * OpenSSL 3.0 does not. Loaded at run time, so that hosts without it run the program, too. */
#include "codec/aead_mb.h"

#include <dlfcn.h>
#include <pthread.h>

#include <intel-ipsec-mb.h>

#include "base/base.h"

#define SONAME "libIPSec_MB.so.1"

_Static_assert(sizeof(struct gcm_context_data) <= AEAD_MB_STATE_BYTES, "a message's state fits");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct aead_mb found;
static bool is_found;

/* The table of functions has another layout in other versions. */
#define MINOR(version) ((version) >> 8)

/* The functions work without the table. */
static void take(const IMB_MGR *table)
{
	found = (struct aead_mb){
		.key_bytes = sizeof(struct gcm_key_data),
		.pre = table->gcm256_pre,
		.message = {table->gcm256_dec, table->gcm256_enc},
		.init = table->gcm256_init,
		.update = {table->gcm256_dec_update, table->gcm256_enc_update},
		.end = {table->gcm256_dec_finalize, table->gcm256_enc_finalize},
	};
	is_found = true;
}

static void find(void)
{
	void *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	unsigned (*version)(void);
	IMB_MGR *(*make)(uint64_t);
	void (*fill)(IMB_MGR *, IMB_ARCH *);
	void (*end)(IMB_MGR *);
	IMB_ARCH arch = IMB_ARCH_NONE;
	IMB_MGR *table;

	if (!library)
		return;
	*(void **)&version = dlsym(library, "imb_get_version");
	*(void **)&make = dlsym(library, "alloc_mb_mgr");
	*(void **)&fill = dlsym(library, "init_mb_mgr_auto");
	*(void **)&end = dlsym(library, "free_mb_mgr");
	if (!version || !make || !fill || !end || MINOR(version()) != MINOR(IMB_VERSION_NUM))
		return;
	table = make(0);
	if (!table)
		return;
	fill(table, &arch);
	if (arch >= IMB_ARCH_SSE)
		take(table);
	end(table);
}

const struct aead_mb *aead_mb_find(void)
{
	pthread_once(&once, find);
	return is_found ? &found : NULL;
}
