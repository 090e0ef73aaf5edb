// For tests that a sanitizer makes too slow, or that do what it does not understand.
#pragma once

namespace trainyard::core {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace trainyard::core
