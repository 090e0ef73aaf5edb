#include "trainyard/parallel/collectives/plan/message_transport.h"

#include "trainyard/core/base/error.h"

namespace trainyard::parallel {
namespace {

[[noreturn]] void refuse(const char* operation) {
  throw core::Error(core::ErrorCode::kUnsupported,
                    {.problem = "the transport between the processes has no collectives of its own",
                     .where = operation,
                     .expected = "MPI"});
}

}  // namespace

void MessageTransport::barrier() {
  refuse("barrier");
}

void MessageTransport::all_reduce_sum(float*, int64_t) {
  refuse("all-reduce");
}

}  // namespace trainyard::parallel
