#include "runtime/base/logging.h"

#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace dlaunch {

Logger make_logger(std::string name, spdlog::sink_ptr sink) {
  if (!sink) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>(std::move(name), std::move(sink));
  logger->set_pattern("[%H:%M:%S.%e] [%n] [%l] %v");
  logger->set_level(spdlog::level::warn);
  const char* wanted = std::getenv("DLAUNCH_LOG");  // NOLINT(concurrency-mt-unsafe): read only
  if (wanted == nullptr) return logger;
  const auto level = spdlog::level::from_str(wanted);
  if (level == spdlog::level::off && std::string_view(wanted) != "off") {
    static std::once_flag told;  // there are several loggers
    std::call_once(told, [&] {
      logger->warn("DLAUNCH_LOG='{}' is no level; use trace, debug, info, warn, error or off",
                   wanted);
    });
  } else {
    logger->set_level(level);
  }
  return logger;
}

Logger make_null_logger() {
  return std::make_shared<spdlog::logger>("null", std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace dlaunch
