/* bench/nginx.h: nginx serving the same objects as files: the anchor for HTTP. One worker on the
 * server's processor, no access log, no sendfile (slower here than read and write), open files
 * kept.
 */
#ifndef BENCH_NGINX_H
#define BENCH_NGINX_H

#include "bench/child.h"
#include "bench/load.h"
#include "bench/machine.h"

struct bench_nginx {
	struct bench_child child;
	char address[32];
};
/* folder: for its files. sets: the objects that it serves, each as /KEY. -ENOENT: nginx is not
 * installed. */
int bench_nginx_open(const char *folder, const struct bench_cpus *cpus,
	const struct bench_data *sets[], size_t set_count, struct bench_nginx *ret_nginx);
void bench_nginx_close(struct bench_nginx *nginx);

#endif
