#include "launcher/failure/failure.h"

#include <nlohmann/json.hpp>

#include "launcher/supervision/signals.h"

namespace dlaunch {

nlohmann::ordered_json to_json(const FailureRecord& failure) {
  nlohmann::ordered_json json{
      {"rank", failure.rank},       {"host", failure.host},
      {"pid", failure.pid},         {"attempt", failure.attempt},
      {"when_ns", failure.when_ns}, {"after_seconds", failure.after_seconds},
      {"exit_code", nullptr},       {"signal", nullptr},
      {"signal_name", nullptr},     {"core_dumped", failure.core_dumped},
      {"probable_cause", nullptr},  {"last_lines", failure.last_lines}};
  if (failure.signal == 0) {
    json["exit_code"] = failure.exit_code;
  } else {
    json["signal"] = failure.signal;
    json["signal_name"] = signal_name(failure.signal);
  }
  if (!failure.probable_cause.empty()) json["probable_cause"] = failure.probable_cause;
  return json;
}

std::string serialize(const FailureRecord& failure) {
  // What a rank has written need not be UTF-8.
  return to_json(failure).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace {

// A fraction, which json would cut to fit, is none. Throws json's exception.
template <typename Integer>
void get_whole(const nlohmann::json& value, Integer& into) {
  into = static_cast<Integer>(value.get_ref<const nlohmann::json::number_integer_t&>());
}

}  // namespace

Result<FailureRecord> parse_failure(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    FailureRecord failure;
    get_whole(json.at("rank"), failure.rank);
    json.at("host").get_to(failure.host);
    get_whole(json.at("pid"), failure.pid);
    get_whole(json.at("attempt"), failure.attempt);
    get_whole(json.at("when_ns"), failure.when_ns);
    json.at("after_seconds").get_to(failure.after_seconds);
    if (!json.at("exit_code").is_null()) get_whole(json.at("exit_code"), failure.exit_code);
    if (!json.at("signal").is_null()) get_whole(json.at("signal"), failure.signal);
    json.at("core_dumped").get_to(failure.core_dumped);
    if (const auto& cause = json.at("probable_cause"); !cause.is_null()) {
      cause.get_to(failure.probable_cause);
    }
    json.at("last_lines").get_to(failure.last_lines);
    return failure;
  } catch (const nlohmann::json::exception& error) {
    return Status(StatusCode::kInvalidArgument, std::string("failure record: ") + error.what());
  }
}

}  // namespace dlaunch
