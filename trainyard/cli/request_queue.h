// A server of single requests that answers those that wait in batches: when requests arrive, and how long each waits.
// The same queue runs on the clock of the machine, where it measures, and on a made one, where it forecasts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainyard::cli {

// Returns `count` times in seconds, ascending, at which requests arrive independently of each other, `rate` > 0 a
// second on the mean: gaps are drawn from the exponential distribution (a Poisson process).
std::vector<double> poisson_arrivals(double rate, int64_t count, uint64_t seed);

// The clock of a queue and what answers a batch.
class BatchServer {
 public:
  virtual ~BatchServer() = default;
  // Returns the seconds since the queue began.
  virtual double now() = 0;
  // Returns when now() is at least `time`.
  virtual void wait_until(double time) = 0;
  // Answers a batch of so many requests. now() is later by the time that this takes.
  virtual void run(int64_t requests) = 0;
};

struct QueueTimes {
  std::vector<double> waits;  // seconds from each request's arrival to its answer, in the order of arrival
  int64_t batches = 0;
  double busy_seconds = 0;  // in run()
  double end = 0;           // when the last request was answered
};

// Answers all requests in the order of their arrival: whenever the server is free, a batch of those that have arrived,
// at most `most` >= 1. It never waits for a batch to fill.
QueueTimes serve_requests(std::span<const double> arrivals, int64_t most, BatchServer& server);

}  // namespace trainyard::cli
