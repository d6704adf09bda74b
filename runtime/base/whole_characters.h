// For texts in UTF-8 that are cut somewhere.
#pragma once

#include <cstddef>
#include <string_view>

namespace dlaunch {

/// How many bytes of `text`, which is cut at its end, are whole characters of UTF-8.
inline std::size_t whole_characters(std::string_view text) {
  constexpr std::size_t kLongestCharacter = 4;
  for (std::size_t behind = 1; behind < kLongestCharacter && behind <= text.size(); ++behind) {
    const auto byte = static_cast<unsigned char>(text[text.size() - behind]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;  // the middle of one
    const std::size_t length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return length > behind ? text.size() - behind : text.size();
  }
  return text.size();
}

}  // namespace dlaunch
