// RecordedError: what a program has told of its failure itself, in the file that
// TORCHELASTIC_ERROR_FILE names. PyTorch's @record writes it, as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dlaunch {

struct RecordedError {
  std::string message;       // its first line: "ValueError: upside down"
  std::string place;         // "train.py:8, in load"; empty: not said
  std::int64_t seconds = 0;  // when it was raised, since 1970; 0: not said
};

/// The file of a rank of the job in an attempt; empty if `folder` is.
std::string error_file(const std::string& folder, int attempt, int rank);

/// Nothing if there is no such file, or it holds something else.
std::optional<RecordedError> read_recorded_error(const std::string& path);
std::optional<RecordedError> parse_recorded_error(std::string_view text);

/// Removes what the ranks of an attempt have left in the folder, but not the folder.
void remove_error_files(const std::string& folder);

}  // namespace dlaunch
