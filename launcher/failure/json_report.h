// The report that --report writes: everything about a job, as JSON. docs/launcher.md describes it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "launcher/failure/outcome.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// An attempt as this node knows it, for the reports of other nodes; without the ranks' last lines
/// if it would have more than `most_bytes` with them.
std::string attempt_report(const AttemptOutcome& attempt, const std::string& host,
                           std::size_t most_bytes);

/// `error`: why dlaunch itself failed; empty if it did not.
std::string json_report(const JobOutcome& job, int exit_code, const std::string& error);

/// The file of a report, opened before the job starts so that a path which cannot be written is
/// known at once. An earlier report is removed then. A file to which this process's stdout or
/// stderr goes keeps what is in it, and the report follows.
class ReportFile {
 public:
  static Result<ReportFile> open(const std::string& path);
  /// Once, after all other output. `wait` waits until the descriptor, of a pipe whose reader is
  /// slow, can be written to; false: no longer.
  Status write(const std::string& text, const std::function<bool(int descriptor)>& wait);

 private:
  ReportFile(std::string path, Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  Descriptor file_;
};

}  // namespace dlaunch
