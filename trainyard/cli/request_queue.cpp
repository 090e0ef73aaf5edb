#include "trainyard/cli/request_queue.h"

#include <algorithm>
#include <cmath>

#include "trainyard/core/random/random.h"

namespace trainyard::cli {

std::vector<double> poisson_arrivals(double rate, int64_t count, uint64_t seed) {
  core::RandomStream random(seed, "arrivals");
  std::vector<double> arrivals;
  double time = 0;
  for (int64_t i = 0; i < count; ++i) {
    time -= std::log1p(-random.uniform_double()) / rate;
    arrivals.push_back(time);
  }
  return arrivals;
}

QueueTimes serve_requests(std::span<const double> arrivals, int64_t most, BatchServer& server) {
  QueueTimes times;
  const int64_t requests = std::ssize(arrivals);
  for (int64_t next = 0; next < requests;) {
    server.wait_until(arrivals[next]);
    const double begin = server.now();
    int64_t end = next + 1;
    while (end < requests && end - next < most && arrivals[end] <= begin) ++end;
    server.run(end - next);
    times.end = server.now();
    times.busy_seconds += times.end - begin;
    ++times.batches;
    for (; next < end; ++next) times.waits.push_back(times.end - arrivals[next]);
  }
  return times;
}

}  // namespace trainyard::cli
