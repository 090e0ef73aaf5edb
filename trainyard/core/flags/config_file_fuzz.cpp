// A file as flags in YAML. What is accepted is dumped, and the dump gives the same values again.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/flags/flags.h"
#include "trainyard/core/testing/flags_table.h"

namespace {

using namespace trainyard::core;

// A file in memory with a path.
class NamedMemory {
 public:
  explicit NamedMemory(std::string_view content) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (file_ < 0 || ::write(file_, content.data(), content.size()) != static_cast<ssize_t>(content.size()))
      std::abort();
  }
  ~NamedMemory() { ::close(file_); }
  NamedMemory(const NamedMemory&) = delete;
  NamedMemory& operator=(const NamedMemory&) = delete;
  std::string path() const { return fmt::format("/proc/self/fd/{}", file_); }

 private:
  const int file_;
};

FlagValues read(const FlagTable& table, std::string_view text) {
  const NamedMemory file(text);
  FlagValues values(table);
  read_config_file(file.path(), values);
  return values;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const FlagTable kTable = small_table();
  std::optional<FlagValues> values;
  try {
    values = read(kTable, {reinterpret_cast<const char*>(bytes), size});
  } catch (const Error&) {
    return 0;  // refused
  }
  // Outside of the try: what was accepted must not be refused when it is read again.
  const FlagValues again = read(kTable, dump_config(*values));
  for (const FlagSpec& spec : kTable.all()) {
    if (again.value(spec.name) != values->value(spec.name)) std::abort();
  }
  return 0;
}
