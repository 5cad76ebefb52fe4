/* front/session/once.c: what the server did for numbered writes, so that a write whose answer was
 * lost with its session is not done twice: its repetition gets the answer of the first try.
 * docs/spec/wire.md section 9, docs/design/paths.md.
 *
 * A record belongs to a client (its own number, and its access key), and has an entry for each
 * number that runs, or was done and is not yet known to have its answer. An effect is what is
 * remembered: a write that was refused is run again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "codec/hash.h"
#include "front/session/native_priv.h"

#define ONCE_CLIENTS_MAX 4096u
#define ONCE_BYTES_MAX	 (16 * MIB)
/* An answer is kept only below this: the rest is for writes that begin. */
#define ONCE_ANSWERS_BYTES_MAX (ONCE_BYTES_MAX / 2)
/* A key that has more than this part of the clients or of the bytes pays with its own records, and
 * leaves this part of the bytes to others. */
#define ONCE_KEY_PART 8u
#define ONCE_BUCKETS  1024u
/* Entries of a record that have ended, for its next ones. They count as its memory. */
#define ONCE_SPARES_MAX	 32u
#define ONCE_ENTRIES_MAX (8u * LIMIT_SESSION_REQUESTS_MAX) /* of a client: 8 sessions */
/* Of an answer: headers and document. A longer one cannot be given again. */
#define ONCE_ANSWER_BYTES_MAX (16 * KIB)
/* While the first try runs: how long until the next look, and until it is given up. */
#define ONCE_LOOK_NS (2 * NS_PER_MS)
#define ONCE_WAIT_NS (30 * NS_PER_S)

#define REPEATS_HELP \
	"Writes that clients sent again after their session was lost, by what was done."
DEFINE_COUNTER(kept_bytes, "nebulaio_native_repeats_bytes", NULL,
	"Memory of the numbered writes that run, or whose answers are kept for a repetition.");
DEFINE_COUNTER(
	repeats_answered, "nebulaio_native_repeats_total", "result=\"answered\"", REPEATS_HELP);
DEFINE_COUNTER(repeats_run, "nebulaio_native_repeats_total", "result=\"run\"", REPEATS_HELP);
DEFINE_COUNTER(
	repeats_unknown, "nebulaio_native_repeats_total", "result=\"unknown\"", REPEATS_HELP);

/* The life of an entry:
 *
 *   RUNS   -> DONE by an answer of 2xx; ends by any other
 *   DONE   ends when the client knows the answer, or with its record */
struct once_entry {
	struct list link; /* the record's, by number; or its spare ones */
	struct once_record *record;
	uint64_t number;
	bool done;
	bool too_long;		    /* the answer, or there was no memory for it */
	struct front_native *front; /* RUNS: there … */
	uint64_t session_id;	    /* … on this session */
	uint16_t status;
	uint8_t etag_len;
	uint32_t header_count, headers_bytes, body_bytes;
	uint8_t *answer; /* headers, then the document */
	char etag[CAPSULE_ETAG_LEN_MAX];
};

struct once_record {
	struct list link, used; /* the bucket's; by last use */
	uint64_t client;
	uint64_t since; /* lower numbers without an entry: it is not known what became of them */
	uint64_t done_below;
	uint16_t share;
	uint32_t running;
	uint32_t count, spare_count;
	struct list entries; /* the lowest number is first */
	struct list spares;
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
};

struct native_once {
	const struct reactor *reactor; /* the first */
	bool several;		       /* reactors; else nobody takes the lock */
	pthread_mutex_t lock;
	struct list buckets[ONCE_BUCKETS];
	struct list used; /* the record used longest ago is first */
	uint32_t record_count;
	uint32_t share_records[FLOW_SHARES];
	uint64_t share_bytes[FLOW_SHARES];
	uint64_t bytes;
};

int native_once_open(struct native_once **ret_once)
{
	struct native_once *once = calloc(1, sizeof(*once));

	if (!once)
		return -ENOMEM;
	pthread_mutex_init(&once->lock, NULL);
	list_init(&once->used);
	for (uint32_t i = 0; i < ONCE_BUCKETS; i++)
		list_init(&once->buckets[i]);
	*ret_once = once;
	return 0;
}

void native_once_join(struct native_once *once, const struct reactor *reactor)
{
	if (!once->reactor)
		once->reactor = reactor;
	once->several = once->several || once->reactor != reactor;
}

static void lock(struct native_once *once)
{
	if (once->several)
		pthread_mutex_lock(&once->lock);
}

static void unlock(struct native_once *once)
{
	if (once->several)
		pthread_mutex_unlock(&once->lock);
}

/* ---- Entries and records, with the lock held. ---- */

static void bytes_add(struct native_once *once, uint16_t share, uint64_t bytes)
{
	once->bytes += bytes;
	once->share_bytes[share] += bytes;
	counter_add(&kept_bytes, bytes);
}

static void bytes_sub(struct native_once *once, uint16_t share, uint64_t bytes)
{
	once->bytes -= bytes;
	once->share_bytes[share] -= bytes;
	counter_sub(&kept_bytes, bytes);
}

static uint64_t answer_bytes(const struct once_entry *entry)
{
	return (uint64_t)entry->headers_bytes + entry->body_bytes;
}

/* It may hold a secret: that of a new access key. */
static void answer_drop(struct once_entry *entry)
{
	if (entry->answer)
		secret_wipe(entry->answer, answer_bytes(entry));
	free(entry->answer);
	entry->answer = NULL;
	entry->header_count = entry->headers_bytes = entry->body_bytes = 0;
}

static void entry_free(struct native_once *once, struct once_entry *entry)
{
	struct once_record *record = entry->record;
	uint64_t bytes = answer_bytes(entry);

	record->count--;
	list_remove(&entry->link);
	if (bytes)
		bytes_sub(once, record->share, bytes);
	answer_drop(entry);
	if (record->spare_count < ONCE_SPARES_MAX) {
		list_push_front(&record->spares, &entry->link);
		record->spare_count++;
		return;
	}
	bytes_sub(once, record->share, sizeof(*entry));
	free(entry);
}

static void spares_free(struct native_once *once, struct once_record *record)
{
	struct list *spare;

	while ((spare = list_pop(&record->spares)) != NULL) {
		bytes_sub(once, record->share, sizeof(struct once_entry));
		free(CONTAINER_OF(spare, struct once_entry, link));
	}
}

static void record_free(struct native_once *once, struct once_record *record)
{
	LIST_FOR_EACH_SAFE (link, &record->entries)
		entry_free(once, CONTAINER_OF(link, struct once_entry, link));
	spares_free(once, record);
	list_remove(&record->link);
	list_remove(&record->used);
	once->record_count--;
	once->share_records[record->share]--;
	bytes_sub(once, record->share, sizeof(*record));
	free(record);
}

void native_once_close(struct native_once *once)
{
	struct list *used;

	if (!once)
		return;
	while ((used = once->used.next) != &once->used)
		record_free(once, CONTAINER_OF(used, struct once_record, used));
	pthread_mutex_destroy(&once->lock);
	free(once);
}

/* Whether the key has more than its part, with so many bytes more. */
static bool is_heavy(const struct native_once *once, uint16_t share, uint64_t bytes)
{
	return once->share_records[share] >= ONCE_CLIENTS_MAX / ONCE_KEY_PART ||
	       once->share_bytes[share] + bytes > ONCE_BYTES_MAX / ONCE_KEY_PART;
}

enum whose { OWN, HEAVY, ANY };

/* The record used longest ago that may go: without a request that runs, and not the one to keep. */
static struct once_record *record_to_end(const struct native_once *once, uint16_t share,
	enum whose whose, const struct once_record *keep)
{
	LIST_FOR_EACH (link, &once->used) {
		struct once_record *record = CONTAINER_OF(link, struct once_record, used);

		if (record != keep && !record->running &&
			(whose != OWN || record->share == share) &&
			(whose != HEAVY || is_heavy(once, record->share, 0)))
			return record;
	}
	return NULL;
}

static bool record_end(
	struct native_once *once, uint16_t share, bool heavy, const struct once_record *keep)
{
	struct once_record *record = record_to_end(once, share, heavy ? OWN : HEAVY, keep);

	if (!record && !heavy)
		record = record_to_end(once, share, ANY, keep);
	if (record)
		record_free(once, record);
	return record != NULL;
}

/* Makes room for so many bytes of the key, within a part of all. False: all records that could go
 * have requests that run. */
static bool bytes_room(struct native_once *once, uint16_t share, uint64_t bytes, uint64_t bytes_max,
	const struct once_record *keep)
{
	bool heavy = is_heavy(once, share, bytes);
	uint64_t most = bytes_max - (heavy ? bytes_max / ONCE_KEY_PART : 0);

	while (once->bytes + bytes > most)
		if (!record_end(once, share, heavy, keep))
			return false;
	return true;
}

/* The same for another record. */
static bool record_room(struct native_once *once, uint16_t share)
{
	bool many = once->share_records[share] >= ONCE_CLIENTS_MAX / ONCE_KEY_PART;

	if ((many || once->record_count >= ONCE_CLIENTS_MAX) &&
		!record_end(once, share, many, NULL))
		return false;
	return bytes_room(once, share, sizeof(struct once_record), ONCE_BYTES_MAX, NULL);
}

static struct list *bucket_of(struct native_once *once, uint64_t client)
{
	return &once->buckets[(client * 0x9e3779b97f4a7c15ull >> 32) % ONCE_BUCKETS];
}

static struct once_record *record_find(
	struct native_once *once, const struct native_session *session, uint64_t client)
{
	LIST_FOR_EACH (link, bucket_of(once, client)) {
		struct once_record *record = CONTAINER_OF(link, struct once_record, link);

		if (record->client != client ||
			strcmp(record->access_key, session->identity.access_key) != 0)
			continue;
		list_remove(&record->used);
		list_push_back(&once->used, &record->used);
		return record;
	}
	return NULL;
}

static struct once_record *record_new(struct native_once *once,
	const struct native_session *session, const struct capsule_once *said)
{
	struct once_record *record =
		record_room(once, session->share) ? calloc(1, sizeof(*record)) : NULL;

	if (!record)
		return NULL;
	record->client = said->client;
	record->since = said->issued + 1;
	record->share = session->share;
	list_init(&record->entries);
	list_init(&record->spares);
	memcpy(record->access_key, session->identity.access_key, sizeof(record->access_key));
	list_push_back(bucket_of(once, said->client), &record->link);
	list_push_back(&once->used, &record->used);
	once->record_count++;
	once->share_records[record->share]++;
	bytes_add(once, record->share, sizeof(*record));
	return record;
}

/* The last link of the list, or the list, that is not behind this number. Clients number their
 * writes one after the other, so few entries are looked at. */
static struct list *place_of(struct once_record *record, uint64_t number)
{
	struct list *at = record->entries.prev;

	while (at != &record->entries && CONTAINER_OF(at, struct once_entry, link)->number > number)
		at = at->prev;
	return at;
}

static struct once_entry *entry_find(struct once_record *record, uint64_t number)
{
	struct list *at = place_of(record, number);
	struct once_entry *entry = CONTAINER_OF(at, struct once_entry, link);

	return at != &record->entries && entry->number == number ? entry : NULL;
}

/* Not set up, but counted. */
static struct once_entry *entry_take(struct native_once *once, struct once_record *record)
{
	struct list *spare = list_pop(&record->spares);
	struct once_entry *entry = NULL;

	if (spare) {
		record->spare_count--;
		return CONTAINER_OF(spare, struct once_entry, link);
	}
	if (bytes_room(once, record->share, sizeof(*entry), ONCE_BYTES_MAX, record))
		entry = malloc(sizeof(*entry));
	if (entry)
		bytes_add(once, record->share, sizeof(*entry));
	return entry;
}

/* NULL: no memory, or too many run. */
static struct once_entry *entry_new(struct native_once *once, struct once_record *record,
	const struct native_session *session, uint64_t number)
{
	struct once_entry *entry =
		record->count < ONCE_ENTRIES_MAX ? entry_take(once, record) : NULL;

	if (!entry)
		return NULL;
	entry->record = record;
	entry->number = number;
	entry->done = entry->too_long = false;
	entry->front = session->front;
	entry->session_id = session->id;
	entry->status = 0;
	entry->etag_len = 0;
	entry->header_count = entry->headers_bytes = entry->body_bytes = 0;
	entry->answer = NULL;
	list_push_front(place_of(record, number), &entry->link);
	record->count++;
	record->running++;
	return entry;
}

/* The client has the answers to all lower numbers. */
static void answers_known(struct native_once *once, struct once_record *record, uint64_t done_below)
{
	if (done_below <= record->done_below)
		return;
	record->done_below = done_below;
	LIST_FOR_EACH_SAFE (link, &record->entries) {
		struct once_entry *entry = CONTAINER_OF(link, struct once_entry, link);

		if (entry->number >= done_below)
			return;
		if (entry->done)
			entry_free(once, entry);
	}
}

/* ---- Requests. ---- */

enum go { GO_RUN, GO_WAIT, GO_ANSWER, GO_UNKNOWN, GO_OVER, GO_BUSY };

/* How the request goes on, with the lock held. */
static enum go decide(struct native_once *once, struct native_request *request,
	const struct capsule_once *said, struct once_entry **ret_entry)
{
	const struct native_session *session = request->session;
	struct once_record *record = record_find(once, session, said->client);
	bool repeat = request->in.flags & CAPSULE_REQUEST_REPEAT;
	bool sure = request->in.flags & CAPSULE_REQUEST_SURE;

	if (record) {
		answers_known(once, record, said->done_below);
		*ret_entry = entry_find(record, said->number);
		/* A first try that arrives behind its repetition. */
		if (said->number < record->done_below || (*ret_entry && !repeat))
			return GO_OVER;
		if (*ret_entry)
			return (*ret_entry)->done ? GO_ANSWER : GO_WAIT;
	}
	if (repeat && sure && (!record || said->number < record->since))
		return GO_UNKNOWN;
	if (!record)
		record = record_new(once, session, said);
	*ret_entry = record ? entry_new(once, record, session, said->number) : NULL;
	return *ret_entry ? GO_RUN : GO_BUSY;
}

static void entry_copy(struct native_request *request, const struct once_entry *entry,
	uint8_t document[ONCE_ANSWER_BYTES_MAX])
{
	request->reply.status = entry->status;
	request->etag_len = entry->etag_len;
	memcpy(request->etag, entry->etag, entry->etag_len);
	request->header_count = entry->header_count;
	request->headers_bytes = entry->headers_bytes;
	if (entry->headers_bytes)
		memcpy(request->headers, entry->answer, entry->headers_bytes);
	if (entry->body_bytes)
		memcpy(document, entry->answer + entry->headers_bytes, entry->body_bytes);
}

static void refuse(
	struct native_request *request, uint32_t status, const char *code, const char *why)
{
	request->reply.status = status;
	request->refusal = code;
	request->refusal_message = why;
}

static void refuse_unknown(struct native_request *request)
{
	counter_add(&repeats_unknown, 1);
	refuse(request, 500, "OutcomeUnknown",
		"It is not known here whether an earlier try of this request was done: look before "
		"you repeat it.");
}

/* The first try, as a repetition finds it. */
struct first_try {
	struct front_native *front; /* it runs there … */
	uint64_t session_id;	    /* … on this session */
	bool told;		    /* that session was told to end */
	uint32_t document_bytes;
	uint8_t document[ONCE_ANSWER_BYTES_MAX]; /* of its answer */
};

/* Decides, and takes from the entry what is needed once the lock is open. */
static enum go look(
	struct native_request *request, const struct capsule_once *said, struct first_try *first)
{
	struct native_once *once = request->session->front->port->places->once;
	struct once_entry *entry = NULL;
	enum go go;

	lock(once);
	go = decide(once, request, said, &entry);
	if (go == GO_ANSWER && entry->too_long)
		go = GO_UNKNOWN;
	if (go == GO_RUN)
		request->once = entry;
	if (go == GO_ANSWER) {
		entry_copy(request, entry, first->document);
		first->document_bytes = entry->body_bytes;
	} else if (go == GO_WAIT) {
		first->front = entry->front;
		first->session_id = entry->session_id;
	}
	unlock(once);
	if (go == GO_WAIT && first->session_id == request->session->id)
		go = GO_OVER;
	/* The client has given that session up, so the first try need not wait for its body. */
	if (go == GO_WAIT && !first->told)
		first->told = native_session_end_at(first->front, first->session_id);
	return go;
}

/* Waits for the end of a first try that runs. */
static enum go await(
	struct native_request *request, const struct capsule_once *said, struct first_try *first)
{
	struct reactor *reactor = request->session->front->reactor;
	uint64_t until_ns = MIN(request->deadline_ns, reactor_now_ns(reactor) + ONCE_WAIT_NS);
	enum go go;

	while ((go = look(request, said, first)) == GO_WAIT) {
		if (request->session->phase == NATIVE_FAILED || reactor_now_ns(reactor) >= until_ns)
			return GO_UNKNOWN;
		fiber_park_until(reactor_now_ns(reactor) + ONCE_LOOK_NS);
	}
	return go;
}

bool native_once_begin(struct native_request *request)
{
	struct first_try *first;
	struct capsule_once said;
	bool repeat = request->in.flags & CAPSULE_REQUEST_REPEAT;
	enum go go = GO_BUSY;

	memcpy(&said, request->in.once.data, sizeof(said));
	if (!said.number || said.number > said.issued || said.done_below > said.number ||
		said.issued == UINT64_MAX) {
		refuse(request, 400, "MalformedCapsule",
			"The request's numbers contradict each other.");
		return false;
	}
	/* Only a repetition meets a first try. */
	first = repeat ? calloc(1, sizeof(*first)) : NULL;
	if (first || !repeat)
		go = await(request, &said, first);
	if (go == GO_RUN && repeat)
		counter_add(&repeats_run, 1);
	if (go == GO_ANSWER)
		counter_add(&repeats_answered, 1);
	if (go == GO_ANSWER && first->document_bytes &&
		request->reply.ops->text(
			&request->reply, slice_of(first->document, first->document_bytes)))
		request->reply.broken = true;
	if (go == GO_UNKNOWN)
		refuse_unknown(request);
	if (go == GO_OVER)
		refuse(request, 400, "MalformedCapsule",
			"A request of this number was sent before.");
	if (go == GO_BUSY)
		refuse(request, 503, "SlowDown", "The server is short of memory.");
	free(first);
	return go == GO_RUN;
}

/* Keeps the headers and the document. The request's fiber alone uses an entry that runs. */
static bool answer_keep(struct native_request *request, struct slice document)
{
	struct once_entry *entry = request->once;
	size_t bytes = request->headers_bytes + document.len;

	if (bytes > ONCE_ANSWER_BYTES_MAX)
		return false;
	entry->answer = bytes ? malloc(bytes) : NULL;
	if (bytes && !entry->answer)
		return false;
	entry->header_count = request->header_count;
	entry->headers_bytes = (uint32_t)request->headers_bytes;
	entry->body_bytes = (uint32_t)document.len;
	if (entry->headers_bytes)
		memcpy(entry->answer, request->headers, entry->headers_bytes);
	if (document.len)
		memcpy(entry->answer + entry->headers_bytes, document.data, document.len);
	return true;
}

void native_once_note(struct native_request *request, struct slice document)
{
	struct once_entry *entry = request->once;

	if (entry->status)
		return;
	entry->status = (uint16_t)request->reply.status;
	entry->etag_len = request->etag_len;
	memcpy(entry->etag, request->etag, request->etag_len);
	entry->too_long = !answer_keep(request, document);
}

void native_once_end(struct native_request *request)
{
	struct native_once *once = request->session->front->port->places->once;
	struct once_entry *entry = request->once;

	/* Without a document: noted only now. Bytes that went to the client alone are not kept. */
	if (!entry->status && !request->refusal && request->reply.status >= 200 &&
		request->reply.status < 300) {
		native_once_note(request, SLICE_NONE);
		entry->too_long |= request->reply.broken || request->bytes_announced;
	}
	request->once = NULL;
	lock(once);
	entry->record->running--;
	entry->done = true;
	if (answer_bytes(entry) && !bytes_room(once, entry->record->share, answer_bytes(entry),
					   ONCE_ANSWERS_BYTES_MAX, entry->record)) {
		answer_drop(entry);
		entry->too_long = true;
	}
	if (answer_bytes(entry))
		bytes_add(once, entry->record->share, answer_bytes(entry));
	if (!entry->status || entry->number < entry->record->done_below)
		entry_free(once, entry);
	unlock(once);
}
