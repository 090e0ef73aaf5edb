#include "trainyard/data/codecs/whole_image.h"

#include "trainyard/data/image/orientation.h"

namespace trainyard::data {

core::Result<Image> decode_whole(const WholeImage& image, const std::optional<CropWindow>& crop,
                                 const DecodeLimits& limits,
                                 const std::function<core::Result<void>(uint8_t* pixels)>& fill) {
  if (auto checked = check_size(image.stored, limits); !checked.ok()) return checked.error();
  if (crop) {
    auto checked = check_inside(*crop, oriented_size(image.stored, image.orientation));
    if (!checked.ok()) return checked.error();
  }
  Image whole{.height = image.stored.height, .width = image.stored.width};
  const int64_t bytes = int64_t{3} * whole.height * whole.width;
  if (limits.before_allocation) limits.before_allocation(bytes);
  whole.pixels.resize(static_cast<size_t>(bytes));
  if (auto filled = fill(whole.pixels.data()); !filled.ok()) return filled.error();
  if (image.orientation != 1) whole = oriented(whole, image.orientation);
  if (crop) return copy_of(ImageView(whole).part(*crop));
  return whole;
}

}  // namespace trainyard::data
