// The parsing half of json_reader.h: text to a JSON value.
#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <nlohmann/json.hpp>

#include "runtime/base/json_reader.h"
#include "runtime/base/nearest_name.h"

namespace dlaunch {
namespace {

using nlohmann::json;

/// What stands before a byte position (from 1).
std::string_view text_before(std::string_view text, std::size_t byte) {
  return text.substr(0, byte == 0 ? 0 : std::min(byte - 1, text.size()));
}

/// "line:column", both from 1, of a byte position (from 1) in the text.
std::string position(std::string_view text, std::size_t byte) {
  const std::string_view before = text_before(text, byte);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("{}:{}", line, before.size() - line_start + 1);
}

/// JSON holds no other text: the library would throw when it is written out, far from here.
bool is_utf8(std::string_view text) {
  try {
    (void)json(text).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

/// The library's message without its own number and position.
std::string message_of(const json::exception& error) {
  std::string text = error.what();
  if (const auto bracket = text.find("] "); bracket != std::string::npos)
    text.erase(0, bracket + 2);
  if (text.rfind("parse error", 0) == 0)
    if (const auto colon = text.find(": "); colon != std::string::npos) text.erase(0, colon + 2);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// Where a list or an object was left off with a comma, the library only misses what should follow.
bool is_behind_comma(std::string_view text, std::size_t byte) {
  const std::string_view before = text_before(text, byte);
  const std::size_t last = before.find_last_not_of(" \t\r\n");
  const bool closes =
      byte > 0 && byte <= text.size() && (text[byte - 1] == '}' || text[byte - 1] == ']');
  return closes && last != std::string_view::npos && before[last] == ',';
}

/// "; did you mean configs/resnet.json?", of a file that is not there; or nothing.
std::string file_meant(const std::string& path) {
  const std::filesystem::path asked(path);
  std::vector<std::string> names;
  std::error_code ignored;
  const auto folder = asked.has_parent_path() ? asked.parent_path() : std::filesystem::path(".");
  for (std::filesystem::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored))
    if (entry->path().filename() != asked.filename())  // a link that leads nowhere
      names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  const std::string nearest = nearest_name(asked.filename().string(), names);
  if (nearest.empty()) return "";
  return fmt::format("; did you mean {}?", (asked.parent_path() / nearest).string());
}

/// Refuses keys that an object holds twice, which the library would silently let the last one win.
/// A pass of its own: the library's parser with a callback looks through all that an object or
/// array holds so far whenever a part of it ends.
class DuplicateKeys : public nlohmann::json_sax<json> {
 public:
  explicit DuplicateKeys(std::string source) : source_(std::move(source)) {}

  bool start_object(std::size_t /*elements*/) override {
    open_.emplace_back();
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    open_.back().current = name;
    if (!open_.back().keys.insert(name).second)
      throw ConfigError(fmt::format("{}: {}: the key is there twice", source_, path()));
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_array(std::size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t /*position*/, const std::string& /*last_token*/,
                   const json::exception& /*error*/) override {
    return false;  // the pass that makes the value says it
  }

 private:
  struct Level {
    std::set<std::string> keys;
    std::string current;
  };
  std::string path() const {
    std::string text;
    for (const Level& level : open_) text += (text.empty() ? "" : ".") + level.current;
    return text;
  }

  std::string source_;
  std::vector<Level> open_;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& source) {
  try {
    constexpr bool kIgnoreComments = true;
    DuplicateKeys duplicates(source);
    (void)json::sax_parse(text.begin(), text.end(), &duplicates, json::input_format_t::json,
                          /*strict=*/true, kIgnoreComments);
    return json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/true,
                       kIgnoreComments);
  } catch (const json::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}: {}", source, position(text, error.byte),
                                  is_behind_comma(text, error.byte)
                                      ? "nothing follows the comma before this"
                                      : message_of(error)));
  } catch (const json::exception& error) {  // a number too large for any type
    throw ConfigError(fmt::format("{}: {}", source, message_of(error)));
  }
}

nlohmann::json read_json_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 4096> chunk;
  while (file.read(chunk.data(), chunk.size()) || file.gcount() > 0)
    text.append(chunk.data(), static_cast<std::size_t>(file.gcount()));
  if (!file.is_open() || file.bad()) {
    const int why = errno;
    throw ConfigError(fmt::format("{}: cannot read the file: {}{}", path,
                                  std::generic_category().message(why),
                                  why == ENOENT ? file_meant(path) : ""));
  }
  return parse_json(text, path);
}

std::string apply_override(nlohmann::json& root, std::string_view assignment) {
  const auto fail = [&](const std::string& why) {
    throw ConfigError(fmt::format("--set {}: {}", assignment, why));
  };
  if (!is_utf8(assignment)) fail("not UTF-8");
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) fail("expected key.path=value");
  const std::string path(assignment.substr(0, equals));
  const std::string value(assignment.substr(equals + 1));

  json* place = &root;
  std::string made;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    if (end == begin) fail("expected key.path=value");
    if (!place->is_object())
      fail(begin == 0 ? "the file has no sections: it is not one object"
                      : fmt::format("{} is no section, but {}", path.substr(0, begin - 1),
                                    place->dump(-1, ' ', false, json::error_handler_t::replace)));
    json& child = (*place)[path.substr(begin, end - begin)];
    if (made.empty() && (child.is_null() || end == path.size())) made = path.substr(0, end);
    if (child.is_null() && end < path.size()) child = json::object();
    place = &child;
    begin = end + 1;
  }
  if (json::accept(value))
    *place = parse_json(value, fmt::format("--set {}", path));
  else
    *place = value;
  return made;
}

}  // namespace dlaunch
