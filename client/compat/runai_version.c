/* client/compat/runai_version.c: finds the version of the streamer that has opened this library.
 * The interface between them has none; the streamer's Python package has, in the name of a folder
 * beside it. */
#include "runai.h"

#include <errno.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096

static const char *const TESTED[] = {"0.17.0"};
/* The start of the folder's name; the folder is below the one that contains the streamer's library.
 */
static const char LIBRARY[] = "/runai_model_streamer/libstreamer/lib/libstreamer.so";
static const char FOLDER[] = "/runai_model_streamer-";

struct found {
	bool is_loaded;
	char library[PATH_BYTES];
};

static int on_library(struct dl_phdr_info *info, size_t bytes, void *arg)
{
	struct found *found = arg;
	const char *name = strrchr(info->dlpi_name, '/');

	(void)bytes;
	if (!name || strcmp(name, "/libstreamer.so") != 0)
		return 0;
	found->is_loaded = true;
	snprintf(found->library, sizeof(found->library), "%s", info->dlpi_name);
	return 1;
}

/* The version in the name of the package's folder; false: there is none. */
static bool version_find(const struct found *found, char *version, size_t version_bytes)
{
	size_t len = strlen(found->library), end_len = sizeof(LIBRARY) - 1;
	char pattern[PATH_BYTES + 64];
	const char *at;
	glob_t paths;

	if (len < end_len || strcmp(found->library + len - end_len, LIBRARY) != 0)
		return false;
	snprintf(pattern, sizeof(pattern), "%.*s%s*.dist-info", (int)(len - end_len),
		found->library, FOLDER);
	if (glob(pattern, 0, NULL, &paths))
		return false;
	at = strrchr(paths.gl_pathv[0], '/') + sizeof(FOLDER) - 1;
	snprintf(version, version_bytes, "%.*s", (int)(strstr(at, ".dist-info") - at), at);
	globfree(&paths);
	return true;
}

int runai_version_check(char *why, size_t why_bytes)
{
	struct found found = {0};
	const char *any = getenv("NEBULAIO_RUNAI_ANY_VERSION");
	char version[32] = "";

	dl_iterate_phdr(on_library, &found);
	if (!found.is_loaded || (any && strcmp(any, "1") == 0))
		return 0;
	if (!version_find(&found, version, sizeof(version)))
		snprintf(version, sizeof(version), "of an unknown version");
	for (size_t i = 0; i < sizeof(TESTED) / sizeof(TESTED[0]); i++)
		if (strcmp(version, TESTED[i]) == 0)
			return 0;
	snprintf(why, why_bytes,
		"runai-model-streamer %s: this library was tested with %s; "
		"NEBULAIO_RUNAI_ANY_VERSION=1 uses it all the same",
		version, TESTED[0]);
	return -ENOTSUP;
}
