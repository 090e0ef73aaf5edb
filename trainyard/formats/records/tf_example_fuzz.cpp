// A message as tf.Example: every feature that the data sets ask for, as each kind.
#include <string_view>

#include "trainyard/formats/records/tf_example.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::formats;
  auto example = ExampleView::parse({reinterpret_cast<const char*>(bytes), size});
  if (!example.ok()) return 0;
  for (const std::string_view name : {kImageEncoded, kImageClassLabel, kImageBoxXMin, std::string_view()}) {
    static_cast<void>(example.value().bytes_list(name));
    static_cast<void>(example.value().int64_list(name));
    static_cast<void>(example.value().float_list(name));
    static_cast<void>(example.value().bytes(name));
  }
  return 0;
}
