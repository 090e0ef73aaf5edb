// What write_shapes() and write_boxed_shapes() (detection/boxed_shapes.h) share: the checks of their options, and how
// the drawn images become files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "trainyard/core/files/file_system.h"
#include "trainyard/data/datasets/dataset.h"
#include "trainyard/data/image/image.h"

namespace trainyard::data {

// Throws kInvalidArgument, "shapes option NAME is out of range" where `set` is "shapes", unless the option holds.
void require_shapes_option(std::string_view set, bool holds, std::string_view name, std::string_view expected,
                           int64_t actual);

// Does so for the options of both: numbers of images, and pixels a side.
void require_shapes_options(std::string_view set, int64_t train_count, int64_t validation_count, int64_t image_size);

// Returns the bytes of a JPEG.
[[nodiscard]] std::string encode_shapes(const Image& image);

// Makes `directory` as make_new_directory() does, where `write_subset` writes one subset to `unfinished`.
void write_both_subsets(const std::string& directory, core::FileSystem& files,
                        const std::function<void(Subset subset, const std::string& unfinished)>& write_subset);

}  // namespace trainyard::data
