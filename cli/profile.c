/* cli/profile.c: reads profiles. */
#include "profile.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "nebulaio/nebulaio.h"

static const char *const NAMES[PROFILE_KEYS] = {
	[PROFILE_ENDPOINT] = "endpoint",
	[PROFILE_ACCESS_KEY] = "access_key",
	[PROFILE_SECRET_KEY] = "secret_key",
	[PROFILE_REGION] = "region",
	[PROFILE_DEVICE] = "device",
	[PROFILE_TRANSPORT] = "transport",
	[PROFILE_ADMIN] = "admin",
};

static char *trim(char *text)
{
	char *end;

	text += strspn(text, " \t");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r\n", end[-1]))
		*--end = '\0';
	return text;
}

static bool value_set(struct profile *profile, const char *name, const char *value)
{
	enum neb_transport transport;

	for (unsigned i = 0; i < PROFILE_KEYS; i++) {
		if (strcmp(name, NAMES[i]) != 0)
			continue;
		if (i == PROFILE_TRANSPORT && neb_transport_parse(value, &transport))
			return false;
		profile->values[i] = profile->text[i];
		return (size_t)snprintf(profile->text[i], sizeof(profile->text[i]), "%s", value) <
		       sizeof(profile->text[i]);
	}
	return false;
}

/* Every line must be valid, also in other profiles. */
static int lines_read(FILE *file, const char *path, const char *name, struct profile *profile)
{
	struct profile other = {0};
	char line[1024];
	bool inside = false, found = false;

	for (unsigned number = 1; fgets(line, sizeof(line), file); number++) {
		char *text = trim(line), *equals = strchr(text, '=');
		size_t len = strlen(text);

		if (!len || *text == '#' || *text == ';')
			continue;
		if (*text == '[' && text[len - 1] == ']') {
			text[len - 1] = '\0';
			inside = !strcmp(trim(text + 1), name);
			found |= inside;
			continue;
		}
		if (equals)
			*equals = '\0';
		if (!equals ||
			!value_set(inside ? profile : &other, trim(text), trim(equals + 1))) {
			fprintf(stderr,
				"nebulaio: %s:%u: not [NAME], nor one of endpoint, "
				"access_key, secret_key, region, device, transport, admin = "
				"VALUE\n",
				path, number);
			return CLI_USAGE;
		}
	}
	return found ? CLI_OK : CLI_NOT_FOUND;
}

int profile_read(const char *name, struct profile *ret_profile)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char path[4096];
	FILE *file;
	int ret = CLI_NOT_FOUND;

	*ret_profile = (struct profile){0};
	if (config && *config)
		snprintf(path, sizeof(path), "%s/nebulaio/config", config);
	else
		snprintf(path, sizeof(path), "%s/.config/nebulaio/config", home ? home : "");
	file = fopen(path, "re");
	if (file) {
		ret = lines_read(file, path, name ? name : "default", ret_profile);
		fclose(file);
	}
	if (ret == CLI_NOT_FOUND && !name)
		return CLI_OK;
	if (ret == CLI_NOT_FOUND)
		fprintf(stderr, "nebulaio: no profile '%s' in %s\n", name, path);
	return ret;
}
