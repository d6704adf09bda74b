#include "launcher/base/number_list.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace dlaunch {
namespace {

// Takes a number from the front of `text`.
std::optional<int> take_number(std::string_view& text, int most) {
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > most) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return number;
}

bool take(std::string_view& text, char wanted) {
  if (text.empty() || text.front() != wanted) return false;
  text.remove_prefix(1);
  return true;
}

// `pair`: between two neighbours; more of them are a range.
std::string join(const std::vector<int>& numbers, const char* separator, const char* pair) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    if (!text.empty()) text += separator;
    text += std::to_string(numbers[i]);
    if (end > i) text += (end == i + 1 ? pair : "-") + std::to_string(numbers[end]);
    i = end + 1;
  }
  return text;
}

}  // namespace

std::optional<std::vector<int>> parse_number_list(std::string_view text, int most) {
  std::vector<int> numbers;
  do {
    const auto first = take_number(text, most);
    if (!first) return std::nullopt;
    const auto last = take(text, '-') ? take_number(text, most) : first;
    if (!last || *last < *first) return std::nullopt;
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
  } while (take(text, ','));
  if (!text.empty()) return std::nullopt;
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::string format_number_list(const std::vector<int>& numbers) {
  return join(numbers, ",", "-");
}

std::string say_number_list(const std::vector<int>& numbers) {
  return join(numbers, ", ", ", ");
}

}  // namespace dlaunch
