// `dlaunch completion bash|zsh|fish`: prints the script by which that shell completes dlaunch's
// options. Made from the table of options, so it knows all of them; the build installs the three.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/command_line.h"

namespace dlaunch {

std::string bash_completion(const std::vector<OptionEntry>& options);
std::string zsh_completion(const std::vector<OptionEntry>& options);
std::string fish_completion(const std::vector<OptionEntry>& options);

/// Prints the script of the shell that the argument names, or what this is (--help). 125 if it
/// names none of the three.
int completion_command(int argc, const char* const* argv);

}  // namespace dlaunch
