// CRC32C (Castagnoli polynomial 0x1EDC6F41, reflected), as in RFC 3720 appendix B.4: the checksum of TFRecord files,
// event files and checkpoints. Uses the SSE4.2 instruction where the processor has it.
//
//   uint32_t checksum = core::crc32c("123456789");  // 0xe3069283
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trainyard::core {

// Returns the checksum of `bytes`. To continue over further bytes, pass the checksum of those before them as `before`.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
inline uint32_t crc32c(std::string_view text, uint32_t before = 0) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())), before);
}

// The two ways of computing it, for tests and benchmarks. crc32c() takes the faster one that works here.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before = 0);
bool has_crc32c_instruction();
// Needs has_crc32c_instruction().
uint32_t crc32c_instruction(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace trainyard::core
