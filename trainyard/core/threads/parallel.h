// Runs the same work on many numbered pieces in several threads.
//
//   core::for_each_parallel(shards.size(), core::available_cores(), [&](size_t i) { index(shards[i]); });
#pragma once

#include <cstddef>
#include <functional>

namespace trainyard::core {

// Calls work(i) once for each i in [0, count), on up to `threads` threads; on the caller's own when one is enough.
// Pieces begin in the order of i, several at a time. Returns when all are done. After a throw no further piece begins,
// and the error of the lowest i is thrown, which is the one that a single thread would meet.
void for_each_parallel(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace trainyard::core
