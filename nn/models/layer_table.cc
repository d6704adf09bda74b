#include "nn/models/layer_table.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace dlaunch::nn {
namespace {

constexpr std::size_t kColumns = 5;
constexpr std::size_t kTextColumns = 3;  // aligned to the left; numbers to the right
using Line = std::array<std::string, kColumns>;

/// 1234567 -> "1,234,567".
std::string with_separators(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string space(width - text.size(), ' ');
  return left ? text + space : space + text;
}

std::string join(const Line& line, const std::array<std::size_t, kColumns>& widths) {
  std::string text;
  for (std::size_t i = 0; i < kColumns; ++i) {
    if (i > 0) text += "  ";
    text += padded(line[i], widths[i], i < kTextColumns);
  }
  return text + "\n";
}

}  // namespace

std::string format_layer_table(const Module& network, const Shape& input) {
  std::vector<Line> lines{{"layer", "kind", "output", "parameters", "multiply-adds"}};
  std::int64_t parameters = 0;
  std::int64_t multiply_adds = 0;
  for (const LayerRow& row : layer_table(network, input)) {
    parameters += row.parameters;
    multiply_adds += row.multiply_adds;
    lines.push_back({row.name, row.kind, row.output.to_string(), with_separators(row.parameters),
                     with_separators(row.multiply_adds)});
  }
  lines.push_back({"total", "", "", with_separators(parameters), with_separators(multiply_adds)});

  std::array<std::size_t, kColumns> widths{};
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Line& line : lines) text += join(line, widths);
  return text;
}

}  // namespace dlaunch::nn
