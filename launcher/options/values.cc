#include "launcher/options/values.h"

#include <charconv>
#include <cmath>

namespace dlaunch {
namespace {

constexpr double kLongestSeconds = 366.0 * 24 * 3600;

}  // namespace

std::optional<int> parse_integer(const std::string& text, int least, int most) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < least || number > most) return std::nullopt;
  return number;
}

std::string parse_text(const std::string& text, const std::string& what) {
  if (text.empty()) throw BadValue("'' is no " + what);
  return text;
}

std::uint16_t parse_port(const std::string& text) {
  const auto port = parse_integer(text, 1, UINT16_MAX);
  if (!port) throw BadValue("'" + text + "' is not a port from 1 to 65535");
  return static_cast<std::uint16_t>(*port);
}

std::chrono::nanoseconds parse_seconds(const std::string& text, Zero zero) {
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  const bool allowed = seconds > 0 || (seconds == 0 && zero == Zero::kAllowed);
  if (error != std::errc() || stop != end || !allowed || seconds > kLongestSeconds) {
    throw BadValue("'" + text + "' is not a number of seconds" +
                   (zero == Zero::kAllowed ? "" : " above 0"));
  }
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

}  // namespace dlaunch
