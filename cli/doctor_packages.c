/* cli/doctor_packages.c: programs that help with RDMA and networks, and the packages that have
 * them, by the host's distribution. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "doctor.h"

enum manager { APT, DNF, ZYPPER, PACMAN, MANAGERS };
static const char *const INSTALL[MANAGERS] = {
	[APT] = "apt-get install",
	[DNF] = "dnf install",
	[ZYPPER] = "zypper install",
	[PACMAN] = "pacman -S",
};

/* NULL: the distribution itself has no such package. A path instead of a name: a file to look for.
 */
static const struct {
	const char *program, *what_for;
	const char *packages[MANAGERS];
} PROGRAMS[] = {
	{"ibv_devinfo", "devices and ports",
		{"ibverbs-utils", "libibverbs-utils", "libibverbs-utils", "rdma-core"}},
	{"rdma", "links and queue pairs", {"iproute2", "iproute", "iproute2", "iproute2"}},
	{"rping", "connections by address",
		{"rdmacm-utils", "librdmacm-utils", "librdmacm-utils", "rdma-core"}},
	{"perfquery", "counters of InfiniBand ports",
		{"infiniband-diags", "infiniband-diags", "infiniband-diags", "rdma-core"}},
	{"ib_write_bw", "the link's own speed", {"perftest", "perftest", "perftest", NULL}},
	{"ethtool", "settings and counters of interfaces",
		{"ethtool", "ethtool", "ethtool", "ethtool"}},
	{"lspci", "cards", {"pciutils", "pciutils", "pciutils", "pciutils"}},
	{"/usr/include/rdma/rdma_cma.h", "programs of your own",
		{"libibverbs-dev librdmacm-dev", "rdma-core-devel", "rdma-core-devel",
			"rdma-core"}},
};

/* By ID and ID_LIKE of os-release(5); MANAGERS: an unknown distribution. */
static enum manager manager_of(const struct doctor *doctor)
{
	static const struct {
		const char *word;
		enum manager manager;
	} KNOWN[] = {{"debian", APT}, {"ubuntu", APT}, {"fedora", DNF}, {"rhel", DNF},
		{"centos", DNF}, {"rocky", DNF}, {"almalinux", DNF}, {"amzn", DNF},
		{"suse", ZYPPER}, {"opensuse", ZYPPER}, {"sles", ZYPPER}, {"arch", PACMAN},
		{"manjaro", PACMAN}};
	enum manager found = MANAGERS;
	char path[DOCTOR_PATH_BYTES], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/etc/os-release", doctor->root);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		char *rest = line, *word;

		if (strncmp(line, "ID=", 3) != 0 && strncmp(line, "ID_LIKE=", 8) != 0)
			continue;
		strsep(&rest, "=");
		while ((word = strsep(&rest, " \"'\n")) != NULL)
			for (size_t i = 0; i < ARRAY_LEN(KNOWN) && found == MANAGERS; i++)
				if (!strcmp(word, KNOWN[i].word) ||
					(!strncmp(word, "opensuse-", 9) &&
						KNOWN[i].manager == ZYPPER))
					found = KNOWN[i].manager;
	}
	if (file)
		fclose(file);
	return found;
}

/* On PATH, or where system programs are, which PATH often omits. */
static bool is_there(const struct doctor *doctor, const char *program)
{
	static const char SYSTEM[] = "/usr/sbin:/sbin";
	const char *places[] = {getenv("PATH"), doctor->root[0] ? NULL : SYSTEM};
	char path[DOCTOR_PATH_BYTES];

	if (program[0] == '/') {
		snprintf(path, sizeof(path), "%s%s", doctor->root, program);
		return access(path, F_OK) == 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		for (const char *at = places[i]; at && *at;) {
			size_t len = strcspn(at, ":");

			snprintf(path, sizeof(path), "%.*s/%s", (int)len, at, program);
			if (len && access(path, X_OK) == 0)
				return true;
			at += len + (at[len] == ':');
		}
	return false;
}

static void append(char text[FINDING_TEXT_MAX], const char *before, const char *word)
{
	size_t len = strlen(text);

	snprintf(text + len, FINDING_TEXT_MAX - len, "%s%s", before, word);
}

void doctor_check_packages(struct doctor *doctor)
{
	enum manager manager = manager_of(doctor);
	char missing[FINDING_TEXT_MAX] = "", install[FINDING_TEXT_MAX] = "";
	struct finding *finding;

	for (size_t i = 0; i < ARRAY_LEN(PROGRAMS); i++) {
		const char *package = manager < MANAGERS ? PROGRAMS[i].packages[manager] : NULL;

		if (is_there(doctor, PROGRAMS[i].program))
			continue;
		append(missing, missing[0] ? ", " : "", PROGRAMS[i].program);
		append(missing, " (", PROGRAMS[i].what_for);
		append(missing, ")", "");
		if (package && !strstr(install, package))
			append(install, " ", package);
	}
	if (!missing[0]) {
		doctor_note(doctor, FINDING_OK, "tools",
			"the tools for RDMA and networks are installed");
		return;
	}
	finding = doctor_note(doctor, FINDING_INFO, "tools", "not installed: %s", missing);
	doctor_why(finding, "the server does not need them; they help to find faults");
	if (install[0])
		doctor_fix(finding, false, "%s%s", INSTALL[manager], install);
	else if (manager == MANAGERS)
		doctor_why(finding, "the server does not need them; they help to find faults; "
				    "doctor does not know this distribution's packages: rdma-core, "
				    "infiniband-diags, perftest, iproute2, ethtool, pciutils");
}
