/* cli/cmd_serve.c: `nebulaio serve`: configuration in, server until a signal, orderly end. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backup.h"
#include "base/log_ring.h"
#include "cli.h"
#include "doctor.h"
#include "gateway/gateway.h"
#include "reactor/reactor.h"
#include "serve_flows.h"
#include "serve_replicate.h"
#include "server/server.h"

/* How often certificates are read again at least, which also renews the keys of session tickets. */
#define CERTIFICATE_AGE_NS_MAX (12 * 60 * 60 * NS_PER_S)
#define DEFAULT_RDMA_PORT      9100 /* the clients' default */
#define DEFAULT_HTTP_PORT      9000

static const char USAGE[] =
	"usage: nebulaio serve [--data DIR] [--volume PATH [--format]]\n"
	"                      [--http ADDR:PORT] [--https ADDR:PORT]\n"
	"                      [--rdma ADDR:PORT] [--config FILE] [--set KEY=VALUE]...\n"
	"                      [--accounts FILE] [--log-level LEVEL]\n"
	"\n"
	"Runs the server in the foreground until SIGTERM or SIGINT. Then it finishes the running\n"
	"requests and ends. It prints one line that begins with \"ready\" when it accepts work.\n"
	"It reads the certificate files again on SIGHUP and when they change.\n"
	"\n"
	"  --data DIR          folder of the store (created when absent; default ./data)\n"
	"  --volume PATH       where objects are stored: a file, a block device or an NVMe\n"
	"                      passthrough device (/dev/ng0n1); default a file in DIR;\n"
	"                      several (--volume A --volume B …): erasure coded over them\n"
	"  --format            destroy other data on PATH, but no store\n"
	"  --http ADDR:PORT    address of S3 over HTTP; port 0: any free port; \"off\": no HTTP\n"
	"  --https ADDR:PORT   address of S3 over HTTPS (https.certificate, https.key); \"off\":\n"
	"                      no HTTPS\n"
	"  --rdma ADDR:PORT    switch S3 over RDMA on, at this address; \"off\": no RDMA\n"
	"  --config FILE       YAML file; --help-config lists its keys\n"
	"  --accounts FILE     accounts, users and keys to create (auth.accounts_file)\n"
	"  --set KEY=VALUE     one key of the configuration, e.g. --set memory.bytes=2GiB\n"
	"  --log-level LEVEL   trace, debug, info, warn or error\n"
	"  --help-config       list every key with its default, bounds and meaning\n"
	"\n"
	"Later sources win: defaults, then the file, then environment variables\n"
	"(NEBULAIO_<SECTION>_<KEY>), then the command line. Without auth.root_user and\n"
	"auth.root_password the server runs the development profile: keys minioadmin/minioadmin,\n"
	"loopback only, RDMA on port 9100, HTTPS on port 9443 with a self-made certificate.\n";

static int print_config_help(void)
{
	for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
		const struct config_key *key = &CONFIG_KEYS[i];

		printf("%-26s %-16s %s", key->path, key->preset[0] ? key->preset : "(empty)",
			key->help);
		if (key->choices)
			printf(" (%s)", key->choices);
		printf("%s%s\n", key->not_yet ? "; " : "", key->not_yet ? key->not_yet : "");
	}
	return CLI_OK;
}

static int set(struct config *config, const char *path, const char *value, const char *where)
{
	struct config_error error;

	if (config_set(config, path, value, where, &error) == 0)
		return 0;
	fprintf(stderr, "nebulaio serve: %s\n", error.text);
	return -1;
}

/* "ADDR:PORT" or "off". */
static int set_rdma(struct config *config, const char *address)
{
	const char *colon = strrchr(address, ':');
	char host[CONFIG_TEXT_MAX];

	if (!strcmp(address, "off"))
		return set(config, "rdma.enabled", "false", "--rdma");
	if (!colon || (size_t)(colon - address) >= sizeof(host)) {
		fprintf(stderr, "nebulaio serve: --rdma: '%s' is not ADDR:PORT\n", address);
		return -1;
	}
	snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	return set(config, "rdma.enabled", "true", "--rdma") ||
			       set(config, "rdma.address", host, "--rdma") ||
			       set(config, "rdma.port", colon + 1, "--rdma")
		       ? -1
		       : 0;
}

/* Several --volume options name the volumes of one store. */
static char volume_list[CONFIG_LIST_MAX];

static int set_volume(struct config *config, const char *path)
{
	size_t len = strlen(volume_list);
	int n = snprintf(
		volume_list + len, sizeof(volume_list) - len, "%s%s", len ? "," : "", path);

	if (n < 0 || (size_t)n >= sizeof(volume_list) - len) {
		fprintf(stderr, "nebulaio serve: --volume: too long\n");
		return -1;
	}
	if (!strchr(volume_list, ','))
		return set(config, "storage.volume", volume_list, "--volume");
	return set(config, "storage.volume", "", "--volume") ||
			       set(config, "storage.volumes", volume_list, "--volume")
		       ? -1
		       : 0;
}

static int set_pair(struct config *config, const char *pair)
{
	const char *equals = strchr(pair, '=');
	char path[CONFIG_TEXT_MAX];

	if (!equals || (size_t)(equals - pair) >= sizeof(path)) {
		fprintf(stderr, "nebulaio serve: --set: '%s' is not KEY=VALUE\n", pair);
		return -1;
	}
	snprintf(path, sizeof(path), "%.*s", (int)(equals - pair), pair);
	return set(config, path, equals + 1, "--set");
}

enum {
	OPT_DATA = 1,
	OPT_VOLUME,
	OPT_FORMAT,
	OPT_HTTP,
	OPT_HTTPS,
	OPT_RDMA,
	OPT_CONFIG,
	OPT_SET,
	OPT_LOG,
	OPT_ACCOUNTS,
	OPT_HELP_CONFIG
};
static const struct option OPTIONS[] = {
	{"data", required_argument, NULL, OPT_DATA},
	{"volume", required_argument, NULL, OPT_VOLUME},
	{"format", no_argument, NULL, OPT_FORMAT},
	{"http", required_argument, NULL, OPT_HTTP},
	{"https", required_argument, NULL, OPT_HTTPS},
	{"rdma", required_argument, NULL, OPT_RDMA},
	{"config", required_argument, NULL, OPT_CONFIG},
	{"set", required_argument, NULL, OPT_SET},
	{"accounts", required_argument, NULL, OPT_ACCOUNTS},
	{"log-level", required_argument, NULL, OPT_LOG},
	{"help-config", no_argument, NULL, OPT_HELP_CONFIG},
	{0},
};

static int apply_option(struct config *config, int option, const char *value)
{
	switch (option) {
	case OPT_DATA:
		return set(config, "data.dir", value, "--data");
	case OPT_VOLUME:
		return set_volume(config, value);
	case OPT_FORMAT:
		return set(config, "storage.format", "true", "--format");
	case OPT_HTTP:
		return set(config, "http.address", strcmp(value, "off") ? value : "", "--http");
	case OPT_HTTPS:
		return set(config, "https.address", strcmp(value, "off") ? value : "", "--https");
	case OPT_RDMA:
		return set_rdma(config, value);
	case OPT_SET:
		return set_pair(config, value);
	case OPT_LOG:
		return set(config, "log_level", value, "--log-level");
	case OPT_ACCOUNTS:
		return set(config, "auth.accounts_file", value, "--accounts");
	default:
		return 0;
	}
}

/* Reads the command line twice: first for --config, which is applied before the environment, then
 * for all other options. */
static int configure(struct config *config, bool development, int argc, char **argv)
{
	struct config_error error;
	const char *file = NULL;
	int option;

	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == '?')
			return cli_usage_error(&CLI_SERVE,
				"'%s' is not an option, or its value is missing", argv[optind - 1]);
		if (option == OPT_HELP_CONFIG)
			exit(print_config_help());
		if (option == OPT_CONFIG)
			file = optarg;
	}
	if (optind < argc)
		return cli_usage_error(&CLI_SERVE, "unexpected argument '%s'", argv[optind]);
	config_defaults(config);
	volume_list[0] = '\0';
	if (!file)
		config_embed(config, development);
	if ((file && config_load_file(config, file, &error)) ||
		config_load_env(config, environ, &error)) {
		fprintf(stderr, "nebulaio serve: %s\n", error.text);
		return CLI_USAGE;
	}
	optind = 1;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (apply_option(config, option, optarg))
			return CLI_USAGE;
	}
	return CLI_OK;
}

/* Prints " http=ADDR:PORT", with the port that the kernel chose. */
static void print_where(const char *name, const char *address, uint16_t port)
{
	const char *colon = strrchr(address, ':');

	if (colon)
		printf(" %s=%.*s:%u", name, (int)(colon - address), address, port);
}

static void print_url(const char *scheme, const char *address, uint16_t port)
{
	const char *colon = strrchr(address, ':');

	printf("%s://%.*s:%u", scheme, (int)(colon - address), address, port);
}

static void print_ready(const struct config *config, const struct server *server)
{
	printf("ready");
	print_where("http", config->http.address, server_http_port(server));
	print_where("https", config->https.address, server_https_port(server));
	if (server_rdma_port(server))
		printf(" rdma=%s:%u device=%s",
			config->rdma.address[0] ? config->rdma.address : "0.0.0.0",
			server_rdma_port(server), server_rdma_device(server));
	print_where("admin", config->admin.address, server_admin_port(server));
	print_where("console", config->console.address, server_console_port(server));
	printf(" data=%s\n", config->data.dir);
	fflush(stdout);
}

/* Tells how to trust the server's self-signed certificate. */
static void print_welcome_https(const struct server *server)
{
	const char *file = server_https_self_signed(server);
	char fingerprint[128];

	if (!file)
		return;
	server_https_fingerprint(server, fingerprint, sizeof(fingerprint));
	printf("\n  Over HTTPS, with the server's self-made certificate (SHA-256\n  %s):\n  curl "
	       "--cacert %s --aws-sigv4 aws:amz:us-east-1:s3 --user minioadmin:minioadmin "
	       "https://localhost:%u/demo/README.md\n  AWS_CA_BUNDLE=%s aws --endpoint-url "
	       "https://localhost:%u s3 ls s3://demo\n",
		fingerprint, file, server_https_port(server), file, server_https_port(server));
}

/* Shows how to use the server with this program's commands, which need no other software. Omits the
 * address if the commands find the server without it. */
static void print_welcome_own(
	const struct config *config, const struct server *server, const char *http)
{
	const char *address = config->rdma.address[0] ? config->rdma.address : "127.0.0.1";
	bool rdma = server_rdma_port(server) != 0;
	char endpoint[2 * CONFIG_TEXT_MAX + 80] = "";

	if (rdma && (server_rdma_port(server) != DEFAULT_RDMA_PORT ||
			    server_http_port(server) != DEFAULT_HTTP_PORT))
		snprintf(endpoint, sizeof(endpoint), "--endpoint rdma://%s:%u,%s ", address,
			server_rdma_port(server), http);
	else if (!rdma)
		snprintf(endpoint, sizeof(endpoint), "--endpoint %s ", http);
	printf("  build/nebulaio mb %ss3://demo\n"
	       "  build/nebulaio cp %sREADME.md s3://demo/\n"
	       "  build/nebulaio ls %ss3://demo\n",
		endpoint, endpoint, endpoint);
	if (rdma)
		printf("  build/nebulaio cp --transport strict %ss3://demo/README.md "
		       "/tmp/README.md   # over RDMA (%s device)\n",
			endpoint, server_rdma_device(server));
}

/* The text that a newcomer sees after `make run`. */
static void print_welcome(const struct config *config, const struct server *server)
{
	const char *colon = strrchr(config->http.address, ':');
	char http[CONFIG_TEXT_MAX + 16] = "";

	if (!colon)
		return;
	snprintf(http, sizeof(http), "http://%.*s:%u", (int)(colon - config->http.address),
		config->http.address, server_http_port(server));
	printf("\n  DEVELOPMENT PROFILE: access key minioadmin, secret key minioadmin, loopback "
	       "only. These\n  keys are public; set NEBULAIO_ROOT_USER and "
	       "NEBULAIO_ROOT_PASSWORD before you serve other users.\n\nTry it from another "
	       "terminal:\n\n");
	print_welcome_own(config, server, http);
	printf("\n"
	       "With other clients (apt install awscli curl):\n"
	       "\n"
	       "  export AWS_ACCESS_KEY_ID=minioadmin AWS_SECRET_ACCESS_KEY=minioadmin "
	       "AWS_DEFAULT_REGION=us-east-1\n"
	       "  aws --endpoint-url %s s3 ls s3://demo\n"
	       "  curl --aws-sigv4 aws:amz:us-east-1:s3 --user minioadmin:minioadmin "
	       "%s/demo/README.md\n",
		http, http);
	if (server_https_port(server))
		print_welcome_https(server);
	if (server_console_port(server)) {
		printf("\nIn a browser:\n\n  ");
		print_url(config->console.https ? "https" : "http", config->console.address,
			server_console_port(server));
		printf("/   # the web console\n");
	}
	printf("\nCtrl-C ends it.\n");
	fflush(stdout);
}

/* Whether the terminal that the server was started from has been closed: that too is a SIGHUP. */
static bool terminal_gone(bool had_terminal)
{
	struct pollfd terminal = {.fd = STDIN_FILENO};

	return had_terminal && poll(&terminal, 1, 0) == 1 &&
	       (terminal.revents & (POLLHUP | POLLERR));
}

/* A server with a store, or a gateway. */
struct running {
	struct server *server;
	struct gateway *gateway;
	int signal_fd;
};

static void reload(const struct running *running, bool all)
{
	if (running->server)
		server_reload(running->server, all);
	else
		gateway_reload(running->gateway, all);
}

/* Reads files again on SIGHUP or when they change, until a signal ends the server; returns that
 * signal. */
static int await_end(const struct running *running)
{
	bool had_terminal = isatty(STDIN_FILENO);
	struct signalfd_siginfo info;
	struct pollfd fds[2] = {
		{.fd = running->signal_fd, .events = POLLIN},
		{.fd = running->server ? server_watch_fd(running->server)
				       : gateway_watch_fd(running->gateway),
			.events = POLLIN},
	};
	uint64_t due_ns = clock_now_ns() + CERTIFICATE_AGE_NS_MAX;
	int number = 0;

	while (!number) {
		uint64_t now_ns = clock_now_ns();
		int wait_ms = now_ns < due_ns ? (int)((due_ns - now_ns) / NS_PER_MS) + 1 : 0;

		if (poll(fds, ARRAY_LEN(fds), wait_ms) < 0)
			continue;
		/* Also while other files of a watched folder change all the time. */
		if (clock_now_ns() >= due_ns) {
			reload(running, true);
			due_ns = clock_now_ns() + CERTIFICATE_AGE_NS_MAX;
		} else if (fds[1].revents) {
			reload(running, false);
		}
		if (!fds[0].revents || read(fds[0].fd, &info, sizeof(info)) != sizeof(info))
			continue;
		if (info.ssi_signo != SIGHUP || terminal_gone(had_terminal))
			number = (int)info.ssi_signo;
		else
			reload(running, true);
	}
	close(running->signal_fd);
	return number;
}

/* Called before anything listens, whose connections could take the last descriptor. Negative: there
 * is none (logged). */
static int signals_open(sigset_t *ret_signals)
{
	int fd;

	sigemptyset(ret_signals);
	sigaddset(ret_signals, SIGTERM);
	sigaddset(ret_signals, SIGINT);
	sigaddset(ret_signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, ret_signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, ret_signals, SFD_CLOEXEC);
	if (fd < 0)
		log_error("server", "no descriptor for signals: %s", strerror(errno));
	return fd;
}

/* A second signal ends the program at once, but not SIGHUP: it asks for files to be read again,
 * which a server that ends need not do. */
static void signals_unblock(sigset_t *signals)
{
	sigdelset(signals, SIGHUP);
	pthread_sigmask(SIG_UNBLOCK, signals, NULL);
}

static int serve_until_signal(const struct config *config, bool development)
{
	struct server *server;
	sigset_t signals;
	int number, signal_fd = signals_open(&signals);

	if (signal_fd < 0)
		return CLI_FAILED;
	if (server_open(config, &server)) {
		fprintf(stderr,
			"nebulaio serve: the server did not start; the log lines above say why\n");
		return CLI_FAILED;
	}
	server_set_doctor(server, doctor_tell);
	server_set_sender(server, serve_sender(config));
	if (server_start(server)) {
		server_stop(server);
		server_close(server);
		return CLI_FAILED;
	}
	print_ready(config, server);
	if (config->flow_count && serve_flows_start(config, server))
		log_error("flows", "no memory or no thread: no flow runs");
	if (development)
		print_welcome(config, server);
	number = await_end(&(struct running){.server = server, .signal_fd = signal_fd});
	log_info("server", "SIG%s: finishing running requests", sigabbrev_np(number));
	serve_flows_stop();
	/* A store's process in a cluster may get SIGTERM from its gateway, from itself when the map
	 * gives the store away, and from the system; its gateway kills it when it lasts too long.
	 */
	if (config->cluster.store)
		sigdelset(&signals, SIGTERM);
	signals_unblock(&signals);
	server_stop(server);
	server_close(server);
	log_info("server", "stopped cleanly");
	return CLI_OK;
}

static int gateway_until_signal(const struct config *config, int option_count, char **options)
{
	const struct gateway_opts opts = {
		.config = config, .option_count = option_count, .options = options};
	struct gateway *gateway;
	sigset_t signals;
	int number, ret, signal_fd = signals_open(&signals);

	if (signal_fd < 0)
		return CLI_FAILED;
	if (gateway_open(&opts, &gateway)) {
		fprintf(stderr,
			"nebulaio serve: the gateway did not start; the log lines above say why\n");
		return CLI_FAILED;
	}
	ret = gateway_start(gateway);
	if (!ret) {
		printf("ready");
		print_where("http", config->http.address, gateway_http_port(gateway));
		print_where("https", config->https.address, gateway_https_port(gateway));
		print_where("admin", config->admin.address, gateway_admin_port(gateway));
		printf(" data=%s\n", config->data.dir);
		fflush(stdout);
		number = await_end(&(struct running){.gateway = gateway, .signal_fd = signal_fd});
		log_info("server", "SIG%s: handing the stores over, finishing running requests",
			sigabbrev_np(number));
		signals_unblock(&signals);
	}
	gateway_stop(gateway);
	gateway_close(gateway);
	if (!ret)
		log_info("server", "stopped cleanly");
	return ret ? CLI_FAILED : CLI_OK;
}

int serve_configure(struct config *config, int argc, char **argv)
{
	return configure(config, false, argc, argv);
}

static int serve_run(int argc, char **argv)
{
	static struct config config;
	struct config_error error;
	enum log_format format;
	enum log_level level;
	char device[512];
	bool development;
	int ret = configure(&config, false, argc, argv);

	if (ret)
		return ret;
	/* Only the server's user may read its files: data, keys, logs. */
	umask(077);
	development = !config.auth.root_user[0] && !config.auth.root_password[0];
	if (development) {
		/* Reads the configuration again, over that profile's defaults. */
		ret = configure(&config, true, argc, argv);
		if (ret)
			return ret;
		snprintf(config.auth.root_user, sizeof(config.auth.root_user),
			CONFIG_DEVELOPMENT_KEY);
		snprintf(config.auth.root_password, sizeof(config.auth.root_password),
			CONFIG_DEVELOPMENT_KEY);
	}
	if (config_check(&config, development, &error)) {
		bool missing = server_device_missing(&config, device, sizeof(device));

		fprintf(stderr, "nebulaio serve: %s%s%s\n", error.text, missing ? "\n  " : "",
			device);
		return CLI_USAGE;
	}
	if (serve_flows_check(&config))
		return CLI_USAGE;
	if (config.cluster.enabled && gateway_check(&config, &error)) {
		fprintf(stderr, "nebulaio serve: %s\n", error.text);
		return CLI_USAGE;
	}
	if (log_level_parse(config.log_level, &level))
		log_set_level(level);
	if (log_format_parse(config.log_format, &format))
		log_set_format(format, "server");
	log_set_request(fiber_request);
	if (!log_ring_open())
		log_warn("server", "no memory to keep lines of the log: GET /admin/v1/log and "
				   "the console show none");
	if (config.cluster.enabled)
		return gateway_until_signal(&config, argc - 1, argv + 1);
	return serve_until_signal(&config, development);
}

const struct cli_command CLI_SERVE = {
	.name = "serve",
	.summary = "run the server",
	.usage = USAGE,
	.run = serve_run,
};
