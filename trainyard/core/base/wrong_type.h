// Makes a static_assert fail in overloads that catch wrong argument types, so that the compiler prints one line of ours
// instead of a list of overloads.
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

// False for every type. Evaluated only when the template is instantiated.
template <typename...>
inline constexpr bool kRightType = false;

}  // namespace trainyard::core
TRAINYARD_EXPORT_END
