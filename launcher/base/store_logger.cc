#include "launcher/base/store_logger.h"

#include <memory>
#include <mutex>

#include <unistd.h>

#include <spdlog/sinks/base_sink.h>

#include "launcher/base/non_blocking.h"

namespace dlaunch {
namespace {

class SinkThatDoesNotWait final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    write_without_waiting(STDERR_FILENO, {line.data(), line.size()});
  }
  void flush_() override {}
};

}  // namespace

Logger make_store_logger() {
  return make_logger("dlaunch", std::make_shared<SinkThatDoesNotWait>());
}

}  // namespace dlaunch
