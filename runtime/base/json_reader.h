// Strict reading of JSON configurations.
//
// Comments (// and /* */) are allowed; a key given twice, a key nobody asks for, a value of the
// wrong type and a value outside its range are refused with a ConfigError that names the path, what
// was found, what is allowed and perhaps what to write:
//
//   config.json: train.optimzer: unknown key; did you mean optimizer?
//
// A configuration is read by a function that asks for each key, with its default, once:
//
//   auto resolved = read_json_object(json, "config.json", [&](JsonObject& root) {
//     root.object("train", [&](JsonObject& train) {
//       options.epochs = train.integer("epochs", 20, {1, 1'000'000});
//     });
//   });
//
// `resolved` then holds every key with the value in force, in the order asked. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace dlaunch {

class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Parses JSON text. `source` names it in errors; syntax errors carry line and column
/// ("config.json:3:14: ...").
nlohmann::json parse_json(std::string_view text, const std::string& source);

/// parse_json of a file; a file that cannot be read is a ConfigError too.
nlohmann::json read_json_file(const std::string& path);

/// Applies "key.path=value" to a configuration: the value is taken as JSON if it is JSON, else as a
/// string. Sections that are not there are made. Returns the path of the outermost thing that was
/// made or replaced.
std::string apply_override(nlohmann::json& root, std::string_view assignment);

/// Where a configuration comes from, for errors: a file, and what has replaced parts of it.
class ConfigSource {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): mostly there is nothing but a file
  ConfigSource(std::string file) : file_(std::move(file)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  ConfigSource(const char* file) : file_(file) {}

  /// What is at that path and below it now comes from `origin`.
  void replace(std::string path, std::string origin);

  const std::string& file() const { return file_; }
  /// Of what is at that path.
  const std::string& origin_of(std::string_view path) const;

 private:
  std::string file_;
  std::vector<std::pair<std::string, std::string>> replaced_;  // paths and origins
};

struct IntegerRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

/// Both ends belong to the range unless said otherwise.
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
  bool below_max = false;  // max itself is not allowed
};

/// Reads one object. Made by read_json_object() and valid within its callback only. Every getter
/// takes the default that holds if the key is missing.
class JsonObject {
 public:
  bool boolean(const std::string& key, bool fallback);
  std::int64_t integer(const std::string& key, std::int64_t fallback, IntegerRange allowed = {});
  double number(const std::string& key, double fallback, NumberRange allowed = {});
  /// Without NUL characters.
  std::string text(const std::string& key, const std::string& fallback);
  /// One of a few words; `others` are some that people write instead, and what they mean.
  std::string choice(const std::string& key, const std::string& fallback,
                     const std::vector<std::string>& allowed,
                     const std::vector<std::pair<std::string, std::string>>& others = {});
  std::vector<double> numbers(const std::string& key, const std::vector<double>& fallback,
                              NumberRange allowed = {});
  std::vector<std::int64_t> integers(const std::string& key,
                                     const std::vector<std::int64_t>& fallback,
                                     IntegerRange allowed = {});
  /// A section; a missing one is read as an empty one, so that its defaults hold.
  void object(const std::string& key, const std::function<void(JsonObject&)>& read);

  /// True if the key was written, rather than left to its default.
  bool has(const std::string& key) const;

  /// Throws the ConfigError "origin: path.key: why", for rules between keys.
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

 private:
  friend nlohmann::ordered_json read_json_object(const nlohmann::json&, const ConfigSource&,
                                                 const std::function<void(JsonObject&)>&);
  struct Shared;  // of all objects of one read: the source's name, keys known and unknown

  JsonObject(const nlohmann::json& value, nlohmann::ordered_json& resolved, std::string path,
             Shared& shared);
  const nlohmann::json* find(const std::string& key);
  std::string path_of(const std::string& key) const;
  void note_unknown_keys() const;
  [[noreturn]] void refuse_value(const std::string& key, const nlohmann::json& found,
                                 const std::string& allowed, const std::string& advice = "") const;

  const nlohmann::json& value_;
  nlohmann::ordered_json& resolved_;
  std::string path_;  // "train.", or empty for the root
  Shared& shared_;
  std::vector<std::string> asked_;
};

/// Reads `value`, which must be an object, through `read`, then refuses keys nobody asked for.
/// Returns the resolved configuration.
nlohmann::ordered_json read_json_object(const nlohmann::json& value, const ConfigSource& source,
                                        const std::function<void(JsonObject&)>& read);

}  // namespace dlaunch
