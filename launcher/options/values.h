// The values of options, read strictly: all of the text, in range, or BadValue.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace dlaunch {

/// The text is no such value; what() says so and quotes it.
class BadValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Nothing if `text` is not a whole number from `least` to `most`.
std::optional<int> parse_integer(const std::string& text, int least, int most);

/// As it is, unless it is empty: "'' is no WHAT".
std::string parse_text(const std::string& text, const std::string& what);

std::uint16_t parse_port(const std::string& text);

enum class Zero { kAllowed, kRefused };
/// "2.5" and the like; at most a year.
std::chrono::nanoseconds parse_seconds(const std::string& text, Zero zero);

}  // namespace dlaunch
