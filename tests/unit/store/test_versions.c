/* tests/unit/store/test_versions.c: versions of keys: against a model, after restarts, from two
 * cores; listing them; delete markers; the version after the newest. */
#include "rig.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- Small helpers. ---- */

struct state {
	uint8_t versioning;
	uint8_t flags;
};

static int state_set(struct store_bucket *bucket, void *arg)
{
	const struct state *state = (const struct state *)arg;

	bucket->versioning = state->versioning;
	bucket->flags = state->flags;
	return 0;
}

/* ---- A model of a bucket. ---- */

#define KEYS	     4u
#define VERSIONS_MAX 64u

struct version {
	char id[33];
	uint64_t seed; /* 0: a delete marker */
	uint64_t bytes;
	uint32_t tag; /* of its headers; 0: none */
};
/* Versions, newest first. */
struct model_key {
	struct version versions[VERSIONS_MAX];
	uint32_t count;
};
struct model {
	uint8_t versioning;
	struct model_key keys[KEYS];
	uint64_t seed;
};

static struct slice model_name(uint32_t k)
{
	/* One is a prefix of another, one has zeros in it, one has the maximum length. */
	static char longest[LIMIT_KEY_LEN_MAX];
	static const struct slice names[] = {SLICE("a"), SLICE("a\0b"), SLICE("ab/\xff")};

	memset(longest, 0, sizeof(longest));
	longest[0] = 'z';
	return k < ARRAY_LEN(names) ? names[k] : slice_of(longest, sizeof(longest));
}

static void model_remove(struct model_key *key, uint32_t at)
{
	memmove(&key->versions[at], &key->versions[at + 1],
		(key->count - at - 1) * sizeof(key->versions[0]));
	key->count--;
}

static void model_push(struct model *model, uint32_t k, const struct version *version)
{
	struct model_key *key = &model->keys[k];

	for (uint32_t i = 0; i < key->count; i++)
		if (strcmp(version->id, "null") == 0 && strcmp(key->versions[i].id, "null") == 0) {
			model_remove(key, i);
			break;
		}
	assert_true(key->count < VERSIONS_MAX);
	memmove(&key->versions[1], &key->versions[0], key->count * sizeof(key->versions[0]));
	key->versions[0] = *version;
	key->count++;
}

struct put_version {
	uint64_t bytes;
	uint64_t seed;
	bool composable;
	char id[33];
};

static int note_id(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct put_version *put = (struct put_version *)arg;

	memcpy(put->id, current->version_id, sizeof(put->id));
	*ret_headers = slice_of(current->headers, current->headers_len);
	return 0;
}

static void version_put(struct rig *rig, struct model *model, uint32_t k, struct prng *prng)
{
	static const uint64_t SIZES[] = {0, 40, 3000, 9000, 70000, 1300000};
	struct version version = {.seed = ++model->seed,
		.bytes = SIZES[prng_below(prng, prng_below(prng, 8) ? 5 : 6)]};
	struct put_how how = {.composable = prng_below(prng, 2)};
	struct put_version put;
	int ret;

	if (version.bytes > 40 && prng_below(prng, 4) == 0)
		ret = object_join_seeded(rig, "b", model_name(k), version.bytes, version.seed, 3);
	else
		ret = object_put_seeded(rig, "b", model_name(k), version.bytes, version.seed, &how);
	assert_int_equal(ret, 0);
	assert_int_equal(store_edit(rig->store,
				 &(struct store_name){.bucket = SLICE("b"), .key = model_name(k)},
				 note_id, &put, NULL),
		0);
	memcpy(version.id, put.id, sizeof(version.id));
	assert_int_equal(
		strcmp(version.id, "null") == 0, model->versioning != STORE_VERSIONING_ENABLED);
	model_push(model, k, &version);
}

static void key_delete(struct rig *rig, struct model *model, uint32_t k)
{
	struct store_deletion deletion = {.key = model_name(k)};
	struct version version = {.seed = 0};

	assert_int_equal(store_delete_each(rig->store, SLICE("b"), 0, &deletion, 1), 0);
	assert_int_equal(deletion.result, 0);
	if (model->versioning == STORE_VERSIONING_NEVER) {
		assert_false(deletion.delete_marker);
		assert_true(model->keys[k].count <= 1);
		model->keys[k].count = 0;
		return;
	}
	assert_true(deletion.delete_marker);
	memcpy(version.id, deletion.version_id_out, sizeof(version.id));
	model_push(model, k, &version);
}

static void version_delete(struct rig *rig, struct model *model, uint32_t k, uint32_t at)
{
	struct model_key *key = &model->keys[k];
	struct store_deletion deletion = {
		.key = model_name(k), .version_id = slice_str(key->versions[at].id)};

	assert_int_equal(store_delete_each(rig->store, SLICE("b"), 0, &deletion, 1), 0);
	assert_int_equal(deletion.result, 0);
	assert_int_equal(deletion.delete_marker, key->versions[at].seed == 0);
	assert_string_equal(deletion.version_id_out, key->versions[at].id);
	model_remove(key, at);
}

struct tag {
	char text[24];
};

static int edit_tag(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	(void)current;
	*ret_headers = slice_str(((struct tag *)arg)->text);
	return 0;
}

static void version_edit(struct rig *rig, struct model *model, uint32_t k, uint32_t at)
{
	struct version *version = &model->keys[k].versions[at];
	const struct store_name name = {
		.bucket = SLICE("b"), .key = model_name(k), .version_id = slice_str(version->id)};
	struct tag tag;

	version->tag = (uint32_t)++model->seed;
	snprintf(tag.text, sizeof(tag.text), "t%u", version->tag);
	assert_int_equal(store_edit(rig->store, &name, edit_tag, &tag, NULL), 0);
}

/* ---- Comparing. ---- */

static void version_verify(struct rig *rig, uint32_t k, const struct version *version)
{
	const struct store_name name = {
		.bucket = SLICE("b"), .key = model_name(k), .version_id = slice_str(version->id)};
	const struct store_meta *meta;
	struct store_get *get;
	char text[24] = "";
	bool exists;

	assert_int_equal(store_get_open_version(rig->store, &name, &get, &exists), 0);
	meta = store_get_meta(get);
	assert_string_equal(meta->version_id, version->id);
	assert_int_equal(meta->delete_marker, version->seed == 0);
	assert_int_equal(meta->bytes, version->bytes);
	assert_int_equal(meta->crc64, version->seed);
	if (version->tag)
		snprintf(text, sizeof(text), "t%u", version->tag);
	assert_true(slice_eq(slice_of(meta->headers, meta->headers_len), slice_str(text)));
	if (version->seed)
		assert_int_equal(get_verify_seeded(rig, get, version->seed), 0);
	store_get_close(get);
}

struct listed {
	struct model *model;
	uint32_t key; /* expected next */
	uint32_t at;
	struct slice last_key;
	char last_id[33];
	uint32_t count;
};

static void listed_visit(const struct store_list_entry *entry, void *arg)
{
	struct listed *listed = (struct listed *)arg;
	const struct version *version;

	while (listed->key < KEYS && listed->at == listed->model->keys[listed->key].count) {
		listed->key++;
		listed->at = 0;
	}
	assert_true(listed->key < KEYS);
	version = &listed->model->keys[listed->key].versions[listed->at];
	assert_true(slice_eq(entry->key, model_name(listed->key)));
	assert_string_equal(entry->meta->version_id, version->id);
	assert_int_equal(entry->meta->delete_marker, version->seed == 0);
	assert_int_equal(entry->is_latest, listed->at == 0);
	listed->last_key = model_name(listed->key);
	memcpy(listed->last_id, version->id, sizeof(listed->last_id));
	listed->at++;
	listed->count++;
}

static void list_verify(struct rig *rig, struct model *model, uint32_t page)
{
	struct listed listed = {.model = model};
	uint32_t total = 0, pages = 0;
	bool more = true;

	while (more) {
		struct store_list_opts opts = {.bucket = SLICE("b"),
			.visit_anywhere = pages++ % 2,
			.entries_max = page,
			.after = listed.last_key,
			.version_after = slice_str(listed.last_id)};
		uint32_t before = listed.count;

		assert_int_equal(
			store_list_versions(rig->store, &opts, listed_visit, &listed, &more), 0);
		assert_true(listed.count - before <= page);
		assert_true(!more || listed.count - before == page);
	}
	for (uint32_t k = 0; k < KEYS; k++)
		total += model->keys[k].count;
	assert_int_equal(listed.count, total);
}

/* Checks that a list continues after a deleted version as if it existed. The place of a deleted
 * null version is unknown: the list then starts again at the key's newest version. */
static void list_behind_verify(
	struct rig *rig, struct model *model, uint32_t k, uint32_t at, const char *version_id)
{
	struct listed listed = {
		.model = model, .key = k, .at = strcmp(version_id, "null") == 0 ? 0 : at};
	struct store_list_opts opts = {.bucket = SLICE("b"),
		.entries_max = 1000,
		.after = model_name(k),
		.version_after = slice_str(version_id)};
	uint32_t total = 0;
	bool more;

	for (uint32_t i = k; i < KEYS; i++)
		total += model->keys[i].count;
	assert_int_equal(store_list_versions(rig->store, &opts, listed_visit, &listed, &more), 0);
	assert_int_equal(listed.count, total - (strcmp(version_id, "null") == 0 ? 0 : at));
}

static void current_verify(struct rig *rig, const struct model *model, uint32_t k)
{
	const struct model_key *key = &model->keys[k];
	struct store_meta newest;
	struct store_get *get;
	bool exists;
	int ret = store_get_open(rig->store, SLICE("b"), model_name(k), &get, &exists);

	if (key->count && key->versions[0].seed) {
		assert_int_equal(ret, 0);
		assert_string_equal(store_get_meta(get)->version_id, key->versions[0].id);
		store_get_close(get);
		return;
	}
	assert_int_equal(ret, -ENOENT);
	ret = store_newest(rig->store, SLICE("b"), model_name(k), &newest);
	assert_int_equal(ret, key->count ? 0 : -ENOENT);
	if (ret)
		return;
	assert_true(newest.delete_marker);
	assert_string_equal(newest.version_id, key->versions[0].id);
}

static void model_verify(struct rig *rig, void *arg)
{
	struct model *model = (struct model *)arg;

	for (uint32_t k = 0; k < KEYS; k++) {
		current_verify(rig, model, k);
		for (uint32_t i = 0; i < model->keys[k].count; i++)
			version_verify(rig, k, &model->keys[k].versions[i]);
	}
	list_verify(rig, model, 1000);
	list_verify(rig, model, 3);
	list_verify(rig, model, 1);
}

static void model_step(struct rig *rig, struct model *model, struct prng *prng)
{
	uint32_t k = (uint32_t)prng_below(prng, KEYS);
	struct model_key *key = &model->keys[k];
	uint32_t at = key->count ? (uint32_t)prng_below(prng, key->count) : 0;

	switch (prng_below(prng, 10)) {
	case 0:
	case 1:
		key_delete(rig, model, k);
		break;
	case 2:
	case 3:
	case 4:
		if (key->count) {
			char id[33];

			at = prng_below(prng, 2) ? 0 : at;
			memcpy(id, key->versions[at].id, sizeof(id));
			version_delete(rig, model, k, at);
			list_behind_verify(rig, model, k, at, id);
		}
		break;
	case 5:
		if (key->count)
			version_edit(rig, model, k, at);
		break;
	default:
		if (key->count < VERSIONS_MAX - 2)
			version_put(rig, model, k, prng);
	}
}

static void model_run(struct rig *rig, void *arg)
{
	struct model *model = (struct model *)arg;
	struct prng prng;

	prng_seed(&prng, model->seed + 99);
	if (!model->seed) {
		assert_int_equal(bucket_make(rig->store, "b"), 0);
		assert_int_equal(bucket_make(rig->store, "parts"), 0);
	} else {
		model_verify(rig, model);
	}
	for (uint32_t step = 0; step < 250; step++) {
		if (step % 50 == 10 && model->seed) {
			model->versioning = (uint8_t)(1 + prng_below(&prng, 2));
			assert_int_equal(versioning_set(rig, "b", model->versioning), 0);
		}
		model_step(rig, model, &prng);
		if (step % 40 == 0)
			model_verify(rig, model);
	}
	model_verify(rig, model);
}

static int deletion_result(const struct store_deletion *list, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (list[i].result)
			return list[i].result;
	return 0;
}

/* Deletes everything in one call, in the order of a list. */
static void model_empty(struct rig *rig, void *arg)
{
	struct store_deletion list[KEYS * VERSIONS_MAX];
	struct model *model = (struct model *)arg;
	uint32_t count = 0;

	memset(list, 0, sizeof(list));
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), -ENOTEMPTY);
	for (uint32_t k = 0; k < KEYS; k++)
		for (uint32_t i = 0; i < model->keys[k].count; i++) {
			list[count].key = model_name(k);
			list[count++].version_id = slice_str(model->keys[k].versions[i].id);
		}
	assert_true(count > 10);
	assert_int_equal(store_delete_each(rig->store, SLICE("b"), 0, list, count), 0);
	assert_int_equal(deletion_result(list, count), 0);
	for (uint32_t k = 0; k < KEYS; k++)
		model->keys[k].count = 0;
	model_verify(rig, model);
	assert_int_equal(rig_usage(rig).used_bytes, 0);
	assert_int_equal(rig_usage(rig).objects, 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), 0);
}

static void test_versions_as_the_model_has_them(void **state)
{
	struct model *model = (struct model *)calloc(1, sizeof(*model));
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig.opts.record_table_bytes_max = 64 * KIB; /* entries come and go */
	for (uint32_t round = 0; round < 6; round++) {
		rig_run(&rig, model_run, model);
		rig_fsck(&rig);
	}
	rig_run(&rig, model_empty, model);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
	free(model);
}

/* ---- Many fibers on two cores and one key: the version after the newest is always right. ---- */

#define FIBERS 12u

struct race {
	_Atomic bool ready;
};

struct newest_id {
	char id[33];
};

static int note_newest(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	memcpy(arg, current->version_id, sizeof(struct newest_id));
	*ret_headers = slice_of(current->headers, current->headers_len);
	return 0;
}

static void race_fiber(struct rig *rig, void *arg)
{
	const struct store_name name = {.bucket = SLICE("b"), .key = SLICE("k")};
	uint32_t idx = *(uint32_t *)arg;
	struct newest_id newest;
	struct prng prng;

	prng_seed(&prng, idx);
	for (uint32_t step = 0; step < 80; step++) {
		struct store_deletion deletion = {.key = SLICE("k")};

		switch (prng_below(&prng, 4)) {
		case 0:
			assert_int_equal(
				store_delete_each(rig->store, SLICE("b"), 0, &deletion, 1), 0);
			if (prng_below(&prng, 2))
				break;
			deletion.version_id = slice_str(deletion.version_id_out);
			memcpy(newest.id, deletion.version_id_out, sizeof(newest.id));
			deletion.version_id = slice_str(newest.id);
			assert_int_equal(
				store_delete_each(rig->store, SLICE("b"), 0, &deletion, 1), 0);
			assert_int_equal(deletion.result, 0);
			assert_true(deletion.delete_marker);
			break;
		case 1:
			if (store_edit(rig->store, &name, note_newest, &newest, NULL))
				break;
			deletion.version_id = slice_str(newest.id);
			assert_int_equal(
				store_delete_each(rig->store, SLICE("b"), 0, &deletion, 1), 0);
			assert_int_equal(deletion.result, 0);
			break;
		default:
			assert_int_equal(object_put_seeded(rig, "b", name.key,
						 100 + 300 * prng_below(&prng, 20), step, NULL),
				0);
		}
	}
}

static void race_run(struct rig *rig, void *arg)
{
	struct race *race = (struct race *)arg;
	uint32_t core = reactor_core_idx(reactor_self());
	uint32_t ids[FIBERS];

	if (core == 0) {
		assert_int_equal(bucket_make(rig->store, "b"), 0);
		assert_int_equal(versioning_set(rig, "b", STORE_VERSIONING_ENABLED), 0);
		atomic_store(&race->ready, true);
	}
	while (!atomic_load(&race->ready))
		fiber_yield();
	for (uint32_t i = 0; i < FIBERS; i++)
		ids[i] = core * FIBERS + i;
	rig_fibers(rig, FIBERS, race_fiber, ids, sizeof(ids[0]));
}

struct counting {
	uint64_t versions;
	uint64_t latest;
	char ids[4096][33];
};

static void count_visit(const struct store_list_entry *entry, void *arg)
{
	struct counting *counting = (struct counting *)arg;

	counting->latest += entry->is_latest;
	memcpy(counting->ids[counting->versions++], entry->meta->version_id, 33);
}

static void race_empty(struct rig *rig, void *arg)
{
	static struct counting counting;
	struct store_list_opts opts = {.bucket = SLICE("b"), .entries_max = 1000};
	static struct store_deletion list[1000];
	bool more;

	(void)arg;
	if (reactor_core_idx(reactor_self()) != 0)
		return;
	counting = (struct counting){.versions = 0};
	assert_int_equal(store_list_versions(rig->store, &opts, count_visit, &counting, &more), 0);
	assert_false(more);
	assert_int_equal(counting.latest, 1);
	assert_int_equal(counting.versions, rig_usage(rig).objects);
	for (uint64_t i = 0; i < counting.versions; i++)
		list[i] = (struct store_deletion){
			.key = SLICE("k"), .version_id = slice_str(counting.ids[i])};
	assert_int_equal(
		store_delete_each(rig->store, SLICE("b"), 0, list, (uint32_t)counting.versions), 0);
	assert_int_equal(deletion_result(list, (uint32_t)counting.versions), 0);
	assert_int_equal(store_list_versions(rig->store, &opts, count_visit, &counting, &more), 0);
	assert_int_equal(rig_usage(rig).objects, 0);
	assert_int_equal(rig_usage(rig).used_bytes, 0);
}

static void test_two_cores_and_one_key(void **state)
{
	struct race race = {.ready = false};
	struct rig rig;

	(void)state;
	rig_init(&rig, 2);
	rig_run(&rig, race_run, &race);
	rig_fsck(&rig);
	rig_run(&rig, race_empty, NULL);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- Lists: prefixes, delimiters, markers. ---- */

struct names {
	char text[1024];
};

static void names_visit(const struct store_list_entry *entry, void *arg)
{
	struct names *names = (struct names *)arg;
	size_t len = strlen(names->text);

	snprintf(names->text + len, sizeof(names->text) - len, "%.*s%s ", SLICE_FMT(entry->key),
		entry->is_prefix	     ? "*"
		: entry->meta->delete_marker ? "-"
					     : "");
}

static const char *names_of(struct rig *rig, struct names *names, const char *prefix,
	const char *delimiter, const char *after)
{
	struct store_list_opts opts = {.bucket = SLICE("b"),
		.prefix = slice_str(prefix),
		.delimiter = slice_str(delimiter),
		.after = slice_str(after),
		.entries_max = 100};
	bool more;

	names->text[0] = 0;
	assert_int_equal(store_list_versions(rig->store, &opts, names_visit, names, &more), 0);
	assert_false(more);
	return names->text;
}

static void list_run(struct rig *rig, void *arg)
{
	static const char *const KEYS_PUT[] = {"a", "b/1", "b/2", "b/c/3", "d", "d", "e/1"};
	struct names names;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("b/1"), 10, 1, NULL), 0);
	assert_int_equal(versioning_set(rig, "b", STORE_VERSIONING_ENABLED), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(KEYS_PUT); i++)
		assert_int_equal(
			object_put_seeded(rig, "b", slice_str(KEYS_PUT[i]), 10, i, NULL), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("b/2"), NULL, NULL), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("e/1"), NULL, NULL), 0);
	assert_string_equal(
		names_of(rig, &names, "", "", ""), "a b/1 b/1 b/2- b/2 b/c/3 d d e/1- e/1 ");
	assert_string_equal(names_of(rig, &names, "", "/", ""), "a b/* d d e/* ");
	assert_string_equal(names_of(rig, &names, "b/", "/", ""), "b/1 b/1 b/2- b/2 b/c/* ");
	assert_string_equal(names_of(rig, &names, "b/", "", "b/1"), "b/2- b/2 b/c/3 ");
	assert_string_equal(names_of(rig, &names, "", "/", "b/"), "d d e/* ");
	assert_string_equal(names_of(rig, &names, "", "", "c"), "d d e/1- e/1 ");
	assert_string_equal(names_of(rig, &names, "x", "", ""), "");
	assert_string_equal(names_of(rig, &names, "d", "", "d"), "");
}

static void test_lists_of_versions(void **state)
{
	(void)state;
	rig_once(list_run, NULL);
}

/* ---- Refusals, conditions, buckets. ---- */

static int check_refuse(const struct store_meta *current, void *arg)
{
	*(struct newest_id *)arg = (struct newest_id){{0}};
	if (current)
		memcpy(arg, current->version_id, sizeof(struct newest_id));
	return -EPERM;
}

static void refusals_run(struct rig *rig, void *arg)
{
	struct state lock = {.versioning = STORE_VERSIONING_ENABLED, .flags = STORE_BUCKET_LOCK};
	struct state wrong = {.versioning = 7};
	struct store_name name = {.bucket = SLICE("b"), .key = SLICE("k")};
	struct store_deletion deletion = {.key = SLICE("k"), .check = check_refuse};
	struct store_bucket info;
	struct newest_id seen;
	struct store_get *get;
	bool exists;

	(void)arg;
	assert_int_equal(versioning_set(rig, "b", 1), -ENOENT);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(store_bucket_edit(rig->store, SLICE("b"), state_set, &wrong), -EINVAL);
	assert_int_equal(store_bucket_edit(rig->store, SLICE("b"), state_set, &lock), 0);
	assert_int_equal(versioning_set(rig, "b", STORE_VERSIONING_NEVER), -EINVAL);
	assert_int_equal(store_bucket_get(rig->store, SLICE("b"), &info), 0);
	assert_int_equal(info.versioning, STORE_VERSIONING_ENABLED);
	assert_int_equal(info.flags, STORE_BUCKET_LOCK);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 10, 1, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 10, 2, NULL), 0);
	assert_int_equal(
		store_newest(rig->store, SLICE("b"), SLICE("k"), &(struct store_meta){0}), 0);
	deletion.arg = &seen;
	assert_int_equal(store_delete_each(rig->store, SLICE("b"), 0, &deletion, 1), 0);
	assert_int_equal(deletion.result, -EPERM);
	deletion.version_id = slice_str(seen.id);
	memset(&seen, 'x', sizeof(seen.id) / 2);
	assert_int_equal(store_delete_each(rig->store, SLICE("b"), 0, &deletion, 1), 0);
	assert_int_equal(deletion.result, 0); /* no such version */
	for (uint32_t i = 0; i < 3; i++) {
		static const char *const ids[] = {"null", "0123456789abcdef", "nonsense"};

		name.version_id = slice_str(ids[i]);
		assert_int_equal(store_get_open_version(rig->store, &name, &get, &exists), -ENOENT);
		assert_true(exists);
		assert_int_equal(store_version_id_valid(name.version_id), i < 2);
	}
	name.bucket = SLICE("c");
	assert_int_equal(store_get_open_version(rig->store, &name, &get, &exists), -ENOENT);
	assert_false(exists);
	assert_int_equal(rig_usage(rig).objects, 2);
}

static void lock_verify(struct rig *rig, void *arg)
{
	struct store_bucket info;

	(void)arg;
	assert_int_equal(store_bucket_get(rig->store, SLICE("b"), &info), 0);
	assert_int_equal(info.versioning, STORE_VERSIONING_ENABLED);
	assert_int_equal(info.flags, STORE_BUCKET_LOCK);
	assert_int_equal(rig_usage(rig).objects, 2);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), 10, 2), 0);
}

static void test_refusals_and_conditions(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, refusals_run, NULL);
	rig_run(&rig, lock_verify, NULL);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- A thousand versions of a key go in one call. ---- */

static void thousand_run(struct rig *rig, void *arg)
{
	static struct store_deletion list[1000];
	static struct counting counting;
	struct store_list_opts opts = {.bucket = SLICE("b"), .entries_max = 1000};
	bool more;

	(void)arg;
	counting = (struct counting){.versions = 0};
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(versioning_set(rig, "b", STORE_VERSIONING_ENABLED), 0);
	for (uint32_t i = 0; i < 999; i++)
		assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 20, i, NULL), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("k"), NULL, NULL), 0);
	assert_int_equal(store_list_versions(rig->store, &opts, count_visit, &counting, &more), 0);
	assert_int_equal(counting.versions, 1000);
	for (uint32_t i = 0; i < 1000; i++)
		list[i] = (struct store_deletion){
			.key = SLICE("k"), .version_id = slice_str(counting.ids[i])};
	assert_int_equal(store_delete_each(rig->store, SLICE("b"), 0, list, 1000), 0);
	assert_int_equal(deletion_result(list, 1000), 0);
	assert_int_equal(rig_usage(rig).objects, 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), 0);
}

static void test_a_thousand_versions_in_one_call(void **state)
{
	(void)state;
	rig_once(thousand_run, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_versions_as_the_model_has_them),
		cmocka_unit_test(test_two_cores_and_one_key),
		cmocka_unit_test(test_lists_of_versions),
		cmocka_unit_test(test_refusals_and_conditions),
		cmocka_unit_test(test_a_thousand_versions_in_one_call),
	};

	return cmocka_run_group_tests_name("versions", tests, NULL, NULL);
}
