// How the processes of a machine get one memory: the first one makes it and sends its descriptor to the others.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <poll.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/random_token.h"
#include "trainyard/core/sockets/unix_socket.h"
#include "trainyard/parallel/collectives/shared_memory/shared_group.h"

namespace trainyard::parallel {
namespace {

using core::Error, core::SharedMemory, core::Socket;

constexpr int64_t kSocketNameBytes = 64;  // with a zero behind it

// Pages exist once they are used, so no process needs to know how much the others will use.
size_t memory_of_machine() {
  return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) /
         SharedArena::kLarge * SharedArena::kLarge;
}

bool all_say_yes(core::Communicator& processes, bool own) {
  for (const at::Tensor& each : processes.all_gather(at::full({1}, own ? 1 : 0, at::kLong))) {
    if (each.item<int64_t>() == 0) return false;
  }
  return true;
}

// Waits for bytes or a connection. The watch ends the wait when a process has failed.
void await_readable(ExchangeWatch& watch, const Socket& socket) {
  constexpr int kAskAgain = 50;  // ms
  pollfd readable{.fd = socket.descriptor(), .events = POLLIN, .revents = 0};
  while (::poll(&readable, 1, kAskAgain) <= 0) watch.check();  // a handler of the program may interrupt it
}

// Sends the descriptor to `count` processes, all of which have connected. Other users' connections are closed, and
// when it fails those of processes that would wait for the descriptor.
bool hand_over(ExchangeWatch& watch, Socket listening, int descriptor, int count) {
  while (count > 0) {
    await_readable(watch, listening);
    std::optional<Socket> connection;
    try {
      connection = core::accept_from(listening);
    } catch (const Error& error) {
      core::log::warning("{}", error.what());
      return false;
    }
    if (!connection || !core::is_own_user(*connection)) continue;
    if (!core::send_descriptor(*connection, descriptor)) return false;
    --count;
  }
  return true;
}

}  // namespace

std::shared_ptr<SharedGroup> SharedGroup::connect(ExchangeWatch& watch, core::Communicator& processes,
                                                  const RankLayout& layout) {
  const ExchangeTurns turns(watch);
  const bool is_first = layout.process == 0;
  std::optional<SharedMemory> memory;
  Socket listening, connection;
  std::string name, problem;
  const auto attempt = [&problem](const auto& work) {
    try {
      return work();
    } catch (const Error& error) {
      problem = error.what();
      return false;
    }
  };
  if (is_first) {
    name = "trainyard-" + core::random_token();
    const bool made = attempt([&] {
      memory.emplace(SharedMemory::create(memory_of_machine()));
      listening = core::listen_at_name(name);
      return true;
    });
    if (!made) name.clear();
  }
  // Zeros behind the name, and nothing else when there is none.
  const at::Tensor shared = at::full({kSocketNameBytes}, 0, at::kByte);
  auto* const bytes = static_cast<char*>(shared.mutable_data_ptr());
  std::copy(name.begin(), name.end(), bytes);
  processes.broadcast(shared, 0);
  name.assign(bytes);
  const auto use_messages = [&]() -> std::shared_ptr<SharedGroup> {
    core::log::info("the processes exchange messages, not shared memory: {}",
                    problem.empty() ? "a process is on another machine, or cannot map it" : problem);
    return nullptr;
  };
  if (name.empty()) return use_messages();
  bool works = is_first;
  if (!is_first) {
    if (auto connected = core::connect_to_name(name)) connection = std::move(*connected);
    works = connection.valid() && core::is_own_user(connection);
  }
  if (!all_say_yes(processes, works)) return use_messages();
  if (is_first) {
    works = hand_over(watch, std::move(listening), memory->descriptor(), layout.processes() - 1);
  } else {
    await_readable(watch, connection);
    const std::optional<Socket> descriptor = core::receive_descriptor(connection);
    works = descriptor && attempt([&] {
              memory.emplace(SharedMemory::map(descriptor->descriptor()));
              return true;
            });
  }
  std::shared_ptr<SharedGroup> group;
  if (works) group = std::make_shared<SharedGroup>(std::move(*memory), layout);
  if (!all_say_yes(processes, works)) return use_messages();
  group->count_processors();
  return group;
}

}  // namespace trainyard::parallel
