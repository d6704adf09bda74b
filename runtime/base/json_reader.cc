#include "runtime/base/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include <spdlog/fmt/fmt.h>
#include <nlohmann/json.hpp>

#include "runtime/base/nearest_name.h"
#include "runtime/base/whole_characters.h"

namespace dlaunch {
namespace {

using nlohmann::json;

/// What a value is, for an error message: `"ten"`, `3.5`, `an array`.
std::string describe(const json& value) {
  if (value.is_object()) return "a section";
  if (value.is_array()) return "an array";
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr std::size_t kLongest = 60;
  if (text.size() <= kLongest) return text;
  text.resize(kLongest);
  text.resize(whole_characters(text));
  return text + "…";
}

std::string describe(const IntegerRange& range) {
  const IntegerRange any;
  if (range.min == any.min && range.max == any.max) return "an integer";
  if (range.max == any.max) return fmt::format("an integer of at least {}", range.min);
  if (range.min == any.min) return fmt::format("an integer of at most {}", range.max);
  return fmt::format("an integer from {} to {}", range.min, range.max);
}

std::string describe(const NumberRange& range) {
  std::string text = "a number";
  if (std::isfinite(range.min))
    text += fmt::format(" {} {}", range.above_min ? "above" : "of at least", range.min);
  if (std::isfinite(range.max)) {
    if (std::isfinite(range.min)) text += " and";
    text += fmt::format(" {} {}", range.below_max ? "below" : "at most", range.max);
  }
  return text;
}

bool is_integer_within(const json& value, const IntegerRange& range) {
  if (!value.is_number_integer()) return false;
  // An unsigned value above the signed maximum would wrap.
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(range.max < 0 ? 0 : range.max))
    return false;
  const auto number = value.get<std::int64_t>();
  return number >= range.min && number <= range.max;
}

bool is_number_within(const json& value, const NumberRange& range) {
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  if (!std::isfinite(number)) return false;
  if (range.above_min ? number <= range.min : number < range.min) return false;
  return range.below_max ? number < range.max : number <= range.max;
}

/// The number that a value of another type was probably meant to be: a text that reads like one, or
/// a whole number written as a fraction. Null: there is none.
json meant_number(const json& found) {
  double number = 0;
  if (found.is_number_float()) {
    number = found.get<double>();
  } else if (found.is_string()) {
    const auto& text = found.get_ref<const std::string&>();
    const char* const end = text.data() + text.size();
    const auto [rest, error] =
        std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), end, number);
    if (error != std::errc() || rest != end) return nullptr;
  } else {
    return nullptr;
  }
  constexpr double kExact = 1e15;
  if (std::trunc(number) == number && std::abs(number) < kExact)
    return static_cast<std::int64_t>(number);
  return number;
}

std::string advice_to_write(const std::string& text) {
  return fmt::format(" (write {})", text);
}

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

/// "lr" of "learning_rate".
std::string initials(const std::string& name) {
  std::string letters;
  for (std::size_t i = 0; i < name.size(); ++i)
    if (i == 0 || name[i - 1] == '_') letters += name[i];
  return letters;
}

/// What an unknown name may have to do with a known one, likeliest first.
enum class Likeness {
  kBeginningHere,
  kEndHere,
  kInitialsHere,
  kSame,
  kBeginning,
  kInitials,
  kNone
};

Likeness likeness(const std::string& known, const std::string& name, bool here) {
  if (known == name) return Likeness::kSame;
  if (known.starts_with(name + "_")) return here ? Likeness::kBeginningHere : Likeness::kBeginning;
  if (here && known.ends_with("_" + name)) return Likeness::kEndHere;
  if (name.size() > 1 && initials(known) == name)
    return here ? Likeness::kInitialsHere : Likeness::kInitials;
  return Likeness::kNone;
}

}  // namespace

void ConfigSource::replace(std::string path, std::string origin) {
  replaced_.emplace_back(std::move(path), std::move(origin));
}

const std::string& ConfigSource::origin_of(std::string_view path) const {
  const auto covers = [&](const auto& part) {
    return path.starts_with(part.first) &&
           (path.size() == part.first.size() || path[part.first.size()] == '.');
  };
  const auto last = std::find_if(replaced_.rbegin(), replaced_.rend(), covers);
  return last == replaced_.rend() ? file_ : last->second;
}

struct JsonObject::Shared {
  const ConfigSource& source;
  std::vector<std::string> known;    // paths that were asked for
  std::vector<std::string> unknown;  // paths that are there and were not

  /// "train." of "train.epochs".
  static std::string section_of(const std::string& path) {
    return path.substr(0, path.size() - last_name(path).size());
  }

  /// The known names in the section of `path`, in the order in which they were asked for.
  std::vector<std::string> names_beside(const std::string& path) const {
    std::vector<std::string> names;
    for (const std::string& other : known)
      if (section_of(other) == section_of(path)) names.push_back(last_name(other));
    return names;
  }

  /// The known path that `path` was probably meant to be: a name of its own section, misspelt or
  /// shortened, else the same name, or a longer one, nearest to the root. Empty: none.
  std::string meant_by(const std::string& path) const {
    const std::string name = last_name(path);
    const std::string section = section_of(path);
    if (const std::string near = nearest_name(name, names_beside(path)); !near.empty())
      return section + near;

    std::string meant;
    auto best = std::pair(Likeness::kNone, std::size_t{0});  // and how deep it lies
    for (const std::string& other : known) {
      const bool here = section_of(other) == section;
      const std::pair found(likeness(last_name(other), name, here),
                            static_cast<std::size_t>(std::ranges::count(other, '.')));
      if (found >= best) continue;
      best = found;
      meant = other;
    }
    return meant;
  }

  /// What to write instead of `path`, as the end of a sentence.
  std::string advice(const std::string& path) const {
    if (const std::string meant = meant_by(path); !meant.empty())
      return fmt::format("; did you mean {}?", meant);
    const std::vector<std::string> names = names_beside(path);
    return names.empty() ? "" : fmt::format("; allowed: {}", fmt::join(names, ", "));
  }
};

JsonObject::JsonObject(const nlohmann::json& value, nlohmann::ordered_json& resolved,
                       std::string path, Shared& shared)
    : value_(value), resolved_(resolved), path_(std::move(path)), shared_(shared) {
  resolved_ = nlohmann::ordered_json::object();
}

std::string JsonObject::path_of(const std::string& key) const {
  return path_ + key;
}

bool JsonObject::has(const std::string& key) const {
  return value_.contains(key);
}

const nlohmann::json* JsonObject::find(const std::string& key) {
  asked_.push_back(key);
  shared_.known.push_back(path_of(key));
  const auto found = value_.find(key);
  return found == value_.end() ? nullptr : &*found;
}

void JsonObject::refuse(const std::string& key, const std::string& why) const {
  const std::string path = path_of(key);
  throw ConfigError(fmt::format("{}: {}: {}", shared_.source.origin_of(path), path, why));
}

void JsonObject::refuse_value(const std::string& key, const nlohmann::json& found,
                              const std::string& allowed, const std::string& advice) const {
  refuse(key, fmt::format("found {}; allowed: {}{}", describe(found), allowed, advice));
}

bool JsonObject::boolean(const std::string& key, bool fallback) {
  const json* found = find(key);
  if (found != nullptr && !found->is_boolean()) refuse_value(key, *found, "true or false");
  const bool result = found != nullptr ? found->get<bool>() : fallback;
  resolved_[key] = result;
  return result;
}

std::int64_t JsonObject::integer(const std::string& key, std::int64_t fallback,
                                 IntegerRange allowed) {
  const json* found = find(key);
  if (found != nullptr && !is_integer_within(*found, allowed)) {
    const json meant = meant_number(*found);
    refuse_value(key, *found, describe(allowed),
                 is_integer_within(meant, allowed) ? advice_to_write(meant.dump()) : "");
  }
  const std::int64_t result = found != nullptr ? found->get<std::int64_t>() : fallback;
  resolved_[key] = result;
  return result;
}

double JsonObject::number(const std::string& key, double fallback, NumberRange allowed) {
  const json* found = find(key);
  if (found != nullptr && !is_number_within(*found, allowed)) {
    const json meant = meant_number(*found);
    refuse_value(key, *found, describe(allowed),
                 is_number_within(meant, allowed) ? advice_to_write(meant.dump()) : "");
  }
  const double result = found != nullptr ? found->get<double>() : fallback;
  resolved_[key] = result;
  return result;
}

std::string JsonObject::text(const std::string& key, const std::string& fallback) {
  const json* found = find(key);
  if (found != nullptr && !found->is_string()) {
    const bool in_file = shared_.source.origin_of(path_of(key)) == shared_.source.file();
    std::string meant = json(found->dump()).dump();
    if (!in_file) meant = "'" + meant + "'";  // or the shell takes the quotation marks away
    const bool has_text = found->is_number() || found->is_boolean();
    refuse_value(key, *found, "a string", has_text ? advice_to_write(meant) : "");
  }
  std::string result = found != nullptr ? found->get<std::string>() : fallback;
  if (result.find('\0') != std::string::npos)  // where the system would see its end
    refuse_value(key, *found, "a string without NUL characters");
  resolved_[key] = result;
  return result;
}

std::string JsonObject::choice(const std::string& key, const std::string& fallback,
                               const std::vector<std::string>& allowed,
                               const std::vector<std::pair<std::string, std::string>>& others) {
  const json* found = find(key);
  std::string result = fallback;
  if (found != nullptr) {
    if (found->is_string()) result = found->get<std::string>();
    if (!found->is_string() || std::find(allowed.begin(), allowed.end(), result) == allowed.end()) {
      std::string words = fmt::format("\"{}\"", fmt::join(allowed, "\", \""));
      std::string near = found->is_string() ? nearest_name(result, allowed) : "";
      for (const auto& [word, meant] : others)
        if (found->is_string() && result == word) near = meant;
      if (!near.empty()) words += fmt::format("; did you mean \"{}\"?", near);
      refuse_value(key, *found, words);
    }
  }
  resolved_[key] = result;
  return result;
}

std::vector<double> JsonObject::numbers(const std::string& key, const std::vector<double>& fallback,
                                        NumberRange allowed) {
  const json* found = find(key);
  std::vector<double> result = fallback;
  if (found != nullptr) {
    const std::string expected = "an array, each element " + describe(allowed);
    if (!found->is_array()) refuse_value(key, *found, expected);
    for (const json& element : *found)
      if (!is_number_within(element, allowed)) refuse_value(key, element, expected);
    result = found->get<std::vector<double>>();
  }
  resolved_[key] = result;
  return result;
}

std::vector<std::int64_t> JsonObject::integers(const std::string& key,
                                               const std::vector<std::int64_t>& fallback,
                                               IntegerRange allowed) {
  const json* found = find(key);
  std::vector<std::int64_t> result = fallback;
  if (found != nullptr) {
    const std::string expected = "an array, each element " + describe(allowed);
    if (!found->is_array()) refuse_value(key, *found, expected);
    for (const json& element : *found)
      if (!is_integer_within(element, allowed)) refuse_value(key, element, expected);
    result = found->get<std::vector<std::int64_t>>();
  }
  resolved_[key] = result;
  return result;
}

void JsonObject::object(const std::string& key, const std::function<void(JsonObject&)>& read) {
  const json* found = find(key);
  if (found != nullptr && !found->is_object()) refuse_value(key, *found, "a section { … }");
  const json empty = json::object();
  JsonObject child(found != nullptr ? *found : empty, resolved_[key], path_of(key) + ".", shared_);
  read(child);
  child.note_unknown_keys();
}

void JsonObject::note_unknown_keys() const {
  for (const auto& item : value_.items())
    if (std::find(asked_.begin(), asked_.end(), item.key()) == asked_.end())
      shared_.unknown.push_back(path_of(item.key()));
}

nlohmann::ordered_json read_json_object(const nlohmann::json& value, const ConfigSource& source,
                                        const std::function<void(JsonObject&)>& read) {
  if (!value.is_object())
    throw ConfigError(
        fmt::format("{}: found {}; allowed: one object {{ … }}", source.file(), describe(value)));
  JsonObject::Shared shared{.source = source, .known = {}, .unknown = {}};
  nlohmann::ordered_json resolved;
  JsonObject root(value, resolved, "", shared);
  read(root);
  root.note_unknown_keys();
  if (!shared.unknown.empty()) {
    const std::string& path = shared.unknown.front();
    root.refuse(path, "unknown key" + shared.advice(path));
  }
  return resolved;
}

}  // namespace dlaunch
