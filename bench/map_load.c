/* bench/map_load.c: reads of objects as memory, and the same reads by GETs. */
#include "bench/map_load.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A touch out of order brings so much: each such part is touched once in a map. */
#define TOUCH_BYTES (64 * KIB)
/* A server that does not answer for this long ends a map. */
#define PATIENCE_NS (10 * NS_PER_S)

struct bench_map_load {
	struct bench_map_opts opts;
	struct neb_mapper *mapper;
	struct neb_map *map;   /* of the first object, in which parts are read */
	uint64_t touches;      /* of it */
	uint64_t copied_bytes; /* of maps that have ended */
	uint8_t *memory;       /* of GETs */
};

const char *bench_map_refused(void)
{
	int fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return "userfaultfd(2) is refused here";
	close(fd);
	return NULL;
}

int bench_map_load_open(const struct bench_map_opts *opts, struct bench_map_load **ret_load)
{
	const struct neb_mapper_options more = {
		.fault_bytes = TOUCH_BYTES, .patience_ns = PATIENCE_NS};
	struct bench_map_load *load = calloc(1, sizeof(*load));
	void *memory = NULL;
	int ret;

	if (!load)
		return -ENOMEM;
	load->opts = *opts;
	ret = opts->mapper ? neb_mapper_open(opts->mapper, &more, &load->mapper)
			   : neb_buffer_alloc(opts->client, opts->bytes, &memory);
	load->opts.mapper = NULL; /* not needed again */
	load->memory = memory;
	if (!ret && memory)
		memset(memory, 0, opts->bytes); /* so that its pages exist from now on */
	if (ret) {
		bench_map_load_close(load);
		return ret;
	}
	*ret_load = load;
	return 0;
}

static void map_end(struct bench_map_load *load)
{
	load->copied_bytes = bench_map_load_copied(load);
	neb_unmap(load->map);
	load->map = NULL;
	load->touches = 0;
}

void bench_map_load_close(struct bench_map_load *load)
{
	if (!load)
		return;
	map_end(load);
	neb_mapper_close(load->mapper);
	if (load->memory)
		neb_buffer_free(load->opts.client, load->memory);
	free(load);
}

uint64_t bench_map_load_copied(const struct bench_map_load *load)
{
	struct neb_map_stats stats = {0};

	if (load->map)
		neb_map_stats(load->map, &stats);
	return load->copied_bytes + stats.bytes_fetched;
}

/* ---- A read. ---- */

/* Touching a map that has ended. */
static sigjmp_buf gone;

static void on_bus(int number)
{
	(void)number;
	siglongjmp(gone, 1);
}

/* Looks at all bytes of a read. */
static int compare(const struct bench_map_load *load, uint64_t object_idx, uint64_t offset,
	const uint8_t *bytes)
{
	const struct bench_data *data = load->opts.data;

	if (load->opts.bytes == data->bytes)
		return bench_check_object(data, object_idx, bytes, data->bytes);
	return memcmp(bytes, data->pool + bench_data_offset(object_idx) + offset, load->opts.bytes)
		       ? -EBADMSG
		       : 0;
}

static int read_mapped(struct bench_map_load *load, uint64_t object_idx, uint64_t offset)
{
	const struct bench_data *data = load->opts.data;
	bool whole = load->opts.bytes == data->bytes;
	struct neb_result result;
	char key[BENCH_KEY_BYTES];
	int ret;

	if (!load->map) {
		ret = neb_map(load->mapper, load->opts.bucket,
			bench_data_key(data, object_idx, key), NULL, &load->map, &result);
		if (ret)
			return ret;
		if (neb_map_bytes(load->map) != data->bytes)
			return -EBADMSG;
	}
	if (sigsetjmp(gone, 0)) {
		ret = neb_map_error(load->map, NULL);
		return ret ? ret : -EFAULT;
	}
	ret = compare(load, object_idx, offset, (const uint8_t *)neb_map_data(load->map) + offset);
	if (whole || ++load->touches == data->bytes / TOUCH_BYTES)
		map_end(load);
	return ret;
}

static int read_by_get(struct bench_map_load *load, uint64_t object_idx, uint64_t offset)
{
	const struct neb_iov into = {.data = load->memory, .bytes = load->opts.bytes};
	char key[BENCH_KEY_BYTES];
	const struct neb_request request = {.op = NEB_GET_OBJECT,
		.bucket = load->opts.bucket,
		.key = bench_data_key(load->opts.data, object_idx, key),
		.into = &into,
		.into_count = 1,
		.range_offset = offset,
		.range_bytes = load->opts.bytes};
	struct neb_result result;
	int ret = neb_perform(load->opts.client, &request, &result);

	if (!ret && result.bytes != load->opts.bytes)
		return -EBADMSG;
	return ret ? ret : compare(load, object_idx, offset, load->memory);
}

/* The page of a part: another one in another place each time. */
static uint64_t part_offset(const struct bench_map_load *load, uint64_t turn)
{
	uint64_t places = load->opts.data->bytes / TOUCH_BYTES;
	uint64_t parts = TOUCH_BYTES / load->opts.bytes;

	return bench_data_pick(turn, (uint32_t)places) * TOUCH_BYTES +
	       turn % parts * load->opts.bytes;
}

uint64_t bench_map_load_run(
	struct bench_map_load *load, const struct bench_run_opts *opts, struct bench_result *result)
{
	const struct sigaction on = {.sa_handler = on_bus, .sa_flags = SA_NODEFER};
	const struct bench_data *data = load->opts.data;
	bool whole = load->opts.bytes == data->bytes;
	uint64_t begin_ns = clock_now_ns(), now_ns = begin_ns, since_ns, turn = opts->turn;
	struct sigaction before;
	struct bench_pace pace;

	sigaction(SIGBUS, &on, &before);
	bench_pace_start(&pace, opts, begin_ns);
	while (bench_pace_take(&pace, now_ns, &since_ns)) {
		uint64_t object_idx = whole ? bench_data_pick(turn, data->count) : 0;
		uint64_t offset = whole ? 0 : part_offset(load, turn);
		int ret = load->mapper ? read_mapped(load, object_idx, offset)
				       : read_by_get(load, object_idx, offset);

		turn++;
		now_ns = clock_now_ns();
		hist_add(result->hist, now_ns - since_ns);
		result->ops++;
		if (ret) {
			bench_result_error(result, "%s", strerror(-ret));
			map_end(load);
			continue;
		}
		result->bytes += load->opts.bytes;
		result->verified_ops++;
		result->verified_bytes += load->opts.bytes;
	}
	sigaction(SIGBUS, &before, NULL);
	result->elapsed_ns += now_ns - begin_ns;
	return turn;
}
