/* integrations/nixl/worker.cpp: see worker.h. */
#include "worker.h"

#include <cstdio>
#include <future>

namespace nebulaio_nixl {

static const uint64_t WAIT_NS = 1000000000;

void complain(const std::string &text)
{
	fprintf(stderr, "nebulaio: libplugin_NEBULA.so: %s\n", text.c_str());
}

int Worker::open(const struct neb_options &options)
{
	int ret = neb_client_open(&options, &client);

	if (ret == 0)
		thread = std::thread([this] { loop(); });
	return ret;
}

Worker::~Worker()
{
	if (!client)
		return;
	{
		std::lock_guard<std::mutex> lock(mutex);
		stopping = true;
	}
	changed.notify_one();
	neb_wake(client);
	thread.join();
	neb_client_close(client);
}

void Worker::post(job work)
{
	{
		std::lock_guard<std::mutex> lock(mutex);
		jobs.push_back(std::move(work));
	}
	changed.notify_one();
	neb_wake(client);
}

int Worker::call(const std::function<int(struct neb_client *)> &work)
{
	std::promise<int> answer;

	post([&](struct neb_client *neb) { answer.set_value(work(neb)); });
	return answer.get_future().get();
}

void Worker::loop()
{
	for (;;) {
		std::deque<job> mine;
		{
			std::unique_lock<std::mutex> lock(mutex);

			if (!neb_in_flight(client))
				changed.wait(lock, [this] { return stopping || !jobs.empty(); });
			mine.swap(jobs);
			if (mine.empty() && stopping && !neb_in_flight(client))
				return;
		}
		for (job &work : mine)
			work(client);
		if (neb_in_flight(client))
			neb_wait(client, nullptr, 0, WAIT_NS);
	}
}

}
