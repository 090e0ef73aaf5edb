// Unix sockets between the processes of one machine and one user, which hand over descriptors. Their names are
// abstract: there is no file, and a name is free again when its socket is closed.
#pragma once

#include <optional>
#include <string>

#include "trainyard/core/sockets/socket.h"

namespace trainyard::core {

// Listens at a name of at most 100 bytes. The socket does not block and is closed on exec. accept_from() accepts
// connections. Throws kIo.
Socket listen_at_name(const std::string& name);
// Connects to a name. Returns nothing when no process of this machine listens there.
std::optional<Socket> connect_to_name(const std::string& name);
// Returns whether the process at the other end has this process's effective user.
bool is_own_user(const Socket& connection);

// Sends a descriptor. Returns false when the other end is closed.
bool send_descriptor(const Socket& connection, int descriptor);
// Returns the descriptor that the other end has sent, and nothing when it has sent none and is closed. Call it when the
// connection is readable.
std::optional<Socket> receive_descriptor(const Socket& connection);

}  // namespace trainyard::core
