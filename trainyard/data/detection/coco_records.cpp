#include "trainyard/data/detection/coco_records.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/threads/parallel.h"
#include "trainyard/core/threads/thread.h"
#include "trainyard/data/datasets/shard_files.h"
#include "trainyard/data/detection/record_head.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;
using formats::ExampleView;

// Our own feature: a text for each box, "id category crowd x y width height area", with the shortest decimals that give
// the same doubles. The schema's lists have single precision, no ids, and only the boxes that training uses.
constexpr std::string_view kExactBoxes = "image/object/coco";
constexpr int64_t kLongestImageSide = int64_t{1} << 20;

Error bad_feature(std::string_view name, std::string problem, std::string expected, std::string actual) {
  return {
      ErrorCode::kCorruptData,
      {.problem = fmt::format("{} {}", name, problem), .expected = std::move(expected), .actual = std::move(actual)}};
}

template <typename T>
bool read_number(std::string_view& text, T& number) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

std::optional<CocoBox> parse_exact(std::string_view text, int64_t image_id) {
  CocoBox box{.image_id = image_id};
  int crowd = 0;
  const bool whole = read_number(text, box.id) && read_number(text, box.category_id) && read_number(text, crowd) &&
                     read_number(text, box.x) && read_number(text, box.y) && read_number(text, box.width) &&
                     read_number(text, box.height) && read_number(text, box.area) && text.empty();
  if (!whole || crowd < 0 || crowd > 1) return std::nullopt;
  for (const double value : {box.x, box.y, box.width, box.height, box.area}) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  box.crowd = crowd == 1;
  return box;
}

core::Result<std::vector<CocoBox>> exact_boxes(const ExampleView& example, const CocoImage& image) {
  auto texts = example.bytes_list(kExactBoxes);
  if (!texts.ok()) return texts.error();
  std::vector<CocoBox> boxes;
  for (const std::string_view text : texts.value()) {
    const std::optional<CocoBox> box = parse_exact(text, image.id);
    if (!box) {
      return bad_feature(kExactBoxes, "is malformed", "id category crowd x y width height area",
                         std::string(text.substr(0, 100)));
    }
    boxes.push_back(*box);
  }
  return boxes;
}

// Returns the list of a feature, with the size of a list before it; empty where there is none.
template <typename T>
core::Result<std::vector<T>> list_of(const ExampleView& example, std::string_view name,
                                     core::Result<std::vector<T>> (ExampleView::*list)(std::string_view) const,
                                     size_t expected, bool needed) {
  if (!example.has(name) && (!needed || expected == 0)) return std::vector<T>();
  core::Result<std::vector<T>> values = (example.*list)(name);
  if (!values.ok() || values.value().size() == expected || (values.value().empty() && !needed)) return values;
  return bad_feature(name, "has another length than its fellows", fmt::format("{} values", expected),
                     fmt::format("{}", values.value().size()));
}

core::Result<std::vector<CocoBox>> listed_boxes(const ExampleView& example, const CocoImage& image) {
  std::vector<CocoBox> boxes;
  std::array<std::vector<float>, 4> sides;
  constexpr std::array<std::string_view, 4> kNames = {formats::kImageBoxYMin, formats::kImageBoxXMin,
                                                      formats::kImageBoxYMax, formats::kImageBoxXMax};
  for (size_t i = 0; i < sides.size(); ++i) {
    if (!example.has(kNames[i])) {
      if (!sides[0].empty()) return bad_feature(kNames[i], "is missing", "four lists of sides", "fewer");
      continue;
    }
    auto values = example.float_list(kNames[i]);
    if (!values.ok()) return values.error();
    sides[i] = std::move(values).value();
    if (sides[i].size() != sides[0].size()) {
      return bad_feature(kNames[i], "has another length than its fellows", fmt::format("{} values", sides[0].size()),
                         fmt::format("{}", sides[i].size()));
    }
    for (const float value : sides[i]) {
      if (value >= 0 && value <= 1) continue;
      return bad_feature(kNames[i], "is out of range", "a part of the image in [0, 1]", fmt::format("{}", value));
    }
  }
  const size_t count = sides[0].size();
  auto labels = list_of(example, formats::kObjectClassLabel, &ExampleView::int64_list, count, true);
  if (!labels.ok()) return labels.error();
  auto crowds = list_of(example, formats::kObjectIsCrowd, &ExampleView::int64_list, count, false);
  if (!crowds.ok()) return crowds.error();
  auto areas = list_of(example, formats::kObjectArea, &ExampleView::float_list, count, false);
  if (!areas.ok()) return areas.error();
  for (size_t i = 0; i < count; ++i) {
    // A product of a float and a whole number is exact in double precision, and so is the float that it came from.
    const double width = image.width, height = image.height;
    CocoBox box{.image_id = image.id,
                .category_id = labels.value()[i],
                .x = sides[1][i] * width,
                .y = sides[0][i] * height,
                .width = (static_cast<double>(sides[3][i]) - sides[1][i]) * width,
                .height = (static_cast<double>(sides[2][i]) - sides[0][i]) * height};
    box.area = areas.value().empty() ? box.width * box.height : areas.value()[i];
    box.crowd = !crowds.value().empty() && crowds.value()[i] != 0;
    if (!std::isfinite(box.area)) {
      return bad_feature(formats::kObjectArea, "is no number", "a finite number", fmt::format("{}", box.area));
    }
    boxes.push_back(box);
  }
  return boxes;
}

core::Result<int> side_of(const ExampleView& example, std::string_view name) {
  auto value = example.int64(name);
  if (!value.ok()) return value.error();
  if (value.value() >= 1 && value.value() <= kLongestImageSide) return static_cast<int>(value.value());
  return bad_feature(name, "is out of range", fmt::format("1 to {} pixels", kLongestImageSide),
                     fmt::format("{}", value.value()));
}

}  // namespace

core::Result<CocoRecord> parse_coco_example(const ExampleView& example) {
  CocoRecord record;
  auto source = example.bytes(formats::kImageSourceId);
  if (!source.ok()) return source.error();
  std::string_view id = source.value();
  if (!read_number(id, record.image.id) || !id.empty()) {
    return bad_feature(formats::kImageSourceId, "is no number", "the id of the image",
                       "'" + std::string(source.value().substr(0, 40)) + "'");
  }
  auto width = side_of(example, formats::kImageWidth), height = side_of(example, formats::kImageHeight);
  if (!width.ok()) return width.error();
  if (!height.ok()) return height.error();
  record.image.width = width.value();
  record.image.height = height.value();
  auto name = example.bytes(formats::kImageFilename);
  record.image.file_name =
      name.ok() && !name.value().empty() ? std::string(name.value()) : fmt::format("{:012}.jpg", record.image.id);
  if (!is_coco_file_name(record.image.file_name)) {
    return bad_feature(formats::kImageFilename, "is no name of a file", "a name inside of the folder of images",
                       "'" + record.image.file_name.substr(0, 100) + "'");
  }
  record.numbered = example.has(kExactBoxes);
  auto boxes = record.numbered ? exact_boxes(example, record.image) : listed_boxes(example, record.image);
  if (!boxes.ok()) return boxes.error();
  record.boxes = std::move(boxes).value();
  for (const CocoBox& box : record.boxes) {
    if (coco_label_of_category(box.category_id)) continue;
    return bad_feature(formats::kObjectClassLabel, "is not a category of COCO's", "one of its 80 ids in [1, 90]",
                       fmt::format("{}", box.category_id));
  }
  return record;
}

std::string coco_example(const CocoImage& image, const std::vector<CocoBox>& boxes,
                         const std::vector<CocoCategory>& categories, std::string_view encoded) {
  std::array<std::vector<float>, 4> sides;
  std::vector<float> areas;
  std::vector<int64_t> labels, crowds;
  std::vector<std::string> texts, exact;
  for (const CocoBox& box : boxes) {
    exact.push_back(fmt::format("{} {} {} {} {} {} {} {}", box.id, box.category_id, box.crowd ? 1 : 0, box.x, box.y,
                                box.width, box.height, box.area));
    if (!is_usable(box, image)) continue;
    sides[0].push_back(static_cast<float>(box.y / image.height));
    sides[1].push_back(static_cast<float>(box.x / image.width));
    sides[2].push_back(static_cast<float>((box.y + box.height) / image.height));
    sides[3].push_back(static_cast<float>((box.x + box.width) / image.width));
    areas.push_back(static_cast<float>(box.area));
    labels.push_back(box.category_id);
    crowds.push_back(box.crowd ? 1 : 0);
    const auto category = std::find_if(categories.begin(), categories.end(),
                                       [&](const CocoCategory& each) { return each.id == box.category_id; });
    texts.push_back(category == categories.end() ? "" : category->name);
  }
  formats::ExampleBuilder example;
  example.add_bytes(formats::kImageSourceId, fmt::format("{}", image.id));
  example.add_bytes(formats::kImageFilename, image.file_name);
  example.add_int64(formats::kImageHeight, image.height);
  example.add_int64(formats::kImageWidth, image.width);
  example.add_bytes(formats::kImageFormat, encoded.starts_with("\x89PNG") ? "png" : "jpeg");
  example.add_floats(formats::kImageBoxYMin, sides[0]);
  example.add_floats(formats::kImageBoxXMin, sides[1]);
  example.add_floats(formats::kImageBoxYMax, sides[2]);
  example.add_floats(formats::kImageBoxXMax, sides[3]);
  example.add_int64_list(formats::kObjectClassLabel, labels);
  example.add_bytes_list(formats::kObjectClassText, texts);
  example.add_int64_list(formats::kObjectIsCrowd, crowds);
  example.add_floats(formats::kObjectArea, areas);
  example.add_bytes_list(kExactBoxes, exact);
  example.add_bytes(formats::kImageEncoded, encoded);  // last: what is before it is read without it
  return example.build();
}

std::string coco_categories_file(Subset subset) {
  return fmt::format("{}_categories.json", subset_name(subset));
}

namespace {

// The images in the records of shards.
class RecordsOfImages : public CocoImageFiles {
 public:
  RecordsOfImages(const std::vector<std::string>& shards, core::FileSystem& files) : files_(files) {
    std::vector<std::vector<formats::RecordSpan>> spans(shards.size());
    for (const std::string& shard : shards) files_.add(shard);
    core::for_each_parallel(shards.size(), core::available_cores(),
                            [&](size_t shard) { spans[shard] = formats::index_tfrecord(*files_.open(shard)); });
    for (size_t shard = 0; shard < shards.size(); ++shard) {
      for (const formats::RecordSpan& span : spans[shard]) places_.push_back({shard, span});
    }
  }

  size_t size() const { return places_.size(); }

  core::Result<std::vector<std::byte>> read(size_t file) const override {
    const Place& place = places_[file];
    static thread_local std::string buffer;  // grows to the longest record
    auto record = formats::read_tfrecord(*files_.open(place.shard), place.span, buffer);
    if (!record.ok()) return record.error();
    auto example = ExampleView::parse(record.value());
    if (!example.ok()) return example.error().in(where(file));
    if (auto parsed = parse_coco_example(example.value()); !parsed.ok()) return parsed.error().in(where(file));
    auto encoded = example.value().bytes(formats::kImageEncoded);
    if (!encoded.ok()) return encoded.error().in(where(file));
    std::vector<std::byte> bytes(encoded.value().size());
    if (!bytes.empty()) std::memcpy(bytes.data(), encoded.value().data(), bytes.size());
    return bytes;
  }

  std::string where(size_t file) const override {
    return fmt::format("{} at offset {}", files_.path(places_[file].shard), places_[file].span.offset);
  }

  // Returns what the record says of its image; nothing where it cannot be parsed.
  std::optional<CocoRecord> annotations(size_t file) const {
    const Place& place = places_[file];
    core::Result<std::string> head = read_record_head(*files_.open(place.shard), place.span);
    if (!head.ok()) return std::nullopt;
    auto example = ExampleView::parse(head.value());
    if (!example.ok()) return std::nullopt;
    auto record = parse_coco_example(example.value());
    if (!record.ok()) return std::nullopt;
    return std::move(record).value();
  }

 private:
  struct Place {
    size_t shard = 0;
    formats::RecordSpan span{};
  };
  ShardFiles files_;
  std::vector<Place> places_;
};

std::vector<CocoCategory> read_categories(const std::string& directory, Subset subset, core::FileSystem& files) {
  const std::string path = core::join_path(directory, coco_categories_file(subset));
  if (files.exists(path)) return read_coco_annotations(path, files).categories;
  std::vector<CocoCategory> categories;
  for (int64_t label = 1; label < kCocoLabels; ++label) {
    categories.push_back({coco_category_of_label(label), coco_label_names()[static_cast<size_t>(label)], ""});
  }
  return categories;
}

}  // namespace

std::unique_ptr<CocoDataset> open_coco_records(const std::vector<std::string>& shards, Subset subset,
                                               core::FileSystem& files) {
  constexpr size_t kRecordsAtOnce = 256;
  auto images = std::make_unique<RecordsOfImages>(shards, files);
  std::vector<std::optional<CocoRecord>> records(images->size());
  core::for_each_parallel((records.size() + kRecordsAtOnce - 1) / kRecordsAtOnce, core::available_cores(),
                          [&](size_t part) {
                            const size_t end = std::min((part + 1) * kRecordsAtOnce, records.size());
                            for (size_t i = part * kRecordsAtOnce; i < end; ++i) records[i] = images->annotations(i);
                          });
  const std::string where = fmt::format("{} shards in {}", shards.size(), core::parent_path(shards.front()));
  CocoAnnotations annotations{.categories = read_categories(core::parent_path(shards.front()), subset, files)};
  std::vector<std::optional<size_t>> numbers;
  std::unordered_set<int64_t> ids;
  int64_t unnumbered = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    std::optional<CocoRecord>& record = records[i];
    numbers.emplace_back();
    if (!record) continue;
    if (!ids.insert(record->image.id).second) {
      throw Error(ErrorCode::kCorruptData, {.problem = "two records are of images of one id",
                                            .where = images->where(i),
                                            .expected = "an id of its own",
                                            .actual = fmt::format("{}", record->image.id),
                                            .remedy = "leave one of the shards out"});
    }
    numbers.back() = annotations.images.size();
    annotations.images.push_back(std::move(record->image));
    for (CocoBox& box : record->boxes) {
      if (!record->numbered) box.id = ++unnumbered;
      annotations.boxes.push_back(box);
    }
  }
  return std::make_unique<CocoDataset>(std::move(annotations), std::move(numbers), std::move(images), where);
}

}  // namespace trainyard::data
