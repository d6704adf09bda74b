// Configuration files and overrides, against the JSON reader: anything is either read or refused
// with a ConfigError, and what was read reads the same again.
//
// Input: a configuration, then, after a zero byte, an override "key.path=value".
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/base/json_reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace dlaunch::fuzz {
namespace {

nlohmann::ordered_json read(const nlohmann::json& config) {
  return read_json_object(config, "config.json", [](JsonObject& root) {
    root.boolean("flag", true);
    root.text("name", "none");
    root.choice("kind", "small", {"small", "large"});
    root.object("train", [](JsonObject& train) {
      const auto epochs = train.integer("epochs", 20, {1, 1'000'000});
      require(epochs >= 1 && epochs <= 1'000'000, "integers keep to their range");
      train.integer("any", 0);
      const double rate = train.number("rate", 0.1, {.min = 0, .max = 10, .above_min = true});
      require(rate > 0 && rate <= 10, "numbers keep to their range");
      train.numbers("steps", {0.5}, {.min = 0});
      train.integers("milestones", {60, 120}, {0, 1000});
    });
    if (root.has("refused")) root.refuse("refused", "not allowed");
  });
}

void read_and_read_again(std::string_view text, std::string_view assignment) {
  try {
    nlohmann::json config = parse_json(text, "config.json");
    if (!assignment.empty()) apply_override(config, assignment);
    const nlohmann::ordered_json resolved = read(config);
    const nlohmann::ordered_json again = read(parse_json(resolved.dump(), "resolved"));
    require(again == resolved, "a resolved configuration reads as itself");
  } catch (const ConfigError& refused) {
    require(*refused.what() != '\0', "a refusal has a reason");
  }
}

}  // namespace

std::vector<std::string> seed_inputs() {
  using namespace std::string_literals;
  return {
      R"({"flag": false, "name": "x", "kind": "large",
          "train": {"epochs": 3, "rate": 0.5, "steps": [1, 2.5e3], "milestones": [1, 2]}})"s,
      "{ // a comment\n \"train\": {\"epochs\": 1e9} }"s,
      R"({"flg": true})"s,
      R"({"name": "\ud83d\ude00\u0000", "name": ""})"s,
      "{}\0train.epochs=7"s,
      "{}\0name=words"s,
      "{}\0name=\xff"s,
      "{\"train\": {}}\0train.steps=[1,2]"s,
      R"({"train": {"any": -9223372036854775808, "rate": 1e-308}})"s};
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  dlaunch::fuzz::read_and_read_again(input.substr(0, end),
                                     input.substr(std::min(end + 1, input.size())));
  return 0;
}
