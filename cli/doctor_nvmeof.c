/* cli/doctor_nvmeof.c: NVMe over Fabrics: the kernel's modules, this host's name, its connections,
 * and exports that no process holds. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "doctor.h"
#include "nvmeof/nvmeof.h"

static void check_module(struct doctor *doctor, const char *folder, const char *modules,
	const char *what_for, const char *absent)
{
	char path[DOCTOR_PATH_BYTES];
	struct finding *finding;

	snprintf(path, sizeof(path), "%s/module/%s", doctor->sysfs, folder);
	if (access(path, F_OK) == 0) {
		doctor_note(
			doctor, FINDING_OK, "nvmeof", "module %s is loaded (%s)", folder, what_for);
		return;
	}
	finding = doctor_note(
		doctor, FINDING_INFO, "nvmeof", "module %s is not loaded (%s)", folder, what_for);
	doctor_why(finding, "%s", absent);
	doctor_fix(finding, true, "modprobe -a %s", modules);
}

static void check_host(struct doctor *doctor)
{
	char etc[DOCTOR_PATH_BYTES];
	const struct nvmeof_place place = {.etc = etc};
	struct nvmeof_host host;
	struct finding *finding;
	int ret;

	snprintf(etc, sizeof(etc), "%s/etc", doctor->root);
	ret = nvmeof_host_find(&place, &host);
	if (ret) {
		finding = doctor_note(doctor, FINDING_INFO, "nvmeof",
			"this host has no NQN, the name by which targets allow it");
		doctor_fix(finding, false, "nvme gen-hostnqn > /etc/nvme/hostnqn");
		return;
	}
	doctor_note(doctor, FINDING_INFO, "nvmeof", "this host's NQN is %s (%s)", host.nqn,
		host.derived ? "from /etc/machine-id" : "/etc/nvme/hostnqn");
}

static void check_controller(struct doctor *doctor, const char *name)
{
	char transport[16], nqn[NVMEOF_NQN_BYTES], state[24];
	struct finding *finding;

	if (!doctor_sysfs(doctor, transport, sizeof(transport), "class/nvme/%s/transport", name) ||
		(strcmp(transport, "rdma") != 0 && strcmp(transport, "tcp") != 0) ||
		!doctor_sysfs(doctor, nqn, sizeof(nqn), "class/nvme/%s/subsysnqn", name) ||
		!doctor_sysfs(doctor, state, sizeof(state), "class/nvme/%s/state", name))
		return;
	if (strcmp(state, "live") == 0) {
		doctor_note(doctor, FINDING_OK, "nvmeof", "%s is connected to %s by %s", name, nqn,
			transport);
		return;
	}
	finding = doctor_note(doctor, FINDING_WARN, "nvmeof", "%s, to %s by %s, is %s", name, nqn,
		transport, state);
	doctor_why(finding, "the volume has one path less, or none: is its target running?");
}

static void check_export(struct doctor *doctor, const char *nqn)
{
	char model[64], enabled[8];

	if (!doctor_sysfs(doctor, model, sizeof(model),
		    "kernel/config/nvmet/subsystems/%s/attr_model", nqn) ||
		strcmp(model, NVMEOF_MODEL) != 0 ||
		!doctor_sysfs(doctor, enabled, sizeof(enabled),
			"kernel/config/nvmet/subsystems/%s/namespaces/1/enable", nqn))
		return;
	doctor_note(doctor, FINDING_INFO, "nvmeof", "the kernel exports %s for this program%s", nqn,
		enabled[0] == '1' ? "" : ", disabled");
}

void doctor_check_nvmeof(struct doctor *doctor)
{
	check_module(doctor, "nvme_fabrics", "nvme-fabrics nvme-rdma nvme-tcp",
		"volumes nvmeof://…", "no such volume can be connected");
	check_module(doctor, "nvmet", "nvmet nvmet-rdma nvmet-tcp", "volume serve --nvmeof",
		"the kernel exports no volume");
	check_host(doctor);
	doctor_each(doctor, "class/nvme", check_controller);
	doctor_each(doctor, "kernel/config/nvmet/subsystems", check_export);
}
