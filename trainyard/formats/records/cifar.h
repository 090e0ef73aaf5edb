// CIFAR-10 as its authors publish it, from https://www.cs.toronto.edu/~kriz/cifar.html: the "binary version" and the
// "python version" (docs/formats/cifar.md).
//
//   for (const std::string& path : formats::find_cifar10_batches(files, directory, formats::CifarSplit::kTraining)) {
//     const formats::CifarBatch batch = formats::read_cifar10_batch(files, path);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"

namespace trainyard::formats {

inline constexpr size_t kCifarImageBytes = 3072;  // [3, 32, 32]: red, green and blue planes, rows from the top
inline constexpr int kCifar10Classes = 10;

struct CifarBatch {
  std::vector<uint8_t> labels;  // [N], 0 to 9
  std::vector<uint8_t> pixels;  // [N, 3, 32, 32]

  size_t size() const { return labels.size(); }
  // Returns the pixels of an image: [3, 32, 32] uint8.
  std::span<const uint8_t> image(size_t index) const {
    return std::span(pixels).subspan(index * kCifarImageBytes, kCifarImageBytes);
  }
};

enum class CifarSplit { kTraining, kTest };

// Returns the paths of data_batch_1 to data_batch_5, or of test_batch, in `directory`; the names may end in .bin.
// Throws kNotFound when one of them is missing.
std::vector<std::string> find_cifar10_batches(core::FileSystem& files, const std::string& directory, CifarSplit split);

// Reads a batch of either version; its first byte says which. Throws kCorruptData with path and offset.
CifarBatch read_cifar10_batch(core::FileSystem& files, const std::string& path);
// Does the same with the content of a file. The error then names the offset only.
CifarBatch parse_cifar10_batch(std::string_view content);

}  // namespace trainyard::formats
