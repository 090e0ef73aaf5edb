// Untrusted messages between the ranks of a process group: what is read is written back as a message that reads the
// same. The first byte says which message it is.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trainyard/core/base/error.h"
#include "trainyard/parallel/process_group/group_message.h"

namespace {

template <typename Decode>
void read(std::string_view body, const Decode& decode) {
  const std::string again = trainyard::parallel::encode(decode(body));
  if (trainyard::parallel::encode(decode(again)) != again) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  try {
    switch (bytes[0] % 4) {
      case 0:
        read(body, parallel::decode_hello);
        break;
      case 1:
        read(body, parallel::decode_texts);
        break;
      case 2:
        read(body, parallel::decode_activity);
        break;
      default:
        read(body, parallel::decode_error);
    }
  } catch (const core::Error&) {
    // Refused.
  }
  return 0;
}
