/* bench/compare.c: reaches the other server, and prints how ours compares with it. */
#include "bench/compare.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "bench/report.h"

#define MUST	1.5
#define AIM	3.0
#define COLUMNS 118

/* "HOST:PORT" as the load takes it: the address in numbers. */
static int resolve(const char *compare, char *buf, size_t buf_bytes)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct slice port = slice_str(compare), host = slice_split(&port, ':');
	char name[256], number[8], address[INET_ADDRSTRLEN];
	struct addrinfo *found;
	struct sockaddr_in in;
	int ret;

	if (slice_copy_str(host, name, sizeof(name)) ||
		slice_copy_str(port, number, sizeof(number)) || !host.len || !port.len) {
		fprintf(stderr, "nebulaio bench: --compare: '%s' is not HOST:PORT\n", compare);
		return -EINVAL;
	}
	ret = getaddrinfo(name, number, &hints, &found);
	if (ret) {
		fprintf(stderr, "nebulaio bench: --compare: %s: %s\n", compare, gai_strerror(ret));
		return -EHOSTUNREACH;
	}
	memcpy(&in, found->ai_addr, sizeof(in));
	freeaddrinfo(found);
	inet_ntop(AF_INET, &in.sin_addr, address, sizeof(address));
	snprintf(buf, buf_bytes, "%s:%u", address, ntohs(in.sin_port));
	return 0;
}

int bench_compare_open(struct bench_rig *rig)
{
	struct bench_opts *opts = &rig->other_opts;
	char address[INET_ADDRSTRLEN + 8], endpoint[sizeof(address) + 8];
	int ret = resolve(rig->opts->compare, address, sizeof(address));

	if (ret)
		return ret;
	snprintf(endpoint, sizeof(endpoint), "http://%s", address);
	*opts = *rig->opts;
	opts->endpoints = endpoint;
	opts->metrics_address = NULL;
	opts->server_pid = rig->opts->compare_pid;
	opts->access_key = rig->opts->compare_access_key;
	opts->secret_key = rig->opts->compare_secret_key;
	opts->device_name = "simulated"; /* never used: the other server is asked by HTTP alone */
	ret = bench_target_open(&rig->other, opts, &rig->cpus, rig->folder);
	opts->endpoints = NULL;
	if (ret)
		fprintf(stderr, "nebulaio bench: --compare: cannot use the server at %s\n",
			rig->opts->compare);
	return ret == -ECONNREFUSED ? -EHOSTUNREACH : ret;
}

static const char *verdict(double times, double limit, char buf[24])
{
	snprintf(buf, 24, ">= %.1f %s", limit, times >= limit ? "yes" : "NO");
	return buf;
}

static void print_row(const struct bench_record *ours, const struct bench_record *theirs)
{
	struct span times = bench_share(ours, theirs);
	char name[BENCH_NAME_BYTES], t[4][BENCH_TEXT_BYTES], v[2][24], range[48];

	printf("%-24s ", bench_subject_name(&ours->subject, name));
	if (!times.count) {
		printf("not measured: %s\n", theirs->failed[0] ? theirs->failed : ours->failed);
		return;
	}
	snprintf(range, sizeof(range), "(%.2f-%.2f)", times.min, times.max);
	printf("%9.2f %-16s %11s %11s %11s %11s  %-12s %-12s\n", times.median, range,
		bench_text_number(
			(double)ours->result.ops * 1e9 / (double)ours->result.elapsed_ns, t[0]),
		bench_text_number(
			(double)theirs->result.ops * 1e9 / (double)theirs->result.elapsed_ns, t[1]),
		bench_text_time((double)hist_quantile(&ours->hist, 0.5), t[2]),
		bench_text_time((double)hist_quantile(&theirs->hist, 0.5), t[3]),
		verdict(times.median, MUST, v[0]), verdict(times.median, AIM, v[1]));
}

void bench_compare_report(const struct bench_rig *rig, const struct bench_plan *plan)
{
	printf("\n%-24s %9s %-16s %11s %11s %11s %11s  %-12s %-12s\n", "beside the other server",
		"ours is", "times as fast", "ours, ops/s", "its, ops/s", "ours, p50", "its, p50",
		"must", "aim");
	for (int i = 0; i < COLUMNS; i++)
		putchar('-');
	putchar('\n');
	for (uint32_t g = 0; g < plan->group_count; g++) {
		const struct bench_record *ours = bench_group_way(&plan->groups[g], BENCH_HTTP);
		const struct bench_record *theirs = bench_group_way(&plan->groups[g], BENCH_OTHER);

		if (ours && theirs)
			print_row(ours, theirs);
	}
	if (!rig->target.client)
		printf("(ours by HTTP alone)\n");
	fflush(stdout);
}
