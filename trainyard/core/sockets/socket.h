// Sockets between the processes of a training and the launcher.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainyard/core/sockets/frame.h"

namespace trainyard::core {

// Closes a descriptor in its destructor.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  bool valid() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  int release();

 private:
  int descriptor_;
};

// Returns whether only processes of this machine reach `address`, a name or a number. Throws kIo for an unknown host
// name.
bool is_loopback(const std::string& address);

// Listens for TCP at an address of this machine, a name or a number; port 0 selects a free port. The socket does not
// block and is closed on exec. Throws kIo.
Socket listen_at(const std::string& address, uint16_t port);
// Returns the port that the socket listens at.
uint16_t port_of(const Socket& listening);
// Returns the next connection, a socket that does not block, or nullopt when none is waiting. Throws kNoSpace where no
// more files may be open: the connection waits further, and `listening` stays readable.
std::optional<Socket> accept_from(const Socket& listening);
// Connects, and retries for `time` while the port refuses. The time begins once the name is resolved, and the name's
// addresses share it. Throws kTimeout, kIo for an unknown host name, and kNoSpace where no more files may be open.
Socket connect_to(const std::string& address, uint16_t port, std::chrono::milliseconds time);
// The same without retries: returns nullopt when each address has refused or has not answered within its time.
std::optional<Socket> connect_once(const std::string& address, uint16_t port, std::chrono::milliseconds time);
// Lets this process have `count` files and sockets open, or as many as the system allows it.
void allow_open_files(size_t count);

// Sends and receives frames on a socket that does not block. For one thread.
class FrameConnection {
 public:
  FrameConnection(Socket socket, size_t longest_body);

  int descriptor() const { return socket_.descriptor(); }
  void allow(size_t longest_body) { reader_.allow(longest_body); }
  // Queues the frame for flush().
  void send(uint8_t kind, std::string_view body);
  // Writes as much as the system accepts. Returns false when the peer has closed the connection.
  bool flush();
  bool has_unsent() const { return sent_ < unsent_.size(); }
  size_t unsent_bytes() const { return unsent_.size() - sent_; }
  // Appends the frames that have arrived, reading at most a mebibyte: the socket stays readable while there is more.
  // Returns false when the peer has closed the connection; frames from before are appended. Throws kCorruptData as
  // FrameReader does.
  bool receive(std::vector<Frame>& frames);

 private:
  Socket socket_;
  FrameReader reader_;
  std::string unsent_;
  size_t sent_ = 0;  // bytes of unsent_ that are written
};

}  // namespace trainyard::core
