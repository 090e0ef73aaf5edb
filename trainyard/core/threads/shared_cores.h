// Divides the cores of a machine among the processes of one job that run on it.
#pragma once

namespace trainyard::core {

// Makes available_cores() return this process's share from now on: the cores that it may use, divided by `processes`,
// which may use the same ones, and at least 1. Each process calls it before it starts threads. Throws kInvalidArgument
// for processes < 1.
void share_cores(int processes);

}  // namespace trainyard::core
