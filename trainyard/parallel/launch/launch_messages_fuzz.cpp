// Untrusted messages to `trainyard launch`: what is read is a message that is written back with the same bytes.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/launch/launch_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard;
  if (size == 0) return 0;
  const core::Frame frame{.kind = bytes[0], .body = std::string(reinterpret_cast<const char*>(bytes) + 1, size - 1)};
  try {
    const core::Frame again = parallel::encode_message(parallel::decode_message(frame));
    if (again.kind != frame.kind || again.body != frame.body) std::abort();
  } catch (const core::Error&) {
    // Refused.
  }
  return 0;
}
