#include "trainers/training/checkpointing.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "nn/checkpoint/atomic_file.h"
#include "nn/core/digest.h"
#include "nn/parallel/tensor_memory.h"
#include "runtime/base/deadline.h"
#include "runtime/base/json_reader.h"
#include "runtime/comm/objects.h"
#include "runtime/parallel/long_work.h"
#include "runtime/parallel/state_broadcast.h"
#include "trainers/config/config_difference.h"
#include "trainers/output/set_aside.h"

namespace dlaunch {
namespace {

constexpr const char* kTraining = "dlaunch.training";  // the key in the file's metadata
constexpr const char* kSamples = "samples in a step";
constexpr const char* kAccumulation = "train.accumulation_steps";
constexpr int kVersion = 1;             // of the format of what stands under that key
constexpr std::size_t kStateWords = 3;  // of a RandomState

std::vector<Buffer> buffers_of(std::span<const nn::NamedTensor> state) {
  std::vector<Buffer> buffers;
  buffers.reserve(state.size());
  for (const nn::NamedTensor& item : state) buffers.emplace_back(memory_of(item.tensor));
  return buffers;
}

/// Whether an item of what a checkpoint says of its run is what dtrain writes there.
bool is_of_training(const std::string& key, const nlohmann::json& value) {
  if (key == "run" || key == "config" || key == "report") return value.is_object();
  if (key == "run_id" || key == "data" || key == "begun_from") return value.is_string();
  if (key != "random") return value.is_number_unsigned();
  return value.is_array() && value.size() % kStateWords == 0 &&
         std::ranges::all_of(value, [](const auto& word) { return word.is_number_unsigned(); });
}

/// Refuses a file that holds other tensors than `state` of those that a setting decides about: the
/// names alone tell nobody which.
void check_settings(const nn::SafetensorsFile& file, std::span<const nn::NamedTensor> state) {
  constexpr std::array<std::pair<std::string_view, const char*>, 3> kSettings{
      {{"ema.", "ema.decay"},
       {"loss_scaling.", "train.loss_scaling and train.compute_type"},
       {"optimizer.", "optimizer.*"}}};
  std::set<std::string> wanted;
  for (const nn::NamedTensor& item : state) wanted.insert(item.name);
  const auto& there = file.tensors();
  for (const auto& setting : kSettings) {
    const auto refuse = [&](const std::string& name, const char* why) {
      if (name.starts_with(setting.first))
        file.refuse(name, fmt::format("{}: set {} as in the run of this checkpoint, or begin anew "
                                      "without --resume in another output.directory",
                                      why, setting.second));
    };
    for (const auto& [name, entry] : there)
      if (!wanted.contains(name))
        refuse(name, "unexpected tensor (this run has none of this name)");
    for (const std::string& name : wanted)
      if (!there.contains(name)) refuse(name, "not in this file");
  }
}

/// As JSON can be written: names of files need not be UTF-8.
nlohmann::ordered_json valid_text(const nlohmann::ordered_json& config) {
  return nlohmann::ordered_json::parse(
      config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// What to do about the newest of `files`, which is damaged.
std::string how_to_do_without_newest(std::span<const nn::CheckpointFile> files) {
  if (files.size() < 2) return "remove it to begin anew";
  return fmt::format("remove it to resume from the one before it, {}",
                     files[files.size() - 2].path);
}

/// Runs that begin with the same one train the same networks.
std::string new_run_id(const TrainConfig& config, int ranks) {
  const auto replace = nlohmann::json::error_handler_t::replace;
  return nn::digest_of(
      fmt::format("{} ranks, {}", ranks, config.resolved.dump(-1, ' ', false, replace)));
}

}  // namespace

bool is_checkpoint(const nn::SafetensorsFile& file) {
  return file.metadata().contains(kTraining);
}

nlohmann::json training_in(const nn::SafetensorsFile& file) {
  if (!is_checkpoint(file))
    file.refuse(kTraining,
                "not in this file: it is no checkpoint of dtrain; a network alone is "
                "given with model.weights");
  try {
    nlohmann::json training = nlohmann::json::parse(file.metadata().at(kTraining));
    if (training.at("version") != kVersion)
      file.refuse(kTraining, fmt::format("of version {}, this dtrain reads version {}",
                                         training["version"].dump(), kVersion));
    for (const char* key : {"steps_done", "epoch", "step", "run", "run_id", "data", "config",
                            "report", "begun_from", "begun_at", "random"})
      if (!is_of_training(key, training.value(key, nlohmann::json())))
        file.refuse(kTraining, fmt::format("\"{}\" is not what dtrain writes", key));
    return training;
  } catch (const nlohmann::json::exception& error) {
    file.refuse(kTraining, error.what());
  }
}

Checkpointing::Checkpointing(const TrainConfig& config, Communicator& world,
                             const nn::Dataset& train_set, const nn::StepPlan& plan,
                             std::vector<nn::NamedTensor> state, LeaderState leader_state,
                             nn::Generator& generator)
    : config_(config),
      world_(world),
      train_set_(train_set),
      steps_per_epoch_(plan.steps()),
      state_(std::move(state)),
      leader_state_(std::move(leader_state)),
      generator_(generator),
      folder_(config.output_path(kCheckpointFolder)) {
  if (world.rank() != 0) return;
  run_id_ = new_run_id(config, world.size());
  // First, so that nobody else changes what is found.
  std::error_code ignored;  // what reads and writes there says it
  if (config.writes_output() && std::filesystem::is_directory(config.output_directory, ignored))
    lock_output();
  find_checkpoint();
  if (config.writes_output()) prepare_output();
  if (config_.checkpoint.enabled() && fingerprint_.empty())
    computing_fingerprint_ = std::async([this] { fingerprint_ = train_set_.fingerprint(); });
}

/// For checkpoints and networks, and for what else is written there.
void Checkpointing::prepare_output() {
  try {
    nn::make_writable_folder(config_.output_directory);
    if (!lock_.is_open()) lock_output();
    if (config_.checkpoint.enabled()) folder_.prepare();
  } catch (const ConfigError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw ConfigError(fmt::format("output.directory: {}; set another one", error.what()));
  }
  refuse_folders_in_the_way();
  nn::AtomicFile::remove_leftovers(config_.output_directory, [](std::string_view name) {
    return name == kBestFile || name == kModelFile;
  });
}

/// Where files will be written or, if they are an earlier run's, set aside (set_aside.h): at the
/// end it would be too late to hear of it.
void Checkpointing::refuse_folders_in_the_way() const {
  const auto refuse = [](const std::string& path, const char* what) {
    throw ConfigError(
        fmt::format("{} is a folder, {}; move it, or set output.directory", path, what));
  };
  std::error_code ignored;  // whoever writes says it
  const auto look = [&](const std::string& name, bool is_written) {
    const std::string path = config_.output_path(name);
    const std::string previous = path + kPreviousSuffix;
    if (is_written && std::filesystem::is_directory(path, ignored))
      refuse(path, "but the run is to write a file there");
    if (!resumes() && std::filesystem::is_regular_file(path, ignored) &&
        std::filesystem::is_directory(previous, ignored))
      refuse(previous, "but an earlier run's file is to be set aside there");
  };
  look(kModelFile, config_.checkpoint.final_network);
  look(kBestFile, config_.checkpoint.keep_best);
  if (!config_.metrics_file.empty()) look(config_.metrics_file, true);
}

/// Two runs in one folder would remove and replace each other's files, and mix their metrics.
void Checkpointing::lock_output() {
  // Rank 0 of the attempt before may have been on another machine, where its end takes a while.
  const auto patience = std::chrono::seconds(config_.checkpoint.restarted ? 10 : 0);
  const Deadline deadline = Deadline::after(patience);
  while (!(lock_ = nn::try_to_lock_folder(config_.output_directory)).is_open()) {
    if (deadline.expired())
      throw ConfigError(
          fmt::format("{} is in use: another run that has not ended writes to it; set "
                      "output.directory, or wait for its end",
                      config_.output_directory));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Checkpointing::~Checkpointing() = default;  // a future of std::async waits

/// Rank 0: all that a checkpoint holds.
std::vector<nn::NamedTensor> Checkpointing::whole_state(const nn::SafetensorsFile* source) const {
  std::vector<nn::NamedTensor> all = state_;
  std::ranges::move(leader_state_(source), std::back_inserter(all));
  return all;
}

void Checkpointing::find_checkpoint() {
  const CheckpointConfig& how = config_.checkpoint;
  const std::vector<nn::CheckpointFile> files = folder_.list();
  if (how.resume == CheckpointConfig::Resume::kNewest && !files.empty()) {
    try {
      if (resume_own(files.back().path)) return;
    } catch (const nn::DamagedFile& error) {
      throw nn::DataError(fmt::format("{}; {}", error.what(), how_to_do_without_newest(files)));
    }
  }
  if (!how.path.empty()) begin_from(how.path);
  // Its next checkpoints would lie among those, and the newest would not be this run's.
  if (how.enabled() && !files.empty() && (how.path.empty() || files.back().step > begun_at_)) {
    if (how.restarted && how.path.empty())
      throw ConfigError(fmt::format(
          "{} is in the way: dlaunch has restarted the job, and --resume none keeps it from "
          "resuming; leave that out to begin anew in the first attempt only",
          files.back().path));
    throw ConfigError(fmt::format(
        "{} is in the way: a checkpoint of another run; resume it with --resume auto, set "
        "output.directory, or remove {}",
        files.back().path, folder_.directory()));
  }
}

/// From the newest checkpoint. False if that is another run's: a run that was told where to begin
/// may have been killed before its first one.
bool Checkpointing::resume_own(const std::string& newest) {
  const nn::SafetensorsFile file(newest);
  nlohmann::json training = training_in(file);
  const std::string& begin = config_.checkpoint.path;
  if (!begin.empty() && training["begun_from"] != begin) return false;
  begun_from_ = training["begun_from"];
  begun_at_ = training["begun_at"];
  run_id_ = training["run_id"];
  load(file, std::move(training));
  return true;
}

/// From the checkpoint that the configuration names.
void Checkpointing::begin_from(const std::string& path) {
  std::error_code ignored;  // whoever opens it says it
  const auto type = std::filesystem::status(path, ignored).type();
  if (type == std::filesystem::file_type::not_found)
    throw nn::DataError(fmt::format(
        "checkpoint.resume: there is no {}; name a checkpoint, or use auto for the newest in "
        "output.directory, if any",
        path));
  if (type == std::filesystem::file_type::directory) {
    std::vector<nn::CheckpointFile> inside = nn::CheckpointFolder(path).list();
    if (inside.empty())
      inside = nn::CheckpointFolder(fmt::format("{}/{}", path, kCheckpointFolder)).list();
    throw nn::DataError(fmt::format(
        "checkpoint.resume: {} is a folder; name a file{}, or use auto for the newest in "
        "output.directory",
        path, inside.empty() ? "" : ", as " + inside.back().path));
  }
  const nn::SafetensorsFile file(path);
  load(file, training_in(file));
  begun_from_ = path;
  begun_at_ = training_["steps_done"];
}

void Checkpointing::load(const nn::SafetensorsFile& file, nlohmann::json training) {
  training_ = std::move(training);
  try {
    check_same_run(file, training_["run"]);
  } catch (const nlohmann::json::exception& error) {
    file.refuse(kTraining, error.what());
  }
  const std::vector<nn::NamedTensor> state = whole_state(&file);
  check_settings(file, state);
  load_tensors(file, state);
  found_ = file.path();
}

/// What the places in a run are counted in.
nlohmann::json Checkpointing::describe_run() const {
  const auto ranks = static_cast<std::size_t>(world_.size());
  return {{"model.name", config_.model},
          {"optimizer.name", config_.resolved.at("optimizer").at("name")},
          {"train.seed", config_.seed},
          {kSamples, config_.samples_per_step(ranks)},
          {"steps in an epoch (train.drop_last, or another number of images)", steps_per_epoch_},
          {kAccumulation, config_.accumulation_steps}};
}

/// What a run can set whose steps have other samples than the checkpoint's.
std::string Checkpointing::how_to_have_samples(const nlohmann::json& samples) const {
  const std::size_t ranks = training_.at("random").size() / kStateWords;
  const auto here = static_cast<std::size_t>(world_.size());
  if (ranks == here) return "make them the same";
  return fmt::format(
      "it was written by {} rank{}, here {} {}: set train.global_batch_size={} and "
      "train.batch_size_per_rank=0",
      ranks, ranks == 1 ? "" : "s", here == 1 ? "is" : "are", here, samples.dump());
}

void Checkpointing::check_same_run(const nn::SafetensorsFile& file, const nlohmann::json& run) {
  const nlohmann::json here = describe_run();
  for (const auto& [key, mine] : here.items()) {
    // Images are mixed within micro-batches, at random in each of them.
    if (key == kAccumulation && config_.data.mix.kind == nn::MixKind::kNone) continue;
    if (run.at(key) != mine)
      throw nn::DataError(fmt::format(
          "{}: {} is {} in this checkpoint, {} in the configuration; {}, or begin anew without "
          "--resume in another output.directory",
          file.path(), key, run.at(key).dump(), mine.dump(),
          key == kSamples ? how_to_have_samples(run.at(key)) : "make them the same"));
  }
  fingerprint_ = train_set_.fingerprint();
  if (training_.at("data") != fingerprint_)
    throw nn::DataError(
        fmt::format("{}: the training images have changed since this checkpoint was written; "
                    "restore them, or begin anew without --resume in another output.directory",
                    file.path()));
}

/// To change a setting is allowed, but may not have been meant.
std::vector<std::string> Checkpointing::changed_settings(const nlohmann::json& config) const {
  std::vector<std::string> lines;
  const auto there = nlohmann::ordered_json::parse(config.dump());
  for (const ConfigDifference& difference :
       config_differences(training_part(valid_text(config_.resolved)), training_part(there))) {
    lines.push_back(fmt::format("{}: {} in the checkpoint, {} now", difference.key,
                                ConfigDifference::text(difference.there),
                                ConfigDifference::text(difference.here)));
    if (difference.key == kAccumulation)
      lines.back() += ": batch norm normalises micro-batches of another size from here on";
  }
  return lines;
}

Checkpointing::ResumePoint Checkpointing::resume() {
  std::string text = resumes() ? training_.dump() : "";
  throw_if_error(broadcast_bytes(world_, text, 0).within("resume"));
  if (text.empty()) return {};
  throw_if_error(broadcast_state(world_, buffers_of(state_)).within("resume"));

  const nlohmann::json training = nlohmann::json::parse(text);
  const auto words = training["random"].get<std::vector<std::uint64_t>>();
  const std::size_t own = kStateWords * static_cast<std::size_t>(world_.rank());
  // A rank that was not there begins where it would have begun.
  if (own < words.size()) generator_.restore({words[own], words[own + 1], words[own + 2]});
  return {.found = true,
          .position = {training.at("steps_done"), training.at("epoch"), training.at("step")},
          .report = training.at("report"),
          .changed = changed_settings(training.at("config"))};
}

bool Checkpointing::is_due(const RunPosition& position, bool last) const {
  const CheckpointConfig& how = config_.checkpoint;
  if (!how.enabled()) return false;
  const bool epoch_begins = position.step == 0 && position.epoch > 0;
  return last || (how.every_steps > 0 && position.steps_done % how.every_steps == 0) ||
         (how.every_epochs > 0 && epoch_begins && position.epoch % how.every_epochs == 0);
}

std::vector<std::uint64_t> Checkpointing::gather_random_states() {
  const nn::RandomState& own = generator_.state();
  const std::array<std::uint64_t, kStateWords> mine{own.seed, own.stream, own.position};
  std::vector<std::uint64_t> all(kStateWords * static_cast<std::size_t>(world_.size()));
  throw_if_error(world_
                     .all_gather(ConstBuffer(mine.data(), mine.size(), DType::kI64),
                                 Buffer(all.data(), all.size(), DType::kI64))
                     .within("checkpoint"));
  return all;
}

void Checkpointing::save(const RunPosition& position, const nlohmann::json& report) {
  const std::vector<std::uint64_t> random = gather_random_states();
  throw_if_error(await_work(world_, computing_fingerprint_).within("checkpoint"));
  await_write();
  if (world_.rank() != 0) return;
  if (computing_fingerprint_.valid()) computing_fingerprint_.get();
  if (!failure_.empty())
    logger_->warn("{}; training goes on, {}", std::exchange(failure_, ""),
                  has_written_ || resumes() ? "the checkpoints before it are good"
                                            : "without a checkpoint so far");
  const nlohmann::json training{
      {"version", kVersion},       {"steps_done", position.steps_done},
      {"epoch", position.epoch},   {"step", position.step},
      {"run", describe_run()},     {"run_id", run_id_},
      {"data", fingerprint_},      {"config", valid_text(config_.resolved)},
      {"begun_from", begun_from_}, {"begun_at", begun_at_},
      {"random", random},          {"report", report}};
  // What a report says may have a file's name in it, which need not be UTF-8.
  auto text = training.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  snapshot_.take(whole_state(nullptr));
  const auto write = [this, path = folder_.path_of(position.steps_done), text = std::move(text)] {
    write_with_room([&] { snapshot_.write(path, {{kTraining, text}}); });
    folder_.keep_newest(config_.checkpoint.keep, begun_at_);
  };
  // A copy: where no thread can be started, libstdc++ goes on with what it has moved from.
  writing_ = std::async(write);
}

/// Collective: until rank 0 has written the checkpoint before.
void Checkpointing::await_write() {
  throw_if_error(await_work(world_, writing_).within("checkpoint"));
  if (!writing_.valid()) return;
  try {
    writing_.get();
    has_written_ = true;
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
}

void Checkpointing::write_with_room(const std::function<void()>& write) {
  while (true) {
    try {
      return write();
    } catch (const std::system_error& error) {
      const int why = error.code().value();
      const bool full = why == ENOSPC || why == EDQUOT;
      // Of a run that writes none those that are there are another's.
      const std::string removed =
          full && config_.checkpoint.enabled() ? folder_.remove_oldest(begun_at_) : "";
      if (removed.empty()) throw;
      if (!has_made_room_.exchange(true))
        logger_->warn(
            "{}; {} was removed to make room, as the oldest will be whenever there is none: "
            "checkpoint.keep={} needs it for {}",
            error.what(), removed, config_.checkpoint.keep, config_.checkpoint.keep + 1);
    }
  }
}

void Checkpointing::finish() {
  await_write();
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

}  // namespace dlaunch
