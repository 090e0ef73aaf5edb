// Reads and parses the kernel's text files below /proc and /sys.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard::core {

// Returns the content of a file, or nothing when it cannot be read. Functions that read many files take one as an
// argument, so that tests can pass the files of another machine.
using ReadText = std::function<std::optional<std::string>(const std::string& path)>;

std::optional<std::string> read_system_file(const std::string& path);

// Returns the value behind "key : value" or "key: value" in the text of a file under /proc, and "" when there is none.
[[nodiscard]] std::string proc_value(std::string_view text, std::string_view key);

// Returns a line of /proc/meminfo ("MemTotal", "MemAvailable") in bytes, and 0 when the system does not say.
[[nodiscard]] uint64_t memory_info_bytes(std::string_view key, const ReadText& read = read_system_file);

// Returns the seconds in which the calling thread could have run, and waited for a core, since it began; nothing where
// the kernel does not count them (/proc/thread-self/schedstat, in nanoseconds).
[[nodiscard]] std::optional<double> seconds_waited_for_core(const ReadText& read = read_system_file);

}  // namespace trainyard::core
