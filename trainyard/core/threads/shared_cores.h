// Processes of one job that run on one machine share its cores.
#pragma once

namespace trainyard::core {

// Makes available_cores() return this process's share from now on: the cores that it may use, divided by `processes`,
// which may use the same ones, and at least 1. Each of them calls it, before what asks for threads. Throws
// kInvalidArgument for processes < 1.
void share_cores(int processes);

}  // namespace trainyard::core
