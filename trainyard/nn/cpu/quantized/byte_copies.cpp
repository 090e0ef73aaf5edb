// Byte maps with other channels. A target block takes each of its lanes from one lane of one of a few source blocks.
#include "trainyard/nn/cpu/quantized/translate.h"
#include "trainyard/nn/cpu/simd/pieces.h"

namespace trainyard::nn::cpu::TRAINYARD_ISA {
namespace {

// The lanes of a target block that come from one source block. shuffle[i] is the lane that lane i comes from, or has
// its highest bit set: the shuffle makes that zero.
struct Part {
  int64_t source;
  alignas(16) uint8_t shuffle[16];
};

// Where the lanes of a target block come from.
class Sources {
 public:
  // Lane i becomes channel channels[i] of the source, or zero for -1.
  explicit Sources(const int32_t (&channels)[kLanes]) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      if (channels[lane] >= 0) add(channels[lane], lane);
    }
  }
  // Returns whether the block is a whole source block.
  bool is_whole() const {
    if (count_ != 1) return false;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      if (parts_[0].shuffle[lane] != lane) return false;
    }
    return true;
  }
  bool is_empty() const { return count_ == 0; }
  int64_t first_source() const { return parts_[0].source; }

  // Writes `pixels` pixels of the target block. `image` is the same pixel of the source's first block, and `plane` the
  // bytes from one block to the next.
  void gather(const uint8_t* image, int64_t plane, int64_t pixels, uint8_t* to) const {
    for (int64_t p = 0; p < pixels; ++p) {
      __m128i value = _mm_setzero_si128();
      for (int64_t k = 0; k < count_; ++k) {
        const Part& part = parts_[k];
        const __m128i shuffle = _mm_load_si128(reinterpret_cast<const __m128i*>(part.shuffle));
        value = _mm_or_si128(value, _mm_shuffle_epi8(load_block(image + part.source * plane + p * kLanes), shuffle));
      }
      store_block(to + p * kLanes, value);
    }
  }

 private:
  void add(int64_t channel, int64_t lane) {
    int64_t k = 0;
    while (k < count_ && parts_[k].source != channel / kLanes) ++k;
    if (k == count_) {
      parts_[k].source = channel / kLanes;
      for (uint8_t& from : parts_[k].shuffle) from = 0x80;
      ++count_;
    }
    parts_[k].shuffle[lane] = static_cast<uint8_t>(channel % kLanes);
  }

  Part parts_[kLanes];
  int64_t count_ = 0;
};

constexpr int64_t kChunkPixels = 128;

// Sets the lanes of target block `b`: channels of the source, or -1 for those that are not copied.
void set_channels(const CopyChannelsBytes& a, int64_t b, int32_t (&channels)[kLanes]) {
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const int64_t channel = b * kLanes + lane - a.to;
    channels[lane] = channel >= 0 && channel < a.count ? static_cast<int32_t>(a.from + channel) : -1;
  }
}

// Copies the copied lanes of `pixels` pixels from `block` to `to`; the others stay, or become a.fill.
void put_lanes(const CopyChannelsBytes& a, const int32_t (&channels)[kLanes], const uint8_t* block, int64_t pixels,
               uint8_t* to) {
  alignas(16) uint8_t mask[16] = {};
  for (int64_t lane = 0; lane < kLanes; ++lane) mask[lane] = channels[lane] >= 0 ? 0xFF : 0;
  const __m128i copied = _mm_load_si128(reinterpret_cast<const __m128i*>(mask));
  const __m128i filled = _mm_set1_epi8(static_cast<char>(a.fill));
  for (int64_t p = 0; p < pixels; ++p) {
    const __m128i other = a.fill_rest ? filled : load_block(to + p * kLanes);
    store_block(to + p * kLanes, _mm_blendv_epi8(other, load_block(block + p * kLanes), copied));
  }
}

}  // namespace

void copy_channels_bytes(const CopyChannelsBytes& a) {
  const int64_t blocks = a.target_shape.blocks(), plane = a.source_shape.pixels() * kLanes;
  in_pieces(a.target_shape, [&](const Piece& piece) {
    const int64_t n = piece.plane / blocks, b = piece.plane % blocks, bytes = (piece.last - piece.first) * kLanes;
    int32_t channels[kLanes];
    set_channels(a, b, channels);
    const Sources sources(channels);
    uint8_t* const target = a.target + piece.begin;
    if (sources.is_empty() && !a.fill_rest) return;
    const uint8_t* const image = a.source + n * a.source_shape.blocks() * plane + piece.first * kLanes;
    if (sources.is_whole()) {
      const uint8_t* const from = image + sources.first_source() * plane;
      if (a.table != nullptr) return translate(from, a.table, bytes, target);
      __builtin_memcpy(target, from, static_cast<decltype(sizeof(0))>(bytes));
      return;
    }
    for (int64_t p = 0; p < piece.last - piece.first; p += kChunkPixels) {
      const int64_t count = smaller(kChunkPixels, piece.last - piece.first - p);
      uint8_t block[kChunkPixels * kLanes];
      sources.gather(image + p * kLanes, plane, count, block);
      if (a.table != nullptr) translate(block, a.table, count * kLanes, block);
      put_lanes(a, channels, block, count, target + p * kLanes);
    }
  });
}

void permute_channels_bytes(const PermuteChannelsBytes& a) {
  const int64_t blocks = a.shape.blocks(), plane = a.shape.pixels() * kLanes;
  in_pieces(a.shape, [&](const Piece& piece) {
    const int64_t n = piece.plane / blocks, b = piece.plane % blocks;
    int32_t channels[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int64_t channel = b * kLanes + lane;
      channels[lane] = channel < a.shape.channels ? a.channels[channel] : -1;
    }
    Sources(channels).gather(a.input + n * blocks * plane + piece.first * kLanes, plane, piece.last - piece.first,
                             a.output + piece.begin);
  });
}

}  // namespace trainyard::nn::cpu::TRAINYARD_ISA
