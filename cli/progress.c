/* cli/progress.c: shows people the progress of a transfer. */
#include <unistd.h>

#include "base/base.h"
#include "transfer.h"

#define SHOW_EVERY_NS (200 * NS_PER_MS)
#define SHOW_AFTER_NS (500 * NS_PER_MS)

void progress_start(struct progress *progress, const char *what, uint64_t total)
{
	*progress = (struct progress){.what = what, .total = total, .start_ns = clock_now_ns()};
	progress->visible = isatty(STDERR_FILENO);
}

static void show(struct progress *progress, uint64_t now_ns)
{
	double seconds = (double)(now_ns - progress->start_ns) / 1e9;
	char done[32], total[32], rate[32];

	remote_bytes_text(progress->done, done);
	remote_bytes_text(progress->total, total);
	remote_bytes_text((uint64_t)((double)progress->done / seconds), rate);
	if (progress->total)
		fprintf(stderr, "\r\033[K%s: %s of %s, %.0f %%, %s/s", remote_text(progress->what),
			done, total, 100.0 * (double)progress->done / (double)progress->total,
			rate);
	else
		fprintf(stderr, "\r\033[K%s: %s, %s/s", remote_text(progress->what), done, rate);
	progress->shown_ns = now_ns;
}

void progress_add(struct progress *progress, uint64_t bytes)
{
	uint64_t now_ns;

	progress->done += bytes;
	if (!progress->visible)
		return;
	now_ns = clock_now_ns();
	if (now_ns - progress->start_ns > SHOW_AFTER_NS &&
		now_ns - progress->shown_ns > SHOW_EVERY_NS)
		show(progress, now_ns);
}

void progress_end(struct progress *progress)
{
	if (progress->shown_ns)
		fprintf(stderr, "\r\033[K");
}
