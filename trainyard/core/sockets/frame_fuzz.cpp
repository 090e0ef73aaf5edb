// Untrusted bytes: FrameReader in pieces, and the fields of each body.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainyard/core/base/error.h"
#include "trainyard/core/sockets/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = 1 + data[0];
  try {
    trainyard::core::FrameReader reader(1 << 12);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.feed(bytes.substr(at, piece));
      while (const auto frame = reader.next()) {
        trainyard::core::BodyReader body(frame->body);
        body.number();
        body.text();
        body.text();
        body.end();
      }
    }
  } catch (const trainyard::core::Error&) {
    // Refused.
  }
  return 0;
}
