#include "runtime/collective/cost_model.h"

#include <array>
#include <charconv>

#include <nlohmann/json.hpp>

#include "runtime/base/json_reader.h"

namespace dlaunch {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
constexpr NumberRange kSomeTime{.min = 0, .max = 1e6};
constexpr NumberRange kSomeRate{.min = 1e-9, .max = 1e6};

double time(JsonObject& object, const std::string& key, double seconds) {
  return object.number(key, seconds / kMicro, kSomeTime) * kMicro;
}

double per_byte(JsonObject& object, const std::string& key, double seconds) {
  return 1 / (object.number(key, 1 / (seconds * kGiga), kSomeRate) * kGiga);
}

void read_message(JsonObject& root, const std::string& key, MessageCost& cost) {
  root.object(key, [&](JsonObject& object) {
    cost.latency = time(object, "latency_us", cost.latency);
    cost.overhead = time(object, "overhead_us", cost.overhead);
    cost.per_byte = per_byte(object, "gb_per_s", cost.per_byte);
  });
}

CostModel read_model(const nlohmann::json& json, const std::string& source) {
  CostModel model;
  read_json_object(json, source, [&](JsonObject& root) {
    root.object("shared_memory", [&](JsonObject& object) {
      model.sync = time(object, "sync_us", model.sync);
      model.turn = time(object, "turn_us", model.turn);
    });
    root.object("memory", [&](JsonObject& object) {
      model.copy_per_byte = per_byte(object, "copy_gb_per_s", model.copy_per_byte);
      model.reduce_per_byte = per_byte(object, "reduce_gb_per_s", model.reduce_per_byte);
    });
    read_message(root, "shared_messages", model.shared_message);
    read_message(root, "tcp_in_host", model.host_message);
    read_message(root, "tcp", model.network_message);
  });
  return model;
}

/// To six digits, more than a measurement has.
double rounded(double value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.begin(), text.end(), value, std::chars_format::general, 6).ptr;
  std::from_chars(text.begin(), end, value);
  return value;
}

double micro(double seconds) {
  return rounded(seconds / kMicro);
}

double giga_per_second(double seconds_per_byte) {
  return rounded(1 / (seconds_per_byte * kGiga));
}

nlohmann::ordered_json json_of(const MessageCost& cost) {
  return {{"latency_us", micro(cost.latency)},
          {"overhead_us", micro(cost.overhead)},
          {"gb_per_s", giga_per_second(cost.per_byte)}};
}

}  // namespace

CostModel parse_cost_model(std::string_view json, const std::string& source) {
  return read_model(parse_json(json, source), source);
}

CostModel read_cost_model(const std::string& path) {
  return read_model(read_json_file(path), path);
}

std::string to_json(const CostModel& model) {
  const nlohmann::ordered_json json = {
      {"shared_memory", {{"sync_us", micro(model.sync)}, {"turn_us", micro(model.turn)}}},
      {"memory",
       {{"copy_gb_per_s", giga_per_second(model.copy_per_byte)},
        {"reduce_gb_per_s", giga_per_second(model.reduce_per_byte)}}},
      {"shared_messages", json_of(model.shared_message)},
      {"tcp_in_host", json_of(model.host_message)},
      {"tcp", json_of(model.network_message)}};
  return json.dump(2) + "\n";
}

}  // namespace dlaunch
