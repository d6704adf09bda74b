// The table that dbench prints as it goes, and the file of --json.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/bench/measure/statistics.h"
#include "tools/bench/options.h"

namespace dlaunch::bench {

/// One line: an operation of one size by one algorithm.
struct Cell {
  std::string algorithm;
  std::size_t count = 0;
  std::size_t bytes = 0;
  Summary seconds;                      // of one operation after a barrier, the slowest rank's
  std::optional<double> batch_seconds;  // of one of many back to back, the median
  double bus_factor = 1;
  double error = 0;
  double peak_mib = 0;  // the greatest of all ranks
};

/// "1 rank", "2 ranks".
std::string counted(std::size_t number, const char* what);

/// Prints the head of the table.
void print_head(const Options& options, const std::string& operation, int ranks);
/// Prints one line at once.
void print_cell(const Cell& cell);

/// Before anything is measured: throws ConfigError, which names `option`, if the file cannot be
/// written. An empty path is no file. Leaves what is there as it is.
void refuse_unless_writable(const std::string& option, const std::string& path);
/// Throws std::runtime_error if the file cannot be written.
void write_text(const std::string& path, const std::string& text);
void write_document(const std::string& path, const nlohmann::ordered_json& document);

/// The cells of a collective as a document.
void write_json(const Options& options, const std::string& operation, int ranks,
                const std::vector<Cell>& cells);

}  // namespace dlaunch::bench
