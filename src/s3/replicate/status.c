/* s3/replicate/status.c: the hidden header that tells how far the replication of an object is: one
 * word about all targets, as S3 answers it, and for each target its state and its replica's version
 * id.
 *
 *   PENDING @berlin:C:5f6e… @oslo:P      what this server writes
 *   COMPLETED 5f6e…                      a state without a target's name is that of each target
 *   REPLICA 5f6e…                        of a replica: the source's version id */
#include "s3/replicate/replicate.h"

#define NAME_MARK '@'

static const struct {
	enum s3_replica_state state;
	struct slice word;
} WORDS[] = {
	{S3_REPLICA_PENDING, SLICE("PENDING")},
	{S3_REPLICA_COMPLETED, SLICE("COMPLETED")},
	{S3_REPLICA_FAILED, SLICE("FAILED")},
};

static enum s3_replica_state state_of_word(struct slice word)
{
	for (size_t i = 0; i < ARRAY_LEN(WORDS); i++)
		if (slice_eq(word, WORDS[i].word))
			return WORDS[i].state;
	return S3_REPLICA_NONE;
}

static struct slice word_of_state(enum s3_replica_state state)
{
	for (size_t i = 0; i < ARRAY_LEN(WORDS); i++)
		if (WORDS[i].state == state)
			return WORDS[i].word;
	return SLICE_NONE;
}

bool s3_replica_is_replica(struct slice headers)
{
	struct slice value = s3_meta_hidden(headers, SLICE(S3_REPLICA_HEADER));

	return slice_eq(slice_split(&value, ' '), SLICE("REPLICA"));
}

/* "@NAME:STATE:ID"; without an id its colon is left out, too. False: another form. */
static bool entry_parse(
	struct slice entry, struct slice *ret_name, struct s3_replica_of *ret_replica)
{
	struct slice state;

	if (!entry.len || entry.data[0] != NAME_MARK)
		return false;
	entry = slice_from(entry, 1);
	*ret_name = slice_split(&entry, ':');
	state = slice_split(&entry, ':');
	*ret_replica = (struct s3_replica_of){.id = entry};
	ret_replica->state =
		state.len == 1 ? (enum s3_replica_state)state.data[0] : S3_REPLICA_NONE;
	return true;
}

struct s3_replica_of s3_replica_of(struct slice headers, struct slice target)
{
	struct slice value = s3_meta_hidden(headers, SLICE(S3_REPLICA_HEADER)), name;
	struct slice word = slice_split(&value, ' ');
	struct s3_replica_of replica;

	if (!value.len || value.data[0] != NAME_MARK)
		return (struct s3_replica_of){.state = state_of_word(word),
			.id = state_of_word(word) == S3_REPLICA_NONE ? SLICE_NONE : value};
	while (value.len)
		if (entry_parse(slice_split(&value, ' '), &name, &replica) &&
			slice_eq(name, target))
			return replica;
	return (struct s3_replica_of){.state = S3_REPLICA_NONE};
}

/* The word is FAILED as soon as one target has failed, while others still wait. */
bool s3_replica_is_pending(struct slice headers)
{
	struct slice value = s3_meta_hidden(headers, SLICE(S3_REPLICA_HEADER)), name;
	bool pending = state_of_word(slice_split(&value, ' ')) == S3_REPLICA_PENDING;
	struct s3_replica_of replica;

	while (!pending && value.len)
		pending = entry_parse(slice_split(&value, ' '), &name, &replica) &&
			  replica.state == S3_REPLICA_PENDING;
	return pending;
}

/* S3's word about several destinations: COMPLETED only when all have it, FAILED if one failed. */
static enum s3_replica_state both(enum s3_replica_state one, enum s3_replica_state other)
{
	if (one == S3_REPLICA_FAILED || other == S3_REPLICA_FAILED)
		return S3_REPLICA_FAILED;
	if (one == S3_REPLICA_PENDING || other == S3_REPLICA_PENDING)
		return S3_REPLICA_PENDING;
	return S3_REPLICA_COMPLETED;
}

static void entry_put(struct buf *text, struct slice target, const struct s3_replica_of *replica)
{
	buf_printf(text, " %c%.*s:%c", NAME_MARK, SLICE_FMT(target), (char)replica->state);
	if (replica->id.len)
		buf_printf(text, ":%.*s", SLICE_FMT(replica->id));
}

int s3_replica_set(struct slice headers, struct slice target, const struct s3_replica_of *replica,
	struct mem_arena *arena, struct slice *ret_headers)
{
	struct slice rest = s3_meta_hidden(headers, SLICE(S3_REPLICA_HEADER)), name;
	enum s3_replica_state all = S3_REPLICA_COMPLETED;
	struct s3_replica_of other;
	struct buf entries, text;
	int ret;

	buf_init(&entries, STORE_HEADERS_BYTES_MAX);
	buf_init(&text, STORE_HEADERS_BYTES_MAX);
	slice_split(&rest, ' ');
	while (rest.len) {
		if (!entry_parse(slice_split(&rest, ' '), &name, &other) || slice_eq(name, target))
			continue;
		entry_put(&entries, name, &other);
		all = both(all, other.state);
	}
	if (replica->state != S3_REPLICA_NONE) {
		entry_put(&entries, target, replica);
		all = both(all, replica->state);
	}
	buf_put_slice(&text, word_of_state(all));
	buf_put_slice(&text, buf_slice(&entries));
	ret = entries.failed || text.failed
		      ? -ENOMEM
		      : s3_meta_set_hidden(headers, SLICE(S3_REPLICA_HEADER),
				entries.len ? buf_slice(&text) : SLICE_NONE, arena, ret_headers);
	buf_free(&entries);
	buf_free(&text);
	return ret;
}
