// Ends the process by force, where its threads wait for what will not come. The library ends no process: the program
// says what does.
#pragma once

namespace trainyard::core {

// For the program, before other threads run: `end` does not return. Without it end_process() does nothing.
void install_process_end(void (*end)(int exit_code));

// Any thread.
void end_process(int exit_code);

}  // namespace trainyard::core
