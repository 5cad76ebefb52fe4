/* rdma/verbs/load.c: loads the RDMA libraries when the first of their functions is called, so that
 * programs also run on hosts without them. The drivers are plug-ins of the host's libibverbs, and
 * match no other: a copy of it in a package of ours could not use them.
 *
 * Each function is defined here under its own name and calls the library's. The definitions are
 * hidden, because other code in the process may use the libraries too, and weak, because a program
 * may link our static library together with them. */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#ifdef HAVE_MLX5DV
#include <infiniband/mlx5dv.h>
#endif
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

#include "rdma/rdma.h"

enum library { IBVERBS, RDMACM, MLX5, LIBRARIES };
/* rdma-core's; the first two are needed for any card. */
static const char *const SONAMES[LIBRARIES] = {"libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1"};
#define NEEDED 2

enum function {
#define FUNCTION(library, type, name, params, args, missing) AT_##name,
#define PROCEDURE(library, name, params, args)		     AT_##name,
#include "rdma/verbs/load_table.inc"
#undef FUNCTION
#undef PROCEDURE
	FUNCTIONS
};

static const struct {
	enum library library;
	const char *name;
} TABLE[FUNCTIONS] = {
#define FUNCTION(library, type, name, params, args, missing) {library, #name},
#define PROCEDURE(library, name, params, args)		     {library, #name},
#include "rdma/verbs/load_table.inc"
#undef FUNCTION
#undef PROCEDURE
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *functions[FUNCTIONS];
static char lacking[256]; /* the first needed library that cannot be loaded, and why */

/* The libraries stay loaded until the process ends. */
static void load(void)
{
	void *libraries[LIBRARIES];

	for (int i = 0; i < LIBRARIES; i++) {
		libraries[i] = dlopen(SONAMES[i], RTLD_NOW | RTLD_LOCAL);
		if (!libraries[i] && i < NEEDED && !lacking[0])
			snprintf(lacking, sizeof(lacking), "%s", dlerror());
	}
	for (int i = 0; i < FUNCTIONS; i++)
		if (libraries[TABLE[i].library])
			functions[i] = dlsym(libraries[TABLE[i].library], TABLE[i].name);
}

static void *find(enum function at)
{
	pthread_once(&once, load);
	if (!functions[at])
		errno = ENOSYS;
	return functions[at];
}

const char *rp_lacking(void)
{
	pthread_once(&once, load);
	return lacking[0] ? lacking : NULL;
}

#define HERE __attribute__((weak, visibility("hidden")))
#define FUNCTION(library, type, name, params, args, missing)                       \
	HERE type(name) params                                                     \
	{                                                                          \
		__typeof__(&(name)) loaded = (__typeof__(&(name)))find(AT_##name); \
                                                                                   \
		return loaded ? loaded args : (missing);                           \
	}
#define PROCEDURE(library, name, params, args)                                     \
	HERE void(name) params                                                     \
	{                                                                          \
		__typeof__(&(name)) loaded = (__typeof__(&(name)))find(AT_##name); \
                                                                                   \
		if (loaded)                                                        \
			loaded args;                                               \
	}
#include "rdma/verbs/load_table.inc"
