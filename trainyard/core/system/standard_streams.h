// Opens standard input, output and error in a process that was started without them.
#pragma once

namespace trainyard::core {

// Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed; does nothing where /dev/null cannot be
// opened. Without it the next file that is opened gets such a number, and what is meant for the terminal is written
// into that file. Call it before anything opens a file. It allocates nothing and needs no initialised library, so it
// may run before main.
void open_standard_streams();

}  // namespace trainyard::core
