// What a static_assert names where a template takes all that a caller must not give: the error is then one line of our
// own words, in the place of a list of overloads.
//
//   void add(std::shared_ptr<Callback> callback);
//   template <typename Wrong>
//     requires(!std::convertible_to<Wrong, std::shared_ptr<Callback>>)
//   void add(Wrong&&) {
//     static_assert(core::kRightType<Wrong>, "add() takes a std::shared_ptr to a class that derives from Callback");
//   }
#pragma once

#include "trainyard/core/base/export.h"

TRAINYARD_EXPORT_BEGIN
namespace trainyard::core {

// Always false, but only once the template is used.
template <typename...>
inline constexpr bool kRightType = false;

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
