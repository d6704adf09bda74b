// What a new run does with the files of an earlier one in its folder: it does not destroy them at
// once.
#pragma once

#include <string>

namespace dlaunch {

inline constexpr const char* kPreviousSuffix = ".previous";

/// Renames a regular file to PATH.previous, in place of an older file of that name; copies it if it
/// is also to `stay`. Returns the new name; empty if there is no such file. Throws
/// std::runtime_error.
std::string set_aside(const std::string& path, bool stay = false);

}  // namespace dlaunch
