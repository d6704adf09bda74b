// FailureRecord: how a rank failed, as a plain value. It goes into reports, and from node to node,
// so that all of them can tell which failure of the job was the first.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/base/status.h"

namespace dlaunch {

struct FailureRecord {
  int rank = -1;
  std::string host;
  pid_t pid = -1;
  int attempt = 0;
  std::int64_t when_ns = 0;  // since 1970, by the clock of its host
  double after_seconds = 0;  // since the attempt began
  int exit_code = 0;         // if `signal` is 0
  int signal = 0;            // the signal that ended it
  bool core_dumped = false;
  std::string probable_cause;           // empty: nothing more is known
  std::vector<std::string> last_lines;  // on stderr, oldest first

  friend bool operator==(const FailureRecord&, const FailureRecord&) = default;
};

nlohmann::ordered_json to_json(const FailureRecord& failure);

/// One line of text and back. kInvalidArgument names the field that is missing or wrong.
std::string serialize(const FailureRecord& failure);
Result<FailureRecord> parse_failure(std::string_view text);

}  // namespace dlaunch
