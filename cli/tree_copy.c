/* cli/tree_copy.c: runs many transfers at a time, each worker a thread with its own client. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "transfer.h"
#include "tree.h"
#include "written.h"

#define PATH_BYTES 8192

int tree_workers_parse(const struct cli_command *command, const char *text, unsigned *ret_workers)
{
	char *end;
	unsigned long workers = strtoul(text, &end, 10);

	if (*end || workers < 1 || workers > TREE_WORKERS_MAX)
		return cli_usage_error(command, "--parallel: '%s' is not a number from 1 to %u",
			text, TREE_WORKERS_MAX);
	*ret_workers = (unsigned)workers;
	return CLI_OK;
}

struct workers {
	struct tree_copy *copy;
	struct written written; /* of a target that is a folder */
	atomic_size_t next;
	pthread_mutex_t mutex; /* guards the fields below */
	struct progress progress;
	int worst;
};

/* A key may be any text, but a file must stay below its folder. */
static bool name_is_safe(const char *name)
{
	const char *at = name;

	if (*at == '/' || !*at)
		return false;
	while (*at) {
		size_t len = strcspn(at, "/");

		if (len == 0 || (len == 1 && *at == '.') || (len == 2 && !strncmp(at, "..", 2)))
			return false;
		at += len + (at[len] == '/');
	}
	return name[strlen(name) - 1] != '/';
}

static int folders_make(char *path, bool durable)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int ret;

		*slash = '\0';
		if (mkdir(path, 0777))
			ret = errno == EEXIST ? 0 : -errno;
		else
			ret = durable ? file_parent_sync(path) : 0;
		*slash = '/';
		if (ret) {
			fprintf(stderr, "nebulaio: %s: %s\n", remote_text(path), strerror(-ret));
			return CLI_FAILED;
		}
	}
	return CLI_OK;
}

static int fetch(
	struct transfer *transfer, const struct tree_place *to, const struct tree_item *item)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = item->time_s}};
	char path[PATH_BYTES];
	size_t len;
	int ret;

	if (!name_is_safe(item->name)) {
		fprintf(stderr, "nebulaio: %s: cannot be a file name below %s: skipped\n",
			remote_text(transfer->key), to->prefix);
		return CLI_FAILED;
	}
	if (snprintf(path, sizeof(path), "%s/%s", to->prefix, item->name) >= (int)sizeof(path)) {
		fprintf(stderr, "nebulaio: %s: the file's name is too long\n",
			remote_text(transfer->key));
		return CLI_FAILED;
	}
	if (!written_name_is_own(path, strlen(to->prefix), &len)) {
		path[len] = '\0';
		fprintf(stderr,
			"nebulaio: %s: this file system has %s by another name, which it takes for "
			"the same: skipped\n",
			remote_text(transfer->key), remote_text(path));
		return CLI_FAILED;
	}
	ret = folders_make(path, transfer->move);
	if (!ret)
		ret = transfer_to_file(transfer, path);
	/* Gives the file the time of the object, so that the next mirror sees no change. */
	if (!ret && item->time_s)
		utimensat(AT_FDCWD, path, times, 0);
	return ret;
}

static void print_json(const struct transfer *transfer, const struct tree_copy *copy,
	const char *source, const struct tree_item *item)
{
	char name[PATH_BYTES + 128];

	flockfile(stdout);
	snprintf(name, sizeof(name), "%s%s%s%s", copy->from.bucket ? "s3://" : "",
		copy->from.bucket ? copy->from.bucket : "", copy->from.bucket ? "/" : "", source);
	printf("{\"source\": ");
	remote_print_json(stdout, name);
	snprintf(name, sizeof(name), "%s%s%s%s%s", copy->to.bucket ? "s3://" : "",
		copy->to.bucket ? copy->to.bucket : "", copy->to.bucket ? "/" : "", copy->to.prefix,
		copy->to.bucket ? "" : "/");
	printf(", \"target\": ");
	strncat(name, item->name, sizeof(name) - strlen(name) - 1);
	remote_print_json(stdout, name);
	printf(", \"bytes\": %llu, \"transport\": \"%s\"", (unsigned long long)item->bytes,
		neb_transport_name(transfer->transport));
	if (transfer->fan_out) {
		printf(", \"fan_out\": ");
		remote_print_json(stdout, transfer->fan_out_role);
	}
	printf("}\n");
	funlockfile(stdout);
}

static void fan_out_print(const struct transfer *transfer, const char *source)
{
	fprintf(stderr, "%s: fan-out: %s\n", remote_text(source),
		remote_text(transfer_fan_out_text(transfer)));
}

static int copy_one(struct transfer *transfer, struct tree_copy *copy, const struct tree_item *item)
{
	const struct tree_place *from = &copy->from, *to = &copy->to;
	char source[PATH_BYTES], target[PATH_BYTES];
	int ret;

	if (snprintf(source, sizeof(source), "%s%s%s", from->prefix,
		    from->bucket || !*from->prefix ? "" : "/", item->name) >= (int)sizeof(source) ||
		snprintf(target, sizeof(target), "%s%s", to->prefix, item->name) >=
			(int)sizeof(target)) {
		fprintf(stderr, "nebulaio: %s: the name is too long\n", remote_text(item->name));
		return CLI_FAILED;
	}
	transfer->bucket = to->bucket ? to->bucket : from->bucket;
	transfer->key = to->bucket ? target : source;
	if (!to->bucket)
		ret = fetch(transfer, to, item);
	else if (from->bucket)
		ret = transfer_copy(transfer, from->bucket, source);
	else
		ret = transfer_from_file(transfer, source);
	if (!ret && copy->move)
		ret = transfer_source_delete(transfer, from->bucket, source);
	if (!ret && copy->opts->json)
		print_json(transfer, copy, source, item);
	else if (!ret && !copy->quiet)
		printf("%s%s%s%s\n", from->bucket ? "s3://" : "", from->bucket ? from->bucket : "",
			from->bucket ? "/" : "", remote_text(source));
	if (!ret && transfer->fan_out && !copy->quiet && !copy->opts->json)
		fan_out_print(transfer, source);
	if (copy->opts->verbose) {
		struct neb_result way = {.transport = transfer->transport};

		memcpy(way.fallback, transfer->fallback, sizeof(way.fallback));
		remote_report(copy->opts, source, &way);
	}
	return ret;
}

static void *worker_main(void *arg)
{
	struct workers *workers = arg;
	struct tree_copy *copy = workers->copy;
	struct neb_client *client = NULL;
	int ret = remote_open(copy->opts, &client);
	size_t i;

	if (ret) {
		pthread_mutex_lock(&workers->mutex);
		workers->worst = MAX(workers->worst, ret);
		pthread_mutex_unlock(&workers->mutex);
		return NULL;
	}
	while ((i = atomic_fetch_add(&workers->next, 1)) < copy->count) {
		const struct tree_item *item = copy->items[i];
		struct transfer transfer = {.client = client,
			.opts = copy->opts,
			.quiet = true,
			.headers = copy->headers,
			.md5 = copy->md5,
			.resume = copy->resume,
			.move = copy->move,
			.fan_out = copy->fan_out,
			.multicast = copy->multicast,
			.written = copy->to.bucket ? NULL : &workers->written};

		ret = copy_one(&transfer, copy, item);
		pthread_mutex_lock(&workers->mutex);
		workers->worst = MAX(workers->worst, ret);
		if (!ret) {
			copy->done++;
			copy->bytes += item->bytes;
		}
		progress_add(&workers->progress, item->bytes);
		pthread_mutex_unlock(&workers->mutex);
		/* No server answers, so the other transfers would fail, too. */
		if (ret == CLI_UNREACHABLE)
			break;
	}
	neb_client_close(client);
	return NULL;
}

int tree_copy(struct tree_copy *copy)
{
	struct workers workers = {.copy = copy, .mutex = PTHREAD_MUTEX_INITIALIZER};
	unsigned count = (unsigned)MIN((size_t)copy->workers, copy->count), started = 0;
	pthread_t threads[TREE_WORKERS_MAX];
	uint64_t total = 0;

	for (size_t i = 0; i < copy->count; i++)
		total += copy->items[i]->bytes;
	if (written_open(&workers.written, copy->to.bucket ? 0 : copy->count)) {
		fprintf(stderr, "nebulaio: no memory\n");
		return CLI_FAILED;
	}
	progress_start(&workers.progress, "copying", total);
	while (started < count &&
		pthread_create(&threads[started], NULL, worker_main, &workers) == 0)
		started++;
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	progress_end(&workers.progress);
	written_close(&workers.written);
	if (count && !started) {
		fprintf(stderr, "nebulaio: no thread for the transfers\n");
		return CLI_FAILED;
	}
	return workers.worst;
}

int tree_delete(struct neb_client *client, const struct tree_place *place, const char *name)
{
	char path[PATH_BYTES];
	struct neb_result result;

	snprintf(path, sizeof(path), "%s%s%s", place->prefix, place->bucket ? "" : "/", name);
	if (place->bucket)
		return neb_delete(client, place->bucket, path, &result)
			       ? remote_failed(path, &result)
			       : CLI_OK;
	if (unlink(path) == 0 || errno == ENOENT)
		return CLI_OK;
	fprintf(stderr, "nebulaio: %s: %s\n", remote_text(path), strerror(errno));
	return CLI_FAILED;
}
