// How the report of a sanitizer (of addresses, leaks, memory, threads) begins on stderr.
#pragma once

#include <string_view>

namespace dlaunch {

/// "==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1", and not its summary.
inline bool begins_sanitizer_report(std::string_view line) {
  return line.find("Sanitizer: ") != std::string_view::npos &&
         (line.find("ERROR: ") != std::string_view::npos ||
          line.find("WARNING: ") != std::string_view::npos);
}

}  // namespace dlaunch
