// Notices that the machine at the other end of a connection is gone: one that has lost its power, or its network,
// closes nothing.
#pragma once

namespace trainyard::parallel {

// Lets a TCP connection end a minute after the other machine has gone. What was sent to it meanwhile makes that later.
void keep_alive(int descriptor);

}  // namespace trainyard::parallel
