#include "runtime/rendezvous/missing_keys.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dlaunch {
namespace {

constexpr std::size_t kNamedKeys = 8;     // or groups of keys
constexpr std::size_t kNamedRanges = 32;  // of numbers within a group
constexpr std::size_t kMostDigits = 18;   // so that a number fits 64 bits

// Keys that differ in a number at their end only.
struct Group {
  std::string_view stem;
  std::vector<std::uint64_t> numbers;
  std::string_view only_key;  // of a group of one
};

// The number at the end of a key, if it is written the usual way.
std::string_view number_of(std::string_view key) {
  const std::size_t last_other = key.find_last_not_of("0123456789");
  const std::string_view digits =
      last_other == std::string_view::npos ? key : key.substr(last_other + 1);
  if (digits.empty() || digits.size() > kMostDigits) return {};
  if (digits.size() > 1 && digits.front() == '0') return {};
  return digits;
}

std::vector<Group> group(const std::vector<std::string>& keys) {
  std::vector<Group> groups;
  for (const std::string& key : keys) {
    const std::string_view digits = number_of(key);
    const std::string_view stem = std::string_view(key).substr(0, key.size() - digits.size());
    // Keys of one group usually come one after the other.
    if (digits.empty() || groups.empty() || groups.back().stem != stem ||
        groups.back().numbers.empty()) {
      groups.push_back({stem, {}, key});
    }
    if (!digits.empty()) groups.back().numbers.push_back(std::stoull(std::string(digits)));
  }
  return groups;
}

// "3,5,8-11"
std::string ranges(std::vector<std::uint64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  std::size_t named = 0;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] <= numbers[end - 1] + 1) ++end;
    if (++named > kNamedRanges) return text + ",...";
    if (!text.empty()) text += ",";
    text += std::to_string(numbers[i]);
    if (numbers[end - 1] != numbers[i]) {
      text += (numbers[end - 1] == numbers[i] + 1 ? "," : "-") + std::to_string(numbers[end - 1]);
    }
    i = end;
  }
  return text;
}

std::string name_of(const Group& group) {
  if (group.numbers.size() <= 1) return "'" + std::string(group.only_key) + "'";
  return "'" + std::string(group.stem) + "{" + ranges(group.numbers) + "}' (" +
         std::to_string(group.numbers.size()) + " keys)";
}

}  // namespace

std::string describe_missing(const std::vector<std::string>& missing) {
  std::string text = "no value for ";
  if (missing.size() <= kNamedKeys / 2) {
    for (std::size_t i = 0; i < missing.size(); ++i) {
      text += (i == 0 ? "'" : ", '") + missing[i] + "'";
    }
    return text;
  }
  const std::vector<Group> groups = group(missing);
  std::size_t named = 0;
  for (std::size_t i = 0; i < std::min(kNamedKeys, groups.size()); ++i) {
    text += (i == 0 ? "" : ", ") + name_of(groups[i]);
    named += std::max<std::size_t>(1, groups[i].numbers.size());
  }
  if (named < missing.size()) {
    text += " and " + std::to_string(missing.size() - named) + " more keys";
  }
  return text;
}

std::string describe_unchanged(std::string_view prefix) {
  return "no change of keys that begin with '" + std::string(prefix) + "'";
}

}  // namespace dlaunch
