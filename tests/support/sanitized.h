// Whether a sanitizer looks on: it needs memory, address space and open files of its own.
#pragma once

namespace dlaunch::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace dlaunch::testing
