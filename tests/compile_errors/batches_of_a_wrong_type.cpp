// error: static assertion failed: FunctionSource takes a function of const data::BatchPlace& that returns
// core::NamedTensors
#include <memory>

#include <ATen/core/Tensor.h>

#include "trainyard/data/sources/function_source.h"

namespace batches_of_a_wrong_type {

namespace core = trainyard::core;
namespace data = trainyard::data;

#ifdef MISTAKE
at::Tensor make(const data::BatchPlace& place);
#else
core::NamedTensors make(const data::BatchPlace& place);
#endif

std::shared_ptr<data::BatchSource> source() {
  return std::make_shared<data::FunctionSource>(make, data::FunctionSourceOptions{.batch_size = 16});
}

}  // namespace batches_of_a_wrong_type
