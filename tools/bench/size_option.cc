#include "tools/bench/size_option.h"

#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace dlaunch::bench {
namespace {

constexpr std::string_view kSizeUnits = "KMGT";
constexpr std::size_t kLargestSize = std::size_t{1} << 40;

std::optional<std::size_t> parse_size(std::string_view text) {
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.empty()) return bytes;
  const char unit = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  const std::size_t power = kSizeUnits.find(unit);
  if (text.size() > 1 || power == std::string_view::npos) return std::nullopt;
  const std::size_t factor = std::size_t{1} << (10 * (power + 1));
  if (bytes > kLargestSize / factor) return std::nullopt;
  return bytes * factor;
}

}  // namespace

CLI::Option* add_size_option(CLI::App& app, const std::string& name, std::size_t& bytes,
                             const std::string& help) {
  const auto read = [name, &bytes](const std::string& text) {
    const std::optional<std::size_t> size = parse_size(text);
    if (!size || *size < 1 || *size > kLargestSize)
      throw CLI::ValidationError(
          name, "'" + text + "'; allowed: bytes from 1 to 1T, as 65536 or 64K (K, M, G, T)");
    bytes = *size;
  };
  return app.add_option_function<std::string>(name, read, help)->type_name("SIZE");
}

}  // namespace dlaunch::bench
