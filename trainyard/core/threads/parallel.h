// The same work on many numbered pieces by several threads.
//
//   core::for_each_parallel(shards.size(), core::available_cores(), [&](size_t i) { index(shards[i]); });
#pragma once

#include <cstddef>
#include <functional>

namespace trainyard::core {

// Calls work(i) once for each i in [0, count), in that order but several at a time, on up to `threads` threads; on the
// caller's own when one is enough. Returns when all are done. After a throw no further piece is begun, and the error of
// the lowest i is thrown: that of a single thread.
void for_each_parallel(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace trainyard::core
