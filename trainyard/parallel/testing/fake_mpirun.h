// A program instead of mpirun and its keeper, and agents for which a thread of the test speaks. For tests of
// launches only.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "trainyard/core/files/file_system.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/testing/temp_dir.h"
#include "trainyard/parallel/launch/launch_messages.h"

namespace trainyard::parallel {

// The script is given as LaunchOptions::trainyard. It starts no ranks. It writes its words and where agents connect
// into files, and "start 1" to its error stream. It ends when the test says so, or with code 143 when launch closes
// its pipe, and then writes "end CODE" to its output. Starts are numbered from 1.
class FakeMpirun {
 public:
  FakeMpirun() {
    constexpr std::string_view kScript = R"SH(#!/bin/sh
cd "$(dirname "$0")" || exit 99
start=1
while [ -e "words.$start" ]; do start=$((start + 1)); done
printf '%s\n' "$@" > "words.$start"
[ -e "$2/owner" ] && : > "held.$start"
echo "start $start" >&2
printf '%s %s\n' "$TRAINYARD_LAUNCH_ADDRESS" "$TRAINYARD_LAUNCH_TOKEN" > told.new
mv told.new "told.$start"
code=143
while [ ! -e "end.$start" ]; do
  if timeout 0.02 cat > /dev/null; then break; fi
done
[ -e "end.$start" ] && code=$(cat "end.$start")
[ "$code" = kill ] && kill -KILL $$
shift
while [ "$1" != -- ]; do rm -rf "$1"; shift; done
echo "end $code"
exit "$code"
)SH";
    for (const char* name : {"trainyard", "mpirun"}) {
      core::local_file_system().write_file_atomically(folder_.file(name), kScript);
      std::filesystem::permissions(folder_.file(name), std::filesystem::perms::owner_all);
    }
  }

  const std::string& folder() const { return folder_.path(); }  // has a program `mpirun`, which is never run
  std::string file(std::string_view name) const { return folder_.file(name); }
  std::string program() const { return folder_.file("trainyard"); }

  // Ends the start with a code, or by SIGKILL with "kill".
  void end(int start, const std::string& code) const {
    core::local_file_system().write_file_atomically(folder_.file(fmt::format("end.{}", start)), code);
  }
  // Returns the address and the token that it was told. Waits for the start.
  std::pair<std::string, std::string> told(int start) const {
    const std::string path = folder_.file(fmt::format("told.{}", start));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!std::filesystem::exists(path) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!std::filesystem::exists(path)) return {"127.0.0.1:1", ""};
    std::istringstream words(core::local_file_system().read_file(path));
    std::string address, token;
    words >> address >> token;
    return {address, token};
  }
  // Returns the words that it was started with.
  std::vector<std::string> words(int start) const {
    std::istringstream lines(core::local_file_system().read_file(folder_.file(fmt::format("words.{}", start))));
    std::vector<std::string> found;
    for (std::string line; std::getline(lines, line);) found.push_back(line);
    return found;
  }
  // Returns whether a process held its first folder when it started.
  bool was_held(int start) const { return std::filesystem::exists(folder_.file(fmt::format("held.{}", start))); }

 private:
  core::TempDir folder_;
};

// The connection of a rank's agent.
class FakeAgent {
 public:
  // Says that it is the agent of `rank` on the host, "node<rank>" where none is given.
  FakeAgent(const std::pair<std::string, std::string>& told, int rank, int ranks, const std::string& host = "")
      : connection_(connect(told.first), kLongestMessage) {
    const std::string name = host.empty() ? fmt::format("node{}", rank) : host;
    say(HelloMessage{.token = told.second, .rank = rank, .ranks = ranks, .host = name});
  }

  void say(const LaunchMessage& message) {
    const core::Frame frame = encode_message(message);
    send(frame.kind, frame.body);
  }
  void send(uint8_t kind, const std::string& body) {
    connection_.send(kind, body);
    open_ = connection_.flush() && open_;
  }
  void end_with(int code) { say(EndMessage{{.kind = ProcessEnd::Kind::kExited, .value = code}}); }

  // Returns the next message of launch; nothing when launch has closed the connection, or is silent for ten seconds.
  std::optional<LaunchMessage> next() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (arrived_.empty() && open_ && std::chrono::steady_clock::now() < until) {
      std::vector<core::Frame> frames;
      open_ = connection_.receive(frames);
      for (const core::Frame& frame : frames) arrived_.push_back(decode_message(frame));
      if (frames.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (arrived_.empty()) return std::nullopt;
    LaunchMessage first = std::move(arrived_.front());
    arrived_.pop_front();
    return first;
  }
  // Waits for the next message. Returns whether it is that all ranks start.
  bool starts() {
    const std::optional<LaunchMessage> message = next();
    return message && std::holds_alternative<StartMessage>(*message);
  }
  // Waits for the next message. Returns the signal that it asks for, 0 when it asks for none.
  int signal() {
    const std::optional<LaunchMessage> message = next();
    const auto* asked = message ? std::get_if<SignalMessage>(&*message) : nullptr;
    return asked == nullptr ? 0 : asked->signal;
  }
  // Returns whether launch closes the connection, and says nothing before.
  bool is_left() { return !next() && !open_; }

 private:
  static core::Socket connect(const std::string& address) {
    const size_t colon = address.rfind(':');
    const auto port = static_cast<uint16_t>(std::stoi(address.substr(colon + 1)));
    return core::connect_to(address.substr(0, colon), port, std::chrono::seconds(10));
  }

  core::FrameConnection connection_;
  std::deque<LaunchMessage> arrived_;
  bool open_ = true;
};

}  // namespace trainyard::parallel
