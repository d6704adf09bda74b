// Lists of numbers as people and the kernel write them: "0,2,4-7".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

/// The numbers, ascending and each once. Nothing if `text` is no such list or a number is above
/// `most`.
std::optional<std::vector<int>> parse_number_list(std::string_view text, int most);

/// "0-2,5" for ascending numbers.
std::string format_number_list(const std::vector<int>& numbers);
/// The same in a sentence: "0-2, 5".
std::string say_number_list(const std::vector<int>& numbers);

}  // namespace dlaunch
