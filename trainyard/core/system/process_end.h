// Ends the process by force when its threads wait for something that will not happen. The library ends no process by
// itself: the program installs the function that does.
#pragma once

namespace trainyard::core {

// Installs the function, which must not return. The program calls this before other threads run. Without it
// end_process() does nothing.
void install_process_end(void (*end)(int exit_code));

// Ends the process through the installed function. Any thread may call it.
void end_process(int exit_code);

}  // namespace trainyard::core
