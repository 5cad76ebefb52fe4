/* cli/doctor.c: records findings and reads sysfs, for all checks of the doctor. */
#include "doctor.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

struct finding *doctor_note(
	struct doctor *doctor, enum finding_state state, const char *area, const char *what, ...)
{
	struct finding *finding;
	va_list args;

	if (doctor->count == FINDINGS_MAX)
		doctor->count--; /* full: overwrites the last one; there are far fewer kinds of
				    findings */
	finding = &doctor->findings[doctor->count++];
	*finding = (struct finding){.state = state, .area = area};
	va_start(args, what);
	vsnprintf(finding->what, sizeof(finding->what), what, args);
	va_end(args);
	return finding;
}

void doctor_why(struct finding *finding, const char *text, ...)
{
	va_list args;

	va_start(args, text);
	vsnprintf(finding->why, sizeof(finding->why), text, args);
	va_end(args);
}

void doctor_fix(struct finding *finding, bool safe, const char *command, ...)
{
	va_list args;

	va_start(args, command);
	vsnprintf(finding->fix, sizeof(finding->fix), command, args);
	va_end(args);
	finding->safe = safe;
}

void doctor_undo(struct finding *finding, const char *command, ...)
{
	va_list args;

	va_start(args, command);
	vsnprintf(finding->undo, sizeof(finding->undo), command, args);
	va_end(args);
}

bool doctor_sysfs(const struct doctor *doctor, char *buf, size_t buf_bytes, const char *fmt, ...)
{
	char path[DOCTOR_PATH_BYTES];
	int len = snprintf(path, sizeof(path), "%s/", doctor->sysfs);
	va_list args;

	if ((size_t)len >= sizeof(path))
		return false;
	va_start(args, fmt);
	vsnprintf(path + len, sizeof(path) - (size_t)len, fmt, args);
	va_end(args);
	return file_line(path, buf, buf_bytes);
}

/* /proc/net/route has a heading, then lines of interface, destination, gateway and more, in hex. */
bool doctor_is_way_out(const struct doctor *doctor, const char *interface)
{
	char path[DOCTOR_PATH_BYTES], line[256], name[64], to[16], way[16];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/net/route", doctor->root);
	file = fopen(path, "re");
	while (file && !found && fgets(line, sizeof(line), file))
		found = sscanf(line, "%63s %15s %15s", name, to, way) == 3 &&
			!strcmp(name, interface) && !strcmp(to, "00000000");
	if (file)
		fclose(file);
	return found;
}

void doctor_each(struct doctor *doctor, const char *folder, doctor_each_fn *fn)
{
	char path[DOCTOR_PATH_BYTES];
	struct dirent **entries;
	int count;

	snprintf(path, sizeof(path), "%s/%s", doctor->sysfs, folder);
	count = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		if (entries[i]->d_name[0] != '.')
			fn(doctor, entries[i]->d_name);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}
