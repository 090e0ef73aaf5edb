// The keeper: a supervisor process between `trainyard launch` and mpirun. When launch or mpirun end, even by SIGKILL,
// it ends every process below it and removes the folders that they shared.
#pragma once

#include <string>
#include <vector>

#include "trainyard/core/threads/stop_token.h"

namespace trainyard::parallel {

// Starts `command` and adopts the processes that it leaves behind. Standard input is a pipe from launch: when the pipe
// closes, or `stop` is requested, `command` gets SIGTERM and three seconds. When `command` has ended, ends all other
// processes below this one and removes `folders`. Returns the code of `command` as shells count: the keeper ends with
// it.
int run_launch_keeper(const std::vector<std::string>& command, const std::vector<std::string>& folders,
                      const core::StopToken& stop);

}  // namespace trainyard::parallel
