// Open MPI's library behind its header, where this build has it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trainyard/core/base/registry.h"
#include "trainyard/parallel/collectives/plan/message_transport.h"

namespace trainyard::parallel {

// Calls MPI_Init_thread: on the thread that uses the transport. `version` becomes what the library calls itself.
using MpiLibrary = std::function<std::unique_ptr<MessageTransport>(std::string& version)>;
using MpiLibraryRegistry = core::Registry<MpiLibrary>;
MpiLibraryRegistry& mpi_libraries();

// Returns the library. Throws kUnsupported when none is built in.
MpiLibrary find_mpi();

}  // namespace trainyard::parallel
