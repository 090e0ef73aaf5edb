// Notices that the machine at the other end of a connection is gone: one that has lost its power, or its network,
// closes nothing.
#pragma once

namespace trainyard::parallel {

// Lets a TCP connection end a minute after the other machine has gone, as long as nothing was sent to it meanwhile:
// Linux asks only where all that was sent has been acknowledged, and repeats what was not for a quarter of an hour.
void keep_alive(int descriptor);

// Lets a TCP connection end a minute after it was sent what the other machine does not acknowledge. The other end must
// always read: one that does not for a minute is given up, too.
void give_up_unacknowledged(int descriptor);

// Returns true when something that was sent is not acknowledged, and nothing has come from the other machine for two
// and a half minutes: Linux repeats what it has sent, or asks a reader that makes a pause, each two minutes at least.
// For a connection whose other end may make such a pause, which give_up_unacknowledged() would end.
[[nodiscard]] bool peer_is_silent(int descriptor);

}  // namespace trainyard::parallel
