/* rados/load.c: loads librados when the first of its functions is called, so that the program runs
 * on hosts without it, and starts without the time that loading it takes.
 *
 * Each function is defined here under its own name and calls the library's. The definitions are
 * hidden, so that the library's own calls do not end here, and weak, so that a test can have its
 * own. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "rados/load.h"
#include "rados/rv_priv.h"

#define SONAME "librados.so.2"

enum function {
#define FUNCTION(type, name, params, args, missing) AT_##name,
#define PROCEDURE(name, params, args)		    AT_##name,
#include "rados/load_table.inc"
#undef FUNCTION
#undef PROCEDURE
	FUNCTIONS
};

static const char *const NAMES[FUNCTIONS] = {
#define FUNCTION(type, name, params, args, missing) #name,
#define PROCEDURE(name, params, args)		    #name,
#include "rados/load_table.inc"
#undef FUNCTION
#undef PROCEDURE
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *functions[FUNCTIONS];
static char lacking[256];

/* The library stays loaded until the process ends. */
static void load(void)
{
	void *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(lacking, sizeof(lacking), "%s", dlerror());
		return;
	}
	for (int i = 0; i < FUNCTIONS; i++) {
		functions[i] = dlsym(library, NAMES[i]);
		if (!functions[i] && !lacking[0])
			snprintf(lacking, sizeof(lacking), SONAME " has no %s: it is too old",
				NAMES[i]);
	}
}

static void *find(enum function at)
{
	pthread_once(&once, load);
	return functions[at];
}

__attribute__((weak)) const char *rv_lacking(void)
{
	pthread_once(&once, load);
	return lacking[0] ? lacking : NULL;
}

#define HERE __attribute__((weak, visibility("hidden")))
#define FUNCTION(type, name, params, args, missing)                                \
	HERE type name params                                                      \
	{                                                                          \
		__typeof__(&(name)) loaded = (__typeof__(&(name)))find(AT_##name); \
                                                                                   \
		return loaded ? loaded args : (missing);                           \
	}
#define PROCEDURE(name, params, args)                                              \
	HERE void name params                                                      \
	{                                                                          \
		__typeof__(&(name)) loaded = (__typeof__(&(name)))find(AT_##name); \
                                                                                   \
		if (loaded)                                                        \
			loaded args;                                               \
	}
#include "rados/load_table.inc"
