#include "trainyard/parallel/process_group/process_group.h"

#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/base/log.h"
#include "trainyard/core/sockets/random_token.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/core/system/host_name.h"
#include "trainyard/parallel/process_group/agent_store.h"
#include "trainyard/parallel/process_group/group_connection.h"
#include "trainyard/parallel/process_group/process_hub.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr int kPace = 500;  // texts of rank 0 after which it waits until all have them

// Where the ranks meet, and what they say first there.
struct MeetingPlace {
  std::string address, token;
  uint16_t port = 0;
};

std::string text_of(const MeetingPlace& place) {
  return fmt::format("{} {} {}", place.port, place.address, place.token);
}

MeetingPlace place_of(const std::string& text) {
  MeetingPlace place;
  const size_t address = text.find(' '), token = text.rfind(' ');
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), place.port);
  if (address == std::string::npos || token <= address || error != std::errc() || end != text.data() + address) {
    throw Error(ErrorCode::kCorruptData, {.problem = "rank 0 did not say where the ranks meet",
                                          .expected = "a port, an address, a token",
                                          .actual = text});
  }
  place.address = text.substr(address + 1, token - address - 1);
  place.token = text.substr(token + 1);
  return place;
}

// On rank 0.
core::Socket listen(const ProcessRank& process, const ProcessGroupOptions& options, MeetingPlace& place) {
  const bool chooses = options.share || process.served_by_launcher;
  place.address = options.listen_address.empty() ? process.master_address : options.listen_address;
  try {
    core::Socket listening = core::listen_at(place.address, chooses ? 0 : process.master_port);
    place.port = core::port_of(listening);
    if (chooses) place.token = core::random_token();
    if (!core::is_loopback(place.address)) {
      core::log::warning("rank 0 listens at {}:{}, which other machines reach: let only trusted ones be there",
                         place.address, place.port);
    } else if (process.size > 1 && place.address != "localhost" &&
               is_own_name_of_loopback(place.address, core::host_name())) {
      core::log::warning(
          "rank 0 listens at {}, which is a loopback address here (127.0.1.1 in /etc/hosts?): ranks on other machines "
          "cannot connect; give all ranks an address that they reach as MASTER_ADDR or --listen_address",
          place.address);
    }
    return listening;
  } catch (const Error& error) {
    throw Error(ErrorCode::kIo, {.problem = "rank 0 cannot serve the other ranks",
                                 .where = fmt::format("rank 0 of {}, {}", process.size, error.detail().where),
                                 .actual = error.detail().actual,
                                 .remedy = chooses ? "pass an address of rank 0's machine: --listen_address=ADDRESS"
                                                   : "choose another MASTER_PORT, the same on all ranks"});
  }
}

core::Socket connect(const ProcessRank& process, const MeetingPlace& place, std::chrono::milliseconds deadline) {
  try {
    return core::connect_to(place.address, place.port, deadline);
  } catch (const Error& error) {
    throw Error(error.code(),
                {.problem = "rank 0 cannot be reached",
                 .where = fmt::format("rank {} of {}, {}:{}", process.rank, process.size, place.address, place.port),
                 .actual = error.detail().actual.empty() ? error.detail().problem : error.detail().actual,
                 .remedy = "look whether rank 0 runs, and whether the address is one of its machine: MASTER_ADDR and "
                           "MASTER_PORT, or --listen_address"});
  }
}

}  // namespace

// The hub, on rank 0, and the connection to it. The hub outlives the connection, whose last words it hands on.
class ProcessGroup::Connection {
 public:
  Connection(const ProcessRank& process, const ProcessGroupOptions& options) {
    MeetingPlace place{.address = process.master_address, .token = "", .port = process.master_port};
    if (process.rank == 0) {
      core::Socket listening = listen(process, options, place);
      hub_.emplace(std::move(listening),
                   ProcessHubOptions{.size = process.size, .token = place.token, .deadlines = options.deadlines});
    }
    const std::string of_first = process.rank == 0 ? text_of(place) : "";
    if (options.share) {
      place = place_of(options.share(of_first));
    } else if (process.served_by_launcher) {
      place = place_of(share_in_agent_store(process, of_first, options.deadlines.start));
    }
    connection_.emplace(
        connect(process, place, options.deadlines.start),
        GroupConnectionOptions{.hello = {.token = place.token, .rank = process.rank, .size = process.size},
                               .deadlines = options.deadlines,
                               .last_resort = options.last_resort,
                               .grace = options.grace});
  }

  GroupConnection* operator->() { return &*connection_; }

 private:
  std::optional<ProcessHub> hub_;
  std::optional<GroupConnection> connection_;
};

// What a rank does between its call and the others'.
class ProcessGroup::Meeting {
 public:
  explicit Meeting(ProcessGroup& group) : group_(group) { group_.begin_meeting(); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting() { group_.end_meeting(); }

 private:
  ProcessGroup& group_;
};

ProcessGroup::ProcessGroup(ProcessRank process, ProcessGroupOptions options)
    : process_(std::move(process)),
      options_(std::move(options)),
      connection_(std::make_unique<Connection>(process_, options_)) {
  try {
    const Meeting all(*this);
    (*connection_)->await_welcome();
  } catch (const Error&) {
    left_ = true;  // it has not come
    throw;
  }
}

ProcessGroup::ProcessGroup(ProcessRank process, std::chrono::milliseconds deadline)
    : ProcessGroup(std::move(process), ProcessGroupOptions{.deadlines = {.start = deadline, .step = deadline}}) {}

ProcessGroup::~ProcessGroup() {
  if (!left_) report({ErrorCode::kPeerFailed, "it ended before the others: what it said last says why"});
}

std::string ProcessGroup::from_first(const std::string& what, const std::string& text) {
  if (++shared_ % kPace == 0) gather("all ranks keep up", "");
  const int64_t call = ++calls_;
  if (rank() == 0) {
    if (const auto error = reported()) throw *error;
    (*connection_)->send(GroupMessage::kText, encode(SharedTexts{.call = call, .what = what, .texts = {text}}));
    (*connection_)->change_activity([](Activity& activity) { ++activity.begun, ++activity.done; });
    return text;
  }
  const Meeting meeting(*this);
  SharedTexts shared = (*connection_)->await_texts(call);
  if (shared.what == what && !shared.from_all) return std::move(shared.texts.at(0));
  const Error error(ErrorCode::kInternal, {.problem = "ranks agree on different things",
                                           .where = fmt::format("rank {}", rank()),
                                           .expected = shared.what + " as on rank 0",
                                           .actual = what});
  report(error);
  throw error;
}

std::vector<std::string> ProcessGroup::gather(const std::string& what, const std::string& text) {
  const int64_t call = ++calls_;
  const Meeting meeting(*this);
  (*connection_)
      ->send(GroupMessage::kText, encode(SharedTexts{.call = call, .what = what, .from_all = true, .texts = {text}}));
  return std::move((*connection_)->await_texts(call).texts);
}

void ProcessGroup::leave() {
  if (left_) return;
  left_ = true;
  (*connection_)->change_activity([](Activity& activity) { activity.operation = "exit"; });
  const Meeting meeting(*this);
  (*connection_)->send(GroupMessage::kLeave, "");
  (*connection_)->await_gone();
}

void ProcessGroup::send_note_to_rank_0(const std::string& text) {
  (*connection_)->send(GroupMessage::kNote, text);
}

std::optional<std::string> ProcessGroup::told() {
  return (*connection_)->note();
}

void ProcessGroup::report(const Error& error) {
  const Error all({ErrorCode::kPeerFailed,
                   {.problem = "another rank has failed", .actual = fmt::format("rank {}: {}", rank(), error.what())}});
  (*connection_)->send(GroupMessage::kFailed, encode(all));
}

std::optional<Error> ProcessGroup::reported() {
  return (*connection_)->failure();
}

void ProcessGroup::progress(const std::string& operation, int64_t step) {
  (*connection_)->change_activity([&](Activity& activity) {
    activity.operation = operation;
    activity.step = step;
  });
}

void ProcessGroup::progress(const std::string& operation) {
  (*connection_)->change_activity([&](Activity& activity) { activity.operation = operation; });
}

void ProcessGroup::begin_meeting() {
  (*connection_)->change_activity([](Activity& activity) { ++activity.begun; });
}

void ProcessGroup::begin_wait_elsewhere() {
  (*connection_)->change_activity([](Activity& activity) { ++activity.elsewhere; });
}

void ProcessGroup::end_wait_elsewhere() {
  (*connection_)->change_activity([](Activity& activity) { --activity.elsewhere; });
}

bool ProcessGroup::waits() const {
  return (*connection_)->waits();
}

std::string ProcessGroup::operation() const {
  return (*connection_)->operation();
}

void ProcessGroup::watch_exchange(std::function<std::optional<int64_t>()> turns) {
  (*connection_)->watch_exchange(std::move(turns));
}

void ProcessGroup::end_meeting() {
  (*connection_)->change_activity([](Activity& activity) { ++activity.done; });
}

}  // namespace trainyard::parallel
