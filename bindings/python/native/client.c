/* client.c: Client: its options, its lock, requests and waits. Listings are in list.c.
 *
 * A request's memory belongs to the server until its result has come, even if the Python call that
 * made it has ended: a call interrupted by a signal leaves its request as an orphan, which holds
 * the memory until then. */
#include "abi.h"

#include <nebulaio/nebulaio.h>

#include <errno.h>
#include <string.h>

#include "native.h"

/* How long a wait lasts before it checks whether Python has a signal to handle. */
#define WAIT_SLICE_NS  100000000u
#define RESULTS_MAX    8
#define LOG_LINES_MAX  16
#define LOG_LINE_BYTES 512
#define NS_PER_S       1e9
#define MEMORIES_MAX   (2 * NEB_IOV_MAX)
#define TIMEOUT_S_MAX  1e9

PyTypeObject *client_type, *stats_type;
unsigned fork_generation;

/* The life of a call:
 *
 *   in flight  -> done by its result
 *   done       -> freed by perform(); or queued for wait(), and freed there; an orphan is
 *                 freed at once */
struct call {
	struct call *next,
		*prev; /* in the list of calls in flight; next: in the queue for wait() */
	bool done, orphan, queued;
	enum neb_op op;
	PyObject *bucket, *key; /* for errors; may be NULL */
	PyObject *headers;	/* a dict of its own, which keeps their texts; may be NULL */
	bool want_headers;
	uint32_t body_count, memory_count;
	struct memory *memories[MEMORIES_MAX]; /* of the body, then of into */
	struct neb_result result;
};

struct client {
	PyObject_HEAD struct neb_client *neb; /* NULL: not open, or closed */
	bool closed;
	unsigned generation;
	PyThread_type_lock lock;
	unsigned long owner; /* the thread inside; 0: none */
	uint32_t guests;     /* number of buffers and registrations */
	uint32_t flying;     /* calls in flight */
	struct call *in_flight, *done_first, *done_last;
	struct leftover *leftovers;
	uint32_t log_count;
	struct {
		enum neb_log_level level;
		char text[LOG_LINE_BYTES];
	} log[LOG_LINES_MAX];
};

void client_forked(void)
{
	fork_generation++;
}

const char *client_text(PyObject *string)
{
	Py_ssize_t bytes;
	const char *text = PyUnicode_AsUTF8AndSize(string, &bytes);

	if (text && (size_t)bytes != strlen(text)) {
		PyErr_SetString(PyExc_ValueError, "embedded null character");
		return NULL;
	}
	return text;
}

/* ---- Errors and log lines, for Python. ---- */

static const char *verb_of(enum neb_op op)
{
	static const char *const VERBS[] = {
		[NEB_GET_OBJECT] = "GET",
		[NEB_PUT_OBJECT] = "PUT",
		[NEB_DELETE_OBJECT] = "DELETE",
		[NEB_HEAD_OBJECT] = "HEAD",
		[NEB_LIST_OBJECTS] = "listing",
		[NEB_UPLOAD_PART] = "uploading a part of",
		[NEB_COPY_OBJECT] = "copying to",
		[NEB_LIST_BUCKETS] = "listing the buckets",
		[NEB_CREATE_BUCKET] = "creating bucket",
		[NEB_DELETE_BUCKET] = "deleting bucket",
		[NEB_HEAD_BUCKET] = "HEAD",
		[NEB_PING] = "ping",
	};

	return (unsigned)op < sizeof(VERBS) / sizeof(*VERBS) && VERBS[op] ? VERBS[op] : "request";
}

void *client_raise_from(
	const struct neb_result *result, int op, struct _object *bucket, struct _object *key)
{
	PyObject *errors = PyImport_ImportModule("nebulaio.errors");
	PyObject *exception =
		errors ? PyObject_CallMethod(errors, "from_result", "iINNNsNsOO", -result->error,
				 (unsigned)result->status, text_of(result->code),
				 text_of(result->message), text_of(result->request_id),
				 neb_transport_name(result->transport), text_of(result->fallback),
				 verb_of((enum neb_op)op), bucket ? bucket : Py_None,
				 key ? key : Py_None)
		       : NULL;

	Py_XDECREF(errors);
	if (exception)
		PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
	Py_XDECREF(exception);
	return NULL;
}

void *client_raise(int error, const char *what)
{
	struct neb_result result = {.error = error, .transport = NEB_NONE};

	PyOS_snprintf(result.message, sizeof(result.message), "%s", what);
	return client_raise_from(&result, 0, NULL, NULL);
}

/* The library calls this with the interpreter's lock released. */
static void log_keep(void *arg, enum neb_log_level level, const char *text)
{
	struct client *self = arg;

	if (self->log_count == LOG_LINES_MAX)
		return;
	self->log[self->log_count].level = level;
	PyOS_snprintf(self->log[self->log_count++].text, LOG_LINE_BYTES, "%s", text);
}

/* The logged lines, as a list for nebulaio.errors.log(); NULL when there are none. */
static PyObject *log_take(struct client *self)
{
	static const int LEVELS[] = {10, 20, 30, 40};
	PyObject *type, *value, *trace, *lines;
	uint32_t count = self->log_count;

	if (!count)
		return NULL;
	self->log_count = 0;
	PyErr_Fetch(&type, &value, &trace);
	lines = PyList_New(0);
	for (uint32_t i = 0; lines && i < count; i++) {
		PyObject *line = Py_BuildValue(
			"iN", LEVELS[self->log[i].level & 3], text_of(self->log[i].text));

		if (!line || PyList_Append(lines, line))
			Py_CLEAR(lines);
		Py_XDECREF(line);
	}
	PyErr_Clear();
	PyErr_Restore(type, value, trace);
	return lines;
}

/* Passes lines to Python's logging, and keeps a pending exception. Runs Python code: outside the
 * client's lock. */
static void log_deliver(PyObject *lines)
{
	PyObject *type, *value, *trace, *errors, *done;

	if (!lines)
		return;
	PyErr_Fetch(&type, &value, &trace);
	errors = PyImport_ImportModule("nebulaio.errors");
	done = errors ? PyObject_CallMethod(errors, "log", "O", lines) : NULL;
	if (!done)
		PyErr_WriteUnraisable(lines);
	Py_XDECREF(done);
	Py_XDECREF(errors);
	Py_DECREF(lines);
	PyErr_Restore(type, value, trace);
}

/* ---- Calls. ---- */

static void call_free(struct call *call)
{
	for (uint32_t i = 0; i < call->memory_count; i++)
		memory_give(call->memories[i]);
	Py_XDECREF(call->bucket);
	Py_XDECREF(call->key);
	Py_XDECREF(call->headers);
	PyMem_Free(call);
}

static void call_land(struct client *self, struct call *call)
{
	if (call->prev)
		call->prev->next = call->next;
	else
		self->in_flight = call->next;
	if (call->next)
		call->next->prev = call->prev;
	call->next = call->prev = NULL;
	self->flying--;
}

static void result_take(struct client *self, const struct neb_result *result)
{
	struct call *call = result->user_data;

	call_land(self, call);
	call->result = *result;
	call->done = true;
	if (call->orphan) {
		call_free(call);
	} else if (call->queued) {
		if (self->done_last)
			self->done_last->next = call;
		else
			self->done_first = call;
		self->done_last = call;
	}
}

/* Waits at most ns for results, with the interpreter's lock released. */
static void results_wait(struct client *self, uint64_t ns)
{
	struct neb_result results[RESULTS_MAX];
	int count;

	Py_BEGIN_ALLOW_THREADS count = neb_wait(self->neb, results, RESULTS_MAX, ns);
	Py_END_ALLOW_THREADS for (int i = 0; i < count; i++) result_take(self, &results[i]);
}

/* ---- The lock. ---- */

/* Gives the leftovers of dead Python objects back to the library. Registrations wait until no
 * request is in flight that might use them. */
static void leftovers_end(struct client *self)
{
	struct leftover **at = &self->leftovers;

	while (*at) {
		struct leftover *leftover = *at;

		if (self->neb && leftover->registered && self->flying) {
			at = &leftover->next;
			continue;
		}
		*at = leftover->next;
		if (self->neb && leftover->pooled)
			neb_buffer_free(self->neb, leftover->pooled);
		if (self->neb && leftover->registered)
			neb_unregister(self->neb, leftover->registered->data);
		memory_give(leftover->registered);
		PyMem_Free(leftover);
	}
}

/* Drops the results of submit() that nobody has taken. */
static void results_drop(struct client *self)
{
	while (self->done_first) {
		struct call *call = self->done_first;

		self->done_first = call->next;
		call_free(call);
	}
	self->done_last = NULL;
}

static void calls_drop(struct client *self)
{
	while (self->in_flight) {
		struct call *call = self->in_flight;

		call_land(self, call);
		call_free(call);
	}
	results_drop(self);
}

/* Runs before each release of the lock. Ends the session when it is closed and no Python object
 * needs its memory. */
static void client_end(struct client *self)
{
	struct neb_client *neb = self->neb;

	if (self->closed && neb && !self->guests) {
		self->neb = NULL;
		Py_BEGIN_ALLOW_THREADS neb_client_close(neb);
		Py_END_ALLOW_THREADS calls_drop(self);
	}
	leftovers_end(self);
}

struct neb_client *client_enter(PyObject *object)
{
	struct client *self = (struct client *)object;

	if (self->generation != fork_generation) {
		client_raise(-EPERM,
			"this client was opened before a fork and belongs to the parent process: "
			"open a client in each process");
		return NULL;
	}
	if (!self->lock) {
		PyErr_SetString(PyExc_ValueError, "the client was never opened");
		return NULL;
	}
	if (self->owner == PyThread_get_thread_ident()) {
		PyErr_SetString(PyExc_RuntimeError, "the client is in use by this very thread");
		return NULL;
	}
	if (!PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
		Py_BEGIN_ALLOW_THREADS PyThread_acquire_lock(self->lock, WAIT_LOCK);
		Py_END_ALLOW_THREADS
	}
	if (self->closed || !self->neb) {
		client_end(self);
		PyThread_release_lock(self->lock);
		PyErr_SetString(PyExc_ValueError, "the client is closed");
		return NULL;
	}
	self->owner = PyThread_get_thread_ident();
	return self->neb;
}

void client_leave(PyObject *object)
{
	struct client *self = (struct client *)object;

	PyObject *lines = log_take(self);

	client_end(self);
	self->owner = 0;
	PyThread_release_lock(self->lock);
	log_deliver(lines);
}

void client_adopt(PyObject *object)
{
	((struct client *)object)->guests++;
}

void client_discard(PyObject *object, struct leftover *leftover)
{
	struct client *self = (struct client *)object;

	self->guests--;
	leftover->next = self->leftovers;
	self->leftovers = leftover;
	/* If a thread is inside the library, it ends the client when it leaves. */
	if (self->generation == fork_generation && PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
		client_end(self);
		PyThread_release_lock(self->lock);
	}
}

/* ---- Opening and closing. ---- */

bool client_seconds(double seconds, uint64_t *ret_ns)
{
	if (!(seconds >= 0 && seconds <= TIMEOUT_S_MAX)) {
		PyErr_SetString(PyExc_ValueError, "a time is negative or beyond bounds");
		return false;
	}
	*ret_ns = (uint64_t)(seconds * NS_PER_S);
	return true;
}

static int client_init(struct client *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"endpoints", "access_key", "secret_key", "region", "transport",
		"device_name", "pool_bytes", "requests_max", "inline_bytes_max", "connect_timeout",
		"request_timeout", "spin", "require_encryption", "one_sided_reads",
		"registration_cache_bytes", "session_token", NULL};
	struct neb_options options = {.log = log_keep, .log_arg = self};
	const char *transport = "auto";
	unsigned long long pool_bytes = 0;
	unsigned long long cache_bytes = 0;
	double connect_timeout = 0, request_timeout = 0, spin = 0;
	int ret, encrypted = 0, one_sided = 0;

	if (self->neb || self->closed) {
		PyErr_SetString(PyExc_RuntimeError, "the client is open already");
		return -1;
	}
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sss|$zszKIIdddppKz", names,
		    &options.endpoints, &options.access_key, &options.secret_key, &options.region,
		    &transport, &options.device_name, &pool_bytes, &options.requests_max,
		    &options.inline_bytes_max, &connect_timeout, &request_timeout, &spin,
		    &encrypted, &one_sided, &cache_bytes, &options.session_token))
		return -1;
	options.pool_bytes = pool_bytes;
	options.require_encryption = encrypted != 0;
	options.one_sided_reads = one_sided != 0;
	options.registration_cache_bytes = cache_bytes;
	if (neb_transport_parse(transport, &options.transport)) {
		PyErr_Format(PyExc_ValueError, "transport %s is not auto, rdma, http or strict",
			transport);
		return -1;
	}
	if (!client_seconds(connect_timeout, &options.connect_timeout_ns) ||
		!client_seconds(request_timeout, &options.request_timeout_ns) ||
		!client_seconds(spin, &options.spin_ns))
		return -1;
	if (!self->lock)
		self->lock = PyThread_allocate_lock();
	if (!self->lock) {
		PyErr_NoMemory();
		return -1;
	}
	self->generation = fork_generation;
	Py_BEGIN_ALLOW_THREADS ret = neb_client_open(&options, &self->neb);
	Py_END_ALLOW_THREADS log_deliver(log_take(self));
	if (ret)
		client_raise(ret, "the client cannot be opened (the log says why)");
	return ret ? -1 : 0;
}

/* Takes the last results while a Buffer or a Registration keeps the session open. A request whose
 * call has ended may itself hold the Buffer, and nobody takes its result after the close. False: a
 * signal handler raised an exception. */
static bool results_await(struct client *self)
{
	results_drop(self);
	while (self->flying && self->guests) {
		results_wait(self, WAIT_SLICE_NS);
		results_drop(self);
		if (self->flying && self->guests && PyErr_CheckSignals())
			return false;
	}
	return true;
}

static PyObject *client_close(PyObject *object, PyObject *unused)
{
	struct client *self = (struct client *)object;
	bool done;

	(void)unused;
	if (self->closed || !self->neb || self->generation != fork_generation) {
		self->closed = true;
		Py_RETURN_NONE;
	}
	if (!client_enter(object))
		return NULL;
	self->closed = true;
	done = results_await(self);
	client_leave(object);
	if (!done)
		return NULL;
	Py_RETURN_NONE;
}

/* No buffer and no registration is left: each holds a reference. After a fork the session and its
 * memory belong to the parent. */
static void client_dealloc(struct client *self)
{
	self->closed = true;
	if (self->neb && self->generation == fork_generation)
		client_end(self);
	if (self->lock)
		PyThread_free_lock(self->lock);
	object_free((PyObject *)self);
}

/* ---- Results. ---- */

/* The exception that is raised, in place of raising it. */
static PyObject *raised_take(void)
{
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	PyErr_NormalizeException(&type, &value, &trace);
	Py_XDECREF(type);
	Py_XDECREF(trace);
	return value;
}

/* Takes the call. */
static PyObject *call_result(struct call *call)
{
	PyObject *result = call->result.error ? client_raise_from(&call->result, call->op,
							call->bucket, call->key)
					      : result_make(&call->result, call->want_headers);

	call_free(call);
	return result;
}

/* ---- Requests. ---- */

static int memories_take(struct call *call, PyObject *from, bool writable)
{
	bool tuple = PyTuple_Check(from), list = PyList_Check(from);
	Py_ssize_t count = tuple || list ? PySequence_Size(from) : 1;

	if (count > (Py_ssize_t)NEB_IOV_MAX) {
		PyErr_Format(PyExc_ValueError, "more than %u pieces of memory in one request",
			NEB_IOV_MAX);
		return -1;
	}
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *piece = tuple	 ? PyTuple_GetItem(from, i)
				  : list ? PyList_GetItem(from, i)
					 : from;
		struct memory *memory = piece ? memory_take(piece, writable) : NULL;

		if (!memory)
			return -1;
		call->memories[call->memory_count++] = memory;
	}
	return 0;
}

static int headers_take(PyObject *from, struct neb_header *headers, uint32_t *ret_count)
{
	PyObject *name, *value;
	Py_ssize_t at = 0;
	uint32_t count = 0;

	while (PyDict_Next(from, &at, &name, &value)) {
		if (count == NEB_HEADERS_MAX) {
			PyErr_Format(PyExc_ValueError, "more than %u headers", NEB_HEADERS_MAX);
			return -1;
		}
		headers[count].name = client_text(name);
		headers[count].value = headers[count].name ? client_text(value) : NULL;
		if (!headers[count].value)
			return -1;
		count++;
	}
	*ret_count = count;
	return 0;
}

static bool checksum_check(int kind, Py_ssize_t bytes)
{
	static const Py_ssize_t BYTES[] = {[NEB_CHECKSUM_CRC32] = 4,
		[NEB_CHECKSUM_CRC32C] = 4,
		[NEB_CHECKSUM_CRC64NVME] = 8,
		[NEB_CHECKSUM_SHA1] = 20,
		[NEB_CHECKSUM_SHA256] = 32,
		[NEB_CHECKSUM_MD5] = 16,
		[NEB_CHECKSUM_SHA512] = 64,
		[NEB_CHECKSUM_XXHASH64] = 8,
		[NEB_CHECKSUM_XXHASH3] = 8,
		[NEB_CHECKSUM_XXHASH128] = 16};

	if (kind >= 0 && (size_t)kind < sizeof(BYTES) / sizeof(BYTES[0]) && bytes == BYTES[kind])
		return true;
	PyErr_SetString(PyExc_ValueError, "a checksum of an unknown kind, or not of its length");
	return false;
}

/* The arguments of a request, as given in Python; strings are borrowed from them. */
struct asked {
	struct neb_request request;
	struct neb_header headers[NEB_HEADERS_MAX];
	struct neb_iov iov[MEMORIES_MAX];
	PyObject *offset, *length;
};

static int request_parse(struct asked *asked, struct call *call, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"op", "bucket", "key", "body", "into", "offset", "length", "query",
		"headers", "version_id", "method", "path", "timeout", "want_headers",
		"checksum_kind", "checksum", NULL};
	struct neb_request *request = &asked->request;
	PyObject *body = Py_None, *into = Py_None, *headers = Py_None, *bucket = Py_None,
		 *key = Py_None;
	double timeout = 0;
	int op, want_headers = 0, checksum_kind = 0;
	Py_ssize_t checksum_bytes = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|OO$OOOOzOzzzdpiz#", names, &op, &bucket,
		    &key, &body, &into, &asked->offset, &asked->length, &request->query, &headers,
		    &request->version_id, &request->method, &request->path, &timeout, &want_headers,
		    &checksum_kind, &request->checksum, &checksum_bytes))
		return -1;
	request->op = (enum neb_op)op;
	request->want_headers = want_headers;
	request->checksum_kind = (enum neb_checksum)checksum_kind;
	call->op = request->op;
	call->want_headers = want_headers || op == NEB_HEAD_OBJECT;
	if (!client_seconds(timeout, &request->timeout_ns) ||
		!checksum_check(checksum_kind, checksum_bytes))
		return -1;
	if (bucket != Py_None && !(request->bucket = client_text(bucket)))
		return -1;
	if (key != Py_None && !(request->key = client_text(key)))
		return -1;
	if (headers != Py_None && !PyDict_Check(headers)) {
		PyErr_SetString(PyExc_TypeError, "headers is not a dict");
		return -1;
	}
	/* The caller's dict may change before the library has copied the texts. */
	if (headers != Py_None && !(call->headers = PyDict_Copy(headers)))
		return -1;
	if (call->headers && headers_take(call->headers, asked->headers, &request->header_count))
		return -1;
	Py_INCREF(bucket);
	Py_INCREF(key);
	call->bucket = bucket;
	call->key = key;
	if (body != Py_None && memories_take(call, body, false))
		return -1;
	call->body_count = call->memory_count;
	return into != Py_None ? memories_take(call, into, true) : 0;
}

/* Names the memory to the library, and the range that is read into it. */
static int request_finish(struct asked *asked, const struct call *call)
{
	struct neb_request *request = &asked->request;
	size_t room_bytes = 0;

	for (uint32_t i = 0; i < call->memory_count; i++) {
		asked->iov[i] = (struct neb_iov){call->memories[i]->data, call->memories[i]->bytes};
		room_bytes += i >= call->body_count ? call->memories[i]->bytes : 0;
	}
	request->body_count = call->body_count;
	request->into = asked->iov + call->body_count;
	request->into_count = call->memory_count - call->body_count;
	return range_take(asked->offset, asked->length, room_bytes, &request->range_offset,
		       &request->range_bytes)
		       ? 0
		       : -1;
}

static void call_launch(struct client *self, struct call *call)
{
	call->next = self->in_flight;
	if (self->in_flight)
		self->in_flight->prev = call;
	self->in_flight = call;
	self->flying++;
}

static int fresh_take(struct call *call, PyObject *fresh)
{
	struct memory *memory = call->memory_count < MEMORIES_MAX ? memory_take_fresh(fresh) : NULL;

	if (!memory)
		return -1;
	call->memories[call->memory_count++] = memory;
	return 0;
}

/* Parses and submits. Takes the lock, and returns with it; NULL with an exception, without it. */
static struct call *call_start(
	struct client *self, PyObject *args, PyObject *kwargs, PyObject *fresh, uint64_t *ret_id)
{
	struct asked asked = {.request = {.headers = asked.headers, .body = asked.iov}};
	struct call *call = PyMem_Calloc(1, sizeof(*call));
	int ret;

	if (!call) {
		PyErr_NoMemory();
		return NULL;
	}
	if (request_parse(&asked, call, args, kwargs) || (fresh && fresh_take(call, fresh)) ||
		request_finish(&asked, call) || !client_enter((PyObject *)self)) {
		call_free(call);
		return NULL;
	}
	asked.request.user_data = call;
	call_launch(self, call);
	Py_BEGIN_ALLOW_THREADS ret = neb_submit(self->neb, &asked.request, ret_id);
	Py_END_ALLOW_THREADS if (ret == 0) return call;
	call_land(self, call);
	call_free(call);
	client_leave((PyObject *)self);
	return client_raise(ret, "the request is out of bounds, or a bucket or a key "
				 "is missing");
}

/* Leaves the library after a request. An object that was received into is not received into again,
 * and the program that gets it, or nobody, frees it: it does not stay in the cache of
 * registrations. A request that a signal left behind ends its registration itself. */
static void perform_leave(struct client *self, PyObject *fresh)
{
	if (fresh)
		(void)neb_memory_forget(
			self->neb, PyBytes_AsString(fresh), (size_t)PyBytes_Size(fresh));
	client_leave((PyObject *)self);
}

static PyObject *perform(struct client *self, PyObject *args, PyObject *kwargs, PyObject *fresh)
{
	struct call *call = call_start(self, args, kwargs, fresh, NULL);

	if (!call)
		return NULL;
	while (!call->done) {
		results_wait(self, WAIT_SLICE_NS);
		if (!call->done && PyErr_CheckSignals()) {
			call->orphan = true;
			perform_leave(self, fresh);
			return NULL;
		}
	}
	perform_leave(self, fresh);
	return call_result(call);
}

static PyObject *client_perform(struct client *self, PyObject *args, PyObject *kwargs)
{
	return perform(self, args, kwargs, NULL);
}

static PyObject *client_submit(struct client *self, PyObject *args, PyObject *kwargs)
{
	uint64_t id;
	struct call *call = call_start(self, args, kwargs, NULL, &id);

	if (!call)
		return NULL;
	call->queued = true;
	client_leave((PyObject *)self);
	return PyLong_FromUnsignedLongLong(id);
}

PyObject *client_error_of(const struct neb_result *result, int op, PyObject *bucket, PyObject *key)
{
	client_raise_from(result, op, bucket, key);
	return raised_take();
}

/* The id and the result, or the exception in its place. Takes the call. */
static PyObject *call_pair(struct call *call)
{
	uint64_t id = call->result.id;
	PyObject *outcome = call_result(call);

	return Py_BuildValue("KN", id, outcome ? outcome : raised_take());
}

static PyObject *pairs_make(struct call *first)
{
	PyObject *pairs = PyList_New(0);

	while (first) {
		struct call *call = first;
		PyObject *pair;

		first = call->next;
		pair = call_pair(call);
		if (!pair || !pairs || PyList_Append(pairs, pair))
			Py_CLEAR(pairs);
		Py_XDECREF(pair);
	}
	return pairs;
}

/* Waits in slices for a result of submit(), or for the timeout. */
static PyObject *client_wait(struct client *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"timeout", NULL};
	double timeout = TIMEOUT_S_MAX;
	uint64_t left_ns;
	struct call *first;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|d", names, &timeout) ||
		!client_seconds(timeout, &left_ns) || !client_enter((PyObject *)self))
		return NULL;
	while (!self->done_first && self->flying) {
		uint64_t slice_ns = left_ns < WAIT_SLICE_NS ? left_ns : WAIT_SLICE_NS;

		results_wait(self, slice_ns);
		left_ns -= slice_ns;
		if (self->done_first || !left_ns || PyErr_CheckSignals())
			break;
	}
	first = self->done_first;
	if (!PyErr_Occurred())
		self->done_first = self->done_last = NULL;
	client_leave((PyObject *)self);
	return PyErr_Occurred() ? NULL : pairs_make(first);
}

/* perform_bytes(type, length, op, ...): as perform(), but the answer becomes an object of the
 * type. */
static PyObject *client_perform_bytes(struct client *self, PyObject *args, PyObject *kwargs)
{
	PyObject *rest = NULL, *object = NULL, *result = NULL, *first;
	PyObject *type;
	Py_ssize_t bytes;

	first = PyTuple_GetSlice(args, 0, 2);
	if (first && PyArg_ParseTuple(first, "O!n", &PyType_Type, &type, &bytes))
		rest = PyTuple_GetSlice(args, 2, PyTuple_Size(args));
	if (rest)
		object = bytes_make((PyTypeObject *)type, bytes);
	if (object)
		result = perform(self, rest, kwargs, object);
	Py_XDECREF(first);
	Py_XDECREF(rest);
	if (!result) {
		Py_XDECREF(object);
		return NULL;
	}
	return Py_BuildValue("NN", object, result);
}

/* ---- The type. ---- */

static PyObject *client_alloc(PyObject *self, PyObject *arg)
{
	Py_ssize_t bytes = PyNumber_AsSsize_t(arg, PyExc_OverflowError);

	if (bytes == -1 && PyErr_Occurred())
		return NULL;
	if (bytes < 0) {
		PyErr_SetString(PyExc_ValueError, "a length below 0");
		return NULL;
	}
	return buffer_make(self, (size_t)bytes);
}

static PyObject *client_register(PyObject *self, PyObject *object)
{
	return registration_make(self, object);
}

/* The registration cache must not outlive the memory in it. */
static PyObject *client_forget(PyObject *object, PyObject *owner)
{
	struct memory *memory = memory_take(owner, false);
	struct neb_client *neb;
	int ret = 0;

	if (!memory)
		return NULL;
	neb = client_enter(object);
	if (neb) {
		ret = memory->bytes ? neb_memory_forget(neb, memory->data, memory->bytes) : 0;
		client_leave(object);
	}
	memory_give(memory);
	if (!neb)
		return NULL;
	if (ret)
		return client_raise(ret, "a request is using the memory");
	Py_RETURN_NONE;
}

static PyObject *client_stats(PyObject *object, PyObject *unused)
{
	struct neb_client *neb = client_enter(object);
	struct neb_stats stats;
	PyObject *made;

	(void)unused;
	if (!neb)
		return NULL;
	neb_client_stats(neb, &stats);
	client_leave(object);
	made = PyStructSequence_New(stats_type);
	if (!made)
		return NULL;
	const uint64_t values[] = {stats.requests_rdma, stats.requests_http, stats.fallbacks,
		stats.sessions_opened, stats.sessions_lost, stats.bytes_copied, stats.registrations,
		stats.sleeps, stats.registration_hits, stats.registration_misses, stats.leases,
		stats.one_sided_reads, stats.one_sided_misses, stats.bytes_staged, stats.paths,
		stats.paths_up, stats.requests_moved};
	for (Py_ssize_t i = 0; i < (Py_ssize_t)(sizeof(values) / sizeof(*values)); i++)
		PyStructSequence_SetItem(made, i, PyLong_FromUnsignedLongLong(values[i]));
	if (PyErr_Occurred())
		Py_CLEAR(made);
	return made;
}

static PyObject *client_closed(struct client *self, void *closure)
{
	(void)closure;
	return PyBool_FromLong(self->closed);
}

static PyObject *client_in_flight(struct client *self, void *closure)
{
	(void)closure;
	return PyLong_FromUnsignedLong(self->flying);
}

static PyMethodDef client_methods[] = {
	{"perform", (PyCFunction)(void (*)(void))client_perform, METH_VARARGS | METH_KEYWORDS,
		"One request, waited for: its Result."},
	{"perform_bytes", (PyCFunction)(void (*)(void))client_perform_bytes,
		METH_VARARGS | METH_KEYWORDS,
		"perform_bytes(type, length, ...): the answer received into a new object of a "
		"subclass of bytes, and the Result."},
	{"submit", (PyCFunction)(void (*)(void))client_submit, METH_VARARGS | METH_KEYWORDS,
		"Starts a request: its id, for wait()."},
	{"get_batch", (PyCFunction)(void (*)(void))client_get_batch, METH_VARARGS | METH_KEYWORDS,
		"Reads [(bucket, key, memory, offset, length), ...]: [Result or exception, ...]."},
	{"get_fan_out", (PyCFunction)(void (*)(void))client_get_fan_out,
		METH_VARARGS | METH_KEYWORDS,
		"Reads an object together with other clients: its Result, with headers."},
	{"wait", (PyCFunction)(void (*)(void))client_wait, METH_VARARGS | METH_KEYWORDS,
		"Waits for submitted requests: [(id, Result or exception), ...]; empty when the "
		"time is over, or nothing is in flight."},
	{"list", (PyCFunction)(void (*)(void))list_objects, METH_VARARGS | METH_KEYWORDS,
		"[(key, is_prefix, bytes, etag, last_modified), ...]"},
	{"list_buckets", list_buckets, METH_NOARGS, "[(name, created), ...]"},
	{"alloc", client_alloc, METH_O, "A Buffer of the pool."},
	{"register", client_register, METH_O, "A Registration of an object's memory."},
	{"forget", client_forget, METH_O, "Memory that requests have used goes away."},
	{"stats", client_stats, METH_NOARGS, "What the client did so far."},
	{"close", client_close, METH_NOARGS,
		"Ends the session; with buffers alive, when the last of them is gone. Waits for "
		"requests in flight if there are buffers or registrations."},
	{NULL, NULL, 0, NULL},
};

static PyObject *client_device(PyObject *object, void *why)
{
	struct neb_client *neb = client_enter(object);
	PyObject *text = NULL;

	if (neb) {
		text = text_of(why ? neb_client_device_why(neb) : neb_client_device(neb));
		client_leave(object);
	}
	return text;
}

static PyGetSetDef client_getset[] = {
	{"device", client_device, NULL, "the RDMA device gone by, or an empty text", NULL},
	{"device_why", client_device, NULL, "why it is that one, or none", "why"},
	{"closed", (getter)client_closed, NULL, NULL, NULL},
	{"in_flight", (getter)client_in_flight, NULL, "requests without a result yet", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot client_slots[] = {
	{Py_tp_doc, "A client of libnebulaio. nebulaio.RDMAClient is what programs use."},
	{Py_tp_new, PyType_GenericNew},
	{Py_tp_init, client_init},
	{Py_tp_dealloc, client_dealloc},
	{Py_tp_methods, client_methods},
	{Py_tp_getset, client_getset},
	{0, NULL},
};

static PyStructSequence_Field STATS_FIELDS[] = {
	{"requests_rdma", "answered over RDMA"},
	{"requests_http", "answered over HTTP"},
	{"fallbacks", "went by HTTP though RDMA was wanted"},
	{"sessions_opened", NULL},
	{"sessions_lost", NULL},
	{"bytes_copied", "by the client, between your memory and the pool or a message"},
	{"registrations", "made for single requests"},
	{"sleeps", "waits that went to the kernel"},
	{"registration_hits", "registrations that the cache had"},
	{"registration_misses", NULL},
	{"leases", "of objects that may be read from the server's memory"},
	{"one_sided_reads", "done so"},
	{"one_sided_misses", "found that the object had changed, and asked the server"},
	{"bytes_staged", "of bytes_copied: to and from a GPU's memory"},
	{"paths", "addresses of the server in use"},
	{"paths_up", "of them, those with a session now"},
	{"requests_moved", "lost their session, and were sent again on another path"},
	{NULL, NULL},
};

int client_types_make(void)
{
	static PyStructSequence_Desc stats_desc = {
		"nebulaio.Stats", "What a client did.", STATS_FIELDS, 8};
	static PyType_Spec client_spec = {"nebulaio._native.Client", sizeof(struct client), 0,
		Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, client_slots};

	client_type = (PyTypeObject *)PyType_FromSpec(&client_spec);
	stats_type = PyStructSequence_NewType(&stats_desc);
	return client_type && stats_type ? 0 : -1;
}
