#include "trainyard/formats/logs/event_file.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trainyard/core/system/host_name.h"

namespace trainyard::formats {
namespace {

double system_clock_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string machine_name() {
  std::string name = core::host_name();
  return name.empty() ? "localhost" : name;
}

// As tensorflow/core/lib/histogram/histogram.cc, with the outermost buckets open.
const std::vector<double>& bucket_limits() {
  static const std::vector<double> kLimits = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    positive.push_back(std::numeric_limits<double>::max());
    std::vector<double> limits;
    for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) limits.push_back(-*limit);
    limits.push_back(0);
    limits.insert(limits.end(), positive.begin(), positive.end());
    return limits;
  }();
  return kLimits;
}

}  // namespace

HistogramCounter::HistogramCounter() : buckets_(bucket_limits().size(), 0) {}

void HistogramCounter::add(double value) {
  if (!std::isfinite(value)) return;
  const std::vector<double>& limits = bucket_limits();
  const auto bucket = static_cast<size_t>(std::upper_bound(limits.begin(), limits.end(), value) - limits.begin());
  // The largest double is the last limit itself, and counts in the last bucket.
  buckets_[std::min(bucket, limits.size() - 1)] += 1;
  totals_.min = totals_.count == 0 ? value : std::min(totals_.min, value);
  totals_.max = totals_.count == 0 ? value : std::max(totals_.max, value);
  totals_.count += 1;
  totals_.sum += value;
  totals_.sum_squares += value * value;
}

Histogram HistogramCounter::histogram() const {
  Histogram histogram = totals_;
  if (histogram.count == 0) return histogram;
  const auto used = [](double bucket) { return bucket > 0; };
  // The bucket before the first used one tells where that one begins.
  auto begin = std::find_if(buckets_.begin(), buckets_.end(), used);
  if (begin != buckets_.begin()) --begin;
  const auto end = std::find_if(buckets_.rbegin(), buckets_.rend(), used).base();
  const auto limits = bucket_limits().begin();
  histogram.buckets.assign(begin, end);
  histogram.bucket_limits.assign(limits + (begin - buckets_.begin()), limits + (end - buckets_.begin()));
  return histogram;
}

Histogram make_histogram(std::span<const float> values) {
  HistogramCounter counter;
  for (const float value : values) counter.add(value);
  return counter.histogram();
}

void EventFileOptions::validate() const {
  if (!(flush_seconds >= 0)) {
    throw core::Error(core::ErrorCode::kInvalidArgument, {.problem = "flush_seconds is out of range",
                                                          .expected = "0 or more",
                                                          .actual = fmt::format("{}", flush_seconds)});
  }
}

EventFileWriter::EventFileWriter(core::FileSystem& files, const std::string& directory, EventFileOptions options)
    : options_(std::move(options)) {
  options_.validate();
  if (!options_.clock) options_.clock = system_clock_seconds;
  if (options_.hostname.empty()) options_.hostname = machine_name();
  files.make_directories(directory);
  const std::string name =
      fmt::format("events.out.tfevents.{:010}.{}", static_cast<int64_t>(options_.clock()), options_.hostname);
  std::string path = core::join_path(directory, name);
  // TensorBoard reads the files of a directory in the order of their names.
  for (int number = 1; files.exists(path); ++number)
    path = core::join_path(directory, fmt::format("{}.{}", name, number));
  records_.emplace(files.open_write(path));
  write({.file_version = "brain.Event:2"});
  flush();
}

void EventFileWriter::write(Event event) {
  const double now = options_.clock();
  if (event.wall_time == 0) event.wall_time = now;
  records_->write(encode_event(event));
  if (now - flushed_at_ >= options_.flush_seconds) flush();
}

void EventFileWriter::flush() {
  records_->flush();
  flushed_at_ = options_.clock();
}

void EventFileWriter::close() {
  records_->close();
}

std::optional<Event> EventFileReader::next() {
  const uint64_t offset = records_.offset();
  if (!records_.next(record_)) return std::nullopt;
  core::Result<Event> event = decode_event(record_);
  if (!event.ok()) throw event.error().in(fmt::format("{} at offset {}", file_.path(), offset));
  return std::move(event).value();
}

}  // namespace trainyard::formats
