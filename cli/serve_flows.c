/* cli/serve_flows.c: a thread that starts flows, reads their counters from a pipe, and restarts
 * failed ones, after a longer delay each time. A flow ends when the thread ends, for any reason. */
#include "serve_flows.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flow_cmd.h"

#define ARGS_MAX	40u
#define ENV_MAX		512u
#define BACK_OFF_NS_MIN (1 * NS_PER_S)
#define BACK_OFF_NS_MAX (60 * NS_PER_S)
#define ENDPOINTS_BYTES (3 * CONFIG_TEXT_MAX)
#define END_NS_MAX	(20 * NS_PER_S) /* a flow that takes longer to end is killed */

/* The counters that a flow reports, then the server's own. */
enum count { COUNT_RUNNING = FLOW_COUNT_COUNT, COUNT_STARTS, COUNT_FAILURES, COUNT_COUNT };
static const struct {
	const char *name, *help;
} METRICS[COUNT_COUNT] = {
	[FLOW_BYTES] = {"nebulaio_flow_bytes_total", "Bytes that a flow moved."},
	[FLOW_PACKETS] = {"nebulaio_flow_packets_total", "Packets that a flow received."},
	[FLOW_LOST] = {"nebulaio_flow_lost_packets_total", "Packets that a flow lost."},
	[FLOW_BODIES] = {"nebulaio_flow_bodies_total", "Bodies that a flow stored completely."},
	[FLOW_RING_FULL] = {"nebulaio_flow_xdp_ring_full_total",
		"Packets lost because a receive ring was full."},
	[FLOW_FILL_EMPTY] = {"nebulaio_flow_xdp_fill_empty_total",
		"Times the kernel found no frame in a fill ring."},
	[FLOW_DROPPED] = {"nebulaio_flow_xdp_dropped_total",
		"Packets that AF_XDP dropped for other reasons, most often because no frame was "
		"free."},
	[FLOW_INVALID] = {"nebulaio_flow_xdp_invalid_total",
		"Descriptors that the kernel refused."},
	[FLOW_STAMPED] = {"nebulaio_flow_xdp_hardware_time_total",
		"Packets with a timestamp of the card."},
	[FLOW_MATCHED] = {"nebulaio_flow_filter_matched_total",
		"Packets that a rule of the filter matched."},
	[COUNT_RUNNING] = {"nebulaio_flow_running", "1 while a flow runs."},
	[COUNT_STARTS] = {"nebulaio_flow_starts_total", "Starts of a flow."},
	[COUNT_FAILURES] = {"nebulaio_flow_failures_total", "Ends of a flow that were failures."},
};

/* waits (start_ns is due) → runs (pid) → waits, or done */
struct flow_child {
	const struct config_flow *flow;
	pid_t pid;  /* 0: it does not run */
	int status; /* the read end of the pipe, nonblocking */
	char line[FLOW_STATUS_LINE_BYTES];
	size_t line_len;
	uint64_t seen[FLOW_STATUS_NUMBERS]; /* since its start */
	uint64_t start_ns; /* of the last start, or the next one; DEADLINE_NONE: never */
	uint64_t back_off_ns;
	char labels[48], took_labels[FLOW_TOOK_COUNT][64];
	struct counter counters[COUNT_COUNT]; /* these two stay in the registry */
	struct counter_hist took[FLOW_TOOK_COUNT];
};

static struct {
	struct flow_child children[CONFIG_FLOWS_MAX];
	uint32_t count;
	pthread_t thread;
	int stop_fd;
	bool started;
	char *env[ENV_MAX];
} flows;

/* ---- Command lines. ---- */

/* A flow's own keys, which go into its environment: every user of the host can read the command
 * line of a process. NULL: it has the server's. */
struct keys {
	const char *access, *secret;
};

/* The value of "--NAME=VALUE", where NAME is `name` or a beginning of it that getopt_long takes for
 * it; else NULL. */
static const char *value_of(const char *option, const char *name, size_t len_min)
{
	const size_t len = strcspn(option, "=");

	if (!option[len] || len < 2 + len_min || len > 2 + strlen(name) ||
		strncmp(option + 2, name, len - 2) != 0)
		return NULL;
	return option + len + 1;
}

/* storage holds the options, split at line ends. -E2BIG. -EEXIST: the keys and a profile before
 * them, which would win over the environment. */
static int args_make(const struct config_flow *flow, char *storage, size_t storage_bytes,
	char *args[ARGS_MAX], struct keys *ret_keys)
{
	struct keys keys = {NULL, NULL};
	bool profile = false;
	int count = 0;
	char *rest = storage;

	snprintf(storage, storage_bytes, "%s", flow->options);
	args[count++] = (char *)"flow";
	args[count++] = (char *)"--quiet";
	args[count++] = (char *)"--from";
	args[count++] = (char *)flow->from;
	args[count++] = (char *)"--to";
	args[count++] = (char *)flow->to;
	while (rest && *rest && count < (int)ARGS_MAX - 2) {
		char *option = strsep(&rest, "\n");
		const char *access = value_of(option, "access-key", 1);
		const char *secret = value_of(option, "secret-key", 4); /* "sec" may be "seconds" */

		if ((access || secret) && profile)
			return -EEXIST;
		keys.access = access ? access : keys.access;
		keys.secret = secret ? secret : keys.secret;
		profile = profile || value_of(option, "profile", 1);
		if (!access && !secret)
			args[count++] = option;
	}
	args[count] = NULL;
	*ret_keys = keys;
	return rest && *rest ? -E2BIG : count;
}

static const char *args_fault(int error)
{
	if (error == -EEXIST)
		return ": access-key and secret-key stand before profile, or in it";
	return error ? ": too many options" : "";
}

int serve_flows_check(const struct config *config)
{
	for (uint32_t i = 0; i < config->flow_count; i++) {
		char storage[sizeof(config->flows[i].options)], *args[ARGS_MAX];
		struct keys keys;
		int count = args_make(&config->flows[i], storage, sizeof(storage), args, &keys);

		if (count >= 0 && flow_args_check(count, args) == CLI_OK)
			continue;
		fprintf(stderr, "nebulaio serve: the flow '%s' of the configuration is invalid%s\n",
			config->flows[i].name, args_fault(MIN(count, 0)));
		return CLI_USAGE;
	}
	return CLI_OK;
}

#define ACCESS_KEY_ENV "NEBULAIO_ACCESS_KEY"
#define SECRET_KEY_ENV "NEBULAIO_SECRET_KEY"

static void env_add(const char *name, const char *value)
{
	size_t count = 0;

	while (flows.env[count])
		count++;
	if (count + 1 < ENV_MAX && asprintf(&flows.env[count], "%s=%s", name, value) < 0)
		flows.env[count] = NULL;
}

/* Adds where the server listens, HOST:PORT or [HOST]:PORT without the port, to the endpoints. Only
 * the server can answer there: loopback takes the place of "all addresses", and of a name that
 * could mean another of loopback's addresses. */
static void endpoint_add(char *endpoints, const char *scheme, const char *host, uint16_t port)
{
	size_t len = strlen(endpoints);
	struct in6_addr v6;
	struct in_addr v4;

	if (!*host || !strcmp(host, "localhost") ||
		(inet_pton(AF_INET, host, &v4) == 1 && v4.s_addr == INADDR_ANY))
		host = "127.0.0.1";
	else if (inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6))
		host = "::1";
	snprintf(endpoints + len, ENDPOINTS_BYTES - len,
		strchr(host, ':') ? "%s%s://[%s]:%u" : "%s%s://%s:%u", len ? "," : "", scheme, host,
		port);
}

/* The same for an address with its port, of which the kernel may have chosen another. */
static void endpoint_add_at(char *endpoints, const char *scheme, const char *address, uint16_t port)
{
	struct slice host = slice_str(address);
	char text[CONFIG_TEXT_MAX];

	if (slice_starts(host, SLICE("["))) {
		host = slice_from(host, 1);
		host = slice_split(&host, ']');
	} else {
		host = slice_split(&host, ':');
	}
	if (slice_copy_str(host, text, sizeof(text)) == 0)
		endpoint_add(endpoints, scheme, text, port);
}

/* Flows are clients of the server, so they do not get the server's own variables. */
static void env_make(const struct config *config, const struct server *server)
{
	static const char *const OURS[] = {"NEBULAIO_", "AWS_"};
	uint16_t rdma_port = server_rdma_port(server);
	char endpoints[ENDPOINTS_BYTES] = "";
	size_t count = 0;

	for (char **at = environ; *at && count + 8 < ENV_MAX; at++) {
		if (strncmp(*at, OURS[0], strlen(OURS[0])) &&
			strncmp(*at, OURS[1], strlen(OURS[1])))
			flows.env[count++] = strdup(*at);
	}
	flows.env[count] = NULL;
	/* Without any endpoint a client would try the usual ones. */
	if (config->rdma.enabled)
		endpoint_add(endpoints, "rdma", config->rdma.address,
			rdma_port ? rdma_port : (uint16_t)config->rdma.port);
	if (config->http.address[0])
		endpoint_add_at(endpoints, "http", config->http.address, server_http_port(server));
	else if (config->https.address[0])
		endpoint_add_at(
			endpoints, "https", config->https.address, server_https_port(server));
	env_add("NEBULAIO_ENDPOINT", endpoints);
	env_add(ACCESS_KEY_ENV, config->auth.root_user);
	env_add(SECRET_KEY_ENV, config->auth.root_password);
	if (config->rdma.device_name[0])
		env_add("NEBULAIO_RDMA_DEVICE_NAME", config->rdma.device_name);
	env_add("NEBULAIO_LOG_FORMAT", config->log_format);
}

/* ---- One flow. ---- */

/* The environment of one flow: the common one, with its keys in the place of the server's. */
struct child_env {
	char access[sizeof(ACCESS_KEY_ENV) + CONFIG_FLOW_OPTIONS_BYTES];
	char secret[sizeof(SECRET_KEY_ENV) + CONFIG_FLOW_OPTIONS_BYTES];
	char *list[ENV_MAX];
};

static void child_env_make(const struct keys *keys, struct child_env *ret_env)
{
	const struct {
		const char *name, *value;
		char *text;
		size_t text_bytes;
	} OWN[] = {
		{ACCESS_KEY_ENV "=", keys->access, ret_env->access, sizeof(ret_env->access)},
		{SECRET_KEY_ENV "=", keys->secret, ret_env->secret, sizeof(ret_env->secret)},
	};
	size_t i = 0;

	for (; flows.env[i]; i++) {
		ret_env->list[i] = flows.env[i];
		for (size_t k = 0; k < ARRAY_LEN(OWN); k++) {
			if (!OWN[k].value ||
				strncmp(flows.env[i], OWN[k].name, strlen(OWN[k].name)))
				continue;
			snprintf(OWN[k].text, OWN[k].text_bytes, "%s%s", OWN[k].name, OWN[k].value);
			ret_env->list[i] = OWN[k].text;
		}
	}
	ret_env->list[i] = NULL;
}

/* In the child, between fork and exec: system calls only. */
static void child_become(char *const *args, char *const *env, int status, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent &&
		fcntl(status, F_SETFD, 0) == 0)
		execve("/proc/self/exe", args, env);
	_exit(CLI_FAILED);
}

static void child_fails(struct flow_child *child, uint64_t now_ns, const char *why)
{
	child->back_off_ns = child->back_off_ns && now_ns - child->start_ns < BACK_OFF_NS_MAX
				     ? MIN(2 * child->back_off_ns, BACK_OFF_NS_MAX)
				     : BACK_OFF_NS_MIN;
	child->start_ns = now_ns + child->back_off_ns;
	counter_add(&child->counters[COUNT_FAILURES], 1);
	log_warn("flows", "%s: %s; again in %llu s", child->flow->name, why,
		(unsigned long long)(child->back_off_ns / NS_PER_S));
}

static void child_start(struct flow_child *child, uint64_t now_ns)
{
	char storage[sizeof(child->flow->options)], number[32], *args[ARGS_MAX + 3];
	struct child_env env;
	struct keys keys;
	pid_t parent = getpid();
	int ends[2], count;

	args[0] = (char *)"nebulaio";
	count = args_make(child->flow, storage, sizeof(storage), &args[1], &keys);
	CHECK(count > 0);
	child_env_make(&keys, &env);
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
		child_fails(child, now_ns, strerror(errno));
		return;
	}
	snprintf(number, sizeof(number), "--status-fd=%d", ends[1]);
	args[count + 1] = number;
	args[count + 2] = NULL;
	child->pid = fork();
	if (child->pid == 0)
		child_become(args, env.list, ends[1], parent);
	secret_wipe(env.secret, sizeof(env.secret));
	secret_wipe(storage, sizeof(storage));
	close(ends[1]);
	if (child->pid < 0) {
		child->pid = 0;
		close(ends[0]);
		child_fails(child, now_ns, strerror(errno));
		return;
	}
	child->status = ends[0];
	child->line_len = 0;
	child->start_ns = now_ns;
	memset(child->seen, 0, sizeof(child->seen));
	counter_add(&child->counters[COUNT_STARTS], 1);
	counter_add(&child->counters[COUNT_RUNNING], 1);
	log_info("flows", "%s: started, process %d", child->flow->name, (int)child->pid);
}

static void line_take(struct flow_child *child)
{
	uint64_t grown[FLOW_STATUS_NUMBERS];
	const char *at = child->line;

	for (uint32_t i = 0; i < FLOW_STATUS_NUMBERS; i++) {
		char *end;
		uint64_t now = strtoull(at, &end, 10);

		if (end == at)
			return;
		at = end;
		if (now < child->seen[i]) /* the flow read new rules, whose counts begin at 0 */
			child->seen[i] = 0;
		grown[i] = now - child->seen[i];
		child->seen[i] = now;
	}
	for (uint32_t i = 0; i < FLOW_COUNT_COUNT; i++)
		counter_add(&child->counters[i], grown[i]);
	for (uint32_t i = 0; i < FLOW_TOOK_COUNT; i++)
		counter_hist_add_values(
			&child->took[i], &grown[FLOW_COUNT_COUNT + i * COUNTER_HIST_PLACES]);
}

static void child_ended(struct flow_child *child, bool stopping)
{
	uint64_t now_ns = clock_now_ns();
	char why[64];
	int status = 0;

	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	close(child->status);
	child->pid = 0;
	counter_sub(&child->counters[COUNT_RUNNING], 1);
	if (WIFSIGNALED(status))
		snprintf(why, sizeof(why), "killed by SIG%s", sigabbrev_np(WTERMSIG(status)));
	else
		snprintf(why, sizeof(why), "ended with code %d", WEXITSTATUS(status));
	if (stopping || (status == 0 && !child->flow->always)) {
		child->start_ns = DEADLINE_NONE;
		log_info("flows", "%s: %s", child->flow->name, why);
	} else if (status == 0) {
		child->back_off_ns = 0;
		child->start_ns = now_ns + BACK_OFF_NS_MIN;
	} else {
		child_fails(child, now_ns, why);
	}
}

/* Reads the child's counters; the child's end of the pipe closes when the child ends. */
static void child_read(struct flow_child *child, bool stopping)
{
	char chunk[256];
	ssize_t got;

	while ((got = read(child->status, chunk, sizeof(chunk))) > 0) {
		for (ssize_t i = 0; i < got; i++) {
			if (chunk[i] != '\n' && child->line_len + 1 < sizeof(child->line)) {
				child->line[child->line_len++] = chunk[i];
				continue;
			}
			child->line[child->line_len] = '\0';
			child->line_len = 0;
			line_take(child);
		}
	}
	if (got == 0)
		child_ended(child, stopping);
}

/* ---- All flows. ---- */

static int patience_ms(uint64_t now_ns)
{
	uint64_t due_ns = DEADLINE_NONE;

	for (uint32_t i = 0; i < flows.count; i++) {
		if (!flows.children[i].pid)
			due_ns = MIN(due_ns, flows.children[i].start_ns);
	}
	if (due_ns == DEADLINE_NONE)
		return -1;
	return due_ns > now_ns ? (int)((due_ns - now_ns) / NS_PER_MS) + 1 : 0;
}

static void child_stop(struct flow_child *child)
{
	struct pollfd fd = {.events = POLLIN};
	uint64_t deadline_ns = clock_now_ns() + END_NS_MAX, now_ns;

	if (child->pid)
		kill(child->pid, SIGTERM);
	while (child->pid) {
		fd.fd = child->status;
		now_ns = clock_now_ns();
		if (now_ns >= deadline_ns) {
			log_warn("flows", "%s does not end: the server killed it",
				child->flow->name);
			kill(child->pid, SIGKILL);
			deadline_ns = DEADLINE_NONE;
		}
		poll(&fd, 1, 100);
		child_read(child, true);
	}
}

static void *watch(void *arg)
{
	struct pollfd fds[CONFIG_FLOWS_MAX + 1];

	(void)arg;
	do {
		uint64_t now_ns = clock_now_ns();

		for (uint32_t i = 0; i < flows.count; i++) {
			struct flow_child *child = &flows.children[i];

			if (!child->pid && child->start_ns <= now_ns)
				child_start(child, now_ns);
			fds[i + 1] = (struct pollfd){
				.fd = child->pid ? child->status : -1, .events = POLLIN};
		}
		fds[0] = (struct pollfd){.fd = flows.stop_fd, .events = POLLIN};
		if (poll(fds, flows.count + 1, patience_ms(now_ns)) < 0)
			continue;
		for (uint32_t i = 0; i < flows.count; i++) {
			if (fds[i + 1].revents)
				child_read(&flows.children[i], false);
		}
	} while (!(fds[0].revents & POLLIN));
	for (uint32_t i = flows.count; i-- > 0;)
		child_stop(&flows.children[i]);
	return NULL;
}

int serve_flows_start(const struct config *config, const struct server *server)
{
	flows.stop_fd = eventfd(0, EFD_CLOEXEC);
	if (flows.stop_fd < 0)
		return -errno;
	env_make(config, server);
	flows.count = config->flow_count;
	for (uint32_t i = 0; i < flows.count; i++) {
		struct flow_child *child = &flows.children[i];

		child->flow = &config->flows[i];
		snprintf(child->labels, sizeof(child->labels), "flow=\"%s\"", child->flow->name);
		for (uint32_t k = 0; k < COUNT_COUNT; k++) {
			child->counters[k] = (struct counter){.name = METRICS[k].name,
				.help = METRICS[k].help,
				.labels = child->labels};
			counter_register(&child->counters[k]);
		}
		for (uint32_t k = 0; k < FLOW_TOOK_COUNT; k++) {
			snprintf(child->took_labels[k], sizeof(child->took_labels[k]),
				"%s,to=\"%s\"", child->labels, flow_took_name((enum flow_took)k));
			child->took[k] = (struct counter_hist){
				.name = "nebulaio_flow_latency_seconds",
				.labels = child->took_labels[k],
				.help = "How long bytes of a flow took from their source to where "
					"they are durable, or to the peer's memory."};
			counter_hist_register(&child->took[k]);
		}
	}
	flows.started = pthread_create(&flows.thread, NULL, watch, NULL) == 0;
	return flows.started ? 0 : -EAGAIN;
}

void serve_flows_stop(void)
{
	uint64_t one = 1;

	if (!flows.started)
		return;
	if (write(flows.stop_fd, &one, sizeof(one)) != sizeof(one))
		log_error("flows", "cannot signal the flows to end: %s", strerror(errno));
	pthread_join(flows.thread, NULL);
	close(flows.stop_fd);
	flows.started = false;
	for (size_t i = 0; flows.env[i]; i++)
		free(flows.env[i]);
}
