// Standard input, output and error of a process that was started without them.
#pragma once

namespace trainyard::core {

// Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed. Without it the next file that is opened gets
// such a number, and what is meant for the terminal is written into it. Call it before anything opens a file. Allocates
// nothing and needs no initialised library, so it may run before main. Does nothing where /dev/null cannot be opened.
void open_standard_streams();

}  // namespace trainyard::core
