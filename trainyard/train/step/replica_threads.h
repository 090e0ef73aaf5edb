// The threads of replicas, which live as long as a training. A step's work starts on all of them at once, and the step
// ends when all are done.
//
//   ReplicaThreads threads({{.name = "replica 0"}, {.name = "replica 1"}},
//                          [&](const core::Error& error) { communicator.abort(error); });
//   threads.run([&](int replica) { forward_backward(replica); });
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/threads/thread.h"

namespace trainyard::train {

class ReplicaThreads {
 public:
  // Makes one thread for each of the options. on_first_error is called once in a run(), on the thread whose work threw
  // first, before the others have ended: it must wake the threads that wait for the failed one.
  ReplicaThreads(std::vector<core::ThreadOptions> replicas, std::function<void(const core::Error&)> on_first_error);
  // Ends and joins the threads. Not during run().
  ~ReplicaThreads();

  // Calls work(replica) on each replica's thread and blocks until all of them are done. Throws the first error, with
  // the replica in front. One caller at a time.
  void run(const std::function<void(int)>& work);

 private:
  void serve(int replica);
  void end();

  const std::function<void(const core::Error&)> on_first_error_;
  std::mutex mutex_;
  std::condition_variable handed_over_, finished_;
  const std::function<void(int)>* work_ = nullptr;
  int64_t round_ = 0;  // incremented by every run()
  int working_ = 0;
  bool ending_ = false;
  std::optional<core::Error> first_error_;
  std::vector<core::Thread> threads_;  // last, because they use all of the above
};

}  // namespace trainyard::train
