#include "trainyard/parallel/launch/hosts.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>
#include <sstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/system/host_name.h"

namespace trainyard::parallel {
namespace {

std::optional<int> positive_number(std::string_view text, int most) {
  int value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || value < 1 || value > most) return std::nullopt;
  return value;
}

core::Error wrong_host(const std::string& where, std::string_view expected, std::string_view actual) {
  return {core::ErrorCode::kInvalidArgument,
          {.problem = "this names no host",
           .where = where,
           .expected = std::string(expected),
           .actual = fmt::format("'{}'", actual)}};
}

bool is_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  return !name.empty() && name.find_first_not_of(kAllowed) == std::string_view::npos && name[0] != '-';
}

std::string_view without_domain(std::string_view name) {
  return name.substr(0, name.find('.'));
}

std::string dotted(in_addr address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

// The IPv4 addresses of this machine.
std::vector<in_addr> own_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) throw core::system_error(errno, "read the addresses of", "this machine");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(first, &::freeifaddrs);
  std::vector<in_addr> addresses;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    addresses.push_back(reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr);
  }
  return addresses;
}

// Whether `name` is one that mpirun knows this machine by, without asking for addresses of names.
bool is_this_machine(std::string_view name) {
  in_addr number{};
  if (::inet_pton(AF_INET, std::string(name).c_str(), &number) == 1) {
    const std::vector<in_addr> own = own_addresses();
    return std::any_of(own.begin(), own.end(), [&](const in_addr& each) { return each.s_addr == number.s_addr; });
  }
  const std::string own = core::host_name();
  return name == "localhost" || without_domain(name) == without_domain(own);
}

}  // namespace

std::vector<HostSlots> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    const size_t colon = entry.find(':');
    HostSlots host{.name = std::string(entry.substr(0, colon))};
    const auto slots = colon == std::string_view::npos ? 1 : positive_number(entry.substr(colon + 1), 4096);
    if (!is_name(host.name) || !slots) throw wrong_host("--hosts", "NAME or NAME:RANKS, separated by commas", entry);
    host.slots = *slots;
    hosts.push_back(std::move(host));
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

std::vector<HostSlots> parse_host_file(const std::string& path, std::string_view text) {
  std::vector<HostSlots> hosts;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, setting, more;
    if (!(words >> name)) continue;
    HostSlots host{.name = name};
    const std::string where = fmt::format("{} line {}", path, number);
    if (is_name(name) && !(words >> setting)) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        {.problem = "a host has no number of ranks: mpirun would count its cores, which launch cannot",
                         .where = where,
                         .expected = "NAME slots=RANKS",
                         .actual = fmt::format("'{}'", line),
                         .remedy = "add slots="});
    }
    const auto slots = setting.starts_with("slots=") ? positive_number(setting.substr(6), 4096) : std::nullopt;
    if (!is_name(name) || !slots || words >> more) throw wrong_host(where, "NAME slots=RANKS", line);
    host.slots = *slots;
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw wrong_host(path, "lines NAME slots=RANKS", "");
  return hosts;
}

std::string format_hosts(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> texts;
  for (const HostSlots& host : hosts) texts.push_back(fmt::format("{}:{}", host.name, host.slots));
  return fmt::format("{}", fmt::join(texts, ","));
}

std::vector<HostSlots> without_slot_of(std::vector<HostSlots> hosts, std::string_view name, std::string_view address) {
  // Hosts of two domains may have one name, so the whole one comes first.
  auto found = std::find_if(hosts.begin(), hosts.end(), [name](const HostSlots& host) { return host.name == name; });
  if (found == hosts.end()) {
    found = std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& host) { return host.name == address; });
  }
  if (found == hosts.end()) {
    found = std::find_if(hosts.begin(), hosts.end(),
                         [name](const HostSlots& host) { return without_domain(host.name) == without_domain(name); });
  }
  if (found == hosts.end()) return hosts;
  if (--found->slots == 0) hosts.erase(found);
  return hosts;
}

std::vector<HostSlots> in_order_of_ranks(const std::vector<HostSlots>& hosts) {
  std::vector<HostSlots> ordered;
  bool has_own = false;  // this machine, as the first one
  for (const HostSlots& host : hosts) {
    const bool own = is_this_machine(host.name);
    const auto same = own && has_own ? ordered.begin()
                                     : std::find_if(ordered.begin(), ordered.end(),
                                                    [&](const HostSlots& other) { return other.name == host.name; });
    if (same != ordered.end()) {
      same->slots += host.slots;
    } else {
      ordered.insert(own ? ordered.begin() : ordered.end(), host);
      has_own = has_own || own;
    }
  }
  return ordered;
}

Network find_network(const std::string& text) {
  const size_t slash = text.find('/');
  in_addr network{};
  const auto bits = slash == std::string::npos ? std::nullopt : positive_number(text.substr(slash + 1), 32);
  if (!bits || ::inet_pton(AF_INET, text.substr(0, slash).c_str(), &network) != 1) {
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        {.problem = "--network is no network", .expected = "an IPv4 network, such as 10.0.0.0/24", .actual = text});
  }
  const uint32_t mask = ~uint32_t{0} << (32 - *bits);
  std::vector<std::string> others;
  for (const in_addr& own : own_addresses()) {
    if (((ntohl(own.s_addr) ^ ntohl(network.s_addr)) & mask) == 0) {
      return {.text = text, .own_address = dotted(own), .is_loopback = ntohl(own.s_addr) >> 24 == IN_LOOPBACKNET};
    }
    others.push_back(dotted(own));
  }
  throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "this machine has no address in --network",
                                                        .expected = text,
                                                        .actual = fmt::format("{}", fmt::join(others, ", ")),
                                                        .remedy = "name a network that all hosts have"});
}

}  // namespace trainyard::parallel
