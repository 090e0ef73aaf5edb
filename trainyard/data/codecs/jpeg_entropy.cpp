#include "trainyard/data/codecs/jpeg_entropy.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <immintrin.h>
// After jpeglib.h.
#include <jerror.h>
#include <jpegint.h>

namespace trainyard::data {
namespace {

// Position in the block of the k-th coefficient. Runs that leave the block, and its end, go to the last place, where
// nothing is stored yet.
constexpr std::array<uint8_t, 64 + JpegHuffmanTable::kEndOfBlock> kNaturalOrder = [] {
  std::array<uint8_t, 64 + JpegHuffmanTable::kEndOfBlock> order{};
  order.fill(63);
  int k = 0;
  for (int diagonal = 0; diagonal < 15; ++diagonal) {
    for (int i = 0; i <= diagonal; ++i) {
      const int row = diagonal % 2 == 0 ? diagonal - i : i;
      const int column = diagonal - row;
      if (row < 8 && column < 8) order[k++] = static_cast<uint8_t>(8 * row + column);
    }
  }
  return order;
}();

// Bits at hand, in registers while an MCU is decoded.
struct BitReader {
  uint64_t bits;
  int count;
  const uint8_t* next;

  // To 56 bits at least, without a branch (Giesen, "Reading bits in far too many ways", variant 4).
  void refill() {
    uint64_t word;
    std::memcpy(&word, next, sizeof word);
    bits |= __builtin_bswap64(word) >> count;
    next += (63 - count) >> 3;
    count |= 56;
  }
  // The next n bits, 0 <= n <= 16, of those at hand.
  uint32_t look(int n) const { return static_cast<uint32_t>(bits >> 1 >> (63 - n)); }
  void drop(int n) {
    bits <<= n;
    count -= n;
  }
};

using HuffmanTable = JpegHuffmanTable;

struct Coefficient {
  int steps, value;
};

// A symbol that the look into the table did not give whole. Up to 31 bits.
Coefficient read_rest(BitReader& in, const HuffmanTable& table, HuffmanTable::Symbol symbol) {
  if (symbol == 0) symbol = table.rare_symbol(in.look(16));
  in.drop(static_cast<int>(symbol >> 20));
  const int size = static_cast<int>(symbol >> 16 & 15);
  const int value = extend_jpeg_value(in.look(size), size);
  in.drop(size);
  return {HuffmanTable::steps(symbol), value};
}

// Up to 31 bits, which must be at hand. *whole: they were kBits at most.
[[gnu::always_inline]] inline Coefficient read_symbol(BitReader& in, const HuffmanTable& table, bool* whole) {
  const HuffmanTable::Symbol symbol = table.symbol(in.look(HuffmanTable::kBits));
  *whole = HuffmanTable::is_whole(symbol);
  if (!*whole) [[unlikely]] {
    return read_rest(in, table, symbol);
  }
  in.drop(static_cast<int>(symbol & 255));
  return {HuffmanTable::steps(symbol), static_cast<int>(symbol) >> 16};
}

// How many looks one refill is enough for when only the last may take more than kBits.
constexpr int kSymbolsARefill = 3;
static_assert((kSymbolsARefill - 1) * HuffmanTable::kBits + 31 <= 56);

void read_block(BitReader& in, const HuffmanTable& table, JCOEF* block) {
  for (int k = 1;;) {
    in.refill();
#pragma GCC unroll 3
    for (int i = 0; i < kSymbolsARefill; ++i) {
      bool whole = true;
      const Coefficient next = read_symbol(in, table, &whole);
      k += next.steps;
      block[kNaturalOrder[k - 1]] = static_cast<JCOEF>(next.value);
      if (k >= 64) return;
      if (!whole) break;
    }
  }
}

void skip_block(BitReader& in, HuffmanTable& table) {
  for (int k = 1;;) {
    in.refill();
#pragma GCC unroll 3
    for (int i = 0; i < kSymbolsARefill; ++i) {
      const uint32_t skip = table.skip(in.look(HuffmanTable::kBits));
      const bool ends = (skip & HuffmanTable::kEnds) != 0;
      const int after = k + static_cast<int>(skip >> 4 & 127);
      // Inside the block for certain. Else the last of the symbols may be the next block's: one alone.
      if (skip != HuffmanTable::kNoSkip && after + (ends ? 1 : 0) <= 64) [[likely]] {
        in.drop(static_cast<int>(skip & 15));
        if (ends || after == 64) return;
        k = after;
      } else {
        bool whole = true;
        k += read_symbol(in, table, &whole).steps;
        if (k >= 64) return;
        break;
      }
    }
  }
}

// Returns true when 0xff is repeated before a stuffed zero, up to the next marker. No encoder writes that. libjpeg
// takes it for a marker first, then decodes the MCU once more without clearing it, so that coefficients of both stay.
bool repeats_stuffed_byte(std::span<const uint8_t> data) {
  const auto is_prefix = [](uint8_t byte) { return byte == 0xff; };
  for (auto at = std::find_if(data.begin(), data.end(), is_prefix); at != data.end();) {
    const auto behind = std::find_if_not(at, data.end(), is_prefix);
    if (behind == data.end() || *behind != 0) return false;
    if (behind - at > 1) return true;
    const void* next = std::memchr(&*behind, 0xff, static_cast<size_t>(data.end() - behind));
    at = next == nullptr ? data.end() : data.begin() + (static_cast<const uint8_t*>(next) - data.data());
  }
  return false;
}

}  // namespace

void JpegEntropyDecoder::attach(jpeg_decompress_struct& codec) {
  if (codec.progressive_mode || codec.arith_code || codec.restart_interval != 0 || jpeg_has_multiple_scans(&codec)) {
    return;
  }
  if (repeats_stuffed_byte({codec.src->next_input_byte, codec.src->bytes_in_buffer})) return;
  std::array<bool, NUM_HUFF_TBLS> dc_built{}, ac_built{};
  for (int b = 0; b < codec.blocks_in_MCU; ++b) {
    const int component = codec.MCU_membership[b];
    const int dc = codec.cur_comp_info[component]->dc_tbl_no;
    const int ac = codec.cur_comp_info[component]->ac_tbl_no;
    if (!dc_built[dc]) dc_[dc].build(*codec.dc_huff_tbl_ptrs[dc], true);
    if (!ac_built[ac]) ac_[ac].build(*codec.ac_huff_tbl_ptrs[ac], false);
    dc_built[dc] = ac_built[ac] = true;
    mcu_[b] = {&dc_[dc], &ac_[ac], component};
  }
  last_dc_.fill(0);
  column_ = 0;
  bits_ = 0;
  count_ = 0;
  next_ = end_ = 0;
  ended_ = truncated_ = false;
  codec.client_data = this;
  codec.entropy->decode_mcu = decode_mcu;
}

// Makes at least an MCU's bytes ready, or all that are left with zeros behind them.
void JpegEntropyDecoder::fill(jpeg_source_mgr& source) {
  std::memmove(data_.data(), data_.data() + next_, end_ - next_);
  end_ -= next_;
  next_ = 0;
  const uint8_t* from = source.next_input_byte;
  const uint8_t* const from_end = from + source.bytes_in_buffer;
  while (!ended_ && end_ < kFillBytes) {
    while (from_end - from >= 16 && end_ < kFillBytes) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(data_.data() + end_), bytes);
      const auto markers = static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(-1))));
      const int plain = markers == 0 ? 16 : __builtin_ctz(markers);
      from += plain;
      end_ += plain;
      if (markers != 0) break;
    }
    if (from < from_end && *from != 0xff) {
      data_[end_++] = *from++;
      continue;
    }
    // 0xff and a zero behind it are a byte of data, with anything else a marker; 0xff may be repeated before that.
    const uint8_t* behind = std::find_if(from, from_end, [](uint8_t byte) { return byte != 0xff; });
    if (behind != from_end && *behind == 0) {
      data_[end_++] = 0xff;
      from = behind + 1;
    } else {
      ended_ = true;
      truncated_ = behind == from_end;
    }
  }
  source.next_input_byte = from;
  source.bytes_in_buffer = from_end - from;
  if (ended_) std::fill_n(data_.begin() + end_, kMcuBytes, uint8_t{0});
}

boolean JpegEntropyDecoder::decode_mcu(j_decompress_ptr codec, JBLOCKROW* blocks) {
  // As in libjpeg, what is behind a marker that comes too early stays gray.
  if (!codec->entropy->insufficient_data) {
    static_cast<JpegEntropyDecoder*>(codec->client_data)->decode(*codec, blocks);
  }
  return TRUE;
}

void JpegEntropyDecoder::decode(jpeg_decompress_struct& codec, JBLOCKROW* blocks) {
  if (!ended_ && end_ - next_ < kMcuBytes) fill(*codec.src);
  const jpeg_decomp_master& master = *codec.master;
  const bool wanted = blocks != nullptr && column_ >= master.first_iMCU_col && column_ <= master.last_iMCU_col;
  if (++column_ == codec.MCUs_per_row) column_ = 0;

  BitReader in{bits_, count_, data_.data() + next_};
  for (int b = 0; b < codec.blocks_in_MCU; ++b) {
    const Block& block = mcu_[b];
    bool whole = true;
    in.refill();
    // Unsigned: the sum of a damaged file's differences may be anything.
    int& last_dc = last_dc_[block.component];
    last_dc = static_cast<int>(static_cast<uint32_t>(last_dc) +
                               static_cast<uint32_t>(read_symbol(in, *block.dc, &whole).value));
    if (wanted) {
      (*blocks[b])[0] = static_cast<JCOEF>(last_dc);
      read_block(in, *block.ac, *blocks[b]);
    } else {
      skip_block(in, *block.ac);
    }
  }
  bits_ = in.bits;
  count_ = in.count;
  next_ = in.next - data_.data();
  // Then zeros from behind the end were taken for data.
  if (ended_ && 8 * next_ > 8 * end_ + count_) {
    if (truncated_) WARNMS(&codec, JWRN_JPEG_EOF);
    WARNMS(&codec, JWRN_HIT_MARKER);
    codec.entropy->insufficient_data = TRUE;
  }
}

}  // namespace trainyard::data
