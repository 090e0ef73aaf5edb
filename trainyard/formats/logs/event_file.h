// Writes and reads TensorBoard event files (docs/formats/event_file.md): scalars, histograms, images and texts by step.
//
//   formats::EventFileWriter events(core::local_file_system(), train_dir);
//   events.write({.step = 100, .values = {{"loss", 2.25F}, {"gradient", formats::make_histogram(gradient)}}});
//   events.close();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trainyard/core/base/error.h"
#include "trainyard/core/files/file_system.h"
#include "trainyard/formats/logs/histogram.h"
#include "trainyard/formats/records/tfrecord.h"

namespace trainyard::formats {

// An image as a compressed file.
struct EncodedImage {
  int height = 0;      // pixels
  int width = 0;       // pixels
  int channels = 0;    // 1 gray, 3 RGB, 4 RGBA
  std::string data{};  // PNG or JPEG

  bool operator==(const EncodedImage&) const = default;
};

// What TensorBoard's text plugin shows, as Markdown.
struct SummaryText {
  std::string markdown{};  // UTF-8

  bool operator==(const SummaryText&) const = default;
};

struct SummaryValue {
  std::string tag{};
  // monostate: another kind, which is not read
  std::variant<std::monostate, float, Histogram, EncodedImage, SummaryText> value{};

  bool operator==(const SummaryValue&) const = default;
};

struct Event {
  double wall_time = 0;  // seconds since the epoch; 0: the writer uses the current time
  int64_t step = 0;
  std::vector<SummaryValue> values{};
  std::string file_version{};  // only in the first event of a file
  // True when a run begins or resumes at `step`: TensorBoard then drops the values of this step and later ones in
  // earlier files of the directory.
  bool session_start = false;

  bool operator==(const Event&) const = default;
};

// Returns the message of an event.
[[nodiscard]] std::string encode_event(const Event& event);
// Parses a message. Returns kCorruptData when the bytes are not an event.
core::Result<Event> decode_event(std::string_view encoded);

struct EventFileOptions {
  // Seconds after which a written event becomes visible to other processes, when another one is written.
  double flush_seconds = 30;
  // Seconds since the epoch. Default: the system's clock.
  std::function<double()> clock{};
  // Part of the file's name. Default: the machine's name.
  std::string hostname{};

  void validate() const;  // throws kInvalidArgument
};

// Writes one new event file. One thread at a time.
class EventFileWriter {
 public:
  // Makes `directory` if it is missing, and in it the file events.out.tfevents.<seconds>.<hostname>, followed by a
  // number when that file exists. The file's first event is flushed at once. Throws kIo, kNoSpace.
  EventFileWriter(core::FileSystem& files, const std::string& directory, EventFileOptions options = {});

  const std::string& path() const { return records_->path(); }
  // Appends an event. Throws kIo, kNoSpace; the file then takes no further event.
  void write(Event event);
  void flush();
  // Writes what is left and closes the file. The content is known to be written only when it has returned.
  void close();

 private:
  EventFileOptions options_;
  std::optional<TfRecordWriter> records_;
  double flushed_at_ = 0;
};

// Reads an event file from front to back.
class EventFileReader {
 public:
  // `file` must outlive the reader.
  explicit EventFileReader(const core::ReadableFile& file) : file_(file), records_(file) {}

  // Returns the next event, or nothing at the end. Throws kCorruptData with path and offset.
  [[nodiscard]] std::optional<Event> next();

 private:
  const core::ReadableFile& file_;
  TfRecordReader records_;
  std::string record_;
};

}  // namespace trainyard::formats
