#include "trainyard/data/detection/coco_annotations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainyard/core/base/error.h"
#include "trainyard/data/detection/plain_detections.h"

namespace trainyard::data {
namespace {

using Json = nlohmann::json;
using core::Error;
using core::ErrorCode;

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr uint64_t kLongestValue = uint64_t{1} << 24;  // bytes from the end of one value to that of the next
constexpr int64_t kMostPixelsASide = int64_t{1} << 20;

Error corrupt(const std::string& path, uint64_t byte, std::string problem, std::string expected = "",
              std::string actual = "") {
  return {ErrorCode::kCorruptData,
          {.problem = std::move(problem),
           .where = fmt::format("{} at byte {}", path, byte),
           .expected = std::move(expected),
           .actual = std::move(actual),
           .remedy = "get or write the file again"}};
}

// The bytes of a file, read in chunks. The parser keeps a whole value in memory, so the distance between its events is
// bounded.
class FileText {
 public:
  explicit FileText(const core::ReadableFile& file) : file_(file) { fill(); }

  bool at_end() const { return instead_.empty() && next_ == chunk_.size(); }
  char front() const { return instead_.empty() ? chunk_[next_] : instead_.front(); }
  uint64_t offset() const { return begin_ + next_; }
  const std::string& path() const { return file_.path(); }

  void pop() {
    if (!instead_.empty()) {
      instead_.remove_prefix(1);
    } else if (++next_ == chunk_.size()) {
      fill();
      if (begin_ - event_ <= kLongestValue) return;
      throw corrupt(path(), event_, "a value is too long", fmt::format("at most {} bytes", kLongestValue), "more");
    }
  }

  // Called by each event of the parser.
  void mark_event() { event_ = offset(); }

  // Called behind a key: passes over the value, of which nothing is kept, and lets the parser read 0 in its place.
  // Masks are most of the text, and ten times as fast to pass over as to parse.
  void pass_over_value() {
    pass_over_spaces();
    if (next_ == chunk_.size() || chunk_[next_] != ':') return;  // the parser says what is wrong
    advance();
    pass_over_spaces();
    instead_ = pass_over_any() ? ":0" : ":";
    mark_event();
  }

 private:
  using Bytes = std::array<bool, 256>;
  static constexpr Bytes bytes_of(std::string_view text) {
    Bytes bytes{};
    for (const char c : text) bytes[static_cast<unsigned char>(c)] = true;
    return bytes;
  }

  void fill() {
    begin_ += next_;
    chunk_.resize(static_cast<size_t>(std::min<uint64_t>(kChunkBytes, file_.size() - begin_)));
    next_ = 0;
    if (!chunk_.empty()) file_.read_at(begin_, std::as_writable_bytes(std::span(chunk_)));
  }

  void advance() {
    if (++next_ == chunk_.size()) fill();
  }

  // Moves to the first byte that is one of `bytes`, or that is none of them; to the end of the file where there is
  // none.
  void move_to(const Bytes& bytes, bool one_of) {
    while (next_ < chunk_.size()) {
      while (next_ < chunk_.size() && bytes[static_cast<unsigned char>(chunk_[next_])] != one_of) ++next_;
      if (next_ < chunk_.size()) return;
      fill();
    }
  }
  void pass_over_spaces() {
    static constexpr Bytes kSpaces = bytes_of(" \t\r\n");
    move_to(kSpaces, false);
  }

  void pass_over_string() {
    static constexpr Bytes kStops = bytes_of("\"\\");
    advance();
    for (;;) {
      move_to(kStops, true);
      if (next_ == chunk_.size()) return;
      const bool escape = chunk_[next_] == '\\';
      advance();
      if (!escape) return;
      if (next_ < chunk_.size()) advance();
    }
  }

  // Returns false where there is no value.
  bool pass_over_any() {
    static constexpr Bytes kStops = bytes_of("\"[]{}"), kScalarEnds = bytes_of(",]} \t\r\n");
    size_t depth = 0;
    do {
      if (depth > 0) move_to(kStops, true);
      if (next_ == chunk_.size()) return false;
      const char first = chunk_[next_];
      if (first == '"') {
        pass_over_string();
      } else if (first == '[' || first == '{') {
        ++depth;
        advance();
      } else if (depth > 0) {
        --depth;
        advance();
      } else {
        const uint64_t start = offset();
        move_to(kScalarEnds, true);
        return offset() > start;
      }
    } while (depth > 0);
    return true;
  }

  const core::ReadableFile& file_;
  std::string chunk_;
  size_t next_ = 0;
  uint64_t begin_ = 0, event_ = 0;  // offsets of the chunk and of the last event in the file
  std::string_view instead_;        // what the parser reads before the rest of the chunk
};

// What the parser reads a FileText by. Its names are the standard's.
class TextIterator {
 public:
  // NOLINTBEGIN(readability-identifier-naming)
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;
  // NOLINTEND(readability-identifier-naming)

  explicit TextIterator(FileText* text) : text_(text) {}
  char operator*() const { return text_->front(); }
  TextIterator& operator++() {
    text_->pop();
    return *this;
  }
  TextIterator operator++(int) {
    text_->pop();
    return *this;
  }
  // Only compared with the end.
  bool operator==(const TextIterator& other) const {
    return (text_ == nullptr || text_->at_end()) && (other.text_ == nullptr || other.text_->at_end());
  }
  bool operator!=(const TextIterator& other) const { return !(*this == other); }

 private:
  FileText* text_;
};

enum class Section : uint8_t { kOther, kCategories, kImages, kBoxes, kDetections };

// The fields that are read, in the order of their names.
enum Field : uint8_t {
  kArea,
  kBbox,
  kCategoryId,
  kFileName,
  kHeight,
  kId,
  kImageId,
  kIsCrowd,
  kName,
  kScore,
  kSupercategory,
  kWidth,
  kFields
};
constexpr std::array<std::string_view, kFields> kFieldNames = {"area",   "bbox",  "category_id",   "file_name",
                                                               "height", "id",    "image_id",      "iscrowd",
                                                               "name",   "score", "supercategory", "width"};

// An object of one of the lists, before it is known to be complete.
struct Item {
  std::array<bool, kFields> found{};
  std::array<double, kFields> numbers{};
  std::array<int64_t, kFields> whole{};
  std::array<bool, kFields> is_whole{};
  std::string name{}, supercategory{}, file_name{};
  std::vector<double> bbox{};
};

// Takes the parser's events.
class CocoReader : public nlohmann::json_sax<Json> {
 public:
  CocoReader(FileText& text, bool of_detections)
      : text_(text), detections_(of_detections), item_depth_(of_detections ? 2 : 3) {}

  CocoAnnotations annotations{};
  std::vector<CocoDetection> detections{};

  bool null() override { return other_scalar("null"); }
  bool boolean(bool value) override { return whole(value ? 1 : 0); }
  bool number_integer(int64_t value) override { return whole(value); }
  bool number_unsigned(uint64_t value) override {
    if (std::in_range<int64_t>(value)) return whole(static_cast<int64_t>(value));
    return number(static_cast<double>(value), std::nullopt);
  }
  bool number_float(double value, const std::string&) override { return number(value, std::nullopt); }
  bool string(std::string& text) override {
    text_.mark_event();
    if (!in_item()) return other_scalar("a string");
    std::string* const place = field_ == kName            ? &item_.name
                               : field_ == kSupercategory ? &item_.supercategory
                               : field_ == kFileName      ? &item_.file_name
                                                          : nullptr;
    if (place == nullptr) return other_scalar("a string");
    item_.found[*field_] = true;
    *place = std::move(text);
    return true;
  }
  bool binary(Json::binary_t&) override { return true; }  // JSON has none

  bool start_object(size_t) override {
    enter();
    if (depth_ == 1 && detections_) throw no_list();
    if (depth_ == 2 && !detections_ && section_ != Section::kOther) throw no_list();
    if (depth_ == item_depth_ && section_ != Section::kOther) {
      item_ = {};
      field_.reset();
    } else {
      refuse_as_field("an object");
    }
    return true;
  }

  bool key(std::string& text) override {
    text_.mark_event();
    if (depth_ == 1 && !detections_) {
      section_ = text == "categories"    ? Section::kCategories
                 : text == "images"      ? Section::kImages
                 : text == "annotations" ? Section::kBoxes
                                         : Section::kOther;
      if (section_ == Section::kBoxes) has_boxes_ = true;
      if (section_ == Section::kImages) has_images_ = true;
      if (section_ == Section::kOther) text_.pass_over_value();
    } else if (in_item()) {
      const auto* const known = std::find(kFieldNames.begin(), kFieldNames.end(), text);
      field_.reset();
      if (known != kFieldNames.end()) {
        field_ = static_cast<Field>(known - kFieldNames.begin());
      } else {
        text_.pass_over_value();
      }
    }
    return true;
  }

  bool end_object() override {
    text_.mark_event();
    if (depth_ == item_depth_ && section_ != Section::kOther) finish_item();
    --depth_;
    return true;
  }

  bool start_array(size_t) override {
    enter();
    if (depth_ == 1 && !detections_) throw no_list();
    if (depth_ == 1) section_ = Section::kDetections;
    if (depth_ == item_depth_ && section_ != Section::kOther) throw no_object("an array");
    if (depth_ == item_depth_ + 1 && field_ == kBbox && section_ != Section::kOther) {
      item_.bbox.clear();
      item_.found[kBbox] = true;
    } else {
      refuse_as_field("an array");
    }
    return true;
  }

  bool end_array() override {
    text_.mark_event();
    --depth_;
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& failure) override {
    throw corrupt(text_.path(), text_.offset(), "text is no JSON", "JSON, in which numbers are finite",
                  std::string(failure.what()).substr(0, 200));
  }

  // Throws what is wrong with the whole.
  void finish() {
    if (detections_) return;
    if (!has_images_ || !has_boxes_) {
      throw corrupt(text_.path(), text_.offset(), "file holds no annotations of COCO",
                    "an object with \"images\", \"annotations\" and \"categories\"",
                    has_images_ ? "no \"annotations\"" : "no \"images\"");
    }
    check_references();
  }

 private:
  bool in_item() const { return depth_ == item_depth_ && section_ != Section::kOther; }
  bool in_bbox() const { return depth_ == item_depth_ + 1 && section_ != Section::kOther && field_ == kBbox; }

  // Fields that are not read are passed over, so that there are never more than four levels.
  void enter() {
    text_.mark_event();
    ++depth_;
  }

  Error no_list() const {
    return corrupt(text_.path(), text_.offset(),
                   detections_ ? "file holds no detections of COCO" : "file holds no annotations of COCO",
                   detections_ ? "a list of objects" : "an object with lists of \"images\" and \"annotations\"");
  }
  Error no_object(std::string_view actual) const {
    return corrupt(text_.path(), text_.offset(), "a list holds something else than objects", "an object",
                   std::string(actual));
  }
  Error wrong_field(Field field, std::string_view expected, std::string actual) const {
    return corrupt(text_.path(), text_.offset(), fmt::format("\"{}\" has an impossible value", kFieldNames[field]),
                   std::string(expected), std::move(actual));
  }

  // Throws where a container stands for one of the fields that are read, or for a number of a box.
  void refuse_as_field(const char* what) const {
    if (section_ == Section::kOther) return;
    if (depth_ == item_depth_ + 1 && field_) throw wrong_field(*field_, "another type", what);
    if (depth_ == item_depth_ + 2 && field_ == kBbox) throw wrong_field(kBbox, "four numbers", what);
  }

  bool whole(int64_t value) { return number(static_cast<double>(value), value); }

  bool number(double value, std::optional<int64_t> whole) {
    text_.mark_event();
    if (in_bbox()) {
      if (item_.bbox.size() == 4) throw wrong_field(kBbox, "four numbers", "more");
      item_.bbox.push_back(value);
      return true;
    }
    if (!in_item() || !field_) return other_scalar("a number");
    if (field_ == kName || field_ == kSupercategory || field_ == kFileName || field_ == kBbox) {
      return other_scalar("a number");
    }
    item_.found[*field_] = true;
    item_.numbers[*field_] = value;
    item_.is_whole[*field_] = whole.has_value();
    item_.whole[*field_] = whole.value_or(0);
    return true;
  }

  // A value of a type that no field has, or one that is passed over.
  bool other_scalar(const char* what) {
    text_.mark_event();
    if (depth_ == 0) throw no_list();
    if (section_ == Section::kOther) return true;
    if (depth_ == 1 && !detections_) throw no_list();
    if (depth_ + 1 == item_depth_) throw no_object(what);
    if (in_bbox()) throw wrong_field(kBbox, "four numbers", what);
    if (in_item() && field_) throw wrong_field(*field_, "another type", what);
    return true;
  }

  void require(Field field) const {
    if (item_.found[field]) return;
    throw corrupt(text_.path(), text_.offset(), fmt::format("an object has no \"{}\"", kFieldNames[field]));
  }

  int64_t whole_field(Field field, int64_t smallest = INT64_MIN, int64_t largest = INT64_MAX) const {
    require(field);
    const int64_t value = item_.whole[field];
    if (item_.is_whole[field] && value >= smallest && value <= largest) return value;
    const std::string actual =
        item_.is_whole[field] ? fmt::format("{}", value) : fmt::format("{}", item_.numbers[field]);
    throw wrong_field(field,
                      smallest == INT64_MIN ? std::string("a whole number")
                                            : fmt::format("a whole number in [{}, {}]", smallest, largest),
                      actual);
  }

  void check_bbox() const {
    require(kBbox);
    if (item_.bbox.size() != 4) throw wrong_field(kBbox, "four numbers", fmt::format("{}", item_.bbox.size()));
  }

  void finish_item() {
    switch (section_) {
      case Section::kCategories: {
        require(kName);
        annotations.categories.push_back({whole_field(kId), std::move(item_.name), std::move(item_.supercategory)});
        break;
      }
      case Section::kImages: {
        require(kFileName);
        check_file_name();
        const auto width = static_cast<int>(whole_field(kWidth, 1, kMostPixelsASide));
        const auto height = static_cast<int>(whole_field(kHeight, 1, kMostPixelsASide));
        annotations.images.push_back({whole_field(kId), std::move(item_.file_name), width, height});
        break;
      }
      case Section::kBoxes: {
        check_bbox();
        const std::vector<double>& box = item_.bbox;
        annotations.boxes.push_back({.id = whole_field(kId),
                                     .image_id = whole_field(kImageId),
                                     .category_id = whole_field(kCategoryId),
                                     .x = box[0],
                                     .y = box[1],
                                     .width = box[2],
                                     .height = box[3],
                                     .area = item_.found[kArea] ? item_.numbers[kArea] : box[2] * box[3],
                                     .crowd = item_.found[kIsCrowd] && whole_field(kIsCrowd, 0, 1) == 1});
        break;
      }
      case Section::kDetections: {
        check_bbox();
        require(kScore);
        const std::vector<double>& box = item_.bbox;
        detections.push_back({.image_id = whole_field(kImageId),
                              .category_id = whole_field(kCategoryId),
                              .x = box[0],
                              .y = box[1],
                              .width = box[2],
                              .height = box[3],
                              .score = item_.numbers[kScore]});
        break;
      }
      case Section::kOther:
        break;
    }
    field_.reset();
  }

  void check_file_name() const {
    const std::string& name = item_.file_name;
    if (!is_coco_file_name(name))
      throw wrong_field(kFileName, "a name inside of the folder of images", "'" + name.substr(0, 100) + "'");
  }

  // Returns the ids in ascending order. Throws when one occurs twice.
  template <typename Entry>
  std::vector<int64_t> distinct_ids(const std::vector<Entry>& entries, const char* what) const {
    std::vector<int64_t> ids;
    ids.reserve(entries.size());
    for (const Entry& entry : entries) ids.push_back(entry.id);
    std::sort(ids.begin(), ids.end());
    if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end()) {
      throw whole_file(fmt::format("two {} have the same id", what), "different ids", fmt::format("{}", *twice));
    }
    return ids;
  }

  void check_references() const {
    const std::vector<int64_t> images = distinct_ids(annotations.images, "images");
    const std::vector<int64_t> categories = distinct_ids(annotations.categories, "categories");
    static_cast<void>(distinct_ids(annotations.boxes, "boxes"));
    for (const CocoBox& box : annotations.boxes) {
      if (!std::binary_search(images.begin(), images.end(), box.image_id)) {
        throw whole_file(fmt::format("box {} belongs to an image that the file does not list", box.id),
                         "an id of \"images\"", fmt::format("{}", box.image_id));
      }
      if (!std::binary_search(categories.begin(), categories.end(), box.category_id)) {
        throw whole_file(fmt::format("box {} is of an unknown category", box.id), "an id of \"categories\"",
                         fmt::format("{}", box.category_id));
      }
    }
  }

  Error whole_file(std::string problem, std::string expected, std::string actual) const {
    return {ErrorCode::kCorruptData,
            {.problem = std::move(problem),
             .where = text_.path(),
             .expected = std::move(expected),
             .actual = std::move(actual),
             .remedy = "get or write the file again"}};
  }

  FileText& text_;
  const bool detections_;
  const size_t item_depth_;  // objects and arrays that are open in an object of a list
  size_t depth_ = 0;
  Section section_ = Section::kOther;
  std::optional<Field> field_;
  bool has_images_ = false, has_boxes_ = false;
  Item item_;
};

void parse(FileText& text, CocoReader& reader) {
  static_cast<void>(Json::sax_parse(TextIterator(&text), TextIterator(nullptr), &reader));
  reader.finish();
}

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append_bbox(fmt::memory_buffer& out, double x, double y, double width, double height) {
  for (const double value : {x, y, width, height}) {
    if (std::isfinite(value)) continue;
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a box has a number that JSON cannot hold",
                                              .expected = "finite numbers",
                                              .actual = fmt::format("[{}, {}, {}, {}]", x, y, width, height)});
  }
  fmt::format_to(std::back_inserter(out), "\"bbox\": [{}, {}, {}, {}]", x, y, width, height);
}

}  // namespace

bool is_coco_file_name(std::string_view name) {
  return !name.empty() && name.front() != '/' && name.find('\0') == std::string_view::npos &&
         fmt::format("/{}/", name).find("/../") == std::string::npos;
}

CocoAnnotations read_coco_annotations(const std::string& path, core::FileSystem& files) {
  return read_coco_annotations(*files.open_read(path));
}

CocoAnnotations read_coco_annotations(const core::ReadableFile& file) {
  FileText text(file);
  CocoReader reader(text, false);
  parse(text, reader);
  return std::move(reader.annotations);
}

std::vector<CocoDetection> read_coco_detections(const std::string& path, core::FileSystem& files) {
  if (auto plain = read_plain_detections(path, files)) return std::move(*plain);
  return read_coco_detections(*files.open_read(path));
}

std::vector<CocoDetection> read_coco_detections(const core::ReadableFile& file) {
  FileText text(file);
  CocoReader reader(text, true);
  parse(text, reader);
  return std::move(reader.detections);
}

std::string coco_annotations_json(const CocoAnnotations& annotations) {
  fmt::memory_buffer out;
  const auto write = [&]<typename... Values>(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Values>(values)...);
  };
  const auto separate = [&](bool first) { write("{}", first ? "\n" : ",\n"); };
  write("{{\"images\": [");
  for (const CocoImage& image : annotations.images) {
    separate(&image == annotations.images.data());
    write("{{\"id\": {}, \"file_name\": {}, \"width\": {}, \"height\": {}}}", image.id, quoted(image.file_name),
          image.width, image.height);
  }
  write("],\n\"annotations\": [");
  for (const CocoBox& box : annotations.boxes) {
    separate(&box == annotations.boxes.data());
    write("{{\"id\": {}, \"image_id\": {}, \"category_id\": {}, ", box.id, box.image_id, box.category_id);
    append_bbox(out, box.x, box.y, box.width, box.height);
    if (!std::isfinite(box.area)) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "a box has an area that JSON cannot hold",
                                                .expected = "a finite number",
                                                .actual = fmt::format("{}", box.area)});
    }
    write(", \"area\": {}, \"iscrowd\": {}}}", box.area, box.crowd ? 1 : 0);
  }
  write("],\n\"categories\": [");
  for (const CocoCategory& category : annotations.categories) {
    separate(&category == annotations.categories.data());
    write("{{\"id\": {}, \"name\": {}, \"supercategory\": {}}}", category.id, quoted(category.name),
          quoted(category.supercategory));
  }
  write("]}}\n");
  return fmt::to_string(out);
}

std::string coco_detections_json(std::span<const CocoDetection> detections) {
  fmt::memory_buffer out;
  out.push_back('[');
  for (const CocoDetection& detection : detections) {
    fmt::format_to(std::back_inserter(out), "{}{{\"image_id\": {}, \"category_id\": {}, ",
                   &detection == detections.data() ? "\n" : ",\n", detection.image_id, detection.category_id);
    append_bbox(out, detection.x, detection.y, detection.width, detection.height);
    if (!std::isfinite(detection.score)) {
      throw Error(ErrorCode::kInvalidArgument, {.problem = "a detection's score is no number",
                                                .expected = "a finite number",
                                                .actual = fmt::format("{}", detection.score)});
    }
    fmt::format_to(std::back_inserter(out), ", \"score\": {}}}", detection.score);
  }
  fmt::format_to(std::back_inserter(out), "]\n");
  return fmt::to_string(out);
}

void write_coco_detections(const std::string& path, std::span<const CocoDetection> detections,
                           core::FileSystem& files) {
  files.write_file_atomically(path, coco_detections_json(detections));
}

}  // namespace trainyard::data
