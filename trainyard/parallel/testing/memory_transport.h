// For tests: processes that are threads of one process, and messages that lie in its memory between them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trainyard/parallel/collectives/plan/message_transport.h"

namespace trainyard::parallel {

// Returns, for each of `processes`, what a ProcessEngine opens. finish() returns at once.
std::vector<std::function<std::unique_ptr<MessageTransport>()>> make_memory_transports(int processes);

}  // namespace trainyard::parallel
