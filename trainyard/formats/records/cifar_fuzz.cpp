// A file as a batch of CIFAR-10: the pickle reader, and the binary version.
#include "trainyard/formats/records/cifar.h"
#include "trainyard/formats/testing/hostile_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trainyard::formats;
  expect_value_or_error([&] { parse_cifar10_batch({reinterpret_cast<const char*>(bytes), size}); });
  return 0;
}
