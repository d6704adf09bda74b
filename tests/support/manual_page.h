// What a manual page of docs/man says.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

namespace dlaunch::testing {

/// The page's text without the escapes of its format.
inline std::string manual_page(const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  text.erase(std::remove(text.begin(), text.end(), '\\'), text.end());
  return text;
}

}  // namespace dlaunch::testing
