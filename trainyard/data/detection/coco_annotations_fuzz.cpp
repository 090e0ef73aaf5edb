// A file as COCO's annotations and as detections. What is accepted is written and read again unchanged.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "trainyard/data/detection/coco_annotations.h"
#include "trainyard/formats/testing/hostile_input.h"

namespace {

class MemoryFile : public trainyard::core::ReadableFile {
 public:
  explicit MemoryFile(std::string content) : content_(std::move(content)) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return content_.size(); }
  void read_at(uint64_t offset, std::span<std::byte> out) const override {
    std::memcpy(out.data(), content_.data() + offset, out.size());
  }

 private:
  std::string content_;
  std::string path_ = "input";
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::data;
  const MemoryFile file(std::string(reinterpret_cast<const char*>(bytes), size));
  trainyard::formats::expect_value_or_error([&] {
    const CocoAnnotations annotations = read_coco_annotations(file);
    if (read_coco_annotations(MemoryFile(coco_annotations_json(annotations))) != annotations) std::abort();
  });
  trainyard::formats::expect_value_or_error([&] {
    const std::vector<CocoDetection> detections = read_coco_detections(file);
    if (read_coco_detections(MemoryFile(coco_detections_json(detections))) != detections) std::abort();
  });
  return 0;
}
