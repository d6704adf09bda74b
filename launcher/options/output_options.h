// What the user asked of the ranks' streams: what of their output is shown and kept, who reads
// stdin.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace dlaunch {

struct OutputOptions {
  enum class Mode {
    kPlain,  // stdout is dlaunch's own descriptor; stderr comes in lines with the rank in front
    kPrefix  // both come in lines with the rank in front
  };
  static constexpr int kNobody = -1;
  static constexpr int kEverybody = -2;

  Mode mode = Mode::kPlain;
  std::string log_dir;                   // empty: nothing is kept
  std::optional<std::vector<int>> only;  // the ranks that are shown, ascending; nothing: all
  int standard_input = 0;                // the rank that reads dlaunch's, or one of the above

  bool shows(int rank) const {
    return !only || std::binary_search(only->begin(), only->end(), rank);
  }
  /// True if a rank's stdout must come by way of dlaunch.
  bool captures_output(int rank) const {
    return mode == Mode::kPrefix || !log_dir.empty() || !shows(rank);
  }
};

/// What is wrong with options that name a rank which a job of `world` ranks has not; empty:
/// nothing.
std::string unknown_rank(const OutputOptions& options, int world);

void add_output_options(CLI::App& app, OutputOptions& options);

}  // namespace dlaunch
