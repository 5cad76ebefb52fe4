#include "region_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "region/view_priv.h"

/* Views pid's region from another process; out gets its report. */
static int view_from_child(pid_t pid, bool json, char *out, size_t out_bytes)
{
	size_t len = 0;
	ssize_t got;
	int fds[2];
	int status;
	pid_t child;

	assert_int_equal(pipe(fds), 0);
	fflush(stdout);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct region_view *view;
		struct buf buf;
		int ret = region_view_open(pid, &view);

		close(fds[0]);
		if (ret < 0)
			_exit(-ret);
		buf_init(&buf, 1 * MIB);
		region_view_dump(view, json, &buf);
		region_view_close(view);
		if (buf.failed || write(fds[1], buf.data, buf.len) != (ssize_t)buf.len)
			_exit(255);
		buf_free(&buf);
		_exit(0);
	}
	close(fds[1]);
	while ((got = read(fds[0], out + len, out_bytes - 1 - len)) > 0)
		len += (size_t)got;
	out[len] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

static void expect_text(const char *out, const char *text)
{
	if (!strstr(out, text))
		fail_msg("expected \"%s\" in:\n%s", text, out);
}

static void test_seen_from_another_process(void **state)
{
	static char out[1 * MIB];
	struct region *region = region_test_open(8 * MIB);
	const struct region_mr mr = {.addr = 0x1000,
		.bytes = 8192,
		.lkey = 7,
		.rkey = 9,
		.access = 3,
		.device = "m\"x5"};
	const struct region_sqe sqe = {.opcode = REGION_OP_FLUSH};
	struct region_span span;
	uint32_t mr_idx;
	char pid[32];

	(void)state;
	assert_int_equal(region_mr_add(region, &mr, &mr_idx), 0);
	assert_int_equal(region_lease(region, 300, OWNER_DISK, &span), 0);
	assert_int_equal(region_submit(region_ring(region, 1), &sqe), 0);
	assert_int_equal(region_submit(region_ring(region, 1), &sqe), 0);

	assert_int_equal(view_from_child(getpid(), true, out, sizeof(out)), 0);
	snprintf(pid, sizeof(pid), "\"pid\":%d,", getpid());
	expect_text(out, pid);
	expect_text(out, "{\"name\":\"test\",");
	expect_text(out, "\"kind\":\"base-sq\",\"core\":1,\"head\":0,\"tail\":2,\"depth\":2,"
			 "\"entries\":8,\"total\":2}");
	expect_text(out, "\"kind\":\"rdma-cq\",\"core\":0,\"head\":0,\"tail\":0,\"depth\":0,"
			 "\"entries\":16,\"total\":0}");
	/* A quotation mark in a name must not end the string. */
	expect_text(out, "\"addr\":4096,\"bytes\":8192,\"lkey\":7,\"rkey\":9,\"access\":3,"
			 "\"device\":\"m?x5\"}");
	expect_text(out, "\"frames\":{\"total\":2048,\"by_owner\":{\"free\":1748,\"app\":0,"
			 "\"rdma\":0,\"xdp\":0,\"disk\":300,");
	expect_text(out, "\"unclear\":0,\"spans\":1,\"cached\":0,\"lease_failures\":0,"
			 "\"largest_free_order\":10,");

	assert_int_equal(view_from_child(getpid(), false, out, sizeof(out)), 0);
	expect_text(out, "region test of process");
	expect_text(out, "disk              300           1200");
	expect_text(out, "largest free block 4096 KiB");
	region_give(region, span, OWNER_DISK);
	region_close(region);
}

static void test_none_there(void **state)
{
	char out[16];
	int status;
	pid_t child;

	(void)state;
	assert_int_equal(view_from_child(getpid(), true, out, sizeof(out)), -ENOENT);
	child = fork();
	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(view_from_child(child, true, out, sizeof(out)), -ESRCH);
}

/* ---- Inconsistent headers are refused, each for one fault. ---- */

/* A copy of the start of a good arena, changed by spoil, in a memfd with these seals. */
static int map_spoiled(void (*spoil)(struct region_header *header), int seals)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_arena arena = region_arena(region, 0);
	struct region_view *view = NULL;
	struct region_header *header;
	int fd = memfd_create("spoiled", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int ret;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)arena.bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	header = mmap(NULL, FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(header, MAP_FAILED);
	memcpy(header, arena.base, sizeof(*header));
	if (spoil)
		spoil(header);
	munmap(header, FRAME_BYTES);
	ret = region_view_map(fd, &view);
	if (ret == 0) {
		struct buf buf;

		/* The frame table is empty: every state is unknown, and nothing is read out of
		 * bounds. */
		buf_init(&buf, 1 * MIB);
		region_view_dump(view, true, &buf);
		assert_false(buf.failed);
		assert_true(slice_ends(buf_slice(&buf), SLICE("]}}\n")));
		buf_free(&buf);
	}
	region_view_close(view);
	close(fd);
	region_close(region);
	return ret;
}

static void spoil_magic(struct region_header *header)
{
	header->magic[0] ^= 1;
}

static void spoil_version(struct region_header *header)
{
	header->version++;
}

static void spoil_arenas(struct region_header *header)
{
	header->arena_count = LIMIT_ARENAS_MAX + 1;
}

static void spoil_cores(struct region_header *header)
{
	header->core_count++;
}

static void spoil_ring_entries(struct region_header *header)
{
	header->ring_entries = 16;
}

static void spoil_pages(struct region_header *header)
{
	header->page_count = UINT32_MAX;
}

static void spoil_data_page(struct region_header *header)
{
	header->data_page = header->page_count + 1;
}

static void spoil_offset(struct region_header *header)
{
	header->layout[LAYOUT_FRAMES].offset = UINT64_MAX - 63;
}

static void spoil_offset_near_end(struct region_header *header)
{
	header->layout[LAYOUT_TARGETS].offset = 8 * MIB - 64;
}

static void spoil_kind(struct region_header *header)
{
	header->layout[LAYOUT_MRS].kind = LAYOUT_DATA;
}

static void spoil_data_bytes(struct region_header *header)
{
	header->layout[LAYOUT_DATA].bytes = UINT64_MAX;
}

static void spoil_layout_count(struct region_header *header)
{
	header->layout_count = LAYOUT_ENTRIES_MAX + 1;
}

static void spoil_name(struct region_header *header)
{
	memset(header->name, 'x', sizeof(header->name));
}

static void test_malformed_is_refused(void **state)
{
	static void (*const spoils[])(struct region_header *) = {spoil_magic, spoil_version,
		spoil_arenas, spoil_cores, spoil_ring_entries, spoil_pages, spoil_data_page,
		spoil_offset, spoil_offset_near_end, spoil_kind, spoil_data_bytes,
		spoil_layout_count, spoil_name};

	(void)state;
	assert_int_equal(map_spoiled(NULL, F_SEAL_SHRINK), 0);
	assert_int_equal(map_spoiled(NULL, F_SEAL_GROW), -EPROTO);
	for (uint32_t i = 0; i < ARRAY_LEN(spoils); i++) {
		int ret = map_spoiled(spoils[i], F_SEAL_SHRINK);

		if (ret != -EPROTO)
			fail_msg("spoil %u: %d", i, ret);
	}
}

/* Any bytes in the header: refused or reported, never a crash. */
static uint64_t noise_seed;

static void spoil_noise(struct region_header *header)
{
	struct prng prng;

	prng_seed(&prng, noise_seed);
	for (uint64_t i = prng_below(&prng, 4) + 1; i > 0; i--)
		((uint8_t *)header)[prng_below(&prng, sizeof(*header))] = (uint8_t)prng_next(&prng);
}

static void test_noise_never_faults(void **state)
{
	uint32_t refused = 0;

	(void)state;
	for (noise_seed = 1; noise_seed <= 60; noise_seed++) {
		int ret = map_spoiled(spoil_noise, F_SEAL_SHRINK);

		assert_true(ret == 0 || ret == -EPROTO);
		refused += ret != 0;
	}
	assert_true(refused > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none_there),
		cmocka_unit_test(test_seen_from_another_process),
		cmocka_unit_test(test_malformed_is_refused),
		cmocka_unit_test(test_noise_never_faults),
	};

	return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
