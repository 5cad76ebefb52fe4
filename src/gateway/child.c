/* gateway/child.c: the process of a store: `nebulaio serve` with the gateway's own options, and
 * some more. It ends when the gateway does. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWN_MAX		48u
#define BACK_OFF_NS_MIN NS_PER_S
#define BACK_OFF_NS_MAX (60 * NS_PER_S)
#define END_NS_MAX	(60 * NS_PER_S) /* after its own patience with requests */

struct args {
	char **list;
	int count;
	char texts[OWN_MAX][2 * CONFIG_TEXT_MAX];
	uint32_t used;
};

static void add(struct args *args, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct args *args, const char *fmt, ...)
{
	char *text = args->texts[args->used++];
	va_list values;

	CHECK(args->used <= OWN_MAX);
	va_start(values, fmt);
	vsnprintf(text, sizeof(args->texts[0]), fmt, values);
	va_end(values);
	args->list[args->count++] = text;
}

static void add_set(struct args *args, const char *key, const char *value)
{
	add(args, "--set");
	add(args, "%s=%s", key, value);
}

/* The gateway's options, then those of the store, which win. */
static void args_fill(const struct gateway *gateway, uint32_t number, struct args *args)
{
	const struct config *config = gateway->config;
	const char *address = config->cluster.address;
	bool v6 = strchr(address, ':') && address[0] != '[';
	char volume[64], text[24];

	cluster_volume_name(config->cluster.name, number, volume);
	args->list[args->count++] = (char *)(uintptr_t) "nebulaio";
	args->list[args->count++] = (char *)(uintptr_t) "serve";
	for (int i = 0; i < gateway->opts.option_count; i++)
		args->list[args->count++] = gateway->opts.options[i];
	add_set(args, "cluster.enabled", "false");
	add_set(args, "cluster.standby", "true");
	snprintf(text, sizeof(text), "%u", number + 1);
	add_set(args, "cluster.store", text);
	add_set(args, "cluster.gateway", gateway->name);
	add(args, "--data");
	add(args, "%s/store-%u", config->data.dir, number);
	add(args, "--volume");
	add(args, "rados://%s/%s%s%s", config->cluster.pool, volume,
		config->cluster.data_pool[0] ? "?data=" : "", config->cluster.data_pool);
	add_set(args, "storage.protect_index", "true");
	add_set(args, "auth.secrets_key_file", gateway->secrets_file);
	add(args, gateway->link_tls ? "--https" : "--http");
	add(args, v6 ? "[%s]:0" : "%s:0", address);
	add(args, gateway->link_tls ? "--http" : "--https");
	add(args, "off");
	/* Only gateways open links. */
	add_set(args, "https.certificate", gateway->link_file);
	add_set(args, "https.key", gateway->link_file);
	add_set(args, "https.client_ca", gateway->link_file);
	add_set(args, "https.groups", "auto");
	add(args, "--rdma");
	if (config->rdma.enabled)
		add(args, v6 ? "[%s]:0" : "%s:0", address);
	else
		add(args, "off");
	add_set(args, "rdma.discovery", "false");
	add_set(args, "admin.address", "127.0.0.1:0");
	add_set(args, "console.address", "");
	args->list[args->count] = NULL;
}

/* Between fork and exec: system calls only. */
static void become(char *const *list, int out, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* A group of its own: a terminal's Ctrl-C is for the gateway, which ends its processes. */
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent &&
		dup2(out, STDOUT_FILENO) >= 0 && setpgid(0, 0) == 0)
		execv("/proc/self/exe", list);
	_exit(127);
}

static void fails(struct gw_child *child, uint32_t number, const char *why)
{
	uint64_t now_ns = clock_now_ns();

	child->back_off_ns = child->back_off_ns && now_ns - child->begun_ns < BACK_OFF_NS_MAX
				     ? MIN(2 * child->back_off_ns, BACK_OFF_NS_MAX)
				     : BACK_OFF_NS_MIN;
	child->wait_until_ns = now_ns + child->back_off_ns;
	log_error("gateway", "the process of store %u %s; another is started in %llu s", number,
		why, (unsigned long long)(child->back_off_ns / NS_PER_S));
}

int gw_child_start(struct gateway *gateway, uint32_t number)
{
	struct gw_child *child = &gateway->children[number];
	struct args *args = calloc(1, sizeof(*args));
	pid_t parent = getpid();
	int ends[2] = {-1, -1}, ret = 0;

	if (args)
		args->list =
			calloc((size_t)gateway->opts.option_count + OWN_MAX + 4, sizeof(char *));
	if (!args || !args->list)
		ret = -ENOMEM;
	else if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		ret = -errno;
	if (!ret) {
		args_fill(gateway, number, args);
		child->pid = fork();
		if (child->pid == 0)
			become(args->list, ends[1], parent);
		ret = child->pid < 0 ? -errno : 0;
	}
	if (ends[1] >= 0)
		close(ends[1]);
	if (ret) {
		if (ends[0] >= 0)
			close(ends[0]);
		child->pid = 0;
		fails(child, number, strerror(-ret));
	} else {
		child->out = ends[0];
		child->ready = child->ending = false;
		child->begun_ns = clock_now_ns();
		child->line_len = 0;
		log_info("gateway", "store %u is ours: process %d opens it", number,
			(int)child->pid);
	}
	if (args)
		free(args->list);
	free(args);
	return ret;
}

static void field_take(const char *line, const char *name, char ret_addr[CLUSTER_ADDR_BYTES])
{
	const char *at = strstr(line, name);

	ret_addr[0] = '\0';
	if (at)
		slice_copy_str(slice_of(at + strlen(name), strcspn(at + strlen(name), " \n")),
			ret_addr, CLUSTER_ADDR_BYTES);
}

static void line_end(const struct gateway *gateway, struct gw_child *child)
{
	if (strncmp(child->line, "ready ", 6) == 0) {
		field_take(child->line, gateway->link_tls ? " https=" : " http=", child->http);
		field_take(child->line, " rdma=", child->rdma);
		field_take(child->line, " admin=", child->admin);
		child->ready = child->http[0];
	}
	child->line_len = 0;
}

static void output_read(const struct gateway *gateway, struct gw_child *child)
{
	char text[512];
	ssize_t got;

	while ((got = read(child->out, text, sizeof(text))) > 0) {
		for (ssize_t i = 0; i < got; i++) {
			if (child->line_len < sizeof(child->line) - 1)
				child->line[child->line_len++] = text[i];
			child->line[child->line_len] = '\0';
			if (text[i] == '\n')
				line_end(gateway, child);
		}
	}
}

void gw_child_look(struct gateway *gateway, uint32_t number)
{
	struct gw_child *child = &gateway->children[number];
	char why[64];
	int status;

	if (!child->pid)
		return;
	output_read(gateway, child);
	if (waitpid(child->pid, &status, WNOHANG) != child->pid)
		return;
	close(child->out);
	child->pid = 0;
	child->ready = false;
	if (child->ending) {
		log_info("gateway", "the process of store %u has ended", number);
		return;
	}
	if (WIFSIGNALED(status))
		snprintf(why, sizeof(why), "was killed by signal %d", WTERMSIG(status));
	else
		snprintf(why, sizeof(why), "ended with exit code %d", WEXITSTATUS(status));
	fails(child, number, why);
}

void gw_child_end(struct gw_child *child)
{
	uint64_t now_ns = clock_now_ns();

	if (!child->pid)
		return;
	if (!child->ending) {
		child->ending = true;
		child->killed_ns = now_ns;
		kill(child->pid, SIGTERM);
	} else if (now_ns - child->killed_ns > END_NS_MAX) {
		kill(child->pid, SIGKILL);
	}
}
