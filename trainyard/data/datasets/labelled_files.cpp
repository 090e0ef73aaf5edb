#include "trainyard/data/datasets/labelled_files.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainyard/core/base/error.h"
#include "trainyard/core/base/log.h"
#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/folder_dataset.h"
#include "trainyard/data/datasets/image_files.h"
#include "trainyard/formats/records/csv.h"

namespace trainyard::data {
namespace {

using core::Error;
using core::ErrorCode;

constexpr uint64_t kMostTableBytes = uint64_t{1} << 30;
constexpr const char* kForms =
    "file,label; file,labels with ';' between labels; or file and a column of 0 and 1 a class";

struct LabelledRow {
  std::string file;
  int64_t line = 0;
  std::vector<std::string> labels;  // different ones
};

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// Returns the first five of `texts`, and how many there are.
std::string first_of(const std::vector<std::string>& texts) {
  constexpr size_t kShown = 5;
  const std::span<const std::string> shown(texts.data(), std::min(kShown, texts.size()));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     texts.size() > kShown ? fmt::format(", ... ({} in all)", texts.size()) : "");
}

void refuse_if_any(const std::vector<std::string>& found, const std::string& problem, const std::string& where,
                   const std::string& expected, const std::string& remedy) {
  if (found.empty()) return;
  throw Error(ErrorCode::kInvalidArgument,
              {.problem = problem, .where = where, .expected = expected, .actual = first_of(found), .remedy = remedy});
}

std::string in_line(const std::string& file, int64_t line) {
  return fmt::format("{} in line {}", quoted_class(file), line);
}

// Reads the rows of a table of labels.
class LabelTable {
 public:
  LabelTable(core::FileSystem& files, const std::string& path) : path_(path) {
    formats::read_csv(files.read_file(path, kMostTableBytes), path,
                      [this](formats::CsvRow& row) { columns_.empty() ? read_header(row) : read_row(row); });
    if (columns_.empty()) refuse_header("an empty file");
    // One column of one label a row may turn out to hold several.
    if (form_ == Form::kLabel && has_separator_) form_ = Form::kLabels;
    if (form_ == Form::kClasses) return;
    for (LabelledRow& row : rows_) split_labels(row);
    refuse_if_any(unlabelled_, "images have no label", path_, "a class in each row", "name it, or remove the row");
  }

  bool sets() const { return form_ != Form::kLabel; }
  std::vector<LabelledRow>& rows() { return rows_; }
  // Returns the classes: in the order of their columns, else sorted.
  std::vector<std::string> classes() const {
    if (form_ == Form::kClasses) return class_columns();
    std::vector<std::string> names;
    std::unordered_set<std::string_view> seen;
    for (const LabelledRow& row : rows_) {
      for (const std::string& label : row.labels) {
        if (seen.insert(label).second) names.push_back(label);
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  enum class Form { kLabel, kLabels, kClasses };

  [[noreturn]] void refuse_header(const std::string& actual) const {
    throw Error(ErrorCode::kInvalidArgument,
                {.problem = "the first line of a table of labels does not name its columns",
                 .where = path_,
                 .expected = kForms,
                 .actual = actual,
                 .remedy = "begin the file with such a line, with commas between the columns"});
  }

  void read_header(const formats::CsvRow& row) {
    for (const std::string& field : row.fields) columns_.emplace_back(without_blanks(field));
    const std::string header = quoted_classes(columns_);
    const auto file = std::find(columns_.begin(), columns_.end(), "file");
    if (file == columns_.end() || columns_.size() < 2) refuse_header(header);
    file_column_ = static_cast<size_t>(file - columns_.begin());
    if (columns_.size() == 2) {
      const std::string& other = columns_[1 - file_column_];
      if (other != "label" && other != "labels") refuse_header(header);
      form_ = other == "label" ? Form::kLabel : Form::kLabels;
      return;
    }
    form_ = Form::kClasses;
    std::unordered_set<std::string_view> seen;
    for (const std::string& name : columns_) {
      if (name.empty() || !seen.insert(name).second) refuse_header(header);
    }
  }

  void read_row(formats::CsvRow& row) {
    LabelledRow& read = rows_.emplace_back();
    read.line = row.line;
    read.file = std::move(row.fields[file_column_]);
    if (form_ == Form::kClasses) return read_classes(row, read);
    std::string& label = row.fields[1 - file_column_];
    has_separator_ = has_separator_ || label.find(';') != std::string::npos;
    read.labels.push_back(std::move(label));
  }

  void read_classes(const formats::CsvRow& row, LabelledRow& read) const {
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c == file_column_) continue;
      const std::string_view field = without_blanks(row.fields[c]);
      if (field != "0" && field != "1") {
        throw Error(ErrorCode::kInvalidArgument,
                    {.problem = "a column of a class holds another value",
                     .where = fmt::format("{}, line {}, column {}", path_, row.line, quoted_class(columns_[c])),
                     .expected = "0 or 1",
                     .actual = quoted_class(field),
                     .remedy = "of one class an image, write the columns file,label"});
      }
      if (field == "1") read.labels.push_back(columns_[c]);
    }
  }

  std::vector<std::string> class_columns() const {
    std::vector<std::string> names = columns_;
    names.erase(names.begin() + static_cast<std::ptrdiff_t>(file_column_));
    return names;
  }

  void split_labels(LabelledRow& row) {
    const std::string text = std::move(row.labels.front());
    row.labels.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = sets() ? std::min(text.find(';', begin), text.size()) : text.size();
      const std::string_view label = without_blanks(std::string_view(text).substr(begin, end - begin));
      const bool is_new = std::find(row.labels.begin(), row.labels.end(), label) == row.labels.end();
      if (!label.empty() && is_new) row.labels.emplace_back(label);
      begin = end + 1;
    }
    if (!sets() && row.labels.empty()) unlabelled_.push_back(in_line(row.file, row.line));
  }

  const std::string& path_;
  std::vector<std::string> columns_;
  size_t file_column_ = 0;
  Form form_ = Form::kLabel;
  bool has_separator_ = false;
  std::vector<LabelledRow> rows_;
  std::vector<std::string> unlabelled_;
};

bool leads_out(std::string_view path) {
  if (path.empty() || path.starts_with('/')) return true;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (path.substr(begin, end - begin) == "..") return true;
    begin = end + 1;
  }
  return false;
}

void check_paths(std::vector<LabelledRow>& rows, const std::string& where) {
  std::vector<std::string> outside, twice;
  std::unordered_map<std::string_view, int64_t> lines;
  for (LabelledRow& row : rows) {
    if (leads_out(row.file)) {
      outside.push_back(in_line(row.file, row.line));
    } else {
      // "./a.jpg", "below//a.jpg": one file has one name.
      row.file = std::filesystem::path(row.file).lexically_normal().string();
    }
    const auto [first, is_new] = lines.emplace(row.file, row.line);
    if (!is_new) twice.push_back(fmt::format("{} in lines {} and {}", quoted_class(row.file), first->second, row.line));
  }
  refuse_if_any(outside, "files of a table of labels are not below the data set's folder", where,
                "paths that begin within --data_dir", "write the paths as they are seen from there");
  refuse_if_any(twice, "files have two rows in a table of labels", where, "one row a file", "remove one of the rows");
}

// Compares the table with what is in the directory.
void check_files(const std::vector<LabelledRow>& rows, const DatasetOptions& options) {
  core::FileSystem& files = *options.files;
  const std::vector<std::string> images = images_below(files, options.directory);
  const size_t length = core::join_path(options.directory, "x").size() - 1;
  std::unordered_set<std::string_view> there, named;
  for (const std::string& image : images) there.insert(std::string_view(image).substr(length));
  std::vector<std::string> missing, unlabelled;
  for (const LabelledRow& row : rows) {
    named.insert(row.file);
    if (there.contains(row.file)) continue;
    const std::string path = core::join_path(options.directory, row.file);
    if (!files.exists(path) || is_directory(files, path)) missing.push_back(in_line(row.file, row.line));
  }
  refuse_if_any(missing, "files of a table of labels are missing", options.labels_csv,
                "a file below " + options.directory, "pass the folder from which the paths lead as --data_dir");
  for (const std::string_view name : there) {
    if (!named.contains(name)) unlabelled.push_back(quoted_class(name));
  }
  std::sort(unlabelled.begin(), unlabelled.end());
  if (options.on_unlabelled_file == OnUnlabelledFile::kFail) {
    refuse_if_any(unlabelled, "images have no row in the table of labels", options.directory,
                  "a row for each image in " + options.labels_csv,
                  "add their rows, or pass --on_unlabelled_file=skip to leave these images out");
  } else if (!unlabelled.empty()) {
    core::log::info("{}: {} images without a row in {} are left out", options.directory, unlabelled.size(),
                    options.labels_csv);
  }
}

}  // namespace

LabelledFiles::LabelledFiles(const DatasetOptions& options)
    : file_system_(*options.files), directory_(options.directory) {
  const std::string& where = options.labels_csv;
  if (!is_directory(file_system_, directory_)) {
    throw Error(ErrorCode::kInvalidArgument, {.problem = "a table of labels needs the folder of its files",
                                              .where = where,
                                              .expected = "a directory as --data_dir",
                                              .actual = directory_.empty() ? "none" : directory_});
  }
  LabelTable table(file_system_, where);
  sets_ = table.sets();
  if (table.rows().empty()) {
    throw NoSuchSubset({.problem = "a table of labels has no rows", .where = where, .expected = kForms});
  }
  check_paths(table.rows(), where);
  check_files(table.rows(), options);
  const std::vector<std::string> found = table.classes();
  const bool known = !options.classes.names.empty();
  classes_ = known ? options.classes.names : found;
  std::vector<int64_t> numbers(found.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  if (known) numbers = labels_of_classes(found, options.classes, where);
  std::unordered_map<std::string_view, int32_t> number_of;
  for (size_t i = 0; i < found.size(); ++i) number_of.emplace(found[i], static_cast<int32_t>(numbers[i]));
  size_t left_out = 0;
  begins_.push_back(0);
  for (LabelledRow& row : table.rows()) {
    for (const std::string& label : row.labels) {
      if (const int32_t number = number_of.at(label); number >= 0) labels_.push_back(number);
    }
    if (!sets_ && labels_.size() == begins_.back()) {
      ++left_out;
      continue;
    }
    std::sort(labels_.begin() + static_cast<std::ptrdiff_t>(begins_.back()), labels_.end());
    begins_.push_back(labels_.size());
    files_.push_back(std::move(row.file));
  }
  if (left_out > 0) core::log::warning("{}: {} images of unknown classes are left out", where, left_out);
  if (files_.empty()) {
    throw NoSuchSubset({.problem = "no image of a table of labels is of a known class", .where = where});
  }
}

std::span<const int32_t> LabelledFiles::labels(int64_t index) const {
  return std::span(labels_).subspan(begins_[index], begins_[index + 1] - begins_[index]);
}

std::optional<int64_t> LabelledFiles::known_label(int64_t index) const {
  if (sets_) return std::nullopt;
  return labels(index).front();
}

core::Result<Record> LabelledFiles::read(int64_t index) const {
  Record record{.where = core::join_path(directory_, files_[index])};
  const std::span<const int32_t> own = labels(index);
  if (sets_) {
    record.labels.assign(own.begin(), own.end());
  } else {
    record.label = own.front();
    record.label_text = classes_[own.front()];
  }
  core::Result<std::vector<std::byte>> bytes = read_image_file(file_system_, record.where);
  if (!bytes.ok()) return bytes.error();
  record.bytes = std::move(bytes.value());
  return record;
}

NamedSamples named_samples(const std::shared_ptr<const LabelledFiles>& whole) {
  const auto classes = static_cast<size_t>(whole->label_count());
  std::vector<int64_t> counts(classes);
  for (int64_t i = 0; i < whole->size(); ++i) {
    for (const int32_t label : whole->labels(i)) ++counts[label];
  }
  NamedSamples samples{.size = whole->size(), .name = [whole](int64_t i) { return whole->file(i); }};
  samples.group_names = whole->label_names();
  samples.group_names.emplace_back();  // of images without a label
  samples.group = [whole, counts = std::move(counts)](int64_t i) {
    const std::span<const int32_t> labels = whole->labels(i);
    const auto rarest =
        std::min_element(labels.begin(), labels.end(), [&](int32_t a, int32_t b) { return counts[a] < counts[b]; });
    return rarest == labels.end() ? std::ssize(counts) : int64_t{*rarest};
  };
  return samples;
}

std::unique_ptr<Dataset> open_labelled_files(const DatasetOptions& options) {
  auto whole = std::make_unique<LabelledFiles>(options);
  const std::string& where = options.labels_csv;
  core::log::info("{}: {} images of {} classes{}", where, whole->size(), whole->label_count(),
                  whole->has_label_sets() ? ", any number of them an image" : "");
  if (!options.divide) {
    core::log::info("{}: all {} images are {} images, as asked", where, whole->size(), subset_name(options.subset));
    return whole;
  }
  const std::shared_ptr<const LabelledFiles> shared = std::move(whole);
  return part_of_samples(shared, named_samples(shared), options.subset, options.division.value_or(Division{}),
                         options.division ? "" : " names no validation images", where);
}

}  // namespace trainyard::data
