#include "trainyard/parallel/process_group/process_rank.h"

#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/socket.h"
#include "trainyard/parallel/process_group/launcher_claims.h"

namespace trainyard::parallel {

using core::Error;
using core::ErrorCode;

namespace {

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
  const std::optional<int64_t> value = number_of_launcher(read, name);
  if (value && *value >= lowest && *value <= highest) return static_cast<int>(*value);
  throw Error(ErrorCode::kInvalidArgument, {.problem = fmt::format("the variable {} makes no sense", name),
                                            .expected = fmt::format("a number from {} to {}", lowest, highest),
                                            .actual = text});
}

}  // namespace

std::optional<std::string> read_environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<int64_t> number_of_launcher(const ReadVariable& read, const std::string& name) {
  constexpr int64_t kLargest = 0xffffffff;
  const std::optional<std::string> text = read(name);
  int64_t value = 0;
  if (!text || text->empty()) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0 || value > kLargest) {
    return std::nullopt;
  }
  return value;
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
  require_whole_group(process.size, read);  // another launcher may have started several groups
  return process;
}

bool is_own_name_of_loopback(const std::string& address, const std::string& own_name) {
  const std::string own = own_name.substr(0, own_name.find('.'));
  return !own.empty() && address.substr(0, address.find('.')) == own && core::is_loopback(address);
}

}  // namespace trainyard::parallel
