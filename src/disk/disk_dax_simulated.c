/* disk/disk_dax_simulated.c: a made-up domain of persistence, for tests: what a power failure would
 * leave of a mapping is in a second file. A line that was stored is in flight until the next fence;
 * when the power fails, of the words in flight some are there, as the seed says. */
#include "disk/disk_dax.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More are written out early, as caches do. */
#define FLIGHT_MAX 4096u

struct line {
	uint64_t offset;
	uint8_t bytes[DAX_LINE_BYTES];
};

struct dax_domain {
	pthread_mutex_t lock;
	int fd;
	struct prng prng;
	uint64_t lines_left; /* until the power fails; 0: never */
	bool exits;
	_Atomic bool failed;
	uint32_t count;
	struct line flight[FLIGHT_MAX];
};

static char wanted[64];

void disk_dax_simulate(const char *options)
{
	snprintf(wanted, sizeof(wanted), "%s", options ? options : "");
}

bool dax_domain_wanted(void)
{
	return wanted[0] != '\0';
}

bool disk_dax_failed(const struct disk *disk)
{
	disk_check(disk);
	return disk->dax && disk->dax->domain && atomic_load(&disk->dax->domain->failed);
}

int dax_domain_open(const char *path, struct dax_domain **ret_domain)
{
	unsigned long long seed = 1, lines = 0;
	struct dax_domain *domain;
	char more[8] = "";
	char name[4096 + 16];

	if (!dax_domain_wanted() || strcmp(wanted, "plain") == 0)
		return 0;
	if (sscanf(wanted, "seed=%llu,lines=%llu,%7s", &seed, &lines, more) < 1)
		return -EINVAL;
	domain = (struct dax_domain *)calloc(1, sizeof(*domain));
	if (!domain)
		return -ENOMEM;
	snprintf(name, sizeof(name), "%s.durable", path);
	domain->fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (domain->fd < 0) {
		free(domain);
		return -errno;
	}
	pthread_mutex_init(&domain->lock, NULL);
	prng_seed(&domain->prng, seed);
	domain->lines_left = lines;
	domain->exits = strcmp(more, "exit") == 0;
	*ret_domain = domain;
	return 0;
}

void dax_domain_close(struct dax_domain *domain)
{
	if (!domain)
		return;
	close(domain->fd);
	pthread_mutex_destroy(&domain->lock);
	free(domain);
}

static void bytes_write(struct dax_domain *domain, const void *bytes, size_t len, uint64_t offset)
{
	ssize_t count = pwrite(domain->fd, bytes, len, (off_t)offset);

	CHECK(count == (ssize_t)len);
}

static void flight_end(struct dax_domain *domain)
{
	for (uint32_t i = 0; i < domain->count; i++)
		bytes_write(
			domain, domain->flight[i].bytes, DAX_LINE_BYTES, domain->flight[i].offset);
	domain->count = 0;
}

static void power_fail(struct dax_domain *domain)
{
	for (uint32_t i = 0; i < domain->count; i++)
		for (uint32_t at = 0; at < DAX_LINE_BYTES; at += 8)
			if (prng_next(&domain->prng) & 1)
				bytes_write(domain, domain->flight[i].bytes + at, 8,
					domain->flight[i].offset + at);
	domain->count = 0;
	atomic_store(&domain->failed, true);
	if (domain->exits)
		_exit(DISK_DAX_EXIT);
}

void dax_domain_line(struct dax_domain *domain, uint64_t offset, const void *line)
{
	pthread_mutex_lock(&domain->lock);
	if (!atomic_load(&domain->failed)) {
		if (domain->count == FLIGHT_MAX)
			flight_end(domain);
		domain->flight[domain->count].offset = offset;
		memcpy(domain->flight[domain->count++].bytes, line, DAX_LINE_BYTES);
		if (domain->lines_left && --domain->lines_left == 0)
			power_fail(domain);
	}
	pthread_mutex_unlock(&domain->lock);
}

void dax_domain_fence(struct dax_domain *domain)
{
	pthread_mutex_lock(&domain->lock);
	if (!atomic_load(&domain->failed))
		flight_end(domain);
	pthread_mutex_unlock(&domain->lock);
}
