// Loggers write whole lines to stderr: "[12:00:01.123] [transport] [info] ...". There is no global
// logger; whoever has something to log is handed one. Loggers may be used from any thread.
#pragma once

#include <memory>
#include <string>

#include <spdlog/logger.h>

namespace dlaunch {

using Logger = std::shared_ptr<spdlog::logger>;

/// A logger at the level of the environment variable DLAUNCH_LOG (trace, debug, info, warn, error,
/// off; default warn). An unknown level counts as the default, with one warning. Writes to `sink`
/// instead of stderr if there is one.
Logger make_logger(std::string name, spdlog::sink_ptr sink = nullptr);

/// A logger that drops everything, for tests and for callers that want silence.
Logger make_null_logger();

}  // namespace dlaunch
