#include "trainyard/parallel/nccl/rendezvous.h"

#include <charconv>
#include <cstdlib>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

constexpr auto kLook = std::chrono::milliseconds(2);
constexpr int kPace = 500;                // texts of rank 0 after which it waits until all have them
constexpr size_t kKeptTexts = 2 * kPace;  // more than any rank can be behind
constexpr const char* kReport = "report";
constexpr const char* kNote = "note";

std::string required(const ReadVariable& read, const char* name) {
  const std::optional<std::string> text = read(name);
  if (text && !text->empty()) return *text;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = fmt::format("the variable {} is not set", name),
               .where = "processes that train together",
               .expected = "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment of each, LOCAL_RANK where "
                           "there are several machines",
               .remedy = "start the processes as docs/howto/several_devices.md shows"});
}

int number(const ReadVariable& read, const char* name, int lowest, int highest) {
  const std::string text = required(read, name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= lowest && value <= highest) return value;
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("the variable {} makes no sense", name),
                                            .expected = fmt::format("a number from {} to {}", lowest, highest),
                                            .actual = text});
}

}  // namespace

std::optional<std::string> read_environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

ProcessRank read_process_rank(const ReadVariable& read) {
  constexpr int kMostRanks = 1 << 20;
  ProcessRank process;
  process.size = number(read, "WORLD_SIZE", 1, kMostRanks);
  process.rank = number(read, "RANK", 0, process.size - 1);
  process.local_rank = read("LOCAL_RANK") ? number(read, "LOCAL_RANK", 0, process.rank) : process.rank;
  process.master_address = required(read, "MASTER_ADDR");
  process.master_port = static_cast<uint16_t>(number(read, "MASTER_PORT", 1, 65535));
  process.served_by_launcher = read("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return process;
}

// The store, with its errors as ours.
class Rendezvous::Store {
 public:
  Store(const ProcessRank& process, std::chrono::milliseconds deadline)
      : address_(fmt::format("{}:{}", process.master_address, process.master_port)) {
    const bool serves = process.rank == 0 && !process.served_by_launcher;
    c10d::TCPStoreOptions options;
    options.port = process.master_port;
    options.isServer = serves;
    options.waitWorkers = false;
    options.timeout = deadline;
    try {
      store_ = c10::make_intrusive<c10d::TCPStore>(process.master_address, options);
    } catch (const std::exception& error) {
      throw Error(serves ? ErrorCode::kIo : ErrorCode::kTimeout,
                  {.problem = serves ? "rank 0 cannot serve the other ranks" : "rank 0 cannot be reached",
                   .where = fmt::format("rank {} of {}, {}", process.rank, process.size, address_),
                   .actual = first_line(error),
                   .remedy = serves ? "choose another MASTER_PORT, the same on all ranks"
                                    : "look whether rank 0 runs, and whether MASTER_ADDR and MASTER_PORT are its own"});
    }
  }

  void set(const std::string& key, const std::string& text) {
    call([&] { store_->set(key, std::vector<uint8_t>(text.begin(), text.end())); });
  }
  // nullopt: it is not there.
  std::optional<std::string> find(const std::string& key) {
    return call([&]() -> std::optional<std::string> {
      if (!store_->check({key})) return std::nullopt;
      const std::vector<uint8_t> bytes = store_->get(key);
      return std::string(bytes.begin(), bytes.end());
    });
  }
  int64_t add(const std::string& key) {
    return call([&] { return store_->add(key, 1); });
  }
  void remove(const std::string& key) {
    call([&] { store_->deleteKey(key); });
  }

 private:
  // LibTorch's messages go on with a stack trace.
  static std::string first_line(const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }

  template <typename Call>
  std::invoke_result_t<Call> call(Call operation) {
    try {
      return operation();
    } catch (const std::exception& error) {
      throw Error(ErrorCode::kPeerFailed, {.problem = "rank 0 has gone",
                                           .where = "the store at " + address_,
                                           .actual = first_line(error),
                                           .remedy = "look at what rank 0 said last"});
    }
  }

  const std::string address_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

Rendezvous::Rendezvous(ProcessRank process, std::chrono::milliseconds deadline)
    : process_(std::move(process)), deadline_(deadline), store_(std::make_unique<Store>(process_, deadline)) {
  join();
}

Rendezvous::~Rendezvous() {
  if (left_) return;
  try {
    report({ErrorCode::kPeerFailed, "it ended before the others: what it said last says why"});
  } catch (const Error&) {
    // The store has gone: there is nobody to tell.
  }
}

void Rendezvous::join() {
  const auto refuse = [this](std::string problem, std::string expected, std::string actual) {
    const Error error(ErrorCode::kInvalidArgument, {.problem = std::move(problem),
                                                    .where = fmt::format("rank {}", rank()),
                                                    .expected = std::move(expected),
                                                    .actual = std::move(actual),
                                                    .remedy = "give each process its own RANK, and all the same "
                                                              "WORLD_SIZE"});
    report(error);
    throw error;
  };
  if (store_->add(fmt::format("rank {}", rank())) > 1) refuse("two processes have the same rank", "", "");
  const std::string own = std::to_string(size()), of_first = from_first("the number of ranks", own);
  if (own != of_first) refuse("ranks disagree on how many they are", of_first + " as on rank 0", own);
  gather("all ranks", "");
}

std::vector<std::string> Rendezvous::await(const std::string& name, const std::string& what,
                                           const std::vector<int>& ranks) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::string> texts;
  while (texts.size() < ranks.size()) {
    if (auto text = store_->find(fmt::format("{}/{}", name, ranks[texts.size()]))) {
      texts.push_back(std::move(*text));
      continue;
    }
    if (const auto error = reported()) throw *error;
    if (std::chrono::steady_clock::now() - began > deadline_) {
      std::vector<int> missing;
      for (size_t i = texts.size(); i < ranks.size(); ++i) {
        if (!store_->find(fmt::format("{}/{}", name, ranks[i]))) missing.push_back(ranks[i]);
      }
      const Error error(ErrorCode::kTimeout,
                        {.problem = fmt::format("rank {} of {} waited {:.3g} s for the others", rank(), size(),
                                                std::chrono::duration<double>(deadline_).count()),
                         .where = what,
                         .actual = fmt::format("nothing from rank {}", fmt::join(missing, ", ")),
                         .remedy = "look whether they run, and what they said last"});
      report(error);
      throw error;
    }
    std::this_thread::sleep_for(kLook);
  }
  return texts;
}

std::string Rendezvous::from_first(const std::string& what, const std::string& text) {
  if (++paced_ % kPace == 0) gather("all ranks keep up", "");
  const std::string name = fmt::format("{} {}", ++calls_, what);
  if (rank() != 0) return await(name, what, {0}).front();
  store_->set(name + "/0", text);
  served_.push_back(name + "/0");
  if (served_.size() > kKeptTexts) {
    store_->remove(served_.front());
    served_.pop_front();
  }
  return text;
}

std::vector<std::string> Rendezvous::gather(const std::string& what, const std::string& text) {
  const std::string name = fmt::format("{} {}", ++calls_, what);
  store_->set(fmt::format("{}/{}", name, rank()), text);
  std::vector<int> ranks(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) ranks[static_cast<size_t>(r)] = r;
  return await(name, what, ranks);
}

void Rendezvous::leave() {
  left_ = true;
  store_->set(fmt::format("left/{}", rank()), "");
  if (rank() != 0) return;
  std::vector<int> others;
  for (int r = 1; r < size(); ++r) others.push_back(r);
  try {
    await("left", "the end", others);
  } catch (const Error&) {
    // Who has not left by now has failed, and said so.
  }
}

void Rendezvous::tell_first(const std::string& text) {
  store_->set(kNote, text);
}

std::optional<std::string> Rendezvous::told() {
  return store_->find(kNote);
}

void Rendezvous::report(const Error& error) {
  if (store_->add("reports") > 1) return;
  store_->set(kReport, fmt::format("rank {}: {}", rank(), error.what()));
}

std::optional<Error> Rendezvous::reported() {
  const std::optional<std::string> text = store_->find(kReport);
  if (!text) return std::nullopt;
  return Error(ErrorCode::kPeerFailed, {.problem = "another rank has failed", .actual = *text});
}

}  // namespace trainyard::parallel
