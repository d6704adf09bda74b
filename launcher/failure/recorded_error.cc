#include "launcher/failure/recorded_error.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>

namespace dlaunch {
namespace {

constexpr std::size_t kMostErrorBytes = 1 << 20;

std::string text_of(const nlohmann::json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// PyTorch writes it as text.
std::int64_t timestamp_of(const nlohmann::json& object) {
  const auto found = object.is_object() ? object.find("timestamp") : object.end();
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  const std::string text = text_of(object, "timestamp");
  std::int64_t seconds = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return error == std::errc() && stop == text.data() + text.size() ? seconds : 0;
}

// Of the last frame in a traceback, '  File "train.py", line 8, in load': "train.py:8, in load".
std::string place_in(const std::string& traceback) {
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  const auto begin = traceback.rfind(kFile);
  if (begin == std::string::npos) return "";
  const auto end = std::min(traceback.find('\n', begin), traceback.size());
  std::string frame = traceback.substr(begin + kFile.size(), end - begin - kFile.size());
  const auto line = frame.find(kLine);
  if (line == std::string::npos) return "";
  return frame.replace(line, kLine.size(), ":");
}

}  // namespace

std::string error_file(const std::string& folder, int attempt, int rank) {
  if (folder.empty()) return "";
  return folder + "/attempt-" + std::to_string(attempt) + "-rank-" + std::to_string(rank) + ".json";
}

std::optional<RecordedError> parse_recorded_error(std::string_view text) {
  const auto whole = nlohmann::json::parse(text, nullptr, false);
  if (!whole.is_object() || !whole.contains("message")) return std::nullopt;
  // {"message": {"message": ..., "extraInfo": {...}}}, or what others write: {"message": ...}.
  const nlohmann::json& message = whole["message"];
  RecordedError error;
  error.message = message.is_object() ? text_of(message, "message") : text_of(whole, "message");
  error.message.resize(std::min(error.message.find('\n'), error.message.size()));
  if (error.message.empty()) return std::nullopt;
  const nlohmann::json extra =
      message.is_object() && message.contains("extraInfo") ? message["extraInfo"] : whole;
  error.place = place_in(text_of(extra, "py_callstack"));
  error.seconds = timestamp_of(extra);
  return error;
}

std::optional<RecordedError> read_recorded_error(const std::string& path) {
  std::error_code none;
  // Not a pipe or the like, which a read could wait for.
  if (path.empty() || !std::filesystem::is_regular_file(path, none)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostErrorBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_recorded_error(text);
}

void remove_error_files(const std::string& folder) {
  if (folder.empty()) return;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    std::filesystem::remove_all(entry->path(), ignored);
  }
}

}  // namespace dlaunch
