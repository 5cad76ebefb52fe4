/* server/hardware.c: checks whether this host has the hardware that the configuration asks for. */
#include "server/hardware.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "server/numa.h"

#define PATH_BYTES 512
#define NAME_BYTES 64

struct check {
	const struct config *config;
	const char *sysfs;
	hardware_fn *fn;
	void *arg;
	struct hardware_finding finding;
};

/* Begins a finding. told() ends it; told_how() ends it with a fix. */
static void find(struct check *check, const char *key, bool met, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void find(struct check *check, const char *key, bool met, const char *fmt, ...)
{
	struct hardware_finding *finding = &check->finding;
	va_list args;

	*finding = (struct hardware_finding){.key = key, .met = met};
	va_start(args, fmt);
	vsnprintf(finding->what, sizeof(finding->what), fmt, args);
	va_end(args);
}

static void told(struct check *check)
{
	check->fn(check->arg, &check->finding);
}

static void told_how(struct check *check, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void told_how(struct check *check, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(check->finding.fix, sizeof(check->finding.fix), fmt, args);
	va_end(args);
	check->fn(check->arg, &check->finding);
}

/* ---- Files. ---- */

static void path_of(const struct check *check, char path[PATH_BYTES], const char *fmt, va_list args)
	__attribute__((format(printf, 3, 0)));
static void path_of(const struct check *check, char path[PATH_BYTES], const char *fmt, va_list args)
{
	int len = snprintf(path, PATH_BYTES, "%s/", check->sysfs);

	vsnprintf(path + len, PATH_BYTES - (size_t)len, fmt, args);
}

static bool there(const struct check *check, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static bool there(const struct check *check, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list args;

	va_start(args, fmt);
	path_of(check, path, fmt, args);
	va_end(args);
	return access(path, F_OK) == 0;
}

/* The first line of a file below sysfs. */
static bool line_of(const struct check *check, char *buf, size_t buf_bytes, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static bool line_of(const struct check *check, char *buf, size_t buf_bytes, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list args;

	va_start(args, fmt);
	path_of(check, path, fmt, args);
	va_end(args);
	return file_line(path, buf, buf_bytes);
}

/* ---- The RDMA device of the configuration. ---- */

static bool simulated(const struct check *check)
{
	return strncmp(check->config->rdma.device_name, "simulated", 9) == 0;
}

/* Without port and GID index. */
static void device_name(const struct check *check, char *buf, size_t buf_bytes)
{
	struct slice rest = slice_str(check->config->rdma.device_name);

	if (slice_copy_str(slice_split(&rest, ':'), buf, buf_bytes))
		buf[0] = '\0';
}

static bool first_entry(const char *path, char *buf, size_t buf_bytes)
{
	struct dirent *entry;
	bool found = false;
	DIR *dir = opendir(path);

	while (dir && !found && (entry = readdir(dir)) != NULL)
		found = entry->d_name[0] != '.' &&
			slice_copy_str(slice_str(entry->d_name), buf, buf_bytes) == 0;
	if (dir)
		closedir(dir);
	return found;
}

/* The network interface below the device: of its PCI function, or as its first GID says. */
static bool device_interface(const struct check *check, char *buf, size_t buf_bytes)
{
	char device[NAME_BYTES], path[PATH_BYTES];
	unsigned port = check->config->rdma.ib_port ? (unsigned)check->config->rdma.ib_port : 1;

	device_name(check, device, sizeof(device));
	if (line_of(check, buf, buf_bytes, "class/infiniband/%s/ports/%u/gid_attrs/ndevs/0", device,
		    port))
		return true;
	snprintf(path, sizeof(path), "%s/class/infiniband/%s/device/net", check->sysfs, device);
	return first_entry(path, buf, buf_bytes);
}

/* ---- GPUDirect. ---- */

/* The server itself needs only ordinary RDMA: the client's card accesses the GPU. So this checks
 * only the path to the client. */
static void check_gpudirect(struct check *check)
{
	const char *key = "gpudirect.enabled";

	if (!check->config->gpudirect.enabled)
		return;
	if (!check->config->rdma.enabled) {
		find(check, key, false,
			"GPUDirect needs RDMA, which is off: bodies pass through the clients' "
			"host memory");
		told_how(check, "rdma.enabled: true");
		return;
	}
	if (simulated(check)) {
		find(check, key, false,
			"the simulated device does not reach GPU memory: clients copy GPU bodies "
			"through host memory, and count the copies");
		told_how(check, "rdma.device_name: an RDMA card");
		return;
	}
	find(check, key, true,
		"bodies move by %s directly to and from the memory of clients, including GPU "
		"memory",
		check->config->rdma.device_name);
	told(check);
	if (!there(check, "module/nvidia"))
		return; /* this host has no GPU, and needs none */
	if (there(check, "module/nvidia_peermem")) {
		find(check, key, true, "module nvidia_peermem is loaded");
		told(check);
	} else {
		find(check, key, false,
			"module nvidia_peermem is not loaded: clients on this host register GPU "
			"memory by dma-buf, if driver and kernel support it");
		told_how(check, "modprobe nvidia-peermem");
	}
}

/* ---- DPU. ---- */

static const struct {
	const char *id;
	const char *name;
} DPUS[] = {
	{"0xa2d2", "BlueField"},
	{"0xa2d6", "BlueField-2"},
	{"0xa2dc", "BlueField-3"},
	{"0xa2df", "BlueField-4"},
};

/* By the id of a PCI function in the folder that fmt names below sysfs; NULL: no DPU. */
static const char *dpu_at(const struct check *check, const char *folder)
{
	char vendor[16], id[16];

	if (!line_of(check, vendor, sizeof(vendor), "%s/vendor", folder) ||
		!line_of(check, id, sizeof(id), "%s/device", folder) ||
		strcmp(vendor, "0x15b3") != 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(DPUS); i++) {
		if (strcmp(id, DPUS[i].id) == 0)
			return DPUS[i].name;
	}
	return NULL;
}

static const char *dpu_find(const struct check *check, char *address, size_t address_bytes)
{
	const char *name = NULL;
	char path[PATH_BYTES];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/bus/pci/devices", check->sysfs);
	dir = opendir(path);
	while (dir && !name && (entry = readdir(dir)) != NULL) {
		char folder[300];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(folder, sizeof(folder), "bus/pci/devices/%s", entry->d_name);
		name = dpu_at(check, folder);
		if (name && slice_copy_str(slice_str(entry->d_name), address, address_bytes))
			name = NULL;
	}
	if (dir)
		closedir(dir);
	return name;
}

static void check_dpu_rdma(struct check *check)
{
	char device[NAME_BYTES], folder[PATH_BYTES];
	const char *name;

	device_name(check, device, sizeof(device));
	snprintf(folder, sizeof(folder), "class/infiniband/%s/device", device);
	name = simulated(check) ? NULL : dpu_at(check, folder);
	if (name) {
		find(check, "dpu.enable_rdma", true, "RDMA device %s belongs to the %s", device,
			name);
		told(check);
		return;
	}
	find(check, "dpu.enable_rdma", false,
		"RDMA device %s does not belong to a DPU: RDMA uses it nevertheless", device);
	told_how(check, "rdma.device_name: the DPU's device (ibv_devices lists them)");
}

/* Always reports, because the configuration asks for privacy: the server cannot see the keys of
 * line encryption. */
static void check_dpu_crypto(struct check *check, const char *name)
{
	find(check, "dpu.enable_crypto", false,
		name ? "the server cannot see whether the %s encrypts RDMA traffic; it gives it "
		       "plain text"
		     : "%sno DPU encrypts RDMA traffic",
		name ? name : "");
	told_how(check,
		"ip xfrm state add ... offload packet dev INTERFACE dir out   # IPsec in the "
		"card, both directions and both ends; then ip xfrm state");
}

static void check_dpu(struct check *check)
{
	char address[NAME_BYTES] = "";
	const char *name;

	if (!check->config->dpu.enabled) {
		if (check->config->dpu.enable_rdma || check->config->dpu.enable_crypto) {
			find(check, "dpu.enabled", false,
				"dpu.enabled is false: dpu.enable_rdma and dpu.enable_crypto have "
				"no effect");
			told_how(check, "dpu.enabled: true");
		}
		return;
	}
	name = dpu_find(check, address, sizeof(address));
	if (name) {
		find(check, "dpu.enabled", true, "%s at %s", name, address);
		told(check);
	} else {
		find(check, "dpu.enabled", false,
			"no BlueField DPU on this host's PCI bus: nothing is offloaded");
		told_how(check, "lspci -d 15b3:   # lists the devices");
	}
	if (check->config->dpu.enable_rdma)
		check_dpu_rdma(check);
	if (check->config->dpu.enable_crypto)
		check_dpu_crypto(check, name);
}

/* ---- The network below RoCE. ---- */

static void change_mtu(struct check *check, const char *interface, uint64_t from, uint64_t to)
{
	struct hardware_finding *finding = &check->finding;

	snprintf(finding->interface, sizeof(finding->interface), "%s", interface);
	snprintf(finding->undo, sizeof(finding->undo), "ip link set dev %s mtu %llu", interface,
		(unsigned long long)from);
	told_how(check, "ip link set dev %s mtu %llu", interface, (unsigned long long)to);
}

static void check_mtu(struct check *check, const char *interface)
{
	uint64_t want = check->config->network.mtu, mtu;
	char text[32];

	if (!want || !line_of(check, text, sizeof(text), "class/net/%s/mtu", interface) ||
		slice_to_u64(slice_str(text), &mtu))
		return;
	find(check, "network.mtu", mtu >= want, "%s has MTU %llu%s", interface,
		(unsigned long long)mtu, mtu >= want ? "" : ", less than network.mtu");
	if (mtu >= want)
		told(check);
	else
		change_mtu(check, interface, mtu, want);
}

static void check_pfc(struct check *check, const char *interface)
{
	unsigned priority = (unsigned)check->config->network.pfc.priority;
	const char *key = "network.pfc.enabled";
	char masks[16];
	struct hardware_dcb dcb;
	int ret;

	if (!check->config->network.pfc.enabled)
		return;
	ret = hardware_dcb(interface, &dcb);
	if (ret == 0 && !dcb.pfc_told)
		ret = -EOPNOTSUPP;
	if (ret == 0 && (dcb.pfc_priorities & 1u << priority)) {
		find(check, key, true, "%s: priority %u has flow control", interface, priority);
		told(check);
		return;
	}
	if (ret)
		find(check, key, false,
			"%s: cannot find out whether priority %u has flow control: %s", interface,
			priority, strerror(-ret));
	else
		find(check, key, false,
			"%s: priority %u has no flow control: RoCE packets may be dropped",
			interface, priority);
	for (unsigned i = 0; i < 8; i++) {
		masks[2 * i] = i == priority ? '1' : '0';
		masks[2 * i + 1] = i < 7 ? ',' : '\0';
	}
	told_how(check, "mlnx_qos -i %s --pfc %s   # or: dcb pfc set dev %s prio-pfc %u:on",
		interface, masks, interface, priority);
}

/* MLNX_OFED's files: the notification point sends congestion packets, and the reaction point obeys
 * them. Other drivers have no such files. */
static void check_ecn(struct check *check, const char *interface)
{
	static const char *const POINTS[] = {"roce_np", "roce_rp"};
	unsigned priority = (unsigned)check->config->network.pfc.priority;
	const char *key = "network.ecn.enabled";

	if (!check->config->network.ecn.enabled)
		return;
	for (size_t i = 0; i < ARRAY_LEN(POINTS); i++) {
		char text[16];

		if (!line_of(check, text, sizeof(text), "class/net/%s/ecn/%s/enable/%u", interface,
			    POINTS[i], priority)) {
			find(check, key, false,
				"%s: its driver does not report whether ECN (%s) is on", interface,
				POINTS[i]);
			told_how(check,
				"see mlxconfig and the driver's manual; it is on by default on "
				"most RoCE cards");
			continue;
		}
		find(check, key, text[0] == '1', "%s: ECN (%s) is %s for priority %u", interface,
			POINTS[i], text[0] == '1' ? "on" : "off", priority);
		if (text[0] == '1')
			told(check);
		else
			told_how(check, "echo 1 > /sys/class/net/%s/ecn/%s/enable/%u", interface,
				POINTS[i], priority);
	}
	find(check, "network.ecn.threshold", false,
		"the ECN marking threshold (%llu packets) is a setting of the switches: the "
		"server cannot check it",
		(unsigned long long)check->config->network.ecn.threshold);
	told_how(check, "set it on each switch between clients and server");
}

static void check_network(struct check *check)
{
	const struct config *config = check->config;
	const char *key = config->network.pfc.enabled	? "network.pfc.enabled"
			  : config->network.ecn.enabled ? "network.ecn.enabled"
							: "network.mtu";
	char interface[NAME_BYTES];

	if (!config->network.pfc.enabled && !config->network.ecn.enabled && !config->network.mtu)
		return;
	if (!config->rdma.enabled || simulated(check)) {
		find(check, key, false,
			"network.pfc, ecn and mtu apply to the network below RoCE, and %s: "
			"nothing was checked",
			config->rdma.enabled ? "the simulated device has none" : "RDMA is off");
		told_how(check, "rdma.enabled: true with rdma.device_name: a RoCE card");
		return;
	}
	if (!device_interface(check, interface, sizeof(interface))) {
		find(check, key, false,
			"no network interface belongs to %s (InfiniBand has none of these "
			"settings): nothing was checked",
			config->rdma.device_name);
		told_how(check, "rdma.device_name: a RoCE card");
		return;
	}
	check_mtu(check, interface);
	check_pfc(check, interface);
	check_ecn(check, interface);
}

/* ---- The memory node. ---- */

/* auto requires nothing. */
static void check_numa(struct check *check)
{
	const char *node = check->config->numa.node;
	bool apart = check->config->numa.memory_node[0] != '\0';
	struct numa_plan plan;
	int ret;

	if (!apart && (strcmp(node, "auto") == 0 || strcmp(node, "none") == 0))
		return;
	ret = numa_plan(check->config, check->sysfs, &plan);
	find(check, "numa.node", !ret, "%s", plan.why);
	if (ret)
		told_how(check,
			apart ? "numa.node: auto, without numa.memory_node" : "numa.node: auto");
	else
		told(check);
}

void hardware_check(const struct config *config, const char *sysfs, hardware_fn *fn, void *arg)
{
	struct check check = {.config = config, .sysfs = sysfs, .fn = fn, .arg = arg};

	check_numa(&check);
	check_gpudirect(&check);
	check_dpu(&check);
	check_network(&check);
}
