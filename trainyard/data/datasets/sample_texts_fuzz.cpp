// A text as the label of a WebDataset's sample, KEY.cls and KEY.json, and as the names of classes. What is accepted is
// written and read again unchanged.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "trainyard/data/datasets/class_list.h"
#include "trainyard/data/datasets/webdataset_label.h"

namespace {

using namespace trainyard::data;

void check(trainyard::core::Result<WebLabel> label) {
  if (!label.ok() || !label.value().is_number) return;
  const std::string written = json_label(label.value().number, label.value().name);
  if (written.empty()) return;  // not UTF-8
  auto again = parse_json_label(written);
  if (!again.ok() || again.value().number != label.value().number || again.value().name != label.value().name)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  check(parse_cls_label(text));
  check(parse_json_label(text));
  const std::vector<std::string> names = decode_class_names(text);
  if (decode_class_names(encode_class_names(names)) != names) std::abort();
  for (const std::string& name : names) static_cast<void>(printable_class(name));
  return 0;
}
