// How an error names keys for which one has waited in vain.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

/// "no value for 'a', 'init/3'"; keys that differ in a number at their end only are put together:
/// "no value for 'init/{3,5,8-11}' (6 keys)". Of very many, the first ones and their number.
std::string describe_missing(const std::vector<std::string>& missing);

/// "no change of keys that begin with 'init/'".
std::string describe_unchanged(std::string_view prefix);

}  // namespace dlaunch
