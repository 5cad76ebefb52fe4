/* integrations/nixl/worker.h: the thread that owns the client of libnebulaio, which only one thread may use. NIXL's
 * threads give it jobs; it sends their requests, and sleeps while nothing is in flight. */
#ifndef NEBULAIO_NIXL_WORKER_H
#define NEBULAIO_NIXL_WORKER_H

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "nebulaio/nebulaio.h"

namespace nebulaio_nixl {

void complain(const std::string &text);

class Worker {
public:
	using job = std::function<void(struct neb_client *)>;

	~Worker();
	/* 0 or a negative errno; the library's log has the reason. */
	int open(const struct neb_options &options);
	/* Runs the job on the thread, later. */
	void post(job work);
	/* Runs it there and waits; from other threads only. */
	int call(const std::function<int(struct neb_client *)> &work);

private:
	void loop();

	struct neb_client *client = nullptr;
	std::thread thread;
	std::mutex mutex;
	std::condition_variable changed;
	std::deque<job> jobs;
	bool stopping = false;
};

}

#endif
