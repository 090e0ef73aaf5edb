// For tests: a communicator whose N-th call goes wrong, so that they see deadlines and abort() at work.
//
//   communicators[1] = parallel::make_faulty_communicator(std::move(communicators[1]),
//                                                         {.call = 3, .kind =
//                                                         parallel::CommunicatorFault::Kind::kDrop});
//
// Collective calls are counted from 1.
#pragma once

#include <chrono>
#include <memory>

#include "trainyard/core/base/communicator.h"

namespace trainyard::parallel {

struct CommunicatorFault {
  enum class Kind {
    kFail,   // throws kIo instead of calling: this rank's network died
    kDelay,  // sleeps for `delay`, then calls: this rank is slow
    kDrop,   // does nothing: the message is lost, and the others wait
  };
  int call = 1;
  Kind kind = Kind::kFail;
  std::chrono::milliseconds delay{0};
};

std::unique_ptr<core::Communicator> make_faulty_communicator(std::unique_ptr<core::Communicator> communicator,
                                                             const CommunicatorFault& fault);

}  // namespace trainyard::parallel
