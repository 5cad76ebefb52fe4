/* cli/cmd_top.c: `nebulaio top`: shows a running server, flow or program with a region live: its
 * rings and frames through the shared mapping, its counters through /metrics. */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/board.h"
#include "region/region.h"
#include "remote.h"

static const char USAGE[] =
	"usage: nebulaio top [--pid PID] [--metrics HOST:PORT] [--once] [--json] [--interval S]\n"
	"\n"
	"Shows, every second, the activity of a process with a memory region: queue depths and\n"
	"rates of its rings, latencies and errors of the completions in them (a server's latency\n"
	"is counted in whole turns of its event loop), frames by owner, and the counters of\n"
	"/metrics: requests, bytes, cache hits, copies, and the settings that follow the load\n"
	"(docs/guide/tuning.md): how long event loops spin, the size of the cache. Flows,\n"
	"clients and programs with a region also publish counters of their own: AF_XDP, the\n"
	"rules of the packet filter, hits in a client's registration cache.\n"
	"\n"
	"  --pid PID            the process: `nebulaio serve`, `nebulaio flow`, a client, …\n"
	"                       (default: the only process of this host that has a region)\n"
	"  --metrics HOST:PORT  its metrics (127.0.0.1:9001; omitted when nothing answers)\n"
	"  --once               print one picture after one interval, then end\n"
	"  --interval SECONDS   1 to 3600 (1)\n"
	"  --json               print each picture as one line of JSON\n";

#define METRICS_BYTES_MAX (4 * MIB)
#define SERIES_MAX	  1024u
#define RINGS_MAX	  (2 * LIMIT_CORES_MAX)

struct series {
	char name[160];
	double value;
};

struct picture {
	uint64_t time_ns;
	struct region_recent rings[RINGS_MAX];
	uint32_t ring_count;
	uint64_t frames_total, frames_by_owner[OWNER_COUNT];
	struct series series[SERIES_MAX];
	uint32_t series_count;
};

struct top {
	int pid;
	const char *metrics;
	bool once, json;
	uint64_t interval_s;
	struct region_view *view; /* NULL: the process has no region */
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

/* ---- Metrics. ---- */

static int metrics_connect(const char *address)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	const struct timeval patience = {.tv_sec = 2};
	char host[128];
	const char *colon = strrchr(address, ':');
	int fd = -1;

	if (!colon)
		return -1;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	if (getaddrinfo(host, colon + 1, &hints, &found))
		return -1;
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
		if (connect(fd, found->ai_addr, found->ai_addrlen)) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(found);
	return fd;
}

/* Reads the whole answer, ended by a zero; NULL: there was none. */
static char *metrics_fetch(const char *address)
{
	static const char ASK[] =
		"GET /metrics HTTP/1.1\r\nHost: metrics\r\nConnection: close\r\n\r\n";
	int fd = metrics_connect(address);
	char *text;
	size_t len = 0;
	ssize_t got = 1;

	if (fd < 0)
		return NULL;
	text = malloc(METRICS_BYTES_MAX + 1);
	if (!text || send(fd, ASK, sizeof(ASK) - 1, MSG_NOSIGNAL) < 0)
		got = 0;
	while (got > 0 && len < METRICS_BYTES_MAX) {
		got = recv(fd, text + len, METRICS_BYTES_MAX - len, 0);
		len += got > 0 ? (size_t)got : 0;
	}
	close(fd);
	if (text)
		text[len] = '\0';
	return text;
}

/* A setting that follows the load: shown also when it is 0. */
static bool is_setting(const char *name)
{
	return !strncmp(name, "nebulaio_reactor_idle_spin_", 27) ||
	       !strcmp(name, "nebulaio_store_cache_bytes_max");
}

/* Parses lines of "name{labels} value"; leaves out zero values. */
static void metrics_take(struct picture *picture, char *text)
{
	char *line;

	while (text && (line = strsep(&text, "\n")) != NULL && picture->series_count < SERIES_MAX) {
		char *space = strrchr(line, ' ');
		struct series *series = &picture->series[picture->series_count];

		if (strncmp(line, "nebulaio_", 9) || !space)
			continue;
		series->value = strtod(space + 1, NULL);
		snprintf(series->name, sizeof(series->name), "%.*s", (int)(space - line), line);
		picture->series_count += series->value > 0 || is_setting(series->name);
	}
}

static double series_before(const struct picture *last, const char *name)
{
	for (uint32_t i = 0; i < last->series_count; i++) {
		if (!strcmp(last->series[i].name, name))
			return last->series[i].value;
	}
	return 0;
}

/* The counters that the process publishes in its memory, without a network address. */
static void board_take(struct picture *picture, int pid)
{
	struct board_entry entries[BOARD_ENTRIES_MAX];
	int count = board_read(pid, entries, ARRAY_LEN(entries));

	for (int i = 0; i < count && picture->series_count < SERIES_MAX; i++) {
		struct series *series = &picture->series[picture->series_count++];

		memcpy(series->name, entries[i].name, sizeof(entries[i].name));
		series->value = (double)entries[i].value;
	}
}

/* ---- One picture. ---- */

static void picture_take(const struct top *top, struct picture *picture)
{
	char *text = metrics_fetch(top->metrics);

	memset(picture, 0, sizeof(*picture));
	picture->time_ns = clock_now_ns();
	while (top->view && picture->ring_count + 2 <= RINGS_MAX &&
		region_view_recent(top->view, picture->ring_count / 2, false,
			&picture->rings[picture->ring_count]) == 0) {
		region_view_recent(top->view, picture->ring_count / 2, true,
			&picture->rings[picture->ring_count + 1]);
		picture->ring_count += 2;
	}
	if (top->view)
		picture->frames_total = region_view_frames(top->view, picture->frames_by_owner);
	board_take(picture, top->pid);
	metrics_take(picture, text);
	free(text);
}

static bool is_rate(const char *name)
{
	const char *end = strchrnul(name, '{');

	return end - name > 6 && !strncmp(end - 6, "_total", 6);
}

/* Which counters of the board are shown: few, so that all fit on the screen. */
static bool is_shown(const char *name)
{
	return !strncmp(name, "nebulaio_xdp_", 13) || !strncmp(name, "nebulaio_client_", 16);
}

static void text_show(const struct top *top, const struct picture *now, const struct picture *last)
{
	double seconds = (double)(now->time_ns - last->time_ns) / (double)NS_PER_S;

	if (!top->once)
		printf("\033[H\033[2J");
	printf("process %d, over %.1f s\n\n%-10s %4s %11s %11s %12s %8s %9s %9s %9s\n", top->pid,
		seconds, "ring", "core", "submitting", "completing", "done/s", "errors", "p50 us",
		"p99 us", "max us");
	for (uint32_t i = 0; i < now->ring_count; i++) {
		const struct region_recent *ring = &now->rings[i];

		printf("%-10s %4u %5u/%-5u %5u/%-5u %12.0f %4u/%-4u %9.1f %9.1f %9.1f\n",
			i % 2 ? "rdma" : "base", i / 2, ring->submit_depth, ring->entries,
			ring->complete_depth, 2 * ring->entries,
			(double)(ring->completed - last->rings[i].completed) / seconds,
			ring->errors, ring->sampled, (double)ring->latency_p50_ns / 1e3,
			(double)ring->latency_p99_ns / 1e3, (double)ring->latency_max_ns / 1e3);
	}
	printf("\nframes of %llu:", (unsigned long long)now->frames_total);
	for (uint32_t i = 0; i < OWNER_COUNT; i++)
		printf("  %s %llu", region_owner_name((enum region_owner)i),
			(unsigned long long)now->frames_by_owner[i]);
	if (now->series_count)
		printf("\n\n%-64s %16s %14s\n", "metric", "value", "a second");
	else
		printf("\n\nno metrics: nothing answers at %s (--metrics HOST:PORT)\n",
			top->metrics);
	for (uint32_t i = 0; i < now->series_count; i++) {
		const struct series *series = &now->series[i];
		double rate = (series->value - series_before(last, series->name)) / seconds;

		if (is_rate(series->name) && (top->once || rate > 0 || is_shown(series->name)))
			printf("%-64s %16.0f %14.1f\n", series->name, series->value, rate);
		else if (!is_rate(series->name))
			printf("%-64s %16.0f\n", series->name, series->value);
	}
	fflush(stdout);
}

static void json_show(const struct top *top, const struct picture *now, const struct picture *last)
{
	double seconds = (double)(now->time_ns - last->time_ns) / (double)NS_PER_S;

	printf("{\"pid\":%d,\"seconds\":%.3f,\"rings\":[", top->pid, seconds);
	for (uint32_t i = 0; i < now->ring_count; i++) {
		const struct region_recent *ring = &now->rings[i];

		printf("%s{\"ring\":\"%s\",\"core\":%u,\"entries\":%u,\"submitting\":%u,"
		       "\"completing\":%u,\"submitted\":%llu,\"completed\":%llu,\"rate\":%.1f,"
		       "\"sampled\":%u,\"errors\":%u,\"timed\":%u,\"p50_ns\":%llu,\"p99_ns\":%llu,"
		       "\"max_ns\":%llu}",
			i ? "," : "", i % 2 ? "rdma" : "base", i / 2, ring->entries,
			ring->submit_depth, ring->complete_depth,
			(unsigned long long)ring->submitted, (unsigned long long)ring->completed,
			(double)(ring->completed - last->rings[i].completed) / seconds,
			ring->sampled, ring->errors, ring->timed,
			(unsigned long long)ring->latency_p50_ns,
			(unsigned long long)ring->latency_p99_ns,
			(unsigned long long)ring->latency_max_ns);
	}
	printf("],\"frames\":{\"total\":%llu", (unsigned long long)now->frames_total);
	for (uint32_t i = 0; i < OWNER_COUNT; i++)
		printf(",\"%s\":%llu", region_owner_name((enum region_owner)i),
			(unsigned long long)now->frames_by_owner[i]);
	printf("},\"metrics\":{");
	for (uint32_t i = 0; i < now->series_count; i++) {
		printf("%s", i ? "," : "");
		remote_print_json(stdout, now->series[i].name);
		printf(":%.0f", now->series[i].value);
	}
	printf("}}\n");
	fflush(stdout);
}

/* ---- The command. ---- */

static int watch(struct top *top)
{
	static struct picture pictures[2];
	uint32_t turn = 0;

	picture_take(top, &pictures[0]);
	do {
		struct timespec rest = {.tv_sec = (time_t)top->interval_s};
		struct picture *last = &pictures[turn % 2], *now = &pictures[++turn % 2];

		if (nanosleep(&rest, NULL) || ended)
			break;
		picture_take(top, now);
		if (top->json)
			json_show(top, now, last);
		else
			text_show(top, now, last);
		if (kill(top->pid, 0) && errno == ESRCH) {
			fprintf(stderr, "nebulaio top: process %d has ended\n", top->pid);
			return CLI_OK;
		}
	} while (!top->once && !ended);
	return CLI_OK;
}

static int options_take(struct top *top, int argc, char **argv)
{
	static const struct option OPTIONS[] = {
		{"pid", required_argument, NULL, 'p'},
		{"metrics", required_argument, NULL, 'm'},
		{"interval", required_argument, NULL, 'i'},
		{"once", no_argument, NULL, 'o'},
		{"json", no_argument, NULL, 'j'},
		{0},
	};
	int option;

	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == '?')
			return cli_usage_error(&CLI_TOP,
				"'%s' is not an option, or its value is missing", argv[optind - 1]);
		if (option == 'p' && (top->pid = atoi(optarg)) <= 0)
			return cli_usage_error(&CLI_TOP, "--pid: '%s' is not a process id", optarg);
		if (option == 'i' &&
			((top->interval_s = (uint64_t)atoi(optarg)) < 1 || top->interval_s > 3600))
			return cli_usage_error(&CLI_TOP, "--interval: 1 to 3600 seconds");
		if (option == 'm')
			top->metrics = optarg;
		top->once |= option == 'o';
		top->json |= option == 'j';
	}
	if (optind != argc)
		return cli_usage_error(&CLI_TOP, "'%s' is not an option", argv[optind]);
	return top->pid ? CLI_OK : cli_region_find(&CLI_TOP, &top->pid);
}

static int top_run(int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = on_signal};
	struct board_entry first;
	struct top top = {.metrics = "127.0.0.1:9001", .interval_s = 1};
	int ret = options_take(&top, argc, argv);

	if (ret)
		return ret;
	ret = region_view_open(top.pid, &top.view);
	if (ret == -ENOENT && board_read(top.pid, &first, 1) > 0)
		ret = 0; /* a client has counters but no region */
	if (ret) {
		fprintf(stderr, "nebulaio top: process %d: %s\n", top.pid,
			ret == -ENOENT ? "it has no region and publishes no counters"
				       : strerror(-ret));
		return ret == -ENOENT || ret == -ESRCH ? CLI_NOT_FOUND : CLI_DENIED;
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	ret = watch(&top);
	region_view_close(top.view);
	return ret;
}

const struct cli_command CLI_TOP = {
	.name = "top",
	.summary = "watch the rings, frames and counters of a running process",
	.usage = USAGE,
	.run = top_run,
};
