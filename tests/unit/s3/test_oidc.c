/* tests/unit/s3/test_oidc.c: the keys of issuers: a server on a thread that answers, falls silent
 * or hangs up; fibers' calls are a thread's own, and the clock can be put forward. */
#include "../unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "reactor/reactor.h"
#include "s3/identity/oidc.h"

#define HOUR_NS (3600 * NS_PER_S)

/* Keys and token were made with openssl for this test. */
/* clang-format off */
static const char es256[] =
	"eyJhbGciOiAiRVMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAicDI1NiJ9.eyJpc3MiOiAiaHR0cHM6Ly9"
	"pZC5leGFtcGxlLmNvbSIsICJzdWIiOiAiYWxpY2UiLCAiYXVkIjogWyJhcHAiXSwgImV4cCI6IDIwMDAwMDA"
	"wMDB9.kelq3_GXZNYz2wxwwU412EPeHdJWAYhtywFnm9bxoRMz1FleMJ9Pn_4a6QMG-uuYx2H_3jzOwGpllf"
	"diiQHoDQ";
#define KEY_P256 \
	"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"1bdK0OTz5fk-yOpWB7w6NOdwiuja_GX8Q9EF4tzKLF" \
	"I\",\"y\":\"ogrxygq_aC89P9ak3BZNixQN-SPppUIt6sIcZUt3D7g\",\"kid\":\"p256\"}"
#define KEY_P384 \
	"{\"kty\":\"EC\",\"crv\":\"P-384\",\"x\":\"BFlBXp1Qo4rGYAxZ6Fr-_BKlLpsWDxi2vtq25E-8w7" \
	"a2QRx4EFnxeI4TCWuxfUGx\",\"y\":\"Fyu-ByuDSEFyuuUzQwVESNlyvamWf8eyp8tigovX5pzu-_6jRH-" \
	"ZBMAYm57_iolf\",\"kid\":\"p384\",\"alg\":\"ES384\"}"
/* clang-format on */
#define SET(keys) "{\"keys\":[" keys "]}"

/* ---- Fibers and time. ---- */

static pthread_t main_thread;
static _Atomic uint64_t forward_ns; /* of the clock */
static uint32_t main_waits;
static sem_t waits; /* for each other thread that waits: for its turn or for a silent issuer */

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	int err = __real_clock_gettime(id, ret);

	if (id == CLOCK_MONOTONIC)
		ret->tv_sec += (time_t)(forward_ns / NS_PER_S);
	return err;
}

void __wrap_fiber_offload_long(fiber_fn *fn, void *arg);
void __wrap_fiber_offload_long(fiber_fn *fn, void *arg)
{
	fn(arg);
}

/* The main thread's patience ends with its first wait. */
void __wrap_fiber_sleep_ns(uint64_t ns);
void __wrap_fiber_sleep_ns(uint64_t ns)
{
	const struct timespec rest = {.tv_nsec = (long)ns};

	if (pthread_equal(pthread_self(), main_thread)) {
		main_waits++;
		forward_ns += 60 * NS_PER_S;
		return;
	}
	sem_post(&waits);
	nanosleep(&rest, NULL);
}

/* ---- The issuers: "/silent…" do not answer until they are all let go. ---- */

static int listener;
static uint16_t port;
static pthread_t server;
static const char *_Atomic key_set;
static _Atomic bool dead; /* hang up */
static _Atomic uint32_t asked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of these: */
static int silent[8];
static uint32_t silent_count;
static bool let_go;

static void answer(int fd, const char *path)
{
	char body[2048], head[128];
	int len, head_len;

	if (strstr(path, "/keys"))
		len = snprintf(body, sizeof(body), "%s", key_set);
	else
		len = snprintf(body, sizeof(body),
			"{\"issuer\":\"http://127.0.0.1:%u%.*s\",\"jwks_uri\":"
			"\"http://127.0.0.1:%u/keys\"}",
			port, (int)strcspn(path + 1, "/") + 1, path, port);
	head_len = snprintf(head, sizeof(head),
		"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len);
	if (write(fd, head, (size_t)head_len) == head_len)
		(void)!write(fd, body, (size_t)len);
	close(fd);
}

static bool keep_silent(int fd)
{
	bool kept;

	pthread_mutex_lock(&lock);
	kept = !let_go && silent_count < ARRAY_LEN(silent);
	if (kept)
		silent[silent_count++] = fd;
	pthread_mutex_unlock(&lock);
	if (kept)
		sem_post(&waits);
	return kept;
}

static void *serve(void *arg)
{
	int fd;

	(void)arg;
	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		char text[4096] = "";
		size_t len = 0;
		ssize_t got;

		asked++;
		while (!dead && !strstr(text, "\r\n\r\n") && len < sizeof(text) - 1 &&
			(got = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
			text[len += (size_t)got] = '\0';
		if (dead || (strncmp(text, "GET /silent", 11) == 0 && !keep_silent(fd)))
			close(fd);
		else if (strncmp(text, "GET /silent", 11) != 0)
			answer(fd, text + 4);
	}
	return NULL;
}

static void let_all_go(void)
{
	pthread_mutex_lock(&lock);
	let_go = true;
	while (silent_count)
		close(silent[--silent_count]);
	pthread_mutex_unlock(&lock);
}

static struct s3_oidc *oidc;

static int open_all(void **state)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	(void)state;
	main_thread = pthread_self();
	main_waits = 0;
	atomic_store(&asked, 0);
	atomic_store(&dead, false);
	let_go = false;
	key_set = SET(KEY_P256);
	sem_init(&waits, 0, 0);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(listener, 16), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	port = ntohs(address.sin_port);
	assert_int_equal(pthread_create(&server, NULL, serve, NULL), 0);
	return s3_oidc_open(S3_OIDC_ANY, &oidc);
}

static int close_all(void **state)
{
	(void)state;
	let_all_go();
	shutdown(listener, SHUT_RDWR);
	pthread_join(server, NULL);
	close(listener);
	s3_oidc_close(oidc);
	sem_destroy(&waits);
	return 0;
}

/* Verifies the token by the keys of that issuer, a provider of that account. */
static int verify(const char *account, const char *name)
{
	struct s3_oidc_issuer issuer = {.account = slice_str(account)};
	char url[64];
	struct jwt jwt;
	int ret;

	snprintf(url, sizeof(url), "http://127.0.0.1:%u/%s", port, name);
	issuer.url = slice_str(url);
	assert_int_equal(jwt_parse(slice_str(es256), &jwt), 0);
	ret = s3_oidc_verify(oidc, &issuer, &jwt);
	jwt_free(&jwt);
	return ret;
}

/* How many connections the issuers had since the last call. */
static uint32_t asked_more(void)
{
	return atomic_exchange(&asked, 0);
}

static void *verify_silent(void *arg)
{
	(void)verify("a", arg);
	return NULL;
}

static void test_silent_issuers_are_of_one_account(void **state)
{
	static char names[][8] = {"silent0", "silent1"};
	pthread_t threads[2];

	(void)state;
	assert_int_equal(verify("a", "first"), 0);
	forward_ns += 2 * HOUR_NS;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, verify_silent, names[i]), 0);
		while (sem_wait(&waits))
			;
	}
	assert_int_equal(verify("b", "second"), 0);
	/* Its own keys are old, and cannot be fetched now. */
	asked_more();
	assert_int_equal(verify("a", "first"), 0);
	assert_int_equal(asked_more(), 0);
	/* The account of the others waits. */
	assert_int_equal(main_waits, 0);
	assert_int_equal(verify("a", "third"), -ETIMEDOUT);
	let_all_go();
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(verify("a", "third"), 0);
}

static void test_old_keys_are_used_for_a_day(void **state)
{
	(void)state;
	assert_int_equal(verify("a", "first"), 0);
	assert_int_equal(verify("a", "first"), 0);
	assert_int_equal(asked_more(), 2);
	dead = true;
	forward_ns += 2 * HOUR_NS;
	/* One of a minute's requests tries to fetch new ones. */
	assert_int_equal(verify("a", "first"), 0);
	assert_int_equal(verify("a", "first"), 0);
	assert_int_equal(asked_more(), 1);
	forward_ns += 21 * HOUR_NS;
	assert_int_equal(verify("a", "first"), 0);
	assert_int_equal(asked_more(), 1);
	forward_ns += HOUR_NS;
	assert_int_equal(verify("a", "first"), -EIO);
	dead = false;
	assert_int_equal(verify("a", "first"), 0);
}

static void test_an_unknown_key_asks_for_new_ones(void **state)
{
	(void)state;
	key_set = SET(KEY_P384);
	assert_int_equal(verify("a", "first"), -ENOKEY);
	assert_int_equal(asked_more(), 4);
	dead = true;
	forward_ns += 2 * HOUR_NS;
	assert_int_equal(verify("a", "first"), -ENOKEY);
	assert_int_equal(asked_more(), 2);
	dead = false;
	key_set = SET(KEY_P384 "," KEY_P256);
	assert_int_equal(verify("a", "first"), 0);
	assert_int_equal(asked_more(), 2);
	assert_int_equal(main_waits, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_silent_issuers_are_of_one_account, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_old_keys_are_used_for_a_day, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_an_unknown_key_asks_for_new_ones, open_all, close_all),
	};

	return cmocka_run_group_tests_name("oidc", tests, NULL, NULL);
}
