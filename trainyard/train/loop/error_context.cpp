#include "trainyard/train/loop/error_context.h"

#include <new>
#include <string>

#include <c10/util/Exception.h>

namespace trainyard::train {

using core::Error;
using core::ErrorCode;

Error as_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error;
  } catch (const c10::OutOfMemoryError& error) {
    return {ErrorCode::kNoSpace,
            {.problem = std::string(error.what_without_backtrace()), .remedy = "use a smaller batch"}};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kNoSpace, {.problem = "out of memory", .remedy = "use a smaller batch"}};
  } catch (const c10::Error& error) {
    return {ErrorCode::kInternal, std::string(error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return {ErrorCode::kInternal, std::string(error.what())};
  } catch (...) {
    return {ErrorCode::kInternal, "an exception of an unknown type"};
  }
}

}  // namespace trainyard::train
